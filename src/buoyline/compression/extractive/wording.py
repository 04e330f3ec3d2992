"""How the facts of a field read."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

from buoyline.compression.extractive.lines import merged
from buoyline.compression.pointers import Pointer, citation_marks
from buoyline.compression.summary import Fact

_RANKS: Final = {"task": 0, "report": 0, "git": 1, "check": 2, "user": 4, "last": 4, "intent": 4, "asked": 4, "plan": 5}
"""Where a kind is read in its field; files are 3, all others behind these."""

_FILES, _OTHERS = 3, 6
_MOST_POINTERS: Final = 30
_BETWEEN: Final = " · "


def line_of(text: str, pointers: Sequence[Pointer]) -> str:
    """Return a line of a field with its citations."""
    return " ".join([f"- {text}", *citation_marks(pointers[:_MOST_POINTERS])])


def field_text(facts: Iterable[Fact]) -> str:
    """Return the facts of one field, a line each; findings of one message share a line, and so do all files."""
    found = sorted(facts, key=_place)
    return "\n".join(line for rank, group in groupby(found, key=_rank) for line in _lines(rank, [*group]))


def _lines(rank: int, facts: Sequence[Fact]) -> Iterator[str]:
    if rank == _FILES:
        folders = defaultdict[str, list[str]](list)
        for fact in facts:
            folder, _, name = fact.text.rpartition("/")
            folders[f"{folder}/" if folder else ""].append(name)
        named = (
            folder + (names[0] if len(names) == 1 else f"{{{', '.join(names)}}}") for folder, names in folders.items()
        )
        yield line_of(f"Changed: {', '.join(named)}", merged(one for fact in facts for one in fact.pointers))
        return
    for (kind, _), group in groupby(facts, key=lambda fact: (fact.kind, fact.last_seen)):
        if kind == "finding":
            said = [*group]
            yield line_of(_BETWEEN.join(one.text for one in said), merged(p for one in said for p in one.pointers))
        else:
            yield from (line_of(fact.text, fact.pointers) for fact in group)


def _rank(fact: Fact) -> int:
    return _FILES if fact.kind == "file" else _RANKS.get(fact.kind, _OTHERS)


def _place(fact: Fact) -> tuple[int, int, int]:
    """Return where a fact is read: what the user said and plans in their order, the rest newest first."""
    is_in_order = fact.field in ("task_overview", "context_to_preserve") or fact.kind == "plan"
    return _rank(fact), fact.last_seen if is_in_order else -fact.last_seen, fact.order
