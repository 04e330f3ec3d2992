"""A heading of the transcript has the time of its message, not that of the moment at which it was archived."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buoyline import ContextWindow
from buoyline.maintenance.verify import verify
from buoyline.messages.jsonl import now, time_from, time_of
from buoyline.workspace import LocalWorkspace

SAID = "2026-03-04T05:06:07.890Z"

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


async def test_messages_that_a_window_takes_have_the_time_of_adding(tmp_path: Path) -> None:
    before = now()
    window = await ContextWindow.open(LocalWorkspace(tmp_path), "s1", size=8_000)
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


async def test_a_message_has_its_own_time_else_that_of_adding(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path)
    window = await ContextWindow.open(workspace, "s1")
    await window.add(said("a", timestamp=SAID))
    await window.add(said("b"), time=SAID)
    await window.add(said("c", timestamp="tea time"))
    again = await ContextWindow.open(workspace, "s1")
    await again.compress(before=3)
    *first, last = headings(transcript(tmp_path))
    assert first == [f"## 0 user · {SAID}", f"## 1 user · {SAID}"]
    assert now()[:4] in last
