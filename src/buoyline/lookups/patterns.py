"""How a pattern is found in bytes, in time linear in the bytes, whoever wrote the pattern."""

import importlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from buoyline.errors import ConfigError

# Patterns in ripgrep's syntax that find at least the lines that ours find.
#
# RE2 and Rust's regex agree on most and differ in the rest: Unicode's version, what ``.`` makes of invalid UTF-8, of
# surrogates and of overlong forms, what ``\d`` and ``\b`` mean, escapes that one of them lacks. Rather than trust two
# engines to agree, a pattern is weakened: wherever RE2 takes a character that is not plain ASCII, any bytes will do.
# What ripgrep then finds is searched again with RE2, which has the last word. What is not understood here in every
# detail is not given to ripgrep at all.


_WORD = "0-9A-Za-z_"
_SETS = {"d": "0-9", "w": _WORD, "s": r"\t\n\f\r "}

_TOKEN = re.compile(
    r"""
      (?P<escape> \\[dwsDWSbAz] )
    | (?P<punctuation> \\[!-/:-@\[-`{-~] )
    | (?P<set> \[\^?(?:[^\[\]\\^\n]|\\[dws]|\\[!-/:-@\[-`{-~])+\] )
    | (?P<group> \((?:\?:|\?P?<[A-Za-z0-9_]+>)?(?!\?) )
    | (?P<structure> [)|] )
    | (?P<repeat> (?:[*+?]|\{[0-9]{1,4}(?:,[0-9]{0,4})?\})\?? )
    | (?P<any> \. )
    | (?P<anchor> [\^$] )
    | (?P<plain> [^\\\[\](){}*+?|.^$\n] )
    """,
    re.VERBOSE,
)
# A character of UTF-8 has up to four bytes; one that is no ASCII may be any of them.
_ANY_BYTE = r"(?-u:[^\n])"
_ANY_BYTES = f"(?:{_ANY_BYTE}{{1,4}})"
_FIXED = {
    "(": "(?:",
    "^": "(?m:^)",
    r"\A": "(?m:^)",
    "$": "(?m:$)",
    r"\z": "(?m:$)",
    r"\b": r"(?-u:\b)",
    **dict.fromkeys((".", r"\D", r"\W", r"\S"), _ANY_BYTES),
}
_FOLDING = "(?i)"
_BEGINNING_CHARS = 3


def weakened(pattern: str, *, literal: bool = False, ignore_case: bool = False) -> str | None:
    """Return a pattern for ripgrep that matches wherever *pattern* matches, and possibly elsewhere.

    Args:
        pattern: In RE2 syntax, accepted by RE2; or with *literal* the text itself.
        literal: Whether it is the text itself.
        ignore_case: Whether upper and lower case are the same.

    Returns:
        None where that is not certain: then the search is ours alone.
    """
    if not literal and pattern.startswith(_FOLDING):
        pattern, ignore_case = pattern.removeprefix(_FOLDING), True
    # How letters beyond ASCII are folded depends on the version of Unicode, which the engines do not share.
    if not pattern or (ignore_case and not pattern.isascii()):
        return None
    parts = map(_plain, pattern) if literal else _parts(pattern)
    found = list(parts)
    if None in found:
        return None
    body = "".join(part for part in found if part is not None)
    return f"(?i:{body})" if ignore_case else body


def required_text(pattern: str) -> str:
    """Return the longest text that is plainly a part of whatever *pattern* matches.

    Args:
        pattern: In RE2 syntax, accepted by RE2.

    Returns:
        Nothing where there is none, where *pattern* is not understood, and where it begins with text: RE2 makes use
        of that by itself. No blanks at the ends: what begins with a rare character is found faster.
    """
    runs = [""]
    depth, at = 0, 0
    while at < len(pattern):
        token = _TOKEN.match(pattern, at)
        if token is None or (token[0] == "|" and not depth):
            return ""
        at = token.end()
        depth += (token.lastgroup == "group") - (token[0] == ")")
        if token.lastgroup in {"plain", "punctuation"} and not depth:
            runs[-1] += token[0][-1]
            continue
        if token.lastgroup == "repeat":
            runs[-1] = runs[-1][:-1]
        runs.append("")
    longest = max(runs, key=len).strip(" ")
    return "" if len(runs[0]) >= min(_BEGINNING_CHARS, len(longest)) else longest


def _parts(pattern: str) -> Iterator[str | None]:
    """Yield *pattern* part by part; None for what is not understood."""
    at = 0
    while at < len(pattern):
        token = _TOKEN.match(pattern, at)
        if token is None:
            yield None
            return
        part = _translated(token[0], token.lastgroup or "")
        at = token.end()
        # Any number of characters is any number of bytes; ripgrep is then better at finding what stands behind.
        yield _ANY_BYTE if part == _ANY_BYTES and pattern[at : at + 1] == "*" else part


def _translated(token: str, kind: str) -> str | None:
    if kind in {"structure", "repeat"}:
        return token
    if kind == "set":
        return _set(token)
    if kind == "escape" and token[1] in _SETS:
        return f"(?-u:[{_SETS[token[1]]}])"
    return _FIXED.get("(" if kind == "group" else token) or _plain(token[-1])


