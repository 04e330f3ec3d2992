"""Writing the history of an agent into its workspace, so that people see it and other frameworks can go on with it."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from buoyline.errors import NotFoundError, SessionExistsError
from buoyline.integrations.strands.history import NativeMessage
from buoyline.offloader import WindowLog


@dataclass(frozen=True, slots=True)
class Head:
    """What stands in a history for messages that have left it.

    Attributes:
        messages: Pinned ones, and the summary.
        kinds: ``"pin"`` or ``"summary"`` for each.
        pins: Session indexes of the pinned ones.
        first: Session index of the message behind the head.
    """

    messages: Sequence[NativeMessage]
    kinds: Sequence[str]
    pins: Sequence[int]
    first: int


@dataclass(slots=True)
class HistoryKeeping:
    """Writes a history down as it grows; does nothing where the offloader keeps no windows.

    What was written is told from what is new by the objects: Strands puts a new content into a message that a guardrail
    redacts, and what was written of it has to go.

    Attributes:
        log: Takes it.
        session_id: Whose history it is.
        is_open: The session was begun, or taken over.
    """

    log: WindowLog | None
    session_id: str
    is_open: bool = False
    _writer: str = field(default_factory=lambda: uuid.uuid4().hex)
    _kept: list[tuple[NativeMessage, Any]] | None = None
    _first: int = 0

    async def open(self, settings: Mapping[str, Any]) -> None:
        """Begin with the session, or go on with it; may be repeated. It has to come before the first archiving.

        Raises:
            StorageError: The file system refused.
        """
        if self.log is None or self.is_open:
            return
        try:
            await self.log.start_window(self.session_id, settings, writer=self._writer)
        except SessionExistsError:
            try:
                await self.log.claim_window(self.session_id, writer=self._writer)
            except NotFoundError:  # somebody archived into the session, and kept no window
                self.log = None
                return
        self.is_open = True

    async def keep(self, head: Head, messages: Sequence[NativeMessage]) -> None:
        """Write down what is new of the history.

        Raises:
            StaleWindowError: Another process has gone on with the session.
            StorageError: The file system refused.
        """
        if self.log is None or not self.is_open:
            return
        found = [(message, message.get("content")) for message in (*head.messages, *messages)]
        known = self._kept
        if known is None or self._first != head.first or not _begins_with(found, known):
            natives = [message for message, _ in found]
            await self.log.replace_window(
                self.session_id, natives, head.kinds, head.first, head.pins, writer=self._writer
            )
        elif len(found) > len(known):
            new = [message for message, _ in found[len(known) :]]
            await self.log.extend_window(self.session_id, new, head.pins, writer=self._writer)
        self._kept, self._first = found, head.first


def _begins_with(found: Sequence[tuple[Any, Any]], known: Sequence[tuple[Any, Any]]) -> bool:
    return len(found) >= len(known) and all(
        one is other and content is kept for (one, content), (other, kept) in zip(found, known, strict=False)
    )
