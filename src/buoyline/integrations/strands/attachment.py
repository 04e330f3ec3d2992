"""What a plugin has for one agent: its storage, who keeps its results in it, and the agent's tools."""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, ref

from strands import Agent
from strands.vended_plugins.context_offloader import InMemoryStorage

from buoyline.errors import ConfigError
from buoyline.integrations.strands.block_keeping import BlockKeeping
from buoyline.integrations.strands.content import KeepsBlocks
from buoyline.integrations.strands.framed_storage import FramedStorage
from buoyline.integrations.strands.history import NativeMessage, history_of
from buoyline.integrations.strands.session_lookups import Messages, SessionLookups
from buoyline.integrations.strands.storage import Workspace, WorkspaceStorage
from buoyline.integrations.strands.storages import FileStorage
from buoyline.integrations.strands.tool import Answer, WorkspaceTool
from buoyline.integrations.strands.workspace_keeping import WorkspaceKeeping
from buoyline.lookups.retrieval_tool import (
    RETRIEVAL_DESCRIPTION,
    RETRIEVAL_PARAMETERS,
    RETRIEVAL_TOOL,
    retrieval_arguments,
)
from buoyline.offloader import abilities_of
from buoyline.offloader.readback import read_back_limit
from buoyline.tokens import TextCounter
from buoyline.window.events import OnEvent
from buoyline.workspace import LocalWorkspace

if TYPE_CHECKING:
    from buoyline.integrations.strands.arrival import Keeping

_DEFAULT_WINDOW_TOKENS = 200_000
"""What Strands takes a window for that its model does not tell."""

_LEAST_ANSWER_TOKENS = 500
"""Less leaves an answer hardly room for a line of the content."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What holds for every agent of a plugin; see `WorkspaceOffloader`."""

    counter: TextCounter
    max_result_tokens: int
    retrieval_tool: str
    has_lookups: bool
    storage_timeout_s: float | None
    evict_after_cycles: int | None
    on_event: OnEvent | None


_WORKSPACES: WeakKeyDictionary[Agent, Workspace] = WeakKeyDictionary()


def workspace_of(agent: Agent) -> Workspace | None:
    """Return the workspace that *agent* has in a plugin of ours or as its storage; None if it has none."""
    storage: object = agent.storage
    return _WORKSPACES.get(agent) or (storage.workspace if isinstance(storage, WorkspaceStorage) else None)


class Attachment:
    """Storage, keeping and tools of one agent, which does not hold that agent."""

    def __init__(self, storage: WorkspaceStorage | KeepsBlocks, settings: Settings) -> None:
        """Keep results in *storage*, the agent's own."""
        self.tools = frozenset[str]()
        self.keeping = _keeping_in(storage, settings)
        self._storage, self._settings = storage, settings

    async def next_turn(self, cycle: int) -> None:
        """Let what can be evicted age by a turn; in storages of Strands' to the agent's *cycle*."""
        storage = self._storage
        if isinstance(storage, WorkspaceStorage):
            turns = abilities_of(storage.workspace).turns
            if turns is not None:
                turns.next_turn()
        elif isinstance(storage, InMemoryStorage):
            storage._evict(cycle)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - there is no other way
        elif isinstance(storage, FramedStorage):
            await storage.evict(cycle, self._settings.evict_after_cycles)

    def register_tools(self, agent: Agent) -> None:
        """Give *agent* the tools, but none under a name that it has already."""
        held = ref(agent)
        if isinstance(self._storage, WorkspaceStorage):
            _WORKSPACES.setdefault(agent, self._storage.workspace)

        def messages() -> Sequence[NativeMessage]:
            alive = held()
            return [] if alive is None else history_of(alive)

        offered = [self._retrieval(window_of(agent), messages)] if self._settings.retrieval_tool else []
        lookups = self._lookups(messages)
        tools = [tool for tool in (*offered, *lookups) if tool.tool_name not in agent.tool_registry.registry]
        for tool in tools:
            agent.tool_registry.register_tool(tool)
        self.tools = frozenset(tool.tool_name for tool in tools)

    def _retrieval(self, window_tokens: int, messages: Messages) -> WorkspaceTool:
        max_tokens = max(self._settings.max_result_tokens, _LEAST_ANSWER_TOKENS)
        whole_tokens = read_back_limit(window_tokens, max_tokens)

        async def answer(given: Mapping[str, Any]) -> list[dict[str, Any]]:
            known = retrieval_arguments(given)
            return await self.keeping.retrieve(
                known["reference"],
                known.get("pattern"),
                known.get("line_range"),
                known.get("context_lines"),
                max_tokens=max_tokens,
                whole_tokens=sys.maxsize if known.get("whole") else whole_tokens,
                messages=messages(),
            )

        return WorkspaceTool(RETRIEVAL_TOOL, RETRIEVAL_DESCRIPTION, RETRIEVAL_PARAMETERS, answer)

    def _lookups(self, messages: Messages) -> list[WorkspaceTool]:
        storage = self._storage
        if not self._settings.has_lookups or not isinstance(storage, WorkspaceStorage):
            return []
        if not isinstance(storage.workspace, LocalWorkspace):
            return []
        counter, max_tokens = self._settings.counter, max(self._settings.max_result_tokens, _LEAST_ANSWER_TOKENS)
        workspace, session_id = storage.workspace, storage.session_id
        lookups = SessionLookups(workspace, session_id, messages, max_tokens=max_tokens, counter=counter)
        tools = lookups.tools()
        return [
            WorkspaceTool(tool.name, tool.description, tool.parameters, _answer_of(lookups, tool.name))
            for tool in tools
        ]


