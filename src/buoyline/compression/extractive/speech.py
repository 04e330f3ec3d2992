"""Tool calls and messages, recognized by their form: what a call does, what it writes, how a message ends."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, cast

from buoyline.compression.citations import CUT
from buoyline.compression.extractive.phrases import asks, chars_of, forbids, is_logged, leads_in
from buoyline.compression.identifiers import FENCES, LIST_MARK, readable, sentences
from buoyline.messages import ToolCall
from buoyline.messages.jsonl import is_object

# The operation of a tool call follows from its name and the keys of its arguments; no tool is known by itself.


Operation: TypeAlias = Literal["change", "run", "plan", "look", "act"]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_PATH_KEYS = _words("path file filename filepath paths files filepaths notebookpath targetfile dir")
_CONTENT_KEYS = _words(
    "content contents oldstring newstring oldstr newstr oldtext newtext filetext patch diff newcontent "
    "edits replace inserttext newsource codeedit"
)
_COMMAND_KEYS = _words("command commands cmd code script shell")
_ORDER_KEYS = _words("prompt instructions instruction description task query question goal")
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

_READING_COMMAND = re.compile(
    r"(?:cd|ls|cat|grep|rg|find|head|tail|wc|pwd|which|tree|file|stat|du|df|echo|env|printenv|type|ps|jq|awk|less"
    r"|sed\s+-n|git\s+(?:-\S+\s+\S+\s+)?(?:status|log|diff|show|branch|blame|ls-files|rev-parse|remote|grep|config)"
    r"|gh\s+\w+\s+(?:view|list|diff|status|checks)|gh\s+api\s+[^-\s]\S*\s*(?:--(?:jq|paginate)|$))(?=\s|$)"
)
_WRITES = re.compile(r"(?<![0-9&=-])>(?!&)")
_STEP = re.compile(r"&&|\|\||;|\n")


@dataclass(frozen=True, slots=True)
class ParsedCall:
    """A tool call, understood as far as its form allows.

    Attributes:
        operation: ``"change"`` files, ``"run"`` a command, ``"plan"`` (a list of tasks with a status), ``"look"`` at
            something without changing it, or any other ``"act"``.
        words: Of the tool's name, in lower case. If an argument says which of the tool's operations is meant, such as
            ``command="view"`` of an editor, that word alone.
        name: The tool's name.
        paths: Files and directories in the arguments, in order.
        command: The command of a ``"run"``; else empty.
        arguments: All arguments; empty if they are no JSON object.
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
        return self.operation == "look" or (self.operation == "run" and _only_reads(self.command))

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
    paths = tuple(dict.fromkeys(_paths(arguments)))
    words, command = words_of(call.name), _command(arguments)
    if paths and (mode := _mode_in(arguments)):
        words, command = mode, ""
    operation = _operation(call.name, arguments, paths, command, words)
    return ParsedCall(operation, call.name, words, paths, command, arguments)


def words_of(name: str) -> frozenset[str]:
    """Return the words of a name in lower case: ``create_file`` and ``createFile`` have the same."""
    return frozenset(word.lower() for word in _WORD.findall(name))


def _mode_in(arguments: Mapping[str, Any]) -> frozenset[str]:
    """Return the words of the argument that names one of a tool's operations; empty if none does."""
    modes = (value for key, value in arguments.items() if letters_of(key) in _MODE_KEYS and isinstance(value, str))
    found = (words_of(mode) for mode in modes if mode.replace("_", "").isalpha())
    return next((words for words in found if words & (_LOOKING | _CHANGING)), frozenset[str]())


def changes_something(action: ParsedCall) -> bool:
    """Return whether the name of a tool says that it changes what is open."""
    return bool(action.words & _CHANGING) and not action.words & _LOOKING


