"""Whole results, payloads and streams in files: every byte is there, and nothing of a failed one."""

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buoyline.errors import CorruptError, RedactionError, ToolOutputError
from buoyline.messages import Json, Media, Opaque, Text, ToolResult
from buoyline.previews.source import decoded, readable_lines
from buoyline.workspace import streams
from buoyline.workspace.disk import Disk, Status
from buoyline.workspace.documents import document_names, ensure_workspace, read_document, write_document
from buoyline.workspace.memory import MemoryDisk
from buoyline.workspace.redaction import Redaction
from buoyline.workspace.results import Results, get_blob, put_blob
from buoyline.workspace.session import Session

SESSION = "sessions/s"
TEXTS = st.text(st.characters(codec="utf-8") | st.sampled_from("\n\r\x00\u2028\ud800"), max_size=60)


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path / "w")


def results_on(disk: Disk) -> Results:
    return Session(disk, "s").results


def result(text: str, call_id: str = "c1") -> ToolResult:
    return ToolResult(call_id, "run", (Text(text),))


@given(st.lists(TEXTS, min_size=1, max_size=3))
def test_a_file_holds_each_text_byte_for_byte_and_its_parts_say_where(texts: list[str]) -> None:
    disk = MemoryDisk("/w")
    stored = results_on(disk).store(ToolResult("c1", "run", tuple(map(Text, texts))))
    content = disk.read(f"{SESSION}/{stored.name}")
    for text, part in zip(texts, stored.parts, strict=True):
        assert content[part.offset : part.offset + part.size_bytes] == text.encode("utf-8", "surrogatepass")
    assert [file.size_bytes for file in stored.files][:1] == [len(content)]


def test_one_id_with_other_content_is_another_file_and_with_the_same_content_the_same(disk: Disk) -> None:
    results = results_on(disk)
    first, same, other = (results.store(result(text)) for text in ("one", "one", "two"))
    assert first.reference == same.reference != other.reference
    assert [Path(path).read_bytes() for path in (first.reference, other.reference)] == [b"one", b"two"]


def test_damaged_files_in_place_of_a_result_are_an_error_and_stay(disk: Disk) -> None:
    results = results_on(disk)
    for _ in range(2):
        Path(results.store(result("whole")).reference).write_bytes(b"wxyz!")
    with pytest.raises(CorruptError, match="move it away"):
        results.store(result("whole"))


@pytest.mark.parametrize("call_id", ["../../../etc/passwd", "", "a/b", "c\n1", "ü" * 500, ".", "x.view"])
def test_no_id_of_a_call_leads_out_of_the_session(disk: Disk, call_id: str) -> None:
    stored = results_on(disk).store(result("text", call_id))
    assert Path(stored.reference).parent == disk.root / SESSION


def test_a_text_with_long_lines_has_a_view_that_lines_refer_to(disk: Disk) -> None:
    text = f"{'long ' * 1_000}\nshort\n"
    stored = results_on(disk).store(result(text))
    shown = Path(stored.view).read_text(encoding="utf-8").splitlines()
    assert shown == list(readable_lines(text))
    assert stored.lines == len(shown)
    assert [file.name for file in stored.files] == [stored.name, Path(stored.view).name]


def test_images_and_unknown_blocks_have_files_of_their_own(disk: Disk) -> None:
    image = Media("image", "image/png", 4, "", "a.png", b"\x89PNG")
    parts = (Text("seen"), image, Json('{"a": 1}'), Opaque("widget", '{"type": "widget"}'))
    stored = results_on(disk).store(ToolResult("c1", "run", parts))
    kinds = [(part.kind, Path(part.reference).suffix) for part in stored.parts]
    assert kinds == [("text", ""), ("image", ".png"), ("json", ""), ("opaque", ".json")]
    assert Path(stored.parts[1].reference).read_bytes() == b"\x89PNG"


