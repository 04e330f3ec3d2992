"""The errors of buoyline.

```
BuoylineError
├── ConfigError            (ValueError)        a setting is invalid
│   └── DocumentError                          a context-management document is invalid
├── InvalidNameError       (ValueError)        a session id, path or reference cannot be used
├── MessageError           (ValueError)        an object is not a message of a known dialect
├── UsageError             (ValueError)        a token usage cannot be that of one request
├── ToolOutputError        (ValueError)        streamed tool output is too long or of a wrong type
├── FormatVersionError     (ValueError)        a newer buoyline wrote the workspace
├── CorruptError           (ValueError)        bytes on disk are not those that were written
├── MissingExtraError      (ImportError)       a package that an extra installs is missing
├── NotFoundError          (LookupError)       a session, file or message does not exist
├── SessionExistsError     (FileExistsError)   the id of a new session is taken
├── StaleWindowError       (RuntimeError)      another writer has continued the session
├── BusyError              (RuntimeError)      another call of the window has not returned yet
├── StorageError           (OSError)           the file system refused; errno and filename are kept
│   ├── WorkspaceFull                          no space or file size left; nothing was changed
│   └── LockTimeout        (TimeoutError)      another writer held the session for too long
├── RedactionError         (RuntimeError)      a redaction hook failed; nothing was stored
├── UnsupportedPlatformError (RuntimeError)    the operating system lacks required calls
└── CompressionError       (RuntimeError)      the context could not be made smaller
    ├── SummaryError       (ValueError)        the answer of a summarizer is unusable
    └── ContextOverflowError                   the content that must stay does not fit the window
```

Each error is also the builtin that other code would catch. It keeps its fields as attributes and survives pickling,
because its fields are its ``args``. Its message says what to do next.
"""

import errno
import os
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

__all__ = [
    "BuoylineError",
    "BusyError",
    "CompressionError",
    "ConfigError",
    "ContextOverflowError",
    "CorruptError",
    "DocumentError",
    "FormatVersionError",
    "InvalidNameError",
    "LockTimeout",
    "MessageError",
    "MissingExtraError",
    "NotFoundError",
    "RedactionError",
    "SessionExistsError",
    "StaleWindowError",
    "StorageError",
    "SummaryError",
    "ToolOutputError",
    "UnsupportedPlatformError",
    "UsageError",
    "WorkspaceFull",
]

INSTALL: Final = "pip install '.[{}]'"
"""What installs an extra from a clone; on PyPI it will be ``pip install 'buoyline[{}]'``."""

_SHOWN_CHARS = 80
_SHOWN_PROBLEMS = 20


class BuoylineError(Exception):
    """The base of all errors that buoyline raises."""


class ConfigError(BuoylineError, ValueError):
    """A setting is invalid."""

    def __init__(self, setting: str, problem: str) -> None:
        """Keep the setting and the problem, which names valid values."""
        super().__init__(setting, problem)
        self.setting = setting
        self.problem = problem

    def __str__(self) -> str:
        """Return the setting and its problem."""
        return f"{self.setting}: {self.problem}"


class DocumentError(ConfigError):
    """A context-management document is invalid; the error names all of its problems."""

    def __init__(self, source: str, problems: Sequence[tuple[str, str]]) -> None:
        """Keep the source of the document, and the path in the document and reason of each problem."""
        shown = [f"{path}: {reason}" if path else reason for path, reason in problems[:_SHOWN_PROBLEMS]]
        if len(problems) > len(shown):
            shown.append(f"and {len(problems) - len(shown):,} more problems")
        super().__init__(source, "; ".join(shown))
        self.args = (source, tuple(problems))
        self.source = source
        self.problems = tuple(problems)


class InvalidNameError(BuoylineError, ValueError):
    """An id, path or reference cannot be used as a name in the workspace."""

    def __init__(self, name: object, reason: str) -> None:
        """Keep the name as given, and the reason."""
        super().__init__(name, reason)
        self.name = name
        self.reason = reason

    def __str__(self) -> str:
        """Return the name, shortened to 80 characters, and the reason."""
        shown = repr(self.name)
        return f"{shown if len(shown) <= _SHOWN_CHARS else shown[:_SHOWN_CHARS] + '...'}: {self.reason}"


