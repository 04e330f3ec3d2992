"""The text of a tool result as the bytes of its file, made slice by slice: its size costs no memory.

Pure apart from a thread that hashes.
"""

import hashlib
import threading
from collections.abc import Generator, Iterator, Sequence
from queue import Queue
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from buoyline.messages import ToolResult
from buoyline.messages.message import join_texts
from buoyline.offloader.lines import is_readable
from buoyline.offloader.source import decoded
from buoyline.offloader.view import view_of

# A character takes up to three bytes more than in ASCII, so both make about a megabyte.
_ASCII_SLICE_CHARS = 1 << 20
_SLICE_CHARS = 1 << 18
_WAITING_SLICES = 2

# Hashing beside the writing saves 5 of 12 ms at 10 MB; starting a thread costs 0.1 ms.
_HASHED_BESIDE_CHARS = 1 << 21


class Measure(NamedTuple):
    """What is known of a text once it was encoded.

    Attributes:
        size_bytes: Of all of it.
        sha256: Over all of it, in hexadecimal.
        lines: As `buoyline.offloader.lines.count_lines` counts them.
        blocks: Offset and size of each block, without the newlines that were put between them.
    """

    size_bytes: int
    sha256: str
    lines: int
    blocks: tuple[tuple[int, int], ...]


class ViewedContent(Protocol):
    """What stands in the file of a tool result, with the view of it."""

    def chunks(self) -> Generator[bytes]:
        """Yield the bytes in pieces of about a megabyte."""
        ...

    def measure(self) -> Measure:
        """Return size, hash and lines."""
        ...

    def view(self) -> bytes | None:
        """Return the readable view; None where the text itself is readable."""
        ...


class BytesContent:
    """The content of a result that is there as bytes, whatever they are."""

    def __init__(self, content: bytes) -> None:
        """Take *content*; it is not copied."""
        self._content = content

    def chunks(self) -> Generator[bytes]:
        """Yield the bytes."""
        yield self._content

    def measure(self) -> Measure:
        """Return size, hash and lines."""
        lines = self._content.count(b"\n") + (not self._content.endswith(b"\n") and bool(self._content))
        size_bytes = len(self._content)
        return Measure(size_bytes, hashlib.sha256(self._content).hexdigest(), lines, ((0, size_bytes),))

    def view(self) -> bytes | None:
        """Return the readable view; None where the text itself is readable."""
        view = view_of(decoded(self._content))
        return None if view is None else view.encode("utf-8")


class ResultContent:
    """What stands in the file of a tool result: its text and JSON blocks, each beginning on a line of its own.

    Lone surrogates are written in their three-byte form, so that any text a tool gives comes back equal. The
    text is encoded once a slice, and hashed and counted on the way to the file.
    """

    def __init__(self, result: ToolResult) -> None:
        """Take the text and JSON blocks of *result*; nothing is copied."""
        self._texts = list(result.texts)
        self._read: _Read | None = None

    def chunks(self) -> Generator[bytes]:
        """Yield the bytes in pieces of about a megabyte; who reads them to the end has measured them, too."""
        if self._read is None:
            yield from self._measured_chunks()
        else:
            yield from (chunk for text, _ in self._pieces() for chunk in _encoded(text))

    def measure(self) -> Measure:
        """Return size, hash and lines, for which the text is encoded once unless that was done."""
        while (read := self._read) is None:
            for _ in self.chunks():
                pass
        return Measure(
            size_bytes=sum(size for size, _ in read.sizes),
            sha256=read.digest.hexdigest(),
            lines=read.lines,
            blocks=tuple(_places(read.sizes)),
        )

    def view(self) -> bytes | None:
        """Return the readable view; None, without a copy of the text, where the text itself is readable."""
        if all(map(is_readable, self._texts)):
            return None
        view = view_of(join_texts(self._texts))
        return None if view is None else view.encode("utf-8")

    def _pieces(self) -> Iterator[tuple[str, bool]]:
        """Yield the blocks and the newlines between them, with whether it is a block."""
        for number, text in enumerate(self._texts, 1):
            yield text, True
            if number < len(self._texts) and not text.endswith("\n"):
                yield "\n", False

    def _measured_chunks(self) -> Generator[bytes]:
        sizes: list[tuple[int, bool]] = []
        newlines, last = 0, b"\n"
        with _Digest(is_beside=sum(map(len, self._texts)) >= _HASHED_BESIDE_CHARS) as digest:
            for text, is_block in self._pieces():
                size_bytes = 0
                for chunk in _encoded(text):
                    digest.update(chunk)
                    yield chunk
                    size_bytes += len(chunk)
                    newlines += chunk.count(b"\n")
                    last = chunk
                sizes.append((size_bytes, is_block))
        self._read = _Read(digest, sizes, newlines + (not last.endswith(b"\n")))


def _places(sizes: Sequence[tuple[int, bool]]) -> Iterator[tuple[int, int]]:
    """Yield offset and size of each block among the pieces whose *sizes* these are."""
    offset = 0
    for size, is_block in sizes:
        if is_block:
            yield offset, size
        offset += size


class _Digest:
    """A SHA-256 that may be taken in a thread, while whoever feeds it waits for the disk."""

    def __init__(self, *, is_beside: bool) -> None:
        self._hash = hashlib.sha256()
        self._waiting: Queue[bytes | None] | None = None
        # Not an executor: that refuses work while the interpreter ends, when a lane may well be storing.
        self._thread: threading.Thread | None = None
        if is_beside:
            self._waiting = Queue(_WAITING_SLICES)
            self._thread = threading.Thread(target=self._take, args=(self._waiting,), name="buoyline-hash", daemon=True)
            self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._waiting is not None:
            self._waiting.put(None)

    def update(self, chunk: bytes) -> None:
        if self._waiting is None:
            self._hash.update(chunk)
        else:
            self._waiting.put(chunk)

    def hexdigest(self) -> str:
        """Return the digest once the thread has ended, which need not be waited for before the file is synced."""
        if self._thread is not None:
            self._thread.join()
        return self._hash.hexdigest()

    def _take(self, waiting: "Queue[bytes | None]") -> None:
        while (chunk := waiting.get()) is not None:
            self._hash.update(chunk)


class _Read(NamedTuple):
    """What reading the chunks to their end has told; the digest may still be at work."""

    digest: _Digest
    sizes: list[tuple[int, bool]]
    lines: int


def _encoded(text: str) -> Iterator[bytes]:
    """Yield *text* in UTF-8; slices of characters can be encoded one by one, a surrogate is one character."""
    slice_chars = _ASCII_SLICE_CHARS if text.isascii() else _SLICE_CHARS
    for start in range(0, len(text), slice_chars):
        yield text[start : start + slice_chars].encode("utf-8", "surrogatepass")
