"""Checks of the work, such as tests and builds: which a command runs, how each ended, and what that replaces."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final, NamedTuple

from buoyline.compression.extractive.calls import Step
from buoyline.compression.extractive.commands import UNQUOTED, command_steps, entered_first, separated_steps
from buoyline.compression.extractive.lines import LineFinder, merged_pointers
from buoyline.compression.identifiers import error_lines, exit_status, readable
from buoyline.compression.work_state import MAX_BETWEEN, MAX_TEXT_CHARS, CheckState, FileState, Outcome

MAX_END_CHARS: Final = 200
MAX_ECHO_CHARS: Final = 20_000
MAX_FAILING_LINES: Final = 3

_LOOKS = re.compile(
    r"\s*(?:cd|ls|cat|grep|rg|find|head|tail|echo|git|gh|sed|mkdir|cp|mv|rm|touch|export|chmod|which|kill|sleep|stat|wc|diff"
    r"|tree|file|ps|du|df|sort|awk|jq|curl|wget|tar|ln|tee|unlink|printf|for|open|code|pushd|less|type)\b"
)
_CHECKS = re.compile(
    r"(?:^|[^a-z])(?:py|vi|je|un|no|unit)?"
    r"(?:tests?|lint|check|typecheck|build|compile|verify|validate|spec|ci|vet|clippy|e2e|pre-commit run"
    r"|mypy|right|ruff|eslint|stylelint|tsc|tsgo|jest|vitest|mocha|tox|nox|ctest|gradle|mvn)(?:$|[^a-z])",
    re.IGNORECASE,
)
_REDIRECTED = re.compile(
    r"(?P<quoted>'[^']*'|\"(?:[^\"\\]|\\.)*\")"
    r"|(?<![=\-<>])\s{0,4}(?:\b\d|&)?>{1,2}(?:(?P<stream>&\d)|[|&]?\s{0,4}(?:'[^']*'|\"[^\"]*\"|[^\s;|&<>]+))"
)
"""A quoted text, in which ``>`` redirects nothing, or a redirection to a stream or to a file."""

_UNFILTERED = re.compile(r"(?:'[^']*'|\"(?:[^\"\\]|\\.)*\"|\|\||[^|])*", re.DOTALL)
_FILTER = re.compile(r"(?<!\|)\|(?!\|)\s*(?!(?:head|tail|cat|tee|less)\b)\S")
_DETACHED = re.compile(r"nohup\s+")
_GROUP_END = re.compile(r"[)}]|done\b")

_WORD = re.compile(r"(?:[^\s'\"]|'[^']*'|\"[^\"]*\")+")
_SET = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_NARROWING = re.compile(
    r"-(?:run|k|t|m)|--?(?:filter|grep|testNamePattern|test-name-pattern|only|select|run)(?:=.*)?"
    r"|--(?:ignore|deselect|exclude|package|tests)(?:=.*)?|--workspace=.*|-Dtest=.*|-pl"
)
"""Options that choose among the tests; a value follows them."""

_NARROWING_FLAG = re.compile(r"--?short|--(?:lib|bins|doc|lf|last-failed|changed)")
_NEUTRAL = re.compile(
    r"--|-[qvsx]{1,4}|-r[AaEefFpPsSwxX]{1,4}|-[nj]\d*|--?count(?:=.*)?"
    r"|--?(?:verbose|quiet|silent|tb|colou?r|no-colou?r|no-header|no-summary|nocapture|showlocals|durations|exitfirst"
    r"|maxfail|fail-?fast|no-fail-fast|bail|jobs|parallel|numprocesses|reporter|timeout|progress|no-progress)(?:=.*)?"
    r"|\w*COLOR=.*|PYTHON(?:UNBUFFERED|DONTWRITEBYTECODE)=.*"
)
"""Options and variables that change what is shown, how fast, and what happens after a failure, but no outcome."""

_NEUTRAL_VALUE = re.compile(r"\d+[ms]?|auto|always|never|yes|no|short|long|line|native")
_STRICTER = re.compile(r"--?(?:race|strict|cover|coverage)|--cov\b.*")
_ECHOED = re.compile(r"^(?:\[[^\]\n]{1,60}\] )?[$>] (\S[^\n]{0,400})$", re.MULTILINE)
"""A runner's output names the commands that it runs."""

