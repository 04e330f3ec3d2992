"""Lines that speak of trouble, and the line that gives the verdict.

The words are those of the tools that agents run: compilers, test runners, loggers, shells, in several languages. A
first, linear pattern finds the candidates at the speed of memory; only these are judged.
"""

import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Any, Final

_LOOKED_AT_CHARS: Final = 400
_APART_BYTES: Final = 2_000


def _any_of(*alternatives: str) -> re.Pattern[str]:
    return re.compile("|".join(alternatives))


# Whatever `weight_of` gives a weight to holds one of these. RE2 needs 0.2 s for 100 MB, in any case of letters.
_CANDIDATE: Final = (
    "(?i)error|fail|fatal|panic|exception|traceback|critical|emerg|alert|denied|refused|timed ?out|timeout|cannot"
    "|could not|unable to|undefined|no such|not found|abort|segfault|segmentation|killed|out of ?memory|corrupt"
    "|invalid|violat|conflict|unexpected|deadlock|data race|assert|warn|not ok|exit (?:code|status)|exited with"
    "|caused by|core dumped|sigsegv|sigabrt|sigkill|\\berrs?\\b|\\[err|^e +|fehl|erreur|[\u2715-\u2718\u274c\u00d7]"
    "|\u9519\u8bef|\u5931\u8d25|\u5f02\u5e38|\u30a8\u30e9\u30fc|\uc624\ub958|\u043e\u0448\u0438\u0431\u043a"
)

_FATAL: Final = _any_of(
    r"\b(?:FATAL|CRITICAL|EMERG(?:ENCY)?|PANIC)\b",
    r"^\W{0,20}(?:fatal|panic)\b\s{0,3}[:(]",
    r"\bpanic: |\bfatal error\b|[Ss]egmentation fault|core dumped|\bSIG(?:SEGV|ABRT|KILL)\b",
    r"[Oo]ut of memory|OutOfMemory|\bdata race\b|DATA RACE",
)
_FAILED_TEST: Final = _any_of(
    r"^\s{0,20}--- FAIL|^FAIL\b|\bFAIL(?:ED)?\b|\[FAIL",
    r"^\s{0,20}(?:not ok\b|[\u2715-\u2718\u274c\u00d7]\s)",
    r"^E\s{2,}\S",
)
_ERROR: Final = _any_of(
    r"\bERR(?:OR)?S?\b|\bnpm ERR!|##\[error\]|\bFAILURES?\b",
    r"\berror(?:\[\w{1,12}\]|\s{0,2}[A-Z]{0,3}\d{2,6})?\s{0,2}:|\bError\b\s{0,3}[:(]",
    r"\w{0,80}(?:Error|Exception)\b(?=\s{0,3}:|\s{0,3}$)|^Traceback \(most recent|^Caused by: ",
    r"^\W{0,20}(?:[Ee]rror|[Ff]ailure|[Ff]ailed)\b|\blevel=(?:error|fatal|panic)\b",
    r"\"(?:level|severity)\"\s{0,3}:\s{0,3}\"(?:error|fatal|critical)\"",
    r"[Nn]o such file or directory|[Pp]ermission denied|command not found|[Cc]onnection refused|[Tt]imed out\b",
    r"\b[Ee]xit(?:ed)?(?: with)?(?: code| status)[ :=]{1,3}[1-9]|\b[1-9]\d{0,6} (?:failed|failures?|errors?)\b",
    r"\bFehler\s{0,2}:|\b[Ee]rreur\s{0,2}:|\u9519\u8bef[:\uff1a]|\u5931\u8d25|\u5f02\u5e38[:\uff1a]",
    r"\u30a8\u30e9\u30fc|\uc624\ub958|\u043e\u0448\u0438\u0431\u043a\u0430:",
)
_WARNING: Final = _any_of(r"\bWARN(?:ING)?\b|\b[Ww]arning\b\s{0,2}:|\blevel=warn|##\[warning\]")
_NONE: Final = re.compile(
    r"\b(?:0|no|without|zero)\s{1,3}(?:\w{1,20}\s)?(?:errors?|failed|failures?|warnings?)\b", re.IGNORECASE
)

