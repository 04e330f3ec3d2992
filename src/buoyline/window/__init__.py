"""`ContextWindow`: the messages that the model sees on its next call, kept within the limit of its window."""

import logging

from buoyline.window.events import (
    ContextCompressed,
    ContextManaged,
    Event,
    HistoryForked,
    OnEvent,
    ResultOffloaded,
)
from buoyline.window.follower import Followed
from buoyline.window.settings import WindowSettings
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
    "OnEvent",
    "ResultOffloaded",
    "WindowSettings",
]
