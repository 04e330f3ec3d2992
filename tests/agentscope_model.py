"""A scripted model for AgentScope's own agent: what it answers is fixed, all else is the framework's."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from agentscope.credential import CredentialBase
from agentscope.formatter import OpenAIChatFormatter
from agentscope.message import Msg, TextBlock, ToolCallBlock
from agentscope.model import ChatModelBase, ChatResponse, ChatUsage
from agentscope.permission import PermissionBehavior, PermissionDecision
from agentscope.state import AgentState
from agentscope.tool import FunctionTool, Toolkit
from pydantic import BaseModel

SUMMARY_TOOL = "generate_structured_output"
"""What AgentScope has a model call for a summary."""

BEHIND_AGENT = "Answer with one JSON object and nothing else"
"""In a request for a summary in plain text."""

Block: TypeAlias = Any
"""A block of AgentScope's that a model may answer with."""


@dataclass(frozen=True)
class Request:
    """What the model was asked: copies, as they were then."""

    messages: list[Msg]
    tools: list[dict[str, Any]]

    @property
    def wants_summary(self) -> bool:
        """Tell whether a summary was asked for."""
        return self.has_summary_tool or BEHIND_AGENT in str(self.messages[-1].get_text_content())

    @property
    def has_summary_tool(self) -> bool:
        """Tell whether AgentScope asks for structured output."""
        return any(tool["function"]["name"] == SUMMARY_TOOL for tool in self.tools)

    @property
    def text(self) -> str:
        """All text that went out: of blocks, hints, thoughts, calls and results."""
        return "\n".join(message.model_dump_json() for message in self.messages)


Answer: TypeAlias = str | Sequence[Block] | Exception | Callable[[Request], "str | Sequence[Block]"]
"""A text, blocks, an error to raise, or what makes one of the request."""

Summary: TypeAlias = Mapping[str, Any] | Exception | Callable[[Request], Mapping[str, Any]]
"""The fields of a summary, an error to raise, or what makes them of the request."""

FIVE_FIELDS: Mapping[str, str] = {
    "task_overview": "Chart the buoys.",
    "current_state": "Half of them are charted.",
    "important_discoveries": "None.",
    "next_steps": "Chart the others.",
    "context_to_preserve": "Depths in fathoms.",
}


ALLOWED = PermissionDecision(behavior=PermissionBehavior.ALLOW, message="for tests")
"""For tools that every agent may call without asking."""


class ScriptedModel(ChatModelBase):
    """Gives the answers of a script in order, then its last one again; summaries by a script of their own.

    Tokens are counted as `ChatModelBase` does: bytes by four, 2,000 for each medium.
    """

    class Parameters(BaseModel):
        """There are none."""

    def __init__(
        self,
        answers: Iterable[Answer] = ("Done.",),
        *,
        summaries: Iterable[Summary] = (FIVE_FIELDS,),
        context_size: int = 128_000,
        input_types: Sequence[str] = ("text/plain", "image/*"),
    ) -> None:
        """Take the scripts.

        Args:
            answers: One for each turn of the agent.
            summaries: One for each compression.
            context_size: In tokens, by which the agent decides when to compress.
            input_types: Media that the agent passes on to the model.
        """
        super().__init__(
            CredentialBase(), "scripted", self.Parameters(), stream=False, max_retries=0, context_size=context_size
        )
        self.formatter = OpenAIChatFormatter(input_types=list(input_types))
        self.requests: list[Request] = []
        self._answers = list(answers)
        self._summaries = list(summaries)

    @property
    def turns(self) -> list[Request]:
        """The requests that were no call for a summary."""
        return [request for request in self.requests if not request.wants_summary]

    async def _call_api(
        self,
        model_name: str,
        messages: list[Msg],
        tools: list[dict[str, Any]] | None = None,
        tool_choice: Any = None,
        **_: Any,
    ) -> ChatResponse:
        """Answer as the script says."""
        request = Request(deepcopy(messages), deepcopy(tools or []))
        self.requests.append(request)
        blocks = self._summary(request) if request.wants_summary else self._answer(request)
        usage = ChatUsage(await self.count_tokens(messages, tools), 10, 0.0)
        return ChatResponse(content=deepcopy(blocks), is_last=True, usage=usage)

    def _answer(self, request: Request) -> list[Block]:
        found = _next(self._answers)
        if isinstance(found, Exception):
            raise found
        said = found(request) if callable(found) else found
        return [TextBlock(text=said)] if isinstance(said, str) else list(said)

    def _summary(self, request: Request) -> list[Block]:
        found = _next(self._summaries)
        if isinstance(found, Exception):
            raise found
        fields = found(request) if callable(found) else found
        if request.has_summary_tool:
            return [ToolCallBlock(id="summary", name=SUMMARY_TOOL, input=json.dumps(fields))]
        return [TextBlock(text=json.dumps(fields))]


def _next(script: list[Any]) -> Any:
    return script.pop(0) if len(script) > 1 else script[0]


def call(name: str, call_id: str = "call_1", **arguments: Any) -> ToolCallBlock:
    """Return a call of the tool *name*."""
    return ToolCallBlock(id=call_id, name=name, input=json.dumps(arguments))


def toolkit(*functions: Callable[..., Any]) -> Toolkit:
    """Return a toolkit of functions that every agent may call without asking."""
    return Toolkit(tools=cast("Any", [FunctionTool(function, permission=ALLOWED) for function in functions]))


def state(session_id: str = "s1", *messages: Msg) -> AgentState:
    """Return the state of an agent of that session whose context holds *messages*."""
    return AgentState(session_id=session_id, context=list(messages))
