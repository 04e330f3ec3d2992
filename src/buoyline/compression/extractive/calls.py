"""What the agent did: each tool call with its result, and what it says of commands, files and errors."""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Final

from buoyline.compression.summary import ResultExcerpt, SourceMessage
from buoyline.compression.text import CUT, exit_status, readable
from buoyline.messages import ToolCall, ToolResult
from buoyline.messages.jsonl import is_array, is_object
from buoyline.previews import flagged_lines
from buoyline.previews.outlines import defined_names

_PATH = re.compile(r"(?:^|_)(?:path|file|filename|filepath)s?$|(?:Path|File)$")
_COMMANDS = ("command", "cmd", "commands", "script", "code")
_OLD = ("old_string", "old_str", "old_text", "oldText", "oldString", "search")
_NEW = ("new_string", "new_str", "new_text", "newText", "newString", "replace", "replacement")
_WHOLE = ("content", "contents", "file_text")
_CHANGES = frozenset({*_NEW, *_WHOLE, "patch", "diff", "edits"})

_READS = re.compile(
    r"\s*(?:cd|ls|cat|grep|rg|find|head|tail|wc|pwd|sed\s+-n|git\s+(?:status|log|diff|show|branch)|echo|which|mkdir"
    r"|sleep)\b"
)
_BREAK = re.compile(r"\"(?:[^\"\\]|\\[\s\S])*(?:\"|\Z)|'[^']*'|&&|\|\||[;\n|]|\d?>")
_WRITES = re.compile(r"(?:^|\s)>{1,2}\s*(?!/dev/)([\w./~@+-]{2,300})")
_REFUSED = re.compile(
    r"\b(?:user|human)\b[^.:\n]{0,40}\b(?:rejected|denied|refused|declined|doesn't want)", re.IGNORECASE
)
_SAID = re.compile(
    r"\b(?:user|human)\b[^.:\n]{0,40}\b(?:said|says|feedback|comment|reason)\b[^:\n]{0,40}:\s*(\S.{0,1500})",
    re.IGNORECASE | re.DOTALL,
)
PASSED: Final = re.compile(
    r"\b(?:[1-9]\d* pass(?:ed|ing)?|0 (?:issues|errors|failures|failed)|all (?:tests|checks) pass\w*|BUILD SUCCESS\w*"
    r"|PASS|OK|ok)\b"
)
"""What a check says if nothing is wrong."""
_FAILED: Final = re.compile(
    r"^\W*FAIL(?:ED)?\b|\b[1-9]\d* (?:failed|failing|failures?\b|errors? in \d)|\bFailures: [1-9]"
)
"""What a run of tests says at its end if something is."""

_JUDGED_CHARS: Final = 40_000
_REFUSAL_CHARS: Final = 120
_MOST_ARGUMENT_CHARS: Final = 80


