"""The contract of an offloader, what is known of a stored result, and readable views of results.

Two methods make an offloader: AgentScope's ``Agent(offloader=...)`` takes any object that has them.
"""

import json
import os
import re
from collections.abc import AsyncIterable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, NamedTuple, Protocol, TypeAlias

from buoyline.previews.source import (
    MAX_LINE_CHARS,
    Source,
    escaped,
    full_pieces,
    is_page,
    is_readable,
    page_text,
    readable_lines,
    wrapped,
)


class ReadableFile(Protocol):
    """A file, pipe or stream whose ``read`` may be asynchronous, such as a subprocess's ``stdout``."""

    def read(self, size: int, /) -> Any:
        """Return up to *size* bytes or characters, or an awaitable of them; empty at the end."""
        ...


ToolOutput: TypeAlias = AsyncIterable[str | bytes] | Iterable[str | bytes] | ReadableFile | os.PathLike[str]
"""Tool output in pieces. A bare string could be a path, so pass ``[text]`` or ``Path(text)``."""


class Offloader(Protocol):
    """Stores content that is taken out of a context. Source: AgentScope's ``Offloader``.

    Messages come as a list, as documented; an offloader may accept any sequence.
    """

    async def offload_context(self, session_id: str, msgs: list[Any], **kwargs: Any) -> str:
        """Store archived messages; return a reference that the agent can use, such as a path."""
        ...

    async def offload_tool_result(self, session_id: str, tool_result: Any, **kwargs: Any) -> str:
        """Store one whole tool result; return a reference that the agent can use, such as a path."""
        ...


@dataclass(frozen=True, slots=True)
class StoredPart:
    """A stored block of a tool result.

    Attributes:
        kind: ``"text"`` or ``"json"``, in the result's own file; ``"image"``, ``"audio"``, ``"document"`` or another
            type, with its decoded bytes in a file of their own; ``"opaque"`` for a block without a readable payload,
            whose JSON is in that file.
        offset: Where a text or JSON part begins in the result's file, in bytes; 0 for others.
        media_type: IANA media type; empty for text and JSON, or if unknown.
        path: The file with the bytes, relative to the workspace; empty for text and JSON.
        reference: The agent's reference to that file; an absolute path for a workspace on disk.
        name: File name or title of a document, or the type of an ``"opaque"`` block; may be empty.
    """

    kind: str
    size_bytes: int
    offset: int = 0
    media_type: str = ""
    path: str = ""
    reference: str = ""
    name: str = ""


class StoredFile(NamedTuple):
    """A file that a line of the log names, so that `verify` sees each changed byte.

    *name* is within the session; that of a payload begins with ``data/``, and needs no *crc*.
    """

    name: str
    size_bytes: int
    crc: str


@dataclass(frozen=True, slots=True)
class StoredResult:
    """A stored tool result.

    Attributes:
        reference: The agent's reference to the whole result; an absolute path for a workspace.
        name: File name within the session, for citations.
        view: Absolute path of the readable view; empty if the result itself is readable.
        lines: Lines of the view, or of the result if there is no view.
        parts: One for each block, in the tool's order.
        partial: Why the output is incomplete; empty for a whole result.
        files: Its own file, that of its view, and its payloads.
    """

    reference: str
    name: str = ""
    view: str = ""
    lines: int = 0
    parts: tuple[StoredPart, ...] = ()
    partial: str = ""
    files: tuple[StoredFile, ...] = ()


def instead_of(given: object) -> str:
    """Return the advice for an argument that is not a workspace, most often the path of one.

    >>> instead_of("./workspace")
    'give LocalWorkspace("./workspace")'
    >>> instead_of(None)
    'give a LocalWorkspace'
    """
    if isinstance(given, (str, PurePath)) and str(given):
        return f"give LocalWorkspace({json.dumps(str(given), ensure_ascii=False)})"
    return "give a LocalWorkspace"


# Indenting takes 12 MB/s in pure Python; a larger document is wrapped instead, at 200 MB/s.
MAX_JSON_CHARS = 16_000_000
_MAX_INDENT = 40
_INDENTS = ["  " * depth for depth in (*range(_MAX_INDENT + 1), 0)]
_OPENING, _CLOSING = frozenset("{["), frozenset("}]")

