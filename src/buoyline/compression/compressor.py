"""Which messages are archived, and `Compressor`, which makes a summary of them that cites them."""

import asyncio
import inspect
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Final

from buoyline.compression.config import ContextConfig, config_of, require_size
from buoyline.compression.extractive.choose import Extractive, extract
from buoyline.compression.summarizers.model import SummaryFunction, summarizer_from
from buoyline.compression.summarizers.prompt import cleaned, shortened
from buoyline.compression.summary import (
    Draft,
    Place,
    ResultExcerpt,
    SourceMessage,
    Summarizer,
    Summary,
    SummaryRequest,
    checked,
    frame_tokens,
    marked,
    render,
    require_draft,
    unverified,
    without_marked,
)
from buoyline.errors import SummaryError
from buoyline.messages import Message, Opaque, Text, ToolResult
from buoyline.messages.jsonl import now
from buoyline.messages.model import Note
from buoyline.messages.registry import detect
from buoyline.offloader import Offloader, StoredResult
from buoyline.offloader.stub import previewed_lines
from buoyline.offloader.transcript import is_reference_line
from buoyline.tokens import TokenCounter
from buoyline.tokens.counter import count_message
from buoyline.tokens.o200k import counter_of


@dataclass(frozen=True, slots=True)
class Plan:
    """Which messages are archived.

    Attributes:
        cut: How many of the oldest messages are archived; 0 if none may be.
        archived_tokens: Their tokens.
        kept_tokens: Tokens of the others.
        reason: Why the cut is there, for people.
    """

    cut: int
    archived_tokens: int
    kept_tokens: int
    reason: str


def plan(
    messages: Sequence[Message], counts: Sequence[int], *, max_kept_tokens: int, before_model: bool = False
) -> Plan:
    """Archive as few messages as bring the rest to *max_kept_tokens*.

    The newest message is kept together with its call or results, even if it alone takes more. A call that waits for its
    result is kept too, unless the rest is then too large: recorded sessions have calls that are never answered, and one
    of them must not hold all later messages in the context. Those of the model's newest message are kept in any case,
    since their results are coming in.

    *messages* are those after the prefix, and *counts* their tokens. The cut is 0 if no message may be archived. With
    *before_model*, it is before a message of the model's if the cut or one next to it is.
    """
    archived_tokens = [0, *accumulate(counts)]
    total_tokens, awaited = archived_tokens[-1], awaited_from(messages)
    cuts: list[int] = []
    for hold_pending in (True, False):
        cuts = [cut for cut in legal_cuts(messages, hold_pending=hold_pending) if cut <= awaited]
        at = next((at for at, cut in enumerate(cuts) if archived_tokens[cut] >= total_tokens - max_kept_tokens), None)
        if at is not None:
            cut = cuts[at]
            if before_model:
                near = (cut, *cuts[max(at - 1, 0) : at], *cuts[at + 1 : at + 2])
                cut = next((one for one in near if messages[one].role == "assistant"), cut)
            reason = f"the newest {len(messages) - cut} fit {max_kept_tokens:,} tokens"
            return Plan(cut, archived_tokens[cut], total_tokens - archived_tokens[cut], reason)
    if not cuts:
        return Plan(0, 0, total_tokens, "no message may leave: all belong to the newest call")
    cut = cuts[-1]
    reason = f"the newest {len(messages) - cut} belong together"
    return Plan(cut, archived_tokens[cut], total_tokens - archived_tokens[cut], reason)


def awaited_from(messages: Sequence[Message]) -> int:
    """Return the position of the model's newest message if its calls wait for results, else the end."""
    newest_answer = max((at for at, message in enumerate(messages) if message.role == "assistant"), default=0)
    return next((at for at in _pending(messages) if at >= newest_answer), len(messages))


def legal_cut_before(messages: Sequence[Message], position: int) -> int:
    """Return the last cut at or before *position* that parts no call from its result; 0 if there is none."""
    spans = pair_spans(messages)
    cuts = range(min(position, len(messages)), 0, -1)
    return next((cut for cut in cuts if not any(start < cut <= end for start, end in spans)), 0)


def legal_cuts(messages: Sequence[Message], *, hold_pending: bool = True) -> list[int]:
    """Return how many of the oldest messages may be archived, ascending; never all messages.

    With *hold_pending*, a call without a result is kept while one may still come, that is, until a user speaks.
    """
    spans = pair_spans(messages)
    if hold_pending:
        spans += [(position, len(messages)) for position in _pending(messages)]
    blocked = [0] * (len(messages) + 2)
    for start, end in spans:
        blocked[start + 1] += 1
        blocked[end + 1] -= 1
    return [cut for cut, depth in enumerate(accumulate(blocked)) if 0 < cut < len(messages) and not depth]


