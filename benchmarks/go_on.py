"""Asks a summary for the recorded agent's next calls: which file, which command, which value. No model is involved.

    python benchmarks/go_on.py NEEDLES_DIR SESSIONS_DIR [--calls 5] [--missing] [--budget 1.0]

Each session is compacted as in ``retention.py``: at its recorded compactions, and sessions without one at three fifths
of their messages. The agent's next five calls behind that are the questions. A call is asked for the names in its
arguments: the last part of a path, the program and the subcommand of a command line, a word that has the form of an
identifier, and a short value as a whole; not for options, small numbers and texts of several lines. Only names that
were said before the compaction are asked, since nothing else can be known. The score of a call is the share of its
names that are in the text, each as a whole word.

The same rule is applied to the recorded summary, if there is one, and to a list of the identifiers by count and
recency; all have the same size. Scores are the means of a family's calls.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterable, Iterator
from itertools import chain, islice, product
from pathlib import Path
from typing import NamedTuple

from retention import Cut, derived_cuts, list_of_names, recorded_cuts, replayed, said_in, view_of

MIN_NAME_CHARS = 3
MAX_VALUE_CHARS = 60

_WORD = re.compile(r"[^\s\"'`=(){}\[\]<>|;,&$]+")
_IDENTIFIER_FORM = re.compile(r"\w[._:@#-]\w|\d|[a-z][A-Z]")
_SMALL_NUMBER = re.compile(r"-?\d{1,3}")
_PROGRAM = re.compile(r"(?:[A-Za-z_]\w*=\S*\s+)*(?:cd\s+\S+\s*&&\s*)?([a-z][\w.+-]+)(?:\s+([a-z][\w:-]+))?(?=\s|$)")


class Call(NamedTuple):
    """A call of the agent behind a compaction, and the names that it is asked for."""

    session: str
    tool: str
    names: list[str]

    @property
    def family(self) -> str:
        """The kind of agent, by which the name of its session begins."""
        return self.session.partition("_")[0]

    def missing_in(self, text: str) -> list[str]:
        """Return the names that are not in *text*."""
        return [name for name in self.names if not _is_in(name, text)]

    def score(self, text: str) -> float:
        """Return the share of the names that are in *text*."""
        return 1 - len(self.missing_in(text)) / len(self.names)


def _is_in(name: str, text: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text) is not None


def names_of(arguments: object) -> Iterator[str]:
    """Yield the names in the arguments of a call."""
    if isinstance(arguments, dict):
        arguments = list(arguments.values())
    if isinstance(arguments, list):
        for value in arguments:
            yield from names_of(value)
        return
    value = str(arguments).strip()
    if isinstance(arguments, bool | None) or "\n" in value or _SMALL_NUMBER.fullmatch(value):
        return
    words = _WORD.findall(value)
    if len(words) <= 1 or (len(value) <= MAX_VALUE_CHARS and not _PROGRAM.match(value)):
        yield value.rstrip("/").rpartition("/")[2]
        return
    if program := _PROGRAM.match(value):
        yield " ".join(word for word in program.groups() if word)
    for word in words:
        if word.startswith("-") or _SMALL_NUMBER.fullmatch(word):
            continue
        last = word.strip(".,:").rstrip("/").rpartition("/")[2]
        if "/" in word or _IDENTIFIER_FORM.search(last):
            yield last


def next_calls(cut: Cut, most: int) -> Iterator[Call]:
    """Yield the agent's first calls behind the compaction that have a name to ask for, at most *most*."""
    before = "\n".join(said_in(view_of(message)) for message in cut.conversation[: cut.at[-1]])
    behind = chain.from_iterable(view_of(message).calls for message in cut.conversation[cut.at[-1] :])
    for call in islice(behind, most):
        try:
            arguments = json.loads(call.arguments)
        except ValueError:
            arguments = call.arguments
        named = dict.fromkeys(name for name in names_of(arguments) if len(name) >= MIN_NAME_CHARS)
        known = [name for name in named if _is_in(name, before)]
        if known:
            yield Call(cut.session, call.name, known)


def measure(cuts: Iterable[Cut], most: int, budget: float, *, missing: bool) -> None:
    """Print the scores of all ways by family."""
    families: dict[str, dict[str, list[float]]] = {}
    for cut in cuts:
        calls = list(next_calls(cut, most))
        if not calls:
            continue
        text = replayed(cut._replace(max_tokens=int(cut.max_tokens * budget))).summary.text
        ways = {"ours": text, "identifiers": list_of_names(cut, cut.chars)}
        if cut.recorded:
            ways |= {"recorded": cut.recorded, "ours beside it": text}
        for call, (way, said) in product(calls, ways.items()):
            for family in (call.family, "all"):
                families.setdefault(family, {}).setdefault(way, []).append(call.score(said))
        for call in calls if missing else ():
            print(f"  - {call.session[:30]} {call.tool}: {call.missing_in(text)}")
    for family, scores in sorted(families.items(), key=lambda each: each[0] == "all"):
        print(f"  {family:12} {_means(scores)}")


def _means(scores: dict[str, list[float]]) -> str:
    return "  ".join(f"{way} {sum(found) / len(found):.2f} of {len(found):3} calls" for way, found in scores.items())


def main() -> None:
    """Read the arguments and print the scores."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("needles", type=Path, help="recorded compactions, a file for each session")
    parser.add_argument("sessions", type=Path, help="recorded sessions, a JSONL file each")
    parser.add_argument("--calls", type=int, default=5, help="calls behind each compaction")
    parser.add_argument("--budget", type=float, default=1.0, help="tokens of a summary, as a multiple of the cut's")
    parser.add_argument("--missing", action="store_true", help="print the names that our summary does not have")
    options = parser.parse_args()
    if not options.needles.is_dir():
        sys.exit(f"skipped: {options.needles} is not there")
    cuts = chain(recorded_cuts(options.needles, options.sessions), derived_cuts(options.needles, options.sessions))
    measure(cuts, options.calls, options.budget, missing=options.missing)


if __name__ == "__main__":
    main()