# A value with its key and the delimiter after it: one match per line. An empty object or array counts as a value.
_STRING = r'"[^"\\]*(?:\\.[^"\\]*)*"'
_STEP = re.compile(
    rf"\s*(?:({_STRING})\s*:\s*)?({_STRING}|[^\s{{}}\[\],:\"]+|{{\s*}}|\[\s*\])?\s*([{{}}\[\],]|\Z)", re.DOTALL
)


def needs_view(text: str, *, is_beginning: bool = True) -> bool:
    """Check whether *text*, the beginning of a result or a later part of it, needs a view."""
    return not is_readable(text) or (is_beginning and is_page(text))


def view_of(text: str) -> str | None:
    r"""Return *text* with short lines, or None if its lines are short already.

    JSON is indented: only white space differs; numbers, keys and their order do not change. Of an HTML page the view is
    its text. Other texts are wrapped.

    Returns:
        Lines of at most 1,000 characters, each with ``\n``.
    """
    if not needs_view(text):
        return None
    if len(text) <= MAX_JSON_CHARS and is_page(text):
        lines = readable_lines(page_text(text))
    else:
        lines = indented(text) if _is_json(text) else readable_lines(text)
    return _joined(lines)


def indented(document: str) -> Iterator[str]:
    """Yield the lines of a JSON document, one value per line; a string that is too long is wrapped.

    The indentation stops at a depth of 40, so deep nesting takes linear space.
    """
    has_invisible = escaped(document) != document
    for line in _indented(document):
        shown = escaped(line) if has_invisible else line
        if len(shown) <= MAX_LINE_CHARS:
            yield shown
        else:
            yield from wrapped(shown)


def _is_json(text: str) -> bool:
    if len(text) > MAX_JSON_CHARS or text.lstrip()[:1] not in {"{", "["}:
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _indented(document: str) -> Iterator[str]:
    line, depth = "", 0
    for step in _STEP.finditer(document):
        key, scalar, sign = step.groups("")
        if scalar[:1] in _OPENING:
            scalar = scalar[0] + scalar[-1]
        value = f"{key}: {scalar}" if key else scalar
        if sign == ",":
            yield f"{line}{value},"
        elif sign in _OPENING:
            yield f"{line}{value}{sign}"
            depth += 1
        else:
            if value or line.strip():
                yield f"{line}{value}"
            depth -= 1
        line = _INDENTS[min(depth, _MAX_INDENT)] + (sign if sign in _CLOSING else "")


_MAX_CHARACTER_BYTES = 4

_SLICE_CHARS = 1 << 17
"""Wrapping holds five copies of a line, whole and in pieces: for a megabyte that took 9 MB at once."""


def view_blocks(source: Source) -> Iterator[str]:
    """Yield the view of a text that needs one, in pieces that together equal `view_of` of the text.

    Only JSON and pages that are small enough are held in memory.
    """
    small = _small_document(source)
    view = None if small is None else view_of(small)
    return wrapped_blocks(source.blocks()) if view is None else iter((view,))


def wrapped_blocks(blocks: Iterable[str]) -> Iterator[str]:
    """Yield the readable lines of a text in *blocks*, with line ends; a line is never held as a whole."""
    rest = ""
    for block in blocks:
        for start in range(0, len(block), _SLICE_CHARS):
            text = rest + block[start : start + _SLICE_CHARS]
            waiting = "\r" if text.endswith("\r") else ""  # it may be half of a line end
            text = text.removesuffix("\r")
            end = max(text.rfind("\n"), text.rfind("\r")) + 1
            pieces, last = full_pieces(escaped(text[end:]))
            yield _joined([*readable_lines(text[:end]), *pieces])
            rest = last + waiting
    yield _joined(readable_lines(rest))


def _joined(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _small_document(source: Source) -> str | None:
    """Return the text if it is small enough and may be JSON or a page; else None, usually without reading it."""
    if source.size_bytes > MAX_JSON_CHARS * _MAX_CHARACTER_BYTES:
        return None
    begin = next(source.blocks(), "")
    if begin.lstrip()[:1] not in {"{", "["} and not is_page(begin):
        return None
    text = "".join(source.blocks())
    return text if len(text) <= MAX_JSON_CHARS else None
