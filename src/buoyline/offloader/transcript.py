"""Transcripts: archived messages as text for reading and searching; and reference lines, which replace media.

Pure and deterministic, so a transcript lost in a crash is rendered again. Line ranges come from the log;
transcripts are never parsed. Source: docs/format.md, "transcript.md". Nothing here counts tokens, so that workspaces
can import it.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain

from buoyline.messages import CachePoint, Json, Media, Message, Opaque, Reasoning, Text, ToolCall, ToolResult
from buoyline.messages.jsonl import is_object
from buoyline.messages.model import Note, Part, text_in
from buoyline.offloader.protocol import StoredPart
from buoyline.previews.source import escaped, readable_lines

_SOURCE_CHARS = 300

StubLookup = Callable[[str], str | None]
"""Maps the text of a result to the place of the whole result if the text is a stub; else None."""


def render(messages: Sequence[Message], first: int, times: Sequence[str], stub: StubLookup) -> list[list[str]]:
    """Render the messages of a batch, of which the first has the session index *first*, 0-based.

    An empty text in *times* makes a heading without a time; *stub* tells stubs from results.

    Returns:
        The lines of each message without line ends, each of at most 1,000 characters: a heading, the body, and an empty
        line.
    """
    return [[*chain.from_iterable(pieces)] for pieces in render_parts(messages, first, times, stub)]


def render_parts(
    messages: Sequence[Message], first: int, times: Sequence[str], stub: StubLookup
) -> Iterator[list[list[str]]]:
    """Yield the lines of `render` in groups: for each message its heading, each part, and the empty line.

    A caller that shows the lines to a model must know which of them a tool wrote.
    """
    tools: dict[str, str] = {}
    for number, (message, time) in enumerate(zip(messages, times, strict=True), first):
        tools.update((call.call_id, call.name) for call in message.calls)
        names = [result.name or tools.get(result.call_id, "") for result in message.results]
        speaker = message.name if message.name and not message.results else ""
        facts = " · ".join(fact for fact in (message.role, speaker, *dict.fromkeys(names), time) if fact)
        heading = [*readable_lines(f"## {number} {facts}")]
        yield [heading, *([*_part(part, tools, stub)] for part in message.parts), [""]]


def _part(part: Part, tools: Mapping[str, str], stub: StubLookup) -> Iterable[str]:
    match part:
        case Note() | Reasoning():
            kind = "note" if isinstance(part, Note) else "reasoning"
            return [f"({kind})", *readable_lines(part.text), f"(end of {kind})"] if part.text else []
        case Text() | Json():
            return readable_lines(text_in(part) or "")
        case ToolCall():
            return [*readable_lines(f"### call {part.name} {part.call_id}".rstrip()), *_arguments(part.arguments)]
        case ToolResult():
            return _result(part, tools, stub)
        case Media() | Opaque():
            return readable_lines(_media(part) if isinstance(part, Media) else f"[{part.kind}] {part.json}")
        case CachePoint():
            return []


def _arguments(arguments: str) -> Iterator[str]:
    try:
        found = json.loads(arguments)
    except (ValueError, RecursionError):
        found = None
    if not is_object(found):
        yield from readable_lines(arguments)
        return
    for key, value in found.items():
        shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        yield from readable_lines(f"{key}:\n{shown}" if "\n" in shown else f"{key}: {shown}")


def _result(result: ToolResult, tools: Mapping[str, str], stub: StubLookup) -> list[str]:
    tool = result.name or tools.get(result.call_id, "")
    failed = " (error)" if result.is_error else ""
    lines = [*readable_lines(" ".join(filter(None, ("### result", tool, result.call_id))) + failed)]
    for inner in result.parts:
        offloaded = stub(inner.text) if isinstance(inner, Text) else None
        lines += _part(inner, tools, stub) if offloaded is None else readable_lines(offloaded)
    return lines


def _media(part: Media) -> str:
    size = f", {part.size_bytes:,} bytes" if part.size_bytes else ""
    source = part.source if len(part.source) <= _SOURCE_CHARS else part.source[:_SOURCE_CHARS] + "..."
    return f"[{part.kind}: {part.media_type or 'unknown type'}{size}]" + (f" {source}" if source else "")


_FORMAT = re.compile(r"[a-z0-9][a-z0-9.+-]{0,39}")
_MAX_NAME_CHARS = 80


def reference_line_for(part: StoredPart) -> str:
    """Write the reference line of a medium: kind, format, name, size and file.

    The result is always one line, whatever type or name the tool gave. Source: Strands' context offloader, which
    documents how these lines begin.

    >>> reference_line_for(StoredPart("image", 12_345, media_type="image/png", reference="/w/data/a.png"))
    '[image: png, 12,345 bytes, /w/data/a.png]'
    """
    subtype = part.media_type.split(";", maxsplit=1)[0].strip().lower().rpartition("/")[2]
    kind = subtype if _FORMAT.fullmatch(subtype) else "unknown format"
    facts = (kind, _shortened(part.name), f"{part.size_bytes:,} bytes", part.reference)
    return f"[{_shortened(part.kind)}: {', '.join(filter(None, facts))}]"


def is_reference_line(text: str) -> bool:
    """Tell a reference line from a stub; call it only for texts recorded as one of them."""
    return text.startswith("[") and text.endswith("]") and "\n" not in text


def _shortened(name: str) -> str:
    shown = escaped(" ".join(name[: 4 * _MAX_NAME_CHARS].split())).replace("[", "(").replace("]", ")")
    return shown if len(shown) <= _MAX_NAME_CHARS else f"{shown[:_MAX_NAME_CHARS]}..."
