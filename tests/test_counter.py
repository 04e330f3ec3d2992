"""What a count and a head are, whatever stands in the text: against tiktoken itself."""

import argparse
import inspect
import random
import sys
import typing
import unicodedata
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from buoyline.tokens import as_text_counter, default_counter, o200k
from buoyline.tokens.counter import end_of
from buoyline.tokens.o200k import O200kCounter, chunks_of, o200k_base

NASTY_ALPHABETS = {
    "contractions": "aAbstrevlldmLSTD\u017f'\u2019 \n",  # the long s is an s to a pattern that ignores case
    "line breaks": "\r\n\t /.,;a1 \u00a0",
    "blanks": " \t\r\n\u00a0\u0085\u1680\u2003\u2028\u3000\u180e\u200b\ufeff\x1cx",
    "digits": "0123456789٣५½²Ⅷ\u3007 .,a",
    "marks": "aéo\u0301\u0308\u093f\u0e34\u20e3'!.1 \n",
    "han and kana": "中文字漢、。「」ーんカ・\uff0c\uff01\uff08\uff09\uff21\uff11\uff5e \u3000\n",
    "thai": "กาเขียนไทยๆ๑ \u200b.",
    "arabic and hebrew": "العربيةـء١،שלום\u05b0 '.",
    "emoji": "😀👍🏽👩\u200d💻🇩🇪\ufe0f a.1\n",
    "code": "aZ_09{}[]()\"':;,./\\=+-*#@<>|&~`$% \t\n",
    "special tokens": ["<|endoftext|>", "<|endofprompt|>", "<|", "|>", "a", " "],
    "lone surrogates": "\ud800a😀 '1\n",
}
UNITS = [
    " ",
    "\t",
    "\u00a0",
    "\n",
    "\r\n",
    " \n",
    "a",
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
]
CATEGORIES: typing.Any = sorted({unicodedata.category(chr(code)) for code in range(sys.maxunicode + 1)})

nasty_texts = st.one_of(
    st.text(max_size=200),
    *(st.lists(st.sampled_from(alphabet), max_size=120).map("".join) for alphabet in NASTY_ALPHABETS.values()),
    *(st.text(st.characters(categories=[name]), max_size=30) for name in CATEGORIES if name != "Cs"),
)
texts_of_runs = st.lists(
    st.tuples(st.sampled_from(UNITS) | st.text(max_size=4), st.sampled_from([1, 2, 3, 5, 17, 127, 128, 129, 1_000])),
    max_size=8,
).map(lambda runs: "".join(unit * times for unit, times in runs))

PROSE_AND_CODE = inspect.getsource(argparse) + inspect.getsource(typing)
MIXED_SCRIPTS = (
    "In 1987 wrote «Müller & Söhne» to 東京都: 「価格は、3,500円です。」 Потом пришёл ответ… "
    'อากาศดี 👍🏽 don\'t! https://example.org/a?b=1&c=%20d\n\n\t{"key": [1.5e-3, null]}\r\n'
) * 300
EXACT = default_counter()


def tokens_of(text: str) -> int:
    return len(o200k_base().encode(text, disallowed_special=()))


