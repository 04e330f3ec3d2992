"""The suite for counters, run on all that we have, and on some that it has to find wanting."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buoyline.testing import CounterConformance
from buoyline.tokens import HeuristicCounter, TextCounter, as_text_counter, default_counter
from buoyline.tokens.o200k import O200kCounter


class TestExactCounter(CounterConformance):
    @pytest.fixture(
        params=[
            (2_048, 65_280),
            (3, 8),
            *(pytest.param(pair, marks=pytest.mark.slow) for pair in [(1, 100_000), (1, 2)]),
        ],
        ids=str,
    )
    def counter(self, request: pytest.FixtureRequest) -> TextCounter:
        chunk_chars, max_chunk_chars = request.param
        return O200kCounter(chunk_chars=chunk_chars, max_chunk_chars=max_chunk_chars)


class TestHeuristicCounter(CounterConformance):
    @pytest.fixture(params=[(4, 2), (1, 1), (3, 3), (6, 3)], ids=str)
    def counter(self, request: pytest.FixtureRequest) -> TextCounter:
        chars, json_chars = request.param
        return HeuristicCounter(chars_per_token=chars, chars_per_json_token=json_chars)


class TestBisectingCounter(CounterConformance):
    @pytest.fixture(params=["len", "exact", "quarters", "with a start token"])
    def counter(self, request: pytest.FixtureRequest) -> TextCounter:
        counts = {
            "len": len,
            "exact": default_counter().count,
            "quarters": lambda text: -(-len(text) // 4),
            "with a start token": lambda text: 1 + len(text) // 3,
        }
        return as_text_counter(counts[request.param])


class OffByOne(HeuristicCounter):
    def exceeds(self, text: str, max_tokens: int) -> bool:
        return self.count(text) >= max_tokens


class FromTheWrongEnd(HeuristicCounter):
    def tail(self, text: str, max_tokens: int) -> str:
        return self.head(text, max_tokens)


class TooLong(HeuristicCounter):
    def head(self, text: str, max_tokens: int) -> str:
        return super().head(text, max_tokens + 1) if max_tokens >= 0 else super().head(text, max_tokens)


class TooShort(HeuristicCounter):
    def head(self, text: str, max_tokens: int) -> str:
        return text if not self.exceeds(text, max_tokens) else super().head(text, min(max_tokens, 1))


class Unlimited(HeuristicCounter):
    def head(self, text: str, max_tokens: int) -> str:
        return super().head(text, max(max_tokens, 0))


class Forgetful(HeuristicCounter):
    asked = 0

    def count(self, text: str) -> int:
        self.asked += 1
        return super().count(text) + self.asked


@pytest.mark.parametrize(
    ("counter", "test"),
    [
        (OffByOne(), "test_exceeds_agrees_with_count"),
        (FromTheWrongEnd(), "test_tail_is_a_suffix_within_the_limit"),
        (TooLong(), "test_head_is_a_prefix_within_the_limit"),
        (TooShort(), "test_head_and_tail_keep_most_of_what_they_may"),
        (Unlimited(), "test_no_limit_is_below_zero"),
        (Forgetful(), "test_a_count_is_a_whole_number_and_always_the_same"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, HeuristicCounter) else "",
)
def test_the_suite_finds_a_counter_that_contradicts_itself(counter: TextCounter, test: str) -> None:
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        getattr(CounterConformance(), test)(counter)


texts_with_brackets = st.text(alphabet="[{]}a1 \n", max_size=60)


@given(
    text=st.one_of(texts_with_brackets, st.text(max_size=60)),
    max_tokens=st.integers(0, 40),
    rates=st.tuples(st.integers(1, 6), st.integers(1, 6)).map(sorted),
)
def test_an_estimated_head_is_as_long_as_can_be_and_a_tail_but_for_leading_brackets(
    text: str, max_tokens: int, rates: list[int]
) -> None:
    counter = HeuristicCounter(chars_per_token=rates[1], chars_per_json_token=rates[0])
    head, tail = counter.head(text, max_tokens), counter.tail(text, max_tokens)

    assert text.startswith(head)
    assert counter.count(head) <= max_tokens
    assert head == text or counter.count(text[: len(head) + 1]) > max_tokens
    assert text.endswith(tail)
    assert counter.count(tail) <= max_tokens
    assert (tail == text) is not counter.exceeds(text, max_tokens)
    assert len(tail) >= min(len(text), max_tokens * rates[0])


def test_text_goes_by_four_characters_and_json_by_two() -> None:
    counter = HeuristicCounter()

    assert counter.count("") == 0
    assert counter.count("x") == counter.count("four") == 1
    assert counter.count("fives") == 2
    assert counter.count('{"a": 1}') == counter.count("[1, 2,3]") == 4


def test_an_estimate_of_a_long_text_looks_at_none_of_it() -> None:
    brackets = "text" + "[" * 10_000_000
    counter = HeuristicCounter()

    assert counter.count(brackets) == 2_500_001
    assert len(counter.tail(brackets, 1_000)) == 2_000


@pytest.mark.parametrize(("chars", "json_chars"), [(0, 0), (4, 0), (2, 4)])
def test_rates_that_cannot_work_are_refused(chars: int, json_chars: int) -> None:
    with pytest.raises(ValueError, match="1 <= chars_per_json_token <= chars_per_token"):
        HeuristicCounter(chars_per_token=chars, chars_per_json_token=json_chars)
