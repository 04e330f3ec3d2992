"""Keeps up the `WorkState` after each message: files, checks, version control, plan, questions, calls that go on.

Tools are known by the form of their names, arguments and results, and none by its product.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from buoyline.compression.extractive.calls import Step, letters_of, steps
from buoyline.compression.extractive.checks import changed_after, note_checks
from buoyline.compression.extractive.commands import directory_behind
from buoyline.compression.extractive.files import changes_in, note_change
from buoyline.compression.extractive.lines import LineFinder
from buoyline.compression.extractive.plans import is_over, plan_in, planned, request_in, ticked
from buoyline.compression.extractive.questions import answered, asked_by, asked_in, asks_back
from buoyline.compression.extractive.repository import asks_git, moved_tree, repository_behind
from buoyline.compression.identifiers import readable
from buoyline.compression.summary import SourceMessage
from buoyline.compression.work_state import (
    MAX_CHECKS,
    MAX_COMMITS,
    MAX_FILES,
    MAX_QUESTIONS,
    MAX_TEXT_CHARS,
    MAX_WAITING,
    Awaited,
    AwaitedCall,
    FileState,
    WorkState,
)

_BACKGROUND_KEYS: Final = frozenset({"runinbackground", "background", "isbackground", "async", "detach"})
_TASK_KEYS: Final = frozenset({"prompt", "task", "instructions", "message"})
_AGENT = re.compile(r"agent|task|delegate|handoff|spawn", re.IGNORECASE)
_STARTED = re.compile(r"(?<![&|>])&\s*$|^\s*(?:nohup|setsid)\b")
_ID = re.compile(
    r"\b(?:id|ID|Id|agentId|agent_id|task_id|pid|PID|shell|process)\b\W{0,4}(?:ID\W{1,4})?([\w-]{2,60})|^\[\d+\]\s+(\d+)",
    re.MULTILINE,
)
_ENDED = re.compile(
    r"\b(?:completed?|finished|exited|exit(?:ed)? (?:code|with)|failed|killed|terminated|stopped|done)\b", re.IGNORECASE
)
_RUNNING = re.compile(r"\b(?:still )?(?:running|pending|in progress)\b", re.IGNORECASE)
_MENTION_CHARS: Final = 200
"""Before and behind an id, in which the user's words say that its call has ended."""


def work_of(sources: Sequence[SourceMessage], state: WorkState | None = None) -> WorkState:
    """Return the state of the work behind *sources*, in order, which may be empty; *state* is that before them."""
    before = state or WorkState()
    if not sources:
        return before
    citations = LineFinder()
    return advanced(before, sources, steps(sources, citations), citations)


