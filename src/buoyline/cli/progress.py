"""A bar on a terminal's stderr for work that reads many bytes; rich is imported only if stderr is a terminal."""

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress


class Advance:
    """Moves the bar; it appears with the first bytes, so that quick work shows none."""

    def __init__(self, bar: "Progress", label: str) -> None:
        """Move *bar*, called *label*."""
        self._bar = bar
        self._task = bar.add_task(label, total=None)

    def __call__(self, bytes_read: int, total_bytes: int | None = None) -> None:
        """Show that *bytes_read* of *total_bytes* were read; None where nobody knows how many there are."""
        self._bar.update(self._task, completed=bytes_read, total=total_bytes)

    def more(self, bytes_read: int) -> None:
        """Show that *bytes_read* more bytes were read."""
        self._bar.update(self._task, advance=bytes_read)


def progress(label: str) -> "AbstractContextManager[Progress | None]":
    """Return a bar called *label*; None where stderr is no terminal."""
    if sys.stderr is None or not sys.stderr.isatty():  # None: closed by the shell
        return nullcontext()
    from rich.console import Console  # noqa: PLC0415 - 0.1 s
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn  # noqa: PLC0415 - 0.1 s

    console = Console(stderr=True)
    return Progress(TextColumn(label), BarColumn(), DownloadColumn(), console=console, transient=True)
