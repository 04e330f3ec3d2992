"""A forked child has none of its parent's threads, and must not keep its locks."""

import subprocess
import sys
from pathlib import Path

import pytest

from buoyline import ContextWindow
from buoyline.maintenance.verify import verify
from buoyline.workspace import LocalWorkspace

PRELUDE = """
import asyncio, os, signal, sys, threading, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads, which is what is tried here
from buoyline.workspace import LocalWorkspace, MemoryWorkspace
from buoyline.workspace.local_tree import LocalTree

def message(text):
    return {"role": "user", "content": text}
"""


def run(program: str, workdir: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PRELUDE + program, str(workdir)], capture_output=True, text=True, timeout=60, check=False
    )


async def test_parent_and_child_go_on_with_the_workspace_that_was_forked(tmp_path: Path) -> None:
    program = """
workspace = LocalWorkspace(sys.argv[1])
asyncio.run(workspace.offload_context("s1", [message("before")]))
child = os.fork()
name = "parent" if child else "child"
async def write():
    for number in range(20):
        await workspace.offload_context("s1", [message(f"{name} {number}")])
    await workspace.close()
asyncio.run(write())
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = run(program, tmp_path)
    assert done.returncode == 0, done.stderr
    seen = [found["content"] for _, found in await LocalWorkspace(tmp_path).load_messages("s1", 0, 99)]
    assert seen[0] == "before"
    for name in ("parent", "child"):
        assert [text for text in seen if text.startswith(name)] == [f"{name} {number}" for number in range(20)]
    assert not verify(LocalWorkspace(tmp_path)).findings


def test_a_child_that_was_forked_while_a_lock_was_held_does_not_hold_it(tmp_path: Path) -> None:
    program = """
from pathlib import Path
tree = LocalTree(Path(sys.argv[1]))
held, may_end = threading.Event(), threading.Event()
def hold():
    with tree.lock("lock", 1.0):
        held.set()
        may_end.wait()
thread = threading.Thread(target=hold)
thread.start()
held.wait()
child = os.fork()
if not child:
    signal.pause()  # it outlives the lock of its parent, and must not keep it
may_end.set()
thread.join()
try:
    with tree.lock("lock", 1.0):
        print("free")
finally:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
"""
    done = run(program, tmp_path)
    assert done.stdout == "free\n", done.stderr


def test_a_child_closes_the_files_that_its_parent_keeps_open(tmp_path: Path) -> None:
    program = """
workspace = LocalWorkspace(sys.argv[1])
asyncio.run(workspace.archive("s1", [message("before")]))
reader, writer = os.pipe()
child = os.fork()
if not child:
    links = [os.readlink(entry) for entry in map("/proc/self/fd/{}".format, range(64)) if os.path.lexists(entry)]
    os.write(writer, str(len([link for link in links if link.startswith(sys.argv[1])])).encode())
    signal.pause()  # it outlives its parent's next call, and must not keep that one's lock
found = os.read(reader, 9).decode()
asyncio.run(workspace.archive("s1", [message("after")]))
asyncio.run(LocalWorkspace(sys.argv[1], lock_timeout_s=1).archive("s1", [message("of another")]))
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
print(found)
"""
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("needs /proc to see which files are open")
    done = run(program, tmp_path)
    assert done.stdout == "0\n", done.stderr


def test_a_lock_that_a_parent_died_with_is_free_although_its_child_lives(tmp_path: Path) -> None:
    program = """
from pathlib import Path
tree = LocalTree(Path(sys.argv[1]))
reader, writer = os.pipe()
holder = os.fork()
if not holder:
    held = threading.Event()
    def hold():
        with tree.lock("lock", 1.0):
            held.set()
            signal.pause()
    threading.Thread(target=hold, daemon=True).start()
    held.wait()
    child = os.fork()
    if not child:
        signal.pause()
    os.write(writer, str(child).encode() + b"\\n")
    os.kill(os.getpid(), signal.SIGKILL)
os.waitpid(holder, 0)
child = int(os.read(reader, 20))
try:
    with tree.lock("lock", 1.0):
        print("free")
finally:
    os.kill(child, signal.SIGKILL)
"""
    done = run(program, tmp_path)
    assert done.stdout == "free\n", done.stderr


def test_a_memory_workspace_whose_lock_was_held_works_in_the_child(tmp_path: Path) -> None:
    program = """
workspace = MemoryWorkspace()
held = threading.Event()
def hold():
    with workspace.tree.mutex:
        held.set()
        threading.Event().wait(20)
threading.Thread(target=hold, daemon=True).start()
held.wait()
child = os.fork()
if not child:
    asyncio.run(workspace.offload_context("s1", [message("child")]))
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = run(program, tmp_path)
    assert done.returncode == 0, done.stderr


async def test_parent_and_child_do_not_both_go_on_with_a_window_that_was_forked(tmp_path: Path) -> None:
    program = """
from buoyline import ContextWindow
from buoyline.errors import StaleWindowError
window = ContextWindow(offloader=LocalWorkspace(sys.argv[1]), session_id="s1")
async def write(text):
    await window.add(message(text))
    try:
        await window.prepare()
        print(text, flush=True)
    except StaleWindowError:
        pass
asyncio.run(write("before"))
child = os.fork()
if not child:
    asyncio.run(write("child"))
    os._exit(0)
os.waitpid(child, 0)
asyncio.run(write("parent"))
"""
    done = run(program, tmp_path)
    assert done.returncode == 0, done.stderr
    held = [message["content"] for message in (await ContextWindow.resume(LocalWorkspace(tmp_path), "s1")).messages]
    assert held == done.stdout.split()
    assert len(held) == 2, "only one window may continue a session"
