"""Work on large texts, done beside the event loop."""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

# A preview of so much takes 10 ms, and a hop to a thread a tenth of one.
_LARGE_CHARS = 20_000


async def beside(chars: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call *function* at once where it works on few *chars*, else in a thread, so that the event loop goes on."""
    if chars < _LARGE_CHARS:
        return function(*args, **kwargs)
    return await asyncio.to_thread(function, *args, **kwargs)
