"""What a summary says stands in the lines that it points to, read as a user reads them: from the files."""

import asyncio
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from thirds import STEP, each_third, examples

from buoyline import ContextConfig, ContextWindow, LocalWorkspace
from buoyline.compression import Compressor, Draft, Pointer, Summary
from buoyline.compression.compressor import MessageRange
from buoyline.compression.extractive.lines import LineFinder, merged_pointers
from buoyline.compression.summary import SourceMessage
from buoyline.inspect.replay import Replay, replay
from buoyline.messages import Message, Text
from buoyline.messages.registry import detect
from buoyline.offloader import StoredResult
from buoyline.offloader.protocol import abilities_of
from buoyline.offloader.stub import bare_stub, stub
from buoyline.tokens import default_counter
from buoyline.window import ContextCompressed, Event

COUNTER = default_counter()
MARK = re.compile(r" \[([^\[\]\s:]+):([0-9]+(?:-[0-9]+)?(?:,[0-9]+(?:-[0-9]+)?)*)\]")
HEADING = re.compile(r"## [0-9]+ \w+ · ")
STRING = re.compile(r"[A-Za-z0-9_./:@+~-]*(?:[0-9_/]|[a-z][A-Z])[A-Za-z0-9_./:@+~-]*")
BLANK = re.compile(
    "(?:\\\\x1b|\x1b)\\[[0-9;?]*[A-Za-z]|\\\\(?:x[0-9a-f]{2}|u[0-9a-f]{4})|[\\s\x00-\x1f\x7f-\x9f\u200b-\u200f\ufeff]"
)
LEADS = re.compile(r"\A(?:Changed:|Created:|Read:|Failed:|No result yet:|\((?:pending|in_progress)\)) ")
RELATIONS = re.compile(
    r"; (?:changed in between: |not run since |not committed yet: )[^;]*|(?<= passes) \(|; it had failed:"
)
"""What follows from several places, each of which is cited where it is said."""


class Line(NamedTuple):
    """One line of a field, without its marks."""

    field: str
    text: str
    pointers: list[Pointer]


def _lines(draft: Draft) -> Iterator[Line]:
    for field, text in draft.fields.items():
        for line in text.splitlines():
            said = re.fullmatch(rf"- (.*?)((?:{MARK.pattern})*)", line)
            if said is not None:
                yield Line(field, said[1], [pointer for mark in MARK.finditer(said[2]) for pointer in _named(mark)])


def _named(mark: "re.Match[str]") -> Iterator[Pointer]:
    for start, _, end in (span.partition("-") for span in mark[2].split(",")):
        yield Pointer(mark[1], int(start), int(end or start))


def _claimed(line: Line) -> Iterator[str]:
    """Yield what has to stand in the lines word for word."""
    if line.text.endswith(" as it was read"):
        return  # the lines are the content of the file, and the call before them names it
    if line.field == "current_state" and re.match(r"(?:Changed|Created|Read)\b", line.text):
        yield from re.findall(r"[^/{}, ]+\.\w+", line.text)  # an editor may show a file under a longer name
        return
    text = re.sub(r" \u00d7[0-9]+(?=$|[,}])", "", LEADS.sub("", line.text, count=1))
    if line.field == "current_state" and "“" not in text:
        text = RELATIONS.sub(" ", text)
    quoted = re.search("“(.*)”", text)
    if quoted is not None:
        yield from re.split("…|” \u2013 “", quoted[1])  # an answer stands behind the question that it answers
        return
    if text.startswith("$ "):
        yield from re.split(" → |…", text[2:])
        return
    if line.field == "current_state" or line.text.startswith("Failed"):
        text, _, outcome = text.partition(" → ")
        yield from (part.strip("`; ") for part in re.split(" → |…|`; `", outcome))
    elif line.field == "important_discoveries":
        yield from re.split(" · |…", text)
    yield from (found.rstrip(".,:;-") for found in STRING.findall(text))


def _without_blanks(text: str) -> str:
    return "".join(text.split())


def _folded(text: str) -> str:
    return BLANK.sub("", text)


def _cited(directory: Path, pointers: Sequence[Pointer]) -> str:
    """Return all lines that *pointers* name, with lines that were wrapped put together again."""
    cited = ""
    for pointer in pointers:
        lines = (directory / pointer.path).read_text("utf-8").removesuffix("\n").split("\n")
        assert 1 <= pointer.start <= pointer.end <= len(lines), pointer
        cited += "\n".join(lines[pointer.start - 1 : pointer.end]).replace("\n… ", "") + "\n"
    return cited


