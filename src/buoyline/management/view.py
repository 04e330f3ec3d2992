"""What managers and activation rules are shown: a context as it stands, to look at and never to change."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from buoyline.messages import Message, Note, ToolResult
from buoyline.tokens import TextCounter
from buoyline.tokens.messages import count_result

NO_INDEX = -1
"""The index of what is no message of the session, such as a summary."""


@dataclass(frozen=True, slots=True)
class ContextMessage:
    """One message that stands in the context.

    Attributes:
        native: The very object that the framework has.
        message: Its view.
        tokens: What it takes.
        index: Its position in the session, 0-based; `NO_INDEX` for a summary or a notice.
        pinned: It stands again when it is archived.
        replaced_parts: Numbers of its results, and -1 for its own content, of which something was replaced already.
    """

    native: Any
    message: Message
    tokens: int
    index: int
    pinned: bool = False
    replaced_parts: frozenset[int] = frozenset()

    @property
    def is_ours(self) -> bool:
        """Tell whether this stands for messages and is none of the session."""
        return self.index == NO_INDEX

    @property
    def is_counted(self) -> bool:
        """Tell whether it counts as a message: system messages and what stands for others do not."""
        return self.index != NO_INDEX and self.message.role != "system"

    @property
    def is_spoken_by_user(self) -> bool:
        """Tell whether a user says something in it, beside the results that Anthropic's form puts there, too.

        What a framework tells the model in a user's place, as AgentScope's hints do at each call, is said by nobody.
        """
        speaks = any(not isinstance(part, (ToolResult, Note)) for part in self.message.parts)
        return not self.is_ours and self.message.role == "user" and speaks


@dataclass(frozen=True, kw_only=True)
class ContextView:
    """A context at a hook.

    Totals are added up once: several rules and each report ask for them, of thousands of messages. So it has no slots.

    Attributes:
        prefix: What stands before the messages: archived ones that stand again, a notice, a summary.
        messages: Messages that are not archived, in order.
        size: Tokens of the model's window.
        counter: Counts what a manager would put somewhere.
        fixed_tokens: What system prompt and tools take beside the messages.
        idle_s: Seconds that passed between the two newest calls of the model.
        model_calls: How many times the context was handed out before.
        is_overflow: The provider has refused the context as too long.
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
        """What the whole context takes: system prompt, tools, head, and messages."""
        return self.fixed_tokens + sum(held.tokens for held in self.all_messages())

    @cached_property
    def message_count(self) -> int:
        """How many messages there are, without system messages and what stands for messages that left."""
        return sum(held.is_counted for held in self.all_messages())

    @property
    def views(self) -> list[Message]:
        """The views of the messages that may leave."""
        return [held.message for held in self.messages]

    @property
    def turn_tokens(self) -> int:
        """What all tool results of the newest turn take; see `turn_at`."""
        turn = (result for held in self.messages[self.turn_at() :] for result in held.message.results)
        return sum(count_result(result, self.counter) for result in turn)

    def all_messages(self) -> Iterator[ContextMessage]:
        """Yield all of it in order."""
        yield from self.prefix
        yield from self.messages

    def turn_at(self) -> int:
        """Return the position at which the results of the newest turn begin: behind the model's last message.

        Where that message holds results itself, as AgentScope's replies do, it is its own position: they came with it,
        and nobody has looked at them before.
        """
        spoken = self._spoken_at()
        return spoken if spoken >= 0 and self.messages[spoken].message.results else spoken + 1

    def is_unread(self, position: int, number: int) -> bool:
        """Tell whether the model has not spoken since the result *number* of the message at *position* came."""
        spoken = self._spoken_at()
        if position != spoken:
            return position > spoken
        parts = self.messages[position].message.parts
        places = [at for at, part in enumerate(parts) if isinstance(part, ToolResult)]
        return all(isinstance(part, (ToolResult, Note)) for part in parts[places[number] :])

    def current_user(self) -> int | None:
        """Return the position of the user's newest words among the messages; None where they stand in the head."""
        spoken = (position for position, held in enumerate(self.messages) if held.is_spoken_by_user)
        return max(spoken, default=None)

    def tool_of(self, position: int, number: int) -> str:
        """Return the tool that gave the result *number* of the message at *position*; empty where nobody says it."""
        result = self.messages[position].message.results[number]
        if result.name:
            return result.name
        for held in reversed(self.messages[: position + 1]):
            for call in held.message.calls:
                if call.call_id == result.call_id:
                    return call.name
        return ""

    def _spoken_at(self) -> int:
        """Return the position of the model's last message; -1 where there is none."""
        position = len(self.messages) - 1
        while position >= 0 and self.messages[position].message.role != "assistant":
            position -= 1
        return position
