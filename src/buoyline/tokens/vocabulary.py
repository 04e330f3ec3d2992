"""The o200k_base vocabulary, from the package itself.

tiktoken's own loader downloads its vocabularies on first use, which fails on a machine without a network, and
a variable of the whole process sets its cache directory. So the ranks ship with the package, and this module
builds the `tiktoken.Encoding` from them. It does not register the encoding with tiktoken: a second o200k_base
makes every ``tiktoken.get_encoding`` of the process fail.

tiktoken (about 40 ms) is imported when the first text is counted.

Source: ranks, pattern and special tokens are those of OpenAI's tiktoken, see ``data/LICENSE.tiktoken``.
"""

import struct
import zlib
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

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
