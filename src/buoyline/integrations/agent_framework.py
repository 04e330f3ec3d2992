"""Microsoft Agent Framework: each request of an agent fits the model's window, and every message is on disk.

Example:
    buoyline = BuoylineChatMiddleware("./workspace", size=128_000)
    agent = Agent(client=client, tools=[*tools, *buoyline.tools], middleware=[buoyline])
    await agent.run("Which tests fail?", session=agent.create_session(session_id="s1"))
"""

import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from operator import attrgetter
from typing import Any, Final

import agent_framework as maf

from buoyline.errors import ConfigError
from buoyline.integrations import WindowPool, is_overflow
from buoyline.lookups import Tool
from buoyline.workspace.workspace import Workspace

__all__ = ["BuoylineChatMiddleware"]

_MOST_RECOVERIES: Final = 3
"""How often a request that was refused as too long is made smaller."""


class BuoylineChatMiddleware(maf.ChatMiddleware):
    """Makes each request of an agent fit the window, and writes each answer down before its tools run.

    One middleware may serve many sessions. Two agents in one session need a middleware each, with a *session* function.

    Attributes:
        tools: `read`, `grep` and `search` for the agent; they reach the files of the session that calls them.
        pool: The windows of the sessions.
    """

    def __init__(
        self,
        workspace: Workspace | str | os.PathLike[str],
        *,
        session: Callable[[maf.AgentSession], str] = attrgetter("session_id"),
        **settings: Any,
    ) -> None:
        """Open nothing yet.

        Args:
            workspace: A workspace, or its path.
            session: Returns the name of a session's folder.
            settings: *prefix* and *max_open* of `WindowPool`, and those of `ContextWindow.open`.
        """
        self.pool = WindowPool(workspace, dialect="agent-framework", **settings)
        self.tools = [self._tool(lookup) for lookup in self.pool.lookups]
        self._session = session

    async def process(self, context: maf.ChatContext, call_next: Callable[[], Awaitable[None]]) -> None:
        """Call the model with what fits; if the provider refuses the request as too long, call it with less.

        Raises:
            ConfigError: The run has no session, or its requests do not hold the whole conversation.
            ContextOverflowError: The messages that must stay do not fit.
        """
        session_id, messages, options = self._id_of(context.session), [*context.messages], context.options or {}
        if options.get("store", getattr(context.client, "STORES_BY_DEFAULT", False)) or options.get("conversation_id"):
            problem = "a request must hold the whole conversation, but the service keeps it, or the agent for each call"
            remedy = "default_options={'store': False} and without require_per_service_call_history_persistence"
            raise ConfigError("store", f"{problem}; make the agent with {remedy}")
        system, tools = options.get("instructions") or "", options.get("tools") or ()
        tools = [tool.to_json_schema_spec() if isinstance(tool, maf.FunctionTool) else tool for tool in tools]
        context.messages = await self.pool.request(session_id, messages, system=system, tools=tools)

        async def add(response: maf.ChatResponse) -> None:
            await self.pool.add(session_id, response.messages, response)

        context.stream_result_hooks.append(add)
        for left in range(_MOST_RECOVERIES, -1, -1):
            try:
                await call_next()
                if isinstance(context.result, maf.ResponseStream):
                    context.result = await _begun(context.result)
                break
            except Exception as error:
                if not left or not is_overflow(error):
                    raise
                context.messages = await self.pool.recover(session_id, messages, error)
        if isinstance(context.result, maf.ChatResponse):
            await add(context.result)

    def _id_of(self, session: maf.AgentSession | None) -> str:
        if session is None:
            remedy = "agent.run(..., session=agent.create_session(session_id='s1'))"
            raise ConfigError("session", f"a run needs one, whose id names its folder; write {remedy}")
        return self._session(session)

    def _tool(self, lookup: Tool) -> maf.FunctionTool:
        async def look_up(ctx: maf.FunctionInvocationContext, **arguments: Any) -> str:
            return await self.pool.look_up(self._id_of(ctx.session), lookup.name, arguments)

        shown: dict[str, Any] = {"description": lookup.description, "input_model": lookup.parameters}
        return maf.FunctionTool(name=lookup.name, func=look_up, **shown)


async def _begun(stream: maf.ResponseStream[Any, Any]) -> maf.ResponseStream[Any, Any]:
    """Wait for the first update of *stream*: only then has the provider accepted the request."""
    first = await anext(stream, None)

    async def updates() -> AsyncGenerator[Any]:
        async with stream:
            if first is not None:
                yield first
            async for update in stream:
                yield update

    return maf.ResponseStream(updates(), finalizer=lambda _: stream.get_final_response())
