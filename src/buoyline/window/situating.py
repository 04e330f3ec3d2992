"""Showing a context to managers, who look at it and never change it."""

from collections.abc import Collection, Sequence

from buoyline.management import Held, Situation
from buoyline.messages import Text
from buoyline.window.context import Context
from buoyline.window.entry import Entry

_OWN = -1
"""The number that stands for a message's own content, where others are those of its results."""


class Showing:
    """How the messages of a context were shown last, so that only what is new or was changed is looked at again.

    Before each call of a model every manager of a document is shown the whole context: to make it anew each time took
    nearly all of the time that a document took. An entry is never changed, only replaced by another one, and stubs are
    only ever added; when one was, all is looked at again. Nothing is kept of what is no longer shown, once anything is
    shown that was not before.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self._entries: Sequence[Entry] = ()  # as long as they are here, nothing else has their ids
        self._held: dict[int, Held] = {}
        self._stubs: Collection[str] = ()
        self._known_stubs = 0

    def held(self, entries: Sequence[Entry], stubs: Collection[str]) -> list[Held]:
        """Return *entries* as they are shown where *stubs* are the texts that stand for something that was stored."""
        if stubs is not self._stubs or len(stubs) != self._known_stubs:
            self._stubs, self._known_stubs, self._held = stubs, len(stubs), {}
        if not self._held.keys() >= {*map(id, entries)}:
            known = self._held
            self._held = {id(entry): known.get(id(entry)) or _held(entry, stubs) for entry in entries}
            self._entries = tuple(entries)
        return [*map(self._held.__getitem__, map(id, entries))]


def situation_of(
    context: Context,
    *,
    end: int | None = None,
    size: int = 0,
    tokens: int | None = None,
    stubs: Collection[str] = (),
    showing: "Showing | None" = None,
    idle_s: float = 0.0,
    is_overflow: bool = False,
) -> Situation:
    """Return *context* as managers see it.

    Args:
        context: What stands in it.
        end: Position in its messages behind the last that is shown; left out: all are.
        size: Tokens of the window.
        tokens: What it takes by the best count there is; left out: by our own.
        stubs: The texts that stand for something that was stored.
        showing: Remembers how the messages were shown before; left out: each is looked at anew.
        idle_s: See `Situation`.
        is_overflow: See `Situation`.
    """
    head = [_held(entry, stubs, least_index=0) for entry in (*context.head, *context.again)]
    before, behind = head[: len(context.head)], head[len(context.head) :]
    ours = [_held(entry, stubs) for entry in context.standing() if entry.index < 0 and entry.message.role != "system"]
    contents, unseen = context.contents, [] if end is None else context.contents.since(end)
    shown = (showing or Showing()).held(contents.since(0, end), stubs)
    standing = [*before, *ours, *behind]
    counted = sum(held.tokens for held in standing) + contents.tokens - sum(entry.tokens for entry in unseen)
    return Situation(
        head=standing,
        messages=shown,
        size=size,
        counter=context.counter,
        # What the provider adds to our count, or takes from it, belongs to no message.
        fixed_tokens=context.fixed_tokens() if tokens is None else tokens - counted,
        idle_s=idle_s,
        model_calls=contents.answers_left
        + contents.answers
        - sum(entry.message.role == "assistant" for entry in unseen),
        is_overflow=is_overflow,
    )


def _held(entry: Entry, stubs: Collection[str], least_index: int = _OWN) -> Held:
    """Return *entry* as it is shown; of system messages in the head another process does not know the index."""
    return Held(
        entry.native,
        entry.message,
        entry.tokens,
        max(entry.index, least_index),
        entry.pinned,
        _stand_ins(entry, stubs),
    )


def _stand_ins(entry: Entry, stubs: Collection[str]) -> frozenset[int]:
    if not stubs:
        return frozenset()
    results = enumerate(entry.message.results)
    found = {
        number
        for number, result in results
        if any(isinstance(part, Text) and part.text in stubs for part in result.parts)
    }
    if any(isinstance(part, Text) and part.text in stubs for part in entry.message.parts):
        found.add(_OWN)
    return frozenset(found)
