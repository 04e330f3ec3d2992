"""`WorkspaceOffloader`: the plugin that takes what is large out of tool results on their way to a Strands agent.

Source: Strands' page on the context offloader for the parameters, their defaults and the tool.
"""

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, cast
from weakref import WeakKeyDictionary

from strands import Agent
from strands.hooks import AfterToolCallEvent, BeforeModelCallEvent, HookOrder
from strands.plugins import Plugin

from buoyline.errors import ConfigError
from buoyline.integrations.strands.attachment import Attachment, AttachmentSettings, as_storage, storage_for, window_of
from buoyline.integrations.strands.content import (
    Arrival,
    CountTokens,
    KeepsBlocks,
    NativeResult,
    arguments_of,
    large_images,
    tokens_of,
    view_of,
)
from buoyline.integrations.strands.history import session_of
from buoyline.integrations.strands.storage import WorkspaceStorage, attempted
from buoyline.lookups.tools import LOOKUP_RULES, RETRIEVAL_TOOL
from buoyline.offloader import ToolRule
from buoyline.offloader.policy import LEAST_USEFUL_TOKENS, rule_for
from buoyline.offloader.stub import reread_limit
from buoyline.tokens import TokenCounter, as_text_counter, default_counter
from buoyline.window.events import OnEvent
from buoyline.workspace import MemoryWorkspace

logger = logging.getLogger(__name__)

MAX_MEDIA_BYTES = 3_750_000
"""More in one picture, Bedrock refuses. Source: Amazon's page on the Converse API, ``ImageBlock``."""


class ShouldOffload(Protocol):
    """Has the last word on a result that would leave. Source: Strands' protocol of that name."""

    def __call__(self, tool_name: str, token_count: int, **kwargs: Any) -> bool | Awaitable[bool]:
        """Return whether the result leaves."""
        ...


