"""OpenAI's chat completions dialect.

Source: the ``messages`` of the Chat Completions API: ``role``, ``content`` (text, blocks or null),
``tool_calls``, ``tool_call_id``; also ``reasoning_content``, which several compatible providers send.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
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
    text_or_empty,
    turns_of,
)
from buoyline.messages.formats import base64_of
from buoyline.messages.jsonl import is_array, is_object, spell
from buoyline.messages.losses import Losses
from buoyline.messages.model import (
    CachePoint,
    Json,
    Media,
    Message,
    Opaque,
    Part,
    Reasoning,
    ResultPart,
    Text,
    ToolCall,
    ToolResult,
    Turn,
    text_in,
)

_KNOWN = (
    *("role", "name", "content", "reasoning_content", "reasoning", "refusal", "audio", "tool_calls", "function_call"),
    "tool_call_id",
)


_OF_RESPONSES: Final[Mapping[str, Sequence[str]]] = {
    "input_text": ("text",),
    "output_text": ("text",),
    "input_image": ("image_url",),
    "input_file": ("file_data", "file_url", "filename"),
}
"""The blocks of the Responses API, which some compatible providers take in chat messages, too; and their values."""


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
        content = map(_part, blocks_of(found.get("content")))
        if role == "tool":
            result = ToolResult(text_or_empty(found.get("tool_call_id")), speaker, tuple(content))
            return Message(role, (result,), speaker)
        refusal = found.get("refusal")
        refused = [Text(refusal)] if isinstance(refusal, str) else []
        heard = [Text(said)] if (said := _transcript(found)) else []
        parts = (*_reasoning(found), *content, *refused, *heard, *map(_call, _native_calls(found)))
        return Message(role, parts, speaker)

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
        first = sum(isinstance(part, Reasoning) for part in self.view(message).parts)
        inside = range(first, first + len(blocks_of(content)))
        kept = [
            block if isinstance(block, str) else block - first
            for block in blocks
            if block in inside or isinstance(block, str)
        ]
        kinds = [kind for kind in map(kind_of, blocks_of(content)) if kind in _OF_RESPONSES]
        text_type = f"{kinds[0].partition('_')[0]}_text" if kinds else "text"
        return {**found, "content": rebuilt_content(content, kept, text_type)}

    def read(self, message: Any, losses: Losses) -> list[Turn]:
        """Read *message* whole; see `Dialect.read`."""
        found = plain_fields(message)
        role = role_of(found)
        if found["role"] == "developer":
            losses.note("role 'developer'", "it is a system message now")
        name = text_or_empty(found.get("name"))
        if role == "tool":
            content = (*_read_content(found, losses), *_read_refusal(found, losses))
            return turns_of(role, [ToolResult(text_or_empty(found.get("tool_call_id")), name, content)], losses)
        return turns_of(role, _read_parts(found, losses), losses, "" if name == role else name)

    def refuses_media(self, media: Media) -> str | None:
        """Refuse video, and media elsewhere except images by URL."""
        if media.kind == "video":
            return ""
        if media.payload is not None:
            return None if media.media_type else "nobody says of what type it is"
        is_url = media.source.startswith(("https://", "http://", "workspace:///"))
        return None if media.kind == "image" and is_url else "its bytes are elsewhere"

    def refuses_reasoning(self, reasoning: Reasoning) -> str | None:
        """Refuse hidden reasoning: only the provider that encrypted it can read it."""
        return "" if reasoning.hidden else None

    def write(self, turns: Sequence[Turn], losses: Losses) -> Iterator[dict[str, Any]]:
        """Write one message for each turn, and one for each result.

        Reasoning comes before text, and text before calls, since a message has one place for each.
        """
        (turn,) = turns
        if turn.metadata:
            losses.note("metadata")
        if turn.role == "tool":
            yield from _written_results(turn, losses)
            return
        shown = [part for part in turn.parts if isinstance(part, Text | Json | Media)]
        content: Any
        if not shown:
            content = None if turn.parts else ""
        elif len(shown) == 1 and isinstance(shown[0], Text):
            content = shown[0].text
        else:
            content = [_written_part(part, losses) for part in shown]
        named = {"name": turn.name} if turn.name else {}
        message: dict[str, Any] = {"role": turn.role, **named, "content": content}
        if turn.role == "assistant":
            order: dict[type, int] = {Reasoning: 0, ToolCall: 2}
            ranks = [order.get(type(part), 1) for part in turn.parts if not isinstance(part, CachePoint)]
            if ranks != sorted(ranks):
                losses.note("order of reasoning, text and calls", "each has its one place there")
            message |= _written_reasoning(turn, losses)
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
    for key in ("reasoning_content", "reasoning"):
        if isinstance(thinking := found.get(key), str) and thinking:
            return (Reasoning(thinking),)
    return ()


def _transcript(found: Mapping[str, Any]) -> str:
    """Return the words of the model's spoken answer; empty without one, or if it has only an id."""
    audio = found.get("audio")
    return text_or_empty(audio.get("transcript")) if is_object(audio) else ""


