"""Lines with errors, and odd rows: words that no other line has, values unlike all others of their column.

What is odd is rare by definition: at most one line in twenty, and at most three of a column.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice
from math import fsum
from typing import Any, Final, NamedTuple

from buoyline.previews.source import ERROR, FAR_CHARS, Row, decoded, linear, row_of, shortened

_MOST_SHAPES, _MOST_SCORED = 10_000, 400
_MOST_BYTES = 4_000
_RARE_SHARE = 400
_SEEN_BYTES, _BEGIN_BYTES = 160, 6
_LEAST_SHARE = 20
_LEAST_SCORE = 2.4
_HEAVIEST, _LIGHTEST = 74.0, 62.0

_DIGITS: Final = b"0123456789"
_LETTERS: Final = bytes(code for code in range(256) if code > 0x7F or chr(code).isalpha())  # noqa: PLR2004 - past ASCII
_WORDS: Final = bytes(
    ord(chr(code).lower()) if code in _LETTERS and code < 0x80 else code if code in _LETTERS or code == 0x0A else 0x20  # noqa: PLR2004 - line ends stay
    for code in range(256)
)
_FORM: Final = bytes(0x61 if code in _LETTERS else 0x30 if code in _DIGITS else code for code in range(256))


class RareLines:
    """Collects the lines of a text that is read in blocks; lines that differ in digits only are of one shape."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._shapes: dict[bytes, tuple[int, bytes]] = {}
        self._counts = Counter[bytes]()
        self._lines = 0

    def read(self, content: bytes, first: int) -> None:
        """Add the lines of *content*, in UTF-8, of which the first is line *first*."""
        lines, shapes = content.split(b"\n"), content.translate(None, _DIGITS).split(b"\n")
        self._lines += len(lines)
        if len(self._shapes) >= _MOST_SHAPES:
            return
        self._counts.update(shapes)
        for number, (shape, line) in enumerate(zip(shapes, lines, strict=True), first):
            if shape not in self._shapes and len(line) < _MOST_BYTES:
                self._shapes[shape] = number, line

    def rows(self, most: int, quoted: frozenset[int] = frozenset()) -> list[Row]:
        """Return at most *most* lines, those with the rarest words, punctuation, form and beginning, the rarest first.

        Each of these may be chance, and rare words often are in prose; a line from another text has them all.
        """
        shapes = list(islice(self._shapes, _MOST_SHAPES))
        if not shapes:
            return []
        text = b"\n".join([self._shapes[shape][1][:_SEEN_BYTES] for shape in shapes])
        words = [line.split() for line in text.translate(_WORDS).split(b"\n")]
        signs = [line.split() for line in text.translate(None, _LETTERS + _DIGITS).split(b"\n")]
        forms = _collapsed(text.translate(_FORM)).split(b"\n")
        counts = [self._counts[shape] for shape in shapes]
        same_word, same_sign = Counter(chain.from_iterable(words)), Counter(chain.from_iterable(signs))
        same_form, same_begin = Counter[bytes](), Counter[bytes]()
        for count, of_line, form in zip(counts, words, forms, strict=True):
            same_form[form] += count
            same_begin[form[:_BEGIN_BYTES]] += count
            if count > 1:
                same_word.update(of_line)
        once = {word for word, count in same_word.items() if count == 1 and 3 <= len(word) <= 20}  # noqa: PLR2004 - a longer one is data
        places = [
            place
            for place, of_line in enumerate(words)
            if counts[place] == 1 and not once.isdisjoint(of_line) and self._shapes[shapes[place]][0] not in quoted
        ]
        places.sort(key=lambda place: (-len(once.intersection(words[place])) / (len(words[place]) + 2), place))
        rare, found = max(2, self._lines // _RARE_SHARE), list[tuple[float, int, bytes]]()
        for place in places[:_MOST_SCORED]:
            long = {word for word in words[place] if 3 <= len(word) <= 20}  # noqa: PLR2004 - as above
            score = (
                2 * fsum(1 / same_word[word] for word in long) / max(len(long), 3)
                + 0.08 * min(len(once & long), 6)
                + 0.5 * any(same_sign[sign] == 1 for sign in signs[place])
                + (same_form[forms[place]] <= 2)  # noqa: PLR2004 - twice may be chance
                + 0.6 * (same_begin[forms[place][:_BEGIN_BYTES]] <= rare)
            )
            found.append((-score, *self._shapes[shapes[place]]))
        most = min(most, self._lines // _LEAST_SHARE)
        return [
            row_of(number, _HEAVIEST - (_HEAVIEST - _LIGHTEST) * rank / most, decoded(line))
            for rank, (score, number, line) in enumerate(sorted(found)[:most])
            if score <= -_LEAST_SCORE
        ]


def _collapsed(forms: bytes) -> bytes:
    """Return *forms* with one sign for each word and each number."""
    for sign in (b"a", b"0"):
        while 2 * sign in forms:
            forms = forms.replace(2 * sign, sign)
    return forms


class OddValue(NamedTuple):
    """A value that differs from all others of its column, by its *place* there."""

    place: int
    weight: float
    reason: str


_LEAST_VALUES = 8
_PLURALS: Final = {"text": "texts", "number": "numbers", "object or array": "objects or arrays"}
_FEW = 3
_MOST_REPEATED = 12


def odd_values(values: Sequence[Any]) -> list[OddValue]:
    """Return the few values of a column that have another type, a number far from all others, or a text used once."""
    few = max(1, min(_FEW, len(values) // 50))
    if len(values) < _LEAST_VALUES:
        return []
    is_uniform = (
        len(set(map(type, values))) == 1 and "" not in values
    )  # most columns are, and need no look at each value
    kinds = [_kind(values[0])] * len(values) if is_uniform else [_kind(value) for value in values]
    count = Counter(kinds)
    usual, usually = count.most_common(1)[0]
    others = f"{usually:,} others are {_PLURALS.get(usual, usual)}"
    found = [
        OddValue(place, 88.0 if kind in {"null", "empty"} else 95.0, f"{kind}, {others}")
        for place, kind in enumerate(kinds if len(count) > 1 else ())
        if kind != usual and count[kind] <= few
    ]
    rest = [(value, place) for place, value in enumerate(values) if is_uniform or kinds[place] == usual]
    if usual == "number":
        ranked = sorted(rest)
        with suppress(OverflowError):  # an integer beyond all floats
            found += [*_apart(ranked, few), *_apart([(-value, place) for value, place in reversed(ranked)], few)]
    elif usual == "text":
        found += _used_once(rest)
    return sorted(found, key=lambda odd: -odd.weight)[:few]


def _kind(value: Any) -> str:
    if isinstance(value, str):
        return "text" if value else "empty"
    if isinstance(value, bool):
        return "true or false"
    if value is None:
        return "null"
    return "number" if isinstance(value, int | float) else "object or array"


def _apart(ranked: list[tuple[Any, int]], few: int) -> Iterator[OddValue]:
    """Yield the last values of *ranked* if the gap before them is larger than the span of all others."""
    for size in range(1, min(few, len(ranked) - 1) + 1):
        low, before, after = ranked[0][0], ranked[-size - 1][0], ranked[-size][0]
        if after - before > max(before - low, abs(before) / 2, 1) or after > 10 * before > 10:  # noqa: PLR2004
            least, most = sorted((abs(low), abs(before))) if low * before > 0 else (min(low, before), max(low, before))
            yield from (OddValue(place, 92.0, f"others {least:g} to {most:g}") for _, place in ranked[-size:])
            return


def _used_once(texts: list[tuple[str, int]]) -> list[OddValue]:
    count = Counter(text for text, _ in texts)
    usual = [text for text, times in count.items() if times > 2]  # noqa: PLR2004 - repeated
    once = [place for text, place in texts if count[text] == 1]
    if not usual or len(usual) > _MOST_REPEATED or len(once) > _FEW or len(usual) + len(once) < len(count):
        return []
    others = ", ".join(f'"{shortened(text, 24)}"' for text in usual[:3])
    return [OddValue(place, 90.0, f"others are {others}") for place in once]


MOST_KINDS = 400
"""Lines that differ in digits only are of one kind; after this many kinds, others are only counted."""

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
_NUMERALS: Final = b"0123456789"
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
        kind = line[begin:at].translate(None, _NUMERALS) + b"\n" + line[at : at + FAR_CHARS].translate(None, _NUMERALS)
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
