"""The window: the messages a model sees, composed of everything below."""

import logging

from buoyline.compression.summary import SummaryFellBack, SummarySqueezed, SummaryVerified
from buoyline.window.events import (
    ContextCompressed,
    ContextManaged,
    Event,
    HistoryForked,
    MessagesArchived,
    OnEvent,
    OverflowRecovered,
    ResultOffloaded,
    WindowResumed,
)
from buoyline.window.follower import Followed
from buoyline.window.plan import OffloadCandidate, OffloadPredicate
from buoyline.window.window import ContextWindow

# A library says nothing on stderr by itself; whoever wants to hear it adds a handler.
logging.getLogger("buoyline").addHandler(logging.NullHandler())

__all__ = [
    "ContextCompressed",
    "ContextManaged",
    "ContextWindow",
    "Event",
    "Followed",
    "HistoryForked",
    "MessagesArchived",
    "OffloadCandidate",
    "OffloadPredicate",
    "OnEvent",
    "OverflowRecovered",
    "ResultOffloaded",
    "SummaryFellBack",
    "SummarySqueezed",
    "SummaryVerified",
    "WindowResumed",
]
