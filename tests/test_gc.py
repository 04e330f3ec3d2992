"""`collect`: what nobody needs goes, what anybody may need stays, whatever happens in between."""

import asyncio
import base64
import errno
import hashlib
import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from faults import CALLS, every_fault
from thirds import STEP, each_third

from buoyline.errors import BuoylineError, CorruptError, LockTimeout, NotFoundError, StaleWindowError
from buoyline.maintenance.gc import GcReport, Retention, collect
from buoyline.maintenance.repair import repair
from buoyline.maintenance.verify import verify
from buoyline.workspace import LocalWorkspace, layout

DAY_S = 86_400
ONLY_S2 = Retention(max_sessions=1)


def picture(name: str) -> dict[str, Any]:
    url = "data:image/png;base64," + base64.b64encode(name.encode() * 9).decode()
    return {"type": "image_url", "image_url": {"url": url}}


def message(*names: str) -> dict[str, Any]:
    return {"role": "user", "content": [picture(name) for name in names]}


def blob(workdir: Path, name: str) -> Path:
    return workdir / "data" / f"{hashlib.sha256(name.encode() * 9).hexdigest()}.png"


def age(path: Path, days: float) -> None:
    """Set the times of all regular files below *path* back."""
    for file in [path, *path.rglob("*")]:
        then = file.lstat().st_mtime - days * DAY_S
        os.utime(file, (then, then), follow_symlinks=False)


async def fill(workdir: Path) -> None:
    async with LocalWorkspace(workdir, durability="off") as workspace:
        await workspace.archive("s1", [message("one", "both")])
        await workspace.archive("s2", [message("both", "two")])
        await workspace.offload_tool_result("s1", {"role": "tool", "tool_call_id": "c1", "content": "x" * 3_000})
        await workspace.offload_data_block(picture("alone"))


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    """Two sessions of three and two days ago that share a blob, and a blob that no session knows."""
    asyncio.run(fill(tmp_path / "workspace"))
    age(tmp_path / "workspace", 2)
    age(tmp_path / "workspace/sessions/s1", 1)
    age(blob(tmp_path / "workspace", "one"), 1)
    return tmp_path / "workspace"


def swept(workdir: Path, retention: Retention | None = None, **options: Any) -> GcReport:
    return collect(LocalWorkspace(workdir, durability="off"), retention, dry_run=False, **options)


def state_of(workdir: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path): (path.lstat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in sorted(workdir.rglob("*"))
    }


def pictures(workdir: Path) -> set[str]:
    return {name for name in ("one", "both", "two", "alone") if blob(workdir, name).exists()}


def test_a_dry_run_says_what_would_go_and_changes_nothing(workdir: Path) -> None:
    before = state_of(workdir)
    told = collect(LocalWorkspace(workdir), ONLY_S2)
    assert state_of(workdir) == before
    done = swept(workdir, ONLY_S2)
    assert told.is_dry_run
    assert not done.is_dry_run
    assert (told.sessions, told.blobs, told.session_bytes) == (done.sessions, done.blobs, done.session_bytes)


def test_a_session_goes_with_the_blobs_that_were_its_alone(workdir: Path) -> None:
    size = sum(path.stat().st_size for path in (workdir / "sessions/s1").iterdir())
    found = swept(workdir, ONLY_S2)
    assert [departure.session.session_id for departure in found.sessions] == ["s1"]
    assert found.freed_bytes == size + 27
    assert pictures(workdir) == {"both", "two", "alone"}
    assert [path.name for path in (workdir / "sessions").iterdir()] == ["s2"]
    assert verify(LocalWorkspace(workdir)).is_sound


@pytest.mark.parametrize(
    ("retention", "gone"),
    [
        (Retention(max_age_s=30 * DAY_S), []),
        (Retention(max_age_s=2.5 * DAY_S), [("s1", "age")]),
        (Retention(max_sessions=1), [("s1", "count")]),
        (Retention(max_bytes=8_000), [("s1", "bytes")]),
        (Retention(max_age_s=2.5 * DAY_S, max_sessions=0), [("s1", "age"), ("s2", "count")]),
    ],
)
def test_each_limit_alone_lets_the_oldest_sessions_go(
    workdir: Path, retention: Retention, gone: list[tuple[str, str]]
) -> None:
    assert [(one.session.session_id, one.reason) for one in swept(workdir, retention).sessions] == gone


