"""The messages of an agent: keys, where they may be cut, pins, their session, and the tokens of the next model call.

Messages are Strands' own dicts: ``role`` and ``content``, and each block has its kind as a key.
"""

import re
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from buoyline.compression.plan import legal_cuts
from buoyline.messages.registry import dialect_named

if TYPE_CHECKING:
    from strands import Agent

NativeMessage: TypeAlias = dict[str, Any]
Key: TypeAlias = str | int

DIALECT: Final = "bedrock"


def history_of(agent: "Agent") -> list[NativeMessage]:
    """Return the agent's own list of messages, not a copy."""
    return cast("list[NativeMessage]", agent.messages)


def key_of(message: Mapping[str, Any]) -> Key:
    """Return the id that Strands gives a message for life; before it has one, that of the object."""
    return message.get("tracking_id") or id(message)


def durable_key(message: NativeMessage) -> str:
    """Return the id that sessions keep with *message*; give it one first if it has none, as Strands does later."""
    if not message.get("tracking_id"):
        message["tracking_id"] = str(uuid.uuid4())
    return str(message["tracking_id"])


def cuts(messages: Sequence[NativeMessage], most: int, *, follows_user: bool) -> list[tuple[int, int]]:
    """Return the cuts from 1 to *most*, each with a number that says how bad it is.

    The messages from a cut on are kept. They never begin with a result, nor with a call whose result is not in the next
    message. 0: no call is separated from its result, wherever that is (ids may repeat, be empty, or answer nothing),
    and roles alternate, as providers require. 1: roles do not alternate. 2 and 3: the same in a history where each
    cut separates a pair.

    With *follows_user*, a user's message will be placed before the cut. Without one, the kept messages must begin with
    a plain user's message, or else with a call and its result.
    """
    dialect = dialect_named(DIALECT)
    whole = {*legal_cuts([dialect.view(message) for message in messages], hold_pending=False), len(messages)}
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
    """Return the ids of the calls, or of the results, in *message*; None if there are none."""
    found = [block[kind].get("toolUseId", "") for block in message.get("content", []) if kind in block]
    return frozenset(found) if found else None


def newest_request(messages: Sequence[NativeMessage]) -> int | None:
    """Return the position of the last message of the user that answers no call; None if there is none."""
    for at in range(len(messages) - 1, -1, -1):
        if messages[at]["role"] == "user" and _ids(messages[at], "toolResult") is None:
            return at
    return None


def pinned(messages: Sequence[NativeMessage], keys: Collection[Key]) -> list[bool]:
    """Return whether each message is pinned: by Strands' own flag, by *keys*, or as the other half of a pair.

    Source: ``metadata.custom.pinned``, which Strands' `pin_message` sets.
    """
    flags = [has_flag(message) or key_of(message) in keys for message in messages]
    answered = {
        at
        for at in range(len(messages) - 1)
        if (_ids(messages[at], "toolUse") or frozenset()) & (_ids(messages[at + 1], "toolResult") or frozenset())
    }
    return [
        flag or (at in answered and flags[at + 1]) or (at - 1 in answered and flags[at - 1])
        for at, flag in enumerate(flags)
    ]


def has_flag(message: NativeMessage) -> bool:
    """Return whether Strands' own flag pins *message*."""
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


# Which session of a workspace belongs to an agent.

_DEFAULT_AGENT: Final = "default"
_BETWEEN: Final = "--"
_FIRST_OR_REPEATED_DASH = re.compile(r"~|(?<![^-])-")


def session_of(agent: "Agent", session_id: str | None = None) -> str:
    """Return *session_id*, or if it is None, the agent's own session, so that no two agents share one.

    Without a session manager, Strands generates a ``session_id`` for each agent object.
    """
    return session_named(agent.session_id, agent.agent_id) if session_id is None else session_id


