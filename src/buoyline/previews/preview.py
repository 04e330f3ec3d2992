"""Previews of texts of any size.

A survey reads the whole text in blocks of about a megabyte, so a text of any size needs little memory. It processes
each block in calls over the whole block: a loop over the lines of 100 MB would take longer than a person waits. Lines
are of one kind if they differ only in digits; each kind of error line is shown once.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from buoyline.previews import severity
from buoyline.previews.binary import binary_digest
from buoyline.previews.diffs import diff_digest
from buoyline.previews.digest import MAX_ERROR_KINDS, MUST_SHOW_WEIGHT, OUTLIER_NOTE, Digest, Finding
from buoyline.previews.failures import failure_digest, trace_digest
from buoyline.previews.json_documents import document_digest, records_digest
from buoyline.previews.layout import PreviewBudget, plan_preview, render_preview, render_whole
from buoyline.previews.lines import LineBlock, excerpts_at, line_blocks
from buoyline.previews.listings import listing_digest
from buoyline.previews.outliers import MAX_EXAMINED_LINES, forms_of, outlier_lines, rare_kinds, rare_lines
from buoyline.previews.outlines import outline_digest
from buoyline.previews.pages import page_digest, paragraphs_digest
from buoyline.previews.searches import search_digest
from buoyline.previews.source import Source, TextSource, count_lines
from buoyline.previews.tables import table_digest
from buoyline.tokens import TextCounter

_DIGITS = b"0123456789"
_MAX_SIMILAR = 3
_MAX_KINDS = 50_000
_MAX_COUNTED_LINES = 3_000_000
# Judging a line takes 20 to 40 microseconds. The first limit holds for the whole text; after it, the second holds for
# each block, and only the most severe lines beyond it are judged.
_MAX_JUDGED = 10_000
_MAX_JUDGED_PER_BLOCK = 2_000
_MAX_LINE_BYTES = 4_000
_VERDICT_LINES = 40
_CONTEXT_CHARS = 200
_SUSPECT = 60.0


@dataclass(slots=True)
class _ErrorKind:
    """A kind of error line."""

    number: int
    weight: float
    column: int
    word: str
    count: int = 1
    similar: list[int] = field(default_factory=list[int])

    @property
    def sort(self) -> str:
        """The class of its error word, which different kinds of lines share."""
        return severity.word_class(self.word)

    def add(self, number: int, count: int = 1) -> None:
        """Count *count* more lines of the kind, the last with this *number*; the last number is always kept."""
        self.count += count
        if len(self.similar) < _MAX_SIMILAR:
            self.similar.append(number)
        else:
            self.similar[-1] = number


@dataclass(slots=True)
class Survey:
    """Statistics about the lines of a text.

    Attributes:
        kinds: How many lines there are of each kind, that is without digits. Incomplete if `is_full`.
        verdict: The number of the last line that reports how a run ended; 0 if none does.
    """

    lines: int = 0
    kinds: Counter[bytes] = field(default_factory=Counter[bytes])
    is_full: bool = False
    verdict: int = 0
    _error_kinds: dict[bytes, _ErrorKind] = field(default_factory=dict[bytes, _ErrorKind])
    _judged: int = 0

    def read(self, block: bytes) -> None:
        r"""Add the lines of *block*, which is UTF-8 with ``\n`` between lines."""
        keys = line_kinds(block)
        self._find_errors(block, keys)
        self._find_verdict(block, len(keys))
        if not self.is_full:
            self.kinds.update(keys)
            self.is_full = len(self.kinds) > _MAX_KINDS or self.lines > _MAX_COUNTED_LINES
        self.lines += len(keys)

    def error_lines(self) -> list[Finding]:
        """Return a finding for each kind of error line, and one for the verdict."""
        error_lines = sorted(self._error_kinds.values(), key=lambda kind: kind.number)
        last = max((kind.number for kind in error_lines if kind.weight >= MUST_SHOW_WEIGHT), default=0)
        found, alike = list[Finding](), Counter[str]()
        for kind in error_lines:
            # A message that occurs a thousand times matters less than one that occurs once.
            weight = kind.weight - min(len(str(kind.count)) - 1, 3)
            is_report = kind.weight >= MUST_SHOW_WEIGHT
            # The first of fifty compiler messages say as much as all of them: another class of error comes first.
            if is_report and kind.number != last:
                weight -= min(alike[kind.sort], 6) / 2
                alike[kind.sort] += 1
            word = kind.word if is_report else ""
            found.append(Finding(kind.number, weight, kind.column, kind.count, tuple(kind.similar), word=word))
        return [*found, Finding(self.verdict, 98.0)] if self.verdict else found

    def _find_errors(self, block: bytes, keys: Sequence[bytes]) -> None:
        seen, last = Counter[bytes](), dict[bytes, int]()
        number, position = 0, 0
        for start in self._candidates(block):
            number += block.count(b"\n", position, start)
            position = start
            key = keys[number]
            seen[key] += 1
            if seen[key] <= _MAX_SIMILAR:
                self._note(key, block, start, self.lines + number + 1)
            else:
                last[key] = number
        for key in last.keys() & self._error_kinds.keys():
            self._error_kinds[key].add(self.lines + last[key] + 1, seen[key] - _MAX_SIMILAR)

    def _candidates(self, block: bytes) -> Iterator[int]:
        start = count = 0
        for start in severity.candidates(block):
            yield start
            count += 1
            if count >= _MAX_JUDGED_PER_BLOCK and count + self._judged >= _MAX_JUDGED:
                yield from islice(severity.worst_candidates(block, start), _MAX_JUDGED_PER_BLOCK)
                break
        self._judged += count

    def _find_verdict(self, block: bytes, count: int) -> None:
        end, bare = len(block), 0
        for place in range(count, max(count - _VERDICT_LINES, 0), -1):
            start = block.rfind(b"\n", 0, end) + 1
            line = _line(block, start)
            if severity.is_verdict(line):
                if not severity.is_bare_word(line):
                    self.verdict = self.lines + place
                    return
                bare = bare or self.lines + place
            end = start - 1
        self.verdict = bare or self.verdict

    def _note(self, key: bytes, block: bytes, found: int, number: int) -> None:
        known = self._error_kinds.get(key)
        if known is not None and known.weight > _SUSPECT:
            known.add(number)
            return
        line = block.rfind(b"\n", 0, found) + 1
        start = max(line, found - _CONTEXT_CHARS)
        text = _line(block, start)
        weight = severity.severity_of(text)
        column = len(block[line:start].decode("utf-8", "replace")) + severity.severity_column(text)
        if not weight:
            return
        if len(self._error_kinds) >= MAX_ERROR_KINDS:
            lightest, kind = min(self._error_kinds.items(), key=lambda item: (item[1].weight, -item[1].number))
            if kind.weight >= weight:
                return
            del self._error_kinds[lightest]
        self._error_kinds[key] = _ErrorKind(number, weight, column, severity.matched_word(_line(block, found)))


def line_kinds(block: bytes) -> list[bytes]:
    """Return the kind of each line of *block*."""
    return block.translate(None, _DIGITS).split(b"\n")


def _line(block: bytes, start: int) -> str:
    end = block.find(b"\n", start, start + _MAX_LINE_BYTES)
    line = block[start : start + _MAX_LINE_BYTES if end < 0 else end]
    return line.decode("utf-8", "replace").removesuffix("\r")


_MOST_CHARS_PER_TOKEN = 128
# Reading 100 MB line by line, or as a document, would take half a minute.
_DOCUMENT_CHARS = 16_000_000
_HELD_CHARS = 4_000_000


def preview(text: str, max_tokens: int, counter: TextCounter) -> str:
    """Show the kind of a text, its errors and outliers, and its first and last lines.

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
    """Show a text that is read in pieces, at most three times; see `preview`.

    The limit is for *before*, the text before the preview, and the preview together: their tokens differ from the sum.
    """
    budget = PreviewBudget(max_tokens, counter, before)
    if source.size_bytes <= max_tokens * _MOST_CHARS_PER_TOKEN:
        text = "".join(source.blocks())
        lines = excerpts_at(
            source, frozenset((number, 0) for number in range(1, min(count_lines(text), max_tokens) + 1))
        )
        shown = render_whole(lines, count_lines(text), budget)
        if shown:
            return shown
    reading = _TextReading()
    for block in line_blocks(source):
        reading.take(block)
    digest = reading.digest() + Digest(findings=tuple(reading.rare_kinds(source)))
    plan = plan_preview(digest, reading.survey.lines, reading.chars, max_tokens)
    return render_preview(plan, excerpts_at(source, plan.places), budget)


