"""An agent's context: how it agrees with the archive, how the engine sees it, and how it is written down.

AgentScope keeps the messages, and collects a whole reply in one message that grows. The engine works on pieces of them,
see `buoyline.integrations.agentscope.agents`. Whoever runs an agent saves its state whenever they like, but the archive
is durable at once. So a saved state may be older than the archive: the process was killed before the state was saved,
or somebody returned to an older state. Archived messages are not archived again, even if the conversation continues
differently: the common part of both histories is archived once, and the rest goes to the end of the archive.
"""

import logging
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field, replace
from operator import is_
from typing import Any, Final, NamedTuple, TypeAlias

from agentscope.message import Msg
from agentscope.state import AgentState
from pydantic import BaseModel

from buoyline.compression import Summary
from buoyline.compression.summary import BatchReference
from buoyline.errors import BuoylineError, NotFoundError, SessionExistsError, StaleWindowError
from buoyline.integrations.agentscope.agents import Piece, beginning, last_cut, pieces_of
from buoyline.messages import Message, Text
from buoyline.messages.jsonl import is_array, is_object
from buoyline.messages.model import Note
from buoyline.messages.registry import dialect_named
from buoyline.offloader import Abilities, StoredResult, WindowLog
from buoyline.tokens import TextCounter
from buoyline.window.budget import TokenBudget
from buoyline.window.context import ContextLog, Extend, Replace, kind_of, stored_summary
from buoyline.window.state import Entry, Messages, State, SummaryEntry, entry_beside

logger = logging.getLogger(__name__)

DIALECT: Final = "agentscope"

KEY: Final = "buoyline"
"""Of the note in ``AgentState.middle_context``."""

_OF_A_REPLY: Final = {"usage", "finished_at", "finished_reason", "structured_output", "error", "metadata"}
"""Fields of a message that change while it grows; its pieces share them."""

_NOT_OF_A_FRAME: Final = {*_OF_A_REPLY, "content"}


@dataclass(frozen=True, slots=True)
class Leading:
    """A message in front of those that are archived next.

    Attributes:
        message: A copy of an archived message, or the line that says where others are.
        index: Its session index; -1 for that line.
        pinned: It stays for good, and not only for now.
    """

    message: Msg
    index: int
    pinned: bool = False


class StateNote(NamedTuple):
    """The note in an agent's state: nothing in its context and summary says this.

    Attributes:
        archived: How many messages of the session are archived, as of the last compaction.
        head: The leading messages of the context, in order.
        pins: Keys of the pieces that are reinserted when they are archived; see `Piece.key`.
        batches: Where the archived messages are, if the offloader answers each batch with its own reference.
    """

    archived: int = 0
    head: Sequence[Leading] = ()
    pins: frozenset[tuple[str, str]] = frozenset()
    batches: tuple[BatchReference, ...] = ()


def noted(state: AgentState) -> StateNote:
    """Return the note in *state*, without leading messages that are no longer there."""
    value: object = state.middle_context.get(KEY)
    if not is_object(value):
        return StateNote()

    def listed(name: str) -> Sequence[Any]:
        found = value.get(name)
        return found if is_array(found) else ()

    head: list[Leading] = []
    for message, said in zip(state.context, listed("head"), strict=False):
        if not is_object(said) or (message.id, len(message.content)) != (said.get("id"), said.get("blocks")):
            break
        head.append(Leading(message, int(said.get("index", -1)), bool(said.get("pinned"))))
    batches: list[BatchReference] = []
    for batch in filter(is_array, listed("batches")):
        first, end, reference = batch
        batches.append(BatchReference(int(first), int(end), str(reference)))
    archived = value.get("archived")
    return StateNote(
        archived if isinstance(archived, int) else 0,
        tuple(head),
        frozenset((str(key[0]), str(key[1])) for key in filter(is_array, listed("pins"))),
        tuple(batches),
    )


def note(state: AgentState, said: StateNote) -> None:
    """Put the note into *state*, unless it says so already."""
    if said == noted(state):
        return
    head = [
        {"id": one.message.id, "blocks": len(one.message.content), "index": one.index, "pinned": one.pinned}
        for one in said.head
    ]
    value: dict[str, object] = {"archived": said.archived, "head": head}
    value["pins"] = sorted(map(list, said.pins))
    value["batches"] = [list(batch) for batch in said.batches]
    state.middle_context[KEY] = {key: found for key, found in value.items() if found or key == "archived"}


def behind_head(state: AgentState) -> list[Msg]:
    """Return the messages of the context that are archived next."""
    return state.context[len(noted(state).head) :]


