"""Converting messages from one dialect to another."""

from buoyline.messages.conversion.blocks import Loss
from buoyline.messages.conversion.convert import Converted, convert

__all__ = ["Converted", "Loss", "convert"]
