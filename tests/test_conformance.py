"""The shipped conformance suites, run on what we have, and on what an afternoon's offloader is."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from buoyline import LocalWorkspace, MemoryWorkspace
from buoyline.offloader import Offloader
from buoyline.testing import OffloaderConformance


class _OnDisk:
    def peek(self, workspace: Any, reference: str) -> str:
        return Path(reference).read_bytes().decode("utf-8", "surrogatepass")


class _InMemory:
    def peek(self, workspace: MemoryWorkspace, reference: str) -> str:
        return workspace.disk.read(reference.removeprefix(f"{workspace.roots[0]}/")).decode("utf-8", "surrogatepass")


class TestLocalWorkspaceAsOffloader(_OnDisk, OffloaderConformance):
    @pytest.fixture
    def offloader(self, tmp_path: Path) -> LocalWorkspace:
        return LocalWorkspace(tmp_path, durability="off")


class TestRedactingWorkspaceAsOffloader(_OnDisk, OffloaderConformance):
    """With a hook that holds nothing to take out, all is stored as without it."""

    @pytest.fixture
    def offloader(self, tmp_path: Path) -> LocalWorkspace:
        return LocalWorkspace(tmp_path, durability="off", redact=lambda text: text.replace("a secret", "[redacted]"))


class TestMemoryWorkspaceAsOffloader(_InMemory, OffloaderConformance):
    @pytest.fixture
    def offloader(self) -> MemoryWorkspace:
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


def test_reading_the_suites_needs_neither_pytest_nor_hypothesis() -> None:
    program = "import sys, buoyline.testing; print(sorted({'hypothesis', 'pytest'} & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-I", "-c", program], encoding="utf-8").strip() == "[]"
