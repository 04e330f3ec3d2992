"""Finds the diagnostics in a tool's output: lines with which a run reports an error, not lines that speak of errors.

A diagnostic has a form in which tools report: a failed test, an exception, a message with a place, a level of a log, an
exit status, a frame of the user's own code. It is not quoted: it is no numbered line of a file reader, no line of a
diff's hunk, no line of a program, and no sentence of a document. The previews that this measure judges share none of
its code.
"""

import json
import re
from collections.abc import Iterator

ERROR = re.compile(r"\b(?:ERROR|FAIL|FAILED|FATAL|panic)\b|\b[Ee]rror:|\w(?:Error|Exception):|Traceback|--- FAIL")
"""Words of most errors, and of programs and documents that speak of errors."""

LONG_LINE = 1_000

COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# The prefixes of build servers, containers and loggers.
_PREFIX = (
    r"(?:\[[^\]]{1,40}\]\s+|\S{1,60}\s+\|\s+|\d{4}-\d\d-\d\d[T ][\d:.,]+(?:Z|[+-]\d\d:?\d\d)?\s+|\d\d:\d\d:\d\d\S*\s+)*"
)
_RAISED = r"(?:[A-Za-z_$][\w$]*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Fault|Timeout)"
_FOREIGN_FRAME = r"(?!.*(?:node:|node_modules|internal/)|java|jdk|sun|org\.junit|org\.apache)"
_REPORTS = tuple(
    re.compile(pattern)
    for pattern in (
        # Tests.
        rf"^\s*{_PREFIX}--- FAIL: |^FAIL(?:\s|$)|^\s*FAILED\b|\bFAILED\b(?:\s+\[|$)|^not ok \d",
        r"^\s*[\u2715-\u2718\u274c\u00d7\u25cf] ",
        r"^E\s{2,}\S",
        r"^\s+Error(?: Trace)?:\s+\S|^\s+Error:\s*$|^\s+(?:expected|actual|Expected|Received)\s*: ",
        r"<(?:failure|error)\b",
        # Exceptions and their places.
        rf"^\s*{_PREFIX}Traceback \(most recent",
        rf"^\s*{_PREFIX}(?:(?:Uncaught|Caused by:|Exception in thread \S+) )?{_RAISED}(?: \[\w+\])?(?::|\s*$)",
        rf"^\s*{_PREFIX}(?:panic|fatal error): \S|^thread '.*panicked at|^\s*{_PREFIX}Caused by: ",
        r'^\s+File "(?!.*(?:-packages|<frozen|/lib/python)).*", line \d+',
        rf"^\s+at {_FOREIGN_FRAME}.*[:(]?[\w.]+:\d+\)?(?::\d+\)?)?\s*$",
        r"^\s+(?!\S*(?:/pkg/mod/|/go/\S*/src/|/go/src/))\S+\.go:\d+ \+0x",
        # Messages with a place, of compilers and linters.
        r"^\S+?[:(]\d+(?:[:,]\d+)?\)?\s*(?::| -)?\s*(?:fatal )?(?:[Ee]rror|ERROR|[Ww]arning)\b",
        r"^\s*(?:vet: )?\.{0,2}/?[\w./-]+\.\w+:\d+:\d+: \S|^\s*\d+:\d+\s+(?:error|warning)\s{2,}",
        r"^(?:error|warning)(?:\[\w+\])?: \S|^(?:[A-Z]{1,4}\d{3,4}|invalid-syntax:) (?:\[\*\] )?[A-Z`]|^\s+--> \S+:\d+",
        # Levels of logs.
        r"^.{0,60}\b(?:ERROR|FATAL|CRITICAL|SEVERE|EMERG|PANIC)\b(?!\S*=)",
        r"\blevel=(?:error|fatal|panic)\b|\"(?:level|severity|lvl)\"\s*:\s*\"(?:error|fatal|critical|ERROR|FATAL)\"",
        r"^.{0,60}(?:\u9519\u8bef|\u5931\u8d25|\u5f02\u5e38|\u30a8\u30e9\u30fc|\uc624\ub958|\u043e\u0448\u0438\u0431\u043a\u0430)[:\uff1a]",
        # Shells and their commands.
        rf"^\s*{_PREFIX}(?:npm (?:ERR!|error)|fatal:|error:|Error:|ERROR:|Error from server|<tool_use_error>)",
        rf"^\s*{_PREFIX}(?:make|ninja|bash|sh|zsh|cat|ls|cp|rm)\S*: .*(?:Error \d|\bNo such |denied|not found)",
        r": (?:No such file or directory|Permission denied|command not found|Connection refused)\s*$",
        r"\b[Ee]xit(?:ed)?(?: with)?(?: code| status)[ :=]{1,3}[1-9]\d*|ELIFECYCLE|\bCrashLoopBackOff\b|\bOOMKilled\b",
        r"\bHTTP/\d\S* [45]\d\d\b|\bstatus(?:_code| code)?[\"' :=]{1,5}[45]\d\d\b",
        r"^.{0,40}\b[1-9]\d* (?:failed|failures?|errors?)\b|^\s*(?:Tests|Test Suites):.*\bfailed|^BUILD FAIL",
    )
)
_NONE = re.compile(r"\b(?:0|no|without) (?:\w+ )?(?:errors?|failures?|failed)\b", re.IGNORECASE)