def advanced(
    state: WorkState, sources: Sequence[SourceMessage], made: Sequence[Step], citations: LineFinder
) -> WorkState:
    """Return *state* after *sources* with the calls *made*; calls without a result change only plan and waiting.

    The messages are in order and not empty.
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
    return progress.state(end=sources[-1].index + 1)


class _Progress:
    """The state in the making."""

    def __init__(self, state: WorkState, citations: LineFinder) -> None:
        self._citations = citations
        self._files, self._checks = dict(state.files), dict(state.checks)
        self._repository, self._plan, self._requested = state.repository, state.plan, state.requested
        self._waiting = [one for one in state.waiting if _is_running(one)]
        self._questions = list(state.questions)
        self._has_used_git, self._has_tool_plan = state.has_used_git, state.has_tool_plan
        self._directory = state.directory
        self._is_asked_back = False
        self._asked = "\n".join(one for asked in state.questions[-1:] for one in (*asked.options, asked.text))

    def hear(self, source: SourceMessage) -> None:
        """Take in a message of the user: an answer, a list of requests, a notification."""
        if not source.message.text.strip():
            return
        self._waiting = _still_waiting(self._waiting, source.message.text)
        if not self._has_tool_plan:
            self._plan = () if is_over(self._plan, source.index) else ticked(self._plan, source)
        self._requested = () if is_over(self._requested, source.index) else ticked(self._requested, source)
        self._requested = request_in(source, self._asked, self._citations) or self._requested
        self._questions = answered(self._questions, source, self._citations)
        self._is_asked_back = asks_back(source)
        self._asked = ""

    def read(self, source: SourceMessage, *, is_next: bool) -> None:
        """Take in the agent's words: an item that is done, a plan, a question.

        A call without a result was given up if the agent goes on after others have spoken, that is, if it *is_next*.
        """
        if is_next:
            self._waiting = [one for one in self._waiting if _is_running(one)]
        if not source.message.text.strip():
            return
        if not self._has_tool_plan:
            self._plan = plan_in(source, self._citations) or ticked(self._plan, source)
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
        """Take in a call and its result; a call without a result changes only plan and waiting."""
        started = _started_by(step, self._citations)
        if step.reading is not None:
            self._note_changes(step)
            if step.action.operation == "run" and not step.action.is_harmless:
                note_checks(self._checks, self._files, step, self._citations, goes_on=started is not None)
            if asks_git(step):
                self._has_used_git = True
                self._repository = repository_behind(self._repository, step, step.reading, self._citations)
            self._directory = directory_behind(step.action.command, self._directory)
        before = self._plan if self._has_tool_plan else ()
        if (plan := planned(before, step, self._citations)) is not before:
            self._plan, self._has_tool_plan = plan, True
        self._waiting = _ended_by(self._waiting, step)
        if started is not None:
            self._waiting.append(started)
        self._questions += asked_by(step, self._citations)

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
            requested=self._requested,
            waiting=tuple(self._waiting[-MAX_WAITING:]),
            questions=tuple(self._questions[-MAX_QUESTIONS:]),
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


# Calls whose outcome is not known yet: commands in the background, other agents, and calls without a result.


def _started_by(step: Step, citations: LineFinder) -> AwaitedCall | None:
    """Return what a call leaves running: its result only names it, or there is none yet; None if it has ended."""
    action = step.action
    named = [(letters_of(key), value) for key, value in action.arguments.items()]
    is_background = any(name in _BACKGROUND_KEYS and value is True for name, value in named)
    is_background = is_background or (action.operation == "run" and _STARTED.search(action.command) is not None)
    kind: Awaited = "background" if is_background else "call"
    if _AGENT.search(action.name) is not None and any(name in _TASK_KEYS for name, _ in named):
        kind = "agent"  # it was given a task
    key = ""
    if step.answer is not None:
        text = step.reading.text if step.reading is not None else ""
        if not is_background or step.has_failed or _ENDED.search(text):
            return None
        found = _ID.search(text)
        key = (found[1] or found[2]) if found is not None else ""
    said = readable(action.spoken())[:MAX_TEXT_CHARS]
    return AwaitedCall(said, kind, step.call.index, citations.of(step.call, action.command or action.name), key)


def _is_running(one: AwaitedCall) -> bool:
    """Return whether it runs beside the work; else it is a call whose result comes next, or never."""
    return bool(one.key) or one.kind == "background"


def _still_waiting(waiting: Sequence[AwaitedCall], text: str) -> list[AwaitedCall]:
    """Return which of *waiting* go on behind the user's words *text*, which may be a notification.

    One that names the id and an end ends it. A call without a result was interrupted if the user says something.
    """
    kept: list[AwaitedCall] = []
    for one in waiting:
        named = re.finditer(re.escape(one.key), text) if one.key else ()
        around = (text[max(found.start() - _MENTION_CHARS, 0) : found.end() + _MENTION_CHARS] for found in named)
        has_ended = any(_ENDED.search(words) and not _RUNNING.search(words) for words in around)
        if _is_running(one) and not has_ended:
            kept.append(one)
    return kept[-MAX_WAITING:]


def _ended_by(waiting: Sequence[AwaitedCall], step: Step) -> list[AwaitedCall]:
    """Return which of *waiting* go on behind a call, which may ask for one by its id, or end it."""
    if step.reading is None or not any(one.key for one in waiting):
        return list(waiting)
    arguments = {str(value) for value in step.action.arguments.values()}
    text = step.reading.text
    kills = re.search(r"kill|stop|cancel", step.action.name, re.IGNORECASE) is not None and not step.has_failed
    is_over = kills or (_ENDED.search(text) is not None and _RUNNING.search(text) is None)
    killed = re.findall(r"\bkill(?:\s+-\w+)*\s+([\d\s]+)", step.action.command)
    gone = {pid for found in killed for pid in found.split()}
    return [
        one
        for one in waiting
        if not (one.key and ((one.key in arguments and is_over) or one.key in gone) and one.last < step.call.index)
    ]