_PASSED = re.compile(
    r"\b(?:[1-9]\d* pass(?:ed|ing)?|0 (?:issues|errors|failures|failed|problems)|no (?:issues|errors|problems)"
    r"|all (?:tests|checks) (?:passed|pass)|PASS(?:ED)?|BUILD SUCCESS\w*|success(?:ful(?:ly)?)?|succeeded|OK|ok"
    r"|fixed, 0 remaining)\b|\.{3}Passed$",
    re.MULTILINE,
)
_ZERO = r"(?![^\w\n]{0,9}\b0[ \t]{0,9}(?:$|[,;|)]|\w{1,20}[ \t]{0,9}[:=]?[ \t]{0,9}\d))"
_FAILED = re.compile(
    rf"^\s{{0,9}}(?:FAIL(?:ED)?\b{_ZERO}|--- FAIL|not ok \d|npm (?:ERR!|error)|BUILD FAIL)"
    rf"|^\s{{0,9}}error(?:\[\w+\]| TS\d+)?:{_ZERO}"
    r"|(?<![\w.])[1-9]\d* (?:tests? )?(?:failed|failing|failures?)\b(?![ \t]{0,9}[:=][ \t]{0,9}\d)"
    r"|\bERROR task failed|\berror TS\d+:"
    r"|^[ \t]{0,9}(?:[A-Z_]{3,40}[ \t]{1,9})?(?:[Tt]ests?|[Bb]uild|[Cc]ommand|[Cc]heck|[Ss]cript) failed"
    r"(?: with\b|[.:!]|[ \t]{0,9}$)"
    r"|^[\w.-]{1,40}(?:\[\d+\])?: \*\*\* |\.{3}Failed$|\bSegmentation fault\b|\(core dumped\)"
    r"|^(?!\S{0,200}Error:)\S{1,200}: No module named \S+$"
    r"|\b(?:threshold|coverage)\b[^\n]{0,80} not (?:met|reached)\b",
    re.MULTILINE,
)
"""What checks print only if they fail."""

_COUNT = re.compile(
    r"(?<![\w.\[-])(?P<word>(?i:fail(?:ed|ures?|s)?|errors?|unreachable|pass(?:ed)?|ok))"
    r"(?:[\"']?[ \t]{0,9}[=:][ \t]{0,9}|(?<=FAIL|PASS)[ \t]{1,9}|(?<=\W fail)[ \t](?=\d+$))"
    r"(?P<number>\d+)\b(?=[ \t]{0,9}(?:$|[,;|(){}\]]|\.(?!\d)|\w{1,20}[\"']?[ \t]{0,9}[=: ]))"
    r"|(?<![\w.-])(?P<before>\d+) (?P<behind>(?i:fail|passed|pass)\b(?!-))(?![ \t]{0,9}[:=])"
    r"|(?:^[^\w✓√\n]{0,9}|[,;|:(/][ \t]{0,3}|\b(?:[Ff]ound|and|with) )(?P<errors>\d+) errors?"
    r"(?=[ \t=]{0,99}$|[,.;!)]| in\b| during\b| generated\b)",
    re.MULTILINE,
)
"""A count and what it counts, in either order; counts of what passed are found so that theirs belong to no failure."""

_COUNTS = re.compile(r"\b(?:[1-9]\d* pass|0 \w+|all (?:tests|checks))", re.IGNORECASE)
_SHARE = re.compile(
    r"(?<![\w./])(\d{1,9})(?: ?/ ?| (?:out )?of )(\d{1,9}) (?:\w{1,20} ){0,2}"
    r"(?i:pass(?:ed|ing)?|ok|succeeded|successful)\b"
)
_NOT_PASSED = re.compile(
    r"\b(?i:not|never|didn't)[ -](?i:pass(?:ed|ing)?|ok|success\w*|succeed(?:ed)?)\b"
    r"|\b(?i:success(?:ful)?|ok|pass(?:ed)?)[\"']?[ \t]{0,3}[=:?][ \t]{0,3}[\"']?(?i:false\b|no\b(?![ \t]{0,3}\w))"
)
"""A word of passing that is denied."""

