"""Every recorded session, compression after compression, with all that must hold checked at every step.

``python tests/test_recorded_sessions.py FOLDER`` replays all recordings in a folder, and prints what was looked at.
"""

import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest
from replay_checker import Checker, Counts, Raw, bytes_of, outcome

from buoyline import ContextConfig, ContextWindow, LocalWorkspace

SIZES = (8_000, 32_000, 128_000)

SAMPLE = {
    8_000: (
        "cc_entire_00-c9e2351016-2",  # a result without a call
        "deerflow_replay_github-top-trending-repo",  # every call id is empty
        "deerflow_thread_21cfea46",  # system messages in the middle, a late result
        "sweagent_marshmallow_xml",  # tool output in user messages
        "tau_airline_task02_trial1",  # ids that repeat
    ),
    32_000: ("cc_entire_fc-99c919b212-0",),  # a picture
}
"""What `make test` replays; `make test-slow` replays everything."""

MOST_MESSAGES = 110
"""So many messages of each of them."""

PINNING_SIZE = 32_000
"""At this one of the sizes a message is pinned."""

STOPS = 0.15
"""Share of the steps at which the second run is given up and gone on with by another workspace."""


@dataclass
class Run:
    """One conversation through a window; with *stops*, through another window from random steps on.

    Attributes:
        conversation: What is fed.
        workdir: Of the workspaces.
        size: Tokens of the window.
        saves: Positions behind which the window is saved, whether it is stopped there or not.
        pins: Positions of messages that are pinned.
        stops: Says at which steps to stop; None: at none.
        checker: Looks at each step.
        options: More of what the window is made with.
        handed: What was handed out at each step.
        resumes: How often another window went on.
    """

    conversation: Sequence[Raw]
    workdir: Path
    size: int
    saves: frozenset[int] = frozenset()
    pins: frozenset[int] = frozenset()
    stops: random.Random | None = None
    checker: Checker | None = None
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    handed: list[list[bytes]] = field(default_factory=list)
    resumes: int = 0

    async def go(self) -> None:
        """Go through the conversation as an agent does: a model call before each answer, and one at the end."""
        self._workspaces = [LocalWorkspace(self.workdir, durability="off")]
        self._window = ContextWindow(
            session_id="Recorded", offloader=self._workspaces[0], size=self.size, **self.options
        )
        for position, message in enumerate(self.conversation):
            if message["role"] == "assistant":
                await self._prepare()
            if self.checker is not None:
                self.checker.fed.append(message)
            await self._window.add(message, pinned=position in self.pins)
            if position in self.saves:
                await self._window.save()
                await self._maybe_stop()
        await self._prepare()
        for workspace in self._workspaces:
            await workspace.close()

    async def _prepare(self) -> None:
        messages = await self._window.prepare()
        self.handed.append([bytes_of(message) for message in messages])
        if self.checker is not None:
            self.checker.step(messages, self._window.tokens, self._window.exceeding())
        await self._maybe_stop()

    async def _maybe_stop(self) -> None:
        """Let a new window go on, which knows nothing but what is on disk."""
        if self.stops is None or self.stops.random() >= STOPS:
            return
        self.resumes += 1
        self._workspaces.append(LocalWorkspace(self.workdir, durability="off"))
        old, new = self._window, await ContextWindow.resume(self._workspaces[-1], "Recorded")
        assert [bytes_of(message) for message in new.messages] == [bytes_of(message) for message in old.messages]
        assert (new.tokens, new.turn_tokens, new.added) == (old.tokens, old.turn_tokens, old.added)
        self._window = new


def recording(path: Path) -> list[Raw]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def pins_in(conversation: Sequence[Raw]) -> frozenset[int]:
    """Return the position of the first short user message."""
    short = (
        position
        for position, message in enumerate(conversation)
        if message["role"] == "user" and isinstance(message["content"], str) and len(message["content"]) < 500
    )
    return frozenset(list(short)[:1])


