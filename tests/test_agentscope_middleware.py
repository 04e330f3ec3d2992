"""An agent of AgentScope's with our middleware: whole results, checked summaries, and nothing lost."""

import json
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("agentscope", reason="agentscope is an extra for tests")

from agentscope.agent import ContextConfig
from agentscope.event import ToolResultTextDeltaEvent
from agentscope.message import (
    AssistantMsg,
    HintBlock,
    Msg,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    ToolResultState,
    UserMsg,
)
from agentscope.model import ChatResponse
from agentscope.state import AgentState
from agentscope.tool import ToolChunk
from agentscope_model import FIVE_FIELDS, Request, ScriptedModel, Summary, call, state, toolkit
from agentscope_pilot import (
    archived,
    assert_paired,
    assert_sound,
    blocks_in,
    full_context,
    lines_of,
    log,
    pilot,
    results_in,
    sail,
    text_of,
    voyage,
)
from faults import files_up_to
from hypothesis import given
from hypothesis import strategies as st

from buoyline import ContextConfig as OurConfig
from buoyline import ContextWindow, LocalWorkspace, MemoryWorkspace
from buoyline.errors import ConfigError, NotFoundError, StaleWindowError, WorkspaceFull
from buoyline.integrations import is_overflow
from buoyline.integrations.agentscope import AgentModelSummarizer, WorkspaceMiddleware
from buoyline.integrations.agentscope.state import joined, pieces
from buoyline.messages import convert
from buoyline.window import ContextCompressed, ContextManaged, Event, HistoryForked


def summaries(workspace: LocalWorkspace) -> list[dict[str, Any]]:
    path = workspace.workdir / "sessions" / "s1" / "summaries.jsonl"
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


class TestResults:
    async def test_a_loud_result_is_stored_whole_and_its_stub_reaches_the_model_uncut(self, tmp_path: Path) -> None:
        workspace, model = LocalWorkspace(tmp_path), ScriptedModel([[call("log", "call_1", n=3)], "Seen."])
        agent = pilot(model, WorkspaceMiddleware(workspace, config=OurConfig(preview_tokens=300)))
        await agent.reply(UserMsg("user", "Look."))
        (result,) = results_in(agent.state.context)
        assert (tmp_path / "sessions" / "s1" / "tool_result-call_1.txt").read_text("utf-8") == log(3)
        assert text_of(result).startswith("[Tool result offloaded: 201 lines")
        assert "ERROR: code 377 failed" in text_of(result)
        assert "<<<TRUNCATED>>>" not in model.turns[-1].text
        assert text_of(result) in [text_of(seen) for seen in results_in(model.turns[-1].messages)]
        assert_sound(workspace)

    async def test_a_streamed_result_is_one_result_and_all_its_chunks_pass(self, tmp_path: Path) -> None:
        model = ScriptedModel([[call("stream", "call_1", n=4)], "Seen."])
        agent = pilot(model, WorkspaceMiddleware(LocalWorkspace(tmp_path)))
        seen = [event async for event in agent.reply_stream(UserMsg("user", "Look."))]
        said = [event.delta for event in seen if isinstance(event, ToolResultTextDeltaEvent)]
        assert "".join(said) == log(4)
        assert (tmp_path / "sessions" / "s1" / "tool_result-call_1.txt").read_text("utf-8") == log(4)

    async def test_a_result_that_came_from_outside_is_offloaded_before_the_model_sees_it(self, tmp_path: Path) -> None:
        asked = ToolCallBlock(id="out_1", name="elsewhere", input="{}")
        given = ToolResultBlock(id="out_1", name="elsewhere", output=log(5), state=ToolResultState.SUCCESS)
        agent = pilot(
            ScriptedModel(),
            WorkspaceMiddleware(LocalWorkspace(tmp_path)),
            of=state("s1", UserMsg("user", "Go."), AssistantMsg("pilot", [asked, given])),
        )
        await agent.reply(UserMsg("user", "Look."))
        assert text_of(results_in(agent.state.context)[0]).startswith("[Tool result offloaded")
        assert (tmp_path / "sessions" / "s1" / "tool_result-out_1.txt").read_text("utf-8") == log(5)


