"""`WorkspaceOffloader`: the plugin that offloads large tool results before a Strands agent sees them.

Source: Strands' page on the context offloader for the parameters, their defaults and the tool.
"""

import inspect
import json
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from weakref import WeakKeyDictionary, ref

from strands import Agent
from strands.hooks import AfterToolCallEvent, BeforeModelCallEvent, HookOrder
from strands.plugins import Plugin
from strands.vended_plugins.context_offloader import InMemoryStorage as TheirInMemoryStorage
from strands.vended_plugins.context_offloader import Storage as BlockStorage

from buoyline.errors import ConfigError
from buoyline.integrations.strands.history import NativeMessage, history_of, session_of
from buoyline.integrations.strands.lookups import Answer, SessionLookups, WorkspaceTool
from buoyline.integrations.strands.results import (
    BlockResults,
    LargeResult,
    NativeResult,
    OffloadedResults,
    Retrieval,
    WorkspaceResults,
    view_of,
)
from buoyline.integrations.strands.storage import FileStorage, FramedStorage, Workspace, WorkspaceStorage, attempted
from buoyline.lookups.tools import (
    RETRIEVAL_DESCRIPTION,
    RETRIEVAL_PARAMETERS,
    RETRIEVAL_TOOL,
    retrieval_arguments,
)
from buoyline.messages import Media
from buoyline.offloader.protocol import abilities_of
from buoyline.offloader.stub import reread_limit
from buoyline.tokens import default_counter
from buoyline.tokens.messages import count_part
from buoyline.workspace import LocalWorkspace, MemoryWorkspace

logger = logging.getLogger(__name__)

MAX_MEDIA_BYTES = 3_750_000
"""Bedrock refuses a larger image. Source: Amazon's page on the Converse API, ``ImageBlock``."""

_DEFAULT_WINDOW_TOKENS = 200_000
"""Strands' number for a model that does not report its window."""

_LEAST_ANSWER_TOKENS = 500
"""An answer of less has hardly room for a line of the content."""

_WORKSPACES: WeakKeyDictionary[Agent, Workspace] = WeakKeyDictionary()


class ShouldOffload(Protocol):
    """Has the last word on a result that is over its limit. Source: Strands' protocol of that name."""

    def __call__(self, tool_name: str, token_count: int, **kwargs: Any) -> bool | Awaitable[bool]:
        """Return whether to offload the result."""
        ...


@dataclass(slots=True)
class Attachment:
    """An agent's storage, the results in it, and the tools that the plugin has given to the agent."""

    storage: WorkspaceStorage | BlockStorage
    results: OffloadedResults
    tools: frozenset[str] = frozenset()


