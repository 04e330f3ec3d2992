"""Recorded sessions under documents: the presets, with all that must hold at every step, and the page's own.

``python tests/test_recorded_management.py FOLDER`` replays all recordings in a folder under every preset.
"""

import asyncio
import json
import random
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from replay_checker import STORED, Checker, Counts, Raw, outcome, pairs, text_of
from test_recorded_sessions import STOPS, Run, differing, recording

from buoyline import ContextConfig, ContextWindow, LocalWorkspace
from buoyline.management import Registry
from buoyline.management.registry import BUILT_IN
from buoyline.window.events import ContextManaged, Event, ResultOffloaded

SIZES = (8_000, 32_000, 128_000)

SAMPLE = (
    ("tool-heavy", "cc_entire_02-1a892a9da1-0", 8_000),
    ("long-conversations", "tau_airline_task02_trial1", 8_000),  # ids that repeat
    ("tool-heavy-with-summarization", "cc_entire_86-4e0c91f5c0-0", 32_000),
)
"""Preset, session and window of what `make test` replays; `make test-slow` replays everything."""

NOTICE = "[Messages before number "
RESULT_PATH = re.compile(r"(/[^\s\]\[]*/tool_result-[^\s\]\[/]*?)(?:\.view)?\.txt")


@dataclass
class ManagedChecker(Checker):
    """Follows a window under a document: messages may leave without a summary, and results at any time.

    Attributes:
        events: What the window told since the last step.
    """

    events: list[Event] = field(default_factory=list[Event])

    def step(self, handed: Sequence[Raw], tokens: int, exceeding: Sequence[tuple[int, int]]) -> list[bytes]:
        told = [event for event in self.events if isinstance(event, ContextManaged | ResultOffloaded)]
        if any(isinstance(event, ResultOffloaded) or event.report.is_reduced for event in told):
            self.shown = []
        self.events.clear()
        return super().step(handed, tokens, exceeding)

    def _check_summaries(self, before: int) -> None:
        """Summaries tell nothing twice, and nothing that is not archived."""
        for line in self._grown("summaries.jsonl").read():
            summary = json.loads(line)
            self.counts.compressions += 1
            first, end = summary["messages"]
            assert self.told <= first < end <= self.archived
            self.told = end
            assert summary["unverified"] == []
            self._check_budget(summary)
            for pointer in summary["pointers"]:
                self._check_pointer(pointer["path"], pointer["start"], pointer["end"])

    told: int = 0

    def _check_order(self, handed: Sequence[Raw]) -> None:
        """Before the messages stand archived ones in order, the newest summary, and a notice."""
        kept = len(self.fed) - self.archived
        head, messages = handed[: len(handed) - kept], handed[len(handed) - kept :]
        for position, message in enumerate(messages, self.archived):
            self._check_same(message, position)
        again = set(self._archived_in(head))
        assert {at for at in range(self.archived) if self.fed[at]["role"] == "system"} <= again
        newest = max((at for at, message in enumerate(self.fed) if message["role"] == "user"), default=self.archived)
        assert newest >= self.archived or newest in again, "the user's newest words are gone"
        assert self._orphans(handed) <= self._orphans(self.fed) + len(self._parted), "a result stands without its call"

    def _archived_in(self, head: Sequence[Raw]) -> Iterator[int]:
        """Yield the positions of the archived messages in *head*, each as it was fed, or with a stub.

        Of several that are the same, the newest is meant.
        """
        summaries = self._grown("summaries.jsonl").lines
        summary = json.loads(summaries[-1])["text"] if summaries else None
        used = set[int]()
        for message in reversed(head):
            content = message.get("content")
            if message["role"] == "user" and (content == summary or str(content).startswith(NOTICE)):
                continue
            position = next(
                at for at in reversed(range(self.archived)) if at not in used and self._is_same(message, at)
            )
            used.add(position)
            yield position

    def _is_same(self, found: Raw, position: int) -> bool:
        try:
            self._check_same(found, position)
        except (AssertionError, IndexError, KeyError):
            return False
        return True

    def _orphans(self, messages: Sequence[Raw]) -> int:
        return sum(1 for message in messages if message["role"] == "tool") - sum(1 for _ in pairs(messages))

    def _check_same(self, found: Raw, position: int) -> None:
        expected = self.fed[position]
        if found == expected or "[image: " in json.dumps(found):
            return
        if STORED.search(json.dumps(found)):
            assert self._with_hashes(found) == self._with_hashes(expected)
            return
        assert expected["role"] == "tool", f"message {position} was changed"
        assert {**found, "content": None} == {**expected, "content": None}
        shown, whole = text_of(found), text_of(expected)
        paths = [Path(f"{found_path}.txt") for found_path in RESULT_PATH.findall(shown)]
        # What came back from a lookup may name files, too; one of those named is the result itself.
        contents = [path.read_bytes() for path in paths if path.exists()]
        assert whole.encode("utf-8", "surrogatepass") in contents, "not every byte of a result was kept"
        assert len(shown) < len(whole)
        self.counts.stubs += 1

    def _check_tokens(
        self, handed: Sequence[Raw], shown: Sequence[bytes], tokens: int, exceeding: Sequence[tuple[int, int]]
    ) -> None:
        each = [self._count(message, spelled) for message, spelled in zip(handed, shown, strict=True)]
        assert sum(each) == tokens
        assert (tokens <= self.size) == (not exceeding)
        if exceeding:
            self.counts.exceeding_steps += 1
            head = len(each) - (len(self.fed) - self.archived)
            assert max(each) > self.size - sum(each[:head]), "over the limit, and no message is to blame"


