"""When managers run, where a conversation may be cut, and the stubs that managers write.

Source: OpenSearch's context management documents ``pre_llm`` and ``post_tool``, in small letters. Its code accepts only
capitals. Here any case is accepted.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import accumulate
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from buoyline.compression.plan import legal_cuts, pair_spans
from buoyline.errors import DocumentError
from buoyline.management.context import ContextMessage, ContextView, StubWriter
from buoyline.messages import Message
from buoyline.offloader import StoredResult
from buoyline.offloader.stub import TRUNCATION_MARKER
from buoyline.tokens import TextCounter

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


Hook: TypeAlias = Literal["pre_llm", "post_tool"]

HOOKS: Final[Mapping[Hook, str]] = MappingProxyType(
    {
        "post_tool": "after each tool result",
        "pre_llm": "before each model call",
    }
)
"""Each hook and when it fires, in the order in which they fire."""


def hook_named(name: str) -> Hook | None:
    """Return the hook *name*, in any case; None if there is none.

    >>> hook_named("PRE_LLM")
    'pre_llm'
    """
    spelled = name.strip().lower()
    return next((hook for hook in HOOKS if hook == spelled), None)


def nearest(name: str, known: "list[str] | tuple[str, ...]") -> str:
    """Return the part of an error message that suggests the nearest known name, or all of them.

    >>> nearest("pre_lm", ["pre_llm", "post_tool"])
    "did you mean 'pre_llm'?"
    """
    # Every name ends in it, which would make all names similar.
    folded = {one.lower().removesuffix("manager"): one for one in known}
    found = get_close_matches(name.strip().lower().removesuffix("manager"), list(folded), n=1, cutoff=0.6)
    return f"did you mean {folded[found[0]]!r}?" if found else f"choose one of {', '.join(known)}"


# All problems of a document, each with its path.


M = TypeVar("M", bound=BaseModel)


@dataclass(slots=True)
class Problems:
    """The problems of the document *source*: paths with reasons."""

    source: str
    found: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    def add(self, path: str, reason: str) -> None:
        """Add a problem."""
        self.found.append((path, reason))

    def unknown(self, path: str, what: str, name: str, known: Sequence[str]) -> None:
        """Add an unknown name with the nearest known one."""
        self.add(path, f"{name!r} is no {what}; {nearest(name, list(known))}")

    def settle(self) -> None:
        """Raise the problems.

        Raises:
            DocumentError: There are problems.
        """
        if self.found:
            raise DocumentError(self.source, self.found)

    def validated(self, kind: type[M], path: str, what: str, value: Mapping[str, Any]) -> M | None:
        """Return *value* as a *kind*; None if it is invalid, and then its problems are added."""
        try:
            return kind.model_validate(value)
        except ValidationError as error:
            for detail in error.errors():
                self._note(kind, path, what, detail)
            return None

    def _note(self, kind: type[BaseModel], path: str, what: str, detail: "ErrorDetails") -> None:
        place = joined(path, *detail["loc"])
        if detail["type"] == "extra_forbidden":
            self.unknown(place, what, str(detail["loc"][-1]), [*kind.model_fields])
            return
        given: object = detail["input"]
        message = detail["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
        is_short = isinstance(given, (str, int, float)) or given is None
        self.add(place, f"{given!r} is not allowed: it must be {message}" if is_short else message)


def joined(path: str, *parts: str | int) -> str:
    """Return the path of a part of *path*.

    >>> joined("hooks.pre_llm", 0, "type")
    'hooks.pre_llm[0].type'
    """
    for part in parts:
        path = f"{path}[{part}]" if isinstance(part, int) else f"{path}.{part}" if path else part
    return path


# The kinds of values in documents.


def _no_truth(value: Any) -> Any:
    """Refuse true and false for a number: Python would take them for 1 and 0."""
    if isinstance(value, bool):
        raise ValueError("a number, not true or false")  # noqa: TRY004 - pydantic makes problems of a ValueError
    return value


Count = Annotated[int, BeforeValidator(_no_truth), Field(ge=1)]
"""A whole number above 0, or a text that spells one, as OpenSearch accepts it."""

CountOrNone = Annotated[int, BeforeValidator(_no_truth), Field(ge=0)]
"""A whole number from 0 on."""

Share = Annotated[float, BeforeValidator(_no_truth), Field(gt=0, le=1, allow_inf_nan=False)]
"""A share of the window: above 0, at most 1."""

SummaryRatio = Annotated[float, BeforeValidator(_no_truth), Field(ge=0.1, le=0.8, allow_inf_nan=False)]
"""From 0.1 to 0.8, as OpenSearch and Strands document it."""


class DocumentObject(BaseModel):
    """An object in a document: frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    def spelled(self) -> dict[str, Any]:
        """Return the given keys, as JSON values."""
        return self.model_dump(mode="json", exclude_unset=True)


