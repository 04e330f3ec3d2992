"""Previews of texts of any size.

A text is read twice, in blocks of about a megabyte. The first pass surveys all lines: it counts their kinds, that is
lines without digits, finds error lines, and keeps a sample. The first megabyte is held and read by kind: a table, a
diff, a program. The second pass reads only the lines that are shown. Each block is processed in calls over the whole
block, so the time is linear, and each call is short enough for an event loop in another thread.
"""

import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from buoyline.previews.binary import binary_digest, is_binary
from buoyline.previews.diffs import diff_digest
from buoyline.previews.digest import MUST_SHOW_WEIGHT, Digest, Finding, without_colors
from buoyline.previews.failures import failure_digest
from buoyline.previews.json_documents import document_digest, is_document, records_digest
from buoyline.previews.layout import PreviewBudget, plan_preview, render_preview, render_whole
from buoyline.previews.lines import LineBlock, excerpts_at, line_blocks
from buoyline.previews.listings import listing_digest
from buoyline.previews.outliers import Shapes, outlier_lines
from buoyline.previews.outlines import SOURCE_CODE, outline_digest
from buoyline.previews.pages import page_digest
from buoyline.previews.searches import search_digest
from buoyline.previews.severity import ErrorLines, last_verdict
from buoyline.previews.source import CONTINUED, Source, TextSource, count_lines
from buoyline.previews.tables import is_table, table_digest
from buoyline.tokens import TextCounter

_COLOUR = re.compile(rb"\x1b\[[0-9;]{0,20}[A-Za-z]")
_VERDICT_LINES = 40
_LINE_CHARS = 4_000
_HEAD_CHARS = 20_000
_HEAD_LINES = 40
_DIFFS = ("diff --git ", "@@ -", "diff --cc ")

# Reading a megabyte by its kind takes less than a tenth of a second.
_HELD_CHARS = 1_100_000
_DOCUMENT_CHARS = 4_000_000
_MOST_CHARS_PER_TOKEN = 128
_QUIET_WEIGHTS = (72.5, 70.5, 65.0)
_CODE_WEIGHT = 40.0
_LEAST_REPORTS = 3
_REPORTED = 0.05


@dataclass(slots=True)
class Survey:
    """Statistics about all lines of a text, and the parts of it that are kept.

    Attributes:
        shapes: For the search for outliers.
        held: The beginning of the text; all of it if `is_whole`.
        is_document: Whether it begins like a JSON document, more of which is held.
        is_binary: Whether it begins with bytes rather than text; then no errors are looked for.
        has_shapes: Whether the shapes are counted: those of records say nothing.
        tail: The last lines.
    """

    lines: int = 0
    chars: int = 0
    shapes: Shapes = field(default_factory=Shapes)
    errors: ErrorLines = field(default_factory=ErrorLines)
    held: str = ""
    is_whole: bool = True
    is_document: bool = False
    is_binary: bool = False
    has_shapes: bool = True
    tail: deque[str] = field(default_factory=lambda: deque[str](maxlen=_VERDICT_LINES))

    def read(self, block: LineBlock) -> None:
        """Add the lines of a block."""
        content = block.text.encode("utf-8", "surrogatepass")
        if b"\x1b[" in content:
            content = _COLOUR.sub(b"", content)
        lines = content.split(b"\n")
        if block.first == 1:
            head = block.text[:_HEAD_CHARS].split("\n")[:_HEAD_LINES]
            self.is_document = is_document(block.text)
            self.is_binary = is_binary(head)
            is_record = block.text.lstrip()[:1] in {"{", "["} or any(line.startswith(_DIFFS) for line in head)
            self.has_shapes = not (self.is_binary or is_record or is_table(head))
        if self.has_shapes:
            self.shapes.read(content, lines, block.first)
        if not self.is_binary:
            self.errors.read(content, lines, block.first)
        self.tail.extend(line[:_LINE_CHARS].decode("utf-8", "replace") for line in lines[-_VERDICT_LINES:])
        if self.is_whole:
            self.held = f"{self.held}\n{block.text}" if block.first > 1 else block.text
            most = _DOCUMENT_CHARS if self.is_document else _HELD_CHARS
            if block.hidden_chars or len(self.held) > most:
                self.is_whole = False
                self.held = self.held[:_HELD_CHARS]
        self.lines += block.size
        self.chars += len(block.text) + block.hidden_chars + (block.first > 1)


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
        lines = count_lines("".join(source.blocks()))
        if lines <= max_tokens:  # a line takes a token or more
            places = frozenset((number, 0) for number in range(1, lines + 1))
            if shown := render_whole(excerpts_at(source, places), lines, budget):
                return shown
    survey = Survey()
    for block in line_blocks(source):
        survey.read(block)
    digest = text_digest(survey)
    plan = plan_preview(digest, survey.lines, survey.chars, max_tokens)
    return render_preview(plan, excerpts_at(source, plan.places), budget)


