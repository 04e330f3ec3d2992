"""Which facts a summary says, within its tokens; and `Extractive`, the summarizer without a model."""

import asyncio
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from buoyline.compression.extractive.facts import SO_FAR, facts_of
from buoyline.compression.extractive.lines import field_text, line_of
from buoyline.compression.summary import FIELDS, Draft, Fact, Summarizer, SummaryRequest
from buoyline.compression.text import CUT, POINTER, pointers_in

_CAPS: Final = {
    "ban": 0.35, "user": 0.30, "rule": 0.12, "plan": 0.15, "check": 0.15, "file": 0.10, "edit": 0.12, "done": 0.10,
    "row": 0.08, "error": 0.08, "record": 0.20,
}  # fmt: skip
"""Of the tokens, the most that the facts of a kind take while others wait."""

_ALWAYS: Final = frozenset({"task", "ban"})
_PASSING: Final = frozenset({"intent", "asked"})
"""Kinds that only hold until the next message."""

_QUOTED: Final = frozenset({"rule", "user", "ban"})
_AGEING: Final = 0.26
_FOCUS_WEIGHT: Final = 5.0
_MOST_KEPT: Final = 150
_LEAST_LEFT_TOKENS: Final = 40
_WORD = re.compile(r"\w{3,}")
_STALE: Final = "; before the changes of "


def choose(
    facts: Sequence[Fact],
    request: SummaryRequest,
    tokens_of: Callable[[Mapping[str, str]], int],
    *,
    only: frozenset[str] | None = None,
    said: str = "",
) -> Draft:
    """Return the draft of the facts of new messages and of the last summary; *tokens_of* counts it as it is shown.

    With *only*, it says facts of these kinds, and none that the prose *said* has; it keeps the others for the next one.
    """
    choice = _Choice(request, [*facts, *carried(request.previous, facts, request)], only, said)
    choice.take_most_needed()
    choice.fill()
    return choice.draft(tokens_of)


def carried(previous: Draft | None, facts: Sequence[Fact], request: SummaryRequest) -> list[Fact]:
    """Return the facts of the last summary that the new ones do not replace; a model's prose counts line by line."""
    if previous is None:
        return []
    subjects, known = {fact.subject for fact in facts} - {""}, {(fact.kind, fact.text) for fact in facts}
    changed = [fact.text.rpartition("/")[2].partition(" \u00d7")[0] for fact in facts if fact.kind == "file"]
    has_spoken = any(fact.kind in ("user", "last", "report") for fact in facts)
    found = list[Fact]()
    for fact in (*previous.facts, *_prose(previous, request.sources[0].index - 1)):
        if fact.subject in subjects or (fact.kind, fact.text) in known or fact.kind in _PASSING:
            continue
        if fact.kind == "last" and has_spoken:  # another request came, or an answer
            text = fact.text.partition(": ")[2]
            fact = replace(fact, field=FIELDS[0], kind="user", text=text, weight=5.0, subject="")  # noqa: PLW2901
        elif changed and fact.kind == "git":
            fact = replace(fact, text=fact.text.partition(SO_FAR)[0])  # noqa: PLW2901 - the rest holds no more
        elif changed and fact.kind == "check" and _STALE not in fact.text:
            fact = replace(fact, text=f"{fact.text}{_STALE}{', '.join(changed[-3:])}")  # noqa: PLW2901 - likewise
        found.append(fact)
    return found


def _prose(draft: Draft, last_seen: int) -> Iterable[Fact]:
    """Yield the lines of a summary that a model or a function wrote."""
    held = {fact.text for fact in draft.facts}
    for field, text in draft.fields.items() if draft.summarizer != "extractive" else ():
        for order, line in enumerate(text.splitlines()):
            said = POINTER.sub("", line).strip(" -*\t")
            if said and said not in held:
                yield Fact(field, "said", said, tuple(pointers_in(line)), last_seen, 3.0, order)


