"""Test failures.

Failed tests of Go and Rust explain themselves in lines without an error word, which look the same if the test passes. A
verbose run of Go tests prints the lines of a test above its result, a quiet run below it.
"""

import re
from collections.abc import Iterator, Sequence

from buoyline.previews.digest import Digest, Finding, LinearPattern, PatternMatch, encoded_lines, matches

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
