"""Check what a summary says of checks, such as "all tests pass", against the last run of the check.

A sentence is read by its form: what is checked, and a word for its outcome. It is no claim if it is quoted, asked,
wished, denied or restricted ("until all tests pass", "all tests pass except ..."). A claim that no run of its check
decides is not judged, so that a mark always repeats what a run said.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from buoyline.compression.identifiers import FENCES, mentions, readable
from buoyline.compression.summary import Draft
from buoyline.compression.work_state import CheckState, WorkState

STATUS_MARK: Final = re.compile(
    r" \(unverified: the last run of `[^`\n]{1,200}` (?:failed|passed)(?:: “[^”\n]{0,400}”)?\)"
)
"""Follows a claim that the last run of its check contradicts; as `_mark` writes it."""

_PLANNED: Final = "next_steps"
_MAX_COMMAND_CHARS: Final = 100
_MAX_LINE_CHARS: Final = 160
_MAX_TEXT_CHARS: Final = 2_000
"""Of a line; a longer one is no prose."""

_FILL = (
    r"(?:[ \t]{1,4}(?:now|still|also|all|again|both|currently|run|locally|jetzt|nun|alle|wieder|weiterhin|auch|beide"
    r"|lokal|inzwischen)){0,3}"
)
_SPACE = r"[ \t]{1,4}"
_WORDS = rf"(?:{_SPACE}\w{{1,20}}){{0,2}}?{_SPACE}"

_NOUNS: Final[Mapping[str, str]] = {
    "tests": r"tests|test[ -]?(?:suites?|cases)|suite|specs|testsuite|testfälle",
    "lint": r"lint(?:er|ers|ing)?",
    "build": r"builds?|compilation|kompilierung",
    "types": r"types|type[ -]?check(?:s|ing|er)?|typprüfung(?:en)?",
    "format": r"formatting|formatter|formatierung",
    "": r"checks|prüfungen",
}
"""Words for the things that are checked, by kind; the last kind is any check."""

_COMMANDS: Final[Mapping[str, re.Pattern[str]]] = {
    kind: re.compile(rf"(?:^|[^a-z])(?:{words})(?:$|[^a-z])", re.IGNORECASE)
    for kind, words in {
        "tests": r"(?:py|vi|un|no)?(?:unit)?tests?|jest|spec|e2e",
        "lint": r"\w{0,9}lint|vet|clippy|ruff check|flake8",
        "build": r"build|compile",
        "types": r"type-?check|check-?types|mypy|\w{0,6}pyright|tsc",
        "format": r"\w{0,6}fmt|format",
    }.items()
}
"""Which commands check it."""

_PASSES = (
    r"pass(?:es|ing)?|succeeds?"
    rf"|(?:is|are|stays?|remains?)(?:{_WORDS}|{_SPACE})(?:passing|green|clean|successful|error-free)"
    r"|green|clean(?![ -]?up)|\u2705|\u2713|\u2714"
    rf"|bestehen|besteht|gelingt|grün|sauber|fehlerfrei|(?:laufen|läuft)(?:{_WORDS}|{_SPACE})durch"
    rf"|(?:sind|ist|bleiben|bleibt)(?:{_WORDS}|{_SPACE})(?:grün|sauber|erfolgreich|fehlerfrei|bestanden|in ordnung)"
)
_PASSED = (
    r"passed|succeeded"
    rf"|(?:was|were|have|has)(?:{_WORDS}|{_SPACE})(?:passed|passing|green|clean|successful)"
    rf"|bestanden|gelang|liefen(?:{_WORDS}|{_SPACE})durch"
    rf"|(?:war|waren)(?:{_WORDS}|{_SPACE})(?:grün|sauber|erfolgreich|fehlerfrei|bestanden)"
)
_FAILS = (
    rf"(?:is|are)(?:{_WORDS}|{_SPACE})(?:failing|broken|red)|(?:still|currently|now){_SPACE}fail(?:s|ing)?"
    rf"|(?:schlagen|schlägt)(?:{_WORDS}|{_SPACE})fehl|(?:sind|ist)(?:{_WORDS}|{_SPACE})(?:rot|kaputt)"
)
_END = (
    r"(?![\w-])(?=[ \t]{0,4}(?:$|[.,;:!?)\]\u2026\u2013\u2014(\u2705\u2713-]|(?:and|or|again|now|with|without|in|on|for"
    r"|at|after|since|so|too|as|locally|successfully|cleanly|und|jetzt|wieder|nun|mit|ohne|seit|nach|im|auch|erneut)\b))"
)

_NOUN: Final = "|".join(_NOUNS.values())
_OTHER_FORMS: Final = (
    rf"(?P<passes_1>pass(?:es)?{_SPACE}(?:all|the (?:full|whole|entire)){_SPACE}(?:the{_SPACE})?(?P<what_1>{_NOUN}))"
    rf"|(?P<passes_2>(?:no|zero|0){_SPACE}(?:(?P<what_2>lint(?:er|ing)?|type|build|test){_SPACE}"
    r"(?:errors|issues|failures)|failing (?P<what_3>tests)))"
    rf"|(?P<passes_3>(?P<what_4>builds|compiles){_SPACE}(?:cleanly|successfully|without errors))"
    rf"|(?P<passes_4>bestehen{_FILL}{_SPACE}(?:alle|sämtliche|die){_SPACE}(?P<what_5>tests|prüfungen))"
    rf"|(?P<passes_5>(?:laufen|sind){_FILL}{_SPACE}(?:alle|sämtliche|die){_SPACE}(?P<what_6>tests|prüfungen)"
    rf"(?:{_WORDS}|{_SPACE})(?:durch|grün|sauber|erfolgreich|fehlerfrei))"
    rf"|(?P<passes_6>keine{_SPACE}(?:(?P<what_7>lint|typ|build|test)-?fehler|fehlschlagenden (?P<what_8>tests)))"
)
_UNSPACED_FORMS: Final = (
    r"(?P<passes_7>(?P<what_9>测试|检查|构建|编译)(?:用例|套件)?[都均已经全部现在]{0,6}(?:通过|成功))"
    r"|(?P<passes_8>(?P<what_10>テスト|ビルド)(?:スイート)?[はがも]?(?:すべて|全て|全部)?(?:通過|成功|合格|パス|通って))"
)
_FOREIGN_KINDS: Final[Mapping[str, str]] = {
    "测试": "tests",
    "テスト": "tests",
    "检查": "",
    "构建": "build",
    "编译": "build",
    "ビルド": "build",
    "test": "tests",
    "type": "types",
    "typ": "types",
    "compiles": "build",
}

_HEDGED: Final = re.compile(
    r"\b(?:not|never|no longer|until|till|once|when|whenever|if|unless|whether|before|ensur\w*|make sure|verif\w*"
    r"|confirm\w*|check (?:that|if|whether)|so that|in order|should|must|will|would|may|might|can|could|need\w*"
    r"|requir\w*|expect\w*|want\w*|goal|todo|assum\w*|hop\w{1,4}|to (?:make|get|have|see)|user|asked|said|says|told"
    r"|claim\w*|wonder\w*|nicht|nie|kein|bis|sobald|wenn|falls|sofern|damit|ob|bevor|sicher\w*|prüf(?:e|en|t)|soll\w*|muss|müssen"
    r"|wird|werden|würde\w*|könn\w*|benutzer\w*|nutzer\w*)\b|\w+n['\u2019]t\b|\[ \]"
    r"|确保|直到|如果|需要|应该|必须|还没|没有|尚未|ように|まで(?:に)?",
    re.IGNORECASE,
)
"""Before or within a claim in its sentence: it is denied, wished, or another's."""

