"""Which tool results leave the context: limits, budgets, rules, a predicate, and what is read back."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from thirds import examples

from buoyline import ContextConfig, ContextWindow, LocalWorkspace, MemoryWorkspace, ToolRule
from buoyline.errors import ConfigError
from buoyline.inspect.replay import Replay, replay
from buoyline.messages.registry import detect
from buoyline.offloader.policy import LEAST_USEFUL_TOKENS, TurnResult, stub_budgets
from buoyline.offloader.stub import bare_stub
from buoyline.tokens import default_counter
from buoyline.window import Event, ResultOffloaded
from buoyline.window.settings import config_from_json, config_to_json
from buoyline.workspace.references import holds, may_name_a_file, reference_in

COUNTER = default_counter()


def words(tokens: int, word: str = "buoy") -> str:
    """Return a text of lines that takes *tokens*, or one or two fewer."""
    return COUNTER.head("".join(f"{word} {number}\n" for number in range(tokens)), tokens)


def calls(*named: tuple[str, str] | tuple[str, str, str]) -> dict[str, Any]:
    """Return a message that calls tools: id, name, and arguments each."""
    made = [
        {"id": call[0], "type": "function", "function": {"name": call[1], "arguments": (*call, "{}")[2]}}
        for call in named
    ]
    return {"role": "assistant", "content": None, "tool_calls": made}


def result(call_id: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def opened(offloader: Any, session_id: str = "s1", **options: Any) -> ContextWindow:
    return ContextWindow(session_id=session_id, offloader=offloader, **options)


async def shown(window: ContextWindow, messages: Sequence[Any]) -> list[Any]:
    for message in messages:
        await window.add(message)
    return await window.prepare()


def is_stub(message: Any) -> bool:
    content: str = message["content"]
    return content.startswith("[Tool result offloaded")


def texts_of(messages: Sequence[Any]) -> list[str]:
    return [found.text for message in messages for found in detect(message).view(message).results]


def local(path: Path) -> LocalWorkspace:
    return LocalWorkspace(path, durability="off")


# The budget of a turn.


async def test_many_results_just_under_the_limit_do_not_pass_together(tmp_path: Path) -> None:
    """Twenty of 2,500 tokens each: as many stay as fit, the newest of them, since all are equal."""
    turn = [calls(*[(f"c{n}", "run") for n in range(20)]), *[result(f"c{n}", words(2_500)) for n in range(20)]]
    window = opened(local(tmp_path))
    found = (await shown(window, turn))[1:]

    assert window.turn_tokens <= 12_000 == window.config.turn_limit(window.size)
    assert all(is_stub(message) for message in found), "twenty previews alone take more than the budget"
    assert min(COUNTER.count(message["content"]) for message in found) > 300, "each has what there is for it"


async def test_the_largest_go_first_and_the_rest_stays_as_it_is(tmp_path: Path) -> None:
    sizes = [2_900, 700, 2_000, 2_600, 100, 2_400, 2_800]
    turn = [
        calls(*[(f"c{n}", "run") for n in range(7)]),
        *[result(f"c{n}", words(size)) for n, size in enumerate(sizes)],
    ]
    window = opened(local(tmp_path))
    prepared = await shown(window, turn)

    assert [size for size, message in zip(sizes, prepared[1:], strict=True) if is_stub(message)] == [2_900]
    assert window.turn_tokens <= 12_000


async def test_what_was_shown_counts_for_the_budget_and_is_never_changed(tmp_path: Path) -> None:
    window = opened(local(tmp_path))
    first = await shown(
        window, [calls(*[(f"c{n}", "run") for n in range(8)]), *[result(f"c{n}", words(2_500)) for n in range(4)]]
    )
    assert not any(map(is_stub, first[1:]))
    await window.save()
    second = await shown(window, [result(f"c{n}", words(1_500)) for n in range(4, 8)])

    assert second[:5] == first
    assert all(map(is_stub, second[5:]))
    assert window.turn_tokens <= 12_000


async def test_a_turn_begins_anew_when_the_model_has_spoken(tmp_path: Path) -> None:
    window = opened(local(tmp_path))
    for turn in range(4):
        ids = [f"c{turn}{n}" for n in range(4)]
        prepared = await shown(window, [calls(*[(i, "run") for i in ids]), *[result(i, words(2_500)) for i in ids]])
        assert not any(is_stub(message) for message in prepared if message["role"] == "tool")


async def test_a_turn_of_one_anthropic_message_has_the_same_budget(tmp_path: Path) -> None:
    blocks = [{"type": "tool_result", "tool_use_id": f"t{n}", "content": words(2_500)} for n in range(10)]
    uses = [{"type": "tool_use", "id": f"t{n}", "name": "run", "input": {}} for n in range(10)]
    window = opened(local(tmp_path))
    await shown(window, [{"role": "assistant", "content": uses}, {"role": "user", "content": blocks}])

    assert window.turn_tokens <= 12_000


async def test_without_an_offloader_a_turn_has_a_budget_too() -> None:
    window = opened(None)
    turn = [calls(*[(f"c{n}", "run") for n in range(20)]), *[result(f"c{n}", words(2_500)) for n in range(20)]]
    with pytest.warns(UserWarning, match="lost"):
        prepared = await shown(window, turn)

    assert 8_000 < window.turn_tokens <= 12_000
    assert all(message["content"].startswith("buoy 0\n") for message in prepared[1:])


async def test_the_budget_survives_a_resume_in_the_middle_of_a_turn(tmp_path: Path) -> None:
    config = ContextConfig(turn_results_limit=5_000)
    window = opened(local(tmp_path), config=config)
    first = await shown(window, [calls(("a", "run"), ("b", "run")), result("a", words(2_900))])
    resumed = await ContextWindow.resume(local(tmp_path), "s1")
    second = await shown(resumed, [result("b", words(2_800))])

    assert resumed.config == config
    assert second[:2] == first
    assert is_stub(second[2])


sizes = st.integers(0, 4_000)
turn_results = st.lists(
    st.builds(
        lambda tokens, preview, kind: TurnResult(tokens, min(preview, tokens // 2), kind == "due", kind == "fixed"),
        sizes,
        sizes,
        st.sampled_from(["", "", "", "due", "fixed"]),
    ),
    max_size=30,
)


@given(results=turn_results, limit=st.integers(1, 20_000))
def test_what_stays_of_a_turn_fits_or_nothing_more_can_leave(results: list[TurnResult], limit: int) -> None:
    least = 200
    budgets = stub_budgets(results, limit, least=least)
    left = sum(
        (max(budgets[at], least) if budgets[at] > 1 else 0) if at in budgets else found.tokens
        for at, found in enumerate(results)
    )

    assert not any(results[at].is_fixed for at in budgets)
    assert {at for at, found in enumerate(results) if found.is_due} <= set(budgets)
    assert all(tokens <= max(results[at].stub_tokens, 1) for at, tokens in budgets.items())
    if left > limit:
        assert all(tokens <= 1 for tokens in budgets.values()), "all that leave are bare notices"
        staying = [found for at, found in enumerate(results) if at not in budgets and not found.is_fixed]
        assert all(found.tokens <= max(LEAST_USEFUL_TOKENS, found.stub_tokens, least) for found in staying)
    chosen = [results[at].tokens for at in budgets if not results[at].is_due]
    kept = [found.tokens for at, found in enumerate(results) if at not in budgets and not found.is_fixed]
    assert min(chosen, default=4_001) >= max((tokens for tokens in kept if tokens > least), default=0)


@pytest.mark.parametrize(
    ("settings_", "size", "limit"),
    [
        ({}, 128_000, 12_000),
        ({}, 32_000, 9_600),
        ({}, 4_000, 3_000),
        ({"tool_result_limit": 500}, 128_000, 2_000),
        ({"turn_results_limit": 3_000}, 128_000, 3_000),
        ({"tool_rules": {"read": ToolRule(limit=40_000)}}, 128_000, 40_000),
    ],
)
def test_a_turn_has_four_times_the_limit_of_one_result_within_the_window(
    settings_: dict[str, Any], size: int, limit: int
) -> None:
    assert ContextConfig(**settings_).turn_limit(size) == limit


# Rules.


async def test_rules_give_tools_limits_of_their_own_by_name_or_pattern_and_the_first_that_matches_holds(
    tmp_path: Path,
) -> None:
    rules = {"read": ToolRule(limit=6_000), "mcp__*": ToolRule(limit=500), "*": ToolRule(offload="never")}
    window = opened(local(tmp_path), config=ContextConfig(tool_rules=rules))
    turn = [
        calls(("a", "read"), ("b", "mcp__search"), ("c", "other")),
        result("a", words(4_000)),
        result("b", words(700)),
        result("c", words(4_500)),
    ]
    prepared = await shown(window, turn)

    assert [is_stub(message) for message in prepared[1:]] == [False, True, False]
    assert COUNTER.count(prepared[2]["content"]) <= 500 // 3


async def test_always_takes_small_results_too_unless_the_stub_would_be_larger(tmp_path: Path) -> None:
    window = opened(local(tmp_path), config=ContextConfig(tool_rules={"run": ToolRule(offload="always")}))
    turn = [calls(("a", "run"), ("b", "run"), ("c", "read"))]
    prepared = await shown(window, [*turn, result("a", words(400)), result("b", "ok"), result("c", words(400))])

    assert [is_stub(message) for message in prepared[1:]] == [True, False, False]
    assert len(list(tmp_path.rglob("tool_result-*"))) == 1


async def test_a_small_block_stays_beside_a_large_one_up_to_the_limit_and_not_up_to_the_preview(tmp_path: Path) -> None:
    rule = ToolRule(limit=1_000, preview_tokens=200)
    window = opened(local(tmp_path), config=ContextConfig(tool_rules={"run": rule}))
    content = [{"type": "text", "text": text} for text in (words(2_000), words(400, "small"))]
    blocks = [{"type": "tool_result", "tool_use_id": "a", "content": content}]
    uses = [{"type": "tool_use", "id": "a", "name": "run", "input": {}}]
    prepared = await shown(window, [{"role": "assistant", "content": uses}, {"role": "user", "content": blocks}])
    found = prepared[1]["content"][0]["content"]

    assert found[0]["text"].startswith("[Tool result offloaded: ")
    assert COUNTER.count(found[0]["text"]) <= 200
    assert found[1:] == content[1:]


async def test_without_an_offloader_a_result_is_cut_to_its_limit_and_not_to_its_preview() -> None:
    window = opened(None, config=ContextConfig(tool_rules={"run": ToolRule(limit=1_000, preview_tokens=200)}))
    with pytest.warns(UserWarning, match="lost"):
        prepared = await shown(window, [calls(("a", "run")), result("a", words(2_000))])

    assert 900 < COUNTER.count(prepared[1]["content"]) <= 1_000


async def test_errors_stay_whole_where_the_dialect_marks_them_and_a_rule_wants_them(tmp_path: Path) -> None:
    window = opened(local(tmp_path), config=ContextConfig(tool_rules={"run": ToolRule(keep_errors=True)}))
    uses: list[Any] = [{"type": "tool_use", "id": name, "name": "run", "input": {}} for name in ("good", "bad")]
    blocks = [
        {"type": "tool_result", "tool_use_id": "good", "content": "Error: not really\n" + words(4_000)},
        {"type": "tool_result", "tool_use_id": "bad", "content": words(4_000), "is_error": True},
    ]
    prepared = await shown(window, [{"role": "assistant", "content": uses}, {"role": "user", "content": blocks}])

    assert [block["content"].startswith("[Tool result offloaded") for block in prepared[1]["content"]] == [True, False]


async def test_the_tool_is_that_of_the_call_also_where_parallel_calls_share_an_id(tmp_path: Path) -> None:
    rules = {"read": ToolRule(offload="never")}
    window = opened(local(tmp_path), config=ContextConfig(tool_rules=rules))
    turn = [calls(("", "read"), ("", "run")), result("", words(4_000, "a")), result("", words(4_000, "b"))]
    prepared = await shown(window, turn)

    assert [is_stub(message) for message in prepared[1:]] == [False, True]


async def test_a_rule_holds_for_a_result_whose_call_came_before_a_resume(tmp_path: Path) -> None:
    config = ContextConfig(tool_rules={"b*": ToolRule(limit=100), "read": ToolRule(offload="never")})
    await shown(opened(local(tmp_path), config=config), [calls(("a", "read"), ("b", "run"))])
    resumed = await ContextWindow.resume(local(tmp_path), "s1")
    prepared = await shown(resumed, [result("a", words(4_000)), result("b", words(4_000))])

    assert list(resumed.config.tool_rules.items()) == list(config.tool_rules.items()), "the first that matches holds"
    assert [is_stub(message) for message in prepared[1:]] == [False, True]


async def test_what_never_leaves_does_leave_where_the_context_does_not_fit_but_after_all_else(tmp_path: Path) -> None:
    config = ContextConfig(tool_rules={"read": ToolRule(offload="never")})
    window = opened(local(tmp_path), config=config, size=8_000)
    turn = [calls(("a", "read"), ("b", "run")), result("a", words(6_500)), result("b", words(2_900))]
    fitting = await shown(window, turn)
    assert [is_stub(message) for message in fitting[1:]] == [False, True]

    alone = opened(local(tmp_path), "s2", config=config, size=8_000)
    prepared = await shown(alone, [calls(("a", "read")), result("a", words(20_000))])
    assert is_stub(prepared[1])
    assert alone.tokens <= 8_000


async def test_a_refused_request_makes_room_at_the_cost_of_a_rule_where_nothing_else_can(tmp_path: Path) -> None:
    window = opened(local(tmp_path), config=ContextConfig(tool_rules={"*": ToolRule(offload="never")}))
    await shown(window, [calls(("a", "read")), result("a", words(20_000))])
    assert is_stub((await window.recover_from_overflow())[1])


@pytest.mark.parametrize(
    ("made", "words_"),
    [
        (lambda: ToolRule(limit=1), "limit: 1 is below 2"),
        (lambda: ToolRule(limit=True), "limit: must be a whole number, not bool"),
        (lambda: ToolRule(preview_tokens=0), "preview_tokens: 0 is below 1"),
        (lambda: ToolRule(offload="sometimes"), "offload: 'sometimes' is not one of auto, never, always"),  # type: ignore[arg-type]  # that is the point
        (lambda: ToolRule(keep_errors=1), "keep_errors: must be True or False, not int"),  # type: ignore[arg-type]  # as above
        (lambda: ContextConfig(tool_rules=[]), "tool_rules: must be a mapping"),  # type: ignore[arg-type]  # as above
        (lambda: ContextConfig(tool_rules={"a": 5}), "tool_rules: 'a' must have a ToolRule, not int"),  # type: ignore[dict-item]  # as above
        (
            lambda: ContextConfig(tool_rules={"a": ToolRule(limit=50, preview_tokens=50)}),
            r"tool_rules: preview_tokens of 'a' is 50, not below its limit \(50\)",
        ),
        (
            lambda: ContextConfig(tool_rules={"a": ToolRule(preview_tokens=3_000)}),
            r"tool_rules: preview_tokens of 'a' is 3000, not below its limit \(3000\)",
        ),
        (lambda: ContextConfig(turn_results_limit=2_999), "turn_results_limit: 2999 is below the limit of one result"),
        (
            lambda: ContextConfig(turn_results_limit=9_000, tool_rules={"a": ToolRule(limit=9_001)}),
            r"turn_results_limit: 9000 is below the limit of one result \(9001\)",
        ),
        (lambda: ContextConfig(turn_results_limit=9_000.0), "turn_results_limit: must be a whole number"),  # type: ignore[arg-type]  # as above
    ],
)
def test_a_policy_that_cannot_work_is_refused_when_it_is_built(made: Any, words_: str) -> None:
    with pytest.raises(ConfigError, match=words_):
        made()


rules_ = st.builds(
    ToolRule,
    limit=st.none() | st.integers(1_000, 9_000),
    offload=st.sampled_from(["auto", "never", "always"]),
    keep_errors=st.booleans(),
    preview_tokens=st.none() | st.integers(1, 900),
)


@given(rules=st.dictionaries(st.text(max_size=8), rules_, max_size=6))
def test_rules_come_back_from_json_in_their_order(rules: dict[str, ToolRule]) -> None:
    config = ContextConfig(tool_rules=rules)
    kept = json.loads(json.dumps(config_to_json(config)))
    for rule in kept["tool_rules"].values():
        rule["of a newer buoyline"] = 5
    assert config_from_json(kept) == config
    assert list(config_from_json(kept).tool_rules) == list(rules)


# The predicate.


# Agents and sessions.


@pytest.mark.parametrize("kind", ["local", "memory"])
async def test_two_windows_with_the_same_call_ids_see_nothing_of_each_other(tmp_path: Path, kind: str) -> None:
    workspace: Any = local(tmp_path) if kind == "local" else MemoryWorkspace()
    events: dict[str, list[Event]] = {"s1": [], "s2": []}
    windows = {name: opened(workspace, name, on_event=events[name].append) for name in events}
    turn = {name: [calls(("c", "run")), result("c", words(4_000, name))] for name in events}
    prepared = dict(zip(events, await asyncio.gather(*(shown(windows[n], turn[n]) for n in events)), strict=True))
    (first,), (second,) = events.values()
    assert isinstance(first, ResultOffloaded)
    assert isinstance(second, ResultOffloaded)

    assert first.path != second.path
    assert first.path in prepared["s1"][1]["content"]
    assert second.path not in prepared["s1"][1]["content"]
    # A text that is a stub in one session is text like any other in the other one.
    foreign = [calls(("d", "run")), result("d", prepared["s1"][1]["content"])]
    config = ContextConfig(tool_result_limit=300, preview_tokens=200)
    third = opened(workspace, "s3", config=config)
    assert (await shown(third, foreign))[1] != foreign[1]


async def test_a_text_that_looks_like_a_stub_is_offloaded_like_any_other(tmp_path: Path) -> None:
    forged = "[Tool result offloaded: 9 lines, 90 tokens. It was not lost.]\nWhole result: /nowhere\n\n" + words(4_000)
    prepared = await shown(opened(local(tmp_path)), [calls(("a", "run")), result("a", forged)])
    (path,) = tmp_path.rglob("tool_result-*")

    assert str(path) in prepared[1]["content"]
    assert path.read_text(encoding="utf-8") == forged


# What is read back.


def offloaded_path(message: Any) -> str:
    line: str = message["content"].splitlines()[1]
    return line.removeprefix("Whole result: ")


SPELLINGS = [
    '{"path": "PATH"}',
    """{"command": "cd / && sed -n '1,900p' 'PATH' | cat"}""",
    '{"edits": [{"of": {"file": "file://PATH"}}]}',
    '{"path": "ROOT/./sessions/x/..//s1/NAME"}',
    '{"path": "work/sessions/s1/NAME"}',
    '{"path": "NAME"}',
    '{"path": "NAME:1-900"}',
    "not JSON: PATH",
]


@pytest.mark.parametrize("spelling", SPELLINGS)
async def test_what_is_read_back_is_not_offloaded_again_however_the_call_is_spelled(
    tmp_path: Path, spelling: str
) -> None:
    window = opened(local(tmp_path))
    text = words(9_000)
    path = offloaded_path((await shown(window, [calls(("a", "run")), result("a", text)]))[1])
    spelled = spelling.replace("PATH", path).replace("NAME", Path(path).name).replace("ROOT", str(tmp_path))
    reading = [calls(("b", "read", spelled)), result("b", text[:20_000])]
    again = await shown(window, reading)

    assert COUNTER.count(text[:20_000]) > 3_000
    assert again[3] is reading[1]
    assert len(list(tmp_path.rglob("tool_result-*"))) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        {"path": "/elsewhere/sessions/s1/tool_result-a.txt"},
        {"path": "{root}/skills/tool.md"},
        {"path": "{root}/sessions/../notes.md"},
        {"path": "{root}x/sessions/s1/tool_result-a.txt"},
        {"path": "transcript.md"},
        {"path": "sessions/s2/tool_result-a.txt"},
        {"command": "echo sessions"},
    ],
)
async def test_what_only_looks_like_the_workspace_is_offloaded(tmp_path: Path, arguments: dict[str, str]) -> None:
    spelled = json.dumps({key: value.replace("{root}", str(tmp_path)) for key, value in arguments.items()})
    window = opened(local(tmp_path))
    assert is_stub((await shown(window, [calls(("a", "read", spelled)), result("a", words(4_000))]))[1])


async def test_a_result_that_names_a_file_of_the_workspace_is_not_read_back_by_that(tmp_path: Path) -> None:
    """The model's call counts, never what a tool says."""
    text = f"{tmp_path}/sessions/s1/tool_result-a.txt\n" + words(4_000)
    assert is_stub((await shown(opened(local(tmp_path)), [calls(("a", "run")), result("a", text)]))[1])


