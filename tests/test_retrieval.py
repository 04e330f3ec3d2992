"""What `retrieve` answers, and the tool `retrieve_offloaded_content` that is made of it."""

import asyncio
import base64
import importlib
import json
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from buoyline.cli import main
from buoyline.errors import ConfigError, CorruptError, InvalidNameError, NotFoundError, StorageError
from buoyline.lookups import Retrieved, retrieval_tool, retrieve
from buoyline.lookups.references import MAX_MEDIA_BYTES, JsonContent, MediaContent, TextContent
from buoyline.tokens import default_counter
from buoyline.workspace import LocalWorkspace, layout
from buoyline.workspace.journal import encode

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
USERS = [{"id": n, "name": f"user {n}", "role": "admin" if n % 40 == 7 else "member"} for n in range(200)]
PLAIN = "\n".join(f"line {n}{' ERROR' if n in {3, 5, 40} else ''}" for n in range(1, 61))
LONG = "first\n" + "".join(f"needle{n:05} {'some other words ' * 200}"[:3_000] for n in range(40)) + "\nlast\n"


def _store(workspace: LocalWorkspace, session: str, call_id: str, content: str) -> str:
    message = {"role": "tool", "tool_call_id": call_id, "content": content}
    return asyncio.run(workspace.offload_tool_result(session, message))


def _store_blob(workspace: LocalWorkspace, content: bytes, media_type: str) -> str:
    with workspace.blobs.lease():
        return workspace.blobs.put(content, media_type)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> LocalWorkspace:
    made = LocalWorkspace(tmp_path_factory.mktemp("retrieval") / "workspace", durability="off")
    _store(made, "s1", "plain", PLAIN)
    _store(made, "s1", "wide", json.dumps({"users": USERS}, separators=(",", ":")))
    _store(made, "s1", "call_0", "of the first session\n")
    _store(made, "s1", "empty", "")
    _store(made, "s2", "call_0", "of the second session\n")
    _store(made, "s1", "twice", "one\n")
    _store(made, "s1", "twice", "two\n")
    asyncio.run(made.archive("s1", [{"role": "user", "content": f"question {n}"} for n in range(9)]))
    asyncio.run(made.offload_data_block({"type": "image", "source": {"type": "base64", "media_type": "image/png",
                "data": base64.b64encode(PNG).decode()}}))  # fmt: skip
    return made


def _body(found: Retrieved) -> list[str]:
    return found.text.split("\n")


def _answers(workspace: LocalWorkspace, reference: str, **arguments: Any) -> Iterator[Retrieved]:
    """Repeat a call as its answers say, to the end."""
    given_arguments = {"reference": reference, **arguments}
    while True:
        found = retrieve(workspace, **given_arguments)
        yield found
        if not found.next:
            return
        given_arguments |= found.next


def _ask(workspace: LocalWorkspace, session: str | None = "s1", **arguments: Any) -> str:
    async def call() -> str:
        return await retrieval_tool(workspace, session).call(**arguments)

    return asyncio.run(call())


def test_a_search_answers_in_the_documented_form(workspace: LocalWorkspace) -> None:
    assert _body(retrieve(workspace, "plain", "ERROR", context_lines=1, session="s1")) == [
        "[3 matches for /ERROR/]",
        "",
        "   2| line 2",
        ">  3| line 3 ERROR",
        "   4| line 4",
        ">  5| line 5 ERROR",
        "   6| line 6",
        "---",
        "  39| line 39",
        "> 40| line 40 ERROR",
        "  41| line 41",
    ]


def test_five_lines_of_context_are_shown_unless_others_are_asked_for(workspace: LocalWorkspace) -> None:
    assert [line.number for line in retrieve(workspace, "plain", "line 40", session="s1").lines] == [*range(35, 46)]
    assert [line.number for line in retrieve(workspace, "plain", "line 40", None, -3, session="s1").lines] == [40]


def test_a_search_within_a_range_shows_nothing_from_outside_of_it(workspace: LocalWorkspace) -> None:
    found = retrieve(workspace, "plain", "ERROR", {"start": 4, "end": 8}, session="s1")
    assert _body(found)[0] == "[1 match for /ERROR/ in lines 4-8]"
    assert [line.number for line in found.lines] == [4, 5, 6, 7, 8]


def test_a_range_is_inclusive_and_its_end_is_clamped(workspace: LocalWorkspace) -> None:
    found = retrieve(workspace, "plain", line_range={"start": 58, "end": 999}, session="s1")
    assert _body(found) == ["[Lines 58-60 of 60]", "", "  58| line 58", "  59| line 59", "  60| line 60"]
    alike = [{"start": "58", "end": 999.0}, {"start": 58, "end": "60"}]
    assert {retrieve(workspace, "plain", None, spelled, session="s1").text for spelled in alike} == {found.text}