_RESTRICTED: Final = re.compile(
    r"\b(?:except|but|besides|apart|other than|aside|save for|only|when|if|once|unless|until|fail\w*|nicht|nur|außer"
    r"|bis auf|aber|jedoch|wenn|sobald|falls|fehl\w*)\b|\?|ように|まで|たら|れば|前に",
    re.IGNORECASE,
)
"""Behind a claim in its sentence."""

_EARLIER: Final = re.compile(
    r"\b(?:earlier|previously|originally|initially|at (?:that|this) point|then|first|zuvor|vorher|damals|zunächst"
    r"|dann)\b"
    r"|\bwith(?:[ \t]+(?:all|the|\d+)){0,3}[ \t]*$",
    re.IGNORECASE,
)
_SO: Final = re.compile(r"\bdamit\s*$", re.IGNORECASE)
"""Before a verb it is "so"; elsewhere it is "so that", and begins a wish."""
_QUOTED: Final = re.compile(r"\"[^\"\n]{0,400}\"|“[^”\n]{0,400}”|„[^“\n]{0,400}“|«[^»\n]{0,400}»")
_SENTENCE_BORDER: Final = re.compile(r"[.;!](?=\s)|[\u3002\uff1b\uff01]")
_CLAUSE_BORDER: Final = re.compile(
    r"[.;!,:()](?=\s|$)|[(\u3002\uff1b\uff01\uff0c\uff1a\uff08\uff09]|\s[\u2013\u2014-]\s"
)
_SPAN: Final = re.compile(r"`([^`\n]{2,200})`")
_GENERAL: Final = frozenset(
    re.findall(
        r"\w+",
        "all it the our of every full whole entire complete and or now still that which so with both alle die "
        "der das sämtliche gesamte ganze und oder jetzt auch dass mit sind laufen bestehen no zero keine "
        "failing fehlschlagenden ",
    )
)
"""Words before the noun that restrict it to no part of the checks."""


