"""The tools of a window for its agent: the lookups, and one that asks for a compaction."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from buoyline.compression.compressor import Plan
from buoyline.errors import ConfigError, NotFoundError
from buoyline.lookups.tools import Tool
from buoyline.messages import ToolCall
from buoyline.messages.dialect import own_fields
from buoyline.messages.jsonl import is_object

_MAX_FOCUS_CHARS: Final = 2_000
_DESCRIPTION: Final = """\
Make room in your context: the oldest messages leave it for files, and a summary that points to them takes their \
place. Nothing is lost; you can read, grep or search all of it again. Use it when a part of the task is done and its \
details are no longer needed, and before a part that will bring much to read. It takes effect before your next step, \
when all tools that you have called have answered. focus says in words what the summary should keep above all.
Example: {"focus": "the failing test, its error, and the files changed so far"}"""


def compress_tool(ask: Callable[[str], Plan | None], fill: Callable[[], str], prefix: str) -> Tool:
    """Make the tool ``compress_context``.

    A call changes nothing by itself: it comes in the middle of a turn, while it has no result yet and others may run.
    It asks for a compaction before the next model call, and says what will leave.

    Args:
        ask: Notes the focus, and returns what would leave now; None if that is too little.
        fill: Returns how full the context is, in words.
        prefix: Of the tool's name.
    """

    async def call(focus: Any = "", **_: Any) -> str:
        decided = ask(str(focus or "")[:_MAX_FOCUS_CHARS])
        if decided is None:
            return f"{fill()}. Too little of it is old enough to leave, so a summary would save nothing. Go on.\n"
        return (
            f"{fill()}. Before your next step, at least the oldest {decided.cut:,} messages since the last summary "
            f"({decided.archived_tokens:,} tokens) leave it, and a summary that points to them takes their place.\n"
        )

    focus = {"type": "string", "description": "What the summary should keep above all (default: all alike)."}
    parameters = {"type": "object", "properties": {"focus": focus}, "additionalProperties": False}
    return Tool(f"{prefix}compress_context", _DESCRIPTION, parameters, call)


def _bedrock(tool: Tool) -> dict[str, Any]:
    schema = {"json": tool.parameters}
    return {"toolSpec": {"name": tool.name, "description": tool.description, "inputSchema": schema}}


_FORMS: Final[Mapping[str, Callable[[Tool], dict[str, Any]]]] = {
    "anthropic": Tool.anthropic,
    "bedrock": _bedrock,
    "openai": Tool.openai,
    "openai-responses": lambda tool: {"type": "function", **tool.openai()["function"]},
}


def definition(tool: Tool, dialect: str) -> dict[str, Any]:
    """Return the definition of a tool in the form of a dialect.

    Raises:
        ConfigError: The dialect has no definitions of tools.
    """
    if dialect not in _FORMS:
        raise ConfigError("dialect", f"{dialect!r} has no form for tools; use the objects of tools() in its place")
    return _FORMS[dialect](tool)


async def called(tool_call: Any, tools: Mapping[str, Tool]) -> tuple[ToolCall, str]:
    """Run a call of one of the tools; return the call and its result.

    Raises:
        NotFoundError: It names another tool.
    """
    call = call_in(tool_call)
    if call.name not in tools:
        raise NotFoundError("tool of the window", call.name, f"its tools are {', '.join(tools)}")
    return call, await tools[call.name].call(**json.loads(call.arguments or "{}"))


def call_in(tool_call: Any) -> ToolCall:
    """Return the call of a model's response: a `ToolCall`, or a block or object in the form of any dialect.

    Raises:
        ConfigError: It names no tool.
    """
    if isinstance(tool_call, ToolCall):
        return tool_call
    found = own_fields(tool_call)
    named = {**found, **own_fields(found.get("function") or found.get("toolUse") or {})}
    if not isinstance(named.get("name"), str):
        raise ConfigError("tool_call", "names no tool; pass one call of the model's response")
    call_id = named.get("call_id") or named.get("toolUseId") or named.get("id") or ""
    arguments: Any = named.get("arguments", named.get("input")) or "{}"
    return ToolCall(call_id, named["name"], json.dumps(arguments) if is_object(arguments) else str(arguments))