def test_a_citation_of_several_places_shows_these_lines_and_none_between(workspace: LocalWorkspace) -> None:
    found = retrieve(workspace, "[plain:2-3,9,9-10,58-99]", session="s1")
    assert [line.number for line in found.lines] == [2, 3, 9, 10, 58, 59, 60]
    assert _body(found)[:5] == ["[Lines 2-60 of 60]", "", "   2| line 2", "   3| line 3 ERROR", "---"]
    within = retrieve(workspace, "plain:2-3,9,58", line_range={"start": 5, "end": 40}, session="s1")
    assert _body(within) == ["[Lines 9-9 of 60]", "", "  9| line 9"]
    hits = retrieve(workspace, "plain:2-3,40-41", "ERROR", context_lines=0, session="s1")
    assert [line.number for line in hits.lines] == [3, 40]
    assert "(searched 2 lines)" in retrieve(workspace, "plain:2,41", "ERROR", session="s1").text
    with pytest.raises(ConfigError, match="lines 10 to 20 are not within those that the reference names"):
        retrieve(workspace, "plain:2-3,58", line_range={"start": 10, "end": 20}, session="s1")
    cut = retrieve(workspace, "plain:1-9,40-60", max_tokens=90, session="s1")
    rest = retrieve(workspace, "plain:1-9,40-60", line_range=cut.next["line_range"], session="s1")
    assert [line.number for line in (*cut.lines, *rest.lines)] == [*range(1, 10), *range(40, 61)]


@pytest.mark.parametrize(
    "line_range",
    [{"start": 0, "end": 4}, {"start": 9, "end": 4}, {"start": 61, "end": 70}, {"start": 1}, {}, [1, 2], "1-2",
     {"start": True, "end": 2}, {"start": 1.5, "end": 2}, {"start": None, "end": 2}, {"start": float("inf"), "end": 2}],
)  # fmt: skip
def test_a_range_that_cannot_be_is_refused(workspace: LocalWorkspace, line_range: Any) -> None:
    with pytest.raises(ConfigError, match="line_range") as refused:
        retrieve(workspace, "plain", line_range=line_range, session="s1")
    assert "1 to 60" in str(refused.value) or "whole number" in str(refused.value)


@pytest.mark.parametrize("context_lines", [299, 301, 10**9])
def test_a_match_is_shown_even_if_its_context_alone_is_larger_than_an_answer(
    workspace: LocalWorkspace, context_lines: int
) -> None:
    _store(workspace, "s1", "far", "a\n" * 400 + "a hit\n" + "a\n" * 400 + "a hit\n")
    options = {"pattern": "^a hit$", "context_lines": context_lines, "max_tokens": 300, "session": "s1"}
    answers = list(_answers(workspace, "far", **options))
    assert [line.number for found in answers for line in found.lines if line.is_hit] == [401, 802]
    assert "401| a hit" in _ask(workspace, reference="far", pattern="^a hit$", context_lines=context_lines)


@pytest.mark.parametrize(("context_lines", "shown"), [(3, 3), (1, 1), (0, 1), (-5, 1), ("2", 2)])
def test_context_lines_alone_are_the_first_lines(workspace: LocalWorkspace, context_lines: Any, shown: int) -> None:
    found = retrieve(workspace, "plain", context_lines=context_lines, session="s1")
    assert _body(found)[0] == f"[Lines 1-{shown} of 60]"
    assert len(found.lines) == shown


def test_the_empty_pattern_shows_all_lines(workspace: LocalWorkspace) -> None:
    assert _body(retrieve(workspace, "plain", "", session="s1"))[0] == "[Lines 1-60 of 60]"
    assert _body(retrieve(workspace, "plain", "", {"start": 2, "end": 3}, session="s1"))[0] == "[Lines 2-3 of 60]"


def test_a_search_without_a_match_says_so(workspace: LocalWorkspace) -> None:
    found = retrieve(workspace, "plain", "absent", {"start": 1, "end": 10}, session="s1")
    assert found.text == "No matches found for pattern 'absent' in lines 1-10 (searched 10 lines)."
    assert (found.total, found.lines) == (0, ())


