"""`read`: lines of a file, or the files of a session."""

import sys
from collections.abc import Iterator, Sequence
from functools import partial

from buoyline.errors import ConfigError
from buoyline.lookups.answer import (
    DATA_LABEL,
    Answer,
    AnswerRow,
    Counter,
    Frame,
    Line,
    Ranges,
    count_lines,
    fitted,
    merged,
    numbered,
    shown,
)
from buoyline.lookups.sources import ALL_LINES, Sources, directory_at, resolve
from buoyline.workspace import layout
from buoyline.workspace.workspace import Workspace


def read(
    workspace: Workspace,
    path: str,
    start: int = 1,
    end: int | None = None,
    *,
    session: str | None = None,
    live: bool = False,
    max_tokens: int = 2_000,
    counter: Counter | None = None,
) -> Answer:
    """Read lines of a file; of a directory, the names and sizes of what is in it.

    *path* is a path, a plain name, the id of a call, or a citation: ``transcript.md:120-135,141`` are these lines,
    ``transcript.md:-60`` the last 60, and ``summaries.jsonl:3`` is the text of a summary. *start* and *end* narrow
    them; a negative *start* counts from the end. For the other arguments see `buoyline.lookups`.

    Raises:
        ConfigError: *start* to *end* are no lines of the file, or *max_tokens* is under 200.
        NotFoundError: There is no such file or session, or several files have the name.
        StorageError: The file cannot be read.
    """
    sources = Sources(workspace, session, live=live)
    directory = directory_at(sources, path)
    if directory is None:
        name, ranges = resolve(sources, path)
        blocks = partial(sources.blocks, name)
    else:
        name, ranges = directory or layout.SESSIONS, ALL_LINES
        blocks = partial(_listing, sources, directory)
    total = count_lines(blocks())
    if not total:
        return Answer(_description(sources, name))
    first = max(total + start + 1, 1) if start < 0 else start
    last = total if end is None else min(end, total)
    if not 1 <= first <= last:
        raise ConfigError("start", f"{start} to {end or total} are no lines of {name}, which has {total:,}")
    wanted = _within(ranges, first, last)
    if not wanted:
        raise ConfigError("start", f"{path[:200]!r} names none of the lines {first:,} to {last:,}")

    def frame(rows: Sequence[AnswerRow]) -> Frame:
        newest = rows[-1].lines[-1].number if rows else first - 1
        heading = f"[{name}, lines {wanted[0][0]}-{newest} of {total}. {DATA_LABEL}]\n"
        return Frame(heading, {"start": newest + 1} if newest < wanted[-1][1] else {})

    return fitted(_rows(name, numbered(blocks(), wanted)), frame, total=total, max_tokens=max_tokens, counter=counter)


def _rows(name: str, lines: Iterator[tuple[int, str]]) -> Iterator[AnswerRow]:
    for number, content in lines:
        line = Line(name, number, shown(content))
        yield AnswerRow(f"{number}\t{line.text}\n", (line,))


def _within(ranges: Ranges, first: int, last: int) -> Ranges:
    spans = ((max(begin, first), min(end, last)) for begin, end in ranges)
    return merged((begin, end) for begin, end in spans if begin <= end)


def _listing(sources: Sources, directory: str) -> Iterator[bytes]:
    """Yield the texts of a session with their sizes, one a line; without a directory the sessions."""
    if not directory:
        yield from (f"{each}/\n".encode() for each in sources.directories)
        return
    for name in [*sources.names(directory), *(sources.blobs() if sources.session_id is not None else ())]:
        _, tool = sources.heading(name, sys.maxsize)
        facts = (name.removeprefix(f"{directory}/"), f"{sources.size(name) or 0:,} bytes", tool)
        yield f"{', '.join(filter(None, facts))}\n".encode()


def _description(sources: Sources, name: str) -> str:
    size = sources.size(name)
    if size is None:
        return f"[{name}: nothing is there. {DATA_LABEL}]\n"
    kind = layout.media_type_of(name) if name.startswith(f"{layout.DATA}/") else "no text"
    return f"[{name}: {kind}, {size:,} bytes. {DATA_LABEL}]\n"
