"""Prices recorded sessions under several policies, with the lookups that an agent then needs. No model is involved.

    python benchmarks/costs.py SESSIONS_DIR [--sizes 64000 128000] [--least-calls 100] [--jobs 2] [--policies NAME ...]

Each session with enough model calls is fed through a policy: without management; with clearing of old results above a
share of the window, as providers document it on their servers (all but the newest five, if that clears 5,000 tokens);
through the code path of ``buoyline replay`` with a trigger and a reserve; and through the policies of AgentScope and
Strands, which are the packages' own, with summaries of a fixed size. The family of a session is the part of
its file's name before the first ``_``.

An exact string (path, identifier, hash, version, URL; 8 characters or more) that the recorded agent writes, that an
earlier message has, and that is not in the context, costs a lookup: a model call of its own, whose answer enters the
context and is paid like all else. With buoyline the lookup is a real `grep` for all such strings of that call, and up
to two more for those that its answer does not show. A cleared result is not stored, so the tool runs again. This counts
too many lookups, since an agent may know a string from elsewhere, and the more, the earlier a policy evicts.

Prices are those of `ContextConfig.prices`: 1 for input, 0.1 from the cache, 1.25 into the cache, 5 for output. *ratio*
divides the bill, output included, by that of the page's default. There is no system prompt, but the lookups' tools.
"""

import argparse
import asyncio
import itertools
import json
import re
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, fields
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from buoyline import ContextConfig, ContextWindow, LocalWorkspace
from buoyline.compression.identifiers import mentions
from buoyline.inspect.costs import RequestCost, Requests, cost_of
from buoyline.lookups import LOOKUP_RULES, grep, lookup_tools
from buoyline.messages import Message
from buoyline.messages.registry import detect
from buoyline.tokens import default_counter
from buoyline.tokens.messages import count_message
from buoyline.window import ContextCompressed, Event

COUNTER = default_counter()
PRICES = ContextConfig().prices
SESSION = "s1"
LEAST_CHARS = 8
MOST_LOOKUPS = 3
PATTERN_CHARS = 1_000
KEPT_RESULTS = 5
SUMMARY_TOKENS = 800
LEAST_CLEARED_TOKENS = 5_000
CLEARED = "[Old tool result content cleared]"
UNMANAGED, DEFAULT = "no management", "0.8 / 0.1"

Native = dict[str, Any]


class Policy(Protocol):
    """Holds the messages of a session, and returns those of the next request."""

    compactions: int
    asked: list[tuple[int, int]]
    """Tokens of each request for a summary, and of its answer."""

    async def add(self, message: Native) -> None:
        """Add a message."""
        ...

    async def request(self) -> tuple[list[Native], int]:
        """Return the next request, and its tokens."""
        ...

    def look_up(self, missing: Sequence[str]) -> str:
        """Return what a lookup of strings answers."""
        ...


class Clearing:
    """Old tool results are cleared above *share* of *size* tokens; never if it is None."""

    def __init__(self, size: int, share: float | None) -> None:
        """Begin without messages."""
        self.compactions = 0
        self.asked: list[tuple[int, int]] = []
        self._limit = None if share is None else share * size
        self._messages: list[Native] = []
        self._whole: list[Native] = []

    async def add(self, message: Native) -> None:
        """Add a message."""
        self._messages.append(message)
        self._whole.append(message)

    async def request(self) -> tuple[list[Native], int]:
        """Return the next request, after a clearing if it is above the limit."""
        tokens = sum(map(tokens_of, self._messages))
        if self._limit is not None and tokens > self._limit:
            results = [at for at, message in enumerate(self._messages) if message["role"] == "tool"][:-KEPT_RESULTS]
            cleared = {at: {**self._messages[at], "content": CLEARED} for at in results}
            saved = sum(tokens_of(self._messages[at]) - tokens_of(new) for at, new in cleared.items())
            if saved >= LEAST_CLEARED_TOKENS:
                self._messages = [cleared.get(at, message) for at, message in enumerate(self._messages)]
                self.compactions += 1
                tokens -= saved
        return list(self._messages), tokens

    def look_up(self, missing: Sequence[str]) -> str:
        """Return the newest result that holds one of the strings, as the tool would give it again."""
        return next((text for one in reversed(self._whole) if missing[0] in (text := said_in(one))), "")


