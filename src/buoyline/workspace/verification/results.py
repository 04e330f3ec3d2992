"""Checks of the files of tool results, of their views, and of the stubs that point to them."""

from buoyline.offloader.source import decoded
from buoyline.offloader.view import view_of
from buoyline.workspace import layout
from buoyline.workspace.journal import Record
from buoyline.workspace.verification.inspection import Inspection
from buoyline.workspace.verification.probe import Part


def check_results(session: Inspection) -> None:
    """Compare the files of tool results in *session* with the journal, and the other way round."""
    for name, record in session.index.results.items():
        with session.refusals():
            _check_result(session, name, record)
    for name, line in session.scan.stubs.items():
        if name not in session.entries:
            reason = f"a stub in the context points to {name}, which is gone; restore it from a copy"
            session.add("dangling-stub", layout.JOURNAL_FILE, reason, line=line)
    for name in session.entries:
        _check_name(session, name)


def _check_result(session: Inspection, name: str, record: Record) -> None:
    size = session.size(name)
    if size is None:
        if name not in session.entries:
            session.add("missing-result", name, "is recorded, and gone; restore it from a copy")
        return
    part = session.probe.file(session.tree, session.path(name)) if session.hashes else None
    if size != record["bytes"] or (part is not None and part.sha256 != record["sha256"]):
        session.add("changed-bytes", name, "is not what the tool gave, and can still be read; restore it from a copy")
    elif "view" in record and not _is_view(session, record, part):
        reason = f"is not the view of {name}, which is whole; read that one"
        session.add("stale-view", record["view"], reason)


def _is_view(session: Inspection, record: Record, result: Part | None) -> bool:
    """Tell whether the view is there, has the lines that stubs count on, and shows its result."""
    view: str = record["view"]
    lines: int = record["lines"]
    if session.size(view) is None:
        return view in session.entries  # as a link or a directory: that has been found already
    if result is None:
        return True
    with session.open(view) as handle:
        part = session.probe.part(handle, 0, handle.size())
        if part.content is None:
            return session.probe.line_ends(handle) == lines
    if part.content.count(b"\n") != lines:
        return False
    return result.content is None or part.content == _view(result.content)


def _view(content: bytes) -> bytes:
    return (view_of(decoded(content)) or "").encode("utf-8")


def _check_name(session: Inspection, name: str) -> None:
    results = session.index.results
    if layout.is_result_name(name) and name not in results:
        reason = "has no record: its call was not acknowledged, or the journal was lost; nothing refers to it"
        session.add("unrecorded-result", name, reason)
    elif layout.is_view_name(name) and not {layout.result_behind(name)} & {*results, *session.entries}:
        session.add("orphan-view", name, f"is the view of {layout.result_behind(name)}, which is gone")
