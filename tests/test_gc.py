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
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from faults import CALLS, every_fault
from hypothesis import given
from hypothesis import strategies as st
from thirds import STEP, each_third

from buoyline import ContextWindow
from buoyline.errors import BuoylineError, ConfigError, CorruptError, LockTimeout, NotFoundError, StaleWindowError
from buoyline.maintenance.gc import GcReport, Retention, collect, former_reference_line, former_references
from buoyline.maintenance.repair import repair
from buoyline.maintenance.verify import verify
from buoyline.workspace import LocalWorkspace, layout
from buoyline.workspace.blobs import ReferenceScanner, hex_runs

DAY_S = 86_400
ONLY_S2 = Retention(max_sessions=0, kept=frozenset({"s2"}))


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
    """Two sessions of two days ago that share a blob, and a blob that no session knows."""
    asyncio.run(fill(tmp_path / "workspace"))
    age(tmp_path / "workspace", 2)
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


def test_nothing_goes_without_a_policy(workdir: Path) -> None:
    before = state_of(workdir)
    found = swept(workdir)
    assert (found.sessions, found.blobs, found.leftovers, found.freed_bytes) == ((), (), (), 0)
    assert [Path(one.path).name for one in found.unowned] == [blob(workdir, "alone").name]
    assert before.items() <= state_of(workdir).items()


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


def test_a_blob_that_no_session_referred_to_goes_on_demand_alone(workdir: Path) -> None:
    assert swept(workdir, Retention(max_sessions=0)).unowned
    assert pictures(workdir) == {"alone"}
    assert not swept(workdir, unowned=True).unowned
    assert pictures(workdir) == set()


def test_what_is_younger_than_the_grace_goes_in_a_later_run(workdir: Path) -> None:
    """And is still known to have been a session's."""
    found = swept(workdir, ONLY_S2, grace_s=3 * DAY_S)
    assert [Path(one.path).name for one in found.young] == [blob(workdir, "one").name]
    assert pictures(workdir) == {"one", "both", "two", "alone"}
    assert verify(LocalWorkspace(workdir)).is_sound
    assert (workdir / layout.RELEASED_FILE).stat().st_mode & 0o777 == 0o600

    swept(workdir)
    assert pictures(workdir) == {"both", "two", "alone"}
    assert not (workdir / layout.RELEASED_FILE).exists()


def test_who_stores_a_released_blob_again_keeps_it(workdir: Path) -> None:
    swept(workdir, ONLY_S2, grace_s=3 * DAY_S)
    asyncio.run(LocalWorkspace(workdir, durability="off").offload_data_block(picture("one")))
    found = swept(workdir, grace_s=0)
    assert len(found.unowned) == 2
    assert "one" in pictures(workdir)


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


@given(st.lists(st.sampled_from([b"0", b"f", b"g", b"A", b"\n", b"9a" * 32, b"e" * 63])).map(b"".join))
def test_every_run_of_64_digits_is_found(content: bytes) -> None:
    expected = [
        content[start : start + 64]
        for start in range(len(content) - 63)
        if set(content[start : start + 64]) <= set(b"0123456789abcdef")
    ]
    assert list(hex_runs(content)) == expected or not (set(hex_runs(content)) ^ set(expected))


def test_age_is_that_of_the_newest_file(workdir: Path) -> None:
    age(workdir / "sessions/s1", 40)
    os.utime(workdir / "sessions/s1/context.jsonl")
    assert swept(workdir, Retention(max_age_s=30 * DAY_S)).sessions == ()
    age(workdir / "sessions/s1", 40)
    assert [d.reason for d in swept(workdir, Retention(max_age_s=30 * DAY_S)).sessions] == ["age"]


def test_a_session_that_is_to_stay_must_be_there(workdir: Path) -> None:
    with pytest.raises(NotFoundError, match="no session 's3'"):
        swept(workdir, Retention(max_sessions=0, kept=frozenset({"s3"})))
    assert len(list((workdir / "sessions").iterdir())) == 2


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


