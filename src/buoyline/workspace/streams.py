"""Streamed tool results: reading a tool's output, and the writer that stores it piece by piece.

Until the end, the pieces are in a file without a final name in ``sessions/``. No lock is held, and the session need not
exist; docs/format.md, "tool_result-<id>.txt".
"""

import asyncio
import contextlib
import errno
import hashlib
import inspect
import io
import os
import time
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, Protocol, Self, TypeVar, cast

from buoyline.errors import BuoylineError, ConfigError, NotFoundError, StorageError, ToolOutputError
from buoyline.messages import Text, ToolResult
from buoyline.offloader.protocol import StoredResult, ToolOutput
from buoyline.offloader.view import needs_view, view_blocks
from buoyline.previews.source import BlockCutter, BytesSource, character_boundary, decoded
from buoyline.workspace import layout
from buoyline.workspace.content import Measure
from buoyline.workspace.local_tree import outside_chunks, outside_file
from buoyline.workspace.pool import RunsWork
from buoyline.workspace.results import StagedResult
from buoyline.workspace.tree import OpenFile, Tree

# Files as texts that are read piece by piece.


CHUNK_BYTES = 1 << 18
"""Less than a block: the rest of the last chunk and the next one are joined, and should make one block."""


def file_source(tree: Tree, name: str) -> BytesSource:
    """Return the text of the file *name* of a workspace.

    Raises:
        NotFoundError: It is not there.
    """
    size_bytes = tree.size(name)
    if size_bytes is None:
        raise NotFoundError("file", tree.path(name))
    return BytesSource(lambda: tree.chunks(name, CHUNK_BYTES), size_bytes)


def outside_source(path: Path) -> BytesSource:
    """Return the text of a file outside any workspace, which must not grow while it is read.

    Raises:
        StorageError: It is no regular file, or the file system refused.
    """
    if not path.is_file():
        raise StorageError(errno.EINVAL, "is no regular file, which could be read twice", str(path))
    return BytesSource(lambda: outside_chunks(path, CHUNK_BYTES), path.stat().st_size)


T = TypeVar("T")

MAX_REDACTED_BYTES = 64_000_000
"""A hook gets each text whole, so the output is held in memory; a larger one is refused."""


class ResultSink(Protocol):
    """Receives the blocks of one result. Each method may block."""

    def append(self, block: bytes) -> None:
        """Add a block: whole lines, or a part of a long one."""
        ...

    def finalize(self) -> None:
        """Do the slow work after the last block, before `store`."""
        ...

    def store(self, partial: str) -> StoredResult:
        """Store the blocks as a result."""
        ...

    def discard(self) -> None:
        """Remove the blocks; after `store`, all temporary files."""
        ...