@pytest.mark.parametrize("retention", [Retention(max_age_s=0), Retention(max_sessions=0), Retention(max_bytes=0)])
def test_a_session_that_was_touched_within_the_grace_stays_whatever_the_limits_say(
    workdir: Path, retention: Retention
) -> None:
    os.utime(workdir / "sessions/s1/context.jsonl")  # one file of it is enough
    found = swept(workdir, retention)
    assert [one.session.session_id for one in found.sessions] == ["s2"]
    assert found.recent == ("s1",)
    assert pictures(workdir) == {"one", "both", "alone"}
    assert [one.session.session_id for one in swept(workdir, retention, grace_s=0).sessions] == ["s1"]


def test_a_blob_that_somebody_stored_again_later_stays(workdir: Path) -> None:
    asyncio.run(LocalWorkspace(workdir, durability="off").offload_data_block(picture("one")))
    swept(workdir, ONLY_S2)
    assert len(swept(workdir, grace_s=0).unowned) == 2
    assert "one" in pictures(workdir)
    swept(workdir, grace_s=0, unowned=True)
    assert pictures(workdir) == {"both", "two"}


def test_a_blob_that_is_stored_again_is_new_again(workdir: Path) -> None:
    before = blob(workdir, "alone").stat()
    asyncio.run(LocalWorkspace(workdir, durability="off").offload_data_block(picture("alone")))
    after = blob(workdir, "alone").stat()
    assert after.st_mtime > before.st_mtime + DAY_S
    assert after.st_ino == before.st_ino


@pytest.mark.parametrize(
    "name",
    ["context.jsonl", "notes.txt", "torn/context.jsonl-0-12345678", "tool_result-x.txt", "deep/er/file", ".tmp-1"],
)
def test_a_hash_anywhere_in_a_session_is_a_reference(workdir: Path, name: str) -> None:
    file = workdir / "sessions/s2" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab") as opened:
        # Across the border of two pieces that are read, and within a longer run of such digits.
        opened.write(b"." * ((1 << 20) - 70) + b"abc" + blob(workdir, "one").stem.encode() + b"0" * 99 + b"\n")
    swept(workdir, ONLY_S2)
    assert pictures(workdir) == {"one", "both", "two", "alone"}


def _spoil(workdir: Path, how: str) -> None:
    session = workdir / "sessions/s2"
    match how:
        case "no session.json":
            (session / "session.json").unlink()
        case "no JSON":
            (session / "session.json").write_text("{", "utf-8")
        case "newer format":
            (session / "session.json").write_text('{"format":2,"id":"s2"}\n', "utf-8")
        case "another owner":
            shutil.copy(workdir / "sessions/s1/session.json", session)
        case "link":
            session.rename(workdir / "elsewhere")
            session.symlink_to(workdir / "elsewhere")
        case "file as link":
            (session / "context.jsonl").rename(workdir / "elsewhere")
            (session / "context.jsonl").symlink_to(workdir / "elsewhere")
        case "cut archive":
            asyncio.run(LocalWorkspace(workdir).archive("s2", [{"role": "user", "content": "later"}]))
            os.truncate(session / "context.jsonl", 10)
        case _:
            (session / "journal.jsonl").unlink()


@pytest.mark.parametrize(
    "how",
    [
        "no session.json",
        "no JSON",
        "newer format",
        "another owner",
        "link",
        "file as link",
        "cut archive",
        "no journal",
    ],
)
def test_a_session_that_cannot_be_read_stops_everything(workdir: Path, how: str) -> None:
    (workdir / "data/.tmp-1").write_bytes(b"left")
    age(workdir / "data/.tmp-1", 9)
    _spoil(workdir, how)
    before = state_of(workdir)
    for retention in (None, Retention(max_sessions=0)):
        with pytest.raises(CorruptError, match="sessions/s2") as caught:
            swept(workdir, retention, grace_s=0, unowned=True)
        assert "buoyline repair" in str(caught.value)
    assert state_of(workdir) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read_stops_everything(workdir: Path) -> None:
    (workdir / "sessions/s1/tool_result-c1.txt").chmod(0)
    with pytest.raises(CorruptError, match="Permission denied"):
        swept(workdir, ONLY_S2)


