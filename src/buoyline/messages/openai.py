"""OpenAI's dialects: chat completions and responses.

Source: the ``messages`` of the Chat Completions API: ``role``, ``content`` (text, blocks or null), ``tool_calls``,
``tool_call_id``. Read, too, is what compatible APIs and libraries put into this form: ``reasoning_content``, Ollama's
``thinking``, Mistral's parts of that type, Cohere's ``tool_plan``, calls as LangChain spells them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from buoyline.errors import MessageError
from buoyline.messages import parts
from buoyline.messages.dialect import Blocks, Dialect, fields, has_known_role, own_fields, plain_fields, role_of
from buoyline.messages.jsonl import is_array, is_object, spell
from buoyline.messages.model import (
    Compaction,
    Json,
    Losses,
    Media,
    Message,
    Opaque,
    Part,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    Turn,
)
from buoyline.messages.parts import KNOWN_FORMATS, base64_of, format_named

_FORMATS: Final = {"audio": frozenset({"wav", "mp3"}), "image": KNOWN_FORMATS["image"]}
_REASONING: Final = ("reasoning_content", "reasoning", "thinking", "tool_plan")


class OpenAIChat(Dialect):
    """Messages as OpenAI's chat completions take them, and as most compatible providers do."""

    name = "openai"

    def detects(self, message: object) -> bool:
        """Return whether *message* has a known role, and content that is text, a list or null."""
        found = fields(message)
        if found is None or not has_known_role(found):
            return False
        content = found.get("content")
        return content is None or isinstance(content, (str, list, tuple))

    def view(self, message: Any) -> Message:
        """Read *message*; see `Dialect.view`."""
        found = plain_fields(message)
        role = role_of(found)
        speaker = parts.string(found.get("name"))
        content = found.get("content")
        if role == "tool":
            name = speaker or parts.string(found.get("tool_name"))  # as Ollama has it
            return Message(role, (parts.result(found.get("tool_call_id"), content, result_part, name=name),), name)
        said = [Text(refusal)] if (refusal := parts.string(found.get("refusal"))) else []
        calls = found.get("tool_calls")
        asked = [_call(call) for call in calls if is_object(call)] if is_array(calls) else []
        return Message(role, (*_reasoning(found), *map(chat_part, parts.blocks_of(content)), *said, *asked), speaker)

    def with_results(self, message: Any, results: Mapping[int, Blocks]) -> Any:
        """Return a copy of a tool message, which holds one result, with other content."""
        found = dict(own_fields(message))
        if 0 in results:
            found["content"] = parts.rebuilt(found.get("content"), results[0])
        return found

    def with_content(self, message: Any, blocks: Blocks) -> Any:
        """Return a copy of *message* whose content consists of *blocks*; reasoning and calls are not content."""
        found = own_fields(message)
        content = found.get("content")
        first = len(_reasoning(found))
        inside = range(first, first + len(parts.blocks_of(content)))
        kept = [
            block if isinstance(block, str) else block - first
            for block in blocks
            if isinstance(block, str) or block in inside
        ]
        return {**found, "content": parts.rebuilt(content, kept)}

    def holds(self, part: Part, role: Role) -> bool:
        """Return whether there is a place for *part*: open reasoning, and media from the user or a tool."""
        match part:
            case Reasoning():
                return not part.hidden
            case Media():
                return role in ("user", "tool") and takes_media(part)
            case ToolResult():
                return not part.is_error
            case _:
                return True

    def write(self, turns: Sequence[Turn], losses: Losses) -> Iterator[dict[str, Any]]:
        """Write one message for each turn, and one for each result.

        Reasoning comes before text, and text before calls, since a message has one place for each. A user message
        after the results has their media, as AgentScope's formatter writes it.
        """
        del losses
        shown: list[dict[str, Any]] = []
        for turn in turns:
            for result in turn.results:
                texts = [{"type": "text", "text": text} for text in result.texts]
                yield {"role": "tool", "tool_call_id": result.call_id, "content": plain(texts)}
                pictures = [_written(part) for part in result.parts if isinstance(part, Media)]
                about = {"type": "text", "text": f"What the call {result.call_id!r} has shown:"}
                shown += [about, *pictures] if pictures else []
            if turn.role == "tool":
                continue
            if shown:
                yield {"role": "user", "content": shown}
                shown = []
            yield _message(turn)
        if shown:
            yield {"role": "user", "content": shown}


# Reading.


