"""Whatever a power cut leaves of a call, no promise is broken; and a sync that is left out is noticed."""

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from crash_states import Crash, Entries, Mark, Sync, spread
from session_crashes import (
    SCENARIOS,
    Recording,
    check,
    recorded,
    recorded_after_crash,
    recorded_after_kill,
)
from thirds import STEP

from buoyline.errors import BuoylineError


@dataclass(frozen=True)
class Effort:
    """How many states are looked at.

    Attributes:
        one_of: Of so many different states one is looked at, chosen by what is in it; of power cuts, also all that
            come when every call was acknowledged.
        cut: Combinations of one moment of a call.
        later: Combinations of one moment after a crash or a kill that another one follows; there are many.
        recoveries: Crashes of each scenario whose recovery is recorded and crashes in turn.
        kills: Moments of each scenario at which it is killed.
    """

    one_of: int
    cut: int
    later: int
    recoveries: int
    kills: int

    def chooses(self, question: bytes, way: str, *, is_acknowledged: bool) -> bool:
        """Tell whether a state is looked at: the same ones in every process."""
        return (way == CUT and is_acknowledged) or question[0] % self.one_of == 0


QUICK = Effort(one_of=24, cut=24, later=2, recoveries=2, kills=4)
THOROUGH = Effort(one_of=1, cut=1024, later=8, recoveries=12, kills=1000)
"""What `make test-slow` does."""

FOR_SYNCS = Effort(one_of=1, cut=32, later=2, recoveries=4, kills=1000)
"""Where a state is looked for that a sync prevents; one is enough."""

CUT, RECOVERY = "a power cut", "a power cut while the next writer recovers from one"
KILLS: dict[str, tuple[bool, bool]] = {
    "a kill, then a power cut after the next process repeats it": (True, False),
    "a kill, then a power cut after the next process goes on": (False, False),
    "a kill, then a power cut after a process that was at work repeats it": (True, True),
    "a kill, then a power cut after a process that was at work goes on": (False, True),
}
"""Whether the next process repeats what was under way; and whether it had looked at the session before."""

CASES = [
    (name, way)
    for name, scenario in SCENARIOS.items()
    for way in (CUT, RECOVERY, *KILLS)
    if scenario.then is None or (way in KILLS and not KILLS[way][0])
]
NOTICED_ELSEWHERE = {
    # The file of a result that was never acknowledged: no line names it.
    (name, way): {"workspace/sessions/s1"}
    for name in ("a result", "a result with a view", "another result of the same call")
    for way in KILLS
    if way.endswith("goes on")
}
"""Syncs that make no difference in a case, and do in others."""

SOUND: set[bytes] = set()
"""Questions of `Recording.question` that were answered well: the states of one scenario are often those of another."""

