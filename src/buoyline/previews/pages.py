"""HTML pages as text."""

import re
from html import unescape
from typing import Final

from resiliparse.extract.html2text import extract_plain_text
from resiliparse.parse.html import HTMLTree

_HEAD_CHARS = 20_000
_PREAMBLE_LINES = 4
_MAX_DEPTH = 2_000
"""The parser takes quadratic time for nested elements: 2,000 take 40 ms, 20,000 take 4 s."""

_DOCUMENT: Final = re.compile(r"<(?:!doctype html|html|head|body)[\s>]", re.IGNORECASE)
_NESTED: Final = re.compile(
    r"<(/?)(?!area|base|br|col|embed|hr|img|input|li|link|meta|p\b|source|td|tr|wbr)[a-z]", re.IGNORECASE
)
_HEADING: Final = re.compile(r"<h([1-6])>(.*?)</h\1>", re.DOTALL)
_TAG: Final = re.compile(r"</?[a-z][a-z0-9]*>")


def is_page(text: str) -> bool:
    """Check whether *text* begins as an HTML page, apart from a few lines before it; a program may quote a page.

    One that is nested too deeply for the parser is none: it is shown by its lines.
    """
    found = _DOCUMENT.search(text[:_HEAD_CHARS])
    before = text[: found.start()].split("\n") if found is not None else []
    begins = 0 < len(before) <= _PREAMBLE_LINES and not before[-1].strip("\ufeff \t")
    return begins and _depth(text) <= _MAX_DEPTH


def page_text(html: str) -> str:
    """Return the title of a page and its main text, a block a line; headings begin with ``#``."""
    tree = HTMLTree.parse(html.encode("utf-8", "replace").decode())
    found = extract_plain_text(tree, main_content=True, preserve_formatting="minimal_html")
    found = found or extract_plain_text(tree, preserve_formatting="minimal_html")
    blocks = _HEADING.sub(lambda heading: f"\n{'#' * int(heading[1])} {_in_one_line(heading[2])}\n", found)
    lines = (_in_one_line(block) for block in re.split(r"\n\n|<br>", blocks))
    return "\n".join(filter(None, (_in_one_line(tree.title or ""), *lines))) or "(This page has no text.)"


def _in_one_line(text: str) -> str:
    return " ".join(unescape(_TAG.sub(" ", text)).split())


def _depth(html: str) -> int:
    """Return how deep elements are nested at most, counting end tags as those of any element."""
    depth = deepest = 0
    for found in _NESTED.finditer(html):
        depth = max(depth + (-1 if found[1] else 1), 0)
        deepest = max(deepest, depth)
    return deepest
