"""The plan of which tool results of a turn are offloaded. Nothing is written here."""

from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

from buoyline.compression import ContextConfig
from buoyline.messages import Message, Text, ToolCall, ToolResult
from buoyline.offloader import RereadCheck, StoredResult, ToolRule
from buoyline.offloader.policy import (
    LEAST_STUB_TOKENS,
    WORTH_OFFLOADING_TOKENS,
    TurnResult,
    is_too_large,
    stub_budgets,
)
from buoyline.offloader.stub import is_reread_notice, reread_limit
from buoyline.tokens import TextCounter
from buoyline.tokens.messages import count_result
from buoyline.window.state import Entry, Messages, Place, State

_LEAST_CUT_TOKENS = 50
"""Without an offloader there is no path to name, and some text should stay next to the marker."""


@dataclass(frozen=True, slots=True)
class Choice:
    """How one tool result is offloaded.

    Attributes:
        tool: Its name; empty if it is not known.
        max_tokens: Limit of the stub.
        source: The reference that was read, if the result is a re-read; else empty.
        limit: Limit of the stub and the blocks that stay next to it; 0 for that of the stub.
    """

    tool: str
    max_tokens: int
    source: str = ""
    limit: int = 0


Choices = Mapping[int, Choice]
"""By the result's number in its message, 0-based."""


class _Call(NamedTuple):
    name: str
    source: str


_UNKNOWN = _Call("", "")

_Calls: TypeAlias = MutableMapping[str, tuple[_Call, ...]]
"""The newest calls of each id, in the order of their message."""


class _Result(NamedTuple):
    """One new result of a turn, with its place, its call, and the name of its tool."""

    result: ToolResult
    place: Place
    call: _Call
    tool: str


@dataclass(slots=True)
class _Turn:
    """The results since the model spoke last.

    Attributes:
        shown_tokens: Tokens of the results that are decided; re-reads are counted apart (True).
        new: The results that are not decided yet.
        answered: How many results each call id has had.
    """

    shown_tokens: dict[bool, int] = field(default_factory=dict[bool, int])
    new: list[_Result] = field(default_factory=list[_Result])
    answered: dict[str, int] = field(default_factory=dict[str, int])


