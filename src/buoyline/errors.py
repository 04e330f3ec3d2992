"""Every error that buoyline raises.

```
BuoylineError
├── ConfigError            (ValueError)        settings that cannot work, found when they are built
│   └── DocumentError                          a context-management document that does not say what to do
├── InvalidNameError       (ValueError)        a session id, path or reference that cannot be used
├── MessageError           (ValueError)        something that is no message of a known dialect
├── UsageError             (ValueError)        a token usage that cannot be that of one request
├── ToolOutputError        (ValueError)        a tool's output that cannot be taken as it comes
├── ConflictError          (ValueError)        a batch id that already stands for other messages
├── FormatVersionError     (ValueError)        a workspace written by a newer buoyline
├── CorruptError           (ValueError)        bytes on disk that are not what was written
├── NotFoundError          (LookupError)       a session, file or message that is not there
├── SessionExistsError     (FileExistsError)   a new session under an id that is taken
├── StaleWindowError       (RuntimeError)      another writer has gone on with the session
├── StorageError           (OSError)           the file system refused; errno and filename are kept
│   ├── WorkspaceFull                          no space, quota or file size left; nothing was changed
│   │   └── QuotaExceededError                 more than `Quotas` allow; nothing was written
│   └── LockTimeout        (TimeoutError)      another writer held the session for too long
├── RedactionError         (RuntimeError)      a redaction hook failed; nothing was stored
├── UnsupportedPlatformError (RuntimeError)    an operating system without the calls we rely on
└── CompressionError       (RuntimeError)      the context could not be made smaller
    ├── SummaryError       (ValueError)        a summariser answered with something unusable
    └── ContextOverflowError                   what must stay does not fit the window
```

Each error is also the builtin that foreign code would catch, keeps its fields as attributes, survives
pickling (its fields are its ``args``), and its message says what to do next.
"""

import errno
import os
import warnings
from collections.abc import Sequence

_SHOWN_CHARS = 80
_SHOWN_PROBLEMS = 20


class BuoylineError(Exception):
    """Catch this to catch everything that buoyline raises on its own account."""


class ConfigError(BuoylineError, ValueError):
    """A setting cannot work. Raised when the configuration is built, never later."""

    def __init__(self, setting: str, problem: str) -> None:
        """Name the setting and what is wrong with it, in words that say which value would do."""
        super().__init__(setting, problem)
        self.setting = setting
        self.problem = problem

    def __str__(self) -> str:
        """Return the setting and its problem."""
        return f"{self.setting}: {self.problem}"


class DocumentError(ConfigError):
    """A context-management document holds what nobody can act on; all of its problems are named at once."""

    def __init__(self, source: str, problems: Sequence[tuple[str, str]]) -> None:
        """Keep where the document came from, and each problem: its path in the document and the reason."""
        shown = [f"{path}: {reason}" if path else reason for path, reason in problems[:_SHOWN_PROBLEMS]]
        if len(problems) > len(shown):
            shown.append(f"and {len(problems) - len(shown):,} problems more")
        super().__init__(source, "; ".join(shown))
        self.args = (source, tuple(problems))
        self.source = source
        self.problems = tuple(problems)


class InvalidNameError(BuoylineError, ValueError):
    """An id, path or reference cannot be used as a name in the workspace."""

    def __init__(self, name: object, reason: str) -> None:
        """Keep the offending name as given and the reason why it is refused."""
        super().__init__(name, reason)
        self.name = name
        self.reason = reason

    def __str__(self) -> str:
        """Return the name, shortened to 80 characters, and the reason."""
        shown = repr(self.name)
        return f"{shown if len(shown) <= _SHOWN_CHARS else shown[:_SHOWN_CHARS] + '...'}: {self.reason}"


class MessageError(BuoylineError, ValueError):
    """Something is not a message of a dialect that buoyline knows, or cannot be written as JSON."""

    def __init__(self, reason: str, position: int | None = None) -> None:
        """Say what is wrong, and where: the 0-based position in the sequence that was passed, if known."""
        super().__init__(reason, position)
        self.reason = reason
        self.position = position

    def __str__(self) -> str:
        """Return the position, where it is known, and the reason."""
        return self.reason if self.position is None else f"message {self.position}: {self.reason}"

    def at(self, position: int) -> "MessageError":
        """Return the same error for the message at *position*."""
        return MessageError(self.reason, position)


