"""Which file an id gets: its own, on every file system, whoever else is at work."""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest
from folding_files import fold_names
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from thirds import examples

from buoyline.maintenance.verify import verify
from buoyline.messages import Text, ToolResult
from buoyline.offloader.protocol import StoredResult
from buoyline.workspace import LocalWorkspace, MemoryWorkspace, layout

PLAIN = "toolu_01RnAb"
IDS = [
    "Call_A",
    "call_a",
    "CALL_A",
    "a.b",
    "A.B",
    "",
    " ",
    "x:1",
    "X:1",
    "k",
    "\u212a",
    "K",
    "s",
    "\u017f",
    "a.view",
    "a.VIEW",
]
IDS += ["\xe9", "e\u0301", "con", "CON", "a" * 64, "A" * 64, "a" * 65, "a", "A", "a/b", "A/b"]

ids = st.sampled_from(IDS) | st.text(st.sampled_from("abAB1.-_~:\u212a\xe9"), max_size=3)


@pytest.fixture(params=["as it is", "ignores case"])
def file_system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "ignores case":
        fold_names(monkeypatch)
    return str(request.param)


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name) / "w"


def said(text: str, call_id: str, tool: str = "") -> ToolResult:
    return ToolResult(call_id, tool, (Text(text),))


def assert_no_two_are_one(directory: Path) -> None:
    names = [path.name for path in directory.iterdir()]
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        assert len({unicodedata.normalize(form, name).casefold() for name in names}) == len(names)


async def test_an_id_that_is_safe_is_the_name(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path)
    stored = await workspace.store_result("Session-1.A", said("x", PLAIN))
    assert stored.reference == str(tmp_path / f"sessions/Session-1.A/tool_result-{PLAIN}.txt")


async def test_results_without_ids_are_named_by_tool_and_number(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path)
    stored = [
        await workspace.store_result("s", said(f"{n}", "", tool)) for n, tool in enumerate(["web_search", "Read x"])
    ]
    stored.append(await workspace.store_result("s", said("2", "read_file:31")))
    patterns = [r"web_search-1", "Read-x-2", "read_file-31-3"]
    for result, pattern in zip(stored, patterns, strict=True):
        assert re.fullmatch(rf"tool_result-{pattern}~[a-z2-7]{{16}}\.txt", result.name)


@pytest.mark.parametrize("kind", ["disk", "memory"])
@pytest.mark.parametrize("call_id", [PLAIN, "", "x:1", "a.VIEW"])
async def test_the_same_id_and_content_is_the_same_file_and_other_content_is_another(
    tmp_path: Path, kind: str, call_id: str
) -> None:
    workspace = LocalWorkspace(tmp_path) if kind == "disk" else MemoryWorkspace()
    contents = ["one", "two", "three", "two", "one", "three"]
    names = [(await workspace.store_result("s", said(content, call_id, "t"))).name for content in contents]
    assert names[3:] == [names[1], names[0], names[2]]
    assert len(set(names)) == 3
    other = [(await workspace.store_result("s", said(content, "other", "t"))).name for content in contents[:3]]
    assert not set(names) & set(other)


@pytest.mark.parametrize("call_ids", [("Ab", "aB", "AB", "ab"), ("ab", "Ab")])
async def test_the_second_of_two_ids_that_differ_in_case_gets_a_hash(tmp_path: Path, call_ids: tuple[str, ...]) -> None:
    workspaces = LocalWorkspace(tmp_path), MemoryWorkspace()
    names = [[(await workspace.store_result("s", said(c, c))).name for c in call_ids] for workspace in workspaces]
    assert names[0] == names[1]
    assert names[0][0] == f"tool_result-{call_ids[0]}.txt"
    assert names[0][1:] == [layout.result_names(call_id)[1] for call_id in call_ids[1:]]


