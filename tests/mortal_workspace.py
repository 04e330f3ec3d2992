"""A workspace whose process is killed between any two of its steps."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from buoyline import LocalWorkspace

WINDOW_STEPS: Final = (
    "start_window", "extend_window", "replace_window", "store_result", "record_stub", "archive", "locate",
    "transcript_lines", "missing", "append_summary",
)  # fmt: skip
"""What a window that began a session calls."""

RESUMING_STEPS: Final = ("claim_window", "load_stubs", "load_messages", "load_summaries")
"""What one calls beside that goes on with a session over and over."""


class Killed(Exception):  # noqa: N818 - it stands for the end of the process
    """Ends the step at which a process was killed, and all that it would have done later."""


class Mortal(LocalWorkspace):
    """A workspace whose process ends at its n-th step, before or after that had its effect.

    Attributes:
        steps: How many were begun.
    """

    def __init__(self, workdir: Path, at: int, *, after: bool, names: Sequence[str]) -> None:
        """End at step *at*, counted from 1; *names* are the methods that are steps."""
        super().__init__(workdir, durability="off")
        self.at, self.after, self.steps = at, after, 0
        for name in names:
            setattr(self, name, self._mortal(getattr(self, name)))

    def _mortal(self, method: Any) -> Any:
        async def step(*args: Any, **kwargs: Any) -> Any:
            self.steps += 1
            if self.steps > self.at or (self.steps == self.at and not self.after):
                raise Killed
            done = await method(*args, **kwargs)
            if self.steps >= self.at:
                raise Killed
            return done

        return step
