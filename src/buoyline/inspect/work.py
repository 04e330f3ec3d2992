"""The state of the work of a stored session, from its files."""

import re
from collections.abc import Iterator

from buoyline.compression.excerpts import ResultExcerpt
from buoyline.compression.extractive.work import work_of
from buoyline.compression.pointers import Pointer
from buoyline.compression.summary import SourceMessage
from buoyline.compression.work_state import WorkState, work_state_from
from buoyline.errors import NotFoundError
from buoyline.messages import Message, ToolResult
from buoyline.messages.registry import dialect_named
from buoyline.workspace import LocalWorkspace, StoredSession, layout
from buoyline.workspace.index import Index

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
    state = _last_state(session)
    return work_of(list(_sources(session, state.end)), state)


def _last_state(session: StoredSession) -> WorkState:
    summaries = session.summaries_with_facts()
    found = summaries[-1].get("work") if summaries else None
    return WorkState() if found is None else work_state_from(found)


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
