"""The default counter: exact for o200k_base, offline, and not to be stalled."""

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from buoyline.tokens.chunks import CHUNK_CHARS, MAX_CHUNK_CHARS, Chunker, TextChunk
from buoyline.tokens.counter import halve, require_token_limit
from buoyline.tokens.vocabulary import o200k_base

if TYPE_CHECKING:
    from buoyline.tokens.counter import TextCounter

# Halves of characters in a text: what tools that cut JSON, or that decode bytes with ``surrogateescape``, give.
#
# tiktoken takes the way over UTF-16 for a text that holds one: random bytes so decoded take 0.30 s for a megabyte,
# replaced here 0.21. And where pairs are joined, positions in the text are no longer those of its tokens: without
# `source_chars` the first 10,000 tokens of a run of pairs took 0.8 s to find, with it 0.03.


_HALF = re.compile("[\ud800-\udfff]")
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_UNIT = re.compile("[\ud800-\udbff][\udc00-\udfff]|.", re.DOTALL)
_REPLACEMENT = "\ufffd"


def without_surrogates(text: str) -> str:
    """Return *text* with each pair of surrogates as the character that it stands for, and U+FFFD for each lone one.

    Returns:
        *text* itself where it holds none. The same as tiktoken makes of it.
    """
    if text.isascii() or not _HALF.search(text):
        return text
    return _HALF.sub(_REPLACEMENT, _PAIR.sub(_join, text))


def source_chars(text: str, count: int, *, at_end: bool) -> int:
    """Return how many characters of *text* became the first or last *count* of ``without_surrogates(text)``."""
    units = _UNIT.findall(text)
    return len("".join(units[len(units) - count :] if at_end else units[:count]))


def _join(pair: re.Match[str]) -> str:
    high, low = ord(pair[0][0]), ord(pair[0][1])
    return chr(0x10000 + ((high - 0xD800) << 10) + low - 0xDC00)


_LONGEST_TOKEN_BYTES = 128
_LONGEST_CHAR_BYTES = 4


class O200kCounter:
    """Count the tokens of o200k_base, the vocabulary of GPT-4o and later OpenAI models.

    The counts are those of ``len(tiktoken.get_encoding("o200k_base").encode_ordinary(text))``: text that
    spells a special token, such as ``<|endoftext|>``, is ordinary text, since in a tool result it is one;
    surrogates are paired up where they can be, and each lone one counts as U+FFFD. Only in a run of more than
    65,280 characters that the vocabulary treats as one piece may a count differ, by what `MAX_CHUNK_CHARS`
    says; it is still the same for the same text, and `exceeds`, `head` and `tail` agree with it.

    Texts are counted in chunks, so memory stays flat and a decision needs no more of a text than `max_tokens`
    tokens. An instance holds no state and may be used by several threads; tiktoken releases the interpreter
    lock while it counts.
    """

    def __init__(self, *, chunk_chars: int = CHUNK_CHARS, max_chunk_chars: int = MAX_CHUNK_CHARS) -> None:
        """Set the sizes of the chunks, which no one but a test should need.

        Args:
            chunk_chars: Characters that are counted at a time, at least 1.
            max_chunk_chars: Characters after which a run without a safe cut is cut; at least *chunk_chars*.

        Raises:
            ValueError: The sizes are not in this order.
        """
        self._chunker = Chunker(chunk_chars, max_chunk_chars)

    def count(self, text: str) -> int:
        """Return the number of tokens in *text*.

        Raises:
            CorruptError: The vocabulary of the installed package is damaged.
        """
        return sum(len(_encode(text[chunk.start : chunk.end])) for chunk in self._chunker.forward(text))

    def exceeds(self, text: str, max_tokens: int) -> bool:
        """Tell whether *text* has more than *max_tokens* tokens.

        Most texts are far from the limit, and their length alone decides; of others no more is counted than
        it takes to know.

        Raises:
            CorruptError: The vocabulary of the installed package is damaged.
        """
        left = max_tokens
        for chunk in self._chunker.forward(text):
            verdict = _exceeds_by_length(text, left, chunk.start)
            if verdict is not None:
                return verdict
            left -= len(_encode(text[chunk.start : chunk.end]))
        return left < 0

    def head(self, text: str, max_tokens: int) -> str:
        """Return the prefix of *text* that its first *max_tokens* tokens spell.

        It ends where a token ends, or before the character that the last token holds only a part of. About
        one text in a hundred gets a token or two less, where the cut makes it split in another way.

        Raises:
            ValueError: *max_tokens* is negative.
            CorruptError: The vocabulary of the installed package is damaged.
        """
        require_token_limit(max_tokens)
        if _exceeds_by_length(text, max_tokens) is False:
            return text
        overflow = _find_overflow(text, self._chunker.forward(text), max_tokens)
        if overflow is None:
            return text
        # What is settled needs no recount, even if cut by force: a prefix is walked in the same chunks.
        start, end = overflow.chunk.start, overflow.chunk.end
        cut = start + _spelled_chars(text[start:end], overflow.tokens, slice(overflow.kept))
        return text[:start] + self._shrink(text[start:cut], overflow.kept, _first)

    def tail(self, text: str, max_tokens: int) -> str:
        """Return the suffix of *text* that its last *max_tokens* tokens spell.

        It starts where a token starts, or after the character that the first token holds only a part of, and
        like `head` it may be a token or two short.

        Raises:
            ValueError: *max_tokens* is negative.
            CorruptError: The vocabulary of the installed package is damaged.
        """
        require_token_limit(max_tokens)
        if not self.exceeds(text, max_tokens):
            return text
        overflow = _find_overflow(text, self._chunker.backward(text), max_tokens)
        if overflow is None:  # cut by force at other places than forward, it comes out just within the limit
            return self._shrink(text, max_tokens, _last)
        start, end = overflow.chunk.start, overflow.chunk.end
        dropped = len(overflow.tokens) - overflow.kept
        cut = end - _spelled_chars(text[start:end], overflow.tokens, slice(dropped, None))
        if not overflow.is_safe:
            return self._shrink(text[cut:], max_tokens, _last)
        return self._shrink(text[cut:end], overflow.kept, _last) + text[end:]

    def _shrink(self, part: str, max_tokens: int, keep: Callable[[str, int], str]) -> str:
        """Return as much of *part* as has no more than *max_tokens* tokens: mostly all of it.

        Else it is mostly one token too many, so the search begins next to the whole.
        """

        def fits(chars: int) -> bool:
            return self.count(keep(part, chars)) <= max_tokens

        too_long, step = len(part) + 1, 0
        while not fits(len(part) - step):
            too_long = len(part) - step
            step = min(max(1, 2 * step), len(part))
        return keep(part, halve(fits, len(part) - step, too_long))


