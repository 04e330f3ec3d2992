"""Whatever a power cut leaves of a call, no promise is broken; and each sync is there because it has to be.

``python tests/test_crash_states.py`` prints how many states were looked at, and what became of each sync.
"""

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

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
)
from crash_states import Crash, Entries, Mark, Sync

from buoyline.errors import BuoylineError

QUICK, THOROUGH = 32, 1024
"""Combinations of one moment that are looked at in every run, and in `make test-slow`."""

RECOVERIES, RECOVERY_LIMIT = 2, 2
"""Crashes of each scenario whose recovery is recorded and crashes in turn, and its combinations of one moment."""

KILLED_LIMIT = 2
"""Combinations behind a call that follows a kill; there are many kills."""

ROOT = "the entry of the root in its parent is never synced"
TRANSCRIPT = "a hole in an earlier batch of the transcript is not filled when the last batch is whole"
RECORDS = "several records are written before one sync: a torn one before a whole one passes for damage"
SUMMARY = "summaries.jsonl is created without a sync of its directory, and read without regard to a torn last record"
WINDOW = "window.jsonl has no hashes: zeros within its unsynced lines stay, and no reader gets past them"
REBUILD = "a crash in the middle of it leaves a shorter journal, and the rest of the archive passes for a torn tail"

BROKEN: dict[str, str] = {}
"""Scenarios in which a promise is known to be broken; to be emptied."""

NOTES = "the journal's last two notes are all that is kept: after two crashes none is that of the old window"

BROKEN_IN_RECOVERY: dict[str, str] = {}

KILLED = "what a killed process has not synced is taken for durable by the next one, which builds on it"

WINDOWS = {"a window after a compression", "a window that is taken over"}
RESULTS = {"a tool result", "a tool result with a view", "another tool result of the same call"}
BATCHES = {"one message", "several messages", "a batch and its repetition", "a stub and its message"}

SOUND_AFTER_A_KILL = {
    "repeats it": WINDOWS | BATCHES | {"messages of a window"},
    "stores a result": WINDOWS | RESULTS,
    "archives something else": WINDOWS | RESULTS,
}
"""Scenarios in which it is not so; to become all."""

NOT_NEEDED = {
    "/sessions/s1/transcript.md": "is derived, and only synced when it is created empty",
    "/sessions/s1/window.jsonl": "is created empty",
    "/sessions/s1/context.jsonl in a window": "is created empty",
    "a file that is gone": "gave way to one that had its name already",
}
"""Files whose sync no state misses, where it is alone."""

NOT_NEEDED_ALONE = {
    "/": "several entries of the root are made in a row, and the last sync is for all of them",
    "/sessions/s1/context.jsonl": "is synced when it is created empty, and when a call is repeated that was synced; "
    "recovery syncs its cut, and the commit that follows syncs it again",
    "/sessions/s1/journal.jsonl": "as above",
}
"""Files and directories that are synced more than once: each sync is missed only when the others are left out, too."""

OTHERS: dict[str, Call | None] = {
    "repeats it": None,
    "stores a result": Store("other", "another output"),
    "archives something else": Archive((NEXT,), "other"),
}
"""What the next process does after one was killed."""


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

    def add(self, other: "Outcome") -> None:
        """Count *other*, too."""
        self.states += other.states
        self.broken += other.broken


async def looked_at(recording: Recording, crashes: Iterable[Crash], folder: Path, enough: int = 3) -> Outcome:
    """Check *crashes* until *enough* promises were found broken."""
    outcome = Outcome(0, [])
    for crash in crashes:
        outcome.states += 1
        try:
            await check(recording, crash, folder)
        except (AssertionError, BuoylineError) as error:
            sizes = {path: content if content is None else len(content) for path, content in crash.state.tree().items()}
            outcome.broken.append(f"{error!r} after {crash.acknowledged} of {crash.begun} calls; left: {sizes}")
        if len(outcome.broken) == enough:
            break
    return outcome


async def made(name: str, folder: Path) -> Recording:
    try:
        return await recorded(SCENARIOS[name], folder)
    finally:
        shutil.rmtree(folder)


async def after_a_crash(name: str, folder: Path, limit: int) -> Outcome:
    recording = await made(name, folder)
    return await looked_at(recording, recording.crashes(limit), folder)


