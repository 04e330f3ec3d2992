"""One way to name a thing in all lookups: a path, a file's name, a call's id, a printed citation."""

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buoyline.errors import BuoylineError, InvalidNameError, NotFoundError, StorageError
from buoyline.lookups import grep, read, search
from buoyline.workspace import LocalWorkspace

ROWS = [{"id": n, "state": "ok"} for n in range(3)]
IDS = {
    "s1": ["toolu_01RnJq", "call_a", "call_b", "../x", "Read file:31", "Ünïcode id", "twice", "con"],
    "s2": ["call_s2", "other_one"],
}


def _text(session: str, call_id: str) -> str:
    return "".join(f"{json.dumps({'id': n, 'of': session, 'call': call_id})}\n" for n in range(3))


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalWorkspace]:
    """Two sessions with results under ids of many forms."""
    made = LocalWorkspace(tmp_path_factory.mktemp("names") / "workspace", durability="off")

    async def fill() -> None:
        for session, ids in IDS.items():
            await made.archive(session, [{"role": "user", "content": f"question {n} of {session}"} for n in range(9)])
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


def _by_read(workspace: LocalWorkspace, name: str, **options: Any) -> str:
    return "\n".join(line.content for line in read(workspace, name, **options).lines)


def _by_grep(workspace: LocalWorkspace, name: str, **options: Any) -> str:
    return "\n".join(line.content for line in grep(workspace, ".", name, **options).lines)


def _by_search(workspace: LocalWorkspace, name: str, **options: Any) -> str:
    return "\n".join(line.content for line in search(workspace, "call id", name, **options).lines)


Lookup = Callable[..., str]
LOOKUPS: list[Lookup] = [_by_read, _by_grep, _by_search]


def _spellings(workspace: LocalWorkspace, session: str, call_id: str) -> list[str]:
    records = workspace.session(session).index().results
    (file,) = [name for name, record in records.items() if record["call_id"] == call_id]
    relative = f"sessions/{session}/{file}"
    paths = [relative, f"./{relative}", workspace.session(session).path(file), file, call_id]
    plain = [f"tool_result-{call_id}.txt"] if "/" not in call_id else []
    return [each for name in [*paths, *plain] for each in (name, f"[{name}]", f"[{name}", f" {name}\n")]


@pytest.mark.parametrize("lookup", LOOKUPS)
def test_a_result_is_found_by_every_name_that_it_has(workspace: LocalWorkspace, lookup: Lookup) -> None:
    for call_id in ("toolu_01RnJq", "../x", "Read file:31", "Ünïcode id", "con"):
        expected = _text("s1", call_id).rstrip("\n")
        names = _spellings(workspace, "s1", call_id)
        for name in names:
            for options in ({}, {"session": "s1"}):
                found = lookup(workspace, name, **options)
                assert found == expected, (name, options)


def test_a_citation_as_printed_names_its_lines(workspace: LocalWorkspace) -> None:
    lines = [line.number for line in read(workspace, "transcript.md:3-4,6", session="s1").lines]
    assert lines == [3, 4, 6]
    for spelled in ("[transcript.md:3-4,6]", "[transcript.md:3-4,6", "transcript.md:3-4,6]", " [transcript.md:3-4,6] "):
        assert [line.number for line in read(workspace, spelled, session="s1").lines] == lines
        assert {line.number for line in grep(workspace, ".*", spelled, session="s1").lines} == set(lines)
    for spelled in ("toolu_01RnJq:2", "[tool_result-toolu_01RnJq.txt:2", "[toolu_01RnJq:2]"):
        assert _by_read(workspace, spelled) == json.dumps({"id": 1, "of": "s1", "call": "toolu_01RnJq"})


@pytest.mark.parametrize("lookup", LOOKUPS)
def test_a_name_of_several_results_is_an_error_that_lists_them(workspace: LocalWorkspace, lookup: Lookup) -> None:
    with pytest.raises(NotFoundError) as caught:
        lookup(workspace, "twice", session="s1")
    assert str(caught.value).startswith("no single file 'twice'; it may mean ")
    assert all(f"sessions/s1/tool_result-{file}" in str(caught.value) for file in ("twice", "twice~"))


def test_a_file_of_two_sessions_is_not_guessed(workspace: LocalWorkspace) -> None:
    with pytest.raises(NotFoundError, match=r"may mean sessions/s1/transcript.md, sessions/s2/transcript.md; give"):
        read(workspace, "transcript.md:1")


@pytest.mark.parametrize("lookup", LOOKUPS)
@pytest.mark.parametrize("name", ["call_s2", "tool_result-call_s2.txt", "[tool_result-call_s2.txt:1]", "other_one"])
def test_no_name_leads_to_another_session(workspace: LocalWorkspace, lookup: Lookup, name: str) -> None:
    with pytest.raises(NotFoundError) as caught:
        lookup(workspace, name, session="s1")
    assert "s2" not in str(caught.value).replace(name, "")


