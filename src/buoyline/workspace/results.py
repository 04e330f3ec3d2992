"""Whole tool results in files of their own, and the stubs that replace them in a context."""

import hashlib
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import Any

from buoyline.errors import CorruptError, NotFoundError
from buoyline.messages import ToolResult
from buoyline.messages.payloads import without_payload
from buoyline.messages.times import now
from buoyline.offloader.protocol import StoredResult
from buoyline.workspace import layout
from buoyline.workspace.blobs import Blobs, copy_to_torn
from buoyline.workspace.content import Measure, ResultContent, described, result_from, stored_parts
from buoyline.workspace.journal import Record, text_digest
from buoyline.workspace.journal_tail import JournalTail
from buoyline.workspace.records import unknown_stubs
from buoyline.workspace.redaction import Redaction
from buoyline.workspace.result_names import ResultNames, names_for
from buoyline.workspace.session import Session
from buoyline.workspace.tree import Tree


def store_payload(block: object, blobs: Blobs, *, redaction: Redaction, begin: Callable[[], None]) -> object:
    """Store the payload of *block* alone, durably, and return the block that refers to it.

    *begin* is called before anything is written, and after every check that needs no file.

    Raises:
        StorageError: The file system refused.
    """
    waiting: list[tuple[bytes, str]] = []

    def put(payload: bytes, media_type: str) -> str:
        redacted = redaction.payload(payload, media_type)
        waiting.append((redacted, media_type))
        return layout.reference_to(layout.blob_name(redacted, media_type))

    referring = without_payload(block, put)
    begin()
    with blobs.lease():
        for payload, media_type in waiting:
            blobs.put(payload, media_type)
    return referring


@dataclass(frozen=True, slots=True)
class StagedResult:
    """A streamed tool result whose content is durable in a file without a final name.

    Attributes:
        name: Of the file, relative to the workspace.
        view_name: The file of its view, without a final name, too; empty if it needs none.
    """

    name: str
    measure: Measure
    view_name: str = ""
    view_lines: int = 0
    view_bytes: int = 0


@dataclass(frozen=True, slots=True)
class _PendingResult:
    """A tool result before its commit.

    Attributes:
        chunks: Yields the bytes of its file, as often as asked.
        view: Lines and bytes of its view; None if it needs none.
    """

    call_id: str
    tool: str
    measure: Measure
    parts: Sequence[Record]
    chunks: Callable[[], Generator[bytes]]
    view: tuple[int, int] | None
    is_error: bool = False
    partial: str = ""

    def record(self, name: str) -> Record:
        """Return its record in the journal."""
        measure = self.measure
        lines, view_bytes = self.view or (measure.lines, 0)
        record: dict[str, Any] = {
            "op": "result",
            "call_id": self.call_id,
            "path": name,
            "bytes": measure.size_bytes,
            "sha256": measure.sha256,
            "lines": lines,
            "parts": self.parts,
            "time": now(),
        }
        if self.tool:
            record["tool"] = self.tool
        if self.is_error:
            record["is_error"] = True
        if self.view is not None:
            record |= {"view": layout.view_name(name), "view_bytes": view_bytes}
        if self.partial:
            record["partial"] = self.partial
        return record