class StreamWriter:
    """Writes one result to a sink in blocks of about a megabyte; see `buoyline.offloader.ResultWriter`."""

    def __init__(self, call_id: str, sink: ResultSink, *, run: RunsWork, run_in_order: RunsWork) -> None:
        """Begin with nothing; *run* runs work for this result alone, and *run_in_order* work for its session."""
        self._call_id = call_id
        self._sink = sink
        self._run, self._run_in_order = run, run_in_order
        self._cutter = BlockCutter()
        self._waiting: list[bytes] = []
        self._is_over = False

    async def write(self, chunk: str | bytes) -> None:
        """Add the next piece; most of it is written at once, the rest with the next piece.

        Raises:
            ToolOutputError: The result was stored or discarded already, or is too large for a redaction hook.
            StorageError: The file system refused; all is discarded.
        """
        self._require_open()
        content = chunk.encode("utf-8", "surrogatepass") if isinstance(chunk, str) else bytes(chunk)
        self._waiting += self._cutter.take(content)
        if self._waiting:
            await self._guarded(self._run(self._append_waiting))

    async def store(self, *, partial: str = "") -> StoredResult:
        """Store the written pieces, durably.

        Args:
            partial: Why the result is not whole; empty if it is.

        Raises:
            ToolOutputError: It was stored or discarded already.
            BuoylineError: As `LocalWorkspace.store_result` does; all is discarded.
        """
        self._require_open()
        self._waiting.append(self._cutter.rest())
        await self._guarded(self._run(self._finalize))
        stored = await self._guarded(self._run_in_order(lambda: self._sink.store(partial)))
        await self.discard()
        return stored

    async def discard(self) -> None:
        """Discard the pieces unless they were stored."""
        if not self._is_over:
            self._is_over = True
            await _finished(self._run(self._sink.discard))

    async def __aenter__(self) -> Self:
        """Return the writer."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Discard the pieces unless they were stored."""
        await self.discard()

    def _append_waiting(self) -> None:
        # Removed only after it is written: if this call is cancelled before it begins, the next one writes it.
        while self._waiting:
            self._sink.append(self._waiting[0])
            del self._waiting[0]

    def _finalize(self) -> None:
        self._append_waiting()
        self._sink.finalize()

    async def _guarded(self, work: Awaitable[T]) -> T:
        try:
            return await work
        except asyncio.CancelledError:
            raise
        except BaseException:
            await self.discard()
            raise

    def _require_open(self) -> None:
        if self._is_over:
            raise ToolOutputError(self._call_id, "it was stored or discarded already; begin a new one")


class FileSink:
    """Keeps a result in a file without a final name, and makes its view from that file."""

    def __init__(
        self, tree: Tree, prepare: Callable[[], None], publish: Callable[[StagedResult, str], StoredResult]
    ) -> None:
        """Write nothing yet. *prepare* creates the workspace."""
        self._tree = tree
        self._prepare = prepare
        self._publish = publish
        self._file = _StagedFile(self)
        self._view: _StagedFile | None = None
        self._is_readable = True

    def open(self) -> tuple[str, OpenFile]:
        """Create a file without a final name."""
        self._prepare()
        return self._tree.stage(layout.SESSIONS)

    def append(self, block: bytes) -> None:
        """Append *block*."""
        is_beginning = not self._file.size_bytes
        self._file.append(block)
        self._is_readable = self._is_readable and not needs_view(decoded(block), is_beginning=is_beginning)

    def finalize(self) -> None:
        """Make the content and its view durable."""
        self._file.sync()
        if self._is_readable or self._view is not None:
            return
        self._view = _StagedFile(self)
        source = file_source(self._tree, self._file.name)
        for block in view_blocks(source):
            self._view.append(block.encode("utf-8"))
        self._view.sync()

    def store(self, partial: str) -> StoredResult:
        """Publish both."""
        view, file = self._view, self._file
        staged = StagedResult(file.name, file.measure())
        if view is not None:
            staged = StagedResult(file.name, file.measure(), view.name, view.newlines, view.size_bytes)
        return self._publish(staged, partial)

    def discard(self) -> None:
        """Remove the files that have no final name."""
        for file in (self._file, *((self._view,) if self._view else ())):
            file.remove(self._tree)


class _StagedFile:
    """A growing file with size, hash and lines of its content."""

    def __init__(self, sink: FileSink) -> None:
        self.name = ""
        self.size_bytes = 0
        self.newlines = 0
        self._sink = sink
        self._handle: OpenFile | None = None
        self._digest = hashlib.sha256()
        self._last = b"\n"

    def append(self, block: bytes) -> None:
        handle = self._opened()
        handle.append(block)
        handle.write_back(self.size_bytes, len(block))
        self._digest.update(block)
        self.size_bytes += len(block)
        self.newlines += block.count(b"\n")
        self._last = block[-1:] or self._last

    def sync(self) -> None:
        self._opened().sync()

    def measure(self) -> Measure:
        lines = self.newlines + (self._last != b"\n")
        return Measure(self.size_bytes, self._digest.hexdigest(), lines, ((0, self.size_bytes),))

    def remove(self, tree: Tree) -> None:
        if self._handle is not None:
            self._handle.close()
            self._handle = None
            tree.remove(self.name)

    def _opened(self) -> OpenFile:
        if self._handle is None:
            self.name, self._handle = self._sink.open()
        return self._handle


