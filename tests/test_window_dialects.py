"""What every window has to bear, in every dialect: none of it loops, parts a pair, or touches what stays."""

from pathlib import Path
from typing import Any

import pytest
from window_forms import FORMS, NAMES, Form, spelled, view, words

from buoyline import ContextWindow, LocalWorkspace
from buoyline.compression.plan import pair_spans
from buoyline.errors import ContextOverflowError

pytestmark = pytest.mark.parametrize("form", FORMS, ids=NAMES)

SIZE = 3_000


def opened(workdir: Path, form: Form, **options: Any) -> ContextWindow:
    workspace = LocalWorkspace(workdir, durability="off")
    return ContextWindow(**{"session_id": "s1", "offloader": workspace, "size": SIZE, "dialect": form.name, **options})


async def held(window: ContextWindow) -> list[Any]:
    """Return all messages of the session: those that are archived, then those in the context."""
    first = window._context.whole.messages.first
    workspace: Any = window._engine.compaction.compressor._offloader
    stored = [message for _, message in await workspace.load_messages("s1", 0, first)] if first else []
    return [*stored, *(entry.native for entry in window._context.whole.messages)]


def has_whole_pairs(form: Form, window: ContextWindow, sent: list[Any]) -> bool:
    cut = window._context.whole.messages.first
    return not any(start < cut <= end for start, end in pair_spans([view(form, message) for message in sent]))


def is_returned(form: Form, message: Any, returned: list[Any]) -> bool:
    """Return whether *message* itself is in the list; in Bedrock's form, it may share one with the summary."""
    found = any(one is message for one in returned)
    return found or (form.name == "bedrock" and message["content"][-1] is returned[0]["content"][-1])


async def test_one_huge_newest_message_is_handed_out_as_it_is_and_named(tmp_path: Path, form: Form) -> None:
    window = opened(tmp_path, form)
    sent = [form.user(words(100)), form.user(words(4_000))]
    for message in sent:
        await window.add(message)
    first = await window.prepare()
    assert is_returned(form, sent[-1], first)
    assert [index for index, _ in window.exceeding()] == [1]
    assert spelled(await window.prepare()) == spelled(first), "asking again changes nothing"
    with pytest.raises(ContextOverflowError, match="newest"):
        await window.recover_from_overflow()
    assert (await held(window))[-1] is sent[-1]


async def test_one_huge_newest_message_that_is_offloaded_by_hand_fits(tmp_path: Path, form: Form) -> None:
    window = opened(tmp_path, form)
    await window.add(form.user(words(4_000)), offload=True)
    await window.prepare()
    assert window.tokens <= SIZE
    assert window.exceeding() == []


async def test_a_huge_newest_result_leaves_and_its_call_stays(tmp_path: Path, form: Form) -> None:
    window = opened(tmp_path, form)
    sent = [form.user("go"), form.calling("c1", thinking="Hm."), *form.answering({"c1": [words(5_000)]})]
    for message in sent:
        await window.add(message)
    prepared = await window.prepare()
    assert window.tokens <= SIZE
    assert prepared[1] is sent[1]
    assert "offloaded" in str(prepared[2])


async def test_a_system_prompt_that_fills_the_window_is_an_error_each_time_and_nothing_is_written(
    tmp_path: Path, form: Form
) -> None:
    window = opened(tmp_path / "w", form, system=[{"type": "text", "text": words(2_000)}])
    await window.add(form.user("hello"))
    for _ in range(2):
        for call in (window.prepare, window.save, window.recover_from_overflow):
            with pytest.raises(ContextOverflowError, match="larger window"):
                await call()
    assert not (tmp_path / "w").exists()


async def test_a_session_of_nothing_but_calls_stays_under_the_limit_with_whole_pairs(
    tmp_path: Path, form: Form
) -> None:
    window, sent = opened(tmp_path, form), list[Any]()
    for turn in range(30):
        calls = [f"c{turn}", f"d{turn}"]
        for message in (form.calling(*calls), *form.answering({calls[0]: [words(60)], calls[1]: [words(30)]})):
            sent.append(message)
            await window.add(message)
        await window.prepare()
        assert window.tokens <= SIZE
        assert has_whole_pairs(form, window, sent)
    assert window._context.whole.messages.first > 0
    assert spelled(await held(window)) == spelled(sent)


async def test_reasoning_and_signatures_stay_with_their_calls_and_reach_the_archive_unchanged(
    tmp_path: Path, form: Form
) -> None:
    window, sent = opened(tmp_path, form), list[Any]()
    for turn in range(25):
        thinking = form.calling(f"c{turn}", thinking=words(40, "thought"))
        for message in (form.user(f"{turn}"), thinking, *form.answering({f"c{turn}": [words(30)]})):
            sent.append(message)
            await window.add(message)
        before = spelled(sent)
        prepared = await window.prepare()
        assert spelled(sent) == before, "the caller's messages are not changed"
        kept = prepared[-len(window._context.whole.messages) :]
        assert all(is_returned(form, message, kept) for message in sent[-len(kept) :])
        assert has_whole_pairs(form, window, sent)
    assert window._context.whole.messages.first > 0
    assert spelled(await held(window)) == spelled(sent)
    assert "sig==" in str((await held(window))[1])


async def test_calls_that_wait_stay_while_others_answer_in_any_order(tmp_path: Path, form: Form) -> None:
    window, sent = opened(tmp_path, form), [form.user(f"{number}: {words(60)}") for number in range(14)]
    sent.append(form.calling("a", "b", "c"))
    for message in sent:
        await window.add(message)
    await window.prepare()
    for call_id in ("c", "a", "b"):
        (message,) = form.answering({call_id: [words(150)]})
        sent.append(message)
        await window.add(message)
        await window.compress(force=True)
        await window.prepare()
        assert window._context.whole.messages.first <= 14, "the calls stay"
        assert window.tokens <= SIZE
    assert has_whole_pairs(form, window, sent)
    assert spelled(await held(window)) == spelled(sent)


async def test_recovering_again_and_again_ends(tmp_path: Path, form: Form) -> None:
    window = opened(tmp_path, form, size=50_000)
    for turn in range(20):
        for message in (form.calling(f"c{turn}"), *form.answering({f"c{turn}": [words(200)]})):
            await window.add(message)
    await window.prepare()
    sizes = [window.tokens]
    while await recovers(window):
        sizes.append(window.tokens)
        assert sizes[-1] <= 0.9 * sizes[-2]
    assert len(sizes) > 1


async def recovers(window: ContextWindow) -> bool:
    try:
        await window.recover_from_overflow()
    except ContextOverflowError:
        return False
    return True
