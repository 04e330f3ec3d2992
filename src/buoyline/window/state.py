"""A context as a value: its messages with their totals, and the prefix.

Nothing here changes in place. A change makes another `State`; see `buoyline.window.context`.
"""

import copy
import itertools
import operator
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Any, NamedTuple, overload

from buoyline.compression import Summary
from buoyline.compression.summary import BatchReference
from buoyline.errors import MessageError
from buoyline.management.context import ContextMessage, ContextView
from buoyline.messages import CachePoint, Json, Media, Message, Opaque, Reasoning, Text, ToolCall, ToolResult, spell
from buoyline.messages.dialect import Blocks, Dialect
from buoyline.messages.jsonl import parse
from buoyline.messages.model import Part, join_texts, text_in
from buoyline.messages.registry import detect, dialect_named
from buoyline.tokens import TextCounter
from buoyline.tokens.messages import count_message
from buoyline.window.tasks import beside


@dataclass(frozen=True, slots=True)
class Entry:
    """A native message with its view and its tokens, so that it is read and counted once.

    Attributes:
        native: The object that was added, or the one with stubs that replaces it.
        index: Session index, 0-based; -1 for a summary and a reference line, which are no messages of the session.
        pinned: It stays in the context, as a copy when it is archived.
        by_hand: Its large content is offloaded, whoever said it.
        is_notice: It is a reference line: it says where messages are that were archived without a summary.
        added: When it was added, ISO 8601 in UTC; empty if that is not known.
        words: A message of the user's that is handed out in its place, since calls of its results are archived, and a
            provider refuses a result without its call; None if there is none.
        late: Numbers of those results, 0-based.
        original: A copy of the native message, to see whether its owner has changed it since; None for one that is not
            its own JSON value.
        images: How many images are in the message and in its results.
        stays: The message is reinserted when it is archived.
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
    words: Any = None
    late: frozenset[int] = frozenset()
    original: Any = field(default=None, repr=False, compare=False)
    images: int = field(init=False)
    stays: bool = field(init=False)

    def __post_init__(self) -> None:
        """Count the images once: every change of the context adds them up."""
        count = 0
        for part in self.message.parts:
            for inner in part.parts if isinstance(part, ToolResult) else (part,):
                count += isinstance(inner, Media) and inner.kind == "image"
        object.__setattr__(self, "images", count)
        object.__setattr__(self, "stays", self.pinned or self.message.role == "system")

    @property
    def shown(self) -> Any:
        """The message as it is handed out."""
        return self.native if self.words is None else self.words

    def json(self) -> dict[str, Any]:
        """Return the native message's own JSON value, as it comes back from disk."""
        value: dict[str, Any] = parse(spell(dialect_named(self.dialect).to_json(self.native)))
        return value

    def check(self) -> None:
        """Check that another process can read the native message, which its owner may have changed since.

        Raises:
            MessageError: It is a message no longer.
        """
        if self.original is not None and self.native == self.original:
            return  # reading it again took a tenth of the calls of a `prepare`
        try:
            dialect_named(self.dialect).view(self.native)
        except MessageError as error:
            reason = f"it was changed after it was added, and is no message now: {error.reason}; undo the change"
            raise MessageError(reason, None if self.index < 0 else self.index) from error

    def with_results(self, results: Mapping[int, Blocks], counter: TextCounter) -> "Entry":
        """Return the entry with other blocks in the n-th results; see `Dialect.with_results`."""
        dialect = dialect_named(self.dialect)
        return self._changed(dialect, dialect.with_results(self.native, results), counter)

    def with_content(self, blocks: Blocks, counter: TextCounter) -> "Entry":
        """Return the entry with other content of its own; see `Dialect.with_content`."""
        dialect = dialect_named(self.dialect)
        return self._changed(dialect, dialect.with_content(self.native, blocks), counter)

    def with_words(self, late: Mapping[int, str], counter: TextCounter) -> "Entry":
        """Return the entry with `words` in place of the n-th results, whose tools are given; they count, too."""
        dialect = dialect_named(self.dialect)
        words = in_words(dialect, self.native, self.message, late)
        return replace(self, words=words, late=frozenset(late), tokens=count_message(dialect.view(words), counter))

    def _changed(self, dialect: Dialect, native: Any, counter: TextCounter) -> "Entry":
        message = dialect.view(native)
        tokens, original = count_message(message, counter), self.original and _copy_of(native, native)
        form = replace(self, native=native, message=message, tokens=tokens, original=original)
        return replace(form, words=None, late=frozenset())