@dataclass(frozen=True, slots=True)
class StatusClaim:
    """A statement on the outcome of checks, that they pass or that they fail; *end* is its end in the text.

    *kinds* says what is checked, by keys of `_NOUNS`. *names* has commands, programs, paths and other words; a check
    that is meant has one of each group in its command.
    """

    text: str
    end: int
    passes: bool
    is_past: bool
    kinds: tuple[str, ...]
    names: tuple[frozenset[str], ...]


def status_claims(text: str, work: WorkState) -> Iterator[StatusClaim]:
    """Yield the claims of status in *text*, in order; *work* has the names of the programs that check."""
    claim_form = _claim_form(text, work)
    start, in_code = 0, False
    for line in text.split("\n"):
        if line.lstrip().startswith(FENCES):
            in_code = not in_code
        elif not in_code and len(line) <= _MAX_TEXT_CHARS:
            plain = _QUOTED.sub(lambda found: "?" * len(found[0]), line.replace("*", " "))
            claims = _claims_of(plain, claim_form, work)
            yield from (replace(claim, end=claim.end + start) for claim in claims)
        start += len(line) + 1


def contradicted(text: str, work: WorkState) -> Iterator[tuple[StatusClaim, CheckState]]:
    """Yield the claims of *text* that the last run of their check contradicts, each with that check."""
    for claim in status_claims(text, work):
        for kind in claim.kinds or ("",):
            meant = [check for check in work.checks.values() if _is_meant(check, claim, kind)]
            if (check := _contradicting(claim, meant, kind)) is not None:
                yield claim, check
                break


def with_checked_status(draft: Draft, work: WorkState | None) -> tuple[Draft, tuple[str, ...]]:
    """Return *draft* with marks behind the claims that the last run contradicts, and these claims with the marks.

    Plans are no status: a field `next_steps` is not read. Without *work* nothing is known.
    """
    if work is None or not work.checks:
        return draft, ()
    fields, found = dict(draft.fields), list[str]()
    for name, text in draft.fields.items():
        if name != _PLANNED:
            fields[name], refuted = with_status_marks(text, work)
            found += refuted
    return replace(draft, fields=fields), tuple(dict.fromkeys(found))


def with_status_marks(text: str, work: WorkState) -> tuple[str, tuple[str, ...]]:
    """Return *text* with what the last run said behind each claim that it contradicts, and these claims.

    Old marks are replaced, since a later run may have said something else.
    """
    plain = STATUS_MARK.sub("", text)
    pieces: list[str] = []
    found: list[str] = []
    start = 0
    for claim, check in contradicted(plain, work):
        said = _mark(check)
        if claim.end > start:
            pieces += [plain[start : claim.end], said]
            start = claim.end
            found.append(f"{claim.text}{said.replace('unverified: ', '')}")
    return "".join([*pieces, plain[start:]]), tuple(dict.fromkeys(found))


def _mark(check: CheckState) -> str:
    command = readable(check.command.replace("`", "'"))[:_MAX_COMMAND_CHARS].rstrip()
    line = readable(check.line.replace("”", '"'))[:_MAX_LINE_CHARS].rstrip()
    said = f": “{line}”" if line else ""
    return f" (unverified: the last run of `{command}` {'failed' if check.outcome == 'fails' else 'passed'}{said})"


def _claim_form(text: str, work: WorkState) -> re.Pattern[str]:
    """Return what finds the claims of *text* on these checks.

    Its words are those that *text* has, so that most texts share one: to compile it for others takes 15 ms.
    """
    lowered = text.lower()
    words = {
        word
        for check in work.checks.values()
        for word in check.command.split()[:4]
        if word.lower() in lowered
        and re.fullmatch(r"[A-Za-z][\w-]{3,30}", word)
        and not re.fullmatch(rf"{_NOUN}|test", word, re.IGNORECASE)
    }
    named = "".join(f"|{re.escape(word)}" for word in sorted(words, key=len, reverse=True))
    item = rf"(?:`[^`\n]{{2,200}}`(?:{_SPACE}(?:{_NOUN}))?|{_NOUN}{named})"
    border = rf"[ \t]{{0,2}}(?:,|/|&|\+|\band\b|\bund\b)[ \t]{{0,2}}(?:(?:and|und|the){_SPACE})?"
    items = rf"{item}(?:{border}{item}){{0,5}}"
    outcome = rf"(?:(?P<fails>{_FAILS})|(?P<passes_0>{_PASSES})|(?P<passed>{_PASSED}))"
    all_of = rf"(?:(?:all|alle|sämtliche){_SPACE}(?:the{_SPACE})?(?:\d{{1,6}}{_SPACE})?)?"
    usual = rf"{all_of}(?P<what_0>{items})(?:[ \t]{{0,3}}[:=\u2013\u2014-])?{_FILL}[ \t]{{0,4}}{outcome}"
    return re.compile(rf"(?<![\w`./-])(?:{usual}|{_OTHER_FORMS}){_END}|{_UNSPACED_FORMS}", re.IGNORECASE)