_NUMBERED = re.compile(
    r"^\s{0,8}\d{1,6}(?:→|\t)|^\d{1,6}[:-](?!\d)|^\S{1,200}[:-]\d{1,6}[:-](?!\d+:? )\s*\S?.*[\"'`({\[]"
)
_HUNK = re.compile(r"^@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_PROGRAM = re.compile(
    r"^\s*\d+ \| |^\s*(?://|/\*|\*\s|#\s|#!|<!--|--\s)"
    r"|^\s*(?:func|def|class|if|elif|else|throw|raise|catch|except|case|for|try|import|from|const|let|var|return|export|public|private|type|fn|impl|echo|static|async|await|assert)\b"
    r"|:= |!= nil|=> ?[{(]|^\s*\}|(?:\)|\}|\"|'|`|\w);\s*$|\w\(.*[\"'`].*\)\s*[;{]?$|\w\($"
    r"|\\n\"|\{\s*$|^\s*[\"'`].*[\"'`],?\s*$"
    r"|^[\w.]+ = |^\s*\w+\??: [^\s:]+[,;]$|console\.|\.Errorf\(|\.Fatalf?\(|\.Logf\("
)
_PROSE = re.compile(r"^\s*(?:[-*+]|\d+\.|#{1,6}|>|\|)\s|`[^`]+`|\*\*|^\s*[A-Z][a-z]+(?: [\w'-]+){6,}[.:]?$")
# The messages of a Go test count if the test failed; only their words distinguish them from its other log lines.
_GO_SAID = re.compile(r"^\s+\S+_test\.go:\d+: ")
_GO_FAILED = re.compile(
    r"\b(?:expect\w*|want\w*|got|should\w*|fail\w*|error\w*|not|no|unexpected|missing|mismatch|must|but)\b|n't|!=",
    re.IGNORECASE,
)
_GO_RESULT = re.compile(r"^\s*(?:--- (FAIL|PASS|SKIP)|=== (?:RUN|CONT))|^(?:FAIL|PASS|ok)\b")
# Such a line is a report, whatever code or prose it quotes.
_UNMISTAKABLE = re.compile(r"^E\s{2,}\S|^\s*--- FAIL: |^Traceback \(most|^npm (?:ERR!|error)")


def diagnostics(text: str) -> list[str]:
    """Return the different lines of *text* that report an error, in order, without blanks around them."""
    return list(dict.fromkeys(line.strip() for line in _reports(text.split("\n"))))