class Framework:
    """A policy of a framework's own, see `side_by_side.policies`. What it drops is not stored, so a tool runs again."""

    def __init__(self, name: str, size: int) -> None:
        """Begin without messages."""
        self.compactions = 0
        self.asked: list[tuple[int, int]] = []
        self._policy = import_module("side_by_side.policies").POLICIES[name](size, tokens_of, self._note)
        self._whole: list[Native] = []

    async def add(self, message: Native) -> None:
        """Add a message."""
        self._whole.append(message)
        await self._policy.add(message)

    async def request(self) -> tuple[list[Any], int]:
        """Return the next request."""
        messages = await self._policy.request()
        return messages, sum(map(tokens_of, messages))

    def look_up(self, missing: Sequence[str]) -> str:
        """Return the newest result that holds one of the strings, as the tool would give it again."""
        return next((text for one in reversed(self._whole) if missing[0] in (text := said_in(one))), "")

    def _note(self, messages: Sequence[Any]) -> None:
        self.compactions += 1
        self.asked.append((sum(map(tokens_of, messages)), SUMMARY_TOKENS))


class Compacting:
    """A window of buoyline."""

    def __init__(self, workdir: Path, size: int, config: ContextConfig) -> None:
        """Begin a session in an empty directory."""
        self.compactions = 0
        self.asked: list[tuple[int, int]] = []
        self._workspace = LocalWorkspace(workdir, durability="off")
        self._window = ContextWindow(
            session_id=SESSION,
            offloader=self._workspace,
            size=size,
            config=config,
            tools=[tool.openai() for tool in lookup_tools(self._workspace)],
            on_event=self._note,
        )

    async def add(self, message: Native) -> None:
        """Add a message."""
        await self._window.add(message)

    async def request(self) -> tuple[list[Native], int]:
        """Return the next request."""
        return await self._window.prepare(), self._window.tokens

    def look_up(self, missing: Sequence[str]) -> str:
        """Return what `grep` answers."""
        patterns = list(map(re.escape, missing))
        while len(patterns) > 1 and len("|".join(patterns)) > PATTERN_CHARS:
            patterns.pop()
        return grep(self._workspace, "|".join(patterns), session=SESSION).text

    def _note(self, event: Event) -> None:
        self.compactions += isinstance(event, ContextCompressed)


class Ratios(NamedTuple):
    """Trigger and reserve of a policy."""

    trigger: Any
    reserve: float = 0.1


POLICIES: dict[str, Any] = {
    UNMANAGED: None,
    "clearing at 0.8": 0.8,
    "clearing at 0.4": 0.4,
    DEFAULT: Ratios(0.8),
    "0.4 / 0.1": Ratios(0.4),
    "0.3 / 0.05": Ratios(0.3, 0.05),
    "auto": Ratios("auto"),
    **dict.fromkeys(("AgentScope", "Strands, sliding window", "Strands, summaries"), Framework),
}