# Activation rules: when a manager runs at its hook.
#
# All rules of an entry must be met; no rule means always. A rule that cannot be read is never met: OpenSearch drops a
# misspelt rule, and its manager then runs at every call.


_WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "message_count_exceed": "when there are more than {:,} messages",
        "tokens_exceed": "when the context takes more than {:,} tokens",
        "tokens_exceed_ratio": "when it takes more than {:.0%} of the window",
    }
)


class Activation(DocumentObject):
    """When a manager runs. Source: OpenSearch for the first three rules; the last one is ours.

    Attributes:
        rule_type: ``"always"``, which also holds without any rule.
        message_count_exceed: More messages than this, without system messages and summaries.
        tokens_exceed: More tokens of the whole context: system prompt, tools, history and newest results.
        tokens_exceed_ratio: More than this share of the window.
    """

    rule_type: Literal["always"] | None = None
    message_count_exceed: Count | None = None
    tokens_exceed: Count | None = None
    tokens_exceed_ratio: Share | None = None

    def verdict(self, context: ContextView) -> tuple[bool, str]:
        """Return whether all rules are met, and the first unmet rule, or all, with the compared numbers."""
        met: list[str] = []
        for is_met, words in self._compared(context):
            if not is_met:
                return False, words
            met.append(words)
        return True, "; ".join(met) or "always"

    def in_words(self) -> str:
        """Return the rules in words that follow "runs"."""
        parts = [words.format(limit) for name, words in _WORDS.items() if (limit := getattr(self, name)) is not None]
        return " and ".join(parts) or "always"

    def _compared(self, context: ContextView) -> Iterator[tuple[bool, str]]:
        if self.message_count_exceed is not None:
            yield _exceeds(context.message_count, self.message_count_exceed, "messages")
        if self.tokens_exceed is not None:
            yield _exceeds(context.tokens, self.tokens_exceed, "tokens")
        if self.tokens_exceed_ratio is not None:
            yield _exceeds(context.tokens, int(self.tokens_exceed_ratio * context.size), "tokens")


def _exceeds(found: int, limit: int, what: str) -> tuple[bool, str]:
    is_more = found > limit
    return is_more, f"{found:,} {what}, {'more' if is_more else 'not more'} than {limit:,}"


# Where a conversation may be cut, and which messages are reinserted.
#
# No call is parted from its result, even if ids repeat or are missing. System messages, pins and the user's newest
# message are never lost, and the context is never empty.


class LegalCuts:
    """Where a context may be cut. It is computed once, since a manager compares many cuts.

    Attributes:
        cuts: How many of the oldest messages may be archived, such that at least one is not reinserted, best first:
            ascending those that keep all calls without a result, then those that keep only the newest turn's.
        prefix: Positions in the prefix of the messages that stay there.
    """

    def __init__(self, context: ContextView) -> None:
        """Read *context*."""
        self._views = views = context.views
        preserved = set(closed(views, _preserved(context.messages)))
        current = context.current_user()
        self._protected = closed(views, preserved if current is None else (*preserved, current))
        passing = [held.is_counted and at not in preserved for at, held in enumerate(context.messages)]
        protected = set(self._protected)
        again = [is_passing and at in protected for at, is_passing in enumerate(passing)]
        self._passing, self._again = [0, *accumulate(passing)], [0, *accumulate(again)]
        prefix = [held.message for held in context.prefix]
        lasting = closed(prefix, _preserved(context.prefix))
        self.prefix = closed(prefix, (*lasting, *_current_in_prefix(context)))
        self._passing_head = len(self.prefix) - len(lasting)
        self.cuts = [cut for cut in _cuts(views) if self.removed_count(cut)]

    def reinserted(self, cut: int) -> tuple[int, ...]:
        """Return the positions before *cut*, ascending, of the messages that are reinserted."""
        return self._protected[: bisect_left(self._protected, cut)]

    def closed_with(self, positions: Iterable[int], cut: int) -> tuple[int, ...]:
        """Return `reinserted` with *positions* and all that belongs to them."""
        return closed(self._views, (*self.reinserted(cut), *positions))

    def removed_count(self, cut: int) -> int:
        """Return how many messages before *cut* are not reinserted."""
        return cut - len(self.reinserted(cut))

    def kept_count(self, cut: int) -> int:
        """Return how many messages *cut* keeps, without those that are always preserved."""
        return self._passing_head + self._again[cut] + self._passing[-1] - self._passing[cut]


