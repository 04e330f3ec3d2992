"""Tool calls joined with their results: what was done, and how it ended."""

import re
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from buoyline.compression.citations import CUT
from buoyline.compression.extractive.lines import (
    MAX_GAP_LINES,
    NO_WORDS,
    LineFinder,
    Passage,
    ResultText,
    merged_pointers,
    result_texts,
)
from buoyline.compression.extractive.speech import ParsedCall, action_of
from buoyline.compression.identifiers import error_lines, exit_status, last_line, readable, says_error
from buoyline.compression.summary import Pointer, SourceMessage

MAX_ERRORS: Final = 3
"""Of one result; the first ones are the cause more often than the last."""

MAX_VALUE_CHARS: Final = 60
"""A longer argument is a text, and no name of what was acted on."""

_SHORT_CHARS: Final = 400
"""A result this short that begins like an error is one, whatever the tool."""

MAX_COMMAND_CHARS: Final = 4_000
"""What follows is a script or a text that is piped in."""

_DATA = re.compile(r'\s{0,9}(?:\[\s{0,9})?\{\s{0,9}"(?!err|exception|fail|message|detail|code|status)', re.IGNORECASE)
"""A line that is a value of JSON and does not begin with an error: what stands in it are the words of others."""

_PROGRAM = re.compile(r"[\w./-]{1,200}")
_SEPARATOR = re.compile(r"&&|\|\||[;|\n]")


@dataclass(frozen=True, slots=True)
class Step:
    """A call and its result.

    Attributes:
        action: What was called.
        call: The message with the call.
        answer: The message with the result; None while there is none.
        errors: Lines of the result that read like errors, at most `MAX_ERRORS`; empty for a success. One without
            words stands for a failure of which nothing is shown.
        has_failed: The result says so, by its mark, its exit status or its words.
        outcome: The lines of the result that tell most; no words without a result.
    """

    action: ParsedCall
    call: SourceMessage
    answer: SourceMessage | None = None
    errors: tuple[Passage, ...] = ()
    has_failed: bool = False
    outcome: Passage = NO_WORDS

    @property
    def subject(self) -> str:
        """What is tried again when this failed: a changed file, the program of a command, a tool."""
        if self.action.operation == "change":
            return self.action.paths[0]
        return _program(self.action.command) if self.action.command else self.action.name

    @property
    def tried(self) -> frozenset[str]:
        """All subjects that were tried at once: every file that was changed, every program of a command."""
        if self.action.operation == "change":
            return frozenset(self.action.paths)
        return frozenset({self.subject, *_programs(self.action.command)})

    def citations_for(self, said: str, passage: Passage, citations: LineFinder) -> tuple[Pointer, ...]:
        """Return the lines that hold *said* of the call, and *passage* of its result if that has words."""
        return merged_pointers((*citations.of(self.call, said), *passage.pointers))


def subjects_of(subject: str) -> list[str]:
    """Return a subject, and the program alone: ``pytest`` tries ``pytest tests/test_store.py`` as well."""
    program, _, rest = subject.partition(" ")
    return [subject, program] if rest else [subject]


def varying_argument(made: Sequence[Step]) -> tuple[str, list[str]]:
    """Return the first argument in which calls of one tool differ, and what each says there; both empty for none."""
    for key in made[0].action.arguments:
        values = [step.action.arguments.get(key) for step in made]
        short = [readable(str(value)) for value in values if isinstance(value, str | int)]
        if len(set(short)) == len(made) and max(map(len, short)) <= MAX_VALUE_CHARS:
            return key, short
    return "", []


def grouped_calls(made: Iterable[Step]) -> tuple[list[list[Step]], list[Step]]:
    """Part calls into those that one line can tell, since they differ in an argument, and all others.

    Returns:
        Series of calls of one tool that act and have not failed, and the other calls, each in order.
    """
    by_name: defaultdict[str, list[Step]] = defaultdict(list)
    apart: list[Step] = []
    for step in made:
        is_one_of_many = step.action.operation == "act" and step.answer is not None and not step.has_failed
        (by_name[step.action.name] if is_one_of_many else apart).append(step)
    together: list[list[Step]] = []
    for series in by_name.values():
        if len(series) > 1 and varying_argument(series)[0]:
            together.append(series)
        else:
            apart += series
    return together, sorted(apart, key=lambda step: step.call.index)


