"""Where the demo prints: paragraphs, lines and titles, as wide and as colourful as the terminal allows."""

import textwrap
from typing import TypeAlias

from rich.console import Console
from rich.text import Text

from buoyline.offloader.lines import visible

MIN_WIDTH, MAX_WIDTH = 40, 110
"""Shorter lines hold nothing, and longer ones are hard to read, whatever the terminal's width."""

Part: TypeAlias = str | tuple[str, str] | Text
"""A text as it is, a text and its style, or one that has its styles."""


class Page:
    """Prints on a console. Where that is a file or a pipe, no colour is used, and no long line is broken."""

    def __init__(self, console: Console) -> None:
        """Print on *console*."""
        self.console = console
        self.width = max(min(console.width, MAX_WIDTH), MIN_WIDTH)
        self.is_ascii = console.options.ascii_only

    def title(self, text: str) -> None:
        """Begin a part."""
        self.line()
        rule = "-" if self.is_ascii else "─"
        self.line((f"{rule}{rule} ", "dim"), (text, "bold"), (f" {rule * (self.width - len(text) - 4)}", "dim"))

    def paragraph(self, text: str, *, label: str = "", style: str = "") -> None:
        """Print *text* in lines, the first behind *label*, the others below it."""
        room = self.width - len(label)
        lines = textwrap.wrap(visible(text), room, break_long_words=False, break_on_hyphens=False)
        for number, line in enumerate(lines):
            self.line((" " * len(label) if number else label, style), line)

    def line(self, *parts: Part) -> None:
        """Print a line, with control characters as escapes."""
        text = Text.assemble(*map(_shown, parts))
        text.rstrip()
        self.console.print(text, soft_wrap=True)

    def glyph(self, sign: str, substitute: str) -> str:
        """Return *sign*, or *substitute* where the output can show nothing but ASCII."""
        return substitute if self.is_ascii else sign


def _shown(part: Part) -> Part:
    match part:
        case str():
            return visible(part)
        case (text, style):
            return visible(text), style
        case _:
            return part
