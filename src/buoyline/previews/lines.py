r"""Numbered lines of a text of any size. A line ends at ``\n`` only."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple, TypeAlias

from buoyline.previews.source import Source

MAX_HELD_CHARS = 1 << 21
"""Only this much of a line is kept; the rest is counted."""

MAX_SHOWN_CHARS = 1_000
"""A preview shows at most this much of a line."""

FAR_CHARS = 125
"""A place from this character on is not visible from the beginning of the line."""

LinePlace: TypeAlias = tuple[int, int]
"""A line number, 1-based, and a character of the line, 0-based."""


class LineBlock(NamedTuple):
    r"""Whole lines of a text; *hidden_chars* are missing in the first line if it began in an earlier block."""

    first: int
    text: str
    size: int
    hidden_chars: int


class LineExcerpt(NamedTuple):
    """A part of a line that has *chars* characters, from the character *first* on, 0-based."""

    first: int
    text: str
    chars: int


def line_blocks(source: Source) -> Iterator[LineBlock]:
    """Yield the lines of *source* in blocks of about a megabyte; no line is in two blocks."""
    number, held, held_chars = 1, "", 0
    for text in source.blocks():
        end = text.rfind("\n")
        if end < 0:
            held_chars += len(text)
            held = (held + text[:MAX_HELD_CHARS])[:MAX_HELD_CHARS]
            continue
        whole = text[:end]
        if held_chars:
            first, line_end, rest = whole.partition("\n")
            whole = (held + first)[:MAX_HELD_CHARS] + line_end + rest
        count = whole.count("\n") + 1
        yield LineBlock(number, whole, count, held_chars + end - len(whole))
        number, held, held_chars = number + count, text[end + 1 :][:MAX_HELD_CHARS], len(text) - end - 1
    if held_chars:
        yield LineBlock(number, held, 1, held_chars - len(held))


def excerpts_at(source: Source, places: AbstractSet[LinePlace]) -> Mapping[LinePlace, LineExcerpt]:
    r"""Return parts of lines, each from the beginning of its line, or from a place far inside it.

    Returns:
        The places that exist, in order, without a ``\r`` at the end.
    """
    found: dict[LinePlace, LineExcerpt] = {}
    wanted = sorted(places, reverse=True)
    for block in line_blocks(source):
        if not wanted:
            break
        if wanted[-1][0] >= block.first + block.size:
            continue
        lines = block.text.split("\n")
        while wanted and wanted[-1][0] < block.first + block.size:
            number, column = wanted.pop()
            hidden_chars = block.hidden_chars if number == block.first else 0
            line = lines[number - block.first]
            if not hidden_chars:
                line = line.removesuffix("\r")
            first = column if column >= FAR_CHARS else 0
            text = line[first : first + MAX_SHOWN_CHARS]
            found[number, column] = LineExcerpt(first, text, len(line) + hidden_chars)
    return found


_STAMP = re.compile(
    # Pairs of keys and values up to the message.
    r'(?:\w{1,20}=(?:"[^"]{0,80}"|[^\s"]{1,80}) ){1,8}?(?:message|msg)="|'
    # A service, a client, a level or a key; a date; a time; what belongs to them.
    r"(?:[\w./-]{1,40}\s{1,3}\|\s{1,3}|[\w.:-]{1,40} \S{1,40} \S{1,40} (?=\[)|[A-Z], (?=\[)|\w{1,10}=(?=\"))?[\[(\"]?"
    r"(?:\d{4}[-/.]\d\d[-/.]\d\d[T ]?|\d\d[-/.]\d\d(?:[-/.]\d\d)?[T ]|\d\d/[A-Z][a-z]{2}/\d{4}:|[A-Z]\d{4} "
    r"|(?:[A-Z][a-z]{2} )?[A-Z][a-z]{2} [ \d]\d )?"
    r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: \d{4})?(?:Z| ?[+-]\d\d:?\d\d)?(?: #\d{1,9})?[\])\"]?:?\s{1,3}"
    # The process of Ruby and Celery, the place of glog, the thread and logger of Spring.
    r"(?:#\d{1,9}\] |[A-Z]{4,8}/[\w-]{1,40}\] | {0,8}(?:\d{1,9} )?[\w.-]{1,40}:\d{1,6}\] "
    r"|[A-Z]{4,8} {1,2}\d{1,9} --- \[[^\]]{1,60}\] \S{1,60} {0,40}: )?"
    # A JSON record up to its message.
    r'|\{(?:"[\w@.]{1,30}" ?: ?(?:"[^"]{0,80}"|[\d.]{1,20}), ?){1,8}?"(?:message|msg)" ?: ?"'
)
_SAMPLED = 400
_STAMPED = 0.3
_SHARED = 0.8
_LEAST_PREFIX_CHARS = 16
_MAX_PREFIX_CHARS = 100
_ENDS = " \t:]|/"


class LinePrefix(NamedTuple):
    """The beginning that nearly all lines share: a time if *is_stamped*, then *text*."""

    is_stamped: bool
    text: str

    def chars_in(self, line: str) -> int:
        """Return the length of the prefix in *line*; 0 if the line does not begin with it or has nothing else."""
        stamp = _STAMP.match(line) if self.is_stamped else None
        start = stamp.end() if stamp is not None else 0
        if (stamp is None and self.is_stamped) or not line.startswith(self.text, start):
            return 0
        end = start + len(self.text)
        return end if end < len(line) else 0


def shared_prefix(lines: Sequence[str]) -> LinePrefix | None:
    """Return the prefix of most *lines*, such as the time and the host of a log; None if it is short.

    At least four in five lines have a prefix, or three in ten with a time: the others are the lines of stack traces.
    """
    sample = [line for line in lines[:: len(lines) // _SAMPLED + 1] if line.strip()]
    if len(sample) < _LEAST_PREFIX_CHARS:
        return None
    stamps = [_STAMP.match(line) for line in sample]
    is_stamped = sum(stamp is not None for stamp in stamps) >= _STAMPED * len(sample)
    rests = [
        line[stamp.end() if is_stamped and stamp is not None else 0 :]
        for line, stamp in zip(sample, stamps, strict=True)
        if stamp is not None or not is_stamped
    ]
    is_record = is_stamped and any(stamp is not None and stamp[0][-1] == '"' for stamp in stamps)
    least = _SHARED * (len(rests) if is_stamped else len(sample))
    text = "" if is_record else _common(sorted(rests), least, is_stamped=is_stamped)
    first = next((stamp.end() for stamp in stamps if stamp is not None), 0) if is_stamped else 0
    return LinePrefix(is_stamped, text) if first + len(text) >= _LEAST_PREFIX_CHARS else None


def _common(lines: Sequence[str], least: float, *, is_stamped: bool) -> str:
    """Return the longest prefix, up to a delimiter, of at least *least* of the sorted *lines*.

    After a time, it ends with the host or the logger: the words of a message are no prefix.
    """
    middle = lines[len(lines) // 2][:_MAX_PREFIX_CHARS] if lines else ""
    for end in range(len(middle), 0, -1):
        text = middle[:end]
        if middle[end - 1] not in _ENDS or text.isspace():
            continue
        if is_stamped and ('"' in text or (not text.rstrip().endswith((":", "]", "|")) and text.strip().count(" "))):
            continue
        if bisect_right(lines, text + "\U0010ffff") - bisect_left(lines, text) >= least:
            return text
    return ""
