"""``data/``: decoded payloads under the hash of their bytes, shared by all sessions."""

import hashlib
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING

from buoyline.errors import CorruptError, InvalidNameError
from buoyline.messages import Media, Text, ToolResult
from buoyline.messages.registry import dialect_named
from buoyline.workspace import layout
from buoyline.workspace.disk import Disk

if TYPE_CHECKING:
    from buoyline.messages.model import ResultPart


def put_blob(disk: Disk, payload: bytes, media_type: str) -> str:
    """Store *payload* durably and return its reference. Equal bytes of one type are one file.

    A file that is there is touched, so that gc takes it for new. If it holds other bytes, these are set aside.

    Raises:
        StorageError: The file system refused.
    """
    name = layout.blob_name(payload, media_type)
    if not disk.publish(name, (payload,)):
        found = disk.read(name)
        if found == payload:
            disk.freshen(name)
        else:
            disk.make_directory(f"{layout.DATA}/{layout.TORN}")
            disk.publish(f"{layout.DATA}/{layout.torn_name(name.removeprefix('data/'), 0, found)}", (found,))
            disk.replace(name, (payload,))
    return layout.reference_to(name)


def get_blob(disk: Disk, reference: str) -> bytes:
    """Return the bytes behind *reference*, checked against their hash.

    Raises:
        InvalidNameError: `put_blob` returned no such reference.
        CorruptError: The file does not hold the stored bytes.
        StorageError: The file is missing.
    """
    name = layout.blob_behind(reference)
    if name is None:
        raise InvalidNameError(reference, "is no reference to a file under data/")
    payload = disk.read(name)
    if not name.startswith(f"{layout.DATA}/{hashlib.sha256(payload).hexdigest()}."):
        raise CorruptError(disk.path(name), "the bytes do not match the name; restore them from a copy")
    return payload


_AGENTSCOPE = dialect_named("agentscope")


def with_data_tags(result: ToolResult, native: object) -> ToolResult:
    """Return *result* with a tag for each image or file, behind the text before it, if *native* is AgentScope's.

    Source: AgentScope's workspace writes ``<data url=... name=... media_type=.../>`` in place of each data block, and
    its agents read there where the file is.
    """
    if not _AGENTSCOPE.detects_result(native):
        return result
    parts: list[ResultPart] = []
    for part in result.parts:
        if isinstance(part, Media):
            before = parts[-1] if parts else None
            if isinstance(before, Text):
                parts[-1] = Text(before.text + data_tag(part))
            else:
                parts.append(Text(data_tag(part)))
        parts.append(part)
    return replace(result, parts=tuple(parts))


def data_tag(medium: Media) -> str:
    """Return the tag of one image or file, on one line whatever its name is.

    >>> data_tag(Media("image", "image/png", 0, "https://example.org/a.png", "buoy's"))
    "<data url='https://example.org/a.png' name='buoy&#x27;s' media_type='image/png'/>"
    """
    payload = medium.content()
    url = medium.source if payload is None else layout.reference_to(layout.blob_name(payload, medium.media_type))
    facts = {"url": url, "name": medium.name, "media_type": medium.media_type}
    attributes = " ".join(f"{key}='{escape(' '.join(fact.split()))}'" for key, fact in facts.items() if fact)
    return f"<data {attributes}/>"
