"""Work that is completed even if its caller is cancelled, and work off the event loop."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

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


# Work on large texts, off the event loop.


P = ParamSpec("P")

# A preview of so much takes 10 ms, and a hop to a thread a tenth of one.
_LARGE_CHARS = 20_000


async def beside(chars: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call *function* at once if it works on few *chars*, else in a thread, so that the event loop goes on."""
    if chars < _LARGE_CHARS:
        return function(*args, **kwargs)
    return await asyncio.to_thread(function, *args, **kwargs)
