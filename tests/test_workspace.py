"""A workspace as agents call it: whole batches, results and payloads in files, in a folder that others use, too."""

import asyncio
import base64
import errno
import hashlib
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from faults import every_fault
from thirds import STEP, each_third

from buoyline.errors import (
    BuoylineError,
    ConfigError,
    CorruptError,
    FormatVersionError,
    InvalidNameError,
    MessageError,
    NotFoundError,
    RedactionError,
    StorageError,
    WorkspaceFull,
)
from buoyline.messages import Text, ToolResult
from buoyline.workspace.disk import Disk
from buoyline.workspace.state import NewLine
from buoyline.workspace.workspace import LocalWorkspace, MemoryWorkspace, Workspace

PICTURE = bytes(range(256))
SEEN = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(PICTURE).decode()}}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def at(workdir: Path, **options: Any) -> LocalWorkspace:
    return LocalWorkspace(workdir, **({"durability": "off"} | options))


@pytest.fixture(params=["on disk", "in memory"])
def workspace(request: pytest.FixtureRequest, tmp_path: Path) -> Workspace:
    return at(tmp_path / "w") if request.param == "on disk" else MemoryWorkspace()


def messages(workspace: Workspace, session_id: str = "s1") -> list[dict[str, Any]]:
    session = workspace.stored(session_id)
    return [session.with_payloads(line) for line in session.read(range(session.state.end))]


def text_of(workspace: Workspace, reference: str) -> str:
    return workspace.disk.read(reference.removeprefix(f"{workspace.roots[0]}/")).decode("utf-8")


# What is stored comes back.


async def test_messages_come_back_as_they_were_and_read_well_in_the_transcript(workspace: Workspace) -> None:
    batch = [
        {"role": "user", "content": [{"type": "text", "text": "look"}, SEEN]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "found\x1b[2J"}]},
    ]
    async with workspace:
        path = await workspace.offload_context("s1", batch)
    assert messages(workspace) == batch
    assert base64.b64encode(PICTURE).decode() not in text_of(workspace, path)
    assert hashlib.sha256(workspace.disk.read("data/" + workspace.disk.entries("data")[0])).hexdigest() in text_of(
        workspace, path
    )
    session = workspace.stored("s1")
    transcript = session.disk.read(f"{session.name}/transcript.md").decode("utf-8").splitlines()
    first, second = (line.line for line in session.read([0, 1]))
    assert session.transcript_starts() == [first, second]
    assert transcript[first - 1].startswith("## 0 user")
    assert transcript[second - 1].startswith("## 1 tool")
    assert "found\\x1b[2J" in transcript
    assert session.state.live == []


async def test_a_thing_that_is_no_message_is_named_by_its_position_and_writes_nothing(workspace: Workspace) -> None:
    for wrong in (7, {"no": "role"}, {"role": "user", "content": float("nan")}):
        with pytest.raises(MessageError, match=r"^message 1: "):
            await workspace.offload_context("s1", [user("one"), wrong])
    with pytest.raises(NotFoundError, match="no session 's1'"):
        workspace.stored("s1")
    with pytest.raises(MessageError):
        await workspace.offload_tool_result("s1", {"no": "result"})


async def test_a_batch_with_ids_that_is_offloaded_again_is_stored_once(workspace: Workspace) -> None:
    batch = [user("yes") | {"id": "m1"}, user("no") | {"id": "m2"}]
    for _ in range(2):
        await workspace.offload_context("s1", batch)
    for _ in range(2):
        await workspace.offload_context("s1", [user("yes")])
    assert messages(workspace) == [*batch, user("yes"), user("yes")]


async def test_a_tool_result_is_a_file_that_its_record_names(workspace: Workspace) -> None:
    paths = [
        await workspace.offload_tool_result("s1", {"role": "tool", "tool_call_id": "c1", "content": text})
        for text in ("one\n", "two\n", "one\n")
    ]
    assert [text_of(workspace, path) for path in paths] == ["one\n", "two\n", "one\n"]
    assert paths[0] == paths[2]
    results = workspace.stored("s1").state.results
    assert sorted(results) == sorted(path.rpartition("/")[2] for path in set(paths))
    assert {record["key"] for record in results.values()} == {"c1"}


