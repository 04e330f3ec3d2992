"""An agent's history and the window that manages it, kept in step."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from buoyline.compression import summary_from
from buoyline.errors import StaleWindowError, UsageError
from buoyline.integrations.strands.history import NativeMessage, durable_key
from buoyline.integrations.strands.turns import Shown, Standing, shown_as
from buoyline.window.adopting import HeldContext, HeldWindow

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class WindowedHistory:
    """What a window says is written into a history; what is new in the history is told to the window.

    The history is somebody else's: it is looked at anew each time, and where it is no longer what the window has made
    of it, since a guardrail has redacted a message or a graph has reset its agents, a new window takes it over.

    Attributes:
        held: The context as it was shown last, without its messages.
        shown: How it stands in the history, without its messages.
        window: Manages it; None before the first call.
        is_settled: The history is what the window has said last, and nothing was added since.
    """

    held: HeldContext = field(default_factory=HeldContext)
    shown: Shown = field(default_factory=Shown)
    window: HeldWindow | None = None
    is_settled: bool = False
    _known: list[tuple[NativeMessage, Any]] = field(default_factory=list[tuple[NativeMessage, Any]])
    _end: int = 0

    async def follow(self, history: Sequence[NativeMessage], made: Callable[[], HeldWindow]) -> HeldWindow:
        """Return the window, which knows all of *history* now.

        Args:
            history: The agent's.
            made: Makes a window for the session, where there is none or where *history* is no longer that of the last.

        Raises:
            BuoylineError: The offloader refused.
        """
        found = [(message, message.get("content")) for message in history]
        window = self.window
        if window is None or not _begins_with(found, self._known):
            window = await self._adopted(history, made())
        for message, content in found[len(self._known) :]:
            durable_key(message)
            _note_usage(window, message)
            await window.add(message)
            self._known.append((message, content))
            self.is_settled = False
        return window

    def show(self, history: list[NativeMessage]) -> int:
        """Write what the window says into *history*.

        Returns:
            How many messages of the agent's have left the history since the last time.

        Raises:
            StaleWindowError: Somebody has changed it meanwhile.
        """
        if self.window is None:
            return 0
        known = len(self._known)
        if not _begins_with([(message, message.get("content")) for message in history], self._known):
            raise StaleWindowError(
                self.window.session_id,
                "the history was changed while it was managed",
                "it is as whoever changed it has left it; the next model call tries again",
            )
        held = self.window.held
        shown = shown_as(held, self.shown)
        history[:known] = shown.history()
        self._known = [(message, message.get("content")) for message in shown.history()]
        left = held.first + shown.taken - self._end
        self._end += left
        self.held, self.shown = replace(held, messages=()), replace(shown, messages=())
        self.is_settled = True
        return left

    def begin(self, held: HeldContext, opening: NativeMessage | None = None) -> list[NativeMessage]:
        """Begin with *held*, and return the history that it makes; see `shown_as` for *opening*."""
        self.shown = shown_as(held, opening=opening)
        self.held = replace(held, messages=())
        return self.shown.history()

    def to_json(self) -> dict[str, Any]:
        """Return what another process needs to go on, as a JSON object (payloads of messages apart)."""
        held, head = self.held, self.shown.head
        return {
            "head": [[kind, native] for kind, native in held.head],
            "taken": [native for one in head[-1:] for _, native in one.parts[-1:]] if self.shown.taken else [],
            "opening": self.shown.opening,
            "keys": [durable_key(one.message) for one in head],
            "first": held.first,
            "pins": list(held.pins),
            "summary": None if held.summary is None else held.summary.to_json(),
        }

    def restore(self, state: Mapping[str, Any]) -> list[NativeMessage]:
        """Go on from what `to_json` gave, and return what stands in the history before the agent's messages."""
        summary = state["summary"]
        held = HeldContext(
            [(kind, native) for kind, native in state["head"]],
            state["taken"],
            state["first"],
            state["pins"],
            None if summary is None else summary_from(summary),
        )
        self.window, self._known = None, []
        self.begin(held, state["opening"])
        for one, key in zip(self.shown.head, state["keys"], strict=False):
            one.message["tracking_id"] = key
        return [one.message for one in self.shown.head]

    async def _adopted(self, history: Sequence[NativeMessage], window: HeldWindow) -> HeldWindow:
        """Let a new *window* take *history* over, up to the model's last message; what follows is new to it."""
        standing = self._still_standing(history)
        numbers = {number for one in standing for number, _ in one.parts if number >= 0}
        has_taken = self.shown.taken and len(standing) == len(self.shown.head)
        taken = [standing[-1].parts[-1][1]] if has_taken else []
        end = max((place for place, message in enumerate(history, 1) if message["role"] == "assistant"), default=0)
        end = max(end, len(standing))
        held = replace(
            self.held,
            head=[one for number, one in enumerate(self.held.head) if number in numbers],
            messages=[*taken, *history[len(standing) : end]],
            pins=_pins_of(self.held, numbers),
        )
        for message in history[:end]:
            durable_key(message)
        first = await window.adopt(held, _key_of)
        self.window, self.is_settled = window, False
        self._known = [(message, message.get("content")) for message in history[:end]]
        self._end = first + len(taken)
        return window

    def _still_standing(self, history: Sequence[NativeMessage]) -> Sequence[Standing]:
        """Return those of the head that stand at the beginning of *history*, as they were put there."""
        head = self.shown.head
        pairs = zip(head, history, strict=False)
        same = [
            _key_of(one.message) == _key_of(message) and one.message["content"] == message.get("content")
            for one, message in pairs
        ]
        return head[: (*same, False).index(False)]


def _pins_of(held: HeldContext, numbers: set[int]) -> list[int]:
    """Return the session indexes of the pins of *held*, as far as those in the head are among *numbers*."""
    places = [number for number, (kind, _) in enumerate(held.head) if kind == "pin"]
    in_head = [pin for number, pin in zip(places, held.pins, strict=False) if number in numbers]
    return [*in_head, *held.pins[len(places) :]]


def _note_usage(window: HeldWindow, message: NativeMessage) -> None:
    metadata: Mapping[str, Any] = message.get("metadata") or {}
    if message.get("role") != "assistant" or not metadata.get("usage"):
        return
    try:
        window.note_usage(metadata["usage"])
    except UsageError as error:
        logger.debug("session %s: the usage at an answer is passed over: %s", window.session_id, error)


def _key_of(message: Mapping[str, Any]) -> str:
    return str(message.get("tracking_id") or "")


def _begins_with(found: Sequence[tuple[Any, Any]], known: Sequence[tuple[Any, Any]]) -> bool:
    return len(found) >= len(known) and all(
        one is other and content is kept for (one, content), (other, kept) in zip(found, known, strict=False)
    )
