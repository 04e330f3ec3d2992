"""Writing an agent's context into its workspace, so that people see it and other frameworks can go on with it.

AgentScope gathers a whole reply in one message that grows. What is written down is its pieces, one a line, as they will
be archived: so the file grows by lines, and what a line holds has the same place in the session before it leaves the
context and after. A piece is known by its message's id and what its blocks say. What a message says of itself beside
them, such as the tokens of a reply that goes on, may be older, until all is written anew before the next compression.
"""

import hashlib
import logging
import sys
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import WeakKeyDictionary

from agentscope.agent import Agent
from agentscope.message import Msg
from agentscope.state import AgentState

from buoyline.compression import Summary
from buoyline.compression.summary import BatchReference, summary_from
from buoyline.errors import BuoylineError, NotFoundError, SessionExistsError, StaleWindowError
from buoyline.integrations.agentscope.agents import Piece, beginning, last_cut, model_input, pieces_of
from buoyline.integrations.agentscope.settings import Workbench
from buoyline.messages import Message, Text
from buoyline.messages.jsonl import is_array, is_object
from buoyline.messages.registry import detect, dialect_named
from buoyline.offloader import Abilities, Offloader, StoredResult, WindowLog
from buoyline.window.follow import hand_over
from buoyline.window.log import AGAIN, NOTICE, PIN, SUMMARY, ContextLog, Extend, Replace, kind_of
from buoyline.window.settings import config_to_json
from buoyline.window.state import State
from buoyline.window.tasks import completed

# How far an agent's context and the archive of its session agree.
#
# An agent's state is saved by whoever runs it, when they like; the archive is durable at once. So a state may come
# back
# that is older than the archive: the process was killed between a compression and the saving, or somebody went back
# to an
# older state. What of the context is archived already is not archived twice, even where the conversation went another
# way
# before: what both ways have in common leaves first, and what comes next goes behind the end of the other way.


logger = logging.getLogger(__name__)

KEY: Final = "buoyline"
"""Of our note in ``AgentState.middle_context``."""


@dataclass(frozen=True, slots=True)
class Again:
    """A message at the head of a context that is none of those which leave next.

    Attributes:
        message: A copy of an archived one; or a notice of where others are.
        index: Its position in the session; -1 for the notice.
        pinned: It stands there for good, and not only for now.
    """

    message: Msg
    index: int
    pinned: bool = False


@dataclass(frozen=True, slots=True)
class StateNote:
    """What an agent's state says of its session, beside summary and context.

    Attributes:
        archived: How many messages of the session were archived when something left last.
        head: What of the context's beginning is no message that leaves next, in order.
        pins: Keys of the pieces that stand again when they leave; see `Piece.key`.
        answers: How many of the model's messages have left.
        batches: Where the archived messages are, with an offloader that answers each batch with its own reference.
    """

    archived: int = 0
    head: Sequence[Again] = ()
    pins: frozenset[tuple[str, str]] = frozenset()
    answers: int = 0
    batches: tuple[BatchReference, ...] = ()


@dataclass(frozen=True, slots=True)
class ContextPieces:
    """An agent's context as the archive knows it.

    Attributes:
        first: Session index of the first message that leaves next: *foreign*, where there is one, else the context's.
        pieces: The context behind what stands again, cut; the first ones as the archive has them.
        archived: How many of *foreign* and the pieces are archived already.
        otherwise: How many messages stand behind those in the archive that are none of this context. As long as there
            are some, no piece may leave that is not archived: it would not be their successor.
        foreign: Stands for a summary that is none of ours, so that it is archived like a message.
        previous: The summary that stands in the context; None where there is none of ours.
        note: What the state says beside that.
    """

    first: int
    pieces: Sequence[Piece]
    archived: int
    otherwise: int
    foreign: Msg | None
    previous: Summary | None
    note: StateNote = StateNote()

    @property
    def archived_pieces(self) -> int:
        """How many of the pieces alone are archived already."""
        return max(self.archived - (self.foreign is not None), 0)

    @property
    def first_of_window(self) -> int:
        """Session index of the first message for whoever knows no other way: as if nothing were archived then."""
        return self.first + self.archived + self.otherwise if self.otherwise else self.first


