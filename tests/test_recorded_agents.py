"""Recorded sessions, talked over again by agents of AgentScope and Strands under every document of the package.

At each call of the model all that must hold is looked at from outside: the request itself, and the files. Some
requests are refused as too long. At some turns a copy of all that is on disk goes on in an agent of its own, which has
to ask for the same.

``python tests/test_recorded_agents.py FOLDER [PATTERN [FRAMEWORKS [DOCUMENTS]]]`` replays all recordings in a folder.
"""

import asyncio
import copy
import random
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("agentscope", reason="agentscope is an extra for tests")
pytest.importorskip("strands", reason="strands-agents is an extra for tests")

from recorded_agentscope import ScopeRun
from recorded_strands import StrandsRun
from recorded_talk import talk_of
from recorded_witness import Counts, Witness

from buoyline.management.registry import BUILT_IN

SIZES, BREAKS = (8_000, 32_000), 0.1

RESTARTS = 0.4
"""Share of the turns that begin in another process."""


class Case(NamedTuple):
    """What is replayed: in which framework, under which document, which session, in a window of how many tokens."""

    framework: str
    document: str
    name: str
    size: int


SAMPLE = (
    Case("agentscope", "coding-agent", "tau_airline_task08_trial1", 8_000),  # ids that repeat
    Case("agentscope", "small-local-model", "deerflow_replay_github-top-trending-repo", 8_000),  # every id is empty
    Case("agentscope", "tool-heavy-with-summarization", "deerflow_replay_rag", 8_000),
    Case("strands", "coding-agent", "deerflow_replay_github-top-trending-repo", 8_000),
    Case("strands", "long-conversations", "deerflow_replay_rag", 8_000),
    Case("strands-snapshots", "small-local-model", "tau_airline_task08_trial1", 8_000),
    Case("strands-usage", "research-agent", "deerflow_replay_china-food-delivery", 8_000),
)
"""Framework, document, session and window of what `make test` replays; `make test-slow` replays every session."""

RUNS: dict[str, Callable[..., Any]] = {
    "agentscope": ScopeRun,
    "strands": StrandsRun,
    "strands-snapshots": partial(StrandsRun, has_snapshots=True),
    "strands-usage": partial(StrandsRun, has_usage=True),
}


async def replay(case: Case, sessions: Path, folder: Path, counts: Counts) -> None:
    """Talk a recording over; at some turns a copy goes on in another process as well."""
    chance = random.Random(zlib.crc32("{1} {2} {3}".format(*case).encode()))  # noqa: S311 - repeatable
    talk = talk_of(
        sessions / f"{case.name}.jsonl",
        chance,
        breaks=BREAKS,
        has_unique_ids=case.framework == "agentscope",
        needs_ids=case.framework != "agentscope",
    )
    root, aside = folder / "root", folder / "aside"
    witness = Witness(root, case.size, counts)
    run = RUNS[case.framework](witness, talk, case.document)
    await run.begin()
    for number, turn in enumerate(talk.turns):
        if not number or chance.random() >= RESTARTS:
            await run.turn(turn)
        else:
            shutil.copytree(root, aside)
            known, state = copy.deepcopy(witness), run.state if isinstance(run, ScopeRun) else None
            added = list(run.added) if isinstance(run, StrandsRun) else []
            await run.turn(turn)
            asked = witness.asked[len(known.asked) :]
            await run.end()
            shutil.rmtree(root)
            aside.rename(root)
            known.counts = counts
            witness = known
            run = RUNS[case.framework](witness, talk, case.document)
            if isinstance(run, ScopeRun):
                run.state = state
            else:
                run.added = added
            await run.begin()
            await run.turn(turn)
            counts.restarts += 1
            if case.framework != "strands-usage":
                differing(asked, witness.asked[len(witness.asked) - len(asked) :], number)
        witness.sound()
    await run.end()
    counts.left += len(witness.archived)
    counts.replays += 1


def differing(one: Sequence[str], other: Sequence[str], number: int) -> None:
    if one[0] == other[0]:
        return
    at = next(place for place, (a, b) in enumerate(zip(one[0] + "\0", other[0] + "\0", strict=False)) if a != b)
    pieces = one[0][max(at - 200, 0) : at + 300], other[0][max(at - 200, 0) : at + 300]
    raise AssertionError(f"turn {number} begins otherwise after a restart:\n{pieces[0]}\n---\n{pieces[1]}")


def check(case: Case, sessions: Path, folder: Path, counts: Counts) -> None:
    try:
        asyncio.run(replay(case, sessions, folder, counts))
    except Exception as error:
        error.add_note(f"in {case}")
        raise


@pytest.mark.parametrize("case", SAMPLE, ids=lambda case: " ".join(map(str, case)))
def test_all_that_must_hold_holds_whenever_an_agent_asks_its_model(
    shared_data: Path, tmp_path: Path, case: Case
) -> None:
    counts = Counts()
    check(case, shared_data / "sessions", tmp_path, counts)
    assert counts.restarts
    assert counts.left or counts.replaced
    assert not counts.too_large


@pytest.mark.slow
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("document", BUILT_IN)
@pytest.mark.parametrize("framework", RUNS)
def test_all_that_must_hold_holds_in_every_recorded_session(
    shared_data: Path, tmp_path: Path, framework: str, document: str, size: int
) -> None:
    """Each session meets each document in a window of one of the sizes: in both it would take twice the time."""
    counts, sessions = Counts(), shared_data / "sessions"
    for path in sorted(sessions.glob("*.jsonl"))[([*BUILT_IN].index(document) + SIZES.index(size)) % 2 :: 2]:
        (tmp_path / path.stem).mkdir()
        check(Case(framework, document, path.stem, size), sessions, tmp_path / path.stem, counts)
    assert counts.restarts > counts.replays
    assert counts.refused


def main(folder: str, pattern: str = "*", frameworks: str = ",".join(RUNS), documents: str = ",".join(BUILT_IN)) -> str:
    """Replay what is asked for, and return what was found."""
    counts, failed, names = Counts(), list[str](), sorted(path.stem for path in Path(folder).glob(f"{pattern}.jsonl"))
    for case in map(Case._make, product(frameworks.split(","), documents.split(","), names, SIZES)):
        with tempfile.TemporaryDirectory() as directory:
            try:
                check(case, Path(folder), Path(directory), counts)
            except Exception as error:  # noqa: BLE001 - what a replay may fail with is open
                failed.append(f"{type(error).__name__}: {error}\n{error.__notes__}")
    return "\n".join([*failed, f"{counts}, {len(failed)} failed"])


if __name__ == "__main__":
    sys.stdout.write(f"{main(*sys.argv[1:])}\n")
