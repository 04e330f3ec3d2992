"""Tool calls, recognized by their form, and joined with their results: the operation of each, and how it ended.

No tool is known by itself: an operation follows from the tool's name and from the keys of the arguments.
"""

import json
import re
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Literal, TypeAlias, cast

from buoyline.compression.citations import CUT
from buoyline.compression.extractive.commands import only_reads, program_of, programs_in
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
from buoyline.compression.identifiers import error_lines, exit_status, last_line, readable, says_error
from buoyline.compression.pointers import Pointer
from buoyline.compression.summary import SourceMessage
from buoyline.messages import ToolCall
from buoyline.messages.jsonl import is_object

Operation: TypeAlias = Literal["change", "run", "plan", "look", "act"]
"""Change files, run a command, set a list of tasks with a status, look without changing anything, or any other."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_PATH_KEYS = _words("path file filename filepath paths files filepaths notebookpath targetfile dir")
_CONTENT_KEYS = _words(
    "content contents oldstring newstring oldstr newstr oldtext newtext filetext patch diff newcontent "
    "edits replace inserttext newsource codeedit"
)
_COMMAND_KEYS = _words("command commands cmd code script shell")
_STATUS_KEYS = _words("status state done completed checked")
_TASK_KEYS = _words("content subject title task step text")
TASK_ID_KEYS: Final = ("taskid", "id", "todoid", "itemid", "key")
_PLAN_NAMES = re.compile(r"tasks?|todos?|plan|steps?|checklist|milestones?|goals?", re.IGNORECASE)
"""In the name of a plan's tool, or of its argument: other lists of records also have a status."""

_DIRECTORY_KEYS = _words("cwd workdir workingdir workingdirectory")
_LOOKING = _words(
    "read view get list ls search find grep glob open fetch crawl cat show query browse look lookup think "
    "describe inspect retrieve load check ask tree stat"
)
_CHANGING = _words("write edit create patch replace insert delete remove move rename append modify apply")
_MODE_KEYS = _words("command action operation mode")
_PATCHED = re.compile(r"^(?:\*\*\* (Update|Add|Delete) File: |\+\+\+ b/)(\S[^\n]{0,500})$", re.MULTILINE)
_PATCH_KEYS = _words("patch diff input")
MAX_PATH_CHARS: Final = 1_000


@dataclass(frozen=True, slots=True)
class ParsedCall:
    """A tool call, understood as far as its form allows.

    Attributes:
        words: Of the tool's name, in lower case. If an argument says which of the tool's operations is meant, such as
            ``command="view"`` of an editor, that word alone.
        paths: Files and directories in the arguments, in order.
        command: Of a ``"run"``; else empty.
        arguments: Empty if they are no JSON object.
    """

    operation: Operation
    name: str
    words: frozenset[str]
    paths: tuple[str, ...]
    command: str
    arguments: Mapping[str, Any]

    @property
    def is_harmless(self) -> bool:
        """Whether it only looked at something, as far as its form tells."""
        return self.operation == "look" or (self.operation == "run" and only_reads(self.command))

    @property
    def directory(self) -> str:
        """The directory in which an argument says that a command runs; empty if none does."""
        found = (value for key, value in self.arguments.items() if letters_of(key) in _DIRECTORY_KEYS)
        return next((value for value in found if isinstance(value, str)), "")

    def spoken(self) -> str:
        """Return the call as a text: the command, else the name with its arguments."""
        if self.command:
            return self.command
        arguments = [
            f"{key}={value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
            for key, value in self.arguments.items()
        ]
        return f"{self.name}({', '.join(arguments)})"


@dataclass(frozen=True, slots=True)
class Task:
    """An entry of a plan; its key is the id that the call gives it, or empty."""

    text: str
    status: str
    is_done: bool
    key: str


