"""Version control: what commands and their outputs say of the branch, the commits and the last push."""

import re
from dataclasses import replace

from buoyline.compression.extractive.calls import Step
from buoyline.compression.extractive.lines import LineFinder, ResultText, merged_pointers
from buoyline.compression.identifiers import readable
from buoyline.compression.work_state import MAX_REPOSITORY_POINTERS, RepositoryState

_MOVES_TREE = re.compile(
    r"\b(git) (?:-\S+ \S+ )?(pull|merge|rebase|restore|cherry-pick|revert|checkout(?! -b)|switch(?! -c)"
    r"|reset(?=.* --hard)|stash(?! (?:list|show)))\b"
)
"""Commands after which many files may be others."""
_COMMITS = re.compile(r"\bgit (?:-\S+ \S+ )?commit\b(?!.*--dry-run)")
_COMMIT = re.compile(r"^\[([^\s\]]{1,120})(?: \([^)\n]{0,40}\))? ([0-9a-f]{7,40})\] (\S[^\n]{0,200})$", re.MULTILINE)
_BRANCH = re.compile(
    r"^(?:Switched to (?:a new )?branch|Already on) '([^'\n]{1,120})'|^On branch (\S{1,120})$", re.MULTILINE
)
_RESET = re.compile(r"^HEAD is now at ([0-9a-f]{7,40})\b", re.MULTILINE)
_PUSHES = re.compile(r"\bpush\b(?!.*\s(?:--dry-run|-n)\b)")
_PUSH = re.compile(
    r"^\s{0,9}[+* ]?\s?(?:([0-9a-f]{7,40})\.{2,3}([0-9a-f]{7,40})|\[new branch\])\s+(\S{1,120}) -> ", re.MULTILINE
)


def asks_git(step: Step) -> bool:
    """Return whether a call asks or changes version control."""
    return re.search(r"\bgit\b", step.action.command) is not None or "commit" in step.action.name.lower()


def moved_tree(command: str) -> str:
    """Return the words of a command after which many files may be others, such as ``git pull``; else empty."""
    found = _MOVES_TREE.search(command)
    return "" if found is None else f"{found[1]} {found[2]}"


def repository_behind(
    repository: RepositoryState, step: Step, reading: ResultText, citations: LineFinder
) -> RepositoryState:
    """Return *repository* behind the call *step*, whose output is *reading*."""
    command, text, index = step.action.command, reading.text, step.call.index
    commits = [(found[1], found[2], readable(found[3])) for found in _COMMIT.finditer(text)]
    branches = [found[1] or found[2] for found in _BRANCH.finditer(text)]
    branches += [branch for branch, _, _ in commits if branch != "detached"]
    if branches and branches[-1] != repository.branch:
        repository = _cited(replace(repository, branch=branches[-1]), branches[-1], reading, citations)
    reset = _RESET.search(text) if re.search(r"\bgit\b.*\breset\b", command) else None
    if reset is not None:
        known, short = repository.commits, reset[1]
        ends = [end for end, (one, _) in enumerate(known, 1) if one.startswith(short) or short.startswith(one)]
        # A hash that is not among them may be another branch's.
        repository = replace(repository, commits=known[: ends[-1]] if ends else known, last_commit=index)
    if _COMMITS.search(command) and not step.has_failed and not commits:
        repository = replace(repository, last_commit=index)  # its output was kept back
    amends = re.search(r"\bcommit\b.*--amend\b", command) is not None
    for _, short, subject in commits:
        known = (*repository.commits[: -1 if amends else None], (short, subject))
        repository = _cited(replace(repository, commits=known, last_commit=index), short, reading, citations)
    pushed = [found[2] or found[3] for found in _PUSH.finditer(text)] if _PUSHES.search(command) else []
    if pushed:
        repository = replace(repository, pushed=pushed[-1], last_push=index)
    return repository


def _cited(repository: RepositoryState, words: str, reading: ResultText, citations: LineFinder) -> RepositoryState:
    """Return *repository* with the lines of the result that hold *words*, behind the newest ones before."""
    pointers = merged_pointers((*repository.pointers, *citations.of_result(reading, words)))
    return replace(repository, pointers=pointers[-MAX_REPOSITORY_POINTERS:])