class TestCompression:
    async def test_after_several_compressions_archive_and_context_are_the_conversation(self, tmp_path: Path) -> None:
        workspace, events = LocalWorkspace(tmp_path), list[Event]()
        middleware = WorkspaceMiddleware(workspace, config=OurConfig(preview_tokens=300), on_event=events.append)
        agent = pilot(ScriptedModel(voyage(9, 6, lines=80), context_size=8_000), middleware)
        seen = await sail(agent, 9)
        kept = [message.model_dump(mode="json") for message in agent.state.context]
        everything = blocks_in([*archived(workspace), *kept])
        assert sum(isinstance(event, ContextCompressed) for event in events) >= 3
        assert len(everything) == len(set(everything))
        calls = {
            (message.id, "tool_call", f"c{turn}_{number}")
            for turn, message in enumerate(seen[1::2])
            for number in range(6)
        }
        assert calls <= set(everything)
        assert [name for name, kind, _ in everything if kind == "text" and name in {m.id for m in seen[::2]}] == [
            message.id for message in seen[::2]
        ]
        assert_paired(agent.state.context)
        assert_sound(workspace)

    async def test_the_model_gets_the_summary_in_its_frame_with_marks(self, tmp_path: Path) -> None:
        workspace = LocalWorkspace(tmp_path)
        claims = {**FIVE_FIELDS, "current_state": "Sounding 0 is in /srv/depth/0.csv, and 1 in /no/such/file.csv."}
        model = ScriptedModel(context_size=4_000, summaries=[claims])
        agent = pilot(model, WorkspaceMiddleware(workspace), of=state("s1", *full_context()))
        await agent.compress_context()
        assert isinstance(agent.state.summary, str)
        assert "/no/such/file.csv (unverified)" in agent.state.summary
        assert "/srv/depth/0.csv (unverified)" not in agent.state.summary
        (summary,) = summaries(workspace)
        assert summary["summarizer"] == "scripted"
        assert summary["text"] == agent.state.summary
        assert "<system-info>Here is a summary of your previous work" in agent.state.summary
        await agent.reply(UserMsg("user", "Go on."))
        assert model.turns[-1].messages[1].get_text_content() == agent.state.summary
        assert_sound(workspace)

    async def test_a_one_off_configuration_and_instructions_hold_for_one_call(self, tmp_path: Path) -> None:
        model = ScriptedModel()
        agent = pilot(model, WorkspaceMiddleware(LocalWorkspace(tmp_path)), of=state("s1", *full_context()))
        once = ContextConfig(
            trigger_ratio=0.01, reserve_ratio=0.1, compression_prompt="Be brief; it is {current_time}."
        )
        await agent.compress_context(context_config=once, instructions=HintBlock(hint="Keep the depths."))
        (request,) = model.requests
        asked = "\n".join(message.get_text_content() or "" for message in request.messages)
        assert agent.state.summary
        assert "Be brief; it is 2" in asked
        assert "Keep the depths." in asked
        assert len(agent.state.context[-1].content) == 3
        assert agent.context_config.trigger_ratio == 0.8

    async def test_a_call_without_its_result_never_leaves(self, tmp_path: Path) -> None:
        context = full_context()
        context[-1].content.append(ToolCallBlock(id="open_1", name="log", input="{}"))
        context[-1].content.append(ToolCallBlock(id="open_2", name="log", input="{}"))
        context[-1].content.append(ToolResultBlock(id="open_2", name="log", output="ok"))
        context[-1].content.append(HintBlock(hint="time passes " * 400))
        of = state("s1", *context)
        of.reply_id = context[-1].id
        workspace = LocalWorkspace(tmp_path)
        agent = pilot(ScriptedModel(context_size=4_000), WorkspaceMiddleware(workspace), of=of)
        await agent.compress_context()
        assert agent.state.summary
        assert [b.id for b in agent.state.get_unfinished_tool_calls("pilot")] == ["open_1"]
        assert "open_1" not in {name for _, _, name in blocks_in(archived(workspace))}

    async def test_the_agents_own_compression_tool_uses_it(self, tmp_path: Path) -> None:
        of = state("s1", *full_context())
        agent = pilot(
            ScriptedModel([[call("CompressContext", "squeeze")], "Done."], context_size=6_000),
            WorkspaceMiddleware(LocalWorkspace(tmp_path)),
            of=of,
            compression_tool_enabled=True,
        )
        await agent.reply(UserMsg("user", "Tidy up."))
        assert "[Summary of messages 0-" in str(agent.state.summary)
        assert_paired(agent.state.context)


