"""Measures how often two bounded lookups find archived content that answers a question. No model is involved.

    python benchmarks/memory.py --longmemeval HAYSTACK.jsonl --contextbench DIRECTORY [--size 8000 --size 32000]
                                [--max-tokens 2000]

A recorded history is replayed into a workspace through windows of these sizes, and compacted once more at the end. For
each question a simple agent then sees the summary and makes at most two lookups. It knows only the question and the
lines that it has seen. Its rules (`search_once`, `search_then_follow`) are below; they are the same for both sets, and
never use an answer or a label.

LongMemEval (``HAYSTACK.jsonl`` next to ``HAYSTACK.questions.json``) is replayed as it is:

- ``evidence``: the agent saw a line of a message in the labelled ranges.
- ``answer``: the agent saw the newest of the lines that are labelled to have the answer. If no line is labelled so, it
  saw 80 % of those words of the answer that are in the labelled messages and not in the question (no message has an
  answer word for word).

context-bench has one tool result for each file, as if an agent had read it. Its questions ask for sums and extremes
over many people, so the evidence is a chain:

- ``named``: the agent saw the record of everything that the question names.
- ``next``: it also saw the next record of each owner, in the file to which the question leads (the address for "same
  state").
- ``answer``: a line that it saw has the ground truth.
"""

import argparse
import asyncio
import itertools
import json
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from buoyline.errors import NotFoundError
from buoyline.inspect.replay import Replay, replay
from buoyline.lookups import Answer, read, search
from buoyline.tokens import default_counter
from buoyline.window import ContextWindow
from buoyline.workspace import LocalWorkspace

SESSION = "memory"
ENOUGH = 0.8
AROUND_LINES = 20
LEAST_ANSWER_CHARS = 4

IDENTIFIER = re.compile(r"\b(?=[\w-]*\d)(?=[\w-]*[A-Za-z])\w+(?:[-_]\w+)+\b")
NAMED = re.compile(r"'([^']+)'|named ([A-Z]\w+)")
LINKS = {
    "same state": ("addresses.txt", "state"),
    "credit card provider": ("credit_cards.txt", "provider"),
    "expiry date": ("credit_cards.txt", "expire"),
    "medical condition": ("medical_records.txt", "condition"),
    "blood type": ("medical_records.txt", "blood_type"),
    "same url": ("internet_accounts.txt", "url"),
}


class Place(NamedTuple):
    """A line of the recording: of a message by its index, or of a file by its name."""

    source: int | str
    line: int


Seen = dict[Place, str]
"""The recorded lines that an agent has seen; for a long line, its parts one after the other."""


class Question(Protocol):
    """A question, and the check whether an agent saw enough."""

    @property
    def text(self) -> str:
        """The question."""
        ...

    def marks(self, seen: Seen) -> dict[str, bool]:
        """Return for each level of evidence whether it is in *seen*."""
        ...


@dataclass(frozen=True)
class History:
    """A history to replay.

    Attributes:
        messages: The recording.
        files: By tool call id, the file in a tool result.
    """

    messages: list[dict[str, Any]]
    files: Mapping[str, str] = field(default_factory=dict[str, str])


# --- LongMemEval


@dataclass(frozen=True)
class Remembered:
    """A question about an old message."""

    text: str
    answer: str
    evidence: frozenset[int]
    answered_at: int | None
    history: History

    @cached_property
    def wanted(self) -> frozenset[str]:
        """The words of the answer that are not in the question."""
        long = {word for word in words(self.answer) if len(word) >= LEAST_ANSWER_CHARS or word.isdigit()}
        return frozenset(long - set(words(self.text)))

    def marks(self, seen: Seen) -> dict[str, bool]:
        """Return whether a line of the evidence was seen, with enough of the answer's words."""
        seen_of = {place.source for place, text in seen.items() if text.strip()}
        is_seen = self.holds(seen) if self.answered_at is None else self.answered_at in seen_of
        return {"evidence": bool(seen_of & self.evidence), "answer": is_seen}

    def holds(self, seen: Seen) -> bool:
        """Return whether enough of the wanted words in the evidence were seen there."""
        contents = (str(self.history.messages[index]["content"]) for index in self.evidence)
        there = self.wanted & set(words(" ".join(contents)))
        lines = [text for place, text in seen.items() if place.source in self.evidence and text.strip()]
        return bool(lines) and len(there & set(words("\n".join(lines)))) >= ENOUGH * len(there)


def longmemeval(path: Path) -> tuple[History, list[Question]]:
    """Read a haystack and its questions."""
    messages = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    history = History(messages)
    questions: list[Question] = [
        Remembered(
            text=found["question"],
            answer=found["answer"],
            evidence=frozenset(line for first, end in found["evidence_line_ranges"] for line in range(first, end)),
            answered_at=max(found["has_answer_lines"]) if found["has_answer_lines"] else None,
            history=history,
        )
        for found in json.loads(path.with_suffix(".questions.json").read_text("utf-8"))
    ]
    return history, questions


