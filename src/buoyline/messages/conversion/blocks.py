"""What all dialects have between them: the form in which a message stands while it is converted.

A view (`buoyline.messages.Message`) is for reading, and leaves out what nobody reads: signatures, cache points, states.
These blocks hold all that has a place in more than one dialect.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from buoyline.messages.message import Role

MediaKind: TypeAlias = Literal["image", "audio", "document", "video"]


@dataclass(frozen=True, slots=True)
class Said:
    """Text; never empty, since an empty one says nothing and several providers refuse it."""

    text: str


@dataclass(frozen=True, slots=True)
class Thought:
    """The model's thinking: what it shows of it, or what it hides.

    Attributes:
        text: What it shows.
        signature: The provider's proof that the model wrote *text*; empty where there is none.
        hidden: What the provider has encrypted in place of a text, in base64 or however it spells it.
    """

    text: str
    signature: str = ""
    hidden: str = ""


@dataclass(frozen=True, slots=True)
class Called:
    """A call of a tool; *arguments* are text, mostly JSON."""

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Medium:
    """An image, a recording, a document or a film.

    Attributes:
        kind: Which of them.
        media_type: Of the payload; empty where nobody says.
        payload: The bytes, or their base64; None where the block only refers to them.
        url: Where they are then; a URL, or an id that one provider knows.
        name: Of the file; empty where it has none.
    """

    kind: MediaKind
    media_type: str
    payload: bytes | str | None = field(default=None, repr=False)
    url: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Value:
    """A JSON value that a tool gave as such."""

    value: Any


@dataclass(frozen=True, slots=True)
class CachePoint:
    """Up to here the provider shall keep the prompt; *ttl* as it is spelled, empty for the provider's own."""

    ttl: str = ""


@dataclass(frozen=True, slots=True)
class Answered:
    """The result of a call.

    Attributes:
        call_id: Of the call.
        name: Of the tool; empty where the dialect does not repeat it.
        blocks: What the tool gave.
        is_error: It failed.
    """

    call_id: str
    name: str
    blocks: "tuple[Said | Value | Medium, ...]"
    is_error: bool = False


Block: TypeAlias = Said | Thought | Called | Answered | Medium | Value | CachePoint


@dataclass(frozen=True, slots=True)
class Turn:
    """What one speaker says in one go: the model, somebody else, or the tools that the model has called.

    Attributes:
        role: Who speaks; results, and nothing but results and cache points, stand in a turn of the role ``"tool"``.
        blocks: In order.
        number: Of the message that it comes from, or began with, 0-based.
        name: Of the speaker; empty where it has none of its own.
        metadata: Whatever somebody has attached to the message.
    """

    role: Role
    blocks: tuple[Block, ...]
    number: int
    name: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def calls(self) -> list[Called]:
        """The calls in order."""
        return [block for block in self.blocks if isinstance(block, Called)]

    @property
    def results(self) -> list[Answered]:
        """The results in order."""
        return [block for block in self.blocks if isinstance(block, Answered)]


_NOTHING_THOUGHT: Final = Thought("")


def turns_of(
    role: Role, blocks: Iterable[Block], number: int, name: str = "", metadata: Mapping[str, Any] | None = None
) -> list[Turn]:
    """Part the blocks of one message into turns: the tools', the model's, and those of whoever else speaks.

    A cache point belongs to what stands before it. A message without blocks is one turn without any. What was attached
    to the message stays with the first turn.
    """
    runs: list[tuple[Role, list[Block]]] = []
    for block in blocks:
        if block == _NOTHING_THOUGHT:
            continue
        speaker: Role = _speaker(block, role)
        if runs and (runs[-1][0] == speaker or isinstance(block, CachePoint)):
            runs[-1][1].append(block)
        else:
            runs.append((speaker, [block]))
    found = runs or [(role, [])]
    return [
        Turn(speaker, tuple(run), number, name if speaker == role else "", {} if place else metadata or {})
        for place, (speaker, run) in enumerate(found)
    ]


def _speaker(block: Block, role: Role) -> Role:
    match block:
        case Answered():
            return "tool"
        case Called() | Thought():
            return "assistant"
        case _:
            return role
