"""The dialect of OpenAI's Responses API.

Source: the ``input`` and ``output`` items of the Responses API. It refuses a reasoning item without the item behind it,
and a call without the reasoning before it. So the items of one response are one message, the response itself or
``{"output": [item, ...]}``, which no cut parts; a request has them flat. Each other item is a message. Items of the
provider's own tools, and compactions, are carried along as they are.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from buoyline.errors import MessageError
from buoyline.messages.dialect import (
    Blocks,
    Dialect,
    blocks_of,
    fields,
    own_fields,
    plain_fields,
    rebuilt_content,
    role_of,
    text_of,
    text_or_empty,
)
from buoyline.messages.jsonl import is_array, is_object, spell
from buoyline.messages.losses import Losses
from buoyline.messages.model import (
    Base64,
    Json,
    Media,
    Message,
    Opaque,
    Part,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    Turn,
    text_in,
)
from buoyline.messages.openai import chat_part, refused_by_openai, url_of

_ALONE: Final = frozenset({"compaction", "item_reference", "mcp_approval_response"})
"""Types of items that are not part of a response, beside those of users and outputs."""


class OpenAIResponses(Dialect):
    """Responses, what users say to them, and the outputs of the tools that they called."""

    name = "openai-responses"

    def detects(self, message: object) -> bool:
        """Return whether *message* is a response, its ``output``, or an item without a role."""
        found = fields(message)
        if found is None or "role" in found:
            return False
        kind = text_or_empty(found.get("type"))
        return _is_response(found) or kind in _ALONE or kind == "reasoning" or kind.endswith(("_call", "_output"))

    def view(self, message: Any) -> Message:
        """Read *message*; the items of a response are what the model says. See `Dialect.view`."""
        found = plain_fields(message)
        kind = text_or_empty(found.get("type"))
        if "role" in found:
            return Message(role_of(found), tuple(map(chat_part, blocks_of(found.get("content")))))
        if _is_response(found):
            return Message("assistant", tuple(part for item in found["output"] for part in _parts(item)))
        if _is_output(found):
            output = tuple(map(chat_part, blocks_of(_listed(found.get("output")))))
            inner = tuple(part for part in output if not isinstance(part, Reasoning))
            return Message("tool", (ToolResult(text_or_empty(found.get("call_id")), "", inner),))
        if kind not in _ALONE:
            raise MessageError(
                f"an item of type {kind!r} belongs to the items of its response: add the response, or all of them as "
                "{'output': [item, ...]}"
            )
        return Message("user", (Opaque(kind, spell(found)),))

    def with_results(self, message: Any, results: Mapping[int, Blocks]) -> Any:
        """Return a copy of a tool's output with other content."""
        found = own_fields(message)
        if 0 not in results:
            return found
        return {**found, "output": rebuilt_content(_listed(found.get("output")), results[0], "input_text")}

    def with_content(self, message: Any, blocks: Blocks) -> Any:
        """Return a copy of *message* whose content consists of *blocks*; a text is a message of the model's."""
        found = own_fields(message)
        if not _is_response(found):
            return {**found, "content": rebuilt_content(found.get("content"), blocks, "input_text")}
        owners = [item for item in found["output"] for _ in _parts(item)]
        items: list[Any] = []
        for block in blocks:
            item = _said(block) if isinstance(block, str) else owners[block]
            if not items or items[-1] is not item:  # a message of several blocks is kept whole
                items.append(item)
        return {**found, "output": items}

    def user_message(self, text: str) -> dict[str, Any]:
        """Return a new user message."""
        return {"role": "user", "content": text}

    def tool_result_message(self, call_id: str, text: str, name: str = "") -> dict[str, Any]:  # noqa: ARG002 - the call has it
        """Return the output of a function call, which has no place for the tool's name."""
        return {"type": "function_call_output", "call_id": call_id, "output": text}

    def handed_out(self, message: Any) -> Sequence[Any]:
        """Return the items of a response, or *message* alone."""
        found, held = fields(message), message
        if found is None or not _is_response(found):
            return (message,)
        items: Sequence[Any] = held["output"] if is_object(message) else held.output
        return items

    def grouped(self, items: Sequence[Any]) -> Sequence[Any]:
        """Return *items* as messages: those of a response, up to the next output or user item, are one."""
        messages: list[Any] = []
        group: list[Any] | None = None
        for item in items:
            if not _is_of_response(fields(item) or {}):
                group = None
                messages.append(item)
            elif group is None:
                group = [item]
                messages.append({"output": group})
            else:
                group.append(item)
        return messages

    def write(self, turns: Sequence[Turn], losses: Losses) -> Iterator[dict[str, Any]]:
        """Write a message for each of the user's turns and each result, and a response for each of the model's."""
        for turn in turns:
            noted = losses.at(turn.number)
            if turn.role == "tool":
                for result in turn.results:
                    if result.is_error:
                        noted.note("mark of a failed result", "its text alone says so")
                    output = [_written(part, "user", noted) for part in result.parts]
                    yield {"type": "function_call_output", "call_id": result.call_id, "output": _plain(output)}
            elif turn.role == "assistant":
                if any(isinstance(part, Reasoning) for part in turn.parts):
                    noted.note("reasoning", "only the response that brought it may hold it")
                said = [
                    _written(part, turn.role, noted) for part in turn.parts if isinstance(part, Text | Json | Media)
                ]
                calls = [
                    {"type": "function_call", "call_id": call.call_id, "name": call.name, "arguments": call.arguments}
                    for call in turn.calls
                ]
                if said or calls:
                    yield {"output": [*([{"role": "assistant", "content": _plain(said)}] if said else []), *calls]}
            else:
                yield {"role": turn.role, "content": _plain([_written(part, turn.role, noted) for part in turn.parts])}