@pytest.mark.parametrize("kind", ["local", "memory"])
async def test_too_much_read_back_at_once_is_cut_to_a_notice_and_not_stored_again(tmp_path: Path, kind: str) -> None:
    workspace: Any = local(tmp_path) if kind == "local" else MemoryWorkspace()
    events: list[Event] = []
    window = opened(workspace, on_event=events.append, size=40_000)
    text = words(30_000)
    path = offloaded_path((await shown(window, [calls(("a", "run")), result("a", text)]))[1])
    reading = [calls(("b", "read", json.dumps({"path": path}))), result("b", text[1_000:])]
    again = await shown(window, reading)
    last = events[-1]

    assert isinstance(last, ResultOffloaded)
    assert (last.path, last.stub) == (path, again[3]["content"])
    assert COUNTER.count(again[3]["content"]) < 120
    assert path in again[3]["content"]
    assert kind == "memory" or len(list(tmp_path.rglob("tool_result-*"))) == 1
    assert again[:2] == (await window.prepare())[:2]


async def test_what_a_tool_has_made_of_a_file_is_stored_where_it_is_too_much(tmp_path: Path) -> None:
    """It stands nowhere else: nothing may be lost."""
    window = opened(local(tmp_path), size=40_000)
    text = words(30_000)
    path = offloaded_path((await shown(window, [calls(("a", "run")), result("a", text)]))[1])
    numbered = "".join(f"{number}\t{line}\n" for number, line in enumerate(text.splitlines(), 1))
    again = await shown(window, [calls(("b", "read", json.dumps({"path": path}))), result("b", numbered)])
    (made,) = tmp_path.rglob("tool_result-b.txt")

    assert is_stub(again[3])
    assert made.read_text(encoding="utf-8") == numbered