@pytest.mark.parametrize("lookup", LOOKUPS)
@pytest.mark.parametrize("lines", ["", ":1", ":1-2", ":1,3"])
@pytest.mark.parametrize("file", ["transcript.md", "tool_result-call_s2.txt"])
def test_no_citation_leads_to_another_session(workspace: LocalWorkspace, lookup: Lookup, file: str, lines: str) -> None:
    assert (workspace.workdir / "sessions" / "s2" / file).is_file()
    relative = f"sessions/s2/{file}{lines}"
    for spelled in (relative, f"[{relative}]", f"./{relative}", str(workspace.workdir / relative)):
        with pytest.raises(NotFoundError):
            lookup(workspace, spelled, session="s1")


@pytest.mark.parametrize(
    "name",
    ["../y", "../../etc/passwd", "/etc/passwd", "[/etc/passwd]", "sessions/../../x", ".env", "[.locks/00.lock]"],
)
def test_a_name_that_leads_out_and_is_no_id_is_refused(workspace: LocalWorkspace, name: str) -> None:
    for lookup in LOOKUPS:
        for options in ({}, {"session": "s1"}):
            with pytest.raises(InvalidNameError):
                lookup(workspace, name, **options)


@pytest.mark.parametrize(
    "record", ["../../own.txt", "/etc/passwd", "journal.jsonl", "link.txt", "tool_result-link.txt"]
)
def test_a_journal_that_an_agent_has_forged_leads_to_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record: str
) -> None:
    workspace = LocalWorkspace(tmp_path / "w", durability="off")
    asyncio.run(workspace.offload_tool_result("s1", {"role": "tool", "tool_call_id": "c1", "content": "of the tool\n"}))
    (tmp_path / "own.txt").write_text("secret\n", "utf-8")
    for name in ("link.txt", "tool_result-link.txt"):
        (workspace.workdir / "sessions" / "s1" / name).symlink_to(tmp_path / "own.txt")
    results = dict(workspace.session("s1").index().results)
    results[record] = {**results.pop("tool_result-c1.txt"), "path": record, "call_id": "forged_id"}
    monkeypatch.setattr("buoyline.workspace.session.Session.index", lambda _: SimpleNamespace(results=results))
    with pytest.raises((NotFoundError, StorageError)):
        read(workspace, "forged_id", session="s1")


@given(
    st.text(max_size=12) | st.sampled_from([f"{a}{b}" for a in ("", "[", "../") for b in ("call", "x:1", "s2/", "~")])
)
def test_no_name_ends_in_another_error_or_leaves_the_session(workspace: LocalWorkspace, name: str) -> None:
    try:
        answer = read(workspace, name, session="s1")
    except BuoylineError:
        return
    assert answer.path.startswith("sessions/s1/")


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("toolu_02RnJq", "near are toolu_01RnJq"),
        ("TRANSCRIPT.MD", "near are transcript.md"),
        ("transcirpt.md:3-4", "near are transcript.md"),
        ("RnJ", "near are "),
    ],
)
def test_an_error_says_where_was_looked_and_what_is_near(workspace: LocalWorkspace, name: str, near: str) -> None:
    with pytest.raises(NotFoundError) as caught:
        read(workspace, name, session="s1")
    assert f"looked in session 's1'; {near}" in str(caught.value)
    assert len(caught.value.hint) < 300


@pytest.mark.parametrize("name", ["tool_result-mine.txt", "own.txt", "transcript.md", "tool_result-c1.txt"])
def test_a_hard_link_to_a_file_elsewhere_is_not_read(tmp_path: Path, name: str) -> None:
    workspace = LocalWorkspace(tmp_path / "w", durability="off")
    asyncio.run(workspace.archive("s1", [{"role": "user", "content": "hello"}]))
    asyncio.run(workspace.offload_tool_result("s1", {"role": "tool", "tool_call_id": "c1", "content": "of the tool\n"}))
    (tmp_path / "elsewhere.txt").write_text("secret\n", "utf-8")
    place = workspace.workdir / "sessions" / "s1" / name
    place.unlink(missing_ok=True)
    place.hardlink_to(tmp_path / "elsewhere.txt")
    for lookup in LOOKUPS:
        with pytest.raises((StorageError, NotFoundError)):
            lookup(workspace, name, session="s1")
    assert not grep(workspace, "secret").lines
    assert not grep(workspace, "secret", "sessions").lines
    assert not grep(workspace, "secret", "tool_result-*", session="s1").lines


def test_the_results_of_a_workspace_that_was_copied_by_links_are_read(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path / "w", durability="off")
    path = asyncio.run(workspace.offload_tool_result("s1", {"role": "tool", "tool_call_id": "c1", "content": "said\n"}))
    (tmp_path / "copy.txt").hardlink_to(path)
    assert read(workspace, "c1").lines[0].content == "said"
    assert grep(workspace, "said").total == 1
    own = workspace.workdir / "own.txt"
    own.write_text("being published", "utf-8")
    (workspace.workdir / ".tmp-0123").hardlink_to(own)
    assert read(workspace, "own.txt").lines