class UsageError(BuoylineError, ValueError):
    """What was passed as a provider's token usage is none, or cannot be that of one request."""

    def __init__(self, reason: str) -> None:
        """Keep what is wrong with it, in words that say what to pass instead."""
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        """Return the reason."""
        return f"token usage: {self.reason}"


class ToolOutputError(BuoylineError, ValueError):
    """What a tool gives piece by piece is too long, or is neither text nor bytes."""

    def __init__(self, call_id: str, reason: str) -> None:
        """Keep the call whose output it is, and the reason with the way out."""
        super().__init__(call_id, reason)
        self.call_id = call_id
        self.reason = reason

    def __str__(self) -> str:
        """Return the call and the reason."""
        return f"output of call {self.call_id!r}: {self.reason}"


class ConflictError(BuoylineError, ValueError):
    """A batch id is already committed with other messages."""

    def __init__(self, session_id: str, batch_id: str) -> None:
        """Keep the session and the batch id in question."""
        super().__init__(session_id, batch_id)
        self.session_id = session_id
        self.batch_id = batch_id

    def __str__(self) -> str:
        """Return what happened and the two ways out."""
        return (
            f"session {self.session_id!r}: batch {self.batch_id!r} is already archived with other messages; "
            "repeat it unchanged, or use a new batch id"
        )


class FormatVersionError(BuoylineError, ValueError):
    """The workspace was written in a format that this version does not know; it is left untouched."""

    def __init__(self, path: str, found: object, supported: int) -> None:
        """Keep the file that names the format, the format found, and the newest one that is supported."""
        super().__init__(path, found, supported)
        self.path = path
        self.found = found
        self.supported = supported

    def __str__(self) -> str:
        """Return both formats and what to do."""
        return (
            f"{self.path}: format {self.found!r}, but this buoyline reads format {self.supported} and older; "
            "upgrade buoyline, or use another workdir"
        )


class CorruptError(BuoylineError, ValueError):
    """Bytes on disk are not what was written."""

    def __init__(self, path: str, reason: str) -> None:
        """Keep the damaged file and what is wrong in it."""
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        """Return the file and the damage."""
        return f"{self.path}: {self.reason}"


class NotFoundError(BuoylineError, LookupError):
    """A session, file or message is not there."""

    def __init__(self, kind: str, name: str, hint: str = "") -> None:
        """Say what kind of thing was looked for, its name, and where to look instead."""
        super().__init__(kind, name, hint)
        self.kind = kind
        self.name = name
        self.hint = hint

    def __str__(self) -> str:
        """Return what is missing and the hint."""
        return f"no {self.kind} {self.name!r}" + (f"; {self.hint}" if self.hint else "")


class SessionExistsError(BuoylineError, FileExistsError):
    """A new session was asked for under an id that already has an archive."""

    def __init__(self, session_id: str, path: str) -> None:
        """Keep the session id and the directory that it already has."""
        super().__init__(session_id, path)
        # OSError takes two arguments for an errno and its words.
        self.errno, self.strerror = errno.EEXIST, os.strerror(errno.EEXIST)
        self.session_id = session_id
        self.path = path

    def __str__(self) -> str:
        """Return the collision and the ways out."""
        return (
            f"session {self.session_id!r} already exists in {self.path}; continue it with "
            "ContextWindow.resume, or choose another session id or workdir"
        )


class StaleWindowError(BuoylineError, RuntimeError):
    """A window is no longer what the session on disk says; going on with it would lose messages."""

    def __init__(self, session_id: str, reason: str, hint: str = "go on with what ContextWindow.resume gives") -> None:
        """Keep the session, what has happened to it, and the way out."""
        super().__init__(session_id, reason, hint)
        self.session_id = session_id
        self.reason = reason
        self.hint = hint

    def __str__(self) -> str:
        """Return what has happened and the way out."""
        return f"session {self.session_id!r}: {self.reason}; {self.hint}"


class StorageError(BuoylineError, OSError):
    """The file system refused an operation; ``errno``, ``strerror`` and ``filename`` say which and where."""

    def __str__(self) -> str:
        """Return the operating system's words with the file they are about."""
        return f"{self.filename}: {self.strerror}" if self.filename else str(self.strerror)


class WorkspaceFull(StorageError):  # noqa: N818 - the documented name of the condition users handle
    """No space, quota or file size is left. What was begun has been taken back; free space and repeat."""


