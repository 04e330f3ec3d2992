"""Which sentences say most of what a colleague would need: a greedy cover of what the conversation is about.

A sentence is worth the concepts in it that no better sentence has said, for its tokens. Concepts are stems of words and
exact strings; one that many messages hold, that is recent, or that the user spoke of weighs more. Source: concept-based
coverage as in Gillick and Favre, "A Scalable Global Model for Summarization", 2009, solved greedily.
"""

import heapq
import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from buoyline.compression.citations import CUT
from buoyline.compression.extractive.lines import ResultText, result_texts
from buoyline.compression.extractive.records import rows_of
from buoyline.compression.extractive.speech import announces, asks, chars_of, leads_in, plain_text
from buoyline.compression.identifiers import outer_text, sentences
from buoyline.compression.summary import SourceMessage

if TYPE_CHECKING:
    from buoyline.compression.extractive.conversation import Conversation

MAX_SENTENCES: Final = 400
"""More are never said, even in a summary of 20,000 tokens."""

MAX_TEXT_CHARS: Final = 40_000
MAX_ARGUMENT_CHARS: Final = 2_000
MIN_CHARS: Final = 25
STEM_CHARS: Final = 7

# The quality of a sentence by its author; set by judgement on recorded sessions.
ANSWER: Final = 1.1
"""The agent's message without a call."""
REMARK: Final = 0.9
"""Beside a call."""
RECORD: Final = 0.7
"""A row of a tool's JSON."""
PROSE: Final = 0.55
"""Sentences that a tool returned, as a sub-agent does."""

STRING_WEIGHT: Final = 8.0
"""Of an exact string, times how likely it is used again."""

REPEATED: Final = 0.35
"""Share of a concept's weight that is left each time it has been said."""

SPOKEN: Final = 1.4
"""For concepts in the user's short messages."""

CITED_TOKENS: Final = 3.0
UNCITED_TOKENS: Final = 11.0
"""Of a citation, if the message is already cited and if not."""

_WORD = re.compile(r"[^\W_]{3,}|[\u3040-\u30ff\u3400-\u9fff]")
_CUES = re.compile(
    r"\b(?:because|since|root cause|caus(?:e|es|ed|ing)|due to|reason|therefore|thus|hence|so that|which means"
    r"|means that|turns? out|actually|in fact|found|issue is|problem is|bug|instead of|rather than|not|never"
    r"|no longer|cannot|can't|doesn't|don't|isn't|wasn't|won't|only|must|fix(?:ed|es)?|fail(?:s|ed|ing)?|broke|wrong"
    r"|missing|decid\w+|chose|chosen|skip(?:ped)?|add(?:ed|s)?|chang(?:ed|es)|remov(?:ed|es)|replac(?:ed|es)"
    r"|renam(?:ed|es)|updat(?:ed|es)|implement\w*|creat(?:ed|es)|merg(?:ed|es)|revert\w*|reject\w*|refus\w*"
    r"|requires?|needs?|default|limit|weil|daher|deshalb|nicht|kein\w*|muss|fehl\w*|statt|parce que|donc|pas|porque"
    r"|debe)\b"
    r"|\u56e0\u4e3a|\u6240\u4ee5|\u5bfc\u81f4|\u539f\u56e0|\u95ee\u9898|\u53d1\u73b0|\u56e0\u6b64|\u9700\u8981"
    r"|\u5fc5\u987b|\u4e0d|\u6ca1|\u5df2|\u6539|\u4fee",
    re.IGNORECASE,
)
"""Words of causes, decisions, changes and failures."""

_LINK = re.compile(r"\W{0,4}!?\[[^\]\n]{0,300}\]\(")
_PRAISE = re.compile(
    r"\W{0,3}(?:perfect|great|excellent|good|awesome|you're (?:absolutely )?right|absolutely|sure|okay)\b[!.,]",
    re.IGNORECASE,
)
_REFUSAL = re.compile(r"\buser\b[^.\n]{0,60}\b(?:rejected|doesn't want|refused|declined)\b")
_SENTENCE_END = re.compile(r"[.:!?\u3002]\W{0,3}$")
_NUMBERED = re.compile(r"\s*\d+[\u2192:|]")
_COMMON: Final = frozenset(
    {
        "the",
        "and",
        "for",
        "with",
        "that",
        "this",
        "from",
        "have",
        "has",
        "had",
        "are",
        "was",
        "were",
        "will",
        "would",
        "can",
        "could",
        "should",
        "not",
        "but",
        "you",
        "your",
        "our",
        "its",
        "let",
        "now",
        "then",
        "also",
        "all",
        "any",
        "some",
        "into",
        "than",
        "when",
        "what",
        "which",
        "there",
        "here",
        "they",
        "them",
        "been",
        "being",
        "does",
        "did",
        "doing",
        "just",
        "use",
        "using",
        "used",
        "see",
        "look",
        "need",
        "make",
        "made",
        "get",
        "one",
        "two",
        "about",
        "more",
        "out",
        "over",
        "only",
        "very",
        "like",
    }
)


