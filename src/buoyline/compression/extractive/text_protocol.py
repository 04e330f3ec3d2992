"""Agents that write their calls as text: commands in fences or tags, and observations as the user's messages.

`with_calls` gives such messages the form of calls and results, so that nothing else needs to know them. The form is
recognized from the whole conversation, since a person also writes code in fences. Source: the formats of SWE-agent
(fences, and tags with parameters) and ReAct ("Action:" and "Action Input:").
"""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from buoyline.compression.summary import SourceMessage
from buoyline.messages import Message, Text, ToolCall, ToolResult

MIN_CALLS: Final = 2
MIN_SHARE: Final = 0.6
"""Of the agent's messages that the user answers: so many must end with a call."""

_FENCED = re.compile(r"\A(.*?)^(?:```|~~~)(\w{0,20})[ \t]*\n(.+?)\n(?:```|~~~)\s*\Z", re.DOTALL | re.MULTILINE)
_TAGGED = re.compile(r"\A(.*?)<(\w{1,60})>\s*(.*?)\s*</\2>\s*\Z", re.DOTALL)
_REACT = re.compile(
    r"\A(.*?)^Action:[ \t]*(\w[\w .-]{0,60}?)[ \t]*\n+Action[ _]Input:[ \t]*(.+?)\s*\Z", re.DOTALL | re.MULTILINE
)
_PARAMETER = re.compile(r"<(\w{1,60})>\s*(.*?)\s*</\1>", re.DOTALL)
_TOOL = re.compile(r"(?:(?P<edits>edit|insert|create|replace|write)|open|view|goto|scroll)[a-z_-]*")
"""Names of the commands of an agent's own editor: they are tools and no programs of a shell."""


def with_calls(sources: Sequence[SourceMessage]) -> Sequence[SourceMessage]:
    """Return *sources* with the calls and results that their texts hold; the same ones if it is no such agent."""
    if any(source.message.calls or source.message.results for source in sources):
        return sources
    ends = [*(source.message.role for source in sources[1:]), "user"]
    asked = [at for at, end in enumerate(ends) if sources[at].message.role == "assistant" and end == "user"]
    found = {at: call_in(sources[at].message.text, f"text-{sources[at].index}") for at in asked}
    calls = {at: call for at, call in found.items() if call is not None}
    if len(calls) < max(MIN_CALLS, MIN_SHARE * len(asked)):
        return sources
    changed = list(sources)
    for at, (words, call) in calls.items():
        changed[at] = replace(sources[at], message=Message("assistant", (Text(words), call) if words else (call,)))
        if at + 1 < len(sources):
            observed = sources[at + 1]
            result = ToolResult(call.call_id, call.name, (Text(observed.message.text),), is_error=False)
            changed[at + 1] = replace(observed, message=Message("tool", (result,)))
    return changed


def call_in(text: str, call_id: str) -> tuple[str, ToolCall] | None:
    """Return the words before the call that ends *text*, and the call with *call_id*; None if it ends with none."""
    if (found := _REACT.match(text)) is not None:
        arguments = found[3] if found[3].startswith("{") else json.dumps({"input": found[3]})
        return found[1].strip(), ToolCall(call_id, found[2], arguments)
    if (found := _TAGGED.match(text)) is not None:
        if found[3].startswith("<") and (parameters := dict(_PARAMETER.findall(found[3]))):
            return found[1].strip(), ToolCall(call_id, found[2], json.dumps(parameters))
        return found[1].strip(), _command(call_id, found[3])
    if (found := _FENCED.match(text)) is not None:
        return found[1].strip(), _command(call_id, found[3])
    return None


def _command(call_id: str, text: str) -> ToolCall:
    """Return the call of a command: ``edit 1:1`` with the lines below it is the tool ``edit``, the rest a shell's."""
    first, _, rest = text.strip().partition("\n")
    name, _, words = first.partition(" ")
    tool = _TOOL.fullmatch(name)
    path = next((word.strip("\"'") for word in words.split() if "." in word and ":" not in word), "")
    if tool is None or (tool["edits"] and not (path or rest)):
        return ToolCall(call_id, "shell", json.dumps({"command": text.strip()}))
    arguments = {"path": path, "arguments": words}
    if tool["edits"] and rest:
        arguments["new"] = rest
    return ToolCall(call_id, name, json.dumps(arguments))