def steps(sources: Sequence[SourceMessage], citations: LineFinder) -> list[Step]:
    """Join each call with its result.

    Recorded sessions repeat ids, and some have none at all, so a result answers the oldest call under its id
    that is still open; an id that no open call has answers nothing.

    Returns:
        A step for each call, in the order of the calls.
    """
    found: list[Step] = []
    waiting: defaultdict[str, deque[int]] = defaultdict(deque)
    for source in sources:
        for call in source.message.calls:
            waiting[call.call_id].append(len(found))
            found.append(Step(action_of(call), source))
        for result, reading in zip(source.message.results, result_texts(source), strict=True):
            if open_calls := waiting[result.call_id]:
                position = open_calls.popleft()
                found[position] = _answered(found[position], reading, citations, is_error=result.is_error)
    return found


def _answered(step: Step, reading: ResultText, citations: LineFinder, *, is_error: bool) -> Step:
    found = islice(_errors(step.action, reading, is_error=is_error), MAX_ERRORS)
    errors = tuple(reading.passage(line, citations) for line in found)
    status = exit_status(reading.text) if step.action.operation in {"run", "act"} else None
    has_failed = is_error or bool(status) or (status is None and bool(errors))
    return Step(
        action=step.action,
        call=step.call,
        answer=reading.source,
        errors=errors if has_failed else (),
        has_failed=has_failed,
        outcome=errors[0] if has_failed and errors else reading.passage(_gist(reading), citations),
    )


def _errors(action: ParsedCall, reading: ResultText, *, is_error: bool) -> Iterator[str]:
    """Yield the error lines of a result; what was only read is full of words such as "failed" and no error."""
    text = reading.text
    if is_error or (action.operation == "run" and not action.is_harmless):
        # A line in the command is printed by it, as by ``grep x f || echo "Not found"``; a line of JSON is data.
        lines = dict.fromkeys(error_lines(text))
        yield from (line for line in lines if line not in action.command and not _DATA.match(line))
        if is_error and not any(error_lines(text)):
            yield _first_line(text)
    elif (
        action.operation != "run"
        and reading.excerpt is None
        and len(text) <= _SHORT_CHARS
        and says_error(first := _first_line(text))
    ):
        yield first


def _gist(reading: ResultText) -> str:
    """Return what a result says at its start and at its end; of an offloaded one the end, for want of one place."""
    first, last = _first_line(reading.text), last_line(reading.text)
    if reading.excerpt is not None or reading.text.count("\n") > MAX_GAP_LINES:
        return next((line for line in (last, first) if _is_said(line)), "")
    told = [line for line in dict.fromkeys((first, last)) if _is_said(line)]
    return f" {CUT} ".join(told)


def _is_said(line: str) -> bool:
    """Tell whether a line says something alone: not a piece of JSON, a bracket, a rule."""
    return bool(line) and line[0] not in "[]{}\"'<|=" and ':"' not in line and '": ' not in line


def _first_line(text: str) -> str:
    return next((shown for line in text[:4_000].splitlines() if (shown := readable(line))), "")


def _program(command: str) -> str:
    """Return the program and its subcommand, without the directory, variables and options.

    The first step that is no ``cd`` counts, since what follows is mostly a filter.
    """
    return next(_programs(command), readable(command[:40]))


def _programs(command: str) -> Iterator[str]:
    """Yield the programs of a command's steps, and those that their output is piped to."""
    for part in _SEPARATOR.split(command[:MAX_COMMAND_CHARS]):
        words = [word for word in part.split() if not word.startswith("-") and "=" not in word]
        if words and _PROGRAM.fullmatch(words[0]) and words[0] not in {"cd", "export", "set", "source"}:
            yield readable(" ".join(words[: 3 if words[1:2] in (["run"], ["exec"]) else 2]))
