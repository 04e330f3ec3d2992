import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buoyline.offloader.protocol import indented, view_of
from buoyline.previews.source import MAX_LINE_CHARS, count_lines, is_readable, readable_lines, visible, wrapped

SEPARATORS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"

nasty_characters = st.sampled_from(SEPARATORS + "\x00\x07\x1b\x7f\x9f\u202e\u2066\ud800\udfff\ufeff\t ab中😀\\")
stretches = st.builds(str.__mul__, st.sampled_from(["a", "word ", "中", "\x00", "\n", " "]), st.integers(990, 2_100))
texts = st.one_of(
    st.text(nasty_characters, max_size=40),
    st.text(st.characters(exclude_categories=()), max_size=40),
    st.lists(st.text(nasty_characters, max_size=5) | stretches, max_size=4).map("".join),
)
one_line_texts = texts.map(lambda text: re.sub(r"[\r\n]", "", text))

short_texts = st.text(st.sampled_from(SEPARATORS + '\x00\x7f"\\/{}[]:,ab中😀\u202e'), max_size=8)
numbers = st.sampled_from(["0", "-0", "-0.0", "1.10", "1e5", "1E+05", "1e999", "123456789012345678901234567890", "0.1"])
documents: st.SearchStrategy[str] = st.recursive(
    st.sampled_from(["null", "true", "false"]) | numbers | short_texts.map(json.dumps),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(lambda items: f"[{', '.join(items)}]"),
        st.lists(st.tuples(short_texts, inner), max_size=4).map(
            lambda pairs: (
                "{" + ",".join(f"{json.dumps(key, ensure_ascii=False)} :{value}" for key, value in pairs) + "}"
            )
        ),
    ),
    max_leaves=20,
)


def _lexical(document: str) -> Any:
    """Read JSON so that the order of keys, repeated keys and the spelling of numbers are kept."""
    return json.loads(document, object_pairs_hook=list, parse_int=str, parse_float=str)


def _joined(pieces: list[str]) -> str:
    return pieces[0] + "".join(piece.removeprefix("\u2026 ") for piece in pieces[1:])


@given(texts)
def test_readable_lines_are_lines_for_every_reader(text: str) -> None:
    lines = list(readable_lines(text))
    content = "".join(f"{line}\n" for line in lines)
    assert all(len(line) <= MAX_LINE_CHARS for line in lines)
    assert content.splitlines() == lines
    assert content.encode("utf-8").split(b"\n") == [*(line.encode("utf-8") for line in lines), b""]
    assert count_lines(content) == len(lines)
    assert is_readable(content)


@given(texts)
def test_what_is_readable_is_counted_alike_by_every_reader(text: str) -> None:
    if is_readable(text):
        assert count_lines(text) == len(text.splitlines()) == len(text.removesuffix("\n").split("\n")) * bool(text)
        assert all(len(line) <= MAX_LINE_CHARS for line in text.splitlines())


@given(one_line_texts)
def test_a_wrapped_line_is_the_line_when_its_pieces_are_joined(line: str) -> None:
    pieces = list(wrapped(line))
    assert _joined(pieces) == line
    assert all(len(piece) <= MAX_LINE_CHARS for piece in pieces)
    assert all(piece.startswith("\u2026 ") for piece in pieces[1:])


@given(texts)
def test_nothing_visible_is_lost_in_readable_lines(text: str) -> None:
    """A continued line begins with an ellipsis; no text here has one of its own."""
    lines: list[str] = []
    for line in readable_lines(text.replace("\u2026", "")):
        if line.startswith("\u2026 "):
            lines[-1] += line.removeprefix("\u2026 ")
        else:
            lines.append(line)
    ends = re.compile("\r\n|\r|\n")
    expected = [visible(line) for line in ends.split(text.replace("\u2026", ""))]
    assert lines == (expected if expected[-1] else expected[:-1])


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", []),
        ("\n", [""]),
        ("a", ["a"]),
        ("a\n", ["a"]),
        ("a\r\n", ["a"]),
        ("a\r", ["a"]),
        ("a\n\n", ["a", ""]),
        ("a\r\n\r\n", ["a", ""]),
        ("a\r\rb", ["a", "", "b"]),
        ("a\tb", ["a\tb"]),
        ("\x1b[31mred\x07", ["\\x1b[31mred\\x07"]),
        ("a\x0bb\x85c\u2028d", ["a\\x0bb\\u0085c\\u2028d"]),
        ("\u202egnp.exe\ud800", ["\\u202egnp.exe\\ud800"]),
    ],
    ids=ascii,
)
def test_lines_end_where_people_see_them_end(text: str, lines: list[str]) -> None:
    assert list(readable_lines(text)) == lines


