"""What each field of a summary may say, taken from the messages: candidates, more than there is room for."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from buoyline.compression.claims import ARROW, CUT
from buoyline.compression.extraction.calls import tasks_of
from buoyline.compression.extraction.conversation import Conversation
from buoyline.compression.extraction.reading import Passage
from buoyline.compression.extraction.sightings import MAX_TYPED_CHARS
from buoyline.compression.extraction.wording import cut
from buoyline.compression.signals import FENCES, readable, sentences
from buoyline.compression.summary import Item, Pointer, Source

if TYPE_CHECKING:
    from buoyline.compression.extraction.steps import Step

# Weights are log odds, as those of `sightings`, but set by judgement and by reading summaries, not fitted.
TASK: Final = 9.0
"""The first request is kept whatever else goes."""

REQUEST: Final = 2.0
LAST_REPORT: Final = 5.0
REPORT: Final = 2.5
CHANGED: Final = 4.0
DONE: Final = 1.5
FAILED: Final = 1.0
LOOKED: Final = -1.0
READ: Final = -0.5
OPEN_ERROR: Final = 3.0
UNTRIED_ERROR: Final = 0.5
RESOLVED_ERROR: Final = 0.0
TODO: Final = 4.0
PENDING: Final = 4.0
QUESTION: Final = 4.0
WORKING: Final = 4.0
CLOSING: Final = 3.0
INTENT: Final = 4.0
RULE: Final = 1.0
REMARK: Final = 0.0

PASTED: Final = 0.5
MADE: Final = -1.0
"""For messages in the user's name that no person typed."""

MAX_AGENT_CHARS: Final = 40_000

UNTRIED_MESSAGES: Final = 50
"""An error so long ago that nobody has tried the same again is said to be that."""

CLOSING_SENTENCES: Final = 3
"""At the end of the last message: they say what comes next."""

INTENTION: Final = 0.5
"""Taken from the weight of a sentence that only says what the agent was about to do."""

MIN_SENTENCE_CHARS: Final = 25

USUAL_CHARS: Final = 80
"""Of a message that asks for something. One of half as much has half the odds to matter later, but for corrections."""

MIN_SUBSTANCE: Final = -2.5

NEWEST: Final = 3
"""So many of the user's last messages come before older ones that say more, but for a mere "ok": the work goes on from
them."""

_IDEOGRAPH = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")

# How users word a rule, in the languages that we know such words of; rules in others stand in their messages.
_RULE = re.compile(
    r"\b(?:must|never|always|don't|do not|only|should|shouldn't|instead|prefer|please|make sure|without|avoid"
    r"|muss|nie|immer|nicht|nur|bitte|jamais|toujours|doit|nunca|siempre|debe)\b"
    r"|\u4e0d\u8981|\u5fc5\u987b|\u4e0d\u80fd|\u53ea\u80fd|\u52a1\u5fc5|\u8bf7|\u5e94\u8be5|\u7981\u6b62"
    r"|\u3057\u306a\u3044\u3067|\u5fc5\u305a|\u304f\u3060\u3055\u3044|\ubc18\ub4dc\uc2dc|\u043d\u0435\u043b\u044c\u0437\u044f",
    re.IGNORECASE,
)


_INTENDS = re.compile(
    r"\W{0,4}(?:(?:now|next|first|then|ok|okay|good|great|perfect),? )?(?:let me|let's|i'll|i will|i need to"
    r"|i'm going to|ich werde|je vais|voy a)\b|\u6211\u6765|\u8ba9\u6211|\u73b0\u5728\u6211",
    re.IGNORECASE,
)

_ONLY_COUNTS = re.compile(r"^\W*(?:found )?\d+ (?:failed|errors?|failures?|problems?)\b", re.IGNORECASE)
"""The line of a report that says how many errors there are, and not which."""

_LEADS_IN = re.compile(r"[:\uff1a][*_`]{0,3}$")
"""How a sentence ends that says nothing without the list or the code behind it."""

_MADE_BY_MACHINE = re.compile(r"\s*(?:<[^<>]{1,60}>.*>|\[[^\[\]]{1,100}\]|/[\w:-]{1,60})\s*", re.DOTALL)
"""A message wholly in a tag or in brackets, or a bare command of the program: nobody's words."""