@dataclass(slots=True)
class _TextReading:
    """The state that is kept while a text is read."""

    survey: Survey = field(default_factory=Survey)
    texts: list[str] = field(default_factory=list[str])
    chars: int = 0
    lines: int = 0
    is_whole: bool = True

    def take(self, block: LineBlock) -> None:
        """Survey the block, and keep it if the text is small enough; a text with cut lines is not a document."""
        self.survey.read(block.text.encode("utf-8", "surrogatepass"))
        self.chars += len(block.text) + block.hidden_chars
        self.lines += block.size
        if self.is_whole:
            self.texts.append(block.text)
            most = _DOCUMENT_CHARS if self.texts[0].lstrip()[:1] in {"{", "["} else _HELD_CHARS
            if self.chars > most or block.hidden_chars:
                self.is_whole = False
                self.texts = ["\n".join(self.texts)[:_HELD_CHARS]]

    def digest(self) -> Digest:
        """Return the digest of the text so far."""
        return text_digest("\n".join(self.texts), self.survey, is_whole=self.is_whole)

    def rare_kinds(self, source: Source) -> Iterator[Finding]:
        """Yield the rare kinds of a long text, also beyond the lines that were examined one by one."""
        if self.survey.lines <= MAX_EXAMINED_LINES or self.survey.is_full:
            return
        odd = set(rare_kinds(self.survey.kinds))
        for block in line_blocks(source) if odd else ():
            kinds = line_kinds(block.text.encode("utf-8", "surrogatepass"))
            for kind in odd.intersection(kinds):
                yield Finding(block.first + kinds.index(kind), 80.0, note=OUTLIER_NOTE)


