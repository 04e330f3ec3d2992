"""How facts read: a line each, with their pointers behind them."""

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import Final

from buoyline.compression.citations import BETWEEN, CUT
from buoyline.compression.extractive.lines import merged_pointers
from buoyline.compression.identifiers import WORD, readable
from buoyline.compression.pointers import Pointer, citation_marks
from buoyline.compression.summary import Fact
from buoyline.tokens import TextCounter

NOTHING: Final = "None seen."

JOINED_KINDS: Final = frozenset({"finding", "record", "closing", "note"})
"""Kinds whose sentences share a line and its pointer if they come from the same lines."""

FILE_KINDS: Final[Mapping[str, str]] = {
    "changed": "Changed",
    "created": "Created",
    "deleted": "Deleted",
    "moved": "Moved",
    "read": "Read",
}
"""Kinds of facts that are paths; those of one kind share a line."""

COUNTED_KINDS: Final = frozenset({"changed", "error"})
"""Kinds whose text includes their count."""

READING_RANKS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "task": 0,
        "report": 0,  # the newest result
        "intent": 0,
        "prohibition": 0,
        "working": 0,  # the newest request
        "question": 0,
        "repository": 1,
        "error": 1,
        "check": 2,
        "todo": 4,  # the plan
        "completed": 4,
    }
)
"""Kinds that a reader needs first; the others follow, the newest first, and those of one rank as well."""

FILES_RANK: Final = 3
OTHERS_RANK: Final = 5

ORDERED_FIELDS: Final = frozenset({"task_overview", "context_to_preserve"})
"""Fields in the order of the conversation: requests and rules follow from each other."""

MIN_ROOT_CHARS: Final = 8
"""A shorter directory is not worth a name."""

MAX_POINTERS: Final = 100
"""Behind one line: so many lines can be named in one mark, see `POINTER`."""

MAX_TEXT_CHARS: Final = 20_000
"""Of a quoted text; no summary has room for more."""

END_TOKENS: Final = 80
"""Of the end of a request that is cut in its middle: with half of the room, a long task lost its list of steps."""

ANSWERED: Final = "\u201d \u2013 \u201c"
"""Separates a question from its answer in a quotation."""

_FORMS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "task": "“{}”",
        "request": "“{}”",
        "pasted": "Pasted: “{}”",
        "report": "Reported: “{}”",
        **{kind: f"{word} {{}}" for kind, word in FILE_KINDS.items()},
        "edit": "{}",
        "error": "Failed: {}",
        "pending": "No result yet: {}",
        "question": "Not answered yet: “{}”",
        "working": "In progress: “{}”",
        "intent": "The agent was at: “{}”",
        "looked": "Looked at: {}",
        "constraint": "User: “{}”",
        "prohibition": "User: “{}”",
    }
)
_RUN = re.compile(rf"[{WORD}./@+~-]+")
_SENTENCE_END = re.compile(r"[.!?;](?= )|[\u3002\uff01\uff1f\uff1b]")


def cut(text: str, max_tokens: int, counter: TextCounter) -> str:
    """Return *text* on one line, cut behind a sentence or a word and marked if it exceeds *max_tokens*.

    The mark counts. A single mark may have more; empty if nothing of the text fits.
    """
    shown = readable(text[:MAX_TEXT_CHARS])
    if len(text) <= MAX_TEXT_CHARS and not counter.exceeds(shown, max_tokens):
        return shown
    head = counter.head(shown, max(0, max_tokens - counter.count(f" {CUT}")))
    least = len(head) * 3 // 5  # else too much would be lost
    ends = [match.end() for match in _SENTENCE_END.finditer(head, least)]
    end = ends[-1] if ends else max(head.rfind(" ", least), 0)
    if end == 0:
        return head and f"{head.rstrip()}{CUT}"
    return f"{head[:end].rstrip()} {CUT}"


