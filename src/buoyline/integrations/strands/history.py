"""Where a Strands history may be cut, and which of its messages are pinned.

Pure, but for `durable_key`. Messages are Strands' own: ``role`` and ``content``, blocks with their kind for a key.
"""

import re
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from buoyline.compression.plan import legal_cuts
from buoyline.errors import NotFoundError, SessionExistsError
from buoyline.messages import Message
from buoyline.messages.registry import dialect_named
from buoyline.offloader import WindowLog

if TYPE_CHECKING:
    from strands import Agent

NativeMessage: TypeAlias = dict[str, Any]
Key: TypeAlias = str | int

DIALECT: Final = "bedrock"


def history_of(agent: "Agent") -> list[NativeMessage]:
    """Return the very list of the agent's messages, as the plain dicts that they are."""
    return cast("list[NativeMessage]", agent.messages)


def key_of(message: Mapping[str, Any]) -> Key:
    """Return what a message is known by: the id that Strands gives it for life, else the object."""
    return message.get("tracking_id") or id(message)


def durable_key(message: NativeMessage) -> str:
    """Return the id that *message* keeps in sessions, given to it where it has none yet, as Strands does later."""
    if not message.get("tracking_id"):
        message["tracking_id"] = str(uuid.uuid4())
    return str(message["tracking_id"])


def views_of(messages: Iterable[NativeMessage]) -> list[Message]:
    """Return the views of *messages*, in order."""
    dialect = dialect_named(DIALECT)
    return [dialect.view(message) for message in messages]


def cuts(messages: Sequence[NativeMessage], most: int, *, follows_user: bool) -> list[tuple[int, int]]:
    """Return the places from 1 to *most* where what stays of *messages* may begin, each with how bad it is there.

    What begins with a result is never valid, nor is a call whose result does not follow at once. Of the places that
    remain, 0 stands for those where no call is parted from its result, wherever that is (ids may repeat, be empty, or
    answer nothing), and where roles take turns, which providers want; 1 for those where they do not; 2 and 3 for the
    same in histories whose pairs stand so that every place parts one.

    Args:
        messages: The history.
        most: Messages from this one on stay in any case.
        follows_user: A message of the user's will stand before the cut. Without one, what stays must begin with a
            plain one of the user's, or else with a call and its result.
    """
    whole = {*legal_cuts(views_of(messages), hold_pending=False), len(messages)}
    return [
        (badness + (0 if cut in whole else 2), cut)
        for cut in range(1, most + 1)
        if (badness := _badness(messages, cut, follows_user=follows_user)) is not None
    ]


def _badness(messages: Sequence[NativeMessage], cut: int, *, follows_user: bool) -> int | None:
    if cut >= len(messages):
        return 0
    first = messages[cut]
    if _ids(first, "toolResult") is not None:
        return None
    is_call = _ids(first, "toolUse") is not None
    if is_call and cut + 1 < len(messages) and _ids(messages[cut + 1], "toolResult") is None:
        return None
    if first["role"] == "user":
        return 1 if follows_user else 0
    return 0 if follows_user else 1 if is_call else None


def _ids(message: NativeMessage, kind: str) -> frozenset[str] | None:
    """Return the ids of the calls, or of the results, that *message* holds; None where it holds none."""
    found = [block[kind].get("toolUseId", "") for block in message.get("content", []) if kind in block]
    return frozenset(found) if found else None


def pinned(messages: Sequence[NativeMessage], keys: Collection[Key]) -> list[bool]:
    """Tell of each message whether it is pinned: by Strands' own flag, by *keys*, or as the other half of a pair.

    Source: ``metadata.custom.pinned``, which Strands' `pin_message` sets.
    """
    flags = [_has_flag(message) or key_of(message) in keys for message in messages]
    answered = {
        place
        for place in range(len(messages) - 1)
        if (_ids(messages[place], "toolUse") or frozenset()) & (_ids(messages[place + 1], "toolResult") or frozenset())
    }
    return [
        flag or (place in answered and flags[place + 1]) or (place - 1 in answered and flags[place - 1])
        for place, flag in enumerate(flags)
    ]


def _has_flag(message: NativeMessage) -> bool:
    metadata: dict[str, Any] = message.get("metadata") or {}
    custom: dict[str, Any] = metadata.get("custom") or {}
    return custom.get("pinned") is True


