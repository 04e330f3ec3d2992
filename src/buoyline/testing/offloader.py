"""What every offloader must do, as tests to inherit.

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

from buoyline.messages import Text, ToolResult
from buoyline.offloader import Offloader

_TEXTS = ("plain", "", "two\nlines\n", "größer 漢字 🦊", "a\x00b\x1b[31m", "\u2028\u0085", "x" * 100_000)


class OffloaderConformance(ABC):
    """Inherit it in a test class, with a fixture ``offloader`` that gives a new one for each test.

    The tests are asynchronous; pytest-asyncio runs them in its mode ``auto``.
    """

    @abstractmethod
    def peek(self, offloader: Any, reference: str) -> str:
        """Return the text stored under *reference*, without asking the offloader itself.

        A mistake in writing then cannot hide behind the same mistake in reading.
        """

    async def test_a_tool_result_is_stored_whole_under_its_reference(self, offloader: Offloader) -> None:
        """Each text comes back equal, empty, hostile and large ones included."""
        for number, text in enumerate(_TEXTS):
            reference = await offloader.offload_tool_result("s", _result(f"call_{number}", text))
            assert self.peek(offloader, reference) == text

    async def test_one_call_id_with_two_results_keeps_both(self, offloader: Offloader) -> None:
        """Ids repeat in real sessions, and are all empty in some."""
        for call_id in ("same", ""):
            first = await offloader.offload_tool_result("s", _result(call_id, "one"))
            second = await offloader.offload_tool_result("s", _result(call_id, "two"))
            assert (self.peek(offloader, first), self.peek(offloader, second)) == ("one", "two")

    async def test_sessions_do_not_mix(self, offloader: Offloader) -> None:
        """The same id in another session is another result."""
        first = await offloader.offload_tool_result("s1", _result("c", "one"))
        second = await offloader.offload_tool_result("s2", _result("c", "two"))
        assert (self.peek(offloader, first), self.peek(offloader, second)) == ("one", "two")

    async def test_every_message_can_be_found_under_the_reference_of_its_batch(self, offloader: Offloader) -> None:
        """A later batch takes nothing from an earlier one."""
        references = [await offloader.offload_context("s", [_said(f"needle-{number}")]) for number in range(5)]
        for number, reference in enumerate(references):
            assert f"needle-{number}" in self.peek(offloader, reference)

    async def test_concurrent_batches_are_all_kept(self, offloader: Offloader) -> None:
        """Tasks of one event loop do not overwrite each other."""
        calls = (offloader.offload_context("s", [_said(f"needle-{number}-")]) for number in range(20))
        references = await asyncio.gather(*calls)
        for number, reference in enumerate(references):
            assert f"needle-{number}-" in self.peek(offloader, reference)

    async def test_messages_are_not_changed(self, offloader: Offloader) -> None:
        """The caller's objects are the caller's."""
        message = _said("as it was")
        await offloader.offload_context("s", [message])
        assert message == _said("as it was")


def _result(call_id: str, text: str) -> ToolResult:
    return ToolResult(call_id, "tool", (Text(text),))


def _said(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}
