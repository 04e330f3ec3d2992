r"""Errors: the lines with which a run reports that something went wrong.

A line with an error word may be one; the forms of levels, runners and compilers decide which. The forms only order the
lines: what merely has a word is shown behind them, if there is room.
"""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import Final

from buoyline.previews.rows import ERROR, FAR_CHARS, Row, linear, row_of
from buoyline.previews.source import decoded

MOST_KINDS = 400
"""Lines that differ in digits only are of one kind; behind this many kinds, others are only counted."""

_MOST_HITS = 10_000
_JUDGED_BYTES = 400
_ALIKE_STEP, _ALIKE_MOST, _SAME_FORM = 0.5, 3.0, 10.0
_FAILED_TEST, _LAST, _MOST_NAMED = 97.0, 96.0, 12
_MOST_OTHERS = 8
_WORD_WEIGHT, _QUOTED_WEIGHT = 64.0, 61.0

# In RE2 a word boundary is ASCII.
_FORMS: Final = {
    99.0: (
        r"\b(?:FATAL|CRITICAL|EMERG(?:ENCY)?|PANIC|OOMKilled|SIG(?:SEGV|ABRT|KILL))\b|^F\d{4} \d\d:\d\d:\d\d",
        r"\bpanic: |panicked at|\bfatal error\b|[Ss]egmentation fault|core dumped|DATA RACE",
        r"[Oo]ut of memory|OutOfMemory",
    ),
    _FAILED_TEST: (
        r"^\s*--- FAIL|\bFAILED\b|\[FAIL|<(?:failure|error)\b|^\s*not ok\b",
        "^\\s*[\u2715-\u2718\u274c\u00d7] |^\\s*\u25cf .*\u203a",
    ),
    95.0: (
        r"\bERR(?:OR)?S?\b|\bFAIL(?:URES?)?\b|\bSEVERE\b|^E\d{4} \d\d:\d\d|^E {2,}\S|\blevel=(?:error|fatal|panic)",
        r"^\W*(?:[Ee]rror|[Ff]ail(?:ed|ure)|fatal)\b|\b[Ee]rror(?:\[\w+\]| ?[A-Z]+\d+)?\s?[:(]",
        r"\b[Ee]rror (?:response )?from \w|\w(?:Error|Exception)\b\s*(?::|$)|Caused by: ",
        r"\"(?:level|severity|lvl|status|state|outcome|result)\" ?: ?\"(?i:error|fatal|critical|fail(?:ed|ure))\"",
        r"\"level\" ?: ?[56]0\b|\"(?:ok|success)\" ?: ?false|\"errors?\" ?: ?[\"{\[]",
        r"(?:^|[,;\t|])\s*\"?(?:error|failed|failure|fatal)\"?\s*(?:[,;\t|]|$)",
        r"[Nn]o such file|[Pp]ermission denied|command not found|[Cc]onnection refused|[Tt]imed out\b",
        r"\b[Ee]xit(?:ed)?(?: with)?(?: code| status)[ :=]+[1-9]|non-zero exit",
        r"^g?make(?:\[\d+\])?: \*\*\*|^npm (?:ERR!|error)",
        r"\b[1-9]\d* (?:failed|failing|failures?|errors?)\b|\b(?:failures|errors)=\"[1-9]|undefined reference",
        r"\bORA-\d{5}|\bSQLSTATE\b|HTTP/[\d.]+\"? 5\d\d\b|\b5\d\d (?:[A-Z]\w+ )+(?:Error|Gateway|Unavailable|Timeout)",
        r"CrashLoopBackOff|ImagePullBackOff|ErrImagePull|\bFehler\b|\b[Ee]rreur\b",
        "\u9519\u8bef|\u932f\u8aa4|\u5931\u8d25|\u5931\u6557|\u5f02\u5e38|\u30a8\u30e9\u30fc|\uc624\ub958",
        "[\u041e\u043e]\u0448\u0438\u0431\u043a|[\u00c9\u00e9]chec\\b",
    ),
    92.0: (  # messages with a place
        r"^\s*(?:vet: )?[^\s:(]+\.\w+(?::\d+:\d+|\(\d+,\d+\)): \S|^Traceback",
        r"^(?:[A-Z]{1,4}\d{3,4}|invalid-syntax:) (?:\[\*\] )?[A-Z`]",
        r"_test\.go:\d+: .*(?i:\bexpect|\bwant|\bgot\b|should|fail|error|\bnot?\b|missing|mismatch|must|n't\b|!=)",
    ),
    84.0: (
        r"^\s*(?:[Ee]xpected|[Rr]eceived|[Aa]ctual|[Ww]ant|[Gg]ot)\s*[:=]|^ {1,2}(?:left|right): ",
        r"(?:^\W*|: )(?:[Uu]nable to|[Cc]annot|[Cc]ould not) \w|HTTP/[\d.]+\"? 4\d\d\b",
    ),
    70.0: (r"\bWARN(?:ING)?\b|\b[Ww]arning\b\s*:|\blevel=warn|^W\d{4} \d\d:\d\d:\d\d|^\s*--> \S+:\d+:\d",),
    _WORD_WEIGHT: (r"(?i:error|fatal|fail|panic|exception|traceback)",),
}
_ANY_FORM: Final = f"(?:{'|'.join(form for forms in _FORMS.values() for form in forms)})[^\n]*"
_DENIED: Final = re.compile(
    rb"(?i)\b(?:0|no|without|zero)\s(?:\w+\s)?(?:errors?|failed|failures?|warnings?)\b"
    rb"|[\"']?\b(?:errors?|failures?|failed|exceptions?|warnings?)[\"']?\s?[:=]\s?"
    rb"(?:[\"'\[{(]?(?:0|null|none|nil|false)\b|\[\]|\{\}|\(\)|\"\"|'')"
)
_PASSED: Final = re.compile(
    rb"\bPASS(?:ED)?\b|^ok\s|\.\.\. ok$|^\s*(?:\xe2\x9c\x93|\xe2\x9c\x94|\xe2\x88\x9a)\s|^\s*ok \d"
)
# Lines of a program, of a reader that numbers lines, of a search and of a diff.
_CODE: Final = re.compile(
    rb"(?:[{;,(]|=>|->|&&|\|\||\\n|\*/)\s*$|:=|!= nil|=>|\breturn\b"
    rb"|^\s*(?:func|def|class|if|elif|else|throw|raise|catch|case|for|try|except|import|from|const|let|var|export|public"
    rb"|private|type|fn|impl|assert)\b|^\s*(?://|/\*|\*\s|#\s|<!--)|\w\(.*\)\s*[;,{]?\s*$"
    rb"|^\s*\d+(?:\t| ?\| )|^[^\s:]*[./][^\s:]*[:-]\d+[:-](?!\d+:? )|^\d+[:-](?!\d)|^[+-][^+-]"
)
_NUMBERED: Final = re.compile(rb"^\s*\d+(?:\xe2\x86\x92| \| )")
# No program has lines of these forms, whatever code they quote.
_SURE: Final = re.compile(
    rb"^E {2,}\S|^\s*--- FAIL|^Traceback|^panic: |^npm (?:ERR!|error)|^error(?:\[\w+\])?: "
    rb"|^\s*(?:(?:Caused by|Uncaught|Unhandled):? )?(?:[\w$]+\.)*[A-Z]\w*(?:Error|Exception): "
    rb"|^\[?\d{4}-\d\d-\d\d.*\b(?:ERROR|FATAL|CRITICAL)\b|^\[(?:ERROR|FATAL)\] |_test\.go:\d+: "
    rb"|^[^\s:(]+[:(]\d+(?:[:,]\d+)?\)?:? (?:- )?(?:fatal )?error\b"
)
# A word alone, a heading, or a note that explains the message above it says less than other lines.
_BARE: Final = re.compile(
    rb"^\W*(?:FAIL|FAILED|[Ee]rror|ERROR|errors?)\W*$|^={4,} \D*$|^[^\s:]+:\d+(?::\d+)?: note: "
    rb"|^\S+ (?:FAILED|ERROR)\s+\[ *\d+%\]$"
)
_VALUES: Final = re.compile(
    rb"'[^']{0,200}'|\"[^\"]{0,200}\"|`[^`]{0,200}`|[^\s'\"`()\[\]<>{},;=]*[\d_./\\@][^\s'\"`()\[\]<>{},;=]*"
)
_VERDICT: Final = re.compile(r"(?i)\b\d+ (?:tests? )?(?:passed|failed|errors?|failures?|warnings?|problems?)\b")
_DIGITS: Final = b"0123456789"
_NO_DIGITS: Final = str.maketrans("", "", "0123456789")


