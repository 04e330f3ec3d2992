"""What those of our managers have in common that let the oldest messages leave at one cut."""

import asyncio
import logging
import os
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from strands.agent.conversation_manager import ProactiveCompressionConfig
from strands.hooks import AfterInvocationEvent, AfterModelCallEvent, BeforeModelCallEvent, HookRegistry
from strands.types.exceptions import ContextWindowOverflowException

from buoyline.compression import ContextConfig, Extent, Summary
from buoyline.compression.rendering import Place
from buoyline.errors import ConfigError, StaleWindowError
from buoyline.integrations.strands.bridging import run_apart
from buoyline.integrations.strands.conversation import FAILURES, WorkspaceConversationManager
from buoyline.integrations.strands.departure import Departures
from buoyline.integrations.strands.gains import Gains
from buoyline.integrations.strands.history import DIALECT, Key, NativeMessage, durable_key, history_of, key_of, pinned
from buoyline.integrations.strands.keeping import Head, HistoryKeeping
from buoyline.integrations.strands.projection import Count, Projection, projection_from
from buoyline.integrations.strands.shrinking import Shrinking
from buoyline.offloader import Offloader
from buoyline.tokens import TokenCounter
from buoyline.tokens.messages import count_tools
from buoyline.window.completion import completed
from buoyline.window.handover import hand_over
from buoyline.window.keeping import AGAIN
from buoyline.window.settings import config_to_json

if TYPE_CHECKING:
    from strands import Agent
    from strands.types.content import Message

logger = logging.getLogger(__name__)


