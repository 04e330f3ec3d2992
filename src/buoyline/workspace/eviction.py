"""Contents that are kept in memory for as long as somebody uses them.

Source: Strands' ``InMemoryStorage`` for the turns and their default.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from buoyline.errors import ConfigError


@dataclass(slots=True)
class _Entry:
    """Contents that come and go together, and the turn of their last use."""

    files: Mapping[str, bytes]
    used: int


class Evictable:
    """Contents by name; those that were neither stored nor retrieved for a number of turns are removed."""

    def __init__(self, evict_after_turns: int | None) -> None:
        """Keep what was used within *evict_after_turns* turns; None keeps everything.

        Raises:
            ConfigError: It is no whole number above 0.
        """
        if evict_after_turns is not None:
            _require_turns(evict_after_turns)
        self._evict_after_turns = evict_after_turns
        self._turn = 0
        self._entries: dict[str, _Entry] = {}
        self._evicted: set[str] = set()

    def store(self, files: Mapping[str, bytes]) -> None:
        """Keep *files* under their names; using one uses all of them. What is there already is replaced."""
        self._entries.update(dict.fromkeys(files, _Entry(files, self._turn)))
        self._evicted.difference_update(files)

    def use(self, name: str) -> bytes | None:
        """Return the content called *name*, which counts as its use; None when it is not there."""
        entry = self._entries.get(name)
        if entry is None:
            return None
        # One of its files may meanwhile have come once more, with others: a picture that two results have.
        for file in entry.files:
            self._entries.get(file, entry).used = self._turn
        return entry.files[name]

    def look(self, name: str) -> bytes | None:
        """Return the content called *name*, which is no use of it; None when it is not there."""
        entry = self._entries.get(name)
        return None if entry is None else entry.files[name]

    def release(self, name: str) -> bytes | None:
        """Take the content called *name* out, for somebody who keeps it for good; None when it is not there."""
        entry = self._entries.pop(name, None)
        return None if entry is None else entry.files[name]

    def is_evicted(self, name: str) -> bool:
        """Tell whether *name* was here once and was removed because nobody used it."""
        return name in self._evicted

    def next_turn(self) -> None:
        """Begin the next turn, and remove what was last used too many turns ago."""
        self._turn += 1
        if self._evict_after_turns is None:
            return
        oldest = self._turn - self._evict_after_turns
        stale = [name for name, entry in self._entries.items() if entry.used < oldest]
        for name in stale:
            del self._entries[name]
        self._evicted.update(stale)

    def clear(self) -> None:
        """Remove everything, the memory of what was evicted included."""
        self._entries.clear()
        self._evicted.clear()


def _require_turns(turns: object) -> None:
    if isinstance(turns, bool) or not isinstance(turns, int) or turns < 1:
        reason = f"{turns!r} is not a whole number of turns above 0; None keeps everything"
        raise ConfigError("evict_after_turns", reason)
