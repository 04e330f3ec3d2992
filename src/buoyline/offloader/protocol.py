"""The contract of an offloader, and what is known of a stored result.

Two methods make an offloader: AgentScope's ``Agent(offloader=...)`` takes any object that has them.
"""

import json
import os
from collections.abc import AsyncIterable, Iterable
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, NamedTuple, Protocol, TypeAlias


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