async def after_a_crash_of_recovery(name: str, folder: Path, limit: int) -> Outcome:
    recording, outcome = await made(name, folder), Outcome(0, [])
    under_way = [crash for crash in recording.crashes(QUICK) if crash.acknowledged < crash.begun]
    for crash in under_way[:: max(1, len(under_way) // RECOVERIES)]:
        again = await recorded_again(recorded_after_crash(recording, crash, folder), folder, outcome)
        if again is not None:
            outcome.add(await looked_at(again, again.crashes(limit), folder))
    return outcome


async def after_a_kill(name: str, other: Call | None, folder: Path, limit: int) -> Outcome:
    recording, outcome = await made(name, folder), Outcome(0, [])
    telling = (Sync, Mark, Entries) if other is None else (Sync, Mark)
    for place, (operation, following) in enumerate(pairwise(recording.operations)):
        if isinstance(operation, Mark) or not isinstance(following, telling) or len(outcome.broken) > 2:
            continue
        again = await recorded_again(recorded_after_kill(recording, place, folder, other=other), folder, outcome)
        if again is not None:
            outcome.add(await looked_at(again, again.crashes_at_the_end(limit), folder))
    return outcome


async def recorded_again(recording: Awaitable[Recording], folder: Path, outcome: Outcome) -> Recording | None:
    """Return what the next process does; None where it fails, which is counted."""
    try:
        return await recording
    except (AssertionError, BuoylineError) as error:
        outcome.add(Outcome(1, [f"{error!r} while the next process worked"]))
        return None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def is_missed(recording: Recording, places: Collection[int], folder: Path) -> bool:
    """Tell whether a promise is broken by a state that there is only without the syncs at *places*."""
    known: set[bytes] = set()
    for _ in recording.crashes(4 * QUICK, known):
        pass
    new = recording.without(places).crashes(QUICK, known)
    return bool((await looked_at(recording, new, folder, enough=1)).broken)


async def recovery_of(name: str, folder: Path) -> Recording:
    """Return the recovery from a crash that tore the most files."""
    recording, found = await made(name, folder), []
    for crash in recording.crashes(QUICK):
        if crash.acknowledged < crash.begun:
            found.append(await recorded_after_crash(recording, crash, folder))
            shutil.rmtree(folder)
    return max(found, key=lambda again: len(again.torn))


async def missed_syncs(recording: Recording, folder: Path) -> dict[tuple[int, str], tuple[bool, bool]]:
    """Return of each sync whether it is missed, and whether it is when all of the same file are left out."""
    places: dict[str, list[int]] = {}
    for place in recording.syncs():
        places.setdefault(recording.name(place), []).append(place)
    found: dict[tuple[int, str], tuple[bool, bool]] = {}
    for file, those in places.items():
        together = await is_missed(recording, those, folder)
        for place in those:
            alone = together if len(those) == 1 else await is_missed(recording, [place], folder)
            found[place, file] = alone, together
    return found


def cases(broken: Mapping[str, str]) -> list[Any]:
    """Return a case for each scenario, those in *broken* expected to fail."""
    return [pytest.param(name, id=name.replace(" ", "-"), marks=marks(broken.get(name))) for name in SCENARIOS]


def kills() -> Iterator[Any]:
    """Yield a case for each scenario and what follows the kill."""
    for other, sound in SOUND_AFTER_A_KILL.items():
        for name in SCENARIOS:
            slow = [pytest.mark.slow] if other == "archives something else" else []
            known = marks(None if name in sound else KILLED)
            yield pytest.param(name, other, id=f"{name}-{other}".replace(" ", "-"), marks=[*slow, *known])


def marks(reason: str | None) -> list[pytest.MarkDecorator]:
    return [] if reason is None else [pytest.mark.xfail(reason=reason)]


@pytest.mark.parametrize("name", cases(BROKEN))
async def test_no_state_that_a_crash_leaves_breaks_a_promise(name: str, folder: Path) -> None:
    outcome = await after_a_crash(name, folder, QUICK)
    assert outcome.broken == []
    assert outcome.states > 2


@pytest.mark.slow
@pytest.mark.parametrize("name", cases(BROKEN))
async def test_none_of_many_more_states_breaks_a_promise(name: str, folder: Path) -> None:
    outcome = await after_a_crash(name, folder, THOROUGH)
    assert outcome.broken == []


@pytest.mark.parametrize("name", cases(BROKEN_IN_RECOVERY))
async def test_no_state_that_a_crash_of_recovery_leaves_breaks_a_promise(name: str, folder: Path) -> None:
    outcome = await after_a_crash_of_recovery(name, folder, RECOVERY_LIMIT)
    assert outcome.broken == []
    assert outcome.states > 2


@pytest.mark.parametrize(("name", "other"), list(kills()))
async def test_what_a_killed_process_left_is_durable_when_the_next_one_builds_on_it(
    name: str, other: str, folder: Path
) -> None:
    outcome = await after_a_kill(name, OTHERS[other], folder, KILLED_LIMIT)
    assert outcome.broken == []


@pytest.mark.parametrize("name", cases({}))
async def test_no_sync_can_be_left_out(name: str, folder: Path) -> None:
    for (_, file), (alone, together) in (await missed_syncs(await made(name, folder), folder)).items():
        if file not in NOT_NEEDED and f"{file} in {name}" not in NOT_NEEDED:
            assert together, f"the syncs of {file} make no difference"
            assert alone or file in NOT_NEEDED_ALONE, f"one sync of {file} makes no difference"


async def test_no_sync_of_recovery_can_be_left_out(folder: Path) -> None:
    recovery = await recovery_of("one message", folder)
    assert len(recovery.torn) == 2, "of the archive and of the journal"
    for (_, file), (alone, together) in (await missed_syncs(recovery, folder)).items():
        assert together, f"the syncs of {file} make no difference"
        assert alone or file in NOT_NEEDED_ALONE, f"one sync of {file} makes no difference"


async def report(folder: Path) -> None:
    """Print what was looked at, and what was found."""
    for name in SCENARIOS:
        tell(name)
        tell_outcome("a crash", await after_a_crash(name, folder, QUICK))
        tell_outcome("a crash of recovery", await after_a_crash_of_recovery(name, folder, RECOVERY_LIMIT))
        for other, call in OTHERS.items():
            tell_outcome(f"a kill; the next {other}", await after_a_kill(name, call, folder, KILLED_LIMIT))
        for (_, file), (alone, together) in (await missed_syncs(await made(name, folder), folder)).items():
            tell(f"  sync of {file}: {'needed' if alone else 'needed with others' if together else 'not needed'}")


def tell_outcome(after: str, outcome: Outcome) -> None:
    tell(f"  {outcome.states} states after {after}: {len(outcome.broken)} broken")
    for broken in outcome.broken:
        tell(f"    {broken}")


def tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=place_in_memory()) as made_folder:
        asyncio.run(report(Path(made_folder) / "state"))