class BufferSink:
    """Keeps a result in memory for a hook that needs all of it before anything is written."""

    def __init__(self, call_id: str, keep: Callable[[ToolResult], StoredResult]) -> None:
        """Pass the whole result to *keep*."""
        self._call_id = call_id
        self._keep = keep
        self._blocks: list[bytes] = []
        self._size_bytes = 0

    def append(self, block: bytes) -> None:
        """Keep *block*.

        Raises:
            ToolOutputError: The result is too large.
        """
        self._size_bytes += len(block)
        if self._size_bytes > MAX_REDACTED_BYTES:
            reason = (
                f"a redaction hook gets whole texts, and this one has more than {MAX_REDACTED_BYTES:,} bytes; nothing "
                "was stored: redact it as it comes and use a workspace without the hook, or pass a smaller max_bytes"
            )
            raise ToolOutputError(self._call_id, reason)
        self._blocks.append(block)

    def finalize(self) -> None:
        """Do nothing."""

    def store(self, partial: str) -> StoredResult:  # noqa: ARG002 - a partial result is refused before, see `result_writer`
        """Store the blocks as a result."""
        return self._keep(ToolResult(self._call_id, "", (Text(decoded(b"".join(self._blocks))),)))

    def discard(self) -> None:
        """Drop the blocks."""
        self._blocks.clear()


async def _finished(work: Awaitable[T]) -> T:
    """Wait for the end of *work* before a cancellation is raised."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([task])
        raise


# Every kind of streamed output as one kind of stream: an iterator, a pipe, a file.


_READ_BYTES = 1 << 16
_GATHERED_S = 0.02
"""Pieces that come within this time leave their thread together: a switch of threads takes longer than a line of
text."""

_END: Final = object()

_NOT_IN_PIECES = (str, bytes, bytearray, memoryview, dict)
"""Python can iterate over these, but nobody means that."""


async def chunks_of(call_id: str, output: ToolOutput, max_bytes: int | None = None) -> AsyncGenerator[bytes]:
    """Yield the pieces of *output* as bytes, none of them empty, without blocking the event loop.

    A synchronous output is read in a thread. ``read`` is preferred to iteration: an `asyncio.StreamReader` iterates
    over lines, and refuses those over 64 KiB. A generator is closed at the end, even if the reading ends early.

    Raises:
        ConfigError: *max_bytes* is neither None nor a whole number above 0.
        ToolOutputError: It cannot be read, gives something other than text or bytes, or has more than *max_bytes*, of
            which the first part was yielded.
        StorageError: The file at this path cannot be read.
        Exception: Whatever *output* raises.
    """
    if max_bytes is not None and max_bytes < 1:
        raise ConfigError("max_bytes", f"{max_bytes!r} is not a whole number of bytes above 0; None sets no limit")
    chunks = _chunks(call_id, output)
    taken_bytes = 0
    try:
        async for chunk in chunks:
            content = _content(call_id, chunk)
            room = len(content) if max_bytes is None else max_bytes - taken_bytes
            fitting = content if len(content) <= room else content[: character_boundary(content, room)]
            taken_bytes += len(fitting)
            if fitting:
                yield fitting
            if len(fitting) < len(content):
                raise ToolOutputError(
                    call_id, f"more than max_bytes={max_bytes:,}; let the tool give less, or allow more"
                )
    finally:
        await closed(chunks)


def is_of_tool(error: BaseException) -> bool:
    """Return whether the tool or its caller stopped the output, so that the part before it is good."""
    return isinstance(error, ToolOutputError) or not isinstance(error, BuoylineError)


def reason_of(error: BaseException) -> str:
    """Return in a few words why an output is not whole, without a tool's own error text, which may quote anything."""
    if isinstance(error, ToolOutputError):
        return error.reason
    return "cancelled" if isinstance(error, asyncio.CancelledError) else type(error).__name__


