"""Checks of ``summaries.jsonl`` and of the pointers in it."""

import reprlib
from collections.abc import Iterator, Mapping
from typing import Any

from buoyline.errors import MessageError
from buoyline.messages import is_array, is_object, parse
from buoyline.workspace import layout
from buoyline.workspace.journal import Extent
from buoyline.workspace.verification.inspection import Inspection
from buoyline.workspace.verification.probe import Part
from buoyline.workspace.verification.scan import lines_of

Pointer = tuple[str, int, int]


class SummariesCheck:
    """Compares the summaries with the journal, and their pointers with the files that they point to."""

    def __init__(self, session: Inspection) -> None:
        """Check *session*."""
        self._session = session
        self._lines = _lines_by_file(session)

    def run(self) -> None:
        """Check the size, then contents where hashes are wanted."""
        session, extents = self._session, self._session.index.summaries
        size = session.size(layout.SUMMARIES_FILE)
        if size is None:
            if extents and session.index.may_be_torn_summary(extents[0]):
                self._report_unfinished(1, extents[0])
            elif extents and layout.SUMMARIES_FILE not in session.entries:
                reason = f"is gone with {len(extents)} summaries; restore it from a copy"
                session.add("missing-file", layout.SUMMARIES_FILE, reason)
            return
        self._check_size(size)
        if session.hashes:
            with session.refusals(), session.open(layout.SUMMARIES_FILE) as summaries:
                for number, extent in enumerate(extents, 1):
                    if extent.end <= size:
                        part = session.probe.part(summaries, extent.offset, sum(extent.sizes))
                        self._check_summary(number, extent, part)

    def _check_size(self, size: int) -> None:
        index = self._session.index
        lost = next((number for number, extent in enumerate(index.summaries, 1) if extent.end > size), None)
        if lost is not None and index.may_be_torn_summary(index.summaries[lost - 1]):
            self._report_unfinished(lost, index.summaries[lost - 1])
        elif lost is not None:
            reason = f"ends within or before summary {lost} of {len(index.summaries)}; restore it from a copy"
            self._session.add("short-file", layout.SUMMARIES_FILE, reason, line=lost, offset=size)
        if size > index.summaries_end:
            reason = (
                f"{size - index.summaries_end:,} bytes stand behind the last commit; the next writer sets them aside"
            )
            self._session.add("torn-tail", layout.SUMMARIES_FILE, reason, offset=index.summaries_end)

    def _report_unfinished(self, number: int, extent: Extent) -> None:
        reason = (
            f"summary {number} is not what its record says: a power cut before it was acknowledged, or damage; the "
            "next writer sets it aside, so compare with a copy first"
        )
        self._session.add("unfinished-batch", layout.SUMMARIES_FILE, reason, line=number, offset=extent.offset)

    def _check_summary(self, number: int, extent: Extent, part: Part) -> None:
        if part.sha256 != extent.sha256 and self._session.index.may_be_torn_summary(extent):
            self._report_unfinished(number, extent)
        elif part.sha256 != extent.sha256:
            reason = f"summary {number} is not what was written; restore the file from a copy"
            self._session.add("changed-bytes", layout.SUMMARIES_FILE, reason, line=number, offset=extent.offset)
        elif part.content is not None:
            summary = _object_in(part.content)
            if summary is None:
                self._report("bad-line", number, "is no JSON object")
            else:
                self._check_claims(number, summary)

    def _check_claims(self, number: int, summary: Mapping[str, Any]) -> None:
        archived, covered = self._session.index.messages, summary.get("messages")
        if is_array(covered) and covered and isinstance(covered[-1], int) and covered[-1] > archived:
            reason = f"covers messages up to {covered[-1] - 1}, but {archived} are archived; restore them from a copy"
            self._report("missing-messages", number, reason)
        for pointer in dict.fromkeys(_pointers(summary)):
            fault = self._fault_of(*pointer)
            if fault:
                self._report("dangling-pointer", number, fault)

    def _fault_of(self, path: str, start: int, end: int) -> str:
        """Say why a pointer leads nowhere; nothing when it leads to lines that are there."""
        lines = self._lines_in(path)
        if lines is None:
            return f"points to {reprlib.repr(path)}, which is no file of the session"
        if not 1 <= start <= end <= lines:
            return f"points to lines {start} to {end} of {path}, which has {lines:,}"
        return ""

    def _lines_in(self, name: str) -> int | None:
        """Return how many lines a file has; what the journal does not say is counted, once."""
        if name not in self._lines and layout.is_result_name(name) and self._session.size(name) is not None:
            with self._session.open(name) as handle:
                self._lines[name] = sum(1 for _ in lines_of(self._session.probe.chunks(handle)))
        return self._lines.get(name)

    def _report(self, kind: str, number: int, reason: str) -> None:
        self._session.add(kind, layout.SUMMARIES_FILE, f"summary {number} {reason}", line=number)


def _object_in(content: bytes) -> Mapping[str, Any] | None:
    try:
        found: object = parse(content)
    except MessageError:
        return None
    return found if is_object(found) else None


def _lines_by_file(session: Inspection) -> dict[str, int]:
    """Return the lines of each file that the journal knows the lines of."""
    results = session.index.results.values()
    counted: dict[str, int] = {record.get("view", record["path"]): record["lines"] for record in results}
    return {**counted, layout.TRANSCRIPT_FILE: session.index.next_line - 1}


def _pointers(summary: Mapping[str, Any]) -> Iterator[Pointer]:
    """Yield file, first and last line of each pointer in *summary*, those of its facts too."""
    pointers, items = summary.get("pointers"), summary.get("items")
    for found in pointers if is_array(pointers) else ():
        yield _pointer(found)
    for item in items if is_array(items) else ():
        if is_object(item) and item.get("pointer") is not None:
            yield _pointer(item["pointer"])


def _pointer(found: object) -> Pointer:
    match found:
        case {"path": str(path), "start": int(start), "end": int(end)}:
            return path, start, end
        case _:
            return reprlib.repr(found), 0, 0
