"""What a shell command does to files, what it checks, and what its output says about checks and version control."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from buoyline.compression.identifiers import error_lines, readable
from buoyline.compression.work_state import FileOperation, Outcome

MAX_COMMAND_CHARS: Final = 4_000
"""The rest is a script or a piped text."""

_STEPS = re.compile(r"&&|\|\||;|\n")
_QUOTED = re.compile(
    r"<<-?\s*['\"]?(\w+)['\"]?.*?^\s*\1\b|\"(?:[^\"\\]|\\.)*\n(?:[^\"\\]|\\.)*\"|'[^']*\n[^']*'",
    re.DOTALL | re.MULTILINE,
)
"""Here-documents, and quoted texts of several lines: their words run nothing."""

_LOOKS = re.compile(
    r"\s*(?:cd|ls|cat|grep|rg|find|head|tail|echo|git|gh|sed|mkdir|cp|mv|rm|touch|export|chmod|which|kill|sleep)\b"
)
_CHECKS = re.compile(
    r"(?:^|[^a-z])(?:py|vi|je|un|no)?"
    r"(?:tests?|lint|check|typecheck|build|compile|verify|validate|spec|ci|vet|clippy|e2e)(?:$|[^a-z])",
    re.IGNORECASE,
)
_PASSED = re.compile(
    r"\b(?:[1-9]\d* pass(?:ed|ing)?|0 (?:issues|errors|failures|failed|problems)|no (?:issues|errors|problems)"
    r"|all (?:tests|checks) (?:passed|pass)|PASS(?:ED)?|BUILD SUCCESS\w*|success(?:ful(?:ly)?)?|succeeded|OK|ok)\b"
)
_COUNTS = re.compile(r"\b(?:[1-9]\d* pass|0 \w+|all (?:tests|checks))", re.IGNORECASE)

_REDIRECT = re.compile(r"(?<![0-9&=>-])>{1,2}\s{0,4}([\w./~@+-]{1,400})")
_SHELL_FILE = re.compile(r"^(?:git\s+)?(rm|mv|cp|touch|tee|unlink)\s+((?:-\S+\s+)*)(.+)$")
_SED = re.compile(r"^sed\s+-i\S*\s.*?\s([\w./~@+-]{1,400})$")
_DEVICES = ("/dev/null", "/dev/stdout", "/dev/stderr")

_COMMIT = re.compile(r"^\[([^\s\]]{1,120})(?: \([^)\n]{0,40}\))? ([0-9a-f]{7,40})\] (\S[^\n]{0,200})$", re.MULTILINE)
_BRANCH = re.compile(
    r"^(?:Switched to (?:a new )?branch|Already on) '([^'\n]{1,120})'|^On branch (\S{1,120})$", re.MULTILINE
)
_PUSH = re.compile(
    r"^\s{0,9}[+* ]?\s?(?:([0-9a-f]{7,40})\.{2,3}([0-9a-f]{7,40})|\[new branch\])\s+(\S{1,120}) -> ", re.MULTILINE
)


def checks_in(command: str) -> list[str]:
    """Return the steps of a command that check the work, without directories, filters and comments, each once."""
    kept = [
        readable(re.split(r"(?<!\|)\|(?!\|)", step)[0].replace("2>&1", ""))
        for step in _STEPS.split(_QUOTED.sub("''", command[:MAX_COMMAND_CHARS]).split("<<", 1)[0])
        if _CHECKS.search(step[:200]) and not _LOOKS.match(step) and not step.lstrip().startswith("#")
    ]
    return list(dict.fromkeys(kept))


def outcome_of(text: str, *, has_failed: bool, is_filtered: bool) -> Outcome:
    """Return how a check ended; "passes" only if its output says so, or if it succeeded in silence.

    Args:
        text: The output.
        has_failed: The result is marked as failed, or its exit status says so.
        is_filtered: The command pipes the output, so that silence means nothing.
    """
    if has_failed:
        return "fails"
    if any(error_lines(text)):
        return "ran"
    if _PASSED.search(text):
        return "passes"
    return "ran" if is_filtered or text.strip() else "passes"


def verdict_of(text: str) -> str:
    """Return the last line that counts what passed; empty if there is none."""
    lines = (readable(line) for line in reversed(text.splitlines()) if _PASSED.search(line))
    return next((line for line in lines if _COUNTS.search(line)), "")


def files_in(command: str) -> Iterator[tuple[FileOperation, str, str]]:
    """Yield the files that a command creates, changes, deletes or moves: operation, path, and where it moves to.

    Paths are as the command has them, whatever directory it enters: a path that nobody wrote cannot be found again.
    """
    for step in _STEPS.split(command.split("<<", 1)[0][:MAX_COMMAND_CHARS]):
        words = step.strip()
        for path in _REDIRECT.findall(words):
            if path not in _DEVICES:
                yield "created", path, ""
        if (found := _SHELL_FILE.match(words)) is not None:
            named = (word.strip("'\"") for word in found[3].split() if not word.startswith(("-", ">", "|", "2>")))
            yield from _operations(found[1], list(named))
        elif (edited := _SED.match(words)) is not None:
            yield "changed", edited[1], ""


def _operations(program: str, paths: Sequence[str]) -> Iterator[tuple[FileOperation, str, str]]:
    match program, paths:
        case "mv", [old, new]:
            yield "moved", old, new
        case "cp", [_, new]:
            yield "created", new, ""
        case "rm" | "unlink", _:
            for path in paths:
                yield "deleted", path, ""
        case "touch" | "tee", _:
            for path in paths:
                yield "created", path, ""
        case _:
            pass


@dataclass(frozen=True, slots=True)
class GitOutput:
    """What the output of a git command says.

    Attributes:
        branch: The branch that was switched to, committed on or shown; empty if none is named.
        commits: Hash and subject of each new commit, in order.
        pushed: Hash or branch that was pushed; empty if nothing was.
    """

    branch: str = ""
    commits: tuple[tuple[str, str], ...] = ()
    pushed: str = ""


def git_output(command: str, text: str) -> GitOutput:
    """Read the output of *command*."""
    branches = [found[1] or found[2] for found in _BRANCH.finditer(text)]
    commits = list(_COMMIT.finditer(text))
    branches += [found[1] for found in commits if found[1] != "detached"]
    pushed = [found[2] or found[3] for found in _PUSH.finditer(text)] if re.search(r"\bpush\b", command) else []
    return GitOutput(
        branches[-1] if branches else "",
        tuple((found[2], readable(found[3])) for found in commits),
        pushed[-1] if pushed else "",
    )
