r"""Severity: lines that report errors and warnings, and the line that reports how a run ended.

The words are those of compilers, test runners, loggers and shells, in several languages. One pattern finds candidates
at the speed of memory; one set of patterns judges each of them in a single pass. A text may have millions of such
lines, so `ErrorLines` judges one of each kind.
"""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib import import_module
from itertools import accumulate, islice
from typing import Any, Final

from buoyline.previews.digest import MAX_ERROR_KINDS, MUST_SHOW_WEIGHT, Finding
from buoyline.previews.lines import FAR_CHARS

_LOOKED_AT: Final = 400
_APART_BYTES: Final = 2_000
_MOST_IN_A_LINE: Final = 40

# Every line with a severity matches one of these.
_CANDIDATE: Final = (
    "(?im)error|fail|fatal|panic|exception|traceback|critical|emerg|alert|denied|refused|timed ?out|timeout|cannot"
    "|could not|unable to|undefined|no such|not found|abort|segfault|segmentation|killed|out of ?memory|corrupt"
    "|invalid|violat|conflict|unexpected|deadlock|data race|assert|warn|not ok|exit (?:code|status)|exited with"
    "|caused by|core dumped|sigsegv|sigabrt|sigkill|\\berrs?\\b|\\[err|^e +|severe|backoff|evicted|non-zero exit"
    '|"(?:ok|success)" ?: ?false|"level" ?: ?[56]0|ora-\\d{5}|sqlstate|HTTP/[\\d.]{1,3}"? [45]\\d\\d'
    "|\\.[a-z]{1,5}(?::\\d+:\\d+: |\\(\\d+,\\d+\\): )"
    "|(?-i:^[A-Z]{1,4}\\d{3,4} )"
    "|^ *--> |\\be: |^ *(?:expected|received|actual|want|got) *[:=]|[\u2715-\u2718\u274c\u00d7\u25cf]"
    "|fehl|ausnahme|warnung|erreur|\u00e9chec|\u00e9chou|avertissement|fall\u00f3|excepci\u00f3n|\\berro\\b|falha|errore|fallit|b\u0142\u0105d|\\bhata\\b"
    "|\u9519\u8bef|\u5931\u8d25|\u5f02\u5e38|\u81f4\u547d|\u8d85\u65f6|\u62d2\u7edd|\u65e0\u6cd5|\u672a\u627e\u5230|\u627e\u4e0d\u5230|\u62a5\u9519|\u5d29\u6e83|\u8b66\u544a|\u932f\u8aa4|\u5931\u6557|\u7570\u5e38|\u30a8\u30e9\u30fc|\u4f8b\u5916"
    "|\uc624\ub958|\uc2e4\ud328|\uc608\uc678|\u043e\u0448\u0438\u0431\u043a"
    "|\u0438\u0441\u043a\u043b\u044e\u0447\u0435\u043d\u0438"
    "|\u043d\u0435 \u0443\u0434\u0430\u043b\u043e\u0441\u044c|\u0441\u0431\u043e\u0439"
)
# Candidates whose digits make the error: other lines of the same kind are fine.
_NUMBERED: Final = (
    '(?i)HTTP/[\\d.]{1,3}"? [45]\\d\\d|"level" ?: ?[56]0|\\b[1-9]\\d* (?:failed|failures?|errors?)'
    "|(?:failed|failures?|errors?)[\"']?[:=] ?[\"']?[1-9]|exit(?:ed)?(?: with)?(?: code| status)[ :=]{1,3}[1-9]"
)
_WORST: Final = (
    "\\b(?:FATAL|CRITICAL|EMERG|PANIC|SIG(?:SEGV|ABRT|KILL)|OOMKilled)\\b|panic: |fatal error|--- FAIL"
    "|core dumped|[Oo]ut of memory|OutOfMemory|DATA RACE|\u81f4\u547d"
)