def test_leftovers_go_once_they_are_old(workdir: Path) -> None:
    new: list[Path] = []
    old: list[Path] = []
    for place in (".", "sessions", "sessions/s1", "data"):
        for name, list_ in ((".tmp-new", new), (".tmp-old", old)):
            list_.append(workdir / place / name)
            list_[-1].write_bytes(b"left")
    (workdir / "sessions/.tmp-directory/deep").mkdir(parents=True)
    (workdir / "sessions/.tmp-directory/deep/link").symlink_to(workdir)
    (workdir / ".tmp-agents-own").mkdir()
    for path in (*old, workdir / "sessions/.tmp-directory", workdir / ".tmp-agents-own"):
        age(path, 2)
    found = swept(workdir)
    assert len(found.leftovers) == 5
    assert [path for path in old if path.exists()] == []
    assert [path for path in new if not path.exists()] == []
    assert not (workdir / "sessions/.tmp-directory").exists()
    assert (workdir / ".tmp-agents-own").is_dir()


def test_what_is_not_ours_is_never_touched(workdir: Path) -> None:
    outside = workdir.parent / "outside"
    outside.mkdir()
    (outside / "precious").write_text("keep me", "utf-8")
    for place in ("skills", "context_management", "sessions/own", "data/own", "quarantine"):
        (workdir / place).mkdir()
        (workdir / place / "file").write_text("mine", "utf-8")
    (workdir / "data/notes.txt").write_text("mine", "utf-8")
    (workdir / "sessions/s1/link").symlink_to(outside)
    (workdir / f"data/{'0' * 64}.png").symlink_to(outside / "precious")
    age(workdir, 9)
    swept(workdir, Retention(max_sessions=0), grace_s=0, unowned=True)
    assert (outside / "precious").read_text("utf-8") == "keep me"
    left = {str(path.relative_to(workdir)) for path in workdir.rglob("*") if not path.is_dir()}
    assert left >= {f"{place}/file" for place in ("skills", "context_management", "sessions/own", "data/own")}
    assert f"data/{'0' * 64}.png" in left
    assert "data/notes.txt" in left


def test_a_removal_that_was_cut_short_is_completed(workdir: Path) -> None:
    (workdir / "sessions/s1").rename(workdir / "sessions/.tmp-removed-0123456789abcdef")
    assert LocalWorkspace(workdir).session_ids() == ["s2"]
    assert [found.kind for found in verify(LocalWorkspace(workdir)).findings].count("leftover") == 1
    assert len(swept(workdir).leftovers) == 1
    assert pictures(workdir) == {"both", "two", "alone"}
    assert [path.name for path in (workdir / "sessions").iterdir()] == ["s2"]


def test_a_writer_that_knew_the_session_begins_it_anew_or_is_told(workdir: Path) -> None:
    async def run() -> None:
        async with LocalWorkspace(workdir, durability="off") as workspace:
            await workspace.archive("s1", [{"role": "user", "content": "before"}])
            swept(workdir, Retention(max_sessions=0), grace_s=0)
            with pytest.raises(NotFoundError):
                await workspace.load_messages("s1", 0, 1) if not (workdir / "sessions/s1").exists() else None
            with pytest.raises(StaleWindowError):
                await workspace.archive("s1", [message("one")], first=2)
            await workspace.archive("s1", [message("one")])
            await workspace.offload_tool_result("s1", {"role": "tool", "tool_call_id": "c1", "content": "again"})
            assert len(await workspace.load_messages("s1", 0, 1)) == 1

    asyncio.run(run())
    assert verify(LocalWorkspace(workdir)).is_sound


def test_a_session_that_is_held_stays_with_its_blobs_and_all_else_goes(workdir: Path) -> None:
    asyncio.run(LocalWorkspace(workdir, durability="off").archive("s3", [message("three")]))
    age(workdir, 2)
    age(workdir / "sessions/s3", 3)
    age(blob(workdir, "three"), 3)
    tree = LocalWorkspace(workdir).tree
    with tree.lock(layout.lock_name("s1"), 1):
        found = swept(workdir, ONLY_S2, lock_timeout_s=0.05)
    assert found.locked == ("s1",)
    assert [departure.session.session_id for departure in found.sessions] == ["s3"]
    assert not blob(workdir, "three").exists()
    assert blob(workdir, "one").exists()
    assert verify(LocalWorkspace(workdir)).is_sound
    found = swept(workdir, ONLY_S2)
    assert not found.locked
    assert [departure.session.session_id for departure in found.sessions] == ["s1"]
    assert not blob(workdir, "one").exists()


