"""`Compressor`: archive the oldest messages, summarize them, check the summary."""

import asyncio
import inspect
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final

from buoyline.compression.citations import (
    claims,
    contains_whole,
    mark,
    unverified,
    verified_claims,
    with_checked_citations,
)
from buoyline.compression.config import ContextConfig, config_of, require_focus, require_size
from buoyline.compression.extractive.conversation import Conversation
from buoyline.compression.extractive.summarizer import Extractive, carried, conversation_of, extract, with_state
from buoyline.compression.identifiers import WORD
from buoyline.compression.plan import Plan, plan
from buoyline.compression.pointers import POINTER
from buoyline.compression.summarizers.answers import cleaned
from buoyline.compression.summarizers.attempts import shortened, total
from buoyline.compression.summarizers.callables import SummaryFunction, summarizer_from
from buoyline.compression.summary import (
    RULES_FIELD,
    BatchReference,
    Draft,
    OnSummaryEvent,
    ResultExcerpt,
    SourceMessage,
    Summarizer,
    Summary,
    SummaryFellBack,
    SummaryRequest,
    require_draft,
)
from buoyline.compression.summary_text import ArchiveLocation, frame_tokens, render, with_resolved_pointers
from buoyline.errors import ConfigError, ConflictError, StaleWindowError, SummaryError
from buoyline.messages import Message, Text, ToolResult
from buoyline.messages.registry import detect, dialect_named
from buoyline.messages.times import now
from buoyline.offloader import Abilities, Offloader, StoredResult
from buoyline.offloader.protocol import abilities_of
from buoyline.offloader.stub import previewed_lines
from buoyline.offloader.transcript import is_reference_line
from buoyline.tokens import TokenCounter
from buoyline.tokens.messages import count_message
from buoyline.tokens.o200k import counter_of

# Facts beside a summary that a model or a function wrote.
#
# Published comparisons find the same weakness in every compaction by a model: exact paths, identifiers and numbers.
# These are extracted from the messages without a model, and added if the prose lacks them.


FACTS_SHARE: Final = 0.25
"""Of the summary's tokens, at most, for extracted facts. The prose may take the rest."""

FACT_FIELDS: Final = ("current_state", "important_discoveries", RULES_FIELD)
"""Fields that facts are added to: files and commands, errors, and the user's rules."""

NOTE: Final = "note"
"""Kind of a fact that is a sentence of a summarizer's prose."""

_LEAST_TOKENS = 40
_JOIN_TOKENS = 8


def with_facts(
    draft: Draft, request: SummaryRequest, conversation: Conversation, doubtful: Sequence[str] = ()
) -> Draft:
    """Return *draft* with facts of the messages that it does not say, as many as the tokens allow.

    Its items then hold its own sentences and the facts, so that the next summarizer, a model or not, can carry on both.
    *conversation* has the messages of *request*. The marks behind *doubtful* claims take tokens, and an answer full of
    such claims is cut.
    """
    marked = {name: mark(text, doubtful) for name, text in draft.fields.items()}
    marks_tokens = max(total(marked, request.counter) - total(draft.fields, request.counter), 0)
    limit = max(request.max_tokens - marks_tokens, 0)
    facts_tokens = int(request.max_tokens * FACTS_SHARE)
    # The marks take tokens of the prose, unless it ignored its limit and takes those of the facts anyway.
    has_kept_limit = total(draft.fields, request.counter) <= request.max_tokens - facts_tokens
    prose_limit = max(limit - facts_tokens, 0) if has_kept_limit else limit
    draft = replace(draft, fields=shortened(draft.fields, prose_limit, request.counter))
    notes = list(draft.items)
    if not notes:
        notes = carried(replace(draft, items=()), request.sources[0].index)
    # Without the prose of the last summary, which the summarizer has updated.
    previous = request.previous
    old = () if previous is None else tuple(fact for fact in previous.items if fact.kind != NOTE)
    previous = replace(previous, items=old, fields={}) if previous is not None else None
    names = tuple(name for name in FACT_FIELDS if name in request.fields)
    room = min(limit - total(draft.fields, request.counter) - _JOIN_TOKENS, facts_tokens)
    room = room if room >= _LEAST_TOKENS else 0  # nothing is said then, and the facts are carried on all the same
    facts = extract(replace(request, fields=names, max_tokens=room, previous=previous), conversation)
    prose = "\n".join(draft.fields.values())
    fields = dict(draft.fields)
    for name, text in facts.fields.items() if room else ():
        new = [line for line in text.split("\n") if _says_more(line, prose, is_preserved=name == RULES_FIELD)]
        fields[name] = "\n".join([fields[name].rstrip(), *new]).strip()
    if total(fields, request.counter) > limit:
        fields = dict(draft.fields)
    return replace(draft, fields=fields, items=(*notes, *facts.items), work=facts.work)


