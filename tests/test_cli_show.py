"""``buoyline sessions`` and ``buoyline show``."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from command_line import buoyline

from buoyline.workspace import LocalWorkspace

SUMMARY = {
    "messages": [0, 20],
    "summarizer": "extractive",
    "fields": {"task_overview": "Answer \x1b[31mquestions. " * 30, "next_steps": "Go on."},
    "pointers": [],
    "unverified": [],
    "source_tokens": 12_345,
    "tokens": 321,
    "text": "What happened\nso far: \x1b[31mred",
}


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with a session that has an archive, a result, a summary and a window, and one of one message."""
    made = LocalWorkspace(tmp_path_factory.mktemp("cli") / "workspace", durability="off")
    messages = [{"role": "user", "content": f"question {number}\nplease answer"} for number in range(20)]
    result = {"role": "tool", "tool_call_id": "c1", "content": "one\nError: disk full\nthree\n"}

    async def fill() -> None:
        async with made:
            await made.start_window("s1", {})
            await made.archive("s1", messages)
            await made.offload_tool_result("s1", result)
            await made.append_summary("s1", SUMMARY)
            recent = {"role": "user", "content": "question 20"}
            await made.replace_window("s1", [{"role": "user", "content": "summary"}, recent], ["summary"], 20, [])
            await made.archive("other\nsession", messages[:1])

    asyncio.run(fill())
    return made.workdir


def _shown(workdir: Path, *args: object) -> str:
    done = buoyline(*args, "--workdir", workdir)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def _json(workdir: Path, *args: object) -> Any:
    return json.loads(_shown(workdir, *args, "--json"))


def test_sessions_are_listed_with_their_numbers_and_the_total(workdir: Path) -> None:
    lines = _shown(workdir, "sessions").splitlines()
    assert lines[0].split() == ["session", "messages", "results", "bytes", "created"]
    assert [line.split()[:3] for line in lines if line.startswith("s1 ")] == [["s1", "21", "1"]]
    assert all(line.endswith(" s ago") for line in lines[1:-1])
    assert lines[-1].split()[:4] == ["2", "sessions", "22", "1"]
    assert len(lines) == 4  # the line end in an id is shown, not obeyed
    found = {session["id"]: session for session in _json(workdir, "sessions")}
    assert found["s1"].items() >= {"messages": 21, "archived": 20, "in_context": 2, "tool_results": 1}.items()
    assert found["s1"]["bytes"] == sum(path.stat().st_size for path in (workdir / "sessions/s1").iterdir())
    assert found["other\nsession"]["messages"] == 1


def test_a_workspace_without_sessions_is_no_error(tmp_path: Path) -> None:
    asyncio.run(LocalWorkspace(tmp_path, durability="off").initialize())
    assert _shown(tmp_path, "sessions") == "no sessions yet\n"
    assert _json(tmp_path, "sessions") == []


@pytest.mark.parametrize("name", ["window.jsonl", "session.json"])
def test_a_damaged_session_is_named_and_the_others_are_listed(workdir: Path, tmp_path: Path, name: str) -> None:
    path = Path(shutil.copytree(workdir, tmp_path / "w")) / "sessions/s1" / name
    path.unlink()
    path.symlink_to("elsewhere")
    done = buoyline("sessions", "--workdir", tmp_path / "w")
    assert done.returncode == 1
    assert "other" in done.stdout
    assert "s1" not in done.stdout
    assert "is left out: " in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_session_is_shown_with_its_files_and_its_last_summary_in_short(workdir: Path) -> None:
    shown = _shown(workdir, "show", "s1")
    assert "21 messages: 20 archived, 1 live. In context: the summary + 1 message\n1 tool result, 1 summary\n" in shown
    assert "  tool_result-c1.txt  27\n" in shown
    assert "summary 1: messages 0-19, 12,345 tokens in 321" in shown
    assert "  next_steps: Go on." in shown
    assert max(map(len, shown.splitlines())) < 250
    found = _json(workdir, "show", "s1")
    assert {file["name"] for file in found["files"]} >= {"context.jsonl", "journal.jsonl", "tool_result-c1.txt"}
    assert found["summary"]["n"] == 1


def test_a_session_is_shown_in_full_on_demand(workdir: Path) -> None:
    assert r"so far: \x1b[31mred" in _shown(workdir, "show", "s1", "--full")


def test_messages_are_shown_by_their_numbers_from_the_archive_into_the_context(workdir: Path) -> None:
    shown = _shown(workdir, "show", "s1", "--messages", "7-8")
    assert [f"question {number}\n" in shown for number in (6, 7, 8, 9)] == [False, True, True, False]
    assert [line["text"] for line in _json(workdir, "show", "s1", "--messages", "7")][1] == "question 7"
    shown = _shown(workdir, "show", "s1", "--messages", "19-20")
    assert "question 19\n" in shown
    assert "-\t## 20 user · in the context\n-\tquestion 20\n" in shown
    beyond = buoyline("show", "s1", "--messages", "19-21", "--workdir", workdir)
    assert beyond.returncode == 1
    assert "no messages '19-21'; session 's1': its messages are 0-20" in beyond.stderr


@pytest.mark.parametrize("number", [[], ["1"]])
def test_a_summary_is_printed_as_the_model_saw_it(workdir: Path, number: list[str]) -> None:
    assert _shown(workdir, "show", "s1", "--summary", *number) == "What happened\nso far: \\x1b[31mred\n"
    assert _json(workdir, "show", "s1", "--summary", *number)["text"] == SUMMARY["text"]


def test_a_summary_that_is_not_there_is_an_error(workdir: Path) -> None:
    missing = buoyline("show", "s1", "--summary", "2", "--workdir", workdir)
    assert (missing.returncode, missing.stderr) == (1, "buoyline: error: no summary '2'; session 's1' has 1\n")


@pytest.mark.parametrize("content", [None, b"", b'{"id"'])
@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("context.jsonl", ["diff", "s1", "1"]),
        ("context.jsonl", ["convert", "s1", "--to", "openai", "--all"]),
        ("summaries.jsonl", ["show", "s1"]),
        ("session.json", ["show", "s1"]),
        ("transcript.md", ["show", "s1", "--messages", "0-3"]),
    ],
)
def test_an_error_about_a_file_that_is_gone_or_damaged_says_how_to_get_it_back(
    workdir: Path, tmp_path: Path, name: str, command: list[str], content: bytes | None
) -> None:
    damaged = Path(shutil.copytree(workdir, tmp_path / "w")) / "sessions/s1" / name
    damaged.unlink()
    if content is not None:
        damaged.write_bytes(content)
    refused = buoyline(*command, "--workdir", tmp_path / "w")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith(f"buoyline: error: {damaged}: ")
    assert "`buoyline repair" in refused.stderr