class _Overflow(NamedTuple):
    """The chunk in which the tokens run over the limit."""

    chunk: TextChunk
    tokens: list[int]
    kept: int
    """How many of *tokens* are still within the limit."""
    is_safe: bool
    """Whether all cuts up to the chunk were safe, so that counting from elsewhere gives the same sum."""


def _find_overflow(text: str, chunks: Iterable[TextChunk], max_tokens: int) -> _Overflow | None:
    left, is_safe = max_tokens, True
    for chunk in chunks:
        tokens = _encode(text[chunk.start : chunk.end])
        if len(tokens) > left:
            return _Overflow(chunk, tokens, left, is_safe)
        left -= len(tokens)
        is_safe = is_safe and chunk.safe
    return None


def _exceeds_by_length(text: str, max_tokens: int, start: int = 0) -> bool | None:
    """Tell whether ``text[start:]`` exceeds *max_tokens* where its length alone decides, else None.

    A token has 1 to 128 bytes, a character 1 to 4 bytes of UTF-8.
    """
    chars = len(text) - start
    if chars > _LONGEST_TOKEN_BYTES * max_tokens:
        return True
    if chars * (1 if text.isascii() else _LONGEST_CHAR_BYTES) <= max_tokens:
        return False
    return None


def _spelled_chars(chunk: str, tokens: list[int], kept: slice) -> int:
    """Return how many characters of *chunk* the *kept* ones of its *tokens*, first or last, spell completely."""
    spelled = len(_decode(tokens[kept]))
    if len(_decode(tokens)) == len(chunk):
        return spelled
    return source_chars(chunk, spelled, at_end=kept.start is not None)


def _decode(tokens: list[int]) -> str:
    return o200k_base().decode(tokens, errors="ignore")


def _encode(chunk: str) -> list[int]:
    """Return the tokens of *chunk*, in halves if tiktoken panics on the whole.

    It does so on a million blanks, and the panic is no `Exception`. Chunks are too short for that; should a
    later release panic earlier, a count that is off by a token is better than the end of an agent's run.
    """
    try:
        return o200k_base().encode_ordinary(without_surrogates(chunk))
    except BaseException as error:  # the panic's type cannot be imported, only recognised
        if type(error).__name__ != "PanicException" or len(chunk) == 1:
            raise
    middle = len(chunk) // 2
    return [*_encode(chunk[:middle]), *_encode(chunk[middle:])]


def _first(part: str, chars: int) -> str:
    return part[:chars]


def _last(part: str, chars: int) -> str:
    return part[len(part) - chars :]


_SHARED = O200kCounter()


def default_counter() -> O200kCounter:
    """Return the counter that buoyline uses where none is given: one object for the whole process."""
    return _SHARED


if TYPE_CHECKING:
    _conforms: type[TextCounter] = O200kCounter