def test_a_damaged_payload_is_an_error_until_somebody_stores_it_again(disk: Disk) -> None:
    ensure_workspace(disk)
    reference = put_blob(disk, b"payload", "image/png")
    path = disk.root / reference.removeprefix("workspace:///")
    path.write_bytes(b"damaged")
    with pytest.raises(CorruptError, match="restore"):
        get_blob(disk, reference)
    assert get_blob(disk, put_blob(disk, b"payload", "image/png")) == b"payload"
    assert [one.read_bytes() for one in (disk.root / "data/torn").iterdir()] == [b"damaged"]


def test_documents_are_found_by_name(disk: Disk) -> None:
    write_document(disk, "sliding", b"{}")
    assert (document_names(disk), read_document(disk, "sliding")) == (["sliding"], b"{}")
    with pytest.raises(LookupError, match="there are sliding"):
        read_document(disk, "other")


# Streams.


async def collected(
    disk: Disk, output: object, *, redact: Redaction | None = None, keep_partial: bool = False
) -> streams.Collected:
    results = results_on(disk)
    return await streams.collected("c1", output, results, redact or Redaction(), keep_partial=keep_partial)  # type: ignore[arg-type]


@given(st.lists(st.binary(max_size=4) | TEXTS, max_size=6), st.integers(4, 12))
def test_a_stream_is_the_text_of_its_pieces(pieces: list[str | bytes], held: int) -> None:
    disk, whole = (
        MemoryDisk("/w"),
        b"".join(p if isinstance(p, bytes) else p.encode("utf-8", "surrogatepass") for p in pieces),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("buoyline.previews.source.BLOCK_BYTES", held)
        found = asyncio.run(collected(disk, iter(pieces)))
    if found.stored is None:
        assert found.text == decoded(whole)
    else:
        assert disk.read(f"{SESSION}/{found.stored.name}") == whole


async def test_a_large_stream_is_the_same_file_as_the_same_text(disk: Disk) -> None:
    text = "".join(f"line {number}: ü\n" for number in range(150_000))
    found = await collected(disk, (text[at : at + 70_001] for at in range(0, len(text), 70_001)))
    assert found.stored == results_on(disk).store(result(text))


async def test_a_real_pipe_is_read_to_its_end(disk: Disk) -> None:
    script = "for n in range(200_000): print('line', n)"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE)
    found = await collected(disk, process.stdout)
    assert found.stored is not None
    assert found.stored.lines == 200_000
    assert await process.wait() == 0


async def test_a_file_is_read_by_its_path(disk: Disk, tmp_path: Path) -> None:
    (tmp_path / "log").write_text("from a file\n")
    assert (await collected(disk, tmp_path / "log")).text == "from a file\n"


@pytest.mark.parametrize("chunks", [1, 3])
@pytest.mark.parametrize("keep", [True, False])
async def test_after_an_error_the_part_before_it_is_kept_if_asked_for(disk: Disk, chunks: int, *, keep: bool) -> None:
    async def failing() -> AsyncIterator[str]:
        for _ in range(chunks):
            yield "row\n" * 200_000
        raise OSError("the tool died")

    if not keep:
        with pytest.raises(OSError, match="the tool died"):
            await collected(disk, failing())
        assert not [
            name for name in disk.entries(SESSION, unfinished=True) if name.startswith((".tmp-", "tool_result-"))
        ]
        return
    found = await collected(disk, failing(), keep_partial=True)
    assert isinstance(found.error, OSError)
    if found.stored is None:
        assert found.text == "row\n" * 200_000
    else:
        assert (found.stored.lines, found.stored.partial) == (200_000 * chunks, "OSError")


@pytest.mark.parametrize("output", ["text", 7, {"a": 1}, [1]])
async def test_what_is_no_stream_of_text_is_an_error_that_says_what_to_pass(disk: Disk, output: object) -> None:
    with pytest.raises(ToolOutputError, match="pass"):
        await collected(disk, output)


# Redaction.


