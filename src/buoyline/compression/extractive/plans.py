"""Plans in calls and in messages, and the user's numbered list ticked by the agent's later words."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from buoyline.compression.extractive.lines import LineFinder
from buoyline.compression.extractive.occurrences import MAX_TYPED_CHARS
from buoyline.compression.extractive.phrases import asks
from buoyline.compression.extractive.speech import is_made_by_machine, letters_of, list_in, tasks_of
from buoyline.compression.extractive.steps import Step
from buoyline.compression.identifiers import LIST_MARK, readable
from buoyline.compression.summary import SourceMessage
from buoyline.compression.work_state import MAX_ITEMS, MAX_TEXT_CHARS, PlanItem
from buoyline.messages.jsonl import is_object

OPEN: Final = "open"
DONE: Final = "done"

MIN_ITEMS: Final = 2
MAX_HEADINGS: Final = 1
"""A message of a user with more is a document and no list."""

MAX_JSON_CHARS: Final = 60_000
QUOTED_CHARS: Final = 24
"""An item is reported if its first so many characters begin a line of the agent's, or follow its label."""

MAX_LABEL_CHARS: Final = 80

BEFORE_DETAIL: Final = " \u2014 "
"""Between the title of an item and its description."""

MAX_AGE: Final = 60
"""A list in a message is over if nobody ticked an item of it for so many messages, and the user says something."""

_NEW_ID = re.compile(r"(?:#|\b(?:id|ID|Id)\W{1,4})([\w-]{1,40})")
_PLAN_NAME = re.compile(r"task|todo|plan|item|step", re.IGNORECASE)
_TITLE_KEYS: Final = ("subject", "title", "task", "content", "text", "name", "step", "description")
_ID_KEYS: Final = ("taskid", "id", "todoid", "itemid", "key")
_DONE_STATUS: Final = frozenset({"completed", "complete", "done", "closed", "cancelled", "deleted"})

_ITEM = re.compile(r"^\s{0,8}(\d{1,2})[.)\u3001\uff0e]\s*(\S.*)$")
_BOX = re.compile(r"^\s{0,8}(?:[-*+]|\d{1,2}[.)])\s+\[([^\]\n])\]\s+(\S.*)$")
_TICKS: Final = frozenset("xX\u2713\u2714\u2611\u2705")
_PLAN_WORDS = re.compile(
    r"\b(?:plan|to-?dos?|next steps|n\u00e4chste schritte|aufgaben|\u00e9tapes|pasos)\b"
    r"|\u8ba1\u5212|\u8a08\u753b|\u5f85\u529e|\u624b\u9806",
    re.IGNORECASE,
)
_NUMBERED = re.compile(
    r"(?:\b(?:items?|points?|tasks?|steps?|punkt|schritt|aufgabe|nr\.?|no\.?)\s{0,3}#?"
    r"|(?<!\bpr )(?<!pull request )(?<!issue )(?<!issues )(?<!\bmr )(?<!ticket )(?<!bug )(?<!\w)#"
    r"|\u7b2c|\u9805\u76ee|\u9879\u76ee"
    r"|(?P<bare>^\W{0,8}))(?P<number>\d{1,2})(?!\d|\.\d)(?P<words>.{0,120})",
    re.IGNORECASE | re.MULTILINE,
)
_SAYS_DONE = re.compile(
    r"\b(?:fixed|done|completed?|finished|implemented|addressed|resolved|erledigt|fertig|behoben|abgeschlossen|umgesetzt)\b"
    r"|\u5b8c\u6210|\u5df2\u4fee\u590d|\u641e\u5b9a|\u5df2\u89e3\u51b3|\u5b8c\u4e86|\u4fee\u6b63\u3057\u307e\u3057\u305f"
    r"|\u6e08\u307f|\u5bfe\u5fdc\u3057\u307e\u3057\u305f|[\u2705\u2713\u2714\u2611]",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W\d_]{3,}|[\u3040-\u30ff\u3400-\u9fff]")
_COMMON: Final = frozenset(
    {
        "the",
        "and",
        "for",
        "with",
        "that",
        "this",
        "was",
        "are",
        "has",
        "have",
        "been",
        "der",
        "die",
        "das",
        "und",
        "mit",
    }
)
_AHEAD = re.compile(
    r"\b(?:open|remaining|to-?do|next|still|left|offen\w*|n\u00e4chste\w*)\b|[\u5f85\u672a\u6b21]", re.IGNORECASE
)
_VERB_BEFORE = re.compile(
    r"\b(?:fixed|done|completed|finished|implemented|addressed|resolved)(?: with)? ?$", re.IGNORECASE
)
_MAX_VERB_CHARS: Final = 30
_SENTENCE_END = re.compile(r"[.!;](?:\s|$)|[\u3002\uff01\uff1b]")
_SAYS_NOT = re.compile(
    r"\b(?:not|isn't|hasn't|never|cannot|can't|to be|will be|once|until|should|must|can|could|may|might"
    r"|needs?|if|would|still|nicht|noch|wird|soll|sollte|muss|kann|wenn)\b"
    r"|\u672a|\u6ca1|\u8fd8|\u307e\u3060|\u3044\u306a\u3044|[?\uff1f]",
    re.IGNORECASE,
)


