"""Doing asynchronous work from where Strands calls synchronously, in the middle of its event loop."""

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def run_apart(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run *work* in an event loop of its own, in a thread of its own, and wait for it.

    The caller's loop, if one runs, stands still meanwhile. Context variables are the caller's.

    Raises:
        Exception: Whatever *work* raises.
    """
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="buoyline-strands") as pool:
        return pool.submit(contextvars.copy_context().run, lambda: asyncio.run(work())).result()
