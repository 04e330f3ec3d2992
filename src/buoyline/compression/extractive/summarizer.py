"""`Extractive`: a summary without a model, the same for the same conversation, in any language."""

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, groupby
from typing import TYPE_CHECKING, Final

from buoyline.compression.citations import ARROW
from buoyline.compression.extractive import facts
from buoyline.compression.extractive.calls import Step, subjects_of
from buoyline.compression.extractive.conversation import Conversation, QuotationLimits
from buoyline.compression.extractive.fact_text import FILE_KINDS, NOTHING, field_text, line_of, pointers_of
from buoyline.compression.extractive.facts import FACTS
from buoyline.compression.extractive.phrases import asks
from buoyline.compression.extractive.selection import PROHIBITION_KIND, SHARES, SelectedFacts, select
from buoyline.compression.identifiers import sentences
from buoyline.compression.pointers import POINTER, Pointer, pointers_in
from buoyline.compression.summary import Draft, Fact, Summarizer, SummaryRequest

# Facts of the last summary: merged with new facts, or replaced by them.


WORK_KINDS: Final = frozenset({*FILE_KINDS, "repository", "check", "edit", "completed", "todo"})
"""Facts that come from the state of the work, which is carried on itself."""

_MARKS = re.compile(rf"{POINTER.pattern}(?:\s{{0,9}}{POINTER.pattern})*")
_NOTHING = re.compile(r"(?:none|nothing)\b.{0,20}$", re.IGNORECASE)

_STALE: Final = frozenset({"pending", "intent", "looked"})
"""Next steps of the last summary: by now they were done or replaced by others."""
_ASKED: Final = frozenset({"working", "question"})
"""The user's newest request in the last summary: it is one request of several now."""


def carried(previous: Draft | None, first: int) -> list[Fact]:
    """Return the facts of a draft; its sentences if it has no facts, like most drafts of models.

    *first* is the session index of the first message since.
    """
    if previous is None:
        return []
    if previous.items:
        return [item for item in previous.items if previous.work is None or item.kind not in WORK_KINDS]
    return [
        Fact(
            field=field,
            kind="note",
            text=text,
            pointer=pointers[0] if pointers else None,
            last_seen=max(first - 1, 0),
            weight=FACTS["task"] if position == 0 else FACTS["note"],
            order=position,
            also=pointers[1:],
        )
        for field, field_text in previous.fields.items()
        for position, (text, pointers) in enumerate(_notes(field_text))
    ]


def merged(old: Iterable[Fact], new: Iterable[Fact], made: Sequence[Step]) -> list[Fact]:
    """Join the facts of the last summary with those since, old ones first, each (field, kind, text) once.

    Equal facts become one with the newest pointer and the sum of the counts. A newer plan replaces an older one, a
    newer outcome of a call the older one, and an error is left out if its subject was tried since, in the calls *made*.
    """
    fresh = list(new)
    found: dict[tuple[str, str, str], Fact] = {}
    for item in [*_still_true(old, fresh, made), *fresh]:
        key = (item.field, item.kind, item.text)
        if (known := found.get(key)) is not None:
            newest = max(known, item, key=lambda fact: fact.last_seen)
            item = replace(newest, count=known.count + item.count, weight=max(known.weight, item.weight))  # noqa: PLW2901
        found[key] = item
    return list(found.values())


def _still_true(old: Iterable[Fact], fresh: Sequence[Fact], made: Sequence[Step]) -> Iterator[Fact]:
    """Yield the facts of the last summary as they are now; see `merged`."""
    is_asked = any(item.kind in {"request", "pasted", *_ASKED} for item in fresh)
    has_plan = any(step.action.operation == "plan" for step in made)
    called = {_call_in(item) for item in fresh if item.kind == "done"}
    answered = [step for step in made if step.answer is not None]
    tried = {subject for step in answered for subject in step.tried}
    held = list(old)
    tasks = {item.pointers for item in held if item.kind == "task"}
    for item in held:
        if item.kind in _STALE or (item.kind == "todo" and has_plan):
            continue
        if item.kind == "closing" and (is_asked or not asks(item.text)):
            continue  # the user has spoken since, or it was no question
        if item.kind == "done" and _call_in(item) in called:
            continue
        if item.kind == "error" and not tried.isdisjoint(subjects_of(_call_in(item))):
            continue  # if it failed again, the newest try is a fact itself
        if item.kind in _ASKED:
            if item.pointers not in tasks:
                yield replace(item, field="task_overview", kind="request", weight=FACTS["request"])
        elif item.kind == "report":
            yield replace(item, weight=min(item.weight, FACTS["report"]))
        else:
            yield item


def _call_in(item: Fact) -> str:
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


NAME: Final = "extractive"


class Extractive:
    """Quotes what is needed to continue, and cites where the rest is.

    It is the default, and the fallback if a model fails: it needs no network, costs no tokens, and cannot claim what
    nobody said. Everything in it is a sentence or a call of the conversation.
    """

    async def summarize(self, request: SummaryRequest) -> Draft:
        """Return `extract` of *request*, computed in a thread."""
        return await asyncio.to_thread(extract, request)


