"""Whole tool results in files of their own, and payloads in ``data/``.

A result is in its file before the line of its message is written. So a file that no line names is a leftover of a
writer that died, and gc removes it.
"""

import hashlib
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any

from buoyline.errors import CorruptError, InvalidNameError
from buoyline.messages import Json, Media, Opaque, Text, ToolResult, spell
from buoyline.messages.model import ResultPart, join_texts
from buoyline.messages.registry import dialect_named
from buoyline.offloader.protocol import StoredFile, StoredPart, StoredResult, needs_view, view_blocks, view_of
from buoyline.previews.source import BytesSource, Source, TextSource, decoded
from buoyline.workspace import layout
from buoyline.workspace.disk import Disk, StagedFile


def put_blob(disk: Disk, payload: bytes, media_type: str) -> str:
    """Store *payload* durably and return its reference. Equal bytes of one type are one file.

    A file that is there is touched, so that gc takes it for new. If it holds other bytes, these are set aside.

    Raises:
        StorageError: The file system refused.
    """
    name = layout.blob_name(payload, media_type)
    if not disk.publish(name, (payload,)):
        found = disk.read(name)
        if found == payload:
            disk.freshen(name)
        else:
            disk.make_directory(f"{layout.DATA}/{layout.TORN}")
            disk.publish(f"{layout.DATA}/{layout.torn_name(name.removeprefix('data/'), 0, found)}", (found,))
            disk.replace(name, (payload,))
    return layout.reference_to(name)


def get_blob(disk: Disk, reference: str) -> bytes:
    """Return the bytes of *reference*, checked against their hash.

    Raises:
        InvalidNameError: `put_blob` returned no such reference.
        CorruptError: The file does not hold the stored bytes.
        StorageError: The file is missing.
    """
    name = layout.blob_behind(reference)
    if name is None:
        raise InvalidNameError(reference, "is no reference to a file under data/")
    payload = disk.read(name)
    if not name.startswith(f"{layout.DATA}/{hashlib.sha256(payload).hexdigest()}."):
        raise CorruptError(disk.path(name), "the bytes do not match the name; restore them from a copy")
    return payload


_AGENTSCOPE = dialect_named("agentscope")


def with_data_tags(result: ToolResult, native: object) -> ToolResult:
    """Return *result* with a tag for each image or file, after the text before it, if *native* is AgentScope's.

    Source: AgentScope's workspace writes ``<data url=... name=... media_type=.../>`` in place of each data block, and
    its agents read there where the file is.
    """
    if not _AGENTSCOPE.detects_result(native):
        return result
    parts: list[ResultPart] = []
    for part in result.parts:
        if isinstance(part, Media):
            before = parts[-1] if parts else None
            if isinstance(before, Text):
                parts[-1] = Text(before.text + data_tag(part))
            else:
                parts.append(Text(data_tag(part)))
        parts.append(part)
    return replace(result, parts=tuple(parts))


def data_tag(medium: Media) -> str:
    """Return the tag of one image or file, on one line whatever its name is.

    >>> data_tag(Media("image", "image/png", 0, "https://example.org/a.png", "buoy's"))
    "<data url='https://example.org/a.png' name='buoy&#x27;s' media_type='image/png'/>"
    """
    payload = medium.content()
    url = medium.source if payload is None else layout.reference_to(layout.blob_name(payload, medium.media_type))
    facts = {"url": url, "name": medium.name, "media_type": medium.media_type}
    attributes = " ".join(f"{key}='{escape(' '.join(fact.split()))}'" for key, fact in facts.items() if fact)
    return f"<data {attributes}/>"


# A character takes up to three bytes more than in ASCII, so both make about a megabyte.
_ASCII_SLICE_CHARS = 1 << 20
_SLICE_CHARS = 1 << 18
_CHUNK_BYTES = 1 << 18


