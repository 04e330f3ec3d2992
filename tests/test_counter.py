import argparse
import inspect
import pickle
import random
import typing
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st
from thirds import STEP, each_third

from buoyline.tokens import TextCounter, as_text_counter, default_counter
from buoyline.tokens.o200k import Chunker, O200kCounter
from buoyline.tokens.vocabulary import o200k_base

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
    "surrogates": "\ud83d\ude00\ud800\udfff😀a '1\n",
}

nasty_texts = st.one_of(
    st.text(max_size=200),
    *(st.lists(st.sampled_from(alphabet), max_size=120).map("".join) for alphabet in NASTY_ALPHABETS.values()),
)

# Sizes that make short texts go the ways of long ones: a cut at every safe place, and cuts by force.
EVERY_SAFE_CUT = O200kCounter(chunk_chars=1, max_chunk_chars=100_000)
CUT_BY_FORCE = O200kCounter(chunk_chars=3, max_chunk_chars=8)
CUT_TO_PIECES = O200kCounter(chunk_chars=1, max_chunk_chars=2)
COUNTERS = {
    "default": default_counter(),
    "every safe cut": EVERY_SAFE_CUT,
    "cut by force": CUT_BY_FORCE,
    "cut to pieces": CUT_TO_PIECES,
}
each_counter = pytest.mark.parametrize("counter", COUNTERS.values(), ids=COUNTERS.keys())

PROSE_AND_CODE = inspect.getsource(argparse) + inspect.getsource(typing)
MIXED_SCRIPTS = (
    "In 1987 wrote «Müller & Söhne» to 東京都: 「価格は、3,500円です。」 Потом пришёл ответ… "
    'อากาศดี 👍🏽 don\'t! https://example.org/a?b=1&c=%20d\n\n\t{"key": [1.5e-3, null]}\r\n'
) * 300


def tokens_of(text: str) -> int:
    return len(o200k_base().encode(text, disallowed_special=()))


@given(nasty_texts)
def test_a_count_is_tiktokens_count_wherever_the_text_is_cut_safely(text: str) -> None:
    assert default_counter().count(text) == EVERY_SAFE_CUT.count(text) == tokens_of(text)


@pytest.mark.parametrize(("chunk_chars", "max_chunk_chars"), [(1, 2), (3, 8), (10, 100)])
@given(text=nasty_texts)
def test_tokens_add_up_at_every_cut_that_a_chunk_calls_safe(text: str, chunk_chars: int, max_chunk_chars: int) -> None:
    chunking = Chunker(chunk_chars, max_chunk_chars)
    forward, backward = list(chunking.forward(text)), list(chunking.backward(text))

    for cut in {chunk.end for chunk in forward if chunk.safe} | {chunk.start for chunk in backward if chunk.safe}:
        assert tokens_of(text[:cut]) + tokens_of(text[cut:]) == tokens_of(text)
    for chunks in (forward, backward[::-1]):
        assert "".join(text[chunk.start : chunk.end] for chunk in chunks) == text
        assert all(0 < chunk.end - chunk.start <= max_chunk_chars for chunk in chunks)


@pytest.mark.parametrize("chunk_chars", [1, 100, 2_048, 16_384])
@pytest.mark.parametrize("text", [PROSE_AND_CODE, MIXED_SCRIPTS], ids=["prose and code", "mixed scripts"])
def test_long_texts_are_counted_exactly(text: str, chunk_chars: int) -> None:
    assert O200kCounter(chunk_chars=chunk_chars).count(text) == tokens_of(text)


@given(nasty_texts)
def test_a_count_of_forced_cuts_is_at_most_a_few_tokens_per_cut_off(text: str) -> None:
    cuts = len(text) // 8 + 1
    assert abs(CUT_BY_FORCE.count(text) - tokens_of(text)) <= 8 * cuts


@each_counter
@given(text=nasty_texts)
def test_exceeds_agrees_with_count(counter: O200kCounter, text: str) -> None:
    tokens = counter.count(text)

    assert counter.exceeds(text, tokens - 1)
    assert not counter.exceeds(text, tokens)
    assert not counter.exceeds(text, tokens + 1)


@each_counter
@given(text=nasty_texts, share=st.floats(0, 1.1))
def test_head_is_a_prefix_within_the_limit(counter: O200kCounter, text: str, share: float) -> None:
    max_tokens = int(share * counter.count(text))
    head = counter.head(text, max_tokens)

    assert text.startswith(head)
    assert counter.count(head) <= max_tokens
    assert (head == text) is not counter.exceeds(text, max_tokens)


@each_counter
@given(text=nasty_texts, share=st.floats(0, 1.1))
def test_tail_is_a_suffix_within_the_limit(counter: O200kCounter, text: str, share: float) -> None:
    max_tokens = int(share * counter.count(text))
    tail = counter.tail(text, max_tokens)

    assert text.endswith(tail)
    assert counter.count(tail) <= max_tokens
    assert (tail == text) is not counter.exceeds(text, max_tokens)


