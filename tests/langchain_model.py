"""A scripted model for the agents of LangChain and deepagents, which checks each request; and messages of all forms.

``python langchain_model.py FOLDER`` runs an agent in FOLDER that is killed while a tool runs.
"""

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest
from langchain.agents import create_agent
from langchain_core.exceptions import ContextOverflowError
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    convert_to_openai_messages,
)
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import BaseTool, tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import Field
from verbose_runs import SECRET, WINDOW, output, tokens

from buoyline.integrations.langchain import BuoylineMiddleware


class ScriptedModel(BaseChatModel):
    """Gives *answers* one by one, the last one for ever; one may be a function of the request.

    A request of more than *limit* tokens fails, or is refused with an error of the class *refuses*.
    """

    answers: list[Any]
    limit: int = WINDOW
    refuses: type[Exception] | None = None
    tools: list[dict[str, Any]] = Field(default_factory=list[dict[str, Any]])
    requests: list[list[BaseMessage]] = Field(default_factory=list[list[BaseMessage]])
    sizes: list[int] = Field(default_factory=list[int])
    refused: list[int] = Field(default_factory=list[int])

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        self.tools = [convert_to_openai_tool(one) for one in tools]
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        size = tokens(convert_to_openai_messages(messages), self.tools)
        if self.refuses is not None and size > self.limit:
            self.refused.append(size)
            raise self.refuses(f"{size} tokens are above the maximum context length of {self.limit}")
        assert size <= self.limit
        assert_sound(messages)
        self.requests.append(messages)
        self.sizes.append(size)
        answer = self.answers[min(len(self.requests), len(self.answers)) - 1]
        answer = answer(messages) if callable(answer) else answer
        usage = {"input_tokens": size, "output_tokens": 20, "total_tokens": size + 20}
        return ChatResult(generations=[ChatGeneration(message=answer.model_copy(update={"usage_metadata": usage}))])

    def _stream(self, messages: list[BaseMessage], *_: Any, **__: Any) -> Iterator[ChatGenerationChunk]:
        said: Any = self._generate(messages).generations[0].message
        pieces = said.content.split(" ") if isinstance(said.content, str) else [said.content]
        for piece in pieces if said.content else []:
            yield ChatGenerationChunk(message=AIMessageChunk(content=piece if isinstance(piece, list) else f"{piece} "))
        chunks: list[Any] = [
            {**one, "args": json.dumps(one["args"]), "index": at} for at, one in enumerate(said.tool_calls)
        ]
        last = AIMessageChunk(content="", tool_call_chunks=chunks, usage_metadata=said.usage_metadata)
        yield ChatGenerationChunk(message=last)


def assert_sound(messages: list[BaseMessage]) -> None:
    """Assert what providers demand: each call is answered directly after it, and nothing else is."""
    waiting = list[str]()
    for message in messages:
        type(message).model_validate(message.model_dump())
        if isinstance(message, ToolMessage):
            waiting.remove(message.tool_call_id)
        else:
            assert waiting == []
            asked = [*message.tool_calls, *message.invalid_tool_calls] if isinstance(message, AIMessage) else []
            waiting = [str(one["id"]) for one in asked]
    assert waiting == []


def call(name: str, call_id: str, content: Any = "", **arguments: Any) -> AIMessage:
    """Return an answer with a call."""
    return AIMessage(content, tool_calls=[{"name": name, "args": arguments, "id": call_id}])


def verbose_calls(first: int, end: int) -> list[AIMessage]:
    """Return answers that call `verbose` for each number: with text, with reasoning, and two of six in parallel."""
    said: list[Any] = ["", "I look.", [{"type": "reasoning", "reasoning": "Hm."}, {"type": "text", "text": "Next."}]]
    made = [call("verbose", f"call_{n}", said[n % 3], n=n) for n in range(first, end)]
    for at in range(end - first - 1, 0, -1):
        if (first + at) % 6 == 5:
            made[at - 1].tool_calls += made.pop(at).tool_calls
    return made


def found(messages: list[BaseMessage]) -> AIMessage:
    """Answer with the secret if the newest message shows it."""
    return AIMessage(f"It is {SECRET if SECRET in str(messages[-1].content) else 'not there'}.")


REFUSALS: Final = (ContextOverflowError, RuntimeError)
"""LangChain's, and what another provider's client may raise."""

LOOK_UP: Final = [call("grep", "call_g", pattern="SECRET-3-"), found]
RUN: Final = [*verbose_calls(0, 10), *LOOK_UP]
DIES_AT, DONE, KILLED = 6, 6, 9
"""In the run that is killed: the call, how many answers are known by then, and the exit code."""

_RESULT: Final = "/buoyline/sessions/t1/tool_result-call_3.txt"
DEEP_RUN: Final = [
    *verbose_calls(0, 20),
    call("task", "task", description="Call it ten times.", subagent_type="general-purpose"),
    *verbose_calls(20, 30),
    AIMessage("Done."),
    call("grep", "grep", pattern="SECRET-3-", path="/buoyline/", output_mode="content"),
    call("read_file", "read", file_path=_RESULT, offset=390),
    call("edit_file", "edit", file_path=_RESULT, old_string="SECRET", new_string="x"),
    call("glob", "glob", pattern="**", path="/buoyline/"),
    call("read_file", "other", file_path="/buoyline/sessions/t2/context.jsonl"),
    AIMessage("Found."),
]
"""With a sub-agent, and with look-ups by the tools that a deep agent has."""


