"""``summaries.jsonl`` and ``window.jsonl`` of a session."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from buoyline.errors import CorruptError, NotFoundError, SessionExistsError, StorageError
from buoyline.messages import detect, parse, spell
from buoyline.offloader.protocol import WindowState
from buoyline.workspace import layout
from buoyline.workspace.journal import Index, Record, extent_fields
from buoyline.workspace.session import Session, now


class Summaries:
    """The summaries of a session, one line each."""

    def __init__(self, session: Session) -> None:
        """Keep them in *session*."""
        self._session = session

    def add(self, summary: Mapping[str, Any]) -> int:
        """Append *summary* with its number as ``n``, counted from 1; durable on return.

        Raises:
            StorageError: The file system refused; nothing was changed.
        """
        with self._session.writing() as (index, appender):
            number = len(index.summaries) + 1
            line = spell({**summary, "n": number}).encode("utf-8") + b"\n"
            appender.set_aside_behind(layout.SUMMARIES_FILE, index.summaries_end)
            appender.commit(
                layout.SUMMARIES_FILE,
                [line],
                index,
                lambda extent: {"op": "summary", **extent_fields(extent)},
            )
            return number

    def load(self) -> list[dict[str, Any]]:
        """Return all summaries in order.

        Raises:
            NotFoundError: There is no such session.
            CorruptError: A line is not what was written.
        """
        index = self._session.index()
        name = self._session.name(layout.SUMMARIES_FILE)
        summaries: list[dict[str, Any]] = []
        for extent in index.summaries:
            content = self._session.tree.read(name, extent.offset, sum(extent.sizes))
            if not extent.holds(content):
                reason = f"summary {len(summaries) + 1} is not what was written"
                raise CorruptError(self._session.path(layout.SUMMARIES_FILE), reason)
            summaries.append(parse(content))
        return summaries


class Window:
    """What stands in a session's context: ``window.jsonl``, one message a line.

    It grows line by line and is replaced at a compression. What it begins with is noted in the journal before
    it is replaced; whichever of the last two notes matches the bytes is the true one, so a crash between note
    and replacement does no harm.
    """

    def __init__(self, session: Session) -> None:
        """Keep it in *session*."""
        self._session = session

    def start(self, settings: Mapping[str, Any]) -> None:
        """Begin with an empty context.

        Raises:
            SessionExistsError: The session has messages or a window already.
        """
        with self._session.writing() as (index, appender):
            if index.batches or index.windows:
                raise SessionExistsError(self._session.session_id, self._session.tree.path(self._session.directory))
            appender.note({"op": "settings", "settings": settings, "time": now()}, index, durable=False)
            appender.note(_note(b"", (), 0, ()), index)
            self._session.tree.replace(self._session.name(layout.WINDOW_FILE), ())

    def extend(self, messages: Sequence[Any], pins: Sequence[int]) -> None:
        """Append messages that were added to the context, and note the pins where they changed; durable."""
        with self._session.writing() as (index, appender):
            appender.append_lines(layout.WINDOW_FILE, [_line(message) for message in messages])
            if tuple(pins) != index.pins:
                appender.note({"op": "pins", "pins": list(pins), "time": now()}, index)

    def replace(self, messages: Sequence[Any], head: Sequence[str], first: int, pins: Sequence[int]) -> None:
        """Put down the context after a compression; durable on return."""
        content = b"".join(_line(message) for message in messages)
        with self._session.writing() as (index, appender):
            before = index.end
            appender.note(_note(content, head, first, pins), index)
            try:
                self._session.tree.replace(self._session.name(layout.WINDOW_FILE), (content,))
            except StorageError:
                appender.take_back(before)
                raise

    def load(self) -> WindowState:
        """Return what stands in the context.

        Raises:
            NotFoundError: There is no such session, or it never had a window.
            CorruptError: The file does not begin with what was written.
        """
        index = self._session.index()
        if not index.windows:
            raise NotFoundError("window in session", self._session.session_id, "start it with ContextWindow(...)")
        content = self._session.tree.read(self._session.name(layout.WINDOW_FILE))
        content = content[: content.rfind(b"\n") + 1]
        note = self._matching(index, content)
        messages = tuple((detect(value).name, value) for value in map(parse, content.split(b"\n")[:-1]))
        return WindowState(
            messages=messages,
            head=tuple(note["head"]),
            first=note["first"],
            pins=index.pins,
            settings=index.settings.get("settings", {}),
            archived=index.messages,
        )

    def _matching(self, index: Index, content: bytes) -> Record:
        for note in reversed(index.windows):
            if hashlib.sha256(content[: note["bytes"]]).hexdigest() == note["sha256"]:
                return note
        raise CorruptError(
            self._session.path(layout.WINDOW_FILE),
            "does not begin with what was written; the archive beside it is whole, begin a new session from it",
        )


def _note(content: bytes, head: Sequence[str], first: int, pins: Sequence[int]) -> Record:
    return {
        "op": "window",
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
        "head": list(head),
        "first": first,
        "pins": list(pins),
        "time": now(),
    }


def _line(message: object) -> bytes:
    return spell(detect(message).to_json(message)).encode("utf-8") + b"\n"
