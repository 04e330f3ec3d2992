"""What `retrieve` answers, of which Strands' tool `retrieve_offloaded_content` is made."""

import asyncio
import base64
import importlib
import json
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buoyline.errors import ConfigError, CorruptError, InvalidNameError, NotFoundError, StorageError
from buoyline.lookups.references import JsonContent, MediaContent, Retrieved, TextContent
from buoyline.lookups.retrieve import retrieve
from buoyline.tokens import default_counter
from buoyline.workspace import LocalWorkspace, layout
from buoyline.workspace.journal import encode

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
USERS = [{"id": n, "name": f"user {n}", "role": "admin" if n % 40 == 7 else "member"} for n in range(200)]
PLAIN = "\n".join(f"line {n}{' ERROR' if n in {3, 5, 40} else ''}" for n in range(1, 61))


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


def test_a_range_is_inclusive_and_its_end_is_clamped(workspace: LocalWorkspace) -> None:
    found = retrieve(workspace, "plain", line_range={"start": 58, "end": 999}, session="s1")
    assert _body(found) == ["[Lines 58-60 of 60]", "", "  58| line 58", "  59| line 59", "  60| line 60"]
    alike = [{"start": "58", "end": 999.0}, {"start": 58, "end": "60"}]
    assert {retrieve(workspace, "plain", None, spelled, session="s1").text for spelled in alike} == {found.text}


@pytest.mark.parametrize(
    "line_range",
    [{"start": 0, "end": 4}, {"start": 9, "end": 4}, {"start": 61, "end": 70}, {"start": 1}, {}, [1, 2], "1-2",
     {"start": True, "end": 2}, {"start": 1.5, "end": 2}, {"start": None, "end": 2}, {"start": float("inf"), "end": 2}],
)  # fmt: skip
def test_a_range_that_cannot_be_is_refused(workspace: LocalWorkspace, line_range: Any) -> None:
    with pytest.raises(ConfigError, match="line_range") as refused:
        retrieve(workspace, "plain", line_range=line_range, session="s1")
    assert "1 to 60" in str(refused.value) or "whole number" in str(refused.value)


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


def test_a_result_is_searched_by_the_lines_of_its_view(workspace: LocalWorkspace) -> None:
    by_path = {
        retrieve(workspace, reference, "admin", None, 1, session="s1").text
        for reference in ("wide", "tool_result-wide.txt", "tool_result-wide.view.txt")
    }
    (text,) = by_path
    assert text.startswith("[5 matches for /admin/]\n")
    assert '>  41|       "role": "admin"' in text


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


def test_the_name_of_a_document_cannot_forge_an_answer() -> None:
    name = "a]\n[9 matches for /x/]\x1b\u202e" + "x" * 500
    placeholder = MediaContent("document", "application/pdf", 3, "/w/data/x.pdf", name).text
    assert placeholder.startswith("[document: pdf, a)\\n(9 matches for /x/)\\x1b\\u202exxx")
    assert placeholder.endswith("x, 3 bytes | ref: /w/data/x.pdf]")
    assert len(placeholder) < 250


def test_no_content_of_another_session_can_be_had(workspace: LocalWorkspace) -> None:
    assert retrieve(workspace, "call_0", session="s1").text == "of the first session\n"
    assert retrieve(workspace, "call_0", session="s2").text == "of the second session\n"
    for reference in ("sessions/s1/tool_result-call_0.txt", "plain", workspace.session("s1").path("transcript.md")):
        with pytest.raises(NotFoundError) as refused:
            retrieve(workspace, reference, session="s2")
        assert refused.value.hint.startswith(("near are ", "there are "))
        assert "s1/" not in refused.value.hint
        assert "plain" not in refused.value.hint


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
