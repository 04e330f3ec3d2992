"""Messages of a window as lines of its session's log, and back; and archived ones as a summarizer gets them."""

import copy
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import pairwise
from typing import Any

from buoyline.compression import Compressor, ContextConfig, Pointer, SourceMessage, Summarizer, Summary
from buoyline.compression.compressor import counted_file, excerpts_of
from buoyline.compression.summarizers.model import SummaryFunction
from buoyline.compression.summary import Place
from buoyline.lookups.answer import count_lines, whole_lines
from buoyline.messages import Message, Text
from buoyline.messages.dialect import Dialect
from buoyline.messages.jsonl import now, time_of
from buoyline.messages.payloads import take_out
from buoyline.messages.registry import detect, dialect_named, is_detected
from buoyline.offloader import StoredResult
from buoyline.offloader.protocol import StoredFile
from buoyline.offloader.transcript import render
from buoyline.tokens import TextCounter
from buoyline.tokens.counter import count_message
from buoyline.window.context import OWN, Entry, content_key
from buoyline.window.follower import Given, MessageKey
from buoyline.workspace import layout
from buoyline.workspace.session import Session
from buoyline.workspace.state import LoggedMessage, NewForm, NewLine, Rendered, Stored


@dataclass(frozen=True, slots=True)
class Leaving:
    """Messages that leave a context; they are in the transcript.

    Attributes:
        views: The messages as they are on disk: what is redacted there is in no summary.
        texts: Their lines in the transcript.
        files: Stored results by the text of their stubs.
        max_tokens: Of the summary.
        room_tokens: What the window has room for.
        tokens_before: Of the whole context.
        redact: Takes out of a text what the workspace does not store.
    """

    entries: Sequence[Entry]
    views: Sequence[Message]
    texts: Sequence[Sequence[str]]
    files: Mapping[str, StoredResult]
    rendered: Rendered
    transcript: str
    max_tokens: int
    room_tokens: int
    tokens_before: int
    previous: Summary | None
    redact: Callable[[str], str]

    @property
    def span(self) -> tuple[int, int]:
        """The number of the first message, and the one after the last."""
        return self.entries[0].number, self.entries[-1].number + 1


async def summarized(
    leaving: Leaving,
    *,
    summarizer: Summarizer | SummaryFunction | None,
    config: ContextConfig,
    counter: TextCounter,
    focus: str,
    use_model: bool,
) -> Summary:
    """Return the summary of messages that are archived. Raises what the summarizer raises, except `SummaryError`."""
    (first, end), name, lines = leaving.span, leaving.transcript.rpartition("/")[2], leaving.rendered.lines
    parts = zip(leaving.entries, leaving.views, pairwise(lines), leaving.texts, strict=True)
    sources = [
        SourceMessage(entry.number, view, Pointer(name, start, behind - 1), excerpts_of(view, leaving.files), (*texts,))
        for entry, view, (start, behind), texts in parts
    ]
    results = {counted_file(stored): stored.lines for stored in leaving.files.values()}
    return await Compressor(config=config, counter=counter, summarizer=summarizer).summarize(
        sources,
        Place(0 if leaving.previous else first, end, leaving.transcript, name, lines[-1] - 1, results),
        previous=leaving.previous,
        max_tokens=leaving.max_tokens,
        room_tokens=leaving.room_tokens,
        source_tokens=sum(entry.tokens for entry in leaving.entries),
        focus=focus,
        use_model=use_model,
        redact=leaving.redact,
    )


