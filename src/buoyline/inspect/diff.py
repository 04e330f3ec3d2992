"""Shows what a model saw before and after a compaction, from the files on disk."""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from buoyline.compression import Pointer
from buoyline.compression.pointers import POINTER
from buoyline.errors import NotFoundError
from buoyline.lookups.text import merged, numbered, whole_lines
from buoyline.messages import Message
from buoyline.messages.registry import stored_view
from buoyline.tokens import default_counter
from buoyline.tokens.messages import count_message
from buoyline.workspace import Workspace, layout
from buoyline.workspace.session import Session
from buoyline.workspace.state import ContextRecord, Range

_BEGIN_CHARS = 100
_FIRST_CHARS = 120
_FIRST_LINES = 6
"""So many lines of a citation are searched for words: a heading, a blank line and a call come first."""

_AROUND = " \t-*,;.·"


@dataclass(frozen=True, slots=True)
class Citation:
    """Lines of a file in the session's directory, 1-based and inclusive; *begins* has their first words."""

    path: str
    start: int
    end: int
    begins: str
    is_there: bool


@dataclass(frozen=True, slots=True)
class Sentence:
    """A part of a summary, without its citations and with the lines that they name."""

    field: str
    text: str
    citations: tuple[Citation, ...]


@dataclass(frozen=True, slots=True)
class SeenMessage:
    """A message as the model last saw it.

    Attributes:
        lines: First and last line in ``transcript.md``; None if it is not archived.
        offloaded: Names of the files of its offloaded results.
    """

    message: int
    role: str
    tool: str
    tokens: int
    lines: Range | None
    begins: str
    offloaded: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """The changes of a compaction. The names of the fields are the keys of ``buoyline diff --json``.

    Attributes:
        summary: The line of ``summaries.jsonl`` that stands for what left; empty if a notice does.
        head: Archived system messages and pins, which are in the context, too.
        left: The messages that were archived, in order.
        stayed: The messages behind the summary.
    """

    session_id: str
    number: int
    summary: Mapping[str, Any]
    head: tuple[SeenMessage, ...]
    left: tuple[SeenMessage, ...]
    stayed: tuple[SeenMessage, ...]
    sentences: tuple[Sentence, ...]


def compactions(session: Session) -> list[ContextRecord]:
    """Return the records of a session that archived messages, in order."""
    found = (line for line in session.records() if line.raw.startswith(b'{"op":"context"'))
    records = (ContextRecord.from_json(line.value, line.facts) for line in found)
    return [record for record in records if record.left]


def difference(workspace: Workspace, session_id: str, number: int) -> Difference:
    """Return the changes of compaction *number*, counted from 1, of a session. Blocks; reads only.

    Tokens are those of the default counter; the session's window may have used another.

    Raises:
        NotFoundError: There is no such session or compaction.
        CorruptError: A file is not as it was written.
    """
    session = workspace.stored(session_id)
    records = compactions(session)
    if not 1 <= number <= len(records):
        raise NotFoundError("compaction", str(number), f"session {session_id!r} has {len(records)}")
    record = records[number - 1]
    summaries = {summary["n"]: summary for summary in session.summaries()}
    summary: dict[str, Any] = {} if record.summary is None else summaries.get(record.summary, {})
    written: dict[str, Any] = summary.get("fields") or {}
    fields = {name: str(text) for name, text in written.items()}
    return Difference(
        session_id=session_id,
        number=number,
        summary=summary,
        head=_seen(session, (*record.systems, *record.pins)),
        left=_seen(session, _numbers(record.left)),
        stayed=_seen(session, [*_numbers(record.ranges)][record.until :]),
        sentences=tuple(_with_lines(cited_sentences(fields), session)),
    )


def _numbers(ranges: Iterable[Range]) -> Iterator[int]:
    return itertools.chain.from_iterable(range(first, end) for first, end in ranges)


