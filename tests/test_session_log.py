"""Each line of a session proves itself: what is cut, zeroed, flipped, written by others or forked is seen and kept."""

import errno
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from faults import every_fault
from thirds import STEP, each_third

from buoyline.errors import ConfigError, CorruptError, LockTimeout, StaleWindowError, StorageError
from buoyline.offloader.protocol import StoredFile
from buoyline.workspace.disk import Disk
from buoyline.workspace.session import Session
from buoyline.workspace.state import ContextRecord, NewForm, NewLine

LOGS = ("context.jsonl", "state.jsonl", "summaries.jsonl")


def message(text: str) -> NewLine:
    return NewLine({"role": "user", "content": text})


def handle(root: Path, *, lock_timeout_s: float = 5, durable: bool = False) -> Session:
    return Session(Disk(root, durable=durable), "s1", lock_timeout_s=lock_timeout_s)


def opened(root: Path) -> Session:
    session = handle(root)
    session.open()
    return session


def texts(session: Session) -> list[str]:
    return [line.value["content"] for line in session.read(range(session.state.end))]


def file(root: Path, name: str = "context.jsonl") -> Path:
    return root / "sessions" / "s1" / name


def copies(root: Path) -> dict[str, bytes]:
    return {name: file(root, name).read_bytes() for name in (*LOGS, "transcript.md")}


def put(root: Path, contents: dict[str, bytes]) -> None:
    file(root).parent.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        file(root, name).write_bytes(content)


BATCHES = [["one"], ['x","buoyline":{"n":1,"crc":"00000000"}}', "two\n"], ["three"], ["a" * 90, "b", "c", "d"], ["e"]]


def grown(root: Path) -> list[int]:
    """Make a session of `BATCHES` and return where each ends, the beginning first."""
    session, sizes = opened(root), [0]
    for batch in BATCHES:
        session.append([message(text) for text in batch])
        sizes.append(file(root).stat().st_size)
    return sizes


def first_batches(count: int) -> list[str]:
    return [text for batch in BATCHES[:count] for text in batch]


# Bytes that are not there, or are others.


@each_third
def test_a_log_that_ends_at_any_byte_has_its_whole_batches_and_goes_on(tmp_path: Path, first: int) -> None:
    sizes, root = grown(tmp_path / "whole"), tmp_path / "cut"
    whole = copies(tmp_path / "whole")
    for end in range(first - 1, sizes[-1] + 1, STEP):
        put(root, whole | {"context.jsonl": whole["context.jsonl"][:end]})
        kept = first_batches(max(count for count, size in enumerate(sizes) if size <= end))
        session = opened(root)
        assert texts(session) == kept
        session.append([message("next")])
        assert texts(opened(root)) == [*kept, "next"]
        assert session.damage() == []


@each_third
def test_a_newest_batch_with_zeros_in_it_counts_as_a_whole_or_not_at_all(tmp_path: Path, first: int) -> None:
    sizes, root = grown(tmp_path / "whole"), tmp_path / "zeros"
    whole = copies(tmp_path / "whole")
    content = whole["context.jsonl"]
    for start in range(sizes[-2] + first - 1, sizes[-1], STEP):
        for length in (1, 7, 64):
            end = min(start + length, len(content))
            torn = content[:start] + bytes(end - start) + content[end:]
            put(root, whole | {"context.jsonl": torn})
            session = opened(root)
            assert texts(session) == first_batches(len(BATCHES) - 1)
            session.append([message("next")])
            assert texts(opened(root)) == [*first_batches(len(BATCHES) - 1), "next"]
            assert torn[sizes[-2] :] in [path.read_bytes() for path in file(root, "torn").iterdir()]


def lived(root: Path) -> Session:
    """Make a session with records after its messages, and messages after its records."""
    session = opened(root)
    session.settings = {"size": 4000}
    session.append([message(text) for text in ("one", "two", "three")])
    session.note_forms([NewForm(2, {"role": "user", "content": "short"})])
    for until in (1, 2):
        compact(session, until)
        session.append([message(f"after {until}")])
    return session