class MessageError(BuoylineError, ValueError):
    """An object is not a message of a known dialect, or cannot be written as JSON."""

    def __init__(self, reason: str, position: int | None = None) -> None:
        """Keep the reason, and the 0-based position in the sequence that was passed, if known."""
        super().__init__(reason, position)
        self.reason = reason
        self.position = position

    def __str__(self) -> str:
        """Return the position, if known, and the reason."""
        return self.reason if self.position is None else f"message {self.position}: {self.reason}"

    def at(self, position: int) -> "MessageError":
        """Return the same error for the message at *position*."""
        return MessageError(self.reason, position)


class UsageError(BuoylineError, ValueError):
    """An object is not a provider's token usage, or cannot be the usage of one request."""

    def __init__(self, reason: str) -> None:
        """Keep the reason, which says what to pass instead."""
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        """Return the reason."""
        return f"token usage: {self.reason}"


class ToolOutputError(BuoylineError, ValueError):
    """Streamed tool output is too long, or is neither text nor bytes."""

    def __init__(self, call_id: str, reason: str) -> None:
        """Keep the call, and the reason with a way out."""
        super().__init__(call_id, reason)
        self.call_id = call_id
        self.reason = reason

    def __str__(self) -> str:
        """Return the call and the reason."""
        return f"output of call {self.call_id!r}: {self.reason}"


class FormatVersionError(BuoylineError, ValueError):
    """The format of the workspace is unknown to this version; the workspace was not touched."""

    def __init__(self, path: str, found: object, supported: int) -> None:
        """Keep the file with the format, the format found, and the newest supported one."""
        super().__init__(path, found, supported)
        self.path = path
        self.found = found
        self.supported = supported

    def __str__(self) -> str:
        """Return both formats and what to do."""
        return (
            f"{self.path}: format {self.found!r}, but this buoyline reads format {self.supported}; "
            "use the version that wrote it, or another workdir"
        )


class CorruptError(BuoylineError, ValueError):
    """Bytes on disk are not those that were written."""

    def __init__(self, path: str, reason: str) -> None:
        """Keep the damaged file and the reason."""
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        """Return the file and the reason."""
        return f"{self.path}: {self.reason}"


class MissingExtraError(BuoylineError, ImportError):
    """A package that only an extra of buoyline installs is missing, or too old."""

    def __init__(self, module: str, extra: str) -> None:
        """Keep the module and the extra."""
        super().__init__(module, extra)
        self.module = module
        self.extra = extra

    def __str__(self) -> str:
        """Return the module and the line that installs it."""
        return f"{self.module} is not installed, or too old: {INSTALL.format(self.extra)}"


class NotFoundError(BuoylineError, LookupError):
    """A session, file or message does not exist."""

    def __init__(self, kind: str, name: str, hint: str = "") -> None:
        """Keep the kind and the name of the missing thing, and a hint where to look instead."""
        super().__init__(kind, name, hint)
        self.kind = kind
        self.name = name
        self.hint = hint

    def __str__(self) -> str:
        """Return the missing thing and the hint."""
        return f"no {self.kind} {self.name!r}" + (f"; {self.hint}" if self.hint else "")


class SessionExistsError(BuoylineError, FileExistsError):
    """A session that should be new is there already."""

    def __init__(self, session_id: str, path: str) -> None:
        """Keep the session id and its directory."""
        super().__init__(session_id, path)
        # OSError takes two arguments as an errno and its message.
        self.errno, self.strerror = errno.EEXIST, os.strerror(errno.EEXIST)
        self.session_id = session_id
        self.path = path

    def __str__(self) -> str:
        """Return the collision and ways out."""
        return f"session {self.session_id!r} already exists in {self.path}; use another id or workdir, or remove it"


class StaleWindowError(BuoylineError, RuntimeError):
    """The session on disk has changed; continuing with this window would lose messages."""

    def __init__(self, session_id: str, reason: str) -> None:
        """Keep the session and the reason."""
        super().__init__(session_id, reason)
        self.session_id = session_id
        self.reason = reason

    def __str__(self) -> str:
        """Return the reason and a way out."""
        return f"session {self.session_id!r}: {self.reason}; open it again with ContextWindow.open"