def _part(block: object) -> ResultPart:  # noqa: PLR0911 - one for each type of block
    if is_object(block):
        match block.get("type"):
            case "image_url":
                return _by_url("image", block.get("image_url"), "url")
            case "input_image":
                return _by_url("image", block, "image_url")
            case "input_audio" if is_object(audio := block.get("input_audio")):
                return media("audio", f"audio/{audio.get('format', '')}", payload=audio.get("data"))
            case "file" if is_object(file := block.get("file")):
                return _by_url("document", file, "file_data")
            case "input_file":
                return _by_url("document", block, "file_data")
            case "refusal" if isinstance(refusal := block.get("refusal"), str):
                return Text(refusal)
            case "input_text" | "output_text" if isinstance(said := block.get("text"), str):
                return Text(said)
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
    calls, legacy = found.get("tool_calls"), found.get("function_call")
    given = [call for call in calls if is_object(call)] if is_array(calls) else []
    return [*given, {"function": legacy}] if is_object(legacy) else given


def _function_of(call: Mapping[str, Any]) -> Mapping[str, Any]:
    holder = call.get("function", call.get("custom"))
    return holder if is_object(holder) else {}


def _call(call: Mapping[str, Any]) -> ToolCall:
    function = _function_of(call)
    arguments = function.get("arguments", function.get("input", ""))
    return ToolCall(
        text_or_empty(call.get("id")),
        text_or_empty(function.get("name")),
        arguments if isinstance(arguments, str) else spell(arguments),
    )


def _read_parts(found: Mapping[str, Any], losses: Losses) -> Iterator[Part]:
    """Yield the parts of a message that is no tool's, and record what only this dialect has."""
    yield from _reasoning(found)
    yield from _read_content(found, losses)
    yield from _read_refusal(found, losses)
    if found.get("audio"):
        said = _transcript(found)
        losses.note("audio", "its transcript is plain text now" if said else "")
        yield Text(said)
    legacy = found.get("function_call")
    for call in _native_calls(found):
        if legacy is not None and call.get("function") is legacy:
            losses.note("function_call", "it is a call now")
        if "function" not in call and "custom" in call:
            losses.note("type 'custom' of a call", "it is a call of a function now")
        yield _call(call)


def _read_content(found: Mapping[str, Any], losses: Losses) -> Iterator[ResultPart]:
    for block in blocks_of(found.get("content")):
        part, kind = _part(block), kind_of(block)
        match part:
            case Text() if kind == "refusal":
                losses.note("refusal", "it is plain text now")
            case Text() | Media() if kind in _OF_RESPONSES and is_object(block):
                what = "plain text" if isinstance(part, Text) else part.kind
                losses.note(f"block of type {kind!r}", f"it is {what} now")
            case Opaque() | Media(kind="audio", payload=None, source=""):
                part = losses.foreign(kind)
            case Media() if kind not in block:
                part = losses.foreign(kind)
            case _:
                pass
        # A recording without a format has the type "audio/" in a view.
        yield replace(part, media_type="") if isinstance(part, Media) and part.media_type == "audio/" else part


def _read_refusal(found: Mapping[str, Any], losses: Losses) -> Iterator[Text]:
    if refusal := text_or_empty(found.get("refusal")):
        losses.note("refusal", "it is plain text now")
        yield Text(refusal)


# Writing.


def _written_part(part: Text | Json | Media, losses: Losses) -> dict[str, Any]:
    match part:
        case Media(kind="image"):
            if part.payload is None and part.media_type:
                losses.note("media type of a URL")
            return {"type": "image_url", "image_url": {"url": _url(part)}}
        case Media(kind="audio"):
            audio = {"data": base64_of(part), "format": part.media_type.rpartition("/")[2]}
            return {"type": "input_audio", "input_audio": audio}
        case Media():
            named = {"filename": part.name} if part.name else {}
            return {"type": "file", "file": {**named, "file_data": _url(part)}}
        case _:
            return {"type": "text", "text": text_in(part)}


def _url(media: Media) -> str:
    return media.source if media.payload is None else f"data:{media.media_type};base64,{base64_of(media)}"


def _written_reasoning(turn: Turn, losses: Losses) -> dict[str, str]:
    found = [part for part in turn.parts if isinstance(part, Reasoning)]
    for part in found:
        if part.signature:
            losses.note("signature of reasoning")
    if len(found) > 1:
        losses.note("several blocks of reasoning", "they are one text now")
    text = "\n".join(part.text for part in found)
    return {"reasoning_content": text} if text else {}


def _written_results(turn: Turn, losses: Losses) -> Iterator[dict[str, Any]]:
    """Yield a tool message for each result, and a user message with their media, as AgentScope's formatter does."""
    shown: list[dict[str, Any]] = []
    for result in turn.results:
        if result.is_error:
            losses.note("mark of a failed result", "its text alone says so")
        named = {"name": result.name} if result.name else {}
        texts = [part for part in result.parts if isinstance(part, Text | Json)]
        for part in texts:
            if isinstance(part, Json):
                losses.note("JSON value of a result", "it is text now")
        content: Any = [_written_part(part, losses) for part in texts]
        if len(content) < 2:  # noqa: PLR2004 - one text needs no blocks
            content = content[0]["text"] if content else ""
        yield {"role": "tool", "tool_call_id": result.call_id, **named, "content": content}
        media = [part for part in result.parts if isinstance(part, Media)]
        if media:
            losses.note("media of a result", "a message of the user's behind it holds them")
            about = f"What the call {result.call_id!r} has shown:"
            shown += [{"type": "text", "text": about}, *(_written_part(part, losses) for part in media)]
    if shown:
        yield {"role": "user", "content": shown}
