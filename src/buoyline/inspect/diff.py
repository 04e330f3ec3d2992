"""Shows what a model saw before and after a compaction, from the files on disk."""

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from buoyline.compression import Pointer
from buoyline.compression.citations import BETWEEN
from buoyline.compression.pointers import POINTER
from buoyline.errors import CorruptError, NotFoundError, StorageError
from buoyline.lookups.text import merged, numbered, whole_lines
from buoyline.messages import Message, Text, spell
from buoyline.messages.registry import dialect_named
from buoyline.tokens import default_counter
from buoyline.tokens.messages import count_message
from buoyline.workspace import Files, LocalWorkspace, StoredSession, layout
from buoyline.workspace.batches import ArchivedMessage
from buoyline.workspace.journal import Record, decode, lines_of, text_digest
from buoyline.workspace.records import window_lines

_FIRST_CHARS = 120
_FIRST_LINES = 6
"""So many lines of a citation are searched for words: a heading, a blank line and a call come first."""

_AROUND = f" \t-*,;.{BETWEEN.strip()}"


@dataclass(frozen=True, slots=True)
class Citation:
    """Lines of a file in the session's directory, 1-based and inclusive; *begins* has their first words."""

    path: str
    start: int
    end: int
    begins: str
    is_there: bool


@dataclass(frozen=True, slots=True)
class Sentence:
    """A part of a summary, without its citations and with the lines that they name."""

    field: str
    text: str
    citations: tuple[Citation, ...]


def cited_sentences(fields: Mapping[str, str]) -> list[tuple[str, str, tuple[Pointer, ...]]]:
    """Return field, text and citations of each sentence of a summary, in order. Pure.

    A sentence ends with its last citation, or with its line.
    """
    found: list[tuple[str, str, tuple[Pointer, ...]]] = []
    for name, line in [(name, line) for name, text in fields.items() for line in text.split("\n")]:
        said, cited, position = "", list[Pointer](), 0
        for match in POINTER.finditer(line):
            between = line[position : match.start()].strip(_AROUND)
            if between and cited:
                found.append((name, said, tuple(cited)))
                cited = []
            said, position = between or said, match.end()
            cited.extend(Pointer.all_of(match))
        rest = line[position:].strip(_AROUND)
        if cited:
            found.append((name, said, tuple(cited)))
        if rest:
            found.append((name, rest, ()))
    return found


def resolved(
    sentences: Iterable[tuple[str, str, tuple[Pointer, ...]]], files: Mapping[str, str], source: Files
) -> list[Sentence]:
    """Look up the lines that each sentence cites; every file is read once.

    *files* has names in *source* by those that citations use; no other file is opened, whatever a summary says.
    """
    listed = list(sentences)
    wanted = {pointer for _, _, cited in listed for pointer in cited}
    found: dict[Pointer, str | None] = {}
    for path, pointers in itertools.groupby(sorted(wanted), key=lambda pointer: pointer.path):
        found |= _beginnings(list(pointers), files.get(path), source)
    citations = {
        pointer: Citation(pointer.path, pointer.start, pointer.end, begins or "", begins is not None)
        for pointer, begins in found.items()
    }
    return [Sentence(name, said, tuple(citations[pointer] for pointer in cited)) for name, said, cited in listed]


def _beginnings(pointers: list[Pointer], name: str | None, source: Files) -> dict[Pointer, str | None]:
    """Return the first words of each citation of one file; None if a line of it does not exist.

    These are its first line with words of its own: the transcript's headings only name the speaker.
    """
    found: dict[Pointer, str | None] = dict.fromkeys(pointers)
    if name is None:
        return found
    first_lines = {each: range(each.start, min(each.end, each.start + _FIRST_LINES - 1) + 1) for each in pointers}
    wanted = {pointer.end for pointer in pointers}.union(*first_lines.values())
    found_lines = numbered(whole_lines(source.chunks(name)), merged((line, line) for line in wanted))
    lines = {number: line[:_FIRST_CHARS] for number, line in found_lines}
    for pointer in pointers:
        if 1 <= pointer.start <= pointer.end and pointer.end in lines:
            shown = [text for line in first_lines[pointer] if (text := lines.get(line, "").strip())]
            words = (text for text in shown if not text.startswith("#") and text != "(reasoning)")
            found[pointer] = next(words, next(iter(shown), ""))
    return found


# ``window.jsonl`` holds only the present context. But the journal noted size and hash each time that it was replaced,
# and each of its lines is still in the archive, in ``summaries.jsonl`` or in the window. So an earlier file can be
# written again, line by line, and the hash proves that it is the same.


@dataclass(frozen=True, slots=True)
class WindowSnapshot:
    """A window right after a compaction: indexes of archived prefix messages, and the end of all."""

    head: tuple[int, ...]
    end: int