DigestReader = Callable[[Sequence[str]], Digest | None]
"""Reads the lines of a text, without line ends; returns None for a text of another kind."""

RECORD_READERS: Final[Sequence[DigestReader]] = (records_digest, table_digest)
"""Readers of texts made of records; they find the outliers themselves."""

KIND_READERS: Final[Sequence[DigestReader]] = (
    binary_digest,
    diff_digest,
    page_digest,
    search_digest,
    listing_digest,
    outline_digest,
)
"""Readers of all other kinds, the strictest first; the first match wins."""


def text_digest(text: str, survey: Survey, *, is_whole: bool) -> Digest:
    """Return the digest of a text from its first lines and the survey of all lines.

    *is_whole* says that *text* is complete and no line is cut.
    """
    lines = text.split("\n", MAX_EXAMINED_LINES)[:MAX_EXAMINED_LINES]
    kind = Digest(findings=tuple(survey.error_lines())) + failure_digest(lines) + (trace_digest(lines) or Digest())
    document = document_digest(text) if is_whole else None
    if document is not None and document.facts:
        return document + kind
    records = _first(RECORD_READERS, lines)
    if records is not None:
        return records + kind + Digest(findings=tuple(rare_lines(lines, forms_of(lines))))
    found = _first(KIND_READERS, lines)
    if found is None and is_whole and len(lines) < MAX_EXAMINED_LINES:
        found = paragraphs_digest(lines)
    found = found or Digest()
    return found + (document or Digest()) + kind + Digest(findings=tuple(outlier_lines(lines)))


def _first(readers: Sequence[DigestReader], lines: Sequence[str]) -> Digest | None:
    return next((found for found in (reader(lines) for reader in readers) if found is not None), None)
