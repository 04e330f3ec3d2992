"""The actions that managers ask for, and the protocol of those who carry them out.

A manager is pure: it looks at a `ContextView` and returns actions. The owner of the messages, such as a `ContextWindow`
or a `ManagedConversation`, carries them out as a `ContextEditor`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from buoyline.compression import ContextConfig
from buoyline.management.view import ContextView
from buoyline.offloader import StoredResult
from buoyline.tokens import TextCounter


@dataclass(frozen=True, slots=True)
class Evict:
    """Archive the oldest messages; at most a reference line replaces them.

    Attributes:
        cut: How many of `ContextView.messages` are archived.
        reinserted: Positions before *cut*, ascending, of messages that move to the prefix: system messages, pins, the
            user's newest message, and all calls and results that belong to them.
        prefix: Positions in `ContextView.prefix`, ascending, of the messages that stay there.
        reason: Why the cut is there, for people.
        notice: Add a line that says where the messages are.
    """

    cut: int
    reinserted: tuple[int, ...]
    prefix: tuple[int, ...]
    reason: str
    notice: bool = True


@dataclass(frozen=True, slots=True)
class Summarize:
    """Archive the oldest messages, as `Evict` does; a summary replaces them.

    Attributes:
        config: How to summarize; None: as the editor is configured.
        model: Name of the model that writes the summary; empty: the editor's own.
        prompt: Instructs the model; empty: as in *config*.
    """

    cut: int
    reinserted: tuple[int, ...]
    prefix: tuple[int, ...]
    reason: str
    config: ContextConfig | None = None
    model: str = ""
    prompt: str = ""


StubWriter: TypeAlias = Callable[[str, StoredResult | None, TextCounter], str]
"""Writes the stub for a text; without a `StoredResult`, nothing keeps the text. Pure."""


@dataclass(frozen=True, slots=True)
class Offload:
    """Store a part of a message whole, and leave a stub.

    Attributes:
        position: In `ContextView.messages`.
        result: Number of the tool result in the message; -1 for its own content.
        texts: Numbers of the text and JSON parts to replace; one stub replaces all.
        media: Numbers of the images and other media to replace, each by a line that names it.
    """

    position: int
    result: int
    reason: str
    texts: tuple[int, ...] = ()
    media: tuple[int, ...] = ()
    write_stub: StubWriter | None = None


@dataclass(frozen=True, slots=True)
class Pin:
    """Reinsert the messages at *positions* of `ContextView.messages` when they are archived."""

    positions: tuple[int, ...]
    reason: str


ManagerAction: TypeAlias = Evict | Summarize | Offload | Pin


@dataclass(frozen=True, slots=True)
class Decision:
    """The actions that a manager wants, in order, and its finding, for people.

    Positions are those of the given view, so at most one action archives messages, and it is the last.
    """

    actions: tuple[ManagerAction, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ActionResult:
    """The outcome of an action in words, and its deviations from the document, such as a model that does not exist."""

    words: str
    is_reduced: bool = True
    problems: Sequence[str] = ()


class ContextEditor(Protocol):
    """Carries out actions on the messages that it holds.

    Messages are durable in the archive before they are removed. An action that fails raises and does not change the
    context.
    """

    def view(self) -> ContextView:
        """Return the present context."""
        ...

    async def evict(self, action: Evict) -> ActionResult:
        """Archive the messages before the cut, and remove those that are not reinserted."""
        ...

    async def summarize(self, action: Summarize) -> ActionResult:
        """Archive the messages before the cut, and replace them by a summary."""
        ...

    async def replace(self, action: Offload) -> ActionResult:
        """Store a part of a message, and replace it by its stub."""
        ...

    async def pin(self, action: Pin) -> ActionResult:
        """Remember which messages to reinsert."""
        ...
