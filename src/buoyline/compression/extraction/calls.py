"""What a tool call does, told from its name and the keys of its arguments; no tool is known by itself."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

from buoyline.messages import ToolCall, is_object

Deed: TypeAlias = Literal["change", "run", "plan", "look", "act"]


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
_LOOKING = _words(
    "read view get list ls search find grep glob open fetch crawl cat show query browse look lookup think "
    "describe inspect retrieve load check ask tree stat"
)
_CHANGING = _words("write edit create patch replace insert delete remove move rename append modify apply")
_PATCHED = re.compile(r"^(?:\*\*\* (?:Update|Add|Delete) File: |\+\+\+ b/)(\S[^\n]{0,500})$", re.MULTILINE)

_READING_COMMAND = re.compile(
    r"(?:cd|ls|cat|grep|rg|find|head|tail|wc|pwd|which|tree|file|stat|du|df|echo|env|printenv|type|ps|jq|awk|less"
    r"|sed\s+-n|git\s+(?:-\S+\s+\S+\s+)?(?:status|log|diff|show|branch|blame|ls-files|rev-parse|remote|grep|config)"
    r"|gh\s+\w+\s+(?:view|list|diff|status|checks)|gh\s+api\s+[^-\s]\S*\s*(?:--(?:jq|paginate)|$))(?=\s|$)"
)
_WRITES = re.compile(r"(?<![0-9&=-])>(?!&)")
_STEP = re.compile(r"&&|\|\||;|\n")


@dataclass(frozen=True, slots=True)
class Action:
    """A tool call, understood as far as its form allows.

    Attributes:
        deed: ``"change"`` files, ``"run"`` a command, ``"plan"`` (a list of tasks with a status), ``"look"`` at
            something without changing it, or ``"act"`` in any other way.
        name: The tool's name.
        paths: Files and directories that the arguments name, in order.
        command: The command of a ``"run"``; empty otherwise.
        arguments: All arguments; empty where they are no JSON object.
    """

    deed: Deed
    name: str
    paths: tuple[str, ...]
    command: str
    arguments: Mapping[str, Any]

    @property
    def is_harmless(self) -> bool:
        """Whether it only looked at something, as far as can be told."""
        return self.deed == "look" or (self.deed == "run" and _only_reads(self.command))

    def spoken(self) -> str:
        """Say in one text what was called: the command itself, else the name with its arguments."""
        if self.command:
            return self.command
        shown = (f"{key}={_shown(value)}" for key, value in self.arguments.items())
        return f"{self.name}({', '.join(shown)})"


@dataclass(frozen=True, slots=True)
class Task:
    """An entry of a plan."""

    text: str
    status: str
    is_done: bool


def action_of(call: ToolCall) -> Action:
    """Tell what *call* does. Never raises: a call that cannot be read is an ``"act"`` without arguments."""
    arguments = arguments_of(call)
    paths = tuple(dict.fromkeys(_paths(arguments)))
    command = _command(arguments)
    words = {word.lower() for word in _WORD.findall(call.name)}
    return Action(_deed(arguments, paths, command, words), call.name, paths, command, arguments)


def arguments_of(call: ToolCall) -> Mapping[str, Any]:
    """Return the arguments of *call*; empty where they are not a JSON object, which models do write."""
    try:
        found: object = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return {}
    return found if is_object(found) else {}


def tasks_of(arguments: Mapping[str, Any]) -> tuple[Task, ...]:
    """Return the entries of a plan: of the first list whose objects have a status; empty if there is none."""
    for value in arguments.values():
        if tasks := tuple(_tasks(_entries(value))):
            return tasks
    return ()


def leaves(value: object) -> Iterator[str]:
    """Yield the texts and numbers in a JSON value, in order, without keys."""
    waiting = [value]
    while waiting:
        inner = waiting.pop()
        if is_object(inner):
            waiting.extend(reversed(list(inner.values())))
        elif entries := _entries(inner):
            waiting.extend(reversed(entries))
        elif isinstance(inner, str | int | float) and not isinstance(inner, bool):
            yield str(inner)


def _deed(arguments: Mapping[str, Any], paths: Sequence[str], command: str, words: set[str]) -> Deed:
    has_content = any(_key(key) in _CONTENT_KEYS for key in arguments)
    if tasks_of(arguments):
        return "plan"
    if paths and (has_content or (words & _CHANGING and not words & _LOOKING)):
        return "change"
    if command:
        return "run"
    return "look" if words & _LOOKING or paths else "act"


def _key(key: str) -> str:
    return re.sub(r"[^a-z]", "", key.lower())


def _paths(arguments: Mapping[str, Any]) -> Iterator[str]:
    for key, value in arguments.items():
        name = _key(key)
        if name in _PATH_KEYS or name.endswith(("path", "filename", "filepath")):
            yield from (path for path in _texts_under(value) if _may_be_path(path))
        elif name in {"patch", "diff", "input"} and isinstance(value, str):
            yield from _PATCHED.findall(value)


def _texts_under(value: object) -> Iterator[str]:
    """Yield a path, each path of a list, or the paths of a list of objects that have one."""
    for inner in _entries(value) or [value]:
        if isinstance(inner, str):
            yield inner
        elif is_object(inner):
            yield from (text for key, text in inner.items() if _key(key) in _PATH_KEYS and isinstance(text, str))


def _may_be_path(text: str) -> bool:
    return 0 < len(text) <= 1_000 and text.isprintable() and text.strip("./~") != ""  # noqa: PLR2004 - PATH_MAX


def _command(arguments: Mapping[str, Any]) -> str:
    for key, value in arguments.items():
        if _key(key) in _COMMAND_KEYS:
            return " ".join(part for part in _entries(value) or [value] if isinstance(part, str)).strip()
    return ""


def _entries(value: object) -> list[object]:
    """Return *value* if it is a list, else no entries."""
    return cast("list[object]", value) if isinstance(value, list) else []


def _tasks(entries: Sequence[object]) -> Iterator[Task]:
    for entry in entries:
        if not is_object(entry):
            return
        status: object = next((entry[key] for key in entry if _key(key) in _STATUS_KEYS), None)
        texts = [text for text in entry.values() if isinstance(text, str) and text is not status]
        if status is None or not texts:
            return
        is_done = status is True or str(status).lower() in {"completed", "complete", "done", "closed", "cancelled"}
        yield Task(max(texts, key=len), str(status), is_done)


def _only_reads(command: str) -> bool:
    steps = [step.strip() for step in _STEP.split(command) if step.strip()]
    return all(_READING_COMMAND.match(step) and not _WRITES.search(step) for step in steps)


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
