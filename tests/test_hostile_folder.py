"""A folder that somebody else writes to as well: links, pipes, devices, swapped and missing things.

Expected every time: an error of ours or the right answer, within bounded time, and nothing changed outside.
"""

import asyncio
import base64
import hashlib
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from buoyline.errors import BuoylineError, CorruptError, StorageError
from buoyline.maintenance.verify import verify
from buoyline.messages import Text, ToolResult
from buoyline.workspace import LocalWorkspace, layout

BOUND_S = 20.0
"""Nothing here may wait for anybody; on a busy machine that takes a while."""

SECRET = "the user's own\n"


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def picture(content: bytes) -> dict[str, Any]:
    url = "data:image/png;base64," + base64.b64encode(content).decode()
    return {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}


def at(workdir: Path) -> LocalWorkspace:
    return LocalWorkspace(workdir, durability="off", lock_timeout_s=0.3)


async def stored(workspace: LocalWorkspace, session: str = "s1") -> list[Any]:
    return [message for _, message in await workspace.load_messages(session, 0, 1 << 30)]


def damage(workdir: Path) -> set[str]:
    return {found.kind for found in verify(LocalWorkspace(workdir)).findings if found.severity == "damage"}


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder beside the workspace that nothing may change."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret.txt").write_text(SECRET, encoding="utf-8")
    return folder


@pytest.fixture
async def workdir(tmp_path: Path) -> Path:
    workdir = tmp_path / "w"
    async with at(workdir) as workspace:
        await workspace.start_window("s1", {})
        await workspace.extend_window("s1", [user("in the window")], [])
        await workspace.archive("s1", [user("first"), picture(b"a picture")])
        await workspace.store_result("s1", ToolResult("c", "t", (Text("result\n"),)))
        await workspace.append_summary("s1", {"text": "summary"})
    return workdir


def to_file(path: Path, outside: Path) -> None:
    path.symlink_to(outside / "secret.txt")


def to_folder(path: Path, outside: Path) -> None:
    path.symlink_to(outside)


def to_nothing(path: Path, outside: Path) -> None:
    path.symlink_to(outside / "not-there")


def to_itself(path: Path, _: Path) -> None:
    path.symlink_to(path.name)


def pipe(path: Path, _: Path) -> None:
    os.mkfifo(path)


def directory(path: Path, _: Path) -> None:
    path.mkdir()


def unix_socket(path: Path, _: Path) -> None:
    os.mknod(path, stat.S_IFSOCK | 0o600)  # binding one would take a path of at most 107 bytes


