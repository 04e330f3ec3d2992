"""Documents by name: in a workspace, in the package, and on the command line."""

import json
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

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


# The command line


def run(workdir: Path, *args: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, ["context", *args, "--workdir", str(workdir)], input=stdin)


def test_a_document_is_put_listed_shown_explained_and_deleted(tmp_path: Path) -> None:
    file = tmp_path / "six.json"
    file.write_text(json.dumps(SLIDING), "utf-8")
    assert run(tmp_path, "put", "six", str(file)).stdout == "stored six\n"
    assert json.loads(run(tmp_path, "get", "six").stdout) == {"name": "six", **SLIDING}
    listed = {one["name"]: one["is_built_in"] for one in json.loads(run(tmp_path, "list", "--json").stdout)}
    assert listed == {**dict.fromkeys(BUILT_IN, True), "six": False}
    assert "six                            workspace" in run(tmp_path, "list").stdout
    explained = run(tmp_path, "explain", "six").stdout
    assert "pre_llm, before each model call:" in explained
    assert "runs when there are more than 12 messages" in explained
    assert json.loads(run(tmp_path, "delete", "six", "--json").stdout)["status"] == "deleted"
    gone = run(tmp_path, "get", "six")
    assert (gone.exit_code, gone.stdout) == (1, "")
    assert gone.stderr.startswith("buoyline: error: no context management document 'six'; ")


def test_what_was_got_can_be_put_again(tmp_path: Path) -> None:
    shown = run(tmp_path, "get", "coding-agent").stdout
    assert run(tmp_path, "put", "mine", "-", stdin=shown).exit_code == 0
    assert Registry(LocalWorkspace(tmp_path)).get("mine").hooks == built_in("coding-agent").hooks


def test_looking_creates_nothing(tmp_path: Path) -> None:
    for args in (("list",), ("get", "chat"), ("check", "chat"), ("explain", "chat")):
        assert run(tmp_path / "w", *args).exit_code == 0
    assert not (tmp_path / "w").exists()


def test_check_names_every_problem_on_a_line_of_its_own_and_ends_with_status_1(tmp_path: Path) -> None:
    file = tmp_path / "bad.json"
    file.write_text('{"hooks": {"pre_lm": [], "post_tool": [{"type": "Slidingwindow"}]}}', "utf-8")
    result = run(tmp_path, "check", str(file))
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        f"{file}: hooks.pre_lm: 'pre_lm' is no hook; did you mean 'pre_llm'?",
        f"{file}: hooks.post_tool[0].type: 'Slidingwindow' is no manager; did you mean 'SlidingWindowManager'?",
    ]
    found = json.loads(run(tmp_path, "check", str(file), "--json").stdout)
    assert found["valid"] is False
    assert [problem["path"] for problem in found["problems"]] == ["hooks.pre_lm", "hooks.post_tool[0].type"]
    assert run(tmp_path, "put", "bad", str(file)).exit_code == 1
    assert not (tmp_path / "context_management").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"activation": {"message_count_exceed": 20}}', "runs when there are more than 20 messages"),
        ('{"activation": {"rule_type": "always"}}', "an activation rule: runs always"),
        ('{"type": "SlidingWindowManager"}', "a document with 1 manager; it can be acted on"),
        (
            '{"name": "agent", "llm": {"model_id": "m"}, "context_management_name": "chat"}',
            "a document with 4 managers",
        ),
        ('{"context_management": {"hooks": {}}}', "a document with 0 managers"),
    ],
)
def test_check_takes_fragments_and_bodies(tmp_path: Path, text: str, words: str) -> None:
    result = run(tmp_path, "check", "-", stdin=text)
    assert result.exit_code == 0
    assert words in result.stdout


LISTING = {
    "total": 2,
    "context_management": [
        {"name": "six", **SLIDING},
        {"name": "cut", "hooks": {"post_tool": [{"type": "ToolsOutputTruncateManager"}]}},
    ],
}


