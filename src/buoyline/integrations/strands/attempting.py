"""Calling what the user has brought, which may raise anything, where a failure must not cost a tool result."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def attempted(work: Coroutine[Any, Any, T]) -> T | Exception:
    """Return what *work* returns, or the exception that ended it; the end of the program and a cancellation are raised.

    An exception in a hook of Strands' makes an error of a successful result, and the model never sees the result.
    """
    found: T | BaseException = (await asyncio.gather(work, return_exceptions=True))[0]
    if isinstance(found, BaseException) and not isinstance(found, Exception):
        raise found
    return found
