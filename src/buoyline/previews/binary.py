"""Data that is not text: bytes that a tool decoded."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from buoyline.previews.digest import Digest, counted, fact, rows

_HEAD_CHARS = 4_096
_SAMPLE_CHARS = 65_536
_MAX_CHARS = 8_000_000
_LEAST_STRANGE = 0.1
_LONGEST = 5
_SHOWN_CHARS = 60
_MAX_RUNS = 200_000

# Decoding replaces a byte that is not UTF-8 by U+FFFD or a surrogate; a view writes control characters as escapes.
_STRANGE = re.compile("[\x00-\x07\x0b\x0e-\x1a\x1c-\x1f\x7f-\x9f\ufffd\udc80-\udcff]")
_ESCAPE = re.compile(r"\\[xu]([01][0-9a-f]|00(?:7f|[89][0-9a-f])|dc[89a-f][0-9a-f])")
_HIGH = re.compile("[\x80-\xff\ufffd\udc80-\udcff]")
_RUN = re.compile(r"[\x20-\x7e]{6,2000}")
_WORDS = re.compile(r"[A-Z]?[a-z]{3,200}|[A-Z]{4,200}")

# U+FFFD replaces any byte over 127, so its value is lost.
_ANY = "\ufffd"
_SIGNATURES = (
    (f"{_ANY}PNG", "PNG image"),
    (f"{_ANY}{_ANY}{_ANY}{_ANY}\x00\x10JFIF", "JPEG image"),
    ("GIF8", "GIF image"),
    ("%PDF-", "PDF document"),
    ("PK\x03\x04", "ZIP archive, or an Office document"),
    ("\x7fELF", "ELF program"),
    (f"\x1f{_ANY}\x08", "gzip"),
    ("SQLite format 3", "SQLite database"),
)


class _Run(NamedTuple):
    number: int
    text: str


def binary_digest(lines: Sequence[str]) -> Digest | None:
    """Describe data that is mostly not text.

    Returns:
        The type as the first bytes suggest it, the printable share, and the longest runs of printable characters. None
        for a text.
    """
    sample = _sample(lines)
    escaped = len(_ESCAPE.findall(sample)) if "\\" in sample else 0
    strange = len(_STRANGE.findall(sample)) + escaped
    chars = len(sample) - 3 * escaped
    if not chars or strange < _LEAST_STRANGE * chars:
        return None
    kind = _type_of(_bytes_of(sample[:_HEAD_CHARS]))
    printable = round(100 * (1 - strange / chars))
    runs = _longest_runs(lines)
    total = sum(map(len, lines)) + len(lines) - 1
    size = counted(total, "character")
    facts = [fact(f"Binary data: {kind or 'of unknown type'}, {size}, {printable} % of them printable")]
    facts += rows("Longest strings", (f'"{run.text.strip()[:_SHOWN_CHARS]}" :{run.number}' for run in runs), most=1)
    return Digest(tuple(facts), is_free=True)


def is_binary(lines: Sequence[str]) -> bool:
    """Check whether the first lines are decoded bytes rather than text."""
    sample = "\n".join(lines)
    return len(_STRANGE.findall(sample)) > _LEAST_STRANGE * len(sample)


def _sample(lines: Sequence[str]) -> str:
    """Return the beginning and a part of the middle: a text may follow a binary header."""
    head = "\n".join(line[:_SAMPLE_CHARS] for line in lines[:400])[:_SAMPLE_CHARS]
    middle = "\n".join(line[:_HEAD_CHARS] for line in lines[len(lines) // 2 :][:100])[:_SAMPLE_CHARS]
    return f"{head}\n{middle}" if len(lines) > 800 else head  # noqa: PLR2004 - of fewer the head is the half


def _bytes_of(text: str) -> str:
    """Return *text* with one character per byte: decoded escapes, and U+FFFD for each byte over 127."""
    text = _ESCAPE.sub(lambda found: chr(int(found[1], 16)), text)
    return _HIGH.sub(_ANY, text)


def _type_of(head: str) -> str:
    """Return the file type by its first bytes, one character each; empty if unknown."""
    return next((kind for signature, kind in _SIGNATURES if head.startswith(signature)), "")


def _longest_runs(lines: Sequence[str]) -> list[_Run]:
    best: dict[str, _Run] = {}
    chars = count = 0
    for number, line in enumerate(lines, 1):
        chars += len(line)
        if chars > _MAX_CHARS or count > _MAX_RUNS:
            break
        # The escapes of a view are noise bytes, not letters.
        bare = _ESCAPE.sub(lambda escape: "\x00" * len(escape[0]), line) if "\\" in line else line
        for found in _RUN.finditer(bare):
            count += 1
            if _WORDS.search(found[0]):
                best.setdefault(found[0].strip(), _Run(number, found[0]))
    longest = sorted(best.values(), key=lambda run: (-_worth(run.text), run.number))
    return [run for run in longest[:_LONGEST] if _worth(run.text)]


def _worth(text: str) -> int:
    """Count the characters in words: noise is printable, too."""
    return min(sum(map(len, _WORDS.findall(text[:400]))), 4 * _SHOWN_CHARS)