_LATE_RESULT = "[Result of the call "
_TOOL_OF_LATE_RESULT = re.compile(r"(?m)^(\[Result of the call .*?) of \S+(, which is archived:\])$")


def in_words(dialect: Dialect, native: Any, message: Message, late: Mapping[int, str]) -> Any:
    """Return *native*, whose view is *message*, with text in place of the n-th results, whose tools are given."""
    blocks, numbers = list[str | int](), itertools.count()
    for at, part in enumerate(message.parts):
        if isinstance(part, ToolResult) and (number := next(numbers)) in late:
            shown = [f"[{one.kind}]" if isinstance(one, Media | Opaque) else text_in(one) or "" for one in part.parts]
            of_tool = f" of {late[number]}" if late[number] else ""
            head = f"{_LATE_RESULT}{part.call_id!r}{of_tool}, which is archived:]"
            blocks.append(f"{head}\n{join_texts(shown)}")
        else:
            blocks.append(at)
    texts = [block for block in blocks if isinstance(block, str)]
    is_whole = len(texts) == len(blocks)
    return dialect.user_message("\n\n".join(texts)) if is_whole else dialect.with_content(native, blocks)


def is_in_words(view: Message, dialect: Dialect, native: Any) -> bool:
    """Return whether *view* is *native* with text in place of some of its results.

    The tools are not compared: another process may not know them, and ids repeat.
    """
    if not any(isinstance(part, Text) and part.text.startswith(_LATE_RESULT) for part in view.parts):
        return False
    message, results, late = dialect.view(native), [*view.results], dict[int, str]()
    for number, result in enumerate(message.results):
        if results[:1] == [result]:
            del results[0]
        else:
            late[number] = ""
    words = dialect.view(in_words(dialect, native, message, late))
    return words.role == view.role and _without_tools(words) == _without_tools(view)


def _without_tools(view: Message) -> list[Part]:
    parts = (part for part in view.parts if not isinstance(part, CachePoint))
    return [Text(_TOOL_OF_LATE_RESULT.sub(r"\1\2", part.text)) if isinstance(part, Text) else part for part in parts]


def entry_of(
    native: Any,
    index: int,
    counter: TextCounter,
    *,
    dialect: str | None = None,
    pinned: bool = False,
    by_hand: bool = False,
    message: Message | None = None,
) -> Entry:
    """Read and count a native message; see `Entry`. A *dialect* that is left out is detected.

    *message* is its view, if that is known.

    Raises:
        MessageError: It is not a message, or has no JSON form.
    """
    found = dialect_named(dialect) if dialect else detect(native)
    view = found.view(native) if message is None else message
    value = found.to_json(native)
    spell(value)
    tokens, original = count_message(view, counter), _copy_of(native, value)
    return Entry(native, found.name, view, tokens, index, pinned, by_hand, original=original)


def _copy_of(native: Any, value: Any) -> Any:
    """Return a copy of *native*, which shares its texts; None if it is not its own JSON *value*."""
    try:
        return copy.deepcopy(native) if native == value else None
    except (RecursionError, TypeError, copy.Error):  # it nests too deep, or holds a dict of somebody's own
        return None


