"""Set the ledger beside a summary that somebody else wrote: what must stay exact is taken from the messages.

Published comparisons find the same weakness in every compaction by a model: the exact path, identifier and number.
Those are read from the messages without a model, and said where the prose does not say them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from buoyline.compression.claims import claims, mark, stands_in
from buoyline.compression.extraction.carrying import carried
from buoyline.compression.extraction.extractive import extract
from buoyline.compression.summarizers.shortening import shortened
from buoyline.compression.summary import POINTER, Draft, Item, SummaryRequest

PROSE_SHARE: Final = 0.6
"""Of the tokens that a summariser is given; the ledger has what it leaves."""

LEDGER_FIELD: Final = "context_to_preserve"

FACT_FIELDS: Final = ("current_state", "important_discoveries", LEDGER_FIELD)
"""Fields that facts are added to: files and commands, errors, and strings."""

NOTE: Final = "note"
"""Kind of an item that is a sentence of somebody's prose."""

_LEAST_TOKENS = 40
_JOIN_TOKENS = 8


def for_prose(request: SummaryRequest) -> SummaryRequest:
    """Return *request* with the tokens that the prose may take."""
    return replace(request, max_tokens=int(request.max_tokens * PROSE_SHARE))


def with_ledger(draft: Draft, request: SummaryRequest, doubtful: Sequence[str] = ()) -> Draft:
    """Return *draft* with the facts of the messages that it does not tell, as far as the tokens go.

    Its items then hold both its own sentences and the facts, so that whoever writes the next summary, a model or
    not, can carry both on.

    Args:
        draft: A summariser's, within ``request.max_tokens``.
        request: With the tokens of the whole.
        doubtful: Claims that will be marked; the marks take tokens, too, and an answer full of such claims is cut.
    """
    marked = {name: mark(text, doubtful) for name, text in draft.fields.items()}
    marks_tokens = max(_tokens(marked, request) - _tokens(draft.fields, request), 0)
    limit = max(request.max_tokens - marks_tokens, 0)
    draft = replace(draft, fields=shortened(draft.fields, limit, request.counter))
    first = request.sources[0].index
    notes = carried(replace(draft, items=()), first) if not draft.items else list(draft.items)
    names = tuple(name for name in FACT_FIELDS if name in request.fields)
    room = limit - _tokens(draft.fields, request) - _JOIN_TOKENS
    if not names or room < _LEAST_TOKENS:
        unsaid = (replace(item, is_shown=False) for item in _facts(request.previous))
        return replace(draft, items=(*notes, *unsaid))
    facts = extract(replace(request, fields=names, max_tokens=room, previous=_previous(request.previous)))
    fields = _joined(draft.fields, facts.fields)
    if _tokens(fields, request) > limit:
        fields = dict(draft.fields)
    return replace(draft, fields=fields, items=(*notes, *facts.items))


def _previous(previous: Draft | None) -> Draft | None:
    """Return the facts of the last summary without its prose: that one the summariser has brought up to date."""
    facts = _facts(previous)
    return None if previous is None or not facts else replace(previous, items=facts)


def _facts(previous: Draft | None) -> tuple[Item, ...]:
    return () if previous is None else tuple(item for item in previous.items if item.kind != NOTE)


def _joined(prose: Mapping[str, str], facts: Mapping[str, str]) -> dict[str, str]:
    told = "\n".join(prose.values())
    fields = dict(prose)
    for name, text in facts.items():
        new = [line for line in text.split("\n") if _says_more(line, told, is_ledger=name == LEDGER_FIELD)]
        fields[name] = "\n".join([fields[name].rstrip(), *new]).strip()
    return fields


def _says_more(line: str, told: str, *, is_ledger: bool) -> bool:
    """Tell whether *line* holds an exact string that the prose does not; of the user's rules, whether they are new."""
    exact = claims(line)
    if exact:
        return not all(stands_in(told, claim) for claim in exact)
    return is_ledger and bool(POINTER.search(line))


def _tokens(fields: Mapping[str, str], request: SummaryRequest) -> int:
    return request.counter.count("\n".join(fields.values()))
