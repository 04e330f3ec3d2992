"""The offloading of tool results, whole or streamed: the window's use of an offloader."""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from buoyline.errors import ConfigError, warn_caller
from buoyline.management.context import StubWriter
from buoyline.management.rules import MaskStub
from buoyline.messages import Json, Media, Message, Opaque, Text, ToolCall, ToolResult
from buoyline.messages.dialect import Blocks
from buoyline.messages.model import Part, ResultPart, join_texts, text_in
from buoyline.offloader import Abilities, Offloader, ResultWriter, StoredPart, StoredResult, ToolOutput
from buoyline.offloader.policy import is_smaller, is_too_large
from buoyline.offloader.stub import (
    bare_stub,
    blocks_to_offload,
    is_stub,
    reread_notice,
    result_block,
    stub,
    stub_of,
    tokens_of,
    truncated,
)
from buoyline.offloader.transcript import is_reference_line, reference_line_for
from buoyline.previews.source import decoded
from buoyline.tokens import TextCounter
from buoyline.tokens.messages import count_result
from buoyline.window.events import ResultOffloaded
from buoyline.window.plan import Choice, Choices
from buoyline.window.state import Entry
from buoyline.window.tasks import beside, completed
from buoyline.workspace.streams import chunks_of, is_of_tool, reason_of

logger = logging.getLogger(__name__)

# Without tokens: counting costs too much for a line that few people read.
_OFFLOADED = "session %s: the result of %r left message %d for %r"


class PartPlace(NamedTuple):
    """The number of a part in a result of a message, and the number of that result; None: the message's own content."""

    part: int
    result: int | None = None


