"""What a window tells of what it does."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from buoyline.compression import Summary


@dataclass(frozen=True, slots=True)
class ResultOffloaded:
    """A tool result left the context and a stub stands in its place.

    Attributes:
        message: Index of its message in the session, 0-based.
        call_id: Of the call it answers.
        tool: The tool's name; empty where it is not known.
        path: Where the whole result is; empty without an offloader, when the rest is lost.
        tokens: What the result took.
        stub_tokens: What stands in its place takes.
        stub: What stands in its place.
    """

    message: int
    call_id: str
    tool: str
    path: str
    tokens: int
    stub_tokens: int
    stub: str


@dataclass(frozen=True, slots=True)
class ContextCompressed:
    """The oldest messages left the context and a summary stands in their place.

    Attributes:
        summary: What stands there.
        tokens_before: What the whole context took.
        tokens_after: What it takes now.
    """

    summary: Summary
    tokens_before: int
    tokens_after: int


Event: TypeAlias = ResultOffloaded | ContextCompressed
OnEvent: TypeAlias = Callable[[Event], None]