def patched_files(arguments: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the files that a patch among *arguments* names, with what it does: "Update", "Add" or "Delete"."""
    patches = (value for key, value in arguments.items() if letters_of(key) in _PATCH_KEYS and isinstance(value, str))
    return {path: verb or "Update" for patch in patches for verb, path in _PATCHED.findall(patch)}


def arguments_of(call: ToolCall) -> Mapping[str, Any]:
    """Return the arguments of *call*; empty if a model wrote something else than a JSON object."""
    found = json_in(call.arguments)
    return found if is_object(found) else {}


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


def json_in(text: str) -> object:
    """Return the value of a JSON text; None if it is no JSON."""
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found


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


def _operation(
    name: str, arguments: Mapping[str, Any], paths: Sequence[str], command: str, words: frozenset[str]
) -> Operation:
    has_content = any(letters_of(key) in _CONTENT_KEYS for key in arguments)
    if tasks_of(name, arguments):
        return "plan"
    if paths and (has_content or (words & _CHANGING and not words & _LOOKING)):
        return "change"
    if command:
        return "run"
    return "look" if words & _LOOKING or paths else "act"


def letters_of(key: str) -> str:
    """Return the letters of an argument's name in lower case: ``old_string`` and ``oldString`` are one."""
    return re.sub(r"[^a-z]", "", key.lower())


def _paths(arguments: Mapping[str, Any]) -> Iterator[str]:
    for key, value in arguments.items():
        name = letters_of(key)
        if name in _PATH_KEYS or name.endswith(("path", "filename", "filepath")):
            yield from (path for path in _texts_under(value) if _may_be_path(path))
    yield from patched_files(arguments)


def _texts_under(value: object) -> Iterator[str]:
    """Yield a path, the paths of a list, or the paths in a list of objects."""
    for inner in list_in(value) or [value]:
        if isinstance(inner, str):
            yield inner
        elif is_object(inner):
            yield from (text for key, text in inner.items() if letters_of(key) in _PATH_KEYS and isinstance(text, str))


def _may_be_path(text: str) -> bool:
    return 0 < len(text) <= 1_000 and text.isprintable() and text.strip("./~ ") != ""  # noqa: PLR2004 - PATH_MAX


def _command(arguments: Mapping[str, Any]) -> str:
    for key, value in arguments.items():
        if letters_of(key) in _COMMAND_KEYS:
            return " ".join(part for part in list_in(value) or [value] if isinstance(part, str)).strip()
    return ""


def list_in(value: object) -> list[object]:
    """Return *value* if it is a list, else an empty list."""
    return cast("list[object]", value) if isinstance(value, list) else []


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


def _only_reads(command: str) -> bool:
    steps = [step.strip() for step in _STEP.split(command) if step.strip()]
    return all(_READING_COMMAND.match(step) and not _WRITES.search(step) for step in steps)


MAX_QUOTED_CHARS: Final = 20_000
"""Of a command that is searched for quoted texts."""

MIN_SENTENCE_CHARS: Final = 25
"""A shorter sentence of an agent means nothing alone."""

CLOSING_SENTENCES: Final = 3
"""At the end of a message: they say what comes next."""

CLOSING_LINES: Final = 6
"""A longer list at the end of a message is content and not a question."""

LAST_SENTENCES: Final = 3
"""Of a message before its calls: they say what the calls are for."""

_QUOTED_TEXT = re.compile(
    r"<<-?[ \t]{0,4}['\"]?(\w{1,40})['\"]?[^\n]{0,200}\n(.{40,8000}?)\n[ \t]{0,40}\1\b"
    r"|(?<=[\s=])\"((?:[^\"\\]|\\.){40,4000})\"|(?<=[\s=])'([^']{40,4000})'",
    re.DOTALL,
)
_WORDS = re.compile(r"\w \w+ \w|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{4}")
_SENTENCE_ENDS = re.compile(r"[.!?:](?:\s|$)|\n|[\u3002\uff01\uff1f\uff0c]")
_WRAPPED = re.compile(r"(?<=[\w,;])\n[ \t]{0,8}(?=[a-z(])")
_TRAILER = re.compile(r"^[A-Z]\w+(?:-\w+)+: [^\n]*$", re.MULTILINE)
"""Of the message of a commit: who signed it."""

_CODE_MARK = re.compile(r"[{};=<>|$\\_/]")
MIN_WRITTEN_CHARS: Final = 40
MAX_CODE_MARKS: Final = 0.03
"""Of the characters of a text that is prose."""

_DOCUMENT = re.compile(
    r"[ \t]*<(documents?|doc|file|e-?mail|mail|message|quote|blockquote|article|attachment|transcript|log)\b"
    r"[^<>\n]{0,200}>",
    re.IGNORECASE,
)
_FORWARDED = re.compile(
    r"^[ \t]*-{2,}[ \t]?(?:original|forwarded|urspr\u00fcngliche|weitergeleitete|\u539f\u59cb|\u8f6c\u53d1)"
    r"[^\n]{0,60}-{2,}[ \t]*$"
    r"|^[ \t]*(?:from|von|de|\u53d1\u4ef6\u4eba|\u5dee\u51fa\u4eba) ?[:\uff1a] [^\n]{1,200}\n[ \t]*(?:sent|date|to"
    r"|cc|subject|gesendet|datum|an|betreff|envoy\u00e9|objet|fecha|asunto|\u65e5\u671f|\u6536\u4ef6\u4eba|\u4e3b\u9898"
    r"|\u5b9b\u5148|\u4ef6\u540d) ?[:\uff1a]",
    re.IGNORECASE | re.MULTILINE,
)
"""The line over a mail that was forwarded, or the header of one."""

_TAG = re.compile(r"</?[A-Za-z][^<>]{0,200}>")
MIN_TASK_WORDS: Final = 3
_LINE_TAG = re.compile(r"\s*</?[A-Za-z][^<>]{0,200}>\s*")
_LINK = re.compile(r"\W{0,4}!?\[[^\[\]]{0,300}\]\([^()\s]{1,2000}\)\W{0,4}")
_MADE_BY_MACHINE = re.compile(
    r"\s*(?:(?:<[^<>]{1,60}>.*>|\[[^\[\]]{1,100}\]|/[\w:-]{1,60})\s*"
    r"|(?:Base directory for this skill: |This session is being continued from a previous conversation).*)",
    re.DOTALL,
)


_QUOTED = re.compile(
    r'"[^"\n]{1,500}"|`[^`\n]{1,500}`|(?<!\w)\'[^\'\n]{1,500}\'(?!\w)|[\u201c\u201e][^\u201c\u201d\n]{1,500}[\u201c\u201d]'
    r"|\u00ab[^\u00bb\n]{1,500}\u00bb|[\u300c\u300e][^\u300d\u300f\n]{1,500}[\u300d\u300f]"
)
_ENTRY = re.compile(r"(\s{0,40})(?:(?:[-*+\u2022]|\(?(?:\d{1,3}|[a-z])[.)])\s|\d{1,3}[\u3001\uff0e]|[\u2460-\u2473])")
_ENDED = re.compile(r"[.!?;,\u3002\uff01\uff1f\uff1b\uff0c]\W{0,4}$")

MAX_LED_LINES: Final = 40
"""Of a list that belongs to a ban."""


def written_texts(action: ParsedCall) -> Iterator[str]:
    """Yield the prose in the arguments of a call: the message of a commit, a reply, a thought; no contents of files."""
    if action.operation in {"change", "plan"}:
        return
    if action.command:
        for quoted in _QUOTED_TEXT.finditer(action.command[:MAX_QUOTED_CHARS]):
            text = quoted[2] or quoted[3] or quoted[4]
            if _is_written(text):
                yield _TRAILER.sub("", _WRAPPED.sub(" ", text))
        return
    for key, value in action.arguments.items():
        if isinstance(value, str) and letters_of(key) not in _ORDER_KEYS and _is_written(value):
            yield value


def _is_written(text: str) -> bool:
    """Return whether a text consists of words rather than of code."""
    if chars_of(text) < MIN_WRITTEN_CHARS or not (_WORDS.search(text) and _SENTENCE_ENDS.search(text)):
        return False
    return len(_CODE_MARK.findall(text)) <= MAX_CODE_MARKS * len(text)


def says_task(text: str) -> bool:
    """Return whether a first message in tags or brackets says what to do, and is no bare command of the program."""
    return len(_TAG.sub(" ", text).split()) >= MIN_TASK_WORDS


def is_made_by_machine(text: str) -> bool:
    """Return whether a message is in a tag or in brackets, a bare command of the program, or the text of a skill."""
    return _MADE_BY_MACHINE.fullmatch(text) is not None


def own_words(text: str) -> str:
    """Return a message of the user without the words of others that it quotes.

    These are lines that begin with ``>``, elements such as ``<document>``, and a forwarded mail, which is the end.
    """
    forwarded = _FORWARDED.search(text)
    text = text if forwarded is None else text[: forwarded.start()]
    kept, unclosed = list[str](), set[str]()
    at = end = 0
    for line in text.splitlines(keepends=True):
        opened = _DOCUMENT.match(line) if at >= end else None
        if opened is not None and (closing := f"</{opened[1]}>") not in unclosed:
            end = text.find(closing, at)
            if end < 0:
                unclosed.add(closing)
        if at >= end and not line.lstrip().startswith(">"):
            kept.append(line)
        at += len(line)
    return "".join(kept)


def remarks(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the sentences of a message of the user, each with whether it forbids something.

    A ban that leads into a list holds the list. Lines of a log and words in quotation marks forbid nothing, unless the
    whole message is in quotation marks.
    """
    lines = own_words(text).splitlines()
    is_quoted = _QUOTED.fullmatch(text.strip()) is not None
    is_code, end = False, 0
    for at, line in enumerate(lines):
        is_fence = line.lstrip().startswith(FENCES)
        is_code ^= is_fence
        if is_fence or is_code or at < end:
            continue
        said = list(sentences(line))
        unquoted = line if is_quoted else _QUOTED.sub(_without_words, line)
        bare = said if unquoted == line else sentences(unquoted)
        bans = [not is_logged(line) and forbids(sentence) for sentence in bare]
        if bans and bans[-1] and (led := _led_lines(lines, at)):
            end = at + 1 + len(led)
            said[-1] = readable(" ".join([said[-1], *(one for one in led if not one.lstrip().startswith(FENCES))]))
        yield from zip(said, bans, strict=True)


def _without_words(quotation: re.Match[str]) -> str:
    """Return a quotation with other letters, so that it consists of as many sentences and says nothing."""
    return "".join(("x" if "a" <= char <= "z" else "X") if char.isalpha() else char for char in quotation[0])


def _led_lines(lines: Sequence[str], at: int) -> list[str]:
    """Return the lines of the list or of the code that the line *at* leads into, at most `MAX_LED_LINES`.

    A colon leads into plain lines as well; without one, only a list follows. A list in an entry of another is deeper.
    """
    outer = _ENTRY.match(lines[at])
    is_list = not leads_in(lines[at].rstrip())
    is_code = False
    found = list[str]()
    if is_list and (outer or _ENDED.search(lines[at].rstrip())):
        return found
    for line in lines[at + 1 : at + 1 + MAX_LED_LINES]:
        entry = _ENTRY.match(line)
        is_next = bool(line.strip()) and bool(found[-1].strip() if found else True)
        if line.lstrip().startswith(FENCES) and (is_code or not (is_list or any(map(str.strip, found)))):
            is_code, is_list = not is_code, True
        elif entry is not None and (outer is None or len(entry[1]) > len(outer[1])):
            is_list = True
        elif line.strip() and not is_code and (entry or not is_next or (is_list and not line[0].isspace())):
            break
        found.append(line)
    while found and not found[-1].strip():
        found.pop()
    return found


def plain_text(text: str) -> str:
    """Return a text; of a JSON object or list, as some agents answer, the texts in it, a line each.

    A mark of omission separates them, since the message has other characters between them.
    """
    stripped = text.strip()
    if not (stripped.startswith(("{", "[")) and stripped.endswith(("}", "]"))):
        return text
    leaves = (leaf for leaf in json_texts(json_in(stripped)) if any(char.isalpha() for char in leaf))
    return f"{CUT}\n".join(leaves) or text


def without_blocks(text: str) -> str:
    """Return a message with marks of omission for its tables and code, which nobody can read on one line."""
    kept: list[str] = []
    is_code = False
    for line in text.splitlines():
        is_fence = line.lstrip().startswith(FENCES)
        if is_fence or is_code or line.lstrip().startswith("|"):
            kept += [] if kept[-1:] == [CUT] else [CUT]
        elif line.strip():
            kept.append(line)
        is_code ^= is_fence
    shown = "\n".join(kept)
    return shown if any(char.isalnum() for char in shown) else text


def split_closing(text: str) -> tuple[str, list[str]]:
    """Part the end of a message, a question or the next step, from the text before it.

    The end consists of the sentences of the last line, or of a short list that asks, with the line that introduces it.
    Other lists, links, code and tags are content and ask for nothing.

    Returns:
        The text before, and the sentences at the end. If there is no such end, or it is no question and too little text
        precedes it, all of the text and an empty list.
    """
    lines = text.rstrip().split("\n")
    start = len(lines) - 1
    while start > 0 and (not lines[start].strip() or LIST_MARK.match(lines[start])):
        start -= 1
    is_list = LIST_MARK.match(lines[-1]) is not None
    is_led = asks(lines[start].rstrip()) or (leads_in(lines[start].rstrip()) and asks(lines[-1]))
    if _is_contents(lines[-1]) or (is_list and not (is_led and len(lines) - start <= 2 + CLOSING_LINES)):
        return text, []
    closing = list(sentences("\n".join(lines[start:] if is_list else lines[-1:])))
    body = "\n".join(lines[:start] if is_list else lines[:-1])
    if not is_list:
        kept = closing[-CLOSING_SENTENCES:] if body.strip() else closing[-1:]
        if len(kept) < len(closing):
            at = text.rfind(kept[0])
            body = text[:at] if at >= 0 else body
        closing = kept
    if chars_of(body.strip()) < MIN_SENTENCE_CHARS and not any(map(asks, closing)):
        return text, []
    return body, closing


def last_words(text: str) -> str:
    """Return the last sentences of a message, those of its last lines that mean something."""
    kept = ""
    for line in reversed(without_blocks(text).rstrip().split("\n")):
        is_cut = line.strip() == CUT
        if _LINE_TAG.fullmatch(line) or not line.strip() or (is_cut and not kept):
            continue
        if is_cut or LIST_MARK.match(line):
            break
        said = list(sentences(line))[-LAST_SENTENCES:]
        at = line.rfind(said[0]) if said else -1
        if chars_of(kept) >= MIN_SENTENCE_CHARS:
            break
        kept = f"{line[max(at, 0) :]}\n{kept}".rstrip()
    return kept or text


def repeated_endings(texts: Sequence[str], *, at_least: int) -> frozenset[str]:
    """Return the last lines that so many texts of several lines share: no person ends so many messages alike."""
    seen = Counter(ending for text in texts if (ending := ending_of(text)))
    return frozenset(ending for ending, count in seen.items() if count >= at_least)


def ending_of(text: str) -> str:
    """Return the last line of a text of several lines; empty if it has one line."""
    body, _, last = text.rstrip().rpartition("\n")
    return last.strip() if body.strip() else ""


def _is_contents(line: str) -> bool:
    mark = LIST_MARK.match(line)
    shown = line[mark.end() :] if mark else line
    return bool(_LINE_TAG.fullmatch(shown) or _LINK.fullmatch(shown)) or shown.lstrip().startswith((*FENCES, "|"))
