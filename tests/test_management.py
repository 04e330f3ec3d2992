"""What documents do to conversations: the page's promises, and what goes wrong with them elsewhere."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from test_recorded_sessions import recording
from window_lives import calling, check_valid, result, said, user

from buoyline.compression import SummaryRequest
from buoyline.errors import ConfigError, DocumentError
from buoyline.management import ContextManagement, register_manager
from buoyline.management.model import put
from buoyline.window import ContextManaged, ContextWindow, Event
from buoyline.workspace.workspace import LocalWorkspace, MemoryWorkspace, Workspace

SYSTEM = {"role": "system", "content": "Be brief."}
WORDS = " of many words" * 200


def doc(hook: str, kind: str, config: dict[str, Any] | None = None, **activation: Any) -> ContextManagement:
    rules = {"activation": activation} if activation else {}
    return ContextManagement.read({"hooks": {hook: [{"type": kind, "config": {**(config or {}), **rules}}]}})


async def opened(
    management: Any, workspace: Workspace | None = None, size: int = 128_000, **settings: Any
) -> tuple[ContextWindow, list[str]]:
    lines = list[str]()

    def note(event: Event) -> None:
        if isinstance(event, ContextManaged):
            lines.extend(event.lines)

    workspace = workspace or MemoryWorkspace()
    window = await ContextWindow.open(workspace, "s1", size=size, management=management, on_event=note, **settings)
    return window, lines


async def prepared(management: Any, messages: Sequence[Any], **settings: Any) -> tuple[list[Any], list[str]]:
    """Return what is said in the list that is handed out, and what the managers said."""
    window, lines = await opened(management, **settings)
    await window.extend(messages)
    handed = await window.prepare()
    check_valid(handed)
    return spoken(handed), lines


def spoken(handed: Sequence[Any]) -> list[Any]:
    """Return what is handed out without system messages, and without what stands for others."""
    ours = re.compile(r"(?s)(\[Message \d+ of the user:\].*)?\[(Messages before number|Summary of messages) ")
    return [one for one in handed if one["role"] != "system" and not ours.match(str(one["content"]))]


def talk(count: int, words: str = WORDS) -> list[dict[str, Any]]:
    """Return *count* messages of a user and an assistant in turn, the user's last."""
    says = [user, said] if count % 2 else [said, user]
    return [says[number % 2](f"message {number}{words}") for number in range(count)]


# What the page promises.


async def test_a_sliding_window_keeps_6_messages_once_there_are_more_than_12() -> None:
    management = doc("pre_llm", "SlidingWindowManager", {"max_messages": 6}, message_count_exceed=12)
    kept, lines = await prepared(management, talk(12))
    assert kept == talk(12)
    assert lines == ["pre_llm[0] SlidingWindowManager: not run: 12 messages, not more than 12"]
    kept, lines = await prepared(management, [SYSTEM, *talk(13)])
    assert kept == talk(13)[-6:]
    assert lines == ["pre_llm[0] SlidingWindowManager: 6 of 13 messages stay"]


async def test_what_slides_out_is_in_the_transcript_and_a_line_says_where() -> None:
    workspace = MemoryWorkspace()
    window, _ = await opened(doc("pre_llm", "SlidingWindowManager", {"max_messages": 4}), workspace)
    await window.extend([SYSTEM, *talk(11)])
    handed = await window.prepare()
    assert handed[0] == SYSTEM
    assert handed[1]["content"].startswith("[Messages before number 8 are no longer in the context.")
    (path,) = re.findall(r"memory:///(\S*transcript\.md)", handed[1]["content"])
    transcript = workspace.disk.read(path).decode()
    assert all(f"message {number} of many" in transcript for number in range(7))
    assert handed[2:] == talk(11)[-4:]
    assert (await ContextWindow.open(workspace, "s1")).messages == handed
    assert (await window.follow(handed)).added == 0


async def test_a_summary_takes_the_place_of_30_percent_above_the_tokens_and_the_10_newest_are_preserved() -> None:
    config = {"summary_ratio": 0.3, "preserve_recent_messages": 10}
    messages = [user(f"message {number}: " + "word " * 120) for number in range(20)]
    kept, _ = await prepared(doc("pre_llm", "SummarizationManager", config, tokens_exceed=2_000), [SYSTEM, *messages])
    assert kept == messages[6:]


