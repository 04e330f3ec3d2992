"""What `search` answers with its index of words is what it answers without, and the index is only a cache."""

import asyncio
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from buoyline import LocalWorkspace
from buoyline.cli.main import main
from buoyline.errors import StorageError
from buoyline.lookups import Answer, grep, search, search_index
from buoyline.lookups.passages import Words
from buoyline.maintenance.gc import Retention, collect
from buoyline.maintenance.verify import verify
from buoyline.workspace import layout

INDEX = ".search/words.sqlite"


@pytest.fixture
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Index files of any size."""
    monkeypatch.setattr(search_index, "LEAST_BYTES", 0)


def filled(workdir: Path, **options: Any) -> LocalWorkspace:
    """Return a workspace with two sessions, whose results have a few passages each."""
    workspace = LocalWorkspace(workdir, durability="off", **options)
    for session in ("s1", "s2"):
        say(workspace, session, "Which port did we choose for staging?", "Port 5432, says the pump of the harbour.")
        store(workspace, session, "c1", "\n".join(f"row {number}: a quiet line" for number in range(200)))
        store(workspace, session, "c2", "the berth is closed\n" * 3)
    return workspace


def say(workspace: LocalWorkspace, session: str, *texts: str) -> None:
    messages = [{"role": "user", "content": text} for text in texts]
    asyncio.run(workspace.offload_context(session, messages))


def store(workspace: LocalWorkspace, session: str, call_id: str, text: str) -> None:
    result = {"role": "tool", "tool_call_id": call_id, "content": text}
    asyncio.run(workspace.offload_tool_result(session, result))


def indexed_words(workspace: LocalWorkspace) -> set[str]:
    """Return all words in the index."""
    with sqlite3.connect(workspace.workdir / INDEX) as database:
        database.execute("CREATE VIRTUAL TABLE temp.terms USING fts5vocab (main, words, row)")
        return {term for (term,) in database.execute("SELECT term FROM terms")}


def scanned(workspace: LocalWorkspace, query: str, **options: Any) -> Answer:
    """Return the answer without an index."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search_index, "LEAST_BYTES", sys.maxsize)
        return search(workspace, query, **options)


def assert_same(workspace: LocalWorkspace, *queries: str, **options: Any) -> None:
    for query in queries:
        assert search(workspace, query, **options) == scanned(workspace, query, **options)


words = st.sampled_from(
    [
        "port",
        "ports",
        "staging",
        "Straße",
        "order-0042",
        "数据库",
        "漢",
        "한국어",
        "an_err",
        "7",
        "\r\n",
        "é\u0301",
        "## x",
    ]
)
lines = st.lists(words, max_size=30).map(" ".join)
contents = st.lists(lines, max_size=40).map("\n".join)


@pytest.mark.usefixtures("small_files")
@given(
    files=st.lists(contents, min_size=1, max_size=4),
    later=contents,
    query=st.lists(words | st.just("'port staging'"), min_size=1, max_size=5).map(" ".join),
)
def test_the_index_changes_no_answer(
    tmp_path_factory: pytest.TempPathFactory, files: list[str], later: str, query: str
) -> None:
    if not len(Words(query)):
        return
    workspace = LocalWorkspace(tmp_path_factory.mktemp("w"), durability="off")
    say(workspace, "s1", *files)
    for number, text in enumerate(files):
        store(workspace, "s1", f"c{number}", text)
    assert_same(workspace, query)
    say(workspace, "s1", later)
    store(workspace, "s1", "c9", later)
    assert_same(workspace, query)
    assert_same(workspace, query, session="s1", path="tool_result-c0.txt")


def test_a_small_workspace_has_no_index(tmp_path: Path) -> None:
    workspace = filled(tmp_path)
    assert search(workspace, "staging port").total
    assert not (tmp_path / layout.SEARCH).exists()


@pytest.mark.usefixtures("small_files")
def test_the_index_is_used_and_holds_no_text(tmp_path: Path) -> None:
    workspace = filled(tmp_path)
    assert_same(workspace, "staging port", "berth", "nothing here has thiz")
    assert {"staging", "berth"} <= indexed_words(workspace)
    assert b"Port 5432, says the pump" not in (tmp_path / INDEX).read_bytes()
    assert (tmp_path / layout.SEARCH).stat().st_mode & 0o777 == 0o700
    assert verify(workspace).findings == ()


@pytest.mark.usefixtures("small_files")
def test_what_was_added_changed_or_removed_since_is_known(tmp_path: Path) -> None:
    workspace = filled(tmp_path)
    assert search(workspace, "lighthouse").total == 0
    say(workspace, "s1", "The lighthouse is at 54.3 north.")
    store(workspace, "s2", "c3", "a lighthouse keeper")
    assert search(workspace, "lighthouse").total == 2
    (tmp_path / "sessions/s2/tool_result-c3.txt").write_text("nobody keeps it")
    (tmp_path / "sessions/s1/tool_result-c2.txt").unlink()
    assert search(workspace, "lighthouse").total == 1
    assert_same(workspace, "lighthouse", "berth", "keeps", "port staging")


