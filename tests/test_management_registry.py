"""Documents by name: in a workspace and in the package."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from buoyline.cli import main
from buoyline.errors import DocumentError, FormatVersionError, InvalidNameError, NotFoundError
from buoyline.maintenance.verify import verify
from buoyline.management import ContextManagement, Registry
from buoyline.management.registry import BUILT_IN, built_in
from buoyline.management.settings import explained
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


@pytest.fixture
def registry(workspace: LocalWorkspace) -> Registry:
    return Registry(workspace)


def test_a_document_is_kept_whole_in_a_file_that_people_can_read(workspace: LocalWorkspace, registry: Registry) -> None:
    kept = registry.put({"description": "Six.", **SLIDING}, "six")
    path = workspace.workdir / "context_management" / "six.json"

    assert registry.get("six") == kept
    assert json.loads(path.read_text("utf-8")) == {"name": "six", "description": "Six.", **SLIDING}
    assert path.read_text("utf-8").count("\n") > 5
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert verify(workspace).is_sound
    assert list(verify(workspace).findings) == []


@pytest.mark.parametrize(
    "name",
    ["", "-x", "_x", "Six", "six seven", "a.b", "../six", "a/b", "x" * 50, "six\n", "ß", "\u0000", 3],
)
def test_a_name_that_could_be_anything_else_is_refused(registry: Registry, name: Any) -> None:
    with pytest.raises(InvalidNameError):
        registry.put(ContextManagement(), name or "-")
    with pytest.raises(InvalidNameError):
        registry.get(name)


@pytest.mark.parametrize("name", ["a", "0", "x" * 49, "sliding_window_max_40000_tokens_managers", "a-b_c"])
def test_names_as_opensearch_has_them_are_taken(registry: Registry, name: str) -> None:
    registry.put(SLIDING, name)
    assert name in registry.names()


def test_a_bad_document_leaves_nothing_behind(workspace: LocalWorkspace, registry: Registry) -> None:
    with pytest.raises(DocumentError, match="did you mean 'pre_llm'"):
        registry.put({"hooks": {"pre_lm": []}}, "bad")
    assert not workspace.workdir.exists()


def test_a_missing_document_is_named_with_the_nearest_one(registry: Registry) -> None:
    with pytest.raises(NotFoundError, match="did you mean 'tool-heavy'"):
        registry.get("tool-hevy")
    with pytest.raises(NotFoundError, match="give one to Registry"):
        Registry().put(SLIDING, "six")


def test_files_that_are_no_documents_are_nobodys_business(workspace: LocalWorkspace, registry: Registry) -> None:
    registry.put(SLIDING, "six")
    folder = workspace.workdir / "context_management"
    for name in ("notes.txt", "Upper.json", ".tmp-1"):
        (folder / name).write_text("{", "utf-8")
    assert set(registry.names()) == {"six", *BUILT_IN}
    assert verify(workspace).is_sound


@pytest.mark.parametrize("content", [b"{", b"\xff", b"[]", b'{"hooks": {"pre_lm": []}}'])
def test_a_document_that_was_spoilt_by_hand_says_so_and_hides_no_other(
    workspace: LocalWorkspace, registry: Registry, content: bytes
) -> None:
    registry.put(SLIDING, "six")
    (workspace.workdir / "context_management" / "bad.json").write_bytes(content)
    if content != b"[]":
        with pytest.raises(DocumentError) as caught:
            registry.get("bad")
        assert caught.value.source.endswith("context_management/bad.json")
    problems = {one.name: bool(one.problem) for one in registry.listed()}
    assert problems["bad"] is (content != b"[]")
    assert problems["six"] is False


def test_repair_and_gc_leave_documents_alone(workspace: LocalWorkspace, registry: Registry) -> None:
    registry.put(SLIDING, "six")
    before = (workspace.workdir / "context_management" / "six.json").read_bytes()
    for command in (["repair"], ["gc", "--grace", "0s", "--yes"]):
        assert CliRunner().invoke(main, [*command, "--workdir", str(workspace.workdir)]).exit_code == 0
    assert (workspace.workdir / "context_management" / "six.json").read_bytes() == before


def test_a_link_is_not_followed(workspace: LocalWorkspace, registry: Registry, tmp_path: Path) -> None:
    registry.put(SLIDING, "six")
    (tmp_path / "outside.json").write_text(json.dumps(SLIDING), "utf-8")
    (workspace.workdir / "context_management" / "link.json").symlink_to(tmp_path / "outside.json")
    with pytest.raises(NotFoundError):
        registry.get("link")


def test_a_link_and_a_directory_named_like_documents_hide_no_other(
    workspace: LocalWorkspace, registry: Registry, tmp_path: Path
) -> None:
    registry.put(SLIDING, "six")
    (workspace.workdir / "context_management" / "link.json").symlink_to(tmp_path)
    (workspace.workdir / "context_management" / "folder.json").mkdir()
    assert [one.name for one in registry.listed() if not one.is_built_in] == ["six"]


def test_half_a_surrogate_pair_in_a_description_is_read_again(registry: Registry) -> None:
    registry.put({**SLIDING, "description": "half \ud800"}, "odd")
    assert registry.get("odd").description == "half \ud800"


def test_a_newer_workspace_is_refused_untouched(workspace: LocalWorkspace, registry: Registry) -> None:
    registry.put(SLIDING, "six")
    (workspace.workdir / "workspace.json").write_text('{"format": 99}', "utf-8")
    with pytest.raises(FormatVersionError):
        registry.put(SLIDING, "seven")
    with pytest.raises(FormatVersionError):
        registry.names()


@pytest.mark.parametrize("name", BUILT_IN)
def test_what_comes_with_the_package_can_be_read_and_explained(name: str) -> None:
    document = built_in(name)
    assert document.name == name
    assert document.description.endswith(".")
    assert len(list(explained(document))) > 2
    assert ContextManagement.read(document.to_json()) == document


LISTING = {
    "total": 2,
    "context_management": [
        {"name": "six", **SLIDING},
        {"name": "cut", "hooks": {"post_tool": [{"type": "ToolsOutputTruncateManager"}]}},
    ],
}


def entry(kind: str, **config: Any) -> dict[str, Any]:
    return {"type": kind, "config": config}