async def entry_beside(
    native: Any,
    index: int,
    counter: TextCounter,
    *,
    dialect: str | None = None,
    pinned: bool = False,
    by_hand: bool = False,
) -> Entry:
    """Read and count a native message as `entry_of` does, a large one off the event loop."""
    found = dialect_named(dialect) if dialect else detect(native)
    message, name = found.view(native), found.name
    chars = sum(map(_chars, message.parts))
    return await beside(
        chars, entry_of, native, index, counter, dialect=name, pinned=pinned, by_hand=by_hand, message=message
    )


def view_of(dialect: str, value: Mapping[str, Any]) -> Message:
    """Return the view of a message of *dialect* by its JSON value."""
    found = dialect_named(dialect)
    return found.view(found.from_json(value))


def is_image(part: Part) -> bool:
    """Return whether *part* is an image, wherever its bytes are."""
    return isinstance(part, Media) and part.kind == "image"


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


# The messages of a context, with their totals.


@dataclass(frozen=True, slots=True, eq=False)
class Messages(Sequence[Entry]):
    """Messages in order, with their totals; it never changes.

    A session of 10,000 turns makes as many of these. So the messages that follow are appended to the same list, behind
    the end of those that know fewer, and each change adds its share to the totals. To copy the list, or walk over it,
    before each turn would cost what the session costs, squared. The native messages have a list for the same reason.

    Attributes:
        first: Session index of the first message.
        staying_tokens: Tokens of those that are reinserted when they are archived.
        answers: How many of them are the model's.
    """

    first: int = 0
    tokens: int = 0
    staying_tokens: int = 0
    images: int = 0
    answers: int = 0
    _entries: list[Entry] = field(default_factory=list[Entry], repr=False)
    _shown: list[Any] = field(default_factory=list[Any], repr=False)
    _count: int = 0

    @classmethod
    def of(cls, entries: Iterable[Entry], first: int = 0) -> "Messages":
        """Return *entries*, of which the first has the session index *first*."""
        return cls(first).extended(entries)

    def __len__(self) -> int:
        """Return the number of messages."""
        return self._count

    def __iter__(self) -> Iterator[Entry]:
        """Iterate over the messages in order."""
        return islice(self._entries, self._count)

    @overload
    def __getitem__(self, position: int) -> Entry: ...

    @overload
    def __getitem__(self, position: slice) -> list[Entry]: ...

    def __getitem__(self, position: int | slice) -> Entry | list[Entry]:
        """Return the message at *position*, 0-based, or the messages of a slice."""
        if isinstance(position, slice):
            start, stop, step = position.indices(self._count)
            return self._entries[start:stop:step]
        return self._entries[range(self._count)[position]]

    @property
    def shown(self) -> list[Any]:
        """The messages as they are handed out, in a list of its own."""
        return self._shown[: self._count]

    @property
    def end(self) -> int:
        """The session index that the next message gets."""
        return self.first + self._count

    def extended(self, new: Iterable[Entry]) -> "Messages":
        """Return these messages and the *new* ones behind them."""
        added = list(new)
        entries, shown, end = self._entries, self._shown, self._count + len(added)
        known = entries[self._count : end]
        # Other messages may have been appended meanwhile, such as the same ones before they were written down.
        if self._count == 0 or not all(map(operator.is_, known, added)):
            entries, shown, known = entries[: self._count], shown[: self._count], []
        for entry in added[len(known) :]:
            entries.append(entry)
            shown.append(entry.shown)
        return self._with(entries, shown, end, (), added)

    def changed(self, changes: Mapping[int, Entry]) -> "Messages":
        """Return these messages with those at some positions in another form."""
        entries, shown = self[:], self.shown
        removed = [entries[position] for position in changes]
        for position, entry in changes.items():
            entries[position], shown[position] = entry, entry.shown
        return self._with(entries, shown, self._count, removed, changes.values())

    def until(self, count: int) -> "Messages":
        """Return the oldest *count* of these messages."""
        return self._with(self._entries, self._shown, min(count, self._count), self[count:], ())

    def without(self, count: int) -> "Messages":
        """Return these messages without the oldest *count*."""
        if not count:
            return self
        if count >= self._count:
            return Messages(self.first + count)
        kept, shown = self[count:], self._shown[count : self._count]
        return replace(self._with(kept, shown, len(kept), self[:count], ()), first=self.first + count)

    def renumbered(self, first: int) -> "Messages":
        """Return these messages with *first* as the session index of the first."""
        if first == self.first:
            return self
        return Messages.of([replace(entry, index=index) for index, entry in enumerate(self, first)], first)

    def answer_tokens(self, index: int) -> int:
        """Return the tokens of the assistant's message with the session *index*; 0 if there is no such message."""
        if not self.first <= index < self.end:
            return 0
        entry = self[index - self.first]
        return entry.tokens if entry.message.role == "assistant" else 0

    def turn_at(self, position: int) -> int:
        """Return the position behind the model's last message before *position*: what follows answers its calls.

        If that message holds results itself, as AgentScope's replies do, return its own position.
        """
        while position > 0 and self._entries[position - 1].message.role != "assistant":
            position -= 1
        return position - 1 if position > 0 and self._entries[position - 1].message.results else position

    def called(self, call_id: str, name: str, dialect: str) -> tuple[str, ToolCall]:
        """Return the newest call that an output answers, with the dialect of its message; *dialect* if it is not here.

        *name* is that of the tool, and counts more than the call's own; it may be empty.
        """
        found = (
            (entry.dialect, call) for entry in reversed(self) for call in entry.message.calls if call.call_id == call_id
        )
        named, call = next(found, (dialect, ToolCall(call_id, "", "")))
        return named, ToolCall(call_id, name or call.name, call.arguments)

    def _with(
        self, entries: list[Entry], shown: list[Any], count: int, removed: Iterable[Entry], added: Iterable[Entry]
    ) -> "Messages":
        tokens, staying, images, answers = self.tokens, self.staying_tokens, self.images, self.answers
        for sign, changed in ((-1, removed), (1, added)):
            for entry in changed:
                tokens += sign * entry.tokens
                images += sign * entry.images
                answers += sign * (entry.message.role == "assistant")
                staying += sign * entry.tokens if entry.stays else 0
        return Messages(self.first, tokens, staying, images, answers, entries, shown, count)