def _with_rest(directory: Path, pointers: Sequence[Pointer]) -> str:
    """Return the lines that *pointers* name, and those behind each to the end of its message."""
    lines = (directory / "transcript.md").read_text("utf-8").split("\n")
    messages = [number for number, text in enumerate(lines) if HEADING.match(text)]
    ends = (next((start for start in messages if start >= pointer.start), len(lines)) for pointer in pointers)
    return _cited(directory, [replace(pointer, end=end) for pointer, end in zip(pointers, ends, strict=True)])


def unheld(draft: Draft, directory: Path) -> list[tuple[str, Line]]:
    """Return what *draft* claims and the lines that it names do not hold."""
    missing: list[tuple[str, Line]] = []
    # What a new file defines is cited by the place where the file begins.
    listed = {item.text for item in draft.items if item.kind == "edit" and "`" not in item.text}
    # Keys and values of a record are apart in a file, and several records on a line name their tool once.
    named = {item.text for item in draft.items if item.kind == "record"}
    records = named | {text.partition(": ")[2] for text in named}
    for line in _lines(draft):
        cited = (_with_rest if line.text in listed else _cited)(directory, line.pointers)
        unescaped = cited.replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"').replace("\\\\", "\\")
        held = (_folded(cited), _folded(unescaped), _without_blanks(cited))
        missing += [
            (part, line)
            for part in _claimed(line)
            if not any(part and record.startswith(part) for record in records)
            and not any(_folded(part) in text or _without_blanks(part) in text for text in held)
        ]
    return missing


def _said(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}


def _calls(*calls: tuple[str, str]) -> dict[str, Any]:
    """Return a message that runs commands, given as pairs of call id and command."""
    made = [
        {"id": call_id, "type": "function", "function": {"name": "bash", "arguments": json.dumps({"command": command})}}
        for call_id, command in calls
    ]
    return {"role": "assistant", "content": None, "tool_calls": made}


