"""The default counter: exact for o200k_base, offline, and fast on any text.

It cuts a long text into chunks whose tokens add up to the tokens of the whole.

o200k_base first splits a text into pieces by a regular expression, then each piece into tokens. A cut between
two characters is *safe* if the expression has a border there in any context; the parts between safe cuts
can be counted one by one without changing the sum. By the expression, these are safe:

    anything but a blank | space or tab
    letter or digit      | line break or sign other than the apostrophe
    letter or ASCII sign | digit

Not safe: after a blank, before an apostrophe (``don't`` is one piece), around combining marks, between a
sign and a line break. The letters and signs are spelled out as ranges that have not changed since Unicode
3.2, so that Python's and tiktoken's tables cannot disagree about a character, and a count does not depend on
the version of Python. Fuzzed with hostile alphabets: 42 million safe cuts, no violation.

A run without a safe cut (one letter repeated, binary noise, a book in Thai) is cut after
`MAX_CHUNK_CHARS` anyway. tiktoken takes more and more time per character of such a run, and gives up with a panic on
a million blanks.
"""

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache
from typing import TYPE_CHECKING, NamedTuple

from buoyline.errors import ConfigError
from buoyline.tokens.counter import TextCounter, TokenCounter, as_text_counter, halve, require_token_limit
from buoyline.tokens.vocabulary import o200k_base

CHUNK_CHARS = 2_048
"""Characters after which a chunk ends at the next safe cut.

Small, so that stopping early pays: the first 1,000 tokens of 1 MB take 0.3 ms, with 16,384 characters 1.4 ms.
All of it takes the same time either way.
"""

MAX_CHUNK_CHARS = 65_280
"""Characters after which a chunk ends without a safe cut.

A multiple of 128, the longest token of one repeated character, and of 3, since digits go by threes: such runs
are cut where their tokens end. On other runs the count differs slightly from tiktoken's. Measured on 1.5 M
characters, 22 cuts: 0 of 187,500 for one letter, +2 of 778,270 for random letters, +10 of 487,332 for blanks
and line breaks, and at most one per cut, +22 of 750,001 for ``aAbB`` repeated.
"""

_FIRST_SEARCH_CHARS = 256

_LETTERS = (
    r"A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f"  # Latin
    r"\u0391-\u03a1\u03a3-\u03ce\u0400-\u0481"  # Greek, Cyrillic
    r"\u05d0-\u05ea\u0621-\u063a\u0641-\u064a"  # Hebrew, Arabic
    r"\u0905-\u0939\u0e01-\u0e30"  # Devanagari, Thai
    r"\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fa5\uac00-\ud7a3"  # kana, Han, Hangul
)
_ASCII_SIGNS = r"!-/:-@\[-`{-~"
_SIGNS_BUT_APOSTROPHE = (
    r"!-&(-/:-@\[-`{-~"
    r"\u3000-\u3003\u3008-\u3011\uff01-\uff0f\uff1a-\uff20"  # ideographic and full-width punctuation
)


class TextChunk(NamedTuple):
    """The characters ``text[start:end]``, and whether the cut towards the next chunk is safe."""

    start: int
    end: int
    safe: bool


class Chunker:
    """Splits a text into chunks, from either end."""

    def __init__(self, chunk_chars: int = CHUNK_CHARS, max_chunk_chars: int = MAX_CHUNK_CHARS) -> None:
        """Set the sizes of an ordinary chunk, at least 1, and of the largest one without a safe cut, no less than that.

        Raises:
            ValueError: The sizes are not in this order.
        """
        if not 1 <= chunk_chars <= max_chunk_chars:
            msg = f"need 1 <= chunk_chars <= max_chunk_chars, got {chunk_chars} and {max_chunk_chars}"
            raise ValueError(msg)
        self._chunk_chars = chunk_chars
        self._max_chunk_chars = max_chunk_chars

    def forward(self, text: str) -> Iterator[TextChunk]:
        """Yield the chunks of *text* from its start to its end; none for the empty text.

        The end of a chunk depends only on the text from its start on, so the same text is always cut alike.
        """
        start = 0
        while start < len(text):
            usual_end, last_end = start + self._chunk_chars, start + self._max_chunk_chars
            chunk = TextChunk(start, len(text), safe=True)
            if len(text) > usual_end:
                cut = _first_safe_cut(text, usual_end, last_end)
                if cut is None and len(text) > last_end:
                    cut = _last_safe_cut(text, start + 1, usual_end)
                    chunk = TextChunk(start, last_end, safe=False)
                if cut is not None:
                    chunk = TextChunk(start, cut, safe=True)
            yield chunk
            start = chunk.end

    def backward(self, text: str) -> Iterator[TextChunk]:
        """Yield chunks of *text* from its end to its start; they differ from those of `forward`."""
        end = len(text)
        while end > 0:
            usual_start, first_start = end - self._chunk_chars, end - self._max_chunk_chars
            chunk = TextChunk(0, end, safe=True)
            if usual_start > 0:
                cut = _first_safe_cut(text, usual_start, end)
                if cut is None and first_start > 0:
                    cut = _last_safe_cut(text, first_start, usual_start)
                    chunk = TextChunk(first_start, end, safe=False)
                if cut is not None:
                    chunk = TextChunk(cut, end, safe=True)
            yield chunk
            end = chunk.start


