"""Archived messages as they stand in ``context.jsonl``, and how a batch of them is rendered."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

from buoyline.messages import Message, dialect_named, parse, spell
from buoyline.messages.payloads import Reference
from buoyline.offloader.placeholder import is_placeholder
from buoyline.offloader.transcript import render
from buoyline.workspace.journal import Batch, Known


@dataclass(frozen=True)
class ArchivedMessage:
    """One line of ``context.jsonl``.

    Attributes:
        number: Position in the session, 0-based.
        dialect: Name of the message's dialect.
        value: The message's JSON with references in place of payloads.
        references: Where they stand.
    """

    number: int
    dialect: str
    value: dict[str, Any]
    references: tuple[Reference, ...]

    @cached_property
    def line(self) -> bytes:
        """How it stands in ``context.jsonl``, its end included. Raises `MessageError` where it has no JSON form."""
        return spell(self.value).encode("utf-8") + b"\n"

    @cached_property
    def view(self) -> Message:
        """How it reads. Raises `MessageError` where it is no message of its dialect."""
        return dialect_named(self.dialect).view(self.value)


def messages_of(batch: Batch, content: bytes) -> Iterator[ArchivedMessage]:
    """Yield the messages of *batch*, whose bytes are *content*, in order."""
    references: dict[int, list[Reference]] = {}
    for position, reference in batch.references:
        references.setdefault(position, []).append(reference)
    start = 0
    for position, (size, dialect) in enumerate(zip(batch.extent.sizes, batch.dialects, strict=True)):
        value = parse(content[start : start + size])
        yield ArchivedMessage(batch.first + position, dialect, value, tuple(references.get(position, ())))
        start += size


def rendered(messages: Iterable[ArchivedMessage], first: int, times: Sequence[str], known: Known) -> list[list[str]]:
    """Render a batch for the transcript, with stubs told from results by what *known* says of the journal."""
    return render([message.view for message in messages], first, times, lambda text: _notice(known, text))


def transcript_bytes(lines: Sequence[Sequence[str]]) -> bytes:
    """Return rendered lines as they stand in the transcript."""
    return "\n".join([*chain.from_iterable(lines), ""]).encode("utf-8")


def text_digest(text: str) -> str:
    """Return the SHA-256 that a stub's text is known by."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _notice(known: Known, text: str) -> str | None:
    if is_placeholder(text):
        return None  # what stands for a picture says already what it was, and where it is
    stub = known.find_stub(text_digest(text))
    result = None if stub is None else known.find_result(stub["path"])
    if result is None:
        return None
    return f"[offloaded: {result['lines']:,} lines in {result.get('view') or result['path']}]"
