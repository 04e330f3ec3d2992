"""What a workspace in memory keeps, what it evicts, and that it answers as one on disk does."""

import asyncio
import base64
import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import strategies as st

from buoyline import ContextWindow, MemoryWorkspace
from buoyline.errors import ConfigError, NotFoundError
from buoyline.messages import Text, ToolResult

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(64))
BLOB = f"workspace:///data/{hashlib.sha256(PNG).hexdigest()}.png"
IMAGE = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": base64.b64encode(PNG).decode()},
}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def result(call_id: str, text: str) -> ToolResult:
    return ToolResult(call_id, "tool", (Text(text),))


def pass_turns(workspace: MemoryWorkspace, count: int) -> None:
    for _ in range(count):
        workspace.next_turn()


async def test_references_name_the_session_and_the_file_and_lead_to_the_text() -> None:
    workspace = MemoryWorkspace()
    stored = await workspace.offload_tool_result("s1", {"role": "tool", "tool_call_id": "c1", "content": "whole"})
    context = await workspace.offload_context("s1", [user("größer")])
    batch = await workspace.locate("s1", 0, 1)

    assert stored == "memory:///sessions/s1/tool_result-c1.txt"
    assert context == "memory:///sessions/s1/context.jsonl"
    assert workspace.read(stored) == "whole"
    assert workspace.read(context) == '{"role":"user","content":"größer"}\n'
    assert "größer" in workspace.read(batch.transcript)


async def test_an_entry_that_nobody_uses_for_more_than_twenty_turns_is_evicted() -> None:
    workspace = MemoryWorkspace()
    reference = await workspace.offload_tool_result("s1", result("c", "whole"))

    pass_turns(workspace, 20)
    assert workspace.read(reference) == "whole"
    pass_turns(workspace, 21)
    with pytest.raises(NotFoundError, match="was evicted, since nobody used it for more than 20 turns; run the tool"):
        workspace.read(reference)


async def test_reading_and_storing_again_begin_an_entrys_turns_anew() -> None:
    workspace = MemoryWorkspace(evict_after_turns=2)
    read, stored, left = [await workspace.offload_tool_result("s1", result(name, name)) for name in "abc"]
    for _ in range(5):
        pass_turns(workspace, 2)
        assert workspace.read(read) == "a"
        assert await workspace.offload_tool_result("s1", result("b", "b")) == stored

    assert workspace.read(stored) == "b"
    with pytest.raises(NotFoundError, match="evicted"):
        workspace.read(left)


async def test_a_result_and_its_view_are_one_entry() -> None:
    workspace = MemoryWorkspace(evict_after_turns=2)
    text = "word " * 1000
    stored = await workspace.store_result("s1", result("c", text))
    for _ in range(3):
        pass_turns(workspace, 2)
        assert workspace.read(stored.view)
    assert workspace.read(stored.reference) == text

    pass_turns(workspace, 3)
    for reference in (stored.reference, stored.view):
        with pytest.raises(NotFoundError, match="evicted"):
            workspace.read(reference)


async def test_none_evicts_nothing() -> None:
    workspace = MemoryWorkspace(evict_after_turns=None)
    reference = await workspace.offload_tool_result("s1", result("c", "whole"))
    pass_turns(workspace, 1000)

    assert workspace.read(reference) == "whole"


@pytest.mark.parametrize("turns", [0, -1, True, False, 1.5, "20", float("inf")])
def test_a_number_of_turns_that_cannot_be_one_is_refused(turns: Any) -> None:
    with pytest.raises(ConfigError, match=r"evict_after_turns: .* None keeps everything") as caught:
        MemoryWorkspace(evict_after_turns=turns)
    assert isinstance(caught.value, ValueError)


async def test_an_evicted_result_that_is_stored_again_is_back_under_its_reference() -> None:
    workspace = MemoryWorkspace(evict_after_turns=1)
    stored = await workspace.store_result("s1", result("c", "whole"))
    pass_turns(workspace, 2)

    assert await workspace.store_result("s1", result("c", "whole")) == stored
    assert workspace.read(stored.reference) == "whole"


async def test_what_is_archived_is_never_evicted() -> None:
    workspace = MemoryWorkspace(evict_after_turns=1)
    messages = [user("a"), {"role": "user", "content": [IMAGE]}]
    stored = await workspace.store_result("s1", result("c", "whole"))
    await workspace.record_stub("s1", "the stub", stored)
    await workspace.start_window("s1", {})
    await workspace.extend_window("s1", [user("kept")], [])
    batch = await workspace.archive("s1", [*messages, user("the stub")], batch_id="one")
    await workspace.append_summary("s1", {"text": "sum"})
    transcript = workspace.read(batch.transcript)
    pass_turns(workspace, 50)

    assert [message for _, message in await workspace.load_messages("s1", 0, 9)] == [*messages, user("the stub")]
    assert workspace.retrieve(BLOB) == PNG
    assert workspace.read(batch.transcript) == transcript
    assert await workspace.archive("s1", [*messages, user("the stub")], batch_id="one") == batch
    assert await workspace.load_summaries("s1") == [{"text": "sum", "n": 1}]
    assert [message for _, message in (await workspace.load_window("s1")).messages] == [user("kept")]


