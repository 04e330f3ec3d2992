"""What an answer without a hit suggests: the same in another case, and words that are spelled nearly so."""

import difflib
import re
from collections.abc import Iterator

from buoyline.errors import ConfigError
from buoyline.lookups.answer import shown_path
from buoyline.lookups.extents import Extents
from buoyline.lookups.hits import Hit
from buoyline.lookups.scanning import Deadline, Search, chunks_from, hits_in_file, search_for
from buoyline.workspace._files import Tree

MAX_LOOKING_S = 2.0
"""A suggestion is worth no longer wait, for each of the two."""

_WORD = re.compile(r"[A-Za-z0-9_.-]{4,60}")
_MAX_HITS = 1_000
_MAX_WORDS = 3
_MAX_PLACE_CHARS = 150
_LINE_BYTES = 1 << 12


def suggestion_for(tree: Tree, extents: Extents, pattern: str, *, literal: bool) -> str:
    """Return a line that says what would have been found in *extents*; empty where nothing would.

    Args:
        tree: Where the files are.
        extents: What was searched.
        pattern: What was searched for, with regard to case.
        literal: Whether it is the text itself.
    """
    folded = search_for(pattern, Deadline(MAX_LOOKING_S), literal=literal, ignore_case=True)
    path, hit, count = "", Hit(0, 0), 0
    for at, found in _hits(tree, extents, folded):
        path, hit = (path, hit) if count else (at, found)
        count += 1
        if count == _MAX_HITS:
            break
    if count:
        hits = f"{count:,}{' or more' if count == _MAX_HITS else ''} hit{'' if count == 1 else 's'}"
        place = f"{shown_path(path)}:{hit.number}"
        return f"[With ignore_case {hits}{f', the first in {place}' if len(place) <= _MAX_PLACE_CHARS else ''}.]\n"
    words = _near_words(tree, extents, pattern) if _WORD.fullmatch(pattern) else []
    return f"[Words that are near: {', '.join(words)}.]\n" if words else ""


def _near_words(tree: Tree, extents: Extents, word: str) -> list[str]:
    """Return up to three words of the files that are spelled nearly as *word*: those that share a half with it."""
    half = len(word) // 2
    begin, end = re.escape(word[:half]), re.escape(word[half:])
    expression = rf"\b{begin}[\w.-]{{0,60}}|[\w.-]{{0,60}}{end}\b"
    try:
        search = search_for(expression, Deadline(MAX_LOOKING_S), literal=False, ignore_case=True)
    except ConfigError:  # what Python escapes, RE2 may not know
        return []
    near: dict[str, None] = {}
    either = re.compile(expression, re.IGNORECASE | re.ASCII)
    for number, (path, hit) in enumerate(_hits(tree, extents, search)):
        with tree.open(path) as handle:
            line = next(chunks_from(handle, hit.offset, _LINE_BYTES), b"").partition(b"\n")[0]
        text = line.decode("utf-8", "replace")
        near.update(dict.fromkeys(found[0].strip(".-") for found in either.finditer(text)))
        if number == _MAX_HITS:
            break
    return difflib.get_close_matches(word, near, _MAX_WORDS, 0.7)


def _hits(tree: Tree, extents: Extents, search: Search) -> Iterator[tuple[str, Hit]]:
    for path, ranges in extents.items():
        for hit in hits_in_file(tree, path, search):
            if any(first <= hit.number <= last for first, last in ranges):
                yield path, hit
        if search.deadline.is_over():
            return
