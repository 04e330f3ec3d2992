"""The dialect of OpenAI's Responses API.

Source: the ``input`` and ``output`` items of the Responses API. It refuses a reasoning item without the item behind it,
and a call without the reasoning before it. So the items of one response are one message, the response itself or
``{"output": [item, ...]}``, which no cut parts; a request has them flat. Each other item is a message. Items of the
provider's own tools, and compactions, are carried along as they are.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from buoyline.errors import MessageError
from buoyline.messages import parts
from buoyline.messages.dialect import Blocks, Dialect, fields, own_fields, plain_fields, role_of
from buoyline.messages.jsonl import is_array, is_object, spell
from buoyline.messages.losses import Losses
from buoyline.messages.model import Compaction, Json, Media, Message, Part, Role, Text, Turn
from buoyline.messages.openai import chat_part, plain, result_part, takes_media, url_of

_ALONE: Final[Mapping[str, Role]] = {
    "additional_tools": "system",
    "compaction": "assistant",
    "compaction_trigger": "user",
    "configuration_update": "system",
    "item_reference": "user",
    "mcp_approval_response": "user",
}
"""Types of items that are not part of a response, beside those of users and outputs, and whose they are.

Tools and settings hold from their item on, so they are the system's.
"""


class OpenAIResponses(Dialect):
    """Responses, what users say to them, and the outputs of the tools that they called."""

    name = "openai-responses"

    def detects(self, message: object) -> bool:
        """Return whether *message* is a response, its ``output``, or an item without a role."""
        found = fields(message)
        kind = parts.string(found.get("type")) if found else ""
        if found is None or ("role" in found and kind != "additional_tools"):
            return False
        return _is_response(found) or kind in _ALONE or kind == "reasoning" or kind.endswith(("_call", "_output"))

    def view(self, message: Any) -> Message:
        """Read *message*; the items of a response are what the model says. See `Dialect.view`."""
        found = plain_fields(message)
        kind = parts.string(found.get("type"))
        if kind in _ALONE:
            part = Compaction(kind, spell(found)) if kind == "compaction" else parts.opaque(kind, found)
            return Message(_ALONE[kind], (part,))
        if "role" in found:
            return Message(role_of(found), tuple(map(chat_part, parts.blocks_of(found.get("content")))))
        if _is_response(found):
            return Message("assistant", tuple(part for item in found["output"] for part in _parts(item)))
        if _is_output(found):
            return Message("tool", (parts.result(found.get("call_id"), _listed(found.get("output")), result_part),))
        raise MessageError(
            f"an item of type {kind!r} belongs to the items of its response: add the response, extend with all of its "
            "items, or add them as {'output': [item, ...]}"
        )

    def with_results(self, message: Any, results: Mapping[int, Blocks]) -> Any:
        """Return a copy of a tool's output with other content."""
        found = dict(own_fields(message))
        if 0 in results:
            found["output"] = parts.rebuilt(_listed(found.get("output")), results[0], "input_text")
        return found

    def with_content(self, message: Any, blocks: Blocks) -> Any:
        """Return a copy of *message* whose content consists of *blocks*; a text is a message of the model's."""
        found = own_fields(message)
        if not _is_response(found):
            return {**found, "content": parts.rebuilt(found.get("content"), blocks, "input_text")}
        owners = [item for item in found["output"] for _ in _parts(item)]
        items: list[Any] = []
        for block in blocks:
            item = {"role": "assistant", "content": block} if isinstance(block, str) else owners[block]
            if not items or items[-1] is not item:  # a message of several blocks is kept whole
                items.append(item)
        return {**found, "output": items}

    def handed_out(self, message: Any) -> Sequence[Any]:
        """Return the items of a response, or *message* alone."""
        found, held = fields(message), message
        if found is None or not _is_response(found):
            return (message,)
        items: Sequence[Any] = held["output"] if is_object(message) else held.output
        return items

    def split(self, message: Any) -> Sequence[Any]:
        """Return a response without the items in it that are messages of their own, such as a compaction, and these."""
        items = self.handed_out(message)
        return self.grouped(items) if any(_type_of(item) in _ALONE for item in items) else (message,)

    def grouped(self, items: Sequence[Any], is_known: Callable[[Any], bool] = bool) -> Sequence[Any]:
        """Return *items* as messages: those of a response, up to the next output or user item, are one.

        A message that *is_known* keeps its items; those of a response behind them are the next message.
        """
        messages: list[Any] = []
        at = 0
        while at < len(items):
            end = at
            while end < len(items) and _is_of_response(fields(items[end]) or {}):
                end += 1
            if end == at:
                messages.append(items[at])
                at += 1
                continue
            groups = ({"output": [*items[at:stop]]} for stop in range(end, at, -1))
            found = next(filter(is_known, groups), {"output": [*items[at:end]]})
            messages.append(found)
            at += len(found["output"])
        return messages

    def holds(self, part: Part, role: Role) -> bool:
        """Return whether there is a place for *part*: media from the user or a tool; only a response has reasoning."""
        if isinstance(part, Media):
            return role in ("user", "tool") and part.kind != "audio" and takes_media(part)
        return super().holds(part, role)

    def write(self, turns: Sequence[Turn], losses: Losses) -> Iterator[dict[str, Any]]:
        """Write a message for each of the user's turns and each result, and a response for each of the model's."""
        del losses
        for turn in turns:
            for result in turn.results:
                output = _content(result.parts)
                yield {"type": "function_call_output", "call_id": result.call_id, "output": output}
            if turn.role == "assistant":
                said = "\n".join(part.text for part in turn.parts if isinstance(part, Text | Json))
                calls = [
                    {"type": "function_call", "call_id": call.call_id, "name": call.name, "arguments": call.arguments}
                    for call in turn.calls
                ]
                if said or calls:
                    yield {"output": [*([{"role": "assistant", "content": said}] if said else []), *calls]}
            elif turn.role != "tool":
                yield {"role": turn.role, "content": _content(turn.parts)}


