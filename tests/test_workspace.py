"""What a workspace keeps, seen through its own interface and behind its back."""

import asyncio
import base64
import hashlib
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from buoyline.errors import (
    ConflictError,
    CorruptError,
    FormatVersionError,
    InvalidNameError,
    MessageError,
    NotFoundError,
    SessionExistsError,
    StorageError,
)
from buoyline.messages import Text, ToolResult
from buoyline.workspace import LocalWorkspace

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(64))


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def image_message() -> dict[str, Any]:
    url = "data:image/png;base64," + base64.b64encode(PNG).decode()
    return {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}


@pytest.fixture
def workspace(tmp_path: Path) -> LocalWorkspace:
    return LocalWorkspace(tmp_path / "w", durability="off")


def context(workspace: LocalWorkspace, session: str = "s1") -> list[Any]:
    path = workspace.workdir / "sessions" / session / "context.jsonl"
    return [json.loads(line) for line in path.read_bytes().splitlines()]


async def stored(workspace: LocalWorkspace, session: str = "s1") -> list[Any]:
    return [message for _, message in await workspace.load_messages(session, 0, 1 << 30)]


async def test_an_archived_message_is_its_own_json_with_nothing_added(workspace: LocalWorkspace) -> None:
    message = {"role": "user", "content": "größer \u2028 \ud83d than", "custom": {"z": 1, "a": [2.5, None]}}
    path = await workspace.offload_context("s1", [message])

    assert path == str(workspace.workdir / "sessions" / "s1" / "context.jsonl")
    assert context(workspace) == [message]
    assert list(context(workspace)[0]) == list(message)


async def test_messages_come_back_in_order_and_equal(workspace: LocalWorkspace) -> None:
    messages = [user(str(number)) for number in range(20)]
    for start in range(0, 20, 3):
        await workspace.offload_context("s1", messages[start : start + 3])

    assert await stored(workspace) == messages
    assert [m for _, m in await workspace.load_messages("s1", 4, 9)] == messages[4:9]


async def test_a_payload_becomes_a_file_that_sha256sum_verifies_and_comes_back_equal(
    workspace: LocalWorkspace,
) -> None:
    message = image_message()
    await workspace.offload_context("s1", [message, message])

    name = f"data/{hashlib.sha256(PNG).hexdigest()}.png"
    assert (workspace.workdir / name).read_bytes() == PNG
    assert [path.name for path in (workspace.workdir / "data").iterdir()] == [name.removeprefix("data/")]
    assert context(workspace)[0]["content"][0]["image_url"]["url"] == f"workspace:///{name}"
    assert await stored(workspace) == [message, message]


async def test_a_data_block_comes_back_with_a_reference(workspace: LocalWorkspace) -> None:
    block: dict[str, Any] = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": _b64(PNG)},
    }
    found = await workspace.offload_data_block(block)

    assert found["source"]["data"] == f"workspace:///data/{hashlib.sha256(PNG).hexdigest()}.png"
    assert block["source"]["data"] == _b64(PNG)


async def test_a_damaged_payload_is_reported_and_not_handed_out(workspace: LocalWorkspace) -> None:
    await workspace.offload_context("s1", [image_message()])
    path = workspace.workdir / "data" / f"{hashlib.sha256(PNG).hexdigest()}.png"
    path.write_bytes(PNG[:-1] + b"x")

    with pytest.raises(CorruptError, match="do not match"):
        await stored(workspace)


async def test_a_batch_id_with_other_messages_is_a_conflict_and_writes_nothing(workspace: LocalWorkspace) -> None:
    await workspace.archive("s1", [user("a")], batch_id="one")

    with pytest.raises(ConflictError, match="new batch id"):
        await workspace.archive("s1", [user("b")], batch_id="one")
    assert await stored(workspace) == [user("a")]


async def test_without_a_batch_id_only_a_repetition_in_a_row_counts_as_a_retry(workspace: LocalWorkspace) -> None:
    for text in ("a", "a", "b", "a"):
        await workspace.offload_context("s1", [user(text)])

    assert await stored(workspace) == [user("a"), user("b"), user("a")]


async def test_a_thing_that_is_no_message_is_named_by_its_position_and_writes_nothing(
    workspace: LocalWorkspace,
) -> None:
    await workspace.offload_context("s1", [user("a")])

    with pytest.raises(MessageError, match="message 1"):
        await workspace.offload_context("s1", [user("b"), {"no": "role"}])
    with pytest.raises(MessageError, match="JSON"):
        await workspace.offload_context("s1", [{"role": "user", "content": [{"type": "x", "n": float("nan")}]}])
    assert await stored(workspace) == [user("a")]


