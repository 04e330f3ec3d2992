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
from buoyline.compression.extractive.phrases import is_refusal
from buoyline.compression.extractive.speech import ParsedCall, action_of
from buoyline.compression.identifiers import error_lines, exit_status, last_line, readable, says_error
from buoyline.compression.pointers import Pointer
from buoyline.compression.summary import SourceMessage

MAX_ERRORS: Final = 3
"""Of one result, the first ones: they are the cause more often than the last."""

MAX_VALUE_CHARS: Final = 60
"""A longer argument is a text and not a name."""

_SHORT_CHARS: Final = 400
_SUBJECT_CHARS = 40
"""A result at most this long that begins like an error is one, whatever the tool."""

MAX_COMMAND_CHARS: Final = 4_000
"""The rest is a script or a piped text."""

_DATA = re.compile(r'\s{0,9}(?:\[\s{0,9})?\{\s{0,9}"(?!err|exception|fail|message|detail|code|status)', re.IGNORECASE)
"""A line of JSON that does not begin with an error quotes others."""

_REFUSES = re.compile(
    r"\b(?:introduced|contains?|caused|invalid)\b[^.]{0,40}\berrors?\b|\bnot (?:applied|allowed|permitted)\b"
)
"""A tool of the agent that did not do what was asked, and says so in a sentence."""

_UNCHANGED = re.compile(
    r"\bno (?:match(?:es)?|replacements?|occurrences?)\b|\bno changes? (?:to|was|were|made)\b"
    r"|\bnot (?:been )?(?:found|read|changed|unique)\b|\bdid not (?:match|appear|change)\b"
    r"|\bnothing (?:was )?(?:to change|changed)\b|\bdry run\b"
    r"|\b(?:multiple|[2-9]|\d\d+) (?:matches|occurrences)\b.*\b(?:unique|is false|replace_?all)\b",
    re.IGNORECASE,
)
"""A tool that changes files, and says that it changed none."""

_PROGRAM = re.compile(r"[\w./-]{1,200}")
_SEPARATOR = re.compile(r"&&|\|\||[;|\n]")


@dataclass(frozen=True, slots=True)
class Step:
    """A call and its result.

    Attributes:
        action: The parsed call.
        call: The message with the call.
        answer: The message with the result; None if there is none yet.
        errors: Lines of the result that read like errors, at most `MAX_ERRORS`; empty for a success. A line without
            words stands for a failure that shows nothing.
        has_failed: The result says so, by its mark, its exit status or its words.
        outcome: The most telling lines of the result; no words without a result.
    """

    action: ParsedCall
    call: SourceMessage
    answer: SourceMessage | None = None
    errors: tuple[Passage, ...] = ()
    has_failed: bool = False
    outcome: Passage = NO_WORDS
    reading: ResultText | None = None

    @property
    def subject(self) -> str:
        """What would be tried again: a changed file, the program of a command, a tool."""
        if self.action.operation == "change":
            return self.action.paths[0]
        return _program(self.action.command) if self.action.command else self.action.name

    @property
    def tried(self) -> frozenset[str]:
        """All subjects of the call: every changed file, every program of a command."""
        if self.action.operation == "change":
            return frozenset(self.action.paths)
        return frozenset({self.subject, *programs_in(self.action.command)})

    def citations_for(self, said: str, passage: Passage, citations: LineFinder) -> tuple[Pointer, ...]:
        """Return the lines that hold *said* of the call, and those of *passage* of its result."""
        return merged_pointers((*citations.of(self.call, said), *passage.pointers))


def subjects_of(subject: str) -> list[str]:
    """Return a subject, and its program alone: ``pytest`` also tries ``pytest tests/test_store.py``."""
    program, _, rest = subject.partition(" ")
    return [subject, program] if rest else [subject]


def varying_argument(made: Sequence[Step]) -> tuple[str, list[str]]:
    """Return the first argument in which calls of one tool differ, and its values; both empty if there is none."""
    for key in made[0].action.arguments:
        values = [step.action.arguments.get(key) for step in made]
        short = [readable(str(value)) for value in values if isinstance(value, str | int)]
        if len(set(short)) == len(made) and max(map(len, short)) <= MAX_VALUE_CHARS:
            return key, short
    return "", []


