"""What we need of AgentScope's agents and messages, in one place, with the types that it leaves open."""

from collections.abc import Awaitable, Callable, Sequence
from importlib.metadata import version
from typing import Any, Literal

from agentscope.agent import Agent
from agentscope.message import Msg, TextBlock

from buoyline.errors import ConfigError


async def model_input(agent: Agent) -> dict[str, Any]:
    """Return ``messages`` and ``tools`` of the next model call, as AgentScope puts them together.

    It has no public name for this, and its own count of the context rests on it.

    Raises:
        ConfigError: This AgentScope has no such method; see docs/agentscope.md.
    """
    # A private name of AgentScope, as of 2.0.10: the trigger compares what this returns with the window.
    prepare: Callable[[], Awaitable[dict[str, Any]]] | None = getattr(agent, "_prepare_model_input", None)
    if prepare is None:
        found = (
            f"AgentScope {version('agentscope')} has no Agent._prepare_model_input, on which the count of tokens rests"
        )
        raise ConfigError("agentscope", f"{found}; install agentscope 2.0.10, or a newer buoyline")
    return await prepare()


async def tokens_of(agent: Agent, messages: Sequence[Msg], tools: Sequence[Any] | None = None) -> int:
    """Return what *messages* and *tools* take by the count of the agent's model."""
    model: Any = agent.model
    tokens: int = await model.count_tokens(list(messages), None if tools is None else list(tools))
    return tokens


def message_of(role: Literal["user", "assistant", "system"], content: str | Sequence[Any], name: str = "") -> Msg:
    """Return a new message.

    Args:
        role: Who speaks.
        content: A text, or blocks.
        name: Of the speaker; left out: the role.
    """
    blocks: list[Any] = [TextBlock(text=content)] if isinstance(content, str) else list(content)
    return Msg(name=name or role, role=role, content=blocks)
