"""Watching a workspace: what is told, how often, and that nothing hostile or unlucky stops it."""

import asyncio
import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buoyline.errors import ConfigError, CorruptError, FormatVersionError, InvalidNameError
from buoyline.watching import watch
from buoyline.watching.events import (
    BatchArchived,
    ResultStored,
    SessionCreated,
    SessionRemoved,
    SummaryWritten,
    WorkspaceEvent,
)
from buoyline.watching.watch import Watch
from buoyline.workspace import LocalWorkspace
from buoyline.workspace.journal import decode, encode

NUMBERS = itertools.count()
SUMMARY = {"messages": [0, 2], "source_tokens": 1_500, "tokens": 100, "text": "short", "created_at": "2026-01-01"}
LONG_S = 50
"""How long something is waited for that comes at once on an idle machine."""

WRITER = """
import asyncio, sys
from buoyline.workspace import LocalWorkspace

async def write(workdir, session, count):
    workspace = LocalWorkspace(workdir, durability="off")
    for number in range(int(count)):
        await workspace.archive(session, [{"role": "user", "content": f"{sys.argv[4]} {number}"}] * (1 + number % 3))
        if number % 3 == 0:
            result = {"role": "tool", "tool_call_id": f"{sys.argv[4]}{number}", "content": "line\\n" * number}
            await workspace.offload_tool_result(session, result)
        if number % 5 == 0:
            await workspace.append_summary(session, {"messages": [0, number], "tokens": number})
        print(number, flush=True)

asyncio.run(write(*sys.argv[1:4]))
"""


class Writer:
    """Writes to a workspace as another process would: nothing is shared with whoever watches."""

    def __init__(self, workdir: Path) -> None:
        self.workspace = LocalWorkspace(workdir, durability="off")
        self.workdir = workdir

    def archive(self, session: str = "s1", count: int = 1) -> None:
        self._do(self.workspace.archive(session, [_message() for _ in range(count)]))

    def store(self, session: str = "s1", call_id: str = "c1", text: str = "one\ntwo\n") -> None:
        result = {"role": "tool", "tool_call_id": call_id, "content": text}
        self._do(self.workspace.offload_tool_result(session, result))

    def summarise(self, session: str = "s1") -> None:
        self._do(self.workspace.append_summary(session, SUMMARY))

    def _do(self, work: Coroutine[Any, Any, object]) -> None:
        async def done() -> None:
            async with self.workspace:
                await work

        # In a thread, since some tests have an event loop of their own.
        with ThreadPoolExecutor(max_workers=1) as thread:
            thread.submit(asyncio.run, done()).result()

    def directory(self) -> Path:
        return self.workdir / "sessions" / "s1"

    def path(self, file: str, session: str = "s1") -> Path:
        return self.workdir / "sessions" / session / file


def _message() -> dict[str, str]:
    """Return a new message each time: the same ones in a row are one call and its repetition."""
    return {"role": "user", "content": f"question {next(NUMBERS)}"}


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    return Writer(tmp_path / "workspace")


def _watch(workdir: Path, session_id: str | None = None, *, last: int | None = 0) -> Watch:
    workspace = LocalWorkspace(workdir)
    return Watch(workspace, session_id, last=last)


def _look(watch: Watch) -> list[WorkspaceEvent]:
    return [event for events in watch.rounds(follow=False) for event in events]


def _places(events: list[WorkspaceEvent]) -> list[Any]:
    """Return what tells events from each other: messages, file or number."""
    return [_place(event) for event in events]


def _place(event: WorkspaceEvent) -> Any:
    match event:
        case BatchArchived():
            return event.first, event.end
        case ResultStored():
            return event.name
        case SummaryWritten():
            return event.n
        case SessionCreated() | SessionRemoved():
            return type(event).__name__


