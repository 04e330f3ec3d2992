"""`read`: lines of a file, by number."""

import codecs
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from buoyline.errors import ConfigError
from buoyline.lookups.answer import (
    DATA_LABEL,
    Answer,
    AnswerBudget,
    Counter,
    Line,
    as_arguments,
    cut_row,
    shown_path,
)
from buoyline.lookups.lines import count_lines, lines_of
from buoyline.lookups.paths import resolve_file
from buoyline.lookups.sources import Texts, require_workspace
from buoyline.workspace import ReadableWorkspace, layout

_SNIFFED_BYTES = 1 << 13

# The first bytes of files, by the specifications of their formats.
_BEGINNINGS = (
    (b"\x89PNG\r\n\x1a\n", "PNG image"),
    (b"\xff\xd8\xff", "JPEG image"),
    (b"GIF87a", "GIF image"),
    (b"GIF89a", "GIF image"),
    (b"II*\x00", "TIFF image"),
    (b"MM\x00*", "TIFF image"),
    (b"%PDF-", "PDF document"),
    (b"PK\x03\x04", "ZIP archive, which many office documents are, too"),
    (b"\x1f\x8b\x08", "gzip archive"),
    (b"ID3", "MP3 audio"),
    (b"OggS", "Ogg audio"),
    (b"fLaC", "FLAC audio"),
    (b"\x1a\x45\xdf\xa3", "Matroska or WebM video"),
)
_TEXT_SUFFIXES = (".txt", ".md", ".log", ".json", ".jsonl", ".csv")
_CONTAINERS = {b"WEBP": "WebP image", b"WAVE": "WAV audio", b"AVI ": "AVI video"}


def description_of(texts: Texts, name: str) -> str | None:
    """Describe the file *name* by type and size; None if it is text.

    A file that begins as UTF-8 without NUL is text. Outside ``data/`` so is a file with the suffix of a text, and one
    of no known format: a log with a few bad bytes is worth reading.
    """
    head = texts.read(name, 0, _SNIFFED_BYTES)
    is_payload = layout.digest_in(name) is not None
    if begins_as_text(head) or (not is_payload and name.endswith(_TEXT_SUFFIXES)):
        return None
    if head.startswith(b"RIFF"):
        kind = _CONTAINERS.get(head[8:12])
    elif head[4:8] == b"ftyp":
        kind = "MP4 video or HEIF image"
    else:
        kind = next((kind for beginning, kind in _BEGINNINGS if head.startswith(beginning)), None)
    if kind is None and not is_payload:
        return None
    about = f"[{shown_path(name)}: {kind or 'binary content'}, {texts.size(name) or 0:,} bytes. {DATA_LABEL}]\n"
    return f"{about}[It has no lines to read. grep finds text in it; its path is all that other tools need.]\n"