def session_named(session_id: str, agent_id: str) -> str:
    """Return the session of one agent in a session of Strands'; no two pairs have the same.

    It is *session_id* for the agent that Strands calls ``default``, else *session_id*, ``--`` and *agent_id*. The agent
    begins behind the last ``--``. So a *session_id* with a ``--`` is followed by its default agent, too, and ``~`` is
    placed before a dash at the beginning of an *agent_id* and before each repeated one.

    >>> session_named("release-7", "default"), session_named("release-7", "writer")
    ('release-7', 'release-7--writer')
    """
    if agent_id == _DEFAULT_AGENT and _BETWEEN not in session_id:
        return session_id
    return session_id + _BETWEEN + _FIRST_OR_REPEATED_DASH.sub(r"~\g<0>", agent_id)


# The tokens of the next model call, by the provider's usage of the last one.


_LEAST_SCALE: Final = 0.25
_MOST_SCALE: Final = 4.0
"""A provider's number beyond these is that of something else. One request must not decide about all others."""


@dataclass(frozen=True, slots=True)
class Projection:
    """The tokens of the next model call, also right after a history became smaller.

    Strands adds new messages to the usage at the last answer. That usage is of the context as it was: after an eviction
    it is too high, and the history would be compacted again and again for nothing.

    Attributes:
        stale: Id of the answer whose usage is of an earlier context; None if the newest usage counts.
        scale: Provider's tokens for one of ours.
    """

    stale: str | None = None
    scale: float = 1.0

    def tokens(self, messages: Sequence[NativeMessage], projected: int | None, counted: int) -> int:
        """Return the tokens of the next call.

        A usage without input is ignored: Strands takes it as its baseline, and would count only the new messages.
        *projected* is Strands' number, None if it has none; *counted* is our own count of the request.
        """
        if projected is None:
            return counted
        answer = _last_answer(messages)
        if answer is not None and not _has_input(messages[answer]["metadata"]["usage"]):
            return max(projected, int(self.scale * counted))
        if answer is None or key_of(messages[answer]) != self.stale:
            return projected
        return min(projected, int(self.scale * counted))

    def outdated(self, messages: Sequence[NativeMessage], cut: int, counts: Sequence[int], fixed: int) -> "Projection":
        """Return the projection after the oldest *messages* up to *cut* were evicted, or after results became smaller.

        *counts* are our own counts of each message, *fixed* that of system prompt and tools.
        """
        answer = _last_answer(messages)
        if answer is None or not _has_input(messages[answer]["metadata"]["usage"]):
            return Projection(None, self.scale)
        scale, key = self.scale, durable_key(messages[answer])
        if key != self.stale:
            ratio = _total(messages[answer]["metadata"]["usage"]) / max(fixed + sum(counts[: answer + 1]), 1)
            scale = min(max(ratio, _LEAST_SCALE), _MOST_SCALE)
        return Projection(key if answer >= cut else None, scale)


def _last_answer(messages: Sequence[Mapping[str, Any]]) -> int | None:
    """Return the position of the last answer with a usage."""
    for position in range(len(messages) - 1, -1, -1):
        metadata: Mapping[str, Any] = messages[position].get("metadata") or {}
        if messages[position].get("role") == "assistant" and metadata.get("usage"):
            return position
    return None


def _has_input(usage: Mapping[str, Any]) -> bool:
    names = ("inputTokens", "cacheReadInputTokens", "cacheWriteInputTokens")
    return any(int(usage.get(name) or 0) > 0 for name in names)


def _total(usage: Mapping[str, Any]) -> int:
    """Return the tokens of a request and its answer.

    Source: Strands' own reading. Cached tokens are added unless input and output are the total already.
    """
    taken = int(usage["inputTokens"]) + int(usage["outputTokens"])
    if taken == usage.get("totalTokens"):
        return taken
    return taken + int(usage.get("cacheReadInputTokens") or 0) + int(usage.get("cacheWriteInputTokens") or 0)
