"""What the suites for workspaces have in common."""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from typing import Any, Final, TypeVar

from buoyline.offloader import (
    ContextArchive,
    Offloader,
    ResultStore,
    SummaryLog,
    TranscriptReader,
    WindowLog,
    abilities_of,
)

# What the suites say to pytest. It is imported when a test runs, so that reading a suite does not need it.


T = TypeVar("T")


def raises(kind: type[BaseException], match: str | None = None) -> AbstractContextManager[Any]:
    """Expect the block to raise *kind*, with a text in which the pattern *match* is found."""
    import pytest  # noqa: PLC0415 - see above

    return pytest.raises(kind, match=match)


def required(ability: T | None, name: str) -> T:
    """Return *ability*, or skip the test for an implementation that does not have it.

    Args:
        ability: From `abilities_of`.
        name: Its name, for the reason.
    """
    import pytest  # noqa: PLC0415 - see above

    if ability is None:
        pytest.skip(f"has no {name}")
    return ability


ALL: Final = (0, 1 << 30)
"""From the first message up to whatever is the last."""


class WorkspaceSuite(ABC):
    """A suite on a workspace: inherit one, with a fixture ``workspace`` that gives a new one for each test."""

    @abstractmethod
    def peek(self, workspace: Any, reference: str) -> str:
        """Return the text stored under *reference*, without asking the workspace itself.

        A mistake in writing then cannot hide behind the same mistake in reading. Bytes are decoded with
        ``"utf-8", "surrogatepass"``, so that half a character comes back, too.
        """


def archive_of(workspace: Offloader) -> ContextArchive:
    """Return the workspace's archive, or skip the test."""
    return required(abilities_of(workspace).archive, "archive")


def results_of(workspace: Offloader) -> ResultStore:
    """Return the workspace's store of results, or skip the test."""
    return required(abilities_of(workspace).results, "store of results")


def summaries_of(workspace: Offloader) -> SummaryLog:
    """Return the workspace's log of summaries, or skip the test."""
    return required(abilities_of(workspace).summaries, "log of summaries")


def transcript_of(workspace: Offloader) -> TranscriptReader:
    """Return what shows the workspace's transcript line by line, or skip the test."""
    return required(abilities_of(workspace).transcript, "lines of the transcript")


def windows_of(workspace: Offloader) -> WindowLog:
    """Return the workspace's log of windows, or skip the test."""
    return required(abilities_of(workspace).windows, "log of windows")


async def loaded(archive: ContextArchive, session_id: str) -> list[dict[str, Any]]:
    """Return the JSON of all archived messages of a session, in order."""
    return [message for _, message in await archive.load_messages(session_id, *ALL)]