def verbose_tool(dies_at: int = -1) -> BaseTool:
    """Make the tool, whose process dies in one of its calls."""

    @tool
    def verbose(n: int) -> str:
        """Say much."""
        if n == dies_at:
            os._exit(KILLED)
        return output(n)

    return verbose


def agent_of(model: ScriptedModel, *middleware: Any, tools: Any = (), saver: Any = None, **more: Any) -> Any:
    """Make an agent, with the verbose tool if no others are given."""
    saver, tools = InMemorySaver() if saver is None else saver, tools or [verbose_tool()]
    return create_agent(model, tools, system_prompt="Be good.", middleware=middleware, checkpointer=saver, **more)


def thread(name: str) -> Any:
    """Return the configuration of a run in a thread."""
    return {"configurable": {"thread_id": name}}


def run(agent: Any, given: Any = "Go.", name: str = "t1", *, is_async: bool = False) -> Any:
    """Run *agent* with a text, or with what else it is to go on with; return its state."""
    given = {"messages": given} if isinstance(given, str) else given
    return asyncio.run(agent.ainvoke(given, thread(name))) if is_async else agent.invoke(given, thread(name))


def log(folder: Path, session: str = "t1") -> str:
    """Return what a session has on disk."""
    return (folder / "sessions" / session / "context.jsonl").read_text("utf-8")


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a model that calls the tool ``build`` in the place of each that is named."""

    def answer(messages: list[BaseMessage]) -> AIMessage:
        is_built = isinstance(messages[-1], ToolMessage)
        return AIMessage("The disk was full.") if is_built else call("build", "call_1")

    for module in ("langchain.agents.factory", "deepagents._models"):
        with suppress(ImportError):
            monkeypatch.setattr(f"{module}.init_chat_model", lambda *_, **__: ScriptedModel(answers=[answer]))


# Messages that say the same in each form, and others.

SAID: Final = {"type": "text", "text": "I look."}
USE: Final = {"type": "tool_use", "id": "c1", "name": "read", "input": {"a": 1}}
_HM: Final = {"type": "reasoning", "reasoning": "Hm."}
_THOUGHT: Final = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
_SUMMARY: Final = {
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": "Hm."}],
    "encrypted_content": "eA==",
}
_READ: Final[Any] = {"name": "read", "args": {"a": 1}, "id": "c1"}
_SPELLED: Final[Any] = {**_READ, "args": '{"a":1}'}
_CHUNK: Final[Any] = {**_SPELLED, "index": 0}
_FUNCTION: Final = {"type": "function_call", "call_id": "c1", "id": "f", "name": "read", "arguments": '{"a":1}'}
_RAW: Final = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"a":1}'}}
FORMS: Final = {
    "own": AIMessage([_HM, SAID, {"type": "tool_call", **_READ}], tool_calls=[_READ]),
    "anthropic": AIMessage([_THOUGHT, SAID, {**USE, "input": {"a": 0}}], tool_calls=[_READ]),
    "block alone": AIMessage([_THOUGHT, SAID, USE]),
    "responses": AIMessage([_SUMMARY, SAID, _FUNCTION], tool_calls=[_READ]),
    "chat": AIMessage("I look.", additional_kwargs={"reasoning_content": "Hm.", "tool_calls": [_RAW]}),
    "chunk": AIMessageChunk(content=[_HM, SAID], tool_call_chunks=[_CHUNK]),
    "invalid": AIMessage([_HM, SAID], invalid_tool_calls=[{**_SPELLED, "error": "no"}]),
    "without id": AIMessage(
        [_HM, SAID], tool_calls=[_READ], invalid_tool_calls=[{**_SPELLED, "id": None, "error": ""}]
    ),
}
OTHERS: Final = {
    "user": HumanMessage(["Look:", {"type": "image", "base64": "iVBORw0KGgo=", "mime_type": "image/png"}], name="ann"),
    "bytes": HumanMessage([{"image": {"format": "png", "source": {"bytes": b"\x89PNG\xff"}}}]),
    "system": SystemMessage([SAID]),
    "tool": ToolMessage([SAID, SAID], tool_call_id="c1", name="read", status="error", artifact=object()),
    "emptied": AIMessage("", additional_kwargs={"tool_calls": [_RAW]}).model_copy(update={"tool_calls": []}),
    "odd metadata": AIMessage("Hm.", response_metadata={"client": object(), "logprob": float("nan")}),
}


if __name__ == "__main__":
    from langgraph.checkpoint.sqlite import SqliteSaver

    folder = Path(sys.argv[1])
    with SqliteSaver.from_conn_string(str(folder / "state.sqlite")) as states:
        agent = agent_of(
            ScriptedModel(answers=RUN),
            BuoylineMiddleware(folder, size=WINDOW),
            tools=[verbose_tool(DIES_AT)],
            saver=states,
        )
        agent.invoke({"messages": "Go."}, thread("t1"), durability="sync")
