"""The turns of a window: blocking work in a worker thread, one piece after another in the order of its calls."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")


@cache
def _pool_of(pid: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(thread_name_prefix=f"buoyline-{pid}")


class Turns:
    """Runs the blocking work of one window, whichever thread or event loop asks for it."""

    def __init__(self) -> None:
        """Begin idle."""
        self._lock, self._pid = threading.Lock(), os.getpid()
        self._newest: Future[Any] = Future()
        self._newest.set_result(None)

    def take(self, work: Callable[[], T]) -> Future[T]:
        """Take the next turn for *work*, and return its outcome to come."""
        if self._pid != os.getpid():
            Turns.__init__(self)  # the threads of a parent do not run in its child
        outcome: Future[T] = Future()

        def run() -> None:
            try:
                outcome.set_result(work())
            except BaseException as error:  # noqa: BLE001 - it is the caller's
                outcome.set_exception(error)

        def begin(_: Future[Any]) -> None:
            try:
                _pool_of(self._pid).submit(run)
            except RuntimeError as error:  # the interpreter is shutting down: an error, not a turn without an end
                outcome.set_exception(error)

        with self._lock:
            before, self._newest = self._newest, outcome
        before.add_done_callback(begin)
        return outcome
