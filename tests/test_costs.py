"""What a provider's prompt cache could reuse of each request, and what requests cost."""

import json
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from buoyline.cli import main
from buoyline.compression import ContextConfig
from buoyline.inspect.replay import (
    Cost,
    Prices,
    Replay,
    RequestCost,
    Requests,
    appended,
    cost_of,
    replay,
    shared_prefix,
)
from buoyline.messages import Message, Text, spell
from buoyline.testing.suites import long_conversation, said
from buoyline.tokens import default_counter
from buoyline.tokens.counter import count_message
from buoyline.window import ContextWindow
from buoyline.workspace import MemoryWorkspace

COUNTER = default_counter()


def tokens(text: str) -> int:
    return count_message(Message("user", (Text(text),)), COUNTER)


def test_what_two_requests_begin_with_is_reused_and_nothing_behind_it() -> None:
    requests = Requests(COUNTER)
    one, two, three = (said(word) for word in ("one", "two", "three"))
    assert requests.note([one, two, three]) == RequestCost(3, 0, tokens("one") + tokens("two") + tokens("three"), 0)
    summary = said("a summary of two")
    found = requests.note([one, summary, three])
    assert (found.reused_messages, found.reused_tokens) == (1, tokens("one"))
    assert requests.note([one, summary, three]).reused_tokens == found.tokens


def test_equal_messages_are_reused_as_the_same_objects_are() -> None:
    requests = Requests(COUNTER)
    requests.note([said("one"), said("two")])
    assert requests.note([said("one"), said("two"), said("three")]).reused_messages == 2


def test_what_stands_before_the_messages_is_reused_from_the_second_request_on() -> None:
    requests = Requests(COUNTER)
    system, one = 1_000, said("one")
    assert requests.note([one], system + tokens("one")).reused_tokens == 0
    assert requests.note([said("other")], system + tokens("other")).reused_tokens == system
    assert requests.note([], system).reused_tokens == system


@given(st.lists(st.lists(st.sampled_from("abcd"), max_size=6), min_size=1, max_size=6))
def test_what_is_reused_is_never_more_than_either_request(contexts: Sequence[Sequence[str]]) -> None:
    requests, previous = Requests(COUNTER), list[dict[str, Any]]()
    for context in contexts:
        messages = [said(letter) for letter in context]
        found = requests.note(messages)
        shared = shared_prefix(previous, messages)
        assert previous[:shared] == messages[:shared]
        assert previous[shared : shared + 1] != messages[shared : shared + 1] or shared == len(previous) == len(
            messages
        )
        assert found.reused_messages == shared
        assert found.reused_tokens == sum(tokens(letter) for letter in context[:shared])
        assert found.tokens == sum(map(tokens, context))
        previous = messages


@given(st.lists(st.text("abc ", min_size=1), min_size=1, max_size=8))
def test_a_context_that_only_grows_reuses_all_that_was_before(words: Sequence[str]) -> None:
    messages = [said(word) for word in words]
    requests = Requests(COUNTER)
    found = [requests.note(messages[:end]) for end in range(1, len(messages) + 1)]
    expected = appended([request.tokens for request in found])
    assert [(r.tokens, r.reused_tokens) for r in found] == [(r.tokens, r.reused_tokens) for r in expected]


def test_a_cost_is_that_of_new_input_cached_input_and_output() -> None:
    requests = [RequestCost(1, 0, 1_000_000, 0), RequestCost(2, 1, 1_500_000, 1_000_000)]
    assert cost_of(requests, 100_000, Prices(3, 15, cached=0.3)) == Cost(1_500_000, 1_000_000, 100_000, 6.3)
    assert cost_of(requests, 0, Prices(3, 15)).amount == 7.5
    assert cost_of(requests, 0, Prices(3, 15, cached=0, cache_write=4)).amount == 6.0
    assert cost_of([], 0, Prices(3, 15)) == Cost(0, 0, 0, 0.0)


