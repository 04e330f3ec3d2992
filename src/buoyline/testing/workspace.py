"""Tests that every workspace must pass.

```python
class TestBucketWorkspace(WorkspaceConformance):
    @pytest.fixture
    def workspace(self) -> BucketWorkspace:
        return BucketWorkspace(...)

    def peek(self, workspace: BucketWorkspace, reference: str) -> str:
        return bucket.read(reference)
```

A workspace is an `Offloader` with abilities; run `OffloaderConformance` on it, too.
"""

import asyncio
import contextlib
import itertools
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, Final, TypeVar

from buoyline.compression import ContextConfig
from buoyline.errors import NotFoundError, StaleWindowError
from buoyline.messages import Media, Text, ToolResult
from buoyline.offloader import ContextArchive, Offloader, ResultStore, SummaryLog, TranscriptReader, WindowLog
from buoyline.offloader.protocol import abilities_of
from buoyline.testing.conversation import (
    HOSTILE_IDS,
    HOSTILE_TEXTS,
    LONE_SURROGATES,
    agentscope_messages,
    anthropic_messages,
    contents,
    long_conversation,
    openai_messages,
    result,
    result_of_all_kinds,
    said,
)
from buoyline.window import ContextWindow, Event, ResultOffloaded

_TASKS = 50
_THREADS = 8
_CALLS = 10

_ALL: Final = (0, 1 << 30)  # messages

T = TypeVar("T")


