"""``buoyline state``."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import click

from buoyline.cli.options import existing_workspace, json_option, workdir_option
from buoyline.cli.output import columns, counted, print_answer, terminal_width
from buoyline.compression.pointers import Pointer
from buoyline.compression.work_state import PlanItem, WorkState
from buoyline.inspect.work import session_work

_COLOURS: Final = {"passes": "green", "fails": "red", "open": "yellow", "deleted": "red", "created": "green"}
_SHOWN: Final = 20
_CHARS: Final = 160


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
        texts = [[text if full else _cut(text) for text in row] for row in shown]
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


def _cut(text: str) -> str:
    return text if len(text) <= _CHARS else f"{text[:_CHARS]}…"
