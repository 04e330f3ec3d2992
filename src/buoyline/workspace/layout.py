"""Every name on disk, and how an id becomes one. No other module spells them.

Pure: nothing here reads a file system. Source: docs/format.md, "Names".
"""

import base64
import hashlib
import re
import unicodedata
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from buoyline.errors import InvalidNameError

FORMAT: Final = 1
"""Version of everything below; a workspace with a higher one is refused, untouched."""

WORKSPACE_FILE: Final = "workspace.json"
SESSIONS: Final = "sessions"
DATA: Final = "data"
CONTEXT_MANAGEMENT: Final = "context_management"
LOCKS: Final = ".locks"
SESSIONS_LOCK: Final = ".locks/sessions.lock"
"""Held while a new session gets the name of its directory. Its holder waits for no other lock."""

GC_LOCK: Final = ".locks/gc.lock"
"""Held by gc alone, and shared by each writer of a blob until its reference is committed."""

SEARCH: Final = ".search"
"""A cache of searches: nothing in it is needed, and it is removed with a session."""

SESSION_FILE: Final = "session.json"
CONTEXT_FILE: Final = "context.jsonl"
JOURNAL_FILE: Final = "journal.jsonl"
TRANSCRIPT_FILE: Final = "transcript.md"
SUMMARIES_FILE: Final = "summaries.jsonl"
WINDOW_FILE: Final = "window.jsonl"

SUMMARY_FACTS: Final = "facts-{}.jsonl"
"""By the number of the summary: its facts, for the next one."""

TORN: Final = "torn"

DATA_TORN: Final = "data/torn"
"""Where repair sets damaged blobs aside."""

REFERENCE_PREFIX: Final = b"workspace:///data/"
"""The beginning of a reference to a blob, as bytes of a line."""

TEMPORARY_PREFIX: Final = ".tmp-"
"""Names of files and directories that are not complete yet; readers never look at them."""

_REMOVED_PREFIX = f"{TEMPORARY_PREFIX}removed-"

MAX_SESSION_ID_CHARS: Final = 4096

_PLAIN = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_SPELLED = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9_-])?")
_DOCUMENT = re.compile(r"[a-z0-9][a-z0-9_-]{0,48}")
_SLUG_CHARS = 40

_EXTENSIONS: Mapping[str, str] = MappingProxyType(
    {
        "application/csv": "csv",
        "application/doc": "doc",
        "application/docx": "docx",
        "application/gzip": "gz",
        "application/json": "json",
        "application/md": "md",
        "application/msword": "doc",
        "application/pdf": "pdf",
        "application/txt": "txt",
        "application/vnd.ms-excel": "xls",
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
        "application/xls": "xls",
        "application/xlsx": "xlsx",
        "application/xml": "xml",
        "application/yaml": "yaml",
        "application/zip": "zip",
        "audio/aac": "aac",
        "audio/flac": "flac",
        "audio/mp3": "mp3",
        "audio/mpeg": "mp3",
        "audio/ogg": "ogg",
        "audio/opus": "opus",
        "audio/wav": "wav",
        "audio/webm": "weba",
        "image/bmp": "bmp",
        "image/gif": "gif",
        "image/jpeg": "jpg",
        "image/jpg": "jpg",
        "image/png": "png",
        "image/tiff": "tiff",
        "image/webp": "webp",
        "text/csv": "csv",
        "text/markdown": "md",
        "text/plain": "txt",
        "video/mp4": "mp4",
        "video/webm": "webm",
    }
)
"""Our own table, since the host's MIME files differ. HTML and SVG run code when opened, so they get ``bin``."""

_STRANDS_DOCUMENTS = ("csv", "doc", "docx", "md", "txt", "xls", "xlsx")
_ALIASES: Final = frozenset({"audio/mp3", "image/jpg", *(f"application/{name}" for name in _STRANDS_DOCUMENTS)})
"""Other names for types that have one; Strands calls documents ``application/<format>``."""

_MEDIA_TYPES = MappingProxyType({extension: kind for kind, extension in _EXTENSIONS.items() if kind not in _ALIASES})

# No id that ends in ".view", in whatever case, is its own name, so no result has the name of another one's view.
_VIEW_SUFFIX = ".view.txt"
_VARIANT = re.compile(r"~[a-z2-7]{16}\.txt$")
_RESULT = re.compile(r"tool_result-[A-Za-z0-9][A-Za-z0-9._~-]{0,127}\.txt")
_SUMMARY_FACTS = re.compile(r"facts-([1-9][0-9]{0,15})\.jsonl")
_REFERENCE = re.compile(r"workspace:///(data/[0-9a-f]{64}\.[a-z0-9]{1,8})")