class WorkspaceOffloader(Plugin):
    """Stores large tool results whole, and leaves a stub with a preview and the way to the rest.

    A result over *max_result_tokens*, as the model's ``count_tokens`` has it, is stored before the agent's next model
    call; where storing fails, it stays as it is, with a warning. Small blocks beside a large one stay. The hook runs
    behind all others for the event, so what they redact reaches no disk.

    One plugin may serve several agents: each has the session that `session_of` says, unless one was named.
    """

    name = "workspace_offloader"  # pyright: ignore[reportIncompatibleMethodOverride, reportAssignmentType] - as documented

    def __init__(
        self,
        storage: Any = None,
        max_result_tokens: int = 2_500,
        preview_tokens: int = 1_000,
        *,
        include_retrieval_tool: bool = True,
        include_lookup_tools: bool = True,
        should_offload: ShouldOffload | None = None,
        evict_after_cycles: int | None = None,
        tool_rules: Mapping[str, ToolRule] | None = None,
        max_media_bytes: int | None = MAX_MEDIA_BYTES,
        session_id: str | None = None,
        storage_timeout_s: float | None = 60.0,
        counter: TokenCounter | Callable[[str], int] | None = None,
        on_event: OnEvent | None = None,
    ) -> None:
        """Set up the plugin; nothing is written before something is offloaded.

        Args:
            storage: A `WorkspaceStorage`, a workspace, the directory of one, or any object with the documented
                ``store`` and ``retrieve`` or with ``write`` and ``read``. None: the agent's own storage, else memory,
                with a warning: it is gone with the process, and what was not used for 20 model calls goes earlier.
            max_result_tokens: Results over that are offloaded; one of exactly that many stays.
            preview_tokens: Tokens of what stays in its place, the notice included; 0: the notice alone.
            include_retrieval_tool: Register ``retrieve_offloaded_content`` and name it in stubs. The path stands in
                them either way.
            include_lookup_tools: Register buoyline's lookups for a workspace on disk; one whose name the agent has
                already is left out.
            should_offload: Asked ``(tool_name, token_count, **kwargs)`` about each result that would leave. Where it
                raises, the result leaves, with a warning.
            evict_after_cycles: After how many cycles without use an entry of a storage with ``write`` and ``read`` is
                deleted; None: never. A workspace on disk deletes nothing, and memory has its own number.
            tool_rules: Limits and rules for single tools, by name or pattern; see `ToolRule`. With
                ``{"*": ToolRule(keep_errors=True)}`` error results stay.
            max_media_bytes: A picture or document over that leaves whatever it is counted as; None: by tokens alone.
            session_id: Of the workspace; left out, each agent's own.
            storage_timeout_s: For one call of a storage that is no workspace; None: for ever.
            counter: Counts previews; the default counter where it is None.
            on_event: Told of each result that left for a workspace.

        Raises:
            ConfigError: A value cannot work; it says which would. It is a ValueError.
        """
        super().__init__()
        if max_result_tokens <= 0:
            raise ConfigError("max_result_tokens", "must be positive")
        if not 0 <= preview_tokens < max_result_tokens:
            raise ConfigError("preview_tokens", "must be non-negative and less than max_result_tokens")
        for name, value in (("max_media_bytes", max_media_bytes), ("storage_timeout_s", storage_timeout_s)):
            if value is not None and value <= 0:
                raise ConfigError(name, "must be positive, or None for no bound")
        if evict_after_cycles is not None and evict_after_cycles < 1:
            raise ConfigError("evict_after_cycles", "must be a positive integer or None")
        self._storage = None if storage is None else as_storage(storage)
        self._memory: WorkspaceStorage | None = None
        self._max_result_tokens, self._preview_tokens = max_result_tokens, preview_tokens
        self._should_offload, self._rules = should_offload, {**(tool_rules or {})}
        self._max_media_bytes, self._session_id = max_media_bytes, session_id
        self._settings = AttachmentSettings(
            counter=as_text_counter(default_counter() if counter is None else counter),
            max_result_tokens=max_result_tokens,
            retrieval_tool=RETRIEVAL_TOOL if include_retrieval_tool else "",
            has_lookups=include_lookup_tools,
            storage_timeout_s=storage_timeout_s,
            evict_after_cycles=evict_after_cycles,
            on_event=on_event,
        )
        self._attachments: WeakKeyDictionary[Agent, Attachment] = WeakKeyDictionary()

    def init_agent(self, agent: Agent) -> None:
        """Register hooks and tools with *agent*; Strands calls it."""
        agent.add_hook(self._after_tool_call, AfterToolCallEvent, order=HookOrder.SDK_LAST)
        agent.add_hook(self._before_model_call, BeforeModelCallEvent)
        self._attachment_of(agent).register_tools(agent)

    async def _before_model_call(self, event: BeforeModelCallEvent) -> None:
        """Let what is kept in memory age by a turn."""
        await self._attachment_of(event.agent).next_turn(event.agent.event_loop_metrics.cycle_count)

    async def _after_tool_call(self, event: AfterToolCallEvent) -> None:
        if event.cancel_message is not None or event.retry or getattr(event.selected_tool, "delegate", False):
            return
        tool, native = event.tool_use.get("name", ""), event.result
        attachment = self._attachment_of(event.agent)
        rule = self._rule(attachment, tool)
        if rule.offload == "never" or (rule.keep_errors and native["status"] == "error"):
            return
        found = await attempted(self._replaced(event, attachment, rule))
        if isinstance(found, Exception):
            logger.warning(
                "failed to offload the result of %s, it stays in the context: %r", tool, found, exc_info=found
            )
        elif found is not None:
            event.result = {**event.result, **found}  # type: ignore[typeddict-item]

    async def _replaced(self, event: AfterToolCallEvent, attachment: Attachment, rule: ToolRule) -> NativeResult | None:
        """Return what is to stand in a result's place; None where it stays."""
        arrival = await self._arrival(event, rule)
        if arrival is None or not await self._may_leave(arrival):
            return None
        return await attachment.keeping.offload(arrival)

    async def _arrival(self, event: AfterToolCallEvent, rule: ToolRule) -> Arrival | None:
        """Return what there is to decide about a result; None where it stays in any case."""
        native: NativeResult = event.result
        view = view_of(native)
        tokens = await tokens_of(native, view, cast("CountTokens", event.agent.model.count_tokens))
        limit = rule.limit or self._max_result_tokens
        if rule.offload == "always" and tokens > LEAST_USEFUL_TOKENS:
            limit = min(limit, tokens - 1)
        images = large_images(view, self._max_media_bytes)
        if tokens <= limit and not images:
            return None
        return Arrival(
            native,
            event.tool_use.get("name", ""),
            arguments_of(event.tool_use),
            tokens,
            limit,
            rule.preview_tokens or min(self._preview_tokens, limit - 1),
            reread_limit(window_of(event.agent), self._max_result_tokens),
            images,
        )

    async def _may_leave(self, arrival: Arrival) -> bool:
        if self._should_offload is None:
            return True
        verdict = await attempted(_verdict(self._should_offload, arrival))
        if isinstance(verdict, Exception):
            logger.warning("should_offload failed on a result of %s: %r", arrival.tool, verdict, exc_info=verdict)
            return True
        return verdict

    def _rule(self, attachment: Attachment, tool: str) -> ToolRule:
        """Return the rule for a tool: the answers of those registered here never leave, whatever the rules say."""
        return rule_for(LOOKUP_RULES, tool) if tool in attachment.tools else rule_for(self._rules, tool)

    def _attachment_of(self, agent: Agent) -> Attachment:
        found = self._attachments.get(agent)
        if found is None:
            found = self._attachments[agent] = Attachment(self._storage_of(agent), self._settings)
        return found

    def _storage_of(self, agent: Agent) -> WorkspaceStorage | KeepsBlocks:
        given = agent.storage if self._storage is None else self._storage
        if given is None and self._memory is None:
            logger.warning(
                "offloaded tool results are kept in memory and end with the process; give %s a storage, such as "
                'WorkspaceOffloader("./workspace"), to keep them',
                type(self).__name__,
            )
            self._memory = WorkspaceStorage(MemoryWorkspace())
        return storage_for(self._memory if given is None else given, agent, session_of(agent, self._session_id))


class ContextOffloader(WorkspaceOffloader):
    """`WorkspaceOffloader` under the name of Strands' plugin, also for who looks it up by name."""

    name = "context_offloader"


async def _verdict(should_offload: ShouldOffload, arrival: Arrival) -> bool:
    verdict = should_offload(arrival.tool, arrival.tokens)
    return bool(await verdict if inspect.isawaitable(verdict) else verdict)
