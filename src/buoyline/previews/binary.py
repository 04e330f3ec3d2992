"""Data that is not text: decoded bytes, hex dumps, and bytes in base64 or hexadecimal."""

import base64
import binascii
import re
from collections.abc import Sequence
from typing import NamedTuple

from buoyline.previews.digest import Digest, Finding, are_mostly, counted, fact, rows, share

_HEAD_CHARS = 4_096
_SAMPLE_CHARS = 65_536
_MAX_CHARS = 8_000_000
_LEAST_STRANGE = 0.1
_LEAST_SPELLED = 0.9
_LEAST_LINE_CHARS = 56
_LONGEST = 5
_SHOWN_CHARS = 60
_MAX_RUNS = 200_000

# Decoding replaces a byte that is not UTF-8 by U+FFFD or a surrogate; a view writes control characters as escapes.
_STRANGE = re.compile("[\x00-\x07\x0b\x0e-\x1a\x1c-\x1f\x7f-\x9f\ufffd\udc80-\udcff]")
_ESCAPE = re.compile(r"\\[xu]([01][0-9a-f]|00(?:7f|[89][0-9a-f])|dc[89a-f][0-9a-f])")
_HIGH = re.compile("[\x80-\xff\ufffd\udc80-\udcff]")
_RUN = re.compile(r"[\x20-\x7e]{6,2000}")
_WORDS = re.compile(r"[A-Z]?[a-z]{3,200}|[A-Z]{4,200}")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{1,65536}={0,2}")
_HEX = re.compile(r"[0-9a-fA-F]{1,65536}")
_DUMP = re.compile(r"[0-9a-fA-F]{4,16}:?\s{1,3}((?:[0-9a-fA-F]{2,8}\s{1,3}){2,32})")
_ARMOUR = re.compile(r"-----BEGIN ([A-Z0-9 ]{1,60})-----")
_DATA_URI = re.compile(r"data:([\w.+-]{1,60}/[\w.+-]{1,80});base64,")

# Lengths of checksums: such lines list the checksums of files, they are not a file.
_DIGEST_CHARS = frozenset({32, 40, 56, 64, 96, 128})

# U+FFFD replaces any byte over 127, so its value is lost.
_ANY = "\ufffd"
_SIGNATURES = (
    (f"{_ANY}PNG\r\n", "PNG image"),
    (f"{_ANY}PNG", "PNG image"),
    ("GIF8", "GIF image"),
    ("%PDF-", "PDF document"),
    ("PK\x03\x04", "ZIP archive, or an Office document"),
    ("PK\x05\x06", "ZIP archive, empty"),
    ("\x7fELF", "ELF program"),
    (f"\x1f{_ANY}\x08", "gzip"),
    ("BZh", "bzip2"),
    (f"{_ANY}7zXZ", "xz"),
    ("7z" + _ANY, "7-Zip archive"),
    ("Rar!", "RAR archive"),
    ("(" + _ANY + "/" + _ANY, "Zstandard"),
    ("SQLite format 3", "SQLite database"),
    ("ID3", "MP3 audio"),
    ("OggS", "Ogg media"),
    ("fLaC", "FLAC audio"),
    ("\x00asm", "WebAssembly"),
    ("wOFF", "WOFF font"),
    ("wOF2", "WOFF2 font"),
    ("OTTO", "OpenType font"),
    (f"{_ANY}NUMPY", "NumPy array"),
    ("PAR1", "Parquet table"),
    (f"{_ANY}HDF", "HDF5 data"),
    ("!<arch>", "archive of object files"),
    ("glTF", "glTF model"),
    ("II*\x00", "TIFF image"),
    ("MM\x00*", "TIFF image"),
    ("MZ", "Windows program"),
    (f"{_ANY}{_ANY}{_ANY}{_ANY}\x00\x10JFIF", "JPEG image"),
)
_WITHIN = (
    ("JFIF", "JPEG image"),
    ("Exif", "JPEG image"),
    ("WEBP", "WebP image"),
    ("WAVE", "WAV audio"),
    ("AVI ", "AVI video"),
    ("ftyp", "MP4 media"),
)
_TAR_PLACE = 257


class _Run(NamedTuple):
    number: int
    column: int
    text: str


def binary_digest(lines: Sequence[str]) -> Digest | None:
    """Describe data that is mostly not text.

    Returns:
        The type as the first bytes suggest it, the printable share, and the longest runs of printable characters. None
        for a text.
    """
    return _decoded(lines) or _dumped(lines) or _spelled(lines)


def is_binary(lines: Sequence[str]) -> bool:
    """Check whether the first lines are decoded bytes rather than text."""
    sample = "\n".join(lines)
    return len(_STRANGE.findall(sample)) > _LEAST_STRANGE * len(sample)


def _decoded(lines: Sequence[str]) -> Digest | None:
    sample = _sample(lines)
    escaped = len(_ESCAPE.findall(sample)) if "\\" in sample else 0
    strange = len(_STRANGE.findall(sample)) + escaped
    chars = len(sample) - 3 * escaped
    if not chars or strange < _LEAST_STRANGE * chars:
        return None
    head = _bytes_of(sample[:_HEAD_CHARS])
    kind = _type_of(head)
    if not kind and _is_utf16(head):
        size = counted(len(lines), "line")
        return Digest((fact(f"Text in UTF-16, read as UTF-8: every second character is a NUL ({size})"),))
    printable = round(100 * (1 - strange / chars))
    runs = _longest_runs(lines)
    total = sum(map(len, lines)) + len(lines) - 1
    size = counted(total, "character")
    facts = [fact(f"Binary data: {kind or 'of unknown type'}, {size}, {printable} % of them printable")]
    facts += rows("Longest strings", (f'"{run.text.strip()[:_SHOWN_CHARS]}" :{run.number}' for run in runs), most=1)
    findings = [Finding(run.number, 62.0 - place, column=run.column) for place, run in enumerate(runs)]
    return Digest(tuple(facts), tuple(findings), is_free=True)


