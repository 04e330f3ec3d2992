"""HTML pages: title, headings and visible text; and records of ``key: value`` lines.

The reader finds tags from one angle bracket to the next. It does not use `html.parser`, which takes quadratic time on
hostile pages, and it does not check whether the HTML is valid.
"""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from html import unescape
from itertools import accumulate, groupby
from typing import NamedTuple

from buoyline.previews.digest import Digest, Finding, counted, fact, is_continued, rows, sampled, shortened

_MAX_CHARS = 16_000_000
# 0.6 s of tags; the subject of a page comes earlier.
_MAX_TAGS = 200_000
_MAX_ATTRIBUTE_CHARS = 400
_MAX_TEXTS = 4_000
_PIECE_CHARS = 1_000
_SHOWN_TEXT_CHARS = 260
_HEADING_CHARS = 80
_LEAST_TAGS = 12
_SENTENCE_CHARS = 80
_SHOWN_HEADINGS = 8
_PREAMBLE_LINES = 3
_CONTINUED_CHARS = 2

_DOCUMENT = re.compile(r"<(?:!doctype html|html|head|body)[\s>]", re.IGNORECASE)
_ELEMENT = re.compile(
    r"</?(?:div|span|p|a|li|ul|td|tr|table|h[1-6]|img|br|section|article|form|input|nav)[\s>/]", re.IGNORECASE
)
_NAME = re.compile(r"</?([A-Za-z][A-Za-z0-9]{0,20})")
_DESCRIPTION = re.compile(r"<meta\s[^>]{0,300}(?:name|property)=[\"']?(?:og:)?description[\"']?", re.IGNORECASE)
_CONTENT = re.compile(r"\scontent=(?:\"([^\"]{1,400})|'([^']{1,400}))", re.IGNORECASE)

_UNSEEN = frozenset({"script", "style", "noscript", "template", "svg", "textarea", "select", "iframe"})
_MENU_TAGS = frozenset({"nav", "footer", "aside", "head"})
_COUNTED = {"a": "link", "img": "image", "form": "form", "table": "table", "script": "script"}
_BREAKING = frozenset(
    {
        "p",
        "div",
        "li",
        "ul",
        "ol",
        "td",
        "th",
        "tr",
        "table",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "br",
        "section",
        "article",
    }
    | {"main", "header", "blockquote", "pre", "dd", "dt", "title", "body", "figcaption"}
)
_HEADINGS = frozenset({"title", "h1", "h2", "h3"})


class _Piece(NamedTuple):
    """The visible text between two tags that break the line, with its offset and the tag of its heading, if any."""

    start: int
    heading: str
    text: str
    is_menu: bool


def page_digest(lines: Sequence[str]) -> Digest | None:
    """Summarize an HTML page.

    Args:
        lines: The lines of the text, without line ends; lines that a view wrapped are joined.

    Returns:
        The title, counts, headings with their lines, and the beginning of the visible text. None if the text is not a
        page.
    """
    if not _is_page(lines):
        return None
    page = _Page(lines)
    page.read()
    if page.tags < _LEAST_TAGS and not page.title:
        return None
    return Digest(tuple(_facts(page, len(lines))), tuple(_findings(page)))


def _is_page(lines: Sequence[str]) -> bool:
    head = "\n".join(line[:_PIECE_CHARS] for line in lines[:120])[:20_000]
    found = _DOCUMENT.search(head)
    # A program may contain a page in a string: a real page begins as one, or has tags in nearly every line.
    if found is not None and _is_preamble(head[: found.start()]):
        return True
    sample = sampled(lines, 200)
    elements = sum(_ELEMENT.search(line) is not None for line in sample)
    begins = sum(line.lstrip().startswith("<") for line in sample)
    return elements >= _LEAST_TAGS and 2 * elements > len(sample) and 2 * begins > len(sample)


def _is_preamble(text: str) -> bool:
    """Check whether *text* may precede a page: comments, response headers, or a few lines by its fetcher."""
    text = text.lstrip("\ufeff\r\n\t ")
    is_short = text.count("\n") <= _PREAMBLE_LINES and (not text or text.endswith("\n"))
    return is_short or text.startswith(("<", "HTTP/"))