_PARTS = re.compile(
    r"^\s*File \"|^\s*at \S|^\s*\S+\.go:\d+ \+0x|^\s*--> |Traceback \(most recent|: note: |^\s*Error Trace:"
    r"|^\s*(?:expected|actual|Expected|Received)\s*: "
)
_TIMED = re.compile(r"(?:[^{]{0,40}?\d\d:\d\d:\d\d[^\s\"]*[\s\"]+|[\d\s.:/-]{8,40}\s)(?=\S)")
# After the time: the host and the process of syslog, the process of Ruby and Celery, the place of glog, the thread of
# Spring.
_ORIGIN = re.compile(
    r"[\w.-]+ [\w./-]+\[\d+\]: |#\d+\] +|[A-Z]{4,8}/[\w-]+\] |\d+ \w+\.\w+:\d+\] "
    r"|[A-Z]{4,8} +\d+ --- \[[^\]]{1,60}\] \S{1,60} *: "
)
_PAIRED = re.compile(r'\blevel=\w+.*\bmsg="([^"]+)')
_QUOTED = re.compile(r"E(?:\s|$)")


def messages(text: str) -> dict[str, str]:
    """Return the messages among the reports of *text*, each with its line: no times, origins and parts of a message.

    A frame of a stack trace, the place below a message and all but the first line of what pytest says about a failure
    belong to a message that is a line of its own. Of a record in JSON or in pairs, the message is a value.
    """
    found, above = dict[str, str](), ""
    wanted = set(diagnostics(text))
    for line in text.split("\n"):
        is_part = _PARTS.search(line) or (_QUOTED.match(line) and _QUOTED.match(above))
        above = line
        if line.strip() in wanted and not is_part:
            found.setdefault(_message(line.strip()), line.strip())
    return found


def _message(line: str) -> str:
    if line.startswith("{"):
        try:
            record = json.loads(line)
        except ValueError:
            return line
        values = (record.get(key) for key in ("message", "msg", "error", "event"))
        return next((value for value in values if isinstance(value, str)), line)
    paired = _PAIRED.search(line)
    if paired is not None:
        return paired[1]
    timed = _TIMED.match(line)
    if timed is None:
        return line
    origin = _ORIGIN.match(line, timed.end())
    return line[origin.end() if origin is not None else timed.end() :]


def kind_of(line: str) -> str:
    """Return the kind of a line: its text with each number as 0, without blanks around it."""
    return re.sub(r"\d+", "0", COLOUR.sub("", line)).strip()


def _reports(lines: list[str]) -> Iterator[str]:
    if sum(_NUMBERED.match(line) is not None for line in lines) > len(lines) / 2:
        return
    failed_tests = _of_failed_tests(lines)
    hunk = 0
    for number, raw in enumerate(lines):
        found = _HUNK.match(raw)
        if found is not None:
            hunk = int(found[1] or 1) + int(found[2] or 1)
        elif hunk > 0 and raw[:1] in {"+", "-", " ", "\\"}:
            hunk -= 1 if raw[:1] in {"+", "-"} else 2
        else:
            hunk = 0
            line = COLOUR.sub("", raw).rstrip()
            if len(line) < LONG_LINE and (number in failed_tests or is_report(line)):
                yield raw


def _of_failed_tests(lines: list[str]) -> set[int]:
    """Return the lines with which failed Go tests give reasons: below the result, or above it in a verbose run."""
    found, waiting, has_failed = set[int](), list[int](), False
    for number, line in enumerate(lines):
        result = _GO_RESULT.match(line)
        if result is not None:
            has_failed = result[1] == "FAIL"
            found.update(waiting if has_failed else ())
            waiting = []
        elif _GO_SAID.match(line) and _GO_FAILED.search(line):
            (found.add if has_failed else waiting.append)(number)
    return found


def is_report(line: str) -> bool:
    """Return whether a line on its own reports an error."""
    if _NUMBERED.match(line) or (_NONE.search(line) and not _UNMISTAKABLE.search(line)):
        return False
    if not any(report.search(line) for report in _REPORTS):
        return False
    return _UNMISTAKABLE.search(line) is not None or not (_PROGRAM.search(line) or _PROSE.search(line))