def conversation_of(request: SummaryRequest) -> Conversation:
    """Read the messages of *request*, which continue those of the last summary."""
    previous = request.previous
    has_task = any(item.field == "task_overview" for item in carried(previous, request.sources[0].index))
    limits = QuotationLimits.within(request.max_tokens, request.counter)
    return Conversation(request.sources, limits, has_task=has_task, work=previous.work if previous else None)


def extract(request: SummaryRequest, conversation: Conversation | None = None) -> Draft:
    """Summarize a conversation in its own words.

    Facts of the messages and of the last summary are merged, ranked by how likely they are needed again, and said as
    far as the tokens allow. The time is proportional to the messages. *conversation* holds the sources of *request* if
    they were read before: reading takes half of the time. ``prompt`` and ``schema`` are ignored.

    Returns:
        A draft whose fields take at most ``request.max_tokens`` together. Empty fields say so if there is room.
    """
    old = carried(request.previous, request.sources[0].index)
    limits = QuotationLimits.within(request.max_tokens, request.counter)
    conversation = conversation_of(request) if conversation is None else conversation.within(limits)
    newest = facts.newest_request(conversation) if facts.FIELD in request.fields else None
    new = chain(
        facts.overview(conversation, without=newest),
        facts.state(conversation),
        facts.discoveries(conversation),
        facts.next_steps(conversation),
        facts.preserved(conversation),
    )
    choice = select(merged(old, new, conversation.steps), request, end=conversation.end)
    fields = _fitting(choice, request)
    pointers = dict.fromkeys(pointer for items in choice.shown.values() for pointer in pointers_of(items))
    return Draft(NAME, fields, tuple(pointers), choice.carried(), work=conversation.work)


def _fitting(choice: SelectedFacts, request: SummaryRequest) -> dict[str, str]:
    """Return the text of the fields within the limit, without the least needed facts if it is exceeded.

    The tokens of lines were counted one by one, and a counter need not add up.
    """
    while True:
        fields = {name: field_text(items) for name, items in choice.shown.items()}
        if _tokens(fields, request) <= request.max_tokens:
            break
        # The field that chose last gives up the item that it chose last; a ban is given up after all else.
        by_turn = sorted(choice.shown, key=lambda name: list(SHARES).index(name) if name in SHARES else -1)
        full = [name for name in reversed(by_turn) if choice.shown[name]]
        last = min(full, key=lambda name: choice.shown[name][-1].kind == PROHIBITION_KIND, default=None)
        if last is None:
            return dict.fromkeys(fields, "")
        choice.shown[last].pop()
    # An empty field says so, if there is room: else a reader may think that it was forgotten.
    for name in [name for name, text in fields.items() if not text]:
        named = {**fields, name: NOTHING}
        if _tokens(named, request) <= request.max_tokens:
            fields = named
    return fields


def _tokens(fields: Mapping[str, str], request: SummaryRequest) -> int:
    return sum(request.counter.count(text) for text in fields.values() if text)


if TYPE_CHECKING:
    _conforms: type[Summarizer] = Extractive


# The state of the work in lines: a model that writes the summary completes them, and must not contradict them.


STATE_SHARE: Final = 0.5
"""Of the tokens of the summary. The lines are no part of it; what they say takes less room in prose."""

_STATE_KINDS: Final = WORK_KINDS | _ASKED | {"pending"}
_REQUESTS: Final = frozenset({"task", "request"})
_HEADINGS: Final = {"task_overview": "Newest request", "current_state": "Done and last seen", "next_steps": "Open"}


def with_state(request: SummaryRequest, conversation: Conversation) -> SummaryRequest:
    """Return *request* with the state of the work behind its messages, in lines.

    They are those of the extractive summary, the most needed ones if not all fit: files, the last outcome of each
    check, version control, the plan, the newest request. *conversation* is that of *request*.
    """
    found = [*facts.next_steps(conversation), *facts.state(conversation)]
    candidates = [fact for fact in found if fact.kind in _STATE_KINDS and fact.field in _HEADINGS]
    if _ASKED.isdisjoint(fact.kind for fact in found):
        candidates = [*[fact for fact in facts.overview(conversation) if fact.kind in _REQUESTS][-1:], *candidates]
    max_tokens = int(request.max_tokens * STATE_SHARE)
    room, shown = max_tokens, list[Fact]()
    for fact in sorted(candidates, key=lambda fact: (-fact.weight, -fact.last_seen)):
        room -= request.counter.count(line_of(fact)) + 1
        if room < 0:
            break
        shown.append(fact)
    ordered = sorted(shown, key=lambda fact: list(_HEADINGS).index(fact.field))
    fields = groupby(ordered, key=lambda fact: fact.field)
    text = "\n".join(f"{_HEADINGS[field]}:\n{field_text(found)}" for field, found in fields)
    return replace(request, state=request.counter.head(text, max_tokens))