# The classes in the order of their weights; the second weight is of a line of a program. In RE2, a word boundary and a
# word character are ASCII.
_FATAL, _FAILED_TEST, _ERROR, _PLACED, _DETAIL, _WARNING = range(6)
_CODE, _CERTAIN, _READ, _GUTTER, _BARE, _NONE, _NOTE = range(6, 13)
_WEIGHTS: Final = ((100.0, 75.0), (97.0, 66.0), (95.0, 65.0), (92.0, 32.0), (84.0, 31.0), (70.0, 35.0))
_MOST_READ: Final = 79.0
_BARE_WEIGHT: Final = 62.0
_SUSPECT: Final = (58.0, 30.0)

_NO_ERRORS: Final = (
    r"(?i:\b(?:0|no|without|zero)\s{1,3}(?:\w{1,20}\s)?(?:errors?|failed|failures?|warnings?)\b"
    r"|[\"']?\b(?:errors?|failures?|failed|exceptions?|warnings?)[\"']?\s{0,2}[:=]\s{0,2}"
    r"(?:[\"'(\[{]?(?:0|null|none|nil|false)\b|\"\"|''|\(\)|\[\]|\{\}))"
)
_STATUS: Final = r"\b(?:4(?:0[013489]|1\d|2[29])|5\d\d) (?:[A-Z][a-z]+ )*"
_JUDGED: Final = (
    (_FATAL, r"\b(?:FATAL|CRITICAL|EMERG(?:ENCY)?|PANIC)\b|^\W*(?:fatal|panic)\b\s*[:(]"),
    (_FATAL, r"\bpanic: |\bfatal error\b|[Ss]egmentation fault|core dumped"),
    (_FATAL, r"\bSIG(?:SEGV|ABRT|KILL)\b|\bOOMKilled\b"),
    (_FATAL, "\\bpanicked at\\b|[Oo]ut of memory|OutOfMemory|\\bdata race\\b|DATA RACE|\u81f4\u547d"),
    (_FAILED_TEST, r"^\s*--- FAIL|^FAIL\b|\bFAIL(?:ED)?\b|\[FAIL|^E\s{2,}\S|<(?:failure|error)\b"),
    (_FAILED_TEST, "^\\s*(?:not ok\\b|[\u2715-\u2718\u274c\xd7]\\s|\u25cf\\s.*\u203a)"),
    (_ERROR, r"\bERR(?:OR)?S?\b|\bnpm (?:ERR!|error)|##\[error\]|\bFAILURES?\b|\bSEVERE\b"),
    (_ERROR, r"\berror(?:\[\w+\]|\s*[A-Z]*\d\d+)?\s*:|\bError\b\s*[:(]"),
    (_ERROR, r"\bError (?:response )?from \w"),
    (_ERROR, r"\w(?:Error|Exception)\s*(?::|$)|^(?:Error|Exception)$"),
    (_ERROR, r"^\s*Caused by: "),
    (_ERROR, r"^\W*(?:[Ee]rror|[Ff]ailure|[Ff]ailed)\b|\blevel=(?:error|fatal|panic)\b"),
    (
        _ERROR,
        r"\"(?:level|severity|lvl|status|state|outcome|result)\"\s*:\s*\"(?i:error|fatal|critical|failed|failure)\"",
    ),
    (_ERROR, r"\"level\"\s*:\s*[56]0\b|\"(?:ok|success)\"\s*:\s*false"),
    (_ERROR, r"\"errors?\"\s*:\s*[\"{\[]"),
    (_ERROR, r"(?:^|[,;\t|])\s*\"?(?:error|failed|failure|fatal)\"?\s*(?:[,;\t|]|$)"),
    (_ERROR, r"[Nn]o such file or directory|[Pp]ermission denied|command not found"),
    (_ERROR, r"[Cc]onnection refused|[Tt]imed out\b"),
    (_ERROR, r"\b[Ee]xit(?:ed)?(?: with)?(?: code| status)[ :=]+[1-9]"),
    (_ERROR, r"\b[1-9]\d* (?:failed|failures?|errors?)\b"),
    (_ERROR, r"^g?make(?:\[\d+\])?: \*\*\*|\bnon-zero exit|\breturned [1-9]\d* exit status"),
    (_ERROR, r"\b(?:failures|errors)=\"[1-9]|HTTP/[\d.]+\"? 5\d\d\b"),
    (_ERROR, rf"{_STATUS}(?:Error|Found|Forbidden|Unauthorized|Request|Gateway)\b"),
    (_ERROR, rf"{_STATUS}(?:Unavailable|Timeout|Conflict|Gone|Entity|Requests)\b"),
    (_ERROR, r"\b(?:CrashLoopBackOff|ImagePullBackOff|ErrImagePull|Evicted|CreateContainerConfigError)\b"),
    (_ERROR, r"\bORA-\d{5}\b|\bSQLSTATE\b"),
    (_ERROR, r"\bundefined reference to\b|\bAssertion `|\bassertion .*failed\b"),
    (_ERROR, "\\bFehler\\s*:|fehlgeschlagen|\\bAusnahme\\b|\\b[Ee]rreur\\s*:|[\xc9\xe9]chec\\b"),
    (_ERROR, "[\xc9\xe9]chou\xe9|fall\xf3|[Ee]xcepci\xf3n|\\b[Ee]rro:|\\b[Ff]alha\\b|\\b[Ee]rrore\\b"),
    (_ERROR, "\\b[Ff]allit[oa]\\b|\\b[Bb]\u0142\u0105d\\b|\\b[Hh]ata:"),
    (_ERROR, "\u9519\u8bef|\u5931\u8d25|\u5f02\u5e38|\u8d85\u65f6|\u62d2\u7edd|\u672a\u627e\u5230"),
    (_ERROR, "\u627e\u4e0d\u5230|\u62a5\u9519|\u5d29\u6e83|\u932f\u8aa4|\u5931\u6557|\u7570\u5e38"),
    (_ERROR, "\u30a8\u30e9\u30fc|\u4f8b\u5916\u304c|\uc624\ub958|\uc2e4\ud328|\uc608\uc678"),
    (_ERROR, "[\u041e\u043e]\u0448\u0438\u0431\u043a\u0430"),
    (_ERROR, "[\u0418\u0438]\u0441\u043a\u043b\u044e\u0447\u0435\u043d\u0438"),
    (_ERROR, "[\u041d\u043d]\u0435 \u0443\u0434\u0430\u043b\u043e\u0441\u044c"),
    (_ERROR, "(?:^|\\s)[\u0421\u0441]\u0431\u043e\u0439"),
    (_FATAL, r"^F\d{4} \d\d:\d\d:\d\d"),
    (_ERROR, r"^E\d{4} \d\d:\d\d:\d\d"),
    (_WARNING, r"^W\d{4} \d\d:\d\d:\d\d"),
    # Compilers that write no "error": "main.go:4:2: undefined: x". A search with columns looks the same but finds code.
    (_PLACED, r"^\s*(?:vet: )?[^\s:(]+\.\w+(?::\d+:\d+|\(\d+,\d+\)): \S"),
    (_PLACED, r"^(?:[A-Z]{1,4}\d{3,4}|invalid-syntax:) (?:\[\*\] )?[A-Z`]"),
    (_WARNING, r"^\s*--> \S+:\d+:\d"),
    (_DETAIL, r"^\s*(?:[Ee]xpected|[Rr]eceived|[Aa]ctual|[Ww]ant|[Gg]ot)\s*[:=]"),
    (_DETAIL, r"^Traceback \(most recent"),
    (_DETAIL, r"HTTP/[\d.]+\"? 4\d\d\b|(?:^|\s)E: \w"),
    (_DETAIL, r"(?:^\W*|: )(?:[Uu]nable to|[Cc]annot|[Cc]ould not) \w"),
    (_WARNING, r"\bWARN(?:ING)?\b|\b[Ww]arning\b\s*:|\blevel=warn|##\[warning\]|\bWarnung\b"),
    (_WARNING, "[Aa]vertissement|\u8b66\u544a"),
    # A program's source says which errors may happen, not which did. In capitals it is usually output.
    (_CODE, r"(?:[{;,(]|=>|->|\\n|\*/|&&|\|\|)\s*$|:=|!= nil|=>|\breturn\b"),
    (_CODE, r"^\s*(?:func|def|class|if|elif|else|throw|raise|catch|case|for|try|except|import|from|const|let|var)\b"),
    (_CODE, r"^\s*(?:export|public|private|type|fn|impl|assert\w*)\b"),
    (_CODE, r"^\s*(?://|/\*|\*\s|#\s|<!--|--\s)|\w\(.*\)\s*[;,{]?\s*$"),
    # No program has lines of these forms, whatever code they quote.
    (_CERTAIN, r"^E\s{2,}\S|^\s*--- FAIL|^Traceback \(most recent|^panic: |^npm (?:ERR!|error)"),
    (_CERTAIN, r"^error(?:\[\w+\])?: "),
    (_CERTAIN, r"^\s*(?:(?:Caused by|Uncaught|Unhandled):? )?(?:[\w$]+\.)*[A-Z]\w*(?:Error|Exception): "),
    (_CERTAIN, r"^[^\s:(]+[:(]\d+(?:[:,]\d+)?\)?:? (?:- )?(?:fatal )?error\b"),
    (_CERTAIN, r"^\[?\d{4}-\d\d-\d\d.*\b(?:ERROR|FATAL|CRITICAL)\b|^\[(?:ERROR|FATAL)\] "),
    # A file reader numbered this line, so it is a quotation.
    (_READ, "^\\s*\\d+(?:\u2192| \\| )"),
    (_GUTTER, "^\\s*\\d+(?:\u2192|\t|\\s?[|:]\\s)|^[^\\s:]+[:-]\\d+[:-]|^[+-][^+-]"),
    # A word alone says less than other lines.
    (_BARE, r"^\W*(?:FAIL|FAILED|PASS|ok|error|Error|ERROR)\W*$"),
    (_BARE, r"^={4,} (?:FAILURES|ERRORS) ={4,}$"),
    # A compiler explains its message above; pytest explains the failure of a test below.
    (_NOTE, r"^[^\s:]+:\d+(?::\d+)?: note: |^\S+ (?:FAILED|ERROR)\s+\[ *\d+%\]$"),
    # Denials such as "0 errors" are removed before a line is judged: the rest of it may report an error.
    (_NONE, _NO_ERRORS),
)
# The parts of a message that differ each time: quoted values, paths, identifiers and numbers, but not an error's class.
_VARYING: Final = re.compile(
    rb"'[^']{0,200}'|\"[^\"]{0,200}\"|`[^`]{0,200}`|\xe2\x80\x98.{0,200}?\xe2\x80\x99"
    rb"|(?![\w.]{0,200}(?:Error|Exception|Warning)\b)[^\s'\"`()\[\]<>{},;=]*[\d_./\\@][^\s'\"`()\[\]<>{},;=]*"
    rb"|\[[a-z][^\]]{0,40}\]"
)
_MESSAGE: Final = re.compile(
    rb'(?:"(?:msg|message|event|error)" ?: ?|\b(?:msg|message|event|err|error)=)"([^"]{1,400})'
)
_FORM_BYTES: Final = 300
_DENIAL: Final = re.compile(_NO_ERRORS)
_GUTTERS: Final = re.compile(
    r"^\s{0,12}\d{1,7}(?:\u2192|\t|\s?[|:]\s)|^[^\s:]{1,300}[:-]\d{1,7}[:-](?!\d{1,7}: )|^[+-](?![+-])"
)
_DIGITS: Final = re.compile(r"\d{1,40}")
_DATE: Final = re.compile(rb"\d{4}-\d\d-\d\d")