def action_of(call: ToolCall) -> ParsedCall:
    """Parse *call*. It never raises: a call that cannot be read is an ``"act"`` without arguments."""
    arguments = arguments_of(call)
    named = [(letters_of(key), value) for key, value in arguments.items()]
    paths = tuple(dict.fromkeys(_paths(arguments)))
    given = next((value for name, value in named if name in _COMMAND_KEYS), "")
    command = " ".join(part for part in list_in(given) or [given] if isinstance(part, str)).strip()
    words = words_of(call.name)
    if paths:  # an argument may name one of the tool's operations
        modes = (value for name, value in named if name in _MODE_KEYS and isinstance(value, str))
        found = (words_of(mode) for mode in modes if mode.replace("_", "").isalpha())
        if mode := next((some for some in found if some & (_LOOKING | _CHANGING)), None):
            words, command = mode, ""
    operation: Operation
    if tasks_of(call.name, arguments):
        operation = "plan"
    elif paths and (is_change(words) or any(name in _CONTENT_KEYS for name, _ in named)):
        operation = "change"
    elif command:
        operation = "run"
    else:
        operation = "look" if words & _LOOKING or paths else "act"
    return ParsedCall(operation, call.name, words, paths, command, arguments)


def _paths(arguments: Mapping[str, Any]) -> Iterator[str]:
    """Yield the paths in *arguments*: each is a text, in a list of texts, in a list of objects, or named by a patch."""
    for key, value in arguments.items():
        name = letters_of(key)
        if name in _PATH_KEYS or name.endswith(("path", "filename", "filepath")):
            for inner in list_in(value) or [value]:
                texts = [inner]
                if is_object(inner):
                    texts = [text for key, text in inner.items() if letters_of(key) in _PATH_KEYS]
                for text in texts:
                    if isinstance(text, str) and len(text) <= MAX_PATH_CHARS:
                        yield from [text] if text.isprintable() and text.strip("./~ ") else []
    yield from patched_files(arguments)


def words_of(name: str) -> frozenset[str]:
    """Return the words of a name in lower case: ``create_file`` and ``createFile`` have the same."""
    return frozenset(word.lower() for word in _WORD.findall(name))


def letters_of(key: str) -> str:
    """Return the letters of an argument's name in lower case: ``old_string`` and ``oldString`` are one."""
    return re.sub(r"[^a-z]", "", key.lower())


def is_change(words: frozenset[str]) -> bool:
    """Return whether the words of a tool's name say that it changes something."""
    return bool(words & _CHANGING) and not words & _LOOKING


