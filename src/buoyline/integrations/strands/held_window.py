"""A window that begins with the context of a framework, for frameworks that keep more than a list of messages.

`ContextWindow.follow` is enough for a list of messages; see `buoyline.window.follower`.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from buoyline.compression import Summary
from buoyline.errors import NotFoundError, SessionExistsError
from buoyline.messages import spell
from buoyline.messages.jsonl import parse
from buoyline.messages.registry import dialect_named
from buoyline.offloader import WindowState
from buoyline.offloader.stub import is_stub
from buoyline.offloader.transcript import is_reference_line
from buoyline.window.context import (
    NOTICE,
    PIN,
    SUMMARY,
    Replace,
    indexed,
    kind_of,
    state_of,
    stored_summary,
    stubs_in,
)
from buoyline.window.state import Entry, Messages, State, entry_of, view_of
from buoyline.window.window import ContextWindow


@dataclass(frozen=True, slots=True)
class HeldContext:
    """A context, for a framework that keeps it.

    Attributes:
        head: The prefix, each message with its kind: ``"pin"``, ``"summary"``, ``"notice"``, or
            ``"again:<session index>"``.
        messages: The other messages, in order.
        first: Session index of the first of them.
        pins: Session indexes of pinned messages, ascending; those of the pins in *head* come first.
        summary: The facts of the summary in *head*.
    """

    head: Sequence[tuple[str, Any]] = ()
    messages: Sequence[Any] = ()
    first: int = 0
    pins: Sequence[int] = ()
    summary: Summary | None = None


class HeldWindow(ContextWindow):
    """A `ContextWindow` that begins with the context of a framework, and returns what that becomes."""

    _records_stubs_late = False  # the framework's own list holds them, even if no window is written

    @property
    def held(self) -> HeldContext:
        """The context, with the messages that were added since the last `prepare`."""
        state = self._context.whole
        return HeldContext(
            [(kind_of(entry), entry.native) for entry in state.leading],
            [entry.native for entry in state.messages],
            state.messages.first,
            sorted(state.pins),
            None if state.summary is None else state.summary.summary,
        )

    def send_beside(self, system: Any, tools: Sequence[Any]) -> None:
        """Count this system prompt and these tools from now on; a framework may change them at any time."""
        self._context.budget.send_beside(system, list(tools))

    async def add(self, message: Any, *, pinned: bool = False, offload: bool = False) -> None:
        """Add a message; see `ContextWindow.add`.

        The window then knows the stubs in its results that another part of the framework has made.
        """
        await super().add(message, pinned=pinned, offload=offload)
        texts = self._context.inbox[-1].message.result_texts
        stubs = [text for text in texts if is_stub(text) or is_reference_line(text)]
        if stubs and self._abilities.results is not None:
            with suppress(NotFoundError):  # nothing was ever stored in the session
                self._engine.results.stubs.update(await self._abilities.results.load_stubs(self.session_id, stubs))

    async def adopt(self, held: HeldContext, key_of: Callable[[Mapping[str, Any]], str]) -> int:
        """Take over a context, which has to be of the window's dialect.

        If the archive is ahead of it and holds its messages, as after a kill before the framework saved, these are not
        archived again. If the archive holds others, as after a return to an older state, the messages continue after
        them. Stubs that the window had on disk are restored, and so are the facts of the summary.

        *key_of* returns the id that a message keeps for life; empty for a message without one.

        Returns:
            The session index of the first message.

        Raises:
            BuoylineError: The offloader refused; the window may be asked again.
        """
        # Strands' plugin counts the turns of a workspace in memory: counted twice, what it keeps would go too soon.
        self._abilities = replace(self._abilities, turns=None)
        before = await self._taken_over()
        held, archived = await self._placed(held, key_of)
        held = await self._restored(held, before, key_of)
        state = replace(await asyncio.to_thread(self._state_of, held), archived_until=archived)
        stubs = self._engine.results.stubs
        stubs.update(await stubs_in(state, self._abilities, self.session_id))
        stubs.update(self._context.planner.recall(state.messages))
        self._context.begin(state)
        self._context.budget.usage.drop()
        await self._context.log.apply(Replace(self._context.state))
        return state.messages.first

    async def _taken_over(self) -> WindowState | None:
        """Begin the session, or take it over and return its window; None if it had none."""
        log = self._abilities.windows
        try:
            await self._open()
        except SessionExistsError:
            if log is None:
                raise
        else:
            return None
        try:
            await log.claim_window(self.session_id, writer=self._context.log.writer)
            state = await log.load_window(self.session_id)
        except NotFoundError:  # the session has an archive but no window: this one keeps none, either
            self._context.log.log, state = None, None
        self._is_open = True
        return state

    async def _placed(self, held: HeldContext, key_of: Callable[[Mapping[str, Any]], str]) -> tuple[HeldContext, int]:
        """Return *held* with its indexes, and up to which index the archive holds its messages."""
        archive = self._abilities.archive
        if archive is None:
            return held, held.first
        count = (await archive.archive(self.session_id, [])).first
        if count < held.first:  # the archive has not its messages: what was reinserted is a message like any other
            ours = [(kind, native) for kind, native in held.head if kind in (SUMMARY, NOTICE)]
            others = [native for kind, native in held.head if kind not in (SUMMARY, NOTICE)]
            return replace(held, head=ours, messages=[*others, *held.messages], first=count, pins=()), count
        ahead = await archive.load_messages(self.session_id, held.first, count) if count > held.first else []
        if len(ahead) <= len(held.messages) and await asyncio.to_thread(self._are_same, ahead, held.messages, key_of):
            return held, count
        pins = [pin if pin < held.first else pin + count - held.first for pin in held.pins]
        return replace(held, first=count, pins=pins), count

    def _are_same(
        self, ahead: Sequence[tuple[str, dict[str, Any]]], natives: Sequence[Any], key_of: Callable[[Any], str]
    ) -> bool:
        dialect = dialect_named(self._dialect or "openai")
        return all(
            key_of(value) == key_of(native)
            if key_of(value) and key_of(native)
            else named == dialect.name and value == parse(spell(dialect.to_json(native)))
            for (named, value), native in zip(ahead, natives, strict=False)
        )

    async def _restored(
        self, held: HeldContext, before: WindowState | None, key_of: Callable[[Mapping[str, Any]], str]
    ) -> HeldContext:
        """Return *held* with the stubs that the window had on disk, and with all facts of its summary.

        A framework keeps only a few of those that the summary does not say.
        """
        if before is not None and self._abilities.results is not None:
            texts = set[str]().union(*(_texts_of(named, value) for named, value in before.messages))
            stubs = await self._abilities.results.load_stubs(self.session_id, sorted(texts)) if texts else {}
            if stubs:
                found = {
                    key_of(value): dialect_named(named).from_json(value)
                    for named, value in before.messages
                    if key_of(value) and _texts_of(named, value) & stubs.keys()
                }
                held = replace(held, messages=[found.get(key_of(message), message) for message in held.messages])
        if held.summary is not None:
            stored = await stored_summary(self._abilities, self.session_id, held.summary.text)
            if stored is not None and stored.draft.items:
                held = replace(held, summary=stored)
        return held

    def _state_of(self, held: HeldContext) -> State:
        def entry(native: Any, index: int, *, pinned: bool) -> Entry:
            return entry_of(native, index, self._context.budget.counter, dialect=self._dialect, pinned=pinned)

        kinds = indexed([kind for kind, _ in held.head], held.pins)
        prefix = [
            (kind, entry(native, index, pinned=kind == PIN))
            for (kind, index), (_, native) in zip(kinds, held.head, strict=True)
        ]
        entries = [
            entry(native, index, pinned=index in held.pins) for index, native in enumerate(held.messages, held.first)
        ]
        return state_of(prefix, Messages.of(entries, held.first), held.pins, lambda _: held.summary)


def _texts_of(dialect: str, value: Mapping[str, Any]) -> set[str]:
    return set(view_of(dialect, value).result_texts)
