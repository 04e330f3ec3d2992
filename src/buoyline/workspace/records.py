"""Records of a session's journal other than batches: tool results, stubs, the window, and model calls.

Pure. Source: docs/format.md, "journal.jsonl".
"""

import hashlib
import zlib
from collections.abc import Iterable, Sequence
from itertools import accumulate

from buoyline.errors import StaleWindowError
from buoyline.messages import spell
from buoyline.messages.jsonl import parse
from buoyline.messages.registry import detect, dialect_named
from buoyline.messages.times import now, time_from
from buoyline.offloader.protocol import ModelCall, WindowState
from buoyline.workspace.index import Index
from buoyline.workspace.journal import JournalState, Record, text_digest


def check_writer(known: JournalState, session_id: str, writer: str) -> None:
    """Refuse a writer if another one took the window over, or if the window is gone; an empty one is not checked.

    Raises:
        StaleWindowError: Another writer began or claimed the window, or the session was removed meanwhile.
    """
    if writer and not known.windows:
        reason = "it was removed, as by `buoyline gc`, or its window was never begun"
        raise StaleWindowError(session_id, reason, "begin a new ContextWindow and add `window.messages` to it")
    if writer and known.writer and writer != known.writer:
        raise StaleWindowError(session_id, "another window has gone on with it")


def window_record(
    content: bytes, head: Sequence[str], first: int, pins: Sequence[int], time: str, *, times: Sequence[str] = ()
) -> Record:
    """Return the record of a replaced ``window.jsonl``; see `WindowState` for the arguments."""
    return {
        "op": "window",
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
        "head": list(head),
        "first": first,
        "pins": list(pins),
        "time": time,
        **_known_times(times),
    }


def unknown_stubs(known: JournalState, stubs: Sequence[tuple[str, str]]) -> list[Record]:
    """Return the records of those *stubs*, texts with the file of their result, that have no record yet."""
    named = {text_digest(stub): name for stub, name in stubs}
    digests = [digest for digest in named if known.find_stub(digest) is None]
    return [{"op": "stub", "sha256": digest, "path": named[digest], "time": now()} for digest in digests]


def lines_record(size_bytes: int, checksum: int, *, times: Sequence[str] = (), is_durable: bool) -> Record:
    """Return the record of a grown ``window.jsonl``; *checksum* is the CRC-32 of all of it."""
    growth: Record = {"op": "lines", "bytes": size_bytes, "crc32": f"{checksum:08x}", "durable": is_durable}
    return {**growth, **_known_times(times)}


def call_record(call: ModelCall) -> Record:
    """Return the record of a model call."""
    record: Record = {"op": "call", "time": call.time, "end": call.end, "tokens": dict(call.tokens)}
    known = {"usage": dict(call.usage), "model": call.model}
    return {**record, **{name: value for name, value in known.items() if value}}


def call_from(record: Record) -> ModelCall:
    """Read the record of a model call."""
    return ModelCall(record["time"], record["end"], record["tokens"], record.get("usage", {}), record.get("model", ""))


def _known_times(times: Sequence[str]) -> Record:
    return {"times": list(times)} if any(times) else {}


def checked_times(times: Sequence[str], messages: Sequence[object]) -> tuple[str, ...]:
    """Return *times* in the form of records; an invalid one becomes empty.

    Raises:
        ValueError: *times* is not empty, and not as long as *messages*.
    """
    if times and len(times) != len(messages):
        raise ValueError(f"{len(times)} times for {len(messages)} messages; give one for each, or none at all")
    return tuple(map(time_from, times))


def window_lines(messages: Sequence[object], dialects: Sequence[str]) -> bytes:
    """Return the lines of native messages in ``window.jsonl``; without *dialects*, these are detected.

    Raises:
        ConfigError: A dialect is not known.
        MessageError: One of *messages* is no message.
        ValueError: *dialects* is not empty, and not as long as *messages*.
    """
    lines: list[str] = []
    for message, name in zip(messages, dialects or [""] * len(messages), strict=True):
        dialect = dialect_named(name) if name else detect(message)
        lines.append(f"{spell(dialect.to_json(message))}\n")
    return "".join(lines).encode("utf-8")


def window_state(known: Index, content: bytes) -> WindowState | None:
    """Return the content of the context; None if *content* does not match its records.

    Of the last two records, the one that matches the bytes is valid, so a crash between record and replacement does no
    harm.
    """
    note = window_note(known, content)
    growth = [] if note is None else grown_to(known, note)
    if note is None or (growth and not _has_grown_to(growth[-1], content)):
        return None
    lines = content.split(b"\n")[:-1]
    return WindowState(
        messages=tuple((detect(value).name, value) for value in map(parse, lines)),
        times=_times_in([note, *growth], lines),
        head=tuple(note["head"]),
        first=note["first"],
        pins=known.pins,
        settings=known.settings.get("settings", {}),
        archived=known.messages,
    )


def window_note(known: JournalState, content: bytes) -> Record | None:
    """Return the newest record of a replaced window whose bytes *content* begins with."""
    for note in reversed(known.windows):
        if hashlib.sha256(content[: note["bytes"]]).hexdigest() == note["sha256"]:
            return note
    return None


def grown_to(known: Index, note: Record) -> list[Record]:
    """Return the records of the growth of the file that *note* is about, in order."""
    # If the newest replacement never happened, later lines were added to the older file.
    is_newest = note is known.windows[-1]
    return known.lines[-1] if is_newest or known.lines[-1] else known.lines[0]


def _times_in(records: Iterable[Record], lines: Sequence[bytes]) -> tuple[str, ...]:
    """Return when the message of each line was added; empty if no record says so."""
    numbers = {end: number for number, end in enumerate(accumulate(len(line) + 1 for line in lines), 1)}
    times = [""] * len(lines)
    for record in records:
        given, end = record.get("times", ()), numbers.get(record["bytes"], 0)
        if len(given) <= end:
            times[end - len(given) : end] = given
    return tuple(times)


def _has_grown_to(lines: Record, content: bytes) -> bool:
    if len(content) < lines["bytes"]:
        return not lines["durable"]
    checksum: str = lines["crc32"]
    return f"{zlib.crc32(content[: lines['bytes']]):08x}" == checksum


def whole_lines(content: bytes) -> bytes:
    """Return the lines of ``window.jsonl`` before the first unfinished one or the first hole of zeros."""
    hole = content.find(b"\0")
    end = len(content) if hole < 0 else hole
    return content[: content.rfind(b"\n", 0, end) + 1]