@dataclass(slots=True)
class Measure:
    """Size, checksums and lines of a text in UTF-8, taken while it is written."""

    size_bytes: int = 0
    crc: int = 0
    newlines: int = 0
    needs_view: bool = False
    last: bytes = b"\n"
    digest: Any = field(default_factory=hashlib.sha256)

    def add(self, chunk: bytes) -> None:
        """Count *chunk*."""
        self.size_bytes += len(chunk)
        self.crc = zlib.crc32(chunk, self.crc)
        self.newlines += chunk.count(b"\n")
        self.digest.update(chunk)
        self.last = chunk[-1:] or self.last

    @property
    def lines(self) -> int:
        """Return how many lines there are; a last line may lack its end."""
        return self.newlines + (self.last != b"\n")

    def file(self, name: str) -> StoredFile:
        """Return the facts of a file with this content."""
        return StoredFile(name, self.size_bytes, f"{self.crc:08x}")


class Results:
    """The tool results of a session."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        *,
        prepare: Callable[[], None],
        shown: Callable[[str], str],
        lock_timeout_s: float = 30.0,
    ) -> None:
        """Store in *directory* of *disk*.

        Args:
            disk: Where the workspace is.
            directory: The session's.
            prepare: Creates it durably before the first file.
            shown: Returns the path of a name as the agent knows it.
            lock_timeout_s: How long to wait for another writer of the session.
        """
        self._lock_timeout_s = lock_timeout_s
        self._disk, self._directory, self._prepare, self._shown = disk, directory, prepare, shown

    def store(self, result: ToolResult) -> StoredResult:
        """Store *result* durably: its media in ``data/``, its text and JSON, byte for byte, in a file of its own.

        The same id with the same content is the same file; with other content it is another file, since ids repeat in
        real sessions. Lone surrogates are written in their three-byte form.

        Raises:
            CorruptError: Damaged files have both names that the content may have.
            StorageError: The file system refused.
        """
        self._prepare()
        texts = result.texts
        measure, parts = Measure(), tuple(self._parts(result.parts, texts))
        with self._disk.stage(self._directory) as staged:
            for chunk in _encoded(texts):
                measure.add(chunk)
                staged.write(chunk)
            name = self._place(result.call_id, measure, staged)
        view = view_of(join_texts(list(texts))) if any(map(needs_view, texts)) else None
        shown = None if view is None else self._put_view(name, (view.encode(),))
        return self._described(name, measure, shown, parts)

    def store_text(self, name: str, text: str) -> StoredFile:
        """Store *text*, such as the arguments of a call, durably in file *name* of the session."""
        self._prepare()
        measure = Measure()
        for chunk in _encoded((text,)):
            measure.add(chunk)
        self._disk.replace(f"{self._directory}/{name}", _encoded((text,)))
        return measure.file(name)

    @contextmanager
    def stage(self) -> "Generator[StagedResult]":
        """Begin a result that is written while it arrives; it is gone after the block unless it was published."""
        self._prepare()
        with self._disk.stage(self._directory) as file:
            yield StagedResult(self, file)

    def source(self, stored: StoredResult) -> Source:
        """Return the text that the lines of *stored* refer to: its view if there is one. Reading it blocks."""
        return self._source(layout.view_name(stored.name) if stored.view else stored.name)

    def publish(self, call_id: str, measure: Measure, file: StagedFile, partial: str = "") -> StoredResult:
        """Give a staged result its name, by the rules of `store`; *partial* says why it is not whole."""
        name = self._place(call_id, measure, file)
        blocks = (block.encode() for block in view_blocks(self._source(name)))
        shown = self._put_view(name, blocks) if measure.needs_view else None
        return self._described(name, measure, shown, (StoredPart("text", measure.size_bytes),), partial)

    def _source(self, name: str) -> Source:
        path = f"{self._directory}/{name}"
        status = self._disk.status(path)
        return BytesSource(lambda: self._disk.chunks(path), status.size if status else 0)

    def _place(self, call_id: str, measure: Measure, staged: StagedFile) -> str:
        """Publish the content under the name of the id, or with its hash if other content has that; return the name."""
        path = ""
        # Two writers may store other results of one id at once.
        with self._disk.locked(f"{self._directory}/{layout.CONTEXT}", self._lock_timeout_s):
            for variant in ("", measure.digest.hexdigest()):
                name = layout.result_name(call_id, variant)
                path = f"{self._directory}/{name}"
                if staged.publish_as(path):
                    return name
                if self._is_same(path, staged):
                    self._disk.freshen(path)
                    return name
        raise CorruptError(self._disk.path(path), "is not the tool result that belongs there; move it away")

    def _put_view(self, name: str, blocks: Iterable[bytes]) -> Measure:
        """Write the view of a result. A wrong one is replaced: all that it shows is in the result."""
        measure, path = Measure(), f"{self._directory}/{layout.view_name(name)}"
        with self._disk.stage(self._directory) as staged:
            for block in blocks:
                measure.add(block)
                staged.write(block)
            if not staged.publish_as(path) and not self._is_same(path, staged):
                staged.replace(path)
        return measure

    def _is_same(self, path: str, staged: StagedFile) -> bool:
        with self._disk.opened(path) as file:
            if file.size != staged.size:
                return False
            steps = range(0, file.size, _CHUNK_BYTES)
            return all(file.read(at, _CHUNK_BYTES) == staged.read(at, _CHUNK_BYTES) for at in steps)

    def _parts(self, parts: Sequence[ResultPart], texts: Sequence[str]) -> Iterator[StoredPart]:
        offset, left = 0, iter(texts)
        for part in parts:
            match part:
                case Text() | Json():
                    text = next(left)
                    size_bytes = TextSource(text).size_bytes
                    yield StoredPart("text" if isinstance(part, Text) else "json", size_bytes, offset)
                    offset += size_bytes + (not text.endswith("\n"))
                case Media() if (content := part.content()) is not None:
                    yield self._blob(part.kind, content, part.media_type, part.name)
                case Media() | Opaque():
                    spelled = part.json if isinstance(part, Opaque) else spell({"url": part.source, "name": part.name})
                    content = spelled.encode("utf-8", "surrogatepass")
                    yield self._blob("opaque", content, "application/json", part.kind)

    def _blob(self, kind: str, content: bytes, media_type: str, name: str) -> StoredPart:
        path = layout.blob_behind(put_blob(self._disk, content, media_type)) or ""
        return StoredPart(kind, len(content), 0, media_type, path, self._shown(path), name)

    def _described(
        self, name: str, measure: Measure, view: Measure | None, parts: tuple[StoredPart, ...], partial: str = ""
    ) -> StoredResult:
        path = self._shown(f"{self._directory}/{name}")
        files = [measure.file(name)]
        shown = ""
        if view is not None:
            files.append(view.file(layout.view_name(name)))
            shown = self._shown(f"{self._directory}/{layout.view_name(name)}")
        # The name of a payload is its checksum.
        files += [StoredFile(part.path, part.size_bytes, "") for part in parts if part.path]
        lines = measure.lines if view is None else view.lines
        return StoredResult(path, name, shown, lines, parts, partial, tuple(files))


class StagedResult:
    """A result that is written while it arrives."""

    def __init__(self, results: Results, file: StagedFile) -> None:
        """Write to *file*."""
        self._results, self._file, self._measure = results, file, Measure()

    def append(self, block: bytes) -> None:
        """Add a block: whole lines, or a part of a long one."""
        self._file.write(block)
        needs = self._measure.needs_view or needs_view(decoded(block), is_beginning=not self._measure.size_bytes)
        self._measure.needs_view = needs
        self._measure.add(block)

    def publish(self, call_id: str, partial: str = "") -> StoredResult:
        """Store it as the result of a call; *partial* says why it is not whole."""
        return self._results.publish(call_id, self._measure, self._file, partial)


def _encoded(texts: Sequence[str]) -> Iterator[bytes]:
    """Yield texts in UTF-8 in slices, each text on a new line; so a large text takes no second copy of itself."""
    for number, text in enumerate(texts, 1):
        slice_chars = _ASCII_SLICE_CHARS if text.isascii() else _SLICE_CHARS
        for start in range(0, len(text), slice_chars):
            yield text[start : start + slice_chars].encode("utf-8", "surrogatepass")
        if number < len(texts) and not text.endswith("\n"):
            yield b"\n"
