"""Which sentences say most of what a colleague would need: a greedy cover of what the conversation is about.

A sentence is worth the concepts in it that no better sentence has said, for its tokens. Concepts are stems of words and
exact strings; one that many messages hold, that is recent, or that the user spoke of weighs more. Source: concept-based
coverage as in Gillick and Favre, "A Scalable Global Model for Summarization", 2009, solved greedily.
"""

import heapq
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from buoyline.compression.citations import CUT
from buoyline.compression.extractive.lines import ResultText
from buoyline.compression.extractive.phrases import (
    announces,
    asks,
    chars_of,
    is_refusal,
    leads_in,
    offers,
)
from buoyline.compression.extractive.records import RowPlace, rows_of, rows_worth_a_line, without_older
from buoyline.compression.extractive.speech import plain_text
from buoyline.compression.identifiers import mentions, outer_text, sentences
from buoyline.compression.summary import SourceMessage

if TYPE_CHECKING:
    from buoyline.compression.extractive.conversation import Conversation

MAX_SENTENCES: Final = 400
"""More are never said, even in a summary of 20,000 tokens."""

MAX_TEXT_CHARS: Final = 40_000
MAX_ARGUMENT_CHARS: Final = 2_000
MIN_CHARS: Final = 25
STEM_CHARS: Final = 7

QUALITIES: Final[Mapping[str, float]] = MappingProxyType(
    {
        "answer": 1.1,  # the agent's message without a call: it was written for a reader
        "remark": 0.9,  # beside a call: half of them say what was found, half what comes next
        "record": 0.7,  # a row of a tool's JSON: facts, and many that nobody needs
    }
)
"""How much sentences are worth by their origin, set by judgement on recorded sessions."""

FACTORS: Final[Mapping[str, float]] = MappingProxyType(
    {
        "announces": 0.08,  # it was done or dropped since; said if there is nothing else
        "short": 0.5,  # without a name, number or piece of code
        "row": 0.8,  # of a table
    }
)
"""What a sentence is multiplied by for its form."""

STRING_WEIGHT: Final = 1.0
"""Of an exact string, which a tool may return without that anybody speaks of it."""

REPEATED: Final = 0.35
"""Share of a concept's weight that is left each time it has been said."""

SPOKEN: Final = 1.4
"""For concepts in the user's short messages."""

CITED_TOKENS: Final = 3.0
UNCITED_TOKENS: Final = 11.0
"""Of a citation, if the message is already cited and if not."""

_WORD = re.compile(r"[^\W_]{3,}|[\u3040-\u30ff\u3400-\u9fff]")
_REASON = re.compile(
    r"\b(?:because|since|so that|due to|instead of|weil|parce que|porque)\b|\u56e0\u4e3a", re.IGNORECASE
)
"""In an announcement that says why; the others were done or dropped since."""

_EXACT = re.compile(r"[\d`/_]|[a-z][A-Z]|\w\.\w")
SHORT_CHARS: Final = 60

_LINK = re.compile(r"\W{0,4}!?\[[^\]\n]{0,300}\]\(")
_ADDRESS = re.compile(r"https?://\S+")
_VALUE = re.compile(r"[\w.-]{3,60}")
_COMMON_WORDS = (
    "the and for with that this from have has had are was were will would can could should not but you your "
    "our its let now then also all any some into than when what which there here they them been being does did "
    "doing just use using used see look need make made get one two about more out over only very like"
)
_COMMON = frozenset(_COMMON_WORDS.split())


@dataclass(slots=True)
class SentenceCandidate:
    """A sentence of the conversation.

    Attributes:
        position: Among the sentences of its message.
        quality: By its origin and its form, see `QUALITIES` and `FACTORS`.
        concepts: See `concepts_of`, and its exact strings behind an equals sign.
        reading: The tool result that holds it; None in a message of the agent.
        words: Its words as the result has them if it is a row of a record, with an ellipsis between them.
    """

    text: str
    source: SourceMessage
    position: int
    quality: float
    concepts: frozenset[str]
    reading: ResultText | None = None
    words: str = ""


def concepts_of(text: str) -> frozenset[str]:
    """Return what a text is about: the stems of its words, and pairs of neighbouring ideographs."""
    found: set[str] = set()
    last = ""
    for word in _WORD.findall(text.casefold()):
        if len(word) > 1:
            last = ""
            if word not in _COMMON:
                found.add(word[:STEM_CHARS])
        else:
            if last:
                found.add(last + word)
            last = word
    return frozenset(found)


