"""The lines of offloaded tool results that a context still shows.

Pure.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from buoyline.compression.identifiers import WORD
from buoyline.messages import Message, Text, ToolResult
from buoyline.offloader import StoredResult
from buoyline.offloader.stub import previewed_lines
from buoyline.offloader.transcript import is_reference_line
from buoyline.previews.layout import PreviewLine

_LAST_WORD = re.compile(rf"[!-~{WORD}]+\Z")
_FIRST_WORD = re.compile(rf"\A[!-~{WORD}]+")


@dataclass(frozen=True, slots=True)
class ResultExcerpt:
    """The lines of an offloaded tool result that its stub shows.

    Attributes:
        path: File whose lines are counted, relative to the session's directory; empty without files.
        lines: Number and text of each line, in order; empty for a stub without a preview.
        stub: Text of the stub, which tells its block from the others of the result.
        whole: Lines of the file from the first on, as many as were read; empty if it was not read.
    """

    path: str
    lines: tuple[tuple[int, str], ...]
    stub: str = ""
    whole: tuple[str, ...] = ()

    @property
    def numbered(self) -> tuple[tuple[int, str], ...]:
        """All known lines in order: those that were read, then other lines of the stub."""
        return (*enumerate(self.whole, 1), *(line for line in self.lines if line[0] > len(self.whole)))


def excerpts_of(message: Message, stubs: Mapping[str, StoredResult]) -> tuple[ResultExcerpt | None, ...]:
    """Return the excerpt of each tool result of *message*.

    Args:
        message: The view of a message.
        stubs: Stored results by the text of their stubs: a stub is known by record, not by its form.

    Returns:
        None for each result that is in the context whole; empty if all are.
    """
    excerpts = [_excerpt_in(result, stubs) for result in message.results] if stubs else []
    return tuple(excerpts) if any(excerpts) else ()


def _excerpt_in(result: ToolResult, stubs: Mapping[str, StoredResult]) -> ResultExcerpt | None:
    for part in result.parts:
        stored = stubs.get(part.text) if isinstance(part, Text) else None
        # The placeholder of an image or another blob shows no lines.
        if isinstance(part, Text) and stored is not None and not is_reference_line(part.text):
            lines = tuple((line.number, _whole_words(line)) for line in previewed_lines(part.text))
            return ResultExcerpt(counted_file(stored), lines, part.text)
    return None


def lines_of_files(results: Iterable[StoredResult]) -> dict[str, int]:
    """Return the number of lines of each file whose lines stubs number."""
    return {name: stored.lines for stored in results if (name := counted_file(stored))}


def counted_file(stored: StoredResult) -> str:
    """Return the file whose lines a stub numbers: the view if there is one; empty without files."""
    return re.split(r"[/\\]", stored.view)[-1] or stored.name


def _whole_words(line: PreviewLine) -> str:
    """Return the shown part of a line; at a cut, without the word there, which may be half of one."""
    text = _FIRST_WORD.sub("", line.text) if line.column > 1 else line.text
    return _LAST_WORD.sub("", text) if line.cut_chars else text