PieceName: TypeAlias = tuple[str, str, str, int]
"""The id of a message, type and id of a piece's first block, and how many earlier pieces begin alike."""


@dataclass(slots=True)
class AgentMemory:
    """All that is known of one agent from call to call. It may be lost with the process.

    Attributes:
        state: The agent's state. Another state is another history, even of the same session.
        log: Writes the context down.
        pieces: The pieces of the last context, read and counted.
        summary: The summary in it.
        foreign: A summary of AgentScope's own, as a message in it.
        budget: Of the last engine, which has counted system prompt and tools.
        stubs: Stored results by the texts that replace them in the context.
        asked: Texts of results that were looked up among the recorded stubs.
        settled: The newest piece for which new messages were decided about.
        held: Results by call id, until they can be put into the context; see `ResultIntake`.
        prepared: What was prepared for the next model call, and its `form`, until that is written down.
        compared: Summary and note of the state for which `previous` and `tail` hold; None: they do not.
        previous: The summary in the context; None if the context has none of buoyline's.
        tail: JSON of the messages that the archive holds beyond the state's note.
        is_redacted: The archive does not hold all texts word for word.
    """

    state: AgentState
    log: "AgentLog"
    pieces: dict[PieceName, "_KnownPiece"] = field(default_factory=dict[PieceName, "_KnownPiece"])
    summary: SummaryEntry | None = None
    foreign: Entry | None = None
    budget: TokenBudget | None = None
    stubs: dict[str, StoredResult] = field(default_factory=dict[str, StoredResult])
    asked: set[str] = field(default_factory=set[str])
    settled: tuple[str, str, str] | None = None
    held: dict[str, list[Any]] = field(default_factory=dict[str, list[Any]])
    prepared: "tuple[AgentContext, object] | None" = None
    compared: tuple[object, str] | None = None
    previous: Summary | None = None
    tail: Sequence[Mapping[str, Any]] = ()
    is_redacted: bool = False

    @property
    def form(self) -> object:
        """What changes if messages or blocks are added or removed."""
        return self.state.summary, [(message, len(message.content)) for message in self.state.context]

    def take_prepared(self) -> "AgentContext | None":
        """Return what was prepared, if nothing was added, removed or edited since; once."""
        prepared, self.prepared = self.prepared, None
        if prepared is None or prepared[1] != self.form:
            return None
        held = prepared[0]
        pairs = zip(held.known, held.pieces, strict=True)
        return held if all(known.has_blocks(piece.blocks) for known, piece in pairs) else None

    async def compare(self, abilities: Abilities, shown: Summary | None) -> None:
        """Compare the agent's state with the archive, unless neither can have changed.

        *shown* is the session's last summary of this process, for offloaders that keep none.

        Raises:
            CorruptError: A file is not as it was written.
            StorageError: The file system refused.
        """
        state = self.state
        compared = (state.summary, repr(state.middle_context.get(KEY)))
        if compared == self.compared and not self.tail:
            return
        self.previous, self.tail, self.is_redacted = None, (), abilities.redactor is not None
        if shown is not None and shown.text == state.summary:
            self.previous = shown
        elif isinstance(state.summary, str) and state.summary:  # ours are never blocks
            self.previous = await stored_summary(abilities, state.session_id, state.summary)
        if abilities.archive is not None:
            archived, found = noted(state).archived, list[tuple[str, dict[str, Any]]]()
            with suppress(NotFoundError):  # the session has no archive yet
                found = await abilities.archive.load_messages(state.session_id, max(archived - 1, 0), sys.maxsize)
            if archived and not found:
                logger.warning(
                    "session %s has fewer archived messages than the %d of its agent's state, which comes from another "
                    "session or workspace: all that is in its context is archived here",
                    state.session_id,
                    archived,
                )
                del state.middle_context[KEY]
                await self.compare(abilities, shown)
                return
            self.tail = [value for _, value in found[min(archived, 1) :]]
        self.compared = compared


_PLAIN: Final = frozenset({str, int, float, bool, type(None)})


class _Snapshot:
    """All that a value held, so that a later change in it shows; its texts are not copied.

    A block with texts and numbers alone is compared with two dicts, in a quarter of a microsecond. An agent of 350,000
    tokens spent half of its time here when each block was compared by its JSON.
    """

    __slots__ = ("_held", "_inner")

    def __init__(self, value: object) -> None:
        """Copy what *value* holds."""
        held = _held(value)
        items: Iterable[tuple[Any, Any]] = ()
        if is_object(held):
            held, items = copy(held), held.items()
        elif is_array(held):
            held, items = copy(held), enumerate(held)
        self._held = held
        self._inner = [(key, _Snapshot(one)) for key, one in items if type(one) not in _PLAIN]

    def matches(self, value: object) -> bool:
        """Return whether *value* holds the same."""
        held: Any = _held(value)
        if held != self._held:
            return False
        for key, inner in self._inner:  # noqa: SIM110 - half as fast as a generator: most values have none
            if not inner.matches(held[key]):
                return False
        return True


