"""The adapter in OpenAI's own Agents SDK, with a scripted model."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("agents", reason="openai-agents is an extra for tests")

from agents import Agent, RunConfig, RunContextWrapper, Runner, function_tool, handoff
from agents.extensions import handoff_filters
from agents.testing import function_call
from openai_agents_model import DONE, Build, CheckedModel, build, calling, chat_model, script, thinking
from verbose_runs import CALLS, SECRET, WINDOW, output, tokens

from buoyline.errors import ConfigError
from buoyline.window import HistoryForked


def forks(run: Build) -> list[HistoryForked]:
    return [event for event in run.events if isinstance(event, HistoryForked)]


def outputs(items: Any) -> list[str]:
    return [item["output"] for item in items if item.get("type") == "function_call_output"]


async def added(run: Build, session: str = "s1") -> int:
    async with run.hooks.pool.of(session) as window:
        return window.added


@pytest.mark.parametrize("stream", [False, True])
async def test_sixty_verbose_calls_fit_the_window_and_nothing_is_lost(tmp_path: Path, *, stream: bool) -> None:
    model = CheckedModel(script(0, CALLS))
    run = Build(tmp_path, model)
    assert await run(stream=stream) == "Done."
    assert max(model.sizes) <= WINDOW
    assert model.last_call is not None
    assert SECRET in outputs(model.last_call.input)[-1]
    history = await run.history.get_items()
    assert outputs(history)[:-1] == [output(n) for n in range(CALLS)]
    assert await added(run) == len(model.calls) + CALLS + 2  # the answers, all outputs, and the user
    assert not forks(run)


async def test_another_process_goes_on_where_the_first_was_killed(tmp_path: Path) -> None:
    program = Path(__file__).with_name("openai_agents_model.py")
    killed = subprocess.run([sys.executable, program, tmp_path], capture_output=True, check=False)
    assert killed.returncode == 9, killed.stderr
    log = tmp_path / "workspace/sessions/s1/context.jsonl"
    before = log.read_text("utf-8").splitlines()
    assert '"call_k"' in before[-1]  # on disk before its tool ran
    model = CheckedModel(script(10, 15))
    run = Build(tmp_path, model)
    assert await run("Go on.", stream=True) == "Done."
    assert max(model.sizes) <= WINDOW
    assert SECRET in str(model.calls[-1].input)
    assert log.read_text("utf-8").splitlines()[: len(before)] == before
    # The SDK leaves out a call that has no output.
    assert forks(run) == [HistoryForked(len(before) - 1, 1)]
    assert await Build(tmp_path, CheckedModel([DONE]))("Thanks.") == "Done."


@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_is_on_disk_before_its_tool_runs(tmp_path: Path, *, stream: bool) -> None:
    seen = list[str]()

    @function_tool
    def look() -> None:
        seen.extend((tmp_path / "workspace/sessions/s1/context.jsonl").read_text("utf-8").splitlines())

    run = Build(tmp_path, CheckedModel([[thinking("it"), calling("look", "call_look")], DONE]), tools=[look])
    await run(stream=stream)
    assert len(seen) == 2
    assert '"call_look"' in seen[-1]
    assert not forks(run)


async def test_chat_completions_get_requests_that_fit_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = list[Any]()
    run = Build(tmp_path, chat_model(requests, monkeypatch))
    assert await run() == "Done."
    assert len(requests) == 13
    assert max(tokens(request["messages"], request["tools"]) for request in requests) <= WINDOW
    for request in requests:
        waiting = set[str]()
        for message in request["messages"]:
            waiting -= {message["tool_call_id"]} if message["role"] == "tool" else set()
            assert not waiting or message["role"] == "tool"
            waiting |= {call["id"] for call in message.get("tool_calls", ())}
        assert not waiting
    assert not forks(run)


@pytest.mark.parametrize(("keep", "is_forked"), [(None, False), (handoff_filters.remove_all_tools, True)])
async def test_a_handoff_goes_on_in_the_session_with_its_own_instructions_and_tools(
    tmp_path: Path, keep: Any, *, is_forked: bool
) -> None:
    expert = CheckedModel([[calling("build", "call_2", n=2)], DONE])
    run = Build(tmp_path, CheckedModel([[calling("build", "call_1", n=1)], [calling("transfer_to_expert", "call_t")]]))
    known = Agent[Any]("Expert", instructions="You know.", model=expert, tools=[build], handoffs=[run.agent])
    run.agent.handoffs = [handoff(known, input_filter=keep)]
    assert await run() == "Done."
    assert bool(forks(run)) is is_forked
    async with run.hooks.pool.of("s1") as window:
        assert window._settings.system == "You know."
        assert [tool["name"] for tool in window._settings.tools] == ["build", "transfer_to_builder"]


async def test_a_run_within_a_tool_has_no_window_unless_it_gets_one(tmp_path: Path) -> None:
    inner = CheckedModel([[calling("build", "call_i", n=1)], DONE] * 2)
    sub = Agent[Any]("Sub", model=inner, tools=[build])

    @function_tool
    async def ask(context: RunContextWrapper[str]) -> str:
        found = await Runner.run(sub, "Go.", context=f"{context.context}-sub", hooks=run.hooks, run_config=run.config)
        return str(found.final_output)

    model = CheckedModel([[calling("plain", "call_1", input="Go.")], [calling("ask", "call_2")], DONE])
    run = Build(tmp_path, model, session=str, tools=[sub.as_tool("plain", "Ask."), ask])
    assert await run(context="s7") == "Done."
    assert outputs(model.calls[-1].input) == ["Done.", "Done."]
    assert outputs(inner.calls[1].input) == [output(1)]
    assert outputs(inner.calls[3].input)[0].startswith("[Tool result offloaded")
    assert (await added(run, "s7"), await added(run, "s7-sub")) == (6, 4)
    assert not forks(run)


async def test_sessions_that_run_at_the_same_time_do_not_mix(tmp_path: Path) -> None:
    run = Build(tmp_path, CheckedModel([]), session=str)
    models = [CheckedModel(script(first, first + 12)) for first in range(0, 60, 12)]
    agents = [run.agent.clone(model=model) for model in models]
    given: Any = {"hooks": run.hooks, "run_config": run.config, "max_turns": 20}
    await asyncio.gather(*(Runner.run(agent, "Go.", context=f"s{at}", **given) for at, agent in enumerate(agents)))
    for at, model in enumerate(models):
        assert max(model.sizes) <= WINDOW
        found = re.findall(r"SECRET-(\d+)-", outputs(model.calls[-1].input)[-1])
        assert [*map(int, found)] == [*range(at * 12, at * 12 + 12)]
    assert not forks(run)


async def test_an_overflow_is_raised_and_a_window_that_recovers_sends_less_in_the_next_run(tmp_path: Path) -> None:
    model = CheckedModel([*script(0, 8)[:-2], ValueError("too long"), DONE])
    run = Build(tmp_path, model)
    with pytest.raises(ValueError, match="too long") as refused:
        await run()
    async with run.hooks.pool.of("s1") as window:
        await window.recover_from_overflow(refused.value)
    assert await run("Go on.") == "Done."
    assert model.sizes[-1] < 0.9 * model.sizes[-2]
    assert not forks(run)


async def test_lookups_have_a_prefix_and_answer_malformed_arguments(tmp_path: Path) -> None:
    calls = [function_call("old_grep", given, call_id=f"call_{given}") for given in ("[1]", "{", '{"patern": "a"}')]
    model = CheckedModel([calls, DONE])
    run = Build(tmp_path, model, prefix="old_")
    assert [tool.name for tool in run.hooks.tools] == ["old_read", "old_grep", "old_search"]
    assert await run() == "Done."
    wrong = "Error: the arguments are no JSON object\n"
    assert outputs(model.calls[-1].input)[:2] == [wrong, wrong]
    assert "no argument 'patern'" in outputs(model.calls[-1].input)[2]


@pytest.mark.parametrize(
    ("session", "given", "words"),
    [
        (lambda context: context, {}, "session: None is no id; return that of the conversation, and pass context="),
        ("s1", {"session": None, "conversation_id": "conv_1"}, "conversation_id or previous_response_id: with it"),
        ("s1", {"session": None, "previous_response_id": "resp_1"}, "run without either"),
        ("s1", {"run_config": RunConfig(tracing_disabled=True)}, "call_model_input_filter=buoyline.filter"),
    ],
)
async def test_what_cannot_work_is_refused(session: Any, given: Any, words: str, tmp_path: Path) -> None:
    run = Build(tmp_path, CheckedModel([[calling("build", "call_1", n=1)], DONE]), session=session)
    with pytest.raises(ConfigError, match=words):
        await run(**given)
