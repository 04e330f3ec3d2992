"""Work that blocks, in a worker thread."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """Run *work* in a worker thread, and wait for its end before a cancellation is raised."""
    return await finished(asyncio.ensure_future(asyncio.to_thread(work)))


async def finished(task: "asyncio.Future[T]") -> T:
    """Return what *task* returns; if the caller is cancelled, wait for its end all the same."""
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([task])
        raise
