"""Check that a record of the journal has the fields of its kind. Pure.

A checksum proves that a record is unchanged, not that buoyline wrote it. Source: docs/format.md, "journal.jsonl".
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from buoyline.messages.jsonl import is_array, is_object
from buoyline.workspace import layout
from buoyline.workspace.journal import Record, Synced

Check = Callable[[Any], bool]

_TOO_MANY = 1 << 62
_SYNCED = len(Synced())
_DIGEST = re.compile("[0-9a-f]{64}")
_CHECKSUM = re.compile("[0-9a-f]{8}")


def fault_of(record: Record) -> str:
    """Return in words what is wrong with *record*; empty if it is well-formed or of an unknown kind."""
    shape = _SHAPES.get(record["op"], {})
    for name in shape:
        if name not in record:
            return f"has no {name!r}"
    for name, is_well_formed in {**shape, **_LATER.get(record["op"], {})}.items():
        if name in record and not is_well_formed(record[name]):
            return f"has a {name!r} of another form"
    if not _leads_back(record.get("before", {})):
        return "has a 'before' of another form"
    return _disagreement(record)


def _disagreement(record: Record) -> str:
    if record["op"] == "batch":
        messages, dialect = len(record["bytes"]), record["dialect"]
        if len(record["lines"]) != messages or (is_array(dialect) and len(dialect) != messages):
            return "counts its messages in two ways"
        if len(record.get("times") or record["bytes"]) != messages:
            return "has not one time a message"
        if any(position >= messages for position, *_ in record["references"]):
            return "has a reference in a message that it has not"
    if record["op"] == "result" and record.get("view", own := layout.view_name(record["path"])) != own:
        return "names a view of another result"
    if record["op"] == "result" and any(
        part["offset"] + part["bytes"] > record["bytes"] for part in record.get("parts", ()) if "path" not in part
    ):
        return "has a part beyond its file"
    return ""


def _leads_back(before: object) -> bool:
    """Return whether *before* has the form of durable bytes and offsets of records."""
    return is_object(before) and all(map(_are(_is_count), before.values())) and len(before.get("synced", ())) <= _SYNCED


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_count(value: object) -> bool:
    # No file is this large, and the number is too large to seek to.
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _TOO_MANY


def _are_counts(value: object) -> bool:
    return is_object(value) and all(map(_is_count, value.values()))


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None


def _is_checksum(value: object) -> bool:
    return isinstance(value, str) and _CHECKSUM.fullmatch(value) is not None


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_result(value: object) -> bool:
    return isinstance(value, str) and layout.is_result_name(value)


def _are(check: Check) -> Check:
    return lambda value: is_array(value) and all(map(check, value))


def _is_dialect(value: object) -> bool:
    return _is_text(value) or _are(_is_text)(value)


def _is_pair(value: object) -> bool:
    return is_array(value) and len(value) == 2 and all(map(_is_count, value))  # noqa: PLR2004 - offset and bytes


def _is_reference(value: Any) -> bool:
    if not is_array(value) or len(value) != 4:  # noqa: PLR2004 - message, place, head, reference
        return False
    position, at, head, reference = value
    is_place = is_array(at) and bool(at) and all(isinstance(key, (str, int)) for key in at)
    is_reference = isinstance(reference, str) and layout.blob_behind(reference) is not None
    return _is_count(position) and is_place and isinstance(head, str) and is_reference


def _is_part(value: object) -> bool:
    if not is_object(value) or not (_is_text(value.get("kind")) and _is_count(value.get("bytes"))):
        return False
    if any(not is_well_formed(value[name]) for name, is_well_formed in _FACTS.items() if name in value):
        return False
    return _is_count(value.get("offset")) if "path" not in value else _is_text(value.get("media_type"))


def _is_blob(value: object) -> bool:
    return isinstance(value, str) and layout.digest_in(value) is not None


def _is_blob_reference(value: object) -> bool:
    return isinstance(value, str) and layout.blob_behind(value) is not None


_FACTS: Mapping[str, Check] = {
    "path": _is_blob,
    "name": _is_text,
    "refers": _are(_is_blob_reference),
}
"""Optional fields of a part of a tool result."""

_BYTE_RANGE: Mapping[str, Check] = {
    "offset": _is_count,
    "bytes": _are(_is_count),
    "sha256": _is_digest,
    "synced": _is_count,
}

_SHAPES: Mapping[str, Mapping[str, Check]] = {
    "batch": {
        **_BYTE_RANGE,
        "id": _is_text,
        "dialect": _is_dialect,
        "first": _is_count,
        "line": _is_count,
        "lines": _are(_is_count),
        "transcript": _is_pair,
        "references": _are(_is_reference),
        "time": _is_text,
    },
    "result": {
        "call_id": _is_text,
        "path": _is_result,
        "bytes": _is_count,
        "sha256": _is_digest,
        "lines": _is_count,
    },
    "stub": {"sha256": _is_digest, "path": _is_result},
    "summary": _BYTE_RANGE,
    "settings": {"settings": is_object},
    "writer": {"writer": _is_text},
    "lines": {
        "bytes": _is_count,
        "crc32": _is_checksum,
        "durable": _is_flag,
    },
    "window": {
        "bytes": _is_count,
        "sha256": _is_digest,
        "head": _are(_is_text),
        "first": _is_count,
        "pins": _are(_is_count),
    },
    "pins": {"pins": _are(_is_count)},
    "call": {"time": _is_text, "end": _is_count, "tokens": _are_counts},
}

_LATER: Mapping[str, Mapping[str, Check]] = {
    "batch": {"times": _are(_is_text)},
    "lines": {"times": _are(_is_text)},
    "window": {"times": _are(_is_text)},
    "result": {
        "view_bytes": _is_count,
        "parts": _are(_is_part),
        "tool": _is_text,
        "partial": _is_text,
    },
    "summary": {"n": _is_count},
    "call": {"usage": _are_counts, "model": _is_text},
}
"""Fields that the first journals of this format did not have."""
