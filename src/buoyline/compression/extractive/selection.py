"""Choose the facts of a summary: the most needed ones within the budget, each field with its share."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from types import MappingProxyType
from typing import Final

from buoyline.compression.citations import BETWEEN, CUT
from buoyline.compression.extractive.fact_text import (
    FILE_KINDS,
    JOINED_KINDS,
    cut,
    cut_between,
    field_text,
    line_of,
    mark_of,
)
from buoyline.compression.extractive.facts import FACTS
from buoyline.compression.pointers import Pointer
from buoyline.compression.summary import FIELDS, RULES_FIELD, Fact, SummaryRequest

OPEN_KINDS: Final = frozenset({"question", "working", "intent", "pending", "error"})

TASK_KIND: Final = "task"

FILE_TOKENS: Final = 12
"""Of a file in a tree, beside its name: its directory, and its lines in the mark that the files share."""

NEXT_FIELD: Final = "next_steps"
NEXT_TOKENS: Final = 40
"""Next steps may always take so many tokens, however small the summary is: without them nobody can continue."""

ASKED_KINDS: Final = frozenset({"question", "working"})
ASKED_TOKENS: Final = 340
"""The same for the user's newest request, 300 of words with their lines: cut before its content, it said nothing."""

SHARES: Final[Mapping[str, float]] = MappingProxyType(
    {
        "task_overview": 0.22,
        "current_state": 0.26,
        "next_steps": 0.08,
        "important_discoveries": 0.32,
        RULES_FIELD: 0.07,
    }
)
"""In the order in which the fields choose. Unused tokens go to the next field."""

CUSTOM_SHARE: Final = 0.2
"""Of a field that is not one of the five; all shares are then scaled to a sum of 1."""

CARRIED_SHARE: Final = 0.4
"""Of a field's share: facts of the last summary choose first, so that new ones do not crowd them out."""

MAX_TAKEN_SHARE: Final = 0.6
"""Of the share of the second field, by what is chosen before the fields; see `Selection.share_rest`."""

LEAST_FACT_NEED: Final = 0.06
"""Of a sentence in its field's share; the rest of a share goes to what is most needed in any field.

Without it, announcements such as "Let me check the tests" filled the share of discoveries while edits had no room.
"""

LEAST_SENTENCE_NEED: Final = 0.01
"""Of any sentence; below it are announcements and the instructions of a page that was read, and no room is spent."""

MAX_MISSES: Final = 30
"""After so many candidates in a row that are too large, the rest is given up."""

MAX_TASK_SHARE: Final = 0.5
TASK_TOKENS: Final = 100
"""A summary of fewer tokens may consist of the task alone."""

REQUEST_KIND: Final = "request"

PLAN_KIND: Final = "todo"
PLAN_SHARE: Final = 0.3
PLAN_TOKENS: Final = 300
"""For what is open in the plan, before the fields get their shares: with 400 tokens, one step of four was said."""

PROHIBITION_KIND: Final = "prohibition"
PROHIBITIONS_SHARE: Final = 0.25
"""Of the whole, for bans in long messages, which may be the words of others."""

PROHIBITIONS_TOKENS: Final = 60
"""May always be taken by it: beside a model's prose, a quarter of the facts is less than one sentence."""

SAID_BY_START: Final = frozenset({"finding", "constraint", "closing"})
SAID_CHARS: Final = 80
"""Two sentences of these kinds that begin with so many same characters are one."""

NEWEST_REQUESTS: Final = 3
NEWEST_REQUEST_TOKENS: Final = 80
"""A shorter quotation precedes everything but the task; a longer one competes with all other facts."""

NEWEST_REQUESTS_SHARE: Final = 0.13
"""Of the whole summary, for the newest short requests: a long first task could crowd one of them out."""

MAX_CARRIED_FACTS: Final = 2_000
"""So many candidates, the most needed, are kept for the next summary, whether this one says them or not.

What counts is how likely one is needed again, to which its age belongs.
"""

USUAL_ODDS: Final = -1.37
DOUBLED_COUNT: Final = 0.32
DOUBLED_AGE: Final = -0.26
"""Log odds that a fact is needed again: of one of no weight, and for each doubling of its messages and of its age."""

_TERM = re.compile(r"[^\W_]{3,}|[\u3040-\u9fff]{2}")


