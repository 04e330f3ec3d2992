"""The neutral form of a message, from which and into which each dialect is read and written; and losses.

A view (`Message`) has one part for each block of the native message; the turns (`Turn`) of a conversion consist of the
same parts. Signatures and hidden reasoning ride along for conversions: they enter no plan and no transcript, and
equality ignores them.
"""

import base64
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from buoyline.errors import MessageError
from buoyline.messages.jsonl import is_object, parse

USUAL_ALPHABET: Final = str.maketrans("-_", "+/")
"""From base64 for URLs to the other one."""

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class Text:
    """Plain text that the model reads."""

    text: str


@dataclass(frozen=True, slots=True)
class Note(Text):
    """Text that the model reads but that no participant said, such as AgentScope's hints."""


@dataclass(frozen=True, slots=True)
class Reasoning:
    """The model's own thinking, as far as the provider shows it.

    *signature* is the provider's proof that the model wrote *text*, and *hidden* is the part that it encrypts, as it
    spells it. Both may be empty. *sealed_by* names the dialect if its provider alone can read *hidden*.
    """

    text: str
    signature: str = field(default="", repr=False, compare=False)
    hidden: str = field(default="", repr=False, compare=False)
    sealed_by: str = field(default="", repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Json:
    """A JSON value that a tool returned as such. Text that happens to be JSON is a `Text`."""

    json: str

    @property
    def text(self) -> str:
        """The JSON text, under the name that a `Text` gives it."""
        return self.json


@dataclass(frozen=True, slots=True)
class Base64:
    """A payload in base64, which begins at *start* of *text* (a data URL, say). Nothing is decoded or copied yet."""

    text: str
    start: int = 0

    def decoded(self) -> bytes | None:
        """Return the bytes, also of base64 in lines; None if it is not base64 or is empty."""
        try:
            text = "".join(self.text[self.start :].split()).translate(USUAL_ALPHABET)
            return base64.b64decode(text, validate=True) or None
        except ValueError:
            return None


@dataclass(frozen=True, slots=True)
class Media:
    """An image, audio clip, document or other payload that is not text.

    Attributes:
        kind: ``"image"``, ``"audio"``, ``"document"``, ``"video"`` or the block's own type.
        media_type: Such as ``"image/png"``; empty if the block names none.
        size_bytes: Decoded; 0 if the block only refers to the payload.
        source: URL, file id or workspace reference; empty if the message holds the payload.
        name: File name or title; may be empty.
        payload: None if the block only refers to it. Equality ignores it.
    """

    kind: str
    media_type: str
    size_bytes: int
    source: str = ""
    name: str = ""
    payload: bytes | Base64 | None = field(default=None, repr=False, compare=False)

    def content(self) -> bytes | None:
        """Return the decoded payload; None if there is none, or if it cannot be decoded."""
        return self.payload.decoded() if isinstance(self.payload, Base64) else self.payload or None


@dataclass(frozen=True, slots=True)
class Opaque:
    """A block of an unknown type: carried along and counted, never interpreted.

    *call_id* is that of a call that the provider answers itself, or of its result, whose kind ends in ``tool_result``.
    Plans keep the two together; equality ignores it.
    """

    kind: str
    json: str
    call_id: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Compaction(Opaque):
    """What a provider has made of all messages before this one, of which it reads none any more."""


@dataclass(frozen=True, slots=True)
class CachePoint:
    """The provider caches the prompt up to here. It costs no tokens and nobody reads it."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The model's request to run a tool.

    The id may be empty, and may repeat within a session. The arguments are JSON text, or invalid JSON as providers
    sometimes deliver it.
    """

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The output of one tool call.

    Attributes:
        call_id: May be empty, may repeat, and may match no call.
        name: The tool's, if the dialect repeats it, else empty.
        parts: One for each block, in the tool's order; empty if the tool returned nothing.
        is_error: The dialect marks the result as a failure.
        native: The framework's own block, if the message has such objects: an offloader written for the framework
            gets it. Equality ignores it.
    """

    call_id: str
    name: str
    parts: "tuple[ResultPart, ...]"
    is_error: bool = False
    native: Any = field(default=None, repr=False, compare=False)

    @property
    def id(self) -> str:
        """The call's id, under the name that AgentScope's result block gives it."""
        return self.call_id

    @property
    def text(self) -> str:
        """The text and JSON parts in order, joined so that each begins on a line of its own."""
        return join_texts(list(self.texts))

    @property
    def texts(self) -> tuple[str, ...]:
        """The text and JSON parts in order."""
        return tuple([part.text for part in self.parts if isinstance(part, Text | Json)])


ResultPart: TypeAlias = Text | Json | Media | Opaque
Part: TypeAlias = Text | Json | Reasoning | Media | Opaque | CachePoint | ToolCall | ToolResult


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation; *name* is the speaker's if the dialect has one, else empty.

    The role ``developer`` reads as ``system``. *calls* and *results* are those of *parts*, in
    order; in Anthropic's dialect one user message may hold several results.
    """

    role: Role
    parts: tuple[Part, ...]
    name: str = ""
    calls: tuple[ToolCall, ...] = field(init=False, repr=False, compare=False)
    results: tuple[ToolResult, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Find the calls and the results once: plans, counts and stubs ask for them many times."""
        object.__setattr__(self, "calls", tuple([part for part in self.parts if isinstance(part, ToolCall)]))
        object.__setattr__(self, "results", tuple([part for part in self.parts if isinstance(part, ToolResult)]))

    @property
    def text(self) -> str:
        """The message's own text parts joined by newlines, without notes, reasoning, calls and results."""
        return "\n".join(part.text for part in self.parts if isinstance(part, Text) and not isinstance(part, Note))

    @property
    def is_compaction(self) -> bool:
        """Whether it stands for all messages before it; see `Compaction`."""
        return any(isinstance(part, Compaction) for part in self.parts)

    @property
    def spoken(self) -> str:
        """Its text, notes, calls and results, each below the other, without reasoning."""
        notes = (part.text for part in self.parts if isinstance(part, Note))
        calls = (f"{call.name}\n{call.arguments}" for call in self.calls)
        return "\n".join([self.text, *notes, *calls, *(result.text for result in self.results)])


@dataclass(frozen=True, slots=True)
class Turn(Message):
    """The part of message *number*, 0-based, that one speaker says: the model, the tools that it called, or another.

    Its role is ``"tool"`` if and only if it holds results. Its texts are not empty, and it holds neither an `Opaque`
    nor a `CachePoint`.
    """

    number: int = 0


def text_in(part: Part) -> str | None:
    """Return the text of a text or JSON part; None for every other part."""
    return part.text if isinstance(part, Text | Json) else None


def join_texts(texts: list[str]) -> str:
    r"""Join text blocks so that each begins on a line of its own.

    A newline goes between two blocks only if the first does not end in one, so that a result of a single block is
    byte for byte the tool's output. No blocks, as in a result of one image, give no text.

    >>> join_texts(["a", "b\n", "c"])
    'a\nb\nc'
    """
    *others, last = texts or [""]
    return "".join([text if text.endswith("\n") else f"{text}\n" for text in others]) + last


RAW: Final = "raw_arguments"
"""The key for arguments that are no JSON object: its value is their text, as the model wrote it."""


@dataclass(frozen=True, order=True, slots=True)
class Loss:
    """A part that a message had and its conversion lacks, or has in another form.

    *message* is its number among those given, 0-based; *why* has the reason, and the replacement if there is one.
    """

    message: int
    what: str
    why: str

    def __str__(self) -> str:
        """Return the loss in one line."""
        return f"message {self.message}: {self.what}: {self.why}"


@dataclass(slots=True)
class Losses:
    """Records the losses of message number *message* in a conversion to the dialect *target*."""

    target: str
    message: int = 0
    found: list[Loss] = field(default_factory=list[Loss])

    def at(self, message: int) -> "Losses":
        """Return a recorder for another message, which appends to the same list."""
        return Losses(self.target, message, self.found)

    def note(self, what: str, why: str = "") -> None:
        """Record a loss; the default reason is that the target has no place for it."""
        self.found.append(Loss(self.message, what, why or f"{self.target} has no place for it"))

    def left_out(self, media: Media) -> Text:
        """Record that *media* has no place, and return the text that replaces it."""
        size = f"{media.size_bytes:,} bytes" if media.payload else media.source
        shown = ", ".join(filter(None, [f"{media.kind} {media.name}".strip(), media.media_type, size]))
        self.note(shown)
        return Text(f"[{shown}: not shown here]")

    def foreign(self, kind: str) -> Text:
        """Record a block of a *kind* that no other dialect has, and return the text that replaces it."""
        self.note(f"block of type {kind!r}")
        return Text(f"[a block of type {kind!r}: not shown here]")

    def object_of(self, text: str) -> dict[str, Any]:
        """Return the JSON object that *text* spells, ``{}`` for blank text, or else an object that holds *text*."""
        try:
            value: object = parse(text) if text.strip() else {}
        except MessageError:
            value = None
        if not is_object(value):
            self.note("arguments of a call", f"they are no JSON object; the text is under {RAW!r}")
            return {RAW: text}
        return dict(value)
