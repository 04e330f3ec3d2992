"""Plans in calls and in messages, ticked and reopened by later words."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from buoyline.compression.extractive.calls import TASK_ID_KEYS, Step, json_in, letters_of, list_in, tasks_of
from buoyline.compression.extractive.lines import LineFinder
from buoyline.compression.extractive.phrases import leads_in
from buoyline.compression.extractive.speech import is_made_by_machine
from buoyline.compression.identifiers import LIST_MARK, readable
from buoyline.compression.summary import SourceMessage
from buoyline.compression.work_state import MAX_ITEMS, MAX_TEXT_CHARS, PlanItem
from buoyline.messages.jsonl import is_object

OPEN: Final = "open"
DONE: Final = "done"

MIN_ITEMS: Final = 2
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
_DONE_STATUS: Final = frozenset({"completed", "complete", "done", "closed", "cancelled", "deleted"})

_ITEM = re.compile(r"^\s{0,8}(\d{1,2})[.)\u3001\uff0e]\s*(\S.*)$")
_BOX = re.compile(r"^\s{0,8}(?:[-*+]|\d{1,2}[.)])\s+\[(x|X| |[^\w\s\[\]])\]\s+(\S.*)$")
"""A letter or a digit in the brackets is a reference, not a mark."""

_DONE_MARKS: Final = frozenset("xX\u2713\u2714\u2705\u2611")
_PLAN_WORDS = re.compile(
    r"\b(?:plan|to-?dos?|next steps|n\u00e4chste schritte|aufgaben|\u00e9tapes|pasos)\b"
    r"|\u8ba1\u5212|\u8a08\u753b|\u5f85\u529e|\u624b\u9806",
    re.IGNORECASE,
)
_NUMBERED = re.compile(
    r"(?:(?P<label>\b(?:items?|points?|tasks?|steps?|punkt|schritt|aufgabe|nr\.?|no\.?)\s{0,3}#?|#|\u7b2c|\u9805\u76ee|\u9879\u76ee)"
    r"|^\W{0,8}(?:(?:no|wait|yes|right|sorry|nein|ja|\u4e0d|\u3044\u3044\u3048)[^\w\n]{1,3})?"
    r"|(?<=[.,;!]\s)(?=\d{1,2}\s{1,3}(?:is|was|has|ist|war)(?:n't)?\b))"
    r"(?P<number>\d{1,2})(?![0-9A-Za-z_/%]|[.,:]\d|\s(?:of|out|von)\b)",
    re.IGNORECASE | re.MULTILINE,
)
"""An item named by its number: behind a label, or at the beginning of a line or of a statement."""

_OTHER_NUMBER = re.compile(
    r"(?:\b(?:prs?|mrs?|issues?|tickets?|(?:pull|merge) requests?|bugs?|builds?|runs?|jobs?|comments?)\s{0,2}"
    r"(?:#\d{1,6}(?:,| and| or| und|/)\s{0,2}){0,6}|\w)$",
    re.IGNORECASE,
)
"""Text before a ``#`` that counts something else than the items: ``PR #2``, ``issues #2 and #3``, ``name#2``."""

