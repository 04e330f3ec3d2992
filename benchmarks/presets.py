"""Measures how much each built-in document saves and keeps, on recorded sessions, by size of the window.

    python benchmarks/presets.py NEEDLES_DIR SESSIONS_DIR [--sizes 32000 128000] [--jobs 2]

Each session with needles is fed through the code path of ``buoyline replay`` under each preset, and without a document.
A needle is a string that a recorded compaction removed and that the agent wrote again afterwards. The benchmark looks
for it in the request just before. It prints, summed over the sessions:

- *sent*: tokens of all requests together, and their share of the tokens without buoyline;
- *reusable*: the share of the sent tokens that a provider's prompt cache could take from the request before;
- *price*: of all input, by `ContextConfig.prices`, relative to the window without a document at the fixed trigger 0.8;
- *over*: requests that did not fit the window;
- *summaries*: the number of summaries;
- *in context*, *cited*, *stored*: needles that were in the context when the agent used them again; in it or in the
  lines that its newest summary cites; in it or in the files of the session;
- *lookups*: needles that were not in the context then, so that the agent would have to look them up. One lookup opens
  one file for all needles that one request misses, so this is the least number of calls of ``grep``.

A neutral line replaces the recorded summary, since it may hold needles, too. So the share *in context* is the share of
strings that the documents kept.
"""

import argparse
import asyncio
import json
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, fields
from itertools import product
from pathlib import Path
from typing import Any

from buoyline import ContextConfig, ContextWindow, LocalWorkspace
from buoyline.inspect.costs import Requests, cost_of
from buoyline.management.registry import BUILT_IN
from buoyline.messages import Message
from buoyline.messages.registry import detect
from buoyline.tokens import default_counter
from buoyline.window import ContextCompressed, Event

NEUTRAL = "The conversation goes on."
SESSION = "s1"
NO_DOCUMENT = "(no document)"
FIXED = "(no document, 0.8)"
PRICES = ContextConfig().prices
COUNTER = default_counter()


