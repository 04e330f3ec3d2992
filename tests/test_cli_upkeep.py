"""The commands ``buoyline gc`` and ``buoyline repair``."""

import asyncio
import base64
import json
import os
import shutil
import time
from functools import partial
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from buoyline.cli import main, maintenance
from buoyline.cli.output import Duration, Size
from buoyline.maintenance.gc import collect
from buoyline.workspace import LocalWorkspace, layout


def _picture(name: str) -> dict[str, Any]:
    url = f"data:image/png;base64,{base64.b64encode(name.encode() * 9).decode()}"
    return {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    """A workspace with two sessions, of which ``old`` is 40 days old."""
    made = LocalWorkspace(tmp_path / "workspace", durability="off")

    async def fill() -> None:
        async with made:
            await made.archive("old", [_picture("old")])
            await made.archive("new", [_picture("new")])
            await made.offload_data_block(_picture("alone")["content"][0])

    asyncio.run(fill())
    then = time.time() - 40 * 86_400
    for path in made.workdir.rglob("*"):
        if "new" not in path.parts:
            os.utime(path, (then, then))
    return made.workdir


def _run(workdir: Path, *args: str) -> Result:
    return CliRunner().invoke(main, [*args, "--workdir", str(workdir)])


def _json(workdir: Path, *args: str) -> Any:
    result = _run(workdir, *args, "--json")
    assert (result.stderr, result.stdout.count("\n")) == ("", 1)
    return json.loads(result.stdout)


def test_gc_says_what_would_go_and_removes_nothing(workdir: Path) -> None:
    before = sorted(workdir.rglob("*"))
    result = _run(workdir, "gc", "--older-than", "30d")
    session, blob, unowned, counts = result.stdout.splitlines()
    assert result.exit_code == 0
    assert session.startswith("session   old: ")
    assert session.endswith("older than 30 days")
    assert blob.startswith("blob      data/")
    assert unowned == "1 blob of 45 bytes, kept: no session ever referred to them"
    assert counts.startswith("1 session, 1 blob, 0 leftovers: ")
    assert counts.endswith(" bytes would be freed; --yes removes this")
    assert sorted(workdir.rglob("*")) == before


def test_gc_removes_what_it_said(workdir: Path) -> None:
    told = _json(workdir, "gc", "--keep", "1")
    done = _json(workdir, "gc", "--keep", "1", "--yes")
    assert told == {**done, "dry_run": True}
    assert [session["id"] for session in done["sessions"]] == ["old"]
    assert done["sessions"][0].keys() == {"id", "reason", "last_active", "size_bytes"}
    assert [path.name for path in (workdir / "sessions").iterdir()] == ["new"]
    assert len(list((workdir / "data").iterdir())) == 2
    assert _run(workdir, "verify").exit_code == 0


def test_gc_names_a_session_that_is_in_use_and_exits_with_1(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "collect", partial(collect, lock_timeout_s=0.05))
    with LocalWorkspace(workdir).tree.lock(layout.lock_name("old"), 1):
        result = _run(workdir, "gc", "--keep", "1", "--yes")
        assert result.exit_code == 1
        assert "locked    old: a writer is at work" in result.output
        result = _run(workdir, "gc", "--keep", "1", "--yes", "--json")
        assert (result.exit_code, json.loads(result.output)["locked"]) == (1, ["old"])
    assert _json(workdir, "gc", "--keep", "1", "--yes")["locked"] == []


def test_gc_stops_at_a_session_that_cannot_be_read(workdir: Path) -> None:
    (workdir / "sessions/new/session.json").write_text("{", "utf-8")
    result = _run(workdir, "gc", "--keep", "0", "--yes")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "sessions/new/session.json" in result.stderr
    assert "buoyline repair" in result.stderr
    assert len(list((workdir / "sessions").iterdir())) == 2


@pytest.mark.parametrize(
    "args",
    [("--older-than", "soon"), ("--max-bytes", "much"), ("--keep", "-1"), ("--grace", "-1h"), ("--older-than", "")],
)
def test_a_limit_that_is_none_is_a_usage_error(workdir: Path, args: tuple[str, str]) -> None:
    assert _run(workdir, "gc", *args).exit_code == 2


@pytest.mark.parametrize(
    ("text", "seconds"), [("30d", 2_592_000), ("24h", 86_400), ("1.5m", 90), ("0", 0), ("2W", 1_209_600)]
)
def test_times_are_read(text: str, seconds: float) -> None:
    assert Duration().convert(text, None, None) == seconds


def test_a_time_without_a_unit_is_refused_with_what_to_write(workdir: Path) -> None:
    refused = _run(workdir, "gc", "--older-than", "30", "--yes")
    assert refused.exit_code == 2
    assert "30 needs a unit: write 30d for days, 30h for hours or 30m for minutes" in refused.stderr
    assert len(list((workdir / "sessions").iterdir())) == 2


def test_gc_keeps_a_session_that_was_active_within_the_grace_and_says_so(workdir: Path) -> None:
    result = _run(workdir, "gc", "--keep", "0", "--older-than", "1m", "--yes")
    assert result.exit_code == 0
    assert "1 session, kept: over a limit, but active within --grace\n" in result.stdout
    assert [path.name for path in (workdir / "sessions").iterdir()] == ["new"]
    assert _json(workdir, "gc", "--keep", "0", "--grace", "0", "--yes")["sessions"][0]["id"] == "new"


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("10GB", 10**10), ("1 MiB", 2**20), ("0", 0), ("7b", 7), ("1.5k", 1_500), ("2T", 2 * 10**12)],
)
def test_sizes_are_read(text: str, size_bytes: int) -> None:
    assert Size().convert(text, None, None) == size_bytes


@pytest.mark.parametrize("text", ["", "d", "-1d", "1e9d", "nan", "inf", "9" * 99, "1 fortnight", "٣d"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        Duration().convert(text, None, None)
    with pytest.raises(click.BadParameter):
        Size().convert(text, None, None)


def test_repair_mends_from_a_copy_and_says_what(workdir: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(workdir, tmp_path / "copy")
    context = workdir / "sessions/new/context.jsonl"
    before = context.read_bytes()
    context.write_bytes(b"x" * len(before))

    told = _run(workdir, "repair", "--dry-run", "--from", str(copy))
    assert told.stdout.startswith("restored ")
    assert "nothing was changed (--dry-run): " in told.stdout
    assert context.read_bytes() != before

    done = _json(workdir, "repair", "--from", str(copy))
    assert done.items() >= {"mended": True, "dry_run": False, "remaining": []}.items()
    assert {action["verb"] for action in done["actions"]} >= {"restored"}
    assert context.read_bytes() == before
    result = _run(workdir, "repair")
    assert (result.exit_code, result.stdout) == (0, "0 actions, 0 damage and 0 warnings left\n")


def test_repair_is_status_1_where_damage_is_left(workdir: Path) -> None:
    for blob in (workdir / "data").iterdir():
        blob.write_bytes(b"x")
    result = _run(workdir, "repair")
    assert result.exit_code == 1
    assert result.stdout.count("set-aside") == 3
    assert result.stdout.count("left       damage  missing-blob") == 2
    assert result.stdout.endswith("3 actions, 2 damage and 0 warnings left\n")
