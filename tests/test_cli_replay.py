"""``buoyline replay`` as a shell sees it."""

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import buoyline, buoyline_process


def recording(path: Path, messages: list[Any]) -> Path:
    path.write_text("".join(json.dumps(message) + "\n" for message in messages), encoding="utf-8")
    return path


def conversation() -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "system", "content": "Be exact."}]
    for number in range(12):
        function = {"name": "run", "arguments": json.dumps({"command": f"make step{number}"})}
        messages += [
            {"role": "user", "content": f"Do step {number} of ticket OPS-{number}."},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "x", "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": "x", "content": f"step {number} line of output\n" * (40 + 60 * number)},
        ]
    return messages


@pytest.fixture
def session(tmp_path: Path) -> Path:
    return recording(tmp_path / "run.jsonl", conversation())


def test_the_report_the_archive_and_the_retained_messages_make_up_the_recording(tmp_path: Path, session: Path) -> None:
    workdir = tmp_path / "w"
    done = buoyline_process("replay", session, "--workdir", workdir, "--context-size", "3000", "--json")
    report = json.loads(done.stdout)
    logged = [json.loads(line) for line in (workdir / "sessions/run/context.jsonl").read_text("utf-8").splitlines()]
    held = [{key: value for key, value in line.items() if key != "buoyline"} for line in logged]
    retained = [json.loads(line) for line in (workdir / "retained.jsonl").read_text("utf-8").splitlines()]

    assert (done.returncode, done.stderr) == (0, "")
    assert report["steps"] == 13
    assert report["peak_tokens"] <= 3000 < report["peak_tokens_unmanaged"]
    assert report["exceeding"] == []
    assert report["saved_tokens"] == sum(found["tokens"] - found["stub_tokens"] for found in report["offloaded"])
    assert retained[0] == conversation()[0]
    assert retained[1]["content"] == report["compressions"][-1]["text"]
    assert held[-len(retained) + 2 :] == retained[2:]
    offloaded = {found["message"]: found for found in report["offloaded"]}
    assert len(held) == len(conversation())
    assert len(offloaded) == 5
    for number, (found, message) in enumerate(zip(held, conversation(), strict=True)):
        if number in offloaded:
            path = Path(offloaded[number]["path"])
            assert path.read_text(encoding="utf-8") == message["content"]
            assert str(path) in found["content"]
            assert {**found, "content": message["content"]} == message
        else:
            assert found == message
    lines = (workdir / "sessions/run/summaries.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["text"] for line in lines] == [found["text"] for found in report["compressions"]]


def test_a_compression_may_be_forced_before_lines_and_moves_back_to_keep_pairs(tmp_path: Path, session: Path) -> None:
    arguments = ("--compress-at", 7, "--compress-at", 12, "--summary-tokens", 600, "--json")
    report = json.loads(buoyline("replay", session, "--workdir", tmp_path / "w", *arguments).stdout)

    assert [found["messages"] for found in report["compressions"]] == [[0, 7], [7, 11]]
    assert all(found["tokens"] <= 600 for found in report["compressions"])


def test_without_json_the_report_is_for_people_and_says_where_to_look(tmp_path: Path, session: Path) -> None:
    done = buoyline("replay", session, "--workdir", tmp_path / "w", "--context-size", 4000)

    assert done.returncode == 0
    assert done.stdout.startswith("session  requests  tokens sent  without buoyline        compactions")
    assert f"buoyline show run --workdir {tmp_path / 'w'}" in done.stdout


def test_scripts_find_these_keys_in_the_report(tmp_path: Path, session: Path) -> None:
    options = "--context-size 5000 --summary-tokens 400 --compress-at 9 --compress-at 20"
    prices = "--price-input 3 --price-output 15 --json"
    workdir = tmp_path / "w"
    report = json.loads(buoyline("replay", session, "--workdir", workdir, *options.split(), *prices.split()).stdout)

    assert set(report) >= {
        *("steps", "peak_tokens", "peak_tokens_unmanaged", "offloaded", "exceeding", "compressions", "cost"),
        *("session", "workdir", "context_size", "messages", "tokens", "sent_tokens", "sent_tokens_unmanaged"),
    }
    assert all("amount" in report["cost"][name] for name in ("managed", "unmanaged"))
    assert len(report["compressions"]) >= 2
    for summary in report["compressions"]:
        assert set(summary) >= {"n", "messages", "summarizer", "fields", "pointers", "tokens", "text", "created_at"}
    assert set(report["offloaded"][0]) == {"message", "call_id", "tool", "path", "tokens", "stub_tokens"}
    assert (workdir / "retained.jsonl").exists()


def test_the_exit_status_is_0_when_done_1_for_findings_and_2_for_wrong_usage(tmp_path: Path) -> None:
    workdir = ("--workdir", tmp_path / "w")
    buoyline("replay", recording(tmp_path / "one.jsonl", [{"role": "user", "content": "x"}]), *workdir)
    assert buoyline("sessions", *workdir, "--json").returncode == 0
    assert buoyline("show", "nobody", *workdir).returncode == 1
    assert buoyline("preview").returncode == 2


def test_replaying_into_a_session_that_exists_is_refused(tmp_path: Path, session: Path) -> None:
    assert buoyline("replay", session, "--workdir", tmp_path / "w").returncode == 0
    before = (tmp_path / "w/sessions/run/context.jsonl").read_bytes()
    again = buoyline("replay", session, "--workdir", tmp_path / "w")

    assert again.returncode == 1
    assert "already exists" in again.stderr
    assert (tmp_path / "w/sessions/run/context.jsonl").read_bytes() == before


@pytest.mark.parametrize("content", [b"not json\n", b"[1,2]\n", b'{"who":"me"}\n', b"\xff\xfe\x00", b""])
def test_a_recording_without_messages_is_one_clear_line_and_nothing_is_written(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(content)
    done = buoyline("replay", path, "--workdir", tmp_path / "w")

    assert done.returncode == 1
    assert done.stderr.startswith("buoyline: error: ")
    assert done.stderr.count("\n") == 1
    assert "bad.jsonl: holds no messages: expected one message a line" in done.stderr
    assert not (tmp_path / "w").exists()


@pytest.mark.parametrize("is_claude_code", [False, True])
def test_damaged_blank_and_torn_lines_are_left_out_and_the_damaged_ones_counted(
    tmp_path: Path, *, is_claude_code: bool
) -> None:
    records: list[dict[str, Any]] = []
    for number in range(8):
        message = {"role": ("user", "assistant")[number % 2], "content": f"sounding {number}"}
        links = {"uuid": f"u{number}", "parentUuid": f"u{number - 1}" if number else None}
        records.append({"type": message["role"], **links, "message": message} if is_claude_code else message)
    good = [json.dumps(record) for record in records]
    path = tmp_path / "run.jsonl"
    path.write_text("\n".join([*good[:3], good[3][:-9], "", *good[3:], good[0][:20]]), encoding="utf-8")
    done = buoyline("replay", path, "--workdir", tmp_path / "w", "--json")
    report = json.loads(done.stdout)

    assert (done.returncode, report["messages"]) == (0, len(good))
    assert report["recording"]["skipped"] == {"lines that are not JSON": 2}


def test_a_window_smaller_than_the_system_prompt_is_one_clear_line(tmp_path: Path) -> None:
    messages = [{"role": "system", "content": "word " * 500}, *conversation()[1:]]
    path = recording(tmp_path / "run.jsonl", messages)
    done = buoyline("replay", path, "--workdir", tmp_path / "w", "--context-size", 300)

    assert done.returncode == 1
    assert "use a larger window" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_workdir_of_a_newer_format_is_refused_and_left_untouched(tmp_path: Path, session: Path) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w/workspace.json").write_text('{"format": 99}', encoding="utf-8")
    done = buoyline("replay", session, "--workdir", tmp_path / "w")

    assert done.returncode == 1
    assert "use the version that wrote it" in done.stderr
    assert [path.name for path in (tmp_path / "w").iterdir()] == ["workspace.json"]


def test_a_workdir_that_cannot_be_made_is_one_clear_line(tmp_path: Path, session: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    done = buoyline("replay", session, "--workdir", tmp_path / "file" / "w")

    assert done.returncode == 1
    assert done.stderr.startswith("buoyline: error: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["replay", "absent.jsonl"],
        ["replay", "{session}", "--context-size", "0"],
        ["replay", "{session}", "--compress-at", "37"],
        ["replay", "{session}", "--trigger", "0.5", "--management", "tool-heavy"],
        ["preview"],
        ["preview", "{session}", "--max-tokens", "-1"],
        ["unknown"],
    ],
    ids=" ".join,
)
def test_a_wrong_command_line_is_one_clear_line_and_status_2(
    tmp_path: Path, session: Path, arguments: list[str]
) -> None:
    given = [argument.format(session=session) for argument in arguments]
    done = buoyline(*given, *(["--workdir", tmp_path / "w"] if given[0] == "replay" else []))

    assert done.returncode == 2
    assert done.stderr.startswith("buoyline: error: ")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "w").exists()


def test_anthropic_messages_replay(tmp_path: Path) -> None:
    messages = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "run", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "loud\n" * 5000}]},
    ]
    path = recording(tmp_path / "a.jsonl", messages)
    done = buoyline("replay", path, "--workdir", tmp_path / "w", "--json")
    (offloaded,) = json.loads(done.stdout)["offloaded"]
    retained = [json.loads(line) for line in (tmp_path / "w/retained.jsonl").read_text("utf-8").splitlines()]

    assert offloaded["tool"] == "run"
    assert retained[2]["content"][0]["tool_use_id"] == "t1"
    assert offloaded["path"] in retained[2]["content"][0]["content"]


