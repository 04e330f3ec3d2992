"""Results of several blocks: what a workspace keeps of each, and what becomes of it."""

import asyncio
import base64
import contextlib
import errno
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from faults import every_fault
from hypothesis import given
from hypothesis import strategies as st

from buoyline import LocalWorkspace, MemoryWorkspace
from buoyline.errors import NotFoundError, RedactionError, StorageError
from buoyline.maintenance.gc import Retention, collect
from buoyline.maintenance.repair import repair
from buoyline.maintenance.verify import verify
from buoyline.messages import Json, Media, Opaque, Text, ToolResult
from buoyline.messages.model import Base64, ResultPart
from buoyline.testing.conversation import contents, result_of_all_kinds
from buoyline.watching.events import ResultStored

PNG = b"\x89PNG\r\n\x1a\n" + b"\0\0\0\rIHDR" + (800).to_bytes(4, "big") + (600).to_bytes(4, "big")
any_text = st.text(st.characters(exclude_categories=()), max_size=20)
payloads = st.binary(max_size=20).flatmap(
    lambda content: st.sampled_from([content or None, Base64(base64.b64encode(content).decode(), 0)])
)
media = st.builds(
    Media,
    st.sampled_from(["image", "audio", "document", "video"]),
    st.sampled_from(["image/png", "", "text/html", "x\n\ud800"]),
    st.integers(0, 9),
    any_text,
    any_text,
    payloads | st.none() | st.builds(Base64, any_text, st.integers(0, 3)),
)
blocks: st.SearchStrategy[ResultPart] = (
    any_text.map(Text) | any_text.map(Json) | st.builds(Opaque, any_text, any_text) | media
)
results = st.builds(ToolResult, any_text, any_text, st.lists(blocks, max_size=5).map(tuple), is_error=st.booleans())


def picture(content: bytes = PNG, **facts: Any) -> Media:
    return Media("image", "image/png", len(content), payload=content, **facts)


def shown(call_id: str, *parts: ResultPart) -> ToolResult:
    return ToolResult(call_id, "shoot", parts)


def _as_kept(result: ToolResult) -> ToolResult:
    """A medium with bytes keeps these; what a block says of them, or of where else they are, is told by them."""
    parts = [
        Media(part.kind, part.media_type, len(content), "", part.name, content)
        if isinstance(part, Media) and (content := part.content())
        else part
        for part in result.parts
    ]
    return replace(result, parts=tuple(parts))


@given(given_results=st.lists(results, max_size=4))
def test_any_results_come_back_equal_and_apart(
    tmp_path_factory: pytest.TempPathFactory, given_results: list[ToolResult]
) -> None:
    async def round_trip(workspace: LocalWorkspace | MemoryWorkspace) -> None:
        stored = [await workspace.store_result("s", result) for result in given_results]
        for one, result in zip(stored, given_results, strict=True):
            found = await workspace.load_result("s", one)
            assert contents(found) == contents(_as_kept(result))
            assert found.call_id == result.call_id
        assert [await workspace.store_result("s", result) for result in given_results] == stored

    workdir = tmp_path_factory.mktemp("w")
    workspace = LocalWorkspace(workdir, durability="off")
    asyncio.run(round_trip(workspace))
    asyncio.run(round_trip(MemoryWorkspace()))
    if given_results:
        assert not [found for found in verify(workspace).findings if found.severity != "note"]
        assert not collect(workspace, grace_s=0).blobs


async def test_gc_keeps_the_data_of_results_as_long_as_their_session(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path)
    refers = Opaque("block", json.dumps({"data": await _offloaded(workspace, b"referred to")}))
    await workspace.store_result("s", shown("c", picture(), refers))
    assert not collect(workspace, grace_s=0, dry_run=False).blobs
    gone = collect(workspace, Retention(max_sessions=0), grace_s=0, dry_run=False)
    assert len(gone.sessions) == 1
    left = [file.name for file in (tmp_path / "data").iterdir() if not file.name.startswith(".")]
    assert left == []


async def _offloaded(workspace: LocalWorkspace, content: bytes) -> str:
    spelled = base64.b64encode(content).decode()
    block = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": spelled}}
    found = await workspace.offload_data_block(block)
    return str(found["source"]["data"])


async def test_a_lost_picture_of_a_result_is_found_and_restored_from_a_copy(tmp_path: Path) -> None:
    workspace, copy = LocalWorkspace(tmp_path / "w"), LocalWorkspace(tmp_path / "copy")
    for each in (workspace, copy):
        stored = await each.store_result("s", shown("c", Text("a"), picture()))
    lost = workspace.workdir / stored.parts[1].path
    lost.unlink()
    (found,) = verify(workspace).findings
    assert (found.kind, found.path) == ("missing-blob", stored.parts[1].path)
    assert "tool_result-c.txt" in found.message
    with pytest.raises(StorageError):
        await workspace.load_result("s", stored)
    assert repair(workspace, copy=copy.workdir).is_repaired
    assert lost.read_bytes() == PNG
    lost.write_bytes(b"other")
    assert {found.kind for found in verify(workspace).findings} >= {"changed-bytes"}
    assert repair(workspace, copy=copy.workdir).is_repaired
    assert verify(workspace, sessions=["s"]).blobs == 1