class WorkspaceOffloader(Plugin):
    """Stores large tool results whole, and puts stubs in their place: a preview, and how to read the rest.

    A result over *max_result_tokens*, by the model's ``count_tokens``, is stored before the agent's next model call. If
    storing fails, the result is kept, with a warning. Small blocks beside a large one are kept. The hook runs after all
    others of the event, so content that they redact reaches no disk.

    One plugin may serve several agents: unless a session is given, each has its own, see `session_of`.
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
        max_media_bytes: int | None = MAX_MEDIA_BYTES,
        session_id: str | None = None,
    ) -> None:
        """Set up the plugin; nothing is written before a result is offloaded.

        Args:
            storage: A `WorkspaceStorage`, a workspace, the directory of one, or any object with the documented
                ``store`` and ``retrieve`` or with ``write`` and ``read``. Default: the agent's own storage, else
                memory, with a warning: memory ends with the process, and forgets content that was unused for 20 model
                calls.
            max_result_tokens: Results of more tokens are offloaded; one of exactly that many is kept.
            preview_tokens: Tokens of the stub, its notice included; 0: the notice alone.
            include_retrieval_tool: Register ``retrieve_offloaded_content`` and name it in stubs. The path is in them
                in any case.
            include_lookup_tools: Register buoyline's lookups for a workspace on disk, except those whose names the
                agent has already.
            should_offload: Is called with ``(tool_name, token_count, **kwargs)`` for each result over its limit. If it
                raises, the result is offloaded, with a warning.
            evict_after_cycles: Unused cycles after which an entry of a storage with ``write`` and ``read`` is deleted;
                None: never. A workspace on disk deletes nothing, and memory has its own number.
            max_media_bytes: A larger image or document is offloaded whatever its tokens; None: by tokens alone.
            session_id: Of the workspace. Default: each agent's own.

        Raises:
            ConfigError: A value cannot work, and which would. It is a ValueError.
        """
        super().__init__()
        if max_result_tokens <= 0:
            raise ConfigError("max_result_tokens", "must be positive")
        if not 0 <= preview_tokens < max_result_tokens:
            raise ConfigError("preview_tokens", "must be non-negative and less than max_result_tokens")
        if max_media_bytes is not None and max_media_bytes <= 0:
            raise ConfigError("max_media_bytes", "must be positive, or None for no bound")
        if evict_after_cycles is not None and evict_after_cycles < 1:
            raise ConfigError("evict_after_cycles", "must be a positive integer or None")
        self._storage = None if storage is None else as_storage(storage)
        self._memory: WorkspaceStorage | None = None
        self._max_result_tokens, self._preview_tokens = max_result_tokens, preview_tokens
        self._answer_tokens = max(max_result_tokens, _LEAST_ANSWER_TOKENS)
        self._retrieval_tool = RETRIEVAL_TOOL if include_retrieval_tool else ""
        self._has_lookups, self._evict_after_cycles = include_lookup_tools, evict_after_cycles
        self._should_offload = should_offload
        self._max_media_bytes, self._session_id = max_media_bytes, session_id
        self._counter = default_counter()
        self._attachments: WeakKeyDictionary[Agent, Attachment] = WeakKeyDictionary()

    def init_agent(self, agent: Agent) -> None:
        """Register hooks and tools with *agent*, but no tool whose name it has already; Strands calls this."""
        agent.add_hook(self._after_tool_call, AfterToolCallEvent, order=HookOrder.SDK_LAST)
        agent.add_hook(self._before_model_call, BeforeModelCallEvent)
        attachment, held = self._attachment_of(agent), ref(agent)
        if isinstance(attachment.storage, WorkspaceStorage):
            _WORKSPACES.setdefault(agent, attachment.storage.workspace)

        def messages() -> Sequence[NativeMessage]:
            alive = held()
            return [] if alive is None else history_of(alive)

        offered = self._lookups(attachment.storage, messages)
        if self._retrieval_tool:
            offered.insert(0, self._retrieval(attachment.results, window_of(agent), messages))
        tools = [tool for tool in offered if tool.tool_name not in agent.tool_registry.registry]
        for tool in tools:
            agent.tool_registry.register_tool(tool)
        attachment.tools = frozenset(tool.tool_name for tool in tools)

    def _retrieval(
        self, results: OffloadedResults, window_tokens: int, messages: Callable[[], Sequence[NativeMessage]]
    ) -> WorkspaceTool:
        max_tokens = self._answer_tokens
        whole_tokens = reread_limit(window_tokens, max_tokens)

        async def answer(given: Mapping[str, Any]) -> list[dict[str, Any]]:
            known = retrieval_arguments(given)
            options = (known.get("pattern"), known.get("line_range"), known.get("context_lines"))
            call = Retrieval(known["reference"], options, max_tokens, messages())
            if call.is_whole:
                call = call._replace(max_tokens=sys.maxsize if known.get("whole") else whole_tokens)
            return await results.retrieve(call)

        return WorkspaceTool(RETRIEVAL_TOOL, RETRIEVAL_DESCRIPTION, RETRIEVAL_PARAMETERS, answer)

    def _lookups(
        self, storage: WorkspaceStorage | BlockStorage, messages: Callable[[], Sequence[NativeMessage]]
    ) -> list[WorkspaceTool]:
        if not self._has_lookups or not isinstance(storage, WorkspaceStorage):
            return []
        if not isinstance(storage.workspace, LocalWorkspace):
            return []
        lookups = SessionLookups(
            storage.workspace, storage.session_id, messages, max_tokens=self._answer_tokens, counter=self._counter
        )

        def answer_of(name: str) -> Answer:
            async def answer(given: Mapping[str, Any]) -> list[dict[str, Any]]:
                return [{"text": await lookups.answer(name, given)}]

            return answer

        return [
            WorkspaceTool(tool.name, tool.description, tool.parameters, answer_of(tool.name))
            for tool in lookups.tools()
        ]

    async def _before_model_call(self, event: BeforeModelCallEvent) -> None:
        """Count a turn for content that is forgotten if it is not used."""
        storage, cycle = self._attachment_of(event.agent).storage, event.agent.event_loop_metrics.cycle_count
        if isinstance(storage, WorkspaceStorage):
            turns = abilities_of(storage.workspace).turns
            if turns is not None:
                turns.next_turn()
        elif isinstance(storage, TheirInMemoryStorage):
            storage._evict(cycle)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - there is no other way
        elif isinstance(storage, FramedStorage):
            await storage.evict(cycle, self._evict_after_cycles)

    async def _after_tool_call(self, event: AfterToolCallEvent) -> None:
        if event.cancel_message is not None or event.retry or getattr(event.selected_tool, "delegate", False):
            return
        tool, attachment = event.tool_use.get("name", ""), self._attachment_of(event.agent)
        if tool in attachment.tools:
            return
        found = await attempted(self._offloaded(event, attachment))
        if isinstance(found, Exception):
            logger.warning(
                "failed to offload the result of %s, it stays in the context: %r", tool, found, exc_info=found
            )
        elif found is not None:
            event.result = {**event.result, **found}  # type: ignore[typeddict-item]

    async def _offloaded(self, event: AfterToolCallEvent, attachment: Attachment) -> NativeResult | None:
        """Return what the agent sees in place of a result; None if it is kept."""
        native: NativeResult = event.result
        tokens, media = await self._measured(native, event.agent)
        limit = self._max_result_tokens
        tool = event.tool_use.get("name", "")
        if (tokens <= limit and not media) or not await self._may_offload(tool, tokens):
            return None
        result = LargeResult(
            native,
            tool,
            json.dumps(event.tool_use.get("input"), ensure_ascii=False, default=str),
            tokens,
            limit,
            self._preview_tokens,
            reread_limit(window_of(event.agent), self._max_result_tokens),
            media,
        )
        return await attachment.results.offload(result)

    async def _measured(self, native: NativeResult, agent: Agent) -> tuple[int, frozenset[int]]:
        """Return the tokens of a result by the model's count, and the positions of media that are too large.

        Most models count media as nothing; these are estimated.
        """
        parts, content = view_of(native).parts, list(native["content"])

        async def count(blocks: list[Any]) -> int:
            message: Any = {"role": "user", "content": [{"toolResult": {**native, "content": blocks}}]}
            return await agent.model.count_tokens([message])

        tokens, most = await count(content), self._max_media_bytes
        media = {at: part for at, part in enumerate(parts) if isinstance(part, Media)}
        estimated = sum(count_part(part, default_counter()) for part in media.values())
        if estimated and tokens == await count([block for at, block in enumerate(content) if at not in media]):
            tokens += estimated
        return tokens, frozenset(at for at, part in media.items() if most is not None and part.size_bytes > most)

    async def _may_offload(self, tool: str, tokens: int) -> bool:
        should_offload = self._should_offload
        if should_offload is None:
            return True

        async def asked() -> bool:
            verdict = should_offload(tool, tokens)
            return bool(await verdict if inspect.isawaitable(verdict) else verdict)

        verdict = await attempted(asked())
        if isinstance(verdict, Exception):
            logger.warning("should_offload failed on a result of %s: %r", tool, verdict, exc_info=verdict)
            return True
        return verdict

    def _attachment_of(self, agent: Agent) -> Attachment:
        found = self._attachments.get(agent)
        if found is None:
            storage, tool = self._storage_of(agent), self._retrieval_tool
            results: OffloadedResults
            if isinstance(storage, WorkspaceStorage):
                results = WorkspaceResults(storage, self._counter, retrieval_tool=tool)
            else:
                results = BlockResults(storage, self._counter, retrieval_tool=tool)
            found = self._attachments[agent] = Attachment(storage, results)
        return found

    def _storage_of(self, agent: Agent) -> WorkspaceStorage | BlockStorage:
        """Return the agent's session of a workspace, or the given storage, bound to the agent's sandbox if it can be.

        Raises:
            ValueError: The storage is Strands' own `InMemoryStorage` and belongs to another agent: their turns differ.
        """
        storage: Any = agent.storage if self._storage is None else self._storage
        if storage is None:
            if self._memory is None:
                logger.warning(
                    "offloaded tool results are kept in memory and end with the process; give %s a storage, such as "
                    'WorkspaceOffloader("./workspace"), to keep them',
                    type(self).__name__,
                )
                self._memory = WorkspaceStorage(MemoryWorkspace())
            storage = self._memory
        session_id = session_of(agent, self._session_id)
        if isinstance(storage, FileStorage):
            storage = storage.for_sandbox(agent.sandbox)
            if isinstance(storage, FileStorage) and storage.in_sandbox is not None:
                return storage.in_sandbox
        if isinstance(storage, WorkspaceStorage):
            return storage.for_session(session_id)
        _bind(storage, agent)
        if _has(storage, "for_sandbox"):
            storage = storage.for_sandbox(agent.sandbox)
        if _has(storage, "store", "retrieve"):
            blocks: BlockStorage = storage
            return blocks
        return FramedStorage(storage, session_id)


class ContextOffloader(WorkspaceOffloader):
    """`WorkspaceOffloader` under the name of Strands' plugin, also for code that looks it up by name."""

    name = "context_offloader"


