"""Random runs: the baseline and the checkout do the same; and where the file system fails, nothing is lost.

``--runs=100`` tries more of them. A run is known by its number, and is the same each time.
"""

from pathlib import Path
from random import Random
from typing import Any

import pytest
from reference import scripts
from reference.comparison import difference
from reference.invariants import lost_messages, refused_because
from reference.player import Plain
from reference.scripts import DIALECTS, PLAIN_CONFIG, Message, Operation, chance_of
from reference.versions import BASELINE, CHECKOUT, Process, answers

PARTS = 4
"""Tests that share the runs, so that they may run at once."""

LENGTH = 25
SIZE = 4_000
MAX_CALL, MAX_AWAIT = 45, 12
"""The last call of the file system that fails, and the last await at which a caller is cancelled."""


def runs_of(part: int, config: pytest.Config) -> range:
    return range(part, config.getoption("--runs"), PARTS)


def script_of(number: int) -> list[Operation]:
    chance = chance_of(("settings", number))
    settings = scripts.settings_by_chance(chance)
    script = scripts.walk(number, DIALECTS[number % 3], LENGTH, **settings)
    ending = scripts.ending(looks=False) if settings["offloader"] == "local" else [{"do": "close"}]
    return [*script, *ending]


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_random_runs_are_as_they_were(part: int, pytestconfig: pytest.Config) -> None:
    for number in runs_of(part, pytestconfig):
        case, script = f"run-{number}", script_of(number)
        found = difference(answers(BASELINE, case, script), answers(CHECKOUT, case, script))
        assert found == "", f"run {number}: {found}"


@pytest.mark.slow
def test_random_runs_do_all_that_can_be_done() -> None:
    """Otherwise two versions that refuse everything would be equal."""
    found = [answer for number in range(24) for answer in answers(BASELINE, f"run-{number}", script_of(number))]
    kinds = {event["event"] for answer in found for event in answer["events"] if "event" in event}
    assert kinds >= {"ResultOffloaded", "MessagesArchived", "ContextCompressed", "OverflowRecovered", "WindowResumed"}
    done = {answer["do"] for answer in found if "error" not in answer}
    assert done >= {
        "save",
        "compress",
        "compress_ahead",
        "release",
        "request_compression",
        "usage",
        "recover",
        "resume",
    }
    failed = sum("error" in answer for answer in found)
    assert 0 < failed < len(found) / 10


class Troubled:
    """A window whose calls of the file system fail, whose callers are cancelled, and whose process is killed."""

    def __init__(self, version: str, workdir: Path, number: int) -> None:
        self._version, self._workdir = version, workdir
        self._chance = chance_of(("trouble", number))
        dialect = DIALECTS[number % 3]
        self.said = scripts.conversation(("trouble", number), dialect, LENGTH)
        self._settings = {"size": SIZE, "config": PLAIN_CONFIG, "dialect": dialect, **_settings(self._chance)}
        self._natives: dict[str, Message] = {}
        self._kept = 0
        self.failed, self.cancelled, self.killed = 0, 0, 0

    def go(self) -> None:
        """Begin, and let one thing after another go wrong until all was said."""
        process = self._started()
        self._answer(process, {"do": "open", **self._settings})
        while self._kept < len(self.said) - 4:
            self._step(process, {"do": "add", "count": self._chance.randrange(1, 5)})
            answer = self._step(process, {"do": self._chance.choice(("prepare", "prepare", "prepare", "save"))})
            if self._chance.random() < 0.1:
                answer = self._step(process, {"do": "compress", "force": True})
            if "error" in answer and self._chance.random() < 0.5:
                process.end()
                self.killed += 1
                process = self._started()
                self._resume(process)
            self._check(process, is_thorough="error" in answer)
        process.end()

    def _started(self) -> Process:
        process = Process(self._version, self._workdir, salt=f"{self.killed:x}")
        self._answer(process, {"do": "say", "messages": self.said, "pins": scripts.pins_in(self.said)})
        return process

    def _step(self, process: Process, operation: Operation) -> Plain:
        """Do something, perhaps with trouble; what comes of it may be an error, and is said by `_check`."""
        trouble = self._chance.random()
        if trouble < 0.25:
            operation["fails_at"] = self._chance.randrange(1, MAX_CALL)
        elif trouble < 0.4:
            operation["cancels_at"] = self._chance.randrange(1, MAX_AWAIT)
        answer = self._answer(process, operation)
        kind = answer.get("error")
        assert kind in {None, "StorageError", "CancelledError"}, (operation, answer)
        self.failed += kind == "StorageError"
        self.cancelled += kind == "CancelledError"
        return answer

    def _resume(self, process: Process) -> None:
        """Go on from what is on disk: at least all that was acknowledged."""
        answer = self._answer(process, {"do": "resume", **self._settings})
        if answer.get("error") == "NotFoundError":
            assert self._kept == 0
            answer = self._answer(process, {"do": "open", **self._settings})
            return
        assert "error" not in answer, answer
        assert self._kept <= answer["answer"]["added"]

    def _check(self, process: Process, *, is_thorough: bool) -> None:
        """Prepare without trouble: it must succeed, whatever went wrong before, and everything must be there."""
        answer = self._answer(process, {"do": "prepare"})
        assert "error" not in answer, answer
        found = answer["answer"]
        assert found["tokens"] <= SIZE or found["exceeding"]
        assert refused_because([self._natives[entry[0]] for entry in found["messages"]]) == ""
        self._kept = found["added"]
        if not is_thorough:
            return
        assert lost_messages(self._workdir, self.said[: self._kept]) == []
        verified = self._answer(process, {"do": "verify"})["answer"]
        assert [finding for finding in verified if finding[0] != "note"] == []

    def _answer(self, process: Process, operation: Operation) -> Plain:
        answer: Plain = process.play(operation)
        shown = answer.get("answer")
        entries: list[Any] = shown.get("messages", []) if isinstance(shown, dict) else []
        self._natives |= {entry[0]: entry[2] for entry in entries if len(entry) == 3}
        return answer


def _settings(chance: Random) -> dict[str, Any]:
    return {
        "durability": chance.choice(("fsync", "off")),
        "config": {**PLAIN_CONFIG, **chance.choice(({}, {"background_ratio": 0.4}))},
        "summarizer": chance.choice((None, {"steps": 2})),
    }


def in_trouble(version: str, folder: Path, number: int) -> Troubled:
    folder.mkdir()
    run = Troubled(version, folder / "w", number)
    try:
        run.go()
    except AssertionError as error:
        error.add_note(f"run {number}")
        raise
    return run


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_nothing_is_lost_when_the_file_system_fails_and_callers_are_cancelled(
    tmp_path: Path, part: int, pytestconfig: pytest.Config
) -> None:
    runs = [in_trouble(CHECKOUT, tmp_path / str(number), number) for number in runs_of(part, pytestconfig)]
    assert sum(run.failed for run in runs)
    assert sum(run.cancelled for run in runs)
    assert sum(run.killed for run in runs)


@pytest.mark.slow
def test_the_baseline_loses_nothing_either(tmp_path: Path) -> None:
    """What is asked of the checkout is not more than what was."""
    assert in_trouble(BASELINE, tmp_path / "0", 0).failed
