"""Limits on what may be stored: refused before anything is decoded or written."""

import asyncio
import base64
import errno
import json
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buoyline import LocalWorkspace
from buoyline.errors import ConfigError, QuotaExceededError, WorkspaceFull
from buoyline.messages import Text, ToolResult
from buoyline.messages.payloads import payload_sizes, payloads_in
from buoyline.testing.conversation import agentscope_messages, anthropic_messages, openai_messages, said
from buoyline.workspace import quotas as quotas_module
from buoyline.workspace.quotas import Quotas

Write = Callable[[LocalWorkspace], Awaitable[object]]

LONG = "word " * 1_000
"""Stored as a tool result it has a view, too."""


def image(payload: bytes) -> dict[str, Any]:
    url = "data:image/png;base64," + base64.b64encode(payload).decode("ascii")
    return {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}


def result(text: str, call_id: str = "c") -> ToolResult:
    return ToolResult(call_id, "tool", (Text(text),))


def tree_of(workdir: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(workdir)): path.read_bytes() if path.is_file() else None
        for path in sorted(workdir.rglob("*"))
        if ".locks/" not in str(path.relative_to(workdir))
    }


def used_bytes(directory: Path) -> int:
    return sum(p.stat().st_size for p in directory.rglob("*") if p.is_file() and p.name != "session.json")


async def _stub(workspace: LocalWorkspace) -> None:
    stored = await LocalWorkspace(workspace.workdir).store_result("s", result("short", "other"))
    await workspace.record_stub("s", LONG, stored)


def _with_window(*, replaces: bool) -> Write:
    async def write(workspace: LocalWorkspace) -> None:
        stored = await LocalWorkspace(workspace.workdir).store_result("s", result("short", "other"))
        stubs = [(text, stored) for text in (LONG, f"{LONG}.")]
        if replaces:
            await workspace.replace_window("s", [said("x")], [], 0, [0], stubs=stubs)
        else:
            await workspace.extend_window("s", [said("x")], [1, 2], stubs=stubs)

    return write


WRITES: dict[str, Write] = {
    "stub": _stub,
    "stubs with a window": _with_window(replaces=False),
    "stubs with a new window": _with_window(replaces=True),
    "archive": lambda w: w.archive("s", [said(LONG)]),
    "archive with a picture": lambda w: w.archive("s", [said("x"), image(b"p" * 5_000)]),
    "result": lambda w: w.store_result("s", result(LONG)),
    "further result": lambda w: w.store_result("s", result(f"{LONG}.")),
    "stream": lambda w: w.store_stream("s", "streamed", [LONG[:50], LONG[50:]]),
    "stream with long lines": lambda w: w.store_stream("s", "streamed", ["word " * 500]),
    "further stream": lambda w: w.store_stream("s", "c", [LONG, "."]),
    "summary": lambda w: w.append_summary("s", {"text": LONG}),
    "summary with facts": lambda w: w.append_summary("s", {"text": LONG, "items": [{"text": LONG}] * 9, "work": {}}),
    "window": lambda w: w.extend_window("s", [said(LONG)], [1, 2]),
    "new window": lambda w: w.replace_window("s", [said(LONG)], ["summary"], 1, [0]),
    "picture in a window": lambda w: w.extend_window("s", [image(b"p" * 5_000)], []),
}
OF_A_RESULT = {"stub", "stubs with a window", "stubs with a new window"}
"""Writes to a session that has a result already, which no quota limited."""

each_write = pytest.mark.parametrize("name", WRITES)


@pytest.mark.parametrize("limit", [0, -1, True, 1.5, "1"])
@pytest.mark.parametrize("setting", ["blob_bytes", "session_bytes", "workspace_bytes"])
def test_a_quota_that_is_no_number_of_bytes_is_refused_when_it_is_built(setting: str, limit: Any) -> None:
    with pytest.raises(ConfigError, match=f"{setting}: .* is not a whole number of bytes"):
        Quotas(**{setting: limit})


def test_an_exceeded_quota_is_a_full_workspace_and_names_the_way_out() -> None:
    error = QuotaExceededError("workspace", 10, 12)
    assert isinstance(error, WorkspaceFull)
    assert error.errno == errno.EDQUOT
    assert "buoyline gc" in str(error)


@each_write
@pytest.mark.parametrize("quota", ["session_bytes", "workspace_bytes"])
async def test_a_write_over_a_quota_changes_nothing_and_one_within_it_is_as_without(
    tmp_path: Path, quota: str, name: str
) -> None:
    """The limit is sharp: what the write really takes is allowed, one byte less is not."""
    first, free = tmp_path / "a", tmp_path / "b"
    for workdir in (first, free):
        workspace = LocalWorkspace(workdir)
        await workspace.start_window("s", {}, writer="w")
        await workspace.extend_window("s", [said("a")], [])
        await workspace.store_result("s", result("first"))
        await workspace.store_result("s", result("short", "other"))
    await WRITES[name](LocalWorkspace(free))
    parts = ["sessions/s"] if quota == "session_bytes" else ["sessions", "data"]
    needed = sum(used_bytes(free / part) for part in parts)
    if quota == "workspace_bytes":
        needed += (free / "sessions/s/session.json").stat().st_size
    before = tree_of(first)
    with pytest.raises(QuotaExceededError, match=f"{quota}=") as caught:
        await WRITES[name](LocalWorkspace(first, quotas=Quotas(**{quota: needed - 1})))
    assert caught.value.needed_bytes == needed
    assert tree_of(first) == before
    await WRITES[name](LocalWorkspace(first, quotas=Quotas(**{quota: needed})))
    assert sum(used_bytes(first / part) for part in parts) == sum(used_bytes(free / part) for part in parts)