def reconstructed_window(session: StoredSession, number: int, summary: Mapping[str, Any]) -> WindowSnapshot | None:
    """Return the window right after *summary*, the line *number* of ``summaries.jsonl``, was added to it.

    None if the journal has no note of it (there is no window, the journal was rebuilt, or the summary was never shown),
    or if the files no longer give the noted bytes: a kept message was shrunk later, or is damaged.

    Raises:
        NotFoundError: There is no such session.
        CorruptError: Its journal is gone.
    """
    first_kept: int = summary["messages"][1]
    if first_kept > session.index().messages:
        return None
    note = _note_behind(session.files.read(session.name(layout.JOURNAL_FILE)), number, first_kept)
    if note is None or not note["head"] or note["head"][-1] != "summary":
        return None
    staying = list(_prefix_messages(session, note))
    try:
        lines = [archive_line(session, message) for message in staying]
        (last,) = session.messages(first_kept - 1, first_kept)
        shown = dialect_named(last.dialect).user_message(str(summary.get("text", "")))
        lines.append(window_lines([shown], []))
        kept = _matched(chain(lines, _lines_from(session, first_kept)), note)
    except (CorruptError, StorageError):
        return None
    if kept is None:
        return None
    return WindowSnapshot(tuple(message.number for message in staying), first_kept + kept - len(lines))


def archive_line(session: StoredSession, message: ArchivedMessage) -> bytes:
    """Return the line of an archived message in ``window.jsonl``.

    Raises:
        CorruptError: A blob of it is not as it was stored.
        StorageError: A blob of it is gone.
    """
    return window_lines([session.with_payloads(message)], [])


def _note_behind(journal: bytes, number: int, first_kept: int) -> Record | None:
    """Return the first note of a window that begins with message *first_kept*, behind summary *number*.

    After a crash, a note of the window before may come in between.
    """
    summaries = 0
    for _, line in lines_of(journal, 0):
        record = decode(line)
        if record is None:
            continue
        summaries += record["op"] == "summary"
        if record["op"] == "window" and summaries == number and record["first"] == first_kept:
            return record
    return None


def _prefix_messages(session: StoredSession, note: Record) -> Iterator[ArchivedMessage]:
    """Yield the archived messages among the prefix messages, oldest first, and read no further than the last."""
    wanted, pins = len(note["head"]) - 1, set(note["pins"])
    # A damaged batch is passed over: the hash shows whether it was needed.
    for message in session.messages(0, note["first"], on_damage=lambda _: None) if wanted else ():
        if message.number in pins or message.view.role == "system":
            yield message
            wanted -= 1
        if not wanted:
            return


def _lines_from(session: StoredSession, first: int) -> Iterator[bytes]:
    """Yield the lines of the messages from *first* on: those archived since, then those that are in the window now."""
    following = first
    for message in session.messages(first):
        yield archive_line(session, message)
        following = message.number + 1
    try:
        window = session.window()
    except NotFoundError:
        return
    for _, value in window.messages[len(window.head) + max(following - window.first, 0) :]:
        yield window_lines([value], [])


def _matched(lines: Iterator[bytes], note: Record) -> int | None:
    """Return how many of *lines* are the bytes of *note*; None if they differ."""
    digest, size_bytes, count = hashlib.sha256(), 0, 0
    while size_bytes < note["bytes"]:
        line = next(lines, b"")
        if not line:
            return None
        digest.update(line)
        size_bytes += len(line)
        count += 1
    return count if size_bytes == note["bytes"] and digest.hexdigest() == note["sha256"] else None


_BEGIN_CHARS = 100


@dataclass(frozen=True, slots=True)
class OffloadedFile:
    """The file of an offloaded result. *view* is empty if the file is readable as it is."""

    path: str
    view: str
    lines: int
    bytes: int


@dataclass(frozen=True, slots=True)
class SeenMessage:
    """A message as the model last saw it.

    *lines* are those in ``transcript.md``, None if it is not archived. If *stands_again*, it is archived and still in
    the context, as a system message or a pin.
    """

    message: int
    role: str
    tool: str
    tokens: int
    lines: tuple[int, int] | None
    begins: str
    offloaded: tuple[OffloadedFile, ...]
    stands_again: bool = False


@dataclass(frozen=True, slots=True)
class Difference:
    """The changes of a compaction. The names of the fields are the keys of ``buoyline diff --json``.

    Attributes:
        summary: The line of ``summaries.jsonl`` that replaced messages.
        head: Archived messages before the summary, the same before and after.
        left: The messages that were archived, in order.
        stayed: The messages kept behind the summary; None if the files do not say, or one of them was shrunk since.
    """

    session_id: str
    summary: Mapping[str, Any]
    head: tuple[SeenMessage, ...]
    left: tuple[SeenMessage, ...]
    stayed: tuple[SeenMessage, ...] | None
    sentences: tuple[Sentence, ...]