def cut_between(text: str, max_tokens: int, counter: TextCounter) -> str:
    """Return *text* on one line, its middle cut out and marked if it exceeds *max_tokens*; see `cut`.

    The end of a request often holds its question, so its last sentences take up to a third, at most `END_TOKENS`.
    """
    shown = readable(text[:MAX_TEXT_CHARS])
    if len(text) <= MAX_TEXT_CHARS and not counter.exceeds(shown, max_tokens):
        return shown
    whole = readable(text[-MAX_TEXT_CHARS:])
    end = counter.tail(whole, min(max_tokens // 3, END_TOKENS))
    if _RUN.fullmatch(whole[: len(whole) - len(end)][-1:]) and (part := _RUN.match(end)):
        end = end[part.end() :]  # the end of an id or a path would be one that nobody wrote
    starts = [match.end() for match in _SENTENCE_END.finditer(end)]
    blank = end.find(" ", 0, len(end) * 2 // 5)
    last = end[starts[0] if starts and starts[0] < len(end) - 1 else blank + 1 :].strip()
    first = cut(text, max(0, max_tokens - counter.count(f" {last}")), counter)
    return f"{first} {last}".rstrip() if first.endswith(CUT) else cut(text, max_tokens, counter)


def said(item: Fact) -> str:
    """Return the words of *item* without its pointer."""
    count = f" \u00d7{item.count}" if item.count > 1 and item.kind in COUNTED_KINDS else ""
    return f"{_FORMS.get(item.kind, '{}').format(item.text)}{count}"


def line_of(item: Fact) -> str:
    """Return the line of *item* alone."""
    return f"- {said(item)}{mark_of(item.pointers)}"


def mark_of(pointers: Iterable[Pointer]) -> str:
    """Return the citation marks behind a sentence; empty without pointers."""
    return "".join(f" {mark}" for mark in citation_marks(pointers))


def field_text(items: Iterable[Fact]) -> str:
    """Return the text of one field.

    What is needed first comes first, then sentences, the newest first.
    """
    return "\n".join(f"- {text}{mark_of(pointers)}" for text, pointers in _lines(items))


def pointers_of(items: Iterable[Fact]) -> Iterator[Pointer]:
    """Yield the pointers in `field_text` of the same facts, in reading order."""
    return (pointer for _, pointers in _lines(items) for pointer in pointers)


def _lines(items: Iterable[Fact]) -> Iterator[tuple[str, tuple[Pointer, ...]]]:
    chosen = list(items)
    prose = sorted((item for item in chosen if item.kind not in FILE_KINDS), key=_reading_order)
    yield from _prose_lines(item for item in prose if _rank_of(item) < FILES_RANK)
    yield from _file_lines([item for item in chosen if item.kind in FILE_KINDS])
    yield from _prose_lines(item for item in prose if _rank_of(item) >= FILES_RANK)


def _prose_lines(items: Iterable[Fact]) -> Iterator[tuple[str, tuple[Pointer, ...]]]:
    for is_shared, group in groupby(items, _shared_line):
        members = list(group)
        lines = [members] if is_shared else [[item] for item in members]
        for line in lines:
            pointers = merged_pointers(pointer for item in line for pointer in item.pointers)
            yield BETWEEN.join(_without_repeated_tools(line)), line[0].pointers if len(line) == 1 else pointers


def _without_repeated_tools(items: Iterable[Fact]) -> Iterator[str]:
    """Yield the words of facts that share a line; the tool of several records is named once."""
    last = ""
    for item in items:
        tool = item.text.partition(": ")[0] if item.kind == "record" else ""
        yield said(item).removeprefix(f"{tool}: ") if tool and tool == last else said(item)
        last = tool


def _file_lines(items: list[Fact]) -> Iterator[tuple[str, tuple[Pointer, ...]]]:
    """Yield a line for each kind of change: the files as a tree under their common directory, newest change first.

    If all files have no such directory, the absolute paths of one kind may have one.
    """
    shared = root_of(item.text for item in items)
    is_named = False
    for kind, word in FILE_KINDS.items():
        found = sorted((item for item in items if item.kind == kind), key=lambda item: -item.last_seen)
        if not found:
            continue
        root = shared or root_of(item.text for item in found if posixpath.isabs(item.text))
        inside = [item for item in found if item.text.startswith(root)]
        outside = [item for item in found if not item.text.startswith(root)]
        under = f" (in {root})" if root and not is_named and not outside else ""
        text = f"{word}{under}: {_tree(outside) if outside else _tree(inside, root)}" + (
            f"; in {root}: {_tree(inside, root)}" if outside else ""
        )
        is_named = bool(shared)
        pointers = merged_pointers(pointer for item in found for pointer in item.pointers)
        yield text, pointers[:MAX_POINTERS]


def _tree(files: Sequence[Fact], root: str = "") -> str:
    """Return the paths of *files* below *root*, those of one directory together."""
    directories: dict[str, list[str]] = {}
    for item in files:
        directory, _, name = item.text.removeprefix(root).rpartition("/")
        count = f" \u00d7{item.count}" if item.count > 1 and item.kind == "changed" else ""
        directories.setdefault(directory, []).append(f"{name}{count}")
    return ", ".join(
        (f"{directory}/" if directory else "") + (names[0] if len(names) == 1 else "{" + ", ".join(names) + "}")
        for directory, names in directories.items()
    )


def root_of(paths: Iterable[str]) -> str:
    """Return the directory that all paths share, with its slash; empty if it is not worth a name."""
    found = {path.rpartition("/")[0] for path in paths}
    try:
        common = posixpath.commonpath(found) if len(found) > 1 else ""
    except ValueError:  # some are absolute, some are not
        return ""
    return f"{common}/" if len(common) >= MIN_ROOT_CHARS else ""


def _shared_line(item: Fact) -> tuple[int, tuple[Pointer, ...]] | None:
    """Return what sentences on one line have in common; None for a fact with a line of its own.

    Sentences of one message of the agent share a line. Sentences of a model's summary may point anywhere.
    """
    if item.kind not in JOINED_KINDS:
        return None
    return item.last_seen, item.pointers if item.kind == "note" else ()


def _reading_order(item: Fact) -> tuple[int, int, str, int, str]:
    """Order facts by kind, then by time, and those of one message in its own order."""
    is_in_order = item.field in ORDERED_FIELDS
    return _rank_of(item), item.last_seen if is_in_order else -item.last_seen, item.kind, item.order, item.text


def _rank_of(item: Fact) -> int:
    return READING_RANKS.get(item.kind, OTHERS_RANK)