@pytest.mark.parametrize(
    ("count", "summarized"), [(9, 0), (10, 0), (11, 1), (12, 2), (13, 3), (14, 4), (15, 4), (20, 6), (30, 9), (100, 30)]
)
async def test_so_many_messages_are_summarized_as_the_documented_defaults_give(count: int, summarized: int) -> None:
    kept, _ = await prepared(doc("pre_llm", "SummarizationManager"), talk(count))
    assert kept == talk(count)[summarized:]


async def test_managers_of_a_hook_run_in_the_order_of_the_document_each_on_what_is_left() -> None:
    entries = [{"type": "SlidingWindowManager", "config": {"max_messages": most}} for most in (20, 4)]
    kept, lines = await prepared({"hooks": {"pre_llm": entries}}, talk(30))
    assert kept == talk(30)[-4:]
    assert [line.partition(": ")[2] for line in lines] == ["20 of 30 messages stay", "4 of 20 messages stay"]


async def test_the_pages_first_document_cuts_each_output_to_100_000_characters_and_keeps_the_whole() -> None:
    workspace = MemoryWorkspace()
    management = doc("post_tool", "ToolsOutputTruncateManager", {"max_output_length": 100_000})
    output = "".join(f"line {number}\n" for number in range(20_000))
    messages = [user("?"), calling("c"), result("c", output)]
    kept, _ = await prepared(management, messages, workspace=workspace, size=1_000_000)
    shown = kept[-1]["content"]
    assert len(shown) <= 100_000
    assert shown.startswith(output[:99_000])
    assert workspace.disk.read(shown.rpartition("memory:///")[2].rstrip("]")).decode() == output


async def test_tokens_exceed_counts_the_output_that_has_just_come_system_prompt_and_tools() -> None:
    management = doc("post_tool", "ToolsOutputTruncateManager", {"max_output_length": 40_000}, tokens_exceed=100_000)
    kept, _ = await prepared(management, [calling("c"), result("c", "y" * 1_000_000)], size=400_000)
    assert len(kept[-1]["content"]) == 40_000
    management = doc("pre_llm", "SlidingWindowManager", {"max_messages": 1}, tokens_exceed=500)
    for beside in ({"system": "word " * 500}, {"tools": [{"name": "t", "description": "word " * 500}]}, {}):
        kept, _ = await prepared(management, talk(5, ""), **beside)
        assert len(kept) == (1 if beside else 5)


async def test_the_execution_names_a_document_that_overrides_the_registered_one() -> None:
    workspace = MemoryWorkspace()
    put(doc("pre_llm", "SlidingWindowManager", {"max_messages": 6}), workspace, "customer-service-context")
    registered = {"name": "agent", "type": "conversational", "context_management_name": "customer-service-context"}
    window, _ = await opened(registered, workspace)
    await window.extend(talk(15))
    assert len(await window.prepare({"hooks": {}})) == 15
    assert len(spoken(await window.prepare())) == 6
    again = await ContextWindow.open(workspace, "s1")
    await again.extend(talk(15))
    assert len(spoken(await again.prepare())) == 6, "the document is one of the settings"


async def test_a_summary_is_written_by_the_model_and_the_prompt_that_the_document_names() -> None:
    seen: list[SummaryRequest] = []

    async def summarize(request: SummaryRequest) -> str:
        seen.append(request)
        return "They looked at the chart."

    messages = [user("look" + WORDS), calling("c"), result("c", "depth 9"), *talk(9)]
    config = {
        "preserve_recent_messages": 8,
        "summarization_model_id": "small",
        "summarization_system_prompt": "In one sentence.",
    }
    management = doc("pre_llm", "SummarizationManager", config)
    await prepared(management, messages, summarizers={"small": summarize})
    assert [source.message.role for source in seen[0].sources] == ["user", "assistant", "tool"]
    assert seen[0].prompt == "In one sentence."
    _, lines = await prepared(management, messages)
    assert lines[0].endswith("no summarizer is named 'small'")


class Last10Messages:
    """Keeps the last ten messages, as the example of a page does."""

    def __init__(self, keep: int = 10) -> None:
        self.keep = keep

    def reduce(self, messages: list[Any], *, error: BaseException | None = None) -> bool:
        if len(messages) <= self.keep:
            return False
        del messages[: -self.keep]
        return True


