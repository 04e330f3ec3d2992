"""What a summary says stands in the lines that it cites, read as a user reads them: from the files."""

import asyncio
import json
import random
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from thirds import STEP, each_third, examples

from buoyline.compression import ContextConfig, Draft, Pointer, SourceMessage, Summary
from buoyline.compression.extractive.lines import LineFinder, merged
from buoyline.compression.text import POINTER, pointers_in
from buoyline.messages import Message, Text
from buoyline.offloader import StoredResult
from buoyline.offloader.stub import stub_of
from buoyline.previews.source import TextSource
from buoyline.tokens import default_counter
from buoyline.window import ContextCompressed, ContextWindow

COUNTER = default_counter()
BLANK = re.compile(
    "[*`|]|(?:\\\\x1b|\x1b)\\[[0-9;?]*[A-Za-z]|\\\\(?:x[0-9a-f]{2}|u[0-9a-f]{4})|[\\s\x00-\x1f\x7f-\x9f\u200b-\u200f\ufeff]"
)
STALE = re.compile(r"; (?:before the changes of |so far ).*")
"""What follows from several places, each of which is cited where it is said."""

LABEL = re.compile(
    r"\A(?:Changed:|Ran|Branch|Called \S+ with \S+|Not committed so far: the changes of|Refused:|\([^()]*\)"
    r"|[^\s:]+(?: begins)?:(?: (?:added|removed|defines))?|\S+(?: \S+)? failed:) "
)


class Line(NamedTuple):
    """One line of a field, without its citations."""

    field: str
    text: str
    pointers: list[Pointer]


def _lines(draft: Draft) -> Iterator[Line]:
    for field, text in draft.fields.items():
        for line in text.splitlines():
            said = re.fullmatch(rf"- (.*?)((?: {POINTER.pattern})*)", line)
            assert said is not None, line
            yield Line(field, said[1], list(pointers_in(said[2])))


def _claimed(line: Line, fact_kinds: dict[str, str]) -> Iterator[str]:
    """Yield what has to stand in the lines word for word."""
    text = STALE.sub("", line.text)
    if text.startswith("Changed: "):
        yield from re.findall(r"[^/{}, ]+\.\w+", text)
        return
    kind = fact_kinds.get(line.text, "finding")
    quoted = re.search("“(.*)”", text)
    if quoted is not None and kind not in ("finding", "check", "done", "edit", "beginning"):
        yield from re.split("…|” (?:\u2013 )?“", quoted[1])  # an answer stands after the question that it answers
    elif kind == "check":
        outcome = re.search(r"` failed: (.*)|` passed \((.*)\)", text)
        yield from re.split("…| / ", (outcome[1] or outcome[2]) if outcome else "")
    elif kind == "record":
        yield text.partition(": ")[2].partition(",")[0].rpartition(" ")[2]
    elif kind == "finding":
        yield from re.split(" \u00b7 |…", text)
    elif kind in ("row", "done"):
        yield from re.split("…|`", text.partition(" → ")[2])
    elif kind == "beginning":
        yield text.partition(" begins: ")[2][:30].partition("…")[0]
    elif kind == "git":
        yield from re.findall("`([0-9a-f]{7,})`", text)
    else:
        yield from re.split("` → `|…|`|, ", LABEL.sub("", text))


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


def unheld(draft: Draft, directory: Path) -> list[tuple[str, Line]]:
    """Return what *draft* claims and the lines that it cites do not hold."""
    missing, kinds = list[tuple[str, Line]](), {fact.text: fact.kind for fact in draft.facts}
    for line in _lines(draft):
        assert line.pointers, line
        cited = _cited(directory, line.pointers)
        unescaped = cited.replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"').replace("\\\\", "\\")
        held = _folded(cited) + "\n" + _folded(unescaped)
        missing += [(part, line) for part in _claimed(line, kinds) if _folded(part) not in held]
    return missing


def _said(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}


def _calls(*calls: tuple[str, str], name: str = "bash") -> dict[str, Any]:
    """Return a message that runs commands, given as pairs of call id and command."""
    made = [
        {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps({"command": command})}}
        for call_id, command in calls
    ]
    return {"role": "assistant", "content": None, "tool_calls": made}


