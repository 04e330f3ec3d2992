"""Whole tool results in files of their own, and the stubs that stand for them."""

from collections.abc import Sequence
from contextlib import closing

from buoyline.errors import CorruptError
from buoyline.messages import ToolResult
from buoyline.offloader.protocol import StoredResult
from buoyline.workspace import layout
from buoyline.workspace.archived import text_digest
from buoyline.workspace.content import ResultContent
from buoyline.workspace.journal import Record
from buoyline.workspace.quotas import UNLIMITED, Allowance
from buoyline.workspace.records import result_record, stored_result, stub_record
from buoyline.workspace.session import Session, now
from buoyline.workspace.tip import Tip


class Results:
    """The tool results of a session."""

    def __init__(self, session: Session, allowance: Allowance = UNLIMITED) -> None:
        """Store into *session* what *allowance* grants."""
        self._session = session
        self._allowance = allowance

    def store(self, result: ToolResult) -> StoredResult:
        """Store the whole text of *result*; durable on return.

        The same id with the same content is the same file; with other content it is one more file, since ids
        repeat in real sessions.

        Raises:
            CorruptError: The file that is named by this content holds another.
            QuotaExceededError: The session or the workspace would exceed its quota; nothing was written.
            StorageError: The file system refused; no file has its final name.
        """
        content = ResultContent(result)
        view = content.view()
        self._check_new(result.call_id, content, view)
        with self._session.writing() as (tip, appender):
            name, is_there = self._place(result.call_id, content)
            record = tip.find_result(name)
            if record is None:
                self._admit(tip, result.call_id, name, content, view)
            if is_there:
                # Whoever stored it may have been killed before its name was durable.
                self._session.tree.sync_directory(self._session.directory)
            else:
                self._publish(name, content)
            if view is not None:
                self._publish_view(layout.view_name(name), view)
            if record is None:
                record = _record(result.call_id, name, content, view, tip.result_bytes)
                appender.note(record)
            else:
                appender.settle_found()
            return stored_result(record, self._session.path)

    def record_stub(self, stub: str, name: str) -> None:
        """Remember that the text *stub* stands for the result in file *name*.

        The record becomes durable with the next commit, before which no archived message can hold the stub.

        Raises:
            QuotaExceededError: The session or the workspace would exceed its quota; nothing was written.
        """
        digest = text_digest(stub)
        record = stub_record(stub, name, now())
        self._allowance.check_new(self._session, 0, [record])
        with self._session.writing() as (tip, appender):
            if tip.find_stub(digest) is None:
                self._allowance.admit(self._session, tip, 0, [record])
                appender.note(record, durable=False)

    def behind_all(self, texts: Sequence[str]) -> dict[str, StoredResult]:
        """Return those of *texts* that are stubs of ours, with the results that they stand for."""
        index, found = self._session.index(), dict[str, StoredResult]()
        for text in texts:
            stub = index.find_stub(text_digest(text))
            record = None if stub is None else index.find_result(stub["path"])
            if record is not None:
                found[text] = stored_result(record, self._session.path)
        return found

    def _place(self, call_id: str, content: ResultContent) -> tuple[str, bool]:
        """Return the name that *content* has or shall have, and whether the file is there.

        A file that is there is read beside the text, chunk by chunk, and not written again.
        """
        first = layout.tool_result_name(call_id)
        is_taken = self._session.tree.exists(self._session.name(first))
        if not is_taken or self._holds(first, content):
            return first, is_taken
        name = layout.tool_result_variant(call_id, content.measure().sha256)
        is_taken = self._session.tree.exists(self._session.name(name))
        if is_taken and not self._holds(name, content):
            raise self._is_another(name)
        return name, is_taken

    def _holds(self, name: str, content: ResultContent) -> bool:
        with self._session.tree.open(self._session.name(name)) as handle, closing(content.chunks()) as chunks:
            offset = 0
            for chunk in chunks:
                if handle.read(offset, len(chunk)) != chunk:
                    return False
                offset += len(chunk)
            return handle.size() == offset

    def _publish(self, name: str, content: ResultContent) -> None:
        with closing(content.chunks()) as chunks:
            is_ours = self._session.tree.publish(self._session.name(name), chunks)
        if not is_ours and not self._holds(name, content):
            raise self._is_another(name)

    def _publish_view(self, name: str, view: bytes) -> None:
        tree, path = self._session.tree, self._session.name(name)
        # One that is not the result's is of no use to anybody: what it shows is in the result.
        if not tree.publish(path, (view,)) and tree.read(path) != view:
            tree.replace(path, (view,))

    def _is_another(self, name: str) -> CorruptError:
        return CorruptError(self._session.path(name), "is not the tool result that belongs there; move it away")

    def _check_new(self, call_id: str, content: ResultContent, view: bytes | None) -> None:
        if self._allowance.is_limited and not self._session.exists():
            record = _record(call_id, layout.tool_result_name(call_id), content, view, 0)
            self._allowance.check_new(self._session, record["total"], [record])

    def _admit(self, tip: Tip, call_id: str, name: str, content: ResultContent, view: bytes | None) -> None:
        if self._allowance.is_limited:
            record = _record(call_id, name, content, view, tip.result_bytes)
            self._allowance.admit(self._session, tip, record["total"] - tip.result_bytes, [record])


def _record(call_id: str, name: str, content: ResultContent, view: bytes | None, others_bytes: int) -> Record:
    return result_record(call_id, name, content.measure(), view, others_bytes=others_bytes, time=now())