@each_third
@pytest.mark.parametrize("text", [PROSE_AND_CODE, MIXED_SCRIPTS], ids=["prose and code", "mixed scripts"])
def test_head_and_tail_come_within_a_few_tokens_of_the_limit(text: str, first: int) -> None:
    counter = default_counter()
    tokens = counter.count(text)
    for max_tokens in [1, 2, 3, 10, 100, *range(1_000, tokens, tokens // 30)][first - 1 :: STEP]:
        assert max_tokens - 3 <= counter.count(counter.head(text, max_tokens)) <= max_tokens
        assert max_tokens - 3 <= counter.count(counter.tail(text, max_tokens)) <= max_tokens


def test_head_and_tail_of_ordinary_text_are_what_the_tokens_spell() -> None:
    encoding = o200k_base()
    tokens = encoding.encode_ordinary(PROSE_AND_CODE)

    assert default_counter().head(PROSE_AND_CODE, 5_000) == encoding.decode(tokens[:5_000])
    assert default_counter().tail(PROSE_AND_CODE, 5_000) == encoding.decode(tokens[-5_000:])


def test_no_character_is_split_between_head_and_rest() -> None:
    text = "👩‍💻𒀱" * 10
    for max_tokens in range(default_counter().count(text)):
        assert text.startswith(default_counter().head(text, max_tokens))
        assert text.endswith(default_counter().tail(text, max_tokens))


@pytest.mark.parametrize("blank", [" ", "\u00a0"], ids=["space", "no-break space"])
@pytest.mark.parametrize("count", [200_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_a_long_run_of_blanks_is_counted(blank: str, count: int) -> None:
    text = f"x{blank * count}y"
    counter = default_counter()
    tokens = counter.count(text)

    # A run ends one blank before the word, which takes that one along if it may.
    assert abs(tokens - counter.count(blank * (count - 1)) - counter.count(f"{blank}y") - 1) <= 1
    assert counter.exceeds(text, tokens - 1)
    assert not counter.exceeds(text, tokens)
    assert 95 <= counter.count(counter.head(text, 100)) <= 100
    assert 95 <= counter.count(counter.tail(text, 100)) <= 100


@pytest.mark.parametrize(("run", "run_tokens"), [("a" * 8, 1), ("=" * 64, 1), ("7" * 3, 1), ("\n" * 16, 1)])
def test_runs_of_one_character_are_counted_exactly(run: str, run_tokens: int) -> None:
    repeats = 480_000 // len(run)

    assert default_counter().count(run * repeats) == run_tokens * repeats


@pytest.mark.parametrize("alphabet", ["abcdefgh", "aAbB", " \t\u00a0", " \t\n", "😀👍🎉", "กาเขียน"])
def test_runs_without_a_safe_cut_are_off_by_a_token_per_cut(alphabet: str) -> None:
    text = "".join(random.Random(8).choices(alphabet, k=200_000))  # noqa: S311 - no secret is drawn

    assert abs(default_counter().count(text) - tokens_of(text)) <= 2 * 3


def test_surrogates_are_paired_up_where_they_can_be_and_replaced_where_not() -> None:
    counter = default_counter()

    assert counter.count("a\ud83d\ude00b") == counter.count("a😀b")
    assert counter.count("a\ud83db\ude00") == counter.count("a\ufffdb\ufffd")


def test_head_and_tail_of_surrogates_stay_long() -> None:
    pairs = "\ud83d\ude00 and " * 4_000

    counter = default_counter()

    assert 1_995 <= counter.count(counter.head(pairs, 2_000)) <= 2_000
    assert 1_995 <= counter.count(counter.tail(pairs, 2_000)) <= 2_000


def test_the_name_of_a_special_token_is_ordinary_text() -> None:
    assert default_counter().count("<|endoftext|>") == 7


@pytest.mark.parametrize("counter", [default_counter(), as_text_counter(len)], ids=["o200k", "bisecting"])
def test_the_empty_text_has_no_tokens_and_no_limit_is_below_that(counter: TextCounter) -> None:
    assert counter.count("") == 0
    assert not counter.exceeds("", 0)
    for text in ("", "text"):
        assert counter.head(text, 0) == counter.tail(text, 0) == ""
    assert counter.exceeds("", -1)
    with pytest.raises(ValueError, match="0 or more, got -1"):
        counter.head("text", -1)
    with pytest.raises(ValueError, match="0 or more, got -1"):
        counter.tail("text", -1)


@pytest.mark.parametrize(("chunk_chars", "max_chunk_chars"), [(0, 10), (11, 10)])
def test_sizes_of_chunks_that_cannot_work_are_refused(chunk_chars: int, max_chunk_chars: int) -> None:
    with pytest.raises(ValueError, match="1 <= chunk_chars <= max_chunk_chars"):
        O200kCounter(chunk_chars=chunk_chars, max_chunk_chars=max_chunk_chars)


def test_there_is_one_default_counter_and_threads_may_share_it() -> None:
    assert default_counter() is default_counter()
    with ThreadPoolExecutor(4) as pool:
        counts = set(pool.map(default_counter().count, [MIXED_SCRIPTS] * 8))

    assert counts == {tokens_of(MIXED_SCRIPTS)}


def test_a_counter_can_be_sent_to_another_process() -> None:
    assert pickle.loads(pickle.dumps(EVERY_SAFE_CUT)).count("hello world") == 2  # noqa: S301 - our own bytes


def words(text: str) -> int:
    return len(text.split())


def quarters(text: str) -> int:
    return -(-len(text) // 4)


def wobbling(text: str) -> int:
    """Count more for some texts than for longer ones, as tokenizers do."""
    return len(text) // 3 + len(text) * 7919 % 4


class CountOnly:
    def __init__(self, count: Callable[[str], int]) -> None:
        self.asked: list[str] = []
        self._count = count

    def count(self, text: str) -> int:
        self.asked.append(text)
        return self._count(text)


@pytest.mark.parametrize("count", [len, words, quarters, wobbling, default_counter().count])
@given(text=nasty_texts, max_tokens=st.integers(0, 80))
def test_a_counter_that_only_counts_gets_heads_and_tails_within_the_limit(
    count: Callable[[str], int], text: str, max_tokens: int
) -> None:
    counter = as_text_counter(count)
    head, tail = counter.head(text, max_tokens), counter.tail(text, max_tokens)

    assert text.startswith(head)
    assert text.endswith(tail)
    assert count(head) <= max_tokens or not head
    assert count(tail) <= max_tokens or not tail
    assert counter.exceeds(text, max_tokens) is (count(text) > max_tokens)


def test_a_bisected_head_is_as_long_as_the_counter_allows() -> None:
    counter = as_text_counter(quarters)

    assert len(counter.head("x" * 10_000, 100)) == len(counter.tail("x" * 10_000, 100)) == 400
    assert counter.head("x" * 400, 100) == "x" * 400


@pytest.mark.parametrize("max_tokens", [0, 1, 1_000, 100_000])
def test_bisection_asks_seldom_and_never_about_much_more_than_it_returns(max_tokens: int) -> None:
    text = "x" * 1_000_000
    counting = CountOnly(len)

    head = as_text_counter(counting).head(text, max_tokens)

    assert len(head) == max_tokens
    assert len(counting.asked) <= 2 * 20 + 2
    assert max(map(len, counting.asked)) <= max(4 * max_tokens, 1)


def test_a_text_within_the_limit_is_its_own_head_though_its_beginning_is_not() -> None:
    counter = as_text_counter(default_counter().count)

    assert counter.count("plai") == 2
    assert counter.count("plain") == 1
    assert counter.head("plain", 1) == counter.tail("plain", 1) == "plain"


def test_an_empty_text_that_already_exceeds_gives_an_empty_head() -> None:
    counter = as_text_counter(lambda text: len(text) + 5)  # as one that counts a start-of-text token

    assert counter.head("some text", 3) == counter.tail("some text", 3) == ""


def test_a_full_counter_is_handed_back_untouched() -> None:
    counter = default_counter()

    assert as_text_counter(counter) is counter
    assert as_text_counter(wrapped := as_text_counter(len)) is wrapped


def test_an_object_with_count_is_asked_by_its_count() -> None:
    assert as_text_counter(CountOnly(words)).count("three little words") == 3


@pytest.mark.parametrize("wrong", ["gpt-4o", ["a"], b"a", 42, None, O200kCounter, o200k_base()])
def test_what_cannot_count_is_refused_with_a_way_out(wrong: object) -> None:
    with pytest.raises(TypeError, match=r"cannot count tokens; pass an object with count\(text\), or a fun"):
        as_text_counter(wrong)  # type: ignore[arg-type]


async def counting_later(text: str) -> int:
    return len(text)


@pytest.mark.parametrize(
    ("count", "error", "says"),
    [
        (lambda text: len(text) / 4, TypeError, r"returned 1\.0; return a whole number"),
        (counting_later, TypeError, "make it a plain function, not an async one"),
        (lambda _: None, TypeError, "returned None"),
        (lambda _: -1, ValueError, "returned -1; return 0 or more"),
    ],
    ids=["float", "async", "None", "negative"],
)
def test_a_count_that_is_no_count_is_refused(count: Callable[[str], int], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        as_text_counter(count).count("text")
