"""Previews of texts of any size.

A text is read once, in blocks of about a megabyte. All lines are searched for errors and rare words; the first
megabyte is held and read by kind: a table, a diff, a program. Each block is processed in calls over the whole block, so
the time is linear, and each call is short enough for an event loop in another thread.
"""

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

from buoyline.previews.json_text import MOST_CHARS, read_document, read_json_lines
from buoyline.previews.layout import Lines, PreviewBudget, fit, line_row
from buoyline.previews.odd import ErrorLines, RareLines, verdict
from buoyline.previews.outlines import SOURCE_CODE, read_diff, read_outline
from buoyline.previews.source import (
    ERROR,
    MOST_LINE_CHARS,
    Kind,
    Row,
    Source,
    TextSource,
    is_page,
    linear,
    listed,
    page_text,
    row_of,
    visible,
)
from buoyline.previews.tables import read_listing, read_search, read_table
from buoyline.tokens import TextCounter

_STRANGE: Final = re.compile(
    "[\x00-\x07\x0b\x0e-\x1a\x1c-\x1f\x7f-\x9f\ufffd\udc80-\udcff]|\\\\x[01][0-9a-f]|\\\\u00[89][0-9a-f]"
)
_STRING: Final = re.compile(r"[ -\[\]-~]{8,200}")
_SIGNATURES: Final = {
    "PNG": "PNG image",
    "GIF8": "GIF image",
    "JFIF": "JPEG image",
    "%PDF-": "PDF document",
    "PK": "ZIP archive",
    "ELF": "ELF program",
    "SQLite": "SQLite database",
}
_HEAD_CHARS = 64_000
_LEAST_SHARE = 0.1


def read_binary(text: str) -> Kind | None:
    """Return two rows about binary data; None for a text."""
    head = text[:_HEAD_CHARS]
    strange = len(_STRANGE.findall(head))
    if not strange or strange < _LEAST_SHARE * (len(head) - 3 * head.count("\\x")):
        return None
    kind = next((name for sign, name in _SIGNATURES.items() if sign in head[:40]), "of unknown type")
    strings = {found.strip()[:60] for found in _STRING.findall(head) if re.search("[a-z]{4}", found)}
    longest = [f'"{string}"' for string in sorted(strings, key=lambda string: (-len(string), string))[:5]]
    return Kind([f"Binary data: {kind}", *listed("Longest strings", longest, most=1)], is_whole=True)


_MOST_LINE_CHARS = 1 << 21
_HELD_CHARS = 1_100_000
"""Reading a megabyte by its kind takes less than a tenth of a second."""

_TAIL_LINES = 40
_MOST_CHARS_PER_TOKEN = 128
_LEAST_REPORTS, _REPORTED = 2, 0.05
_SENTENCE_CHARS = 60
_QUIET_WEIGHT = 72.5
_TOKENS_PER_RARE = 50

_COLOUR: Final = re.compile(r"(?:\x1b|\\x1b)\[[0-9;?]{0,20}[A-Za-z]")
_BAR: Final = r"^[^\n]*?(?:\d ?%|\d/\d|[#=\x{2588}\x{2501}]{4})[^\n]*"
_BAR_BYTES = 200
_STEPS: Final = re.compile(r"[\d\s#=>.\u2588\u2501\u2574-\u259f-]+")
_NUMBER: Final = re.compile(r"\d+")
_PASSED: Final = "\r"
"""Stands for a state of a progress bar that is not the last one; no other line holds a return."""

READERS: Final[Sequence[Callable[[Sequence[str]], Kind | None]]] = (
    read_json_lines,
    read_table,
    read_diff,
    read_search,
    read_listing,
    read_outline,
)
"""Readers of texts by kind, the strictest first; the first that returns something wins."""


class _Block(NamedTuple):
    """Whole lines of a text; *hidden_chars* are missing at the end of its first line."""

    first: int
    text: str
    hidden_chars: int


