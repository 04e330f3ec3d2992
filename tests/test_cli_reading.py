"""The commands that read a workspace: ``sessions``, ``show``, ``summaries``, and the lookups."""

import asyncio
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from buoyline.cli import main
from buoyline.cli.main import COMMANDS
from buoyline.cli.output import columns
from buoyline.lookups import read
from buoyline.workspace import LocalWorkspace

READING = ("sessions", "show", "summaries", "read", "grep", "search", "glob", "retrieve")
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
    """A workspace with a session that has an archive, a result, a summary and a window, and an empty-handed one."""
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


def _run(workdir: Path, *args: str, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(main, [*args, "--workdir", str(workdir)], env=env)


def _json(workdir: Path, *args: str) -> Any:
    result = _run(workdir, *args, "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.count("\n") == 1
    return json.loads(result.stdout)


def _process(*args: str, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "buoyline", *args]
    return subprocess.run(command, capture_output=True, check=False, cwd=cwd, encoding="utf-8")


def test_sessions_are_listed_with_their_numbers(workdir: Path) -> None:
    lines = _run(workdir, "sessions").stdout.splitlines()
    assert lines[0].split() == ["session", "messages", "tool", "results", "summaries", "bytes", "created"]
    assert [line.split()[:4] for line in lines if line.startswith("s1 ")] == [["s1", "21", "1", "1"]]
    assert len(lines) == 3  # the line end in an id is shown, not obeyed
    found = {session["id"]: session for session in _json(workdir, "sessions")}
    assert found["s1"].items() >= {"messages": 21, "archived": 20, "in_context": 2, "tool_results": 1}.items()
    assert found["s1"]["bytes"] == sum(path.stat().st_size for path in (workdir / "sessions/s1").iterdir())
    assert found["other\nsession"]["messages"] == 1


def test_a_session_is_shown_with_its_files_and_its_last_summary_in_short(workdir: Path) -> None:
    shown = _run(workdir, "show", "s1").stdout
    assert "21 messages: 20 archived, 1 not; 2 stand in the context; tool results: 1, summaries: 1" in shown
    assert "├── tool_result-c1.txt  27\n" in shown
    assert "└── window.jsonl  " in shown
    assert "summary 1: messages 0-19, 12,345 tokens in 321" in shown
    assert "  next_steps: Go on." in shown
    assert max(map(len, shown.splitlines())) < 250
    assert "\x1b" not in shown
    found = _json(workdir, "show", "s1")
    assert {file["name"] for file in found["files"]} >= {"context.jsonl", "journal.jsonl", "tool_result-c1.txt"}
    assert found["summary"]["n"] == 1


def test_a_session_is_shown_in_full_on_demand(workdir: Path) -> None:
    assert r"so far: \x1b[31mred" in _run(workdir, "show", "s1", "--full").stdout


def test_messages_are_shown_by_their_numbers(workdir: Path) -> None:
    shown = _run(workdir, "show", "s1", "--messages", "7-8").stdout
    assert "question 7\n" in shown
    assert "question 8\n" in shown
    assert "question 9\n" not in shown
    assert [line["text"] for line in _json(workdir, "show", "s1", "--messages", "7")][1] == "question 7"
    beyond = _run(workdir, "show", "s1", "--messages", "19-20")
    assert beyond.exit_code == 1
    assert "no archived messages '19-20'; 20 of 's1' have left the context" in beyond.stderr


def test_summaries_are_listed_and_printed(workdir: Path) -> None:
    assert _run(workdir, "summaries", "s1").stdout.startswith("summary 1: messages 0-19")
    assert _run(workdir, "summaries", "s1", "1").stdout == "What happened\nso far: \\x1b[31mred\n"
    assert _json(workdir, "summaries", "s1")[0]["text"] == SUMMARY["text"]
    assert _json(workdir, "summaries", "s1", "1")["n"] == 1
    missing = _run(workdir, "summaries", "s1", "2")
    assert (missing.exit_code, missing.stderr) == (1, "buoyline: error: no summary '2'; session 's1' has 1\n")


def test_a_file_is_read_by_pointer_as_the_library_reads_it(workdir: Path) -> None:
    shown = _run(workdir, "read", "transcript.md:5-8", "--session", "s1").stdout
    assert shown == read(LocalWorkspace(workdir), "transcript.md:5-8", session="s1").text
    found = _json(workdir, "read", "transcript.md:5-8", "--session", "s1")
    assert [line["number"] for line in found["lines"]] == [5, 6, 7, 8]
    assert found["next"] == {}


def test_a_path_may_be_typed_from_where_one_is(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workdir.parent)
    shown = CliRunner().invoke(main, ["read", "workspace/sessions/s1/transcript.md:5"])
    assert shown.stdout.startswith("[sessions/s1/transcript.md, lines 5-5 of ")


@pytest.mark.parametrize(
    "args",
    [
        ("read", "sessions/s1/transcript.md", "--max-tokens", "150"),
        ("grep", "question", "--max-tokens", "150"),
        ("search", "question please", "--max-tokens", "150"),
        ("glob", "**", "--max-tokens", "150"),
    ],
)
def test_a_cut_answer_names_the_options_that_go_on(workdir: Path, args: tuple[str, ...]) -> None:
    last = _run(workdir, *args).stdout.splitlines()[-1]
    hint = last.removeprefix("[Cut here. To go on, repeat the command with ").removesuffix("]")
    options = shlex.split(hint)
    assert options[0].startswith("--")
    following = _run(workdir, *args, *options)
    assert following.exit_code == 0
    assert following.stdout.splitlines()[1] != _run(workdir, *args).stdout.splitlines()[1]


def test_grep_takes_the_options_of_grep(workdir: Path) -> None:
    rows = _run(workdir, "grep", "-i", "-F", "-C", "1", "error:").stdout.splitlines()[1:]
    assert rows == [
        "== sessions/s1/tool_result-c1.txt",
        "1- one",
        "2: Error: disk full",
        "3- three",
    ]
    none = _run(workdir, "grep", "nowhere to be found")
    assert (none.exit_code, none.stdout) == (0, "[No hit in 3 files.]\n")


def test_the_workdir_may_come_from_the_environment(workdir: Path) -> None:
    result = CliRunner().invoke(main, ["sessions"], env={"BUOYLINE_WORKDIR": str(workdir)})
    assert result.exit_code == 0
    assert "s1" in result.stdout


@pytest.mark.parametrize(
    ("args", "status", "words"),
    [
        (("show", "s2"), 1, "no session 's2'; `buoyline sessions` lists those there are"),
        (("read", "nothing.txt"), 1, "no file 'nothing.txt'"),
        (("read", "../../etc/passwd"), 2, "must not hold '..'"),
        (("read", "/etc/passwd"), 2, "lies outside the workspace"),
        (("grep", "(?<!a)b"), 2, "RE2 syntax"),
        (("search", "?!"), 2, "query: has no word"),
        (("read", "workspace.json", "--max-tokens", "1"), 2, "max_tokens: 1 is too few"),
        (("read", "workspace.json", "--start", "0"), 2, "try `buoyline read --help`"),
        (("show", "s1", "--messages", "9-3"), 2, "no range of messages"),
        (("nonsense",), 2, "No such command 'nonsense'; try `buoyline --help`"),
    ],
)
def test_an_error_is_one_line_that_says_what_to_do(
    workdir: Path, args: tuple[str, ...], status: int, words: str
) -> None:
    done = _process(*args, *(["--workdir", str(workdir)] if args != ("nonsense",) else []))
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr.startswith("buoyline: error: ")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("command", READING)
def test_reading_creates_no_workspace(tmp_path: Path, command: str) -> None:
    args = {"sessions": [], "summaries": ["s1"]}.get(command, ["x"])
    done = _process(command, *args, "--workdir", "nowhere", cwd=tmp_path)
    assert done.returncode == 1
    assert f"no workspace '{tmp_path / 'nowhere'}'; name its directory with --workdir" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"format": 99, "id": "x"}', "upgrade buoyline"),
        ("not JSON", "names no format"),
        ("[]", "names no format"),
        ("{}", "names no format"),
    ],
)
def test_a_workspace_of_another_format_is_refused_untouched(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "workspace.json").write_text(content, "utf-8")
    result = _run(tmp_path, "sessions")
    assert result.exit_code == 1
    assert words in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["workspace.json"]


