"""Sessions by their directory, and their summaries as sections.

``summary 3`` in a session's directory is the text of its third summary, as the model read it. It is no file: its lines
are those of the text, which ``summaries.jsonl`` holds in one line of JSON.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from buoyline.errors import CorruptError, InvalidNameError, MessageError, NotFoundError, StorageError
from buoyline.lookups.sources import InMemoryContent
from buoyline.messages.jsonl import is_object, parse
from buoyline.workspace import Files, ReadableWorkspace, StoredSession, layout
from buoyline.workspace.index import Index

_SECTION = re.compile(r"(?:(.+)/)?summary ([1-9][0-9]{0,8})", re.DOTALL)


def session_in(workspace: ReadableWorkspace, directory: str) -> StoredSession | None:
    """Return the session in *directory*; None if none can be read there."""
    session_id = _document_in(workspace, directory).get("id")
    try:
        return workspace.session(session_id) if isinstance(session_id, str) else None
    except (CorruptError, InvalidNameError, NotFoundError):  # files can be read without it
        return None


def created_at(workspace: ReadableWorkspace, directory: str) -> str:
    """Return when the session in *directory* was created, as its ``session.json`` spells it; empty if it has none."""
    return str(_document_in(workspace, directory).get("created_at", ""))


def records_of(workspace: ReadableWorkspace, directory: str) -> Mapping[str, Mapping[str, Any]]:
    """Return the journal's records of the tool results in *directory*, by file; none if it cannot be read."""
    index = _index_in(workspace, directory)
    return {} if index is None else index.results


def _index_in(workspace: ReadableWorkspace, directory: str) -> Index | None:
    """Return the content of the journal in *directory*; None if it cannot be read: files can be read without it."""
    session = session_in(workspace, directory)
    try:
        return None if session is None else session.index()
    except (CorruptError, NotFoundError, StorageError):
        return None


def _document_in(workspace: ReadableWorkspace, directory: str) -> Mapping[str, Any]:
    name = f"{directory}/{layout.SESSION_FILE}"
    if workspace.files.size(name) is None:
        return {}
    try:
        found = parse(workspace.files.read(name))
    except MessageError:
        return {}
    return found if is_object(found) else {}


def section_of(number: int) -> str:
    """Return the name of the section with the summary *number* within a session."""
    return f"summary {number}"


def is_section_name(name: str) -> bool:
    """Return whether *name*, relative to the workdir or to a session, is one that a section may have."""
    return _SECTION.fullmatch(name) is not None


def count_summaries(workspace: ReadableWorkspace, directory: str) -> int:
    """Return how many summaries the session in *directory* has; 0 if its journal cannot be read."""
    index = _index_in(workspace, directory)
    return 0 if index is None else len(index.summaries)


def is_section(workspace: ReadableWorkspace, name: str) -> bool:
    """Return whether *name*, relative to the workdir, is a section that can be read."""
    spelled = _SECTION.fullmatch(name)
    return spelled is not None and int(spelled[2]) <= count_summaries(workspace, spelled[1] or "")


class Texts:
    """The files of a workspace and its sections, by name."""

    def __init__(self, workspace: ReadableWorkspace) -> None:
        """Read files and sections of *workspace*."""
        self.files: Files = workspace.files
        self._workspace = workspace
        self._sections: dict[str, InMemoryContent] = {}

    def chunks(self, name: str, /) -> Iterator[bytes]:
        """Yield the content of *name* in pieces."""
        section = self._section(name)
        return self.files.chunks(name) if section is None else section.chunks(name)

    def read(self, name: str, offset: int = 0, size_bytes: int | None = None, /) -> bytes:
        """Return *size_bytes* bytes from *offset*, or all that follows it."""
        section = self._section(name)
        if section is None:
            return self.files.read(name, offset, size_bytes)
        return section.content[offset : None if size_bytes is None else offset + size_bytes]

    def size(self, name: str, /) -> int | None:
        """Return the size of *name* in bytes; None if it is no regular file and no section."""
        section = self._section(name)
        return self.files.size(name) if section is None else len(section.content)

    def _section(self, name: str) -> InMemoryContent | None:
        """Return the content of the section *name*; None if it is a file, or neither.

        Raises:
            CorruptError: The summary is not what was written.
        """
        spelled = _SECTION.fullmatch(name)
        if spelled is None or self.files.exists(name) or not is_section(self._workspace, name):
            return None
        if name not in self._sections:
            session = session_in(self._workspace, spelled[1] or "")
            text = "" if session is None else str(session.summary(int(spelled[2])).get("text", ""))
            self._sections[name] = InMemoryContent(text.encode("utf-8", "replace"))
        return self._sections[name]
