"""Records as text: paragraphs of ``key: value`` lines, as control files and many listings have them."""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import groupby

from buoyline.offloader.previews.facts import fact, shortened
from buoyline.offloader.previews.finding import Digest

HEADING = "heading"
"""What the first line of a paragraph is called where it is no pair; `query` knows it by this name, too."""

_LEAST_RECORDS = 4
_MOST_LACKING = 0.5
_SHOWN_KEYS = 16
_SHOWN_CHARS = 24

# The key as `query` reads it; what it reads otherwise, it could not be asked for.
_KEY = re.compile(r"([^\W\d][\w .-]{0,60}(?:\([^()]{0,30}\))?)\s*:(?:\s.*)?")


def paragraphs_digest(lines: Sequence[str]) -> Digest | None:
    """Read *lines* as records: how many there are, and their keys.

    Args:
        lines: All lines of a text. One that fits in nowhere makes it a text of another kind, as it does for `query`.

    Returns:
        One fact; None where these are no records, or hardly two have a key in common.
    """
    counts = Counter[str]()
    records = 0
    for is_blank, paragraph in groupby(lines, key=lambda line: not line.strip()):
        keys = [] if is_blank else _keys(list(paragraph), is_title_allowed=not records)
        if keys is None:
            return None
        counts.update(keys)
        records += bool(keys)
    named = [count for key, count in counts.items() if key != HEADING]
    if records < _LEAST_RECORDS or max(named, default=0) < _MOST_LACKING * records:
        return None
    shown = ", ".join(shortened(key, _SHOWN_CHARS) for key in [*counts][:_SHOWN_KEYS])
    more = ", ..." if len(counts) > _SHOWN_KEYS else ""
    return Digest((fact(f"Records: {records:,} with {shown}{more}"),))


def _keys(paragraph: Sequence[str], *, is_title_allowed: bool) -> list[str] | None:
    """Return the keys of a record, each once; none for a title, None where a line is neither pair nor heading."""
    keys: dict[str, None] = {}
    has_pair = False
    for place, line in enumerate(paragraph):
        pair = _KEY.fullmatch(line.rstrip())
        if pair is not None:
            has_pair = True
            keys[pair[1].rstrip()] = None
        elif place == 0 and (len(paragraph) > 1 or is_title_allowed):
            keys[HEADING] = None
        elif not (place and has_pair and line[0] in " \t"):
            return None
    return [*keys] if has_pair else []