def texts_of_results(messages: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    """Yield the texts in the tool results of *messages*, in order."""
    for message in messages:
        for block in message.get("content") or ():
            result: Mapping[str, Any] = block.get("toolResult") or {}
            parts: Sequence[Mapping[str, Any]] = result.get("content") or ()
            yield from (part["text"] for part in parts if isinstance(part.get("text"), str))


# Writing the history of an agent into its workspace, so that people see it and other frameworks can go on with it.


@dataclass(frozen=True, slots=True)
class Head:
    """What stands in a history for messages that have left it.

    Attributes:
        messages: Pinned ones, and the summary.
        kinds: ``"pin"`` or ``"summary"`` for each.
        pins: Session indexes of the pinned ones.
        first: Session index of the message behind the head.
    """

    messages: Sequence[NativeMessage]
    kinds: Sequence[str]
    pins: Sequence[int]
    first: int


@dataclass(slots=True)
class HistoryKeeping:
    """Writes a history down as it grows; does nothing where the offloader keeps no windows.

    What was written is told from what is new by the objects: Strands puts a new content into a message that a guardrail
    redacts, and what was written of it has to go.

    Attributes:
        log: Takes it.
        session_id: Whose history it is.
        is_open: The session was begun, or taken over.
    """

    log: WindowLog | None
    session_id: str
    is_open: bool = False
    _writer: str = field(default_factory=lambda: uuid.uuid4().hex)
    _kept: list[tuple[NativeMessage, Any]] | None = None
    _first: int = 0

    async def open(self, settings: Mapping[str, Any]) -> None:
        """Begin with the session, or go on with it; may be repeated. It has to come before the first archiving.

        Raises:
            StorageError: The file system refused.
        """
        if self.log is None or self.is_open:
            return
        try:
            await self.log.start_window(self.session_id, settings, writer=self._writer)
        except SessionExistsError:
            try:
                await self.log.claim_window(self.session_id, writer=self._writer)
            except NotFoundError:  # somebody archived into the session, and kept no window
                self.log = None
                return
        self.is_open = True

    async def keep(self, head: Head, messages: Sequence[NativeMessage]) -> None:
        """Write down what is new of the history.

        Raises:
            StaleWindowError: Another process has gone on with the session.
            StorageError: The file system refused.
        """
        if self.log is None or not self.is_open:
            return
        found = [(message, message.get("content")) for message in (*head.messages, *messages)]
        known = self._kept
        if known is None or self._first != head.first or not _begins_with(found, known):
            natives = [message for message, _ in found]
            await self.log.replace_window(
                self.session_id, natives, head.kinds, head.first, head.pins, writer=self._writer
            )
        elif len(found) > len(known):
            new = [message for message, _ in found[len(known) :]]
            await self.log.extend_window(self.session_id, new, head.pins, writer=self._writer)
        self._kept, self._first = found, head.first


def _begins_with(found: Sequence[tuple[Any, Any]], known: Sequence[tuple[Any, Any]]) -> bool:
    return len(found) >= len(known) and all(
        one is other and content is kept for (one, content), (other, kept) in zip(found, known, strict=False)
    )


# Which session of a workspace belongs to a Strands agent.


_DEFAULT_AGENT: Final = "default"
_BETWEEN: Final = "--"
_FIRST_OR_REPEATED_DASH = re.compile(r"~|(?<![^-])-")


def session_of(agent: "Agent", session_id: str | None = None) -> str:
    """Return the session that *agent* writes to: its own where none is named, so that no two agents share one.

    Args:
        agent: Its ``session_id`` is that of its session manager; without one, Strands draws one for each object.
        session_id: Named by the user.
    """
    return session_named(agent.session_id, agent.agent_id) if session_id is None else session_id


def session_named(session_id: str, agent_id: str) -> str:
    """Return the session of one agent in a session of Strands'; no two pairs have the same.

    The agent that Strands calls ``default`` has the session itself, any other one its name behind it. Where the last
    ``--`` stands, the agent begins: so a session that has one itself names its default agent, too, and an agent that
    begins with a dash, or has several in a row, gets ``~`` before them.

    >>> session_named("release-7", "default"), session_named("release-7", "writer")
    ('release-7', 'release-7--writer')
    """
    if agent_id == _DEFAULT_AGENT and _BETWEEN not in session_id:
        return session_id
    return session_id + _BETWEEN + _FIRST_OR_REPEATED_DASH.sub(r"~\g<0>", agent_id)
