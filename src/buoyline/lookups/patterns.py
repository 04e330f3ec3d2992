"""How a pattern is found in bytes, in time linear in the bytes, whoever wrote the pattern."""

import importlib
import re
from collections.abc import Callable
from typing import Any

from buoyline.errors import ConfigError

MAX_PATTERN_CHARS = 1_000

Finder = Callable[[bytes, int], int]
r"""Returns where the first match at or behind a position begins, or -1. A match lies within one line, and ``^``,
``$`` and ``\b`` heed what stands before the position."""

# Blocks of lines are searched at once, so what stands for the ends of a text must stand for those of a line.
_ESCAPE = re.compile(rb"\\Q.*?(?:\\E|\Z)|\\.", re.DOTALL)


def finder(pattern: str, *, literal: bool = False, ignore_case: bool = False) -> Finder:
    """Prepare *pattern* for searching lines of UTF-8.

    RE2 is what keeps a pattern that a model wrote from hanging the process: Python's own `re` takes more than
    ten seconds for ``(a+)+$`` on thirty characters, and holds the interpreter lock all the while.

    Args:
        pattern: A regular expression in RE2 syntax, or the text itself.
        literal: Whether it is the text itself. Then RE2 is only needed to ignore case.
        ignore_case: Whether upper and lower case are the same, in all scripts.

    Raises:
        ConfigError: *pattern* is empty, holds a line end, is too long, or is not RE2 syntax.
    """
    try:
        needle = pattern.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ConfigError("pattern", f"holds a lone surrogate at {error.start}, which no text has") from error
    if not pattern or "\n" in pattern or len(pattern) > MAX_PATTERN_CHARS:
        problem = f"must have 1 to {MAX_PATTERN_CHARS:,} characters and no line end: each line is searched on its own"
        raise ConfigError("pattern", problem)
    if literal and not ignore_case:
        return lambda content, position: content.find(needle, position)
    return _expression(needle, literal=literal, ignore_case=ignore_case)


def _expression(pattern: bytes, *, literal: bool, ignore_case: bool) -> Finder:
    re2: Any = importlib.import_module("re2")
    options = re2.Options()
    options.literal, options.case_sensitive = literal, not ignore_case
    options.never_nl = options.never_capture = True
    options.log_errors = False
    expression = pattern if literal else b"(?m)" + _ESCAPE.sub(_anchor_to_line, pattern)
    try:
        search = re2.compile(expression, options).search
    except re2.error as error:
        reason = b"".join(part for part in error.args if isinstance(part, bytes)).decode("utf-8", "replace")
        problem = (
            f"not RE2 syntax ({reason}), which has no look-around and no back-references; "
            "a literal search (literal=True, or -F) takes the text as it stands"
        )
        raise ConfigError("pattern", problem) from error

    def find(content: bytes, position: int) -> int:
        match = search(content, position)
        return -1 if match is None else int(match.start())

    return find


def _anchor_to_line(anchor: re.Match[bytes]) -> bytes:
    return {rb"\A": b"^", rb"\z": b"$"}.get(anchor[0], anchor[0])