@given(
    st.lists(st.tuples(ids, st.sampled_from(["x", "y"]), st.sampled_from(["", "Tool", "tool"])), max_size=12), st.data()
)
@example([("Ab", "x", ""), ("ab", "x", ""), ("AB", "y", ""), ("ab", "y", "")], None)
@settings(examples(10, 30), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@pytest.mark.usefixtures("file_system")
def test_two_ids_never_share_a_file(calls: list[tuple[str, str, str]], data: st.DataObject | None) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        workspaces = [LocalWorkspace(root / "w", durability="off") for _ in range(2)]
        workspaces[0].tree.make_root()

        async def store() -> dict[str, tuple[str, str]]:
            owners: dict[str, tuple[str, str]] = {}
            for call_id, text, tool in calls:
                which = 0 if data is None else data.draw(st.integers(0, 1))
                stored = await workspaces[which].store_result("s", said(text, call_id, tool))
                assert owners.setdefault(layout.folded(stored.name), (call_id, text)) == (call_id, text)
                assert Path(stored.reference).read_text(encoding="utf-8") == text
                assert await workspaces[1 - which].load_result("s", stored) is not None
            for workspace in workspaces:
                await workspace.close()
            return owners

        owners = asyncio.run(store())
        assert len(owners) == len({(call_id, text) for call_id, text, _ in calls})
        if calls:
            assert_no_two_are_one(root / "w/sessions/s")
            assert verify(LocalWorkspace(root / "w")).findings == ()


@given(st.lists(ids.filter(bool), min_size=1, max_size=8), st.data())
@settings(examples(10, 30), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@pytest.mark.usefixtures("file_system")
def test_two_sessions_never_share_a_directory(session_ids: list[str], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        workspaces = [LocalWorkspace(Path(name) / "w", durability="off") for _ in range(2)]

        async def add() -> None:
            for n, session_id in enumerate(session_ids):
                await workspaces[data.draw(st.integers(0, 1))].archive(
                    session_id, [{"role": "user", "content": f"{n}"}]
                )
            for workspace in (*workspaces, LocalWorkspace(Path(name) / "w")):
                for session_id in session_ids:
                    index = workspace.session(session_id).index()
                    found = await workspace.load_messages(session_id, 0, index.messages)
                    expected = [f"{n}" for n, other in enumerate(session_ids) if other == session_id]
                    assert [message["content"] for _, message in found] == expected
                await workspace.close()

        asyncio.run(add())
        assert_no_two_are_one(Path(name) / "w/sessions")
        workspace = LocalWorkspace(Path(name) / "w")
        assert sorted(workspace.session_ids()) == sorted(set(session_ids))
        assert verify(workspace).findings == ()


async def test_a_file_that_a_killed_writer_has_left_keeps_its_name(tmp_path: Path, file_system: str) -> None:
    """It was published, and its record was not written; then another id comes, which is equal up to case."""
    earlier = LocalWorkspace(tmp_path / "w", durability="off")
    await earlier.store_result("s", said("before", "first"))
    path = earlier.directory_of("s") / "tool_result-Ab.txt"
    path.write_text("of Ab", encoding="utf-8")
    path.chmod(0o600)
    # Whoever has listed the folder before sees the file if the file system takes it for the one asked for.
    for workspace in ([earlier] if file_system == "ignores case" else []) + [LocalWorkspace(tmp_path / "w")]:
        assert (await workspace.store_result("s", said("of Ab", "ab"))).name == layout.result_names("ab")[1]
    assert (await earlier.store_result("s", said("of Ab", "Ab"))).name == "tool_result-Ab.txt"
    assert verify(earlier).findings == ()


async def test_a_numbered_file_that_a_killed_writer_has_left_is_found_again(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path)
    stored = await workspace.store_result("s", said("x", "", "tool"))
    journal = workspace.directory_of("s") / "journal.jsonl"
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:-1]))
    assert await LocalWorkspace(tmp_path).store_result("s", said("x", "", "tool")) == stored


async def test_a_session_that_is_removed_and_comes_again_may_get_another_directory(tmp_path: Path) -> None:
    ours, others = LocalWorkspace(tmp_path), LocalWorkspace(tmp_path)
    message = {"role": "user", "content": "x"}
    await ours.archive("Ab", [message])
    shutil.rmtree(ours.directory_of("Ab"))
    await others.archive("ab", [message])
    assert not ours._session("Ab").exists()
    await ours.archive("Ab", [message])
    assert [ours.directory_of(name).name for name in ("ab", "Ab")] == ["ab", layout.session_directories("Ab")[1][9:]]
    assert others.session("Ab").index().messages == 1
    assert verify(ours).findings == ()