@dataclass(frozen=True, slots=True)
class RankedSentence:
    """A sentence of the conversation.

    Attributes:
        text: As it was written.
        source: Its message.
        position: Among the sentences of that message.
        weight: Log odds that it is needed.
        reading: The tool result that holds it; None in a message of the agent.
        words: Its words as the result has them if it is a row of a record, with an ellipsis between them.
    """

    text: str
    source: SourceMessage
    position: int
    weight: float
    reading: ResultText | None = None
    words: str = ""


@dataclass(slots=True)
class _Candidate:
    text: str
    source: SourceMessage
    position: int
    quality: float
    concepts: frozenset[str]
    reading: ResultText | None
    words: str = ""

    @property
    def tokens(self) -> float:
        chars_per_token = 1.5 if chars_of(self.text) > 2 * len(self.text) else 4
        return len(self.text) / chars_per_token


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


def ranked_sentences(conversation: "Conversation") -> Iterator[RankedSentence]:
    """Yield the sentences of the agent and of its tools that say most, the best first, at most `MAX_SENTENCES`."""
    weights = _concept_weights(conversation)
    weights |= {f"={found.text}": STRING_WEIGHT * conversation.value_of(found) for found in conversation.occurrences}
    waiting = list(_candidates(conversation))
    for candidate in waiting:
        candidate.concepts |= {f"={string}" for string in conversation.strings_in(candidate.text)}
    said: Counter[str] = Counter()
    cited: set[int] = set()

    def loss(candidate: _Candidate) -> float:
        total = sum(weights.get(concept, 0.0) * REPEATED ** said[concept] for concept in candidate.concepts)
        price = candidate.tokens + (CITED_TOKENS if candidate.source.index in cited else UNCITED_TOKENS)
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
        weight = math.log(max(-now, 1e-6)) + 2.2
        yield RankedSentence(chosen.text, chosen.source, chosen.position, weight, chosen.reading, chosen.words)


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


def _candidates(conversation: "Conversation") -> Iterator[_Candidate]:
    length, first = len(conversation.sources), conversation.sources[0].index
    for source in conversation.sources:
        message = source.message
        recency = 0.7 + 0.3 * (source.index - first) / length
        if message.role == "assistant" and message.text.strip():
            quality = (REMARK if message.calls else ANSWER) * recency
            yield from _of_text(plain_text(message.text[:MAX_TEXT_CHARS]), source, quality)
        for reading in result_texts(source):
            if _REFUSAL.search(reading.text[:400]):
                continue
            text = reading.searched[:MAX_TEXT_CHARS]
            shown = plain_text(text)
            if _is_prose(shown):
                yield from _of_text(shown, source, PROSE * recency, reading)
            else:
                for position, row in enumerate(rows_of(text)):
                    words = CUT.join(" ".join(row.values).split())
                    concepts = concepts_of(row.text)
                    yield _Candidate(row.text, source, position, RECORD * recency, concepts, reading, words)


def _is_prose(text: str) -> bool:
    """Return whether a tool returned sentences, and no code, listing or log: most lines are long and end like one."""
    lines = [line for line in text[:8_000].splitlines() if line.strip()]
    if len(text) < 200 or _NUMBERED.match(lines[0] if lines else ""):  # noqa: PLR2004 - too short to tell
        return False
    said = sum(1 for line in lines if _is_long(line) and _SENTENCE_END.search(line.rstrip()))
    return said > 0.4 * len(lines)


def _is_long(line: str) -> bool:
    return len(line.split()) > 5 or chars_of(line) > len(line) + 40  # noqa: PLR2004 - ideographs have no spaces


def _of_text(
    text: str, source: SourceMessage, quality: float, reading: ResultText | None = None
) -> Iterator[_Candidate]:
    said = list(sentences(text))
    for position, sentence in enumerate(said):
        if len(sentence) < MIN_CHARS or leads_in(sentence) or _LINK.match(sentence):
            continue
        is_before_call = bool(source.message.calls) and position == len(said) - 1
        factors = (
            (1.5, _CUES.search(sentence)),
            (0.2, announces(sentence)),
            (0.3, asks(sentence)),
            (0.5, _PRAISE.match(sentence)),
            (0.7, is_before_call),
            (0.8, sentence.startswith("|")),
        )
        found = quality * math.prod(factor for factor, applies in factors if applies)
        yield _Candidate(sentence, source, position, found, concepts_of(sentence), reading)