@dataclass(slots=True)
class SelectedFacts:
    """The facts that were chosen.

    Attributes:
        shown: Of each field, in the order in which they were chosen, most needed first.
        covered: A chosen sentence says them already: they are carried on, but not said again.
        task: The whole first request, to carry it on: beside one huge message there is no room for a word of it.
        shortened: Pairs of a candidate and its shorter form that is shown.
        ranked: All candidates, most needed first.
    """

    shown: dict[str, list[Fact]]
    covered: list[Fact] = field(default_factory=list)
    task: Fact | None = None
    shortened: list[tuple[Fact, Fact]] = field(default_factory=list)
    ranked: Sequence[Fact] = ()

    def carried(self) -> tuple[Fact, ...]:
        """Return all candidates for the next summary: what is said, and then what lacked room."""
        shown = [item for items in self.shown.values() for item in items]
        # A sentence that covers a fact may have been taken out since, to keep to the limit.
        texts = "\n".join(item.text for item in shown)
        said = [*shown, *(item for item in self.covered if item.text.removesuffix(CUT).rstrip() in texts)]
        keys = {(item.kind, item.text) for item in said}
        keys |= {(whole.kind, whole.text) for whole, cut_one in self.shortened if any(cut_one is item for item in said)}
        rest = [item for item in self.ranked if (item.kind, item.text) not in keys]
        unsaid = rest[: max(MAX_CARRIED_FACTS - len(said), 0)]
        items = (
            *(replace(item, is_shown=True) for item in said),
            *(replace(item, is_shown=False) if item.is_shown else item for item in unsaid),
        )
        if self.task is None:
            return items
        task = replace(self.task, is_shown=any(item.kind == TASK_KIND for item in shown))
        return (task, *(item for item in items if item.kind != TASK_KIND))


def select(items: Iterable[Fact], request: SummaryRequest, *, end: int) -> SelectedFacts:
    """Choose the facts of each field of *request* among *items*, candidates for the five fields, each fact once.

    *end* is the index behind the newest message, from which ages are counted. The facts take about
    ``request.max_tokens``; the last few tokens depend on how lines join.
    """
    selection = Selection(request, end=end)
    ranked = selection.choice.ranked = selection.ranked(items)
    queues = {name: [item for item in ranked if item.field == name] for name in request.fields}
    prose = [name for name in SHARES if name in queues and name != RULES_FIELD]
    asked, preserved = queues.get("task_overview", []), queues.get(RULES_FIELD, [])
    selection.choose_first(asked)
    selection.choose_newest(asked)
    selection.choose_prohibitions(preserved)
    selection.choose_plan(queues.get(NEXT_FIELD, []))
    selection.share_rest(prose)
    for name in prose:
        if name == NEXT_FIELD:
            selection.assure(queues[name], max(NEXT_TOKENS, int(selection.share_of(name) * request.max_tokens)))
        selection.fill(queues[name], share=selection.share_of(name), least_need=LEAST_FACT_NEED)
    for name in [name for name in request.fields if name not in FIELDS]:
        # The sentences of all fields are candidates for a field of the caller's own.
        digest = (replace(item, field=name) for item in ranked)
        queues[name] = selection.ranked(digest, _terms(name))
        selection.fill(queues[name], share=selection.share_of(name))
        prose.append(name)
    if preserved:
        selection.fill(preserved, share=selection.share_of(RULES_FIELD))
    rest = selection.ranked(chain(preserved, *(queues[name] for name in prose)))
    # Joined lines take fewer tokens than were counted, and the rest may hold one fact more.
    for _ in range(3):
        selection.fill(rest, share=1.0, least_need=LEAST_SENTENCE_NEED)
        selection.count_again()
    return selection.choice


def likelihood(weight: float, *, count: int, age: int) -> float:
    """Return how likely a fact is needed again, from 0 to 1.

    *weight* is the log odds of all but its count of messages, 1 or more, and its age in messages, 0 or more.
    """
    odds = USUAL_ODDS + weight + DOUBLED_COUNT * math.log2(count) + DOUBLED_AGE * math.log2(1 + age)
    return 1 / (1 + math.exp(-odds))


def _terms(text: str) -> frozenset[str]:
    return frozenset(term.casefold() for term in _TERM.findall(text))


