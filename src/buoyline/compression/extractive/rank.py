"""Which of the agent's sentences say most of what the conversation was about, per token."""

import heapq
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from buoyline.compression.extractive.user import asks, leads
from buoyline.compression.summary import SourceMessage
from buoyline.compression.text import mentions, sentences, width
from buoyline.messages.jsonl import is_array, is_object

_WORD = re.compile(r"[^\W_]{3,}|[\u3040-\u30ff\u3400-\u9fff]")
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
    for word in _WORD.findall(text.casefold()):
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
