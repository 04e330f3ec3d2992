"""What a count, a head and a tail are, whatever stands in the text: against tiktoken itself."""

import random
import sys
import unicodedata
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from thirds import examples

from buoyline.tokens import TextCounter, as_text_counter, default_counter
from buoyline.tokens.o200k import O200kCounter, source_chars, without_surrogates
from buoyline.tokens.vocabulary import o200k_base

CATEGORIES: Final = sorted({unicodedata.category(chr(code)) for code in range(sys.maxunicode + 1)})

EXACT = default_counter()
EVERY_SAFE_CUT = O200kCounter(chunk_chars=1, max_chunk_chars=100_000)

# The most tokens that a head or a tail stays below its limit: those of a character that did not fit whole (at most
# 6, a lone surrogate among letters), and one or two that a cut makes of one.
MOST_UNUSED_TOKENS = 8


def tokens_of(text: str) -> int:
    return len(o200k_base().encode(text, disallowed_special=()))


def check(counter: TextCounter, text: str, max_tokens: int) -> None:
    """Hold the counter to all that it promises of *text*."""
    tokens = counter.count(text)
    assert counter.exceeds(text, tokens - 1)
    assert not counter.exceeds(text, tokens)
    assert not counter.exceeds(text, tokens + 1)
    assert counter.exceeds(text, max_tokens) is (tokens > max_tokens)
    head, tail = counter.head(text, max_tokens), counter.tail(text, max_tokens)
    assert text.startswith(head)
    assert text.endswith(tail)
    if tokens <= max_tokens:
        assert head == tail == text
    else:
        assert max_tokens - MOST_UNUSED_TOKENS <= counter.count(head) <= max_tokens
        assert max_tokens - MOST_UNUSED_TOKENS <= counter.count(tail) <= max_tokens


@pytest.mark.parametrize("category", CATEGORIES)
@given(data=st.data())
@examples(15, 2_000)
def test_every_class_of_characters_is_counted_as_tiktoken_counts_it(category: str, data: st.DataObject) -> None:
    """Alone, and between letters, digits, blanks, signs and line breaks."""
    of_the_class = st.characters(categories=[category])  # type: ignore[list-item]
    text = data.draw(st.text(st.one_of(of_the_class, of_the_class, st.sampled_from("aZ1 \n\t'.,/\r")), max_size=80))

    assert EXACT.count(text) == EVERY_SAFE_CUT.count(text) == tokens_of(text)
    for counter in (EXACT, EVERY_SAFE_CUT):
        check(counter, text, data.draw(st.integers(0, tokens_of(text) + 1)))


UNITS = (
    " ",
    "\t",
    "\u00a0",
    "\n",
    "\r\n",
    " \n",
    "a",
    "A",
    "aA",
    "=",
    "7",
    "\x00",
    "é",
    "中",
    "👍🏽",
    "\u0301",
    "กา",
    "'s",
    "\ud800",
)
texts_of_runs = st.lists(
    st.tuples(
        st.sampled_from(UNITS) | st.text(max_size=4), st.sampled_from([1, 2, 3, 5, 17, 127, 128, 129, 1_000, 4_096])
    ),
    max_size=8,
).map(lambda runs: "".join(unit * times for unit, times in runs))


@given(text=texts_of_runs, share=st.floats(0, 1))
@example(text="x" + " " * 60_000 + "y", share=0.5)
@example(text=" " * 4_096 + "\n" + " " * 4_096 + "x", share=0.9)
def test_runs_of_one_piece_and_of_blanks_are_counted_as_tiktoken_counts_them(text: str, share: float) -> None:
    tokens = tokens_of(text)

    assert EXACT.count(text) == tokens
    check(EXACT, text, int(share * tokens))


@given(text=texts_of_runs, share=st.floats(0, 1), max_chunk_chars=st.integers(1, 300))
def test_runs_that_are_cut_by_force_still_agree_with_themselves(text: str, share: float, max_chunk_chars: int) -> None:
    counter = O200kCounter(chunk_chars=max_chunk_chars, max_chunk_chars=max_chunk_chars)
    max_tokens = int(share * counter.count(text))
    head, tail = counter.head(text, max_tokens), counter.tail(text, max_tokens)

    assert counter.exceeds(text, max_tokens) is (counter.count(text) > max_tokens)
    assert text.startswith(head)
    assert text.endswith(tail)
    assert counter.count(head) <= max_tokens
    assert counter.count(tail) <= max_tokens