def ranked_sentences(conversation: "Conversation") -> Iterator[tuple[SentenceCandidate, float]]:
    """Yield the sentences of the agent and of its tools that say most, the best first, at most `MAX_SENTENCES`.

    Each comes with the log odds that it is needed.
    """
    weights = _concept_weights(conversation)
    waiting = list(_candidates(conversation))
    for candidate in waiting:
        strings = {f"={found.text}" for found in mentions(candidate.text) if found.kind != "number"}
        candidate.concepts |= strings
        weights |= dict.fromkeys(strings, STRING_WEIGHT)
    said: Counter[str] = Counter()
    cited: set[int] = set()

    def loss(candidate: SentenceCandidate) -> float:
        # An exact sum: the order of a set differs from run to run, and so would the last bit that breaks a tie.
        total = math.fsum(weights.get(concept, 0.0) * REPEATED ** said[concept] for concept in candidate.concepts)
        # An estimate, since counting takes longer.
        chars_per_token = 1.5 if chars_of(candidate.text) > 2 * len(candidate.text) else 4
        citation = CITED_TOKENS if candidate.source.index in cited else UNCITED_TOKENS
        price = len(candidate.text) / chars_per_token + citation
        return -candidate.quality * total / price

    # A candidate's worth falls as others are said and rarely rises, so an old value at the top is asked again first.
    heap = [(loss(candidate), at) for at, candidate in enumerate(waiting)]
    heapq.heapify(heap)
    taken = 0
    while heap and taken < MAX_SENTENCES:
        _, at = heapq.heappop(heap)
        chosen = waiting[at]
        now = loss(chosen)
        if heap and now > heap[0][0]:
            heapq.heappush(heap, (now, at))
            continue
        taken += 1
        said.update(chosen.concepts)
        cited.add(chosen.source.index)
        yield chosen, math.log(max(-now, 1e-6)) + 2.2


def _concept_weights(conversation: "Conversation") -> dict[str, float]:
    """Return how much each concept matters: by the number of messages that hold it, and by who says it."""
    seen: Counter[str] = Counter()
    newest: dict[str, int] = {}
    spoken: set[str] = set()
    for source in conversation.sources:
        message = source.message
        if message.role in {"user", "assistant"}:
            arguments = (call.arguments[:MAX_ARGUMENT_CHARS] for call in message.calls)
            found = concepts_of(outer_text("\n".join([message.text[:MAX_TEXT_CHARS], *arguments])))
            seen.update(found)
            newest.update(dict.fromkeys(found, source.index))
            if message.role == "user" and len(message.text) < MAX_ARGUMENT_CHARS:
                spoken |= found
    length, first = len(conversation.sources), conversation.sources[0].index
    weights: dict[str, float] = {}
    for concept, count in seen.items():
        is_everywhere = count > 0.3 * length
        recency = 0.6 + 0.4 * (newest[concept] - first) / length
        weight = math.log2(1 + count) * recency * (0.5 if is_everywhere else 1.0)
        weights[concept] = weight * (SPOKEN if concept in spoken else 1.0)
    return weights


def _candidates(conversation: "Conversation") -> Iterator[SentenceCandidate]:
    for source in conversation.sources:
        message = source.message
        if message.role == "assistant" and message.text.strip():
            quality = QUALITIES["remark" if message.calls else "answer"] * _recency(conversation, source)
            yield from _of_text(plain_text(message.text[:MAX_TEXT_CHARS]), source, quality)
    yield from _of_results(conversation)


def _recency(conversation: "Conversation", source: SourceMessage) -> float:
    """Return a factor for the age of a message: 0.7 for the first, nearly 1 for the newest."""
    return 0.7 + 0.3 * (source.index - conversation.sources[0].index) / len(conversation.sources)


def _of_results(conversation: "Conversation") -> Iterator[SentenceCandidate]:
    """Yield records that tools returned; of many records of one form those that were spoken of."""
    found: list[RowPlace] = []
    names: dict[int, str] = {}
    for step in conversation.steps:
        reading = step.reading
        if reading is None or is_refusal(reading.text) or step.action.operation == "change":
            continue  # the result of an edit says that it was made, or shows the new lines
        text = reading.text[:MAX_TEXT_CHARS]
        for position, row in enumerate(rows_of(text)):
            found.append(RowPlace(row, reading, position))
            names[id(reading)] = step.action.name
    records: defaultdict[tuple[str, str], list[RowPlace]] = defaultdict(list)
    for place in without_older(found):
        records[names[id(place.reading)], place.row.form].append(place)
    spoken = _spoken_words(conversation)
    for (name, _), rows in records.items():
        for row, reading, position in rows_worth_a_line(rows, spoken):
            words = CUT.join(" ".join(row.values).split())
            quality = QUALITIES["record"] * _recency(conversation, reading.source)
            text = f"{name}: {row.text}"
            yield SentenceCandidate(text, reading.source, position, quality, concepts_of(row.text), reading, words)


def _spoken_words(conversation: "Conversation") -> frozenset[str]:
    """Return the words in messages and arguments: a record with one of them was used or spoken of."""
    texts = (
        "\n".join([source.message.text[:MAX_TEXT_CHARS], *(call.arguments for call in source.message.calls)])
        for source in conversation.sources
        if source.message.role in {"user", "assistant"}
    )
    return frozenset(word for text in texts for word in _VALUE.findall(text))


def _of_text(text: str, source: SourceMessage, quality: float) -> Iterator[SentenceCandidate]:
    for position, sentence in enumerate(sentences(text)):
        if len(sentence) < MIN_CHARS or leads_in(sentence) or offers(sentence):
            continue
        # A sentence that begins with a link, or consists of addresses by half, says nothing.
        if _LINK.match(sentence) or 2 * sum(map(len, _ADDRESS.findall(sentence))) > len(sentence):
            continue
        if asks(sentence):
            continue  # the newest is a next step, and the others were answered
        applies = {
            "announces": announces(sentence) and not _REASON.search(sentence),
            "short": chars_of(sentence) < SHORT_CHARS and not _EXACT.search(sentence),
            "row": sentence.startswith("|"),
        }
        found = quality * math.prod(FACTORS[form] for form, is_so in applies.items() if is_so)
        yield SentenceCandidate(sentence, source, position, found, concepts_of(sentence))