_VERDICT: Final = re.compile(
    r"^={3,} .{0,200}\b(?:passed|failed|errors?|skipped|no tests ran)\b"
    r"|^(?:FAIL|ok)\s+\S+\s+(?:[\d.]+m?s|\(cached\)|\[)|^(?:FAILED|OK) ?(?:\(|$)"
    r"|^\s{0,8}(?:Tests?|Test Suites|Test Files|Suites)\s{0,3}:?\s+.{0,80}\d|^(?:Ran|Executed) \d+ (?:tests?|specs)"
    r"|^\s{0,8}\d+ (?:passing|failing|pending|passed|failed)\b|^test result: |^\d+ examples?, \d+ failures?"
    r"|^BUILD (?:SUCCESS|FAIL)|^\[?(?:ERROR|INFO)\]? (?:BUILD|Tests run:)|^make(?:\[\d+\])?: \*\*\*|^Finished in "
    r"|^[Ee]xit (?:code|status)\b|^Process (?:finished|exited)|^(?:error: )?could not compile"
    r"|^Found \d+ errors?|^\u2716 \d+ problems?|^(?:Total|Summary)\s{0,3}:"
)


def candidates(lines: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the offset and the characters of words that may report an error.

    Yields:
        One for each line, and of a long line one every 2,000 bytes, at most 40.
    """
    return _hits(_compiled(_CANDIDATE), lines)


def _worst_candidates(lines: bytes) -> Iterator[tuple[int, bytes]]:
    return _hits(_compiled(_WORST), lines)


def _hits(pattern: Any, lines: bytes) -> Iterator[tuple[int, bytes]]:
    position = end = apart = 0
    while (found := pattern.search(lines, position)) is not None:
        start: int = found.start()
        yield start, lines[start : found.end()]
        if start >= end:
            end = lines.find(b"\n", start)
            end = len(lines) if end < 0 else end
            apart = max(_APART_BYTES, (end - start) // _MOST_IN_A_LINE)
        position = start + apart if start + apart < end else end + 1


def severity_of(line: str | bytes) -> float:
    """Rate a line by the severity of its error: 100 is the most severe, 0 means no error."""
    line = (line.encode("utf-8", "replace") if isinstance(line, str) else line)[:_LOOKED_AT]
    found = _judged(line)
    if _NONE in found or (_GUTTER in found and _PLACED not in found and not _DATE.match(line)):
        is_read = _READ in found
        text = line.decode("utf-8", "replace")
        bare = _DENIAL.sub("", text)
        if bare != text and _compiled(_CANDIDATE).search(bare.encode("utf-8", "replace")) is None:
            return 0.0
        # The code is recognized by the whole line: a denial is a part of it.
        code = found if _PLACED in found else _judged(_GUTTERS.sub("", text).encode("utf-8", "replace"))
        code = code | found & {_CERTAIN}  # "a.py:7: error: Missing return" is certain with its place only
        bare = bare if _PLACED in found else _GUTTERS.sub("", bare)
        found = _judged(bare.encode("utf-8", "replace")) - {_CODE, _CERTAIN} | code & {_CODE, _CERTAIN}
        found = found | {_READ} if is_read else found
    if _BARE in found:
        return _BARE_WEIGHT
    if _NOTE in found:
        return _WEIGHTS[_DETAIL if min(found) < _PLACED else _WARNING][0]
    is_code = _CODE in found and (_READ in found or _CERTAIN not in found)
    best = min(found, default=_CODE)
    if best > _WARNING:
        return _SUSPECT[is_code]
    weight, code_weight = _WEIGHTS[best]
    return code_weight if is_code else min(weight, _MOST_READ) if _READ in found else weight


def form_of(line: bytes) -> bytes:
    """Return the words of a message without its values: lines of one form report the same, each about its own value.

    Returns:
        The form of the message of a record in JSON or in `key=value` pairs; ``b""`` for JSON without a message.
    """
    is_record = line.lstrip()[:1] == b"{"
    message = _MESSAGE.search(line) if is_record or b'="' in line else None
    if is_record and message is None:
        return b""
    return _VARYING.sub(b"_", (line if message is None else message[1])[:_FORM_BYTES].strip())


def last_verdict(lines: Sequence[str]) -> int | None:
    """Return how many lines follow the last one that reports how a whole run ended; None if none does."""
    found = (place for place, line in enumerate(reversed(lines)) if _VERDICT.search(line[:_LOOKED_AT]))
    return next(found, None)


@lru_cache(maxsize=2)  # without its gutter, a line is judged for code and for errors
def _judged(line: bytes) -> frozenset[int]:
    places: list[int] = _judges().Match(line) or []
    return frozenset(_JUDGED[place][0] for place in places)


@cache
def _compiled(pattern: str) -> Any:
    # Imported with the first text: a program that only appends does not need it.
    return import_module("re2").compile(pattern.encode())


@cache
def _judges() -> Any:
    re2: Any = import_module("re2")
    options = re2.Options()
    options.max_mem = 1 << 26  # with too little memory, a set would find nothing
    judges = re2.Set.SearchSet(options)
    for _, pattern in _JUDGED:
        judges.Add(pattern)
    judges.Compile()
    return judges


_MAX_SIMILAR = 3
_MAX_KINDS = 20_000
# Judging a line takes 5 to 20 microseconds. The first limit holds for the whole text, the second for each block; beyond
# both, only the most severe lines are judged.
_MAX_JUDGED = 800
_MAX_JUDGED_PER_BLOCK = 200
_MAX_HITS_PER_BLOCK = 1_000
_CONTEXT_BYTES = 200
_BEFORE_CHARS = 30
_JUDGED_BYTES = 600
_LEAST_CERTAIN = 60.0
_REPEATED = 2.0
_DIGIT_BYTES = b"0123456789"


@dataclass(slots=True)
class _ErrorKind:
    number: int
    weight: float
    column: int
    word: str
    line: bytes
    count: int = 0
    similar: list[int] = field(default_factory=list[int])

    def add(self, numbers: Sequence[int]) -> None:
        """Count more lines of the kind; the numbers of the next ones and of the last are kept."""
        self.count += len(numbers)
        others = [number for number in numbers[: _MAX_SIMILAR + 1] if number != self.number]
        self.similar += others[: _MAX_SIMILAR - len(self.similar)]
        if self.similar and numbers[-1] > self.similar[-1]:
            self.similar = [*self.similar[: _MAX_SIMILAR - 1], numbers[-1]]


class ErrorLines:
    """The error lines of a text by kind: lines of one kind differ in digits only."""

    def __init__(self) -> None:
        """Begin with no lines."""
        # None for a kind of lines that report no error.
        self._kinds: dict[bytes, _ErrorKind | None] = {}
        self._judged = 0

    def read(self, content: bytes, lines: Sequence[bytes], first: int) -> None:
        """Add the *lines* of a block with this *content*; *first* is the number of the first one."""
        hits = list(islice(candidates(content), _MAX_HITS_PER_BLOCK))
        if len(hits) < _MAX_HITS_PER_BLOCK:
            self._see_all(hits, content, lines, first)
        else:
            self._find_many_errors(content, lines, first)
        if len(self._kinds) > 2 * _MAX_KINDS:
            self._forget()

    def _see_all(self, hits: Iterable[tuple[int, bytes]], content: bytes, lines: Sequence[bytes], first: int) -> None:
        """Judge the line of each hit, or count it if its kind is known."""
        place = position = 0
        for start, word in hits:
            place += content.count(b"\n", position, start)
            position = start
            line, number = lines[place], first + place
            kind = line.translate(None, _DIGIT_BYTES)
            error = self._kinds.get(kind)
            if (error is None or error.weight <= _LEAST_CERTAIN) and _compiled(_NUMBERED).search(line[:_LOOKED_AT]):
                # Its digits report an error, whatever other lines of its kind say.
                kind = b"\n" + kind  # no line has this kind
                error = self._kinds.get(kind)
            if kind not in self._kinds:
                self._note(kind, number, line, start - (content.rfind(b"\n", 0, start) + 1), word)
                error = self._kinds.get(kind)
            if error is not None:
                error.add([number])

    def _find_many_errors(self, content: bytes, lines: Sequence[bytes], first: int) -> None:
        """Judge one line of each kind, and count the others without looking at each."""
        kinds = content.translate(None, _DIGIT_BYTES).split(b"\n")
        places = dict(zip(reversed(kinds), range(len(kinds) - 1, -1, -1), strict=True))
        if len(self._kinds) < _MAX_KINDS:
            self._judge(lines, kinds, sorted(places[kind] for kind in places.keys() - self._kinds.keys()), first)
        else:
            worst = islice(_worst_candidates(content), _MAX_JUDGED_PER_BLOCK)
            new = [(start, word) for start, word in worst if self._kinds.get(_kind_at(content, start)) is None]
            self._see_all(new, content, lines, first)
        numbers = {kind: list[int]() for kind in places if self._kinds.get(kind) is not None}
        for number, kind in enumerate(kinds, first) if numbers else ():
            if kind in numbers:
                numbers[kind].append(number)
        for kind, others in numbers.items():
            if (error := self._kinds[kind]) is not None:
                error.add(others)
        if len(numbers) > 2 * MAX_ERROR_KINDS:
            self._forget()

    def _judge(self, lines: Sequence[bytes], kinds: Sequence[bytes], places: Sequence[int], first: int) -> None:
        content = b"\n".join([lines[place] for place in places])
        starts = [0, *accumulate(len(lines[place]) + 1 for place in places)]
        most = max(_MAX_JUDGED - self._judged, _MAX_JUDGED_PER_BLOCK)
        hits = list(islice(candidates(content), most))
        self._judged += len(hits)
        if len(hits) == most:
            worst = islice(_worst_candidates(content[hits[-1][0] :]), _MAX_JUDGED_PER_BLOCK)
            hits += [(start + hits[-1][0], word) for start, word in worst]
        for start, word in hits:
            row = bisect_right(starts, start) - 1
            self._note(kinds[places[row]], first + places[row], lines[places[row]], start - starts[row], word)

    def _note(self, kind: bytes, number: int, line: bytes, found: int, word: bytes) -> None:
        start = max(found - _CONTEXT_BYTES, 0)
        weight = severity_of(line[start : start + _JUDGED_BYTES].removesuffix(b"\r"))
        known = self._kinds.setdefault(kind)
        if weight and (known is None or weight > known.weight):
            message = _MESSAGE.search(line) if line.lstrip()[:1] == b"{" else None
            column = len(line[: found if message is None else message.start()].decode("utf-8", "replace"))
            column -= _BEFORE_CHARS if column >= FAR_CHARS and message is None else 0
            word_text = word.decode("utf-8", "replace")
            self._kinds[kind] = _ErrorKind(number, weight, column, word_text, line[:_JUDGED_BYTES])

    def _forget(self) -> None:
        """Forget all errors but the most severe."""
        errors = [(kind, error) for kind, error in self._kinds.items() if error is not None]
        errors.sort(key=lambda pair: (-pair[1].weight, pair[1].number))
        for kind, _ in errors[2 * MAX_ERROR_KINDS :]:
            self._kinds[kind] = None
        self._kinds = dict(islice(self._kinds.items(), _MAX_KINDS)) | dict(errors[: 2 * MAX_ERROR_KINDS])

    def findings(self) -> list[Finding]:
        """Return a finding for each kind, ascending; at most 400, the most severe."""
        kinds = [kind for kind in self._kinds.values() if kind is not None]
        kinds = sorted(kinds, key=lambda kind: (-kind.weight, kind.number))[:MAX_ERROR_KINDS]
        kinds.sort(key=lambda kind: kind.number)
        last = max((kind.number for kind in kinds if kind.weight >= MUST_SHOW_WEIGHT), default=0)
        found, alike = list[Finding](), Counter[str]()
        parts = {kind.number for kind in kinds if kind.word.startswith("E ")}  # a message of pytest, over several lines
        for kind in kinds:
            weight = kind.weight
            is_report = kind.weight >= MUST_SHOW_WEIGHT
            # The first of fifty compiler messages say as much as all of them: another class of error comes first.
            if kind.number in parts and not parts.isdisjoint((kind.number - 1, kind.number - 2)):
                weight = min(weight, MUST_SHOW_WEIGHT)
            elif parts and kind.word == "FAIL":
                weight -= _REPEATED  # the message of the same failure says more
            elif is_report and kind.number != last:
                word_class = _DIGITS.sub("0", kind.word).strip().lower()
                weight -= min(alike[word_class], 6) / (4 if kind.number in parts else 2)
                alike[word_class] += 1
            word = kind.word if is_report else ""
            form = form_of(kind.line) if is_report else b""
            found.append(Finding(kind.number, weight, kind.column, kind.count, tuple(kind.similar), "", word, form))
        return found


def _kind_at(content: bytes, position: int) -> bytes:
    end = content.find(b"\n", position)
    line = content[content.rfind(b"\n", 0, position) + 1 : len(content) if end < 0 else end]
    return line.translate(None, _DIGIT_BYTES)