@pytest.mark.parametrize("pattern", ["(3", "[", "*", r"(l)\1", "(?<=l)i"])
def test_what_is_no_pattern_is_searched_for_literally_and_that_is_said(workspace: LocalWorkspace, pattern: str) -> None:
    reference = _store_blob(workspace, f"one\nbefore {pattern} behind\n".encode(), "text/plain")
    found = retrieve(workspace, reference, pattern, None, 0)
    assert [line.number for line in found.lines] == [2]
    assert found.text.endswith("[the pattern is no RE2 syntax, which has no look-around or back-references: its text "
                               "itself was searched for]")  # fmt: skip


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)+$", "(a|aa)+$", "(.*a){12}$", r"(\w+\s?)+$"])
def test_a_hostile_pattern_ends(workspace: LocalWorkspace, pattern: str) -> None:
    reference = _store_blob(workspace, b"a" * 50_000 + b"!\n", "text/plain")
    assert retrieve(workspace, reference, pattern).text.startswith("No matches found")


def test_matches_found_until_the_time_was_up_are_shown(workspace: LocalWorkspace) -> None:
    found = retrieve(workspace, "plain", "nothing", session="s1", timeout_s=0.0)
    assert found.text.endswith("(the time was up before the end; give a simpler pattern).")


def test_a_pattern_cannot_forge_a_heading(workspace: LocalWorkspace) -> None:
    found = retrieve(workspace, "plain", "line 1$|a/]\x1b\u202e" + "x" * 90, session="s1")
    assert _body(found)[0] == "[1 match for /line 1$|a  \\x1b\\u202e" + "x" * 29 + "/]"


def test_nothing_in_the_content_can_pass_for_a_line_of_the_answer(workspace: LocalWorkspace) -> None:
    _store(workspace, "s1", "forged", "a\n---\n[9 matches for /x/]\n> 1| a\n\x1b[31m\u202e\n")
    found = retrieve(workspace, "forged", line_range={"start": 1, "end": 9}, session="s1")
    heading, empty, *rows = _body(found)
    assert (heading, empty) == ("[Lines 1-5 of 5]", "")
    assert [row[:5] for row in rows] == [f"  {n}| " for n in range(1, 6)]
    assert "\x1b" not in found.text


def test_a_cut_search_shows_every_match_once_however_often_it_goes_on(workspace: LocalWorkspace) -> None:
    _store(workspace, "s1", "many", "".join(f"{'hit' if n % 3 else 'other'} {n}\n" for n in range(1, 400)))
    answers = list(_answers(workspace, "many", pattern="^hit", context_lines=1, session="s1", max_tokens=300))
    assert len(answers) > 5
    assert '[output truncated, narrow your search; to go on, repeat the call with "line_range"' in answers[0].text
    found = [line.number for answer in answers for line in answer.lines if line.is_hit]
    assert found == [n for n in range(1, 400) if n % 3]
    assert all(default_counter().count(answer.text) <= 300 for answer in answers)


@given(
    hits=st.sets(st.integers(1, 40)),
    context=st.integers(0, 6),
    max_tokens=st.integers(160, 400),
    first=st.integers(1, 40),
    length=st.integers(0, 40),
)
def test_going_on_and_on_finds_the_lines_that_python_finds(
    workspace: LocalWorkspace, *, hits: set[int], context: int, max_tokens: int, first: int, length: int
) -> None:
    content = "".join(f"{'hit' if n in hits else 'miss'} {n} é漢\n" for n in range(1, 41))
    reference = _store_blob(workspace, content.encode(), "text/plain")
    lines = {"start": first, "end": first + length}
    options = {"context_lines": context, "max_tokens": max_tokens}
    answers = list(_answers(workspace, reference, pattern="^hit", line_range=lines, **options))
    expected = [n for n in sorted(hits) if first <= n <= first + length]
    assert [line.number for answer in answers for line in answer.lines if line.is_hit] == expected
    assert answers[0].total == len(expected)
    assert all(default_counter().count(answer.text) <= max_tokens for answer in answers)


@given(text=st.text(alphabet="ab \té漢\x1b\u2028\n", max_size=4_000), max_tokens=st.integers(200, 700))
def test_going_on_and_on_shows_every_line(workspace: LocalWorkspace, text: str, max_tokens: int) -> None:
    reference = _store_blob(workspace, text.encode(), "text/plain")
    shown: dict[int, str] = {}
    for answer in _answers(workspace, reference, pattern="", max_tokens=max_tokens):
        assert default_counter().count(answer.text) <= max_tokens
        for line in answer.lines:
            assert line.column == len(shown.get(line.number, "")) + 1
            shown[line.number] = shown.get(line.number, "") + line.content
    expected = [line.removesuffix("\r") for line in text.split("\n")]
    assert list(shown.values()) == (expected if expected[-1] else expected[:-1])


