"""The change of a file in one clause, from the arguments of the call that made it."""

import re
from collections.abc import Mapping, Sequence
from posixpath import commonprefix
from typing import Any, Final, NamedTuple

from buoyline.compression.extractive.speech import letters_of
from buoyline.compression.identifiers import readable
from buoyline.previews.outlines import defined_names
from buoyline.previews.pages import page_headings

MAX_LINE_CHARS: Final = 90
"""Of a quoted line of code."""

MAX_SHOWN_LINES: Final = 2
"""A change of so many lines is shown line by line, a larger one by its most telling line."""

MAX_NAMES: Final = 8
"""Of the definitions or headings of a new file."""

MAX_READ_LINES: Final = 40
MAX_READ_CHARS: Final = 400

_OLD_KEYS: Final = ("oldstring", "oldstr", "oldtext", "search", "old")
_NEW_KEYS: Final = ("newstring", "newstr", "newtext", "replace", "replacement", "new")
_CONTENT_KEYS: Final = frozenset({"content", "contents", "filetext"})

_NAMED = re.compile(r"\b(?:func(?:\s*\([^)]*\))?|def|class|function|fn|interface|struct|type)\s+(\w{2,80})")
_DEFINES = re.compile(r"\b(?:func|def|class|function|type|interface|struct|fn)\b")
_COMMENTS: Final = ("//", "#", "/*", "*", "import ", "from ")
_SETS_UP = re.compile(r"#!|<[!?]|</?(?:html|head|meta)\b|(?:import|from|package|use|using|#include)\b|[\W_]*$")
_STRING = re.compile(r"""["'][^"']*["'][,;]?""")
_LITERAL = re.compile(r"""(["'])[^"'\n]*\1""")
_WORD = re.compile(r"\w{2,80}")


def is_whole_file(arguments: Mapping[str, Any]) -> bool:
    """Return whether a call that changes a file gives its whole content."""
    return any(letters_of(key) in _CONTENT_KEYS for key in arguments)


class Edit(NamedTuple):
    """A change of a file.

    Attributes:
        clause: What it replaced by what: ``old → new``, with the function that it is in if one is named.
        lines: The lines of code that the clause quotes, as the call has them.
    """

    clause: str
    lines: tuple[str, ...]


def edit_in(arguments: Mapping[str, Any]) -> Edit | None:
    """Return the change that a call with *arguments* makes; None if its form is not known or nothing changes."""
    if content := _content_in(arguments):
        return _written(content.splitlines())
    texts = {letters_of(key): value for key, value in arguments.items() if isinstance(value, str)}
    old = next((texts[key] for key in _OLD_KEYS if key in texts), "")
    new = next((texts[key] for key in _NEW_KEYS if key in texts), None)
    if new is None:
        return None
    before = [line.strip() for line in old.splitlines()]
    after = [line.strip() for line in new.splitlines()]
    removed = [line for line in before if line and line not in set(after)]
    added = [line for line in after if line and line not in set(before)]
    if not added:
        return Edit(f"removed {_quoted(removed[0])}", (removed[0],)) if removed else None
    edit = _replaced(removed, added)
    named = next(((found[1], line) for line in before if (found := _NAMED.search(line))), None)
    if named is None or any(named[0] in line for line in edit.lines):
        return edit
    return Edit(f"in {named[0]}: {edit.clause}", (named[1], *edit.lines))


def beginning_of(arguments: Mapping[str, Any]) -> list[str]:
    """Return the first lines of a file that a call with *arguments* writes, without imports; empty for an edit."""
    said = (readable(line) for line in _content_in(arguments).splitlines()[:MAX_READ_LINES])
    return [line for line in said if line and not _SETS_UP.match(line)]


def _content_in(arguments: Mapping[str, Any]) -> str:
    found = (value for key, value in arguments.items() if letters_of(key) in _CONTENT_KEYS)
    return next((value for value in found if isinstance(value, str)), "")


def _written(lines: Sequence[str]) -> Edit | None:
    """Return what a new file defines, else its first line of code."""
    if names := defined_names(lines, MAX_NAMES) or page_headings(lines, MAX_NAMES):
        return Edit(", ".join(map(readable, names)), ())
    first = next((line for line in lines if line.strip() and not _is_remark(line.strip())), "").strip()
    return Edit(_quoted(first), (first,)) if first else None


def _replaced(removed: Sequence[str], added: Sequence[str]) -> Edit:
    if not removed:
        line = _telling(added, [])
        return Edit(f"+ {_quoted(line)}", (line,))
    if len(removed) == len(added) <= MAX_SHOWN_LINES:
        pairs = list(zip(removed, added, strict=True))
    else:
        new = _telling(added, removed)
        pairs = [(_telling(removed, added), new)]
    clause = "; ".join(f"{_quoted(old, new)} → {_quoted(new, old)}" for old, new in pairs)
    return Edit(clause, tuple(line for pair in pairs for line in pair))


def _telling(lines: Sequence[str], others: Sequence[str]) -> str:
    """Return the line that says most about a change: a definition, else that with the most words not in *others*."""
    code = [line for line in lines if not _is_remark(line)] or lines
    known = _names("\n".join(others))
    return next(
        (line for line in code if _DEFINES.search(line)),
        max(code, key=lambda line: len(_names(line[:MAX_READ_CHARS]) - known)),
    )


def _names(code: str) -> set[str]:
    return set(_WORD.findall(_LITERAL.sub("", code)))


def _is_remark(line: str) -> bool:
    """Return whether a line of code is a comment, an import or a bare string."""
    return line.startswith(_COMMENTS) or _STRING.fullmatch(line) is not None


def _quoted(line: str, other: str = "") -> str:
    """Return a line in backquotes, cut so that it shows where it differs from *other*."""
    shown = readable(line)
    if len(shown) <= MAX_LINE_CHARS:
        return f"`{shown}`"
    same = len(commonprefix([shown, readable(other)]))
    if same > MAX_LINE_CHARS // 2:
        start = shown.rfind(" ", 0, same - MAX_LINE_CHARS // 4) + 1
        shown = f"…{shown[start:]}" if start else shown
    return f"`{shown}`" if len(shown) <= MAX_LINE_CHARS else f"`{shown[:MAX_LINE_CHARS].rstrip()}…`"