class ErrorLines:
    """Collects the error lines of a text that is read in blocks, one row for each kind."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._kinds: dict[bytes, Row | None] = {}

    def read(self, content: bytes, first: int) -> None:
        """Add the lines of *content*, in UTF-8, of which the first is line *first*."""
        number, place = first, 0
        for hit in islice(linear(_ANY_FORM).finditer(content), _MOST_HITS):
            start = hit.start()
            number += content.count(b"\n", place, start)
            place = start
            begin, end = content.rfind(b"\n", 0, start) + 1, content.find(b"\n", start)
            self._add(number, content[begin : end if end >= 0 else len(content)], start - begin)

    def _add(self, number: int, line: bytes, at: int) -> None:
        begin = max(at - _JUDGED_BYTES, 0)
        seen = line[begin : begin + _JUDGED_BYTES + FAR_CHARS]
        # "0 failed" and "3 failed" match at different places.
        kind = line[begin:at].translate(None, _DIGITS) + b"\n" + line[at : at + FAR_CHARS].translate(None, _DIGITS)
        known = self._kinds.get(kind)
        if known is not None:
            others = known.others if len(known.others) < _MOST_OTHERS else known.others[:-1]
            self._kinds[kind] = known._replace(lines=known.lines + 1, others=(*others, number))
        elif kind not in self._kinds and len(self._kinds) < MOST_KINDS:
            weight, word, place = judged(seen)
            column = len(decoded(line[: begin + place]))
            row = row_of(number, weight, decoded(line), column)
            form = _VALUES.sub(b"_", seen[:300].strip()) if weight >= ERROR and weight != _FAILED_TEST else b""
            self._kinds[kind] = row._replace(word=word, form=form) if weight else None

    def rows(self, *, is_free: bool = False, quoted: frozenset[int] = frozenset()) -> list[Row]:
        """Return the rows in the order of the text; in a free text and in quoted lines, few are errors.

        Of errors with the same word, the later ones weigh less, but for the last one; those of the same form weigh even
        less, since they can be named by number. Failed tests come first, up to twelve of them.
        """
        found = sorted(row for row in self._kinds.values() if row)
        last = max((row.number for row in found if row.weight >= ERROR), default=0)
        words, forms, rows = Counter[str](), set[bytes](), list[Row]()
        like = Counter(row.form for row in found)
        for row in found:
            word, weight = row.word.lower().translate(_NO_DIGITS), row.weight
            if row.number in quoted or (is_free and weight < ERROR):
                rows.append(row._replace(weight=min(weight, _QUOTED_WEIGHT), word="", form=b""))
                continue
            if weight == _FAILED_TEST:
                weight -= 6 * (words[word] >= _MOST_NAMED)
            elif row.number == last:
                weight = _LAST
            elif row.form and row.form in forms:
                weight = max(weight - _SAME_FORM, ERROR)
            elif weight >= ERROR:
                weight -= min(_ALIKE_STEP * words[word], _ALIKE_MOST) - min(like[row.form], 10) / 10 * bool(row.form)
            words[word] += 1
            forms.add(row.form)
            rows.append(row._replace(weight=weight))
        return rows


def judged(line: bytes) -> tuple[float, str, int]:
    """Return the weight of a line, the word of an error, and its place; no weight if the line denies an error."""
    hits = ((weight, linear("|".join(forms)).search(line)) for weight, forms in _FORMS.items())
    weight, hit = next(((weight, hit) for weight, hit in hits if hit is not None), (0.0, None))
    if hit is None or (_DENIED.search(line) and not hit.re.search(_DENIED.sub(b"", line))):
        return 0.0, "", 0
    if _PASSED.search(line):
        weight = 0.0 if weight >= ERROR else min(weight, _QUOTED_WEIGHT)
    elif _NUMBERED.match(line) or (_CODE.search(line) and not _SURE.search(line)):
        weight = min(weight, _QUOTED_WEIGHT)
    elif _BARE.search(line):
        weight = min(weight, _WORD_WEIGHT)
    return weight, decoded(hit.group()).strip() if weight > _WORD_WEIGHT else "", hit.start()


def verdict(tail: Sequence[Row]) -> Row | None:
    """Return the last row of *tail* that counts what passed and failed."""
    return next((row._replace(weight=98.0) for row in reversed(tail) if _VERDICT.search(row.text[:400])), None)
