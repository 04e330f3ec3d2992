"""`Extractive`: a summary without a model, of quotations and outcomes with their lines."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from buoyline.compression.extractive.choose import choose
from buoyline.compression.extractive.facts import facts_of
from buoyline.compression.summary import Draft, Summarizer, SummaryRequest


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
