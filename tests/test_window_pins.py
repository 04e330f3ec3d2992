"""A pinned call keeps its results in the context, and a pinned result its call. A provider refuses one alone."""

from pathlib import Path
from typing import Any

import pytest
from window_forms import FORMS, NAMES, Form, words

from buoyline import ContextWindow
from buoyline.messages import Message
from buoyline.messages.registry import detect
from buoyline.workspace import LocalWorkspace


def views(messages: list[Any]) -> list[Message]:
    return [detect(message).view(message) for message in messages]


def ids(messages: list[Any]) -> tuple[set[str], set[str]]:
    """Return the ids of the calls, and of the results."""
    shown = views(messages)
    calls = {call.call_id for message in shown for call in message.calls}
    return calls, {result.call_id for message in shown for result in message.results}


@pytest.mark.parametrize("form", FORMS, ids=NAMES)
@pytest.mark.parametrize("pinned", ["call", "results"])
async def test_a_pinned_call_and_its_results_are_kept_together(form: Form, pinned: str, tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path)
    window = ContextWindow(offloader=workspace, session_id="s1", size=8_000)
    await window.add(form.user("Look around."))
    await window.add(form.calling("c1", "c2"), pinned=pinned == "call")
    for message in form.answering({"c1": ["here"], "c2": ["there"]}):
        await window.add(message, pinned=pinned == "results")
    for _ in range(12):
        await window.add(form.user(words(300)))
        await window.prepare()
    await window.compress(force=True)
    assert ids(await window.prepare()) == ({"c1", "c2"}, {"c1", "c2"})
    resumed = await ContextWindow.resume(workspace, "s1")
    await resumed.compress(force=True)
    assert ids(await resumed.prepare()) == ({"c1", "c2"}, {"c1", "c2"})
