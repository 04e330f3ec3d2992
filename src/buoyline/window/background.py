"""A compression that is made ready in the background, while the agent waits for its model."""

import asyncio
import logging
from dataclasses import dataclass

from buoyline.compression import ContextConfig, Summary
from buoyline.window.compaction import Compaction, Ready

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class BackgroundCompaction:
    """Holds at most one compression that is under way or ready, and puts it in place in one step when asked.

    Its task archives and summarises, and touches nothing that a model is shown. What comes of one that fails, is
    cancelled, or belongs to an event loop that has ended is dropped; what it has archived is known, so that the next
    compression goes on from there.

    Attributes:
        compaction: Does the steps.
        task: The one that is under way or ready.
        failed_at: Session index of the first message of the context when one came to nothing. No other one is begun
            by itself before a compression has moved that: a provider that is down would be asked before each call.
    """

    compaction: Compaction
    task: "asyncio.Task[Ready] | None" = None
    failed_at: int | None = None

    @property
    def may_begin(self) -> bool:
        """Return whether none is there, and none has failed where the context stands."""
        return not self._is_there() and self.failed_at != self._first

    def begin(self, settings: ContextConfig) -> bool:
        """Begin one, unless there is one, or nothing may leave.

        Returns:
            True if one is under way or ready now.
        """
        if self._is_there():
            return True
        cut = self.compaction.planned(settings).cut
        if cut == 0:
            return False
        # The messages keep their form from here on, also before the task has taken its first step.
        work = self.compaction.made(self.compaction.extent(cut), settings)
        self.task = asyncio.create_task(work, name=f"buoyline: compress {self.compaction.session_id}")
        self.task.add_done_callback(self._report)
        return True

    async def take(self, *, wait: bool = True) -> Summary | None:
        """Put in place what is ready, or will be; None where there is nothing, or it came to nothing.

        A caller who is cancelled while waiting leaves it under way.

        Args:
            wait: For one that is under way; otherwise it is stopped.

        Raises:
            StorageError: The file system refused; it is still ready, and the context is as it was.
        """
        if not wait:
            await self.stop()
        if self.task is not None and self._is_there() and not self.task.done():
            await asyncio.wait([self.task])
        task = self.task
        if task is None or not self._is_there():
            return None
        if self.compaction.parts_pair(task.result().summary.messages[1]):
            self.task = None
            return None
        summary = await self.compaction.show(task.result(), in_background=True)
        self.task = None
        return summary

    async def stop(self) -> None:
        """End one that is under way; what is ready stays so."""
        if self.task is not None and self._is_there() and not self.task.done():
            self.task.cancel()
            await asyncio.wait([self.task])

    async def drop(self) -> None:
        """End one that is under way, and forget what is ready."""
        await self.stop()
        self.task = None

    def _is_there(self) -> bool:
        """Return whether one is under way or ready; forget one of which nothing will come."""
        task = self.task
        if task is None:
            return False
        if task.done():
            is_whole = not task.cancelled() and task.exception() is None
            is_there = is_whole and task.result().summary.messages[0] == self._first
        else:
            # One whose loop has ended will never be done.
            is_there = task.get_loop() is asyncio.get_running_loop()
        if not is_there:
            self.task, self.failed_at = None, self._first
        return is_there

    @property
    def _first(self) -> int:
        return self.compaction.first

    def _report(self, task: "asyncio.Task[Ready]") -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            session_id, kind = self.compaction.session_id, type(error).__name__
            logger.warning("session %s: a compression in the background failed: %s; the next is not", session_id, kind)
