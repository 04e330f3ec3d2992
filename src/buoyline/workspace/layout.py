"""Every name on disk, and how an id becomes one. No other module spells them.

Pure: nothing here reads a file system. Source: docs/format.md, "Names".
"""

import base64
import hashlib
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from buoyline.errors import InvalidNameError

FORMAT: Final = 2
"""The version of everything below. A workspace of another version is refused, untouched."""

WORKSPACE: Final = "workspace.json"
SESSIONS: Final = "sessions"
DATA: Final = "data"
CONTEXT_MANAGEMENT: Final = "context_management"
SEARCH: Final = ".search"
"""A cache of searches: nothing in it is needed."""

CONTEXT: Final = "context.jsonl"
STATE: Final = "state.jsonl"
SUMMARIES: Final = "summaries.jsonl"
TRANSCRIPT: Final = "transcript.md"
TORN: Final = "torn"
SESSION_FILES: Final = (STATE, CONTEXT, SUMMARIES, TRANSCRIPT)

TEMPORARY: Final = ".tmp-"
"""The prefix of names of files and directories that are not complete; readers never look at them."""

_SPELLED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_DOCUMENT = re.compile(r"[a-z0-9][a-z0-9_-]{0,48}")
_RESULT = re.compile(r"tool_result-[A-Za-z0-9][A-Za-z0-9._~-]{0,127}\.txt")
_REFERENCE = re.compile(r"workspace:///(data/[0-9a-f]{64}\.[a-z0-9]{1,8})")
_SLUG_CHARS = 40
_MAX_ID_CHARS = 4096
_VIEW = ".view.txt"

_NAMED_ALIKE = {
    "application": "csv doc docx json md pdf txt xls xlsx xml yaml zip",  # Strands calls documents so
    "audio": "aac flac mp3 ogg opus wav",
    "image": "bmp gif jpg png tiff webp",
    "text": "csv",
    "video": "mp4 webm",
}
_EXTENSIONS: Mapping[str, str] = MappingProxyType(
    {f"{kind}/{name}": name for kind, names in _NAMED_ALIKE.items() for name in names.split()}
    | {
        "application/gzip": "gz",
        "application/msword": "doc",
        "application/vnd.ms-excel": "xls",
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
        "audio/mpeg": "mp3",
        "audio/webm": "weba",
        "image/jpeg": "jpg",
        "text/markdown": "md",
        "text/plain": "txt",
    }
)
"""Our own table, since the host's MIME files differ. HTML and SVG run code when opened, so they get ``bin``."""

_MEDIA_TYPES = MappingProxyType({extension: kind for kind, extension in _EXTENSIONS.items()})
"""Of several types with one extension the last one is the registered name."""


def encoded_id(identifier: str) -> str:
    """Return the part of a file name that belongs to *identifier* alone.

    Models and providers choose ids, so any text has a name: `[A-Za-z0-9][A-Za-z0-9._-]{0,63}` is its own, all others
    become a readable slug, ``~`` and 160 bits of their hash. An id that ends in ``.view`` would be the name of another
    id's view, so it gets a hash, too.
    """
    if _SPELLED.fullmatch(identifier) and not identifier.lower().endswith(".view"):
        return identifier
    slug = re.sub(r"[^a-z0-9]+", "-", identifier.lower())[:_SLUG_CHARS].strip("-")
    return f"{slug or 'id'}~{_base32(identifier.encode('utf-8', 'surrogatepass'))}"


def session_directory(session_id: str) -> str:
    """Return the directory of a session, relative to the workdir.

    Raises:
        InvalidNameError: *session_id* is no text, is empty, or has more than 4,096 characters.
    """
    given: object = session_id  # frameworks give what they have
    if not isinstance(given, str) or not 0 < len(given) <= _MAX_ID_CHARS:
        raise InvalidNameError(given, f"a session id is text of 1 to {_MAX_ID_CHARS:,} characters")
    return f"{SESSIONS}/{encoded_id(session_id)}"


