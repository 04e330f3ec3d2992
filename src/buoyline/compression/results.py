"""Offloaded tool results, read again for the summary: much of what is needed next stands in no preview.

Of all that left a context, results that were too loud for it hold most, and their stubs show a page of each. What the
offloader lets us read in pieces is looked at whole, up to a limit that keeps a compression quick.
"""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from buoyline.compression.excerpts import Excerpt, counted_file
from buoyline.compression.summary import Source, SummaryRequest
from buoyline.errors import NotFoundError
from buoyline.offloader import ResultStreams, StoredResult

MAX_RESULT_CHARS: Final = 400_000
"""So much of one result is looked at, from its start; what its stub shows of the rest is known anyway."""

MAX_CHARS: Final = 4_000_000
"""So much of all results, the newest first: about a million tokens, far more than any window holds beside them."""


_ESCAPE = re.compile(r"\\(?:x[0-9a-f]{2}|u[0-9a-f]{4})")
"""How a view shows what nobody can see: letters that the tool never gave, and that no name begins with."""


async def with_whole_results(
    request: SummaryRequest, streams: ResultStreams | None, session_id: str, stubs: Mapping[str, StoredResult]
) -> SummaryRequest:
    """Return *request* with the lines of the results that its messages hold only stubs of.

    Args:
        request: Its excerpts say which results those are.
        streams: Reads results; None for an offloader that cannot, and then the request stays as it is.
        session_id: Whose results.
        stubs: Text of each stub, and where its result is.

    Returns:
        The request; a result that is gone by now is known from its stub alone.
    """
    if streams is None or not stubs:
        return request
    lines = await asyncio.to_thread(_read, request, streams, session_id, stubs)
    return replace(request, sources=[_with_lines(source, lines) for source in request.sources])


def _read(
    request: SummaryRequest, streams: ResultStreams, session_id: str, stubs: Mapping[str, StoredResult]
) -> dict[str, tuple[str, ...]]:
    """Read the files that excerpts count their lines in, the newest first while there is room."""
    stored_as = {counted_file(stored): stored for stored in stubs.values()}
    found: dict[str, tuple[str, ...]] = {}
    left = MAX_CHARS
    for source in reversed(request.sources):
        for path in (excerpt.path for excerpt in source.excerpts if excerpt is not None):
            if left > 0 and path in stored_as and path not in found:
                text = _head(streams, session_id, stored_as[path], min(left, MAX_RESULT_CHARS))
                left -= len(text)
                if stored_as[path].view:
                    text = _ESCAPE.sub(" ", text)
                found[path] = tuple(line.removesuffix("\r") for line in text.split("\n"))
    return found


def _head(streams: ResultStreams, session_id: str, stored: StoredResult, max_chars: int) -> str:
    """Return the first whole lines of a result; nothing of one that was evicted or removed."""
    try:
        text = next(streams.result_source(session_id, stored).blocks(), "")
    except NotFoundError:
        return ""
    if len(text) <= max_chars:
        return text.removesuffix("\n")
    return text[: text.rfind("\n", 0, max_chars) + 1].removesuffix("\n")


def _with_lines(source: Source, lines: Mapping[str, tuple[str, ...]]) -> Source:
    if not any(excerpt is not None and lines.get(excerpt.path) for excerpt in source.excerpts):
        return source
    return replace(source, excerpts=tuple(_completed(excerpt, lines) for excerpt in source.excerpts))


def _completed(excerpt: Excerpt | None, lines: Mapping[str, tuple[str, ...]]) -> Excerpt | None:
    whole = () if excerpt is None else lines.get(excerpt.path, ())
    return excerpt if excerpt is None or not whole else replace(excerpt, whole=whole)
