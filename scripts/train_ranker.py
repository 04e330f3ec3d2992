"""Learn which exact strings an agent writes again, and write the table that summaries use.

    python scripts/train_ranker.py SESSIONS [--needles DIR] [--without FAMILY] [--only-report]

Each session in SESSIONS, ``*.jsonl``, is compacted at several places as by ``buoyline replay``. Each exact string of
the archived messages is a row: its features, as the library computes them, and whether the agent writes it again within
the next `HORIZON` messages. A logistic regression learns the log odds of the features. Each cut has an intercept of its
own, so that the table ranks the strings of one summary, whatever share of them is needed again in other sessions.

The name of a session up to its first "_" is its family: one agent, one form of work. Before it writes the table, the
script learns one without each family and measures it there. The columns are the area under the curve within a cut (0.5
by chance), and the share written again of the first strings, as many as take `STRINGS_SHARE` of a summary. Beside the
table that has not seen the family they are given for the table in use, which has, and for a list by count and recency.

``--needles`` is the directory of ``benchmarks/retention.py``: a neutral line replaces each recorded summary, as there.
``--without`` writes a table that has not seen one family, to run benchmarks on sessions that were not learned from.
"""

import argparse
import asyncio
import json
import math
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from buoyline import ContextConfig, ContextWindow, LocalWorkspace
from buoyline.compression.citations import contains_whole
from buoyline.compression.extractive.calls import arguments_of, json_texts
from buoyline.compression.extractive.conversation import Conversation, QuotationLimits
from buoyline.compression.extractive.learned import LEARNED
from buoyline.compression.extractive.occurrences import Occurrences
from buoyline.compression.extractive.summarizer import Extractive
from buoyline.compression.plan import legal_cut_before
from buoyline.compression.summary import Draft, SummaryRequest
from buoyline.inspect.replay import Replay, replay
from buoyline.messages import Message
from buoyline.messages.registry import detect
from buoyline.tokens import as_text_counter, default_counter

TABLE = Path(__file__).parents[1] / "src/buoyline/compression/extractive/learned.py"
COUNTER = default_counter()

HORIZON = 100
"""Messages. Later an agent mostly works on something else."""

LEAST_MESSAGES = 8
LEAST_BEFORE, LEAST_AFTER = 6, 3
LONG_SESSION = 60
"""Messages: it is cut at sixths, and a shorter one at quarters."""

SUMMARY_SHARE, LEAST_TOKENS, MOST_TOKENS = 0.05, 400, 2_500
STRINGS_SHARE = 0.05
"""Of the tokens of a summary: the precision is that of the strings that fit."""

FEATURES: Mapping[str, str] = {
    "intercept": "all else zero",
    "count": "for each doubling of the messages that hold it",
    "age": "for each doubling of the messages since",
    "in assistant": "in a message of the agent",
    "in call": "in the arguments of a call",
    "in change": "in a call that changes files: what was written there is done",
    "in asked": "in the user's newest message",
    "in said": "in the agent's last words",
    "beside written": "share of the strings around it that the user or the agent wrote",
    "others": "for each doubling of the strings in the same text: a listing says little of each",
    "mere key": "only names a field of tools' answers",
    "path": "kind; an identifier, a number and a version are 0",
    "url": "kind",
    "hash": "kind",
}
"""What the table weighs, with the reason.

Tried without a gain on families that were not learned from: older messages of the user, open errors, the number of
calls, versions and numbers; whether it is a definition, in a diff, in the plan or in a changed file; its length and
spelling; for how long it is known; how long ago it was in a call, and in how many lines.
"""

STIFFNESS = 30.0
"""Pull of each weight to zero, in rows: a feature that few sessions have stays small."""
CUT_STIFFNESS = 1.0
FAMILY_POWER = 0.75
ROUNDS = 12


class Row(NamedTuple):
    """One string at one cut: the values of its features, whether it is written again, and its tokens."""

    family: str
    cut: str
    features: dict[str, float]
    is_needed: bool
    tokens: int
    budget: float


class Recorder:
    """Keeps the request for a summary."""

    def __init__(self) -> None:
        """Start without one."""
        self.requests: list[SummaryRequest] = []

    async def summarize(self, request: SummaryRequest) -> Draft:
        """Keep *request*, and summarize as usual."""
        self.requests.append(request)
        return await Extractive().summarize(request)


def rows_of(sessions: Path, neutral: Mapping[str, Sequence[int]]) -> Iterator[Row]:
    """Yield the strings of all sessions at all cuts; *neutral* are the lines of a session with a recorded summary."""
    for path in sorted(sessions.glob("*.jsonl")):
        conversation = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        for line in neutral.get(path.stem, ()):
            conversation[line] = {"role": "user", "content": "The conversation goes on."}
        views = [detect(message).view(message) for message in conversation]
        for at in sorted(set(cuts(views))):
            yield from rows_at(path.stem, conversation, views, at)