def _type_of(item: object) -> str:
    return parts.string((fields(item) or {}).get("type"))


def _is_response(found: Mapping[str, Any]) -> bool:
    return is_array(found.get("output")) and not _is_output(found) and "role" not in found


def _is_output(found: Mapping[str, Any]) -> bool:
    return parts.string(found.get("type")).endswith("_output") and "call_id" in found


def _is_of_response(item: Mapping[str, Any]) -> bool:
    if "role" in item:
        return bool(item["role"] == "assistant")
    return not (_is_output(item) or _is_response(item) or item.get("type") in _ALONE)


def _listed(output: object) -> object:
    """Return the output of a tool as content: that of a computer is one block."""
    return [output] if is_object(output) else output


def _parts(item: Any) -> Sequence[Part]:
    """Read an item of a response: a part for each block of a message, else one."""
    match item:
        case {"role": _} | {"type": "message"}:
            return [*map(chat_part, parts.blocks_of(item.get("content")))]
        case {"type": "reasoning"}:
            thoughts = (thought for key in ("summary", "content") for thought in item.get(key) or ())
            text = "\n".join(thought["text"] for thought in thoughts if is_object(thought) and thought.get("text"))
            return (parts.reasoning(text, "", item.get("encrypted_content"), "openai-responses"),)
        case {"type": "image_generation_call", "result": str(data)}:
            return (parts.media("image", f"image/{item.get('output_format') or 'png'}", payload=data),)
        case {"type": kind, "call_id": call_id}:
            given = next((item[key] for key in ("arguments", "input", "action", "operation") if key in item), "")
            return (parts.call(call_id, item.get("name") or kind, given),)
        case _:
            return (parts.simple(item),)


def _content(content: Sequence[Part]) -> str | list[dict[str, Any]]:
    return plain([_written(part) for part in content if isinstance(part, Text | Json | Media)])


def _written(part: Text | Json | Media) -> dict[str, Any]:
    match part:
        case Media(kind="image"):
            return {"type": "input_image", "image_url": url_of(part), "detail": "auto"}
        case Media():
            return {"type": "input_file", "filename": part.name or "document", "file_data": url_of(part)}
        case _:
            return {"type": "input_text", "text": part.text}
