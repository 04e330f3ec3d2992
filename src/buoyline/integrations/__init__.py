"""One module or package for each framework, imported only if you import it.

Each adapts the framework's hooks and messages to `buoyline.window`. How a context is compacted, and how content is
stored, does not belong here.
"""

import asyncio
import json
import os
import re
import threading
from collections import OrderedDict
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from buoyline.errors import BuoylineError, ConfigError, UsageError
from buoyline.lookups import lookup_tools
from buoyline.messages.jsonl import is_object
from buoyline.window import ContextWindow
from buoyline.window.window import Tools
from buoyline.workspace import LocalWorkspace
from buoyline.workspace.workspace import Workspace

T = TypeVar("T")

_WAIT_S: Final = 0.01
"""Between two looks at a session that another run uses, which may be in another thread."""


def run_sync(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run *coroutine* to its end in a thread of its own, so that it also works below a running event loop."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(copy_context().run, asyncio.run, coroutine).result()


# Frameworks pass on, or wrap, the errors of each provider's client, which have no class in common. Source of the words:
# the answers of OpenAI, Anthropic, Google, DashScope, xAI, Mistral, vLLM and llama.cpp.
_OVERFLOW_STATUSES: Final = frozenset({None, 400, 413, 422})
_OVERFLOW_WORDS: Final = re.compile(
    "context[ _]length|context (?:window|size|limit)|maximum (?:context|prompt length)|model maximum|max_model_len|"
    "too many (?:tokens|total text bytes)|(?:prompt|input) is too long|input token count|range of input length|"
    "(?:request|entity|payload|content) too large",
    re.IGNORECASE,
)


def is_overflow(error: BaseException) -> bool:
    """Return whether the provider has refused a request as too long, by the status and words of its client's error."""
    codes = (getattr(error, name, None) for name in ("status_code", "code", "status"))
    status = next((code for code in codes if isinstance(code, int)), None)
    return status in _OVERFLOW_STATUSES and _OVERFLOW_WORDS.search(str(error)) is not None


class WindowPool:
    """The windows of a server's sessions: of each one at most, and the *max_open* used last.

    Its methods may be called from any thread and event loop. Calls for one session run one at a time. If two runs of
    one conversation take turns, each request has the list of its own run, and the log has both.

    Attributes:
        workspace: Holds the sessions.
        lookups: The lookups as the framework's model sees them; `look_up` runs one in a session.
    """

    def __init__(
        self, workspace: Workspace | str | os.PathLike[str], *, max_open: int = 64, prefix: str = "", **settings: Any
    ) -> None:
        """Open nothing yet.

        Args:
            workspace: A workspace, or its path.
            max_open: Windows that stay open; opening one more closes the least recently used.
            prefix: Begins the names of the lookups, for an agent that has others of these names.
            settings: Those of `ContextWindow.open` for each window.
        """
        if max_open < 1:
            raise ConfigError("max_open", f"{max_open} is no number of windows; give 1 or more")
        self.workspace = LocalWorkspace(workspace) if isinstance(workspace, (str, os.PathLike)) else workspace
        self.lookups = lookup_tools(self.workspace, prefix=prefix)
        self._prefix, self._max_open, self._settings = prefix, max_open, settings
        self._guard, self._slots = threading.Lock(), OrderedDict[str, _Slot]()

    async def request(
        self, session_id: str, messages: Sequence[Any], *, system: Any = None, tools: Tools = None
    ) -> list[Any]:
        """Follow a framework's list, and return what to send; see `ContextWindow.request`."""
        async with self.of(session_id) as window:
            return await window.request(messages, system=system, tools=tools)

    async def recover(self, session_id: str, messages: Sequence[Any], error: BaseException) -> list[Any]:
        """Return a request at least a tenth smaller than the one that the provider has just refused.

        Raises:
            ContextOverflowError: The messages that must stay are too large.
        """
        async with self.of(session_id) as window:
            await window.follow(messages)
            return await window.recover_from_overflow(error)

    async def add(self, session_id: str, messages: Sequence[Any], response: object = None) -> None:
        """Add what the model has answered, so that it is on disk before its tools run.

        *response* has the usage; if that is implausible, it is ignored.
        """
        async with self.of(session_id) as window:
            with suppress(UsageError):
                window.note_usage(response)
            await window.extend(messages)

    async def look_up(self, session_id: str, name: str, arguments: Mapping[str, Any] | str) -> str:
        """Run the lookup called *name* in a session; *arguments* may be JSON text. An error is an answer, too."""
        tools = {tool.name: tool for tool in lookup_tools(self.workspace, session_id, prefix=self._prefix)}
        try:
            given: object = json.loads(arguments or "{}") if isinstance(arguments, str) else arguments
        except ValueError:
            given = None
        return await tools[name].call(**given) if is_object(given) else "Error: the arguments are no JSON object\n"

    async def close(self) -> None:
        """Close the windows that no run uses."""
        await self._close_oldest(0)

    @asynccontextmanager
    async def of(self, session_id: str) -> AsyncGenerator[ContextWindow]:
        """Open the window of a session, or take it from those that are open, for one run at a time."""
        with self._guard:
            slot = self._slots.setdefault(session_id, _Slot())
            self._slots.move_to_end(session_id)
            slot.users += 1
        async with self._held(session_id, slot):
            if slot.window is None:
                slot.window = await ContextWindow.open(self.workspace, session_id, **self._settings)
                slot.window.tools(prefix=self._prefix)  # their results are never offloaded
            yield slot.window
        await self._close_oldest(self._max_open)

    @asynccontextmanager
    async def _held(self, session_id: str, slot: "_Slot") -> AsyncGenerator[None]:
        """Hold the lock of a slot whose users were counted already; without users and a window the slot goes."""
        try:
            while not slot.lock.acquire(blocking=False):  # noqa: ASYNC110 - an event belongs to one loop
                await asyncio.sleep(_WAIT_S)
            try:
                yield
            finally:
                slot.lock.release()
        finally:
            with self._guard:
                slot.users -= 1
                if not slot.users and slot.window is None:
                    del self._slots[session_id]

    async def _close_oldest(self, kept: int) -> None:
        with self._guard:
            oldest = [*self._slots.items()][: max(len(self._slots) - kept, 0)]
            oldest = [(session_id, slot) for session_id, slot in oldest if not slot.users]
            for _, slot in oldest:
                slot.users += 1
        for session_id, slot in oldest:
            async with self._held(session_id, slot):
                window, slot.window = slot.window, None
                if window is not None:
                    with suppress(BuoylineError):  # only the last usage is lost, as if another process goes on
                        await window.close()


@dataclass(slots=True)
class _Slot:
    """The place of a session: *users* have its window, or wait for its lock."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    users: int = 0
    window: ContextWindow | None = None


__all__ = ["WindowPool", "run_sync"]