@pytest.mark.parametrize("name", sorted(set(WRITES) - OF_A_RESULT))
async def test_a_session_that_not_even_its_first_write_fits_into_is_not_created(tmp_path: Path, name: str) -> None:
    workspace = LocalWorkspace(tmp_path, quotas=Quotas(session_bytes=100))
    with pytest.raises(QuotaExceededError):
        await WRITES[name](workspace)
    assert list((tmp_path / "sessions").iterdir()) == list((tmp_path / "data").iterdir()) == []


async def test_a_stub_that_does_not_fit_creates_no_session(tmp_path: Path) -> None:
    stored = await LocalWorkspace(tmp_path).store_result("s", result(LONG))
    with pytest.raises(QuotaExceededError):
        await LocalWorkspace(tmp_path, quotas=Quotas(session_bytes=10)).record_stub("another", "the stub", stored)
    assert [path.name for path in (tmp_path / "sessions").iterdir()] == ["s"]


async def test_a_window_is_taken_over_and_read_in_a_session_that_is_full(tmp_path: Path) -> None:
    await LocalWorkspace(tmp_path).start_window("s", {"size": 5}, writer="w")
    full = LocalWorkspace(tmp_path, quotas=Quotas(session_bytes=1, workspace_bytes=1))
    await full.claim_window("s", writer="another")
    assert dict((await full.load_window("s")).settings) == {"size": 5}


async def test_a_window_may_shrink_in_a_session_that_is_over_its_quota(tmp_path: Path) -> None:
    free = LocalWorkspace(tmp_path)
    await free.start_window("s", {}, writer="w")
    await free.extend_window("s", [said(LONG)], [])
    await LocalWorkspace(tmp_path, quotas=Quotas(session_bytes=10)).replace_window("s", [said("a")], [], 0, [])
    assert [message for _, message in (await free.load_window("s")).messages] == [said("a")]


async def test_what_is_stored_already_is_answered_in_a_session_that_is_full(tmp_path: Path) -> None:
    free = LocalWorkspace(tmp_path)
    stored = await free.store_result("s", result(LONG))
    archived = await free.archive("s", [image(b"p")], batch_id="one")
    full = LocalWorkspace(tmp_path, quotas=Quotas(session_bytes=1, workspace_bytes=1))
    assert await full.store_result("s", result(LONG)) == stored
    assert await full.archive("s", [image(b"p")], batch_id="one") == archived


async def test_a_payload_over_the_quota_of_a_blob_is_refused_and_one_at_it_is_stored(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path, quotas=Quotas(blob_bytes=100))
    block = image(b"x" * 101)["content"][0]
    for call in (
        workspace.archive("s", [said("a"), image(b"x" * 101)]),
        workspace.extend_window("s", [image(b"x" * 101)], []),
        workspace.replace_window("s", [image(b"x" * 101)], [], 0, []),
        workspace.offload_data_block(block),
    ):
        with pytest.raises(QuotaExceededError, match="101 bytes, but its quota allows 100") as caught:
            await call
        assert (caught.value.quota, caught.value.limit_bytes, caught.value.needed_bytes) == ("blob", 100, 101)
    assert not (tmp_path / "sessions").exists()
    for size in (98, 99, 100):
        await workspace.archive("s", [image(b"x" * size)])
        await workspace.offload_data_block(image(b"y" * size)["content"][0])
    assert len(list((tmp_path / "data").iterdir())) == 6


async def test_a_payload_within_a_providers_object_is_measured_too(tmp_path: Path) -> None:
    types = pytest.importorskip("anthropic.types")
    if not hasattr(types, "Base64PDFSource"):
        pytest.skip("this version of anthropic has no class for the source of a document")
    data = base64.b64encode(b"x" * 300).decode("ascii")
    source = types.Base64PDFSource(type="base64", media_type="application/pdf", data=data)
    message = {"role": "user", "content": [{"type": "document", "source": source}]}
    with pytest.raises(QuotaExceededError):
        await LocalWorkspace(tmp_path, quotas=Quotas(blob_bytes=100)).archive("s", [message])


