"""A window under a document: which one, when its managers run, what is told of them, and how it is gone on with."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from estimates import Estimates
from test_management_running import calls, gave, talk, user
from window_forms import words

from buoyline import ContextWindow, LocalWorkspace, MemoryWorkspace
from buoyline.compression import SummaryRequest
from buoyline.errors import ConfigError, ContextOverflowError, DocumentError, NotFoundError, StorageError
from buoyline.management import ContextManagement, Registry
from buoyline.management.registry import built_in
from buoyline.window import ContextManaged, Event

SESSION = "s1"
SYSTEM = {"role": "system", "content": "Be brief."}
EIGHT = {"hooks": {"pre_llm": [{"type": "SlidingWindowManager", "config": {"max_messages": 8}}]}}


def doc(hook: str, kind: str, config: dict[str, Any] | None = None, **activation: Any) -> dict[str, Any]:
    rules = {"activation": activation} if activation else {}
    return {"hooks": {hook: [{"type": kind, "config": {**(config or {}), **rules}}]}}


def window_of(workspace: Any, management: Any = None, **options: Any) -> ContextWindow:
    options.setdefault("counter", Estimates())
    return ContextWindow(session_id=SESSION, offloader=workspace, management=management, **options)


async def fed(window: ContextWindow, messages: Sequence[Any]) -> list[Any]:
    for message in messages:
        await window.add(message)
    return await window.prepare()


def kinds(events: Sequence[Event]) -> list[str]:
    return [type(event).__name__ for event in events]


# Which document


async def test_a_name_is_looked_for_in_the_workspace_and_then_in_the_package(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path)
    assert window_of(workspace, "tool-heavy").management == built_in("tool-heavy")
    Registry(workspace).put(EIGHT, "tool-heavy")
    assert window_of(workspace, "tool-heavy").management == ContextManagement.read(EIGHT, name="tool-heavy")
    assert window_of(MemoryWorkspace(), "tool-heavy").management == built_in("tool-heavy")
    with pytest.raises(NotFoundError, match="did you mean 'tool-heavy'"):
        window_of(workspace, "tool-hevy")


async def test_files_values_and_bodies_are_documents(tmp_path: Path) -> None:
    file = tmp_path / "policy.json"
    file.write_text(json.dumps(EIGHT), encoding="utf-8")
    expected = ContextManagement.read(EIGHT)
    for management in (file, str(file), EIGHT, expected):
        assert window_of(None, management).management == expected
    assert window_of(None, {"context_management_name": "tool-heavy"}).management == built_in("tool-heavy")
    with pytest.raises(DocumentError, match=r"nowhere\.json"):
        window_of(None, "nowhere.json")
    with pytest.raises(DocumentError, match="did you mean 'SlidingWindowManager'"):
        window_of(None, {"type": "SlidingWindowManger"})
    with pytest.raises(ConfigError, match="int is no document"):
        window_of(None, 7)


async def test_the_name_of_a_call_wins_over_the_windows_for_that_call_alone() -> None:
    workspace = MemoryWorkspace()
    window = window_of(workspace, EIGHT)
    assert len(await fed(window, talk(9))) == 9  # a notice stands there, too
    four = doc("pre_llm", "SlidingWindowManager", {"max_messages": 4})
    assert len(await window.prepare(four)) == 5
    assert len(await fed(window, talk(4))) == 9
    with pytest.raises(NotFoundError):
        await window.prepare("no-such-document")


async def test_a_window_without_a_document_takes_one_for_a_call() -> None:
    window = window_of(MemoryWorkspace())
    assert await fed(window, talk(9)) == talk(9)
    assert (await window.prepare(EIGHT))[1:] == talk(9)[1:]
    assert len(await window.prepare()) == 9


# When, and what is told


async def test_what_each_manager_did_is_in_the_report_the_event_and_the_explanation() -> None:
    events: list[Event] = []
    window = window_of(
        MemoryWorkspace(),
        {
            "description": "Mine.",
            "hooks": {
                "post_tool": [{"type": "ToolsOutputTruncateManager", "config": {"max_output_length": 400}}],
                "pre_llm": [
                    {"type": "SlidingWindowManager", "config": {"max_messages": 4}},
                    {"type": "SlidingWindowManager", "activation": {"tokens_exceed": 90_000}},
                ],
            },
        },
        on_event=events.append,
    )
    await fed(window, [*talk(6), user("?"), calls("c"), gave("c", "x" * 5_000)])

    truncated, slid, idle = window.report.entries
    assert (truncated.hook, truncated.is_reduced, truncated.messages) == ("post_tool", True, (9, 9))
    assert (slid.messages, slid.done) == ((9, 4), ("5 messages left for the archive",))
    assert not idle.is_active
    assert kinds(events) == ["ResultOffloaded", "ContextManaged", "MessagesArchived", "ContextManaged"]
    told = [ran for event in events if isinstance(event, ContextManaged) for ran in event.report.entries]
    assert told == window.report.entries
    lines = window.explain()
    assert lines[0] == "Mine."
    assert lines[-3:] == list(window.report.in_words())
    assert "pre_llm[0] SlidingWindowManager: 5 messages left for the archive" in lines


async def test_post_tool_decides_before_the_message_is_handed_out_and_it_stays_so() -> None:
    workspace = MemoryWorkspace(evict_after_turns=None)
    window = window_of(workspace, doc("post_tool", "ToolsOutputTruncateManager", {"max_output_length": 300}))
    shown = await fed(window, [user("?"), calls("c"), gave("c", words(900))])
    assert len(shown[-1]["content"]) <= 300
    again = await fed(window, [{"role": "assistant", "content": "so"}, user("go on")])
    assert again[:3] == shown
    assert all(one is other for one, other in zip(again, shown, strict=False))


async def test_a_summary_is_written_by_the_model_that_the_document_names() -> None:
    seen: list[SummaryRequest] = []

    async def summarize(request: SummaryRequest) -> str:
        seen.append(request)
        return "They talked."

    config = {"summarization_model_id": "small", "summarization_system_prompt": "In one sentence."}
    window = window_of(
        MemoryWorkspace(), doc("pre_llm", "SummarizationManager", config), summarizers={"small": summarize}
    )
    shown = await fed(window, talk(30))
    assert "They talked." in shown[0]["content"]
    assert [request.prompt for request in seen] == ["In one sentence."]


# Limits that hold whatever a document says


async def test_where_the_document_makes_no_room_the_window_does() -> None:
    window = window_of(MemoryWorkspace(evict_after_turns=None), EIGHT | {"description": "Many words."}, size=1_000)
    shown = list[Any]()
    for number in range(12):
        shown = await fed(window, [user(f"{number}: {words(250)}"), {"role": "assistant", "content": "so"}])
        assert window.tokens <= 1_000
    assert any("Summary of messages" in message["content"] for message in shown)
    assert shown[-2]["content"].startswith("11:")


async def test_without_managers_for_an_overflow_the_window_recovers_as_ever() -> None:
    window = window_of(MemoryWorkspace(evict_after_turns=None), EIGHT)
    await fed(window, [user(words(900)), *talk(7)])
    before = window.tokens
    await window.recover_from_overflow()
    assert window.tokens <= 0.9 * before
    tiny = window_of(MemoryWorkspace(), EIGHT)
    await fed(tiny, [user("?")])
    with pytest.raises(ContextOverflowError):
        await tiny.recover_from_overflow()


# Going on elsewhere


async def test_another_process_goes_on_with_notice_words_and_document(tmp_path: Path) -> None:
    window = window_of(LocalWorkspace(tmp_path), doc("pre_llm", "SlidingWindowManager", {"max_messages": 3}))
    loop = [message for n in range(4) for message in (calls(f"c{n}"), gave(f"c{n}", f"result {n}"))]
    shown = await fed(window, [SYSTEM, *talk(3), user("Go on."), *loop])
    assert [message["role"] for message in shown] == ["system", "user", "user", "assistant", "tool"]
    assert shown[2]["content"] == "Go on."

    other = await ContextWindow.resume(LocalWorkspace(tmp_path), SESSION, counter=Estimates())
    assert other.management == window.management
    assert other.messages == shown
    assert other.tokens == window.tokens
    more = [calls("d"), gave("d", "result"), {"role": "assistant", "content": "Done."}, user("Thanks.")]
    after = await fed(other, more)
    assert after[0] == SYSTEM
    assert user("Go on.") not in after, "newer words stand behind it"
    assert after[-1] == user("Thanks.")
    archived = (tmp_path / "sessions/s1/context.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line) for line in archived][:5] == [SYSTEM, *talk(3), user("Go on.")]


# Failures


class Failing(MemoryWorkspace):
    """A workspace whose window cannot be written while it fails."""

    fails = False

    async def replace_window(self, *arguments: Any, **options: Any) -> None:
        if self.fails:
            raise StorageError(28, "No space left on device", "window.jsonl")
        await super().replace_window(*arguments, **options)


async def test_what_could_not_be_written_down_has_not_happened() -> None:
    workspace, events = Failing(evict_after_turns=None), list[Event]()
    management = {
        "hooks": {
            "pre_llm": [
                {"type": "ToolResultMaskManager", "config": {"keep_recent_results": 0, "min_tokens": 10}},
                {"type": "SlidingWindowManager", "config": {"max_messages": 3}},
            ]
        }
    }
    window = window_of(workspace, management, on_event=events.append)
    workspace.fails = True
    messages = [user("?"), calls("c"), gave("c", words(90)), *talk(4)]
    with pytest.raises(StorageError):
        await fed(window, messages)
    assert window.messages == messages
    assert events == []

    workspace.fails = False
    shown = await window.prepare()
    assert shown[-3:] == talk(4)[-3:]
    assert kinds(events) == ["MessagesArchived", "ResultOffloaded", "ContextManaged"]
    archived = await workspace.load_messages(SESSION, 0, 4)
    assert [value["role"] for _, value in archived] == ["user", "assistant", "tool", "assistant"]


async def test_a_hook_for_events_that_raises_undoes_nothing() -> None:
    def refuse(event: Event) -> None:
        if kinds([event]) == ["ResultOffloaded"]:
            raise LookupError("nobody listens")

    management = doc("post_tool", "ToolsOutputTruncateManager", {"max_output_length": 300})
    window = window_of(MemoryWorkspace(evict_after_turns=None), management, on_event=refuse)
    with pytest.raises(LookupError):
        await fed(window, [user("?"), calls("c"), gave("c", words(900))])
    shown = await window.prepare()
    assert len(shown[-1]["content"]) <= 300


async def test_a_summary_and_a_notice_stand_together_and_each_message_is_archived_once(tmp_path: Path) -> None:
    events: list[Event] = []
    window = window_of(LocalWorkspace(tmp_path), on_event=events.append)
    await fed(window, talk(30))
    summarised = await window.prepare(doc("pre_llm", "SummarizationManager", {"preserve_recent_messages": 20}))
    slid = await window.prepare(EIGHT)
    assert "Summary of messages 0-8" in summarised[0]["content"]
    assert slid[0] == summarised[0]
    assert slid[1]["content"].startswith("[Messages before number 22")
    assert slid[2:] == talk(30)[22:]
    other = await ContextWindow.resume(LocalWorkspace(tmp_path), SESSION, counter=Estimates())
    assert other.messages == slid
    assert [kind for kind in kinds(events) if kind in ("MessagesArchived", "ContextCompressed")] == [
        "MessagesArchived",
        "ContextCompressed",
        "MessagesArchived",
    ]
    lines = (tmp_path / "sessions/s1/context.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line) for line in lines] == talk(30)[:22]