@dataclass(slots=True)
class ResultOffloader:
    """Stores large tool results, and returns messages with stubs and reference lines.

    Nothing here changes a context: the messages that it returns, and the events that it adds to a list, count once they
    are committed. To store the same result again is harmless.

    Attributes:
        offloader: Stores whole results; None loses what does not fit, with one warning.
        has_listener: Whether events are made.
        tools: Tool names by call id, for dialects that name a tool only in the call.
        stubs: Stored results by their stubs and reference lines.
        retrieval_tool: Name of the tool that stubs recommend besides the agent's own; empty if there is none.
        waiting: The stub that the next change of the window records; None if each is recorded at once.
    """

    offloader: Offloader | None
    abilities: Abilities
    session_id: str
    counter: TextCounter
    has_listener: bool = False
    tools: dict[str, str] = field(default_factory=dict[str, str])
    stubs: dict[str, StoredResult] = field(default_factory=dict[str, StoredResult])
    retrieval_tool: str = ""
    waiting: dict[str, StoredResult] | None = None
    _has_warned: bool = False

    async def replace(self, entry: Entry, choices: Choices, events: list[ResultOffloaded]) -> Entry:
        """Return *entry* with the chosen results offloaded, the largest blocks of each first.

        The whole result is durable before. One stub of *max_tokens* replaces all offloaded texts, and a reference line
        each blob. A stub that is no smaller than the text is not used, and earlier stubs stay.

        Raises:
            StorageError: The file system refused.
        """
        for call in entry.message.calls:
            self.tools[call.call_id] = call.name
        changed: dict[int, Blocks] = {}
        for number, choice in sorted(choices.items()):
            result = entry.message.results[number]
            self.tools[result.call_id] = choice.tool
            blocks = await self._cut_short(entry, result, choice.source, events) if choice.source else None
            if blocks is None:
                blocks = await self._offloaded(entry, result, result.parts, choice, events)
            if blocks is not None:
                changed[number] = blocks
        return entry.with_results(changed, self.counter) if changed else entry

    def stubs_of(self, entries: Sequence[Entry]) -> dict[str, StoredResult]:
        """Return the stored results whose stubs are in the tool results of *entries*, by stub.

        A window that another process resumes knows no others, so a summary may depend on no others.
        """
        texts = (text for entry in entries for text in entry.message.result_texts)
        return {text: self.stubs[text] for text in texts if text in self.stubs}

    async def offload_by_hand(self, entry: Entry, max_tokens: int, events: list[ResultOffloaded]) -> Entry:
        """Return *entry* with its results and its own content offloaded if they take more than *max_tokens*.

        The message's own content is stored like a result of the call ``message-<index>``.

        Raises:
            StorageError: The file system refused; the caller's message is as it was.
        """
        choices = {
            number: Choice(result.name or self.tools.get(result.call_id, ""), max_tokens)
            for number, result in enumerate(entry.message.results)
        }
        entry = await self.replace(entry, choices, events)
        own = ToolResult(f"message-{entry.index}", entry.message.role, ())
        blocks = await self._offloaded(entry, own, entry.message.parts, Choice("", max_tokens), events)
        return entry if blocks is None else entry.with_content(blocks, self.counter)

    async def offload_images(self, entry: Entry, places: Collection[PartPlace], events: list[ResultOffloaded]) -> Entry:
        """Return *entry* with the images at *places* offloaded, and a reference line for each.

        The result or message that holds them is stored whole, as in `replace`. An image whose bytes are elsewhere is
        offloaded, too, since it counts for the provider; then its URL or id is stored.

        Raises:
            StorageError: The file system refused; the caller's message is as it was.
        """
        changed: dict[int, Blocks] = {}
        for number, result in enumerate(entry.message.results):
            chosen = {place.part for place in places if place.result == number}
            if chosen:
                changed[number] = await self._without_images(entry, result, result.parts, chosen, events)
        if changed:
            entry = entry.with_results(changed, self.counter)
        chosen = {place.part for place in places if place.result is None}
        if not chosen:
            return entry
        own = ToolResult(f"message-{entry.index}", entry.message.role, ())
        blocks = await self._without_images(entry, own, entry.message.parts, chosen, events)
        return entry.with_content(blocks, self.counter)

    async def stand_in(
        self, entry: Entry, number: int, texts: Sequence[int], write: StubWriter, events: list[ResultOffloaded]
    ) -> Entry:
        """Return *entry* with a stub by *write* in place of *texts*, parts of its result *number*.

        The whole result is durable before; an earlier stub of it refers to the same file. If the stub would not be
        shorter, return *entry* itself.

        Raises:
            StorageError: The file system refused; the caller's message is as it was.
        """
        whole = entry.message.results[number]
        stored = next((self.stubs[text] for text in whole.texts if text in self.stubs), None)
        if stored is None:
            stored = await self.store(whole)
        shown = await self._redacted(whole)
        replaced = join_texts([text_in(shown.parts[part]) or "" for part in texts])
        written = write(replaced, stored, self.counter)
        if len(written) >= len(replaced):
            return entry
        if stored is not None:
            await self._record(written, stored)
        found = {**dict.fromkeys(texts, ""), texts[0]: written}
        await self._report(entry, whole, found, stored, events)
        return entry.with_results({number: _with_texts(whole.parts, range(len(whole.parts)), found)}, self.counter)

    async def shrink(self, entry: Entry) -> Entry:
        """Return *entry* with bare stubs in place of its stubs."""
        changed: dict[int, Blocks] = {}
        for number, result in enumerate(entry.message.results):
            blocks: list[str | int] = [*range(len(result.parts))]
            for position, part in enumerate(result.parts):
                stored = self.stubs.get(part.text) if isinstance(part, Text) else None
                if stored is None or not isinstance(part, Text) or is_reference_line(part.text):
                    continue
                bare = bare_stub(part.text)
                if not is_stub(part.text) or stored.reference.rpartition("/")[2] not in bare:
                    # A text that a manager has cut is no stub: its first paragraph is the tool's, its path comes last.
                    bare = MaskStub()(part.text, stored, self.counter)
                if is_smaller(bare, part.text, self.counter):
                    await self._record(bare, stored)
                    blocks[position] = bare
            if any(isinstance(block, str) for block in blocks):
                changed[number] = blocks
        return entry.with_results(changed, self.counter) if changed else entry

    async def _cut_short(
        self, entry: Entry, result: ToolResult, source: str, events: list[ResultOffloaded]
    ) -> Blocks | None:
        """Return a notice in place of a re-read of *source*, if *source* still has the text, word for word.

        If the tool has changed the text, for example numbered its lines, return None: then it is stored.
        """
        rereads = self.abilities.rereads
        if rereads is None or not await rereads.holds(source, result.text):
            return None
        notice = reread_notice(source, self.counter.count(result.text))
        if not is_smaller(notice, result.text, self.counter):
            return None
        stored = self.stubs[notice] = StoredResult(source)
        texts = [number for number, part in enumerate(result.parts) if text_in(part) is not None]
        await self._report(entry, result, {**dict.fromkeys(texts, ""), texts[0]: notice}, stored, events)
        return [notice, *(number for number in range(len(result.parts)) if number not in texts)]

    async def _without_images(
        self,
        entry: Entry,
        result: ToolResult,
        content: Sequence[Part],
        chosen: Collection[int],
        events: list[ResultOffloaded],
    ) -> Blocks:
        """Store *result*, made of *content*, and return the content with reference lines for *chosen* parts."""
        numbers, parts = self._given(content)
        whole = replace(result, parts=parts)
        stored = await self.store(whole)
        kept = stored.parts if stored is not None and len(stored.parts) == len(parts) else (None,) * len(parts)
        found: dict[int, str] = {}
        for position, (number, part, known) in enumerate(zip(numbers, parts, kept, strict=True)):
            if number in chosen and isinstance(part, Media):
                found[position] = _image_line(part, known, stored)
                if stored is not None:
                    await self._record(found[position], stored)
        await self._report(entry, whole, found, stored, events)
        return _with_texts(content, numbers, found)

    async def _offloaded(
        self,
        entry: Entry,
        result: ToolResult,
        content: Sequence[Part],
        choice: Choice,
        events: list[ResultOffloaded],
    ) -> Blocks | None:
        """Store *result*, made of *content*, and return its new blocks; None: as before."""
        numbers, parts = self._given(content)
        limit = choice.limit or choice.max_tokens
        whole = replace(result, parts=parts, native=result.native if len(parts) == len(result.parts) else None)
        if not any(map(_may_leave, parts)) or not is_too_large(whole, limit, self.counter):
            return None
        stored = await self.store(whole)
        placeholders = _placeholders(parts, stored)
        pairs = zip(parts, placeholders, strict=True)
        blocks = [result_block(part, placeholder, limit, self.counter) for part, placeholder in pairs]
        chosen = blocks_to_offload(blocks, limit, choice.max_tokens)
        texts, found = list[int](), dict[int, str]()
        for number in chosen:
            if blocks[number].is_text:
                texts.append(number)
            else:
                found[number] = placeholders[number] or ""
        texts.sort()
        if texts:
            replaced = join_texts([text_in(parts[number]) or "" for number in texts])
            if stored is None:
                # Nothing keeps the rest, so its beginning stays.
                staying = sum(block.tokens for number, block in enumerate(blocks) if number not in chosen)
                shown = truncated(replaced, max(limit - staying, limit // 4), self.counter)
            else:
                # A stub previews the whole result, with the parts that stay, since its line numbers are the file's.
                text = (await self._redacted(whole)).text
                shown = await beside(
                    len(text), stub, text, stored, choice.max_tokens, self.counter, self.retrieval_tool
                )
            if is_smaller(shown, replaced, self.counter):
                found |= {**dict.fromkeys(texts, ""), texts[0]: shown}
        if not found:
            return None
        if stored is not None:
            for text in filter(None, found.values()):
                await self._record(text, stored)
        await self._report(entry, whole, found, stored, events)
        return _with_texts(content, numbers, found)

    def _given(self, content: Sequence[Part]) -> tuple[list[int], tuple[ResultPart, ...]]:
        """Return number and part of all that came from the tool or the user: neither stubs nor reference lines."""
        numbers: list[int] = []
        parts: list[ResultPart] = []
        for number, part in enumerate(content):
            if isinstance(part, _RESULT_PARTS) and not (isinstance(part, Text) and part.text in self.stubs):
                numbers.append(number)
                parts.append(part)
        return numbers, tuple(parts)

    async def store(self, whole: ToolResult) -> StoredResult | None:
        """Store a result. Without an offloader, warn of the loss and return None."""
        if self.offloader is None:
            self.warn_of_loss()
            return None
        if self.abilities.results is not None:
            if self.waiting:
                await self._record_waiting()
            return await self.abilities.results.store_result(self.session_id, whole)
        given = whole if whole.native is None else whole.native
        reference = await self.offloader.offload_tool_result(self.session_id, given)
        return StoredResult(reference)

    async def _redacted(self, result: ToolResult) -> ToolResult:
        """Return the result as it is in the file: previews count its lines, and must not cut up a secret."""
        if self.abilities.redactor is None:
            return result
        (view,) = await self.abilities.redactor.redacted([Message("tool", (result,))])
        return view.results[0]

    async def _record(self, replacement: str, stored: StoredResult) -> None:
        if self.waiting:
            await self._record_waiting()
        if self.waiting is not None:
            self.waiting[replacement] = stored
        elif self.abilities.results is not None:
            await self.abilities.results.record_stub(self.session_id, replacement, stored)
        self.stubs[replacement] = stored

    async def _record_waiting(self) -> None:
        """Record the stub that waits, before anything else of the session is stored: the journal has this order."""
        if self.waiting is not None and self.abilities.results is not None:
            for replacement, stored in list(self.waiting.items()):
                await self.abilities.results.record_stub(self.session_id, replacement, stored)
                self.waiting.pop(replacement, None)

    async def stub_of(
        self, entry_index: int, call: ToolCall, stored: StoredResult, max_tokens: int, events: list[ResultOffloaded]
    ) -> str:
        """Return the stub of a streamed result, made from its file, and record it.

        Its first paragraph may take more than *max_tokens*. The message *entry_index* of the session will hold it.

        Raises:
            StorageError: The file system refused.
        """
        if self.abilities.streams is None:
            raise LookupError(stored.reference)
        source = self.abilities.streams.result_source(self.session_id, stored)
        # Gigabytes may be read here, and a megabyte of them is counted.
        written = await asyncio.to_thread(stub_of, source, stored, max_tokens, self.counter)
        await self._record(written, stored)
        logger.debug(_OFFLOADED, self.session_id, call.call_id, entry_index, stored.reference)
        if self.has_listener:
            tokens, path = await asyncio.to_thread(tokens_of, source, self.counter), stored.reference
            stub_tokens = self.counter.count(written)
            events.append(ResultOffloaded(entry_index, call.call_id, call.name, path, tokens, stub_tokens, written))
        return written

    def writer(self, call_id: str, *, keep_partial: bool) -> ResultWriter | None:
        """Return the writer of streamed output; None if it can only be held in memory.

        Raises:
            ConfigError: *keep_partial* is set, and a hook redacts.
        """
        if self.abilities.streams is not None:
            return self.abilities.streams.result_writer(self.session_id, call_id, keep_partial=keep_partial)
        if keep_partial and self.abilities.redactor is not None:
            problem = "what is cut off may end within a secret, which no redaction hook would know"
            raise ConfigError("keep_partial", problem)
        return None

    def warn_of_loss(self) -> None:
        """Warn, once, that offloaded and archived content is lost without an offloader."""
        if self.offloader is None and not self._has_warned:
            self._has_warned = True
            warn_caller(
                "no offloader: what is cut from tool results and removed from the context is lost; "
                "pass offloader=LocalWorkspace(...) to keep it"
            )

    async def _report(
        self,
        entry: Entry,
        whole: ToolResult,
        found: Mapping[int, str],
        stored: StoredResult | None,
        events: list[ResultOffloaded],
    ) -> None:
        path = "" if stored is None else stored.reference
        logger.debug(_OFFLOADED, self.session_id, whole.call_id, entry.index, path)
        if not self.has_listener:
            return
        shown = "\n".join(text for _, text in sorted(found.items()) if text)
        left = replace(whole, parts=tuple(whole.parts[number] for number in found))
        tokens = await beside(len(left.text), count_result, left, self.counter)
        tool = whole.name or self.tools.get(whole.call_id, "")
        events.append(ResultOffloaded(entry.index, whole.call_id, tool, path, tokens, self.counter.count(shown), shown))


_RESULT_PARTS = (Text, Json, Media, Opaque)


def _with_texts(content: Sequence[Part], numbers: Sequence[int], found: Mapping[int, str]) -> Blocks:
    """Return the blocks of *content* with the texts *found*, by places in *numbers*; an empty text drops its block."""
    blocks: list[str | int] = [*range(len(content))]
    for position, text in found.items():
        blocks[numbers[position]] = text
    return [block for block in blocks if block != ""]


def _may_leave(part: ResultPart) -> bool:
    return bool(text_in(part)) or (isinstance(part, Media) and part.payload is not None)


def _image_line(part: Media, known: StoredPart | None, stored: StoredResult | None) -> str:
    """Return the reference line of an image, with the best reference that is known."""
    if known is not None and known.kind == part.kind and known.reference:
        return reference_line_for(known)
    reference = (known.reference if known is not None else "") or (stored.reference if stored is not None else "")
    name = part.name or part.source
    return reference_line_for(
        StoredPart(part.kind, part.size_bytes, media_type=part.media_type, name=name, reference=reference)
    )


def _placeholders(parts: Sequence[ResultPart], stored: StoredResult | None) -> list[str | None]:
    """Return the reference line of each part; None for texts, and for parts without stored bytes."""
    known = () if stored is None else stored.parts
    if len(known) != len(parts):
        return [None] * len(parts)
    return [
        reference_line_for(kept) if isinstance(part, Media) and kept.kind == part.kind and kept.reference else None
        for part, kept in zip(parts, known, strict=True)
    ]


# Streamed tool output: held in memory while it is small, and written to a file once it is large.


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