# --- context-bench


class Record(NamedTuple):
    """A paragraph of a file, about one person."""

    file: str
    first: int
    lines: list[str]

    @property
    def owner(self) -> str:
        """The person's id."""
        return found[0] if (found := re.findall(r"pers-\d+", self.lines[0])) else ""

    def value(self, key: str) -> str:
        """Return the value of *key*."""
        return next((line.partition(": ")[2] for line in self.lines if line.startswith(f"{key}: ")), "")

    def is_in(self, seen: Seen) -> bool:
        """Return whether all its lines were seen."""
        return all(line in seen.get(Place(self.file, self.first + at), "") for at, line in enumerate(self.lines))


@dataclass(frozen=True)
class Chained:
    """A question whose answer follows from records of several files."""

    text: str
    answer: str
    files: Sequence[str]
    records: Sequence[Record]

    @property
    def value(self) -> str:
        """The answer in the form of the records."""
        return self.answer.removesuffix(" records").lstrip("$").replace(",", "")

    @cached_property
    def named(self) -> list[Record]:
        """The records that have what the question names."""
        names = {"".join(groups) for groups in NAMED.findall(self.text)}
        return [
            record
            for record in self.records
            if record.file in self.files and any(line.partition(": ")[2] in names for line in record.lines[1:])
        ]

    @cached_property
    def link(self) -> tuple[str, str]:
        """The file and key to which the question leads."""
        return next((link for words_, link in LINKS.items() if words_ in self.text.lower()), ("", ""))

    def marks(self, seen: Seen) -> dict[str, bool]:
        """Return how much of the chain was seen."""
        owners = {record.owner for record in self.named}
        linked = [record for record in self.records if record.file == self.link[0] and record.owner in owners]
        is_named = bool(self.named) and all(record.is_in(seen) for record in self.named)
        is_next = is_named and owners <= {record.owner for record in linked if record.is_in(seen)}
        has_answer = any(self.is_answered_by(text) for text in seen.values())
        return {"named": is_named, "next": is_next, "answer": has_answer and not self.value.isdigit()}

    def is_answered_by(self, text: str) -> bool:
        """Return whether *text* has the answer."""
        return re.search(rf"(?<![\w.]){re.escape(self.value)}(?![\w.])", text) is not None


def contextbench(directory: Path) -> tuple[History, list[Question]]:
    """Read the files as tool results of a session, and the questions."""
    paths = sorted((directory / "files").glob("*.txt"))
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Read the files, then answer my questions."}]
    for number, path in enumerate(paths):
        call = {"name": "read_file", "arguments": json.dumps({"path": path.name})}
        calls = [{"id": f"call-{number}", "type": "function", "function": call}]
        messages.append({"role": "assistant", "content": None, "tool_calls": calls})
        messages.append({"role": "tool", "tool_call_id": f"call-{number}", "content": path.read_text("utf-8")})
    messages.append({"role": "assistant", "content": "I have read them. What would you like to know?"})
    records = [record for path in paths for record in records_of(path)]
    files = {f"call-{number}": path.name for number, path in enumerate(paths)}
    rows = [json.loads(line) for line in (directory / "questions.jsonl").read_text("utf-8").splitlines()]
    questions: list[Question] = [
        Chained(
            row["input"],
            str(row["ground_truth"]),
            extra["required_files"],
            records,
        )
        for row in rows
        for extra in [row["agent_args"]["extra"]]
    ]
    return History(messages, files), questions


def records_of(path: Path) -> Iterator[Record]:
    """Yield the paragraphs of a file."""
    lines = path.read_text("utf-8").split("\n")
    starts = [number for number, line in enumerate(lines, 1) if line.startswith("### ")]
    for start, end in zip(starts, [*starts[1:], len(lines) + 1], strict=True):
        yield Record(path.name, start, [line for line in lines[start - 1 : end - 1] if line])


# --- The agent


class Agent:
    """Looks up archived content, and keeps the lines that it has seen."""

    def __init__(self, workspace: LocalWorkspace, history: History, max_tokens: int) -> None:
        """Begin with nothing seen."""
        self.workspace, self.max_tokens = workspace, max_tokens
        self.seen: Seen = {}
        places = workspace.stored(SESSION).state.places.items()
        self._messages = {line: number for number, (first, end) in places for line in range(first + 1, end)}
        self._files = {f"tool_result-{call_id}.txt": name for call_id, name in history.files.items()}

    def look(self, lookup: Callable[..., Answer], *arguments: Any, **options: Any) -> Answer:
        """Run a lookup; the lines of its answer count as seen."""
        try:
            answer = lookup(self.workspace, *arguments, session=SESSION, max_tokens=self.max_tokens, **options)
        except NotFoundError:
            answer = Answer("")
        for line in answer.lines:
            name = line.path.rpartition("/")[2]
            source = self._files.get(name) if name in self._files else self._messages.get(line.number)
            if source is not None:
                place = Place(source, line.number)
                self.seen[place] = self.seen.get(place, "") + "\n" + line.text
        return answer


