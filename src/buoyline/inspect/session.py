"""What a session holds, what its model saw at each call, and what a compaction changed."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from buoyline.compression import Pointer
from buoyline.compression.text import POINTER
from buoyline.errors import NotFoundError
from buoyline.lookups.answer import merged, numbered, whole_lines
from buoyline.messages import Message, Text
from buoyline.messages.registry import stored_view
from buoyline.offloader.transcript import render
from buoyline.tokens import default_counter
from buoyline.tokens.counter import count_message
from buoyline.window.records import dialect_of
from buoyline.workspace import Workspace, layout
from buoyline.workspace.session import Session
from buoyline.workspace.state import ContextRecord, LoggedMessage, Range, line_of


@dataclass(frozen=True, slots=True)
class Inventory:
    """The numbers of a session, under the keys of ``buoyline show --json``.

    *created* is ISO 8601 in UTC, or empty. *in_context* counts no summary. *files* have their names within *directory*
    and their sizes, with those in ``torn/``.
    """

    id: str
    directory: str
    created: str
    messages: int
    archived: int
    in_context: int
    has_summary: bool
    tool_results: int
    summaries: int
    bytes: int
    files: tuple[tuple[str, int], ...]


def inventory_of(session: Session) -> Inventory:
    """Count the content of a loaded session."""
    state = session.state
    files = [*_files(session, ""), *_files(session, f"{layout.TORN}/")]
    in_context = len(shown_numbers(state.context, state.end)) if state.claim else 0
    return Inventory(
        id=session.session_id,
        directory=session.name,
        created=next((str(record.facts.get("time", "")) for record in session.records()), ""),
        messages=state.end,
        archived=len(state.places) if state.claim else state.end,
        in_context=in_context,
        has_summary=state.context is not None and state.context.summary is not None,
        tool_results=sum(layout.is_result_name(name) for name, _ in files),
        summaries=len(session.summaries()),
        bytes=sum(size for _, size in files),
        files=tuple(files),
    )


def _files(session: Session, below: str) -> Iterator[tuple[str, int]]:
    for name in session.disk.entries(f"{session.name}/{below}".rstrip("/")):
        found = session.disk.status(f"{session.name}/{below}{name}")
        if found is not None and found.is_file:
            yield f"{below}{name}", found.size


def shown_numbers(record: ContextRecord | None, end: int) -> list[int]:
    """Return the numbers of the messages in a context: system messages and pins first, without the summary."""
    if record is None:
        return [*range(end)]
    conversation = [*chain.from_iterable(range(first, last) for first, last in record.ranges)]
    return [*record.systems, *record.pins, *conversation[record.until :], *range(record.end, end)]


def messages_of(session: Session, *, is_whole: bool = False) -> list[tuple[str, Any]]:
    """Return dialect and JSON value of the messages in the context, the summary first; or of all messages."""
    context = session.state.context
    numbers = (
        range(session.state.end) if is_whole or session.state.is_plain else shown_numbers(context, session.state.end)
    )
    found = [(dialect_of(line), session.with_payloads(line)) for line in session.read(numbers)]
    if not is_whole and context is not None and (text := _stands_for(session, context)):
        found.insert(len(context.systems), ("openai", {"role": "user", "content": text}))
    return found


def _stands_for(session: Session, context: ContextRecord) -> str:
    """Return the text in place of archived messages: the notice, then the summary."""
    texts = {summary["n"]: str(summary.get("text", "")) for summary in session.summaries()}
    summary = "" if context.summary is None else texts.get(context.summary, "")
    return "\n\n".join(filter(None, (context.notice, summary)))


def messages_in_words(session: Session, first: int, end: int) -> list[tuple[int, list[str]]]:
    """Return number and lines of messages, as the transcript shows them.

    Raises:
        NotFoundError: The session has fewer messages.
    """
    if end > session.state.end:
        numbers = f"its messages are 0-{session.state.end - 1}" if session.state.end else "it has no messages"
        raise NotFoundError("messages", f"{first}-{end - 1}", f"session {session.session_id!r}: {numbers}")
    return _in_words(session.read(range(first, end)))


def _in_words(lines: Sequence[LoggedMessage]) -> list[tuple[int, list[str]]]:
    found = list[tuple[int, list[str]]]()
    for line in lines:
        (text,) = render([_view(line)], line.number, [line.time], lambda _: None)
        found.append((line.number, text))
    return found


def _view(line: LoggedMessage) -> Message:
    return stored_view(line.value, line.dialect)


def request_in_words(session: Session, call: int) -> list[str]:
    """Return what the model saw at call number *call*, counted from 1, as lines.

    Raises:
        NotFoundError: There were fewer calls.
    """
    said = {line.number: line for line in session.lines()}
    views = {number: _view(line_of(line, None, ())) for number, line in said.items()}
    answers = [number for number, view in views.items() if view.role == "assistant"]
    if not 1 <= call <= len(answers):
        raise NotFoundError("call", str(call), f"session {session.session_id!r} has {len(answers)}")
    answer = answers[call - 1]
    before = [record for record in session.records() if record.facts.get("end", 0) <= answer]
    contexts = [record for record in before if record.value.get("op") == "context"]
    context = ContextRecord.from_json(contexts[-1].value, contexts[-1].facts) if contexts else None
    for record in before:
        if record.value.get("op") == "form":
            line = said[record.facts["number"]]
            views[line.number] = _view(line_of(line, record, ()))
    lines = list[str]()
    if context is not None:
        stands = Message("user", (Text(_stands_for(session, context)),))
        lines += chain.from_iterable(render([stands], 0, ["in place of what left"], lambda _: None))
    for number in shown_numbers(context, answer):
        time = said[number].facts.get("time", "")
        lines += chain.from_iterable(render([views[number]], number, [time], lambda _: None))
    return lines


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
        stayed: The messages after the summary.
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
