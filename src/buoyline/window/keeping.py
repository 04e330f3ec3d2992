"""Writing a context down, so that another process can go on with it."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from buoyline.offloader import WindowLog
from buoyline.window.entry import Entry

PIN: Final = "pin"
SUMMARY: Final = "summary"
NOTICE: Final = "notice"
"""The kind, in the head of a window, of a line that says where messages are."""
AGAIN: Final = "again"
"""The kind of an archived message that stands for now; its session index follows, behind a colon."""


@dataclass(slots=True)
class ContextKeeping:
    """Tells a log of windows what stands in one of them; does nothing where there is none.

    Attributes:
        log: The log.
        session_id: Whose window it is.
        writer: Tells this window from others of the session, which are refused once one has taken over.
    """

    log: WindowLog | None
    session_id: str
    writer: str = field(default_factory=lambda: uuid.uuid4().hex)

    async def start(self, settings: Mapping[str, Any]) -> None:
        """Begin with an empty context; may be repeated.

        Raises:
            SessionExistsError: The session has messages or a window already.
        """
        if self.log is not None:
            await self.log.start_window(self.session_id, settings, writer=self.writer)

    async def check(self, pins: Sequence[int]) -> None:
        """Make sure that the window is still this one's, before something is done that it does not write down.

        Raises:
            StaleWindowError: Another window has gone on with the session.
        """
        if self.log is not None:
            await self.log.extend_window(self.session_id, [], pins, writer=self.writer)

    async def extend(self, new: Sequence[Entry], pins: Sequence[int]) -> None:
        """Write down what was added.

        Raises:
            StaleWindowError: Another window has gone on with the session.
        """
        if new and self.log is not None:
            natives = [entry.native for entry in new]
            times = [entry.added for entry in new]
            await self.log.extend_window(self.session_id, natives, pins, times=times, writer=self.writer)

    async def replace(
        self, standing: Sequence[Entry], entries: Sequence[Entry], first: int, pins: Sequence[int]
    ) -> None:
        """Write down all of it.

        Args:
            standing: What stands before the messages.
            entries: The messages.
            first: Session index of the first of them.
            pins: Session indexes of pinned messages.

        Raises:
            StaleWindowError: See `extend`.
        """
        if self.log is None:
            return
        written = (*standing, *entries)
        natives, times = [entry.native for entry in written], [entry.added for entry in written]
        kinds = [kind_of(entry) for entry in standing]
        await self.log.replace_window(self.session_id, natives, kinds, first, pins, times=times, writer=self.writer)


def kind_of(entry: Entry) -> str:
    """Return the kind of what stands in a head, as a window's file has it."""
    if entry.pinned:
        return PIN
    if entry.message.role == "system":
        return "system"
    if entry.index >= 0:
        return f"{AGAIN}:{entry.index}"
    return NOTICE if entry.is_notice else SUMMARY
