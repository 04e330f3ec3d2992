"""Conversation managers that a context-management document describes."""

import asyncio
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from strands.hooks import AfterInvocationEvent, BeforeModelCallEvent
from strands.types.exceptions import ContextWindowOverflowException

from buoyline.compression import ContextConfig, Draft, Summarizer, SummaryRequest
from buoyline.compression.summarizers.callables import SummaryFunction
from buoyline.errors import BuoylineError, ConfigError, SummaryError
from buoyline.integrations.strands.callbacks import guarded_listener, guarded_management, guarded_summarizer
from buoyline.integrations.strands.conversation import FAILURES, WorkspaceConversationManager
from buoyline.integrations.strands.followed import AgentWindow
from buoyline.integrations.strands.history import history_of
from buoyline.integrations.strands.summarizers import StrandsModelSummarizer
from buoyline.management import ContextManagement, ManagementReport
from buoyline.management.settings import explained
from buoyline.offloader import Offloader
from buoyline.tokens import TokenCounter
from buoyline.window.events import OnEvent
from buoyline.window.settings import Management, document_of

if TYPE_CHECKING:
    from strands import Agent
    from strands.types.content import Message

logger = logging.getLogger(__name__)

CALL_KEY: Final = "context_management"
"""Key in the ``invocation_state`` of one call of an agent: a document for that call."""


class DocumentConversationManager(WorkspaceConversationManager):
    """Runs the managers of a document on an agent's history: all hooks, by the engine of `ContextWindow`.

    ``post_tool`` and ``pre_llm`` fire before a model call, for the messages since the last one.

    A summary or a notice shares one user's message with a neighbor of the user's, so that roles alternate.
    `removed_message_count` is the index in Strands' own session of the first message behind that; the rest is in the
    manager's state.

    Attributes:
        management: The document.
        report: What its managers did before the last model call, or after the last overflow.
        is_recovering: Strands and its event loop wait for a smaller history.
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
    ) -> None:
        """Manage by *management*.

        Args:
            management: A document, its JSON values, a file, or a name; see `buoyline.window.settings.document_of`.
            workspace: See `WorkspaceConversationManager`; a `LocalWorkspace` has documents of its own.
            session_id: See `WorkspaceConversationManager`.
            config: The form of summaries if the document does not say it, and the limit of images.
            summarizer: Writes the summaries. Default: the extractive one, which needs no model.
            summarizers: Others, by the ``summarization_model_id`` of documents.
            use_model: The agent's own model writes the summaries, its ``aux_model`` if it has one.
            counter: See `WorkspaceConversationManager`.
            on_event: Receives the events of a `ContextWindow`, such as `ContextManaged` at each hook.

        Raises:
            ConfigError: *use_model* and *summarizer* are both given, or a summarizer is of a wrong type.
            BuoylineError: The document cannot be found or acted on.
            TypeError: See `WorkspaceConversationManager`.
        """
        super().__init__(workspace=workspace, session_id=session_id, counter=counter)
        if use_model and summarizer is not None:
            raise ConfigError("use_model", "and summarizer exclude each other: one alone writes the summaries")
        self.management = self._document(management)
        self._config = config or ContextConfig()
        self._use_model = use_model
        self._summarizer = None if summarizer is None else guarded_summarizer(summarizer)
        self._summarizers = {name: guarded_summarizer(one) for name, one in (summarizers or {}).items()}
        self._on_event = None if on_event is None else guarded_listener(on_event)
        self.report = ManagementReport()
        self.is_recovering = False
        self._for_call: tuple[object, ContextManagement] | None = None

    def explain(self) -> list[str]:
        """Return in words the document, and what its managers did last."""
        return [*explained(self.management), *self.report.in_words()]

    def get_state(self) -> dict[str, Any]:
        """Return the state that another process needs, as a JSON object, but for bytes in messages."""
        return {**super().get_state(), "context": self._followed.to_json()}

    def restore_from_session(self, state: dict[str, Any]) -> "list[Message] | None":
        """Take over the state from `get_state`.

        Returns:
            The messages before those of the session; None without any.

        Raises:
            ValueError: It is the state of another class.
        """
        super().restore_from_session(state)
        return cast("list[Message]", self._followed.restore(state["context"])) or None

    async def _prepare(self, event: BeforeModelCallEvent) -> None:
        document = await self._document_for(event)
        try:
            window = await self._follow(event.agent)
            if self._followed.is_settled and window.management is document:
                return  # a retry: nothing was added since the managers were asked
            window.management = document
            await window.prepare()
            self._show(event.agent, window)
        except FAILURES as failure:
            logger.warning("the history of %s is unchanged: %s", self._session_of(event.agent), failure)

    async def _after_invocation(self, event: AfterInvocationEvent) -> None:
        self._for_call = None
        await super()._after_invocation(event)

    async def _write_down(self, agent: "Agent") -> AgentWindow:
        window = await self._follow(agent)
        await window.save()
        window.management = self.management
        return window

    async def _reduce(self, agent: "Agent") -> None:
        window = await self._follow(agent)
        if await window.compress(force=True) is None:
            raise ContextWindowOverflowException("no more messages may be removed from the conversation")
        self._show(agent, window)

    async def _recover(self, agent: "Agent", error: Exception) -> None:
        window = await self._follow(agent)
        wanted = int((1 - self._next_gain()) * window.tokens)
        self.is_recovering = True
        try:
            await window.recover_from_overflow(error)
            while window.tokens > wanted:
                try:
                    await window.recover_from_overflow(error)
                except (BuoylineError, ContextWindowOverflowException) as refused:
                    logger.debug("session %s: %s", window.session_id, refused)
                    break
        finally:
            self.is_recovering = False
            self._show(agent, window)

    def _show(self, agent: "Agent", window: AgentWindow) -> None:
        self.report = window.report
        self.removed_message_count += self._followed.show(history_of(agent))

    def _window_settings(self, agent: "Agent") -> Mapping[str, Any]:
        writer = self._summarizer
        if self._use_model:
            writer = StrandsModelSummarizer(agent.aux_model)
        return {
            "config": self._config,
            "summarizer": None if writer is None else _OutsideRecovery(writer, self),
            "summarizers": {name: _OutsideRecovery(one, self) for name, one in self._summarizers.items()},
            "on_event": self._on_event,
            "management": self.management,
        }

    async def _document_for(self, event: BeforeModelCallEvent) -> ContextManagement:
        """Return the document for this call of the agent.

        Raises:
            BuoylineError: The document that the call names cannot be found or acted on. The agent's call ends with it:
                another document than the one that was asked for would be worse.
        """
        given = event.invocation_state.get(CALL_KEY)
        if given is None:
            return self.management
        if self._for_call is None or self._for_call[0] is not given:
            self._for_call = given, await asyncio.to_thread(self._document, given)
        return self._for_call[1]

    def _document(self, management: Management) -> ContextManagement:
        return guarded_management(document_of(management, self.offloader))


@dataclass(frozen=True, slots=True)
class _OutsideRecovery:
    """Refuses while Strands and its event loop wait for a smaller history; the extractive summarizer writes then."""

    summarizer: Summarizer
    manager: DocumentConversationManager

    async def summarize(self, request: SummaryRequest) -> Draft:
        if self.manager.is_recovering:
            raise SummaryError(type(self.summarizer).__name__, "is not asked after an overflow: the event loop waits")
        return await self.summarizer.summarize(request)
