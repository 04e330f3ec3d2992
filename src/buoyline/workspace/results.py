"""Whole tool results in files of their own, and the stubs that stand for them."""

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from buoyline.messages import Text, ToolResult
from buoyline.offloader.lines import count_lines
from buoyline.offloader.protocol import StoredResult
from buoyline.offloader.view import view_of
from buoyline.workspace import layout
from buoyline.workspace.archived import text_digest
from buoyline.workspace.session import Session, now

if TYPE_CHECKING:
    from buoyline.workspace.journal import Index


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
        with self._session.writing() as (index, appender):
            name = self._publish(result.call_id, content)
            if view is not None:
                self._session.tree.publish(self._session.name(layout.view_name(name)), (view.encode("utf-8"),))
            if name not in index.results:
                appender.note(_record(result, name, content, view), index)
            return self._stored(index.results[name])

    def record_stub(self, stub: str, name: str) -> None:
        """Remember that the text *stub* stands for the result in file *name*.

        The record becomes durable with the next commit, before which no archived message can hold the stub.
        """
        digest = text_digest(stub)
        with self._session.writing() as (index, appender):
            if digest not in index.stubs:
                appender.note({"op": "stub", "sha256": digest, "path": name, "time": now()}, index, durable=False)

    def behind(self, stub: str) -> StoredResult | None:
        """Return the result that the text *stub* stands for; None when it is no stub of ours."""
        index: Index = self._session.index()
        record = index.stubs.get(text_digest(stub))
        found = None if record is None else index.results.get(record["path"])
        return None if found is None else self._stored(found)

    def _publish(self, call_id: str, content: bytes) -> str:
        tree = self._session.tree
        name = layout.tool_result_name(call_id)
        if tree.publish(self._session.name(name), (content,)) or tree.read(self._session.name(name)) == content:
            return name
        name = layout.tool_result_variant(call_id, content)
        tree.publish(self._session.name(name), (content,))
        return name

    def _stored(self, record: Mapping[str, Any]) -> StoredResult:
        view = record.get("view")
        return StoredResult(
            reference=self._session.path(record["path"]),
            name=record["path"],
            view=self._session.path(view) if view else "",
            lines=record["lines"],
        )


def _record(result: ToolResult, name: str, content: bytes, view: str | None) -> Mapping[str, Any]:
    blocks = [len(part.text.encode("utf-8", "surrogatepass")) for part in result.parts if isinstance(part, Text)]
    record: dict[str, Any] = {
        "op": "result",
        "call_id": result.call_id,
        "path": name,
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
        "lines": count_lines(result.text if view is None else view),
        "blocks": blocks,
        "time": now(),
    }
    return record if view is None else {**record, "view": layout.view_name(name)}
