"""Keeps up the `WorkState`: files, checks, version control and plan after each call and its result.

Tools are known by the form of their names, arguments and results, and none by its product.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from posixpath import basename, join
from typing import TypeVar

from buoyline.compression.extractive.commands import (
    FileChange,
    checks_in,
    directory_behind,
    entered_first,
    failing_lines,
    files_in,
    git_output,
    is_filtered,
    is_wider,
    outcome_of,
    tried_in,
    verdict_of,
)
from buoyline.compression.extractive.edits import edit_in, is_whole_file
from buoyline.compression.extractive.file_names import known_name
from buoyline.compression.extractive.lines import LineFinder, ResultText, merged_pointers
from buoyline.compression.extractive.pending_calls import ended_by, is_running, started_by, still_waiting
from buoyline.compression.extractive.plans import is_over, plan_in, planned, request_in, ticked
from buoyline.compression.extractive.questions import answered, asked_by, asked_in, asks_back
from buoyline.compression.extractive.speech import changes_something, patched_files
from buoyline.compression.extractive.steps import Step, steps
from buoyline.compression.extractive.text_protocol import with_calls
from buoyline.compression.pointers import Pointer
from buoyline.compression.summary import SourceMessage
from buoyline.compression.work_state import (
    MAX_BETWEEN,
    MAX_CHECKS,
    MAX_COMMITS,
    MAX_FILES,
    MAX_QUESTIONS,
    MAX_REPOSITORY_POINTERS,
    MAX_TEXT_CHARS,
    MAX_WAITING,
    CheckState,
    FileOperation,
    FileState,
    Outcome,
    RepositoryState,
    WorkState,
)

T = TypeVar("T")


def work_of(sources: Sequence[SourceMessage], state: WorkState | None = None) -> WorkState:
    """Return the state of the work behind *sources*.

    Args:
        sources: Messages in order; may be empty.
        state: The state behind the messages before; None if there were none.
    """
    before = state or WorkState()
    if not sources:
        return before
    citations = LineFinder()
    read = with_calls(sources, before)
    return advanced(before, read, steps(read, citations), citations)


def advanced(
    state: WorkState, sources: Sequence[SourceMessage], made: Sequence[Step], citations: LineFinder
) -> WorkState:
    """Return *state* after *sources* with the calls *made*; calls without a result change only plan and waiting.

    The messages are in order, not empty, and as `with_calls` returns them.
    """
    by_message: defaultdict[int, list[Step]] = defaultdict(list)
    for step in made:
        by_message[step.call.index].append(step)
    progress = _Progress(state, citations)
    role = ""
    for source in sources:
        before, role = role, source.message.role
        if role == "user":
            progress.hear(source)
        elif role == "assistant":
            progress.read(source, is_next=before != "assistant")
        for step in by_message[source.index]:
            progress.note(step)
    has_calls = state.writes_calls or any(
        call.call_id.startswith("text-") for one in sources for call in one.message.calls
    )
    return progress.state(end=sources[-1].index + 1, writes_calls=has_calls)


class _Progress:
    """The state in the making."""

    def __init__(self, state: WorkState, citations: LineFinder) -> None:
        self._citations = citations
        self._files, self._checks = dict(state.files), dict(state.checks)
        self._repository, self._plan, self._requested = state.repository, state.plan, state.requested
        self._waiting = [one for one in state.waiting if is_running(one)]
        self._questions = list(state.questions)
        self._has_used_git, self._has_tool_plan = state.has_used_git, state.has_tool_plan
        self._directory = state.directory
        self._is_asked_back = False
        self._asked = "\n".join(one for asked in state.questions[-1:] for one in (*asked.options, asked.text))

    def hear(self, source: SourceMessage) -> None:
        """Take in a message of the user: an answer, a list of requests, a notification."""
        if not source.message.text.strip():
            return
        self._waiting = still_waiting(self._waiting, source)
        if not self._has_tool_plan and is_over(self._plan, source.index):
            self._plan = ()
        if is_over(self._requested, source.index):
            self._requested = ()
        if not self._has_tool_plan:
            self._plan = ticked(self._plan, source)
        self._requested = ticked(self._requested, source)
        if request := request_in(source, self._asked, self._citations):
            self._requested = request
        self._questions = answered(self._questions, source, self._citations)
        self._is_asked_back = asks_back(source)
        self._asked = ""

    def read(self, source: SourceMessage, *, is_next: bool) -> None:
        """Take in the agent's words: what is done, a plan, a question.

        A call without a result was given up if the agent goes on after others have spoken.
        """
        if is_next:
            self._waiting = [one for one in self._waiting if is_running(one)]
        if not source.message.text.strip():
            return
        if not self._has_tool_plan:
            self._plan = ticked(self._plan, source)
            self._plan = plan_in(source, self._citations) or self._plan
        self._requested = ticked(self._requested, source)
        if not self._is_asked_back:  # else the agent went on without an answer to its question
            self._questions = [one for one in self._questions if one.answer or one.key]
        self._is_asked_back = False
        self._asked = source.message.text
        if source.message.calls or any(not one.answer and one.key for one in self._questions):
            return
        if asked := asked_in(source, self._citations):  # it replaces a question that the user asked back about
            self._questions = [*(one for one in self._questions if one.answer), *asked]

    def note(self, step: Step) -> None:
        """Take in a call and its result."""
        if step.reading is not None:
            self._touch(step)
            if step.action.operation == "run" and not step.action.is_harmless:
                _check(self._checks, self._files, step, self._citations)
            if re.search(r"\bgit\b", step.action.command) or "commit" in step.action.name.lower():
                self._has_used_git = True
                self._repository = _with_output(self._repository, step, step.reading, self._citations)
            self._directory = directory_behind(step.action.command, self._directory)
        before = self._plan if self._has_tool_plan else ()
        if (plan := planned(before, step, self._citations)) is not before:
            self._plan, self._has_tool_plan = plan, True
        self._waiting = ended_by(self._waiting, step)
        if (started := started_by(step, self._citations)) is not None:
            self._waiting.append(started)
        self._questions += asked_by(step, self._citations)

    def _touch(self, step: Step) -> None:
        if not step.has_failed and (found := _MOVES_TREE.search(step.action.command)) is not None:
            for key, check in self._checks.items():
                self._checks[key] = _changed_after(check, f"the files of `{found[1]} {found[2]}`")
        for change in _touched(step):
            home = self._directory if step.action.operation == "run" else ""
            for one in (change, *_within(self._files, change, home)):
                _touch(self._files, one, step, self._citations, home=home)
            for key, check in self._checks.items():
                if check.last == step.call.index and change.operation != "read":
                    self._checks[key] = _changed_after(check, change.path)
            if change.new_path:
                path = change.new_path
                path = join(path, basename(change.path)) if path.endswith(("/", ".")) else path
                moved = change._replace(operation="created", path=path, new_path="")
                _touch(self._files, moved, step, self._citations, home=home)

    def state(self, *, end: int, writes_calls: bool) -> WorkState:
        """Return the state, as large as it may be."""
        return WorkState(
            files=_newest_files(self._files),
            checks=dict(_newest(self._checks.items(), MAX_CHECKS)),
            repository=replace(self._repository, commits=_newest(self._repository.commits, MAX_COMMITS)),
            plan=self._plan,
            requested=self._requested,
            waiting=_newest(self._waiting, MAX_WAITING),
            questions=_newest(self._questions, MAX_QUESTIONS),
            has_used_git=self._has_used_git,
            has_tool_plan=self._has_tool_plan,
            writes_calls=writes_calls,
            directory=self._directory,
            end=end,
        )


def _newest(items: Iterable[T], most: int) -> tuple[T, ...]:
    return tuple(items)[-most:]


def _newest_files(files: Mapping[str, FileState]) -> dict[str, FileState]:
    """Return at most `MAX_FILES` of *files*: read ones go before changed ones, old ones before new ones."""
    by_need = sorted(files, key=lambda name: (files[name].operation != "read", files[name].last))
    gone = set(islice(by_need, max(len(files) - MAX_FILES, 0)))
    return {name: one for name, one in files.items() if name not in gone}


_OPEN_FILE = re.compile(
    r"^[(\[](?:Open )?File: (/?[^\s()\[\]]{1,400})(?: \(\d+ lines[^)\n]*\))?[)\]]\s*$", re.MULTILINE
)
"""Line in which an editor names the file that it shows: calls that change it need no path."""


_MOVES_TREE = re.compile(
    r"\b(git) (?:-\S+ \S+ )?(pull|merge|rebase|restore|cherry-pick|revert|checkout(?! -b)|switch(?! -c)"
    r"|reset(?=.* --hard)|stash(?! (?:list|show)))\b"
)
"""Commands after which many files may be others."""


_COMMITS = re.compile(r"\bgit (?:-\S+ \S+ )?commit\b(?!.*--dry-run)")


def _changed_after(check: CheckState, name: str) -> CheckState:
    known = (one for one in check.changed_after if one != name)
    return replace(check, changed_after=(*known, name)[-MAX_BETWEEN:])


def _touched(step: Step) -> Iterator[FileChange]:
    action = step.action
    if step.reading is None:
        return
    if step.has_failed:
        if failing_lines(step.reading.text):  # of a check, so the steps before it were taken
            yield from files_in(action.command, action.directory, before_checks=True)
        return
    if action.operation == "change":
        operation: FileOperation = "created" if is_whole_file(action.arguments) else "changed"
        patched = patched_files(action.arguments)
        for path in action.paths:
            named = _PATCHED.get(patched.get(path, "")) or _named_operation(action.words) or operation
            yield FileChange(named, path, directory=action.directory)
    elif action.operation == "look":
        for path in action.paths:
            yield FileChange("read", path, directory=action.directory)
    elif action.operation == "run" and not action.is_harmless:
        yield from files_in(action.command, action.directory)
    elif not action.paths and changes_something(action) and (shown := _OPEN_FILE.findall(step.reading.text)):
        yield FileChange("changed", shown[-1])


_PATCHED: Mapping[str, FileOperation] = {"Add": "created", "Update": "changed", "Delete": "deleted"}


def _named_operation(words: frozenset[str]) -> FileOperation | None:
    """Return what the name of a tool says that a replaced or written text does not."""
    if words & {"delete", "remove"}:
        return "deleted"
    return "moved" if words & {"move", "rename"} else "created" if "create" in words else None


def _touch(
    files: dict[str, FileState], change: FileChange, step: Step, citations: LineFinder, *, home: str = ""
) -> None:
    operation, path, directory, index = change.operation, change.path, change.directory, step.call.index
    name = known_name(files, path, directory, home=home)
    known = files.pop(name, None) if name is not None else None
    if known is not None and known.path.startswith("/") and not path.startswith("/"):
        spelled, directory = known.path, ""
    else:
        spelled = path
    key = spelled if spelled not in files else join(directory, spelled)
    edit = edit_in(step.action.arguments)
    places = (citations.of(step.call, words) for words in (path, *(edit.lines if edit is not None else ())))
    pointers = merged_pointers(chain.from_iterable(places))
    if step.reading is not None and not any(path in str(value) for value in step.action.arguments.values()):
        pointers = merged_pointers((*citations.of_result(step.reading, path), *pointers))  # the editor names the file
    if known is not None and spelled != path:  # this call does not hold the spelling that is kept
        pointers = merged_pointers((*known.pointers[:1], *pointers))
    if operation == "read":
        is_changed = known is not None and known.operation != "read"
        found = known if is_changed and known is not None else FileState(spelled, "read", 0, index, pointers)
        files[key] = replace(found, path=spelled, content=_content(step), directory=directory)
        return
    before = known.operation if known is not None else None
    if operation == "changed" and before == "created":
        operation = "created"
    elif operation == "created" and before in {"read", "changed"}:
        operation = "changed"
    changes = (known.changes if known is not None else 0) + 1
    clause = edit.clause[:MAX_TEXT_CHARS] if edit is not None else ""
    files[key] = FileState(spelled, operation, changes, index, pointers, clause, directory=directory)


def _within(files: Mapping[str, FileState], change: FileChange, home: str) -> list[FileChange]:
    """Return the same change for each known file in a directory that is deleted or moved."""
    if change.operation not in {"deleted", "moved"}:
        return []
    begin = join(home, change.directory, change.path).rstrip("/") + "/"
    inner = [one.path for one in files.values() if join(one.directory, one.path).startswith(begin)]
    return [change._replace(path=path, new_path="", directory="") for path in inner if path != change.path]


def _content(step: Step) -> Pointer | None:
    """Return where the result of a call is as a whole."""
    excerpt = step.reading.excerpt if step.reading is not None else None
    if excerpt is not None and excerpt.path:
        return Pointer(excerpt.path, 1, max(len(excerpt.whole), 1))
    return step.answer.pointer if step.answer is not None else None


def _check(checks: dict[str, CheckState], files: Mapping[str, FileState], step: Step, citations: LineFinder) -> None:
    """Note the outcome of the checks in one command; of a chain that failed, nobody knows which step did."""
    found = checks_in(step.action.command)
    if not found or step.reading is None:
        return
    text, directory = step.reading.text, entered_first(step.action.command, step.action.directory)
    outcome: Outcome = "ran"
    if started_by(step, citations) is None:
        outcome = outcome_of(text, has_failed=step.has_failed, is_filtered=is_filtered(step.action.command))
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
        tried = tried_in(step.action.command, text)
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


def _with_output(
    repository: RepositoryState, step: Step, reading: ResultText, citations: LineFinder
) -> RepositoryState:
    output = git_output(step.action.command, reading.text)
    index = step.call.index
    if output.branch and output.branch != repository.branch:
        repository = _cited(replace(repository, branch=output.branch), output.branch, reading, citations)
    if output.reset_to:
        repository = replace(repository, commits=_up_to(repository.commits, output.reset_to), last_commit=index)
    if _COMMITS.search(step.action.command) and not step.has_failed and not output.commits:
        repository = replace(repository, last_commit=index)  # its output was kept back
    for short, subject in output.commits:
        commits = (*repository.commits[: -1 if output.amends else None], (short, subject))
        repository = _cited(replace(repository, commits=commits, last_commit=index), short, reading, citations)
    if output.pushed:
        repository = replace(repository, pushed=output.pushed, last_push=index)
    return repository


def _up_to(commits: Sequence[tuple[str, str]], short: str) -> tuple[tuple[str, str], ...]:
    """Return *commits* up to the one with the hash *short*; all if it is not among them: it may be another branch's."""
    ends = [end for end, (known, _) in enumerate(commits, 1) if known.startswith(short) or short.startswith(known)]
    return tuple(commits[: ends[-1]] if ends else commits)


def _cited(repository: RepositoryState, words: str, reading: ResultText, citations: LineFinder) -> RepositoryState:
    """Return *repository* with the lines of the result that hold *words*, behind the newest ones before."""
    pointers = merged_pointers((*repository.pointers, *citations.of_result(reading, words)))
    return replace(repository, pointers=pointers[-MAX_REPOSITORY_POINTERS:])