def _says_more(line: str, prose: str, *, is_preserved: bool) -> bool:
    """Return whether *line* holds an exact string that the prose lacks; a rule of the user always counts."""
    if exact := claims(line):
        return not all(contains_whole(prose, claim) for claim in exact)
    return is_preserved and bool(POINTER.search(line))


# Of offloaded tool results, the context still shows the lines of their stubs.


_LAST_WORD = re.compile(rf"[!-~{WORD}]+\Z")
_FIRST_WORD = re.compile(rf"\A[!-~{WORD}]+")


def excerpts_of(message: Message, stubs: Mapping[str, StoredResult]) -> tuple[ResultExcerpt | None, ...]:
    """Return the excerpt of each tool result of *message*, None for one that is in the context whole; empty if all are.

    *stubs* has stored results by the text of their stubs: a stub is known by record, not by its form.
    """
    excerpts = [_excerpt_in(result, stubs) for result in message.results] if stubs else []
    return tuple(excerpts) if any(excerpts) else ()


def _excerpt_in(result: ToolResult, stubs: Mapping[str, StoredResult]) -> ResultExcerpt | None:
    for part in result.parts:
        stored = stubs.get(part.text) if isinstance(part, Text) else None
        # The placeholder of an image or another blob shows no lines.
        if isinstance(part, Text) and stored is not None and not is_reference_line(part.text):
            lines: list[tuple[int, str]] = []
            for line in previewed_lines(part.text):  # at a cut, without the word there, which may be half of one
                shown = _FIRST_WORD.sub("", line.text) if line.column > 1 else line.text
                lines.append((line.number, _LAST_WORD.sub("", shown) if line.cut_chars else shown))
            return ResultExcerpt(counted_file(stored), tuple(lines), part.text)
    return None


def counted_file(stored: StoredResult) -> str:
    """Return the file whose lines a stub numbers: the view if there is one; empty without files."""
    return re.split(r"[/\\]", stored.view)[-1] or stored.name


logger = logging.getLogger(__name__)

_MAX_SHORTENINGS: Final = 4
"""Of a summary that is too large. One is enough for a counter that adds up."""


@dataclass(frozen=True, slots=True)
class MessageRange:
    """The messages that a compaction archives.

    Attributes:
        first: Session index of the first one.
        messages: Native, in order; not empty.
        tokens: Of all of them.
        archived: How many of the first are known to be archived.
        attempts: Ends of earlier attempts to archive them whose outcome is not known.
        dialect: Of all messages; None: detected for each.
        stubs: Stored results by the text of their stubs.
        times: When each was added, ISO 8601 in UTC; empty if not known; may be left out.
        batches: References of earlier messages, for an offloader that answers each batch with its own.
    """

    session_id: str
    first: int
    messages: Sequence[Any]
    tokens: int
    archived: int = 0
    attempts: Sequence[int] = ()
    dialect: str | None = None
    stubs: Mapping[str, StoredResult] = field(default_factory=dict[str, StoredResult])
    times: Sequence[str] = ()
    batches: tuple[BatchReference, ...] = ()

    def views(self) -> list[Message]:
        """Return the views of the messages, in order."""
        named = None if self.dialect is None else dialect_named(self.dialect)
        return [(named or detect(message)).view(message) for message in self.messages]

    @property
    def end(self) -> int:
        """Session index behind the last one."""
        return self.first + len(self.messages)


@dataclass(frozen=True, slots=True)
class CompressionResult:
    """A whole compaction; the context is then *prefix* and *kept*.

    *prefix* has the archived system messages and the summary as a user message, *kept* the messages that were not
    archived, in order. All but the summary are the very objects that were given.
    """

    summary: Summary
    prefix: list[Any]
    kept: list[Any]


_NEXT_CALL: Final = (
    "after a result, pass its kept messages and new ones without its prefix, "
    "first=result.summary.messages[1] and previous=result.summary.draft"
)
"""A hint: the messages may have been compressed before."""


