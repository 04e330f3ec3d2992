"""``buoyline verify``."""

import asyncio
import base64
import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from buoyline.cli import main
from buoyline.workspace import LocalWorkspace

PICTURE = {
    "role": "user",
    "content": [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{base64.b64encode(b'PNG' * 9).decode()}"}}
    ],
}
HELLO = {"role": "user", "content": "hello"}
SUMMARY = {"messages": [0, 2], "source_tokens": 1_500, "tokens": 100, "text": "short", "fields": {}, "pointers": []}


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    """A workspace with two sessions that share a picture."""
    made = LocalWorkspace(tmp_path / "workspace", durability="off")

    async def fill() -> None:
        async with made:
            await made.archive("s1", [PICTURE, HELLO])
            for name, content in (("c1", "x" * 2_000), ("c2", "small")):
                await made.offload_tool_result("s1", {"role": "tool", "tool_call_id": name, "content": content})
            await made.append_summary("s1", SUMMARY)
            await made.archive("other\nsession", [PICTURE])

    asyncio.run(fill())
    return made.workdir


def _run(workdir: Path, *args: str) -> Result:
    return CliRunner().invoke(main, [*args, "--workdir", str(workdir)])


def _json(workdir: Path, *args: str) -> Any:
    result = _run(workdir, *args, "--json")
    assert result.stderr == ""
    assert result.stdout.count("\n") == 1
    return json.loads(result.stdout)


def _damage(workdir: Path) -> None:
    (workdir / "sessions/s1/tool_result-c2.txt").write_text("SMALL", "utf-8")
    (workdir / "sessions/s1/transcript.md").unlink()
    (workdir / "sessions/s1/.tmp-1").touch()


def test_a_sound_workspace_is_one_line_and_status_0(workdir: Path) -> None:
    result = _run(workdir, "verify")
    assert result.exit_code == 0
    assert result.stdout.startswith("0 damage, 0 warnings, 0 notes in 2 sessions and 1 blob; ")
    assert result.stdout.count("\n") == 1


def test_findings_are_lines_with_the_worst_first_and_status_1(workdir: Path) -> None:
    _damage(workdir)
    result = _run(workdir, "verify")
    damage, warning, note, counts, hint = result.stdout.splitlines()

    assert result.exit_code == 1
    assert damage.split()[:3] == ["damage", "changed-bytes", "sessions/s1/tool_result-c2.txt:"]
    assert warning.split()[:3] == ["warning", "stale-transcript", "sessions/s1/transcript.md:"]
    assert note.split()[:3] == ["note", "leftover", "sessions/s1/.tmp-1:"]
    assert counts.startswith("1 damage, 1 warning, 1 note in 2 sessions and 1 blob; ")
    assert hint.startswith("`buoyline repair --dry-run` lists what can be repaired")