def difference(
    workspace: LocalWorkspace,
    session_id: str,
    number: int,
    *,
    on_message: Callable[[int, int], None] | None = None,
) -> Difference:
    """Return the changes of compaction *number*, counted from 1, of a session. Blocks; reads only.

    Tokens are those of the default counter; the session's window may have used another. *on_message* is called with
    the number of messages read, and the number to read.

    Raises:
        NotFoundError: There is no such session or compaction.
        CorruptError: A file is not as it was written.
    """
    session = workspace.session(session_id)
    summaries = session.summaries()
    if not 1 <= number <= len(summaries):
        raise NotFoundError("summary", str(number), f"session {session_id!r} has {len(summaries)}")
    summary = summaries[number - 1]
    first, end = _message_range(summary, session.path(layout.SUMMARIES_FILE), session.index().messages)
    snapshot = reconstructed_window(session, number, summary)
    read = _SessionReader(session, snapshot, on_message)
    index = session.index()
    read.total = (end if snapshot is None else snapshot.end) - first
    head, left = read.head(first), read.archived(first, end)
    stayed = None if snapshot is None else (*read.archived(end, snapshot.end), *read.in_window(snapshot.end))
    citable = [layout.TRANSCRIPT_FILE, *(record.get("view") or path for path, record in index.results.items())]
    files = {name: session.name(name) for name in citable if session.files.exists(session.name(name))}
    fields: Mapping[str, Any] = summary.get("fields") or {}
    sentences = cited_sentences({name: str(text) for name, text in fields.items()})
    return Difference(
        session_id=session_id,
        summary=summary,
        head=head,
        left=left,
        stayed=stayed,
        sentences=tuple(resolved(sentences, files, session.files)),
    )


class _SessionReader:
    """Reads messages of a session, and returns each as `SeenMessage`."""

    def __init__(
        self,
        session: StoredSession,
        snapshot: WindowSnapshot | None,
        on_message: Callable[[int, int], None] | None,
    ) -> None:
        self.total = 0
        self._session = session
        self._index = session.index()
        self._prefix = frozenset(() if snapshot is None else snapshot.head)
        self._on_message = on_message
        self._done = 0
        self._tools: dict[str, str] = {}

    def head(self, first: int) -> tuple[SeenMessage, ...]:
        """Return the archived messages before *first* that are prefix messages."""
        before = sorted(number for number in self._prefix if number < first)
        return tuple(seen for number in before for seen in self._seen(number, number + 1))

    def archived(self, first: int, end: int) -> tuple[SeenMessage, ...]:
        """Return the archived messages from *first* up to *end*."""
        return tuple(self._seen(first, min(end, self._index.messages)))

    def in_window(self, end: int) -> Iterator[SeenMessage]:
        """Yield the messages before *end* that are not archived, from the present window."""
        first = self._index.messages
        if first >= end:
            return
        window = self._session.window()
        behind_head = window.messages[len(window.head) :][first - window.first : end - window.first]
        for number, (dialect, value) in enumerate(behind_head, first):
            yield self._show(number, dialect_named(dialect).view(value), None)

    def _seen(self, first: int, end: int) -> Iterator[SeenMessage]:
        if first >= end:
            return
        ranges = self._session.line_ranges(first, end)
        for message in self._session.messages(first, end):
            try:  # images and documents count by size
                view = dialect_named(message.dialect).view(self._session.with_payloads(message))
            except (CorruptError, StorageError):  # they are gone
                view = message.view
            yield self._show(message.number, view, ranges[message.number - first])

    def _show(self, number: int, view: Message, lines: tuple[int, int] | None) -> SeenMessage:
        self._tools.update((call.call_id, call.name) for call in view.calls)
        self._done += 1
        if self._on_message is not None:
            self._on_message(self._done, self.total)
        results = (result.name or self._tools.get(result.call_id, "") for result in view.results)
        return SeenMessage(
            message=number,
            role=view.role,
            tool=", ".join(dict.fromkeys(filter(None, (*(call.name for call in view.calls), *results)))),
            tokens=count_message(view, default_counter()),
            lines=lines,
            begins=_beginning(view),
            offloaded=tuple(self._offloaded(view)),
            stands_again=number in self._prefix,
        )

    def _offloaded(self, view: Message) -> Iterator[OffloadedFile]:
        """Yield the files of the stubs in *view*, each once."""
        parts = (*view.parts, *(part for result in view.results for part in result.parts))
        stubs = (self._index.find_stub(text_digest(part.text)) for part in parts if isinstance(part, Text))
        for path in dict.fromkeys(stub["path"] for stub in stubs if stub is not None):
            record = self._index.find_result(path)
            if record is not None:
                yield OffloadedFile(path, record.get("view", ""), record["lines"], record["bytes"])


def _message_range(summary: Mapping[str, Any], path: str, archived: int) -> tuple[int, int]:
    """Return the message range of *summary*, which a window need not have written."""
    match summary.get("messages"):
        case [int(first), int(end)] if 0 <= first < end <= archived:
            return first, end
        case said:
            problem = f"summary {summary['n']} is about messages {spell(said)}; {archived:,} are archived"
            raise CorruptError(path, problem)


def _beginning(view: Message) -> str:
    """Return the first words of a message: its own, those of its first result, or the arguments of its first call."""
    said = [view.text, *(result.text for result in view.results), *(call.arguments for call in view.calls)]
    text = next(filter(None, (" ".join(text[: 4 * _BEGIN_CHARS].split()) for text in said)), "")
    return text if len(text) <= _BEGIN_CHARS else f"{text[:_BEGIN_CHARS]}…"
