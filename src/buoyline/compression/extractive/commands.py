"""What a shell command does to files, what it checks, and what its output says about checks and version control."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Final, NamedTuple

from buoyline.compression.extractive.file_names import entered
from buoyline.compression.identifiers import error_lines, readable
from buoyline.compression.work_state import FileOperation, Outcome

MAX_COMMAND_CHARS: Final = 4_000
"""The rest is a script or a piped text."""

MAX_END_CHARS: Final = 200
MAX_ECHO_CHARS: Final = 20_000

_STEPS = re.compile(r"&&|\|\||;|\n")
_QUOTED = re.compile(
    r"<<-?[ \t]{0,4}['\"]?([A-Za-z_]\w*)['\"]?(?P<rest>[^\n]*)\n(?:.*?^[ \t]*\1[ \t]*$|.*)"
    r"|\"(?:[^\"\\]|\\.)*\n(?:[^\"\\]|\\.)*\"|'[^']*\n[^']*'",
    re.DOTALL | re.MULTILINE,
)
"""Here-documents, and quoted texts of several lines: their words run nothing, but the rest of the first line does."""

_LOOKS = re.compile(
    r"\s*(?:cd|ls|cat|grep|rg|find|head|tail|echo|git|gh|sed|mkdir|cp|mv|rm|touch|export|chmod|which|kill|sleep|stat|wc|diff"
    r"|tree|file|ps|du|df|sort|awk|jq|curl|wget|tar|ln|tee|unlink|printf|for|open|code|pushd|less|type)\b"
)
_CHECKS = re.compile(
    r"(?:^|[^a-z])(?:py|vi|je|un|unit|no)?"
    r"(?:tests?|lint|check|typecheck|build|compile|verify|validate|spec|ci|vet|clippy|e2e"
    r"|pre-commit|mypy|right|ruff|eslint|stylelint|tsc|tsgo|jest|vitest|mocha|tox|nox|ctest|gradle|mvn)(?:$|[^a-z])",
    re.IGNORECASE,
)
_PASSED = re.compile(
    r"(?<!\bnot )(?<!\bNOT )\b(?:[1-9]\d* pass(?:ed|ing)?|0 (?:issues|errors|failures|failed|problems)"
    r"|no (?:issues|errors|problems)"
    r"|all (?:tests|checks) (?:passed|pass)|PASS(?:ED)?|BUILD SUCCESS\w*|success(?:ful(?:ly)?)?|succeeded|OK|ok)\b"
)
_FAILED = re.compile(
    r"^\s{0,9}(?:FAIL(?:ED)?\b(?!\s{0,3}[:=]\s{0,3}0\b)|--- FAIL|not ok \d|npm (?:ERR!|error)|BUILD FAIL"
    r"|error(?:\[\w+\]| TS\d+)?:(?!\s{0,3}0\b)|make(?:\[\d+\])?: \*\*\* )"
    r"|(?<![\w.])[1-9]\d* (?:tests? )?(?:fail|failed|failing|failures?)\b|(?<![\w.])[1-9]\d* errors?(?= in \d| during)"
    r"|(?i:(?<![\w\[,-])(?:fail|failed|failures?|errors?|unreachable)\"?[ \t]{0,3}[:=][ \t]{0,3}[1-9]\d{0,5}\b(?!:))"
    r"|^# fail [1-9]|(?i:\bsuccess(?:ful)?\"?[ \t]{0,3}[:=][ \t]{0,3}false\b|\bnot success)|\bNOT OK\b"
    r"|\bELIFECYCLE\b|\bINTERNALERROR>|\bSegmentation fault(?: \(core dumped\))?\s*$|^\S*python[\d.]*: No module named "
    r"|\bERROR task failed|\berror TS\d+:",
    re.MULTILINE,
)
"""What checks print only if they fail."""

_SHARE = re.compile(
    r"\b(\d{1,6})(?:/| of )(\d{1,6}) (?:tests?|checks?|specs?)\b[^\n]{0,20}\b(?:pass\w*|ok)\b", re.IGNORECASE
)
_UNFINISHED = re.compile(
    r"\bKeyboardInterrupt\b|\bstill running\b|(?<![\w.])[1-9]\d* (?:tests? )?(?:interrupted|did not run)\b"
    r"|\bthresholds?\b[^\n]{0,80}\bnot met\b|\b0 (?:examples|tests|specs)\b|\bno tests (?:ran|found|were)\b",
    re.IGNORECASE,
)
"""Nothing was checked, or not to the end."""

_ABORTED = re.compile(r"\b(?:aborted|interrupted|cancelled|timed out)\b[^\n]{0,80}\s*\Z", re.IGNORECASE)
_SILENT = re.compile(r"\W*(?:[\w ]{0,40}\bno output|[\w ,]{0,60}did not produce any output)\W*", re.IGNORECASE)
_FILTER = re.compile(r"(?<!\|)\|(?!\|)\s*(?!(?:head|tail|cat|tee|less)\b)\S")
_DIVERTED = re.compile(r"\s*(?:(?<![=<-])(?:&|\b[12])?>{1,2}\s{0,4}(?:&\d|[\w./~@+$-]{1,400})|(?<!&)&\s*\Z)")
_BACKGROUND = re.compile(r"^\s*nohup\s+")
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
    """Return the steps of a command that check the work, without directories, filters and comments, each once."""
    kept = [readable(_DIVERTED.sub("", _BACKGROUND.sub("", _unfiltered(step)))) for step in _checking_steps(command)]
    return list(dict.fromkeys(filter(None, kept)))


def _checking_steps(command: str) -> Iterator[str]:
    for step in _steps_of(command):
        if _CHECKS.search(step[:200]) and not _LOOKS.match(step) and not step.startswith("#"):
            yield step


def _unfiltered(step: str) -> str:
    """Return a step up to its first pipe."""
    found = _UNFILTERED.match(step)
    return step if found is None else found[0]


_NARROWING = re.compile(
    r"-(?:run|k|t|m)|--?(?:filter|grep|testNamePattern|test-name-pattern|only|select|run|ignore|ignore-glob|deselect"
    r"|exclude|skip|lib|short|workspace|package|project|changed|lf|last-failed|shard|chdir|Dtest)(?:=.*)?"
)
_FLAG = re.compile(r"--?(?:lib|short|changed|lf|last-failed)")
"""It has no value."""
_ECHOED = re.compile(r"^(?:\[[^\]\n]{1,60}\] )?[$>] (\S[^\n]{0,400})$", re.MULTILINE)
"""A runner's output names the commands that it runs."""


