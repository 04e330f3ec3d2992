"""What retrieving offloaded content gives: text for a plain tool, and the same in its native types for a framework."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias

from buoyline.lookups.answer import Answer, Line, shown_path
from buoyline.messages import parse
from buoyline.messages.message import join_texts

_SHOWN_CHARS = 100
_NO_BRACKETS = str.maketrans("[]", "()")


@dataclass(frozen=True, slots=True)
class TextContent:
    """Text that a tool gave, or an answer of ours about it."""

    text: str


@dataclass(frozen=True, slots=True)
class JsonContent:
    """A JSON value that a tool gave, as it was spelled."""

    text: str

    @property
    def value(self) -> Any:
        """The value, parsed when it is asked for: a plain tool needs it spelled, and parsing 10 MB takes 0.1 s.

        Raises:
            MessageError: What is stored as JSON is none.
        """
        return parse(self.text)


@dataclass(frozen=True, slots=True)
class MediaContent:
    """An image, document, audio clip or other payload.

    Attributes:
        kind: ``"image"``, ``"document"``, ``"audio"`` or the block's own type.
        media_type: IANA media type; ``"application/octet-stream"`` where it is not known.
        size_bytes: Of the whole payload.
        path: Absolute path of the file that holds it.
        name: File name or title; empty where none is known.
        content: The bytes; None where they are too many to be handed out unasked, or cannot be read.
        problem: Why `content` is None; else empty.
    """

    kind: str
    media_type: str
    size_bytes: int
    path: str
    name: str = ""
    content: bytes | None = field(default=None, repr=False)
    problem: str = ""

    @property
    def format(self) -> str:
        """The media type's second half, e.g. ``"png"``: what Strands' blocks name it by."""
        return self.media_type.rpartition("/")[2]

    @property
    def text(self) -> str:
        """The documented placeholder, with the path of the file as the reference.

        What a tool has chosen, its name above all, stays one line of bounded length and closes no bracket.
        """
        facts = [self.format, *([self.name] if self.name else []), f"{self.size_bytes} bytes"]
        problem = f" | {self.problem}" if self.problem else ""
        return f"[{_plain(self.kind)}: {', '.join(map(_plain, facts))} | ref: {self.path}{problem}]"


Content: TypeAlias = TextContent | JsonContent | MediaContent


@dataclass(frozen=True, slots=True)
class Retrieved:
    """What was retrieved.

    Attributes:
        parts: The content in its native types and in the tool's order; where it had to be cut or was searched, one
            text that says so, and then the media.
        text: All of it as one text, media by their placeholders: the answer of a tool that can only answer text.
        lines: What is shown of lines, in order; none where the content is given whole.
        total: Lines of the content, or how many of them match; 0 where it is given whole.
        next: Arguments that make the same call go on where this answer ends; empty where nothing is left.
    """

    parts: tuple[Content, ...]
    text: str
    lines: tuple[Line, ...] = ()
    total: int = 0
    next: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @classmethod
    def of(cls, *parts: Content) -> Self:
        """Make it of whole parts, whose text begins on a line of its own each."""
        return cls(parts, join_texts([part.text for part in parts]))

    @classmethod
    def shown(cls, answer: Answer, *media: MediaContent) -> Self:
        """Make it of an *answer* that shows lines of the content, and of the *media* beside them."""
        return cls((TextContent(answer.text), *media), answer.text, answer.lines, answer.total, answer.next)

    @property
    def media(self) -> tuple[MediaContent, ...]:
        """The parts that are no text."""
        return tuple(part for part in self.parts if isinstance(part, MediaContent))


def _plain(fact: str) -> str:
    return shown_path(fact[:_SHOWN_CHARS]).translate(_NO_BRACKETS)