RACE = """
import asyncio, json, sys
from pathlib import Path
from buoyline.messages import Text, ToolResult
from buoyline.workspace import LocalWorkspace

async def main(root, first, second):
    workspace = LocalWorkspace(root)
    sys.stdin.readline()
    names = []
    for n in range(30):
        stored = await workspace.store_result(f"{first}{n}", ToolResult("c", "", (Text(first),)))
        names.append([f"{first}{n}", stored.reference])
        stored = await workspace.store_result("all", ToolResult(f"{second}{n}", "", (Text(second),)))
        names.append([f"{second}{n}", stored.reference])
    print(json.dumps(names))

asyncio.run(main(*sys.argv[1:]))
"""


def test_processes_that_create_ids_which_differ_in_case_at_once_do_not_share_a_name(tmp_path: Path) -> None:
    pipe = subprocess.PIPE
    ids = ["ab", "aB", "Ab"]
    commands = [[sys.executable, "-c", RACE, str(tmp_path / "w"), name, f"c{name}"] for name in ids]
    LocalWorkspace(tmp_path / "w").tree.make_root()
    processes = [subprocess.Popen(command, stdin=pipe, stdout=pipe, encoding="utf-8") for command in commands]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    found = [path for process in processes for path in json.loads(process.communicate(timeout=300)[0])]
    assert len({layout.folded(path) for _, path in found}) == len(found) == 180
    assert_no_two_are_one(tmp_path / "w/sessions")
    assert_no_two_are_one(tmp_path / "w/sessions/all")
    assert verify(LocalWorkspace(tmp_path / "w")).findings == ()
    plain = [path for name, path in found if f"-{name}.txt" in path or f"/{name}/" in path]
    assert len(plain) == 60  # of three ids that are equal up to case, one is the name


def test_a_result_is_named_without_listing_the_folder_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = LocalWorkspace(tmp_path, durability="off")

    async def store(n: int) -> StoredResult:
        return await workspace.store_result("s", said("x", f"Call-{n}"))

    asyncio.run(store(0))
    listings = Mock(side_effect=os.listdir)
    monkeypatch.setattr(os, "listdir", listings)
    for n in range(1, 20):
        asyncio.run(store(n))
    assert listings.call_count <= 1


async def test_the_names_of_sessions_are_not_listed_for_each_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = LocalWorkspace(tmp_path, durability="off")
    listings = Mock(side_effect=os.listdir)
    monkeypatch.setattr(os, "listdir", listings)
    for n in range(20):
        await workspace.archive(f"s{n}", [{"role": "user", "content": "x"}])
    assert listings.call_count == 1


async def test_a_session_that_others_create_is_seen_though_the_time_of_the_directory_is_the_same(
    tmp_path: Path,
) -> None:
    ours, others = LocalWorkspace(tmp_path / "w", durability="off"), LocalWorkspace(tmp_path / "w", durability="off")
    message = {"role": "user", "content": "x"}
    await ours.archive("first", [message])
    status = (tmp_path / "w/sessions").stat()
    await others.archive("Ab", [message])
    os.utime(tmp_path / "w/sessions", ns=(status.st_atime_ns, status.st_mtime_ns))
    await ours.archive("ab", [message])
    assert_no_two_are_one(tmp_path / "w/sessions")
    assert verify(ours).findings == ()


async def test_a_session_gets_its_plain_name_again_after_others_have_removed_it(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path, durability="off")
    message = {"role": "user", "content": "x"}
    await workspace.archive("a", [message])
    status = (tmp_path / "sessions").stat()
    shutil.rmtree(tmp_path / "sessions/a")
    os.utime(tmp_path / "sessions", ns=(status.st_atime_ns, status.st_mtime_ns))
    await workspace.archive("a", [message])
    assert workspace.directory_of("a") == tmp_path / "sessions/a"
