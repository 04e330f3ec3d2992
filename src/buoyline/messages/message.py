"""The neutral view of a message: what buoyline reads in every dialect.

A view is for reading only. It is never written to disk and never handed to a model; the native message is.
"""

import base64
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

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
