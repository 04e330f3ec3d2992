"""A list that a framework owns, compared with the session."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from buoyline.context.context import Context
from buoyline.context.entries import Entry
from buoyline.context.head import Head, Shown, notice_of, shown_in
from buoyline.context.records import Records
from buoyline.messages import Message
from buoyline.messages.jsonl import is_object
from buoyline.messages.registry import detect, dialect_named
from buoyline.store.state import ContextRecord, Keys

MessageKey: TypeAlias = Callable[[Any], str]
"""Returns the id of a message of the list; empty if it has none."""


@dataclass(frozen=True, slots=True)
class Followed:
    """What `follow` found.

    Attributes:
        added: Messages that were new.
        removed: Messages that left the context.
        fork: Index of the first message behind which the list goes on differently; None if it goes on.
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
    out behind its call.
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


@dataclass(frozen=True, slots=True)
class Change:
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


class ListFollower:
    """Compares lists with a session, and knows all messages and summaries that this ever had."""

    def __init__(self, records: Records, transcript: str) -> None:
        """Read what identifies each message of the session."""
        self._records = records
        self._transcript = transcript
        self.summaries: dict[int, Mapping[str, Any]] = {one["n"]: one for one in records.session.summaries()}
        self._known = {one.number: one for one in records.session.keys()}  # noqa: SIM118 - it is no mapping
        self._keys = {key for one in self._known.values() for key in one.keys}
        self._previous: list[Given] = []

    def note(self, entry: Entry) -> None:
        """Know a new message, or a new form of one."""
        self._known[entry.number] = Keys(entry.number, entry.id, entry.keys, entry.ours, archived=False)
        self._keys.update(entry.keys)

    def note_summary(self, record: Mapping[str, Any]) -> None:
        """Know a new summary."""
        self.summaries[record["n"]] = record

    def grouped(self, items: Sequence[Any], dialect: str) -> Sequence[Any]:
        """Return the messages of a list whose items are flat; see `Dialect.grouped`."""
        found = dialect_named(dialect)
        return found.grouped(items, lambda one: self._records.key(found, one, found.view(one)) in self._keys)

    def given(self, messages: Sequence[Any], key: MessageKey | None, dialect: str | None) -> list[Given]:
        """Read a list; what is as it was in the list before is not read again.

        Raises:
            MessageError: One of them is no message.
        """
        made = list[Given]()
        for at, native in enumerate(messages):
            own, old = key(native) if key else "", self._previous[at] if at < len(self._previous) else None
            if old is None or old.id != own or old.kept != native:
                form = dialect_named(dialect) if dialect else detect(native)
                view, kept = form.view(native), {**native} if is_object(native) else native
                old = Given(native, kept, view, own, self._records.key(form, native, view))
            made.append(old)
        self._previous = made
        return made

    def compared(self, given: Sequence[Given], context: Context, order: Sequence[int]) -> Change:
        """Return what has to change so that the context shows the list, and nothing else.

        What stands in front of our summary in the list is archived; what stands behind it never is.
        """
        head = context.head
        shown = [shown_in(one.message, self.summaries, self._transcript) for one in given]
        at = max((place for place, ours in enumerate(shown) if ours is not None), default=None)
        listed = [one for one, ours in zip(given, shown, strict=True) if ours is None]
        base, record, live = list(order[: head.until]), None, list[Known](context.order)
        ours = None if at is None else shown[at]
        if ours is not None and not self._is_current(ours, head):
            record = self._record_of(ours, order, head)
            base = [number for first, end in record.ranges for number in range(first, end)][: record.until]
            newest = max(base, default=-1)
            live = [keys for number, keys in sorted(self._known.items()) if number > newest]
        archived = [self._known[number] for number in base if self._is_theirs(number)]
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
        inside, known = set(base), order if record is None else sorted(found)
        kept = [*base, *(number for number in known if number in found and number not in inside)]
        staying = set(kept)
        gone = [number for number in order if number not in staying and self._is_theirs(number)]
        last = max((place for place, number in enumerate(order) if number in staying), default=-1)
        fork = next(filter(self._is_theirs, order[last + 1 :]), None)
        systems = frozenset(entry.number for entry in head.systems if entry.number in found)
        is_same = keeps_head and not gone and len(systems) == len(head.systems)
        edited = {known.number: one for known, one in pairs if known.number not in inside and one.key not in known.keys}
        return Change(None if is_same else kept, len(base), record, keeps_head, systems, rest, edited, len(gone), fork)

    def _is_theirs(self, number: int) -> bool:
        """Return whether the owner of the list knows a message: we wrote some, and lines of others are damaged."""
        return number in self._known and not self._known[number].ours

    def _is_current(self, shown: Shown, head: Head) -> bool:
        if shown.summary is not None:
            return head.summary is not None and head.summary.number == shown.summary
        return head.summary is None and head.notice == notice_of(shown.before, self._transcript)

    def _record_of(self, shown: Shown, order: Sequence[int], head: Head) -> ContextRecord:
        """Return the context that a message of ours was made for."""
        if shown.summary is not None:
            found = self.summaries[shown.summary]
            systems, pins = tuple(found["systems"]), tuple(found["pins"])
            return ContextRecord(tuple(found["ranges"]), found["until"], systems, pins, shown.summary)
        base = [number for number in order[: head.until] if number < shown.before]
        systems, pins = (
            tuple(one.number for one in kept if one.number in base) for kept in (head.systems, head.quotes)
        )
        return ContextRecord(ranges_of(base), len(base), systems, pins, None, notice_of(shown.before, self._transcript))


def _within(given: Sequence[Given], known: Sequence[Known]) -> dict[int, int]:
    """Return the places in *known*, in order, by those of the messages of a list that are there."""
    found, at = dict[int, int](), 0
    for number, one in enumerate(given):
        place = next((place for place in range(at, len(known)) if is_same(one, known[place])), None)
        if place is not None:
            found[number], at = place, place + 1
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