async def test_what_only_an_evicted_result_held_is_missing() -> None:
    workspace = MemoryWorkspace(evict_after_turns=1)
    await workspace.archive("s1", [user("alpha")])
    await workspace.store_result("s1", result("c", "beta"))
    assert await workspace.missing("s1", ["alpha", "beta"]) == []
    pass_turns(workspace, 2)

    assert await workspace.missing("s1", ["alpha", "beta"]) == ["beta"]


async def test_the_payload_of_a_data_block_is_evicted_unless_an_archived_message_has_it() -> None:
    workspace = MemoryWorkspace(evict_after_turns=1)
    block = await workspace.offload_data_block(IMAGE)
    assert block["source"]["data"] == BLOB
    assert workspace.retrieve(BLOB) == PNG
    pass_turns(workspace, 2)
    with pytest.raises(NotFoundError, match="evicted"):
        workspace.retrieve(BLOB)

    await workspace.archive("s1", [{"role": "user", "content": [IMAGE]}])
    await workspace.offload_data_block(IMAGE)
    pass_turns(workspace, 2)
    assert workspace.retrieve(BLOB) == PNG


@pytest.mark.parametrize(
    "reference",
    [
        "",
        "memory:///",
        "memory:///sessions/s1/tool_result-other.txt",
        "memory:///sessions/s2/context.jsonl",
        "memory:///sessions/s1/../s1/context.jsonl",
        "memory:///sessions/s1/session.json",
        "workspace:///data/x",
        f"workspace:///data/{'0' * 64}.png",
        "/etc/hostname",
    ],
)
async def test_a_reference_that_was_never_given_is_not_found(reference: str) -> None:
    workspace = MemoryWorkspace()
    await workspace.offload_tool_result("s1", result("c", "whole"))

    with pytest.raises(NotFoundError, match="nothing was stored under it") as caught:
        workspace.read(reference)
    assert isinstance(caught.value, LookupError)


async def test_clear_removes_everything_and_leaves_a_workspace_that_works() -> None:
    workspace = MemoryWorkspace(evict_after_turns=1)
    evicted = await workspace.offload_tool_result("s1", result("a", "one"))
    pass_turns(workspace, 2)
    held = await workspace.offload_tool_result("s1", result("b", "two"))
    await workspace.archive("s1", [{"role": "user", "content": [IMAGE]}])
    workspace.clear()

    assert workspace.session_ids() == []
    for reference in (evicted, held, BLOB, "memory:///sessions/s1/context.jsonl"):
        with pytest.raises(NotFoundError, match="nothing was stored"):
            workspace.retrieve(reference)
    with pytest.raises(NotFoundError, match="session"):
        await workspace.load_messages("s1", 0, 1)
    await workspace.archive("s1", [user("again")])
    assert await workspace.load_messages("s1", 0, 9) == [("openai", user("again"))]


def test_threads_that_store_read_evict_and_clear_get_whole_texts_or_a_clear_error() -> None:
    workspace = MemoryWorkspace(evict_after_turns=1)
    start = threading.Barrier(8)

    def work(thread: int) -> int:
        start.wait()
        read = 0
        for number in range(100):
            text = f"{thread} {number} " * 50
            stored = asyncio.run(workspace.store_result("s1", result("same", text)))
            asyncio.run(workspace.offload_context(f"s{number % 3}", [user(text), {"role": "user", "content": [IMAGE]}]))
            if thread == 0:
                workspace.next_turn()
            if thread == 1 and number % 40 == 39:
                workspace.clear()
            try:
                read += workspace.read(stored.reference) == text
            except NotFoundError:
                continue
        return read

    with ThreadPoolExecutor(8) as pool:
        counts = list(pool.map(work, range(8)))
    assert sum(counts) > 0
    assert all(0 <= count <= 100 for count in counts)


TEXTS = st.sampled_from(["", "a", "b", "the stub", "größer\u2028\ud800", "x" * 1200, '{"a":[' + "1," * 700 + "1]}"])


async def test_each_time_that_a_window_is_made_ready_is_a_turn() -> None:
    workspace = MemoryWorkspace(evict_after_turns=2)
    window = ContextWindow(offloader=workspace, session_id="s")
    await window.add({"role": "tool", "tool_call_id": "c", "content": "depth\n" * 9_000})
    for _ in range(2):
        await window.prepare()
        await window.save()
        assert workspace.tree.size("sessions/s/tool_result-c.txt") is not None
    await window.prepare()
    with pytest.raises(NotFoundError, match="evicted"):
        workspace.read("memory:///sessions/s/tool_result-c.txt")
