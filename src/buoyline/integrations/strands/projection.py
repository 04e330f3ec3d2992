"""The tokens of the next model call, by the provider's usage of the last one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from buoyline.integrations.strands.history import NativeMessage, durable_key, key_of

_LEAST_SCALE: Final = 0.25
_MOST_SCALE: Final = 4.0
"""A provider's number beyond these is that of something else. One request must not decide about all others."""


@dataclass(frozen=True, slots=True)
class Projection:
    """The tokens of the next model call, also right after a history became smaller.

    Strands adds new messages to the usage at the last answer. That usage is of the context as it was: after an eviction
    it is too high, and the history would be compacted again and again for nothing.

    Attributes:
        stale: Id of the answer whose usage is of an earlier context; None if the newest usage counts.
        scale: Provider's tokens for one of ours.
    """

    stale: str | None = None
    scale: float = 1.0

    def tokens(self, messages: Sequence[NativeMessage], projected: int | None, counted: int) -> int:
        """Return the tokens of the next call.

        A usage without input is ignored: Strands takes it as its baseline, and would count only the new messages.

        Args:
            messages: The history.
            projected: Strands' number; None if it has none.
            counted: Our own count of the request.
        """
        if projected is None:
            return counted
        answer = _last_answer(messages)
        if answer is not None and not _has_input(messages[answer]["metadata"]["usage"]):
            return max(projected, int(self.scale * counted))
        if answer is None or key_of(messages[answer]) != self.stale:
            return projected
        return min(projected, int(self.scale * counted))

    def outdated(self, messages: Sequence[NativeMessage], cut: int, counts: Sequence[int], fixed: int) -> "Projection":
        """Return the projection after an eviction, or after results became smaller.

        Args:
            messages: The history before.
            cut: How many of the oldest are evicted.
            counts: Our own count of each message.
            fixed: Our own count of system prompt and tools.
        """
        answer = _last_answer(messages)
        if answer is None or not _has_input(messages[answer]["metadata"]["usage"]):
            return Projection(None, self.scale)
        scale, key = self.scale, durable_key(messages[answer])
        if key != self.stale:
            ratio = _total(messages[answer]["metadata"]["usage"]) / max(fixed + sum(counts[: answer + 1]), 1)
            scale = min(max(ratio, _LEAST_SCALE), _MOST_SCALE)
        return Projection(key if answer >= cut else None, scale)


def _last_answer(messages: Sequence[Mapping[str, Any]]) -> int | None:
    """Return the position of the last answer with a usage."""
    for position in range(len(messages) - 1, -1, -1):
        metadata: Mapping[str, Any] = messages[position].get("metadata") or {}
        if messages[position].get("role") == "assistant" and metadata.get("usage"):
            return position
    return None


def _has_input(usage: Mapping[str, Any]) -> bool:
    names = ("inputTokens", "cacheReadInputTokens", "cacheWriteInputTokens")
    return any(int(usage.get(name) or 0) > 0 for name in names)


def _total(usage: Mapping[str, Any]) -> int:
    """Return the tokens of a request and its answer.

    Source: Strands' own reading. Cached tokens are added unless input and output are the total already.
    """
    taken = int(usage["inputTokens"]) + int(usage["outputTokens"])
    if taken == usage.get("totalTokens"):
        return taken
    return taken + int(usage.get("cacheReadInputTokens") or 0) + int(usage.get("cacheWriteInputTokens") or 0)