class StreamingModel(ScriptedModel):
    """Answers piece by piece, as the models of AgentScope do unless they are told otherwise."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.stream = True

    async def _call_api(self, *args: Any, **asked: Any) -> Any:
        return self._pieces(await super()._call_api(*args, **asked))

    async def _pieces(self, whole: ChatResponse) -> AsyncGenerator[ChatResponse, None]:
        for block in whole.content:
            if isinstance(block, TextBlock):
                for start in range(0, len(block.text), 7):
                    piece = TextBlock(id=block.id, text=block.text[start : start + 7])
                    yield ChatResponse(content=[piece], is_last=False)
            else:
                yield ChatResponse(content=[block], is_last=False)
        yield ChatResponse(content=[], is_last=False, usage=whole.usage)


class TestStreamingModels:
    async def test_a_model_that_streams_writes_the_summary_in_plain_text_if_it_must(self, tmp_path: Path) -> None:
        def written(request: Request) -> Mapping[str, Any]:
            return {"wrong": 1} if request.has_summary_tool else FIVE_FIELDS

        model, workspace = StreamingModel(summaries=[written], context_size=4_000), LocalWorkspace(tmp_path)
        agent = pilot(model, WorkspaceMiddleware(workspace), of=state("s1", *full_context()))
        await agent.compress_context()
        assert summaries(workspace)[0]["summarizer"] == "scripted"
        assert FIVE_FIELDS["current_state"] in str(agent.state.summary)


FAILURES: Mapping[str, Summary] = {
    "error": RuntimeError("the server is on fire"),
    "empty": dict.fromkeys(FIVE_FIELDS, ""),
    "overflow": ValueError("maximum context length exceeded"),
}


class TestFailures:
    @pytest.mark.parametrize("kind", FAILURES)
    async def test_a_model_that_fails_leaves_an_extract(self, kind: str, tmp_path: Path) -> None:
        workspace = LocalWorkspace(tmp_path)
        model = ScriptedModel(["I cannot."], summaries=[FAILURES[kind]], context_size=4_000)
        middleware = WorkspaceMiddleware(workspace, summarizer=AgentModelSummarizer(model))
        agent = pilot(model, middleware, of=state("s1", *full_context()))
        await agent.compress_context()
        (summary,) = summaries(workspace)
        assert summary["summarizer"] == "extractive"
        assert summary["fell_back"]
        assert "Chart every depth; never round." in str(agent.state.summary)
        assert len(model.requests) <= 9
        assert_sound(workspace)

    async def test_a_full_disk_leaves_the_context_as_it_was(self, tmp_path: Path) -> None:
        workspace = LocalWorkspace(tmp_path)
        agent = pilot(
            ScriptedModel(context_size=4_000), WorkspaceMiddleware(workspace), of=state("s1", *full_context())
        )
        before = agent.state.model_dump_json()
        with files_up_to(8_000), pytest.raises(WorkspaceFull):
            await agent.compress_context()
        assert agent.state.model_dump_json() == before


class TestSavedState:
    async def test_a_state_from_before_the_last_compression_archives_nothing_twice(self, tmp_path: Path) -> None:
        workspace = LocalWorkspace(tmp_path)
        model = ScriptedModel(context_size=4_000)
        agent = pilot(model, WorkspaceMiddleware(workspace), of=state("s1", *full_context()))
        saved = agent.state.model_dump_json()
        await agent.compress_context()  # and the process is killed before anybody saves the state
        agent = pilot(model, WorkspaceMiddleware(workspace), of=AgentState.model_validate_json(saved))
        await agent.compress_context()
        kept = [message.model_dump(mode="json") for message in agent.state.context]
        assert blocks_in([*archived(workspace), *kept]) == blocks_in(json.loads(saved)["context"])
        assert_sound(workspace)

    @pytest.mark.parametrize(("session_id", "folder"), [("s2", "."), ("s1", "other")])
    async def test_a_state_that_continues_as_another_session_loses_nothing(
        self, tmp_path: Path, session_id: str, folder: str
    ) -> None:
        """The application copies a state: under a new id, or beside another workspace."""
        agent = pilot(
            ScriptedModel(context_size=4_000),
            WorkspaceMiddleware(LocalWorkspace(tmp_path)),
            of=state("s1", *full_context()),
        )
        await agent.compress_context()
        copied = AgentState.model_validate_json(agent.state.model_dump_json())
        workspace = LocalWorkspace(tmp_path / folder)
        copied.session_id = session_id
        copied.context += full_context()
        held = [message.model_dump(mode="json") for message in copied.context]
        agent = pilot(ScriptedModel(context_size=4_000), WorkspaceMiddleware(workspace), of=copied)
        await agent.compress_context()
        kept = [message.model_dump(mode="json") for message in agent.state.context]
        everything = blocks_in([*archived(workspace, session_id), *kept])
        assert everything[-len(blocks_in(held)) :] == blocks_in(held)
        assert_sound(workspace)

    async def test_a_summary_of_agentscopes_own_is_archived_before_it_is_replaced(self, tmp_path: Path) -> None:
        workspace, of = LocalWorkspace(tmp_path), state("s1", *full_context())
        of.summary = "An older summary: the anchor is at 54.32 north."
        agent = pilot(ScriptedModel(context_size=4_000), WorkspaceMiddleware(workspace), of=of)
        await agent.compress_context()
        assert archived(workspace)[0]["content"][0]["text"] == "An older summary: the anchor is at 54.32 north."
        assert_sound(workspace)


class TestLookups:
    async def test_an_agent_finds_what_left_its_context_and_the_answer_stays_whole(self, tmp_path: Path) -> None:
        workspace = LocalWorkspace(tmp_path)
        middleware = WorkspaceMiddleware(workspace, config=OurConfig(preview_tokens=200))
        tools = toolkit(log)
        await tools.add_tool(await middleware.list_tools())
        found = call("grep", "look_1", pattern="line 3-19[0-9] ", path="tool_result-call_1.txt")
        model = ScriptedModel([[call("log", "call_1", n=3)], [found], "Found."])
        agent = pilot(model, middleware, tools=tools, tool_result_limit=600)
        await agent.reply(UserMsg("user", "Look."))
        answer = text_of(results_in(model.turns[-1].messages)[-1])
        assert "line 3-199 value=" in answer
        assert "<<<TRUNCATED>>>" not in answer
        assert len(list((tmp_path / "sessions" / "s1").glob("tool_result-*"))) == 1

    async def test_a_lookup_reaches_the_session_of_its_caller_alone(self, tmp_path: Path) -> None:
        workspace = LocalWorkspace(tmp_path)
        await workspace.offload_context("other", [UserMsg("user", "The code is 4711.")])
        await workspace.offload_context("s1", [UserMsg("user", "There is no code.")])
        (grep,) = (tool for tool in await WorkspaceMiddleware(workspace).list_tools() if tool.name == "grep")
        chunk = await grep.call(_agent_state=state("s1"), pattern="code")
        assert isinstance(chunk, ToolChunk)
        (answer,) = chunk.content
        assert isinstance(answer, TextBlock)
        assert "There is no code." in answer.text
        assert "4711" not in answer.text

    async def test_the_system_prompt_says_where_things_are_and_stays_the_same(self, tmp_path: Path) -> None:
        model = ScriptedModel([[call("log")], [call("log", "call_2")], "Done."])
        agent = pilot(model, WorkspaceMiddleware(LocalWorkspace(tmp_path)))
        await agent.reply(UserMsg("user", "Look."))
        prompts = {request.messages[0].get_text_content() for request in model.turns}
        (prompt,) = prompts
        assert str(prompt).startswith("You are a pilot.\n<workspace>")
        assert str(tmp_path / "sessions" / "s1") in str(prompt)
        assert "with your own tools" in str(prompt)

    async def test_instructions_of_ones_own_replace_ours_and_empty_ones_add_nothing(self, tmp_path: Path) -> None:
        for given_text, expected in (("Ask the pilot.", "You are a pilot.\nAsk the pilot."), ("", "You are a pilot.")):
            model = ScriptedModel()
            agent = pilot(model, WorkspaceMiddleware(LocalWorkspace(tmp_path), instructions=given_text))
            await agent.reply(UserMsg("user", "Look."))
            assert model.turns[0].messages[0].get_text_content() == expected


class TestImports:
    def test_without_agentscope_one_line_names_the_extra(self) -> None:
        hidden = "import sys; sys.modules['agentscope'] = None\nimport buoyline.integrations.agentscope"
        ran = subprocess.run([sys.executable, "-c", hidden], capture_output=True, encoding="utf-8", check=False)
        assert ran.returncode == 1
        last = ran.stderr.strip().splitlines()[-1]
        assert last == (
            "buoyline.errors.MissingExtraError: agentscope is not installed, or too old: pip install '.[agentscope]'"
        )

    def test_what_is_no_workspace_is_refused_when_the_middleware_is_made(self) -> None:
        with pytest.raises(ConfigError, match="is no workspace"):
            WorkspaceMiddleware(object())  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match=r'give LocalWorkspace\("./workspace"\)'):
            WorkspaceMiddleware("./workspace")  # type: ignore[arg-type]


BLOCKS: Sequence[Callable[[int], Any]] = (
    lambda n: TextBlock(text=f"text {n}"),
    lambda n: HintBlock(hint=f"hint {n}"),
    lambda n: ToolCallBlock(id=f"c{n % 4}", name="log", input="{}"),
    lambda n: ToolResultBlock(id=f"c{n % 4}", name="log", output="ok"),
)
CONTEXTS = st.lists(
    st.one_of(
        st.builds(lambda: UserMsg("user", "Ahoy.")),
        st.lists(st.sampled_from(BLOCKS), max_size=8).map(
            lambda makers: AssistantMsg("pilot", [make(number) for number, make in enumerate(makers)])
        ),
    ),
    max_size=6,
)


@given(CONTEXTS, st.integers(0, 20))
def test_pieces_put_together_again_are_the_context(context: list[Msg], cut: int) -> None:
    parts, whole = [*pieces(context)], [message for message in context if message.content]
    assert all(found is message for found, message in zip(joined(parts, context), whole, strict=True))
    halves = [*joined(parts[:cut], context), *joined(parts[cut:], context)]
    assert blocks_of(halves) == blocks_of(context)


def test_a_reply_that_the_user_spoke_into_stays_two_messages() -> None:
    begun, ended = (AssistantMsg("pilot", [TextBlock(text=text)], id="reply") for text in ("I look.", "I see."))
    context = [UserMsg("user", "Look."), begun, UserMsg("user", "Well?"), ended]
    assert all(one is other for one, other in zip(joined([*pieces(context)], context), context, strict=True))


def blocks_of(messages: Sequence[Msg]) -> list[Any]:
    return [block for message in messages for block in message.content]


async def test_no_request_exceeds_the_window_by_our_exact_count(tmp_path: Path) -> None:
    """AgentScope's count, bytes by four, is half of that of a log."""

    def build(n: int) -> str:
        """Give the log of a build.

        Args:
            n: Which one.
        """
        lines = (f"{n}:{line} [0x{line * 7919 * (n + 1):08x}] src/m{line % 97}.rs:{line} ok" for line in range(4_000))
        return "\n".join(lines)[: 13_000 + n * 7_919 % 27_000]

    answers = [answer for n in range(72) for answer in ([call("build", f"c{n}", n=n)], "Built.")[: 1 + (n % 12 == 11)]]
    model = ScriptedModel(answers, context_size=32_000)
    workspace = LocalWorkspace(tmp_path, durability="off")
    limit = ContextConfig().tool_result_limit
    agent = pilot(model, WorkspaceMiddleware(workspace), tools=toolkit(build), tool_result_limit=limit)
    for turn in range(6):
        await agent.reply(UserMsg("user", f"Build part {turn}."))
    assert len(model.turns) == 78
    sizes = []
    for request in model.turns:
        memory = MemoryWorkspace()
        window = await ContextWindow.open(memory, "s1", size=128_000, tools=request.tools, management={"hooks": {}})
        await window.extend(request.messages)
        sizes.append(window.tokens)
    assert max(sizes) <= 32_000
    assert max(sizes) > 25_000


