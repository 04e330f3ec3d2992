"""The commands that read a workspace: ``sessions``, ``show``, ``summaries``, and the lookups."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import click
import pytest
from click.testing import CliRunner, Result
from command_line import buoyline

from buoyline import ContextConfig
from buoyline.cli import main
from buoyline.cli.main import COMMANDS
from buoyline.cli.output import columns
from buoyline.cli.preview import LIMIT
from buoyline.lookups import read
from buoyline.messages import Text, ToolResult
from buoyline.workspace import LocalWorkspace

LONG_S = 60
READING = ("sessions", "show", "summaries", "state", "read", "grep", "search")
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


def _run(workdir: Path, *args: str, env: dict[str, str | None] | None = None) -> Result:
    return CliRunner().invoke(main, [*args, "--workdir", str(workdir)], env=env)


def _json(workdir: Path, *args: str) -> Any:
    result = _run(workdir, *args, "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.count("\n") == 1
    return json.loads(result.stdout)


def test_sessions_are_listed_with_their_numbers(workdir: Path) -> None:
    lines = _run(workdir, "sessions").stdout.splitlines()
    assert lines[0].split() == ["session", "messages", "results", "bytes", "created"]
    assert [line.split()[:3] for line in lines if line.startswith("s1 ")] == [["s1", "21", "1"]]
    assert all(line.endswith(" s ago") for line in lines[1:])
    assert len(lines) == 3  # the line end in an id is shown, not obeyed
    found = {session["id"]: session for session in _json(workdir, "sessions")}
    assert found["s1"].items() >= {"messages": 21, "archived": 20, "in_context": 2, "tool_results": 1}.items()
    assert found["s1"]["bytes"] == sum(path.stat().st_size for path in (workdir / "sessions/s1").iterdir())
    assert found["other\nsession"]["messages"] == 1


def test_only_the_sessions_that_were_last_active_are_listed(tmp_path: Path) -> None:
    made = LocalWorkspace(tmp_path, durability="off")
    for name in ("a", "b", "c"):
        asyncio.run(made.archive(name, [{"role": "user", "content": name}]))
    for age_s, name in enumerate(("b", "c", "a")):
        os.utime(tmp_path / "sessions" / name / "journal.jsonl", (1_000_000 - age_s, 1_000_000 - age_s))
    lines = _run(tmp_path, "sessions", "--limit", "2").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["session", "b", "c", "…"]
    assert lines[-1] == "… 1 older session; --limit 3 lists all"
    assert [session["id"] for session in _json(tmp_path, "sessions", "--limit", "1")] == ["b"]
    assert [session["id"] for session in _json(tmp_path, "sessions")] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("command", "most"),
    [(("sessions",), 5), (("stats",), 6), (("verify",), 7), (("gc",), 15)],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_the_directory_of_a_session_is_opened_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], most: int
) -> None:
    workspace = LocalWorkspace(tmp_path, durability="off")

    def opens_with(sessions: range) -> int:
        for n in sessions:
            asyncio.run(workspace.archive(f"s{n}", [{"role": "user", "content": "hello"}]))
            asyncio.run(workspace.store_result(f"s{n}", ToolResult("c", "tool", (Text("x"),))))
        with monkeypatch.context() as patched:
            opens = Mock(side_effect=os.open)
            patched.setattr(os, "open", opens)
            assert _run(tmp_path, *command).exit_code == 0
        return int(opens.call_count)

    few = opens_with(range(2))
    assert (opens_with(range(2, 12)) - few) / 10 <= most


def test_a_terminal_gets_no_thousand_sessions_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = LocalWorkspace(tmp_path, durability="off")
    for number in range(52):
        asyncio.run(made.archive(f"s{number}", [{"role": "user", "content": "hello"}]))
    assert len(_run(tmp_path, "sessions").stdout.splitlines()) == 53
    monkeypatch.setattr("buoyline.cli.sessions.terminal_width", lambda: 80)
    assert "\n… 2 older sessions; --limit 52 lists all\n" in _run(tmp_path, "sessions").stdout
    assert len(_json(tmp_path, "sessions")) == 52


def test_a_session_is_shown_with_its_files_and_its_last_summary_in_short(workdir: Path) -> None:
    shown = _run(workdir, "show", "s1").stdout
    assert "21 messages: 20 archived, 1 live. In context: the summary + 1 message\n1 tool result, 1 summary\n" in shown
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
    beyond = _run(workdir, "show", "s1", "--messages", "19-21")
    assert beyond.exit_code == 1
    assert "no messages '19-21'; session 's1': its messages are 0-20" in beyond.stderr


def test_a_range_of_messages_goes_from_the_archive_into_the_context(workdir: Path) -> None:
    shown = _run(workdir, "show", "s1", "--messages", "19-20").stdout
    assert "question 19\n" in shown
    assert "-\t## 20 user · in the context\n-\tquestion 20\n" in shown
    lines = _json(workdir, "show", "s1", "--messages", "20")
    assert [line["text"] for line in lines] == ["## 20 user · in the context", "question 20", ""]
    assert {(line["path"], line["number"]) for line in lines} == {("sessions/s1/window.jsonl", 2)}


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


@pytest.mark.parametrize("content", [None, b"", b'{"id"'])
@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("context.jsonl", ["state", "s1"]),
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
    refused = _run(tmp_path / "w", *command)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr.startswith(f"buoyline: error: {damaged}: ")
    assert "`buoyline repair" in refused.stderr


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
        (("read", "workspace.json", "--max-tokens", "1"), 2, "max_tokens: 1 is too small"),
        (("read", "workspace.json", "--end", "0"), 2, "try `buoyline read --help`"),
        (("read", "workspace.json", "--start", "0"), 2, "start: 0 is no line; lines count from 1"),
        (("show", "s1", "--messages", "9-3"), 2, "not a range of messages"),
        (("sessions", "--limit", "9" * 30), 2, "try `buoyline sessions --help`"),
        (("repair", "--from", "/nowhere"), 1, "no copy of a workspace '/nowhere'; name its directory"),
        (("context",), 2, "Missing command; try `buoyline context --help`"),
        (("nonsense",), 2, "No such command 'nonsense'; try `buoyline --help`"),
    ],
)
def test_an_error_is_one_line_that_says_what_to_do(
    workdir: Path, args: tuple[str, ...], status: int, words: str
) -> None:
    done = buoyline(*args, *(["--workdir", str(workdir)] if args not in {("nonsense",), ("context",)} else []))
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr.startswith("buoyline: error: ")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("command", READING)
def test_reading_creates_no_workspace(tmp_path: Path, command: str) -> None:
    args = {"sessions": [], "summaries": ["s1"]}.get(command, ["x"])
    done = buoyline(command, *args, "--workdir", "nowhere", cwd=tmp_path)
    assert done.returncode == 1
    assert f"no workspace '{tmp_path / 'nowhere'}'; name its directory with --workdir" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"format": 99, "id": "x"}', "upgrade buoyline"),
        ("not JSON", 'is damaged (no "format" key): run `buoyline repair --from BACKUP`'),
        ("[]", "is damaged"),
        ("{}", "is damaged"),
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


@pytest.mark.parametrize("command", [["read", "long.txt", "--max-tokens", "300000"], ["demo"]])
def test_a_reader_that_stops_listening_is_no_error(tmp_path: Path, command: list[str]) -> None:
    if command != ["demo"]:
        asyncio.run(LocalWorkspace(tmp_path, durability="off").archive("s1", [{"role": "user", "content": "hello"}]))
        (tmp_path / "long.txt").write_text("some words on a line\n" * 50_000, "utf-8")
    command = [sys.executable, "-m", "buoyline", *command, "--workdir", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(LONG_S) == 128 + signal.SIGPIPE, "the status that a shell shows for other commands"


def test_every_command_has_help_with_an_example_and_json() -> None:
    for name in READING:
        result = CliRunner().invoke(main, [name, "--help"])
        assert f"Example: buoyline {name}" in result.stdout
        assert "--json" in result.stdout
    listed = CliRunner().invoke(main, ["--help"]).stdout
    assert [name for name in COMMANDS if f"\n  {name} " not in listed] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_the_short_help_of_a_command_is_its_own_and_takes_one_line(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert COMMANDS[name][1] == command.get_short_help_str(200)
    assert len(f"  {'summaries'}  {COMMANDS[name][1]}") <= 78


def test_help_imports_no_command_and_nothing_that_is_slow_to_import() -> None:
    program = (
        "import sys; from buoyline.cli import main; main(['--help'], standalone_mode=False); "
        "sys.exit(' '.join({*sys.modules} & {'asyncio', 'pydantic', 're2', 'rich', 'tiktoken', 'buoyline.messages', "
        "'buoyline.offloader', 'buoyline.workspace', 'buoyline.window', 'buoyline.cli.show'}) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, encoding="utf-8")
    assert (done.returncode, done.stderr) == (0, "")
    assert "verify     Check the integrity" in done.stdout


@pytest.mark.parametrize(
    ("args", "hint"),
    [
        (("replya",), "; similar: replay, "),
        (("sesions", "x"), "; similar: sessions; try"),
        (("xyzzy",), "'xyzzy'; try"),
    ],
)
def test_a_mistyped_command_is_answered_with_those_that_are_near(args: tuple[str, ...], hint: str) -> None:
    done = CliRunner().invoke(main, args)
    assert done.exit_code == 2
    assert hint in done.stderr
    assert done.stderr.count("\n") == 1


def test_an_error_about_the_workdir_names_no_variable_that_is_not_set(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = _run(tmp_path / "file", "sessions", env={"BUOYLINE_WORKDIR": None})
    assert done.exit_code == 2
    assert "BUOYLINE_WORKDIR" not in done.stderr


def test_the_version_is_that_of_the_package() -> None:
    assert CliRunner().invoke(main, ["--version"]).stdout.startswith("buoyline ")


@pytest.mark.parametrize("command", ["sessions", "tail", "stats", "verify", "repair", "gc"])
def test_a_command_loads_nothing_that_only_others_need(command: str) -> None:
    program = (
        f"import sys; from buoyline.cli import main; main(['{command}', '--help'], standalone_mode=False); "
        "sys.exit(bool({'rich', 're2', 'tiktoken', 'pydantic', 'buoyline.lookups'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False, capture_output=True).returncode == 0


def test_columns_are_aligned_and_numbers_stand_at_the_right() -> None:
    assert list(columns([("name", "size"), ("a", 1_234), ("long one", 5)])) == [
        "name       size",
        "a         1,234",
        "long one      5",
    ]


def test_wide_characters_take_two_columns_and_accents_none() -> None:
    rows: list[tuple[str | int, ...]] = [("name", "size"), ("漢字 🙂", 5), ("cafe\u0301", 12)]
    assert list(columns(rows)) == ["name     size", "漢字 🙂     5", "cafe\u0301       12"]


def test_a_last_column_of_blanks_may_be_wider_than_the_terminal() -> None:
    assert list(columns([("name", "text"), ("a", " " * 50)], 20)) == ["name  text", "a"]


@pytest.mark.parametrize(
    ("args", "status", "words"),
    [(["preview", "-"], 0, "it would stay in the context whole"), (["replay", "-"], 1, "stdin: is empty")],
)
def test_a_closed_standard_input_is_an_empty_one(tmp_path: Path, args: list[str], status: int, words: str) -> None:
    command = [sys.executable, "-m", "buoyline", *args]
    done = subprocess.run(
        ["/bin/sh", "-c", '"$@" <&-', "sh", *command], capture_output=True, encoding="utf-8", check=False, cwd=tmp_path
    )
    assert done.returncode == status
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_help_that_nobody_reads_is_no_failure() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run([sys.executable, "-m", "buoyline", "--help"], stdout=writer, stderr=-1, check=False)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b"")


def test_preview_reads_what_is_piped_in() -> None:
    text = "".join(f"step {number} is done\n" for number in range(3_000)) + "FATAL: no disk\n"
    shown = CliRunner().invoke(main, ["preview", "-", "--max-tokens", "150"], input=text)
    assert shown.exit_code == 0
    assert "[Tool result offloaded: 3,001 lines" in shown.output
    assert "\n3001: FATAL: no disk\n" in shown.output


@pytest.mark.parametrize(("lines", "is_small"), [(0, True), (2, True), (3_000, False)])
def test_preview_says_what_would_not_be_offloaded(lines: int, *, is_small: bool) -> None:
    text = "".join(f"step {number} is done\n" for number in range(lines))
    shown = CliRunner().invoke(main, ["preview", "-"], input=text)
    notice = "buoyline: this is at most 3,000 tokens, the default limit: it would stay in the context whole\n"
    assert shown.stderr == (notice if is_small else "")
    assert ContextConfig().tool_result_limit == LIMIT
