"""What a workspace keeps, seen through its own interface and behind its back."""

import asyncio
import base64
import hashlib
import json
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from buoyline.errors import (
    ConfigError,
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
from buoyline.workspace.pool import WorkerPool, outcome

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


async def test_a_text_that_looks_like_a_reference_stays_a_text(workspace: LocalWorkspace) -> None:
    await workspace.offload_context("s1", [image_message()])
    reference = context(workspace)[0]["content"][0]["image_url"]["url"]
    forged = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": reference}}]}
    await workspace.offload_context("s1", [forged])

    assert (await stored(workspace))[1] == forged


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


async def test_the_same_batch_id_is_the_same_batch_at_any_time(workspace: LocalWorkspace) -> None:
    first = await workspace.archive("s1", [user("a"), user("b")], batch_id="one")
    await workspace.archive("s1", [user("c")], batch_id="two")

    assert await workspace.archive("s1", [user("a"), user("b")], batch_id="one") == first
    assert await stored(workspace) == [user("a"), user("b"), user("c")]


async def test_a_batch_id_with_other_messages_is_a_conflict_and_writes_nothing(workspace: LocalWorkspace) -> None:
    await workspace.archive("s1", [user("a")], batch_id="one")

    with pytest.raises(ConflictError, match="new batch id"):
        await workspace.archive("s1", [user("b")], batch_id="one")
    assert await stored(workspace) == [user("a")]


async def test_messages_without_a_batch_id_do_not_repeat_a_batch_with_one(workspace: LocalWorkspace) -> None:
    await workspace.archive("s1", [user("a")], batch_id="one")
    await workspace.archive("s1", [user("a")])
    assert await stored(workspace) == [user("a"), user("a")]


async def test_without_a_batch_id_only_a_repetition_in_a_row_counts_as_a_retry(workspace: LocalWorkspace) -> None:
    for text in ("a", "a", "b", "a"):
        await workspace.offload_context("s1", [user(text)])

    assert await stored(workspace) == [user("a"), user("b"), user("a")]


async def test_no_messages_change_nothing(workspace: LocalWorkspace) -> None:
    await workspace.offload_context("s1", [user("a")])
    before = (workspace.workdir / "sessions/s1/journal.jsonl").read_bytes()
    await workspace.offload_context("s1", [])

    assert (workspace.workdir / "sessions/s1/journal.jsonl").read_bytes() == before


async def test_a_thing_that_is_no_message_is_named_by_its_position_and_writes_nothing(
    workspace: LocalWorkspace,
) -> None:
    await workspace.offload_context("s1", [user("a")])

    with pytest.raises(MessageError, match="message 1"):
        await workspace.offload_context("s1", [user("b"), {"no": "role"}])
    with pytest.raises(MessageError, match="JSON"):
        await workspace.offload_context("s1", [{"role": "user", "content": [{"type": "x", "n": float("nan")}]}])
    assert await stored(workspace) == [user("a")]


async def test_line_ranges_name_the_lines_of_each_message(workspace: LocalWorkspace) -> None:
    await workspace.archive("s1", [user("x\ny"), user("z")])
    batch = await workspace.archive("s1", [user("needle")])
    lines = Path(batch.transcript).read_text(encoding="utf-8").split("\n")

    ((start, end),) = batch.lines
    assert "needle" in lines[start - 1 : end]
    located = await workspace.locate("s1", 0, 3)
    assert ["needle" in "".join(lines[first - 1 : last]) for first, last in located.lines] == [False, False, True]


async def test_lines_of_messages_that_are_not_archived_are_a_clear_error(workspace: LocalWorkspace) -> None:
    await workspace.archive("s1", [user("x")])

    with pytest.raises(NotFoundError):
        await workspace.locate("s1", 0, 2)


async def test_a_tool_result_is_on_disk_byte_for_byte(workspace: LocalWorkspace) -> None:
    text = "a\r\nb\x00\u2028\ud800 end"
    path = await workspace.offload_tool_result("s1", {"role": "tool", "tool_call_id": "c1", "content": text})

    assert path == str(workspace.workdir / "sessions/s1/tool_result-c1.txt")
    assert Path(path).read_bytes() == text.encode("utf-8", "surrogatepass")


async def test_one_id_with_other_content_keeps_both_and_with_the_same_is_one_file(workspace: LocalWorkspace) -> None:
    first = await workspace.offload_tool_result("s1", _block("", "one"))
    second = await workspace.offload_tool_result("s1", _block("", "two"))

    assert await workspace.offload_tool_result("s1", _block("", "one")) == first
    assert await workspace.offload_tool_result("s1", _block("", "two")) == second
    assert [Path(path).read_text(encoding="utf-8") for path in (first, second)] == ["one", "two"]


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


async def test_summaries_are_numbered_and_come_back_in_order(workspace: LocalWorkspace) -> None:
    assert await workspace.append_summary("s1", {"n": 0, "text": "a"}) == 1
    assert await workspace.append_summary("s1", {"n": 0, "text": "b"}) == 2

    assert await workspace.load_summaries("s1") == [{"n": 1, "text": "a"}, {"n": 2, "text": "b"}]


async def test_a_changed_summary_is_reported(workspace: LocalWorkspace) -> None:
    await workspace.append_summary("s1", {"text": "a"})
    await workspace.append_summary("s1", {"text": "c"})
    path = workspace.workdir / "sessions/s1/summaries.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"a"', b'"b"'))

    with pytest.raises(CorruptError, match="summary 1"):
        await workspace.load_summaries("s1")


async def test_a_window_comes_back_as_it_was_left(workspace: LocalWorkspace) -> None:
    await workspace.start_window("s1", {"size": 5})
    await workspace.extend_window("s1", [user("a"), user("b")], [1])
    state = await workspace.load_window("s1")
    assert ([m for _, m in state.messages], state.pins, dict(state.settings)) == (
        [user("a"), user("b")],
        (1,),
        {"size": 5},
    )

    await workspace.replace_window("s1", [user("head"), user("b")], ["summary"], 1, [1])
    await workspace.extend_window("s1", [user("c")], [1])
    state = await workspace.load_window("s1")
    assert [m for _, m in state.messages] == [user("head"), user("b"), user("c")]
    assert (state.head, state.first) == (("summary",), 1)


async def test_a_window_writes_a_message_in_the_dialect_that_its_caller_names(workspace: LocalWorkspace) -> None:
    await workspace.start_window("s1", {})
    message = {"role": "user", "content": [{"text": "look"}, {"image": {"format": "png", "source": {"bytes": b"png"}}}]}

    await workspace.extend_window("s1", [message, user("b")], [], dialects=["bedrock", "openai"])
    detected = await workspace.load_window("s1")

    await workspace.replace_window("s1", [message, user("b")], [], 0, [])
    assert (await workspace.load_window("s1")).messages == detected.messages
    assert [dialect for dialect, _ in detected.messages] == ["bedrock", "openai"]


async def test_a_window_takes_one_dialect_for_each_message_or_none_at_all(workspace: LocalWorkspace) -> None:
    await workspace.start_window("s1", {})
    await workspace.extend_window("s1", [user("a")], [], dialects=["openai"])
    for wrong in (["openai"], ["openai"] * 3):
        with pytest.raises(ValueError, match="argument 2"):
            await workspace.extend_window("s1", [user("b"), user("c")], [], dialects=wrong)
        with pytest.raises(ValueError, match="argument 2"):
            await workspace.replace_window("s1", [user("b"), user("c")], [], 0, [], dialects=wrong)
    with pytest.raises(ConfigError, match="'telegraph' is not known"):
        await workspace.extend_window("s1", [user("b")], [], dialects=["telegraph"])

    assert [message for _, message in (await workspace.load_window("s1")).messages] == [user("a")]


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


@pytest.mark.parametrize("name", ["sessions", "data", "sessions/s1", ".locks"])
async def test_a_link_in_the_place_of_a_directory_is_not_followed(tmp_path: Path, name: str) -> None:
    workspace = LocalWorkspace(tmp_path / "w")
    await workspace.offload_context("s1", [image_message()])
    outside = tmp_path / "outside"
    (tmp_path / "w" / name).rename(outside)
    (tmp_path / "w" / name).symlink_to(outside)
    before = sorted(str(path) for path in outside.rglob("*"))

    fresh = LocalWorkspace(tmp_path / "w")
    other = {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": _b64(b"x"), "format": "wav"}}]}
    with pytest.raises((StorageError, NotFoundError)):
        await fresh.offload_context("s1", [other])
    assert sorted(str(path) for path in outside.rglob("*")) == before


async def test_a_directory_of_another_session_is_refused(tmp_path: Path) -> None:
    await LocalWorkspace(tmp_path).offload_context("s1", [user("a")])
    (tmp_path / "sessions/s1").rename(tmp_path / "sessions/s2")

    with pytest.raises(CorruptError, match="s2"):
        await LocalWorkspace(tmp_path).offload_context("s2", [user("a")])


@pytest.mark.parametrize("session_id", ["", "x" * 5000, 7, None])
async def test_a_session_id_that_cannot_be_one_is_refused(workspace: LocalWorkspace, session_id: Any) -> None:
    with pytest.raises(InvalidNameError):
        await workspace.offload_context(session_id, [user("a")])


@pytest.mark.parametrize("session_id", ["../../up", "/abs", "a/b", "CON", ".hidden", "a\nb", "\ud800", "-rf", "   "])
async def test_a_hostile_session_id_gets_a_directory_of_its_own_inside(tmp_path: Path, session_id: str) -> None:
    workspace = LocalWorkspace(tmp_path / "deep" / "w", durability="off")
    path = await workspace.offload_context(session_id, [user("a")])

    assert Path(path).resolve().parent.parent == workspace.workdir / "sessions"
    assert [entry.name for entry in tmp_path.iterdir()] == ["deep"]
    assert workspace.session_ids() == [session_id]


async def test_sessions_are_listed_by_their_own_ids(workspace: LocalWorkspace) -> None:
    assert workspace.session_ids() == []
    for session_id in ("b", "A.b", "../x"):
        await workspace.offload_context(session_id, [user("a")])

    assert sorted(workspace.session_ids()) == ["../x", "A.b", "b"]


def test_an_unknown_durability_is_refused_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="fsync, off"):
        LocalWorkspace(tmp_path, durability="maybe")


@pytest.mark.parametrize("seconds", [None, "1", float("nan"), -1, True])
def test_a_time_to_wait_for_a_lock_that_is_none_is_refused_at_once(tmp_path: Path, seconds: Any) -> None:
    with pytest.raises(ConfigError, match="lock_timeout_s"):
        LocalWorkspace(tmp_path, lock_timeout_s=seconds)


@pytest.mark.parametrize("shown_as", [5, b"/mnt/files"])
def test_a_path_for_agents_that_is_no_text_is_refused(tmp_path: Path, shown_as: Any) -> None:
    with pytest.raises(ConfigError, match="shown_as"):
        LocalWorkspace(tmp_path, shown_as=shown_as)


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


async def test_a_cancelled_call_is_over_only_when_its_thread_has_ended() -> None:
    """However often it is cancelled meanwhile: who goes on must find nothing half done."""
    pool, begun, may_end, ended = WorkerPool(), threading.Event(), threading.Event(), list[bool]()

    def work() -> None:
        begun.set()
        may_end.wait()
        ended.append(True)

    task = asyncio.ensure_future(outcome(pool.submit("s1", work)))
    try:
        await asyncio.to_thread(begun.wait)
        for _ in range(3):
            task.cancel()
            for _ in range(20):
                await asyncio.sleep(0)
            assert not task.done()
    finally:
        may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == [True]
    pool.close()


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
