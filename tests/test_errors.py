import builtins
import errno
import inspect
import os
import pickle
import re
from collections.abc import Iterator

import pytest

from buoyline import errors
from buoyline.errors import (
    BuoylineError,
    CompressionError,
    ConfigError,
    ConflictError,
    ContextOverflowError,
    CorruptError,
    DocumentError,
    FormatVersionError,
    InvalidNameError,
    LockTimeout,
    MessageError,
    NotFoundError,
    RedactionError,
    SessionExistsError,
    StaleWindowError,
    StorageError,
    SummaryError,
    ToolOutputError,
    UnsupportedPlatformError,
    UsageError,
    WorkspaceFull,
    storage_error,
)

EXAMPLES: list[tuple[BuoylineError, str]] = [
    (BuoylineError("words"), "words"),
    (ConfigError("size", "0 is below 1"), "size: 0 is below 1"),
    (
        DocumentError("a.json", [("hooks.x", "is no hook"), ("", "odd")]),
        "a.json: hooks.x: is no hook; odd",
    ),
    (InvalidNameError("../x", "leads out of the workspace"), "'../x': leads out of the workspace"),
    (InvalidNameError(None, "an id must be text"), "None: an id must be text"),
    (InvalidNameError("q" * 100, "too long"), f"'{'q' * 79}...: too long"),
    (MessageError("role None is unknown"), "role None is unknown"),
    (MessageError("role None is unknown", 3), "message 3: role None is unknown"),
    (UsageError("input_tokens is -1, below 0"), "token usage: input_tokens is -1, below 0"),
    (ToolOutputError("c1", "is over 9 bytes"), "output of call 'c1': is over 9 bytes"),
    (
        ConflictError("s1", "b1"),
        "session 's1': batch 'b1' is already archived with other messages; repeat it unchanged, or use a new batch id",
    ),
    (
        FormatVersionError("/w/workspace.json", 2, 1),
        (
            "/w/workspace.json: format 2, but this buoyline reads format 1 and older; upgrade buoyline, or use "
            "another workdir"
        ),
    ),
    (CorruptError("/w/x", "is cut off"), "/w/x: is cut off"),
    (NotFoundError("session", "s1"), "no session 's1'"),
    (NotFoundError("session", "s1", "there are s2 and s3"), "no session 's1'; there are s2 and s3"),
    (
        SessionExistsError("s1", "/w/sessions/s1"),
        (
            "session 's1' already exists in /w/sessions/s1; continue it with ContextWindow.resume, or choose another "
            "session id or workdir"
        ),
    ),
    (StorageError(errno.EIO, "Input/output error", "/w/x"), "/w/x: Input/output error"),
    (StorageError(errno.EIO, "Input/output error"), "Input/output error"),
    (WorkspaceFull(errno.ENOSPC, "No space left on device", "/w/x"), "/w/x: No space left on device"),
    (
        RedactionError("redact", "raised ValueError"),
        "redact raised ValueError; nothing was stored: fix the redaction hook and retry",
    ),
    (StaleWindowError("s1", "moved on"), "session 's1': moved on; continue with ContextWindow.resume"),
    (LockTimeout(errno.ETIMEDOUT, "is held by another writer", "/w/l"), "/w/l: is held by another writer"),
    (
        UnsupportedPlatformError("win32"),
        "win32 is not supported: a workspace needs Linux or macOS (on Windows, use WSL)",
    ),
    (CompressionError("words"), "words"),
    (SummaryError("model", "lacks next_steps"), "summary by model: lacks next_steps"),
    (
        ContextOverflowError(12_345, 8_000, "the tools take 12,000"),
        "12,345 tokens do not fit a window of 8,000: the tools take 12,000",
    ),
]
each_example = pytest.mark.parametrize(
    ("error", "message"),
    EXAMPLES,
    ids=[f"{type(error).__name__}-{number}" for number, (error, _) in enumerate(EXAMPLES)],
)


def _classes() -> list[type[BuoylineError]]:
    return [
        found
        for _, found in inspect.getmembers(errors, inspect.isclass)
        if issubclass(found, BuoylineError) and found.__module__ == errors.__name__
    ]


def _tree() -> Iterator[tuple[str, str, str]]:
    """Yield name, parent and builtin of each error as the module's docstring draws them."""
    above = ["BuoylineError"]
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"([ │]*)[├└]── (\w+) +(?:\((\w+)\))?", line)
        if found is not None:
            depth = len(found[1]) // 4 + 1
            above[depth:] = [found[2]]
            yield found[2], above[depth - 1], found[3] or ""


TREE = list(_tree())


@each_example
def test_an_error_says_what_happened(error: BuoylineError, message: str) -> None:
    assert str(error) == message


@each_example
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_an_error_survives_pickling_with_its_message_and_fields(
    error: BuoylineError, message: str, protocol: int
) -> None:
    restored = pickle.loads(pickle.dumps(error, protocol))  # noqa: S301 - our own
    assert type(restored) is type(error)
    assert str(restored) == message
    assert restored.args == error.args
    assert vars(restored) == vars(error)
    if isinstance(error, OSError):
        assert isinstance(restored, OSError)
        assert (restored.errno, restored.strerror, restored.filename) == (error.errno, error.strerror, error.filename)


def test_every_error_has_an_example_here() -> None:
    assert {type(error) for error, _ in EXAMPLES} == set(_classes())


def test_the_drawn_tree_names_every_error_once() -> None:
    assert sorted(name for name, _, _ in TREE) == sorted(
        found.__name__ for found in _classes() if found is not BuoylineError
    )


@pytest.mark.parametrize(("name", "parent", "builtin"), TREE, ids=[name for name, _, _ in TREE])
def test_an_error_has_the_parent_and_the_builtin_that_are_drawn(name: str, parent: str, builtin: str) -> None:
    found = getattr(errors, name)
    assert found.__bases__[0].__name__ == parent
    assert [base.__name__ for base in found.__bases__[1:]] == ([builtin] if builtin else [])
    assert not builtin or issubclass(found, getattr(builtins, builtin))


def test_a_position_is_added_to_an_error_about_a_message() -> None:
    placed = MessageError("role None is unknown").at(5)
    assert (placed.reason, placed.position) == ("role None is unknown", 5)


def test_a_session_that_exists_is_told_by_errno_as_well() -> None:
    error = SessionExistsError("s1", "/w/sessions/s1")
    assert isinstance(error, FileExistsError)
    assert (error.errno, error.strerror) == (errno.EEXIST, os.strerror(errno.EEXIST))


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (errno.ENOSPC, WorkspaceFull),
        (errno.EDQUOT, WorkspaceFull),
        (errno.EFBIG, WorkspaceFull),
        (errno.EACCES, StorageError),
        (errno.EIO, StorageError),
    ],
)
def test_an_error_of_the_file_system_keeps_code_words_and_file(code: int, kind: type[StorageError]) -> None:
    error = storage_error(OSError(code, os.strerror(code), "/w/x"), "/w/other")
    assert type(error) is kind
    assert (error.errno, error.strerror, error.filename) == (code, os.strerror(code), "/w/x")
    assert str(error) == f"/w/x: {os.strerror(code)}"


def test_an_error_of_the_file_system_that_names_no_file_gets_the_one_we_know() -> None:
    assert str(storage_error(OSError(errno.EIO, "Input/output error"), "/w/x")) == "/w/x: Input/output error"
    assert str(storage_error(OSError(errno.EIO, "Input/output error"))) == "Input/output error"
    assert str(storage_error(OSError("strange"), "/w/x")) == "/w/x: strange"
