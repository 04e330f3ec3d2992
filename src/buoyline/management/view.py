"""The context as managers and activation rules see it; read-only."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from buoyline.messages import Message, ToolResult
from buoyline.messages.model import Note
from buoyline.tokens import TextCounter
from buoyline.tokens.messages import count_result

NO_INDEX = -1
"""Index of a message that is not of the session, such as a summary."""


@dataclass(frozen=True, slots=True)
class ContextMessage:
    """One message in the context: the framework's own object and its view.

    Attributes:
        index: Session index; `NO_INDEX` for a summary or a reference line.
        pinned: It is reinserted when it is archived.
        replaced_parts: Numbers of its results, and -1 for its own content, of which a part was replaced already.
    """

    native: Any
    message: Message
    tokens: int
    index: int
    pinned: bool = False
    replaced_parts: frozenset[int] = frozenset()

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
        size: Tokens of the model's window.
        fixed_tokens: Of the system prompt and tools beside the messages.
        idle_s: Seconds between the two newest model calls.
        model_calls: How many times the context was sent before.
        is_overflow: The provider refused the context as too long.
    """

    prefix: Sequence[ContextMessage] = ()
    messages: Sequence[ContextMessage]
    size: int
    counter: TextCounter
    fixed_tokens: int = 0
    idle_s: float = 0.0
    model_calls: int = 0
    is_overflow: bool = False

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

    @property
    def turn_tokens(self) -> int:
        """Tokens of all tool results of the newest turn; see `turn_at`."""
        turn = (result for held in self.messages[self.turn_at() :] for result in held.message.results)
        return sum(count_result(result, self.counter) for result in turn)

    def all_messages(self) -> Iterator[ContextMessage]:
        """Yield the prefix and the messages, in order."""
        yield from self.prefix
        yield from self.messages

    def turn_at(self) -> int:
        """Return the position of the first result of the newest turn: behind the model's last message.

        If that message holds results itself, as AgentScope's replies do, it is that message's position: the model has
        not seen them yet.
        """
        spoken = self._spoken_at()
        return spoken if spoken >= 0 and self.messages[spoken].message.results else spoken + 1

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
        """Return the position of the model's last message; -1 if there is none."""
        positions = reversed(range(len(self.messages)))
        return next((at for at in positions if self.messages[at].message.role == "assistant"), -1)
