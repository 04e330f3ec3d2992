"""HTML pages: title, headings and visible text.

The reader finds the tags that break lines. It does not use `html.parser`, which takes quadratic time on
hostile pages, and it does not check whether the HTML is valid.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from html import unescape
from itertools import accumulate, islice
from typing import NamedTuple

from buoyline.previews.digest import Digest, Finding, counted, fact, rows, sampled
from buoyline.previews.source import CONTINUED

_MAX_CHARS = 1_100_000
_MAX_PIECES = 40_000
_MAX_ATTRIBUTE_CHARS = 400
_PIECE_CHARS = 1_000
_SHOWN_TEXT_CHARS = 200
_MORE_TEXT_CHARS = 120
_HEADING_CHARS = 60
_LEAST_TAGS = 12
_SCRIPT_CHARS = 300
_SENTENCE_CHARS = 80
_SHOWN_HEADINGS = 8
_SHOWN_TEXTS = 6
_PREAMBLE_LINES = 3

_DOCUMENT = re.compile(r"<(?:!doctype html|html|head|body)[\s>]", re.IGNORECASE)
_ELEMENT = re.compile(
    r"</?(?:div|span|p|a|li|ul|td|tr|table|h[1-6]|img|br|section|article|form|input|nav)[\s>/]", re.IGNORECASE
)
_DESCRIPTION = re.compile(r"<meta\s[^>]{0,300}(?:name|property)=[\"']?(?:og:)?description[\"']?", re.IGNORECASE)
_CONTENT = re.compile(r"\scontent=(?:\"([^\"]{1,400})|'([^']{1,400}))", re.IGNORECASE)
_UNSEEN = re.compile(r"<(script|style|noscript|template|svg|textarea|select|iframe|!--)(?=[\s>/-]|$)", re.IGNORECASE)
_BREAK = re.compile(
    r"<(/?)(p|div|li|ul|ol|td|th|tr|table|h[1-6]|br|section|article|main|header|blockquote|pre|dd|dt|title|body"
    r"|figcaption|nav|footer|aside|head)(?=[\s>/])[^<>]*>?",
    re.IGNORECASE,
)
_BLANKS = re.compile(r"\s*")
_TAG = re.compile(r"</?[A-Za-z!][^<>]*>?")
_COUNTED = (("<a ", "link"), ("<img", "image"), ("<form", "form"), ("<table", "table"), ("<script", "script"))
_MENU_TAGS = frozenset({"nav", "footer", "aside", "head"})
_HEADINGS = frozenset({"title", "h1", "h2", "h3"})
_ARTICLE_TAGS = frozenset({"article", "main"})


class _Piece(NamedTuple):
    """The text between two tags that break the line, with its offset and the tag of its heading, if any."""

    start: int
    end: int
    heading: str
    is_menu: bool


def page_digest(lines: Sequence[str]) -> Digest | None:
    """Summarize an HTML page; lines that a view wrapped are joined.

    Returns:
        The title, counts, headings with their lines, and the first paragraphs of the article. None if the text is not a
        page.
    """
    if not _is_page(lines):
        return None
    page = _Page(lines)
    if page.source.count("<") < _LEAST_TAGS and not page.title:
        return None
    counts = [(page.source.count(tag) + page.source.count(tag.upper()), noun) for tag, noun in _COUNTED]
    sizes = ", ".join([counted(len(lines), "line"), *(counted(count, noun) for count, noun in counts if count)])
    facts = [fact(f"Web page (HTML, {sizes}): {page.title[:140] or 'without a title'}")]
    headings = page.headings
    if len(headings) > _SHOWN_HEADINGS:  # those of the article first, by level
        headings = sorted(
            headings, key=lambda one: (one[0].heading != "h1", one[0].start < page.head, one[0].heading, one[0].start)
        )
    items = (
        f"{piece.heading} {text[:_HEADING_CHARS].removesuffix('[edit]')} :{page.line_of(piece.start)[0]}"
        for piece, text in headings
    )
    facts += rows("Headings", items, most=3)
    if not page.texts and (description := page.description()):
        facts.append(fact(f"Description: {description[:_SHOWN_TEXT_CHARS]}"))
    texts = [
        fact(f"Text :{page.line_of(piece.start)[0]}: {text[: _SHOWN_TEXT_CHARS if not rank else _MORE_TEXT_CHARS]}")
        for rank, (piece, text) in enumerate(page.texts)
    ]
    shown = [page.line_of(piece.start) for piece, _ in (*page.texts[:1], *headings[:_SHOWN_HEADINGS])]
    findings = tuple(Finding(number, 58.0 - place, column=column) for place, (number, column) in enumerate(shown))
    scripts = frozenset(number for number, line in enumerate(lines, 1) if len(line) > _SCRIPT_CHARS)
    facts = [*facts[:2], *texts[:2], *facts[2:]]
    return Digest(tuple(facts), findings, parts=tuple(texts[2:]), quoted=scripts, is_free=True)


def page_headings(lines: Sequence[str], most: int) -> list[str]:
    """Return the title and the first headings of an HTML page; empty if the text is not a page."""
    if not _is_page(lines):
        return []
    page = _Page(lines)
    found = (page.title, *(text for _, text in page.headings))
    return list(dict.fromkeys(text[:_HEADING_CHARS] for text in found if text))[:most]


def _is_page(lines: Sequence[str]) -> bool:
    head = "\n".join(line[:_PIECE_CHARS] for line in lines[:120])[:20_000]
    found = _DOCUMENT.search(head)
    # A program may contain a page in a string: a real page begins as one, or has tags in nearly every line.
    if found is not None:
        # Comments, response headers or a few lines by its fetcher may precede a page.
        before = head[: found.start()].lstrip("\ufeff\r\n\t ")
        is_short = before.count("\n") <= _PREAMBLE_LINES and (not before or before.endswith("\n"))
        if is_short or before.startswith(("<", "HTTP/")):
            return True
    sample = sampled(lines, 200)
    begins = sum(line.lstrip().startswith("<") for line in sample)
    if 2 * begins <= len(sample):
        return False
    elements = sum(_ELEMENT.search(line) is not None for line in sample)
    return elements >= _LEAST_TAGS and 2 * elements > len(sample)


class _Page:
    """A page, cut at the tags that break lines; other tags are removed only from the text that is shown."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._skipped = [len(CONTINUED) if line.startswith(CONTINUED) else 0 for line in lines]
        pieces = [line[skipped:] for line, skipped in zip(lines, self._skipped, strict=True)]
        self.source = "\n".join(pieces)[:_MAX_CHARS]
        self.text = _visible(self.source)
        self._starts = list(accumulate((len(piece) + 1 for piece in pieces), initial=0))
        self._article = 0
        found = list(islice(self._cut(), _MAX_PIECES))
        headings = [(piece, self.words(piece)) for piece in found if piece.heading]
        self.title = next((text for piece, text in headings if piece.heading == "title" and text), "")
        self.headings = [(piece, text) for piece, text in headings if piece.heading != "title" and text]
        self.head = max(self._article, next((piece.start for piece, _ in self.headings if piece.heading == "h1"), 0))
        self.texts = self._first_texts([piece for piece in found if not piece.heading and not piece.is_menu])

    def line_of(self, position: int) -> tuple[int, int]:
        """Return the line number and column of an offset."""
        number = bisect_right(self._starts, position)
        return number, position - self._starts[number - 1] + self._skipped[number - 1]

    def words(self, piece: _Piece) -> str:
        text = self.text[piece.start : min(piece.end, piece.start + 4 * _PIECE_CHARS)]
        return " ".join(unescape(_TAG.sub("", text)).split())[:_PIECE_CHARS]

    def description(self) -> str:
        """Return the description in the head of the page."""
        found = _DESCRIPTION.search(self.text)
        element = self.text[found.start() : found.start() + 2 * _MAX_ATTRIBUTE_CHARS] if found is not None else ""
        content = _CONTENT.search(element)
        return " ".join(unescape(content[1] or content[2]).split()) if content is not None else ""

    def _cut(self) -> Iterator[_Piece]:
        start, heading, menus = 0, "", 0
        for found in _BREAK.finditer(self.text):
            is_end, tag = bool(found[1]), found[2].lower()
            if tag == "br" and heading:
                continue
            if heading or found.start() - start >= _SENTENCE_CHARS:
                yield from self._piece(start, found.start(), heading, is_menu=menus > 0)
            start = found.end()
            if tag in _HEADINGS:
                heading = "" if is_end else tag
            elif tag in _MENU_TAGS:
                menus = max(menus + (-1 if is_end else 1), 0)
            elif tag in _ARTICLE_TAGS and not is_end and not self._article:
                self._article = start
        yield from self._piece(start, len(self.text), heading, is_menu=menus > 0)

    def _piece(self, start: int, end: int, heading: str, *, is_menu: bool) -> Iterator[_Piece]:
        """Yield the piece without the blanks before it, if it is a heading or long enough for a sentence."""
        blanks = _BLANKS.match(self.text, start, end)
        start = blanks.end() if blanks is not None else start
        if start < end and (heading or end - start >= _SENTENCE_CHARS):
            yield _Piece(start, end, heading, is_menu)

    def _first_texts(self, pieces: Sequence[_Piece]) -> list[tuple[_Piece, str]]:
        """Return the first sentences of the article: menus come before it."""
        for after in (self.head, 0):
            texts = ((piece, self.words(piece)) for piece in pieces if piece.start >= after)
            sentences = ((piece, text) for piece, text in texts if len(text) >= _SENTENCE_CHARS and " " in text)
            if found := list(islice(sentences, _SHOWN_TEXTS)):
                return found
        return []


def _visible(text: str) -> str:
    """Return *text* with blanks in place of scripts, styles and comments."""
    parts, end, missing = list[str](), 0, set[str]()
    for found in _UNSEEN.finditer(text):
        tag = found[1].lower()
        if found.start() < end or tag in missing:
            continue
        last = text.find("-->" if tag == "!--" else f"</{found[1]}", found.end())
        if last < 0:
            missing.add(tag)
            continue
        parts.append(text[end : found.start()])
        end = last + 3 if tag == "!--" else text.find(">", last) + 1 or len(text)
        parts.append(" " * (end - found.start()))
    return "".join([*parts, text[end:]])