def noted(state: AgentState) -> StateNote:
    """Return what the note in *state* says. What it says of a head that is no longer there, nobody hears."""
    value: object = state.middle_context.get(KEY)
    if not is_object(value):
        return StateNote()
    archived, answers, pins = value.get("archived"), value.get("answers"), value.get("pins")
    return StateNote(
        archived if isinstance(archived, int) else 0,
        tuple(_head(state.context, value.get("head"))),
        frozenset((str(key[0]), str(key[1])) for key in (pins if is_array(pins) else ()) if is_array(key)),
        answers if isinstance(answers, int) else 0,
        tuple(_batches(value.get("batches"))),
    )


def note(state: AgentState, said: StateNote) -> None:
    """Remember in *state* what is archived, and what stands again: nothing of its context says it."""
    head = [
        {"id": again.message.id, "blocks": len(again.message.content), "index": again.index, "pinned": again.pinned}
        for again in said.head
    ]
    value: dict[str, object] = {"archived": said.archived, "head": head, "answers": said.answers}
    value["pins"] = sorted(map(list, said.pins))
    value["batches"] = [list(batch) for batch in said.batches]
    state.middle_context[KEY] = {key: found for key, found in value.items() if found or key == "archived"}


def leaving_next(state: AgentState) -> list[Msg]:
    """Return the messages of the context behind its head."""
    return state.context[len(noted(state).head) :]


async def standing_of(state: AgentState, abilities: Abilities, shown: Summary | None) -> ContextPieces:
    """Compare *state* with the archive of its session.

    Args:
        state: Of the agent.
        abilities: Of the offloader.
        shown: The summary that this process made last for the session, for offloaders that keep none.

    Raises:
        CorruptError: What stands on disk is not what was written.
        StorageError: The file system refused.
    """
    said = noted(state)
    first, context = said.archived, state.context[len(said.head) :]
    previous = await _previous(state, abilities, shown)
    foreign = _foreign(state) if state.summary and previous is None else None
    tail = await _archived_since(abilities, state.session_id, first)
    begins = bool(foreign and tail and tail[0].get("id") == foreign.id)
    known = beginning(context, tail[1:] if begins else tail) if begins or foreign is None else []
    archived, pieces = len(known) + begins, pieces_of(context, known)
    if archived == len(tail):
        return ContextPieces(first, pieces, archived, 0, foreign, previous, said)
    logger.info("session %s: goes on from another state than the archive's", state.session_id)
    views = [detect(piece.native).view(piece.native) for piece in pieces]
    if last_cut(views, len(known)):
        return ContextPieces(first, pieces, archived, len(tail) - archived, foreign, previous, said)
    return ContextPieces(first + len(tail), pieces_of(context), 0, 0, foreign, previous, said)


async def stubs_in(views: Sequence[Message], abilities: Abilities, session_id: str) -> dict[str, StoredResult]:
    """Return the stored results behind what stands in the tool results of *views*, by the texts that do."""
    if abilities.results is None:
        return {}
    parts = [part for view in views for result in view.results for part in result.parts]
    try:
        return await abilities.results.load_stubs(session_id, [part.text for part in parts if isinstance(part, Text)])
    except NotFoundError:  # nothing has left this session so far
        return {}


async def _archived_since(abilities: Abilities, session_id: str, first: int) -> list[Mapping[str, Any]]:
    if abilities.archive is None:
        return []
    try:
        found = await abilities.archive.load_messages(session_id, first, sys.maxsize)
    except NotFoundError:
        return []
    return [value for _, value in found]


