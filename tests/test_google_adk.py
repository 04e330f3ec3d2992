"""`BuoylinePlugin` in Google ADK's own runner with a scripted model, and the dialect of Gemini's contents."""

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("google.adk", reason="google-adk is an extra for tests")

import google_adk_model as model
from google.adk.agents import LlmAgent
from google.adk.agents.context import Context
from google.adk.code_executors import UnsafeLocalCodeExecutor
from google.adk.planners import PlanReActPlanner
from google.genai import types
from google_adk_model import SESSION, SIGNATURE, TOO_LONG, Run, call, log_in, results_of, script, text
from verbose_runs import CALLS, SECRET, WINDOW, output

from buoyline.integrations.gemini_dialect import DIALECT
from buoyline.integrations.google_adk import BuoylinePlugin
from buoyline.messages import Media, Reasoning, convert


@pytest.mark.parametrize(("calls", "stream"), [(CALLS, False), (20, True)])
async def test_verbose_calls_fit_the_window_and_nothing_is_lost(calls: int, stream: bool, tmp_path: Path) -> None:  # noqa: FBT001 - a parameter
    run = Run(tmp_path, script(0, calls))
    events = await run(stream=stream)
    *outputs, found = [result for result in results_of(events) if result]
    assert outputs == [output(n) for n in range(calls)]
    assert SECRET in found
    assert max(run.model.sizes) <= WINDOW
    assert len(await run.history()) == await run.added()
    assert run.forks == []
    assert any(event.partial for event in events) is stream


async def test_another_process_goes_on_where_the_first_was_killed(tmp_path: Path) -> None:
    command = [sys.executable, model.__file__, str(tmp_path)]
    killed = subprocess.run(command, check=False, capture_output=True, env={"PYTHONPATH": ":".join(sys.path)})
    assert killed.returncode == 9, killed.stderr
    before = log_in(tmp_path).read_text("utf-8")
    assert '"name":"kill"' in before.splitlines()[-1]
    run = Run(tmp_path, script(8, 12))
    assert SECRET in results_of(await run("Go on."))[-1]
    assert max(run.model.sizes) <= WINDOW
    assert log_in(tmp_path).read_text("utf-8").startswith(before)
    assert await run.added() == len(await run.history())
    assert len(run.forks) == 1  # ADK lists no call that has no result


async def test_a_call_is_on_disk_before_its_tool_runs(tmp_path: Path) -> None:
    def look() -> str:
        """Return the newest line of the log."""
        return log_in(tmp_path).read_text("utf-8").splitlines()[-1]

    for stream in (False, True):
        events = await Run(tmp_path, [[call("look")], [text("Done.")]], tools=[look])(stream=stream)
        (newest,) = results_of(events)
        assert [part["function_call"]["name"] for part in json.loads(newest)["parts"]] == ["look"]


