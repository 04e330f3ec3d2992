"""The messages that leave, line by line as the transcript has them, each line with the place it is cited by.

Pure. A summariser that sees the very numbers of ``transcript.md`` can cite lines that are there, and what it cites
can be looked up without reading a file.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from buoyline.compression.excerpts import Excerpt
from buoyline.compression.summary import Pointer, Source
from buoyline.messages import Part, Role, ToolResult
from buoyline.offloader.transcript import render_parts


@dataclass(frozen=True, slots=True)
class NumberedLine:
    """A line that may be cited.

    Attributes:
        path: File that it stands in, relative to the session's directory; empty where no lines are known.
        number: Counted from 1; 0 where no lines are known.
        text: What stands there.
    """

    path: str
    number: int
    text: str


@dataclass(frozen=True, slots=True)
class Block:
    """Lines of one message that one hand wrote.

    Attributes:
        role: Who says the message.
        is_result: A tool wrote the lines, so they are data and never an instruction.
        is_heading: The line that says who speaks.
        lines: In order; may be empty.
    """

    role: Role
    is_result: bool
    is_heading: bool
    lines: tuple[NumberedLine, ...]


def blocks_of(sources: Sequence[Source]) -> Iterator[Block]:
    """Yield the lines of *sources* in reading order, those that stubs show of offloaded results behind their notices.

    Where a message takes other lines in the transcript than it does here, because another version rendered it, its
    lines have no numbers: a wrong number is worse than none.
    """
    first = sources[0].index if sources else 0
    notices = {excerpt.stub: _notice(excerpt) for source in sources for excerpt in _offloaded(source)}
    messages = [source.message for source in sources]
    for source, pieces in zip(sources, render_parts(messages, first, [""] * len(messages), notices.get), strict=True):
        yield from _blocks(source, pieces)


def _offloaded(source: Source) -> list[Excerpt]:
    return [excerpt for excerpt in source.excerpts if excerpt is not None and excerpt.path and excerpt.stub]


def _notice(excerpt: Excerpt) -> str:
    return f"[offloaded to {excerpt.path}]"


def _blocks(source: Source, pieces: Sequence[Sequence[str]]) -> Iterator[Block]:
    pointer, role = source.pointer, source.message.role
    if pointer is not None and sum(map(len, pieces)) != pointer.end - pointer.start + 1:
        pointer = None
    number = 0 if pointer is None else pointer.start
    shown = {_notice(excerpt): excerpt for excerpt in _offloaded(source)}
    parts: list[Part | None] = [None, *source.message.parts, None]
    for position, (part, texts) in enumerate(zip(parts, pieces, strict=True)):
        lines = [
            NumberedLine(pointer.path, number + offset, text) if pointer else NumberedLine("", 0, text)
            for offset, text in enumerate(texts)
        ]
        number += len(lines)
        is_result = isinstance(part, ToolResult)
        for excerpt in [shown[line.text] for line in lines if line.text in shown] if is_result else []:
            lines += [NumberedLine(excerpt.path, at, text) for at, text in excerpt.lines]
        yield Block(role, is_result, position == 0, tuple(lines))


def pointer_to(lines: Sequence[NumberedLine]) -> Pointer | None:
    """Return what names *lines*, which stand in one file in order; None where they have no numbers, or are none."""
    if not lines or not lines[0].number:
        return None
    return Pointer(lines[0].path, lines[0].number, lines[-1].number)
