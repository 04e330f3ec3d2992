"""Test failures and stack traces.

Failed tests of Go and Rust explain themselves in lines without an error word, which look the same if the test passes. A
verbose run of Go tests prints the lines of a test above its result, a quiet run below it.

Stack traces are those of Python and pytest, Java, JavaScript, .NET, Go and Rust, also behind the line prefixes of
loggers and build servers.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from buoyline.previews.digest import (
    Digest,
    Finding,
    LinearPattern,
    PatternMatch,
    encoded_lines,
    fact,
    matches,
    rows,
    shortened,
)
from buoyline.previews.severity import form_of

_FAILURE_CHARS = 600
_MAX_HITS = 40_000
_MAX_FINDINGS = 200
_MAX_SIMILAR = 3
_WEIGHT = 93.0

_LOOKED_AT = LinearPattern(
    r"^\s{0,20}--- (FAIL|PASS|SKIP|BENCH)|^\s{0,20}=== (?:RUN|CONT)|^(?:FAIL|PASS|ok)\b|(_test\.go:)\d+: "
)
# A failed test says what it expected; its other lines report progress.
_COMPLAINT = re.compile(
    r"\b(?:expect\w{0,10}|want\w{0,4}|got|should\w{0,3}|fail\w{0,4}|error\w{0,3}|not|no|unexpected|missing|mismatch|must|invalid)\b"
    r"|n't\b|[!=]=|\u2260",
    re.IGNORECASE,
)
_ASSERTION = LinearPattern(r"assertion .{0,3}left [!=]= right.{0,3} failed")
_SIDE = re.compile(r"\s{1,4}(?:left|right): ")
_SIDE_WEIGHT = 86.0
_DIGITS = re.compile(r"\d{1,40}")
_WORD = "_test.go:"


def failure_digest(lines: Sequence[str]) -> Digest:
    """Find the messages of failed tests.

    Returns:
        A finding for each complaint of a failed test, or for its last line if it has none. Complaints with the same
        words share a finding.
    """
    text = encoded_lines(lines, _FAILURE_CHARS)
    kinds: dict[str, list[int]] = {}
    for lines_of_test in _of_failed_tests(matches(_LOOKED_AT, text, _MAX_HITS)) if _WORD.encode() in text else ():
        complaints = [hit for hit in lines_of_test if _COMPLAINT.search(_message(lines[hit.number - 1]))]
        for hit in complaints or lines_of_test[-1:]:
            kinds.setdefault(_DIGITS.sub("0", _message(lines[hit.number - 1])), []).append(hit.number)
    findings = list[Finding]()
    for first, *similar in list(kinds.values())[:_MAX_FINDINGS]:
        known = (*similar[: _MAX_SIMILAR - 1], similar[-1]) if len(similar) > _MAX_SIMILAR else similar
        findings.append(Finding(first, _WEIGHT, lines=1 + len(similar), similar=tuple(known), word=_WORD))
    # A failed assertion of Rust has its two values in the lines below; a style sheet has similar lines.
    for hit in matches(_ASSERTION, text, _MAX_FINDINGS):
        for number in range(hit.number + 1, min(hit.number + 3, len(lines)) + 1):
            if _SIDE.match(lines[number - 1]):
                findings.append(Finding(number, _SIDE_WEIGHT))
    return Digest(findings=tuple(findings))


def _of_failed_tests(found: Iterator[PatternMatch]) -> Iterator[list[PatternMatch]]:
    """Yield the lines of each failed test, on whichever side of the result they are."""
    lines_of_test, has_failed = list[PatternMatch](), False
    for hit in found:
        result, place = hit.groups
        if place:
            lines_of_test.append(hit)
            continue
        if lines_of_test and (has_failed or result == "FAIL"):
            yield lines_of_test
        lines_of_test, has_failed = [], result == "FAIL"
    if lines_of_test and has_failed:
        yield lines_of_test


def _message(line: str) -> str:
    return line.partition(_WORD)[2].partition(": ")[2][:_FAILURE_CHARS].strip()


_TRACE_CHARS = 2_000
_MAX_BEGINNINGS = 20_000
_MAX_TRACES = 5_000
_MAX_KINDS = 40
_MAX_FRAMES = 400
_MESSAGE_LINES = 30
_MESSAGE_CHARS = 400
_WORST_KINDS = 2
_SHOWN_CHARS = 70

_BEGINNING = LinearPattern(
    r"Traceback \(most recent call last\)|[ \t]at .*(?:\(|:\d|line \d)|panicked at|^.{0,200}(?:panic"
    r"|fatal error): |DATA RACE"
    r"|\.py:\d+: \w*(?:Error|Exception|Failed)"
)

_PYTHON_FRAME = re.compile(r'File "([^"]{1,400})", line (\d{1,9})(?:, in (\S{1,120}))?')
_PYTEST = re.compile(r": (\w{0,80}(?:Error|Exception|Failed))\b")
_AT_FRAME = re.compile(r"(?:^|[\s|])at (?:async )?(.{1,200})")
_AT_PLACE = re.compile(
    r"\(([^()]{1,300}:\d{1,9}(?::\d{1,9})?)\)\s{0,3}(?:~?\[|$)|(?:^|\s)(\S{1,200}:\d{1,9}:\d{1,9})\s{0,3}$"
    r"| in (\S{1,300}:line \d{1,9})|\(([^()]{1,200})\)"
)
_NUMBER = re.compile(r"\d{1,9}")
_TOKEN = re.compile(r"[A-Za-z_][\w.$]{0,400}")
_RAISED = ("Error", "Exception", "Throwable", "Failure", "Interrupt", "Exit", "Warning", "Group", "Fault", "Timeout")
_NAME = re.compile(r"([A-Za-z_][\w.]{0,200})(?::|\s|$)")
_WORDS = re.compile(r"\w{3}")
_MORE = re.compile(r"\s{0,8}\.\.\. \d+ (?:more|common frames)")
_VARYING = re.compile(r"0x[0-9a-fA-F]{1,16}|\d{1,40}|\s{1,40}")

_FOREIGN = re.compile(
    r"site-packages|dist-packages|/lib(?:64)?/python\d|[\\/]Lib[\\/](?!site)|<frozen |<string>|importlib[./]"
    r"|/pkg/mod/|/go[-@/\d.]{0,20}/src/[^/.]{1,40}/"
    r"|/usr/local/go/|/usr/lib(?:64)?/|/libexec/src/|node_modules|node:|internal/|<anonymous>|/rustc/"
    r"|\.cargo/registry|/rustlib/|/vendor/"
    r"|^(?:java|javax|jdk|sun|com\.sun|jakarta|kotlin|kotlinx|scala|akka|groovy|org\.(?:springframework|junit"
    r"|apache|gradle|hibernate|eclipse|mockito)"
    r"|io\.(?:netty|reactivex|micrometer)|reactor|System|Microsoft|Newtonsoft)\."
)


@dataclass(slots=True)
class _Trace:
    """A stack trace; *frame* is the line of the innermost frame in the user's own code, 0 if unknown."""

    number: int
    raised: str
    frame: int
    place: str
    end: int
    count: int = 1
    similar: list[int] = field(default_factory=list[int])


