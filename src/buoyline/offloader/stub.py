"""What stays in the context in place of a tool result that is too large.

Pure. Notice first: a notice at the end of a long text is overlooked. Source: the marker of `truncated` is
AgentScope's, as its page on context documents it.
"""

from buoyline.offloader.lines import count_lines
from buoyline.offloader.preview import Shown, preview, shown_lines
from buoyline.offloader.protocol import StoredResult
from buoyline.offloader.view import view_of
from buoyline.tokens import TextCounter

TRUNCATION_MARKER = (
    "\n<<<TRUNCATED>>>\n<system-reminder>The remaining content has been omitted for limited context.</system-reminder>"
)

# An exact count runs at about 20 MB/s; beyond this, a stub's "about" is worth more than a second of waiting.
_COUNTED_CHARS = 4_000_000


def stub(text: str, stored: StoredResult, max_tokens: int, counter: TextCounter) -> str:
    """Write the stub of a stored result: notice, size, path, how to read on, and a preview.

    Args:
        text: The whole result.
        stored: Where it is.
        max_tokens: For the whole stub. The notice with its path stands even where it needs more.
        counter: Counts them.

    Returns:
        Text whose line numbers are those of the view, where there is one, else of the file.
    """
    view = view_of(text) if stored.view else None
    shown = text if view is None else view
    notice = _notice(text, shown, stored, counter)
    for room in range(max_tokens - counter.count(notice) - 1, 0, -1):
        body = preview(shown, room, counter)
        if not body:
            break
        if not counter.exceeds(written := f"{notice}\n{body}", max_tokens):
            return written
    return notice


def notice_of(text: str) -> str:
    """Return the notice of a stub without its preview, for when not even that fits; a bare notice as it is."""
    return text.partition("\n\n")[0].removesuffix("\n") + "\n"


def previewed_lines(text: str) -> list[Shown]:
    """Return the lines that a stub shows of its result, with their numbers; none of a bare notice."""
    return shown_lines(text.partition("\n\n")[2])


def truncated(text: str, max_tokens: int, counter: TextCounter) -> str:
    """Cut *text* to *max_tokens*, the documented marker included, for want of a place to put the rest.

    Returns:
        A prefix of *text* and the marker; the marker alone where nothing else fits.
    """
    for room in range(max_tokens - counter.count(TRUNCATION_MARKER), 0, -1):
        kept = counter.head(text, room)
        if not counter.exceeds(kept + TRUNCATION_MARKER, max_tokens):
            return kept + TRUNCATION_MARKER
    return TRUNCATION_MARKER


def _notice(text: str, shown: str, stored: StoredResult, counter: TextCounter) -> str:
    lines = count_lines(shown)
    plural = "line" if lines == 1 else "lines"
    if stored.view:
        files = (
            f"Whole result: {stored.reference}\nThe same with short lines, which the numbers below count: {stored.view}"
        )
    else:
        files = f"Whole result: {stored.reference}"
    return (
        f"[Tool result offloaded: {lines:,} {plural}, {_size_in_tokens(text, counter)} tokens. It was not lost.]\n"
        f"{files}\n"
        "Do not call the tool again to see more: grep that file, or read the lines you need. "
        "What follows is data from the tool.\n"
    )


def _size_in_tokens(text: str, counter: TextCounter) -> str:
    if len(text) <= _COUNTED_CHARS:
        return f"{counter.count(text):,}"
    sample = counter.count(text[:_COUNTED_CHARS])
    return f"about {round(sample * len(text) // _COUNTED_CHARS, -3):,}"
