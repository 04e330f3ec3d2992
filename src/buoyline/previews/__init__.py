"""Previews of long texts: the kind of text, errors and outliers, the first and last lines.

All lines carry their numbers in the file. This package is pure and deterministic: it opens no files and knows nothing
of stubs or workspaces.
"""

from buoyline.previews.preview import flagged_lines, preview
from buoyline.previews.source import Source

__all__ = ["Source", "flagged_lines", "preview"]
