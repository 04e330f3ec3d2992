"""`DocumentConversationManager`: a document says what becomes of an agent's history, and when."""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, cast

from strands.hooks import AfterInvocationEvent, AfterModelCallEvent, BeforeModelCallEvent, HookRegistry
from strands.types.exceptions import ContextWindowOverflowException

from buoyline.compression import ContextConfig, Draft, Summarizer, SummaryRequest
from buoyline.compression.summarizers.callables import SummaryFunction
from buoyline.compression.summary import summary_from
from buoyline.errors import BuoylineError, ConfigError, StaleWindowError, SummaryError, UsageError
from buoyline.integrations.strands.callbacks import guarded_listener, guarded_management, guarded_summarizer, run_apart
from buoyline.integrations.strands.conversation import FAILURES, WorkspaceConversationManager
from buoyline.integrations.strands.cuts import Gains
from buoyline.integrations.strands.history import DIALECT, NativeMessage, durable_key, history_of
from buoyline.integrations.strands.summaries import StrandsModelSummarizer
from buoyline.management import ContextManagement, ManagementReport
from buoyline.management.settings import explained
from buoyline.messages.registry import dialect_named
from buoyline.offloader import Offloader
from buoyline.tokens import TokenCounter
from buoyline.window.events import OnEvent
from buoyline.window.follow import HeldContext, HeldWindow, hand_over
from buoyline.window.settings import Management, document_of

if TYPE_CHECKING:
    from strands import Agent
    from strands.types.content import Message

# What a history looks like in which messages of ours stand before those of the agent.
#
# Providers want a history that begins with a user's message, and in which roles take turns. What stands for the
# messages
# that left is a user's message, and so may be what stands beside it: then they share one. Messages further behind are
# the
# agent's own business.


_OURS: Final = ("summary", "notice")
_OPENING: Final = "[The oldest messages of this conversation are no longer in the context.]"


@dataclass(frozen=True, slots=True)
class PlacedMessage:
    """One message at the head of a history, and what shares it.

    Attributes:
        message: What stands there: the only part itself, or one that has the contents of all.
        parts: Messages of the head by their number in `HeldContext.head`, -1 for others, and what they are.
    """

    message: NativeMessage
    parts: Sequence[tuple[int, NativeMessage]]


@dataclass(frozen=True, slots=True)
class Shown:
    """A context as a history.

    Attributes:
        head: What stands before the agent's messages.
        taken: How many of the messages behind the head share the last of these: one, or none.
        opening: Says that messages have left, where the document wants nothing to be said and a user's message is
            needed.
        messages: Those that follow.
    """

    head: Sequence[PlacedMessage] = ()
    taken: int = 0
    messages: Sequence[NativeMessage] = ()
    opening: NativeMessage | None = None

    def history(self) -> list[NativeMessage]:
        """Return the whole history, in order."""
        return [*(standing.message for standing in self.head), *self.messages]


def shown_as(held: HeldContext, before: Shown | None = None, *, opening: NativeMessage | None = None) -> Shown:
    """Return how *held* stands in a history.

    Args:
        held: The context.
        before: How it stood there last: what stands there still is the very same objects.
        opening: Stands at the beginning in any case; left out: one does where that is needed.
    """
    before = before or Shown()
    parts = list(enumerate(native for _, native in held.head))
    ours = [part for part in parts if held.head[part[0]][0] in _OURS]
    follower = held.messages[0] if held.messages else None
    if opening is None and _needs_opening(parts, ours, follower, has_left=held.first > 0):
        opening = before.opening or dialect_named(DIALECT).user_message(_OPENING)
    if opening is not None:
        parts.insert(0, (-1, opening))
    elif parts and parts[0][1]["role"] != "user":
        parts = [*ours, *(part for part in parts if part not in ours)]
    taken = int(bool(parts) and follower is not None and follower["role"] == parts[-1][1]["role"])
    if follower is not None and taken:
        parts.append((-1, follower))
    groups = [list(group) for _, group in groupby(parts, key=lambda part: part[1]["role"])]
    return Shown([_standing(group, before.head) for group in groups], taken, held.messages[taken:], opening)


def _needs_opening(
    parts: Sequence[tuple[int, NativeMessage]],
    ours: Sequence[object],
    follower: NativeMessage | None,
    *,
    has_left: bool,
) -> bool:
    """Return whether something of ours has to be there, though a document wants no notice."""
    if ours or not has_left:
        return False
    first = parts[0][1] if parts else follower
    return first is not None and first["role"] != "user"


