"""The measurements of a side: by its model, by the system, and on the disk."""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from buoyline.tokens import default_counter
from side_by_side.script import Detail, Script


@dataclass
class Meter:
    """The requests to a scripted model.

    Attributes:
        size: Tokens of its window; a larger request is refused, as by providers.
        calls: Requests, those for summaries included.
        summaries: Requests for summaries.
        refused: Requests that did not fit.
        input_tokens: Tokens of all requests together, counted exactly for ``o200k_base``.
        peak_tokens: Tokens of the largest request that was not refused.
        model_seconds: Processor time in the model, which is not part of the comparison.
    """

    size: int
    calls: int = 0
    summaries: int = 0
    refused: int = 0
    input_tokens: int = 0
    peak_tokens: int = 0
    model_seconds: float = 0.0
    _counts: dict[str, int] = field(default_factory=dict)

    def takes(self, texts: Iterable[str], *, wants_summary: bool) -> tuple[int, bool]:
        """Record a request of *texts*, and return its tokens and whether it fits."""
        tokens = sum(map(self._count, texts))
        self.calls += 1
        self.summaries += wants_summary
        if tokens > self.size:
            self.refused += 1
            return tokens, False
        self.input_tokens += tokens
        self.peak_tokens = max(self.peak_tokens, tokens)
        return tokens, True

    @contextmanager
    def in_model(self) -> Iterator[None]:
        """Exclude the time in this block from the time of the side."""
        began = time.process_time()
        try:
            yield
        finally:
            self.model_seconds += time.process_time() - began

    def _count(self, text: str) -> int:
        if text not in self._counts:
            self._counts[text] = default_counter().count(text)
        return self._counts[text]


class Side(Protocol):
    """One way to run the script."""

    async def run(self) -> None:
        """Run the whole script."""
        ...

    def context(self) -> str:
        """Return all text that the model would see on its next call."""
        ...

    async def look_up(self, name: str) -> str:
        """Return the result if the agent looks for *name* with its own tools, in at most two bounded calls."""
        ...


async def reached(side: Side, script: Script) -> tuple[float, float]:
    """Return the share of the details in the context, and the share there or in the results of lookups."""
    context = side.context()
    shown = [detail for detail in script.details if detail.value in context]
    others = [detail for detail in script.details if detail.value not in context]
    found = [detail for detail in others if detail.value in await side.look_up(detail.name)]
    return len(shown) / len(script.details), (len(shown) + len(found)) / len(script.details)


def written_bytes() -> int:
    """Return how many bytes this process has handed to the system."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text(encoding="ascii").splitlines())
    return int(fields["wchar"])


def disk_bytes(directory: Path) -> int:
    """Return the bytes of the files below *directory*."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def lost(directory: Path, details: Sequence[Detail]) -> float:
    """Return the share of *details* that no file below *directory* has."""
    content = b"\n".join(path.read_bytes() for path in directory.rglob("*") if path.is_file())
    return sum(detail.value.encode() not in content for detail in details) / max(len(details), 1)
