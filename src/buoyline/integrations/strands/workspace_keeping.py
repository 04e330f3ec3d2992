"""Tool results kept in a workspace: the whole result in one file, a stub in its place."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from buoyline.errors import CorruptError, InvalidNameError, NotFoundError, StorageError
from buoyline.integrations.strands.arrival import Arrival, NativeResult
from buoyline.integrations.strands.content import blocks_from
from buoyline.integrations.strands.earlier_results import EarlierResults, earlier_results
from buoyline.integrations.strands.storage import Workspace, WorkspaceStorage
from buoyline.lookups import retrieve
from buoyline.lookups.places import files_of
from buoyline.lookups.references import target_of
from buoyline.lookups.retrieved import MediaContent, Retrieved
from buoyline.tokens import TextCounter
from buoyline.tokens.messages import count_result
from buoyline.window.choosing import Choice
from buoyline.window.entry import entry_beside
from buoyline.window.events import OnEvent
from buoyline.window.offloading import Place, ResultOffloading
from buoyline.workspace import layout

_SHOWN_CHARS: Final = 200


class WorkspaceKeeping:
    """Keeps the results of one session, whose stubs lead to the files.

    Small blocks beside a large one stay; what would not become smaller stays whole; and what the agent reads back with
    tools of its own is never stored a second time.
    """

    def __init__(
        self, storage: WorkspaceStorage, counter: TextCounter, *, retrieval_tool: str, on_event: OnEvent | None
    ) -> None:
        """Keep the results of the session of *storage*; stubs name *retrieval_tool*, if there is one."""
        self._storage, self._counter = storage, counter
        self._retrieval_tool, self._on_event = retrieval_tool, on_event

    async def offload(self, arrival: Arrival) -> NativeResult | None:
        """Store the whole result, durably, and return it with a stub in place of what is large in it.

        Raises:
            BuoylineError: The workspace refused; nothing was changed.
        """
        workspace, session_id = self._storage.workspace, self._storage.session_id
        offloading = ResultOffloading(
            workspace,
            workspace.abilities(),
            session_id,
            self._counter,
            self._on_event,
            retrieval_tool=self._retrieval_tool,
        )
        message = {"role": "user", "content": [{"toolResult": arrival.native}]}
        entry = given = await entry_beside(message, 0, self._counter, dialect="bedrock")
        source = workspace.reference_in(session_id, arrival.arguments)
        with offloading.told_when_done():
            if arrival.large_images:
                places = [Place(number, result=0) for number in sorted(arrival.large_images)]
                entry = await offloading.offload_images(entry, places)
            limit = self._limit(arrival, source)
            if limit is not None:
                max_tokens = min(max(arrival.preview_tokens, 1), limit)
                entry = await offloading.replace(entry, {0: Choice(arrival.tool, max_tokens, source, limit)})
        if entry is given:
            return None
        result: NativeResult = entry.native["content"][0]["toolResult"]
        return result

    def _limit(self, arrival: Arrival, source: str) -> int | None:
        """Return what may stand in the result's place, in our own tokens; None where it stays.

        The model's count has decided already, and ours may well be below its limit.
        """
        tokens = count_result(arrival.view, self._counter)
        if source:
            return arrival.read_back_limit if tokens > arrival.read_back_limit else None
        return None if arrival.tokens <= arrival.limit else max(min(arrival.limit, tokens - 1), 1)

    async def retrieve(
        self,
        reference: str,
        pattern: str | None,
        line_range: Mapping[str, Any] | None,
        context_lines: int | None,
        *,
        max_tokens: int,
        whole_tokens: int,
        messages: Sequence[Mapping[str, Any]],
    ) -> list[dict[str, Any]]:
        """Return what is behind *reference*, or lines of it; see `buoyline.lookups.retrieve`.

        Raises:
            BuoylineError: There is no such content that the agent may read, or the call cannot be answered.
        """
        workspace = self._storage.workspace
        earlier = await earlier_results(workspace, self._storage.session_id, messages)
        session_id = await asyncio.to_thread(self._session_of, reference, earlier)
        is_whole = pattern is None and line_range is None and context_lines is None
        bound = whole_tokens if is_whole else max_tokens
        found = await asyncio.to_thread(
            retrieve,
            workspace,
            reference,
            pattern,
            line_range,
            context_lines,
            session=session_id,
            max_tokens=bound,
            counter=self._counter,
        )
        named = await asyncio.to_thread(self._named, found, [session_id or self._storage.session_id, *earlier.owners])
        return blocks_from(named)

    def _named(self, found: Retrieved, sessions: Sequence[str]) -> Retrieved:
        """Return *found* with the names that tools gave its documents: a path below ``data/`` has none. Blocking."""
        nameless = {part.path for part in found.media if not part.name}
        names: dict[str, str] = {}
        files = files_of(self._storage.workspace)
        for session_id in sessions if nameless else ():
            try:
                records = files.session(session_id).index().results.values()
            except (CorruptError, NotFoundError):
                continue
            parts = (part for record in records for part in record.get("parts", ()) if part.get("path"))
            names |= {files.tree.path(part["path"]): part.get("name", "") for part in parts}
        shown = [
            replace(part, name=names.get(part.path, "")) if isinstance(part, MediaContent) and not part.name else part
            for part in found.parts
        ]
        return replace(found, parts=tuple(shown))

    def _session_of(self, reference: str, earlier: EarlierResults) -> str | None:
        """Return the session to retrieve *reference* from; None for a blob, which belongs to no session. Blocking.

        Raises:
            NotFoundError: It is neither in the agent's session nor among the *earlier* results.
        """
        workspace, own = self._storage.workspace, self._storage.session_id
        try:
            target_of(files_of(workspace), reference, own)
        except (InvalidNameError, NotFoundError) as error:
            found = earlier.session_of(reference)
            if found is not None:
                return found
            if _is_blob(workspace, reference):
                return None
            if isinstance(error, NotFoundError) and error.kind == "session":
                hint = "nothing was offloaded in this session yet; take a reference from a preview in your messages"
                raise NotFoundError("offloaded content", reference[:_SHOWN_CHARS], hint) from error
            raise
        return own


def _is_blob(workspace: Workspace, reference: str) -> bool:
    """Tell whether *reference* is a whole name below ``data/``, which only those know who have seen it."""
    try:
        return layout.digest_in(target_of(files_of(workspace), reference).whole) is not None
    except (InvalidNameError, NotFoundError, StorageError):
        return False
