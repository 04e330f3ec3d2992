"""Which messages are archived and which are kept.

Pure. A call is never parted from its result, even if ids repeat or are missing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from buoyline.messages import Message, Opaque, Text
from buoyline.messages.model import Note


@dataclass(frozen=True, slots=True)
class Plan:
    """Which messages are archived.

    Attributes:
        cut: How many of the oldest messages are archived; 0 if none may be.
        archived_tokens: Their tokens.
        kept_tokens: Tokens of the others.
        reason: Why the cut is there, for people.
    """

    cut: int
    archived_tokens: int
    kept_tokens: int
    reason: str


def plan(
    messages: Sequence[Message], counts: Sequence[int], *, max_kept_tokens: int, before_model: bool = False
) -> Plan:
    """Archive as few messages as bring the rest to *max_kept_tokens*.

    The newest message is kept together with its call or results, even if it alone takes more. A call that waits for its
    result is kept too, unless the rest is then too large: recorded sessions have calls that are never answered, and one
    of them must not hold all later messages in the context. Those of the model's newest message are kept in any case,
    since their results are coming in.

    *messages* are those behind the prefix, and *counts* their tokens. The cut is 0 if no message may be archived. With
    *before_model*, it is before a message of the model's if the cut or one next to it is.
    """
    archived_tokens = [0, *accumulate(counts)]
    total_tokens, awaited = archived_tokens[-1], awaited_from(messages)
    cuts: list[int] = []
    for hold_pending in (True, False):
        cuts = [cut for cut in legal_cuts(messages, hold_pending=hold_pending) if cut <= awaited]
        at = next((at for at, cut in enumerate(cuts) if archived_tokens[cut] >= total_tokens - max_kept_tokens), None)
        if at is not None:
            cut = cuts[at]
            if before_model:
                near = (cut, *cuts[max(at - 1, 0) : at], *cuts[at + 1 : at + 2])
                cut = next((one for one in near if messages[one].role == "assistant"), cut)
            reason = f"the newest {len(messages) - cut} fit {max_kept_tokens:,} tokens"
            return Plan(cut, archived_tokens[cut], total_tokens - archived_tokens[cut], reason)
    if not cuts:
        return Plan(0, 0, total_tokens, "no message may leave: all belong to the newest call")
    cut = cuts[-1]
    reason = f"the newest {len(messages) - cut} belong together"
    return Plan(cut, archived_tokens[cut], total_tokens - archived_tokens[cut], reason)


def awaited_from(messages: Sequence[Message]) -> int:
    """Return the position of the model's newest message if its calls wait for results, else the end."""
    newest_answer = max((at for at, message in enumerate(messages) if message.role == "assistant"), default=0)
    return next((at for at in _pending(messages) if at >= newest_answer), len(messages))


def legal_cut_before(messages: Sequence[Message], position: int) -> int:
    """Return the last cut at or before *position* that parts no call from its result; 0 if there is none."""
    spans = pair_spans(messages)
    cuts = range(min(position, len(messages)), 0, -1)
    return next((cut for cut in cuts if not any(start < cut <= end for start, end in spans)), 0)


def legal_cuts(messages: Sequence[Message], *, hold_pending: bool = True) -> list[int]:
    """Return how many of the oldest messages may be archived, ascending; never all messages.

    With *hold_pending*, a call without a result is kept while one may still come, that is, until a user speaks.
    """
    spans = pair_spans(messages)
    if hold_pending:
        spans += [(position, len(messages)) for position in _pending(messages)]
    blocked = [0] * (len(messages) + 2)
    for start, end in spans:
        blocked[start + 1] += 1
        blocked[end + 1] -= 1
    return [cut for cut, depth in enumerate(accumulate(blocked)) if 0 < cut < len(messages) and not depth]


def pair_spans(messages: Sequence[Message]) -> list[tuple[int, int]]:
    """Return the positions of each call and its result, for pairs in different messages.

    A result belongs to the nearest earlier call of its id that has none yet. In recorded sessions ids repeat or are
    empty, answers come late, and some results belong to no call.
    """
    waiting: dict[str, list[int]] = {}
    spans: list[tuple[int, int]] = []
    for position, message in enumerate(messages):
        for call_id in _ids(message, of_results=False):
            waiting.setdefault(call_id, []).append(position)
        spans += [(calls.pop(), position) for one in _ids(message, of_results=True) if (calls := waiting.get(one))]
    return [(start, end) for start, end in spans if start != end]


def _pending(messages: Sequence[Message]) -> list[int]:
    waiting: dict[str, list[int]] = {}
    for position, message in enumerate(messages):
        if message.role == "user" and any(isinstance(p, Text) and not isinstance(p, Note) for p in message.parts):
            waiting.clear()
        for call_id in _ids(message, of_results=False):
            waiting.setdefault(call_id, []).append(position)
        for call_id in _ids(message, of_results=True):
            if calls := waiting.get(call_id):
                calls.pop()
    return sorted({position for calls in waiting.values() for position in calls})


def _ids(message: Message, *, of_results: bool) -> Iterator[str]:
    """Yield the ids of the calls in *message*, or of the results, those of a provider's own tools included.

    Such a tool may call other tools while it runs; its result comes some messages later.
    """
    yield from (part.call_id for part in (message.results if of_results else message.calls))
    for part in message.parts:
        if isinstance(part, Opaque) and part.call_id and part.kind.endswith("tool_result") is of_results:
            yield part.call_id