async def test_a_tool_of_the_users_that_is_named_as_a_lookup_is_offloaded(tmp_path: Path) -> None:
    def search() -> str:
        """Search the web."""
        return log(1)

    agent = pilot(
        ScriptedModel([[call("search")], "Seen."]), WorkspaceMiddleware(LocalWorkspace(tmp_path)), tools=toolkit(search)
    )
    await agent.reply(UserMsg("user", "Look."))
    assert text_of(results_in(agent.state.context)[0]).startswith("[Tool result offloaded")


async def test_a_call_is_on_disk_before_its_tool_runs(tmp_path: Path) -> None:
    seen: list[str] = []

    def look(n: int) -> str:
        """Look into the folder of the session.

        Args:
            n: Which time.
        """
        files = (tmp_path / "sessions" / "s1").glob("*.jsonl")
        seen.append("".join(file.read_text("utf-8") for file in files))
        return log(n)

    calls = [[call("look", f"call-{n}-{at}", n=n) for at in range(3)] for n in range(2)]
    agent = pilot(ScriptedModel([*calls, "Done."]), WorkspaceMiddleware(LocalWorkspace(tmp_path)), tools=toolkit(look))
    await agent.reply(UserMsg("user", "Look."))
    assert all(f"call-{at // 3}-{at % 3}" in text for at, text in enumerate(seen))
    assert len(seen) == 6
    assert_paired(agent.state.context)
    assert all(text_of(result).startswith("[Tool result offloaded") for result in results_in(agent.state.context))
    assert len([*tmp_path.glob("sessions/s1/tool_result-*.txt")]) == 6