_STATEMENT = re.compile(r"\s{1,3}(?:is|was|has|ist|war|wurde|est|fue)(?:n['\u2019]t)?\b", re.IGNORECASE)
_WORD_OF_ITEM = re.compile(r"[^\W\d_]{3,}")
_LETTERS = re.compile(r"[A-Za-z\u00c0-\u024f]{3}")
_STEM_CHARS: Final = 5
_FILLER: Final = frozenset(
    {"the", "this", "that", "and", "are", "was", "has", "have", "been", "now", "all", "too", "for", "with", "from"}
    | {"into", "its", "alrea", "also", "der", "die", "das", "und", "ist", "war", "wurde", "von", "mit", "auch", "schon"}
)
_DONE_WORDS: Final = (
    r"\b(?:fixed|done|completed?|finished|implemented|addressed|resolved|erledigt|fertig|behoben|abgeschlossen|umgesetzt)\b"
    r"|\u5b8c\u6210|\u5df2\u4fee\u590d|\u641e\u5b9a|\u5df2\u89e3\u51b3|\u5b8c\u4e86|\u4fee\u6b63\u3057\u307e\u3057\u305f"
    r"|\u6e08\u307f|\u5bfe\u5fdc\u3057\u307e\u3057\u305f|[\u2705\u2713\u2714\u2611]"
)
_SAYS_DONE = re.compile(_DONE_WORDS, re.IGNORECASE)
_VERB_BEFORE = re.compile(
    r"\b(?:fixed|done|completed|finished|implemented|addressed|resolved)(?: with)? ?$", re.IGNORECASE
)
_MAX_VERB_CHARS: Final = 30
_MAX_CLAUSE_CHARS: Final = 120
_SENTENCE_END = re.compile(r"[.!;](?:\s|$)|[\u3002\uff01\uff1b]")
_CLAUSE_END = re.compile(r"[.!;:,]\s|[\u3002\uff01\uff1b\uff0c\uff1a]")
_SAYS_NOT = re.compile(
    r"\b(?:not|\w{1,8}n['\u2019]t|never|cannot|to be|will be|once|until|if|would"
    r"|partially|partly|almost|nearly|half|yet|nicht|noch|wird|falls|wenn|w\u00e4re|teilweise|fast)\b"
    r"|\u672a|\u6ca1|\u8fd8|\u307e\u3060|\u3044\u306a\u3044|[?\uff1f]|[\u274c\u2717\u2718]",
    re.IGNORECASE,
)
_ONLY_WANTED = re.compile(
    r"\b(?:should|must|can|could|may|might|ought|(?:need|ha(?:ve|s))s? to|let|get|want|needs?|start|begin|next"
    r"|still|open|pending|blocked|remain\w*|when|after|before|unless"
    r"|soll\w*|muss|m\u00fcss\w*|kann|k\u00f6nn\w*|offen|sobald|nachdem|bevor|bis)\b|\u5c1a|\u5f85|\u5fc5\u987b|\u5e94",
    re.IGNORECASE,
)
"""Words before "done" that make a wish, a condition or a plan of it; behind it they say what follows from it."""

_IS_BACK = re.compile(
    rf"\b(?:not(?! (?:only|just))|\w{{1,8}}n['\u2019]t|never|nicht)\b[^.;?]{{0,30}}(?:{_DONE_WORDS})"
    r"|\bstill (?:\w{1,12} )?(?:broken|fail(?:s|ing)?|open|wrong|missing|not|crash(?:es|ing)|happens)\b"
    r"|\b(?:fails|broken|crashes) again\b|\bnoch (?:immer )?(?:kaputt|offen)\b"
    r"|(?:\u672a|\u6ca1\u6709?|\u4ecd)[^\u3002\uff0c]{0,6}(?:\u5b8c\u6210|\u4fee\u590d|\u89e3\u51b3)|\u307e\u3060[^\u3002]{0,12}\u3044\u306a\u3044",
    re.IGNORECASE,
)
"""Says of an item that it is not done, or no longer."""

_SUPPOSES = re.compile(r"\b(?:if|would|whether|when|once|until|falls|wenn|ob|sobald)\b|[?\uff1f]", re.IGNORECASE)
_PART_OF = re.compile(r"\b(?:for|of|in|f\u00fcr|von|zu)(?: the)?\s{1,3}$", re.IGNORECASE)
"""Words before a number that speak of something else: ``the tests for item 1``."""

_LABEL_LINE = re.compile(r"\s{0,3}(?:#{1,6}\s|(?:[-*+]\s{1,3})?\*\*[^*\n]{1,60}\*\*\s{0,2}[:\uff1a])")
"""A heading, or a line that begins with a bold label."""


