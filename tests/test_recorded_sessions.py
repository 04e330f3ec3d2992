"""Recorded sessions, compaction after compaction, with all that must hold checked at every step.

``python tests/test_recorded_sessions.py FOLDER`` replays all recordings in a folder.
"""

import asyncio
import json
import random
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from window_lives import check_valid

from buoyline import ContextWindow, LocalWorkspace
from buoyline.maintenance.verify import verify
from buoyline.messages.registry import detect
from buoyline.offloader.transcript import render
from buoyline.tokens import default_counter
from buoyline.tokens.counter import count_message
from buoyline.window import ContextCompressed, ContextManaged, Event, ResultOffloaded

SIZES = (8_000, 32_000, 128_000)

SAMPLE = [
    (8_000, "", "cc_entire_00-c9e2351016-2"),  # a result without a call
    (8_000, "", "deerflow_replay_github-top-trending-repo"),  # every call id is empty
    (8_000, "", "deerflow_thread_21cfea46"),  # system messages in the middle, a late result
    (4_000, "", "sweagent_marshmallow_xml"),  # tool output in user messages
    (8_000, "", "tau_airline_task02_trial1"),  # ids that repeat
    (32_000, "", "cc_entire_fc-99c919b212-0"),  # a picture
    (8_000, "tool-heavy", "cc_entire_02-1a892a9da1-0"),
    (8_000, "long-conversations", "tau_airline_task02_trial1"),
    (32_000, "tool-heavy-with-summarization", "cc_entire_86-4e0c91f5c0-0"),
]
"""Window, document and session of what `make test` replays; `make test-slow` replays everything."""

MOST_MESSAGES = 110

STOPS = 0.15
"""Share of the steps at which another process goes on."""

COUNTER = default_counter()


def recording(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


class Life:
    """One conversation through windows of one session, each step checked."""

    def __init__(self, workdir: Path, size: int, document: str) -> None:
        self.workspace, self.size = LocalWorkspace(workdir, durability="off"), size
        self.options: dict[str, Any] = {"management": document} if document else {}
        self.events: list[Event] = []
        self.fed: list[dict[str, Any]] = []
        self.handed: list[str] = []
        self.compactions = self.reopened = 0

    async def go(self, conversation: Sequence[dict[str, Any]], chance: random.Random) -> None:
        """Feed it as an agent does: a model call before each answer, and one at the end."""
        self.window = await self._opened(size=self.size, **self.options)
        for message in conversation:
            if message["role"] == "assistant":
                await self._step()
            self.fed.append(message)
            await self.window.add(message)
            if chance.random() < STOPS:
                before, self.window = self.window, await self._opened()
                assert self.window.messages == before.messages, "another process sees another context"
                self.reopened += 1
        await self._step()
        self._check_disk()

    async def _opened(self, **options: Any) -> ContextWindow:
        return await ContextWindow.open(self.workspace, "s1", on_event=self.events.append, **options)

    async def _step(self) -> None:
        handed = await self.window.prepare()
        check_valid(handed)
        assert self.window.tokens == sum(count_message(detect(one).view(one), COUNTER) for one in handed)
        assert self.window.tokens <= self.size or self.window.exceeding()
        spelled = [json.dumps(message) for message in handed]
        told = [event for event in self.events if not isinstance(event, ResultOffloaded) or event.message < self.last]
        if not told:
            assert spelled[: len(self.handed)] == self.handed, "what was handed out changed without an event"
        self.compactions += sum(isinstance(event, ContextCompressed | ContextManaged) for event in told)
        self.events.clear()
        self.handed, self.last = spelled, self.window.added

    last = 0

    def _check_disk(self) -> None:
        """Every message is in the log once and in order, whole or with a stub whose file has every byte."""
        session = self.workspace.stored("s1")
        lines = [line for line in session.read(range(session.state.end)) if not line.ours]
        assert len(lines) == len(self.fed)
        directory = self.workspace.workdir / session.name
        for given, line in zip(self.fed, lines, strict=True):
            native = session.with_payloads(line)
            if line.stored:
                self._check_stubs(given, native, directory)
            else:
                assert native == given
        transcript = (directory / "transcript.md").read_text("utf-8").split("\n")
        for number, (first, end) in session.state.places.items():
            (line,) = session.read([number])
            shown = render([detect(line.value).view(line.value)], number, [line.time], lambda _: None)[0]
            assert transcript[first - 1].startswith(shown[0][: shown[0].index(" ", 3)])
            assert end > first
        for summary in session.summaries():
            for pointer in summary["pointers"]:
                count = len((directory / pointer["path"]).read_bytes().split(b"\n"))
                assert 1 <= pointer["start"] <= pointer["end"] <= count
        assert [str(found) for found in verify(self.workspace).findings] == []

    def _check_stubs(self, given: dict[str, Any], native: dict[str, Any], directory: Path) -> None:
        (whole,), (shown,) = (detect(one).view(one).results or (None,) for one in (given, native))
        if whole is None or shown is None:  # arguments or images
            return
        named = [directory / name for name in re.findall(r"tool_result-[A-Za-z0-9._~-]+?\.txt", shown.text)]
        files = [path.with_name(path.name.replace(".view.txt", ".txt")) for path in named]
        assert whole.text.encode("utf-8", "surrogatepass") in [path.read_bytes() for path in files if path.exists()]


def check(path: Path, workdir: Path, size: int, document: str = "", most: int | None = None) -> Life:
    life = Life(workdir, size, document)
    try:
        asyncio.run(life.go(recording(path)[:most], random.Random(f"{path.stem} {size}")))  # noqa: S311 - repeatable
    except Exception as error:
        error.add_note(f"in {path.stem} at {size:,} tokens {document}")
        raise
    return life


@pytest.mark.parametrize(("size", "document", "name"), SAMPLE)
def test_all_that_must_hold_holds_at_every_step_of_some_recorded_sessions(
    shared_data: Path, tmp_path: Path, size: int, document: str, name: str
) -> None:
    life = check(shared_data / "sessions" / f"{name}.jsonl", tmp_path, size, document, MOST_MESSAGES)
    assert life.compactions
    assert life.reopened


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
def test_all_that_must_hold_holds_at_every_step_of_every_recorded_session(
    shared_data: Path, tmp_path: Path, size: int
) -> None:
    lives = [check(path, tmp_path / path.stem, size) for path in sorted((shared_data / "sessions").glob("*.jsonl"))]
    assert sum(life.reopened for life in lives) > len(lives)


if __name__ == "__main__":
    for tokens in SIZES:
        for recorded in sorted(Path(sys.argv[1]).glob("*.jsonl")):
            with tempfile.TemporaryDirectory() as temporary:
                print(tokens, recorded.stem, check(recorded, Path(temporary), tokens).compactions)  # noqa: T201