def _first_safe_cut(text: str, start: int, end: int) -> int | None:
    """Return the first safe cut before one of the characters ``text[start:end]``, or None."""
    found = _safe_cuts().search(text, start, end)
    return found.start() if found else None


def _last_safe_cut(text: str, start: int, end: int) -> int | None:
    """Return the last safe cut before one of those characters, searching ever wider parts from the end."""
    width = _FIRST_SEARCH_CHARS
    while start < end:
        found = deque(_safe_cuts().finditer(text, max(start, end - width), end), maxlen=1)
        if found:
            return found[0].start()
        end, width = end - width, 2 * width
    return None


@cache
def _safe_cuts() -> re.Pattern[str]:
    """Match the character after a safe cut. Compiled on first use: it takes 4 ms.

    The character before the cut is tested last, since few characters pass the first test: the other order
    takes twice the time.
    """
    return re.compile(
        r"[ \t](?<=\S.)"
        rf"|[\r\n{_SIGNS_BUT_APOSTROPHE}](?<=[{_LETTERS}0-9].)"
        rf"|[0-9](?<=[{_LETTERS}{_ASCII_SIGNS}].)",
        re.DOTALL,
    )


# Tools that cut JSON, or that decode bytes with ``surrogateescape``, leave surrogates in a text.
#
# tiktoken converts a text that holds one through UTF-16: a megabyte of random bytes so decoded takes 0.30 s, and
# replaced here 0.21. Joining pairs moves the positions in the text: without `source_chars` the first 10,000 tokens
# of a run of pairs took 0.8 s to find, with it 0.03.

_HALF = re.compile("[\ud800-\udfff]")
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_UNIT = re.compile("[\ud800-\udbff][\udc00-\udfff]|.", re.DOTALL)
_REPLACEMENT = "\ufffd"


