"""Work that is completed even if its caller is cancelled, locks of tasks, and work off the event loop."""

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, ParamSpec, TypeVar

T = TypeVar("T")


async def completed(work: Coroutine[Any, Any, T]) -> T:
    """Run *work* to its end, and only then let a cancellation through.

    Disk and memory have to change together: a cancelled archiving was found to archive the same messages again.

    Returns:
        What *work* returns.

    Raises:
        asyncio.CancelledError: The caller was cancelled meanwhile; *work* has ended, well or not.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError:
                continue
        if not task.cancelled():
            task.exception()
        raise


GUARD: Final = threading.RLock()
"""Held for moments, never while anything is awaited. A finalizer may need it in the thread that holds it."""

os.register_at_fork(before=GUARD.acquire, after_in_parent=GUARD.release, after_in_child=GUARD.release)

POLL_S: Final = 0.002
"""Between two looks at a lock that a task of another event loop holds."""


class SharedLock:
    """A lock of tasks, also of those in other threads: each may have an event loop of its own.

    Tasks of one event loop get it in the order in which they ask.
    """

    def __init__(self) -> None:
        """Begin without a holder."""
        self._holder: _Holder | None = None
        self._queue: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None

    @property
    def is_held(self) -> bool:
        """Whether a task holds it now."""
        return self._holder is not None and self._holder.can_go_on

    def held(self) -> AbstractAsyncContextManager[None]:
        """Hold the lock; the event loop goes on while others hold it."""
        loop = asyncio.get_running_loop()
        queue = self._queue
        if queue is None or queue[0] is not loop:
            queue = self._queue = (loop, asyncio.Lock())
        return _Holder(self, queue[1], weakref.ref(loop))

    def acquire(self, holder: "_Holder") -> bool:
        """Let *holder* hold the lock, and return True, unless it is held."""
        with GUARD:
            if self.is_held:
                return False
            self._holder = holder
            return True

    def release(self, holder: "_Holder") -> None:
        """End the hold of *holder*."""
        with GUARD:
            if self._holder is holder:
                self._holder = None


class _Holder:
    """A task that holds a lock, or waits for it: *queue* is for the tasks of its own event loop."""

    def __init__(self, lock: SharedLock, queue: asyncio.Lock, loop: "weakref.ref[asyncio.AbstractEventLoop]") -> None:
        self._lock = lock
        self._queue = queue
        self._loop = loop
        self._process = os.getpid()

    @property
    def can_go_on(self) -> bool:
        """Whether it can ever release the lock: not in a closed event loop, or the parent of a forked process."""
        loop = self._loop()
        return loop is not None and not loop.is_closed() and self._process == os.getpid()

    async def __aenter__(self) -> None:
        await self._queue.acquire()
        try:
            while not self._lock.acquire(self):  # noqa: ASYNC110 - its holder may be in another event loop
                await asyncio.sleep(POLL_S)
        except BaseException:
            self._queue.release()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._lock.release(self)
        self._queue.release()


# Work on large texts, off the event loop.


P = ParamSpec("P")

# A preview of so much takes 10 ms, and a hop to a thread a tenth of one.
_LARGE_CHARS = 20_000


async def beside(chars: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call *function* at once if it works on few *chars*, else in a thread, so that the event loop goes on."""
    if chars < _LARGE_CHARS:
        return function(*args, **kwargs)
    return await asyncio.to_thread(function, *args, **kwargs)
