"""Keeps up the `WorkState` after each message: files, checks, version control, plan.

Tools are known by the form of their names, arguments and results, and none by its product.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from buoyline.compression.extractive.calls import Step, letters_of
from buoyline.compression.extractive.checks import changed_after, note_checks
from buoyline.compression.extractive.commands import directory_behind
from buoyline.compression.extractive.files import changes_in, note_change
from buoyline.compression.extractive.lines import LineFinder
from buoyline.compression.extractive.plans import is_over, plan_in, planned, ticked
from buoyline.compression.extractive.repository import asks_git, moved_tree, repository_behind
from buoyline.compression.summary import SourceMessage
from buoyline.compression.work_state import (
    MAX_CHECKS,
    MAX_COMMITS,
    MAX_FILES,
    FileState,
    WorkState,
)

_BACKGROUND_KEYS: Final = frozenset({"runinbackground", "background", "isbackground", "async", "detach"})
_STARTED = re.compile(r"(?<![&|>])&\s*$|^\s*(?:nohup|setsid)\b")
_ENDED = re.compile(
    r"\b(?:completed?|finished|exited|exit(?:ed)? (?:code|with)|failed|killed|terminated|stopped|done)\b", re.IGNORECASE
)


def advanced(
    state: WorkState, sources: Sequence[SourceMessage], made: Sequence[Step], citations: LineFinder
) -> WorkState:
    """Return *state* after *sources* with the calls *made*; calls without a result change only the plan.

    The messages are in order and not empty.
    """
    by_message: defaultdict[int, list[Step]] = defaultdict(list)
    for step in made:
        by_message[step.call.index].append(step)
    progress = _Progress(state, citations)
    for source in sources:
        if source.message.role == "user":
            progress.hear(source)
        elif source.message.role == "assistant":
            progress.read(source)
        for step in by_message[source.index]:
            progress.note(step)
    return progress.state(end=sources[-1].index + 1)


class _Progress:
    """The state in the making."""

    def __init__(self, state: WorkState, citations: LineFinder) -> None:
        self._citations = citations
        self._files, self._checks = dict(state.files), dict(state.checks)
        self._repository, self._plan = state.repository, state.plan
        self._has_used_git, self._has_tool_plan = state.has_used_git, state.has_tool_plan
        self._directory = state.directory

    def hear(self, source: SourceMessage) -> None:
        """Take in a message of the user, which may say that an item is done or open again."""
        if source.message.text.strip() and not self._has_tool_plan:
            self._plan = () if is_over(self._plan, source.index) else ticked(self._plan, source)

    def read(self, source: SourceMessage) -> None:
        """Take in the agent's words: an item that is done, a plan."""
        if source.message.text.strip() and not self._has_tool_plan:
            self._plan = plan_in(source, self._citations) or ticked(self._plan, source)

    def note(self, step: Step) -> None:
        """Take in a call and its result; a call without a result changes only the plan."""
        if step.reading is not None:
            self._note_changes(step)
            if step.action.operation == "run" and not step.action.is_harmless:
                note_checks(self._checks, self._files, step, self._citations, goes_on=_goes_on(step))
            if asks_git(step):
                self._has_used_git = True
                self._repository = repository_behind(self._repository, step, step.reading, self._citations)
            self._directory = directory_behind(step.action.command, self._directory)
        before = self._plan if self._has_tool_plan else ()
        if (plan := planned(before, step, self._citations)) is not before:
            self._plan, self._has_tool_plan = plan, True

    def _note_changes(self, step: Step) -> None:
        if not step.has_failed and (words := moved_tree(step.action.command)):
            for key, check in self._checks.items():
                self._checks[key] = changed_after(check, f"the files of `{words}`")
        home = self._directory if step.action.operation == "run" else ""
        for change in changes_in(step):
            note_change(self._files, change, step, self._citations, home=home)
            for key, check in self._checks.items():
                if check.last == step.call.index and change.operation != "read":
                    self._checks[key] = changed_after(check, change.path)

    def state(self, *, end: int) -> WorkState:
        """Return the state, as large as it may be."""
        return WorkState(
            files=_newest_files(self._files),
            checks=dict(list(self._checks.items())[-MAX_CHECKS:]),
            repository=replace(self._repository, commits=self._repository.commits[-MAX_COMMITS:]),
            plan=self._plan,
            has_used_git=self._has_used_git,
            has_tool_plan=self._has_tool_plan,
            directory=self._directory,
            end=end,
        )


def _newest_files(files: Mapping[str, FileState]) -> dict[str, FileState]:
    """Return at most `MAX_FILES` of *files*: read ones go before changed ones, old ones before new ones."""
    by_need = sorted(files, key=lambda name: (files[name].operation != "read", files[name].last))
    gone = set(by_need[: max(len(files) - MAX_FILES, 0)])
    return {name: one for name, one in files.items() if name not in gone}


def _goes_on(step: Step) -> bool:
    """Return whether the command of a call runs on in the background: its result says only that it was started."""
    named = [(letters_of(key), value) for key, value in step.action.arguments.items()]
    is_background = any(name in _BACKGROUND_KEYS and value is True for name, value in named)
    is_background = is_background or _STARTED.search(step.action.command) is not None
    text = step.reading.text if step.reading is not None else ""
    return is_background and not step.has_failed and _ENDED.search(text) is None