async def check_session(preset: str, path: Path, folder: Path, size: int, counts: Counts) -> None:
    """Replay a recording under a preset twice, the second time with stops, in the same place."""
    conversation, chance = recording(path), random.Random(f"{path.stem} {size}")  # noqa: S311 - repeatable
    workdir = folder / "w"
    saves = frozenset(position for position in range(len(conversation)) if chance.random() < STOPS)
    checker = ManagedChecker(workdir, size, ContextConfig().summary_limit(size), counts)
    options = {"management": preset, "on_event": checker.events.append}
    whole = Run(conversation, workdir, size, saves, checker=checker, options=options)
    await whole.go()
    left = outcome(checker.directory)
    workdir.rename(folder / "aside")
    parts = Run(conversation, workdir, size, saves, stops=chance, options={"management": preset})
    await parts.go()
    for step, (one, other) in enumerate(zip(whole.handed, parts.handed, strict=True)):
        assert differing(one, other) == [], f"step {step} differs after a resume"
    assert differing(outcome(checker.directory), left) == []
    counts.sessions += 1
    counts.resumes += parts.resumes


def check(preset: str, path: Path, folder: Path, size: int, counts: Counts) -> None:
    try:
        asyncio.run(check_session(preset, path, folder, size, counts))
    except Exception as error:
        error.add_note(f"in {path.stem} under {preset}, at {size:,} tokens")
        raise


@pytest.mark.parametrize(("preset", "name", "size"), SAMPLE)
def test_all_that_must_hold_holds_at_every_step_under_a_preset(
    shared_data: Path, tmp_path: Path, preset: str, name: str, size: int
) -> None:
    counts = Counts()
    check(preset, shared_data / "sessions" / f"{name}.jsonl", tmp_path, size, counts)
    assert counts.resumes
    assert counts.exceeding_steps == 0


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("preset", BUILT_IN)
def test_all_that_must_hold_holds_in_every_recorded_session_under_every_preset(
    shared_data: Path, tmp_path: Path, preset: str, size: int
) -> None:
    counts = Counts()
    for path in sorted((shared_data / "sessions").glob("*.jsonl")):
        (tmp_path / path.stem).mkdir()
        check(preset, path, tmp_path / path.stem, size, counts)
    assert counts.resumes > counts.sessions


# The exact documents of OpenSearch's page, on recorded sessions

