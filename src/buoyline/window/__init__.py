"""`ContextWindow`: the messages that the model sees on its next call, and the engine that keeps them within the window.

It uses all packages below and decides when results are offloaded and messages are compacted. Files, the text of
summaries and the forms of messages do not belong here.
"""

import logging

from buoyline.compression.summary import SummaryFellBack
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
from buoyline.window.settings import WindowOptions
from buoyline.window.window import ContextWindow

# A library prints nothing on stderr by itself; a program that wants the log adds a handler.
logging.getLogger("buoyline").addHandler(logging.NullHandler())

__all__ = [
    "ContextCompressed",
    "ContextManaged",
    "ContextWindow",
    "Event",
    "Followed",
    "HistoryForked",
    "MessagesArchived",
    "OnEvent",
    "OverflowRecovered",
    "ResultOffloaded",
    "SummaryFellBack",
    "WindowOptions",
    "WindowResumed",
]
