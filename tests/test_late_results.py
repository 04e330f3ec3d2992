"""Results that come when their call is archived: a provider refuses a result without its call."""

from pathlib import Path
from typing import Any

import pytest
from window_forms import FORMS, NAMES, Form, spelled, view, words

from buoyline import ContextWindow, LocalWorkspace
from buoyline.maintenance.verify import verify
from buoyline.messages.registry import detect
from buoyline.tokens import default_counter
from buoyline.tokens.messages import count_message


async def waited(form: Form, workspace: LocalWorkspace, *, is_resumed: bool, **options: Any) -> ContextWindow:
    """Return a window that has archived the calls c1 and c2, of which only the first has its result."""
    window = ContextWindow(offloader=workspace, session_id="s1", size=8_000, **options)
    await window.add(form.user("Look around."))
    await window.add(form.calling("c1", "c2"))
    for message in form.answering({"c1": ["here"]}):
        await window.add(message)
    await window.add(form.user("Go on."))
    await window.add(form.calling("c3"))
    await window.prepare()
    await window.compress(before=3)
    assert window._context.state.messages.first == 3
    return await ContextWindow.resume(workspace, "s1") if is_resumed else window


def orphans(messages: list[Any]) -> list[str]:
    """Return the ids of the results that come without their call."""
    calls, found = set[str](), list[str]()
    for message in messages:
        shown = detect(message).view(message)
        found += [result.call_id for result in shown.results if result.call_id not in calls]
        calls.update(call.call_id for call in shown.calls)
    return found


@pytest.mark.parametrize("is_resumed", [False, True])
@pytest.mark.parametrize("form", FORMS, ids=NAMES)
async def test_a_result_whose_call_is_archived_is_handed_out_as_the_users_words(
    form: Form, tmp_path: Path, *, is_resumed: bool
) -> None:
    workspace = LocalWorkspace(tmp_path)
    window = await waited(form, workspace, is_resumed=is_resumed)
    for message in form.answering({"c3": ["now"]}):
        await window.add(message)
    late = form.answering({"c2": ["there", b"a picture"]})
    for message in late:
        await window.add(message)
    await window.add(form.user("What is there?"))

    handed_out = await window.prepare()
    assert orphans(handed_out) == []
    shown = view(form, handed_out[-2])
    assert (shown.role, shown.text) == (
        "user",
        "[Result of the call 'c2' of look, which is archived:]\nthere\n[image]",
    )
    assert await window.prepare() == handed_out
    counted = sum(count_message(view(form, message), default_counter()) for message in handed_out)
    assert counted <= window.tokens <= counted + 10  # in Bedrock's form, two messages are one
    resumed = await ContextWindow.resume(workspace, "s1")
    assert spelled(resumed.messages) == spelled(handed_out)
    await resumed.compress(before=resumed.added - 1)
    assert orphans(await resumed.prepare()) == []
    ((_, archived),) = await workspace.load_messages("s1", 6, 7)
    assert view(form, archived).results[0].call_id == "c2"
    assert not verify(workspace).findings


@pytest.mark.parametrize("pinned", ["call", "late result"])
@pytest.mark.parametrize("form", FORMS, ids=NAMES)
async def test_a_pinned_late_result_and_one_whose_call_was_unpinned_are_words_also_after_a_resume(
    form: Form, pinned: str, tmp_path: Path
) -> None:
    workspace = LocalWorkspace(tmp_path)
    window = ContextWindow(offloader=workspace, session_id="s1", size=8_000)
    await window.add(form.calling("c1"), pinned=pinned == "call")
    await window.add(form.user("Go on."))
    await window.compress(before=2)
    (late,) = form.answering({"c1": ["there"]})
    await window.add(late, pinned=pinned == "late result")
    await window.add(form.user("What is there?"))
    await window.prepare()
    window = await ContextWindow.resume(workspace, "s1")
    if pinned == "call":
        assert orphans(window.messages) == []
        await window.unpin(0)
    else:
        await window.compress(before=3)
    handed_out = await window.prepare()
    assert orphans(handed_out) == []
    assert "[Result of the call 'c1' of look, which is archived:]" in "".join(spelled(handed_out))
    assert spelled((await ContextWindow.resume(workspace, "s1")).messages) == spelled(handed_out)


@pytest.mark.parametrize("form", FORMS[1:], ids=NAMES[1:])
async def test_a_message_with_a_late_result_keeps_all_else(form: Form, tmp_path: Path) -> None:
    window = await waited(form, LocalWorkspace(tmp_path), is_resumed=False)
    (both,) = form.answering({"c2": ["there"], "c3": ["now"]})
    await window.add(both)
    shown = view(form, (await window.prepare())[-1])
    assert shown.parts[1:] == view(form, both).parts[1:]
    assert shown.parts[0].text == "[Result of the call 'c2' of look, which is archived:]\nthere"
    assert window._context.state.messages[-1].native is both


@pytest.mark.parametrize("form", FORMS, ids=NAMES)
async def test_a_large_late_result_is_offloaded_and_its_stub_is_handed_out(form: Form, tmp_path: Path) -> None:
    window = await waited(form, LocalWorkspace(tmp_path), is_resumed=False)
    for message in form.answering({"c2": [words(4_000)]}):
        await window.add(message)
    assert len(window.messages) == len(await window.prepare())
    shown = view(form, window.messages[-1])
    assert "offloaded" in shown.text
    assert not shown.results


