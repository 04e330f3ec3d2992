"""What stands in a window, and what it takes."""

from dataclasses import dataclass, field
from typing import Any

from buoyline.compression import Summary
from buoyline.compression.summary import BatchReference
from buoyline.messages import spell
from buoyline.tokens import TextCounter
from buoyline.tokens.messages import count_tools
from buoyline.window.contents import Contents
from buoyline.window.entry import Entry


@dataclass(slots=True)
class Context:
    """System prompt, tools, head, summary and messages of a session, and how far each of them has come.

    Attributes:
        system: As the provider gets it, beside the messages.
        tools: Definitions of the tools.
        counter: Counts.
        head: System messages and pins that are archived.
        summary: Stands for the messages that are archived; as a message, and with all that is known of it.
        notice: Says where messages are that left without a summary.
        again: Archived messages that stand for now, such as the user's newest words; only a document has them stay.
        contents: The messages that are not.
        pins: Session indexes of pinned messages.
        settled: How many of `contents` have the form that they keep, and are written down.
        archived: Up to this session index the archive holds the messages.
        attempts: Up to these it was tried, and it is not known whether the archive holds them.
        batches: Where the archived messages are, with an offloader that answers each batch with its own reference.
    """

    system: Any
    tools: list[Any]
    counter: TextCounter
    head: Contents = field(default_factory=Contents)
    summary: tuple[Entry, Summary] | None = None
    notice: Entry | None = None
    again: Contents = field(default_factory=Contents)
    contents: Contents = field(default_factory=Contents)
    pins: list[int] = field(default_factory=list[int])
    settled: int = 0
    archived: int = 0
    attempts: set[int] = field(default_factory=set[int])
    batches: tuple[BatchReference, ...] = ()
    _fixed_tokens: int | None = None

    def send_beside(self, system: Any, tools: list[Any]) -> None:
        """Take note that another system prompt, or other tools, are sent from now on."""
        if (system, tools) != (self.system, self.tools):
            self.system, self.tools, self._fixed_tokens = system, tools, None

    def standing(self) -> list[Entry]:
        """Return what stands before the messages: the head, the summary, the notice, and what stands for now."""
        return [*self.head, *self._ours(), *self.again]

    def fixed_tokens(self) -> int:
        """Return what system prompt and tools take; counted once."""
        if self._fixed_tokens is None:
            system = self.system if isinstance(self.system, str) else spell(self.system)
            self._fixed_tokens = self.counter.count(system) + count_tools(self.tools, self.counter)
        return self._fixed_tokens

    def tokens(self) -> int:
        """Return what everything takes."""
        return self.fixed_tokens() + self.standing_tokens() + self.contents.tokens

    def standing_tokens(self) -> int:
        """Return what takes what stands before the messages."""
        return self.head.tokens + sum(entry.tokens for entry in self._ours()) + self.again.tokens

    @property
    def attempted(self) -> int:
        """Up to which session index messages stay as they are, since they are archived, or that may be repeated."""
        return max(self.archived, *self.attempts, 0)

    @property
    def images(self) -> int:
        """How many pictures stand in the messages."""
        return self.head.images + self.again.images + self.contents.images

    def least_tokens(self) -> int:
        """Return what takes its room however much is archived."""
        return self.fixed_tokens() + self.head.tokens + self.contents.staying_tokens

    def turn(self) -> list[Entry]:
        """Return the messages since the model spoke last."""
        return self.contents.since(self.contents.turn_at(len(self.contents)))

    def movable(self) -> range:
        """Return the positions in `contents` that are written down, and whose form may still change."""
        return range(self.attempted - self.contents.first, self.settled)

    def written(self) -> list[Entry]:
        """Return the messages that are written down; those that were added since are not."""
        return self.contents.until(self.settled)

    def pins_until(self, position: int) -> list[int]:
        """Return the session indexes of the pinned messages before *position* in `contents`."""
        return [pin for pin in self.pins if pin < self.contents.first + position]

    def exceeding(self, size: int) -> list[tuple[int, int]]:
        """Return index and tokens of each message that alone does not fit *size* beside what must stand.

        Where each of them does, it is the largest.
        """
        room = size - (self.tokens() - self.contents.tokens - self.again.tokens)
        movable = [*self.again, *self.contents]
        found = [(entry.index, entry.tokens) for entry in movable if entry.tokens > room]
        largest = max(movable, key=lambda entry: entry.tokens, default=None)
        return found or ([] if largest is None else [(largest.index, largest.tokens)])

    def _ours(self) -> list[Entry]:
        found = (self.summary[0] if self.summary else None, self.notice)
        return [entry for entry in found if entry is not None]
