"""What is accepted as a context-management document, and what is said about one that is not."""

from pathlib import Path
from typing import Any

import pytest

from buoyline.errors import DocumentError, NotFoundError
from buoyline.management import ContextManagement
from buoyline.management.managers import OutputTruncation, SlidingWindow, Summarization
from buoyline.management.model import BUILT_IN, Activation, document_of, put
from buoyline.workspace.workspace import LocalWorkspace, MemoryWorkspace

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
    (truncating,) = document.hooks["post_tool"]
    (sliding,) = document.hooks["pre_llm"]

    assert truncating.manager == OutputTruncation(max_output_length=100_000)
    assert sliding.manager == SlidingWindow(max_messages=6)
    assert sliding.activation == Activation(tokens_exceed=200_000)
    assert document.to_json() == {"name": "token-aware-truncation", **TOKEN_AWARE}


@pytest.mark.parametrize(("entry", "hook"), [(SLIDING, "pre_llm"), (SUMMARIZING, "pre_llm"), (TRUNCATING, "post_tool")])
def test_a_bare_manager_runs_at_its_usual_hook(entry: dict[str, Any], hook: str) -> None:
    assert read(entry).to_json() == at(hook, entry)


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
    assert within.hooks["pre_llm"][0].activation.model_dump(exclude_unset=True) == rules


def test_equal_activations_within_and_beside_are_one() -> None:
    both = {"type": "SlidingWindowManager", "config": {"activation": {"tokens_exceed": 9}}}
    assert read(at("pre_llm", {**both, "activation": {"tokens_exceed": 9}})) == read(at("pre_llm", both))


@pytest.mark.parametrize("spelled", ["pre_llm", "PRE_LLM", "Pre_Llm", " pre_llm "])
def test_hooks_are_known_in_any_case(spelled: str) -> None:
    assert list(read(at(spelled, SLIDING)).hooks) == ["pre_llm"]


def test_one_hook_in_two_spellings_is_a_problem_not_a_loss() -> None:
    ((path, reason),) = problems_of({"hooks": {"pre_llm": [SLIDING], "PRE_LLM": [SUMMARIZING]}})
    assert path == "hooks"
    assert "twice" in reason


def test_a_document_read_from_its_own_json_is_equal() -> None:
    document = read([SLIDING, SUMMARIZING, TRUNCATING], name="x")
    assert read(document.to_json()) == document


@pytest.mark.parametrize(
    ("raw", "path", "words"),
    [
        ({"hooks": {"pre_lm": []}}, "hooks", "did you mean 'pre_llm'?"),
        ({"hooks": {"x": []}}, "hooks", "choose one of post_tool, pre_llm"),
        ({"hooks": {"pre_llm": {}}}, "hooks.pre_llm", "list"),
        ({"hooks": []}, "hooks", "dictionary"),
        ({}, "hooks", "required"),
        ({"hooks": {}, "description": 3}, "description", "string"),
        (at("pre_llm", {}), "hooks.pre_llm[0].type", "required"),
        (at("pre_llm", SLIDING, {"type": "SlidingManager"}), "hooks.pre_llm[1].type", "did you mean 'SlidingWindowM"),
        (at("pre_llm", {**SLIDING, "cofnig": {}}), "hooks.pre_llm[0].cofnig", "did you mean 'config'?"),
        (
            at("pre_llm", {**SLIDING, "config": {"max_message": 1}}),
            "hooks.pre_llm[0].config.max_message",
            "did you mean",
        ),
        (
            at("pre_llm", {"type": "SlidingWindowManager", "config": {"activation": {"token_exceed": 1}}}),
            "hooks.pre_llm[0].activation.token_exceed",
            "did you mean 'tokens_exceed'?",
        ),
        (at("pre_llm", {"type": "X", "activation": "always"}), "hooks.pre_llm[0].activation", "dictionary"),
        (at("pre_llm", {"type": "X", "activation": None}), "hooks.pre_llm[0].activation", "dictionary"),
        (
            at("pre_llm", {"type": "X", "activation": {"rule_type": "no"}}),
            "hooks.pre_llm[0].activation.rule_type",
            "'al",
        ),
        (at("pre_llm", {"type": "SlidingWindowManager", "config": 3}), "hooks.pre_llm[0].config", "dictionary"),
        (3, "", "dictionary"),
    ],
)
def test_what_cannot_be_acted_on_is_named_with_its_path_and_the_nearest_name(raw: Any, path: str, words: str) -> None:
    found = problems_of(raw)
    assert path in [where for where, _ in found]
    assert words in "; ".join(reason for where, reason in found if where == path)


