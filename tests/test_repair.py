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

from buoyline.compression import ContextConfig
from buoyline.errors import BuoylineError, NotFoundError
from buoyline.maintenance.repair import RepairReport, repair
from buoyline.maintenance.verify import verify
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


def test_nothing_of_a_newer_format_is_touched(tmp_path: Path, made: Path) -> None:
    for name in ("workspace.json", "sessions/s1/session.json"):
        workdir = tmp_path / name.replace("/", "-")
        shutil.copytree(made / "workspace", workdir)
        newer = (workdir / name).read_bytes().replace(b'"format":1', b'"format":2')
        (workdir / name).write_bytes(newer)
        before = {path: (path.stat().st_mode, path.stat().st_mtime_ns) for path in workdir.rglob("*")}
        assert not repair(LocalWorkspace(workdir), copy=made / "copy").is_repaired
        assert (workdir / name).read_bytes() == newer
        if name == "workspace.json":
            assert {path: (path.stat().st_mode, path.stat().st_mtime_ns) for path in workdir.rglob("*")} == before
