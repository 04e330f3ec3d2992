"""Following a list of messages that somebody else owns, such as the state of a framework's agent."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import chain, islice, starmap
from typing import Any, NamedTuple, TypeAlias

from buoyline.compression import Summary
from buoyline.messages import CachePoint, Message, Text, ToolResult
from buoyline.messages.jsonl import is_object, spell
from buoyline.messages.registry import detect, dialect_named
from buoyline.window.compaction import Compaction, Eviction
from buoyline.window.context import Change, Replace, StateDraft, load_summaries
from buoyline.window.events import HistoryForked
from buoyline.window.state import Entry, Messages, State, entry_of, is_in_words

MessageKey: TypeAlias = Callable[[Any], str]
"""Returns what identifies a native message for life, such as its id; empty for a message without one."""


@dataclass(frozen=True, slots=True)
class Followed:
    """The difference between a list and the one that the window knew.

    Attributes:
        added: How many messages at the end are new.
        removed: How many messages that the window knew are not in the list, or come after a change.
        fork: Session index of the first message behind which the list goes on in another way; None if it only grew,
            lost messages, or has changed ones.
        reference: Where the messages behind the fork are stored; empty if nothing stores them.
        changed: How many messages have the same key and other content; they are replaced in the context.
    """

    added: int
    removed: int = 0
    fork: int | None = None
    reference: str = ""
    changed: int = 0


@dataclass(frozen=True, slots=True)
class KnownMessage:
    """A message of the list, as the window knows it.

    Attributes:
        index: Session index; -1 for a summary and other messages of ours.
        key: See `MessageKey`.
        content_hash: Hash of the view, in this process.
        shortened: The view, if it holds stubs and its first form is not known: the list may have the whole content.
    """

    native: Any
    index: int
    key: str
    content_hash: int
    shortened: Message | None = None


class _HandedOut(NamedTuple):
    """Known messages that a list may hold, of which *head* are in front of the window's: summary, pins and the like."""

    head: int
    known: Sequence[KnownMessage]


class _Match(NamedTuple):
    """How a list compares with known messages.

    Attributes:
        kept: Those that the list begins with, in order.
        missing: Those between them that are not in the list.
        gone: Those behind them.
        has_head: Whether all in front of the window's messages are kept: summary, pins and the like.
    """

    kept: list[KnownMessage]
    missing: list[KnownMessage]
    gone: list[KnownMessage]
    has_head: bool