def _reasoning(found: Mapping[str, Any]) -> Sequence[Reasoning]:
    thoughts = (parts.string(found.get(key)) for key in _REASONING)
    return [Reasoning(thought) for thought in thoughts if thought][:1]


def chat_part(block: Any) -> Text | Media | Opaque | Reasoning:  # noqa: PLR0911 - one for each type of block
    """Read a block of a chat message, or of a message of the Responses API."""
    match block:
        case {"type": "image_url" | "input_image"}:
            return _by_url("image", block.get("image_url", block), "url")
        case {"type": "input_audio", "input_audio": {**audio}}:
            return parts.media("audio", f"audio/{audio.get('format', '')}", payload=audio.get("data"))
        case {"type": "file" | "input_file"}:
            return _by_url("document", block.get("file", block), "file_data")
        case {"type": "refusal", "refusal": str(text)} | {"type": "input_text" | "output_text", "text": str(text)}:
            return Text(text)
        case {"type": "thinking", "thinking": [*thoughts]}:  # Mistral's
            return Reasoning("\n".join(filter(None, map(parts.text_of, thoughts))))
        case {"type": "document", "document": {"data": held}}:  # a result's, in Cohere's form
            return Text(held if isinstance(held, str) else spell(held))
        case _:
            return parts.simple(block)


def _by_url(kind: str, holder: object, key: str) -> Media:
    if not is_object(holder):
        return parts.media(kind, "", source=holder)
    elsewhere = holder.get("file_id", holder.get("file_url"))
    return parts.media(kind, "", source=holder.get(key) or elsewhere, name=holder.get("filename"))


def result_part(block: Any) -> Text | Media | Opaque:
    """Read a block of a tool's output; see `chat_part`."""
    part = chat_part(block)
    return Text(part.text) if isinstance(part, Reasoning) else part


def _call(call: Mapping[str, Any]) -> ToolCall:
    # LangChain's form has no function, and a custom tool has its own field.
    function = next((held for key in ("function", "custom") if is_object(held := call.get(key))), call)
    given = (function[key] for key in ("arguments", "args", "input") if key in function)
    return parts.call(call.get("id"), function.get("name"), next(given, ""))


# Writing.


def takes_media(media: Media) -> bool:
    """Return whether OpenAI takes *media* from a user."""
    if media.payload is not None:
        form = format_named(media.media_type)
        return form in _FORMATS.get(media.kind, ()) or (media.kind == "document" and bool(form))
    return media.kind == "image" and media.source.startswith(("https://", "http://", "workspace:///"))


def url_of(media: Media) -> str:
    """Return the URL of *media*: a data URL if the message holds the payload."""
    return media.source if media.payload is None else f"data:{media.media_type};base64,{base64_of(media)}"


def _message(turn: Turn) -> dict[str, Any]:
    named = {"name": turn.name} if turn.name else {}
    thoughts = [part.text for part in turn.parts if isinstance(part, Reasoning) and part.text]
    thought = {"reasoning_content": "\n".join(thoughts)} if thoughts else {}
    calls = [
        {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in turn.calls
    ]
    asked = {"tool_calls": calls} if calls else {}
    content = plain([_written(part) for part in turn.parts if isinstance(part, Text | Json | Media)])
    return {"role": turn.role, **named, "content": content or (None if calls else ""), **thought, **asked}


def plain(blocks: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """Return the text of a single text, or else *blocks*."""
    if len(blocks) > 1 or (blocks and "text" not in blocks[0]):
        return blocks
    return parts.string(blocks[0]["text"]) if blocks else ""


def _written(part: Any) -> dict[str, Any]:
    match part:
        case Media(kind="audio"):
            audio = {"data": base64_of(part), "format": format_named(part.media_type)}
            return {"type": "input_audio", "input_audio": audio}
        case Media(kind="image"):
            return {"type": "image_url", "image_url": {"url": url_of(part)}}
        case Media():
            named = {"filename": part.name} if part.name else {}
            return {"type": "file", "file": {**named, "file_data": url_of(part)}}
        case _:
            return {"type": "text", "text": part.text}


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

        A message that *is_known* keeps its items; those of a response after them are the next message.
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
    return plain([_written_item(part) for part in content if isinstance(part, Text | Json | Media)])


def _written_item(part: Text | Json | Media) -> dict[str, Any]:
    match part:
        case Media(kind="image"):
            return {"type": "input_image", "image_url": url_of(part), "detail": "auto"}
        case Media():
            return {"type": "input_file", "filename": part.name or "document", "file_data": url_of(part)}
        case _:
            return {"type": "input_text", "text": part.text}
