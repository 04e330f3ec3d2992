"""The lookups of an agent: in its own session, and in earlier results whose stubs are in its messages."""

import asyncio
import fnmatch
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from strands.types._events import ToolResultEvent
from strands.types.tools import AgentTool, ToolGenerator, ToolSpec, ToolUse

from buoyline.errors import (
    BuoylineError,
    CorruptError,
    FormatVersionError,
    InvalidNameError,
    NotFoundError,
    StorageError,
)
from buoyline.integrations.strands.history import NativeMessage, texts_of_results
from buoyline.integrations.strands.storage import session_in
from buoyline.lookups import Tool, lookup_tools
from buoyline.lookups.files import MAX_PATHS
from buoyline.lookups.paths import resolve_path
from buoyline.lookups.references import resolve_reference
from buoyline.messages.jsonl import is_object
from buoyline.offloader import StoredResult
from buoyline.offloader.stub import is_stub
from buoyline.tokens import TextCounter
from buoyline.workspace import LocalWorkspace, MemoryWorkspace, layout

# An agent may read results of other sessions if their stubs are in its own messages.
#
# Without a session manager, Strands generates a session id for each agent object, so a restarted agent has another
# session than its messages come from. A path in a message proves nothing, since a user may write any path. A stub does:
# the session has recorded its whole text, which nobody can guess.

logger = logging.getLogger(__name__)

_SESSION: Final = re.compile(rf"{layout.SESSIONS}/[^/\s]+(?=/tool_result-)")
_ABSENT: Final = (InvalidNameError, NotFoundError, StorageError)
_UNREADABLE: Final = (CorruptError, FormatVersionError, NotFoundError, StorageError)


@dataclass(frozen=True, slots=True)
class EarlierResults:
    """Files of results of other sessions that an agent may read.

    Attributes:
        workspace: Of the files.
        sessions: Session ids by file. Files are relative to the workdir; views are among them.
        has_unknown: The messages have stubs that no session of the workspace has recorded.
    """

    workspace: LocalWorkspace | MemoryWorkspace
    sessions: Mapping[str, str]
    has_unknown: bool = False

    @property
    def owners(self) -> list[str]:
        """The sessions, each once."""
        return list(dict.fromkeys(self.sessions.values()))

    def session_of(self, reference: str) -> str | None:
        """Return the session of the file behind *reference*; None if it is not one of these. Blocking."""
        for session_id in self.owners:
            try:
                target = resolve_reference(self.workspace, reference, session_id)
            except _ABSENT:
                continue
            if target.whole in self.sessions:
                return session_id
        return None

    def files_of(self, session_id: str) -> list[str]:
        """Return the files of a session, in order; of a result with a view, the view."""
        files = [file for file, owner in self.sessions.items() if owner == session_id]
        copied = {layout.result_behind(file) for file in files if layout.is_view_name(file.rpartition("/")[2])}
        return [file for file in files if file not in copied]


async def earlier_results(
    workspace: LocalWorkspace | MemoryWorkspace, session_id: str, messages: Sequence[Mapping[str, Any]]
) -> EarlierResults:
    """Return the results of other sessions than *session_id* whose stubs are in *messages*.

    If a session cannot be read, that is logged, and its stubs count as unknown: the agent still reads its own session.
    """
    stubs: dict[str, list[str]] = {}
    for text in texts_of_results(messages):
        if is_stub(text) and (named := _SESSION.search(text)):
            stubs.setdefault(named[0], []).append(text)
    sessions: dict[str, str] = {}
    has_unknown = False
    for directory, texts in stubs.items():
        other = session_in(workspace, directory)
        if other == session_id:
            continue
        if other is None:
            has_unknown = True
            continue
        known = await _known(workspace, other, texts)
        has_unknown = has_unknown or len(known) < len(set(texts))
        for stored in known.values():
            sessions[f"{directory}/{stored.name}"] = other
            if stored.view:
                sessions[f"{directory}/{layout.view_name(stored.name)}"] = other
    return EarlierResults(workspace, sessions, has_unknown)


async def _known(
    workspace: LocalWorkspace | MemoryWorkspace, session_id: str, texts: Sequence[str]
) -> Mapping[str, StoredResult]:
    try:
        return await workspace.load_stubs(session_id, texts)
    except _UNREADABLE as error:
        logger.warning("the earlier results in session %s cannot be read: %s", session_id, error)
        return {}


Messages = Callable[[], Sequence[NativeMessage]]
"""Gives the messages of an agent."""

_LEAST_TOKENS: Final = 200
_SEARCHES: Final = ("grep", "search")
_NOTHING: Final = "[Nothing was archived or offloaded in this session yet.]\n"
_UNKNOWN: Final = (
    "[Nothing was archived or offloaded in this session yet. The offloaded results in your messages belong to another "
    "session, which cannot be read from here; call the tool again if you need more than their previews.]\n"
)