@dataclass
class Bill:
    """The figures of one session, or of several; each number is a sum."""

    calls: int = 0
    lookups: int = 0
    unreached: int = 0
    compactions: int = 0
    over: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    amount: float = 0.0

    def add(self, other: "Bill") -> None:
        """Add the figures of *other*."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


_SEEN: dict[int, tuple[Native, str, int]] = {}


def _seen(message: Native) -> tuple[Native, str, int]:
    known = _SEEN.get(id(message))
    if known is None or known[0] is not message:
        view = detect(message).view(message)
        known = _SEEN[id(message)] = (message, _said(view), count_message(view, COUNTER))
    return known


def said_in(message: Native) -> str:
    """Return all text of a message, calls and results included."""
    return _seen(message)[1]


def tokens_of(message: Native) -> int:
    """Return the tokens of a message."""
    return _seen(message)[2]


def _said(view: Message) -> str:
    calls = (f"{call.name} {call.arguments}" for call in view.calls)
    return "\n".join([view.text, *calls, *(result.text for result in view.results)])


def strings_in(text: str) -> Iterator[str]:
    """Yield the exact strings in *text*, each once."""
    found = (each.text for each in mentions(text) if each.kind != "number" and len(each.text) >= LEAST_CHARS)
    yield from dict.fromkeys(found)


def lookup_of(number: int, missing: Sequence[str], answer: str) -> list[Native]:
    """Return the messages of a lookup."""
    function = {"name": "grep", "arguments": json.dumps({"pattern": "|".join(missing[:5])})}
    call = {"id": f"lookup_{number}", "type": "function", "function": function}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"lookup_{number}", "content": answer},
    ]


async def billed(conversation: Sequence[Native], policy: Policy, size: int) -> Bill:
    """Feed a session to *policy*, with the lookups that it needs, and price all requests."""
    bill, requests, priced = Bill(), Requests(COUNTER), list[Any]()
    earlier = ""

    async def call() -> str:
        messages, tokens = await policy.request()
        priced.append(requests.note(messages, tokens))
        bill.calls += 1
        bill.over += tokens > size
        return "\n".join(map(said_in, messages))

    for message in conversation:
        if message["role"] == "assistant":
            context = await call()
            wanted = [text for text in strings_in(said_in(message)) if text in earlier]
            for _ in range(MOST_LOOKUPS):
                missing = [text for text in wanted if text not in context]
                if not missing:
                    break
                bill.lookups += 1
                asked, answer = lookup_of(bill.lookups, missing, policy.look_up(missing))
                bill.output_tokens += tokens_of(asked)
                await policy.add(asked)
                await policy.add(answer)
                context = await call()
            bill.unreached += sum(text not in context for text in wanted)
            bill.output_tokens += tokens_of(message)
        await policy.add(message)
        earlier += said_in(message) + "\n"
    for tokens, answered in policy.asked:
        # The messages of a request for a summary begin the last one, so they are in the cache.
        priced.append(RequestCost(1, 1, tokens, tokens))
        bill.output_tokens += answered
    cost = cost_of(priced, bill.output_tokens, PRICES)
    bill.compactions = policy.compactions
    bill.input_tokens, bill.cached_tokens = cost.input_tokens + cost.cached_tokens, cost.cached_tokens
    bill.amount = cost.amount
    return bill


def measure(session: Path, size: int, name: str) -> Bill:
    """Measure one session under one policy."""
    conversation = [json.loads(line) for line in session.read_text("utf-8").splitlines()]
    ratios = POLICIES[name]
    with tempfile.TemporaryDirectory() as directory:
        policy: Policy
        if isinstance(ratios, Ratios):
            config = ContextConfig(trigger_ratio=ratios.trigger, reserve_ratio=ratios.reserve, tool_rules=LOOKUP_RULES)
            policy = Compacting(Path(directory), size, config)
        elif ratios is Framework:
            policy = Framework(name, size)
        else:
            policy = Clearing(size, ratios)
        return asyncio.run(billed(conversation, policy, size))


def _measure(job: tuple[Path, int, str]) -> Bill:
    return measure(*job)


def calls_in(session: Path) -> int:
    """Return how often the model was called in a session."""
    return sum(json.loads(line)["role"] == "assistant" for line in session.read_text("utf-8").splitlines())


def row(name: str, bill: Bill, default: Bill) -> str:
    """Return a line of the table."""
    return (
        f"| {name} | {bill.calls:,} | {bill.lookups} | {bill.compactions} | {bill.over} "
        f"| {bill.input_tokens / 1e6:.2f} | {bill.cached_tokens / bill.input_tokens:.1%} "
        f"| {bill.amount:.3f} | {bill.amount / default.amount:.2f} |"
    )


def table(title: str, bills: dict[str, Bill]) -> None:
    """Print the bills of each policy."""
    print(f"\n{title}\n")
    print("| trigger / reserve | calls | lookups | compactions | over | input M | cached | bill | ratio |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, bill in bills.items():
        print(row(name, bill, bills[DEFAULT]), flush=True)


def main() -> None:
    """Print a table for each session and size, and one for each family."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sessions", type=Path, help="directory of the sessions, *.jsonl")
    parser.add_argument("--sizes", type=int, nargs="+", default=[64_000, 128_000], help="tokens of the windows")
    parser.add_argument("--least-calls", type=int, default=100, help="model calls of a session")
    parser.add_argument("--policies", nargs="+", choices=list(POLICIES), default=list(POLICIES))
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    options = parser.parse_args()
    found = [path for path in sorted(options.sessions.glob("*.jsonl")) if calls_in(path) >= options.least_calls]
    jobs = [*itertools.product(found, options.sizes, options.policies)]
    families: dict[tuple[str, int], dict[str, Bill]] = {}
    with ProcessPoolExecutor(options.jobs) as pool:
        done = zip(jobs, pool.map(_measure, jobs), strict=True)
        for (path, size), group in itertools.groupby(done, key=lambda each: each[0][:2]):
            bills = {name: bill for (_, _, name), bill in group}
            table(f"{path.stem}, {size:,} tokens", bills)
            family = families.setdefault((path.stem.partition("_")[0], size), {})
            for name, bill in bills.items():
                family.setdefault(name, Bill()).add(bill)
    for (family_name, size), bills in families.items():
        table(f"All of {family_name}, {size:,} tokens", bills)


if __name__ == "__main__":
    main()
