"""When a context is compacted: above a share of the window, or with ``"auto"`` above a number of tokens."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from window_forms import words

from buoyline import ContextConfig, ContextWindow, MemoryWorkspace
from buoyline.cli import main
from buoyline.errors import ConfigError


async def largest_request(config: ContextConfig | None, size: int) -> int:
    """Return the most tokens of a request in a long conversation; its kept messages take up to a tenth of *size*."""
    window = await ContextWindow.open(MemoryWorkspace(), "s1", size=size, config=config)
    largest = 0
    for turn in range(150):
        await window.add({"role": "user", "content": f"{turn}: {words(300)}"})
        await window.prepare()
        largest = max(largest, window.tokens)
        await window.add({"role": "assistant", "content": "Done."})
    return largest


async def test_without_a_configuration_a_context_may_fill_four_fifths_of_the_window() -> None:
    assert 0.75 * 32_000 < await largest_request(None, 32_000) <= 0.8 * 32_000


async def test_with_auto_12_000_tokens_are_added_to_what_a_compaction_leaves_or_less_in_a_small_window() -> None:
    auto = ContextConfig(trigger_ratio="auto")
    summary_tokens = auto.summary_limit(64_000)
    assert 14_000 < await largest_request(auto, 64_000) <= 12_000 + 6_400 + summary_tokens
    assert 0.75 * 8_000 < await largest_request(auto, 8_000) <= 0.8 * 8_000


async def test_another_process_goes_on_with_auto() -> None:
    workspace, config = MemoryWorkspace(), ContextConfig(trigger_ratio="auto")
    window = await ContextWindow.open(workspace, "s1", config=config)
    await window.add({"role": "user", "content": "hello"})
    await window.compress(before=1)
    settings = workspace.stored("s1").state.settings
    assert settings is not None
    assert settings["config"]["trigger_ratio"] == "auto"


def test_another_word_is_no_trigger() -> None:
    with pytest.raises(ConfigError, match="trigger_ratio: must be a number"):
        ContextConfig(trigger_ratio="often")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("trigger", "problem"), [("auto", ""), ("0.4", ""), ("often", "neither auto nor a share"), ("0.95", "at most 0.9")]
)
def test_replay_takes_a_share_or_auto(tmp_path: Path, trigger: str, problem: str) -> None:
    recording = tmp_path / "r.jsonl"
    recording.write_text('{"role": "user", "content": "hello"}\n', "utf-8")
    ran = CliRunner().invoke(main, ["replay", str(recording), "--workdir", str(tmp_path / "w"), "--trigger", trigger])
    assert ran.exit_code == (2 if problem else 0)
    assert problem in ran.output
