"""The change of a file in one clause, from the arguments of the call that made it."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from buoyline.compression.extractive.speech import letters_of
from buoyline.compression.identifiers import readable

MAX_LINE_CHARS: Final = 90
"""Of a quoted line of code."""

MAX_SHOWN_LINES: Final = 2
"""A change of so many lines is shown line by line, a larger one by its most telling line."""

_OLD_KEYS: Final = ("oldstring", "oldstr", "oldtext", "search", "old")
_NEW_KEYS: Final = ("newstring", "newstr", "newtext", "replace", "replacement", "new")
_CONTENT_KEYS: Final = frozenset({"content", "contents", "filetext"})

_NAMED = re.compile(r"\b(?:func(?:\s*\([^)]*\))?|def|class|function|fn|interface|struct|type)\s+(\w{2,80})")
_DEFINES = re.compile(r"\b(?:func|def|class|function|const|type|interface|struct|fn|let|var|public|export)\b")
_COMMENTS: Final = ("//", "#", "/*", "*", "import ", "from ")


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


def _replaced(removed: Sequence[str], added: Sequence[str]) -> Edit:
    if not removed:
        line = _telling(added)
        return Edit(f"+ {_quoted(line)}", (line,))
    if len(removed) == len(added) <= MAX_SHOWN_LINES:
        pairs = list(zip(removed, added, strict=True))
    else:
        pairs = [(_telling(removed), _telling(added))]
    clause = "; ".join(f"{_quoted(old)} → {_quoted(new)}" for old, new in pairs)
    return Edit(clause, tuple(line for pair in pairs for line in pair))


def _telling(lines: Sequence[str]) -> str:
    """Return the line that says most about a change: a definition, else the first that is no comment."""
    code = [line for line in lines if not line.startswith(_COMMENTS)] or lines
    return next((line for line in code if _DEFINES.search(line)), code[0])


def _quoted(line: str) -> str:
    shown = readable(line)
    return f"`{shown}`" if len(shown) <= MAX_LINE_CHARS else f"`{shown[:MAX_LINE_CHARS].rstrip()}…`"
