"""An agent of AgentScope's with our middleware and a scripted model, and how to look at what it leaves on disk."""

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from agentscope.agent import Agent, ContextConfig
from agentscope.message import (
    AssistantMsg,
    Msg,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    UserMsg,
)
from agentscope.middleware import MiddlewareBase
from agentscope.state import AgentState
from agentscope.tool import ToolChunk, Toolkit
from agentscope_model import Answer, ScriptedModel, call, state, toolkit

from buoyline.maintenance.verify import verify
from buoyline.workspace import Workspace


def log(n: int = 0, lines: int = 200) -> str:
    """Give a log.

    Args:
        n: Which one.
        lines: How long it is.
    """
    written = [f"line {n}-{line} value={line * 7919} /srv/app/{n}/file{line}.py" for line in range(lines)]
    return "\n".join([*written, f"ERROR: code {n}77 failed"])


async def stream(n: int = 0) -> AsyncGenerator[ToolChunk, None]:
    """Give a log piece by piece.

    Args:
        n: Which one.
    """
    block_id = f"stream-{n}"
    for line in log(n).splitlines(keepends=True):
        yield ToolChunk(content=[TextBlock(id=block_id, text=line)], is_last=False)


def pilot(
    model: ScriptedModel,
    middleware: MiddlewareBase,
    *,
    of: AgentState | None = None,
    tools: Toolkit | None = None,
    beside: Sequence[MiddlewareBase] = (),
    **settings: Any,
) -> Agent:
    """Return an agent of the session ``s1`` with a limit of 1,000 tokens a result."""
    config = ContextConfig(**{"tool_result_limit": 1_000, **settings})
    kit = tools or toolkit(log, stream)
    return Agent("pilot", "You are a pilot.", model, kit, [middleware, *beside], of or state(), context_config=config)


def voyage(turns: int, calls: int, **arguments: Any) -> list[Answer]:
    """Return answers of an agent that looks at logs, so many in each turn, and then says that it is done."""
    answers: list[Answer] = []
    for turn in range(turns):
        for number in range(calls):
            said = TextBlock(text=f"I look at log {turn}-{number}." + " It may tell more." * 60)
            answers.append([said, call("log", f"c{turn}_{number}", n=turn * 10 + number, **arguments)])
        answers.append(f"Turn {turn} is done.")
    return answers


async def sail(agent: Agent, turns: int) -> list[Msg]:
    """Let the agent work and return all messages of the conversation as it saw them last."""
    seen: list[Msg] = []
    for turn in range(turns):
        asked = UserMsg("user", f"Look at the logs of turn {turn}; berth 47-{turn} is closed.")
        seen += [asked, await agent.reply(asked)]
    return seen


def lines_of(workspace: Workspace, session_id: str = "s1") -> list[dict[str, Any]]:
    """Return all messages that the session ever had, as they were written."""
    return [line.value for line in workspace.stored(session_id).lines()]


def archived(workspace: Workspace, session_id: str = "s1") -> list[dict[str, Any]]:
    """Return the messages of the conversation that are no longer in the context."""
    session = workspace.session(session_id)
    known = session.load()
    gone = known.order[: len(known.order) - len(known.live)]
    return [session.with_payloads(line) for line in session.read(gone)]


def blocks_in(messages: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    """Return what all messages hold, by message, type and id, however the messages are cut."""
    return [(found["id"], block["type"], block["id"]) for found in messages for block in found["content"]]


def results_in(messages: Sequence[Msg]) -> list[ToolResultBlock]:
    return [block for message in messages for block in message.get_content_blocks("tool_result")]


def text_of(result: ToolResultBlock) -> str:
    output = result.output
    return output if isinstance(output, str) else "\n".join(b.text for b in output if isinstance(b, TextBlock))


def assert_sound(workspace: Workspace) -> None:
    assert [found for found in verify(workspace).findings if found.severity != "note"] == []


def assert_paired(messages: Sequence[Msg]) -> None:
    calls = [b.id for message in messages for b in message.get_content_blocks("tool_call")]
    assert sorted(calls) == sorted(result.id for result in results_in(messages))


def full_context(rounds: int = 8) -> list[Msg]:
    """Return a conversation of some 4,000 tokens, as an agent named pilot holds it."""
    blocks: list[Any] = []
    for number in range(rounds):
        blocks.append(TextBlock(text=f"Sounding {number} at /srv/depth/{number}.csv." + " Steady as she goes." * 110))
        blocks.append(ToolCallBlock(id=f"c{number}", name="log", input=json.dumps({"n": number})))
        blocks.append(ToolResultBlock(id=f"c{number}", name="log", output=f"depth {number}: 2{number}.5 fathoms"))
    return [UserMsg("user", "Chart every depth; never round."), AssistantMsg("pilot", blocks)]
