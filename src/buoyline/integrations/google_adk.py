"""Google ADK: each request of an agent fits the model's window, and every message is on disk.

Example:
    buoyline = BuoylinePlugin("./workspace", size=128_000)
    agent = LlmAgent(name="builder", model="gemini-2.5-pro", tools=[*mine, *buoyline.tools])
    app = App(name="yard", root_agent=agent, plugins=[buoyline])
"""

import os
from typing import Any, Final, cast
from urllib.parse import quote

from google.adk.agents.callback_context import CallbackContext
from google.adk.flows.llm_flows.functions import remove_client_function_call_id
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.planners.plan_re_act_planner import PlanReActPlanner
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools.base_tool import BaseTool
from google.genai.types import Content, FunctionDeclaration

from buoyline.integrations import WindowPool, is_overflow
from buoyline.integrations.gemini_dialect import DIALECT
from buoyline.lookups import Tool
from buoyline.workspace.workspace import Workspace

__all__ = ["BuoylinePlugin", "session_of"]

_ADDED: Final = (
    ("The text between <<<BEGIN_SYSTEM_INSTRUCTION>>> and <<<END_SYSTEM_INSTRUCTION>>> below is your own", "<<<END_"),
    ("The following content is from your previous conversations with the user.\n", "\n</PAST_CONVERSATIONS>\n"),
)
"""Openings and marks near the end of the contents that ADK inserts into each request, at varying places: an
`instruction` beside a `static_instruction`, and memories. Source: `_INSTRUCTION_PREAMBLE` and `PreloadMemoryTool` of
2.13."""


class BuoylinePlugin(BasePlugin):
    """Sends what fits of the contents of each model call, and adds what the model answers before its tools run.

    Each agent of a session sees contents of its own, so it has a session of its own in the workspace: see `session_of`.

    Attributes:
        tools: `read`, `grep` and `search`, which reach the files of the agent that calls them.
        pool: Has the windows.
    """

    def __init__(self, workspace: Workspace | str | os.PathLike[str], **settings: Any) -> None:
        """Open nothing yet.

        Args:
            workspace: A workspace, or its path.
            settings: *prefix* and *max_open* of `WindowPool`, and those of `ContextWindow.open`.
        """
        super().__init__("buoyline")
        self.pool = WindowPool(workspace, dialect=DIALECT.name, **settings)
        self.tools = [_Lookup(lookup, self.pool) for lookup in self.pool.lookups]

    async def before_model_callback(self, *, callback_context: CallbackContext, llm_request: LlmRequest) -> None:
        """Replace the contents by what fits of them.

        Raises:
            ContextOverflowError: Instructions and tools leave no room.
        """
        if callback_context.get_invocation_context().live_request_queue is not None:
            return  # these are only the user's newest words
        config = llm_request.config.model_dump(mode="json", include={"system_instruction", "tools"}, exclude_none=True)
        added, contents = _apart(llm_request.contents)
        system = [config.get("system_instruction", ""), *map(DIALECT.to_json, added)]
        session, tools = session_of(callback_context), config.get("tools", ())
        fitting = await self.pool.request(session, contents, system=system, tools=tools)
        llm_request.contents = _together(added, fitting)

    async def after_model_callback(self, *, callback_context: CallbackContext, llm_response: LlmResponse) -> None:
        """Add the answer in the form in which ADK will list it; if it will not, take the usage alone."""
        run = callback_context.get_invocation_context()
        if llm_response.partial or llm_response.content is None or run.live_request_queue is not None:
            return
        answer = llm_response.content.model_copy(deep=True)  # ADK writes ids into its own
        remove_client_function_call_id(answer)
        said = [part for part in answer.parts or () if part.thought_signature or not (part.thought or part.text == "")]
        executor, planner = getattr(run.agent, "code_executor", None), getattr(run.agent, "planner", None)
        is_rewritten = executor is not None or isinstance(planner, PlanReActPlanner)
        answers = [answer] if said and not is_rewritten else []
        await self.pool.add(session_of(callback_context), answers, llm_response)

    async def on_model_error_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest, error: Exception
    ) -> LlmResponse | None:
        """Call the model again with less if the provider has refused the request as too long."""
        agent: Any = callback_context.get_invocation_context().agent
        added, _ = _apart(llm_request.contents)
        while is_overflow(error):
            async with self.pool.of(session_of(callback_context)) as window:
                llm_request.contents = _together(added, await window.recover_from_overflow(error))
            try:
                answers = [answer async for answer in agent.canonical_model.generate_content_async(llm_request)]
                return cast("LlmResponse", answers[-1])
            except Exception as refusal:  # noqa: BLE001 - of any client; ADK raises the first one if none fits
                error = refusal
        return None

    async def close(self) -> None:
        """Close the windows that no run uses."""
        await self.pool.close()


class _Lookup(BaseTool):
    def __init__(self, lookup: Tool, pool: WindowPool) -> None:
        super().__init__(name=lookup.name, description=lookup.description)
        self._schema, self._pool = lookup.parameters, pool

    def _get_declaration(self) -> FunctionDeclaration:
        return FunctionDeclaration(name=self.name, description=self.description, parameters_json_schema=self._schema)

    async def run_async(self, *, args: dict[str, Any], tool_context: CallbackContext) -> str:
        return await self._pool.look_up(session_of(tool_context), self.name, args)


def session_of(context: CallbackContext) -> str:
    """Return the name of an agent's session in the workspace: ``app.user.session.agent``, and its branch if it has one.

    A dot within a part is ``%2E``, so no two agents, users or apps share a name.
    """
    names = [context.session.app_name, context.session.user_id, context.session.id, context.agent_name]
    names += [context.branch] if context.branch else []
    return ".".join(quote(name, safe="").replace(".", "%2E") for name in names)


def _apart(contents: list[Content]) -> tuple[list[Content], list[Content]]:
    """Return what ADK has added, and the others."""
    added = [one for one in contents if one.role == "user" and one.parts and _is_added(one.parts[0].text or "")]
    return added, [one for one in contents if one not in added]


def _is_added(text: str) -> bool:
    return any(text.startswith(opening) and mark in text[len(opening) :] for opening, mark in _ADDED)


def _together(added: list[Content], contents: list[Content]) -> list[Content]:
    """Return *contents* with what ADK has added where it adds it: before the user's newest words, after results."""
    at = len(contents)
    while at and contents[at - 1].role == "user" and not DIALECT.view(contents[at - 1]).results:
        at -= 1
    return [*contents[:at], *added, *contents[at:]]