async def test_what_is_read_back_in_one_turn_takes_a_quarter_of_the_window_at_most(tmp_path: Path) -> None:
    window = opened(local(tmp_path), size=60_000)
    text = words(12_000)
    path = offloaded_path((await shown(window, [calls(("a", "run")), result("a", text)]))[1])
    reads = [(f"r{n}", "read", json.dumps({"path": path})) for n in range(4)]
    again = await shown(
        window, [calls(*reads, ("b", "ls")), *[result(r[0], text) for r in reads], result("b", words(2_000))]
    )

    read_back = again[3:7]
    assert [message["content"] == text for message in read_back] == [False, False, False, True]
    assert again[7]["content"] == words(2_000), "what is read back has a budget of its own"
    assert len(list(tmp_path.rglob("tool_result-*"))) == 1


@given(
    content=st.binary(max_size=40).map(lambda given: bytes(byte % 3 + 97 for byte in given)),
    text=st.text("abc", max_size=6),
    size=st.integers(1, 9),
)
def test_a_text_is_found_in_a_file_wherever_it_is_cut_into_chunks(content: bytes, text: str, size: int) -> None:
    chunks = [content[start : start + size] for start in range(0, len(content), size)]
    assert holds(chunks, text) is (text.encode() in content)


PLACES = ["/w", "sessions", "s1", "data", f"{'0' * 64}.png", "tool_result-a.txt", "tool_result-a.view.txt", "other.txt"]
PLACES += ["transcript.md", "context.jsonl", "..", "workspace:", "file:", ""]