def closed(messages: Sequence[Message], positions: Iterable[int]) -> tuple[int, ...]:
    """Return *positions*, ascending, with those of all calls and results that belong to one of them.

    A result without its call is an orphan, and a call without its result waits forever, so a group stays together.
    """
    found = set(positions)
    spans = pair_spans(messages)
    is_growing = bool(found)
    while is_growing:
        joined = {end for span in spans if found.intersection(span) for end in span}
        is_growing = not joined <= found
        found |= joined
    return tuple(sorted(found))


def _preserved(messages: Sequence[ContextMessage]) -> Iterator[int]:
    """Yield the positions of messages that are always preserved: system messages, pins and summaries."""
    return (at for at, held in enumerate(messages) if held.pinned or not held.is_counted)


def _current_in_prefix(context: ContextView) -> tuple[int, ...]:
    """Return the position of the user's newest message in the prefix; empty if a newer one follows the prefix.

    Such a message was kept because it was the newest; with a newer one it goes, together with its group.
    """
    spoken = [at for at, held in enumerate(context.prefix) if held.is_spoken_by_user]
    return tuple(spoken[-1:]) if context.current_user() is None else ()


def _cuts(views: Sequence[Message]) -> Iterator[int]:
    """Yield legal cuts. If one would put an orphaned result first that may also be archived, the next cut replaces it.

    A call that waits for its result is kept, with all messages behind it. If it is not of the newest turn, the result
    will hardly come; but such a cut is only the second best.
    """
    held = legal_cuts(views)
    speaker = max((at for at, view in enumerate(views) if view.role == "assistant"), default=0)
    others = [cut for cut in legal_cuts(views, hold_pending=False) if cut <= speaker]
    paired = {end for _, end in pair_spans(views)}
    orphans = {at for at, view in enumerate(views) if view.role == "tool" and at not in paired}
    for cuts in (held, sorted(set(others) - set(held))):
        allowed = set(cuts)
        yield from (cut for cut in cuts if cut not in orphans or cut + 1 not in allowed)


# Stubs of the texts that managers replace.


_CUT: Final = re.compile(r"\n\[truncated[^\n]*\]$")


@dataclass(frozen=True, slots=True)
class TruncatedStub:
    """The first characters of a text with a notice behind them, *max_chars* together.

    (OpenSearch adds its notice on top: its cut to 90 characters has 146.)
    """

    max_chars: int

    def __call__(self, text: str, stored: StoredResult | None, counter: TextCounter) -> str:
        """Return the beginning of *text* and a notice.

        The notice is the longest one that names the whole and leaves half of the limit to the text, else the shortest
        one that names it. If none fits, the notice only says that something is missing.
        """
        del counter
        naming: list[str] = []
        others = [TRUNCATION_MARKER, f"\n[truncated: {len(text):,} characters]", "\n[truncated]", "…"]
        if stored is not None and stored.reference:
            size = _whole_size(text, stored)
            whole = f"\n[truncated: the whole output{size and f' has {size} and'} is in {stored.reference}]"
            naming = [whole, f"\n[truncated, whole: {stored.reference}]"]
            naming += [f"\n[truncated: {stored.name}]"] if stored.name else []
            others = ["\n[truncated]", "…"]
        preferred: list[str] = []
        for notices in (naming, others):
            preferred += [notice for notice in notices if 2 * len(notice) <= self.max_chars] + notices[::-1]
        notice = next((notice for notice in preferred if len(notice) <= self.max_chars), "")
        end = self.max_chars - len(notice)
        if 0 < end < len(text) and "\ud800" <= text[end - 1] <= "\udbff" and "\udc00" <= text[end] <= "\udfff":
            end -= 1  # the cut would part a surrogate pair
        return text[:end] + notice


@dataclass(frozen=True, slots=True)
class MaskStub:
    """One line that says which result was here, if the *tool* is known of which one, and where it is."""

    tool: str = ""

    def __call__(self, text: str, stored: StoredResult | None, counter: TextCounter) -> str:
        """Return the line."""
        del counter
        what = f"Older result of {self.tool}" if self.tool else "Older tool result"
        where = f" It stands in {stored.view or stored.reference}" if stored and stored.reference else ""
        return f"[{what} left out: {len(text):,} characters.{where}]"


def _whole_size(text: str, stored: StoredResult) -> str:
    """Return the size of the stored result in words; empty if not known, since *text* may have been cut before."""
    if not stored.parts:
        return "" if _CUT.search(text) else f"{len(text):,} characters"
    size_bytes = sum(part.size_bytes for part in stored.parts if part.kind in ("text", "json"))
    is_whole = len(text.encode("utf-8", "surrogatepass")) >= size_bytes
    return f"{len(text):,} characters" if is_whole else f"{size_bytes:,} bytes"


if TYPE_CHECKING:
    _beginning: StubWriter = TruncatedStub(1)
    _mask: StubWriter = MaskStub()
