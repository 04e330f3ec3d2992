"""Compaction in the background, while the agent waits for its model."""

import asyncio
import logging
from dataclasses import dataclass

from buoyline.compression import ContextConfig, Summary
from buoyline.window.compaction import Compaction, Ready

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class BackgroundCompaction:
    """Holds at most one compaction that is under way or ready, and shows its summary in one step when asked.

    Its task archives and summarizes, and does not change the context. If it fails, is cancelled, or its event loop has
    ended, it is dropped; the messages that it archived are known, and the next compaction continues from there.

    Attributes:
        compaction: Runs the steps.
        task: The task that is under way or ready.
        failed_at: Session index of the context's first message when a task failed. None is begun by itself until a
            compaction has moved that: a provider that is down would be asked before each call.
    """

    compaction: Compaction
    task: "asyncio.Task[Ready] | None" = None
    failed_at: int | None = None

    @property
    def may_begin(self) -> bool:
        """Whether there is no task, and none has failed since the last compaction."""
        return not self._is_there() and self.failed_at != self._first

    def begin(self, settings: ContextConfig) -> bool:
        """Begin a task, unless there is one, or no messages may be archived.

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
        """Show the summary that is ready or under way; return None if there is none, or its task failed.

        If the caller is cancelled while it waits, the task goes on.

        Args:
            wait: Wait for a task that is under way; otherwise it is stopped.

        Raises:
            StorageError: The file system refused; the summary is still ready, and the context is as it was.
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
        """Stop a task that is under way; a summary that is ready is kept."""
        if self.task is not None and self._is_there() and not self.task.done():
            self.task.cancel()
            await asyncio.wait([self.task])

    async def drop(self) -> None:
        """Stop a task that is under way, and forget a summary that is ready."""
        await self.stop()
        self.task = None

    def _is_there(self) -> bool:
        """Return whether a task is under way or ready; forget one that failed or never ends."""
        task = self.task
        if task is None:
            return False
        if task.done():
            is_whole = not task.cancelled() and task.exception() is None
            is_there = is_whole and task.result().summary.messages[0] == self._first
        else:
            # A task whose loop has ended is never done.
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