def pair_spans(messages: Sequence[Message]) -> list[tuple[int, int]]:
    """Return the positions of each call and its result, for pairs in different messages.

    A result belongs to the nearest earlier call of its id that has none yet. In recorded sessions ids repeat or are
    empty, answers come late, and some results belong to no call.
    """
    waiting: dict[str, list[int]] = {}
    spans: list[tuple[int, int]] = []
    for position, message in enumerate(messages):
        for call_id in _ids(message, of_results=False):
            waiting.setdefault(call_id, []).append(position)
        spans += [(calls.pop(), position) for one in _ids(message, of_results=True) if (calls := waiting.get(one))]
    return [(start, end) for start, end in spans if start != end]


def _pending(messages: Sequence[Message]) -> list[int]:
    waiting: dict[str, list[int]] = {}
    for position, message in enumerate(messages):
        if message.role == "user" and any(isinstance(p, Text) and not isinstance(p, Note) for p in message.parts):
            waiting.clear()
        for call_id in _ids(message, of_results=False):
            waiting.setdefault(call_id, []).append(position)
        for call_id in _ids(message, of_results=True):
            if calls := waiting.get(call_id):
                calls.pop()
    return sorted({position for calls in waiting.values() for position in calls})


def _ids(message: Message, *, of_results: bool) -> Iterator[str]:
    """Yield the ids of the calls in *message*, or of the results, those of a provider's own tools included.

    Such a tool may call other tools while it runs; its result comes some messages later.
    """
    yield from (part.call_id for part in (message.results if of_results else message.calls))
    for part in message.parts:
        if isinstance(part, Opaque) and part.call_id and part.kind.endswith("tool_result") is of_results:
            yield part.call_id


logger = logging.getLogger(__name__)

_FIRST_WORD: Final = re.compile(r"^\S+")
_LAST_WORD: Final = re.compile(r"\S+$")


@dataclass(frozen=True, slots=True)
class CompressionResult:
    """Messages with the oldest ones replaced by a summary.

    Attributes:
        prefix: System messages among the replaced ones, then the message with the summary.
        kept: The messages that stay.
    """

    summary: Summary
    prefix: list[Any]
    kept: list[Any]