def begins_as_text(head: bytes) -> bool:
    """Return whether *head*, the first bytes of a file, is UTF-8 without NUL."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return b"\0" not in head


def read(
    workspace: ReadableWorkspace,
    path: str,
    start: int = 1,
    end: int | None = None,
    *,
    session: str | None = None,
    max_tokens: int = 2_000,
    counter: Counter | None = None,
) -> Answer:
    """Read lines of a file in the workspace.

    A line over 1,000 characters is cut there, so that one long line does not hide those after it; `grep` shows the
    parts of it that match. The time grows with the size of the file, the memory does not.

    *path* is absolute below the workdir, or relative to it; a citation such as ``transcript.md:120-135`` means its
    lines only, and ``transcript.md:-60`` the last 60. *start* and *end* count from 1 and are included; ``-60`` begins
    with the 60th line from the end, and None is the end of the file. For the other arguments see `buoyline.lookups`.

    Returns:
        At least one line, or a part of one, unless the file ends before *start*. Invalid UTF-8 becomes U+FFFD; control
        and bidirectional characters become escapes. An image or another file without lines is described by type and
        size. Of lines that are counted from the end, the budget cuts the first ones.

    Raises:
        ConfigError: *workspace* is no workspace; *start* is 0, *end* is below 1 or before *start*; *path* cites
            something that cannot be lines, or no line from *start* to *end*; or *max_tokens* is too small.
        InvalidNameError: *path* leads out of the workspace or to a hidden file.
        NotFoundError: There is no such file or session, or it is a directory.
        StorageError: It is not a regular file or cannot be read.
    """
    require_workspace(workspace)
    if not start:
        raise ConfigError("start", "0 is no line; lines count from 1, and from the end with -1")
    resolved = resolve_file(workspace, path, session)
    texts = Texts(workspace)
    described = description_of(texts, resolved.name)
    if described is not None:
        return Answer(text=described, path=resolved.name)
    total = count_lines(texts.chunks(resolved.name))
    first = min(max(start if start > 0 else total + start + 1, resolved.first), sys.maxsize)
    last = min(sys.maxsize if end is None else end, resolved.last)
    if last < first:
        raise ConfigError("end", f"line {last} is before line {first}; lines count from 1, the last one included")
    last = min(last, total)
    ranges = resolved.within(first, last)
    if ranges:
        first, last = ranges[0][0], ranges[-1][1]
    elif first <= last:
        raise ConfigError("start", f"{path!r} cites none of the lines {first:,} to {last:,}")
    is_from_end = start < 0 or (start == 1 and resolved.is_from_end)
    budget = AnswerBudget(max_tokens, counter)
    page = _Page(shown_path(resolved.name), first, last, total, is_from_end)
    chosen = _last_lines(ranges, budget.max_lines) if is_from_end else ranges
    lines = lines_of(texts, resolved.name, chosen)
    shown = budget.fill(list(lines)[::-1], page)[::-1] if is_from_end else budget.fill(lines, page)
    following = page.following(shown)
    repeated = {"path": path, "end": end, "session": session, **({"start": start} if start < 0 else {})}
    return Answer(
        text=page.text(shown),
        path=resolved.name,
        lines=tuple(shown),
        total=total,
        next={**repeated, **following} if following else {},
    )


def _last_lines(ranges: Sequence[tuple[int, int]], count: int) -> Sequence[tuple[int, int]]:
    kept: list[tuple[int, int]] = []
    for first, last in reversed(ranges):
        if count > 0:
            kept.append((max(first, last - count + 1), last))
            count -= last - first + 1
    return kept[::-1]


@dataclass(frozen=True, slots=True)
class _Page:
    """The text of an answer about lines *first* to *last* of *about*, which has *total* lines.

    If it *is_from_end*, the first lines are cut. It is then filled from the last line on.
    """

    about: str
    first: int
    last: int
    total: int
    is_from_end: bool

    def frame(self) -> str:
        """Return heading and footer at their longest."""
        return self._framed([Line("", self.last, 1, "")], "")

    def row(self, line: Line) -> str:
        """Return a line with its number, and how much of it is cut."""
        cut = f"[Line {line.number} has {line.rest:,} more characters: grep finds text in them.]\n" if line.rest else ""
        return f"{line.number}\t{line.text}\n{cut}"

    def text(self, lines: Sequence[Line]) -> str:
        """Return the whole answer, with *lines* in the order of the file."""
        if self.is_from_end:
            lines = sorted(lines, key=lambda line: line.number)
        return self._framed(lines, "".join(map(self.row, lines)))

    def following(self, lines: Sequence[Line]) -> dict[str, Any]:
        """Return where to go on after *lines*, or before them; empty at the end."""
        if not lines:
            return {}
        if self.is_from_end:
            oldest = min(line.number for line in lines)
            return {"end": oldest - 1} if oldest > self.first else {}
        return {"start": lines[-1].number + 1} if lines[-1].number < self.last else {}

    def _framed(self, lines: Sequence[Line], rows: str) -> str:
        if not lines:
            plural = "" if self.total == 1 else "s"
            return f"[{self.about} has {self.total:,} line{plural}; there is no line {self.first:,}.]\n"
        heading = f"[{self.about}, lines {lines[0].number}-{lines[-1].number} of {self.total}. {DATA_LABEL}]\n"
        following = self.following(lines)
        if self.is_from_end and following:
            return f"{heading}{rows}[The lines before are cut. To go on, {as_arguments(following)}]\n"
        return heading + rows + cut_row(following)
