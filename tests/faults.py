"""Makes system calls fail: the n-th one, before or after it had its effect.

```python
for faults in every_fault(errno.ENOSPC, after=True):
    workspace = ...
    with faults:
        ...  # one of its calls fails: it must raise, keep the old state, and succeed when repeated
```
"""

import itertools
import os
import resource
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final, Self

CALLS: Final = ("open", "write", "fdatasync", "fsync", "link", "rename", "unlink", "mkdir", "ftruncate")
"""The functions of `os` that change files, or prepare a change."""


class Faults:
    """Makes one system call fail while its block runs.

    It replaces functions in `os` for all threads of the process, so nothing else should use files meanwhile. `count` is
    the number of calls so far, with the failed one.
    """

    def __init__(self, fail_at: int, code: int, *, after: bool = False, calls: Sequence[str] = CALLS) -> None:
        """Let call number *fail_at*, from 1, fail with the errno *code*; 0 only counts the calls.

        With *after*, it fails after it had its effect, like a call whose answer is lost. *calls* are the functions that
        count; those that the platform lacks are omitted.
        """
        self.count = 0
        self._fail_at = fail_at
        self._code = code
        self._after = after
        self._calls = [name for name in calls if hasattr(os, name)]
        self._counting = threading.Lock()
        self._restoring = ExitStack()

    @property
    def has_struck(self) -> bool:
        """Whether a call has failed."""
        return 0 < self._fail_at <= self.count

    def __enter__(self) -> Self:
        """Replace the functions."""
        for name in self._calls:
            real = getattr(os, name)
            self._restoring.callback(setattr, os, name, real)
            setattr(os, name, self._failing(name, real))
        return self

    def __exit__(self, *_: object) -> None:
        """Restore the functions."""
        self._restoring.close()

    def _failing(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            with self._counting:
                self.count += 1
                is_failing = self.count == self._fail_at
            if not is_failing:
                return real(*args, **kwargs)
            if self._after:
                found = real(*args, **kwargs)
                if name == "open":
                    os.close(found)
            raise OSError(self._code, os.strerror(self._code))

        return call


def every_fault(
    code: int, *, after: bool = False, calls: Sequence[str] = CALLS, first: int = 1, step: int = 1
) -> Iterator[Faults]:
    """Yield an injector for call *first*, then for every *step*-th call after it, until the work makes no such call.

    The injectors are entered one after the other, and the last one makes nothing fail. With a larger *step*, several
    tests can share the calls; *code*, *after* and *calls* are those of `Faults`.
    """
    for fail_at in itertools.count(first, step):
        faults = Faults(fail_at, code, after=after, calls=calls)
        yield faults
        if not faults.has_struck:
            return


@contextmanager
def files_up_to(size_bytes: int) -> Iterator[None]:
    """Let no file grow beyond *size_bytes* during the block: the system refuses as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
