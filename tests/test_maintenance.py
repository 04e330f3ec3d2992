"""verify sees each changed byte, repair puts it back, gc removes what nobody needs, watch tells each thing once."""

import asyncio
import os
import random
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from buoyline.errors import BuoylineError, StorageError
from buoyline.maintenance.gc import collect
from buoyline.maintenance.repair import repair
from buoyline.maintenance.verify import verify
from buoyline.messages import Media, Text, ToolResult
from buoyline.watching import MessagesAdded, SessionCreated, SessionRemoved, past_events, watch
from buoyline.workspace import layout
from buoyline.workspace.disk import Disk
from buoyline.workspace.documents import ensure_workspace, write_document
from buoyline.workspace.results import get_blob, put_blob
from buoyline.workspace.session import Session
from buoyline.workspace.state import ContextRecord, NewForm, NewLine
from buoyline.workspace.workspace import Workspace

DAY_S = 86_400.0


def of(disk: Disk) -> Workspace:
    """The workspace of a disk."""
    return Workspace(disk, lock_timeout_s=5.0, redact=None, shown_as=str(disk.root))


def written(root: Path, *session_ids: str) -> Disk:
    """A workspace with all kinds of files; the newest line of each log has another log's record after it."""
    disk = Disk(root, durable=False)
    ensure_workspace(disk)
    write_document(disk, "sliding", b"{}")
    for session_id in session_ids or ("s1",):
        write_session(disk, session_id)
    return disk


def write_session(disk: Disk, session_id: str) -> Session:
    session = Session(disk, session_id)
    session.open()
    session.settings = {"size": 8_000}
    results = session.results
    for number in range(4):
        image = Media("image", "image/png", 4, "", "", f"{session_id}{number}".encode())
        long = f"{'long ' * 400}{number}\n"
        stored = results.store(ToolResult(f"c{number}", "run", (Text(long), image)))
        value = {"role": "tool", "tool_call_id": f"c{number}", "content": f"stub of {stored.name}"}
        call = {"id": f"c{number}", "type": "function", "function": {"name": "run", "arguments": "{}"}}
        asked = NewLine({"role": "assistant", "content": None, "tool_calls": [call]})
        session.append([asked, NewLine(value, stored={0: stored.files})])
    rendered = session.archive([[f"## {number}", "text", ""] for number in range(4)])
    pointer = {"path": layout.TRANSCRIPT, "start": 1, "end": 12}
    number = session.append_summary({"text": "what happened", "pointers": [pointer]})
    record = ContextRecord(
        ((0, 8),), 4, summary=number, transcript=rendered.transcript, left=((0, 4),), lines=rendered.lines
    )
    session.note_context(record)
    session.note_forms([NewForm(5, {"role": "tool", "tool_call_id": "c2", "content": "shorter"})])
    session.append([NewLine({"role": "user", "content": "go on"})])
    return session


def files(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file() and layout.TORN not in path.parts)


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return written(tmp_path / "w")


# verify


def test_a_whole_workspace_is_sound_and_read_once(disk: Disk) -> None:
    report = verify(of(disk))
    assert not report.findings
    assert (report.sessions, report.blobs) == (1, 4)


def test_no_changed_byte_of_what_was_written_goes_unseen(disk: Disk) -> None:
    drawn = random.Random(7)  # noqa: S311 - repeatable
    for path in files(disk.root):
        whole = path.read_bytes()
        # The newest message has nothing after it: a flip there looks like a write that was torn.
        end = whole[:-1].rfind(b"\n") if path.name == layout.CONTEXT else len(whole)
        if path.name == "workspace.json":
            end = 0
        if path.name == "sliding.json":
            end = 1
        for offset in sorted({0, end - 1, *(drawn.randrange(end) for _ in range(12))} if end > 0 else ()):
            path.write_bytes(whole[:offset] + bytes([whole[offset] ^ 1 << drawn.randrange(8)]) + whole[offset + 1 :])
            assert not verify(of(disk)).is_sound, f"byte {offset} of {path.name}"
        path.write_bytes(whole)
    assert verify(of(disk)).is_sound