_TESTS = r"(?:pass(?:ed|ing)?|(?:tests?|examples?|specs?|scenarios?)(?! fail| error))\b"
_NONE_RAN = re.compile(rf"(?<![\w.])0 {_TESTS}")
_SOME_RAN = re.compile(rf"(?<![\w.])[1-9]\d* {_TESTS}")
_ABORTED = re.compile(r"\b(?:aborted|interrupted|cancelled|timed out)\b[^\n]{0,80}\s*\Z", re.IGNORECASE)
_CUT_SHORT = re.compile(
    r"^!{3,} [^\n]{1,200} !{3,}$|^INTERNALERROR>|(?<![\w.])[1-9]\d* (?:interrupted|did not run)\b", re.MULTILINE
)
_GOES_ON = re.compile(r"\bstill running\b", re.IGNORECASE)
_ROUND = re.compile(
    r"^[ \t]{0,9}(?:\[?\d[\d:. ]{3,30}(?:[AP]M)?\]?[ -]{0,3})?"
    r"(?:(?:[Ff]ile )?[Cc]hanges? detected\b|RERUN  |Restarting due to )",
    re.MULTILINE,
)
"""How the output of a command that watches files goes on after a change."""

_TELLING = (
    "fail", "error", "pass", "ok", "succe", "issue", "problem", "test", "example", "spec", "scenario", "unreachable",
    "npm", "*** ", "segmentation", "core dumped", "no module", " not ", "fixed, ", "!!! ", "interrupted", "did not run",
)  # fmt: skip
"""Whatever says how a check ended has one of these in its line, in lower case. To look for them takes a tenth of the
time that the expressions take."""

_SILENT = re.compile(r"\W*(?:[\w ]{0,40}\bno output|[\w ,]{0,60}did not produce any output)\W*", re.IGNORECASE)


def checks_in(command: str) -> list[str]:
    """Return the steps of a command that check the work, each once.

    Directories, filters, redirections and comments are no part of them: with or without, it is one check.
    """
    return list(dict.fromkeys(filter(None, map(check_in, command_steps(command)))))


def check_in(step: str) -> str:
    """Return the check that a step of a command runs; empty if it runs none."""
    if _LOOKS.match(step) or step.startswith("#"):
        return ""
    shown = _UNFILTERED.findall(_REDIRECTED.sub(lambda found: found["quoted"] or "", step))[0]
    return readable(_DETACHED.sub("", shown, count=1)) if _CHECKS.search(shown[:200]) else ""


def is_filtered(command: str) -> bool:
    """Return whether the silence of a command says nothing about its checks.

    A filter or a file has their output then, or they still run in the background.
    """
    if _FILTER.search(UNQUOTED.sub("''", command)) is not None:
        return True
    for step, separator in separated_steps(command):
        if check_in(step) or _GROUP_END.match(step):
            is_redirected = any(not to["quoted"] and not to["stream"] for to in _REDIRECTED.finditer(step))
            if separator == "&" or _DETACHED.match(step) or is_redirected:
                return True
    return False


def is_wider(command: str, other: str) -> bool:
    """Return whether one step of a command checks at least what *other* checks: ``pytest`` runs all tests.

    >>> is_wider("pytest -q", "pytest tests/test_a.py"), is_wider("pytest tests/test_a.py", "pytest")
    (True, False)
    """
    new, old = _parts(command), _parts(other)
    if new.program != old.program or not new.choosing <= old.choosing or not old.others <= new.others:
        return False
    if not all(_STRICTER.fullmatch(option) for option in new.others - old.others):
        return False
    within = [target.rstrip("./") for target in new.targets]
    if not within:
        return True
    return bool(old.targets) and all(any(_is_in(target, place) for place in within) for target in old.targets)


def _is_in(target: str, directory: str) -> bool:
    bare = target.rstrip("./")
    return not directory or bare == directory or bare.startswith((f"{directory}/", f"{directory}:"))


class _Parts(NamedTuple):
    """A check: options in *choosing* choose among the tests, and *others* may change the outcome."""

    program: str
    choosing: frozenset[str]
    others: frozenset[str]
    targets: tuple[str, ...]