def _standing(parts: Sequence[tuple[int, NativeMessage]], before: Sequence[PlacedMessage]) -> PlacedMessage:
    natives = [native for _, native in parts]
    if len(natives) == 1:
        durable_key(natives[0])
        return PlacedMessage(natives[0], parts)
    for one in before:
        if _are(natives, [native for _, native in one.parts]):
            return PlacedMessage(one.message, parts)
    message: NativeMessage = {
        "role": natives[0]["role"],
        "content": [block for native in natives for block in native["content"]],
    }
    durable_key(message)
    return PlacedMessage(message, parts)


def _are(ones: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]]) -> bool:
    return len(ones) == len(others) and all(one is other for one, other in zip(ones, others, strict=True))


# An agent's history and the window that manages it, kept in step.


logger = logging.getLogger(__name__)


@dataclass(slots=True)
class WindowedHistory:
    """What a window says is written into a history; what is new in the history is told to the window.

    The history is somebody else's: it is looked at anew each time, and where it is no longer what the window has made
    of it, since a guardrail has redacted a message or a graph has reset its agents, a new window takes it over.

    Attributes:
        held: The context as it was shown last, without its messages.
        shown: How it stands in the history, without its messages.
        window: Manages it; None before the first call.
        is_settled: The history is what the window has said last, and nothing was added since.
    """

    held: HeldContext = field(default_factory=HeldContext)
    shown: Shown = field(default_factory=Shown)
    window: HeldWindow | None = None
    is_settled: bool = False
    _known: list[tuple[NativeMessage, Any]] = field(default_factory=list[tuple[NativeMessage, Any]])
    _end: int = 0

    async def follow(self, history: Sequence[NativeMessage], made: Callable[[], HeldWindow]) -> HeldWindow:
        """Return the window, which knows all of *history* now.

        Args:
            history: The agent's.
            made: Makes a window for the session, where there is none or where *history* is no longer that of the last.

        Raises:
            BuoylineError: The offloader refused.
        """
        found = [(message, message.get("content")) for message in history]
        window = self.window
        if window is None or not _begins_with(found, self._known):
            window = await self._adopted(history, made())
        for message, content in found[len(self._known) :]:
            durable_key(message)
            _note_usage(window, message)
            await window.add(message)
            self._known.append((message, content))
            self.is_settled = False
        return window

    def show(self, history: list[NativeMessage]) -> int:
        """Write what the window says into *history*.

        Returns:
            How many messages of the agent's have left the history since the last time.

        Raises:
            StaleWindowError: Somebody has changed it meanwhile.
        """
        if self.window is None:
            return 0
        known = len(self._known)
        if not _begins_with([(message, message.get("content")) for message in history], self._known):
            raise StaleWindowError(
                self.window.session_id,
                "the history was changed while it was managed",
                "it is as whoever changed it has left it; the next model call tries again",
            )
        held = self.window.held
        shown = shown_as(held, self.shown)
        history[:known] = shown.history()
        self._known = [(message, message.get("content")) for message in shown.history()]
        left = held.first + shown.taken - self._end
        self._end += left
        self.held, self.shown = replace(held, messages=()), replace(shown, messages=())
        self.is_settled = True
        return left

    def begin(self, held: HeldContext, opening: NativeMessage | None = None) -> list[NativeMessage]:
        """Begin with *held*, and return the history that it makes; see `shown_as` for *opening*."""
        self.shown = shown_as(held, opening=opening)
        self.held = replace(held, messages=())
        return self.shown.history()

    def to_json(self) -> dict[str, Any]:
        """Return what another process needs to go on, as a JSON object (payloads of messages apart)."""
        held, head = self.held, self.shown.head
        return {
            "head": [[kind, native] for kind, native in held.head],
            "taken": [native for one in head[-1:] for _, native in one.parts[-1:]] if self.shown.taken else [],
            "opening": self.shown.opening,
            "keys": [durable_key(one.message) for one in head],
            "first": held.first,
            "pins": list(held.pins),
            "summary": None if held.summary is None else held.summary.to_json(),
        }

    def restore(self, state: Mapping[str, Any]) -> list[NativeMessage]:
        """Go on from what `to_json` gave, and return what stands in the history before the agent's messages."""
        summary = state["summary"]
        held = HeldContext(
            [(kind, native) for kind, native in state["head"]],
            state["taken"],
            state["first"],
            state["pins"],
            None if summary is None else summary_from(summary),
        )
        self.window, self._known = None, []
        self.begin(held, state["opening"])
        for one, key in zip(self.shown.head, state["keys"], strict=False):
            one.message["tracking_id"] = key
        return [one.message for one in self.shown.head]

    async def _adopted(self, history: Sequence[NativeMessage], window: HeldWindow) -> HeldWindow:
        """Let a new *window* take *history* over, up to the model's last message; what follows is new to it."""
        standing = self._still_standing(history)
        numbers = {number for one in standing for number, _ in one.parts if number >= 0}
        has_taken = self.shown.taken and len(standing) == len(self.shown.head)
        taken = [standing[-1].parts[-1][1]] if has_taken else []
        end = max((place for place, message in enumerate(history, 1) if message["role"] == "assistant"), default=0)
        end = max(end, len(standing))
        held = replace(
            self.held,
            head=[one for number, one in enumerate(self.held.head) if number in numbers],
            messages=[*taken, *history[len(standing) : end]],
            pins=_pins_of(self.held, numbers),
        )
        for message in history[:end]:
            durable_key(message)
        first = await window.adopt(held, _key_of)
        self.window, self.is_settled = window, False
        self._known = [(message, message.get("content")) for message in history[:end]]
        self._end = first + len(taken)
        return window

    def _still_standing(self, history: Sequence[NativeMessage]) -> Sequence[PlacedMessage]:
        """Return those of the head that stand at the beginning of *history*, as they were put there."""
        head = self.shown.head
        pairs = zip(head, history, strict=False)
        same = [
            _key_of(one.message) == _key_of(message) and one.message["content"] == message.get("content")
            for one, message in pairs
        ]
        return head[: (*same, False).index(False)]


