"""``buoyline sessions`` and ``buoyline show``, on a session that a window wrote."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from command_line import buoyline, written_session

from buoyline.workspace import LocalWorkspace


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with a session of a window, and one of `offload_context`."""
    workdir = tmp_path_factory.mktemp("cli") / "workspace"
    asyncio.run(written_session(workdir))
    plain = LocalWorkspace(workdir).offload_context("other\nsession", [{"role": "user", "content": "hello"}])
    asyncio.run(plain)
    return workdir


def shown(workdir: Path, *args: object) -> str:
    done = buoyline(*args, "--workdir", workdir)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def value(workdir: Path, *args: object) -> Any:
    return json.loads(shown(workdir, *args, "--json"))


def test_sessions_are_listed_with_their_numbers_and_the_total(workdir: Path) -> None:
    lines = shown(workdir, "sessions").splitlines()
    assert lines[0].split() == ["session", "messages", "results", "bytes", "created"]
    assert [line.split()[:3] for line in lines if line.startswith("s1 ")] == [["s1", "82", "20"]]
    assert lines[-1].split()[:4] == ["2", "sessions", "83", "20"]
    assert len(lines) == 4  # the line end in an id is shown, not obeyed
    found = {session["id"]: session for session in value(workdir, "sessions")}
    assert found["s1"]["bytes"] == sum(path.stat().st_size for path in (workdir / "sessions/s1").iterdir())
    assert found["other\nsession"].items() >= {"messages": 1, "archived": 1, "in_context": 0}.items()


def test_a_workspace_without_sessions_is_no_error(tmp_path: Path) -> None:
    asyncio.run(LocalWorkspace(tmp_path).initialize())
    assert shown(tmp_path, "sessions") == "no sessions yet\n"
    assert value(tmp_path, "sessions") == []


def test_a_damaged_session_is_named_and_the_others_are_listed(workdir: Path, tmp_path: Path) -> None:
    path = Path(shutil.copytree(workdir, tmp_path / "w")) / "sessions/s1/context.jsonl"
    path.unlink()
    path.symlink_to("elsewhere")
    done = buoyline("sessions", "--workdir", tmp_path / "w")
    assert done.returncode == 1
    assert "other" in done.stdout
    assert "s1" not in done.stdout
    assert done.stderr.count("is left out: ") == done.stderr.count("\n") == 1


def test_a_session_is_shown_with_its_files_and_its_last_summary_in_short(workdir: Path) -> None:
    text, found = shown(workdir, "show", "s1"), value(workdir, "show", "s1")
    live = found["messages"] - found["archived"]
    assert f"82 messages: {found['archived']} archived, {live} live. In context: the summary + " in text
    assert f"summary {found['summaries']}: messages " in text
    assert "  tool_result-c3.txt  " in text
    assert max(map(len, text.splitlines())) < 250
    assert {file["name"] for file in found["files"]} >= {"context.jsonl", "state.jsonl", "tool_result-c3.txt"}
    assert shown(workdir, "show", "s1", "--full").endswith(found["summary"]["text"] + "\n")


def test_messages_are_shown_by_their_numbers_archived_or_live(workdir: Path) -> None:
    text = shown(workdir, "show", "s1", "--messages", "1-5")
    assert [f"question {number}: " in text for number in (0, 1, 2)] == [True, True, False]
    transcript = (workdir / "sessions/s1/transcript.md").read_text("utf-8")
    assert text.splitlines()[0] in transcript.splitlines()
    live = value(workdir, "show", "s1", "--messages", "81")
    assert (live[0]["message"], live[0]["lines"][1]) == (81, "done")
    beyond = buoyline("show", "s1", "--messages", "80-82", "--workdir", workdir)
    assert (beyond.returncode, "its messages are 0-81" in beyond.stderr) == (1, True)


def test_what_the_model_saw_at_a_call_is_shown_as_it_was_then(workdir: Path) -> None:
    early, late = (shown(workdir, "show", "s1", "--at", number) for number in (2, 41))
    assert "question 0: " in early
    assert "in place of what left" not in early
    assert "question 0: " not in late.partition("## 0 user")[2].partition("\n## ")[2]
    assert "in place of what left" in late
    missing = buoyline("show", "s1", "--at", "99", "--workdir", workdir)
    assert (missing.returncode, "no call '99'; session 's1' has 41" in missing.stderr) == (1, True)


def test_a_summary_is_printed_as_the_model_saw_it(workdir: Path) -> None:
    last = value(workdir, "show", "s1")["summary"]
    assert shown(workdir, "show", "s1", "--summary") == last["text"] + "\n"
    assert value(workdir, "show", "s1", "--summary", last["n"] + 1)["text"] == last["text"]
    missing = buoyline("show", "s1", "--summary", "99", "--workdir", workdir)
    assert (missing.returncode, "no summary '99'" in missing.stderr) == (1, True)


@pytest.mark.parametrize("content", [None, b"", b'{"id"'])
@pytest.mark.parametrize("command", [["diff", "s1", "1"], ["convert", "s1", "--to", "openai", "--all"], ["show", "s1"]])
def test_an_error_about_a_damaged_log_says_how_to_get_it_back(
    workdir: Path, tmp_path: Path, command: list[str], content: bytes | None
) -> None:
    damaged = Path(shutil.copytree(workdir, tmp_path / "w")) / "sessions/s1/context.jsonl"
    damaged.unlink()
    if content is not None:
        damaged.write_bytes(content)
    refused = buoyline(*command, "--workdir", tmp_path / "w")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith(f"buoyline: error: {damaged}: ")
    assert "`buoyline repair" in refused.stderr
