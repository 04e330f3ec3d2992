"""The shipped conformance suites, run on what we have, and on what they have to find wanting."""

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from buoyline import LocalWorkspace, MemoryWorkspace, Quotas
from buoyline.errors import BuoylineError
from buoyline.messages import Text, ToolResult
from buoyline.offloader import ArchivedBatch, Offloader, StoredResult, WindowState
from buoyline.testing import OffloaderConformance, WorkspaceConformance


def on_disk(reference: str) -> str:
    return Path(reference).read_bytes().decode("utf-8", "surrogatepass")


def in_memory(workspace: MemoryWorkspace, reference: str) -> str:
    content = workspace._tree._files[reference.removeprefix("memory:///")].content
    return bytes(content).decode("utf-8", "surrogatepass")


class TestLocalWorkspaceAsOffloader(OffloaderConformance):
    @pytest.fixture
    def offloader(self, tmp_path: Path) -> LocalWorkspace:
        return LocalWorkspace(tmp_path, durability="off")

    def peek(self, offloader: Any, reference: str) -> str:
        return on_disk(reference)


class TestLocalWorkspace(WorkspaceConformance):
    @pytest.fixture(params=["off", "fsync"])
    def workspace(self, tmp_path: Path, request: pytest.FixtureRequest) -> LocalWorkspace:
        return LocalWorkspace(tmp_path, durability=request.param)

    def peek(self, workspace: Any, reference: str) -> str:
        return on_disk(reference)


class TestLocalWorkspaceWithQuotasAndRedaction(WorkspaceConformance):
    """What exceeds nothing and holds nothing to take out is stored as without them."""

    @pytest.fixture
    def workspace(self, tmp_path: Path) -> LocalWorkspace:
        quotas = Quotas(blob_bytes=1 << 30, session_bytes=1 << 30, workspace_bytes=1 << 30)
        return LocalWorkspace(
            tmp_path,
            quotas=quotas,
            redact=lambda text: text.replace("a secret", "[redacted]"),
            redact_payload=lambda payload, _: payload,
        )

    def peek(self, workspace: Any, reference: str) -> str:
        return on_disk(reference)


class TestMemoryWorkspaceAsOffloader(OffloaderConformance):
    @pytest.fixture
    def offloader(self) -> MemoryWorkspace:
        return MemoryWorkspace()

    def peek(self, offloader: MemoryWorkspace, reference: str) -> str:
        return in_memory(offloader, reference)


class TestMemoryWorkspace(WorkspaceConformance):
    @pytest.fixture
    def workspace(self) -> MemoryWorkspace:
        return MemoryWorkspace()

    def peek(self, workspace: MemoryWorkspace, reference: str) -> str:
        return in_memory(workspace, reference)


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


class RepeatsRetries(MemoryWorkspace):
    async def archive(
        self,
        session_id: str,
        messages: Sequence[Any],
        *,
        batch_id: str = "",
        dialect: str | None = None,
        first: int | None = None,
        times: Sequence[str] = (),
    ) -> ArchivedBatch:
        return await super().archive(session_id, messages, dialect=dialect)


class MixesSessions(MemoryWorkspace):
    async def archive(
        self,
        session_id: str,
        messages: Sequence[Any],
        *,
        batch_id: str = "",
        dialect: str | None = None,
        first: int | None = None,
        times: Sequence[str] = (),
    ) -> ArchivedBatch:
        return await super().archive("the only one", messages, batch_id=batch_id, dialect=dialect)

    async def load_messages(self, session_id: str, first: int, end: int) -> list[tuple[str, dict[str, Any]]]:
        return await super().load_messages("the only one", first, end)


class WritesInSteps(MemoryWorkspace):
    async def archive(
        self,
        session_id: str,
        messages: Sequence[Any],
        *,
        batch_id: str = "",
        dialect: str | None = None,
        first: int | None = None,
        times: Sequence[str] = (),
    ) -> ArchivedBatch:
        for message in messages[:-1]:
            await super().archive(session_id, [message], dialect=dialect)
            await asyncio.sleep(0)
        return await super().archive(session_id, messages[-1:], batch_id=batch_id, dialect=dialect)


