"""The log of a window on disk, and the state that another process makes of it."""

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Final, NamedTuple

from buoyline.compression import Summary
from buoyline.compression.summary import summary_from
from buoyline.errors import CorruptError, NotFoundError, StaleWindowError
from buoyline.messages import Converted, convert
from buoyline.messages.registry import dialect_named
from buoyline.offloader import Abilities, ModelCall, StoredResult, WindowLog, WindowState
from buoyline.tokens import TextCounter
from buoyline.tokens.usage import Usage
from buoyline.window.events import ResultOffloaded
from buoyline.window.state import Entry, Messages, State, SummaryEntry, entry_of

PIN: Final = "pin"
SUMMARY: Final = "summary"
NOTICE: Final = "notice"
"""Kind of a reference line in the prefix of a window."""
AGAIN: Final = "again"
"""Kind of an archived message that is reinserted for now; its session index follows, after a colon."""


class Extend(NamedTuple):
    """Appends messages to those on disk; without messages, it only checks that the window is still ours.

    Attributes:
        new: The messages.
        pins: Session indexes of all pinned messages.
    """

    new: Sequence[Entry]
    pins: frozenset[int]


class Replace(NamedTuple):
    """Writes the whole context."""

    state: State


class Change(NamedTuple):
    """A change of a context: before, after, and what is written and reported.

    Attributes:
        base: The context that the change was built from.
        state: The context afterwards.
        write: Written before; None if the window's file stays as it is.
        events: Emitted afterwards.
        is_compaction: Messages were evicted, so the provider's count of the context no longer holds.
        discarded: How many of the added messages are discarded; None for those that *state* has.
    """

    base: State
    state: State
    write: Extend | Replace | None = None
    events: Sequence[ResultOffloaded] = ()
    is_compaction: bool = False
    discarded: int | None = None


class ContextLog:
    """Writes a context to a workspace's log of windows; does nothing if there is no log.

    Attributes:
        log: The log.
        session_id: The session.
        writer: Identifies this window: the log refuses others once one has taken over.
        stubs: Stubs with their results that the next change records.
        calls: Model calls that are not recorded yet. The newest waits for its usage, or for the next one.
    """

    def __init__(self, log: WindowLog | None, session_id: str) -> None:
        """Write to *log* as a writer of its own."""
        self.log = log
        self.session_id = session_id
        self.writer = uuid.uuid4().hex
        self.stubs: dict[str, StoredResult] = {}
        self.calls: list[ModelCall] = []

    def note_call(self, call: ModelCall) -> None:
        """Let the next change record a model call."""
        if self.log is not None:
            self.calls.append(call)

    def note_usage(self, usage: Usage, model: str) -> None:
        """Add what the provider said of the newest call, unless that is recorded already."""
        if self.calls:
            self.calls[-1] = replace(self.calls[-1], usage=asdict(usage), model=model)

    @property
    def finished_calls(self) -> list[ModelCall]:
        """The calls that the next change records."""
        return self.calls[:] if self.calls and self.calls[-1].usage else self.calls[:-1]

    async def start(self, settings: Mapping[str, Any]) -> None:
        """Begin a window without messages; may be repeated.

        Raises:
            SessionExistsError: The session has messages or a window already.
        """
        if self.log is not None:
            await self.log.start_window(self.session_id, settings, writer=self.writer)

    async def check(self, state: State) -> None:
        """Check that no other window has taken over, before an operation that does not write the window.

        Raises:
            StaleWindowError: Another window has taken the session over.
        """
        await self.apply(Extend((), state.pins))

    async def apply(self, write: Extend | Replace | None) -> None:
        """Write a change.

        Raises:
            MessageError: A message was changed after it was added, and another process could not read it.
            StaleWindowError: See `check`.
        """
        if self.log is None or write is None:
            return
        entries = write.new if isinstance(write, Extend) else (*write.state.leading, *write.state.messages)
        natives, times, dialects = list[Any](), list[str](), list[str]()
        for entry in entries:
            entry.check()
            natives.append(entry.native)
            times.append(entry.added)
            dialects.append(entry.dialect)
        session_id, writer, stubs = self.session_id, self.writer, list(self.stubs.items())
        calls = self.finished_calls
        if isinstance(write, Extend):
            await self.log.extend_window(
                session_id,
                natives,
                sorted(write.pins),
                times=times,
                dialects=dialects,
                stubs=stubs,
                calls=calls,
                writer=writer,
            )
        else:
            kinds, first = [kind_of(entry) for entry in write.state.leading], write.state.messages.first
            pins = sorted(write.state.pins)
            await self.log.replace_window(
                session_id,
                natives,
                kinds,
                first,
                pins,
                times=times,
                dialects=dialects,
                stubs=stubs,
                calls=calls,
                writer=writer,
            )
        del self.calls[: len(calls)]
        for stub, _ in stubs:
            self.stubs.pop(stub, None)