def _sample(lines: Sequence[str]) -> str:
    """Return the beginning and a part of the middle: a text may follow a binary header."""
    head = "\n".join(line[:_SAMPLE_CHARS] for line in lines[:400])[:_SAMPLE_CHARS]
    middle = "\n".join(line[:_HEAD_CHARS] for line in lines[len(lines) // 2 :][:100])[:_SAMPLE_CHARS]
    return f"{head}\n{middle}" if len(lines) > 800 else head  # noqa: PLR2004 - of fewer the head is the half


def _bytes_of(text: str) -> str:
    """Return *text* with one character per byte: decoded escapes, and U+FFFD for each byte over 127."""
    text = _ESCAPE.sub(lambda found: chr(int(found[1], 16)), text)
    return _HIGH.sub(_ANY, text)


def _is_utf16(head: str) -> bool:
    halves = head[0:400:2], head[1:400:2]
    nuls = [share(half.count("\x00"), len(half)) for half in halves]
    others = "".join(half for half in halves if half.count("\x00") < len(half) / 2)
    return max(nuls) > _LEAST_SPELLED and len(_STRANGE.findall(others)) < _LEAST_STRANGE * len(others)


def _type_of(head: str) -> str:
    """Return the file type by its first bytes, one character each; empty if unknown."""
    for signature, kind in _SIGNATURES:
        if head.startswith(signature):
            return kind
    for mark, kind in _WITHIN:
        if mark in head[:40]:
            return kind
    return "tar archive" if head[_TAR_PLACE : _TAR_PLACE + 5] == "ustar" else ""


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
                best.setdefault(found[0].strip(), _Run(number, found.start(), found[0]))
    longest = sorted(best.values(), key=lambda run: (-_worth(run.text), run.number, run.column))
    return [run for run in longest[:_LONGEST] if _worth(run.text)]


def _worth(text: str) -> int:
    """Count the characters in words: noise is printable, too."""
    return min(sum(map(len, _WORDS.findall(text[:400]))), 4 * _SHOWN_CHARS)


def _dumped(lines: Sequence[str]) -> Digest | None:
    sample = [line for line in lines[:200] if line.strip()]
    if len(sample) < 2 or not are_mostly(_DUMP.match, sample, _LEAST_SPELLED):  # noqa: PLR2004
        return None
    found = map(_DUMP.match, sample[:20])
    digits = "".join("".join(match[1].split()) for match in found if match is not None)
    kind = _type_of(_bytes_of(_unhexed(digits))) or "of unknown type"
    return Digest((fact(f"Binary data: {kind}, as a dump in hexadecimal, {counted(len(lines), 'line')}"),))


def _spelled(lines: Sequence[str]) -> Digest | None:
    whole = [line.strip() for line in lines[:400] if line.strip()]
    if not whole:
        return None
    armour, uri = _ARMOUR.match(whole[0]), _DATA_URI.match(whole[0])
    body = [line[uri.end() :] if uri is not None and place == 0 else line for place, line in enumerate(whole)]
    body = [line.removeprefix("\u2026 ") for line in body if not line.startswith("-----")]
    long = [line for line in body if len(line) >= _LEAST_LINE_CHARS]
    if not long or len(long) < _LEAST_SPELLED * len(body) - 1:
        return None
    chars = sum(map(len, lines))
    for form, pattern, bits in (("hexadecimal", _HEX, 4), ("base64", _BASE64, 6)):
        if sum(pattern.fullmatch(line) is not None for line in body) < _LEAST_SPELLED * len(body):
            continue
        if _are_words(long) or (form == "hexadecimal" and len(long[0]) in _DIGEST_CHARS and len(long) > 1):
            return None
        head = _unhexed(long[0]) if form == "hexadecimal" else _unbased(long[0])
        named = armour[1].capitalize() if armour is not None else "of unknown type"
        kind = uri[1] if uri is not None else _type_of(_HIGH.sub(_ANY, head)) or named
        size = f"{counted(chars, 'character')}, about {chars * bits // 8:,} bytes"
        return Digest((fact(f"Binary data: {kind}{_size_of(head, kind)}, in {form}, {size}"),))
    return None


def _are_words(lines: Sequence[str]) -> bool:
    """Check whether *lines* hold letters only or no letters, as long words and rules do, but encoded data does not."""
    text = "".join(lines)[:_HEAD_CHARS]
    return not any(character.isdigit() for character in text) or not any(character.isalpha() for character in text)


def _unhexed(digits: str) -> str:
    digits = digits[:_HEAD_CHARS]
    try:
        return bytes.fromhex(digits[: len(digits) // 2 * 2]).decode("latin-1")
    except ValueError:
        return ""


def _unbased(text: str) -> str:
    text = text[:_HEAD_CHARS].replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(text[: len(text) // 4 * 4]).decode("latin-1")[:_HEAD_CHARS]
    except (binascii.Error, ValueError):
        return ""


def _size_of(head: str, kind: str) -> str:
    if "PNG" not in kind.upper() or len(head) < 24:  # noqa: PLR2004 - where its header ends
        return ""
    width, height = (int.from_bytes(head[place : place + 4].encode("latin-1"), "big") for place in (16, 20))
    return f", {width:,} x {height:,}" if 0 < width < 1 << 20 and 0 < height < 1 << 20 else ""
