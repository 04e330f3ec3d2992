"""What `search` answers with its index of words is what it answers without, and the index is only a cache."""

import asyncio
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from command_line import buoyline_process
from hypothesis import example, given
from hypothesis import strategies as st

from buoyline import LocalWorkspace, MemoryWorkspace
from buoyline.cli.main import main
from buoyline.errors import QuotaExceededError, StorageError
from buoyline.lookups import Answer, grep, search, search_index
from buoyline.lookups.passages import MAX_CHUNK_CHARS, Words, chunks_of, terms_of
from buoyline.maintenance.gc import Retention, collect
from buoyline.maintenance.verify import verify
from buoyline.workspace import Quotas, layout

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


@example("字漢 a", "漢")
@given(st.text(alphabet="ab É_漢字한ß\n", max_size=300), st.text(alphabet="abÉ漢字한ß", min_size=1, max_size=3))
def test_a_passage_with_a_word_has_a_term_of_the_word(text: str, query: str) -> None:
    asked = Words(query)
    terms = re.split(r"[^a-z0-9\x80-\U0010ffff]+", terms_of(text).lower())
    for place in asked.count(text):
        beginning, may_be_longer = asked.terms[place]
        assert any(term == beginning or (may_be_longer and term.startswith(beginning)) for term in terms)


@given(st.text(alphabet="ab \n#é漢", max_size=3_000))
def test_chunks_say_where_they_begin(text: str) -> None:
    content = text.encode()
    found = list(chunks_of([content] if content else []))
    assert all(content[chunk.offset :].startswith(chunk.text.encode()) for chunk in found)
    for chunk in found[1:]:
        rest = chunks_of([content[chunk.offset :]], chunk.number, chunk.column, chunk.offset)
        assert list(rest) == found[found.index(chunk) :]


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
def test_a_transcript_that_was_cut_and_went_on_otherwise_is_read_again(tmp_path: Path) -> None:
    workspace = filled(tmp_path)
    say(workspace, "s1", *(f"buoy {number} of the harbour. " * 9 for number in range(20)))
    transcript = tmp_path / "sessions/s1/transcript.md"
    whole = transcript.read_bytes()
    assert search(workspace, "harbour").total > 5
    with transcript.open("r+b") as file:  # the same file
        file.truncate(len(whole) // 2)
        file.seek(0, os.SEEK_END)
        file.write(b"\nan anchorage " * (len(whole) // 10))
    assert_same(workspace, "anchorage", "harbour", "port staging")


@pytest.mark.usefixtures("small_files")
def test_earlier_forms_of_a_passage_that_grew_take_no_place_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_index, "MAX_READ", 8)
    workspace = LocalWorkspace(tmp_path, durability="off")
    for number in range(12):
        say(workspace, "s1", f"pilot {number}")
        search(workspace, "pilot")
    store(workspace, "s1", "c1", "\n\n".join(f"## {number}\npilot {'x' * 700}" for number in range(4)))
    assert_same(workspace, "pilot")


@pytest.mark.usefixtures("small_files")
def test_after_many_removals_the_index_begins_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_index, "_BATCH", 4)
    workspace = filled(tmp_path)
    search(workspace, "berth")
    for session in ("s1", "s2"):
        (tmp_path / f"sessions/{session}/tool_result-c1.txt").unlink()
    store(workspace, "s1", "c4", "a new berth")
    assert_same(workspace, "berth", "port staging")
    assert "quiet" not in indexed_words(workspace)


@pytest.mark.usefixtures("small_files")
def test_bytes_that_are_no_text_are_read_each_time(tmp_path: Path) -> None:
    workspace = filled(tmp_path)
    name = "sessions/s1/tool_result-broken.txt"
    (tmp_path / name).write_bytes(b"a \xff moorage here\n" * 90)
    assert_same(workspace, "moorage", "port staging")
    assert search(workspace, "moorage").total > 0
    assert "moorage" not in indexed_words(workspace)


@pytest.mark.usefixtures("small_files")
def test_a_name_that_is_no_text_is_read_each_time(tmp_path: Path) -> None:
    workspace = filled(tmp_path)
    try:
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/sessions/s1/tool_result-\xff.txt")).write_bytes(b"a slipway")
    except OSError:
        pytest.skip("this file system takes names in UTF-8 alone")
    assert_same(workspace, "slipway", "port staging")
    assert search(workspace, "slipway").total == 1


@pytest.mark.usefixtures("small_files")
def test_the_words_of_a_removed_session_are_gone(tmp_path: Path) -> None:
    workspace = filled(tmp_path)
    say(workspace, "secret", "The password is swordfish.")
    assert search(workspace, "swordfish").total == 1
    collect(workspace, Retention(max_sessions=0, kept=frozenset({"s1", "s2"})), grace_s=0, dry_run=False)
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
@pytest.mark.parametrize("value", ["'x'", "-5", "NULL"])
@pytest.mark.parametrize(
    "change",
    ["passages SET offset", "passages SET number", "files SET passages", "files SET chars", "files SET end"],
)
def test_an_index_whose_numbers_are_damaged_is_made_again(tmp_path: Path, change: str, value: str) -> None:
    workspace = filled(tmp_path)
    search(workspace, "berth")
    with sqlite3.connect(tmp_path / INDEX) as database:
        database.execute(f"UPDATE {change} = {value}")
    for _ in range(2):
        assert_same(workspace, "berth")


@pytest.mark.usefixtures("small_files")
def test_an_index_that_another_process_writes_is_not_waited_for(tmp_path: Path) -> None:
    workspace = filled(tmp_path)
    search(workspace, "berth")
    store(workspace, "s1", "c3", "another berth")
    with sqlite3.connect(tmp_path / INDEX, isolation_level=None) as database:
        database.execute("BEGIN EXCLUSIVE")
        assert search(workspace, "berth").total == 3
    assert_same(workspace, "berth")


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


@pytest.mark.usefixtures("small_files")
def test_the_index_goes_before_a_write_is_refused(tmp_path: Path) -> None:
    search(filled(tmp_path), "berth")
    counted = sum(
        path.stat().st_size for name in ("sessions", "data", ".search") for path in (tmp_path / name).rglob("*.*")
    )
    workspace = LocalWorkspace(tmp_path, durability="off", quotas=Quotas(workspace_bytes=counted + 100))
    store(workspace, "s1", "c5", "x" * 2_000)
    assert not (tmp_path / INDEX).exists()
    with pytest.raises(QuotaExceededError):
        store(workspace, "s1", "c6", "x" * counted)


@pytest.mark.usefixtures("small_files")
def test_the_time_that_an_index_takes_is_bounded_and_it_goes_on_from_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_index, "_BATCH", 2)
    workspace = filled(tmp_path)
    store(workspace, "s1", "long", "\n".join(f"{row} of a long jetty" for row in range(2_000)))
    answers = [search(workspace, "jetty", timeout_s=0.0) for _ in range(300)]
    assert "Not all was searched" in answers[0].text or "the time was up" in answers[0].text
    assert len({answer.total for answer in answers}) > 20
    assert answers[-1] == scanned(workspace, "jetty")