def window_of(agent: Agent) -> int:
    """Return how many tokens the context of *agent* may have."""
    return agent.model.context_window_limit or _DEFAULT_WINDOW_TOKENS


def as_storage(given: Any) -> Any:
    """Return *given* as a storage: a workspace, or the directory of one, in the form of one.

    Raises:
        ConfigError: It is no storage.
    """
    if _has(given, "store", "retrieve") or _has(given, "write", "read"):
        return given
    if isinstance(given, (str, os.PathLike, Workspace)):
        return WorkspaceStorage(given)
    forms = "a workspace, a path, or an object with 'store' and 'retrieve', or with 'write' and 'read'"
    raise ConfigError("storage", f"{type(given).__name__} is none: give {forms}")


def storage_for(given: Any, agent: Agent, session_id: str) -> WorkspaceStorage | KeepsBlocks:
    """Return the storage of *agent*: its part of a workspace, or *given* bound to its sandbox, where that is possible.

    Args:
        given: What `as_storage` has returned, or the agent has.
        agent: The agent.
        session_id: Its session.

    Raises:
        ValueError: *given* is Strands' own `InMemoryStorage`, and another agent's: their turns would not agree.
    """
    storage = given
    if isinstance(storage, FileStorage):
        storage = storage.for_sandbox(agent.sandbox)
        if isinstance(storage, FileStorage) and storage.in_sandbox is not None:
            return storage.in_sandbox
    if isinstance(storage, WorkspaceStorage):
        return storage.for_session(session_id)
    _claim(storage, agent)
    if _has(storage, "for_sandbox"):
        storage = storage.for_sandbox(agent.sandbox)
    if _has(storage, "store", "retrieve"):
        blocks: KeepsBlocks = storage
        return blocks
    return FramedStorage(storage, session_id)


def _claim(storage: object, agent: Agent) -> None:
    if isinstance(storage, InMemoryStorage):
        storage._bind(id(agent))  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - as Strands' plugin does


def _keeping_in(storage: WorkspaceStorage | KeepsBlocks, settings: Settings) -> "Keeping":
    counter, tool = settings.counter, settings.retrieval_tool
    if isinstance(storage, WorkspaceStorage):
        return WorkspaceKeeping(storage, counter, retrieval_tool=tool, on_event=settings.on_event)
    return BlockKeeping(storage, counter, retrieval_tool=tool, timeout_s=settings.storage_timeout_s)


def _answer_of(lookups: SessionLookups, name: str) -> Answer:
    async def answer(given: Mapping[str, Any]) -> list[dict[str, Any]]:
        return [{"text": await lookups.answer(name, given)}]

    return answer


def _has(given: object, *methods: str) -> bool:
    return all(callable(getattr(given, method, None)) for method in methods)