class TestDocuments:
    async def test_the_newest_six_messages_stay_with_what_the_user_said(self, tmp_path: Path) -> None:
        workspace = LocalWorkspace(tmp_path, durability="off")
        model = ScriptedModel(voyage(1, 6, lines=5))
        agent = pilot(model, WorkspaceMiddleware(workspace, management=SIX))
        await agent.reply(UserMsg("user", "Look at the logs; berth 47 is closed."))
        request = model.turns[-1]
        head = request.messages[1].get_text_content() or ""
        assert "Messages before number" in head
        assert "Look at the logs; berth 47 is closed." in head
        assert [result.id for result in results_in(request.messages)] == ["c0_4", "c0_5"]
        assert_paired(request.messages)
        held = blocks_in([*archived(workspace), *(m.model_dump(mode="json") for m in agent.state.context)])
        assert len({block for block in held if block[1] == "tool_result"}) == 6

    async def test_a_message_names_the_document_of_its_turn_and_its_limit_offloads_nothing(
        self, tmp_path: Path
    ) -> None:
        events = list[Event]()
        middleware = WorkspaceMiddleware(LocalWorkspace(tmp_path, durability="off"), on_event=events.append)
        model = ScriptedModel([*([call("log", f"c{n}", n=n, lines=150)] for n in range(3)), "Done."])
        agent = pilot(model, middleware)
        named = {"context_management_name": "tool-heavy"}
        await agent.reply(UserMsg("user", "Look.", metadata=named))
        assert [text_of(result) for result in results_in(agent.state.context)] == [log(n, 150) for n in range(3)]
        found = [line for event in events if isinstance(event, ContextManaged) for line in event.lines]
        assert any("ToolsOutputTruncateManager" in line for line in found)
        events.clear()
        await agent.reply(UserMsg("user", "And the others."))
        assert not [event for event in events if isinstance(event, ContextManaged)]
        with pytest.raises(NotFoundError):
            await agent.reply(UserMsg("user", "Look.", metadata={"context_management_name": "nobodys"}))


