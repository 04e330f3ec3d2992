"""Damage of ``window.jsonl`` is found by `verify`, and never resumed from."""

import asyncio
import errno
import json
import random
import shutil
from pathlib import Path

import pytest

from buoyline import ContextWindow
from buoyline.errors import CorruptError, MessageError, StorageError
from buoyline.maintenance.repair import repair
from buoyline.maintenance.verify import verify
from buoyline.workspace import LocalWorkspace
from buoyline.workspace.local_tree import LocalTree


def said(n: int) -> dict[str, str]:
    return {"role": "user" if n % 2 else "assistant", "content": f"amount to pay for order {n}"}


async def talked(workspace: LocalWorkspace, *, turns: int, compacts: bool = False) -> list[object]:
    """Keep a conversation of so many turns, each of them made durable."""
    window = ContextWindow(offloader=workspace, session_id="s", size=100_000)
    for n in range(turns):
        await window.add(said(n))
        await window.prepare()
        if compacts and n == turns // 2:
            await window.compress(force=True)
    return list(window.messages)


def flipped(path: Path, place: int, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1 << bit
    path.write_bytes(content)


async def resumed(workdir: Path) -> list[object]:
    return list((await ContextWindow.resume(LocalWorkspace(workdir), "s")).messages)


@pytest.mark.parametrize("compacts", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_a_flipped_bit_is_found_and_not_resumed_from(tmp_path: Path, seed: int, *, compacts: bool) -> None:
    workspace = LocalWorkspace(tmp_path, durability="fsync")
    messages = asyncio.run(talked(workspace, turns=8, compacts=compacts))
    assert asyncio.run(resumed(tmp_path)) == messages
    assert verify(workspace).findings == ()
    path = tmp_path / "sessions/s/window.jsonl"
    chance = random.Random(seed)  # noqa: S311 - which bit does not matter
    before = path.read_bytes()
    for _ in range(15):
        flipped(path, chance.randrange(len(before)), chance.randrange(8))
        assert "damage" in {found.severity for found in verify(workspace).findings}
        with pytest.raises((CorruptError, MessageError)):
            asyncio.run(resumed(tmp_path))
        path.write_bytes(before)


@pytest.mark.parametrize("change", ["last line gone", "line put in", "line twice"])
def test_a_line_more_or_less_is_found(tmp_path: Path, change: str) -> None:
    asyncio.run(talked(LocalWorkspace(tmp_path), turns=6))
    path = tmp_path / "sessions/s/window.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    changed = {
        "last line gone": lines[:-1],
        "line put in": [*lines[:3], lines[0], *lines[3:]],
        "line twice": lines[:1] + lines,
    }
    path.write_bytes(b"".join(changed[change]))
    assert {found.severity for found in verify(LocalWorkspace(tmp_path)).findings} & {"damage"}
    with pytest.raises(CorruptError, match="repair --from"):
        asyncio.run(resumed(tmp_path))


async def test_what_is_added_does_not_hide_that_lines_are_gone(tmp_path: Path) -> None:
    window = ContextWindow(offloader=LocalWorkspace(tmp_path), session_id="s", size=100_000)
    await window.add(said(0))
    await window.prepare()
    (tmp_path / "sessions/s/window.jsonl").write_bytes(b"")
    await window.add(said(1))
    with pytest.raises(CorruptError):
        await window.prepare()


@pytest.mark.parametrize("lines", [8, 4])
def test_a_copy_restores_the_lines_even_if_it_is_older(tmp_path: Path, lines: int) -> None:
    workspace = LocalWorkspace(tmp_path / "w")
    messages = asyncio.run(talked(workspace, turns=8))
    shutil.copytree(tmp_path / "w", tmp_path / "copy")
    copied = tmp_path / "copy/sessions/s/window.jsonl"
    copied.write_bytes(b"".join(copied.read_bytes().splitlines(keepends=True)[:lines]))
    flipped(tmp_path / "w/sessions/s/window.jsonl", 30, 0)
    assert {found.severity for found in verify(workspace).findings} == {"damage"}
    assert repair(workspace, copy=tmp_path / "copy").is_repaired
    assert asyncio.run(resumed(tmp_path / "w")) == messages


async def test_a_killed_writer_leaves_lines_that_are_only_noted(tmp_path: Path) -> None:
    """It was killed between the lines and the record of them: nobody was told that they are there."""
    await talked(LocalWorkspace(tmp_path), turns=3)
    path = tmp_path / "sessions/s/window.jsonl"
    path.write_bytes(path.read_bytes() + json.dumps(said(3)).encode() + b"\n")
    assert [found.kind for found in verify(LocalWorkspace(tmp_path)).findings] == ["unchecked-lines"]
    window = await ContextWindow.resume(LocalWorkspace(tmp_path), "s")
    assert len(window.messages) == 4
    await window.add(said(4))
    await window.prepare()
    assert verify(LocalWorkspace(tmp_path)).findings == ()


async def test_a_window_whose_directory_was_not_synced_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = LocalWorkspace(tmp_path)
    await workspace.start_window("s", {}, writer="w")
    await workspace.extend_window("s", [said(1), said(2)], [], writer="w")

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "the disk refused")

    with monkeypatch.context() as failing:
        failing.setattr(LocalTree, "_sync_directory", fail)
        with pytest.raises(StorageError):
            await workspace.replace_window("s", [said(2)], [], 0, [], writer="w")
    assert [value for _, value in (await workspace.load_window("s")).messages] == [said(2)]
    await workspace.replace_window("s", [said(2)], [], 0, [], writer="w")
    assert [value for _, value in (await LocalWorkspace(tmp_path).load_window("s")).messages] == [said(2)]
