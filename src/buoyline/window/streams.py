"""Streamed tool output: held in memory while it is small, and written to a file once it is large."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from buoyline.errors import ConfigError
from buoyline.offloader import Abilities, ResultWriter, StoredResult, ToolOutput
from buoyline.previews.source import decoded
from buoyline.tokens import TextCounter
from buoyline.window.tasks import completed
from buoyline.workspace.streams import chunks_of, is_of_tool, reason_of

_HELD_BYTES = 1 << 20
"""Output up to this size is a message like any other: `prepare` decides about it."""


class HeldOutput:
    """A tool's output so far: in memory up to a megabyte, and as long as it is below its limit of tokens."""

    def __init__(self, call_id: str, writer: ResultWriter | None, counter: TextCounter, limit: int) -> None:
        """Begin with nothing; *writer* gets all of it, too, and above *limit* tokens it is offloaded in any case.

        Without a writer, it can only be held in memory.
        """
        self._call_id = call_id
        self._writer = writer
        self._counter = counter
        self._limit = limit
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._decided_bytes = _HELD_BYTES
        self._is_large = False
        self._has_ended = False
        self._partial = ""

    async def fill(
        self,
        output: ToolOutput,
        then: Callable[[], Coroutine[Any, Any, None]],
        *,
        max_bytes: int | None,
        keep_partial: bool,
    ) -> None:
        """Take all of *output*, then call *then*; with *keep_partial* also if it fails.

        Raises:
            ToolOutputError: See `chunks_of`.
            BuoylineError: See `ResultWriter.write`.
            Exception: Whatever *output* or *then* raises.
        """
        chunks = chunks_of(self._call_id, output, max_bytes)
        try:
            async for chunk in chunks:
                await self._take(chunk)
            await completed(then())
        except BaseException as error:
            if keep_partial and is_of_tool(error) and not self._has_ended:
                self._partial = reason_of(error)
                await completed(then())
            raise
        finally:
            await chunks.aclose()
            self._held.clear()
            if self._writer is not None:
                await self._writer.discard()

    async def end(self) -> str | StoredResult:
        """Return the text, or the stored result."""
        self._has_ended = True
        content = b"".join(self._held)
        text = decoded(content)
        if self._writer is not None:
            # A large text that is not exactly the bytes that came is stored, too.
            is_exact = text.encode("utf-8", "surrogatepass") == content
            if self._is_large or (not is_exact and await self._exceeds(text)):
                return await self._writer.store(partial=self._partial)
        if not self._partial:
            return text
        gap = "" if not text or text.endswith("\n") else "\n"
        return f"{text}{gap}[The tool did not come to its end: {self._partial}]"

    async def _take(self, chunk: bytes) -> None:
        if not self._is_large:
            self._held.append(chunk)
            self._held_bytes += len(chunk)
        if self._writer is None:
            return
        await self._writer.write(chunk)
        if self._is_large or self._held_bytes < self._decided_bytes:
            return
        # It is counted each time it has doubled, so all counts together cost about as much as the last.
        self._decided_bytes = 2 * self._held_bytes
        self._is_large = await self._exceeds(decoded(b"".join(self._held)))
        if self._is_large:
            self._held.clear()

    async def _exceeds(self, text: str) -> bool:
        return await asyncio.to_thread(self._counter.exceeds, text, self._limit)


def writer_for(abilities: Abilities, session_id: str, call_id: str, *, keep_partial: bool) -> ResultWriter | None:
    """Return the writer of streamed output; None if it can only be held in memory.

    Raises:
        ConfigError: *keep_partial* is set, and a hook redacts.
    """
    if abilities.streams is not None:
        return abilities.streams.result_writer(session_id, call_id, keep_partial=keep_partial)
    if keep_partial and abilities.redactor is not None:
        raise ConfigError("keep_partial", "what is cut off may end within a secret, which no redaction hook would know")
    return None