class Records:
    """Writes and reads the messages of one session. Blocking."""

    def __init__(self, session: Session, counter: TextCounter, dialect: str | None) -> None:
        """Use *session*; without a *dialect* that of each message is detected."""
        self.session = session
        self._counter, self._dialect = counter, dialect

    def entry(self, native: Any, number: int, dialect: str | None = None, **facts: Any) -> Entry:
        """Read and count a message.

        Raises:
            MessageError: It is none.
        """
        name = dialect or self._dialect
        form = dialect_named(name) if name else detect(native)
        view = form.view(native)
        keys = facts.pop("keys", None) or (self.key(form, native, view),)
        return Entry(number, native, form.name, view, count_message(view, self._counter), keys=keys, **facts)

    def split(self, messages: Sequence[Any]) -> Sequence[Any]:
        """Return what each message is split into; see `Dialect.split`."""
        form = dialect_named(self._dialect) if self._dialect else None
        return [piece for one in messages for piece in (form or detect(one)).split(one)]

    def grouped(self, items: Sequence[Any], known_keys: Collection[str] | None = None) -> Sequence[Any]:
        """Return the messages whose items, or which themselves, are *items*; see `Dialect.grouped`."""
        if self._dialect is None:
            return self.split(items)
        form = dialect_named(self._dialect)
        if known_keys is None:
            return form.grouped(items)
        return form.grouped(items, lambda one: self.key(form, one, form.view(one)) in known_keys)

    def key(self, dialect: Dialect, native: Any, view: Message) -> str:
        """Return the hash of what the workspace's redaction leaves of a message: a short secret is guessed."""
        if self.session.redaction.is_active:
            view = dialect.view(self.session.redaction.value(dialect.to_json(native)))
        return content_key(view)

    def line(self, entry: Entry, time: str | None, usage: Mapping[str, Any] | None) -> NewLine:
        """Return the line of a new message."""
        form = self.form(entry)
        facts = form.keys, entry.pinned, form.refs, form.stored, usage, entry.ours
        dialect = self._dialect or ("" if is_detected(form.value, entry.dialect) else entry.dialect)
        return NewLine(form.value, time or time_of(form.value) or now(), dialect, entry.id, *facts)

    def form(self, entry: Entry) -> NewForm:
        """Return the record of a message that has another form from now on."""
        dialect, keys = dialect_named(entry.dialect), entry.keys
        value, refs = take_out(dialect.to_json(entry.native), self.session.put)
        if entry.stored:  # else it is as it came
            keys = tuple(dict.fromkeys((*keys, self.key(dialect, entry.native, entry.message))))
        return NewForm(entry.number, self.session.redaction.value(value), keys, refs, entry.stored)

    def read(self, numbers: Iterable[int]) -> list[Entry]:
        """Return messages of the log in their newest form."""
        return [self._entry_of(line) for line in self.session.read(numbers)]

    def _entry_of(self, line: LoggedMessage) -> Entry:
        dialect = dialect_named(dialect_of(line))
        native = dialect.from_json(self.session.with_payloads(line))
        facts = {"id": line.id, "keys": line.keys, "pinned": line.pinned, "ours": line.ours}
        entry = self.entry(native, line.number, dialect.name, **facts)
        return replace(entry, stored=_stored_in(entry.message, line.stored))

    def given(self, messages: Sequence[Any], key: MessageKey | None, before: Sequence[Given]) -> list[Given]:
        """Read a list; what is as it was in the list *before* is not read again.

        Raises:
            MessageError: One of them is no message.
        """
        made = list[Given]()
        for at, native in enumerate(messages):
            own, old = key(native) if key else "", before[at] if at < len(before) else None
            if old is None or old.id != own or not _is_unchanged(native, old.kept):
                form = dialect_named(self._dialect) if self._dialect else detect(native)
                view, kept = form.view(native), copy.copy(native)
                old = Given(native, kept, view, own, self.key(form, native, view))
            made.append(old)
        return made

    # As they leave the context: what is on disk counts, so that no secret comes into a summary.

    def left(self, numbers: Sequence[int]) -> tuple[list[Message], list[list[str]], dict[str, StoredResult]]:
        """Return archived messages, their lines for the transcript, and the files behind the stubs in them."""
        views, texts, files = list[Message](), list[list[str]](), dict[str, StoredResult]()
        lines = self.session.read(numbers)
        for line in lines:
            views.append(dialect_named(dialect_of(line)).view(line.value))
            files |= self._stubs_in(views[-1], line.stored) | self._recorded_stubs_in(views[-1])
        start = 0
        for at in range(1, len(lines) + 1):  # numbers have gaps where a list was changed
            if at == len(lines) or lines[at].number != lines[at - 1].number + 1:
                times = [line.time for line in lines[start:at]]
                texts += render(views[start:at], lines[start].number, times, lambda text: _place(files.get(text)))
                start = at
        return views, texts, files

    def _stubs_in(self, view: Message, stored: Stored) -> dict[str, StoredResult]:
        """Return the texts that stand for stored content; each names its file. Small texts beside a stub do not."""
        found: dict[str, StoredResult] = {}
        for number, files in _stored_in(view, stored).items():
            parts, kept = view.parts if number == OWN else view.results[number].parts, self._kept(files)
            found |= {part.text: kept for part in parts if isinstance(part, Text) and kept.name in part.text}
        return found

    def _recorded_stubs_in(self, view: Message) -> dict[str, StoredResult]:
        """Return the texts of results that a record names as the stub of one file."""
        found: dict[str, StoredResult] = {}
        for text in [part.text for result in view.results for part in result.parts if isinstance(part, Text)]:
            key = stub_key(text)
            record = next((one for one in self.session.state.results.values() if one.get("stub") == key), None)
            files = [StoredFile(*file) for file in record["files"]] if record else []
            others = [file for file in files[1:] if not layout.is_view_name(file.name)]
            if files and layout.is_result_name(files[0].name) and not others:
                found[text] = self._kept(files)
        return found

    def _kept(self, files: Sequence[StoredFile]) -> StoredResult:
        """Return what *files* hold: a result, its view, and others."""
        name, shown = files[0].name, next((one.name for one in files[1:] if layout.is_view_name(one.name)), "")
        chunks = self.session.disk.chunks(f"{self.session.name}/{shown or name}")
        lines, path = count_lines(whole_lines(chunks)), self.session.path_of
        return StoredResult(path(name), name, shown and path(shown), lines)


def _is_unchanged(native: Any, kept: Any) -> bool:
    """Return whether an object is as its copy; some classes of messages do not compare fields."""
    compares_fields: object = type(native).__eq__
    if compares_fields is object.__eq__:
        fields, known = (getattr(one, "__dict__", None) for one in (native, kept))
        return bool(fields == known)
    return bool(native == kept)


def _stored_in(view: Message, stored: Stored) -> Stored:
    """Return the stored content that *view* still stands for: its owner may have changed it since."""
    texts = {number: result.text for number, result in enumerate(view.results)}
    return {
        number: files for number, files in stored.items() if number == OWN or files[0].name in texts.get(number, "")
    }


def stub_key(text: str) -> str:
    """Return what a ``result`` record keeps of the text that stands for its file."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def dialect_of(line: LoggedMessage) -> str:
    """Return the name of a line's dialect."""
    return line.dialect or detect(line.value).name


def _place(stored: StoredResult | None) -> str | None:
    if stored is None:
        return None
    return f"[offloaded: {stored.lines:,} lines in {stored.view.rpartition('/')[2] or stored.name}]"