def _pins_of(held: HeldContext, numbers: set[int]) -> list[int]:
    """Return the session indexes of the pins of *held*, as far as those in the head are among *numbers*."""
    places = [number for number, (kind, _) in enumerate(held.head) if kind == "pin"]
    in_head = [pin for number, pin in zip(places, held.pins, strict=False) if number in numbers]
    return [*in_head, *held.pins[len(places) :]]


def _note_usage(window: HeldWindow, message: NativeMessage) -> None:
    metadata: Mapping[str, Any] = message.get("metadata") or {}
    if message.get("role") != "assistant" or not metadata.get("usage"):
        return
    try:
        window.note_usage(metadata["usage"])
    except UsageError as error:
        logger.debug("session %s: the usage at an answer is passed over: %s", window.session_id, error)


def _key_of(message: Mapping[str, Any]) -> str:
    return str(message.get("tracking_id") or "")


def _begins_with(found: Sequence[tuple[Any, Any]], known: Sequence[tuple[Any, Any]]) -> bool:
    return len(found) >= len(known) and all(
        one is other and content is kept for (one, content), (other, kept) in zip(found, known, strict=False)
    )


CALL_KEY: Final = "context_management"
"""Key in the ``invocation_state`` of one call of an agent: a document that holds for that call."""


class DocumentConversationManager(WorkspaceConversationManager):
    """Runs the managers of a document on an agent's history: all hooks, by the engine of `ContextWindow`.

    ``post_memory``, ``post_tool`` and ``pre_llm`` fire before a model call, on what was added since the last;
    ``pre_compress`` before a summary; ``on_overflow`` after the provider has refused the request.

    What stands for messages that have left shares one message of the user's with whatever of the user's stands beside
    it, so that roles take turns. `removed_message_count` is the index in Strands' own session of the first message
    behind that; the rest is in the manager's state.

    Attributes:
        management: The document.
        report: What its managers did before the last model call, or after the last overflow.
    """

    def __init__(
        self,
        management: Management,
        *,
        workspace: Offloader | str | os.PathLike[str] | None = None,
        session_id: str | None = None,
        config: ContextConfig | None = None,
        summarizer: Summarizer | SummaryFunction | None = None,
        summarizers: Mapping[str, Summarizer | SummaryFunction] | None = None,
        use_model: bool = False,
        counter: TokenCounter | None = None,
        on_event: OnEvent | None = None,
        allowed: Sequence[str] = (),
    ) -> None:
        """Manage by *management*.

        Args:
            management: A document, its JSON values, a file, or a name; see `buoyline.window.settings.document_of`.
            workspace: See `WorkspaceConversationManager`; has the documents of its own where it is a `LocalWorkspace`.
            session_id: See `WorkspaceConversationManager`.
            config: What summaries look like where the document does not say it, and how many pictures may stand.
            summarizer: Writes the summaries; left out: the extractive one, which needs no model.
            summarizers: Others, by the ``summarization_model_id`` of documents.
            use_model: The agent's own model writes the summaries, its ``aux_model`` where it has one.
            counter: See `WorkspaceConversationManager`.
            on_event: Told of all that a `ContextWindow` tells, such as `ContextManaged` at each hook.
            allowed: Dotted names of managers that documents may import; see `ContextManagement.read`.

        Raises:
            ConfigError: *use_model* and *summarizer* are both given, *config* has a `background_ratio`, or one of the
                summarisers is none.
            BuoylineError: The document cannot be found or acted on.
            TypeError: See `WorkspaceConversationManager`.
        """
        super().__init__(workspace=workspace, session_id=session_id, counter=counter)
        if use_model and summarizer is not None:
            raise ConfigError("use_model", "and summarizer exclude each other: one alone writes the summaries")
        if config is not None and config.background_ratio is not None:
            raise ConfigError("background_ratio", "a document says when to compress; leave one of them out")
        self._allowed = allowed
        self.management = self._document(management)
        self._config = config or ContextConfig()
        self._use_model = use_model
        self._summarizer = None if summarizer is None else guarded_summarizer(summarizer)
        self._summarizers = {name: guarded_summarizer(one) for name, one in (summarizers or {}).items()}
        self._on_event = None if on_event is None else guarded_listener(on_event)
        self.report = ManagementReport()
        self._kept = WindowedHistory()
        self._is_recovering = False
        self._gains = Gains()
        self._for_call: tuple[object, ContextManagement] | None = None

    def register_hooks(self, registry: HookRegistry, **kwargs: Any) -> None:
        """Watch the model calls of an agent, and their answers."""
        super().register_hooks(registry, **kwargs)
        registry.add_callback(AfterModelCallEvent, self._after_model_call)

    def explain(self) -> list[str]:
        """Return in words what the document says, and what its managers did last."""
        return [*explained(self.management), *self.report.in_words()]

    def get_state(self) -> dict[str, Any]:
        """Return what another process needs to go on, as a JSON object (payloads of messages apart)."""
        return {**super().get_state(), "context": self._kept.to_json()}

    def restore_from_session(self, state: dict[str, Any]) -> "list[Message] | None":
        """Go on from what `get_state` gave.

        Returns:
            What stands in the history before the messages of the session; None where nothing does.

        Raises:
            ValueError: It is the state of another class.
        """
        super().restore_from_session(state)
        return cast("list[Message]", self._kept.restore(state["context"])) or None

    def take_over(self) -> "list[Message]":
        """Take the named session over from another process or framework, and return what `Agent(messages=…)` needs.

        Messages of another dialect are converted; what has no place in Strands' is logged. What is
        archived stays as it was written, and all that stands for it goes on.

        Raises:
            ConfigError: The manager has no *session_id* of its own.
            BuoylineError: See `buoyline.ContextWindow.resume`.
        """
        session_id = self._session_id
        if session_id is None:
            raise ConfigError("session_id", "the manager needs one to know which session to take over")
        if not self._has_workspace:
            raise ConfigError("workspace", "the manager needs the one that has the session")
        found = run_apart(lambda: hand_over(self.offloader, session_id, DIALECT))
        pins = [index for index, _ in found.pins]
        history = self._kept.begin(HeldContext(found.head, found.messages, found.first, pins, found.summary))
        # A session manager that begins with this history numbers what stands at its head, too.
        self.removed_message_count = len(self._kept.shown.head)
        return cast("list[Message]", history)

    async def _before_model_call(self, event: BeforeModelCallEvent) -> None:
        document = await self._document_for(event)
        try:
            await self._prepare(event.agent, document)
        except FAILURES as failure:
            logger.warning("the history of %s stays as it was: %s", self._session_of(event.agent), failure)

    async def _prepare(self, agent: "Agent", document: ContextManagement) -> None:
        window = await self._followed(agent)
        if self._kept.is_settled and window.management is document:
            return  # a retry: nothing was added since the managers were asked
        window.management = document
        await window.prepare()
        self._show(agent, window)

    async def _after_model_call(self, event: AfterModelCallEvent) -> None:
        if event.stop_response is not None:
            self._gains.forget()

    async def _after_invocation(self, event: AfterInvocationEvent) -> None:
        self._gains.forget()
        self._for_call = None
        try:
            window = await self._followed(event.agent)
            await window.save()
            window.management = self.management
        except FAILURES as failure:
            logger.warning("the history of %s is not written down: %s", self._session_of(event.agent), failure)

    async def _reduce(self, agent: "Agent") -> None:
        window = await self._followed(agent)
        if await window.compress(force=True) is None:
            raise ContextWindowOverflowException("nothing more may leave the conversation")
        self._show(agent, window)

    async def _recover(self, agent: "Agent", error: Exception) -> None:
        window = await self._followed(agent)
        wanted = int((1 - self._gains.next()) * window.tokens)
        self._is_recovering = True
        try:
            await window.recover_from_overflow(error)
            await self._recover_more(window, wanted, error)
        finally:
            self._is_recovering = False
            self._show(agent, window)

    async def _recover_more(self, window: HeldWindow, wanted: int, error: Exception) -> None:
        """Go on until the history takes no more than *wanted*, or can become no smaller."""
        while window.tokens > wanted:
            try:
                await window.recover_from_overflow(error)
            except (BuoylineError, ContextWindowOverflowException) as refused:
                logger.debug("session %s: %s", window.session_id, refused)
                return

    async def _followed(self, agent: "Agent") -> HeldWindow:
        window = await self._kept.follow(history_of(agent), lambda: self._window_for(agent))
        window.send_beside(_prompt_of(agent), agent.tool_registry.get_all_tool_specs())
        return window

    def _show(self, agent: "Agent", window: HeldWindow) -> None:
        self.report = window.report
        self.removed_message_count += self._kept.show(history_of(agent))

    def _window_for(self, agent: "Agent") -> HeldWindow:
        return HeldWindow(
            session_id=self._session_of(agent),
            offloader=self.offloader,
            size=self._size_of(agent),
            config=self._config,
            system=_prompt_of(agent),
            tools=list(agent.tool_registry.get_all_tool_specs()),
            summarizer=self._writer(agent),
            counter=self.counter,
            dialect=DIALECT,
            on_event=self._on_event,
            management=self.management,
            summarizers={name: self._unless_recovering(one) for name, one in self._summarizers.items()},
        )

    async def _document_for(self, event: BeforeModelCallEvent) -> ContextManagement:
        """Return the document for this call of the agent.

        Raises:
            BuoylineError: The one that the call names cannot be found or acted on. The agent's call ends with it: to
                go on by another document than the one that was asked for would be worse.
        """
        given = event.invocation_state.get(CALL_KEY)
        if given is None:
            return self.management
        if self._for_call is None or self._for_call[0] is not given:
            self._for_call = given, await asyncio.to_thread(self._document, given)
        return self._for_call[1]

    def _document(self, management: Management) -> ContextManagement:
        return guarded_management(document_of(management, self.offloader, allowed=self._allowed))

    def _writer(self, agent: "Agent") -> Summarizer | None:
        writer = StrandsModelSummarizer(agent.aux_model) if self._use_model else self._summarizer
        return None if writer is None else self._unless_recovering(writer)

    def _unless_recovering(self, summarizer: Summarizer) -> Summarizer:
        return _OutsideRecovery(summarizer, lambda: self._is_recovering)


def _prompt_of(agent: "Agent") -> str:
    return agent.system_prompt if isinstance(agent.system_prompt, str) else ""


@dataclass(frozen=True, slots=True)
class _OutsideRecovery:
    """Asks nobody while Strands and its event loop wait for a smaller history: the extractive one writes then."""

    summarizer: Summarizer
    is_recovering: Callable[[], bool]

    async def summarize(self, request: SummaryRequest) -> Draft:
        if self.is_recovering():
            raise SummaryError(type(self.summarizer).__name__, "is not asked after an overflow: the event loop waits")
        return await self.summarizer.summarize(request)