DigestReader = Callable[[Sequence[str]], Digest | None]
"""Reads the lines of a text, without line ends and colors; returns None for a text of another kind."""

RECORD_READERS: Final[Sequence[DigestReader]] = (records_digest, table_digest, diff_digest)
"""Readers of texts of a strict form; they find the outliers themselves."""

KIND_READERS: Final[Sequence[DigestReader]] = (
    binary_digest,
    page_digest,
    search_digest,
    listing_digest,
    outline_digest,
)
"""Readers of all other kinds, the strictest first; the first match wins."""


def text_digest(survey: Survey) -> Digest:
    """Return the digest of a surveyed text."""
    verdict = last_verdict(survey.tail)
    ends = () if verdict is None else (Finding(survey.lines - verdict, 98.0),)
    errors = Digest(findings=(*survey.errors.findings(), *ends))
    document = document_digest(survey.held, is_whole=survey.is_whole)
    if document is not None and document.facts:
        # A long text within a document is quoted.
        wrapped = survey.held.split("\n") if f"\n{CONTINUED}" in survey.held else []
        quoted = frozenset(number for number, line in enumerate(wrapped, 1) if line.startswith(CONTINUED))
        return document + _quieter(errors, quoted)
    lines = without_colors(survey.held.split("\n"))
    if not survey.is_whole and len(lines) > 1:
        lines = lines[:-1]  # it may be cut
    if not survey.is_binary:
        errors += failure_digest(lines)
    records = _first(RECORD_READERS, lines)
    if records is not None:
        if records.is_free or records.quoted:
            errors = _quieter(errors, records.quoted)
        return _of_the_beginning(records, len(lines), survey) + errors
    found = _first(KIND_READERS, lines)
    reports = sum(finding.lines for finding in errors.findings if finding.word)
    is_run = reports >= _LEAST_REPORTS and reports > _REPORTED * len(lines)  # of a compiler or a test runner
    if found is not None and is_run and found.facts[0].startswith(SOURCE_CODE):
        found = None  # it quotes the program
    if not survey.has_shapes and (found is None or not found.is_free):
        content = survey.held.encode("utf-8", "surrogatepass")
        survey.shapes.read(content, content.split(b"\n"), 1)
    outliers = outlier_lines(survey.shapes)
    if found is not None and found.is_free:
        errors = _quieter(errors, found.quoted)
        # In a program or a page, nearly every line is unlike all others.
        outliers.sort(key=lambda finding: -finding.weight)
        outliers = [
            finding._replace(weight=min(finding.weight, weight), note="")
            for finding, weight in zip(outliers, _QUIET_WEIGHTS, strict=False)
        ]
    kind = _of_the_beginning(found or Digest(), len(lines), survey)
    return kind + (document or Digest()) + errors + Digest(findings=tuple(outliers))


def _quieter(errors: Digest, quoted: frozenset[int]) -> Digest:
    """Return the errors of a program or a document, where words of errors are often no errors; see `Digest.quoted`."""
    findings = [
        finding
        if finding.weight >= MUST_SHOW_WEIGHT and finding.number not in quoted
        else finding._replace(weight=min(finding.weight, _CODE_WEIGHT), word="", form=b"")
        for finding in errors.findings
    ]
    return replace(errors, findings=tuple(findings))


def _first(readers: Sequence[DigestReader], lines: Sequence[str]) -> Digest | None:
    return next((found for found in (reader(lines) for reader in readers) if found is not None), None)


def _of_the_beginning(digest: Digest, lines: int, survey: Survey) -> Digest:
    """Say that the facts are of the first lines, if the reader did not see all lines."""
    if survey.is_whole or not digest.facts:
        return digest
    first = f"{digest.facts[0]} (of the first {lines:,} of {survey.lines:,} lines)"
    return replace(digest, facts=(first, *digest.facts[1:]))