def _batches(told: object) -> Iterator[BatchReference]:
    for value in told if is_array(told) else ():
        if is_array(value):
            first, end, reference = value
            yield BatchReference(int(first), int(end), str(reference))


def _head(context: Sequence[Msg], told: object) -> Iterator[Again]:
    at = 0
    for value in told if is_array(told) else ():
        if at == len(context) or not is_object(value):
            break
        if (context[at].id, len(context[at].content)) == (value.get("id"), value.get("blocks")):
            yield Again(context[at], int(value.get("index", -1)), bool(value.get("pinned")))
            at += 1


async def _previous(state: AgentState, abilities: Abilities, shown: Summary | None) -> Summary | None:
    if not state.summary:
        return None
    if shown is not None and shown.text == state.summary:
        return shown
    lines = [] if abilities.summaries is None else await _summaries(abilities, state.session_id)
    return next((summary for summary in reversed(lines) if summary.text == state.summary), None)


async def _summaries(abilities: Abilities, session_id: str) -> list[Summary]:
    if abilities.summaries is None:
        return []
    try:
        return [summary_from(line) for line in await abilities.summaries.load_summaries(session_id)]
    except NotFoundError:
        return []


def _foreign(state: AgentState) -> Msg:
    """Return AgentScope's own summary, or one that somebody has changed, as the message that a model sees it as.

    The same summary is the same message, whenever it is spelled.
    """
    content = state.summary
    spelled = content if isinstance(content, str) else "".join(block.model_dump_json() for block in content)
    message = dialect_named("agentscope").user_message(spelled)
    blocks = message.content if isinstance(content, str) else list(content)
    copied: Msg = message.model_copy(update={"id": f"summary-{message.id}", "content": blocks})
    return copied


DIALECT: Final = "agentscope"

_OF_A_REPLY: Final = {"usage", "finished_at", "finished_reason", "structured_output", "error", "metadata"}
"""Fields of a message that change while it grows; its pieces share them."""


@dataclass(frozen=True, slots=True)
class Lines:
    """A context as it is written down.

    Attributes:
        natives: The messages, one a line.
        kinds: What the first of them are, which stand before the messages that leave next.
        first: Session index of the message behind those.
        pins: Session indexes of pinned messages.
    """

    natives: Sequence[Msg]
    kinds: Sequence[str]
    first: int
    pins: Sequence[int]


@dataclass(slots=True)
class _Written:
    """What is written down of one agent's context.

    Attributes:
        state: Of the agent. Another one in its place is another history, even under the same session id.
        log: Takes the context; None where the session has none.
        writer: Tells it from others that go on with the session.
        is_open: The session was begun, or taken over.
        is_stale: Somebody else has taken it over since, which was told.
        standing: The context as the archive knew it, when summary and note were as *mark* says.
        mark: Changes with each compression.
        first: Session index of the message behind the head.
        pins: Session indexes of pinned messages.
        kinds: See `Lines`.
        lines: A hash of each; None before the first time, and after a failure.
    """

    state: AgentState
    log: WindowLog | None
    writer: str = field(default_factory=lambda: uuid.uuid4().hex)
    is_open: bool = False
    is_stale: bool = False
    standing: ContextPieces | None = None
    mark: object = None
    first: int = 0
    pins: Sequence[int] = ()
    kinds: Sequence[str] = ()
    lines: list[bytes] | None = None