def _plain(character: str) -> str:
    is_itself = not character.isascii() or (character.isalnum())
    return character if is_itself else f"\\x{ord(character):02x}"


def _set(token: str) -> str | None:
    if token[1] == "^":
        # Not worth telling apart which bytes cannot stand there: others of the pattern must match, too.
        return _ANY_BYTES
    inner = token[1:-1]
    if not inner.isascii() or "--" in inner:  # in Rust, this is the difference of two sets
        return None
    # In Unicode's mode, since without regard to case `k` also stands for the Kelvin sign.
    return "[" + "".join(_item(item[0]) for item in re.finditer(r"\\.|.", inner)) + "]"


def _item(item: str) -> str:
    if len(item) == 2:  # noqa: PLR2004 - a backslash and what it stands before
        return _SETS.get(item[1], f"\\x{ord(item[1]):02x}")
    return item if item == "-" or item.isalnum() else f"\\x{ord(item):02x}"


MAX_PATTERN_CHARS = 1_000

Place = Callable[[bytes, int, int], int]
r"""Returns where the first match between two positions begins, or -1. A match lies within one line, and ``^``, ``$``
and ``\b`` heed what stands before the first position and behind the second."""


@dataclass(frozen=True, slots=True)
class Finder:
    """Finds a pattern.

    Attributes:
        place: Finds the first match.
        program_size: Instructions of the compiled pattern. The slowest take 7 ns a byte for each of them.
    """

    place: Place
    program_size: int


# While RE2 compiles a pattern it holds the interpreter lock. With its own limit of 8 MB, ``(?i)\pL{400}`` took
# 184 ms; with this one 5. Searching is as fast.
_COMPILED_BYTES = 1 << 20

_LEAST_TEXT_CHARS = 2

# As often as this a line that holds a text may turn out not to match before it is no longer looked for.
_MAX_IDLE_LINES = 1_000

# Blocks of lines are searched at once, so what stands for the ends of a text must stand for those of a line.
_ESCAPE = re.compile(rb"\\Q.*?(?:\\E|\Z)|\\.", re.DOTALL)


def finder(pattern: str, *, literal: bool = False, ignore_case: bool = False) -> Finder:
    """Prepare *pattern* for searching lines of UTF-8.

    RE2 is what keeps a pattern that a model wrote from hanging the process: Python's own `re` takes more than
    ten seconds for ``(a+)+$`` on thirty characters, and holds the interpreter lock all the while.

    Args:
        pattern: A regular expression in RE2 syntax, or the text itself.
        literal: Whether it is the text itself.
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
    # For text, too: with the first bytes of a pattern RE2 looks through 100 MB in 2 ms, `bytes.find` in 40.
    find = _expression(needle, literal=literal, ignore_case=ignore_case)
    text = "" if literal or ignore_case else required_text(pattern)
    if len(text) < _LEAST_TEXT_CHARS:
        return find
    return Finder(_by_text(_expression(text.encode(), literal=True).place, find.place), find.program_size)


def _by_text(find_text: Place, find: Place) -> Place:
    """Find what *find* finds, looking only into lines with a text that is in all of its matches.

    RE2 looks for a text ten times as fast as for an expression that does not begin with one.
    """
    idle_lines = 0

    def find_by_text(content: bytes, position: int, end: int) -> int:
        nonlocal idle_lines
        while idle_lines < _MAX_IDLE_LINES:
            place = find_text(content, position, end)
            if place < 0:
                return -1
            begin = max(content.rfind(b"\n", position, place) + 1, position)
            stop = content.find(b"\n", place, end)
            stop = end if stop < 0 else stop
            found = find(content, begin, stop)
            if found >= 0 or stop == end:
                return found
            idle_lines += 1
            position = stop + 1
        return find(content, position, end)

    return find_by_text


def _expression(pattern: bytes, *, literal: bool, ignore_case: bool = False) -> Finder:
    re2: Any = importlib.import_module("re2")
    options = re2.Options()
    options.literal, options.case_sensitive = literal, not ignore_case
    options.never_nl = options.never_capture = True
    options.max_mem = _COMPILED_BYTES
    options.log_errors = False
    expression = pattern if literal else b"(?m)" + _ESCAPE.sub(_anchor_to_line, pattern)
    try:
        compiled = re2.compile(expression, options)
    except re2.error as error:
        reason = b"".join(part for part in error.args if isinstance(part, bytes)).decode("utf-8", "replace")
        problem = (
            f"not RE2 syntax, which has no look-around and no back-references: {reason.replace('(?m)', '', 1)}; "
            "with literal the text is searched for as it is"
        )
        raise ConfigError("pattern", problem) from error

    search = compiled.search

    def place(content: bytes, position: int, end: int) -> int:
        match = search(content, position, end)
        return -1 if match is None else int(match.start())

    return Finder(place, int(compiled.programsize))


def _anchor_to_line(anchor: re.Match[bytes]) -> bytes:
    return {rb"\A": b"^", rb"\z": b"$"}.get(anchor[0], anchor[0])
