"""Pins: a pinned call keeps its results in the context, and a pinned result its call; and how a message is unpinned."""

from pathlib import Path
from typing import Any

import pytest
from window_forms import FORMS, NAMES, Form, spelled, words

from buoyline import ContextWindow, MemoryWorkspace
from buoyline.errors import ContextOverflowError, NotFoundError, StorageError
from buoyline.maintenance.verify import verify
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


async def test_pins_that_leave_no_room_are_named_and_unpinning_them_makes_room(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path)
    window = ContextWindow(offloader=workspace, session_id="s1", size=2_000)
    pins = [{"role": "user", "content": words(count)} for count in (300, 500, 400)]
    for pin in pins:
        await window.add(pin, pinned=True)
    with pytest.raises(ContextOverflowError, match=r"unpin.* message 1 \([0-9,]+ tokens\), message 2"):
        await window.prepare()
    with pytest.raises(NotFoundError, match="0, 1, 2"):
        await window.unpin(1, 7)

    await window.unpin(1)
    await window.prepare()
    await window.add({"role": "user", "content": "Go on."})
    await window.compress(force=True)
    assert [message for message in await window.prepare() if message in pins] == [pins[0], pins[2]]
    resumed = await ContextWindow.resume(workspace, "s1")
    assert resumed.messages == window.messages


@pytest.mark.parametrize("form", FORMS, ids=NAMES)
async def test_an_archived_pin_is_unpinned_with_its_results_and_stays_in_the_archive(
    form: Form, tmp_path: Path
) -> None:
    workspace = LocalWorkspace(tmp_path)
    window = ContextWindow(offloader=workspace, session_id="s1", size=8_000)
    await window.add(form.user("Look around."), pinned=True)
    await window.add(form.calling("c1", "c2"), pinned=True)
    for message in form.answering({"c1": ["here"], "c2": ["there"]}):
        await window.add(message)
    for _ in range(3):
        await window.add(form.user(words(300)))
    await window.compress(force=True)
    archived = await workspace.load_messages("s1", 0, 4)

    await window.unpin(1)
    assert ids(await window.prepare()) == (set(), set())
    resumed = await ContextWindow.resume(workspace, "s1")
    assert spelled(resumed.messages) == spelled(window.messages)
    assert "Look around." in spelled(resumed.messages)[0]
    await resumed.add(form.user("Go on."))
    await resumed.compress(force=True)
    assert ids(await resumed.prepare()) == (set(), set())
    assert await workspace.load_messages("s1", 0, 4) == archived
    assert not verify(workspace).findings


async def test_unpinning_the_users_newest_words_keeps_them_while_a_document_wants_them() -> None:
    workspace = MemoryWorkspace()
    window = ContextWindow(offloader=workspace, session_id="s1", size=8_000, management="tool-heavy-with-summarization")
    task = {"role": "user", "content": "Build it."}
    await window.add(task, pinned=True)
    for number in range(4):
        await window.add({"role": "assistant", "content": f"{number} {words(100)}"})
    await window.compress(force=True)
    await window.unpin(0)
    assert task in await window.prepare()
    resumed = await ContextWindow.resume(workspace, "s1")
    assert resumed.messages == window.messages
    await resumed.add({"role": "user", "content": "Test it."})
    await resumed.compress(force=True)
    assert task not in await resumed.prepare()


async def test_unpinning_that_cannot_be_written_changes_nothing_and_may_be_repeated(tmp_path: Path) -> None:
    window = ContextWindow(offloader=LocalWorkspace(tmp_path / "w"), session_id="s1", size=8_000)
    await window.add({"role": "user", "content": "Look around."}, pinned=True)
    await window.add({"role": "user", "content": "Go on."})
    await window.compress(force=True)
    await window.add({"role": "user", "content": "Look there."}, pinned=True)
    before = window.messages
    (tmp_path / "w/sessions").rename(tmp_path / "away")
    (tmp_path / "w/sessions").write_text("in the way", encoding="utf-8")
    with pytest.raises((StorageError, NotFoundError)):
        await window.unpin(0, 2)
    assert window.messages == before

    (tmp_path / "w/sessions").unlink()
    (tmp_path / "away").rename(tmp_path / "w/sessions")
    await window.unpin(0, 2)
    assert window.messages == before[1:]
    await window.compress(force=True)
    assert before[-1] in await window.prepare()
    with pytest.raises(NotFoundError, match="nothing is pinned"):
        await window.unpin(0)


@pytest.mark.parametrize("named", [None, "anthropic"])
async def test_a_pinned_call_at_the_beginning_is_handed_out_behind_the_line_also_among_mere_text(
    named: str | None, tmp_path: Path
) -> None:
    """Mere text is detected as OpenAI's, in which the model may speak first."""
    workspace, form = LocalWorkspace(tmp_path), FORMS[1]
    window = ContextWindow(offloader=workspace, session_id="s1", size=8_000, dialect=named)
    await window.add({"role": "user", "content": "Look around."})
    await window.add(form.calling("c1"), pinned=True)
    for message in form.answering({"c1": ["here"]}):
        await window.add(message)
    for text in ("Go on.", "And on."):
        await window.add({"role": "user", "content": text})
    await window.compress(before=4)
    handed_out = await window.prepare()
    assert "no longer in the context" in handed_out[0]["content"]
    assert (await ContextWindow.resume(workspace, "s1")).messages == handed_out
