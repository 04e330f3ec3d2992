"""The turns of a window: blocking work in a worker thread, one piece after another in the order of its calls."""

import os
import threading
from collections import deque
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
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._is_running, self._pid = False, os.getpid()

    def take(self, work: Callable[[], T]) -> Future[T]:
        """Take the next turn for *work*, and return its outcome to come."""
        if self._pid != os.getpid():
            Turns.__init__(self)  # the threads of a parent do not run in its child
        outcome: Future[T] = Future()
        with self._lock:
            self._waiting.append((outcome, work))
            is_first, self._is_running = not self._is_running, True
        if is_first:
            _pool_of(self._pid).submit(self._run)
        return outcome

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._is_running = False
                    return
                outcome, work = self._waiting.popleft()
            try:
                outcome.set_result(work())
            except BaseException as error:  # noqa: BLE001 - it is the caller's
                outcome.set_exception(error)
