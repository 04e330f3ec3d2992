"""What a session is: its messages and records as data, and `SessionState`, which the records of ``state.jsonl`` make.

Pure. A record is ``{"op": …}`` with a time and the session's ``end`` (the number of its next message) among its facts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from buoyline.messages.jsonl import is_array
from buoyline.messages.payloads import Reference
from buoyline.offloader.protocol import StoredFile
from buoyline.workspace.log import Facts, LogLine

Range = tuple[int, int]
"""The first number, and the one after the last."""

_FORM = b'{"op":"form"'


Stored = Mapping[int, tuple[StoredFile, ...]]
"""The files of each place of a message: the number of its result, or -1 for its own text or arguments."""


@dataclass(frozen=True, slots=True)
class NewLine:
    """A message to append.

    Attributes:
        value: Its JSON, with references in place of payloads.
        time: ISO 8601, or empty.
        dialect: Its name if it cannot be detected in *value*; else empty.
        id: The caller's key; may be empty.
        keys: Hashes of its content as it came and as it is written.
        refs: The payloads that were taken out.
        stored: Its files.
        usage: The provider's count of the request before it, if known, with the number of the first message after it.
        ours: buoyline wrote it, not the agent.
    """

    value: Mapping[str, Any]
    time: str = ""
    dialect: str = ""
    id: str = ""
    keys: tuple[str, ...] = ()
    pinned: bool = False
    refs: tuple[Reference, ...] = ()
    stored: Stored = field(default_factory=dict[int, tuple[StoredFile, ...]])
    usage: Mapping[str, Any] | None = None
    ours: bool = False

    def facts(self) -> Facts:
        """Return what its line says beside the message."""
        facts: Facts = {
            "time": self.time,
            "dialect": self.dialect,
            "id": self.id,
            "keys": self.keys,
            "pinned": self.pinned,
            "refs": refs_to_json(self.refs),
            "stored": stored_to_json(self.stored),
            "usage": self.usage,
            "ours": self.ours,
        }
        return {key: value for key, value in facts.items() if value}


@dataclass(frozen=True, slots=True)
class LoggedMessage(NewLine):
    """A message of the log, in its newest form.

    Attributes:
        keys: Those of all its forms.
        archived: It was appended by `offload_context`: it was never in a window.
        line: The first line of an archived message in the transcript; 0 for others.
    """

    number: int = 0
    archived: bool = False
    line: int = 0


@dataclass(frozen=True, slots=True)
class NewForm:
    """A message as the context has it from now on: with a stub, shrunk, without images.

    Attributes:
        value: The whole message, with references in place of payloads.
        stored: Its files, but for those that its line names already.
    """

    number: int
    value: Mapping[str, Any]
    keys: tuple[str, ...] = ()
    refs: tuple[Reference, ...] = ()
    stored: Stored = field(default_factory=dict[int, tuple[StoredFile, ...]])

    def facts(self) -> Facts:
        """Return what its record says beside the message; `SessionState` reads no more of it."""
        facts: Facts = {
            "keys": self.keys,
            "refs": refs_to_json(self.refs),
            "stored": stored_to_json(self.stored),
        }
        return {"number": self.number, **{key: value for key, value in facts.items() if value}}


class Keys(NamedTuple):
    """What identifies a message in a list that is followed."""

    number: int
    id: str
    keys: tuple[str, ...]
    ours: bool
    archived: bool


class Transcript(NamedTuple):
    """The recorded part of ``transcript.md``: bytes after *length* do not count."""

    length: int = 0
    crc: str = "00000000"
    lines: int = 0


class Rendered(NamedTuple):
    """What `Session.archive` appended.

    Attributes:
        transcript: The transcript with it, for the record that commits it.
        lines: The first line of each message, 1-based, and the line after the last one.
    """

    transcript: Transcript
    lines: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ContextRecord:
    """The context from now on; the commit of a compaction or fork.

    Attributes:
        ranges: Numbers of the messages of the conversation, in order; those after the record's `end` follow.
        until: So many of them are archived.
        systems: Numbers of archived system messages that are in the context.
        pins: Numbers of archived messages that are quoted.
        summary: Number of the summary in ``summaries.jsonl``.
        notice: Text in place of a summary, or in front of it.
        transcript: From `Rendered`; None if nothing was archived since the last record.
        left: Numbers of the messages that were archived by this record, in order.
        lines: From `Rendered`: first transcript line of each of *left*, and the line after.
    """

    ranges: tuple[Range, ...]
    until: int = 0
    systems: tuple[int, ...] = ()
    pins: tuple[int, ...] = ()
    summary: int | None = None
    notice: str = ""
    transcript: Transcript | None = None
    left: tuple[Range, ...] = ()
    lines: tuple[int, ...] = ()
    end: int = 0
    time: str = ""

    @property
    def numbers(self) -> list[int]:
        """The numbers in *ranges*."""
        return [number for first, end in self.ranges for number in range(first, end)]

    def to_json(self) -> dict[str, Any]:
        """Return the record."""
        return {"op": "context", **{name: getattr(self, name) for name in _CONTEXT}}

    @classmethod
    def from_json(cls, record: Mapping[str, Any], facts: Facts) -> "ContextRecord":
        """Return the record of a line."""
        found = {name: _as_tuples(record[name]) for name in _CONTEXT}
        if found["transcript"]:
            found["transcript"] = Transcript(*found["transcript"])
        return cls(**found, end=facts["end"], time=facts["time"])


_CONTEXT = [found.name for found in fields(ContextRecord) if found.name not in {"end", "time"}]


@dataclass(slots=True)
class SessionState:
    """A session as its logs describe it.

    Attributes:
        session_id: As record 0 names it; empty if there is none.
        end: Number of the next message.
        settings: Of the window; None if no window wrote any.
        context: None before the first compaction or fork: all messages are in the context.
        forms: Number of the newest ``form`` record of a message.
        form_keys: Keys that forms added, by message.
        results: The ``result`` records by the name of their file, each with its ``time``.
        usage: Of a window that was closed before another message took it.
        claim: Writer of the newest claim; empty in a plain session.
        named_summaries: How many summaries the records name.
        transcript: The recorded part of the transcript.
        places: First transcript line of each archived message, and the line after it.
        starts: First lines of all messages in the transcript, also of those that were archived again.
        damaged: Numbers of records that cannot be read.
    """

    session_id: str = ""
    end: int = 0
    settings: dict[str, Any] | None = None
    context: ContextRecord | None = None
    forms: dict[int, int] = field(default_factory=dict[int, int])
    form_keys: dict[int, tuple[str, ...]] = field(default_factory=dict[int, tuple[str, ...]])
    results: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    usage: dict[str, Any] | None = None
    claim: str = ""
    named_summaries: int = 0
    records: int = 0
    transcript: Transcript = field(default_factory=Transcript)
    places: dict[int, Range] = field(default_factory=dict[int, Range])
    starts: list[int] = field(default_factory=list[int])
    damaged: list[int] = field(default_factory=list[int])

    @property
    def exists(self) -> bool:
        """Whether the session was ever written to."""
        return self.records > 0

    @property
    def is_plain(self) -> bool:
        """Whether its messages come from `offload_context`, not from a window."""
        return self.end > 0 and not self.claim

    @property
    def order(self) -> list[int]:
        """The numbers of the conversation, archived ones included."""
        known = self.context or ContextRecord(())
        return [*known.numbers, *range(known.end, self.end)]

    @property
    def live(self) -> list[int]:
        """The numbers of the messages in the context; none in a plain session."""
        return [] if self.is_plain else self.order[self.context.until if self.context else 0 :]

    def fold(self, line: LogLine) -> None:
        """Take in a record.

        Raises:
            KeyError, TypeError, ValueError: It is none of ours.
        """
        if line.raw.startswith(_FORM):  # its value is read when somebody asks for it
            number, keys = line.facts["number"], line.facts.get("keys", ())
            self.forms[number] = line.number
            self.form_keys[number] = tuple(dict.fromkeys((*self.form_keys.get(number, ()), *keys)))
        else:
            self._fold_record(line.value, line.facts)
        self.damaged += range(self.records, line.number)
        self.records = line.number + 1

    def _fold_record(self, record: Mapping[str, Any], facts: Facts) -> None:
        match record["op"]:
            case "session":
                self.session_id = record["id"]
            case "settings":
                self.settings = record["settings"]
            case "claim":
                self.claim = record["writer"]
            case "usage":
                self.usage = record["usage"]
            case "result":
                self.results[record["files"][0][0]] = {**record, "time": facts["time"]}
            case "context":
                self._fold_context(ContextRecord.from_json(record, facts))
            case _:
                pass  # of a later version

    def fold_archived(self, facts: Facts) -> None:
        """Take in the facts of the last line of a batch of `offload_context`."""
        self.transcript = Transcript(*facts["transcript"])

    def _fold_context(self, record: ContextRecord) -> None:
        self.context = record
        self.named_summaries = max(self.named_summaries, -1 if record.summary is None else record.summary + 1)
        self.transcript = record.transcript or self.transcript
        self.starts += record.lines[:-1]
        left = [number for first, end in record.left for number in range(first, end)]
        self.places.update(zip(left, zip(record.lines, record.lines[1:], strict=False), strict=False))


def refs_to_json(refs: Sequence[Reference]) -> list[Any]:
    """Return what a line keeps of payloads that were taken out."""
    return [[list(ref.at), ref.head, ref.reference] for ref in refs]


def refs_from_json(found: Sequence[Any]) -> tuple[Reference, ...]:
    """Return what `refs_to_json` was given."""
    return tuple(Reference(tuple(at), head, reference) for at, head, reference in found)


def stored_to_json(stored: Stored) -> dict[str, Any]:
    """Return what a line keeps of its files."""
    return {str(place): [list(file) for file in files] for place, files in stored.items()}


def stored_from_json(found: Mapping[str, Any]) -> dict[int, tuple[StoredFile, ...]]:
    """Return what `stored_to_json` was given."""
    return {int(place): tuple(StoredFile(*file) for file in files) for place, files in found.items()}


def line_of(line: LogLine, form: LogLine | None, form_keys: Sequence[str]) -> LoggedMessage:
    """Return the message of *line*, with what its newest *form* changes."""
    facts = line.facts
    newest = line if form is None else form
    stored = stored_from_json(facts.get("stored", {}))
    if form is not None:
        stored |= stored_from_json(form.facts.get("stored", {}))
    return LoggedMessage(
        number=line.number,
        value=line.value if form is None else form.value["message"],
        time=facts.get("time", ""),
        dialect=facts.get("dialect", ""),
        id=facts.get("id", ""),
        keys=tuple(dict.fromkeys((*facts.get("keys", ()), *form_keys))),
        pinned=facts.get("pinned", False),
        refs=refs_from_json(newest.facts.get("refs", ())),
        stored=stored,
        usage=facts.get("usage"),
        ours=facts.get("ours", False),
        archived=facts.get("archived", False),
        line=facts.get("line", 0),
    )


def _as_tuples(value: Any) -> Any:
    return tuple(map(_as_tuples, value)) if is_array(value) else value
