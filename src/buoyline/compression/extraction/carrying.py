"""What a summary held, brought into the next one: merged with what is new, or replaced by it."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from buoyline.compression.claims import ARROW
from buoyline.compression.extraction.gathering import REPORT, RESOLVED_ERROR, TASK, UNTRIED_ERROR, UNTRIED_MESSAGES
from buoyline.compression.extraction.steps import Step
from buoyline.compression.signals import sentences
from buoyline.compression.summary import POINTER, Draft, Item, Pointer, pointers_in

NOTE_WEIGHT: Final = 2.0
"""Of a sentence that a model, or an unknown summariser, wrote."""

_MARKS = re.compile(rf"{POINTER.pattern}(?:\s{{0,9}}{POINTER.pattern})*")
_NOTHING = re.compile(r"(?:none|nothing)\b.{0,20}$", re.IGNORECASE)

_REPLACED_BY_NEWER: Final = frozenset({"todo", "closing"})
OPEN_ERRORS: Final = frozenset({"error", "untried"})
_STALE: Final = frozenset({"pending", "question", "working", "intent"})


def carried(previous: Draft | None, first: int) -> list[Item]:
    """Return the items of a draft; from one without items, such as a model's, its sentences.

    Args:
        previous: The draft that is replaced; None when there is none.
        first: Index of the first message since, counted over the whole session.
    """
    if previous is None:
        return []
    if previous.items:
        return list(previous.items)
    return [
        Item(
            field=field,
            kind="note",
            text=text,
            pointer=pointers[0] if pointers else None,
            last_seen=max(first - 1, 0),
            weight=TASK if position == 0 else NOTE_WEIGHT,
            order=position,
            also=pointers[1:],
        )
        for field, field_text in previous.fields.items()
        for position, (text, pointers) in enumerate(_notes(field_text))
    ]


def merged(old: Iterable[Item], new: Iterable[Item], made: Sequence[Step], *, end: int) -> list[Item]:
    """Join the items of the last summary with those since.

    The same fact becomes one item with its newest pointer, seen as often as both together. A newer plan replaces
    an older one, a newer outcome of a call the older one, and an error whose subject succeeded since is resolved.

    Args:
        old: Items of the summary that is replaced.
        new: Items from the messages since.
        made: The calls since.
        end: Index behind the newest message.

    Returns:
        Items in the order given, old ones first, each (field, kind, text) once.
    """
    fresh = list(new)
    found: dict[tuple[str, str, str], Item] = {}
    for item in [*_still_true(old, fresh, made, end=end), *fresh]:
        key = (item.field, item.kind, item.text)
        found[key] = _joined(found[key], item) if key in found else item
    return list(found.values())


def _joined(old: Item, new: Item) -> Item:
    newest = max(old, new, key=lambda item: item.last_seen)
    return replace(newest, count=old.count + new.count, weight=max(old.weight, new.weight))


def _still_true(old: Iterable[Item], fresh: Iterable[Item], made: Sequence[Step], *, end: int) -> Iterator[Item]:
    kinds = {item.kind for item in fresh}
    called = {_call_in(item) for item in fresh if item.kind == "done"}
    succeeded = {step.subject for step in made if step.answer is not None and not step.has_failed}
    failed = {step.subject for step in made if step.has_failed} - succeeded
    for item in old:
        if item.kind in _STALE or (item.kind in _REPLACED_BY_NEWER and item.kind in kinds):
            continue
        if item.kind == "done" and _call_in(item) in called:
            continue
        if item.kind in OPEN_ERRORS and _call_in(item) in failed:
            continue  # what the newest try says stands in its own item
        if item.kind in OPEN_ERRORS and _call_in(item) in succeeded:
            yield replace(item, kind="resolved", weight=RESOLVED_ERROR)
        elif item.kind == "error" and end - item.last_seen > UNTRIED_MESSAGES:
            yield replace(item, kind="untried", weight=UNTRIED_ERROR)
        elif item.kind == "report":
            yield replace(item, weight=min(item.weight, REPORT))
        else:
            yield item


def _call_in(item: Item) -> str:
    return item.text.partition(ARROW)[0]


def _notes(text: str) -> Iterator[tuple[str, tuple[Pointer, ...]]]:
    """Yield the sentences of a field with the pointers behind them."""
    for line in text.splitlines():
        start = 0
        for match in _MARKS.finditer(line):
            pointers = tuple(pointers_in(match[0]))
            yield from ((sentence, pointers) for sentence in _said(line[start : match.start()]))
            start = match.end()
        yield from ((sentence, ()) for sentence in _said(line[start:]))


def _said(text: str) -> Iterator[str]:
    return (sentence for sentence in sentences(text) if not _NOTHING.match(sentence))
