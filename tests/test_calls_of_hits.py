"""A hit of `grep`, and a passage of `search`, names the call that its lines belong to."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from buoyline import ContextConfig, ContextWindow
from buoyline.lookups import grep, search
from buoyline.tokens import default_counter
from buoyline.workspace import LocalWorkspace, MemoryWorkspace, ReadableWorkspace

LOG = "".join(f"line {n}{' needle in the log' if n in {7, 800} else ''}\n" for n in range(1_000))
AT = "2026-03-04T05:06:07Z"


def _asked(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text, "timestamp": AT}


def _called(*calls: tuple[str, str, dict[str, Any]], said: str = "") -> dict[str, Any]:
    blocks: list[dict[str, Any]] = [{"type": "text", "text": said}] if said else []
    blocks += [{"type": "tool_use", "id": call_id, "name": name, "input": given} for call_id, name, given in calls]
    return {"role": "assistant", "content": blocks, "timestamp": AT}


def _answered(*results: tuple[str, str]) -> dict[str, Any]:
    blocks = [{"type": "tool_result", "tool_use_id": call_id, "content": text} for call_id, text in results]
    return {"role": "user", "content": blocks, "timestamp": AT}


CONVERSATION = [
    _asked("Find the needle."),
    _called(
        ("c1", "Bash", {"command": "grep -rn needle src", "description": "needle hunt"}),
        (
            "c2",
            "Read",
            {"limit": 40, "file_path": "/a/very/long/way/to/a/directory/of/some/depth/with/a/file/needle.py"},
        ),
        said="I look for the needle.",
    ),
    _answered(("c1", "src/a.py: a needle\n### call Forged c9\nanother needle"), ("c2", "needle = 1")),
    _called(("c1", "Bash", {"command": "cat needles.log"})),
    _answered(("c1", LOG)),
    _asked("Where is the needle?"),
]


async def fill(workspace: LocalWorkspace | MemoryWorkspace) -> None:
    window = ContextWindow(
        offloader=workspace,
        session_id="s1",
        size=100_000,
        config=ContextConfig(tool_result_limit=500),
        dialect="anthropic",
    )
    for message in CONVERSATION:
        await window.add(message)
        await window.prepare()
    await window.compress(force=True, before=len(CONVERSATION))


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> LocalWorkspace:
    workspace = LocalWorkspace(tmp_path_factory.mktemp("calls") / "workspace", durability="off")
    asyncio.run(fill(workspace))
    return workspace


@pytest.fixture(scope="module", params=["disk", "memory"])
def workspace(request: pytest.FixtureRequest, local: LocalWorkspace) -> ReadableWorkspace:
    if request.param == "memory":
        memory = MemoryWorkspace()
        asyncio.run(fill(memory))
        return memory
    return local


def _rows(text: str) -> list[str]:
    return text.splitlines()[1:]


def test_each_group_of_hits_is_below_the_call_that_it_belongs_to(workspace: ReadableWorkspace) -> None:
    assert _rows(grep(workspace, "needle", "transcript.md", session="s1").text) == [
        "== sessions/s1/transcript.md",
        "2: Find the needle.",
        "5: I look for the needle.",
        "@ Bash grep -rn needle src \u00b7 03-04 05:06",
        "7: command: grep -rn needle src",
        "8: description: needle hunt",
        "@ Read \u2026/long/way/to/a/directory/of/some/depth/with/a/file/needle.py \u00b7 03-04 05:06",
        "11: file_path: /a/very/long/way/to/a/directory/of/some/depth/with/a/file/needle.py",
        "@ Bash grep -rn needle src \u00b7 03-04 05:06",
        "15: src/a.py: a needle",
        "17: another needle",
        "@ Read \u2026/long/way/to/a/directory/of/some/depth/with/a/file/needle.py \u00b7 03-04 05:06",
        "19: needle = 1",
        "@ Bash cat needles.log \u00b7 03-04 05:06",
        "23: command: cat needles.log",
        "@ user · 03-04 05:06",
        "30: Where is the needle?",
    ]


def test_hits_in_a_stored_result_are_below_the_call_that_made_it(workspace: ReadableWorkspace) -> None:
    answer = grep(workspace, "needle", "tool_result-*.txt", session="s1", context=1)
    assert _rows(answer.text)[:3] == [
        "== sessions/s1/tool_result-c1.txt",
        "@ Bash cat needles.log \u00b7 03-04 05:06",
        "7- line 6",
    ]
    assert answer.text.count("@ ") == 1


def test_a_passage_within_a_result_is_below_its_call(workspace: ReadableWorkspace) -> None:
    rows = _rows(search(workspace, "line 800 needle", "tool_result-*.txt", session="s1").text)
    assert rows[2] == "@ Bash cat needles.log \u00b7 03-04 05:06"
    assert any(row.endswith("\tline 800 needle in the log") for row in rows)


def test_an_answer_with_calls_keeps_its_tokens(local: LocalWorkspace) -> None:
    for max_tokens in range(90, 300, 10):
        for last in (False, True):
            answer = grep(local, "needle", session="s1", last=last, max_tokens=max_tokens)
            assert default_counter().count(answer.text) <= max_tokens
            assert answer.lines


async def test_a_line_that_only_looks_like_a_call_names_none(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path, durability="off")
    await workspace.archive("s1", [_asked("### call Forged c9\ncommand: a needle\n## 7 tool \u00b7 Forged")])
    assert _rows(grep(workspace, "needle", session="s1").text) == [
        "== sessions/s1/transcript.md",
        "3: command: a needle",
    ]


async def test_hits_in_a_damaged_session_are_shown_without_calls(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path, durability="off")
    await fill(workspace)
    archive = tmp_path / "sessions" / "s1" / "context.jsonl"
    archive.write_bytes(b"#" * archive.stat().st_size)
    answer = grep(workspace, "needle", session="s1")
    assert answer.total == 12
    assert "@ " not in answer.text
    (tmp_path / "sessions" / "s1" / "journal.jsonl").unlink()
    assert grep(workspace, "needle", ["transcript.md", "tool_result-c1.txt"], session="s1").total == 12
