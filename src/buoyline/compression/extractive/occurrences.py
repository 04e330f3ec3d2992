"""Where each exact string of a conversation occurs, and how likely it is needed again."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from buoyline.compression.extractive.lines import result_texts
from buoyline.compression.extractive.speech import ParsedCall, json_texts
from buoyline.compression.identifiers import Kind, atoms, classify, outer_text, runs
from buoyline.compression.summary import SourceMessage
from buoyline.messages import Reasoning

Channel: TypeAlias = Literal["user", "assistant", "reasoning", "call", "change", "result", "error"]

MAX_TYPED_CHARS: Final = 2_000
"""Longer messages of users are pasted: logs, files, instructions of a tool."""

_MEMORABLE = re.compile(r"(?<![0-9.])[0-9]{5}|[0-9]{4}-[0-9]{2}-[0-9]{2}$|,[0-9]{3}")

_KEY = re.compile(r'"([A-Za-z_][\w.-]{0,60})\\?" ?:')

# Log odds that an agent writes a string again, fitted on 14,031 strings of recorded sessions without a recorded
# compaction, cut at a third, three fifths and four fifths, and rounded. Of 15,835 strings of the other sessions, which
# were not fitted on, the first 300 in a cut hold 79 % of those written again (77 % with the earlier weights, which were
# fitted on them as well). It added nothing to know if a changed file holds a string, which tool showed it and how many
# strings are near it. By judgement "user" (0.3 to 0.6 in fits) is higher, "change" (-0.3) is zero, and "error" was set.
CHANNEL_WEIGHTS: Final[Mapping[Channel, float]] = MappingProxyType(
    {"user": 1.0, "call": 1.0, "assistant": 0.8, "reasoning": 0.0, "result": 0.0, "change": 0.0, "error": 0.6}
)
KIND_WEIGHTS: Final[Mapping[Kind, float]] = MappingProxyType(
    {"path": -0.3, "identifier": 0.0, "hash": -0.5, "url": -0.6, "number": 0.0, "version": -0.5}
)
CALL_COUNT_WEIGHT: Final = 0.3
"""For each doubling of the number of calls that hold the string."""
KEY_WEIGHT: Final = -1.2
"""For a string that only results hold, and only as a key of a JSON object: it is the form of an answer and not its
content. Fitted: 3 % of these are written again, of other strings of results 5 %. How often a form is filled in says
nothing more, so their count is taken out again.
"""

COUNT_WEIGHT: Final = 0.45
"""For each doubling of the number of messages."""

AGE_WEIGHT: Final = -0.2
"""For each doubling of the number of messages since."""

INTERCEPT: Final = -1.8


def likelihood(weight: float, *, count: int, age: int) -> float:
    """Return how likely a fact is needed again, from 0 to 1.

    Args:
        weight: Log odds of its kind and its channels.
        count: How many messages hold it, 1 or more.
        age: How many messages ago it occurred last, 0 or more.
    """
    odds = INTERCEPT + weight + COUNT_WEIGHT * math.log2(count) + AGE_WEIGHT * math.log2(1 + age)
    return 1 / (1 + math.exp(-odds))


@dataclass(slots=True)
class Occurrences:
    """An exact string and the messages that hold it.

    Attributes:
        kind: What it looks like.
        text: The string.
        count: How many messages hold it.
        calls: How many of them hold it in the arguments of a call.
        keys: How many of them hold it as a key of a JSON object.
        channels: Parts of messages that hold it.
        last_seen: Index of the newest message.
    """

    kind: Kind
    text: str
    count: int = 0
    calls: int = 0
    keys: int = 0
    channels: set[Channel] = field(default_factory=set)
    last_seen: int = -1

    @property
    def weight(self) -> float:
        """Log odds that the string is needed again, without its age and its count."""
        channels = math.fsum(CHANNEL_WEIGHTS[channel] for channel in self.channels)
        key = KEY_WEIGHT - COUNT_WEIGHT * math.log2(self.count) if self.is_mere_key else 0.0
        return channels + key + KIND_WEIGHTS[self.kind] + CALL_COUNT_WEIGHT * math.log2(1 + self.calls)

    @property
    def is_mere_key(self) -> bool:
        """Whether it only names a field of tools' answers."""
        return self.keys == self.count and self.channels == {"result"}

    def add(self, index: int, channel: Channel) -> None:
        """Count message *index*; messages come in order, calls first within one."""
        self.channels.add(channel)
        if index != self.last_seen:
            self.last_seen = index
            self.count += 1
            self.calls += channel == "call"

    def merge(self, other: "Occurrences") -> None:
        """Count *other*, a shorter spelling of the same path, as this one."""
        self.channels |= other.channels
        self.count += other.count
        self.calls += other.calls
        self.keys += other.keys