def grouped_calls(made: Iterable[Step]) -> tuple[list[list[Step]], list[Step]]:
    """Part calls into those that one line can report, since they differ in one argument, and the others.

    Returns:
        Series of successful calls of one tool, and the other calls, each in order.
    """
    by_name: defaultdict[str, list[Step]] = defaultdict(list)
    apart: list[Step] = []
    for step in made:
        is_one_of_many = step.action.operation in {"act", "look"} and step.answer is not None and not step.has_failed
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

    In recorded sessions ids repeat or are empty, so a result answers the oldest open call of its id; if none is open,
    it answers nothing.

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
        reading=reading,
    )


def _errors(action: ParsedCall, reading: ResultText, *, is_error: bool) -> Iterator[str]:
    """Yield the error lines of a result; a file that was only read may be full of words such as "failed"."""
    text = reading.text
    if is_refusal(text) and reading.excerpt is None:
        yield _first_line(text)
    elif is_error or (action.operation == "run" and not action.is_harmless):
        # A line in the command is printed by it, as by ``grep x f || echo "Not found"``; a line of JSON is data.
        lines = dict.fromkeys(error_lines(text))
        yield from (line for line in lines if line not in action.command and not _DATA.match(line))
        if is_error and not any(error_lines(text)):
            yield _first_line(text)
    elif action.operation == "change" and reading.excerpt is None and _says_unchanged(_first_line(text)):
        yield _first_line(text)
        lines = dict.fromkeys(error_lines(text[:1_000]))
        yield from (line for line in lines if line != _first_line(text))
    elif action.operation != "look" and reading.excerpt is None and _REFUSES.search(_first_line(text)):
        yield from (readable(line) for line in text[:1_000].splitlines() if says_error(line) or _REFUSES.search(line))
    elif (
        action.operation != "run"
        and reading.excerpt is None
        and len(text) <= _SHORT_CHARS
        and says_error(first := _first_line(text))
    ):
        yield first


def _says_unchanged(line: str) -> bool:
    """Return whether the first line of a result says that a file was not changed."""
    return says_error(line) or _UNCHANGED.search(line) is not None


def _gist(reading: ResultText) -> str:
    """Return the first and the last line of a result; of a long or offloaded one the last, to cite one place."""
    first, last = _first_line(reading.text), last_line(reading.text)
    if reading.excerpt is not None or reading.text.count("\n") > MAX_GAP_LINES:
        return next((line for line in (last, first) if _is_said(line)), "")
    kept = [line for line in dict.fromkeys((first, last)) if _is_said(line)]
    return f" {CUT} ".join(kept)


def _is_said(line: str) -> bool:
    """Return whether a line means something alone: it is no piece of JSON, bracket or rule."""
    return bool(line) and line[0] not in "[]{}\"'<|=" and ':"' not in line and '": ' not in line


def _first_line(text: str) -> str:
    return next((shown for line in text[:4_000].splitlines() if (shown := readable(line))), "")


def _program(command: str) -> str:
    """Return the program and its subcommand, without the directory, variables and options.

    The first step that is no ``cd`` counts, since later ones are mostly filters. Of a command without a program, the
    first words.
    """
    return next(programs_in(command), _first_words(readable(command[:MAX_COMMAND_CHARS])))


def _first_words(text: str) -> str:
    if len(text) <= _SUBJECT_CHARS:
        return text
    words = text[: _SUBJECT_CHARS + 1].rpartition(" ")[0]
    return words or f"{text[:_SUBJECT_CHARS]}{CUT}"


def programs_in(command: str) -> Iterator[str]:
    """Yield the programs of a command's steps, and those that their output is piped to."""
    for part in _SEPARATOR.split(command[:MAX_COMMAND_CHARS]):
        words = [word for word in part.split() if not word.startswith("-") and "=" not in word]
        if words and _PROGRAM.fullmatch(words[0]) and words[0] not in {"cd", "export", "set", "source"}:
            yield readable(" ".join(words[: 3 if words[1:2] in (["run"], ["exec"]) else 2]))
