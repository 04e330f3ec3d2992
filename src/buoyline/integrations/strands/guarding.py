"""Calling what the user has brought, which may raise anything, where that must not end an agent's call.

Each catch is broad, and around that one call alone: what our own code raises by mistake comes through. What is raised
instead is documented to be raised there.
"""

import errno
import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from buoyline.compression import CallableSummarizer, Draft, ModelSummarizer, Summarizer, SummaryFunction, SummaryRequest
from buoyline.compression.summarizers import summarizer_from
from buoyline.errors import BuoylineError, ConfigError, MessageError, StorageError, SummaryError
from buoyline.management import ContextManagement, Entry, Reducer
from buoyline.management.custom import Custom
from buoyline.offloader import Abilities, Offloader, abilities_of
from buoyline.tokens import TextCounter, TokenCounter, as_text_counter, default_counter
from buoyline.tokens.bisection import BisectingCounter
from buoyline.window.events import Event, OnEvent


def guarded_offloader(offloader: Offloader) -> Offloader:
    """Return *offloader* so that what it raises is a `StorageError`.

    One with abilities beyond the two methods is returned itself: its errors are those that the abilities document.
    """
    return _GuardedOffloader(offloader) if abilities_of(offloader) == Abilities() else offloader


def guarded_counter(counter: TokenCounter | Callable[[str], int] | None) -> TextCounter:
    """Return a counter that raises a `MessageError` where *counter*, which only counts, raises anything.

    Tokenizers do: some refuse texts that hold one of their special tokens. One that answers all questions itself is
    returned as it is; None stands for the default one.

    Raises:
        TypeError: *counter* cannot count.
    """
    if counter is None:
        return default_counter()
    found = as_text_counter(counter)
    return BisectingCounter(_GuardedCount(found)) if isinstance(found, BisectingCounter) else found


def guarded_summarizer(summarizer: Summarizer | SummaryFunction) -> Summarizer:
    """Return a summariser that raises a `SummaryError` where *summarizer* raises anything: then another one writes.

    Those of buoyline that ask somebody do so already.

    Raises:
        ConfigError: *summarizer* is none.
    """
    found = summarizer_from(summarizer)
    return found if isinstance(found, (CallableSummarizer, ModelSummarizer)) else _GuardedSummarizer(found)


def guarded_listener(on_event: OnEvent) -> OnEvent:
    """Return a listener that raises a `ConfigError` where *on_event* raises anything."""

    def listen(event: Event) -> None:
        try:
            on_event(event)
        except Exception as error:
            raise ConfigError("on_event", f"failed when told of {type(event).__name__}: {error!r}") from error

    return listen


def guarded_management(management: ContextManagement) -> ContextManagement:
    """Return *management* with managers of a user's own that raise a `ConfigError` where they raise anything."""
    hooks = {hook: tuple(map(_guarded_entry, entries)) for hook, entries in management.hooks.items()}
    return management.model_copy(update={"hooks": hooks})


def _guarded_entry(entry: Entry) -> Entry:
    manager = entry.manager
    if not isinstance(manager, Custom):
        return entry
    return replace(entry, manager=replace(manager, reducer=_GuardedReducer(manager.type_name, manager.reducer)))


@dataclass(frozen=True, slots=True)
class _GuardedReducer:
    name: str
    reducer: Reducer

    async def reduce(self, messages: list[Any], *, error: BaseException | None = None) -> bool:
        try:
            answer = self.reducer.reduce(messages, error=error)
            return await answer if inspect.isawaitable(answer) else answer
        except Exception as failure:
            raise ConfigError(self.name, f"failed: {failure!r}") from failure


@dataclass(frozen=True, slots=True)
class _GuardedOffloader:
    offloader: Offloader

    async def offload_context(self, session_id: str, msgs: list[Any], **kwargs: Any) -> str:
        try:
            return await self.offloader.offload_context(session_id, msgs, **kwargs)
        except BuoylineError:
            raise
        except Exception as error:
            raise _refused(error) from error

    async def offload_tool_result(self, session_id: str, tool_result: Any, **kwargs: Any) -> str:
        try:
            return await self.offloader.offload_tool_result(session_id, tool_result, **kwargs)
        except BuoylineError:
            raise
        except Exception as error:
            raise _refused(error) from error


@dataclass(frozen=True, slots=True)
class _GuardedCount:
    counter: TextCounter

    def __call__(self, text: str) -> int:
        try:
            return self.counter.count(text)
        except Exception as error:
            raise MessageError(f"the counter failed at a text of {len(text):,} characters: {error!r}") from error


@dataclass(frozen=True, slots=True)
class _GuardedSummarizer:
    summarizer: Summarizer

    async def summarize(self, request: SummaryRequest) -> Draft:
        try:
            return await self.summarizer.summarize(request)
        except SummaryError:
            raise
        except Exception as error:
            raise SummaryError(type(self.summarizer).__name__, repr(error)) from error


def _refused(error: Exception) -> StorageError:
    return StorageError(errno.EIO, f"the offloader failed: {error!r}")