class OccurrenceIndex:
    """Collects the occurrences of all strings of one conversation.

    Each distinct run of characters is judged once: a name in a thousand places costs one judgement and a thousand
    look-ups.
    """

    def __init__(self) -> None:
        """Start empty."""
        self._known: dict[str, tuple[tuple[Kind, str], ...]] = {}
        self._found: dict[str, Occurrences] = {}

    def add(self, source: SourceMessage, actions: Iterable[ParsedCall]) -> None:
        """Count all strings of one message; *actions* are its parsed calls."""
        for channel, text in _channels(source, actions):
            for kind, string in self.strings(text):
                self._occurrences_of(kind, string).add(source.index, channel)
        for key in _keys(source):
            if (found := self._found.get(key)) is not None:
                found.keys += 1
        for action in actions:
            for path in action.paths:
                found = self._occurrences_of("path", path)
                found.add(source.index, "call")
                found.add(source.index, "change" if action.operation == "change" else "call")

    def mark_errors(self, lines: Iterable[str]) -> None:
        """Note that the strings in *lines* are part of an open error."""
        for line in lines:
            for _, string in self.strings(line):
                if (found := self._found.get(string)) is not None:
                    found.channels.add("error")

    def strings(self, text: str) -> set[tuple[Kind, str]]:
        """Return the exact strings in *text* with their kinds, dotted names in parts."""
        return {found for run in runs(text) for found in self._judged(run)}

    def occurrences(self) -> list[Occurrences]:
        """Return all strings in their own order; of a path only the longest spelling.

        The order of sets differs from process to process, and a summary must not. A string that only reasoning holds
        is left out: it may never have existed.
        """
        said = [found for found in self._found.values() if found.channels != {"reasoning"}]
        return _without_short_spellings(sorted(said, key=lambda found: found.text))

    def _occurrences_of(self, kind: Kind, string: str) -> Occurrences:
        occurrence = self._found.get(string)
        if occurrence is None:
            occurrence = self._found[string] = Occurrences(kind, string)
        return occurrence

    def _judged(self, run: str) -> tuple[tuple[Kind, str], ...]:
        known = self._known.get(run)
        if known is None:
            found = classify(run)
            known = self._known[run] = () if found is None or _is_noise(*found) else atoms(*found)
        return known


def _channels(source: SourceMessage, actions: Iterable[ParsedCall]) -> Iterator[tuple[Channel, str]]:
    """Yield the texts of a message, each with its channel."""
    message = source.message
    for action, call in zip(actions, message.calls, strict=True):
        text = "\n".join(json_texts(action.arguments)) or call.arguments
        yield "call", text
        if action.operation == "change":
            yield "change", text
    for part in message.parts:
        if isinstance(part, Reasoning):
            yield "reasoning", part.text
    if message.role == "user" or message.role == "assistant":  # noqa: PLR1714 - checkers narrow the type by this
        # What users paste counts as little as what tools say, since they did not write it.
        is_pasted = message.role == "user" and len(message.text) > MAX_TYPED_CHARS
        yield "result" if is_pasted else message.role, outer_text(message.text)
    for reading in result_texts(source):
        yield "result", outer_text(reading.searched)


def _keys(source: SourceMessage) -> set[str]:
    """Return the keys of JSON objects in the results of a message, even if a result is only partly JSON."""
    texts = (outer_text(reading.searched) for reading in result_texts(source))
    return {key for text in texts if '":' in text or '" :' in text for key in _KEY.findall(text)}


def _is_noise(kind: Kind, text: str) -> bool:
    """Return whether a number is a line number, a duration or a size, which nobody looks up."""
    return kind == "number" and not _MEMORABLE.search(text)


def _without_short_spellings(occurrences: Sequence[Occurrences]) -> list[Occurrences]:
    """Merge ``app/main.py`` into ``/home/me/app/main.py``, which contains it.

    A shorter spelling that fits several paths counts for the most frequent one.
    """
    longer: dict[str, Occurrences] = {}
    for occurrence in occurrences:
        if occurrence.kind == "path":
            for tail in _tails(occurrence.text):
                if tail not in longer or longer[tail].count < occurrence.count:
                    longer[tail] = occurrence
    kept: list[Occurrences] = []
    for occurrence in occurrences:
        if occurrence.kind == "path" and (path := longer.get(occurrence.text)) is not None:
            path.merge(occurrence)
        else:
            kept.append(occurrence)
    return kept


def _tails(path: str) -> Iterator[str]:
    """Yield the text behind each slash of *path*, at most 30."""
    position = path.find("/", 1 if path.startswith("/") else 0)
    for _ in range(30):
        if position < 0 or position == len(path) - 1:
            return
        yield path[position + 1 :]
        position = path.find("/", position + 1)
