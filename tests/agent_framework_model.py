"""A scripted model for Microsoft Agent Framework, with the layers of real clients, and an agent with a verbose tool."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from types import ModuleType
from typing import Any, TypeAlias

import agent_framework as maf
import pytest
from verbose_runs import WINDOW, output, tokens

from buoyline.integrations.agent_framework import BuoylineChatMiddleware

Answer: TypeAlias = "str | Exception | Sequence[maf.Content] | Callable[[Sequence[maf.Message]], Answer]"
"""What one call answers: text, contents, an error to raise, or a function of the messages that gives one."""


def call(name: str, call_id: str, **arguments: Any) -> maf.Content:
    return maf.Content.from_function_call(call_id=call_id, name=name, arguments=json.dumps(arguments))


def verbose_answers(first: int, end: int) -> list[Answer]:
    """Call `verbose` with each number, some in pairs, some after text, all after sealed reasoning; then say so."""
    answers, n = list[Answer](), first
    while n < end:
        numbers = range(n, min(n + 1 + (n % 5 == 0), end))
        thought = maf.Content.from_text_reasoning(id=f"rs_{n}", text=f"Log {n} is next.", protected_data="x" * 400)
        words = [maf.Content.from_text(f"Step {n}.")] if n % 3 == 0 else []
        answers.append([thought, *words, *(call("verbose", f"call_{at}", n=at) for at in numbers)])
        n += len(numbers)
    return [*answers, "All logs are read."]


class ScriptedClient(maf.FunctionInvocationLayer[Any], maf.ChatMiddlewareLayer[Any], maf.BaseChatClient[Any]):
    """Gives *answers* one by one, the last one for ever; `requests` has instructions, tools and messages of each call.

    It refuses a call without results directly after it, and a result without its call.
    """

    def __init__(self, answers: Iterable[Answer]) -> None:
        super().__init__(function_invocation_configuration={"max_iterations": 200})
        self.answers = list(answers)
        self.requests: list[list[Any]] = []

    def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **_: Any) -> Any:
        awaited = set[str]()
        for message in messages:
            results = {content.call_id for content in message.contents if content.type == "function_result"}
            assert results == awaited, f"calls {awaited}, results {results}"
            awaited = {content.call_id for content in message.contents if content.type == "function_call"}
        assert not awaited
        specs = [one.to_json_schema_spec() for one in options.get("tools") or ()]
        self.requests.append([options.get("instructions") or "", specs, *map(_sent, messages)])
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        while callable(answer):
            answer = answer(messages)
        contents = [maf.Content.from_text(answer)] if isinstance(answer, str) else answer
        usage = maf.UsageDetails(input_token_count=tokens(*self.requests[-1]), output_token_count=50)
        whole = maf.ResponseStream(_updates(contents, usage), finalizer=maf.ChatResponse.from_updates)
        return whole if stream else whole.get_final_response()


def _sent(message: maf.Message) -> Any:
    """Return what is sent of a message: a result is in it twice, as a text and as items."""
    return {"role": message.role, "contents": [one.to_dict(exclude={"result"}) for one in message.contents]}


async def _updates(
    contents: Sequence[maf.Content] | Exception, usage: maf.UsageDetails
) -> AsyncIterator[maf.ChatResponseUpdate]:
    """Yield texts and arguments in two pieces each."""
    if isinstance(contents, Exception):
        raise contents
    for content in (*contents, maf.Content.from_usage(usage)):
        pieces = [content]
        if content.type == "text":
            pieces = [maf.Content.from_text(text) for text in ((content.text or "")[:3], (content.text or "")[3:])]
        elif content.type == "function_call":
            held, call_id, name = str(content.arguments), content.call_id or "", content.name or ""
            pieces = [
                maf.Content.from_function_call(call_id=call_id, name=name if at == 0 else "", arguments=part)
                for at, part in enumerate((held[:3], held[3:]))
            ]
        for piece in pieces:
            yield maf.ChatResponseUpdate(role="assistant", contents=[piece])


class VerboseAgent:
    """An agent with buoyline, and with the tool `verbose`, which ends the process in call *fatal*."""

    def __init__(
        self, folder: str, answers: Iterable[Answer], *, tools: Sequence[Any] = (), fatal: int = -1, **settings: Any
    ) -> None:
        @maf.tool
        def verbose(n: int) -> str:
            """Return a log."""
            if n == fatal:
                os._exit(9)
            return output(n)

        self.client, self.events = ScriptedClient(answers), list[Any]()
        self.buoyline = BuoylineChatMiddleware(folder, size=WINDOW, on_event=self.events.append, **settings)
        self.agent = maf.Agent(
            client=self.client,
            name="reader",
            instructions="You read logs.",
            tools=[verbose, *tools, *self.buoyline.tools],
            middleware=[self.buoyline],
        )

    async def run(self, given: Any, session: maf.AgentSession, *, stream: bool = False) -> str:
        """Run the agent, and return what it says last."""
        if not stream:
            return (await self.agent.run(given, session=session)).text
        updates = self.agent.run(given, session=session, stream=True)
        return "".join([update.text async for update in updates])


def killed_life(folder: str) -> None:
    """End the process in the middle of the second run."""
    life = VerboseAgent(folder, [*verbose_answers(0, 4), *verbose_answers(4, 9)], fatal=7)
    session = life.agent.create_session(session_id="s1")

    async def live() -> None:
        await life.run("Read four logs.", session)
        await life.run("Read five more.", session)

    asyncio.run(live())


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a scripted model in the place of OpenAI's."""

    def client(**_: Any) -> ScriptedClient:
        return ScriptedClient([[call("build", "c1")], [call("grep", "c2", pattern="No space")], "The disk is full."])

    connector: Any = ModuleType("agent_framework_openai")
    connector.OpenAIChatClient = client
    monkeypatch.setitem(sys.modules, "agent_framework_openai", connector)