@example(places=["transcript.md"], lines=":3")
@example(places=["tool_result-a.txt"], lines="")
@example(places=["data", f"{'0' * 64}.png"], lines="")
@example(places=["sessions", "s1", "context.jsonl"], lines="")
@given(places=st.lists(st.sampled_from(PLACES), max_size=6), lines=st.sampled_from(["", ":3", ":3-4"]))
def test_what_names_no_file_at_first_sight_names_none(places: list[str], lines: str) -> None:
    spelled = json.dumps({"command": f"cat {'/'.join(places)}{lines}"})
    escaped = spelled.replace("s", "\\u0073")
    for arguments in (spelled, escaped, "/".join(places)):
        assert may_name_a_file(arguments) or reference_in(arguments, ["/w"], "sessions/s1") == ""


@pytest.mark.parametrize("kind", ["local", "memory"])
async def test_a_workspace_knows_its_own_references_and_nothing_behind_a_foreign_one(tmp_path: Path, kind: str) -> None:
    workspace: Any = local(tmp_path) if kind == "local" else MemoryWorkspace()
    reference = await workspace.offload_tool_result("s1", result("a", "one\ntwo\n"))
    (tmp_path / "own.txt").write_text("one\ntwo\n", encoding="utf-8")

    assert workspace.reference_in("s1", json.dumps({"path": f"{reference}:1-2"})) == reference
    assert await workspace.holds(reference, "ne\nt")
    assert not await workspace.holds(reference, "three")
    for foreign in ("", f"{reference}.gone", f"{tmp_path}/sessions/../own.txt", "/etc/passwd", "memory:///nothing"):
        assert not await workspace.holds(foreign, "one")