def _parts(command: str) -> _Parts:
    found = _WORD.findall(command)
    words = [word for word in found if not _SET.fullmatch(word)]
    size = 1
    if words[1:2] in (["run"], ["exec"], ["-m"]):
        size = 3
    elif len(words) > 1 and not words[1].startswith("-") and not re.search(r"[./:]", words[1]):
        size = 2
    choosing: set[str] = set()
    others = {word for word in found if _SET.fullmatch(word) and not _NEUTRAL.fullmatch(word)}
    targets: list[str] = []
    before = ""
    for word in words[size:]:
        if _NARROWING.fullmatch(before) and "=" not in before:
            choosing.add(word)
            before = ""
            continue
        takes_value = before.startswith("-") and re.fullmatch(r"-[qvsx]+|--", before) is None
        if _NARROWING.fullmatch(word) or _NARROWING_FLAG.fullmatch(word):
            choosing.add(word)
        elif word.startswith("-"):
            others |= set() if _NEUTRAL.fullmatch(word) else {word}
        elif not (takes_value and _NEUTRAL.fullmatch(before) and _NEUTRAL_VALUE.fullmatch(word)):
            targets.append(word)
            # Nobody knows whether it is the option's value.
            others |= {f"{before} {word}"} if before in others and not _STRICTER.fullmatch(before) else set()
        before = word
    return _Parts(" ".join(words[:size]), frozenset(choosing), frozenset(others), tuple(targets))


def outcome_of(text: str, *, has_failed: bool, is_filtered: bool = False) -> Outcome:
    """Return how a check ended; "passes" only if its output says so, or if it succeeded in silence.

    *has_failed* is said by the mark of the result, its exit status or its words. If the command *is_filtered*, silence
    means nothing.
    """
    is_silent = not text.strip() or _SILENT.fullmatch(text) is not None
    if is_silent and not has_failed:
        return "ran" if is_filtered else "passes"
    newest = _newest_round(text)
    said = _telling_lines(newest)
    if _counts_failures(said):
        return "fails"
    end = newest[-MAX_END_CHARS:]
    if _ABORTED.search(end) or _CUT_SHORT.search(said) or _GOES_ON.search(newest[:MAX_END_CHARS] + "\n" + end):
        return "ran"  # it was interrupted, or goes on: what passed so far is not all
    if has_failed:
        return "ran" if _is_taken_back(newest, text) else "fails"
    if _FAILED.search(said):
        return "fails"
    has_passed = _PASSED.search(said) or _SHARE.search(said)
    is_denied = _NOT_PASSED.search(said) or (_NONE_RAN.search(said) and not _SOME_RAN.search(said))
    return "passes" if has_passed and not is_denied and not any(_errors(newest)) else "ran"


def _newest_round(text: str) -> str:
    """Return the output behind the last change of a watched file; all of it if nothing was watched."""
    start = max((found.end() for found in _ROUND.finditer(text)), default=0)
    return text[start:]


def _telling_lines(text: str) -> str:
    """Return the lines of *text* with one of the words `_TELLING`, behind an empty line."""
    lowered = text.lower()
    words = [word for word in _TELLING if word in lowered]
    lines = zip(text.split("\n"), lowered.split("\n"), strict=True) if words else ()
    return "\n".join(["", *(line for line, low in lines if any(word in low for word in words))])


def _counts_failures(text: str) -> bool:
    """Return whether a count of failures is not zero, or a share of what passed is not the whole."""
    for found in _COUNT.finditer(text):
        word = found["word"] or found["behind"] or "errors"
        number = found["number"] or found["before"] or found["errors"]
        if not word.lower().startswith(("pass", "ok")) and number.strip("0"):
            return True
    shares = _SHARE.findall(text)
    return bool(shares) and int(shares[-1][0]) < int(shares[-1][1])


def _is_taken_back(newest: str, text: str) -> bool:
    """Return whether the words that read like a failure are of an earlier round, count nothing, or were repaired."""
    if exit_status(text) or not any(error_lines(text)) or _FAILED.search(newest):
        return False
    return not any(_errors(newest)) or "fixed, 0 remaining" in newest


def _errors(text: str) -> Iterator[str]:
    """Yield the lines that read like errors and do not begin with a count, which is zero if it is no failure."""
    return (line for line in error_lines(text) if not _COUNT.match(line))


