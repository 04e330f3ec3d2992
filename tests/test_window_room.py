"""Room for the model's answer, beside all that is sent."""

from pathlib import Path
from typing import Any

import pytest
from window_forms import FORMS, NAMES, Form, words

from buoyline import ContextConfig, ContextWindow, LocalWorkspace
from buoyline.errors import ConfigError, ContextOverflowError


def opened(workdir: Path, **options: Any) -> ContextWindow:
    return ContextWindow(session_id="s1", offloader=LocalWorkspace(workdir, durability="off"), **options)


async def filled_to(window: ContextWindow, tokens: int) -> ContextWindow:
    while window.tokens < tokens:
        await window.add(FORMS[0].user(f"{window.added}: {words(12)}"))
    return window


async def test_the_answer_counts_where_a_context_is_compressed(tmp_path: Path) -> None:
    for output, tokens, is_compressed in ((0, 3_100, False), (1_000, 3_100, True), (1_000, 2_100, False)):
        workdir = tmp_path / f"{output}-{tokens}"
        window = await filled_to(opened(workdir, size=4_000, max_output_tokens=output), tokens)
        count = window.added
        assert (len(await window.prepare()) < count) is is_compressed


async def test_after_a_compression_context_and_answer_are_below_the_trigger(tmp_path: Path) -> None:
    window = opened(tmp_path, size=4_000, max_output_tokens=1_500, system=words(100))
    for _ in range(120):
        await window.add(FORMS[0].user(words(12)))
        await window.prepare()
        assert window.tokens + 1_500 <= 0.8 * 4_000


async def test_results_shrink_until_the_answer_has_its_room(tmp_path: Path) -> None:
    config = ContextConfig(tool_result_limit=3_000, turn_results_limit=9_000)
    window = opened(tmp_path, size=4_000, max_output_tokens=3_000, config=config)
    await window.add(FORMS[0].calling("a", "b"))
    for message in FORMS[0].answering({"a": [words(450)], "b": [words(450)]}):
        await window.add(message)
    await window.prepare()
    assert window.tokens <= 1_000
    assert window.exceeding() == []


@pytest.mark.parametrize("form", FORMS, ids=NAMES)
async def test_a_message_that_leaves_no_room_for_the_answer_is_handed_out_and_named(tmp_path: Path, form: Form) -> None:
    window = opened(tmp_path, size=4_000, max_output_tokens=3_000, dialect=form.name)
    await window.add(form.user(words(800)))
    assert len(await window.prepare()) == 1
    assert [index for index, _ in window.exceeding()] == [0]
    assert len(await window.prepare()) == 1


async def test_a_system_prompt_that_leaves_no_room_for_the_answer_is_a_clear_error(tmp_path: Path) -> None:
    window = opened(tmp_path / "w", size=4_000, max_output_tokens=3_000, system=words(600))
    with pytest.raises(ContextOverflowError, match="beside an answer of 3,000 tokens"):
        await window.prepare()
    assert not (tmp_path / "w").exists()


async def test_a_system_prompt_that_fills_most_of_the_window_lets_messages_gather_between_compressions(
    tmp_path: Path,
) -> None:
    window, cuts = opened(tmp_path, size=8_000, system=words(2_400)), []
    assert window.tokens > 0.55 * 8_000
    for _ in range(80):
        await window.add(FORMS[0].user(words(12)))
        await window.prepare()
        cuts.append(window._context.whole.messages.first)
        assert window.tokens <= 8_000
    assert len(set(cuts)) < len(cuts) / 3


@pytest.mark.parametrize(
    ("model", "options", "room"),
    [
        (None, {}, 0),
        ("claude-sonnet-4-5", {}, 20_000),
        ("gpt-4o", {}, 12_800),
        ("gpt-4-turbo", {}, 4_096),
        ("gpt-4o", {"size": 10_000}, 1_000),
        ("gpt-4o", {"max_output_tokens": 0}, 0),
        ("gpt-4o", {"max_output_tokens": 5_000}, 5_000),
    ],
)
def test_the_room_is_what_the_model_answers_at_most_and_no_more_than_a_tenth(
    tmp_path: Path, model: str | None, options: dict[str, Any], room: int
) -> None:
    assert opened(tmp_path, model=model, **options).max_output_tokens == room


@pytest.mark.parametrize("room", [-1, 3_200, 4_000, 1.5, "1k", True])
def test_a_room_that_cannot_be_is_refused(tmp_path: Path, room: Any) -> None:
    with pytest.raises(ConfigError, match="max_output_tokens"):
        opened(tmp_path, size=4_000, max_output_tokens=room)


async def test_another_process_keeps_the_same_room(tmp_path: Path) -> None:
    window = opened(tmp_path, size=4_000, max_output_tokens=700)
    await window.add(FORMS[0].user("hello"))
    await window.save()
    workspace = LocalWorkspace(tmp_path, durability="off")
    assert (await ContextWindow.resume(workspace, "s1")).max_output_tokens == 700
    assert (await ContextWindow.resume(workspace, "s1", max_output_tokens=0)).max_output_tokens == 0
