"""Candidates for each field of a summary, more than there is room for."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from buoyline.compression.citations import ARROW, CUT
from buoyline.compression.extractive.conversation import Conversation
from buoyline.compression.extractive.fact_text import ANSWERED, cut
from buoyline.compression.extractive.lines import Passage, merged_pointers
from buoyline.compression.extractive.occurrences import MAX_TYPED_CHARS
from buoyline.compression.extractive.speech import (
    MIN_SENTENCE_CHARS,
    announces,
    asks,
    chars_of,
    is_rule,
    last_words,
    leads_in,
    plain_text,
    split_closing,
    tasks_of,
    without_blocks,
)
from buoyline.compression.extractive.steps import grouped_calls, varying_argument
from buoyline.compression.identifiers import readable, sentences
from buoyline.compression.summary import Fact, Pointer, SourceMessage

if TYPE_CHECKING:
    from buoyline.compression.extractive.steps import Step

# Weights are log odds, like those of `occurrences`, but set by judgement and by reading summaries, not fitted.
TASK: Final = 9.0
"""The first request is kept above all else."""

REQUEST: Final = 2.0
LAST_REPORT: Final = 5.0
NEWER_REPORT: Final = 5.0
"""The newest report, if something was done since."""
REPORT: Final = 2.5
INTENT: Final = 4.0
CHANGED: Final = 4.0
DONE: Final = 1.5
LATELY: Final = 0.5
"""Added for work since the agent's last words: nothing else says that it is done."""
SERIES: Final = 4.5
"""Several similar calls: the next agent must not repeat them."""
FAILED: Final = 1.0
LOOKED: Final = -1.0
READ: Final = -0.5
OPEN_ERROR: Final = 3.0
TACKLED_ERROR: Final = 1.0
UNTRIED_ERROR: Final = 0.5
RESOLVED_ERROR: Final = 0.0
RULE: Final = 1.0
REMARK: Final = 0.0

PASTED: Final = 0.5
MADE: Final = -1.0
"""For user messages that no person typed."""

MAX_AGENT_CHARS: Final = 40_000

UNTRIED_MESSAGES: Final = 50
"""An error that nobody tried again for so many messages is reported as untried."""

ANNOUNCEMENT: Final = 2.0
"""Subtracted from the weight of a sentence that announces or asks something: by now that was done or answered.
Sentences before a call announce it, and the last ones of a message look ahead, in any language.
"""

USUAL_CHARS: Final = 80
"""Of a request. One half as long has half the odds to matter later, except for corrections."""

MIN_SUBSTANCE: Final = -2.5

NEWEST: Final = 3
"""So many of the user's last messages precede older ones that say more, except for a mere "ok": the work continues from
them.
"""

_ONLY_COUNTS = re.compile(r"^\W*(?:found )?\d+ (?:failed|errors?|failures?|problems?)\b", re.IGNORECASE)
"""A line of a report that counts errors without naming them."""

POINTER_TOKENS: Final = 12

REPORT_LINES: Final = 24
"""A report of at most so many lines is cited whole if its quotation was cut."""

CHANGE_LINES: Final = 12
"""So many lines behind a file's name show the change."""


def overview(conversation: Conversation, *, without: SourceMessage | None = None) -> Iterator[Fact]:
    """Yield the user's requests in the user's words.

    Args:
        conversation: The messages.
        without: A message that is quoted elsewhere; the first request is quoted here even so.
    """
    limits = conversation.limits
    typed = conversation.typed
    for source in typed:
        is_task = source is typed[0] and not conversation.has_task
        is_newest = source in typed[-NEWEST:]
        if source is without and not is_task:
            continue
        is_pasted = _is_pasted(source) and not is_task
        max_tokens = limits.task if is_task else limits.line if is_pasted else limits.request
        passage = conversation.quoted(source, max_tokens)
        if ANSWERED not in passage.text and not (is_task or conversation.says_something(source.message.text)):
            continue
        kind = "task" if is_task else "pasted" if is_pasted else "request"
        weight = TASK if is_task else _request_weight(conversation, source, is_newest=is_newest)
        item = conversation.item("task_overview", kind, passage.text, source, weight=weight)
        yield _citing(item, passage.pointers)