def test_every_match_in_a_line_of_any_length_can_be_reached(workspace: LocalWorkspace) -> None:
    reference = _store_blob(workspace, LONG.encode(), "text/plain")
    answers = list(_answers(workspace, reference, pattern="needle[0-9]+", context_lines=0))
    shown = "".join(answer.text for answer in answers)
    assert [n for n in range(40) if f"needle{n:05}" not in shown] == []
    assert answers[0].text.startswith("[1 match for /needle[0-9 +/]\n\n> 2:1-1000/120000| needle00000")
    name = layout.blob_behind(reference)
    assert f"as in {name}:1:1001" in answers[0].text
    assert f'"reference": "{name}:2:' in answers[0].text


def test_a_long_line_is_read_on_from_its_columns(workspace: LocalWorkspace) -> None:
    reference = _store_blob(workspace, LONG.encode(), "text/plain")
    found = retrieve(workspace, f"{layout.blob_behind(reference)}:2:119001", max_tokens=1_000)
    assert _body(found)[2].startswith("  2:119001-120000/120000| ")
    assert _body(found)[3] == "  3| last"
    with pytest.raises(ConfigError, match="line 2 ends before column 999999"):
        retrieve(workspace, f"{layout.blob_behind(reference)}:2:999999")


def test_a_result_is_searched_by_the_lines_of_its_view(workspace: LocalWorkspace) -> None:
    by_path = {
        retrieve(workspace, reference, "admin", None, 1, session="s1").text
        for reference in ("wide", "tool_result-wide.txt", "tool_result-wide.view.txt")
    }
    (text,) = by_path
    assert text.startswith("[5 matches for /admin/]\n")
    assert '>  41|       "role": "admin"' in text


def test_what_the_view_breaks_is_found_in_the_result_itself(workspace: LocalWorkspace) -> None:
    found = retrieve(workspace, "wide", '"id":47,', session="s1")
    assert found.total == 1
    assert '"id":47,"name":"user 47","role":"admin"' in found.text
    assert "these lines are of sessions/s1/tool_result-wide.txt, the result as the tool gave it" in found.text


def test_the_content_comes_back_whole_and_in_its_own_type(workspace: LocalWorkspace) -> None:
    found = retrieve(workspace, "plain", session="s1")
    assert (found.parts, found.text) == ((TextContent(PLAIN),), PLAIN)
    odd = "a\ud800b\r\n\x00\u2028"
    _store(workspace, "s1", "odd", odd)
    assert retrieve(workspace, "odd", session="s1").text == odd
    reference = _store_blob(workspace, b'{"a": 1.50, "b": [2]}', "application/json")
    (part,) = retrieve(workspace, reference).parts
    assert isinstance(part, JsonContent)
    assert (part.value, part.text) == ({"a": 1.5, "b": [2]}, '{"a": 1.50, "b": [2]}')


def test_full_retrieval_is_bounded_and_says_how_to_go_on(workspace: LocalWorkspace) -> None:
    found = retrieve(workspace, "wide", session="s1")
    assert default_counter().count(found.text) <= 2_500
    assert found.text.startswith("[Lines 1-")
    assert "[output truncated, narrow your range; to go on, repeat the call with " in found.text
    following = retrieve(workspace, "wide", session="s1", **found.next)
    assert following.lines[0].number == found.lines[-1].number + 1


def test_a_caller_may_lift_the_bound(workspace: LocalWorkspace) -> None:
    found = retrieve(workspace, "wide", session="s1", max_tokens=None)
    assert json.loads(found.text) == {"users": USERS}
    assert retrieve(workspace, "wide", "role", None, 0, session="s1", max_tokens=None).total == 200


def test_a_model_gets_all_of_a_result_by_asking_for_the_whole(workspace: LocalWorkspace) -> None:
    cut = _ask(workspace, reference="wide")
    assert default_counter().count(cut) <= 2_500
    assert json.loads(_ask(workspace, reference="wide", whole=True)) == {"users": USERS}
    assert _ask(workspace, reference="wide", whole=False) == cut
    with pytest.raises(
        ConfigError, match="whole: the content has over 20,000,000 bytes; give a pattern or a line_range"
    ):
        retrieve(workspace, _store_blob(workspace, b"x" * 20_000_001, "text/plain"), whole=True)


