r"""Patterns in ripgrep's syntax that find at least the lines that ours find.

RE2 and Rust's regex agree on most and differ in the rest: Unicode's version, what ``.`` makes of invalid UTF-8, of
surrogates and of overlong forms, what ``\d`` and ``\b`` mean, escapes that one of them lacks. Rather than trust two
engines to agree, a pattern is weakened: wherever RE2 takes a character that is not plain ASCII, any bytes will do.
What ripgrep then finds is searched again with RE2, which has the last word. What is not understood here in every
detail is not given to ripgrep at all.
"""

import re
from collections.abc import Iterator

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
