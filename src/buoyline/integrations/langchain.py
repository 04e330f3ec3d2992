"""A LangChain agent whose requests fit the model's window, whatever its tools return.

Example:
    from buoyline.integrations.langchain import BuoylineMiddleware
    middleware = BuoylineMiddleware("./workspace", size=128_000)
    agent = create_agent("openai:gpt-5", tools, middleware=[middleware], checkpointer=InMemorySaver())
"""

import os
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest
from langchain.agents.structured_output import AutoStrategy, ProviderStrategy, ToolStrategy
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, AnyMessage
from langchain_core.tools import BaseTool, StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.config import get_config

from buoyline.errors import ConfigError
from buoyline.integrations import WindowPool, is_overflow, run_sync
from buoyline.integrations.langchain_dialect import DIALECT
from buoyline.lookups import Tool
from buoyline.workspace.workspace import Workspace

__all__ = ["BuoylineMiddleware", "session_of_run"]


def session_of_run() -> str:
    """Return the thread's id; a sub-agent's session has after it ``--`` and the steps in which the sub-agent runs.

    Raises:
        ConfigError: The run has no thread.
    """
    now = get_config().get("configurable", {})
    if not now.get("thread_id"):
        raise ConfigError("thread_id", 'is missing: invoke(..., {"configurable": {"thread_id": "..."}})')
    thread = re.sub("-(?=-|$)", "%2D", str(now["thread_id"]).replace("%", "%25"))  # only sub-agents have `--`
    steps = (step.partition(":") for step in now.get("checkpoint_ns", "").split("|")[:-1])
    path = "-".join(f"{name}-{task[:8]}" if task else name for name, _, task in steps)
    return f"{thread}--{path}" if path else thread


class BuoylineMiddleware(AgentMiddleware[Any, Any, Any]):
    """Keeps a thread's messages on disk, and sends the model those that fit; LangGraph's state keeps them all.

    One serves any number of agents and threads, which may run at the same time.

    Attributes:
        pool: The windows of the sessions.
    """

    def __init__(
        self,
        workspace: Workspace | str | os.PathLike[str],
        *,
        session: Callable[[], str] = session_of_run,
        prefix: str = "",
        **settings: Any,
    ) -> None:
        """Open nothing yet.

        Args:
            workspace: A workspace, or its path.
            session: Returns the id of the current run's session.
            prefix: Begins the names of the lookups, if the agent has tools of the same names.
            settings: ``max_open``, and those of `ContextWindow.open`, such as ``size``.
        """
        super().__init__()
        self.pool = WindowPool(workspace, prefix=prefix, dialect=DIALECT.name, **settings)
        self.session = session
        self.tools: Sequence[BaseTool] = [self._offered(tool) for tool in self.pool.lookups]

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Any]) -> Any:
        """Send what fits, and less if the provider refuses it as too long.

        Raises:
            ContextOverflowError: Buoyline's, if no more can leave the request.
        """
        session = self.session()
        messages = run_sync(self._fitting(session, request))
        while True:
            try:
                return handler(request.override(messages=messages))
            except Exception as error:
                if not isinstance(error, ContextOverflowError) and not is_overflow(error):
                    raise
                messages = run_sync(self.pool.recover(session, request.messages, error))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[Any]]
    ) -> Any:
        """Do what `wrap_model_call` does."""
        session = self.session()
        messages = await self._fitting(session, request)
        while True:
            try:
                return await handler(request.override(messages=messages))
            except Exception as error:
                if not isinstance(error, ContextOverflowError) and not is_overflow(error):
                    raise
                messages = await self.pool.recover(session, request.messages, error)

    def after_model(self, state: Any, runtime: Any) -> None:
        """Put the answer on disk before its tools run."""
        del runtime
        run_sync(self._keep(self.session(), state["messages"]))

    async def aafter_model(self, state: Any, runtime: Any) -> None:
        """Do what `after_model` does."""
        del runtime
        await self._keep(self.session(), state["messages"])

    async def _fitting(self, session: str, request: ModelRequest[Any]) -> list[AnyMessage]:
        named = {tool.name: tool for tool in request.tools if isinstance(tool, BaseTool)}
        taken = [tool.name for tool in self.tools if named.get(tool.name, tool).description != tool.description]
        if taken:  # LangChain keeps one of two tools of a name, and says nothing
            hint = "name the lookups differently, such as with prefix='ctx_'"
            raise ConfigError("prefix", f"the agent has other tools called {', '.join(taken)}; {hint}")
        tools = [tool if isinstance(tool, dict) else convert_to_openai_tool(tool) for tool in request.tools]
        form, system = request.response_format, request.system_message
        if isinstance(form, (AutoStrategy, ProviderStrategy, ToolStrategy)):
            tools += [spec.json_schema for spec in ToolStrategy(form.schema).schema_specs]
        prompt = "" if system is None else system.content
        return await self.pool.request(session, request.messages, system=prompt, tools=tools)

    async def _keep(self, session: str, messages: Sequence[AnyMessage]) -> None:
        """Add the newest answer, and results that LangChain gives itself, unless a run that was killed here has."""
        last = max((at for at, one in enumerate(messages) if isinstance(one, AIMessage)), default=len(messages))
        async with self.pool.of(session) as window:
            known = {one.id for one in window.messages if one.id}
        if answer := [one for one in messages[last:] if one.id not in known]:
            await self.pool.add(session, answer, messages[last])

    def _offered(self, tool: Tool) -> BaseTool:
        def call(**arguments: Any) -> str:
            return run_sync(self.pool.look_up(self.session(), tool.name, arguments))

        async def acall(**arguments: Any) -> str:
            return await self.pool.look_up(self.session(), tool.name, arguments)

        return StructuredTool.from_function(call, acall, tool.name, tool.description, args_schema=tool.parameters)