def differing(some: Sequence[bytes], others: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    """Return the pairs that differ, cut to where they do: nobody reads two whole contexts."""
    assert len(some) == len(others)
    return [cut_to_difference(one, other) for one, other in zip(some, others, strict=True) if one != other]


def cut_to_difference(one: bytes, other: bytes) -> tuple[bytes, bytes]:
    places = (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    start = max(next(places, min(len(one), len(other))) - 100, 0)
    return one[start : start + 400], other[start : start + 400]


async def check_session(path: Path, folder: Path, size: int, counts: Counts, *, most: int | None = None) -> None:
    """Replay a recording twice, the second time with stops, in the same place: paths take tokens, too."""
    conversation, chance = recording(path)[:most], random.Random(f"{path.stem} {size}")  # noqa: S311 - repeatable
    workdir, before = folder / "w", counts.compressions
    saves = frozenset(position for position in range(len(conversation)) if chance.random() < STOPS)
    pins = pins_in(conversation) if size == PINNING_SIZE else frozenset[int]()
    checker = Checker(workdir, size, ContextConfig().summary_limit(size), counts, pinned=pins)
    whole = Run(conversation, workdir, size, saves, pins, checker=checker)
    await whole.go()
    left = outcome(checker.directory)
    workdir.rename(folder / "aside")
    parts = Run(conversation, workdir, size, saves, pins, stops=chance)
    await parts.go()
    for step, (one, other) in enumerate(zip(whole.handed, parts.handed, strict=True)):
        assert differing(one, other) == [], f"step {step} differs after a resume"
    assert differing(outcome(checker.directory), left) == []
    counts.sessions += 1
    counts.resumes += parts.resumes
    counts.most_compressions = max(counts.most_compressions, counts.compressions - before)


def check_sessions(paths: Sequence[Path], folder: Path, size: int, *, most: int | None = None) -> Counts:
    counts = Counts()
    for path in paths:
        try:
            (folder / path.stem).mkdir()
            asyncio.run(check_session(path, folder / path.stem, size, counts, most=most))
        except Exception as error:
            error.add_note(f"in {path.stem}, at {size:,} tokens")
            raise
    return counts


@pytest.mark.parametrize("size", SAMPLE)
def test_all_that_must_hold_holds_at_every_step_of_some_recorded_sessions(
    shared_data: Path, tmp_path: Path, size: int
) -> None:
    paths = [shared_data / "sessions" / f"{name}.jsonl" for name in SAMPLE[size]]
    counts = check_sessions(paths, tmp_path, size, most=MOST_MESSAGES)

    assert counts.compressions
    assert counts.resumes


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
def test_all_that_must_hold_holds_at_every_step_of_every_recorded_session(
    shared_data: Path, tmp_path: Path, size: int
) -> None:
    counts = check_sessions(sorted((shared_data / "sessions").glob("*.jsonl")), tmp_path, size)

    assert counts.compressions
    assert counts.resumes > counts.sessions


def invented() -> list[Raw]:
    """Return a conversation whose last tool result is large, with messages before it that leave a small window."""
    messages: list[Raw] = [{"role": "system", "content": "Be exact."}]
    for number in range(20):
        function = {"name": "run", "arguments": json.dumps({"command": f"make part_{number}"})}
        call = {"id": f"c{number}", "type": "function", "function": function}
        text = f"part_{number} was built\n" * (900 if number == 19 else 60)
        messages += [
            {"role": "user", "content": f"Build part_{number}."},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{number}", "content": text},
        ]
    return messages


def without_a_message(handed: list[Raw], _: Path) -> list[Raw]:
    return handed[:-2] + handed[-1:]


def with_two_exchanged(handed: list[Raw], _: Path) -> list[Raw]:
    return [*handed[:-2], handed[-1], handed[-2]]


def with_another_word(handed: list[Raw], _: Path) -> list[Raw]:
    return [*handed[:-3], {**handed[-3], "content": "Do something else."}, *handed[-2:]]


def with_a_result_gone(handed: list[Raw], directory: Path) -> list[Raw]:
    next(directory.glob("tool_result-*")).unlink()
    return handed


def with_an_archive_cut(handed: list[Raw], directory: Path) -> list[Raw]:
    path = directory / "context.jsonl"
    path.write_bytes(path.read_bytes().split(b"\n", 1)[1])
    return handed


def with_a_line_less_than_a_pointer_names(handed: list[Raw], directory: Path) -> list[Raw]:
    (directory / "transcript.md").write_text("short\n", encoding="utf-8")
    return handed


def with_another_window_on_disk(handed: list[Raw], directory: Path) -> list[Raw]:
    path = directory / "window.jsonl"
    path.write_bytes(path.read_bytes().replace(b"part_19", b"part_91"))
    return handed


BREAKS: list[Callable[[list[Raw], Path], list[Raw]]] = [
    without_a_message,
    with_two_exchanged,
    with_another_word,
    with_a_result_gone,
    with_an_archive_cut,
    with_a_line_less_than_a_pointer_names,
    with_another_window_on_disk,
]


async def handed_out(workdir: Path) -> tuple[ContextWindow, list[Any]]:
    async with LocalWorkspace(workdir, durability="off") as workspace:
        window = ContextWindow(session_id="Recorded", offloader=workspace, size=8_000)
        for message in invented():
            await window.add(message)
        return window, await window.prepare()


@pytest.mark.parametrize("broken", BREAKS, ids=lambda broken: broken.__name__)
async def test_the_checker_notices_what_is_broken(
    tmp_path: Path, broken: Callable[[list[Raw], Path], list[Raw]]
) -> None:
    window, handed = await handed_out(tmp_path)
    checker = Checker(tmp_path, 8_000, 500, Counts(), fed=invented())
    with pytest.raises((AssertionError, OSError)):
        checker.step(broken(handed, checker.directory), window.tokens, window.exceeding())


async def test_the_checker_notices_a_wrong_total_and_a_prefix_that_changes(tmp_path: Path) -> None:
    window, handed = await handed_out(tmp_path)
    checker = Checker(tmp_path, 8_000, 500, Counts(), fed=invented())
    with pytest.raises(AssertionError):
        checker.step(handed, window.tokens + 1, window.exceeding())
    checker = Checker(tmp_path, 8_000, 500, Counts(), fed=invented())
    checker.step(handed, window.tokens, window.exceeding())
    checker.shown[0] = b"{}"
    with pytest.raises(AssertionError, match="changed without a compression"):
        checker.step(handed, window.tokens, window.exceeding())


if __name__ == "__main__":
    for tokens in SIZES:
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as temporary:
            found = check_sessions(sorted(Path(sys.argv[1]).glob("*.jsonl")), Path(temporary), tokens)
        print(f"window {tokens:,}: {time.perf_counter() - began:.0f} s, {asdict(found)}")  # noqa: T201
