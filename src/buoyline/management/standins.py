"""What stays in a context for text that a manager took out of it. Pure."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from buoyline.offloader import TRUNCATION_MARKER, StoredResult, stub, truncated
from buoyline.tokens import TextCounter

if TYPE_CHECKING:
    from buoyline.management.steps import StandIn

_CUT: Final = re.compile(r"\n\[truncated[^\n]*\]$")


@dataclass(frozen=True, slots=True)
class Beginning:
    """The first characters of a text, and a notice behind them; all of it no longer than a limit.

    Attributes:
        max_chars: Of both together. (OpenSearch adds its notice on top, so that what it cuts to 90 characters has 146.)
    """

    max_chars: int

    def __call__(self, text: str, stored: StoredResult | None, counter: TextCounter) -> str:
        """Return the beginning of *text*, and a notice behind it.

        The notice is the longest that leads to the whole and leaves half of the limit to the text, else the shortest
        that leads there at all; only if none does, it says no more than that something is missing.
        """
        del counter
        leading, others = _leading_notices(text, stored), _other_notices(text, stored)
        preferred = [notice for notice in leading if 2 * len(notice) <= self.max_chars] + leading[::-1]
        preferred += [notice for notice in others if 2 * len(notice) <= self.max_chars] + others[::-1]
        notice = next((notice for notice in preferred if len(notice) <= self.max_chars), "")
        return _head(text, self.max_chars - len(notice)) + notice


@dataclass(frozen=True, slots=True)
class Preview:
    """A stub: notice, size, path, and a preview that reads the content.

    Attributes:
        max_tokens: Of the whole stub.
    """

    max_tokens: int

    def __call__(self, text: str, stored: StoredResult | None, counter: TextCounter) -> str:
        """Return the stub; without a place where the whole is, the beginning with the documented marker."""
        return (
            truncated(text, self.max_tokens, counter)
            if stored is None
            else stub(text, stored, self.max_tokens, counter)
        )


@dataclass(frozen=True, slots=True)
class Mask:
    """One line that says what was here and where it is.

    Attributes:
        tool: The tool's name; empty where it is not known.
    """

    tool: str = ""

    def __call__(self, text: str, stored: StoredResult | None, counter: TextCounter) -> str:
        """Return the line."""
        del counter
        what = f"Older result of {self.tool}" if self.tool else "Older tool result"
        where = f" It stands in {stored.view or stored.reference}" if stored and stored.reference else ""
        return f"[{what} left out: {len(text):,} characters.{where}]"


def _leading_notices(text: str, stored: StoredResult | None) -> list[str]:
    """Return notices that say where the whole is, in fewer and fewer characters."""
    if stored is None or not stored.reference:
        return []
    size = _whole_size(text, stored)
    whole = f"\n[truncated: the whole output{size and f' has {size} and'} is in {stored.reference}]"
    notices = [whole, f"\n[truncated, whole: {stored.reference}]"]
    return [*notices, f"\n[truncated: {stored.name}]"] if stored.name else notices


def _other_notices(text: str, stored: StoredResult | None) -> list[str]:
    if stored is not None and stored.reference:
        return ["\n[truncated]", "…"]
    return [TRUNCATION_MARKER, f"\n[truncated: {len(text):,} characters]", "\n[truncated]", "…"]


def _whole_size(text: str, stored: StoredResult) -> str:
    """Return how large the stored result is, in words; ``""`` if nobody knows: *text* may have been cut before."""
    if not stored.parts:
        return "" if _CUT.search(text) else f"{len(text):,} characters"
    size_bytes = sum(part.size_bytes for part in stored.parts if part.kind in ("text", "json"))
    is_whole = len(text.encode("utf-8", "surrogatepass")) >= size_bytes
    return f"{len(text):,} characters" if is_whole else f"{size_bytes:,} bytes"


def _head(text: str, chars: int) -> str:
    """Return the first *chars* characters, or one fewer where that would part a surrogate pair."""
    is_parted = (
        0 < chars < len(text) and "\ud800" <= text[chars - 1] <= "\udbff" and "\udc00" <= text[chars] <= "\udfff"
    )
    return text[: chars - is_parted]


if TYPE_CHECKING:
    _beginning: StandIn = Beginning(1)
    _preview: StandIn = Preview(1)
    _mask: StandIn = Mask()