def test_a_picture_comes_back_as_a_block_and_as_the_documented_placeholder(workspace: LocalWorkspace) -> None:
    reference = _store_blob(workspace, PNG, "image/png")
    found = retrieve(workspace, reference, session="s1")
    (part,) = found.media
    assert (part.kind, part.format, part.content) == ("image", "png", PNG)
    assert found.text == f"[image: png, {len(PNG)} bytes | ref: {part.path}]"
    assert Path(part.path).read_bytes() == PNG
    document = retrieve(workspace, _store_blob(workspace, b"%PDF-1.7 \0", "application/pdf")).media[0]
    assert (document.kind, document.format) == ("document", "pdf")


@pytest.mark.parametrize("options", [{"pattern": "x"}, {"line_range": {"start": 1, "end": 2}}, {"context_lines": 3}])
@pytest.mark.parametrize("media_type", ["image/png", "application/octet-stream"])
def test_binary_content_cannot_be_searched(workspace: LocalWorkspace, options: Any, media_type: str) -> None:
    reference = _store_blob(workspace, PNG, media_type)
    with pytest.raises(ConfigError, match=f"cannot search binary content .{media_type}"):
        retrieve(workspace, reference, **options)


def test_text_of_a_type_that_has_no_extension_can_be_searched(workspace: LocalWorkspace) -> None:
    reference = _store_blob(workspace, "<p>\nnéedle\n</p>".encode(), "text/html")
    assert [line.number for line in retrieve(workspace, reference, "née", None, 0).lines] == [2]


def test_a_payload_that_was_changed_is_not_handed_out(workspace: LocalWorkspace) -> None:
    reference = _store_blob(workspace, b"GIF89a true", "image/gif")
    (workspace.workdir / str(layout.blob_behind(reference))).write_bytes(b"GIF89a false")
    with pytest.raises(CorruptError):
        retrieve(workspace, reference)


def _with_parts(workspace: LocalWorkspace, call_id: str, text: str, *parts: dict[str, Any]) -> str:
    """Store a result of *parts*, of which *text* is the text; return its reference."""
    path = Path(_store(workspace, "s1", call_id, text))
    record = workspace.session("s1").index().find_result(path.name)
    assert record is not None
    with path.with_name(layout.JOURNAL_FILE).open("ab") as journal:
        journal.write(encode({**{key: value for key, value in record.items() if key != "crc"}, "parts": list(parts)}))
    return str(path)


def test_blocks_come_back_in_the_order_of_the_tool(workspace: LocalWorkspace) -> None:
    blob = str(layout.blob_behind(_store_blob(workspace, PNG, "image/png")))
    reference = _with_parts(
        workspace,
        "blocks",
        'first\n{"a": 1}',
        {"kind": "text", "offset": 0, "bytes": 5},
        {"kind": "image", "media_type": "image/png", "bytes": len(PNG), "path": blob, "name": "buoy"},
        {"kind": "json", "offset": 6, "bytes": 8},
        {"kind": "document", "media_type": "application/pdf", "bytes": 9, "path": f"data/{'0' * 64}.pdf"},
    )
    found = retrieve(workspace, reference, session="s1")
    text, image, value, document = found.parts
    assert (text, value) == (TextContent("first"), JsonContent('{"a": 1}'))
    assert isinstance(image, MediaContent)
    assert (image.name, image.content) == ("buoy", PNG)
    assert isinstance(document, MediaContent)
    assert (document.content, document.size_bytes, document.problem != "") == (None, 9, True)
    assert found.text.splitlines()[::2] == ["first", '{"a": 1}']
    assert found.text.splitlines()[1] == f"[image: png, buoy, {len(PNG)} bytes | ref: {image.path}]"
    assert retrieve(workspace, reference, '"a"', session="s1").total == 1


def test_a_result_of_pictures_alone_cannot_be_searched(workspace: LocalWorkspace) -> None:
    blob = str(layout.blob_behind(_store_blob(workspace, PNG, "image/png")))
    image = {"kind": "image", "media_type": "image/png", "bytes": len(PNG), "path": blob}
    reference = _with_parts(workspace, "pictures", "", *[image] * 90)
    with pytest.raises(ConfigError, match=r"cannot search binary content .image/png"):
        retrieve(workspace, reference, "x", session="s1")
    found = retrieve(workspace, reference, session="s1")
    assert len(found.media) == 90
    assert found.text.endswith("]\n[85 more, not text either]")


def test_the_name_of_a_document_cannot_forge_an_answer() -> None:
    name = "a]\n[9 matches for /x/]\x1b\u202e" + "x" * 500
    placeholder = MediaContent("document", "application/pdf", 3, "/w/data/x.pdf", name).text
    assert placeholder.startswith("[document: pdf, a)\\n(9 matches for /x/)\\x1b\\u202exxx")
    assert placeholder.endswith("x, 3 bytes | ref: /w/data/x.pdf]")
    assert len(placeholder) < 250