def test_a_newer_workspace_stops_everything(workdir: Path) -> None:
    (workdir / "workspace.json").write_text('{"format":2}', "utf-8")
    with pytest.raises(BuoylineError, match="format 2"):
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


def test_no_file_in_the_agents_own_directories_is_read(workdir: Path) -> None:
    read: list[int] = []
    collect(LocalWorkspace(workdir), on_progress=read.append)
    (workdir / ".tmp-agents-own").mkdir()
    (workdir / ".tmp-agents-own/large").write_bytes(b"x" * 100_000)
    read_beside: list[int] = []
    collect(LocalWorkspace(workdir), on_progress=read_beside.append)
    assert sum(read_beside) == sum(read)


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


def test_a_session_may_be_as_deep_as_an_agent_likes(workdir: Path) -> None:
    descriptor = os.open(workdir / "sessions/s1", os.O_RDONLY)
    for _ in range(200):
        os.mkdir("d", dir_fd=descriptor)
        inner = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    os.close(descriptor)
    assert len(swept(workdir, ONLY_S2).sessions) == 1
    assert [path.name for path in (workdir / "sessions").iterdir()] == ["s2"]


def test_a_writer_that_knew_the_session_begins_it_anew_or_is_told(workdir: Path) -> None:
    async def run() -> None:
        async with LocalWorkspace(workdir, durability="off") as workspace:
            await workspace.archive("s1", [{"role": "user", "content": "before"}])
            swept(workdir, Retention(max_sessions=0))
            with pytest.raises(NotFoundError):
                await workspace.load_messages("s1", 0, 1) if not (workdir / "sessions/s1").exists() else None
            with pytest.raises(StaleWindowError):
                await workspace.archive("s1", [message("one")], first=2)
            await workspace.archive("s1", [message("one")])
            await workspace.offload_tool_result("s1", {"role": "tool", "tool_call_id": "c1", "content": "again"})
            assert len(await workspace.load_messages("s1", 0, 1)) == 1

    asyncio.run(run())
    assert verify(LocalWorkspace(workdir)).is_sound


@pytest.mark.parametrize("is_archived", [False, True])
async def test_an_open_window_of_a_removed_session_says_so_and_its_messages_can_be_added_to_another(
    tmp_path: Path, *, is_archived: bool
) -> None:
    workspace = LocalWorkspace(tmp_path, durability="off")
    window = ContextWindow(offloader=workspace, session_id="s1", size=4_000)
    for number in range(40):
        await window.add({"role": "user", "content": f"Step {number}: look at part_{number}.py."})
    if is_archived:
        assert await window.compress(force=True)
    held = await window.prepare()
    collect(LocalWorkspace(tmp_path), Retention(max_sessions=0), grace_s=0, dry_run=False)
    await window.add({"role": "user", "content": "next"})
    for call in (window.prepare, window.save, partial(window.compress, force=True)):
        with pytest.raises(StaleWindowError, match=r"it was removed, as by `buoyline gc`.*begin a new ContextWindow"):
            await call()
    again = ContextWindow(offloader=workspace, session_id="s1", size=4_000)
    for each in window.messages:
        await again.add(each)
    assert await again.prepare() == [*held, {"role": "user", "content": "next"}]


def test_a_session_that_is_held_stays_with_its_blobs_and_all_else_goes(workdir: Path) -> None:
    asyncio.run(LocalWorkspace(workdir, durability="off").archive("s3", [message("three")]))
    age(workdir, 2)
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


def test_what_is_unfinished_in_a_session_that_is_held_stays(workdir: Path) -> None:
    unfinished = workdir / "sessions/s1/.tmp-0123456789abcdef"
    unfinished.write_text(blob(workdir, "two").stem)
    age(unfinished, 2)
    with LocalWorkspace(workdir).tree.lock(layout.lock_name("s1"), 1):
        found = swept(workdir, Retention(max_sessions=0, kept=frozenset({"s1"})), lock_timeout_s=0.05)
    assert (found.locked, found.leftovers) == (("s1",), ())
    assert unfinished.exists()
    assert blob(workdir, "two").exists()


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