def cuts(views: Sequence[Message]) -> Iterator[int]:
    """Yield the places at which a session is compacted."""
    parts = 6 if len(views) >= LONG_SESSION else 4
    for part in range(1, parts) if len(views) >= LEAST_MESSAGES else ():
        at = legal_cut_before(views, len(views) * part // parts)
        if LEAST_BEFORE <= at <= len(views) - LEAST_AFTER:
            yield at


def rows_at(name: str, conversation: Sequence[Any], views: Sequence[Message], at: int) -> Iterator[Row]:
    """Yield the strings before message *at*, in the order of the library."""
    chars = sum(len(str(message)) for message in conversation[:at])
    max_tokens = max(LEAST_TOKENS, min(int(SUMMARY_SHARE * chars / 4), MOST_TOKENS))
    request = asyncio.run(requested(conversation[: at + 1], at, max_tokens))
    seen = Conversation(request.sources, QuotationLimits.within(max_tokens, as_text_counter(COUNTER)))
    after = "\n".join(written(view) for view in views[at : at + HORIZON] if view.role == "assistant")
    for found in seen.occurrences:
        age = seen.end - 1 - found.last_seen
        yield Row(
            family=name.partition("_")[0],
            cut=f"{name}@{at}",
            features=features_of(found, age),
            is_needed=contains_whole(after, found.text),
            tokens=COUNTER.count(f" {found.text}"),
            budget=STRINGS_SHARE * max_tokens,
        )


async def requested(conversation: Sequence[Any], at: int, max_tokens: int) -> SummaryRequest:
    """Return the request for a summary of the messages before *at*."""
    recorder, seen = Recorder(), Replay()
    with tempfile.TemporaryDirectory() as directory:
        async with LocalWorkspace(directory, durability="off") as workspace:
            config = ContextConfig(summary_tokens=max_tokens)
            window = ContextWindow(
                session_id="s1",
                offloader=workspace,
                size=1_000_000,
                config=config,
                summarizer=recorder,
                on_event=seen.record,
            )
            await replay(conversation, window, seen, counter=COUNTER, compress_at=[at])
    return recorder.requests[-1]


def written(view: Message) -> str:
    """Return what the agent wrote in a message, the arguments of its calls included."""
    arguments = ("\n".join(json_texts(arguments_of(call))) or call.arguments for call in view.calls)
    return "\n".join([view.text, *arguments])


def features_of(found: Occurrences, age: int) -> dict[str, float]:
    """Return the values of `FEATURES`, without zeros."""
    values = {"intercept": 1.0, "count": math.log2(found.count), "age": math.log2(1 + age)}
    for name, value in found.features.items():
        values[name] = values.get(name, 0.0) + value
    return {name: value for name, value in values.items() if value and name in FEATURES}


def learned(rows: Sequence[Row]) -> dict[str, float]:
    """Return the log odds of each feature: a ridge regression by Newton's method, with an intercept for each cut.

    A family with sixteen times the rows counts eight times, so that the largest one does not decide alone.
    """
    sizes = Counter(row.family for row in rows)
    scale = len(rows) / sum(size**FAMILY_POWER for size in sizes.values())
    names = {name: at for at, name in enumerate([*FEATURES, *dict.fromkeys(row.cut for row in rows)])}
    pulls = [0.0] + [STIFFNESS] * (len(FEATURES) - 1) + [CUT_STIFFNESS] * (len(names) - len(FEATURES))
    sparse = [
        (
            [*((names[name], value) for name, value in row.features.items()), (names[row.cut], 1.0)],
            row.is_needed,
            scale * sizes[row.family] ** (FAMILY_POWER - 1),
        )
        for row in rows
    ]
    odds = [0.0] * len(names)
    for _ in range(ROUNDS):
        slope = [pull * at for pull, at in zip(pulls, odds, strict=True)]
        curve = [[0.0] * len(names) for _ in names]
        for at, pull in enumerate(pulls):
            curve[at][at] = pull
        for values, is_needed, weight in sparse:
            need = logistic(sum(odds[at] * value for at, value in values))
            gap, spread = weight * (need - is_needed), weight * need * (1 - need)
            for at, value in values:
                slope[at] += gap * value
                line, by = curve[at], spread * value
                for other, more in values:
                    line[other] += by * more
        odds = [at - step for at, step in zip(odds, solved(curve, slope), strict=True)]
    return {name: odds[names[name]] for name in FEATURES}


def solved(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Return the solution of a positive definite system, by elimination in place."""
    size = len(right)
    for at in range(size):
        top = matrix[at]
        for below in range(at + 1, size):
            line = matrix[below]
            if line[at]:
                factor = line[at] / top[at]
                for column in range(at, size):
                    line[column] -= factor * top[column]
                right[below] -= factor * right[at]
    found = [0.0] * size
    for at in reversed(range(size)):
        rest = sum(matrix[at][column] * found[column] for column in range(at + 1, size))
        found[at] = (right[at] - rest) / matrix[at][at]
    return found


def logistic(odds: float) -> float:
    """Return the probability of log odds."""
    return 1 / (1 + math.exp(-odds))


def need_by(table: Mapping[str, float]) -> Callable[[Row], float]:
    """Return the probability that *table* gives to a row."""
    return lambda row: logistic(sum(table.get(name, 0.0) * value for name, value in row.features.items()))


def by_count_and_recency(row: Row) -> float:
    """Return the value of a string in a plain list: its messages, less with their age."""
    return 2 ** row.features.get("count", 0.0) / (1 + (2 ** row.features.get("age", 0.0) - 1) / 50)


class Figures(NamedTuple):
    """How well an order of the strings agrees with what was written again."""

    area: float
    precision: float

    def __str__(self) -> str:
        """Return both."""
        return f"{self.area:5.3f} {self.precision:6.3f}"


def figures(rows: Iterable[Row], value: Callable[[Row], float]) -> Figures:
    """Measure an order within each cut."""
    by_cut: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_cut[row.cut].append(row)
    areas, said = list[float](), list[bool]()
    for held in by_cut.values():
        ranked = sorted(held, key=value, reverse=True)
        room = held[0].budget
        for row in ranked:
            room -= row.tokens
            if room < 0:
                break
            said.append(row.is_needed)
        if 0 < sum(row.is_needed for row in held) < len(held):
            areas.append(area_under(held, value))
    return Figures(sum(areas) / max(len(areas), 1), sum(said) / max(len(said), 1))


def area_under(rows: Sequence[Row], value: Callable[[Row], float]) -> float:
    """Return how often a needed string precedes another one; equal values count half."""
    counts: defaultdict[float, list[int]] = defaultdict(lambda: [0, 0])
    for row in rows:
        counts[value(row)][row.is_needed] += 1
    below = wins = 0.0
    for _, (others, needed) in sorted(counts.items()):
        wins += needed * (below + others / 2)
        below += others
    return wins / (below * sum(needed for _, needed in counts.values()))


def report(rows: Sequence[Row]) -> None:
    """Print the figures of each family, by a table learned without it."""
    print(f"{'':12}{'rows':>8}{'cuts':>6}{'needed':>8}   {'not learned':14}{'in use':14}count and recency")
    for family in sorted({row.family for row in rows}):
        here = [row for row in rows if row.family == family]
        table = learned([row for row in rows if row.family != family])
        columns = [figures(here, value) for value in (need_by(table), need_by(LEARNED), by_count_and_recency)]
        share = sum(row.is_needed for row in here) / len(here)
        cut_count = len({row.cut for row in here})
        print(f"{family:12}{len(here):8,}{cut_count:6}{share:8.3f}   {'  '.join(map(str, columns))}")


def table_module(table: Mapping[str, float]) -> str:
    """Return the module that the library loads."""
    lines = [f'        "{name}": {round(odds, 2)},  # {FEATURES[name]}' for name, odds in table.items()]
    return "\n".join([HEAD, *lines, "    }", ")", ""])


HEAD = '''"""Log odds that an agent writes an exact string again, for each of its features.

Written by ``scripts/train_ranker.py``, which learns them from recorded sessions and measures them; do not edit.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

LEARNED: Final[Mapping[str, float]] = MappingProxyType(
    {'''


def main() -> None:
    """Read the arguments, print the figures, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sessions", type=Path, help="directory of the sessions")
    parser.add_argument("--needles", type=Path, help="directory of the recorded compactions")
    parser.add_argument("--without", default="", help="write a table that is not learned from this family")
    parser.add_argument("--only-report", action="store_true", help="write no table")
    options = parser.parse_args()
    neutral = {
        path.stem: [found["compaction_line"] for found in json.loads(path.read_text("utf-8"))["compactions"]]
        for path in (options.needles.glob("*.json") if options.needles else ())
    }
    rows = list(rows_of(options.sessions, neutral))
    report(rows)
    if not options.only_report:
        table = learned([row for row in rows if row.family != options.without])
        TABLE.write_text(table_module(table), "utf-8")


if __name__ == "__main__":
    main()
