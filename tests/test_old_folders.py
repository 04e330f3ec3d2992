"""A folder that an older version wrote opens, verifies, resumes and is written on: tests/data has one of 719dc1b.

It holds a conversation that was made up for it: a window with stubs and a summary, results whose ids repeat, are empty
or cannot be names, a view, and a second session.
"""

import base64
import json
from pathlib import Path

import pytest

from buoyline import ContextWindow
from buoyline.maintenance.repair import repair
from buoyline.maintenance.verify import verify
from buoyline.messages import Text, ToolResult
from buoyline.workspace import LocalWorkspace

SESSION = "Harbour-Run.1"
COUNTED = "\n".join(f"pier {{pier}}: buoy {n} is {'green' if n % 2 else 'red'}" for n in range(40))
NAMES = {
    ("toolu_01AbCd", COUNTED.replace("{pier}", "0")): "tool_result-toolu_01AbCd~finlg3xv.txt",
    ("toolu_01AbCd", COUNTED.replace("{pier}", "2")): "tool_result-toolu_01AbCd~finlg3xv~dlcrbtzthhhmzcpo.txt",
    ("call_b", COUNTED.replace("{pier}", "1")): "tool_result-call_b.txt",
    ("", "one"): "tool_result-id~4oymiquy7qobjgx36tejs35zeqt24qpe.txt",
    ("", "two"): "tool_result-id~4oymiquy7qobjgx36tejs35zeqt24qpe~h7cmz7tulbyofqgz.txt",
    ("read_file:31", "three"): "tool_result-read-file-31~jlktohg6g26pg3w7usp3gueryjdhhpqv.txt",
    ("Wide", "x" * 1500): "tool_result-Wide~cryxbz4t.txt",
}


@pytest.fixture
def workspace(tmp_path: Path) -> LocalWorkspace:
    files = json.loads((Path(__file__).parent / "data/folder_of_719dc1b.json").read_text(encoding="utf-8"))
    for name, content in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else base64.b64decode(content["base64"]))
        path.chmod(0o600)
    for directory in (tmp_path, *(path for path in tmp_path.rglob("*") if path.is_dir())):
        directory.chmod(0o700)
    return LocalWorkspace(tmp_path)


def test_it_verifies(workspace: LocalWorkspace) -> None:
    assert not [found for found in verify(workspace).findings if found.severity != "note"]
    assert [found.kind for found in verify(workspace, sessions=["plain"]).findings] == []
    assert workspace.session_ids() == [SESSION, "plain"]


def test_repair_finds_nothing_to_do(workspace: LocalWorkspace) -> None:
    assert repair(workspace).actions == ()


async def test_each_result_is_found_under_its_old_name_and_not_stored_twice(workspace: LocalWorkspace) -> None:
    before = sorted(path.name for path in workspace.directory_of(SESSION).iterdir())
    for (call_id, text), name in NAMES.items():
        stored = await workspace.store_result(SESSION, ToolResult(call_id, "count", (Text(text),)))
        assert stored.name == name
        assert Path(stored.reference).read_text(encoding="utf-8") == text
    assert sorted(path.name for path in workspace.directory_of(SESSION).iterdir()) == before


async def test_new_results_go_on_beside_the_old_ones(workspace: LocalWorkspace) -> None:
    contents = [
        ("toolu_01AbCd", "other"),
        ("Toolu_01abcd", "a"),
        ("CALL_B", "b"),
        ("New", "c"),
        ("", "d"),
        ("read_file:31", "e"),
    ]
    names = [(await workspace.store_result(SESSION, ToolResult(i, "t", (Text(text),)))).name for i, text in contents]
    assert names[0].startswith("tool_result-toolu_01AbCd~finlg3xv~")
    assert names[1] == "tool_result-Toolu_01abcd.txt"
    assert names[2].startswith("tool_result-CALL_B~")
    assert names[3] == "tool_result-New.txt"
    assert names[4].startswith("tool_result-t-13~")
    assert names[5].startswith("tool_result-t-14~")
    assert not [found for found in verify(workspace).findings if found.severity != "note"]


async def test_its_window_resumes_and_goes_on(workspace: LocalWorkspace) -> None:
    window = await ContextWindow.resume(workspace, SESSION)
    assert window.messages[-1]["content"] == "How many are green?"
    await window.add({"role": "assistant", "content": "Sixty of them."})
    await window.prepare()
    await window.compress(force=True)
    again = await ContextWindow.resume(LocalWorkspace(workspace.workdir), SESSION)
    assert again.messages == window.messages
    assert workspace.directory_of(SESSION).name == f"{SESSION}~n6iohx6l"
    assert not [found for found in verify(workspace).findings if found.severity != "note"]
