"""A summary as it stands in ``summaries.jsonl``. Source: docs/format.md, "summaries.jsonl"."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from buoyline.compression.summary import BatchReference, Draft, Item, Pointer


@dataclass(frozen=True, slots=True)
class Summary:
    """What stands in the context for messages that left it.

    Attributes:
        number: Position among the session's summaries, counted from 1; 0 without a log.
        messages: Index of the first message that it replaced, and index behind the last, over the session.
        draft: Its fields, pointers and facts.
        unverified: Claims found nowhere in the archive, which are marked in the text; behind them the citations that
            were taken out, as ``path:start-end``, since their lines are not there or do not hold what was said.
        source_tokens: What the messages took.
        tokens: What the text takes.
        text: What the model sees.
        created_at: ISO 8601, UTC.
        fell_back: Why another summariser than the one that was given wrote it; empty where it did not.
    """

    number: int
    messages: tuple[int, int]
    draft: Draft
    unverified: tuple[str, ...]
    source_tokens: int
    tokens: int
    text: str
    created_at: str
    fell_back: str = ""

    def numbered(self, number: int) -> "Summary":
        """Return the same summary under *number*."""
        return replace(self, number=number)

    def to_json(self) -> dict[str, Any]:
        """Return the line of ``summaries.jsonl`` as a JSON object."""
        return {
            "n": self.number,
            "messages": list(self.messages),
            "summarizer": self.draft.summarizer,
            "fields": dict(self.draft.fields),
            "pointers": [asdict(pointer) for pointer in self.draft.pointers],
            "unverified": list(self.unverified),
            "source_tokens": self.source_tokens,
            "tokens": self.tokens,
            "text": self.text,
            "created_at": self.created_at,
            "items": [_item_json(item) for item in self.draft.items],
            **({"fell_back": self.fell_back} if self.fell_back else {}),
            **({"batches": [list(batch) for batch in self.draft.batches]} if self.draft.batches else {}),
        }


def summary_from(line: Mapping[str, Any]) -> Summary:
    """Read a line of ``summaries.jsonl``; keys that are not known are ignored.

    Raises:
        KeyError: A key that every summary has is missing.
    """
    pointers = tuple(_pointer(found) for found in line["pointers"])
    items = tuple(_item(found) for found in line.get("items", ()))
    batches = tuple(BatchReference(*batch) for batch in line.get("batches", ()))
    return Summary(
        number=line["n"],
        messages=(line["messages"][0], line["messages"][1]),
        draft=Draft(line["summarizer"], dict(line["fields"]), pointers, items, batches),
        unverified=tuple(line["unverified"]),
        source_tokens=line["source_tokens"],
        tokens=line["tokens"],
        text=line["text"],
        created_at=line["created_at"],
        fell_back=line.get("fell_back", ""),
    )


def _pointer(found: Mapping[str, Any]) -> Pointer:
    return Pointer(found["path"], found["start"], found["end"])


def _item_json(item: Item) -> dict[str, Any]:
    """Return an item as JSON; only one that the summary does not say has the key ``shown``."""
    found = asdict(item)
    return found if found.pop("is_shown") else {**found, "shown": False}


def _item(found: Mapping[str, Any]) -> Item:
    pointer = found["pointer"]
    return Item(
        field=found["field"],
        kind=found["kind"],
        text=found["text"],
        pointer=None if pointer is None else _pointer(pointer),
        last_seen=found["last_seen"],
        count=found["count"],
        weight=found["weight"],
        order=found.get("order", 0),
        also=tuple(_pointer(pointer) for pointer in found.get("also", ())),
        is_shown=found.get("shown", True),
    )
