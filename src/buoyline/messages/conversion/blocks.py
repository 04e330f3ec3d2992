"""What all dialects have between them: the form in which a message stands while it is converted.

A view (`buoyline.messages.Message`) is for reading, and leaves out what nobody reads: signatures, cache points, states.
These blocks hold all that has a place in more than one dialect.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any, Final, Literal, TypeAlias

from buoyline.messages.jsonl import is_object
from buoyline.messages.model import Role

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


# What a conversion could not keep.


_NOTHING: Final[tuple[object, ...]] = (None, False, "", [], {})


@dataclass(frozen=True, order=True, slots=True)
class Loss:
    """One thing that a message had and its conversion has not, or has in another form.

    Attributes:
        message: Number of the message among those given, 0-based.
        what: What is lost or changed.
        why: The reason, and what stands there instead where something does.
    """

    message: int
    what: str
    why: str

    def __str__(self) -> str:
        """Say it in one line."""
        return f"message {self.message}: {self.what}: {self.why}"


@dataclass(slots=True)
class Losses:
    """Gathers the losses of a conversion to the dialect *target*."""

    target: str
    found: list[Loss] = field(default_factory=list[Loss])

    def note(self, message: int, what: str, why: str = "") -> None:
        """Note a loss; left out, the reason is that the target has no place for it."""
        self.found.append(Loss(message, what, why or f"{self.target} has no place for it"))

    def note_fields(self, message: int, holder: Mapping[str, Any], known: Iterable[str], where: str = "") -> None:
        """Note each field of *holder* that says something and that the reader does not know.

        Args:
            message: See `Loss`.
            holder: A message or a block.
            known: Names of the fields that are read.
            where: What *holder* is.
        """
        names = sorted(name for name in holder.keys() - set(known) if _says_something(holder[name]))
        for name in names:
            self.note(message, f"{name} of {where}" if where else name)


def _says_something(value: object) -> bool:
    return not any(type(value) is type(nothing) and value == nothing for nothing in _NOTHING)


# The arguments of a call as an object, where a dialect takes no text for them.


RAW: Final = "raw_arguments"
"""Under this key stands a text that is no JSON object, as the model wrote it."""


def object_of(text: str, number: int, losses: Losses) -> dict[str, Any]:
    """Return the object that *text* spells, or one that holds *text*; none at all is the empty object.

    What an object cannot tell as the text did is noted: a key that comes twice, a number of more digits than a float
    has. White space and the order of escapes are no content.
    """
    if not text.strip():
        return {}
    found = _Reading()
    try:
        value: object = json.loads(
            text, parse_constant=_refuse, parse_float=found.number, object_pairs_hook=found.members
        )
    except (ValueError, RecursionError):
        value = None
    if not is_object(value):
        losses.note(number, "arguments of a call", f"they are no JSON object; the text stands under {RAW!r}")
        return {RAW: text}
    for what in dict.fromkeys(found.lost):
        losses.note(number, "arguments of a call", what)
    return dict(value)


class _Reading:
    """Reads JSON, and remembers what Python's values do not hold of it."""

    def __init__(self) -> None:
        self.lost: list[str] = []

    def number(self, spelled: str) -> float:
        """Read a number that is no whole one; raises `ValueError` for one beyond a float."""
        value = float(spelled)
        if value in (float("inf"), float("-inf")):
            raise ValueError(spelled)
        if not _is_exact(spelled, value):
            self.lost.append(f"{spelled[:40]} has more digits than a float holds")
        return value

    def members(self, pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        """Make an object of its members."""
        made = dict(pairs)
        if len(made) < len(pairs):
            self.lost.append("a key comes twice; the last one counts")
        return made


def _is_exact(spelled: str, value: float) -> bool:
    try:
        return Decimal(spelled) == Decimal(repr(value))
    except InvalidOperation:
        return False


def _refuse(constant: str) -> float:
    raise ValueError(constant)