SIX = {"hooks": {"pre_llm": [{"type": "SlidingWindowManager", "config": {"max_messages": 6}}]}}


class TestOverflow:
    @pytest.mark.parametrize("management", [None, "tool-heavy"])
    async def test_a_request_that_the_provider_refuses_is_made_smaller_and_asked_again(
        self, tmp_path: Path, management: str | None
    ) -> None:
        def strict(request: Request) -> Any:
            if len(request.text) > 24_000:
                raise ValueError("Error code: 400 - This model's maximum context length is 4000 tokens.")
            return "Done."

        model = ScriptedModel([strict], summaries=[ValueError("nobody may be asked now")])
        middleware = WorkspaceMiddleware(LocalWorkspace(tmp_path, durability="off"), management=management)
        agent = pilot(model, middleware, of=state("s1", *full_context(12)))
        answer = await agent.reply(UserMsg("user", "Which is the deepest?"))
        assert answer.get_text_content() == "Done."
        assert_paired(model.turns[-1].messages)

    @pytest.mark.parametrize(("words", "calls"), [("prompt is too long", 4), ("429: too many requests", 1)])
    async def test_a_provider_that_refuses_everything_ends_after_three_recoveries(
        self, tmp_path: Path, words: str, calls: int
    ) -> None:
        model = ScriptedModel([ValueError(words)])
        middleware = WorkspaceMiddleware(LocalWorkspace(tmp_path, durability="off"))
        agent = pilot(model, middleware, of=state("s1", *full_context(12)))
        agent.model_config.max_retries = 0
        with pytest.raises(ValueError, match=words):
            await agent.reply(UserMsg("user", "Look."))
        assert len(model.turns) <= calls