def _claims_of(line: str, claim_form: re.Pattern[str], work: WorkState) -> Iterator[StatusClaim]:
    for found in claim_form.finditer(line):
        start, end = _range_around(found, line, _SENTENCE_BORDER)
        before, behind = line[start : found.start()], line[found.end() : end]
        if found["passes_4"] or found["passes_5"]:
            before = _SO.sub("", before)
        if _HEDGED.search(f"{before}{found[0]}") or _RESTRICTED.search(behind):
            continue
        what = next(value for name, value in found.groupdict().items() if name.startswith("what") and value)
        kinds = tuple(dict.fromkeys(_kinds(what)))
        is_past = found["passed"] is not None or bool(_EARLIER.search(before))
        names = tuple(_names(line, found, what, work))
        yield StatusClaim(found[0], found.end(), found["fails"] is None, is_past, kinds, names)


def _range_around(found: re.Match[str], line: str, border: re.Pattern[str]) -> tuple[int, int]:
    """Return start and end of the part of *line* between borders that *found* is in."""
    borders = [0, *(match.end() for match in border.finditer(line)), len(line) + 1]
    return max(at for at in borders if at <= found.start()), min(at for at in borders if at >= found.end())


def _kinds(what: str) -> Iterator[str]:
    plain = _SPAN.sub(" ", what)
    for word in re.split(r",|/|&|\+|\band\b|\bund\b", plain):
        shown = word.strip().lower()
        kind = _FOREIGN_KINDS.get(shown)
        if kind is None:
            kind = next((kind for kind, noun in _NOUNS.items() if re.fullmatch(noun, shown)), None)
        if kind is not None:
            yield kind


def _names(line: str, found: re.Match[str], what: str, work: WorkState) -> Iterator[frozenset[str]]:
    """Yield the names in the clause of a claim, in groups of which a check must have one.

    A word that restricts the claim is a name, too: no command has the word of "the new tests pass".
    """
    start, end = _range_around(found, line, _CLAUSE_BORDER)
    clause = line[start:end]
    spans = set(_SPAN.findall(clause))
    exact = {one.text for one in mentions(_SPAN.sub(" ", clause)) if one.kind in {"path", "identifier"}}
    programs = {
        word
        for word in re.split(r"[\s,/&+]+", _SPAN.sub(" ", what))
        if any(word in check.command.split() for check in work.checks.values())
        and not re.fullmatch(_NOUN, word, re.IGNORECASE)
    }
    yield from (frozenset(group) for group in (spans, exact - programs, programs) if group)
    at = found.start() + found[0].index(what)
    words = re.findall(r"\w[\w-]*", line[start:at])
    has_noun = re.match(rf"(?:{_NOUN})(?!\w)", what, re.IGNORECASE) is not None
    if words and has_noun and not (words[-1].lower() in _GENERAL or words[-1].isdigit()):
        yield frozenset({words[-1]})


def _is_meant(check: CheckState, claim: StatusClaim, kind: str) -> bool:
    command = check.command
    if kind and not any(_COMMANDS[kind].search(step) for step in command.split(" && ")):
        return False
    if not kind and not claim.names and not claim.kinds:
        return False
    return all(any(name.lower() in command.lower() for name in group) for group in claim.names)


def _contradicting(claim: StatusClaim, meant: Sequence[CheckState], kind: str) -> CheckState | None:
    """Return the check whose last run says otherwise; None if none does, or if nobody can tell."""
    newest = max(meant, key=lambda check: check.last, default=None)
    if newest is None or not _is_decided(newest, kind):
        return None
    if not claim.passes:
        return newest if all(check.outcome == "passes" for check in meant) else None
    if newest.outcome != "fails":
        return None
    if claim.is_past and any(check.outcome != "fails" or check.runs > 1 for check in meant):
        return None  # an earlier run may have passed
    return newest


def _is_decided(check: CheckState, kind: str) -> bool:
    """Return whether its outcome is that of a check of *kind*: of a chain that failed, any step may have failed."""
    if check.outcome == "fails" and kind:
        return all(_COMMANDS[kind].search(step) for step in check.command.split(" && "))
    return check.outcome != "ran"