def is_wider(command: str, other: str) -> bool:
    """Return whether one step of a command checks at least what *other* checks: ``pytest`` runs all tests.

    >>> is_wider("pytest -q", "pytest tests/test_a.py"), is_wider("pytest tests/test_a.py", "pytest")
    (True, False)
    """
    (program, options, targets), (old_program, old_options, old_targets) = _parts(command), _parts(other)
    if program != old_program or not options <= old_options:
        return False
    within = [target.rstrip("./") for target in targets]
    return not targets or (bool(old_targets) and all(any(_is_in(old, new) for new in within) for old in old_targets))


def _is_in(target: str, directory: str) -> bool:
    bare = target.rstrip("./")
    return not directory or bare == directory or bare.startswith((f"{directory}/", f"{directory}::"))


def _parts(command: str) -> tuple[str, frozenset[str], list[str]]:
    """Return program and subcommand, the options that choose among the tests, with their values, and the targets."""
    all_words = command.split()
    words = [word for word in all_words if "=" not in word or word.startswith("-")]
    size = 3 if words[1:2] in (["run"], ["exec"]) else 2 if _has_subcommand(words) else 1
    options = set(takewhile(lambda word: "=" in word and not word.startswith("-"), all_words))
    targets: list[str] = []
    is_value = False
    for word in words[size:]:
        if is_value:
            options.add(word)
            is_value = False
        elif word.startswith("-"):
            is_value = _NARROWING.fullmatch(word) is not None and "=" not in word and not _FLAG.fullmatch(word)
            options |= {word} if _NARROWING.fullmatch(word) else set()
        elif not word.startswith("'"):
            targets.append(word)
    return " ".join(words[:size]), frozenset(options), targets


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
        has_failed: The result is marked as failed, or its exit status says so.
        is_filtered: The output goes to a filter or a file, so that silence means nothing.
    """
    if _ABORTED.search(text[-MAX_END_CHARS:]):
        return "ran"
    if has_failed:
        return "fails"
    shares = [(int(some), int(most)) for some, most in _SHARE.findall(text)]
    if _FAILED.search(text) or any(some < most for some, most in shares):
        return "fails"
    if any(error_lines(text)) or _UNFINISHED.search(text):
        return "ran"
    if _PASSED.search(text) or any(some for some, _ in shares):
        return "passes"
    is_silent = not text.strip() or _SILENT.fullmatch(text) is not None
    return "passes" if is_silent and not is_filtered else "ran"


def is_filtered(command: str) -> bool:
    """Return whether a command keeps the output of a check back, by a pipe or a file, or does not wait for it."""
    bare = [_UNQUOTED.sub("''", step) for step in _checking_steps(command)]
    return any(_FILTER.search(step) or _BACKGROUND.match(step) or _is_diverted(step) for step in bare)


def _is_diverted(step: str) -> bool:
    found = (match[0].strip() for match in _DIVERTED.finditer(step))
    return any(not one.startswith(("2>", ">&")) for one in found)


def failing_lines(text: str) -> list[str]:
    """Return the first lines that a check prints only if it fails, at most `MAX_FAILING_LINES`, each once.

    A test within a test that is named already, such as ``TestParse/empty`` after ``TestParse``, says nothing more.
    """
    lines = dict.fromkeys(shown for line in text.splitlines() if _FAILED.search(line) and (shown := readable(line)))
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


def files_in(command: str) -> Iterator[FileChange]:
    """Yield the files that a command changes, in order; quoted texts of several lines and here-documents do nothing."""
    directory = ""
    for step in _steps_of(command):
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


def entered_first(command: str) -> str:
    """Return the first directory that *command* enters, as it is written; empty if it enters none."""
    return next((found for step in _steps_of(command) if (found := entered(step, "")) is not None), "")


def _steps_of(command: str) -> list[str]:
    """Return the steps of a command, without here-documents; a separator in quotes separates nothing."""
    text = _QUOTED.sub(lambda found: f"''{found['rest'] or ''}", command[:MAX_COMMAND_CHARS])
    quoted = [match.span() for match in _UNQUOTED.finditer(text)]
    steps: list[str] = []
    start = 0
    for found in _STEPS.finditer(text):
        if not any(begin < found.start() < end for begin, end in quoted):
            steps.append(text[start : found.start()].strip())
            start = found.end()
    return [step for step in (*steps, text[start:].strip()) if step]


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