@dataclass(slots=True)
class _Survey:
    """What one pass over a text keeps of it: errors and rare lines, the beginning, the last lines."""

    lines: int = 0
    chars: int = 0
    held: str = ""
    is_whole: bool = True
    errors: ErrorLines = field(default_factory=ErrorLines)
    rare: RareLines = field(default_factory=RareLines)
    unread: bytes = b""
    binary: Kind | None = None
    tail: deque[Row] = field(default_factory=lambda: deque[Row](maxlen=_TAIL_LINES))

    def read(self, block: _Block) -> None:
        """Add the lines of a block."""
        if block.first == 1:
            self.binary = read_binary(block.text)
        text = _last_states(block.text)
        content = text.encode("utf-8", "surrogatepass")
        if passed := _passed_states(content):
            text = "\n".join([_PASSED if place in passed else line for place, line in enumerate(text.split("\n"))])
            content = text.encode("utf-8", "surrogatepass")
        self.errors.read(content, block.first)
        if block.first > 1:
            self.rare_lines()
            self.rare.read(content, block.first)
        else:
            self.unread = content
        lines = text.split("\n")
        first = block.first + max(len(lines) - _TAIL_LINES, 0)
        for number, line in enumerate(lines[-_TAIL_LINES:], first):
            if line == _PASSED:
                continue
            row = row_of(number, 0, line)
            self.tail.append(row._replace(rest=row.rest + block.hidden_chars) if number == block.first else row)
        if self.is_whole:
            self.held = f"{self.held}\n{text}" if block.first > 1 else text
            most = MOST_CHARS if self.held.lstrip()[:1] in {"{", "["} else _HELD_CHARS
            self.is_whole = not block.hidden_chars and len(self.held) <= most
            self.held = self.held if self.is_whole else self.held[:_HELD_CHARS]
        self.lines += len(lines)

    def rare_lines(self) -> RareLines:
        """Return the rare lines; the first block is searched for them late, since records have none."""
        if self.unread:
            self.rare.read(self.unread, 1)
            self.unread = b""
        return self.rare


def preview(text: str, max_tokens: int, counter: TextCounter) -> str:
    """Show the kind of a text, its errors and odd lines, and its first and last lines.

    Args:
        text: The whole text. Hardly more of it is counted than the preview takes.
        max_tokens: The limit of the whole preview, with line numbers and the row about missing lines.
        counter: Counts the tokens.

    Returns:
        All lines as ``17: ...`` if they fit. Else rows about the whole text, lines with their own numbers, cut if they
        are too long (``17:245: ...`` begins at the 245th character), and a row with the number of missing lines. ``""``
        if not even a part of the first line fits.
    """
    return preview_of(TextSource(text), max_tokens, counter)


