"""`ContextWindow`: the messages that the model sees on its next call, kept within the limit of its window."""

import logging

from buoyline.context.events import (
    ContextCompressed,
    ContextManaged,
    Event,
    HistoryForked,
    OnEvent,
    ResultOffloaded,
)
from buoyline.context.follower import Followed
from buoyline.context.settings import WindowSettings
from buoyline.context.window import ContextWindow

# A library prints nothing on stderr by itself; a program that wants the log adds a handler.
logging.getLogger("buoyline").addHandler(logging.NullHandler())

__all__ = [
    "ContextCompressed",
    "ContextManaged",
    "ContextWindow",
    "Event",
    "Followed",
    "HistoryForked",
    "OnEvent",
    "ResultOffloaded",
    "WindowSettings",
]
