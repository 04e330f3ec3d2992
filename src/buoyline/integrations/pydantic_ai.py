"""Pydantic AI: each request of an agent fits a window, and all messages of its conversations are on disk.

Example:
    from buoyline.integrations.pydantic_ai import BuoylineCapability
    buoyline = BuoylineCapability("./workspace", size=128_000)
    agent = Agent("openai:gpt-5", capabilities=[buoyline])
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from operator import attrgetter
from typing import Any, TypeAlias

from pydantic_ai import ModelContextWindowExceededError, ModelResponse, RetryModelRequest, RunContext, Tool
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelMessage, SystemPromptPart
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.toolsets import FunctionToolset

from buoyline.errors import ConfigError
from buoyline.integrations import WindowPool
from buoyline.lookups.tools import Tool as Lookup
from buoyline.workspace.workspace import Workspace

__all__ = ["BuoylineCapability"]

SessionOf: TypeAlias = Callable[[RunContext[Any]], str | None]
"""Returns the id of a run's session."""


class BuoylineCapability(AbstractCapability[Any]):
    """Shortens what agents send; their histories stay whole. Any number of agents and conversations may share it.

    Attributes:
        pool: The windows of all conversations.
    """

    def __init__(
        self, workspace: Workspace | str | os.PathLike[str], *, session: SessionOf | None = None, **settings: Any
    ) -> None:
        """Open nothing yet.

        Args:
            workspace: A workspace, or its path.
            session: Default: the id of the run's conversation.
            settings: Those of `WindowPool`.
        """
        self.pool = WindowPool(workspace, dialect="pydantic-ai", **settings)
        self._session: SessionOf = session or attrgetter("conversation_id")

    def get_toolset(self) -> FunctionToolset[Any]:
        """Return the lookups `read`, `grep` and `search`; each looks into the session of its run."""
        return FunctionToolset([self._tool(lookup) for lookup in self.pool.lookups])

    async def prepare_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Replace the messages of one attempt by those that fit.

        Raises:
            ConfigError: The run has no session.
            ContextOverflowError: System prompt and tools leave no room.
        """
        given, sent = request_context.messages, request_context.model_request_parameters
        prompts = _dynamic_prompts(given)
        names = {ref: replace(part, content=f"[{ref} writes this for each run]") for ref, part in prompts.items()}
        system = [part.content for part in (*(sent.instruction_parts or ()), *prompts.values())]
        tools = [
            {"name": tool.name, "description": tool.description, "parameters": tool.parameters_json_schema}
            for tool in (*sent.function_tools, *sent.output_tools)
        ]
        session_id, listed = self._session_of(ctx), _with_prompts(given, names)
        messages = await self.pool.request(session_id, listed, system="\n\n".join(system), tools=tools)
        return replace(request_context, messages=_with_prompts(_in_order(messages), prompts))

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """Write down what the model answered, before its tools run."""
        del request_context
        await self.pool.add(self._session_of(ctx), [response], response)
        return response

    async def on_model_request_error(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, error: Exception
    ) -> ModelResponse:
        """Send at least a tenth less if the provider finds the request too long."""
        del request_context  # has what was sent, not the list that it was made of
        if not isinstance(error, ModelContextWindowExceededError):
            raise error
        async with self.pool.of(self._session_of(ctx)) as window:
            await window.recover_from_overflow(error)
        raise RetryModelRequest

    async def history(self, session_id: str) -> list[ModelMessage]:
        """Return the messages of a session as the model would see them now, with stubs and the summary.

        With them as its ``message_history=``, and the same conversation id, a run goes on where a process was killed.
        """
        async with self.pool.of(session_id) as window:
            return await window.prepare()

    def _session_of(self, ctx: RunContext[Any]) -> str:
        found: object = self._session(ctx)
        if not isinstance(found, str) or not found:
            raise ConfigError(
                "session", f"is {found!r} for this run; pass conversation_id=… to it, or another session="
            )
        return found

    def _tool(self, lookup: Lookup) -> Tool[Any]:
        async def call(ctx: RunContext[Any], /, **arguments: Any) -> str:
            return await self.pool.look_up(self._session_of(ctx), lookup.name, arguments)

        return Tool[Any].from_schema(call, lookup.name, lookup.description, lookup.parameters, takes_ctx=True)


def _dynamic_prompts(messages: Sequence[ModelMessage]) -> dict[str, SystemPromptPart]:
    """Return the system prompts that each run changes in its history, by the functions that write them."""
    prompts = (part for one in messages for part in one.parts if isinstance(part, SystemPromptPart))
    return {part.dynamic_ref: part for part in prompts if part.dynamic_ref is not None and part.context_id is None}


def _with_prompts(messages: Sequence[Any], prompts: Mapping[Any, SystemPromptPart]) -> list[Any]:
    """Return *messages* with these dynamic system prompts in place of their own."""
    if not prompts:
        return [*messages]
    held = ([prompts.get(getattr(part, "dynamic_ref", None), part) for part in one.parts] for one in messages)
    return [replace(one, parts=parts) for one, parts in zip(messages, held, strict=True)]


def _in_order(messages: Sequence[Any]) -> list[Any]:
    """Put changes of instructions after the summary: the instructions themselves are sent right before it."""
    end = len([*takewhile(lambda one: _kind(one).endswith(("system-prompt", "-baseline", "-delta")), messages)]) + 1
    return [*sorted(messages[:end], key=lambda one: _kind(one).endswith("-delta")), *messages[end:]]


def _kind(message: Any) -> str:
    return next((part.part_kind for part in message.parts), "")
