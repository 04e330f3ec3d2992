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
import struct
import zlib
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from importlib import resources
from typing import TYPE_CHECKING

from buoyline.errors import ConfigError
from buoyline.tokens.counter import TextCounter, TokenCounter, as_text_counter

if TYPE_CHECKING:
    import tiktoken

_RANK_FILE = "o200k_base.merges.zlib"
_SINGLE_BYTES = 256
_PLANES = 3
_SPECIAL_TOKENS = {"<|endoftext|>": 199999, "<|endofprompt|>": 200018}

_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_BEFORE_WORD = r"[^\r\n\p{L}\p{N}]?"
_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_PIECE_PATTERN = "|".join(
    (
        f"{_BEFORE_WORD}{_UPPER}*{_LOWER}+{_CONTRACTION}",
        f"{_BEFORE_WORD}{_UPPER}+{_LOWER}*{_CONTRACTION}",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)


@cache
def o200k_base() -> "tiktoken.Encoding":
    """Return the o200k_base encoding, which threads may share.

    It equals ``tiktoken.get_encoding("o200k_base")``. The first call of the process takes about 0.3 s and 80 MB, most
    of it inside tiktoken; threads that ask at the same time may each build one.
    """
    import tiktoken  # noqa: PLC0415 - loaded when the first text is counted

    return tiktoken.Encoding(
        "o200k_base", pat_str=_PIECE_PATTERN, mergeable_ranks=_ranks(), special_tokens=_SPECIAL_TOKENS
    )


def _ranks() -> dict[bytes, int]:
    """Return the rank of each token; ``scripts/pack_vocabulary.py`` describes the format."""
    data = zlib.decompress(resources.files("buoyline.tokens").joinpath("data", _RANK_FILE).read_bytes())
    tokens = [data[rank : rank + 1] for rank in range(_SINGLE_BYTES)]
    middle = (_SINGLE_BYTES + len(data)) // 2
    firsts, seconds = _join_planes(data[_SINGLE_BYTES:middle]), _join_planes(data[middle:])
    for first, second in zip(firsts, seconds, strict=True):
        tokens.append(tokens[first] + tokens[second])
    return {token: rank for rank, token in enumerate(tokens)}


def _join_planes(planes: bytes) -> tuple[int, ...]:
    """Return numbers of 24 bits, given all their low bytes, then all middle ones, then all high ones."""
    count = len(planes) // _PLANES
    words = bytearray(4 * count)
    for plane in range(_PLANES):
        words[plane::4] = planes[plane * count : (plane + 1) * count]
    return struct.unpack(f"<{count}I", words)


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


def chunks_of(text: str) -> Iterator[tuple[int, int]]:
    """Yield the beginning and end of each chunk of *text*; none for the empty text.

    The end of a chunk depends only on the text from its start on, so a prefix has the same chunks but for its last.
    """
    start = 0
    while start < len(text):
        last = start + MAX_CHUNK_CHARS
        cut = _safe_cuts().search(text, start + CHUNK_CHARS, last)
        end = cut.start() if cut else min(last, len(text))
        yield start, end
        start = end


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


_LONGEST_TOKEN_BYTES = 128
_LONGEST_CHAR_BYTES = 4

# Tools that cut JSON, or that decode bytes with ``surrogateescape``, leave surrogates in a text. tiktoken converts a
# text that holds one through UTF-16: a megabyte of random bytes so decoded takes 0.30 s, and replaced here 0.21.
_SURROGATE = re.compile("[\ud800-\udfff]")


class O200kCounter:
    """Count the tokens of o200k_base, the vocabulary of GPT-4o and later OpenAI models.

    The counts are those of ``len(tiktoken.get_encoding("o200k_base").encode_ordinary(text))``: text that spells a
    special token, such as ``<|endoftext|>``, is ordinary text. Each surrogate counts as U+FFFD. A count may differ only
    for a run of more than 65,280 characters without a safe cut, by the figures at `MAX_CHUNK_CHARS`; the same text
    still has the same count, and `exceeds` and `head` agree with it.

    Memory stays flat, and a decision reads no more of a text than *max_tokens* tokens. An instance holds no state and
    several threads may use it; tiktoken releases the interpreter lock while it counts.
    """

    def count(self, text: str) -> int:
        """Return the number of tokens in *text*."""
        return sum(_count(text[start:end]) for start, end in chunks_of(text))

    def exceeds(self, text: str, max_tokens: int) -> bool:
        """Return whether *text* has more than *max_tokens* tokens.

        The length alone decides for most texts, which are far from the limit; other texts are counted only until
        the answer is known.
        """
        left = max_tokens
        for start, end in chunks_of(text):
            chars = len(text) - start
            if chars > _LONGEST_TOKEN_BYTES * left:
                return True
            if chars * (1 if text.isascii() else _LONGEST_CHAR_BYTES) <= left:
                return False
            left -= _count(text[start:end])
        return left < 0

    def head(self, text: str, max_tokens: int) -> str:
        """Return the prefix of *text* that its first *max_tokens* tokens spell.

        It ends at the end of a token, or before a character that the last token holds only a part of. About
        one text in a hundred gets a token or two less, because the cut changes how it splits.
        """
        left = max(max_tokens, 0)
        for start, end in chunks_of(text):
            tokens = _encode(text[start:end])
            if len(tokens) > left:
                return text[:start] + _beginning(text[start:end], tokens[:left])
            left -= len(tokens)
        return text


def _beginning(chunk: str, tokens: list[int]) -> str:
    """Return the longest beginning of *chunk* that some of *tokens*, its first ones, spell and that takes no more."""
    for kept in range(len(tokens), 0, -1):
        beginning = chunk[: len(o200k_base().decode(tokens[:kept], errors="ignore"))]
        if len(_encode(beginning)) <= len(tokens):
            return beginning
    return ""


def _encode(chunk: str) -> list[int]:
    return o200k_base().encode_ordinary(chunk if chunk.isascii() else _SURROGATE.sub("\ufffd", chunk))


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
