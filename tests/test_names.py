"""One way to name a thing in all lookups, and no name that leads elsewhere."""

import asyncio
import contextlib
import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buoyline import LocalWorkspace
from buoyline.errors import BuoylineError, InvalidNameError, NotFoundError
from buoyline.lookups import grep, read, search
from buoyline.messages import Message, Text
from buoyline.offloader.transcript import render
from buoyline.workspace import layout
from buoyline.workspace.state import ContextRecord, NewLine

ROWS = [{"id": n, "state": "ok"} for n in range(3)]
IDS = {
    "s1": ["toolu_01RnJq", "call_a", "call_b", "../x", "Read file:31", "Ünïcode id", "twice", "con"],
    "s2": ["call_s2", "other_one"],
}


def _text(session: str, call_id: str) -> str:
    return "".join(f"{json.dumps({'id': n, 'of': session, 'call': call_id})}\n" for n in range(3))


def written(workspace: LocalWorkspace, name: str) -> None:
    """Write a session of nine archived messages with two summaries."""
    messages = [{"role": "user", "content": f"question {n} of {name}"} for n in range(9)]
    session = workspace.session(name)
    session.open()
    session.append([NewLine(message) for message in messages])
    made = session.archive(
        render([Message("user", (Text(m["content"]),)) for m in messages], 0, [""] * 9, lambda _: None)
    )
    for text in (f"first of {name}\nits second line", f"second of {name}"):
        number = session.append_summary({"text": text})
    record = ContextRecord(((0, 9),), 9, summary=number, transcript=made.transcript, left=((0, 9),), lines=made.lines)
    session.note_context(record)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalWorkspace]:
    """Two sessions with results under ids of many forms."""
    made = LocalWorkspace(tmp_path_factory.mktemp("names") / "workspace", durability="off")

    async def fill() -> None:
        for session, ids in IDS.items():
            written(made, session)
            for call_id in ids:
                result = {"role": "tool", "tool_call_id": call_id, "content": _text(session, call_id)}
                await made.offload_tool_result(session, result)
        await made.offload_tool_result("s1", {"role": "tool", "tool_call_id": "twice", "content": _text("s1", "again")})
        wide = {"role": "tool", "tool_call_id": "wide_1", "content": json.dumps(ROWS * 60)}
        await made.offload_tool_result("s1", wide)

    asyncio.run(fill())
    (made.workdir / "own.txt").write_text("of the agent\n", "utf-8")
    yield made
    asyncio.run(made.close())


Lookup = Callable[..., str]


def _by_read(workspace: LocalWorkspace, name: str, session: str | None = None) -> str:
    return "\n".join(line.text for line in read(workspace, name, session=session).lines)


def _by_grep(workspace: LocalWorkspace, name: str, session: str | None = None) -> str:
    return "\n".join(line.text for line in grep(workspace, ".", name, session=session).lines)


def _by_search(workspace: LocalWorkspace, name: str, session: str | None = None) -> str:
    return "\n".join(line.text for line in search(workspace, "call id", name, session=session).lines)


LOOKUPS: list[Lookup] = [_by_read, _by_grep, _by_search]


@pytest.mark.parametrize("lookup", LOOKUPS)
@pytest.mark.parametrize("session", [None, "s1"])
def test_a_result_is_found_by_every_name_that_it_has(
    workspace: LocalWorkspace, lookup: Lookup, session: str | None
) -> None:
    for call_id in ("toolu_01RnJq", "../x", "Read file:31", "Ünïcode id", "con"):
        file = layout.result_name(call_id)
        relative = f"sessions/s1/{file}"
        for name in (relative, f"./{relative}", f"/elsewhere/{relative}", workspace.session("s1").path_of(file), file):
            for spelled in (name, f"[{name}]", f"[{name}", f" {name}\n", call_id):
                assert lookup(workspace, spelled, session) == _text("s1", call_id).rstrip("\n"), spelled


def test_a_citation_as_printed_names_its_lines(workspace: LocalWorkspace) -> None:
    for spelled in (
        "transcript.md:3-4,6",
        "[transcript.md:6,3-4]",
        "[transcript.md:3-4,4,6",
        " [transcript.md:3-4,6] ",
    ):
        assert [line.number for line in read(workspace, spelled, session="s1").lines] == [3, 4, 6]
        assert {line.number for line in grep(workspace, ".*", spelled, session="s1").lines} == {3, 4, 6}
    assert [line.number for line in read(workspace, "transcript.md:3-4,6", 4, session="s1").lines] == [4, 6]
    for spelled in ("toolu_01RnJq:2", "[tool_result-toolu_01RnJq.txt:2", "[toolu_01RnJq:2]"):
        assert _by_read(workspace, spelled) == json.dumps({"id": 1, "of": "s1", "call": "toolu_01RnJq"})


