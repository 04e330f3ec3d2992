"""`ManagedConversation`: native messages under a document, for those who keep their messages themselves."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from buoyline.compression import Compressor, ContextConfig, Extent, Summarizer, Summary, SummaryFunction
from buoyline.compression.rendering import Place
from buoyline.compression.summary import BatchReference
from buoyline.errors import ConfigError
from buoyline.management.document import ContextManagement
from buoyline.management.hooks import Hook
from buoyline.management.notices import notice_of_leaving
from buoyline.management.replacing import Replacing
from buoyline.management.running import Report, run, run_on_overflow
from buoyline.management.situation import NO_INDEX, Held, Situation
from buoyline.management.steps import Done, Leave, Pin, Replace, Summarise
from buoyline.management.writers import Writers
from buoyline.messages import detect, spell
from buoyline.offloader import Offloader, abilities_of
from buoyline.tokens import TextCounter, default_counter
from buoyline.tokens.messages import count_message, count_tools

if TYPE_CHECKING:
    from buoyline.management.steps import Actions


@dataclass(slots=True)
class _Contents:
    """What stands in the context.

    Attributes:
        again: Archived messages that stand again, in order.
        notice: Says where messages are that left without a summary.
        summary: As a message, and with all that is known of it.
        messages: Those that have not left.
        archived: Up to this session index the archive holds the messages.
        attempts: Up to these it was tried; what was tried is repeated as it was.
        batches: Where the archived messages are, with an offloader that answers each batch with its own reference.
    """

    again: list[Held] = field(default_factory=list[Held])
    notice: Held | None = None
    summary: tuple[Held, Summary] | None = None
    messages: list[Held] = field(default_factory=list[Held])
    archived: int = 0
    attempts: set[int] = field(default_factory=set[int])
    batches: tuple[BatchReference, ...] = ()

    @property
    def head(self) -> list[Held]:
        """What stands before the messages: system messages, what stands for others, and what was said."""
        system = [held for held in self.again if held.message.role == "system"]
        others = [held for held in self.again if held.message.role != "system"]
        ours = [self.summary[0]] if self.summary else []
        return [*system, *ours, *([self.notice] if self.notice else []), *others]

    @property
    def first(self) -> int:
        """Session index of the first message that has not left."""
        return self.messages[0].index if self.messages else 0


class ManagedConversation:
    """The messages of a session, managed by a document: any dialect, any offloader, all hooks.

    It writes no window down, so it cannot be gone on with in another process. One task at a time may use it.
    """

    def __init__(
        self,
        management: ContextManagement,
        *,
        session_id: str,
        offloader: Offloader | None = None,
        size: int = 128_000,
        config: ContextConfig | None = None,
        system: Any = "",
        tools: Sequence[Any] = (),
        summarizer: Summarizer | SummaryFunction | None = None,
        summarizers: Mapping[str, Summarizer | SummaryFunction] | None = None,
        counter: TextCounter | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin without messages; nothing is written before something leaves.

        Args:
            management: The document.
            session_id: Names the session at the offloader; it must be new there.
            offloader: Takes what leaves; None drops it, with one warning.
            size: Tokens of the model's window.
            config: What summaries look like where the document does not say it.
            system: The system prompt where it is sent beside the messages; only counted.
            tools: Definitions of the tools; only counted.
            summarizer: Writes summaries; left out: the extractive one, which needs no model.
            summarizers: Others, by the ``summarization_model_id`` of documents.
            counter: Counts tokens; left out: exactly, for ``o200k_base``.
            clock: Tells seconds, for the rule ``idle_seconds_exceed``.

        Raises:
            ConfigError: *size* is not above 0, or a summariser is none.
        """
        if size < 1:
            raise ConfigError("size", f"{size!r} is not a whole number of tokens above 0")
        self.management = management
        self.session_id = session_id
        self.reports: list[Report] = []
        self._size, self._config, self._counter = size, config or ContextConfig(), counter or default_counter()
        self._turns = abilities_of(offloader).turns
        usual, *named = (
            Compressor(offloader, config=self._config, counter=self._counter, summarizer=one)
            for one in (summarizer, *(summarizers or {}).values())
        )
        self._writers = Writers(usual, dict(zip(summarizers or {}, named, strict=True)), self._config)
        self._replacing = Replacing(offloader, session_id, self._counter)
        self._contents = _Contents()
        self._fixed_tokens = self._counter.count(system if isinstance(system, str) else spell(system))
        self._fixed_tokens += count_tools(tools, self._counter)
        self._clock, self._called_at = clock, clock()
        self._added, self._model_calls = 0, 0
        self._is_overflow, self._begins_turn = False, False

    @property
    def messages(self) -> list[Any]:
        """The native messages in the context, in order."""
        return [held.native for held in self.situation().standing()]

    async def add(self, message: Any) -> Report | None:
        """Take a message of any known dialect to the end; after a tool result, ``post_tool`` fires.

        Returns:
            What the managers of the hook did; None where it did not fire.

        Raises:
            MessageError: It is no message.
            Exception: See `run`. The message is in the context then.
        """
        view = detect(message).view(message)
        held = Held(message, view, count_message(view, self._counter), self._added)
        self._contents.messages.append(held)
        self._added += 1
        self._begins_turn |= held.is_spoken_by_user
        return await self._run("post_tool") if view.results else None

    async def prepare(self, management: ContextManagement | None = None) -> list[Any]:
        """Return the messages for the next model call; ``pre_llm`` fires, and before a turn's first, ``post_memory``.

        Args:
            management: For this call alone, in place of the conversation's own.

        Raises:
            Exception: See `run`.
        """
        if self._begins_turn:
            await self._run("post_memory", management)
        await self._run("pre_llm", management)
        self._begins_turn = False
        self._model_calls += 1
        self._called_at = self._clock()
        if self._turns is not None:
            self._turns.next_turn()
        return self.messages

    async def recover_from_overflow(self, error: BaseException) -> list[Any]:
        """Return fewer messages after the provider refused the last ones with *error*.

        Raises:
            BaseException: *error*, where no manager makes the context smaller.
            Exception: See `run_on_overflow`.
        """
        self._is_overflow = True
        try:
            self.reports.append(await run_on_overflow(self.management, self, error))
        finally:
            self._is_overflow = False
        return self.messages

    def situation(self) -> Situation:
        """Return the context as it stands."""
        return Situation(
            head=self._contents.head,
            messages=tuple(self._contents.messages),
            size=self._size,
            counter=self._counter,
            fixed_tokens=self._fixed_tokens,
            idle_s=self._clock() - self._called_at,
            model_calls=self._model_calls,
            is_overflow=self._is_overflow,
        )

    async def leave(self, step: Leave) -> Done:
        """Archive messages, and let go of them; see `Actions`."""
        extent, place = await self._archived(step.cut, self._writers.usual)
        notice = self._ours(notice_of_leaving(place), step.cut)
        self._let_go(step)
        self._contents.notice = notice if step.notice else self._contents.notice
        return Done(f"{extent.end - extent.first - len(step.standing):,} messages left for the archive")

    async def summarise(self, step: Summarise) -> Done:
        """Archive messages, and put a summary in their place; see `Actions`."""
        before = self.situation().tokens
        writing, contents = self._writers.of(step), self._contents
        previous = contents.summary[1] if contents.summary else None
        leaving = [*contents.again, *contents.messages[: step.cut]]
        staying = [contents.messages[position] for position in step.standing]
        staying += [held for held in map(contents.head.__getitem__, step.head) if not held.is_ours]
        leaving_tokens = sum(held.tokens for held in leaving) - sum(held.tokens for held in staying)
        previous_tokens = previous.tokens if previous else 0
        refused = writing.refused(step.cut, leaving_tokens, self._size, previous_tokens)
        if refused is not None:
            return refused
        extent, place = await self._archived(step.cut, writing.compressor)
        summary = await writing.compressor.summarize(
            extent,
            place,
            previous=previous.draft if previous else None,
            max_tokens=writing.max_tokens(leaving_tokens, self._size, previous_tokens),
            config=writing.config,
        )
        summary = await writing.compressor.record(self.session_id, summary)
        stand_in = self._ours(summary.text, step.cut)
        self._let_go(step)
        self._contents.summary = (stand_in, summary)
        return writing.done(summary, step.cut, extent.tokens, is_reduced=self.situation().tokens < before)

    async def replace(self, step: Replace) -> Done:
        """Store a part of a message, and put there what stands for it; see `Actions`."""
        held = self._contents.messages[step.position]
        replaced = await self._replacing.replaced(held, step)
        if replaced is held:
            return Done(f"message {held.index} stays: what would stand there is no smaller", is_reduced=False)
        self._contents.messages[step.position] = replaced
        return Done(f"message {held.index}: {step.reason}; {held.tokens:,} tokens became {replaced.tokens:,}")

    async def pin(self, step: Pin) -> Done:
        """Remember which messages stand again; see `Actions`."""
        for position in step.positions:
            self._contents.messages[position] = replace(self._contents.messages[position], pinned=True)
        return Done(f"{len(step.positions):,} messages are pinned: {step.reason}", is_reduced=False)

    async def _run(self, hook: Hook, management: ContextManagement | None = None) -> Report:
        report = await run(management or self.management, hook, self)
        self.reports.append(report)
        return report

    async def _archived(self, cut: int, compressor: Compressor) -> tuple[Extent, Place]:
        contents, leaving = self._contents, self._contents.messages[:cut]
        extent = Extent(
            self.session_id,
            contents.first,
            [held.native for held in leaving],
            sum(held.tokens for held in leaving),
            archived=max(contents.archived - contents.first, 0),
            attempts=[end - contents.first for end in contents.attempts],
            stubs=self._replacing.stubs,
            batches=contents.batches,
        )
        self._replacing.warn_of_loss()
        contents.attempts.add(extent.end)
        place = await compressor.archive(extent)
        contents.archived, contents.batches = max(contents.archived, extent.end), place.batches
        contents.attempts = {end for end in contents.attempts if end > contents.archived}
        return extent, place

    def _ours(self, text: str, cut: int) -> Held:
        """Return a user message of ours that says *text*, in the form of the messages that leave."""
        dialect = detect(self._contents.messages[cut - 1].native)
        native = dialect.user_message(text)
        view = dialect.view(native)
        return Held(native, view, count_message(view, self._counter), NO_INDEX)

    def _let_go(self, step: Leave | Summarise) -> None:
        """Forget the messages before the cut that do not stand again, and what no longer stands in the head."""
        head, messages = self._contents.head, self._contents.messages
        staying = [head[position] for position in step.head if not head[position].is_ours]
        self._contents.again = sorted(
            [*staying, *(messages[position] for position in step.standing)], key=lambda held: held.index
        )
        del messages[: step.cut]


if TYPE_CHECKING:
    _conforms: type[Actions] = ManagedConversation
