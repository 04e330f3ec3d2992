"""`Extractive`: a summary without a model, the same for the same conversation, in any language."""

import asyncio
from collections.abc import Iterable
from itertools import chain
from typing import TYPE_CHECKING, Final

from buoyline.compression.extraction import gathering, upcoming
from buoyline.compression.extraction.carrying import carried, merged
from buoyline.compression.extraction.conversation import Conversation, Limits
from buoyline.compression.extraction.selection import SHARES, Choice, select
from buoyline.compression.extraction.shelves import Shelves
from buoyline.compression.extraction.wording import NOTHING, field_text, pointers_of
from buoyline.compression.summary import Draft, Summarizer, SummaryRequest
from buoyline.tokens import TextCounter

NAME: Final = "extractive"


class Extractive:
    """Quotes what is needed to go on, and says where the rest is.

    The default, and the fallback where a model fails: it needs no network, costs no tokens, and cannot claim
    what nobody said. Everything in it is a sentence, a call or a string of the conversation.
    """

    async def summarize(self, request: SummaryRequest) -> Draft:
        """Return `extract` of *request*, worked out in a thread."""
        return await asyncio.to_thread(extract, request)


def extract(request: SummaryRequest) -> Draft:
    """Summarise a conversation by what it says itself.

    Facts are gathered from the messages and from the last summary, merged, ranked by how likely they are needed
    again, and said as far as the tokens go. Takes time in proportion to the messages.

    Args:
        request: Its sources are not empty; ``prompt`` and ``schema`` are ignored.

    Returns:
        A draft whose fields take at most ``request.max_tokens`` together; fields without content say so where
        there is room for it, else they are empty.
    """
    limits = Limits.within(request.max_tokens, request.counter)
    old = carried(request.previous, request.sources[0].index)
    has_task = any(item.field == "task_overview" for item in old)
    conversation = Conversation(request.sources, limits, has_task=has_task)
    newest = upcoming.newest_request(conversation) if upcoming.FIELD in request.fields else None
    new = chain(
        gathering.overview(conversation, without=newest),
        gathering.state(conversation),
        gathering.discoveries(conversation),
        upcoming.next_steps(conversation),
        gathering.preserved(conversation),
    )
    shelves = Shelves(conversation, old, request.counter)
    choice = select(merged(old, new, conversation.steps, end=conversation.end), request, shelves, end=conversation.end)
    fields = _fitting(choice, request)
    pointers = dict.fromkeys(pointer for items in choice.shown.values() for pointer in pointers_of(items))
    return Draft(NAME, fields, tuple(pointers), choice.carried(old, shelves.placed))


def _fitting(choice: Choice, request: SummaryRequest) -> dict[str, str]:
    """Return the fields' text within the limit; the least needed items are taken out of *choice* until it is.

    What lines cost was counted one by one, and a counter need not add up.
    """
    while True:
        fields = {name: field_text(items) for name, items in choice.shown.items()}
        excess = _tokens(fields.values(), request.counter) - request.max_tokens
        if excess <= 0:
            return _with_empty_fields_named(fields, request)
        if not _without_least_needed(choice):
            return dict.fromkeys(fields, "")


def _without_least_needed(choice: Choice) -> bool:
    """Take out the item chosen last by the field that chose last; tell whether there was one."""
    by_turn = sorted(choice.shown, key=lambda name: list(SHARES).index(name) if name in SHARES else -1)
    for name in reversed(by_turn):
        if choice.shown[name]:
            choice.shown[name].pop()
            return True
    return False


def _with_empty_fields_named(fields: dict[str, str], request: SummaryRequest) -> dict[str, str]:
    """Say of empty fields that they are, so that nobody takes them for forgotten, as far as the tokens go."""
    for name in [name for name, text in fields.items() if not text]:
        named = {**fields, name: NOTHING}
        if _tokens(named.values(), request.counter) <= request.max_tokens:
            fields = named
    return fields


def _tokens(texts: Iterable[str], counter: TextCounter) -> int:
    return sum(counter.count(text) for text in texts if text)


if TYPE_CHECKING:
    _conforms: type[Summarizer] = Extractive