def test_all_problems_of_the_managers_are_told_at_once() -> None:
    entries = [{"type": "SlidingWindowManager", "config": {"max_messages": 0, "x": 1}}, {"type": "X"}]
    paths = ["hooks.pre_llm[0].config.max_messages", "hooks.pre_llm[0].config.x", "hooks.pre_llm[1].type"]
    assert [path for path, _ in problems_of({"hooks": {"pre_llm": entries}})] == paths


@pytest.mark.parametrize("value", [0, -3, "abc", 7.9, None, float("nan"), [1]])
@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("SlidingWindowManager", "max_messages"),
        ("ToolsOutputTruncateManager", "max_output_length"),
    ],
)
def test_a_number_that_cannot_work_is_a_problem_not_a_silent_default(kind: str, key: str, value: Any) -> None:
    (path, _), *_ = problems_of(at("pre_llm", {"type": kind, "config": {key: value}}))
    assert path == f"hooks.pre_llm[0].config.{key}"


@pytest.mark.parametrize("value", [0, -5, "abc", None, 50.9])
@pytest.mark.parametrize("rule", ["tokens_exceed", "message_count_exceed"])
def test_a_threshold_that_cannot_work_is_a_problem_not_always(rule: str, value: Any) -> None:
    (path, _), *_ = problems_of(at("pre_llm", {"type": "SlidingWindowManager", "activation": {rule: value}}))
    assert path == f"hooks.pre_llm[0].activation.{rule}"


@pytest.mark.parametrize("ratio", [0.05, 0.81, "NaN", float("nan"), -1])
def test_a_ratio_out_of_its_range_is_a_problem_not_a_reset(ratio: Any) -> None:
    found = problems_of(at("pre_llm", {"type": "SummarizationManager", "config": {"summary_ratio": ratio}}))
    assert [path for path, _ in found] == ["hooks.pre_llm[0].config.summary_ratio"]


def test_numbers_may_be_spelled_as_texts_as_opensearch_takes_them() -> None:
    config = {"summary_ratio": "0.4", "preserve_recent_messages": "8"}
    (entry,) = read({"type": "SummarizationManager", "config": config}).hooks["pre_llm"]
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


@pytest.mark.parametrize("content", [b'{"a":\n [', b"\xff", b"[" * 100_000])
def test_a_file_that_is_not_json_is_a_problem_with_its_name(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "policy.json"
    file.write_bytes(content)
    with pytest.raises(DocumentError, match=r"policy\.json: not (JSON|UTF-8)"):
        document_of(file)


def test_bodies_of_the_page_name_their_document_at_the_top_or_within_parameters(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path)
    put(SLIDING, workspace, "customer-service-context")
    expected = read(SLIDING, name="customer-service-context")
    within = {"parameters": {"question": "?", "context_management_name": "customer-service-context"}}
    for body in (REGISTER, EXECUTE, within):
        assert document_of(body, workspace) == expected


def test_a_name_is_looked_for_in_the_workspace_and_then_in_the_package(tmp_path: Path) -> None:
    workspace = MemoryWorkspace()
    built_in = document_of("tool-heavy", workspace)
    put(read(SUMMARIZING), workspace, "tool-heavy")
    put(SLIDING, workspace, "mine")
    assert document_of("tool-heavy", workspace) == read(SUMMARIZING, name="tool-heavy")
    assert document_of("tool-heavy") == built_in
    with pytest.raises(NotFoundError, match="did you mean 'mine'"):
        document_of("min", workspace)
    file = tmp_path / "policy.json"
    file.write_text('{"hooks": {}}')
    assert document_of(file) == document_of(str(file)) == read({"hooks": {}})
    assert [*read({"hooks": {}}).in_words()] == ["no description"]
    for name in BUILT_IN:
        assert [*document_of(name).in_words()][1:]


def test_an_error_names_the_first_problems_and_counts_the_others() -> None:
    with pytest.raises(DocumentError) as refused:
        read([{"type": "X"}] * 3_000)
    assert len(str(refused.value)) < 10_000
    assert str(refused.value).endswith("and 2,980 more problems")
    assert len(refused.value.problems) == 3_000