@dataclass
class Kept:
    """The figures of one replay, or of several; each number is a sum."""

    sent: int = 0
    unmanaged: int = 0
    reused: int = 0
    over: int = 0
    compressions: int = 0
    needles: int = 0
    in_context: int = 0
    cited: int = 0
    stored: int = 0
    lookups: int = 0
    amount: float = 0.0

    def add(self, other: "Kept") -> None:
        """Add the figures of *other*."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


class Measured:
    """A session that is fed through a window."""

    def __init__(self, workdir: Path, preset: str, size: int) -> None:
        """Create a window in an empty directory."""
        self.kept = Kept()
        self._cites: Sequence[Any] = ()
        self._workspace = LocalWorkspace(workdir, durability="off")
        self._directory = workdir / "sessions" / SESSION
        self.window = ContextWindow(
            session_id=SESSION,
            offloader=self._workspace,
            size=size,
            management=None if preset in (NO_DOCUMENT, FIXED) else preset,
            config=ContextConfig() if preset == FIXED else None,
            on_event=self._note,
        )
        self._requests = Requests(COUNTER)

    async def step(self, unmanaged: int, wanted: Sequence[str]) -> None:
        """Prepare the model call whose answer uses *wanted*."""
        messages = await self.window.prepare()
        request = self._requests.note(messages, self.window.tokens)
        self.kept.sent += self.window.tokens
        self.kept.unmanaged += unmanaged
        self.kept.reused += request.reused_tokens
        self.kept.amount += cost_of([request], 0, PRICES).amount
        self.kept.over += bool(self.window.exceeding())
        if wanted:
            self._look_for(wanted, "\n".join(said_in(view_of(message)) for message in messages))

    def _look_for(self, wanted: Sequence[str], context: str) -> None:
        files = {path.name: path.read_text("utf-8", "replace") for path in self._directory.iterdir() if path.is_file()}
        stored = {name: text for name, text in files.items() if name == "context.jsonl" or name.startswith("tool_")}
        cited = "\n".join(self._cited(files))
        opened = set[str]()
        for needle in wanted:
            names = [name for name, text in stored.items() if is_in(needle, text)]
            is_there, is_cited = needle in context, needle in cited
            self.kept.needles += 1
            self.kept.in_context += is_there
            self.kept.cited += is_there or is_cited
            self.kept.stored += is_there or bool(names)
            if not is_there:
                # A file that is open for another needle, or the first that has this one.
                opened.add(next((name for name in names if name in opened), names[0] if names else needle))
        self.kept.lookups += len(opened)

    def _cited(self, files: dict[str, str]) -> list[str]:
        found: list[str] = []
        for pointer in self._cites:
            lines = files.get(pointer.path, "").split("\n")
            found += lines[pointer.start - 1 : pointer.end]
        return found

    def _note(self, event: Event) -> None:
        if isinstance(event, ContextCompressed):
            self.kept.compressions += 1
            self._cites = event.summary.draft.pointers


def is_in(needle: str, text: str) -> bool:
    """Return whether *text*, which may be JSON, holds *needle*."""
    return needle in text or json.dumps(needle, ensure_ascii=False)[1:-1] in text


def view_of(message: dict[str, Any]) -> Message:
    """Return the view of a message in any dialect."""
    return detect(message).view(message)


def said_in(view: Message) -> str:
    """Return all text of a message, calls and results included."""
    calls = (f"{call.name} {call.arguments}" for call in view.calls)
    return "\n".join([view.text, *calls, *(result.text for result in view.results)])


def used_again(path: Path) -> dict[int, list[str]]:
    """Return the needles of a session by the line of the answer that uses them again."""
    found: dict[int, list[str]] = {}
    for compaction in json.loads(path.read_text("utf-8"))["compactions"]:
        for needle in compaction["needles"]:
            found.setdefault(needle["used_again_line"], []).append(needle["needle"])
    return found


def neutral(path: Path, needles: Path) -> list[dict[str, Any]]:
    """Return a session without its recorded summaries."""
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    for compaction in json.loads(needles.read_text("utf-8"))["compactions"]:
        lines[compaction["compaction_line"]] = {"role": "user", "content": NEUTRAL}
    return lines


async def replayed(conversation: Sequence[dict[str, Any]], wanted: dict[int, list[str]], measured: Measured) -> None:
    """Feed a session as in a live run: with a model call before each answer."""
    unmanaged = 0
    for position, message in enumerate(conversation):
        if message["role"] == "assistant":
            await measured.step(unmanaged, wanted.get(position, []))
        await measured.window.add(message)
        unmanaged += COUNTER.count(said_in(view_of(message)))


def measure(preset: str, size: int, needles: Path, session: Path) -> Kept:
    """Measure one session under one preset."""
    with tempfile.TemporaryDirectory() as directory:
        measured = Measured(Path(directory), preset, size)
        asyncio.run(replayed(neutral(session, needles), used_again(needles), measured))
        return measured.kept


def _measure(job: tuple[str, int, Path, Path]) -> Kept:
    return measure(*job)


def row(preset: str, kept: Kept, fixed: Kept) -> str:
    """Return a line of the table."""
    needles = max(kept.needles, 1)
    return (
        f"| {preset} | {kept.sent:,} | {kept.sent / kept.unmanaged:.0%} | {kept.reused / kept.sent:.0%} "
        f"| {kept.amount / fixed.amount:.2f} | {kept.over} "
        f"| {kept.compressions} | {kept.in_context / needles:.0%} | {kept.cited / needles:.0%} "
        f"| {kept.stored / needles:.0%} | {kept.lookups} |"
    )


def main() -> None:
    """Print a table for each size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("needles", type=Path, help="directory of the needles, a JSON file for each session")
    parser.add_argument("sessions", type=Path, help="directory of the sessions")
    parser.add_argument("--sizes", type=int, nargs="+", default=[8_000, 32_000, 128_000], help="tokens of the windows")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    options = parser.parse_args()
    found = [(path, options.sessions / f"{path.stem}.jsonl") for path in sorted(options.needles.glob("*.json"))]
    presets = (NO_DOCUMENT, FIXED, *BUILT_IN)
    jobs = [(preset, size, *paths) for size, preset, paths in product(options.sizes, presets, found)]
    sums = {(size, preset): Kept() for size, preset in product(options.sizes, presets)}
    with ProcessPoolExecutor(options.jobs) as pool:
        for (preset, size, *_), kept in zip(jobs, pool.map(_measure, jobs), strict=True):
            sums[size, preset].add(kept)
    for size in options.sizes:
        needles = sums[size, NO_DOCUMENT].needles
        print(f"\n{size:,} tokens, {len(found)} sessions, {needles} needles\n")
        print(
            "| preset | sent | of all | reusable | price | over | summaries | in context | cited | stored | lookups |"
        )
        print("|---|---|---|---|---|---|---|---|---|---|---|")
        for preset in presets:
            print(row(preset, sums[size, preset], sums[size, FIXED]), flush=True)


if __name__ == "__main__":
    main()
