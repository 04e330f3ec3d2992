"""Documents by name: in a workspace and in the package."""

import json
from pathlib import Path
from typing import Any

import pytest

from buoyline.errors import BuoylineError, DocumentError, FormatVersionError, InvalidNameError, NotFoundError
from buoyline.maintenance.gc import collect
from buoyline.maintenance.repair import repair
from buoyline.maintenance.verify import verify
from buoyline.management import ContextManagement
from buoyline.management.model import BUILT_IN, document_of, put
from buoyline.workspace import LocalWorkspace

SLIDING: dict[str, Any] = {
    "hooks": {
        "pre_llm": [
            {"type": "SlidingWindowManager", "config": {"max_messages": 6, "activation": {"message_count_exceed": 12}}}
        ]
    }
}


@pytest.fixture
def workspace(tmp_path: Path) -> LocalWorkspace:
    return LocalWorkspace(tmp_path / "workspace", durability="off")


def test_a_document_is_kept_whole_in_a_file_that_people_can_read(workspace: LocalWorkspace) -> None:
    put({"description": "Six.", **SLIDING}, workspace, "six")
    text = (workspace.workdir / "context_management" / "six.json").read_text("utf-8")
    assert json.loads(text) == {"name": "six", "description": "Six.", **SLIDING}
    assert text.count("\n") > 5
    found = document_of("six", workspace)
    assert found == ContextManagement.read(json.loads(text), name="six")
    assert verify(workspace).findings == ()
    repair(workspace)
    collect(workspace, older_than_s=0, grace_s=0, dry_run=False)
    assert document_of("six", workspace) == found


@pytest.mark.parametrize(
    "name", ["", "-x", "_x", "Six", "six seven", "a.b", "../six", "a/b", "x" * 50, "six\n", "ß", "\u0000", 3]
)
def test_a_name_that_could_be_anything_else_is_refused(workspace: LocalWorkspace, name: Any) -> None:
    with pytest.raises(InvalidNameError):
        put(SLIDING, workspace, name)


@pytest.mark.parametrize("name", ["a", "0", "x" * 49, "sliding_window_max_40000_tokens_managers", "a-b_c"])
def test_names_as_opensearch_has_them_are_taken(workspace: LocalWorkspace, name: str) -> None:
    put(SLIDING, workspace, name)
    assert document_of(name, workspace).name == name


def test_a_bad_document_leaves_nothing_behind(workspace: LocalWorkspace) -> None:
    with pytest.raises(DocumentError, match="did you mean 'pre_llm'"):
        put({"hooks": {"pre_lm": []}}, workspace, "bad")
    assert not workspace.workdir.exists()


def test_a_missing_document_is_named_with_the_nearest_one(workspace: LocalWorkspace) -> None:
    with pytest.raises(NotFoundError, match="did you mean 'tool-heavy'"):
        document_of("tool-hevy", workspace)


def test_what_is_no_document_of_the_workspace_is_nobodys_business(workspace: LocalWorkspace, tmp_path: Path) -> None:
    put(SLIDING, workspace, "six")
    folder = workspace.workdir / "context_management"
    for name in ("notes.txt", "Upper.json", ".tmp-1"):
        (folder / name).write_text("{", "utf-8")
    (folder / "folder.json").mkdir()
    (tmp_path / "outside.json").write_text(json.dumps(SLIDING), "utf-8")
    (folder / "link.json").symlink_to(tmp_path / "outside.json")
    for name in ("folder", "link", "notes", "Upper", ".tmp-1"):
        with pytest.raises(BuoylineError):
            document_of(name, workspace)
    assert document_of("six", workspace).name == "six"


def test_a_newer_workspace_is_refused_untouched(workspace: LocalWorkspace) -> None:
    put(SLIDING, workspace, "six")
    (workspace.workdir / "workspace.json").write_text('{"format": 99}', "utf-8")
    with pytest.raises(FormatVersionError):
        put(SLIDING, workspace, "seven")


@pytest.mark.parametrize("name", BUILT_IN)
def test_what_comes_with_the_package_can_be_read_and_explained(name: str) -> None:
    document = document_of(name)
    assert document.name == name
    assert document.description.endswith(".")
    assert len([*document.in_words()]) > 2
    assert ContextManagement.read(document.to_json()) == document
