"""Notices of the operating system that something in a directory has changed, through watchfiles."""

import threading
import time
from collections.abc import Generator, Mapping
from pathlib import PurePath
from types import TracebackType
from typing import Self

from watchfiles import Change, watch

from buoyline.workspace import layout

# watchfiles collects changes while these milliseconds bring new ones, for as many as the second number says.
_STEP_MS = 50
_DEBOUNCE_MS = 100

Identities = Mapping[str, tuple[int, int]]
"""Directories to hear of, by absolute path, each with its device and inode, which tell it from its successor."""


class Notices:
    """Waits until something changes in one of several directories.

    A notice says no more than that it is worth looking, and may be lost: on network file systems, where the
    kernel's watches are used up, or between two looks. Whoever needs to know looks now and then without one.
    Each directory is watched for itself and not with all below it, since watching a tree follows its links.
    """

    def __init__(self, stop: threading.Event) -> None:
        """Wait only until *stop* is set."""
        self._stop = stop
        self._directories: Identities = {}
        self._changes: Generator[set[tuple[Change, str]]] | None = None

    def __enter__(self) -> Self:
        """Return the notices."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Stop watching."""
        self._close()

    def expect(self, directories: Identities) -> bool:
        """Watch *directories* from now on.

        Returns:
            Whether that is new, so that a change before it may have passed unnoticed.
        """
        if directories == self._directories:
            return False
        self._close()
        self._changes = watch(
            *directories,
            watch_filter=_is_telling,
            recursive=False,
            step=_STEP_MS,
            debounce=_DEBOUNCE_MS,
            rust_timeout=_STEP_MS,
            yield_on_timeout=True,
            ignore_permission_denied=True,
            stop_event=self._stop,
        )
        # The first step sets the watches up, and ends after the timeout at the latest.
        if self._next() is None:
            return False
        self._directories = dict(directories)
        return True

    def wait(self, timeout_s: float) -> frozenset[str]:
        """Return the paths that have changed; none when *timeout_s* is over, or waiting was stopped."""
        until = time.monotonic() + timeout_s
        while not self._stop.is_set() and (rest_s := until - time.monotonic()) > 0:
            if self._changes is None:
                self._stop.wait(rest_s)
            elif changes := self._next():
                return frozenset(path for _, path in changes)
        return frozenset()

    def _next(self) -> set[tuple[Change, str]] | None:
        """Return what changed within the next moment; None, and no watches any more, when that cannot be known."""
        try:
            changes = None if self._changes is None else next(self._changes, None)
        except (OSError, RuntimeError):
            # A directory went meanwhile, or there are no more watches to be had; then there are no notices.
            changes = None
        if changes is None or any(change is Change.deleted and path in self._directories for change, path in changes):
            self._close()
        return changes

    def _close(self) -> None:
        if self._changes is not None:
            self._changes.close()
        self._directories, self._changes = {}, None


def _is_telling(change: Change, path: str) -> bool:
    """Leave out what says nothing of its own: unfinished files, and what is written along with the journal."""
    name = PurePath(path).name
    is_derived = change is Change.modified and name in {layout.TRANSCRIPT_FILE, layout.WINDOW_FILE}
    return not name.startswith(layout.TEMPORARY_PREFIX) and not is_derived
