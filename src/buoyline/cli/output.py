"""How commands print: JSON for programs, columns and trees for people."""

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

import click

from buoyline.messages import spell
from buoyline.offloader.lines import visible

_GAP = 2
_LEAST_TEXT = 8
_LABEL = re.compile(r" *(?:\S[^ ]*(?: \S+)? {2,})?")


def print_lines(lines: Iterable[str], *, is_error: bool = False) -> None:
    """Print lines, with control and bidirectional characters as escapes.

    Every command prints through this function, on stdout and on stderr: no file, name or argument can send
    commands to a terminal.
    """
    for line in lines:
        click.echo(_escaped(line), err=is_error)


def print_report(lines: Iterable[str], colours: Mapping[str, str] = MappingProxyType({})) -> None:
    """Print lines for people: on a terminal, long lines are broken between words, and words are coloured.

    Args:
        lines: As for `print_lines`.
        colours: For a word, its colour if it begins a line, or follows two blanks.
    """
    width = terminal_width()
    for line in lines:
        for piece in broken(_escaped(line), width):
            click.echo(_coloured(piece, colours))


def terminal_width() -> int | None:
    """Return how many characters a line of the terminal has; None if the output goes elsewhere."""
    if sys.stdout is None or not sys.stdout.isatty():  # None: closed by the shell
        return None
    return shutil.get_terminal_size().columns


def broken(line: str, width: int | None) -> list[str]:
    """Return *line* in pieces that fit into *width*; further pieces are indented below the text behind a label."""
    if width is None or len(line) <= width:
        return [line]
    label = _LABEL.match(line)
    indent = " " * (label.end() if label and label.end() < width // 2 else 2)
    return textwrap.wrap(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _escaped(line: str) -> str:
    return visible(line).replace("\n", "\\n")


def _coloured(line: str, colours: Mapping[str, str]) -> str:
    if not colours or "NO_COLOR" in os.environ:
        return line
    pattern = rf"(?:^|(?<=  ))(?:{'|'.join(map(re.escape, colours))})\b"
    return re.sub(pattern, lambda found: click.style(found[0], fg=colours[found[0]], bold=True), line, count=1)


def print_json(value: object) -> None:
    """Print one JSON value on one line; the escapes of `print_lines` are JSON's own, so the value is the same."""
    print_lines([spell(value)])


def print_text(text: str) -> None:
    """Print *text*, with a line end if it has none."""
    print_lines(text.removesuffix("\n").split("\n"))


def print_notices(notices: Iterable[str]) -> None:
    """Print each of *notices* on one line of stderr."""
    print_lines((f"buoyline: {' '.join(notice.split())}" for notice in notices), is_error=True)


def print_problems(problems: Sequence[str]) -> int:
    """Print on stderr why an answer is incomplete; return the exit status that follows."""
    print_notices(problems)
    return 1 if problems else 0


def counted(count: int, word: str, plural: str = "") -> str:
    """Return so many of what *word* names, in the plural if they are not one."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {plural or f'{word}s'}"


def columns(rows: Sequence[Sequence[str | int]], width: int | None = None) -> Iterator[str]:
    """Yield *rows*, of which the first is the heading, in columns; numbers are aligned right.

    Args:
        rows: All of the same length.
        width: Of the lines; None for any. In a narrow table the widest texts are cut, and a text in the last column
            is continued below.
    """
    shown = [[f"{cell:,}" if isinstance(cell, int) else _escaped(cell) for cell in row] for row in rows]
    is_number = [isinstance(cell, int) for cell in rows[-1]]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    if width is not None:
        _narrow(widths, is_number, width - _GAP * (len(widths) - 1))
    *before, last = widths
    indent = " " * (sum(before) + _GAP * len(before))
    for row in shown:
        cells = (
            cell.rjust(size) if right else _cut(cell, size).ljust(size)
            for cell, size, right in zip(row[:-1], before, is_number, strict=False)
        )
        last_cell = row[-1].rjust(last) if is_number[-1] else row[-1]
        first, *others = textwrap.wrap(last_cell, last) if len(last_cell) > last else [last_cell]
        yield (" " * _GAP).join((*cells, first)).rstrip()
        yield from (f"{indent}{piece}" for piece in others)


def _narrow(widths: list[int], is_number: Sequence[bool], room: int) -> None:
    """Make texts narrower, the widest first and none below `_LEAST_TEXT`, until all *widths* fit into *room*."""
    while sum(widths) > room:
        widest = max(range(len(widths)), key=lambda place: 0 if is_number[place] else widths[place])
        if is_number[widest] or widths[widest] <= _LEAST_TEXT:
            return
        widths[widest] -= 1


def _cut(text: str, chars: int) -> str:
    return text if len(text) <= chars else f"{text[: chars - 1]}…"


def branches(entries: Sequence[str]) -> Iterator[str]:
    """Yield *entries* as the branches of a tree."""
    for place, entry in enumerate(entries, 1):
        yield f"{'└──' if place == len(entries) else '├──'} {entry}"