def trace_digest(lines: Sequence[str]) -> Digest | None:
    """Summarize the stack traces in a text, each kind once.

    Returns:
        Errors with their places, and findings for their lines. None if there is no trace.
    """
    text = encoded_lines(lines, _TRACE_CHARS)
    traces = list[_Trace]()
    for hit in matches(_BEGINNING, text, _MAX_BEGINNINGS):
        if traces and hit.number <= traces[-1].end:
            continue
        if len(traces) < _MAX_TRACES and (found := _trace(lines, hit.number)) is not None:
            traces.append(found)
    if not traces:
        return None
    kinds = sorted(_distinct(traces), key=lambda kind: (-kind.count, kind.number))
    total = sum(kind.count for kind in kinds)
    if total == 1:
        facts = [fact(f"Stack trace: {_described(kinds[0])}")]
    else:
        different = "all alike" if len(kinds) == 1 else f"{len(kinds):,} different"
        facts = [fact(f"Stack traces: {total:,}, {different}"), *rows("Raised", map(_described, kinds), most=3)]
    findings = list[Finding]()
    for place, kind in enumerate(kinds):
        fall = min(max(place - _WORST_KINDS, 0.0), 10.0)
        form = form_of(lines[kind.number - 1][:_TRACE_CHARS].encode("utf-8", "replace"))
        findings.append(Finding(kind.number, 98.0 - fall, lines=kind.count, similar=tuple(kind.similar), form=form))
        if kind.frame and kind.frame != kind.number and not _FOREIGN.search(kind.place):
            findings.append(Finding(kind.frame, 85.0 - fall))
    return Digest(tuple(facts), tuple(findings))


