"""A window under a document: which one, when its managers run, what is told of them, and how it is gone on with."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from estimates import Estimates
from test_management_running import calls, gave, talk, user
from window_forms import FORMS, NAMES, Form, picture, words

from buoyline import ContextConfig, ContextWindow, LocalWorkspace, MemoryWorkspace
from buoyline.compression import SummaryRequest
from buoyline.errors import ConfigError, ContextOverflowError, DocumentError, NotFoundError, StorageError
from buoyline.management import ContextManagement, Registry
from buoyline.management.registry import built_in
from buoyline.tokens import default_counter
from buoyline.window import ContextManaged, Event
from buoyline.window.state import entry_of

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
    assert window_of(None, {"context_management_name": "chat"}).management == built_in("chat")
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


async def test_the_null_document_leaves_everything_as_it_is() -> None:
    window = window_of(MemoryWorkspace(), {"hooks": {}}, size=1_000)
    messages = [user("?"), calls("c"), gave("c", words(3_000)), *talk(5)]
    assert await fed(window, messages) == messages
    assert window.tokens > window.size
    with pytest.raises(OSError, match="too long"):
        await window.recover_from_overflow(OSError("too long"))


# When, and what is told


async def test_hooks_fire_for_what_was_added_and_once_a_turn() -> None:
    events: list[Event] = []
    hooks = {
        hook: [{"type": "SlidingWindowManager", "config": {"max_messages": 50}}]
        for hook in ("post_memory", "post_tool", "pre_llm")
    }
    window = window_of(MemoryWorkspace(), {"hooks": hooks}, on_event=events.append)
    await fed(window, [user("?")])
    await fed(window, [calls("a", "b"), gave("a", "1"), gave("b", "2")])
    await window.add({"role": "assistant", "content": "Done."})
    await window.save()
    await fed(window, [user("And now?")])
    fired = [event.hook for event in events if isinstance(event, ContextManaged)]
    assert fired == ["post_memory", "pre_llm", "post_tool", "pre_llm", "post_memory", "pre_llm"]


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


async def test_offloading_by_a_document_is_that_of_a_configuration() -> None:
    config = ContextConfig(tool_result_limit=100, preview_tokens=60)
    messages = [user("?"), calls("c"), gave("c", "\n".join(words(9, f"w{line}") for line in range(99)))]
    by_config = window_of(MemoryWorkspace(), config=config)
    by_document = window_of(
        MemoryWorkspace(), doc("post_tool", "OffloadManager", {"tool_result_limit": 100, "preview_tokens": 60})
    )
    assert await fed(by_config, messages) == await fed(by_document, messages)


async def test_a_conversation_that_is_added_at_once_is_offloaded_turn_by_turn() -> None:
    limits: dict[str, Any] = {"tool_result_limit": 100, "preview_tokens": 60, "turn_results_limit": 230}
    text = "\n".join(words(9, f"w{line}") for line in range(99))
    small = "word " * 72  # 90 tokens
    first = [user("?"), calls("a", "b"), gave("a", text), gave("b", small)]
    others = [calls("c", "d", "e"), gave("c", small), gave("d", small), gave("e", small), calls("f"), gave("f", text)]
    answer = {"role": "assistant", "content": "Done."}
    by_config = window_of(MemoryWorkspace(), config=ContextConfig(**limits))
    by_document = window_of(MemoryWorkspace(), doc("post_tool", "OffloadManager", limits))
    for messages in (first, [*others, answer, user("And now?")]):
        shown = await fed(by_document, messages)
        assert shown == await fed(by_config, messages)
    assert [message["content"] == small for message in shown if message["role"] == "tool"] == [0, 1, 1, 1, 1, 0]


async def test_what_the_agent_reads_back_is_not_offloaded_again(tmp_path: Path) -> None:
    text = "\n".join(words(9, f"w{line}") for line in range(99))
    management = doc("post_tool", "OffloadManager", {"tool_result_limit": 100, "preview_tokens": 60})
    window = window_of(LocalWorkspace(tmp_path), management, size=32_000)
    shown = await fed(window, [user("?"), calls("c"), gave("c", text)])
    path = shown[-1]["content"].split("Whole result: ")[1].split("\n")[0]
    read = calls("r")
    read["tool_calls"][0]["function"] = {"name": "read", "arguments": json.dumps({"path": path})}
    assert (await fed(window, [read, gave("r", text)]))[-1]["content"] == text


async def test_whoever_wants_a_say_is_asked_about_what_managers_choose() -> None:
    asked: list[tuple[str, int]] = []

    def keep(tool: str, tokens: int, **_: object) -> bool:
        asked.append((tool, tokens))
        return False

    management = doc("pre_llm", "ToolsOutputTruncateManager", {"max_output_length": 300})
    window = window_of(MemoryWorkspace(), management, should_offload=keep)
    messages = [user("?"), calls("c"), gave("c", words(900))]
    assert await fed(window, messages) == messages
    assert await fed(window, talk(3)) == [*messages, *talk(3)]
    assert [tool for tool, _ in asked] == ["read"]
    assert "should_offload keeps it" in window.report.entries[0].done[0]


@pytest.mark.parametrize("form", FORMS, ids=NAMES)
async def test_pictures_leave_and_name_their_files(form: Form, tmp_path: Path) -> None:
    window = window_of(LocalWorkspace(tmp_path), doc("pre_llm", "ImageLimitManager", {"max_images": 1}))
    await window.add(form.user("first", picture(1)), pinned=True)
    shown = await fed(window, [form.user("second", picture(2)), form.user("third", picture(3))])
    entries = [entry_of(message, 0, Estimates()) for message in shown]
    assert [entry.images for entry in entries] == [1, 0, 1]
    assert f"{tmp_path}/data/" in entries[1].message.text


async def test_a_pin_that_leaves_no_room_is_not_made_and_the_report_says_so() -> None:
    window = window_of(MemoryWorkspace(), doc("pre_llm", "PinManager", {"first": 1}), size=1_000)
    await fed(window, [user(words(400)), *talk(3)])
    assert window.report.entries[0].problems == ("1 messages are too large to be pinned in this window",)
    small = window_of(MemoryWorkspace(), doc("pre_llm", "PinManager", {"first": 1}), size=1_000)
    messages = [user("Fix the build."), *talk(5)]
    await fed(small, messages)
    await small.compress(force=True)
    assert small.messages[0] is messages[0]


async def test_a_call_whose_results_leave_no_room_is_not_pinned() -> None:
    window = window_of(MemoryWorkspace(), doc("pre_llm", "PinManager", {"first": 1}), size=1_000)
    await window.add(calls("c"))
    await window.add(gave("c", words(400)))
    await fed(window, [user("?"), *talk(3)])
    assert window.report.entries[0].problems == ("1 messages are too large to be pinned in this window",)


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


async def test_pre_compress_fires_before_the_windows_own_compression_too() -> None:
    management = {
        "hooks": {
            "pre_compress": [{"type": "ToolsOutputTruncateManager", "config": {"max_output_length": 120}}],
            "pre_llm": [{"type": "CompressionManager", "activation": {"tokens_exceed": 99_000}}],
        }
    }
    window = window_of(MemoryWorkspace(evict_after_turns=None), management)
    await fed(window, [user("?"), calls("c"), gave("c", words(90)), *talk(4)])
    assert await window.compress(force=True)
    assert [(ran.hook, ran.is_reduced) for ran in window.report.entries] == [("pre_compress", True)]


async def test_pre_compress_fires_before_a_compression_above_the_trigger() -> None:
    window = window_of(MemoryWorkspace(), doc("pre_compress", "PinManager", {"first": 1}), size=1_000)
    for message in (user("?"), *talk(4), user(words(500))):
        await window.add(message)
    await window.compress()
    assert [ran.hook for ran in window.report.entries] == ["pre_compress"]
    assert window.messages[0] == user("?")


async def test_what_pre_compress_lets_go_of_does_not_move_where_a_compression_ends() -> None:
    window = window_of(MemoryWorkspace(), doc("pre_compress", "SlidingWindowManager", {"max_messages": 6}))
    said = talk(12)
    for message in said:
        await window.add(message)
    summary = await window.compress(before=8)
    assert summary is not None
    assert summary.messages == (6, 8)
    assert window.messages[-4:] == said[8:]
    assert window.added == len(said)


# Limits that hold whatever a document says


async def test_a_context_that_does_not_fit_is_an_overflow_before_any_provider_says_so() -> None:
    management = {
        "hooks": {
            "pre_llm": [{"type": "SlidingWindowManager", "config": {"max_messages": 90}}],
            "on_overflow": [{"type": "ToolsOutputTruncateManager", "config": {"max_output_length": 500}}],
        }
    }
    window = window_of(MemoryWorkspace(evict_after_turns=None), management, size=1_000)
    shown = await fed(window, [user("?"), calls("c"), gave("c", words(3_000))])
    assert len(shown[-1]["content"]) <= 500
    assert [ran.hook for ran in window.report.entries] == ["pre_llm", "on_overflow"]


async def test_where_the_document_makes_no_room_the_window_does() -> None:
    window = window_of(MemoryWorkspace(evict_after_turns=None), EIGHT | {"description": "Many words."}, size=1_000)
    shown = list[Any]()
    for number in range(12):
        shown = await fed(window, [user(f"{number}: {words(250)}"), {"role": "assistant", "content": "so"}])
        assert window.tokens <= 1_000
    assert any("Summary of messages" in message["content"] for message in shown)
    assert shown[-2]["content"].startswith("11:")


@pytest.mark.parametrize("name", ["chat", "coding-agent", "small-local-model"])
async def test_a_summary_that_a_document_asks_for_leaves_room_for_what_stays(name: str) -> None:
    window = window_of(MemoryWorkspace(evict_after_turns=None), name, size=300, counter=default_counter())
    for number in range(12):
        await fed(window, [user(words(6, f"q{number}_")), calls(f"c{number}"), gave(f"c{number}", words(20))])
        assert window.tokens <= 300
    assert window.messages[-1] == gave("c11", words(20))


async def test_after_an_overflow_managers_are_asked_and_else_the_error_goes_through() -> None:
    management = ContextManagement.read(
        {"hooks": {"on_overflow": [{"type": "test_management_running.Last10Messages"}]}},
        allowed=["test_management_running.*"],
    )
    window = window_of(MemoryWorkspace(evict_after_turns=None), management)
    said = [user(f"{number}: {words(50)}") for number in range(21)]
    await fed(window, said)
    assert (await window.recover_from_overflow(OSError("prompt is too long")))[1:] == said[11:]
    with pytest.raises(OSError, match="prompt is too long"):
        await window.recover_from_overflow(OSError("prompt is too long"))


async def test_where_managers_of_ours_find_nothing_after_an_overflow_the_window_goes_on() -> None:
    truncate = {"type": "ToolsOutputTruncateManager", "config": {"max_output_length": 40_000}}
    window = window_of(MemoryWorkspace(evict_after_turns=None), {"hooks": {"on_overflow": [truncate]}}, size=4_000)
    await fed(window, [user("?"), calls("c"), gave("c", words(900))])
    before = window.tokens
    await window.recover_from_overflow(OSError("prompt is too long"))
    assert window.tokens <= 0.9 * before


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


async def test_another_process_goes_on_with_notice_words_pins_and_document(tmp_path: Path) -> None:
    management = {
        "hooks": {
            "pre_llm": [
                {"type": "PinManager", "config": {"contains": ["remember"]}},
                {"type": "SlidingWindowManager", "config": {"max_messages": 3}},
            ]
        }
    }
    window = window_of(LocalWorkspace(tmp_path), management)
    loop = [message for n in range(4) for message in (calls(f"c{n}"), gave(f"c{n}", f"result {n}"))]
    shown = await fed(window, [SYSTEM, user("remember the port"), *talk(3), user("Go on."), *loop])
    assert [message["role"] for message in shown] == ["system", "user", "user", "user", "assistant", "tool"]
    assert shown[3]["content"] == "Go on."

    other = await ContextWindow.resume(LocalWorkspace(tmp_path), SESSION, counter=Estimates())
    assert other.management == window.management
    assert other.messages == shown
    assert other.tokens == window.tokens
    more = [calls("d"), gave("d", "result"), {"role": "assistant", "content": "Done."}, user("Thanks.")]
    after = await fed(other, more)
    assert after[:2] == shown[:2]
    assert user("Go on.") not in after, "newer words stand behind it"
    assert after[-1] == user("Thanks.")
    archived = (tmp_path / "sessions/s1/context.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line) for line in archived][:6] == [SYSTEM, user("remember the port"), *talk(3), user("Go on.")]


async def test_the_calls_of_the_model_are_counted_over_processes(tmp_path: Path) -> None:
    management = doc("pre_llm", "SlidingWindowManager", {"max_messages": 2}, every_model_calls=3)
    window, slid = window_of(LocalWorkspace(tmp_path), management), list[bool]()
    for number in range(9):
        await fed(window, [user(f"{number}")])
        slid.append(window.report.entries[0].is_reduced)
        await window.add({"role": "assistant", "content": "so"})
        await window.save()
        window = await ContextWindow.resume(LocalWorkspace(tmp_path), SESSION, counter=Estimates())
    assert slid == [False, False, True] * 3


async def test_a_document_with_managers_of_ones_own_is_given_anew(tmp_path: Path) -> None:
    raw = {"type": "test_management_running.Last10Messages"}
    management = ContextManagement.read(raw, allowed=["test_management_running.*"])
    window = window_of(LocalWorkspace(tmp_path), management)
    await fed(window, talk(12))
    with pytest.raises(DocumentError, match="not allowed to be imported"):
        await ContextWindow.resume(LocalWorkspace(tmp_path), SESSION)
    other = await ContextWindow.resume(LocalWorkspace(tmp_path), SESSION, management=management)
    assert other.messages == window.messages


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
                {"type": "PinManager", "config": {"first": 1}},
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
    assert shown[0] == user("?")
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


@pytest.mark.parametrize("preset", ["chat", "coding-agent", "research-agent", "small-local-model"])
async def test_our_own_presets_change_earlier_messages_at_compactions_only(tmp_path: Path, preset: str) -> None:
    workspace = LocalWorkspace(tmp_path, durability="off")
    window = window_of(workspace, preset, size=12_000, counter=default_counter())
    before: list[Any] = []
    changes = 0
    await window.add({"role": "user", "content": "Find the port of the staging database."})
    for turn in range(60):
        function = {"name": "read", "arguments": json.dumps({"path": f"part_{turn}.txt"})}
        call = {"id": f"c{turn}", "type": "function", "function": function}
        await window.add({"role": "assistant", "content": None, "tool_calls": [call]})
        await window.add({"role": "tool", "tool_call_id": f"c{turn}", "content": f"{turn}: {words(600)}"})
        messages = await window.prepare()
        is_due = any(ran.type_name == "CompressionManager" and ran.is_active for ran in window.report.entries)
        changes += messages[: len(before)] != before
        assert is_due or messages[: len(before)] == before
        before = messages
    assert 1 <= changes <= 20
