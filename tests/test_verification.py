"""`verify`: a healthy workspace gives no findings, and whatever is done to one is found."""

import asyncio
import base64
import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from thirds import STEP, each_third

from buoyline.compression import ContextConfig
from buoyline.errors import NotFoundError
from buoyline.maintenance.verify import IntegrityReport, verify
from buoyline.maintenance.verify.findings import KINDS, SEVERITIES
from buoyline.window import ContextWindow
from buoyline.workspace import LocalWorkspace
from buoyline.workspace.journal import decode, encode

PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(b"PNG" * 99).decode()}}
SMALL = ContextConfig(tool_result_limit=300, preview_tokens=200)
LATER = {"role": "user", "content": "and then?"}
SUMMARY = {"messages": [0, 1], "source_tokens": 9, "tokens": 3, "text": "short", "fields": {}}

S1 = Path("sessions/s1")
S2 = Path("sessions/s2")


def conversation() -> Iterator[dict[str, Any]]:
    yield {"role": "user", "content": [{"type": "text", "text": "What is this?"}, PICTURE]}
    for number in range(24):
        call = {"id": f"call_{number}", "type": "function", "function": {"name": "run", "arguments": "{}"}}
        yield {"role": "assistant", "content": f"Step {number}", "tool_calls": [call]}
        text = (
            f'{{"rows":[{"123456789," * 500}{number}]}}' if number % 5 == 0 else f"line {number}\n" * 60 * (number % 3)
        )
        yield {"role": "tool", "tool_call_id": f"call_{number}", "content": text}


async def fill(workdir: Path) -> None:
    async with LocalWorkspace(workdir, durability="off") as workspace:
        window = ContextWindow(offloader=workspace, session_id="s1", size=4_000, config=SMALL)
        for number, message in enumerate(conversation()):
            await window.add(message)
            await window.prepare()
            if number % 16 == 15:
                await window.compress(before=number - 3)
        await workspace.archive("s2", [{"role": "user", "content": [PICTURE]}])
        await workspace.archive("s2", [{"role": "assistant", "content": "a picture"}, LATER])


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace as a window, results, payloads and compressions leave it, to be copied."""
    workdir = tmp_path_factory.mktemp("verify") / "workspace"
    asyncio.run(fill(workdir))
    (workdir / "skills").mkdir()
    (workdir / "skills" / "notes.md").symlink_to("/nowhere")
    (workdir / S1 / "scratch.txt").write_text("the agent's own\n", "utf-8")
    return workdir


@pytest.fixture
def workdir(healthy: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(healthy, tmp_path / "workspace", symlinks=True))


def report_on(workdir: Path, **options: Any) -> IntegrityReport:
    return verify(LocalWorkspace(workdir), **options)


def kinds(report: IntegrityReport) -> set[str]:
    return {found.kind for found in report.findings}


def state_of(workdir: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return mode, time of change and content of everything below *workdir*."""
    found: dict[str, tuple[int, int, bytes]] = {}
    for path in sorted(workdir.rglob("*")):
        status = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        found[str(path)] = status.st_mode, status.st_mtime_ns, content
    return found


def first_of(workdir: Path, pattern: str) -> Path:
    return min(path for path in workdir.glob(pattern) if not path.name.endswith(".view.txt") or "view" in pattern)


def flip(path: Path, at: int = 40) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def append(path: Path, content: bytes) -> None:
    with path.open("ab") as file:
        file.write(content)


def put(path: Path, content: bytes = b"") -> None:
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.write_bytes(content)
    path.chmod(0o600)


def change_record(session: Path, op: str, **fields: Any) -> None:
    """Give the last record of kind *op* other fields, under a valid checksum."""
    lines = (session / "journal.jsonl").read_bytes().splitlines(keepends=True)
    place = max(n for n, line in enumerate(lines) if f'"op":"{op}"'.encode() in line)
    record = dict(decode(lines[place].rstrip(b"\n")) or {})
    lines[place] = encode({**record, **fields})
    (session / "journal.jsonl").write_bytes(b"".join(lines))


