"""Taking tool results out of messages: the window's use of an offloader."""

import warnings
from dataclasses import dataclass

from buoyline.messages import Message, ToolResult
from buoyline.offloader import (
    Abilities,
    Offloader,
    StoredResult,
    is_smaller,
    is_too_large,
    notice_of,
    stub,
    truncated,
)
from buoyline.tokens import TextCounter
from buoyline.window.entry import Entry
from buoyline.window.events import OnEvent, ResultOffloaded


@dataclass(slots=True)
class ResultOffloading:
    """Replaces the texts of large tool results by stubs.

    Attributes:
        offloader: Takes the whole results; None drops what does not fit, with one warning.
        abilities: What *offloader* can do.
        session_id: The session they belong to.
        counter: Counts.
        on_event: Told of each result.
        tools: Tool names by call id, as far as the dialect names them in the call only.
        stubs: Stored results by the texts that stand for them.
        has_warned: The loss of content was announced.
    """

    offloader: Offloader | None
    abilities: Abilities
    session_id: str
    counter: TextCounter
    on_event: OnEvent | None
    tools: dict[str, str]
    stubs: dict[str, StoredResult]
    has_warned: bool = False

    async def offload(self, entry: Entry, *, limit: int, max_tokens: int) -> Entry:
        """Return *entry* with every result over *limit* tokens replaced by a stub of *max_tokens*.

        The whole result is durable before its stub exists. A stub that would not be smaller is not used.

        Raises:
            StorageError: The file system refused; the caller's message is as it was.
        """
        self.tools.update((call.call_id, call.name) for call in entry.message.calls)
        texts: dict[int, str] = {}
        for number, result in enumerate(entry.message.results):
            if result.text in self.stubs or not is_too_large(result, limit, self.counter):
                continue
            replacement = await self._replacement(entry, result, limit=limit, max_tokens=max_tokens)
            if replacement is not None:
                texts[number] = replacement
        return entry.with_results(texts, self.counter) if texts else entry

    async def shrink(self, entry: Entry) -> Entry:
        """Return *entry* with its stubs cut down to their notices."""
        texts: dict[int, str] = {}
        for number, result in enumerate(entry.message.results):
            stored = self.stubs.get(result.text)
            if stored is not None:
                notice = notice_of(result.text)
                await self._record(notice, stored)
                texts[number] = notice
        return entry.with_results(texts, self.counter) if texts else entry

    async def _replacement(self, entry: Entry, result: ToolResult, *, limit: int, max_tokens: int) -> str | None:
        if self.offloader is None:
            self.warn_of_loss()
            replacement = truncated(result.text, limit, self.counter)
            if not is_smaller(replacement, result.text, self.counter):
                return None
            self._tell(entry, result, replacement, "")
            return replacement
        stored = await self._store(self.offloader, result)
        replacement = stub(await self._redacted(result), stored, max_tokens, self.counter)
        if not is_smaller(replacement, result.text, self.counter):
            return None
        await self._record(replacement, stored)
        self._tell(entry, result, replacement, stored.reference)
        return replacement

    async def _store(self, offloader: Offloader, result: ToolResult) -> StoredResult:
        if self.abilities.results is not None:
            return await self.abilities.results.store_result(self.session_id, result)
        reference = await offloader.offload_tool_result(self.session_id, result)
        return StoredResult(reference, "", "", 0)

    async def _redacted(self, result: ToolResult) -> str:
        """Return the text that is in the file: the lines of a preview count there, and cut up no secret."""
        if self.abilities.redactor is None:
            return result.text
        (view,) = await self.abilities.redactor.redacted([Message("tool", (result,))])
        return view.results[0].text

    async def _record(self, replacement: str, stored: StoredResult) -> None:
        if self.abilities.results is not None:
            await self.abilities.results.record_stub(self.session_id, replacement, stored)
        self.stubs[replacement] = stored

    def warn_of_loss(self) -> None:
        """Say once that what leaves the context is gone; nothing is said where an offloader takes it."""
        if self.offloader is None and not self.has_warned:
            self.has_warned = True
            warnings.warn(
                "no offloader: what is cut from tool results and left out of the context is lost; "
                "pass offloader=LocalWorkspace(...) to keep it",
                stacklevel=2,
            )

    def _tell(self, entry: Entry, result: ToolResult, replacement: str, path: str) -> None:
        if self.on_event is not None:
            tool = result.name or self.tools.get(result.call_id, "")
            tokens, stub_tokens = self.counter.count(result.text), self.counter.count(replacement)
            self.on_event(ResultOffloaded(entry.index, result.call_id, tool, path, tokens, stub_tokens, replacement))
