"""Tool output that is read while it arrives: an iterator, a pipe, a file; and blocking work in a thread."""

import asyncio
import inspect
import os
import time
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar, cast

from buoyline.errors import ToolOutputError
from buoyline.messages import Text, ToolResult
from buoyline.offloader.protocol import StoredResult, ToolOutput
from buoyline.previews.source import BlockCutter, decoded
from buoyline.workspace.redaction import Redaction
from buoyline.workspace.results import Results, StagedResult

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """Run *work* in a worker thread, and wait for its end before a cancellation is raised."""
    return await finished(asyncio.ensure_future(asyncio.to_thread(work)))


async def finished(task: "asyncio.Future[T]") -> T:
    """Return what *task* returns; if the caller is cancelled, wait for its end all the same."""
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([task])
        raise


HELD_BYTES = 1 << 20
"""Output up to here is a message like any other; above, it goes to a file while it arrives."""

MAX_REDACTED_BYTES = 64_000_000
"""A redaction hook gets each text whole, so such output is held in memory; a larger one is refused."""

_READ_BYTES = 1 << 16
_GATHERED_S = 0.02
"""Pieces that come within this time leave their thread together: a switch of threads takes longer than a line."""

_END: Final = object()
_NOT_IN_PIECES = (str, bytes, bytearray, memoryview, dict)


class Collected(NamedTuple):
    """An output that has ended.

    Attributes:
        text: All of it, if it is small; else empty.
        stored: Its file, if it is large.
        error: Why it is not whole; None if it is.
    """

    text: str
    stored: StoredResult | None = None
    error: BaseException | None = None


async def collected(
    call_id: str, output: ToolOutput, results: Results, redaction: Redaction, *, keep_partial: bool = False
) -> Collected:
    """Read *output* to its end. Output above a megabyte goes to a file block by block.

    Args:
        call_id: Of the call whose result it is.
        output: Pieces of text or bytes; a file or pipe with ``read``, which may be asynchronous; or a path.
        results: Where it is stored.
        redaction: Of the workspace.
        keep_partial: After an error in *output*, or a cancellation, what came before is kept, and the error returned.

    Raises:
        ToolOutputError: It cannot be read piece by piece, or is too large for the redaction hook.
        StorageError: The file system refused.
        Exception: Whatever *output* raises, unless *keep_partial*.
    """
    collecting, failure = _Collecting(call_id, results, redaction), None
    try:
        try:
            async for chunk in chunks_of(call_id, output):
                await collecting.take(chunk)
        except (Exception, asyncio.CancelledError) as error:
            if not keep_partial:
                raise
            failure = error
        return await in_thread(lambda: collecting.end(failure))
    finally:
        await in_thread(collecting.discard)


class _Collecting:
    """Holds an output in memory while it is small, then in a staged file."""

    def __init__(self, call_id: str, results: Results, redaction: Redaction) -> None:
        self._call_id, self._results, self._redaction = call_id, results, redaction
        self._cutter = BlockCutter()
        self._blocks: list[bytes] = []
        self._size_bytes = 0
        self._files = ExitStack()
        self._staged: StagedResult | None = None

    async def take(self, chunk: bytes) -> None:
        self._size_bytes += len(chunk)
        blocks = list(self._cutter.take(chunk))
        if self._redaction.is_active:
            self._blocks += blocks
            if self._size_bytes > MAX_REDACTED_BYTES:
                reason = (
                    f"a redaction hook gets whole texts, and this one has more than {MAX_REDACTED_BYTES:,} bytes; "
                    "let the tool give less, or redact it as it comes and use a workspace without the hook"
                )
                raise ToolOutputError(self._call_id, reason)
        elif blocks:
            await in_thread(lambda: self._write(blocks))

    def end(self, failure: BaseException | None) -> Collected:
        rest = self._cutter.rest()
        if self._staged is None:
            text = decoded(b"".join((*self._blocks, rest)))
            if not self._redaction.is_active or self._size_bytes <= HELD_BYTES:
                return Collected(text, None, failure)
            result = self._redaction.result(ToolResult(self._call_id, "", (Text(text),)))
            return Collected("", self._results.store(result), failure)
        self._write([rest])
        return Collected("", self._staged.publish(self._call_id, reason_of(failure)), failure)

    def discard(self) -> None:
        self._files.close()

    def _write(self, blocks: list[bytes]) -> None:
        if self._staged is None:
            self._staged = self._files.enter_context(self._results.stage())
        for block in blocks:
            self._staged.append(block)


def reason_of(error: BaseException | None) -> str:
    """Return in a few words why an output is not whole, without a tool's own error text, which may quote anything."""
    if error is None:
        return ""
    return "cancelled" if isinstance(error, asyncio.CancelledError) else type(error).__name__


async def chunks_of(call_id: str, output: ToolOutput) -> AsyncGenerator[bytes]:
    """Yield the pieces of *output* as bytes without blocking the event loop; a synchronous one is read in a thread.

    ``read`` is preferred to iteration: an `asyncio.StreamReader` iterates over lines, and refuses those over 64 KiB.
    """
    pieces = _pieces(call_id, output)
    async for chunk in pieces if isinstance(pieces, AsyncIterable) else _pulled(iter(pieces)):
        if isinstance(chunk, str):
            yield chunk.encode("utf-8", "surrogatepass")
        elif isinstance(chunk, (bytes, bytearray, memoryview)):
            yield bytes(cast("bytes", chunk))
        else:
            kind = type(chunk).__name__
            raise ToolOutputError(call_id, f"{kind} is neither text nor bytes; pass what the tool gave as such")


def _pieces(call_id: str, output: ToolOutput) -> AsyncIterable[Any] | Iterable[Any]:
    if isinstance(output, os.PathLike):
        return _of_file(Path(output))
    read = getattr(output, "read1", None) or getattr(output, "read", None)
    if inspect.iscoroutinefunction(read):
        return _awaited(read)
    if callable(read):
        return iter(lambda: read(_READ_BYTES) or _END, _END)
    if isinstance(output, AsyncIterable | Iterable) and not isinstance(output, _NOT_IN_PIECES):
        return cast("AsyncIterable[Any] | Iterable[Any]", output)
    kind = type(cast("object", output)).__name__
    reason = f"{kind} cannot be read piece by piece; pass an iterator of str or bytes, a file, or a Path"
    raise ToolOutputError(call_id, f"{reason} (a text as [text])")


def _of_file(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield from iter(lambda: file.read(_READ_BYTES), b"")


async def _awaited(read: Callable[[int], Any]) -> AsyncGenerator[Any]:
    while chunk := await read(_READ_BYTES):
        yield chunk


async def _pulled(iterator: Iterator[Any]) -> AsyncGenerator[Any]:
    gathered: list[Any] = [None]
    while gathered:
        gathered = []
        try:
            await asyncio.to_thread(_gather, iterator, gathered)
        finally:
            # What came before an error is part of the output; a thread that waits for its next piece cannot be stopped.
            for chunk in tuple(gathered):
                yield chunk


def _gather(iterator: Iterator[Any], gathered: list[Any]) -> None:
    """Append the pieces that *iterator* yields within a moment; none at its end."""
    until_s, size = time.monotonic() + _GATHERED_S, 0
    while size < _READ_BYTES and time.monotonic() < until_s:
        chunk = next(iterator, _END)
        if chunk is _END:
            return
        gathered.append(chunk)
        size += len(chunk) if isinstance(chunk, (str, bytes)) else 1