def _held(value: object) -> object:
    """Return the fields of a model; any other value as it is."""
    if not isinstance(value, BaseModel):
        return value
    extra = value.__pydantic_extra__
    return vars(value) if extra is None else {**vars(value), **extra}


class _KnownPiece(NamedTuple):
    """A piece of the last context.

    Attributes:
        frame: The fields of the message without its blocks and what belongs to the whole reply. Pieces of one message
            have the very same.
        blocks: Its blocks.
        entry: What the engine got for it.
    """

    frame: _Snapshot
    blocks: Sequence[_Snapshot]
    entry: Entry

    def has_blocks(self, blocks: Sequence[Any]) -> bool:
        """Return whether these are its blocks, unchanged."""
        return len(blocks) == len(self.blocks) and all(map(_Snapshot.matches, self.blocks, blocks))


class _Agreement(NamedTuple):
    """How far a context and the archive agree.

    Attributes:
        pieces: The context behind its leading messages, cut as the archive has it.
        first: Session index of the first message that is archived next.
        archived: How many messages of the context are archived beyond that.
        others: How many messages of another history the archive has behind those. Until the common ones have left
            the context, no message behind them can be archived: it would not be their successor.
    """

    pieces: list[Piece]
    first: int
    archived: int
    others: int = 0


@dataclass(frozen=True, slots=True)
class AgentContext:
    """An agent's context as the engine sees it.

    Attributes:
        state: The context; its messages are pieces.
        pieces: All of them.
        known: What is known of each of them.
        forms: By session index, each piece in `state.messages`, with the message that the engine got for it.
        foreign: A summary that buoyline did not write; it is archived like a message.
        common: If above 0, just so many messages may be archived, since the archive continues differently behind them.
        archive_end: If `common` is above 0, the session index behind the archive.
    """

    state: State
    pieces: Sequence[Piece]
    known: Sequence[_KnownPiece]
    forms: Mapping[int, tuple[Piece, Msg]]
    foreign: Msg | None = None
    common: int = 0
    archive_end: int = 0


class _Reader:
    """Reads and counts the pieces of a context that changed since the last one."""

    def __init__(self, memory: AgentMemory, counter: TextCounter, *, is_fresh: bool) -> None:
        """Know what *memory* knows; see `context_of`."""
        self._known, self._counter, self._is_fresh = memory.pieces, counter, is_fresh
        self._frames: dict[int, _Snapshot] = {}
        self._repeated: Counter[tuple[str, str, str]] = Counter()
        self.pieces: dict[PieceName, _KnownPiece] = {}

    async def read(self, piece: Piece, index: int, *, pinned: bool) -> _KnownPiece:
        """Return what is known of a piece: what the last context knew if nothing in it has changed.

        Raises:
            MessageError: It holds something without a JSON form.
        """
        message, blocks = piece.message, piece.blocks
        kind, block_id = (blocks[0].type, blocks[0].id) if blocks else ("", "")
        alike = (message.id, kind, block_id)
        name = (message.id, kind, block_id, self._repeated[alike])  # some models use a call's id again, or give none
        self._repeated[alike] += 1
        found = self._known.get(name)
        frame = self._frames.get(id(message)) or self._frame_of(message, found)
        if found is None or found.frame is not frame or not found.has_blocks(blocks):
            held = [*map(_Snapshot, blocks)]
            entry = await entry_beside(piece.native, index, self._counter, dialect=DIALECT, pinned=pinned)
            found = _KnownPiece(frame, held, entry)
        elif not self._is_made_of(found.entry.native, piece, blocks):
            entry = replace(found.entry, native=piece.native, index=index, pinned=pinned)
            found = found._replace(entry=entry)
        elif (found.entry.index, found.entry.pinned) != (index, pinned):
            found = found._replace(entry=replace(found.entry, index=index, pinned=pinned))
        self.pieces[name] = found
        return found

    def _frame_of(self, message: Msg, found: _KnownPiece | None) -> _Snapshot:
        """Return the frame of *message*, that of its piece *found* if it did not change."""
        fields = {name: value for name, value in vars(message).items() if name not in _NOT_OF_A_FRAME}
        frame = found.frame if found is not None and found.frame.matches(fields) else _Snapshot(fields)
        self._frames[id(message)] = frame
        return frame

    def _is_made_of(self, native: Msg, piece: Piece, blocks: Sequence[Any]) -> bool:
        """Return whether *native* holds the very objects of *piece*, and no others."""
        if piece.is_whole:
            return native is piece.message
        # A message that was whole, and has grown since, has more blocks than the piece.
        if len(native.content) != len(blocks) or not all(map(is_, blocks, native.content)):
            return False
        now, then = vars(piece.message), vars(native)
        return not self._is_fresh or all(then[name] is now[name] for name in _OF_A_REPLY)


