"""Which file an id gets: its own, on every file system, whoever else is at work."""

import asyncio
import re
import tempfile
import unicodedata
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from thirds import examples

from buoyline.maintenance.verify import verify
from buoyline.messages import Text, ToolResult
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


def said(text: str, call_id: str, tool: str = "") -> ToolResult:
    return ToolResult(call_id, tool, (Text(text),))


def assert_no_two_are_one(directory: Path) -> None:
    names = [path.name for path in directory.iterdir()]
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        assert len({unicodedata.normalize(form, name).casefold() for name in names}) == len(names)


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


@given(
    st.lists(st.tuples(ids, st.sampled_from(["x", "y"]), st.sampled_from(["", "Tool", "tool"])), max_size=12), st.data()
)
@example([("Ab", "x", ""), ("ab", "x", ""), ("AB", "y", ""), ("ab", "y", "")], None)
@settings(examples(10, 30), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
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
