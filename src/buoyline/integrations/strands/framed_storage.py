"""A unified storage of Strands' in the form of the offloader's: ``store`` and ``retrieve``."""

import logging
from collections.abc import Coroutine
from typing import Any, Final, Protocol

from buoyline.integrations.strands.attempting import attempted
from buoyline.integrations.strands.frames import framed, unframed

logger = logging.getLogger(__name__)

_PREFIX_PARTS: Final = 2


class KeepsKeys(Protocol):
    """A unified storage, as far as it is used here."""

    async def write(self, key: str, data: bytes) -> None:
        """Store *data* under *key*."""
        ...

    async def read(self, key: str) -> bytes | None:
        """Return what is under *key*; None where nothing is."""
        ...

    def delete(self, key: str) -> Coroutine[Any, Any, None]:
        """Remove what is under *key*."""
        ...


class FramedStorage:
    """Stores content with its type in front, as Strands' own offloader does; the key is the reference.

    Keys stand below the session, so that two agents on one storage do not write over each other's results.
    """

    def __init__(self, storage: KeepsKeys, session_id: str) -> None:
        """Use *storage*, below ``offloader/<session_id>/``."""
        self._storage, self._prefix = storage, f"offloader/{session_id}/"
        self._cycles: dict[str, int] = {}
        self._cycle = 0

    async def evict(self, cycle: int, after_cycles: int | None) -> None:
        """Delete what was not used for more than *after_cycles* cycles before *cycle*; None deletes nothing.

        What the storage refuses to delete is tried again next time.
        """
        self._cycle = cycle
        if after_cycles is None:
            return
        for key in [key for key, used in self._cycles.items() if used < cycle - after_cycles]:
            failure = await attempted(self._storage.delete(key))
            if failure is None:
                del self._cycles[key]
            else:
                logger.debug("%s could not be evicted: %r", key, failure)

    def with_session_of(self, reference: str) -> "FramedStorage":
        """Return a storage for the session that *reference* begins with; itself if it begins with none."""
        parts = reference.split("/")
        is_ours = len(parts) > _PREFIX_PARTS and parts[0] == "offloader"
        return FramedStorage(self._storage, parts[1]) if is_ours else self

    async def store(self, key: str, content: bytes, content_type: str = "text/plain") -> str:
        """Store *content* and return the key that it stands under."""
        name = f"{self._prefix}{key}"
        await self._storage.write(name, framed(content, content_type))
        self._cycles[name] = self._cycle
        return name

    async def retrieve(self, reference: str) -> tuple[bytes, str]:
        """Return content and type.

        Raises:
            KeyError: Nothing of this session is there.
        """
        data = await self._storage.read(reference) if reference.startswith(self._prefix) else None
        if data is None:
            raise KeyError(f"Reference not found: {reference}")
        if reference in self._cycles:
            self._cycles[reference] = self._cycle
        content_type, content = unframed(data)
        return content, content_type or "application/octet-stream"