def encode_id(identifier: str) -> str:
    """Return a part of a file name that depends on *identifier* alone and that no other id has on any file system.

    It names a session whose plain id is taken or cannot be a name. Any text has a name, the empty one included: models
    and providers choose it, and refusing one would refuse the result that came with it.

    There are three classes, which the name alone reveals. A plain lower-case id is its own name. An id with capitals or
    inner dots is followed by ``~`` and 8 base32 characters (40 bits) of its hash. Every other id becomes a readable
    slug with 32 of them (160 bits), since only the hash distinguishes two ids there. A name has at most 73 ASCII
    characters.

    Raises:
        InvalidNameError: *identifier* is not text.
    """
    require_id(identifier)
    if _SPELLED.fullmatch(identifier):
        return identifier if _PLAIN.fullmatch(identifier) else f"{identifier}~{_id_hash(identifier)[:8]}"
    slug = re.sub(r"[^a-z0-9]+", "-", identifier.lower())[:_SLUG_CHARS].strip("-")
    return f"{slug or 'id'}~{_id_hash(identifier)}"


def require_id(identifier: object) -> None:
    """Check that *identifier* can be the id of a call.

    Raises:
        InvalidNameError: It is not text.
    """
    if not isinstance(identifier, str):
        raise InvalidNameError(identifier, f"an id must be text, not {type(identifier).__name__}")


def is_name(identifier: str) -> bool:
    """Return whether *identifier* can be a file name as it is."""
    return _SPELLED.fullmatch(identifier) is not None and not identifier.lower().endswith(".view")


def folded(name: str) -> str:
    """Return *name* as a file system sees it that ignores case and Unicode forms; equal names are one file there."""
    return (
        name.lower()
        if name.isascii()
        else unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    )


def session_directories(session_id: str) -> tuple[str, ...]:
    """Return the workspace-relative directories that a session may have, best first.

    A new session gets the first one that is free, up to case and normal form. The last one has 160 bits of the hash, so
    it is always free.

    Raises:
        InvalidNameError: *session_id* is not text, is empty, or has more than 4,096 characters.
    """
    require_id(session_id)
    if not 0 < len(session_id) <= MAX_SESSION_ID_CHARS:
        raise InvalidNameError(session_id, f"a session id must have from 1 to {MAX_SESSION_ID_CHARS:,} characters")
    if not _SPELLED.fullmatch(session_id):
        return (f"{SESSIONS}/{encode_id(session_id)}",)
    first, digest = f"{SESSIONS}/{session_id}", _id_hash(session_id)
    hashed = f"{first}~{digest[:8]}", f"{first}~{digest}"
    return (first, *hashed) if is_name(session_id) else hashed


def result_names(call_id: str) -> tuple[str, ...]:
    """Return the names that the first result of *call_id* may have within its session, best first; see above.

    There are none for an id that cannot be a name: its results are numbered, see `numbered_result_name`.
    """
    if not is_name(call_id):
        return ()
    first, digest = f"tool_result-{call_id}", _id_hash(call_id)
    return f"{first}.txt", f"{first}~{digest[:8]}.txt", f"{first}~{digest}.txt"


def numbered_result_name(call_id: str, tool: str, number: int, digest: str) -> str:
    """Return the name of the result of an id that cannot be a name: its tool, its number in the session and a hash.

    The id stands in for the name of the tool if that is empty. *digest* is the SHA-256 of the result's content.
    """
    slug = _slug(tool) or _slug(call_id)
    return f"tool_result-{slug}{'-' if slug else ''}{number}{result_tail(call_id, digest)}"


def result_tail(call_id: str, digest: str) -> str:
    """Return the end of a numbered result's name, which depends on its id and content."""
    content = f"{digest} {call_id}".encode("utf-8", "surrogatepass")
    return f"~{_base32_hash(content)[:16]}.txt"


def variant_result_name(first: str, sha256: str) -> str:
    """Return the name of a further result of the call whose *first* has that name; *sha256* is of its content."""
    return f"{first.removesuffix('.txt')}~{_base32(bytes.fromhex(sha256))[:16]}.txt"


def first_result_name(name: str) -> str:
    """Return the name of the call's first result; *name* is that of any of its results."""
    return _VARIANT.sub(".txt", name)


def view_name(result_name: str) -> str:
    """Return the name of the readable view of the tool result called *result_name*."""
    return f"{result_name.removesuffix('.txt')}{_VIEW_SUFFIX}"


def is_result_name(name: str) -> bool:
    """Return whether *name* is the name of a tool result, not of a view, within its session."""
    return _RESULT.fullmatch(name) is not None and not name.endswith(_VIEW_SUFFIX)


