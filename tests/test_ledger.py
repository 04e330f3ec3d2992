import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buoyline.compression.extractive import spans
from buoyline.compression.extractive.spans import CitedSpan, Snippet, StringCandidate, selected_spans
from buoyline.compression.identifiers import (
    MAX_CHARS,
    atoms,
    classify,
    error_lines,
    exit_status,
    last_line,
    mentions,
    readable,
    runs,
    sentences,
)

HOSTILE = [
    "a" * 1_000_000,
    "a." * 500_000,
    "1," * 500_000,
    "1,111" * 200_000,
    "/" * 1_000_000,
    "a_B1/" * 200_000,
    "http://" * 150_000,
    "\\" * 1_000_000,
    "Error" * 200_000,
    "error " * 160_000,
    "`x " * 300_000,
    ". " * 500_000,
]


def _found(text: str) -> list[tuple[str, str]]:
    return [(mention.kind, mention.text) for mention in mentions(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see cmd/app/main.go:515 for it", [("path", "cmd/app/main.go"), ("number", "515")]),
        ("in /usr/share/doc, ~/notes and ./run.", [("path", "/usr/share/doc"), ("path", "~/notes"), ("path", "./run")]),
        ("it is in explain_test.go.", [("path", "explain_test.go")]),
        ("call store.ReadCommitted(x)", [("identifier", "store.ReadCommitted")]),
        (
            "HTTPServer, max_tokens and sha256",
            [("identifier", name) for name in ("HTTPServer", "max_tokens", "sha256")],
        ),
        ("commit c2b0273 (v1.2.3)", [("hash", "c2b0273"), ("version", "v1.2.3")]),
        ("550e8400-e29b-41d4-a716-446655440000", [("hash", "550e8400-e29b-41d4-a716-446655440000")]),
        ("(https://a.example/b?c=1).", [("url", "https://a.example/b?c=1")]),
        ("1,234,567 rows on 2026-02-06", [("number", "1,234,567"), ("number", "2026-02-06")]),
        ("使用pandas_x库读取/data/in.csv。", [("identifier", "pandas_x"), ("path", "/data/in.csv")]),
        (r'{"a":"b\nfoo_bar"}', [("identifier", "foo_bar")]),
    ],
)
def test_what_is_exact_is_found_with_its_kind(text: str, expected: list[tuple[str, str]]) -> None:
    assert _found(text) == expected


@pytest.mark.parametrize(
    "text", ["and/or, he said. However: no!", "</stat> {/owner}", "e.g. this", "京东和美团的竞争", ""]
)
def test_plain_words_are_nothing_exact(text: str) -> None:
    assert _found(text) == []


def test_a_dotted_name_counts_as_its_parts_and_a_plain_one_as_itself() -> None:
    assert atoms("identifier", "store.ReadCommitted") == (("identifier", "ReadCommitted"),)
    assert atoms("identifier", "os.path") == (("identifier", "os.path"),)
    assert atoms("path", "a/b.py") == (("path", "a/b.py"),)


def test_a_run_as_long_as_base64_is_nothing_exact() -> None:
    assert classify("aB1" * MAX_CHARS) is None
    assert runs("aB1" * MAX_CHARS) == set()


