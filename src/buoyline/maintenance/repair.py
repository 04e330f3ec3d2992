"""`repair`: puts back what `verify` misses, from a copy or from what is left. Nothing is deleted.

Only bytes that match a checksum or a hash are put back; the replaced ones go to ``torn/``. A message that is lost
leaves a placeholder with its number, so that all numbers and lines after it stay what they were.
Source: docs/format.md, "Repair".
"""

import hashlib
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from buoyline.errors import CorruptError, StorageError
from buoyline.maintenance.verify import LOCK_TIMEOUT_S, IntegrityReport, directories_of, named_by, session_in, verify
from buoyline.offloader.protocol import view_blocks
from buoyline.previews.source import BytesSource
from buoyline.workspace import layout
from buoyline.workspace.disk import Disk
from buoyline.workspace.documents import check_workspace, workspace_file
from buoyline.workspace.log import Log, LogLine, encode
from buoyline.workspace.session import first_record
from buoyline.workspace.workspace import Workspace

_LOST = "[This message was damaged and could not be restored.]"


@dataclass(frozen=True, slots=True)
class RepairAction:
    """Something that was done, or would be.

    Attributes:
        path: The file, relative to the workdir.
        what: In words.
    """

    path: str
    what: str


@dataclass(frozen=True, slots=True)
class RepairReport:
    """What was done, and what `verify` finds afterwards (before, in a dry run)."""

    actions: tuple[RepairAction, ...]
    remaining: IntegrityReport


def repair(workspace: Workspace, copy: Workspace | None = None, *, dry_run: bool = False) -> RepairReport:
    """Repair a workspace, as far as possible.

    Args:
        workspace: Nobody should write to it meanwhile.
        copy: A copy of it, of any age. The logs of a session come from it only if it is the same session.
        dry_run: Change nothing; the report has the same actions.

    Raises:
        NotFoundError: There is no workspace.
        LockTimeout: A session is in use.
        StorageError: The file system refused. What was done until then is whole; repeat it.
    """
    mending = _Mending(workspace.disk, None if copy is None else copy.disk, dry_run=dry_run)
    mending.workspace_file()
    for directory in directories_of(workspace.disk):
        mending.session(directory)
    mending.data()
    return RepairReport(tuple(mending.actions), verify(workspace))


