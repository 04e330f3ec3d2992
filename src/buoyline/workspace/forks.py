"""What a process that was forked must do: its parent's threads are not there, and the locks that they held never open.

Source: the notes on ``fork`` in Python's ``os`` and ``threading``; agents' servers (gunicorn, multiprocessing) fork.
"""

import os
import weakref
from typing import Protocol


class Renewable(Protocol):
    """Has threads or locks of its own."""

    def renew_after_fork(self) -> None:
        """Replace them, in the child, before anything else runs there."""
        ...


_alive: "weakref.WeakSet[Renewable]" = weakref.WeakSet()


def watch_forks(renewable: Renewable) -> None:
    """Have *renewable* renewed in every forked child, for as long as it lives."""
    _alive.add(renewable)


def _renew_all() -> None:
    for renewable in list(_alive):
        renewable.renew_after_fork()


os.register_at_fork(after_in_child=_renew_all)
