"""A tree in memory answers each call as one on a disk does."""

import stat
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buoyline.errors import LockTimeout, StorageError
from buoyline.workspace.layout import TEMPORARY_PREFIX
from buoyline.workspace.local_tree import LocalTree
from buoyline.workspace.memory_tree import MemoryTree
from buoyline.workspace.tree import Tree

NAMES = st.sampled_from(["a", "b", "d/a", "d/b", "d/e/a", "gone/a"])
DIRECTORIES = st.sampled_from(["d", "d/e", "gone"])
CONTENT = st.sampled_from([b"", b"one", b"two\n", bytes(range(256)) * 3])


def opened(tree: Tree, name: str, steps: list[Any], *, create: bool) -> object:
    """Append to a file and cut it, and return what it says after each step."""
    with tree.open(name, write=True, create=create) as file:
        said: list[object] = [file.size()]
        for step in steps:
            file.cut(step) if isinstance(step, int) else file.append(step)
            said.append((file.size(), file.read(1, 400)))
        return said


def staged(tree: Tree, directory: str, name: str, content: bytes) -> object:
    path, file = tree.stage(directory)
    with file:
        file.append(content)
        file.sync()
    return path.rpartition("/")[0], tree.publish_staged(path, name)


def listed(tree: Tree, name: str) -> object:
    """Return what is in a directory; a file without a final name has a name of its own in each tree."""
    found = [
        (TEMPORARY_PREFIX if entry.startswith(TEMPORARY_PREFIX) else entry, stat.S_ISDIR(status.st_mode), size)
        for entry, status in tree.entries(name).items()
        for size in [tree.size(f"{name}/{entry}")]
    ]
    return sorted(found, key=str)


def held(tree: Tree, name: str) -> object:
    with tree.held(name) as inner:
        return inner.names(name), inner.is_directory(name), inner.size(f"{name}/a")


CALLS: dict[str, Callable[..., object]] = {
    "make_directory": lambda tree, name: tree.make_directory(name),
    "publish": lambda tree, name, content: tree.publish(name, [content, content]),
    "replace": lambda tree, name, content: tree.replace(name, [content]),
    "publish_directory": lambda tree, name, content: tree.publish_directory(name, [("a", content), ("z", b"")]),
    "opened": lambda tree, name, steps, create: opened(tree, name, steps, create=create),
    "staged": staged,
    "freshen": lambda tree, name: tree.freshen(name),
    "remove": lambda tree, name: tree.remove(name),
    "names": lambda tree, name: tree.names(name),
    "listed": listed,
    "held": held,
    "read": lambda tree, name, offset, size: tree.read(name, offset, size),
    "chunks": lambda tree, name, size: list(tree.chunks(name, size)),
    "seen": lambda tree, name: (tree.exists(name), tree.is_directory(name), tree.size(name)),
}
SIZES = st.sampled_from([0, 1, 3, 700])
STEPS = st.one_of(
    st.tuples(st.sampled_from(["freshen", "remove", "seen"]), NAMES),
    st.tuples(st.sampled_from(["remove", "seen", "names", "listed", "held"]), DIRECTORIES),
    st.tuples(st.just("make_directory"), st.sampled_from(["d", "d/e", "none/d"])),
    st.tuples(st.sampled_from(["publish", "replace"]), NAMES, CONTENT),
    st.tuples(st.just("publish_directory"), st.sampled_from(["f", "gone/f"]), CONTENT),
    st.tuples(st.just("opened"), NAMES, st.lists(st.one_of(CONTENT, SIZES), max_size=4), st.booleans()),
    st.tuples(st.just("staged"), st.sampled_from(["d", "gone"]), NAMES, CONTENT),
    st.tuples(st.just("read"), NAMES, SIZES, st.one_of(st.none(), SIZES)),
    st.tuples(st.just("chunks"), NAMES, st.sampled_from([1, 2, 500])),
)


def answer(tree: Tree, step: tuple[Any, ...]) -> object:
    """Return what *tree* says; of an error its number."""
    call, *arguments = step
    try:
        return CALLS[call](tree, *arguments)
    except StorageError as error:
        return f"errno {error.errno}"


@given(st.lists(STEPS, max_size=25))
def test_a_tree_in_memory_answers_as_one_on_a_disk(steps: list[tuple[Any, ...]]) -> None:
    with TemporaryDirectory() as folder:
        local, memory = LocalTree(Path(folder), durable=False), MemoryTree("memory://")
        for step in steps:
            assert answer(memory, step) == answer(local, step), step
        for name in ("d", "d/e"):
            assert answer(memory, ("listed", name)) == answer(local, ("listed", name))


@pytest.fixture(params=["disk", "memory"])
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> Tree:
    if request.param == "memory":
        return MemoryTree("memory://")
    return LocalTree(tmp_path, durable=False)


def test_a_file_that_is_replaced_or_removed_stays_readable_where_it_is_open(tree: Tree) -> None:
    tree.publish("a", [b"first"])
    with tree.open("a") as first:
        tree.replace("a", [b"second"])
        with tree.open("a") as second:
            assert (first.read(0, 9), second.read(0, 9)) == (b"first", b"second")
            assert first.identity != second.identity
            tree.remove("a")
            assert second.read(0, 9) == b"second"
    assert not tree.exists("a")


def test_a_file_whose_content_was_read_changes_for_later_reads_alone(tree: Tree) -> None:
    tree.publish("a", [b"one"])
    before = tree.read("a")
    with tree.open("a", write=True) as file:
        file.append(b" two")
    assert (before, tree.read("a")) == (b"one", b"one two")


def test_a_change_of_a_directory_shows_in_its_time(tree: Tree) -> None:
    tree.make_directory("d")
    status = tree.status("d")
    assert status is not None
    before = status.st_mtime_ns
    tree.publish("d/a", [b""])
    after = tree.status("d")
    assert after is not None
    assert after.st_mtime_ns >= before


def test_a_lock_in_memory_is_held_against_other_threads_and_not_against_its_own() -> None:
    tree, is_held, may_end = MemoryTree("memory://"), Event(), Event()

    def hold() -> None:
        with tree.lock("one", 1.0), tree.lock("two", 1.0, shared=True):
            is_held.set()
            may_end.wait(20)

    thread = Thread(target=hold)
    thread.start()
    is_held.wait(20)
    with pytest.raises(LockTimeout, match="another thread"), tree.lock("three", 0.01):
        pass
    may_end.set()
    thread.join()
    with tree.lock("one", 1.0) as counted:
        counted.append(b"\n")
    with tree.lock("one", 1.0) as counted:
        assert counted.size() == 1
