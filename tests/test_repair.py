"""`repair`: what can be mended is, nothing is deleted, and what cannot be mended is said."""

import asyncio
import base64
import errno
import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from faults import CALLS, every_fault
from hypothesis import given
from hypothesis import strategies as st

from buoyline.compression import ContextConfig
from buoyline.errors import BuoylineError, NotFoundError
from buoyline.maintenance.repair import RepairReport, repair
from buoyline.maintenance.restore import better_journal
from buoyline.maintenance.verify import verify
from buoyline.offloader.transcript import blank_lines
from buoyline.window import ContextWindow
from buoyline.workspace import LocalWorkspace

PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(b"PNG" * 99).decode()}}
S1 = Path("sessions/s1")
BLOB = Path("data") / f"{hashlib.sha256(b'PNG' * 99).hexdigest()}.png"


async def fill(workdir: Path) -> None:
    config = ContextConfig(tool_result_limit=300, preview_tokens=200)
    async with LocalWorkspace(workdir, durability="off") as workspace:
        window = ContextWindow(offloader=workspace, session_id="s1", size=4_000, config=config)
        await window.add({"role": "user", "content": [{"type": "text", "text": "What is this?"}, PICTURE]})
        for number in range(12):
            call = {"id": f"call_{number}", "type": "function", "function": {"name": "run", "arguments": "{}"}}
            await window.add({"role": "assistant", "content": f"Step {number}", "tool_calls": [call]})
            text = f'{{"rows":[{"123456789," * 500}{number}]}}' if number % 5 == 0 else f"line {number}\n" * 90
            await window.add({"role": "tool", "tool_call_id": f"call_{number}", "content": text})
            await window.prepare()
            if number % 5 == 4:
                await window.compress(before=2 * number)
        await window.save()
        await workspace.archive("s2", [{"role": "user", "content": [PICTURE]}])