def _distinct(traces: Sequence[_Trace]) -> list[_Trace]:
    """Return the first trace of each kind, with the number of all; at most 40 kinds."""
    kinds: dict[tuple[str, str], _Trace] = {}
    for trace in traces:
        key = (_VARYING.sub("0", trace.raised), trace.place)
        first = kinds.setdefault(key, trace) if len(kinds) < _MAX_KINDS else kinds.get(key)
        if first is not None and first is not trace:
            first.count += 1
            if len(first.similar) < _MAX_SIMILAR and trace.number != first.number:
                first.similar.append(trace.number)
    return list(kinds.values())


def _described(kind: _Trace) -> str:
    count = f" x{kind.count:,}" if kind.count > 1 else ""
    place = f" at {kind.place}" if kind.place else ""
    return f"{kind.raised}{count} :{kind.number}{place}"


def _trace(lines: Sequence[str], number: int) -> _Trace | None:
    line = lines[number - 1][:_TRACE_CHARS]
    if "Traceback (most recent call last)" in line:
        return _python(lines, number, max(line.find("Traceback"), 0))
    if "panicked at" in line:
        return _rust(lines, number, line)
    if "panic: " in line or "fatal error: " in line or "DATA RACE" in line:
        return _go(lines, number, line)
    if ".py:" in line and (found := _pytest(lines, number, line)) is not None:
        return found
    return _frames_at(lines, number)


def _python(lines: Sequence[str], number: int, column: int) -> _Trace | None:
    column = column - len("Exception Group ") if lines[number - 1][:column].endswith("Exception Group ") else column
    frame, place, is_own = 0, "", False
    for current in range(number + 1, min(number + 4 * _MAX_FRAMES, len(lines)) + 1):
        line = lines[current - 1][:_TRACE_CHARS]
        found = _PYTHON_FRAME.search(line)
        if found is not None:
            is_user = not _FOREIGN.search(found[1])
            if is_user or not is_own:
                frame, is_own = current, is_own or is_user
                place = f"{shortened(found[1], _SHOWN_CHARS)}:{found[2]}"
                place += f" ({found[3]})" if found[3] and not found[3].startswith("<") else ""
        elif frame and line[column : column + 1].strip() and not line[column:].startswith(("+", "|", "[Previous line")):
            return _Trace(current, _short(line[column:]), frame, place, current)
        elif "Traceback (most" in line:
            break
    return _Trace(frame, "cut off", frame, place, frame) if frame else None


def _pytest(lines: Sequence[str], number: int, line: str) -> _Trace | None:
    place = _place(line, ".py:")
    found = _PYTEST.match(line, place.end) if place is not None else None
    if place is None or found is None:
        return None
    message = next((above for above in _above(number) if lines[above - 1].startswith("E   ")), number)
    while message > 1 and lines[message - 2].startswith("E   ") and message > number - _MESSAGE_LINES:
        message -= 1
    return _Trace(message, found[1], number, str(place), number)


def _frames_at(lines: Sequence[str], number: int) -> _Trace | None:
    """Read a trace of Java, JavaScript or .NET whose first frame is in line *number*."""
    frame, place, end = 0, "", number - 1
    for current in range(number, min(number + _MAX_FRAMES, len(lines)) + 1):
        found = _AT_FRAME.search(lines[current - 1][:_TRACE_CHARS])
        where = _at_place(found[1]) if found is not None else ""
        if end >= number and found is not None and lines[current - 1].lstrip().startswith("at "):
            where = where or "?"
        if found is None or not where:
            if not _MORE.match(lines[current - 1]) or end < number:
                break
            end = current
            continue
        end = current
        if not frame or (_FOREIGN.search(place) and not _FOREIGN.search(f"{found[1]}{where}")):
            frame, place = current, where if ":" in where and "/" in where else found[1]
    message = _message_above(lines, number) if end >= number else 0
    if not message:
        return None
    return _Trace(message, _short(lines[message - 1]), frame, shortened(place.strip(), _SHOWN_CHARS), end)


