"""The tool results of a context, as managers go through them."""

from collections.abc import Iterator
from dataclasses import dataclass

from buoyline.management.situation import Held, Situation
from buoyline.messages import Media, ToolResult
from buoyline.messages.message import Part, text_in


@dataclass(frozen=True, slots=True)
class FoundResult:
    """A tool result and where it stands.

    Attributes:
        position: Of its message in `Situation.messages`.
        number: In the message.
        held: The message.
    """

    position: int
    number: int
    held: Held

    @property
    def result(self) -> ToolResult:
        """The result."""
        return self.held.message.results[self.number]

    @property
    def chars(self) -> int:
        """Characters of its text, counted as one text of all its blocks."""
        return len(self.result.text)

    @property
    def is_ours(self) -> bool:
        """Tell whether something of it was replaced already."""
        return self.number in self.held.stand_ins


def results_of(situation: Situation, start: int = 0) -> Iterator[FoundResult]:
    """Yield the results of the messages from position *start* on, in order."""
    for position in range(start, len(situation.messages)):
        held = situation.messages[position]
        for number in range(len(held.message.results)):
            yield FoundResult(position, number, held)


def text_numbers(result: ToolResult) -> tuple[int, ...]:
    """Return the numbers of the parts that are text or JSON and not empty."""
    return tuple(number for number, part in enumerate(result.parts) if text_in(part))


def images_in(parts: "tuple[Part, ...]") -> list[int]:
    """Return the numbers of the pictures that have their bytes with them."""
    return [number for number, part in enumerate(parts) if isinstance(part, Media) and _is_picture(part)]


def _is_picture(part: Media) -> bool:
    return part.kind == "image" and part.payload is not None