async def test_a_huge_payload_is_refused_by_its_length_without_a_copy(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path, quotas=Quotas(blob_bytes=1_000_000))
    message = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}]}
    message["content"][0]["image_url"]["url"] += "A" * 40_000_000  # type: ignore[index]
    source = {"type": "base64", "media_type": "image/png", "data": "A" * 40_000_000}
    block = {"type": "image", "source": source}
    tracemalloc.start()
    try:
        for call in (
            workspace.archive("s", [message]),
            workspace.extend_window("s", [{"role": "user", "content": [block]}], []),
            workspace.offload_data_block(block),
        ):
            with pytest.raises(QuotaExceededError, match=r"take (29,999,99\d|30,000,000) bytes|30,000,000"):
                await call
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000
    assert not (tmp_path / "sessions").exists()


@given(st.binary(max_size=20), st.sampled_from(["", "\n", " ", "="]))
def test_an_announced_size_is_exact_for_a_payload_and_never_too_small(payload: bytes, behind: str) -> None:
    text = base64.b64encode(payload).decode("ascii") + behind
    value = {"source": {"type": "base64", "data": text}, "url": f"data:a/b;base64,{text}"}
    announced = list(payload_sizes(value))
    assert all(size >= len(payload) for size in announced)
    assert len(announced) == 2
    if not behind and payload:
        assert announced == [len(found.content) for found in payloads_in(value)]


def test_sizes_in_a_value_that_contains_itself_are_told_all_the_same() -> None:
    value: dict[str, Any] = {"type": "base64", "data": "QUJD"}
    value["again"] = [value, value]
    assert list(payload_sizes(value)) == [3]


@given(st.lists(st.sampled_from(sorted(set(WRITES) - OF_A_RESULT)), max_size=6), st.integers(200, 20_000))
def test_a_session_never_takes_more_than_its_quota_whatever_is_written(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], limit: int
) -> None:
    workdir = tmp_path_factory.mktemp("w")

    async def run() -> None:
        workspace = LocalWorkspace(workdir, durability="off", quotas=Quotas(session_bytes=limit))
        for name in names:
            try:
                await WRITES[name](workspace)
            except QuotaExceededError:
                continue
        await workspace.close()

    asyncio.run(run())
    assert used_bytes(workdir / "sessions") <= limit


async def test_many_tasks_do_not_exceed_the_quota_of_the_workspace_together(tmp_path: Path) -> None:
    limit = 60_000
    workspace = LocalWorkspace(tmp_path, durability="off", quotas=Quotas(workspace_bytes=limit))
    calls = [workspace.store_result(f"s{number}", result("x" * 900 + "\n")) for number in range(60)]
    calls += [workspace.archive(f"s{number}", [image(bytes([number]) * 900)]) for number in range(60)]  # type: ignore[misc]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    refused = [answer for answer in answers if isinstance(answer, QuotaExceededError)]
    assert 0 < len(refused) < len(calls)
    assert used_bytes(tmp_path / "sessions") + used_bytes(tmp_path / "data") <= limit


WRITING = """
import asyncio, sys
from buoyline import LocalWorkspace
from buoyline.errors import QuotaExceededError
from buoyline.workspace.quotas import Quotas
async def main():
    workspace = LocalWorkspace(sys.argv[1], quotas=Quotas(session_bytes=40_000))
    for number in range(40):
        try:
            await workspace.archive("s", [{"role": "user", "content": f"{sys.argv[2]} {number} " + "x" * 700}])
            content = "y" * number * 9
            await workspace.offload_tool_result("s", {"role": "tool", "tool_call_id": sys.argv[2], "content": content})
        except QuotaExceededError:
            print("refused")
asyncio.run(main())
"""


def test_many_processes_do_not_exceed_the_quota_of_a_session_together(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITING, str(tmp_path)]
    writers = [
        subprocess.Popen([*command, str(number)], stdout=subprocess.PIPE, text=True, env=os.environ) for number in "123"
    ]
    said_no = [writer.communicate()[0].count("refused") for writer in writers]
    assert all(writer.returncode == 0 for writer in writers)
    assert sum(said_no) > 0
    assert 38_000 < used_bytes(tmp_path / "sessions") <= 40_000


async def test_what_was_removed_gives_room_again_once_the_workspace_is_walked_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quotas_module, "_SHORTEST_VALIDITY_S", 0)
    monkeypatch.setattr(quotas_module, "_VALIDITY_PER_WALK", 0)
    workspace = LocalWorkspace(tmp_path, quotas=Quotas(workspace_bytes=10_000))
    stored = await workspace.store_result("s", result("x\n" * 4_500))
    with pytest.raises(QuotaExceededError):
        await workspace.store_result("s", result("y\n" * 4_500, "other"))
    Path(stored.reference).unlink()
    await workspace.store_result("s", result("y\n" * 4_500, "other"))


async def test_without_quotas_no_size_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        pytest.fail("a size was asked for")

    monkeypatch.setattr(quotas_module, "session_bytes", refuse)
    monkeypatch.setattr(quotas_module, "_directory_bytes", refuse)
    workspace = LocalWorkspace(tmp_path, quotas=Quotas(blob_bytes=1_000_000))
    for messages in (openai_messages(), anthropic_messages(), agentscope_messages()):
        await workspace.archive("s", json.loads(json.dumps(messages)))
    await workspace.store_result("s", result(LONG))