@given(st.text())
def test_a_mention_stands_in_the_text_where_it_says(text: str) -> None:
    found = list(mentions(text))
    assert all(text[mention.start : mention.start + len(mention.text)] == mention.text for mention in found)
    starts = [mention.start for mention in found]
    assert starts == sorted(starts)


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: text[:7])
@pytest.mark.parametrize("max_chars", [200_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_a_long_hostile_line_takes_no_longer_than_any_other(text: str, max_chars: int) -> None:
    """The time-out of the suite ends it if an expression goes back and forth."""
    text = text[:max_chars]
    list(mentions(text))
    runs(text)
    list(error_lines(text))
    list(sentences(text))
    readable(text)
    exit_status(text)
    last_line(text)


def test_sentences_are_found_in_markdown_and_in_chinese() -> None:
    text = (
        "# Result\n- All tests pass. Next, e.g. tomorrow, we ship!\n```\ncode here\n```\n第一步完成。第二步开始\uff01"
    )
    assert list(sentences(text)) == [
        "Result",
        "All tests pass.",
        "Next, e.g. tomorrow, we ship!",
        "第一步完成。",
        "第二步开始\uff01",
    ]


def test_control_characters_and_colours_become_one_blank() -> None:
    assert readable("a\x1b[31mb\x00\x07c\n\td\u2028e") == "a b c d e"


@pytest.mark.parametrize(
    "line",
    [
        "ValueError: bad value",
        "main.go:12:3: error: expected a thing",
        "--- FAIL: TestX (0.01s)",
        "3 failed, 2 passed in 0.1s",
        "bash: foo: command not found",
        "E   AssertionError: no",
        "错误\uff1a文件不存在",
    ],
)
def test_error_messages_are_told_from_the_rest(line: str) -> None:
    assert list(error_lines(f"fine\n{line}\nfine")) == [readable(line)]


@pytest.mark.parametrize(
    "line",
    [
        "0 errors",
        "no failures found",
        '   12→ return fmt.Errorf("failed: %w", err)',
        "fcf7ade log error when marshalling",
        "FAIL",
    ],
)
def test_code_and_good_news_are_no_errors(line: str) -> None:
    assert list(error_lines(line)) == []


def test_an_exit_status_is_read_off_the_ends_of_an_output() -> None:
    assert exit_status("output\nExit code 2") == 2
    assert exit_status("exit status 1\nmore") == 1
    assert exit_status("all is well") is None


WANTED = st.builds(
    StringCandidate,
    need=st.floats(0.001, 1),
    tokens=st.integers(1, 9),
    places=st.lists(st.integers(0, 7), min_size=1, max_size=4, unique=True).map(sorted),
    is_near=st.booleans(),
)
PLACE = st.builds(
    Snippet,
    mark_tokens=st.integers(10, 20),
    lines=st.floats(1, 30),
    follows=st.booleans(),
    file=st.sampled_from(["", "a.txt", "b.txt"]),
    more_tokens=st.integers(0, 10),
)
NINES = [Snippet(10, lines=1)] * 10


@given(
    wanted=st.lists(WANTED, max_size=30),
    places=st.lists(PLACE, min_size=8, max_size=8),
    max_tokens=st.integers(0, 90),
    max_places=st.integers(1, 5),
    line_tokens=st.floats(0, 1),
)
def test_strings_stand_once_where_they_are_held_and_within_the_tokens(
    wanted: list[StringCandidate], places: list[Snippet], max_tokens: int, max_places: int, line_tokens: float
) -> None:
    found = selected_spans(wanted, places, max_tokens, max_places=max_places, line_tokens=line_tokens)
    named = [position for span in found for position in (*span.said, *span.near)]
    assert len(set(named)) == len(named)
    for span in found:
        run = range(span.first, span.last + 1)
        assert span.said
        assert len(run) <= max_places
        assert all(places[number].follows for number in run[1:])
        assert all(set(run) & set(wanted[position].places) for position in (*span.said, *span.near))
    said = sum(wanted[position].tokens for span in found for position in span.said)
    assert said + sum(span.mark_tokens for span in found) <= max_tokens


def test_strings_share_places() -> None:
    assert doctest.testmod(spans).failed == 0
    wanted = [StringCandidate(0.5, 2, numbers) for numbers in ([1, 2], [2, 3], [2, 9], [9])]
    assert selected_spans(wanted, NINES, 100, max_places=1) == [
        CitedSpan(2, 2, [0, 1, 2], [], 10),
        CitedSpan(9, 9, [3], [], 10),
    ]
    # A string without room is one look away.
    assert selected_spans(wanted, NINES, 13, max_places=1) == [CitedSpan(2, 2, [0], [1, 2], 10)]


def test_a_place_that_costs_less_is_better() -> None:
    places = [Snippet(0, 1), Snippet(10, 1), Snippet(30, 1)]
    assert selected_spans([StringCandidate(0.5, 2, [1, 2])], places, 60, max_places=1) == [CitedSpan(1, 1, [0], [], 10)]


def test_neighbours_share_a_pointer_unless_their_lines_cost_too_much() -> None:
    places = [Snippet(10, lines=6), *[Snippet(10, lines=6, follows=True)] * 3]
    wanted = [StringCandidate(0.9, 2, [0]), StringCandidate(0.5, 2, [1]), StringCandidate(0.5, 2, [3])]
    assert selected_spans(wanted, places, 20, max_places=4) == [CitedSpan(0, 3, [0, 1, 2], [], 10)]
    assert selected_spans(wanted, places, 20, max_places=2)[0].last == 1
    assert selected_spans(wanted, places, 20, max_places=4, line_tokens=20)[0].last == 0


def test_what_there_is_no_room_to_say_is_named_by_its_lines() -> None:
    places = [Snippet(10, lines=6), Snippet(10, lines=6, follows=True)]
    wanted = [StringCandidate(0.9, 2, [0]), *(StringCandidate(0.3, 12, [1]) for _ in range(4))]
    (span,) = selected_spans(wanted, places, 14, max_places=2)
    assert span == CitedSpan(0, 1, [0], [1, 2, 3, 4], 10)


def test_what_can_be_looked_up_already_is_not_named_again() -> None:
    wanted = [StringCandidate(0.9, 2, [0]), *(StringCandidate(0.3, 12, [1], is_near=True) for _ in range(4))]
    places = [Snippet(10, lines=6), Snippet(10, lines=6, follows=True)]
    assert selected_spans(wanted, places, 14, max_places=2, line_tokens=0.1) == [CitedSpan(0, 0, [0], [], 10)]


def test_the_name_of_a_file_is_paid_for_once_and_by_all_its_places_together() -> None:
    places = [Snippet(30, lines=1, file="result.txt", more_tokens=2)] * 9
    wanted = [StringCandidate(0.5, 2, [number]) for number in range(0, 9, 2)]
    found = selected_spans(wanted, places, 48, max_places=1)
    assert [span.first for span in found] == [0, 2, 4, 6, 8]
    assert [span.mark_tokens for span in found] == [30, 2, 2, 2, 2]
    assert not selected_spans(wanted, places, 30, max_places=1)


def test_a_file_that_is_named_anyway_costs_only_its_lines() -> None:
    places = [Snippet(30, lines=1, file="result.txt", more_tokens=2)]
    wanted = [StringCandidate(0.5, 2, [0])]
    assert selected_spans(wanted, places, 4, max_places=1, named=["result.txt"]) == [CitedSpan(0, 0, [0], [], 2)]
    assert not selected_spans(wanted, places, 4, max_places=1)
