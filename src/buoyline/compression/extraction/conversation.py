"""The messages that leave the context, read once for all fields of their summary."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from buoyline.compression.extraction.citing import Citations
from buoyline.compression.extraction.sections import Sections
from buoyline.compression.extraction.sightings import Lookout, Sighting, likelihood
from buoyline.compression.extraction.steps import Step, steps
from buoyline.compression.summary import Pointer, Source
from buoyline.messages import Role
from buoyline.tokens import TextCounter


@dataclass(frozen=True, slots=True)
class Limits:
    """How long one quotation may be, in tokens: a summary of 400 quotes a line where one of 4,000 quotes more."""

    counter: TextCounter
    max_tokens: int
    task: int
    request: int
    report: int
    line: int

    @classmethod
    def within(cls, max_tokens: int, counter: TextCounter) -> "Limits":
        """Return the limits for a summary of *max_tokens*."""
        return cls(
            counter=counter,
            max_tokens=max_tokens,
            task=_between(24, max_tokens // 8, 600),
            request=_between(16, max_tokens // 24, 200),
            report=_between(24, max_tokens // 12, 400),
            line=_between(16, max_tokens // 40, 60),
        )


class Conversation:
    """Messages, the calls in them joined with their results, and every exact string with its places.

    Attributes:
        citations: Finds the lines of quotations.
        sections: Finds the lines of exact strings.
    """

    def __init__(self, sources: Sequence[Source], limits: Limits) -> None:
        """Read *sources*, which are in order and not empty."""
        self.sources = sources
        self.limits = limits
        self.end = sources[-1].index + 1
        self.citations = Citations()
        self.steps = steps(sources, self.citations)
        self.open_errors, self.resolved_errors = _errors(self.steps)
        self._lookout = Lookout()
        actions = {index: [step.action for step in made] for index, made in groupby(self.steps, _call_index)}
        for source in sources:
            self._lookout.watch(source, actions.get(source.index, []))
        self._lookout.mark_errors(line.text for step in self.open_errors for line in step.errors)
        self.sections = Sections(sources, self.strings_in, max_tokens=max(limits.max_tokens, 1))
        self.sightings = self._lookout.sightings()
        self._values = {sighting.text: self.value_of(sighting) for sighting in self.sightings}

    def value_of(self, sighting: Sighting) -> float:
        """Return how likely the string is needed again."""
        return likelihood(sighting.weight, count=sighting.count, age=self.end - 1 - sighting.last_seen)

    def value_in(self, text: str) -> float:
        """Return how many strings of *text* are needed again, on average."""
        return math.fsum(self._values.get(string, 0.0) for _, string in self._lookout.strings(text))

    def strings_in(self, text: str) -> set[str]:
        """Return the exact strings in *text*."""
        return {string for _, string in self._lookout.strings(text)}

    def file_at(self, pointer: Pointer) -> str:
        """Return the name of the file that a call wrote or read whose lines, or whose result's, *pointer* names."""
        step = self._step_at(pointer)
        name = step.action.paths[0].rpartition("/")[2] if step is not None and step.action.paths else ""
        return name if "." in name[1:] else ""  # a directory says too little

    def _step_at(self, pointer: Pointer) -> Step | None:
        for step in self.steps:
            for source in (step.call, step.answer):
                if source is not None and source.pointer is not None and _begins_in(pointer, source):
                    return step
        return None

    def spoken(self, role: Role) -> list[Source]:
        """Return the messages of one side that have text, in order."""
        return [source for source in self.sources if source.message.role == role and source.message.text.strip()]


def _errors(made: Sequence[Step]) -> tuple[list[Step], list[Step]]:
    """Part the failed steps into those that are open and those that are not any more.

    The last try of a subject decides: if it failed, its errors are open and those of earlier tries are not.
    """
    last_try = {step.subject: position for position, step in enumerate(made) if step.answer is not None}
    is_open: list[Step] = []
    is_over: list[Step] = []
    for position, step in enumerate(made):
        if step.errors:
            (is_open if last_try[step.subject] == position else is_over).append(step)
    return is_open, is_over


def _begins_in(pointer: Pointer, source: Source) -> bool:
    whole = source.pointer
    if whole is not None and pointer.path == whole.path:
        return whole.start <= pointer.start <= whole.end
    return any(excerpt is not None and excerpt.path == pointer.path for excerpt in source.excerpts)


def _call_index(step: Step) -> int:
    return step.call.index


def _between(least: int, wanted: int, most: int) -> int:
    return max(least, min(wanted, most))