class WorkspaceConformance(ABC):
    """Inherit it in a test class with a fixture ``workspace`` that returns a new one for each test.

    A test is skipped if the workspace lacks the ability that it needs. The tests are asynchronous; pytest-asyncio runs
    them in its mode ``auto``.
    """

    @abstractmethod
    def peek(self, workspace: Any, reference: str) -> str:
        """Return the text stored under *reference* without the workspace itself.

        So a mistake in writing cannot hide behind the same mistake in reading. Decode bytes with
        ``"utf-8", "surrogatepass"``, so that half a character comes back, too.
        """

    async def test_messages_of_each_dialect_come_back_equal_and_in_order(self, workspace: Offloader) -> None:
        """With their images and the order of their keys; the caller's messages are not changed."""
        archive = _archive_of(workspace)
        makers = {"openai": openai_messages, "anthropic": anthropic_messages, "agentscope": agentscope_messages}
        for session_id, (dialect, make) in zip("abc", makers.items(), strict=True):
            messages = make()
            await archive.archive(session_id, messages[:2], dialect=dialect)
            await archive.archive(session_id, messages[2:], dialect=dialect)
            assert messages == make()
            found = await archive.load_messages(session_id, *_ALL)
            assert found == [(dialect, message) for message in make()]
            assert [list(message) for _, message in found] == [list(message) for message in make()]

    async def test_hostile_texts_come_back_equal_from_the_archive(self, workspace: Offloader) -> None:
        """Separators of every kind, control characters, and half a character."""
        archive = _archive_of(workspace)
        messages = [said(text) for text in (*HOSTILE_TEXTS, LONE_SURROGATES)]
        for message in messages:
            await archive.archive("s", [message])
        assert await _loaded(archive, "s") == messages

    async def test_the_same_batch_id_is_the_same_batch_at_any_time(self, workspace: Offloader) -> None:
        """A retry may come late; it gets the first answer."""
        archive = _archive_of(workspace)
        first = await archive.archive("s", openai_messages(), batch_id="one")
        await archive.archive("s", [said("c")], batch_id="two")
        assert await archive.archive("s", openai_messages(), batch_id="one") == first
        assert await _loaded(archive, "s") == [*openai_messages(), said("c")]

    async def test_line_ranges_lead_to_the_lines_of_each_message(self, workspace: Offloader) -> None:
        """They follow each other without a gap, and `locate` repeats the answer of `archive`."""
        archive = _archive_of(workspace)
        messages = [said(f"needle-{number}-\n" + "line\n" * number) for number in range(6)]
        batches = [await archive.archive("s", messages[start : start + 2]) for start in (0, 2, 4)]
        located = await archive.locate("s", 0, 6)
        assert [batch.first for batch in batches] == [0, 2, 4]
        assert tuple(lines for batch in batches for lines in batch.lines) == located.lines
        text = self.peek(workspace, located.transcript).split("\n")
        expected_start = 1
        for number, (start, end) in enumerate(located.lines):
            assert start == expected_start <= end
            assert f"needle-{number}-" in "\n".join(text[start - 1 : end])
            expected_start = end + 1
        assert (await archive.locate("s", 1, 4)).lines == located.lines[1:4]

    async def test_a_transcript_shows_the_lines_of_each_message(self, workspace: Offloader) -> None:
        """The lines in its line ranges, across batches."""
        archive, reader = _archive_of(workspace), _transcript_of(workspace)
        for start in (0, 2, 4):
            await archive.archive("s", [said(f"needle-{number}-\n\u2028\n") for number in (start, start + 1)])
        located = await archive.locate("s", 1, 5)
        text = self.peek(workspace, located.transcript).split("\n")
        shown = await reader.transcript_lines("s", 1, 5)
        assert [list(lines) for lines in shown] == [text[start - 1 : end] for start, end in located.lines]

    async def test_hostile_texts_come_back_equal_from_the_results(self, workspace: Offloader) -> None:
        """Each text to the last character, also half a character."""
        results = _results_of(workspace)
        for number, text in enumerate((*HOSTILE_TEXTS, LONE_SURROGATES)):
            stored = await results.store_result("s", result(f"call_{number}", text))
            assert self.peek(workspace, stored.reference) == text

    async def test_one_call_id_with_other_content_keeps_both_and_with_the_same_is_one(
        self, workspace: Offloader
    ) -> None:
        """Ids repeat in real sessions; in some, all are empty."""
        results = _results_of(workspace)
        for call_id in ("same", "", *HOSTILE_IDS[:3]):
            stored = [await results.store_result("s", result(call_id, text)) for text in ("one", "two", "one", "two")]
            assert stored[:2] == stored[2:]
            assert [self.peek(workspace, found.reference) for found in stored[:2]] == ["one", "two"]

    async def test_a_result_comes_back_with_every_kind_of_block(self, workspace: Offloader) -> None:
        """In the tool's order, with the bytes of its images and documents; its file has only text and JSON."""
        results, whole = _results_of(workspace), result_of_all_kinds("c")
        stored = await results.store_result("s", whole)
        found = await results.load_result("s", stored)
        assert found == whole
        assert contents(found) == contents(whole)
        assert self.peek(workspace, stored.reference) == whole.text
        assert await results.store_result("s", result_of_all_kinds("c")) == stored

    async def test_results_that_differ_in_their_media_alone_are_two(self, workspace: Offloader) -> None:
        """An id, even an empty one, may be repeated with another image, or with the same one."""
        results = _results_of(workspace)
        pictures = [ToolResult("", "", (Media("image", "image/png", 1, payload=content),)) for content in (b"1", b"2")]
        blocks = [ToolResult("", "", tuple(map(Text, texts))) for texts in (("a\n", "b"), ("a\nb",), ("a", "b"))]
        given = [*pictures, *blocks]
        stored = [await results.store_result("s", result) for result in (*given, *given)]
        assert stored[: len(given)] == stored[len(given) :]
        found = [contents(await results.load_result("s", one)) for one in stored[: len(given)]]
        assert found == [contents(result) for result in given]

    async def test_recorded_stubs_are_loaded_and_nothing_else(self, workspace: Offloader) -> None:
        """A resumed window learns which of its texts are stubs, and of which results."""
        results = _results_of(workspace)
        stored = [await results.store_result("s", result("same", text)) for text in ("one", "two")]
        for stub, of in zip(("stub 1", "stub 2"), stored, strict=True):
            await results.record_stub("s", stub, of)
        found = await results.load_stubs("s", ["stub 2", "stub 3", "one", "", "stub 1"])
        assert found == {"stub 1": stored[0], "stub 2": stored[1]}

    async def test_a_window_records_the_stubs_that_come_with_its_messages(self, workspace: Offloader) -> None:
        """A window passes the stub of its last result with the messages; one that is known already is no error."""
        results, windows = _results_of(workspace), _windows_of(workspace)
        await windows.start_window("s", {}, writer="w")
        stored = [await results.store_result("s", result("same", text)) for text in ("one", "two")]
        late = list(zip(("stub 1", "stub 2"), stored, strict=True))
        await windows.extend_window("s", [said("a")], [], stubs=late[:1], writer="w")
        await windows.replace_window("s", [said("b")], [], 0, [], stubs=late, writer="w")
        assert await results.load_stubs("s", ["stub 2", "stub 3", "stub 1"]) == dict(late)

    async def test_summaries_are_numbered_and_come_back_in_order(self, workspace: Offloader) -> None:
        """With any number and text of their own."""
        summaries = _summaries_of(workspace)
        texts = (*HOSTILE_TEXTS, LONE_SURROGATES)
        numbers = [await summaries.append_summary("s", {"n": 0, "text": text}) for text in texts]
        assert numbers == list(range(1, len(texts) + 1))
        assert await summaries.load_summaries("s") == [
            {"n": number, "text": text} for number, text in enumerate(texts, 1)
        ]

    async def test_a_window_comes_back_as_it_was_left(self, workspace: Offloader) -> None:
        """Images are stored within it, since its messages are not archived."""
        windows = _windows_of(workspace)
        await windows.start_window("s", {"size": 5, "config": {"a": [1, None]}}, writer="w")
        await windows.extend_window("s", openai_messages(), [1], writer="w")
        state = await windows.load_window("s")
        assert [message for _, message in state.messages] == openai_messages()
        assert (state.head, state.first, state.pins, state.archived) == ((), 0, (1,), 0)
        assert dict(state.settings) == {"size": 5, "config": {"a": [1, None]}}

        messages, dialects = [said("summary"), said("kept")], ["openai", "openai"]
        await windows.replace_window("s", messages, ["summary"], first=7, pins=[1, 7], dialects=dialects, writer="w")
        await windows.extend_window("s", [said("new")], [1, 7, 8], writer="w")
        state = await windows.load_window("s")
        assert [message for _, message in state.messages] == [*messages, said("new")]
        assert (state.head, state.first, state.pins) == (("summary",), 7, (1, 7, 8))
        assert dict(state.settings) == {"size": 5, "config": {"a": [1, None]}}

    async def test_who_claims_a_window_goes_on_alone(self, workspace: Offloader) -> None:
        """The earlier writer gets an error, and changes nothing."""
        windows = _windows_of(workspace)
        await windows.start_window("s", {}, writer="w")
        await windows.extend_window("s", [said("a")], [], writer="w")
        await windows.claim_window("s", writer="another")
        with _raises(StaleWindowError, "resume"):
            await windows.extend_window("s", [said("lost")], [], writer="w")
        with _raises(StaleWindowError, "resume"):
            await windows.replace_window("s", [said("lost")], ["summary"], first=1, pins=[], writer="w")
        await windows.extend_window("s", [said("b")], [], writer="another")
        state = await windows.load_window("s")
        assert [message for _, message in state.messages] == [said("a"), said("b")]

    async def test_what_is_not_there_is_not_found(self, workspace: Offloader) -> None:
        """An empty answer would make a mistyped id look like a session without messages."""
        archive = _archive_of(workspace)
        with _raises(NotFoundError):
            await archive.load_messages("nobody", *_ALL)
        with _raises(NotFoundError):
            await archive.locate("nobody", 0, 1)
        with _raises(NotFoundError):
            await archive.missing("nobody", ["a"])
        with _raises(NotFoundError):
            await _summaries_of(workspace).load_summaries("nobody")
        await archive.archive("s", [said("a")])
        for session_id in ("nobody", "s"):
            with _raises(NotFoundError):
                await _windows_of(workspace).load_window(session_id)
            with _raises(NotFoundError):
                await _windows_of(workspace).claim_window(session_id, writer="w")
        assert await _summaries_of(workspace).load_summaries("s") == []

    # Many users: sessions, tasks, threads, cancelled calls, and a whole window.

    async def test_hostile_session_ids_are_sessions_of_their_own(self, workspace: Offloader) -> None:
        """Ids that differ only in case or form, and ids that look like paths."""
        archive = _archive_of(workspace)
        for number, session_id in enumerate(HOSTILE_IDS):
            await archive.archive(session_id, [said(str(number))])
        for number, session_id in enumerate(HOSTILE_IDS):
            assert await _loaded(archive, session_id) == [said(str(number))], repr(session_id)

    async def test_hostile_call_ids_are_results_of_their_own(self, workspace: Offloader) -> None:
        """No such id reaches another's content."""
        results = _results_of(workspace)
        stored = [await results.store_result("s", result(call_id, f"of {call_id!r}")) for call_id in HOSTILE_IDS]
        for call_id, found in zip(HOSTILE_IDS, stored, strict=True):
            assert self.peek(workspace, found.reference) == f"of {call_id!r}"
        assert len({found.reference for found in stored}) == len(stored)

    async def test_nothing_of_one_session_is_seen_in_another(self, workspace: Offloader) -> None:
        """Even if ids and batch ids are the same."""
        archive, results = _archive_of(workspace), _results_of(workspace)
        for session_id in ("s1", "s2"):
            await _windows_of(workspace).start_window(session_id, {"of": session_id}, writer="w")
            await _windows_of(workspace).extend_window(session_id, [said(f"window of {session_id}")], [], writer="w")
            await archive.archive(session_id, [said(f"message of {session_id}")], batch_id="same")
            await _summaries_of(workspace).append_summary(session_id, {"text": session_id})
            stored = await results.store_result(session_id, result("same", f"result of {session_id}"))
            await results.record_stub(session_id, f"stub in {session_id}", stored)
        foreign = ["message of s2", "result of s2"]
        assert await _loaded(archive, "s1") == [said("message of s1")]
        assert await archive.missing("s1", foreign) == foreign
        assert await _summaries_of(workspace).load_summaries("s1") == [{"text": "s1", "n": 1}]
        state = await _windows_of(workspace).load_window("s1")
        assert ([message for _, message in state.messages], dict(state.settings)) == (
            [said("window of s1")],
            {"of": "s1"},
        )

    async def test_tasks_at_the_same_time_lose_nothing(self, workspace: Offloader) -> None:
        """Messages, results of one id, and summaries; each batch has its own lines."""
        archive, results, summaries = _archive_of(workspace), _results_of(workspace), _summaries_of(workspace)
        numbers = range(_TASKS)
        batches, stored, counted = await asyncio.gather(
            asyncio.gather(*(archive.archive("s", [said(f"m{n}"), said(f"n{n}")]) for n in numbers)),
            asyncio.gather(*(results.store_result("s", result("same", f"r{n}")) for n in numbers)),
            asyncio.gather(*(summaries.append_summary("s", {"text": str(n)}) for n in numbers)),
        )
        messages = [message["content"] for message in await _loaded(archive, "s")]
        for number, batch in zip(numbers, batches, strict=True):
            assert messages[batch.first : batch.first + 2] == [f"m{number}", f"n{number}"]
        lines = sorted(lines for batch in batches for lines in batch.lines)
        assert all(before[1] < after[0] for before, after in itertools.pairwise(lines))
        assert [self.peek(workspace, found.reference) for found in stored] == [f"r{number}" for number in numbers]
        assert sorted(counted) == list(range(1, _TASKS + 1))

    async def test_threads_with_event_loops_of_their_own_lose_nothing(self, workspace: Offloader) -> None:
        """Each thread's messages keep their order."""
        archive = _archive_of(workspace)
        results = _results_of(workspace)

        async def work(thread: int) -> None:
            for number in range(_CALLS):
                await archive.archive("s", [said(f"{thread} {number}")])
                await results.store_result("s", result("same", f"{thread} {number}"))

        await _in_threads(work)
        found = [message["content"].split(" ") for message in await _loaded(archive, "s")]
        assert len(found) == _THREADS * _CALLS
        for thread in range(_THREADS):
            assert [int(number) for name, number in found if name == str(thread)] == list(range(_CALLS))
        texts = [f"{thread} {number}" for thread in range(_THREADS) for number in range(_CALLS)]
        assert await archive.missing("s", texts) == []

    async def test_a_cancelled_call_and_its_repetition_store_once(self, workspace: Offloader) -> None:
        """At any moment: the batch is whole or absent."""
        archive = _archive_of(workspace)
        messages = [said("x" * 500) for _ in range(100)]
        for steps in (0, 1, 2, 5, 20):
            session_id = f"after-{steps}"
            await _cancelled(archive, session_id, messages, steps)
            await archive.archive(session_id, [said("another")], batch_id="two")
            await archive.archive(session_id, messages, batch_id="one")
            found = await _loaded(archive, session_id)
            assert found in ([*messages, said("another")], [said("another"), *messages])

    async def test_a_context_window_compresses_on_it_and_is_resumed(self, workspace: Offloader) -> None:
        """Archive and window together are the conversation, and every citation leads to a line.

        If the workspace forgets unused results after some turns, they are only read right after they were stored.
        """
        conversation = long_conversation(40)
        offloaded: dict[int, tuple[str, str]] = {}
        forgets = abilities_of(workspace).turns is not None

        def note(event: Event) -> None:
            if isinstance(event, ResultOffloaded):
                offloaded[event.message] = event.path, self.peek(workspace, event.path)

        window = ContextWindow(
            session_id="s",
            offloader=workspace,
            size=4000,
            config=ContextConfig(tool_result_limit=300, preview_tokens=200),
            counter=_count,
            on_event=note,
        )
        for message in conversation:
            await window.add(message)
            await window.prepare()
        messages, archive = window.messages, _archive_of(workspace)
        summaries = await _summaries_of(workspace).load_summaries("s")
        archived = await _loaded(archive, "s")
        kept = messages[-(len(conversation) - len(archived)) :]
        assert len(summaries) > 1
        assert summaries[-1]["messages"][1] == len(archived)
        for number, (message, found) in enumerate(zip(conversation, [*archived, *kept], strict=True)):
            if number in offloaded:
                path, content = offloaded[number]
                assert (content if forgets else self.peek(workspace, path)) == message["content"]
            else:
                assert found == message
        await self._check_pointers(workspace, archive, summaries, forgets=forgets)

        again = await ContextWindow.resume(workspace, "s", counter=_count)
        assert again.messages == messages
        await again.add(said("One more."))
        assert await again.prepare() == [*messages, said("One more.")]

    async def _check_pointers(
        self, workspace: Offloader, archive: ContextArchive, summaries: list[dict[str, Any]], *, forgets: bool
    ) -> None:
        place = await archive.locate("s", 0, summaries[-1]["messages"][1])
        directory = place.transcript.removesuffix(place.transcript_name)
        pointers = [pointer for summary in summaries for pointer in summary["pointers"]]
        assert pointers
        if forgets:  # results that are no longer there
            pointers = [pointer for pointer in pointers if pointer["path"] == place.transcript_name]
        lines = {path: self.peek(workspace, directory + path).count("\n") + 1 for path in {p["path"] for p in pointers}}
        for pointer in pointers:
            assert 1 <= pointer["start"] <= pointer["end"] <= lines[pointer["path"]]