class ContextKeeping:
    """Writes contexts down as they grow; does nothing where the offloader keeps no windows."""

    def __init__(self, workbench: Workbench) -> None:
        """Write with what *workbench* has."""
        self._abilities = workbench.abilities
        self._settings = workbench.settings
        self._management = workbench.management
        self._written: WeakKeyDictionary[Agent, _Written] = WeakKeyDictionary()

    async def keep(self, agent: Agent) -> None:
        """Write down what is new of the agent's context. Where that fails, it is logged, and the agent goes on."""
        written = self._of(agent)
        if written.is_stale:
            return
        try:
            await self._keep(agent, None)
        except StaleWindowError as refused:
            written.is_stale = True
            logger.warning("%s; what this agent goes on with is not written down", refused)

    async def keep_before_archiving(self, agent: Agent, standing: ContextPieces) -> None:
        """Write all of the agent's context down anew, to the letter as *standing* will be archived.

        A process that goes on with the session compares both where this one ends before the context has changed.
        It also begins the session, which has to come before the first archiving.

        Raises:
            StaleWindowError: Somebody else goes on with the session, behind whose back nothing may be archived.
        """
        await self._keep(agent, _spelled(agent.state, standing))

    async def keep_as(self, agent: Agent, lines: Lines) -> None:
        """Write down what is about to be archived, and all that stands beside it; see `keep_before_archiving`.

        Raises:
            StaleWindowError: See `keep_before_archiving`.
        """
        await self._keep(agent, lines)

    def _of(self, agent: Agent) -> _Written:
        written = self._written.get(agent)
        if written is None or written.state is not agent.state:
            written = self._written[agent] = _Written(agent.state, self._abilities.windows)
        return written

    async def _keep(self, agent: Agent, anew: Lines | None) -> None:
        written = self._of(agent)
        try:
            await completed(self._write(agent, written, anew))
        except StaleWindowError:
            raise
        except (BuoylineError, OSError) as failure:
            logger.warning("the context of session %s is not written down: %s", agent.state.session_id, failure)

    async def _write(self, agent: Agent, written: _Written, anew: Lines | None) -> None:
        """Write down *anew* whole; where that is None, what is new of the context as the agent has it."""
        log, session_id = await self._opened(agent, written), agent.state.session_id
        if log is None:
            return
        found = await self._standing(agent, written) if anew is None else None
        spelled = anew if found is None else _spelled(agent.state, found)
        if spelled is None:
            return
        lines, known = [hash_of(native) for native in spelled.natives], written.lines
        written.lines, head = None, (spelled.first, spelled.kinds)
        if known is None or anew or head != (written.first, written.kinds) or known != lines[: len(known)]:
            await log.replace_window(
                session_id, spelled.natives, spelled.kinds, spelled.first, spelled.pins, writer=written.writer
            )
        elif len(lines) > len(known) or spelled.pins != written.pins:
            await log.extend_window(session_id, spelled.natives[len(known) :], spelled.pins, writer=written.writer)
        written.lines, written.first, written.kinds, written.pins = lines, spelled.first, spelled.kinds, spelled.pins
        written.standing = found

    async def _opened(self, agent: Agent, written: _Written) -> WindowLog | None:
        """Begin the session, or go on with it, the first time."""
        log, session_id = written.log, agent.state.session_id
        if log is None or written.is_open:
            return log
        try:
            await log.start_window(session_id, await self._settings_of(agent), writer=written.writer)
        except SessionExistsError:
            try:
                await log.claim_window(session_id, writer=written.writer)
            except NotFoundError:
                logger.info("session %s has messages and no window; none is begun", session_id)
                written.log = None
        written.is_open = True
        return written.log

    async def _settings_of(self, agent: Agent) -> dict[str, Any]:
        given = await model_input(agent)
        return {
            "size": agent.model.context_size,
            "config": config_to_json(self._settings.for_window(agent)),
            "system": given["messages"][0].get_text_content() or "",
            "tools": given["tools"],
            "dialect": DIALECT,
            **({} if self._management is None else {"management": self._management.to_json()}),
        }

    async def _standing(self, agent: Agent, written: _Written) -> ContextPieces:
        """Return the agent's context as the archive knows it, without asking where that cannot have changed."""
        state, before = agent.state, written.standing
        mark = (repr(state.middle_context.get(KEY)), state.summary)
        if before is None or before.archived or before.otherwise or mark != written.mark:
            written.mark = mark
            return await standing_of(state, self._abilities, None)
        pieces = pieces_of(leaving_next(state))
        return ContextPieces(before.first, pieces, 0, 0, before.foreign, before.previous, noted(state))


