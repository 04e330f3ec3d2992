"""One message in a window."""

from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from buoyline.compression import Summary
from buoyline.compression.summary import BatchReference
from buoyline.management import ContextMessage, ContextView
from buoyline.messages import (
    CachePoint,
    Json,
    Media,
    Message,
    Opaque,
    Part,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    detect,
    dialect_named,
    parse,
    spell,
)
from buoyline.messages.dialect import Blocks, Dialect
from buoyline.messages.jsonl import require_distinct_keys
from buoyline.tokens import TextCounter
from buoyline.tokens.messages import count_message, count_tools
from buoyline.window.tasks import beside


@dataclass(frozen=True, slots=True)
class Entry:
    """A native message with what we know of it, so that it is read and counted once.

    Attributes:
        native: The very object that was added, or the one that stands for it.
        dialect: Name of its dialect.
        message: Its view.
        tokens: What it takes.
        index: Its position in the session, 0-based; -1 for summary and notice, which are no messages of it.
        pinned: It stays in the context, as a copy when it is archived.
        by_hand: What is large in it shall be offloaded, whoever said it.
        is_notice: It says where messages are that left without a summary.
        added: When it was added, ISO 8601 in UTC; empty where that is not known.
    """

    native: Any
    dialect: str
    message: Message
    tokens: int
    index: int
    pinned: bool = False
    by_hand: bool = False
    is_notice: bool = False
    added: str = ""

    @property
    def images(self) -> int:
        """How many pictures stand in the message and in its results."""
        return sum(map(_images, self.message.parts))

    @property
    def stays(self) -> bool:
        """Tell whether the message stands again at the head when it is archived."""
        return self.pinned or self.message.role == "system"

    def json(self) -> dict[str, Any]:
        """Return the native message's own JSON value, as it comes back from disk."""
        value: dict[str, Any] = parse(spell(dialect_named(self.dialect).to_json(self.native)))
        return value

    def with_results(self, results: Mapping[int, Blocks], counter: TextCounter) -> "Entry":
        """Return the entry with other blocks in the n-th results; see `Dialect.with_results`."""
        return self._changed(dialect_named(self.dialect).with_results(self.native, results), counter)

    def with_content(self, blocks: Blocks, counter: TextCounter) -> "Entry":
        """Return the entry with other content of its own; see `Dialect.with_content`."""
        return self._changed(dialect_named(self.dialect).with_content(self.native, blocks), counter)

    def _changed(self, native: Any, counter: TextCounter) -> "Entry":
        message = dialect_named(self.dialect).view(native)
        return replace(self, native=native, message=message, tokens=count_message(message, counter))


def entry_of(
    native: Any,
    index: int,
    counter: TextCounter,
    *,
    dialect: str | None = None,
    pinned: bool = False,
    by_hand: bool = False,
) -> Entry:
    """Read and count a native message.

    Args:
        native: The message.
        index: Its position in the session.
        counter: Counts it.
        dialect: Left out: detected.
        pinned: See `Entry`.
        by_hand: See `Entry`.

    Raises:
        MessageError: It is no message, or has no JSON form: then nothing could ever be done with it.
    """
    found = dialect_named(dialect) if dialect else detect(native)
    return _entry(native, found, found.view(native), index, counter, pinned=pinned, by_hand=by_hand)


async def entry_beside(
    native: Any,
    index: int,
    counter: TextCounter,
    *,
    dialect: str | None = None,
    pinned: bool = False,
    by_hand: bool = False,
) -> Entry:
    """Read and count a native message as `entry_of` does, a large one beside the event loop."""
    found = dialect_named(dialect) if dialect else detect(native)
    message = found.view(native)
    chars = sum(map(_chars, message.parts))
    return await beside(chars, _entry, native, found, message, index, counter, pinned=pinned, by_hand=by_hand)


def _entry(
    native: Any, dialect: Dialect, message: Message, index: int, counter: TextCounter, *, pinned: bool, by_hand: bool
) -> Entry:
    value = dialect.to_json(native)
    spell(value)
    require_distinct_keys(value)
    return Entry(native, dialect.name, message, count_message(message, counter), index, pinned, by_hand)


def is_image(part: Part) -> bool:
    """Tell a picture, wherever its bytes are, from all else."""
    return isinstance(part, Media) and part.kind == "image"


def _images(part: Part) -> int:
    if isinstance(part, ToolResult):
        return sum(map(is_image, part.parts))
    return is_image(part)


def _chars(part: Part) -> int:
    match part:
        case Text() | Reasoning():
            return len(part.text)
        case ToolCall():
            return len(part.arguments)
        case ToolResult():
            return sum(map(_chars, part.parts))
        case Json() | Opaque():
            return len(part.json)
        case Media():
            return part.size_bytes
        case CachePoint():
            return 0


# The messages in a window behind its head, with their totals kept up to date.