async def test_a_result_whose_call_never_was_in_the_session_stays_the_same_object(tmp_path: Path) -> None:
    form = FORMS[0]
    window = await waited(form, LocalWorkspace(tmp_path), is_resumed=True)
    (foreign,) = form.answering({"never": ["there"]})
    await window.add(foreign)
    assert (await window.prepare())[-1] is foreign


@pytest.mark.parametrize("form", FORMS, ids=NAMES)
async def test_a_list_that_has_the_result_in_either_form_is_followed(form: Form, tmp_path: Path) -> None:
    window = ContextWindow(offloader=LocalWorkspace(tmp_path), session_id="s1", size=8_000)
    messages = [form.user("Look around."), form.calling("c1"), form.user("Go on."), form.calling("c2")]
    await window.follow(messages)
    await window.prepare()
    await window.compress(before=2)
    messages = [*await window.prepare(), *form.answering({"c1": ["there"]})]
    assert (await window.follow(messages)).fork is None
    handed_out = await window.prepare()
    for known in (messages, handed_out):
        followed = await window.follow([*known, form.user("And then?")])
        assert (followed.fork, followed.removed, window.added) == (None, 0, 6)


@pytest.mark.parametrize("form", FORMS, ids=NAMES)
async def test_output_of_an_archived_call_has_the_form_of_the_other_messages(form: Form, tmp_path: Path) -> None:
    window = await waited(form, LocalWorkspace(tmp_path), is_resumed=False)
    await window.add_tool_output("c2", ["there"])
    assert detect(window._context.whole.messages[-1].native).name == form.name
    assert orphans(await window.prepare()) == []


@pytest.mark.parametrize("form", FORMS, ids=NAMES)
async def test_a_result_before_the_only_call_with_its_id_is_not_late(form: Form, tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path)
    window = ContextWindow(offloader=workspace, session_id="s1", size=8_000)
    first = [form.user("Look around."), form.calling("c0"), *form.answering({"c0": ["nothing"]})]
    early = form.answering({"c1": ["here"]})
    others = [form.user("Look again."), *early, form.calling("c1"), *form.answering({"c1": ["there"]})]
    for message in (*first, *others):
        await window.add(message)
    await window.prepare()
    await window.compress(before=len(first))
    handed_out = await window.prepare()
    assert any(message is early[0] for message in handed_out)
    assert spelled((await ContextWindow.resume(workspace, "s1")).messages) == spelled(handed_out)


async def test_a_message_with_a_call_and_its_result_answers_itself(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path)
    window = ContextWindow(offloader=workspace, session_id="s1", size=8_000)
    form = next(form for form in FORMS if form.name == "agentscope")
    both = form.calling("c1")
    both.content += [block for message in form.answering({"c1": ["there"]}) for block in message.content]
    for message in (form.user("Look."), form.calling("c1"), *form.answering({"c1": ["here"]}), both):
        await window.add(message)
    await window.prepare()
    await window.compress(before=3)
    handed_out = await window.prepare()
    assert handed_out[-1] is both
    assert spelled((await ContextWindow.resume(workspace, "s1")).messages) == spelled(handed_out)


@pytest.mark.parametrize("is_resumed", [False, True])
@pytest.mark.parametrize("call_id", ["c1", ""])
@pytest.mark.parametrize("form", FORMS, ids=NAMES)
async def test_a_late_result_does_not_answer_a_newer_call_of_its_id_that_has_one(
    form: Form, call_id: str, tmp_path: Path, *, is_resumed: bool
) -> None:
    workspace = LocalWorkspace(tmp_path)
    window = ContextWindow(offloader=workspace, session_id="s1", size=8_000, dialect=form.name)
    answered = [form.calling(call_id), *form.answering({call_id: ["here"]})]
    for message in (form.user("Look."), form.calling(call_id), form.user("Look again."), *answered, form.user("And?")):
        await window.add(message)
    await window.prepare()
    await window.compress(before=2)
    if is_resumed:
        window = await ContextWindow.resume(workspace, "s1")
    for message in form.answering({call_id: ["there, late"]}):
        await window.add(message)
    results = [result.text for message in await window.prepare() for result in view(form, message).results]
    assert results == ["here"], "of two results for one call, a provider refuses the second"


@pytest.mark.parametrize("form", FORMS[1:], ids=NAMES[1:])
async def test_a_message_with_a_late_result_has_another_if_the_owner_removes_its_call_too(
    form: Form, tmp_path: Path
) -> None:
    window = ContextWindow(offloader=LocalWorkspace(tmp_path), session_id="s1", size=8_000)
    (both,) = form.answering({"c1": ["there"], "c2": ["now"]})
    messages = [form.user("Look."), form.calling("c1"), form.user("Go on."), form.calling("c2"), both]
    await window.follow(messages[:4])
    await window.prepare()
    await window.compress(before=2)
    await window.follow(messages)
    assert len(view(form, (await window.prepare())[-1]).results) == 1
    await window.follow([both, form.user("And?")])
    handed_out = await window.prepare()
    assert orphans(handed_out) == []
    assert "'c2' of look, which is archived:]\nnow" in view(form, handed_out[-2]).text
