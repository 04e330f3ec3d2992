"""Prices recorded sessions at the trigger 0.8 and with ``"auto"``, with the lookups that an agent then needs.

    python benchmarks/costs.py SESSIONS_DIR [--sizes 64000 128000] [--least-calls 100]

Each session is fed through the code path of ``buoyline replay``. An exact string (path, identifier, hash; 8 characters
or more) that the recorded agent writes, that an earlier message has, and that is not in the context, costs a `grep`: a
model call of its own, whose answer enters the context. That is too many lookups, since an agent may know a string from
elsewhere. Prices are 1 for input, 0.1 from the cache, 1.25 into the cache, 5 for output.
"""

import argparse
import asyncio
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

from buoyline import ContextConfig, ContextWindow, MemoryWorkspace
from buoyline.compression.text import mentions
from buoyline.inspect.replay import Prices, Requests, cost_of
from buoyline.lookups import grep, lookup_tools
from buoyline.messages.registry import detect
from buoyline.tokens import default_counter
from buoyline.tokens.counter import count_message
from buoyline.window import ContextCompressed

COUNTER = default_counter()
PRICES = Prices(input=1, output=5, cached=0.1, cache_write=1.25)
TRIGGERS: tuple[Any, ...] = (0.8, "auto")
LEAST_CHARS, MOST_STRINGS = 8, 20


def said_in(message: Any) -> str:
    """Return all text of a message, calls and results included."""
    view = detect(message).view(message)
    calls = (f"{call.name} {call.arguments}" for call in view.calls)
    return "\n".join([view.text, *calls, *(result.text for result in view.results)])


def lookup_of(number: int, pattern: str, answer: str) -> list[dict[str, Any]]:
    """Return the call of a lookup and its answer."""
    function = {"name": "grep", "arguments": json.dumps({"pattern": pattern})}
    call = {"id": f"lookup_{number}", "type": "function", "function": function}
    asked = {"role": "assistant", "content": None, "tool_calls": [call]}
    return [asked, {"role": "tool", "tool_call_id": call["id"], "content": answer}]


async def billed(conversation: list[dict[str, Any]], size: int, trigger: Any) -> Counter[str]:
    """Return the sums of one session at one trigger; the bill is in millionths."""
    found, requests, priced, earlier, output_tokens = Counter[str](), Requests(COUNTER), list[Any](), "", 0
    workspace = MemoryWorkspace()
    window = await ContextWindow.open(
        workspace,
        "s1",
        size=size,
        config=ContextConfig(trigger_ratio=trigger),
        tools=[tool.openai() for tool in lookup_tools(workspace)],
        on_event=lambda event: found.update(compactions=isinstance(event, ContextCompressed)),
    )
    window.tools()  # from now on it knows them, and offloads none of their answers
    for message in conversation:
        if message["role"] == "assistant":
            messages = await window.prepare()
            priced.append(requests.note(messages, window.tokens))
            context = "\n".join(map(said_in, messages))
            wanted = {one.text for one in mentions(said_in(message)) if len(one.text) >= LEAST_CHARS}
            missing = sorted(text for text in wanted if text in earlier and text not in context)
            if missing:
                pattern = "|".join(map(re.escape, missing[:MOST_STRINGS]))
                found["lookups"] += 1
                for made in lookup_of(found["lookups"], pattern, grep(workspace, pattern, session="s1").text):
                    await window.add(made)
                output_tokens += len(pattern) // 4
                priced.append(requests.note(await window.prepare(), window.tokens))
            output_tokens += count_message(detect(message).view(message), COUNTER)
        await window.add(message)
        earlier += said_in(message) + "\n"
    found["bill"] = round(1e6 * cost_of(priced, output_tokens, PRICES).amount)
    return found


def main() -> None:
    """Print a line for each size and trigger."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sessions", type=Path, help="directory of the sessions, *.jsonl")
    parser.add_argument("--sizes", type=int, nargs="+", default=[64_000, 128_000], help="tokens of the windows")
    parser.add_argument("--least-calls", type=int, default=100, help="model calls of a session")
    options = parser.parse_args()
    read = [[json.loads(line) for line in path.open(encoding="utf-8")] for path in options.sessions.glob("*.jsonl")]
    sessions = [one for one in read if sum(said["role"] == "assistant" for said in one) >= options.least_calls]
    print(f"{len(sessions)} sessions\n\n| window | trigger | lookups | compactions | bill | ratio |")
    print("|---|---|---|---|---|---|")
    for size in options.sizes:
        first = 0
        for trigger in TRIGGERS:
            total = sum((asyncio.run(billed(one, size, trigger)) for one in sessions), Counter[str]())
            first = first or total["bill"]
            print(f"| {size:,} | {trigger} | {total['lookups']} | {total['compactions']} ", end="")
            print(f"| {total['bill'] / 1e6:.2f} | {total['bill'] / first:.2f} |", flush=True)


if __name__ == "__main__":
    main()
