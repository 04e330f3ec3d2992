"""Which tool results leave the context: limits of one result and of a turn, rules, and what is read back."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from window_lives import result

from buoyline import ContextConfig, ContextWindow, MemoryWorkspace, ToolRule
from buoyline.messages.registry import detect
from buoyline.offloader.stub import LEAST_STUB_TOKENS, WORTH_OFFLOADING_TOKENS
from buoyline.tokens import default_counter
from buoyline.window import Event, ResultOffloaded

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


async def opened(workspace: Any = None, **options: Any) -> ContextWindow:
    return await ContextWindow.open(workspace or MemoryWorkspace(), "s1", **options)


async def shown(window: ContextWindow, messages: Sequence[Any]) -> list[Any]:
    await window.extend(messages)
    return window.messages


def is_stub(message: Any) -> bool:
    content: str = message["content"]
    return content.startswith("[Tool result offloaded")


def texts_of(messages: Sequence[Any]) -> list[str]:
    return [found.text for message in messages for found in detect(message).view(message).results]


# The limit of a turn.


async def test_a_turn_begins_anew_when_the_model_has_spoken() -> None:
    window = await opened()
    for turn in range(4):
        ids = [f"c{turn}{n}" for n in range(4)]
        turned = await shown(window, [calls(*[(i, "run") for i in ids]), *[result(i, words(2_500)) for i in ids]])
        assert not any(is_stub(message) for message in turned if message["role"] == "tool")


async def test_a_turn_of_one_anthropic_message_has_the_same_limit() -> None:
    blocks = [{"type": "tool_result", "tool_use_id": f"t{n}", "content": words(2_500)} for n in range(10)]
    uses = [{"type": "tool_use", "id": f"t{n}", "name": "run", "input": {}} for n in range(10)]
    found = await shown(await opened(), [{"role": "assistant", "content": uses}, {"role": "user", "content": blocks}])
    assert sum(map(COUNTER.count, texts_of(found))) <= 12_000 + 6 * WORTH_OFFLOADING_TOKENS


async def test_the_limit_of_a_turn_holds_when_another_process_goes_on_amid_it() -> None:
    workspace, config = MemoryWorkspace(), ContextConfig(turn_results_limit=5_000)
    first = await shown(
        await opened(workspace, config=config), [calls(("a", "run"), ("b", "run")), result("a", words(2_900))]
    )
    second = await shown(await opened(workspace), [result("b", words(2_800))])
    assert second[:2] == first
    assert is_stub(second[2])


# Rules.


async def test_rules_give_tools_limits_of_their_own_by_name_or_pattern_and_the_first_that_matches_holds() -> None:
    rules = {"read": ToolRule(limit=6_000), "mcp__*": ToolRule(limit=500), "*": ToolRule(offload="never")}
    window = await opened(config=ContextConfig(tool_rules=rules))
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
    window = await opened(str(tmp_path), config=ContextConfig(tool_rules={"run": ToolRule(offload="always")}))
    turn = [calls(("a", "run"), ("b", "run"), ("c", "read"))]
    found = await shown(window, [*turn, result("a", words(400)), result("b", "ok"), result("c", words(400))])
    assert [is_stub(message) for message in found[1:]] == [True, False, False]


async def test_a_rule_holds_for_a_result_whose_call_another_process_added() -> None:
    workspace = MemoryWorkspace()
    config = ContextConfig(tool_rules={"b*": ToolRule(limit=100), "read": ToolRule(offload="never")})
    await shown(await opened(workspace, config=config), [calls(("a", "read"), ("b", "run"))])
    found = await shown(await opened(workspace), [result("a", words(4_000)), result("b", words(4_000))])
    assert [is_stub(message) for message in found[1:]] == [False, True]


async def test_what_never_leaves_does_leave_if_the_context_does_not_fit_but_after_all_else() -> None:
    config = ContextConfig(tool_rules={"read": ToolRule(offload="never")})
    window = await opened(config=config, size=8_000)
    await window.extend([calls(("a", "read"), ("b", "run")), result("a", words(6_500)), result("b", words(2_900))])
    assert [is_stub(message) for message in (await window.prepare())[1:]] == [False, True]

    alone = await opened(config=config, size=8_000)
    await alone.extend([calls(("a", "read")), result("a", words(20_000))])
    assert is_stub((await alone.prepare())[1])
    assert alone.tokens <= 8_000


async def test_a_refused_request_makes_room_at_the_cost_of_a_rule_if_nothing_else_can() -> None:
    window = await opened(config=ContextConfig(tool_rules={"*": ToolRule(offload="never")}))
    await window.extend([calls(("a", "read")), result("a", words(20_000))])
    assert is_stub((await window.recover_from_overflow())[1])


# Agents and sessions.


async def test_a_text_that_looks_like_a_stub_is_offloaded_like_any_other(tmp_path: Path) -> None:
    forged = "[Tool result offloaded: 9 lines, 90 tokens. It was not lost.]\nWhole result: /nowhere\n\n" + words(4_000)
    found = await shown(await opened(str(tmp_path)), [calls(("a", "run")), result("a", forged)])
    (path,) = tmp_path.rglob("tool_result-*")
    assert str(path) in found[1]["content"]
    assert path.read_text(encoding="utf-8") == forged


# Decided once.

LIMIT, TURN_LIMIT, PREVIEW = 600, 1_500, 250


@st.composite
def conversations(draw: st.DrawFn) -> list[list[dict[str, Any]]]:
    """Draw turns: what the model says and calls, and the results."""
    turns = []
    for turn in range(draw(st.integers(1, 5))):
        lengths = draw(st.lists(st.sampled_from([0, 40, 180, 260, 420, 590, 700, 2_000]), min_size=1, max_size=7))
        names = [draw(st.sampled_from(["run", "keep", "all"])) for _ in lengths]
        ids = [f"c{turn}_{n}" for n in range(len(lengths))]
        results = [result(i, words(length, f"w{turn}")) for i, length in zip(ids, lengths, strict=True)]
        turns.append([calls(*zip(ids, names, strict=True)), *results])
    return turns


@given(turns=conversations(), data=st.data())
async def test_every_result_is_decided_once_and_each_turn_keeps_to_its_limit(
    turns: list[list[dict[str, Any]]], data: st.DataObject
) -> None:
    rules = {"keep": ToolRule(offload="never"), "all": ToolRule(offload="always")}
    config = ContextConfig(
        tool_result_limit=LIMIT, turn_results_limit=TURN_LIMIT, preview_tokens=PREVIEW, tool_rules=rules
    )
    events: list[Event] = []
    workspace = MemoryWorkspace()
    window = await opened(workspace, config=config, size=10_000_000, on_event=events.append)
    handed: list[Any] = []
    for turn in turns:
        for message in turn:
            await window.add(message)
            if data.draw(st.booleans()):
                window = await opened(workspace, on_event=events.append)
        assert window.messages[: len(handed)] == handed
        handed = await window.prepare()
        room = TURN_LIMIT
        for text, call in zip(texts_of(handed[-len(turn) + 1 :]), turn[0]["tool_calls"], strict=True):
            tokens, name = COUNTER.count(text), call["function"]["name"]
            is_whole = not text.startswith("[Tool result offloaded")
            if is_whole and name != "keep":
                assert tokens <= LIMIT
                assert tokens <= max(room, 2 * LEAST_STUB_TOKENS)
            room -= tokens
    stubs = [event for event in events if isinstance(event, ResultOffloaded)]
    assert len({(event.message, event.call_id) for event in stubs}) == len(stubs)
    assert all(event.stub_tokens < event.tokens for event in stubs)