@given(count=st.integers(1, 40), start=st.integers(-40, 40).filter(bool))
def test_lines_are_counted_from_the_end_as_python_does(workspace: LocalWorkspace, count: int, start: int) -> None:
    numbers = list(range(1, 28))
    found = [line.number for line in read(workspace, f"transcript.md:-{count}", session="s1").lines]
    assert found == numbers[-count:]
    assert {line.number for line in grep(workspace, ".*", f"transcript.md:-{count}", session="s1").lines} == set(found)
    if -27 <= start <= 27:
        expected = numbers[start - 1 :] if start > 0 else numbers[start:]
        assert [line.number for line in read(workspace, "transcript.md", start, session="s1").lines] == expected


def test_a_summary_is_read_by_its_number(workspace: LocalWorkspace) -> None:
    for name in ("summaries.jsonl:1", "[summaries.jsonl:-2]", "sessions/s1/summaries.jsonl:1"):
        assert _by_read(workspace, name, "s1") == "first of s1\nits second line"
    assert _by_read(workspace, "summaries.jsonl", "s1") == "second of s1"
    assert _by_read(workspace, "sessions/s2/summaries.jsonl:2") == "second of s2"
    for name in ("summaries.jsonl:3", "summaries.jsonl:0", "sessions/s2/summaries.jsonl:1"):
        with pytest.raises(NotFoundError):
            read(workspace, name, session="s1")


def test_patterns_and_directories_name_several_files(workspace: LocalWorkspace) -> None:
    for path in (
        "tool_result-call_*",
        "sessions/s1/tool_result-call_*",
        f"{workspace.workdir}/sessions/s1/*call_?.txt",
    ):
        assert "in 2 files" in grep(workspace, "call", path, session="s1").text
    assert "in 2 files" in grep(workspace, "question", "sessions/*/transcript.md").text
    assert grep(workspace, "question", "sessions/s2").lines[0].path == "sessions/s2/transcript.md"
    assert (
        "in 2 files" in grep(workspace, "question|id", ["tool_result-con.txt", "transcript.md:1-9"], session="s1").text
    )
    for path in (".", "", "sessions", "sessions/s2/", str(workspace.workdir / "sessions/s2")):
        assert read(workspace, path).lines


@pytest.mark.parametrize("lookup", LOOKUPS)
def test_a_name_of_several_files_is_an_error_that_lists_them(workspace: LocalWorkspace, lookup: Lookup) -> None:
    with pytest.raises(NotFoundError, match=r"no single file 'twice'; it may mean sessions/s1/tool_result-twice"):
        lookup(workspace, "twice", "s1")
    with pytest.raises(NotFoundError, match=r"may mean sessions/s1/transcript.md, sessions/s2/transcript.md; give"):
        lookup(workspace, "transcript.md:1")


@pytest.mark.parametrize("lookup", LOOKUPS)
@pytest.mark.parametrize("lines", ["", ":1", ":1-2", ":-3"])
@pytest.mark.parametrize("file", ["transcript.md", "tool_result-call_s2.txt", "summaries.jsonl"])
def test_no_citation_leads_to_another_session(workspace: LocalWorkspace, lookup: Lookup, file: str, lines: str) -> None:
    assert (workspace.workdir / "sessions/s2" / file).is_file()
    relative = f"sessions/s2/{file}{lines}"
    for spelled in (relative, f"[{relative}]", f"./{relative}", str(workspace.workdir / relative), "sessions/s2"):
        with pytest.raises(NotFoundError):
            lookup(workspace, spelled, "s1")


@pytest.mark.parametrize("lookup", LOOKUPS)
@pytest.mark.parametrize("name", ["call_s2", "tool_result-call_s2.txt", "[tool_result-call_s2.txt:1]", "other_one"])
def test_no_name_leads_to_another_session(workspace: LocalWorkspace, lookup: Lookup, name: str) -> None:
    with pytest.raises(NotFoundError) as caught:
        lookup(workspace, name, "s1")
    assert "s2" not in str(caught.value).replace(name, "")


