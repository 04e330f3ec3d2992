"""The shipped conformance suites, run on what we have, and on what an afternoon's offloader is."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from buoyline import LocalWorkspace, MemoryWorkspace
from buoyline.offloader import Offloader
from buoyline.testing import OffloaderConformance, WorkspaceConformance


class _OnDisk:
    def peek(self, workspace: Any, reference: str) -> str:
        return Path(reference).read_bytes().decode("utf-8", "surrogatepass")


class _InMemory:
    def peek(self, workspace: MemoryWorkspace, reference: str) -> str:
        content = workspace._tree._files[reference.removeprefix("memory:///")].content
        return bytes(content).decode("utf-8", "surrogatepass")


class TestLocalWorkspaceAsOffloader(_OnDisk, OffloaderConformance):
    @pytest.fixture
    def offloader(self, tmp_path: Path) -> LocalWorkspace:
        return LocalWorkspace(tmp_path, durability="off")


class TestLocalWorkspace(_OnDisk, WorkspaceConformance):
    """With a hook that holds nothing to take out, all is stored as without it."""

    @pytest.fixture(params=["off", "redacting"])
    def workspace(self, tmp_path: Path, request: pytest.FixtureRequest) -> LocalWorkspace:
        redact = None if request.param == "off" else lambda text: text.replace("a secret", "[redacted]")
        return LocalWorkspace(tmp_path, durability="off", redact=redact)


class TestMemoryWorkspaceAsOffloader(_InMemory, OffloaderConformance):
    @pytest.fixture
    def offloader(self) -> MemoryWorkspace:
        return MemoryWorkspace()


class TestMemoryWorkspace(_InMemory, WorkspaceConformance):
    @pytest.fixture
    def workspace(self) -> MemoryWorkspace:
        return MemoryWorkspace()


class InTenLines:
    """What a user writes in an afternoon, in the form that AgentScope documents."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}

    async def offload_context(self, session_id: str, msgs: Any, **kwargs: Any) -> str:
        key = f"{session_id}/context-{len(self.kept)}"
        self.kept[key] = "\n".join(json.dumps(message) for message in msgs)
        return key

    async def offload_tool_result(self, session_id: str, tool_result: Any, **kwargs: Any) -> str:
        key = f"{session_id}/{tool_result.id}-{len(self.kept)}"
        self.kept[key] = tool_result.text
        return key


class TestInTenLines(OffloaderConformance):
    @pytest.fixture
    def offloader(self) -> Offloader:
        return InTenLines()

    def peek(self, offloader: InTenLines, reference: str) -> str:
        return offloader.kept[reference]


async def test_what_an_implementation_cannot_do_is_skipped_and_not_failed() -> None:
    with pytest.raises(pytest.skip.Exception, match="has no archive"):
        await TestMemoryWorkspace().test_hostile_texts_come_back_equal_from_the_archive(InTenLines())


def test_reading_the_suites_needs_neither_pytest_nor_hypothesis() -> None:
    program = "import sys, buoyline.testing; print(sorted({'hypothesis', 'pytest'} & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-I", "-c", program], encoding="utf-8").strip() == "[]"