def test_writers_wait_for_a_sweep_and_a_sweep_for_writers(workdir: Path) -> None:
    tree = LocalWorkspace(workdir).tree
    hasty = LocalWorkspace(workdir, lock_timeout_s=0.05)
    with tree.lock(layout.GC_LOCK, 1):
        for call in (hasty.offload_data_block(picture("new")), hasty.archive("s1", [message("new")])):
            with pytest.raises(LockTimeout):
                asyncio.run(call)
    with tree.lock(layout.GC_LOCK, 1, shared=True):
        asyncio.run(hasty.archive("s1", [message("new")]))
        with pytest.raises(LockTimeout):
            swept(workdir, lock_timeout_s=0.05)


@each_third
@pytest.mark.parametrize(("code", "after"), [(errno.EIO, False), (errno.EIO, True), (errno.ENOSPC, False)])
def test_a_run_that_fails_anywhere_is_completed_by_the_next(
    tmp_path: Path, code: int, first: int, *, after: bool
) -> None:
    """And until then, nothing that is referred to is gone."""
    asyncio.run(fill(tmp_path / "made"))
    age(tmp_path / "made", 2)
    age(tmp_path / "made" / "sessions/s1", 1)
    age(blob(tmp_path / "made", "one"), 1)
    for faults in every_fault(code, after=after, calls=(*CALLS, "rmdir", "utime"), first=first, step=STEP):
        workdir = Path(shutil.copytree(tmp_path / "made", tmp_path / "workspace"))
        workspace = LocalWorkspace(workdir)
        with faults:
            try:
                collect(workspace, ONLY_S2, dry_run=False)
            except BuoylineError:
                assert faults.has_struck
        assert not [found for found in verify(workspace).findings if found.severity == "damage"]
        assert pictures(workdir) >= {"both", "two", "alone"}

        collect(workspace, ONLY_S2, dry_run=False)
        assert pictures(workdir) == {"both", "two", "alone"}
        assert [path.name for path in (workdir / "sessions").iterdir()] == ["s2"]
        shutil.rmtree(workdir)


SWEEPER = """
import sys
from buoyline.workspace import LocalWorkspace
from buoyline.maintenance.gc import collect
runs = 0
print("ready", flush=True)
while not sys.stdin.closed:
    collect(LocalWorkspace(sys.argv[1], durability="off"), grace_s=0, unowned=True, dry_run=False)
    runs += 1
    import os
    if os.path.exists(sys.argv[1] + "/stop"):
        break
print(runs)
"""


@pytest.mark.slow
def test_no_reference_dangles_while_sweeps_and_writers_race(tmp_path: Path) -> None:
    """The same few payloads come and go: stored alone, swept, and referred to again."""
    asyncio.run(fill(tmp_path))
    with subprocess.Popen(
        [sys.executable, "-c", SWEEPER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"

        async def write() -> None:
            async with LocalWorkspace(tmp_path, durability="off") as workspace:
                for number in range(400):
                    await workspace.offload_data_block(picture(f"p{number % 7}{number // 100}"))
                    await workspace.archive(f"s{number % 5}", [message(f"p{number % 7}{number // 50}", f"q{number}")])

        asyncio.run(write())
        (tmp_path / "stop").touch()
        runs = int(process.stdout.readline())
    assert runs > 3
    report = verify(LocalWorkspace(tmp_path))
    assert report.findings == () or {found.kind for found in report.findings} == {"unreferenced-blob"}


def removing(workdir: Path, session_id: str, look: int) -> Callable[..., None]:
    """Return a function whose call number *look* removes a session as gc does in another process."""
    calls = itertools.count(1)

    def on_progress(*_: int) -> None:
        if next(calls) == look:
            age(workdir / "sessions" / session_id, 9)
            swept(workdir, ONLY_S2)

    return on_progress


@pytest.mark.parametrize("session_id", ["s1", "s2"])
@pytest.mark.parametrize("look", range(1, 8))
def test_a_session_that_is_removed_during_a_check_is_no_damage(workdir: Path, session_id: str, look: int) -> None:
    remove = removing(workdir, session_id, look)
    found = verify(LocalWorkspace(workdir), on_progress=remove).findings
    assert [one for one in found if one.severity != "note"] == []


@pytest.mark.parametrize("look", range(1, 12))
def test_a_session_that_is_removed_during_a_repair_is_not_left_as_damage(workdir: Path, look: int) -> None:
    done = repair(LocalWorkspace(workdir), on_progress=removing(workdir, "s1", look))
    assert (done.actions, done.remaining) == ((), ())
