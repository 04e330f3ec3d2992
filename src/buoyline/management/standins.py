"""What stays in a context for text that a manager took out of it. Pure."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from buoyline.offloader import TRUNCATION_MARKER, StoredResult, stub, truncated
from buoyline.tokens import TextCounter

if TYPE_CHECKING:
    from buoyline.management.steps import StandIn


@dataclass(frozen=True, slots=True)
class Beginning:
    """The first characters of a text, and a notice behind them; all of it no longer than a limit.

    Attributes:
        max_chars: Of both together. (OpenSearch adds its notice on top, so that what it cuts to 90 characters has 146.)
    """

    max_chars: int

    def __call__(self, text: str, stored: StoredResult | None, counter: TextCounter) -> str:
        """Return the beginning of *text*, and the longest notice that leaves half of the room to it, or fits at all."""
        del counter
        notices = _notices(len(text), stored)
        fitting = [notice for notice in notices if 2 * len(notice) <= self.max_chars]
        fitting += [notice for notice in reversed(notices) if len(notice) <= self.max_chars]
        notice = next(iter(fitting), "")
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


def _notices(chars: int, stored: StoredResult | None) -> list[str]:
    """Return notices that say the same in fewer and fewer characters, the most useful first."""
    if stored is None or not stored.reference:
        return [TRUNCATION_MARKER, f"\n[truncated: {chars:,} characters]", "\n[truncated]", "…"]
    whole = f"\n[truncated: the whole output has {chars:,} characters and stands in {stored.reference}]"
    return [whole, f"\n[truncated, whole: {stored.reference}]", "\n[truncated]", "…"]


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
