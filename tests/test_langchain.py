"""`BuoylineMiddleware` in agents of LangChain, and `with_buoyline` in those of deepagents, with a scripted model."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langchain", reason="langchain is an extra for tests")

import langchain_model as scripted
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_model import FORMS, OTHERS, ScriptedModel, agent_of, call, run, thread, verbose_calls
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from verbose_runs import CALLS, SECRET, WINDOW, output

from buoyline import ContextWindow
from buoyline.errors import ConfigError, ContextOverflowError
from buoyline.integrations.langchain import BuoylineMiddleware
from buoyline.integrations.langchain_dialect import DIALECT
from buoyline.messages import Reasoning, Text, ToolCall, Turn
from buoyline.messages.model import Losses
from buoyline.window import Event, HistoryForked


@pytest.fixture
def events() -> Iterator[list[Event]]:
    """Collect events, and assert at the end that no list was taken for a changed one."""
    collected = list[Event]()
    yield collected
    assert not any(isinstance(event, HistoryForked) for event in collected)


@pytest.fixture
def middleware(tmp_path: Path, events: list[Event]) -> BuoylineMiddleware:
    return BuoylineMiddleware(tmp_path, size=WINDOW, on_event=events.append)


async def test_sixty_verbose_calls_fit_and_are_found_again(middleware: BuoylineMiddleware) -> None:
    model = ScriptedModel(answers=[*verbose_calls(0, CALLS), *scripted.LOOK_UP])
    agent = agent_of(model, middleware)
    pieces = [piece async for piece, _ in agent.astream({"messages": "Go."}, thread("t1"), stream_mode="messages")]
    assert sum(isinstance(piece, AIMessageChunk) for piece in pieces) > CALLS
    state = agent.get_state(thread("t1")).values["messages"]
    whole = {one.tool_call_id: one.content for one in state if isinstance(one, ToolMessage)}
    assert [whole[f"call_{n}"] for n in range(CALLS)] == [output(n) for n in range(CALLS)]
    assert SECRET in state[-1].text
    assert not any(SECRET in str(one.content) for one in model.requests[-2])


def test_another_process_goes_on_where_one_was_killed(tmp_path: Path, middleware: BuoylineMiddleware) -> None:
    sqlite = pytest.importorskip("langgraph.checkpoint.sqlite", reason="the state of two processes is in a file")
    killed = subprocess.run([sys.executable, scripted.__file__, str(tmp_path)], check=False)
    assert killed.returncode == scripted.KILLED
    with sqlite.SqliteSaver.from_conn_string(str(tmp_path / "state.sqlite")) as saver:
        agent = agent_of(ScriptedModel(answers=scripted.RUN[scripted.DONE :]), middleware, saver=saver)
        state = agent.invoke(None, thread("t1"))["messages"]
    assert SECRET in state[-1].text
    assert scripted.log(tmp_path).count("\n") == len(state)


async def test_a_call_is_on_disk_before_its_tool_runs(tmp_path: Path, middleware: BuoylineMiddleware) -> None:
    @tool
    def look(word: str) -> str:
        """Look whether a word is on disk."""
        return f"{word}: {word in scripted.log(tmp_path)}"

    model = ScriptedModel(answers=[call("look", "c1", word="harbour"), scripted.found])
    state = await agent_of(model, middleware, tools=[look]).ainvoke({"messages": "Go."}, thread("t1"))
    assert state["messages"][2].content == "harbour: True"


@pytest.mark.parametrize("is_async", [False, True])
def test_what_a_provider_refuses_is_sent_smaller(middleware: BuoylineMiddleware, *, is_async: bool) -> None:
    model = ScriptedModel(answers=scripted.RUN, limit=5_000, refuses=scripted.REFUSALS[is_async])
    agent = agent_of(model, middleware)
    assert SECRET in run(agent, is_async=is_async)["messages"][-1].text
    assert model.refused
    model.limit = 50
    with pytest.raises(ContextOverflowError, match="no more can be archived"):
        run(agent, "And now?", "t2", is_async=is_async)


@pytest.mark.parametrize("names", ["abc", "aa"])
async def test_runs_at_the_same_time_do_not_mix(tmp_path: Path, names: str) -> None:
    middleware, saver = BuoylineMiddleware(tmp_path, size=WINDOW), InMemorySaver()
    models = [ScriptedModel(answers=scripted.RUN) for _ in names]
    agents = [agent_of(model, middleware, saver=saver) for model in models]
    given = [({"messages": f"I am {at}."}, thread(name)) for at, name in enumerate(names)]
    runs = await asyncio.gather(*(agents[at].ainvoke(*one) for at, one in enumerate(given)))
    for at, model in enumerate(models):
        assert SECRET in runs[at]["messages"][-1].text
        assert not any(f"I am {other}." in str(model.requests) for other in range(len(names)) if other != at)


def test_an_edit_that_keeps_the_id_of_a_message_is_sent(tmp_path: Path) -> None:
    model = ScriptedModel(answers=[AIMessage("Aye.")])
    agent = agent_of(model, BuoylineMiddleware(tmp_path))
    run(agent, {"messages": [HumanMessage("buy", id="q1")]})
    agent.update_state(thread("t1"), {"messages": [HumanMessage("sell", id="q1")]})
    run(agent, "Now.")
    assert [one.text for one in model.requests[-1]] == ["Be good.", "sell", "Aye.", "Now."]


def test_an_agent_within_a_tool_has_sessions_of_its_own(tmp_path: Path, middleware: BuoylineMiddleware) -> None:
    inner = agent_of(ScriptedModel(answers=[AIMessage("Inner.")]), middleware)

    @tool
    def ask() -> str:
        """Ask another agent, twice."""
        return "".join(inner.invoke({"messages": f"Round {n}."})["messages"][-1].text for n in range(2))

    run(agent_of(ScriptedModel(answers=[call("ask", "c1"), scripted.found]), middleware, tools=[ask]))
    first, second, third = sorted(path.name for path in (tmp_path / "sessions").iterdir())
    assert (first, second.startswith("t1--tools-"), third) == ("t1", True, f"{second}-1")


def test_edits_by_people_and_structured_output_are_no_forks(middleware: BuoylineMiddleware) -> None:
    model = ScriptedModel(answers=[call("verbose", "c1", n=1), call("depth", "c2", fathoms=7)])
    asks, depth = HumanInTheLoopMiddleware({"verbose": True}), ToolStrategy[Any]({"title": "depth", "type": "object"})
    agent = agent_of(model, middleware, asks, response_format=depth)
    run(agent)
    edited = {"type": "edit", "edited_action": {"name": "verbose", "args": {"n": 2}}}
    assert run(agent, Command(resume={"decisions": [edited]}))["structured_response"] == {"fathoms": 7}
    run(agent, "Again.")


def test_errors_say_what_to_write(tmp_path: Path) -> None:
    grep = scripted.verbose_tool().model_copy(update={"name": "grep"})
    model = ScriptedModel(answers=[scripted.found])
    agent = agent_of(model, BuoylineMiddleware(tmp_path), tools=[grep], saver=False)
    with pytest.raises(ConfigError, match=r'invoke\(\.\.\., \{"configurable": \{"thread_id": "\.\.\."'):
        agent.invoke({"messages": "Go."})
    with pytest.raises(ConfigError, match=r"other tools called grep; .* prefix='ctx_'"):
        run(agent)
    run(agent_of(model, BuoylineMiddleware(tmp_path, prefix="ctx_", session=lambda: "mine"), tools=[grep]))
    assert {one["function"]["name"] for one in model.tools} == {"grep", "ctx_read", "ctx_grep", "ctx_search"}
    assert "Go." in scripted.log(tmp_path, "mine")


def test_a_call_is_seen_once_in_every_form() -> None:
    seen = [repr(part) for part in (Reasoning("Hm."), Text("I look."), ToolCall("c1", "read", '{"a":1}'))]
    views = {form: DIALECT.view(message) for form, message in FORMS.items()}
    assert {form: sorted(map(repr, view.parts)) for form, view in views.items()} == dict.fromkeys(FORMS, seen)


@pytest.mark.parametrize("form", [*FORMS, *OTHERS])
def test_a_message_is_the_same_after_it_was_on_disk(form: str) -> None:
    message: BaseMessage = {**FORMS, **OTHERS}[form]
    value = json.loads(json.dumps(DIALECT.to_json(message)))
    again = DIALECT.from_json(value)
    assert (type(again), DIALECT.to_json(again)) == (type(message), value)
    assert DIALECT.view(again) == DIALECT.view(value) == DIALECT.view(message)


def test_a_stub_replaces_content_and_leaves_the_rest() -> None:
    shown = DIALECT.with_results(OTHERS["tool"], {0: ["stub", 1]})
    assert (shown.content, shown.status) == ([{"type": "text", "text": "stub"}, scripted.SAID], "error")
    shown = DIALECT.with_content(FORMS["block alone"], [0, "stub", 2])
    assert (shown.content[1]["text"], shown.content[2]) == ("stub", scripted.USE)


def test_calls_are_written_so_that_they_read_the_same() -> None:
    calls = (ToolCall("c1", "read", '{"a":1}'), ToolCall("c2", "read", "no JSON"))
    (written,) = DIALECT.write([Turn("assistant", calls)], Losses("langchain"))
    assert DIALECT.view(written).calls == calls
    (result,) = DIALECT.view(DIALECT.tool_result_message("c1", "7", "read")).results
    assert (result.call_id, result.name, result.text) == ("c1", "read", "7")


async def test_a_message_that_fits_is_handed_out_as_the_very_same_object(middleware: BuoylineMiddleware) -> None:
    messages = [HumanMessage("Go."), FORMS["own"], OTHERS["tool"]]
    request = await middleware.pool.request("s", messages)
    assert [*map(id, request)] == [*map(id, messages)]


async def test_a_deep_agent_finds_with_its_own_tools_what_left_its_context(tmp_path: Path, events: list[Event]) -> None:
    deepagents = pytest.importorskip("deepagents", reason="deepagents is an extra for tests")
    ours = pytest.importorskip("buoyline.integrations.deepagents")
    settings, said = ours.with_buoyline(tmp_path, size=WINDOW, on_event=events.append), dict[str, str]()
    for name, script in (("t2", [*verbose_calls(3, 5), AIMessage("Done.")]), ("t1", scripted.DEEP_RUN)):
        model = ScriptedModel(answers=script)
        agent = deepagents.create_deep_agent(model, [scripted.verbose_tool()], checkpointer=InMemorySaver(), **settings)
        state = await agent.ainvoke({"messages": "Go."}, thread(name))
        said = {one.tool_call_id: one.text for one in state["messages"] if isinstance(one, ToolMessage)}
    expected = {"grep": SECRET, "read": SECRET, "edit": "not changed", "glob": "transcript.md", "other": "not found"}
    assert [key for key, text in expected.items() if text not in said[key] or "t2" in said[key]] == []
    assert said["call_19"] == output(19)
    assert len([*tmp_path.glob("sessions/t1--tools-*")]) == 1


def test_a_compaction_of_anthropics_is_a_message_of_its_own_and_the_calls_stay_with_the_rest() -> None:
    blocks: list[Any] = [{"type": "compaction", "content": "All so far."}, {"type": "text", "text": "I look."}]
    answer = AIMessage(blocks, tool_calls=[{"name": "look", "args": {}, "id": "c1"}])
    compaction, rest = DIALECT.split(answer)
    assert (compaction.content, compaction.tool_calls) == (blocks[:1], [])
    assert (rest.content, rest.tool_calls) == (blocks[1:], answer.tool_calls)
    assert DIALECT.view(compaction).is_compaction
    assert DIALECT.split(rest) == (rest,)


async def test_objects_without_a_named_dialect_are_read_by_another_process_and_seen_when_they_change(
    tmp_path: Path,
) -> None:
    window = await ContextWindow.open(tmp_path, "s1", size=WINDOW)
    asked = HumanMessage("hi", id="1")
    await window.request([asked])
    asked.content = "changed"
    assert (await window.follow([asked])).added == 1
    again = await ContextWindow.open(tmp_path, "s1")
    assert [message.content for message in again.messages] == ["changed"]
