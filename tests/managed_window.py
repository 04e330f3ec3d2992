"""A `ContextWindow` under a context-management document that reports after each message, for tests of documents."""

import time
from typing import Any

from buoyline import ContextWindow
from buoyline.management import ContextManagement, ManagementReport
from buoyline.management.context import ContextView


class ManagedWindow:
    """Adds messages one by one, as an agent does, and collects the reports of all hooks."""

    def __init__(self, management: ContextManagement, **arguments: Any) -> None:
        self.window = ContextWindow(management=management, **arguments)
        self.reports: list[ManagementReport] = []
        self._management = management

    @property
    def messages(self) -> list[Any]:
        return list(self.window.messages)

    async def add(self, message: Any) -> ManagementReport:
        await self.window.add(message)
        await self.window._settle(self._management)
        return self._noted()

    async def prepare(self, management: ContextManagement | None = None) -> list[Any]:
        prepared = await self.window.prepare(management)
        self._noted()
        return list(prepared)

    async def recover_from_overflow(self, error: BaseException) -> list[Any]:
        await self.window.recover_from_overflow(error=error)
        self._noted()
        return self.messages

    def view(self) -> ContextView:
        return self.window._engine.hooks.view()

    def called_before(self, seconds: float) -> None:
        """Let the last call of the model be so long ago."""
        self.window._engine.hooks.called_at_s = time.monotonic() - seconds

    def _noted(self) -> ManagementReport:
        self.reports.append(self.window.report)
        return self.window.report