class QuotaExceededError(WorkspaceFull):
    """A write would exceed one of the workspace's `Quotas`. It was refused before it began."""

    def __init__(self, quota: str, limit_bytes: int, needed_bytes: int) -> None:
        """Keep which quota it is (``"blob"``, ``"session"`` or ``"workspace"``), its limit, and what would be taken."""
        super().__init__(errno.EDQUOT, os.strerror(errno.EDQUOT))
        # OSError took two arguments for an errno and its words; ours are the fields.
        self.args = (quota, limit_bytes, needed_bytes)
        self.quota = quota
        self.limit_bytes = limit_bytes
        self.needed_bytes = needed_bytes

    def __str__(self) -> str:
        """Return the numbers and the ways out."""
        way_out = "or leave the payload out" if self.quota == "blob" else "or remove what is old with `buoyline gc`"
        return (
            f"the {self.quota} would take {self.needed_bytes:,} bytes where its quota allows {self.limit_bytes:,}; "
            f"nothing was written: raise Quotas({self.quota}_bytes=...), {way_out}"
        )


class LockTimeout(StorageError, TimeoutError):  # noqa: N818 - named after the condition, as above
    """Another writer held the session for longer than we wait. Nothing was changed; repeat later."""


class RedactionError(BuoylineError, RuntimeError):
    """A redaction hook failed or gave what cannot be stored. Nothing was stored, nor is any content named here."""

    def __init__(self, hook: str, reason: str) -> None:
        """Keep which hook it was and why its answer is refused, in words that quote nothing it was given."""
        super().__init__(hook, reason)
        self.hook = hook
        self.reason = reason

    def __str__(self) -> str:
        """Return the hook, the reason and what to do."""
        return f"{self.hook} {self.reason}; nothing was stored: fix the redaction hook and retry"


class UnsupportedPlatformError(BuoylineError, RuntimeError):
    """The operating system lacks calls that the promises on disk rest on."""

    def __init__(self, platform: str) -> None:
        """Keep the platform's name as Python reports it."""
        super().__init__(platform)
        self.platform = platform

    def __str__(self) -> str:
        """Return the platform and those that work."""
        return f"{self.platform} is not supported: a workspace needs Linux or macOS (on Windows, use WSL)"


class CompressionError(BuoylineError, RuntimeError):
    """The context could not be made smaller."""


class SummaryError(CompressionError, ValueError):
    """A summariser answered with something that cannot stand in place of the messages."""

    def __init__(self, summarizer: str, reason: str) -> None:
        """Keep which summariser answered and why its answer is refused."""
        super().__init__(summarizer, reason)
        self.summarizer = summarizer
        self.reason = reason

    def __str__(self) -> str:
        """Return the summariser and the reason."""
        return f"summary by {self.summarizer}: {self.reason}"


class ContextOverflowError(CompressionError):
    """What must stay in the context does not fit the window."""

    def __init__(self, tokens: int, max_tokens: int, reason: str) -> None:
        """Keep the tokens needed, the tokens there are, and what takes them."""
        super().__init__(tokens, max_tokens, reason)
        self.tokens = tokens
        self.max_tokens = max_tokens
        self.reason = reason

    def __str__(self) -> str:
        """Return the numbers and the reason."""
        return f"{self.tokens:,} tokens do not fit a window of {self.max_tokens:,}: {self.reason}"


_FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
FORBIDDEN_ERRNOS = frozenset({errno.EACCES, errno.EPERM})
"""With one of these a `StorageError` is about the user who runs the program, not about the bytes on disk."""


def storage_error(error: OSError, path: str | None = None) -> StorageError:
    """Translate *error* into ours, keeping ``errno``, ``strerror`` and the file name.

    Args:
        error: What the operating system raised.
        path: The file to name where *error* itself names none.

    Returns:
        `WorkspaceFull` for a full disk, an exceeded quota or file size limit; else `StorageError`.
    """
    kind = WorkspaceFull if error.errno in _FULL_ERRNOS else StorageError
    reason = error.strerror or (os.strerror(error.errno) if error.errno else str(error))
    return kind(error.errno, reason, error.filename if error.filename is not None else path)


def warn_caller(message: str) -> None:
    """Issue a `UserWarning` at the nearest line of the program that is neither ours nor asyncio's.

    In a task of ours that is the line that started the event loop: who awaits a task is not on the stack.
    """
    import inspect  # noqa: PLC0415 - 7 ms, for a warning that most programs never see

    level, frame = 1, inspect.currentframe()
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in _NOT_THE_CALLER:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)


_NOT_THE_CALLER = frozenset({"buoyline", "asyncio"})
