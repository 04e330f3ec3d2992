"""What it costs to get ready for a model call, as a session grows to ten thousand of them.

Run it: ``python benchmarks/prepare.py [TURNS]``. Measured is processor time, of all threads, in one run and turn by
turn, so that a busy machine is busy for all:

- buoyline's `add` and `prepare`, through a `LocalWorkspace`, in a window that holds everything and in one of 128,000
  tokens, where the oldest messages leave over and over;
- AgentScope's `compress_context`, which its agent calls before each reply, far below its trigger: it counts;
- Strands' estimate of the next request, which its event loop makes before each model call for proactive compression:
  as it is without usage from the provider, and with it.

A turn brings one call and its result. It prints the median of each thousand turns in microseconds, then the last
thousand against the first: 1 is a cost that follows from what is new, 10 one that follows from the whole history. Of
the frameworks every tenth turn is measured, all of them get every message. Of the window of 128,000 tokens the mean is
printed, too, since compressions are rare and a median does not see them.
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

from buoyline import ContextWindow, LocalWorkspace
from buoyline.tokens import default_counter

TURNS = 10_000
STEP = 1_000
MEASURED_EVERY = 10
UNBOUNDED = 1_000_000_000
SYSTEM = "You are a careful engineer."

Turn = Callable[[int], Awaitable[float | None]]
"""Takes the messages of a turn and returns the processor seconds of what is measured; None where it was not."""


class Uncalled(ChatModelBase):
    """A model whose window nothing fills, and which nobody calls."""

    def __init__(self) -> None:
        """Begin."""
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
    """Return what the call of a turn says."""
    return {"path": f"src/module_{turn:05}.py", "line": turn % 97}


def output(turn: int) -> str:
    """Return what its tool gives: some hundred tokens."""
    return f"def function_{turn}(x):\n    return x + {turn}\n" * 8


def windowed(workdir: str, size: int) -> Turn:
    """Return buoyline's turn."""
    window = ContextWindow(
        session_id="s", offloader=LocalWorkspace(workdir, durability="off"), size=size, system=SYSTEM, dialect="openai"
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
    """Return Strands' turn, where the provider states what a request took, or does not."""
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


async def run(turns: int) -> dict[str, list[list[float]]]:
    """Return the seconds of each measured turn, by thousand, of each peer."""
    with tempfile.TemporaryDirectory() as whole, tempfile.TemporaryDirectory() as small:
        peers = {
            "buoyline, all": windowed(whole, UNBOUNDED),
            "buoyline, 128k": windowed(small, 128_000),
            "AgentScope": scope(),
            "Strands": strands(has_usage=False),
            "Strands, usage": strands(has_usage=True),
        }
        spent: dict[str, list[list[float]]] = {name: [[] for _ in range(0, turns, STEP)] for name in peers}
        for number in range(turns):
            for name, turn in peers.items():
                seconds = await turn(number)
                if seconds is not None:
                    spent[name][number // STEP].append(seconds)
        return spent


def main() -> None:
    """Print a line for each thousand turns, and what they say."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("turns", type=int, nargs="?", default=TURNS, help=f"calls with a result each ({TURNS:,})")
    turns: int = parser.parse_args().turns
    default_counter().count("load the vocabulary")
    spent = asyncio.run(run(turns))
    medians = {name: [statistics.median(part) * 1e6 for part in parts] for name, parts in spent.items()}
    print(f"{'median, microseconds':>20}" + "".join(f"{name:>16}" for name in medians))
    for number in range(len(next(iter(medians.values())))):
        print(f"{f'turns to {(number + 1) * STEP:,}':>20}" + "".join(f"{of[number]:16,.0f}" for of in medians.values()))
    print(f"{'last / first':>20}" + "".join(f"{of[-1] / of[0]:16.2f}" for of in medians.values()))
    ours = medians["buoyline, all"][-1]
    print(f"{'/ buoyline, all':>20}" + "".join(f"{of[-1] / ours:16.2f}" for of in medians.values()))
    means = [statistics.fmean(part) * 1e6 for part in spent["buoyline, 128k"]]
    print(f"buoyline, 128k: mean {means[0]:,.0f} in the first and {means[-1]:,.0f} in the last thousand")


if __name__ == "__main__":
    main()