@pytest.mark.usefixtures("small_files")
@pytest.mark.parametrize("most_ranked", [30_000, 50])
def test_of_frequent_words_the_passages_with_the_most_of_them_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_ranked: int
) -> None:
    monkeypatch.setattr(search_index, "MAX_READ", 20)
    monkeypatch.setattr(search_index, "_MOST_RANKED", most_ranked)
    workspace = LocalWorkspace(tmp_path, durability="off")
    filler = "x" * (MAX_CHUNK_CHARS - 40)
    rows = [f"## {number}\nharbour {filler}\n\n## {number}\npilot {filler}\n\n" for number in range(100)]
    rows[70] += f"## both\nharbour and pilot {filler}\n\n"
    store(workspace, "s1", "c1", "".join(rows))
    found = search(workspace, "harbour pilot", max_tokens=4_000)
    assert found.lines[1].content.startswith("harbour and pilot")
    assert found.total == scanned(workspace, "harbour pilot").total == 201
    rare = search(workspace, "harbour 70 pilot", max_tokens=4_000)
    assert rare.lines[0].content == scanned(workspace, "harbour 70 pilot", max_tokens=4_000).lines[0].content


@pytest.mark.usefixtures("small_files")
def test_a_word_that_is_frequent_elsewhere_is_found_in_a_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_index, "MAX_READ", 20)
    workspace = LocalWorkspace(tmp_path, durability="off")
    store(workspace, "s1", "c1", "".join(f"## {number}\npilot {'x' * 700}\n\n" for number in range(100)))
    store(workspace, "s2", "c1", "the pilot is aboard")
    assert search(workspace, "pilot").total == 101
    assert_same(workspace, "pilot", session="s2")


