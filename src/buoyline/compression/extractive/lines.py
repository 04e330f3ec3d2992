"""Lines to cite: how they are found, ranked and worded."""

import heapq
import json
import math
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, groupby
from typing import Final, NamedTuple

from buoyline.compression.extractive.user import asks, leads
from buoyline.compression.summary import Fact, ResultExcerpt, SourceMessage
from buoyline.compression.text import CUT, Pointer, citation_marks, mentions, readable, sentences, width
from buoyline.messages.jsonl import is_array, is_object

_ESCAPE: Final = "(?:\\\\x1b|\x1b)\\[[0-9;?]{0,20}[A-Za-z]|\\\\(?:x[0-9a-f]{2}|u[0-9a-f]{4})"
"""A transcript spells control characters as escapes; a quotation has blanks in their place."""

# Blanks differ; if that is not enough, all signs may, since lists, tables and JSON lose theirs.
_LEFT_OUT: Final = (re.compile(rf"{_ESCAPE}|[\s\x00-\x1f\x7f-\x9f]+"), re.compile(rf"{_ESCAPE}|\W"))

_NEAR_LINES: Final = 20
"""Lines no further apart are one place: to read between them costs no more than a second citation."""


class LineFinder:
    """Finds words in the lines of messages; each message is prepared once."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._folded: dict[tuple[int | str, re.Pattern[str]], tuple[str, list[int]]] = {}

    def of(self, source: SourceMessage, words: str) -> tuple[Pointer, ...]:
        """Return the lines of *source* that hold *words*, in which an ellipsis stands for any cut.

        It is the whole message if its lines do not hold them; empty if no lines are known.
        """
        if source.pointer is None:
            return ()
        spans = self._found(source.index, ("", *source.lines[1:]), words)  # without the heading: its time is no words
        start, path = source.pointer.start, source.pointer.path
        return merged(Pointer(path, start + first, start + last) for first, last in spans) or (source.pointer,)

    def of_result(self, source: SourceMessage, excerpt: ResultExcerpt | None, words: str) -> tuple[Pointer, ...]:
        """Return the lines of a tool result that hold *words*, in the result's own file if it has one; see `of`."""
        if excerpt is not None and excerpt.path:
            numbers = [number for number, _ in excerpt.lines]
            spans = self._found(excerpt.path, [text for _, text in excerpt.lines], words)
            if spans:
                return merged(Pointer(excerpt.path, numbers[first], numbers[last]) for first, last in spans)
        return self.of(source, words)

    def _found(self, key: int | str, lines: Sequence[str], words: str) -> list[tuple[int, int]]:
        """Return the positions of the first and the last of *lines* for each piece; nothing if one is missing."""
        with_signs, without_signs = _LEFT_OUT
        found = self._folded_place(key, lines, words, with_signs)
        return found or self._folded_place(key, lines, words, without_signs)

    def _folded_place(
        self, key: int | str, lines: Sequence[str], words: str, left_out: re.Pattern[str]
    ) -> list[tuple[int, int]]:
        if (key, left_out) not in self._folded:
            folded = [left_out.sub("", line) for line in lines]
            self._folded[key, left_out] = "".join(folded), [*accumulate(map(len, folded), initial=0)][:-1]
        text, starts = self._folded[key, left_out]
        spans, end = list[tuple[int, int]](), 0
        for piece in filter(None, (left_out.sub("", part) for part in words.split(CUT))):
            at = text.find(piece, end)
            if at < 0:
                return []
            end = at + len(piece)
            spans.append((bisect_right(starts, at) - 1, bisect_right(starts, end - 1) - 1))
        return spans


def merged(pointers: Iterable[Pointer]) -> tuple[Pointer, ...]:
    """Return as few pointers as cover all these lines; near ones of one file become one.

    Files keep the order in which they came; the lines of each ascend.
    """
    found = list(dict.fromkeys(pointers))
    files = {path: at for at, path in enumerate(dict.fromkeys(pointer.path for pointer in found))}
    spans = list[Pointer]()
    for pointer in sorted(found, key=lambda pointer: (files[pointer.path], pointer)):
        last = spans[-1] if spans else None
        if last is not None and last.path == pointer.path and pointer.start - last.end <= _NEAR_LINES:
            spans[-1] = Pointer(last.path, last.start, max(last.end, pointer.end))
        else:
            spans.append(pointer)
    return tuple(spans)


_MOST_CHARS = 260
_MOST_VALUE_CHARS = 70
_MOST_INNER = 6
_MOST_INNER_CHARS = 160
_MOST_DEPTH = 5
_MOST_ROWS = 20
_OPAQUE = re.compile(r"https?://\S+|[0-9a-f]{32,}|[\w-]{16,}={1,2}")