def planned(plan: tuple[PlanItem, ...], step: Step, citations: LineFinder) -> tuple[PlanItem, ...]:
    """Return the plan after a call that sets it whole, adds an entry, or changes the status of one."""
    arguments, index = step.action.arguments, step.call.index
    if step.action.operation == "plan":
        if step.has_failed:
            return plan
        items: list[PlanItem] = []
        for task in tasks_of(step.action.name, arguments)[:MAX_ITEMS]:
            text, pointers = task.text[:MAX_TEXT_CHARS], citations.of(step.call, task.text)
            items.append(PlanItem(text, task.status, task.is_done, index, pointers, task.key))
        return _merged(plan, items) if arguments.get("merge") is True else tuple(items)
    values = {letters_of(key): value for key, value in arguments.items()}
    if not _PLAN_NAME.search(step.action.name) or step.has_failed or "prompt" in values:
        return plan
    key = next((str(values[name]) for name in TASK_ID_KEYS if values.get(name) is not None), "")
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
        text = title[:MAX_TEXT_CHARS]
        item = PlanItem(text, status or "pending", is_done=False, last=index, pointers=pointers, key=found[1])
        return (*plan, item)[-MAX_ITEMS:]
    return plan


def _merged(plan: Sequence[PlanItem], items: Sequence[PlanItem]) -> tuple[PlanItem, ...]:
    """Return *plan* with *items* in place of those of the same id or text, and the others behind it."""
    merged = {item.key or item.text: item for item in plan}
    for item in items:
        name = item.key or item.text
        known = merged.get(name)
        if known is not None and item.text == item.key:  # the call names the entry by its id alone
            item = replace(known, status=item.status, is_done=item.is_done, last=item.last)  # noqa: PLW2901
        merged[name] = item
    return tuple(merged.values())[-MAX_ITEMS:]


def plan_in(source: SourceMessage, citations: LineFinder) -> tuple[PlanItem, ...]:
    """Return the plan that a message of the agent sets: JSON, boxes to tick, or a numbered list under such a title."""
    text = source.message.text
    found = list(_in_json(text)) or list(_in_boxes(text)) or list(_in_numbers(text))
    return _items(source, found, citations)


def is_over(items: Sequence[PlanItem], index: int) -> bool:
    """Return whether a list in a message is over when the user says something in the message *index*."""
    return bool(items) and max(item.last for item in items) < index - MAX_AGE


def ticked(items: tuple[PlanItem, ...], source: SourceMessage) -> tuple[PlanItem, ...]:
    """Return *items* as a message of the agent or the user says: done, or open again.

    It names them by number; an agent without calls also reports on them by their text. A long message of the user was
    pasted and counts other things.
    """
    text, is_agent = source.message.text, source.message.role == "assistant"
    if not items or (not is_agent and (len(text) > MAX_TEXT_CHARS or is_made_by_machine(text))):
        return items
    said = _said_of_numbers(items, text)
    reported = _reported(items, text) if is_agent and not source.message.calls else set[str]()
    found: list[PlanItem] = []
    for item in items:
        is_done = said.get(item.key, item.text in reported or item.is_done)
        if is_done != item.is_done:
            item = replace(item, status=DONE if is_done else OPEN, is_done=is_done, last=source.index)  # noqa: PLW2901
        found.append(item)
    return tuple(found)


def _said_of_numbers(items: Sequence[PlanItem], text: str) -> dict[str, bool]:
    """Return for each number of an item whether *text* says that it is done, or that it is not; the last word counts.

    A number at the beginning of a line may count the agent's own findings, unless the line is about that item, or most
    lines of the list are about the item of their number.
    """
    texts = {item.key: item.text for item in items}
    numbers = list(_NUMBERED.finditer(text))
    ends = [*(one.start() for one in numbers[1:]), len(text)]
    found: list[tuple[re.Match[str], str]] = []
    for one, end in zip(numbers, ends, strict=False):
        if one["number"] in texts:  # its words are the rest of the sentence, up to the next number
            line = text[one.end() : min(end, one.end() + _MAX_CLAUSE_CHARS)].split("\n", 1)[0]
            marked = line.lstrip(".) \u3001")
            found.append((one, line[: len(line) - len(marked)] + _SENTENCE_END.split(marked, maxsplit=1)[0]))
    bare = [(one["number"], words) for one, words in found if one["label"] is None]
    shared = [_shares_words(words, texts[number]) for number, words in bare]
    is_answer = len(bare) > 1 and 2 * sum(shared) > len(bare)
    said: dict[str, bool] = {}
    for one, words in found:
        before = text[max(one.start() - _MAX_CLAUSE_CHARS, 0) : one.start()].rpartition("\n")[2]
        is_done = _verdict(before, words)
        if is_done is None or (one["label"] == "#" and _OTHER_NUMBER.search(before)):
            continue
        # Words behind a bare number are about its item if they are a statement, a mere status, or share words with it.
        is_about = one["label"] is not None or is_answer or _STATEMENT.match(words) or not _stems(words)
        if is_about or _shares_words(words, texts[one["number"]]):
            said[one["number"]] = is_done
    return said


