"""The threads of a workspace: what belongs together runs in order, and may share a sync."""

import threading
import zlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

_LANES = 4
_MAX_GROUP = 256
"""Calls that share a sync: then other processes get their turn at the lock."""


class SharesSync(Protocol):
    """Something whose writes can wait for one sync, as a `Session` can."""

    def sharing(self) -> AbstractContextManager[Callable[[], bool]]:
        """Open the block at whose end the sync is; within, tell whether something waits for it."""
        ...


class Lanes:
    """A few threads. Work for one key runs in one of them, in the order in which it was given."""

    def __init__(self) -> None:
        """Start no thread yet."""
        self._executors: dict[int, ThreadPoolExecutor] = {}
        self._waiting: dict[str, deque[tuple[Future[Any], Callable[[], Any]]]] = {}
        self._guard = threading.Lock()

    def submit(self, key: str, work: Callable[[], T]) -> Future[T]:
        """Run *work* after what was given for *key* before."""
        number = zlib.crc32(key.encode("utf-8", "surrogatepass")) % _LANES
        with self._guard:
            if number not in self._executors:
                self._executors[number] = ThreadPoolExecutor(max_workers=1, thread_name_prefix="buoyline")
            return self._executors[number].submit(work)

    def submit_sharing(self, key: str, shared: SharesSync, work: Callable[[], T]) -> Future[T]:
        """Run *work* likewise, and sync once for all that was given meanwhile: while one sync runs, a group gathers.

        The future is done when the sync is.
        """
        future: Future[T] = Future()
        with self._guard:
            self._waiting.setdefault(key, deque()).append((future, work))
        self.submit(key, lambda: self._run_group(key, shared))
        return future

    def close(self) -> None:
        """Wait for what was given and end the threads. Work that comes later starts new ones."""
        with self._guard:
            executors, self._executors = list(self._executors.values()), {}
        for executor in executors:
            executor.shutdown()

    def _run_group(self, key: str, shared: SharesSync) -> None:
        done: list[tuple[Future[Any], Any]] = []
        try:
            with shared.sharing() as is_waiting:
                for future, work in self._take(key):
                    _run(future, work, done)
                    if not is_waiting():
                        _acknowledge(done)
        except BaseException as error:
            for future, _ in done:
                future.set_exception(error)
            raise
        _acknowledge(done)

    def _take(self, key: str) -> list[tuple[Future[Any], Callable[[], Any]]]:
        with self._guard:
            waiting = self._waiting.get(key)
            if not waiting:
                return []
            group = [waiting.popleft() for _ in range(min(len(waiting), _MAX_GROUP))]
            if not waiting:
                del self._waiting[key]
            return group


def _run(future: Future[Any], work: Callable[[], Any], done: list[tuple[Future[Any], Any]]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        value = work()
    except BaseException as error:
        future.set_exception(error)
        # The caller has it; what is no error but an order to end goes on to whoever waits in the same group.
        if not isinstance(error, Exception):
            raise
    else:
        done.append((future, value))


def _acknowledge(done: list[tuple[Future[Any], Any]]) -> None:
    for future, value in done:
        future.set_result(value)
    done.clear()