def rows_of(text: str) -> Iterator[str]:
    """Yield the objects of a JSON text as keys with their short values; small inner records are part of the row."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return
    yield from _rows(value, "", 0)


def _rows(value: object, name: str, depth: int) -> Iterator[str]:
    if depth > _MOST_DEPTH:
        return
    if is_array(value):
        for entry in value[:_MOST_ROWS]:
            yield from _rows(entry, name, depth + 1)
    elif is_object(value):
        said, inner = list[str](), list[tuple[str, object]]()
        for key, found in value.items():
            shown = _shown(found)
            if shown:
                said.append(f"{key} {shown}")
            elif is_array(found) or is_object(found):
                inner.append((key, found))
        if len(said) > 1:
            row = ", ".join([f"{name}: {said[0]}" if name else said[0], *said[1:]])
            yield row if len(row) <= _MOST_CHARS else f"{row[:_MOST_CHARS].rpartition(', ')[0]} {CUT}"
        for key, found in inner:
            yield from _rows(found, key, depth + 1)


def _shown(value: object) -> str:
    """Return a value, or a small inner record, as text; empty if it is too long or only programs read it."""
    if is_array(value):
        values = (_shown(one) if is_object(one) else _short(one) for one in value)
        shown = "; ".join(filter(None, values)) if len(value) <= _MOST_INNER else ""
    elif is_object(value):
        is_flat = not any(is_array(one) or is_object(one) for one in value.values())
        shown = " ".join(filter(None, map(_short, value.values()))) if is_flat else ""
    else:
        return _short(value)
    return shown if len(shown) < _MOST_INNER_CHARS else ""


def _short(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return ""
    shown = readable(str(value)[: 4 * _MOST_VALUE_CHARS])
    return shown if len(shown) <= _MOST_VALUE_CHARS and not _OPAQUE.fullmatch(shown) else ""


_RANKS: Final = {"task": 0, "report": 0, "git": 1, "check": 2, "user": 4, "last": 4, "intent": 4, "asked": 4, "plan": 5}
"""Where a kind is read in its field; files are 3, all others after these."""

_FILES, _OTHERS = 3, 6
_MOST_POINTERS: Final = 30
_BETWEEN: Final = " · "


def line_of(text: str, pointers: Sequence[Pointer]) -> str:
    """Return a line of a field with its citations."""
    return " ".join([f"- {text}", *citation_marks(pointers[:_MOST_POINTERS])])


def field_text(facts: Iterable[Fact]) -> str:
    """Return the facts of one field, a line each; findings of one message share a line, and so do all files."""
    found = sorted(facts, key=_place)
    return "\n".join(line for rank, group in groupby(found, key=_rank) for line in _lines(rank, [*group]))


def _lines(rank: int, facts: Sequence[Fact]) -> Iterator[str]:
    if rank == _FILES:
        folders = defaultdict[str, list[str]](list)
        for fact in facts:
            folder, _, name = fact.text.rpartition("/")
            folders[f"{folder}/" if folder else ""].append(name)
        named = (
            folder + (names[0] if len(names) == 1 else f"{{{', '.join(names)}}}") for folder, names in folders.items()
        )
        yield line_of(f"Changed: {', '.join(named)}", merged(one for fact in facts for one in fact.pointers))
        return
    for (kind, _), group in groupby(facts, key=lambda fact: (fact.kind, fact.last_seen)):
        if kind == "finding":
            said = [*group]
            yield line_of(_BETWEEN.join(one.text for one in said), merged(p for one in said for p in one.pointers))
        else:
            yield from (line_of(fact.text, fact.pointers) for fact in group)


def _rank(fact: Fact) -> int:
    return _FILES if fact.kind == "file" else _RANKS.get(fact.kind, _OTHERS)


def _place(fact: Fact) -> tuple[int, int, int]:
    """Return where a fact is read: what the user said and plans in their order, the rest newest first."""
    is_in_order = fact.field in ("task_overview", "context_to_preserve") or fact.kind == "plan"
    return _rank(fact), fact.last_seen if is_in_order else -fact.last_seen, fact.order


_RANKED_WORD = re.compile(r"[^\W_]{3,}|[\u3040-\u30ff\u3400-\u9fff]")
_URL = re.compile(r"https?://[^\s<>\"']+")
_STEM_CHARS: Final = 7
_ANNOUNCES = re.compile(
    r"\W{0,4}(?:(?:now|next|first|then|ok|good|great|perfect)\W{1,3}){0,2}"
    r"(?:let me|let's|i'll|i will|i need to|i'm going to)\b",
    re.IGNORECASE,
)
_READ_CHARS: Final = 40_000
_LEAST_WIDTH: Final = 25
_SHORT_WIDTH: Final = 60
_MOST: Final = 400
_REPEATED: Final = 0.35
"""What a concept is still worth if it was said once more."""

_CITED_TOKENS, _CITATION_TOKENS = 3, 11


class Candidate(NamedTuple):
    """A sentence of the agent's, its position in the message, and how well it reads alone."""

    text: str
    source: SourceMessage
    position: int
    quality: float
    concepts: tuple[str, ...]