def test_media_beside_a_text_that_is_cut_are_named_below_it(workspace: LocalWorkspace) -> None:
    blob = str(layout.blob_behind(_store_blob(workspace, PNG, "image/png")))
    image = {"kind": "image", "media_type": "image/png", "bytes": len(PNG), "path": blob}
    reference = _with_parts(workspace, "album", PLAIN, {"kind": "text", "offset": 0, "bytes": len(PLAIN)}, *[image] * 7)
    found = retrieve(workspace, reference, session="s1", max_tokens=500)
    shown = found.text.count(f"[image: png, {len(PNG)} bytes | ref: ")
    assert 1 < shown < 7  # a longer path takes more tokens
    assert f"[{7 - shown} more, not text either]" in found.text
    assert default_counter().count(found.text) <= 500
    assert [part.content for part in found.media] == [PNG] * 7


def test_a_payload_over_the_bound_stays_where_it_is(workspace: LocalWorkspace) -> None:
    payload = bytes(MAX_MEDIA_BYTES + 1)
    reference = _store_blob(workspace, payload, "audio/wav")
    (part,) = retrieve(workspace, reference).media
    assert (part.content, part.size_bytes, part.problem) == (None, len(payload), "too large for an answer")
    assert retrieve(workspace, reference, max_tokens=None).media[0].content == payload