class SessionLookups:
    """Answers `read`, `grep` and `search` for one agent.

    A path is resolved in the agent's session first, then among the earlier results. Without a path, both are searched.
    """

    def __init__(
        self, workspace: LocalWorkspace, session_id: str, messages: Messages, *, max_tokens: int, counter: TextCounter
    ) -> None:
        """Look in *session_id*, and in the results whose stubs are in *messages*."""
        self._workspace, self._session_id, self._messages = workspace, session_id, messages
        self._max_tokens, self._counter = max_tokens, counter

    def tools(self) -> Sequence[Tool]:
        """Return the tools of the agent's own session."""
        return self._tools_of(self._session_id, self._max_tokens)

    async def answer(self, name: str, given: Mapping[str, Any]) -> str:
        """Answer a call of the tool *name*."""
        earlier = await earlier_results(self._workspace, self._session_id, self._messages())
        if not earlier.sessions:
            text = await self._call(self._session_id, name, given, self._max_tokens)
            return _UNKNOWN if text == _NOTHING and earlier.has_unknown else text
        places = await asyncio.to_thread(self._places, name, given, earlier)
        max_tokens = max(self._max_tokens // len(places), _LEAST_TOKENS)
        return "".join([await self._call(session, name, asked, max_tokens) for session, asked in places.items()])

    def _places(self, name: str, given: Mapping[str, Any], earlier: EarlierResults) -> dict[str, Mapping[str, Any]]:
        """Return the arguments for each session to ask. Blocking."""
        own, path = self._session_id, given.get("path")
        if name in _SEARCHES and path is None and not given.get("after"):
            found = {session: earlier.files_of(session)[:MAX_PATHS] for session in earlier.owners}
            asked: dict[str, Mapping[str, Any]] = {
                session: {**given, "path": files} for session, files in found.items()
            }
            return {own: given, **asked} if self._has_own() else asked
        after = str(given.get("after", "")).rsplit(":", 2)[0]
        paths: list[Any] = [*path] if isinstance(path, list) else [path or after]
        groups: dict[str, list[Any]] = {}
        for each in paths:
            session, files = self._place_of(each, earlier)
            groups.setdefault(session, []).extend(files)
        if groups.keys() == {own} or path is None:
            return dict.fromkeys(groups, given)
        return {
            session: {**given, "path": files if len(files) > 1 or isinstance(path, list) else files[0]}
            for session, files in groups.items()
        }

    def _place_of(self, path: Any, earlier: EarlierResults) -> tuple[str, list[Any]]:
        """Return the session of *path*, and its paths there; if it is in none, the agent's own."""
        if not isinstance(path, str) or self._file_at(path, self._session_id) is not None:
            return self._session_id, [path]
        for session in earlier.owners:
            file = self._file_at(path, session)
            if file is not None and (file in earlier.sessions or layout.digest_in(file) is not None):
                return session, [path]
            if matching := [file for file in earlier.files_of(session) if _matches(file, path)]:
                return session, matching
        return self._session_id, [path]

    def _file_at(self, path: str, session: str) -> str | None:
        try:
            return resolve_path(self._workspace, path, session).name
        except _ABSENT:
            return None

    def _has_own(self) -> bool:
        try:
            self._workspace.session(self._session_id)
        except NotFoundError:
            return False
        return True

    async def _call(self, session_id: str, name: str, given: Mapping[str, Any], max_tokens: int) -> str:
        tool = next(tool for tool in self._tools_of(session_id, max_tokens) if tool.name == name)
        return await tool.call(**given)

    def _tools_of(self, session_id: str, max_tokens: int) -> Sequence[Tool]:
        return lookup_tools(self._workspace, session_id, max_tokens=max_tokens, counter=self._counter)


def _matches(file: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(file, pattern) or fnmatch.fnmatchcase(file.rpartition("/")[2], pattern)


# Tools as Strands has them.

Answer = Callable[[Mapping[str, Any]], Awaitable[list[dict[str, Any]]]]
"""Answers a call with the blocks of a result. The model sees the errors of ours that it raises."""


class WorkspaceTool(AgentTool):
    """A tool for one agent. A wrong call gets an error result, so that the model can correct the call."""

    def __init__(self, name: str, description: str, parameters: Mapping[str, Any], answer: Answer) -> None:
        """Offer *answer* under *name*; *parameters* is a JSON Schema of its arguments."""
        super().__init__()
        self._name, self._description, self._parameters, self._answer = name, description, dict(parameters), answer

    @property
    def tool_name(self) -> str:
        """The name for the model."""
        return self._name

    @property
    def tool_spec(self) -> ToolSpec:
        """The specification for the model."""
        return {"name": self._name, "description": self._description, "inputSchema": {"json": self._parameters}}

    @property
    def tool_type(self) -> str:
        """The kind of tool: a function."""
        return "function"

    async def stream(self, tool_use: ToolUse, invocation_state: dict[str, Any], **kwargs: Any) -> ToolGenerator:  # noqa: ARG002 - the interface passes them
        """Answer one call."""
        given: Mapping[str, Any] = tool_use["input"] if is_object(tool_use["input"]) else {}
        call_id = tool_use["toolUseId"]
        try:
            content, status = await self._answer(given), "success"
        except (BuoylineError, TimeoutError) as error:
            content, status = [{"text": f"Error: {str(error) or 'the storage took too long'}"}], "error"
        result: Any = {"toolUseId": call_id, "status": status, "content": content}
        yield ToolResultEvent(result)