async def test_lines_of_messages_that_are_not_archived_are_a_clear_error(workspace: LocalWorkspace) -> None:
    await workspace.archive("s1", [user("x")])

    with pytest.raises(NotFoundError):
        await workspace.locate("s1", 0, 2)


async def test_a_result_with_a_long_line_gets_a_view_with_short_ones(workspace: LocalWorkspace) -> None:
    text = json.dumps({"rows": [{"id": number} for number in range(300)]})
    result = await workspace.store_result("s1", ToolResult("c", "t", (Text(text),)))
    view = Path(result.view).read_text(encoding="utf-8")

    assert Path(result.reference).read_text(encoding="utf-8") == text
    assert json.loads(view) == json.loads(text)
    assert max(map(len, view.splitlines())) < 100
    assert result.lines == len(view.splitlines())


async def test_a_readable_result_gets_no_view(workspace: LocalWorkspace) -> None:
    result = await workspace.store_result("s1", ToolResult("c", "t", (Text("a\nb\n"),)))

    assert (result.view, result.lines) == ("", 2)


async def test_something_that_is_no_tool_result_is_refused(workspace: LocalWorkspace) -> None:
    with pytest.raises(MessageError, match="no tool result"):
        await workspace.offload_tool_result("s1", user("x"))


async def test_a_stub_is_known_by_its_record_and_not_by_its_looks(workspace: LocalWorkspace) -> None:
    result = await workspace.store_result("s1", ToolResult("c1", "t", (Text("whole"),)))
    await workspace.record_stub("s1", "the stub", result)
    real = {"role": "tool", "tool_call_id": "c1", "content": "the stub"}
    forged = {"role": "tool", "tool_call_id": "c1", "content": "the stub "}
    await workspace.archive("s1", [real, forged])
    transcript = (workspace.workdir / "sessions/s1/transcript.md").read_text(encoding="utf-8")

    assert transcript.count("[offloaded: 1 lines in tool_result-c1.txt]") == 1
    assert transcript.count("the stub") == 1


async def test_what_is_missing_is_what_no_file_of_the_session_holds(workspace: LocalWorkspace) -> None:
    await workspace.archive("s1", [user("alpha")])
    await workspace.store_result("s1", ToolResult("c", "t", (Text("beta"),)))

    assert await workspace.missing("s1", ["gamma", "alpha", "beta", "delta"]) == ["gamma", "delta"]


async def test_a_changed_summary_is_reported(workspace: LocalWorkspace) -> None:
    await workspace.append_summary("s1", {"text": "a"})
    await workspace.append_summary("s1", {"text": "c"})
    path = workspace.workdir / "sessions/s1/summaries.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"a"', b'"b"'))

    with pytest.raises(CorruptError, match="summary 1"):
        await workspace.load_summaries("s1")


async def test_a_second_window_in_a_used_session_is_refused(workspace: LocalWorkspace) -> None:
    await workspace.start_window("s1", {})

    with pytest.raises(SessionExistsError, match="resume"):
        await workspace.start_window("s1", {})


async def test_a_window_changed_behind_our_back_is_reported(workspace: LocalWorkspace) -> None:
    await workspace.start_window("s1", {})
    await workspace.replace_window("s1", [user("head")], ["summary"], 3, [])
    await workspace.replace_window("s1", [user("other")], ["summary"], 4, [])
    (workspace.workdir / "sessions/s1/window.jsonl").write_text('{"role":"user","content":"?"}\n', encoding="utf-8")

    with pytest.raises(CorruptError, match=r"window\.jsonl"):
        await workspace.load_window("s1")


async def test_modes_are_0700_and_0600_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        workspace = LocalWorkspace(tmp_path / "w")
        await workspace.offload_context("s1", [image_message()])
        await workspace.offload_tool_result("s1", _block("c", "x" * 2000))
        await workspace.append_summary("s1", {})
        await workspace.start_window("s2", {})
    finally:
        os.umask(before)
    for directory, _, files in os.walk(workspace.workdir):
        assert stat.S_IMODE(Path(directory).stat().st_mode) == 0o700, directory
        for name in files:
            assert stat.S_IMODE((Path(directory) / name).stat().st_mode) == 0o600, name


async def test_a_newer_format_is_refused_and_left_untouched(tmp_path: Path) -> None:
    path = tmp_path / "workspace.json"
    path.write_text('{"format": 2, "id": "x"}', encoding="utf-8")

    with pytest.raises(FormatVersionError, match="upgrade"):
        await LocalWorkspace(tmp_path).offload_context("s1", [user("a")])
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": "1"}', '{"format": true}', "\x00"])
async def test_a_workspace_file_that_says_no_format_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "workspace.json").write_text(content, encoding="utf-8")

    with pytest.raises(CorruptError, match='no "format" key'):
        await LocalWorkspace(tmp_path).initialize()


