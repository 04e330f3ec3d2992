"""The turns of a window: blocking work in a worker thread, one piece after another in the order of its calls."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class Turns:
    """Runs the blocking work of one window, whichever thread or event loop asks for it."""

    def __init__(self) -> None:
        """Begin idle."""
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._is_running = False

    def take(self, work: Callable[[], T]) -> Future[T]:
        """Take the next turn for *work*, and return its outcome to come. Call it within an event loop."""
        outcome: Future[T] = Future()
        with self._lock:
            self._waiting.append((outcome, work))
            is_first, self._is_running = not self._is_running, True
        if is_first:
            asyncio.get_running_loop().run_in_executor(None, self._run)
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


async def completed(outcome: Future[T]) -> T:
    """Wait for work, also if the caller is cancelled: disk and memory change together, or not at all."""
    waiting = asyncio.wrap_future(outcome)
    try:
        return await asyncio.shield(waiting)
    except asyncio.CancelledError:
        while not waiting.done():
            try:
                await asyncio.wait([waiting])
            except asyncio.CancelledError:
                continue
        if not waiting.cancelled():
            waiting.exception()
        raise