class Contents:
    """Messages in order, and what they take together.

    The totals are carried along instead of added up, and so are the native messages: before each of 10,000 turns a
    walk over all messages would cost what the whole session costs, squared.
    """

    def __init__(self, entries: Sequence[Entry] = (), first: int = 0) -> None:
        """Hold *entries*, of which the first has the session index *first*.

        How many of the model's messages have left, `answers_left`, is counted from there on; `answers` are those that
        are here.
        """
        self.first = first
        self.answers_left = 0
        self.tokens = 0
        self.staying_tokens = 0
        self.images = 0
        self.answers = 0
        self._entries: list[Entry] = []
        self._natives: list[Any] = []
        for entry in entries:
            self.append(entry)

    def __len__(self) -> int:
        """Return the number of messages."""
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        """Iterate over the messages in order."""
        return iter(self._entries)

    def __getitem__(self, position: int) -> Entry:
        """Return the message at *position*, 0-based."""
        return self._entries[position]

    @property
    def end(self) -> int:
        """The session index that the next message gets."""
        return self.first + len(self._entries)

    @property
    def natives(self) -> Sequence[Any]:
        """The native messages in order; to be copied, not to be kept."""
        return self._natives

    def answer_tokens(self, index: int | None) -> int:
        """Return what the assistant's message with the session *index* takes; 0 where there is none."""
        if index is None or not self.first <= index < self.end:
            return 0
        entry = self[index - self.first]
        return entry.tokens if entry.message.role == "assistant" else 0

    def since(self, position: int, end: int | None = None) -> list[Entry]:
        """Return the messages from *position* on, up to *end* where one is given."""
        return self._entries[position:end]

    def until(self, position: int) -> list[Entry]:
        """Return the messages before *position*."""
        return self._entries[:position]

    def turn_at(self, position: int) -> int:
        """Return the position behind the model's last message before *position*: what follows answers its calls.

        Where that message holds results itself, as AgentScope's replies do, it is its own position.
        """
        while position > 0 and self._entries[position - 1].message.role != "assistant":
            position -= 1
        return position - 1 if position > 0 and self._entries[position - 1].message.results else position

    def call(self, call_id: str) -> tuple[str, ToolCall] | None:
        """Return the newest call of this id, with the dialect of its message; None where it is not here."""
        for entry in reversed(self._entries):
            for call in entry.message.calls:
                if call.call_id == call_id:
                    return entry.dialect, call
        return None

    def called(self, call_id: str, name: str, dialect: str) -> tuple[str, ToolCall]:
        """Return the call that an output answers, with the dialect of its message.

        Args:
            call_id: Of the call.
            name: Of the tool; counts more than the call's own.
            dialect: Where the call is not here.
        """
        named, call = self.call(call_id) or (dialect, ToolCall(call_id, "", ""))
        return named, ToolCall(call_id, name or call.name, call.arguments)

    def append(self, entry: Entry) -> None:
        """Take a message to the end."""
        self._entries.append(entry)
        self._natives.append(entry.native)
        self._count(entry, 1)

    def replace(self, position: int, entry: Entry) -> None:
        """Put another form of the message at *position*."""
        self._count(self._entries[position], -1)
        self._entries[position] = entry
        self._natives[position] = entry.native
        self._count(entry, 1)

    @contextmanager
    def unchanged_on_failure(self, first: int, end: int) -> Generator[None]:
        """Put the messages from position *first* up to *end* back as they were where the block fails."""
        before = self._entries[first:end]
        try:
            yield
        except BaseException:
            for position, entry in enumerate(before, first):
                self.replace(position, entry)
            raise

    def leave(self, cut: int) -> None:
        """Drop the oldest *cut* messages."""
        for entry in self._entries[:cut]:
            self._count(entry, -1)
            self.answers_left += entry.message.role == "assistant"
        del self._entries[:cut]
        del self._natives[:cut]
        self.first += cut

    def _count(self, entry: Entry, sign: int) -> None:
        self.tokens += sign * entry.tokens
        self.images += sign * entry.images
        self.answers += sign * (entry.message.role == "assistant")
        if entry.stays:
            self.staying_tokens += sign * entry.tokens


# What stands in a window, and what it takes.