def test_each_missing_file_and_each_file_with_another_end_is_seen(disk: Disk) -> None:
    for path in files(disk.root / "sessions"):
        whole = path.read_bytes()
        path.unlink()
        assert not verify(of(disk)).is_sound, path.name
        path.write_bytes(whole[:-1])
        findings = verify(of(disk)).findings
        assert findings, path.name
        path.write_bytes(whole)


def test_garbage_in_any_file_ends_no_verification(disk: Disk) -> None:
    drawn = random.Random(3)  # noqa: S311 - repeatable
    for path in files(disk.root):
        if path.name == "workspace.json":
            continue
        whole = path.read_bytes()
        for _ in range(5):
            path.write_bytes(drawn.choice([b"", b"\n\n", b"{", drawn.randbytes(300), whole + b"\x00" * 9, whole[9:]]))
            verify(of(disk))
        path.write_bytes(whole)


def test_a_writer_at_work_is_not_taken_for_damage(disk: Disk) -> None:
    session, is_over = write_session(disk, "s2"), threading.Event()

    def write() -> None:
        while not is_over.is_set():
            session.append([NewLine({"role": "user", "content": "x" * 5_000})])
            session.note_usage({"input_tokens": 1})
            time.sleep(0.001)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        found = [verify(of(disk)).findings for _ in range(8)]
    finally:
        is_over.set()
        writer.join()
    assert not any(found)


def test_what_a_crash_leaves_is_a_note(disk: Disk) -> None:
    session = disk.root / "sessions/s1"
    with (session / "context.jsonl").open("ab") as file:
        file.write(b'{"role": "user", "cont')
    (session / ".tmp-1").write_bytes(b"half")
    (session / "tool_result-late.txt").write_bytes(b"no line names it")
    report = verify(of(disk))
    assert report.is_sound
    assert {finding.kind for finding in report.findings} == {"torn", "leftover", "unnamed-result"}


# repair


