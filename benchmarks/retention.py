"""Measures which strings a summary keeps, of those that the agent used again after a compaction.

    python benchmarks/retention.py NEEDLES_DIR SESSIONS_DIR [--verbose] [--show DIR]

For each recorded compaction, the session is fed through the code path of ``buoyline replay``, with a compaction at the
same message. The summary may have a fourth as many tokens as the recorded one has characters (``summary_chars // 4``;
our tokens are counted exactly, so this is the harder measure). A neutral line replaces each message with a recorded
summary. Then the benchmark looks for each needle in the summary's text, in the lines that it cites (of
``transcript.md`` and of tool results), and in all files of the session. *Rare* needles are in at most three messages
before. For comparison: the recorded summary; the last characters of the archived messages; and a bare list of the
identifiers in them, by count and recency (1 / (1 + age / 50) for each message with the identifier), with as many
characters as the recorded summary. Each share is given for all compactions together, and as the mean of the sessions,
so that no long session decides alone.
"""

import argparse
import asyncio
import json
import os
import re
import tempfile
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from buoyline import ContextConfig, ContextWindow, LocalWorkspace
from buoyline.compression import Summary
from buoyline.inspect.replay import Replay, replay
from buoyline.messages import Message
from buoyline.messages.registry import detect
from buoyline.tokens import default_counter
from buoyline.window import ContextCompressed

COUNTER = default_counter()
CHARS_PER_TOKEN = 4
RARE_MESSAGES = 3
NEUTRAL = "The conversation goes on."
SESSION = "s1"
CONTEXT_TOKENS = 1_000_000
"""Large enough that nothing is compacted except on request."""

_IDENTIFIER = re.compile(
    r"https?://[^\s\"'<>)\]}]{4,200}|(?<![\w./-])[\w.@~-]{0,80}(?:/[\w.@~-]{1,80}){1,20}"
    r"|\b[A-Z]{2,10}-\d{1,6}\b|\b[0-9a-f]{7,64}\b|\b[A-Za-z]\w{0,80}(?:[_.]\w{1,80}){1,8}|\b\w{0,60}[a-z][A-Z]\w{0,60}\b"
)


class Needle(NamedTuple):
    """A string to look for; *messages* is the number of earlier messages with it."""

    text: str
    messages: int

    @property
    def is_rare(self) -> bool:
        """Whether only few messages have it."""
        return self.messages <= RARE_MESSAGES


class Cut(NamedTuple):
    """A recorded compaction: its place, its size, and the needles."""

    session: str
    conversation: list[dict[str, Any]]
    at: list[int]
    first: int
    max_tokens: int
    chars: int
    needles: list[Needle]
    recorded: str


@dataclass
class Score:
    """How many needles one way has kept, of all and of the rare ones."""

    all: list[bool] = field(default_factory=list[bool])
    rare: list[bool] = field(default_factory=list[bool])

    def note(self, needle: Needle, *, is_kept: bool) -> None:
        """Count one needle."""
        self.all.append(is_kept)
        if needle.is_rare:
            self.rare.append(is_kept)

    def __str__(self) -> str:
        """Return both shares."""
        return f"{share(self.all):6.1%}  rare {share(self.rare):6.1%}"


class Replayed(NamedTuple):
    """The last summary of a replay, the lines that it cites, and all that the session's files hold."""

    summary: Summary
    cited: str
    stored: str
    cited_share: float
    results_share: float
    unresolved: int


def share(flags: Sequence[bool]) -> float:
    """Return the share of true ones; 0 of none."""
    return sum(flags) / len(flags) if flags else 0.0


def view_of(message: dict[str, Any]) -> Message:
    """Return the view of a message in any dialect."""
    return detect(message).view(message)


def said_in(view: Message) -> str:
    """Return all text of a message, calls and results included."""
    calls = (f"{call.name} {' '.join(_leaves(_parsed(call.arguments)))}" for call in view.calls)
    return "\n".join([view.text, *calls, *(result.text for result in view.results)])


