"""Runs and scores lookups that an agent of any kind has written for questions; see ``memory.py --lookups``.

Each line of the file is a JSON object: ``question``, the number of the question in its set, from 0, and ``lookups``,
at most two calls in order, each with ``tool`` (read, grep, search, glob or query) and the ``arguments`` of its schema:

    {"question": 0, "lookups": [{"tool": "query", "arguments": {"path": "notes.json", "expression": "length(@)"}}]}

The author may see the questions, the summary, and the answer of the first lookup before the second, but no ground
truth. A refused call counts, too. An agent stops when it has its answer, so only the answer of the last lookup is
scored: a number that it saw before would be chance.
"""

import json
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from buoyline.errors import BuoylineError
from buoyline.lookups import Answer, glob, grep, query, read, search
from buoyline.tokens import default_counter
from buoyline.workspace import LocalWorkspace

TOOLS: Mapping[str, Callable[..., Answer]] = {
    "read": read,
    "grep": grep,
    "search": search,
    "glob": glob,
    "query": query,
}
MOST = 2
SHOWN_CHARS = 160


class Answerable(Protocol):
    """A question whose answer can be recognized in a text."""

    @property
    def text(self) -> str:
        """The question."""
        ...

    def is_answered_by(self, text: str) -> bool:
        """Return whether *text* has the answer."""
        ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of the lookups for a question.

    Attributes:
        number: The number of the question.
        lookups: The number of calls.
        is_answered: Whether the answer of the last call has the answer to the question.
        problem: Why the last call was refused; empty if it was not.
        tokens: Tokens of the last answer.
        lines: The lines of the last answer, without the column names with which the result of SQL begins.
    """

    number: int
    lookups: int
    is_answered: bool
    problem: str
    tokens: int
    lines: Sequence[str]


def run(
    path: Path, workspace: LocalWorkspace, session: str, questions: Sequence[Answerable], max_tokens: int
) -> Iterator[Outcome]:
    """Run the lookups in *path* for *questions*, each with an answer of at most *max_tokens*.

    Raises:
        ValueError: A question has no lookup, or more than two.
        OSError: The file cannot be read.
    """
    for row in map(json.loads, path.read_text("utf-8").splitlines()):
        number, calls = int(row["question"]), row["lookups"]
        if not 1 <= len(calls) <= MOST:
            raise ValueError(f"question {number} has {len(calls)} lookups; give 1 or 2")
        results = [called(workspace, session, call, max_tokens) for call in calls]
        answer, problem = results[-1]
        is_table = calls[-1]["tool"] == "query" and answer.lines[:1] and answer.lines[0].number == 1
        lines = [line.content for line in answer.lines[1 if is_table else 0 :]]
        is_answered = any(map(questions[number].is_answered_by, lines))
        yield Outcome(number, len(calls), is_answered, problem, default_counter().count(answer.text), lines)


def called(workspace: LocalWorkspace, session: str, call: Mapping[str, Any], max_tokens: int) -> tuple[Answer, str]:
    """Run a call; return its answer, or an empty answer and the error."""
    lookup = TOOLS[call["tool"]]
    try:
        answer = lookup(workspace, **call["arguments"], session=session, confined=True, max_tokens=max_tokens)
    except BuoylineError as error:
        return Answer(""), str(error)
    return answer, ""


def report(outcomes: Sequence[Outcome], questions: Sequence[Answerable], *, verbose: bool) -> None:
    """Print how many questions are answered, by the number of lookups, and the tokens of the answers."""
    made, answered = (
        Counter(outcome.lookups for outcome in outcomes),
        Counter(outcome.lookups for outcome in outcomes if outcome.is_answered),
    )
    for lookups, count in sorted(made.items()):
        print(f"  answered by {lookups} of the lookups given: {answered[lookups]} of {count}")
    if outcomes:
        tokens = [outcome.tokens for outcome in outcomes]
        shown = f"{statistics.median(tokens):,.0f} tokens in the median, {max(tokens):,} at most"
        refused = sum(bool(outcome.problem) for outcome in outcomes)
        print(f"  {answered.total()} of {len(questions)} questions; last answers of {shown}; {refused} refused")
    for outcome in outcomes if verbose else ():
        said = outcome.problem or " ".join(outcome.lines)
        print(f"   {outcome.number} {outcome.is_answered} {said[:SHOWN_CHARS]} < {questions[outcome.number].text[:80]}")
