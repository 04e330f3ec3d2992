"""What a history looks like in which messages of ours stand before those of the agent.

Providers want a history that begins with a user's message, and in which roles take turns. What stands for the messages
that left is a user's message, and so may be what stands beside it: then they share one. Messages further behind are the
agent's own business.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final

from buoyline.integrations.strands.history import DIALECT, NativeMessage, durable_key
from buoyline.messages import dialect_named
from buoyline.window.adopting import HeldContext

_OURS: Final = ("summary", "notice")
_OPENING: Final = "[The oldest messages of this conversation are no longer in the context.]"


@dataclass(frozen=True, slots=True)
class Standing:
    """One message at the head of a history, and what shares it.

    Attributes:
        message: What stands there: the only part itself, or one that has the contents of all.
        parts: Messages of the head by their number in `HeldContext.head`, -1 for those behind it, and what they are.
    """

    message: NativeMessage
    parts: Sequence[tuple[int, NativeMessage]]


@dataclass(frozen=True, slots=True)
class Shown:
    """A context as a history.

    Attributes:
        head: What stands before the agent's messages.
        taken: How many of the messages behind the head share the last of these: one, or none.
        messages: Those that follow.
    """

    head: Sequence[Standing] = ()
    taken: int = 0
    messages: Sequence[NativeMessage] = field(default=())

    def history(self) -> list[NativeMessage]:
        """Return the whole history, in order."""
        return [*(standing.message for standing in self.head), *self.messages]


def shown_as(held: HeldContext, before: Sequence[Standing] = ()) -> Shown:
    """Return how *held* stands in a history; messages that stood there *before* are the very same objects."""
    parts = list(enumerate(native for _, native in held.head))
    ours = [part for part in parts if held.head[part[0]][0] in _OURS]
    follower = held.messages[0] if held.messages else None
    if _needs_opening(parts, ours, follower, has_left=held.first > 0):
        ours = [(-1, _opening(before))]
        parts = [*ours, *parts]
    elif parts and parts[0][1]["role"] != "user":
        parts = [*ours, *(part for part in parts if part not in ours)]
    taken = int(bool(parts) and follower is not None and follower["role"] == parts[-1][1]["role"])
    if follower is not None and taken:
        parts.append((-1, follower))
    groups = [list(group) for _, group in groupby(parts, key=lambda part: part[1]["role"])]
    return Shown([_standing(group, before) for group in groups], taken, held.messages[taken:])


def _needs_opening(
    parts: Sequence[tuple[int, NativeMessage]],
    ours: Sequence[object],
    follower: NativeMessage | None,
    *,
    has_left: bool,
) -> bool:
    """Tell whether something of ours has to be there, though a document wants no notice."""
    if ours or not has_left:
        return False
    first = parts[0][1] if parts else follower
    return first is not None and first["role"] != "user"


def _standing(parts: Sequence[tuple[int, NativeMessage]], before: Sequence[Standing]) -> Standing:
    natives = [native for _, native in parts]
    if len(natives) == 1:
        durable_key(natives[0])
        return Standing(natives[0], parts)
    for one in before:
        if _are(natives, [native for _, native in one.parts]):
            return Standing(one.message, parts)
    message: NativeMessage = {
        "role": natives[0]["role"],
        "content": [block for native in natives for block in native["content"]],
    }
    durable_key(message)
    return Standing(message, parts)


def _opening(before: Sequence[Standing]) -> NativeMessage:
    natives: Iterable[NativeMessage] = (native for one in before for number, native in one.parts if number < 0)
    known = next((native for native in natives if native["content"] == [{"text": _OPENING}]), None)
    return known or dialect_named(DIALECT).user_message(_OPENING)


def _are(ones: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]]) -> bool:
    return len(ones) == len(others) and all(one is other for one, other in zip(ones, others, strict=True))