def _parsed(arguments: str) -> object:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def _leaves(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from _leaves(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner)
    else:
        yield str(value)


def recorded_cuts(needles_dir: Path, sessions_dir: Path) -> Iterator[Cut]:
    """Yield the recorded compactions."""
    for path in sorted(needles_dir.glob("*.json")):
        compactions = json.loads(path.read_text("utf-8"))["compactions"]
        conversation = read(sessions_dir / f"{path.stem}.jsonl")
        recorded = {c["compaction_line"]: said_in(view_of(conversation[c["compaction_line"]])) for c in compactions}
        neutral = [
            {"role": "user", "content": NEUTRAL} if line in recorded else message
            for line, message in enumerate(conversation)
        ]
        at: list[int] = []
        for found in compactions:
            first, end = found["compressed_lines"]
            at.append(end)
            needles = [Needle(n["needle"], n["messages_before"]) for n in found["needles"]]
            chars = found["summary_chars"]
            summary = recorded[found["compaction_line"]]
            yield Cut(path.stem, neutral, list(at), first, chars // CHARS_PER_TOKEN, chars, needles, summary)


def read(path: Path) -> list[dict[str, Any]]:
    """Return the messages of a session."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def replayed(cut: Cut) -> Replayed:
    """Feed the session up to the cut through a window, and read the files that the summary cites."""
    seen, summaries = Replay(), list[Summary]()

    def note(event: Any) -> None:
        seen.record(event)
        if isinstance(event, ContextCompressed):
            summaries.append(event.summary)

    async def feed(workdir: str) -> None:
        async with LocalWorkspace(workdir, durability="off") as workspace:
            config = ContextConfig(summary_tokens=cut.max_tokens)
            window = await ContextWindow.open(workspace, SESSION, size=CONTEXT_TOKENS, config=config, on_event=note)
            conversation = cut.conversation[: cut.at[-1] + 1]
            await replay(conversation, window, seen, counter=COUNTER, compress_at=cut.at)

    with _directory() as workdir:
        asyncio.run(feed(str(workdir)))
        return _followed(summaries[-1], workdir / "sessions" / SESSION)


@contextmanager
def _directory() -> Generator[Path]:
    """Yield a directory whose name takes the same tokens in each run, since a summary names its files.

    With a random name, the rest of the summary has a token more or less, which changes shares by as much as 3 %.
    """
    with tempfile.TemporaryDirectory() as parent:
        path = Path(parent).rename(Path(parent).with_name(f"retention-{os.getpid():09}"))
        try:
            yield path
        finally:
            path.rename(parent)


def _followed(summary: Summary, directory: Path) -> Replayed:
    files = {path.name: path.read_text("utf-8", "replace") for path in directory.iterdir() if path.is_file()}
    stored = "\n".join(
        text for name, text in files.items() if name in {"context.jsonl", "transcript.md"} or name.startswith("tool_")
    )
    lines = {name: text.removesuffix("\n").split("\n") for name, text in files.items()}
    cited: set[tuple[str, int]] = set()
    unresolved = 0
    for pointer in summary.draft.pointers:
        has_lines = 1 <= pointer.start <= pointer.end <= len(lines.get(pointer.path, ()))
        unresolved += not has_lines
        cited |= {(pointer.path, number) for number in range(pointer.start, pointer.end + 1) if has_lines}
    named = "\n".join(lines[path][number - 1] for path, number in sorted(cited))
    transcript = sum(path == "transcript.md" for path, _ in cited) / len(lines["transcript.md"])
    counted = {
        name for name in lines if name.startswith("tool_") and f"{name.removesuffix('.txt')}.view.txt" not in lines
    }
    of_results = sum(len(lines[name]) for name in counted)
    results = sum(path in counted for path, _ in cited) / max(1, of_results)
    return Replayed(summary, named.replace("\n\u2026 ", ""), stored, transcript, results, unresolved)


def list_of_names(cut: Cut, chars: int) -> str:
    """Return the identifiers of the archived messages by count and recency, as many as fit *chars*."""
    leaving = [said_in(view_of(message)) for message in cut.conversation[cut.first : cut.at[-1]]]
    values: Counter[str] = Counter()
    for age, text in enumerate(reversed(leaving)):
        for name in sorted(set(_IDENTIFIER.findall(text))):
            values[name] += 1 / (1 + age / 50)  # type: ignore[assignment]  # a Counter sums floats as well
    taken = ""
    for name, _ in values.most_common():
        if len(taken) + len(name) + 1 <= chars:
            taken += f"{name}\n"
    return taken


def last_chars(cut: Cut) -> str:
    """Return the end of the archived messages."""
    leaving = "\n".join(said_in(view_of(message)) for message in cut.conversation[cut.first : cut.at[-1]])
    return leaving[-cut.chars :]


def measure(cuts: Iterable[Cut], *, verbose: bool, show: Path | None) -> None:
    """Print a table of all measures."""
    scores: dict[str, Score] = {}
    shares: list[tuple[float, float]] = []
    sessions: dict[str, dict[str, list[bool]]] = {}
    lost = unresolved = tokens = 0
    for number, cut in enumerate(cuts):
        found = replayed(cut)
        text = found.summary.text
        ways = {
            "summary's text": text,
            "cited lines": found.cited,
            "text or cited lines": f"{text}\n{found.cited}",
            "recorded summary": cut.recorded,
            "last characters": last_chars(cut),
            "list of identifiers": list_of_names(cut, cut.chars),
        }
        for needle in cut.needles:
            for way, kept in ways.items():
                scores.setdefault(way, Score()).note(needle, is_kept=needle.text in kept)
                sessions.setdefault(way, {}).setdefault(cut.session, []).append(needle.text in kept)
            lost += not _is_stored(needle.text, found.stored)
        shares.append((found.cited_share, found.results_share))
        unresolved += found.unresolved
        tokens += found.summary.tokens > cut.max_tokens
        if verbose:
            kept = [needle.text in text for needle in cut.needles]
            near = [needle.text in ways["text or cited lines"] for needle in cut.needles]
            print(
                f"  {cut.session[:36]:36} at {cut.at[-1]:4} {found.summary.tokens:6,}/{cut.max_tokens:6,} tokens"
                f"  text {share(kept):4.0%}  or cited {share(near):4.0%}  lines cited {shares[-1][0]:4.0%}"
            )
        if show is not None:
            (show / f"{number:02}-{cut.session}-{cut.at[-1]}.md").write_text(text, "utf-8")
    _report(scores, shares)
    print("  means of the sessions")
    for way, by_session in sessions.items():
        print(f"    {way:24} {sum(map(share, by_session.values())) / len(by_session):6.1%}")
    print(f"  lost {lost}, unresolved pointers {unresolved}, summaries over their tokens {tokens}")


def _is_stored(needle: str, stored: str) -> bool:
    return needle in stored or json.dumps(needle, ensure_ascii=False)[1:-1] in stored


def _report(scores: dict[str, Score], shares: Sequence[tuple[float, float]]) -> None:
    for way, score in scores.items():
        print(f"  {way:22} {score}  of {len(score.all)} and {len(score.rare)}")
    names = ("transcript's lines cited", "results' lines cited")
    for name, values in zip(names, zip(*shares, strict=True), strict=True):
        print(f"  {name:26} mean {sum(values) / len(values):5.1%}, from {min(values):5.1%} to {max(values):5.1%}")


def main() -> None:
    """Read the arguments and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("needles", type=Path, help="directory of the needles, a JSON file for each session")
    parser.add_argument("sessions", type=Path, help="directory of the sessions")
    parser.add_argument("--verbose", action="store_true", help="print a line for each compaction")
    parser.add_argument("--show", type=Path, help="write the texts of the summaries to this existing directory")
    options = parser.parse_args()
    print("compactions on record")
    measure(recorded_cuts(options.needles, options.sessions), verbose=options.verbose, show=options.show)


if __name__ == "__main__":
    main()