def test_a_workspace_without_sessions_is_no_error(tmp_path: Path) -> None:
    asyncio.run(LocalWorkspace(tmp_path, durability="off").initialize())
    assert _run(tmp_path, "sessions").stdout == "no sessions yet\n"
    assert _json(tmp_path, "sessions") == []


def test_a_reader_that_stops_listening_is_no_error(workdir: Path) -> None:
    (workdir / "long.txt").write_text("some words on a line\n" * 50_000, "utf-8")
    command = [sys.executable, "-m", "buoyline", "read", "long.txt", "--max-tokens", "300000"]
    with subprocess.Popen(
        [*command, "--workdir", str(workdir)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""


def test_every_command_has_help_with_an_example_and_json() -> None:
    for name in READING:
        result = CliRunner().invoke(main, [name, "--help"])
        assert f"Example: buoyline {name}" in result.stdout
        assert "--json" in result.stdout
    listed = CliRunner().invoke(main, ["--help"]).stdout
    assert [name for name in COMMANDS if f"\n  {name} " not in listed] == []


def test_the_version_is_that_of_the_package() -> None:
    assert CliRunner().invoke(main, ["--version"]).stdout.startswith("buoyline ")


def test_a_command_loads_nothing_that_only_others_need() -> None:
    program = (
        "import sys; from buoyline.cli import main; main(['sessions', '--help'], standalone_mode=False); "
        "sys.exit(bool({'rich', 're2', 'tiktoken', 'pydantic', 'buoyline.lookups'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False, capture_output=True).returncode == 0


def test_columns_are_aligned_and_numbers_stand_at_the_right() -> None:
    assert list(columns([("name", "size"), ("a", 1_234), ("long one", 5)])) == [
        "name       size",
        "a         1,234",
        "long one      5",
    ]


def test_preview_reads_what_is_piped_in() -> None:
    text = "".join(f"step {number} is done\n" for number in range(3_000)) + "FATAL: no disk\n"
    shown = CliRunner().invoke(main, ["preview", "-", "--max-tokens", "150"], input=text)
    assert shown.exit_code == 0
    assert "[Tool result offloaded: 3,001 lines" in shown.output
    assert "\n3001: FATAL: no disk\n" in shown.output
