"""The settings of an agent's context: AgentScope's ``ContextConfig`` as buoyline's."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from agentscope.agent import Agent
from agentscope.agent import ContextConfig as AgentScopeConfig

from buoyline.compression import ContextConfig, Summary
from buoyline.compression.config import COMPRESSION_PROMPT
from buoyline.management import ContextManagement
from buoyline.messages import ToolResult
from buoyline.messages.losses import Losses
from buoyline.messages.model import Turn
from buoyline.messages.registry import dialect_named
from buoyline.offloader import Abilities, Offloader, StoredResult, ToolRule
from buoyline.tokens import TextCounter
from buoyline.window.events import OnEvent
from buoyline.window.offloading import ResultOffloader
from buoyline.window.plan import OffloadPlanner

PREVIEW_TOKENS: Final = 1_000
"""The default of buoyline's `ContextConfig`."""

_MOST_SHOWN: Final = 256
"""Summaries of some 4,000 tokens each: a few megabytes."""

_TIME: Final = "{current_time}"
"""AgentScope replaces this in a prompt."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MiddlewareSettings:
    """Settings that AgentScope's ``ContextConfig`` does not have; see `WorkspaceMiddleware`."""

    preview_tokens: int = PREVIEW_TOKENS
    turn_results_limit: int | None = None
    tool_rules: Mapping[str, ToolRule] = field(default_factory=dict[str, ToolRule])
    summary_tokens: int | None = None

    def for_results(self, limit: int) -> ContextConfig:
        """Return the settings for tool results, if one may take *limit* tokens.

        Raises:
            ConfigError: A value cannot work with the others.
        """
        limit = max(limit, 2)
        return ContextConfig(
            tool_result_limit=limit,
            preview_tokens=self.preview_tokens if self.preview_tokens < limit else max(limit // 3, 1),
            turn_results_limit=self.turn_results_limit,
            tool_rules={name: _fitting(rule, limit) for name, rule in self.tool_rules.items()},
        )

    def for_window(self, agent: Agent) -> ContextConfig:
        """Return all settings of *agent*, for a process that continues its session without AgentScope.

        Lines of the prompt with the current time are omitted.

        Raises:
            ConfigError: A value cannot work with the others.
        """
        config = agent.context_config
        timeless = "\n".join(line for line in config.compression_prompt.split("\n") if _TIME not in line)
        prompt = timeless if timeless.strip() else COMPRESSION_PROMPT
        return self.for_engine(config.model_copy(update={"compression_prompt": prompt}), agent)

    def for_engine(self, config: AgentScopeConfig, agent: Agent) -> ContextConfig:
        """Return all of *config*, with the settings that it does not have.

        If its ``reserve_ratio`` is not below the trigger, as in a one-off configuration with a low trigger, only the
        newest messages are kept. AgentScope does the same.

        Raises:
            ConfigError: A value cannot work with the others, or the template or schema of *config* cannot work.
        """
        given: Any = config  # whose own types leave the schema open
        return replace(
            self.for_results(config.tool_result_limit),
            trigger_ratio=config.trigger_ratio,
            reserve_ratio=config.reserve_ratio if config.reserve_ratio < config.trigger_ratio else 0.0,
            compression_prompt=config.compression_prompt.replace(_TIME, _now(agent)),
            summary_template=config.summary_template,
            summary_schema=given.summary_schema,
            summary_tokens=self.summary_tokens,
            max_images=config.max_image_num,
        )


class BlockOffloader:
    """Gives an offloader of the two documented methods AgentScope's own blocks, also for the content of a message."""

    def __init__(self, offloader: Offloader) -> None:
        """Pass everything on to *offloader*."""
        self._offloader = offloader

    async def offload_context(self, session_id: str, msgs: list[Any], **kwargs: Any) -> str:
        """Archive messages."""
        return await self._offloader.offload_context(session_id, msgs, **kwargs)

    async def offload_tool_result(self, session_id: str, tool_result: Any, **kwargs: Any) -> str:
        """Offload a result."""
        if isinstance(tool_result, ToolResult):
            turns, losses = [Turn("tool", (tool_result,))], Losses("agentscope")
            tool_result = next(iter(dialect_named("agentscope").write(turns, losses))).content[0]
        return await self._offloader.offload_tool_result(session_id, tool_result, **kwargs)


@dataclass(frozen=True, kw_only=True, slots=True)
class Workbench:
    """All that the parts of a middleware share; *counter* counts previews and summaries, *shown* is kept by `show`."""

    offloader: Offloader
    abilities: Abilities
    counter: TextCounter
    settings: MiddlewareSettings
    on_event: OnEvent | None
    management: ContextManagement | None = None
    shown: dict[str, Summary] = field(default_factory=dict[str, Summary])

    def offloading(
        self, session_id: str, config: ContextConfig, size: int, stubs: dict[str, StoredResult]
    ) -> tuple[OffloadPlanner, ResultOffloader]:
        """Return the parts of an engine that choose results and offload them; both know the *stubs*."""
        rereads, counter, has_listener = self.abilities.rereads, self.counter, self.on_event is not None
        planner = OffloadPlanner(session_id, config, size, counter, stubs, rereads, can_store=True)
        offloader = BlockOffloader(self.offloader) if self.abilities.results is None else self.offloader
        results = ResultOffloader(
            offloader, self.abilities, session_id, counter, has_listener=has_listener, stubs=stubs
        )
        return planner, results

    def show(self, session_id: str, summary: Summary) -> None:
        """Remember the summary in a session's context: some offloaders keep none, and others have to read it.

        For those others, only the newest sessions are remembered, since a service has ever more of them.
        """
        self.shown.pop(session_id, None)
        self.shown[session_id] = summary
        if self.abilities.summaries is not None and len(self.shown) > _MOST_SHOWN:
            del self.shown[next(iter(self.shown))]


def _fitting(rule: ToolRule, limit: int) -> ToolRule:
    """Return *rule* with a preview below *limit*, unless it has a limit of its own."""
    if rule.limit is not None or rule.preview_tokens is None or rule.preview_tokens < limit:
        return rule
    return replace(rule, preview_tokens=max(limit // 3, 1))


def _now(agent: Agent) -> str:
    """Return the time as AgentScope puts it into the prompt."""
    injection = agent.injection_config
    try:
        zone = ZoneInfo(injection.timezone)
    except (ZoneInfoNotFoundError, ValueError):
        return f"{datetime.now(UTC).strftime(injection.time_format)} ({injection.timezone})"
    return f"{datetime.now(zone).strftime(injection.time_format)} ({injection.timezone})"