async def context_of(
    memory: AgentMemory, counter: TextCounter, *, keeps_common: bool = True, is_fresh: bool = True
) -> AgentContext:
    """Return the context of an agent, after `AgentMemory.compare`.

    Args:
        memory: Of the agent.
        counter: Counts new messages.
        keeps_common: If the archive continues differently, messages that it has in common with this context are
            archived copies, in the context for now. False: they are messages, which a compaction has to summarize
            before any other.
        is_fresh: Pieces have the usage and other fields of the whole reply as they are now. False: pieces that did not
            change have them as they were; to make them all again took a sixth of the time of reading the context.

    Raises:
        MessageError: A message holds something without a JSON form.
    """
    state, previous = memory.state, memory.previous
    said, reader = noted(state), _Reader(memory, counter, is_fresh=is_fresh)

    copies: list[Entry] = []
    for one in said.head:
        piece = Piece(one.message, 0, len(one.message.content))
        copies.append((await reader.read(piece, one.index, pinned=one.pinned)).entry)
    if previous is None:
        memory.summary = None
    elif memory.summary is None or memory.summary.summary is not previous:
        native = dialect_named(DIALECT).user_message(previous.text)
        memory.summary = SummaryEntry(await entry_beside(native, -1, counter, dialect=DIALECT), previous)
    foreign = _foreign(state) if state.summary and previous is None else None
    agreed = _agreement(memory, foreign, said)
    first = agreed.first
    entries = list[Entry]()
    if foreign is not None:
        if memory.foreign is None or memory.foreign.native.id != foreign.id:
            memory.foreign = _unspoken(await entry_beside(foreign, first, counter, dialect=DIALECT))
        entries.append(replace(memory.foreign, native=foreign, index=first, pinned=keeps_common))
    start = first + len(entries)
    known = [
        await reader.read(piece, index, pinned=piece.key in said.pins)
        for index, piece in enumerate(agreed.pieces, start)
    ]
    entries += [one.entry for one in known]
    memory.pieces = reader.pieces
    common = last_cut([entry.message for entry in entries], agreed.archived) if agreed.others else 0
    copied, end = (common, agreed.archived + agreed.others) if keeps_common and common else (0, 0)
    if copied:
        moved = [replace(entry, index=entry.index + end - copied) for entry in entries[copied:]]
        entries = [*entries[:copied], *moved]
    messages = Messages.of(entries[copied:], first + end)
    lines = [entry for entry in copies if entry.index < 0]
    copies = [entry for entry in (*copies, *entries[:copied]) if entry.index >= 0]
    prefix = Messages.of(entry for entry in copies if entry.stays)
    context = State(
        prefix=prefix,
        summary=memory.summary,
        notice=replace(lines[-1], is_notice=True) if lines else None,
        reinserted=Messages.of(entry for entry in copies if not entry.stays),
        messages=messages,
        pins=frozenset(entry.index for entry in (*prefix, *messages) if entry.pinned),
        archived_until=first + (end or agreed.archived),
        batches=said.batches,
    )
    forms = {
        entry.index: (piece, entry.native)
        for piece, entry in zip(agreed.pieces, entries[len(entries) - len(agreed.pieces) :], strict=True)
        if entry.index >= messages.first
    }
    parted = 0 if keeps_common else common
    return AgentContext(context, agreed.pieces, known, forms, foreign, parted, first + agreed.archived + agreed.others)


def _agreement(memory: AgentMemory, foreign: Msg | None, said: StateNote) -> _Agreement:
    """Compare the context behind its leading messages with the end of the archive that its note does not know."""
    context, first, tail = memory.state.context[len(said.head) :], said.archived, memory.tail
    begins = bool(foreign and tail and tail[0].get("id") == foreign.id)
    known: list[Piece] = []
    if begins or foreign is None:
        known = beginning(context, tail[begins:], is_redacted=memory.is_redacted)
    pieces, archived = pieces_of(context, known), len(known) + begins
    if archived == len(tail):
        return _Agreement(pieces, first, archived)
    dialect = dialect_named(DIALECT)
    if last_cut([dialect.view(piece.native) for piece in pieces], len(known)):
        return _Agreement(pieces, first, archived, len(tail) - archived)
    return _Agreement(pieces_of(context), first + len(tail), 0)