def planned(plan: tuple[PlanItem, ...], step: Step, citations: LineFinder) -> tuple[PlanItem, ...]:
    """Return the plan after a call that sets it whole, adds an entry, or changes the status of one."""
    arguments, index = step.action.arguments, step.call.index
    if step.action.operation == "plan":
        if step.has_failed:
            return plan
        return tuple(
            PlanItem(_short(task.text), task.status, task.is_done, index, citations.of(step.call, task.text))
            for task in tasks_of(arguments)[:MAX_ITEMS]
        )
    values = {letters_of(key): value for key, value in arguments.items()}
    if not _PLAN_NAME.search(step.action.name) or step.has_failed or "prompt" in values:
        return plan
    key = next((str(values[name]) for name in _ID_KEYS if values.get(name) is not None), "")
    status = str(values.get("status") or values.get("state") or "")
    if key and status:
        is_done = status.lower() in _DONE_STATUS
        return tuple(
            replace(item, status=status, is_done=is_done, last=index) if item.key == key else item for item in plan
        )
    title = _title(values)
    text = step.reading.text if step.reading is not None else ""
    if title and not key and len(text) <= MAX_TEXT_CHARS and (found := _NEW_ID.search(text)) is not None:
        pointers = citations.of(step.call, title)
        item = PlanItem(_short(title), status or "pending", is_done=False, last=index, pointers=pointers, key=found[1])
        return (*plan, item)[-MAX_ITEMS:]
    return plan


def plan_in(source: SourceMessage, citations: LineFinder) -> tuple[PlanItem, ...]:
    """Return the plan that a message of the agent sets: JSON, boxes to tick, or a numbered list under such a title."""
    text = source.message.text
    found = list(_in_json(text)) or list(_in_boxes(text)) or list(_in_numbers(text, needs_title=True))
    return _items(source, found, citations)


def request_in(source: SourceMessage, asked: str, citations: LineFinder) -> tuple[PlanItem, ...]:
    """Return the numbered list that a user wrote; empty if its numbers answer those of *asked*, the words before."""
    text = source.message.text
    headings = sum(line.startswith("#") for line in text.splitlines())
    if len(text) > MAX_TYPED_CHARS or headings > MAX_HEADINGS or is_made_by_machine(text):
        return ()
    found = list(_in_boxes(text)) or list(_in_numbers(text, needs_title=False))
    if any(_ITEM.match(line) for line in asked.splitlines()) and asks_something(asked):
        return ()
    return _items(source, found, citations)


def is_over(items: Sequence[PlanItem], index: int) -> bool:
    """Return whether a list in a message is over when the user says something in the message *index*."""
    return bool(items) and max(item.last for item in items) < index - MAX_AGE


def asks_something(text: str) -> bool:
    """Return whether a line of *text* is a question."""
    return any(asks(line.rstrip()) for line in text.splitlines())


def ticked(items: tuple[PlanItem, ...], source: SourceMessage) -> tuple[PlanItem, ...]:
    """Return *items* with those done that the agent's message says are done, by number, or reports on by their text."""
    if all(item.is_done for item in items):
        return items
    text = source.message.text
    named = [
        (found["number"], found["words"] if found["bare"] is not None else None)
        for found in _NUMBERED.finditer(text)
        if _is_done(found["words"]) or _was_done(text, found.start())
    ]
    reported = list(_reported(text)) if not source.message.calls else []
    return tuple(
        replace(item, status=DONE, is_done=True, last=source.index)
        if not item.is_done and (_is_named(item, named) or _is_reported(item, reported))
        else item
        for item in items
    )


def _is_named(item: PlanItem, named: Sequence[tuple[str, str | None]]) -> bool:
    """Return whether the item's number is said to be done; in a list, only if the entry shares a word with the item."""
    words = _words(item.text)
    return any(item.key == number and (entry is None or words & _words(entry)) for number, entry in named)


def _words(text: str) -> set[str]:
    return {word for word in _WORD.findall(text.lower()) if word not in _COMMON and not _SAYS_DONE.fullmatch(word)}


