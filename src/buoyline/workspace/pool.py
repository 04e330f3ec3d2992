"""The worker threads of a workspace. Calls with one key run in order."""

import asyncio
import threading
import zlib
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

_THREADS = 4


class RunsWork(Protocol):
    """Runs blocking work, in the order in which it was given, and waits for its end, even if cancelled."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]:
        """Run *work*."""
        ...


class WorkerPool:
    """A few threads. Work for one key always runs in the same thread, in the order of submission."""

    def __init__(self) -> None:
        """Start no thread yet."""
        self._executors: dict[int, ThreadPoolExecutor] = {}
        self._ending: dict[int, ThreadPoolExecutor] = {}
        self._guard = threading.Lock()

    def submit(self, key: str, work: Callable[[], T]) -> Future[T]:
        """Run *work* after all earlier work for *key*."""
        number = zlib.crc32(key.encode("utf-8", "surrogatepass")) % _THREADS
        with self._guard:
            return (self._executors.get(number) or self._started(number)).submit(work)

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
