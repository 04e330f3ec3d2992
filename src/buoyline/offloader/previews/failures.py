"""What failed tests of Go and Rust say in lines that have no word of trouble, and look alike where none failed.

Where a run of Go's tests tells all, a test's lines stand above its result; where it tells failures alone, below it.
"""

import re
from collections.abc import Iterator, Sequence

from buoyline.offloader.previews.finding import Digest, Finding
from buoyline.offloader.previews.matching import Hit, Linear, hits, joined

_LINE_CHARS = 600
_MAX_HITS = 40_000
_MAX_FINDINGS = 200
_OTHERS = 3
_WEIGHT = 93.0

_LOOKED_AT = Linear(
    r"^\s{0,20}--- (FAIL|PASS|SKIP|BENCH)|^\s{0,20}=== (?:RUN|CONT)|^(?:FAIL|PASS|ok)\b|(_test\.go:)\d+: "
)
# A test that fails says what it wanted; the others of its lines tell how far it came.
_COMPLAINT = re.compile(
    r"\b(?:expect\w{0,10}|want\w{0,4}|got|should\w{0,3}|fail\w{0,4}|error\w{0,3}|not|no|unexpected|missing|mismatch|must|invalid)\b"
    r"|n't\b|[!=]=|\u2260",
    re.IGNORECASE,
)
_ASSERTION = Linear(r"assertion .{0,3}left [!=]= right.{0,3} failed")
_SIDE = re.compile(r"\s{1,4}(?:left|right): ")
_SIDE_WEIGHT = 86.0
_DIGITS = re.compile(r"\d{1,40}")
_WORD = "_test.go:"


def failure_digest(lines: Sequence[str]) -> Digest:
    """Find what tests that failed say of it.

    Args:
        lines: Of the text, without line ends.

    Returns:
        A finding for each complaint of a failed test, or for its last line where none complains; those that say
        the same of different places are one.
    """
    text = joined(lines, _LINE_CHARS)
    complaints = _findings(lines, text) if _WORD.encode() in text else ()
    return Digest(findings=(*complaints, *_sides(lines, text)))


def _findings(lines: Sequence[str], text: bytes) -> Iterator[Finding]:
    kinds: dict[str, list[int]] = {}
    for said in _of_failed_tests(hits(_LOOKED_AT, text, _MAX_HITS)):
        complaints = [hit for hit in said if _COMPLAINT.search(_message(lines[hit.number - 1]))]
        for hit in complaints or said[-1:]:
            kinds.setdefault(_DIGITS.sub("0", _message(lines[hit.number - 1])), []).append(hit.number)
    for first, *others in list(kinds.values())[:_MAX_FINDINGS]:
        known = (*others[: _OTHERS - 1], others[-1]) if len(others) > _OTHERS else others
        yield Finding(first, _WEIGHT, count=1 + len(others), others=tuple(known), word=_WORD)


def _sides(lines: Sequence[str], text: bytes) -> Iterator[Finding]:
    """Find the two values below a failed assertion of Rust; a style sheet has lines like these, too."""
    for hit in hits(_ASSERTION, text, _MAX_FINDINGS):
        for number in range(hit.number + 1, min(hit.number + 3, len(lines)) + 1):
            if _SIDE.match(lines[number - 1]):
                yield Finding(number, _SIDE_WEIGHT)


def _of_failed_tests(found: Iterator[Hit]) -> Iterator[list[Hit]]:
    """Yield the lines of each test that failed, as far as they stand on one side of its result."""
    said, has_failed = list[Hit](), False
    for hit in found:
        result, place = hit.groups
        if place:
            said.append(hit)
            continue
        if said and (has_failed or result == "FAIL"):
            yield said
        said, has_failed = [], result == "FAIL"
    if said and has_failed:
        yield said


def _message(line: str) -> str:
    """Return what a line says, without the place where it says so."""
    return line.partition(_WORD)[2].partition(": ")[2][:_LINE_CHARS].strip()