def _is_response(found: Mapping[str, Any]) -> bool:
    return is_array(found.get("output")) and not _is_output(found) and "role" not in found


def _is_output(found: Mapping[str, Any]) -> bool:
    return text_or_empty(found.get("type")).endswith("_output") and "call_id" in found


def _is_of_response(item: Mapping[str, Any]) -> bool:
    if "role" in item:
        return bool(item["role"] == "assistant")
    return not (_is_output(item) or _is_response(item) or item.get("type") in _ALONE)


def _listed(output: object) -> object:
    """Return the output of a tool as content: that of a computer is one block."""
    return [output] if is_object(output) else output


def _parts(item: object) -> Sequence[Part]:
    """Read an item of a response: a part for each block of a message, else one."""
    if not is_object(item):
        return (Opaque(type(item).__name__, spell(item)),)
    match item.get("type", "message"):
        case "message":
            return [*map(chat_part, blocks_of(item.get("content")))]
        case "reasoning":
            thoughts = (thought for key in ("summary", "content") for thought in item.get(key) or ())
            texts = (thought.get("text") if is_object(thought) else text_of(thought) for thought in thoughts)
            text = "\n".join(text for text in texts if isinstance(text, str))
            return (Reasoning(text, hidden=text_or_empty(item.get("encrypted_content"))),)
        case "image_generation_call" if isinstance(data := item.get("result"), str):
            form = text_or_empty(item.get("output_format")) or "png"
            return (Media("image", f"image/{form}", len(data) * 3 // 4, payload=Base64(data)),)
        case kind if "call_id" in item:
            given = next((item[key] for key in ("arguments", "input", "action", "operation") if key in item), "")
            name = text_or_empty(item.get("name")) or str(kind)
            return (ToolCall(text_or_empty(item["call_id"]), name, given if isinstance(given, str) else spell(given)),)
        case kind:
            return (Opaque(str(kind), spell(item)),)


def _said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def _written(part: Part, role: str, losses: Losses) -> dict[str, Any]:
    text_type = "output_text" if role == "assistant" else "input_text"
    if isinstance(part, Media):
        why = "no response takes it" if part.kind == "audio" else refused_by_openai(part, role)
        if why is not None:
            return {"type": text_type, "text": losses.left_out(part, why).text}
        if part.kind == "image":
            return {"type": "input_image", "image_url": url_of(part)}
        return {"type": "input_file", "filename": part.name or "document", "file_data": url_of(part)}
    return {"type": text_type, "text": text_in(part)}


def _plain(blocks: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """Return the text of a single text, or else *blocks*."""
    if len(blocks) < 2:  # noqa: PLR2004 - one text needs no blocks
        return text_or_empty(blocks[0].get("text")) if blocks and "text" in blocks[0] else blocks or ""
    return blocks
