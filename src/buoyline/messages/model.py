"""The neutral view of a message: what buoyline reads in every dialect.

A view is for reading only. It is never written to disk and never handed to a model; the native message is.
"""

import base64
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from buoyline.errors import MessageError
from buoyline.messages.jsonl import is_array, is_object, model_fields, parse, spell

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class Text:
    """Plain text that the model reads."""

    text: str


@dataclass(frozen=True, slots=True)
class Note(Text):
    """Text that the model reads and that nobody in the conversation has said, such as AgentScope's hints."""


@dataclass(frozen=True, slots=True)
class Reasoning:
    """The model's own thinking, as far as the provider shows it; signatures are not part of the view."""

    text: str


@dataclass(frozen=True, slots=True)
class Json:
    """A JSON value that a tool gave as such; a text that merely is JSON is a `Text`."""

    json: str


@dataclass(frozen=True, slots=True)
class Base64:
    """A payload that is still spelled in base64: looking at a message decodes and copies none of it.

    Attributes:
        text: The text that it stands in, a data URL for instance.
        start: Where in *text* the base64 begins.
    """

    text: str
    start: int = 0

    def decoded(self) -> bytes | None:
        """Return the bytes, also of base64 that is spelled loosely; None where it is none, or stands for nothing."""
        spelled = self.text[self.start :]
        try:
            return base64.b64decode(spelled, validate=True) or None
        except ValueError:
            compact = "".join(spelled.split()).rstrip("=").translate(_URL_SAFE)
        try:
            return base64.b64decode(compact + "=" * (-len(compact) % 4), validate=True) or None
        except ValueError:
            return None


@dataclass(frozen=True, slots=True)
class Media:
    """An image, audio clip, document or other payload that is not text.

    Attributes:
        kind: ``"image"``, ``"audio"``, ``"document"`` or the block's own type.
        media_type: IANA media type such as ``"image/png"``; empty when the block names none.
        size_bytes: Decoded size; 0 when the block only refers to the payload.
        source: URL, file id or workspace reference; empty when the payload stands in the message.
        name: File name or title; empty where the block has none.
        payload: The decoded bytes, or where they stand; None when the block only refers to them. Two views are
            compared by the facts above.
    """

    kind: str
    media_type: str
    size_bytes: int
    source: str = ""
    name: str = ""
    payload: bytes | Base64 | None = field(default=None, repr=False, compare=False)

    def content(self) -> bytes | None:
        """Return the decoded payload; None where the block has none, or one that cannot be decoded."""
        return self.payload.decoded() if isinstance(self.payload, Base64) else self.payload or None


@dataclass(frozen=True, slots=True)
class Opaque:
    """A block of a type that buoyline does not know: carried along, counted, never interpreted."""

    kind: str
    json: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The model's request to run a tool.

    Attributes:
        call_id: As the provider gave it. May be empty, and may repeat within a session.
        name: The tool's name.
        arguments: JSON text; providers also deliver invalid JSON, which is kept as it is.
    """

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The output of one tool call.

    Attributes:
        call_id: Id of the call it answers; may be empty, may repeat, may answer no call at all.
        name: The tool's name where the dialect repeats it, else empty.
        parts: One for each block, in the tool's order; empty when the tool gave nothing.
        is_error: The dialect marks the result as a failure.
        native: The framework's own block, in a view of a message that has such objects: an offloader that is written
            for the framework gets it. Two results are compared by the facts above.
    """

    call_id: str
    name: str
    parts: "tuple[ResultPart, ...]"
    is_error: bool = False
    native: Any = field(default=None, repr=False, compare=False)

    @property
    def id(self) -> str:
        """The call's id under the name that AgentScope's result block has for it."""
        return self.call_id

    @property
    def text(self) -> str:
        """The text and JSON parts in order, joined so that each begins on a line of its own."""
        return join_texts(list(self.texts))

    @property
    def texts(self) -> tuple[str, ...]:
        """The text and JSON parts in order."""
        return tuple(text for part in self.parts if (text := text_in(part)) is not None)


