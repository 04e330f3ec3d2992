"""What a session holds, and what its model saw at each call, from the files on disk."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from buoyline.errors import NotFoundError
from buoyline.messages import Message, Text
from buoyline.messages.registry import stored_view
from buoyline.offloader.transcript import render
from buoyline.window.records import dialect_of
from buoyline.workspace import layout
from buoyline.workspace.session import Session
from buoyline.workspace.state import ContextRecord, LoggedMessage, line_of


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
