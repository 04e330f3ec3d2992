"""``buoyline state``."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import click

from buoyline.cli.options import existing_workspace, json_option, workdir_option
from buoyline.cli.output import columns, counted, cut, print_answer, terminal_width
from buoyline.compression.extractive.work import work_of
from buoyline.compression.pointers import Pointer
from buoyline.compression.summary import ResultExcerpt, SourceMessage
from buoyline.compression.work_state import PlanItem, WorkState, work_state_from
from buoyline.errors import NotFoundError
from buoyline.messages import Message, ToolResult
from buoyline.messages.registry import dialect_named
from buoyline.workspace import LocalWorkspace, StoredSession, layout
from buoyline.workspace.index import Index

_COLOURS: Final = {"passes": "green", "fails": "red", "open": "yellow", "deleted": "red", "created": "green"}
_SHOWN: Final = 20
_CHARS: Final = 161


@click.command("state")
@click.argument("session")
@click.option("--full", is_flag=True, help="All entries, also files that were only read, and every text as a whole.")
@workdir_option
@json_option
def state_command(session: str, workdir: Path, *, full: bool, as_json: bool) -> None:
    """Show where the work of SESSION is: files, checks, plan and more.

    The state is read from calls and their results: the files changed, the last outcome of each check, version control,
    the plan, the user's list of requests, what is waited for, and questions to the user. It begins with the state of
    the last summary, and the messages since are added. Each entry names lines that show it, which `buoyline read`
    prints; messages that are still in the context have none. Nothing is written.

    Example: buoyline state s1 --workdir ./workspace
    """
    found = session_work(existing_workspace(workdir), session)
    print_answer(found.to_json(), _in_words(session, found, full=full), _COLOURS, as_json=as_json)


def _in_words(session: str, state: WorkState, *, full: bool) -> Iterator[str]:
    yield f"state of {session} after {counted(state.end, 'message')}"
    changed, read = state.changed_files, [one for one in state.files.values() if one.operation == "read"]
    yield from _table(
        f"files: {len(changed):,} changed, {len(read):,} read",
        ("", "file", "last change", "lines"),
        [(one.operation, one.path, one.edit, _lines(one.pointers)) for one in (*(read if full else ()), *changed)],
        full=full,
    )
    yield from _table(
        counted(len(state.checks), "check"),
        ("", "command", "output", "lines"),
        [
            (
                one.outcome,
                one.command,
                "; ".join(filter(None, (one.line, _stale(state, one.last)))),
                _lines(one.pointers),
            )
            for one in state.checks.values()
        ],
        full=full,
    )
    yield from _repository(state)
    yield from _items("plan", state.plan, full=full)
    yield from _items("requests", state.requested, full=full)
    yield from _table(
        f"waiting for: {len(state.waiting):,}" if state.waiting else "",
        ("", "call", "id", "lines"),
        [(one.kind, one.text, one.key, _lines(one.pointers)) for one in state.waiting],
        full=full,
    )
    answers = ("; ".join(one.chosen) or one.answer for one in state.questions)
    yield from _table(
        f"questions: {len(state.questions):,}, {len(state.open_questions):,} open" if state.questions else "",
        ("", "question", "answer", "lines"),
        [
            ("answered" if one.answer else "open", one.text, answer, _lines(one.pointers))
            for one, answer in zip(state.questions, answers, strict=True)
        ],
        full=full,
    )


def _table(title: str, heading: Sequence[str], rows: Sequence[Sequence[str]], *, full: bool) -> Iterator[str]:
    """Yield the newest rows below a title; nothing without a title."""
    if not title:
        return
    yield ""
    yield title
    shown = rows if full else rows[-_SHOWN:]
    if len(shown) < len(rows):
        yield f"… {len(rows) - len(shown):,} older; --full lists them"
    if shown:
        texts = [[text if full else cut(text, _CHARS) for text in row] for row in shown]
        yield from columns([heading, *texts], terminal_width())


def _items(title: str, items: Sequence[PlanItem], *, full: bool) -> Iterator[str]:
    done = sum(item.is_done for item in items)
    yield from _table(
        f"{title}: {done:,} of {len(items):,} done" if items else "",
        ("", "item", "lines"),
        [(item.status, item.text, _lines(item.pointers)) for item in items],
        full=full,
    )


def _repository(state: WorkState) -> Iterator[str]:
    seen = state.repository
    if not state.has_used_git:
        return
    yield ""
    yield f"version control: {f'branch {seen.branch}' if seen.branch else 'no branch named'}"
    yield from (f"  committed {name} {subject}" for name, subject in seen.commits)
    if seen.pushed:
        yield f"  pushed {seen.pushed}"
    if state.uncommitted:
        yield f"  changed since the last commit: {', '.join(state.uncommitted)}"


def _stale(state: WorkState, last: int) -> str:
    changed = len(state.changed_since(last))
    return f"not run since {counted(changed, 'file')} changed" if changed else ""


def _lines(pointers: Sequence[Pointer]) -> str:
    return ", ".join(f"{one.path}:{one.start}" + (f"-{one.end}" if one.end > one.start else "") for one in pointers)


# The state of the work of a stored session, from its files.


_MAX_RESULT_BYTES = 1_000_000
"""The rest of an offloaded result is not read."""

_RESULT_NAME = re.compile(r"tool_result-[A-Za-z0-9][A-Za-z0-9._~-]{0,127}?\.txt")


def session_work(workspace: LocalWorkspace, session_id: str) -> WorkState:
    """Return where the work of a session is: the state of its last summary, and the messages since. Blocks; reads only.

    Without a summary that has a state, all messages are read. The pointers name lines of files in the session's
    directory; messages that are not archived have none.

    Raises:
        NotFoundError: There is no such session.
        CorruptError: A file is not as it was written.
    """
    session = workspace.session(session_id)
    summaries = session.summaries_with_facts()
    found = summaries[-1].get("work") if summaries else None
    state = WorkState() if found is None else work_state_from(found)
    return work_of(list(_sources(session, state.end)), state)


def _sources(session: StoredSession, first: int) -> Iterator[SourceMessage]:
    """Yield the messages from *first* on: those in the archive, then those in the window."""
    index, end = session.index(), first
    lines = session.transcript_lines(first, index.messages) if first < index.messages else []
    for at, message in enumerate(session.messages(first)):
        start, last = session.line_ranges(message.number, message.number + 1)[0]
        shown = tuple(lines[at]) if at < len(lines) else ()
        pointer = Pointer(layout.TRANSCRIPT_FILE, start, last)
        yield SourceMessage(message.number, message.view, pointer, _excerpts(session, index, message.view), shown)
        end = message.number + 1
    try:
        window = session.window()
    except NotFoundError:
        return
    end = max(end, window.first)
    for number, (name, value) in enumerate(window.messages[len(window.head) + end - window.first :], end):
        view = dialect_named(name).view(dialect_named(name).from_json(value))
        yield SourceMessage(number, view, excerpts=_excerpts(session, index, view))


def _excerpts(session: StoredSession, index: Index, message: Message) -> tuple[ResultExcerpt | None, ...]:
    """Return the files of the offloaded results of *message*; empty if all are whole."""
    excerpts = [_excerpt(session, index, result) for result in message.results]
    return tuple(excerpts) if any(excerpts) else ()


def _excerpt(session: StoredSession, index: Index, result: ToolResult) -> ResultExcerpt | None:
    """Return the content of the file that a stub names; None if *result* is no stub of its call."""
    for name in dict.fromkeys(_RESULT_NAME.findall(result.text)):
        file = layout.result_behind(name) if layout.is_view_name(name) else name
        record = index.results.get(file)
        if record is None or record.get("call_id") != result.call_id:
            continue
        shown = str(record.get("view") or file)
        if session.files.exists(session.name(shown)):
            text = session.files.read(session.name(shown), 0, _MAX_RESULT_BYTES).decode("utf-8", "replace")
            lines = tuple(text.splitlines())
            return ResultExcerpt(shown, tuple(enumerate(lines, 1)), result.text, lines)
    return None