def _at_place(text: str) -> str:
    found = _AT_PLACE.search(text)
    place = next((group for group in found.groups() if group), "") if found is not None else ""
    return place if ":" in place or place in {"Native Method", "Unknown Source", "<anonymous>"} else ""


def _message_above(lines: Sequence[str], number: int) -> int:
    """Return the line above the frames that names the error; 0 if none does."""
    for place in list(_above(number))[:10]:
        if _raised(lines[place - 1]):
            return place
    above = number - 1
    has_words = above and _WORDS.search(lines[above - 1])
    return above if has_words and number < len(lines) and _AT_FRAME.search(lines[number]) else 0


def _above(number: int) -> range:
    return range(number - 1, max(number - _MESSAGE_LINES, 0), -1)


def _go(lines: Sequence[str], number: int, line: str) -> _Trace | None:
    frame, place, end = 0, "", number
    for current in range(number + 1, min(number + _MAX_FRAMES, len(lines)) + 1):
        text = lines[current - 1][:_TRACE_CHARS]
        if "panic: " in text or "DATA RACE" in text:
            break
        found = _place(text, ".go:")
        if found is None:
            continue
        end = current
        if not frame or (_FOREIGN.search(place) and not _FOREIGN.search(str(found))):
            frame, place = current, str(found)
    # A program that only mentions a panic has no frames below it.
    if not frame:
        return None
    start = min(at for at in (line.find("panic: "), line.find("fatal error: "), line.find("DATA RACE")) if at >= 0)
    return _Trace(number, line[start : start + _SHOWN_CHARS], frame, place, end)


def _rust(lines: Sequence[str], number: int, line: str) -> _Trace | None:
    found = _place(line, ".rs:")
    if found is None:
        return None
    message = line[line.find("panicked at") + 11 : found.start].strip(" ',:")
    following = lines[number] if number < len(lines) else ""
    end, frame, place = number, 0, ""
    for current in range(number + 1, min(number + _MAX_FRAMES, len(lines)) + 1):
        text = lines[current - 1][:_TRACE_CHARS]
        if "panicked at" in text:
            break
        at = _AT_FRAME.search(text)
        if at is not None and ".rs:" in at[1]:
            end = current
            if not frame and not _FOREIGN.search(at[1]):
                frame, place = current, at[1].strip()
    own = str(found)
    raised = f"panic: {message or following.strip()}"[:_SHOWN_CHARS]
    is_foreign = _FOREIGN.search(own) is not None and frame
    return _Trace(number, raised, frame if is_foreign else number, place if is_foreign else own, max(end, number))


class _Place(NamedTuple):
    """A file and a line number, and where a text names them."""

    path: str
    number: str
    start: int
    end: int

    def __str__(self) -> str:
        return f"{shortened(self.path, _SHOWN_CHARS)}:{self.number}"


def _place(line: str, ending: str) -> _Place | None:
    """Return the first file and line with this ending, such as ``".go:"``."""
    colon = line.find(ending) + len(ending)
    number = _NUMBER.match(line, colon) if colon >= len(ending) else None
    if number is None:
        return None
    start = max(line.rfind(mark, 0, colon) for mark in " \t',(") + 1
    return _Place(line[start : colon - 1], number[0], start, number.end())


def _raised(line: str) -> str:
    """Return the name of the error; empty if the line names none."""
    tokens = [token.rstrip(".") for token in _TOKEN.findall(line[:_MESSAGE_CHARS])]
    names = [token for token in tokens if token.endswith(_RAISED)]
    # Java writes "Exception in thread" before the name.
    return next((name for name in names if name not in _RAISED), names[0] if names else "")


def _short(line: str) -> str:
    """Return the error name without the message."""
    found = _NAME.search(line[:_MESSAGE_CHARS])
    name = _raised(line) or (found[1] if found is not None else line.strip())
    return name[-_SHOWN_CHARS:]
