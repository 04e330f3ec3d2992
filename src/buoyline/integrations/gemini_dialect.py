"""Gemini's dialect: the ``Content`` objects of google-genai, which Google ADK keeps in its sessions.

Source: `google.genai.types` of 2.34, as ``model_dump(mode="json", exclude_none=True)`` writes them. Most calls have no
ids: results pair by their order, and here by the name of the tool.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from buoyline.errors import MessageError, imported
from buoyline.messages import Blocks, Losses, Message, ObjectDialect, Text, ToolCall, ToolResult, Turn, parts
from buoyline.messages.dialect import speaker_of
from buoyline.messages.jsonl import is_array, is_object
from buoyline.messages.model import Part, join_texts


class Gemini(ObjectDialect):
    """Contents as Gemini's API takes them. The parts of a view are theirs, and after them what signatures seal."""

    name = "gemini"
    alternates_roles = True
    has_system_messages = False

    def detects(self, message: object) -> bool:
        """Return whether *message* is a ``Content``, or the JSON value of one."""
        is_json = is_object(message) and is_array(message.get("parts")) and message.keys() <= {"role", "parts"}
        return is_json or type(message).__module__ == "google.genai.types"

    def read(self, value: Mapping[str, Any]) -> Message:
        """Read a content; one without a role is the user's."""
        if not self.detects(value):
            raise MessageError(f"no content of Gemini: expected an object with 'role' and 'parts', not {[*value]}")
        read = [_part(part) for part in value["parts"]]
        if sealed := "".join(part.get("thought_signature", "") for part in value["parts"]):
            read.append(parts.reasoning("", "", sealed, self.name))
        return Message(speaker_of("assistant" if value.get("role") == "model" else "user", read), tuple(read))

    def to_json(self, message: Any) -> dict[str, Any]:
        """Return what `model_dump` writes."""
        return {"parts": [], **(message if is_object(message) else message.model_dump(mode="json", exclude_none=True))}

    def from_json(self, value: Mapping[str, Any]) -> Any:
        """Return the content."""
        return imported("google.genai.types", extra="google-adk").Content.model_validate(value)

    def with_results(self, message: Any, results: Mapping[int, Blocks]) -> Any:
        """Return a copy whose n-th result has other content."""
        value = self.value_of(message)
        made = [*value["parts"]]
        places = [at for at, part in enumerate(made) if "function_response" in part]
        for number, blocks in results.items():
            made[places[number]] = _with_blocks(made[places[number]], blocks)
        return self.from_json({**value, "parts": made})

    def with_content(self, message: Any, blocks: Blocks) -> Any:
        """Return a copy whose content consists of *blocks*; a text that is replaced loses its signature."""
        value = self.value_of(message)
        kept = [block for block in blocks if block != len(value["parts"])]
        return self.from_json({**value, "parts": parts.rebuilt(value["parts"], kept, "")})

    def write(self, turns: Sequence[Turn], losses: Losses) -> Iterator[Any]:
        """Write one content for neighbors of one role: Gemini wants all results of a content's calls in the next."""
        names = {call.call_id: call.name for turn in turns for call in turn.calls}
        for role, group in groupby((turn for turn in turns if turn.parts), key=lambda turn: turn.role):
            written = [_written(part, names, losses.at(turn.number)) for turn in group for part in turn.parts]
            yield self.from_json({"role": "model" if role == "assistant" else "user", "parts": written})


def _part(part: Mapping[str, Any]) -> Part:  # noqa: PLR0911 - one for each kind
    """Read a part of a content, or of what a tool returned."""
    match part:
        case {"function_call": {**call}}:
            return parts.call(call.get("id") or call.get("name"), call.get("name"), call.get("args") or {})
        case {"function_response": result}:
            response: Mapping[str, Any] = result.get("response") or {}
            blocks, name = ({"response": response}, *result.get("parts", ())), result.get("name")
            is_error = bool(response.get("error"))
            return parts.result(result.get("id") or name, blocks, _part, name=name, is_error=is_error)
        case {"response": {"result": str(text), **others}} if not others:
            return Text(text)
        case {"response": response}:
            return parts.json(response)
        case {"text": str(text)}:
            return parts.reasoning(text) if part.get("thought") else Text(text)
        case {"inline_data": {**held}} | {"file_data": {**held}}:
            media_type, data = (parts.string(held.get(key)) for key in ("mime_type", "data"))
            kind = next((kind for kind in ("image", "audio", "video") if media_type.startswith(kind)), "document")
            source, name = held.get("file_uri"), held.get("display_name")
            return parts.media(kind, media_type, payload=data or None, source=source, name=name)
        case _:
            return parts.opaque(next(iter(part), "part"), part)


def _with_blocks(part: Mapping[str, Any], blocks: Blocks) -> dict[str, Any]:
    """Return the part of a result with other blocks, of which the first is the response, and the others its media."""
    result = part["function_response"]
    response: Mapping[str, Any] = result.get("response") or {}
    texts = [block for block in blocks if isinstance(block, str)]
    if 0 not in blocks:
        response = {"error" if response.get("error") else "result": join_texts(texts)}
    elif texts:
        response = {**response, "offloaded": join_texts(texts)}
    media = [result["parts"][block - 1] for block in blocks if isinstance(block, int) and block]
    return {**part, "function_response": {**result, "response": response, "parts": media or None}}


def _written(part: Any, names: Mapping[str, str], losses: Losses) -> dict[str, Any]:
    if not isinstance(part, ToolCall | ToolResult):
        return {"text": part.text}
    name = part.name or names.get(part.call_id, "")
    named = {"id": None if part.call_id == name else part.call_id, "name": name}
    if isinstance(part, ToolCall):
        return {"function_call": {**named, "args": losses.object_of(part.arguments)}}
    return {"function_response": {**named, "response": {"result": part.text}}}


DIALECT: Final = Gemini()
