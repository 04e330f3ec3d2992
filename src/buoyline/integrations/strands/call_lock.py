"""The lock that the calls of one conversation manager hold, and lend to code of users."""

import asyncio
import threading
import weakref
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar
from typing import Final

from buoyline.window.tasks import completed

_LOANS: ContextVar[tuple["Loan", ...]] = ContextVar("loans", default=())
"""Loans for the code that runs in this context, the innermost last."""


class CallLock:
    """Lets the calls of one manager wait for each other: two at once would write, and archive, the same messages twice.

    A call that awaits a function of users, such as a summarizer, lends the lock to it meanwhile: that function and its
    tasks may call the manager, one call after the other. Their context says that the loan is theirs. All other calls
    wait, also those of a task that outlives the function, or that a listener has started.
    """

    def __init__(self) -> None:
        """Begin without a call."""
        self._lock: Final = SharedLock()

    @property
    def is_held(self) -> bool:
        """Whether a call holds it now."""
        return self._lock.is_held

    @property
    def is_lent_here(self) -> bool:
        """Whether the code that runs now has a loan of the lock."""
        return any(loan.is_of(self) for loan in _LOANS.get())

    def held(self) -> AbstractAsyncContextManager[None]:
        """Hold the lock, or the innermost loan of it in this context."""
        return self._held() if _LOANS.get() else self._lock.held()

    @asynccontextmanager
    async def _held(self) -> AsyncGenerator[None]:
        while True:
            loan = next((one for one in reversed(_LOANS.get()) if one.is_of(self)), None)
            async with (self._lock if loan is None else loan.lock).held():
                if loan is None or loan.is_open:
                    yield
                    return
            await asyncio.sleep(_POLL_S)

    @asynccontextmanager
    async def lent(self) -> AsyncGenerator[None]:
        """Lend the lock to what is awaited in the block; calls that have begun with it are completed before it ends."""
        loan = Loan(self)
        before = _LOANS.set((*_LOANS.get(), loan))
        try:
            async with loan.open():
                yield
        finally:
            loan.end()
            _LOANS.reset(before)


class Loan:
    """A lock that a call has lent.

    Attributes:
        lock: Held by a call that is made with the loan.
        is_open: Whether such a call may go on now.
    """

    def __init__(self, lender: CallLock) -> None:
        """Begin with a loan of *lender* that is not open."""
        self.lock: Final = SharedLock()
        self.is_open = False
        self._lender: CallLock | None = lender

    def is_of(self, lender: CallLock) -> bool:
        """Return whether *lender* has lent this, and it has not ended."""
        return self._lender is lender

    def end(self) -> None:
        """Let calls that wait for the loan wait for the lender's other calls instead."""
        self._lender = None

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """Let calls go on with the loan; those that have begun are completed before the block ends."""
        self.is_open = True
        try:
            yield
        finally:
            self.is_open = False
            if self.lock.is_held:
                await completed(self._returned())

    async def _returned(self) -> None:
        async with self.lock.held():
            pass


_GUARD: Final = threading.Lock()
"""Held for moments, never while anything is awaited."""

_POLL_S: Final = 0.002
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
        with _GUARD:
            if self.is_held:
                return False
            self._holder = holder
            return True

    def release(self, holder: "_Holder") -> None:
        """End the hold of *holder*."""
        with _GUARD:
            if self._holder is holder:
                self._holder = None


class _Holder:
    """A task that holds a lock, or waits for it: *queue* is for the tasks of its own event loop."""

    def __init__(self, lock: SharedLock, queue: asyncio.Lock, loop: "weakref.ref[asyncio.AbstractEventLoop]") -> None:
        self._lock = lock
        self._queue = queue
        self._loop = loop

    @property
    def can_go_on(self) -> bool:
        """Whether it can ever release the lock: not in a closed event loop."""
        loop = self._loop()
        return loop is not None and not loop.is_closed()

    async def __aenter__(self) -> None:
        await self._queue.acquire()
        try:
            while not self._lock.acquire(self):  # noqa: ASYNC110 - its holder may be in another event loop
                await asyncio.sleep(_POLL_S)
        except BaseException:
            self._queue.release()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._lock.release(self)
        self._queue.release()