class Selection:
    """Fills fields with facts, and accounts for tokens and for what has been said."""

    def __init__(self, request: SummaryRequest, *, end: int) -> None:
        """Start with nothing chosen; *end* is the index behind the newest message."""
        self.choice = SelectedFacts({name: [] for name in request.fields})
        self.max_tokens = request.max_tokens
        self._left: float = request.max_tokens
        self._shared: float = request.max_tokens  # of which each field has its share
        self._counter = request.counter
        self._end = end
        self._first = request.sources[0].index
        self._unused = 0.0
        self._terms = _terms(request.focus)
        self._all_shares = sum(SHARES.get(name, CUSTOM_SHARE) for name in request.fields)
        self._said = ""
        self._lines: set[tuple[str, int, tuple[Pointer, ...]]] = set()

    def share_of(self, name: str) -> float:
        """Return the share of all tokens that the field *name* has."""
        return SHARES.get(name, CUSTOM_SHARE) / self._all_shares

    def ranked(self, items: Iterable[Fact], terms: frozenset[str] = frozenset()) -> list[Fact]:
        """Return *items*, most needed first; one that holds one of *terms* or of the focus is needed more."""
        return sorted(items, key=lambda item: self._need(item, terms), reverse=True)

    def choose_first(self, queue: list[Fact]) -> None:
        """Choose the first of *queue*, the task, cut as far as necessary: even a few of its words help."""
        self.choice.task = next((item for item in queue if item.kind == TASK_KIND), None)
        for item in queue[:1]:
            room = max(MAX_TASK_SHARE * self.max_tokens, min(self.max_tokens, TASK_TOKENS))
            shown = self._cut_to(item, room)
            if shown is not None:
                self._choose_first_of(queue, item, shown)

    def choose_newest(self, queue: list[Fact]) -> None:
        """Choose the newest short requests in *queue*: the agent works on from them."""
        room = NEWEST_REQUESTS_SHARE * self.max_tokens
        items = [item for item in queue if item.kind == REQUEST_KIND and self._cost(item) <= NEWEST_REQUEST_TOKENS]
        for item in sorted(items, key=lambda one: one.last_seen, reverse=True)[:NEWEST_REQUESTS]:
            cost = self._cost(item)
            if not self._is_said(item) and cost <= min(room, self._left):
                room -= cost
                self._choose_first_of(queue, item, item)

    def choose_prohibitions(self, queue: list[Fact]) -> None:
        """Choose what the user forbade, unless a quotation says it: whole, or not at all.

        What was typed comes before what was pasted, and newer words before older ones. Those that were typed may take
        all tokens but those of a next step: every other kind of fact can be looked up.
        """
        reserve = min(NEXT_TOKENS, self.max_tokens // 6)
        pasted = max(PROHIBITIONS_SHARE * self.max_tokens, PROHIBITIONS_TOKENS)
        for item in sorted(queue, key=lambda one: (one.weight, one.last_seen), reverse=True):
            if item.kind != PROHIBITION_KIND:
                continue
            if self._is_said(item):
                queue.remove(item)
                self._choose(item, is_said=True)
                continue
            is_typed = item.weight >= FACTS["prohibition"]
            room = self._left - reserve if is_typed else min(pasted, self._left)
            shown = item if self._cost(item) <= room else replace(item, pointer=None, also=())
            if (cost := self._cost(shown)) <= room:
                pasted -= cost
                self._choose_first_of(queue, item, shown)

    def choose_plan(self, queue: list[Fact]) -> None:
        """Choose what is open in the plan, in its order: it is short, and says what the other facts are for."""
        room = min(PLAN_TOKENS, PLAN_SHARE * self.max_tokens)
        for item in sorted((item for item in queue if item.kind == PLAN_KIND), key=lambda one: one.order):
            cost = self._cost(item)
            if cost > min(room, self._left):
                return
            room -= cost
            self._choose_first_of(queue, item, item)

    def share_rest(self, names: Sequence[str]) -> None:
        """Let the later ones of the fields *names* bear in proportion what was chosen so far, if it takes too much.

        It comes out of the share of the first field, then of the second. In a small summary, the task and a ban took
        both: it had two remarks of the agent, and nothing of the file that the agent had made.
        """
        if len(names) < 2:  # noqa: PLR2004 - a first one and others
            return
        first, *others = (self.share_of(name) for name in names)
        excess = -self._unused - first * self.max_tokens
        if excess > MAX_TAKEN_SHARE * others[0] * self.max_tokens:
            self._shared = max(self.max_tokens - excess / sum(others), 0.0)
            self._unused = -first * self._shared

    def assure(self, queue: list[Fact], tokens: int) -> None:
        """Choose the first of *queue*, cut to *tokens* but to at most a sixth of all.

        The user's newest request may take `ASKED_TOKENS`, but at most half of all.
        """
        for item in queue[:1]:
            is_asked = item.kind in ASKED_KINDS
            room = min(ASKED_TOKENS, self.max_tokens / 2) if is_asked else min(tokens, self.max_tokens / 6)
            shown = self._cut_to(item, min(room, self._left))
            if shown is not None and not self._is_said(shown):
                self._choose_first_of(queue, item, shown)

    def _choose_first_of(self, queue: list[Fact], item: Fact, shown: Fact) -> None:
        """Choose *item* before its field has its share; *shown* is the part of it that is said."""
        queue.remove(item)
        if shown is not item:
            self.choice.shortened.append((item, shown))
        cost = self._cost(shown)
        self._left -= cost
        self._unused -= cost
        self._choose(shown, is_said=False)

    def _cut_to(self, item: Fact, room: float) -> Fact | None:
        """Return *item* with less text, or at last without its pointer, so that it costs *room*; None if it cannot."""
        for candidate in (item, replace(item, pointer=None, also=())):
            if self._cost(candidate) <= room:
                return candidate
            frame = self._cost(replace(candidate, text=""))
            shorten = cut_between if item.kind in ASKED_KINDS else cut
            text = shorten(item.text, max(0, int(room) - frame), self._counter)
            shown = replace(candidate, text=text)
            if text and self._cost(shown) <= room:
                return shown
        return None

    def fill(self, queue: list[Fact], *, share: float, least_need: float = 0.0) -> None:
        """Choose from *queue* in its order, most needed first, and remove what is chosen.

        Carried facts come first for a part of the tokens. Unused tokens of earlier fields are added to the *share* of
        all tokens, and those of this one are passed on. Each fact has at least *least_need*.
        """
        room = min(share * self._shared + self._unused, self._left)
        old = [item for item in queue if self._was_shown(item)]
        used = self._take(old, queue, CARRIED_SHARE * room, least_need) if len(old) < len(queue) else 0
        used += self._take(list(queue), queue, room - used, least_need)
        self._left -= used
        self._unused = room - used

    def _was_shown(self, item: Fact) -> bool:
        """Return whether the last summary said it; a fact that it had no room for competes with new ones."""
        return item.is_shown and item.last_seen < self._first

    def count_again(self) -> None:
        """Count the chosen facts together, since they join lines, and free the rest."""
        self._shared = self.max_tokens
        texts = (field_text(items) for items in self.choice.shown.values())
        self._left = self.max_tokens - sum(self._counter.count(text) for text in texts if text)
        self._unused = 0.0

    def _need(self, item: Fact, terms: frozenset[str] = frozenset()) -> float:
        weight = item.weight
        if any(term in item.text.casefold() or term in item.kind for term in terms | self._terms):
            weight += FACTS["focus"]
        return likelihood(weight, count=item.count, age=max(self._end - 1 - item.last_seen, 0))

    def _take(self, candidates: Sequence[Fact], queue: list[Fact], room: float, least_need: float) -> int:
        used = misses = 0
        done: set[int] = set()
        for item in [item for item in candidates if self._need(item) >= least_need]:
            if misses > MAX_MISSES:
                break
            is_said = self._is_said(item)
            cost = 0 if is_said else self._cost(item)
            if used + cost > room:
                misses += 1
                continue
            misses = 0
            used += cost
            done.add(id(item))
            self._choose(item, is_said=is_said)
        queue[:] = [item for item in queue if id(item) not in done]
        return used

    def _is_said(self, item: Fact) -> bool:
        """Return whether a chosen sentence says it already; a state is news even of words or a path in a quotation."""
        if item.kind in OPEN_KINDS or (item.kind in FILE_KINDS and item.kind != "read"):
            return False
        words = item.text.removesuffix(CUT).rstrip()
        # A quotation of another length says it as well; a ban must be whole.
        return words in self._said or (item.kind in SAID_BY_START and words[:SAID_CHARS] in self._said)

    def _choose(self, item: Fact, *, is_said: bool) -> None:
        if is_said:
            self.choice.covered.append(item)
            return
        self.choice.shown[item.field].append(item)
        self._lines.add(self._line_of(item))
        self._said += f"{item.text}\n"

    def _cost(self, item: Fact) -> int:
        """Count the tokens that *item* adds; if facts share a line, only the first pays for the mark."""
        if item.kind in FILE_KINDS:
            return self._counter.count(item.text.rpartition("/")[2]) + FILE_TOKENS
        if item.kind not in JOINED_KINDS:
            return self._counter.count(f"{line_of(item)}\n")
        is_first = self._line_of(item) not in self._lines
        mark_tokens = self._counter.count(f"- {mark_of(item.pointers)}\n") if is_first else 0
        return self._counter.count(f"{BETWEEN}{item.text}") + mark_tokens

    def _line_of(self, item: Fact) -> tuple[str, int, tuple[Pointer, ...]]:
        return item.field, item.last_seen, item.pointers if item.kind == "note" else ()
