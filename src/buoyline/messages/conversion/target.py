"""What a conversion has to know of the dialect that it writes."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from buoyline.messages.conversion.blocks import Answered, Block, Medium, Said, Thought, Turn
from buoyline.messages.conversion.losses import Losses
from buoyline.messages.conversion.media import left_out
from buoyline.messages.message import Role


class Target(Protocol):
    """Writes one dialect.

    Attributes:
        takes_turns: The user, the tools among them, and the model have to take turns.
        has_system: A system message is a message there; else it is sent beside them.
        has_cache_points: The end of a cached prompt has a place.
        names_results: A result names its tool.
        shows_media: The model, too, may show media.
        names_media: Not only documents have names.
    """

    takes_turns: bool
    has_system: bool
    has_cache_points: bool
    names_results: bool
    shows_media: bool
    names_media: bool

    def refusal(self, medium: Medium) -> str | None:
        """Return why *medium* has no place; empty: for no reason beyond that; None where it has one."""
        ...

    def refuses(self, thought: Thought) -> str | None:
        """Return why *thought* has no place; None where it has one."""
        ...

    def joins(self, group: Sequence[Turn], turn: Turn) -> bool:
        """Tell whether *turn* belongs into one message with the turns before it."""
        ...

    def written(self, group: Sequence[Turn], losses: Losses) -> Iterator[Any]:
        """Write the message that holds *group*, or several."""
        ...


def fitted(turn: Turn, target: Target, losses: Losses) -> Iterator[Block]:
    """Yield the blocks of *turn* as they have a place; text stands for media without one."""
    for block in turn.blocks:
        match block:
            case Medium():
                yield _shown(block, turn.role, target, turn.number, losses)
            case Thought() if (why := target.refuses(block)) is not None:
                losses.note(turn.number, "hidden reasoning" if block.hidden else "reasoning", why)
            case Answered():
                inner = tuple(
                    _shown(given, turn.role, target, turn.number, losses) if isinstance(given, Medium) else given
                    for given in block.blocks
                )
                yield Answered(block.call_id, block.name, inner, block.is_error)
            case _:
                yield block


def _shown(medium: Medium, role: Role, target: Target, number: int, losses: Losses) -> Medium | Said:
    if role == "assistant" and not target.shows_media:
        return left_out(medium, number, losses, "the model shows no media there")
    why = target.refusal(medium)
    if why is not None:
        return left_out(medium, number, losses, why)
    if medium.name and medium.kind != "document" and not target.names_media:
        losses.note(number, f"name {medium.name!r} of {medium.kind}")
    return medium
