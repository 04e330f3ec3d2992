"""Loading tiktoken and the vocabulary once for a whole process, whichever of its threads asks first.

A process that is forked while another of its threads loads would leave the child with locks that nobody ever
releases: the one of this module, and the import system's own for each module that tiktoken brings. A child that
counted then hung for good. So a fork waits until the loading has ended, 0.4 s at most; the standard library's
`logging` keeps its locks over a fork in the same way.
"""

import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tiktoken

LOADING = threading.RLock()
"""Held while tiktoken is imported and the vocabulary is built, and while the process is forked.

Re-entrant, so that a signal handler that forks while its own thread loads does not wait for itself.
"""

_loaded: "list[tiktoken.Encoding]" = []


def vocabulary() -> "tiktoken.Encoding":
    """Return the o200k_base encoding, loading it first where nobody has.

    Once it is there no lock is asked for, so threads that count do not wait for each other.

    Returns:
        The same object every time; threads may share it, and a forked child has it from its parent.

    Raises:
        CorruptError: The rank file of the installed package is not the one that was released.
    """
    return _loaded[0] if _loaded else _load()


def _load() -> "tiktoken.Encoding":
    with LOADING:
        from buoyline.tokens.vocabulary import o200k_base  # noqa: PLC0415 - tiktoken is loaded when first used

        _loaded[:] = [o200k_base()]
        return _loaded[0]


# The child is the very thread that took the lock before the fork, so it may release it.
os.register_at_fork(before=LOADING.acquire, after_in_parent=LOADING.release, after_in_child=LOADING.release)
