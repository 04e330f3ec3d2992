"""Scores summaries by the questions that an agent must answer after a compaction. No model is involved.

    python benchmarks/questions.py DIRECTORY [--questions FILE] [--cuts FILE] [--sessions DIR] [--budget 1.0]
                                   [--lookups 2] [--last] [--trigger auto] [--missing] [--show DIR]

DIRECTORY holds ``cuts.json``, ``questions_*.json`` and ``score.py``; recorded sessions are in ``../sessions`` beside
it. Each session is fed through a window up to the message of its cut, and compacted there; a recorded summary is
masked. A question has key points, and ``score.py`` says which of them a text holds. The score of a question is the
share of its key points.

``--lookups 2`` also makes two lookups in the session for each question, by a fixed rule, 2,000 tokens each: `search`
with the words of the question that are no stop words, then `grep`, with some lines around each hit, for those two of
them that `search` names as the rarest, without their endings. The answers are joined to the summary's text.
``--lookups 1`` makes only the first, and ``--last`` shows the newest hits of `grep` first. With ``--trigger auto`` the
window also compacts before the cut, as often as its prices say.
"""

import argparse
import asyncio
import json
import re
import sys
import tempfile
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, NamedTuple

from buoyline import ContextConfig, ContextWindow, LocalWorkspace
from buoyline.inspect.replay import Replay, replay
from buoyline.lookups import grep, search
from buoyline.tokens import default_counter
from buoyline.window import ContextCompressed

SESSION = "s1"
CONTEXT_TOKENS = 4_000_000
"""Large enough that nothing is compacted except on request."""

LOOKUP_TOKENS = 2_000
GREPPED_WORDS = 2
CONTEXT_LINES = 3
MASK = "(continued)"
SHOWN_CHARS = 100

RAREST = re.compile(r"^\[Rarest words, and in how many passages: (.*)\.\]$", re.MULTILINE)
ENDING = re.compile(r"(?<=\w{4})(?:ations?|ings?|ies|ed|es|s)$")
NAMED = re.compile(r"([^,;]+?) \([0-9,]+\)(?:, |;|$)")
_WORD = re.compile(r"[^\W_]+(?:[-_./']+[^\W_]+)*")
STOP_WORDS = """
    a about after again all also an and any are as at be became because been before being both but by can could
    did do does done each for from further got had has have having he her here his how i if in into is it its
    itself just may me might more most must my no nor not now of off on once only or other our out over own same
    shall she should so some still such than that the their them then there these they this those through to too
    under until up upon us very was we were what when where which while who whom whose why will with would yet
    you your
    """


class Cut(NamedTuple):
    """A recorded session and the places where it is compacted; only the summary of the last one is asked."""

    session: str
    at: int
    compress_at: list[int]
    summary_tokens: int
    masked: list[int]


class Asked(NamedTuple):
    """A question, and which of its key points a text holds."""

    question: Mapping[str, Any]
    found: list[bool]

    @property
    def share(self) -> float:
        """The share of its key points."""
        return sum(self.found) / len(self.found)

    @property
    def family(self) -> str:
        """The kind of agent, by which the name of its session begins."""
        family: str = self.question["session"].partition("_")[0]
        return family


class Scorer:
    """The functions of ``score.py``."""

    def __init__(self, path: Path) -> None:
        """Load *path*."""
        spec = spec_from_file_location("score", path)
        if spec is None or spec.loader is None:
            raise ImportError(path)
        self._functions = module_from_spec(spec)
        spec.loader.exec_module(self._functions)

    def asked(self, question: Mapping[str, Any], text: str) -> Asked:
        """Return which key points of *question* are in *text*."""
        texts = self._functions.split_bag(text)
        found = self._functions.found
        return Asked(question, [bool(found(texts, point, keep_bag=False)) for point in question["key_points"]])


def content_words(question: str) -> list[str]:
    """Return the words of *question* that are no stop words, each once, in its order."""
    stop, words = frozenset(STOP_WORDS.split()), dict.fromkeys(_WORD.findall(question))
    return [word for word in words if word.lower() not in stop]


def looked_up(workspace: LocalWorkspace, question: str, lookups: int, *, last: bool) -> Iterator[str]:
    """Yield the answers of the first *lookups* lookups for *question*."""
    if not lookups:
        return
    found = search(workspace, " ".join(content_words(question)), session=SESSION, max_tokens=LOOKUP_TOKENS).text
    yield found
    if lookups > 1 and (row := RAREST.search(found)) is not None:
        pattern = "|".join(re.escape(ENDING.sub("", word)) for word in NAMED.findall(row[1])[:GREPPED_WORDS])
        options = {"ignore_case": True, "last": last, "context": CONTEXT_LINES}
        yield grep(workspace, pattern, session=SESSION, max_tokens=LOOKUP_TOKENS, **options).text