async def go_on(workdir: Path) -> None:
    async with LocalWorkspace(workdir, durability="off") as workspace:
        window = await ContextWindow.resume(workspace, "s1")
        await window.add({"role": "assistant", "content": "younger than the copy"})
        await window.save()
        await workspace.archive("s2", [{"role": "assistant", "content": "younger than the copy, too"}])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace, and beside it a copy that is a little older."""
    folder = tmp_path_factory.mktemp("repair")
    asyncio.run(fill(folder / "copy"))
    shutil.copytree(folder / "copy", folder / "workspace")
    asyncio.run(go_on(folder / "workspace"))
    return folder


@pytest.fixture
def workdir(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made / "workspace", tmp_path / "workspace"))


def mended(workdir: Path, **options: Any) -> RepairReport:
    return repair(LocalWorkspace(workdir, durability="off"), **options)


def contents(workdir: Path) -> dict[str, bytes]:
    """Return all files but what was set aside."""
    found = {path.relative_to(workdir): path for path in workdir.rglob("*") if path.is_file()}
    return {
        str(name): path.read_bytes()
        for name, path in found.items()
        if "torn" not in name.parts and ".locks" not in name.parts
    }


def set_aside(workdir: Path) -> set[bytes]:
    return {path.read_bytes() for path in workdir.rglob("torn/*")}


def flip(path: Path, at: int = 40) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def flip_middle(path: Path) -> None:
    flip(path, path.stat().st_size // 2)


def halve(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def spoil_line(path: Path) -> None:
    """Damage the third line, beyond doubt: it is not the last one, and no line end is hit."""
    lines = path.read_bytes().splitlines(keepends=True)
    flip(path, sum(map(len, lines[:2])) + 9)


def result(workdir: Path) -> Path:
    return min(path for path in (workdir / S1).glob("tool_result-*") if ".view." not in path.name)


def facts(workdir: Path) -> Path:
    return max((workdir / S1).glob("facts-*.jsonl"))


def view(workdir: Path) -> Path:
    return min((workdir / S1).glob("*.view.txt"))


def test_a_sound_workspace_is_left_alone(workdir: Path) -> None:
    before = contents(workdir)
    done = mended(workdir)
    assert (done.actions, done.remaining, done.is_repaired) == ((), (), True)
    assert contents(workdir) == before


@pytest.mark.parametrize("how", [Path.unlink, flip, halve, empty])
@pytest.mark.parametrize("which", [lambda _: BLOB, result, lambda _: S1 / "summaries.jsonl", facts])
def test_what_the_copy_has_is_restored(
    made: Path, workdir: Path, how: Callable[[Path], None], which: Callable[[Path], Path]
) -> None:
    before = contents(workdir)
    path = workdir / which(workdir)
    how(path)
    damaged = path.read_bytes() if path.exists() else None
    done = mended(workdir, copy=made / "copy")
    assert done.remaining == ()
    assert contents(workdir) == before
    assert damaged is None or damaged in set_aside(workdir)


@pytest.mark.parametrize("how", [Path.unlink, flip, spoil_line, halve, empty])
@pytest.mark.parametrize("session", ["s1", "s2"])
def test_an_archive_is_restored_with_what_is_younger_than_the_copy(
    made: Path, workdir: Path, session: str, how: Callable[[Path], None]
) -> None:
    path = workdir / "sessions" / session / "context.jsonl"
    if session == "s2" and how in {spoil_line, halve, empty, Path.unlink}:
        pytest.skip("has two lines, of which the copy has one")
    before = contents(workdir)
    how(path)
    done = mended(workdir, copy=made / "copy")
    assert done.remaining == ()
    assert contents(workdir) == before


@pytest.mark.parametrize("how", [flip, spoil_line, halve, flip_middle])
def test_a_journal_gets_its_records_back(made: Path, workdir: Path, how: Callable[[Path], None]) -> None:
    before = contents(workdir)
    how(workdir / S1 / "journal.jsonl")
    done = mended(workdir, copy=made / "copy")
    assert done.remaining == ()
    found = contents(workdir)
    # The window's writer changed after the copy was made: where that record is lost, nobody has it.
    same = set(before) - ({str(S1 / "journal.jsonl")} if how is halve else set())
    assert {name: found[name] for name in same} == {name: before[name] for name in same}


@pytest.mark.parametrize("how", [Path.unlink, empty])
@pytest.mark.parametrize("is_repaired_before", [False, True])
def test_a_lost_journal_is_restored_and_younger_messages_are_kept(
    made: Path, workdir: Path, how: Callable[[Path], None], *, is_repaired_before: bool
) -> None:
    if how is empty and is_repaired_before:
        pytest.skip("without a copy, an empty journal commits nothing")
    before = contents(workdir)
    for session in ("s1", "s2"):
        how(workdir / "sessions" / session / "journal.jsonl")
    if is_repaired_before:
        mended(workdir)
    assert mended(workdir, copy=made / "copy").remaining == ()
    found = contents(workdir)
    for name in ("s1/context.jsonl", "s2/context.jsonl", "s1/summaries.jsonl", "s1/window.jsonl", "s1/transcript.md"):
        assert found[f"sessions/{name}"] == before[f"sessions/{name}"]

    async def load() -> int:
        async with LocalWorkspace(workdir) as workspace:
            window = await ContextWindow.resume(workspace, "s1")
            assert len(await workspace.load_messages("s2", 0, 2)) == 2
            return len(window.messages)

    assert asyncio.run(load()) > 1


@pytest.mark.parametrize("how", [Path.unlink, flip, empty])
def test_a_window_is_restored_with_its_younger_lines_where_they_are_there(
    made: Path, workdir: Path, how: Callable[[Path], None]
) -> None:
    path = workdir / S1 / "window.jsonl"
    before = path.read_bytes()
    how(path)
    assert mended(workdir, copy=made / "copy").remaining == ()
    assert path.read_bytes() == (before if how is flip else (made / "copy" / S1 / "window.jsonl").read_bytes())


@pytest.mark.parametrize("how", [Path.unlink, flip, empty])
def test_whose_session_it_is_comes_back_from_a_copy(made: Path, workdir: Path, how: Callable[[Path], None]) -> None:
    path = workdir / S1 / "session.json"
    if how is flip:
        path.write_bytes(b"{" + path.read_bytes())
    else:
        how(path)
    alone = mended(workdir)
    assert not alone.is_repaired
    assert [action.verb for action in alone.actions] == ["failed"]
    assert mended(workdir, copy=made / "copy").remaining == ()
    assert path.read_bytes() == (made / "copy" / S1 / "session.json").read_bytes()


def test_modes_are_set_right(workdir: Path) -> None:
    (workdir / "data").chmod(0o755)
    (workdir / S1).chmod(0o777)
    (workdir / S1 / "context.jsonl").chmod(0o644)
    result(workdir).chmod(0)
    done = mended(workdir)
    assert [action.verb for action in done.actions] == ["mode"] * 4
    assert done.remaining == ()
    assert (workdir / S1).stat().st_mode & 0o777 == 0o700


def test_a_link_is_not_followed_to_set_a_mode(workdir: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("x", "utf-8")
    outside.chmod(0o644)
    path = result(workdir)
    path.unlink()
    path.symlink_to(outside)
    assert not mended(workdir).is_repaired
    assert outside.stat().st_mode & 0o777 == 0o644
    with pytest.raises(BuoylineError, match="neither a file nor a directory"):
        LocalWorkspace(workdir).tree.set_mode(str(path.relative_to(workdir)))
    assert outside.stat().st_mode & 0o777 == 0o644
    assert path.is_symlink()


@pytest.mark.parametrize("how", [Path.unlink, flip, halve, empty, flip_middle])
def test_a_transcript_and_a_view_are_made_again(workdir: Path, how: Callable[[Path], None]) -> None:
    before = contents(workdir)
    damaged: set[bytes] = set()
    for path in (workdir / S1 / "transcript.md", view(workdir)):
        how(path)
        damaged |= {path.read_bytes()} if path.exists() else set()
    done = mended(workdir)
    assert done.remaining == ()
    assert contents(workdir) == before
    # Half of the last batch's is what any crash leaves, and nothing worth keeping.
    assert how is halve or damaged <= set_aside(workdir)


def test_a_torn_tail_is_recovered_as_the_next_writer_would(workdir: Path) -> None:
    before = contents(workdir)
    for name in ("context.jsonl", "journal.jsonl"):
        with (workdir / S1 / name).open("ab") as file:
            file.write(b'{"role"')
    assert [action.verb for action in mended(workdir).actions] == ["recovered"]
    assert contents(workdir) == before
    assert set_aside(workdir) == {b'{"role"'}


def test_a_damaged_result_stays_readable_until_its_true_bytes_come(workdir: Path) -> None:
    workspace, text = LocalWorkspace(workdir), "\n".join(f"line {n} of a result" for n in range(50))
    result = {"role": "tool", "tool_call_id": "Kept", "content": text}
    path = Path(asyncio.run(workspace.offload_tool_result("s1", result)))
    flip(path)
    damaged = path.read_bytes()
    done = mended(workdir)
    assert done.actions == ()
    assert [(found.kind, found.path) for found in done.remaining] == [
        ("changed-bytes", path.relative_to(workdir).as_posix())
    ]
    assert path.read_bytes() == damaged

    assert Path(asyncio.run(LocalWorkspace(workdir).offload_tool_result("s1", result))) == path
    assert path.read_text(encoding="utf-8") == text
    assert set_aside(workdir) == {damaged}
    assert [found.kind for found in mended(workdir).remaining] == []


@pytest.mark.parametrize("inserted", [b"x", b"\n", b"xy\nz" * 25, b"\0" * 100], ids=["x", "line end", "lines", "zeros"])
@pytest.mark.parametrize("place", [0.1, 0.5, 0.9])
def test_bytes_put_into_the_journal_are_taken_out_with_a_copy(tmp_path: Path, inserted: bytes, place: float) -> None:
    async def fill() -> None:
        async with LocalWorkspace(tmp_path / "w") as workspace:
            for n in range(6):
                await workspace.archive("s", [{"role": "user", "content": f"message {n}"}])

    asyncio.run(fill())
    shutil.copytree(tmp_path / "w", tmp_path / "copy")
    path = tmp_path / "w/sessions/s/journal.jsonl"
    whole = path.read_bytes()
    at = int(len(whole) * place)
    path.write_bytes(whole[:at] + inserted + whole[at:])
    done = repair(LocalWorkspace(tmp_path / "w"), copy=tmp_path / "copy")
    assert path.read_bytes() == whole
    assert done.is_repaired


def test_a_damaged_blob_is_set_aside_so_that_it_can_be_stored_again(workdir: Path) -> None:
    path, whole = workdir / BLOB, (workdir / BLOB).read_bytes()
    flip(path)
    damaged = path.read_bytes()
    done = mended(workdir)
    assert [action.verb for action in done.actions] == ["set-aside"]
    assert {found.kind for found in done.remaining} == {"missing-blob"}
    assert not path.exists()
    assert set_aside(workdir) == {damaged}
    assert verify(LocalWorkspace(workdir)).count("warning") == 0

    asyncio.run(LocalWorkspace(workdir).offload_data_block(PICTURE))
    assert path.read_bytes() == whole
    assert mended(workdir).actions == ()


def test_the_same_bytes_elsewhere_in_the_workspace_will_do(workdir: Path) -> None:
    before = contents(workdir)
    shutil.copy(workdir / BLOB, (workdir / BLOB).with_suffix(".bin"))
    flip(workdir / BLOB)
    text = result(workdir).read_text("utf-8")
    asyncio.run(
        LocalWorkspace(workdir).offload_tool_result("s2", {"role": "tool", "tool_call_id": "c", "content": text})
    )
    result(workdir).unlink()
    assert mended(workdir).remaining == ()
    assert (
        before.items()
        <= {**contents(workdir), "sessions/s2/journal.jsonl": before["sessions/s2/journal.jsonl"]}.items()
    )


def test_what_cannot_be_given_back_is_kept_and_said(workdir: Path) -> None:
    path = workdir / S1 / "context.jsonl"
    spoil_line(path)
    damaged, transcript = path.read_bytes(), (workdir / S1 / "transcript.md").read_bytes()
    done = mended(workdir)
    assert not done.is_repaired
    assert {found.kind for found in done.remaining} == {"changed-bytes"}
    assert path.read_bytes() == damaged
    # The transcript still has the messages as they were.
    assert (workdir / S1 / "transcript.md").read_bytes() == transcript
    flip(workdir / S1 / "transcript.md", len(transcript) - 9)
    mended(workdir)
    assert (workdir / S1 / "transcript.md").read_bytes() == transcript


def test_an_archive_that_is_gone_is_not_begun_anew(workdir: Path) -> None:
    (workdir / S1 / "context.jsonl").unlink()
    (workdir / S1 / "journal.jsonl").unlink()
    done = mended(workdir)
    assert "failed" in {action.verb for action in done.actions}
    assert not (workdir / S1 / "context.jsonl").exists()
    assert not done.is_repaired


def test_a_copy_of_another_session_of_that_name_gives_nothing(workdir: Path, tmp_path: Path) -> None:
    asyncio.run(LocalWorkspace(tmp_path / "other").archive("s1", [{"role": "user", "content": "stranger"}] * 99))
    asyncio.run(LocalWorkspace(tmp_path / "other").archive("s2", [{"role": "user", "content": "stranger"}] * 99))
    (workdir / "sessions/s2/journal.jsonl").unlink()
    flip(workdir / S1 / "context.jsonl")
    done = mended(workdir, copy=tmp_path / "other")
    assert "restored" not in {action.verb for action in done.actions}
    assert b"stranger" not in b"".join(contents(workdir).values())


def test_a_damaged_copy_makes_nothing_worse(made: Path, workdir: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(made / "copy", tmp_path / "copy"))
    for path in (*copy.glob("sessions/*/*.*l"), *copy.glob("data/*"), *copy.glob("sessions/*/tool*")):
        flip_middle(path)
    for path in (workdir / BLOB, result(workdir)):
        flip(path)
    before = contents(workdir)
    done = mended(workdir, copy=copy)
    assert "restored" not in {action.verb for action in done.actions}
    assert set(before.values()) <= {*contents(workdir).values(), *set_aside(workdir)}


def damage_all(workdir: Path) -> None:
    for name in ("context.jsonl", "journal.jsonl", "summaries.jsonl"):
        flip(workdir / S1 / name)
    (workdir / S1 / "window.jsonl").unlink()
    flip(workdir / BLOB)
    result(workdir).unlink()
    flip_middle(workdir / S1 / "transcript.md")
    view(workdir).unlink()
    (workdir / S1).chmod(0o755)


def test_a_dry_run_says_what_would_be_done_and_changes_nothing(made: Path, workdir: Path) -> None:
    damage_all(workdir)
    before = {path: (path.lstat().st_mtime_ns, path.lstat().st_mode) for path in workdir.rglob("*")}
    told = mended(workdir, copy=made / "copy", dry_run=True)
    assert {path: (path.lstat().st_mtime_ns, path.lstat().st_mode) for path in workdir.rglob("*")} == before
    done = mended(workdir, copy=made / "copy")
    assert done.remaining == ()
    restored = {action.path for action in done.actions if action.verb == "restored"}
    assert {action.path for action in told.actions if action.verb == "restored"} == restored
    assert mended(workdir, copy=made / "copy").actions == ()


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True])
def test_a_repair_that_fails_anywhere_makes_nothing_worse(made: Path, tmp_path: Path, *, after: bool) -> None:
    broken = Path(shutil.copytree(made / "workspace", tmp_path / "broken"))
    damage_all(broken)
    whole = contents(made / "workspace")
    once = Path(shutil.copytree(broken, tmp_path / "once"))
    mended(once, copy=made / "copy")
    expected = contents(once)
    assert expected.keys() == whole.keys()
    for faults in every_fault(errno.EIO, after=after, calls=[call for call in CALLS if call != "open"]):
        workdir = Path(shutil.copytree(broken, tmp_path / "workspace"))
        with faults:
            try:
                mended(workdir, copy=made / "copy")
            except BuoylineError:
                assert faults.has_struck
        before = set(contents(broken).values())
        assert before <= {*contents(workdir).values(), *set_aside(workdir)}
        assert mended(workdir, copy=made / "copy").remaining == ()
        assert contents(workdir) == expected
        shutil.rmtree(workdir)


def test_a_copy_must_be_a_workspace(workdir: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        mended(workdir, copy=tmp_path)
    with pytest.raises(NotFoundError):
        mended(workdir, sessions=["s9"])


@given(st.integers(1, 200), st.integers(0, 5_000))
def test_blank_lines_have_the_size_and_the_number_that_is_asked_for(lines: int, blanks: int) -> None:
    found = blank_lines(lines + blanks, lines)
    assert (len(found), found.count(b"\n"), found[-1:]) == (lines + blanks, lines, b"\n")


@given(st.data())
def test_no_journal_gets_worse(made: Path, data: st.DataObject) -> None:
    there = (made / "copy" / S1 / "journal.jsonl").read_bytes()
    here = bytearray((made / "workspace" / S1 / "journal.jsonl").read_bytes())
    for at in data.draw(st.lists(st.integers(0, len(here) - 1), max_size=3)):
        here[at] = data.draw(st.integers(0, 255))
    here = here[: data.draw(st.integers(0, len(here)))]
    found = better_journal(bytes(here), there)
    if found is not None:
        known = set(bytes(here).split(b"\n"))
        assert known & set(there.split(b"\n")) <= set(found.split(b"\n"))


def test_a_lost_workspace_json_is_made_anew_and_a_copy_gives_its_own(tmp_path: Path, made: Path) -> None:
    for copy in (None, made / "copy"):
        workdir = tmp_path / f"from-{copy is not None}"
        shutil.copytree(made / "workspace", workdir)
        lost = (workdir / "workspace.json").read_bytes()
        (workdir / "workspace.json").unlink()
        with pytest.raises(NotFoundError, match="buoyline repair"):
            LocalWorkspace(workdir).check()
        done = repair(LocalWorkspace(workdir), copy=copy)
        assert [(action.verb, action.path) for action in done.actions] == [
            ("rebuilt" if copy is None else "restored", "workspace.json")
        ]
        assert ((workdir / "workspace.json").read_bytes() == lost) == (copy is not None)
        assert verify(LocalWorkspace(workdir)).is_sound


def test_a_damaged_workspace_json_is_restored_from_a_copy_and_else_left(tmp_path: Path, made: Path) -> None:
    workdir = tmp_path / "workspace"
    shutil.copytree(made / "workspace", workdir)
    (workdir / "workspace.json").write_bytes(b"garbage")
    assert not repair(LocalWorkspace(workdir)).is_repaired
    assert (workdir / "workspace.json").read_bytes() == b"garbage"
    assert repair(LocalWorkspace(workdir), copy=made / "copy").is_repaired
    assert [path.read_bytes() for path in (workdir / "data/torn").iterdir()] == [b"garbage"]


def test_nothing_of_a_newer_format_is_touched(tmp_path: Path, made: Path) -> None:
    for name in ("workspace.json", "sessions/s1/session.json"):
        workdir = tmp_path / name.replace("/", "-")
        shutil.copytree(made / "workspace", workdir)
        newer = (workdir / name).read_bytes().replace(b'"format":1', b'"format":2')
        (workdir / name).write_bytes(newer)
        if name == "workspace.json":
            (workdir / name).chmod(0o644)
        before = {path: (path.stat().st_mode, path.stat().st_mtime_ns) for path in workdir.rglob("*")}
        assert not repair(LocalWorkspace(workdir), copy=made / "copy").is_repaired
        assert (workdir / name).read_bytes() == newer
        if name == "workspace.json":
            assert {path: (path.stat().st_mode, path.stat().st_mtime_ns) for path in workdir.rglob("*")} == before


def test_a_dry_run_does_not_count_stubs_whose_result_would_be_restored(tmp_path: Path, made: Path) -> None:
    workdir = tmp_path / "workspace"
    shutil.copytree(made / "workspace", workdir)
    next((workdir / S1).glob("tool_result-*[0-9].txt")).unlink()
    told = repair(LocalWorkspace(workdir), copy=made / "copy", dry_run=True)
    assert ("restored" in {action.verb for action in told.actions}, told.remaining) == (True, ())


def test_verify_tells_what_repair_has_set_aside_of_blobs(workdir: Path) -> None:
    flip(workdir / BLOB)
    mended(workdir)
    assert [found.path for found in verify(LocalWorkspace(workdir)).findings if found.kind == "torn-bytes"] == [
        str(path.relative_to(workdir)) for path in (workdir / "data/torn").iterdir()
    ]


def test_a_folder_that_came_without_its_locks_is_repaired(workdir: Path) -> None:
    shutil.rmtree(workdir / ".locks")
    (workdir / S1 / "transcript.md").write_bytes(b"")
    assert mended(workdir).remaining == ()
    assert not [found for found in verify(LocalWorkspace(workdir)).findings if found.severity != "note"]
    assert (workdir / ".locks").stat().st_mode & 0o777 == 0o700
