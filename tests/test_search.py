"""What `search` answers: passages by relevance, in any script, bounded, confined, and the same without an index."""

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buoyline import LocalWorkspace
from buoyline.errors import BuoylineError, ConfigError
from buoyline.lookups import Answer, grep, read, search, sources
from buoyline.maintenance.gc import collect
from buoyline.maintenance.verify import verify
from buoyline.tokens import default_counter
from buoyline.workspace import layout


def _say(workspace: LocalWorkspace, session: str, *texts: str) -> None:
    asyncio.run(workspace.offload_context(session, [{"role": "user", "content": text} for text in texts]))


def _store(workspace: LocalWorkspace, session: str, call_id: str, text: str) -> str:
    result = {"role": "tool", "tool_call_id": call_id, "content": text}
    return asyncio.run(workspace.offload_tool_result(session, result))


def _filled(workdir: Path) -> LocalWorkspace:
    """Return a workspace with two sessions that have talked and called tools."""
    workspace = LocalWorkspace(workdir, durability="off")
    said = [
        "Which port shall staging use?",
        "Port 5433, since 5432 is taken by the old database.",
        "数据库的密码在保险箱里。",
        "Thanks. Unrelated: lunch was good in ประเทศไทย.",
    ]
    for session in ("s1", "Other/Session"):
        _say(workspace, session, *(f"{text} ({session})" for text in said))
        rows = "".join(f"### row-{n:04}\nowner: pers-{n % 7:04}\nnote: {session} fine\n\n" for n in range(90))
        _store(workspace, session, "c1", rows)
        _store(workspace, session, "c2", json.dumps({"rows": ["filler " * 400, "needle in a wide line"]}))
    return workspace


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> LocalWorkspace:
    return _filled(tmp_path_factory.mktemp("search") / "workspace")


