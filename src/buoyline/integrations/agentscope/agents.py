"""What we need of AgentScope's agents and messages, in one place, with the types that it leaves open."""

from collections.abc import Sequence
from typing import Any, Literal

from agentscope.agent import Agent
from agentscope.message import Msg, TextBlock


async def model_input(agent: Agent) -> dict[str, Any]:
    """Return ``messages`` and ``tools`` of the next model call, as AgentScope puts them together.

    It has no public name for this, and its own count of the context rests on it.
    """
    anyhow: Any = agent
    given: dict[str, Any] = await anyhow._prepare_model_input()  # noqa: SLF001 - see above
    return given


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
