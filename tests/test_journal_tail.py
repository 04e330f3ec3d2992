"""What a writer learns from the journal's end is what a reader learns from all of it."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buoyline.errors import ConflictError
from buoyline.maintenance.verify import verify
from buoyline.messages import Text, ToolResult
from buoyline.workspace import LocalWorkspace
from buoyline.workspace.archive import Archive
from buoyline.workspace.index import Index
from buoyline.workspace.journal import decode, encode
from buoyline.workspace.journal_tail import JournalTail
from buoyline.workspace.logs import NewMessages, Summaries, Window
from buoyline.workspace.results import Results
from buoyline.workspace.session import Session

JOURNAL = "sessions/s1/journal.jsonl"
OPERATIONS = st.sampled_from(["batch", "named", "result", "stub", "summary", "extend", "replace", "claim"])


def session_in(workdir: Path) -> tuple[LocalWorkspace, Session]:
    workspace = LocalWorkspace(workdir, durability="off")
    workspace._open()
    return workspace, workspace._session("s1")


def perform(workspace: LocalWorkspace, session: Session, operation: str, number: int) -> None:
    message = {"role": "user", "content": f"message {number}"}
    new = NewMessages([message], (), (), (), (), "")
    result = ToolResult(call_id=f"c{number}", name="", parts=(Text(f"output {number}"),))
    match operation:
        case "batch":
            Archive(session, workspace.blobs).add([message, message])
        case "named":
            Archive(session, workspace.blobs).add([message], batch_id=f"b{number}")
        case "result":
            Results(session, workspace.blobs).store(result)
        case "stub":
            name = Results(session, workspace.blobs).store(result).name
            Results(session, workspace.blobs).record_stub(f"stub {number}", name)
        case "summary":
            Summaries(session).add({"text": f"summary {number}"})
        case "extend":
            Window(session).extend(new, (number,))
        case "replace":
            Window(session).replace(new, ("summary",), session.index().messages, (number, number + 1))
        case _:
            Window(session).claim(f"writer {number}")


def tail_of_journal(content: bytes) -> JournalTail:
    tail = JournalTail(lambda offset, size: content[offset : offset + size])
    tail.refresh(len(content))
    return tail


def assert_same(tail: JournalTail, index: Index) -> None:
    for name in ("messages", "context_end", "summaries_end", "next_line", "transcript_end", "settings", "pins", "end"):
        assert getattr(tail, name) == getattr(index, name), name
    assert tail.last_batch == index.last_batch
    assert tail.summaries == len(index.summaries)
    assert list(tail.windows) == index.windows
    assert tail.writer == index.writer
    assert tail.result_bytes == sum(record["bytes"] for record in index.results.values())
    for batch_id, batch in index.batch_ids.items():
        assert tail.find_batch(batch_id) == batch
    for name, record in index.results.items():
        assert tail.find_result(name) == record
    for digest, record in index.stubs.items():
        assert tail.find_stub(digest) == record
    assert tail.find_batch("never") is None
    assert tail.find_result("never") is None
    assert tail.find_stub("never") is None


@given(st.lists(OPERATIONS, max_size=12), st.sets(st.integers(0, 11)))
@settings(deadline=None)
def test_the_end_of_a_journal_says_what_all_of_it_says(
    tmp_path_factory: pytest.TempPathFactory, operations: list[str], restarts: set[int]
) -> None:
    workdir = tmp_path_factory.mktemp("workspace")
    workspace, session = session_in(workdir)
    Window(session).start({"size": 1}, "writer")
    for number, operation in enumerate(operations):
        if number in restarts:
            workspace, session = session_in(workdir)
        perform(workspace, session, operation, number)

    content = (workdir / JOURNAL).read_bytes()
    index = Index()
    index.absorb(content)
    assert_same(tail_of_journal(content), index)
    assert_same(session._tail, index)
    assert not verify(workspace).findings


@given(st.lists(OPERATIONS, min_size=2, max_size=8), st.data())
@settings(deadline=None)
def test_a_damaged_record_makes_the_tail_read_on_and_never_say_what_is_not_so(
    tmp_path_factory: pytest.TempPathFactory, operations: list[str], data: st.DataObject
) -> None:
    workspace, session = session_in(tmp_path_factory.mktemp("workspace"))
    Window(session).start({"size": 1}, "writer")
    for number, operation in enumerate(operations):
        perform(workspace, session, operation, number)
    content = bytearray(workspace.tree.read(JOURNAL))
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))

    index = Index()
    index.absorb(bytes(content))
    tail = tail_of_journal(bytes(content))
    assert (tail.end, tail.last_batch, tail.pins) == (index.end, index.last_batch, index.pins)


@pytest.mark.parametrize("fields", [{"id": "b1"}, {"op": 1}, {"op": None}])
def test_a_line_with_a_right_checksum_and_no_operation_is_no_record(fields: dict[str, Any]) -> None:
    assert decode(encode({"op": "pins", "pins": []})[:-1]) == {"op": "pins", "pins": []}
    assert decode(encode(fields)[:-1]) is None


def test_a_journal_whose_records_name_none_before_them_is_read_whole() -> None:
    records: list[dict[str, Any]] = [{"op": "writer", "writer": name, "time": ""} for name in ("one", "two")]
    content = b"".join(map(encode, [*records, {"op": "pins", "pins": [3], "time": ""}]))
    assert (tail_of_journal(content).writer, tail_of_journal(content).pins) == ("two", (3,))


async def test_a_journal_that_was_cut_and_written_anew_is_noticed_whatever_its_length(tmp_path: Path) -> None:
    ours, theirs = (LocalWorkspace(tmp_path, durability="off") for _ in range(2))
    a, b, c = ({"role": "user", "content": text} for text in ("a", "b", "c"))
    await ours.archive("s1", [a])
    before = [(name, (tmp_path / "sessions/s1" / name).stat().st_size) for name in ("context.jsonl", "journal.jsonl")]
    await ours.archive("s1", [b])
    assert len(await ours.load_messages("s1", 0, 9)) == 2
    for name, size in before:
        with (tmp_path / "sessions/s1" / name).open("r+b") as file:
            file.truncate(size)

    await theirs.archive("s1", [c])
    assert [message for _, message in await ours.load_messages("s1", 0, 9)] == [a, c]
    await ours.archive("s1", [b])
    assert [message for _, message in await theirs.load_messages("s1", 0, 9)] == [a, c, b]
    assert not verify(ours).findings


async def test_a_new_process_knows_every_batch_id_again(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": f"message {number}"} for number in range(40)]
    ids = [f'id "{number}"\n\\' for number in range(40)]
    for message, batch_id in zip(messages, ids, strict=True):
        await LocalWorkspace(tmp_path, durability="off").archive("s1", [message], batch_id=batch_id)

    again = LocalWorkspace(tmp_path, durability="off")
    assert (await again.archive("s1", [messages[7]], batch_id=ids[7])).first == 7
    with pytest.raises(ConflictError):
        await again.archive("s1", [messages[8]], batch_id=ids[7])
    assert len(await again.load_messages("s1", 0, 99)) == 40


async def test_the_first_append_of_a_new_process_reads_only_the_end_of_the_journal(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "x" * 50}] * 20_000
    workspace = LocalWorkspace(tmp_path, durability="off")
    for start in range(0, len(messages), 100):
        await workspace.archive("s1", messages[start : start + 100], batch_id=str(start))
    size = (tmp_path / JOURNAL).stat().st_size

    read = 0

    def counted(offset: int, wanted: int) -> bytes:
        nonlocal read
        content = (tmp_path / JOURNAL).read_bytes()[offset : offset + wanted]
        read += len(content)
        return content

    tail = JournalTail(counted)
    tail.refresh(size)
    assert tail.messages == 20_000
    assert read < size / 8


def test_every_record_names_those_before_it(tmp_path: Path) -> None:
    workspace, session = session_in(tmp_path)
    for number, operation in enumerate(("batch", "result", "summary", "batch")):
        perform(workspace, session, operation, number)
    lines = (tmp_path / JOURNAL).read_bytes().splitlines(keepends=True)
    offsets = [sum(map(len, lines[:number])) for number in range(len(lines))]
    assert "before" not in json.loads(lines[0])
    before = json.loads(lines[4])["before"]
    assert (before["batch"], before["result"], before["summary"]) == ([offsets[1]], [offsets[2]], [offsets[3]])