async def test_a_data_block_comes_back_with_a_reference_to_its_bytes(workspace: Workspace) -> None:
    block = await workspace.offload_data_block(SEEN)
    assert workspace.disk.read(block["image_url"]["url"].removeprefix("workspace:///")) == PICTURE
    assert await workspace.offload_data_block({"type": "text", "text": "x"}) == {"type": "text", "text": "x"}


async def test_what_the_hook_takes_out_is_nowhere_on_disk_and_a_hook_that_fails_stores_nothing(tmp_path: Path) -> None:
    redacting = at(tmp_path / "w", redact=lambda text: text.replace("secret", "[gone]"))
    await redacting.offload_context("s1", [user("a secret"), user('{"key": "secret"}')])
    await redacting.offload_tool_result("s1", ToolResult("c1", "t", (Text("the secret"),)))
    files = [path for path in (tmp_path / "w").rglob("*") if path.is_file()]
    assert len(files) > 5
    assert not any(b"secret" in path.read_bytes() for path in files)

    def failing(_: str) -> str:
        raise ValueError("secret")

    failing_workspace = at(tmp_path / "v", redact=failing)
    with pytest.raises(RedactionError) as raised:
        await failing_workspace.offload_context("s1", [user("a secret")])
    assert "secret" not in str(raised.value)
    assert list(failing_workspace.sessions()) == []


# Sessions, settings, names.


