"""Where a Strands history may be cut, and which of its messages are pinned.

Pure, but for `durable_key`. Messages are Strands' own: ``role`` and ``content``, blocks with their kind for a key.
"""

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from buoyline.compression import legal_cuts
from buoyline.messages import Message, dialect_named

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