@contextmanager
def chunks_of_size(chars: int, most_chars: int) -> Generator[None]:
    """Make short texts go the ways of long ones: a cut at every safe place, and cuts by force."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(o200k, "CHUNK_CHARS", chars)
        patch.setattr(o200k, "MAX_CHUNK_CHARS", most_chars)
        yield


def check(text: str, max_tokens: int) -> None:
    """Hold the counter to all that it promises of *text*."""
    tokens = EXACT.count(text)
    assert EXACT.exceeds(text, tokens - 1)
    assert not EXACT.exceeds(text, tokens)
    assert EXACT.exceeds(text, max_tokens) is (tokens > max_tokens)
    head, end = EXACT.head(text, max_tokens), end_of(text, max_tokens, EXACT)
    assert text.startswith(head)
    assert text.endswith(end)
    assert max(EXACT.count(head), EXACT.count(end)) <= max(max_tokens, 0)
    assert (head == text) is (tokens <= max_tokens)
    assert tokens > max_tokens or end == text


@given(nasty_texts | texts_of_runs)
@example("x" + " " * 60_000 + "y")
@example("<|endoftext|>")
def test_a_count_is_tiktokens_count_wherever_the_text_is_cut_safely(text: str) -> None:
    assert EXACT.count(text) == tokens_of(text)
    with chunks_of_size(1, 100_000):
        assert EXACT.count(text) == tokens_of(text)


@given(nasty_texts | texts_of_runs, st.floats(-0.1, 1.1), st.sampled_from([(1, 100_000), (3, 8), (1, 2), (99, 300)]))
def test_exceeds_and_head_agree_with_count_also_after_cuts_by_force(
    text: str, share: float, sizes: tuple[int, int]
) -> None:
    check(text, int(share * EXACT.count(text)))
    with chunks_of_size(*sizes):
        chunks = [text[start:end] for start, end in chunks_of(text)]
        assert "".join(chunks) == text
        assert all(0 < len(chunk) <= sizes[1] for chunk in chunks)
        check(text, int(share * EXACT.count(text)))


@pytest.mark.parametrize("text", [PROSE_AND_CODE, MIXED_SCRIPTS], ids=["prose and code", "mixed scripts"])
def test_long_texts_are_counted_exactly_and_cut_within_a_few_tokens_of_the_limit(text: str) -> None:
    tokens = EXACT.count(text)
    assert tokens == tokens_of(text)
    for max_tokens in [1, 2, 3, 10, 100, *range(1_000, tokens, tokens // 10), tokens - 1, tokens, tokens + 1]:
        check(text, max_tokens)
        assert min(max_tokens, tokens) - 3 <= EXACT.count(EXACT.head(text, max_tokens))
        assert min(max_tokens, tokens) * 7 // 8 - 3 <= EXACT.count(end_of(text, max_tokens, EXACT))


def test_no_character_is_split_between_head_and_rest() -> None:
    text = "👩‍💻𒀱" * 10
    for max_tokens in range(EXACT.count(text)):
        check(text, max_tokens)


@pytest.mark.parametrize("blank", [" ", "\u00a0"], ids=["space", "no-break space"])
def test_a_long_run_of_blanks_is_counted(blank: str) -> None:
    text = f"x{blank * 200_000}y"
    tokens = EXACT.count(text)
    # A run ends one blank before the word, which takes that one along if it may.
    assert abs(tokens - EXACT.count(blank * 199_999) - EXACT.count(f"{blank}y") - 1) <= 1
    check(text, 100)
    assert EXACT.count(EXACT.head(text, 100)) >= 95


@pytest.mark.parametrize(("run", "run_tokens"), [("a" * 8, 1), ("=" * 64, 1), ("7" * 3, 1), ("\n" * 16, 1)])
def test_runs_of_one_character_are_counted_exactly(run: str, run_tokens: int) -> None:
    repeats = 480_000 // len(run)
    assert EXACT.count(run * repeats) == run_tokens * repeats


@pytest.mark.parametrize("alphabet", ["abcdefgh", "aAbB", " \t\u00a0", " \t\n", "😀👍🎉", "กาเขียน", "\ud83d\ude00"])
def test_runs_without_a_safe_cut_are_off_by_a_token_per_cut(alphabet: str) -> None:
    text = "".join(random.Random(8).choices(alphabet, k=200_000))  # noqa: S311 - no secret is drawn
    shown = text.encode("utf-8", "replace").decode() if alphabet == "\ud83d\ude00" else text
    assert abs(EXACT.count(text) - tokens_of(shown.replace("?", "\ufffd"))) <= 2 * 3


def test_there_is_one_default_counter_and_threads_may_share_it() -> None:
    assert default_counter() is EXACT
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(EXACT.count, [MIXED_SCRIPTS] * 8)) == {tokens_of(MIXED_SCRIPTS)}


# Counters of one's own.


def quarters(text: str) -> int:
    return -(-len(text) // 4)


def wobbling(text: str) -> int:
    """Count more for some texts than for longer ones, as tokenizers do."""
    return len(text) // 3 + len(text) * 7919 % 4


class CountOnly:
    def __init__(self) -> None:
        self.asked: list[str] = []

    def count(self, text: str) -> int:
        self.asked.append(text)
        return len(text)


def with_a_start(text: str) -> int:
    return len(text) + 5


@pytest.mark.parametrize("count", [len, quarters, wobbling, with_a_start, EXACT.count])
@given(text=nasty_texts, max_tokens=st.integers(-1, 80))
def test_a_counter_that_only_counts_gets_heads_and_ends_within_the_limit(
    count: Callable[[str], int], text: str, max_tokens: int
) -> None:
    counter = as_text_counter(count)
    head, end = counter.head(text, max_tokens), end_of(text, max_tokens, counter)
    assert text.startswith(head)
    assert text.endswith(end)
    assert count(head) <= max_tokens or not head
    assert count(end) <= max_tokens or not end
    assert head == text or count(text) > max_tokens
    assert counter.exceeds(text, max_tokens) is (count(text) > max_tokens)


@given(text=texts_of_runs, share=st.floats(0, 1))
@example("plain", 1.0)  # one token, though "plai" has two
def test_a_bisected_head_cannot_be_longer_by_a_character(text: str, share: float) -> None:
    counter = as_text_counter(EXACT.count)
    max_tokens = int(share * counter.count(text))
    head = counter.head(text, max_tokens)
    assert head == text or counter.count(text[: len(head) + 1]) > max_tokens


@pytest.mark.parametrize("max_tokens", [0, 1, 1_000, 100_000])
def test_bisection_asks_seldom_and_never_about_much_more_than_it_returns(max_tokens: int) -> None:
    counting = CountOnly()
    assert len(as_text_counter(counting).head("x" * 1_000_000, max_tokens)) == max_tokens
    assert len(counting.asked) <= 2 * 20 + 2
    assert max(map(len, counting.asked)) <= max(4 * max_tokens, 1)


def test_a_full_counter_is_handed_back_untouched() -> None:
    assert as_text_counter(EXACT) is EXACT
    assert as_text_counter(wrapped := as_text_counter(len)) is wrapped


@pytest.mark.parametrize("wrong", ["gpt-4o", ["a"], b"a", 42, None, O200kCounter, o200k_base()])
def test_what_cannot_count_is_refused_with_a_way_out(wrong: object) -> None:
    with pytest.raises(TypeError, match=r"cannot count tokens; pass an object with count\(text\), or a fun"):
        as_text_counter(wrong)  # type: ignore[arg-type]


def test_a_count_that_is_no_whole_number_is_refused() -> None:
    def count(text: str) -> typing.Any:
        return len(text) / 4

    with pytest.raises(TypeError, match="integer"):
        as_text_counter(count).count("text")
