"""Which sentences say most of what a colleague would need: a greedy cover of what the conversation is about.

A sentence is worth the concepts in it that no better sentence has said, for its tokens. Concepts are stems of words and
exact strings; one that many messages hold, that is recent, or that the user spoke of weighs more. Source: concept-based
coverage as in Gillick and Favre, "A Scalable Global Model for Summarization", 2009, solved greedily.
"""

import heapq
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from buoyline.compression.citations import CUT
from buoyline.compression.extractive.lines import ResultText
from buoyline.compression.extractive.phrases import (
    announces,
    asks,
    chars_of,
    concedes,
    corrects_itself,
    is_heading,
    is_refusal,
    leads_in,
    offers,
)
from buoyline.compression.extractive.records import RowPlace, rows_of, rows_worth_a_line, without_older
from buoyline.compression.extractive.speech import plain_text, written_texts
from buoyline.compression.identifiers import outer_text, sentences
from buoyline.compression.summary import SourceMessage

if TYPE_CHECKING:
    from buoyline.compression.extractive.calls import ParsedCall
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
        "written": 0.75,  # prose in the arguments of a call: messages of commits, replies, thoughts
        "record": 0.7,  # a row of a tool's JSON: facts, and many that nobody needs
        "echo": 0.2,  # a row that a command printed about what it changed, such as a reply that it posted
        "prose": 0.55,  # sentences that a tool returned, as a sub-agent or a search does
        "read": 0.25,  # sentences of a file that was read: it can be read again, and is mostly about other things
    }
)
"""How much sentences are worth by their origin, set by judgement on recorded sessions."""

FACTORS: Final[Mapping[str, float]] = MappingProxyType(
    {
        "cue": 1.5,  # says a cause, a decision, a change or a failure
        "announces": 0.08,  # it was done or dropped since; said if there is nothing else
        "hedges": 0.7,  # most guesses were settled since
        "short": 0.5,  # without a name, number or piece of code
        "asks": 0.3,
        "praises": 0.5,
        "before a call": 0.7,  # looks ahead, in any language
        "heading": 0.4,
        "row": 0.8,  # of a table
        "withdrawn": 0.25,  # the next sentence takes it back
    }
)
"""What a sentence is multiplied by for its form."""

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

_REASON = re.compile(
    r"\b(?:because|since|so that|due to|instead of|weil|parce que|porque)\b|\u56e0\u4e3a", re.IGNORECASE
)
"""In an announcement that says why; the others were done or dropped since."""

_HEDGES = re.compile(
    r"\b(?:looks? like|seems?|likely|probably|might|perhaps|suspect|vermutlich|wahrscheinlich)\b|peut-\u00eatre"
    r"|\u53ef\u80fd|\u4f3c\u4e4e",
    re.IGNORECASE,
)
_EXACT = re.compile(r"[\d`/_]|[a-z][A-Z]|\w\.\w")
SHORT_CHARS: Final = 60

_LINK = re.compile(r"\W{0,4}!?\[[^\]\n]{0,300}\]\(")
_ADDRESS = re.compile(r"https?://\S+")
_PRAISE = re.compile(
    r"\W{0,3}(?:perfect|great|excellent|good|awesome|you're (?:absolutely )?right|absolutely|sure|okay)\b[!.,]",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"[.:!?\u3002]\W{0,3}$")
_VALUE = re.compile(r"[\w.-]{3,60}")
_NUMBERED = re.compile(r"\s*\d+[\u2192:|]")
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
    weights |= {f"={text}": STRING_WEIGHT * value for text, value in conversation.values.items()}
    waiting = list(_candidates(conversation))
    for candidate in waiting:
        candidate.concepts |= {f"={string}" for string in conversation.strings_in(candidate.text)}
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
    withdrawn = _withdrawn(conversation.sources)
    for source in conversation.sources:
        message = source.message
        if message.role == "assistant" and message.text.strip() and source.index not in withdrawn:
            quality = QUALITIES["remark" if message.calls else "answer"] * _recency(conversation, source)
            yield from _of_text(plain_text(message.text[:MAX_TEXT_CHARS]), source, quality)
    for step in conversation.steps:
        for text in written_texts(step.action):
            quality = QUALITIES["written"] * _recency(conversation, step.call)
            yield from _of_text(text[:MAX_TEXT_CHARS], step.call, quality)
    yield from _of_results(conversation)


