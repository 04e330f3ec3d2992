"""The newest checklist: in the arguments of a call, by id for one call an item, or with boxes in a message."""

import json
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from buoyline.compression.extractive.calls import Step
from buoyline.compression.summary import SourceMessage
from buoyline.messages.jsonl import is_array, is_object

_BOX = re.compile(r"^[ \t]*(?:(?:[-*]|\d{1,3}[.)])[ \t]*)?\[([ xX✓~-])\][ \t]+(\S.*)$", re.MULTILINE)
_DONE = frozenset({"completed", "complete", "done", "closed", "cancelled", "true", "x", "✓"})
_STATES = ("status", "state", "completed", "done")
_TITLES = ("content", "subject", "title", "task", "step", "text")
_TRACKS = re.compile("task|todo", re.IGNORECASE)
_NUMBER = re.compile(r"#(\w{1,20})")


class Item(NamedTuple):
    """A task of a plan, its state as the agent spells it, and where it was last said."""

    text: str
    state: str
    source: SourceMessage

    @property
    def is_done(self) -> bool:
        """Whether nothing of it is left to do."""
        return self.state.strip().lower() in _DONE


def checklist(steps: Iterable[Step], sources: Sequence[SourceMessage]) -> list[Item]:
    """Return the newest checklist of at least two tasks; empty if there is none."""
    plan, by_id = list[Item](), dict[str, Item]()
    for step in steps:
        for value in step.arguments.values():
            found = [Item(*task, step.source) for task in _tasks_in(value)]
            plan = found if len(found) > 1 else plan
        _track(step, by_id)
    for source in sources:
        if source.message.role == "assistant" and (not plan or source.index > plan[0].source.index):
            found = [Item(*task, source) for task in _tasks_in(source.message.text)]
            plan = found if len(found) > 1 else plan
    newest = max((item.source.index for item in by_id.values()), default=-1)
    return [*by_id.values()] if by_id and (not plan or newest > plan[0].source.index) else plan


def _track(step: Step, by_id: dict[str, Item]) -> None:
    """Take over a call that makes one task or changes its state."""
    given = step.arguments
    if not _TRACKS.search(step.call.name):
        return
    subject, key = given.get("subject"), next((str(given[k]) for k in ("taskId", "task_id", "id") if k in given), "")
    if isinstance(subject, str) and (made := _NUMBER.search(step.text)):
        by_id[made[1]] = Item(subject, "pending", step.source)
    elif key in by_id and "status" in given:
        by_id[key] = Item(by_id[key].text, str(given["status"]), step.source)


def _tasks_in(value: object) -> list[tuple[str, str]]:
    """Return text and state of each task in a list of objects with a state, or in a text with boxes."""
    if isinstance(value, str):
        if value.lstrip().startswith("["):
            try:
                if is_array(found := json.loads(value)):
                    return _tasks_in(found)
            except (ValueError, RecursionError):
                pass
        return [(text.strip(), {" ": "open", "~": "in progress", "-": "in progress"}.get(mark, "done"))
                for mark, text in _BOX.findall(value)]  # fmt: skip
    tasks = list[tuple[str, str]]()
    for entry in value if is_array(value) else ():
        state = next((entry[key] for key in _STATES if key in entry), None) if is_object(entry) else None
        title = next((entry[key] for key in _TITLES if isinstance(entry.get(key), str)), "") if is_object(entry) else ""
        if state is None or not title:
            return []
        tasks.append((title, {"true": "done", "false": "open"}.get(str(state).lower(), str(state))))
    return tasks