class SummaryEntry(NamedTuple):
    """A summary in the context: the message, and its facts."""

    entry: Entry
    summary: Summary


Place = tuple[int, int]
"""Of a tool result: the session index of its message, and its number in the message."""


@dataclass(frozen=True, slots=True)
class State:
    """The context of a session as it is on disk.

    It is shallow: native messages belong to the caller, and nobody changes them.

    Attributes:
        prefix: System messages and pins that are archived.
        summary: Replaces the messages that are archived.
        notice: The reference line: where messages are that were archived without a summary.
        reinserted: Archived messages that are in the context for now, such as the user's newest words.
        messages: The messages that are not archived, or whose compaction has not ended.
        pins: Session indexes of pinned messages.
        archived_until: The archive holds the messages before this session index.
        attempts: Ends of attempts to archive of which it is not known whether they succeeded.
        batches: References of the archived batches, if the offloader gives each its own.
    """

    prefix: Messages = Messages()
    summary: SummaryEntry | None = None
    notice: Entry | None = None
    reinserted: Messages = Messages()
    messages: Messages = Messages()
    pins: frozenset[int] = frozenset()
    archived_until: int = 0
    attempts: frozenset[int] = frozenset()
    batches: tuple[BatchReference, ...] = ()
    images: int = field(init=False)
    leading_tokens: int = field(init=False)

    def __post_init__(self) -> None:
        """Add up what every budget asks for."""
        images = self.prefix.images + self.reinserted.images + self.messages.images
        summary = 0 if self.summary is None else self.summary.entry.tokens
        notice = 0 if self.notice is None else self.notice.tokens
        object.__setattr__(self, "images", images)
        object.__setattr__(self, "leading_tokens", self.prefix.tokens + summary + notice + self.reinserted.tokens)

    @property
    def leading(self) -> list[Entry]:
        """The prefix, the summary, the reference line, and the messages that are reinserted for now, in this order."""
        ours = [] if self.summary is None else [self.summary.entry]
        ours += [] if self.notice is None else [self.notice]
        return [*self.prefix[:], *ours, *self.reinserted[:]]

    @property
    def attempted_until(self) -> int:
        """Messages before this session index keep their form: they are archived, or archiving may be repeated."""
        return max(self.archived_until, *self.attempts, 0)

    @property
    def movable(self) -> range:
        """The positions of the messages whose form may still change."""
        return range(self.attempted_until - self.messages.first, len(self.messages))

    def results_without_call(self, ids: Container[str], count: int | None = None) -> dict[Place, ToolResult]:
        """Return the results of these call *ids* that belong to no call in the context.

        As in `pair_spans`, a result belongs to the nearest earlier call of its id that has none yet. With *count*, only
        the newest messages are new: if their calls are close, as nearly always, no older ones are read.
        """
        waiting: dict[str, dict[Place, ToolResult]] = {}
        for passed, entry in enumerate(chain(reversed(self.messages), reversed(self.leading))):
            if count is not None and passed >= count and not waiting:
                break
            for number, result in reversed([*enumerate(entry.message.results)]):
                if result.call_id in ids:
                    waiting.setdefault(result.call_id, {})[entry.index, number] = result
            for call in entry.message.calls:  # also before results in the same message: AgentScope's have both
                if results := waiting.get(call.call_id):
                    results.popitem()
                    if not results:
                        del waiting[call.call_id]
        return {place: result for results in waiting.values() for place, result in results.items()}

    def extended(self, new: Sequence[Entry]) -> "State":
        """Return the context with *new* messages at its end."""
        if not new:
            return self
        pins = self.pins.union([entry.index for entry in new if entry.pinned])
        return replace(self, messages=self.messages.extended(new), pins=pins)

    def until(self, index: int) -> "State":
        """Return the context as it was before the message with the session *index* was added."""
        return replace(
            self,
            messages=self.messages.until(index - self.messages.first),
            pins=frozenset(pin for pin in self.pins if pin < index),
        )


