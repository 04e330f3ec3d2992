"""Reading the parts of a message: what the forms of all dialects have in common, and media types."""

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from buoyline.errors import MessageError
from buoyline.messages.jsonl import is_array, is_object, spell
from buoyline.messages.model import Base64, Json, Media, Opaque, Reasoning, Text, ToolCall, ToolResult, join_texts


def blocks_of(content: object) -> Sequence[Any]:
    """Return *content* as a sequence of blocks: text becomes one block, None an empty sequence.

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


def rebuilt(content: object, blocks: Sequence[str | int], text_type: str = "text") -> Any:
    """Return *content* with *blocks* in place of its own. Text stays text if a single text replaces it.

    A new text becomes a block of *text_type*, or of none if that is empty.

    Raises:
        MessageError: *content* is neither text, a list, nor null.
    """
    if len(blocks) == 1 and isinstance(blocks[0], str) and not is_array(content):
        return blocks[0]
    old, typed = blocks_of(content), {"type": text_type} if text_type else {}
    return [{**typed, "text": block} if isinstance(block, str) else old[block] for block in blocks]


def string(value: object) -> str:
    """Return *value* if it is text, else ``""``, as for a field that is null, missing or malformed."""
    return value if isinstance(value, str) else ""


def text_of(block: Any) -> str | None:
    """Return the text of a text block or of bare text, or None for every other block."""
    match block:
        case str(text) | {"type": "text", "text": str(text)}:
            return text
        case {"text": str(text)} if "type" not in block:  # Bedrock's
            return text
        case _:
            return None


def simple(block: object, call_id: object = "") -> Text | Opaque:
    """Read a block as text if it is text, else carry it along as it is; for *call_id* see `Opaque`."""
    text = text_of(block)
    kind = string(block.get("type")) if is_object(block) else ""
    return opaque(kind or type(block).__name__, block, call_id) if text is None else Text(text)


def opaque(kind: str, block: object, call_id: object = "") -> Opaque:
    """Return the part for a block that is carried along as it is."""
    return Opaque(kind, spell(block), string(call_id))


def json(value: object) -> Json:
    """Return the part for a JSON value."""
    return Json(spell(value))


def joined(heading: Iterable[object], content: object) -> Text | None:
    """Return the texts in *content* below those of *heading* that are texts; None if one of its blocks is no text."""
    if not isinstance(content, str) and not is_array(content):
        return None
    texts = [text for block in blocks_of(content) if (text := text_of(block)) is not None]
    is_text = len(texts) == len(blocks_of(content))
    return Text(join_texts([*filter(None, map(string, heading)), *texts])) if is_text else None


def reasoning(text: object, signature: object = "", hidden: object = "", sealed_by: str = "") -> Reasoning:
    """Return the part for the model's thinking; see `Reasoning`."""
    return Reasoning(string(text), string(signature), string(hidden), sealed_by)


def call(call_id: object, name: object, arguments: object) -> ToolCall:
    """Return the part for a call; arguments that are no text are spelled as JSON."""
    given = arguments if isinstance(arguments, str) else spell(arguments)
    return ToolCall(string(call_id), string(name), given)


def result(
    call_id: object,
    content: object,
    read: Callable[[Any], Any],
    *,
    name: object = "",
    is_error: bool = False,
    native: object = None,
) -> ToolResult:
    """Return the part for a result whose blocks *read* reads, one part for each; see `ToolResult`."""
    return ToolResult(string(call_id), string(name), tuple(map(read, blocks_of(content))), is_error, native)


