"""Tests that every token counter must pass.

```python
class TestMyCounter(CounterConformance):
    @pytest.fixture
    def counter(self) -> TextCounter:
        return as_text_counter(my_function)
```
"""

from abc import ABC
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from buoyline.testing.conversation import HOSTILE_TEXTS, LONE_SURROGATES
from buoyline.tokens import TextCounter

_PROSE: Final = "The keeper writes down wind, sea and every ship that passes; nobody has read it for years.\n"
_JSON: Final = '{"rows": [' + ", ".join(f'{{"id": {number}, "depth": 9.5}}' for number in range(300)) + "]}"

COUNTED_TEXTS: Final = (
    *HOSTILE_TEXTS,
    LONE_SURROGATES,
    "\ud83d\ude00\ude00\ud83d" * 50,
    "".join(map(chr, range(1, 0x300))),
    "\x00" * 300,
    "don't\u2019s '\u0301\u0301 <|endoftext|>",
    " " * 5_000 + "x",
    "\n\t \u00a0\r\n" * 500,
    "=" * 5_000,
    "aAbB" * 1_000,
    "0123456789" * 300,
    "\u6f22\u5b57\u304b\u306a " * 300,
    "\U0001f468\u200d\U0001f469\u200d\U0001f467" * 100,
    "[[{{[[" * 300 + "text",
    "text" * 300 + "[[{{[[" * 300,
    _PROSE * 60,
    _JSON,
)
"""Texts that are hard to count: scripts, blanks, repeated characters, marks, halves of characters, brackets."""


class CounterConformance(ABC):  # noqa: B024 - abstract since it needs a fixture of the class that inherits it
    """Inherit it in a test class with a fixture ``counter``.

    It checks that `exceeds` and `head` agree with `count`, which alone decides how many tokens a text has.
    """

    def test_a_count_is_a_whole_number_and_always_the_same(self, counter: TextCounter) -> None:
        """A text that is counted again during a compaction has the same count."""
        for text in COUNTED_TEXTS:
            tokens = counter.count(text)
            assert type(tokens) is int
            assert tokens >= 0
            assert counter.count(text) == tokens

    def test_exceeds_agrees_with_count(self, counter: TextCounter) -> None:
        """One token less, the same number and one more decide exactly."""
        for text in COUNTED_TEXTS:
            tokens = counter.count(text)
            assert counter.exceeds(text, tokens - 1)
            assert not counter.exceeds(text, tokens)
            assert not counter.exceeds(text, tokens + 1)

    def test_head_is_a_prefix_within_the_limit(self, counter: TextCounter) -> None:
        """By a recount; an empty head is allowed if even the empty text exceeds the limit."""
        for text, _, max_tokens in _limits(counter):
            head = counter.head(text, max_tokens)
            assert text.startswith(head)
            assert not head or counter.count(head) <= max_tokens

    def test_a_text_within_the_limit_is_its_own_head(self, counter: TextCounter) -> None:
        """A limit does not change a shorter text."""
        for text, tokens, max_tokens in _limits(counter):
            if tokens <= max_tokens:
                assert counter.head(text, max_tokens) == text

    def test_head_keeps_most_of_what_it_may(self, counter: TextCounter) -> None:
        """At least half of the limit in ordinary texts, or previews would show less than they promise."""
        for text in (_PROSE * 60, _JSON):
            for max_tokens in (50, counter.count(text) // 2):
                assert counter.count(counter.head(text, max_tokens)) >= max_tokens // 2

    def test_threads_may_share_it(self, counter: TextCounter) -> None:
        """Windows of several threads share one counter."""
        expected = [counter.count(text) for text in COUNTED_TEXTS]
        with ThreadPoolExecutor(4) as pool:
            counts = list(pool.map(counter.count, COUNTED_TEXTS * 4))
        assert counts == expected * 4


def _limits(counter: TextCounter) -> Iterator[tuple[str, int, int]]:
    """Yield texts with their tokens, and limits below, at and above them."""
    for text in COUNTED_TEXTS:
        tokens = counter.count(text)
        for max_tokens in sorted(
            {-1, 0, 1, 2, 3, 10, tokens // 3, tokens // 2, max(tokens - 1, 0), tokens, tokens + 1}
        ):
            yield text, tokens, max_tokens
