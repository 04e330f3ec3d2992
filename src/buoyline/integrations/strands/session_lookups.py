"""The lookups of an agent: in its own session, and in the earlier results that its messages name."""

import asyncio
import fnmatch
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from buoyline.errors import InvalidNameError, NotFoundError, StorageError
from buoyline.integrations.strands.earlier_results import EarlierResults, earlier_results
from buoyline.integrations.strands.history import NativeMessage
from buoyline.lookups import Tool, lookup_tools
from buoyline.lookups.extents import MAX_PATHS
from buoyline.lookups.paths import extent_of
from buoyline.tokens import TextCounter
from buoyline.workspace import LocalWorkspace, layout

Messages = Callable[[], Sequence[NativeMessage]]
"""Gives the messages of an agent."""

_LEAST_TOKENS: Final = 200
_SEARCHES: Final = ("grep", "search")
_NOTHING: Final = "[Nothing has left the context of this session yet.]\n"
_UNKNOWN: Final = (
    "[Nothing has left the context of this session yet. The offloaded results in your messages belong to another "
    "session, which cannot be read from here; call the tool again if you need more than their previews.]\n"
)


class SessionLookups:
    """Answers `read`, `grep`, `search`, `glob` and `query` for one agent.

    A path is looked for in the agent's session first, then among the earlier results. Without a path both are searched.
    """

    def __init__(
        self, workspace: LocalWorkspace, session_id: str, messages: Messages, *, max_tokens: int, counter: TextCounter
    ) -> None:
        """Look in *session_id*, and in the results whose stubs *messages* hold."""
        self._workspace, self._session_id, self._messages = workspace, session_id, messages
        self._max_tokens, self._counter = max_tokens, counter

    def tools(self) -> Sequence[Tool]:
        """Return the tools of the agent's own session."""
        return self._tools_of(self._session_id, self._max_tokens)

    async def answer(self, name: str, given: Mapping[str, Any]) -> str:
        """Answer a call of the tool *name* with the arguments *given*."""
        earlier = await earlier_results(self._workspace, self._session_id, self._messages())
        if not earlier.sessions:
            text = await self._call(self._session_id, name, given, self._max_tokens)
            return _UNKNOWN if text == _NOTHING and earlier.has_unknown else text
        places = await asyncio.to_thread(self._places, name, given, earlier)
        max_tokens = max(self._max_tokens // len(places), _LEAST_TOKENS)
        if len(places) > 1 and name == "query":
            return "Error: these files are in several sessions; query those of one session at a time\n"
        answers = [await self._call(session, name, asked, max_tokens) for session, asked in places.items()]
        if name == "glob":
            answers.append(_matching(str(given.get("pattern", "")), earlier))
        return "".join(answers)

    def _places(self, name: str, given: Mapping[str, Any], earlier: EarlierResults) -> dict[str, Mapping[str, Any]]:
        """Return the sessions to ask, with the arguments for each. Blocking."""
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
        """Return the session that *path* is in, and the paths to look for there; the own one if it is in none."""
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
            return extent_of(self._workspace, path, session, confined=True).name
        except (InvalidNameError, NotFoundError, StorageError):
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


def _matching(pattern: str, earlier: EarlierResults) -> str:
    """Return what a listing says of earlier results."""
    files = [file for owner in earlier.owners for file in earlier.files_of(owner) if _matches(file, pattern)]
    more = f" and {len(files) - MAX_PATHS:,} more" if len(files) > MAX_PATHS else ""
    listed = "\n".join(files[:MAX_PATHS])
    return f"[Of earlier sessions, results in your messages:]\n{listed}{more}\n" if files else ""


def _matches(file: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(file, pattern) or fnmatch.fnmatchcase(file.rpartition("/")[2], pattern)
