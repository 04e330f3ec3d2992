"""Tool calls joined with their results: what was done, and how it ended."""

import re
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from buoyline.compression.claims import CUT
from buoyline.compression.extraction.calls import Action, action_of
from buoyline.compression.extraction.citing import Citations
from buoyline.compression.extraction.reading import MAX_GAP_LINES, NO_WORDS, Passage, Reading, readings, spanning
from buoyline.compression.signals import error_lines, exit_status, last_line, readable, says_error
from buoyline.compression.summary import Pointer, Source

MAX_ERRORS: Final = 3
"""Of one result; the first ones are the cause more often than the last."""

_SHORT_CHARS: Final = 400
"""A result this short that begins like an error is one, whatever the tool."""

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

    action: Action
    call: Source
    answer: Source | None = None
    errors: tuple[Passage, ...] = ()
    has_failed: bool = False
    outcome: Passage = NO_WORDS

    @property
    def subject(self) -> str:
        """What is tried again when this failed: a changed file, the program of a command, a tool."""
        if self.action.deed == "change":
            return self.action.paths[0]
        return _program(self.action.command) if self.action.command else self.action.name

    def backing(self, said: str, passage: Passage, citations: Citations) -> tuple[Pointer, ...]:
        """Return the lines that hold *said* of the call, and *passage* of its result if that has words."""
        return spanning((*citations.of(self.call, said), *passage.pointers))


def steps(sources: Sequence[Source], citations: Citations) -> list[Step]:
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
        for result, reading in zip(source.message.results, readings(source), strict=True):
            if open_calls := waiting[result.call_id]:
                position = open_calls.popleft()
                found[position] = _answered(found[position], reading, citations, is_error=result.is_error)
    return found


def _answered(step: Step, reading: Reading, citations: Citations, *, is_error: bool) -> Step:
    found = islice(_errors(step.action, reading, is_error=is_error), MAX_ERRORS)
    errors = tuple(reading.passage(line, citations) for line in found)
    status = exit_status(reading.text) if step.action.deed in {"run", "act"} else None
    has_failed = is_error or bool(status) or (status is None and bool(errors))
    return Step(
        action=step.action,
        call=step.call,
        answer=reading.source,
        errors=errors if has_failed else (),
        has_failed=has_failed,
        outcome=errors[0] if has_failed and errors else reading.passage(_gist(reading), citations),
    )


def _errors(action: Action, reading: Reading, *, is_error: bool) -> Iterator[str]:
    """Yield the error lines of a result; what was only read is full of words such as "failed" and no error."""
    text = reading.text
    if is_error or (action.deed == "run" and not action.is_harmless):
        # What stands in the command was printed by it: `grep key file || echo "Not found"`.
        yield from (line for line in dict.fromkeys(error_lines(text)) if line not in action.command)
        if is_error and not any(error_lines(text)):
            yield _first_line(text)
    elif (
        action.deed != "run"
        and reading.excerpt is None
        and len(text) <= _SHORT_CHARS
        and says_error(first := _first_line(text))
    ):
        yield first


def _gist(reading: Reading) -> str:
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
    for part in _SEPARATOR.split(command):
        words = [word for word in part.split() if not word.startswith("-") and "=" not in word]
        if words and _PROGRAM.fullmatch(words[0]) and words[0] not in {"cd", "export", "set", "source"}:
            return readable(" ".join(words[: 3 if words[1:2] in (["run"], ["exec"]) else 2]))
    return readable(command[:40])