class Compressor:
    """Archives messages and summarizes them with citations of the archive.

    Archiving comes first, so that every pointer can be checked before it is shown, and a failed summary loses nothing.
    """

    def __init__(
        self,
        offloader: Offloader | None,
        *,
        config: ContextConfig | None = None,
        counter: TokenCounter | Callable[[str], int] | None = None,
        summarizer: Summarizer | SummaryFunction | None = None,
        on_event: OnSummaryEvent | None = None,
    ) -> None:
        """Set up a compressor.

        Args:
            offloader: Archives the messages; None drops them.
            config: Default: `ContextConfig()`.
            counter: An object with ``count(text)``, or a function. Default: exact, for ``o200k_base``.
            summarizer: Writes summaries: a `Summarizer`, or an async function that takes a `SummaryRequest` and
                returns a text, a mapping of fields or a `Draft`. Default: the extractive one, which needs no model and
                is also the fallback.
            on_event: Called for each summarizer that failed.

        Raises:
            ConfigError: *summarizer* is neither, *counter* cannot count, or *config* is no `ContextConfig` of buoyline.
        """
        self._offloader = offloader
        self._abilities: Abilities = abilities_of(offloader)
        self._config = config_of(config)
        self._counter = counter_of(counter)
        self._fallback = Extractive()
        self._summarizer: Summarizer = self._fallback if summarizer is None else summarizer_from(summarizer)
        self._emit: OnSummaryEvent = on_event or (lambda _: None)

    def plan(
        self, messages: Sequence[Any], counts: Sequence[int], config: ContextConfig | None = None, *, size: int
    ) -> Plan:
        """Decide which messages of a window of *size* tokens are archived; see `buoyline.compression.plan`.

        *messages* are native ones or views, and *counts* their tokens. The default of *config* is the compressor's own.

        Raises:
            ConfigError: *size* or *config* is invalid, or there are not as many *counts* as *messages*.
            MessageError: One of *messages* is no message.
        """
        settings, size = self._settings(config), require_size(size)
        views = [message if isinstance(message, Message) else detect(message).view(message) for message in messages]
        if len(counts) != len(views):
            raise ConfigError("counts", f"{len(counts):,} for {len(views):,} messages; give the tokens of each message")
        return plan(views, counts, max_kept_tokens=int(settings.reserve_ratio * size))

    async def compress(
        self,
        session_id: str,
        messages: Sequence[Any],
        *,
        size: int,
        first: int = 0,
        previous: Draft | None = None,
        config: ContextConfig | None = None,
        focus: str = "",
    ) -> "CompressionResult | None":
        """Plan, archive, summarize and check in one call.

        This is for callers that keep the messages themselves. `ContextWindow` takes the same steps one by one, because
        it writes its state to disk between them.

        Args:
            session_id: At the offloader.
            messages: Native messages of the context, in order, without the prefix of an earlier result.
            size: Tokens of the window.
            first: Session index of the first message: ``summary.messages[1]`` of the earlier result, if there is one.
            previous: Draft of the replaced summary, ``summary.draft`` of that result, to carry on its facts.
            config: Default: the compressor's own.
            focus: What to keep above all, in words.

        Returns:
            None if no message may be archived.

        Raises:
            ConfigError: *size*, *config* or *focus* is invalid; nothing was written.
            MessageError: One of *messages* is no message; nothing was written.
            StaleWindowError: Other messages are archived from *first* on; nothing was changed.
            StorageError: The file system refused; nothing was changed.
        """
        settings, size = self._settings(config), require_size(size)
        require_focus(focus)
        views = [detect(message).view(message) for message in messages]
        counts = [count_message(view, self._counter) for view in views]
        cut = self.plan(views, counts, settings, size=size).cut
        if cut == 0:
            return None
        span = MessageRange(session_id, first, list(messages[:cut]), sum(counts[:cut]))
        try:
            location = await self.archive(span)
        except StaleWindowError as error:
            raise StaleWindowError(session_id, error.reason, _NEXT_CALL) from error
        except ConflictError as error:
            reason = f"messages {first}-{span.end - 1} of its archive are others"
            raise StaleWindowError(session_id, reason, _NEXT_CALL) from error
        limit = settings.summary_limit(size)
        summary = await self.summarize(
            span, location, previous=previous, max_tokens=limit, config=settings, focus=focus
        )
        summary = await self.record(session_id, summary)
        system = [message for message, view in zip(messages, views[:cut], strict=False) if view.role == "system"]
        summary_message = detect(messages[cut - 1]).user_message(summary.text)
        return CompressionResult(summary, prefix=[*system, summary_message], kept=list(messages[cut:]))

    async def archive(self, span: MessageRange) -> ArchiveLocation:
        """Archive the messages of *span* that are not archived yet, and return where all of them are.

        An attempt whose outcome is not known is repeated under its own batch id, so that it counts once.

        Raises:
            StaleWindowError: Other messages were archived in the session meanwhile; nothing was changed.
            StorageError: The file system refused; nothing was changed.
        """
        if self._offloader is None:
            return ArchiveLocation(span.first, span.end)
        archive = self._abilities.archive
        if archive is None:
            waiting = list(span.messages[span.archived :])
            reference = await self._offloader.offload_context(span.session_id, waiting)
            new = [BatchReference(span.first + span.archived, span.end, reference)] if waiting else []
            return ArchiveLocation(span.first, span.end, reference, batches=(*span.batches, *new))
        ends = {end for end in (*span.attempts, len(span.messages)) if span.archived < end <= len(span.messages)}
        for start, end in pairwise((span.archived, *sorted(ends))):
            await archive.archive(
                span.session_id,
                span.messages[start:end],
                batch_id=f"messages-{span.first + start}-{span.first + end}",
                dialect=span.dialect,
                first=span.first + start,
                times=span.times[start:end],
            )
        batch = await archive.locate(span.session_id, span.first, span.end)
        lines = tuple(batch.lines)
        return ArchiveLocation(span.first, span.end, batch.reference, batch.transcript, batch.transcript_name, lines)

    async def summarize(
        self,
        span: MessageRange,
        location: ArchiveLocation,
        *,
        previous: Draft | None = None,
        max_tokens: int,
        config: ContextConfig | None = None,
        focus: str = "",
        use_model: bool = True,
    ) -> Summary:
        """Summarize archived messages and check the summary; `record` stores it.

        All pointers of the summary resolve, and claims that were found nowhere are marked.

        Args:
            span: The messages.
            location: Where `archive` put them.
            previous: Draft of the replaced summary, to carry on its facts.
            max_tokens: Of the whole text that the model sees.
            config: Default: the compressor's own.
            focus: What to keep above all, in words.
            use_model: False: use the extractive summarizer even if another was given.

        Raises:
            ConfigError: *focus* is no text.
        """
        settings = self._settings(config)
        require_focus(focus)
        files = {name: stored.lines for stored in span.stubs.values() if (name := counted_file(stored))}
        location = location.with_results(files, previous)
        redactor, views = self._abilities.redactor, span.views()
        if redactor is not None:
            views = await redactor.redacted(views)
        frame = frame_tokens(location, settings.summary_template, settings.fields, self._counter)
        request = SummaryRequest(
            sources=await self._sources(span, location, views),
            previous=previous,
            max_tokens=max(max_tokens - frame, 0),
            counter=self._counter,
            fields=settings.fields,
            focus=focus,
            prompt=settings.compression_prompt,
            schema=settings.summary_schema,
        )

        def count(draft: Draft) -> int:
            return self._counter.count(render(location, settings.summary_template, draft.fields))

        asked, fell_back = None, ""
        if use_model and not isinstance(self._summarizer, Extractive):
            try:
                asked = await self._asked(request, span, location)
            except SummaryError as error:
                logger.warning("%s; the extractive summarizer takes over", error)
                self._emit(SummaryFellBack((span.first, span.end), error.summarizer, error.reason, span.tokens))
                fell_back = str(error)
        draft, dropped = asked or (await self._extracted(request, count, max_tokens), ())
        draft = with_resolved_pointers(draft, location)
        doubtful = await self._unverified(span.session_id, draft, request)
        fields = {name: mark(text, doubtful) for name, text in draft.fields.items()}
        text = render(location, settings.summary_template, fields)
        return Summary(
            number=0,
            messages=(span.first, span.end),
            draft=replace(draft, fields=fields, batches=location.batches),
            unverified=(*doubtful, *dropped),
            source_tokens=span.tokens,
            tokens=self._counter.count(text),
            text=text,
            created_at=now(),
            fell_back=fell_back,
        )

    async def record(self, session_id: str, summary: Summary) -> Summary:
        """Append *summary* to the session's log and return it with its number there.

        Raises:
            StorageError: The file system refused; nothing was changed.
        """
        if self._abilities.summaries is None:
            return summary
        line = await asyncio.to_thread(summary.to_json)
        return summary.numbered(await self._abilities.summaries.append_summary(session_id, line))

    def _settings(self, config: ContextConfig | None) -> ContextConfig:
        return self._config if config is None else config_of(config)

    async def _sources(
        self, span: MessageRange, location: ArchiveLocation, views: Sequence[Message]
    ) -> list[SourceMessage]:
        """Return the messages as a summarizer sees them, without lines of the transcript that do not fit *location*."""
        lines: Sequence[Sequence[str]] = [()] * len(views)
        if self._abilities.transcript is not None and location.lines:
            found = await self._abilities.transcript.transcript_lines(span.session_id, span.first, span.end)
            if [len(shown) for shown in found] == [end - start + 1 for start, end in location.lines]:
                lines = found
        return [
            SourceMessage(at, view, location.pointer(at - span.first), excerpts_of(view, span.stubs), tuple(shown))
            for at, (view, shown) in enumerate(zip(views, lines, strict=True), span.first)
        ]

    async def _asked(
        self, request: SummaryRequest, span: MessageRange, location: ArchiveLocation
    ) -> tuple[Draft, tuple[str, ...]]:
        """Return the given summarizer's draft with the facts it lacks, and what of it did not hold.

        Raises:
            SummaryError: The summarizer failed, or its draft cannot be used.
        """
        prose_tokens = request.max_tokens - int(request.max_tokens * FACTS_SHARE)
        prose_request = replace(request, max_tokens=prose_tokens)
        conversation = await asyncio.to_thread(conversation_of, prose_request)
        asked = await asyncio.to_thread(with_state, prose_request, conversation)
        answer: object = self._summarizer.summarize(asked)
        draft = require_draft(await answer if inspect.isawaitable(answer) else answer)
        draft = replace(draft, fields={name: cleaned(text) for name, text in draft.fields.items()})
        self._check(draft, request, span)
        draft, dropped = await asyncio.to_thread(with_checked_citations, draft, request, location)
        doubtful = await self._unverified(span.session_id, draft, request)
        return await asyncio.to_thread(with_facts, draft, request, conversation, doubtful), dropped

    async def _extracted(self, request: SummaryRequest, count: Callable[[Draft], int], max_tokens: int) -> Draft:
        """Return an extractive draft that takes at most *max_tokens* as it is shown.

        Frame and fields were counted apart, and a counter need not add up: one that recognizes JSON by its first
        bracket takes the whole for JSON because of the header's, and counts it at twice the rate of its fields.
        """
        room, draft = request.max_tokens, await self._fallback.summarize(request)
        for _ in range(_MAX_SHORTENINGS):
            excess = count(draft) - max_tokens
            if excess <= 0 or request.max_tokens == 0:
                break
            request = replace(request, max_tokens=request.max_tokens * room // (room + excess))
            draft = await self._fallback.summarize(request)
        return draft

    def _check(self, draft: Draft, request: SummaryRequest, span: MessageRange) -> None:
        missing = [name for name in request.fields if not draft.fields.get(name, "").strip()]
        if missing:
            raise SummaryError(draft.summarizer, f"lacks {', '.join(missing)}")
        tokens = self._counter.count("\n".join(draft.fields[name] for name in request.fields))
        if tokens > request.max_tokens:
            raise SummaryError(draft.summarizer, f"takes {tokens:,} tokens where {request.max_tokens:,} are allowed")
        source_tokens = span.tokens + _replaced_tokens(request)
        if tokens >= source_tokens:
            raise SummaryError(draft.summarizer, f"takes {tokens:,} tokens, its source only {source_tokens:,}")

    async def _unverified(self, session_id: str, draft: Draft, request: SummaryRequest) -> tuple[str, ...]:
        doubtful = await asyncio.to_thread(_doubtful, draft, request)
        if doubtful and self._abilities.archive is not None:
            doubtful = tuple(await self._abilities.archive.missing(session_id, doubtful))
        return doubtful


def _replaced_tokens(request: SummaryRequest) -> int:
    return 0 if request.previous is None else total(request.previous.fields, request.counter)


def _doubtful(draft: Draft, request: SummaryRequest) -> tuple[str, ...]:
    """Return the claims of *draft* that neither the messages nor the last summary hold."""
    known = [source.message.spoken for source in request.sources]
    if request.previous is not None:
        # Claims of the last summary were checked when it was written; those that it does not mark are known.
        known.append("\n…\n".join(verified_claims("\n".join(request.previous.fields.values()))))
    return unverified("\n".join(draft.fields.values()), known)