def without_surrogates(text: str) -> str:
    """Return *text* as tiktoken reads it: a pair of surrogates is one character, and a lone one U+FFFD."""
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

    The counts are those of ``len(tiktoken.get_encoding("o200k_base").encode_ordinary(text))``: text that spells a
    special token, such as ``<|endoftext|>``, is ordinary text; surrogates are paired up if possible, and each lone one
    counts as U+FFFD. A count may differ only for a run of more than 65,280 characters that the vocabulary treats as one
    piece, by the figures at `MAX_CHUNK_CHARS`; the same text still has the same count, and `exceeds`, `head` and `tail`
    agree with it.

    Memory stays flat, and a decision reads no more of a text than *max_tokens* tokens. An instance holds no state and
    several threads may use it; tiktoken releases the interpreter lock while it counts. Each method raises
    `CorruptError` if the vocabulary of the installed package is damaged; other errors are those of `TextCounter`.
    """

    def __init__(self, *, chunk_chars: int = CHUNK_CHARS, max_chunk_chars: int = MAX_CHUNK_CHARS) -> None:
        """Set the sizes of the chunks, as `Chunker` takes them; only tests should need this.

        Raises:
            ValueError: They cannot be.
        """
        self._chunker = Chunker(chunk_chars, max_chunk_chars)

    def count(self, text: str) -> int:
        """Return the number of tokens in *text*."""
        return sum(_count(text[chunk.start : chunk.end]) for chunk in self._chunker.forward(text))

    def exceeds(self, text: str, max_tokens: int) -> bool:
        """Return whether *text* has more than *max_tokens* tokens.

        The length alone decides for most texts, which are far from the limit; other texts are counted only until
        the answer is known.
        """
        left = max_tokens
        for chunk in self._chunker.forward(text):
            verdict = _exceeds_by_length(text, left, chunk.start)
            if verdict is not None:
                return verdict
            left -= _count(text[chunk.start : chunk.end])
        return left < 0

    def head(self, text: str, max_tokens: int) -> str:
        """Return the prefix of *text* that its first *max_tokens* tokens spell.

        It ends at the end of a token, or before a character that the last token holds only a part of. About
        one text in a hundred gets a token or two less, because the cut changes how it splits.
        """
        require_token_limit(max_tokens)
        if _exceeds_by_length(text, max_tokens) is False:
            return text
        overflow = _find_overflow(text, self._chunker.forward(text), max_tokens)
        if overflow is None:
            return text
        # The text before the chunk needs no recount, even after an unsafe cut: a prefix has the same chunks.
        start, end = overflow.chunk.start, overflow.chunk.end
        cut = start + _spelled_chars(text[start:end], overflow.tokens, slice(overflow.kept))
        return text[:start] + self._shrink(text[start:cut], overflow.kept)

    def tail(self, text: str, max_tokens: int) -> str:
        """Return the suffix of *text* that its last *max_tokens* tokens spell.

        It starts at the start of a token, or after a character that the first token holds only a part of. Like
        the prefix of `head`, it may be a token or two short.
        """
        require_token_limit(max_tokens)
        if not self.exceeds(text, max_tokens):
            return text
        overflow = _find_overflow(text, self._chunker.backward(text), max_tokens)
        if overflow is None:  # unsafe cuts at other places than forward give a count just within the limit
            return self._shrink(text, max_tokens, at_end=True)
        start, end = overflow.chunk.start, overflow.chunk.end
        dropped = len(overflow.tokens) - overflow.kept
        cut = end - _spelled_chars(text[start:end], overflow.tokens, slice(dropped, None))
        if not overflow.is_safe:
            return self._shrink(text[cut:], max_tokens, at_end=True)
        return self._shrink(text[cut:end], overflow.kept, at_end=True) + text[end:]

    def _shrink(self, part: str, max_tokens: int, *, at_end: bool = False) -> str:
        """Return as much of the beginning or end of *part* as has at most *max_tokens* tokens.

        That is usually all of it, or one token less, so the search begins next to the whole.
        """

        def kept(chars: int) -> str:
            return part[len(part) - chars :] if at_end else part[:chars]

        def fits(chars: int) -> bool:
            return self.count(kept(chars)) <= max_tokens

        too_long, step = len(part) + 1, 0
        while not fits(len(part) - step):
            too_long = len(part) - step
            step = min(max(1, 2 * step), len(part))
        return kept(halve(fits, len(part) - step, too_long))


class _Overflow(NamedTuple):
    """The chunk in which the tokens exceed the limit."""

    chunk: TextChunk
    tokens: list[int]
    kept: int
    """The number of *tokens* within the limit."""
    is_safe: bool
    """All cuts up to the chunk were safe, so that counting from another place gives the same sum."""


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
    """Return whether ``text[start:]`` exceeds *max_tokens* if its length alone decides, else None.

    A token has 1 to 128 bytes, a character 1 to 4 bytes of UTF-8.
    """
    chars = len(text) - start
    if chars > _LONGEST_TOKEN_BYTES * max_tokens:
        return True
    if chars * (1 if text.isascii() else _LONGEST_CHAR_BYTES) <= max_tokens:
        return False
    return None


def _spelled_chars(chunk: str, tokens: list[int], kept: slice) -> int:
    """Return how many characters of *chunk* the *kept* tokens, its first or last ones, spell completely."""
    spelled = len(_decode(tokens[kept]))
    if len(_decode(tokens)) == len(chunk):
        return spelled
    return source_chars(chunk, spelled, at_end=kept.start is not None)


def _decode(tokens: list[int]) -> str:
    return o200k_base().decode(tokens, errors="ignore")


def _encode(chunk: str) -> list[int]:
    return o200k_base().encode_ordinary(without_surrogates(chunk))


@lru_cache(maxsize=128)
def _count(chunk: str) -> int:
    """Return the number of tokens in *chunk*: before one model call, a new result is counted about five times."""
    return len(_encode(chunk))


_SHARED = O200kCounter()


def default_counter() -> TextCounter:
    """Return the counter that buoyline uses by default: one object for the whole process."""
    return _SHARED


def counter_of(counter: TokenCounter | Callable[[str], int] | None) -> TextCounter:
    """Return *counter* as a `TextCounter`, or the default counter for None.

    Raises:
        ConfigError: It cannot count.
    """
    try:
        return default_counter() if counter is None else as_text_counter(counter)
    except TypeError as error:
        raise ConfigError("counter", str(error)) from error


if TYPE_CHECKING:
    _conforms: type[TextCounter] = O200kCounter