def _chunks(call_id: str, output: ToolOutput) -> AsyncGenerator[Any]:
    if isinstance(output, os.PathLike):
        # A pipe may be silent for long; a thread that waits for it must not hold the file that is closed here.
        return outside_file(output) if Path(output).is_file() else _pulled(outside_chunks(output))
    read = getattr(output, "read1", None) or getattr(output, "read", None)
    if inspect.iscoroutinefunction(read):
        return _read(read)
    if callable(read):
        if _is_non_blocking(output):
            problem = "a file in non-blocking mode gives the same at a pause as at its end"
            raise ToolOutputError(call_id, f"{problem}; call os.set_blocking(file.fileno(), True) first")
        return _pulled(iter(lambda: read(_READ_BYTES) or _END, _END))
    if isinstance(output, AsyncIterable):
        return _iterated(cast("AsyncIterable[Any]", output))
    if isinstance(output, Iterable) and not isinstance(output, _NOT_IN_PIECES):
        return _pulled(cast("Iterable[Any]", output))
    kind = type(cast("object", output)).__name__
    reason = f"{kind} cannot be read piece by piece; pass an iterator of str or bytes, a file, or a Path"
    raise ToolOutputError(call_id, f"{reason} (a text as [text])")


def _is_non_blocking(output: object) -> bool:
    # Not so of a socket with a timeout: its file waits, although its descriptor does not block.
    buffer = getattr(output, "buffer", output)
    raw = getattr(buffer, "raw", buffer)
    return isinstance(raw, io.FileIO) and not os.get_blocking(raw.fileno())


def _content(call_id: str, chunk: object) -> bytes:
    if isinstance(chunk, str):
        return chunk.encode("utf-8", "surrogatepass")
    if isinstance(chunk, (bytes, bytearray, memoryview)):
        return bytes(cast("bytes", chunk))
    raise ToolOutputError(call_id, f"{type(chunk).__name__} is neither text nor bytes; pass what the tool gave as such")


async def _read(read: Callable[[int], Any]) -> AsyncGenerator[Any]:
    while chunk := await read(_READ_BYTES):
        yield chunk


async def _iterated(output: AsyncIterable[Any]) -> AsyncGenerator[Any]:
    iterator = aiter(output)
    try:
        async for chunk in iterator:
            yield chunk
    finally:
        await closed(iterator)


async def _pulled(output: Iterable[Any]) -> AsyncGenerator[Any]:
    iterator = iter(output)
    is_pulling = False
    try:
        gathered: list[Any] = [None]
        while gathered:
            gathered, is_pulling = [], True
            try:
                await asyncio.to_thread(_gather, iterator, gathered)
            except BaseException as error:
                # A thread cannot be stopped: it ends when it gets the piece it waits for, and only that piece is lost.
                is_pulling = isinstance(error, asyncio.CancelledError)
                for chunk in tuple(gathered):
                    yield chunk
                raise
            is_pulling = False
            for chunk in gathered:
                yield chunk
    finally:
        close = getattr(iterator, "close", None)
        if inspect.isgenerator(iterator) and close is not None and not is_pulling:
            await asyncio.to_thread(close)


def _gather(iterator: Iterator[Any], gathered: list[Any]) -> None:
    """Append the pieces that *iterator* yields within a moment; none at its end."""
    until_s = time.monotonic() + _GATHERED_S
    size = 0
    while size < _READ_BYTES and time.monotonic() < until_s:
        chunk = next(iterator, _END)
        if chunk is _END:
            return
        gathered.append(chunk)
        size += len(chunk) if isinstance(chunk, (str, bytes)) else 1


async def closed(chunks: object) -> None:
    """Close an asynchronous iterator, if it can be closed."""
    aclose = getattr(chunks, "aclose", None)
    if aclose is not None:
        await aclose()