FIRST = {
    "description": "Context management that truncates tool outputs longer than 100,000 characters and applies sliding "
    "window to keep last 6 messages when tokens exceed 200,000",
    "hooks": {
        "post_tool": [{"type": "ToolsOutputTruncateManager", "config": {"max_output_length": 100000}}],
        "pre_llm": [
            {"type": "SlidingWindowManager", "config": {"max_messages": 6, "activation": {"tokens_exceed": 200000}}}
        ],
    },
}
SLIDING = {
    "type": "SlidingWindowManager",
    "config": {"max_messages": 6, "activation": {"message_count_exceed": 12}},
}
SUMMARISING = {
    "type": "SummarizationManager",
    "config": {
        "summary_ratio": 0.3,
        "preserve_recent_messages": 10,
        "summarization_model_id": "<your-summarization-model-id>",
        "activation": {"tokens_exceed": 200000},
    },
}
TRUNCATING = {
    "type": "ToolsOutputTruncateManager",
    "config": {"max_output_length": 40000, "activation": {"tokens_exceed": 150000}},
}
ALWAYS = {"activation": {"rule_type": "always"}}
COUNTED = {"activation": {"message_count_exceed": 20}}
WEIGHED = {"activation": {"tokens_exceed": 200000}}
BOTH = {"activation": {"message_count_exceed": 15, "tokens_exceed": 200000}}
REGISTERED = {
    "name": "customer-service-agent",
    "type": "conversational",
    "llm": {"model_id": "your-llm-model-id"},
    "context_management_name": "customer-service-context",
}
EXECUTED = {
    "parameters": {"question": "How can I help you today?"},
    "context_management_name": "customer-service-context",
}

LONG = "cc_entire_25-730c662552-0"  # 245,647 tokens
LOUD = "cc_entire_ad-ff0201aecb-0"  # three outputs of more than 40,000 characters
PLAIN = "tau_airline_task16_trial3"


def recorded(shared_data: Path, name: str) -> list[Raw]:
    return recording(shared_data / "sessions" / f"{name}.jsonl")


def large_window(workdir: Path, management: Any, events: list[Event] | None = None) -> ContextWindow:
    workspace = LocalWorkspace(workdir, durability="off")
    on_event = None if events is None else events.append
    return ContextWindow(session_id="s1", offloader=workspace, size=1_000_000, management=management, on_event=on_event)


async def through(window: ContextWindow, messages: Sequence[Raw], every: int = 1) -> list[Raw]:
    """Feed *messages*, with a model call before every so many of the answers, and one at the end."""
    answers = 0
    for message in messages:
        answers += message["role"] == "assistant"
        if message["role"] == "assistant" and answers % every == 0:
            await window.prepare()
        await window.add(message)
    return await window.prepare()


def spoken(handed: Sequence[Raw]) -> list[Raw]:
    """Return what is handed out without system messages, and without what stands for others."""
    ours = (NOTICE, "[Summary of messages ")
    return [m for m in handed if m["role"] != "system" and not str(m.get("content")).startswith(ours)]


async def test_the_pages_first_document_slides_above_200_000_tokens_of_a_real_session(
    shared_data: Path, tmp_path: Path
) -> None:
    conversation, events = recorded(shared_data, LONG), list[Event]()
    window = large_window(tmp_path, FIRST, events)
    await through(window, conversation, every=20)
    ran = [one for event in events if isinstance(event, ContextManaged) for one in event.report.entries]
    slid = [one for one in ran if one.type_name == "SlidingWindowManager" and one.is_active]
    idle = [one for one in ran if one.type_name == "SlidingWindowManager" and not one.is_active]
    assert len(slid) == 1
    assert slid[0].tokens[0] > 200_000 > max(one.tokens[1] for one in idle)
    assert slid[0].messages[1] <= 6
    assert {one.hook for one in ran} == {"pre_llm", "post_tool"}


async def test_the_pages_first_document_cuts_a_real_output_to_100_000_characters_and_keeps_the_whole(
    shared_data: Path, tmp_path: Path
) -> None:
    page = (shared_data / "tool_outputs" / "html" / "wikia.html").read_text("utf-8")
    conversation = recorded(shared_data, PLAIN)
    place = next(at for at, message in enumerate(conversation) if message["role"] == "tool")
    conversation[place] = {**conversation[place], "content": page}
    handed = await through(large_window(tmp_path, FIRST), conversation[: place + 1])
    shown = handed[-1]["content"]
    assert len(shown) <= 100_000
    assert page.startswith(shown[:99_000])
    (path,) = RESULT_PATH.findall(shown)
    assert Path(f"{path}.txt").read_text("utf-8") == page