def _required(ability: T | None, name: str) -> T:
    """Return *ability*, or skip the test if the implementation lacks it; *name* is for the reason."""
    import pytest  # noqa: PLC0415 - a suite can be loaded without it

    if ability is None:
        pytest.skip(f"has no {name}")
    return ability


def _raises(kind: type[BaseException], match: str | None = None) -> AbstractContextManager[Any]:
    """Expect the block to raise *kind* with a text that matches *match*."""
    import pytest  # noqa: PLC0415 - a suite can be loaded without it

    return pytest.raises(kind, match=match)


def _archive_of(workspace: Offloader) -> ContextArchive:
    return _required(abilities_of(workspace).archive, "archive")


def _results_of(workspace: Offloader) -> ResultStore:
    return _required(abilities_of(workspace).results, "store of results")


def _summaries_of(workspace: Offloader) -> SummaryLog:
    return _required(abilities_of(workspace).summaries, "log of summaries")


def _transcript_of(workspace: Offloader) -> TranscriptReader:
    return _required(abilities_of(workspace).transcript, "lines of the transcript")


def _windows_of(workspace: Offloader) -> WindowLog:
    return _required(abilities_of(workspace).windows, "log of windows")


async def _loaded(archive: ContextArchive, session_id: str) -> list[dict[str, Any]]:
    """Return the JSON of all archived messages of a session, in order."""
    return [message for _, message in await archive.load_messages(session_id, *_ALL)]


async def _in_threads(work: Callable[[int], Coroutine[Any, Any, None]]) -> None:
    """Run *work* with the number of each thread, all at once, each in its own event loop."""
    start = threading.Barrier(_THREADS)

    def run(thread: int) -> None:
        start.wait()
        asyncio.run(work(thread))

    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(_THREADS) as pool:
        await asyncio.gather(*(loop.run_in_executor(pool, run, thread) for thread in range(_THREADS)))


async def _cancelled(archive: ContextArchive, session_id: str, messages: list[Any], steps: int) -> None:
    task = asyncio.ensure_future(archive.archive(session_id, messages, batch_id="one"))
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def _count(text: str) -> int:
    """Count about as a tokenizer does, so that the suites need no vocabulary."""
    return -(-len(text) // 4)
