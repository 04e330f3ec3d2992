"""Where each exact string of a conversation occurs, and how likely it is needed again."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, Literal, TypeAlias

from buoyline.compression.extractive.calls import ParsedCall, json_texts
from buoyline.compression.extractive.learned import LEARNED
from buoyline.compression.extractive.lines import result_texts
from buoyline.compression.identifiers import Kind, atoms, classify, outer_text, runs
from buoyline.compression.summary import SourceMessage
from buoyline.messages import Reasoning

Channel: TypeAlias = Literal["user", "assistant", "reasoning", "call", "change", "result", "asked", "said"]
"""Part of a message: ``"asked"`` is the user's newest one, ``"said"`` the agent's last words."""

MAX_TYPED_CHARS: Final = 2_000
"""Longer messages of users are pasted: logs, files, instructions of a tool."""

_MEMORABLE = re.compile(r"(?<![0-9.])[0-9]{5}|[0-9]{4}-[0-9]{2}-[0-9]{2}$|,[0-9]{3}")

_KEY = re.compile(r'"([A-Za-z_][\w.-]{0,60})\\?" ?:')

MAX_OTHERS: Final = 1_000
"""Strings in one text: more say no more."""


def likelihood(weight: float, *, count: int, age: int) -> float:
    """Return how likely a fact is needed again, from 0 to 1.

    *weight* is the log odds of all but its count of messages, 1 or more, and its age in messages, 0 or more.
    """
    odds = LEARNED["intercept"] + weight + LEARNED["count"] * math.log2(count) + LEARNED["age"] * math.log2(1 + age)
    return 1 / (1 + math.exp(-odds))


@dataclass(slots=True)
class Occurrences:
    """An exact string and the messages that hold it.

    Attributes:
        count: How many messages hold it.
        keys: How many of them hold it as a key of a JSON object.
        channels: Parts of messages that hold it.
        last_seen: Index of the newest message.
        others: How many other strings are in a text that holds it, in the one with the fewest.
        beside_written: Share of the other strings around it that the user or the agent wrote, where it is greatest.
    """

    kind: Kind
    text: str
    count: int = 0
    keys: int = 0
    channels: set[Channel] = field(default_factory=set)
    last_seen: int = -1
    others: int = MAX_OTHERS
    beside_written: float = 0.0

    @property
    def features(self) -> dict[str, float]:
        """What `LEARNED` weighs, without its age and its count."""
        found = {f"in {channel}": 1.0 for channel in self.channels}
        found[self.kind] = 1.0
        found["others"] = math.log2(1 + self.others)
        found["beside written"] = self.beside_written
        if self.keys == self.count and self.channels == {"result"}:
            # It only names a field of tools' answers. How often it is filled in says nothing, so its count is out.
            found |= {"mere key": 1.0, "count": -math.log2(self.count)}
        return found

    @property
    def weight(self) -> float:
        """Log odds that the string is needed again, without its age and its count."""
        return math.fsum(LEARNED.get(name, 0.0) * value for name, value in self.features.items())

    def add(self, index: int, channel: Channel, others: int = MAX_OTHERS) -> None:
        """Count message *index*, in a text with so many *others*; messages come in order."""
        self.channels.add(channel)
        self.others = min(self.others, others)
        if index != self.last_seen:
            self.last_seen = index
            self.count += 1

    def merge(self, other: "Occurrences") -> None:
        """Count *other*, a shorter spelling of the same path, as this one."""
        self.channels |= other.channels
        self.count += other.count
        self.others = min(self.others, other.others)
        self.beside_written = max(self.beside_written, other.beside_written)
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
            found = self.strings(text)
            for kind, string in found:
                self._occurrences_of(kind, string).add(source.index, channel, len(found) - 1)
        # Keys of JSON objects, even if a result is only partly JSON.
        texts = (outer_text(reading.searched) for reading in result_texts(source))
        for key in {key for text in texts if '":' in text or '" :' in text for key in _KEY.findall(text)}:
            if (held := self._found.get(key)) is not None:
                held.keys += 1
        for action in actions:
            for path in action.paths:
                named = self._occurrences_of("path", path)
                named.add(source.index, "call")
                named.add(source.index, "change" if action.operation == "change" else "call")

    def mark(self, channel: Channel, texts: Iterable[str]) -> None:
        """Note that *channel* holds the strings in *texts*."""
        for text in texts:
            for _, string in self.strings(text):
                if (found := self._found.get(string)) is not None:
                    found.channels.add(channel)

    def mark_neighbours(self, places: Mapping[str, Sequence[int]]) -> None:
        """Note how many of the strings around each one the user or the agent wrote; *places* numbers where each is."""
        all_at, written_at = Counter[int](), Counter[int]()
        written = {
            string
            for string in places
            if (found := self._found.get(string)) is not None
            and not found.channels.isdisjoint({"user", "assistant", "call"})
        }
        for string, held in places.items():
            all_at.update(held)
            if string in written:
                written_at.update(held)
        for string, held in places.items():
            if (found := self._found.get(string)) is not None:
                own = string in written
                shares = ((written_at[at] - own) / (all_at[at] - 1) for at in held if all_at[at] > 1)
                found.beside_written = max(shares, default=0.0)

    def strings(self, text: str) -> set[tuple[Kind, str]]:
        """Return the exact strings in *text* with their kinds, dotted names in parts."""
        held, known = runs(text), self._known
        for run in held.difference(known):
            found = classify(run)
            # A short number is one of a line, a duration or a size, which nobody looks up.
            is_noise = found is not None and found[0] == "number" and not _MEMORABLE.search(found[1])
            known[run] = () if found is None or is_noise else atoms(*found)
        return set(chain.from_iterable(map(known.__getitem__, held)))

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
