"""The text of a tool result as the bytes of its file, encoded slice by slice to save memory. Pure."""

import hashlib
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from buoyline.messages import Json, Media, Opaque, Text, ToolResult, spell
from buoyline.messages.jsonl import is_object, parse
from buoyline.messages.model import Base64, ResultPart, join_texts
from buoyline.offloader.protocol import StoredPart
from buoyline.offloader.view import needs_view, view_of
from buoyline.previews.source import decoded
from buoyline.workspace import layout
from buoyline.workspace.journal import Record

# A character takes up to three bytes more than in ASCII, so both make about a megabyte.
_ASCII_SLICE_CHARS = 1 << 20
_SLICE_CHARS = 1 << 18


class Measure(NamedTuple):
    """Size, hash and lines of an encoded text.

    Attributes:
        lines: As `buoyline.previews.source.count_lines` counts them.
        blocks: Offset and size of each block, without the newlines between them.
    """

    size_bytes: int
    sha256: str
    lines: int
    blocks: tuple[tuple[int, int], ...]


class ResultContent:
    """The content of a tool result's file: its text and JSON blocks, each beginning on a new line.

    Lone surrogates are written in their three-byte form, so that every text of a tool is loaded unchanged. The text is
    encoded slice by slice, each time that it is read.
    """

    def __init__(self, result: ToolResult) -> None:
        """Take the text and JSON blocks of *result*; nothing is copied."""
        self._texts = list(result.texts)
        self._pieces: list[tuple[str, bool]] = []
        for number, text in enumerate(self._texts, 1):
            self._pieces.append((text, True))
            if number < len(self._texts) and not text.endswith("\n"):
                self._pieces.append(("\n", False))

    def chunks(self) -> Generator[bytes]:
        """Yield the bytes in pieces of about a megabyte."""
        for text, _ in self._pieces:
            yield from _encoded(text)

    def measure(self) -> Measure:
        """Return size, hash and lines of the bytes."""
        digest, blocks = hashlib.sha256(), list[tuple[int, int]]()
        size_bytes, newlines, last = 0, 0, b"\n"
        for text, is_block in self._pieces:
            offset = size_bytes
            for chunk in _encoded(text):
                digest.update(chunk)
                size_bytes += len(chunk)
                newlines += chunk.count(b"\n")
                last = chunk
            if is_block:
                blocks.append((offset, size_bytes - offset))
        return Measure(size_bytes, digest.hexdigest(), newlines + (not last.endswith(b"\n")), tuple(blocks))

    def view(self) -> bytes | None:
        """Return the readable view; None, without a copy of the text, if the text itself is readable."""
        if not any(needs_view(text, is_beginning=not place) for place, text in enumerate(self._texts)):
            return None
        view = view_of(join_texts(self._texts))
        return None if view is None else view.encode("utf-8")


def _encoded(text: str) -> Iterator[bytes]:
    """Yield *text* in UTF-8; slices of characters can be encoded one by one, a surrogate is one character."""
    slice_chars = _ASCII_SLICE_CHARS if text.isascii() else _SLICE_CHARS
    for start in range(0, len(text), slice_chars):
        yield text[start : start + slice_chars].encode("utf-8", "surrogatepass")


# The blocks of a tool result in the journal, and how a result is loaded from them.
#
# Pure. Text and JSON are in the result's own file; the decoded bytes of everything else are in ``data/``.
# Source: docs/format.md, "journal.jsonl" and "tool_result-<id>.txt".


Put = Callable[[bytes, str], str]
"""Stores bytes of a media type and returns their reference."""

OPAQUE: Final = "opaque"
"""The kind of a block that buoyline does not know: its JSON is in ``data/``."""

REFERENCE: Final = "reference"
"""The kind of an image or file whose bytes are elsewhere or not base64: the facts in its block are in ``data/``."""

_JSON_TYPE = "application/json"
_BLOB = re.compile(layout.REFERENCE_PREFIX.decode("ascii") + r"[0-9a-f]{64}\.[a-z0-9]{1,8}")


def described(result: ToolResult, measure: Measure, put: Put) -> list[Record]:
    """Return the records of the parts of *result* in order; all parts other than text and JSON go to *put*."""
    blocks = iter(measure.blocks)
    return [_described(part, blocks, put) for part in result.parts]


def stored_parts(record: Record, reference: Callable[[str], str]) -> tuple[StoredPart, ...]:
    """Describe the parts of the tool result of *record*."""
    return tuple([_stored(part, reference) for part in record["parts"] if is_object(part)])


def result_from(record: Record, text: bytes, get: Callable[[str], bytes]) -> ToolResult:
    """Return the tool result of *record*, with *text* as the bytes of its file; invalid UTF-8 becomes U+FFFD."""
    found = tuple(_parts(record["parts"], text, get))
    return ToolResult(record["call_id"], record.get("tool", ""), found, is_error=record.get("is_error") is True)


def data_names(record: Record) -> Iterator[str]:
    """Yield the workspace-relative names of the files under ``data/`` that a result's *record* needs."""
    for part in record["parts"]:
        if "path" in part:
            yield part["path"]
        yield from filter(None, map(layout.blob_behind, part.get("refers", ())))


def _described(part: ResultPart, blocks: Iterator[tuple[int, int]], put: Put) -> Record:
    if isinstance(part, (Text, Json)):
        offset, size_bytes = next(blocks)
        return {"kind": "text" if isinstance(part, Text) else "json", "offset": offset, "bytes": size_bytes}
    content = part.content() if isinstance(part, Media) else None
    if isinstance(part, Media) and content is not None:
        named: Record = {"name": part.name} if part.name else {}
        return {**_data(part.kind, part.media_type, content, put), **named}
    kind, spelled = (OPAQUE, part.json) if isinstance(part, Opaque) else (REFERENCE, _spelled(part))
    refers = list(dict.fromkeys(_BLOB.findall(spelled)))
    found = _data(kind, _JSON_TYPE, spelled.encode("utf-8", "surrogatepass"), put)
    # gc looks for references in what is below sessions/ only.
    return {**found, "name": part.kind, **({"refers": refers} if refers else {})}


def _data(kind: str, media_type: str, content: bytes, put: Put) -> Mapping[str, Any]:
    name = layout.blob_behind(put(content, media_type))
    return {"kind": kind, "media_type": media_type, "bytes": len(content), "path": name}


def _spelled(part: Media) -> str:
    facts = {"media_type": part.media_type, "bytes": part.size_bytes, "source": part.source, "name": part.name}
    payload = {"payload": part.payload.text, "start": part.payload.start} if isinstance(part.payload, Base64) else {}
    return spell({**facts, **payload})


def _stored(part: Mapping[str, Any], reference: Callable[[str], str]) -> StoredPart:
    path = part.get("path", "")
    return StoredPart(
        kind=part["kind"],
        size_bytes=part["bytes"],
        offset=part.get("offset", 0),
        media_type=part.get("media_type", ""),
        path=path,
        reference=reference(path) if path else "",
        name=part.get("name", ""),
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
