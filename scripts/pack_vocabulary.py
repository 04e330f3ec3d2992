"""Pack a ``.tiktoken`` rank file into the compact form that buoyline ships.

Usage: ``python scripts/pack_vocabulary.py RANK_FILE PACKED_FILE``, the latter being
``src/buoyline/tokens/data/o200k_base.merges.zlib``.

A ``.tiktoken`` file has one line per token, ``<base64 of its bytes> <rank>``. The ranks count up from 0
without a gap, and the first 256 tokens are the single bytes. Every later token is two earlier ones joined,
so the packed form names those two by rank instead of spelling the bytes again. Bytes for o200k_base:

    text                3,613,922
    lengths and bytes     815,760 (xz)   993,620 (zlib)
    joined pairs          708,632 (xz)   729,682 (zlib)

zlib is taken because some builds of Python lack lzma, and the difference is 21 kB.

Format, one zlib stream of 256 + 6·n bytes:

    256 bytes     the single-byte tokens in the order of their ranks
    3 · n bytes   rank of the first part of token 256, 257, ...: all low bytes, all middle ones, all high ones
    3 · n bytes   rank of its second part, likewise

A token can often be divided in several ways; the longest first part is taken. The script prints the SHA-256
of what it read, to be compared with the one that tiktoken pins for the vocabulary.
"""

import argparse
import base64
import hashlib
import sys
import zlib
from pathlib import Path

SINGLE_BYTES = 256


def main() -> None:
    """Read the rank file, write the packed one and print the digest of the first."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("rank_file", type=Path, help="the .tiktoken file to read")
    parser.add_argument("packed_file", type=Path, help="the file to write")
    arguments = parser.parse_args()
    rank_text = arguments.rank_file.read_bytes()
    packed = pack(tokens_by_rank(rank_text))
    arguments.packed_file.write_bytes(packed)
    sys.stdout.write(f"read {hashlib.sha256(rank_text).hexdigest()}  {len(rank_text):,} bytes\n")


def tokens_by_rank(rank_text: bytes) -> list[bytes]:
    """Return the tokens of a rank file in the order of their ranks.

    Raises:
        SystemExit: The ranks have a gap, or the first 256 tokens are not the single bytes.
    """
    lines = [line.split() for line in rank_text.splitlines() if line]
    tokens = [base64.b64decode(encoded) for encoded, _ in lines]
    if [int(rank) for _, rank in lines] != list(range(len(tokens))):
        sys.exit("the ranks do not count up from 0 without a gap")
    if sorted(tokens[:SINGLE_BYTES]) != [bytes([byte]) for byte in range(SINGLE_BYTES)]:
        sys.exit("the first 256 tokens are not the 256 single bytes")
    return tokens


def pack(tokens: list[bytes]) -> bytes:
    """Return the packed form of *tokens*, which are in the order of their ranks."""
    ranks = {token: rank for rank, token in enumerate(tokens)}
    pairs = [joined_pair(token, ranks) for token in tokens[SINGLE_BYTES:]]
    firsts, seconds = zip(*pairs, strict=True)
    return zlib.compress(b"".join(tokens[:SINGLE_BYTES]) + byte_planes(firsts) + byte_planes(seconds), 9)


def joined_pair(token: bytes, ranks: dict[bytes, int]) -> tuple[int, int]:
    """Return the ranks of two earlier tokens that spell *token*, the first as long as possible.

    Raises:
        SystemExit: No two earlier tokens spell it.
    """
    for length in range(len(token) - 1, 0, -1):
        first, second = ranks.get(token[:length]), ranks.get(token[length:])
        if first is not None and second is not None and max(first, second) < ranks[token]:
            return first, second
    sys.exit(f"token {ranks[token]} is not two earlier tokens joined: {token!r}")


def byte_planes(numbers: tuple[int, ...]) -> bytes:
    """Return all low bytes, then all middle bytes, then all high bytes: they compress better apart."""
    return b"".join(bytes(number >> shift & 0xFF for number in numbers) for shift in (0, 8, 16))


if __name__ == "__main__":
    main()