class Step:
    """A tool call and, once it came, its result; *answer* is the message that holds the result."""

    def __init__(self, call: ToolCall, source: SourceMessage) -> None:
        """Read the arguments of *call*, which the message *source* makes."""
        self.call, self.source, self.answer = call, source, source
        self.result: ToolResult | None = None
        self.excerpt: ResultExcerpt | None = None
        try:
            found = json.loads(call.arguments)
        except (ValueError, RecursionError):
            found = None
        self.arguments: Mapping[str, object] = found if is_object(found) else {}
        command = next((self.arguments[name] for name in _COMMANDS if name in self.arguments), "")
        if is_array(command):
            command = " ".join(map(str, command))
        self.command = command if isinstance(command, str) else ""
        self.paths = list[str]()
        for name, value in self.arguments.items():
            if _PATH.search(name):
                self.paths += [path for path in (value if is_array(value) else [value]) if isinstance(path, str)]
        self.changes = bool(self.paths) and not _CHANGES.isdisjoint(self.arguments)
        if self.changes:
            self.command = ""
        written = _WRITES.findall(self.command.split("<<")[0])
        if written:
            self.paths, self.changes = written, True

    @property
    def text(self) -> str:
        """The text of the result; of an offloaded one the lines that its stub shows."""
        if self.excerpt is not None:
            return "\n".join(text for _, text in self.excerpt.lines)
        return "" if self.result is None else self.result.text

    @property
    def said(self) -> str:
        """The call in a few words: its command, or its name with its file or with short arguments."""
        if self.command or self.paths:
            return self.command or f"{self.call.name} {self.paths[0]}"
        given = (f"{name}={value}" for name, value in self.arguments.items() if isinstance(value, (str, int)))
        short = (one for one in given if len(one) < _MOST_ARGUMENT_CHARS)
        return f"{self.call.name}({', '.join(short)})"

    @property
    def file(self) -> str:
        """The name of its first file; empty if it has none."""
        return name_of(self.paths[0]) if self.paths else ""

    @property
    def only_reads(self) -> bool:
        """Whether its command changes nothing and checks nothing."""
        return ">" not in self.command and all(map(_READS.match, re.split(r"&&|\|\||;|\n", self.command.strip())))

    @cached_property
    def refused(self) -> bool:
        """Whether the user did not let the call run."""
        return self.result is not None and bool(_REFUSED.search(self.text[:_REFUSAL_CHARS]))

    @cached_property
    def failed(self) -> bool:
        """Whether the result says so: by its mark, its exit status, or its last lines."""
        if self.result is None:
            return False
        text = self.text
        if self.result.is_error or self.refused:
            return True
        if not self.command or self.only_reads:
            return text.lstrip()[:40].lower().startswith(("error", "<tool_use_error"))
        status = exit_status(text)
        if status is not None:
            return bool(status)
        if len(text) > _JUDGED_CHARS:
            return False
        # What a run says last counts: an error in between may be expected, or be repaired.
        lines = [line[:400] for line in text.splitlines()]
        passed = max((at for at, line in enumerate(lines, 1) if PASSED.search(line)), default=0)
        return any(map(_FAILED.search, lines[max(passed - 1, 0) :])) or any(
            number >= passed for number, _ in flagged_lines(text)
        )

    @cached_property
    def flagged(self) -> list[tuple[int, str]]:
        """The lines of the result that report errors, as previews judge them, with their numbers in its file."""
        rows = flagged_lines(self.text)
        if self.excerpt is not None:
            rows = [(self.excerpt.lines[number - 1][0], text) for number, text in rows]
        return [(number, shown) for number, text in rows if (shown := readable(text)) not in self.command]

    @property
    def feedback(self) -> str:
        """What the user said when refusing the call; may be empty."""
        found = _SAID.search(self.text)
        return found[1] if found else ""

    def commands(self) -> list[str]:
        """Return the single commands that do more than read, without what they pipe into or redirect to."""
        text, found, start, end = self.command.split("<<")[0], list[str](), 0, -1
        for match in [*_BREAK.finditer(text), None]:
            mark = match[0] if match else "\n"
            at = match.start() if match else len(text)
            if mark[0] in "\"'":
                continue
            if mark == "|" or ">" in mark:
                end = at if end < 0 else end
                continue
            found.append(readable(text[start : at if end < 0 else end]))
            start, end = (match.end() if match else at), -1
        quiet = "#" if self.failed else ("git ", "#")  # commits are told apart
        return [one for one in found if one and not _READS.match(one) and not one.startswith(quiet)]

    def edit(self) -> tuple[str, str]:
        """Return what a change did, the most telling line that went and that came, and words of it; may be empty."""
        given = self.arguments
        edits = given.get("edits")
        if is_array(edits) and edits and is_object(edits[0]):
            given = edits[0]
        new = _first(given, _NEW)
        if new is None:
            names = [*map(readable, defined_names(_first_text(given, _WHOLE).splitlines(), 8))]
            return (f"defines {', '.join(names)}", CUT.join(names)) if names else ("", "")
        before = [line.strip() for line in _first_text(given, _OLD).splitlines()]
        after = [line.strip() for line in new.splitlines()]
        gone, came = set(before) - set(after), set(after) - set(before)
        old, new = (_telling(line for line in lines if line in kept) for lines, kept in ((before, gone), (after, came)))
        if old and new:
            return f"`{old}` → `{new}`", f"{old}{CUT}{new}"
        return (f"added `{new}`", new) if new else (f"removed `{old}`", old) if old else ("", "")

    def beginning(self) -> list[str]:
        """Return the first telling lines of a file that the call wrote whole."""
        lines = map(readable, _first_text(self.arguments, _WHOLE)[:8_000].splitlines()[:40])
        return [line for line in lines if any(map(str.isalnum, line)) and not _PREAMBLE.match(line)]


_PREAMBLE = re.compile(r"(?:import|from|package|use)\b|#include|#!|<[!?/]|<(?:html|head|meta)")
_COMMENT = ("//", "#", "/*", "*", "import ", "from ")
_TELLING_WORD = re.compile(r"\w{3,}")
_MOST_LINE_CHARS = 110


def _first(given: Mapping[str, object], names: Sequence[str]) -> str | None:
    return next((value for name in names if isinstance(value := given.get(name), str)), None)


def _first_text(given: Mapping[str, object], names: Sequence[str]) -> str:
    return _first(given, names) or ""


def _telling(lines: Iterable[str]) -> str:
    """Return the line with most words, code before comments."""
    found = [line for line in lines if line]
    code = [line for line in found if not line.startswith(_COMMENT)] or found
    chosen = max(code, key=lambda line: len({*_TELLING_WORD.findall(line)}), default="")
    return readable(chosen)[:_MOST_LINE_CHARS]


def name_of(path: str) -> str:
    """Return the last name of a path."""
    return path.rpartition("/")[2]


def steps_of(sources: Iterable[SourceMessage]) -> list[Step]:
    """Return all calls in order; of equal ids, the older call gets the first result."""
    steps, waiting = list[Step](), defaultdict[str, list[Step]](list)
    for source in sources:
        for call in source.message.calls:
            steps.append(Step(call, source))
            waiting[call.call_id].append(steps[-1])
        excerpts = source.excerpts or (None,) * len(source.message.results)
        for result, excerpt in zip(source.message.results, excerpts, strict=True):
            if waiting[result.call_id]:
                step = waiting[result.call_id].pop(0)
                step.result, step.answer, step.excerpt = result, source, excerpt
    return steps