def state(conversation: Conversation) -> Iterator[Fact]:
    """Yield changed files, calls with their outcomes, and the agent's reports."""
    for step in conversation.steps:
        if step.action.operation == "change" and not step.has_failed:
            for path in step.action.paths:
                item = conversation.item("current_state", "changed", path, step.call, weight=CHANGED)
                yield _citing(item, [_with_lines_behind(pointer, step.call) for pointer in item.pointers])
        if step.action.operation == "look" and not step.has_failed:
            for path in step.action.paths:
                yield conversation.item("current_state", "read", path, step.call, weight=READ)
    yield from _operations(conversation)
    yield from _reports(conversation)


def discoveries(conversation: Conversation) -> Iterator[Fact]:
    """Yield errors, open and resolved, and the most telling sentences of the agent."""
    for step in conversation.open_errors:
        is_old = conversation.end - (step.answer or step.call).index > UNTRIED_MESSAGES
        yield _error(conversation, step, *(("untried", UNTRIED_ERROR) if is_old else ("error", OPEN_ERROR)))
    for step in conversation.attempted_errors:
        yield _error(conversation, step, "tackled", TACKLED_ERROR)
    for step in conversation.resolved_errors:
        yield _error(conversation, step, "resolved", RESOLVED_ERROR)
    yield from _findings(conversation)


def _error(conversation: Conversation, step: "Step", kind: str, weight: float) -> Fact:
    limits = conversation.limits
    lines = [line for line in step.errors if not _ONLY_COUNTS.search(line.text)] or step.errors
    said = [cut(line.text, limits.line, limits.counter) for line in lines]
    shown = f" {CUT} ".join(dict.fromkeys(text for text in said if text))
    text = f"{step.subject}{ARROW}{shown}" if shown else step.subject
    item = conversation.item("important_discoveries", kind, text, step.answer or step.call, weight=weight)
    passage = Passage(shown, tuple(pointer for line in lines for pointer in line.pointers))
    return _citing(item, step.citations_for(step.subject, passage, conversation.citations))


def preserved(conversation: Conversation) -> Iterator[Fact]:
    """Yield the user's rules and remarks by sentence, and the exact strings in use, which have no lines yet."""
    limits = conversation.limits
    for source in conversation.typed:
        if _is_pasted(source):
            continue
        for position, sentence in enumerate(sentences(source.message.text)):
            if not conversation.says_something(sentence):
                continue
            weight = RULE if is_rule(sentence) else REMARK
            text = cut(sentence, 2 * limits.line, limits.counter)
            yield conversation.item("context_to_preserve", "constraint", text, source, weight=weight, order=position)
    for occurrence in conversation.occurrences:
        yield Fact(
            field="context_to_preserve",
            kind=occurrence.kind,
            text=occurrence.text,
            pointer=None,
            last_seen=occurrence.last_seen,
            count=occurrence.count,
            weight=occurrence.weight,
        )