LIVED = ["one", "two", "short", "after 1", "after 2"]


@each_third
@pytest.mark.parametrize("name", LOGS)
def test_a_flipped_bit_is_seen_and_takes_nothing_with_it(tmp_path: Path, name: str, first: int) -> None:
    """Only the newest batch with nothing after it can be taken for one that a crash tore: it is in torn/ then."""
    lived(tmp_path / "whole")
    whole, root = copies(tmp_path / "whole"), tmp_path / "flipped"
    newest = whole[name].rstrip(b"\n").rfind(b"\n") + 1
    for at in range(first - 1, len(whole[name]), STEP):
        content = bytearray(whole[name])
        content[at] ^= 1 << at % 8
        put(root, whole | {name: bytes(content)})
        assert [found for found in handle(root).damage() if found.file.endswith(name)] != []
        reader, is_refused = handle(root), False
        try:
            reader.load()
        except CorruptError:
            is_refused = True
        else:
            kept = [line.number for line in reader._messages.lines()]
            assert name != "context.jsonl" or at >= newest - 1 or len(kept) >= len(LIVED) - 2
            assert reader.state.damaged or reader.state.context is not None
        session = handle(root)
        try:
            session.open()
            session.append([message("next")])
        except CorruptError:
            assert file(root, name).read_bytes() == content, "nothing was cut"
            continue
        assert not is_refused
        if name == "context.jsonl" and at >= newest:
            assert bytes(content[newest:]) in [path.read_bytes() for path in file(root, "torn").iterdir()]
        else:
            assert file(root, name).read_bytes().startswith(content)
            assert [found for found in handle(root).damage() if found.file.endswith(name)] != []


def test_nothing_is_cut_that_the_other_log_names(tmp_path: Path) -> None:
    lived(tmp_path).note_forms([NewForm(0, {"role": "user", "content": "stub"})])
    for name in ("context.jsonl", "state.jsonl"):
        whole = file(tmp_path, name).read_bytes()
        file(tmp_path, name).write_bytes(whole[:-3])
        if name == "state.jsonl":  # nothing after the newest record proves it yet
            opened(tmp_path).append([message("next")])
            whole = file(tmp_path, name).read_bytes()
            file(tmp_path, name).write_bytes(whole[:-3])
        for call in (handle(tmp_path).open, lambda: handle(tmp_path).append([message("x")])):
            with pytest.raises(CorruptError, match="that were written; run `buoyline verify`"):
                call()
        assert file(tmp_path, name).read_bytes() == whole[:-3]
        file(tmp_path, name).write_bytes(whole)


def test_a_window_does_not_open_without_messages_whose_line_end_alone_is_damaged(tmp_path: Path) -> None:
    sizes = grown(tmp_path)
    content = bytearray(file(tmp_path).read_bytes())
    content[sizes[-2] - 1] ^= 1
    file(tmp_path).write_bytes(content)
    assert handle(tmp_path).load().end == sum(map(len, BATCHES[:-2]))
    with pytest.raises(CorruptError, match="a line end near its end is damaged"):
        handle(tmp_path).open()


def test_messages_without_the_record_of_their_session_are_damage(tmp_path: Path) -> None:
    grown(tmp_path)
    file(tmp_path, "state.jsonl").unlink()
    with pytest.raises(CorruptError, match="holds 0 records of 2"):
        handle(tmp_path).open()