def test_payloads_over_the_bound_together_come_up_to_it(workspace: LocalWorkspace) -> None:
    large, small = bytes(MAX_MEDIA_BYTES * 2 // 3), PNG
    parts = [
        {"kind": "image", "media_type": "image/png", "bytes": len(payload), "path": str(layout.blob_behind(stored))}
        for payload in (large, large, small)
        for stored in (_store_blob(workspace, payload, "image/png"),)
    ]
    reference = _with_parts(workspace, "gallery", "", *parts)
    found = retrieve(workspace, reference, session="s1").media
    # Sizes, since a failure would spell the bytes.
    assert [len(part.content or b"") for part in found] == [len(large), 0, len(small)]
    assert found[1].problem == "too large for an answer"
    whole = retrieve(workspace, reference, session="s1", max_tokens=None).media
    assert [len(part.content or b"") for part in whole] == [len(large), len(large), len(small)]


def test_a_result_is_found_by_every_form_of_its_reference(workspace: LocalWorkspace) -> None:
    absolute = workspace.session("s1").path("tool_result-plain.txt")
    references = [absolute, "sessions/s1/tool_result-plain.txt", "tool_result-plain.txt", "plain", f" {absolute}\n"]
    assert {retrieve(workspace, reference, session="s1").text for reference in references} == {PLAIN}
    assert retrieve(workspace, f"{absolute}:3-4").text.startswith("[Lines 3-4 of 60]")
    assert retrieve(workspace, "transcript.md", "question 7", session="s1").total == 1


def test_no_content_of_another_session_can_be_had(workspace: LocalWorkspace) -> None:
    assert retrieve(workspace, "call_0", session="s1").text == "of the first session\n"
    assert retrieve(workspace, "call_0", session="s2").text == "of the second session\n"
    for reference in ("sessions/s1/tool_result-call_0.txt", "plain", workspace.session("s1").path("transcript.md")):
        with pytest.raises(NotFoundError) as refused:
            retrieve(workspace, reference, session="s2")
        assert refused.value.hint.startswith(("near are ", "there are "))
        assert "s1/" not in refused.value.hint
        assert "plain" not in refused.value.hint


@pytest.mark.parametrize(("call_id", "session"), [("call_0", None), ("twice", "s1")])
def test_an_id_that_stands_for_several_results_is_not_guessed(
    workspace: LocalWorkspace, call_id: str, session: str | None
) -> None:
    with pytest.raises(NotFoundError, match="it may mean sessions/s1/tool_result-") as refused:
        retrieve(workspace, call_id, session=session)
    assert str(refused.value).count("tool_result-") == 2


@pytest.mark.parametrize(
    ("reference", "error"),
    [
        ("absent", NotFoundError),
        ("x" * 100_000, NotFoundError),
        ("journal.jsonl", NotFoundError),
        ("sessions/s1/session.json", NotFoundError),
        ("workspace.json", NotFoundError),
        ("data", NotFoundError),
        (f"workspace:///data/{'0' * 64}.png", NotFoundError),
        ("own.txt", NotFoundError),
        ("", InvalidNameError),
        ("../s2/tool_result-call_0.txt", InvalidNameError),
        ("/etc/passwd", InvalidNameError),
        (".env", InvalidNameError),
        ("data/.released.jsonl", InvalidNameError),
        ("/etc/passwd:1:1", InvalidNameError),
        ("tool_result-link.txt", StorageError),
        (7, InvalidNameError),
        (None, InvalidNameError),
    ],
)
def test_nothing_but_what_was_offloaded_is_retrieved(
    workspace: LocalWorkspace, tmp_path: Path, reference: Any, error: type[Exception]
) -> None:
    (workspace.workdir / "own.txt").write_text("the agent's own", "utf-8")
    (workspace.workdir / ".env").write_text("SECRET", "utf-8")
    link = workspace.workdir / "sessions/s1/tool_result-link.txt"
    link.symlink_to(tmp_path / "secret")
    try:
        with pytest.raises(error) as refused:
            retrieve(workspace, reference, session="s1")
    finally:
        link.unlink()
    assert len(str(refused.value)) < 2_000


def test_empty_content_says_so(workspace: LocalWorkspace) -> None:
    assert retrieve(workspace, "empty", session="s1").text == ""
    assert retrieve(workspace, "empty", "x", session="s1").text == "Content is empty (0 lines)."


def test_the_text_of_a_result_whose_journal_is_lost_can_be_had(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path / "workspace", durability="off")
    path = _store(workspace, "s1", "c1", "still there\n")
    Path(path).with_name("journal.jsonl").unlink()
    assert retrieve(workspace, "c1", session="s1").text == "still there\n"


def test_the_tool_has_the_documented_name_and_parameters(workspace: LocalWorkspace) -> None:
    tool = retrieval_tool(workspace, "s1")
    assert tool.name == "retrieve_offloaded_content"
    assert list(tool.parameters["properties"]) == ["reference", "pattern", "line_range", "context_lines", "whole"]
    assert tool.parameters["required"] == ["reference"]
    assert tool.parameters["properties"]["line_range"]["required"] == ["start", "end"]
    assert json.loads(json.dumps(tool.openai()))["function"]["parameters"] == json.loads(json.dumps(tool.anthropic()))["input_schema"]  # noqa: E501  # fmt: skip


def test_the_tool_answers_a_call_and_takes_null_for_absent(workspace: LocalWorkspace) -> None:
    arguments: dict[str, Any] = {"reference": "plain", "pattern": "ERROR", "line_range": None, "context_lines": 1}
    assert _ask(workspace, **arguments) == retrieve(workspace, "plain", "ERROR", None, 1, session="s1").text


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"reference": None},
        {"reference": "absent"},
        {"reference": ["plain"]},
        {"reference": "plain", "session": "s2"},
        {"reference": "plain", "max_tokens": None},
        {"reference": "plain", "pattern": 5},
        {"reference": "plain", "pattern": "a\nb"},
        {"reference": "plain", "pattern": "a" * 1_001},
        {"reference": "plain", "pattern": "\ud800"},
        {"reference": "plain", "line_range": "1-2"},
        {"reference": "plain", "line_range": {"start": 61, "end": 62}},
        {"reference": "plain", "context_lines": "many"},
        {"reference": "plain", "whole": "yes"},
    ],
)
def test_what_goes_wrong_is_an_answer_too(workspace: LocalWorkspace, arguments: dict[str, Any]) -> None:
    assert _ask(workspace, **arguments).startswith("Error: ")


def test_a_tool_whose_session_is_not_there_yet_answers_an_error(workspace: LocalWorkspace) -> None:
    assert _ask(workspace, "s9", reference="plain").startswith("Error: no session 's9'")


