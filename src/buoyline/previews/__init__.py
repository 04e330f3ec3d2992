"""What is shown of a text that is too long: what it is, what is wrong or odd in it, its head and its tail.

All lines bear the numbers that they have in their file. Pure and deterministic.
"""

from buoyline.previews.layout import PreviewLine, parse_preview
from buoyline.previews.preview import preview, preview_of

__all__ = ["PreviewLine", "parse_preview", "preview", "preview_of"]