def conversation_of(cut: Cut, sessions: Path) -> list[dict[str, Any]]:
    """Return the messages up to the cut; a neutral text replaces a recorded summary, which has the answers."""
    lines = (sessions / f"{cut.session}.jsonl").read_text("utf-8").splitlines()[: cut.at + 1]
    messages = [json.loads(line) for line in lines]
    for line in cut.masked:
        messages[line] = {"role": messages[line]["role"], "content": MASK}
    return messages


@contextmanager
def compacted(cut: Cut, sessions: Path, budget: float, trigger: Any = 0.8) -> Generator[tuple[LocalWorkspace, str]]:
    """Feed the session of *cut* to a window; yield its workspace and the text of the last summary."""
    seen, texts = Replay(), [""]

    def note(event: Any) -> None:
        seen.record(event)
        if isinstance(event, ContextCompressed):
            texts.append(event.summary.text)

    async def feed(workspace: LocalWorkspace) -> None:
        async with workspace:
            config = ContextConfig(summary_tokens=int(cut.summary_tokens * budget), trigger_ratio=trigger)
            window = await ContextWindow.open(workspace, SESSION, size=CONTEXT_TOKENS, config=config, on_event=note)
            messages = conversation_of(cut, sessions)
            await replay(messages, window, seen, counter=default_counter(), compress_at=cut.compress_at)

    with tempfile.TemporaryDirectory() as parent:
        # All runs show the same path, since its tokens are the summary's.
        workspace = LocalWorkspace(parent, durability="off", shown_as="/workspace")
        asyncio.run(feed(workspace))
        yield workspace, texts[-1]


def report(asked: Sequence[Asked], *, missing: bool) -> None:
    """Print the scores by category and family, and in all; with *missing* also each key point that was not found."""
    groups: dict[str, list[Asked]] = {}
    for each in asked:
        groups.setdefault(each.question["category"], []).append(each)
    for each in sorted(asked, key=lambda each: each.family):
        groups.setdefault(f"family {each.family}", []).append(each)
    groups["all"] = list(asked)
    for name, members in groups.items():
        points = [found for each in members for found in each.found]
        mean = sum(each.share for each in members) / len(members)
        print(f"  {name:20} {mean:5.2f}  {len(members):3} questions, {sum(points):3} of {len(points):3} key points")
    for each in asked if missing else ():
        for found, point in zip(each.found, each.question["key_points"], strict=True):
            if not found:
                print(f"  - {each.question['id']} {each.question['session']}: {point['text'][:SHOWN_CHARS]}")


def questions_in(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """Return the questions in the files *paths*."""
    return [question for path in paths for question in json.loads(path.read_text("utf-8"))]


def main() -> None:
    """Read the arguments, ask all questions, and print the scores."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="where cuts, questions and score.py are")
    parser.add_argument(
        "--questions", type=Path, action="append", help="a file of questions (default: the directory's)"
    )
    parser.add_argument("--cuts", type=Path, help="a file of cuts (default: the directory's)")
    parser.add_argument("--sessions", type=Path, help="recorded sessions (default: ../sessions beside the directory)")
    parser.add_argument("--budget", type=float, default=1.0, help="tokens of a summary, as a multiple of the cut's")
    parser.add_argument("--lookups", type=int, choices=(0, 1, 2), default=0, help="lookups for each question")
    parser.add_argument("--last", action="store_true", help="let grep show the newest hits first")
    parser.add_argument("--trigger", choices=("auto",), default=0.8, help="let the window compact before the cut, too")
    parser.add_argument("--missing", action="store_true", help="print each key point that was not found")
    parser.add_argument("--show", type=Path, help="write the scored texts to this existing directory")
    options = parser.parse_args()
    directory: Path = options.directory
    if not (directory / "score.py").is_file():
        sys.exit(f"skipped: {directory} has no score.py")
    scorer = Scorer(directory / "score.py")
    questions = questions_in(options.questions or sorted(directory.glob("questions_*.json")))
    cuts = [Cut(**found) for found in json.loads((options.cuts or directory / "cuts.json").read_text("utf-8"))]
    asked: list[Asked] = []
    for cut in cuts:
        own = [found for found in questions if (found["session"], found["at"]) == (cut.session, cut.at)]
        sessions = options.sessions or directory.parent / "sessions"
        with compacted(cut, sessions, options.budget, options.trigger) as (workspace, summary):
            for question in own:
                answers = looked_up(workspace, question["question"], options.lookups, last=options.last)
                text = "\n# Lookup\n".join([summary, *answers])
                asked.append(scorer.asked(question, text))
                if options.show is not None:
                    (options.show / f"{question['id']}.txt").write_text(text, "utf-8")
    left_out = len(questions) - len(asked)
    print(f"{len(asked)} questions at {len(cuts)} cuts" + (f"; {left_out} at no cut" if left_out else ""))
    report(asked, missing=options.missing)


if __name__ == "__main__":
    main()