def _strands_search() -> Any:
    """Return the search of the real tool, for comparison; skip where it is not installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            module = importlib.import_module("strands.vended_plugins.context_offloader.search")
        except ImportError:
            pytest.skip("strands-agents is not installed")
    return module._search_content


@given(
    lines=st.lists(st.text(alphabet="ab1 (", max_size=6), min_size=1, max_size=14),
    pattern=st.sampled_from([None, "", "a", "b$", "^1", "a|1", "(", "[ab]{2}", "a(", "zz", "."]),
    start=st.one_of(st.none(), st.integers(1, 14)),
    length=st.integers(0, 9),
    context=st.integers(-1, 4),
)
def test_small_texts_are_answered_as_the_real_tool_answers_them(
    workspace: LocalWorkspace, *, lines: list[str], pattern: str | None, start: int | None, length: int, context: int
) -> None:
    text = "\n".join([*lines, "end"])  # it counts one more line where a text ends in a line end, unlike grep and sed
    line_range = None if start is None else (start, start + length)
    if pattern is None and line_range is None:
        line_range = (1, max(1, context))
    try:
        expected = _strands_search()(text, pattern=pattern, line_range=line_range, context_lines=context)
    except ValueError:
        expected = None
    reference = _store_blob(workspace, text.encode(), "text/plain")
    asked = None if line_range is None else {"start": line_range[0], "end": line_range[1]}
    try:
        found = retrieve(workspace, reference, pattern, asked, context).text
    except ConfigError:
        found = None
    assert (found and found.partition("\n\n[the pattern is no RE2")[0]) == expected


def test_the_document_prints_what_it_says_it_prints() -> None:
    document = (Path(__file__).parents[1] / "docs" / "retrieval.md").read_text("utf-8")
    blocks = re.findall(r"```(?:python|text)\n(.*?)```", document, re.DOTALL)
    for program, printed in zip(blocks[::2], blocks[1::2], strict=True):
        ran = subprocess.run(
            [sys.executable, "-W", "error", "-c", program], capture_output=True, encoding="utf-8", check=True
        )
        assert ran.stdout == printed


def _run(workspace: LocalWorkspace, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["retrieve", *arguments, "--workdir", str(workspace.workdir)])


def test_the_command_answers_as_the_tool_does(workspace: LocalWorkspace) -> None:
    ran = _run(workspace, "plain", "--session", "s1", "--pattern", "ERROR", "-C", "1", "--lines", "1-9")
    expected = _ask(workspace, reference="plain", pattern="ERROR", context_lines=1, line_range={"start": 1, "end": 9})
    assert (ran.exit_code, ran.stdout) == (0, f"{expected}\n")
    path = workspace.session("s1").path("tool_result-wide.txt")
    assert json.loads(_run(workspace, path, "--whole").stdout) == {"users": USERS}


def test_the_command_says_in_its_own_words_how_to_go_on(workspace: LocalWorkspace) -> None:
    assert re.search(r"repeat the command with --lines \d+-\d+\]$", _run(workspace, "wide", "--session", "s1").stdout)
    reference = _store_blob(workspace, LONG.encode(), "text/plain")
    ran = _run(workspace, reference, "--pattern", "needle", "-C", "0")
    assert re.search(r"repeat the command with REFERENCE data/[0-9a-f]{64}\.txt:2:\d+\]$", ran.stdout)
    tail = _store_blob(workspace, ("hit\n" + "some other words\n" * 99).encode(), "text/plain")
    ran = _run(workspace, tail, "--pattern", "hit", "-C", "99", "--max-tokens", "200")
    assert re.search(r"\[context truncated.*the command without --pattern, with --lines \d+-100\]$", ran.stdout)


def test_the_command_prints_json_for_programs(workspace: LocalWorkspace) -> None:
    image = json.loads(_run(workspace, _store_blob(workspace, PNG, "image/png"), "--json").stdout)
    assert image["parts"][0].items() >= {"kind": "image", "media_type": "image/png", "size_bytes": len(PNG)}.items()
    found = json.loads(_run(workspace, "plain", "--session", "s1", "--lines", "3", "--json").stdout)
    assert [(line["number"], line["content"]) for line in found["lines"]] == [(3, "line 3 ERROR")]


@pytest.mark.parametrize(
    ("arguments", "status"),
    [(("absent",), 1), (("/etc/passwd",), 2), (("plain", "--lines", "x"), 2), (("twice", "--lines", "7-9"), 1)],
)
def test_the_command_ends_with_a_status(workspace: LocalWorkspace, arguments: tuple[str, ...], status: int) -> None:
    ran = _run(workspace, *arguments, "--session", "s1")
    assert (ran.exit_code, ran.stdout) == (status, "")
    assert ran.stderr.startswith("buoyline: error: ")


values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=9), st.just("plain")),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.sampled_from(["start", "end"]), inner)),
    max_leaves=4,
)


@given(
    arguments=st.dictionaries(st.sampled_from(["pattern", "line_range", "context_lines"]), values),
    reference=st.one_of(st.sampled_from(["plain", "wide", "plain:3:2", "tool_result-wide.txt:1:400"]), values),
)
def test_no_call_of_a_model_ends_in_an_exception(
    workspace: LocalWorkspace, arguments: dict[str, Any], reference: object
) -> None:
    answer = _ask(workspace, reference=reference, **arguments)
    assert default_counter().count(answer) <= 2_500
