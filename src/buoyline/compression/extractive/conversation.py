"""The archived messages, read once for all fields of their summary."""

import math
from collections import Counter
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from buoyline.compression.extractive.calls import Step, steps, subjects_of
from buoyline.compression.extractive.fact_text import ANSWERED, cut, cut_between
from buoyline.compression.extractive.lines import LineFinder, Passage, merged_pointers
from buoyline.compression.extractive.occurrences import MAX_TYPED_CHARS, OccurrenceIndex, Occurrences, likelihood
from buoyline.compression.extractive.phrases import chars_of, forbids
from buoyline.compression.extractive.snippets import Sections
from buoyline.compression.extractive.speech import (
    closing_question,
    ending_of,
    is_made_by_machine,
    plain_text,
    says_task,
)
from buoyline.compression.extractive.work import advanced
from buoyline.compression.identifiers import readable
from buoyline.compression.pointers import Pointer
from buoyline.compression.summary import Fact, SourceMessage
from buoyline.compression.work_state import WorkState
from buoyline.messages.model import Role
from buoyline.tokens import TextCounter

MIN_WORDS_CHARS: Final = 11
"""A shorter message or sentence of a user means nothing without the question that it answers."""

MADE_ALIKE: Final = 3
"""So many messages with the same last line were made by a program."""