@pytest.mark.parametrize(("status", "words", "expected"), [
    (400, "This model's maximum context length is 8192", True), (413, "Request Entity Too Large", True),
    (429, "input is too long", False), (None, "Range of input length should be [1, 8192]", True), (500, "oops", False),
])  # fmt: skip
def test_an_overflow_is_known_by_the_status_and_words_of_an_error(
    status: int | None, words: str, *, expected: bool
) -> None:
    error = RuntimeError(words)
    if status is not None:
        error.status_code = status  # type: ignore[attr-defined] # as the clients of the providers do
    assert is_overflow(error) is expected


async def test_without_the_fallback_an_error_of_the_model_comes_out_and_the_context_stays(tmp_path: Path) -> None:
    workspace, model = LocalWorkspace(tmp_path), ScriptedModel(summaries=[RuntimeError("down")], context_size=4_000)
    agent = pilot(
        model, WorkspaceMiddleware(workspace), of=state("s1", *full_context()), compression_fallback_to_truncation=False
    )
    before = agent.state.model_dump_json()
    with pytest.raises(RuntimeError, match="down"):
        await agent.compress_context()
    assert agent.state.model_dump_json() == before
    model._summaries = [FIVE_FIELDS]
    await agent.compress_context()
    kept = [message.model_dump(mode="json") for message in agent.state.context]
    assert blocks_in([*archived(workspace), *kept]) == blocks_in(json.loads(before)["context"])
    assert_sound(workspace)