class CutsResults(MemoryWorkspace):
    async def store_result(self, session_id: str, result: ToolResult) -> StoredResult:
        return await super().store_result(session_id, replace(result, parts=(Text(result.text[:50_000]),)))


class TrustsLooks(MemoryWorkspace):
    async def record_stub(self, session_id: str, stub: str, stored: StoredResult) -> None:
        for text in (stub, f"{stub}."):
            await super().record_stub(session_id, text, stored)


class CountsTooEarly(MemoryWorkspace):
    async def append_summary(self, session_id: str, summary: Mapping[str, Any]) -> int:
        number = len(await self.load_summaries(session_id)) + 1 if session_id in self.session_ids() else 1
        await asyncio.sleep(0)
        await super().append_summary(session_id, summary)
        return number


class HidesMistypedIds(MemoryWorkspace):
    async def load_messages(self, session_id: str, first: int, end: int) -> list[tuple[str, dict[str, Any]]]:
        return await super().load_messages(session_id, first, end) if session_id in self.session_ids() else []


class MiscountsLines(MemoryWorkspace):
    async def locate(self, session_id: str, first: int, end: int) -> ArchivedBatch:
        found = await super().locate(session_id, first, end)
        return replace(found, lines=tuple((start, start) for start, _ in found.lines))


class ForgetsPins(MemoryWorkspace):
    async def load_window(self, session_id: str) -> WindowState:
        return replace(await super().load_window(session_id), pins=())


@pytest.mark.parametrize(
    ("faulty", "test"),
    [
        (RepeatsRetries, "test_the_same_batch_id_is_the_same_batch_at_any_time"),
        (RepeatsRetries, "test_a_batch_id_with_other_messages_is_a_conflict_and_stores_nothing"),
        (RepeatsRetries, "test_a_cancelled_call_and_its_repetition_store_once"),
        (MixesSessions, "test_nothing_of_one_session_is_seen_in_another"),
        (MixesSessions, "test_hostile_session_ids_are_sessions_of_their_own"),
        (WritesInSteps, "test_tasks_at_the_same_time_lose_nothing"),
        (WritesInSteps, "test_a_cancelled_call_and_its_repetition_store_once"),
        (CutsResults, "test_hostile_texts_come_back_equal_from_the_results"),
        (TrustsLooks, "test_a_stub_is_known_by_its_record_and_not_by_its_looks"),
        (CountsTooEarly, "test_tasks_at_the_same_time_lose_nothing"),
        (HidesMistypedIds, "test_what_is_not_there_is_not_found"),
        (MiscountsLines, "test_line_ranges_lead_to_the_lines_of_each_message"),
        (ForgetsPins, "test_a_window_comes_back_as_it_was_left"),
    ],
)
async def test_the_suite_finds_the_mistake(faulty: type[MemoryWorkspace], test: str) -> None:
    with pytest.raises((AssertionError, BuoylineError, pytest.fail.Exception)):
        await getattr(TestMemoryWorkspace(), test)(faulty())


async def test_what_an_implementation_cannot_do_is_skipped_and_not_failed() -> None:
    with pytest.raises(pytest.skip.Exception, match="has no archive"):
        await TestMemoryWorkspace().test_no_messages_change_nothing(InTenLines())


def test_reading_the_suites_needs_neither_pytest_nor_hypothesis() -> None:
    program = "import sys, buoyline.testing; print(sorted({'hypothesis', 'pytest'} & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-I", "-c", program], encoding="utf-8").strip() == "[]"


def test_the_examples_in_the_documentation_pass(tmp_path: Path) -> None:
    page = (Path(__file__).parents[1] / "docs" / "testing.md").read_text(encoding="utf-8")
    examples = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    for number, example in enumerate(examples):
        (tmp_path / f"test_example_{number}.py").write_text(example, encoding="utf-8")
    settings = ("asyncio_mode = auto", "asyncio_default_fixture_loop_scope = function", "filterwarnings = error")
    (tmp_path / "pytest.ini").write_text("\n".join(("[pytest]", *settings)), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, encoding="utf-8", check=False)

    assert ran.returncode == 0, ran.stdout
    assert len(examples) == 7
    assert " skipped" not in ran.stdout
