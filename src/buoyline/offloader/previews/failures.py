"""What tests of Go that failed say: lines with a place and no word of trouble, which look alike in tests that passed.

Where a run tells all, a test's lines stand above its result; where it tells failures alone, below it.
"""

import re
from collections.abc import Iterator, Sequence

from buoyline.offloader.previews.finding import Digest, Finding
from buoyline.offloader.previews.matching import Hit, Linear, hits, joined

_LINE_CHARS = 600
_MAX_HITS = 40_000
_MAX_FINDINGS = 200

_LOOKED_AT = Linear(
    r"^\s{0,20}--- (FAIL|PASS|SKIP|BENCH)|^\s{0,20}=== (?:RUN|CONT)|^(?:FAIL|PASS|ok)\b|(_test\.go:)\d+: "
)
# A test that fails says what it wanted; the others of its lines tell how far it came.
_COMPLAINT = re.compile(
    r"\b(?:expect\w{0,10}|want\w{0,4}|got|should\w{0,3}|fail\w{0,4}|error\w{0,3}|not|no|unexpected|missing|mismatch|must|invalid)\b"
    r"|n't\b|[!=]=|\u2260",
    re.IGNORECASE,
)
_WORD = "_test.go:"


def failure_digest(lines: Sequence[str]) -> Digest:
    """Find what tests that failed say of it.

    Args:
        lines: Of the text, without line ends.

    Returns:
        A finding for each line of a failed test: what complains weighs as an error does, the rest less than that.
    """
    text = joined(lines, _LINE_CHARS)
    return Digest(findings=tuple(_findings(lines, text))) if _WORD.encode() in text else Digest()


def _findings(lines: Sequence[str], text: bytes) -> Iterator[Finding]:
    count = 0
    for said in _of_failed_tests(hits(_LOOKED_AT, text, _MAX_HITS)):
        complaints = [hit for hit in said if _COMPLAINT.search(_message(lines[hit.number - 1]))]
        for hit in complaints or said[-1:]:
            yield Finding(hit.number, 93.0, word=_WORD)
            count += 1
            if count >= _MAX_FINDINGS:
                return


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
    return line.partition(_WORD)[2][:_LINE_CHARS]