class KeptByAgent(ContextLog):
    """Leaves it to the agent's own keeping to write down what has changed, once the agent has it.

    What a message says of itself, such as the tokens of a reply that goes on, changes without a notice. So all is
    written anew before anything is archived: whoever goes on from there compares the two.
    """

    def __init__(self, session_id: str, write: Callable[[Lines], Awaitable[None]]) -> None:
        """Have *write* called with all of the context."""
        super().__init__(None, session_id)
        self._write_all = write

    async def check(self, state: State) -> None:
        """Write all down as it is now.

        Raises:
            StaleWindowError: Somebody else goes on with the session.
        """
        leading, messages = state.leading, state.messages
        natives = [entry.native for entry in (*leading, *messages)]
        kinds = [kind_of(entry) for entry in leading]
        await self._write_all(Lines(natives, kinds, messages.first, sorted(state.pins)))

    async def apply(self, write: Extend | Replace | None) -> None:
        """Do nothing: the agent is given these messages, and then they are written down."""


def _spelled(state: AgentState, found: ContextPieces) -> Lines:
    """Return the context of *state* in the order of a window: pins, the summary, and what stands for now."""
    head, first = found.note.head, found.first_of_window
    lasting = [(again.message, _kind(again)) for again in head if _is_lasting(again)]
    ours = [] if found.previous is None else [(dialect_named(DIALECT).user_message(str(state.summary)), "summary")]
    passing = [(again.message, _kind(again)) for again in head if not _is_lasting(again)]
    standing = [*lasting, *ours, *passing]
    messages = [*([] if found.foreign is None else [found.foreign]), *(piece.native for piece in found.pieces)]
    behind = first + len(messages) - len(found.pieces)
    pins = [again.index for again in head if again.pinned]
    pins += [behind + at for at, piece in enumerate(found.pieces) if piece.key in found.note.pins]
    natives = [*(message for message, _ in standing), *messages]
    return Lines(natives, [kind for _, kind in standing], first, pins)


def _is_lasting(again: Again) -> bool:
    return again.pinned or again.message.role == "system"


def _kind(again: Again) -> str:
    if again.pinned:
        return "pin"
    if again.message.role == "system":
        return "system"
    return NOTICE if again.index < 0 else f"{AGAIN}:{again.index}"


def hash_of(native: Msg) -> bytes:
    """Return what a piece is known by: all it says, and nothing of the reply that it belongs to."""
    spelled = native.model_dump_json(exclude=_OF_A_REPLY)
    return hashlib.blake2b(spelled.encode("utf-8", "surrogatepass"), digest_size=16).digest()


# Going on with a session that another framework has begun, or another process of AgentScope.


async def resumed_state(workspace: Offloader, session_id: str) -> AgentState:
    """Return the state of an agent that goes on with the session: its summary, and the messages behind it as `Msg`.

    What has no place in AgentScope's messages is logged. What is archived and stands again, such as pins, stands before
    the messages, and is not archived again.

    Args:
        workspace: The one that the session was kept in.
        session_id: The session.

    Raises:
        BuoylineError: See `buoyline.ContextWindow.resume`.
    """
    found = await hand_over(workspace, session_id, "agentscope")
    pins = iter([index for index, _ in found.pins])
    head = [_again(kind, native, pins) for kind, native in found.head if kind != SUMMARY]
    summary = "" if found.summary is None else found.summary.text
    context = [*(again.message for again in head), *found.messages]
    state = AgentState(session_id=session_id, summary=summary, context=context)
    note(state, StateNote(found.first, head))
    return state


def _again(kind: str, native: Msg, pins: Iterator[int]) -> Again:
    if kind == PIN:
        return Again(native, next(pins), pinned=True)
    return Again(native, int(kind.partition(":")[2] or -1))
