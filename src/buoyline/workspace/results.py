"""Whole tool results in files of their own, and the stubs that replace them in a context."""

import hashlib
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import Protocol

from buoyline.errors import CorruptError, NotFoundError
from buoyline.messages import ToolResult
from buoyline.messages.payloads import without_payload
from buoyline.messages.times import now
from buoyline.offloader.protocol import StoredResult
from buoyline.workspace import layout
from buoyline.workspace.batches import text_digest
from buoyline.workspace.blobs import Blobs
from buoyline.workspace.content import ONE_TEXT, Measure, ResultContent, described, has_data, placed, result_from
from buoyline.workspace.index import Index
from buoyline.workspace.journal import Record
from buoyline.workspace.journal_tail import JournalTail
from buoyline.workspace.quotas import UNLIMITED, QuotaChecker
from buoyline.workspace.records import (
    result_record,
    stored_result,
    streamed_record,
    stub_record,
)
from buoyline.workspace.redaction import Redaction
from buoyline.workspace.result_names import ResultNames, names_for
from buoyline.workspace.session import Session
from buoyline.workspace.tree import Tree

# Payloads that wait until the quota check of everything that belongs to them.


class StagedBlobs:
    """The payloads of one batch. They are written at once unless a limit is set, so that none is held twice."""

    def __init__(self, blobs: Blobs, quota: QuotaChecker, *, waits: bool = False) -> None:
        """Write to *blobs* within *quota*; with *waits*, write nothing before `write` even without a limit."""
        self.waits = waits or quota.is_limited
        self._blobs = blobs
        self._quota = quota
        self._waiting: dict[str, tuple[bytes, str]] = {}

    def put(self, payload: bytes, media_type: str) -> str:
        """Store *payload*, or keep it for `write`, and return its reference.

        Raises:
            QuotaExceededError: It is larger than a blob may be.
        """
        self._quota.check_blob(len(payload))
        if not self.waits:
            return self._blobs.put(payload, media_type)
        name = layout.blob_name(payload, media_type)
        self._waiting[name] = (payload, media_type)
        return layout.reference_to(name)

    def new_bytes(self, tree: Tree) -> int:
        """Return by how much ``data/`` of *tree* will grow."""
        return sum(len(payload) for name, (payload, _) in self._waiting.items() if tree.size(name) is None)

    def write(self) -> None:
        """Store the waiting payloads, durably.

        Raises:
            StorageError: The file system refused.
        """
        for payload, media_type in self._waiting.values():
            self._blobs.put(payload, media_type)
        self._waiting.clear()


def store_payload(
    block: object, tree: Tree, blobs: Blobs, quota: QuotaChecker, *, redaction: Redaction, begin: Callable[[], None]
) -> object:
    """Store the payload of *block* alone, durably, and return the block that refers to it.

    *begin* is called before anything is written, and after every check that needs no file.

    Raises:
        QuotaExceededError: It would exceed a quota; nothing was written.
        StorageError: The file system refused.
    """
    quota.check_payloads([block])
    staged = StagedBlobs(blobs, quota, waits=redaction.is_active)

    def put(payload: bytes, media_type: str) -> str:
        return staged.put(redaction.payload(payload, media_type), media_type)

    if not staged.waits:
        begin()
        with blobs.lease():
            return without_payload(block, put)
    referring = without_payload(block, put)
    begin()
    with blobs.lease():
        quota.admit_blobs(tree, staged.new_bytes(tree))
        staged.write()
    return referring


class Content(Protocol):
    """The bytes of a result's file, in pieces of about a megabyte, as often as asked."""

    def chunks(self) -> Generator[bytes]:
        """Yield the bytes."""
        ...

    def measure(self) -> Measure:
        """Return their size, hash and lines."""
        ...

    def placed(self) -> Sequence[Record]:
        """Return the journal's records of its blocks."""
        ...


@dataclass(frozen=True, slots=True)
class StagedResult:
    """A tool result whose content is durable in a file without a final name.

    Attributes:
        name: Of the file, relative to the workspace.
        measured: Size, hash and lines of its content.
        view_name: The file of its view, without a final name, too; empty if it needs none.
    """

    tree: Tree
    name: str
    measured: Measure
    view_name: str = ""
    view_lines: int = 0
    view_bytes: int = 0

    @property
    def size_bytes(self) -> int:
        """Bytes of the content and its view."""
        return self.measured.size_bytes + self.view_bytes

    def chunks(self) -> Generator[bytes]:
        """Yield the content in pieces."""
        yield from self.tree.chunks(self.name)

    def measure(self) -> Measure:
        """Return size, hash and lines of the content."""
        return self.measured

    def placed(self) -> Sequence[Record]:
        """Return the journal's record of its one block."""
        return placed(ONE_TEXT, self.measured)

    def record(self, call_id: str, name: str, *, partial: str, others_bytes: int) -> Record:
        """Return its record in the journal; see `streamed_record`."""
        view = (self.view_lines, self.view_bytes) if self.view_name else None
        return streamed_record(
            call_id, name, self.measured, view=view, partial=partial, others_bytes=others_bytes, time=now()
        )


