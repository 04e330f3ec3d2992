"""A request to summarise that begins, byte for byte, like the agent's own requests to the same model."""

import json
from pathlib import Path
from typing import Any, Self

import pytest

pytest.importorskip("pydantic_ai", reason="needs the extra 'model'")
pytest.importorskip("openai", reason="needs the extra 'model'")

from model_server import Answer, ModelServer, Reply, elements_of, error, serving, summary
from openai import AsyncOpenAI

from buoyline import ContextWindow, LocalWorkspace, Summary
from buoyline.compression import ModelSummarizer
from buoyline.compression.pointers import POINTER
from buoyline.compression.summary import FIELDS

MODEL = "gpt-test"
SYSTEM = "You close tickets. Never touch /srv/app/schema.sql."
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "read",
            "description": "Read a file.",
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
        },
    }
]
FACTS = {
    **dict.fromkeys(FIELDS, "The retry limit is 4096."),
    "current_state": "Read /srv/app/config_3.yaml: port 8439 is taken.",
}
GOOD = Reply(content=json.dumps(FACTS))


def step(number: int) -> list[dict[str, Any]]:
    function = {"name": "read", "arguments": json.dumps({"path": f"/srv/app/config_{number}.yaml"})}
    return [
        {"role": "assistant", "tool_calls": [{"id": f"c{number}", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": f"port {8436 + number} is taken ü\n" * 12},
    ]


class Agent:
    """An agent that sends each context to the server with the client of OpenAI."""

    def __init__(self, server: ModelServer, directory: Path, *, redact: Any = None, **options: Any) -> None:
        window = {"size": 8_000, "model": MODEL, **options.pop("window", {})}
        self.server = server
        self.client = AsyncOpenAI(base_url=server.url, api_key="none", max_retries=0)
        self.window = ContextWindow(
            session_id="s1",
            offloader=LocalWorkspace(directory, durability="off", redact=redact),
            system=SYSTEM,
            tools=TOOLS,
            summarizer=ModelSummarizer(f"openai:{MODEL}", base_url=server.url, first_wait_s=0.01, **options),
            **window,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.close()

    async def call(self) -> None:
        messages = [{"role": "system", "content": SYSTEM}, *await self.window.prepare()]
        given: Any = {"messages": messages, "tools": TOOLS}
        await self.client.chat.completions.create(model=MODEL, **given)

    async def work(self, first: int, last: int) -> None:
        if first == 0:
            await self.window.add({"role": "user", "content": "Close ticket OPS-17. The retry limit is 4096."})
        for number in range(first, last):
            for message in step(number):
                await self.window.add(message)
            await self.call()

    async def summary(self) -> tuple[Summary, bytes, bytes]:
        """Return a forced summary, the agent's last request before it, and the first request to summarise."""
        count = len(self.server.bodies)
        found = await self.window.compress(force=True)
        assert found is not None
        return found, self.server.bodies[count - 1], self.server.bodies[count]


def shared(agents: bytes, ours: bytes) -> int:
    """Return how many messages ours begins with, each with the bytes of the agent's."""
    pairs = zip(elements_of(agents, "messages"), elements_of(ours, "messages"), strict=False)
    return next((number for number, (one, other) in enumerate(pairs) if one != other), 0)


async def test_a_request_to_summarise_begins_with_the_bytes_of_the_agents_own_request(tmp_path: Path) -> None:
    with serving(GOOD) as server:
        async with Agent(server, tmp_path) as agent:
            await agent.work(0, 12)
            found, theirs, ours = await agent.summary()

    assert found.draft.summarizer == f"openai:{MODEL}"
    messages = elements_of(ours, "messages")
    assert found.messages[1] > 10
    assert shared(theirs, ours) == len(messages) - 1 == found.messages[1] + 1, "the system prompt, then each message"
    assert elements_of(ours, "tools") == elements_of(theirs, "tools")
    instruction = json.loads(messages[-1])
    assert instruction["role"] == "user"
    assert "<work-state-" in instruction["content"]
    assert '"required"' in instruction["content"], (
        "the schema is in the text, since another tool would change the prefix"
    )
    body = json.loads(ours)
    assert "tool_choice" not in body
    assert "response_format" not in body


async def test_the_next_request_begins_with_the_summary_that_the_agent_sees(tmp_path: Path) -> None:
    with serving(GOOD) as server:
        async with Agent(server, tmp_path) as agent:
            await agent.work(0, 12)
            await agent.summary()
            await agent.work(12, 24)
            found, theirs, ours = await agent.summary()

    messages = elements_of(ours, "messages")
    assert shared(theirs, ours) == len(messages) - 1
    assert "[Summary of messages 0-" in messages[1]
    assert found.draft.summarizer == f"openai:{MODEL}"


async def test_a_summary_without_line_numbers_gets_the_citations_that_hold(tmp_path: Path) -> None:
    with serving(GOOD) as server:
        async with Agent(server, tmp_path) as agent:
            await agent.work(0, 12)
            found, _, _ = await agent.summary()

    (cited,) = POINTER.finditer(found.draft.fields["current_state"].split("\n")[0])
    lines = (tmp_path / "sessions/s1/transcript.md").read_text("utf-8").split("\n")
    assert any("config_3.yaml" in line for line in lines[int(cited[2]) - 1 : int(cited[3] or cited[2])])
    assert found.unverified == ()


@pytest.mark.parametrize(
    "options",
    [{"share_cache": False}, {"window": {"model": "gpt-5-mini"}}, {"window": {"model": None}}, {"context_size": 1_500}],
    ids=["not wanted", "another model", "no model named", "too large for the model"],
)
async def test_otherwise_the_request_holds_the_transcript_with_its_line_numbers(
    options: dict[str, Any], tmp_path: Path
) -> None:
    with serving(summary(FACTS)) as server:
        async with Agent(server, tmp_path, **options) as agent:
            await agent.work(0, 12)
            found, theirs, ours = await agent.summary()

    assert found.draft.summarizer == f"openai:{MODEL}"
    assert shared(theirs, ours) == 0
    assert "<conversation-" in ours.decode()


async def test_it_is_shared_for_a_window_without_a_model_if_that_is_asked_for(tmp_path: Path) -> None:
    with serving(GOOD) as server:
        async with Agent(server, tmp_path, share_cache=True, window={"model": None}) as agent:
            await agent.work(0, 12)
            _, theirs, ours = await agent.summary()

    assert shared(theirs, ours) > 10


async def test_messages_that_a_workspace_redacts_are_not_sent_as_they_came(tmp_path: Path) -> None:
    with serving(GOOD, *[GOOD] * 11, summary(FACTS)) as server:
        async with Agent(server, tmp_path, redact=lambda text: text.replace("OPS-17", "[ticket]")) as agent:
            await agent.work(0, 12)
            _, _, ours = await agent.summary()

    assert "OPS-17" not in ours.decode()
    assert "[ticket]" in ours.decode()


CALL = {"id": "c9", "type": "function", "function": {"name": "read", "arguments": '{"path": "/srv"}'}}
CALLING = {
    "id": "c",
    "object": "chat.completion",
    "created": 1,
    "model": MODEL,
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": None, "tool_calls": [CALL]},
            "finish_reason": "tool_calls",
        }
    ],
}


@pytest.mark.parametrize(
    "answer",
    [
        Reply(body=json.dumps(CALLING).encode()),
        Reply(content="I go on with OPS-17."),
        error(400, "unknown field"),
        error(400, "maximum context length is 3000 tokens", code="context_length_exceeded"),
    ],
    ids=["calls a tool", "goes on", "rejected", "too large"],
)
async def test_a_model_that_cannot_answer_such_a_request_is_asked_with_the_transcript(
    answer: Answer, tmp_path: Path
) -> None:
    with serving(*[GOOD] * 12, answer, summary(FACTS)) as server:
        async with Agent(server, tmp_path) as agent:
            await agent.work(0, 12)
            found, _, _ = await agent.summary()

    assert found.draft.summarizer == f"openai:{MODEL}"
    assert len(server.bodies) == 14
    assert "<conversation-" in server.bodies[-1].decode()


async def test_anthropics_messages_keep_their_bytes_and_their_cache_points(tmp_path: Path) -> None:
    anthropic = pytest.importorskip("anthropic", reason="needs anthropic")
    models = pytest.importorskip("pydantic_ai.models.anthropic")
    providers = pytest.importorskip("pydantic_ai.providers.anthropic")
    system = [{"type": "text", "text": SYSTEM, "cache_control": {"type": "ephemeral"}}]
    tools = [{"name": "read", "description": "Read a file.", "input_schema": {"type": "object", "properties": {}}}]
    with serving(GOOD) as server:
        url = server.url.removesuffix("/v1")
        client = anthropic.AsyncAnthropic(base_url=url, api_key="none", max_retries=0)
        model = models.AnthropicModel("claude-test", provider=providers.AnthropicProvider(anthropic_client=client))
        window = ContextWindow(
            session_id="s1",
            offloader=LocalWorkspace(tmp_path, durability="off"),
            size=8_000,
            system=system,
            tools=tools,
            summarizer=ModelSummarizer(model, share_cache=True),
        )
        await window.add({"role": "user", "content": "Close ticket OPS-17. The retry limit is 4096."})
        for number in range(12):
            use = {"type": "tool_use", "id": f"c{number}", "name": "read", "input": {"path": f"/srv/{number}.yaml"}}
            result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": f"port {8436 + number}\n" * 12}
            await window.add({"role": "assistant", "content": [use]})
            await window.add({"role": "user", "content": [{**result, "cache_control": {"type": "ephemeral"}}]})
            messages = await window.prepare()
            await client.messages.create(
                model="claude-test", max_tokens=100, system=system, tools=tools, messages=messages
            )
        found = await window.compress(force=True)
        await client.close()
        theirs, ours = server.bodies[-2:]

    assert found is not None
    assert found.draft.summarizer == "anthropic:claude-test"
    assert shared(theirs, ours) == len(elements_of(ours, "messages")) - 1 > 5
    for key in ("tools", "system"):
        assert elements_of(ours, key) == elements_of(theirs, key)
