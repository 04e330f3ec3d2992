"""Showing a context to managers, who look at it and never change it."""

from collections.abc import Collection

from buoyline.management import Held, Situation
from buoyline.messages import Text
from buoyline.window.context import Context
from buoyline.window.entry import Entry

_OWN = -1
"""The number that stands for a message's own content, where others are those of its results."""


def situation_of(
    context: Context,
    *,
    end: int | None = None,
    size: int = 0,
    tokens: int | None = None,
    stubs: Collection[str] = (),
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
        idle_s: See `Situation`.
        is_overflow: See `Situation`.
    """
    head = [_held(entry, stubs, least_index=0) for entry in (*context.head, *context.again)]
    before, behind = head[: len(context.head)], head[len(context.head) :]
    ours = [_held(entry, stubs) for entry in context.standing() if entry.index < 0 and entry.message.role != "system"]
    shown = [_held(entry, stubs) for entry in context.contents.since(0, end)]
    standing = [*before, *ours, *behind]
    counted = sum(held.tokens for held in (*standing, *shown))
    return Situation(
        head=standing,
        messages=shown,
        size=size,
        counter=context.counter,
        # What the provider adds to our count, or takes from it, belongs to no message.
        fixed_tokens=context.fixed_tokens() if tokens is None else tokens - counted,
        idle_s=idle_s,
        model_calls=context.contents.answers_left + sum(held.message.role == "assistant" for held in shown),
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