POINTER_TOKENS: Final = 12

CHANGE_LINES: Final = 12
"""So many lines behind a file's name show what was changed in it."""


def overview(conversation: Conversation, *, has_task: bool) -> Iterator[Item]:
    """Yield what the user said, in the user's words.

    Args:
        conversation: Where to look.
        has_task: The summary so far holds the first request, so that none of these is the first.
    """
    limits = conversation.limits
    users = conversation.spoken("user")
    typed = _without_repetitions([source for source in users if not _is_made(source)] or users)
    for source in typed:
        is_task = source is typed[0] and not has_task
        is_pasted = _is_pasted(source) and not is_task
        max_tokens = limits.task if is_task else limits.line if is_pasted else limits.request
        text = cut(source.message.text, max_tokens, limits.counter)
        kind = "task" if is_task else "pasted" if is_pasted else "request"
        is_newest = source in typed[-NEWEST:]
        weight = TASK if is_task else _request_weight(conversation, source, is_newest=is_newest)
        yield _item(conversation, "task_overview", kind, text, source, weight=weight)


def _without_repetitions(sources: Sequence[Source]) -> list[Source]:
    """Leave out what a later message says again from its first word on: it was interrupted, and said in full then."""
    texts = [readable(source.message.text) for source in sources]
    stems = [text.rstrip("?!. ") for text in texts]
    later = [any(other.startswith(stem) for other in texts[at + 1 : at + 4]) for at, stem in enumerate(stems)]
    return [source for source, is_repeated in zip(sources, later, strict=True) if not is_repeated]


def state(conversation: Conversation) -> Iterator[Item]:
    """Yield what was done: files changed, calls and how they ended, what the agent reported."""
    for step in conversation.steps:
        if step.action.deed == "change" and not step.has_failed:
            for path in step.action.paths:
                item = _item(conversation, "current_state", "changed", path, step.call, weight=CHANGED)
                yield _backed(item, [_with_lines_behind(pointer, step.call) for pointer in item.pointers])
        if step.action.deed == "look" and not step.has_failed:
            for path in step.action.paths:
                yield _item(conversation, "current_state", "read", path, step.call, weight=READ)
    yield from _deeds(conversation)
    yield from _reports(conversation)


def discoveries(conversation: Conversation) -> Iterator[Item]:
    """Yield errors, open and resolved, and the sentences of the agent that say most about what is at work."""
    for step in conversation.open_errors:
        is_old = conversation.end - (step.answer or step.call).index > UNTRIED_MESSAGES
        yield _error(conversation, step, *(("untried", UNTRIED_ERROR) if is_old else ("error", OPEN_ERROR)))
    for step in conversation.resolved_errors:
        yield _error(conversation, step, "resolved", RESOLVED_ERROR)
    yield from _findings(conversation)


def _error(conversation: Conversation, step: "Step", kind: str, weight: float) -> Item:
    limits = conversation.limits
    lines = [line for line in step.errors if not _ONLY_COUNTS.search(line.text)] or step.errors
    said = [cut(line.text, limits.line, limits.counter) for line in lines]
    shown = f" {CUT} ".join(dict.fromkeys(text for text in said if text))
    text = f"{step.subject}{ARROW}{shown}" if shown else step.subject
    item = _item(conversation, "important_discoveries", kind, text, step.answer or step.call, weight=weight)
    passage = Passage(shown, tuple(pointer for line in lines for pointer in line.pointers))
    return _backed(item, step.backing(step.subject, passage, conversation.citations))