class LeavingConversationManager(WorkspaceConversationManager):
    """Lets the oldest messages leave at one cut, and says at the head of the history what they were, or where.

    What failed leaves history and `removed_message_count` as they were. That count is the index in Strands' own session
    of the first message that is still in the history; what stands before it, a summary and pinned messages, is kept
    in the manager's state. (Strands does not count pinned ones, and restores others in their place.)
    """

    def __init__(
        self,
        *,
        workspace: Offloader | str | os.PathLike[str] | None = None,
        session_id: str | None = None,
        pin_first: int | None = None,
        proactive_compression: bool | ProactiveCompressionConfig | None = None,
        counter: TokenCounter | None = None,
        config: ContextConfig | None = None,
    ) -> None:
        """Keep what leaves in *workspace*.

        Args:
            workspace: See `WorkspaceConversationManager`.
            session_id: See `WorkspaceConversationManager`.
            pin_first: So many of the first messages stay in the history for ever.
            proactive_compression: See `WorkspaceConversationManager`.
            counter: See `WorkspaceConversationManager`.
            config: What a summary looks like.

        Raises:
            ValueError: See `WorkspaceConversationManager`.
            TypeError: See `WorkspaceConversationManager`.
        """
        super().__init__(
            workspace=workspace,
            session_id=session_id,
            proactive_compression=proactive_compression,
            counter=counter,
        )
        self.pin_first = None if pin_first is None else max(0, pin_first)
        self.departures = Departures(self.offloader, self.counter, config or ContextConfig())
        self._projection = Projection()
        self._standing: NativeMessage | None = None
        self._pins: list[NativeMessage] = []
        self._pin_indexes: list[int] = []
        self._keeping: HistoryKeeping | None = None
        self._pinned: set[Key] = set()
        self._has_pinned_first = False
        self._is_foreign = False
        self._gains = Gains()
        self._settled_at: tuple[int, Key] | None = None

    def register_hooks(self, registry: HookRegistry, **kwargs: Any) -> None:
        """Watch the model calls of an agent, and their answers."""
        super().register_hooks(registry, **kwargs)
        registry.add_callback(AfterModelCallEvent, self._after_model_call)

    def get_state(self) -> dict[str, Any]:
        """Return what another process needs to go on, as a JSON object (payloads of pinned messages apart)."""
        return {
            **super().get_state(),
            "summary_message": self._standing,
            "pinned_messages": list(self._pins),
            "workspace": {
                **self.departures.to_json(),
                **self._projection.to_json(),
                "pin_indexes": self._pin_indexes,
                "pinned": sorted(key for key in self._pinned if isinstance(key, str)),
                "has_pinned_first": self._has_pinned_first,
            },
        }

    def restore_from_session(self, state: dict[str, Any]) -> "list[Message] | None":
        """Go on from what `get_state` gave, or that of Strands' manager of the same name.

        Returns:
            What stands in the history before the messages of the session: pinned ones and the summary; None where
            nothing does.

        Raises:
            ValueError: It is the state of another class.
        """
        super().restore_from_session(state)
        self._standing = state.get("summary_message")
        self._pins = list(state.get("pinned_messages") or [])
        kept = state.get("workspace")
        self._is_foreign = kept is None
        if kept is not None:
            self.departures.restore(kept)
            self._projection = projection_from(kept)
            self._pinned, self._pin_indexes = set(kept["pinned"]), list(kept["pin_indexes"])
            self._has_pinned_first = bool(kept["has_pinned_first"])
        head = [*self._pins, *([] if self._standing is None else [self._standing])]
        return cast("list[Message]", head) or None

    def take_over(self) -> "list[Message]":
        """Take the named session over from another process or framework, and return what `Agent(messages=…)` needs.

        Messages of another dialect are converted; what has no place in Strands' is logged. What is
        archived stays as it was written, and summary and pins go on.

        Raises:
            ConfigError: The manager has no *session_id* of its own, or no *workspace*.
            BuoylineError: See `buoyline.ContextWindow.resume`.
        """
        session_id = self._session_id
        if session_id is None:
            raise ConfigError("session_id", "the manager needs one to know which session to take over")
        if not self._has_workspace:
            raise ConfigError("workspace", "the manager needs the one that has the session")
        found = run_apart(lambda: hand_over(self.departures.offloader, session_id, DIALECT))
        self.departures.left, self.departures.summary = found.first, found.summary
        self._standing = None if found.summary is None else _standing(found.summary.text, None)
        # What a document lets stand for now, the user's newest words, would be nowhere in the history without a pin.
        again = [(int(kind.partition(":")[2]), native) for kind, native in found.head if kind.startswith(AGAIN)]
        standing = sorted([*found.pins, *again], key=lambda pin: pin[0])
        self._pins, self._pin_indexes = [pin for _, pin in standing], [index for index, _ in standing]
        self._pinned.update(map(durable_key, self._pins))
        head = [*self._pins, *([] if self._standing is None else [self._standing])]
        return cast("list[Message]", [*head, *found.messages])

    def _use(self, offloader: Offloader) -> None:
        super()._use(offloader)
        self.departures.use(offloader)

    async def _stand_in(
        self, agent: "Agent", extent: Extent, place: Place, *, is_recovery: bool, max_tokens: int | None
    ) -> tuple[str, Summary | None]:
        """Return the text that stands for what leaves, empty for none, and the summary that it is.

        Args:
            agent: Whose history it is.
            extent: What leaves.
            place: Where it is.
            is_recovery: The provider has refused the history as it is.
            max_tokens: Of the text; None for any number.
        """
        raise NotImplementedError

    async def _before_model_call(self, event: BeforeModelCallEvent) -> None:
        await self._compress_ahead(event)
        await self._keep_history(event.agent)

    async def _compress_ahead(self, event: BeforeModelCallEvent) -> None:
        threshold = self._compression_threshold
        if threshold is None:
            return
        if await self._utilization(event.agent, event.projected_input_tokens) >= threshold:
            settled = _mark(history_of(event.agent))
            if settled == self._settled_at:
                return  # a retry: nothing was added since, and what could leave has left
            if await self._reduce_or_log(event.agent):
                self._settled_at = _mark(history_of(event.agent))

    async def _keep_history(self, agent: "Agent") -> None:
        try:
            keeping = await self._keeping_of(agent)
            standing = [head for head in (self._standing,) if head is not None and self.departures.summary is not None]
            kinds = ["pin" for _ in self._pins] + ["summary" for _ in standing]
            head = Head([*self._pins, *standing], kinds, self._pin_indexes, self.departures.left)
            await completed(
                keeping.keep(head, [message for message in history_of(agent) if not self._is_head(message)])
            )
        except FAILURES as failure:
            logger.warning("the history of %s is not written down: %s", self._session_of(agent), failure)

    async def _keeping_of(self, agent: "Agent") -> HistoryKeeping:
        session_id = self._session_of(agent)
        if self._keeping is None or self._keeping.session_id != session_id:
            self._keeping = HistoryKeeping(self.departures.abilities.windows, session_id)
        if self._keeping.is_open:
            return self._keeping
        settings = {
            "size": self._size_of(agent),
            "config": config_to_json(self.departures.config),
            "system": agent.system_prompt if isinstance(agent.system_prompt, str) else "",
            "tools": list(agent.tool_registry.get_all_tool_specs()),
            "dialect": DIALECT,
        }
        await self._keeping.open(settings)
        return self._keeping

    async def _after_model_call(self, event: AfterModelCallEvent) -> None:
        if event.stop_response is not None:
            self._gains.forget()

    async def _after_invocation(self, event: AfterInvocationEvent) -> None:
        self._gains.forget()
        await self._keep_history(event.agent)

    async def _utilization(self, agent: "Agent", projected: int | None) -> float:
        """Return the share of the window that the next call takes; *projected* is None if Strands could not tell."""
        count, tokens = self._count_for(agent), projected or 0
        try:
            if projected is None:
                tokens = await asyncio.to_thread(count, history_of(agent))
            else:
                tokens = await asyncio.to_thread(self._projection.tokens, history_of(agent), projected, count)
        except FAILURES as failure:
            logger.debug("the tokens of %s could not be estimated: %s", self._session_of(agent), failure)
        return agent.model.estimate_utilization(tokens)

    async def _tokens(self, messages: Sequence[NativeMessage]) -> int:
        return sum(await asyncio.to_thread(self.departures.counts, messages))

    def _is_head(self, message: NativeMessage) -> bool:
        """Tell whether *message* stands in the history for what has left, or has left and stands again."""
        heads = self._pins if self._standing is None else [*self._pins, self._standing]
        return any(key_of(message) == key_of(head) for head in heads)

    def _pin(self, messages: Sequence[NativeMessage]) -> list[bool]:
        """Tell of each message whether it is pinned; the first time, pin the first ones."""
        if self.pin_first and not self._has_pinned_first:
            first = [message for message in messages if not self._is_head(message)][: self.pin_first]
            for message in first:
                message.setdefault("metadata", {}).setdefault("custom", {})["pinned"] = True
                self._pinned.add(durable_key(message))  # Strands' sessions keep a message as it was first added
            self._has_pinned_first = True
        return pinned(messages, self._pinned)

    async def _shrinking(self, agent: "Agent") -> Shrinking:
        session_id = self._session_of(agent)
        stubs = await self.departures.stubs_in(session_id, history_of(agent))
        return Shrinking(self.departures.offloader, session_id, self.departures.counter, stubs)

    async def _leave(
        self,
        agent: "Agent",
        cut: int,
        *,
        is_recovery: bool,
        shrunk: Mapping[int, NativeMessage] | None = None,
        max_tokens: int | None = None,
        is_silent: bool = False,
    ) -> None:
        """Let the oldest *cut* messages leave: archive, say what stands for them, and only then forget them.

        Args:
            agent: Whose history it is.
            cut: Number of messages, those included that stand for earlier ones, and pinned ones, which stand again.
            is_recovery: What stands for them has to be small.
            shrunk: What stands in the place of messages that stay, by their position.
            max_tokens: Of the whole history then; where it would take more, nothing is changed.
            is_silent: Nothing replaces them.

        Raises:
            ContextWindowOverflowException: There is nothing among them that could leave, or not enough.
            BuoylineError: It was refused; nothing is lost, and the history is as it was.
        """
        seen = list(history_of(agent))
        self._forget_what_was_taken_out(seen)
        flags = self._pin(seen)
        stays = [message for message, flag in zip(seen[:cut], flags, strict=False) if flag]
        leaving = [message for message in seen[:cut] if not self._is_head(message)]
        if len(stays) == cut or not leaving:
            raise ContextWindowOverflowException("nothing more may leave the conversation")
        await self._keep_history(agent)  # a session is begun before anything is archived into it
        # A summary that Strands' own manager wrote is no message of the session, and nowhere else.
        foreign = [] if self._standing is None or not self._is_foreign else [self._standing]
        extent, place = await completed(self.departures.archive(self._session_of(agent), [*foreign, *leaving]))
        kept = [(shrunk or {}).get(position, seen[position]) for position in range(cut, len(seen))]
        room = None if max_tokens is None else max(max_tokens - await self._tokens([*stays, *kept]), 0)
        text, summary = "", None
        if not is_silent:
            text, summary = await self._stand_in(agent, extent, place, is_recovery=is_recovery, max_tokens=room)
        standing = _standing(text, self._standing) if text else None
        left = [*stays, *([] if standing is None else [standing]), *kept]
        if max_tokens is not None and await self._tokens(left) > max_tokens:
            raise ContextWindowOverflowException("what would stand for the oldest messages is no smaller than they are")
        projection = await asyncio.to_thread(self._projection.outdated, seen, cut, self._count_for(agent))
        self._check_unchanged(agent, seen)
        known = {durable_key(pin): index for pin, index in zip(self._pins, self._pin_indexes, strict=True)}
        known |= {durable_key(message): extent.end - len(leaving) + place for place, message in enumerate(leaving)}
        history_of(agent)[:] = [*left, *history_of(agent)[len(seen) :]]
        self._pins, self._standing, self._is_foreign, self._projection = stays, standing, False, projection
        self._pin_indexes = [known[durable_key(message)] for message in stays]
        self._pinned.update(map(durable_key, stays))
        self.removed_message_count += len(leaving)
        self.departures.settle(extent, summary)
        logger.info("%d messages left the history of %s for %s", len(leaving), extent.session_id, place.reference)

    async def _replace(self, agent: "Agent", shrunk: Mapping[int, NativeMessage]) -> None:
        """Put *shrunk* messages in their places, by their position."""
        seen = list(history_of(agent))
        projection = await asyncio.to_thread(self._projection.outdated, seen, 0, self._count_for(agent))
        self._check_unchanged(agent, seen)
        self._projection = projection
        for position, message in shrunk.items():
            history_of(agent)[position] = message

    def _forget_what_was_taken_out(self, messages: Sequence[NativeMessage]) -> None:
        """Carry no summary on that is no longer in the history, such as after a graph has reset its agents."""
        standing = self._standing
        if standing is not None and all(key_of(message) != key_of(standing) for message in messages):
            self._standing, self.departures.summary, self._is_foreign = None, None, False

    def _count_for(self, agent: "Agent") -> Count:
        def count(messages: Sequence[NativeMessage]) -> int:
            counter, prompt = self.departures.counter, agent.system_prompt
            beside = count_tools(list(agent.tool_registry.get_all_tool_specs()), counter)
            beside += counter.count(prompt) if isinstance(prompt, str) else 0
            return beside + sum(self.departures.counts(messages))

        return count

    def _check_unchanged(self, agent: "Agent", seen: Sequence[NativeMessage]) -> None:
        now = history_of(agent)
        if len(now) < len(seen) or any(one is not other for one, other in zip(now, seen, strict=False)):
            raise StaleWindowError(
                self._session_of(agent),
                "the history was changed while it was made smaller",
                "it is as whoever changed it has left it; the next model call tries again",
            )


def _mark(messages: Sequence[NativeMessage]) -> tuple[int, Key] | None:
    return (len(messages), key_of(messages[-1])) if messages else None


def _standing(text: str, before: NativeMessage | None) -> NativeMessage:
    """Return a message of the user's that says *text*: the one that stood *before* where it says the same."""
    content = [{"text": text}]
    if before is not None and before.get("content") == content:
        return before
    return {"role": "user", "content": content, "tracking_id": str(uuid.uuid4())}
