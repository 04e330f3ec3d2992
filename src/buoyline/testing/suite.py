"""Helpers of the suites for workspaces.

pytest is imported when a test runs, so that a suite can be loaded without it.
"""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from typing import Any, Final, TypeVar

from buoyline.offloader import ContextArchive, Offloader, ResultStore, SummaryLog, TranscriptReader, WindowLog
from buoyline.offloader.protocol import abilities_of
from buoyline.workspace import ReadableWorkspace

T = TypeVar("T")


def raises(kind: type[BaseException], match: str | None = None) -> AbstractContextManager[Any]:
    """Expect the block to raise *kind* with a text that matches *match*."""
    import pytest  # noqa: PLC0415 - see above

    return pytest.raises(kind, match=match)


def required(ability: T | None, name: str) -> T:
    """Return *ability*, or skip the test if the implementation lacks it.

    Args:
        ability: From `abilities_of`.
        name: For the reason of the skip.
    """
    import pytest  # noqa: PLC0415 - see above

    if ability is None:
        pytest.skip(f"has no {name}")
    return ability


ALL: Final = (0, 1 << 30)
"""The range of all messages."""


class WorkspaceSuite(ABC):
    """A suite for workspaces: inherit one with a fixture ``workspace`` that returns a new one for each test."""

    @abstractmethod
    def peek(self, workspace: Any, reference: str) -> str:
        """Return the text stored under *reference* without the workspace itself.

        So a mistake in writing cannot hide behind the same mistake in reading. Decode bytes with
        ``"utf-8", "surrogatepass"``, so that half a character comes back, too.
        """


def archive_of(workspace: Offloader) -> ContextArchive:
    """Return the workspace's archive, or skip the test."""
    return required(abilities_of(workspace).archive, "archive")


def results_of(workspace: Offloader) -> ResultStore:
    """Return the workspace's result store, or skip the test."""
    return required(abilities_of(workspace).results, "store of results")


def summaries_of(workspace: Offloader) -> SummaryLog:
    """Return the workspace's summary log, or skip the test."""
    return required(abilities_of(workspace).summaries, "log of summaries")


def transcript_of(workspace: Offloader) -> TranscriptReader:
    """Return the workspace's transcript reader, or skip the test."""
    return required(abilities_of(workspace).transcript, "lines of the transcript")


def windows_of(workspace: Offloader) -> WindowLog:
    """Return the workspace's window log, or skip the test."""
    return required(abilities_of(workspace).windows, "log of windows")


def readable(workspace: Any) -> ReadableWorkspace:
    """Return *workspace* for lookups, or skip the test if they cannot read it."""
    found: ReadableWorkspace = required(workspace if hasattr(workspace, "files") else None, "files to read")
    return found


async def loaded(archive: ContextArchive, session_id: str) -> list[dict[str, Any]]:
    """Return the JSON of all archived messages of a session, in order."""
    return [message for _, message in await archive.load_messages(session_id, *ALL)]
