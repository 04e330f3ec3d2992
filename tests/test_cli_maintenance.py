"""The commands ``buoyline verify``, ``repair`` and ``gc``."""

import asyncio
import base64
import json
import os
import pty
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pytest
from command_line import buoyline

from buoyline import ContextWindow
from buoyline.cli.output import Duration, Size
from buoyline.workspace import LocalWorkspace


def picture(name: str) -> dict[str, Any]:
    url = f"data:image/png;base64,{base64.b64encode(name.encode() * 9).decode()}"
    return {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    """A workspace with two sessions, of which ``old`` is 40 days old."""
    workspace = LocalWorkspace(tmp_path / "workspace", durability="off")

    async def fill() -> None:
        for session_id in ("old", "new"):
            async with await ContextWindow.open(workspace, session_id) as window:
                await window.extend([picture(session_id), {"role": "user", "content": "hello"}])
        await workspace.offload_tool_result("new", {"role": "tool", "tool_call_id": "c1", "content": "small"})
        await workspace.offload_data_block(picture("alone")["content"][0])

    asyncio.run(fill())
    then = time.time() - 40 * 86_400
    for path in workspace.workdir.rglob("*"):
        if "new" not in path.parts:
            os.utime(path, (then, then))
    return workspace.workdir


def run(workdir: Path, *args: str) -> "subprocess.CompletedProcess[str]":
    return buoyline(*args, "--workdir", workdir)


def value(workdir: Path, *args: str) -> Any:
    done = run(workdir, *args, "--json")
    assert (done.stderr, done.stdout.count("\n")) == ("", 1)
    return json.loads(done.stdout)


def damage(workdir: Path) -> None:
    (workdir / "sessions/new/tool_result-c1.txt").write_text("SMALL", "utf-8")
    (workdir / "sessions/new/.tmp-1").touch()


def test_a_sound_workspace_has_no_damage_and_status_0(workdir: Path) -> None:
    done = run(workdir, "verify")
    assert (done.returncode, done.stdout.splitlines()[-1].partition(" in ")[0]) == (0, "0 damage, 1 note")
    assert value(workdir, "verify").items() >= {"sound": True, "damage": 0, "sessions": 2, "blobs": 3}.items()


@pytest.mark.parametrize("mode", [0o750, 0o770])
def test_a_workspace_that_the_group_may_read_is_sound(tmp_path: Path, mode: int) -> None:
    async def fill() -> None:
        async with LocalWorkspace(tmp_path / "w", mode=mode) as workspace:
            window = await ContextWindow.open(workspace, "s1")
            await window.add(picture("shared"))

    asyncio.run(fill())
    assert (tmp_path / "w/sessions/s1/context.jsonl").stat().st_mode & 0o777 == mode & 0o666
    report = value(tmp_path / "w", "verify")
    assert (report["sound"], report["findings"]) == (True, [])


def test_findings_are_lines_and_status_1(workdir: Path) -> None:
    damage(workdir)
    done = run(workdir, "verify")
    lines = done.stdout.splitlines()
    assert done.returncode == 1
    assert any(line.startswith("damage changed sessions/new/tool_result-c1.txt: ") for line in lines)
    assert any(line.startswith("note leftover sessions/new/.tmp-1: ") for line in lines)
    assert lines[-1].startswith("`buoyline repair --dry-run` lists what can be repaired")
    found = value(workdir, "verify")["findings"]
    assert all(one.keys() == {"severity", "kind", "path", "message", "line", "session_id"} for one in found)
    assert run(workdir, "verify", "old").returncode == 0


def test_a_terminal_sees_no_control_characters_of_a_name(workdir: Path) -> None:
    (workdir / "sessions/new" / ".tmp-\x1b[31mred\n").touch()
    done = run(workdir, "verify")
    assert "\x1b" not in done.stdout


def test_progress_is_shown_on_a_terminal_alone(workdir: Path) -> None:
    command = [sys.executable, "-m", "buoyline", "verify", "--workdir", str(workdir)]
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, env=environment) as process:
        os.close(theirs)
        assert process.stdout is not None
        assert b"0 damage" in process.stdout.read()
    shown = os.read(ours, 100_000)
    os.close(ours)
    assert b"verify" in shown


@contextmanager
def as_other_user(workdir: Path) -> Iterator[None]:
    """Take away the right to read the files in *workdir*; directories may be entered."""
    if os.geteuid() != 0:
        for path in workdir.rglob("*"):
            if path.is_file():
                path.chmod(0)
        yield
        return
    for directory in (workdir, *workdir.parents, *workdir.rglob("*")):
        if directory.is_dir() and not directory.stat().st_mode & 0o001:
            directory.chmod(0o755)
    os.seteuid(65_534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("command", ["verify", "gc", "sessions"])
def test_what_another_user_owns_is_no_damage(workdir: Path, command: str) -> None:
    run(workdir, command)  # the other user may not be able to read Python's own modules
    with as_other_user(workdir):
        done = run(workdir, command)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"buoyline: error: {workdir / 'workspace.json'}: Permission denied; "
        "run this command as the owner of that file, or use another --workdir\n"
    )


