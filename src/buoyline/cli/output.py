"""How commands print: JSON for programs, columns and trees for people."""

from collections.abc import Iterable, Iterator, Sequence

import click

from buoyline.messages import spell
from buoyline.offloader.lines import visible


def print_json(value: object) -> None:
    """Print one JSON value on one line."""
    click.echo(spell(value))


def print_text(text: str) -> None:
    """Print *text* as it is, with a line end if it has none."""
    click.echo(text.removesuffix("\n"))


def print_lines(lines: Iterable[str]) -> None:
    """Print lines, with control characters as escapes: what a session holds must not drive the terminal."""
    for line in lines:
        click.echo(visible(line).replace("\n", "\\n"))


def print_problems(problems: Sequence[str]) -> int:
    """Print what kept an answer from being whole on stderr; return the exit status that follows."""
    for problem in problems:
        click.echo(f"buoyline: {visible(' '.join(problem.split()))}", err=True)
    return 1 if problems else 0


def counted(count: int, word: str) -> str:
    """Return so many of what *word* names, in the plural where they are not one."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def columns(rows: Sequence[Sequence[str | int]]) -> Iterator[str]:
    """Yield *rows*, of which the first is the heading, in columns; numbers stand at the right."""
    shown = [[f"{cell:,}" if isinstance(cell, int) else cell for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    is_number = [isinstance(cell, int) for cell in rows[-1]]
    for row in shown:
        cells = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, is_number, strict=True)
        )
        yield "  ".join(cells).rstrip()


def branches(entries: Sequence[str]) -> Iterator[str]:
    """Yield *entries* as the branches of a tree."""
    for place, entry in enumerate(entries, 1):
        yield f"{'└──' if place == len(entries) else '├──'} {entry}"
