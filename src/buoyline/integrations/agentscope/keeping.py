"""Writing an agent's context into its workspace, so that people see it and other frameworks can go on with it.

AgentScope gathers a whole reply in one message that grows. What is written down is its pieces, one a line, as they will
be archived: so the file grows by lines, and what a line holds has the same place in the session before it leaves the
context and after. A piece is known by its message's id and what its blocks say. What a message says of itself beside
them, such as the tokens of a reply that goes on, may be older, until all is written anew before the next compression.
"""

import hashlib
import logging
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import WeakKeyDictionary

from agentscope.agent import Agent
from agentscope.message import Msg
from agentscope.state import AgentState

from buoyline.errors import BuoylineError, NotFoundError, SessionExistsError, StaleWindowError
from buoyline.integrations.agentscope.agents import model_input
from buoyline.integrations.agentscope.archived import KEY, Again, Standing, leaving_next, noted, standing_of
from buoyline.integrations.agentscope.pieces import pieces_of
from buoyline.integrations.agentscope.settings import Workbench
from buoyline.messages import dialect_named
from buoyline.offloader import WindowLog
from buoyline.window.completion import completed
from buoyline.window.context import Context
from buoyline.window.entry import Entry
from buoyline.window.keeping import AGAIN, NOTICE, kind_of
from buoyline.window.keeping import ContextKeeping as WindowKeeping
from buoyline.window.settings import config_to_json

logger = logging.getLogger(__name__)

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
    standing: Standing | None = None
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

    async def keep_before_archiving(self, agent: Agent, standing: Standing) -> None:
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

    async def _standing(self, agent: Agent, written: _Written) -> Standing:
        """Return the agent's context as the archive knows it, without asking where that cannot have changed."""
        state, before = agent.state, written.standing
        mark = (repr(state.middle_context.get(KEY)), state.summary)
        if before is None or before.archived or before.otherwise or mark != written.mark:
            written.mark = mark
            return await standing_of(state, self._abilities, None)
        pieces = pieces_of(leaving_next(state))
        return Standing(before.first, pieces, 0, 0, before.foreign, before.previous, noted(state))


class KeptByAgent(WindowKeeping):
    """Leaves it to the agent's own keeping to write down what has changed, once the agent has it.

    What a message says of itself, such as the tokens of a reply that goes on, changes without a notice. So all is
    written anew before anything is archived: whoever goes on from there compares the two.
    """

    def __init__(self, session_id: str, context: Context, write: Callable[[Lines], Awaitable[None]]) -> None:
        """Have *write* called with all of *context*, on which the engine works."""
        super().__init__(None, session_id)
        self._context = context
        self._write_all = write

    async def check(self, pins: Sequence[int]) -> None:
        """Write all down as it is now.

        Raises:
            StaleWindowError: Somebody else goes on with the session.
        """
        standing, contents = self._context.standing(), self._context.contents
        natives = [entry.native for entry in (*standing, *contents)]
        await self._write_all(Lines(natives, [kind_of(entry) for entry in standing], contents.first, pins))

    async def extend(self, new: Sequence[Entry], pins: Sequence[int]) -> None:
        """Do nothing: the agent has these messages."""

    async def replace(
        self, standing: Sequence[Entry], entries: Sequence[Entry], first: int, pins: Sequence[int]
    ) -> None:
        """Do nothing: the agent is given these messages, and then they are written down."""


def _spelled(state: AgentState, found: Standing) -> Lines:
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
