"""`WorkspaceConversationManager`: when our conversation managers act, and which errors they let pass."""

import logging
import os
import threading
from abc import abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from strands.agent.conversation_manager import ConversationManager, ProactiveCompressionConfig
from strands.hooks import (
    AfterInvocationEvent,
    AfterModelCallEvent,
    AgentInitializedEvent,
    BeforeModelCallEvent,
    HookRegistry,
)
from strands.types.exceptions import ContextWindowOverflowException

from buoyline.errors import BuoylineError, ConfigError
from buoyline.integrations.strands.call_lock import CallLock
from buoyline.integrations.strands.callbacks import guarded_counter, guarded_offloader, run_apart
from buoyline.integrations.strands.followed import AgentWindow, FollowedHistory
from buoyline.integrations.strands.history import DIALECT, history_of, session_of
from buoyline.integrations.strands.plugin import workspace_of
from buoyline.messages.jsonl import is_object
from buoyline.offloader import Offloader
from buoyline.tokens import TextCounter, TokenCounter
from buoyline.workspace import LocalWorkspace, MemoryWorkspace

if TYPE_CHECKING:
    from strands import Agent

logger = logging.getLogger(__name__)

FAILURES: Final = (BuoylineError, OSError, ContextWindowOverflowException)
"""Errors that do not end an agent's call if the history was only about to become smaller. Code of users may raise
anything; `callbacks` turns that into one of these.

Source: Strands' documentation of proactive compression: errors are swallowed and the model call proceeds."""

_DEFAULT_WINDOW_TOKENS: Final = 200_000
_DEFAULT_THRESHOLD: Final = 0.7

LEAST_GAIN: Final = 0.1
_GAINS: Final = (LEAST_GAIN, 0.3, 0.5)
"""The share of the tokens to remove after the first overflow in a row, the second, and each further one.

So a request that is refused again and again fits after a few calls, or the history cannot become smaller, and the
overflow is raised. (Removing anything at all, as Strands' own manager does, took 1,916 calls.)"""


