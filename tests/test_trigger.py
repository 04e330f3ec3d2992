"""``trigger_ratio="auto"``: the context is compacted where the session costs least."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from window_forms import words

from buoyline import ContextConfig, ContextWindow, LocalWorkspace
from buoyline.cli import main
from buoyline.compression.extractive.summarizer import Extractive
from buoyline.compression.trigger import cheapest_limits
from buoyline.errors import ConfigError
from buoyline.management.settings import from_context_config
from buoyline.tokens.usage import Prices
from buoyline.window import ContextCompressed

PRICES = ContextConfig().prices
FREE_OF_REPEATS = Prices(input=1, output=5, cached=0, cache_write=1.25)
WITHOUT_CACHE = Prices(input=1, output=5)


def bill(trigger: float, fixed: int, rewritten: float, growth: int, request: float) -> float:
    """Return what a call costs in the mean, added up call by call between two compactions."""
    tokens, costs = fixed + rewritten, [0.1 * fixed + 1.25 * rewritten + request]
    while tokens + growth <= trigger:
        costs.append(0.1 * tokens + 1.25 * growth)
        tokens += growth
    return sum(costs) / len(costs)


@given(
    fixed=st.integers(0, 20_000),
    growth=st.integers(100, 2_000),
    summary=st.integers(300, 4_000),
    asks_model=st.booleans(),
)
def test_no_other_trigger_costs_less(fixed: int, growth: int, summary: int, *, asks_model: bool) -> None:
    limits = cheapest_limits(PRICES, growth, fixed, summary, math.inf, asks_model=asks_model)
    rewritten = summary + limits.kept
    request = fixed + rewritten + 5 * summary if asks_model else 0
    least = fixed + rewritten
    others = [bill(least + growth * turns, fixed, rewritten, growth, request) for turns in range(1, 400)]
    at_least_as_much_as_is_kept = [
        cost for turns, cost in enumerate(others, 1) if growth * turns >= limits.kept - growth
    ]
    assert bill(limits.trigger, fixed, rewritten, growth, request) <= 1.02 * min(at_least_as_much_as_is_kept)


def test_without_a_request_the_optimum_is_that_of_the_formula() -> None:
    limits = cheapest_limits(PRICES, 1_000, 0, 2_400, 4_000, asks_model=False)
    assert limits.kept == 4_000
    assert limits.trigger == pytest.approx(6_400 + math.sqrt(23 * 6_400 * 1_000))


def test_three_turns_are_kept_and_in_a_small_window_no_more_than_the_reserve() -> None:
    assert cheapest_limits(PRICES, 3_000, 0, 0, 800, asks_model=False).kept == 9_000
    assert cheapest_limits(PRICES, 100, 0, 0, 800, asks_model=False).kept == 800


def test_a_summary_by_a_model_comes_later_and_free_cached_input_never_asks_for_one() -> None:
    triggers = [cheapest_limits(PRICES, 500, 1_000, 2_000, 4_000, asks_model=asks).trigger for asks in (False, True)]
    assert triggers[0] < triggers[1]
    assert cheapest_limits(FREE_OF_REPEATS, 500, 0, 0, 4_000, asks_model=False).trigger == math.inf


def test_without_a_prompt_cache_as_much_is_added_as_was_kept() -> None:
    limits = cheapest_limits(WITHOUT_CACHE, 500, 1_000, 2_000, 4_000, asks_model=False)
    assert limits.trigger == 1_000 + 2_000 + 2 * limits.kept


async def peak_of(window: ContextWindow, turns: int, tokens: int = 300) -> int:
    """Return the most tokens of a request in a conversation of so many *turns*."""
    peak = 0
    for turn in range(turns):
        await window.add({"role": "user", "content": f"{turn}: {words(tokens)}"})
        await window.prepare()
        peak = max(peak, window.tokens)
        await window.add({"role": "assistant", "content": "Done."})
    return peak


def opened(workdir: Path, config: ContextConfig, **options: Any) -> ContextWindow:
    workspace = LocalWorkspace(workdir, durability="off")
    return ContextWindow(session_id="s1", offloader=workspace, size=100_000, config=config, **options)


async def test_a_context_is_compacted_where_it_costs_least(tmp_path: Path) -> None:
    seen: list[Any] = []
    window = opened(tmp_path, ContextConfig(trigger_ratio="auto"), on_event=seen.append)
    peak = await peak_of(window, 120)
    assert 10_000 < peak < 30_000
    assert sum(isinstance(event, ContextCompressed) for event in seen) > 1
    for event in (event for event in seen if isinstance(event, ContextCompressed)):
        assert event.tokens_after >= 4_000


async def test_before_six_turns_the_largest_trigger_holds(tmp_path: Path) -> None:
    window = opened(tmp_path, ContextConfig(trigger_ratio="auto"))
    assert await peak_of(window, 5, tokens=12_000) > 50_000


async def test_a_window_too_small_for_the_cheapest_trigger_has_the_largest_with_its_reserve(tmp_path: Path) -> None:
    events: dict[str, list[Any]] = {"auto": [], "fixed": []}
    for name, seen in events.items():
        config = ContextConfig(trigger_ratio="auto") if name == "auto" else ContextConfig()
        workspace = LocalWorkspace(tmp_path / name, durability="off", shown_as="/w")
        window = ContextWindow(session_id="s1", offloader=workspace, size=6_000, config=config, on_event=seen.append)
        await peak_of(window, 60)
    compactions = [
        [(event.tokens_before, event.tokens_after) for event in seen if isinstance(event, ContextCompressed)]
        for seen in events.values()
    ]
    assert len(compactions[0]) > 1
    assert compactions[0] == compactions[1]


async def test_a_resumed_session_goes_on_with_its_prices(tmp_path: Path) -> None:
    config = ContextConfig(trigger_ratio="auto", prices=WITHOUT_CACHE)
    await peak_of(opened(tmp_path, config), 3)
    window = await ContextWindow.resume(LocalWorkspace(tmp_path, durability="off"), "s1")
    assert window.config == config


async def test_older_readers_find_the_largest_trigger_in_the_settings(tmp_path: Path) -> None:
    for name, config, has_prices in (
        ("auto", ContextConfig(trigger_ratio="auto"), True),
        ("fixed", ContextConfig(), False),
    ):
        await peak_of(opened(tmp_path / name, config), 1)
        records = (tmp_path / name / "sessions/s1/journal.jsonl").read_text("utf-8").splitlines()
        (kept,) = (record["settings"]["config"] for record in map(json.loads, records) if record["op"] == "settings")
        assert kept["trigger_ratio"] == 0.8
        assert ("prices" in kept) is has_prices


def test_the_extractive_summarizer_asks_no_model(tmp_path: Path) -> None:
    async def summarize(_: str) -> str:
        return ""

    config = ContextConfig(trigger_ratio="auto")
    asking = [
        opened(tmp_path, config, summarizer=summarizer)._context.budget.asks_model  # pyright: ignore[reportPrivateUsage]
        for summarizer in (None, Extractive(), summarize)
    ]
    assert asking == [False, False, True]


def test_a_document_cannot_choose_its_trigger() -> None:
    with pytest.raises(ConfigError, match="trigger_ratio"):
        from_context_config(ContextConfig(trigger_ratio="auto"))


def test_another_word_is_no_trigger() -> None:
    with pytest.raises(ConfigError, match="trigger_ratio: must be a number"):
        ContextConfig(trigger_ratio="often")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match="prices: tuple is not a table"):
        ContextConfig(prices=(1, 5))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_replay_takes_a_share_or_auto(tmp_path: Path) -> None:
    recording = tmp_path / "r.jsonl"
    recording.write_text('{"role": "user", "content": "hello"}\n', "utf-8")
    for trigger, problem in (("auto", ""), ("0.4", ""), ("often", "neither auto nor a share"), ("0.95", "at most 0.9")):
        ran = CliRunner().invoke(
            main, ["replay", str(recording), "--workdir", str(tmp_path / trigger), "--trigger", trigger]
        )
        assert ran.exit_code == (2 if problem else 0)
        assert problem in ran.output
