"""A script behind Pydantic AI's own model of OpenAI's chat, so each request is checked as it goes over the wire.

As a program it runs an agent in a workspace, and dies within the eighth call of its tool.
"""

import importlib
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

import httpx2
import pytest
from openai.types.chat import ChatCompletionMessageParam
from pydantic import TypeAdapter
from pydantic_ai import Agent, models
from pydantic_ai import messages as ai
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from verbose_runs import SECRET, WINDOW, output, tokens

from buoyline.integrations.pydantic_ai import BuoylineCapability, SessionOf
from buoyline.window import Event, HistoryForked

Request: TypeAlias = dict[str, Any]
Answer: TypeAlias = Mapping[str, Any] | Callable[[Request], Mapping[str, Any]]
"""A message of the model's, or what makes one of the request."""

MESSAGES: TypeAdapter[list[Any]] = TypeAdapter(list[ChatCompletionMessageParam])


def calls(*called: tuple[str, Mapping[str, Any]], n: int = 0, **fields: Any) -> dict[str, Any]:
    """Return the message with which the model calls tools; *n* makes the ids of its calls."""
    made = [
        {"id": f"call_{n}_{at}", "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
        for at, (name, given) in enumerate(called)
    ]
    return {"content": None, **fields, "tool_calls": made}


def verbose_call(n: int) -> Answer:
    """Return a call of the verbose tool; every third has a small one at its side, and some have words or reasoning."""
    both = [("verbose", {"n": n}), *([("small", dict[str, Any]())] if n % 3 == 0 else [])]
    said = [{}, {"content": f"Step {n}."}, {"reasoning_content": f"Let me see {n}."}][n % 4 % 3]
    return calls(*both, n=n, **said)


def looked_up(request: Request) -> dict[str, Any]:
    """Answer with the secret if the newest result shows it."""
    return {"content": SECRET if SECRET in request["messages"][-1]["content"] else "not found"}


LOOKUP: Sequence[Answer] = (calls(("grep", {"pattern": "SECRET-3-"}), n=99), looked_up)


PNG = ai.BinaryContent(b"\x89PNG\r\n\x1a\n\xff\xfe", media_type="image/png")


def a_request() -> ai.ModelRequest:
    """Return a request with parts of every kind."""
    contents = ("text", [{"a": 1}], None, datetime(2026, 1, 1, tzinfo=UTC), PNG)
    parts: list[Any] = [
        ai.SystemPromptPart("Be good."),
        ai.InstructionDeltaPart(id=None, content="Be brief."),
        ai.ToolAvailabilityDeltaPart(tools_added=["verbose"], tool_call_id="c1"),
        ai.UserPromptPart(["hi", PNG, ai.ImageUrl("https://a.b/c"), ai.CachePoint(), ai.TextContent("you")]),
        ai.UserPromptPart([ai.UploadedFile("f1", provider_name="openai"), ai.StructuredContent({"a": 1}, tag="ui")]),
        ai.RetryFeedbackPart("Say more.", retry=ai.RetryInfo(cause="model_retry")),
        *(ai.ToolReturnPart("t", content, "c1") for content in contents),
        ai.ToolReturnPart("search_tools", {"discovered_tools": []}, "c1", tool_kind="tool-search"),
        ai.ToolReturnPart("t", ["two", PNG, {"a": float("nan")}], "c1", metadata=object(), outcome="retried"),
    ]
    return ai.ModelRequest(parts)


def a_response() -> ai.ModelResponse:
    """Return a response with parts of every kind."""
    parts: list[Any] = [
        ai.TextPart("hi"),
        ai.ThinkingPart("hm", signature="c2VhbGVk", provider_name="openai"),
        ai.ToolCallPart("t", {"n": 1}, "c1"),
        ai.ToolCallPart("t", '{"n": 1', "c1"),
        ai.FilePart(PNG),
        ai.NativeToolCallPart("web_search", {"q": "a"}, "s1", provider_name="openai"),
        ai.NativeToolReturnPart("web_search", {"found": []}, "s1", provider_name="openai"),
        ai.CompactionPart(provider_name="openai", provider_details={"encrypted_content": "c2VhbGVk"}),
    ]
    return ai.ModelResponse(parts)


class Script:
    """Gives *answers* in order, the last one again and again; refuses a request of more tokens than *most*.

    Attributes:
        model: The model that the script is behind.
        requests: The bodies of those that it has answered.
        refused: Tokens of those that it has refused.
    """

    def __init__(self, *answers: Answer, most: int = 0) -> None:
        self.answers, self.most = answers, most
        self.requests, self.refused = list[Request](), list[int]()
        client = httpx2.AsyncClient(transport=httpx2.MockTransport(self._respond))
        self.model = OpenAIChatModel("gpt-5", provider=OpenAIProvider(api_key="none", http_client=client))

    @property
    def largest(self) -> int:
        """Tokens of the largest request, with tools, as JSON."""
        return max(map(_size, self.requests))

    def _respond(self, request: httpx2.Request) -> httpx2.Response:
        body: Request = json.loads(request.content)
        assert malformed(body["messages"]) == []
        size = _size(body)
        if 0 < self.most < size:
            self.refused.append(size)
            return httpx2.Response(400, json={"error": {"message": "too long", "code": "context_length_exceeded"}})
        answer = self.answers[min(len(self.requests), len(self.answers) - 1)]
        self.requests.append(body)
        message = answer(body) if callable(answer) else answer
        reply = {"id": "c1", "created": 1, "model": "gpt-5"}
        usage = {"prompt_tokens": size, "completion_tokens": 10, "total_tokens": size + 10}
        end: Request = {"index": 0, "finish_reason": "tool_calls" if message.get("tool_calls") else "stop"}
        if not body.get("stream"):
            choices: list[Request] = [{**end, "message": {"role": "assistant", **message}}]
            return httpx2.Response(200, json={**reply, "object": "chat.completion", "choices": choices, "usage": usage})
        choices = [*({"index": 0, "delta": delta} for delta in _deltas(message)), {**end, "delta": {}}]
        chunks: list[Request] = [*({"choices": [one]} for one in choices), {"choices": [], "usage": usage}]
        lines = (json.dumps({**reply, "object": "chat.completion.chunk", **chunk}) for chunk in chunks)
        text = "".join(f"data: {line}\n\n" for line in (*lines, "[DONE]"))
        return httpx2.Response(200, text=text, headers={"content-type": "text/event-stream"})


def _size(body: Request) -> int:
    return tokens(body["messages"], body.get("tools", []))


def _deltas(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the pieces of a message in a stream: each word, and then the calls."""
    called = [{"index": at, **call} for at, call in enumerate(message.get("tool_calls", ()))]
    words = [{"content": word} for word in (message.get("content") or "").split()]
    return [*words, *([{"tool_calls": called}] if called else [])]


def malformed(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what OpenAI would refuse: a call that is not answered next, and a result without its call.

    Raises:
        ValidationError: A message has not the type that OpenAI's package has for it.
    """
    MESSAGES.validate_python(messages)
    waiting, wrong = list[str](), list[str]()
    for message in messages:
        if message["role"] != "tool":
            wrong += [f"no result for {call_id}" for call_id in waiting]
            waiting = [call["id"] for call in message.get("tool_calls") or ()]
        elif message["tool_call_id"] in waiting:
            waiting.remove(message["tool_call_id"])
        else:
            wrong.append(f"no call for {message['tool_call_id']}")
    return wrong + [f"no result for {call_id}" for call_id in waiting]


class Watched(BuoylineCapability):
    """The capability with the window of the runs.

    Attributes:
        events: What its windows have emitted.
    """

    def __init__(self, workspace: Path, session: SessionOf | None = None, **settings: Any) -> None:
        self.events = list[Event]()
        super().__init__(workspace, session=session, size=WINDOW, on_event=self.events.append, **settings)

    @property
    def forks(self) -> list[HistoryForked]:
        return [event for event in self.events if isinstance(event, HistoryForked)]


def agent_of(script: Script, buoyline: BuoylineCapability, dies_at: int = -1, **settings: Any) -> Agent[None, Any]:
    """Return an agent with a verbose and a small tool; call number *dies_at* of the first one kills the process."""
    told: dict[str, Any] = {"system_prompt": "Be good.", "instructions": "Be brief.", **settings}
    agent: Agent[None, Any] = Agent(script.model, capabilities=[buoyline], **told)

    @agent.tool_plain
    def verbose(n: int) -> str:
        """Return 11,000 characters."""
        if n == dies_at:
            os._exit(9)
        return output(n)

    @agent.tool_plain
    def small() -> str:
        """Return a word."""
        return "small"

    return agent


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the model "openai:gpt-5" call the tool of a page once, and then answer."""
    importlib.import_module("buoyline.compression.summarizers.provider")  # which keeps the function that it finds
    script, theirs = Script(calls(("build", {})), {"content": "The disk was full in step 4711."}), models.infer_model

    def infer(name: Any, *more: Any) -> models.Model:
        return script.model if name == "openai:gpt-5" else theirs(name, *more)

    monkeypatch.setattr(models, "infer_model", infer)


if __name__ == "__main__":
    dying = agent_of(Script(*map(verbose_call, range(10))), Watched(Path(sys.argv[1])), dies_at=7)
    dying.run_sync("Call the tool ten times.", conversation_id="c1")
