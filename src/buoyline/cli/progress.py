"""A bar on a terminal's stderr for work that reads many bytes; nothing where nobody watches."""

from contextlib import AbstractContextManager, nullcontext

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn


class Advance:
    """Moves the bar; it appears with the first bytes, so that quick work shows none."""

    def __init__(self, bar: Progress, label: str) -> None:
        """Move *bar*, called *label*."""
        self._bar = bar
        self._task = bar.add_task(label, total=None)

    def __call__(self, bytes_read: int, total_bytes: int | None = None) -> None:
        """Show that *bytes_read* of *total_bytes* were read; None where nobody knows how many there are."""
        self._bar.update(self._task, completed=bytes_read, total=total_bytes)

    def more(self, bytes_read: int) -> None:
        """Show that *bytes_read* more bytes were read."""
        self._bar.update(self._task, advance=bytes_read)


def progress(label: str) -> AbstractContextManager[Progress | None]:
    """Return a bar called *label*; None where stderr is no terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        return nullcontext()
    return Progress(TextColumn(label), BarColumn(), DownloadColumn(), console=console, transient=True)
