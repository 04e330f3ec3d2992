"""The facts of summaries: all of them are kept beside `summaries.jsonl`, and each summary chooses among them again."""

import asyncio
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from buoyline.compression.summary import FEW_FACTS, Summary, summary_from
from buoyline.maintenance.gc import Retention, collect
from buoyline.maintenance.verify import verify
from buoyline.messages import spell
from buoyline.tokens import default_counter
from buoyline.window import ContextCompressed, ContextWindow, Event
from buoyline.workspace import LocalWorkspace, MemoryWorkspace

ITEMS = [{"text": f"fact {number}"} for number in range(40)]
WORK = {"plan": ["push the branch"]}
SUMMARY = {"text": "short", "items": ITEMS, "work": WORK}
S1 = Path("sessions/s1")
SIZE = 16_000
TASK = "Move the gateway to port 8443. Never touch anything under legacy/."
CHANGED = "app/gateway.py"


def turn(number: int, name: str = "Bash", **arguments: object) -> list[dict[str, Any]]:
    """Return a call and a result of about 150 tokens."""
    call = {"id": f"c{number}", "type": "function"}
    function = {"name": name, "arguments": json.dumps(arguments or {"command": f"cat part_{number}.py"})}
    result = "\n".join(f"{number}: row {row} of part_{number} is as it was" for row in range(12))
    return [
        {"role": "assistant", "content": f"Looking at part {number}.", "tool_calls": [{**call, "function": function}]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": result},
    ]


def work(turns: int) -> list[dict[str, Any]]:
    """Return a task, a change, and so many calls."""
    edit = turn(0, "Edit", file_path=CHANGED, old_string="80", new_string="8443")
    return [{"role": "user", "content": TASK}, *edit, *(message for at in range(1, turns) for message in turn(at))]


def paste(tokens: int) -> dict[str, Any]:
    """Return a message of just so many tokens or a few less."""
    line = "the harbour log repeats itself in plain words\n"
    return {"role": "user", "content": line * ((tokens - 8) // default_counter().count(line))}


async def fed(window: ContextWindow, messages: list[dict[str, Any]]) -> None:
    for message in messages:
        await window.add(message)
        await window.prepare()


def at(workdir: Path) -> LocalWorkspace:
    return LocalWorkspace(workdir, durability="off")


def facts_in(workdir: Path) -> list[str]:
    return sorted(path.name for path in (workdir / S1).glob("facts-*"))


def kept(events: list[Event]) -> list[Summary]:
    return [event.summary for event in events if isinstance(event, ContextCompressed)]


@pytest.fixture(scope="module")
def squeezed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A session whose second summary, of two, has room for next to nothing."""
    workdir = tmp_path_factory.mktemp("squeezed") / "workspace"

    async def fill() -> None:
        window = ContextWindow(session_id="s1", offloader=at(workdir), size=SIZE)
        await fed(window, [*work(80), paste(int(0.996 * SIZE))])

    asyncio.run(fill())
    return workdir


@pytest.fixture
def workdir(squeezed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(squeezed, tmp_path / "workspace"))


async def next_summary(workdir: Path) -> Summary:
    events: list[Event] = []
    window = await ContextWindow.resume(at(workdir), "s1", on_event=events.append)
    await fed(window, [message for number in range(100, 170) for message in turn(number)])
    return kept(events)[-1]


async def test_a_line_of_the_log_is_what_people_read_and_names_the_file_with_the_rest(tmp_path: Path) -> None:
    workspace = at(tmp_path)
    await workspace.append_summary("s1", SUMMARY)
    (line,) = map(json.loads, (tmp_path / S1 / "summaries.jsonl").read_text("utf-8").splitlines())
    assert line.keys() == {"text", "n", "facts"}
    content = (tmp_path / S1 / line["facts"]["path"]).read_text("utf-8")
    assert [json.loads(part) for part in content.splitlines()] == [{"n": 1, "work": WORK}, *ITEMS]
    assert await workspace.load_summaries("s1") == [{**SUMMARY, "n": 1}]


@pytest.mark.parametrize(
    "summary", [{"text": "t"}, {"text": "t", "items": []}, {"items": "?"}, {"items": [], "work": 1}]
)
async def test_a_summary_without_facts_of_our_form_is_one_line(tmp_path: Path, summary: dict[str, Any]) -> None:
    await at(tmp_path).append_summary("s1", summary)
    assert await at(tmp_path).load_summaries("s1") == [{**summary, "n": 1}]
    assert facts_in(tmp_path) == []


async def test_the_facts_of_the_last_two_summaries_are_kept(tmp_path: Path) -> None:
    for number in range(1, 8):
        await at(tmp_path).append_summary("s1", {**SUMMARY, "text": str(number)})
        assert facts_in(tmp_path) == [f"facts-{kept}.jsonl" for kept in range(max(number - 1, 1), number + 1)]
    found = await at(tmp_path).load_summaries("s1")
    assert [summary["text"] for summary in found] == [str(number) for number in range(1, 8)]
    assert [summary.keys() >= SUMMARY.keys() for summary in found] == [False] * 5 + [True] * 2


async def test_facts_without_a_line_are_replaced_and_old_ones_that_a_crash_left_are_removed(tmp_path: Path) -> None:
    for _ in range(4):
        await at(tmp_path).append_summary("s1", SUMMARY)
    for number in (1, 2, 5):
        (tmp_path / S1 / f"facts-{number}.jsonl").write_bytes(b"of a crash")
    assert verify(at(tmp_path)).findings == ()
    await at(tmp_path).append_summary("s1", {**SUMMARY, "text": "five"})
    assert facts_in(tmp_path) == ["facts-4.jsonl", "facts-5.jsonl"]
    assert (await at(tmp_path).load_summaries("s1"))[-1] == {**SUMMARY, "text": "five", "n": 5}


def counted(real: Callable[[int], None], syncs: list[int]) -> Callable[[int], None]:
    def sync(descriptor: int) -> None:
        syncs.append(descriptor)
        real(descriptor)

    return sync


async def test_a_summary_with_facts_takes_two_syncs_more_and_other_calls_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = LocalWorkspace(tmp_path)
    syncs: list[int] = []
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, counted(getattr(os, name), syncs))

    async def count(summary: dict[str, Any]) -> int:
        syncs.clear()
        await workspace.append_summary("s1", summary)
        return len(syncs)

    await count(SUMMARY)
    without = await count({"text": "short"})
    assert [await count(SUMMARY) for _ in range(3)] == [without + 2] * 3
    syncs.clear()
    await workspace.archive("s1", [{"role": "user", "content": "hello"}])
    assert len(syncs) == 2


async def test_what_a_squeezed_summary_omits_is_said_again_after_a_resume(workdir: Path) -> None:
    before = await at(workdir).load_summaries("s1")
    assert CHANGED not in before[-1]["text"]
    assert f"Changed: {CHANGED}" in (await next_summary(workdir)).text


@pytest.mark.parametrize(
    "damage", [Path.unlink, lambda path: path.write_bytes(b""), lambda path: path.write_bytes(b"[")]
)
async def test_a_summary_whose_facts_are_lost_is_continued_from_its_sentences(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    await fed(ContextWindow(session_id="s1", offloader=at(tmp_path), size=SIZE), work(80))
    damage(tmp_path / S1 / facts_in(tmp_path)[-1])
    assert {found.kind for found in verify(at(tmp_path)).findings} == {"lost-facts"}
    last = summary_from((await at(tmp_path).load_summaries("s1"))[-1])
    assert (last.draft.items, last.draft.work) == ((), None)
    assert "8443" in last.text
    for _ in range(2):
        assert "8443" in (await next_summary(tmp_path)).text
    assert verify(at(tmp_path)).is_sound, "the facts of older summaries are no longer needed"


async def test_all_candidates_of_a_summary_are_kept_and_what_is_replaced_is_not(tmp_path: Path) -> None:
    events: list[Event] = []
    window = ContextWindow(session_id="s1", offloader=at(tmp_path), size=SIZE, on_event=events.append)
    rules = [f"Rule {number}: never touch app/part_{number}/store.py." for number in range(300)]
    await fed(window, [{"role": "user", "content": rule} for rule in rules])
    await fed(window, [message for number in range(140) for message in turn(number)])
    assert len(kept(events)) > 1
    known = {item.text for item in kept(events)[-1].draft.items}
    assert [rule for rule in rules if rule not in known] == []
    resumed = summary_from((await at(tmp_path).load_summaries("s1"))[-1])
    assert {item.text for item in resumed.draft.items} == known


def test_where_room_is_short_a_summary_has_its_own_facts_and_few_others(squeezed: Path) -> None:
    summary = summary_from(at(squeezed).session("s1").summaries_with_facts()[-1])
    few = summary.with_few_facts().draft.items
    shown = [item for item in summary.draft.items if item.is_shown]
    assert [item for item in few if item.is_shown] == shown
    unsaid = [item for item in few if not item.is_shown]
    assert len(unsaid) <= FEW_FACTS
    assert len(few) <= len(summary.draft.items)
    assert len(spell(summary.without_facts().to_json())) < 16_000


async def test_a_workspace_in_memory_keeps_the_facts_of_two_summaries() -> None:
    workspace = MemoryWorkspace()
    for _ in range(5):
        await workspace.append_summary("s1", SUMMARY)
    assert [name for name in workspace.files.names("sessions/s1") if "facts" in name] == [
        "facts-4.jsonl",
        "facts-5.jsonl",
    ]


async def test_redaction_leaves_no_secret_in_the_facts(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path, redact=lambda text: text.replace("hunter2", "***"))
    secret = {
        "items": [{"text": "the password is hunter2"}],
        "work": {"files": {"hunter2.txt": {"path": "hunter2.txt"}}},
    }
    await workspace.append_summary("s1", {"text": "t", **secret})
    assert b"hunter2" not in b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    (found,) = await workspace.load_summaries("s1")
    assert found["items"] == [{"text": "the password is ***"}]


def test_gc_removes_the_facts_with_their_session(workdir: Path) -> None:
    collect(at(workdir), Retention(max_sessions=0), grace_s=0, dry_run=False)
    assert not list(workdir.rglob("facts-*"))