@contextmanager
def _as_other_user(workdir: Path) -> Iterator[None]:
    """Take away the right to read the files in *workdir*; directories may be entered."""
    if os.geteuid() != 0:
        for path in workdir.rglob("*"):
            if path.is_file() and not path.stat().st_mode & 0o004:
                path.chmod(0)
        yield
        return
    for directory in (workdir, *workdir.parents, *workdir.rglob("*")):
        if directory.is_dir() and not directory.stat().st_mode & 0o001:
            directory.chmod(0o755)
    os.seteuid(65_534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("command", ["verify", "repair", "gc", "sessions"])
def test_what_another_user_owns_is_no_damage(workdir: Path, command: str) -> None:
    _run(workdir, command)  # the other user may not be able to read Python's own modules
    with _as_other_user(workdir):
        done = _run(workdir, command)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == (
        f"buoyline: error: {workdir / 'workspace.json'}: Permission denied; "
        "run this command as the owner of that file, or use another --workdir\n"
    )


def test_a_session_of_another_user_is_not_said_to_be_without_a_format(workdir: Path) -> None:
    _run(workdir, "verify")
    (workdir / "workspace.json").chmod(0o644)
    with _as_other_user(workdir):
        found = json.loads(_run(workdir, "verify", "--json").stdout)["findings"]
    said = [(one["kind"], one["message"]) for one in found if one["path"].endswith("s1/session.json")]
    assert said == [("unreadable", "cannot be read: Permission denied; run this command as its owner")]


def test_notes_alone_are_status_0(workdir: Path) -> None:
    with (workdir / "sessions/s1/context.jsonl").open("ab") as context:
        context.write(b'{"role"')
    result = _run(workdir, "verify")
    assert result.exit_code == 0
    assert "note     torn-tail  sessions/s1/context.jsonl from byte " in result.stdout


def test_findings_are_one_json_value_on_demand(workdir: Path) -> None:
    assert _json(workdir, "verify").items() >= {"sound": True, "damage": 0, "findings": []}.items()
    _damage(workdir)
    found = _json(workdir, "verify")
    assert found.items() >= {"sound": False, "damage": 1, "warning": 1, "note": 1, "sessions": 2, "blobs": 1}.items()
    assert found["findings"][0].keys() == {"severity", "kind", "path", "message", "line", "offset"}


def test_chosen_sessions_and_the_structure_alone_can_be_verified(workdir: Path) -> None:
    (workdir / "sessions/s1/tool_result-c2.txt").write_text("SMALL", "utf-8")
    assert _run(workdir, "verify", "--structure-only").exit_code == 0
    assert _run(workdir, "verify", "other\nsession").exit_code == 0
    assert _run(workdir, "verify", "other\nsession", "s1").exit_code == 1


def test_a_terminal_sees_no_control_characters_of_a_name(workdir: Path) -> None:
    (workdir / "data" / ".tmp-\x1b[31mred\n").touch()
    result = _run(workdir, "verify")
    assert "\x1b" not in result.stdout
    assert len(result.stdout.splitlines()) == 2


def test_progress_is_shown_on_a_terminal_alone(workdir: Path) -> None:
    command = [sys.executable, "-m", "buoyline", "verify", "--workdir", str(workdir)]
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=theirs, env={**os.environ, "TERM": "xterm"}
    ) as process:
        os.close(theirs)
        assert process.stdout is not None
        assert process.stdout.read().startswith(b"0 damage")
    shown = os.read(ours, 100_000)
    os.close(ours)
    assert b"verify" in shown


def test_a_session_that_may_not_be_read_is_not_said_to_be_unneeded(workdir: Path) -> None:
    for path in workdir.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    with _as_other_user(workdir):
        user = os.geteuid()
        os.seteuid(os.getuid())
        (workdir / "sessions" / "s1").chmod(0)
        os.seteuid(user)
        findings = json.loads(_run(workdir, "verify", "--json").stdout)["findings"]
        listed = _run(workdir, "sessions")
    (workdir / "sessions" / "s1").chmod(0o700)
    assert {found["kind"] for found in findings if found["path"] == "sessions/s1"} == {"unreadable"}
    assert listed.exit_code == 1
    assert "sessions/s1 is left out: " in listed.stderr


@pytest.mark.parametrize("command", [["grep", "user"], ["search", "user"]])
def test_a_session_that_may_not_be_read_does_not_end_a_lookup_over_all(workdir: Path, command: list[str]) -> None:
    whole = _run(workdir, *command)
    assert "sessions/s1/transcript.md" in whole.stdout
    for path in workdir.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    with _as_other_user(workdir):
        user = os.geteuid()
        os.seteuid(os.getuid())
        (workdir / "sessions" / "s1").chmod(0)
        os.seteuid(user)
        found = _run(workdir, *command)
    (workdir / "sessions" / "s1").chmod(0o700)
    assert found.exit_code == 0
    assert "/transcript.md" in found.stdout
    assert "[Not searched: sessions/s1: Permission denied.]" in found.stdout
