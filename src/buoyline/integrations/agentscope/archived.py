"""How far an agent's context and the archive of its session agree.

An agent's state is saved by whoever runs it, when they like; the archive is durable at once. So a state may come back
that is older than the archive: the process was killed between a compression and the saving, or somebody went back to an
older state. What of the context is archived already is not archived twice, even where the conversation went another way
before: what both ways have in common leaves first, and what comes next goes behind the end of the other way.
"""

import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from agentscope.message import Msg
from agentscope.state import AgentState

from buoyline.compression import Summary, summary_from
from buoyline.compression.summary import BatchReference
from buoyline.errors import NotFoundError
from buoyline.integrations.agentscope.pieces import Piece, beginning, last_cut, pieces_of
from buoyline.messages import Message, Text, detect, dialect_named, is_array, is_object
from buoyline.offloader import Abilities, StoredResult

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
class Note:
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
class Standing:
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
    note: Note = Note()

    @property
    def archived_pieces(self) -> int:
        """How many of the pieces alone are archived already."""
        return max(self.archived - (self.foreign is not None), 0)

    @property
    def first_of_window(self) -> int:
        """Session index of the first message for whoever knows no other way: as if nothing were archived then."""
        return self.first + self.archived + self.otherwise if self.otherwise else self.first


def noted(state: AgentState) -> Note:
    """Return what the note in *state* says. What it says of a head that is no longer there, nobody hears."""
    value: object = state.middle_context.get(KEY)
    if not is_object(value):
        return Note()
    archived, answers, pins = value.get("archived"), value.get("answers"), value.get("pins")
    return Note(
        archived if isinstance(archived, int) else 0,
        tuple(_head(state.context, value.get("head"))),
        frozenset((str(key[0]), str(key[1])) for key in (pins if is_array(pins) else ()) if is_array(key)),
        answers if isinstance(answers, int) else 0,
        tuple(_batches(value.get("batches"))),
    )


def note(state: AgentState, said: Note) -> None:
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


async def standing_of(state: AgentState, abilities: Abilities, shown: Summary | None) -> Standing:
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
        return Standing(first, pieces, archived, 0, foreign, previous, said)
    logger.info("session %s: goes on from another state than the archive's", state.session_id)
    views = [detect(piece.native).view(piece.native) for piece in pieces]
    if last_cut(views, len(known)):
        return Standing(first, pieces, archived, len(tail) - archived, foreign, previous, said)
    return Standing(first + len(tail), pieces_of(context), 0, 0, foreign, previous, said)


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