class _Mending:
    def __init__(self, disk: Disk, copy: Disk | None, *, dry_run: bool) -> None:
        self._disk, self._copy, self._dry_run = disk, copy, dry_run
        self.actions: list[RepairAction] = []
        self._blobs: set[str] = set()

    def workspace_file(self) -> None:
        """Write ``workspace.json`` again if it is damaged."""
        try:
            check_workspace(self._disk)
        except CorruptError:
            self._replace(layout.WORKSPACE, [workspace_file()], "written again")

    def session(self, directory: str) -> None:
        """Repair the logs, then the files that they name."""
        for path in (f"{directory}/{name}" for name in layout.SESSION_FILES):
            if self._disk.status(path) is None:
                self.actions.append(RepairAction(path, "created, empty"))
                if not self._dry_run:
                    self._disk.create(path)
        with self._disk.locked(f"{directory}/{layout.CONTEXT}", LOCK_TIMEOUT_S):
            for name in (layout.STATE, layout.CONTEXT, layout.SUMMARIES):
                self._log(directory, name)
        session = session_in(self._disk, directory)
        session.load()
        named = named_by(session)
        self._blobs |= named.blobs
        for name, (size_bytes, crc) in named.files.items():
            self._file(f"{directory}/{name}", size_bytes, crc)
        recorded = session.state.transcript
        self._file(f"{directory}/{layout.TRANSCRIPT}", recorded.length, recorded.crc)

    def data(self) -> None:
        """Put damaged and missing payloads back."""
        for name in sorted(self._blobs):
            digest = name.removeprefix(f"{layout.DATA}/").partition(".")[0]
            if hashlib.sha256(_content(self._disk, name)).hexdigest() == digest or self._copy is None:
                continue
            content = _content(self._copy, name)
            if hashlib.sha256(content).hexdigest() == digest:
                self._replace(name, [content], "put back from the copy")

    def _log(self, directory: str, name: str) -> None:
        """Merge the good lines of both by number; what other files name and neither has gets a placeholder."""
        path = f"{directory}/{name}"
        here, theirs = self._lines(self._disk, path), self._lines_of_copy(directory, name)
        count = max(self._named(directory, name), *(number + 1 for number in here), 0)
        lost = [number for number in range(count) if number not in here]
        if not lost:
            return  # torn bytes at the end are set aside by the next writer
        lines = {number: line for number, line in (theirs | here).items() if number < count}
        came = sum(number in lines for number in lost)
        what = f"{came} lines put back from the copy, {len(lost) - came} lost"
        # A plain session, which no window ever claimed, has the state of the transcript in its lines.
        is_plain = any(
            "transcript" in line.facts for line in self._lines(self._disk, f"{directory}/{layout.CONTEXT}").values()
        )
        self._replace(path, _merged(lines, count, path, is_plain=is_plain), what)

    def _named(self, directory: str, name: str) -> int:
        """Return how many lines of a log the other one proves."""
        messages, records = (self._lines(self._disk, f"{directory}/{one}") for one in (layout.CONTEXT, layout.STATE))
        match name:
            case layout.CONTEXT:
                return max((line.facts.get("end", 0) for line in records.values()), default=0)
            case layout.STATE:
                return max((line.facts.get("s", 0) for line in messages.values()), default=0)
            case _:
                contexts = (line.value for line in records.values() if line.value.get("op") == "context")
                return max((value["summary"] + 1 for value in contexts if value["summary"] is not None), default=0)

    def _lines(self, disk: Disk, path: str) -> dict[int, LogLine]:
        return {line.number: line for line in Log(disk, path).first_lines()} if disk.status(path) else {}

    def _lines_of_copy(self, directory: str, name: str) -> dict[int, LogLine]:
        if self._copy is None:
            return {}
        first, theirs = (first_record(disk, directory) for disk in (self._disk, self._copy))
        if theirs is None or (first is not None and first.raw != theirs.raw):
            return {}  # another session of that name
        return self._lines(self._copy, f"{directory}/{name}")

    def _file(self, path: str, size_bytes: int, crc: str) -> None:
        def is_whole(content: bytes) -> bool:
            return len(content) >= size_bytes and f"{zlib.crc32(content[:size_bytes]):08x}" == crc

        if is_whole(_content(self._disk, path)):
            return
        if self._copy is not None and is_whole(content := _content(self._copy, path)):
            self._replace(path, [content[:size_bytes]], "put back from the copy")
        elif layout.is_view_name(path.rpartition("/")[2]):
            result = layout.result_behind(path)
            source = BytesSource(lambda: self._disk.chunks(result), len(_content(self._disk, result)))
            if is_whole(view := "".join(view_blocks(source)).encode()):
                self._replace(path, [view], "made again from its result")

    def _replace(self, path: str, chunks: Iterable[bytes], what: str) -> None:
        self.actions.append(RepairAction(path, what))
        if self._dry_run:
            return
        old = _content(self._disk, path)
        directory, _, name = path.rpartition("/")
        if old:
            aside = directory or layout.DATA
            self._disk.make_directory(f"{aside}/{layout.TORN}")
            self._disk.publish(f"{aside}/{layout.torn_name(name, 0, old)}", [old])
        self._disk.replace(path, chunks)


def _merged(lines: Mapping[int, LogLine], count: int, path: str, *, is_plain: bool) -> Iterator[bytes]:
    """Yield the lines of a log; those of a batch that is no longer whole become batches of their own."""
    for number in range(count):
        line = lines.get(number)
        if line is None:
            placeholder = _placeholder(path, number, is_plain=is_plain)
            yield encode(placeholder, {"n": number, "at": 0, "of": 1, "lost": True, "end": 0})
        elif all(
            one in lines for one in range(number - line.facts["at"], number - line.facts["at"] + line.facts["of"])
        ):
            yield line.raw
        else:
            yield encode(line.value, {**line.facts, "at": 0, "of": 1})


def _placeholder(path: str, number: int, *, is_plain: bool) -> dict[str, Any]:
    directory, _, name = path.rpartition("/")
    if name != layout.STATE:
        return {"role": "user", "content": _LOST} if name == layout.CONTEXT else {"text": _LOST}
    if number == 0:
        return {"op": "session", "id": directory.rpartition("/")[2], "format": layout.FORMAT}
    return {"op": "lost"} if is_plain else {"op": "claim", "writer": "lost"}


def _content(disk: Disk, name: str) -> bytes:
    """Return the content of a file; nothing if it is missing or cannot be read."""
    try:
        return disk.read(name)
    except StorageError:
        return b""
