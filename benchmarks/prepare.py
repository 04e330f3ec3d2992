"""Measures the cost of the preparation of a model call, as a session grows to ten thousand of them.

Usage: ``python benchmarks/prepare.py [TURNS] [--management NAME]``. It measures processor time, of all threads, in one
run and turn by turn, so that a busy machine is busy for all:

- buoyline's `add` and `prepare`, through a `LocalWorkspace`, in a window that holds everything and in one of 128,000
  tokens, where the oldest messages are archived again and again;
- AgentScope's `compress_context`, which its agent calls before each reply. Far below its trigger, it only counts;
- Strands' estimate of the next request, which its event loop makes before each model call for proactive compression,
  without usage from the provider and with it.

A turn has one call and its result. The benchmark prints the median of each thousand turns in microseconds, then the
ratio of the last thousand to the first: 1 means a cost that follows from the new messages, 10 a cost that follows from
the whole history. Of the frameworks, every tenth turn is measured, but they get every message. For the window of
128,000 tokens it also prints the mean, since compactions are rare and a median does not show them.

With ``--management NAME`` it measures the same two windows also under the document of that name, and no frameworks.
At the end it prints the cost of a turn with the document against one without.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from typing import Any

from agentscope.agent import Agent as ScopeAgent
from agentscope.credential import CredentialBase
from agentscope.message import AssistantMsg, TextBlock, ToolCallBlock, ToolResultBlock
from agentscope.model import ChatModelBase, ChatResponse
from strands import Agent as StrandsAgent
from strands.event_loop.event_loop import _estimate_input_tokens as strands_estimate
from strands.models import Model

from buoyline import ContextConfig, ContextWindow, LocalWorkspace
from buoyline.tokens import default_counter

TURNS = 10_000
STEP = 1_000
MEASURED_EVERY = 10
UNBOUNDED = 1_000_000_000
SMALL = 128_000
SYSTEM = "You are a careful engineer."

Turn = Callable[[int], Awaitable[float | None]]
"""Takes the messages of a turn and returns the measured processor seconds; None if the turn was not measured."""


class Uncalled(ChatModelBase):
    """A model that is never called, with a window that is never full."""

    def __init__(self) -> None:
        """Create the model."""
        super().__init__(CredentialBase(), "none", self.Parameters(), context_size=UNBOUNDED)

    async def _call_api(self, *_: Any, **__: Any) -> ChatResponse:
        raise NotImplementedError


class Unstreamed(Model):
    """The same for Strands."""

    def get_config(self) -> Any:
        """Return the size of the window."""
        return {"context_window_limit": UNBOUNDED}

    def update_config(self, **_: Any) -> None:
        """Take no settings."""

    def structured_output(self, *_: Any, **__: Any) -> Any:
        """Never be asked."""
        raise NotImplementedError

    def stream(self, *_: Any, **__: Any) -> Any:
        """Never be asked."""
        raise NotImplementedError


def arguments(turn: int) -> dict[str, Any]:
    """Return the arguments of a turn's call."""
    return {"path": f"src/module_{turn:05}.py", "line": turn % 97}


def output(turn: int) -> str:
    """Return the tool's output: some hundred tokens."""
    return f"def function_{turn}(x):\n    return x + {turn}\n" * 8


def windowed(workdir: str, size: int, management: str | None = None) -> Turn:
    """Return buoyline's turn, under a document if *management* names one."""
    workspace = LocalWorkspace(workdir, durability="off")
    window = ContextWindow(
        session_id="s",
        offloader=workspace,
        size=size,
        system=SYSTEM,
        dialect="openai",
        management=management,
        config=ContextConfig(),
    )

    async def turn(number: int) -> float:
        function = {"name": "read", "arguments": str(arguments(number)).replace("'", '"')}
        call = {"id": f"c{number}", "type": "function", "function": function}
        began = time.process_time()
        await window.add({"role": "assistant", "content": None, "tool_calls": [call]})
        await window.add({"role": "tool", "tool_call_id": f"c{number}", "content": output(number)})
        await window.prepare()
        return time.process_time() - began

    return turn


