"""A file layer that fails: at the k-th system call, before or after it had its effect.

```python
for faults in every_fault(errno.ENOSPC, after=True):
    workspace = ...
    with faults:
        ...  # one of its calls fails: it must raise, keep what was there, and succeed when repeated
```
"""

import itertools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, Final, Self

CALLS: Final = ("open", "write", "fdatasync", "fsync", "link", "rename", "unlink", "mkdir", "ftruncate")
"""The functions of `os` that change files, or come before a change."""


class Faults:
    """Lets one system call fail for as long as its block runs.

    The functions are replaced in `os`, for all threads of the process: nothing else should use files meanwhile.

    Attributes:
        count: How many calls were made so far, the failed one included.
    """

    def __init__(self, fail_at: int, code: int, *, after: bool = False, calls: Sequence[str] = CALLS) -> None:
        """Prepare the failure.

        Args:
            fail_at: Which call fails, counted from 1; 0 lets all succeed and only counts them.
            code: Its errno, e.g. ``errno.ENOSPC``.
            after: It fails after it had its effect, as a call may whose answer is lost.
            calls: Names of the functions that count; those that the platform lacks are left out.
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
        """Tell whether a call has failed."""
        return 0 < self._fail_at <= self.count

    def __enter__(self) -> Self:
        """Begin to count and to fail."""
        for name in self._calls:
            real = getattr(os, name)
            self._restoring.callback(setattr, os, name, real)
            setattr(os, name, self._failing(name, real))
        return self

    def __exit__(self, *_: object) -> None:
        """Put the functions back."""
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
    """Yield an injector for the call *first*, then for each *step* calls later, until a call is not reached any more.

    Args:
        code: See `Faults`, as for the others.
        after: As above.
        calls: As above.
        first: The call that fails first, counted from 1.
        step: Of so many calls one fails, so that several tests can share the calls out among them.

    Returns:
        Injectors, to be entered by the caller one after the other. The last one lets everything succeed.
    """
    for fail_at in itertools.count(first, step):
        faults = Faults(fail_at, code, after=after, calls=calls)
        yield faults
        if not faults.has_struck:
            return
