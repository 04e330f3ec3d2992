r"""The view of a text that is too large to be held: the lines that `view_of` gives, made block by block.

Pure. Source: docs/format.md, "tool_result-<id>.view.txt".
"""

import re
from collections.abc import Iterable, Iterator

from buoyline.offloader.lines import escaped, full_pieces, readable_lines
from buoyline.offloader.source import Source
from buoyline.offloader.view import MAX_JSON_CHARS, view_of

_ANY_END = re.compile("\r\n|[\r\n]")
_MAX_CHARACTER_BYTES = 4

_SLICE_CHARS = 1 << 17
"""A line that is wrapped is there five times, in pieces and as a whole: of a megabyte, that took 9 MB at once."""


def view_blocks(source: Source) -> Iterator[str]:
    """Return the view of a text that is known not to be readable, in pieces that make `view_of` of all of it.

    What begins like JSON and is small enough to be indented is held for that; nothing else is.
    """
    small = _small_json(source)
    view = None if small is None else view_of(small)
    return wrapped_blocks(source.blocks()) if view is None else iter((view,))


def wrapped_blocks(blocks: Iterable[str]) -> Iterator[str]:
    """Yield the readable lines of a text that comes in *blocks*, with their ends; no line of it is held whole."""
    wrapping = _Wrapping()
    for block in blocks:
        for start in range(0, len(block), _SLICE_CHARS):
            yield wrapping.shown(block[start : start + _SLICE_CHARS])
    yield wrapping.end()


class _Wrapping:
    """Wraps a text whose lines may go on from block to block."""

    def __init__(self) -> None:
        self._line = ""
        self._ends_in_return = False

    def shown(self, block: str) -> str:
        r"""Return what the text up to the end of *block* shows more than before; a last ``\r`` waits for a ``\n``."""
        text = f"\r{block}" if self._ends_in_return else block
        self._ends_in_return = text.endswith("\r")
        text = text.removesuffix("\r")
        end = _ANY_END.search(text)
        if end is None:
            return self._grown(text)
        last_end = max(text.rfind("\n"), text.rfind("\r")) + 1
        first = self._grown(text[: end.start()]) + self._ended()
        between = _joined(readable_lines(text[end.end() : last_end]))
        return "".join((first, between, self._grown(text[last_end:])))

    def end(self) -> str:
        """Return what is left at the end of the text."""
        return self._ended() if self._line or self._ends_in_return else ""

    def _grown(self, text: str) -> str:
        pieces, self._line = full_pieces(self._line + escaped(text))
        return _joined(pieces)

    def _ended(self) -> str:
        ended, self._line = f"{self._line}\n", ""
        return ended


def _joined(lines: Iterable[str]) -> str:
    return "\n".join([*lines, ""])


def _small_json(source: Source) -> str | None:
    """Return the text where it may be JSON that is small enough; None without having read it where it is not."""
    if source.size_bytes > MAX_JSON_CHARS * _MAX_CHARACTER_BYTES or not _begins_like_json(source):
        return None
    text = "".join(_first_blocks(source))
    return text if len(text) <= MAX_JSON_CHARS else None


def _begins_like_json(source: Source) -> bool:
    begins = (block.lstrip()[:1] for block in source.blocks())
    return next(filter(None, begins), "") in {"{", "["}


def _first_blocks(source: Source) -> Iterator[str]:
    chars = 0
    for block in source.blocks():
        yield block
        chars += len(block)
        if chars > MAX_JSON_CHARS:
            return