class _Page:
    """Reads a page tag by tag."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._skipped = [_CONTINUED_CHARS if is_continued(line) else 0 for line in lines]
        pieces = [line[skipped:] for line, skipped in zip(lines, self._skipped, strict=True)]
        self.text = "\n".join(pieces)[:_MAX_CHARS]
        self._starts = list(accumulate((len(piece) + 1 for piece in pieces), initial=0))
        self.pieces: list[_Piece] = []
        self.counts = Counter[str]()
        self.tags = 0
        self.description = ""
        self._words: list[str] = []
        self._length = 0
        self._start = 0
        self._heading = ""
        self._menu_depth = 0
        self._missing: set[str] = set()

    @property
    def title(self) -> str:
        return next((piece.text for piece in self.pieces if piece.heading == "title"), "")

    def line_of(self, position: int) -> tuple[int, int]:
        """Return the line number and column of an offset."""
        number = bisect_right(self._starts, position)
        return number, position - self._starts[number - 1] + self._skipped[number - 1]

    def read(self) -> None:
        text, position, size = self.text, 0, len(self.text)
        while self.tags < _MAX_TAGS:
            start = text.find("<", position)
            self._take(position, start if start >= 0 else size)
            if start < 0:
                break
            position = self._after_tag(start)
            if position < 0:
                break
        self._end_piece()

    def _after_tag(self, start: int) -> int:
        """Return the offset after the tag at *start*; -1 if the tag does not end."""
        text = self.text
        if text.startswith("<!--", start):
            return self._after("-->", start + 4)
        name = _NAME.match(text, start)
        if name is None and text[start + 1 : start + 2] not in {"!", "?"}:
            return start + 1
        end = text.find(">", start)
        if end < 0:
            return -1
        if name is not None:
            self.tags += 1
            tag = name[1].lower()
            is_end = text[start + 1] == "/"
            self._see(tag, start, end, is_end=is_end)
            if tag in _UNSEEN and not is_end and text[end - 1] != "/":
                return self._after(f"</{tag}", end + 1)
        return end + 1

    def _after(self, terminator: str, position: int) -> int:
        # A terminator that was not found once is not searched for again, so each search fails at most once.
        found = -1 if terminator in self._missing else self.text.find(terminator, position)
        if found < 0:
            self._missing.add(terminator)
            return position
        return found + len(terminator) if terminator == "-->" else found

    def _see(self, tag: str, start: int, end: int, *, is_end: bool) -> None:
        if tag in _COUNTED and not is_end:
            self.counts[_COUNTED[tag]] += 1
        if (tag in _BREAKING or tag in _MENU_TAGS) and not (tag == "br" and self._heading):
            self._end_piece()
        if tag in _HEADINGS:
            self._heading = "" if is_end else tag
        if tag in _MENU_TAGS:
            self._menu_depth = max(self._menu_depth + (-1 if is_end else 1), 0)
        if tag == "meta" and not self.description:
            element = self.text[start : min(end, start + 2 * _MAX_ATTRIBUTE_CHARS)]
            if _DESCRIPTION.match(element) and (content := _CONTENT.search(element)) is not None:
                self.description = _words(content[1] or content[2])

    def _take(self, start: int, end: int) -> None:
        if end <= start or self._length > _PIECE_CHARS or len(self.pieces) >= _MAX_TEXTS:
            return
        words = self.text[start : min(end, start + _PIECE_CHARS)]
        if not self._words:
            if words.isspace():
                return
            self._start = start + len(words) - len(words.lstrip())
        self._words.append(words)
        self._length += len(words)

    def _end_piece(self) -> None:
        if self._words:
            text = _words("".join(self._words))
            if text:
                self.pieces.append(_Piece(self._start, self._heading, text, self._menu_depth > 0))
        self._words, self._length = [], 0


def _words(text: str) -> str:
    return " ".join(unescape(text[: 2 * _PIECE_CHARS]).split())


def _facts(page: _Page, total: int) -> Iterator[str]:
    counts = [counted(page.counts[noun], noun) for noun in _COUNTED.values() if page.counts[noun]]
    yield fact(
        f"Web page (HTML, {', '.join([counted(total, 'line'), *counts])}): {page.title[:140] or 'without a title'}"
    )
    headings = _headings(page)
    yield from rows(
        "Headings",
        (f"{piece.heading} {piece.text[:_HEADING_CHARS]} :{page.line_of(piece.start)[0]}" for piece in headings),
        most=2,
    )
    first = _first_text(page)
    if first:
        beginning = " ".join(piece.text for piece in first)[:_SHOWN_TEXT_CHARS]
        yield fact(f"Text :{page.line_of(first[0].start)[0]}: {beginning}")
    elif page.description:
        yield fact(f"Description: {page.description[:_SHOWN_TEXT_CHARS]}")


def _headings(page: _Page) -> list[_Piece]:
    """Return the headings, sorted by level if there are too many."""
    found = [piece for piece in page.pieces if piece.heading in {"h1", "h2", "h3"}]
    return found if len(found) <= _SHOWN_HEADINGS else sorted(found, key=lambda piece: (piece.heading, piece.start))


def _first_text(page: _Page) -> list[_Piece]:
    """Return the text from the first sentence on: menus come before it."""
    texts = [piece for piece in page.pieces if not piece.heading and not piece.is_menu]
    head = next((piece.start for piece in page.pieces if piece.heading == "h1"), 0)
    sentences = [place for place, piece in enumerate(texts) if len(piece.text) >= _SENTENCE_CHARS and " " in piece.text]
    first = next((place for place in sentences if texts[place].start > head), sentences[0] if sentences else 0)
    return texts[first : first + 4]


def _findings(page: _Page) -> Iterator[Finding]:
    for place, piece in enumerate(_headings(page)[:_SHOWN_HEADINGS]):
        number, column = page.line_of(piece.start)
        yield Finding(number, 62.0 - place, column=column)
    for piece in _first_text(page)[:1]:
        number, column = page.line_of(piece.start)
        yield Finding(number, 64.0, column=column)


# Records: paragraphs of ``key: value`` lines, as in control files and many listings.


HEADING = "heading"
"""The key of a paragraph's first line if that is not a pair; `query` uses the same name."""

