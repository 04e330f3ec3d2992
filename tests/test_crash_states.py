"""Whatever a power cut leaves of a call, no promise is broken; and each sync is there because it has to be.

``python tests/test_crash_states.py`` prints how many states were looked at, and what became of each sync.
"""

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from crash_scenarios import (
    NEXT,
    SCENARIOS,
    Archive,
    Call,
    Recording,
    Store,
    check,
    recorded,
    recorded_after_crash,
    recorded_after_kill,
    recorded_after_loss,
    shown,
)
from crash_states import Crash, Entries, Mark, Sync, Write, spread
from crash_syncs import NEEDED_ELSEWHERE, NEEDED_TWICE, SYNCS
from thirds import STEP

from buoyline.errors import BuoylineError


@dataclass(frozen=True)
class Effort:
    """How many states are looked at.

    Attributes:
        one_of: Of so many different states one is looked at, chosen by what is in it; of power cuts, also all that
            come when every call was acknowledged.
        cut: Combinations of one moment of a call.
        later: Combinations of one moment behind a crash or a kill that another one follows; there are many.
        recoveries: Crashes of each scenario whose recovery is recorded and crashes in turn.
        kills: Moments of each scenario at which it is killed.
    """

    one_of: int
    cut: int
    later: int
    recoveries: int
    kills: int

    def limit(self, way: str) -> int:
        """Return how many combinations of one moment are looked at."""
        return self.cut if way == CUT else self.later

    def chooses(self, question: bytes, way: str, *, is_acknowledged: bool) -> bool:
        """Tell whether a state is looked at: the same ones in every process."""
        return (way == CUT and is_acknowledged) or question[0] % self.one_of == 0


LOOKED_THROUGH = 24
"""Crashes of a call from which those are chosen whose recovery is looked at."""

QUICK = Effort(one_of=24, cut=24, later=2, recoveries=2, kills=6)
THOROUGH = Effort(one_of=1, cut=1024, later=8, recoveries=12, kills=1000)
"""What `make test-slow` does."""

FOR_SYNCS = Effort(one_of=1, cut=32, later=2, recoveries=12, kills=1000)
"""Where a state is looked for that a sync prevents; one is enough."""

STORED = Store("other", "another output")

OTHERS: dict[str, Call | None] = {
    "repeats it": None,
    "stores a result": STORED,
    "archives something else": Archive((NEXT,), "other"),
}
"""What the next process does after one was killed."""

CUT, RECOVERY = "a power cut", "a power cut while the next writer recovers from one"
KILLS = {f"a kill, then a power cut after the next process {other}": other for other in OTHERS}
KILLS_AT_WORK = {f"a kill, then a power cut after a process that was at work {other}": other for other in OTHERS}
LOSS = "a kill and the loss of the journal, then a power cut after the next process stores a result"

NEW_SESSION = ("the first call of a workspace", "the first call of a session", "a window")
"""Scenarios in which nobody can have been at work in the session before."""

CASES = [
    (name, way)
    for name, scenario in SCENARIOS.items()
    for way in (CUT, RECOVERY, *KILLS, *KILLS_AT_WORK)
    if way not in KILLS_AT_WORK or not (scenario.damage or name in NEW_SESSION)
] + [("several messages", LOSS)]
"""What is looked at: scenarios, and what befalls them."""

SOUND: set[bytes] = set()
"""Questions of `Recording.question` that were answered well: the states of one scenario are often those of another."""

Asked: TypeAlias = tuple[Crash, bytes]
"""A crash, and what `Recording.question` says of it."""