def stubbed(workdir: Path) -> Path:
    """Return the file of a tool result that a stub stands for."""
    records = [decode(line) or {} for line in (workdir / S1 / "journal.jsonl").read_bytes().splitlines()]
    names: list[str] = [record["path"] for record in records if record["op"] == "stub"]
    return workdir / S1 / names[0]


def as_link(path: Path) -> None:
    outside = path.parents[2] / "outside"
    path.rename(outside)
    path.symlink_to(outside)


def point_nowhere(workdir: Path) -> None:
    pointers = [{"path": "transcript.md", "start": 1, "end": 1_000_000}]
    workspace = LocalWorkspace(workdir, durability="off")
    asyncio.run(workspace.append_summary("s2", {**SUMMARY, "pointers": pointers}))


def store_alone(workdir: Path) -> None:
    block = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD"}}
    asyncio.run(LocalWorkspace(workdir, durability="off").offload_data_block(block))


BREAKS: dict[str, Callable[[Path], object]] = {
    "format": lambda w: (w / "workspace.json").write_text('{"format": 99}', "utf-8"),
    "owner": lambda w: (w / S2).rename(w / "sessions/s3"),
    "file-type": lambda w: as_link(w / S1 / "context.jsonl"),
    "missing-file": lambda w: (w / S1 / "context.jsonl").unlink(),
    "short-file": lambda w: os.truncate(w / S1 / "context.jsonl", 100),
    "changed-bytes": lambda w: flip(w / S1 / "context.jsonl"),
    "lost-facts": lambda w: max((w / S1).glob("facts-*.jsonl")).unlink(),
    "bad-record": lambda w: flip(w / S1 / "journal.jsonl"),
    "bad-line": lambda w: append(w / S1 / "window.jsonl", b"[1, 2]\n"),
    "gap": lambda w: change_record(w / S2, "batch", first=7),
    "missing-messages": lambda w: change_record(w / S1, "window", first=1_000),
    "missing-result": lambda w: first_of(w, "sessions/s1/tool_result-*.txt").unlink(),
    "missing-blob": lambda w: first_of(w, "data/*").unlink(),
    "dangling-stub": lambda w: stubbed(w).unlink(),
    "dangling-pointer": point_nowhere,
    "bad-last-record": lambda w: append(w / S1 / "journal.jsonl", b"\0\0\0\n"),
    "unfinished-batch": lambda w: flip(w / S2 / "context.jsonl", -4),
    "stale-transcript": lambda w: flip(w / S1 / "transcript.md"),
    "stale-view": lambda w: flip(first_of(w, "sessions/s1/tool_result-*.view.txt")),
    "orphan-view": lambda w: put(w / S1 / "tool_result-none.view.txt", b"x\n"),
    "unrecorded-window": lambda w: put(w / S2 / "window.jsonl"),
    "unchecked-lines": lambda w: append(w / S1 / "window.jsonl", b'{"role":"user","content":"x"}\n'),
    "torn-tail": lambda w: append(w / S1 / "context.jsonl", b'{"role"'),
    "torn-transcript": lambda w: append(w / S1 / "transcript.md", b"half a "),
    "torn-bytes": lambda w: put(w / S1 / "torn/context.jsonl-9-abc", b"x"),
    "leftover": lambda w: put(w / S1 / ".tmp-0123"),
    "unrecorded-result": lambda w: put(w / S1 / "tool_result-none.txt"),
    "unreferenced-blob": store_alone,
}


def test_a_healthy_workspace_has_no_findings_and_is_not_touched(healthy: Path) -> None:
    before = state_of(healthy)
    report = report_on(healthy)

    assert report.findings == ()
    assert report.is_sound
    assert (report.sessions, report.blobs) == (2, 1)
    assert report_on(healthy, hashes=False).findings == ()
    assert state_of(healthy) == before


