"""The lock that the calls of one window hold, and lend to code of users."""

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from contextvars import Context, ContextVar, copy_context
from typing import Final

from buoyline.window.tasks import POLL_S, SharedLock, completed

_LOANS: ContextVar[tuple["Loan", ...]] = ContextVar("loans", default=())
"""Loans for the code that runs in this context, the innermost last."""


class CallLock:
    """Lets the calls of one window wait for each other: two at once would write, and archive, the same messages twice.

    A call that awaits a function of users, such as a summarizer, lends the lock to it meanwhile: that function and its
    tasks may call the window, one call after the other. Their context says that the loan is theirs. All other calls
    wait, also those of a task that outlives the function, or that a listener has started.
    """

    def __init__(self) -> None:
        """Begin without a call."""
        self._lock: Final = SharedLock()

    @property
    def is_held(self) -> bool:
        """Whether a call is at work."""
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
            await asyncio.sleep(POLL_S)

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

    def loan_for_task(self) -> tuple["Loan", Context]:
        """Return a loan, which is not open yet, and the context of a task for which it is."""
        loan, context = Loan(self), copy_context()
        context.run(_LOANS.set, (*_LOANS.get(), loan))
        return loan, context


@contextmanager
def without_loans() -> Generator[None]:
    """Let tasks that are started in the block have no loan: nobody waits for them."""
    before = _LOANS.set(())
    try:
        yield
    finally:
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

    @property
    def is_here(self) -> bool:
        """Whether the code that runs now is what the lock was lent to."""
        return self in _LOANS.get()

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