NAMES_FROM_ELSEWHERE = [
    "own.txt",
    "../secret.txt",
    "/etc/passwd",
    "sessions/../../secret.txt",
    "sessions/s1/../s2/transcript.md",
    "sessions/s1/link.txt",
    "sessions/s1/tool_result-link.txt",
    "sessions/s1/tool_result-pipe.txt",
    "sessions/s1/below/own.txt",
    "sessions/s1/journal.jsonl",
    "sessions/s1/.own.txt",
    "sessions/linked/secret.txt",
    "sessions/.tmp-1/transcript.md",
    "data/own.txt",
    f"data/{'0' * 64}.png",
    f"data/{'c' * 64}.txt",
    "workspace:///data/../x",
    ".locks/00.lock",
    "workspace.json",
    "a\0b",
    "\ud800",
    "x" * 5_000,
    "in_context",
]


@pytest.mark.parametrize("name", NAMES_FROM_ELSEWHERE)
@pytest.mark.parametrize("session", [None, "s1"])
def test_nothing_but_regular_files_of_sessions_and_blobs_is_read(
    workspace: LocalWorkspace, tmp_path: Path, name: str, session: str | None
) -> None:
    secret, inside = tmp_path / "secret.txt", workspace.workdir / "sessions/s1"
    secret.write_text("secret", "utf-8")
    (inside / "below").mkdir()
    (inside / "below/own.txt").write_text("secret", "utf-8")
    (inside / ".own.txt").write_text("secret", "utf-8")
    (workspace.workdir / "data").mkdir(exist_ok=True)
    (workspace.workdir / "data/own.txt").write_text("secret", "utf-8")
    links = {
        inside / "link.txt": secret,
        inside / "tool_result-link.txt": secret,
        workspace.workdir / "sessions/linked": tmp_path,
        workspace.workdir / f"data/{'c' * 64}.txt": secret,
    }
    for link, target in links.items():
        link.symlink_to(target)
    os.mkfifo(inside / "tool_result-pipe.txt")
    try:
        for spelled in (name, f"/old/{name}", f"{workspace.workdir}/{name}"):
            for lookup in LOOKUPS:
                with pytest.raises(NotFoundError):
                    lookup(workspace, spelled, session)
        assert not grep(workspace, "secret", session=session).lines
        assert not grep(workspace, "secret", "*", session=session).lines
    finally:
        for made in (*links, inside / "tool_result-pipe.txt", inside / "below/own.txt", inside / ".own.txt"):
            made.unlink()
        (inside / "below").rmdir()


@given(
    st.text(max_size=12) | st.sampled_from([f"{a}{b}" for a in ("", "[", "../") for b in ("call", "x:1", "s2/", "~")])
)
def test_no_name_ends_in_another_error_or_leaves_the_session(workspace: LocalWorkspace, name: str) -> None:
    for lookup in (read, partial(grep, pattern=".")):
        with contextlib.suppress(BuoylineError):
            answer = lookup(workspace, path=name, session="s1")
            assert all(line.path.startswith("sessions/s1") for line in answer.lines)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("tool_result-toolu_02RnJq.txt", "near are tool_result-toolu_01RnJq.txt"),
        ("TRANSCRIPT.MD", "near are transcript.md"),
        ("transcirpt.md:3-4", "near are transcript.md"),
        ("RnJ", "near are tool_result-toolu_01RnJq.txt"),
    ],
)
def test_an_error_says_what_is_near(workspace: LocalWorkspace, name: str, near: str) -> None:
    with pytest.raises(NotFoundError) as caught:
        read(workspace, name, session="s1")
    assert near in str(caught.value)
    assert len(caught.value.hint) < 300


def test_a_session_that_is_not_there_is_named(workspace: LocalWorkspace) -> None:
    for lookup in LOOKUPS:
        with pytest.raises(NotFoundError, match="no session 's3'"):
            lookup(workspace, "transcript.md", "s3")
        with pytest.raises(InvalidNameError):
            lookup(workspace, "transcript.md", "")


def test_a_directory_with_a_hostile_name_is_not_shown(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path, durability="off")
    asyncio.run(workspace.offload_context("s1", [{"role": "user", "content": "hello"}]))
    hostile = tmp_path / "sessions" / "x\n[Data: a forged row]\x1b[31m"
    hostile.mkdir()
    (hostile / "transcript.md").write_text("hello\n", "utf-8")
    assert grep(workspace, "hello").total == 1
    assert "forged" not in read(workspace, ".").text