def is_view_name(name: str) -> bool:
    """Return whether *name* is the name of a tool result's view within its session."""
    return _RESULT.fullmatch(name) is not None and name.endswith(_VIEW_SUFFIX)


def result_behind(view: str) -> str:
    """Return the name of the tool result of the view called *view*."""
    return f"{view.removesuffix(_VIEW_SUFFIX)}.txt"


def summary_facts_name(number: int) -> str:
    """Return the name, within its session, of the file with the facts of summary *number*."""
    return SUMMARY_FACTS.format(number)


def summary_number(name: str) -> int | None:
    """Return the number of the summary whose facts are in the file *name*; None if it is another file."""
    found = _SUMMARY_FACTS.fullmatch(name)
    return None if found is None else int(found[1])


def blob_name(payload: bytes, media_type: str) -> str:
    """Return the workspace-relative name of the file that holds *payload*; an unknown or active type gets ``.bin``.

    The digest is over the decoded bytes, so that one image is one file in every spelling of base64, and ``sha256sum``
    can verify it.
    """
    essence = media_type.split(";", maxsplit=1)[0].strip().lower()
    return f"{DATA}/{hashlib.sha256(payload).hexdigest()}.{_EXTENSIONS.get(essence, 'bin')}"


def media_type_of(blob: str) -> str:
    """Return the media type of the extension of a blob's name; ``.bin`` has no particular one."""
    return _MEDIA_TYPES.get(blob.rpartition(".")[2], "application/octet-stream")


def reference_to(name: str) -> str:
    """Return the reference of the blob called *name*."""
    return f"workspace:///{name}"


def blob_behind(reference: str) -> str | None:
    """Return the blob's workspace-relative name; None if *reference* is not one of ours."""
    match = _REFERENCE.fullmatch(reference)
    return match[1] if match else None


def document_name(name: object) -> str:
    """Return the workspace-relative name of the context-management document called *name*.

    Source: OpenSearch allows small letters, digits, ``_`` and ``-``, at most 49 of them; one that begins with a ``-``
    would look like an option on a command line; neither ``-`` nor ``_`` may come first here.

    Raises:
        InvalidNameError: *name* cannot be one.
    """
    if not isinstance(name, str):
        raise InvalidNameError(name, f"a document's name must be text, not {type(name).__name__}")
    if not _DOCUMENT.fullmatch(name):
        reason = "a document's name has 1 to 49 small letters, digits, '_' and '-', and begins with a letter or digit"
        raise InvalidNameError(name, reason)
    return f"{CONTEXT_MANAGEMENT}/{name}.json"


def document_in(entry: str) -> str | None:
    """Return the name of the document in the file *entry* of its directory; None if it is not a document's file."""
    name = entry.removesuffix(".json")
    return name if name != entry and _DOCUMENT.fullmatch(name) else None


def lock_name(session_id: str) -> str:
    """Return the lock file of a session. All sessions share 256 files, so that none has to be deleted."""
    shard = hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()[:2]
    return f"{LOCKS}/{shard}.lock"


def removed_name(token: str) -> str:
    """Return the name of a session's directory while it is being removed; *token* is different every time."""
    return f"{SESSIONS}/{_REMOVED_PREFIX}{token}"


def is_removed_name(name: str) -> bool:
    """Return whether *name*, within ``sessions/``, is that of a session that is being removed."""
    return name.startswith(_REMOVED_PREFIX)


def digest_in(blob: str) -> str | None:
    """Return the SHA-256 in a blob's workspace-relative name; None if it is not a blob's name."""
    name = blob_behind(reference_to(blob))
    return name and name.removeprefix(f"{DATA}/").partition(".")[0]


def torn_name(name: str, offset: int, content: bytes) -> str:
    """Return the file for the torn bytes *content* that were found at *offset* of the session's file *name*."""
    return f"{TORN}/{name}-{offset}-{hashlib.sha256(content).hexdigest()[:8]}"


def set_aside_name(path: str, digest: str) -> str:
    """Return where repair sets the whole file *path* with the SHA-256 *digest* aside; both paths are relative.

    A file of the workdir itself goes to ``data/torn/``, since all other names in the workdir are the agent's.
    """
    directory, _, name = path.rpartition("/")
    return f"{directory or DATA}/{TORN}/{name}-0-{digest[:8]}"


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]+", "-", text)[:_SLUG_CHARS].strip("-_")


def _id_hash(identifier: str) -> str:
    return _base32_hash(identifier.encode("utf-8", "surrogatepass"))


def _base32_hash(content: bytes) -> str:
    return _base32(hashlib.sha256(content).digest())


def _base32(digest: bytes) -> str:
    return base64.b32encode(digest[:20]).decode("ascii").lower()
