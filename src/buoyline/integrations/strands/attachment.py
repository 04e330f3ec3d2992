"""What a plugin has for one agent: its storage, who keeps its results in it, and the agent's tools."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from strands import Agent
from strands.vended_plugins.context_offloader import InMemoryStorage

from buoyline.errors import ConfigError
from buoyline.integrations.strands.block_keeping import BlockKeeping
from buoyline.integrations.strands.content import KeepsBlocks
from buoyline.integrations.strands.framed_storage import FramedStorage
from buoyline.integrations.strands.storage import Workspace, WorkspaceStorage
from buoyline.integrations.strands.tool import Answer, WorkspaceTool
from buoyline.integrations.strands.workspace_keeping import WorkspaceKeeping
from buoyline.lookups import Tool, lookup_tools
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
    on_event: OnEvent | None


class Attachment:
    """Storage, keeping and tools of one agent, which does not hold that agent."""

    def __init__(self, storage: WorkspaceStorage | KeepsBlocks, settings: Settings) -> None:
        """Keep results in *storage*, the agent's own."""
        self.tools = frozenset[str]()
        self.keeping = _keeping_in(storage, settings)
        self._storage, self._settings = storage, settings

    def next_turn(self, cycle: int) -> None:
        """Let what is kept in memory age by a turn; in Strands' own storage to the agent's *cycle*."""
        if isinstance(self._storage, InMemoryStorage):
            self._storage._evict(cycle)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - there is no other way
        turns = abilities_of(self._storage.workspace).turns if isinstance(self._storage, WorkspaceStorage) else None
        if turns is not None:
            turns.next_turn()

    def register_tools(self, agent: Agent) -> None:
        """Give *agent* the tools, but none under a name that it has already."""
        offered = [self._retrieval(window_of(agent))] if self._settings.retrieval_tool else []
        tools = [tool for tool in (*offered, *self._lookups()) if tool.tool_name not in agent.tool_registry.registry]
        for tool in tools:
            agent.tool_registry.register_tool(tool)
        self.tools = frozenset(tool.tool_name for tool in tools)

    def _retrieval(self, window_tokens: int) -> WorkspaceTool:
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
                whole_tokens=whole_tokens,
            )

        return WorkspaceTool(RETRIEVAL_TOOL, RETRIEVAL_DESCRIPTION, RETRIEVAL_PARAMETERS, answer)

    def _lookups(self) -> list[WorkspaceTool]:
        storage = self._storage
        if not self._settings.has_lookups or not isinstance(storage, WorkspaceStorage):
            return []
        if not isinstance(storage.workspace, LocalWorkspace):
            return []
        counter, max_tokens = self._settings.counter, max(self._settings.max_result_tokens, _LEAST_ANSWER_TOKENS)
        tools = lookup_tools(storage.workspace, storage.session_id, max_tokens=max_tokens, counter=counter)
        return [WorkspaceTool(tool.name, tool.description, tool.parameters, _answer_of(tool)) for tool in tools]


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
        given: What `as_storage` has returned, or the agent has; None: ``./workspace``.
        agent: The agent.
        session_id: Its session.

    Raises:
        ValueError: *given* is Strands' own `InMemoryStorage`, and another agent's: their turns would not agree.
    """
    storage: Any = WorkspaceStorage("./workspace") if given is None else given
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


def _answer_of(tool: Tool) -> Answer:
    async def answer(given: Mapping[str, Any]) -> list[dict[str, Any]]:
        return [{"text": await tool.call(**given)}]

    return answer


def _has(given: object, *methods: str) -> bool:
    return all(callable(getattr(given, method, None)) for method in methods)
