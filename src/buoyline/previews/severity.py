"""Severity: lines that report errors and warnings, and the line that reports how a run ended.

The words are those of compilers, test runners, loggers and shells, in several languages. A linear pattern finds
candidates at the speed of memory; only these are judged.
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


# Every line with a severity matches one of these. RE2 needs 0.2 s for 100 MB, case-insensitive.
_CANDIDATE: Final = (
    "(?im)error|fail|fatal|panic|exception|traceback|critical|emerg|alert|denied|refused|timed ?out|timeout|cannot"
    "|could not|unable to|undefined|no such|not found|abort|segfault|segmentation|killed|out of ?memory|corrupt"
    "|invalid|violat|conflict|unexpected|deadlock|data race|assert|warn|not ok|exit (?:code|status)|exited with"
    "|caused by|core dumped|sigsegv|sigabrt|sigkill|\\berrs?\\b|\\[err|^e +|severe|backoff|evicted|non-zero exit"
    '|"(?:ok|success)" ?: ?false|"level" ?: ?[56]0|ora-\\d{5}|sqlstate|HTTP/[\\d.]{1,3}"? [45]\\d\\d'
    "|\\.[a-z]{1,5}(?::\\d+:\\d+: |\\(\\d+,\\d+\\): )"
    "|^ *--> |\\be: |^ *(?:expected|received|actual|want|got) *[:=]|[\u2715-\u2718\u274c\u00d7\u25cf]"
    "|fehl|ausnahme|warnung|erreur|\u00e9chec|\u00e9chou|avertissement|fall\u00f3|excepci\u00f3n|\\berro\\b|falha|errore|fallit|b\u0142\u0105d|\\bhata\\b"
    "|\u9519\u8bef|\u5931\u8d25|\u5f02\u5e38|\u81f4\u547d|\u8d85\u65f6|\u62d2\u7edd|\u65e0\u6cd5|\u672a\u627e\u5230|\u627e\u4e0d\u5230|\u62a5\u9519|\u5d29\u6e83|\u8b66\u544a|\u932f\u8aa4|\u5931\u6557|\u7570\u5e38|\u30a8\u30e9\u30fc|\u4f8b\u5916"
    "|\uc624\ub958|\uc2e4\ud328|\uc608\uc678|\u043e\u0448\u0438\u0431\u043a"
    "|\u0438\u0441\u043a\u043b\u044e\u0447\u0435\u043d\u0438"
    "|\u043d\u0435 \u0443\u0434\u0430\u043b\u043e\u0441\u044c|\u0441\u0431\u043e\u0439"
)

_WORST: Final = (
    "\\b(?:FATAL|CRITICAL|EMERG|PANIC|SIG(?:SEGV|ABRT|KILL)|OOMKilled)\\b|panic: |fatal error|--- FAIL"
    "|core dumped|[Oo]ut of memory|OutOfMemory|DATA RACE|\u81f4\u547d"
)

_FATAL: Final = _any_of(
    r"\b(?:FATAL|CRITICAL|EMERG(?:ENCY)?|PANIC)\b",
    r"^\W{0,20}(?:fatal|panic)\b\s{0,3}[:(]",
    r"\bpanic: |\bfatal error\b|[Ss]egmentation fault|core dumped|\bSIG(?:SEGV|ABRT|KILL)\b|\bOOMKilled\b"
    r"|\bpanicked at\b",
    r"[Oo]ut of memory|OutOfMemory|\bdata race\b|DATA RACE|\u81f4\u547d",
)
_FAILED_TEST: Final = _any_of(
    r"^\s{0,20}--- FAIL|^FAIL\b|\bFAIL(?:ED)?\b|\[FAIL",
    r"^\s{0,20}(?:not ok\b|[\u2715-\u2718\u274c\u00d7]\s|\u25cf\s.{0,200}\u203a)",
    r"^E\s{2,}\S|<(?:failure|error)\b",
)
_ERROR: Final = _any_of(
    r"\bERR(?:OR)?S?\b|\bnpm (?:ERR!|error)|##\[error\]|\bFAILURES?\b|\bSEVERE\b",
    r"\berror(?:\[\w{1,12}\]|\s{0,2}[A-Z]{0,3}\d{2,6})?\s{0,2}:|\bError\b\s{0,3}[:(]|\bError (?:from|response from) \w",
    r"\w{0,80}(?:Error|Exception)\b(?=\s{0,3}:|\s{0,3}$)|^Traceback \(most recent|^\s{0,20}Caused by: ",
    r"^\W{0,20}(?:[Ee]rror|[Ff]ailure|[Ff]ailed)\b|\blevel=(?:error|fatal|panic)\b",
    r"\"(?:level|severity|lvl|status|state|outcome|result)\"\s{0,3}:\s{0,3}\"(?i:error|fatal|critical|failed|failure)\"",
    r"\"level\"\s{0,3}:\s{0,3}[56]0\b|\"(?:ok|success)\"\s{0,3}:\s{0,3}false|\"errors?\"\s{0,3}:\s{0,3}[\"{\[]",
    r"(?:^|[,;\t|])\s{0,3}\"?(?:error|failed|failure|fatal)\"?\s{0,3}(?:[,;\t|]|$)",
    r"[Nn]o such file or directory|[Pp]ermission denied|command not found|[Cc]onnection refused|[Tt]imed out\b",
    r"\b[Ee]xit(?:ed)?(?: with)?(?: code| status)[ :=]{1,3}[1-9]|\b[1-9]\d{0,6} (?:failed|failures?|errors?)\b",
    r"^g?make(?:\[\d{1,3}\])?: \*\*\*|\bnon-zero exit|\breturned [1-9]\d{0,2} exit status"
    r"|\b(?:failures|errors)=\"[1-9]",
    r"HTTP/[\d.]{1,3}\"? 5\d\d\b|\b(?:4(?:0[013489]|1\d|2[29])|5\d\d) (?:[A-Z][a-z]{2,12} ){0,3}"
    r"(?:Error|Found|Forbidden|Unauthorized|Request|Gateway|Unavailable|Timeout|Conflict|Gone|Entity|Requests)\b",
    r"\b(?:CrashLoopBackOff|ImagePullBackOff|ErrImagePull|Evicted|CreateContainerConfigError)\b|\bORA-\d{5}\b|\bSQLSTATE\b",
    r"\bundefined reference to\b|\bAssertion `|\bassertion .{0,80}failed\b",
    r"\bFehler\s{0,2}:|fehlgeschlagen|\bAusnahme\b|\b[Ee]rreur\s{0,2}:|\b[\u00c9\u00e9]chec\b|[\u00c9\u00e9]chou\u00e9|fall\u00f3\b|[Ee]xcepci\u00f3n"
    r"|\b[Ee]rro:|\b[Ff]alha\b|\b[Ee]rrore\b|\b[Ff]allit[oa]\b|\b[Bb]\u0142\u0105d\b|\b[Hh]ata:",
    r"\u9519\u8bef|\u5931\u8d25|\u5f02\u5e38|\u8d85\u65f6|\u62d2\u7edd|\u672a\u627e\u5230|\u627e\u4e0d\u5230|\u62a5\u9519|\u5d29\u6e83|\u932f\u8aa4|\u5931\u6557|\u7570\u5e38|\u30a8\u30e9\u30fc|\u4f8b\u5916\u304c",
    r"\uc624\ub958|\uc2e4\ud328|\uc608\uc678|\b[\u041e\u043e]\u0448\u0438\u0431\u043a\u0430\b"
    r"|[\u0418\u0438]\u0441\u043a\u043b\u044e\u0447\u0435\u043d\u0438"
    r"|[\u041d\u043d]\u0435 \u0443\u0434\u0430\u043b\u043e\u0441\u044c|\b[\u0421\u0441]\u0431\u043e\u0439\b",
)
# Compilers that write no "error": "main.go:4:2: undefined: x". A search with columns looks the same but finds code.
_PLACED: Final = _any_of(
    r"^\s{0,20}(?:vet: )?[^\s:(]{1,300}\.\w{1,5}(?::\d{1,7}:\d{1,7}|\(\d{1,7},\d{1,7}\)): \S",
    r"^\s{0,20}--> \S{1,300}:\d{1,7}:\d",
)
_DETAIL: Final = _any_of(
    r"^\s{0,20}(?:[Ee]xpected|[Rr]eceived|[Aa]ctual|[Ww]ant|[Gg]ot)\s{0,10}[:=]",
    r"HTTP/[\d.]{1,3}\"? 4\d\d\b|(?:^|\s)E: \w|(?:^\W{0,20}|: )(?:[Uu]nable to|[Cc]annot|[Cc]ould not) \w",
)
_WARNING: Final = _any_of(
    r"\bWARN(?:ING)?\b|\b[Ww]arning\b\s{0,2}:|\blevel=warn|##\[warning\]|\bWarnung\b|[Aa]vertissement|\u8b66\u544a"
)
# Denials such as "0 errors" are removed before a line is judged: the rest of it may report an error.
_NONE: Final = re.compile(
    r"\b(?:0|no|without|zero)\s{1,3}(?:\w{1,20}\s)?(?:errors?|failed|failures?|warnings?)\b"
    r"|[\"']?\b(?:errors?|failures?|failed|exceptions?|warnings?)[\"']?\s{0,2}[:=]\s{0,2}[\"'(\[{]?(?:0\b|null|none|nil|false|[\"'\]}])",
    re.IGNORECASE,
)

# A program's source says which errors may happen, not which did. In capitals it is usually output.
_CODE: Final = _any_of(
    r"(?:[{;,(]|=>|->|\\n|\*/|&&|\|\|)\s{0,8}$|:=|!= nil|=>|\breturn\b",
    r"^\s{0,120}(?:func|def|class|if|elif|else|throw|raise|catch|case|for|try|except|import|from|const|let|var)\b",
    r"^\s{0,120}(?:export|public|private|type|fn|impl|assert\w{0,20})\b|^\s{0,120}(?://|/\*|\*\s|#\s|<!--|--\s)",
    r"\b\w{1,60}(?:\.\w{1,60}){0,5}\(.{0,200}\)\s{0,4}[;,{]?\s{0,4}$",
)
# No program has lines of these forms, whatever code they quote.
_CERTAIN: Final = _any_of(
    r"^E\s{2,}\S|^\s{0,20}--- FAIL|^Traceback \(most recent|^panic: |^npm (?:ERR!|error)|^error(?:\[\w{1,12}\])?: ",
    r"^\s{0,4}(?:(?:Caused by|Uncaught|Unhandled):? )?(?:[\w$]{1,60}\.){0,9}[A-Z]\w{0,60}(?:Error|Exception): ",
    r"^[^\s:(]{1,300}[:(]\d{1,7}(?:[:,]\d{1,7})?\)?:? (?:- )?(?:fatal )?error\b",
    r"^\[?\d{4}-\d\d-\d\d.{0,60}\b(?:ERROR|FATAL|CRITICAL)\b|^\[(?:ERROR|FATAL)\] ",
)
# A file reader numbered this line, so it is a quotation.
_READ: Final = re.compile(r"^\s{0,12}\d{1,7}\u2192")
_NUMBERS: Final = re.compile(r"\d{1,40}")
_GUTTER: Final = _any_of(
    r"^\s{0,12}\d{1,7}(?:\u2192|\t|\s?[|:]\s)", r"^[^\s:]{1,300}[:-]\d{1,7}[:-](?!\d{1,7}: )", r"^[+-](?![+-])"
)
_WEIGHTS: Final = (
    (_FATAL, 100.0, 75.0),
    (_FAILED_TEST, 97.0, 66.0),
    (_ERROR, 95.0, 65.0),
    (_PLACED, 92.0, 32.0),
    (_DETAIL, 84.0, 31.0),
    (_WARNING, 70.0, 35.0),
)
_MOST_READ: Final = 79.0
# A word alone says less than other lines.
_BARE: Final = re.compile(r"\W{0,20}(?:FAIL|FAILED|PASS|ok|error|Error|ERROR)\W{0,20}")
_BARE_WEIGHT: Final = 62.0
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
    r"""Yield the offsets of words that may report an error, once per line and every 2,000 bytes of a long line.

    Args:
        lines: UTF-8, with ``\n`` between them.
    """
    position, candidate = 0, _compiled(_CANDIDATE)
    while (found := candidate.search(lines, position)) is not None:
        start: int = found.start()
        yield start
        end = lines.find(b"\n", start, start + _APART_BYTES)
        position = start + _APART_BYTES if end < 0 else end + 1


def worst_candidates(lines: bytes, start: int) -> Iterator[int]:
    """Yield the offsets after *start* of words for the most severe errors, once per line; see `candidates`."""
    position = lines.find(b"\n", start) + 1
    while position > 0 and (found := _compiled(_WORST).search(lines, position)) is not None:
        yield found.start()
        position = lines.find(b"\n", found.start()) + 1


def severity_of(line: str) -> float:
    """Rate a line by the severity of its error: 100 is the most severe, 0 means no error."""
    line = line[:_LOOKED_AT_CHARS]
    text = _NONE.sub("", line)
    if text != line and _compiled(_CANDIDATE).search(text.encode("utf-8", "replace")) is None:
        return 0.0
    is_placed = _PLACED.search(line) is not None
    text, whole = (text, line) if is_placed else (_GUTTER.sub("", text), _GUTTER.sub("", line))
    if _BARE.fullmatch(text):
        return _BARE_WEIGHT
    is_read = _READ.match(line) is not None
    is_code = _CODE.search(whole) is not None and (is_read or _CERTAIN.search(whole) is None)
    for pattern, weight, code_weight in _WEIGHTS:
        if pattern.search(text):
            return code_weight if is_code else min(weight, _MOST_READ) if is_read else weight
    return _SUSPECT[is_code]


def matched_word(line: str) -> str:
    """Return the characters that made a line a candidate, or an empty string."""
    found = _compiled(_CANDIDATE).search(line[:_LOOKED_AT_CHARS].encode("utf-8", "replace"))
    return found.group().decode("utf-8", "replace") if found is not None else ""


def word_class(word: str) -> str:
    """Return *word* in lower case and without its numbers, as all lines of one class have it."""
    return _NUMBERS.sub("0", word).strip().lower()


def is_verdict(line: str) -> bool:
    """Check whether a line reports how a whole run ended."""
    return _VERDICT.search(line[:_LOOKED_AT_CHARS]) is not None


def is_bare_word(line: str) -> bool:
    """Check whether a line is a single word for the result of a run."""
    return _BARE.fullmatch(line[:_LOOKED_AT_CHARS]) is not None


def severity_column(line: str) -> int:
    """Return the character at which the error begins in a line, 0-based; 0 if there is none."""
    for pattern, _, _ in _WEIGHTS:
        found = pattern.search(line)
        if found is not None:
            return found.start()
    return 0


@cache
def _compiled(pattern: str) -> Any:
    # Imported with the first text: a program that only appends does not need it.
    return import_module("re2").compile(pattern.encode())
