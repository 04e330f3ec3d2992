"""The threads of a workspace: what belongs together runs in order, and may share a sync."""

import asyncio
import threading
import zlib
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

Job = tuple[Future[Any], Callable[[], Any]]

_THREADS = 4
_MAX_GROUP = 256
"""Calls that share a sync: then other processes get their turn at the lock."""


class RunsWork(Protocol):
    """Runs blocking work, in the order in which it was given, and waits for its end, even if cancelled."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]:
        """Run *work*."""
        ...


class SyncsInGroups(Protocol):
    """Something whose writes can wait for one sync, as a `Session` can."""

    def sync_group(self) -> AbstractContextManager[Callable[[], bool]]:
        """Open the block at whose end the sync is.

        Within, tell whether something waits for it, and raise the error of one that had to come earlier and failed.
        """
        ...


class WorkerPool:
    """A few threads. Work for one key runs in one of them, in the order in which it was given."""

    def __init__(self) -> None:
        """Start no thread yet."""
        self._executors: dict[int, ThreadPoolExecutor] = {}
        self._ending: dict[int, ThreadPoolExecutor] = {}
        self._waiting: dict[str, deque[Job]] = {}
        self._guard = threading.Lock()

    def submit(self, key: str, work: Callable[[], T]) -> Future[T]:
        """Run *work* after what was given for *key* before."""
        number = zlib.crc32(key.encode("utf-8", "surrogatepass")) % _THREADS
        with self._guard:
            return self._executor(number).submit(work)

    def submit_to_group(self, key: str, shared: SyncsInGroups, work: Callable[[], T]) -> Future[T]:
        """Run *work* likewise, and sync once for all that was given meanwhile: while one sync runs, a group gathers.

        The future is done when the sync is.
        """
        future: Future[T] = Future()
        with self._guard:
            self._waiting.setdefault(key, deque()).append((future, work))
        self.submit(key, lambda: self._run_group(key, shared))
        return future

    def close(self) -> None:
        """Wait for what was given and end the threads. Work that comes later starts new ones, which wait likewise."""
        with self._guard:
            executors, self._executors = self._executors, {}
            self._ending |= executors
        for executor in executors.values():
            executor.shutdown()

    def _executor(self, number: int) -> ThreadPoolExecutor:
        executor = self._executors.get(number)
        if executor is None:
            executor = self._executors[number] = ThreadPoolExecutor(max_workers=1, thread_name_prefix="buoyline")
            if number in self._ending:
                # Two threads at once for one key would turn the order round, and wait for each other's locks.
                executor.submit(self._ending[number].shutdown)
        return executor

    def _run_group(self, key: str, shared: SyncsInGroups) -> None:
        group = self._take(key)
        while group:
            _run_together(group, shared)

    def _take(self, key: str) -> deque[Job]:
        with self._guard:
            waiting = self._waiting.get(key, deque())
            group = deque(waiting.popleft() for _ in range(min(len(waiting), _MAX_GROUP)))
            if not waiting:
                self._waiting.pop(key, None)
            return group


async def outcome(future: Future[T]) -> T:
    """Return what *future* gives; a cancellation is let through once its work has ended, or will never begin."""
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        # What has not begun never will; what has is waited for, however often we are cancelled meanwhile.
        if not future.cancel():
            await _ended(asyncio.wrap_future(future))
        raise


async def _ended(waiting: asyncio.Future[Any]) -> None:
    while not waiting.done():
        try:
            await asyncio.wait([waiting])
        except asyncio.CancelledError:
            continue
    if not waiting.cancelled():
        waiting.exception()


def _run_together(group: deque[Job], shared: SyncsInGroups) -> None:
    """Run jobs from the front of *group* up to its end, or up to a sync that failed: the rest does not share that."""
    done: list[tuple[Future[Any], Any]] = []
    try:
        with shared.sync_group() as is_waiting:
            while group:
                _run(*group.popleft(), done)
                if not is_waiting():
                    _acknowledge(done)
    except BaseException as error:  # noqa: BLE001 - handed on to whoever waits, as an executor does
        for future, _ in done:
            future.set_exception(error)
    else:
        _acknowledge(done)


def _run(future: Future[Any], work: Callable[[], Any], done: list[tuple[Future[Any], Any]]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        value = work()
    except BaseException as error:  # noqa: BLE001 - handed on to whoever waits, as an executor does
        future.set_exception(error)
    else:
        done.append((future, value))


def _acknowledge(done: list[tuple[Future[Any], Any]]) -> None:
    for future, value in done:
        future.set_result(value)
    done.clear()
