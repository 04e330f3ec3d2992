"""A unified storage of Strands' in the form of the offloader's: ``store`` and ``retrieve``."""

from typing import Protocol

from buoyline.integrations.strands.frames import framed, unframed


class KeepsKeys(Protocol):
    """A unified storage, as far as it is used here."""

    async def write(self, key: str, data: bytes) -> None:
        """Store *data* under *key*."""
        ...

    async def read(self, key: str) -> bytes | None:
        """Return what is under *key*; None where nothing is."""
        ...


class FramedStorage:
    """Stores content with its type in front, as Strands' own offloader does; the key is the reference.

    Keys stand below the session, so that two agents on one storage do not write over each other's results.
    """

    def __init__(self, storage: KeepsKeys, session_id: str) -> None:
        """Use *storage*, below ``offloader/<session_id>/``."""
        self._storage, self._prefix = storage, f"offloader/{session_id}/"

    async def store(self, key: str, content: bytes, content_type: str = "text/plain") -> str:
        """Store *content* and return the key that it stands under."""
        name = f"{self._prefix}{key}"
        await self._storage.write(name, framed(content, content_type))
        return name

    async def retrieve(self, reference: str) -> tuple[bytes, str]:
        """Return content and type.

        Raises:
            KeyError: Nothing of this session is there.
        """
        data = await self._storage.read(reference) if reference.startswith(self._prefix) else None
        if data is None:
            raise KeyError(f"Reference not found: {reference}")
        content_type, content = unframed(data)
        return content, content_type or "application/octet-stream"
