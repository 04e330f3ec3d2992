"""A file system that ignores case and Unicode forms, as those of macOS and Windows do: over the one there is.

Only the calls are changed that the workspace makes, which name one entry of an open directory at a time.
"""

import functools
import os
from typing import Any

import pytest

from buoyline.workspace import layout


def fold_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every call find the entry whose name is equal up to case and normal form."""
    for call in ("open", "stat", "unlink", "mkdir", "rmdir", "utime", "chmod"):
        monkeypatch.setattr(os, call, _folding(getattr(os, call)))
    for call in ("link", "rename"):
        monkeypatch.setattr(os, call, _folding_both(getattr(os, call)))


def _folding(call: Any) -> Any:
    @functools.wraps(call)
    def wrapped(path: Any, *args: Any, dir_fd: int | None = None, **options: Any) -> Any:
        if dir_fd is None:
            return call(path, *args, **options)
        return call(_there(path, dir_fd), *args, dir_fd=dir_fd, **options)

    return wrapped


def _folding_both(call: Any) -> Any:
    @functools.wraps(call)
    def wrapped(source: Any, target: Any, *, src_dir_fd: int, dst_dir_fd: int, **options: Any) -> Any:
        names = _there(source, src_dir_fd), _there(target, dst_dir_fd)
        return call(*names, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd, **options)

    return wrapped


def _there(name: str, directory: int) -> str:
    entries = os.listdir(directory)
    return next((entry for entry in entries if layout.folded(entry) == layout.folded(name)), name)
