"""The window: the messages a model sees, composed of everything below."""

from buoyline.window.events import ContextCompressed, Event, ResultOffloaded
from buoyline.window.window import ContextWindow

__all__ = ["ContextCompressed", "ContextWindow", "Event", "ResultOffloaded"]