def workspace_of(agent: Agent) -> Workspace | None:
    """Return the workspace of the agent's plugin or storage; None if it has none."""
    storage: object = agent.storage
    return _WORKSPACES.get(agent) or (storage.workspace if isinstance(storage, WorkspaceStorage) else None)


def window_of(agent: Agent) -> int:
    """Return how many tokens the context of *agent* may have."""
    return agent.model.context_window_limit or _DEFAULT_WINDOW_TOKENS


def as_storage(given: Any) -> Any:
    """Return *given* as a storage; a workspace, or the directory of one, becomes a `WorkspaceStorage`.

    Raises:
        ConfigError: It is not a storage.
    """
    if _has(given, "store", "retrieve") or _has(given, "write", "read"):
        return given
    if isinstance(given, (str, os.PathLike, Workspace)):
        return WorkspaceStorage(given)
    forms = "a workspace, a path, or an object with 'store' and 'retrieve', or with 'write' and 'read'"
    raise ConfigError("storage", f"{type(given).__name__} is not a storage: give {forms}")


def _bind(storage: object, agent: Agent) -> None:
    if isinstance(storage, TheirInMemoryStorage):
        storage._bind(id(agent))  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - as Strands' plugin does


def _has(given: object, *methods: str) -> bool:
    return all(callable(getattr(given, method, None)) for method in methods)
