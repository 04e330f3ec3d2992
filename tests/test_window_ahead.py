"""Compressions that are made ready in the background, whatever comes between their steps."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from thirds import examples
from window_forms import FORMS, Form, picture, spelled, words

from buoyline import ContextConfig, ContextWindow, LocalWorkspace, MemoryWorkspace
from buoyline.compression import Draft, SummaryRequest
from buoyline.compression.plan import legal_cut_before
from buoyline.errors import ConfigError, ContextOverflowError, StaleWindowError, StorageError
from buoyline.messages.registry import dialect_named
from buoyline.window import ContextCompressed, Event, MessagesArchived

SIZE = 4_000
FORM = FORMS[0]


@dataclass
class Gate:
    """A summariser that answers when it may: a model that is asked while the agent waits for its own."""

    asked: int = 0
    failure: Exception | None = None
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)

    async def summarize(self, request: SummaryRequest) -> Draft:
        self.asked += 1
        await self.may_answer.wait()
        if self.failure is not None:
            raise self.failure
        return Draft("gate", dict.fromkeys(request.fields, f"Written at {self.asked}."))


@pytest.fixture
async def workspace(tmp_path: Path) -> AsyncIterator[LocalWorkspace]:
    async with LocalWorkspace(tmp_path, durability="off") as opened:
        yield opened


def opened(workspace: Any, gate: Gate | None = None, **options: Any) -> ContextWindow:
    config = options.pop("config", ContextConfig(background_ratio=0.5))
    return ContextWindow(session_id="s1", offloader=workspace, size=SIZE, config=config, summarizer=gate, **options)


async def fill(window: ContextWindow, ratio: float) -> list[Any]:
    """Add messages until *window* is full to *ratio*."""
    sent: list[Any] = []
    while window.tokens <= ratio * window.size:
        sent.append(FORM.user(f"number {window.added}: {words(40)}"))
        await window.add(sent[-1])
    return sent


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not is_so():
            await asyncio.sleep(0.001)


async def archived(workspace: Any, window: ContextWindow) -> list[Any]:
    first = window._context.whole.messages.first
    return [message for _, message in await workspace.load_messages("s1", 0, first)] if first else []


async def test_it_is_ready_before_it_is_needed_and_put_in_place_in_one_step(workspace: LocalWorkspace) -> None:
    events: list[Event] = []
    gate = Gate()
    window = opened(workspace, gate, on_event=events.append)
    sent = await fill(window, 0.6)
    first = await window.prepare()
    await until(lambda: gate.asked == 1)
    assert all(found is message for found, message in zip(first, sent, strict=True)), "nothing has changed yet"
    gate.may_answer.set()
    sent += await fill(window, 0.7)
    assert spelled(await window.prepare())[: len(first)] == spelled(first), "nor while there is room"
    sent += await fill(window, 0.85)
    prepared = await window.prepare()

    assert gate.asked == 1
    assert window.tokens < 0.8 * SIZE
    assert await archived(workspace, window) + prepared[1:] == sent, "what was added meanwhile stays"
    (told,) = [event for event in events if isinstance(event, ContextCompressed)]
    assert told.in_background
    assert told.summary.number == 1
    assert [line["messages"] for line in await workspace.load_summaries("s1")] == [list(told.summary.messages)]


async def test_adding_never_waits_and_a_prepare_with_room_does_not_either(workspace: LocalWorkspace) -> None:
    window = opened(workspace, Gate())
    await fill(window, 0.6)
    await window.prepare()
    for _ in range(3):
        await asyncio.wait_for(window.add(FORM.user("more")), 5)
        await asyncio.wait_for(window.prepare(), 5)
    await window.close()


async def test_a_prepare_that_needs_it_waits_for_the_one_that_is_under_way(workspace: LocalWorkspace) -> None:
    gate = Gate()
    window = opened(workspace, gate)
    await fill(window, 0.6)
    await window.prepare()
    await fill(window, 0.85)
    waiting = asyncio.create_task(window.prepare())
    await until(lambda: gate.asked == 1)
    await asyncio.sleep(0.01)
    assert not waiting.done()
    gate.may_answer.set()
    assert "Written at 1." in str((await waiting)[0])
    assert gate.asked == 1


async def test_a_caller_who_gives_up_waiting_leaves_it_under_way(workspace: LocalWorkspace) -> None:
    gate = Gate()
    window = opened(workspace, gate)
    await fill(window, 0.6)
    await window.prepare()
    await fill(window, 0.85)
    before = window.messages
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(window.prepare(), 0.05)
    assert window.messages == before
    gate.may_answer.set()
    await window.prepare()
    assert gate.asked == 1


async def test_one_that_failed_is_logged_and_the_ordinary_way_is_gone(
    workspace: LocalWorkspace, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate(failure=ConnectionError("down"))
    gate.may_answer.set()
    window = opened(workspace, gate)
    sent = await fill(window, 0.6)
    with caplog.at_level(logging.WARNING, "buoyline"):
        await window.prepare()
        await until(lambda: "in the background failed: ConnectionError" in caplog.text)
    for _ in range(3):
        await window.prepare()
    assert gate.asked == 1, "a provider that is down is not asked before each call"
    sent += await fill(window, 0.85)
    with pytest.raises(ConnectionError):
        await window.prepare()
    gate.failure = None
    prepared = await window.prepare()
    assert await archived(workspace, window) + prepared[1:] == sent
    await fill(window, 0.6)
    await window.prepare()
    await until(lambda: gate.asked == 4)
    await window.close()


async def test_closing_ends_it_and_what_it_archived_is_used(workspace: LocalWorkspace) -> None:
    gate = Gate()
    window = opened(workspace, gate)
    sent = await fill(window, 0.6)
    await window.prepare()
    await until(lambda: gate.asked == 1)
    await window.close()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    gate.may_answer.set()
    sent += await fill(window, 0.85)
    prepared = await window.prepare()
    assert await archived(workspace, window) + prepared[1:] == sent


async def test_it_can_be_begun_by_hand_at_any_time(workspace: LocalWorkspace) -> None:
    window = opened(workspace, config=ContextConfig())
    assert not await window.compress_ahead(), "nothing may leave"
    sent = await fill(window, 0.3)
    assert await window.compress_ahead()
    assert await window.compress_ahead(), "one is enough"
    sent += await fill(window, 0.85)
    prepared = await window.prepare()
    assert await archived(workspace, window) + prepared[1:] == sent
    assert [line["n"] for line in await workspace.load_summaries("s1")] == [1]


async def test_what_is_asked_for_in_words_is_not_answered_with_what_was_ready(workspace: LocalWorkspace) -> None:
    gate = Gate()
    gate.may_answer.set()
    window = opened(workspace, gate)
    sent = await fill(window, 0.6)
    await window.prepare()
    await until(lambda: window._engine.background.task is not None and window._engine.background.task.done())
    summary = await window.compress(force=True, focus="the numbers")
    assert summary is not None
    assert gate.asked == 2
    assert summary.messages[0] == 0
    assert await archived(workspace, window) + window.messages[1:] == sent


async def test_compressing_without_a_wish_takes_what_is_ready(workspace: LocalWorkspace) -> None:
    gate = Gate()
    gate.may_answer.set()
    window = opened(workspace, gate)
    await fill(window, 0.6)
    await window.prepare()
    await fill(window, 0.85)
    assert await window.compress() is not None
    assert gate.asked == 1


async def test_after_an_overflow_what_is_ready_is_used_and_nothing_is_waited_for(workspace: LocalWorkspace) -> None:
    gate = Gate()
    window = opened(workspace, gate)
    sent = await fill(window, 0.6)
    await window.prepare()
    await until(lambda: gate.asked == 1)
    before = window.tokens
    messages = await asyncio.wait_for(window.recover_from_overflow(), 30)
    assert window.tokens <= 0.9 * before
    assert await archived(workspace, window) + messages[1:] == sent


async def test_a_failed_write_while_it_is_put_in_place_leaves_it_ready(
    workspace: LocalWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    gate.may_answer.set()
    window = opened(workspace, gate)
    sent = await fill(window, 0.6)
    await window.prepare()
    sent += await fill(window, 0.85)

    async def refuse(*_: Any, **__: Any) -> int:
        raise StorageError(5, "broken", "somewhere")

    for method in ("append_summary", "replace_window"):
        with monkeypatch.context() as broken:
            broken.setattr(workspace, method, refuse)
            with pytest.raises(StorageError):
                await window.prepare()
        assert window.messages == sent
    prepared = await window.prepare()
    assert gate.asked == 1
    assert await archived(workspace, window) + prepared[1:] == sent
    assert [line["n"] for line in await workspace.load_summaries("s1")] == [1]


def test_one_whose_event_loop_has_ended_is_forgotten(tmp_path: Path) -> None:
    workspace, gate = LocalWorkspace(tmp_path, durability="off"), Gate()
    window = opened(workspace, gate)
    sent = asyncio.run(fill(window, 0.6))
    asyncio.run(window.prepare())
    gate.may_answer = asyncio.Event()
    gate.may_answer.set()
    sent += asyncio.run(fill(window, 0.85))
    prepared = asyncio.run(window.prepare())
    assert asyncio.run(archived(workspace, window)) + prepared[1:] == sent

    loop = asyncio.new_event_loop()
    sent_later = loop.run_until_complete(fill(window, 0.6))
    gate.may_answer = asyncio.Event()
    loop.run_until_complete(window.prepare())
    task = window._engine.background.task
    assert task is not None
    gate.may_answer.set()
    sent_later += asyncio.run(fill(window, 0.85))
    gate.may_answer = asyncio.Event()
    gate.may_answer.set()
    asyncio.run(window.prepare())
    assert not task.done()
    task.cancel()
    loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
    loop.close()
    held = asyncio.run(archived(workspace, window)) + [entry.native for entry in window._context.whole.messages]
    assert held == sent + sent_later


async def test_a_window_that_was_taken_over_archives_nothing_behind_the_others_back(workspace: LocalWorkspace) -> None:
    first = opened(workspace, config=ContextConfig())
    sent = await fill(first, 0.6)
    await first.prepare()
    second = await ContextWindow.resume(workspace, "s1")
    await first.compress_ahead()
    await until(lambda: first._engine.background.task is not None and first._engine.background.task.done())
    with pytest.raises(StaleWindowError):
        await first.compress(force=True)
    assert not (workspace.workdir / "sessions/s1/context.jsonl").read_bytes()
    await second.compress(force=True)
    assert await archived(workspace, second) + second.messages[1:] == sent


async def test_what_a_hook_raises_in_the_background_is_logged_and_raised_by_the_next(
    workspace: LocalWorkspace, caplog: pytest.LogCaptureFixture
) -> None:
    is_broken = True

    def hook(event: Event) -> None:
        if is_broken and isinstance(event, MessagesArchived):
            raise RuntimeError("full")

    window = opened(workspace, on_event=hook)
    sent = await fill(window, 0.6)
    await window.prepare()
    await until(lambda: window._engine.background.task is not None and window._engine.background.task.done())
    await asyncio.sleep(0)
    assert "in the background failed: RuntimeError" in caplog.text
    sent += await fill(window, 0.85)
    with pytest.raises(RuntimeError, match="full"):
        await window.prepare()
    is_broken = False
    prepared = await window.prepare()
    assert await archived(workspace, window) + prepared[1:] == sent


@pytest.mark.parametrize("ratio", [0, -0.1, 0.8, 0.9, "half", True])
def test_a_share_that_cannot_work_is_refused(ratio: Any) -> None:
    with pytest.raises(ConfigError, match="background_ratio"):
        ContextConfig(background_ratio=ratio)


steps = st.one_of(
    st.tuples(st.sampled_from(["small", "large", "call", "answer", "pinned", "picture", "system"]), st.none()),
    st.tuples(st.sampled_from(["prepare", "compress"]), st.integers(0, 12)),
    st.tuples(st.just("tick"), st.integers(1, 9)),
    st.tuples(st.just("prepare"), st.none()),
    st.tuples(st.sampled_from(["save", "ahead", "request", "open", "shut", "fail", "overflow"]), st.none()),
    st.tuples(st.sampled_from(["killed", "close"]), st.none()),
)


@settings(examples(20, 60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(script=st.lists(steps, min_size=10, max_size=70), form=st.sampled_from(FORMS), on_disk=st.booleans())
def test_every_interleaving_keeps_every_promise(
    tmp_path_factory: pytest.TempPathFactory, script: list[tuple[str, int | None]], form: Form, *, on_disk: bool
) -> None:
    folder = tmp_path_factory.mktemp("w")
    workspace = LocalWorkspace(folder, durability="off") if on_disk else MemoryWorkspace()
    asyncio.run(Life(workspace, form).run(script))


class Life:
    """What happens to one session, with a check of all promises after each step."""

    def __init__(self, workspace: Any, form: Form) -> None:
        self.workspace, self.form, self.gate = workspace, form, Gate()
        self.sent: list[Any] = []
        self.unsaved: list[Any] = []
        self.shown: list[str] = []
        self.shown_first = 0
        self.calls = 0
        self.parted: list[int] = []
        self.window = self._begin()

    def _note(self, event: Event) -> None:
        if isinstance(event, ContextCompressed):
            cut = event.summary.messages[1]
            views = [dialect_named(self.form.name).view(message) for message in self.sent]
            if legal_cut_before(views, cut) != cut:
                self.parted.append(cut)

    def _begin(self) -> ContextWindow:
        config = ContextConfig(background_ratio=0.4, tool_result_limit=400, preview_tokens=250, max_images=4)
        return opened(
            self.workspace, self.gate, config=config, dialect=self.form.name, max_output_tokens=200, on_event=self._note
        )

    async def run(self, script: list[tuple[str, int | None]]) -> None:
        for step, number in script:
            await getattr(self, f"_{step}")(number) if hasattr(self, f"_{step}") else await self._added(step)
            self._check_memory()
        self.gate.failure = None
        self.gate.may_answer.set()
        await self._prepare()
        await self._check_disk()
        await self.window.close()
        resumed = await ContextWindow.resume(self.workspace, "s1")
        assert spelled(resumed.messages) == spelled(self.window.messages)
        if isinstance(self.workspace, LocalWorkspace):
            await self.workspace.close()

    async def _added(self, kind: str) -> None:
        form, number = self.form, len(self.sent)
        if kind == "call":
            self.calls += 1
            messages = [form.calling(f"c{self.calls}", f"d{self.calls}", thinking=words(number % 7))]
        elif kind == "answer":
            texts = {f"c{self.calls}": [words(number * 13 % 400)], f"d{self.calls}": ["ok"]}
            messages = form.answering(texts)
        elif kind == "picture":
            messages = [form.user(words(5), picture(number))]
        elif kind == "system" and form.name == "openai":
            messages = [{"role": "system", "content": f"rule {number}"}] if number < 3 else []
        else:
            messages = [form.user(f"{number}: {words({'large': 300, 'small': 30}.get(kind, 10))}")]
        for message in messages:
            is_pinned = kind == "pinned" and number % 4 == 0
            await self.window.add(message, pinned=is_pinned)
            self.sent.append(message)

    async def _tick(self, count: Any) -> None:
        for _ in range(count):
            await asyncio.sleep(0.001 if count % 3 == 0 else 0)

    async def _prepare(self, patience: Any = None) -> None:
        """Prepare, or give up after so many rounds of the event loop."""
        prepared = await self._tried(self.window.prepare(), patience)
        if prepared is not None:
            self._check_shown(prepared)
            await self._check_disk()

    async def _compress(self, patience: Any = None) -> None:
        await self._tried(self.window.compress(force=True), patience)

    async def _save(self, _: Any) -> None:
        await self.window.save()

    async def _ahead(self, _: Any) -> None:
        await self.window.compress_ahead()

    async def _request(self, _: Any) -> None:
        self.window.request_compression()

    async def _overflow(self, _: Any) -> None:
        """Recover: only then may what was handed out be shown shorter, since the provider took none of it."""
        recovered = await self._tried(self.window.recover_from_overflow(), None)
        if recovered is not None:
            self.shown, self.shown_first = spelled(recovered), self.window._context.whole.messages.first

    async def _open(self, _: Any) -> None:
        self.gate.failure = None
        self.gate.may_answer.set()

    async def _shut(self, _: Any) -> None:
        self.gate.may_answer.clear()

    async def _fail(self, _: Any) -> None:
        self.gate.failure = ConnectionError("down")
        self.gate.may_answer.set()

    async def _close(self, _: Any) -> None:
        await self.window.close()

    async def _killed(self, _: Any) -> None:
        """Let another process go on: what was in memory only is gone, and a task of the old one ends anywhere."""
        if not self.window._is_open:
            return
        old = self.window
        if old._engine.background.task is not None and len(self.sent) % 2:
            old._engine.background.task.cancel()
            await asyncio.gather(old._engine.background.task, return_exceptions=True)
        await old.close()
        self.window = await ContextWindow.resume(self.workspace, "s1", summarizer=self.gate, on_event=self._note)
        assert self.window.added <= len(self.sent)
        del self.sent[self.window.added :]
        assert spelled(self.window.messages) == spelled(self._standing(old, self.window.added))

    def _standing(self, window: ContextWindow, added: int) -> list[Any]:
        """Return what *window* has that was written down."""
        state = window._context.state
        assert added == state.messages.end
        return [entry.native for entry in (*state.leading, *state.messages)]

    async def _tried(self, call: Any, patience: int | None) -> Any:
        task = asyncio.ensure_future(call)
        if patience is None and not self.gate.may_answer.is_set():
            patience = 200
        if patience is not None:
            for _ in range(patience):
                await asyncio.sleep(0)
            task.cancel()
        try:
            return await task
        except (ConnectionError, ContextOverflowError, asyncio.CancelledError):
            return None

    def _check_shown(self, prepared: list[Any]) -> None:
        """What was handed out looks the same, until a compression or pictures that are too many."""
        first, shown = self.window._context.whole.messages.first, spelled(prepared)
        if first == self.shown_first and "[image: " not in "".join(shown):
            assert shown[: len(self.shown)] == self.shown
        self.shown, self.shown_first = shown, first
        window = self.window
        assert window.tokens + window.max_output_tokens <= window.size or window.exceeding()
        pinned = window._context.whole.prefix.images + sum(e.images for e in window._context.whole.messages if e.stays)
        assert window._context.whole.messages.images + window._context.whole.prefix.images <= 4 + pinned

    def _check_memory(self) -> None:
        """Each message once, in order, and no call without its result."""
        state = self.window._context.whole
        first, attempted = state.messages.first, state.attempted_until
        assert first <= state.archived_until <= attempted <= max(state.messages.end, attempted)
        kept = [entry.native for entry in state.messages]
        assert len(kept) == len(self.sent) - first
        for found, message in zip(kept, self.sent[first:], strict=True):
            assert _same(found, message)
        assert not self.parted

    async def _check_disk(self) -> None:
        window = self.window
        state = await self.workspace.load_window("s1")
        standing = self._standing(window, window._context.state.messages.end)
        assert spelled([message for _, message in state.messages]) == spelled(standing)
        summaries = [tuple(line["messages"]) for line in await self.workspace.load_summaries("s1")]
        assert [start for start, _ in summaries] == [0, *(end for _, end in summaries[:-1])][: len(summaries)]
        stored = await self.workspace.load_messages("s1", 0, 1 << 30) if window._context.state.archived_until else []
        assert len(stored) >= window._context.whole.messages.first
        for (_, found), message in zip(stored, self.sent, strict=False):
            assert _same(found, message)


def _same(found: Any, message: Any) -> bool:
    """Tell whether *found* is *message*, or what stands for it where parts of it have left."""
    return spelled([found]) == spelled([message]) or any(mark in str(found) for mark in ("offloaded", "[image: "))


async def test_a_summary_made_ready_before_a_late_result_came_is_dropped_with_the_pair_whole(
    workspace: LocalWorkspace,
) -> None:
    """The user has spoken since the call, so that it could leave without a result; now it has one."""
    gate = Gate()
    window = opened(workspace, gate)
    await window.add(FORM.calling("late"))
    await fill(window, 0.55)
    await window.prepare()
    await until(lambda: gate.asked == 1)
    for message in FORM.answering({"late": ["here at last"]}):
        await window.add(message)
    gate.may_answer.set()
    await fill(window, 0.85)
    await window.prepare()
    kept = [entry.message for entry in window._context.whole.messages]
    calls = [call.call_id for message in kept for call in message.calls]
    assert calls == [result.call_id for message in kept for result in message.results]


async def test_a_compaction_that_goes_less_far_than_an_archived_one_archives_nothing_twice(
    workspace: LocalWorkspace,
) -> None:
    """A late result takes its call out of the compaction, and is not on disk yet itself."""
    gate = Gate()
    window = opened(workspace, gate)
    sent: list[Any] = [FORM.user("before the call"), FORM.calling("late")]
    for message in sent:
        await window.add(message)
    sent += await fill(window, 0.6)
    await window.prepare()
    await until(lambda: gate.asked == 1)
    archived_until = window._context.state.archived_until
    sent += await fill(window, 0.85)
    waiting = asyncio.create_task(window.prepare())
    await until(lambda: not window._context.inbox)
    for message in [*FORM.answering({"late": ["here at last"]}), FORM.user("thanks")]:
        await window.add(message)
        sent.append(message)
    gate.may_answer.set()
    await waiting

    assert archived_until > 1
    assert [line["messages"] for line in await workspace.load_summaries("s1")] == [[0, 1]], "it ends before the call"
    sent += await fill(window, 0.7)
    await window.compress(force=True)
    assert await archived(workspace, window) + window.messages[1:] == sent


async def test_after_a_failure_in_the_background_the_model_is_not_asked_before_each_call(
    workspace: LocalWorkspace,
) -> None:
    gate = Gate(failure=ConnectionError("down"))
    gate.may_answer.set()
    window = opened(workspace, gate)
    await fill(window, 0.6)
    for _ in range(3):
        await window.prepare()
        begun = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*begun, return_exceptions=True)

    assert gate.asked == 1
