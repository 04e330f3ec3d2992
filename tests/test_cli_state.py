"""``buoyline state``: where the work of a stored session is."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from test_work_state import LIST, TODOS, answered, called, edited, ran, said, state_of

from buoyline.cli import main
from buoyline.cli.output import columns
from buoyline.cli.state import session_work
from buoyline.compression import ContextConfig, Pointer
from buoyline.compression.work_state import WorkState, work_state_from
from buoyline.window import ContextWindow
from buoyline.workspace import LocalWorkspace

LONG_OUTPUT = "".join(f"=== RUN   TestPart{number}\n--- PASS: TestPart{number} (0.00s)\n" for number in range(600))

SESSION = [
    said("user", LIST),
    *edited(1, "/r/src/a.py", "x = 1", "x = 2"),
    *ran(2, "go test ./...", f"{LONG_OUTPUT}--- FAIL: TestLast (0.01s)\nFAIL\n"),
    called("3", "TodoWrite", todos=TODOS),
    answered("3", "ok"),
    said("assistant", "Item 2 is fixed.\n\nWhich one?\n\nA) Red\nB) Blue"),
    said("user", "B"),
    *ran(4, "git commit -am x", "[main 1a2b3c4] Paint \x1b[31mit\n 1 file changed"),
    *ran(5, "cd /r && rm src/a.py", ""),
    called("6", "Bash", command="npm run dev", run_in_background=True),
    answered("6", "Command running in background with ID: bash_1"),
    said("assistant", "Shall I also write the changelog?"),
]
COMPACTED = 8
"""So many messages are archived at the first compaction."""


async def fill(workdir: Path, messages: Sequence[Any], *, compact_at: int) -> None:
    async with LocalWorkspace(workdir, durability="off") as workspace:
        config = ContextConfig(tool_result_limit=400, preview_tokens=200)
        window = ContextWindow(session_id="s1", offloader=workspace, size=50_000, config=config)
        for number, message in enumerate(messages):
            await window.add(message)
            await window.prepare()
            if number + 1 == compact_at:
                await window.compress(before=number + 1)
        await window.save()


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("state") / "workspace"
    asyncio.run(fill(found, SESSION, compact_at=COMPACTED))
    return found


def _run(workdir: Path, *args: str) -> Result:
    return CliRunner().invoke(main, ["state", *args, "--workdir", str(workdir)])


def without_lines(state: WorkState) -> dict[str, Any]:
    """A state as JSON without the places, which depend on the lines of a transcript."""

    def kept(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: kept(inner) for key, inner in value.items() if key not in {"pointers", "content"}}
        return [kept(inner) for inner in value] if isinstance(value, list) else value

    found: dict[str, Any] = kept(state.to_json())
    return found


@pytest.mark.parametrize("compact_at", [0, COMPACTED, len(SESSION)])
def test_the_state_is_that_of_all_messages_however_many_are_archived(tmp_path: Path, compact_at: int) -> None:
    asyncio.run(fill(tmp_path, SESSION, compact_at=compact_at))
    found = session_work(LocalWorkspace(tmp_path), "s1")
    assert without_lines(found) == without_lines(state_of(*SESSION))


def test_the_state_of_a_session_is_printed_in_words(workdir: Path) -> None:
    result = _run(workdir, "s1")
    assert (result.exit_code, result.stderr) == (0, "")
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert lines[0] == f"state of s1 after {len(SESSION)} messages"
    assert "files: 1 changed, 0 read" in lines
    assert any(line.startswith("deleted /r/src/a.py") for line in lines)
    assert any(line.startswith("fails go test ./... --- FAIL: TestLast (0.01s)") for line in lines)
    assert any("not run since 1 file changed" in line for line in lines)
    assert "version control: branch main" in lines
    assert "committed 1a2b3c4 Paint it" in lines
    assert "changed since the last commit: /r/src/a.py" in lines
    assert "plan: 1 of 2 done" in lines
    assert "requests: 1 of 3 done" in lines
    assert any(line.startswith("background npm run dev bash_1") for line in lines)
    assert "questions: 2, 1 open" in lines
    assert any(line.startswith("answered Which one? B) Blue") for line in lines)
    assert any(line.startswith("open Shall I also write the changelog?") for line in lines)
    assert "\x1b" not in result.stdout


def test_every_line_that_is_named_exists_and_holds_what_it_shows(workdir: Path) -> None:
    state = session_work(LocalWorkspace(workdir), "s1")
    item = state.plan[1]
    (pointer,) = item.pointers
    transcript = (workdir / "sessions" / "s1" / "transcript.md").read_text("utf-8").split("\n")
    assert item.text in "\n".join(transcript[pointer.start - 1 : pointer.end])
    assert pointer.path == "transcript.md"


def test_json_is_the_state_as_summaries_hold_it(workdir: Path) -> None:
    result = _run(workdir, "s1", "--json")
    assert result.stdout.count("\n") == 1
    assert work_state_from(json.loads(result.stdout)) == session_work(LocalWorkspace(workdir), "s1")


def test_an_offloaded_result_is_read_from_its_file(tmp_path: Path) -> None:
    asyncio.run(fill(tmp_path, SESSION, compact_at=0))
    (name,) = (path.name for path in (tmp_path / "sessions" / "s1").glob("tool_result-*.txt"))
    check = session_work(LocalWorkspace(tmp_path), "s1").checks["go test ./..."]
    assert check.outcome == "fails"
    assert Pointer(name, 1201, 1201) in [Pointer(one.path, one.start, one.start) for one in check.pointers]


def test_a_narrow_terminal_gets_narrow_lines(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("buoyline.cli.state.terminal_width", lambda: 80)
    monkeypatch.setattr("buoyline.cli.output.terminal_width", lambda: 80)
    shown = _run(workdir, "s1").stdout.splitlines()
    assert max(map(len, shown)) <= 80
    assert len(list(columns([("", "a"), ("x", "y")], 80))) == 2


def test_a_session_without_calls_has_a_state_with_nothing_in_it(tmp_path: Path) -> None:
    asyncio.run(LocalWorkspace(tmp_path, durability="off").archive("s1", [said("user", "hello")]))
    assert _run(tmp_path, "s1").stdout == "state of s1 after 1 message\n\nfiles: 0 changed, 0 read\n\n0 checks\n"
    assert json.loads(_run(tmp_path, "s1", "--json").stdout) == {"end": 1}


def test_an_unknown_session_is_an_error_and_nothing_is_written(workdir: Path) -> None:
    before = sorted((path, path.stat().st_mtime_ns) for path in workdir.rglob("*"))
    result = _run(workdir, "s2")
    assert result.exit_code == 1
    assert result.stderr.startswith("buoyline: error: ")
    assert _run(workdir, "s1", "--full").exit_code == 0
    assert sorted((path, path.stat().st_mtime_ns) for path in workdir.rglob("*")) == before
