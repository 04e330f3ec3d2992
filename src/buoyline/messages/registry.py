"""Message dialects: which framework's form a message has, and how to read and rewrite it."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from buoyline.errors import ConfigError, MessageError
from buoyline.messages.agentscope import AgentScope
from buoyline.messages.anthropic import Anthropic
from buoyline.messages.bedrock import Bedrock
from buoyline.messages.jsonl import is_object
from buoyline.messages.model import Blocks, Message, ToolResult, blocks_of, role_of
from buoyline.messages.openai_chat import OpenAIChat


class Dialect(Protocol):
    """One framework's message form.

    Implementations hold no state. They never change a native message: what has to differ is a new message
    of the same kind, and everything else stays the very same object.
    """

    name: str

    def recognises(self, message: object) -> bool:
        """Tell whether *message* has this form. Cheap, looks at no payload, and raises for no JSON value."""
        ...

    def view(self, message: Any) -> Message:
        """Read *message*. Raises `MessageError` where it cannot be one of this dialect."""
        ...

    def recognises_result(self, tool_result: object) -> bool:
        """Tell whether *tool_result*, message or block, is one tool result of this form. As cheap as `recognises`."""
        ...

    def result(self, tool_result: Any) -> Message:
        """Read one tool result that stands alone, message or block, as a view that holds just it."""
        ...

    def to_json(self, message: Any) -> dict[str, Any]:
        """Return the message's own JSON value as its framework writes it; may share parts with it."""
        ...

    def from_json(self, value: Mapping[str, Any]) -> Any:
        """Return the message that *value*, what `to_json` has returned or its copy from disk, is the JSON form of."""
        ...

    def with_results(self, message: Any, results: Mapping[int, Blocks]) -> Any:
        """Return a copy whose n-th tool result consists of ``results[n]``.

        Args:
            message: The native message.
            results: By the number of a result in the message: its new blocks, each a new text or the number of one
                of its parts, whose block stays the very same object. All else in the message stays, too.
        """
        ...

    def with_content(self, message: Any, blocks: Blocks) -> Any:
        """Return a copy whose own content consists of *blocks*, numbered as the parts of its view are.

        A part that is no content, such as a call, stays where it is.
        """
        ...

    def user_message(self, text: str) -> Any:
        """Return a new user message that says *text*."""
        ...

    def tool_result_message(self, call_id: str, text: str, name: str = "") -> Any:
        """Return a new message with the result *text* of the call *call_id* of the tool *name*."""
        ...


_DIALECTS: Mapping[str, Dialect] = {
    dialect.name: dialect for dialect in (AgentScope(), Anthropic(), Bedrock(), OpenAIChat())
}
"""In the order of detection: what the first three have is unmistakable, OpenAI's form is what remains."""


def dialect_names() -> Sequence[str]:
    """Return the names that `dialect_named` takes, sorted."""
    return sorted(_DIALECTS)


def dialect_named(name: str) -> Dialect:
    """Return the dialect called *name*.

    Raises:
        ConfigError: There is none; the message lists those there are.
    """
    try:
        return _DIALECTS[name]
    except KeyError:
        known = ", ".join(dialect_names())
        raise ConfigError("dialect", f"{name!r} is not known; choose one of {known}") from None


def detect(message: object) -> Dialect:
    """Find the dialect of one message.

    A message of plain text has the same form in several dialects, and the same view; it counts as OpenAI
    chat. So one conversation may well be detected message by message.

    Raises:
        MessageError: No dialect recognises it; where there is a role, the error says what is wrong with it or with
            the content.
    """
    for dialect in _DIALECTS.values():
        if dialect.recognises(message):
            return dialect
    shown = type(message).__name__
    if is_object(message):
        if "role" in message:
            role_of(message)
            blocks_of(message.get("content"))
        shown = f"an object with the keys {sorted(message)[:8]}"
    known = ", ".join(dialect_names())
    raise MessageError(f"{shown} is no message of a known dialect ({known}): 'role' and 'content' are expected")


def read_result(tool_result: object) -> ToolResult:
    """Read one tool result that stands alone: a tool message, a block, or a `ToolResult`, which is returned.

    Raises:
        MessageError: It is none of these.
    """
    if isinstance(tool_result, ToolResult):
        return tool_result
    for dialect in _DIALECTS.values():
        if dialect.recognises_result(tool_result):
            return dialect.result(tool_result).results[0]
    return detect(tool_result).result(tool_result).results[0]