class Compressor:
    """Summarizes messages. It holds no context: `ContextWindow` does, and decides when."""

    def __init__(
        self,
        offloader: Offloader | None = None,
        *,
        config: ContextConfig | None = None,
        counter: TokenCounter | Callable[[str], int] | None = None,
        summarizer: Summarizer | SummaryFunction | None = None,
    ) -> None:
        """Compress for *offloader*.

        Args:
            offloader: Takes the messages that `compress` replaces; without one they are gone.
            config: How summaries look, and what `compress` keeps.
            counter: Counts the tokens of a text. Default: exactly, for ``o200k_base``.
            summarizer: An object with an async ``summarize``, or an async function that takes a `SummaryRequest` and
                returns a text, a mapping of fields or a `Draft`. Default: the extractive one, which needs no model and
                is also the fallback.

        Raises:
            ConfigError: *summarizer* is neither, *counter* cannot count, or *config* is no `ContextConfig` of buoyline.
        """
        self._offloader, self._config, self._counter = offloader, config_of(config), counter_of(counter)
        self._summarizer: Summarizer = Extractive() if summarizer is None else summarizer_from(summarizer)

    async def compress(
        self,
        session_id: str,
        messages: Sequence[Any],
        *,
        size: int,
        first: int = 0,
        previous: Summary | None = None,
        focus: str = "",
    ) -> CompressionResult | None:
        """Plan, archive and summarize in one call, for callers that keep the messages themselves.

        Args:
            session_id: At the offloader.
            messages: Native messages of the context, in order, without the prefix of an earlier result.
            size: Tokens of the window.
            first: Session index of the first message: ``summary.messages[1]`` of the earlier result, if there is one.
            previous: The summary of that result, to carry on its facts.
            focus: What to keep above all, in words.

        Returns:
            None if no message may be archived.

        Raises:
            ConfigError: *size* is invalid; nothing was written.
            MessageError: One of *messages* is no message; nothing was written.
            StorageError: The file system refused; nothing was changed.
        """
        config, size = self._config, require_size(size)
        views = [detect(message).view(message) for message in messages]
        counts = [count_message(view, self._counter) for view in views]
        cut = plan(views, counts, max_kept_tokens=int(config.reserve_ratio * size)).cut
        if not cut:
            return None
        references = previous.references if previous else ()
        if self._offloader is not None:
            references = (*references, await self._offloader.offload_context(session_id, list(messages[:cut])))
        summary = await self.summarize(
            [SourceMessage(index, view) for index, view in enumerate(views[:cut], first)],
            Place(first if previous is None else 0, first + cut, references=references),
            previous=previous,
            max_tokens=config.summary_limit(size),
            source_tokens=sum(counts[:cut]),
            focus=focus,
        )
        systems = [message for message, view in zip(messages, views[:cut], strict=False) if view.role == "system"]
        prefix = [*systems, detect(messages[cut - 1]).user_message(summary.text)]
        return CompressionResult(summary, prefix, list(messages[cut:]))

    async def summarize(
        self,
        sources: Sequence[SourceMessage],
        place: Place,
        *,
        previous: Summary | None = None,
        max_tokens: int,
        room_tokens: int = 0,
        source_tokens: int,
        focus: str = "",
        use_model: bool = True,
        redact: Callable[[str], str] | None = None,
    ) -> Summary:
        """Summarize archived messages and check the summary.

        All its citations resolve, and claims that were found nowhere are marked.

        Args:
            sources: The messages, in order; not empty.
            place: Where they are.
            previous: The summary that is replaced.
            max_tokens: Of the whole text that the model sees.
            room_tokens: What it may take if a given summarizer does not keep to that; default: *max_tokens*.
            source_tokens: Of the messages.
            focus: What to keep above all, in words.
            use_model: False: use the extractive summarizer even if another was given.
            redact: Takes secrets out of what a given summarizer wrote: it may know more than *sources*.
        """
        config, count = self._config, self._counter.count
        if previous is not None:
            held = [pointer for fact in previous.draft.facts for pointer in fact.pointers]
            place = replace(place, carried=frozenset((*previous.draft.pointers, *held)))
        frame = frame_tokens(place, config.summary_template, config.fields, self._counter)
        request = SummaryRequest(
            sources=sources,
            previous=None if previous is None else previous.draft,
            max_tokens=max(max_tokens - frame, 0),
            counter=self._counter,
            fields=config.fields,
            focus=focus,
            prompt=config.compression_prompt,
            schema=config.summary_schema,
        )

        def tokens_of(fields: Mapping[str, str]) -> int:
            return count(render(place, config.summary_template, fields)) - frame

        draft, doubtful, fell_back = None, tuple[str, ...](), ""
        if use_model and not isinstance(self._summarizer, Extractive):
            try:
                draft, doubtful = await self._asked(request, place, redact)
            except SummaryError as error:
                logger.warning("%s; the extractive summarizer takes over", error)
                fell_back = str(error)
            else:
                most = max(room_tokens - frame, request.max_tokens)
                if tokens_of(draft.fields) > most:
                    draft = replace(draft, fields=shortened(draft.fields, most, self._counter))
        if draft is None:
            draft = await asyncio.to_thread(extract, request, tokens_of)
        draft = replace(draft, fields={name: place.resolved(text) for name, text in draft.fields.items()})
        text = render(place, config.summary_template, draft.fields)
        return Summary(
            number=0,
            messages=(sources[0].index, sources[-1].index + 1),
            draft=draft,
            unverified=doubtful,
            source_tokens=source_tokens,
            tokens=count(text),
            text=text,
            created_at=now(),
            fell_back=fell_back,
            references=place.references,
        )

    async def _asked(
        self, request: SummaryRequest, place: Place, redact: Callable[[str], str] | None
    ) -> tuple[Draft, tuple[str, ...]]:
        """Return the given summarizer's draft, and what of it did not hold.

        Raises:
            SummaryError: The summarizer failed, or wrote nothing.
        """
        answer: object = self._summarizer.summarize(request)
        draft = require_draft(await answer if inspect.isawaitable(answer) else answer)
        texts = {name: draft.fields.get(name, "") for name in request.fields}
        fields = {name: cleaned(redact(text) if redact else text) for name, text in texts.items()}
        if not any(fields.values()):
            raise SummaryError(draft.summarizer, "the answer is empty")
        return await asyncio.to_thread(_checked, replace(draft, fields=fields), request, place)


def _checked(draft: Draft, request: SummaryRequest, place: Place) -> tuple[Draft, tuple[str, ...]]:
    """Return *draft* with marks after what was found nowhere, and with facts for the next summary."""
    draft, dropped = checked(draft, request, place)
    known = [source.message.spoken for source in request.sources]
    if request.previous is not None:  # its claims were checked when it was written
        known.append(without_marked("\n".join(request.previous.fields.values())))
    doubtful = unverified("\n".join(draft.fields.values()), known)
    fields = {name: marked(text, doubtful) for name, text in draft.fields.items()}
    return replace(draft, fields=fields, facts=draft.facts or extract(request).facts), (*doubtful, *dropped)


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
            lines = list[tuple[int, str]]()
            for line in previewed_lines(part.text):  # at a cut, without the word there, which may be half of one
                shown = _FIRST_WORD.sub("", line.text) if line.column > 1 else line.text
                lines.append((line.number, _LAST_WORD.sub("", shown) if line.cut_chars else shown))
            return ResultExcerpt(counted_file(stored), tuple(lines), part.text)
    return None


def counted_file(stored: StoredResult) -> str:
    """Return the file whose lines a stub numbers: the view if there is one; empty without files."""
    return re.split(r"[/\\]", stored.view)[-1] or stored.name