def kind_of(entry: Entry) -> str:
    """Return the kind of an entry of the prefix, as a window's file has it."""
    if entry.pinned:
        return PIN
    if entry.message.role == "system":
        return "system"
    if entry.index >= 0:
        return f"{AGAIN}:{entry.index}"
    return NOTICE if entry.is_notice else SUMMARY


# The state of a context that another process has written.


def restored(found: WindowState, summaries: Sequence[Summary], counter: TextCounter, dialect: str | None) -> State:
    """Return the context that another process has written.

    Args:
        found: The session's window.
        summaries: Of the session, in order.
        counter: Counts.
        dialect: The one that all messages have; None: each its own.

    Raises:
        CorruptError: The summary in the context is not among *summaries*.
    """
    head, others = found.messages[: len(found.head)], found.messages[len(found.head) :]
    prefix: list[tuple[str, Entry]] = []
    for (kind, index), (named, value) in zip(indexed(found.head, found.pins), head, strict=True):
        native = dialect_named(named).from_json(value)
        prefix.append((kind, entry_of(native, index, counter, dialect=dialect or named, pinned=kind == PIN)))
    entries: list[Entry] = []
    times = found.times[len(head) :] or [""] * len(others)
    for index, ((named, value), added) in enumerate(zip(others, times, strict=True), found.first):
        native = dialect_named(named).from_json(value)
        entry = entry_of(native, index, counter, dialect=dialect or named, pinned=index in found.pins)
        entries.append(replace(entry, added=added))
    state = state_of(prefix, Messages.of(entries, found.first), found.pins, lambda entry: _shown(summaries, entry))
    return replace(state, archived_until=found.archived)


def indexed(kinds: Sequence[str], pins: Sequence[int]) -> Iterator[tuple[str, int]]:
    """Yield kind and session index of each entry of a prefix; *pins* begins with those of its pins."""
    in_prefix = iter(pins)
    for spelled in kinds:
        kind, _, index = spelled.partition(":")
        yield kind, next(in_prefix) if kind == PIN else int(index or -1)


def state_of(
    prefix: Iterable[tuple[str, Entry]],
    messages: Messages,
    pins: Iterable[int],
    summary_of: Callable[[Entry], Summary | None],
) -> State:
    """Return the context with these messages; each entry of the prefix comes with its kind.

    If *summary_of* does not know the facts of a summary, it counts as a reference line.
    """
    lasting, reinserted = list[Entry](), list[Entry]()
    summary, notice = None, None
    for kind, entry in prefix:
        facts = summary_of(entry) if kind == SUMMARY else None
        if facts is not None:
            summary = SummaryEntry(entry, facts)
        elif kind in (SUMMARY, NOTICE):
            notice = replace(entry, is_notice=True)
        else:
            (reinserted if kind == AGAIN else lasting).append(entry)
    return State(
        prefix=Messages.of(lasting),
        summary=summary,
        notice=notice,
        reinserted=Messages.of(reinserted),
        messages=messages,
        pins=frozenset(pins),
    )


async def check_archived(state: State, abilities: Abilities, session_id: str) -> None:
    """Check that the archived messages that are still in the context are the context's own.

    Raises:
        StaleWindowError: They are not.
        BuoylineError: The archive cannot be read.
    """
    first = state.messages.first
    if abilities.archive is None or state.archived_until == first:
        return
    archived = await abilities.archive.load_messages(session_id, first, state.archived_until)
    # Once a session has continued in a second dialect, plain text may be detected as another dialect than before.
    mine = state.messages[: state.archived_until - first]
    if len(archived) != len(mine) or not all(map(_is_archived_form, archived, mine)):
        reason = "its archive holds messages that did not come from its window"
        hint = "nothing is lost, archive and window.jsonl are whole; begin a new session from what they hold"
        raise StaleWindowError(session_id, reason, hint)


async def archived_answers(state: State, abilities: Abilities, session_id: str) -> int:
    """Return how many of the model's messages are archived: so often it was called.

    Raises:
        BuoylineError: The archive cannot be read.
    """
    first = state.messages.first
    if abilities.archive is None or first == 0:
        return 0
    archived = await abilities.archive.load_messages(session_id, 0, first)
    views = (dialect_named(named).view(dialect_named(named).from_json(value)) for named, value in archived)
    return sum(view.role == "assistant" for view in views)


async def stubs_in(state: State, abilities: Abilities, session_id: str) -> dict[str, StoredResult]:
    """Return the stored results whose stubs are in the tool results of *state*, by stub."""
    if abilities.results is None:
        return {}
    texts = [text for entry in state.messages for text in entry.message.result_texts]
    return await abilities.results.load_stubs(session_id, texts)


async def load_summaries(abilities: Abilities, session_id: str) -> list[Summary]:
    """Return all summaries of the session, in order."""
    if abilities.summaries is None:
        return []
    return [summary_from(line) for line in await abilities.summaries.load_summaries(session_id)]