def without_secret(text: str) -> str:
    return text.replace("s3cr3t", "[removed]")


async def test_no_file_ever_holds_what_the_hook_removes(disk: Disk) -> None:
    redaction, results = Redaction(without_secret), results_on(disk)
    note = Media("document", "text/plain", 6, "", "n.txt", b"s3cr3t")
    given = (Text("a s3cr3t"), Json('{"key": "s3\\u0063r3t"}'), note)
    results.store(redaction.result(ToolResult("c1", "run", given)))
    await collected(disk, ["row s3cr3t\n" * 200_000], redact=redaction)
    files = [path for path in disk.root.rglob("*") if path.is_file()]
    assert len(files) > 3
    assert not [path for path in files if b"s3cr3t" in path.read_bytes() or b"0063" in path.read_bytes()]


def test_ids_and_references_do_not_pass_the_hook() -> None:
    reference = f"workspace:///data/{'4' * 64}.png"
    value = {"id": "s3cr3t", "content": [{"text": "s3cr3t", "url": reference}], "n": 4}
    found = Redaction(lambda text: text.replace("s3cr3t", "-").replace("4", "-")).value(value)
    assert found == {"id": "s3cr3t", "content": [{"text": "-", "url": reference}], "n": 4}


@pytest.mark.parametrize("hook", [lambda _: 1 / 0, lambda _: None])
def test_a_hook_that_fails_stores_nothing(hook: object) -> None:
    with pytest.raises(RedactionError, match="redact"):
        Redaction(hook).text("text")  # type: ignore[arg-type]


# The disk in memory.

NAMES = st.sampled_from(["a", "b", "d/a", "d/b"])
STEPS = st.one_of(
    st.tuples(st.sampled_from(["publish", "replace", "append"]), NAMES, st.binary(max_size=3)),
    st.tuples(st.sampled_from(["remove", "create", "status", "read"]), NAMES),
    st.tuples(st.just("rename"), st.sampled_from(["a", "d/b"]), st.sampled_from(["b", "d/a"])),
    st.tuples(st.just("entries"), st.sampled_from(["", "d"])),
)


@given(st.lists(STEPS, max_size=12))
def test_memory_does_what_the_disk_does(tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[Any, ...]]) -> None:
    disks = [Disk(tmp_path_factory.mktemp("disk"), durable=False), MemoryDisk("/w")]
    for disk in disks:
        disk.make_directory("d")
    for step in steps:
        assert done(disks[0], *step) == done(disks[1], *step), step


def done(disk: Disk, step: str, name: str, *given: Any) -> object:
    try:
        if step == "append":
            with disk.locked(name, 1.0) as file:
                file.append(*given)
            return None
        found = getattr(disk, step)(name, *([given] if step in {"publish", "replace"} else given))
    except OSError as error:
        return type(error), error.errno
    return (found.size, found.is_file) if isinstance(found, Status) else found


def test_writers_that_store_other_results_of_one_id_at_once_lose_none(disk: Disk) -> None:
    start, texts = threading.Barrier(4), [f"text {number}" for number in range(4)]

    def store(call_id: str, text: str) -> str:
        start.wait()
        return results_on(disk).store(ToolResult(call_id, "", (Text(text),))).name

    with ThreadPoolExecutor(4) as pool:
        for number in range(30):
            names = pool.map(store, [f"c{number}"] * 4, texts)
            assert [disk.read(f"{SESSION}/{name}").decode() for name in names] == texts


def test_a_file_that_replaces_another_has_its_name_synced(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    results = results_on(disk)
    results.store_text("tool_call-c1.txt", "one")
    folder, sync, seen = disk.root / SESSION, os.fsync, list[str]()

    def noting(descriptor: int) -> None:
        if os.path.samestat(os.fstat(descriptor), folder.stat()):
            seen.append((folder / "tool_call-c1.txt").read_text())
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", noting)
    results.store_text("tool_call-c1.txt", "two")
    assert seen[-1:] == ["two"]