def test_a_folder_is_replayed_in_one_table_and_what_holds_no_messages_is_named(tmp_path: Path, session: Path) -> None:
    projects = tmp_path / "projects"
    for name in ("a", "b"):
        (projects / name).mkdir(parents=True)
        (projects / name / "run.jsonl").write_bytes(session.read_bytes())
    (projects / "b" / "settings.json").write_text('{"theme": "dark"}')
    done = buoyline("replay", projects, "--workdir", tmp_path / "w", "--price-input", 3, "--price-output", 15)
    rows = [line.split() for line in done.stdout.splitlines()[:4]]
    assert (done.returncode, [row[0] for row in rows]) == (1, ["session", "run", "run-2", "2"])
    sent = [int(row[at].replace(",", "")) for row, at in zip(rows[1:], (2, 2, 3), strict=True)]
    assert sent[0] + sent[1] == sent[2]
    assert "settings.json: holds no messages" in done.stderr
    report = json.loads(buoyline("replay", projects, "--workdir", tmp_path / "x", "--json").stdout)
    assert [found["session"] for found in report["recordings"]] == ["run", "run-2"]


def test_the_times_of_a_claude_code_session_are_kept(tmp_path: Path) -> None:
    records = [
        {"type": role, "timestamp": f"2026-02-02T10:0{n}:00.000Z", "message": {"role": role, "content": f"{n}"}}
        for n, role in enumerate(("user", "assistant"))
    ]
    buoyline("replay", recording(tmp_path / "run.jsonl", records), "--workdir", tmp_path / "w")
    shown = buoyline("show", "run", "--messages", "--workdir", tmp_path / "w").stdout
    assert "## 0 user · 2026-02-02T10:00:00.000Z" in shown
    assert "## 1 assistant · 2026-02-02T10:01:00.000Z" in shown


def test_a_disk_without_space_is_one_clear_line_that_says_what_to_do(tmp_path: Path, session: Path) -> None:
    # A limit on the size of files refuses as a full disk does, and takes no privileges.
    command = f"ulimit -f 8; {shlex.quote(sys.executable)} -m buoyline replay {shlex.quote(str(session))} --workdir w"
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"buoyline: error: {tmp_path / 'w'}")
    assert done.stderr.endswith("; free space, or use another --workdir\n")