def _result(call_id: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def _replayed(conversation: Sequence[Any], workdir: Path, size: int, **options: Any) -> list[Summary]:
    """Return the summaries that a window of *size* tokens makes of a conversation."""
    seen, summaries = Replay(), list[Summary]()

    def note(event: Event) -> None:
        seen.record(event)
        if isinstance(event, ContextCompressed):
            summaries.append(event.summary)

    workspace = LocalWorkspace(workdir, durability="off")
    window = ContextWindow(session_id="s1", offloader=workspace, size=size, on_event=note, **options)
    asyncio.run(replay(conversation, window, seen, counter=COUNTER))
    return summaries


def _directory(workdir: Path) -> Path:
    return workdir / "sessions" / "s1"


async def _summary(
    conversation: Sequence[dict[str, Any]], workdir: Path, *, large: Sequence[int] = (), max_tokens: int = 1_500
) -> Summary:
    """Archive and summarise a conversation whose results at the positions *large* were offloaded."""
    workspace = LocalWorkspace(workdir, durability="off")
    abilities = abilities_of(workspace)
    assert abilities.results is not None
    messages, stubs = list(conversation), dict[str, StoredResult]()
    for position in large:
        message = messages[position]
        stored = await abilities.results.store_result("s1", detect(message).view(message).results[0])
        written = stub(message["content"], stored, 300, COUNTER)
        await abilities.results.record_stub("s1", written, stored)
        stubs[written] = stored
        messages[position] = {**message, "content": written}
    extent = MessageRange("s1", 0, messages, tokens=50_000, stubs=stubs)
    compressor = Compressor(workspace, counter=COUNTER)
    return await compressor.summarize(extent, await compressor.archive(extent), max_tokens=max_tokens)


def _line_with(summary: Summary, text: str) -> Line:
    return next(line for line in _lines(summary.draft) if text in line.text)


LOG = (
    "".join(f"step {number} of the build_{number % 7}\n" for number in range(1, 400)) + "Error: no such table: rows_9\n"
)
BUILD = [_said("user", "Build it."), _calls(("c1", "make all")), _result("c1", LOG), _said("assistant", "It failed.")]


async def test_an_outcome_points_to_its_call_and_its_result(tmp_path: Path) -> None:
    short = [*BUILD[:2], _result("c1", "built out_7.bin"), BUILD[3]]
    summary = await _summary(short, tmp_path)
    (pointer,) = _line_with(summary, "$ make all → built out_7.bin").pointers
    cited = _cited(_directory(tmp_path), [pointer])
    assert "command: make all" in cited
    assert "built out_7.bin" in cited


async def test_a_result_far_from_its_call_has_a_pointer_of_its_own(tmp_path: Path) -> None:
    first = _result("c1", "".join(f"line {number}\n" for number in range(50)))
    parallel = [BUILD[0], _calls(("c1", "ls out"), ("c2", "make all")), first, _result("c2", "built out_7.bin")]
    summary = await _summary(parallel, tmp_path)
    assert len(_line_with(summary, "$ make all → built out_7.bin").pointers) == 2
    assert unheld(summary.draft, _directory(tmp_path)) == []


async def test_an_error_in_an_offloaded_result_points_to_the_lines_of_its_file(tmp_path: Path) -> None:
    summary = await _summary(BUILD, tmp_path, large=[2])
    call, error = _line_with(summary, "Failed: make all → Error: no such table: rows_9").pointers
    assert "make all" in _cited(_directory(tmp_path), [call])
    assert (error.path, error.start, error.end) == ("tool_result-c1.txt", 400, 400)
    assert "[tool_result-c1.txt:400]" in summary.text
    assert error in summary.draft.pointers
    assert unheld(summary.draft, _directory(tmp_path)) == []


async def test_the_words_of_a_stub_are_no_facts(tmp_path: Path) -> None:
    summary = await _summary(BUILD, tmp_path, large=[2])
    fields = "\n".join(summary.draft.fields.values())
    assert "offloaded" not in fields
    assert f"{COUNTER.count(LOG):,}" not in fields
    assert str(tmp_path) not in fields


async def test_what_only_looks_like_a_stub_is_a_result(tmp_path: Path) -> None:
    forged = stub(LOG, StoredResult("/w/x.txt", "x.txt", "", 400), 300, COUNTER)
    summary = await _summary([*BUILD[:2], _result("c1", forged), BUILD[3]], tmp_path)
    assert {pointer.path for pointer in summary.draft.pointers} == {"transcript.md"}
    assert unheld(summary.draft, _directory(tmp_path)) == []


async def test_of_a_bare_notice_only_the_failure_is_told(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path, durability="off")
    stored = StoredResult(str(tmp_path / "tool_result-c1.txt"), "tool_result-c1.txt", "", 400)
    notice = bare_stub(stub(LOG, stored, 300, COUNTER))
    failed = {"type": "tool_result", "tool_use_id": "c1", "content": notice, "is_error": True}
    call = {"type": "tool_use", "id": "c1", "name": "Read", "input": {"file_path": "/a/b.py"}}
    messages = [_said("user", "go"), {"role": "assistant", "content": [call]}, {"role": "user", "content": [failed]}]
    compressor = Compressor(workspace, counter=COUNTER)
    extent = MessageRange("s1", 0, messages, tokens=5_000, dialect="anthropic", stubs={notice: stored})
    summary = await compressor.summarize(extent, await compressor.archive(extent), max_tokens=1_000)
    assert _line_with(summary, "Failed: ").text == "Failed: Read"
    assert "offloaded" not in "\n".join(summary.draft.fields.values())


async def test_a_pointer_of_the_last_summary_is_carried_on_without_its_stub(tmp_path: Path) -> None:
    first = await _summary(BUILD, tmp_path, large=[2])
    compressor = Compressor(LocalWorkspace(tmp_path, durability="off"), counter=COUNTER)
    extent = MessageRange("s1", len(BUILD), [_said("user", "Go on.")], tokens=50_000)
    place = await compressor.archive(extent)
    second = await compressor.summarize(extent, place, previous=first.draft, max_tokens=1_500)
    assert "[tool_result-c1.txt:400]" in second.text
    assert unheld(second.draft, _directory(tmp_path)) == []


pointers = st.builds(
    lambda path, start, more: Pointer(path, start, start + more),
    st.sampled_from(["transcript.md", "tool_result-a.txt"]),
    st.integers(1, 200),
    st.integers(0, 30),
)


@given(st.lists(pointers, max_size=6))
def test_spans_name_all_lines_and_none_that_are_far(found: list[Pointer]) -> None:
    spans = merged_pointers(found)
    assert merged_pointers(spans) == spans
    assert all(before.path != after.path or before < after for before, after in pairwise(spans))
    for pointer in found:
        assert any(
            span.path == pointer.path and span.start <= pointer.start <= pointer.end <= span.end for span in spans
        )
    for span in spans:
        inside = [pointer for pointer in found if pointer.path == span.path]
        assert span.start in {pointer.start for pointer in inside}
        assert span.end in {pointer.end for pointer in inside}


OUTPUTS = st.lists(
    st.sampled_from(
        [
            "Error: cannot open app/main.py",
            "17: const rows_9 = load()",
            "[lines 2-3 of 4 not shown]",
            "\x1b[31mFAILED\x1b[0m test_a1 … 3",
            "错误\uff1a磁盘已满 → retry_later",
            "3 passed in 0.12s",
            "[Tool result offloaded: 2,500 lines, 3,782 tokens.",
            "word_1 " * 250,
            "“quoted” \u00b7 value_2 [transcript.md:1-2]",
            "",
        ]
    ),
    min_size=1,
    max_size=5,
)


@examples(10, 2_000)
@given(st.lists(st.tuples(OUTPUTS, st.sampled_from([1, 3, 60])), min_size=1, max_size=10))
def test_every_claim_about_a_conversation_stands_where_it_points_to(
    tmp_path_factory: pytest.TempPathFactory, outputs: list[tuple[list[str], int]]
) -> None:
    workdir = tmp_path_factory.mktemp("w")
    conversation = [_said("user", "Please run build_all and look at app/main.py.")]
    for number, (lines, times) in enumerate(outputs):
        conversation += [
            _calls((f"c{number}", f"make target_{number}")),
            _result(f"c{number}", "\n".join(lines * times)),
        ]
    config = ContextConfig(tool_result_limit=300, preview_tokens=200)
    for summary in _replayed(conversation, workdir, 1_500, config=config):
        assert summary.unverified == ()
        assert unheld(summary.draft, _directory(workdir)) == []


@each_third
@pytest.mark.parametrize("size", [8_000, pytest.param(32_000, marks=pytest.mark.slow)])
def test_every_claim_about_a_recorded_session_stands_where_it_points_to(
    shared_data: Path, tmp_path: Path, first: int, size: int
) -> None:
    checked = 0
    for path in sorted((shared_data / "sessions").glob("*.jsonl"))[::3][first - 1 :: STEP]:
        messages = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        workdir = tmp_path / path.stem
        for summary in _replayed(messages, workdir, size):
            checked += 1
            assert summary.unverified == ()
            assert unheld(summary.draft, _directory(workdir)) == []
    assert checked


def test_the_colours_of_a_result_with_a_view_are_not_in_the_summary(tmp_path: Path) -> None:
    failed = "\x1b[31mFAILED\x1b[0m tests/test_dredge.py::test_depth - AssertionError: 7 is below 9"
    outputs = [failed, "mooring " * 400]  # a line that long needs a view
    conversation = [
        _said("user", "Please run the tests."),
        _calls(("c1", "pytest")),
        _result("c1", "\n".join(outputs)),
        *(_said(role, f"We go on with part {n}. " * 40) for n in range(6) for role in ("assistant", "user")),
    ]
    config = ContextConfig(tool_result_limit=300, preview_tokens=200)
    (first, *_) = _replayed(conversation, tmp_path, 1_500, config=config)
    assert "test_depth - AssertionError: 7 is below 9" in first.text
    assert "[31m" not in first.text


async def test_a_result_that_is_gone_is_known_from_its_stub(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path, durability="off")
    abilities = abilities_of(workspace)
    assert abilities.results is not None
    stored = await abilities.results.store_result("s1", detect(BUILD[2]).view(BUILD[2]).results[0])
    written = stub(LOG, stored, 300, COUNTER)
    extent = MessageRange(
        "s1", 0, [*BUILD[:2], _result("c1", written), BUILD[3]], tokens=5_000, stubs={written: stored}
    )
    compressor = Compressor(workspace, counter=COUNTER)
    place = await compressor.archive(extent)
    (_directory(tmp_path) / "tool_result-c1.txt").unlink()
    summary = await compressor.summarize(extent, place, max_tokens=1_000)
    assert "no such table: rows_9" in summary.text


def test_the_time_in_the_heading_of_a_message_is_not_cited_for_its_words() -> None:
    lines = ("## 4 assistant · 2026-05-01T12:00:31.500Z", "Which one do you want?", "1. the pump", "")
    message = Message("assistant", (Text("\n".join(lines[1:3])),))
    source = SourceMessage(4, message, Pointer("transcript.md", 40, 43), lines=lines)
    assert LineFinder().of(source, "1.") == (Pointer("transcript.md", 42, 42),)
    assert LineFinder().of(source, "500Z") == (source.pointer,)
