"""Documents by name: in a workspace and in the package."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from buoyline.cli import main
from buoyline.errors import ConfigError, DocumentError, FormatVersionError, InvalidNameError, NotFoundError
from buoyline.maintenance.verify import verify
from buoyline.management import ContextManagement, Registry
from buoyline.management.opensearch import listed_in, to_opensearch
from buoyline.management.registry import BUILT_IN, built_in
from buoyline.management.settings import advice, explained
from buoyline.window.settings import document_of
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


def test_what_is_put_again_replaces_the_whole_hooks_and_all(registry: Registry) -> None:
    registry.put({"hooks": {**SLIDING["hooks"], "post_tool": [{"type": "OffloadManager"}]}}, "six")
    registry.put(SLIDING, "six")
    assert list(registry.get("six").hooks) == ["pre_llm"]


def test_a_name_that_is_taken_is_refused_on_request(registry: Registry) -> None:
    registry.put(SLIDING, "six", replace=False)
    with pytest.raises(DocumentError, match="'six' exists already"):
        registry.put({"hooks": {}}, "six", replace=False)
    assert registry.get("six").hooks


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
    with pytest.raises(NotFoundError, match="comes with the package"):
        registry.delete("tool-heavy")
    with pytest.raises(NotFoundError):
        registry.delete("six")
    with pytest.raises(NotFoundError, match="give one to Registry"):
        Registry().put(SLIDING, "six")


def test_who_has_a_document_keeps_it_when_it_is_deleted(registry: Registry) -> None:
    registry.put(SLIDING, "six")
    held = registry.get("six")
    registry.delete("six")
    assert held.entries("pre_llm")
    with pytest.raises(NotFoundError):
        registry.get("six")


def test_a_document_of_the_workspace_counts_more_than_one_of_the_package(registry: Registry) -> None:
    registry.put(SLIDING, "chat")
    assert registry.get("chat").to_json() == {"name": "chat", **SLIDING}
    assert [one.is_built_in for one in registry.listed() if one.name == "chat"] == [False]
    registry.delete("chat")
    assert registry.get("chat") == built_in("chat")


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


def test_a_name_a_document_and_its_json_are_the_same_thing(registry: Registry) -> None:
    document = registry.put(SLIDING, "six")
    assert registry.resolve("six") == registry.resolve(document) == document
    assert registry.resolve(SLIDING) == document.named("")


@pytest.mark.parametrize("name", BUILT_IN)
def test_what_comes_with_the_package_can_be_read_explained_and_meant(name: str) -> None:
    document = built_in(name)
    assert document.name == name
    assert document.description.endswith(".")
    assert list(advice(document)) == []
    assert len(list(explained(document))) > 2
    assert ContextManagement.read(document.to_json()) == document


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ({"type": "SummarizationManager", "config": {"summarization_model_id": "<your-model>"}}, "placeholder"),
        ({"hooks": {"pre_compress": [{"type": "PinManager"}]}}, "never fires"),
        ({"hooks": {"pre_llm": [{"type": "SlidingWindowManager"}]}}, ""),
        (
            [{"type": "SlidingWindowManager", "config": {"max_messages": 6}}, {"type": "SummarizationManager"}],
            "let it run first",
        ),
        ({"type": "CompressionManager"}, "give it tokens_exceed_ratio"),
        ({"hooks": {"on_overflow": [{"type": "PinManager", "activation": {"on_overflow": False}}]}}, "never runs"),
        ({"hooks": {"post_tool": [{"type": "PinManager", "activation": {"on_overflow": True}}]}}, "never runs"),
    ],
)
def test_what_is_allowed_but_hardly_meant_is_pointed_out(raw: Any, words: str) -> None:
    found = list(advice(ContextManagement.read(raw)))
    assert (words in found[0][1]) if words else found == []


LISTING = {
    "total": 2,
    "context_management": [
        {"name": "six", **SLIDING},
        {"name": "cut", "hooks": {"post_tool": [{"type": "ToolsOutputTruncateManager"}]}},
    ],
}


@pytest.mark.parametrize(
    ("documents", "path"),
    [([SLIDING], "context_management[0].name"), ([{"name": "a"}, {"name": "a"}], "context_management[1].name")],
)
def test_documents_of_a_listing_are_told_apart_by_their_names(documents: list[Any], path: str) -> None:
    with pytest.raises(DocumentError) as raised:
        listed_in({"context_management": documents})
    assert [problem[0] for problem in raised.value.problems] == [path]


def test_a_listing_in_the_place_of_a_document_does_not_say_which_one_is_meant() -> None:
    with pytest.raises(DocumentError, match="which one is meant"):
        document_of(LISTING, None)


def test_a_file_may_hold_a_body_that_names_a_document(tmp_path: Path) -> None:
    file = tmp_path / "agent.json"
    file.write_text('{"name": "agent", "context_management_name": "chat"}', "utf-8")
    assert document_of(file, LocalWorkspace(tmp_path / "w")) == built_in("chat")


@pytest.mark.parametrize(
    ("kind", "config", "words"),
    [
        (
            "SlidingWindowManager",
            {"activation": {"rule_type": "always", "tokens_exceed": 9}},
            "rule_type 'always' changes nothing: tokens_exceed must be met all the same",
        ),
        (
            "SlidingWindowManager",
            {"max_messages": 50, "activation": {"message_count_exceed": 10}},
            "runs above 10 messages, but does nothing before there are more than 50",
        ),
        ("ToolsOutputTruncateManager", {"max_output_length": 100}, "cuts to fewer than 200 characters"),
    ],
)
def test_numbers_that_do_nothing_together_are_noted(kind: str, config: dict[str, Any], words: str) -> None:
    (note,) = advice(ContextManagement.read({"type": kind, "config": config}))
    assert words in note[1]


def test_putting_a_name_where_the_document_belongs_is_said_shortly(registry: Registry) -> None:
    with pytest.raises(ConfigError, match=r"put\(document, name\) takes the document first"):
        registry.put("six", SLIDING)  # type: ignore[arg-type]


def entry(kind: str, **config: Any) -> dict[str, Any]:
    return {"type": kind, "config": config}


@pytest.mark.parametrize(
    ("hook", "given", "words", "is_left_out"),
    [
        ("on_overflow", entry("SlidingWindowManager"), "never runs: OpenSearch has no hook 'on_overflow'", True),
        ("pre_llm", entry("OffloadManager"), "never runs: OpenSearch has no manager 'OffloadManager'", True),
        (
            "pre_llm",
            entry("SlidingWindowManager", activation={"tokens_exceed_ratio": 0.5}),
            "runs always: OpenSearch drops the rule tokens_exceed_ratio",
            True,
        ),
        (
            "post_memory",
            entry("SlidingWindowManager", activation={"message_count_exceed": 9, "every_model_calls": 2}),
            "runs whenever message_count_exceed is met: OpenSearch drops the rule every_model_calls",
            True,
        ),
        ("post_memory", entry("SlidingWindowManager", at_least=2), "OpenSearch has no such key", True),
        (
            "pre_llm",
            entry("ToolsOutputTruncateManager"),
            "does nothing: there is an output to truncate at POST_TOOL",
            False,
        ),
        ("post_tool", entry("SlidingWindowManager"), "does nothing: POST_TOOL sees neither the history", False),
        (
            "pre_llm",
            entry("SlidingWindowManager", activation={"message_count_exceed": 12}),
            "never runs: message_count_exceed",
            False,
        ),
        (
            "post_tool",
            entry("ToolsOutputTruncateManager", activation={"tokens_exceed": 150_000}),
            "hardly ever runs: tokens_exceed counts the system prompt and the question alone",
            False,
        ),
        (
            "pre_llm",
            entry("SummarizationManager", activation={"tokens_exceed": 200_000}),
            "runs later than here: tokens_exceed counts neither the history nor the tools",
            False,
        ),
    ],
)
def test_what_opensearch_runs_otherwise_is_said_and_what_does_harm_is_left_out(
    hook: str, given: dict[str, Any], words: str, *, is_left_out: bool
) -> None:
    spelled, (found,) = to_opensearch(ContextManagement.read({"hooks": {hook: [given]}}))
    assert words in found.reason
    assert found.is_left_out is is_left_out
    assert bool(spelled["hooks"]) is not is_left_out


def test_a_second_entry_of_one_type_is_left_out_unless_it_says_the_same() -> None:
    """In OpenSearch both run with the settings of the first, at whichever hook."""
    first, second = entry("SlidingWindowManager", max_messages=6), entry("SlidingWindowManager", max_messages=2)
    same, _ = to_opensearch(ContextManagement.read({"hooks": {"pre_llm": [first], "post_memory": [first]}}))
    assert same["hooks"] == {"POST_MEMORY": [first], "PRE_LLM": [first]}
    other, (found,) = to_opensearch(ContextManagement.read({"hooks": {"pre_llm": [first, second]}}))
    assert other["hooks"] == {"PRE_LLM": [first]}
    assert found.reason.startswith("runs with the settings and rules of the first SlidingWindowManager")
