"""The archived messages, read once for all fields of their summary."""

from collections import Counter
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Final

from buoyline.compression.extractive.calls import Step, steps, subjects_of
from buoyline.compression.extractive.fact_text import ANSWERED, cut, cut_between
from buoyline.compression.extractive.lines import LineFinder, Passage, merged_pointers
from buoyline.compression.extractive.phrases import chars_of, forbids
from buoyline.compression.extractive.speech import (
    MAX_TYPED_CHARS,
    closing_question,
    ending_of,
    is_made_by_machine,
    plain_text,
    says_task,
)
from buoyline.compression.extractive.work import advanced
from buoyline.compression.identifiers import mentions, readable
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
    """Messages, and their calls joined with the results.

    Attributes:
        citations: Finds the lines of quotations.
        failed_calls: Those that failed and were not tried again, or failed again then.
        typed: The messages that the user typed, in order; all of the user's if none looks typed.
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
        self.failed_calls = _failed(self.steps)
        users = self.spoken("user")
        self._first = next((source for source in sources if source.message.role != "system"), None)
        self._behind_skills = frozenset(
            step.answer.index + 1 for step in self.steps if step.answer is not None and "skill" in step.action.words
        )
        endings = Counter(ending_of(source.message.text) for source in users)
        self._made_endings = {ending for ending, count in endings.items() if ending and count >= MADE_ALIKE}
        self.typed = _without_repetitions([source for source in users if not self.is_made(source)] or users)

    def within(self, limits: QuotationLimits) -> "Conversation":
        """Return the same conversation for a summary of another size; nothing is read again."""
        found = copy(self)
        found.limits = limits
        return found

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
        shown = readable(text[:MAX_TYPED_CHARS])
        return chars_of(shown) >= MIN_WORDS_CHARS or any(found.kind != "number" for found in mentions(shown))

    def item(self, field: str, kind: str, text: str, source: SourceMessage, *, weight: float, order: int = 0) -> Fact:
        """Return the fact *text* of *source*, with its lines."""
        pointers = self.citations.of(source, text)
        first, also = (pointers[0], pointers[1:]) if pointers else (None, ())
        return Fact(field, kind, text, first, source.index, weight=weight, order=order, also=also)

    def spoken(self, role: Role) -> list[SourceMessage]:
        """Return the messages of one role that have text, in order."""
        return [source for source in self.sources if source.message.role == role and source.message.text.strip()]


def _failed(made: Sequence[Step]) -> list[Step]:
    """Return the steps that failed, of several tries of one subject the last one, unless it succeeded."""
    last_try: dict[str, int] = {}
    for position, step in enumerate(made):
        if step.answer is not None:
            last_try |= dict.fromkeys(step.tried, position)
    return [
        step
        for position, step in enumerate(made)
        if step.errors and max(last_try.get(subject, -1) for subject in subjects_of(step.subject)) == position
    ]


def _without_repetitions(sources: Sequence[SourceMessage]) -> list[SourceMessage]:
    """Drop messages that a later one repeats from its first word on: they were interrupted, and completed then."""
    texts = [readable(source.message.text) for source in sources]
    stems = [text.rstrip("?!. ") for text in texts]
    later = [any(other.startswith(stem) for other in texts[at + 1 : at + 4]) for at, stem in enumerate(stems)]
    return [source for source, is_repeated in zip(sources, later, strict=True) if not is_repeated]


def _between(least: int, wanted: int, most: int) -> int:
    return max(least, min(wanted, most))
