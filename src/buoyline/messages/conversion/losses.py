"""What a conversion could not keep."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

_NOTHING: Final[tuple[object, ...]] = (None, False, "", [], {})


@dataclass(frozen=True, order=True, slots=True)
class Loss:
    """One thing that a message had and its conversion has not, or has in another form.

    Attributes:
        message: Number of the message among those given, 0-based.
        what: What is lost or changed.
        why: The reason, and what stands there instead where something does.
    """

    message: int
    what: str
    why: str

    def __str__(self) -> str:
        """Say it in one line."""
        return f"message {self.message}: {self.what}: {self.why}"


@dataclass(slots=True)
class Losses:
    """Gathers the losses of a conversion to the dialect *target*."""

    target: str
    found: list[Loss] = field(default_factory=list[Loss])

    def note(self, message: int, what: str, why: str = "") -> None:
        """Note a loss; left out, the reason is that the target has no place for it."""
        self.found.append(Loss(message, what, why or f"{self.target} has no place for it"))

    def note_fields(self, message: int, holder: Mapping[str, Any], known: Iterable[str], where: str = "") -> None:
        """Note each field of *holder* that says something and that the reader does not know.

        Args:
            message: See `Loss`.
            holder: A message or a block.
            known: Names of the fields that are read.
            where: What *holder* is.
        """
        names = sorted(name for name in holder.keys() - set(known) if _says_something(holder[name]))
        for name in names:
            self.note(message, f"{name} of {where}" if where else name)


def _says_something(value: object) -> bool:
    return not any(type(value) is type(nothing) and value == nothing for nothing in _NOTHING)
