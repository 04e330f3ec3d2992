"""One session, looked through for what is not as it should be.

The journal is read before what it speaks of, so that a writer at work is not taken for damage.
"""

from collections.abc import Generator
from contextlib import ExitStack, contextmanager

from buoyline.errors import InvalidNameError
from buoyline.messages import is_object
from buoyline.workspace import layout
from buoyline.workspace._files import Handle, Tree
from buoyline.workspace.session import is_directory_of
from buoyline.workspace.verification.archives import ArchiveCheck
from buoyline.workspace.verification.inspection import (
    Inspection,
    document_in,
    faults_of,
    foreign,
    is_known_format,
    leftover,
    set_aside,
    unknown_format,
)
from buoyline.workspace.verification.probe import Probe
from buoyline.workspace.verification.results import check_results
from buoyline.workspace.verification.scan import lines_of
from buoyline.workspace.verification.summaries import SummariesCheck
from buoyline.workspace.verification.window import check_window

_NEEDED = {
    layout.SESSION_FILE: "is gone, so the session is refused; restore it from a copy",
    layout.CONTEXT_FILE: "is gone with all archived messages; restore it from a copy",
    layout.JOURNAL_FILE: "is gone; the next writer makes a new one from the archive, but what it said of stubs, "
    "summaries, payloads and the window is lost, so restore it from a copy before",
}
_FILES = frozenset({*_NEEDED, layout.TRANSCRIPT_FILE, layout.SUMMARIES_FILE, layout.WINDOW_FILE})


def inspected(tree: Tree, directory: str, probe: Probe, *, hashes: bool) -> Inspection:
    """Look through the session in *directory*; with *hashes* also at what its files say."""
    session = Inspection(tree, directory, probe, hashes=hashes)
    with _held_window(session) as window:
        with session.refusals():
            _read_journal(session)
        with session.refusals():
            session.entries = tree.entries(directory)
        session.findings += session.scan.findings
        if session.entries.keys() & _FILES:
            _check_entries(session)
            ArchiveCheck(session, _checked_renderer(session)).run()
            check_results(session)
            SummariesCheck(session).run()
            check_window(session, window)
        else:
            session.findings.append(foreign(directory, "session"))
    return session


@contextmanager
def _held_window(session: Inspection) -> Generator[Handle | None]:
    """Open the window before the journal is read, since a note is written before the window that it is about.

    The other way round, a compression in between would put a window before us that we have no note of.
    """
    with ExitStack() as stack:
        window: Handle | None = None
        with session.refusals():
            if session.tree.size(session.path(layout.WINDOW_FILE)) is not None:
                window = stack.enter_context(session.open(layout.WINDOW_FILE))
        yield window


def _read_journal(session: Inspection) -> None:
    if session.tree.size(session.scan.path) is not None:
        with session.open(layout.JOURNAL_FILE) as journal:
            session.scan.read(lines_of(session.probe.chunks(journal)))


def _check_entries(session: Inspection) -> None:
    for name, reason in _NEEDED.items():
        if name not in session.entries:
            session.add("missing-file", name, reason)
    for name, status in session.entries.items():
        if name.startswith(layout.TEMPORARY_PREFIX):
            session.findings.append(leftover(session.path(name)))
        elif name == layout.TORN:
            session.findings += faults_of(session.path(name), status, is_directory=True)
        elif name in _FILES or layout.is_result_name(name) or layout.is_view_name(name):
            session.findings += faults_of(session.path(name), status)
    with session.refusals():
        _check_torn(session)


def _check_torn(session: Inspection) -> None:
    session.findings += set_aside(session.tree, session.path(layout.TORN))


def _checked_renderer(session: Inspection) -> object:
    """Check whose session it is; return the version of its transcript's form, None where that is not known."""
    size = session.size(layout.SESSION_FILE)
    if size is None:
        return None
    found: object = None
    with session.refusals(), session.open(layout.SESSION_FILE) as handle:
        found = document_in(handle)
        if not is_object(found):
            session.add("format", layout.SESSION_FILE, "is no JSON object; restore it from a copy")
    if not is_object(found):
        return None
    if not is_known_format(found.get("format")):
        session.findings.append(unknown_format(session.path(layout.SESSION_FILE), found.get("format")))
    if not _is_its_own(session, found.get("id")):
        reason = "names another session than its directory; move the directory back to where it was"
        session.add("owner", layout.SESSION_FILE, reason)
    return found.get("renderer")


def _is_its_own(session: Inspection, session_id: object) -> bool:
    try:
        return isinstance(session_id, str) and is_directory_of(session.tree, session_id, session.directory)
    except InvalidNameError:
        return False
