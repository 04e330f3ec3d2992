"""What all our conversation managers for Strands have in common: when they act, and what failing may not cost."""

import logging
import os
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Final

from strands.agent.conversation_manager import ConversationManager, ProactiveCompressionConfig
from strands.hooks import AfterInvocationEvent, AgentInitializedEvent, BeforeModelCallEvent, HookRegistry
from strands.types.exceptions import ContextWindowOverflowException

from buoyline.errors import BuoylineError
from buoyline.integrations.strands.callbacks import guarded_counter, guarded_offloader, run_apart
from buoyline.integrations.strands.history import session_of
from buoyline.integrations.strands.plugin import workspace_of
from buoyline.management.settings import compression_threshold
from buoyline.offloader import Offloader
from buoyline.tokens import TextCounter, TokenCounter
from buoyline.workspace import LocalWorkspace, MemoryWorkspace

if TYPE_CHECKING:
    from strands import Agent

logger = logging.getLogger(__name__)

FAILURES: Final = (BuoylineError, OSError, ContextWindowOverflowException)
"""What must not end an agent's call where it was only about to become cheaper.

What users bring may raise anything; `guarding` makes one of these of it, right where it is called.

Source: Strands' documentation of proactive compression: errors are swallowed and the model call proceeds."""

_DEFAULT_WINDOW: Final = 200_000


class WorkspaceConversationManager(ConversationManager):
    """A conversation manager that loses nothing: messages are durable in a workspace before they leave the history.

    One manager belongs to one agent.

    Attributes:
        offloader: Takes what leaves.
        counter: Counts tokens.
    """

    _archives = True

    def __init__(
        self,
        *,
        workspace: Offloader | str | os.PathLike[str] | None = None,
        session_id: str | None = None,
        proactive_compression: bool | ProactiveCompressionConfig | None = None,
        counter: TokenCounter | None = None,
    ) -> None:
        """Keep what leaves in *workspace*.

        Args:
            workspace: Takes what leaves: a `LocalWorkspace`, the directory of one, or any offloader. Left out: that of
                the agent's `WorkspaceOffloader` or storage, else memory, with a warning: it is gone with the process.
            session_id: Names the session there; left out: that of the agent and its session manager.
            proactive_compression: True: make the history smaller before each model call that would take 70 % or more of
                the model's window; ``{"compression_threshold": 0.8}``: at another share.
            counter: Counts tokens; left out: exactly, for ``o200k_base``.

        Raises:
            ConfigError: *proactive_compression* is none of these, or its threshold not above 0 and at most 1. It is a
                ValueError.
            TypeError: *counter* cannot count.
        """
        threshold = compression_threshold(proactive_compression)
        super().__init__(proactive_compression=None if threshold is None else {"compression_threshold": threshold})
        self._has_workspace = workspace is not None
        self.offloader = guarded_offloader(_offloader(workspace))
        self.counter: TextCounter = guarded_counter(counter)
        self._session_id = session_id

    def register_hooks(self, registry: HookRegistry, **kwargs: Any) -> None:  # noqa: ARG002 - Strands' signature
        """Watch the model calls of an agent.

        Strands' own callback is not registered: it reduces synchronously, and the event loop would stand still.
        """
        registry.add_callback(AgentInitializedEvent, self._find_workspace)
        registry.add_callback(BeforeModelCallEvent, self._before_model_call)
        registry.add_callback(AfterInvocationEvent, self._after_invocation)

    def apply_management(self, agent: "Agent", **kwargs: Any) -> None:
        """Do nothing: this manager acts before model calls, and after an overflow."""

    def reduce_context(self, agent: "Agent", e: Exception | None = None, **kwargs: Any) -> None:  # noqa: ARG002 - as above
        """Make the history smaller.

        Args:
            agent: Its messages change in place.
            e: The overflow that the provider answered with. Then no model is asked, and at least a tenth of the tokens
                leaves. None: best effort; what fails is logged.
            **kwargs: Accepted for the contract.

        Raises:
            ContextWindowOverflowException: With *e*: the history cannot become smaller.
        """
        if e is None:
            run_apart(lambda: self._reduce_or_log(agent))
            return
        try:
            run_apart(lambda: self._recover(agent, e))
        except ContextWindowOverflowException as refused:
            raise ContextWindowOverflowException(str(refused)) from e
        except FAILURES as failure:
            logger.warning("overflow: the history of %s stays as it was: %s", self._session_of(agent), failure)
            raise ContextWindowOverflowException(f"{e}; the history could not be made smaller: {failure}") from e

    def _find_workspace(self, event: AgentInitializedEvent) -> None:
        """Take the workspace that the agent has already, if none was given."""
        if self._has_workspace:
            return
        found = workspace_of(event.agent)
        if found is not None:
            self._use(found)
        elif self._archives:
            logger.warning(
                "what leaves the history is kept in memory and ends with the process; give %s a workspace, such as "
                'workspace="./workspace", to keep it',
                type(self).__name__,
            )

    def _use(self, offloader: Offloader) -> None:
        """Keep what leaves in *offloader*; nothing has left yet."""
        self.offloader, self._has_workspace = offloader, True

    @abstractmethod
    async def _before_model_call(self, event: BeforeModelCallEvent) -> None:
        """Do what is documented of the manager before a model call, and write the history down."""

    @abstractmethod
    async def _after_invocation(self, event: AfterInvocationEvent) -> None:
        """Write the history down."""

    @abstractmethod
    async def _reduce(self, agent: "Agent") -> None:
        """Do what is documented of the manager where nothing has failed yet.

        Raises:
            ContextWindowOverflowException: Nothing may leave.
            BuoylineError: It was refused.
        """

    @abstractmethod
    async def _recover(self, agent: "Agent", error: Exception) -> None:
        """Make the history smaller after *error* where that is possible, without a model.

        Raises:
            ContextWindowOverflowException: It cannot become smaller.
            BuoylineError: It was refused.
        """

    async def _reduce_or_log(self, agent: "Agent") -> bool:
        """Reduce, and tell whether that has not failed."""
        try:
            await self._reduce(agent)
        except FAILURES as failure:
            logger.warning("the history of %s stays as it was: %s", self._session_of(agent), failure)
            return False
        return True

    def _session_of(self, agent: "Agent") -> str:
        return session_of(agent, self._session_id)

    def _size_of(self, agent: "Agent") -> int:
        limit = agent.model.context_window_limit
        return limit if isinstance(limit, int) and limit > 0 else _DEFAULT_WINDOW


def _offloader(workspace: Offloader | str | os.PathLike[str] | None) -> Offloader:
    if isinstance(workspace, (str, os.PathLike)):
        return LocalWorkspace(os.fspath(workspace))
    return MemoryWorkspace(evict_after_turns=None) if workspace is None else workspace