ResultPart: TypeAlias = Text | Json | Media | Opaque
Part: TypeAlias = Text | Json | Reasoning | Media | Opaque | ToolCall | ToolResult


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation.

    Attributes:
        role: Who speaks. ``developer`` reads as ``system``, ``function`` as ``tool``.
        parts: In the message's order; empty for a message that says nothing.
        name: The speaker's name where the dialect has one, else empty.
    """

    role: Role
    parts: tuple[Part, ...]
    name: str = ""

    @property
    def text(self) -> str:
        """The message's own text parts joined by newlines, without notes, reasoning, calls and results."""
        return "\n".join(part.text for part in self.parts if isinstance(part, Text) and not isinstance(part, Note))

    @property
    def spoken(self) -> str:
        """What it says, notes, calls and gets in answer, one below the other, without reasoning."""
        notes = (part.text for part in self.parts if isinstance(part, Note))
        calls = (f"{call.name}\n{call.arguments}" for call in self.calls)
        return "\n".join([self.text, *notes, *calls, *(result.text for result in self.results)])

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tool calls in order; empty when there are none."""
        return tuple(part for part in self.parts if isinstance(part, ToolCall))

    @property
    def results(self) -> tuple[ToolResult, ...]:
        """The tool results in order; Anthropic's dialect puts several into one user message."""
        return tuple(part for part in self.parts if isinstance(part, ToolResult))


def text_in(part: Part) -> str | None:
    """Return what a text or JSON part says; None for every other part."""
    match part:
        case Text():
            return part.text
        case Json():
            return part.json
        case _:
            return None


def join_texts(texts: list[str]) -> str:
    r"""Join text blocks so that each begins on a line of its own.

    A newline is put between two blocks only where the first does not end in one, so that a result of a
    single block is byte for byte what the tool gave. No blocks, as in a result of one picture, are no text.

    >>> join_texts(["a", "b\n", "c"])
    'a\nb\nc'
    """
    *others, last = texts or [""]
    return "".join(text if text.endswith("\n") else f"{text}\n" for text in others) + last


_URL_SAFE = str.maketrans("-_", "+/")


# Reading native messages that are dicts or pydantic models, as the providers' own packages give them.


_ROLES: Mapping[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}


Blocks: TypeAlias = Sequence[str | int]
"""What content shall consist of: the number of a block that stays the very same object, or a new text."""


def fields(value: object) -> Mapping[str, Any] | None:
    """Return the fields of a dict or a pydantic model, or None for anything else.

    Raises:
        MessageError: A model's field has no JSON form.
    """
    return value if is_object(value) else model_fields(value)


def own_fields(message: object) -> Mapping[str, Any]:
    """Return the fields of *message* with the very objects that are in it, models too.

    Raises:
        MessageError: *message* is neither a mapping with text keys nor a pydantic model.
    """
    found = fields(message)
    if found is None:
        raise MessageError(f"{type(message).__name__} is no message: expected an object with 'role' and 'content'")
    return found


def rebuilt_content(content: object, blocks: Blocks) -> Any:
    """Return *content* with *blocks* in place of its own: a text stays a text where one text is all there is.

    Raises:
        MessageError: *content* is neither text, a list, nor null.
    """
    if len(blocks) == 1 and isinstance(blocks[0], str) and not is_array(content):
        return blocks[0]
    old = blocks_of(content)
    return [{"type": "text", "text": block} if isinstance(block, str) else old[block] for block in blocks]


def plain_fields(message: object) -> Mapping[str, Any]:
    """Return the fields of *message* with nothing but JSON values in them.

    An agent loop that takes ``response.content`` or ``message.tool_calls`` over into a dict of its own leaves
    models anywhere in it.

    Raises:
        MessageError: *message* is neither a mapping with text keys nor a pydantic model, or holds something
            that has no JSON form beside a model.
    """
    found = own_fields(message)
    if _holds_model(found):
        plain: dict[str, Any] = parse(spell(found))
        return plain
    return found


