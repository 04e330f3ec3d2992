"""The user's own words, without what a harness puts around them; and the newest checklist."""

import json
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from buoyline.compression.extractive.calls import Step
from buoyline.compression.summary import SourceMessage
from buoyline.compression.text import sentences
from buoyline.messages.jsonl import is_array, is_object

_MOST_CHARS = 200_000

_OPENING = re.compile(r"<([a-z]+[-_][a-z_-]+|file|document|context)\b[^<>]{0,300}>")
"""Begins a harness's block: its tags have two words (`environment_details`, `system-reminder`, `command-name`)."""

_CLOSING = re.compile(r"</([a-z][a-z_-]*)>")
_WRAPPER = re.compile(r"</?(?:task|feedback|user_message|user_query|answer|request|query)>")
_PROGRAM = re.compile(r"\[[^\[\]]{1,100}\]|/[\w:-]{1,60}|<([a-z]+[-_][a-z_-]+)[^<>]{0,60}>.*</\1>", re.DOTALL)
_PROGRAM_BEGINS = ("Base directory for this skill", "This session is being continued", "Caveat: ")

_FORBIDS = re.compile(
    r"\b(?:never|must not|mustn't|should not|shouldn't|(?<!\bI )do not|(?<!\bI )don't|not allowed|forbidden|off limits"
    r"|keep away|leave .{1,40} alone)\b"
    r"|\b(?:nie|niemals|keinesfalls|auf keinen fall|nicht|keine?n?|verboten)\b"
    r"|\b(?:jamais|interdit|ne \w+ pas|nunca|prohibido|proibido|no (?:toques|uses|hagas|cambies|borres)|não)\b"
    r"|\b(?:не|нельзя|никогда)\b|不要|不能|不得|不可|禁止|切勿|(?<![特识区级分个性类])别"
    r"|ないで|するな|てはいけ|지 ?마|금지|안 ?됩",
    re.IGNORECASE,
)
_QUOTED_LINE = re.compile(r"^>.*$", re.MULTILINE)
_ASKS = re.compile(r"[?\uff1f][*_`\"')”」]{0,3}$")
_LEADS = re.compile(r"[:\uff1a][*_`]{0,3}$")
_LIST_LINE = re.compile(r"\s{0,20}(?:[-*+•]|\d{1,3}[.)])\s")
_MOST_LISTED = 12
_MOST_BAN_CHARS = 2_000


def asks(sentence: str) -> bool:
    """Return whether a sentence is a question."""
    return _ASKS.search(sentence) is not None


def leads(sentence: str) -> bool:
    """Return whether a sentence only leads to what follows it."""
    return _LEADS.search(sentence) is not None


def own_words(text: str) -> str:
    """Return a user's message without the blocks of a harness, and without the tags around the request itself."""
    text = text[:_MOST_CHARS]
    closings: dict[str, list[tuple[int, int]]] = {}
    for match in _CLOSING.finditer(text):
        closings.setdefault(match[1], []).append(match.span())
    pieces, end = list[str](), 0
    for match in _OPENING.finditer(text):
        places = closings.get(match[1], [])
        at = bisect_left(places, (match.end(), 0))
        if match.start() >= end and at < len(places) and not _WRAPPER.fullmatch(match[0]):
            pieces.append(text[end : match.start()])
            end = places[at][1]
    return _WRAPPER.sub(" ", " ".join([*pieces, text[end:]])).strip()


def is_made(text: str) -> bool:
    """Return whether a program wrote a message in the user's name: it is empty, or wholly in a tag or a bracket."""
    return not text or _PROGRAM.fullmatch(text) is not None or text.startswith(_PROGRAM_BEGINS)


def bans(text: str) -> Iterator[str]:
    """Yield the sentences of a user's message that forbid something, with the list to which one leads."""
    lines = _QUOTED_LINE.sub("", text).splitlines()
    fenced = False
    for at, line in enumerate(lines):
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        for sentence in () if fenced else sentences(line):
            if not _FORBIDS.search(sentence) or asks(sentence) or len(sentence) > _MOST_BAN_CHARS:
                continue
            listed = list[str]()
            for item in lines[at + 1 : at + 1 + _MOST_LISTED] if leads(sentence) else ():
                if not _LIST_LINE.match(item):
                    break
                listed += sentences(item)
            yield " ".join([sentence, *listed])


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