def _shares_words(words: str, item: str) -> bool:
    return not _stems(words).isdisjoint(_stems(item))


def _stems(words: str) -> set[str]:
    """Return the beginnings of the words that name things; of a script without spaces each pair of characters."""
    found: set[str] = set()
    for word in _WORD_OF_ITEM.findall(_SAYS_DONE.sub(" ", words).lower()):
        if _LETTERS.match(word):
            found |= {word[:_STEM_CHARS]} - _FILLER
        else:
            found |= {word[at : at + 2] for at in range(len(word) - 1)}
    return found


def _verdict(before: str, words: str) -> bool | None:
    """Return whether the words around a number say that its item is done, or that it is not; None if neither."""
    is_back = _IS_BACK.search(words) is not None
    if not is_back and _VERB_BEFORE.search(before[-_MAX_VERB_CHARS:]) is None and not _says_done(words):
        return None
    clause = _CLAUSE_END.split(before)[-1]
    if _PART_OF.search(clause):
        return None
    if is_back:
        return None if _SUPPOSES.search(clause + words) else False
    return None if _ONLY_WANTED.search(clause) or _SAYS_NOT.search(clause) else True


def _says_done(words: str) -> bool:
    """Return whether *words* say that something is done, and neither deny nor only want it."""
    found = _SAYS_DONE.search(words)
    return found is not None and not _SAYS_NOT.search(words) and not _ONLY_WANTED.search(words[: found.start()])


def _reported(items: Sequence[PlanItem], text: str) -> set[str]:
    """Return the texts of the items that *text* quotes, if the line, the heading above or the section says "done"."""
    lines = [line for line in text.splitlines() if line.strip()]
    folded = [_folded(line) for line in lines]
    headings = _headings(lines)
    reported: set[str] = set()
    for item in items:
        pieces = [_folded(piece) for piece in item.text.split(BEFORE_DETAIL)]
        for piece in pieces:
            start = piece[:QUOTED_CHARS]
            if len(start) < QUOTED_CHARS:
                continue
            quoting = [at for at, line in enumerate(folded) if start in line[:MAX_LABEL_CHARS]]
            is_answered = len(pieces) > 1 and quoting[:1] in ([0], [1]) and _is_report(lines, quoting[0])
            if is_answered or any(
                _is_said_done(lines[at], folded[at], piece, headings[at]) or _is_section_done(lines, at)
                for at in quoting
            ):
                reported.add(item.text)
    return reported


def _headings(lines: Sequence[str]) -> list[str]:
    """Return the heading above each line: one that leads in a list holds for its entries alone."""
    headings: list[str] = []
    heading = ""
    for line in lines:
        headings.append(heading)
        words = line.strip()
        if words.startswith("#") or leads_in(words) or (words.startswith("**") and words.endswith("**")):
            heading = words
        elif not LIST_MARK.match(line):
            heading = ""
    return headings