def next_steps(conversation: Conversation) -> Iterator[Item]:
    """Yield what is open: the newest plan, calls that wait, a question, how the agent's last message ends."""
    limits = conversation.limits
    plans = [step for step in conversation.steps if step.action.deed == "plan"]
    for step in plans[-1:]:
        tasks = [task for task in tasks_of(step.action.arguments) if not task.is_done]
        for position, task in enumerate(tasks):
            text = f"({readable(task.status)}) {cut(task.text, limits.line, limits.counter)}"
            yield _item(conversation, "next_steps", "todo", text, step.call, weight=TODO, order=position)
    for step in conversation.steps:
        if step.answer is None and step.call.index == conversation.end - 1:
            text = cut(step.action.spoken(), limits.line, limits.counter)
            yield _item(conversation, "next_steps", "pending", text, step.call, weight=PENDING)
    users, agents = conversation.spoken("user"), conversation.spoken("assistant")
    yield from _asked(conversation, users[-1:])
    for source in agents[-1:] if agents and agents[-1].index > _newest(conversation) else ():
        _, closing = _without_closing(source.message.text)
        for position, sentence in enumerate(closing):
            text = cut(sentence, limits.report // 2, limits.counter)
            yield _item(conversation, "next_steps", "closing", text, source, weight=CLOSING, order=position)


def preserved(conversation: Conversation) -> Iterator[Item]:
    """Yield the user's rules and remarks sentence by sentence, and the exact strings in use, these without lines."""
    limits = conversation.limits
    for source in conversation.spoken("user"):
        if _is_pasted(source) or _is_made(source):
            continue
        for position, sentence in enumerate(sentences(source.message.text)):
            weight = RULE if _RULE.search(sentence) else REMARK
            text = cut(sentence, 2 * limits.line, limits.counter)
            yield _item(conversation, "context_to_preserve", "constraint", text, source, weight=weight, order=position)
    for sighting in conversation.sightings:
        yield Item(
            field="context_to_preserve",
            kind=sighting.kind,
            text=sighting.text,
            pointer=None,
            last_seen=sighting.last_seen,
            count=sighting.count,
            weight=sighting.weight,
        )


def _deeds(conversation: Conversation) -> Iterator[Item]:
    """Yield each distinct call with its newest outcome."""
    limits = conversation.limits
    newest: dict[str, Step] = {}
    for step in conversation.steps:
        if step.action.deed in {"run", "act"} or (step.action.deed == "look" and not step.action.paths):
            spoken = readable(step.action.spoken())
            newest.pop(spoken, None)
            newest[spoken] = step
    for spoken, step in newest.items():
        outcome = cut(step.outcome.text, limits.line if step.has_failed else limits.line // 2, limits.counter)
        text = cut(f"$ {spoken}" if step.action.command else spoken, limits.line, limits.counter)
        weight = FAILED if step.has_failed else LOOKED if step.action.is_harmless else DONE
        shown = f"{text}{ARROW}{outcome}" if outcome else text
        item = _item(conversation, "current_state", "done", shown, step.call, weight=weight)
        yield _backed(item, step.backing(text.removeprefix("$ "), step.outcome, conversation.citations))


def _reports(conversation: Conversation) -> Iterator[Item]:
    """Yield what the agent told the user at the end of its turns, and its last words whatever they were."""
    limits = conversation.limits
    agents = conversation.spoken("assistant")
    newest = _newest(conversation)
    for source in agents:
        is_last = source is agents[-1]
        if source.message.calls:
            if is_last:
                text = cut(source.message.text, limits.report // 2, limits.counter)
                yield _item(conversation, "current_state", "intent", text, source, weight=INTENT)
            continue
        has_closing = is_last and source.index > newest
        text = _without_closing(source.message.text)[0] if has_closing else source.message.text
        if shown := cut(_without_blocks(text), limits.report, limits.counter):
            weight = LAST_REPORT if is_last else REPORT + _substance(conversation, text)
            yield _item(conversation, "current_state", "report", shown, source, weight=weight)


def _without_blocks(text: str) -> str:
    """Return a message without its tables and its code, cut where they stood: on one line nobody can read them."""
    kept: list[str] = []
    is_code = False
    for line in text.splitlines():
        is_fence = line.lstrip().startswith(FENCES)
        if is_fence or is_code or line.lstrip().startswith("|"):
            kept += [] if kept[-1:] == [CUT] else [CUT]
        elif line.strip():
            kept.append(line)
        is_code ^= is_fence
    shown = "\n".join(kept)
    return shown if any(char.isalnum() for char in shown) else text


def _asked(conversation: Conversation, newest: Sequence[Source]) -> Iterator[Item]:
    """Yield the user's newest message where nobody has answered it, or the agent has called tools last: it goes on."""
    limits = conversation.limits
    last = conversation.sources[-1].message
    for source in newest:
        if not any(later.message.role == "assistant" for later in conversation.sources if later.index > source.index):
            text = cut(source.message.text, limits.request, limits.counter)
            yield _item(conversation, "next_steps", "question", text, source, weight=QUESTION)
        elif last.calls or last.results:
            text = cut(source.message.text, limits.line, limits.counter)
            yield _item(conversation, "next_steps", "working", text, source, weight=WORKING)


def _newest(conversation: Conversation) -> int:
    """Return the newest message of the user, or with a call that has a result: what was announced before is done."""
    users = conversation.spoken("user")[-1:]
    calls = (step.call.index for step in conversation.steps if step.answer is not None)
    return max((*calls, *(source.index for source in users)), default=-1)


def _without_closing(text: str) -> tuple[str, list[str]]:
    """Part the last sentences of a message, all in its last line, from what stands before them."""
    body, _, last = text.rstrip().rpartition("\n")
    closing = list(sentences(last))[-CLOSING_SENTENCES:] or [readable(last)]
    if not body.strip() and len(closing) > 1:
        closing = closing[-1:]
    at = text.rfind(closing[0])
    return (text[:at] if at >= 0 else body), closing


def _findings(conversation: Conversation) -> Iterator[Item]:
    limits = conversation.limits
    for source in conversation.spoken("assistant"):
        base = 0.1 if source.message.calls else 0.4
        for position, sentence in enumerate(sentences(source.message.text[:MAX_AGENT_CHARS])):
            if len(sentence) >= MIN_SENTENCE_CHARS and not _LEADS_IN.search(sentence):
                words = 0.0 if sentence.startswith("|") else base * min(1.0, len(sentence) / USUAL_CHARS)
                value = conversation.value_in(sentence) + words
                density = (value + 0.01) / (len(sentence) / 4 + POINTER_TOKENS)
                text = cut(_without_bars(sentence), 2 * limits.line, limits.counter)
                weight = math.log(20 * density) - (INTENTION if _INTENDS.match(sentence) else 0)
                item = _item(
                    conversation, "important_discoveries", "finding", text, source, weight=weight, order=position
                )
                yield _backed(item, conversation.citations.of(source, cut(sentence, 2 * limits.line, limits.counter)))


def _without_bars(sentence: str) -> str:
    """Return a row of a table without the bars around it."""
    return sentence.strip("| ") if sentence.startswith("|") else sentence


def _request_weight(conversation: Conversation, source: Source, *, is_newest: bool) -> float:
    if _is_made(source):
        return MADE
    if _is_pasted(source):
        return PASTED
    says_something = len(source.message.text) >= MIN_SENTENCE_CHARS
    return REQUEST + (1.0 if is_newest and says_something else _substance(conversation, source.message.text))


def _substance(conversation: Conversation, text: str) -> float:
    """Return what a message is worth beside others of its kind: "go on" and "hello" say less than a sentence does.

    An exact string makes up for many words; the ideographs of one language say as much as three letters of another.
    """
    chars = len(text) + 2 * len(_IDEOGRAPH.findall(text[:MAX_TYPED_CHARS]))
    words = math.log2((chars + 1) / USUAL_CHARS)
    return max(MIN_SUBSTANCE, min(words, 0.0)) + min(conversation.value_in(text[:MAX_TYPED_CHARS]), 1.0)


def _is_made(source: Source) -> bool:
    return _MADE_BY_MACHINE.fullmatch(source.message.text) is not None


def _is_pasted(source: Source) -> bool:
    return len(source.message.text) > MAX_TYPED_CHARS


def _with_lines_behind(pointer: Pointer, source: Source) -> Pointer:
    """Return the lines of *pointer* and some that follow in the same message: what was written to a file."""
    if source.pointer is None or pointer == source.pointer:
        return pointer
    return replace(pointer, end=min(pointer.start + CHANGE_LINES, source.pointer.end))


def _item(
    conversation: Conversation, field: str, kind: str, text: str, source: Source, *, weight: float, order: int = 0
) -> Item:
    item = Item(field, kind, text, None, source.index, weight=weight, order=order)
    return _backed(item, conversation.citations.of(source, text))


def _backed(item: Item, pointers: Sequence[Pointer]) -> Item:
    return replace(item, pointer=pointers[0], also=tuple(pointers[1:])) if pointers else item