@pytest.fixture
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let texts of any size have an index."""
    monkeypatch.setattr(sources, "LEAST_INDEXED_BYTES", 0)


def _first(answer: Answer) -> str:
    return answer.text.partition("\n== ")[2].partition("\n== ")[0]


@pytest.mark.parametrize(
    ("question", "found"),
    [
        ("what was the port for the staging database?", "5433"),
        ("databases staged", "5433"),  # by their stems
        ("密码在哪里", "保险箱"),
        ("箱", "保险箱"),
        ("ไทย", "lunch"),
        ("who owns row-0042", "### row-0042"),
        ('"wide line"', "needle in a wide line"),
    ],
)
def test_a_question_finds_what_was_said(workspace: LocalWorkspace, question: str, found: str) -> None:
    assert found in _first(search(workspace, question, session="s1"))


def test_lines_are_those_that_read_shows(workspace: LocalWorkspace) -> None:
    for line in search(workspace, "staging 5432 needle row-0007", session="s1").lines:
        assert read(workspace, line.path, line.number, line.number).lines[0].text == line.text


def test_the_rarest_words_are_named(workspace: LocalWorkspace) -> None:
    answer = search(workspace, "lunch owner zebra", session="s1")
    assert re.match(
        r"\[Rarest words, and in how many passages: lunch \(1\), owner \(\d+\)\.\]", answer.text.split("\n")[1]
    )
    assert "Rarest" not in search(workspace, "lunch owner zebra", session="s1", start=2).text


@given(max_tokens=st.integers(200, 900), query=st.sampled_from(["owner fine", "filler port row", "漢 lunch row"]))
def test_going_on_shows_each_passage_once_within_the_tokens(
    workspace: LocalWorkspace, max_tokens: int, query: str
) -> None:
    whole = search(workspace, query, session="s1", max_tokens=100_000)
    places: list[str] = []
    following: dict[str, Any] = {"start": 1}
    while following:
        answer = search(workspace, query, session="s1", max_tokens=max_tokens, **following)
        assert default_counter().count(answer.text) <= max_tokens
        places += re.findall(r"^== .*", answer.text, re.MULTILINE)
        following = dict(answer.next)
    assert places == re.findall(r"^== .*", whole.text, re.MULTILINE)
    assert len(places) == whole.total


@given(
    query=st.text(max_size=30)
    | st.sampled_from(['"', '""', 'a"b', "NEAR(a b)", "text:x", "a*", "-x", "\0", "\ud800a", "漢" * 500_000])
)
def test_no_query_is_syntax_for_the_index(workspace: LocalWorkspace, query: str) -> None:
    with contextlib.suppress(ConfigError):  # it has no word
        assert search(workspace, query, session="s1").text


def test_a_session_is_searched_alone(workspace: LocalWorkspace) -> None:
    assert "Other" not in search(workspace, "port staging fine", session="s1", max_tokens=20_000).text
    assert "(Other/Session)" in search(workspace, "port staging", max_tokens=20_000).text


words = st.sampled_from(
    ["port", "ports", "staging", "Straße", "order-0042", "数据库", "漢", "7", "\r\n", "é\u0301", "## x"]
)
contents = st.lists(st.lists(words, max_size=30).map(" ".join), max_size=40).map("\n".join)


@pytest.mark.usefixtures("any_size")
@given(
    files=st.lists(contents, min_size=1, max_size=4),
    later=contents,
    query=st.lists(words | st.just("`port staging`"), min_size=1, max_size=5).map(" ".join),
)
def test_the_index_changes_no_answer(
    tmp_path_factory: pytest.TempPathFactory, files: list[str], later: str, query: str
) -> None:
    workspace = LocalWorkspace(tmp_path_factory.mktemp("w"), durability="off")

    def ask(**options: Any) -> list[str]:
        try:
            answer = search(workspace, query, **options)
        except ConfigError:
            return []
        return [answer.text.partition("\n")[0], *sorted(re.findall(r"^== .*", answer.text, re.MULTILINE))]

    def assert_same(**options: Any) -> None:
        indexed = ask(max_tokens=50_000, **options)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sources, "LEAST_INDEXED_BYTES", sys.maxsize)
            assert indexed == ask(max_tokens=50_000, **options)

    _say(workspace, "s1", *files)
    for number, text in enumerate(files):
        _store(workspace, "s1", f"c{number}", text)
    assert_same()
    _say(workspace, "s1", later)
    _store(workspace, "s1", "c9", later)
    assert_same()
    assert_same(session="s1", path="tool_result-c0.txt")


def test_a_small_workspace_has_no_index(tmp_path: Path) -> None:
    workspace = _filled(tmp_path)
    assert search(workspace, "staging port").total
    assert not (tmp_path / layout.SEARCH).exists()


@pytest.mark.usefixtures("any_size")
def test_the_index_is_a_cache(tmp_path: Path) -> None:
    workspace = _filled(tmp_path)
    answer = search(workspace, "staging port", session="s1")
    index = tmp_path / layout.SEARCH / "s1.sqlite"
    assert index.parent.stat().st_mode & 0o777 == 0o700
    assert verify(workspace).findings == ()
    for damage in (b"", b"no database" * 999, index.read_bytes()[:5_000]):
        index.write_bytes(damage)
        assert search(workspace, "staging port", session="s1") == answer
        assert search(workspace, "staging port", session="s1") == answer
    index.unlink()
    index.symlink_to(tmp_path / "elsewhere")
    assert search(workspace, "staging port", session="s1") == answer
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.usefixtures("any_size")
def test_what_is_removed_is_no_longer_found(tmp_path: Path) -> None:
    workspace = _filled(tmp_path)
    assert search(workspace, "row-0042").total
    for file in (tmp_path / "sessions").glob("*/tool_result-c1.txt"):
        file.unlink()
    assert "row-0042" not in search(workspace, "row-0042").text.partition("\n")[2]
    collect(workspace, older_than_s=0, grace_s=0, dry_run=False)
    assert not any(b"staging" in file.read_bytes() for file in (tmp_path / layout.SEARCH).glob("*"))


@pytest.mark.usefixtures("any_size")
def test_several_processes_search_at_once(tmp_path: Path) -> None:
    _filled(tmp_path)
    program = (
        "import sys; from buoyline import LocalWorkspace; from buoyline.lookups import search, sources\n"
        "sources.LEAST_INDEXED_BYTES = 0\n"
        "for _ in range(20): print(search(LocalWorkspace(sys.argv[1]), 'staging port').total)"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    answers = {line for process in running for line in process.communicate()[0].split()}
    assert len(answers) == 1
    assert [process.returncode for process in running] == [0, 0, 0]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
@pytest.mark.usefixtures("any_size")
def test_a_workspace_that_may_only_be_read_is_searched(tmp_path: Path) -> None:
    workspace = _filled(tmp_path)
    tmp_path.chmod(0o500)
    try:
        assert search(workspace, "staging port").total
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.parametrize("lookup", [search, grep])
def test_what_cannot_be_is_refused(workspace: LocalWorkspace, lookup: Any) -> None:
    refused: list[dict[str, Any]] = [
        {"start": 0},
        {"max_tokens": 3},
        {"session": ""},
        {"counter": "gpt-4o"},
    ]
    for arguments in refused:
        with pytest.raises(BuoylineError):
            lookup(workspace, "port", **arguments)
    with pytest.raises(ConfigError, match="str is not a workspace"):
        lookup("s1", "port")
    with pytest.raises(ConfigError):
        lookup(workspace, "")