CODE = types.Part.from_executable_code(code="1+1", language=types.Language.PYTHON)
RAN = types.Part.from_code_execution_result(outcome=types.Outcome.OUTCOME_OK, output="2")
PLAN = "/*PLANNING*/ Add.\n```python\nprint(1 + 1)\n```"
ANSWERS: dict[str, tuple[list[list[types.Part]], dict[str, Any]]] = {
    "a thought alone": ([[text("Hm.", thought=True)]], {}),
    "no text": ([[text("")]], {}),
    "a signature behind a text": ([[text("Yes."), text("", thought_signature=SIGNATURE)]], {}),
    "the model's own ids": ([[call("build", "m1", n=1), call("build", "m2", n=2)], [text("Built.")]], {}),
    "code that the provider ran": ([[CODE, RAN, text("It is 2.")]], {}),
    "a plan that ADK rewrites": ([[text(f"{PLAN} /*FINAL_ANSWER*/ 2.")]], {"planner": PlanReActPlanner()}),
    "code that ADK takes out": ([[text(PLAN)], [text("2.")]], {"code_executor": UnsafeLocalCodeExecutor()}),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("answer", ANSWERS)
async def test_each_answer_is_added_as_adk_lists_it_later(answer: str, stream: bool, tmp_path: Path) -> None:  # noqa: FBT001 - a parameter
    steps, fields = ANSWERS[answer]
    run = Run(tmp_path, [*steps, [text("Fine.")]], **fields)
    await run(stream=stream)
    await run("Go on.", stream=stream)
    assert run.forks == []
    assert await run.added() - len(run.model.requests[-1]) == (not fields)


async def test_what_the_provider_refuses_as_too_long_is_sent_again_with_less(tmp_path: Path) -> None:
    steps = script(0, 6)
    run = Run(tmp_path, [*steps[:4], TOO_LONG, TOO_LONG, *steps[4:]])
    assert SECRET in results_of(await run(stream=True))[-1]
    assert run.model.sizes[4] > run.model.sizes[5] > run.model.sizes[6]
    assert run.forks == []
    with pytest.raises(ConnectionError):
        await Run(tmp_path, [ConnectionError("reset")])()


async def test_an_instruction_beside_a_static_one_is_sent_and_is_no_message(tmp_path: Path) -> None:
    run = Run(tmp_path, script(0, 12), static_instruction="You build.", instruction=lambda _: f"Built: {len(sizes)}.")
    sizes: list[int] = run.model.sizes
    await run()
    for number, request in enumerate(run.model.requests):
        is_last = [f"Built: {number}." in str(content) for content in request]
        assert is_last == [*[False] * (len(request) - 1), True] if number else [True, False]
    assert max(sizes) <= WINDOW
    assert await run.added() == len(await run.history())
    assert "Built: 0." not in log_in(tmp_path).read_text("utf-8")


async def test_two_users_with_one_session_id_do_not_mix(tmp_path: Path) -> None:
    def who(tool_context: Context) -> str:
        """Return the user."""
        return f"I am {tool_context.user_id}!"

    run = Run(tmp_path, [*[[call("who")]] * 6, [text("Done.")], [text("Done.")]], tools=[who])
    await asyncio.gather(run(user="jo"), run(user="jo.s1"))
    for user, session in {"jo": SESSION, "jo.s1": "yard.jo%2Es1.s1.builder"}.items():
        async with run.plugin.pool.of(session) as window:
            assert set(re.findall("I am [^!]+", str(window.messages))) == {f"I am {user}"}
        assert await run.added(session) == len(await run.history(user))
    assert run.forks == []


async def test_an_agent_that_runs_twice_at_a_time_has_two_sessions(tmp_path: Path) -> None:
    welder = LlmAgent(name="welder", model=model.CheckedModel([[text("Ok.")]] * 2), mode="single_turn")
    painter = LlmAgent(name="painter", model=model.CheckedModel([[text("Red.")]]))
    parallel = [call("welder", request="A"), call("welder", request="B")]
    run = Run(tmp_path, [parallel, [call("transfer_to_agent", agent_name="painter")]], sub_agents=[welder, painter])
    await run()
    agents = sorted(session.session_id.split(".")[3] for session in run.plugin.pool.workspace.sessions())
    assert agents == ["builder", "painter", "welder", "welder"]
    assert run.forks == []


async def test_system_prompt_and_tools_count_and_a_prefix_begins_the_lookups(tmp_path: Path) -> None:
    plugin = BuoylinePlugin(tmp_path, size=WINDOW, prefix="kept_")
    assert [tool.name for tool in plugin.tools] == ["kept_read", "kept_grep", "kept_search"]
    run = Run(tmp_path, [[text("Hi.")]], instruction=output(1))
    await run()
    async with run.plugin.pool.of(SESSION) as window:
        assert window.tokens == pytest.approx(run.model.sizes[0], rel=0.2)
    with pytest.raises(RuntimeError, match="leave no room"):
        await Run(tmp_path, [], instruction=output(1) * 4)()


# The dialect.

BLOB = types.Part.from_bytes(data=SIGNATURE, mime_type="image/png")
SHOTS = [types.FunctionResponsePart.from_bytes(data=SIGNATURE + bytes([n]), mime_type="image/png") for n in (1, 2)]
RESPONSE = types.FunctionResponse(name="look", response={"result": "Two shots."}, parts=SHOTS)
ASKED = types.Content(role="model", parts=[text("Hm.", thought=True), call("look", at=[1, None]), types.Part()])
SHOWN = types.Content(role="user", parts=[types.Part(function_response=RESPONSE), text("And?")])
FAILED = types.Part.from_function_response(name="look", response={"error": "None.", "at": 1.5})
CONTENTS = [types.Content(parts=[BLOB]), ASKED, SHOWN, types.Content(role="user", parts=[FAILED])]


def test_a_content_reads_the_same_from_its_json_and_comes_back_byte_for_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [json.loads(json.dumps(DIALECT.to_json(content))) for content in CONTENTS]
    assert [DIALECT.from_json(value) for value in values] == CONTENTS
    views = [DIALECT.view(content) for content in CONTENTS]
    monkeypatch.setitem(sys.modules, "google.genai", None)
    assert [DIALECT.view(value) for value in values] == views
    shown = [part.content() for part in (*views[0].parts, *views[2].results[0].parts) if isinstance(part, Media)]
    assert shown == [SIGNATURE, SIGNATURE + b"\1", SIGNATURE + b"\2"]
    assert [bool(part.hidden) for part in views[1].parts if isinstance(part, Reasoning)] == [False, True]
    assert [view.role for view in views] == ["user", "assistant", "user", "tool"]
    assert views[3].results[0].is_error


def test_texts_replace_a_result_and_its_media_and_the_rest_stays() -> None:
    changed = DIALECT.with_results(SHOWN, {0: ["stub", 2]})
    response = RESPONSE.model_copy(update={"response": {"result": "stub"}, "parts": SHOTS[1:]})
    assert changed.parts == [types.Part(function_response=response), text("And?")]
    lined = DIALECT.view(DIALECT.with_results(SHOWN, {0: [0, "a file", 2]})).results[0]
    assert "Two shots." in lined.text
    assert "a file" in lined.text
    assert DIALECT.with_content(ASKED, ["stub", 1, 3]).parts == [text("stub"), call("look", at=[1, None])]


def test_parallel_calls_of_another_dialect_are_answered_in_one_content() -> None:
    calls = [{"id": f"c{n}", "type": "function", "function": {"name": f"f{n}", "arguments": "{}"}} for n in (1, 2)]
    results = [{"role": "tool", "tool_call_id": f"c{n}", "content": f"r{n}"} for n in (1, 2)]
    given = [{"role": "user", "content": "Go."}, {"role": "assistant", "content": None, "tool_calls": calls}, *results]
    contents = convert(given, to="gemini").messages
    model.check(contents)
    assert [result.text for result in DIALECT.view(contents[2]).results] == ["r1", "r2"]
