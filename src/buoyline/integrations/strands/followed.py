"""An agent's history and the window that follows it.

The history belongs to Strands, and anybody may change it at any time. So it is compared with the last one before each
use; if it was changed, a new window adopts it.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Final, cast

from buoyline.compression import Compressor, ContextConfig, Summary
from buoyline.compression.summary import summary_from
from buoyline.compression.summary_text import ArchiveLocation
from buoyline.errors import StaleWindowError, UsageError
from buoyline.integrations.strands.held_window import HeldContext, HeldWindow
from buoyline.integrations.strands.history import DIALECT, NativeMessage, durable_key, key_of
from buoyline.management import ContextManagement
from buoyline.messages import Text
from buoyline.messages.dialect import OPENING
from buoyline.messages.registry import dialect_named
from buoyline.offloader.policy import WORTH_OFFLOADING_TOKENS
from buoyline.tokens.messages import count_message, count_result
from buoyline.window.compaction import Eviction, Ready
from buoyline.window.context import StateDraft
from buoyline.window.plan import Choice
from buoyline.window.state import Entry
from buoyline.window.tasks import completed

logger = logging.getLogger(__name__)

_NO_MANAGERS: Final = ContextManagement()

_STUB_TOKENS: Final = 250
"""Shows where a result is, and how it begins and ends. The provider has refused more."""


class AgentWindow(HeldWindow):
    """A window whose evictions are planned by somebody else; it archives, summarizes and writes down."""

    @property
    def entries(self) -> list[Entry]:
        """The messages of the context, with those in front of them."""
        state = self._context.whole
        return [*state.leading, *state.messages]

    @property
    def request_tokens(self) -> int:
        """Tokens of the context with system prompt and tools, by our own count."""
        return self._context.budget.own_tokens(self._context.whole)

    @property
    def fixed_tokens(self) -> int:
        """Tokens of system prompt and tools, by our own count."""
        return self._context.budget.fixed_tokens

    @property
    def summary(self) -> Summary | None:
        """The summary in the context."""
        found = self._context.state.summary
        return None if found is None else found.summary

    async def keep(self) -> None:
        """Write down the added messages, as they are.

        Raises:
            StaleWindowError: Another process has gone on with the session.
            StorageError: The file system refused.
        """
        if not self._is_open:
            await completed(self._open())
        await self._engine.settle(_NO_MANAGERS)

    async def evict(self, eviction: Eviction, notice: Callable[[ArchiveLocation], str]) -> None:
        """Archive messages and evict them; *notice* returns the text of the reference line: no text, no line.

        Raises:
            BuoylineError: The offloader refused; the context is as it was.
        """
        await self._engine.compaction.let_go(eviction, notice)

    async def draft(
        self, eviction: Eviction, compressor: Compressor, config: ContextConfig, max_tokens: int, *, use_model: bool
    ) -> Ready:
        """Archive messages and return a summary of them, which is not in the context yet; see `show`.

        Raises:
            BuoylineError: The offloader refused; the context is as it was.
        """
        compaction = self._engine.compaction
        extent = compaction.extent(eviction.cut)
        return await compaction.made(extent, config, compressor=compressor, max_tokens=max_tokens, use_model=use_model)

    async def show(self, ready: Ready, eviction: Eviction) -> Summary:
        """Evict messages and put their summary in their place.

        Raises:
            BuoylineError: The offloader refused; the context is as it was.
        """
        return await self._engine.compaction.show(ready, eviction)

    async def smaller(self, positions: Iterable[int], wanted_tokens: int) -> tuple[dict[int, Entry], int]:
        """Store tool results until *wanted_tokens* are saved; the context is not changed, see `put`.

        The *positions* of the messages in `entries` are in the order in which they shrink.

        Returns:
            The messages with stubs by session index, and the tokens that they save.

        Raises:
            StorageError: The file system refused; results that are stored already stay stored.
        """
        entries, archived_until = self.entries, self._context.state.attempted_until
        found: dict[int, Entry] = {}
        saved = 0
        for position in positions:
            if saved >= wanted_tokens:
                break
            entry = entries[position]
            if entry.index < archived_until:  # archived messages keep their form, also those in front
                continue
            shrunk = await self._smaller(entry)
            if shrunk.tokens < entry.tokens:
                found[entry.index] = shrunk
                saved += entry.tokens - shrunk.tokens
        return found, saved

    async def put(self, changed: Mapping[int, Entry]) -> None:
        """Put messages, by session index, in the place of those that are still in the context.

        Raises:
            StorageError: The file system refused; the context is as it was.
        """
        draft = StateDraft.of(self._context.state)
        for index, entry in changed.items():
            if index >= draft.base.messages.first:
                draft.put(index - draft.base.messages.first, entry)
        if draft.is_changed:
            await self._context.commit(draft.change)

    def message_tokens(self, text: str) -> int:
        """Return the tokens of a message of ours."""
        dialect = dialect_named(DIALECT)
        return count_message(dialect.view(dialect.user_message(text)), self._context.budget.counter)

    async def _smaller(self, entry: Entry) -> Entry:
        """Return *entry* with stubs in place of its results; if it has stubs alone, with their notices."""
        results, choices = self._engine.results, dict[int, Choice]()
        for number, result in enumerate(entry.message.results):
            if all(isinstance(part, Text) and part.text in results.stubs for part in result.parts):
                continue
            tokens = count_result(result, self._context.budget.counter)
            if tokens > WORTH_OFFLOADING_TOKENS:
                stub_tokens = min(_STUB_TOKENS, max(tokens // 2, WORTH_OFFLOADING_TOKENS))
                choices[number] = Choice(self._context.planner.known_of(result)[0], stub_tokens)
        return await (results.replace(entry, choices, []) if choices else results.shrink(entry))


# A context as a history.
#
# Providers require that a history begins with a user's message, and that roles alternate. A summary or a notice is a
# user's message, and so may be its neighbor: then both share one message.

_OURS: Final = ("summary", "notice")


@dataclass(frozen=True, slots=True)
class LeadingMessage:
    """One message at the beginning of a history, before the agent's own.

    Attributes:
        message: The only part itself, or a message with the contents of all parts.
        parts: The parts by their number in `HeldContext.head`; -1 for others.
    """

    message: NativeMessage
    parts: Sequence[tuple[int, NativeMessage]]


@dataclass(frozen=True, slots=True)
class Shown:
    """A context as a history.

    Attributes:
        head: The messages before the agent's.
        taken: How many of the agent's messages share the last of these: one or none.
        messages: The agent's messages that follow.
        opening: Says that messages were archived, if the document wants no notice and a user's message is needed.
    """

    head: Sequence[LeadingMessage] = ()
    taken: int = 0
    messages: Sequence[NativeMessage] = ()
    opening: NativeMessage | None = None

    def history(self) -> list[NativeMessage]:
        """Return the whole history, in order."""
        return [*(leading.message for leading in self.head), *self.messages]


def shown_as(
    held: HeldContext, before: Shown | None = None, *, opening: NativeMessage | None = None, shares: bool = True
) -> Shown:
    """Return *held* as a history. A message that is still the same as in the one *before* is the same object.

    The *opening* is placed first in any case; without one, one is made if it is needed. With *shares*, neighbors of one
    role share a message, and a history begins with a user's message. Whoever cuts so that roles alternate does without.
    """
    before = before or Shown()
    parts = list(enumerate(native for _, native in held.head))
    if not shares:
        return Shown([_leading([part], before.head) for part in parts], 0, held.messages)
    ours = [part for part in parts if held.head[part[0]][0] in _OURS]
    follower = held.messages[0] if held.messages else None
    first = parts[0][1] if parts else follower
    has_words = bool(ours) or held.first == 0  # nothing was archived, or a line says so
    if opening is None and not has_words and first is not None and first["role"] != "user":
        opening = before.opening or dialect_named(DIALECT).user_message(OPENING)
    if opening is not None:
        parts.insert(0, (-1, opening))
    elif parts and parts[0][1]["role"] != "user":
        parts = [*ours, *(part for part in parts if part not in ours)]
    taken = int(bool(parts) and follower is not None and follower["role"] == parts[-1][1]["role"])
    if follower is not None and taken:
        parts.append((-1, follower))
    groups = [list(group) for _, group in groupby(parts, key=lambda part: part[1]["role"])]
    return Shown([_leading(group, before.head) for group in groups], taken, held.messages[taken:], opening)


def _joined(messages: Sequence[NativeMessage]) -> NativeMessage:
    """Return messages of one role as one."""
    return {"role": messages[0]["role"], "content": [block for message in messages for block in message["content"]]}


def _leading(parts: Sequence[tuple[int, NativeMessage]], before: Sequence[LeadingMessage]) -> LeadingMessage:
    natives = [native for _, native in parts]
    ids = [*map(id, natives)]
    known = (one.message for one in before if [id(native) for _, native in one.parts] == ids)
    message = natives[0] if len(natives) == 1 else next(known, None)
    if message is None:
        message = _joined(natives)
    durable_key(message)
    return LeadingMessage(message, parts)


# The history and its window, kept in step.


@dataclass(slots=True)
class FollowedHistory:
    """Adds new messages of a history to a window, and writes the window's messages into the history.

    Attributes:
        shares: See `shown_as`. Messages get ids then, so that results that became stubs are recognized.
        held: The context as it was shown last, without its messages.
        shown: The same as a history, without the agent's messages.
        window: None before the first call.
        is_settled: The history is as the window has it, and nothing was added since.
        last: The id of the last message of the agent's, if all of them were evicted.
    """

    shares: bool = True
    held: HeldContext = field(default_factory=HeldContext)
    shown: Shown = field(default_factory=Shown)
    window: AgentWindow | None = None
    is_settled: bool = False
    last: str = ""
    _is_restored: bool = False
    _known: list[tuple[NativeMessage, Any]] = field(default_factory=list[tuple[NativeMessage, Any]])
    _end: int = 0

    async def follow(self, history: Sequence[NativeMessage], made: Callable[[], AgentWindow]) -> AgentWindow:
        """Return the window, which has all messages of *history*.

        If there is none, or if *history* is no longer that of the last, *made* makes one of the session.

        Raises:
            BuoylineError: The offloader refused.
        """
        window = self.window
        if window is None or not _begins_with(history, self._known):
            window = await self._adopted(history, made())
        for message, content in _with_content(history[len(self._known) :]):
            if self.shares:
                durable_key(message)
            _note_usage(window, message)
            await window.add(message)
            self._known.append((message, content))
            self.is_settled = False
        return window

    def show(self, history: list[NativeMessage]) -> int:
        """Write the window's messages into *history*.

        Returns:
            How many of the agent's messages are no longer in the history since the last time.

        Raises:
            StaleWindowError: Somebody has changed it meanwhile.
        """
        if self.window is None:
            return 0
        if not _begins_with(history, self._known):
            raise StaleWindowError(
                self.window.session_id,
                "the history was changed while it was managed",
                "that change is kept; the next model call tries again",
            )
        held = self.window.held
        shown = shown_as(held, self.shown, shares=self.shares)
        messages = shown.history()
        removed = held.first + shown.taken - self._end
        behind = self._known[len(self.shown.head) :]
        if shown.taken or shown.messages:
            self.last = ""
        elif removed and behind:
            self.last = durable_key(behind[-1][0])
        elif removed and self.shown.taken:
            self.last = durable_key(self.shown.head[-1].parts[-1][1])
        history[: len(self._known)] = messages
        known = {id(message): content for message, content in self._known}
        self._known = [(one, known[id(one)] if id(one) in known else _copied(one.get("content"))) for one in messages]
        self._end += removed
        self.held, self.shown = replace(held, messages=()), replace(shown, messages=())
        self.is_settled, self._is_restored = True, False
        return removed

    def begin(self, held: HeldContext, opening: NativeMessage | None = None, *, last: str = "") -> list[NativeMessage]:
        """Begin with *held*, and return it as a history; see `shown_as` for *opening*.

        The message with the id *last* is archived already, and may be behind these: see `uncounted`.
        """
        self.shown = shown_as(held, opening=opening, shares=self.shares)
        self.held = replace(held, messages=())
        self.window, self._known, self.is_settled = None, [], False
        self.last, self._is_restored = last, bool(last)
        return self.shown.history()

    @property
    def is_head_alone(self) -> bool:
        """Whether the only message of the agent's shares the last one of the head."""
        return self.shown.taken > 0 and len(self._known) == len(self.shown.head)

    @property
    def uncounted(self) -> int:
        """How many removed messages a saved `removed_message_count` does not count: one or none.

        If no message is behind those that were removed, Strands numbers the next ones from 0, over the first ones. So
        the last one comes behind the head again. There it shares a message with the head, or is evicted again.
        """
        return int(self.is_head_alone or (self.is_settled and self.last != ""))

    def to_json(self) -> dict[str, Any]:
        """Return the state that another process needs, as a JSON object, but for bytes in messages.

        If the head is alone, it is without the agent's message: that comes behind it, and shares it again later.
        """
        held, shown = self.held, self.shown
        if self.is_head_alone:
            shown = shown_as(held, shown, opening=shown.opening)
        head = shown.head
        return {
            "head": [[kind, native] for kind, native in held.head],
            "taken": [native for one in head[-1:] for _, native in one.parts[-1:]] if shown.taken else [],
            "opening": shown.opening,
            "keys": [durable_key(one.message) for one in head],
            "first": held.first,
            "pins": list(held.pins),
            "summary": None if held.summary is None else held.summary.with_few_facts().to_json(),
            "last": self.last,
        }

    def restore(self, state: Mapping[str, Any]) -> list[NativeMessage]:
        """Take over the state from `to_json`, and return the messages before the agent's."""
        summary = None if state["summary"] is None else summary_from(state["summary"])
        head = [(kind, native) for kind, native in state["head"]]
        held = HeldContext(head, state["taken"], state["first"], state["pins"], summary)
        self.begin(held, state["opening"], last=state.get("last", ""))
        for one, key in zip(self.shown.head, state["keys"], strict=False):
            one.message["tracking_id"] = key
        return [one.message for one in self.shown.head]

    async def _adopted(self, history: Sequence[NativeMessage], window: AgentWindow) -> AgentWindow:
        """Let a new *window* adopt *history* up to the model's last message; those behind it are new to the window."""
        leading = self._still_leading(history)
        # Whoever saved the whole history has the restored messages a second time.
        begin = len(leading) + len(self._still_leading(history[len(leading) :]))
        if self._is_restored:  # the last archived one, see `uncounted`
            begin += any(_id_of(message) == self.last for message in history[begin : begin + 1])
        numbers = {number for one in leading for number, _ in one.parts if number >= 0}
        has_taken = self.shown.taken and leading and leading[-1] is self.shown.head[-1]
        taken = [leading[-1].parts[-1][1]] if has_taken else []
        end = max((end for end, message in enumerate(history, 1) if message["role"] == "assistant"), default=0)
        end = max(end, begin)
        messages = [*taken, *history[begin:end]]
        held = replace(
            self.held,
            head=[one for number, one in enumerate(self.held.head) if number in numbers],
            messages=messages,
            pins=[*_pins_of(self.held, numbers), *self._pins_among(messages)],
        )
        if self.shares:
            for message in history[:end]:
                durable_key(message)
        first = await window.adopt(held, _id_of)
        self.window, self.is_settled = window, False
        self._known = _with_content(history[:end])
        self._end = first + len(taken) - self._is_restored
        return window

    def _pins_among(self, messages: Sequence[NativeMessage]) -> list[int]:
        """Return the session indexes of the pins among *messages*; others before them may have been deleted."""
        first = self.held.first
        places = [pin - first for pin in self.held.pins if pin >= first]
        if self.window is not None:
            taken = [self.shown.head[-1].parts[-1][1]] if self.shown.taken else []
            before = [*taken, *(message for message, _ in self._known[len(self.shown.head) :])]
            keys = {key_of(before[at]) for at in places if at < len(before)}
            places = [at for at, message in enumerate(messages) if key_of(message) in keys]
        return [first + at for at in places if at < len(messages)]

    def _still_leading(self, history: Sequence[NativeMessage]) -> Sequence[LeadingMessage]:
        """Return the messages of the head that are still at the beginning of *history*, with the same content.

        Others of the head may have been deleted. A summary and a notice need no id: nobody else writes them, and a copy
        of a history has new ids.
        """
        found, rest = list[LeadingMessage](), iter(self.shown.head)
        for message in history:
            same = next((one for one in rest if self._is_still(one, message)), None)
            if same is None:
                break
            found.append(same)
        return found

    def _is_still(self, leading: LeadingMessage, message: NativeMessage) -> bool:
        # The content of the parts: a shared message may be edited itself.
        if _joined([native for _, native in leading.parts])["content"] != message.get("content"):
            return False
        is_ours = all(at >= 0 and self.held.head[at][0] in _OURS for at, _ in leading.parts)
        return is_ours or _id_of(leading.message) == _id_of(message)


