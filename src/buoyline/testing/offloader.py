"""Tests that every offloader must pass.

```python
class TestBucketOffloader(OffloaderConformance):
    @pytest.fixture
    def offloader(self) -> BucketOffloader:
        return BucketOffloader(...)

    def peek(self, offloader: BucketOffloader, reference: str) -> str:
        return bucket.read(reference)
```
"""

import asyncio
from abc import ABC, abstractmethod
from typing import Any

from buoyline.offloader import Offloader
from buoyline.testing.conversation import HOSTILE_IDS, HOSTILE_TEXTS, result, said


class OffloaderConformance(ABC):
    """Inherit it in a test class with a fixture ``offloader`` that returns a new one for each test.

    The tests are asynchronous; pytest-asyncio runs them in its mode ``auto``.
    """

    @abstractmethod
    def peek(self, offloader: Any, reference: str) -> str:
        """Return the text stored under *reference* without the offloader itself.

        So a mistake in writing cannot hide behind the same mistake in reading.
        """

    async def test_a_tool_result_is_stored_whole_under_its_reference(self, offloader: Offloader) -> None:
        """Each text comes back equal, also empty, hostile and large ones."""
        for number, text in enumerate(HOSTILE_TEXTS):
            reference = await offloader.offload_tool_result("s", result(f"call_{number}", text))
            assert self.peek(offloader, reference) == text

    async def test_one_call_id_with_two_results_keeps_both(self, offloader: Offloader) -> None:
        """Ids repeat in real sessions; in some, all are empty."""
        for call_id in ("same", ""):
            first = await offloader.offload_tool_result("s", result(call_id, "one"))
            second = await offloader.offload_tool_result("s", result(call_id, "two"))
            assert (self.peek(offloader, first), self.peek(offloader, second)) == ("one", "two")

    async def test_hostile_ids_are_results_of_their_own(self, offloader: Offloader) -> None:
        """Models and providers choose ids of calls, and users those of sessions: paths, near duplicates, long ones."""
        calls = [("s", call_id) for call_id in HOSTILE_IDS] + [(session_id, "c") for session_id in HOSTILE_IDS]
        references = [await offloader.offload_tool_result(ids[0], result(ids[1], f"of {ids!r}")) for ids in calls]
        for ids, reference in zip(calls, references, strict=True):
            assert self.peek(offloader, reference) == f"of {ids!r}"

    async def test_sessions_do_not_mix(self, offloader: Offloader) -> None:
        """The same id in another session is another result."""
        first = await offloader.offload_tool_result("s1", result("c", "one"))
        second = await offloader.offload_tool_result("s2", result("c", "two"))
        assert (self.peek(offloader, first), self.peek(offloader, second)) == ("one", "two")

    async def test_every_message_can_be_found_under_the_reference_of_its_batch(self, offloader: Offloader) -> None:
        """A later batch does not change an earlier one."""
        references = [await offloader.offload_context("s", [said(f"needle-{number}")]) for number in range(5)]
        for number, reference in enumerate(references):
            assert f"needle-{number}" in self.peek(offloader, reference)

    async def test_concurrent_batches_are_all_kept(self, offloader: Offloader) -> None:
        """Tasks of one event loop do not overwrite each other."""
        calls = (offloader.offload_context("s", [said(f"needle-{number}-")]) for number in range(20))
        references = await asyncio.gather(*calls)
        for number, reference in enumerate(references):
            assert f"needle-{number}-" in self.peek(offloader, reference)

    async def test_messages_are_not_changed(self, offloader: Offloader) -> None:
        """The messages belong to the caller."""
        message = said("as it was")
        await offloader.offload_context("s", [message])
        assert message == said("as it was")
