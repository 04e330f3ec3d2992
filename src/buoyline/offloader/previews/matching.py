"""Patterns that look at many lines at once, in time linear in them, whatever the lines hold."""

import importlib
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple, cast

# As much of a text is looked at as a reader needs to know its kind and its parts: 0.1 s of RE2's time.
_MAX_BYTES = 16_000_000


class Hit(NamedTuple):
    """Where a pattern was found.

    Attributes:
        number: Of the line, 1-based.
        column: The byte of the line at which the match begins, 0-based.
        groups: What its groups hold; empty where one has no part in it.
    """

    number: int
    column: int
    groups: tuple[str, ...]


class Linear:
    """A pattern in RE2's syntax, for bytes of UTF-8.

    ``^`` and ``$`` are the ends of a line, which a match never leaves. It is compiled, and RE2 imported, when it is
    first used: a program that only appends needs none of it.
    """

    def __init__(self, pattern: str) -> None:
        """Take *pattern* without looking at it."""
        self._pattern = pattern

    @cached_property
    def compiled(self) -> re.Pattern[bytes]:
        """The compiled pattern."""
        re2: Any = importlib.import_module("re2")
        options = re2.Options()
        options.never_nl = True
        options.log_errors = False
        return cast("re.Pattern[bytes]", re2.compile(b"(?m)" + self._pattern.encode(), options))


def joined(lines: Sequence[str], chars: int) -> bytes:
    r"""Return *lines* in UTF-8, each cut to *chars*, with ``\n`` between them; at most 16 MB."""
    text = "\n".join([line[:chars] for line in lines] if any(len(line) > chars for line in lines) else lines)
    return text.encode("utf-8", "replace")[:_MAX_BYTES]


def hits(pattern: Linear, text: bytes, most: int) -> Iterator[Hit]:
    """Yield where *pattern* is found in *text*, in order; no more than *most*."""
    number, position = 1, 0
    for count, found in enumerate(pattern.compiled.finditer(text)):
        if count >= most:
            return
        start = found.start()
        number += text.count(b"\n", position, start)
        position = start
        groups = tuple((group or b"").decode("utf-8", "replace") for group in found.groups())
        yield Hit(number, start - (text.rfind(b"\n", 0, start) + 1), groups)


def hit_count(pattern: Linear, text: bytes) -> int:
    """Return how often *pattern* is found in *text*."""
    return sum(1 for _ in pattern.compiled.finditer(text))
