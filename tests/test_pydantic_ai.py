"""`BuoylineCapability` in Pydantic AI's own agents, whose requests reach a script as they would reach OpenAI."""

import asyncio
import json
import runpy
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pydantic_ai", reason="pydantic-ai-slim is an extra")
pytest.importorskip("openai", reason="the script is behind OpenAI's package")

from pydantic_ai import ModelRetry, RunContext, UsageLimits
from pydantic_ai import messages as ai
from pydantic_ai_model import LOOKUP, PNG, Script, Watched, a_request, a_response, agent_of, calls, verbose_call
from verbose_runs import CALLS, SECRET, WINDOW, output

from buoyline import ContextWindow
from buoyline.errors import ConfigError
from buoyline.integrations import pydantic_ai_dialect
from buoyline.integrations.pydantic_ai_dialect import DIALECT
from buoyline.messages import Text
from buoyline.window.context import content_key


@pytest.fixture
def buoyline(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


async def test_sixty_verbose_calls_fit_and_a_lookup_finds_the_fourth_again(tmp_path: Path, buoyline: Watched) -> None:
    script = Script(*map(verbose_call, range(CALLS)), *LOOKUP)
    limits = UsageLimits(request_limit=None)
    result = await agent_of(script, buoyline).run("Call it.", conversation_id="c1", usage_limits=limits)
    assert (result.output, buoyline.forks) == (SECRET, [])
    assert SECRET not in json.dumps(script.requests[-2])
    assert (len(script.requests), script.largest <= WINDOW) == (CALLS + 2, True)
    heads = [[message["content"] for message in request["messages"][:2]] for request in script.requests]
    assert heads == [["Be good.", "Be brief."]] * len(heads)
    parts = [part for message in result.all_messages() for part in message.parts]
    whole = [part.content for part in parts if isinstance(part, ai.ToolReturnPart) and part.tool_name == "verbose"]
    assert whole == [output(n) for n in range(CALLS)]
    assert "Summary of messages" in json.dumps(script.requests[-1])
    async with buoyline.pool.of("c1") as window:  # instructions and tools count; they are not on disk
        assert window.tokens > (await ContextWindow.open(tmp_path, "c1")).tokens + 300


async def test_another_process_goes_on_where_the_first_was_killed(tmp_path: Path, buoyline: Watched) -> None:
    program = Path(__file__).with_name("pydantic_ai_model.py")
    assert subprocess.run([sys.executable, program, tmp_path], check=False).returncode == 9
    history, script = await buoyline.history("c1"), Script(*LOOKUP)
    result = await agent_of(script, buoyline).run("Go on.", message_history=history, conversation_id="c1")
    assert (result.output, buoyline.forks) == (SECRET, [])
    *before, asked, answered, said = script.requests[0]["messages"]
    assert [call["function"]["arguments"] for call in asked["tool_calls"]] == ['{"n":7}']
    assert (answered["content"], said["content"]) == ("[interrupted: no result was recorded]", "Go on.")
    assert sum(message["role"] == "tool" for message in before) == 10


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_request_that_is_refused_is_sent_again_with_less(buoyline: Watched, *, is_stream: bool) -> None:
    script = Script(*(calls(("verbose", {"n": n}), n=n) for n in range(12)), *LOOKUP, most=5_000)
    agent = agent_of(script, buoyline)
    if is_stream:
        async with agent.run_stream("Call it.", conversation_id="c1") as result:
            said = "".join([piece async for piece in result.stream_text(delta=True)])
    else:
        said = (await agent.run("Call it.", conversation_id="c1")).output
    assert (said, script.largest <= 5_000, buoyline.forks) == (SECRET, True, [])
    assert script.refused


async def test_a_tool_finds_its_call_on_disk(tmp_path: Path, buoyline: Watched) -> None:
    agent, seen = agent_of(Script(calls(("look", {}), n=7), {"content": "done"}), buoyline), list[str]()

    @agent.tool_plain
    def look() -> None:
        seen.append((tmp_path / "sessions" / "c1" / "context.jsonl").read_text("utf-8"))

    await agent.run("Look.", conversation_id="c1")
    assert "call_7_0" in seen[0]


async def test_conversations_at_a_time_keep_to_their_own_sessions(buoyline: Watched) -> None:
    scripts = {name: Script(*map(verbose_call, range(at, at + 8)), *LOOKUP) for name, at in {"a": 0, "b": 20}.items()}
    runs = (agent_of(script, buoyline).run(f"Go, {name}.", conversation_id=name) for name, script in scripts.items())
    assert [result.output for result in await asyncio.gather(*runs)] == [SECRET, "not found"]
    assert "Go, a." not in json.dumps(scripts["b"].requests)


@pytest.mark.parametrize("how", ["same", "json", "session"])
async def test_a_history_goes_on_without_a_fork_however_it_comes_back(tmp_path: Path, how: str) -> None:
    wrong = [calls(("verbose", {"n": "x"}), n=80), calls(("busy", {}), ("busy", {}), n=81)]
    script = Script(*wrong, *map(verbose_call, range(8)), calls(("final_result", {"response": 1}), n=90))
    history: list[ai.ModelMessage] = []
    for n in range(4):
        buoyline = Watched(tmp_path)
        agent = agent_of(script, buoyline, output_type=int)

        @agent.system_prompt(dynamic=True)
        def today(_: RunContext[None], n: int = n) -> str:
            return f"Day {n}."

        @agent.tool
        def busy(ctx: RunContext[None]) -> str:
            ctx.enqueue("Keep calm.")
            raise ModelRetry("Not now.")

        result = await agent.run(f"Question {n}", message_history=history, conversation_id="c1")
        said = [message["content"] for message in script.requests[-1]["messages"]]
        assert (said[:3], buoyline.forks) == (["Be good.", f"Day {n}.", "Be brief."], [])
        history = result.all_messages()
        if how == "json":
            history = ai.ModelMessagesTypeAdapter.validate_json(result.all_messages_json())
        elif how == "session":
            history = await Watched(tmp_path).history("c1")


async def test_changed_instructions_stay_behind_those_that_they_change(buoyline: Watched) -> None:
    def limit(ctx: RunContext[None]) -> ai.InstructionPart:
        return ai.InstructionPart(f"The limit is {min(ctx.run_step, 4)}.", name="limit", on_change="append")

    script = Script(*map(verbose_call, range(12)), {"content": "done"})
    await agent_of(script, buoyline, instructions=limit).run("Go.", conversation_id="c1")
    said = json.dumps(script.requests[-1]["messages"])
    places = [said.find(words) for words in ("limit is 1", "Summary of messages", "limit is 2", "limit is 4")]
    assert places == sorted(set(places) - {-1})


async def test_a_session_is_asked_for_if_a_run_has_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="session: is '' for this run; pass conversation_id=… to it"):
        await agent_of(Script({"content": "done"}), Watched(tmp_path, session=lambda _: "")).run("Go.")


