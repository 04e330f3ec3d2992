"""That a pattern is found wherever it is, whatever the bytes, the chunks and the pattern."""

import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from buoyline.errors import ConfigError
from buoyline.lookups import grep
from buoyline.lookups.hits import LineHit, LineStart, hits
from buoyline.lookups.lines import lines_before
from buoyline.lookups.patterns import compile_pattern, required_text
from buoyline.workspace import LocalWorkspace
from buoyline.workspace.local_tree import LocalTree

PIECES = (
    *(b"", b"abc", b"error 42", b"a\r", b"\r", b"\x00", b"1:2:x", b"--", b"a_b-c]d^e", b"a\x0bb\x0cc"),
    *(b"\xff\xfe", b"\xed\xa0\x80", b"\xe0\x80\x80", b"\xf4\x90\x80\x80", b"\xc2\x85"),  # no UTF-8, or hardly
    *(b"Kk\xe2\x84\xaaSs\xc5\xbf", b"\xef\xbb\xbfabc", b"\x1b[31mred\x1b[0m", "漢字 ١٢ é".encode()),
    "\u202eabc\u2066".encode(),
)
ATOMS = (
    *("a", "b", "k", "K", "é", "漢", "-", "#", " ", "]", "\x00", "\r", "error", "\u017f", "\u2126"),
    *(".", "^", "$", r"\A", r"\z", r"\b", r"\d", r"\w", r"\s", r"\D", r"\W", r"\S", r"\d\d"),
    *("[ab]", "[^a]", r"[\d.]", "[a-k]", "[^é]", "[é]", "[+--]", r"[\]\^-]", "[&&a]", "[~a]", "[[:alpha:]]"),
    *(r"\.", r"\-", r"\<", r"\pL", r"\x{85}", r"\Qa.b\E", r"\C", "(?i)k"),
)

pieces = st.sampled_from(PIECES) | st.binary(max_size=6) | st.text("ab k.é\t", max_size=6).map(str.encode)
contents = st.lists(st.lists(pieces, max_size=4).map(b"".join), max_size=30).map(b"\n".join)
patterns = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=4).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{0,3}?", "{1,}", "*?"])).map(
            lambda p: f"({p[0]}){p[1]}"
        ),
    ),
    max_leaves=6,
)


@given(
    lines=st.lists(st.integers(0, 60), min_size=1, max_size=12),
    at=st.integers(0, 11),
    chunk=st.integers(1, 70),
    pattern=st.sampled_from(["b", "a$", "^a", r"\bab\b", "a{20}", ".", "$", "b.*b"]),
)
@example(lines=[20, 20], at=1, chunk=1, pattern="a$")
def test_what_is_found_in_a_line_depends_on_that_line_alone(
    lines: list[int], at: int, chunk: int, pattern: str
) -> None:
    rows = [("ab a" * size)[:size].encode() for size in lines]
    content = b"\n".join(rows)
    chunks = [content[begin : begin + chunk] for begin in range(0, len(content), chunk)]
    find = compile_pattern(pattern)
    whole = list(hits(chunks, find, block_bytes=16, overlap_bytes=5))
    assert whole == list(hits([content] if content else [], find, block_bytes=16, overlap_bytes=5))
    at %= len(rows)
    begin = sum(len(row) + 1 for row in rows[:at])
    rest = content[begin:]
    found = hits([rest] if rest else [], find, block_bytes=16, overlap_bytes=5)
    shifted = [LineHit(hit.number + at, hit.column, hit.offset + begin) for hit in found]
    assert shifted == [hit for hit in whole if hit.number > at]
    assert {hit.offset for hit in whole} <= {sum(len(row) + 1 for row in rows[:n]) for n in range(len(rows))}
    true = {n for n, row in enumerate(rows, 1) if re.search(pattern.encode(), row)}
    assert {hit.number for hit in whole} <= true


@given(
    gaps=st.lists(st.integers(0, 1_500), max_size=40),
    word=st.sampled_from(["needle", "n" * 300, "né"]),
    pattern=st.sampled_from(["n", "n+", r"\bn", "need|né", "x$"]),
    block=st.integers(1_100, 4_000),
)
def test_the_windows_of_a_long_line_find_what_one_window_finds(
    gaps: list[int], word: str, pattern: str, block: int
) -> None:
    line = " ".join(word + "-" * gap for gap in gaps) + "-" * 1_100 + "x"
    content = f"{line}\nneedle x\n{line}".encode()
    find = compile_pattern(pattern)
    assert list(hits([content], find, block_bytes=block, overlap_bytes=1_000)) == list(hits([content], find))


@given(sizes=st.lists(st.integers(0, 30_000), min_size=1, max_size=8), at=st.integers(0, 7), count=st.integers(0, 9))
def test_the_lines_before_a_line_are_found_backwards(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], at: int, count: int
) -> None:
    starts = [sum(size + 1 for size in sizes[:n]) for n in range(len(sizes))]
    tree = _tree(tmp_path_factory.getbasetemp() / "before", b"\n".join(b"x" * size for size in sizes))
    at %= len(sizes)
    first = max(at - count, 0)
    assert lines_before(tree, "file", LineStart(at + 1, starts[at]), count) == LineStart(first + 1, starts[first])


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"\d+ .* ERROR: x", "ERROR: x"),
        (r"\w+abc*de?", "ab"),
        (r"(abcdef)?xy(gh|ij)+kl\.m", "kl.m"),
        ("abc|def", ""),
        ("[a-z]+(?:abc|def)", ""),
        (r"^\pLabc", ""),
        ("ERROR.*", ""),
        (r"ERR\w+ timeout", ""),
        ("a.*é漢字", "é漢字"),
    ],
)
def test_the_text_that_all_matches_have_is_seen(pattern: str, text: str) -> None:
    assert required_text(pattern) == text


@given(content=contents, pattern=patterns, text=st.sampled_from(["ab", "er", " k", "a"]))
def test_looking_for_a_text_first_changes_no_hit(content: bytes, pattern: str, text: str) -> None:
    pattern = rf"(?:{pattern}){text}(?:{pattern})?"
    try:
        found = list(hits([content] if content else [], compile_pattern(pattern)))
        plain = list(hits([content] if content else [], compile_pattern(f"(?:{pattern})")))
    except ConfigError:
        return
    assert found == plain


def test_a_search_ends_when_its_time_is_up_and_says_so(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path / "w", durability="off")
    _tree(workspace.workdir, b"line\n" * 100)
    answer = grep(workspace, "nothing", "file", timeout_s=-1)
    assert answer.text == "[No hit in 1 file until the time was up, in file; search fewer files at once.]\n"
    assert not answer.next


def _tree(directory: Path, content: bytes) -> LocalTree:
    directory.mkdir(exist_ok=True)
    (directory / "file").write_bytes(content)
    return LocalTree(directory, durable=False)