class WorkspaceConversationManager(ConversationManager):
    """A conversation manager that loses nothing: messages are archived in a workspace before they are removed.

    One manager belongs to one agent. If Strands runs several invocations of the agent at once, they take turns here.

    Attributes:
        offloader: Archives the messages.
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
        """Archive messages in *workspace*.

        Args:
            workspace: A `LocalWorkspace`, the directory of one, or any offloader. Default: that of the agent's
                `WorkspaceOffloader` or storage, else memory, with a warning: memory ends with the process.
            session_id: The session there. Default: that of the agent and its session manager.
            proactive_compression: True: compact before each model call that would take 70 % or more of the model's
                window. ``{"compression_threshold": 0.8}``: another share.
            counter: Counts tokens. Default: exact, for ``o200k_base``.

        Raises:
            ConfigError: *proactive_compression* is something else, its threshold is not above 0 and at most 1, or
                *counter* cannot count. It is a ValueError.
        """
        threshold = _compression_threshold(proactive_compression)
        super().__init__(proactive_compression=None if threshold is None else {"compression_threshold": threshold})
        self._has_workspace = workspace is not None
        if isinstance(workspace, (str, os.PathLike)):
            workspace = LocalWorkspace(os.fspath(workspace))
        elif workspace is None:
            workspace = MemoryWorkspace(evict_after_turns=None)
        self.offloader = guarded_offloader(workspace)
        self.counter: TextCounter = guarded_counter(counter)
        self._session_id = session_id
        self._followed = FollowedHistory()
        self._overflows = 0  # since the model's last answer
        self._calls = CallLock()
        self._holder = 0

    def get_state(self) -> dict[str, Any]:
        """Return the state that another process needs."""
        state = super().get_state()
        state["removed_message_count"] -= self._followed.uncounted
        return state

    def register_hooks(self, registry: HookRegistry, **kwargs: Any) -> None:  # noqa: ARG002 - Strands' signature
        """Register with the events of an agent.

        Strands' own callback is not registered: it reduces synchronously and blocks the event loop.
        """
        registry.add_callback(AgentInitializedEvent, self._find_workspace)
        registry.add_callback(BeforeModelCallEvent, self._before_model_call)
        registry.add_callback(AfterModelCallEvent, self._after_model_call)
        registry.add_callback(AfterInvocationEvent, self._after_invocation)

    def apply_management(self, agent: "Agent", **kwargs: Any) -> None:
        """Do nothing: this manager acts before model calls and after an overflow."""

    def reduce_context(self, agent: "Agent", e: Exception | None = None, **kwargs: Any) -> None:  # noqa: ARG002 - as above
        """Make the history smaller.

        Args:
            agent: Its messages change in place.
            e: The provider's overflow. Then at least a tenth of the tokens is removed. None: best effort; failures are
                logged.
            **kwargs: Accepted for the contract.

        Raises:
            ContextWindowOverflowException: With *e*: the history cannot become smaller, or another invocation in this
                event loop is at work on it, and cannot continue before this one does.
        """
        if self._calls.is_lent_here or (self._calls.is_held and self._holder == threading.get_ident()):
            if e is not None:
                raise ContextWindowOverflowException(f"{e}; another invocation is at work on the history") from e
            logger.warning("the history of %s is unchanged: another invocation is at work", self._session_of(agent))
            return
        if e is None:
            run_apart(lambda: self._while_alone(self._reduce_or_log(agent)))
            return
        try:
            run_apart(lambda: self._while_alone(self._recover(agent, e)))
        except ContextWindowOverflowException as refused:
            raise ContextWindowOverflowException(str(refused)) from e
        except FAILURES as failure:
            logger.warning("overflow: the history of %s is unchanged: %s", self._session_of(agent), failure)
            raise ContextWindowOverflowException(f"{e}; the history could not be made smaller: {failure}") from e

    def _find_workspace(self, event: AgentInitializedEvent) -> None:
        """Use the agent's workspace if none was given."""
        if self._has_workspace:
            return
        found = workspace_of(event.agent)
        if found is not None:
            self.offloader, self._has_workspace = found, True
        elif self._archives:
            logger.warning(
                "removed messages are kept in memory and end with the process; give %s a workspace, such as "
                'workspace="./workspace", to keep them',
                type(self).__name__,
            )

    @asynccontextmanager
    async def _alone(self) -> AsyncGenerator[None, None]:
        """Wait until no other thread or task is at work on the history.

        The lock is lent to what the manager awaits: an agent that writes a summary may have this very manager.
        """
        async with self._calls.held():
            self._holder = threading.get_ident()
            async with self._calls.lent():
                yield

    async def _while_alone(self, work: Awaitable[object]) -> None:
        async with self._alone():
            await work

    async def _before_model_call(self, event: BeforeModelCallEvent) -> None:
        if not self._calls.is_lent_here:
            async with self._alone():
                await self._prepare(event)

    @abstractmethod
    async def _prepare(self, event: BeforeModelCallEvent) -> None:
        """Do what the manager documents before a model call, and write the history down."""

    async def _after_model_call(self, event: AfterModelCallEvent) -> None:
        if event.stop_response is not None:
            self._overflows = 0

    async def _after_invocation(self, event: AfterInvocationEvent) -> None:
        if self._calls.is_lent_here:
            return
        self._overflows = 0
        try:
            async with self._alone():
                await self._write_down(event.agent)
        except FAILURES as failure:
            logger.warning("the history of %s is not written down: %s", self._session_of(event.agent), failure)

    @abstractmethod
    async def _write_down(self, agent: "Agent") -> AgentWindow:
        """Write the history down.

        Raises:
            BuoylineError: The workspace refused.
        """

    @abstractmethod
    async def _reduce(self, agent: "Agent") -> None:
        """Do what the manager documents without an overflow.

        Raises:
            ContextWindowOverflowException: No message may be removed.
            BuoylineError: The workspace refused.
        """

    @abstractmethod
    async def _recover(self, agent: "Agent", error: Exception) -> None:
        """Make the history smaller after *error*.

        Raises:
            ContextWindowOverflowException: It cannot become smaller.
            BuoylineError: The workspace refused.
        """

    async def _reduce_or_log(self, agent: "Agent") -> bool:
        """Reduce, and return whether that succeeded."""
        try:
            await self._reduce(agent)
        except FAILURES as failure:
            logger.warning("the history of %s is unchanged: %s", self._session_of(agent), failure)
            return False
        return True

    def _next_gain(self) -> float:
        """Return the share of the tokens to remove after one more overflow."""
        gain = _GAINS[min(self._overflows, len(_GAINS) - 1)]
        self._overflows += 1
        return gain

    async def _follow(self, agent: "Agent") -> AgentWindow:
        """Return the window, which has all messages of *agent*."""
        window = await self._followed.follow(history_of(agent), lambda: self._window_for(agent))
        window.send_beside(_prompt_of(agent), _tools_of(agent))
        return window

    def _window_for(self, agent: "Agent") -> AgentWindow:
        limit = agent.model.context_window_limit
        return AgentWindow(
            session_id=self._session_of(agent),
            offloader=self.offloader,
            size=limit if isinstance(limit, int) and limit > 0 else _DEFAULT_WINDOW_TOKENS,
            system=_prompt_of(agent),
            tools=_tools_of(agent),
            counter=self.counter,
            dialect=DIALECT,
            **self._window_settings(agent),
        )

    def _window_settings(self, agent: "Agent") -> Mapping[str, Any]:  # noqa: ARG002 - others need it
        return {}

    def _session_of(self, agent: "Agent") -> str:
        return session_of(agent, self._session_id)


def _tools_of(agent: "Agent") -> list[Any]:
    return list(agent.tool_registry.get_all_tool_specs())


def _prompt_of(agent: "Agent") -> str:
    return agent.system_prompt if isinstance(agent.system_prompt, str) else ""


def _compression_threshold(proactive: object) -> float | None:
    """Return the share of the window above which Strands compresses before a call; None if it does not.

    Strands ignores unknown keys, and compares any threshold with 0. *proactive* is ``proactive_compression``, as passed
    to a conversation manager.

    Raises:
        ConfigError: It is not None, true, false, or a threshold above 0 and at most 1.
    """
    if proactive is None or proactive is False:
        return None
    if proactive is True:
        return _DEFAULT_THRESHOLD
    if not is_object(proactive) or not set(proactive) <= {"compression_threshold"}:
        shown = f"not {str(proactive)[:80]!r}"
        raise ConfigError("proactive_compression", f'must be True, or {{"compression_threshold": 0.7}}, {shown}')
    threshold = proactive.get("compression_threshold", _DEFAULT_THRESHOLD)
    if isinstance(threshold, bool) or not isinstance(threshold, (int, float)) or not 0 < threshold <= 1:
        problem = f"must be between 0 (exclusive) and 1 (inclusive), not {str(threshold)[:80]!r}"
        raise ConfigError("proactive_compression", f"compression_threshold {problem}")
    return threshold