def preview_of(source: Source, max_tokens: int, counter: TextCounter, *, before: str = "") -> str:
    """Show a text that is read in pieces; see `preview`.

    The limit is for *before*, the text before the preview, and the preview together: their tokens differ from the sum.
    """
    budget = PreviewBudget(max_tokens, counter, before)
    survey = _surveyed(source)
    lines = survey.held.split("\n") if survey.lines else []
    if (
        survey.is_whole
        and _PASSED not in survey.held
        and len(lines) <= max_tokens
        and len(survey.held) <= max_tokens * _MOST_CHARS_PER_TOKEN
    ):
        whole = "\n".join(str(line_row(row_of(number, 0, line))) for number, line in enumerate(lines, 1))
        if whole and budget.fits(whole):
            return whole
    if not survey.is_whole and len(lines) > 1:
        lines = lines[:-1]  # it may be cut
    kind = _kind(survey, lines)
    most = max(max_tokens // 4, 2)
    shown = ((number, line) for number, line in enumerate(lines, 1) if line != _PASSED)
    head = [row_of(number, 0, line) for number, line in islice(shown, most)]
    tail = [row for row in reversed(survey.tail) if row.number > 1][:most]
    if survey.lines == 1 and len(lines[0]) > MOST_LINE_CHARS:
        tail = [row_of(1, 0, lines[0], len(lines[0]) - 100 + 30)]
    if kind.is_whole:
        return fit(kind, Lines(), budget)
    return fit(kind, Lines([*_rows(kind, survey, lines, max_tokens)], head, tail, survey.lines), budget)


def flagged_lines(text: str, most: int = 20) -> list[tuple[int, str]]:
    """Return the lines of *text* that report an error, one of each kind, with their numbers, in the order of the text.

    A line has at most 1,000 characters, and escapes for control characters. Of more than *most* kinds, the heaviest are
    returned.
    """
    survey = _surveyed(TextSource(text))
    rows = sorted(_errors(_kind(survey, survey.held.split("\n")), survey), key=lambda row: -row.weight)
    return [(row.number, visible(row.text)) for row in sorted(row for row in rows[:most] if row.weight >= ERROR)]


def _surveyed(source: Source) -> _Survey:
    survey = _Survey()
    for block in _line_blocks(source):
        survey.read(block)
    return survey


def _errors(kind: Kind, survey: _Survey) -> list[Row]:
    return survey.errors.rows(is_free=kind.is_free or kind.is_record, quoted=kind.quoted)


def _kind(survey: _Survey, lines: Sequence[str]) -> Kind:
    """Return what the reader of the kind of text finds in its beginning."""
    if survey.binary is not None:
        return survey.binary
    if (document := read_document(survey.held) if survey.is_whole else None) is not None:
        return document
    if is_page(survey.held):
        title, *texts = page_text(survey.held).split("\n")
        errors = [text for _, text in flagged_lines("\n".join(texts))]
        parts = [*errors, *(text for text in texts if len(text) >= _SENTENCE_CHARS or text.startswith("#"))]
        return Kind([f"Web page (HTML, {survey.lines:,} lines): {title}"], parts=parts[:200], is_whole=True)
    kind = next((found for found in (reader(lines) for reader in READERS) if found is not None), Kind())
    reports = sum(row.lines for row in survey.errors.rows() if row.weight >= ERROR)
    if str(*kind.facts[:1]).startswith(SOURCE_CODE) and reports > max(_LEAST_REPORTS, _REPORTED * survey.lines):
        return Kind()  # the run of a compiler, which quotes the program
    if survey.is_whole or not kind.facts:
        return kind
    first = f"{kind.facts[0]} (of the first {len(lines):,} of {survey.lines:,} lines)"
    return Kind([first, *kind.facts[1:]], kind.rows, kind.parts, kind.quoted, kind.is_free, kind.is_record)


def _rows(kind: Kind, survey: _Survey, lines: Sequence[str], max_tokens: int) -> Iterator[Row]:
    """Yield the lines that matter: of the kind, errors, the verdict of a run, rare lines."""
    for row in kind.rows:
        text = row_of(row.number, row.weight, lines[row.number - 1], row.column)
        yield row._replace(text=text.text, column=text.column, rest=text.rest)
    yield from _errors(kind, survey)
    if (ending := verdict([*survey.tail])) is not None:
        yield ending
    if not kind.is_record:
        most = max_tokens // (_TOKENS_PER_RARE * (1 + kind.is_free))
        rare = survey.rare_lines().rows(most, kind.quoted)
        if kind.is_free:
            rare = [row._replace(weight=min(row.weight, _QUIET_WEIGHT)) for row in rare]
        yield from rare


def _line_blocks(source: Source) -> Iterator[_Block]:
    """Yield the lines of *source* in blocks of about a megabyte; no line is in two blocks."""
    number, held, held_chars = 1, "", 0
    for text in source.blocks():
        end = text.rfind("\n")
        if end < 0:
            held_chars += len(text)
            held = (held + text[:_MOST_LINE_CHARS])[:_MOST_LINE_CHARS]
            continue
        whole, hidden = text[:end], 0
        if held_chars:
            first, line_end, rest = whole.partition("\n")
            joined = held + first
            hidden = held_chars + len(first) - len(joined[:_MOST_LINE_CHARS])
            whole = joined[:_MOST_LINE_CHARS] + line_end + rest
        yield _Block(number, whole, hidden)
        number += whole.count("\n") + 1
        held, held_chars = text[end + 1 :][:_MOST_LINE_CHARS], len(text) - end - 1
    if held_chars:
        yield _Block(number, held, held_chars - len(held))


def _last_states(text: str) -> str:
    r"""Return *text* without colors, and of lines that a ``\r`` overwrites only the last state."""
    if "x1b[" in text or "\x1b[" in text:
        text = _COLOUR.sub("", text)
    if "\r" not in text:
        return text
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))


def _passed_states(content: bytes) -> set[int]:
    """Return which lines of *content* show a state of a progress bar that the next line replaces."""
    passed, line, place, last = set[int](), 0, 0, (-1, "", 0)
    for hit in linear(_BAR).finditer(content):
        line += content.count(b"\n", place, hit.start())
        place = hit.start()
        text = hit.group()[:_BAR_BYTES].decode("utf-8", "replace")
        number = _NUMBER.search(text)
        state = line, _STEPS.sub(" ", text), int(number[0][:9]) if number is not None else 0
        if last[:2] == (line - 1, state[1]) and last[2] <= state[2]:
            passed.add(line - 1)
        last = state
    return passed
