"""Results of other sessions that an agent may read: those whose stubs are in its own messages.

Without a session manager Strands draws a session id for each agent object, so a restarted agent has another session
than its messages come from. A path in a message proves nothing, since a user may write any path. A stub does: the
session has recorded its whole text, which nobody can guess.
"""

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from buoyline.errors import CorruptError, FormatVersionError, InvalidNameError, NotFoundError, StorageError
from buoyline.integrations.strands.locating import session_in
from buoyline.lookups.places import files_of
from buoyline.lookups.references import target_of
from buoyline.offloader import StoredResult
from buoyline.offloader.stub import is_stub
from buoyline.workspace import LocalWorkspace, MemoryWorkspace, layout

logger = logging.getLogger(__name__)

_SESSION: Final = re.compile(rf"{layout.SESSIONS}/[^/\s]+(?=/tool_result-)")
_ABSENT: Final = (InvalidNameError, NotFoundError, StorageError)
_UNREADABLE: Final = (CorruptError, FormatVersionError, NotFoundError, StorageError)


@dataclass(frozen=True, slots=True)
class EarlierResults:
    """Files of results of other sessions, as far as an agent may read them.

    Attributes:
        workspace: Where they are.
        sessions: Session ids by file; files are relative to the workdir, with the readable copies among them.
        has_unknown: The messages hold stubs that no session of the workspace has recorded.
    """

    workspace: LocalWorkspace | MemoryWorkspace
    sessions: Mapping[str, str]
    has_unknown: bool = False

    @property
    def owners(self) -> list[str]:
        """The sessions, each once."""
        return list(dict.fromkeys(self.sessions.values()))

    def session_of(self, reference: str) -> str | None:
        """Return the session of the file that *reference* means; None if it is not one of these. Blocking."""
        for session_id in self.owners:
            try:
                target = target_of(files_of(self.workspace), reference, session_id)
            except _ABSENT:
                continue
            if target.whole in self.sessions:
                return session_id
        return None

    def files_of(self, session_id: str) -> list[str]:
        """Return the files of a session, in order; of a result with a readable copy, the copy."""
        files = [file for file, owner in self.sessions.items() if owner == session_id]
        copied = {layout.result_behind(file) for file in files if layout.is_view_name(file.rpartition("/")[2])}
        return [file for file in files if file not in copied]


async def earlier_results(
    workspace: LocalWorkspace | MemoryWorkspace, session_id: str, messages: Sequence[Mapping[str, Any]]
) -> EarlierResults:
    """Return the results of other sessions than *session_id* whose stubs *messages* hold.

    A session that cannot be read is logged, and its stubs count as unknown: the agent still reads its own session.
    """
    stubs: dict[str, list[str]] = {}
    for text in _stubs_in(messages):
        named = _SESSION.search(text)
        if named is not None:
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


def texts_of_results(messages: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the texts in the tool results of *messages*, in order."""
    for message in messages:
        for block in message.get("content") or ():
            result: Mapping[str, Any] = block.get("toolResult") or {}
            parts: Sequence[Mapping[str, Any]] = result.get("content") or ()
            yield from (part["text"] for part in parts if isinstance(part.get("text"), str))


def _stubs_in(messages: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    return (text for text in texts_of_results(messages) if is_stub(text))