async def test_the_pages_sliding_window_keeps_6_of_more_than_12_real_messages(
    shared_data: Path, tmp_path: Path
) -> None:
    conversation, most = recorded(shared_data, PLAIN), 0
    window = large_window(tmp_path, SLIDING)
    for message in conversation:
        if message["role"] == "assistant":
            handed = spoken(await window.prepare())
            slid = window.report.entries[0]
            assert len(handed) <= (6 if slid.is_active else 12)
            assert slid.is_active == (slid.reason.startswith("13 messages") or slid.reason.startswith("14 messages"))
            most = max(most, len(handed))
        await window.add(message)
    assert most > 6


async def test_the_pages_summary_takes_30_percent_above_200_000_tokens_and_names_the_model_that_is_missing(
    shared_data: Path, tmp_path: Path
) -> None:
    conversation = recorded(shared_data, LONG)
    window = large_window(tmp_path, SUMMARISING)
    handed = await through(window, conversation, every=1_000)
    (ran,) = window.report.entries
    assert ran.tokens[0] > 200_000
    assert ran.problems == ("no summariser is named '<your-summarization-model-id>'",)
    assert handed[0]["content"].startswith("[Summary of messages 0-")
    assert handed[-10:] == conversation[-10:]
    left = len(conversation) - len(spoken(handed))
    assert 0.3 * len(conversation) - 1 <= left <= 0.3 * len(conversation) + 6, "a few more where calls run in parallel"


async def test_the_pages_truncation_cuts_to_40_000_characters_above_150_000_tokens(
    shared_data: Path, tmp_path: Path
) -> None:
    conversation, events = recorded(shared_data, LOUD), list[Event]()
    window = large_window(tmp_path, TRUNCATING, events)
    handed = await through(window, conversation, every=20)
    ran = [one for event in events if isinstance(event, ContextManaged) for one in event.report.entries]
    assert {one.hook for one in ran} == {"post_tool"}
    assert all(one.tokens[0] <= 150_000 for one in ran if not one.is_active)
    outputs = [len(text_of(message)) for message in conversation if message["role"] == "tool"]
    shown = [len(text_of(message)) for message in handed if message["role"] == "tool"]
    assert shown == [min(chars, 40_000) for chars in outputs]
    assert max(outputs) > 40_000


@pytest.mark.parametrize(
    ("fragment", "fires"), [(ALWAYS, True), (COUNTED, True), (WEIGHED, False), (BOTH, False)], ids=str
)
async def test_the_pages_rules_are_met_by_a_real_session_or_not(
    shared_data: Path, tmp_path: Path, fragment: dict[str, Any], *, fires: bool
) -> None:
    management = {"type": "SlidingWindowManager", "config": {"max_messages": 6}, **fragment}
    conversation = recorded(shared_data, PLAIN)
    handed = await through(large_window(tmp_path, management), conversation, every=1_000)
    assert (len(spoken(handed)) <= 6) == fires
    assert fires or handed == conversation


async def test_the_pages_bodies_find_their_document_and_the_execution_overrides(
    shared_data: Path, tmp_path: Path
) -> None:
    registry = Registry(LocalWorkspace(tmp_path))
    registry.put(SLIDING, "customer-service-context")
    conversation = recorded(shared_data, PLAIN)
    window = large_window(tmp_path, {"hooks": {}})
    await through(window, conversation, every=1_000)
    assert len(spoken(window.messages)) > 12
    assert len(spoken(await window.prepare(EXECUTED))) <= 6
    assert large_window(tmp_path, REGISTERED).management == registry.get("customer-service-context")


if __name__ == "__main__":
    found = Counts()
    for session in sorted(Path(sys.argv[1]).glob("*.jsonl")):
        for name in BUILT_IN:
            for tokens in SIZES:
                with tempfile.TemporaryDirectory() as directory:
                    check(name, session, Path(directory), tokens, found)
    sys.stdout.write(f"{found}\n")
