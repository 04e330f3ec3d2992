"""What a compressor tells of what it does, in passing: how a summary was come by."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class SummaryVerified:
    """A summary was checked against the messages that it stands for; it is shown next, its doubts marked.

    Attributes:
        messages: Index of the first message that it is about, and index behind the last, over the session.
        summarizer: Who wrote it, e.g. ``"extractive"``.
        claims: How many paths, identifiers, numbers and quoted errors it states, each counted once.
        unverified: Those of them that stand nowhere in the archive.
        pointers: How many places its sentences refer to; all of them are there.
        source_tokens: What the messages took.
        tokens: What the summary takes.
    """

    messages: tuple[int, int]
    summarizer: str
    claims: int
    unverified: tuple[str, ...]
    pointers: int
    source_tokens: int
    tokens: int


@dataclass(frozen=True, slots=True)
class SummaryFellBack:
    """A summariser failed, and the extractive one takes over: nothing is lost, and the text is drier.

    Attributes:
        messages: Index of the first message to be summarised, and index behind the last, over the session.
        summarizer: Whose answer is refused.
        reason: Why, in words.
        source_tokens: What the messages take.
    """

    messages: tuple[int, int]
    summarizer: str
    reason: str
    source_tokens: int


@dataclass(frozen=True, slots=True)
class SummarySqueezed:
    """A summary has less room than the one that it replaces, and does not say all that this one said.

    What it does not say is kept with it in the log of summaries, and the next one says it if there is room.

    Attributes:
        messages: Index of the first message that the summary is about, and index behind the last, over the session.
        facts: How many facts the last summary said.
        unsaid: How many of them this one does not say.
        max_tokens: Of its fields together.
    """

    messages: tuple[int, int]
    facts: int
    unsaid: int
    max_tokens: int


SummaryEvent: TypeAlias = SummaryVerified | SummaryFellBack | SummarySqueezed
OnSummaryEvent: TypeAlias = Callable[[SummaryEvent], None]
