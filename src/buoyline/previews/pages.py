"""HTML pages as text.

Tags that break lines are found by a pattern: `html.parser` takes quadratic time on hostile pages.
"""

import re
from html import unescape
from typing import Final

_HEAD_CHARS = 20_000
_PREAMBLE_LINES = 4
_BLOCK_CHARS = 16_000

_DOCUMENT: Final = re.compile(r"<(?:!doctype html|html|head|body)[\s>]", re.IGNORECASE)
_UNSEEN: Final = re.compile(
    r"<(script|style|noscript|template|svg|textarea|select|iframe|!--)(?=[\s>/-]|$)", re.IGNORECASE
)
_BREAK: Final = re.compile(
    r"<(/?)(p|div|li|ul|ol|td|th|tr|table|h[1-6]|br|section|article|main|header|blockquote|pre|dd|dt|title|body"
    r"|figcaption|nav|footer|aside|head)(?=[\s>/])[^<>]*>?",
    re.IGNORECASE,
)
_TAG: Final = re.compile(r"</?[A-Za-z!][^<>]*>?")
_MENUS: Final = frozenset({"nav", "footer", "aside", "head"})
_HEADING: Final = re.compile("h[1-6]")


def is_page(text: str) -> bool:
    """Check whether *text* begins as an HTML page, apart from a few lines before it; a program may quote a page."""
    found = _DOCUMENT.search(text[:_HEAD_CHARS])
    before = text[: found.start()].split("\n") if found is not None else []
    return 0 < len(before) <= _PREAMBLE_LINES and not before[-1].strip("\ufeff \t")


def page_text(html: str) -> str:
    """Return the title of a page and its text from the article or the first heading on, a block a line.

    Headings begin with ``#``; scripts, styles, menus and footers are left out.
    """
    text = _visible(html)
    blocks, title = list[tuple[int, str]](), ""
    start, tag, menus, article, heading = 0, "", 0, 0, 0
    for found in _BREAK.finditer(text):
        words = " ".join(unescape(_TAG.sub("", text[start : min(found.start(), start + _BLOCK_CHARS)])).split())
        if words and tag == "title":
            title = title or words
        elif words and not menus:
            level = int(tag[1]) if _HEADING.fullmatch(tag) else 0
            blocks.append((start, f"{'#' * level} {words}" if level else words))
        is_end, name, start = bool(found[1]), found[2].lower(), found.end()
        if name in _MENUS:
            menus = max(menus + (-1 if is_end else 1), 0)
        if name in {"article", "main"} and not is_end:
            article = article or start
        if name == "h1" and not is_end:
            heading = heading or start
        tag = "" if is_end else name
    head = max(article, heading)
    shown = [words for place, words in blocks if place >= head] or [words for _, words in blocks]
    return "\n".join([*([title] if title else []), *shown]) or "(This page has no text.)"


def _visible(html: str) -> str:
    """Return *html* without scripts, styles and comments."""
    parts, end, missing = list[str](), 0, set[str]()
    for found in _UNSEEN.finditer(html):
        tag = found[1].lower()
        if found.start() < end or tag in missing:
            continue
        last = html.find("-->" if tag == "!--" else f"</{found[1]}", found.end())
        if last < 0:
            missing.add(tag)
            continue
        parts.append(html[end : found.start()])
        end = html.find(">", last) + 1 or len(html)
    return "".join([*parts, html[end:]])
