"""Tests of a workspace with many users: sessions, tasks, threads, cancelled calls, and a whole window."""

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from buoyline.compression import ContextConfig
from buoyline.offloader import ContextArchive, Offloader
from buoyline.offloader.protocol import abilities_of
from buoyline.testing.conversation import HOSTILE_IDS, long_conversation, result, said
from buoyline.testing.suite import WorkspaceSuite, archive_of, loaded, results_of, summaries_of, windows_of
from buoyline.window import ContextWindow, Event, ResultOffloaded

_TASKS = 50
_THREADS = 8
_CALLS = 10


class SharingConformance(WorkspaceSuite):
    """Inherit it, or `WorkspaceConformance`, which includes it."""

    async def test_hostile_session_ids_are_sessions_of_their_own(self, workspace: Offloader) -> None:
        """Ids that differ only in case or form, and ids that look like paths."""
        archive = archive_of(workspace)
        for number, session_id in enumerate(HOSTILE_IDS):
            await archive.archive(session_id, [said(str(number))])
        for number, session_id in enumerate(HOSTILE_IDS):
            assert await loaded(archive, session_id) == [said(str(number))], repr(session_id)

    async def test_hostile_call_ids_are_results_of_their_own(self, workspace: Offloader) -> None:
        """No such id reaches another's content."""
        results = results_of(workspace)
        stored = [await results.store_result("s", result(call_id, f"of {call_id!r}")) for call_id in HOSTILE_IDS]
        for call_id, found in zip(HOSTILE_IDS, stored, strict=True):
            assert self.peek(workspace, found.reference) == f"of {call_id!r}"
        assert len({found.reference for found in stored}) == len(stored)

    async def test_nothing_of_one_session_is_seen_in_another(self, workspace: Offloader) -> None:
        """Even if ids and batch ids are the same."""
        archive, results = archive_of(workspace), results_of(workspace)
        for session_id in ("s1", "s2"):
            await windows_of(workspace).start_window(session_id, {"of": session_id}, writer="w")
            await windows_of(workspace).extend_window(session_id, [said(f"window of {session_id}")], [], writer="w")
            await archive.archive(session_id, [said(f"message of {session_id}")], batch_id="same")
            await summaries_of(workspace).append_summary(session_id, {"text": session_id})
            stored = await results.store_result(session_id, result("same", f"result of {session_id}"))
            await results.record_stub(session_id, f"stub in {session_id}", stored)
        foreign = ["message of s2", "result of s2"]
        assert await loaded(archive, "s1") == [said("message of s1")]
        assert await archive.missing("s1", foreign) == foreign
        assert await summaries_of(workspace).load_summaries("s1") == [{"text": "s1", "n": 1}]
        state = await windows_of(workspace).load_window("s1")
        assert ([message for _, message in state.messages], dict(state.settings)) == (
            [said("window of s1")],
            {"of": "s1"},
        )

    async def test_tasks_at_the_same_time_lose_nothing(self, workspace: Offloader) -> None:
        """Messages, results of one id, and summaries; each batch has its own lines."""
        archive, results, summaries = archive_of(workspace), results_of(workspace), summaries_of(workspace)
        numbers = range(_TASKS)
        batches, stored, counted = await asyncio.gather(
            asyncio.gather(*(archive.archive("s", [said(f"m{n}"), said(f"n{n}")]) for n in numbers)),
            asyncio.gather(*(results.store_result("s", result("same", f"r{n}")) for n in numbers)),
            asyncio.gather(*(summaries.append_summary("s", {"text": str(n)}) for n in numbers)),
        )
        messages = [message["content"] for message in await loaded(archive, "s")]
        for number, batch in zip(numbers, batches, strict=True):
            assert messages[batch.first : batch.first + 2] == [f"m{number}", f"n{number}"]
        lines = sorted(lines for batch in batches for lines in batch.lines)
        assert all(before[1] < after[0] for before, after in itertools.pairwise(lines))
        assert [self.peek(workspace, found.reference) for found in stored] == [f"r{number}" for number in numbers]
        assert sorted(counted) == list(range(1, _TASKS + 1))

    async def test_threads_with_event_loops_of_their_own_lose_nothing(self, workspace: Offloader) -> None:
        """Each thread's messages keep their order."""
        archive = archive_of(workspace)
        results = results_of(workspace)

        async def work(thread: int) -> None:
            for number in range(_CALLS):
                await archive.archive("s", [said(f"{thread} {number}")])
                await results.store_result("s", result("same", f"{thread} {number}"))

        await _in_threads(work)
        found = [message["content"].split(" ") for message in await loaded(archive, "s")]
        assert len(found) == _THREADS * _CALLS
        for thread in range(_THREADS):
            assert [int(number) for name, number in found if name == str(thread)] == list(range(_CALLS))
        texts = [f"{thread} {number}" for thread in range(_THREADS) for number in range(_CALLS)]
        assert await archive.missing("s", texts) == []

    async def test_threads_that_repeat_one_batch_store_it_once(self, workspace: Offloader) -> None:
        """All get the answer of the first."""
        archive = archive_of(workspace)
        places: list[object] = []

        async def work(_: int) -> None:
            places.append(await archive.archive("s", [said("a"), said("b")], batch_id="one"))

        await _in_threads(work)
        assert await loaded(archive, "s") == [said("a"), said("b")]
        assert all(place == places[0] for place in places)

    async def test_a_cancelled_call_and_its_repetition_store_once(self, workspace: Offloader) -> None:
        """At any moment: the batch is whole or absent."""
        archive = archive_of(workspace)
        messages = [said("x" * 500) for _ in range(100)]
        for steps in (0, 1, 2, 5, 20):
            session_id = f"after-{steps}"
            await _cancelled(archive, session_id, messages, steps)
            await archive.archive(session_id, [said("another")], batch_id="two")
            await archive.archive(session_id, messages, batch_id="one")
            found = await loaded(archive, session_id)
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
        messages, archive = window.messages, archive_of(workspace)
        summaries = await summaries_of(workspace).load_summaries("s")
        archived = await loaded(archive, "s")
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