async def test_lookups_are_exempt_by_a_rule(tmp_path: Path) -> None:
    rules = {"grep": ToolRule(offload="never")}
    window = opened(local(tmp_path), config=ContextConfig(tool_rules=rules))
    prepared = await shown(window, [calls(("a", "grep", '{"pattern": "x"}')), result("a", words(4_000))])
    assert not is_stub(prepared[1])


class Bucket:
    """An offloader of the two methods only."""

    async def offload_context(self, session_id: str, msgs: list[Any], **_: Any) -> str:
        return f"s3://bucket/{session_id}"

    async def offload_tool_result(self, session_id: str, tool_result: Any, **_: Any) -> str:
        return f"s3://bucket/{session_id}/{tool_result.call_id}"


async def test_what_a_plain_offloader_has_named_is_not_offloaded_again() -> None:
    window = opened(Bucket())
    turn = [calls(("a", "run")), result("a", words(4_000))]
    reading = [calls(("b", "fetch", '{"url": "s3://bucket/s1/a"}')), result("b", words(4_000))]
    prepared = await shown(window, [*turn])
    assert is_stub(prepared[1])
    assert (await shown(window, reading))[3] is reading[1]


# Decided once.

LIMIT, TURN_LIMIT, PREVIEW = 600, 1_500, 250


