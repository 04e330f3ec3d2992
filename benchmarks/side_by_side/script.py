"""A long session with verbose tools and planted details, the same in every run.

Each turn is a call of one tool. The sizes of its outputs are distributed as in recorded sessions, but three times as
large. Every output, every request of the user and every tenth text of the agent has one detail: a name and a value that
occur nowhere else. They show afterwards which content can still be found.
"""

import json
import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

TURNS_OF_A_REQUEST: Final = 25
SUMMARY_DETAILS: Final = 40
"""The number of details, the newest, in the replacement for a model's summary: some 1,000 tokens."""

DETAIL: Final = re.compile(r"(D\d{4}-(?:user|tool|said)) = ([0-9a-f]{12})")

_MEDIAN_LOG, _SPREAD, _MOST_CHARS = 7.3, 1.7, 120_000
_VOCABULARY: Final = (
    "build cache check client config connect deploy error event fetch file handler index job key load lock message "
    "module node open parse path queue read release request result retry run server session start state status store "
    "stream table task test time token update user value version wait worker write"
)
_WORDS: Final = _VOCABULARY.split()


@dataclass(frozen=True)
class Detail:
    """A fact that occurs once in the session.

    Attributes:
        name: The name to look for.
        value: The value to find.
        turn: The turn before whose call the user or the agent says it, or whose tool output has it.
    """

    name: str
    value: str
    turn: int

    @property
    def text(self) -> str:
        """The detail as it is written in the session."""
        return f"{self.name} = {self.value}"


@dataclass(frozen=True)
class Script:
    """A session of *turns* tool calls."""

    turns: int
    seed: int = 4
    _outputs: dict[int, str] = field(default_factory=dict)

    @property
    def requests(self) -> range:
        """The turns before which the user sends a request."""
        return range(0, self.turns, TURNS_OF_A_REQUEST)

    @cached_property
    def details(self) -> list[Detail]:
        """All planted details, in order."""
        found: list[Detail] = []
        for turn in range(self.turns):
            kinds = ["user"] * (turn in self.requests) + ["said"] * (turn % 10 == 0) + ["tool"]
            found += [self._detail(kind, turn) for kind in kinds]
        return found

    def request(self, turn: int) -> str:
        """Return the user's request before *turn*."""
        goal = f"Look after module {turn // TURNS_OF_A_REQUEST}: run its checks one by one, and mind what comes up."
        return f"{goal} Remember that {self._detail('user', turn).text}."

    def said(self, turn: int) -> str:
        """Return the agent's text with the call of *turn*."""
        noted = f" I note that {self._detail('said', turn).text}." if turn % 10 == 0 else ""
        return f"Now check {turn}.{noted}"

    def command(self, turn: int) -> str:
        """Return the command of *turn*; see `output`."""
        return f"make check-{turn:04}"

    def output(self, command: str) -> str:
        """Return the tool's output for *command*."""
        turn = int(command.rsplit("-", 1)[1])
        if turn not in self._outputs:
            self._outputs[turn] = self._output(turn)
        return self._outputs[turn]

    def _output(self, turn: int) -> str:
        chance = random.Random(f"{self.seed} {turn}")  # noqa: S311 - has to be the same each time
        wanted = min(int(chance.lognormvariate(_MEDIAN_LOG, _SPREAD)), _MOST_CHARS)
        lines: list[str] = []
        while sum(map(len, lines)) < wanted:
            said = " ".join(chance.choices(_WORDS, k=chance.randint(4, 14)))
            lines.append(f"{len(lines):05} {chance.choice(('INFO', 'INFO', 'DEBUG', 'WARNING'))} {said}\n")
        lines.insert(chance.randint(0, len(lines)), f"INFO {self._detail('tool', turn).text}\n")
        return "".join(lines)

    def _detail(self, kind: str, turn: int) -> Detail:
        chance = random.Random(f"{self.seed} {kind} {turn}")  # noqa: S311 - has to be the same each time
        return Detail(f"D{turn:04}-{kind}", chance.randbytes(6).hex(), turn)


def asks_for_summary(texts: Sequence[str]) -> bool:
    """Return whether a request, the newest of *texts* last, is ours for a summary that begins like the agent's own."""
    return "Answer with one JSON object and nothing else" in texts[-1]


def summary_fields(texts: Iterable[str]) -> str:
    """Return `summary_of` *texts* as the JSON of the five fields."""
    fields = dict.fromkeys(("task_overview", "current_state", "important_discoveries", "next_steps"), "See below.")
    return json.dumps({**fields, "context_to_preserve": summary_of(texts)})


def summary_of(texts: Iterable[str]) -> str:
    """Return a replacement for a model's summary of *texts*: the newest details, as many as a summary holds."""
    found = dict(match for text in texts for match in DETAIL.findall(text))
    kept = list(found.items())[-SUMMARY_DETAILS:]
    return "The checks go on. " + " ".join(f"{name} = {value}." for name, value in kept)