async def test_sessions_are_listed_by_their_own_ids_and_others_are_named_with_the_reason(tmp_path: Path) -> None:
    workspace = at(tmp_path)
    ids = ["plain", "With.Dots", "../up", "\n\u202e", "x" * 300]
    for session_id in ids:
        await workspace.offload_context(session_id, [user(session_id)])
    assert sorted(session.session_id for session in workspace.sessions()) == sorted(ids)
    assert [session.session_id for session in workspace.sessions(1)] == [ids[-1]]
    (tmp_path / "sessions" / "empty").mkdir()
    swapped = tmp_path / "sessions" / "other"
    (tmp_path / "sessions" / "plain").rename(swapped)
    refused: dict[str, BuoylineError] = {}
    assert "plain" not in [session.session_id for session in workspace.sessions(refused=refused)]
    assert {name: type(error) for name, error in refused.items()} == {
        "sessions/empty": NotFoundError,
        "sessions/other": CorruptError,
    }
    for wrong in ("", "x" * 5000):
        with pytest.raises(InvalidNameError, match="1 to 4,096 characters"):
            await workspace.offload_context(wrong, [user("x")])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"durability": "some"}, "neither 'sync' nor 'off'"),
        ({"lock_timeout_s": float("nan")}, "no number of seconds"),
        ({"shown_as": "relative"}, "no absolute path"),
        ({"mode": 0o077}, "0o77 is no mode such as 0o750"),
        ({"redact": "x"}, "cannot be called"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        LocalWorkspace(tmp_path, **options)


async def test_the_agent_sees_the_path_that_it_knows_and_errors_name_the_real_one(tmp_path: Path) -> None:
    workspace = at(tmp_path, shown_as="/mnt/work")
    assert await workspace.offload_context("s1", [user("x")]) == "/mnt/work/sessions/s1/context.jsonl"
    assert (await workspace.offload_tool_result("s1", ToolResult("c", "t", (Text("x"),)))).startswith("/mnt/work/")
    assert not any(b"/mnt/work" in path.read_bytes() for path in tmp_path.rglob("*.*") if path.is_file())
    (tmp_path / "sessions" / "s1" / "context.jsonl").unlink()
    with pytest.raises(BuoylineError, match=str(tmp_path)):
        await workspace.offload_context("s1", [user("y")])


async def test_a_tilde_is_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    await at(Path("~/work")).initialize()
    assert (tmp_path / "work" / "workspace.json").exists()


async def test_another_format_is_refused_and_left_untouched(tmp_path: Path) -> None:
    (tmp_path / "workspace.json").write_text('{"format": 1}', encoding="utf-8")
    for call in (at(tmp_path).initialize(), at(tmp_path).offload_context("s1", [user("x")])):
        with pytest.raises(FormatVersionError, match="format 1"):
            await call
    assert [path.name for path in tmp_path.iterdir()] == ["workspace.json"]


def modes(root: Path) -> tuple[set[int], set[int]]:
    """Return the modes of directories, and those of files."""
    found = {True: set[int](), False: set[int]()}
    for path in (root, *root.rglob("*")):
        found[path.is_dir()].add(stat.S_IMODE(path.stat().st_mode))
    return found[True], found[False]


LIFE = """
import asyncio, os, sys
from buoyline.messages import Media, Text, ToolResult
from buoyline.workspace.workspace import LocalWorkspace

os.umask(int(sys.argv[2], 8))
workspace = LocalWorkspace(sys.argv[1], mode=int(sys.argv[3], 8) if len(sys.argv) > 3 else None)
picture = Media("image", "image/png", 3, payload=b"abc")
asyncio.run(workspace.offload_context("s1", [{"role": "user", "content": "x"}]))
asyncio.run(workspace.offload_tool_result("s1", ToolResult("c", "t", (Text("x" * 5000), picture))))
session = workspace.session("s1")
with open(workspace.disk.path(session.name + "/context.jsonl"), "ab") as file:
    file.write(b"torn")
asyncio.run(workspace.offload_context("s1", [{"role": "user", "content": "x"}]))
"""


@pytest.mark.parametrize(
    ("existing", "given", "expected"),
    [(None, None, 0o700), (None, 0o750, 0o750), (0o770, None, 0o770), (0o755, 0o700, 0o700), (0o2750, 0o750, 0o750)],
)
@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_modes_are_those_that_were_asked_for_whatever_the_umask(
    tmp_path: Path, existing: int | None, given: int | None, expected: int, umask: int
) -> None:
    root = tmp_path / "w"
    if existing is not None:
        root.mkdir()
        root.chmod(existing)
    arguments = [str(root), f"{umask:o}", *([f"{given:o}"] if given else [])]
    subprocess.run([sys.executable, "-c", LIFE, *arguments], check=True)
    directories, files = modes(root)
    assert {mode & 0o777 for mode in directories} == {expected} | ({existing & 0o777} if existing else set())
    assert files == {expected & 0o666}
    assert (existing or 0) & 0o2000 == 0 or {mode & 0o2000 for mode in directories} == {0o2000}


# Others that write, too.


async def test_a_cancelled_call_returns_when_its_work_has_ended(tmp_path: Path) -> None:
    workspace, is_let_go = at(tmp_path), threading.Event()
    batch = [user("x" * 100) | {"id": "m1"}]
    await workspace.offload_context("s1", [user("first")])
    with Disk(tmp_path).locked("sessions/s1/context.jsonl", 1):
        call = asyncio.create_task(workspace.offload_context("s1", batch))
        for _ in range(3):
            await asyncio.sleep(0.02)
            call.cancel()
        assert not call.done()
        is_let_go.set()
    with pytest.raises(asyncio.CancelledError):
        await call
    await workspace.offload_context("s1", batch)
    assert messages(workspace) == [user("first"), *batch]


async def test_many_calls_at_once_lose_nothing(tmp_path: Path) -> None:
    workspaces = [at(tmp_path) for _ in range(3)]
    await asyncio.gather(
        *(workspaces[n % 3].offload_context(f"s{n % 2}", [user(str(n)), user("and")]) for n in range(40))
    )
    for session_id, numbers in (("s0", range(0, 40, 2)), ("s1", range(1, 40, 2))):
        found = [message["content"] for message in messages(workspaces[0], session_id)]
        assert found[1::2] == ["and"] * 20
        assert sorted(map(int, found[::2])) == list(numbers)


@each_third
async def test_a_call_on_a_full_disk_can_be_repeated_and_stores_once(tmp_path: Path, first: int) -> None:
    batch = [{"id": "m1", "role": "user", "content": [{"type": "text", "text": "look"}, SEEN]}]
    for number, faults in enumerate(every_fault(errno.ENOSPC, first=first, step=STEP)):
        workspace = at(tmp_path / str(number), durability="sync")
        calls: list[Callable[[], Awaitable[str]]] = [
            lambda: workspace.offload_context("s1", batch),  # noqa: B023
            lambda: workspace.offload_tool_result("s1", ToolResult("c1", "t", (Text("x" * 5000),))),  # noqa: B023
        ]
        for call in calls:
            try:
                with faults:
                    await call()
            except WorkspaceFull:
                await call()
        assert messages(workspace) == batch
        assert list(workspace.stored("s1").state.results) == ["tool_result-c1.txt"]
        assert workspace.stored("s1").damage() == []


async def test_a_window_and_results_of_the_agent_share_a_session(tmp_path: Path) -> None:
    workspace = at(tmp_path)
    window = workspace.session("s1")
    window.open()
    window.append([NewLine(user("one"))])
    await workspace.offload_tool_result("s1", ToolResult("c", "t", (Text("x"),)))
    window.append([NewLine(user("two"))])
    assert messages(workspace) == [user("one"), user("two")]
    assert workspace.stored("s1").state.live == [0, 1]
    with pytest.raises(ConfigError, match="use a new session id"):
        await workspace.offload_context("s1", [user("x")])


def link(path: Path, outside: Path) -> None:
    target = outside / path.name
    if path.exists():
        path.rename(target)
    path.symlink_to(target)


def pipe(path: Path, outside: Path) -> None:
    if path.exists():
        path.rename(outside / path.name)
    os.mkfifo(path)


@pytest.mark.parametrize("put", [link, pipe])
@pytest.mark.parametrize(
    "name",
    ["sessions", "data", "sessions/s1", *(f"sessions/s1/{file}" for file in ("context.jsonl", "state.jsonl", "torn"))],
)
async def test_what_stands_in_the_place_of_a_file_is_neither_followed_nor_waited_on(
    tmp_path: Path, name: str, put: Callable[[Path, Path], None]
) -> None:
    root, outside = tmp_path / "w", tmp_path / "outside"
    outside.mkdir()
    workspace = at(root)
    await workspace.offload_context("s1", [user("one")])
    with (root / "sessions" / "s1" / "context.jsonl").open("ab") as file:
        file.write(b"torn")
    put(root / name, outside)
    before = {path: path.read_bytes() for path in outside.rglob("*") if path.is_file()}
    for writer in (workspace, at(root)):
        with pytest.raises(StorageError, match=r"is a link|is not a regular file|Not a directory|No such device"):
            await writer.offload_context("s1", [{"role": "user", "content": [SEEN]}])
    assert {path: path.read_bytes() for path in outside.rglob("*") if path.is_file()} == before


async def test_a_folder_that_another_program_nested_deeply_is_removed_and_no_link_is_followed(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "w")
    disk.make_directory("d")
    descriptor = os.open(tmp_path / "w" / "d", os.O_RDONLY)
    for _ in range(2000):
        os.mkdir("n", dir_fd=descriptor)
        below = os.open("n", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    (tmp_path / "kept").write_text("kept", encoding="utf-8")
    os.symlink(tmp_path / "kept", "link", dir_fd=descriptor)
    os.close(descriptor)
    disk.remove("d")
    assert disk.entries("") == []
    assert (tmp_path / "kept").read_text("utf-8") == "kept"
