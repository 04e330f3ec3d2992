"""Recorded conversations in the forms that people have, and the options of ``buoyline replay`` about where they go."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from buoyline.cli import main
from buoyline.errors import MessageError
from buoyline.messages.recording import read_recording
from buoyline.messages.registry import detect

OPENAI = [
    {"role": "user", "content": "What does the log say?"},
    {
        "role": "assistant",
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "cat", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "a line of the log\n" * 3_000},
    {"role": "assistant", "content": "Nothing of note."},
]
ANTHROPIC = [
    {"role": "user", "content": "What does the log say?"},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "cat", "input": {}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "a line\n" * 3_000}]},
]


def lines(values: list[Any]) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def record(kind: str, content: object, *, uuid: str, **others: Any) -> dict[str, Any]:
    """Return a record as Claude Code writes it."""
    message = {"role": kind, "content": content, **others.pop("message", {})}
    return {"type": kind, "uuid": uuid, "sessionId": "s", "isSidechain": False, "message": message, **others}


def replayed(*arguments: object, given: bytes | None = None) -> Result:
    return CliRunner().invoke(main, ["replay", *map(str, arguments)], input=given)


@pytest.mark.parametrize(
    ("content", "form"),
    [
        (lines(OPENAI), "JSON lines"),
        (json.dumps(OPENAI).encode(), "JSON array"),
        (json.dumps(OPENAI, indent=2).encode(), "JSON array"),
        (b"\xef\xbb\xbf" + json.dumps({"model": "m", "messages": OPENAI}).encode(), "JSON object with 'messages'"),
        (json.dumps({"messages": OPENAI}, indent=1).encode(), "JSON object with 'messages'"),
        (b"[" + b",\n".join(json.dumps(message).encode() for message in OPENAI) + b"]\n", "JSON array"),
    ],
    ids=["lines", "array", "indented array", "object", "indented object", "array over lines"],
)
def test_a_conversation_is_the_same_however_it_is_spelled(content: bytes, form: str) -> None:
    found = read_recording(content, "run.json")
    assert (found.messages, found.form) == (OPENAI, form)


def test_the_system_prompt_of_a_request_is_its_first_message() -> None:
    found = read_recording(json.dumps({"system": "Be exact.", "messages": ANTHROPIC}).encode(), "run.json")
    assert [detect(message).view(message).role for message in found.messages] == ["system", "user", "assistant", "tool"]


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"\n \n", "'messages', or a session file of Claude Code"),
        (b"[]", "Claude Code"),
        (b'{"messages": "a"}', "not an object with the keys ['messages'] is no message"),
        (b"What does the log say?\n", "not lines that are not JSON"),
        (b'{"role": "user", "content": NaN}', "not lines that are not JSON"),
    ],
)
def test_a_file_without_messages_is_refused_with_what_was_expected_and_found(content: bytes, found: str) -> None:
    with pytest.raises(MessageError, match="x: holds no messages: expected one message a line") as refused:
        read_recording(content, "x")
    assert found in str(refused.value)


def test_what_is_no_message_is_skipped_and_counted() -> None:
    good = lines(OPENAI).splitlines()
    odd = [b'{"role": "user", "cont', b"", b"5", b'{"who": "me"}', b'{"who": "you"}', b"\xff"]
    found = read_recording(b"\n".join([*good[:2], *odd, *good[2:]]), "run.jsonl")
    assert found.messages == OPENAI
    assert sorted(found.skipped.values()) == [1, 2, 2]
    assert found.skipped["lines that are not JSON"] == 2


def test_the_blocks_of_one_answer_of_claude_code_become_one_message_before_their_results() -> None:
    def call(call_id: str) -> dict[str, Any]:
        return {"type": "tool_use", "id": call_id, "name": "Read", "input": {}}

    records = [
        {"type": "summary", "summary": "An older session", "leafUuid": "u0"},
        {"type": "file-history-snapshot", "messageId": "u1", "snapshot": {}},
        record("user", "Look.", uuid="u1"),
        record("assistant", [{"type": "text", "text": "Two files."}], uuid="u2", message={"id": "m1"}),
        record(
            "assistant", [{"type": "tool_use", "id": "a", "name": "Read", "input": {}}], uuid="u3", message={"id": "m1"}
        ),
        record("user", [{"type": "tool_result", "tool_use_id": "a", "content": "A"}], uuid="u4", toolUseResult="A"),
        record(
            "assistant", [{"type": "tool_use", "id": "b", "name": "Read", "input": {}}], uuid="u5", message={"id": "m1"}
        ),
        record("user", [{"type": "tool_result", "tool_use_id": "b", "content": "B"}], uuid="u6"),
        record(
            "assistant", [{"type": "text", "text": "Searching."}], uuid="u7", isSidechain=True, message={"id": "m2"}
        ),
        record("assistant", [{"type": "text", "text": "API Error"}], uuid="u8", isApiErrorMessage=True),
        record("user", "Look.", uuid="u1"),
        record("user", "This session is being continued.", uuid="u9", isCompactSummary=True),
    ]
    found = read_recording(lines(records), "s.jsonl")
    answer = [block["type"] for block in found.messages[1]["content"]]
    assert answer == ["text", "tool_use", "tool_use"]
    roles = [(message["role"], len(detect(message).view(message).results)) for message in found.messages]
    assert roles == [("user", 0), ("assistant", 0), ("user", 1), ("user", 1), ("user", 0)]
    assert (found.form, found.compactions) == ("Claude Code session", 1)
    assert found.skipped == {
        "summary": 1,
        "file-history-snapshot": 1,
        "message of a sub-agent": 1,
        "error of the API": 1,
        "repetition": 1,
    }


def test_the_file_of_a_sub_agent_is_its_own_conversation() -> None:
    records = [record("user", "Search.", uuid="u1", isSidechain=True), {"type": "progress", "isSidechain": True}]
    found = read_recording(lines(records), "agent-1.jsonl")
    assert found.messages == [{"role": "user", "content": "Search."}]
    assert found.skipped == {"progress": 1}


@pytest.mark.parametrize("name", ["00-c9e2351016-2", "86-4e0c91f5c0-0"])
def test_recorded_sessions_of_claude_code_read_as_others_have_converted_them(shared_data: Path, name: str) -> None:
    raw = shared_data / "raw_sessions" / f"claude_code_{name}.jsonl"
    converted = (shared_data / "sessions" / f"cc_entire_{name}.jsonl").read_bytes().splitlines()
    found = [detect(message).view(message) for message in read_recording(raw.read_bytes(), raw.name).messages]
    expected = [detect(message).view(message) for message in map(json.loads, converted)]
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert (one.role, one.text) == (other.role, other.text)
        assert [(call.call_id, call.name) for call in one.calls] == [(call.call_id, call.name) for call in other.calls]
        assert [result.text for result in one.results] == [result.text for result in other.results]


def test_words_that_the_user_wrote_while_the_agent_worked_are_messages_and_abandoned_branches_are_none() -> None:
    queued = {"type": "queued_command", "prompt": "And the tests.", "commandMode": "prompt"}
    records = [
        record("user", "Look.", uuid="u1", parentUuid=None),
        record("assistant", [{"type": "text", "text": "Two files."}], uuid="u2", parentUuid="u1", message={"id": "m1"}),
        record("user", "Delete them.", uuid="u3", parentUuid="u2"),
        record("assistant", [{"type": "text", "text": "Gone."}], uuid="u4", parentUuid="u3", message={"id": "m2"}),
        record("user", "Keep them.", uuid="u5", parentUuid="u2"),
        {"type": "attachment", "attachment": queued, "uuid": "u6", "parentUuid": "u5"},
        {"type": "attachment", "attachment": {**queued, "commandMode": "task-notification"}, "uuid": "u7"},
    ]
    found = read_recording(lines(records), "s.jsonl")
    said = [detect(message).view(message).text for message in found.messages]
    assert said == ["Look.", "Two files.", "Keep them.", "And the tests."]
    assert found.skipped == {"message of an abandoned branch": 2, "attachment": 1}


def test_without_a_workdir_a_replay_goes_to_a_temporary_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live, temporary = tmp_path / "live", tmp_path / "tmp"
    temporary.mkdir()
    live.mkdir()
    monkeypatch.setenv("BUOYLINE_WORKDIR", str(live))
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    monkeypatch.chdir(tmp_path)
    refused = replayed("-", given=b"nothing of the kind")
    assert (refused.exit_code, [*temporary.iterdir()]) == (1, [])
    done = replayed("-", given=lines(OPENAI))
    (made,) = temporary.iterdir()
    assert done.exit_code == 0
    assert f"buoyline show stdin --workdir {made}" in done.stdout
    assert (made / "retained.jsonl").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["live", "tmp"]
    assert [*live.iterdir()] == []


def test_the_command_to_look_around_pastes_into_a_shell(tmp_path: Path) -> None:
    workdir = tmp_path / "a b"
    (tmp_path / "my run.jsonl").write_bytes(lines(OPENAI))
    done = replayed(tmp_path / "my run.jsonl", "--workdir", workdir)
    (shown,) = [line for line in done.stdout.splitlines() if line.startswith("Details: ")]
    _, *arguments = shlex.split(shown.removeprefix("Details: "))
    assert CliRunner().invoke(main, arguments).exit_code == 0
