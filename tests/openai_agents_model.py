"""A scripted model for OpenAI's Agents SDK that checks each request, and an agent with a verbose tool.

As a program, `python openai_agents_model.py FOLDER`, the agent is killed in the middle of a run.
"""

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from agents import (
    Agent,
    FunctionTool,
    MultiProvider,
    OpenAIChatCompletionsModel,
    RunConfig,
    Runner,
    SQLiteSession,
    Tool,
    Usage,
    function_tool,
    set_tracing_disabled,
)
from agents.models.interface import Model
from agents.testing import ModelCall, ModelStep, ScriptedModel, assistant_message, function_call
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletion
from openai.types.responses import ResponseInputItemParam, ResponseReasoningItem
from openai.types.responses.response_reasoning_item import Summary
from pydantic import TypeAdapter
from verbose_runs import WINDOW, output, tokens

from buoyline.integrations.openai_agents import BuoylineHooks
from buoyline.window import Event

_ITEMS = TypeAdapter(list[ResponseInputItemParam])
DONE = [assistant_message("Done.", item_id="msg_done")]


@function_tool
def build(n: int) -> str:
    """Run a step of the build."""
    return output(n)


def calling(name: str, call_id: str, **arguments: Any) -> Any:
    return function_call(name, arguments, call_id=call_id, item_id=f"fc_{call_id}")


def thinking(about: str) -> Any:
    summary, sealed = [Summary(text=f"I think about {about}.", type="summary_text")], "gAAAA" + "x" * 795
    return ResponseReasoningItem(id=f"rs_{about}", type="reasoning", summary=summary, encrypted_content=sealed)


def script(first: int, end: int) -> list[list[Any]]:
    """Return what the model answers: calls alone, in pairs, and after a text; then a lookup, and the end."""
    steps, n = list[list[Any]](), first
    while n < end:
        numbers = range(n, min(n + 1 + (n % 5 == 0), end))
        text = [assistant_message(f"Step {n}.", item_id=f"msg_{n}")] if n % 3 == 0 else []
        steps.append([thinking(str(n)), *text, *(calling("build", f"call_{at}", n=at) for at in numbers)])
        n = numbers.stop
    return [*steps, [thinking(f"secret{end}"), calling("grep", f"call_g{end}", pattern="SECRET-")], DONE]


class CheckedModel(ScriptedModel):
    """Answers with *steps*, lists of items or errors; `sizes` are the tokens of the requests."""

    def __init__(self, steps: Sequence[Any]) -> None:
        super().__init__([ModelStep.respond(partial(self._answer, step)) for step in steps])
        self.sizes = list[int]()
        self._behind = dict[str, list[Any]]()

    def _answer(self, step: Any, call: ModelCall) -> ModelStep:
        self._check(call.input)
        tools = [
            [one.name, one.description, one.params_json_schema] for one in call.tools if isinstance(one, FunctionTool)
        ]
        self.sizes.append(tokens(call.system_instructions or "", tools, *call.input))
        if isinstance(step, Exception):
            return ModelStep.raise_error(step)
        if step[0].type == "reasoning":
            self._behind[step[0].id] = [item.id for item in step[1:]]
        return ModelStep(output=step, usage=Usage(requests=1, input_tokens=self.sizes[-1], output_tokens=50))

    def _check(self, items: list[Any]) -> None:
        """Assert that each call has one output, and that reasoning has all that its response brought after it."""
        _ITEMS.validate_python(items)
        calls, outputs = (
            [item["call_id"] for item in items if item.get("type") == kind]
            for kind in ("function_call", "function_call_output")
        )
        assert sorted(calls) == sorted(outputs)
        ids = [item.get("id") for item in items]
        for reasoning, behind in self._behind.items():
            at = ids.index(reasoning) if reasoning in ids else len(ids)
            assert ids[at + 1 : at + 1 + len(behind)] == (behind if reasoning in ids else [])
            assert reasoning in ids or not set(ids) & set(behind)


def chat_model(requests: list[Any], monkeypatch: pytest.MonkeyPatch) -> OpenAIChatCompletionsModel:
    """Return a model of chat completions that calls the tool 24 times, in pairs; *requests* gets the requests."""

    async def create(**request: Any) -> ChatCompletion:
        requests.append(request)
        n = 2 * len(requests)
        functions = [{"name": "build", "arguments": json.dumps({"n": at})} for at in (n, n + 1)] if n <= 24 else []
        calls = [{"id": f"call_{n + at}", "type": "function", "function": one} for at, one in enumerate(functions)]
        message = {"role": "assistant", "content": "Done.", "reasoning_content": "Hm.", "tool_calls": calls}
        choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
        given = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": choices}
        return ChatCompletion.model_validate(given)

    client = AsyncOpenAI(api_key="none is asked for")
    monkeypatch.setattr(client.chat.completions, "create", create)
    return OpenAIChatCompletionsModel("m", client)


class Build:
    """An agent that builds, with its history in a folder; a call runs it and returns its final output."""

    def __init__(
        self, folder: Path, model: Model, *, session: Any = "s1", tools: Sequence[Tool] = (), **settings: Any
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.events, self.history = list[Event](), SQLiteSession("s1", folder / "history.db")
        settings = {"size": WINDOW, "on_event": self.events.append, **settings}
        self.hooks = BuoylineHooks(folder / "workspace", session=session, **settings)
        self.agent = Agent[Any](
            "Builder", instructions="You build.", model=model, tools=[build, *tools, *self.hooks.tools]
        )
        self.config = RunConfig(call_model_input_filter=self.hooks.filter, tracing_disabled=True)

    async def __call__(self, text: str = "Build all.", *, stream: bool = False, **more: Any) -> Any:
        given = {"session": self.history, "hooks": self.hooks, "run_config": self.config, "max_turns": 100, **more}
        if not stream:
            return (await Runner.run(self.agent, text, **given)).final_output
        result = Runner.run_streamed(self.agent, text, **given)
        assert [event async for event in result.stream_events()]
        return result.final_output


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each model that a program names call the agent's first tool, and then end."""

    def answer(call: ModelCall) -> Any:
        if call.input[-1].get("type") == "function_call_output":
            return [assistant_message("Step 4711 fails: the disk is full.")]
        return [calling(call.tools[0].name, f"call_{len(call.input)}")]

    set_tracing_disabled(disabled=True)
    model = ScriptedModel([ModelStep.respond(answer)] * 10)
    monkeypatch.setattr(MultiProvider, "get_model", lambda *_: model)


if __name__ == "__main__":

    @function_tool
    def kill() -> None:
        """End the process."""
        os._exit(9)

    steps = [*script(0, 10)[:-2], [thinking("kill"), calling("kill", "call_k")]]
    asyncio.run(Build(Path(sys.argv[1]), CheckedModel(steps), tools=[kill])())
