"""Messages of a window as lines of its session's log, and back; and how they read in the transcript."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from buoyline.context.entries import OWN, Entry, content_key, entry_of
from buoyline.messages import Message, Text
from buoyline.messages.dialect import Dialect
from buoyline.messages.payloads import take_out
from buoyline.messages.registry import detect, dialect_named
from buoyline.offloader import StoredResult
from buoyline.offloader.transcript import render
from buoyline.store import layout
from buoyline.store.session import Session
from buoyline.store.state import Line, NewForm, NewLine, Stored
from buoyline.tokens import TextCounter


class Records:
    """Writes and reads the messages of one session. Blocking."""

    def __init__(self, session: Session, counter: TextCounter, dialect: str | None) -> None:
        """Use *session*; without a *dialect* that of each message is detected."""
        self.session = session
        self._counter, self._dialect = counter, dialect

    def entry(self, native: Any, number: int, **facts: Any) -> Entry:
        """Read a new message; see `entry_of`."""
        entry = entry_of(native, number, self._counter, dialect=self._dialect, **facts)
        return replace(entry, keys=(self.key(dialect_named(entry.dialect), native, entry.message),))

    def key(self, dialect: Dialect, native: Any, view: Message) -> str:
        """Return the hash of what the workspace's redaction leaves of a message: a short secret is guessed."""
        if self.session.redaction.is_active:
            view = dialect.view(dialect.from_json(self.session.redaction.value(dialect.to_json(native))))
        return content_key(view)

    def line(self, entry: Entry, time: str, usage: Mapping[str, Any] | None) -> NewLine:
        """Return the line of a new message."""
        form = self.form(entry)
        facts = form.keys, entry.pinned, form.refs, form.stored, usage, entry.ours
        return NewLine(form.value, time, self._dialect or "", entry.id, *facts)

    def form(self, entry: Entry) -> NewForm:
        """Return the record of a message that has another form from now on."""
        value, refs = take_out(entry.value(), self.session.put)
        keys = entry.keys
        if entry.stored:  # else it is as it came
            key = self.key(dialect_named(entry.dialect), entry.native, entry.message)
            keys = tuple(dict.fromkeys((*keys, key)))
        return NewForm(entry.number, self.session.redaction.value(value), keys, refs, entry.stored)

    def read(self, numbers: Iterable[int]) -> list[Entry]:
        """Return messages of the log in their newest form."""
        return [self._entry_of(line) for line in self.session.read(numbers)]

    def _entry_of(self, line: Line) -> Entry:
        dialect = dialect_named(dialect_of(line))
        native = dialect.from_json(self.session.with_payloads(line))
        entry = entry_of(native, line.number, self._counter, dialect=dialect.name, id=line.id)
        stored = _stored_in(entry.message, line.stored)
        return replace(entry, keys=line.keys, pinned=line.pinned, ours=line.ours, stored=stored)

    # As they leave the context: what is on disk counts, so that no secret comes into a summary.

    def left(self, numbers: Sequence[int]) -> tuple[list[Any], list[list[str]], dict[str, StoredResult]]:
        """Return archived messages, their lines for the transcript, and the files behind the stubs in them."""
        natives, views, texts, files = list[Any](), list[Message](), list[list[str]](), dict[str, StoredResult]()
        lines = self.session.read(numbers)
        for line in lines:
            dialect = dialect_named(dialect_of(line))
            natives.append(dialect.from_json(line.value))
            views.append(dialect.view(natives[-1]))
            files |= self._stubs_in(views[-1], line.stored)
        start = 0
        for at in range(1, len(lines) + 1):  # numbers have gaps where a list was changed
            if at == len(lines) or lines[at].number != lines[at - 1].number + 1:
                times = [line.time for line in lines[start:at]]
                texts += render(views[start:at], lines[start].number, times, lambda text: _place(files.get(text)))
                start = at
        return natives, texts, files

    def _stubs_in(self, view: Message, stored: Stored) -> dict[str, StoredResult]:
        """Return the texts that stand for stored content; each names its file. Small texts beside a stub do not."""
        found: dict[str, StoredResult] = {}
        for number, (file, *others) in _stored_in(view, stored).items():
            parts = view.parts if number == OWN else view.results[number].parts
            shown = next((other.name for other in others if layout.is_view_name(other.name)), "")
            chunks = self.session.disk.chunks(f"{self.session.name}/{shown or file.name}")
            lines, path = sum(chunk.count(b"\n") for chunk in chunks), self.session.path_of
            kept = StoredResult(path(file.name), file.name, shown and path(shown), lines)
            found |= {part.text: kept for part in parts if isinstance(part, Text) and file.name in part.text}
        return found


def _stored_in(view: Message, stored: Stored) -> Stored:
    """Return the stored content that *view* still stands for: its owner may have changed it since."""
    texts = {number: result.text for number, result in enumerate(view.results)}
    return {
        number: files for number, files in stored.items() if number == OWN or files[0].name in texts.get(number, "")
    }


def dialect_of(line: Line) -> str:
    """Return the name of a line's dialect."""
    return line.dialect or detect(line.value).name


def _place(stored: StoredResult | None) -> str | None:
    if stored is None:
        return None
    return f"[offloaded: {stored.lines:,} lines in {stored.view.rpartition('/')[2] or stored.name}]"