@dataclass(frozen=True, slots=True)
class QuotationLimits:
    """Longest quotations, in tokens: a summary of 400 tokens quotes a line if one of 4,000 quotes more."""

    counter: TextCounter
    max_tokens: int
    task: int
    request: int
    asked: int
    report: int
    line: int

    @classmethod
    def within(cls, max_tokens: int, counter: TextCounter) -> "QuotationLimits":
        """Return the limits for a summary of *max_tokens*."""
        return cls(
            counter=counter,
            max_tokens=max_tokens,
            task=_between(24, max_tokens // 8, 600),
            request=_between(24, max_tokens // 12, 200),
            asked=_between(24, max_tokens // 2, 300),
            report=_between(24, max_tokens // 12, 400),
            line=_between(16, max_tokens // 40, 60),
        )

    def cut(self, text: str, max_tokens: int) -> str:
        """Return *text* on one line, cut to *max_tokens*; see `fact_text.cut`."""
        return cut(text, max_tokens, self.counter)


class Conversation:
    """Messages, their calls joined with the results, and the places of every exact string.

    Attributes:
        citations: Finds the lines of quotations.
        sections: Finds the lines of exact strings.
        typed: The messages that the user typed, in order; all of the user's if none looks typed.
        values: How likely each exact string is needed again.
    """

    def __init__(
        self,
        sources: Sequence[SourceMessage],
        limits: QuotationLimits,
        *,
        has_task: bool = False,
        work: WorkState | None = None,
    ) -> None:
        """Read *sources*, in order and not empty.

        *has_task* if the last summary says the first request; *work* is the state behind the messages before.
        """
        before = work or WorkState()
        self.sources = sources
        self.has_task = has_task
        self.limits = limits
        self.end = sources[-1].index + 1
        self.citations = LineFinder()
        self.steps = steps(sources, self.citations)
        self.work = advanced(before, sources, self.steps, self.citations)
        self.open_errors, self.attempted_errors, self.resolved_errors = _errors(self.steps)
        self._index = OccurrenceIndex()
        actions = {
            index: [step.action for step in made] for index, made in groupby(self.steps, lambda step: step.call.index)
        }
        for source in sources:
            self._index.add(source, actions.get(source.index, []))
        users = self.spoken("user")
        self._first = next((source for source in sources if source.message.role != "system"), None)
        self._behind_skills = frozenset(
            step.answer.index + 1 for step in self.steps if step.answer is not None and "skill" in step.action.words
        )
        endings = Counter(ending_of(source.message.text) for source in users)
        self._made_endings = {ending for ending, count in endings.items() if ending and count >= MADE_ALIKE}
        self.typed = _without_repetitions([source for source in users if not self.is_made(source)] or users)
        self._index.mark("asked", (source.message.text for source in self.typed[-1:]))
        self._index.mark("said", (source.message.text for source in self.spoken("assistant")[-1:]))
        self.sections = Sections(sources, self.strings_in)
        self._index.mark_neighbours(self.sections.places)
        self.occurrences = self._index.occurrences()
        self.values = {occurrence.text: self.value_of(occurrence) for occurrence in self.occurrences}

    def within(self, limits: QuotationLimits) -> "Conversation":
        """Return the same conversation for a summary of another size; nothing is read again."""
        found = copy(self)
        found.limits = limits
        return found

    def value_of(self, occurrence: Occurrences) -> float:
        """Return how likely the string is needed again."""
        return likelihood(occurrence.weight, count=occurrence.count, age=self.end - 1 - occurrence.last_seen)

    def value_in(self, text: str) -> float:
        """Return how many strings of *text* are likely needed again."""
        return math.fsum(self.values.get(string, 0.0) for _, string in self._index.strings(text))

    def strings_in(self, text: str) -> set[str]:
        """Return the exact strings in *text*."""
        return {string for _, string in self._index.strings(text)}

    def is_made(self, source: SourceMessage) -> bool:
        """Return whether a program made a user message: a notification, a shell prompt, the text of a skill."""
        text = source.message.text
        if source is self._first and not self.has_task and says_task(text):
            return False  # a task may be in tags
        if source.index in self._behind_skills and len(text) > MAX_TYPED_CHARS:
            return True
        # A person may sign each message, and what that forbids must not be lost.
        return is_made_by_machine(text) or (ending_of(text) in self._made_endings and not forbids(text))

    @property
    def last_operation(self) -> int:
        """Index of the newest message of the user, or of the newest call with a result; -1 without any.

        Earlier announcements are done.
        """
        users = self.spoken("user")[-1:]
        calls = (step.call.index for step in self.steps if step.answer is not None)
        return max((*calls, *(source.index for source in users)), default=-1)

    def quoted(self, source: SourceMessage, max_tokens: int, *, with_end: bool = False) -> Passage:
        """Quote a user with the lines; a mere "yes" follows the question that it answers.

        *with_end* quotes a message of more than *max_tokens* from its beginning and its end.
        """
        said = (cut_between if with_end else cut)(source.message.text, max_tokens, self.limits.counter)
        pointers = self.citations.of(source, said)
        if self.says_something(source.message.text):
            return Passage(said, pointers)
        at = source.index - self.sources[0].index - 1
        asked = self.sources[at] if at >= 0 else source
        if asked.message.role != "assistant" or not asked.message.text.strip():
            return Passage(said, pointers)
        question = closing_question(plain_text(asked.message.text))
        if not question:
            return Passage(said, pointers)
        shown = self.limits.cut(question, max_tokens)
        return Passage(f"{shown}{ANSWERED}{said}", merged_pointers((*self.citations.of(asked, shown), *pointers)))

    def says_something(self, text: str) -> bool:
        """Return whether a user's words mean anything alone: "yes" and "go on" do not."""
        return chars_of(readable(text[:MAX_TYPED_CHARS])) >= MIN_WORDS_CHARS or self.value_in(text) > 0

    def item(self, field: str, kind: str, text: str, source: SourceMessage, *, weight: float, order: int = 0) -> Fact:
        """Return the fact *text* of *source*, with its lines."""
        pointers = self.citations.of(source, text)
        first, also = (pointers[0], pointers[1:]) if pointers else (None, ())
        return Fact(field, kind, text, first, source.index, weight=weight, order=order, also=also)

    def file_at(self, pointer: Pointer) -> str:
        """Return the name of the file that the call at *pointer* wrote or read; empty if there is none."""
        for step in self.steps:
            if any(source is not None and _begins_in(pointer, source) for source in (step.call, step.answer)):
                name = step.action.paths[0].rpartition("/")[2] if step.action.paths else ""
                return name if "." in name[1:] else ""  # a directory says too little
        return ""

    def spoken(self, role: Role) -> list[SourceMessage]:
        """Return the messages of one role that have text, in order."""
        return [source for source in self.sources if source.message.role == role and source.message.text.strip()]


def _errors(made: Sequence[Step]) -> tuple[list[Step], list[Step], list[Step]]:
    """Part the failed steps into open ones, those whose files were changed since, and resolved ones.

    The last try of the same subject decides: if it failed, its errors are open and those of earlier tries are not, and
    equal words are said once. A call that tries several subjects counts for each.
    """
    last_try: dict[str, int] = {}
    last_change: dict[str, int] = {}
    for position, step in enumerate(made):
        if step.answer is not None:
            last_try |= dict.fromkeys(step.tried, position)
            if step.action.operation == "change" and not step.has_failed:
                last_change |= {path.rpartition("/")[2]: position for path in step.action.paths}
    is_open: list[Step] = []
    attempted: list[Step] = []
    is_over: list[Step] = []
    for position, step in enumerate(made):
        if step.errors:
            again = made[max(last_try.get(subject, -1) for subject in subjects_of(step.subject))]
            if again is step:
                words = "\n".join(line.text for line in step.errors)
                is_changed = any(at > position and name in words for name, at in last_change.items())
                (attempted if is_changed else is_open).append(step)
            elif {line.text for line in step.errors}.isdisjoint(line.text for line in again.errors):
                is_over.append(step)
    return is_open, attempted, is_over


def _without_repetitions(sources: Sequence[SourceMessage]) -> list[SourceMessage]:
    """Drop messages that a later one repeats from its first word on: they were interrupted, and completed then."""
    texts = [readable(source.message.text) for source in sources]
    stems = [text.rstrip("?!. ") for text in texts]
    later = [any(other.startswith(stem) for other in texts[at + 1 : at + 4]) for at, stem in enumerate(stems)]
    return [source for source, is_repeated in zip(sources, later, strict=True) if not is_repeated]


def _begins_in(pointer: Pointer, source: SourceMessage) -> bool:
    """Return whether *pointer* begins in the lines of a message, which are known, or in a result of its own."""
    whole = source.pointer
    if whole is None or pointer.path == whole.path:
        return whole is not None and whole.start <= pointer.start <= whole.end
    return any(excerpt is not None and excerpt.path == pointer.path for excerpt in source.excerpts)


def _between(least: int, wanted: int, most: int) -> int:
    return max(least, min(wanted, most))
