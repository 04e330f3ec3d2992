"""The shipped conformance suite, run on what we have."""

import json
from pathlib import Path
from typing import Any

import pytest

from buoyline import LocalWorkspace
from buoyline.offloader import Offloader
from buoyline.testing import OffloaderConformance


class TestLocalWorkspace(OffloaderConformance):
    @pytest.fixture
    def offloader(self, tmp_path: Path) -> LocalWorkspace:
        return LocalWorkspace(tmp_path)

    def peek(self, offloader: Any, reference: str) -> str:
        return Path(reference).read_bytes().decode("utf-8")


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