class BusyError(BuoylineError, RuntimeError):
    """Another call of the same window has not returned yet; a window does one thing at a time."""

    def __init__(self, session_id: str, at_work: str, called: str) -> None:
        """Keep the session, the method that is at work, and the one that was called."""
        super().__init__(session_id, at_work, called)
        self.session_id = session_id
        self.at_work = at_work
        self.called = called

    def __str__(self) -> str:
        """Return what is at work, and when to call."""
        return f"window {self.session_id!r} is at work in {self.at_work}(); call {self.called}() after it"


class StorageError(BuoylineError, OSError):
    """The file system refused an operation; see ``errno``, ``strerror`` and ``filename``."""

    def __str__(self) -> str:
        """Return the file and the message of the operating system."""
        return f"{self.filename}: {self.strerror}" if self.filename else str(self.strerror)


class WorkspaceFull(StorageError):  # noqa: N818 - the documented name of the condition users handle
    """No space is left, or a file may not grow. The operation was undone; free space and repeat it."""


class LockTimeout(StorageError, TimeoutError):  # noqa: N818 - named after the condition, as above
    """Another writer held the session for too long. Nothing was changed; repeat later."""


class RedactionError(BuoylineError, RuntimeError):
    """A redaction hook failed or returned something that cannot be stored. Nothing was stored."""

    def __init__(self, hook: str, reason: str) -> None:
        """Keep the hook and the reason, which quotes no content."""
        super().__init__(hook, reason)
        self.hook = hook
        self.reason = reason

    def __str__(self) -> str:
        """Return the hook, the reason and the next step."""
        return f"{self.hook} {self.reason}; nothing was stored: fix the redaction hook and retry"


class UnsupportedPlatformError(BuoylineError, RuntimeError):
    """The operating system lacks calls that durable storage requires."""

    def __init__(self, platform: str) -> None:
        """Keep the name of the platform as Python reports it."""
        super().__init__(platform)
        self.platform = platform

    def __str__(self) -> str:
        """Return the platform and those that are supported."""
        return f"{self.platform} is not supported: a workspace needs Linux or macOS (on Windows, use WSL)"


class CompressionError(BuoylineError, RuntimeError):
    """The context could not be made smaller."""


class SummaryError(CompressionError, ValueError):
    """The answer of a summarizer cannot replace the messages."""

    def __init__(self, summarizer: str, reason: str) -> None:
        """Keep the summarizer and the reason."""
        super().__init__(summarizer, reason)
        self.summarizer = summarizer
        self.reason = reason

    def __str__(self) -> str:
        """Return the summarizer and the reason."""
        return f"summary by {self.summarizer}: {self.reason}"


class ContextOverflowError(CompressionError):
    """The content that must stay does not fit the window."""

    def __init__(self, tokens: int, max_tokens: int, reason: str) -> None:
        """Keep the tokens needed, the size of the window, and the reason."""
        super().__init__(tokens, max_tokens, reason)
        self.tokens = tokens
        self.max_tokens = max_tokens
        self.reason = reason

    def __str__(self) -> str:
        """Return the numbers and the reason."""
        return f"{self.tokens:,} tokens do not fit a window of {self.max_tokens:,}: {self.reason}"


_FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
FORBIDDEN_ERRNOS = frozenset({errno.EACCES, errno.EPERM})
"""With these, a `StorageError` is about the permissions of the user, not about the bytes on disk."""


def storage_error(error: OSError, path: str | None = None) -> StorageError:
    """Translate *error*, keeping ``errno``, ``strerror`` and the file name.

    Args:
        error: The error of the operating system.
        path: The file to name if *error* names none.

    Returns:
        `WorkspaceFull` for a full disk, an exceeded disk quota or file size limit; else `StorageError`.
    """
    kind = WorkspaceFull if error.errno in _FULL_ERRNOS else StorageError
    reason = error.strerror or (os.strerror(error.errno) if error.errno else str(error))
    return kind(error.errno, reason, error.filename if error.filename is not None else path)


def imported(module: str, *, extra: str) -> Any:
    """Return a module of a package that *extra* installs.

    Raises:
        MissingExtraError: It cannot be imported.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(module, extra) from error
