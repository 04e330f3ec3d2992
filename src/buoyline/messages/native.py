"""Reading native messages that are dicts or pydantic models, as the providers' own packages give them."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from buoyline.errors import MessageError
from buoyline.messages.jsonl import is_array, is_object, model_fields, parse, spell
from buoyline.messages.message import Base64, Media, Opaque, Role, Text

_ROLES: Mapping[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}


Blocks: TypeAlias = Sequence[str | int]
"""What content shall consist of: the number of a block that stays the very same object, or a new text."""


def fields(value: object) -> Mapping[str, Any] | None:
    """Return the fields of a dict or a pydantic model, or None for anything else.

    Raises:
        MessageError: A model's field has no JSON form.
    """
    return value if is_object(value) else model_fields(value)


def own_fields(message: object) -> Mapping[str, Any]:
    """Return the fields of *message* with the very objects that are in it, models too.

    Raises:
        MessageError: *message* is neither a mapping with text keys nor a pydantic model.
    """
    found = fields(message)
    if found is None:
        raise MessageError(f"{type(message).__name__} is no message: expected an object with 'role' and 'content'")
    return found


def rebuilt_content(content: object, blocks: Blocks) -> Any:
    """Return *content* with *blocks* in place of its own: a text stays a text where one text is all there is.

    Raises:
        MessageError: *content* is neither text, a list, nor null.
    """
    if len(blocks) == 1 and isinstance(blocks[0], str) and not is_array(content):
        return blocks[0]
    old = blocks_of(content)
    return [{"type": "text", "text": block} if isinstance(block, str) else old[block] for block in blocks]


def plain_fields(message: object) -> Mapping[str, Any]:
    """Return the fields of *message* with nothing but JSON values in them.

    An agent loop that takes ``response.content`` or ``message.tool_calls`` over into a dict of its own leaves
    models anywhere in it.

    Raises:
        MessageError: *message* is neither a mapping with text keys nor a pydantic model, or holds something
            that has no JSON form beside a model.
    """
    found = own_fields(message)
    if _holds_model(found):
        plain: dict[str, Any] = parse(spell(found))
        return plain
    return found


def role_of(message: Mapping[str, Any]) -> Role:
    """Return the role of *message*.

    Raises:
        MessageError: There is none, or none that we know.
    """
    role = message.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        known = ", ".join(_ROLES)
        raise MessageError(f"role {role!r} is not one of {known}")
    return _ROLES[role]


def has_known_role(message: Mapping[str, Any]) -> bool:
    """Tell whether *message* has a role that `role_of` accepts."""
    role = message.get("role")
    return isinstance(role, str) and role in _ROLES


def blocks_of(content: object) -> Sequence[Any]:
    """Return *content* as a sequence of blocks: text becomes one block, None becomes none.

    Raises:
        MessageError: *content* is neither text, a list, nor null.
    """
    if content is None:
        return ()
    if isinstance(content, str):
        return ({"type": "text", "text": content},)
    if is_array(content):
        return content
    raise MessageError(f"'content' must be text, a list of blocks or null, not {type(content).__name__}")


def text_or_empty(value: object) -> str:
    """Return *value* where it is text, else ``""``: a field that is null, missing or malformed says nothing."""
    return value if isinstance(value, str) else ""


def text_of(block: object) -> str | None:
    """Return the text of a text block, of bare text, or None for every other block."""
    if isinstance(block, str):
        return block
    if is_object(block) and block.get("type") == "text" and isinstance(block.get("text"), str):
        return str(block["text"])
    return None


def media(
    kind: Literal["image", "audio", "document", "video"],
    media_type: object,
    *,
    payload: object = None,
    start: int = 0,
    source: object = None,
    name: object = None,
) -> Media:
    """Build the view of a payload that stands in the message as base64, or elsewhere under *source*.

    The decoded size follows from the length of the base64 text, so a 10 MB image is not decoded to be seen.
    An archived message has a workspace reference in the payload's place; that is its source.

    Args:
        kind: What it is.
        media_type: IANA media type, as far as the block names one.
        payload: The text that it stands in.
        start: Where in *payload* the base64 begins.
        source: URL or id of what stands elsewhere.
        name: File name or title.
    """
    found, title = text_or_empty(media_type), text_or_empty(name)
    if isinstance(payload, str) and payload.startswith("workspace:///"):
        return Media(kind, found, 0, payload, title)
    if isinstance(payload, str):
        padding = 2 if payload.endswith("==") else 1 if payload.endswith("=") else 0
        size_bytes = max(0, (len(payload) - start) * 3 // 4 - padding)
        return Media(kind, found, size_bytes, name=title, payload=Base64(payload, start))
    return Media(kind, found, 0, text_or_empty(source), title)


def data_url(url: object) -> tuple[str, str] | None:
    """Split a base64 data URL into its media type and its payload; None for every other value."""
    if not isinstance(url, str) or not url.startswith("data:"):
        return None
    head, comma, payload = url.partition(",")
    if not comma or not head.endswith(";base64"):
        return None
    return head[len("data:") : -len(";base64")].split(";")[0], payload


def simple_part(block: object) -> Text | Opaque:
    """Read a block as text, or carry it along as it is."""
    text = text_of(block)
    if text is not None:
        return Text(text)
    kind = block.get("type") if is_object(block) else None
    return Opaque(kind if isinstance(kind, str) else type(block).__name__, spell(block))


def _holds_model(value: object) -> bool:
    """Tell whether there is a model within *value*; not recursive, since arguments of tools nest as they like."""
    if "pydantic" not in sys.modules:
        return False
    from pydantic import BaseModel  # noqa: PLC0415 - as in `model_fields`

    seen: set[int] = set()
    waiting = [value]
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, BaseModel):
            return True
        if id(inner) in seen:
            continue
        seen.add(id(inner))
        if is_object(inner):
            waiting.extend(inner.values())
        elif is_array(inner):
            waiting.extend(inner)
    return False