def test_repair_mends_from_a_copy_and_says_what(workdir: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(workdir, tmp_path / "copy")
    result = workdir / "sessions/new/tool_result-c1.txt"
    result.write_text("damaged", "utf-8")
    told = run(workdir, "repair", "--dry-run", "--from", str(copy))
    assert "sessions/new/tool_result-c1.txt: put back from the copy\n" in told.stdout
    assert "nothing was changed (--dry-run): 1 action to take\n" in told.stdout
    assert result.read_text("utf-8") == "damaged"
    done = value(workdir, "repair", "--from", str(copy))
    assert (done["repaired"], [action["path"] for action in done["actions"]]) == (
        True,
        ["sessions/new/tool_result-c1.txt"],
    )
    assert result.read_text("utf-8") == "small"
    again = run(workdir, "repair")
    assert (again.returncode, again.stdout.splitlines()[-1]) == (0, "0 actions, 0 damage left")


def test_repair_is_status_1_where_damage_is_left(workdir: Path) -> None:
    damage(workdir)
    done = run(workdir, "repair")
    assert done.returncode == 1
    assert "left  damage changed sessions/new/tool_result-c1.txt" in done.stdout
    assert done.stdout.endswith("0 actions, 1 damage left\n")


def test_gc_says_what_would_go_and_removes_nothing(workdir: Path) -> None:
    before = sorted(workdir.rglob("*"))
    done = run(workdir, "gc", "--older-than", "30d")
    session, blob, unowned, counts = done.stdout.splitlines()
    assert done.returncode == 0
    assert session == "session   old: older than 30 days"
    assert blob.startswith("blob      data/")
    assert unowned == "1 blob, kept: no session ever referred to them; --unowned removes them"
    assert counts.startswith("1 session, 1 blob, 0 leftovers: ")
    assert counts.endswith(" bytes would be freed; --yes removes this")
    assert sorted(workdir.rglob("*")) == before


def test_gc_removes_what_it_said(workdir: Path) -> None:
    told, done = value(workdir, "gc", "--keep", "1"), value(workdir, "gc", "--keep", "1", "--yes")
    assert told == {**done, "dry_run": True}
    assert done["sessions"] == [["old", "count"]]
    assert [path.name for path in (workdir / "sessions").iterdir()] == ["new"]
    assert len(list((workdir / "data").iterdir())) == 2
    assert run(workdir, "verify").returncode == 0


def test_gc_names_a_session_that_is_in_use_and_exits_with_1(workdir: Path) -> None:
    with LocalWorkspace(workdir).disk.locked("sessions/old/context.jsonl", 1.0):
        done = run(workdir, "gc", "--keep", "1", "--yes")
    assert (done.returncode, "in use    old: a writer is at work" in done.stdout) == (1, True)


@pytest.mark.parametrize(
    "args",
    [("--older-than", "soon"), ("--max-bytes", "much"), ("--keep", "-1"), ("--grace", "-1h"), ("--older-than", "30")],
)
def test_a_limit_that_is_none_is_a_usage_error(workdir: Path, args: tuple[str, str]) -> None:
    assert run(workdir, "gc", *args, "--yes").returncode == 2
    assert len(list((workdir / "sessions").iterdir())) == 2


def test_a_time_without_a_unit_is_refused_with_what_to_write(workdir: Path) -> None:
    refused = run(workdir, "gc", "--older-than", "30", "--yes")
    assert "30 needs a unit: write 30d for days, 30h for hours or 30m for minutes" in refused.stderr


@pytest.mark.parametrize(
    ("text", "seconds"), [("30d", 2_592_000), ("24h", 86_400), ("1.5m", 90), ("0", 0), ("2W", 1_209_600)]
)
def test_times_are_read(text: str, seconds: float) -> None:
    assert Duration().convert(text, None, None) == seconds


@pytest.mark.parametrize(("text", "size_bytes"), [("10GB", 10**10), ("1 MiB", 2**20), ("0", 0), ("1.5k", 1_500)])
def test_sizes_are_read(text: str, size_bytes: int) -> None:
    assert Size().convert(text, None, None) == size_bytes


@pytest.mark.parametrize("text", ["", "d", "-1d", "1e9d", "nan", "inf", "9" * 99, "1 fortnight", "٣d"])
def test_what_is_no_time_or_size_is_refused(text: str) -> None:
    for kind in (Duration(), Size()):
        with pytest.raises(click.BadParameter):
            kind.convert(text, None, None)
