"""What managers ask for, and who carries it out.

A manager is pure: it looks at a `ContextView` and returns steps. Somebody who holds the messages (a `ContextWindow`,
a `ManagedConversation`) carries them out, as `ContextEditor` says. So one engine is below all of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from buoyline.compression import ContextConfig
from buoyline.management.view import ContextView
from buoyline.offloader import StoredResult
from buoyline.tokens import TextCounter


@dataclass(frozen=True, slots=True)
class Evict:
    """The oldest messages leave for the archive, and nothing but a notice says what they were.

    Attributes:
        cut: So many of `ContextView.messages` leave.
        reinserted: Positions before *cut*, ascending, of those that stand again in the head: system messages, pins, the
            user's newest words, and whatever of calls and results belongs to one of them.
        prefix: Positions in `ContextView.prefix`, ascending, of what stays there.
        reason: Why the cut is where it is, in words.
        notice: Leave a line that says where they are.
    """

    cut: int
    reinserted: tuple[int, ...]
    prefix: tuple[int, ...]
    reason: str
    notice: bool = True


@dataclass(frozen=True, slots=True)
class Summarize:
    """The oldest messages leave for the archive, and a summary takes their place.

    Attributes:
        cut: See `Evict`.
        reinserted: See `Evict`.
        prefix: See `Evict`.
        reason: See `Evict`.
        config: How to summarise; left out: as whoever carries it out was set up.
        model: Name of the model that shall write the summary; empty: whichever there is.
        prompt: Tells it how; empty: as *config* says.
    """

    cut: int
    reinserted: tuple[int, ...]
    prefix: tuple[int, ...]
    reason: str
    config: ContextConfig | None = None
    model: str = ""
    prompt: str = ""


class StubWriter(Protocol):
    """Writes what stands in the place of something that was stored whole. Pure."""

    def __call__(self, text: str, stored: StoredResult | None, counter: TextCounter) -> str:
        """Return what stands for *text*, which is behind *stored*; None there means that nothing keeps it."""
        ...


@dataclass(frozen=True, slots=True)
class Replace:
    """A part of a message is stored whole, and less of it stays.

    Attributes:
        position: Of the message in `ContextView.messages`.
        result: Number of the tool result in it; -1 for the message's own content.
        texts: Numbers of the text and JSON parts that leave; one stand-in takes the place of all.
        media: Numbers of the pictures and other media that leave; each gets a line that names it.
        write_stub: Writes what stands for the texts.
        reason: Why, in words.
    """

    position: int
    result: int
    reason: str
    texts: tuple[int, ...] = ()
    media: tuple[int, ...] = ()
    write_stub: StubWriter | None = None


@dataclass(frozen=True, slots=True)
class Pin:
    """Messages stand again when they are archived.

    Attributes:
        positions: Of the messages in `ContextView.messages`.
        reason: Why, in words.
    """

    positions: tuple[int, ...]
    reason: str


ManagerAction: TypeAlias = Evict | Summarize | Replace | Pin


@dataclass(frozen=True, slots=True)
class Decision:
    """What a manager wants to be done.

    Attributes:
        actions: In order. Positions are those of the situation that was decided about, so at most one of them lets
            messages leave, and it is the last.
        reason: What it found, in words.
    """

    actions: tuple[ManagerAction, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ActionResult:
    """What became of a step.

    Attributes:
        words: What was done, for people.
        is_reduced: Something was done that makes the context smaller.
        problems: What went otherwise than the document says, such as a model that nobody has.
    """

    words: str
    is_reduced: bool = True
    problems: Sequence[str] = field(default=())


class ContextEditor(Protocol):
    """Carries out what managers ask for, on the messages that it holds.

    What leaves is durable before it leaves. A step that fails raises and leaves the context as it was.
    """

    def view(self) -> ContextView:
        """Return the context as it stands now."""
        ...

    async def evict(self, action: Evict) -> ActionResult:
        """Archive the messages before the cut, and let go of those that do not stand again."""
        ...

    async def summarize(self, action: Summarize) -> ActionResult:
        """Archive the messages before the cut, and put a summary in their place."""
        ...

    async def replace(self, action: Replace) -> ActionResult:
        """Store what leaves of a message, and put there what stands for it."""
        ...

    async def pin(self, action: Pin) -> ActionResult:
        """Remember which messages stand again."""
        ...