def media(
    kind: str, media_type: object, *, payload: object = None, source: object = None, name: object = None
) -> Media:
    """Return the part for *payload*, bytes or base64, or for what is elsewhere under the URL or id *source*.

    A data URL as the *source* holds its payload and names its type. The decoded size follows from the length of the
    base64 text, so a 10 MB image is not decoded to be seen. An archived message has a workspace reference in the
    payload's place; it becomes the source.
    """
    found, title, start = string(media_type), string(name), 0
    if (known := data_url(source)) is not None:
        payload, (found, start) = source, known
    if isinstance(payload, (bytes, bytearray)):
        return Media(kind, found, len(payload), name=title, payload=bytes(payload))
    if isinstance(payload, str) and not payload.startswith("workspace:///"):
        padding = 2 if payload.endswith("==") else 1 if payload.endswith("=") else 0
        size_bytes = max(0, (len(payload) - start) * 3 // 4 - padding)
        return Media(kind, found, size_bytes, name=title, payload=Base64(payload, start))
    return Media(kind, found, 0, string(payload or source), title)


def data_url(url: object) -> tuple[str, int] | None:
    """Return the media type of a base64 data URL and the start of its payload; None for every other value."""
    if not isinstance(url, str) or not url.startswith("data:"):
        return None
    comma = url.find(",")  # the payload after it is not copied: it may have gigabytes
    head = url[: max(comma, 0)]
    if not head.endswith(";base64"):
        return None
    return head[len("data:") : -len(";base64")].split(";")[0], comma + 1


_OFFICE = "application/vnd.openxmlformats-officedocument"
_DOCUMENTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "csv": "text/csv",
        "doc": "application/msword",
        "docx": f"{_OFFICE}.wordprocessingml.document",
        "html": "text/html",
        "json": "application/json",
        "md": "text/markdown",
        "mp3": "audio/mpeg",
        "pdf": "application/pdf",
        "txt": "text/plain",
        "xls": "application/vnd.ms-excel",
        "xlsx": f"{_OFFICE}.spreadsheetml.sheet",
        "xml": "application/xml",
    }
)
KNOWN_FORMATS: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "image": frozenset({"png", "jpeg", "gif", "webp"}),
        "document": frozenset(_DOCUMENTS.keys() - {"json", "mp3", "xml"}),
        "video": frozenset({"flv", "mkv", "mov", "mpeg", "mpg", "mp4", "three_gp", "webm", "wmv"}),
        "audio": frozenset({"mp3", "opus", "wav", "aac", "flac", "ogg", "mka", "m4a", "pcm"}),
    }
)
"""The formats that Bedrock takes in each kind of block."""

_TEXT_NAMES: Final = frozenset(
    {
        *("csv", "graphql", "html", "javascript", "json", "md", "sql", "toml", "txt"),
        *("typescript", "x-ndjson", "x-yaml", "xml", "yaml"),
    }
)
"""The types of text whose names begin with ``application/``."""


def media_type_of(kind: str, format_name: str) -> str:
    """Return the media type of a *kind* of block in the format called *format_name*.

    >>> media_type_of("image", "png"), media_type_of("document", "md")
    ('image/png', 'text/markdown')

    An unknown document is of type ``application/<format>``, as in Strands. The type is empty if *format_name* is.
    """
    if not format_name:
        return ""
    if kind == "document":
        return _DOCUMENTS.get(format_name, f"application/{format_name}")
    return f"{kind}/{format_name}"


def guessed_media_type(format_name: str) -> str:
    """Return the media type of a format in a block of unknown kind; see `media_type_of`.

    >>> guessed_media_type("webp"), guessed_media_type("pdf"), guessed_media_type("wav")
    ('image/webp', 'application/pdf', 'audio/wav')
    """
    known = {**KNOWN_FORMATS, "document": _DOCUMENTS}
    return media_type_of(next((kind for kind, names in known.items() if format_name in names), "audio"), format_name)


def format_named(media_type: str) -> str:
    """Return the short name of a media type, as Bedrock's blocks take it.

    >>> format_named("text/markdown"), format_named("image/png"), format_named("application/docx")
    ('md', 'png', 'docx')
    """
    essence = media_type.split(";", maxsplit=1)[0].strip().lower()
    known = next((name for name, kind in _DOCUMENTS.items() if kind == essence), None)
    return known or essence.rpartition("/")[2]


def is_text_type(media_type: str) -> bool:
    """Return whether content of this type is text, judged by the name of the type."""
    essence = media_type.split(";", maxsplit=1)[0].strip().lower()
    family, _, name = essence.partition("/")
    is_named = family == "application" and name in _TEXT_NAMES
    return is_named or family == "text" or name.endswith(("+json", "+xml", "+yaml"))


def base64_of(media: Media) -> str:
    """Return the payload in base64, spelled as the message spelled it; empty without a payload."""
    payload = media.payload or b""
    return payload.text[payload.start :] if isinstance(payload, Base64) else base64.b64encode(payload).decode("ascii")


def document_text(media: Media) -> str | None:
    """Return the text of a text document; None for other media, for a blank one, and if it is not UTF-8."""
    if media.kind != "document" or not is_text_type(media.media_type):
        return None
    try:
        text = (media.content() or b"").decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None
    return text if text.strip() else None
