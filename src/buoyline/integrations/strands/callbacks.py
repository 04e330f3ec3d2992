"""Calls of users' code, which may raise anything, in places where an exception must not end an agent's call.

Each catch is broad, but surrounds that one call: a mistake in our own code is not hidden. The error that is raised
instead is documented at the caller.
"""

import asyncio
import contextvars
import errno
import inspect
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, TypeVar

from buoyline.compression import CallableSummarizer, Draft, ModelSummarizer, Summarizer, SummaryRequest
from buoyline.compression.summarizers.callables import SummaryFunction, summarizer_from
from buoyline.errors import BuoylineError, ConfigError, MessageError, StorageError, SummaryError
from buoyline.management import ContextManagement
from buoyline.management.custom import CustomManager, Reducer
from buoyline.management.model import ManagerEntry
from buoyline.offloader import Abilities, Offloader
from buoyline.offloader.protocol import abilities_of
from buoyline.tokens import TextCounter, TokenCounter
from buoyline.tokens.counter import BisectingCounter
from buoyline.tokens.o200k import counter_of
from buoyline.window.events import Event, OnEvent


class _Users:
    """Surrounds code of users: raises its exceptions as errors of ours. Errors of ours are raised as they are."""

    def __init__(self, made: Callable[[Exception], BuoylineError]) -> None:
        self._made = made

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if isinstance(error, Exception) and not isinstance(error, BuoylineError):
            raise self._made(error) from error


def guarded_offloader(offloader: Offloader) -> Offloader:
    """Return *offloader* so that it raises `StorageError`.

    An offloader with abilities beyond the two methods is returned itself: the abilities document its errors.
    """
    return _GuardedOffloader(offloader) if abilities_of(offloader) == Abilities() else offloader


def guarded_counter(counter: TokenCounter | Callable[[str], int] | None) -> TextCounter:
    """Return a counter that raises `MessageError` if *counter*, which only counts, raises anything.

    Some tokenizers refuse texts with one of their special tokens. A counter that answers all questions itself is
    returned as it is; for None, the default counter.

    Raises:
        ConfigError: *counter* cannot count.
    """
    found = counter_of(counter)
    return BisectingCounter(_GuardedCount(found)) if isinstance(found, BisectingCounter) else found


def guarded_summarizer(summarizer: Summarizer | SummaryFunction) -> Summarizer:
    """Return a summarizer that raises `SummaryError` if *summarizer* raises anything: then another one writes.

    Those of buoyline that ask a model do so already.

    Raises:
        ConfigError: *summarizer* is of a wrong type.
    """
    found = summarizer_from(summarizer)
    return found if isinstance(found, (CallableSummarizer, ModelSummarizer)) else _GuardedSummarizer(found)


def guarded_listener(on_event: OnEvent) -> OnEvent:
    """Return a listener that raises `ConfigError` if *on_event* raises anything."""

    def listen(event: Event) -> None:
        with _Users(lambda error: ConfigError("on_event", f"failed at {type(event).__name__}: {error!r}")):
            on_event(event)

    return listen


def guarded_management(management: ContextManagement) -> ContextManagement:
    """Return *management* with users' managers that raise `ConfigError` if they raise anything."""

    def guarded(entry: ManagerEntry) -> ManagerEntry:
        manager = entry.manager
        if not isinstance(manager, CustomManager):
            return entry
        return replace(entry, manager=replace(manager, reducer=_GuardedReducer(manager.type_name, manager.reducer)))

    hooks = {hook: tuple(map(guarded, entries)) for hook, entries in management.hooks.items()}
    return management.model_copy(update={"hooks": hooks})


@dataclass(frozen=True, slots=True)
class _GuardedReducer:
    name: str
    reducer: Reducer

    async def reduce(self, messages: list[Any]) -> bool:
        with _Users(lambda failure: ConfigError(self.name, f"failed: {failure!r}")):
            answer = self.reducer.reduce(messages)
            return await answer if inspect.isawaitable(answer) else answer


@dataclass(frozen=True, slots=True)
class _GuardedOffloader:
    offloader: Offloader

    async def offload_context(self, session_id: str, msgs: list[Any], **kwargs: Any) -> str:
        with _Users(_refused):
            return await self.offloader.offload_context(session_id, msgs, **kwargs)

    async def offload_tool_result(self, session_id: str, tool_result: Any, **kwargs: Any) -> str:
        with _Users(_refused):
            return await self.offloader.offload_tool_result(session_id, tool_result, **kwargs)


@dataclass(frozen=True, slots=True)
class _GuardedCount:
    counter: TextCounter

    def __call__(self, text: str) -> int:
        with _Users(lambda error: MessageError(f"the counter failed at {len(text):,} characters: {error!r}")):
            return self.counter.count(text)


@dataclass(frozen=True, slots=True)
class _GuardedSummarizer:
    summarizer: Summarizer

    async def summarize(self, request: SummaryRequest) -> Draft:
        with _Users(lambda error: SummaryError(type(self.summarizer).__name__, repr(error))):
            return await self.summarizer.summarize(request)


def _refused(error: Exception) -> StorageError:
    return StorageError(errno.EIO, f"the offloader failed: {error!r}")


# Asynchronous work in a synchronous call of Strands', in the middle of its event loop.

T = TypeVar("T")


def run_apart(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run *work* in a thread and an event loop of its own, and wait for it.

    The caller's loop, if one runs, is blocked meanwhile. Context variables are the caller's.

    Raises:
        Exception: Whatever *work* raises.
    """
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="buoyline-strands") as pool:
        return pool.submit(contextvars.copy_context().run, lambda: asyncio.run(work())).result()
