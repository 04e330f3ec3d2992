"""A heading of the transcript has the time of its message, not that of the moment at which it was archived."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buoyline import ContextWindow
from buoyline.maintenance.repair import repair
from buoyline.maintenance.verify import verify
from buoyline.messages.times import now, time_from, time_of
from buoyline.workspace import LocalWorkspace, MemoryWorkspace

SAID = "2026-03-04T05:06:07.890Z"
ADDED = "2026-03-04T05:06:09.000Z"

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40) | st.datetimes().map(str),
    lambda inner: st.lists(inner, max_size=2),
    max_leaves=3,
)


def said(text: str, **fields: Any) -> dict[str, Any]:
    return {"role": "user", "content": text, **fields}


def headings(transcript: str) -> list[str]:
    return re.findall(r"^## \d+ .*$", transcript, re.MULTILINE)


def transcript(workdir: Path) -> str:
    return (workdir / "sessions/s1/transcript.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("value", "time"),
    [
        (SAID, SAID),
        ("2026-03-04T07:06:07.890+02:00", SAID),
        ("2026-03-04 05:06:07.890123", "2026-03-04T05:06:07.890"),
        (1772600767.89, SAID),
        (1772600767890, SAID),
        ("1970-01-01T00:00:00", ""),
        ("2026-03-04", ""),
        ("9999-12-31T23:59:59-12:00", ""),
        ("ten past five: at tea", ""),
        (7, ""),
        (True, ""),
        (10**400, ""),
        (float("nan"), ""),
        (None, ""),
    ],
)
def test_a_time_is_read_in_the_forms_that_messages_have_it_in(value: object, time: str) -> None:
    assert time_from(value) == time


@given(json_values)
def test_whatever_stands_in_the_place_of_a_time_is_a_time_or_nothing(value: object) -> None:
    found = time_of({"timestamp": value})
    assert found == "" or re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z?", found)
    assert time_from(found) == found


def test_agentscope_messages_have_their_own_field() -> None:
    assert time_of({"role": "user", "content": [], "created_at": SAID, "timestamp": None}) == SAID


@pytest.mark.parametrize("keeper", ["disk", "memory"])
async def test_a_message_has_its_own_time_else_that_of_adding_else_none(tmp_path: Path, keeper: str) -> None:
    workspace = LocalWorkspace(tmp_path) if keeper == "disk" else MemoryWorkspace()
    messages = [said("a", timestamp=SAID), said("b"), said("c"), said("d", timestamp="tea time")]
    batch = await workspace.archive("s1", messages, times=[ADDED, ADDED, "", "tea\n## time"])
    lines = await workspace.transcript_lines("s1", 0, 4)
    assert [shown[0] for shown in lines] == [f"## 0 user · {SAID}", f"## 1 user · {ADDED}", "## 2 user", "## 3 user"]
    assert len(batch.lines) == 4


async def test_messages_that_a_window_takes_have_the_time_of_adding(tmp_path: Path) -> None:
    before = now()
    window = ContextWindow(session_id="s1", offloader=LocalWorkspace(tmp_path), size=8_000)
    for number in range(20):
        await window.add(said(f"message {number} " + "word " * 50))
    added = now()
    while now() == added:
        pass
    await window.compress(force=True)
    times = [heading.rpartition(" · ")[2] for heading in headings(transcript(tmp_path))]
    assert times == sorted(times)
    assert times
    assert all(before <= time <= added for time in times)
    assert verify(LocalWorkspace(tmp_path)).findings == ()


@pytest.mark.parametrize("keeper", ["disk", "memory"])
async def test_a_resume_keeps_the_times_of_adding(tmp_path: Path, keeper: str) -> None:
    workspace = LocalWorkspace(tmp_path) if keeper == "disk" else MemoryWorkspace()
    window = ContextWindow(session_id="s1", offloader=workspace, size=8_000)
    for number in range(12):
        await window.add(said(f"message {number} " + "word " * 300, **({"timestamp": SAID} if number % 2 else {})))
        if number % 5 == 0:
            await window.prepare()
    await window.compress(force=True)
    await window.add(said("one more"))
    await window.prepare()
    before = await workspace.load_window("s1")
    resumed = await ContextWindow.resume(workspace, "s1")
    for number in range(4):
        await resumed.add(said(f"and another {number} " + "word " * 300))
        await resumed.prepare()
    await resumed.compress(force=True)
    after = await workspace.load_window("s1")
    assert after.archived > before.archived > 0
    assert all(time_from(time) == time for time in before.times[1:])
    assert after.times[-1] > before.times[-1] > ""
    shown = [lines[0] for lines in await workspace.transcript_lines("s1", 0, after.archived)]
    assert [heading for heading in shown if SAID in heading] == [f"## {n} user · {SAID}" for n in range(1, 12, 2)]
    assert all(" · " in heading for heading in shown)


async def test_the_same_batch_again_keeps_the_times_that_it_was_committed_with(tmp_path: Path) -> None:
    first = await LocalWorkspace(tmp_path).archive("s1", [said("a"), said("b")], batch_id="one", times=[ADDED, ""])
    before = transcript(tmp_path)
    again = await LocalWorkspace(tmp_path).archive("s1", [said("a"), said("b")], batch_id="one", times=[SAID, SAID])
    assert again == first
    assert transcript(tmp_path) == before


@settings(max_examples=25)
@given(st.lists(st.tuples(json_values, st.sampled_from(["", ADDED, SAID])), min_size=1, max_size=4))
async def test_a_lost_transcript_is_rendered_with_the_same_times(
    tmp_path_factory: pytest.TempPathFactory, given_times: list[tuple[Any, str]]
) -> None:
    workdir = tmp_path_factory.mktemp("times")
    messages = [said(f"message {number}", timestamp=own) for number, (own, _) in enumerate(given_times)]
    try:
        json.dumps(messages, allow_nan=False).encode()
    except ValueError:
        return
    workspace = LocalWorkspace(workdir, durability="off")
    await workspace.archive("s1", messages, times=[added for _, added in given_times])
    written = transcript(workdir)
    assert verify(workspace).findings == ()
    (workdir / "sessions/s1/transcript.md").unlink()
    repair(workspace)
    assert transcript(workdir) == written
    assert verify(workspace).findings == ()
