"""Errors: each is also a builtin, says what happened, and survives pickling."""

import errno
import inspect
import os
import pickle

import pytest

from buoyline import errors
from buoyline.errors import (
    BuoylineError,
    BusyError,
    ConfigError,
    ContextOverflowError,
    DocumentError,
    InvalidNameError,
    MessageError,
    MissingExtraError,
    NotFoundError,
    SessionExistsError,
    StorageError,
    SummaryError,
    WorkspaceFull,
    storage_error,
)

EXAMPLES: list[tuple[BuoylineError, str]] = [
    (ConfigError("size", "0 is below 1"), "size: 0 is below 1"),
    (DocumentError("a.json", [("hooks.x", "is no hook"), ("", "odd")]), "a.json: hooks.x: is no hook; odd"),
    (InvalidNameError("q" * 100, "too long"), f"'{'q' * 79}...: too long"),
    (MessageError("role None is unknown", 3), "message 3: role None is unknown"),
    (MissingExtraError("langchain", "langchain"), "langchain is not installed, or too old: pip install '.[langchain]'"),
    (NotFoundError("session", "s1", "there are s2 and s3"), "no session 's1'; there are s2 and s3"),
    (
        SessionExistsError("s1", "/w/sessions/s1"),
        "session 's1' already exists in /w/sessions/s1; use another id or workdir, or remove it",
    ),
    (WorkspaceFull(errno.ENOSPC, "No space left on device", "/w/x"), "/w/x: No space left on device"),
    (BusyError("s1", "prepare", "follow"), "window 's1' is at work in prepare(); call follow() after it"),
    (SummaryError("model", "lacks next_steps"), "summary by model: lacks next_steps"),
    (ContextOverflowError(12_345, 8_000, "the tools"), "12,345 tokens do not fit a window of 8,000: the tools"),
]


@pytest.mark.parametrize(("error", "message"), EXAMPLES, ids=[type(error).__name__ for error, _ in EXAMPLES])
def test_an_error_says_what_happened_and_survives_pickling(error: BuoylineError, message: str) -> None:
    restored = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    assert type(restored) is type(error)
    assert str(restored) == str(error) == message
    assert (restored.args, vars(restored)) == (error.args, vars(error))


def test_every_error_is_also_a_builtin_that_other_code_catches() -> None:
    classes = [found for _, found in inspect.getmembers(errors, inspect.isclass) if issubclass(found, BuoylineError)]
    builtins = (ImportError, LookupError, OSError, RuntimeError, ValueError)
    assert [found for found in classes if found is not BuoylineError and not issubclass(found, builtins)] == []


@pytest.mark.parametrize(("code", "kind"), [(errno.ENOSPC, WorkspaceFull), (errno.EACCES, StorageError)])
def test_an_error_of_the_file_system_keeps_code_words_and_file(code: int, kind: type[StorageError]) -> None:
    error = storage_error(OSError(code, os.strerror(code), "/w/x"), "/w/other")
    assert type(error) is kind
    assert (error.errno, error.strerror, error.filename) == (code, os.strerror(code), "/w/x")
    assert str(storage_error(OSError(errno.EIO, "Input/output error"), "/w/x")) == "/w/x: Input/output error"