def _seen(session: Session, numbers: Iterable[int]) -> tuple[SeenMessage, ...]:
    tools: dict[str, str] = {}
    found = list[SeenMessage]()
    for line in session.read(numbers):
        view = stored_view(session.with_payloads(line), line.dialect)  # images count by size
        tools.update((call.call_id, call.name) for call in view.calls)
        results = (result.name or tools.get(result.call_id, "") for result in view.results)
        place = session.state.places.get(line.number)
        seen = SeenMessage(
            message=line.number,
            role=view.role,
            tool=", ".join(dict.fromkeys(filter(None, (*(call.name for call in view.calls), *results)))),
            tokens=count_message(view, default_counter()),
            lines=None if place is None else (place[0], place[1] - 1),
            begins=_beginning(view),
            offloaded=tuple(files[0].name for files in line.stored.values()),
        )
        found.append(seen)
    return tuple(found)


def _beginning(view: Message) -> str:
    """Return the first words of a message: its own, those of its first result, or the arguments of its first call."""
    said = [view.text, *(result.text for result in view.results), *(call.arguments for call in view.calls)]
    text = next(filter(None, (" ".join(text[: 4 * _BEGIN_CHARS].split()) for text in said)), "")
    return text if len(text) <= _BEGIN_CHARS else f"{text[:_BEGIN_CHARS]}…"


# The sentences of a summary.


def cited_sentences(fields: Mapping[str, str]) -> list[tuple[str, str, tuple[Pointer, ...]]]:
    """Return field, text and citations of each sentence of a summary, in order. Pure.

    A sentence ends with its last citation, or with its line.
    """
    found: list[tuple[str, str, tuple[Pointer, ...]]] = []
    for name, line in [(name, line) for name, text in fields.items() for line in text.split("\n")]:
        said, cited, position = "", list[Pointer](), 0
        for match in POINTER.finditer(line):
            between = line[position : match.start()].strip(_AROUND)
            if between and cited:
                found.append((name, said, tuple(cited)))
                cited = []
            said, position = between or said, match.end()
            cited.extend(Pointer.all_of(match))
        rest = line[position:].strip(_AROUND)
        if cited:
            found.append((name, said, tuple(cited)))
        if rest:
            found.append((name, rest, ()))
    return found


def _with_lines(sentences: list[tuple[str, str, tuple[Pointer, ...]]], session: Session) -> Iterator[Sentence]:
    """Look up the lines that each sentence cites; every file is read once.

    Only the transcript, results and views are opened, whatever a summary says.
    """
    wanted = sorted({pointer for _, _, cited in sentences for pointer in cited})
    found: dict[Pointer, Citation] = {}
    for path, pointers in itertools.groupby(wanted, key=lambda pointer: pointer.path):
        group = list(pointers)
        lines = _lines(session, path, group)
        for pointer in group:
            begins = _first_words(lines, pointer)
            found[pointer] = Citation(path, pointer.start, pointer.end, begins or "", begins is not None)
    for name, said, cited in sentences:
        yield Sentence(name, said, tuple(found[pointer] for pointer in cited))


def _lines(session: Session, path: str, pointers: Iterable[Pointer]) -> dict[int, str]:
    name = f"{session.name}/{path}"
    is_citable = path == layout.TRANSCRIPT or layout.is_stored_name(path)
    if "/" in path or not is_citable or session.disk.status(name) is None:
        return {}
    firsts = ((each.start, min(each.end, each.start + _FIRST_LINES - 1)) for each in pointers)
    ranges = merged((*firsts, *((each.end, each.end) for each in pointers)))
    return dict(numbered(whole_lines(session.disk.chunks(name)), ranges))


def _first_words(lines: Mapping[int, str], pointer: Pointer) -> str | None:
    """Return the first words of its own in a citation, not of a heading; None if a line of it does not exist."""
    if not 1 <= pointer.start <= pointer.end or pointer.end not in lines:
        return None
    near = range(pointer.start, min(pointer.end, pointer.start + _FIRST_LINES - 1) + 1)
    shown = [text for line in near if (text := lines.get(line, "")[:_FIRST_CHARS].strip())]
    words = (text for text in shown if not text.startswith("#") and text != "(reasoning)")
    return next(words, next(iter(shown), ""))