def _recency(conversation: "Conversation", source: SourceMessage) -> float:
    """Return a factor for the age of a message: 0.7 for the first, nearly 1 for the newest."""
    return 0.7 + 0.3 * (source.index - conversation.sources[0].index) / len(conversation.sources)


def _withdrawn(sources: Iterable[SourceMessage]) -> set[int]:
    """Return the indexes of the agent's answers that the user questioned so that the agent took them back."""
    found: set[int] = set()
    answer = asked = -1
    for source in sources:
        message = source.message
        if message.role == "user" and message.text.strip():
            asked = answer
        elif message.role == "assistant" and message.text.strip():
            if asked >= 0 and concedes(message.text):
                found.add(asked)
            answer, asked = source.index, -1
    return found


def _of_results(conversation: "Conversation") -> Iterator[SentenceCandidate]:
    """Yield sentences and records of what tools returned; of many records of one form those that were spoken of."""
    found: list[RowPlace] = []
    makers: dict[int, ParsedCall] = {}
    for step in conversation.steps:
        reading = step.reading
        if reading is None or is_refusal(reading.text) or step.action.operation == "change":
            continue  # the result of an edit says that it was made, or shows the new lines
        text = reading.searched[:MAX_TEXT_CHARS]
        for position, row in enumerate(rows_of(text)):
            found.append(RowPlace(row, reading, position))
            makers[id(reading)] = step.action
        shown = plain_text(text)
        if _is_prose(shown):
            origin = "read" if step.action.operation == "look" and step.action.paths else "prose"
            quality = QUALITIES[origin] * _recency(conversation, reading.source)
            yield from _of_text(shown, reading.source, quality, reading)
    records: defaultdict[tuple[str, str], list[RowPlace]] = defaultdict(list)
    for place in without_older(found):
        records[makers[id(place.reading)].name, place.row.form].append(place)
    spoken = _spoken_words(conversation)
    for (name, _), rows in records.items():
        for row, reading, position in rows_worth_a_line(rows, spoken):
            words = CUT.join(" ".join(row.values).split())
            maker = makers[id(reading)]
            is_echo = maker.operation == "run" and not maker.is_harmless
            quality = QUALITIES["echo" if is_echo else "record"] * _recency(conversation, reading.source)
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


def _is_prose(text: str) -> bool:
    """Return whether a tool returned sentences, and no code, listing or log: most lines are long and end like one."""
    lines = [line for line in text[:8_000].splitlines() if line.strip()]
    if len(text) < 200 or _NUMBERED.match(lines[0] if lines else ""):  # noqa: PLR2004 - too short to tell
        return False
    said = sum(
        1
        for line in lines
        if (len(line.split()) > 5 or chars_of(line) > len(line) + 40) and _SENTENCE_END.search(line.rstrip())  # noqa: PLR2004 - ideographs have no spaces
    )
    return said > 0.4 * len(lines)


def _of_text(
    text: str, source: SourceMessage, quality: float, reading: ResultText | None = None
) -> Iterator[SentenceCandidate]:
    said = list(sentences(text))
    for position, sentence in enumerate(said):
        if len(sentence) < MIN_CHARS or leads_in(sentence) or offers(sentence):
            continue
        # A sentence that begins with a link, or consists of addresses by half, says nothing.
        if _LINK.match(sentence) or 2 * sum(map(len, _ADDRESS.findall(sentence))) > len(sentence):
            continue
        if reading is None and asks(sentence):
            continue  # the newest is a next step, and the others were answered
        is_before_call = bool(source.message.calls) and position == len(said) - 1
        is_withdrawn = corrects_itself(said[position + 1]) if position + 1 < len(said) else False
        applies = {
            "cue": _CUES.search(sentence),
            "announces": announces(sentence) and not _REASON.search(sentence),
            "hedges": _HEDGES.search(sentence),
            "short": chars_of(sentence) < SHORT_CHARS and not _EXACT.search(sentence),
            "asks": asks(sentence),
            "praises": _PRAISE.match(sentence),
            "before a call": is_before_call,
            "heading": is_heading(sentence),
            "row": sentence.startswith("|"),
            "withdrawn": is_withdrawn,
        }
        found = quality * math.prod(FACTORS[form] for form, is_so in applies.items() if is_so)
        yield SentenceCandidate(sentence, source, position, found, concepts_of(sentence), reading)