def _committed(workdir: Path, session_id: str) -> list[Any]:
    """Return the same of what a session's journal holds, read as any other program would."""
    session = LocalWorkspace(workdir).session(session_id)
    summaries = [summary["n"] for summary in session.summaries()]
    places: list[Any] = []
    for line in session.tree.read(session.name("journal.jsonl")).splitlines():
        record = decode(line)  # a torn one is none
        if record is None:
            continue
        if record["op"] == "batch":
            places.append((record["first"], record["first"] + len(record["bytes"])))
        elif record["op"] == "result":
            places.append(record["path"])
        elif record["op"] == "summary":
            places.append(summaries.pop(0))
    return places


def test_each_thing_is_told_once_and_in_order(writer: Writer) -> None:
    writer.archive("s0")
    watch = _watch(writer.workdir)
    assert _look(watch) == []
    writer.archive(count=2)
    writer.store(text="x" * 3_000)
    writer.summarise()
    writer.archive("s0", count=3)
    told = _look(watch)

    mine = [event for event in told if event.session_id == "s1"]
    assert [type(event) for event in mine] == [SessionCreated, BatchArchived, ResultStored, SummaryWritten]
    assert mine[1:] == [
        BatchArchived("s1", 0, 2, (1, 6), mine[1].time),
        ResultStored("s1", "c1", "tool_result-c1.txt", 3_000, 4, "tool_result-c1.view.txt", mine[2].time, ("text",)),
        SummaryWritten("s1", 1, 0, 2, 1_500, 100, "2026-01-01"),
    ]
    assert all(event.time.endswith("Z") for event in mine[:3])
    assert _places([event for event in told if event.session_id == "s0"]) == [(1, 4)]
    assert _look(watch) == []


@pytest.mark.parametrize(
    ("last", "told"),
    [
        (0, []),
        (1, [1]),
        (2, [(1, 2), 1]),
        (4, [(0, 1), "tool_result-c1.txt", (1, 2), 1]),
        (9, [(0, 1), "tool_result-c1.txt", (1, 2), 1]),
        (None, ["SessionCreated", (0, 1), "tool_result-c1.txt", (1, 2), 1]),
    ],
)
def test_it_begins_as_far_back_as_asked(writer: Writer, last: int | None, told: list[Any]) -> None:
    writer.archive()
    writer.store()
    writer.archive()
    writer.summarise()
    watch = _watch(writer.workdir, last=last)
    assert _places(_look(watch)) == told
    writer.archive()
    assert _places(_look(watch)) == [(2, 3)]


def test_what_cannot_work_is_refused_at_once(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="last: -1 is below 0"):
        workspace.watch(last=-1)
    with pytest.raises(InvalidNameError):
        workspace.watch("")


MALFORMED: list[dict[str, Any]] = [
    {"op": "batch"},
    {"op": "batch", "first": 0, "bytes": "many", "offset": -1, "sha256": 7, "lines": None, "line": [], "time": 3},
    {"op": "result", "path": "../../etc/passwd", "call_id": "x", "bytes": 1, "sha256": "0" * 64, "lines": 1},
    {"op": "summary", "offset": 0, "bytes": [], "sha256": "0" * 64, "synced": 0},
    {"op": "of tomorrow", "time": {"not": "text"}},
]


def test_garbage_in_the_journal_is_passed_by(writer: Writer) -> None:
    writer.archive()
    writer.store()
    good = writer.path("journal.jsonl").read_bytes()
    garbage = b"\xff\0garbage\n\n{}\n" + b"".join(map(encode, MALFORMED)) + b"[" * 100_000 + b"\n" + b'{"op":1}\n'
    watch = _watch(writer.workdir, last=None)
    begin, batch, result, *_ = good.splitlines(keepends=True)
    writer.path("journal.jsonl").write_bytes(begin + garbage + batch + garbage + result + garbage)
    assert _places(_look(watch)) == ["SessionCreated", (0, 1), "tool_result-c1.txt"]
    with writer.path("journal.jsonl").open("ab") as journal:
        journal.write(_result_record(2))
    assert _places(_look(watch)) == ["tool_result-c2.txt"]


