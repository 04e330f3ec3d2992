"""Converting messages from one dialect to another."""

from buoyline.messages.conversion.converting import Converted, convert
from buoyline.messages.conversion.losses import Loss

__all__ = ["Converted", "Loss", "convert"]
