"""OpenAI's chat completions dialect.

Source: the ``messages`` of the Chat Completions API: ``role``, ``content`` (text, blocks or null), ``tool_calls``,
``tool_call_id``. Read, too, is what compatible APIs and libraries put into this form: ``reasoning_content``, Ollama's
``thinking``, Mistral's parts of that type, Cohere's ``tool_plan``, calls as LangChain spells them.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from buoyline.messages import parts
from buoyline.messages.dialect import Blocks, Dialect, fields, has_known_role, own_fields, plain_fields, role_of
from buoyline.messages.formats import KNOWN_FORMATS, base64_of, format_named
from buoyline.messages.jsonl import is_array, is_object, spell
from buoyline.messages.losses import Losses
from buoyline.messages.model import (
    Json,
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
        behind the results has their media, as AgentScope's formatter writes it.
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
