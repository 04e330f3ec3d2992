"""The tool with which an agent has its own context compressed."""

from pathlib import Path
from typing import Any

import pytest
from window_forms import FORMS, NAMES, Form, spelled, words

from buoyline import ContextConfig, ContextWindow, LocalWorkspace
from buoyline.compression import Draft, SummaryRequest
from buoyline.compression.plan import pair_spans
from buoyline.messages.registry import dialect_named
from buoyline.window.tool import compress_tool

in_every_dialect = pytest.mark.parametrize("form", FORMS, ids=NAMES)


class Noting:
    """Takes note of what it is asked to keep above all."""

    def __init__(self) -> None:
        self.focuses: list[str] = []

    async def summarize(self, request: SummaryRequest) -> Draft:
        self.focuses.append(request.focus)
        return Draft("noting", dict.fromkeys(request.fields, "All is well."))


def opened(workdir: Path, form: Form, **options: Any) -> ContextWindow:
    offloader = LocalWorkspace(workdir, durability="off")
    return ContextWindow(session_id="s1", offloader=offloader, dialect=form.name, **options)


async def fill(window: ContextWindow, form: Form, count: int) -> list[Any]:
    sent = [form.user(f"{number}: {words(60)}") for number in range(count)]
    for message in sent:
        await window.add(message)
    return sent


@in_every_dialect
async def test_a_call_in_the_middle_of_a_turn_takes_effect_before_the_next_step(tmp_path: Path, form: Form) -> None:
    noting = Noting()
    window = opened(tmp_path, form, size=16_000, summarizer=noting)
    tool = compress_tool(window)
    sent = await fill(window, form, 20)
    await window.prepare()
    sent.append(form.calling("c1", "c2", thinking="I need room."))
    await window.add(sent[-1])
    before = window.messages
    answer = await tool.call(focus="the numbers")
    assert window.messages == before, "nothing changes while calls wait"
    assert "leave it" in answer
    assert "the numbers" in answer
    for message in form.answering({"c1": [answer], "c2": ["done"]}):
        sent.append(message)
        await window.add(message)
    prepared = await window.prepare()

    assert noting.focuses == ["the numbers"]
    assert len(prepared) < len(sent)
    kept = [entry.native for entry in window._context.whole.messages]
    archived = await LocalWorkspace(tmp_path).load_messages("s1", 0, len(sent) - len(kept))
    assert spelled([*(message for _, message in archived), *kept]) == spelled(sent)
    spans = pair_spans([dialect_named(form.name).view(message) for message in kept])
    assert len(spans) == 2 or form.name == "anthropic"
    assert await window.prepare() == prepared, "once"
    assert noting.focuses == ["the numbers"]


@in_every_dialect
async def test_where_little_could_leave_the_agent_is_told_so_and_nothing_happens(tmp_path: Path, form: Form) -> None:
    window = opened(tmp_path, form)
    sent = await fill(window, form, 2)
    answer = await compress_tool(window).call()
    assert "save nothing" in answer
    assert await window.prepare() == sent


async def test_a_request_outlasts_a_summariser_that_fails(tmp_path: Path) -> None:
    class Down(Noting):
        async def summarize(self, request: SummaryRequest) -> Draft:
            if not self.focuses:
                self.focuses.append("failed")
                raise TimeoutError
            return await super().summarize(request)

    noting = Down()
    window = opened(tmp_path, FORMS[0], size=16_000, summarizer=noting)
    await fill(window, FORMS[0], 20)
    await compress_tool(window).call(focus="names")
    with pytest.raises(TimeoutError):
        await window.prepare()
    await window.prepare()
    assert noting.focuses == ["failed", "names"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"what": 1}, "takes focus"),
        ({"focus": 3}, "must be string"),
        ({"focus": "x" * 2_001}, "2,000 or fewer"),
    ],
)
async def test_a_call_that_is_wrong_is_answered_in_words(tmp_path: Path, arguments: dict[str, Any], told: str) -> None:
    answer = await compress_tool(opened(tmp_path, FORMS[0])).call(**arguments)
    assert answer.startswith("Error: ")
    assert told in answer


def test_its_definition_suits_every_provider(tmp_path: Path) -> None:
    tool = compress_tool(opened(tmp_path, FORMS[0]))
    assert tool.openai()["function"]["name"] == tool.anthropic()["name"] == "compress_context"
    assert tool.anthropic()["input_schema"]["properties"].keys() == {"focus"}


async def test_an_agent_that_asks_again_and_again_is_not_compressed_to_nothing(tmp_path: Path) -> None:
    window = opened(tmp_path, FORMS[0], size=16_000, config=ContextConfig())
    await fill(window, FORMS[0], 20)
    firsts = []
    for _ in range(6):
        await compress_tool(window).call()
        await window.prepare()
        firsts.append(window._context.whole.messages.first)
    assert len(set(firsts)) <= 2