@st.composite
def conversations(draw: st.DrawFn) -> list[list[dict[str, Any]]]:
    """Draw turns: what the model says and calls, and the results."""
    turns = []
    for turn in range(draw(st.integers(1, 5))):
        lengths = draw(st.lists(st.sampled_from([0, 40, 180, 260, 420, 590, 700, 2_000]), min_size=0, max_size=7))
        names = [draw(st.sampled_from(["run", "keep", "all"])) for _ in lengths]
        same = draw(st.booleans())
        ids = ["x" if same else f"c{turn}_{n}" for n in range(len(lengths))]
        said = calls(*zip(ids, names, strict=True)) if ids else {"role": "assistant", "content": "well"}
        results = [result(i, words(length, f"w{turn}")) for i, length in zip(ids, lengths, strict=True)]
        turns.append([said, *results, *([{"role": "user", "content": "go on"}] if draw(st.booleans()) else [])])
    return turns


@examples(20, 60)
@given(turns=conversations(), data=st.data())
def test_every_result_is_decided_once_and_each_turn_keeps_to_its_budget(
    turns: list[list[dict[str, Any]]], data: st.DataObject
) -> None:
    asyncio.run(_live(turns, data))


async def _live(turns: list[list[dict[str, Any]]], data: st.DataObject) -> None:
    """Feed *turns* with random calls in between; what is handed out only ever grows."""
    rules = {"keep": ToolRule(offload="never"), "all": ToolRule(offload="always")}
    config = ContextConfig(
        tool_result_limit=LIMIT, turn_results_limit=TURN_LIMIT, preview_tokens=PREVIEW, tool_rules=rules
    )
    events: list[Event] = []
    options: dict[str, Any] = {"on_event": events.append}
    workspace = MemoryWorkspace(evict_after_turns=None)
    window = opened(workspace, config=config, size=10_000_000, **options)
    handed: list[str] = []
    for turn in turns:
        was_shown = False
        for message in turn:
            await window.add(message)
            step = data.draw(st.sampled_from(["", "", "", "", "prepare", "save", "resume", "compress"]))
            was_shown = was_shown or bool(step)
            if step == "save":
                await window.save()
            if step in {"prepare", "resume", "compress"}:
                handed = _extended(handed, await window.prepare())
            if step == "resume":
                window = await ContextWindow.resume(workspace, "s1", **options)
            if step == "compress" and await window.compress(force=True) is not None:
                handed = [json.dumps(found) for found in window.messages]
        handed = _extended(handed, await window.prepare())
        if not was_shown:
            _check_turn(turn, window)
    stubs = [event for event in events if isinstance(event, ResultOffloaded)]
    assert len({(event.message, event.call_id) for event in stubs}) == len(stubs)
    assert all(event.stub_tokens < event.tokens for event in stubs)