def _reported(text: str) -> Iterator[str]:
    """Yield the lines that say what is done: by their own words, by the line over their list, or as a section's title.

    A report of a research agent repeats the item under a heading, and its findings follow.
    """
    is_done = is_section = False
    for line in filter(str.strip, text.splitlines()):
        says_not = _SAYS_NOT.search(line) is not None
        says_done = _SAYS_DONE.search(line) is not None and not says_not
        is_title = line.startswith("#")
        if LIST_MARK.match(line) and not is_title:
            counts = is_done
        else:
            counts = (is_title or is_section) and not _AHEAD.search(line)
            is_done, is_section = says_done, is_title and counts
        if says_done or (counts and not says_not):
            yield _folded(line)


def _is_done(words: str) -> bool:
    """Return whether the sentence behind a number says that it is done; the next number begins another."""
    after = _SENTENCE_END.split(words.lstrip(".) \u3001"), 1)[0]
    following = _NUMBERED.search(after)
    own = after if following is None else after[: following.start()]
    return _SAYS_DONE.search(own) is not None and _SAYS_NOT.search(own) is None


def _was_done(text: str, at: int) -> bool:
    """Return whether the words right before a number say that it is done, as in ``Fixed item 5``."""
    before = text[max(at - _MAX_VERB_CHARS, 0) : at].rpartition("\n")[2]
    return _VERB_BEFORE.search(before) is not None and _SAYS_NOT.search(before) is None


def _is_reported(item: PlanItem, begun: Sequence[str]) -> bool:
    starts = [_folded(piece)[:QUOTED_CHARS] for piece in item.text.split(BEFORE_DETAIL)]
    return any(len(start) == QUOTED_CHARS and start in line[:MAX_LABEL_CHARS] for start in starts for line in begun)


def _folded(line: str) -> str:
    return readable(line).strip("#*-_ ").lower()


def _items(
    source: SourceMessage, found: Sequence[tuple[str, str, bool]], citations: LineFinder
) -> tuple[PlanItem, ...]:
    if len(found) < MIN_ITEMS:
        return ()
    return tuple(
        PlanItem(
            _short(text),
            DONE if is_done else OPEN,
            is_done,
            source.index,
            citations.of(source, text.partition(BEFORE_DETAIL)[0]),
            key,
        )
        for key, text, is_done in found[:MAX_ITEMS]
    )


def _in_boxes(text: str) -> Iterator[tuple[str, str, bool]]:
    for number, line in enumerate(filter(None, map(_BOX.match, text.splitlines())), 1):
        yield str(number), line[2].strip(), line[1] in _TICKS


def _in_numbers(text: str, *, needs_title: bool) -> Iterator[tuple[str, str, bool]]:
    """Yield the entries of the first list that counts from 1; with *needs_title* of one that a line calls so."""
    before, following = "", 1
    for line in text.splitlines():
        found = _ITEM.match(line)
        if found is None:
            if following == 1 and line.strip():
                before = line
        elif int(found[1]) == following and (following > 1 or not needs_title or _is_title(before)):
            yield found[1], found[2].strip(), False
            following += 1


def _is_title(line: str) -> bool:
    words = readable(line).strip("*_ ")
    return _PLAN_WORDS.search(words) is not None and (
        line.lstrip().startswith(("#", "**")) or words.endswith((":", "\uff1a"))
    )


def _in_json(text: str) -> Iterator[tuple[str, str, bool]]:
    """Yield the entries of a plan that is a JSON object: of its first list of objects under a name of plans."""
    stripped = text.strip()
    if not stripped.startswith("{") or len(stripped) > MAX_JSON_CHARS:
        return
    try:
        value: object = json.loads(stripped)
    except (ValueError, RecursionError):
        return
    if is_object(value):
        lists = (_objects(inner) for key, inner in value.items() if _PLAN_NAME.search(key))
        entries = next((found for found in lists if found), list[Mapping[str, Any]]())
        for number, entry in enumerate(entries, 1):
            values = {letters_of(key): inner for key, inner in entry.items()}
            if title := _title(values):
                status = str(values.get("status") or values.get("state") or "").lower()
                detail = str(values.get("description") or "")
                text = f"{title}{BEFORE_DETAIL}{detail}" if detail and detail != title else title
                yield str(number), text, status in _DONE_STATUS


def _objects(value: object) -> list[Mapping[str, Any]]:
    return [entry for entry in list_in(value) if is_object(entry)]


def _title(values: Mapping[str, Any]) -> str:
    return next((str(values[name]) for name in _TITLE_KEYS if values.get(name)), "")


def _short(text: str) -> str:
    return text[:MAX_TEXT_CHARS]