def test_readers_go_on_behind_a_damaged_line_and_only_who_asks_for_it_is_refused(tmp_path: Path) -> None:
    session = opened(tmp_path)
    for number in range(300):
        session.append([message(f"{number} " + "x" * 700)])
    content = bytearray(file(tmp_path).read_bytes())
    content[len(content) // 2] ^= 1
    file(tmp_path).write_bytes(content)
    session = opened(tmp_path)
    (damage,) = session.damage()
    found = session.keys()
    assert [keys.number for keys in found] == [n for n in range(300) if n != damage.number]
    assert session.read([299, damage.number + 1])[1].value["content"].startswith(f"{damage.number + 1} ")
    with pytest.raises(CorruptError, match=f"line {damage.number + 1} is damaged"):
        session.read(range(300))
    assert session.append([message("next")]) == 300


def test_each_line_is_found_by_its_number(tmp_path: Path) -> None:
    session = opened(tmp_path)
    sizes = [0, 10, 70_000, 5, 300_000, 1, 2, 3, 140_000, 9]
    session.append([message(f"{number} " + "x" * size) for number, size in enumerate(sizes)])
    for number in range(len(sizes)):
        assert session.read([number])[0].value["content"].startswith(f"{number} ")


# The transcript and the summaries.


def test_a_transcript_is_cut_to_what_was_recorded_and_never_appended_to_if_it_is_shorter(tmp_path: Path) -> None:
    session = lived(tmp_path)
    recorded = file(tmp_path, "transcript.md").read_bytes()
    session.archive([["never", "committed"]])
    assert session.archive([["## 2", "x", ""]]).lines == (5, 8)
    assert file(tmp_path, "transcript.md").read_bytes() == recorded + b"## 2\nx\n\n"
    file(tmp_path, "transcript.md").write_bytes(recorded[:-1])
    with pytest.raises(CorruptError, match="has 27 bytes of 28"):
        opened(tmp_path).archive([["more"]])


def test_a_torn_summary_is_set_aside_and_a_named_one_never(tmp_path: Path) -> None:
    lived(tmp_path)
    whole = file(tmp_path, "summaries.jsonl").read_bytes()
    file(tmp_path, "summaries.jsonl").write_bytes(whole + b'{"text":"half')
    session = opened(tmp_path)
    assert session.append_summary({"text": "third"}) == 2
    assert [(found["n"], found["text"][:5]) for found in session.summaries()] == [
        (0, "summa"),
        (1, "summa"),
        (2, "third"),
    ]
    file(tmp_path, "summaries.jsonl").write_bytes(whole[:-1])
    session = opened(tmp_path)
    assert [found["n"] for found in session.summaries()] == [0]
    with pytest.raises(CorruptError, match="holds 1 summaries of 2"):
        session.append_summary({"text": "third"})


@pytest.mark.parametrize("name", ["context.jsonl", "summaries.jsonl", "transcript.md"])
def test_a_file_that_is_gone_is_damage_and_never_made_anew(tmp_path: Path, name: str) -> None:
    opened(tmp_path).append([message("one")])
    session = opened(tmp_path)
    file(tmp_path, name).unlink()
    call = session.append_summary if name == "summaries.jsonl" else lambda _: session.archive([["x"]])
    with pytest.raises(CorruptError, match="is missing; run `buoyline repair`"):
        call({"text": "x"})
    assert not file(tmp_path, name).exists()


# What is written comes back.


def test_all_facts_of_a_message_come_back_with_its_newest_form(tmp_path: Path) -> None:
    whole, stub = StoredFile("tool_result-c1.txt", 48_211, "9f3a01bc"), StoredFile("tool_result-c2.txt", 3, "00000001")
    line = NewLine(
        {"role": "tool", "content": "long"},
        time="2026-01-01T12:00:00Z",
        dialect="openai",
        id="m1",
        keys=("1:a",),
        pinned=True,
        stored={0: (whole,)},
        usage={"input_tokens": 9, "first": 3},
        ours=True,
    )
    session = opened(tmp_path)
    session.append([line, message("other")])
    session.note_forms([NewForm(0, {"role": "tool", "content": "short"}, ("1:b",), stored={1: (stub,)})])
    session.note_forms([NewForm(0, {"role": "tool", "content": "shorter"}, ("1:c", "1:b"), stored={1: (stub,)})])
    (found,) = opened(tmp_path).read([0])
    assert found.value == {"role": "tool", "content": "shorter"}
    assert (found.time, found.dialect, found.id, found.pinned, found.ours) == (line.time, "openai", "m1", True, True)
    assert found.keys == ("1:a", "1:b", "1:c") == opened(tmp_path).keys()[0].keys
    assert found.usage == line.usage
    assert found.stored == {0: (whole,), 1: (stub,)}


def test_lines_are_utf_8_that_every_parser_reads(tmp_path: Path) -> None:
    session = opened(tmp_path)
    session.append([message("\ud800 \\ud800 \\\\\udfff \U0001f600 \u2028"), NewLine({"a": 1}, id="\udc00")])
    lines = file(tmp_path).read_bytes().decode("utf-8").splitlines()
    assert [json.loads(line).keys() for line in lines] == [{"role", "content", "buoyline"}, {"a", "buoyline"}]
    assert opened(tmp_path).read([0])[0].value["content"] == "\ufffd \\ud800 \\\\\ufffd \U0001f600 \u2028"


# Who writes.


def test_equal_messages_are_stored_each_time_and_a_batch_with_ids_once(tmp_path: Path) -> None:
    session = opened(tmp_path)
    assert [session.append([message("yes")]) for _ in range(2)] == [0, 1]
    plain, ids = Session(Disk(tmp_path), "plain"), [NewLine({"id": "m1", "content": "ok"}), NewLine({"id": "m2"})]
    for lines, numbers in ((ids, [0, 0, 0]), ([message("ok")], [2, 3])):
        assert [plain.append_archived(lines, lambda _: [["x"]] * len(lines))[0] for _ in numbers] == numbers  # noqa: B023
        plain = Session(Disk(tmp_path), "plain")
    assert plain.load().transcript.lines == 4


def test_a_session_is_a_windows_or_plain_and_results_are_legal_in_both(tmp_path: Path) -> None:
    handle(tmp_path).note_result({"key": "c1", "files": [["tool_result-c1.txt", 1, "0"]]})
    session = opened(tmp_path)
    session.append([message("one")])
    handle(tmp_path).note_result({"key": "c2", "files": [["tool_result-c2.txt", 1, "0"]]})
    session.append([message("two")])
    assert set(opened(tmp_path).state.results) == {"tool_result-c1.txt", "tool_result-c2.txt"}
    with pytest.raises(ConfigError, match="use a new session id"):
        handle(tmp_path).append_archived([message("x")], lambda _: [["x"]])
    plain = Session(Disk(tmp_path), "plain")
    plain.append_archived([message("x")], lambda _: [["x"]])
    window = Session(Disk(tmp_path), "plain")
    assert window.open().is_plain
    with pytest.raises(ConfigError, match="use a new one"):
        window.append([message("y")])
    assert plain.load().end == 1


def test_a_window_is_stale_once_another_has_written_and_goes_on_when_it_is_opened_again(tmp_path: Path) -> None:
    old, new = opened(tmp_path), opened(tmp_path)
    old.append([message("old")])
    calls: list[Callable[[Session], Any]] = [
        lambda session: session.append([message("new")]),
        lambda session: session.note_forms([NewForm(0, {"role": "user", "content": "form"})]),
        lambda session: session.note_context(ContextRecord(((0, 1),))),
        lambda session: session.archive([["x"]]),
        lambda session: session.append_summary({"text": "x"}),
    ]
    for call in calls:
        for _ in range(2):
            with pytest.raises(StaleWindowError, match="another"):
                call(new)
        new.open()
        call(new)
        old, new = new, old
    assert texts(opened(tmp_path)) == ["form", "new"]


def test_an_id_that_shares_a_folder_with_another_is_refused(tmp_path: Path) -> None:
    opened(tmp_path).append([message("one")])
    file(tmp_path).parent.rename(tmp_path / "sessions" / "s2")
    with pytest.raises(CorruptError, match="belongs to the session 's1'"):
        Session(Disk(tmp_path), "s2").open()


def test_a_session_that_was_removed_is_not_born_again_by_a_window(tmp_path: Path) -> None:
    session = opened(tmp_path)
    session.append([message("one")])
    file(tmp_path).parent.rename(tmp_path / "elsewhere")
    with pytest.raises(StaleWindowError, match="it was removed"):
        session.append([message("two")])
    assert list((tmp_path / "sessions").iterdir()) == []
    handle(tmp_path).note_result({"key": "c1", "files": [["tool_result-c1.txt", 1, "0"]]})
    assert opened(tmp_path).state.end == 0


def test_a_writer_waits_for_the_lock_no_longer_than_it_may(tmp_path: Path) -> None:
    session = opened(tmp_path)
    session.append([message("one")])
    with Disk(tmp_path).locked("sessions/s1/context.jsonl", 1), pytest.raises(LockTimeout, match="another writer"):
        handle(tmp_path, lock_timeout_s=0.05).append([message("two")])
    session.append([message("two")])


def test_a_writer_that_waited_writes_to_the_file_that_a_repair_put_in_place(tmp_path: Path) -> None:
    opened(tmp_path).append([message("one")])
    disk, name = Disk(tmp_path), "sessions/s1/context.jsonl"
    writer = threading.Thread(target=lambda: handle(tmp_path).append_summary({"text": "x"}))
    with disk.locked(name, 1):
        writer.start()
        time.sleep(0.05)
        disk.replace(name, [file(tmp_path).read_bytes()])
    writer.join()
    assert len(opened(tmp_path).summaries()) == 1


def _use_in_child(session: Session, answers: "multiprocessing.Queue[str]") -> None:
    try:
        session.append([message("child")])
    except StaleWindowError as error:
        answers.put(str(error))
    time.sleep(60)


def test_a_child_forked_while_the_lock_is_held_neither_keeps_it_nor_writes(tmp_path: Path) -> None:
    session, context = opened(tmp_path), multiprocessing.get_context("fork")
    session.append([message("one")])
    answers: multiprocessing.Queue[str] = context.Queue()
    child = context.Process(target=_use_in_child, args=(session, answers), daemon=True)
    with session.disk.locked("sessions/s1/context.jsonl", 1):
        child.start()
        assert "before a fork" in answers.get(timeout=30)
    try:
        assert session.append([message("two")]) == 1
    finally:
        child.kill()
        child.join()


# Calls that fail.


@each_third
@pytest.mark.parametrize("after", [False, True])
def test_a_call_that_failed_changed_nothing_and_can_be_repeated(tmp_path: Path, *, after: bool, first: int) -> None:
    for number, faults in enumerate(every_fault(errno.ENOSPC, after=after, first=first, step=STEP)):
        root = tmp_path / str(number)
        session = handle(root, durable=True)
        session.open()
        for text in ("one", "two"):
            try:
                with faults:
                    session.append([message(text)])
            except StorageError:
                assert texts(opened(root)) == ["one"][: text == "two"]
                try:
                    session.append([message(text)])
                except StaleWindowError:  # the cut failed
                    session.open()
                    if text not in texts(session):
                        session.append([message(text)])
        assert texts(opened(root)) == ["one", "two"]
        assert session.damage() == []


def compact(session: Session, until: int) -> None:
    rendered = session.archive([["## a message", ""]])
    number = session.append_summary({"text": f"summary {until}"})
    ranges, left = ((0, session.state.end),), ((until - 1, until),)
    record = ContextRecord(
        ranges, until, summary=number, transcript=rendered.transcript, left=left, lines=rendered.lines
    )
    session.note_context(record)


@each_third
def test_a_compaction_on_a_full_disk_changed_nothing_and_can_be_repeated(tmp_path: Path, first: int) -> None:
    for number, faults in enumerate(every_fault(errno.ENOSPC, first=first, step=STEP)):
        root = tmp_path / str(number)
        session = handle(root, durable=True)
        session.open()
        session.append([message("one"), message("two")])
        compact(session, 1)
        before = opened(root).state.context
        try:
            with faults:
                compact(session, 2)
        except StorageError:
            assert opened(root).state.context == before
            compact(session, 2)
        state = opened(root).state
        assert state.context is not None
        assert (state.context.until, state.transcript.lines, state.places) == (2, 4, {0: (1, 3), 1: (3, 5)})
        assert state.starts == [1, 3]
        assert session.damage() == []


def test_a_write_that_could_not_be_undone_makes_the_window_open_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = handle(tmp_path, durable=True)
    session.append([message("one")])
    session.open()

    def refused(*_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    session.append([message("two")])
    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", refused)
        patched.setattr(os, "ftruncate", refused)
        with pytest.raises(StorageError, match="Read-only"):
            session.append([message("three")])
    with pytest.raises(StaleWindowError, match="could not be undone"):
        session.append([message("four")])
    session.open()
    assert texts(session) == ["one", "two", "three"]
    session.append([message("four")])
    assert texts(opened(tmp_path)) == ["one", "two", "three", "four"]


WRITER = """
import sys
from pathlib import Path
from buoyline.workspace.disk import Disk
from buoyline.workspace.session import Session
from buoyline.workspace.state import NewLine

root, name = sys.argv[1:]
session, number = Session(Disk(Path(root), durable=False), "s1"), 0
with open(f"{root}.{name}", "a", buffering=1) as acknowledged:
    while True:
        texts = [f"{name} {number} {part} " + "y" * 300 for part in range(1 + number % 4)]
        lines = [NewLine({"id": text, "content": text}) for text in texts]
        first, _ = session.append_archived(lines, lambda _: [[text, ""] for text in texts])
        acknowledged.write(f"{number} {first}\\n")
        number += 1
"""


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_two_writers_that_are_killed_25_times_lose_nothing(tmp_path: Path) -> None:
    root = tmp_path / "w"
    for run in range(25):
        writers = [
            subprocess.Popen([sys.executable, "-c", WRITER, str(root), f"{run}-{who}"], stderr=subprocess.DEVNULL)
            for who in "ab"
        ]
        time.sleep(0.5 + run % 5 / 10)
        for writer in writers:
            writer.send_signal(signal.SIGKILL)
        for writer in writers:
            writer.wait()
    session = handle(root)
    found = [line.value["content"].split(" ")[:3] for line in session.read(range(session.load().end))]
    acknowledged = [
        (path.suffix[1:], *line.split(" "))
        for path in tmp_path.glob("w.*")
        for line in path.read_text("utf-8").splitlines(keepends=True)
        if line.endswith("\n")
    ]
    assert len(acknowledged) > 100
    for name, number, first in acknowledged:
        assert found[int(first)] == [name, number, "0"]
    parts = list(_parts(found))
    assert all(count == 1 + number % 4 for number, count in parts)
    assert session.damage() == []


def _parts(found: Sequence[Sequence[str]]) -> Iterator[tuple[int, int]]:
    """Yield the number of each batch, and how many of its messages stand in a row."""
    start = 0
    for at in range(1, len(found) + 1):
        if at == len(found) or found[at][:2] != found[start][:2]:
            yield int(found[start][1]), at - start
            start = at


def test_who_reads_while_others_write_never_takes_it_for_damage(tmp_path: Path) -> None:
    writer, errors = opened(tmp_path), list[Exception]()
    writer.append([message("one")])
    is_done = threading.Event()

    def write() -> None:
        while not is_done.is_set() and writer.state.end < 300:
            writer.note_forms([NewForm(0, {"role": "user", "content": "form"})])
            writer.append([message("more"), message("more")])

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(100):
            reader = handle(tmp_path)
            state = reader.load()
            try:
                assert len(reader.read(range(state.end))) % 2 == 1
            except CorruptError as error:
                errors.append(error)
    finally:
        is_done.set()
        thread.join()
    assert errors == []


def test_a_handle_forgets_a_session_that_was_removed_and_begun_anew(tmp_path: Path) -> None:
    first = handle(tmp_path)
    first.append([message("old")])
    first.note_forms([NewForm(0, message("shorter").value)])
    shutil.rmtree(file(tmp_path, ""))
    handle(tmp_path).append([message("new")])
    first.append([message("next")])
    assert texts(first) == ["new", "next"]
