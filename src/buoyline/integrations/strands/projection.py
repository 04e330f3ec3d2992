"""How many tokens the next model call will take, also right after a history became smaller.

Strands projects them from the usage that stands at the last answer. That usage is of the context as it was; once
messages have left, it is too high, and a history would be compressed again and again for nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from buoyline.integrations.strands.history import NativeMessage, durable_key, key_of

Count: TypeAlias = Callable[[Sequence[NativeMessage]], int]
"""Counts the tokens of a request with these messages, system prompt and tools included."""

_LEAST_SCALE: Final = 0.25
_MOST_SCALE: Final = 4.0
"""Beyond these a provider's number is that of something else, and one request must not decide about all others."""


@dataclass(slots=True)
class Projection:
    """What is known of the usage that stands in a history.

    Attributes:
        stale: The answer whose usage is of a context that is no more; None where the newest usage holds.
        scale: How many tokens of the provider's one of ours is.
    """

    stale: str | None = None
    scale: float = 1.0

    def tokens(self, messages: Sequence[NativeMessage], projected: int, count: Count) -> int:
        """Return the tokens of the next call, of which Strands thinks that they are *projected*.

        A usage of no input stands for no usage: Strands takes it for its baseline, and would count only what is new.
        """
        answer = last_answer(messages)
        if answer is not None and not _has_input(messages[answer]["metadata"]["usage"]):
            return max(projected, int(self.scale * count(messages)))
        if answer is None or key_of(messages[answer]) != self.stale:
            return projected
        return min(projected, int(self.scale * count(messages)))

    def outdated(self, messages: Sequence[NativeMessage], cut: int, count: Count) -> "Projection":
        """Return what is known once the oldest *cut* of *messages*, or something in them, have left."""
        answer = last_answer(messages)
        if answer is None or not _has_input(messages[answer]["metadata"]["usage"]):
            return Projection(None, self.scale)
        scale, key = self.scale, durable_key(messages[answer])
        if key != self.stale:
            ratio = _total(messages[answer]["metadata"]["usage"]) / max(count(messages[: answer + 1]), 1)
            scale = min(max(ratio, _LEAST_SCALE), _MOST_SCALE)
        return Projection(key if answer >= cut else None, scale)

    def to_json(self) -> dict[str, Any]:
        """Return what another process needs to go on."""
        return {"stale": self.stale, "scale": self.scale}


def projection_from(state: Mapping[str, Any]) -> Projection:
    """Read what `Projection.to_json` gave."""
    return Projection(state["stale"], float(state["scale"]))


def last_answer(messages: Sequence[Mapping[str, Any]]) -> int | None:
    """Return where the last answer stands that says what it has used."""
    for place in range(len(messages) - 1, -1, -1):
        metadata: Mapping[str, Any] = messages[place].get("metadata") or {}
        if messages[place].get("role") == "assistant" and metadata.get("usage"):
            return place
    return None


def _has_input(usage: Mapping[str, Any]) -> bool:
    names = ("inputTokens", "cacheReadInputTokens", "cacheWriteInputTokens")
    return any(int(usage.get(name) or 0) > 0 for name in names)


def _total(usage: Mapping[str, Any]) -> int:
    """Return what a request and its answer took.

    Source: Strands' own reading: cached tokens are beside the input where input and output are not the total already.
    """
    taken = int(usage["inputTokens"]) + int(usage["outputTokens"])
    if taken == usage.get("totalTokens"):
        return taken
    return taken + int(usage.get("cacheReadInputTokens") or 0) + int(usage.get("cacheWriteInputTokens") or 0)