def failing_lines(text: str) -> list[str]:
    """Return the first lines that a check prints only if it fails, at most `MAX_FAILING_LINES`, each once.

    A test within a test that is named already, such as ``TestParse/empty`` after ``TestParse``, says nothing more.
    """
    telling = _telling_lines(_newest_round(text)).splitlines()
    failing = (line for line in telling if _FAILED.search(line) or _counts_failures(line))
    lines = dict.fromkeys(shown for line in failing if (shown := readable(line)))
    found: list[str] = []
    for line in lines:
        if not any(f"{max(outer.split(), key=len)}/" in line for outer in found):
            found.append(line)
        if len(found) == MAX_FAILING_LINES:
            break
    return found


def verdict_of(text: str) -> str:
    """Return the last line that counts what passed; empty if there is none."""
    lines = (readable(line) for line in reversed(text.splitlines()) if _PASSED.search(line))
    return next((line for line in lines if _COUNTS.search(line)), "")


def note_checks(
    checks: dict[str, CheckState],
    files: Mapping[str, FileState],
    step: Step,
    citations: LineFinder,
    *,
    goes_on: bool,
) -> None:
    """Note in *checks* how those in the command of *step* ended; of a chain that failed, nobody knows which step did.

    A pass names the *files* that were changed since the failure. If the command *goes_on* in the background, it has no
    outcome.
    """
    command = step.action.command
    found = checks_in(command)
    if not found or step.reading is None:
        return
    text, directory = step.reading.text, entered_first(command, step.action.directory)
    outcome: Outcome = "ran"
    if not goes_on:
        outcome = outcome_of(text, has_failed=step.has_failed, is_filtered=is_filtered(command))
    if outcome == "fails":
        shown = tuple(step.reading.passage(line, citations) for line in failing_lines(text))
        # What fails is named first, then why.
        reasons = tuple(passage for passage in step.errors if not failing_lines(passage.text))
        passages, names = (*shown, *reasons) or (step.outcome,), [" && ".join(found)]
    else:
        passages, names = (step.reading.passage(verdict_of(text), citations),), found
    keys = {_key(checks, name[:MAX_TEXT_CHARS], directory): name[:MAX_TEXT_CHARS] for name in names}
    replaced = [name for name in found if name in checks and name not in keys] if outcome == "fails" else []
    if outcome == "passes":
        # Its output names the checks that it ran.
        echoed = (check for words in _ECHOED.findall(text[:MAX_ECHO_CHARS]) for check in checks_in(words))
        tried = [*found, *echoed]
        replaced = [name for name in checks if name not in keys and _is_covered(checks[name], tried, directory)]
    line = " / ".join(dict.fromkeys(passage.text for passage in passages))[:MAX_TEXT_CHARS]
    places = (passage.pointers for passage in passages)
    pointers = merged_pointers(chain(citations.of(step.call, found[0]), *places))
    covered = [checks.pop(name) for name in replaced]
    for key, name in keys.items():
        known = checks.pop(key, covered[-1] if covered and outcome == "passes" else None)
        runs = (known.runs if known else 0) + 1
        new = CheckState(name, outcome, line, step.call.index, runs, pointers, directory=directory)
        if known is not None and outcome != "fails":
            new = replace(new, failed_before=known.failed_before, changed_between=known.changed_between)
            if known.outcome == "fails":
                between = tuple(one.path for one in files.values() if one.changes and one.last > known.last)
                both = merged_pointers((*known.pointers, *pointers))
                new = replace(new, failed_before=known.line, changed_between=between[-MAX_BETWEEN:], pointers=both)
        checks[key] = new


def _key(checks: Mapping[str, CheckState], name: str, directory: str) -> str:
    """Return the key of a check: its command, with the directory if the same command checks another one."""
    known = checks.get(name)
    if known is None or not directory or known.directory in {"", directory}:
        return name
    return f"cd {directory} && {name}"


def _is_covered(check: CheckState, tried: Sequence[str], directory: str) -> bool:
    """Return whether each step of a failed check is tried again by one that checks as much."""
    if check.outcome != "fails" or (check.directory and directory and check.directory != directory):
        return False
    return all(any(is_wider(one, step) for one in tried) for step in check.command.split(" && "))


def changed_after(check: CheckState, name: str) -> CheckState:
    """Return *check* with *name* as the newest of what was changed since its last run."""
    known = (one for one in check.changed_after if one != name)
    return replace(check, changed_after=(*known, name)[-MAX_BETWEEN:])
