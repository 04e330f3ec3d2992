"""The window: the messages a model sees, composed of everything below."""

import logging

from buoyline.window.events import ContextCompressed, Event, ResultOffloaded
from buoyline.window.window import ContextWindow

# A library says nothing on stderr by itself; whoever wants to hear it adds a handler.
logging.getLogger("buoyline").addHandler(logging.NullHandler())

__all__ = ["ContextCompressed", "ContextWindow", "Event", "ResultOffloaded"]
