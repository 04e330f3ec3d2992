"""Taking tool results out of messages: the window's use of an offloader."""

import asyncio
import logging
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from buoyline.errors import warn_caller
from buoyline.management.actions import StubWriter
from buoyline.management.rules import MaskStub
from buoyline.messages import Json, Media, Message, Opaque, Part, ResultPart, Text, ToolCall, ToolResult
from buoyline.messages.dialect import Blocks
from buoyline.messages.model import join_texts, text_in
from buoyline.offloader import (
    Abilities,
    Offloader,
    StoredPart,
    StoredResult,
    bare_stub,
    blocks_to_offload,
    is_reference_line,
    is_smaller,
    is_stub,
    is_too_large,
    reference_line_for,
    reread_notice,
    result_block,
    stub,
    stub_of,
    tokens_of,
    truncated,
)
from buoyline.tokens import TextCounter
from buoyline.tokens.messages import count_result
from buoyline.window.events import OnEvent, ResultOffloaded, tell
from buoyline.window.plan import Choice, Choices
from buoyline.window.state import Entry
from buoyline.window.tasks import beside

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a part stands in a message.

    Attributes:
        part: Its number among the parts of the message, or of one of its results.
        result: The number of that result; None for the message's own content.
    """

    part: int
    result: int | None = None


@dataclass(slots=True)
class ResultOffloading:
    """Replaces what is large in tool results by stubs and placeholders.

    Attributes:
        offloader: Takes the whole results; None drops what does not fit, with one warning.
        abilities: What *offloader* can do.
        session_id: The session they belong to.
        counter: Counts.
        on_event: Told of each result.
        tools: Tool names by call id, as far as the dialect names them in the call only.
        stubs: Stored results by the texts that stand for them or for one of their media.
        untold: Events of what was done and is not written down, or was not told since the hook raised before.
        has_warned: The loss of content was announced.
        retrieval_tool: Name of the tool that stubs send the agent to beside its own; empty where it has none.
    """

    offloader: Offloader | None
    abilities: Abilities
    session_id: str
    counter: TextCounter
    on_event: OnEvent | None
    tools: dict[str, str] = field(default_factory=dict[str, str])
    stubs: dict[str, StoredResult] = field(default_factory=dict[str, StoredResult])
    untold: list[ResultOffloaded] = field(default_factory=list[ResultOffloaded])
    has_warned: bool = False
    retrieval_tool: str = ""

    async def replace(self, entry: Entry, choices: Choices) -> Entry:
        """Return *entry* with the chosen results offloaded, the largest blocks of each first.

        The whole result is durable before anything of it leaves. One stub of *max_tokens* stands for all texts that
        leave, and a line for each medium. What would not be smaller is not used, and what already stands for something
        stays.

        Raises:
            StorageError: The file system refused; the caller's message is as it was.
        """
        self.tools.update((call.call_id, call.name) for call in entry.message.calls)
        changed: dict[int, Blocks] = {}
        for number, choice in sorted(choices.items()):
            result = entry.message.results[number]
            self.tools[result.call_id] = choice.tool
            blocks = await self._cut_short(entry, result, choice.source)
            if blocks is None:
                blocks = await self._offloaded(
                    entry, result, result.parts, limit=choice.limit, max_tokens=choice.max_tokens
                )
            if blocks is not None:
                changed[number] = blocks
        return entry.with_results(changed, self.counter) if changed else entry

    def standing_in(self, entries: Sequence[Entry]) -> dict[str, StoredResult]:
        """Return the stored results behind what stands in the tool results of *entries*, by the texts that do.

        A window that another process goes on with knows no others; so a summary may depend on no others.
        """
        results = (result for entry in entries for result in entry.message.results)
        texts = (part.text for result in results for part in result.parts if isinstance(part, Text))
        return {text: self.stubs[text] for text in texts if text in self.stubs}

    async def offload_by_hand(self, entry: Entry, *, max_tokens: int) -> Entry:
        """Return *entry* with its results and its own content offloaded where they take more than *max_tokens*.

        What the message itself says is stored like a result of the call ``message-<index>``.

        Raises:
            StorageError: The file system refused; the caller's message is as it was.
        """
        results = enumerate(entry.message.results)
        names = {number: result.name or self.tools.get(result.call_id, "") for number, result in results}
        entry = await self.replace(entry, {number: Choice(name, max_tokens) for number, name in names.items()})
        own = ToolResult(f"message-{entry.index}", entry.message.role, ())
        blocks = await self._offloaded(entry, own, entry.message.parts, limit=max_tokens, max_tokens=max_tokens)
        return entry if blocks is None else entry.with_content(blocks, self.counter)

    async def offload_images(self, entry: Entry, places: Collection[Place]) -> Entry:
        """Return *entry* with the pictures at *places* offloaded, and a line in the place of each.

        What they stand in is stored whole, as in `replace`. A picture that is elsewhere leaves as well, since it counts
        for the provider; what the message says of it is stored then, its URL for instance.

        Raises:
            StorageError: The file system refused; the caller's message is as it was.
        """
        changed: dict[int, Blocks] = {}
        for number, result in enumerate(entry.message.results):
            chosen = {place.part for place in places if place.result == number}
            if chosen:
                changed[number] = await self._without_images(entry, result, result.parts, chosen)
        if changed:
            entry = entry.with_results(changed, self.counter)
        chosen = {place.part for place in places if place.result is None}
        if not chosen:
            return entry
        own = ToolResult(f"message-{entry.index}", entry.message.role, ())
        blocks = await self._without_images(entry, own, entry.message.parts, chosen)
        return entry.with_content(blocks, self.counter)

    async def stand_in(self, entry: Entry, number: int, texts: Sequence[int], write: StubWriter) -> Entry:
        """Return *entry* with one text of *write*'s in the place of *texts*, parts of its result *number*.

        The whole result is durable before; what stands for one already leads to the same whole. Where the text would be
        no shorter, *entry* itself is returned.

        Args:
            entry: The message.
            number: Of the result.
            texts: Numbers of the parts that leave.
            write: Writes what stands there.

        Raises:
            StorageError: The file system refused; the caller's message is as it was.
        """
        whole = entry.message.results[number]
        stored = next((self.stubs[text] for text in whole.texts if text in self.stubs), None)
        if stored is None:
            stored = await self._stored(whole)
        shown = await self._redacted_result(whole)
        leaves = join_texts([text_in(shown.parts[part]) or "" for part in texts])
        standing = write(leaves, stored, self.counter)
        if len(standing) >= len(leaves):
            return entry
        if stored is not None:
            await self._record(standing, stored)
        found = {**dict.fromkeys(texts, ""), texts[0]: standing}
        await self._tell(entry, whole, found, stored)
        blocks = [found.get(part, part) for part in range(len(whole.parts))]
        return entry.with_results({number: [block for block in blocks if block != ""]}, self.counter)

    @contextmanager
    def told_when_done(self) -> Generator[None]:
        """Tell of what is replaced within the block once that has ended; where it fails, nothing was replaced."""
        before = len(self.untold)
        try:
            yield
        except BaseException:
            del self.untold[before:]
            raise
        self.tell()

    def tell(self) -> None:
        """Tell of what was replaced; where the hook raises, the events that are left are told next time."""
        while self.untold:
            tell(self.on_event, self.untold.pop(0))

    async def shrink(self, entry: Entry) -> Entry:
        """Return *entry* with its stubs cut down to their notices."""
        changed: dict[int, Blocks] = {}
        for number, result in enumerate(entry.message.results):
            blocks = [await self._shrunk(part, position) for position, part in enumerate(result.parts)]
            if any(isinstance(block, str) for block in blocks):
                changed[number] = blocks
        return entry.with_results(changed, self.counter) if changed else entry

    async def _shrunk(self, part: ResultPart, position: int) -> str | int:
        stored = self.stubs.get(part.text) if isinstance(part, Text) else None
        if stored is None or not isinstance(part, Text) or is_reference_line(part.text):
            return position
        notice = bare_stub(part.text)
        if not is_stub(part.text) or stored.reference.rpartition("/")[2] not in notice:
            # What a manager has cut is no stub: its first paragraph is the tool's, and the path stands at its end.
            notice = MaskStub()(part.text, stored, self.counter)
        if not is_smaller(notice, part.text, self.counter):
            return position
        await self._record(notice, stored)
        return notice

    async def _cut_short(self, entry: Entry, result: ToolResult, source: str) -> Blocks | None:
        """Return a notice instead of what was read back from *source* and still stands there, word for word.

        What a tool has made of the file, such as lines with numbers, stands nowhere: None, and it is stored.
        """
        rereads = self.abilities.rereads
        if not source or rereads is None or not await rereads.holds(source, result.text):
            return None
        notice = reread_notice(source, self.counter.count(result.text))
        if not is_smaller(notice, result.text, self.counter):
            return None
        stored = self.stubs[notice] = StoredResult(source, "", "", 0)
        texts = [number for number, part in enumerate(result.parts) if text_in(part) is not None]
        await self._tell(entry, result, {**dict.fromkeys(texts, ""), texts[0]: notice}, stored)
        return [notice, *(number for number in range(len(result.parts)) if number not in texts)]

    async def _without_images(
        self, entry: Entry, result: ToolResult, content: Sequence[Part], chosen: Collection[int]
    ) -> Blocks:
        """Store *result*, which *content* makes up, and return the content with lines in place of *chosen* parts."""
        numbers = [number for number, part in enumerate(content) if self._is_given(part)]
        parts = tuple(part for number in numbers if isinstance(part := content[number], _RESULT_PARTS))
        whole = replace(result, parts=parts)
        stored = await self._stored(whole)
        kept = stored.parts if stored is not None and len(stored.parts) == len(parts) else (None,) * len(parts)
        found: dict[int, str] = {}
        for position, (number, part, known) in enumerate(zip(numbers, parts, kept, strict=True)):
            if number in chosen and isinstance(part, Media):
                found[position] = _image_line(part, known, stored)
                if stored is not None:
                    await self._record(found[position], stored)
        await self._tell(entry, whole, found, stored)
        by_number = {numbers[position]: text for position, text in found.items()}
        return [by_number.get(number, number) for number in range(len(content))]

    async def _offloaded(
        self, entry: Entry, result: ToolResult, content: Sequence[Part], *, limit: int, max_tokens: int
    ) -> Blocks | None:
        """Return of what *content* shall consist once *result*, which it makes up, is offloaded; None: as before."""
        numbers = [number for number, part in enumerate(content) if self._is_given(part)]
        parts = tuple(part for number in numbers if isinstance(part := content[number], _RESULT_PARTS))
        is_as_it_came = len(parts) == len(result.parts)
        whole = replace(result, parts=parts, native=result.native if is_as_it_came else None)
        if not any(map(_may_leave, parts)) or not is_too_large(whole, limit, self.counter):
            return None
        replacements = await self._replacements(entry, whole, limit=limit, max_tokens=max_tokens)
        by_number = {numbers[position]: text for position, text in replacements.items()}
        blocks = [by_number.get(number, number) for number in range(len(content))]
        return [block for block in blocks if block != ""] if replacements else None

    def _is_given(self, part: Part) -> bool:
        """Tell whether *part* is the tool's, or the user's, and no stub or placeholder of ours."""
        is_ours = isinstance(part, Text) and part.text in self.stubs
        return isinstance(part, _RESULT_PARTS) and not is_ours

    async def _replacements(self, entry: Entry, whole: ToolResult, *, limit: int, max_tokens: int) -> dict[int, str]:
        """Store *whole* and return what stands in place of its parts that leave; nothing where one stub is enough."""
        stored = await self._stored(whole)
        placeholders = _placeholders(whole.parts, stored)
        pairs = zip(whole.parts, placeholders, strict=True)
        blocks = [result_block(part, placeholder, limit, self.counter) for part, placeholder in pairs]
        chosen = blocks_to_offload(blocks, limit, max_tokens)
        texts = [number for number in sorted(chosen) if blocks[number].is_text]
        found = {number: placeholders[number] or "" for number in chosen if not blocks[number].is_text}
        if texts:
            staying = sum(block.tokens for number, block in enumerate(blocks) if number not in chosen)
            room = max(limit - staying, limit // 4) if stored is None else max_tokens
            leaves = join_texts([text_in(whole.parts[number]) or "" for number in texts])
            standing = await self._standing(whole, leaves, stored, room)
            if is_smaller(standing, leaves, self.counter):
                found |= {**dict.fromkeys(texts, ""), texts[0]: standing}
        if stored is not None:
            for text in filter(None, found.values()):
                await self._record(text, stored)
        if found:
            await self._tell(entry, whole, found, stored)
        return found

    async def _standing(self, whole: ToolResult, leaves: str, stored: StoredResult | None, max_tokens: int) -> str:
        """Return the text that stands in place of the texts *leaves*: their beginning where nothing keeps the rest.

        A stub shows the whole result, what stays of it included, since its line numbers are those of the file.
        """
        if stored is None:
            return truncated(leaves, max_tokens, self.counter)
        text = await self._redacted(whole)
        return await beside(len(text), stub, text, stored, max_tokens, self.counter, self.retrieval_tool)

    async def _stored(self, whole: ToolResult) -> StoredResult | None:
        if self.offloader is None:
            self.warn_of_loss()
            return None
        return await self._store(self.offloader, whole)

    async def _store(self, offloader: Offloader, result: ToolResult) -> StoredResult:
        if self.abilities.results is not None:
            return await self.abilities.results.store_result(self.session_id, result)
        given = result if result.native is None else result.native
        reference = await offloader.offload_tool_result(self.session_id, given)
        return StoredResult(reference, "", "", 0)

    async def _redacted(self, result: ToolResult) -> str:
        """Return the text that is in the file: the lines of a preview count there, and cut up no secret."""
        return (await self._redacted_result(result)).text

    async def _redacted_result(self, result: ToolResult) -> ToolResult:
        if self.abilities.redactor is None:
            return result
        (view,) = await self.abilities.redactor.redacted([Message("tool", (result,))])
        return view.results[0]

    async def _record(self, replacement: str, stored: StoredResult) -> None:
        if self.abilities.results is not None:
            await self.abilities.results.record_stub(self.session_id, replacement, stored)
        self.stubs[replacement] = stored

    async def stub_of(self, entry_index: int, call: ToolCall, stored: StoredResult, max_tokens: int) -> str:
        """Return the stub of a result that was stored as it came, made from its file, and remember it.

        Args:
            entry_index: Session index of the message that will hold it.
            call: The call, with the name of the tool.
            stored: The result, of a session of `abilities.streams`.
            max_tokens: For the whole stub, as far as its notice leaves a choice.

        Raises:
            StorageError: The file system refused.
        """
        if self.abilities.streams is None:
            raise LookupError(stored.reference)
        source = self.abilities.streams.result_source(self.session_id, stored)
        # Gigabytes may be read here, and a megabyte of them is counted.
        standing = await asyncio.to_thread(stub_of, source, stored, max_tokens, self.counter)
        await self._record(standing, stored)
        self._log(call.call_id, entry_index, stored.reference)
        if self.on_event is not None:
            tokens = await asyncio.to_thread(tokens_of, source, self.counter)
            stub_tokens = self.counter.count(standing)
            path = stored.reference
            event = ResultOffloaded(entry_index, call.call_id, call.name, path, tokens, stub_tokens, standing)
            self.untold.append(event)
        return standing

    def warn_of_loss(self) -> None:
        """Say once that what leaves the context is gone; nothing is said where an offloader takes it."""
        if self.offloader is None and not self.has_warned:
            self.has_warned = True
            warn_caller(
                "no offloader: what is cut from tool results and removed from the context is lost; "
                "pass offloader=LocalWorkspace(...) to keep it"
            )

    def _log(self, call_id: str, index: int, path: str) -> None:
        """Log what left, without its tokens: to count it once more for a line that hardly anybody reads is too much."""
        logger.debug("session %s: the result of %r left message %d for %r", self.session_id, call_id, index, path)

    async def _tell(
        self, entry: Entry, whole: ToolResult, found: Mapping[int, str], stored: StoredResult | None
    ) -> None:
        path = "" if stored is None else stored.reference
        self._log(whole.call_id, entry.index, path)
        if self.on_event is None:
            return
        standing = "\n".join(text for _, text in sorted(found.items()) if text)
        left = replace(whole, parts=tuple(whole.parts[number] for number in found))
        tokens = await beside(len(left.text), count_result, left, self.counter)
        tool = whole.name or self.tools.get(whole.call_id, "")
        event = ResultOffloaded(entry.index, whole.call_id, tool, path, tokens, self.counter.count(standing), standing)
        self.untold.append(event)


_RESULT_PARTS = (Text, Json, Media, Opaque)


def _may_leave(part: ResultPart) -> bool:
    return bool(text_in(part)) or (isinstance(part, Media) and part.payload is not None)


def _image_line(part: Media, known: StoredPart | None, stored: StoredResult | None) -> str:
    """Return what stands for a picture, with the best there is to find it by."""
    if known is not None and known.kind == part.kind and known.reference:
        return reference_line_for(known)
    reference = (known.reference if known is not None else "") or (stored.reference if stored is not None else "")
    name = part.name or part.source
    return reference_line_for(
        StoredPart(part.kind, part.size_bytes, media_type=part.media_type, name=name, reference=reference)
    )


def _placeholders(parts: Sequence[ResultPart], stored: StoredResult | None) -> list[str | None]:
    """Return what would stand for each part; None for texts, and for what is stored nowhere with its bytes."""
    known = () if stored is None else stored.parts
    if len(known) != len(parts):
        return [None] * len(parts)
    return [
        reference_line_for(kept) if isinstance(part, Media) and kept.kind == part.kind and kept.reference else None
        for part, kept in zip(parts, known, strict=True)
    ]