def _extended(handed: list[str], messages: Sequence[Any]) -> list[str]:
    now = [json.dumps(message) for message in messages]
    assert now[: len(handed)] == handed
    return now


def _check_turn(turn: list[dict[str, Any]], window: ContextWindow) -> None:
    """Within the budget, or nothing that may leave is left but notices and what is too small."""
    shown_texts = texts_of(window.messages[-len(turn) :])
    if sum(map(COUNTER.count, shown_texts)) <= TURN_LIMIT:
        return
    names = [found["function"]["name"] for found in turn[0]["tool_calls"]]
    for text, name in zip(shown_texts, names, strict=True):
        tokens = COUNTER.count(text)
        assert name == "keep" or tokens <= LEAST_USEFUL_TOKENS or text == bare_stub(text)


@pytest.mark.parametrize(("step", "least_saved"), [(5, 500_000 / 5), pytest.param(1, 500_000, marks=pytest.mark.slow)])
async def test_every_recorded_session_keeps_to_the_budget_and_no_stub_grows(
    shared_data: Path, tmp_path: Path, step: int, least_saved: float
) -> None:
    saved = 0
    for path in sorted((shared_data / "sessions").glob("*.jsonl"))[::step]:
        conversation = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        seen, workspace = Replay(), local(tmp_path)
        window = ContextWindow(session_id=path.stem, offloader=workspace, on_event=seen.record)
        await replay(conversation, window, seen, counter=COUNTER)
        await workspace.close()

        assert max(seen.turn_tokens) <= window.config.turn_limit(window.size)
        assert all(event.stub_tokens < event.tokens for event in seen.offloaded)
        assert len({event.stub for event in seen.offloaded}) == len(seen.offloaded)
        saved += seen.saved_tokens
    assert saved > least_saved
