"""What a summary is made of, and what a summariser is given and gives back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from buoyline.messages import Message
from buoyline.tokens import TextCounter

FIELDS = ("task_overview", "current_state", "important_discoveries", "next_steps", "context_to_preserve")
"""The five fields of a summary, in the order in which they are read. Source: AgentScope's `ContextConfig`."""


@dataclass(frozen=True, slots=True, order=True)
class Pointer:
    """The lines that back a sentence.

    Attributes:
        path: File relative to the session's directory, e.g. ``transcript.md``.
        start: First line, 1-based.
        end: Last line, inclusive.
    """

    path: str
    start: int
    end: int

    def __str__(self) -> str:
        """Return ``path:start-end``, or ``path:start`` for a single line."""
        return f"{self.path}:{self.start}" + ("" if self.start == self.end else f"-{self.end}")


@dataclass(frozen=True, slots=True)
class Source:
    """One archived message as a summariser sees it.

    Attributes:
        index: Position in the whole session, 0-based.
        message: The view; an offloaded tool result says what its stub says.
        pointer: Where the message stands in the transcript; None with an offloader that knows no lines.
    """

    index: int
    message: Message
    pointer: Pointer | None = None


@dataclass(frozen=True, slots=True)
class Item:
    """One fact of a summary, kept apart from the prose so that the next summary can carry it on.

    Attributes:
        field: Which of `FIELDS` it belongs to.
        kind: What it is, e.g. ``"request"``, ``"file"``, ``"error"``, ``"identifier"``.
        text: As it stands in the summary, without its pointer.
        pointer: The lines that back it; None where there are none.
        last_seen: Index of the newest message that holds it.
        count: In how many messages it was seen.
        weight: How likely it is needed again; higher comes first. Only comparable within a kind.
        order: Position among what one message says, for reading in order.
    """

    field: str
    kind: str
    text: str
    pointer: Pointer | None
    last_seen: int
    count: int = 1
    weight: float = 1.0
    order: int = 0


@dataclass(frozen=True, slots=True)
class Draft:
    """What a summariser gives back.

    Attributes:
        summarizer: Who wrote it, e.g. ``"extractive"``.
        fields: Text for each field asked for; sentences that rest on the archive end in ``[path:start-end]``.
        pointers: Those that stand in the text, in reading order, each once.
        items: Facts to carry into the next summary, most needed first; empty from most model summarisers.
    """

    summarizer: str
    fields: Mapping[str, str]
    pointers: tuple[Pointer, ...] = ()
    items: tuple[Item, ...] = ()


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    """What a summariser is asked.

    Attributes:
        sources: The messages that leave the context, in order; never empty.
        previous: The draft that stands in the context now and is replaced; None the first time.
        max_tokens: For the text of all fields together.
        counter: Counts those tokens.
        fields: Names of the fields wanted, in order.
        focus: What the caller wants kept above all; empty for no preference.
        prompt: Instruction for a model; ignored without one.
        schema: JSON Schema of the answer; ignored without a model.
    """

    sources: Sequence[Source]
    previous: Draft | None
    max_tokens: int
    counter: TextCounter
    fields: tuple[str, ...] = FIELDS
    focus: str = ""
    prompt: str = ""
    schema: Mapping[str, object] = field(default_factory=dict[str, object])


class Summarizer(Protocol):
    """Turns messages that leave the context into the fields of a summary."""

    async def summarize(self, request: SummaryRequest) -> Draft:
        """Return a draft. Raise `SummaryError`, or whatever the model behind it raises, when there is none."""
        ...
