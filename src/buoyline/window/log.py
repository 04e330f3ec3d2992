"""Writing a context down, so that another process can go on with it."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from buoyline.compression import Summary, summary_from
from buoyline.errors import CorruptError, StaleWindowError
from buoyline.messages import Converted, Text, convert, dialect_named
from buoyline.offloader import Abilities, StoredResult, WindowLog, WindowState
from buoyline.window.state import Contents, Context, Entry, entry_of

PIN: Final = "pin"
SUMMARY: Final = "summary"
NOTICE: Final = "notice"
"""The kind, in the head of a window, of a line that says where messages are."""
AGAIN: Final = "again"
"""The kind of an archived message that stands for now; its session index follows, behind a colon."""


@dataclass(slots=True)
class ContextKeeping:
    """Tells a log of windows what stands in one of them; does nothing where there is none.

    Attributes:
        log: The log.
        session_id: Whose window it is.
        writer: Tells this window from others of the session, which are refused once one has taken over.
    """

    log: WindowLog | None
    session_id: str
    writer: str = field(default_factory=lambda: uuid.uuid4().hex)

    async def start(self, settings: Mapping[str, Any]) -> None:
        """Begin with an empty context; may be repeated.

        Raises:
            SessionExistsError: The session has messages or a window already.
        """
        if self.log is not None:
            await self.log.start_window(self.session_id, settings, writer=self.writer)

    async def check(self, pins: Sequence[int]) -> None:
        """Make sure that the window is still this one's, before something is done that it does not write down.

        Raises:
            StaleWindowError: Another window has gone on with the session.
        """
        if self.log is not None:
            await self.log.extend_window(self.session_id, [], pins, writer=self.writer)

    async def extend(self, new: Sequence[Entry], pins: Sequence[int]) -> None:
        """Write down what was added.

        Raises:
            StaleWindowError: Another window has gone on with the session.
        """
        if new and self.log is not None:
            natives = [entry.native for entry in new]
            times = [entry.added for entry in new]
            await self.log.extend_window(self.session_id, natives, pins, times=times, writer=self.writer)

    async def replace(
        self, standing: Sequence[Entry], entries: Sequence[Entry], first: int, pins: Sequence[int]
    ) -> None:
        """Write down all of it.

        Args:
            standing: What stands before the messages.
            entries: The messages.
            first: Session index of the first of them.
            pins: Session indexes of pinned messages.

        Raises:
            StaleWindowError: See `extend`.
        """
        if self.log is None:
            return
        written = (*standing, *entries)
        natives, times = [entry.native for entry in written], [entry.added for entry in written]
        kinds = [kind_of(entry) for entry in standing]
        await self.log.replace_window(self.session_id, natives, kinds, first, pins, times=times, writer=self.writer)


def kind_of(entry: Entry) -> str:
    """Return the kind of what stands in a head, as a window's file has it."""
    if entry.pinned:
        return PIN
    if entry.message.role == "system":
        return "system"
    if entry.index >= 0:
        return f"{AGAIN}:{entry.index}"
    return NOTICE if entry.is_notice else SUMMARY


# Making a context again of what another process has written down of it.


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
    if len(archived) != len(mine) or not all(map(_is_archived_form, archived, mine)):
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


def _is_archived_form(archived: tuple[str, Any], entry: Entry) -> bool:
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


# What a window hands out where its messages are of another dialect than whoever goes on with it.
#
# The messages in the window, on disk and in the archive stay as they were written: only what is handed out is
# converted.


class Translation:
    """Hands the messages of a context out in one dialect; those that are of it are the very objects.

    Attributes:
        last: What was converted last, with what was lost, and what system messages say that are sent beside the
            messages; None where nothing was.
    """

    def __init__(self, dialect: str | None = None) -> None:
        """Hand out in *dialect*; None: each message as it is. Raises `ConfigError` where there is none of that name."""
        self._dialect = dialect_named(dialect).name if dialect else None
        self._given: list[Any] = []
        self.last: Converted | None = None

    def of(self, context: Context, end: int) -> list[Any]:
        """Return what stands in *context* up to the position *end* behind its head, as it is handed out."""
        if self._dialect is not None:
            return self._converted([*context.standing(), *context.contents.until(end)], self._dialect)
        return [*(entry.native for entry in context.standing()), *context.contents.natives[:end]]

    def _converted(self, entries: Sequence[Entry], dialect: str) -> list[Any]:
        """Return the messages of *entries*; what was converted before is not converted again.

        The message behind the last one of another dialect may become one with that, where roles take turns.
        """
        end = max((place for place, entry in enumerate(entries, 2) if entry.dialect != dialect), default=0)
        natives = [entry.native for entry in entries]
        if not _are_same(natives[:end], self._given):
            self._given = natives[:end]
            self.last = convert(self._given, to=dialect, from_=[entry.dialect for entry in entries[:end]])
        return [*(self.last.messages if self.last else ()), *natives[end:]]


def common_dialect(state: WindowState, dialect: str | None) -> str | None:
    """Return *dialect*, in which a session was begun; None where it has gone on in another since."""
    return dialect if dialect and all(_is_in(dialect, *message) for message in state.messages) else None


def _is_in(dialect: str, found: str, message: dict[str, Any]) -> bool:
    """Tell whether a message is of *dialect*: plain text, *found* to be OpenAI's, has the same form in several."""
    is_plain = found == "openai" and message.keys() <= {"role", "content"} and message["role"] in ("user", "assistant")
    return found == dialect or is_plain


def _are_same(natives: Sequence[Any], given: Sequence[Any]) -> bool:
    return len(natives) == len(given) and all(one is other for one, other in zip(natives, given, strict=True))
