"""Output of commands: JSON for programs, lines and columns for people.

Columns are our own: rich would take 0.1 s to import, and it formats cells that may hold any text.
"""

import logging
import re
import sys
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import click

from buoyline.messages import spell
from buoyline.previews.source import visible
from buoyline.workspace import LocalWorkspace

if TYPE_CHECKING:
    from rich.progress import Progress


def print_lines(lines: Iterable[str], *, is_error: bool = False) -> None:
    """Print lines, with control and bidirectional characters as escapes.

    Every command prints through this function, on stdout and on stderr, so that no file, name or argument can control a
    terminal.
    """
    for line in lines:
        click.echo(_escaped(line), err=is_error)


def _escaped(line: str) -> str:
    return visible(line).replace("\n", "\\n")


def print_json(value: object) -> None:
    """Print one JSON value on one line. `print_lines` escapes as JSON does, so the value is the same."""
    print_lines([spell(value)])


def print_answer(value: object, lines: Iterable[str], *, as_json: bool) -> None:
    """Print *value* as JSON, or *lines*."""
    if as_json:
        print_json(value)
    else:
        print_lines(lines)


def print_text(text: str) -> None:
    """Print *text*, with a line end if it has none."""
    print_lines(text.removesuffix("\n").split("\n"))


def print_notices(notices: Iterable[str]) -> None:
    """Print each of *notices* as one line on stderr."""
    print_lines((f"buoyline: {' '.join(notice.split())}" for notice in notices), is_error=True)


class NoticeHandler(logging.Handler):
    """Prints what the library logs as `print_notices` does; Python would print warnings without a prefix."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one record."""
        print_notices([record.getMessage()])


def print_problems(problems: Sequence[str]) -> int:
    """Print on stderr why an answer is incomplete; return the exit status."""
    print_notices(problems)
    return 1 if problems else 0


def counted(count: int, word: str, plural: str = "") -> str:
    """Return a number with its word, e.g. ``1 file`` or ``2,000 files``."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {plural or f'{word}s'}"


def columns(rows: Sequence[Sequence[str | int]]) -> Iterator[str]:
    """Yield *rows*, all of the same length, in columns, the heading first; numbers are aligned right."""
    shown = [[f"{cell:,}" if isinstance(cell, int) else _escaped(cell) for cell in row] for row in rows]
    is_number = [isinstance(cell, int) for cell in rows[-1]]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    for row in shown:
        cells = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, is_number, strict=True)
        )
        yield "  ".join(cells).rstrip()


def cut(text: str, chars: int) -> str:
    """Return *text*, or its beginning and an ellipsis, in at most *chars* characters."""
    return text if len(text) <= chars else f"{text[: chars - 1]}…"


_QUANTITY = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?) ?([A-Za-z]{0,3})", re.ASCII)
_SECONDS: Mapping[str, float] = MappingProxyType(
    {"s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400, "w": 7 * 86_400, "y": 365 * 86_400}
)
_BYTES: Mapping[str, float] = MappingProxyType(
    {
        "": 1,
        "b": 1,
        **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)},
        **{letter: 1000**power for power, letter in enumerate("kmgt", 1)},
        **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", 1)},
    }
)
_LONGEST_FIRST = (("day", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def duration_in_words(seconds: float) -> str:
    """Return a time in its largest unit, e.g. ``5 min`` or ``30 days``."""
    name, unit = next((each for each in _LONGEST_FIRST if seconds >= each[1]), _LONGEST_FIRST[-1])
    count = int(seconds // unit)
    return f"{count:,} {name}s" if name == "day" and count != 1 else f"{count:,} {name}"


def local_time(time: str) -> str:
    """Return an ISO 8601 time as local time to the second; any other text unchanged."""
    moment = _moment(time)
    return time if moment is None else f"{moment:%Y-%m-%d %H:%M:%S}"


def how_long_ago(time: str, now: datetime | None = None) -> str:
    """Return an ISO 8601 time as ``5 min ago``; a time in the future and any other text as `local_time` does."""
    moment = _moment(time)
    if moment is None or (seconds := ((now or datetime.now(UTC)) - moment).total_seconds()) < 0:
        return local_time(time)
    return f"{duration_in_words(seconds)} ago"


if TYPE_CHECKING:
    _FloatType = click.ParamType[float]
    _IntType = click.ParamType[int]
else:  # the oldest click that pyproject.toml allows has no parameters for its types
    _FloatType = _IntType = click.ParamType


def _moment(time: str) -> datetime | None:
    try:
        return datetime.fromisoformat(time).astimezone()
    except ValueError:
        return None


class Duration(_FloatType):
    """A time such as ``30d``, ``24h``, ``90m`` or ``0``, in seconds. A number needs its unit."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds."""
        if isinstance(value, float | int):
            return float(value)
        text = str(value).strip()
        if text == "0":
            return 0.0
        if text.isdecimal():
            units = f"write {text}d for days, {text}h for hours or {text}m for minutes"
            return self.fail(f"{text} needs a unit: {units}", param, ctx)
        found = _quantity(text, _SECONDS)
        return self.fail(f"{value!r} is not a time such as 30d, 24h, 90m or 0", param, ctx) if found is None else found


class Size(_IntType):
    """A size such as ``10GB``, ``500MiB`` or ``0``, in bytes, which are also the default unit."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the bytes."""
        found = float(value) if isinstance(value, int) else _quantity(str(value), _BYTES)
        return self.fail(f"{value!r} is not a size such as 10GB or 500MiB", param, ctx) if found is None else int(found)


def _quantity(text: str, units: Mapping[str, float]) -> float | None:
    match = _QUANTITY.fullmatch(text.strip())
    unit = units.get(match[2].lower()) if match else None
    return float(match[1]) * unit if match and unit is not None else None


class Advance:
    """Moves a progress bar. It appears with the first step, so that quick work shows none."""

    def __init__(self, bar: "Progress", label: str) -> None:
        """Move *bar*, labelled *label*."""
        self._bar = bar
        self._task = bar.add_task(label, total=None)

    def __call__(self, done: int, total: int | None = None) -> None:
        """Show that *done* of *total* were read; None if the total is not known."""
        self._bar.update(self._task, completed=done, total=total)

    def more(self, done: int) -> None:
        """Show that *done* more were read."""
        self._bar.update(self._task, advance=done)


@contextmanager
def progress(label: str, *, of_bytes: bool = True) -> Generator[Advance | None]:
    """Show a progress bar of bytes, or of things, on stderr; yield None without rich if that is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console  # noqa: PLC0415 - 0.1 s
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn  # noqa: PLC0415

    count = DownloadColumn() if of_bytes else MofNCompleteColumn()
    with Progress(TextColumn(label), BarColumn(), count, console=Console(stderr=True), transient=True) as bar:
        yield Advance(bar, label)


workdir_option = click.option(
    "--workdir",
    type=click.Path(path_type=Path, file_okay=False),
    default="./workspace",
    envvar="BUOYLINE_WORKDIR",
    show_default=True,
    # Not show_envvar: click would name the variable in every error about --workdir, even if it is not set.
    help="Directory of the workspace; BUOYLINE_WORKDIR is used if it is set.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON value.")


def existing_workspace(workdir: Path) -> LocalWorkspace:
    """Return the workspace in *workdir* for reading; nothing is created.

    Raises:
        NotFoundError: It does not exist.
        FormatVersionError: A newer buoyline wrote it.
        CorruptError: It does not say which format it has.
    """
    workspace = LocalWorkspace(workdir)
    workspace.check()
    return workspace
