"""A workspace and a plain model of lists and dicts go through the same calls, crashes and restarts, and stay equal."""

import asyncio
import base64
import shutil
import tempfile
from collections.abc import Awaitable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from buoyline.errors import NotFoundError, SessionExistsError, StaleWindowError
from buoyline.maintenance.verify import verify
from buoyline.messages import Text, ToolResult
from buoyline.workspace import LocalWorkspace

if TYPE_CHECKING:
    from buoyline.offloader import StoredResult

T = TypeVar("T")

SESSIONS = ("s", "S/../ö")
WRITERS = ("one", "two")

texts = st.sampled_from(["", "a", "b\nc", "long " * 300, "größer \u2028\x00\r\n", "x" * 1_500 + "\n{", "\ud800 half"])
contents = st.one_of(
    texts,
    st.sampled_from([b"", b"one", b"two" * 400]).map(
        lambda payload: [
            {"type": "text", "text": "see"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(payload).decode()}},
        ]
    ),
)
messages = st.builds(
    lambda role, content: {"role": role, "content": content}, st.sampled_from(["user", "assistant"]), contents
)
batches = st.lists(messages, min_size=1, max_size=4)
sessions = st.sampled_from(SESSIONS)
call_ids = st.sampled_from(["", "c", "C", "../c"])
garbage = st.one_of(
    st.binary(min_size=1, max_size=40).map(lambda content: content.replace(b"\n", b".")),
    st.sampled_from([b'{"role":"user","content":"half', b'{"op":"batch","id":', b"\0" * 600, b"{"]),
)


class Model:
    """What one session should hold."""

    def __init__(self) -> None:
        self.exists = False
        self.messages: list[Any] = []
        self.last: list[Any] | None = None
        """The last batch: the one that an equal call repeats."""
        self.results: dict[tuple[str, str], StoredResult] = {}
        self.stubs: dict[str, StoredResult] = {}
        self.summaries: list[dict[str, Any]] = []
        self.window: list[Any] | None = None
        self.head: tuple[str, ...] = ()
        self.first = 0
        self.pins: tuple[int, ...] = ()
        self.settings: dict[str, Any] = {}
        self.writer = ""