def null_device(path: Path, _: Path) -> None:
    try:
        os.mknod(path, 0o600 | 0o020000, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("making a device takes root")


def hard_link(path: Path, outside: Path) -> None:
    os.link(outside / "secret.txt", path)


Trap = Callable[[Path, Path], None]
TRAPS: tuple[Trap, ...] = (
    to_file,
    to_folder,
    to_nothing,
    to_itself,
    pipe,
    directory,
    unix_socket,
    null_device,
    hard_link,
)


def each_trap_once(names: Sequence[str]) -> list[Any]:
    """Return each trap with one of *names*, and each name with one of the traps."""
    number = max(len(names), len(TRAPS))
    pairs = [(names[at % len(names)], TRAPS[at % len(TRAPS)]) for at in range(number)]
    return [pytest.param(name, trap, id=f"{name}-{trap.__name__}") for name, trap in pairs]


Call = Callable[[LocalWorkspace], Awaitable[Any]]
CALLS: dict[str, Call] = {
    "archive": lambda w: w.archive("s1", [user("second")]),
    "store a result": lambda w: w.store_result("s1", ToolResult("d", "t", (Text("other\n"),))),
    "append a summary": lambda w: w.append_summary("s1", {"text": "another"}),
    "extend the window": lambda w: w.extend_window("s1", [user("more")], []),
    "replace the window": lambda w: w.replace_window("s1", [user("less")], ["summary"], 1, []),
    "store a payload": lambda w: w.archive("s1", [picture(b"a new picture")]),
}
READS: dict[str, Call] = {
    "messages": lambda w: w.load_messages("s1", 0, 99),
    "summaries": lambda w: w.load_summaries("s1"),
    "window": lambda w: w.load_window("s1"),
    "missing": lambda w: w.missing("s1", ["nowhere to be found"]),
}


async def outcome(call: Call, workspace: LocalWorkspace) -> Any:
    """Return what *call* gives or raises; any error but ours fails the test, and so does waiting for somebody."""
    try:
        return await asyncio.wait_for(call(workspace), BOUND_S)
    except BuoylineError as error:
        return error


@pytest.fixture
def untouched(outside: Path) -> Iterator[None]:
    yield
    assert [path.name for path in outside.iterdir()] == ["secret.txt"]
    assert (outside / "secret.txt").read_text(encoding="utf-8") == SECRET


def put_back(path: Path, kept: bytes | None, outside: Path) -> None:
    """Take the trap at *path* away, unless the workspace has put its own file in its place."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif path.is_symlink() or not path.is_file() or path.samefile(outside / "secret.txt"):
        path.unlink()
    if kept is not None and not path.exists():
        path.write_bytes(kept)


FILES = ("session.json", "context.jsonl", "journal.jsonl", "transcript.md", "summaries.jsonl", "window.jsonl", "torn")


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize(("name", "trap"), each_trap_once(FILES))
async def test_whatever_stands_in_a_files_place_nothing_outside_is_read_or_changed(
    workdir: Path, outside: Path, name: str, trap: Trap
) -> None:
    live = at(workdir)
    before = await stored(live)
    path = workdir / "sessions/s1" / name
    kept = path.read_bytes() if path.is_file() else None
    path.unlink(missing_ok=True)
    trap(path, outside)
    if name == "torn":
        with (workdir / "sessions/s1/context.jsonl").open("ab") as file:
            file.write(b'{"half')

    for workspace in (at(workdir), live):
        for call in (*CALLS.values(), *READS.values()):
            found = await outcome(call, workspace)
            assert SECRET.strip() not in str(found)

    put_back(path, kept, outside)
    assert (await stored(at(workdir)))[:2] == before
    await at(workdir).archive("s1", [user("last")])
    assert (await stored(at(workdir)))[-1] == user("last")


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.__name__)
async def test_whatever_stands_in_the_place_of_a_new_result_the_result_is_whole_or_refused(
    workdir: Path, outside: Path, trap: Trap
) -> None:
    text = "the whole result\n"
    trap(workdir / "sessions/s1/tool_result-new.txt", outside)
    found = await outcome(lambda w: w.store_result("s1", ToolResult("new", "t", (Text(text),))), at(workdir))

    if not isinstance(found, BuoylineError):
        reference = Path(found.reference)
        assert not reference.is_symlink()
        assert reference.read_text(encoding="utf-8") == text


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.__name__)
async def test_whatever_stands_in_the_place_of_a_payload_the_payload_is_whole_or_refused(
    workdir: Path, outside: Path, trap: Trap
) -> None:
    name = layout.blob_name(b"a new picture", "image/png")
    trap(workdir / name, outside)
    found = await outcome(CALLS["store a payload"], at(workdir))

    if not isinstance(found, BuoylineError):
        assert (await stored(at(workdir)))[-1] == picture(b"a new picture")


@pytest.mark.parametrize("kind", ["view", "variant"])
async def test_a_forged_file_in_the_place_of_a_view_or_a_further_result_is_not_handed_out(
    workdir: Path, kind: str
) -> None:
    text = "x" * 2_000
    await at(workdir).store_result("s1", ToolResult("new", "t", (Text("first" if kind == "variant" else text),)))
    name = (
        "tool_result-new.txt"
        if kind == "view"
        else layout.variant_result_name("tool_result-new.txt", hashlib.sha256(text.encode()).hexdigest())
    )
    path = workdir / "sessions/s1" / (layout.view_name(name) if kind == "view" else name)
    path.write_text("forged\n", encoding="utf-8")
    found = await outcome(lambda w: w.store_result("s1", ToolResult("new", "t", (Text(text),))), at(workdir))

    assert isinstance(found, BuoylineError) or b"forged" not in (
        Path(found.reference).read_bytes() + Path(found.view or found.reference).read_bytes()
    )


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize(
    ("name", "trap"), each_trap_once(("sessions/s1", "workspace.json", "sessions", "data", ".locks"))
)
async def test_whatever_stands_in_the_place_of_a_part_of_the_workspace_the_call_ends(
    workdir: Path, outside: Path, name: str, trap: Trap
) -> None:
    aside = workdir.parent / "aside"
    (workdir / name).rename(aside)
    trap(workdir / name, outside)
    for workspace in (at(workdir), at(workdir)):
        for call in (*CALLS.values(), *READS.values()):
            await outcome(call, workspace)
    if trap is not directory:
        (workdir / name).unlink()
        aside.rename(workdir / name)
        assert (await stored(at(workdir)))[0] == user("first")


@pytest.mark.usefixtures("untouched")
async def test_a_root_that_becomes_a_link_to_another_folder_is_refused_by_who_has_it_open(
    workdir: Path, outside: Path
) -> None:
    live = at(workdir)
    await live.archive("s1", [user("second")])
    workdir.rename(workdir.parent / "moved")
    workdir.symlink_to(outside)

    for call in (*CALLS.values(), *READS.values()):
        assert isinstance(await outcome(call, live), StorageError)


async def test_two_sessions_swapped_under_a_running_workspace_are_refused(workdir: Path) -> None:
    live = at(workdir)
    await live.archive("s1", [user("of s1")])
    await live.archive("s2", [user("of s2")])
    one, two, aside = workdir / "sessions/s1", workdir / "sessions/s2", workdir / "sessions/aside"
    one.rename(aside)
    two.rename(one)
    aside.rename(two)

    for session_id in ("s1", "s2"):
        with pytest.raises(CorruptError, match=session_id):
            await live.archive(session_id, [user("lost")])
        with pytest.raises(CorruptError, match=session_id):
            await stored(live, session_id)


@pytest.mark.parametrize("name", ["context.jsonl", "journal.jsonl", "transcript.md", "session.json", "summaries.jsonl"])
async def test_a_file_that_is_removed_is_never_passed_over_in_silence(workdir: Path, name: str) -> None:
    before = await stored(at(workdir))
    (workdir / "sessions/s1" / name).unlink()
    assert "missing-file" in damage(workdir) or name in {"transcript.md", "summaries.jsonl"}
    for workspace in (at(workdir), at(workdir)):
        await outcome(CALLS["archive"], workspace)

    found = await outcome(READS["messages"], at(workdir))
    if not isinstance(found, BuoylineError):
        # The window's place in the archive, and the picture's, went with the journal: the messages did not.
        assert [message["role"] for _, message in found][:2] == ["user", "user"]
        assert next(message for _, message in found) == before[0]
    else:
        assert damage(workdir)


WITHOUT_PRIVILEGES = """
import asyncio, ctypes, os, sys
if os.geteuid() == 0 and "again" not in sys.argv:
    # Root is refused nothing; what a program started after this gets is what any owner gets.
    drop, override, search = 24, 1, 2
    for capability in (override, search):
        assert ctypes.CDLL(None, use_errno=True).prctl(drop, capability, 0, 0, 0) == 0
    os.execv(sys.executable, [sys.executable, "-c", sys.orig_argv[2], *sys.argv[1:], "again"])
from buoyline.errors import BuoylineError
from buoyline.workspace import LocalWorkspace

async def main():
    workspace = LocalWorkspace(sys.argv[1])
    try:
        await workspace.archive("s1", [{"role": "user", "content": "new"}])
        print("archived")
    except BuoylineError as error:
        print(error.errno)
    print([m["content"] for _, m in await LocalWorkspace(sys.argv[1]).load_messages("s1", 0, 9)])

asyncio.run(main())
"""


@pytest.mark.parametrize("what", ["", "sessions/s1", "sessions/s1/context.jsonl", ".locks"])
async def test_what_may_only_be_read_is_read_and_a_write_is_a_clear_error(tmp_path: Path, what: str) -> None:
    workdir = tmp_path / "w"
    await at(workdir).archive("s1", [user("first")])
    paths = [workdir, *workdir.rglob("*")] if not what else [workdir / what]
    if what == ".locks":
        (workdir / layout.lock_name("s1")).unlink()
    modes = {path: path.stat().st_mode for path in paths}
    for path in paths:
        path.chmod(0o500 if path.is_dir() else 0o400)
    try:
        command = [sys.executable, "-c", WITHOUT_PRIVILEGES, str(workdir)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=50)
    finally:
        for path, mode in modes.items():
            path.chmod(mode)

    if what == "sessions/s1":
        # Nothing new is made in it: its files are there already.
        assert done.stdout.split("\n")[0] == "archived", done.stderr
        return
    assert done.stdout.split("\n")[:2] == ["13", "['first']"], done.stderr
    assert await stored(at(workdir)) == [user("first")]