@pytest.mark.parametrize("kind", BREAKS)
def test_each_kind_of_finding_is_made(workdir: Path, kind: str) -> None:
    BREAKS[kind](workdir)
    report = report_on(workdir)
    found = [found for found in report.findings if found.kind == kind]

    assert found
    assert {(f.severity, f.message == "", f.path.startswith("/")) for f in found} == {(KINDS[kind], False, False)}
    assert report.is_sound == (KINDS[kind] == "note")
    if KINDS[kind] == "note":
        assert kinds(report) == {kind}


def test_every_kind_is_tested_and_described(request: pytest.FixtureRequest) -> None:
    described = (request.config.rootpath / "docs" / "format.md").read_text("utf-8").partition("## Verify")[2]

    assert {*BREAKS, "unreadable"} == set(KINDS)
    assert [kind for kind in KINDS if f"| `{kind}` | {KINDS[kind]} |" not in described] == []


def test_what_the_device_cannot_read_is_a_finding(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, broken = os.pread, (workdir / S1 / "context.jsonl").stat().st_ino

    def pread(descriptor: int, size: int, offset: int) -> bytes:
        if os.fstat(descriptor).st_ino == broken:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(descriptor, size, offset)

    monkeypatch.setattr(os, "pread", pread)
    (found,) = report_on(workdir).findings

    assert (found.kind, found.path) == ("unreadable", "sessions/s1/context.jsonl")


def test_findings_come_worst_first_with_their_place(workdir: Path) -> None:
    for kind in ("torn-tail", "changed-bytes", "orphan-view"):
        BREAKS[kind](workdir)
    report = report_on(workdir)

    assert [found.severity for found in report.findings] == ["damage", "warning", "note"]
    assert [report.count(severity) for severity in SEVERITIES] == [1, 1, 1]
    damage, _, torn = report.findings
    assert (damage.path, damage.line, damage.offset) == ("sessions/s1/context.jsonl", 1, 0)
    assert "messages 0 to " in damage.message
    assert torn.offset == (workdir / S1 / "context.jsonl").stat().st_size - len(b'{"role"')


def test_structure_alone_reads_no_contents(workdir: Path) -> None:
    for kind in ("changed-bytes", "stale-transcript", "stale-view"):
        BREAKS[kind](workdir)
    BREAKS["orphan-view"](workdir)
    report = report_on(workdir, hashes=False)

    assert kinds(report) == {"orphan-view"}
    assert report.bytes_read == sum(path.stat().st_size for path in workdir.glob("sessions/*/journal.jsonl"))


def test_chosen_sessions_are_verified_with_their_blobs_alone(workdir: Path) -> None:
    store_alone(workdir)
    flip(workdir / S1 / "transcript.md")
    flip(min(workdir.glob("data/*"), key=lambda path: -path.stat().st_size))

    report = report_on(workdir, sessions=["s2"])

    assert kinds(report) == {"changed-bytes"}
    assert (report.sessions, report.blobs) == (1, 1)
    with pytest.raises(NotFoundError, match="no session 's9'"):
        report_on(workdir, sessions=["s9"])


def test_where_there_is_no_workspace_none_is_made(tmp_path: Path) -> None:
    for workdir in (tmp_path, tmp_path / "none"):
        with pytest.raises(NotFoundError, match="no workspace"):
            report_on(workdir)
    assert list(tmp_path.iterdir()) == []


def test_a_newer_format_is_looked_at_no_further(workdir: Path) -> None:
    for kind in ("format", "changed-bytes", "orphan-view"):
        BREAKS[kind](workdir)
    assert kinds(report_on(workdir)) == {"format"}


@pytest.mark.parametrize("what", ["pipe", "directory", "link"])
def test_what_is_no_file_is_neither_waited_on_nor_followed(healthy: Path, tmp_path: Path, what: str) -> None:
    names = [path.relative_to(healthy) for path in healthy.rglob("*") if path.is_file() and path.name != "scratch.txt"]
    for number, name in enumerate(names):
        workdir = Path(shutil.copytree(healthy, tmp_path / str(number), symlinks=True))
        original = (workdir / name).rename(tmp_path / f"{number}-outside")
        if what == "pipe":
            os.mkfifo(workdir / name)
        elif what == "directory":
            (workdir / name).mkdir()
        else:
            (workdir / name).symlink_to(original)
        found = [f for f in report_on(workdir).findings if f.path == str(name)]
        assert "file-type" in {f.kind for f in found}
        shutil.rmtree(workdir)


WRITER = """
import asyncio, sys
from buoyline.window import ContextWindow
from buoyline.workspace import LocalWorkspace

async def main():
    workspace = LocalWorkspace(sys.argv[1], durability="off")
    window = ContextWindow(offloader=workspace, session_id=sys.argv[2], size=3000)
    for number in range(100_000):
        call = {"id": f"c{number}", "type": "function", "function": {"name": "run", "arguments": "{}"}}
        await window.add({"role": "assistant", "content": "next", "tool_calls": [call]})
        text = "x" * 20_000 if number % 3 == 0 else f"word {number} " * 90
        await window.add({"role": "tool", "tool_call_id": f"c{number}", "content": text})
        await window.prepare()
        print(number, flush=True)

asyncio.run(main())
"""


def writer(workdir: Path, session: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", WRITER, str(workdir), session]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@each_third
def test_a_killed_writer_leaves_notes_at_most(tmp_path: Path, first: int) -> None:
    for number, attempt in enumerate(range(first - 1, 6, STEP)):
        with writer(tmp_path, f"s{attempt}") as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(0.05 + 0.03 * attempt)
            process.send_signal(signal.SIGKILL)
        report = report_on(tmp_path)
        assert [found for found in report.findings if found.severity != "note"] == []
        assert report.sessions == number + 1


def test_a_writer_at_work_is_not_taken_for_damage(tmp_path: Path) -> None:
    with writer(tmp_path, "s1") as process:
        assert process.stdout is not None
        for _ in range(25):
            process.stdout.readline()
            report = report_on(tmp_path)
            assert [found for found in report.findings if found.severity != "note"] == []
        process.send_signal(signal.SIGKILL)


MUST_BE_FOUND = (
    "context.jsonl",
    "journal.jsonl",
    "summaries.jsonl",
    "facts-",
    "transcript.md",
    "tool_result-",
    "data/",
)


@given(data=st.data())
def test_no_change_of_what_was_committed_goes_unseen(healthy: Path, data: st.DataObject) -> None:
    files = sorted(path for path in healthy.rglob("*") if path.is_file() and path.stat().st_size)
    path = data.draw(st.sampled_from(files), label="file")
    content = path.read_bytes()
    changes = st.dictionaries(st.integers(0, len(content) - 1), st.integers(1, 255), min_size=1, max_size=4)
    changed = bytearray(content)
    for place, mask in data.draw(changes, label="changes").items():
        changed[place] ^= mask
    try:
        path.write_bytes(changed)
        report = report_on(healthy)
    finally:
        path.write_bytes(content)
    name = path.relative_to(healthy).as_posix()
    if any(part in name for part in MUST_BE_FOUND):
        assert report.findings


@given(data=st.data())
def test_no_garbage_ends_a_verification(healthy: Path, data: st.DataObject) -> None:
    files = sorted(path for path in healthy.rglob("*") if path.is_file())
    path = data.draw(st.sampled_from(files), label="file")
    content = path.read_bytes()
    start, end = sorted(data.draw(st.tuples(*[st.integers(0, len(content))] * 2), label="cut"))
    garbage = data.draw(
        st.one_of(st.binary(max_size=200), st.sampled_from([b"\n", b"{}\n", b"\0" * 5000])), label="garbage"
    )
    try:
        path.write_bytes(content[:start] + garbage + content[end:])
        report_on(healthy)
        report_on(healthy, hashes=False)
    finally:
        path.write_bytes(content)