async def stored_summary(abilities: Abilities, session_id: str, text: str) -> Summary | None:
    """Return the newest summary of the session with this text, and its facts if they are still kept."""
    try:
        summaries = await load_summaries(abilities, session_id)
    except NotFoundError:  # nothing was ever stored in the session
        return None
    return next((summary for summary in reversed(summaries) if summary.text == text), None)


def _is_archived_form(archived: tuple[str, Any], entry: Entry) -> bool:
    """Return whether an archived message is that of *entry*, apart from cache marks.

    Agents set the provider's cache marks on the objects that they were handed.
    """
    name, value = archived
    dialect = dialect_named(name)
    return value == entry.json() or dialect.view(dialect.from_json(value)) == entry.message


def _shown(summaries: Sequence[Summary], entry: Entry) -> Summary:
    for summary in reversed(summaries):
        if summary.text == entry.message.text:
            return summary
    raise CorruptError("summaries.jsonl", "does not hold the summary that stands in the context")


# Messages in another dialect than that of the session: only what is handed out is converted. Window, disk and archive
# keep the messages as they were written.


_MAX_HEADS: Final = 8
"""Of those that were handed out: a list that somebody holds begins with one of the newest."""


class Translation:
    """Hands out the messages of a context in one dialect; messages of that dialect are the same objects.

    Attributes:
        last: The last conversion, with its losses and the text of system messages that the dialect does not have; None
            if nothing was converted.
    """

    def __init__(self, dialect: str | None = None) -> None:
        """Hand out in *dialect*; None: each message as it is. Raises `ConfigError` if the name is not known."""
        self._dialect = dialect_named(dialect).name if dialect else None
        self._given: list[Any] = []
        self._heads: list[tuple[list[Any], list[Any]]] = []
        self.last: Converted | None = None

    def of(self, state: State) -> list[Any]:
        """Return the context as it is handed out."""
        leading = state.leading
        if self._dialect is not None:
            natives = self._converted([*leading, *state.messages], self._dialect)
        else:
            natives = state.messages.shown
            if leading:
                natives[:0] = [entry.shown for entry in leading]
        if not natives or not state.messages.first:
            return natives
        # A compaction may have put messages of one role next to each other. Mere text is detected as OpenAI's.
        end = len(leading) + 1
        found = {self._dialect or entry.dialect for entry in (*leading, *state.messages[:1])}
        dialects = found if len(found) == 1 else found - {"openai"}
        head = self._in_turns(natives[:end], dialects.pop()) if len(dialects) == 1 else natives[:end]
        return [*head, *natives[end:]]

    def apart(self, messages: Sequence[Any], state: State) -> Sequence[Any]:
        """Return a list that holds what was handed out, with the messages that share one apart from each other."""
        self.of(state)  # another process may have handed it out
        for entry in (*state.leading, *state.messages):
            if entry.words is not None:
                messages = [entry.native if message == entry.words else message for message in messages]
        for head, shown in reversed(self._heads):
            if list(messages[: len(shown)]) == shown:
                return [*head, *messages[len(shown) :]]
        return messages

    def _in_turns(self, head: list[Any], dialect: str) -> list[Any]:
        found = (shown for given, shown in reversed(self._heads) if _are_same(given, head))
        known: list[Any] | None = next(found, None)
        if known is not None:
            return known
        made = [*dialect_named(dialect).in_turns(head)]
        if not _are_same(made, head):
            self._heads = [*self._heads[1 - _MAX_HEADS :], (head, made)]
        return made

    def _converted(self, entries: Sequence[Entry], dialect: str) -> list[Any]:
        """Return the messages of *entries*; earlier conversions are reused.

        If roles alternate, the message after the last one of another dialect may join that one.
        """
        end = max((place for place, entry in enumerate(entries, 2) if entry.dialect != dialect), default=0)
        natives = [entry.shown for entry in entries]
        if not _are_same(natives[:end], self._given):
            self._given = natives[:end]
            self.last = convert(self._given, to=dialect, from_=[entry.dialect for entry in entries[:end]])
        return [*(self.last.messages if self.last else ()), *natives[end:]]


def common_dialect(state: WindowState, dialect: str | None) -> str | None:
    """Return *dialect*, in which a session began; None if it has continued in another one."""
    return dialect if dialect and all(_is_in(dialect, *message) for message in state.messages) else None


def _is_in(dialect: str, found: str, message: dict[str, Any]) -> bool:
    """Return whether a message is of *dialect*. Plain text, detected as OpenAI's, has the same form in several."""
    is_plain = found == "openai" and message.keys() <= {"role", "content"} and message["role"] in ("user", "assistant")
    return found == dialect or is_plain


def _are_same(natives: Sequence[Any], given: Sequence[Any]) -> bool:
    return len(natives) == len(given) and all(one is other for one, other in zip(natives, given, strict=True))