def _operations(conversation: Conversation) -> Iterator[Fact]:
    """Yield each distinct call with its newest outcome; calls that differ in one argument are one fact."""
    limits = conversation.limits
    words = conversation.spoken("assistant")[-1:]
    said = words[0].index if words else -1
    newest: dict[str, Step] = {}
    for step in conversation.steps:
        # A failure with an error message is an error, which says if it is open.
        is_operation = step.action.operation in {"run", "act"} or (
            step.action.operation == "look" and not step.action.paths
        )
        if is_operation and not step.errors:
            spoken = readable(step.action.spoken())
            newest.pop(spoken, None)
            newest[spoken] = step
    together, apart = grouped_calls(newest.values())
    for first, *others in together:
        made = [first, *others]
        yield from _series(conversation, made, SERIES if made[-1].call.index >= said else DONE)
    for step in apart:
        spoken = readable(step.action.spoken())
        outcome = cut(step.outcome.text, limits.line if step.has_failed else limits.line // 2, limits.counter)
        text = cut(f"$ {spoken}" if step.action.command else spoken, limits.line, limits.counter)
        weight = FAILED if step.has_failed else LOOKED if step.action.is_harmless else DONE
        weight += LATELY if weight == DONE and step.call.index >= said else 0
        shown = f"{text}{ARROW}{outcome}" if outcome else text
        item = conversation.item("current_state", "done", shown, step.call, weight=weight)
        yield _citing(item, step.citations_for(text.removeprefix("$ "), step.outcome, conversation.citations))


def _series(conversation: Conversation, made: Sequence["Step"], weight: float) -> Iterator[Fact]:
    """Yield one fact for calls that differ in one argument: the tool and the newest values."""
    limits = conversation.limits
    key, values = varying_argument(made)
    pointers: tuple[Pointer, ...] = ()
    kept: list[str] = []
    for step, value in zip(reversed(made), reversed(values), strict=True):
        more = merged_pointers((*([step.call.pointer] if step.call.pointer else []), *pointers))
        text = ", ".join([value, *kept])
        if kept and (len(more) > 1 or limits.counter.exceeds(text, 2 * limits.line)):
            break
        pointers, kept = more, [value, *kept]
    text = f"{made[0].action.name}: {key} {', '.join(kept)}"
    item = conversation.item("current_state", "done", text, made[-1].call, weight=weight)
    yield _citing(item, pointers)


def _reports(conversation: Conversation) -> Iterator[Fact]:
    """Yield what the agent told the user at the end of its turns, and its last words."""
    limits = conversation.limits
    agents = conversation.spoken("assistant")
    reports = [source for source in agents if not source.message.calls]
    newest = next((s for s in reversed(reports) if chars_of(s.message.text) >= MIN_SENTENCE_CHARS), None)
    for source in agents:
        if source.message.calls:
            if source is agents[-1] and all(asked.index < source.index for asked in conversation.typed[-1:]):
                text = cut(last_words(source.message.text), limits.report // 2, limits.counter)
                yield conversation.item("current_state", "intent", text, source, weight=INTENT)
            continue
        is_newest = source is newest
        is_last = source is agents[-1] and source.index > conversation.last_operation
        text = plain_text(source.message.text)
        text = split_closing(text)[0] if is_last else text
        shown = cut(without_blocks(text), limits.report, limits.counter)
        if shown and not (is_last and chars_of(shown) < MIN_SENTENCE_CHARS and text is not source.message.text):
            weight = REPORT + _substance(conversation, text)
            weight = LAST_REPORT if is_last else max(weight, NEWER_REPORT) if is_newest else weight
            item = conversation.item("current_state", "report", shown, source, weight=weight)
            yield _with_all_lines(item, source) if shown.endswith(CUT) else item


def _with_all_lines(item: Fact, source: SourceMessage) -> Fact:
    """Return *item* with the lines of the whole message if that is not too long: they hold what was cut."""
    whole = source.pointer
    if item.pointer is None or whole is None or item.also or whole.end - item.pointer.start > REPORT_LINES:
        return item
    return replace(item, pointer=replace(whole, start=item.pointer.start))


def _findings(conversation: Conversation) -> Iterator[Fact]:
    limits = conversation.limits
    for source in conversation.spoken("assistant"):
        base = 0.1 if source.message.calls else 0.4
        said = list(sentences(plain_text(source.message.text[:MAX_AGENT_CHARS])))
        for position, sentence in enumerate(said):
            if len(sentence) >= MIN_SENTENCE_CHARS and not leads_in(sentence):
                words = 0.0 if sentence.startswith("|") else base * min(1.0, len(sentence) / USUAL_CHARS)
                value = conversation.value_in(sentence) + words
                density = (value + 0.01) / (len(sentence) / 4 + POINTER_TOKENS)
                text = cut(_without_bars(sentence), 2 * limits.line, limits.counter)
                is_last = position == len(said) - 1
                is_over = announces(sentence) or asks(sentence) or (is_last and (source.message.calls or position))
                weight = math.log(20 * density) - (ANNOUNCEMENT if is_over else 0)
                item = conversation.item(
                    "important_discoveries", "finding", text, source, weight=weight, order=position
                )
                yield _citing(item, conversation.citations.of(source, cut(sentence, 2 * limits.line, limits.counter)))


def _without_bars(sentence: str) -> str:
    """Return a row of a table without the bars around it."""
    return sentence.strip("| ") if sentence.startswith("|") else sentence


def _request_weight(conversation: Conversation, source: SourceMessage, *, is_newest: bool) -> float:
    if conversation.is_made(source):
        return MADE
    if _is_pasted(source):
        return PASTED
    is_sentence = chars_of(source.message.text) >= MIN_SENTENCE_CHARS
    return REQUEST + (1.0 if is_newest and is_sentence else _substance(conversation, source.message.text))


def _substance(conversation: Conversation, text: str) -> float:
    """Return the worth of a message among others of its kind: "go on" and "hello" say less than a sentence.

    An exact string makes up for many words; an ideograph says as much as three letters.
    """
    words = math.log2((chars_of(text[:MAX_TYPED_CHARS]) + 1) / USUAL_CHARS)
    return max(MIN_SUBSTANCE, min(words, 0.0)) + min(conversation.value_in(text[:MAX_TYPED_CHARS]), 1.0)


def _is_pasted(source: SourceMessage) -> bool:
    return len(source.message.text) > MAX_TYPED_CHARS


def _with_lines_behind(pointer: Pointer, source: SourceMessage) -> Pointer:
    """Return *pointer* with some lines behind it in the same message, which show what was written to the file."""
    if source.pointer is None or pointer == source.pointer:
        return pointer
    return replace(pointer, end=min(pointer.start + CHANGE_LINES, source.pointer.end))


def _citing(item: Fact, pointers: Sequence[Pointer]) -> Fact:
    return replace(item, pointer=pointers[0], also=tuple(pointers[1:])) if pointers else item


# Next steps: the plan, calls without a result, the user's newest request, the agent's question.


FIELD: Final = "next_steps"

# Weights, as above.
TODO: Final = 4.0
PENDING: Final = 4.0
QUESTION: Final = 6.0
WORKING: Final = 6.0
"""The user's newest request precedes everything that was planned for it."""
CLOSING: Final = 3.0


def next_steps(conversation: Conversation) -> Iterator[Fact]:
    """Yield open work: the newest plan, calls without a result, the user's newest request, the agent's question."""
    yield from _plan(conversation)
    yield from _waiting(conversation)
    yield from _asked(conversation)
    yield from _awaited(conversation)


def newest_request(conversation: Conversation) -> SourceMessage | None:
    """Return the user's newest message if it is open: nobody has answered it, or the agent works on it.

    The first request is in the overview instead, and all work serves it.
    """
    source = next(reversed(conversation.typed), None)
    if source is None or (source is conversation.typed[0] and not conversation.has_task):
        return None
    last = conversation.sources[-1].message
    return source if last.calls or last.results or not _is_begun(conversation, source) else None


def _is_begun(conversation: Conversation, source: SourceMessage) -> bool:
    return any(
        later.message.role == "assistant" for later in reversed(conversation.sources) if later.index > source.index
    )


def _plan(conversation: Conversation) -> Iterator[Fact]:
    limits = conversation.limits
    plans = [step for step in conversation.steps if step.action.operation == "plan"]
    for step in plans[-1:]:
        tasks = [task for task in tasks_of(step.action.arguments) if not task.is_done]
        for position, task in enumerate(tasks):
            text = f"({readable(task.status)}) {cut(task.text, limits.line, limits.counter)}"
            yield conversation.item(FIELD, "todo", text, step.call, weight=TODO, order=position)


def _waiting(conversation: Conversation) -> Iterator[Fact]:
    limits = conversation.limits
    for step in conversation.steps:
        if step.answer is None and step.call.index == conversation.end - 1:
            text = cut(step.action.spoken(), limits.line, limits.counter)
            yield conversation.item(FIELD, "pending", text, step.call, weight=PENDING)


def _asked(conversation: Conversation) -> Iterator[Fact]:
    """Yield the user's newest message if nobody has answered it or the agent works on it."""
    limits = conversation.limits
    for source in conversation.typed[-1:]:
        is_pasted = len(source.message.text) > MAX_TYPED_CHARS
        passage = conversation.quoted(source, limits.line if is_pasted else limits.asked)
        if not _is_begun(conversation, source):
            yield _citing(conversation.item(FIELD, "question", passage.text, source, weight=QUESTION), passage.pointers)
        elif source is newest_request(conversation):
            yield _citing(conversation.item(FIELD, "working", passage.text, source, weight=WORKING), passage.pointers)


def _awaited(conversation: Conversation) -> Iterator[Fact]:
    """Yield the end of the agent's last message if nothing was done since: the next step, or a question."""
    limits = conversation.limits
    for source in conversation.spoken("assistant")[-1:]:
        if not source.message.calls and source.index > conversation.last_operation:
            for position, sentence in enumerate(split_closing(plain_text(source.message.text))[1]):
                text = cut(sentence, limits.report // 2, limits.counter)
                yield conversation.item(FIELD, "closing", text, source, weight=CLOSING, order=position)
