"""OpenAI's chat completions dialect.

Source: the ``messages`` of the Chat Completions API: ``role``, ``content`` (text, blocks or null), ``tool_calls``,
``tool_call_id``. Read, too, is what compatible APIs and libraries put into this form: ``reasoning_content``, Ollama's
``thinking``, Mistral's parts of that type, Cohere's ``tool_plan``, calls as LangChain spells them.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from buoyline.errors import MessageError
from buoyline.messages.dialect import (
    Blocks,
    Dialect,
    blocks_of,
    data_url,
    fields,
    has_known_role,
    kind_of,
    media,
    own_fields,
    plain_fields,
    rebuilt_content,
    role_of,
    simple_part,
    text_of,
    text_or_empty,
)
from buoyline.messages.formats import base64_of
from buoyline.messages.jsonl import is_array, is_object, spell
from buoyline.messages.losses import Losses
from buoyline.messages.model import (
    Json,
    Media,
    Message,
    Reasoning,
    ResultPart,
    Text,
    ToolCall,
    ToolResult,
    Turn,
    text_in,
)

_REASONING: Final = ("reasoning_content", "reasoning", "thinking", "tool_plan")

_OF_RESPONSES: Final = frozenset({"input_text", "output_text", "input_image", "input_file"})
"""The blocks of the Responses API, which some compatible providers take in chat messages, too."""


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
        speaker = text_or_empty(found.get("name"))
        content = map(chat_part, blocks_of(found.get("content")))
        if role == "tool":
            name = speaker or text_or_empty(found.get("tool_name"))  # as Ollama has it
            parts = tuple(Text(part.text) if isinstance(part, Reasoning) else part for part in content)
            return Message(role, (ToolResult(text_or_empty(found.get("tool_call_id")), name, parts),), name)
        audio = found.get("audio")
        words = [found.get("refusal"), audio.get("transcript") if is_object(audio) else None]
        said = [Text(text) for text in words if isinstance(text, str) and text]
        return Message(role, (*_reasoning(found), *content, *said, *map(_call, _native_calls(found))), speaker)

    def result(self, tool_result: Any) -> Message:
        """Read a single tool message.

        Raises:
            MessageError: It is no tool message.
        """
        view = self.view(tool_result)
        if view.role != "tool":
            raise MessageError(f"role {view.role!r} is no tool result: expected a message with role 'tool'")
        return view

    def with_results(self, message: Any, results: Mapping[int, Blocks]) -> Any:
        """Return a copy of a tool message, which holds one result, with other content."""
        found = dict(own_fields(message))
        if 0 in results:
            found["content"] = rebuilt_content(found.get("content"), results[0])
        return found

    def with_content(self, message: Any, blocks: Blocks) -> Any:
        """Return a copy of *message* whose content consists of *blocks*; reasoning and calls are not content."""
        found = own_fields(message)
        content = found.get("content")
        first = len(_reasoning(found))
        inside = range(first, first + len(blocks_of(content)))
        kept = [
            block if isinstance(block, str) else block - first
            for block in blocks
            if block in inside or isinstance(block, str)
        ]
        kinds = [kind for kind in map(kind_of, blocks_of(content)) if kind in _OF_RESPONSES]
        text_type = f"{kinds[0].partition('_')[0]}_text" if kinds else "text"
        return {**found, "content": rebuilt_content(content, kept, text_type)}

    def write(self, turns: Sequence[Turn], losses: Losses) -> Iterator[dict[str, Any]]:
        """Write one message for each turn, and one for each result.

        Reasoning comes before text, and text before calls, since a message has one place for each.
        """
        for turn in turns:
            noted = losses.at(turn.number)
            if turn.role == "tool":
                yield from _written_results(turn, noted)
                continue
            shown = [
                _written_part(part, turn.role, noted) for part in turn.parts if isinstance(part, Text | Json | Media)
            ]
            content: Any = shown or (None if turn.parts else "")
            if len(shown) == 1 and shown[0]["type"] == "text":
                content = shown[0]["text"]
            named = {"name": turn.name} if turn.name else {}
            message: dict[str, Any] = {"role": turn.role, **named, "content": content}
            if thought := _written_reasoning(turn, noted):
                message["reasoning_content"] = thought
            if turn.calls:
                message["tool_calls"] = [
                    {
                        "id": call.call_id,
                        "type": "function",
                        "function": {"name": call.name, "arguments": call.arguments},
                    }
                    for call in turn.calls
                ]
            yield message


# Reading.


def _reasoning(found: Mapping[str, Any]) -> Sequence[Reasoning]:
    thoughts = (found.get(key) for key in _REASONING)
    return [Reasoning(thought) for thought in thoughts if isinstance(thought, str) and thought][:1]


def chat_part(block: object) -> ResultPart | Reasoning:  # noqa: PLR0911 - one for each type of block
    """Read a block of a chat message, or of a message of the Responses API."""
    if is_object(block):
        match block.get("type"):
            case "image_url" | "input_image":
                return _by_url("image", block.get("image_url", block), "url")
            case "input_audio" if is_object(audio := block.get("input_audio")):
                return media("audio", f"audio/{audio.get('format', '')}", payload=audio.get("data"))
            case "file" | "input_file":
                return _by_url("document", block.get("file", block), "file_data")
            case "refusal" if isinstance(refusal := block.get("refusal"), str):
                return Text(refusal)
            case "input_text" | "output_text" if isinstance(said := block.get("text"), str):
                return Text(said)
            case "thinking" if is_array(thoughts := block.get("thinking")):  # Mistral's
                return Reasoning("\n".join(filter(None, map(text_of, thoughts))))
            case "document" if "document" in block:  # a result's, in Cohere's form
                held = block["document"]
                data = held.get("data", held) if is_object(held) else held
                return Text(data if isinstance(data, str) else spell(data))
            case _:
                pass
    return simple_part(block)


def _by_url(kind: str, holder: object, key: str) -> Media:
    url = holder.get(key) if is_object(holder) else holder
    name = holder.get("filename") if is_object(holder) else None
    if (found := data_url(url)) is not None:
        return media(kind, found[0], payload=url, start=found[1], name=name)
    source = holder.get("file_id", holder.get("file_url")) if url is None and is_object(holder) else url
    return media(kind, "", source=source, name=name)


def _native_calls(found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    calls = found.get("tool_calls")
    return [call for call in calls if is_object(call)] if is_array(calls) else []


def _call(call: Mapping[str, Any]) -> ToolCall:
    function = call.get("function")
    if not is_object(function):  # LangChain's form, or that of a custom tool
        custom = call.get("custom")
        function = custom if is_object(custom) else call
    given = (function[key] for key in ("arguments", "args", "input") if key in function)
    arguments = next(given, "")
    return ToolCall(
        text_or_empty(call.get("id")),
        text_or_empty(function.get("name")),
        arguments if isinstance(arguments, str) else spell(arguments),
    )


# Writing.


def _written_part(part: Text | Json | Media, role: str, losses: Losses) -> dict[str, Any]:
    if isinstance(part, Media):
        why = refused_by_openai(part, role)
        if why is None:
            return _written_media(part)
        part = losses.left_out(part, why)
    return {"type": "text", "text": text_in(part)}


def refused_by_openai(media: Media, role: str) -> str | None:
    """Return why a message of *role* cannot hold *media*, ``""`` for no special reason; None if it can."""
    if role == "assistant":
        return "the model shows no media there"
    if media.kind == "video":
        return ""
    if media.payload is not None:
        return None if media.media_type.rpartition("/")[2] else "nobody says of what type it is"
    is_url = media.source.startswith(("https://", "http://", "workspace:///"))
    return None if media.kind == "image" and is_url else "its bytes are elsewhere"


def _written_media(media: Media) -> dict[str, Any]:
    if media.kind == "audio":
        audio = {"data": base64_of(media), "format": media.media_type.rpartition("/")[2]}
        return {"type": "input_audio", "input_audio": audio}
    if media.kind == "image":
        return {"type": "image_url", "image_url": {"url": url_of(media)}}
    named = {"filename": media.name} if media.name else {}
    return {"type": "file", "file": {**named, "file_data": url_of(media)}}


def url_of(media: Media) -> str:
    """Return the URL of *media*: a data URL if the message holds the payload."""
    return media.source if media.payload is None else f"data:{media.media_type};base64,{base64_of(media)}"


def _written_reasoning(turn: Turn, losses: Losses) -> str:
    thoughts = [part for part in turn.parts if isinstance(part, Reasoning)]
    if any(thought.hidden for thought in thoughts):
        losses.note("hidden reasoning", "only the provider that encrypted it can read it")
    return "\n".join(thought.text for thought in thoughts if thought.text)


def _written_results(turn: Turn, losses: Losses) -> Iterator[dict[str, Any]]:
    """Yield a tool message for each result, and a user message with their media, as AgentScope's formatter does."""
    shown: list[dict[str, Any]] = []
    for result in turn.results:
        if result.is_error:
            losses.note("mark of a failed result", "its text alone says so")
        content: Any = [{"type": "text", "text": text} for text in result.texts]
        if len(content) < 2:  # noqa: PLR2004 - one text needs no blocks
            content = content[0]["text"] if content else ""
        yield {"role": "tool", "tool_call_id": result.call_id, "content": content}
        media = [part for part in result.parts if isinstance(part, Media)]
        if media:
            about = f"What the call {result.call_id!r} has shown:"
            shown += [{"type": "text", "text": about}, *(_written_part(part, "user", losses) for part in media)]
    if shown:
        yield {"role": "user", "content": shown}