async def test_a_manager_of_ones_own_keeps_the_last_ten_and_parts_no_pair() -> None:
    register_manager("Last10Messages", Last10Messages)
    management = ContextManagement.read({"type": "Last10Messages"})
    assert (await prepared(management, talk(13)))[0] == talk(13)[-10:]
    messages = [SYSTEM, user("first"), user("now"), calling("a", "b"), result("a", "1"), result("b", "2")]
    kept, _ = await prepared(ContextManagement.read({"type": "Last10Messages", "config": {"keep": 1}}), messages)
    assert kept == messages[3:]
    with pytest.raises((ConfigError, TypeError)):
        await prepared({"type": "Last10Messages", "config": {"x": 1}}, talk(13))


# What goes wrong elsewhere.


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6])
async def test_a_tool_loop_keeps_its_newest_pair_and_the_users_words_are_quoted(limit: int) -> None:
    pairs = [message for n in range(5) for message in (calling(f"c{n}"), result(f"c{n}", f"result {n}"))]
    window, _ = await opened(doc("pre_llm", "SlidingWindowManager", {"max_messages": limit}))
    await window.extend([user("Go on until it works."), *pairs])
    handed = await window.prepare()
    check_valid(handed)
    assert handed[0]["content"].startswith("[Message 0 of the user:]\nGo on until it works.")
    assert handed[-2:] == pairs[-2:]
    assert len(handed) == 1 + max(2, limit - limit % 2)
    await window.add(user("Well done."))
    assert "Go on until" not in str((await window.prepare())[0]) or limit > 2


async def test_an_output_that_was_cut_stays_so_and_another_manager_may_mask_it() -> None:
    workspace = MemoryWorkspace()
    entries = [
        {"type": "ToolsOutputTruncateManager", "config": {"max_output_length": 900}},
        {"type": "ToolResultMaskManager", "config": {"keep_recent_results": 1, "min_tokens": 50}},
    ]
    window, _ = await opened({"hooks": {"pre_llm": entries}}, workspace)
    for number in range(3):
        await window.extend([calling(f"c{number}"), result(f"c{number}", f"{number} word\n" * 900)])
        handed = await window.prepare()
        assert len(handed[-1]["content"]) == 900
        assert "in memory:///sessions/s1/tool_result-c" in handed[-1]["content"]
    assert all(line["content"].startswith("[Older tool result: 900") for line in handed[1:-1:2])
    assert (await ContextWindow.open(workspace, "s1")).messages == handed
    assert workspace.disk.read("sessions/s1/tool_result-c0.txt").decode() == "0 word\n" * 900


async def test_results_that_are_fewer_than_those_to_keep_are_not_masked() -> None:
    document = doc("pre_llm", "ToolResultMaskManager", {"keep_recent_results": 5, "min_tokens": 50})
    turns = [(calling(f"c{n}"), result(f"c{n}", f"row {n}\n" * 100)) for n in range(3)]
    messages = [user("go"), *(one for turn in turns for one in turn), said("done"), user("more")]
    handed, lines = await prepared(document, messages)
    assert handed == messages
    assert lines == ["pre_llm[0] ToolResultMaskManager: 0 of 3 tool results are old and large enough"]


@pytest.mark.parametrize("limit", [1, 5, 13, 40, 90, 150, 300])
async def test_an_output_is_no_longer_than_it_may_be_notice_included(limit: int) -> None:
    management = doc("post_tool", "ToolsOutputTruncateManager", {"max_output_length": limit})
    kept, _ = await prepared(management, [calling("c"), result("c", "x" * 400)])
    assert 0 < len(kept[-1]["content"]) <= limit


async def test_beside_a_document_neither_limits_nor_trigger_hold_but_the_size_of_the_window_does() -> None:
    window, _ = await opened(doc("pre_llm", "SlidingWindowManager", {"max_messages": 100}), size=20_000)
    output = " word" * 8_000
    for number in range(2):
        await window.extend([user("?"), calling(f"c{number}"), result(f"c{number}", output)])
    handed = await window.prepare()
    assert [message["content"] for message in handed if message["role"] == "tool"] == [output, output]
    assert window.tokens > 0.8 * 20_000
    await window.extend([user("?"), calling("c2"), result("c2", output)])
    await window.prepare()
    assert window.tokens <= 20_000


async def test_a_document_that_is_damaged_is_refused_with_its_name(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path)
    put(doc("pre_llm", "SlidingWindowManager"), workspace, "mine")
    (tmp_path / "context_management/mine.json").write_text('{"hooks": ')
    with pytest.raises(DocumentError, match="mine: not JSON"):
        await opened("mine", workspace)