@pytest.mark.usefixtures("small_files")
def test_the_words_of_a_removed_session_are_gone(tmp_path: Path) -> None:
    workspace = filled(tmp_path)
    say(workspace, "secret", "The password is swordfish.")
    assert search(workspace, "swordfish").total == 1
    collect(workspace, Retention(max_sessions=0), grace_s=0, dry_run=False)
    assert not (tmp_path / INDEX).exists()
    assert search(workspace, "swordfish").total == 0
    assert "swordfish" not in indexed_words(workspace)


def damaged(path: Path) -> Iterator[None]:
    content = path.read_bytes()
    for damage in (b"not a database" * 99, b"", content[: len(content) // 2], b"\0" * len(content)):
        path.write_bytes(damage)
        yield
    half = len(content) // 2
    path.write_bytes(content[:half] + os.urandom(4_096) + content[half + 4_096 :])
    yield


@pytest.mark.usefixtures("small_files")
def test_a_damaged_index_is_made_again(tmp_path: Path) -> None:
    workspace = filled(tmp_path)
    for number in range(40):
        store(workspace, "s1", f"d{number}", "\n".join(f"{number}-{row} pier" for row in range(300)))
    search(workspace, "berth")
    for _ in damaged(tmp_path / INDEX):
        for _ in range(3):
            assert {line.path for line in search(workspace, "berth").lines} <= {
                line.path for line in scanned(workspace, "berth").lines
            }
        assert_same(workspace, "staging harbour")
        workspace.tree.remove(layout.SEARCH)
        search(workspace, "berth")


@pytest.mark.usefixtures("small_files")
def test_a_link_in_the_place_of_the_index_is_not_followed(tmp_path: Path) -> None:
    workspace = filled(tmp_path / "w")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "w/.search").symlink_to(elsewhere)
    assert search(workspace, "berth").total == 2
    assert list(elsewhere.iterdir()) == []
    (tmp_path / "w/.search").unlink()
    (tmp_path / "w/.search").mkdir()
    (tmp_path / "w" / INDEX).symlink_to(elsewhere / "words.sqlite")
    assert search(workspace, "berth").total == 2
    assert list(elsewhere.iterdir()) == []


SEARCHING = """
import sys
from buoyline import LocalWorkspace
from buoyline.lookups import search, search_index
search_index.LEAST_BYTES = 0
for _ in range(5):
    print(search(LocalWorkspace(sys.argv[1]), "pier berth").total)
"""


@pytest.mark.usefixtures("small_files")
def test_processes_that_search_at_once_all_answer(tmp_path: Path) -> None:
    workspace = filled(tmp_path)
    for number in range(30):
        store(workspace, "s1", f"d{number}", "\n".join(f"{number}-{row} pier" for row in range(300)))
    command = [sys.executable, "-c", SEARCHING, str(tmp_path)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    answers = {line for process in running for line in process.communicate(timeout=60)[0].split()}
    assert answers == {str(scanned(workspace, "pier berth").total)}
    assert [process.returncode for process in running] == [0] * 4
    assert_same(workspace, "pier berth")


@pytest.mark.usefixtures("small_files")
@pytest.mark.parametrize("how", [Path.mkdir, lambda path: path.symlink_to("/etc/passwd")], ids=["directory", "link"])
@pytest.mark.parametrize("name", ["transcript.md", "tool_result-c1.txt", "journal.jsonl", "session.json"])
def test_a_file_of_one_session_that_cannot_be_read_does_not_end_a_lookup_over_all(
    tmp_path: Path, name: str, how: Callable[[Path], None]
) -> None:
    workspace = filled(tmp_path)
    damaged = tmp_path / "sessions/s2" / name
    damaged.unlink()
    how(damaged)
    for answer in (
        grep(workspace, "staging|quiet"),
        grep(workspace, "staging|quiet", last=True),
        search(workspace, "staging quiet"),
        grep(workspace, "staging|quiet", max_tokens=100),
    ):
        assert "sessions/s1/" in answer.text
    for answer in (grep(workspace, "nowhere"), search(workspace, "nowhere")):
        if name in {"journal.jsonl", "session.json"}:
            assert (answer.unread, "in 6 files" in answer.text) == ({}, True)
        else:
            (path, reason), *_ = answer.unread.items()
            assert path == f"sessions/s2/{name}"
            assert f"in 5 files.]\n[Not searched: {path}: {reason}.]\n" in answer.text
    done = CliRunner().invoke(main, ["grep", "staging", "--workdir", str(tmp_path)])
    assert "Which port did we choose for staging?" in done.stdout
    assert done.exit_code == bool(answer.unread)
    assert done.stderr == "".join(f"buoyline: {damaged}: {reason}\n" for reason in answer.unread.values())


def test_a_lookup_that_can_read_nothing_is_an_error(tmp_path: Path) -> None:
    workspace = filled(tmp_path)
    for path in tmp_path.glob("sessions/*/t*"):
        path.unlink()
        path.symlink_to("/etc/passwd")
    done = CliRunner().invoke(main, ["read", "transcript.md", "--workdir", str(tmp_path)])
    assert "it may mean" in done.stderr
    for lookup in (grep, search):
        with pytest.raises(StorageError, match="is a link, which is not followed"):
            lookup(workspace, "staging")
