"""A tool of buoyline's as a tool of Strands'."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from strands.types._events import ToolResultEvent
from strands.types.tools import AgentTool, ToolGenerator, ToolSpec, ToolUse

from buoyline.errors import BuoylineError
from buoyline.messages import is_object

Answer = Callable[[Mapping[str, Any]], Awaitable[list[dict[str, Any]]]]
"""Answers a call with the blocks of a result; what it raises of ours, the model is told."""


class WorkspaceTool(AgentTool):
    """A tool for one agent. What is wrong with a call is an error result, which a model can mend its call by."""

    def __init__(self, name: str, description: str, parameters: Mapping[str, Any], answer: Answer) -> None:
        """Offer *answer* under *name*, with a JSON Schema of its arguments."""
        super().__init__()
        self._name, self._description, self._parameters, self._answer = name, description, dict(parameters), answer

    @property
    def tool_name(self) -> str:
        """What the model calls it by."""
        return self._name

    @property
    def tool_spec(self) -> ToolSpec:
        """What the model is told of it."""
        return {"name": self._name, "description": self._description, "inputSchema": {"json": self._parameters}}

    @property
    def tool_type(self) -> str:
        """Its kind: a function."""
        return "function"

    async def stream(self, tool_use: ToolUse, invocation_state: dict[str, Any], **kwargs: Any) -> ToolGenerator:  # noqa: ARG002 - the interface passes them
        """Answer one call."""
        given: Mapping[str, Any] = tool_use["input"] if is_object(tool_use["input"]) else {}
        call_id = tool_use["toolUseId"]
        try:
            content = await self._answer(given)
        except (BuoylineError, TimeoutError) as error:
            told: Any = [{"text": f"Error: {str(error) or 'the storage took too long'}"}]
            yield ToolResultEvent({"toolUseId": call_id, "status": "error", "content": told})
            return
        answered: Any = content
        yield ToolResultEvent({"toolUseId": call_id, "status": "success", "content": answered})
