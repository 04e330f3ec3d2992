"""A list that a framework owns, compared with the session."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from buoyline.messages import Message
from buoyline.window.context import Context, Entry, Head, before_of, shown_in
from buoyline.workspace.state import ContextRecord, Keys

MessageKey: TypeAlias = Callable[[Any], str]
"""Returns the id of a message of the list; empty if it has none."""


@dataclass(frozen=True, slots=True)
class Followed:
    """What `follow` found.

    Attributes:
        added: Messages that were new.
        removed: Messages that left the context.
        fork: Index of the first message after which the list goes on differently; None if it goes on.
        changed: Messages in the context that have another content than before.
    """

    added: int
    removed: int = 0
    fork: int | None = None
    changed: int = 0


@dataclass(frozen=True, slots=True)
class Given:
    """A message of the list.

    Attributes:
        kept: A copy to compare the list with at the next call: its owner may replace fields of the very object.
        id: By the caller's function; empty without one.
        key: Hash of the content.
    """

    native: Any
    kept: Any
    message: Message
    id: str
    key: str


Known: TypeAlias = Entry | Keys
"""A message of the session, or what identifies it."""


def is_same(given: Given, known: Known) -> bool:
    """Return whether they are one message: by the owner's ids if both have one, else by what a model reads."""
    return given.id == known.id if given.id and known.id else given.key in known.keys


def matched(given: Sequence[Given], known: Sequence[Known]) -> list[int]:
    """Return the places in *known* of the messages at the beginning of the list, up to the first unknown one.

    Any known message may be missing, and the rest is in order. Only a result may stand elsewhere, since it is handed
    out after its call.
    """
    places, passed, at = list[int](), list[int](), 0
    for one in given:
        found = next((place for place in range(at, len(known)) if is_same(one, known[place])), None)
        if found is not None:
            passed.extend(range(at, found))
            at = found + 1
        elif one.message.results:
            found = next((place for place in passed if is_same(one, known[place])), None)
        if found is None:
            break
        if found < at - 1:
            passed.remove(found)
        places.append(found)
    return places


def matched_latest(given: Sequence[Given], known: Sequence[Known]) -> list[int]:
    """Return as many places as `matched`, but the last ones that are possible.

    A list that was cut at its beginning may repeat what is archived: its messages are then those that are not.
    """
    first = matched(given, known)
    places = matched(given[: len(first)][::-1], known[::-1])
    return [len(known) - 1 - place for place in reversed(places)] if len(places) == len(first) else first


class Change(NamedTuple):
    """What a list says about the session.

    Attributes:
        order: Numbers of the messages of the conversation, without the new ones; None if nothing left.
        until: How many of them are archived.
        record: Whose head is taken; None with *keeps_head*, or for none.
        systems: Numbers of the archived system messages that are in the list.
        new: Behind the known messages.
        edited: Known messages with other content, by number.
    """

    order: list[int] | None
    until: int
    record: ContextRecord | None
    keeps_head: bool
    systems: frozenset[int]
    new: Sequence[Given]
    edited: Mapping[int, Given]
    removed: int = 0
    fork: int | None = None


def compared(
    given: Sequence[Given],
    context: Context,
    order: Sequence[int],
    session: Mapping[int, Keys],
    summaries: Mapping[int, Mapping[str, Any]],
) -> Change:
    """Return what has to change so that the context shows a list, and nothing else.

    What stands in front of our summary in the list is archived; what stands after it never is. *order* has the numbers
    of the conversation; *session* what identifies all its messages, and *summaries* all that it ever had.
    """
    head, theirs = context.head, {number for number, one in session.items() if not one.ours}
    shown = [shown_in(one.message, summaries) for one in given]
    at = max((place for place, ours in enumerate(shown) if ours is not None), default=None)
    listed = [one for one, ours in zip(given, shown, strict=True) if ours is None]
    base, record, live = [*order[: head.until]], None, list[Known](context.order)
    ours = None if at is None else shown[at]
    if ours is not None and ours != (head.summary.number if head.summary else head.notice):
        record = _record_of(ours, order, head, summaries)
        base = record.numbers[: record.until]
        newest = max(base, default=-1)
        live = [keys for number, keys in sorted(session.items()) if number > newest]
    archived = [session[number] for number in base if number in theirs]
    keeps_head, pairs = record is None, list[tuple[Known, Given]]()
    if at is None:
        everything = [*archived, *live]
        places = matched(listed, everything)
        if any(place < len(archived) for place in places):
            places = matched_latest(listed, everything)
        pairs = [(everything[place], one) for place, one in zip(places, listed, strict=False)]
        rest = listed[len(places) :]
        if archived and len(archived) - 1 not in places:
            keeps_head, base = False, []
    else:
        pins = _within(listed[: sum(one is None for one in shown[:at])], archived)
        rest = [one for place, one in enumerate(listed) if place not in pins]
        places = matched(rest, live)
        pairs = [(archived[place], listed[one]) for one, place in pins.items()]
        pairs += [(live[place], one) for place, one in zip(places, rest, strict=False)]
        rest = rest[len(places) :]
    found = {known.number for known, _ in pairs}
    inside = set(base)
    kept = [*base, *(n for n in (order if record is None else sorted(found)) if n in found and n not in inside)]
    staying = set(kept)
    gone = [number for number in order if number in theirs and number not in staying]
    last = max((place for place, number in enumerate(order) if number in staying), default=-1)
    fork = next((number for number in order[last + 1 :] if number in theirs), None)
    systems = frozenset(entry.number for entry in head.systems if entry.number in found)
    is_same = keeps_head and not gone and len(systems) == len(head.systems)
    edited = {known.number: one for known, one in pairs if known.number not in inside and one.key not in known.keys}
    return Change(None if is_same else kept, len(base), record, keeps_head, systems, rest, edited, len(gone), fork)


def _record_of(
    shown: int | str, order: Sequence[int], head: Head, summaries: Mapping[int, Mapping[str, Any]]
) -> ContextRecord:
    """Return the context that a message of ours was made for."""
    if isinstance(shown, int):
        found = summaries[shown]
        return ContextRecord(found["ranges"], found["until"], tuple(found["systems"]), tuple(found["pins"]), shown)
    base = [number for number in order[: head.until] if number < before_of(shown)]
    systems, pins = (tuple(one.number for one in kept if one.number in base) for kept in (head.systems, head.quotes))
    return ContextRecord(ranges_of(base), len(base), systems, pins, None, shown)


def _within(given: Sequence[Given], known: Sequence[Known]) -> dict[int, int]:
    """Return the places in *known*, in any order, by those of the messages of a list that are there."""
    found, free = dict[int, int](), dict(enumerate(known))
    for number, one in enumerate(given):
        place = next((place for place, other in free.items() if is_same(one, other)), None)
        if place is not None:
            found[number] = place
            del free[place]
    return found


def ranges_of(numbers: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Return the runs of consecutive numbers, ends excluded."""
    ranges = list[tuple[int, int]]()
    for number in numbers:
        if ranges and ranges[-1][1] == number:
            ranges[-1] = ranges[-1][0], number + 1
        else:
            ranges.append((number, number + 1))
    return tuple(ranges)
