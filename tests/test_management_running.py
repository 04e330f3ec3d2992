"""What documents do to conversations: the page's promises, and what goes wrong with them elsewhere."""

import base64
import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from estimates import Estimates
from managed_window import ManagedWindow

from buoyline import ContextWindow
from buoyline.compression import SummaryRequest
from buoyline.errors import ConfigError
from buoyline.management import ContextManagement, ManagerRun
from buoyline.management.custom import CustomManager
from buoyline.management.registry import built_in
from buoyline.messages.registry import detect
from buoyline.workspace import LocalWorkspace, MemoryWorkspace

SYSTEM = {"role": "system", "content": "Be brief."}
SESSION = "s1"
WORDS = " of many words" * 200
"""Behind each message: a summary that is larger than what it replaces is refused."""


class Last10Messages:
    """Keeps the last ten messages.

    The page of Strands has this as its example.
    """

    def reduce(self, messages: list[Any], *, error: BaseException | None = None) -> bool:
        if len(messages) <= 10:
            return False
        del messages[:-10]
        return True


class Greedy:
    def __init__(self, keep: int = 0) -> None:
        self.keep = keep
        self.errors: list[BaseException | None] = []

    async def reduce(self, messages: list[Any], *, error: BaseException | None = None) -> bool:
        self.errors.append(error)
        del messages[: len(messages) - self.keep]
        return True


class Picky:
    def __init__(self, keep: int) -> None:
        raise ValueError("keep must be 1 or more")

    def reduce(self, messages: list[Any], *, error: BaseException | None = None) -> bool:
        return False


class Inventing:
    def reduce(self, messages: list[Any], *, error: BaseException | None = None) -> bool:
        messages[:] = [{"role": "user", "content": "something else"}]
        return True


class Odd:
    def reduce(self, messages: list[Any], *, error: BaseException | None = None) -> str:
        return "yes"


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def calls(*call_ids: str) -> dict[str, Any]:
    function = {"name": "read", "arguments": "{}"}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call_id, "type": "function", "function": function} for call_id in call_ids],
    }