@pytest.mark.parametrize("make", [LocalWorkspace, lambda _, **h: MemoryWorkspace(**h)])
async def test_everything_of_a_result_goes_through_the_hooks(tmp_path: Path, make: Callable[..., Any]) -> None:
    def redact(text: str) -> str:
        return text.replace("SECRET", "***")

    workspace = make(tmp_path, redact=redact, redact_payload=lambda content, _: content.replace(b"SECRET", b"***"))
    given = ToolResult(
        "SECRET",
        "SECRET",
        (
            Text("SECRET"),
            Json('{"a":"SECRET","b":"S\\u0045CRET"}'),
            Opaque("SECRET", '"SECRET"'),
            picture(b"SECRET", name="SECRET"),
            Media("image", "", 0, "https://x/SECRET"),
            Media("image", "", 6, payload=Base64("~SECRET~")),
            Media("image", "image/png", 8, payload=Base64(base64.b64encode(b"SECRET").decode())),
        ),
    )
    stored = await workspace.store_result("s", given)
    found = await workspace.load_result("s", stored)
    assert "SECRET" not in repr((found, stored, contents(found)))
    assert [part.size_bytes for part in stored.parts if part.kind == "image"] == [3, 3]
    kept = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert b"SECRET" not in kept
    assert "SECRET" not in " ".join(str(file) for file in tmp_path.rglob("*"))
    assert await workspace.store_result("s", given) == stored


def test_no_result_has_its_name_before_its_picture_has(tmp_path: Path) -> None:
    result = shown("c", Text("a"), picture())
    for number, faults in enumerate(every_fault(errno.EIO)):
        workdir = tmp_path / str(number)
        workspace = LocalWorkspace(workdir, durability="off")
        with faults, contextlib.suppress(StorageError):
            asyncio.run(workspace.store_result("s", result))
        if (workdir / "sessions/s/tool_result-c.txt").exists():
            assert [path.read_bytes() for path in (workdir / "data").glob("*.png")] == [PNG]
        stored = asyncio.run(workspace.store_result("s", result))
        assert Path(stored.reference).read_text("utf-8") == "a"


async def test_nothing_of_a_result_is_stored_where_a_hook_fails(tmp_path: Path) -> None:
    def fail(content: bytes, media_type: str) -> bytes:
        raise ValueError(media_type, content)

    workspace = LocalWorkspace(tmp_path, redact_payload=fail)
    with pytest.raises(RedactionError):
        await workspace.store_result("s", shown("c", Text("a"), picture()))
    assert not tmp_path.joinpath("sessions").exists()


async def test_media_in_memory_come_and_go_with_their_results() -> None:
    workspace = MemoryWorkspace(evict_after_turns=2)
    first = await workspace.store_result("s", shown("a", Text("a"), picture(b"shared"), picture(b"own")))
    second = await workspace.store_result("s", shown("b", Text("b"), picture(b"shared")))
    assert workspace.retrieve(first.parts[1].reference) == b"shared"
    for _ in range(4):
        workspace.next_turn()
        assert workspace.read(first.reference) == "a"
    assert workspace.retrieve(first.parts[1].reference) == b"shared"
    assert workspace.read(second.reference) == "b"  # it has a picture that is in use
    for _ in range(4):
        workspace.next_turn()
    for part in first.parts[1:]:
        with pytest.raises(NotFoundError, match="evicted"):
            workspace.retrieve(part.reference)
    with pytest.raises(NotFoundError, match="evicted"):
        await workspace.load_result("s", first)
    await workspace.store_result("s", shown("a", Text("a"), picture(b"shared"), picture(b"own")))
    assert len((await workspace.load_result("s", first)).parts) == 3


async def test_a_picture_of_archived_messages_outlives_the_results_that_have_it() -> None:
    workspace = MemoryWorkspace(evict_after_turns=1)
    spelled = base64.b64encode(PNG).decode()
    url = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{spelled}"}}
    message = {"role": "user", "content": [url]}
    stored = await workspace.store_result("s", shown("a", picture()))
    await workspace.archive("s", [message])
    await workspace.store_result("s", shown("b", picture()))
    for _ in range(3):
        workspace.next_turn()
    assert workspace.retrieve(stored.parts[0].reference) == PNG
    assert await workspace.load_messages("s", 0, 1) == [("openai", message)]


async def test_what_is_no_result_of_the_session_is_not_found(tmp_path: Path) -> None:
    for workspace in (LocalWorkspace(tmp_path), MemoryWorkspace()):
        stored = await workspace.store_result("s", shown("a", Text("a")))
        with pytest.raises(NotFoundError):
            await workspace.load_result("s", replace(stored, name="tool_result-b.txt"))
        with pytest.raises(NotFoundError):
            await workspace.load_result("nobody", stored)


async def test_watchers_know_the_media_of_results(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path)
    await workspace.store_result("s", result_of_all_kinds("c"))
    async for event in workspace.watch("s", last=1):
        assert isinstance(event, ResultStored)
        assert event.kinds[:5] == ("text", "json", "image", "text", "document")
        break