async def test_lookups_may_have_a_prefix(tmp_path: Path) -> None:
    script = Script({"content": "done"})
    await agent_of(script, Watched(tmp_path, prefix="past_")).run("Go.")
    names = [tool["function"]["name"] for tool in script.requests[0]["tools"]]
    assert sorted(names) == ["past_grep", "past_read", "past_search", "small", "verbose"]


@pytest.mark.parametrize("make", [a_request, a_response])
def test_a_message_reads_the_same_from_disk_at_any_time_and_without_pydantic_ai(
    make: Callable[[], ai.ModelMessage], monkeypatch: pytest.MonkeyPatch
) -> None:
    message, later = make(), replace(make(), run_id="r2", conversation_id="c2")
    stored = json.loads(json.dumps(DIALECT.to_json(message)))
    keys = {content_key(DIALECT.view(one)) for one in (message, stored, DIALECT.from_json(stored), later)}
    for module in [name for name in sys.modules if name.startswith("pydantic_ai.")]:
        monkeypatch.setitem(sys.modules, module, None)
    alone = runpy.run_path(pydantic_ai_dialect.__file__)["DIALECT"]
    assert keys == {content_key(alone.view(stored))}


def test_each_part_of_a_request_is_a_message_and_results_come_first() -> None:
    views = [DIALECT.view(piece) for piece in DIALECT.split(a_request())]
    assert [view.role for view in views] == [*["tool"] * 7, *["system"] * 3, *["user"] * 3]
    assert [result.is_error for view in views for result in view.results] == [False] * 6 + [True]
    kinds = [[type(part).__name__ for part in (view.results or [view])[0].parts] for view in views]
    assert kinds[:7] == [["Text"], *[["Json"]] * 2, ["Text"], ["Media"], ["Json"], ["Text", "Media", "Json"]]
    assert kinds[10:] == [["Text", "Media", "Media", "CachePoint", "Text"], ["Media", "Text"], ["Text"]]


def test_an_old_prompt_to_retry_is_a_result_if_it_names_a_tool() -> None:
    old = {"part_kind": "retry-prompt", "tool_call_id": "c1", "content": "Once more."}
    views = [DIALECT.view({"kind": "request", "parts": [{**old, "tool_name": name}]}) for name in ("t", None)]
    assert [(view.role, view.spoken.strip()) for view in views] == [("tool", "Once more."), ("user", "Once more.")]


def test_a_compaction_of_the_provider_is_a_message_and_its_own_calls_have_their_results() -> None:
    before, compacted = [DIALECT.view(piece) for piece in DIALECT.split(a_response())]
    assert (before.role, compacted.role, compacted.is_compaction) == ("assistant", "assistant", True)
    said: Any = before.parts
    assert (said[1].hidden, said[1].sealed_by, said[3].arguments) == ("c2VhbGVk", "pydantic-ai", '{"n": 1')
    assert (said[4].kind, said[4].content()) == ("image", PNG.data)
    assert (said[5].call_id, said[6].call_id, said[6].kind) == ("s1", "s1", "builtin-tool_result")


def test_stubs_take_the_place_of_blocks() -> None:
    pieces = DIALECT.split(a_request())
    for piece, kept in ((pieces[5], []), (pieces[6], [1, 2])):
        (old,) = DIALECT.view(piece).results
        (new,) = DIALECT.view(DIALECT.with_results(piece, {0: ["stub", *kept]})).results
        assert new == replace(old, parts=(Text("stub"), *old.parts[1:]))
    for message, at in ((pieces[10], 1), (a_response(), 4)):
        parts = DIALECT.view(message).parts
        changed = DIALECT.with_content(message, ["stub" if place == at else place for place in range(len(parts))])
        assert DIALECT.view(changed).parts == (*parts[:at], Text("stub"), *parts[at + 1 :])
