"""The registry of dialects, and how the dialect of a message is detected."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Final

from buoyline.errors import ConfigError, MessageError
from buoyline.messages.agentscope import AgentScope
from buoyline.messages.anthropic import Anthropic
from buoyline.messages.bedrock import Bedrock
from buoyline.messages.dialect import Dialect, role_of
from buoyline.messages.jsonl import is_object, spell
from buoyline.messages.model import Message, Opaque, ToolResult
from buoyline.messages.openai import OpenAIChat, OpenAIResponses
from buoyline.messages.parts import blocks_of

_BUILT_IN: Final[Mapping[str, Dialect]] = {
    dialect.name: dialect for dialect in (AgentScope(), Anthropic(), Bedrock(), OpenAIResponses(), OpenAIChat())
}
"""In the order of detection: the first four have unmistakable blocks, and OpenAI's form is the remaining one."""

_OF_EXTRAS: Final[Mapping[str, str]] = {
    "agent-framework": "buoyline.integrations.agent_framework_dialect",
    "gemini": "buoyline.integrations.gemini_dialect",
    "langchain": "buoyline.integrations.langchain_dialect",
    "pydantic-ai": "buoyline.integrations.pydantic_ai_dialect",
}
"""The modules that have these as ``DIALECT``. None of them imports its framework."""

_of_extras: dict[str, Dialect] = {}
"""Those that were needed. Only objects are asked for: on disk a line names the dialect."""

_registered: dict[str, Dialect] = {}
"""Of other packages, in the order of registration; they are asked before the built-in ones."""


def register_dialect(dialect: Dialect) -> None:
    """Make *dialect* known to this process, for windows, archives, transcripts, `convert` and the lookups alike.

    Detection asks it before the built-in dialects, so its `Dialect.detects` must accept no message of theirs. A session
    stores the name of each message's dialect: register the dialect again, under the same name, before you open the
    session in another process.

    Raises:
        ConfigError: Another dialect has its name.
    """
    name = dialect.name
    known = _BUILT_IN.get(name, _registered.get(name, dialect))
    if known is not dialect:
        raise ConfigError("dialect", f"{name!r} is the name of {known!r} already; choose another one")
    _registered[name] = dialect


def dialect_names() -> Sequence[str]:
    """Return the names that `dialect_named` takes, sorted."""
    return sorted({**_BUILT_IN, **_OF_EXTRAS, **_registered})


def dialect_named(name: str) -> Dialect:
    """Return the dialect called *name*.

    Raises:
        ConfigError: There is none; the message lists the known ones.
    """
    if name in _OF_EXTRAS and name not in _of_extras:
        _of_extras[name] = import_module(_OF_EXTRAS[name]).DIALECT
    found = _BUILT_IN.get(name) or _of_extras.get(name) or _registered.get(name)
    if found is None:
        known = ", ".join(dialect_names())
        raise ConfigError("dialect", f"{name!r} is not known; choose one of {known}")
    return found


def detect(message: object) -> Dialect:
    """Find the dialect of one message.

    A message of plain text has the same form in several dialects, and the same view; it counts as OpenAI
    chat. So one conversation may well be detected message by message.

    Raises:
        MessageError: No dialect detects it. If there is a role, the error says what is wrong with it or with the
            content.
    """
    for dialect in _in_order(message):
        if dialect.detects(message):
            return dialect
    if is_object(message) and "role" in message:
        role_of(message)
        blocks_of(message.get("content"))
    shown = f"an object with the keys {sorted(message)[:8]}" if is_object(message) else type(message).__name__
    known = ", ".join(dialect_names())
    raise MessageError(f"{shown} is no message of a known dialect ({known}): 'role' and 'content' are expected")


def is_detected(value: Mapping[str, Any], name: str) -> bool:
    """Return whether the dialect of a message's JSON value is detected as the one called *name*."""
    return next((dialect.name for dialect in _in_order(value) if dialect.detects(value)), "") == name


def stored_view(value: Mapping[str, Any], name: str = "") -> Message:
    """Read a message that is on disk; *name* is that of its dialect if it cannot be detected.

    A message of a dialect that this process does not know is one `Opaque` part.
    """
    try:
        dialect = dialect_named(name) if name else detect(value)
        return dialect.view(value)
    except (ConfigError, MessageError):
        return Message("user", (Opaque(name or "unknown", spell(value)),))


def read_result(tool_result: object) -> ToolResult:
    """Read one tool result by itself: a tool message, a block, or a `ToolResult`, which is returned.

    Raises:
        MessageError: It is not one of these.
    """
    if isinstance(tool_result, ToolResult):
        return tool_result
    for dialect in _in_order(tool_result):
        if (found := dialect.result_in(tool_result)) is not None:
            return found
    results = detect(tool_result).view(tool_result).results
    if len(results) != 1:
        raise MessageError(f"no tool result alone: it holds {len(results)}; expected a tool message or a block")
    return results[0]


def _in_order(message: object) -> Sequence[Dialect]:
    frameworks = () if is_object(message) else map(dialect_named, _OF_EXTRAS)
    return [*_registered.values(), *frameworks, *_BUILT_IN.values()]
