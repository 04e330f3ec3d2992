"""The state of the work in lines: a model that writes the summary completes them, and must not contradict them."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from typing import Final

from buoyline.compression.extractive import facts
from buoyline.compression.extractive.conversation import Conversation
from buoyline.compression.extractive.fact_text import field_text, line_of
from buoyline.compression.extractive.summarizer import WORK_KINDS
from buoyline.compression.summary import Fact, SummaryRequest

STATE_SHARE: Final = 0.5
"""Of the tokens of the summary. The lines are no part of it; what they say takes less room in prose."""

_ASKED: Final = frozenset({"question", "working"})
_KINDS: Final = WORK_KINDS | _ASKED | {"pending"}
_REQUESTS: Final = frozenset({"task", "request"})
_HEADINGS: Final = {"task_overview": "Newest request", "current_state": "Done and last seen", "next_steps": "Open"}


def with_state(request: SummaryRequest, conversation: Conversation) -> SummaryRequest:
    """Return *request* with the state of the work behind its messages, as data and in lines.

    The lines are those of the extractive summary, the most needed ones if not all fit: files, the last outcome of each
    check, version control, the plan, the newest request. *conversation* is that of *request*.
    """
    max_tokens = int(request.max_tokens * STATE_SHARE)
    shown = _fitting(_candidates(conversation), request, max_tokens)
    ordered = sorted(shown, key=lambda fact: list(_HEADINGS).index(fact.field))
    fields = groupby(ordered, key=lambda fact: fact.field)
    text = "\n".join(f"{_HEADINGS[field]}:\n{field_text(found)}" for field, found in fields)
    return replace(request, work=conversation.work, state=request.counter.head(text, max_tokens))


def _candidates(conversation: Conversation) -> Iterator[Fact]:
    found = [*facts.next_steps(conversation), *facts.state(conversation)]
    if _ASKED.isdisjoint(fact.kind for fact in found):
        requests = [fact for fact in facts.overview(conversation) if fact.kind in _REQUESTS]
        yield from requests[-1:]
    yield from (fact for fact in found if fact.kind in _KINDS and fact.field in _HEADINGS)


def _fitting(candidates: Iterable[Fact], request: SummaryRequest, max_tokens: int) -> Iterator[Fact]:
    """Yield the facts with the most weight, the newest among equals, as far as the tokens allow."""
    for fact in sorted(candidates, key=lambda fact: (-fact.weight, -fact.last_seen)):
        max_tokens -= request.counter.count(line_of(fact)) + 1
        if max_tokens < 0:
            return
        yield fact