async def test_an_agent_takes_its_session_back_and_what_another_writer_said_stays_in_the_log(tmp_path: Path) -> None:
    workspace, events = LocalWorkspace(tmp_path), list[Event]()
    agent = pilot(ScriptedModel(), WorkspaceMiddleware(workspace, on_event=events.append))
    await agent.reply(UserMsg("user", "Ahoy."))
    window = await ContextWindow.open(workspace, "s1")
    await window.add(UserMsg("user", "I go on."))
    await agent.reply(UserMsg("user", "Go on."))
    assert [event for event in events if isinstance(event, HistoryForked)] == [HistoryForked(3, 1)]
    with pytest.raises(StaleWindowError):
        await window.add(UserMsg("user", "I, too."))
    said = [block["text"] for line in lines_of(workspace) for block in line["content"] if block["type"] == "text"]
    assert said == ["Ahoy.", "Done.", "I go on.", "Go on.", "Done."]
    assert_sound(workspace)


async def test_an_older_state_that_is_loaded_goes_on_there_and_nothing_is_lost(tmp_path: Path) -> None:
    workspace, events = LocalWorkspace(tmp_path), list[Event]()
    agent = pilot(ScriptedModel(voyage(3, 4), context_size=5_000), WorkspaceMiddleware(workspace))
    await sail(agent, 1)
    saved = agent.state.model_dump_json()
    await sail(agent, 2)
    everything = {name for _, _, name in blocks_in(lines_of(workspace))}
    of = AgentState.model_validate_json(saved)
    agent = pilot(ScriptedModel(), WorkspaceMiddleware(workspace, on_event=events.append), of=of)
    await agent.reply(UserMsg("user", "Once more."))
    (fork,) = (event for event in events if isinstance(event, HistoryForked))
    assert fork.removed
    before, kept = blocks_in(json.loads(saved)["context"]), [m.model_dump(mode="json") for m in agent.state.context]
    assert blocks_in(kept)[: len(before)] == before
    assert everything < {name for _, _, name in blocks_in(lines_of(workspace))}
    assert_sound(workspace)


async def test_a_session_of_the_plain_form_is_refused_and_stays_as_it_was(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path)
    await workspace.offload_context("s1", full_context())
    before = lines_of(workspace)
    with pytest.raises(ConfigError, match="holds messages of `offload_context`; use a new one"):
        await pilot(ScriptedModel(), WorkspaceMiddleware(workspace)).reply(UserMsg("user", "Ahoy."))
    assert lines_of(workspace) == before


async def test_a_result_without_a_call_stays_the_users_words(tmp_path: Path) -> None:
    events = list[Event]()
    lost = ToolResultBlock(id="lost", name="log", output="depth 7")
    middleware = WorkspaceMiddleware(LocalWorkspace(tmp_path), on_event=events.append)
    agent = pilot(model := ScriptedModel(), middleware, of=state("s1", AssistantMsg("pilot", [lost])))
    for _ in range(2):
        await agent.reply(UserMsg("user", "Ahoy."))
    assert "Late result of the call 'lost'" in str(model.turns[-1].messages[1].get_text_content())
    assert events == []


async def test_a_session_goes_on_in_a_window_and_in_another_framework(tmp_path: Path) -> None:
    async with LocalWorkspace(tmp_path) as workspace:
        agent = pilot(ScriptedModel(voyage(4, 5), context_size=5_000), WorkspaceMiddleware(workspace))
        await sail(agent, 4)
        window = await ContextWindow.open(workspace, "s1")
        assert window.messages[0].get_text_content() == agent.state.summary
        held = blocks_in([message.model_dump(mode="json") for message in window.messages[1:]])
        assert held == blocks_in([message.model_dump(mode="json") for message in agent.state.context])

        converted = convert(window.messages, to="bedrock")
        assert not converted.losses
        other = await ContextWindow.open(workspace, "s1-in-strands", dialect="bedrock", size=5_000)
        assert await other.request(converted.messages) == converted.messages