@pytest.mark.parametrize("mark", "\u061c\u200e\u200f", ids=ascii)
def test_direction_marks_are_escaped_when_shown_and_kept_in_files(mark: str) -> None:
    assert visible(f"a{mark}b") == f"a\\u{ord(mark):04x}b"
    assert list(readable_lines(f"a{mark}b\x1b")) == [f"a{mark}b\\x1b"], (
        "verify renders transcripts of old versions again"
    )


def test_a_long_line_is_broken_after_a_blank_where_one_is_near() -> None:
    words = ("word " * 250).strip()
    first, second = wrapped(words)
    assert first == "word " * 200
    assert second == "\u2026 " + ("word " * 50).strip()
    assert [len(piece) for piece in wrapped("x" * 2_000)] == [1_000, 1_000, 4]


@pytest.mark.parametrize("separator", [*SEPARATORS[1:], "\r\r\n"], ids=ascii)
def test_a_stray_separator_makes_a_text_unreadable(separator: str) -> None:
    assert not is_readable(f"a{separator}b")


@pytest.mark.parametrize(("text", "lines"), [("", 0), ("\n", 1), ("a", 1), ("a\n", 1), ("a\nb", 2), ("\n\n", 2)])
def test_a_last_line_counts_with_or_without_its_end(text: str, lines: int) -> None:
    assert count_lines(text) == lines


@given(texts)
def test_a_view_exists_only_where_it_is_needed_and_is_readable(text: str) -> None:
    view = view_of(text)
    assert (view is None) is is_readable(text)
    assert view is None or (is_readable(view) and view.endswith("\n"))


@given(documents)
def test_an_indented_document_is_the_same_document(document: str) -> None:
    shown = "\n".join(indented(document))
    assert _lexical(shown) == _lexical(document)
    assert all(line.strip() for line in shown.split("\n"))


@given(st.lists(documents, min_size=1, max_size=5))
def test_a_view_of_json_is_the_same_document(parts: list[str]) -> None:
    document = f'{{"padding": [{"0, " * 400}0], "parts": [{", ".join(parts)}]}}'
    view = view_of(document)
    assert view is not None
    assert _lexical(view) == _lexical(document)
    assert json.loads(view) == json.loads(document)


def test_json_is_indented_one_value_a_line() -> None:
    document = '{"a":[1,{"b":[],"c":{}}],"d":"x, [y]"}'
    assert list(indented(document)) == [
        "{",
        '  "a": [',
        "    1,",
        "    {",
        '      "b": [],',
        '      "c": {}',
        "    }",
        "  ],",
        '  "d": "x, [y]"',
        "}",
    ]


def test_a_string_of_json_that_is_too_long_is_wrapped() -> None:
    view = view_of(json.dumps({"a": 1, "text": "x" * 2_500, "b": 2}))
    assert view is not None
    assert view.count("\n") == 7
    assert view.startswith('{\n  "a": 1,\n  "text": "xxx')
    assert view.count("\n\u2026 x") == 2
    assert view.endswith('",\n  "b": 2\n}\n')


def test_a_character_that_no_reader_shows_is_escaped_in_json_as_json_does() -> None:
    document = json.dumps({"a": "\x7f\x85\u2028\u202e", "b": "x" * 990}, ensure_ascii=False)
    view = view_of(document)
    assert view is not None
    assert r'"a": "\u007f\u0085\u2028\u202e"' in view
    assert json.loads(view) == json.loads(document)


@pytest.mark.parametrize("depth", [100, 5_000])
def test_deep_nesting_is_shown_in_linear_space(depth: int) -> None:
    document = "[" * depth + "1" + "]" * depth
    assert sum(len(line) for line in indented(document)) <= 90 * len(document)
    view = view_of(document + " " * 1_000)
    assert view is not None
    assert len(view) <= 90 * len(document) + 2_000


@pytest.mark.parametrize(
    "text", ['{"a": 1}' * 200, "[" + "1," * 600, "{" * 1_001, '{"a": "' + "x" * 1_000, "[NaN" + " " * 1_000]
)
def test_what_only_begins_like_json_is_wrapped_without_losing_a_character(text: str) -> None:
    view = view_of(text)
    assert view is not None
    assert _joined(view.removesuffix("\n").split("\n")) == text


@given(st.text(st.sampled_from('ab ,{}[]"中'), max_size=20), st.integers(1, 120))
def test_a_long_line_of_anything_else_is_wrapped_without_losing_a_character(text: str, times: int) -> None:
    line = f"> {text * times}" + "x" * 1_000
    view = view_of(line)
    assert view is not None
    assert _joined(view.splitlines()) == line