def result_name(call_id: str, variant: str = "") -> str:
    """Return the name, within its session, of the result of a call.

    *variant* is the content's SHA-256 if the call already has a result with other content.
    """
    return f"tool_result-{encoded_id(call_id)}{f'~{variant[:16]}' if variant else ''}.txt"


def arguments_name(call_id: str, variant: str = "") -> str:
    """Return the name, within its session, of the offloaded arguments of a call; for *variant* see `result_name`."""
    return f"tool_call-{encoded_id(call_id)}{f'~{variant[:16]}' if variant else ''}.txt"


def view_name(result: str) -> str:
    """Return the name of the readable view of the tool result called *result*."""
    return f"{result.removesuffix('.txt')}{_VIEW}"


def is_result_name(name: str) -> bool:
    """Return whether *name* is the name of a tool result, not of a view, within its session."""
    return _RESULT.fullmatch(name) is not None and not name.endswith(_VIEW)


def is_view_name(name: str) -> bool:
    """Return whether *name* is the name of a tool result's view within its session."""
    return _RESULT.fullmatch(name) is not None and name.endswith(_VIEW)


def is_stored_name(name: str) -> bool:
    """Return whether *name* is that of a result, a view or offloaded arguments within its session."""
    return name.startswith(("tool_result-", "tool_call-")) and name.endswith(".txt")


def result_behind(view: str) -> str:
    """Return the name of the tool result of the view called *view*."""
    return f"{view.removesuffix(_VIEW)}.txt"


def blob_name(payload: bytes, media_type: str) -> str:
    """Return the workdir-relative name of the file that holds *payload*; an unknown or active type gets ``.bin``.

    The digest is over the decoded bytes, so that one image is one file in every spelling of base64, and ``sha256sum``
    can verify it.
    """
    essence = media_type.split(";", maxsplit=1)[0].strip().lower()
    return f"{DATA}/{hashlib.sha256(payload).hexdigest()}.{_EXTENSIONS.get(essence, 'bin')}"


def media_type_of(blob: str) -> str:
    """Return the media type of the extension of a blob's name; ``.bin`` has no particular one."""
    return _MEDIA_TYPES.get(blob.rpartition(".")[2], "application/octet-stream")


def reference_to(blob: str) -> str:
    """Return the reference of the blob called *blob*."""
    return f"workspace:///{blob}"


def blob_behind(reference: str) -> str | None:
    """Return the blob's workdir-relative name; None if *reference* is not one of ours."""
    match = _REFERENCE.fullmatch(reference)
    return match[1] if match else None


def document_name(name: object) -> str:
    """Return the workdir-relative name of the context-management document called *name*.

    Source: OpenSearch allows small letters, digits, ``_`` and ``-``, at most 49 of them; one that begins with a ``-``
    would look like an option on a command line.

    Raises:
        InvalidNameError: *name* cannot be one.
    """
    if not isinstance(name, str) or not _DOCUMENT.fullmatch(name):
        reason = "a document's name has 1 to 49 small letters, digits, '_' and '-', and begins with a letter or digit"
        raise InvalidNameError(name, reason)
    return f"{CONTEXT_MANAGEMENT}/{name}.json"


def document_in(entry: str) -> str | None:
    """Return the name of the document in the file *entry* of its directory; None if it is not a document's file."""
    name = entry.removesuffix(".json")
    return name if name != entry and _DOCUMENT.fullmatch(name) else None


def torn_name(name: str, offset: int, content: bytes) -> str:
    """Return the name, within its session, for bytes that were found at *offset* of its file *name* and set aside."""
    return f"{TORN}/{name}-{offset}-{hashlib.sha256(content).hexdigest()[:8]}"


def _base32(content: bytes) -> str:
    return base64.b32encode(hashlib.sha256(content).digest()[:20]).decode("ascii").lower()
