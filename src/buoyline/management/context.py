"""The context as managers and activation rules see it, the actions that they ask for, and those who carry them out.

A manager is pure: it looks at a `ContextView` and returns actions. A `ContextEditor`, such as the engine of a
window, carries them out.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeAlias

from buoyline.messages import Message, ToolResult
from buoyline.messages.model import Note
from buoyline.offloader import StoredResult
from buoyline.tokens import TextCounter

NO_INDEX = -1
"""Index of a message that is not of the session, such as a summary."""


@dataclass(frozen=True, slots=True)
class ContextMessage:
    """One message in the context: the framework's own object and its view.

    Attributes:
        index: Session index; `NO_INDEX` for a summary or a reference line.
        pinned: It is reinserted when it is archived.
    """

    native: Any
    message: Message
    tokens: int
    index: int
    pinned: bool = False

    @property
    def is_ours(self) -> bool:
        """Whether it replaces messages and is not of the session."""
        return self.index == NO_INDEX

    @property
    def is_counted(self) -> bool:
        """Whether it counts as a message; system messages and summaries do not."""
        return self.index != NO_INDEX and self.message.role != "system"

    @property
    def is_spoken_by_user(self) -> bool:
        """Whether a user says something in it, beside results, which Anthropic's form also puts there.

        A framework's notes in a user's place, such as AgentScope's hints at each call, are not spoken by the user.
        """
        speaks = any(not isinstance(part, (ToolResult, Note)) for part in self.message.parts)
        return not self.is_ours and self.message.role == "user" and speaks


@dataclass(frozen=True, kw_only=True)
class ContextView:
    """A context at a hook.

    Totals are computed once, since several rules and each report ask for them, of thousands of messages. So it has no
    slots.

    Attributes:
        prefix: Messages before the others: reinserted ones, a reference line, a summary.
        messages: Messages that are not archived, in order.
        fixed_tokens: Of the system prompt and tools beside the messages.
    """

    prefix: Sequence[ContextMessage] = ()
    messages: Sequence[ContextMessage]
    size: int
    counter: TextCounter
    fixed_tokens: int = 0

    @cached_property
    def tokens(self) -> int:
        """Tokens of the whole context: system prompt, tools, prefix and messages."""
        return self.fixed_tokens + sum(held.tokens for held in self.all_messages())

    @cached_property
    def message_count(self) -> int:
        """Number of messages without system messages, summaries and reference lines."""
        return sum(held.is_counted for held in self.all_messages())

    @property
    def views(self) -> list[Message]:
        """The views of the messages that may be archived."""
        return [held.message for held in self.messages]

    def all_messages(self) -> Iterator[ContextMessage]:
        """Yield the prefix and the messages, in order."""
        yield from self.prefix
        yield from self.messages

    def is_unread(self, position: int, number: int) -> bool:
        """Return whether the model has not spoken since it got the result *number* of the message at *position*."""
        spoken = self._spoken_at()
        if position != spoken:
            return position > spoken
        parts = self.messages[position].message.parts
        places = [at for at, part in enumerate(parts) if isinstance(part, ToolResult)]
        return all(isinstance(part, (ToolResult, Note)) for part in parts[places[number] :])

    def current_user(self) -> int | None:
        """Return the position of the user's newest message; None if it is in the prefix."""
        spoken = (position for position, held in enumerate(self.messages) if held.is_spoken_by_user)
        return max(spoken, default=None)

    def tool_of(self, position: int, number: int) -> str:
        """Return the tool of the result *number* of the message at *position*; empty if not known."""
        result = self.messages[position].message.results[number]
        if result.name:
            return result.name
        for held in reversed(self.messages[: position + 1]):
            for call in held.message.calls:
                if call.call_id == result.call_id:
                    return call.name
        return ""

    def _spoken_at(self) -> int:
        """Return the position of the model's last message; -1 without one."""
        positions = reversed(range(len(self.messages)))
        return next((at for at in positions if self.messages[at].message.role == "assistant"), -1)


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
        model: Name of the model that writes the summary; empty: the editor's own.
        prompt: Instructs the model; empty: as the editor is configured.
    """

    cut: int
    reinserted: tuple[int, ...]
    prefix: tuple[int, ...]
    reason: str
    model: str = ""
    prompt: str = ""


StubWriter: TypeAlias = Callable[[str, StoredResult | None, TextCounter], str]
"""Writes the stub for a text; without a `StoredResult`, nothing keeps the text. Pure."""


@dataclass(frozen=True, slots=True)
class Offload:
    """Store the text of a tool result whole, and leave a stub.

    Attributes:
        position: In `ContextView.messages`.
        result: Number of the tool result in the message.
        texts: Numbers of the text and JSON parts to replace; one stub replaces all.
    """

    position: int
    result: int
    reason: str
    texts: tuple[int, ...]
    write_stub: StubWriter


ManagerAction: TypeAlias = Evict | Summarize | Offload


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