@pytest.mark.usefixtures("small_files")
@pytest.mark.parametrize("session", [None, "s1"])
def test_the_number_of_passages_with_a_frequent_word_is_about_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, session: str | None
) -> None:
    monkeypatch.setattr(search_index, "MAX_READ", 20)
    monkeypatch.setattr(search_index, "_SAMPLE", 30)
    workspace = LocalWorkspace(tmp_path, durability="off")

    def block(number: int, word: str) -> str:
        return f"## {number}\n{word} {'x' * 700}\n\n"

    rows = [block(number, "pilot" if number % 3 else "harbour") for number in range(300)]
    store(workspace, "s1", "c1", "".join([*rows[:150], *(block(number, "tide") for number in range(200)), *rows[150:]]))
    store(workspace, "s2", "c1", "".join(block(number, "pilot") for number in range(40)))
    search(workspace, "pilot")
    for word, exact in (("pilot", 200 if session else 240), ("tide", 200), ("harbour", 100)):
        found = search(workspace, word, session=session).total
        assert scanned(workspace, word, session=session).total == exact
        assert exact / 2 <= found <= exact * 2, word
    assert search(workspace, "tide", session=session).total == 200


@pytest.mark.usefixtures("small_files")
def test_a_beginning_of_many_words_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_index, "_MOST_FORMS", 3)
    workspace = filled(tmp_path)
    forms = ["harbours", "harboured", "harboring", "harbo", "harborx", "harbory"]
    store(workspace, "s1", "c9", "\n\n".join(f"## {form}\n{form} {'x' * 700}" for form in forms))
    assert_same(workspace, "harboured", "pumps", "berths", "quiet lines")
    assert search(workspace, "harboured").total > 3


@pytest.mark.usefixtures("small_files")
def test_passages_with_one_rare_word_are_read_before_those_with_two_frequent_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_index, "MAX_READ", 20)
    workspace = LocalWorkspace(tmp_path, durability="off")
    held = ["pilot quay"] * 30 + ["pilot"] * 110 + ["quay"] * 110 + ["seven"] * 22
    store(workspace, "s1", "c1", "".join(f"## {at}\n{word} {'x' * 700}\n\n" for at, word in enumerate(held)))
    found = search(workspace, "pilot quay seven")
    assert found.lines[1].content.startswith("seven")
    assert found.lines[1].content == scanned(workspace, "pilot quay seven").lines[1].content


@pytest.mark.usefixtures("small_files")
def test_a_word_weighs_by_all_passages_with_it_not_by_those_that_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_index, "MAX_READ", 20)
    workspace = LocalWorkspace(tmp_path, durability="off")
    filler = "x" * 700
    rows = [f"## 0\n{'pilot ' * 9}{filler}\n\n", *(f"## {number}\npilot {filler}\n\n" for number in range(150))]
    rows += [f"## rare\nseven {filler}\n\n"] * 9
    store(workspace, "s1", "c1", "".join(rows))
    found = search(workspace, "seven pilot")
    assert found.lines[1].content.startswith("seven")
    assert found.lines[1].content == scanned(workspace, "seven pilot").lines[1].content


@pytest.mark.usefixtures("small_files")
def test_what_others_add_during_a_search_does_not_change_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = filled(tmp_path)
    before = search(workspace, "port staging")
    choose = search_index._Lookup.choose

    def interrupted(*chosen: Any) -> Any:
        monkeypatch.setattr(search_index._Lookup, "choose", choose)
        say(workspace, "s1", "The port for staging has changed.")
        assert search(workspace, "port staging").total > before.total
        return choose(*chosen)

    monkeypatch.setattr(search_index._Lookup, "choose", interrupted)
    assert search(workspace, "port staging") == before
    assert_same(workspace, "port staging")


@pytest.mark.usefixtures("small_files")
def test_a_workspace_in_memory_is_searched_without_an_index() -> None:
    workspace = MemoryWorkspace()
    asyncio.run(workspace.offload_context("s1", [{"role": "user", "content": "the berth is closed"}]))
    assert search(workspace, "berth").total == 1


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
def test_one_command_searches_every_session(tmp_path: Path) -> None:
    filled(tmp_path)
    run = CliRunner()
    found = run.invoke(main, ["search", "--all", "staging port", "--workdir", str(tmp_path)])
    assert found.exit_code == 0, found.output
    assert "== sessions/s1/transcript.md:" in found.output
    assert "== sessions/s2/transcript.md:" in found.output
    refused = run.invoke(main, ["search", "--all", "port", "--session", "s1", "--workdir", str(tmp_path)])
    assert refused.exit_code == 2
    assert "give no PATH and no --session" in refused.output


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


@pytest.mark.usefixtures("small_files")
def test_a_command_reports_a_damaged_index_as_it_reports_all_else(tmp_path: Path) -> None:
    workspace = filled(tmp_path)
    store(workspace, "s1", "large", "a line about berths\n" * 250_000)
    search(workspace, "staging port")
    (tmp_path / INDEX).write_bytes(b"no database" * 1_000)
    done = buoyline_process("search", "staging port", "--workdir", tmp_path)
    assert done.returncode == 0
    assert "Which port did we choose for staging?" in done.stdout
    assert done.stderr.startswith("buoyline: the index of words is damaged (")
    assert done.stderr.count("\n") == 1
