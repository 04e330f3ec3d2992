"""The worker threads of a workspace. Calls with one key run in order, and may share a sync."""

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
"""At most so many calls share a sync, so that other processes get the lock in between."""


class RunsWork(Protocol):
    """Runs blocking work, in the order in which it was given, and waits for its end, even if cancelled."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]:
        """Run *work*."""
        ...


SyncGroup = Callable[[], AbstractContextManager[Callable[[], bool]]]
"""Delays syncs to the end of a block, as `Session.sync_group` does, and yields whether a write waits for the sync."""


class WorkerPool:
    """A few threads. Work for one key always runs in the same thread, in the order of submission."""

    def __init__(self) -> None:
        """Start no thread yet."""
        self._executors: dict[int, ThreadPoolExecutor] = {}
        self._ending: dict[int, ThreadPoolExecutor] = {}
        self._waiting: dict[str, deque[Job]] = {}
        self._guard = threading.Lock()

    def submit(self, key: str, work: Callable[[], T]) -> Future[T]:
        """Run *work* after all earlier work for *key*."""
        number = zlib.crc32(key.encode("utf-8", "surrogatepass")) % _THREADS
        with self._guard:
            return (self._executors.get(number) or self._started(number)).submit(work)

    def submit_to_group(self, key: str, group: str, sync_group: SyncGroup, work: Callable[[], T]) -> Future[T]:
        """Run *work*, which is work for *key*, in a *group*: what is submitted during one sync shares the next one.

        The future is done after that sync.
        """
        future: Future[T] = Future()
        with self._guard:
            self._waiting.setdefault(group, deque()).append((future, work))
        self.submit(key, lambda: self._run_group(group, sync_group))
        return future

    def close(self) -> None:
        """Wait for all submitted work and end the threads. Later work starts new ones, which wait for the old."""
        with self._guard:
            executors, self._executors = self._executors, {}
            self._ending |= executors
        for executor in executors.values():
            executor.shutdown()

    def _started(self, number: int) -> ThreadPoolExecutor:
        executor = self._executors[number] = ThreadPoolExecutor(max_workers=1, thread_name_prefix="buoyline")
        if number in self._ending:
            # Two threads for one key would break the order, and wait for each other's locks.
            executor.submit(self._ending[number].shutdown)
        return executor

    def _run_group(self, name: str, sync_group: SyncGroup) -> None:
        group = self._take(name)
        while group:
            _run_together(group, sync_group)

    def _take(self, name: str) -> deque[Job]:
        with self._guard:
            waiting = self._waiting.get(name, deque())
            group = deque(waiting.popleft() for _ in range(min(len(waiting), _MAX_GROUP)))
            if not waiting:
                self._waiting.pop(name, None)
            return group


async def outcome(future: Future[T]) -> T:
    """Return the result of *future*. A cancellation is raised once its work has ended, or can no longer begin."""
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        # Work that has not begun is dropped. Work that has begun is waited for, however often we are cancelled.
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


def _run_together(group: deque[Job], sync_group: SyncGroup) -> None:
    """Run jobs from the front of *group* until it is empty or a sync fails, which the remaining jobs do not share."""
    done: list[tuple[Future[Any], Any]] = []
    try:
        with sync_group() as is_waiting:
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