class Results:
    """The tool results of a session."""

    def __init__(self, session: Session, blobs: Blobs) -> None:
        """Store into *session*, and media into *blobs*."""
        self._session = session
        self._blobs = blobs

    def store(self, result: ToolResult) -> StoredResult:
        """Store *result* durably: its media in ``data/``, then its text and JSON in a file of its own.

        The same id with the same content is the same file. With other content it is another file, since ids repeat in
        real sessions.

        Raises:
            CorruptError: The file with the name of this content holds other content.
            StorageError: The file system refused; no file has its final name.
        """
        content = ResultContent(result)
        measure = content.measure()
        with ExitStack() as lease:
            if len(measure.blocks) < len(result.parts):
                lease.enter_context(self._blobs.lease())
            parts = described(result, measure, self._blobs.put)
            view = content.view()
            counts = None if view is None else (view.count(b"\n"), len(view))
            pending = _PendingResult(
                result.call_id, result.name, measure, parts, content.chunks, counts, is_error=result.is_error
            )

            def write(held: Tree, name: str, *, is_there: bool) -> None:
                if is_there:
                    # Its writer may have been killed before the name was durable.
                    held.sync_directory(self._session.directory)
                else:
                    self._publish(held, name, pending)
                if view is not None:
                    self._publish_view(held, layout.view_name(name), view)

            return self._commit(pending, write)

    def load(self, name: str) -> ToolResult:
        """Return the result in file *name*, equal to the stored one, with the bytes of its media.

        Raises:
            NotFoundError: There is no such session, or no such result in it.
            CorruptError: One of its files does not hold the stored bytes.
            StorageError: One of its files is missing.
        """
        record = self._session.index().find_result(name)
        if record is None:
            raise NotFoundError("tool result", name, "nothing was stored under it in this session")
        text = self._session.tree.read(self._session.name(name))
        if hashlib.sha256(text).hexdigest() != record["sha256"]:
            raise CorruptError(self._session.path(name), "is not what the tool gave; restore it from a copy")
        return result_from(record, text, self._blobs.get)

    def publish(self, call_id: str, staged: StagedResult, partial: str = "") -> StoredResult:
        """Give a streamed tool result its final name, by the rules of `store`; durable on return.

        The content is durable already, and its temporary file is gone on return. *partial* says why it is not whole.

        Raises:
            CorruptError: See `store`.
            StorageError: See `store`.
        """
        measure, tree = staged.measure, self._session.tree
        pending = _PendingResult(
            call_id,
            "",
            measure,
            [{"kind": "text", "offset": 0, "bytes": measure.size_bytes}],
            lambda: tree.chunks(staged.name),
            (staged.view_lines, staged.view_bytes) if staged.view_name else None,
            partial=partial,
        )

        def write(held: Tree, name: str, *, is_there: bool) -> None:
            if not held.publish_staged(staged.name, self._session.name(name)) and not is_there:
                raise self._is_another(name)
            if staged.view_name:
                self._publish_staged_view(held, layout.view_name(name), staged.view_name)

        return replace(self._commit(pending, write), partial=partial)

    def _commit(self, pending: _PendingResult, write: Callable[..., None]) -> StoredResult:
        """Store *pending* under its name, and record it unless its record exists; durable on return.

        *write* gives the content its name, if no such file *is_there*, in the tree that it gets, which holds the
        session's directory.
        """
        with self._session.writing() as (tail, appender):
            name, is_there = self._place(appender.tree, tail, pending)
            known = tail.find_result(name)
            record = known or pending.record(name)
            write(appender.tree, name, is_there=is_there)
            if known is None:
                appender.note(record)
            else:
                appender.sync_earlier()
            return self._described(record)

    def record_stub(self, stub: str, name: str) -> None:
        """Record that the text *stub* replaces the result in file *name*.

        The record becomes durable with the next commit; no archived message can hold the stub before that.
        """
        with self._session.writing() as (tail, appender):
            for record in unknown_stubs(tail, [(stub, name)]):
                appender.note(record, durable=False)

    def behind_all(self, texts: Sequence[str]) -> dict[str, StoredResult]:
        """Return the results behind those of *texts* that are recorded stubs."""
        index, found = self._session.index(), dict[str, StoredResult]()
        for text in texts:
            stub = index.find_stub(text_digest(text))
            record = None if stub is None else index.find_result(stub["path"])
            if record is not None:
                found[text] = self._described(record)
        return found

    def _described(self, record: Record) -> StoredResult:
        path, view = self._session.reference, record.get("view")
        return StoredResult(
            reference=path(record["path"]),
            name=record["path"],
            view=path(view) if view else "",
            lines=record["lines"],
            parts=stored_parts(record, self._session.files.reference),
            partial=record.get("partial", ""),
        )

    def _place(self, tree: Tree, tail: JournalTail, pending: _PendingResult) -> tuple[str, bool]:
        """Return the name for *pending*, and whether its file exists already.

        An existing file is compared with the content chunk by chunk, and not written again.
        """
        session, name = self._session, ""
        if tail.names is None:
            tail.names = ResultNames(tree.names(session.directory))
        measure, parts = pending.measure, pending.parts
        for name in names_for(tail, tail.names, pending.call_id, pending.tool, measure=measure, parts=parts):
            if not tree.exists(session.name(name)):
                return name, False
            if not tail.names.is_held(name):
                # Its writer was killed before the record, or the file system finds another file under the name.
                tail.names = None
                return self._place(tree, tail, pending)
            if self._holds(tree, name, pending):
                return name, True
            record = tail.find_result(name)
            if record is not None and record["call_id"] == pending.call_id and record["sha256"] == measure.sha256:
                # It is damaged, and *pending* has the right bytes.
                copy_to_torn(tree, session.name(name))
                tree.remove(session.name(name))
                return name, False
        raise self._is_another(name)

    def _holds(self, tree: Tree, name: str, pending: _PendingResult) -> bool:
        with tree.open(self._session.name(name)) as handle, closing(pending.chunks()) as chunks:
            offset = 0
            for chunk in chunks:
                if handle.read(offset, len(chunk)) != chunk:
                    return False
                offset += len(chunk)
            return handle.size() == offset

    def _publish(self, tree: Tree, name: str, pending: _PendingResult) -> None:
        with closing(pending.chunks()) as chunks:
            is_ours = tree.publish(self._session.name(name), chunks)
        if not is_ours and not self._holds(tree, name, pending):
            raise self._is_another(name)

    def _publish_view(self, tree: Tree, name: str, view: bytes) -> None:
        path = self._session.name(name)
        # A wrong view is replaced: everything that it shows is in the result.
        if not tree.publish(path, (view,)) and tree.read(path) != view:
            tree.replace(path, (view,))

    def _publish_staged_view(self, tree: Tree, name: str, staged: str) -> None:
        path = self._session.name(name)
        if tree.exists(path) and not _are_same(tree, path, staged):
            tree.replace(path, tree.chunks(staged))
        tree.publish_staged(staged, path)

    def _is_another(self, name: str) -> CorruptError:
        return CorruptError(self._session.path(name), "is not the tool result that belongs there; move it away")


def _are_same(tree: Tree, name: str, other: str) -> bool:
    if tree.size(name) != tree.size(other):
        return False
    with closing(tree.chunks(name)) as chunks, closing(tree.chunks(other)) as others:
        return all(chunk == expected for chunk, expected in zip(chunks, others, strict=False))
