"""Blobs that sessions referred to which are gone, in ``data/.released.jsonl``.

Pure. A blob that nobody refers to may belong to someone who keeps no session here; that a session once referred to it
says that it does not. Source: docs/format.md, "Retention".
"""

from collections.abc import Mapping

from buoyline.errors import MessageError
from buoyline.messages import is_object, parse, spell


def released_line(digest: str, until_ns: int) -> bytes:
    """Return the line that says that sessions which are gone referred to a blob, and until when.

    Args:
        digest: The blob's.
        until_ns: When the last of them was last active, in nanoseconds since the epoch. Who has stored the blob
            later was somebody else.
    """
    return spell({"sha256": digest, "until_ns": until_ns}).encode("utf-8") + b"\n"


def released_in(content: bytes) -> Mapping[str, int]:
    """Return until when sessions that are gone referred to each blob, by its hash.

    A line that is not ours is passed over: its blob then counts as one that no session referred to, and stays.
    """
    found: dict[str, int] = {}
    for line in content.splitlines():
        try:
            value = parse(line)
        except MessageError:
            continue
        if is_object(value) and isinstance(value.get("sha256"), str) and isinstance(value.get("until_ns"), int):
            found[value["sha256"]] = value["until_ns"]
    return found
