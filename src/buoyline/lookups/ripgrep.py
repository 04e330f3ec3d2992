"""ripgrep as a child process that says in which lines to look.

It is given an open file as its standard input, so it opens nothing: no link, no file that was swapped meanwhile, and
neither its configuration nor ignore files have a say.
"""

import os
import re
import select
import shutil
import subprocess
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

from buoyline.lookups.hits import LineStart
from buoyline.workspace._files import Handle

_OPTIONS = (
    "--no-config",
    "--text",
    "--encoding=none",
    "--line-number",
    "--byte-offset",
    "--no-heading",
    "--no-filename",
    "--color=never",
    "--max-columns=1",  # the place is enough: a line may have 100 MB
)
_PLACE = re.compile(rb"([0-9]{1,18}):([0-9]{1,18}):[^\n]*\n")
_MAX_SILENT_LOOKS = 300
_LOOK_MS = 100
_READ_BYTES = 1 << 16
_DONE = (0, 1)  # with matches, and without


def program() -> str | None:
    """Return the path of ripgrep; None where it is not installed."""
    return shutil.which("rg")


class Ripgrep:
    """One search by ripgrep, from the beginning of a line on.

    At the end of the ``with`` block the child is gone, whatever it was doing.

    Attributes:
        is_complete: Whether it came to the end of the file: False before, if it failed, if the time was up, and if it
            kept silent for thirty seconds.
    """

    def __init__(
        self, executable: str, handle: Handle, first: LineStart, pattern: str, is_over: Callable[[], bool]
    ) -> None:
        """Prepare to search what is behind *first* in the file of *handle* for *pattern*, in ripgrep's syntax.

        While the child is silent, *is_over* is asked ten times a second whether to stop.
        """
        self._command = [executable, *_OPTIONS, f"--regexp={pattern}", "--", "-"]
        self._handle = handle
        self._first = first
        self._is_over = is_over
        self.is_complete = False

    def __enter__(self) -> Self:
        """Start the child; without one there are no lines."""
        self._child = _started(self._command, self._handle, self._first.offset)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the child."""
        if self._child is not None:
            self._child.kill()
            self._child.__exit__(kind, error, trace)

    def lines(self) -> Iterator[LineStart]:
        """Yield the lines that match, in order."""
        held = b""
        while piece := self._output():
            held += piece
            end = 0
            for place in _PLACE.finditer(held):
                end = place.end()
                yield LineStart(self._first.number + int(place[1]) - 1, self._first.offset + int(place[2]))
            held = held[end:]

    def _output(self) -> bytes:
        """Return what the child has written since, nothing at its end."""
        if self._child is None or self._child.stdout is None:
            return b""
        poll = select.poll()
        poll.register(self._child.stdout, select.POLLIN)
        for _ in range(_MAX_SILENT_LOOKS):
            if self._is_over():
                return b""
            if poll.poll(_LOOK_MS):
                break
        else:
            return b""
        piece = os.read(self._child.stdout.fileno(), _READ_BYTES)
        if not piece:
            self.is_complete = self._child.wait() in _DONE
        return piece


def _started(command: list[str], handle: Handle, offset: int) -> "subprocess.Popen[bytes] | None":
    try:
        return subprocess.Popen(  # noqa: S603 - no shell, and a pattern cannot be taken for an option
            command, stdin=handle.descriptor_at(offset), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
    except OSError:  # no process or descriptor left, or what is called rg cannot be run
        return None