def _result_record(number: int, **fields: object) -> bytes:
    name = f"tool_result-c{number}.txt"
    record: dict[str, Any] = {"op": "result", "call_id": f"c{number}", "path": name, "bytes": 1, "lines": 1}
    record.update(sha256="0" * 64, parts=[])
    return encode({**record, "time": f"2026-01-01T00:00:{number:08}Z", **fields})


def test_a_session_may_go_and_another_come_in_its_place(writer: Writer) -> None:
    writer.archive()
    watch = _watch(writer.workdir)
    assert _look(watch) == []
    shutil.rmtree(writer.directory())
    assert _places(_look(watch)) == ["SessionRemoved"]
    Writer(writer.workdir).archive(count=2)
    assert _places(_look(watch)) == ["SessionCreated", (0, 2)]
    shutil.rmtree(writer.directory())
    Writer(writer.workdir).archive(count=3)
    assert _places(_look(watch)) == ["SessionRemoved", "SessionCreated", (0, 3)]
    shutil.rmtree(writer.workdir)
    assert _places(_look(watch)) == ["SessionRemoved"]


def test_what_is_not_ours_is_passed_by(writer: Writer, tmp_path: Path) -> None:
    outside = Writer(tmp_path / "outside")
    outside.archive("secret")
    watch = _watch(writer.workdir, last=None)
    writer.archive()
    sessions = writer.workdir / "sessions"
    (sessions / "link").symlink_to(outside.workdir / "sessions" / "secret")
    (sessions / "secret").symlink_to(outside.workdir / "sessions" / "secret")
    (sessions / "root").symlink_to("/")
    (sessions / "file").touch()
    shutil.copytree(writer.directory(), sessions / "copied")
    for name, make in (("empty", None), ("text", "text"), ("list", "[1]"), ("deep", "[" * 9_999), ("id", '{"id":[]}')):
        (sessions / name).mkdir()
        if make is not None:
            (sessions / name / "session.json").write_text(make, "utf-8")
    for name in ("pipe", "linked", "folder"):
        shutil.copytree(writer.directory(), sessions / name)
        (sessions / name / "session.json").write_text(json.dumps({"format": 1, "id": name}), "utf-8")
        (sessions / name / "journal.jsonl").unlink()
    os.mkfifo(sessions / "pipe" / "journal.jsonl")
    (sessions / "linked" / "journal.jsonl").symlink_to(outside.path("journal.jsonl", "secret"))
    (sessions / "folder" / "journal.jsonl").mkdir()
    os.mkfifo(sessions / "empty" / "session.json")
    told = _look(watch)
    assert {event.session_id for event in told if not isinstance(event, SessionCreated)} == {"s1"}
    assert {event.session_id for event in told} == {"s1", "pipe", "linked", "folder"}
    for last in (0, 5):
        begun = _look(_watch(writer.workdir, last=last))
        assert {event.session_id for event in begun if not isinstance(event, SessionCreated)} <= {"s1"}


