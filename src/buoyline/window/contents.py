"""The messages in a window behind its head, with their totals kept up to date."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from buoyline.messages import ToolCall
from buoyline.window.entry import Entry


class Contents:
    """Messages in order, and what they take together.

    The totals are carried along instead of added up, and so are the native messages: before each of 10,000 turns a
    walk over all messages would cost what the whole session costs, squared.
    """

    def __init__(self, entries: Sequence[Entry] = (), first: int = 0) -> None:
        """Hold *entries*, of which the first has the session index *first*.

        How many of the model's messages have left, `answers_left`, is counted from there on; `answers` are those that
        are here.
        """
        self.first = first
        self.answers_left = 0
        self.tokens = 0
        self.staying_tokens = 0
        self.images = 0
        self.answers = 0
        self._entries: list[Entry] = []
        self._natives: list[Any] = []
        for entry in entries:
            self.append(entry)

    def __len__(self) -> int:
        """Return the number of messages."""
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        """Iterate over the messages in order."""
        return iter(self._entries)

    def __getitem__(self, position: int) -> Entry:
        """Return the message at *position*, 0-based."""
        return self._entries[position]

    @property
    def end(self) -> int:
        """The session index that the next message gets."""
        return self.first + len(self._entries)

    @property
    def natives(self) -> Sequence[Any]:
        """The native messages in order; to be copied, not to be kept."""
        return self._natives

    def answer_tokens(self, index: int | None) -> int:
        """Return what the assistant's message with the session *index* takes; 0 where there is none."""
        if index is None or not self.first <= index < self.end:
            return 0
        entry = self[index - self.first]
        return entry.tokens if entry.message.role == "assistant" else 0

    def since(self, position: int, end: int | None = None) -> list[Entry]:
        """Return the messages from *position* on, up to *end* where one is given."""
        return self._entries[position:end]

    def until(self, position: int) -> list[Entry]:
        """Return the messages before *position*."""
        return self._entries[:position]

    def turn_at(self, position: int) -> int:
        """Return the position behind the model's last message before *position*: what follows answers its calls.

        Where that message holds results itself, as AgentScope's replies do, it is its own position.
        """
        while position > 0 and self._entries[position - 1].message.role != "assistant":
            position -= 1
        return position - 1 if position > 0 and self._entries[position - 1].message.results else position

    def call(self, call_id: str) -> tuple[str, ToolCall] | None:
        """Return the newest call of this id, with the dialect of its message; None where it is not here."""
        for entry in reversed(self._entries):
            for call in entry.message.calls:
                if call.call_id == call_id:
                    return entry.dialect, call
        return None

    def called(self, call_id: str, name: str, dialect: str) -> tuple[str, ToolCall]:
        """Return the call that an output answers, with the dialect of its message.

        Args:
            call_id: Of the call.
            name: Of the tool; counts more than the call's own.
            dialect: Where the call is not here.
        """
        named, call = self.call(call_id) or (dialect, ToolCall(call_id, "", ""))
        return named, ToolCall(call_id, name or call.name, call.arguments)

    def append(self, entry: Entry) -> None:
        """Take a message to the end."""
        self._entries.append(entry)
        self._natives.append(entry.native)
        self._count(entry, 1)

    def replace(self, position: int, entry: Entry) -> None:
        """Put another form of the message at *position*."""
        self._count(self._entries[position], -1)
        self._entries[position] = entry
        self._natives[position] = entry.native
        self._count(entry, 1)

    @contextmanager
    def unchanged_on_failure(self, first: int, end: int) -> Generator[None]:
        """Put the messages from position *first* up to *end* back as they were where the block fails."""
        before = self._entries[first:end]
        try:
            yield
        except BaseException:
            for position, entry in enumerate(before, first):
                self.replace(position, entry)
            raise

    def leave(self, cut: int) -> None:
        """Drop the oldest *cut* messages."""
        for entry in self._entries[:cut]:
            self._count(entry, -1)
            self.answers_left += entry.message.role == "assistant"
        del self._entries[:cut]
        del self._natives[:cut]
        self.first += cut

    def _count(self, entry: Entry, sign: int) -> None:
        self.tokens += sign * entry.tokens
        self.images += sign * entry.images
        self.answers += sign * (entry.message.role == "assistant")
        if entry.stays:
            self.staying_tokens += sign * entry.tokens