_LEAST_RECORDS = 4
_MOST_LACKING = 0.5
_SHOWN_KEYS = 16
_SHOWN_CHARS = 24

# The same keys as in `query`: others could not be queried.
_KEY = re.compile(r"([^\W\d][\w .-]{0,60}(?:\([^()]{0,30}\))?)\s*:(?:\s.*)?")


def paragraphs_digest(lines: Sequence[str]) -> Digest | None:
    """Read *lines* as records and return their number and keys.

    Args:
        lines: All lines of a text. A line that fits no record makes it another kind of text, as in `query`.

    Returns:
        One fact; None if the lines are not records or share hardly any key.
    """
    counts = Counter[str]()
    records = 0
    for is_blank, paragraph in groupby(lines, key=lambda line: not line.strip()):
        keys = [] if is_blank else _keys(list(paragraph), is_title_allowed=not records)
        if keys is None:
            return None
        counts.update(keys)
        records += bool(keys)
    named = [count for key, count in counts.items() if key != HEADING]
    if records < _LEAST_RECORDS or max(named, default=0) < _MOST_LACKING * records:
        return None
    shown = ", ".join(shortened(key, _SHOWN_CHARS) for key in [*counts][:_SHOWN_KEYS])
    more = ", ..." if len(counts) > _SHOWN_KEYS else ""
    return Digest((fact(f"Records: {records:,} with {shown}{more}"),))


def _keys(paragraph: Sequence[str], *, is_title_allowed: bool) -> list[str] | None:
    """Return the keys of a record, each once; empty for a title, None if a line is neither a pair nor a heading."""
    keys: dict[str, None] = {}
    has_pair = False
    for place, line in enumerate(paragraph):
        pair = _KEY.fullmatch(line.rstrip())
        if pair is not None:
            has_pair = True
            keys[pair[1].rstrip()] = None
        elif place == 0 and (len(paragraph) > 1 or is_title_allowed):
            keys[HEADING] = None
        elif not (place and has_pair and line[0] in " \t"):
            return None
    return [*keys] if has_pair else []