class ListFollower:
    """Keeps a window in step with a list of another owner.

    The owner may give its whole list each time, or put what the window hands out into its list. So a list is compared
    with the one before, and if that was changed, with what the window hands out. In another process, the owner may not
    have saved that, so the list is also compared with what was handed out before each compaction. The longest match
    counts. Any known message may be missing: it is archived, and the others stay.
    """

    def __init__(self, compaction: Compaction, dialect: str | None) -> None:
        """Follow for the window of *compaction*; see `ContextWindow` for *dialect*."""
        self._compaction = compaction
        self._context = compaction.context
        self._results = compaction.results
        self._dialect = dialect
        self._known: list[KnownMessage] | None = None
        self._added: list[Entry] = []

    @property
    def natives(self) -> list[Any]:
        """The messages that the list had, and those that were added since."""
        return [one.native for one in (*(self._known or ()), *self._added)]

    def note(self, entry: Entry) -> None:
        """Note a message that was added to the window by itself: the list will have it, too, in this form."""
        if self._known is not None:
            self._added.append(entry)

    async def follow(
        self, messages: Sequence[Any], key: MessageKey | None, add: Callable[[Any, bool], Awaitable[Entry]]
    ) -> Followed:
        """Take over what has changed; see `ContextWindow.follow`. *add* adds a message to the window, pinned or not."""
        given = _GivenList(messages, key, self._dialect, self._results.stubs.keys())
        if self._known is None:
            known = await self._from_disk(given)
        else:  # streamed output was added as a stub
            known = self._known
            known += [given.known_or_shortened(entry.native, entry.message, entry.index) for entry in self._added]
            self._added.clear()
        start, pins = len(known), self._context.whole.pins
        followed, is_continued = Followed(len(messages) - start), self._is_continued(messages, known)
        if not is_continued and len(given.matched(known)) < len(known):
            # A summary that is in the log already would change what is compared.
            await self._compaction.finish()
            summaries = list[Summary]()
            if self._known is None and self._compaction.first:
                summaries = await load_summaries(self._results.abilities, self._results.session_id)
            match = self._compared(given, known, self._handed_out_before(given, known, summaries[::-1]))
            if match.missing:
                await self._drop(match)
            known = match.kept
            start, followed = len(known), Followed(len(messages) - len(known), len(match.missing))
            if match.gone:
                start, followed = await self._fork(match, followed)
        # If something fails from here on, the next call adds the others.
        if not is_continued:
            followed = replace(followed, changed=await self._take_changes(known[:start], given))
            known[:start] = [given.renewed(known[at], at) for at in range(start)]
        self._known = known if start == len(known) else known[:start]
        if self._added:  # meanwhile; a fork has changed their indexes
            self._added = self._context.inbox[-len(self._added) :]
        for at in range(start, len(messages)):
            entry = await add(messages[at], at < len(known) and known[at].index in pins)
            self._known.append(given.known_as(messages[at], entry.message, entry.index))
        if followed.fork is not None:
            self._context.tell(HistoryForked(followed.fork, followed.removed, followed.reference))
        return followed

    def _is_continued(self, messages: Sequence[Any], known: Sequence[KnownMessage]) -> bool:
        """Return whether the list begins with the messages of the one before: that is cheap to find out."""
        return len(known) <= len(messages) and [one.native for one in known] == list(islice(messages, len(known)))

    async def _take_changes(self, known: Sequence[KnownMessage], given: "_GivenList") -> int:
        """Give each message that its owner has changed its new form; return how many there are."""
        changed = [(at, one.index) for at, one in enumerate(known) if given.is_changed(one, at)]
        for at, index in changed:
            await self._change(index, given.messages[at])
        return len(changed)

    async def _change(self, index: int, native: Any) -> None:
        """Give a message its new form; an archived one keeps that in which it was written."""
        context, state = self._context, self._context.whole
        if index < state.messages.first:
            return
        old = state.messages[index - state.messages.first]
        entry = entry_of(native, index, context.budget.counter, dialect=old.dialect, pinned=old.pinned)
        entry = replace(entry, added=old.added)
        if index >= context.inbox.first:
            context.inbox = context.inbox.changed({index - context.inbox.first: entry})
            return

        def changed(now: State) -> Change:
            draft = StateDraft.of(now)
            draft.put(index - now.messages.first, entry)
            return draft.change(now)

        await context.commit(changed)

    async def _from_disk(self, given: "_GivenList") -> list[KnownMessage]:
        """Return all messages of the session, those in the archive included."""
        state, abilities, session_id = self._context.whole, self._results.abilities, self._results.session_id
        found = [(entry.native, entry.message) for entry in state.messages]
        if abilities.archive is not None and state.messages.first:
            archived = await abilities.archive.load_messages(session_id, 0, state.messages.first)
            natives = [(name, dialect_named(name).from_json(value)) for name, value in archived]
            found = [*((native, dialect_named(name).view(native)) for name, native in natives), *found]
        texts = [text for _, view in found for text in _texts(view)]
        if abilities.results is not None and self._context.state.messages.end:
            given.stubs = given.stubs | (await abilities.results.load_stubs(session_id, texts)).keys()
        if abilities.redactor is not None and found:
            given.redacted = await abilities.redactor.redacted([given.view(at) for at in range(len(given.messages))])
        first = state.messages.end - len(found)
        return [given.known_or_shortened(native, view, index) for index, (native, view) in enumerate(found, first)]

    def _handed_out_before(
        self, given: "_GivenList", known: list[KnownMessage], summaries: Sequence[Summary]
    ) -> Iterator[_HandedOut]:
        """Yield what was handed out with each of *summaries* but the newest; *known* is the whole session."""
        state = self._context.whole
        dialect = None if self._dialect is None else dialect_named(self._dialect)
        for summary in summaries:
            end = summary.messages[1]
            at = end - known[0].index
            if at <= 0 or end >= state.messages.first:
                continue  # the messages behind it cannot be read, or it is in the context now
            text = (dialect or detect(known[at - 1].native)).user_message(summary.text)
            leading = [(entry.native, entry.message, entry.index) for entry in state.prefix if entry.index < end]
            leading.append((text, (dialect or detect(text)).view(text), -1))
            if state.notice is not None:
                leading.append((state.notice.native, state.notice.message, -1))
            yield _HandedOut(len(leading), [*starmap(given.known, leading), *known[at:]])

    def _compared(self, given: "_GivenList", known: Sequence[KnownMessage], earlier: Iterator[_HandedOut]) -> _Match:
        """Compare the list with *known*, with what the window hands out, and with what it handed out *earlier*."""
        state = self._context.whole
        entries = [*state.leading, *state.messages]
        as_known = given.known_or_shortened if self._known is None else given.known
        shown = [as_known(entry.native, entry.message, entry.index) for entry in entries]
        compared = chain([_HandedOut(0, known), _HandedOut(len(state.leading), shown)], earlier)
        found = [(head, known, given.matched(known)) for head, known in compared]
        head, known, places = max(found, key=lambda one: len(one[2]))  # the first of the longest
        # What was never written down cannot be archived; a fork stores it.
        waiting = (at for at, one in enumerate(known) if one.index >= self._context.state.messages.end)
        unwritten = next((at for at in waiting if at not in places), len(known))
        places = [at for at in places if at < unwritten]
        end = places[-1] + 1 if places else 0
        kept = set(places)
        return _Match(
            [known[at] for at in places],
            [known[at] for at in range(end) if at not in kept],
            [*known[end:]],
            places[:head] == [*range(head)],
        )

    async def _drop(self, match: _Match) -> None:
        """Archive the messages that the owner has removed, without a summary; those before them that stay are kept."""
        state = self._context.state
        first, missing = state.messages.first, {one.index for one in match.missing}
        cut = max(max(missing) + 1 - first, 0)
        ours = [one.native for one in match.missing if one.index < 0]
        leading = state.leading
        removed = {
            at
            for at, entry in enumerate(leading)
            if (entry.index in missing and entry.index >= 0 and not entry.pinned)
            or any(entry.native == native for native in ours)
        }
        if not cut and not removed:
            return  # they were archived before
        if cut:
            await self._compaction.archived(self._compaction.extent(cut))
        inside = [one.index - first for one in match.kept if first <= one.index < first + cut]
        lasting = tuple(at for at in inside if state.messages[at].stays)
        reinserted = tuple(at for at in inside if not state.messages[at].stays)

        def dropped(now: State) -> Change:
            left = [entry for at, entry in enumerate(leading) if at not in removed]
            summary = now.summary if now.summary is not None and now.summary.entry in left else None
            kept = replace(now, prefix=Messages.of(entry for entry in now.prefix if entry in left))
            staying = frozenset(entry.index for entry in now.reinserted if entry in left)
            eviction = Eviction(cut, lasting, reinserted, staying)
            return eviction.change(kept, summary, now.notice if now.notice in left else None)

        await self._context.commit(dropped)

    async def _fork(self, match: _Match, followed: Followed) -> tuple[int, Followed]:
        """Remove the messages behind the change, which are stored before.

        Returns:
            How many messages at the beginning of the list need not be added again, and what was done.
        """
        context, state, start = self._context, self._context.state, len(match.kept)
        first, gone = state.messages.first, [one.index for one in match.gone if one.index >= 0]
        index, reference = gone[0] if gone else context.inbox.end, ""
        keeps_head = index >= first and match.has_head
        discarded = len(context.inbox)
        waiting = context.inbox[max(index - context.inbox.first, 0) :]  # nothing of it was ever written down
        if keeps_head and index >= state.messages.end:
            if state.messages.end:  # before that, the session does not exist
                reference = await self._stored(waiting)
            kept = context.inbox[: index - context.inbox.first]
            added = context.inbox.without(discarded).renumbered(index)  # while the others were stored
            context.inbox = Messages.of([*kept, *added], context.inbox.first)
        elif keeps_head and index > max(first, state.attempted_until):
            reference = await self._stored([*state.messages[index - first :], *waiting])

            def cut_back(now: State) -> Change:
                left = now.until(index)
                return Change(left, Replace(left), is_compaction=True, discarded=discarded)

            await context.commit(cut_back)
        else:  # what is archived keeps its index, so the list goes on behind all of it
            reference = await self._stored(waiting)
            if len(state.messages):
                extent = self._compaction.extent(len(state.messages))
                reference = (await self._compaction.archived(extent)).reference
            start = sum(one.index < first for one in match.kept) if keeps_head else 0

            def begun(now: State) -> Change:
                head = now if keeps_head else State(archived_until=now.archived_until, batches=now.batches)
                left = replace(
                    head,
                    messages=Messages(now.messages.end),
                    pins=frozenset(entry.index for entry in head.prefix if entry.pinned),
                    attempts=frozenset(),
                )
                return Change(left, Replace(left), is_compaction=True, discarded=discarded)

            await context.commit(begun)
        return start, replace(followed, removed=followed.removed + len(gone), fork=index, reference=reference)

    async def _stored(self, entries: Sequence[Entry]) -> str:
        """Store messages behind a change in a file, and return its reference; empty if nothing stores them."""
        if not entries:
            return ""
        await self._context.log.check(self._context.state)
        text = Text("".join(f"{spell(entry.json())}\n" for entry in entries))
        stored = await self._results.store(ToolResult(f"fork-{entries[0].index}", "", (text,)))
        return "" if stored is None else stored.reference