@pytest.mark.parametrize("is_lost", [True, False])
def test_all_that_is_damaged_comes_back_from_a_copy(disk: Disk, tmp_path: Path, *, is_lost: bool) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(disk.root, copy)
    drawn = random.Random(5)  # noqa: S311 - repeatable
    for path in files(disk.root / "sessions") + files(disk.root / "data"):
        whole = path.read_bytes()
        if is_lost and path.suffix != ".jsonl":
            path.unlink()
        else:
            at = drawn.randrange(len(whole) // 2)
            path.write_bytes(whole[:at] + b"\xff" + whole[at + 1 :])
    planned = repair(of(disk), of(Disk(copy)), dry_run=True)
    assert not planned.remaining.is_sound
    done = repair(of(disk), of(Disk(copy)))
    assert done.remaining.is_sound
    assert done.actions == planned.actions
    for path in files(copy / "sessions") + files(copy / "data"):
        assert (disk.root / path.relative_to(copy)).read_bytes() == path.read_bytes()
    assert not repair(of(disk), of(Disk(copy))).actions


def test_without_a_copy_a_lost_message_leaves_a_placeholder_with_its_number(disk: Disk) -> None:
    path = disk.root / "sessions/s1/context.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join((*lines[:4], b"garbage\n", *lines[5:])))
    repair(of(disk))
    session = Session(disk, "s1")
    session.open()
    assert session.state.end == 9
    (lost, kept) = session.read([4, 8])
    assert "could not be restored" in lost.value["content"]
    assert kept.value["content"] == "go on"
    assert session.append([NewLine({"role": "user", "content": "more"})]) == 9
    assert any(b"garbage" in one.read_bytes() for one in (disk.root / "sessions/s1/torn").iterdir())


def test_a_damaged_copy_or_one_of_another_session_makes_nothing_worse(disk: Disk, tmp_path: Path) -> None:
    other = written(tmp_path / "other")
    before = {path: path.read_bytes() for path in files(disk.root)}
    result = disk.root / "sessions/s1/tool_result-c1.txt"
    result.write_bytes(b"damaged")
    for path in files(other.root / "sessions"):
        path.write_bytes(path.read_bytes()[:-9] + b"different")
    repair(of(disk), of(other))
    assert result.read_bytes() == b"damaged"
    result.write_bytes(before[result])
    assert {path: path.read_bytes() for path in files(disk.root)} == before
    assert verify(of(disk)).is_sound


# gc


def aged(root: Path, days: float) -> None:
    """Let all files be older."""
    for path in (*root.rglob("*"), root):
        stamp = path.stat().st_mtime - days * DAY_S
        os.utime(path, (stamp, stamp))


@pytest.mark.parametrize("flipped", [layout.STATE, layout.CONTEXT])
def test_a_session_whose_first_record_was_damaged_opens_after_a_repair(disk: Disk, flipped: str) -> None:
    path = disk.root / "sessions/s1" / flipped
    whole = path.read_bytes()
    path.write_bytes(whole[:5] + bytes([whole[5] ^ 1]) + whole[6:])
    repair(of(disk))
    assert verify(of(disk)).is_sound
    session = Session(disk, "s1")
    assert session.open().end == 9
    assert session.append([NewLine({"role": "user", "content": "go on"})]) == 9


@pytest.mark.parametrize("name", [layout.STATE, layout.SUMMARIES, layout.TRANSCRIPT])
def test_a_missing_file_of_a_session_is_created_by_a_repair(disk: Disk, name: str) -> None:
    (disk.root / "sessions/s1" / name).unlink()
    repair(of(disk))
    session = Session(disk, "s1")
    session.open()
    session.append([NewLine({"role": "user", "content": "go on"})])
    assert session.append_summary({"text": "more", "pointers": []}) >= 0


def test_a_session_that_was_never_written_to_stops_neither_gc_nor_repair(disk: Disk) -> None:
    Session(disk, "s2").results.store(ToolResult("c1", "run", (Text("x"),)))
    (disk.root / "sessions/s3").mkdir()
    for path in (disk.root / "sessions/s2").iterdir():
        os.utime(path, (0, 0))
    collect(of(disk), dry_run=False)
    repair(of(disk))
    assert verify(of(disk)).is_sound


def test_a_log_that_cannot_be_read_is_a_finding_and_the_other_sessions_are_checked(disk: Disk) -> None:
    write_session(disk, "s2")
    (disk.root / "sessions/s1" / layout.SUMMARIES).unlink()
    (disk.root / "sessions/s1" / layout.SUMMARIES).mkdir()
    report = verify(of(disk))
    assert "unreadable" in {finding.kind for finding in report.findings}
    assert report.sessions == 2


def test_gc_stops_at_sessions_that_it_cannot_see(disk: Disk) -> None:
    (disk.root / "sessions").rename(disk.root / "elsewhere")
    (disk.root / "sessions").symlink_to(disk.root / "elsewhere")
    with pytest.raises(StorageError):
        collect(of(disk), grace_s=0, unowned=True, dry_run=False)
    assert len([*(disk.root / "data").iterdir()]) == 4


def test_old_sessions_go_with_their_payloads_and_nothing_else(tmp_path: Path) -> None:
    disk = written(tmp_path / "w", "old", "shared", "new")
    shared = put_blob(disk, b"shared", "image/png")
    record = {"files": [[shared.removeprefix("workspace:///"), 6, ""]]}
    for session_id in ("old", "new"):
        Session(disk, session_id).note_result({"key": "k", **record})
    aged(disk.root, 40)
    write_session(disk, "fresh")
    for session_id in ("shared", "new"):
        Session(disk, session_id).note_result({"key": "k2", **record})
    before = {path.name for path in (disk.root / "data").iterdir()}
    planned = collect(of(disk), older_than_s=30 * DAY_S)
    assert planned.sessions == [("old", "age")]
    assert {path.name for path in (disk.root / "data").iterdir()} == before
    done = collect(of(disk), older_than_s=30 * DAY_S, dry_run=False)
    assert (done.sessions, done.blobs, done.freed_bytes) == (planned.sessions, planned.blobs, planned.freed_bytes)
    assert len(before) - len(list((disk.root / "data").iterdir())) == len(done.blobs) == 4
    assert get_blob(disk, shared) == b"shared"
    assert verify(of(disk)).is_sound
    assert not collect(of(disk), older_than_s=30 * DAY_S, dry_run=False).sessions


@pytest.mark.parametrize(("limits", "going"), [({"keep": 1}, ["b", "a"]), ({"max_bytes": 45_000}, ["a"]), ({}, [])])
def test_sessions_go_by_count_and_size_the_oldest_first(
    tmp_path: Path, limits: dict[str, int], going: list[str]
) -> None:
    disk = written(tmp_path / "w")
    shutil.rmtree(disk.root / "sessions/s1")
    for session_id in "abc":
        write_session(disk, session_id)
        aged(disk.root, 2)
    assert [session_id for session_id, _ in collect(of(disk), **limits).sessions] == going  # type: ignore[arg-type]


def test_what_is_young_or_in_use_stays(disk: Disk) -> None:
    assert not collect(of(disk), keep=0, dry_run=False).sessions
    aged(disk.root, 2)
    with disk.locked("sessions/s1/context.jsonl", 1.0):
        report = collect(of(disk), keep=0, dry_run=False)
    assert report.in_use == ["s1"]
    assert verify(of(disk)).is_sound


def test_leftovers_go_after_the_grace_and_unowned_payloads_if_asked(disk: Disk) -> None:
    (disk.root / "sessions/s1/.tmp-1").write_bytes(b"half")
    (disk.root / "sessions/s1/tool_result-late.txt").write_bytes(b"no line names it")
    unowned = put_blob(disk, b"nobody", "image/png").removeprefix("workspace:///")
    assert not collect(of(disk), dry_run=False).files
    aged(disk.root, 2)
    report = collect(of(disk), dry_run=False)
    assert {Path(name).name for name in report.files} == {".tmp-1", "tool_result-late.txt"}
    assert report.unowned == [unowned]
    assert collect(of(disk), unowned=True, dry_run=False).blobs == [unowned]
    assert not verify(of(disk)).findings


def test_a_run_that_fails_anywhere_is_completed_by_the_next(tmp_path: Path) -> None:
    for step in range(40):
        disk = FailingDisk(tmp_path / str(step), durable=False)
        ensure_workspace(disk)
        write_session(disk, "s1")
        aged(disk.root, 2)
        disk.left = step
        try:
            collect(of(disk), keep=0, dry_run=False)
        except BuoylineError:
            disk.left = 1_000
            report = verify(of(disk))
            assert not [one for one in report.findings if one.severity == "damage"]
            collect(of(disk), keep=0, dry_run=False)
            aged(disk.root, 2)  # what the killed run had put aside came back as new
            collect(of(disk), keep=0, dry_run=False)
        else:
            break
        assert not files(disk.root / "sessions") + files(disk.root / "data"), step
    else:
        pytest.fail("it never came to its end")


class FailingDisk(Disk):
    """Refuses to change anything after so many changes."""

    left = 1_000

    def rename(self, old: str, new: str) -> None:
        self._spend()
        super().rename(old, new)

    def remove(self, name: str) -> None:
        self._spend()
        super().remove(name)

    def _spend(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise StorageError(5, "Input/output error")


def test_no_reference_dangles_while_sweeps_and_writers_race(tmp_path: Path) -> None:
    disk, is_over, payloads = written(tmp_path / "w"), threading.Event(), [b"a", b"b", b"c"]

    def write(name: str) -> None:
        for number in range(60):
            session = Session(disk, f"{name}{number}")
            reference = put_blob(disk, payloads[number % 3], "image/png")
            session.append([NewLine({"role": "user", "content": reference})])

    def sweep() -> None:
        while not is_over.is_set():
            collect(of(disk), keep=5, grace_s=0.05, unowned=True, dry_run=False)

    writers = [threading.Thread(target=write, args=(name,)) for name in "xy"]
    sweeper = threading.Thread(target=sweep)
    for thread in (*writers, sweeper):
        thread.start()
    for thread in writers:
        thread.join()
    is_over.set()
    sweeper.join()
    for path in (disk.root / "sessions").glob("*/context.jsonl"):
        for number in (b"a", b"b", b"c"):
            name = layout.blob_name(number, "image/png")
            assert name.encode() not in path.read_bytes() or (disk.root / name).exists()


class TouchingDisk(Disk):
    """Lets a writer store each payload once more just before it is renamed."""

    def rename(self, old: str, new: str) -> None:
        if old.startswith(f"{layout.DATA}/"):
            self.freshen(old)
        super().rename(old, new)


def test_a_payload_that_is_stored_again_while_gc_removes_it_stays(tmp_path: Path) -> None:
    disk = TouchingDisk(written(tmp_path / "w").root, durable=False)
    name = put_blob(disk, b"nobody", "image/png").removeprefix("workspace:///")
    aged(disk.root, 2)
    assert collect(of(disk), unowned=True, dry_run=False).blobs == []
    assert disk.read(name) == b"nobody"


def test_a_payload_that_is_stored_again_is_young_again(disk: Disk) -> None:
    put_blob(disk, b"nobody", "image/png")
    aged(disk.root, 2)
    reference = put_blob(disk, b"nobody", "image/png")
    assert collect(of(disk), unowned=True, dry_run=False).blobs == []
    assert get_blob(disk, reference) == b"nobody"


# watch


async def test_a_listener_hears_each_thing_once_and_in_order(tmp_path: Path) -> None:
    disk, heard = Disk(tmp_path / "w", durable=False), list[object]()

    def write() -> None:
        ensure_workspace(disk)
        for session_id in ("a", "b"):
            session = write_session(disk, session_id)
            for _ in range(20):
                session.append([NewLine({"role": "user", "content": "more"})] * 3)

    async with aclosing(watch(of(disk), last=100)) as events:
        writing = asyncio.create_task(asyncio.to_thread(write))
        async for event in events:
            heard.append(event)
            if isinstance(event, MessagesAdded) and (event.session_id, event.end) == ("b", 69):
                await asyncio.to_thread(shutil.rmtree, disk.root / "sessions/a")
            if isinstance(event, SessionRemoved):
                break
        await writing
    assert [event.session_id for event in heard if isinstance(event, SessionCreated)] == ["a", "b"]
    assert sum(isinstance(event, SessionRemoved) for event in heard) == 1
    added = [
        (event.first, event.end) for event in heard if isinstance(event, MessagesAdded) and event.session_id == "b"
    ]
    assert added == list(batches())


def batches() -> Iterator[tuple[int, int]]:
    yield from ((number, number + 2) for number in range(0, 8, 2))
    yield (8, 9)
    yield from ((number, number + 3) for number in range(9, 69, 3))


async def test_a_damaged_line_is_passed_over_and_an_end_is_quick(disk: Disk) -> None:
    path = disk.root / "sessions/s1/context.jsonl"
    path.write_bytes(path.read_bytes().replace(b"stub of", b"stab of", 1))
    began = time.monotonic()
    seen = list[object]()
    async with aclosing(watch(of(disk), "s1", last=100)) as events:
        async for event in events:
            seen.append(event)
            if len(seen) == 6:
                break
    assert {type(event).__name__ for event in seen} >= {"SessionCreated", "MessagesAdded"}
    assert time.monotonic() - began < 30


def test_past_events_are_what_a_listener_would_have_heard(disk: Disk) -> None:
    kinds = [type(event).__name__ for event in past_events(of(disk))]
    assert kinds.count("SessionCreated") == kinds.count("SummaryWritten") == 1
    assert (kinds.count("MessagesAdded"), kinds.count("ResultStored")) == (5, 4)
    assert past_events(of(disk), "another") == []
