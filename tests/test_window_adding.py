"""Messages that are added while a model summarizes."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thirds import examples
from window_forms import FORMS, Form, words

from buoyline import ContextWindow, MemoryWorkspace
from buoyline.compression import SummaryRequest
from buoyline.errors import BusyError
from buoyline.messages.registry import dialect_named


class Gate:
    """A summarizer that answers when it may."""

    def __init__(self) -> None:
        self.is_asked, self.may_answer = asyncio.Event(), asyncio.Event()

    async def __call__(self, _: SummaryRequest) -> str:
        self.is_asked.set()
        await self.may_answer.wait()
        return "They spoke of words."


def said_of(form: Form, kinds: list[str], first: int) -> list[Any]:
    """Return messages of these kinds; an answer is that of the newest call."""
    said, call_id = list[Any](), ""
    for number, kind in enumerate(kinds, first):
        if kind == "call":
            call_id = f"c{number}"
            said.append(form.calling(call_id))
        elif kind == "answer" and call_id:
            said += form.answering({call_id: [f"answer {number}: {words(number * 13 % 200)}"]})
            call_id = ""
        else:
            said.append(form.user(f"{number}: {words(40)}"))
    return said


# Bedrock's form is handed out with the first message joined to the summary.
UNJOINED = [form for form in FORMS if form.name != "bedrock"]

kinds = st.lists(st.sampled_from(["user", "call", "answer"]), max_size=15)


@settings(examples(20, 60))
@given(before=kinds, meanwhile=kinds, form=st.sampled_from(UNJOINED))
def test_messages_added_while_a_model_summarizes_are_neither_lost_nor_parted(
    before: list[str], meanwhile: list[str], form: Form
) -> None:
    async def life() -> None:
        workspace, gate = MemoryWorkspace(), Gate()
        window = ContextWindow(session_id="s1", offloader=workspace, size=4_000, summarizer=gate, dialect=form.name)
        sent = said_of(form, [*before, "user", "user", "call", "answer"], 0)
        for message in sent:
            await window.add(message)
        compressing = asyncio.create_task(window.compress(force=True))
        await gate.is_asked.wait()
        for message in said_of(form, meanwhile, len(sent)):
            await asyncio.wait_for(window.add(message), 10)
            sent.append(message)
        gate.may_answer.set()
        summary = await compressing
        shown = await window.prepare()

        assert summary is not None
        archived = await workspace.load_messages("s1", 0, summary.messages[1])
        assert [value for _, value in archived] == [*map(dialect_named(form.name).to_json, sent[: len(archived)])]
        assert shown[len(shown) - len(sent) + len(archived) :] == sent[len(archived) :]
        views = [dialect_named(form.name).view(message) for message in shown]
        called = {call.call_id for view in views for call in view.calls}
        assert {result.call_id for view in views for result in view.results} <= called

    asyncio.run(life())


async def test_a_second_call_is_refused_until_the_first_has_returned() -> None:
    gate = Gate()
    window = ContextWindow(session_id="s1", offloader=MemoryWorkspace(), size=4_000, summarizer=gate)
    for message in said_of(FORMS[0], ["user"] * 20, 0):
        await window.add(message)
    compressing = asyncio.create_task(window.compress(force=True))
    await gate.is_asked.wait()
    with pytest.raises(BusyError, match=r"window 's1' is at work in compress\(\); call prepare\(\) after it"):
        await window.prepare()
    gate.may_answer.set()
    assert await compressing is not None
    assert await window.prepare()
