"""What kind of text it is, and what that kind has to say."""

from collections.abc import Callable, Sequence
from typing import Final

from buoyline.offloader.previews.binary import binary_digest
from buoyline.offloader.previews.diffs import diff_digest
from buoyline.offloader.previews.documents import document_digest, records_digest
from buoyline.offloader.previews.failures import failure_digest
from buoyline.offloader.previews.finding import Digest
from buoyline.offloader.previews.listings import listing_digest
from buoyline.offloader.previews.novelty import forms_of, novel
from buoyline.offloader.previews.outlines import outline_digest
from buoyline.offloader.previews.pages import page_digest
from buoyline.offloader.previews.paragraphs import paragraphs_digest
from buoyline.offloader.previews.searches import search_digest
from buoyline.offloader.previews.survey import Survey
from buoyline.offloader.previews.tables import table_digest
from buoyline.offloader.previews.traces import trace_digest
from buoyline.offloader.previews.unlike import MAX_LINES, unlike

Reader = Callable[[Sequence[str]], Digest | None]

RECORDS: Final[Sequence[Reader]] = (records_digest, table_digest)
"""Readers of texts that are made of records, in which they find themselves what does not belong."""

KINDS: Final[Sequence[Reader]] = (
    binary_digest,
    diff_digest,
    page_digest,
    search_digest,
    listing_digest,
    outline_digest,
)
"""Readers of all other kinds, the strictest first; the first that answers is believed."""


def digest_of(text: str, survey: Survey, *, is_whole: bool) -> Digest:
    """Say what has come to light of a text.

    Args:
        text: Its first lines, from line 1 on.
        survey: Of all its lines.
        is_whole: *text* is all of it, and no line is cut.
    """
    lines = text.split("\n", MAX_LINES)[:MAX_LINES]
    trouble = Digest(findings=tuple(survey.troubles())) + failure_digest(lines) + (trace_digest(lines) or Digest())
    document = document_digest(text) if is_whole else None
    if document is not None and document.facts:
        return document + trouble
    records = _first(RECORDS, lines)
    if records is not None:
        return records + trouble + Digest(findings=tuple(novel(lines, forms_of(lines))))
    found = _first(KINDS, lines)
    if found is None and is_whole and len(lines) < MAX_LINES:
        found = paragraphs_digest(lines)
    found = found or Digest()
    return found + (document or Digest()) + trouble + Digest(findings=tuple(unlike(lines)))


def _first(readers: Sequence[Reader], lines: Sequence[str]) -> Digest | None:
    return next((found for found in (reader(lines) for reader in readers) if found is not None), None)
