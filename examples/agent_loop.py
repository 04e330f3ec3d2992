"""An agent loop of your own, with buoyline between the conversation and the model.

    python examples/agent_loop.py [DIRECTORY]

Prints each offloaded tool result, each compaction, and at the end how many messages another process resumes with.
The files are kept in DIRECTORY; without it, nothing is kept.
"""

import asyncio
import importlib
import inspect
import json
import sys
import tempfile
from typing import Any

from buoyline import ContextWindow
from buoyline.window import ContextCompressed, Event, ResultOffloaded

MODULES = iter(["json.decoder", "shlex", "bisect", "argparse", "string", "netrc", "queue", "textwrap"])


def read_source(module: str) -> str:
    """The agent's only tool: return the source of a module of the standard library."""
    return inspect.getsource(importlib.import_module(module))


def ask_model(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Answer like a model.

    Call your client here: ``client.chat.completions.create(messages=messages, ...)`` takes them as they are.
    """
    module = next(MODULES, "")
    if not module:
        return {"role": "assistant", "content": f"I have read them all; {len(messages)} messages are before me."}
    function = {"name": "read_source", "arguments": json.dumps({"module": module})}
    call = {"id": f"call_{module}", "type": "function", "function": function}
    return {"role": "assistant", "content": f"Now {module}.", "tool_calls": [call]}


def show(event: Event) -> None:
    """Print each operation of the window; without this it is silent."""
    if isinstance(event, ContextCompressed):
        print(f"compacted: {event.tokens_before:,} -> {event.tokens_after:,} tokens")
    elif isinstance(event, ResultOffloaded):
        print(f"offloaded: {event.call_id}, {event.tokens:,} -> {event.stub_tokens:,} tokens; whole in {event.path}")


async def run(directory: str) -> None:
    """Run the agent, then open the session again, as another process would."""
    async with await ContextWindow.open(directory, "reader", size=8_000, on_event=show) as window:
        await window.add({"role": "user", "content": "Read these modules and compare how they report errors."})
        message: dict[str, Any] = {"tool_calls": []}
        while "tool_calls" in message:
            message = ask_model(await window.prepare())  # these messages always fit
            await window.add(message)
            for call in message.get("tool_calls", []):
                result = read_source(**json.loads(call["function"]["arguments"]))
                await window.add({"role": "tool", "tool_call_id": call["id"], "content": result})
    print("agent:", message["content"])
    resumed = await ContextWindow.open(directory, "reader")
    same = "the same" if resumed.messages == window.messages else "other"
    print(f"resumed: {same} {len(resumed.messages)} messages in the context, of {resumed.added} in the session")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        asyncio.run(run(sys.argv[1] if len(sys.argv) > 1 else temporary))