class _GivenList:
    """A list that is compared with known messages; each of its messages is read once, if it has to be.

    Attributes:
        stubs: All stubs that the known messages may hold.
        redacted: The views as they may be on disk; None if the known messages are not from disk, or nothing redacts.
    """

    def __init__(
        self, messages: Sequence[Any], key: MessageKey | None, dialect: str | None, stubs: AbstractSet[str]
    ) -> None:
        self.messages = messages
        self.stubs = stubs
        self.redacted: Sequence[Message] | None = None
        self._key = key
        self._dialect = None if dialect is None else dialect_named(dialect)
        self._views: dict[int, Message] = {}

    def view(self, at: int) -> Message:
        """Return the view of the message at this position."""
        if at not in self._views:
            native = self.messages[at]
            self._views[at] = (self._dialect or detect(native)).view(native)
        return self._views[at]

    def known(self, native: Any, view: Message, index: int) -> KnownMessage:
        """Return a message that the window has."""
        key = "" if self._key is None or index < 0 else self._key(native)
        return KnownMessage(native, index, key, _content_hash(view))

    def known_or_shortened(self, native: Any, view: Message, index: int) -> KnownMessage:
        """Return a message that the window has, perhaps with stubs since before anybody noted it."""
        has_stub = any(text in self.stubs for text in _texts(view))
        return replace(self.known(native, view, index), shortened=view if has_stub else None)

    def known_as(self, native: Any, view: Message, index: int) -> KnownMessage:
        """Return a message of the list, which is known from now on; its owner may replace fields of it."""
        key = "" if self._key is None else self._key(native)
        return KnownMessage(_kept(native), index, key, _content_hash(view))

    def renewed(self, known: KnownMessage, at: int) -> KnownMessage:
        """Return a known message as the list has it now."""
        native = self.messages[at]
        if known.native == native:  # it need not be read
            return replace(known, native=_kept(native), shortened=None)
        return self.known_as(native, self.view(at), known.index)

    def matched(self, known: Sequence[KnownMessage]) -> list[int]:
        """Return the places in *known* of the messages that the list begins with; others may be between them."""
        places, at = list[int](), 0
        for position in range(len(self.messages)):
            found = next((place for place in range(at, len(known)) if self._is(known[place], position)), None)
            if found is None:
                break
            places.append(found)
            at = found + 1
        return places

    def _is(self, known: KnownMessage, at: int) -> bool:
        """Return whether this is the same message: by its key, or else by its content."""
        key = self._key(self.messages[at]) if self._key is not None and known.key else ""
        return key == known.key if key else not self.is_changed(known, at)

    def is_changed(self, known: KnownMessage, at: int) -> bool:
        """Return whether the message at this position has other content than *known*."""
        native = self.messages[at]
        if known.native is native or known.native == native:  # much faster than to read it
            return False
        view = self.view(at) if self.redacted is None else self.redacted[at]
        if _content_hash(view) == known.content_hash:
            return False
        if known.shortened is not None and self._is_shortened(known.shortened, view):
            return False
        return not is_in_words(view, self._dialect or detect(known.native), known.native)

    def _is_shortened(self, shortened: Message, whole: Message) -> bool:
        """Return whether *shortened* is *whole*, with stubs in the place of results, or of its own content."""
        if shortened.role != whole.role or len(shortened.results) != len(whole.results):
            return False
        for ours, theirs in zip(shortened.results, whole.results, strict=True):
            is_stub = any(text in self.stubs for text in ours.texts)
            if ours.call_id != theirs.call_id or not (is_stub or ours.parts == theirs.parts):
                return False
        own = Message(whole.role, tuple(part for part in shortened.parts if not isinstance(part, ToolResult)))
        others = Message(whole.role, tuple(part for part in whole.parts if not isinstance(part, ToolResult)))
        return any(text in self.stubs for text in _texts(own)) or _content_hash(own) == _content_hash(others)


def _kept(native: Any) -> Any:
    """Return *native* to compare it with later: its owner may replace fields of the very object."""
    return {**native} if is_object(native) else native


def _content_hash(view: Message) -> int:
    """Return the hash of all that a model reads; cache points, which move at each request, are not."""
    return hash((view.role, view.name, tuple(part for part in view.parts if not isinstance(part, CachePoint))))


def _texts(view: Message) -> Iterator[str]:
    """Yield the texts of a message, and of its results."""
    for part in view.parts:
        if isinstance(part, ToolResult):
            yield from part.texts
        elif isinstance(part, Text):
            yield part.text