def test_of_opensearchs_listing_check_reads_each_document_and_put_keeps_the_one_that_is_named(tmp_path: Path) -> None:
    text = json.dumps(LISTING)
    assert run(tmp_path, "check", "-", stdin=text).stdout.splitlines() == [
        "-: six: a document with 1 manager; it can be acted on",
        "-: cut: a document with 1 manager; it can be acted on",
    ]
    assert run(tmp_path, "put", "six", "-", stdin=text).exit_code == 0
    assert Registry(LocalWorkspace(tmp_path)).get("six").hooks == ContextManagement.read(SLIDING).hooks
    missing = run(tmp_path, "put", "sixx", "-", stdin=text)
    assert (missing.exit_code, "did you mean 'six'?" in missing.stdout) == (1, True)


def test_check_names_the_document_of_a_listing_that_has_the_problem(tmp_path: Path) -> None:
    bad = {"context_management": [{"name": "six", **SLIDING}, {"name": "bad", "hooks": {"pre_lm": []}}]}
    result = run(tmp_path, "check", "-", stdin=json.dumps(bad))
    assert result.exit_code == 1
    assert result.stdout == "-: bad.hooks.pre_lm: 'pre_lm' is no hook; did you mean 'pre_llm'?\n"


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


def test_check_says_what_is_hardly_meant_and_ends_well(tmp_path: Path) -> None:
    result = run(tmp_path, "check", "-", stdin='{"type": "CompressionManager"}')
    assert result.exit_code == 0
    assert result.stdout.startswith("note: hooks.pre_llm[0]: runs before each call")
    notes = json.loads(run(tmp_path, "check", "-", "--json", stdin='{"type": "CompressionManager"}').stdout)["notes"]
    assert [note["path"] for note in notes] == ["hooks.pre_llm[0]"]


def test_yaml_and_toml_are_known_by_suffix_or_by_option(tmp_path: Path) -> None:
    pytest.importorskip("yaml", reason="PyYAML is the extra 'yaml'")
    file = tmp_path / "six.yaml"
    file.write_text("type: SlidingWindowManager\n", "utf-8")
    assert run(tmp_path, "put", "six", str(file)).exit_code == 0
    assert run(tmp_path, "put", "seven", "-", "--format", "toml", stdin='type = "SlidingWindowManager"').exit_code == 0
    assert run(tmp_path, "check", "-", stdin="type: x").exit_code == 1


def test_a_manager_of_ones_own_is_imported_where_it_is_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_managers.py").write_text(
        "class KeepAll:\n    '''Keeps everything.'''\n    def reduce(self, messages, *, error=None):\n"
        "        return False\n",
        "utf-8",
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    text = '{"type": "my_managers.KeepAll"}'
    assert "allow it with" in run(tmp_path, "check", "-", stdin=text).stdout
    body = json.dumps({"context_management": {"hooks": {"pre_llm": [json.loads(text)]}}})
    for given in (text, body):
        result = run(tmp_path, "explain", "-", "--allow", "my_managers.KeepAll", stdin=given)
        assert "runs my_managers.KeepAll (Keeps everything)" in result.stdout


@pytest.mark.parametrize(
    ("args", "status"),
    [
        (("get", "Not A Name"), 2),
        (("get", "nowhere"), 1),
        (("delete", "chat"), 1),
        (("put", "six", "/nowhere.json"), 2),
        (("check",), 2),
        (("frobnicate",), 2),
    ],
)
def test_statuses_are_1_for_what_is_there_and_2_for_what_was_typed(
    tmp_path: Path, args: tuple[str, ...], status: int
) -> None:
    result = run(tmp_path, *args)
    assert result.exit_code == status
    assert result.stderr.startswith("buoyline: error: ")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["check", "explain"])
@pytest.mark.parametrize("typed", ["polcy.json", "polcy.YAML", "./polcy"])
def test_a_mistyped_path_is_no_bad_name(tmp_path: Path, command: str, typed: str) -> None:
    result = run(tmp_path, command, typed)
    assert result.exit_code == 1
    assert result.stdout == f"{Path(typed)}: cannot be read: No such file or directory\n"
    assert not result.stderr


