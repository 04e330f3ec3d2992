"""What a run of the demo comes to, in figures."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from buoyline.cli.demo.run import SESSION_ID, Outcome
from buoyline.window import ResultOffloaded


@dataclass(frozen=True, slots=True)
class File:
    """A file that the demo left.

    Attributes:
        path: Relative to the workdir, with ``/``.
        size_bytes: Its size.
    """

    path: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Tokens:
    """What one side of the comparison costs.

    Attributes:
        peak: Tokens of the largest model call.
        total: Tokens of all model calls together, which is what is paid for.
    """

    peak: int
    total: int


def managed_tokens(outcome: Outcome) -> Tokens:
    """Return what the model calls took."""
    return _tokens([call.tokens for call in outcome.model_calls])


def unmanaged_tokens(outcome: Outcome) -> Tokens:
    """Return what the same model calls would have taken without buoyline."""
    return _tokens([call.unmanaged_tokens for call in outcome.model_calls])


def files_in(directory: Path) -> Iterator[File]:
    """Yield the files below *directory* by path, hidden ones left out."""
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory)
        if path.is_file() and not any(part.startswith(".") for part in name.parts):
            yield File(name.as_posix(), path.stat().st_size)


def report_of(outcome: Outcome) -> Mapping[str, Any]:
    """Return the figures as JSON values; the names that `buoyline replay` has, too, mean the same there."""
    managed, unmanaged = managed_tokens(outcome), unmanaged_tokens(outcome)
    return {
        "session": SESSION_ID,
        "workdir": str(outcome.workdir),
        "context_size": outcome.size,
        "messages": outcome.messages,
        "tool_calls": len(outcome.tools),
        "steps": len(outcome.model_calls),
        "peak_tokens": managed.peak,
        "peak_tokens_unmanaged": unmanaged.peak,
        "total_tokens": managed.total,
        "total_tokens_unmanaged": unmanaged.total,
        "offloaded": [_offloading(event) for event in outcome.offloaded],
        "compressions": [event.summary.to_json() for event in outcome.compressions],
        "tests": outcome.tests,
        "lookup": _lookup(outcome),
        "files": [asdict(file) for file in files_in(outcome.workdir)],
    }


def _offloading(event: ResultOffloaded) -> dict[str, Any]:
    """Return all of *event* but the stub, which the journal holds."""
    fields = asdict(event)
    del fields["stub"]
    return fields


def _tokens(calls: list[int]) -> Tokens:
    return Tokens(max(calls), sum(calls))


def _lookup(outcome: Outcome) -> dict[str, Any] | None:
    """Return what was looked up and where it was found; the last tools used are grep and read."""
    if outcome.detail is None:
        return None
    found = outcome.tools[-1].output.answer
    lines = found.lines if found is not None else ()
    where = [line for line in lines if outcome.detail.text in line.text]
    return {
        "pattern": outcome.detail.pattern,
        "detail": outcome.detail.text,
        "path": where[0].path if where else "",
        "line": where[0].number if where else 0,
        "text": where[0].text if where else "",
    }