def _foreign(state: AgentState) -> Msg:
    """Return AgentScope's own summary, or one that somebody changed, as the message that a model gets.

    The same summary is always the same message.
    """
    content = state.summary
    spelled = content if isinstance(content, str) else "".join(block.model_dump_json() for block in content)
    message = dialect_named(DIALECT).user_message(spelled)
    blocks = message.content if isinstance(content, str) else list(content)
    copied: Msg = message.model_copy(update={"id": f"summary-{message.id}", "content": blocks})
    return copied


def _unspoken(entry: Entry) -> Entry:
    """Return a foreign summary so that it is not taken for the user's newest words."""
    message = entry.message
    if not any(type(part) is Text for part in message.parts):
        return entry
    parts: list[Any] = [Note(part.text) if isinstance(part, Text) else part for part in message.parts]
    return replace(entry, message=Message(message.role, tuple(parts), message.name))


class AgentLog(ContextLog):
    """Writes an agent's context to ``window.jsonl``, so that people see it and other frameworks can continue with it.

    A line is a piece, as it will be archived. So the file grows by lines, and a line has the same place in the session
    before it is archived and after. Fields of a message that belong to its whole reply, such as its tokens, may be
    older; before messages are archived, all is written again, since a process that continues compares both.

    A failure is logged, and the agent continues.

    Attributes:
        is_stale: Another process has taken the session over, and that was logged.
        archive_end: See `AgentContext`; 0 if all messages may be archived.
    """

    def __init__(self, abilities: Abilities, session_id: str) -> None:
        """Write to the log of windows, if the offloader has one."""
        super().__init__(abilities.windows, session_id)
        self.log: WindowLog | None = abilities.windows
        self.is_stale = False
        self.archive_end = 0
        self._is_open = False
        self._written: tuple[object, Sequence[Message], frozenset[int]] | None = None

    async def open(self, settings: Callable[[], Awaitable[Mapping[str, Any]]]) -> None:
        """Begin the session with *settings*, or take it over; does so once."""
        if self._is_open:
            return
        try:
            await self.start(await settings())
        except SessionExistsError:
            await self._claim()
        self._is_open = True

    async def _claim(self) -> None:
        if self.log is None:
            return
        try:
            await self.log.claim_window(self.session_id, writer=self.writer)
        except NotFoundError:
            logger.info("session %s has messages and no window; none is begun", self.session_id)
            self.log = None

    async def write(self, state: State) -> None:
        """Write what is new in *state*, or all of it if more than that has changed.

        Raises:
            StaleWindowError: Another process has taken the session over.
            StorageError: The file system refused.
        """
        entries = [*state.leading, *state.messages]
        # A message that did not change is read once, see `AgentMemory.entries`.
        lines, head = [entry.message for entry in entries], (state.messages.first, [*map(kind_of, state.leading)])
        written, self._written = self._written, None
        if written is None or head != written[0] or not _begins(lines, written[1]):
            await super().apply(Replace(state))
        elif len(lines) > len(written[1]) or state.pins != written[2]:
            await super().apply(Extend(entries[len(written[1]) :], state.pins))
        self._written = head, lines, state.pins

    async def check(self, state: State) -> None:
        """Write all of *state*, since it is about to be archived.

        Raises:
            StaleWindowError: Another process has taken the session over.
        """
        self._written, first = None, state.messages.first
        if self.archive_end:  # without the archive's end, nobody could tell these messages from the other history's
            pins = frozenset(pin if pin < first else pin - first + self.archive_end for pin in state.pins)
            state = replace(state, messages=replace(state.messages, first=self.archive_end), pins=pins)
        try:
            await super().apply(Replace(state))
        except StaleWindowError:
            raise
        except (BuoylineError, OSError) as failure:
            self.report(failure)

    async def apply(self, write: Extend | Replace | None) -> None:
        """Do nothing: the agent gets the messages first, and then they are written."""

    def report(self, failure: Exception) -> None:
        """Log that the context could not be written."""
        logger.warning("the context of session %s is not written down: %s", self.session_id, failure)


def _begins(lines: Sequence[Message], known: Sequence[Message]) -> bool:
    return len(lines) >= len(known) and all(map(is_, lines, known))