def test_a_workspace_of_tomorrow_is_refused(writer: Writer) -> None:
    writer.archive()
    (writer.workdir / "workspace.json").write_text('{"format": 2}', "utf-8")
    with pytest.raises(FormatVersionError):
        _look(_watch(writer.workdir))
    (writer.workdir / "workspace.json").write_text("?", "utf-8")
    with pytest.raises(CorruptError):
        _look(_watch(writer.workdir))


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["archive", "store", "summarise", "look", "tear", "take back"]),
            st.integers(0, 1),
            st.sampled_from(["s1", "s2"]),
        ),
        max_size=25,
    )
)
def test_what_is_told_of_a_session_is_what_its_journal_holds(steps: list[tuple[str, int, str]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        workdir = Path(directory) / "workspace"
        writers = Writer(workdir), Writer(workdir)
        told: list[WorkspaceEvent] = []
        watch = _watch(workdir)
        told += _look(watch)
        for number, (step, which, session) in enumerate(steps):
            writer = writers[which]
            match step:
                case "archive":
                    writer.archive(session, count=1 + number % 3)
                case "store":
                    writer.store(session, call_id=f"c{number}")
                case "summarise":
                    writer.summarise(session)
                case "look":
                    told += _look(watch)
                case _:
                    _disturb(writer.path("journal.jsonl", session), step)
        told += _look(watch)
        sessions = LocalWorkspace(workdir).session_ids()
        for session in sessions:
            mine = _places([event for event in told if event.session_id == session])
            assert mine == ["SessionCreated", *_committed(workdir, session)]
        assert {event.session_id for event in told} == set(sessions)


def _disturb(journal: Path, step: str) -> None:
    """Leave what a killed writer leaves, or write something and take it back before anybody looks."""
    if not journal.exists():
        return
    size = journal.stat().st_size
    with journal.open("ab") as file:
        file.write(_result_record(999)[:-20])
    if step == "take back":
        os.truncate(journal, size)


class Listener:
    """Collects what a workspace tells, in a task of its own."""

    def __init__(self, workdir: Path, session_id: str | None = None) -> None:
        self.told: list[WorkspaceEvent] = []
        self._workspace = LocalWorkspace(workdir)
        self._session_id = session_id
        self._task = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        async with contextlib.aclosing(self._workspace.watch(self._session_id, last=None)) as events:
            async for event in events:
                self.told.append(event)

    async def until(self, is_enough: Callable[[list[Any]], bool]) -> list[Any]:
        async with asyncio.timeout(LONG_S):
            while not is_enough(self.places()):
                if self._task.done():
                    self._task.result()
                await asyncio.sleep(0.01)
        return self.places()

    def places(self, session_id: str = "s1") -> list[Any]:
        return _places([event for event in self.told if event.session_id == session_id])

    async def end(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task


def _at_least(count: int) -> Callable[[list[Any]], bool]:
    return lambda places: len(places) >= count


def _threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("buoyline-watch")]


def _process(workdir: Path, session: str, count: int, name: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", WRITER, str(workdir), session, str(count), name]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


async def test_two_listeners_hear_all_that_two_processes_write(tmp_path: Path) -> None:
    """The workspace does not exist when they begin to listen."""
    workdir = tmp_path / "not" / "yet" / "there"
    listeners = Listener(workdir), Listener(workdir, "s1")
    processes = [_process(workdir, "s1", 40, "a"), _process(workdir, "s1", 40, "b")]
    for process in processes:
        assert await asyncio.to_thread(process.wait, LONG_S) == 0
        assert process.stdout is not None
        process.stdout.close()
    expected = ["SessionCreated", *_committed(workdir, "s1")]
    assert len(expected) == 1 + 80 + 28 + 16
    for listener in listeners:
        assert await listener.until(_at_least(len(expected))) == expected
    for listener in listeners:
        await listener.end()
    assert _threads() == []


async def test_it_works_where_the_kernel_sends_no_notices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "watch", _refusing)
    monkeypatch.setattr(watch, "_WAIT_S", 0.05)
    workdir = tmp_path / "workspace"
    listener = Listener(workdir)
    writer = Writer(workdir)
    for number in range(3):
        writer.archive()
        assert (await listener.until(_at_least(number + 2)))[-1] == (number, number + 1)
    await listener.end()
    assert _threads() == []


def _refusing(*_: Any, **__: Any) -> Iterator[Any]:
    raise OSError(28, "inotify watch limit reached")
    yield


@pytest.mark.parametrize("end", ["break", "cancel", "close", "let go"])
async def test_it_ends_at_once_and_leaves_no_thread(writer: Writer, end: str) -> None:
    writer.archive()
    events = LocalWorkspace(writer.workdir).watch(last=None)
    async for event in events:
        assert isinstance(event, SessionCreated)
        break
    if end == "break":
        await events.aclose()
    elif end == "close":
        await anext(events)
        await events.aclose()
        await events.aclose()
    elif end == "cancel":
        await anext(events)
        waiting = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
        waiting.cancel()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        with pytest.raises(StopAsyncIteration):
            await anext(events)
    else:
        del events
        async with asyncio.timeout(LONG_S):
            while _threads():
                await asyncio.sleep(0.01)
    assert _threads() == []
