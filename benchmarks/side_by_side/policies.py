"""The policies of AgentScope and Strands, on the messages of a recorded session.

They are the packages' own code: ``Agent.compress_context`` of AgentScope, with its configuration of default, and the
conversation managers of Strands. Only the model is not real: a summary has a fixed number of tokens. The output of a
tool is recorded, so AgentScope cuts it as it would cut the output of a tool that runs.
"""

import json
import logging
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

from agentscope.agent import Agent
from agentscope.credential import CredentialBase
from agentscope.message import AssistantMsg, Msg, TextBlock, ToolCallBlock, ToolResultBlock, ToolResultState, UserMsg
from agentscope.model import ChatModelBase, ChatResponse, ChatUsage
from agentscope.tool import Toolkit
from strands.agent.conversation_manager import SlidingWindowConversationManager, SummarizingConversationManager
from strands.types.exceptions import ContextWindowOverflowException

from buoyline.messages.registry import detect

Native = dict[str, Any]
Count = Callable[[Any], int]
Asked = Callable[[Sequence[Any]], None]
"""Notes the messages of a request for a summary."""

SUMMARY_WORDS = 120
"""Of each of the five fields of a summary: about 800 tokens in all."""

_FIELDS = ("task_overview", "current_state", "important_discoveries", "next_steps", "context_to_preserve")
_WORDS = "what was done " * (SUMMARY_WORDS // 3)

logging.getLogger("strands").setLevel(logging.ERROR)


class _SummaryModel(ChatModelBase):
    """Answers every request with a summary, and counts tokens as the benchmark does."""

    def __init__(self, size: int, count: Count, asked: Asked) -> None:
        super().__init__(
            CredentialBase(), "scripted", self.Parameters(), stream=False, max_retries=0, context_size=size
        )
        self._count, self._asked = count, asked

    async def count_tokens(self, messages: list[Msg], tools: list[dict[str, Any]] | None) -> int:  # noqa: ARG002
        return sum(map(self._count, messages))

    async def _call_api(self, model_name: str, messages: list[Msg], *_: Any, **__: Any) -> ChatResponse:  # noqa: ARG002
        self._asked(messages)
        answer = json.dumps(dict.fromkeys(_FIELDS, _WORDS))
        call = ToolCallBlock(id="summary", name="generate_structured_output", input=answer)
        return ChatResponse(content=[call], is_last=True, usage=ChatUsage(0, 0, 0.0))


class AgentScopePolicy:
    """An agent of AgentScope that is given the recorded messages."""

    def __init__(self, size: int, count: Count, asked: Asked) -> None:
        """Begin without messages."""
        self._agent = Agent("agent", "", _SummaryModel(size, count, asked), Toolkit())
        self._count = count
        self._names: dict[str, str] = {}
        self._summary: Msg | None = None

    async def add(self, message: Native) -> None:
        """Add a message; the output of a tool is cut above the agent's limit."""
        context = self._agent.state.context
        text = _text_in(message)
        if message["role"] == "user":
            context.append(UserMsg("user", text))
        elif message["role"] == "tool":
            call_id = message["tool_call_id"]
            block = ToolResultBlock(
                id=call_id,
                name=self._names.get(call_id, ""),
                output=[TextBlock(text=text)],
                state=ToolResultState.SUCCESS,
            )
            kept, _ = await self._agent._split_tool_result_for_compression(block)  # noqa: SLF001 - no public way
            context.append(AssistantMsg("agent", [kept]))
        else:
            calls = [
                ToolCallBlock(id=call["id"], name=call["function"]["name"], input=call["function"]["arguments"])
                for call in message.get("tool_calls") or ()
            ]
            self._names |= {call.id: call.name for call in calls}
            context.append(AssistantMsg("agent", [*([TextBlock(text=text)] if text else []), *calls]))

    async def request(self) -> list[Any]:
        """Return the messages of the next request."""
        await self._agent.compress_context()
        state = self._agent.state
        if state.summary and (self._summary is None or self._summary.get_text_content() != state.summary):
            self._summary = UserMsg("user", state.summary)
        return [*([self._summary] if self._summary is not None else []), *state.context]


class _SummariesOfFixedSize(SummarizingConversationManager):
    def __init__(self, asked: Asked) -> None:
        super().__init__()
        self._asked = asked

    def _generate_summary(self, messages: list[Any], agent: Any) -> Any:  # noqa: ARG002
        self._asked(messages)
        return {"role": "user", "content": [{"text": _WORDS * len(_FIELDS)}]}


class StrandsPolicy:
    """A conversation manager of Strands that is given the recorded messages."""

    def __init__(self, size: int, count: Count, asked: Asked, *, summarizes: bool) -> None:
        """Begin without messages."""
        self._manager = _SummariesOfFixedSize(asked) if summarizes else SlidingWindowConversationManager()
        self._agent = cast("Any", SimpleNamespace(messages=[]))
        self._size, self._count = size, count

    async def add(self, message: Native) -> None:
        """Add a message; each of the user's begins an invocation, after which the manager is called."""
        text = _text_in(message)
        content: list[Native] = [{"text": text}] if text else []
        if message["role"] == "user":
            self._manager.apply_management(self._agent)
        elif message["role"] == "tool":
            result = {"toolUseId": message["tool_call_id"], "status": "success", "content": content}
            content = [{"toolResult": result}]
        for call in message.get("tool_calls") or ():
            function = call["function"]
            use = {"toolUseId": call["id"], "name": function["name"], "input": _arguments(function["arguments"])}
            content.append({"toolUse": use})
        role = "assistant" if message["role"] == "assistant" else "user"
        self._agent.messages.append({"role": role, "content": content})

    async def request(self) -> list[Any]:
        """Return the messages of the next request, after the provider has refused those that do not fit."""
        refusal = ContextWindowOverflowException("too long")
        while sum(map(self._count, self._agent.messages)) > self._size:
            try:
                self._manager.reduce_context(self._agent, e=refusal)
            except ContextWindowOverflowException:
                break
        return list(self._agent.messages)


def _text_in(message: Native) -> str:
    view = detect(message).view(message)
    return "\n".join([view.text, *(result.text for result in view.results)]).strip("\n")


def _arguments(spelled: str) -> Any:
    try:
        return json.loads(spelled)
    except ValueError:
        return {"arguments": spelled}


POLICIES: dict[str, Callable[..., Any]] = {
    "AgentScope": AgentScopePolicy,
    "Strands, sliding window": partial(StrandsPolicy, summarizes=False),
    "Strands, summaries": partial(StrandsPolicy, summarizes=True),
}
