"""What a tool gives piece by piece, whatever it is, as one kind of stream: an iterator, a pipe, a file."""

import asyncio
import inspect
import os
import pathlib
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Iterator
from typing import Any, Final, TypeVar, cast

from buoyline.errors import BuoylineError, ConfigError, ToolOutputError
from buoyline.offloader.protocol import ResultWriter, StoredResult, ToolOutput
from buoyline.offloader.source import character_boundary
from buoyline.workspace._files import outside_chunks, outside_file

T = TypeVar("T")

_READ_BYTES = 1 << 16
_GATHERED_S = 0.02
"""What comes within so long crosses over from its thread at once: a hop takes longer than to make a line of text."""

_END: Final = object()

_NOT_IN_PIECES = (str, bytes, bytearray, memoryview, dict)
"""What Python can iterate over, though nobody means that by it."""


async def chunks_of(call_id: str, output: ToolOutput, max_bytes: int | None = None) -> AsyncGenerator[bytes]:
    """Yield what *output* gives as bytes, none of it empty, without blocking the event loop.

    What is not asynchronous is read in a thread. A ``read`` is preferred to iteration: an `asyncio.StreamReader`
    iterates over lines, and refuses those over 64 KiB.

    Args:
        call_id: Named in errors.
        output: Closed at the end where it is a generator, also when the reading ends early.
        max_bytes: Most that is yielded; None: all.

    Raises:
        ConfigError: *max_bytes* is neither None nor a whole number above 0.
        ToolOutputError: It is nothing that can be read, gives something else than text or bytes, or more than may be,
            of which what fits was yielded.
        StorageError: The file at this path cannot be read.
        Exception: Whatever *output* raises.
    """
    _require_limit(max_bytes)
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
        await _closed(chunks)


class StoresStreams(ABC):
    """A workspace that stores what tools give piece by piece, by way of the writers that it makes."""

    @abstractmethod
    def result_writer(self, session_id: str, call_id: str, *, keep_partial: bool = False) -> ResultWriter:
        """Begin a tool result that is written piece by piece."""

    async def store_stream(
        self,
        session_id: str,
        call_id: str,
        output: ToolOutput,
        *,
        max_bytes: int | None = None,
        keep_partial: bool = False,
    ) -> StoredResult:
        """Store a tool's output while it comes, at the cost of a few megabytes of memory; docs/streaming.md.

        Args:
            session_id: The session; created when the output is complete.
            call_id: The id of the call.
            output: An iterator of str or bytes, asynchronous or not; a file, pipe or stream; or a path.
            max_bytes: Most that may come.
            keep_partial: Store what came before an error or a cancellation, marked so. Not where a hook redacts.

        Raises:
            ToolOutputError: It has more than *max_bytes*, more than a redaction hook can be given, or cannot be read.
            ConfigError: *max_bytes* is no limit, or *keep_partial* is set where a hook redacts.
            QuotaExceededError: The session or the workspace would exceed its quota; nothing is left of it.
            BuoylineError: As for `offload_tool_result`; nothing is left of it.
            Exception: Whatever *output* raises.
        """
        writer = self.result_writer(session_id, call_id, keep_partial=keep_partial)
        return await stored_as_it_comes(chunks_of(call_id, output, max_bytes), writer, keep_partial=keep_partial)


async def stored_as_it_comes(
    chunks: AsyncGenerator[bytes], writer: ResultWriter, *, keep_partial: bool
) -> StoredResult:
    """Write all of *chunks* to *writer* and store it; see `StoresStreams.store_stream`."""
    async with writer:
        try:
            async for chunk in chunks:
                await writer.write(chunk)
        except BaseException as error:
            if keep_partial and is_of_tool(error):
                stored = await writer.store(partial=reason_of(error))
                error.add_note(f"What came before it is kept in {stored.reference}")
            raise
        finally:
            await _closed(chunks)
        return await writer.store()


def is_of_tool(error: BaseException) -> bool:
    """Tell whether the tool or its caller stopped an output, so that what came before is in order."""
    return isinstance(error, ToolOutputError) or not isinstance(error, BuoylineError)


def reason_of(error: BaseException) -> str:
    """Say in a few words why an output is not whole; what a tool's own error says may quote anything."""
    if isinstance(error, ToolOutputError):
        return error.reason
    return "cancelled" if isinstance(error, asyncio.CancelledError) else type(error).__name__


def _chunks(call_id: str, output: ToolOutput) -> AsyncGenerator[Any]:
    if isinstance(output, os.PathLike):
        # A pipe may give nothing for long; a thread that waits for it must not hold the file that is closed here.
        return outside_file(output) if pathlib.Path(output).is_file() else _pulled(outside_chunks(output))
    read = getattr(output, "read1", None) or getattr(output, "read", None)
    if inspect.iscoroutinefunction(read):
        return _read(read)
    if callable(read):
        return _pulled(iter(lambda: read(_READ_BYTES) or _END, _END))
    if isinstance(output, AsyncIterable):
        return _iterated(cast("AsyncIterable[Any]", output))
    if isinstance(output, Iterable) and not isinstance(output, _NOT_IN_PIECES):
        return _pulled(cast("Iterable[Any]", output))
    kind = type(cast("object", output)).__name__
    reason = f"{kind} cannot be read piece by piece; pass an iterator of str or bytes, a file, or a Path"
    raise ToolOutputError(call_id, f"{reason} (a text as [text])")


def _content(call_id: str, chunk: object) -> bytes:
    if isinstance(chunk, str):
        return chunk.encode("utf-8", "surrogatepass")
    if isinstance(chunk, (bytes, bytearray, memoryview)):
        return bytes(cast("bytes", chunk))
    raise ToolOutputError(call_id, f"{type(chunk).__name__} is neither text nor bytes; pass what the tool gave as such")


def _require_limit(max_bytes: object) -> None:
    if max_bytes is not None and (isinstance(max_bytes, bool) or not isinstance(max_bytes, int) or max_bytes < 1):
        raise ConfigError("max_bytes", f"{max_bytes!r} is not a whole number of bytes above 0; None sets no limit")


async def _read(read: Callable[[int], Any]) -> AsyncGenerator[Any]:
    while chunk := await read(_READ_BYTES):
        yield chunk


async def _iterated(output: AsyncIterable[Any]) -> AsyncGenerator[Any]:
    iterator = aiter(output)
    try:
        async for chunk in iterator:
            yield chunk
    finally:
        await _closed(iterator)


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
                # A thread cannot be stopped: it goes on until it has what it waits for, and that alone is lost.
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
    """Append what *iterator* gives within a moment; nothing at its end."""
    until_s = time.monotonic() + _GATHERED_S
    size = 0
    while size < _READ_BYTES and time.monotonic() < until_s:
        chunk = next(iterator, _END)
        if chunk is _END:
            return
        gathered.append(chunk)
        size += len(chunk) if isinstance(chunk, (str, bytes)) else 1


async def _closed(chunks: object) -> None:
    aclose = getattr(chunks, "aclose", None)
    if aclose is not None:
        await aclose()