class _Choice:
    """The facts that are said so far, and what they take."""

    def __init__(self, request: SummaryRequest, facts: Iterable[Fact], only: frozenset[str] | None, said: str) -> None:
        self._counter, self._budget, self._fields = request.counter, request.max_tokens, request.fields
        self._end = request.sources[-1].index + 1
        self._focus = {*_WORD.findall(request.focus.casefold())}
        # Fields that the schema does not have are read in the first one of its own.
        other = next((name for name in request.fields if name not in FIELDS), request.fields[0])
        self._facts = [one if one.field in request.fields else replace(one, field=other) for one in facts]
        self._facts.sort(key=self._need, reverse=True)
        self._only, self._shown, self._said = only, list[int](), said

    def _need(self, fact: Fact) -> float:
        if fact.kind in _ALWAYS:
            return 90 + fact.weight
        focused = len(self._focus.intersection(_WORD.findall(fact.text.casefold()))) / max(len(self._focus), 1)
        age = max(self._end - 1 - fact.last_seen, 0)
        return fact.weight + _FOCUS_WEIGHT * focused - _AGEING * math.log2(1 + age)

    def _is_left_out(self, fact: Fact) -> bool:
        words = fact.text.rpartition("“")[2].partition("”")[0] if fact.kind in _QUOTED else fact.text
        if self._only is not None and fact.kind not in self._only:
            return True
        is_own = fact.kind in ("file", "check", "plan")  # their words are also in other facts
        return not is_own and words.removesuffix(CUT).strip() in self._said

    def _cost(self, fact: Fact) -> int:
        if fact.kind == "file":  # all share a line
            return self._counter.count(fact.text.rpartition("/")[2]) + 12
        return self._counter.count(f"{line_of(fact.text, fact.pointers)}\n")

    def _say(self, at: int) -> None:
        self._shown.append(at)
        self._said += f"{self._facts[at].text}\n"

    def take_most_needed(self) -> None:
        """Say the most needed facts, of each kind no more than its share."""
        used, spent = 0, Counter[str]()
        for at, fact in enumerate(self._facts):
            if used >= self._budget:
                break
            if self._is_left_out(fact):
                continue
            cost, most = self._cost(fact), max(_CAPS.get(fact.kind, 1.0) * self._budget, _LEAST_LEFT_TOKENS)
            if used + cost <= self._budget and spent[fact.kind] + cost <= most:
                self._say(at)
                used += cost
                spent[fact.kind] += cost

    def fill(self) -> None:
        """Say more while there is room: joined lines take less than they were counted, and shares may be left."""
        for _ in range(3):
            left = self._budget - sum(map(self._counter.count, self._texts().values()))
            shown = {*self._shown}
            for at, fact in enumerate(self._facts):
                if left < _LEAST_LEFT_TOKENS:
                    break
                if at not in shown and not self._is_left_out(fact) and (cost := self._cost(fact)) <= left:
                    self._say(at)
                    left -= cost
            if len(self._shown) == len(shown):
                break

    def _texts(self) -> dict[str, str]:
        fields = defaultdict[str, list[Fact]](list)
        for at in self._shown:
            fields[self._facts[at].field].append(self._facts[at])
        return {name: field_text(fields[name]) for name in self._fields}

    def draft(self, tokens_of: Callable[[Mapping[str, str]], int]) -> Draft:
        """Return the draft; the least needed facts leave until it fits, whatever the counter."""
        self._shown.sort()
        texts = self._texts()
        while self._shown and tokens_of(texts) > self._budget:
            self._shown.pop()
            texts = self._texts()
        shown = {*self._shown}
        rest = [fact for at, fact in enumerate(self._facts) if at not in shown]
        kept = [*(self._facts[at] for at in self._shown), *rest[: max(_MOST_KEPT - len(shown), 0)]]
        return Draft("extractive", texts, tuple(kept))


def extract(request: SummaryRequest, tokens_of: Callable[[Mapping[str, str]], int] | None = None) -> Draft:
    """Return the summary; the same request gives the same one in each process.

    *tokens_of* counts the fields as they are shown; default: each alone, by the request's counter.
    """
    return choose(facts_of(request), request, tokens_of or _counted(request))


_BESIDE: Final = frozenset({"ban", "user", "last", "check", "file", "git", "error", "row"})
"""Kinds of facts that are added to a model's prose."""

_BESIDE_SHARE: Final = 0.25
"""Of the tokens, at most, for them."""


def with_facts(draft: Draft, request: SummaryRequest) -> Draft:
    """Return a model's draft with facts of the messages that it does not say, as many as its tokens allow."""
    left = request.max_tokens - sum(map(request.counter.count, draft.fields.values()))
    most = max(min(left, int(request.max_tokens * _BESIDE_SHARE)), 0)
    prose = "\n".join(draft.fields.values())
    beside = choose(facts_of(request), replace(request, max_tokens=most), _counted(request), only=_BESIDE, said=prose)
    fields = {name: "\n".join(filter(None, (text, beside.fields[name]))) for name, text in draft.fields.items()}
    return replace(draft, fields=fields, facts=beside.facts)


def _counted(request: SummaryRequest) -> Callable[[Mapping[str, str]], int]:
    return lambda fields: sum(map(request.counter.count, filter(None, fields.values())))


class Extractive:
    """Summarizes without a model: the task, what the user said, plan, files, checks, errors, findings."""

    async def summarize(self, request: SummaryRequest) -> Draft:
        """Return the summary of *request*."""
        return await asyncio.to_thread(extract, request)


if TYPE_CHECKING:
    _conforms: type[Summarizer] = Extractive