class Workspaces(RuleBasedStateMachine):
    """Two live workspaces on one root, either of which may be restarted, and a crash may leave half a write."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="states-"))
        self.loop = asyncio.new_event_loop()
        self.live = [self.made(), self.made()]
        self.models = {session: Model() for session in SESSIONS}

    def made(self) -> LocalWorkspace:
        return LocalWorkspace(self.root / "w", durability="off")

    def teardown(self) -> None:
        for workspace in self.live:
            self.run(workspace.close())
        self.run(self.loop.shutdown_default_executor())
        self.loop.close()
        shutil.rmtree(self.root)

    def run(self, call: Awaitable[T]) -> T:
        async def awaited() -> T:
            return await call

        return self.loop.run_until_complete(awaited())

    @initialize()
    def begin(self) -> None:
        self.run(self.live[0].initialize())

    @rule(which=st.integers(0, 1), session=sessions, batch=batches)
    def archive(self, which: int, session: str, batch: list[Any]) -> None:
        model = self.models[session]
        found = self.run(self.live[which].archive(session, batch))
        if model.last == batch:
            assert found.first == len(model.messages) - len(batch)
            return
        assert found.first == len(model.messages)
        model.last, model.exists = batch, True
        model.messages += batch

    @rule(which=st.integers(0, 1), session=sessions, call_id=call_ids, text=texts)
    def store_a_result(self, which: int, session: str, call_id: str, text: str) -> None:
        model = self.models[session]
        found = self.run(self.live[which].store_result(session, ToolResult(call_id, "tool", (Text(text),))))
        assert model.results.setdefault((call_id, text), found) == found
        model.exists = True

    @precondition(lambda self: any(model.results for model in self.models.values()))
    @rule(which=st.integers(0, 1), data=st.data(), text=st.sampled_from(["stub 1", "stub 2"]))
    def record_a_stub(self, which: int, data: st.DataObject, text: str) -> None:
        session = data.draw(st.sampled_from([session for session in SESSIONS if self.models[session].results]))
        model = self.models[session]
        stored = data.draw(st.sampled_from(list(model.results.values())))
        self.run(self.live[which].record_stub(session, text, stored))
        model.stubs.setdefault(text, stored)

    @rule(which=st.integers(0, 1), session=sessions, text=texts)
    def append_a_summary(self, which: int, session: str, text: str) -> None:
        model = self.models[session]
        number = self.run(self.live[which].append_summary(session, {"text": text}))
        model.summaries.append({"text": text, "n": number})
        model.exists = True

    @rule(which=st.integers(0, 1), session=sessions, size=st.integers(1, 9), writer=st.sampled_from(WRITERS))
    def start_the_window(self, which: int, session: str, size: int, writer: str) -> None:
        model = self.models[session]
        call = self.live[which].start_window(session, {"size": size}, writer=writer)
        if model.messages or (model.window is not None and writer != model.writer):
            with pytest.raises(SessionExistsError):
                self.run(call)
            return
        self.run(call)
        if model.window is None:
            model.window, model.settings, model.writer = [], {"size": size}, writer
            model.exists = True

    @precondition(lambda self: any(model.window is not None for model in self.models.values()))
    @rule(
        which=st.integers(0, 1), data=st.data(), batch=st.lists(messages, max_size=3), writer=st.sampled_from(WRITERS)
    )
    def change_the_window(self, which: int, data: st.DataObject, batch: list[Any], writer: str) -> None:
        begun = [session for session in SESSIONS if self.models[session].window is not None]
        session = data.draw(st.sampled_from(begun))
        model = self.models[session]
        assert model.window is not None
        pins = data.draw(st.lists(st.integers(0, 5), max_size=2))
        if data.draw(st.booleans()):
            call = self.live[which].extend_window(session, batch, pins, writer=writer)
            window, head, first = [*model.window, *batch], model.head, model.first
        else:
            head, first = ("summary",) * min(1, len(batch)), min(model.first + 1, len(model.messages))
            call = self.live[which].replace_window(session, batch, head, first, pins, writer=writer)
            window = batch
        if writer != model.writer:
            with pytest.raises(StaleWindowError):
                self.run(call)
            return
        self.run(call)
        model.window, model.head, model.first, model.pins = window, head, first, tuple(pins)

    @precondition(lambda self: any(model.window is not None for model in self.models.values()))
    @rule(which=st.integers(0, 1), data=st.data(), writer=st.sampled_from(WRITERS))
    def take_the_window_over(self, which: int, data: st.DataObject, writer: str) -> None:
        begun = [session for session in SESSIONS if self.models[session].window is not None]
        session = data.draw(st.sampled_from(begun))
        self.run(self.live[which].claim_window(session, writer=writer))
        self.models[session].writer = writer

    @rule(which=st.integers(0, 1))
    def restart(self, which: int) -> None:
        self.run(self.live[which].close())
        self.live[which] = self.made()

    @precondition(lambda self: any(model.exists for model in self.models.values()))
    @rule(data=st.data(), torn=garbage)
    def crash(self, data: st.DataObject, torn: bytes) -> None:
        """Leave what a killed writer leaves: more behind the last commit, or less of the transcript."""
        session = data.draw(st.sampled_from([session for session in SESSIONS if self.models[session].exists]))
        directory = LocalWorkspace(self.root / "w").directory_of(session)
        for name in data.draw(st.sets(st.sampled_from(["context.jsonl", "journal.jsonl", "window.jsonl"]), min_size=1)):
            if (directory / name).exists() and (directory / name).read_bytes()[-1:] in {b"", b"\n"}:
                with (directory / name).open("ab") as file:
                    file.write(torn)
        transcript = directory / "transcript.md"
        size = transcript.stat().st_size
        with transcript.open("r+b") as file:
            file.truncate(data.draw(st.integers(0, size) | st.just(size)))
        (directory / ".tmp-0123456789abcdef").write_bytes(torn)
        self.live = [self.made(), self.made()]

    @invariant()
    def everything_reads_as_in_the_model(self) -> None:
        for workspace in (*self.live, self.made()):
            for session, model in self.models.items():
                self.compare(workspace, session, model)
            self.run(workspace.close())

    def compare(self, workspace: LocalWorkspace, session: str, model: Model) -> None:
        if not model.exists:
            with pytest.raises(NotFoundError):
                self.run(workspace.load_messages(session, 0, 9))
            return
        found = self.run(workspace.load_messages(session, 0, 1 << 30))
        assert [message for _, message in found] == model.messages
        assert self.run(workspace.load_summaries(session)) == model.summaries
        assert self.run(workspace.load_stubs(session, ["stub 1", "stub 2", "stub 3"])) == model.stubs
        assert len(self.run(workspace.locate(session, 0, len(model.messages))).lines) == len(model.messages)
        for (_, text), stored in model.results.items():
            assert Path(stored.reference).read_bytes() == text.encode("utf-8", "surrogatepass")
        if model.window is None:
            with pytest.raises(NotFoundError):
                self.run(workspace.load_window(session))
            return
        state = self.run(workspace.load_window(session))
        assert [message for _, message in state.messages] == model.window
        assert (state.head, state.first, state.pins) == (model.head, model.first, model.pins)
        assert (dict(state.settings), state.archived) == (model.settings, len(model.messages))

    @invariant()
    def nothing_is_damaged(self) -> None:
        findings = verify(LocalWorkspace(self.root / "w")).findings
        # A crash may take the transcript from under a session; the next writer renders it again.
        assert [found for found in findings if found.severity != "note" and found.kind != "stale-transcript"] == []


FEW = settings(max_examples=12, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck))
MANY = settings(FEW, max_examples=175, stateful_step_count=50)


@pytest.mark.parametrize(
    "effort",
    [
        pytest.param(FEW, id="a few runs"),
        pytest.param(MANY, id="many runs", marks=[pytest.mark.slow, pytest.mark.timeout(1_800)]),
    ],
)
def test_a_workspace_and_its_model_stay_equal_through_calls_crashes_and_restarts(effort: settings) -> None:
    run_state_machine_as_test(Workspaces, settings=effort)