def ranked(sources: Sequence[SourceMessage]) -> Iterator[tuple[Candidate, float]]:
    """Yield the sentences of the agent with what each adds per token, the best first."""
    candidates, worths = list(_candidates(sources)), _worths(sources)
    said, cited = Counter[str](), set[int]()

    def loss(one: Candidate) -> float:
        total = math.fsum(worths.get(concept, 0.0) * _REPEATED ** said[concept] for concept in one.concepts)
        return (
            -one.quality
            * total
            / (width(one.text) / 4 + (_CITED_TOKENS if one.source.index in cited else _CITATION_TOKENS))
        )

    # What a sentence adds only falls while others are said: the best of the heap is judged again, not all.
    heap = [(loss(one), at) for at, one in enumerate(candidates)]
    heapq.heapify(heap)
    left = _MOST
    while heap and left:
        _, at = heapq.heappop(heap)
        one = candidates[at]
        now = loss(one)
        if heap and now > heap[0][0]:
            heapq.heappush(heap, (now, at))
            continue
        said.update(one.concepts)
        cited.add(one.source.index)
        left -= 1
        yield one, -now


def _candidates(sources: Sequence[SourceMessage]) -> Iterator[Candidate]:
    for at, source in enumerate(sources):
        message = source.message
        if message.role != "assistant":
            continue
        base = (0.9 if message.calls else 1.1) * (0.7 + 0.3 * at / len(sources))
        texts = list(sentences(plain(message.text[:_READ_CHARS])))
        for position, text in enumerate(texts):
            if width(_URL.sub("", text)) < max(_LEAST_WIDTH, len(text) / 2) or leads(text) or asks(text):
                continue
            quality = base * (0.1 if _ANNOUNCES.match(text) else 1)
            if message.calls and position == len(texts) - 1:
                quality *= 0.7
            if width(text) < _SHORT_WIDTH and "`" not in text and not any(True for _ in mentions(text)):
                quality *= 0.5
            yield Candidate(text, source, position, quality, tuple(sorted(_concepts(text))))


def _worths(sources: Sequence[SourceMessage]) -> Mapping[str, float]:
    """Return what each concept is worth: it counts how many messages have it, how new they are, and if users say it."""
    seen, newest, spoken = Counter[str](), dict[str, int](), set[str]()
    for at, source in enumerate(sources):
        message = source.message
        if message.role in ("user", "assistant"):
            text = "\n".join([message.text[:20_000], *(call.arguments[:2_000] for call in message.calls)])
            found = _concepts(text)
            seen.update(found)
            newest.update(dict.fromkeys(found, at))
            if message.role == "user" and len(message.text) < 2_000:  # noqa: PLR2004 - longer ones are pasted
                spoken |= found
    worths = dict[str, float]()
    for concept, count in seen.items():
        worth = math.log2(1 + count) * (0.6 + 0.4 * newest[concept] / len(sources))
        worth *= 0.5 if count > 0.3 * len(sources) else 1
        worths[concept] = worth * (1.4 if concept in spoken else 1) * (1.5 if concept[0] == "=" else 1)
    return worths


def _concepts(text: str) -> set[str]:
    """Return stems of words, pairs of neighbouring signs in Chinese and Japanese, and exact strings."""
    found, last = set[str](), ""
    for word in _RANKED_WORD.findall(text.casefold()):
        if len(word) > 1:
            found.add(word[:_STEM_CHARS])
            last = ""
        else:
            if last:
                found.add(last + word)
            last = word
    return found | {f"={one.text}" for one in mentions(text) if one.kind != "number" or len(one.text) > 4}  # noqa: PLR2004


def plain(text: str) -> str:
    """Return the texts in a message that is JSON, below each other; any other message as it is."""
    stripped = text.strip()
    if not (stripped[:1] in ("{", "[") and stripped[-1:] in ("}", "]")):
        return text
    try:
        stack: list[object] = [json.loads(stripped)]
    except (ValueError, RecursionError):
        return text
    found = list[str]()
    while stack:
        value = stack.pop()
        if is_object(value):
            stack += reversed(list(value.values()))
        elif is_array(value):
            stack += reversed(value)
        elif isinstance(value, str) and any(map(str.isalpha, value)):
            found.append(value)
    return "\n".join(found) or text