def test_a_window_waits_for_a_sweep_where_its_messages_refer_to_what_may_be_swept(workdir: Path) -> None:
    hasty = LocalWorkspace(workdir, lock_timeout_s=0.05)
    seen = {"role": "user", "content": f"see data/{blob(workdir, 'one').name}"}
    asyncio.run(hasty.start_window("s9", {}))
    with LocalWorkspace(workdir).tree.lock(layout.GC_LOCK, 1):
        for call in (hasty.extend_window("s9", [seen], []), hasty.replace_window("s9", [seen], [], 0, [])):
            with pytest.raises(LockTimeout):
                asyncio.run(call)
        asyncio.run(hasty.extend_window("s9", [{"role": "user", "content": "refers to nothing"}], []))


@each_third
@pytest.mark.parametrize(("code", "after"), [(errno.EIO, False), (errno.EIO, True), (errno.ENOSPC, False)])
def test_a_run_that_fails_anywhere_is_completed_by_the_next(
    tmp_path: Path, code: int, first: int, *, after: bool
) -> None:
    """And until then, nothing that is referred to is gone. A third of the blobs that go are too young at first."""
    asyncio.run(fill(tmp_path / "made"))
    age(tmp_path / "made", 2)
    os.utime(tmp_path / "made" / "sessions/s1/journal.jsonl")
    os.utime(blob(tmp_path / "made", "one"), (time.time() - 9, time.time() - 9))
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
        assert pictures(workdir) >= {"both", "two", "alone", "one"}
        collect(workspace, ONLY_S2, dry_run=False, grace_s=0)
        assert pictures(workdir) == {"both", "two", "alone"}
        assert [path.name for path in (workdir / "sessions").iterdir()] == ["s2"]
        shutil.rmtree(workdir)


@given(st.dictionaries(st.text("0123456789abcdef", min_size=64, max_size=64), st.integers(0, 2**63)))
def test_what_was_released_is_read_as_it_was_written(released: dict[str, int]) -> None:
    lines = b"".join(former_reference_line(digest, until_ns) for digest, until_ns in released.items())
    assert former_references(lines) == released
    assert former_references(b'\xff\n{"sha256":1}\n[]\n' + lines + b'{"sha') == released


def test_a_grace_below_0_is_refused(workdir: Path) -> None:
    with pytest.raises(ConfigError):
        swept(workdir, grace_s=-1)


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


def test_a_file_that_was_changed_a_moment_ago_is_read_again_though_it_looks_the_same(tmp_path: Path) -> None:
    """A file system may keep times in steps of two seconds: the second change is not visible in the status."""
    digest = f"{'0' * 63}1"
    scanner = ReferenceScanner(LocalWorkspace(tmp_path).tree, frozenset({digest}))
    (tmp_path / "notes.txt").write_text("x" * 64)
    status = (tmp_path / "notes.txt").stat()
    assert scanner.scan_file("notes.txt", status) == frozenset()
    (tmp_path / "notes.txt").write_text(digest)
    assert scanner.scan_file("notes.txt", status) == {digest}


def removing(workdir: Path, session_id: str, look: int) -> Callable[..., None]:
    """Return a function whose call number *look* removes a session as gc does in another process."""
    calls = itertools.count(1)

    def on_progress(*_: int) -> None:
        if next(calls) == look:
            kept = {"s1", "s2"} - {session_id}
            swept(workdir, Retention(max_sessions=0, kept=frozenset(kept)), grace_s=0)

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


def test_two_gcs_at_once_do_not_take_a_removed_session_for_an_unreadable_one(workdir: Path) -> None:
    report = collect(LocalWorkspace(workdir), on_progress=removing(workdir, "s2", 1))
    assert not (workdir / "sessions" / "s2").exists()
    assert report.sessions == ()


@pytest.mark.parametrize("look", range(1, 8))
def test_a_lost_blob_of_two_sessions_is_missed_if_one_of_them_is_removed(workdir: Path, look: int) -> None:
    blob(workdir, "both").unlink()
    report = verify(LocalWorkspace(workdir), on_progress=removing(workdir, "s1", look))
    assert [found.kind for found in report.findings if found.severity == "damage"] == ["missing-blob"]