# What a program says of errors is what may happen, not what did. In capitals it is an output more often than not.
_CODE: Final = _any_of(
    r"(?:[{;,(]|=>|->|\\n|\*/|&&|\|\|)\s{0,8}$|:=|!= nil|=>|\breturn\b",
    r"^\s{0,120}(?:func|def|class|if|elif|else|throw|raise|catch|case|for|try|except|import|from|const|let|var)\b",
    r"^\s{0,120}(?:export|public|private|type|fn|impl|assert\w{0,20})\b|^\s{0,120}(?://|/\*|\*\s|#\s|<!--|--\s)",
    r"\b\w{1,60}(?:\.\w{1,60}){0,5}\(.{0,200}\)\s{0,4}[;,{]?\s{0,4}$",
)
_GUTTER: Final = _any_of(r"^\s{0,12}\d{1,7}(?:\u2192|\t|\s?[|:]\s)", r"^[^\s:]{1,300}[:-]\d{1,7}[:-]", r"^[+-](?![+-])")
_WEIGHTS: Final = ((_FATAL, 100.0, 75.0), (_FAILED_TEST, 97.0, 66.0), (_ERROR, 95.0, 65.0), (_WARNING, 70.0, 35.0))
_SUSPECT: Final = (58.0, 30.0)

_VERDICT: Final = _any_of(
    r"^={3,} .{0,200}\b(?:passed|failed|errors?|skipped|no tests ran)\b",
    r"^(?:FAIL|PASS|ok)$|^(?:FAIL|ok)\s+\S+\s+(?:[\d.]+m?s|\(cached\)|\[)|^(?:FAILED|OK) ?(?:\(|$)",
    r"^\s{0,8}(?:Tests?|Test Suites|Test Files|Suites)\s{0,3}:?\s+.{0,80}\d|^(?:Ran|Executed) \d+ (?:tests?|specs)",
    r"^\s{0,8}\d+ (?:passing|failing|pending|passed|failed)\b|^test result: |^\d+ examples?, \d+ failures?",
    r"^BUILD (?:SUCCESS|FAIL)|^\[?(?:ERROR|INFO)\]? (?:BUILD|Tests run:)|^make(?:\[\d+\])?: \*\*\*|^Finished in ",
    r"^[Ee]xit (?:code|status)\b|^Process (?:finished|exited)|^(?:error: )?could not compile",
    r"^Found \d+ errors?|^\u2716 \d+ problems?|^(?:Total|Summary)\s{0,3}:",
)


def candidates(lines: bytes) -> Iterator[int]:
    r"""Yield where in *lines* a word stands that may speak of trouble, once a line; in a long line now and again.

    Args:
        lines: UTF-8, with ``\n`` between them.
    """
    position, candidate = 0, _candidate()
    while (found := candidate.search(lines, position)) is not None:
        start: int = found.start()
        yield start
        end = lines.find(b"\n", start, start + _APART_BYTES)
        position = start + _APART_BYTES if end < 0 else end + 1


def weight_of(line: str) -> float:
    """Weigh a line by how much trouble it speaks of: 100 is the worst, 0 is none."""
    text = _GUTTER.sub("", line[:_LOOKED_AT_CHARS])
    if _NONE.search(text) and not _FATAL.search(text):
        return 0.0
    is_code = _CODE.search(text) is not None
    for pattern, said, coded in _WEIGHTS:
        if pattern.search(text):
            return coded if is_code else said
    return _SUSPECT[is_code]


def is_verdict(line: str) -> bool:
    """Tell whether a line says how a whole run ended."""
    return _VERDICT.search(line[:_LOOKED_AT_CHARS]) is not None


def column_of(line: str) -> int:
    """Return the character at which a line begins to speak of trouble, 0-based; 0 where it does not."""
    for pattern, _, _ in _WEIGHTS:
        found = pattern.search(line)
        if found is not None:
            return found.start()
    return 0


@cache
def _candidate() -> Any:
    # Imported when the first text is read: a program that only appends needs none of it.
    return import_module("re2").compile(_CANDIDATE.encode())
