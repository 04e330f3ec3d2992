"""Asking again after a failure, for every summariser that asks somebody."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from buoyline.compression.summarizers.failure import Failure
from buoyline.compression.summarizers.retrying import Attempts, Retries
from buoyline.compression.summary import Draft
from buoyline.errors import SummaryError

logger = logging.getLogger(__name__)


async def repeated(ask_once: Callable[[], Awaitable[Draft]], *, name: str, retries: Retries) -> Draft:
    """Ask until there is a draft, as often as that may help and *retries* allow.

    Args:
        ask_once: Gives the draft, or raises a `Failure`, whose kind says whether to ask again and after how long.
        name: Who is asked.
        retries: The bounds.

    Raises:
        SummaryError: There was no draft within the bounds; it says why, and how often was asked.
    """
    attempts = Attempts(retries)
    while True:
        try:
            return await ask_once()
        except Failure as failure:
            wait_s = attempts.wait_s(failure)
            if wait_s is None:
                times = "once" if attempts.made == 1 else f"{attempts.made} times"
                raise SummaryError(name, f"{failure}; asked {times}") from failure
            logger.info("summary by %s: %s; asked again in %.1f s", name, failure, wait_s)
            await asyncio.sleep(wait_s)
