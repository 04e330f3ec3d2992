"""The blocks of a tool result as the journal describes them, and a result made of them again.

Pure. Text and JSON stand in the result's own file; the decoded bytes of everything else stand in ``data/``.
Source: docs/format.md, "journal.jsonl" and "tool_result-<id>.txt".
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from buoyline.messages import (
    Base64,
    Json,
    Media,
    Opaque,
    ResultPart,
    Text,
    ToolResult,
    is_array,
    is_object,
    parse,
    spell,
)
from buoyline.messages.message import text_in
from buoyline.offloader.dimensions import dimensions, pages
from buoyline.offloader.protocol import StoredPart
from buoyline.offloader.source import decoded
from buoyline.workspace import layout
from buoyline.workspace.content import Measure
from buoyline.workspace.journal import Record

Put = Callable[[bytes, str], str]
"""Stores bytes of a media type and returns the reference that stands for them."""

OPAQUE: Final = "opaque"
"""The kind of a block that buoyline does not know: its JSON is in ``data/``."""

REFERENCE: Final = "reference"
"""The kind of a medium whose bytes are elsewhere, or are no base64: what the block says of them is in ``data/``."""

ONE_TEXT: Final[Sequence[Record]] = ({"kind": "text"},)
"""What came as one text, without a place yet."""

_JSON_TYPE = "application/json"
_BLOB = re.compile(layout.REFERENCE_PREFIX.decode("ascii") + r"[0-9a-f]{64}\.[a-z0-9]{1,8}")
_NUMBERS = ("width", "height", "pages")


def has_data(result: ToolResult) -> bool:
    """Tell whether something of *result* goes to ``data/``."""
    return any(text_in(part) is None for part in result.parts)


def described(result: ToolResult, put: Put) -> list[Record]:
    """Describe the parts of *result* in order, with all that is no text handed to *put*.

    Text and JSON have no place yet: `placed` gives them one once the result's file is measured.
    """
    return [_described(part, put) for part in result.parts]


def placed(parts: Sequence[Record], measure: Measure) -> list[Record]:
    """Return *parts* with the places that their texts have in the result's file."""
    places = iter(measure.blocks)
    return [part if "path" in part else {**part, **_place(*next(places))} for part in parts]


def stored_parts(record: Record, reference: Callable[[str], str]) -> tuple[StoredPart, ...]:
    """Describe the parts of the tool result that *record* is about.

    Args:
        record: Of the result; the first ones of this format do not say what its parts are.
        reference: Makes what the agent uses from the workspace-relative name of a file.
    """
    return tuple(_stored(part, reference) for part in record.get("parts", ()) if is_object(part))


def result_from(record: Record, text: bytes, get: Callable[[str], bytes]) -> ToolResult:
    """Make the result again that *record* is about.

    Args:
        record: Of the result.
        text: The bytes of its file; what of them is no UTF-8 becomes U+FFFD.
        get: Returns the bytes behind a reference.
    """
    parts = record.get("parts")
    found = tuple(_parts(parts, text, get)) if is_array(parts) else (Text(decoded(text)),)
    return ToolResult(record["call_id"], record.get("tool", ""), found, is_error=record.get("is_error") is True)


def data_names(record: Record) -> Iterator[str]:
    """Yield the workspace-relative names of the files under ``data/`` that a result's *record* needs."""
    for part in record.get("parts", ()):
        if "path" in part:
            yield part["path"]
        yield from filter(None, map(layout.blob_behind, part.get("refers", ())))


def _described(part: ResultPart, put: Put) -> Record:
    if isinstance(part, (Text, Json)):
        return {"kind": "text" if isinstance(part, Text) else "json"}
    content = part.content() if isinstance(part, Media) else None
    if isinstance(part, Media) and content is not None:
        named: Record = {"name": part.name} if part.name else {}
        return {**_data(part.kind, part.media_type, content, put), **named, **_looks(part, content)}
    kind, spelled = (OPAQUE, part.json) if isinstance(part, Opaque) else (REFERENCE, _spelled(part))
    refers = list(dict.fromkeys(_BLOB.findall(spelled)))
    found = _data(kind, _JSON_TYPE, spelled.encode("utf-8", "surrogatepass"), put)
    # gc looks for references in what is below sessions/ only.
    return {**found, "name": part.kind, **({"refers": refers} if refers else {})}


def _data(kind: str, media_type: str, content: bytes, put: Put) -> Mapping[str, Any]:
    name = layout.blob_behind(put(content, media_type))
    return {"kind": kind, "media_type": media_type, "bytes": len(content), "path": name}


def _looks(part: Media, content: bytes) -> Record:
    found = dimensions(content) if part.kind == "image" else None
    if found is not None:
        return found._asdict()
    count = pages(content) if part.kind == "document" else None
    return {} if count is None else {"pages": count}


def _spelled(part: Media) -> str:
    facts = {"media_type": part.media_type, "bytes": part.size_bytes, "source": part.source, "name": part.name}
    payload = {"payload": part.payload.text, "start": part.payload.start} if isinstance(part.payload, Base64) else {}
    return spell({**facts, **payload})


def _place(offset: int, size_bytes: int) -> Record:
    return {"offset": offset, "bytes": size_bytes}


def _stored(part: Mapping[str, Any], reference: Callable[[str], str]) -> StoredPart:
    path = part.get("path", "")
    numbers = {name: part.get(name, 0) for name in _NUMBERS}
    return StoredPart(
        kind=part["kind"],
        size_bytes=part["bytes"],
        offset=part.get("offset", 0),
        media_type=part.get("media_type", ""),
        path=path,
        reference=reference(path) if path else "",
        name=part.get("name", ""),
        **numbers,
    )


def _parts(parts: Sequence[Record], text: bytes, get: Callable[[str], bytes]) -> Iterator[ResultPart]:
    for part in parts:
        if "path" in part:
            yield _from_data(part, get(layout.reference_to(part["path"])))
        else:
            found = decoded(text[part["offset"] : part["offset"] + part["bytes"]])
            yield Text(found) if part["kind"] == "text" else Json(found)


def _from_data(part: Record, content: bytes) -> ResultPart:
    match part["kind"]:
        case "opaque":
            return Opaque(part["name"], content.decode("utf-8", "surrogatepass"))
        case "reference":
            return _reference(part["name"], parse(content))
        case kind:
            return Media(kind, part["media_type"], len(content), "", part.get("name", ""), content)


def _reference(kind: str, facts: Mapping[str, Any]) -> Media:
    payload = Base64(facts["payload"], facts["start"]) if "payload" in facts else None
    return Media(kind, facts["media_type"], facts["bytes"], facts["source"], facts["name"], payload)
