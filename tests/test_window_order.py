"""What is handed out: results stand after their calls, whatever comes when."""

import random
from typing import Any

import pytest
from window_forms import FORMS, NAMES, Form
from window_lives import calling, check_valid, result, said, user

from buoyline.messages.registry import dialect_named
from buoyline.window import ContextWindow
from buoyline.workspace.workspace import MemoryWorkspace


@pytest.mark.parametrize("seed", range(60))
async def test_each_list_handed_out_is_valid_and_a_prefix_of_the_next(seed: int) -> None:
    """Calls that are answered late, twice or never, ids that repeat, users who speak while tools run."""
    r = random.Random(seed)  # noqa: S311 - no secret is drawn
    workspace = MemoryWorkspace()
    window = await ContextWindow.open(workspace, "s1", size=1_000_000)
    calls, last = list[str](), list[Any]()
    for number in range(30):
        kind = r.random()
        if kind < 0.3:
            handed = await window.prepare()
            check_valid(handed)
            assert handed[: len(last)] == last
            last = handed
            ids = [r.choice([f"c{number}", f"d{number}", "call_0"]) for _ in range(r.choice([1, 1, 2, 3]))]
            ids = [*dict.fromkeys(ids)]
            await window.add(r.choice([calling(*ids), said(f"answer {number}")]))
            calls += ids
        elif kind < 0.7 and calls:
            await window.add(result(r.choice(calls), f"result {number}"))
        elif kind < 0.8:
            window = await ContextWindow.open(workspace, "s1")
        else:
            await window.add(user(f"words {number}"))
    check_valid(await window.prepare())


async def test_a_late_result_is_the_users_words_at_its_own_place() -> None:
    window = await ContextWindow.open(MemoryWorkspace(), "s1", size=10_000)
    await window.extend([user("go"), calling("c1"), user("are you there?")])
    interrupted = result("c1", "[interrupted: no result was recorded]")
    assert await window.prepare() == [user("go"), calling("c1"), {**interrupted}, user("are you there?")]
    await window.add(result("c1", "the real one"))
    handed = await window.prepare()
    assert handed[:4] == [user("go"), calling("c1"), interrupted, user("are you there?")]
    assert handed[4]["role"] == "user"
    assert "the real one" in handed[4]["content"]
    assert "c1" in handed[4]["content"]


@pytest.mark.parametrize("answered", [(), ("c1",), ("c2",)], ids="+".join)
@pytest.mark.parametrize("form", FORMS, ids=NAMES)
async def test_calls_that_a_crash_left_open_have_results_when_the_user_goes_on(form: Form, answered: Any) -> None:
    workspace = MemoryWorkspace()
    window = await ContextWindow.open(workspace, "s1", size=10_000)
    results = form.answering({call_id: ["9 m"] for call_id in answered}) if answered else []
    await window.extend([form.user("sound both"), form.calling("c1", "c2"), *results])
    window = await ContextWindow.open(workspace, "s1")
    await window.add(form.user("and now?"))
    handed = await window.prepare()
    check_valid(handed)
    views = [dialect_named(form.name).view(message) for message in handed]
    assert sorted(result.call_id for view in views for result in view.results) == ["c1", "c2"]
