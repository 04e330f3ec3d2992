"""Offloaded content in its native types: text, JSON, and media with their bytes."""

import codecs
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

from buoyline.errors import CorruptError, StorageError
from buoyline.lookups.places import Files
from buoyline.lookups.references import Target
from buoyline.lookups.retrieved import Content, JsonContent, MediaContent, TextContent
from buoyline.workspace import layout

MAX_MEDIA_BYTES: Final = 20_000_000
"""More bytes of media than that are not handed out at once unless the bound is lifted: no provider takes them."""

_SNIFFED_BYTES = 1 << 16
_UNKNOWN_TYPE = "application/octet-stream"
_JSON_TYPE = "application/json"
_MEDIA_KINDS = frozenset({"audio", "image", "video"})


def is_text(workspace: Files, name: str) -> bool:
    """Tell whether file *name* has lines: all but media, whose type their extension says.

    Of an unknown type (which HTML and SVG are, too, on disk) that is what begins as UTF-8 without NUL.
    """
    if layout.digest_in(name) is None:
        return True
    media_type = layout.media_type_of(name)
    if media_type != _UNKNOWN_TYPE:
        return media_type.startswith("text/") or media_type == _JSON_TYPE
    head = workspace.tree.read(name, 0, _SNIFFED_BYTES)
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return b"\0" not in head


def media_of(workspace: Files, target: Target, *, is_bounded: bool) -> tuple[MediaContent, ...]:
    """Return the media of *target* in the tool's order; where *is_bounded*, with bytes up to 20 MB in all.

    Raises:
        CorruptError: *target* is a single file of ``data/``, and not what was stored. Beside other parts such a one
            only says so: its text can be had all the same.
        StorageError: Likewise, and it cannot be read.
    """
    left_bytes = MAX_MEDIA_BYTES if is_bounded else sys.maxsize
    if layout.digest_in(target.whole) is not None:
        return (_medium(workspace, _single(target.whole), left_bytes),)
    found: list[MediaContent] = []
    for part in target.parts:
        if "path" in part:
            found.append(_beside(workspace, part, left_bytes))
            left_bytes -= len(found[-1].content or b"")
    return tuple(found)


def contents_of(workspace: Files, target: Target, media: tuple[MediaContent, ...]) -> tuple[Content, ...]:
    """Return the whole content of *target*, which is text, with its *media*, in the tool's order.

    Text comes back as the tool gave it, lone surrogates as well; invalid UTF-8, which no text of a tool becomes,
    stands as U+FFFD.
    """
    content = workspace.tree.read(target.whole)
    if not target.parts:
        text = _decoded(content)
        is_json = target.whole.endswith(".json") and layout.digest_in(target.whole) is not None
        return (JsonContent(text) if is_json else TextContent(text),)
    return tuple(_parts(target, content, iter(media)))


def _parts(target: Target, content: bytes, media: Iterator[MediaContent]) -> Iterator[Content]:
    for part in target.parts:
        if "path" in part:
            yield next(media)
        else:
            text = _decoded(content[part["offset"] : part["offset"] + part["bytes"]])
            yield JsonContent(text) if part["kind"] == "json" else TextContent(text)


def _decoded(content: bytes) -> str:
    try:
        return content.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return content.decode("utf-8", "replace")


def _single(name: str) -> Mapping[str, Any]:
    media_type = layout.media_type_of(name)
    kind = media_type.partition("/")[0]
    return {"kind": kind if kind in _MEDIA_KINDS else "document", "media_type": media_type, "path": name}


def _beside(workspace: Files, part: Mapping[str, Any], max_bytes: int) -> MediaContent:
    try:
        return _medium(workspace, part, max_bytes)
    except (CorruptError, StorageError) as error:
        reason = error.reason if isinstance(error, CorruptError) else str(error.strerror)
        return _described(workspace, part, int(part.get("bytes", 0)), None, reason)


def _medium(workspace: Files, part: Mapping[str, Any], max_bytes: int) -> MediaContent:
    size_bytes = workspace.tree.size(part["path"]) or 0
    if size_bytes > max_bytes:
        return _described(workspace, part, size_bytes, None, "too large for an answer")
    content = workspace.blobs.get(layout.reference_to(part["path"]))
    return _described(workspace, part, len(content), content, "")


def _described(
    workspace: Files, part: Mapping[str, Any], size_bytes: int, content: bytes | None, problem: str
) -> MediaContent:
    return MediaContent(
        kind=part["kind"],
        media_type=part.get("media_type") or layout.media_type_of(part["path"]),
        size_bytes=size_bytes,
        path=workspace.tree.path(part["path"]),
        name=part.get("name", ""),
        content=content,
        problem=problem,
    )
