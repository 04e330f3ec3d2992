"""What is open: the plan, calls that wait, what the user asked for last, what the agent waits for."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from buoyline.compression.extraction.calls import tasks_of
from buoyline.compression.extraction.conversation import Conversation
from buoyline.compression.extraction.reading import Passage
from buoyline.compression.extraction.sightings import MAX_TYPED_CHARS
from buoyline.compression.extraction.speech import in_words, without_closing
from buoyline.compression.extraction.wording import cut
from buoyline.compression.signals import readable
from buoyline.compression.summary import Item, Source

FIELD: Final = "next_steps"

# Weights as those of `gathering`.
TODO: Final = 4.0
PENDING: Final = 4.0
QUESTION: Final = 6.0
WORKING: Final = 6.0
"""The user's newest request comes before everything that was to be done for it."""
CLOSING: Final = 3.0


def next_steps(conversation: Conversation) -> Iterator[Item]:
    """Yield what is open: the newest plan, calls that wait, what the user asked for last, what the agent asks."""
    yield from _plan(conversation)
    yield from _waiting(conversation)
    yield from _asked(conversation)
    yield from _awaited(conversation)


def newest_request(conversation: Conversation) -> Source | None:
    """Return the user's newest message where it is told what is open: nobody has answered it, or the agent is at it.

    The first request stands in the overview, and all that is done is done for it.
    """
    source = next(reversed(conversation.typed), None)
    if source is None or (source is conversation.typed[0] and not conversation.has_task):
        return None
    return source if _is_open(conversation, source) else None


def _is_open(conversation: Conversation, source: Source) -> bool:
    last = conversation.sources[-1].message
    return bool(last.calls or last.results) or not _is_begun(conversation, source)


def _is_begun(conversation: Conversation, source: Source) -> bool:
    return any(
        later.message.role == "assistant" for later in reversed(conversation.sources) if later.index > source.index
    )


def _plan(conversation: Conversation) -> Iterator[Item]:
    limits = conversation.limits
    plans = [step for step in conversation.steps if step.action.deed == "plan"]
    for step in plans[-1:]:
        tasks = [task for task in tasks_of(step.action.arguments) if not task.is_done]
        for position, task in enumerate(tasks):
            text = f"({readable(task.status)}) {cut(task.text, limits.line, limits.counter)}"
            yield conversation.item(FIELD, "todo", text, step.call, weight=TODO, order=position)


def _waiting(conversation: Conversation) -> Iterator[Item]:
    limits = conversation.limits
    for step in conversation.steps:
        if step.answer is None and step.call.index == conversation.end - 1:
            text = cut(step.action.spoken(), limits.line, limits.counter)
            yield conversation.item(FIELD, "pending", text, step.call, weight=PENDING)


def _asked(conversation: Conversation) -> Iterator[Item]:
    """Yield the user's newest message where nobody has answered it, or where the agent is at it."""
    limits = conversation.limits
    for source in conversation.typed[-1:]:
        is_pasted = len(source.message.text) > MAX_TYPED_CHARS
        passage = conversation.quoted(source, limits.line if is_pasted else limits.asked)
        if not _is_begun(conversation, source):
            yield _quoting(passage, conversation.item(FIELD, "question", passage.text, source, weight=QUESTION))
        elif source is newest_request(conversation):
            yield _quoting(passage, conversation.item(FIELD, "working", passage.text, source, weight=WORKING))


def _awaited(conversation: Conversation) -> Iterator[Item]:
    """Yield what the agent's last message ends with, if nothing was done since: what comes next, or what it asks."""
    limits = conversation.limits
    for source in conversation.spoken("assistant")[-1:]:
        if not source.message.calls and source.index > conversation.last_deed:
            for position, sentence in enumerate(without_closing(in_words(source.message.text))[1]):
                text = cut(sentence, limits.report // 2, limits.counter)
                yield conversation.item(FIELD, "closing", text, source, weight=CLOSING, order=position)


def _quoting(passage: Passage, item: Item) -> Item:
    """Return *item* with the lines of *passage*."""
    return replace(item, pointer=passage.pointers[0], also=passage.pointers[1:]) if passage.pointers else item
