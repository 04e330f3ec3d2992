"""How messages are spelled for a model that summarises them: every line numbered, none that can pass for ours.

Pure. Each line begins with a gutter of ours, so that no text of a message can begin a line, close the fence around
it, or speak with the voice of somebody else.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from buoyline.compression.numbered import Block, NumberedLine, pointer_to

SPOKEN: Final = "|"
"""Ends the gutter of what a person or the model said."""

DATA: Final = ">"
"""Ends the gutter of what a tool gave."""

OMITTED: Final = "\u2026"
"""Begins the line that stands for lines left out; no gutter begins so."""


def spelled(block: Block, transcript: str) -> str:
    """Return the lines of *block* with their gutters.

    Args:
        block: Lines.
        transcript: Path whose lines are numbered without their path, since most are its.
    """
    return spelled_lines(block.lines, transcript, DATA if block.is_result else SPOKEN)


def spelled_lines(lines: Iterable[NumberedLine], transcript: str, bar: str) -> str:
    """Return *lines* with gutters that end in *bar*; a last empty line end is not part of it."""
    return "\n".join(f"{_gutter(line, transcript)}{bar} {line.text}" for line in lines)


def omission(lines: Sequence[NumberedLine], what: str = "lines") -> str:
    """Return the line that stands for *lines* that are left out for want of room, with the numbers they have."""
    places = ", ".join(str(pointer) for span in _by_file(lines) if (pointer := pointer_to(span)) is not None)
    named = f" ({places})" if places else ""
    return f"{OMITTED} {len(lines):,} {what} left out here for length{named} {OMITTED}"


def fenced(name: str, text: str) -> str:
    """Return *text* between marks that it cannot contain: they are named after its own hash."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"<{name}-{digest}>\n{text}\n</{name}-{digest}>"


def _gutter(line: NumberedLine, transcript: str) -> str:
    if not line.number:
        return ""
    return str(line.number) if line.path == transcript else f"{line.path}:{line.number}"


def _by_file(lines: Sequence[NumberedLine]) -> Iterator[list[NumberedLine]]:
    files: dict[str, list[NumberedLine]] = {}
    for line in lines:
        files.setdefault(line.path, []).append(line)
    yield from list(files.values())[:3]