class Results:
    """The tool results of a session."""

    def __init__(self, session: Session, blobs: Blobs, quota: QuotaChecker = UNLIMITED) -> None:
        """Store into *session*, and media into *blobs*, within *quota*."""
        self._session = session
        self._blobs = blobs
        self._quota = quota

    def store(self, result: ToolResult) -> StoredResult:
        """Store *result* durably: its media in ``data/``, then its text and JSON in a file of its own.

        The same id with the same content is the same file. With other content it is another file, since ids repeat in
        real sessions.

        Raises:
            CorruptError: The file with the name of this content holds other content.
            QuotaExceededError: An image or other payload, the session or the workspace would exceed its quota; nothing
                was written.
            StorageError: The file system refused; no file has its final name.
        """
        staged = StagedBlobs(self._blobs, self._quota)
        with ExitStack() as lease:
            if has_data(result):
                lease.enter_context(self._blobs.lease())
            pending = _PendingResult(result, described(result, staged.put), staged)
            view = pending.content.view()
            self._check_new(pending, view)
            with self._session.writing() as (tail, appender):
                name, is_there = self._place(tail, result.call_id, result.name, pending)
                record = tail.find_result(name)
                if record is None:
                    self._admit(tail, pending, name, view)
                staged.write()
                if is_there:
                    # Its writer may have been killed before the name was durable.
                    self._session.tree.sync_directory(self._session.directory)
                else:
                    self._publish(name, pending)
                if view is not None:
                    self._publish_view(layout.view_name(name), view)
                if record is None:
                    record = pending.record(name, view, tail.result_bytes)
                    appender.note(record)
                else:
                    appender.sync_found()
                return self._described(record)

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

        Args:
            call_id: The id of the call.
            staged: The content, already durable; its temporary file is gone on return.
            partial: Why it is not whole; empty if it is.

        Raises:
            CorruptError: See `store`.
            QuotaExceededError: See `store`.
            StorageError: See `store`.
        """
        record = staged.record(call_id, _first_name(call_id, "", staged), partial=partial, others_bytes=0)
        self._quota.check_new(self._session, record["total"], [record], staged_bytes=staged.size_bytes)
        with self._session.writing() as (tail, appender):
            name, is_there = self._place(tail, call_id, "", staged)
            known = tail.find_result(name)
            record = known or staged.record(call_id, name, partial=partial, others_bytes=tail.result_bytes)
            if known is None:
                new_bytes = record["total"] - tail.result_bytes
                self._quota.admit(self._session, tail, new_bytes, [record], staged_bytes=staged.size_bytes)
            if not self._session.tree.publish_staged(staged.name, self._session.name(name)) and not is_there:
                raise self._is_another(name)
            if staged.view_name:
                self._publish_staged_view(layout.view_name(name), staged.view_name)
            if known is None:
                appender.note(record)
            else:
                appender.sync_found()
            return replace(self._described(record), partial=partial)

    def record_stub(self, stub: str, name: str) -> None:
        """Record that the text *stub* replaces the result in file *name*.

        The record becomes durable with the next commit; no archived message can hold the stub before that.

        Raises:
            QuotaExceededError: The session or the workspace would exceed its quota; nothing was written.
        """
        digest = text_digest(stub)
        record = stub_record(stub, name, now())
        self._quota.check_new(self._session, 0, [record])
        with self._session.writing() as (tail, appender):
            if tail.find_stub(digest) is None:
                self._quota.admit(self._session, tail, 0, [record])
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
        return stored_result(record, self._session.path, self._session.tree.path)

    def _place(self, tail: JournalTail, call_id: str, tool: str, content: Content) -> tuple[str, bool]:
        """Return the name for *content*, and whether its file exists already.

        An existing file is compared with the content chunk by chunk, and not written again.
        """
        session, name = self._session, ""
        if tail.names is None:
            tail.names = ResultNames(session.tree.names(session.directory))
        for name in names_for(tail, tail.names, call_id, tool, measure=content.measure(), parts=content.placed()):
            if not session.tree.exists(session.name(name)):
                return name, False
            if not tail.names.is_held(name):
                # Its writer was killed before the record, or the file system finds another file under the name.
                tail.names = None
                return self._place(tail, call_id, tool, content)
            if self._holds(name, content):
                return name, True
            record = tail.find_result(name)
            if record is not None and record["call_id"] == call_id and record["sha256"] == content.measure().sha256:
                self._set_aside(name)  # it is damaged, and *content* has the right bytes
                return name, False
        raise self._is_another(name)

    def _set_aside(self, name: str) -> None:
        session, digest = self._session, hashlib.sha256()
        for chunk in session.tree.chunks(session.name(name)):
            digest.update(chunk)
        aside = layout.set_aside_name(session.name(name), digest.hexdigest())
        session.tree.make_directory(session.name(layout.TORN))
        session.tree.sync_directory(session.directory)
        session.tree.publish(aside, session.tree.chunks(session.name(name)))
        session.tree.remove(session.name(name))

    def _holds(self, name: str, content: Content) -> bool:
        with self._session.tree.open(self._session.name(name)) as handle, closing(content.chunks()) as chunks:
            offset = 0
            for chunk in chunks:
                if handle.read(offset, len(chunk)) != chunk:
                    return False
                offset += len(chunk)
            return handle.size() == offset

    def _publish(self, name: str, content: Content) -> None:
        with closing(content.chunks()) as chunks:
            is_ours = self._session.tree.publish(self._session.name(name), chunks)
        if not is_ours and not self._holds(name, content):
            raise self._is_another(name)

    def _publish_view(self, name: str, view: bytes) -> None:
        tree, path = self._session.tree, self._session.name(name)
        # A wrong view is replaced: everything that it shows is in the result.
        if not tree.publish(path, (view,)) and tree.read(path) != view:
            tree.replace(path, (view,))

    def _publish_staged_view(self, name: str, staged: str) -> None:
        tree, path = self._session.tree, self._session.name(name)
        if tree.exists(path) and not _are_same(tree, path, staged):
            tree.replace(path, tree.chunks(staged))
        tree.publish_staged(staged, path)

    def _is_another(self, name: str) -> CorruptError:
        return CorruptError(self._session.path(name), "is not the tool result that belongs there; move it away")

    def _check_new(self, pending: "_PendingResult", view: bytes | None) -> None:
        if self._quota.is_limited and not self._session.exists():
            record = pending.record(_first_name(pending.result.call_id, pending.result.name, pending), view, 0)
            self._quota.check_new(self._session, record["total"], [record], self._new_bytes(pending))

    def _admit(self, tail: JournalTail, pending: "_PendingResult", name: str, view: bytes | None) -> None:
        if self._quota.is_limited:
            record = pending.record(name, view, tail.result_bytes)
            size_bytes = record["total"] - tail.result_bytes
            self._quota.admit(self._session, tail, size_bytes, [record], self._new_bytes(pending))

    def _new_bytes(self, pending: "_PendingResult") -> int:
        return pending.staged.new_bytes(self._session.tree)


class _PendingResult:
    """A result before it is stored, with its waiting payloads."""

    def __init__(self, result: ToolResult, parts: Sequence[Record], staged: StagedBlobs) -> None:
        self.result = result
        self.content = ResultContent(result)
        self.staged = staged
        self._parts = parts

    def chunks(self) -> Generator[bytes]:
        yield from self.content.chunks()

    def measure(self) -> Measure:
        return self.content.measure()

    def placed(self) -> Sequence[Record]:
        """Return the journal's records of its parts; encodes the text if that was not done yet."""
        return placed(self._parts, self.content.measure())

    def record(self, name: str, view: bytes | None, others_bytes: int) -> Record:
        """Return its record in the journal."""
        measure = self.content.measure()
        return result_record(self.result, name, measure, self._parts, view, others_bytes=others_bytes, time=now())


def _first_name(call_id: str, tool: str, content: Content) -> str:
    """Return the name that a result has in a new session."""
    return next(names_for(Index(), ResultNames(), call_id, tool, measure=content.measure(), parts=content.placed()))


def _are_same(tree: Tree, name: str, other: str) -> bool:
    if tree.size(name) != tree.size(other):
        return False
    with closing(tree.chunks(name)) as chunks, closing(tree.chunks(other)) as others:
        return all(chunk == expected for chunk, expected in zip(chunks, others, strict=False))