RECORDED: dict[tuple[str, str, Effort], list[Recording]] = {}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A directory that does not exist yet, in memory where the system has such a place: thousands are made."""
    shared = Path("/dev/shm")  # noqa: S108 - only a directory of its own is made there
    place = shared if shared.is_dir() and os.access(shared, os.W_OK) else tmp_path
    with tempfile.TemporaryDirectory(dir=place) as made:
        yield Path(made) / "state"


def broken_promises(
    recording: Recording, crashes: Iterable[Crash], effort: Effort, way: str, folder: Path
) -> list[str]:
    """Check *crashes* until a promise was found broken."""
    for crash in crashes:
        question = recording.question(crash)
        is_acknowledged = crash.acknowledged == len(recording.calls)
        if question in SOUND or not effort.chooses(question, way, is_acknowledged=is_acknowledged):
            continue
        try:
            check(recording, crash, folder)
        except (AssertionError, BuoylineError, OSError, LookupError) as error:
            sizes = {path: content if content is None else len(content) for path, content in crash.state.tree().items()}
            return [f"{error!r} after {crash.acknowledged} of {crash.begun} calls; left: {sizes}"]
        SOUND.add(question)
    return []


def made(name: str, way: str, effort: Effort, folder: Path) -> list[Recording]:
    """Return what is recorded of a scenario, once for all tests."""
    key = name, way, effort
    if key not in RECORDED:
        found: list[Recording] = []
        for recording in recordings(name, way, effort, folder):
            shutil.rmtree(folder, ignore_errors=True)
            found.append(recording)
        RECORDED[key] = found
    return RECORDED[key]


def recordings(name: str, way: str, effort: Effort, folder: Path) -> Iterator[Recording]:
    """Yield all that is to be recorded of a scenario."""
    if way == CUT:
        yield recorded(SCENARIOS[name], folder)
        return
    (first,) = made(name, CUT, QUICK, folder)
    if way == RECOVERY:
        under_way = [crash for crash in first.crashes(QUICK.cut) if crash.acknowledged < crash.begun]
        for crash in spread(under_way, effort.recoveries):
            yield recorded_after_crash(first, crash, folder)
        return
    is_repeated, is_at_work = KILLS[way]
    for place in spread(kills(first), effort.kills):
        yield recorded_after_kill(SCENARIOS[name], place, folder, is_repeated=is_repeated, is_at_work=is_at_work)


def kills(recording: Recording) -> list[int]:
    """Return numbers of operations to be killed after: ahead of each sync, answer and change of a directory."""
    found: dict[tuple[bytes, bool], int] = {}
    disk = recording.start.copy()
    for number, (operation, following) in enumerate(pairwise(recording.operations), 1):
        disk.apply(operation)
        if isinstance(following, Sync | Mark | Entries) and not isinstance(operation, Mark):
            found.setdefault((disk.digest(), isinstance(following, Mark)), number)
    return list(found.values())


def limit(effort: Effort, way: str) -> int:
    return effort.cut if way == CUT else effort.later


def looked_at(name: str, way: str, effort: Effort, folder: Path) -> list[str]:
    """Check the crashes of a scenario."""
    return [
        broken
        for recording in made(name, way, effort, folder)
        for broken in broken_promises(recording, recording.crashes(limit(effort, way)), effort, way, folder)
    ]


def unnoticed(name: str, way: str, folder: Path) -> set[str]:
    """Return the files and directories whose syncs can all be left out, and no state that is left breaks a promise."""
    noticed: dict[str, bool] = {}
    for recording in made(name, way, FOR_SYNCS, folder):
        with_all = set[bytes]()
        due = {file: places for file, places in recording.due_syncs().items() if not noticed.get(file)}
        for _ in recording.crashes(4 * limit(FOR_SYNCS, way), with_all) if due else ():
            pass
        for file, places in due.items():
            crashes = recording.without(places).crashes(limit(FOR_SYNCS, way), set(with_all))
            noticed[file] = bool(broken_promises(recording, crashes, FOR_SYNCS, way, folder))
    return {file for file, is_noticed in noticed.items() if not is_noticed}


def cases(one_of: int = 1) -> pytest.MarkDecorator:
    """Give a test the name and way of each case; one of so many is fast, none for 0."""
    marked = [
        pytest.param(
            *case, id="-".join(case).replace(" ", "-"), marks=[pytest.mark.slow] * (not one_of or at % one_of > 0)
        )
        for at, case in enumerate(CASES)
    ]
    return pytest.mark.parametrize(("name", "way"), marked)


@cases()
def test_no_state_that_a_crash_leaves_breaks_a_promise(name: str, way: str, folder: Path) -> None:
    assert looked_at(name, way, QUICK, folder) == []


@pytest.mark.timeout(900)
@cases(one_of=0)
def test_none_of_many_more_states_breaks_a_promise(name: str, way: str, folder: Path) -> None:
    assert looked_at(name, way, THOROUGH, folder) == []


@cases(one_of=STEP)
def test_each_sync_that_is_left_out_is_noticed(name: str, way: str, folder: Path) -> None:
    """A promise is broken by a state that there is only without it."""
    assert unnoticed(name, way, folder) == NOTICED_ELSEWHERE.get((name, way), set())
