"""What a shell command does to files, what it checks, and what its output says about checks and version control."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from buoyline.compression.extractive.file_names import entered
from buoyline.compression.identifiers import error_lines, exit_status, readable
from buoyline.compression.work_state import FileOperation, Outcome

MAX_COMMAND_CHARS: Final = 4_000
"""The rest is a script or a piped text."""

MAX_END_CHARS: Final = 200
MAX_ECHO_CHARS: Final = 20_000

_STEPS = re.compile(r"&&|\|\||;|\n|(?<![&>|<\\])&(?![&>])")
_QUOTED = re.compile(
    r"(?<!<)<<-?\s*['\"]?([A-Za-z_]\w*)['\"]?(?P<rest>[^\n]*)\n(?:(?:.*?\n)??[ \t]*\1[ \t]*$|.*\Z)"
    r"|\"(?:[^\"\\\n]|\\.)*\n(?:[^\"\\]|\\.)*\"|'[^'\n]*\n[^']*'",
    re.DOTALL | re.MULTILINE,
)
"""Here-documents, to the end if theirs was cut off, and quoted texts of several lines: their words run nothing.

The rest of the line that begins a here-document does run: ``cat <<EOF > a.py`` writes a file.
"""

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
    "npm", "*** ", "segmentation", "core dumped", "no module", " not ", "fixed, ",
)  # fmt: skip
"""Whatever says how a check ended has one of these in its line, in lower case. To look for them takes a tenth of the
time that the expressions take."""

_SILENT = re.compile(r"\W*(?:[\w ]{0,40}\bno output|[\w ,]{0,60}did not produce any output)\W*", re.IGNORECASE)
_FILTER = re.compile(r"(?<!\|)\|(?!\|)\s*(?!(?:head|tail|cat|tee|less)\b)\S")
_REDIRECTED = re.compile(
    r"(?P<quoted>'[^']*'|\"(?:[^\"\\]|\\.)*\")"
    r"|(?<![=\-<>])\s{0,4}(?:\b\d|&)?>{1,2}(?:(?P<stream>&\d)|[|&]?\s{0,4}(?:'[^']*'|\"[^\"]*\"|[^\s;|&<>]+))"
)
"""A quoted text, in which ``>`` redirects nothing, or a redirection to a stream or to a file."""

_DETACHED = re.compile(r"nohup\s+")
_GROUP_END = re.compile(r"[)}]|done\b")
MAX_FAILING_LINES: Final = 3

_COUNTS = re.compile(r"\b(?:[1-9]\d* pass|0 \w+|all (?:tests|checks))", re.IGNORECASE)

_REDIRECT = re.compile(r"(?<![0-9&=>-])>{1,2}\s{0,4}([\w./~@+-]{1,400})")
_SHELL_FILE = re.compile(r"^(?:git\s+)?(rm|mv|cp|touch|tee|unlink)\s+((?:-\S+\s+)*)(.+)$")
_SED = re.compile(r"^sed\s+-i\S*\s.*?\s([\w./~@+-]{1,400})$")
_UNFILTERED = re.compile(r"(?:'[^']*'|\"(?:[^\"\\]|\\.)*\"|\|\||[^|])*", re.DOTALL)
_UNQUOTED = re.compile(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"")
_PATTERN = re.compile(r"[*?$`{}()\\]")
_DEVICES = ("/dev/null", "/dev/stdout", "/dev/stderr")

_COMMIT = re.compile(r"^\[([^\s\]]{1,120})(?: \([^)\n]{0,40}\))? ([0-9a-f]{7,40})\] (\S[^\n]{0,200})$", re.MULTILINE)
_BRANCH = re.compile(
    r"^(?:Switched to (?:a new )?branch|Already on) '([^'\n]{1,120})'|^On branch (\S{1,120})$", re.MULTILINE
)
_RESET = re.compile(r"^HEAD is now at ([0-9a-f]{7,40})\b", re.MULTILINE)
_PUSHES = re.compile(r"\bpush\b(?!.*\s(?:--dry-run|-n)\b)")
_PUSH = re.compile(
    r"^\s{0,9}[+* ]?\s?(?:([0-9a-f]{7,40})\.{2,3}([0-9a-f]{7,40})|\[new branch\])\s+(\S{1,120}) -> ", re.MULTILINE
)


def checks_in(command: str) -> list[str]:
    """Return the steps of a command that check the work, each once.

    Directories, filters, redirections and comments are no part of them: with or without, it is one check.
    """
    return list(dict.fromkeys(filter(None, (_check_in(step) for step in _steps_of(command)))))


def _check_in(step: str) -> str:
    """Return the check that a step runs; empty if it runs none."""
    if _LOOKS.match(step) or step.startswith("#"):
        return ""
    shown = _unfiltered(_REDIRECTED.sub(lambda found: found["quoted"] or "", step))
    return readable(_DETACHED.sub("", shown, count=1)) if _CHECKS.search(shown[:200]) else ""


def _unfiltered(step: str) -> str:
    """Return a step up to its first pipe."""
    found = _UNFILTERED.match(step)
    return step if found is None else found[0]


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
    """What a check is made of.

    Attributes:
        program: The program and its subcommand.
        choosing: The options that choose among the tests, with their values.
        others: Other options and variables that may change the outcome.
        targets: The other words.
    """

    program: str
    choosing: frozenset[str]
    others: frozenset[str]
    targets: tuple[str, ...]


def _parts(command: str) -> _Parts:
    found = _WORD.findall(command)
    words = [word for word in found if not _SET.fullmatch(word)]
    is_named_third = words[1:2] in (["run"], ["exec"], ["-m"])
    size = 3 if is_named_third else 2 if _has_subcommand(words) else 1
    choosing: set[str] = set()
    others = {word for word in found if _SET.fullmatch(word) and not _NEUTRAL.fullmatch(word)}
    targets: list[str] = []
    before = ""
    for word in words[size:]:
        if _NARROWING.fullmatch(before) and "=" not in before:
            choosing.add(word)
            before = ""
            continue
        if _NARROWING.fullmatch(word) or _NARROWING_FLAG.fullmatch(word):
            choosing.add(word)
        elif word.startswith("-"):
            others |= set() if _NEUTRAL.fullmatch(word) else {word}
        elif not _is_neutral_value(before, word):
            targets.append(word)
            # Nobody knows whether it is the option's value.
            others |= {f"{before} {word}"} if before in others and not _STRICTER.fullmatch(before) else set()
        before = word
    return _Parts(" ".join(words[:size]), frozenset(choosing), frozenset(others), tuple(targets))


def _is_neutral_value(option: str, word: str) -> bool:
    is_option = option.startswith("-") and re.fullmatch(r"-[qvsx]+|--", option) is None
    return is_option and _NEUTRAL.fullmatch(option) is not None and _NEUTRAL_VALUE.fullmatch(word) is not None


def _has_subcommand(words: Sequence[str]) -> bool:
    return len(words) > 1 and not words[1].startswith("-") and not re.search(r"[./:]", words[1])


def tried_in(command: str, text: str) -> list[str]:
    """Return the checks in a command, and those that its output says it ran."""
    echoed = (check for found in _ECHOED.finditer(text[:MAX_ECHO_CHARS]) for check in checks_in(found[1]))
    return list(dict.fromkeys((*checks_in(command), *echoed)))


def outcome_of(text: str, *, has_failed: bool, is_filtered: bool = False) -> Outcome:
    """Return how a check ended; "passes" only if its output says so, or if it succeeded in silence.

    Args:
        text: The output.
        has_failed: The result is marked as failed, or its exit status or its words say so.
        is_filtered: The command keeps its output back, so that silence means nothing.
    """
    is_silent = not text.strip() or _SILENT.fullmatch(text) is not None
    if is_silent and not has_failed:
        return "ran" if is_filtered else "passes"
    newest = _newest_round(text)
    said = _telling_lines(newest)
    if _counts_failures(said):
        return "fails"
    if _is_cut_short(newest):
        return "ran"
    if has_failed:
        return "ran" if _is_taken_back(newest, text) else "fails"
    if _FAILED.search(said):
        return "fails"
    return "passes" if _says_passed(said) and not any(_errors(newest)) else "ran"


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


def _is_cut_short(text: str) -> bool:
    """Return whether a run was interrupted, or goes on: what passed so far is not all."""
    end = text[-MAX_END_CHARS:]
    cut = _ABORTED.search(end) or _CUT_SHORT.search(text)
    return (cut or _GOES_ON.search(text[:MAX_END_CHARS]) or _GOES_ON.search(end)) is not None


def _is_taken_back(newest: str, text: str) -> bool:
    """Return whether the words that read like a failure are of an earlier round, count nothing, or were repaired."""
    if exit_status(text) or not any(error_lines(text)) or _FAILED.search(newest):
        return False
    return not any(_errors(newest)) or "fixed, 0 remaining" in newest


def _errors(text: str) -> Iterator[str]:
    """Yield the lines that read like errors and do not begin with a count, which is zero if it is no failure."""
    return (line for line in error_lines(text) if not _COUNT.match(line))


def _says_passed(text: str) -> bool:
    if _NOT_PASSED.search(text):
        return False
    if _NONE_RAN.search(text) and not _SOME_RAN.search(text):
        return False
    return _PASSED.search(text) is not None or _SHARE.search(text) is not None


def is_filtered(command: str) -> bool:
    """Return whether the silence of a command says nothing about its checks.

    A filter or a file has their output then, or they still run in the background.
    """
    if _FILTER.search(_UNQUOTED.sub("''", command)) is not None:
        return True
    return any(
        separator == "&" or _DETACHED.match(step) is not None or _is_redirected(step)
        for step, separator in _separated(command)
        if _check_in(step) or _GROUP_END.match(step)
    )


def _is_redirected(step: str) -> bool:
    return any(not found["quoted"] and not found["stream"] for found in _REDIRECTED.finditer(step))


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


class FileChange(NamedTuple):
    """A file that a command creates, changes, deletes or moves.

    Attributes:
        operation: One of these.
        path: As the command has it: a path that nobody wrote cannot be found again.
        new_path: Where it moves to; else empty.
        directory: The directory that the command entered before; empty if it entered none.
    """

    operation: FileOperation
    path: str
    new_path: str = ""
    directory: str = ""


def files_in(command: str, directory: str = "", *, before_checks: bool = False) -> Iterator[FileChange]:
    """Yield the files that a command changes, in order; quoted texts of several lines and here-documents do nothing.

    Args:
        command: The command.
        directory: Where it begins; empty if that is not known.
        before_checks: Only by steps before its first check.
    """
    for step in _steps_of(command):
        if before_checks and _check_in(step):
            return
        if (inner := entered(step, directory)) is not None:
            directory = inner
            continue
        for change in _changes(step):
            yield change._replace(directory=directory)


def directory_behind(command: str, directory: str) -> str:
    """Return the directory behind *command*, begun in *directory*; empty if it is not known as an absolute path."""
    for step in _steps_of(command):
        if (inner := entered(step, directory)) is not None:
            directory = inner if inner.startswith("/") else ""
    return directory


def entered_first(command: str, directory: str) -> str:
    """Return the first directory that *command*, begun in *directory*, enters; *directory* if it enters none."""
    found = (entered(step, directory) for step in _steps_of(command))
    return next((inner for inner in found if inner is not None), directory)


def _steps_of(command: str) -> list[str]:
    """Return the steps of a command, without here-documents; a separator in quotes separates nothing."""
    return [step for step, _ in _separated(command)]


def _separated(command: str) -> list[tuple[str, str]]:
    """Return the steps of a command, each with the separator behind it; it is ``&`` behind one in the background."""
    text = _QUOTED.sub(lambda found: f"''{found['rest'] or ''}", command[:MAX_COMMAND_CHARS])
    quoted = [match.span() for match in _UNQUOTED.finditer(text)]
    steps: list[tuple[str, str]] = []
    start = 0
    for found in _STEPS.finditer(text):
        if not any(begin < found.start() < end for begin, end in quoted):
            steps.append((text[start : found.start()].strip(), found[0]))
            start = found.end()
    return [(step, separator) for step, separator in (*steps, (text[start:].strip(), "")) if step]


def _changes(step: str) -> Iterator[FileChange]:
    part = _UNQUOTED.sub("''", step)
    for path in _REDIRECT.findall(part):
        if path not in _DEVICES:
            yield FileChange("created", path)
    for words in (one.strip() for one in step.split("|")):
        if (found := _SHELL_FILE.match(words)) is not None:
            yield from _operations(found[1], list(_paths_in(found[3])))
        elif (edited := _SED.match(words)) is not None:
            yield FileChange("changed", edited[1])


def _paths_in(words: str) -> Iterator[str]:
    """Yield the words up to a redirection that may be paths; a pattern names no file."""
    for word in words.split():
        if word.startswith((">", "2>", "&>", "<", "#")):
            return
        bare = word.strip("'\"")
        if bare and not word.startswith("-") and not _PATTERN.search(bare):
            yield bare


def _operations(program: str, paths: Sequence[str]) -> Iterator[FileChange]:
    match program, paths:
        case "mv", [old, new]:
            yield FileChange("moved", old, new)
        case "cp", [_, new]:
            yield FileChange("created", new)
        case "rm" | "unlink", _:
            yield from (FileChange("deleted", path) for path in paths)
        case "touch" | "tee", _:
            yield from (FileChange("created", path) for path in paths)
        case _:
            pass


@dataclass(frozen=True, slots=True)
class GitOutput:
    """What the output of a git command says.

    Attributes:
        branch: The branch that was switched to, committed on or shown; empty if none is named.
        commits: Hash and subject of each new commit, in order.
        pushed: Hash or branch that was pushed; empty if nothing was.
        reset_to: Hash that a reset moved the branch to; empty if none did.
        amends: Whether the new commit replaces the one before.
    """

    branch: str = ""
    commits: tuple[tuple[str, str], ...] = ()
    pushed: str = ""
    reset_to: str = ""
    amends: bool = False


def git_output(command: str, text: str) -> GitOutput:
    """Read the output of *command*."""
    branches = [found[1] or found[2] for found in _BRANCH.finditer(text)]
    commits = list(_COMMIT.finditer(text))
    branches += [found[1] for found in commits if found[1] != "detached"]
    pushed = [found[2] or found[3] for found in _PUSH.finditer(text)] if _PUSHES.search(command) else []
    reset = _RESET.search(text) if re.search(r"\bgit\b.*\breset\b", command) else None
    return GitOutput(
        branches[-1] if branches else "",
        tuple((found[2], readable(found[3])) for found in commits),
        pushed[-1] if pushed else "",
        "" if reset is None else reset[1],
        amends=re.search(r"\bcommit\b.*--amend\b", command) is not None,
    )
