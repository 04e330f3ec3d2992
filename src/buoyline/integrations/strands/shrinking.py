"""Making the tool results that stay in a history smaller: whole in the workspace, a stub in their place."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from buoyline.integrations.strands.history import DIALECT, NativeMessage
from buoyline.messages import Message, Text
from buoyline.offloader import Offloader, StoredResult, abilities_of
from buoyline.tokens import TextCounter
from buoyline.tokens.messages import count_result
from buoyline.window.choosing import WORTH_OFFLOADING_TOKENS, Choice
from buoyline.window.entry import Entry, entry_beside
from buoyline.window.offloading import ResultOffloading

_STUB_TOKENS: Final = 250
"""As little as shows where a result is and how it begins and ends: the provider has refused what there was. Of a result
that is smaller than twice that, half."""


class Shrinking:
    """Shrinks results of one history, as far as is asked for. The history itself is not touched."""

    def __init__(
        self, offloader: Offloader, session_id: str, counter: TextCounter, stubs: Mapping[str, StoredResult]
    ) -> None:
        """Store whole results with *offloader*; *stubs* are the texts that stand for stored ones already."""
        self._counter = counter
        self._results = ResultOffloading(
            offloader, abilities_of(offloader), session_id, counter, None, tools={}, stubs=dict(stubs)
        )

    async def shrunk(
        self, messages: Mapping[int, NativeMessage], calls: Iterable[Message], wanted_tokens: int
    ) -> tuple[dict[int, NativeMessage], int]:
        """Return messages with smaller results, by position, and how many tokens they are less.

        Args:
            messages: Those that may shrink, by position, the first to shrink first.
            calls: Views of the history, for the names of the tools.
            wanted_tokens: Enough: the others stay as they are.

        Raises:
            StorageError: The file system refused; what was stored before stays stored.
        """
        self._results.tools.update((call.call_id, call.name) for view in calls for call in view.calls)
        found: dict[int, NativeMessage] = {}
        gained = 0
        for position, message in messages.items():
            if gained >= wanted_tokens:
                break
            entry = await entry_beside(message, position, self._counter, dialect=DIALECT)
            smaller = await self._smaller(entry)
            if smaller.tokens < entry.tokens:
                found[position] = smaller.native
                gained += entry.tokens - smaller.tokens
        return found, gained

    async def _smaller(self, entry: Entry) -> Entry:
        choices = {
            number: Choice(result.name or self._results.tools.get(result.call_id, ""), _stub_tokens(tokens))
            for number, result in enumerate(entry.message.results)
            if (tokens := count_result(result, self._counter)) > WORTH_OFFLOADING_TOKENS
            and not self._is_stub(result.parts)
        }
        if choices:
            return await self._results.replace(entry, choices)
        return await self._results.shrink(entry)

    def _is_stub(self, parts: Iterable[Any]) -> bool:
        return all(isinstance(part, Text) and part.text in self._results.stubs for part in parts)


def _stub_tokens(tokens: int) -> int:
    return min(_STUB_TOKENS, max(tokens // 2, WORTH_OFFLOADING_TOKENS))