# Showing a context to managers, who look at it and never change it.


class Showing:
    """The views of a context for managers, of which only those of new and changed messages are made again.

    Every manager of a document sees the whole context before each model call; to make all views each time took nearly
    all the time of a document. An entry never changes, only another one replaces it. Views of messages that are no
    longer in the context are dropped with the next new one.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self._entries: Sequence[Entry] = ()  # as long as they are here, nothing else has their ids
        self._held: dict[int, ContextMessage] = {}

    def held(self, entries: Sequence[Entry]) -> list[ContextMessage]:
        """Return the views of *entries*."""
        if not self._held.keys() >= {*map(id, entries)}:
            known = self._held
            self._held = {id(entry): known.get(id(entry)) or _held(entry) for entry in entries}
            self._entries = tuple(entries)
        return [*map(self._held.__getitem__, map(id, entries))]


def situation_of(
    state: State, counter: TextCounter, fixed_tokens: int, *, size: int = 0, showing: "Showing | None" = None
) -> ContextView:
    """Return the context as managers see it; see `ContextView`.

    *showing* remembers the views of the messages; without it, all are made again.
    """
    head = [_held(entry, least_index=0) for entry in (*state.prefix, *state.reinserted)]
    before, behind = head[: len(state.prefix)], head[len(state.prefix) :]
    ours = [_held(entry) for entry in state.leading if entry.index < 0 and entry.message.role != "system"]
    return ContextView(
        prefix=[*before, *ours, *behind],
        messages=(showing or Showing()).held(state.messages),
        size=size,
        counter=counter,
        fixed_tokens=fixed_tokens,
    )


def _held(entry: Entry, least_index: int = -1) -> ContextMessage:
    """Return the view of *entry*; another process does not know the index of a system message in the prefix."""
    return ContextMessage(entry.native, entry.message, entry.tokens, max(entry.index, least_index), entry.pinned)