def role_of(message: Mapping[str, Any]) -> Role:
    """Return the role of *message*.

    Raises:
        MessageError: There is none, or none that we know.
    """
    role = message.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        known = ", ".join(_ROLES)
        raise MessageError(f"role {role!r} is not one of {known}")
    return _ROLES[role]


def has_known_role(message: Mapping[str, Any]) -> bool:
    """Tell whether *message* has a role that `role_of` accepts."""
    role = message.get("role")
    return isinstance(role, str) and role in _ROLES


def blocks_of(content: object) -> Sequence[Any]:
    """Return *content* as a sequence of blocks: text becomes one block, None becomes none.

    Raises:
        MessageError: *content* is neither text, a list, nor null.
    """
    if content is None:
        return ()
    if isinstance(content, str):
        return ({"type": "text", "text": content},)
    if is_array(content):
        return content
    raise MessageError(f"'content' must be text, a list of blocks or null, not {type(content).__name__}")


def text_or_empty(value: object) -> str:
    """Return *value* where it is text, else ``""``: a field that is null, missing or malformed says nothing."""
    return value if isinstance(value, str) else ""


def text_of(block: object) -> str | None:
    """Return the text of a text block, of bare text, or None for every other block."""
    if isinstance(block, str):
        return block
    if is_object(block) and block.get("type") == "text" and isinstance(block.get("text"), str):
        return str(block["text"])
    return None


def media(
    kind: Literal["image", "audio", "document", "video"],
    media_type: object,
    *,
    payload: object = None,
    start: int = 0,
    source: object = None,
    name: object = None,
) -> Media:
    """Build the view of a payload that stands in the message as base64, or elsewhere under *source*.

    The decoded size follows from the length of the base64 text, so a 10 MB image is not decoded to be seen.
    An archived message has a workspace reference in the payload's place; that is its source.

    Args:
        kind: What it is.
        media_type: IANA media type, as far as the block names one.
        payload: The text that it stands in.
        start: Where in *payload* the base64 begins.
        source: URL or id of what stands elsewhere.
        name: File name or title.
    """
    found, title = text_or_empty(media_type), text_or_empty(name)
    if isinstance(payload, str) and payload.startswith("workspace:///"):
        return Media(kind, found, 0, payload, title)
    if isinstance(payload, str):
        padding = 2 if payload.endswith("==") else 1 if payload.endswith("=") else 0
        size_bytes = max(0, (len(payload) - start) * 3 // 4 - padding)
        return Media(kind, found, size_bytes, name=title, payload=Base64(payload, start))
    return Media(kind, found, 0, text_or_empty(source), title)


def data_url(url: object) -> tuple[str, str] | None:
    """Split a base64 data URL into its media type and its payload; None for every other value."""
    if not isinstance(url, str) or not url.startswith("data:"):
        return None
    head, comma, payload = url.partition(",")
    if not comma or not head.endswith(";base64"):
        return None
    return head[len("data:") : -len(";base64")].split(";")[0], payload


def simple_part(block: object) -> Text | Opaque:
    """Read a block as text, or carry it along as it is."""
    text = text_of(block)
    if text is not None:
        return Text(text)
    kind = block.get("type") if is_object(block) else None
    return Opaque(kind if isinstance(kind, str) else type(block).__name__, spell(block))


def _holds_model(value: object) -> bool:
    """Tell whether there is a model within *value*; not recursive, since arguments of tools nest as they like."""
    if "pydantic" not in sys.modules:
        return False
    from pydantic import BaseModel  # noqa: PLC0415 - as in `model_fields`

    seen: set[int] = set()
    waiting = [value]
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, BaseModel):
            return True
        if id(inner) in seen:
            continue
        seen.add(id(inner))
        if is_object(inner):
            waiting.extend(inner.values())
        elif is_array(inner):
            waiting.extend(inner)
    return False