async def test_what_else_lies_in_the_directory_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills" / "a.md").write_text("mine", encoding="utf-8")
    async with LocalWorkspace(tmp_path) as workspace:
        await workspace.offload_context("s1", [user("a")])

    assert (tmp_path / "skills" / "a.md").read_text(encoding="utf-8") == "mine"


async def test_a_file_in_the_place_of_the_workdir_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "w").write_text("x", encoding="utf-8")

    with pytest.raises(StorageError, match="w"):
        await LocalWorkspace(tmp_path / "w").offload_context("s1", [user("a")])


@pytest.mark.parametrize("name", ["context.jsonl", "journal.jsonl", "transcript.md"])
@pytest.mark.parametrize("kind", ["link", "pipe", "directory"])
async def test_what_stands_in_a_files_place_is_refused_and_not_waited_on(tmp_path: Path, name: str, kind: str) -> None:
    await LocalWorkspace(tmp_path / "w").offload_context("s1", [user("a")])
    outside = tmp_path / "outside"
    outside.write_text("untouched", encoding="utf-8")
    path = tmp_path / "w" / "sessions" / "s1" / name
    path.unlink()
    if kind == "link":
        path.symlink_to(outside)
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()

    with pytest.raises((StorageError, CorruptError)):
        await LocalWorkspace(tmp_path / "w").offload_context("s1", [user("b")])
    assert outside.read_text(encoding="utf-8") == "untouched"


async def test_a_directory_of_another_session_is_refused(tmp_path: Path) -> None:
    await LocalWorkspace(tmp_path).offload_context("s1", [user("a")])
    (tmp_path / "sessions/s1").rename(tmp_path / "sessions/s2")

    with pytest.raises(CorruptError, match="s2"):
        await LocalWorkspace(tmp_path).offload_context("s2", [user("a")])


@pytest.mark.parametrize("session_id", ["", "x" * 5000, 7, None])
async def test_a_session_id_that_cannot_be_one_is_refused(workspace: LocalWorkspace, session_id: Any) -> None:
    with pytest.raises(InvalidNameError):
        await workspace.offload_context(session_id, [user("a")])


async def test_sessions_are_listed_by_their_own_ids(workspace: LocalWorkspace) -> None:
    assert workspace.session_ids() == []
    for session_id in ("b", "A.b", "../x"):
        await workspace.offload_context(session_id, [user("a")])

    assert sorted(workspace.session_ids()) == ["../x", "A.b", "b"]


async def test_a_cancelled_call_returns_when_its_work_has_ended_and_its_repetition_stores_once(
    workspace: LocalWorkspace,
) -> None:
    messages = [user("x" * 1000)] * 2_000
    task = asyncio.ensure_future(workspace.archive("s1", messages, batch_id="one"))
    await asyncio.sleep(0)
    await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await workspace.archive("s1", messages, batch_id="one")

    assert await stored(workspace) == messages


async def test_calls_for_one_session_keep_the_order_in_which_they_were_made(workspace: LocalWorkspace) -> None:
    messages = [user(str(number)) for number in range(50)]
    await asyncio.gather(*(workspace.offload_context("s1", [message]) for message in messages))

    assert await stored(workspace) == messages


def test_one_workspace_serves_one_event_loop_after_another(workspace: LocalWorkspace) -> None:
    for number in range(3):
        asyncio.run(workspace.offload_context("s1", [user(str(number))]))
    asyncio.run(workspace.close())
    asyncio.run(workspace.offload_context("s1", [user("3")]))

    assert len(context(workspace)) == 4


async def test_a_tilde_in_the_workdir_is_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert await LocalWorkspace("~/w").offload_context("s1", [user("a")]) == f"{tmp_path}/w/sessions/s1/context.jsonl"
    assert LocalWorkspace("~nobody-here/w").workdir == Path("~nobody-here/w").absolute()


async def test_a_moved_workspace_still_reads(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path / "a")
    await workspace.offload_context("s1", [image_message()])
    await workspace.append_summary("s1", {"text": "t"})
    await workspace.close()
    (tmp_path / "a").rename(tmp_path / "b")
    moved = LocalWorkspace(tmp_path / "b")

    assert await stored(moved) == [image_message()]
    assert (await moved.load_summaries("s1"))[0]["text"] == "t"


def _b64(payload: bytes) -> str:
    return base64.b64encode(payload).decode()


def _block(call_id: str, text: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": text}