def identifiers_near(answer: Answer, names: Iterable[str], question: str) -> list[str]:
    """Return the new identifiers on the line where each name was first found, and in the paragraph above it."""
    found: list[str] = []
    for name in names:
        pattern = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)")
        at = next((place for place, line in enumerate(answer.lines) if pattern.search(line.text)), None)
        above = [] if at is None else [line.text for line in answer.lines[max(at - AROUND_LINES, 0) : at + 1]]
        paragraph = itertools.takewhile(str.strip, reversed(above))
        found += [word for text in paragraph for word in IDENTIFIER.findall(text) if word not in question]
    return list(dict.fromkeys(found))


def search_then_follow(agent: Agent, question: str) -> None:
    """Search the question, then the identifiers near the names that it quotes; else read from the best passage on."""
    first = agent.look(search, question)
    quoted = ["".join(groups) for groups in NAMED.findall(question)]
    found = identifiers_near(first, quoted, question)
    if found:
        agent.look(search, f"{' '.join(found)} {question}")
    elif first.lines:
        best = first.lines[0]
        agent.look(read, best.path.rpartition("/")[2], best.number)


def search_once(agent: Agent, question: str) -> None:
    """Search the question."""
    agent.look(search, question)


def summary_alone(agent: Agent, question: str) -> None:
    """Run no lookup."""


AGENTS = {"summary alone": summary_alone, "search once": search_once, "search, then follow": search_then_follow}


def words(text: str) -> list[str]:
    """Return the words of *text* in lower case."""
    return re.findall(r"[^\W_]+", text.lower())


# --- Figures


async def replayed(history: History, workspace: LocalWorkspace, size: int) -> str:
    """Feed *history* through a window of *size* tokens, compact the rest, and return the summary."""
    seen = Replay()
    window = await ContextWindow.open(workspace, SESSION, size=size, on_event=seen.record)
    await replay(history.messages, window, seen, counter=default_counter())
    await window.compress(before=len(history.messages))
    if not seen.compressions:
        raise SystemExit("nothing was compacted")
    return seen.compressions[-1].summary.text


def report(marks: Mapping[str, Sequence[dict[str, bool]]]) -> None:
    """Print the share of questions by level, for each agent."""
    levels = list(next(iter(marks.values()))[0])
    print(f"  {'':28}" + "".join(f"{level:>10}" for level in levels))
    for name, found in marks.items():
        shares = (sum(mark[level] for mark in found) / len(found) for level in levels)
        print(f"  {name:28}" + "".join(f"{share:>10.0%}" for share in shares))


async def compare(history: History, questions: Sequence[Question], size: int, options: argparse.Namespace) -> None:
    """Replay *history* and print the results of each agent."""
    with tempfile.TemporaryDirectory() as directory:
        async with LocalWorkspace(directory, durability="off") as workspace:
            summary = await replayed(history, workspace, size)
            print(f" window {size:,}: summary of {default_counter().count(summary):,} tokens")
            marks: dict[str, list[dict[str, bool]]] = {}
            for name, strategy in AGENTS.items():
                for question in questions:
                    agent = Agent(workspace, history, options.max_tokens)
                    if isinstance(question, Remembered):
                        agent.seen.update(known_from(summary, question))
                    strategy(agent, question.text)
                    marks.setdefault(name, []).append(question.marks(agent.seen))
            report(marks)


def known_from(summary: str, question: Remembered) -> Seen:
    """Return the lines of the evidence that are in the summary word for word."""
    return {
        Place(index, -at): line
        for index in question.evidence
        for at, line in enumerate(str(question.history.messages[index]["content"]).split("\n"), 1)
        if line.strip() and line.strip() in summary
    }


def main() -> None:
    """Read the arguments and print a table for each set and window."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--longmemeval", type=Path, help="a haystack, HAYSTACK.jsonl")
    parser.add_argument("--contextbench", type=Path, help="a directory with questions.jsonl and files/")
    parser.add_argument("--size", type=int, action="append", help="tokens of the window; may be repeated")
    parser.add_argument("--max-tokens", type=int, default=2_000, help="tokens of each lookup")
    options = parser.parse_args()
    sets = {
        "LongMemEval": partial(longmemeval, options.longmemeval),
        "context-bench": partial(contextbench, options.contextbench),
    }
    for (name, load), path in zip(sets.items(), (options.longmemeval, options.contextbench), strict=True):
        if path is None:
            continue
        history, questions = load()
        print(f"{name}: {len(history.messages)} messages, {len(questions)} questions")
        for size in options.size or [8_000, 32_000]:
            asyncio.run(compare(history, questions, size, options))


if __name__ == "__main__":
    main()