def _pins_of(held: HeldContext, numbers: set[int]) -> list[int]:
    """Return the session indexes of the pins in the head of *held* that are among *numbers*."""
    places = [number for number, (kind, _) in enumerate(held.head) if kind == "pin"]
    return [pin for number, pin in zip(places, held.pins, strict=False) if number in numbers]


def _note_usage(window: AgentWindow, message: NativeMessage) -> None:
    metadata: Mapping[str, Any] = message.get("metadata") or {}
    if message.get("role") != "assistant" or not metadata.get("usage"):
        return
    try:
        window.note_usage(metadata["usage"])
    except UsageError as error:
        logger.debug("session %s: the usage of an answer is ignored: %s", window.session_id, error)


def _id_of(message: Mapping[str, Any]) -> str:
    return str(message.get("tracking_id") or "")


def _with_content(messages: Iterable[NativeMessage]) -> list[tuple[NativeMessage, Any]]:
    """Return each message with a copy of its content: hooks and guardrails edit it in place."""
    return [(message, _copied(message.get("content"))) for message in messages]


def _copied(value: object) -> object:
    """Return *value* with dicts and lists of its own; a comparison need not read texts and bytes, which are shared."""
    if isinstance(value, dict):
        return {key: _copied(one) for key, one in cast("dict[object, object]", value).items()}
    if isinstance(value, list):
        return [_copied(one) for one in cast("list[object]", value)]
    return value


def _begins_with(history: Sequence[NativeMessage], known: Sequence[tuple[NativeMessage, Any]]) -> bool:
    """Return whether *history* begins with the same messages, and their contents are as they were."""
    return len(history) >= len(known) and all(
        one is other and one.get("content") == content for one, (other, content) in zip(history, known, strict=False)
    )