def test_a_manager_whose_package_is_not_there_says_how_it_is_found(tmp_path: Path) -> None:
    result = run(tmp_path, "check", "-", "--allow", "nowhere.Manager", stdin='{"type": "nowhere.Manager"}')
    assert "No module named 'nowhere'; install it, or name its folder in PYTHONPATH" in result.stdout


@pytest.mark.parametrize("command", ["put", "get", "list", "delete", "check", "explain"])
def test_each_command_has_help_with_an_example(command: str) -> None:
    shown = CliRunner().invoke(main, ["context", command, "--help"]).stdout
    assert f"Example: buoyline context {command}" in " ".join(shown.split())
    assert "--json" in shown


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


def test_what_is_too_large_for_a_document_is_refused_before_it_is_read_whole(tmp_path: Path) -> None:
    if not Path("/dev/zero").exists():
        pytest.skip("no /dev/zero on this system")
    result = run(tmp_path, "check", "/dev/zero")
    assert (result.exit_code, result.stdout) == (1, "/dev/zero: is larger than 67,108,864 bytes; no document is\n")


def test_many_problems_are_counted_and_json_has_all(tmp_path: Path) -> None:
    text = json.dumps([{"type": "X"}] * 3_000)
    lines = run(tmp_path, "check", "-", stdin=text).stdout.splitlines()
    assert (len(lines), lines[-1]) == (51, "-: 2,950 problems more; --json has all")
    assert len(json.loads(run(tmp_path, "check", "-", "--json", stdin=text).stdout)["problems"]) == 3_000


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


def test_a_document_goes_back_to_opensearch_and_comes_from_there_as_it_was(tmp_path: Path, registry: Registry) -> None:
    registry.put({"hooks": {"post_tool": [entry("ToolsOutputTruncateManager", max_output_length=100_000)]}}, "cut")
    result = CliRunner().invoke(
        main, ["context", "get", "cut", "--opensearch", "--workdir", str(tmp_path / "workspace")]
    )
    assert (result.exit_code, result.stderr) == (0, "")
    assert list(json.loads(result.stdout)["hooks"]) == ["POST_TOOL"]
    assert ContextManagement.read(json.loads(result.stdout)) == registry.get("cut")
    again = run(tmp_path, "check", "-", "--opensearch", stdin=result.stdout)
    assert (again.exit_code, again.stdout.count("OpenSearch")) == (0, 0)


def test_what_opensearch_cannot_do_is_on_stderr_and_in_the_exit_status(tmp_path: Path) -> None:
    result = run(tmp_path, "get", "tool-heavy", "--opensearch", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["hooks"] == {
        "POST_TOOL": [entry("ToolsOutputTruncateManager", max_output_length=40_000)]
    }
    assert "hooks.on_overflow[0] (left out): never runs: OpenSearch has no hook" in result.stderr
    nothing = run(tmp_path, "get", "coding-agent", "--opensearch")
    assert (nothing.exit_code, nothing.stdout) == (1, "")
    assert "OpenSearch can run none of it" in nothing.stderr


def test_a_check_for_opensearch_names_hooks_that_never_fire_in_small_letters(tmp_path: Path) -> None:
    listing = json.dumps(
        {"context_management": [{"name": "six", "hooks": {"post_memory": [{"type": "SlidingWindowManager"}]}}]}
    )
    result = run(tmp_path, "check", "-", "--opensearch", "--json", stdin=listing)
    assert result.exit_code == 1
    (found,) = json.loads(result.stdout)["opensearch"]
    assert found["path"] == "six.hooks.post_memory"
    assert "never fires in these letters" in found["reason"]
    assert "POST_MEMORY" in found["reason"]
    assert run(tmp_path, "check", "-", stdin=listing).exit_code == 0