@dataclass(slots=True)
class Context:
    """System prompt, tools, head, summary and messages of a session, and how far each of them has come.

    Attributes:
        system: As the provider gets it, beside the messages.
        tools: Definitions of the tools.
        counter: Counts.
        head: System messages and pins that are archived.
        summary: Stands for the messages that are archived; as a message, and with all that is known of it.
        notice: Says where messages are that left without a summary.
        again: Archived messages that stand for now, such as the user's newest words; only a document has them stay.
        contents: The messages that are not.
        pins: Session indexes of pinned messages.
        settled: How many of `contents` have the form that they keep, and are written down.
        archived: Up to this session index the archive holds the messages.
        attempts: Up to these it was tried, and it is not known whether the archive holds them.
        batches: Where the archived messages are, with an offloader that answers each batch with its own reference.
    """

    system: Any
    tools: list[Any]
    counter: TextCounter
    head: Contents = field(default_factory=Contents)
    summary: tuple[Entry, Summary] | None = None
    notice: Entry | None = None
    again: Contents = field(default_factory=Contents)
    contents: Contents = field(default_factory=Contents)
    pins: list[int] = field(default_factory=list[int])
    settled: int = 0
    archived: int = 0
    attempts: set[int] = field(default_factory=set[int])
    batches: tuple[BatchReference, ...] = ()
    _fixed_tokens: int | None = None

    def send_beside(self, system: Any, tools: list[Any]) -> None:
        """Take note that another system prompt, or other tools, are sent from now on."""
        if (system, tools) != (self.system, self.tools):
            self.system, self.tools, self._fixed_tokens = system, tools, None

    def standing(self) -> list[Entry]:
        """Return what stands before the messages: the head, the summary, the notice, and what stands for now."""
        return [*self.head, *self._ours(), *self.again]

    def fixed_tokens(self) -> int:
        """Return what system prompt and tools take; counted once."""
        if self._fixed_tokens is None:
            system = self.system if isinstance(self.system, str) else spell(self.system)
            self._fixed_tokens = self.counter.count(system) + count_tools(self.tools, self.counter)
        return self._fixed_tokens

    def tokens(self) -> int:
        """Return what everything takes."""
        return self.fixed_tokens() + self.standing_tokens() + self.contents.tokens

    def standing_tokens(self) -> int:
        """Return what takes what stands before the messages."""
        return self.head.tokens + sum(entry.tokens for entry in self._ours()) + self.again.tokens

    @property
    def attempted(self) -> int:
        """Up to which session index messages stay as they are, since they are archived, or that may be repeated."""
        return max(self.archived, *self.attempts, 0)

    @property
    def images(self) -> int:
        """How many pictures stand in the messages."""
        return self.head.images + self.again.images + self.contents.images

    def least_tokens(self) -> int:
        """Return what takes its room however much is archived."""
        return self.fixed_tokens() + self.head.tokens + self.contents.staying_tokens

    def turn(self) -> list[Entry]:
        """Return the messages since the model spoke last."""
        return self.contents.since(self.contents.turn_at(len(self.contents)))

    def movable(self) -> range:
        """Return the positions in `contents` that are written down, and whose form may still change."""
        return range(self.attempted - self.contents.first, self.settled)

    def written(self) -> list[Entry]:
        """Return the messages that are written down; those that were added since are not."""
        return self.contents.until(self.settled)

    def pins_until(self, position: int) -> list[int]:
        """Return the session indexes of the pinned messages before *position* in `contents`."""
        return [pin for pin in self.pins if pin < self.contents.first + position]

    def exceeding(self, size: int) -> list[tuple[int, int]]:
        """Return index and tokens of each message that alone does not fit *size* beside what must stand.

        Where each of them does, it is the largest.
        """
        room = size - (self.tokens() - self.contents.tokens - self.again.tokens)
        movable = [*self.again, *self.contents]
        found = [(entry.index, entry.tokens) for entry in movable if entry.tokens > room]
        largest = max(movable, key=lambda entry: entry.tokens, default=None)
        return found or ([] if largest is None else [(largest.index, largest.tokens)])

    def _ours(self) -> list[Entry]:
        found = (self.summary[0] if self.summary else None, self.notice)
        return [entry for entry in found if entry is not None]


# Showing a context to managers, who look at it and never change it.


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
        self._held: dict[int, ContextMessage] = {}
        self._stubs: Collection[str] = ()
        self._known_stubs = 0

    def held(self, entries: Sequence[Entry], stubs: Collection[str]) -> list[ContextMessage]:
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
) -> ContextView:
    """Return *context* as managers see it.

    Args:
        context: What stands in it.
        end: Position in its messages behind the last that is shown; left out: all are.
        size: Tokens of the window.
        tokens: What it takes by the best count there is; left out: by our own.
        stubs: The texts that stand for something that was stored.
        showing: Remembers how the messages were shown before; left out: each is looked at anew.
        idle_s: See `ContextView`.
        is_overflow: See `ContextView`.
    """
    head = [_held(entry, stubs, least_index=0) for entry in (*context.head, *context.again)]
    before, behind = head[: len(context.head)], head[len(context.head) :]
    ours = [_held(entry, stubs) for entry in context.standing() if entry.index < 0 and entry.message.role != "system"]
    contents, unseen = context.contents, [] if end is None else context.contents.since(end)
    shown = (showing or Showing()).held(contents.since(0, end), stubs)
    standing = [*before, *ours, *behind]
    counted = sum(held.tokens for held in standing) + contents.tokens - sum(entry.tokens for entry in unseen)
    return ContextView(
        prefix=standing,
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


def _held(entry: Entry, stubs: Collection[str], least_index: int = _OWN) -> ContextMessage:
    """Return *entry* as it is shown; of system messages in the head another process does not know the index."""
    return ContextMessage(
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
