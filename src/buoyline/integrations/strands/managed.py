"""`DocumentConversationManager`: a document says what becomes of an agent's history, and when."""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from strands.hooks import AfterInvocationEvent, AfterModelCallEvent, BeforeModelCallEvent, HookRegistry
from strands.types.exceptions import ContextWindowOverflowException

from buoyline.compression import ContextConfig, Draft, Summarizer, SummaryFunction, SummaryRequest
from buoyline.errors import BuoylineError, ConfigError, SummaryError
from buoyline.integrations.strands.agent_summaries import StrandsModelSummarizer
from buoyline.integrations.strands.bridging import run_apart
from buoyline.integrations.strands.conversation import FAILURES, WorkspaceConversationManager
from buoyline.integrations.strands.gains import Gains
from buoyline.integrations.strands.guarding import guarded_listener, guarded_management, guarded_summarizer
from buoyline.integrations.strands.history import DIALECT, history_of
from buoyline.integrations.strands.windowed import WindowedHistory
from buoyline.management import ContextManagement, Report, explained
from buoyline.offloader import Offloader
from buoyline.tokens import TokenCounter
from buoyline.window.adopting import HeldContext, HeldWindow
from buoyline.window.documents import Management, document_of
from buoyline.window.events import OnEvent
from buoyline.window.handover import hand_over

if TYPE_CHECKING:
    from strands import Agent
    from strands.types.content import Message

logger = logging.getLogger(__name__)

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
            management: A document, its JSON values, a file, or a name; see `buoyline.window.documents.document_of`.
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
        self.report = Report()
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
