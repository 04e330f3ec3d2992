"""Microsoft Agent Framework's own agent, with a scripted model: what it gets, what is on disk, and when."""

import asyncio
import json
import multiprocessing
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("agent_framework", reason="agent-framework-core is an extra for tests")

from agent_framework import AgentSession, Content, FunctionTool, InMemoryHistoryProvider, Message, tool
from agent_framework.exceptions import ChatClientException
from agent_framework_model import VerboseAgent, call, killed_life, verbose_answers
from verbose_runs import CALLS, SECRET, WINDOW, output, tokens

from buoyline.errors import ConfigError, ContextOverflowError, MessageError
from buoyline.integrations.agent_framework_dialect import DIALECT
from buoyline.messages import CachePoint, Media, Opaque, Reasoning, ToolCall, convert
from buoyline.window import HistoryForked

GREP = [call("grep", "call_g", pattern="SECRET-3-", context=1)]
LONG = output(1) * 3
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
ANSWER = [
    Content.from_text_reasoning(id="rs_1", text="Hm.", protected_data="sealed"),
    Content.from_mcp_server_tool_call(call_id="m", tool_name="find", server_name="s", arguments={"q": "x"}),
    Content.from_mcp_server_tool_result(call_id="m", output=[Content.from_text("found")]),
    Content.from_function_call("w", "web_search", arguments={}, informational_only=True),
    Content.from_function_result("w", result="hits"),
    Content.from_function_call("c1", "ls", arguments={"path": "."}),
    Content.from_function_call("c2", "ls", arguments='{"path": "/"}'),
    Content.from_usage({"input_token_count": 7}),
    Content.from_function_approval_request("a1", call("ls", "c1")),
]
SHOWN = [Content.from_text("a"), Content.from_data(PNG, "image/png")]
RESULTS = [
    Content.from_function_result("c1", result="no such file", exception="a secret"),
    Content.from_function_result("c2", result=SHOWN),
]
MESSAGES = [
    Message("system", ["Be brief."]),
    Message("user", ["See this.", Content.from_data(PNG, "image/png", name="a.png")], author_name="Ann"),
    Message("user", [Content.from_uri("https://x.org/a.pdf", media_type="application/pdf")]),
    Message("user", [Content.from_hosted_file("file_1", name="b.csv")]),
    Message("assistant", ANSWER, author_name="reader"),
    Message("tool", RESULTS),
    Message("assistant", [Content.from_text("Done.", annotations=[{"type": "citation", "url": "https://x.org"}])]),
]


def forks(life: VerboseAgent) -> list[HistoryForked]:
    return [event for event in life.events if isinstance(event, HistoryForked)]


async def added(life: VerboseAgent, session_id: str = "s1") -> int:
    async with life.buoyline.pool.of(session_id) as window:
        return window.added


@pytest.mark.parametrize("stream", [False, True])
async def test_verbose_calls_fit_the_window_and_the_agent_finds_what_left_it(tmp_path: Path, *, stream: bool) -> None:
    life = VerboseAgent(str(tmp_path), [*verbose_answers(0, CALLS)[:-1], GREP, "Found.", "Welcome."])
    session = AgentSession(session_id="s1")
    assert (await life.run("Read all logs.", session, stream=stream)).endswith("Found.")
    assert max(tokens(*request) for request in life.client.requests) <= WINDOW
    assert SECRET in str(life.client.requests[-1][-1])
    await life.run("Thanks.", session, stream=not stream)  # the framework has put the agent's name to its messages
    history: list[Message] = session.state["in_memory"]["messages"]
    results = [one.result for message in history for one in message.contents if one.type == "function_result"]
    assert results[:CALLS] == [output(n) for n in range(CALLS)]
    assert (forks(life), await added(life)) == ([], len(history))


async def test_another_process_goes_on_where_the_first_was_killed(tmp_path: Path) -> None:
    first = multiprocessing.get_context("spawn").Process(target=killed_life, args=(str(tmp_path),))
    first.start()
    await asyncio.to_thread(first.join)
    life = VerboseAgent(str(tmp_path), [*verbose_answers(9, 12)[:-1], GREP, "Found."])
    async with life.buoyline.pool.of("s1") as window:
        kept, before = window.messages, window.added
    assert (await life.run([*kept, "Go on."], AgentSession(session_id="s1"), stream=True)).endswith("Found.")
    assert "[interrupted" in str(life.client.requests[0][-2])
    assert max(tokens(*request) for request in life.client.requests) <= WINDOW
    assert SECRET in str(life.client.requests[-1][-1])
    # Behind what was kept: an answer to the call that was interrupted, and all messages of the new run.
    assert (first.exitcode, forks(life), before, await added(life)) == (9, [], 14, 14 + 1 + 8)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_is_on_disk_before_its_tool_runs(tmp_path: Path, *, stream: bool) -> None:
    found = list[str]()

    @tool
    def look() -> str:
        """Look at the log."""
        found.append((tmp_path / "sessions/s1/context.jsonl").read_text("utf-8").splitlines()[-1])
        return "seen"

    life = VerboseAgent(str(tmp_path), [[call("look", "call_1")], "Seen."], tools=[look])
    await life.run("Look.", AgentSession(session_id="s1"), stream=stream)
    assert json.loads(found[0])["contents"][0]["call_id"] == "call_1"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_refused_request_is_made_smaller_and_sent_again(tmp_path: Path, *, stream: bool) -> None:
    refusal = ChatClientException("failed", ValueError("This model's maximum context length is 8192 tokens"))
    answers = [*verbose_answers(0, 5)[:-1], refusal, *verbose_answers(5, 7), *[refusal] * 9]
    life, session = VerboseAgent(str(tmp_path), answers), AgentSession(session_id="s1")
    assert (await life.run("Read.", session, stream=stream)).endswith("read.")
    sizes = [tokens(*request) for request in life.client.requests]
    assert (sizes[5] < 0.95 * sizes[4], forks(life)) == (True, [])
    with pytest.raises((ChatClientException, ContextOverflowError)):
        await life.run("Go on.", session, stream=stream)
    assert len(life.client.requests) <= len(sizes) + 4


