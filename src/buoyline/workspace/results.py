"""Whole tool results in files of their own, and the stubs that stand for them."""

from collections.abc import Sequence

from buoyline.messages import ToolResult
from buoyline.offloader.protocol import StoredResult
from buoyline.offloader.view import view_of
from buoyline.workspace import layout
from buoyline.workspace.archived import text_digest
from buoyline.workspace.records import result_record, stored_result, stub_record
from buoyline.workspace.session import Session, now


class Results:
    """The tool results of a session."""

    def __init__(self, session: Session) -> None:
        """Store into *session*."""
        self._session = session

    def store(self, result: ToolResult) -> StoredResult:
        """Store the whole text of *result*; durable on return.

        The same id with the same content is the same file; with other content it is one more file, since ids
        repeat in real sessions.

        Raises:
            StorageError: The file system refused; no file has its final name.
        """
        text = result.text
        content = text.encode("utf-8", "surrogatepass")
        view = view_of(text)
        with self._session.writing() as (tip, appender):
            name = self._publish(result.call_id, content)
            if view is not None:
                self._session.tree.publish(self._session.name(layout.view_name(name)), (view.encode("utf-8"),))
            record = tip.find_result(name)
            if record is None:
                record = result_record(result, name, content, view, now())
                appender.note({**record, "total": tip.result_bytes + _stored_bytes(content, view)})
            return stored_result(record, self._session.path)

    def record_stub(self, stub: str, name: str) -> None:
        """Remember that the text *stub* stands for the result in file *name*.

        The record becomes durable with the next commit, before which no archived message can hold the stub.
        """
        digest = text_digest(stub)
        with self._session.writing() as (tip, appender):
            if tip.find_stub(digest) is None:
                appender.note(stub_record(stub, name, now()), durable=False)

    def behind_all(self, texts: Sequence[str]) -> dict[str, StoredResult]:
        """Return those of *texts* that are stubs of ours, with the results that they stand for."""
        return {text: stored for text in texts if (stored := self.behind(text)) is not None}

    def behind(self, stub: str) -> StoredResult | None:
        """Return the result that the text *stub* stands for; None when it is no stub of ours."""
        index = self._session.index()
        record = index.find_stub(text_digest(stub))
        found = None if record is None else index.find_result(record["path"])
        return None if found is None else stored_result(found, self._session.path)

    def _publish(self, call_id: str, content: bytes) -> str:
        tree = self._session.tree
        name = layout.tool_result_name(call_id)
        if tree.publish(self._session.name(name), (content,)) or tree.read(self._session.name(name)) == content:
            return name
        name = layout.tool_result_variant(call_id, content)
        tree.publish(self._session.name(name), (content,))
        return name


def _stored_bytes(content: bytes, view: str | None) -> int:
    return len(content) + (0 if view is None else len(view.encode("utf-8")))