@dataclass(slots=True)
class OffloadPlanner:
    """Plans which tool results are offloaded: by limits, rules, and the budget of a turn.

    It remembers the newest turn and the calls, so that a turn does not cost what the session has cost. `follow` updates
    both when the context changes.

    Attributes:
        stubs: Stored results by their stubs.
        rereads: Recognizes re-reads; None: only references that stubs name.
        can_store: Whether there is an offloader; without one, removed text is lost.
        calls: The newest calls of each id, including those of archived messages.
        archived: The ids of the archived calls. A call that follows a result with its id is none of them.
        turn: The newest turn.
        turn_limits: Tokens of all results of a turn; re-reads are counted apart (True).
    """

    session_id: str
    config: ContextConfig
    size: int
    counter: TextCounter
    stubs: Mapping[str, StoredResult]
    rereads: RereadCheck | None
    can_store: bool
    calls: _Calls = field(default_factory=dict[str, tuple[_Call, ...]])
    archived: set[str] = field(default_factory=set[str])
    turn: _Turn = field(default_factory=_Turn)
    turn_limits: dict[bool, int] = field(init=False)
    _rules: dict[str, ToolRule] = field(default_factory=dict[str, ToolRule])
    _read: dict[int, tuple[Message, _Calls]] = field(default_factory=dict[int, tuple[Message, _Calls]])

    def __post_init__(self) -> None:
        """Set the limits of a turn, which never change."""
        limit, reread = self.config.turn_limit(self.size), reread_limit(self.size, self.config.tool_result_limit)
        self.turn_limits = {False: limit, True: reread}

    def choose(self, entries: Sequence[Entry]) -> dict[int, Choices]:
        """Decide about all results of new *entries*; results of earlier messages keep their form.

        Returns:
            Choices by session index of the message; messages that stay as they are have no entry.
        """
        chosen: dict[int, dict[int, Choice]] = {}
        # Ids repeat: the same messages may be planned for again, and must then find the calls that they find now.
        for turn in self._turns(entries, ChainMap(dict[str, tuple[_Call, ...]](), self.calls)):
            if not turn.new:
                continue
            for is_reread in (True, False):
                new = [found for found in turn.new if bool(found.call.source) is is_reread]
                if new:
                    limit, shown_tokens = self.turn_limits[is_reread], turn.shown_tokens.get(is_reread, 0)
                    for (index, number), choice in self._decided(new, limit, shown_tokens):
                        chosen.setdefault(index, {})[number] = choice
        return dict(chosen)

    def follow(self, new: Sequence[Entry]) -> None:
        """Note messages in their final form."""
        calls = ChainMap(dict[str, tuple[_Call, ...]](), self.calls)
        for turn in self._turns(new, calls):
            for found in turn.new:
                is_reread = bool(found.call.source)
                tokens = turn.shown_tokens.get(is_reread, 0) + count_result(found.result, self.counter)
                turn.shown_tokens[is_reread] = tokens
            turn.new = []
            self.turn = turn
        self.calls.update(calls.maps[0])
        self._read.clear()

    def restart(self, messages: Messages) -> None:
        """Note the newest turn again, after some of *messages* were changed or archived."""
        self.turn = _Turn()
        self.follow(messages[max(messages.turn_at(len(messages)) - 1, 0) :])

    def recall(self, messages: Messages) -> dict[str, StoredResult]:
        """Note all messages of a window that another process has written.

        Returns:
            The re-reads that were cut to a notice, by notice, since the journal has no record of them.
        """
        notices: dict[str, StoredResult] = {}
        for entry in messages:
            self.calls.update(self._calls_of(entry.message))
            for result in entry.message.results:
                source = self._last_call(result).source
                if source:
                    known = StoredResult(source)
                    texts = (part.text for part in result.parts if isinstance(part, Text))
                    notices.update((text, known) for text in texts if is_reread_notice(text, source))
        self.restart(messages)
        return notices

    def held_limit(self, call: ToolCall) -> int:
        """Return the tokens up to which streamed output becomes a message like any other.

        More than that is offloaded at once. If a rule keeps results whole, and for
        re-reads, the limit is that of the re-reads of a turn: no window has room for more.
        """
        rule = self._rule(call.name)
        limit = rule.limit or self.config.tool_result_limit
        is_kept = rule.offload == "never" or self._source(call.arguments)
        return max(self.turn_limits[True], limit) if is_kept else limit

    def stub_tokens(self, call: ToolCall, turn: Sequence[Entry]) -> int:
        """Return how many tokens the stub of such output may take, given the results of the same *turn*.

        A result that is not decided yet counts as its limit at most. 1 means a bare stub.
        """
        room = self.turn_limits[False]
        for entry in turn:
            if entry.message.results:
                rules = map(self._rule_of, entry.message.results)
                room -= min(entry.tokens, sum(rule.limit or self.config.tool_result_limit for rule in rules))
        wanted = self._rule(call.name).preview_tokens or self.config.preview_tokens
        return min(wanted, room) if room >= min(wanted, LEAST_STUB_TOKENS) else 1

    def over(self, entry: Entry, limit: int, max_tokens: int) -> Choices:
        """Choose every result of *entry* above *limit* tokens, even if a rule keeps it."""
        found: dict[int, Choice] = {}
        for number, result in enumerate(entry.message.results):
            if is_too_large(self._given(result), limit, self.counter):
                tool, source = self.known_of(result)
                found[number] = Choice(tool, max_tokens, source)
        return found

    def note(self, entries: Sequence[Entry]) -> None:
        """Note the calls in *entries*, whose form is not final yet."""
        for entry in entries:
            self.calls.update(self._calls_of(entry.message))

    def note_archived(self, messages: Iterable[Message]) -> None:
        """Note the calls in *messages*, which are archived; calls of one id that are known already are newer."""
        noted: dict[str, tuple[_Call, ...]] = {}
        for message in messages:
            noted.update(self._calls_of(message))
        self.archived.update(noted)
        self.calls = {**noted, **self.calls}

    def with_late_results(self, state: State, count: int | None = None) -> State:
        """Return *state* with results handed out as words if their calls are archived.

        A call is archived before its result if the user spoke meanwhile, or if the context would not fit otherwise. A
        result whose call was never in the session is the caller's own. With *count*, only so many messages are new.
        """
        late: dict[int, dict[int, str]] = {}
        for (index, number), result in state.results_without_call(self.archived, count).items():
            late.setdefault(index, {})[number] = self.known_of(result)[0]
        if not late:
            return state

        def shown(entry: Entry) -> Entry:
            found = late.get(entry.index, {})
            return entry if found.keys() <= entry.late else entry.with_words(found, self.counter)

        prefix, reinserted = map(shown, state.prefix), map(shown, state.reinserted)
        state = replace(state, prefix=Messages.of(prefix), reinserted=Messages.of(reinserted))
        changed = {at: new for at, old in enumerate(state.messages) if (new := shown(old)) is not old}
        return replace(state, messages=state.messages.changed(changed))

    def known_of(self, result: ToolResult) -> tuple[str, str]:
        """Return the tool of *result*, and the reference that it read again; both may be empty."""
        call = self._last_call(result)
        return result.name or call.name, call.source

    def keeps(self, entry: Entry) -> bool:
        """Return whether a rule keeps a result of *entry*, as long as the context fits."""
        return any(_is_kept(result, self._rule_of(result)) for result in entry.message.results)

    def _turns(self, entries: Sequence[Entry], calls: _Calls) -> list[_Turn]:
        """Return the current turn and those that begin, each with the results that *entries* add to it."""
        turns = [_Turn(dict(self.turn.shown_tokens), [], dict(self.turn.answered))]
        for entry in entries:
            if entry.message.role == "assistant":
                turns.append(_Turn())
            turn = turns[-1]
            if entry.message.calls:
                calls.update(self._calls_of(entry.message))
            for number, result in enumerate(entry.message.results):
                # Of several calls of one id, each is answered once, in their order.
                asked, nth = calls.get(result.call_id, (_UNKNOWN,)), turn.answered.get(result.call_id, 0)
                turn.answered[result.call_id] = nth + 1
                call = asked[min(nth, len(asked) - 1)]
                turn.new.append(_Result(result, (entry.index, number), call, result.name or call.name))
        return turns

    def _calls_of(self, message: Message) -> _Calls:
        """Return the calls in *message*. Their arguments are searched once between two changes of the context."""
        known = self._read.get(id(message))
        if known is not None:
            return known[1]
        noted: _Calls = {}
        for call in message.calls:
            made = _Call(call.name, self._source(call.arguments))
            noted[call.call_id] = (*noted.get(call.call_id, ()), made)
        if self.rereads is not None:  # otherwise the next stub may change the answer
            self._read[id(message)] = message, noted
        return noted

    def _last_call(self, result: ToolResult) -> _Call:
        return self.calls.get(result.call_id, (_UNKNOWN,))[-1]

    def _source(self, arguments: str) -> str:
        if self.rereads is not None:
            return self.rereads.reference_in(self.session_id, arguments)
        references = (stored.reference for stored in self.stubs.values() if stored.reference)
        return next((reference for reference in references if reference in arguments), "")

    def _rule(self, tool: str) -> ToolRule:
        rule = self._rules.get(tool)
        if rule is None:
            rule = self._rules[tool] = self.config.rule_for(tool)
        return rule

    def _rule_of(self, result: ToolResult) -> ToolRule:
        return self._rule(result.name or self._last_call(result).name)

    def _decided(self, new: list[_Result], limit: int, shown_tokens: int) -> Iterator[tuple[Place, Choice]]:
        """Decide about the new results of one turn."""
        least = LEAST_STUB_TOKENS if self.can_store else _LEAST_CUT_TOKENS
        weighed = [self._weighed(found, limit) for found in new]
        for at, most in stub_budgets(weighed, limit - shown_tokens, least=least).items():
            found = new[at]
            stub_tokens = min(most, self._rule(found.tool).preview_tokens or most)
            yield found.place, Choice(found.tool, stub_tokens, found.call.source, most)

    def _weighed(self, found: _Result, turn_limit: int) -> TurnResult:
        rule, result = self._rule(found.tool), found.result
        is_ours = self._given(result) is not result
        if is_ours or _is_kept(result, rule):
            return TurnResult(count_result(result, self.counter), 0, is_fixed=True)
        limit = turn_limit if found.call.source else rule.limit or self.config.tool_result_limit
        # Small blocks may stay next to the stub of a large one, up to the limit of the whole.
        is_one_text = len(result.parts) == 1 and isinstance(result.parts[0], Text)
        allowed = (rule.preview_tokens or limit) if self.can_store and is_one_text else limit
        if is_too_large(result, limit, self.counter):
            return TurnResult(0, allowed, is_due=True)
        tokens = count_result(result, self.counter)
        is_due = rule.offload == "always" and self.can_store and not found.call.source
        return TurnResult(tokens, min(allowed, tokens // 2), is_due=is_due and tokens > WORTH_OFFLOADING_TOKENS)

    def _given(self, result: ToolResult) -> ToolResult:
        """Return *result* without stubs and reference lines."""
        parts = [part for part in result.parts if not isinstance(part, Text) or part.text not in self.stubs]
        return result if len(parts) == len(result.parts) else replace(result, parts=tuple(parts))


def _is_kept(result: ToolResult, rule: ToolRule) -> bool:
    return rule.offload == "never" or (rule.keep_errors and result.is_error)