# The page's documents on recorded sessions.

LONG = "cc_entire_25-730c662552-0"  # 245,647 tokens
LARGE = "cc_entire_ad-ff0201aecb-0"  # three outputs of more than 40,000 characters
PLAIN = "tau_airline_task16_trial3"


async def through(window: ContextWindow, conversation: Sequence[Any], every: int) -> list[Any]:
    """Feed a conversation, with a model call before every so many of the answers, and one at the end."""
    answers = 0
    for message in conversation:
        answers += message["role"] == "assistant"
        if message["role"] == "assistant" and answers % every == 0:
            await window.prepare()
        await window.add(message)
    return await window.prepare()


@pytest.mark.parametrize(
    ("name", "rules", "most"),
    [
        (LONG, {"tokens_exceed": 200_000}, 1_000),
        (PLAIN, {"message_count_exceed": 12}, 12),
        (PLAIN, {"rule_type": "always"}, 6),
        (PLAIN, {"message_count_exceed": 15, "tokens_exceed": 200_000}, 99),
    ],
)
async def test_the_pages_sliding_windows_hold_in_recorded_sessions(
    shared_data: Path, name: str, rules: dict[str, Any], most: int
) -> None:
    conversation = recording(shared_data / "sessions" / f"{name}.jsonl")
    window, lines = await opened(doc("pre_llm", "SlidingWindowManager", {"max_messages": 6}, **rules), size=1_000_000)
    handed = await through(window, conversation, every=20)
    ran = [line for line in lines if "not run" not in line]
    assert bool(ran) == (most != 99)
    assert len(spoken(handed)) <= most
    if name == LONG:
        assert len([line for line in ran if "messages stay" in line and "not more" not in line]) == 1


async def test_the_pages_truncation_cuts_to_40_000_characters_above_150_000_tokens(shared_data: Path) -> None:
    conversation = recording(shared_data / "sessions" / f"{LARGE}.jsonl")
    rules = {"tokens_exceed": 150_000}
    management = doc("post_tool", "ToolsOutputTruncateManager", {"max_output_length": 40_000}, **rules)
    window, lines = await opened(management, size=1_000_000)
    handed = await through(window, conversation, every=20)
    answers = [str(message["content"]) for message in handed if message["role"] == "tool"]
    shown = [len(text) for text in answers if not text.startswith("[interrupted")]
    outputs = [len(str(message["content"])) for message in conversation if message["role"] == "tool"]
    assert any("not run" in line for line in lines)
    assert shown == [min(chars, 40_000) for chars in outputs]
    assert max(outputs) > 40_000


async def test_the_pages_summary_takes_30_percent_above_200_000_tokens_and_names_the_model_that_is_missing(
    shared_data: Path,
) -> None:
    conversation = recording(shared_data / "sessions" / f"{LONG}.jsonl")
    config = {
        "summary_ratio": 0.3,
        "preserve_recent_messages": 10,
        "summarization_model_id": "<your-summarization-model-id>",
    }
    window, lines = await opened(doc("pre_llm", "SummarizationManager", config, tokens_exceed=200_000), size=1_000_000)
    handed = await through(window, conversation, every=1_000)
    assert lines[-1].endswith("no summarizer is named '<your-summarization-model-id>'")
    assert handed[0]["content"].startswith("[Summary of messages 0-")
    assert handed[-10:] == conversation[-10:]
    left = len(conversation) - len(spoken(handed))
    assert 0.3 * len(conversation) - 1 <= left <= 0.3 * len(conversation) + 6, "a few more if calls run in parallel"


async def test_the_pages_first_document_cuts_a_real_output_to_100_000_characters_and_keeps_the_whole(
    shared_data: Path, tmp_path: Path
) -> None:
    page = (shared_data / "tool_outputs" / "html" / "wikia.html").read_text("utf-8")
    management = doc("post_tool", "ToolsOutputTruncateManager", {"max_output_length": 100_000})
    messages = [user("?"), calling("c"), result("c", page)]
    kept, _ = await prepared(management, messages, workspace=LocalWorkspace(tmp_path), size=1_000_000)
    shown = kept[-1]["content"]
    assert len(shown) <= 100_000
    assert page.startswith(shown[:99_000])
    assert (tmp_path / "sessions/s1/tool_result-c.txt").read_text("utf-8") == page
