"""Patterns that are found in time linear in the bytes, whoever wrote them."""

import importlib
import re
from collections.abc import Callable
from typing import Any

from buoyline.errors import ConfigError

MAX_PATTERN_CHARS = 1_000

FindFirst = Callable[[bytes, int, int], int]
r"""Returns where the first match between two positions begins, or -1. A match lies within one line; ``^``, ``$`` and
``\b`` see the bytes before the first position and after the second."""


# RE2 cannot be interrupted. A pattern of 8,106 instructions took 9 s for 256 KiB; those of up to 2,000 take 4 ms.
_MAX_PROGRAM_SIZE = 2_000

# While RE2 compiles a pattern it holds the interpreter lock. With its own limit of 8 MB, ``(?i)\pL{400}`` took
# 184 ms; with this one 5. Searching is as fast.
_COMPILED_BYTES = 1 << 20

# Blocks of lines are searched at once, so anchors of a text become anchors of a line.
_ESCAPE = re.compile(rb"\\Q.*?(?:\\E|\Z)|\\.", re.DOTALL)


def compile_pattern(pattern: str, *, literal: bool = False, ignore_case: bool = False) -> FindFirst:
    """Prepare *pattern* for searching lines of UTF-8.

    With RE2 no pattern that a model wrote can hang the process. Python's own `re` takes more than ten seconds for
    ``(a+)+$`` on thirty characters and holds the interpreter lock meanwhile. *literal* takes *pattern* for plain text,
    and *ignore_case* upper and lower case for the same, in all scripts.

    Raises:
        ConfigError: *pattern* is empty, holds a line end, is too long or too large, or is not RE2 syntax.
    """
    try:
        needle = pattern.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ConfigError("pattern", f"holds a lone surrogate at {error.start}, which no text has") from error
    if not pattern or "\n" in pattern or len(pattern) > MAX_PATTERN_CHARS:
        problem = f"must have 1 to {MAX_PATTERN_CHARS:,} characters and no line end: each line is searched on its own"
        raise ConfigError("pattern", problem)
    re2: Any = importlib.import_module("re2")
    options = re2.Options()
    options.literal, options.case_sensitive = literal, not ignore_case
    options.never_nl = options.never_capture = True
    options.max_mem = _COMPILED_BYTES
    options.log_errors = False
    anchors = {rb"\A": b"^", rb"\z": b"$"}
    by_line = _ESCAPE.sub(lambda escape: anchors.get(escape[0], escape[0]), needle)
    expression = needle if literal else b"(?m)" + by_line
    try:
        compiled = re2.compile(expression, options)
    except re2.error as error:
        reason = b"".join(part for part in error.args if isinstance(part, bytes)).decode("utf-8", "replace")
        problem = (
            f"not RE2 syntax, which has no look-around and no back-references: {reason.replace('(?m)', '', 1)}; "
            "\\Q before a text searches for it as it is"
        )
        raise ConfigError("pattern", problem) from error

    if compiled.programsize > _MAX_PROGRAM_SIZE:
        raise ConfigError("pattern", "is too large; give smaller repetitions, or fewer alternatives")
    search = compiled.search

    def find_first(content: bytes, position: int, end: int) -> int:
        match = search(content, position, end)
        return -1 if match is None else int(match.start())

    return find_first