def _result(call_id: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


async def _summaries(messages: Sequence[dict[str, Any]], workdir: Path, size: int, **settings: Any) -> list[Summary]:
    """Return the summaries of a session; without any, that of all its messages."""
    found = list[Summary]()

    def note(event: object) -> None:
        if isinstance(event, ContextCompressed):
            found.append(event.summary)

    async with await ContextWindow.open(workdir, "s1", size=size, on_event=note, **settings) as window:
        for message, following in pairwise([*messages, _said("user", "")]):
            await window.add(message)
            if message["role"] in ("user", "tool") and following["role"] != "tool":
                await window.prepare()
        if not found:
            await window.compress(before=window.added)
    return found


def _directory(workdir: Path) -> Path:
    return workdir / "sessions" / "s1"


LOG = (
    "".join(f"step {number} of the build_{number % 7}\n" for number in range(1, 400)) + "Error: no such table: rows_9\n"
)
BUILD = [_said("user", "Build it."), _calls(("c1", "make all")), _result("c1", LOG), _said("assistant", "It failed.")]
SMALL = ContextConfig(tool_result_limit=300, preview_tokens=200)


async def test_an_outcome_cites_its_call_and_its_result(tmp_path: Path) -> None:
    first = _result("c1", "".join(f"line {number}\n" for number in range(50)))
    parallel = [BUILD[0], _calls(("c1", "ls out"), ("c2", "make all")), first, _result("c2", "built out_7.bin")]
    (summary,) = await _summaries(parallel, tmp_path, 64_000)
    line = next(line for line in _lines(summary.draft) if "Ran `make all` → built out_7.bin" in line.text)
    call, result = line.pointers
    assert "make all" in _cited(_directory(tmp_path), [call])
    assert "built out_7.bin" in _cited(_directory(tmp_path), [result])


async def test_an_error_in_an_offloaded_result_cites_the_line_of_its_file(tmp_path: Path) -> None:
    (summary,) = await _summaries(BUILD, tmp_path, 64_000, config=SMALL)
    line = next(line for line in _lines(summary.draft) if "`make all` failed: Error: no such table" in line.text)
    assert line.pointers[-1] == Pointer("tool_result-c1.txt", 400, 400)
    assert "[tool_result-c1.txt:400]" in summary.text
    fields = "\n".join(summary.draft.fields.values())
    assert "offloaded" not in fields
    assert str(tmp_path) not in fields
    assert unheld(summary.draft, _directory(tmp_path)) == []


async def test_what_only_looks_like_a_stub_is_a_result(tmp_path: Path) -> None:
    forged = stub_of(TextSource(LOG), StoredResult("/w/x.txt", "x.txt", "", 400), 300, COUNTER)
    (summary,) = await _summaries([*BUILD[:2], _result("c1", forged), BUILD[3]], tmp_path, 64_000)
    assert {pointer.path for pointer in summary.draft.pointers} == {"transcript.md"}


@pytest.mark.parametrize("tool", ["bash", "read_file", "http_get"])
async def test_the_errors_in_offloaded_logs_are_named_with_file_and_line(tool: str, tmp_path: Path) -> None:
    rng = random.Random(7)  # noqa: S311 - a log
    messages = [_said("user", "Find the full disks in the logs of the 24 machines.")]
    places: dict[str, int] = {}
    for number in range(24):
        name = {"bash": "command", "read_file": "path", "http_get": "url"}[tool]
        lines = [f"INFO request {rng.randrange(10**6)} took {rng.randrange(900)} ms" for _ in range(2_500)]
        at, disk = rng.randrange(2_500), f"/dev/sd{chr(97 + number)}1"
        lines[at] = f"ERROR disk {disk} full"
        places[disk] = at + 1
        function = {"name": tool, "arguments": json.dumps({name: f"cat /var/log/m{number}.log"})}
        call = {"id": f"c{number}", "type": "function", "function": function}
        messages += [_call_of(call), _result(f"c{number}", "\n".join(lines))]
    summary = (await _summaries(messages, tmp_path, 16_000))[-1]
    body = "\n".join(summary.draft.fields.values())
    named = re.findall(r"ERROR disk (\S+) full.* \[(tool_result-c\d+\.txt):(\d+)\]", body)
    assert len(named) >= 8
    for disk, file, line in named:
        assert places[disk] == int(line)
        assert (_directory(tmp_path) / file).read_text().splitlines()[int(line) - 1] == f"ERROR disk {disk} full"
    words = POINTER.sub("", body)
    assert sum(map(len, re.findall(r"(?<![\w/.])\d+(?![\w/.])", words))) < 0.05 * len(words)
    assert all(re.search(r"[a-z]{3}", line) for line in words.splitlines() if line)


def _call_of(call: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": [call]}


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
def test_every_claim_about_a_conversation_stands_where_it_is_cited(
    tmp_path_factory: pytest.TempPathFactory, outputs: list[tuple[list[str], int]]
) -> None:
    workdir = tmp_path_factory.mktemp("w")
    conversation = [_said("user", "Please run build_all and look at app/main.py.")]
    for number, (lines, times) in enumerate(outputs):
        conversation += [
            _calls((f"c{number}", f"make target_{number}")),
            _result(f"c{number}", "\n".join(lines * times)),
        ]
    for summary in asyncio.run(_summaries(conversation, workdir, 4_000, config=SMALL)):
        assert unheld(summary.draft, _directory(workdir)) == []


@each_third
@pytest.mark.parametrize("size", [8_000, pytest.param(32_000, marks=pytest.mark.slow)])
def test_every_claim_about_a_recorded_session_stands_where_it_is_cited(
    shared_data: Path, tmp_path: Path, first: int, size: int
) -> None:
    checked = 0
    for path in sorted((shared_data / "sessions").glob("*.jsonl"))[::6][first - 1 :: STEP]:
        messages = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        workdir = tmp_path / path.stem
        for summary in asyncio.run(_summaries(messages, workdir, size)):
            checked += 1
            assert summary.unverified == ()
            assert unheld(summary.draft, _directory(workdir)) == []
    assert checked


async def test_the_colours_of_a_result_with_a_view_are_not_in_the_summary(tmp_path: Path) -> None:
    failed = "\x1b[31mFAILED\x1b[0m tests/test_dredge.py::test_depth - AssertionError: 7 is below 9"
    output = "\n".join([failed, "mooring " * 400])  # a line that long needs a view
    conversation = [_said("user", "Please run the tests."), _calls(("c1", "pytest")), _result("c1", output)]
    (summary,) = await _summaries([*conversation, BUILD[3]], tmp_path, 64_000, config=SMALL)
    assert "test_depth - AssertionError: 7 is below 9" in summary.text
    assert "[31m" not in summary.text


def test_the_time_in_the_heading_of_a_message_is_not_cited_for_its_words() -> None:
    lines = ("## 4 assistant \u00b7 2026-05-01T12:00:31.500Z", "Which one do you want?", "1. the pump", "")
    message = Message("assistant", (Text("\n".join(lines[1:3])),))
    source = SourceMessage(4, message, Pointer("transcript.md", 40, 43), lines=lines)
    assert LineFinder().of(source, "1. the") == (Pointer("transcript.md", 42, 42),)
    assert LineFinder().of(source, "500Z") == (source.pointer,)


pointers = st.builds(
    lambda path, start, more: Pointer(path, start, start + more),
    st.sampled_from(["transcript.md", "tool_result-a.txt"]),
    st.integers(1, 200),
    st.integers(0, 30),
)


@given(st.lists(pointers, max_size=6))
def test_merged_citations_name_all_lines_and_none_that_are_far(found: list[Pointer]) -> None:
    spans = merged(found)
    assert merged(spans) == spans
    assert all(before.path != after.path or before < after for before, after in pairwise(spans))
    for pointer in found:
        assert any(one.path == pointer.path and one.start <= pointer.start <= pointer.end <= one.end for one in spans)
    for span in spans:
        inside = [pointer for pointer in found if pointer.path == span.path]
        assert span.start in {pointer.start for pointer in inside}
        assert span.end in {pointer.end for pointer in inside}
