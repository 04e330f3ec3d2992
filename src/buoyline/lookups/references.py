"""What a reference to offloaded content means: one file of the workspace, and what is known of it.

References come from models, so they are taken in every form that a stub, a pointer or an answer shows, and lead to
nothing but what was offloaded: not to the agent's own files, the journal, or another session than the one allowed.
"""

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from buoyline.errors import InvalidNameError, NotFoundError
from buoyline.lookups.answer import shown_path
from buoyline.lookups.names import MAX_NEAR, directory_of, names_in, near, records_of, shortened
from buoyline.lookups.paths import file_of
from buoyline.lookups.places import Files
from buoyline.messages import is_object
from buoyline.workspace import layout
from buoyline.workspace.memory_files import MemoryFiles

_KIND = "offloaded content"
_EVICTED = "it was in memory, and evicted since nobody used it for too many turns; run the tool again"
_PLACE = re.compile(r"(.+):([0-9]{1,15}):([0-9]{1,15})", re.DOTALL)
_MESSAGE_FILES = frozenset({layout.TRANSCRIPT_FILE, layout.CONTEXT_FILE})
_OTHER_FILES = frozenset(
    {layout.SESSION_FILE, layout.JOURNAL_FILE, layout.SUMMARIES_FILE, layout.WINDOW_FILE, layout.TORN}
)


@dataclass(frozen=True, slots=True)
class Target:
    """What a reference means.

    Attributes:
        name: File whose lines are counted, relative to the workdir: the view of a result where there is one, as in
            stubs and pointers.
        whole: File with the content itself, another one than `name` where there is a view.
        parts: What the journal says of a result's blocks, in the tool's order; empty where it says nothing.
        first: First line that is meant, 1-based.
        last: Last line, inclusive; `sys.maxsize` for the end.
        column: Character of line `first` to begin with, 1-based.
        is_narrowed: The reference itself names lines.
    """

    name: str
    whole: str
    parts: tuple[Mapping[str, Any], ...] = ()
    first: int = 1
    last: int = sys.maxsize
    column: int = 1
    is_narrowed: bool = False


def target_of(workspace: Files, reference: str, session: str | None = None) -> Target:
    """Find what *reference* means.

    Args:
        workspace: Where to look.
        reference: The path of a tool result or its view, of a transcript or archive, or of a file under ``data/``:
            absolute, relative to the workdir, or with *session* relative to the session; its plain name; a
            ``workspace:///data/`` reference; or the id of a call, or the unique beginning of one. Behind each,
            ``:120-135`` narrows to lines of it, and ``:120:1001`` begins at a column of that very file. The brackets
            of a citation may stand around it.
        session: The only session whose content may be had; None for all. What is under ``data/`` belongs to no
            session: who knows the hash has seen the reference.

    Raises:
        InvalidNameError: *reference* leads out of the workspace, or is no text.
        NotFoundError: There is no such content, or it is another session's; the error says what is near. Or the
            reference means several files; the error names them.
        StorageError: It is no regular file.
    """
    if not isinstance(reference, str):
        raise InvalidNameError(reference, f"a reference must be text, not {type(reference).__name__}")
    named = reference.strip().removeprefix("memory://")  # whose files begin at /
    try:
        return _by_path(workspace, named, session)
    except NotFoundError as error:
        if error.kind not in {"file", _KIND}:  # no such session, or several files
            raise
        is_evicted = isinstance(workspace, MemoryFiles) and workspace.is_evicted(named.removeprefix("/"))
        hint = _EVICTED if is_evicted else _near(workspace, named, session)
        raise NotFoundError(_KIND, shortened(named), hint) from error


def _by_path(workspace: Files, reference: str, session: str | None) -> Target:
    place = _PLACE.fullmatch(reference)
    if place is not None:
        try:
            extent = file_of(workspace, place[1], session, confined=session is not None)
        except NotFoundError:
            place = None
        else:
            _require_offloaded(workspace, extent.name, session)
            first, column = max(int(place[2]), 1), max(int(place[3]), 1)
            return Target(extent.name, extent.name, first=first, column=column, is_narrowed=True)
    extent = file_of(workspace, reference, session, confined=session is not None)
    _require_offloaded(workspace, extent.name, session)
    found = _file(workspace, extent.name)
    if (extent.first, extent.last) == (1, sys.maxsize):
        return found
    return Target(found.name, found.whole, found.parts, extent.first, extent.last, is_narrowed=True)


def _file(workspace: Files, name: str) -> Target:
    directory, _, file = name.rpartition("/")
    if layout.is_view_name(file):
        result = f"{directory}/{layout.result_behind(file)}"
        # A view whose result is gone still says what it says.
        return Target(name, name) if workspace.tree.size(result) is None else _result(workspace, result)
    return _result(workspace, name) if layout.is_result_name(file) else Target(name, name)


def _result(workspace: Files, name: str) -> Target:
    directory, _, file = name.rpartition("/")
    view = f"{directory}/{layout.view_name(file)}"
    shown = name if workspace.tree.size(view) is None else view
    return Target(shown, name, _parts(workspace, directory, file))


def _parts(workspace: Files, directory: str, file: str) -> tuple[Mapping[str, Any], ...]:
    """Return what the journal says of the parts of a result; nothing where it says nothing, or cannot be read."""
    record = records_of(workspace, directory).get(file, {})
    return tuple(part for part in record.get("parts", ()) if is_object(part))


def _require_offloaded(workspace: Files, name: str, session: str | None) -> None:
    """Refuse what was not offloaded, or by another session.

    Raises:
        NotFoundError: *name* is such a file.
    """
    directory, _, file = name.rpartition("/")
    if layout.digest_in(name) is not None:
        return
    is_ours = layout.is_result_name(file) or layout.is_view_name(file) or file in _MESSAGE_FILES
    above, _, _ = directory.rpartition("/")
    if (
        not is_ours
        or above != layout.SESSIONS
        or (session is not None and directory_of(workspace, session) != directory)
    ):
        raise NotFoundError(_KIND, name)


def _near(workspace: Files, reference: str, session: str | None) -> str:
    """Say what *reference* may have meant, or else what there is."""
    known = list(dict.fromkeys(name for name in names_in(workspace, session) if name not in _OTHER_FILES))
    if names := near(reference, known):
        return f"near are {', '.join(map(shown_path, names))}"
    if not known:
        return "nothing was offloaded yet" if session is None else "nothing was offloaded in this session yet"
    more = f" and {len(known) - MAX_NEAR:,} more" if len(known) > MAX_NEAR else ""
    return f"there are {', '.join(map(shown_path, known[:MAX_NEAR]))}{more}"