async def test_between_compressions_all_that_was_sent_before_is_reused() -> None:
    seen = Replay()
    config = ContextConfig(tool_result_limit=400, preview_tokens=200)
    window = await ContextWindow.open(
        MemoryWorkspace(), "s", size=5_000, config=config, system="Answer.", on_event=seen.record
    )
    await replay(long_conversation(40), window, seen, counter=COUNTER)
    requests = seen.requests
    assert [request.tokens for request in requests] == seen.step_tokens
    broken = [now for before, now in pairwise(requests) if now.reused_tokens < before.tokens]
    assert len(broken) == len(seen.compressions) > 1
    assert all(request.reused_tokens > 0 for request in requests[1:])  # the system prompt stays
    answers = [message for message in long_conversation(40) if message["role"] == "assistant"]
    assert len(requests) == len(answers)
    assert seen.output_tokens > tokens("Answer 1: number 59, at 119 fathoms.") * 40


def replayed(tmp_path: Path, *args: str) -> Any:
    path = tmp_path / "run.jsonl"
    path.write_text("".join(spell(message) + "\n" for message in long_conversation(40)), encoding="utf-8")
    command = ["replay", str(path), "--workdir", str(tmp_path / "w"), "--context-size", "8000", *args]
    return CliRunner().invoke(main, command)


def test_a_replay_reports_what_each_request_reuses_and_what_the_session_cost(tmp_path: Path) -> None:
    prices = ("--price-input", "3", "--price-cached", "0.3", "--price-output", "15")
    result = replayed(tmp_path, *prices, "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    report = json.loads(result.stdout)
    assert report["cost"]["prices"] == {"input": 3.0, "output": 15, "cached": 0.3, "cache_write": None}
    for kind, suffix in (("managed", ""), ("unmanaged", "_unmanaged")):
        found = report["cost"][kind]
        cached = report[f"reusable_tokens{suffix}"]
        assert found["cached_tokens"] == cached
        assert found["input_tokens"] + cached == report[f"sent_tokens{suffix}"]
        expected = (3 * found["input_tokens"] + 0.3 * cached + 15 * report["output_tokens"]) / 1_000_000
        assert found["amount"] == pytest.approx(expected)
    assert report["exceeding_steps_unmanaged"] > 0


def test_in_words_a_replay_says_what_its_costs_assume(tmp_path: Path) -> None:
    shown = replayed(tmp_path, "--price-input", "3", "--price-output", "15").stdout
    heading, row, _, cached = shown.splitlines()[:4]
    assert heading.split()[-3:] == ["cost", "without", "buoyline"]
    ours, without = (float(amount) for amount in row.split()[-2:])
    assert 0 < ours < without
    assert re.fullmatch(r"A provider's prompt cache can serve [0-9]+% of these tokens \(.* 9[0-9]%\)\.", cached)
    assert "Costs: a cache that keeps everything" in shown


def test_without_prices_a_replay_says_what_a_cache_serves_and_how_to_get_costs(tmp_path: Path) -> None:
    shown = replayed(tmp_path).stdout
    assert "prompt cache can serve" in shown
    assert "For costs, give prices: --price-input and --price-output" in shown
    assert "Costs:" not in shown


@pytest.mark.parametrize(
    ("args", "problem"),
    [(["--price-input", "3"], "need both"), (["--price-input", "-3", "--price-output", "15"], "'--price-input'")],
)
def test_bad_prices_end_a_replay_before_anything_is_written(tmp_path: Path, args: list[str], problem: str) -> None:
    result = replayed(tmp_path, *args)
    assert result.exit_code == 2
    assert problem in result.stderr
    assert not (tmp_path / "w").exists()


async def test_recorded_sessions_reuse_all_but_what_a_compression_changed(shared_data: Path) -> None:
    path = min((shared_data / "sessions").glob("cc_entire_*.jsonl"), key=lambda found: found.stat().st_size)
    conversation = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    seen = Replay()
    window = await ContextWindow.open(MemoryWorkspace(), "s", size=16_000, on_event=seen.record)
    await replay(conversation, window, seen, counter=COUNTER)
    broken = [now for before, now in pairwise(seen.requests) if now.reused_tokens < before.tokens]
    assert len(broken) <= len(seen.compressions) + len(seen.exceeding)