async def test_sessions_at_a_time_do_not_mix(tmp_path: Path) -> None:
    lives = [VerboseAgent(str(tmp_path), verbose_answers(9 * n, 9 * n + 9), prefix="log_") for n in range(2)]
    lives[1].agent.middleware = [lives[0].buoyline]
    await asyncio.gather(*(life.run(f"Read {n}.", AgentSession(session_id=f"s{n}")) for n, life in enumerate(lives)))
    for n in range(2):
        log = (tmp_path / f"sessions/s{n}/context.jsonl").read_text("utf-8")
        assert (f"Read {n}." in log, f"Read {1 - n}." in log, forks(lives[0])) == (True, False, [])
    assert [one.name for one in lives[0].buoyline.tools] == ["log_read", "log_grep", "log_search"]


async def test_an_agent_as_a_tool_may_keep_files_of_its_own(tmp_path: Path) -> None:
    def name(session: AgentSession) -> str:
        return f"{session.session_id}-reader"

    inner = VerboseAgent(str(tmp_path), [*verbose_answers(0, 3), *verbose_answers(3, 6)], session=name)
    inner.agent.context_providers = [InMemoryHistoryProvider("reader")]
    calls = [[call("reader", f"call_{n}", task="Read.")] for n in range(2)]
    outer = VerboseAgent(str(tmp_path), [*calls, "Done."], tools=[inner.agent.as_tool(propagate_session=True)])
    await outer.run("Go.", AgentSession(session_id="s1"))
    assert (await added(outer), await added(inner, "s1-reader"), forks(outer), forks(inner)) == (6, 14, [], [])


@pytest.mark.parametrize("options", [{"instructions": LONG}, {"tools": [FunctionTool(name="x", description=LONG)]}])
async def test_instructions_and_tools_count(tmp_path: Path, options: Any) -> None:
    with pytest.raises(ContextOverflowError):
        await VerboseAgent(str(tmp_path), ["Yes."]).agent.run("Hi.", session=AgentSession(), options=options)


@pytest.mark.parametrize(
    ("session", "options", "words"),
    [
        (None, {}, "agent.create_session(session_id='s1')"),
        (AgentSession(), {"store": True}, "default_options={'store': False}"),
        (AgentSession(service_session_id="resp_1"), {}, "default_options={'store': False}"),
    ],
)
async def test_an_error_says_what_to_write(tmp_path: Path, session: Any, options: Any, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        await VerboseAgent(str(tmp_path), ["Yes."]).agent.run("Hi.", session=session, options=options)
    assert words in str(error.value)


def test_a_message_reads_the_same_without_the_framework(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [json.loads(json.dumps(DIALECT.to_json(message))) for message in MESSAGES]
    again, views = [DIALECT.from_json(value) for value in values], [DIALECT.view(message) for message in MESSAGES]
    assert [DIALECT.to_json(message) for message in again] == values
    monkeypatch.setitem(sys.modules, "agent_framework", None)
    assert [DIALECT.view(value) for value in values] == views
    assert all(DIALECT.detects(message) for message in (*values, *MESSAGES))
    kinds = [Reasoning, Opaque, Opaque, Opaque, Opaque, ToolCall, ToolCall, CachePoint, CachePoint]
    assert [type(part) for part in views[4].parts] == kinds
    assert [view.name for view in views] == ["", "Ann", "", "", "", "", ""]
    assert [result.is_error for result in views[5].results] == [True, False]
    with pytest.raises(MessageError, match="int is no Message"):
        DIALECT.view(3)


def test_a_stub_replaces_both_texts_of_a_result() -> None:
    first, second = DIALECT.with_results(MESSAGES[5], {1: ["stub", 1]}).contents
    assert (first.result, second.result, second.items[0].text) == ("no such file", "stub", "stub")
    assert second.items[1] == SHOWN[1]
    assert DIALECT.with_content(MESSAGES[1], ["a line", 0]).text == "a line See this."


def test_results_and_images_are_converted_to_it_and_back() -> None:
    there = convert(MESSAGES, to="anthropic").messages
    back = [DIALECT.view(message) for message in convert(there, to="agent-framework").messages]
    assert next(part for part in back[0].parts if isinstance(part, Media)).content() == PNG
    assert [result for view in back for result in view.results] == [*DIALECT.view(MESSAGES[5]).results]