def patched_files(arguments: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the files that a patch among *arguments* names, with what it does: "Update", "Add" or "Delete"."""
    patches = (value for key, value in arguments.items() if letters_of(key) in _PATCH_KEYS and isinstance(value, str))
    return {path: verb or "Update" for patch in patches for verb, path in _PATCHED.findall(patch)}


def tasks_of(name: str, arguments: Mapping[str, Any]) -> tuple[Task, ...]:
    """Return the tasks of a plan, that is, of the first list of objects with a status; empty without one.

    The name of the tool or of the argument has to speak of a plan.
    """
    for key, value in arguments.items():
        if not (_PLAN_NAMES.search(name) or _PLAN_NAMES.search(key)):
            continue
        entries = (
            list_in(json_in(value)) if isinstance(value, str) and value.lstrip().startswith("[") else list_in(value)
        )
        if tasks := tuple(_tasks(entries)):
            return tasks
    return ()


def _tasks(entries: Sequence[object]) -> Iterator[Task]:
    for entry in entries:
        if not is_object(entry):
            return
        status: object = next((entry[key] for key in entry if letters_of(key) in _STATUS_KEYS), None)
        texts = [text for text in entry.values() if isinstance(text, str) and text is not status]
        if status is None or not texts:
            return
        is_done = status is True or str(status).lower() in {"completed", "complete", "done", "closed", "cancelled"}
        named = (entry[key] for key in entry if letters_of(key) in _TASK_KEYS)
        title = next((text for text in named if isinstance(text, str) and text.strip()), max(texts, key=len))
        key = next((str(entry[key]) for key in entry if letters_of(key) in TASK_ID_KEYS), "")
        yield Task(title, str(status), is_done, key)


def arguments_of(call: ToolCall) -> Mapping[str, Any]:
    """Return the arguments of *call*; empty if a model wrote something else than a JSON object."""
    found = json_in(call.arguments)
    return found if is_object(found) else {}


def json_in(text: str) -> object:
    """Return the value of a JSON text; None if it is no JSON."""
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found


def list_in(value: object) -> list[object]:
    """Return *value* if it is a list, else an empty list."""
    return cast("list[object]", value) if isinstance(value, list) else []


def json_texts(value: object) -> Iterator[str]:
    """Yield the texts and numbers in a JSON value, in order, without keys."""
    waiting = [value]
    while waiting:
        inner = waiting.pop()
        if is_object(inner):
            waiting.extend(reversed(list(inner.values())))
        elif entries := list_in(inner):
            waiting.extend(reversed(entries))
        elif isinstance(inner, str | int | float) and not isinstance(inner, bool):
            yield str(inner)


# Calls joined with their results.


MAX_ERRORS: Final = 3
"""Of one result, the first ones: they are the cause more often than the last."""

MAX_VALUE_CHARS: Final = 60
"""A longer argument is a text and not a name."""

_SHORT_CHARS: Final = 400
"""A result at most this long that begins like an error is one, whatever the tool."""

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


@dataclass(frozen=True, slots=True)
class Step:
    """A call and its result.

    Attributes:
        answer: The message with the result; None, as *reading* is, if there is none yet.
        errors: Lines of the result that read like errors, at most `MAX_ERRORS`; empty for a success. A line without
            words stands for a failure that shows nothing.
        has_failed: By the mark of the result, its exit status or its words.
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
        return program_of(self.action.command) if self.action.command else self.action.name

    @property
    def tried(self) -> frozenset[str]:
        """All subjects of the call: every changed file, every program of a command."""
        if self.action.operation == "change":
            return frozenset(self.action.paths)
        return frozenset({self.subject, *programs_in(self.action.command)})

    def citations_for(self, said: str, passage: Passage, citations: LineFinder) -> tuple[Pointer, ...]:
        """Return the lines that hold *said* of the call, and those of *passage* of its result."""
        return merged_pointers((*citations.of(self.call, said), *passage.pointers))


def steps(sources: Sequence[SourceMessage], citations: LineFinder) -> list[Step]:
    """Join each call with its result, in the order of the calls.

    In recorded sessions ids repeat or are empty, so a result answers the oldest open call of its id; if none is open,
    it answers nothing.
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
    text, is_whole = reading.text, reading.excerpt is None
    first = _first_line(text)
    if is_refusal(text) and is_whole:
        yield first
    elif is_error or (action.operation == "run" and not action.is_harmless):
        # A line in the command is printed by it, as by ``grep x f || echo "Not found"``; a line of JSON is data.
        lines = dict.fromkeys(error_lines(text))
        yield from (line for line in lines if line not in action.command and not _DATA.match(line))
        if is_error and not lines:
            yield first
    elif action.operation == "change" and is_whole and (says_error(first) or _UNCHANGED.search(first)):
        yield first
        yield from (line for line in dict.fromkeys(error_lines(text[:1_000])) if line != first)
    elif action.operation != "look" and is_whole and _REFUSES.search(first):
        yield from (readable(line) for line in text[:1_000].splitlines() if says_error(line) or _REFUSES.search(line))
    elif action.operation != "run" and is_whole and len(text) <= _SHORT_CHARS and says_error(first):
        yield first


def _gist(reading: ResultText) -> str:
    """Return the first and the last line of a result; of a long or offloaded one the last, to cite one place.

    A piece of JSON, a bracket or a rule means nothing alone.
    """
    first, last = _first_line(reading.text), last_line(reading.text)
    said = [
        line
        for line in dict.fromkeys((first, last))
        if line and line[0] not in "[]{}\"'<|=" and ':"' not in line and '": ' not in line
    ]
    is_long = reading.excerpt is not None or reading.text.count("\n") > MAX_GAP_LINES
    return f" {CUT} ".join(said[-1:] if is_long else said)


def _first_line(text: str) -> str:
    return next((shown for line in text[:4_000].splitlines() if (shown := readable(line))), "")


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
    """Part calls into series of successful calls of one tool that differ in one argument, and the others, in order."""
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
