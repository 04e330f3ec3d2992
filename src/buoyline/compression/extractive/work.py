"""Keeps up the `WorkState`: files, checks, version control and plan after each call and its result.

Tools are known by the form of their names, arguments and results, and none by its product.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final

from buoyline.compression.extractive.commands import checks_in, files_in, git_output, outcome_of, verdict_of
from buoyline.compression.extractive.edits import edit_in, is_whole_file
from buoyline.compression.extractive.lines import LineFinder, merged_pointers
from buoyline.compression.extractive.speech import letters_of, tasks_of
from buoyline.compression.extractive.steps import Step, programs_in, subjects_of
from buoyline.compression.pointers import Pointer
from buoyline.compression.work_state import CheckState, FileOperation, FileState, PlanItem, RepositoryState, WorkState


def advanced(state: WorkState, made: Sequence[Step], citations: LineFinder, *, end: int) -> WorkState:
    """Return *state* after the calls *made*, which are in order; calls without a result change only the plan."""
    files, checks, repository, plan = dict(state.files), dict(state.checks), state.repository, state.plan
    has_used_git = state.has_used_git
    for step in made:
        if step.reading is not None:
            for operation, path, new_path in _touched(step):
                _touch(files, operation, path, step, citations)
                if new_path:
                    _touch(files, "created", new_path, step, citations)
            if step.action.operation == "run" and not step.action.is_harmless:
                _check(checks, files, step, citations)
            if re.search(r"\bgit\b", step.action.command) or "commit" in step.action.name.lower():
                has_used_git = True
                repository = _with_output(repository, step)
        plan = _planned(plan, step, citations)
    return WorkState(files, checks, repository, plan, has_used_git, end)


def _touched(step: Step) -> Iterator[tuple[FileOperation, str, str]]:
    action = step.action
    if step.has_failed:
        return
    if action.operation == "change":
        operation: FileOperation = "created" if is_whole_file(action.arguments) else "changed"
        for path in action.paths:
            yield operation, path, ""
    elif action.operation == "look":
        for path in action.paths:
            yield "read", path, ""
    elif action.operation == "run" and not action.is_harmless:
        yield from files_in(action.command)


def _touch(files: dict[str, FileState], operation: FileOperation, path: str, step: Step, citations: LineFinder) -> None:
    known, index = files.pop(path, None), step.call.index
    edit = edit_in(step.action.arguments)
    places = (citations.of(step.call, words) for words in (path, *(edit.lines if edit is not None else ())))
    pointers = merged_pointers(chain.from_iterable(places))
    if operation == "read":
        is_changed = known is not None and known.operation != "read"
        found = known if is_changed and known is not None else FileState(path, "read", 0, index, pointers)
        files[path] = replace(found, content=_content(step))
        return
    before = known.operation if known is not None else None
    if operation == "changed" and before == "created":
        operation = "created"
    elif operation == "created" and before in {"read", "changed"}:
        operation = "changed"
    changes = (known.changes if known is not None else 0) + 1
    files[path] = FileState(path, operation, changes, index, pointers, edit.clause if edit is not None else "")


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
    text = step.reading.text
    outcome = outcome_of(text, has_failed=step.has_failed, is_filtered="|" in step.action.command)
    if outcome == "fails":
        passages = step.errors or (step.outcome,)
        names = [" && ".join(found)]
        replaced = [name for name in found if name in checks and name not in names]
    else:
        passages, names = (step.reading.passage(verdict_of(text), citations),), found
        replaced = [name for name in checks if name not in names and _is_covered(checks[name], step)]
    line = " / ".join(dict.fromkeys(passage.text for passage in passages))
    places = (passage.pointers for passage in passages)
    pointers = merged_pointers(chain(citations.of(step.call, found[0]), *places))
    covered = [checks.pop(name) for name in replaced]
    for name in names:
        known = checks.pop(name, covered[-1] if covered and outcome == "passes" else None)
        new = CheckState(name, outcome, line, step.call.index, (known.runs if known else 0) + 1, pointers)
        if known is not None and outcome != "fails":
            new = replace(new, failed_before=known.failed_before, changed_between=known.changed_between)
            if known.outcome == "fails":
                between = tuple(one.path for one in files.values() if one.changes and one.last > known.last)
                both = merged_pointers((*known.pointers, *pointers))
                new = replace(new, failed_before=known.line, changed_between=between, pointers=both)
        checks[name] = new


def _is_covered(check: CheckState, step: Step) -> bool:
    """Return whether a failed check is tried again by *step*, alone or as a part: ``pytest`` runs all tests."""
    if check.outcome != "fails":
        return False
    programs = list(programs_in(check.command))
    return bool(programs) and all(not step.tried.isdisjoint(subjects_of(program)) for program in programs)


def _with_output(repository: RepositoryState, step: Step) -> RepositoryState:
    output = git_output(step.action.command, step.reading.text if step.reading is not None else "")
    index = step.call.index
    if output.branch:
        repository = replace(repository, branch=output.branch)
    if output.commits:
        pointers = (step.answer.pointer,) if step.answer is not None and step.answer.pointer is not None else ()
        commits = (*repository.commits, *output.commits)
        repository = replace(repository, commits=commits, last_commit=index, pointers=pointers)
    if output.pushed:
        repository = replace(repository, pushed=output.pushed, last_push=index)
    return repository


_NEW_ID = re.compile(r"(?:#|\b(?:id|ID|Id)\W{1,4})([\w-]{1,40})")
_PLAN_WORDS = re.compile(r"task|todo|plan|item|step", re.IGNORECASE)
_TITLE_KEYS: Final = ("subject", "title", "task", "content", "text", "name")
_ID_KEYS: Final = ("taskid", "id", "todoid", "itemid", "key")
_DONE: Final = frozenset({"completed", "complete", "done", "closed", "cancelled", "deleted"})


def _planned(plan: tuple[PlanItem, ...], step: Step, citations: LineFinder) -> tuple[PlanItem, ...]:
    """Return the plan after a call that sets it whole, adds an entry, or changes the status of one."""
    arguments, index = step.action.arguments, step.call.index
    if step.action.operation == "plan":
        return tuple(
            PlanItem(task.text, task.status, task.is_done, index, citations.of(step.call, task.text))
            for task in tasks_of(arguments)
        )
    if not _PLAN_WORDS.search(step.action.name):
        return plan
    values = {letters_of(key): value for key, value in arguments.items()}
    key = next((str(values[name]) for name in _ID_KEYS if values.get(name) is not None), "")
    status = str(values.get("status") or values.get("state") or "")
    if key and status:
        is_done = status.lower() in _DONE
        return tuple(
            replace(item, status=status, is_done=is_done, last=index) if item.key == key else item for item in plan
        )
    title = next((str(values[name]) for name in _TITLE_KEYS if values.get(name)), "")
    if title and not key and step.reading is not None and (found := _NEW_ID.search(step.reading.text)) is not None:
        pointers = citations.of(step.call, title)
        return (*plan, PlanItem(title, status or "pending", is_done=False, last=index, pointers=pointers, key=found[1]))
    return plan