def gave(call_id: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def anthropic(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return *messages* in Anthropic's form; results of one turn stand in one message."""
    found: list[dict[str, Any]] = []
    for message in messages:
        if message["role"] == "tool":
            block: dict[str, Any] = {
                "type": "tool_result",
                "tool_use_id": message["tool_call_id"],
                "content": message["content"],
            }
            is_first = not found or found[-1]["role"] != "user" or isinstance(found[-1]["content"], str)
            blocks: list[Any] = [] if is_first else found.pop()["content"]
            found.append({"role": "user", "content": [*blocks, block]})
        elif "tool_calls" in message:
            uses: list[dict[str, Any]] = [
                {"type": "tool_use", "id": c["id"], "name": c["function"]["name"], "input": {}}
                for c in message["tool_calls"]
            ]
            found.append({"role": "assistant", "content": uses})
        else:
            found.append(message)
    return found


def bedrock(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return *messages* in Bedrock's form, which Strands has, too."""
    found: list[dict[str, Any]] = []
    for message in messages:
        blocks: list[dict[str, Any]]
        if message["role"] == "tool":
            result = {"toolUseId": message["tool_call_id"], "content": [{"text": message["content"]}]}
            blocks = [{"toolResult": {**result, "status": "success"}}]
        elif "tool_calls" in message:
            uses = [(call["id"], call["function"]["name"]) for call in message["tool_calls"]]
            blocks = [{"toolUse": {"toolUseId": call_id, "name": name, "input": {}}} for call_id, name in uses]
        else:
            blocks = [{"text": message["content"]}]
        found.append({"role": "user" if message["role"] == "tool" else message["role"], "content": blocks})
    return found


def agentscope(messages: Sequence[dict[str, Any]]) -> list[Any]:
    """Return *messages* as AgentScope's own; skip the test without it."""
    theirs = pytest.importorskip("agentscope.message", reason="agentscope is an extra for tests")
    found: list[Any] = []
    for message in messages:
        if message["role"] == "tool":
            result = theirs.ToolResultBlock(id=message["tool_call_id"], name="read", output=message["content"])
            found.append(theirs.AssistantMsg("assistant", [result]))
        elif "tool_calls" in message:
            uses = [(call["id"], call["function"]["name"]) for call in message["tool_calls"]]
            calls = [theirs.ToolCallBlock(id=call_id, name=name, input="{}") for call_id, name in uses]
            found.append(theirs.AssistantMsg("assistant", [*calls]))
        else:
            role = message["role"]
            found.append(theirs.Msg(name=role, role=role, content=[theirs.TextBlock(text=message["content"])]))
    return found


def openai(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return list(messages)


def doc(hook: str, kind: str, config: dict[str, Any] | None = None, **activation: Any) -> ContextManagement:
    rules = {"activation": activation} if activation else {}
    return ContextManagement.read({"hooks": {hook: [{"type": kind, "config": {**(config or {}), **rules}}]}})


def conversation(management: ContextManagement, workspace: Any = None, **options: Any) -> ManagedWindow:
    kept = workspace or MemoryWorkspace(evict_after_turns=None)
    return ManagedWindow(
        management, session_id=SESSION, offloader=kept, counter=options.pop("counter", Estimates()), **options
    )


async def prepared(
    management: ContextManagement, messages: Sequence[Any], workspace: Any = None, **options: Any
) -> tuple[list[Any], ManagedWindow]:
    """Add *messages* and prepare once; return what is said, without system messages and notices."""
    held = conversation(management, workspace, **options)
    for message in messages:
        await held.add(message)
    await held.prepare()
    return said(held), held


def said(held: ManagedWindow) -> list[Any]:
    return [one.native for one in held.view().all_messages() if one.is_counted]


def ran(held: ManagedWindow) -> list[ManagerRun]:
    return [one for report in held.reports for one in report.entries]


def talk(count: int, words: str = WORDS) -> list[dict[str, Any]]:
    """Return *count* messages of a user and an assistant in turn, the user's last."""
    roles = ("user", "assistant") if count % 2 else ("assistant", "user")
    return [{"role": roles[number % 2], "content": f"message {number}{words}"} for number in range(count)]


# What the page promises


async def test_the_pages_first_document_slides_above_200_000_tokens_and_truncates_100_000_characters() -> None:
    management = ContextManagement.read(
        {
            "hooks": {
                "post_tool": [{"type": "ToolsOutputTruncateManager", "config": {"max_output_length": 100000}}],
                "pre_llm": [
                    {
                        "type": "SlidingWindowManager",
                        "config": {"max_messages": 6, "activation": {"tokens_exceed": 200000}},
                    }
                ],
            }
        }
    )
    workspace = MemoryWorkspace(evict_after_turns=None)
    held = conversation(management, workspace, size=1_000_000)
    output = "".join(f"line {number}\n" for number in range(20_000))
    for turn in range(7):
        for message in (user(f"Question {turn}?"), calls(f"c{turn}"), gave(f"c{turn}", output)):
            await held.add(message)
        await held.prepare()
        shown = held.messages[-1]["content"]
        assert len(shown) <= 100_000
        assert shown.startswith(output[:99_000])
        assert workspace.read("memory:///sessions/s1/" + shown.split("/sessions/s1/")[1].rstrip("]")) == output
    assert len(said(held)) == 21

    await held.add(user("And now a very long one: " + "word " * 40_000))
    await held.prepare()
    assert len(said(held)) <= 6
    assert said(held)[-1]["content"].startswith("And now")


@pytest.mark.parametrize("form", [openai, anthropic, bedrock, agentscope])
async def test_a_sliding_window_keeps_6_messages_once_there_are_more_than_12(form: Callable[..., list[Any]]) -> None:
    management = doc("pre_llm", "SlidingWindowManager", {"max_messages": 6}, message_count_exceed=12)
    twelve = form(talk(12))
    kept, held = await prepared(management, twelve)
    assert kept == twelve
    assert ran(held)[-1].reason == "12 messages, not more than 12"

    thirteen = form(talk(13))
    kept, held = await prepared(management, [SYSTEM, *thirteen])
    assert kept == thirteen[-6:]
    assert held.messages[0] is SYSTEM
    assert all(mine is theirs for mine, theirs in zip(kept, thirteen[-6:], strict=True))


async def test_what_slides_out_is_in_the_archive_and_a_notice_says_where() -> None:
    workspace = MemoryWorkspace()
    management = doc("pre_llm", "SlidingWindowManager", {"max_messages": 4})
    kept, held = await prepared(management, [SYSTEM, *talk(11)], workspace)
    archived = [value for _, value in await workspace.load_messages(SESSION, 0, 8)]

    assert archived == [SYSTEM, *talk(11)[:7]]
    assert held.messages[1]["content"].startswith("[Messages before number 8 are no longer in the context")
    assert "memory:///sessions/s1/transcript.md" in held.messages[1]["content"]
    assert kept == talk(11)[-4:]
    assert (await prepared(doc("pre_llm", "SlidingWindowManager", {"max_messages": 4, "notice": False}), talk(9)))[
        1
    ].messages == talk(9)[-4:]


async def test_a_summary_takes_the_place_of_30_percent_above_the_tokens_and_the_10_newest_are_preserved() -> None:
    management = doc(
        "pre_llm", "SummarizationManager", {"summary_ratio": 0.3, "preserve_recent_messages": 10}, tokens_exceed=2_000
    )
    messages = [user(f"message {number}: " + "word " * 120) for number in range(20)]
    kept, held = await prepared(management, [SYSTEM, *messages])

    assert kept == messages[6:]
    assert held.messages[0] is SYSTEM
    assert held.messages[1]["role"] == "user"
    assert held.messages[1]["content"].startswith("[Summary of messages 0-6, which are no longer in the context.")
    assert ran(held)[-1].is_reduced


@pytest.mark.parametrize(
    ("count", "summarised"), [(9, 0), (10, 0), (11, 1), (12, 2), (13, 3), (14, 4), (15, 4), (20, 6), (30, 9), (100, 30)]
)
async def test_so_many_messages_are_summarised_as_the_documented_defaults_give(count: int, summarised: int) -> None:
    kept, _ = await prepared(doc("pre_llm", "SummarizationManager"), talk(count))
    assert kept == talk(count)[summarised:]


@pytest.mark.parametrize("form", [openai, anthropic, bedrock, agentscope])
@pytest.mark.parametrize("hook", ["post_tool", "pre_llm"])
async def test_truncation_works_at_both_hooks_of_the_pages_use_cases(hook: str, form: Callable[..., list[Any]]) -> None:
    management = doc(hook, "ToolsOutputTruncateManager", {"max_output_length": 500})
    kept, _ = await prepared(management, form([user("?"), calls("c"), gave("c", "x" * 5_000)]))
    (result,) = detect(kept[-1]).view(kept[-1]).results
    assert len(result.text) == 500


async def test_sliding_works_after_a_tool_too() -> None:
    management = doc("post_tool", "SlidingWindowManager", {"max_messages": 3})
    held = conversation(management)
    for message in [*talk(8), user("?"), calls("c"), gave("c", "done")]:
        await held.add(message)
    assert said(held) == [user("?"), calls("c"), gave("c", "done")]


async def test_managers_of_a_hook_run_in_the_order_of_the_document_each_on_what_is_left() -> None:
    hooks = {
        "pre_llm": [
            {"type": "SlidingWindowManager", "config": {"max_messages": 20}},
            {"type": "SlidingWindowManager", "config": {"max_messages": 4, "activation": {"tokens_exceed": 10}}},
        ]
    }
    kept, held = await prepared(ContextManagement.read({"hooks": hooks}), talk(30))
    assert kept == talk(30)[-4:]
    assert [one.messages for one in ran(held)] == [(30, 20), (20, 4)]


# What goes wrong elsewhere


async def test_one_type_on_two_hooks_has_the_settings_of_each() -> None:
    slide = "SlidingWindowManager"
    hooks = {
        "pre_llm": [{"type": slide, "config": {"max_messages": 6}}],
        "post_memory": [{"type": slide, "config": {"max_messages": 8}}],
    }
    held = conversation(ContextManagement.read({"hooks": hooks}))
    for message in talk(30):
        await held.window.add(message)
    await held.prepare()
    assert [(one.hook, one.messages) for one in ran(held)] == [("post_memory", (30, 8)), ("pre_llm", (8, 6))]


async def test_post_memory_fires_once_a_turn() -> None:
    held = conversation(doc("post_memory", "SlidingWindowManager", {"max_messages": 8}))
    await held.add(user("?"))
    for number in range(3):
        await held.prepare()
        await held.add(calls(f"c{number}"))
        await held.add(gave(f"c{number}", "done"))
    assert [one.hook for one in ran(held)] == ["post_memory"]


async def test_tokens_exceed_counts_the_output_that_has_just_come() -> None:
    management = doc("post_tool", "ToolsOutputTruncateManager", {"max_output_length": 40_000}, tokens_exceed=150_000)
    held = conversation(management)
    for message in (user("?"), calls("c"), gave("c", "y" * 1_000_000)):
        await held.add(message)
    assert len(said(held)[-1]["content"]) == 40_000


async def test_tokens_exceed_counts_system_prompt_tools_and_history() -> None:
    management = doc("pre_llm", "SlidingWindowManager", {"max_messages": 1}, tokens_exceed=500)
    for options in ({"system": "word " * 500}, {"tools": [{"name": "t", "description": "word " * 500}]}):
        kept, _ = await prepared(management, talk(5, ""), **options)
        assert len(kept) == 1
    assert len((await prepared(management, talk(5, "")))[0]) == 5


async def test_words_that_look_like_tool_calls_part_nothing() -> None:
    messages = [user(f"{number}: the toolResult of a toolUse has a tool_call_id") for number in range(10)]
    kept, _ = await prepared(doc("pre_llm", "SlidingWindowManager", {"max_messages": 4}), messages)
    assert kept == messages[-4:]


@pytest.mark.parametrize("form", [openai, anthropic, bedrock, agentscope])
@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6])
async def test_a_tool_loop_is_never_emptied_nor_parted(limit: int, form: Callable[..., list[Any]]) -> None:
    pairs = [message for n in range(5) for message in (calls(f"c{n}"), gave(f"c{n}", f"result {n}"))]
    messages = form([user("Go on until it works."), *pairs])
    kept, _ = await prepared(doc("pre_llm", "SlidingWindowManager", {"max_messages": limit}), messages)

    assert kept[0] == messages[0], "the user's words stand again"
    assert kept[-2:] == messages[-2:]
    assert len(kept) == max(3, limit - (limit - 1) % 2)


@pytest.mark.parametrize("limit", range(1, 9))
async def test_parallel_calls_stay_or_leave_together(limit: int) -> None:
    group = [calls("a", "b", "c"), gave("a", "1"), gave("b", "2"), gave("c", "3")]
    messages = [user("first"), *group, {"role": "assistant", "content": "so"}, user("second")]
    kept, _ = await prepared(doc("pre_llm", "SlidingWindowManager", {"max_messages": limit}), messages)
    assert kept[-1] == user("second")
    assert len([message for message in kept if message in group]) in (0, 4)
    assert len(kept) <= limit


async def test_a_call_that_waits_for_parallel_results_is_held() -> None:
    held = conversation(doc("post_tool", "SlidingWindowManager", {"max_messages": 1}))
    for message in (user("?"), calls("a", "b"), gave("a", "1")):
        await held.add(message)
    assert said(held) == [user("?"), calls("a", "b"), gave("a", "1")]
    await held.add(gave("b", "2"))
    assert said(held)[1:] == [calls("a", "b"), gave("a", "1"), gave("b", "2")]


async def test_a_window_never_begins_with_a_result_of_no_call() -> None:
    messages = [user("a"), gave("lost", "orphan"), {"role": "assistant", "content": "b"}, user("c"), user("d")]
    kept, _ = await prepared(doc("pre_llm", "SlidingWindowManager", {"max_messages": 4}), messages)
    assert kept == messages[2:]


async def test_summarising_takes_no_preserved_message_to_keep_a_pair_together() -> None:
    group = [calls("a", "b"), gave("a", "1"), gave("b", "2")]
    messages = [user("x" + WORDS), user("y" + WORDS), *group, *talk(3)]
    management = doc("pre_llm", "SummarizationManager", {"summary_ratio": 0.5, "preserve_recent_messages": 4})
    kept, _ = await prepared(management, messages)
    assert kept == messages[2:]


async def test_a_second_summary_folds_the_first() -> None:
    management = doc("pre_llm", "SummarizationManager", {"preserve_recent_messages": 2, "summary_ratio": 0.8})
    held = conversation(management)
    for number in range(20):
        await held.add(user(f"Remember /srv/part_{number}.py. " + "word " * 100))
        await held.prepare()
    summaries = [one for one in held.view().prefix if one.is_ours]
    assert len(summaries) == 1
    assert "[Summary of messages 0-" in summaries[0].message.text
    assert "/srv/part_0.py" in summaries[0].message.text


async def test_a_summariser_is_shown_who_said_what_and_which_tools_were_called() -> None:
    seen: list[SummaryRequest] = []

    async def summarize(request: SummaryRequest) -> str:
        seen.append(request)
        return "They looked at the chart."

    messages = [user("look" + WORDS), calls("c"), gave("c", "depth 9"), *talk(9)]
    config = {
        "preserve_recent_messages": 8,
        "summarization_model_id": "small",
        "summarization_system_prompt": "In one sentence.",
    }
    management = doc("pre_llm", "SummarizationManager", config)
    _, held = await prepared(management, messages, summarizers={"small": summarize})

    assert [source.message.role for source in seen[0].sources] == ["user", "assistant", "tool"]
    assert seen[0].prompt == "In one sentence."
    assert "They looked at the chart." in held.messages[0]["content"]

    _, held = await prepared(management, messages)
    assert "no summariser is named 'small'" in ran(held)[-1].problems


async def test_a_summariser_that_fails_loses_nothing_and_the_report_says_so() -> None:
    async def summarize(_: SummaryRequest) -> str:
        raise OSError("no route to host")

    _, held = await prepared(
        doc("pre_llm", "SummarizationManager"), talk(30), summarizer=summarize, workspace=MemoryWorkspace()
    )
    assert held.messages[0]["content"].startswith("[Summary of messages 0-8")
    assert any("no route to host" in problem for problem in ran(held)[-1].problems)


@pytest.mark.parametrize("limit", [1, 2, 5, 12, 13, 40, 90, 150, 300])
@pytest.mark.filterwarnings("ignore:no offloader")
@pytest.mark.parametrize("is_kept", [True, False], ids=["kept", "lost"])
async def test_a_truncated_output_is_no_longer_than_it_may_be_notice_included(limit: int, *, is_kept: bool) -> None:
    management = doc("post_tool", "ToolsOutputTruncateManager", {"max_output_length": limit})
    offloader = MemoryWorkspace() if is_kept else None
    held = ManagedWindow(management, session_id=SESSION, offloader=offloader, counter=Estimates())
    await held.add(calls("c"))
    for text in ("x" * 400, "\ud83d\ude00" * 200):
        await held.add(gave("c", text))
        shown = said(held)[-1]["content"]
        assert 0 < len(shown) <= limit
        notice = min((shown.find(sign) for sign in ("\n[", "\n<", "…") if sign in shown), default=len(shown))
        assert (notice % 2 == 0) if text[0] != "x" else text.startswith(shown[:notice])


async def test_without_an_offloader_one_warning_says_what_is_lost() -> None:
    held = ManagedWindow(doc("pre_llm", "SlidingWindowManager", {"max_messages": 2}), session_id=SESSION)
    for message in talk(5):
        await held.add(message)
    with pytest.warns(UserWarning, match="removed from the context is lost"):
        await held.prepare()
    assert held.messages[0]["content"].endswith("They were not kept anywhere.]")


async def test_an_output_that_is_just_as_long_as_it_may_be_is_not_touched() -> None:
    message = gave("c", "x" * 500)
    kept, held = await prepared(
        doc("post_tool", "ToolsOutputTruncateManager", {"max_output_length": 500}), [calls("c"), message]
    )
    assert kept[-1] is message
    assert not ran(held)[-1].is_reduced


async def test_what_was_truncated_is_the_same_at_every_later_call() -> None:
    held = conversation(doc("pre_llm", "ToolsOutputTruncateManager", {"max_output_length": 500}))
    await held.add(calls("c"))
    await held.add(gave("c", "x" * 5_000))
    first = await held.prepare()
    await held.add(user("?"))
    assert all(mine is theirs for mine, theirs in zip(first, await held.prepare(), strict=False))


# What there is beyond the page


async def test_the_example_of_a_manager_of_ones_own_keeps_the_last_ten() -> None:
    management = ContextManagement.read(
        {"hooks": {"pre_llm": [{"type": f"{__name__}.Last10Messages"}]}}, allowed=[f"{__name__}.*"]
    )
    kept, held = await prepared(management, talk(13))
    assert kept == talk(13)[-10:]
    assert ran(held)[-1].done == ("3 messages left for the archive",)
    assert len((await prepared(management, talk(9)))[0]) == 9


async def test_a_manager_of_ones_own_is_found_by_its_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "my_managers-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: my-managers\nVersion: 1.0\n", "utf-8")
    (installed / "entry_points.txt").write_text("[buoyline.managers]\nKeepTen = ten_messages:Ten\n", "utf-8")
    (tmp_path / "ten_messages.py").write_text(f"from {__name__} import Last10Messages as Ten\n", "utf-8")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    management = ContextManagement.read({"type": "KeepTen"})
    assert (await prepared(management, talk(13)))[0] == talk(13)[-10:]
    assert management.to_json() == {"hooks": {"pre_llm": [{"type": "KeepTen"}]}}


async def test_a_manager_of_ones_own_cannot_break_what_holds() -> None:
    management = ContextManagement.read(
        {"hooks": {"pre_llm": [{"type": f"{__name__}:Greedy", "config": {"keep": 1}}]}}, allowed=[f"{__name__}:Greedy"]
    )
    messages = [SYSTEM, user("first"), user("now"), calls("a", "b"), gave("a", "1"), gave("b", "2")]
    kept, held = await prepared(management, messages)
    assert held.messages[0] is SYSTEM
    assert kept == messages[2:]
    assert management.entries("pre_llm")[0].to_json() == {"type": f"{__name__}:Greedy", "config": {"keep": 1}}


@pytest.mark.parametrize(("name", "words"), [("Inventing", "may only take messages out"), ("Odd", "True or False")])
async def test_a_manager_of_ones_own_that_does_something_else_is_told_so(name: str, words: str) -> None:
    management = ContextManagement.read({"type": f"{__name__}.{name}"}, allowed=["*"])
    with pytest.raises(ConfigError, match=words):
        await prepared(management, talk(3))


@pytest.mark.parametrize(
    ("config", "name", "words"),
    [
        ({"x": 1}, "Last10Messages", "does not take these settings"),
        ({}, "Nowhere", "cannot be imported"),
        ({}, "SESSION", "is no class"),
        ({}, "MemoryWorkspace", "has no method reduce"),
        ({"keep": -1}, "Picky", "does not take these settings: keep must be 1 or more"),
    ],
)
def test_a_manager_of_ones_own_that_cannot_be_made_is_a_problem(config: Any, name: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ContextManagement.read({"type": f"{__name__}.{name}", "config": config}, allowed=["*"])


@pytest.mark.parametrize("text", ["raise RuntimeError('no key')", "def ("])
def test_a_module_that_raises_when_it_is_imported_is_a_problem(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"raising_{len(text)}"
    (tmp_path / f"{name}.py").write_text(text, "utf-8")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for kind in (f"{name}.Manager", f"..{name}"):
        with pytest.raises(ConfigError, match=r"cannot be imported: (RuntimeError: no key|SyntaxError|TypeError)"):
            ContextManagement.read({"type": kind}, allowed=["*"])


async def test_on_an_overflow_no_lets_the_error_through_and_yes_stops_it() -> None:
    overflow = RuntimeError("prompt is too long")
    held = conversation(
        ContextManagement.read({"hooks": {"on_overflow": [{"type": f"{__name__}.Last10Messages"}]}}, allowed=["*"])
    )
    for message in talk(10):
        await held.add(message)
    with pytest.raises(RuntimeError, match="prompt is too long"):
        await held.recover_from_overflow(overflow)
    assert held.messages == talk(10)

    greedy = ContextManagement.read({"hooks": {"on_overflow": [{"type": f"{__name__}.Greedy"}]}}, allowed=["*"])
    held = conversation(greedy)
    for message in talk(10):
        await held.add(message)
    assert len(await held.recover_from_overflow(overflow)) == 2
    manager = greedy.entries("on_overflow")[0].manager
    assert isinstance(manager, CustomManager)
    assert isinstance(manager.reducer, Greedy)
    assert manager.reducer.errors == [overflow]


async def test_the_null_manager_leaves_all_as_it_is_and_lets_an_overflow_through() -> None:
    kept, held = await prepared(ContextManagement(), talk(50))
    assert kept == held.messages == talk(50)
    with pytest.raises(ValueError, match="too long"):
        await held.recover_from_overflow(ValueError("too long"))


async def test_managers_are_asked_in_order_after_an_overflow_until_a_tenth_is_gone() -> None:
    hooks = {
        "on_overflow": [
            {"type": "SlidingWindowManager", "config": {"max_messages": 100}},
            {"type": "SlidingWindowManager", "config": {"max_messages": 20}},
            {"type": "SlidingWindowManager", "config": {"max_messages": 2}},
        ],
    }
    _, held = await prepared(ContextManagement.read({"hooks": hooks}), [user("word " * 50) for _ in range(40)])
    assert len(held.messages) == 40
    await held.recover_from_overflow(ValueError("too long"))
    assert [one.messages for one in ran(held)] == [(40, 39), (39, 20)]


async def test_an_entry_may_wait_for_an_overflow_at_its_own_hook() -> None:
    management = doc("pre_llm", "SlidingWindowManager", {"max_messages": 4}, on_overflow=True)
    kept, held = await prepared(management, talk(20))
    assert len(kept) == 20
    await held.recover_from_overflow(ValueError("too long"))
    assert said(held) == talk(20)[-4:]


async def test_activation_by_share_of_the_window() -> None:
    management = doc("pre_llm", "SlidingWindowManager", {"max_messages": 2}, tokens_exceed_ratio=0.5)
    assert len((await prepared(management, talk(20, ""), size=1_000))[0]) == 20
    assert len((await prepared(management, talk(20, ""), size=200))[0]) == 2


async def test_activation_by_the_results_of_a_turn() -> None:
    management = doc("pre_llm", "ToolsOutputTruncateManager", {"max_output_length": 200}, turn_tokens_exceed=300)
    one = [user("?"), calls("a", "b"), gave("a", "x" * 1_000)]
    assert (await prepared(management, one))[0] == one
    kept, _ = await prepared(management, [*one, gave("b", "y" * 1_000)])
    assert [len(message["content"]) for message in kept[2:]] == [200, 200]


async def test_activation_by_idle_time_and_by_every_nth_call() -> None:
    held = conversation(doc("pre_llm", "SlidingWindowManager", {"max_messages": 2}, idle_seconds_exceed=300))
    for message in talk(6):
        await held.add(message)
    held.called_before(200)
    assert len(await held.prepare()) == 6
    held.called_before(300.5)
    await held.prepare()
    assert len(said(held)) == 2

    held = conversation(doc("pre_llm", "SlidingWindowManager", {"max_messages": 2}, every_model_calls=3))
    counts: list[int] = []
    for message in talk(9):
        await held.add(message)
        if message["role"] == "user":
            await held.prepare()
            counts.append(len(said(held)))
    assert counts == [1, 3, 2, 4, 6]


async def test_pre_compress_fires_before_messages_leave_for_a_summary() -> None:
    hooks = {
        "pre_compress": [{"type": "PinManager", "config": {"contains": ["NEVER"]}}],
        "pre_llm": [{"type": "SummarizationManager", "config": {"summary_ratio": 0.5, "preserve_recent_messages": 2}}],
    }
    messages = [user("a"), user("NEVER push to main."), *talk(8)]
    kept, held = await prepared(ContextManagement.read({"hooks": hooks}), messages)
    assert [one.hook for one in ran(held)] == ["pre_compress", "pre_llm"]
    assert kept == [messages[1], *messages[5:]]


async def test_pinned_messages_are_preserved_with_their_calls_and_results() -> None:
    hooks = {
        "pre_llm": [
            {"type": "PinManager", "config": {"first": 2}},
            {"type": "SlidingWindowManager", "config": {"max_messages": 2}},
        ]
    }
    messages = [SYSTEM, user("task"), calls("c"), gave("c", "the plan"), *talk(9)]
    held = conversation(ContextManagement.read({"hooks": hooks}))
    for message in messages:
        await held.add(message)
        await held.prepare()
    assert said(held) == [*messages[1:4], *messages[-2:]]


async def test_older_results_become_a_line_each_that_leads_to_the_whole() -> None:
    workspace = MemoryWorkspace(evict_after_turns=None)
    config = {"keep_recent_results": 1, "min_tokens": 50, "keep_tools": ["skill_*"]}
    messages = [message for n in range(4) for message in (calls(f"c{n}"), gave(f"c{n}", f"{n}" * 900))]
    kept, _ = await prepared(doc("pre_llm", "ToolResultMaskManager", config), messages, workspace)
    assert [len(message["content"]) for message in kept[1::2]][-1] == 900
    for number, message in enumerate(kept[1:-1:2]):
        line = message["content"]
        assert line.startswith("[Older result of read left out: 900 characters. It stands in memory:///")
        reference = line.split("It stands in ")[1].removesuffix("]")
        assert f"{number}" * 900 in workspace.read(reference).replace("\n… ", "").replace("\n", "")


async def test_a_large_result_leaves_with_a_preview() -> None:
    management = doc("post_tool", "OffloadManager", {"tool_result_limit": 300, "preview_tokens": 200})
    kept, _ = await prepared(management, [calls("c"), gave("c", "".join(f"row {n}\n" for n in range(900)))])
    assert kept[-1]["content"].startswith("[Tool result offloaded: 900 lines")


async def test_a_stand_in_that_is_cut_again_still_leads_to_the_whole() -> None:
    hooks = {
        "post_tool": [{"type": "OffloadManager", "config": {"tool_result_limit": 300, "preview_tokens": 250}}],
        "pre_llm": [{"type": "ToolsOutputTruncateManager", "config": {"max_output_length": 300}}],
    }
    kept, _ = await prepared(
        ContextManagement.read({"hooks": hooks}), [calls("c"), gave("c", "".join(f"row {n}\n" for n in range(900)))]
    )
    assert "memory:///sessions/s1/tool_result-c.txt]" in kept[-1]["content"]


@pytest.mark.parametrize("form", ["user", "result"])
async def test_only_the_newest_pictures_stay(form: str, tmp_path: Path) -> None:
    def image(number: int) -> dict[str, Any]:
        data = base64.b64encode(bytes([number]) * 40).decode()
        return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}

    def message(number: int) -> list[dict[str, Any]]:
        blocks = [{"type": "text", "text": f"picture {number}"}, image(number)]
        if form == "user":
            return [{"role": "user", "content": blocks}]
        use: dict[str, Any] = {"type": "tool_use", "id": f"t{number}", "name": "shot", "input": {}}
        block = {"type": "tool_result", "tool_use_id": f"t{number}", "content": blocks}
        return [{"role": "assistant", "content": [use]}, {"role": "user", "content": [block]}]

    workspace = LocalWorkspace(tmp_path, durability="off")
    messages = [one for number in range(4) for one in message(number)]
    kept, _ = await prepared(doc("pre_llm", "ImageLimitManager", {"max_images": 2}), messages, workspace)
    await workspace.close()

    spelled = [json.dumps(one) for one in kept if "picture" in json.dumps(one)]
    assert ["[image: png, 40 bytes, " in text for text in spelled] == [True, True, False, False]
    assert all(f"picture {number}" in text for number, text in enumerate(spelled))
    assert len(list((tmp_path / "data").glob("*.png"))) == 2
    assert kept[-1] is messages[-1]


async def test_a_document_for_one_call_takes_the_place_of_the_conversations_own() -> None:
    held = conversation(doc("pre_llm", "SlidingWindowManager", {"max_messages": 2}))
    for message in talk(9):
        await held.add(message)
    assert len(await held.prepare(ContextManagement())) == 9
    await held.prepare()
    assert len(said(held)) == 2


LONG_DOCUMENTS = ("tool-heavy", "tool-heavy-with-summarization", "long-conversations")


@pytest.mark.parametrize(
    "name", ["coding-agent", *(pytest.param(name, marks=pytest.mark.slow) for name in LONG_DOCUMENTS)]
)
async def test_built_in_documents_keep_a_real_session_whole_in_archive_and_context(
    name: str, shared_data: Path
) -> None:
    found = (path for path in (shared_data / "sessions").glob("*.jsonl") if path.stat().st_size > 300_000)
    path = min(found, key=lambda path: path.stat().st_size)
    recorded = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    workspace = MemoryWorkspace(evict_after_turns=None)
    held = conversation(built_in(name), workspace, size=16_000)
    for message in recorded:
        await held.add(message)
        if detect(message).view(message).role != "assistant":
            await held.prepare()
    standing = list(held.view().messages)
    left = standing[0].index
    archived = await workspace.load_messages(SESSION, 0, left) if left else []
    assert len(archived) == left
    assert left + len(standing) == len(recorded)
    assert any(report.is_reduced for report in held.reports)


@pytest.mark.parametrize("where", ["conversation", "window"])
async def test_an_output_that_is_cut_twice_still_says_how_large_the_stored_one_is(where: str) -> None:
    text = "ä line of output\n" * 2_000
    hooks = {
        hook: [{"type": "ToolsOutputTruncateManager", "config": {"max_output_length": limit}}]
        for hook, limit in (("post_tool", 3_000), ("pre_llm", 900))
    }
    management, workspace = ContextManagement.read({"hooks": hooks}), MemoryWorkspace(evict_after_turns=None)
    if where == "window":
        window = ContextWindow(session_id=SESSION, offloader=workspace, management=management)
        for message in (user("?"), calls("c"), gave("c", text)):
            await window.add(message)
        shown = await window.prepare()
    else:
        shown, _ = await prepared(management, [user("?"), calls("c"), gave("c", text)], workspace)
    size_bytes = len(text.encode())
    notice = (
        f"\n[truncated: the whole output has {size_bytes:,} bytes and is in memory:///sessions/s1/tool_result-c.txt]"
    )
    assert shown[-1]["content"].endswith(notice)
    assert len(shown[-1]["content"]) <= 900


@pytest.mark.parametrize("limit", [200, 120, 60])
async def test_a_cut_output_names_its_file_however_short_it_is(limit: int, tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path / "a directory with a name that is long enough to matter", durability="off")
    kept, _ = await prepared(
        doc("post_tool", "ToolsOutputTruncateManager", {"max_output_length": limit}),
        [calls("c1"), gave("c1", "x" * 5_000)],
        workspace,
    )
    await workspace.close()
    assert "tool_result-c1.txt]" in kept[-1]["content"]
    assert len(kept[-1]["content"]) <= limit


@pytest.mark.parametrize("where", ["conversation", "window"])
async def test_few_words_stay_unarchived_where_a_summary_may_take_as_many_and_no_model_is_asked(where: str) -> None:
    management, messages = doc("pre_llm", "SummarizationManager", {"summary_ratio": 0.8}), talk(30, "")
    workspace, asked = MemoryWorkspace(evict_after_turns=None), list[SummaryRequest]()

    async def writer(request: SummaryRequest) -> str:
        asked.append(request)
        return "They counted."

    if where == "window":
        window = ContextWindow(
            session_id=SESSION, offloader=workspace, management=management, summarizer=writer, size=16_000
        )
        for message in messages:
            await window.add(message)
        kept, entries = await window.prepare(), window.report.entries
    else:
        held = conversation(management, workspace, summarizer=writer)
        for message in messages:
            await held.add(message)
        kept, entries = await held.prepare(), ran(held)
    assert kept == messages
    assert re.fullmatch(r"20 messages of [0-9]+ tokens stay: their summary may take 400", entries[-1].done[-1])
    assert not entries[-1].is_reduced
    assert not asked
    assert (await workspace.archive(SESSION, [])).first == 0
