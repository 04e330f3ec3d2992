"""Agents of AgentScope's whose context a document manages."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("agentscope", reason="agentscope is an extra for tests")

from agentscope.agent import Agent, ContextConfig
from agentscope.message import AssistantMsg, HintBlock, Msg, TextBlock, ToolResultBlock, UserMsg
from agentscope.state import AgentState
from agentscope_model import FIVE_FIELDS, Answer, Request, ScriptedModel, call, state
from agentscope_pilot import (
    archived,
    assert_paired,
    assert_sound,
    blocks_in,
    full_context,
    log,
    pilot,
    results_in,
    sail,
    text_of,
    voyage,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from thirds import examples, third_of

from buoyline import ContextWindow, LocalWorkspace, MemoryWorkspace
from buoyline.compression import SummaryRequest
from buoyline.errors import ConfigError, DocumentError, NotFoundError, StorageError, SummaryError
from buoyline.integrations.agentscope import WorkspaceMiddleware, resumed_state
from buoyline.integrations.agentscope.context import behind_head, noted
from buoyline.integrations.agentscope.settings import MiddlewareSettings, Workbench
from buoyline.management import ContextManagement
from buoyline.management.registry import BUILT_IN
from buoyline.messages.registry import detect
from buoyline.offloader import Abilities
from buoyline.offloader.protocol import abilities_of
from buoyline.tokens import default_counter
from buoyline.window.events import ContextManaged, Event, OverflowRecovered, ResultOffloaded
from buoyline.window.settings import Management

NOT_NULL = ContextManagement.read({"type": "SlidingWindowManager"})
TOO_LONG = ValueError("Error code: 400 - This model's maximum context length is 4000 tokens.")


def doc(**hooks: Sequence[tuple[str, Mapping[str, Any]]]) -> dict[str, Any]:
    """Return a document of such managers."""
    return {"hooks": {hook: [{"type": kind, "config": config} for kind, config in of] for hook, of in hooks.items()}}


def gave(call_id: str, text: str) -> ToolResultBlock:
    return ToolResultBlock(id=call_id, name="log", output=text)


def sliding(max_messages: int, **config: Any) -> dict[str, Any]:
    return doc(pre_llm=[("SlidingWindowManager", {"max_messages": max_messages, **config})])


def mixed(turns: int, calls: int) -> list[Answer]:
    """Return the answers of an agent that reads two short logs, and then a long one, again and again."""
    answers: list[Answer] = []
    for turn in range(turns):
        for number in range(calls):
            lines = 100 if number % 3 == 2 else 12
            said = TextBlock(text=f"I look at log {turn}-{number}." + " It may tell more." * 20)
            answers.append([said, call("log", f"c{turn}_{number}", n=turn * 10 + number, lines=lines)])
        answers.append(f"Turn {turn} is done.")
    return answers


def everything(agent: Agent, workspace: LocalWorkspace) -> list[tuple[str, str, str]]:
    """Return what is in the archive, and what of the context is not."""
    behind = [message.model_dump(mode="json") for message in behind_head(agent.state)]
    return blocks_in([*archived(workspace, agent.state.session_id), *behind])


def said_by_user(request: Request) -> str:
    return "\n".join(message.get_text_content() or "" for message in request.messages if message.role == "user")


async def assert_whole(
    agent: Agent, workspace: LocalWorkspace, model: ScriptedModel, management: ContextManagement = NOT_NULL
) -> None:
    """Check that nothing is lost or there twice, and that each request could be answered."""
    held = everything(agent, workspace)
    assert len(held) == len(set(held))
    ours = {again.message.id for again in noted(agent.state).head if again.index < 0}
    shown = [message.model_dump(mode="json") for request in model.turns for message in request.messages[1:]]
    calls = {(kind, name) for _, kind, name in blocks_in(shown) if kind in {"tool_call", "tool_result"}}
    assert calls <= {(kind, name) for _, kind, name in held}
    assert not ours & {name for name, _, _ in held}
    for request in model.turns:
        assert_paired(request.messages)
        tokens = await model.count_tokens(request.messages, request.tools)
        assert tokens <= model.context_size or management.is_null
    assert_sound(workspace)


@pytest.mark.parametrize("name", third_of(sorted(BUILT_IN)))
@pytest.mark.parametrize("size", [2_500, pytest.param(12_000, marks=pytest.mark.slow)])
async def test_each_document_of_the_package_keeps_a_long_voyage_whole(tmp_path: Path, name: str, size: int) -> None:
    async with LocalWorkspace(tmp_path / "w", durability="off") as workspace:
        model = ScriptedModel(mixed(3, 6), context_size=size)
        agent = pilot(model, WorkspaceMiddleware(workspace, management=name))
        for turn in range(3):
            before = len(model.turns)
            await agent.reply(UserMsg("user", f"Look at the logs; berth 47-{turn} is closed."))
            assert all(f"berth 47-{turn} is closed" in said_by_user(request) for request in model.turns[before:])
        await assert_whole(agent, workspace, model)
        assert len([block for block in everything(agent, workspace) if block[1] == "tool_result"]) == 18

        window = await ContextWindow.resume(workspace, "s1")
        assert window.management is not None
        assert window.management.name == name
        shown = await model.count_tokens([m for m in window.messages if isinstance(m, Msg)], None)
        own = await model.count_tokens([UserMsg("user", agent.state.summary), *agent.state.context], None)
        assert abs(shown - own) <= 20


async def test_the_newest_six_messages_stay_with_what_the_user_said(tmp_path: Path) -> None:
    workspace, events = LocalWorkspace(tmp_path, durability="off"), list[Event]()
    model = ScriptedModel(voyage(1, 6, lines=5))
    agent = pilot(model, WorkspaceMiddleware(workspace, management=sliding(6), on_event=events.append))
    await agent.reply(UserMsg("user", "Look at the logs; berth 47 is closed."))

    request = model.turns[-1]
    assert request.messages[1].get_text_content("") is not None
    notice, asked = request.messages[1:3]
    assert "Messages before number" in (notice.get_text_content() or "")
    assert asked.get_text_content() == "Look at the logs; berth 47 is closed."
    assert [result.id for result in results_in(request.messages)] == ["c0_4", "c0_5"]
    assert archived(workspace)[0]["id"] == asked.id
    reports = [event for event in events if isinstance(event, ContextManaged)]
    assert {event.hook for event in reports} == {"pre_llm"}
    assert reports[-1].report.is_reduced
    await assert_whole(agent, workspace, model)


async def test_an_output_is_cut_to_100_000_characters_and_the_whole_is_in_a_file(tmp_path: Path) -> None:
    workspace, events = LocalWorkspace(tmp_path, durability="off"), list[Event]()
    management = doc(post_tool=[("ToolsOutputTruncateManager", {"max_output_length": 100_000})])
    model = ScriptedModel([[call("log", n=1, lines=3_000)], "Done."])
    agent = pilot(model, WorkspaceMiddleware(workspace, management=management, on_event=events.append))
    await agent.reply(UserMsg("user", "Look."))

    (result,) = results_in(model.turns[-1].messages)
    assert len(text_of(result)) == 100_000
    (file,) = workspace.workdir.glob("sessions/s1/tool_result-*")
    assert file.read_text("utf-8") == log(1, 3_000)
    assert str(file) in text_of(result)
    assert [type(event) for event in events] == [ResultOffloaded, ContextManaged]


async def test_neither_trigger_nor_limits_of_the_agent_hold_beside_a_document(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path, durability="off")
    model = ScriptedModel([[call("log", n=1)], "Done."], context_size=6_000)
    agent = pilot(model, WorkspaceMiddleware(workspace, management=sliding(100)), trigger_ratio=0.3)
    await agent.reply(UserMsg("user", "Look."))

    (result,) = results_in(model.turns[-1].messages)
    assert text_of(result) == log(1)
    assert not agent.state.summary
    assert archived(workspace) == []


async def test_a_document_that_leaves_too_much_is_helped_out(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path, durability="off")
    model = ScriptedModel(voyage(2, 4), context_size=4_000)
    agent = pilot(model, WorkspaceMiddleware(workspace, management=sliding(100)))
    await sail(agent, 2)
    assert agent.state.summary
    await assert_whole(agent, workspace, model)


async def test_the_null_document_changes_nothing(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path, durability="off")
    model = ScriptedModel(voyage(1, 3), context_size=2_000)
    agent = pilot(model, WorkspaceMiddleware(workspace, management={"hooks": {}}))
    await sail(agent, 1)
    assert [text_of(result) for result in results_in(agent.state.context)] == [log(n) for n in range(3)]
    assert archived(workspace) == []
    assert noted(agent.state).archived == 0


async def test_a_named_summariser_writes_and_an_unknown_one_is_reported(tmp_path: Path) -> None:
    asked: list[SummaryRequest] = []

    async def small(request: SummaryRequest) -> dict[str, str]:
        asked.append(request)
        return dict(FIVE_FIELDS)

    workspace, events = LocalWorkspace(tmp_path, durability="off"), list[Event]()
    summarise = {"summary_ratio": 0.5, "preserve_recent_messages": 4, "activation": {"message_count_exceed": 8}}
    named = doc(pre_llm=[("SummarizationManager", {**summarise, "summarization_model_id": "small"})])
    model = ScriptedModel(voyage(1, 6, lines=5))
    middleware = WorkspaceMiddleware(
        workspace, management=named, summarizers={"small": small}, on_event=events.append, instructions=""
    )
    await sail(pilot(model, middleware), 1)
    assert asked
    assert not [request for request in model.requests if request.wants_summary]
    assert "Chart the buoys." in said_by_user(model.turns[-1])

    events.clear()
    other = WorkspaceMiddleware(workspace, management=named, on_event=events.append)
    model = ScriptedModel(voyage(1, 6, lines=5))
    agent = pilot(model, other, of=state("s2"))
    await sail(agent, 1)
    assert [request for request in model.requests if request.wants_summary]
    found = [ran for event in events if isinstance(event, ContextManaged) for ran in event.report.entries]
    assert "no summariser is named 'small'" in {problem for ran in found for problem in ran.problems}
    usage = agent.state.context[-1].usage
    assert usage is not None
    assert usage.output_tokens == 10 * len(model.requests)


class Refused(Exception):  # noqa: N818 - what clients of providers raise has no common name
    """The provider takes no key."""

    status_code = 401


async def test_a_strict_agent_gets_no_summary_without_its_model(tmp_path: Path) -> None:
    management = doc(pre_llm=[("SummarizationManager", {"preserve_recent_messages": 2})])
    model = ScriptedModel(summaries=[Refused()])
    of = state("s1", *full_context())
    middleware = WorkspaceMiddleware(LocalWorkspace(tmp_path, durability="off"), management=management)
    agent = pilot(model, middleware, of=of, compression_fallback_to_truncation=False)
    before = of.model_dump()
    with pytest.raises(SummaryError, match="as it was"):
        await agent.compress_context()
    assert agent.state.model_dump() == before


async def test_what_was_replaced_keeps_the_agents_own_blocks() -> None:
    management = doc(pre_llm=[("ToolResultMaskManager", {"keep_recent_results": 1, "min_tokens": 1})])
    blocks: list[Any] = [block for n in range(3) for block in (call("log", f"c{n}"), gave(f"c{n}", log(n)))]
    of = state("s1", UserMsg("user", "Look."), AssistantMsg("pilot", blocks))
    reply = of.context[1]
    agent = pilot(ScriptedModel(), WorkspaceMiddleware(MemoryWorkspace(), management=management), of=of)
    await agent.compress_context()

    now = agent.state.context[1]
    assert now.id == reply.id
    assert reply.content == blocks, "the message that somebody else may hold is as it was"
    masked = [text_of(result) for result in results_in([now])]
    assert masked[0].startswith("[Older result of log left out")
    assert masked[-1] == text_of(results_in([reply])[-1])
    others = [block for block in now.content if block.type != "tool_result"]
    assert all(any(block is mine for mine in blocks) for block in others)


async def test_a_pin_stands_in_front_and_is_archived_once(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path, durability="off")
    management = doc(
        pre_llm=[("PinManager", {"contains": ["never round"]}), ("SlidingWindowManager", {"max_messages": 5})]
    )
    model = ScriptedModel(voyage(3, 4, lines=5))
    agent = pilot(model, WorkspaceMiddleware(workspace, management=management))
    await agent.reply(UserMsg("user", "Chart it; never round."))
    await sail(agent, 2)
    assert "never round" in said_by_user(model.turns[-1])
    assert [again.pinned for again in noted(agent.state).head] == [True, False, False]
    await assert_whole(agent, workspace, model)

    again = await resumed_state(workspace, "s1")
    assert [(found.message.id, found.index, found.pinned) for found in noted(again).head] == [
        (found.message.id, found.index, found.pinned) for found in noted(agent.state).head
    ]
    model = ScriptedModel(voyage(1, 4, lines=5))
    other = pilot(model, WorkspaceMiddleware(workspace, management=management), of=again)
    await sail(other, 1)
    await assert_whole(other, workspace, model)


async def test_a_pin_that_one_hook_set_stays_when_another_hook_evicts_its_message(tmp_path: Path) -> None:
    """The pin is part of the saved state in between: here another agent goes on, whose document pins nothing."""
    workspace = LocalWorkspace(tmp_path, durability="off")
    model = ScriptedModel(voyage(1, 2, lines=5))
    pinning = doc(post_memory=[("PinManager", {"contains": ["never round"]})])
    agent = pilot(model, WorkspaceMiddleware(workspace, management=pinning))
    await agent.reply(UserMsg("user", "Chart it; never round."))

    saved = AgentState.model_validate_json(agent.state.model_dump_json())
    model = ScriptedModel(voyage(2, 4, lines=5))
    other = pilot(model, WorkspaceMiddleware(workspace, management=sliding(5)), of=saved)
    await sail(other, 2)
    assert "never round" in said_by_user(model.turns[-1])
    assert [again.pinned for again in noted(other.state).head].count(True) == 1
    await assert_whole(other, workspace, model)


@pytest.mark.parametrize("turn", [1, 2])
async def test_an_older_state_goes_on_behind_what_the_archive_has(tmp_path: Path, turn: int) -> None:
    """The archive knows the other way; what both have in common is not archived again."""
    workspace = LocalWorkspace(tmp_path, durability="off")
    middleware = WorkspaceMiddleware(workspace, management=sliding(6))
    agent, saved = pilot(ScriptedModel(voyage(3, 4, lines=5)), middleware), list[str]()
    for _ in range(3):
        await sail(agent, 1)
        saved.append(agent.state.model_dump_json())

    model = ScriptedModel(voyage(2, 4, lines=6))
    older = pilot(model, middleware, of=AgentState.model_validate_json(saved[turn - 1]))
    await sail(older, 2)
    await assert_whole(older, workspace, model)
    first = [block for block in everything(older, workspace) if block[1] == "tool_result" and block[2] == "c0_0"]
    assert len(first) == 2


async def test_a_newer_state_than_the_archive_goes_on(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path, durability="off")
    middleware = WorkspaceMiddleware(workspace, management=sliding(6))
    agent = pilot(ScriptedModel(voyage(2, 4, lines=5)), middleware)
    await sail(agent, 2)
    saved = AgentState.model_validate_json(agent.state.model_dump_json())
    saved.context.append(UserMsg("user", "And the last one."))

    model = ScriptedModel(voyage(2, 4, lines=6))
    again = pilot(model, WorkspaceMiddleware(workspace, management=sliding(6)), of=saved)
    await sail(again, 1)
    await assert_whole(again, workspace, model)
    assert len([block for block in everything(again, workspace) if block[1] == "tool_result"]) == 12


async def test_a_state_without_a_document_goes_on_with_what_one_has_left_in_it(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path, durability="off")
    agent = pilot(ScriptedModel(voyage(2, 4, lines=5)), WorkspaceMiddleware(workspace, management=sliding(6)))
    await sail(agent, 2)
    assert noted(agent.state).head

    model = ScriptedModel(voyage(3, 4), context_size=4_000)
    plain = pilot(model, WorkspaceMiddleware(workspace), of=agent.state)
    await sail(plain, 3)
    await assert_whole(plain, workspace, model)
    assert plain.state.summary


class Refusing(LocalWorkspace):
    """Refuses to do one thing, once."""

    def __init__(self, workdir: Path, name: str) -> None:
        super().__init__(workdir, durability="off")
        method = getattr(self, name)

        async def refuse(*_args: Any, **_kwargs: Any) -> Any:
            setattr(self, name, method)
            raise StorageError(28, "no space left", name)

        setattr(self, name, refuse)


async def test_a_failure_to_archive_leaves_the_state_as_it_was(tmp_path: Path) -> None:
    workspace = Refusing(tmp_path, "archive")
    of = state("s1", *full_context())
    agent = pilot(ScriptedModel(), WorkspaceMiddleware(workspace, management=sliding(6)), of=of)
    before, context = of.model_dump(), list(of.context)
    with pytest.raises(StorageError):
        await agent.compress_context()
    assert agent.state.model_dump() == before
    assert all(mine is theirs for mine, theirs in zip(agent.state.context, context, strict=True))

    await agent.compress_context()
    held = everything(agent, workspace)
    assert len(held) == len(set(held))
    assert_sound(workspace)


async def test_what_fails_after_archiving_leaves_the_state_and_is_repeated(tmp_path: Path) -> None:
    workspace = Refusing(tmp_path, "append_summary")
    management = doc(pre_llm=[("SummarizationManager", {"preserve_recent_messages": 4})])
    agent = pilot(
        ScriptedModel(), WorkspaceMiddleware(workspace, management=management), of=state("s1", *full_context())
    )
    before = agent.state.model_dump()
    with pytest.raises(StorageError):
        await agent.compress_context()
    assert agent.state.model_dump() == before
    left = len(archived(workspace))
    assert left

    await agent.compress_context()
    assert agent.state.summary
    assert noted(agent.state).archived >= left
    held = everything(agent, workspace)
    assert len(held) == len(set(held))


async def test_a_reply_that_is_cancelled_while_it_is_managed_loses_nothing(tmp_path: Path) -> None:
    started = asyncio.Event()

    async def slow(_: SummaryRequest) -> str:
        started.set()
        await asyncio.Event().wait()
        return ""

    workspace = LocalWorkspace(tmp_path, durability="off")
    management = doc(pre_llm=[("SummarizationManager", {"preserve_recent_messages": 4})])
    middleware = WorkspaceMiddleware(workspace, management=management, summarizer=slow)
    agent = pilot(ScriptedModel(), middleware, of=state("s1", *full_context()))
    before = agent.state.model_dump()
    task = asyncio.ensure_future(agent.compress_context())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert agent.state.model_dump() == before


async def test_two_agents_of_one_middleware_share_nothing(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path, durability="off")
    management = doc(
        pre_llm=[("PinManager", {"first": 1}), ("SlidingWindowManager", {"max_messages": 6})],
        post_tool=[("OffloadManager", {"tool_result_limit": 300, "preview_tokens": 100})],
    )
    middleware = WorkspaceMiddleware(workspace, management=management)
    models = [ScriptedModel(voyage(2, 4, lines=40)) for _ in range(2)]
    agents = [pilot(model, middleware, of=state(name)) for model, name in zip(models, ("one", "two"), strict=True)]
    await asyncio.gather(*(sail(agent, 2) for agent in agents))
    for agent, model in zip(agents, models, strict=True):
        await assert_whole(agent, workspace, model)
        assert len([block for block in everything(agent, workspace) if block[1] == "tool_result"]) == 8
    one, two = ({block[:2] for block in everything(agent, workspace)} for agent in agents)
    assert not one & two


@pytest.mark.parametrize(("abilities", "most"), [(abilities_of(MemoryWorkspace()), 256), (Abilities(), 300)])
def test_only_the_newest_summaries_are_remembered_where_the_offloader_has_them_all(
    abilities: Abilities, most: int
) -> None:
    bench = Workbench(
        offloader=MemoryWorkspace(),
        abilities=abilities,
        counter=default_counter(),
        settings=MiddlewareSettings(),
        on_event=None,
    )
    summary: Any = object()
    for number in (*range(300), 299):
        bench.show(f"s{number}", summary)
    assert list(bench.shown) == [f"s{number}" for number in range(300 - most, 300)]


async def test_a_message_names_the_document_of_its_turn(tmp_path: Path) -> None:
    workspace, events = LocalWorkspace(tmp_path, durability="off"), list[Event]()
    model = ScriptedModel(voyage(2, 3, lines=5))
    agent = pilot(model, WorkspaceMiddleware(workspace, management=sliding(100), on_event=events.append))
    await agent.reply(UserMsg("user", "Look.", metadata={"context_management_name": "coding-agent"}))
    assert {ran.type_name for event in events if isinstance(event, ContextManaged) for ran in event.report.entries} > {
        "OffloadManager"
    }
    events.clear()
    await agent.reply(UserMsg("user", "And the others."))
    assert {ran.type_name for event in events if isinstance(event, ContextManaged) for ran in event.report.entries} == {
        "SlidingWindowManager"
    }

    with pytest.raises(NotFoundError):
        await agent.reply(UserMsg("user", "Look.", metadata={"context_management_name": "nobodys"}))


async def test_hooks_for_what_was_added_fire_once(tmp_path: Path) -> None:
    events: list[Event] = []
    keep = ("SlidingWindowManager", {"max_messages": 99})
    management = doc(post_memory=[keep], post_tool=[keep], pre_llm=[keep], pre_compress=[keep])
    middleware = WorkspaceMiddleware(
        LocalWorkspace(tmp_path, durability="off"), management=management, on_event=events.append
    )
    agent = pilot(ScriptedModel(voyage(1, 2, lines=5)), middleware)
    await sail(agent, 1)
    await agent.compress_context()
    fired = [event.hook for event in events if isinstance(event, ContextManaged)]
    assert fired == ["post_memory", "pre_llm", "post_tool", "pre_llm", "post_tool", "pre_llm", "pre_llm"]


async def test_hooks_fire_once_also_where_what_was_added_stands_in_a_message_of_which_much_has_left(
    tmp_path: Path,
) -> None:
    events: list[Event] = []
    management = doc(
        post_tool=[("ToolsOutputTruncateManager", {"max_output_length": 500})],
        pre_llm=[("SlidingWindowManager", {"max_messages": 3})],
    )
    middleware = WorkspaceMiddleware(
        LocalWorkspace(tmp_path, durability="off"), management=management, on_event=events.append
    )
    agent = pilot(ScriptedModel(), middleware, of=state("s1", *full_context()))
    await agent.compress_context()
    await agent.compress_context()
    fired = [event.hook for event in events if isinstance(event, ContextManaged)]
    assert fired == ["post_tool", "pre_llm", "pre_llm"]


@pytest.mark.parametrize("management", [None, sliding(8)])
async def test_the_models_archived_answers_are_counted_over_all_compressions(
    tmp_path: Path, management: dict[str, Any] | None
) -> None:
    """By them `every_model_calls` counts, whoever has compressed."""
    workspace = LocalWorkspace(tmp_path, durability="off")
    middleware = WorkspaceMiddleware(workspace, management=management)
    agent = pilot(ScriptedModel(voyage(4, 5, lines=5)), middleware)
    counted = list[int]()
    for turn in range(4):
        await agent.reply(UserMsg("user", f"Look at the logs of turn {turn}."))
        if turn != 2:
            await agent.compress_context(ContextConfig(trigger_ratio=0.01, reserve_ratio=0.005))
        views = [detect(message).view(message) for message in archived(workspace)]
        assert noted(agent.state).answers == sum(view.role == "assistant" for view in views) < len(views)
        counted.append(noted(agent.state).answers)
    assert len(set(counted)) > 2


async def test_an_agent_may_compress_by_hand_beside_a_document(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path, durability="off")
    middleware = WorkspaceMiddleware(workspace, management=sliding(100))
    agent = pilot(ScriptedModel(), middleware, of=state("s1", *full_context()))
    config = ContextConfig(trigger_ratio=0.01, reserve_ratio=0.005)
    await agent.compress_context(config, HintBlock(hint="Keep the depths."))
    assert agent.state.summary
    asked = [message.get_text_content() for message in agent.state.context if message.role == "user"]
    assert asked == ["Chart every depth; never round."]
    held = everything(agent, workspace)
    assert len(held) == len(set(held))


async def test_a_summary_of_the_frameworks_own_is_archived_and_stays_until_the_next(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path, durability="off")
    of = state("s1", *full_context())
    of.summary = "Berth 12 is mined."
    agent = pilot(ScriptedModel(), WorkspaceMiddleware(workspace, management=sliding(6)), of=of)
    await agent.compress_context()
    assert not agent.state.summary
    assert agent.state.context[0].get_text_content() == "Berth 12 is mined."
    assert archived(workspace)[0]["id"] == agent.state.context[0].id

    summarise = doc(pre_llm=[("SummarizationManager", {"preserve_recent_messages": 2})])
    model = ScriptedModel()
    again = pilot(model, WorkspaceMiddleware(workspace, management=summarise), of=agent.state)
    await again.compress_context()
    assert again.state.summary
    held = everything(again, workspace)
    assert len(held) == len(set(held))


class TestOverflow:
    """A provider refuses a request as too long."""

    @staticmethod
    def strict(limit: int, then: Answer = "Done.") -> list[Answer]:
        """Return the script of a model that takes no more than *limit* characters."""

        def answer(request: Request) -> Any:
            if len(request.text) > limit:
                raise TOO_LONG
            return then

        return [answer]

    @pytest.mark.parametrize("management", [None, sliding(100), "coding-agent", "chat"])
    async def test_the_request_is_made_smaller_and_asked_again(
        self, tmp_path: Path, management: Management | None
    ) -> None:
        workspace, events = LocalWorkspace(tmp_path, durability="off"), list[Event]()
        model = ScriptedModel(self.strict(24_000), summaries=[ValueError("nobody may be asked now")])
        middleware = WorkspaceMiddleware(workspace, management=management, on_event=events.append)
        agent = pilot(model, middleware, of=state("s1", *full_context(12)))
        answer = await agent.reply(UserMsg("user", "Which is the deepest?"))
        assert answer.get_text_content() == "Done."
        assert [event for event in events if isinstance(event, OverflowRecovered)]
        assert "Which is the deepest?" in said_by_user(model.turns[-1])
        held = everything(agent, workspace)
        assert len(held) == len(set(held))
        assert_paired(model.turns[-1].messages)
        assert_sound(workspace)

    async def test_the_error_goes_through_where_nothing_can_be_smaller(self, tmp_path: Path) -> None:
        model = ScriptedModel(self.strict(10))
        agent = pilot(model, WorkspaceMiddleware(LocalWorkspace(tmp_path, durability="off"), management="chat"))
        with pytest.raises(ValueError, match="maximum context length"):
            await agent.reply(UserMsg("user", "Look."))

    async def test_the_null_document_lets_it_through_at_once(self, tmp_path: Path) -> None:
        model = ScriptedModel(self.strict(10))
        middleware = WorkspaceMiddleware(LocalWorkspace(tmp_path, durability="off"), management={"hooks": {}})
        agent = pilot(model, middleware, of=state("s1", *full_context(12)))
        with pytest.raises(ValueError, match="maximum context length"):
            await agent.reply(UserMsg("user", "Look."))
        assert len(agent.state.context) == 4

    async def test_another_error_is_none_of_it(self, tmp_path: Path) -> None:
        model = ScriptedModel([ValueError("429: too many requests")])
        agent = pilot(model, WorkspaceMiddleware(LocalWorkspace(tmp_path, durability="off")))
        with pytest.raises(ValueError, match="429"):
            await agent.reply(UserMsg("user", "Look."))


def test_a_document_that_nobody_has_is_refused_at_once(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path, durability="off")
    with pytest.raises(NotFoundError):
        WorkspaceMiddleware(workspace, management="nobodys")
    with pytest.raises(DocumentError):
        WorkspaceMiddleware(workspace, management={"hooks": {"pre_lm": []}})
    with pytest.raises(ConfigError):
        WorkspaceMiddleware(workspace, management="chat", summarizers={"small": 3})  # type: ignore[dict-item]


def managers(kind: str, **config: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[str, dict[str, Any]]]:
    return st.tuples(st.just(kind), st.fixed_dictionaries(config))


entries = st.one_of(
    managers("SlidingWindowManager", max_messages=st.integers(1, 12)),
    managers("SummarizationManager", summary_ratio=st.floats(0.1, 0.8), preserve_recent_messages=st.integers(0, 8)),
    managers("ToolsOutputTruncateManager", max_output_length=st.integers(1, 900)),
    managers("ToolResultMaskManager", keep_recent_results=st.integers(0, 4), min_tokens=st.just(1)),
    managers("PinManager", first=st.integers(0, 3)),
    managers("OffloadManager", tool_result_limit=st.just(60), preview_tokens=st.just(40)),
    managers("CompressionManager", reserve_ratio=st.just(0.2), activation=st.just({"tokens_exceed_ratio": 0.5})),
)
documents = st.fixed_dictionaries(
    {hook: st.lists(entries, max_size=2) for hook in ("post_memory", "post_tool", "pre_llm", "pre_compress")}
)


@settings(examples(5, 15), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(hooks=documents, calls=st.integers(1, 4), size=st.sampled_from([2_000, 20_000]))
async def test_whatever_a_document_says_nothing_is_lost_or_there_twice(
    tmp_path_factory: pytest.TempPathFactory, hooks: dict[str, Any], calls: int, size: int
) -> None:
    async with LocalWorkspace(tmp_path_factory.mktemp("w"), durability="off") as workspace:
        model = ScriptedModel(voyage(3, calls, lines=12), context_size=size)
        management = ContextManagement.read(doc(**hooks))
        agent = pilot(model, WorkspaceMiddleware(workspace, management=management))
        for turn in range(3):
            await sail(agent, 1)
            assert "berth 47-0" in said_by_user(model.turns[-1])
            if turn == 1:  # another process goes on
                agent.state = AgentState.model_validate(json.loads(agent.state.model_dump_json()))
        await assert_whole(agent, workspace, model, management)
        held = everything(agent, workspace)
        assert len([block for block in held if block[1] == "tool_result"]) == 3 * calls
        await ContextWindow.resume(workspace, "s1")