@given(text=texts_of_runs, share=st.floats(0, 1))
def test_a_bisected_head_cannot_be_longer_by_a_character(text: str, share: float) -> None:
    counter = as_text_counter(EXACT.count)
    max_tokens = int(share * counter.count(text))
    head, tail = counter.head(text, max_tokens), counter.tail(text, max_tokens)

    assert head == text or counter.count(text[: len(head) + 1]) > max_tokens
    assert tail == text or counter.count(text[len(text) - len(tail) - 1 :]) > max_tokens


@given(st.text(alphabet="\ud83d\ude00\ud800\udfff😀\ufffda\ufeff\x00", max_size=40), st.integers(0, 40))
def test_halves_of_characters_are_put_together_as_tiktoken_does(text: str, count: int) -> None:
    joined = without_surrogates(text)

    assert joined == text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    for at_end in (False, True):
        kept = min(count, len(joined))
        chars = source_chars(text, kept, at_end=at_end)
        part = text[len(text) - chars :] if at_end else text[:chars]
        assert without_surrogates(part) == (joined[len(joined) - kept :] if at_end else joined[:kept])


def test_a_run_of_halves_has_a_head_and_a_tail_like_any_other() -> None:
    for unit in ("\ud800", "\udc80\udcff", "\ud83d\ude00", "\ud83d\ude00a😀"):
        text = unit * 100_000
        for max_tokens in (1_000, 10_000):
            head, tail = EXACT.count(EXACT.head(text, max_tokens)), EXACT.count(EXACT.tail(text, max_tokens))
            assert max_tokens - MOST_UNUSED_TOKENS <= min(head, tail) <= max(head, tail) <= max_tokens


def documents(lines: int) -> str:
    """Return lines of prose, code, tables and other scripts as tools print them, with runs of blanks in between."""
    rng = random.Random(400)  # noqa: S311 - no secret is drawn
    kinds = [
        "def reader(path: str, *, limit: int = 3_000) -> list[str]:  # don't read more\n",
        "2026-11-21T08:13:41.003Z ERROR [pool-7] timeout after 30s: GET /v1/items?id=12345 (attempt 3/5)\r\n",
        '{"id": 17, "name": "Müller & Söhne", "tags": ["a", "b"], "ratio": 1.5e-3, "note": null}\n',
        "| name       |   size |   9f86d081884c7d659a2feaa0c55ad015 |\n",
        "東京都: 「価格は、3,500円です。」\n",
        "Потом пришёл ответ… أهلا وسهلا ١٢٣ 👩‍💻🇩🇪\n",
        "\x1b[31mFAILED\x1b[0m tests/test_x.py::test_y - assert 1 == 2\n",
    ]
    return "".join(rng.choice(kinds) + " " * rng.choice([0, 0, 1, 4, 300]) for _ in range(lines))


@pytest.mark.parametrize("lines", [300, pytest.param(1_500, marks=pytest.mark.slow)])
def test_a_document_of_many_kinds_is_counted_exactly_and_cut_at_every_limit(lines: int) -> None:
    text = documents(lines)
    tokens = tokens_of(text)

    assert EXACT.count(text) == tokens
    for max_tokens in [0, 1, 2, 3, 7, *range(10, tokens, tokens // 40), tokens - 1, tokens, tokens + 1]:
        check(EXACT, text, max_tokens)


@pytest.mark.slow
def test_a_hundred_thousand_random_texts_are_counted_as_tiktoken_counts_them() -> None:
    rng = random.Random(41)  # noqa: S311 - no secret is drawn
    ascii_text = [chr(code) for code in range(128)]
    for _ in range(100_000):
        others = [chr(rng.randrange(sys.maxunicode + 1)) for _ in range(6)]
        text = "".join(rng.choices(ascii_text + others * 8, k=rng.randrange(60)))
        assert EVERY_SAFE_CUT.count(text) == tokens_of(text), ascii(text)