def scope() -> Turn:
    """Return AgentScope's turn."""
    agent = ScopeAgent("agent", SYSTEM, Uncalled())

    async def turn(number: int) -> float | None:
        call = ToolCallBlock(id=f"c{number}", name="read", input=str(arguments(number)))
        result = ToolResultBlock(id=f"c{number}", name="read", output=[TextBlock(text=output(number))])
        agent.state.context.append(AssistantMsg("agent", [call, result]))
        if number % MEASURED_EVERY:
            return None
        began = time.process_time()
        await agent.compress_context()
        return time.process_time() - began

    return turn


def strands(*, has_usage: bool) -> Turn:
    """Return Strands' turn, with or without usage from the provider."""
    agent = StrandsAgent(model=Unstreamed(), system_prompt=SYSTEM, callback_handler=None)

    async def turn(number: int) -> float | None:
        call: Any = {"toolUse": {"toolUseId": f"c{number}", "name": "read", "input": arguments(number)}}
        answer: Any = {"role": "assistant", "content": [call]}
        if has_usage:
            answer["metadata"] = {"usage": {"inputTokens": number * 150, "outputTokens": 20, "totalTokens": 0}}
        result: Any = {"toolUseId": f"c{number}", "status": "success", "content": [{"text": output(number)}]}
        agent.messages.extend([answer, {"role": "user", "content": [{"toolResult": result}]}])
        if number % MEASURED_EVERY:
            return None
        began = time.process_time()
        await strands_estimate(agent)
        return time.process_time() - began

    return turn


def peers(workdir: str, management: str | None) -> dict[str, Turn]:
    """Return the measured turns, by column."""
    ours = {
        "buoyline, all": windowed(f"{workdir}/all", UNBOUNDED),
        "buoyline, 128k": windowed(f"{workdir}/128k", SMALL),
    }
    if management is None:
        return {
            **ours,
            "AgentScope": scope(),
            "Strands": strands(has_usage=False),
            "Strands, usage": strands(has_usage=True),
        }
    return {
        **ours,
        "managed, all": windowed(f"{workdir}/managed-all", UNBOUNDED, management),
        "managed, 128k": windowed(f"{workdir}/managed-128k", SMALL, management),
    }


async def run(turns: int, management: str | None) -> dict[str, list[list[float]]]:
    """Return the seconds of each measured turn, by thousand, of each peer."""
    with tempfile.TemporaryDirectory() as workdir:
        measured = peers(workdir, management)
        spent: dict[str, list[list[float]]] = {name: [[] for _ in range(0, turns, STEP)] for name in measured}
        for number in range(turns):
            for name, turn in measured.items():
                seconds = await turn(number)
                if seconds is not None:
                    spent[name][number // STEP].append(seconds)
        return spent


def main() -> None:
    """Print a line for each thousand turns, and the ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("turns", type=int, nargs="?", default=TURNS, help=f"calls, each with a result ({TURNS:,})")
    parser.add_argument("--management", metavar="NAME", help="measure this document instead of the frameworks")
    given = parser.parse_args()
    default_counter().count("load the vocabulary")
    show(asyncio.run(run(given.turns, given.management)))


def show(spent: dict[str, list[list[float]]]) -> None:
    """Print the measurements."""
    medians = {name: [statistics.median(part) * 1e6 for part in parts] for name, parts in spent.items()}
    print(f"{'median, microseconds':>20}" + "".join(f"{name:>16}" for name in medians))
    for number in range(len(next(iter(medians.values())))):
        print(f"{f'turns to {(number + 1) * STEP:,}':>20}" + "".join(f"{of[number]:16,.0f}" for of in medians.values()))
    print(f"{'last / first':>20}" + "".join(f"{of[-1] / of[0]:16.2f}" for of in medians.values()))
    ours = medians["buoyline, all"][-1]
    print(f"{'/ buoyline, all':>20}" + "".join(f"{of[-1] / ours:16.2f}" for of in medians.values()))
    for name, parts in spent.items():
        if name.endswith("128k"):
            first, last = (statistics.fmean(part) * 1e6 for part in (parts[0], parts[-1]))
            print(f"{name}: mean {first:,.0f} in the first and {last:,.0f} in the last thousand")
    for size in ("all", "128k"):
        if f"managed, {size}" in spent:
            with_it, without = (sum(map(sum, spent[f"{by}, {size}"])) for by in ("managed", "buoyline"))
            print(f"{size}: {with_it / without:.2f} times the processor time of a window without a document")


if __name__ == "__main__":
    main()
