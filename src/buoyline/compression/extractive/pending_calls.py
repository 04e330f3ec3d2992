"""Calls whose outcome is not known yet: commands in the background, other agents, and calls without a result."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from buoyline.compression.extractive.lines import LineFinder
from buoyline.compression.extractive.speech import letters_of
from buoyline.compression.extractive.steps import Step
from buoyline.compression.identifiers import readable
from buoyline.compression.summary import SourceMessage
from buoyline.compression.work_state import MAX_TEXT_CHARS, MAX_WAITING, Awaited, AwaitedCall

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


def started_by(step: Step, citations: LineFinder) -> AwaitedCall | None:
    """Return what a call leaves running: its result only names it, or there is none yet; None if it has ended."""
    action = step.action
    is_background = any(
        letters_of(key) in _BACKGROUND_KEYS and value is True for key, value in action.arguments.items()
    )
    is_background = is_background or (action.operation == "run" and _STARTED.search(action.command) is not None)
    kind: Awaited = "agent" if _gives_task(step) else "background" if is_background else "call"
    key = ""
    if step.answer is not None:
        text = step.reading.text if step.reading is not None else ""
        if not is_background or step.has_failed or _ENDED.search(text):
            return None
        found = _ID.search(text)
        key = (found[1] or found[2]) if found is not None else ""
    said = readable(action.spoken())[:MAX_TEXT_CHARS]
    return AwaitedCall(said, kind, step.call.index, citations.of(step.call, action.command or action.name), key)


def is_running(one: AwaitedCall) -> bool:
    """Return whether it runs beside the work; else it is a call whose result comes next, or never."""
    return bool(one.key) or one.kind == "background"


def still_waiting(waiting: Sequence[AwaitedCall], source: SourceMessage) -> list[AwaitedCall]:
    """Return what of *waiting* goes on behind the words of the user, which may be a notification.

    One that names the id and an end ends it. A call without a result was interrupted if the user says something.
    """
    return [one for one in waiting if is_running(one) and not _ends(one, source.message.text)][-MAX_WAITING:]


def ended_by(waiting: Sequence[AwaitedCall], step: Step) -> list[AwaitedCall]:
    """Return what of *waiting* goes on behind a call, which may ask for it by its id, or end it."""
    if step.reading is None or not any(one.key for one in waiting):
        return list(waiting)
    arguments = {str(value) for value in step.action.arguments.values()}
    text = step.reading.text
    kills = re.search(r"kill|stop|cancel", step.action.name, re.IGNORECASE) is not None and not step.has_failed
    is_over = kills or (_ENDED.search(text) is not None and _RUNNING.search(text) is None)
    killed = set(re.findall(r"\bkill(?:\s+-\w+)*\s+([\d\s]+)", step.action.command))
    gone = {pid for found in killed for pid in found.split()}
    return [
        one
        for one in waiting
        if not (one.key and ((one.key in arguments and is_over) or one.key in gone) and one.last < step.call.index)
    ]


def _gives_task(step: Step) -> bool:
    keys = {letters_of(key) for key in step.action.arguments}
    return _AGENT.search(step.action.name) is not None and not keys.isdisjoint(_TASK_KEYS)


def _ends(one: AwaitedCall, text: str) -> bool:
    if not one.key or one.key not in text:
        return False
    return any(_ENDED.search(line) and not _RUNNING.search(line) for line in _around(text, one.key))


def _around(text: str, key: str) -> Iterator[str]:
    for found in re.finditer(re.escape(key), text):
        yield text[max(found.start() - 200, 0) : found.end() + 200]
