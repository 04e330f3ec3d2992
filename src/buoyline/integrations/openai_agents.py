"""OpenAI Agents SDK: each request of a run fits a window, and all messages of its session are on disk.

Example:
    buoyline = BuoylineHooks("./workspace", session="s1", size=128_000)
    agent = Agent("Scout", tools=[*mine, *buoyline.tools])
    await Runner.run(agent, text, hooks=buoyline, run_config=RunConfig(call_model_input_filter=buoyline.filter))
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from agents import Agent, FunctionTool, Handoff, ModelResponse, RunContextWrapper, RunHooks, Tool, handoff
from agents.run_config import CallModelData, ModelInputData
from agents.tool_context import ToolContext

from buoyline.errors import ConfigError
from buoyline.integrations import WindowPool
from buoyline.lookups.tools import Tool as Lookup
from buoyline.messages.openai import OpenAIResponses
from buoyline.workspace.workspace import Workspace

__all__ = ["BuoylineHooks"]


class BuoylineHooks(RunHooks[Any]):
    """The hooks of a run, and what has to come with them: a filter and tools.

    Attributes:
        pool: The windows of all sessions.
        tools: The lookups `read`, `grep` and `search`; each searches the session of its run.
    """

    def __init__(
        self,
        workspace: Workspace | str | os.PathLike[str],
        *,
        session: str | Callable[[Any], str],
        **settings: Any,
    ) -> None:
        """Open nothing yet.

        Args:
            workspace: A workspace, or its path.
            session: Id of the conversation, or a function that returns it for the run's context object.
            settings: Those of `WindowPool`.
        """
        self.pool = WindowPool(workspace, dialect=OpenAIResponses.name, **settings)
        self.tools: list[Tool] = [self._tool(lookup) for lookup in self.pool.lookups]
        self._session = session

    async def filter(self, data: CallModelData[Any]) -> ModelInputData:
        """Return the items to send; for ``RunConfig(call_model_input_filter=…)``.

        Raises:
            ConfigError: There is no session id, or the server keeps the conversation.
            ContextOverflowError: Instructions and tools leave no room.
        """
        given, session_id = data.model_data, self._session_of(data.context)
        if _is_delta(given.input):
            words = "with it the server keeps the conversation, and a request is only its end; run without either"
            raise ConfigError("conversation_id or previous_response_id", words)
        tools = await _definitions(data.agent, RunContextWrapper(data.context))
        items = await self.pool.request(session_id, given.input, system=given.instructions or "", tools=tools)
        return ModelInputData(items, given.instructions)

    async def on_llm_end(self, context: RunContextWrapper[Any], agent: Agent[Any], response: ModelResponse) -> None:
        """Write down what the model answered, before its tools run."""
        del agent
        session_id = self._session_of(context.context)
        async with self.pool.of(session_id) as window:
            if not window.added:
                raise ConfigError("run_config", "pass RunConfig(call_model_input_filter=buoyline.filter) to the run")
        await self.pool.add(session_id, response.to_input_items(), response)

    async def on_tool_start(self, context: RunContextWrapper[Any], agent: Agent[Any], tool: Tool) -> None:
        """Keep the filter from runs within the tool: they inherit it, but have lists of their own."""
        del agent, tool
        if isinstance(context, ToolContext) and context.run_config is not None:
            context.run_config = replace(context.run_config, call_model_input_filter=None)

    def _session_of(self, context: Any) -> str:
        found: object = self._session(context) if callable(self._session) else self._session
        if not isinstance(found, str) or not found:
            words = f"{found!r} is no id; return that of the conversation, and pass context= to Runner.run"
            raise ConfigError("session", f"{words} (it is {type(context).__name__} here)")
        return found

    def _tool(self, lookup: Lookup) -> FunctionTool:
        async def invoke(context: ToolContext[Any], arguments: str) -> str:
            return await self.pool.look_up(self._session_of(context.context), lookup.name, arguments)

        return FunctionTool(lookup.name, lookup.description, lookup.parameters, invoke, strict_json_schema=False)


def _is_delta(items: Sequence[Any]) -> bool:
    calls = {item["call_id"] for item in items if item.get("type") == "function_call"}
    return any(item["call_id"] not in calls for item in items if item.get("type") == "function_call_output")


async def _definitions(agent: Agent[Any], context: RunContextWrapper[Any]) -> list[dict[str, Any]]:
    """Return the functions and hand-offs of *agent*; what the provider hosts is only in its usage."""
    tools = await agent.get_all_tools(context)
    handoffs = [one if isinstance(one, Handoff) else handoff(one) for one in agent.handoffs]
    found = [(one.name, one.description, one.params_json_schema) for one in tools if isinstance(one, FunctionTool)]
    found += [(one.tool_name, one.tool_description, one.input_json_schema) for one in handoffs]
    return [{"name": name, "description": words, "parameters": schema} for name, words, schema in found]
