"""What a history looks like in which messages of ours stand before those of the agent.

Providers want a history that begins with a user's message, and in which roles take turns. What stands for the messages
that left is a user's message, and so may be what stands beside it: then they share one. Messages further behind are the
agent's own business.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
        parts: Messages of the head by their number in `HeldContext.head`, -1 for others, and what they are.
    """

    message: NativeMessage
    parts: Sequence[tuple[int, NativeMessage]]


@dataclass(frozen=True, slots=True)
class Shown:
    """A context as a history.

    Attributes:
        head: What stands before the agent's messages.
        taken: How many of the messages behind the head share the last of these: one, or none.
        opening: Says that messages have left, where the document wants nothing to be said and a user's message is
            needed.
        messages: Those that follow.
    """

    head: Sequence[Standing] = ()
    taken: int = 0
    messages: Sequence[NativeMessage] = ()
    opening: NativeMessage | None = None

    def history(self) -> list[NativeMessage]:
        """Return the whole history, in order."""
        return [*(standing.message for standing in self.head), *self.messages]


def shown_as(held: HeldContext, before: Shown | None = None, *, opening: NativeMessage | None = None) -> Shown:
    """Return how *held* stands in a history.

    Args:
        held: The context.
        before: How it stood there last: what stands there still is the very same objects.
        opening: Stands at the beginning in any case; left out: one does where that is needed.
    """
    before = before or Shown()
    parts = list(enumerate(native for _, native in held.head))
    ours = [part for part in parts if held.head[part[0]][0] in _OURS]
    follower = held.messages[0] if held.messages else None
    if opening is None and _needs_opening(parts, ours, follower, has_left=held.first > 0):
        opening = before.opening or dialect_named(DIALECT).user_message(_OPENING)
    if opening is not None:
        parts.insert(0, (-1, opening))
    elif parts and parts[0][1]["role"] != "user":
        parts = [*ours, *(part for part in parts if part not in ours)]
    taken = int(bool(parts) and follower is not None and follower["role"] == parts[-1][1]["role"])
    if follower is not None and taken:
        parts.append((-1, follower))
    groups = [list(group) for _, group in groupby(parts, key=lambda part: part[1]["role"])]
    return Shown([_standing(group, before.head) for group in groups], taken, held.messages[taken:], opening)


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


def _are(ones: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]]) -> bool:
    return len(ones) == len(others) and all(one is other for one, other in zip(ones, others, strict=True))