RECORDED: dict[tuple[str, str, Effort], list[Recording]] = {}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A directory that does not exist yet, in memory where the system has such a place: thousands are made."""
    with tempfile.TemporaryDirectory(dir=place_in_memory() or tmp_path) as made:
        yield Path(made) / "state"


def place_in_memory() -> Path | None:
    shared = Path("/dev/shm")  # noqa: S108 - only a directory of its own is made there
    return shared if shared.is_dir() and os.access(shared, os.W_OK) else None


@dataclass
class Outcome:
    """What became of some crashes."""

    states: int
    broken: list[str]


async def looked_at(name: str, way: str, effort: Effort, folder: Path) -> Outcome:
    """Check the crashes of a scenario until three promises were found broken."""
    outcome = Outcome(0, [])
    for recording in await made(name, way, effort, folder):
        crashes = recording.crashes(effort.limit(way))
        await look_at(recording, chosen(recording, crashes, way, effort), folder, outcome, enough=3)
    return outcome


def chosen(recording: Recording, crashes: Iterable[Crash], way: str, effort: Effort) -> Iterator[Asked]:
    """Yield the crashes that are looked at."""
    for crash, question in asked(recording, crashes):
        if effort.chooses(question, way, is_acknowledged=crash.acknowledged == len(recording.calls)):
            yield crash, question


def asked(recording: Recording, crashes: Iterable[Crash]) -> Iterator[Asked]:
    """Yield each crash with what `check` asks of it."""
    return ((crash, recording.question(crash)) for crash in crashes)


async def look_at(recording: Recording, crashes: Iterable[Asked], folder: Path, outcome: Outcome, enough: int) -> None:
    for crash, question in crashes:
        if len(outcome.broken) >= enough:
            return
        outcome.states += 1
        if question in SOUND:
            continue
        try:
            await check(recording, crash, folder)
        except (AssertionError, BuoylineError) as error:
            sizes = {path: content if content is None else len(content) for path, content in crash.state.tree().items()}
            outcome.broken.append(f"{error!r} after {crash.acknowledged} of {crash.begun} calls; left: {sizes}")
        else:
            SOUND.add(question)


async def made(name: str, way: str, effort: Effort, folder: Path) -> list[Recording]:
    """Return what is recorded of a scenario, once for all tests."""
    key = name, way, effort
    if key not in RECORDED:
        RECORDED[key] = [await done async for done in begun(name, way, effort, folder)]
    return RECORDED[key]


async def begun(name: str, way: str, effort: Effort, folder: Path) -> AsyncIterator[Awaitable[Recording]]:
    """Yield all that is to be recorded of a scenario."""
    if way == CUT:
        yield again(recorded(SCENARIOS[name], folder), folder)
        return
    (first,) = await made(name, CUT, QUICK, folder)
    if way == RECOVERY:
        others = [call for call in (SCENARIOS[name].instead,) if call is not None]
        for crash in await telling(first, effort.recoveries, folder):
            for instead in [None, *others]:
                yield again(recorded_after_crash(first, crash, folder, instead=instead), folder)
    elif way == LOSS:
        last = max(place for place, done in enumerate(first.operations) if isinstance(done, Write))
        yield again(recorded_after_loss(first, last, folder, other=STORED), folder)
    else:
        other = OTHERS[(KILLS | KILLS_AT_WORK)[way]]
        for place in spread(kills(first), effort.kills):
            killed = recorded_after_kill(first, place, folder, other=other, is_at_work=way in KILLS_AT_WORK)
            yield again(killed, folder)


async def telling(recording: Recording, count: int, folder: Path) -> list[Crash]:
    """Return *count* crashes in the middle of a call, those first that the next process syncs other things after."""
    under_way = [crash for crash in recording.crashes(QUICK.cut) if crash.acknowledged < crash.begun]
    found: dict[frozenset[str], Crash] = {}
    others: list[Crash] = []
    for crash in spread(under_way, LOOKED_THROUGH):
        syncs = frozenset(syncs_of([await again(recorded_after_crash(recording, crash, folder), folder)]))
        if syncs in found:
            others.append(crash)
        found.setdefault(syncs, crash)
    return [*reversed(found.values()), *others][:count]


def kills(recording: Recording) -> list[int]:
    """Return the places to be killed at: ahead of each sync, answer and change of a directory, where these differ."""
    found: dict[tuple[bytes, int, int], int] = {}
    for place, (operation, following) in enumerate(pairwise(recording.operations)):
        if isinstance(following, Sync | Mark | Entries) and not isinstance(operation, Mark):
            disk, acknowledged, begun = recording.killed(place)
            found.setdefault((disk.digest(), acknowledged, begun), place)
    return list(found.values())


async def again(recording: Awaitable[Recording], folder: Path) -> Recording:
    try:
        return await recording
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def syncs_of(recordings: Iterable[Recording]) -> dict[str, set[tuple[str, str]]]:
    """Return file and statement of each sync, by what it is known by."""
    found: dict[str, set[tuple[str, str]]] = {}
    for recording in recordings:
        for sync, file in recording.syncs().items():
            if file and sync.statement:
                found.setdefault(f"{file} < {shown(sync.statement)}", set()).add((file, sync.statement))
    return found


async def is_missed(recordings: Iterable[Recording], file: str, statement: str, limit: int, folder: Path) -> bool:
    """Tell whether a promise is broken by a state that there is only without the syncs of *file* by *statement*."""
    outcome = Outcome(0, [])
    for recording in recordings:
        left_out = {s for s, name in recording.syncs().items() if s.statement == statement and name in {"", file}}
        known: set[bytes] = set()
        for _ in recording.crashes(4 * limit, known) if left_out else ():
            pass
        crashes = asked(recording, recording.without(left_out).crashes(limit, known))
        await look_at(recording, crashes, folder, outcome, enough=1)
    return bool(outcome.broken)


def is_slow(way: str) -> bool:
    """Tell whether a way is left to the slow tests, since others are much alike."""
    return way.endswith("archives something else")


def parameters(name: str, way: str) -> Any:
    """Return a case for pytest."""
    slow = [pytest.mark.slow] if is_slow(way) else []
    return pytest.param(name, way, id=f"{name}-{way}".replace(" ", "-"), marks=slow)


@pytest.mark.parametrize(("name", "way"), [parameters(*case) for case in CASES])
async def test_no_state_that_a_crash_leaves_breaks_a_promise(name: str, way: str, folder: Path) -> None:
    outcome = await looked_at(name, way, QUICK, folder)
    assert outcome.broken == []
    assert outcome.states or way != CUT


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("name", "way"), [parameters(*case) for case in CASES])
async def test_none_of_many_more_states_breaks_a_promise(name: str, way: str, folder: Path) -> None:
    outcome = await looked_at(name, way, THOROUGH, folder)
    assert outcome.broken == []


@pytest.mark.parametrize(
    ("sync", "name", "way"),
    [
        pytest.param(*needed, marks=[pytest.mark.slow] if at % STEP else [])
        for at, needed in enumerate([*((sync, *where) for sync, where in SYNCS.items()), *NEEDED_TWICE])
    ],
)
async def test_a_promise_is_broken_without_this_sync(sync: str, name: str, way: str, folder: Path) -> None:
    recordings = await made(name, way, FOR_SYNCS, folder)
    statements = syncs_of(recordings)[sync]
    for file, statement in statements:
        assert await is_missed(recordings, file, statement, FOR_SYNCS.limit(way), folder), statement


@pytest.mark.parametrize(("name", "way"), [parameters(*case) for case in CASES])
async def test_each_sync_is_known(name: str, way: str, folder: Path) -> None:
    assert syncs_of(await made(name, way, QUICK, folder)).keys() <= SYNCS.keys() | NEEDED_ELSEWHERE.keys()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("name", "way"), [parameters(*case) for case in CASES])
async def test_each_sync_of_many_more_recordings_is_known(name: str, way: str, folder: Path) -> None:
    assert syncs_of(await made(name, way, FOR_SYNCS, folder)).keys() <= SYNCS.keys() | NEEDED_ELSEWHERE.keys()


@pytest.mark.parametrize("sync", list(NEEDED_ELSEWHERE))
async def test_a_sync_that_makes_no_difference_is_still_there(sync: str, folder: Path) -> None:
    name, way, _ = NEEDED_ELSEWHERE[sync]
    assert sync in syncs_of(await made(name, way, FOR_SYNCS, folder))


async def report(folder: Path) -> None:
    """Print what was looked at, and what was found."""
    found: dict[str, dict[tuple[str, str], set[tuple[str, str]]]] = {}
    total = Outcome(0, [])
    for name, way in CASES:
        outcome = await looked_at(name, way, QUICK, folder)
        total.states += outcome.states
        tell(f"{outcome.states:5} states of {name}: {way}")
        for broken in outcome.broken:
            tell(f"      broken: {broken}")
        for sync, statements in syncs_of(await made(name, way, FOR_SYNCS, folder)).items():
            found.setdefault(sync, {})[name, way] = statements
    tell(f"{total.states:5} states, {len(SOUND)} of them different")
    for sync, where in sorted(found.items()):
        tell(f"{sync!r}: {await missed_in(where, folder)},")


async def missed_in(where: dict[tuple[str, str], set[tuple[str, str]]], folder: Path) -> tuple[str, str] | None:
    """Return the first case, the simple ones first, in which a sync is missed."""
    ways = [CUT, RECOVERY, *KILLS, *KILLS_AT_WORK, LOSS]
    for name, way in sorted(where, key=lambda case: (ways.index(case[1]), case[0] != "one message")):
        recordings, limit = await made(name, way, FOR_SYNCS, folder), FOR_SYNCS.limit(way)
        missed = [await is_missed(recordings, *statement, limit, folder) for statement in where[name, way]]
        if all(missed):
            return name, way
    return None


def tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=place_in_memory()) as made_folder:
        asyncio.run(report(Path(made_folder) / "state"))
