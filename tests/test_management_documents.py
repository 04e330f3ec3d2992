"""What is accepted as a context-management document, and what is said about one that is not."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from buoyline.compression import ContextConfig
from buoyline.errors import DocumentError
from buoyline.management import ContextManagement, DocumentWarning, Registry, from_context_config
from buoyline.management.managers import OutputTruncation, SlidingWindow, Summarization
from buoyline.management.opensearch import management_in
from buoyline.management.registry import parsed, spelling_of
from buoyline.management.rules import Activation
from buoyline.window.settings import document_of

TOKEN_AWARE: dict[str, Any] = {
    "description": (
        "Context management that truncates tool outputs longer than 100,000 characters and applies sliding window to "
        "keep last 6 messages when tokens exceed 200,000"
    ),
    "hooks": {
        "post_tool": [{"type": "ToolsOutputTruncateManager", "config": {"max_output_length": 100000}}],
        "pre_llm": [
            {"type": "SlidingWindowManager", "config": {"max_messages": 6, "activation": {"tokens_exceed": 200000}}}
        ],
    },
}
SLIDING: dict[str, Any] = {
    "type": "SlidingWindowManager",
    "config": {"max_messages": 6, "activation": {"message_count_exceed": 12}},
}
SUMMARIZING: dict[str, Any] = {
    "type": "SummarizationManager",
    "config": {
        "summary_ratio": 0.3,
        "preserve_recent_messages": 10,
        "summarization_model_id": "<your-summarization-model-id>",
        "activation": {"tokens_exceed": 200000},
    },
}
TRUNCATING: dict[str, Any] = {
    "type": "ToolsOutputTruncateManager",
    "config": {"max_output_length": 40000, "activation": {"tokens_exceed": 150000}},
}
REGISTER: dict[str, Any] = {
    "name": "customer-service-agent",
    "type": "conversational",
    "llm": {"model_id": "your-llm-model-id"},
    "context_management_name": "customer-service-context",
}
EXECUTE: dict[str, Any] = {
    "parameters": {"question": "How can I help you today?"},
    "context_management_name": "customer-service-context",
}


class Nothing:
    def reduce(self, messages: list[Any], *, error: BaseException | None = None) -> bool:
        return False


def read(raw: Any, **options: Any) -> ContextManagement:
    return ContextManagement.read(raw, **options)


def at(hook: str, *entries: Any) -> dict[str, Any]:
    return {"hooks": {hook: list(entries)}}


def problems_of(raw: Any, **options: Any) -> list[tuple[str, str]]:
    with pytest.raises(DocumentError) as caught:
        read(raw, **options)
    return list(caught.value.problems)


def test_the_whole_document_of_the_page_is_read_and_comes_back_as_it_was() -> None:
    document = read(TOKEN_AWARE, name="token-aware-truncation")
    (truncating,) = document.entries("post_tool")
    (sliding,) = document.entries("pre_llm")

    assert truncating.manager == OutputTruncation(max_output_length=100_000)
    assert sliding.manager == SlidingWindow(max_messages=6)
    assert sliding.activation == Activation(tokens_exceed=200_000)
    assert document.to_json() == {"name": "token-aware-truncation", **TOKEN_AWARE}
    assert document.model_dump() == document.to_json()
    assert json.loads(document.model_dump_json()) == document.to_json()


@pytest.mark.parametrize(("entry", "hook"), [(SLIDING, "pre_llm"), (SUMMARIZING, "pre_llm"), (TRUNCATING, "post_tool")])
def test_a_bare_manager_runs_at_its_usual_hook(entry: dict[str, Any], hook: str) -> None:
    assert read(entry).to_json() == at(hook, entry)


def test_several_bare_managers_keep_their_order() -> None:
    document = read([SLIDING, TRUNCATING, SUMMARIZING])
    assert [entry.manager.type_name for entry in document.entries("pre_llm")] == [
        "SlidingWindowManager",
        "SummarizationManager",
    ]
    assert len(document.entries("post_tool")) == 1


@pytest.mark.parametrize(
    "rules",
    [
        {"rule_type": "always"},
        {"message_count_exceed": 20},
        {"tokens_exceed": 200000},
        {"message_count_exceed": 15, "tokens_exceed": 200000},
    ],
)
def test_every_activation_of_the_page_is_read_within_the_config_and_beside_it(rules: dict[str, Any]) -> None:
    within = read(at("pre_llm", {"type": "SlidingWindowManager", "config": {"activation": rules}}))
    beside = read(at("pre_llm", {"type": "SlidingWindowManager", "activation": rules}))

    assert within == beside
    assert within.entries("pre_llm")[0].activation.spelled() == rules


def test_equal_activations_within_and_beside_are_one_and_different_ones_are_a_problem() -> None:
    both = {"type": "SlidingWindowManager", "config": {"activation": {"tokens_exceed": 9}}}
    assert read(at("pre_llm", {**both, "activation": {"tokens_exceed": 9}})) == read(at("pre_llm", both))
    ((path, reason),) = problems_of(at("pre_llm", {**both, "activation": {"tokens_exceed": 8}}))
    assert path == "hooks.pre_llm[0].activation"
    assert "differs from config.activation" in reason
    with pytest.warns(DocumentWarning, match="differs"):
        document = read(at("pre_llm", {**both, "activation": {"tokens_exceed": 8}}), strict=False)
    assert document.entries("pre_llm")[0].activation.tokens_exceed == 8


@pytest.mark.parametrize("spelled", ["pre_llm", "PRE_LLM", "Pre_Llm", " pre_llm "])
def test_hooks_are_known_in_any_case(spelled: str) -> None:
    assert list(read(at(spelled, SLIDING)).hooks) == ["pre_llm"]


@pytest.mark.parametrize("hook", ["pre_llm", "post_tool", "post_memory", "pre_compress", "on_overflow"])
def test_every_hook_takes_every_manager(hook: str) -> None:
    assert read(at(hook, SLIDING, SUMMARIZING, TRUNCATING)).to_json() == at(hook, SLIDING, SUMMARIZING, TRUNCATING)


def test_one_hook_in_two_spellings_is_a_problem_not_a_loss() -> None:
    ((path, reason),) = problems_of({"hooks": {"pre_llm": [SLIDING], "PRE_LLM": [SUMMARIZING]}})
    assert path == "hooks.PRE_LLM"
    assert "twice" in reason


def test_a_key_that_stands_twice_in_the_text_is_a_problem_not_a_loss() -> None:
    with pytest.raises(DocumentError, match="'pre_llm' is there twice"):
        parsed('{"hooks": {"pre_llm": [], "pre_llm": []}}')


def test_no_hooks_are_the_null_manager() -> None:
    assert read({"hooks": {}}).is_null
    assert read({"hooks": {"pre_llm": []}}).is_null
    assert ContextManagement().is_null
    assert problems_of({"description": "nothing"}) == [("hooks", "is missing; {} stands for no management at all")]


def test_what_opensearch_answers_with_can_be_read_again() -> None:
    answer = {"name": "a", **TOKEN_AWARE, "created_time": 1, "last_modified": 2, "created_by": "ada"}
    assert read(answer).to_json() == answer


def test_a_document_read_from_its_own_json_is_equal() -> None:
    document = read([SLIDING, SUMMARIZING, TRUNCATING], name="x")
    assert read(document.to_json()) == document
    assert ContextManagement.model_validate(document.to_json()) == document


@pytest.mark.parametrize(
    ("raw", "path", "words"),
    [
        ({"hooks": {"pre_lm": []}}, "hooks.pre_lm", "did you mean 'pre_llm'?"),
        ({"hooks": {"post_llm": []}}, "hooks.post_llm", "never fires it"),
        ({"hooks": {"x": []}}, "hooks.x", "choose one of post_memory, post_tool, pre_llm, pre_compress, on_overflow"),
        ({"hooks": {"pre_llm": {}}}, "hooks.pre_llm", "must be a list of managers, not an object"),
        ({"hooks": []}, "hooks", "must be an object of hooks, not a list"),
        ({"hooks": {}, "descripton": ""}, "descripton", "did you mean 'description'?"),
        ({"hooks": {}, "description": 3}, "description", "must be a text, not 3"),
        (at("pre_llm", {}), "hooks.pre_llm[0]", "must be an object with a 'type'"),
        (at("pre_llm", {"type": " "}), "hooks.pre_llm[0]", "must be an object with a 'type'"),
        (at("pre_llm", SLIDING, {"type": "SlidingManager"}), "hooks.pre_llm[1].type", "did you mean 'SlidingWindowM"),
        (
            at("pre_llm", {"type": "SlidingWindowManager", "cofnig": {}}),
            "hooks.pre_llm[0].cofnig",
            "did you mean 'config'?",
        ),
        (
            at("pre_llm", {"type": "SlidingWindowManager", "config": {"max_message": 1}}),
            "hooks.pre_llm[0].config.max_message",
            "did you mean 'max_messages'?",
        ),
        (
            at("pre_llm", {"type": "SlidingWindowManager", "config": {"activation": {"token_exceed": 1}}}),
            "hooks.pre_llm[0].config.activation.token_exceed",
            "did you mean 'tokens_exceed'?",
        ),
        (
            at("pre_llm", {"type": "SlidingWindowManager", "activation": "always"}),
            "hooks.pre_llm[0].activation",
            "must be an object of rules, not 'always'",
        ),
        (
            at("pre_llm", {"type": "SlidingWindowManager", "activation": {"rule_type": "never"}}),
            "hooks.pre_llm[0].activation.rule_type",
            "'never' is not allowed: it must be 'always'",
        ),
        (
            at("pre_llm", {"type": "SlidingWindowManager", "activation": {"tokens_exceed": None}}),
            "hooks.pre_llm[0].activation.tokens_exceed",
            "has no value",
        ),
        (
            at("pre_llm", {"type": "SlidingWindowManager", "activation": None}),
            "hooks.pre_llm[0].activation",
            "has no value",
        ),
        (at("pre_llm", {"type": "SlidingWindowManager", "config": 3}), "hooks.pre_llm[0].config", "not 3"),
        (at("pre_llm", {"type": "os.path:join"}), "hooks.pre_llm[0].type", "not allowed to be imported"),
        (3, "", "a document is an object, not 3"),
        (None, "", "a document is an object, not null"),
    ],
)
def test_what_cannot_be_acted_on_is_named_with_its_path_and_the_nearest_name(raw: Any, path: str, words: str) -> None:
    found = problems_of(raw)
    assert path in [where for where, _ in found]
    assert words in "; ".join(reason for where, reason in found if where == path)


def test_all_problems_are_told_at_once() -> None:
    entry = {"type": "SlidingWindowManager", "config": {"max_messages": 0, "x": 1, "activation": {"tokens_exceed": -5}}}
    assert [path for path, _ in problems_of({"hooks": {"pre_llm": [entry], "nope": []}, "y": 1})] == [
        "y",
        "hooks.pre_llm[0].config.activation.tokens_exceed",
        "hooks.pre_llm[0].config.max_messages",
        "hooks.pre_llm[0].config.x",
        "hooks.nope",
    ]


def test_pydantics_own_way_in_says_the_same() -> None:
    assert ContextManagement.model_validate(TOKEN_AWARE) == read(TOKEN_AWARE)
    with pytest.raises(ValidationError, match="did you mean 'pre_llm'"):
        ContextManagement.model_validate({"hooks": {"pre_lm": []}})


@pytest.mark.parametrize("value", [0, -3, "abc", True, 7.9, None, float("nan"), [1]])
@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("SlidingWindowManager", "max_messages"),
        ("ToolsOutputTruncateManager", "max_output_length"),
        ("ImageLimitManager", "x"),
    ],
)
def test_a_number_that_cannot_work_is_a_problem_not_a_silent_default(kind: str, key: str, value: Any) -> None:
    (path, _), *_ = problems_of(at("pre_llm", {"type": kind, "config": {key: value}}))
    assert path == f"hooks.pre_llm[0].config.{key}"


@pytest.mark.parametrize("value", [0, -5, "abc", None, True, 50.9])
@pytest.mark.parametrize("rule", ["tokens_exceed", "message_count_exceed"])
def test_a_threshold_that_cannot_work_is_a_problem_not_always(rule: str, value: Any) -> None:
    (path, _), *_ = problems_of(at("pre_llm", {"type": "SlidingWindowManager", "activation": {rule: value}}))
    assert path == f"hooks.pre_llm[0].activation.{rule}"


@pytest.mark.parametrize("ratio", [0.05, 0.81, "NaN", float("nan"), -1, True])
def test_a_ratio_out_of_its_range_is_a_problem_not_a_reset(ratio: Any) -> None:
    found = problems_of(at("pre_llm", {"type": "SummarizationManager", "config": {"summary_ratio": ratio}}))
    assert [path for path, _ in found] == ["hooks.pre_llm[0].config.summary_ratio"]


@pytest.mark.parametrize(("ratio", "clamped"), [(0.05, 0.1), (0.9, 0.8), (5, 0.8)])
def test_a_lenient_reader_clamps_a_ratio_as_documented_and_says_so(ratio: float, clamped: float) -> None:
    with pytest.warns(DocumentWarning, match=f"{ratio} is taken for {clamped}"):
        document = read({"type": "SummarizationManager", "config": {"summary_ratio": ratio}}, strict=False)
    assert document.entries("pre_llm")[0].manager == Summarization(summary_ratio=clamped)


def test_numbers_may_be_spelled_as_texts_as_opensearch_takes_them() -> None:
    config = {"summary_ratio": "0.4", "preserve_recent_messages": "8"}
    (entry,) = read({"type": "SummarizationManager", "config": config}).entries("pre_llm")
    assert entry.manager == Summarization(summary_ratio=0.4, preserve_recent_messages=8)


@pytest.mark.parametrize(
    ("kind", "defaults"),
    [
        ("SlidingWindowManager", {"max_messages": 20}),
        ("SummarizationManager", {"summary_ratio": 0.3, "preserve_recent_messages": 10}),
        ("ToolsOutputTruncateManager", {"max_output_length": 40_000}),
    ],
)
def test_defaults_are_those_of_the_documentation(kind: str, defaults: dict[str, Any]) -> None:
    ((entry,),) = read({"type": kind}).hooks.values()
    assert {key: getattr(entry.manager, key) for key in defaults} == defaults


@pytest.mark.parametrize(
    "entry",
    [
        {"type": "SlidingWindowManager", "activation": {"token_exceed": 1_000_000}},
        {"type": "SlidingWindowManager", "activation": {"tokens_exceed": 1, "msg_count_exceed": 100}},
        {"type": "SlidingWindowManager", "activation": {"tokens_exceed": "abc"}},
        {"type": "SlidingWindowManager", "activation": "always"},
        {"type": "SlidingWindowManager", "config": {"max_messages": -3}},
        {"type": "MemoryManager"},
    ],
)
def test_a_lenient_reader_never_lets_a_manager_run_more_often_than_it_says(entry: dict[str, Any]) -> None:
    with pytest.warns(DocumentWarning):
        assert read(at("pre_llm", entry), strict=False).is_null


def test_a_lenient_reader_leaves_out_what_it_does_not_know_and_keeps_the_rest() -> None:
    raw = {"hooks": {"pre_llm": [{**SLIDING, "config": {"max_messages": 3, "x": 1}}], "pre_tool": [SLIDING]}, "y": 1}
    with pytest.warns(DocumentWarning) as warned:
        document = read(raw, strict=False)
    assert document.to_json() == at("pre_llm", {"type": "SlidingWindowManager", "config": {"max_messages": 3}})
    assert len(warned) == 3


def test_yaml_and_toml_are_the_same_documents() -> None:
    pytest.importorskip("yaml", reason="PyYAML is the extra 'yaml'")
    as_yaml = (
        "hooks:\n  pre_llm:\n    - type: SlidingWindowManager\n      config:\n        max_messages: 6\n"
        "        activation: {message_count_exceed: 12}\n"
    )
    as_toml = (
        '[[hooks.pre_llm]]\ntype = "SlidingWindowManager"\n'
        "config = {max_messages = 6, activation = {message_count_exceed = 12}}\n"
    )
    assert read(parsed(as_yaml, "yaml")) == read(parsed(as_toml, "toml")) == read(SLIDING)


def test_yaml_is_read_as_strictly_as_the_other_formats() -> None:
    pytest.importorskip("yaml", reason="PyYAML is the extra 'yaml'")
    with pytest.raises(DocumentError, match=r"'pre_llm' is there twice in one object.*line 3"):
        parsed("hooks:\n  pre_llm: []\n  pre_llm: []\n", "yaml")
    merged = "a: &a {type: PinManager, config: {first: 1}}\nb:\n  - {<<: *a, config: {first: 2}}\n"
    assert parsed(merged, "yaml")["b"] == [{"type": "PinManager", "config": {"first": 2}}]


@pytest.mark.parametrize("text", ["created_time: 2026-13-45", "[" * 5_000, "description: !!bool maybe", "[a]: {}"])
def test_yaml_that_pyyaml_or_python_refuses_is_a_problem_of_the_document(text: str) -> None:
    pytest.importorskip("yaml", reason="PyYAML is the extra 'yaml'")
    with pytest.raises(DocumentError, match="not YAML"):
        parsed(text, "yaml")


@pytest.mark.parametrize("spelling", ["yaml", "toml"])
def test_times_that_a_format_has_itself_are_accepted_with_their_offset(spelling: Any) -> None:
    if spelling == "yaml":
        pytest.importorskip("yaml", reason="PyYAML is the extra 'yaml'")
    sign = ":" if spelling == "yaml" else " ="
    found = parsed(f"created_time{sign} 2026-01-01T01:00:00+01:00\n", spelling)
    assert read({**found, "hooks": {}}).created_time == 1_767_225_600_000
    without_offset = parsed(f"created_time{sign} 2026-01-01T01:00:00\n", spelling)
    with pytest.raises(DocumentError, match="created_time: must be milliseconds"):
        read({**without_offset, "hooks": {}})


@pytest.mark.parametrize("spelling", ["json", "yaml", "toml"])
def test_text_that_is_not_what_it_should_be_is_a_problem_with_its_place(spelling: Any) -> None:
    if spelling == "yaml":
        pytest.importorskip("yaml", reason="PyYAML is the extra 'yaml'")
    text = "a = 1\nb = ?" if spelling == "toml" else '{"a":\n ['
    with pytest.raises(DocumentError, match=f"not {spelling.upper()}: .*line 2"):
        parsed(text, spelling)


def test_the_suffix_says_how_a_file_is_spelled() -> None:
    names = ["a.json", "a.YAML", "a.yml", "a.toml", "a", "a.txt"]
    assert [spelling_of(Path(name)) for name in names] == ["json", "yaml", "yaml", "toml", "json", "json"]


def test_bodies_of_the_page_name_their_document_at_the_top_or_within_parameters() -> None:
    context = read(SLIDING, name="customer-service-context")
    within = {"parameters": {"question": "?", "context_management_name": "customer-service-context"}}
    for body in (REGISTER, EXECUTE, within):
        assert management_in(body, {"customer-service-context": context}.__getitem__) is context
    assert management_in({"context_management": SLIDING}, Registry().get) == read(SLIDING)
    for body in ({"name": "agent"}, {"parameters": {}}):
        assert management_in(body, Registry().get) is None


def test_the_document_in_a_body_may_import_what_is_allowed() -> None:
    inline: dict[str, Any] = {"hooks": {"pre_llm": [{"type": f"{__name__}.Nothing"}]}}
    body: dict[str, Any] = {"context_management": inline}
    with pytest.raises(DocumentError, match="is not allowed to be imported"):
        management_in(body, Registry().get)
    with pytest.raises(DocumentError, match="is not allowed to be imported"):
        document_of(body, None)
    allowed = [f"{__name__}.*"]
    expected = read(inline, allowed=allowed).to_json()
    assert document_of(body, None, allowed=allowed).to_json() == expected


def test_a_rule_for_a_tool_with_an_unknown_setting_is_a_problem_of_the_document() -> None:
    entry = {"type": "OffloadManager", "config": {"tool_rules": {"bash": {"limits": 9}}}}
    with pytest.raises(DocumentError, match=r"config: tool_rules: 'limits' of 'bash' .* choose one of limit, offload"):
        read(entry)
    with pytest.warns(DocumentWarning, match="'limits' of 'bash'"):
        assert read(entry, strict=False).is_null


def test_a_ratio_that_is_written_as_a_text_is_clamped_as_a_number_is() -> None:
    entry = {"type": "SummarizationManager", "config": {"summary_ratio": "0.9"}}
    with pytest.warns(DocumentWarning, match=r"0\.9 is taken for 0\.8"):
        assert read(entry, strict=False).entries("pre_llm")[0].manager == Summarization(summary_ratio=0.8)


def test_a_body_with_a_name_and_a_document_is_refused() -> None:
    with pytest.raises(DocumentError, match="keep one of them"):
        management_in({"context_management_name": "chat", "context_management": SLIDING}, Registry().get)


def test_a_document_from_a_configuration_is_a_document_like_any_other() -> None:
    document = from_context_config(ContextConfig(), name="defaults")
    assert read(document.to_json()) == document


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (1_767_225_600_000, 1_767_225_600_000),
        ("1767225600000", 1_767_225_600_000),
        ("2026-01-01T00:00:00Z", 1_767_225_600_000),
        ("2026-01-01T01:00:00.250+01:00", 1_767_225_600_250),
        (None, None),
    ],
)
def test_times_are_read_as_opensearch_gives_and_exports_them(given: Any, kept: int | None) -> None:
    assert read({"hooks": {}, "created_time": given}).created_time == kept


@pytest.mark.parametrize("value", [1.5, {}, [], True, "yesterday", "2026-01-01T00:00:00", "2026-01-01", "9" * 5_000])
def test_a_time_that_is_none_or_may_be_several_is_a_problem(value: Any) -> None:
    (problem,) = problems_of({"hooks": {}, "last_modified": value})
    assert problem[0] == "last_modified"
    assert "milliseconds since 1970, or a date and time with its offset" in problem[1]
    with pytest.warns(DocumentWarning, match="last_modified"):
        assert read({"hooks": {}, "last_modified": value}, strict=False).last_modified is None


@pytest.mark.parametrize("value", [5, {}, ["me"]])
def test_an_author_that_is_no_text_is_a_problem(value: Any) -> None:
    assert problems_of({"hooks": {}, "created_by": value})[0][0] == "created_by"


def test_true_in_place_of_a_number_is_said_in_one_sentence() -> None:
    (problem,) = problems_of({"type": "SlidingWindowManager", "config": {"max_messages": True}})
    assert problem[1] == "True is not allowed: it must be a number, not true or false"


def test_names_of_managers_are_compared_without_the_word_that_all_have() -> None:
    assert "did you mean" not in problems_of({"type": "MemoryManager"})[0][1]
    assert problems_of({"type": "SlidingWindow"})[0][1].endswith("did you mean 'SlidingWindowManager'?")


def test_installed_managers_are_looked_for_once_a_document(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look reads the metadata of all installed packages: 27 ms, two minutes for 4,000 unknown names."""
    looked: list[dict[str, str]] = []

    def entry_points(**asked: str) -> list[Any]:
        looked.append(asked)
        return []

    monkeypatch.setattr("importlib.metadata.entry_points", entry_points)
    assert len(problems_of([{"type": f"Unknown{number}"} for number in range(40)])) == 40
    assert len(looked) == 1


def test_an_error_names_the_first_problems_and_counts_the_others() -> None:
    with pytest.raises(DocumentError) as refused:
        read([{"type": "X"}] * 3_000)
    assert len(str(refused.value)) < 10_000
    assert str(refused.value).endswith("and 2,980 more problems")
    assert len(refused.value.problems) == 3_000