def _is_said_done(line: str, folded: str, item: str, heading: str) -> bool:
    """Return whether the words around an item in its line, or else the heading above, say that it is done."""
    box = _BOX.match(line)
    if box is not None:
        return box[1] in _DONE_MARKS
    quoted = item if item in folded else item[:QUOTED_CHARS]
    before, _, after = folded.partition(quoted)
    after = _SENTENCE_END.split(after, maxsplit=1)[0]
    if _SAYS_NOT.search(before + after) or _ONLY_WANTED.search(before):
        return False
    if _says_done(before) or _says_done(after):
        return True
    return not _ONLY_WANTED.search(after + heading) and _says_done(heading)


def _is_section_done(lines: Sequence[str], at: int) -> bool:
    """Return whether the line *at* is a heading and the first line of its section says that it is done."""
    return lines[at].startswith("#") and at + 1 < len(lines) and _says_done(_SENTENCE_END.split(lines[at + 1], 1)[0])


def _is_report(lines: Sequence[str], at: int) -> bool:
    """Return whether a message is a report on the task in its line *at*: the task is under the first label of several.

    Only the description of an item is such a task: who gives a step its title alone may also just begin with it.
    """
    labels = [position for position, line in enumerate(lines) if _LABEL_LINE.match(line)]
    if len(labels) < MIN_ITEMS or labels[0] != 0 or labels[1] != at + 1 or lines[-1].lstrip().startswith("#"):
        return False
    return not any(_SAYS_NOT.search(lines[label][:MAX_LABEL_CHARS]) for label in labels[:1] if label != at)


def _folded(line: str) -> str:
    return readable(line).strip("#*-_ ").lower()


def _items(
    source: SourceMessage, found: Sequence[tuple[str, str, bool]], citations: LineFinder
) -> tuple[PlanItem, ...]:
    """Return the entries *found* in a message, each with its key, text and whether it is done; few are no list."""
    items: list[PlanItem] = []
    for key, text, is_done in found[:MAX_ITEMS] if len(found) >= MIN_ITEMS else ():
        pointers = citations.of(source, text.partition(BEFORE_DETAIL)[0])
        status = DONE if is_done else OPEN
        items.append(PlanItem(text[:MAX_TEXT_CHARS], status, is_done, source.index, pointers, key))
    return tuple(items)


def _in_boxes(text: str) -> Iterator[tuple[str, str, bool]]:
    for number, line in enumerate(filter(None, map(_BOX.match, text.splitlines())), 1):
        yield str(number), line[2].strip(), line[1] in _DONE_MARKS


def _in_numbers(text: str) -> Iterator[tuple[str, str, bool]]:
    """Yield the entries of the first list that counts from 1 behind a line that calls it a plan."""
    before, following = "", 1
    for line in text.splitlines():
        found = _ITEM.match(line)
        if found is None:
            if following == 1 and line.strip():
                before = line
        elif int(found[1]) == following:
            words = readable(before).strip("*_ ")
            is_title = before.lstrip().startswith(("#", "**")) or words.endswith((":", "\uff1a"))
            if following > 1 or (is_title and _PLAN_WORDS.search(words)):
                yield found[1], found[2].strip(), False
                following += 1


def _in_json(text: str) -> Iterator[tuple[str, str, bool]]:
    """Yield the entries of a plan that is a JSON object: of its first list of objects under a name of plans."""
    stripped = text.strip()
    value = json_in(stripped) if stripped.startswith("{") and len(stripped) <= MAX_JSON_CHARS else None
    if not is_object(value):
        return
    lists = (
        [one for one in list_in(inner) if is_object(one)] for key, inner in value.items() if _PLAN_NAME.search(key)
    )
    for number, entry in enumerate(next(filter(None, lists), list[Mapping[str, Any]]()), 1):
        values = {letters_of(key): inner for key, inner in entry.items()}
        if title := _title(values):
            status = str(values.get("status") or values.get("state") or "").lower()
            detail = str(values.get("description") or "")
            text = f"{title}{BEFORE_DETAIL}{detail}" if detail and detail != title else title
            yield str(number), text, status in _DONE_STATUS


def _title(values: Mapping[str, Any]) -> str:
    return next((str(values[name]) for name in _TITLE_KEYS if values.get(name)), "")
