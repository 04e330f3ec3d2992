"""The suite for counters, run on all that we have, and on some that it has to find wanting."""

import pytest
from estimates import Estimates

from buoyline.testing import CounterConformance
from buoyline.tokens import TextCounter, as_text_counter, default_counter


class TestExactCounter(CounterConformance):
    @pytest.fixture
    def counter(self) -> TextCounter:
        return default_counter()


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


class OffByOne(Estimates):
    def exceeds(self, text: str, max_tokens: int) -> bool:
        return self.count(text) >= max_tokens


class TooLong(Estimates):
    def head(self, text: str, max_tokens: int) -> str:
        return super().head(text, max_tokens + 1) if max_tokens >= 0 else super().head(text, max_tokens)


class TooShort(Estimates):
    def head(self, text: str, max_tokens: int) -> str:
        return text if not self.exceeds(text, max_tokens) else super().head(text, min(max_tokens, 1))


class Forgetful(Estimates):
    asked = 0

    def count(self, text: str) -> int:
        self.asked += 1
        return super().count(text) + self.asked


@pytest.mark.parametrize(
    ("counter", "test"),
    [
        (OffByOne(), "test_exceeds_agrees_with_count"),
        (TooLong(), "test_head_is_a_prefix_within_the_limit"),
        (TooShort(), "test_head_keeps_most_of_what_it_may"),
        (Forgetful(), "test_a_count_is_a_whole_number_and_always_the_same"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Estimates) else "",
)
def test_the_suite_finds_a_counter_that_contradicts_itself(counter: TextCounter, test: str) -> None:
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        getattr(CounterConformance(), test)(counter)
