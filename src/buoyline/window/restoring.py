"""Making a context again of what another process has written down of it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from buoyline.compression import Summary, summary_from
from buoyline.errors import CorruptError, StaleWindowError
from buoyline.messages import Text, dialect_named
from buoyline.offloader import Abilities, StoredResult, WindowState
from buoyline.window.contents import Contents
from buoyline.window.context import Context
from buoyline.window.entry import Entry, entry_of
from buoyline.window.keeping import AGAIN, NOTICE


def restore(context: Context, state: WindowState, summaries: Sequence[Summary], dialect: str | None) -> None:
    """Fill the empty *context* with what *state* says.

    Args:
        context: Has system prompt, tools and counter.
        state: Of the session's window.
        summaries: Of the session, in order.
        dialect: The one that all messages have; None: each its own.

    Raises:
        CorruptError: The summary that stands in the context is not among *summaries*.
    """
    head, others = state.messages[: len(state.head)], state.messages[len(state.head) :]
    archived_pins = iter([pin for pin in state.pins if pin < state.first])
    for said, (named, native) in zip(state.head, head, strict=True):
        kind, _, place = said.partition(":")
        index = next(archived_pins) if kind == "pin" else int(place or -1)
        message = dialect_named(named).from_json(native)
        entry = entry_of(message, index, context.counter, dialect=named, pinned=kind == "pin")
        if kind == "summary":
            context.summary = (entry, _shown(summaries, entry))
        elif kind == NOTICE:
            context.notice = replace(entry, is_notice=True)
        else:
            (context.again if kind == AGAIN else context.head).append(entry)
    contents = context.contents = Contents(first=state.first)
    times = state.times[len(head) :] or [""] * len(others)
    for (named, native), added in zip(others, times, strict=True):
        pinned = contents.end in state.pins
        message = dialect_named(named).from_json(native)
        entry = entry_of(message, contents.end, context.counter, dialect=dialect or named, pinned=pinned)
        contents.append(replace(entry, added=added))
    context.pins = list(state.pins)
    context.settled = len(contents)
    context.archived = state.archived


async def check_archived(context: Context, abilities: Abilities, session_id: str) -> None:
    """Make sure that what the archive holds beyond the context's first message is the context's own.

    Raises:
        StaleWindowError: It is not.
        BuoylineError: The archive cannot be read.
    """
    first = context.contents.first
    if abilities.archive is None or context.archived == first:
        return
    archived = await abilities.archive.load_messages(session_id, first, context.archived)
    # Plain text is found to be of another dialect than it was added in, once a session has gone on in a second one.
    mine = context.contents.until(context.archived - first)
    if len(archived) != len(mine) or not all(map(_is_same, archived, mine)):
        reason = "its archive holds messages that did not come from its window"
        hint = "nothing is lost, archive and window.jsonl are whole; begin a new session from what they hold"
        raise StaleWindowError(session_id, reason, hint)


async def count_answers(context: Context, abilities: Abilities, session_id: str) -> None:
    """Count the model's messages that have left, which say how many times it was called.

    Raises:
        BuoylineError: The archive cannot be read.
    """
    first = context.contents.first
    if abilities.archive is None or first == 0:
        return
    archived = await abilities.archive.load_messages(session_id, 0, first)
    views = (dialect_named(named).from_json(value) for named, value in archived)
    roles = [dialect_named(named).view(native).role for (named, _), native in zip(archived, views, strict=True)]
    context.contents.answers_left = roles.count("assistant")


async def stubs_in(context: Context, abilities: Abilities, session_id: str) -> dict[str, StoredResult]:
    """Return the stored results behind what stands in the tool results of *context*, by the texts that do."""
    if abilities.results is None:
        return {}
    results = [result for entry in context.contents for result in entry.message.results]
    texts = [part.text for result in results for part in result.parts if isinstance(part, Text)]
    return await abilities.results.load_stubs(session_id, texts)


async def load_summaries(abilities: Abilities, session_id: str) -> list[Summary]:
    """Return all summaries of the session, in order."""
    if abilities.summaries is None:
        return []
    return [summary_from(line) for line in await abilities.summaries.load_summaries(session_id)]


def _is_same(archived: tuple[str, Any], entry: Entry) -> bool:
    """Tell whether an archived message is that of *entry*, be it that its caller has marked it after it was written.

    Agents set cache marks of the provider on the very messages that they were handed out.
    """
    name, value = archived
    dialect = dialect_named(name)
    return value == entry.json() or dialect.view(dialect.from_json(value)) == entry.message


def _shown(summaries: Sequence[Summary], entry: Entry) -> Summary:
    for summary in reversed(summaries):
        if summary.text == entry.message.text:
            return summary
    raise CorruptError("summaries.jsonl", "does not hold the summary that stands in the context")
