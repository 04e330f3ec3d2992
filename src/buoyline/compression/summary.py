"""What a summary is made of, and what a summarizer takes and returns."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from buoyline.compression.pointers import Pointer
from buoyline.compression.work_state import WorkState, work_state_from
from buoyline.errors import SummaryError
from buoyline.messages import Message
from buoyline.tokens import TextCounter

RULES_FIELD: Final = "context_to_preserve"
"""The field of the user's rules."""

FEW_FACTS: Final = 60
"""So many facts that a summary does not say, the most needed, are kept where room is short."""

FIELDS = ("task_overview", "current_state", "important_discoveries", "next_steps", "context_to_preserve")
"""The five fields of a summary, in reading order. Source: AgentScope's `ContextConfig`."""


@dataclass(frozen=True, slots=True)
class ResultExcerpt:
    """The lines of an offloaded tool result that its stub shows.

    Attributes:
        path: File whose lines are counted, relative to the session's directory; empty without files.
        lines: Number and text of each line, in order; empty for a stub without a preview.
        stub: Text of the stub, which tells its block from the others of the result.
    """

    path: str
    lines: tuple[tuple[int, str], ...]
    stub: str = ""


@dataclass(frozen=True, slots=True)
class SourceMessage:
    """One archived message as a summarizer sees it, with its session index.

    Attributes:
        message: An offloaded tool result reads as its stub.
        pointer: Its lines in the transcript; None with an offloader that knows no lines.
        excerpts: The stub's lines for each of its tool results, None for a whole one; empty if all are whole.
        lines: The transcript's lines that *pointer* names, so that some of them can be cited; empty if not known, and
            then the whole message is cited.
    """

    index: int
    message: Message
    pointer: Pointer | None = None
    excerpts: tuple[ResultExcerpt | None, ...] = ()
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact of a summary, kept apart from the prose so that the next summary can carry it on.

    Attributes:
        field: The field of the summary that says it.
        kind: For example ``"request"``, ``"changed"``, ``"error"``, ``"finding"``.
        text: As in the summary, without its pointer.
        pointer: Lines that back it; None if there are none.
        last_seen: Session index of the newest of the *count* messages that hold it.
        weight: How likely it is needed again; only comparable within a kind.
        order: Position among the facts of one message.
        also: Further lines that back it: a call and its result may be far apart or in two files.
        is_shown: The summary says it. If not, it lacked room, and the next summary may say it.
    """

    field: str
    kind: str
    text: str
    pointer: Pointer | None
    last_seen: int
    count: int = 1
    weight: float = 1.0
    order: int = 0
    also: tuple[Pointer, ...] = ()
    is_shown: bool = True

    @property
    def pointers(self) -> tuple[Pointer, ...]:
        """All lines that back it, in reading order."""
        return () if self.pointer is None else (self.pointer, *self.also)


class BatchReference(NamedTuple):
    """Messages that an offloader without line ranges took in one call, by session index, and its answer.

    *end* is behind the last message.
    """

    first: int
    end: int
    reference: str


@dataclass(frozen=True, slots=True)
class Draft:
    """What a summarizer returns.

    Attributes:
        summarizer: Its name, e.g. ``"extractive"``.
        fields: Text of each requested field; sentences cite the archive as ``[path:start-end]``.
        pointers: Those in the text, in reading order, each once.
        items: Facts for the next summary, most needed first; empty from most model summarizers.
        batches: Where all summarized messages are; empty if one transcript holds them. The compressor sets it.
        work: The state of the work behind the messages, which the next summary continues; None from most summarizers.
    """

    summarizer: str
    fields: Mapping[str, str]
    pointers: tuple[Pointer, ...] = ()
    items: tuple[Fact, ...] = ()
    batches: tuple[BatchReference, ...] = ()
    work: WorkState | None = None


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    """What a summarizer is asked.

    Attributes:
        sources: The archived messages, in order; never empty.
        previous: The draft that is replaced; None the first time.
        max_tokens: Of the text of all fields together, by *counter*.
        fields: Those requested, in order.
        focus: What the caller wants kept above all; may be empty.
        prompt: Instruction for a model.
        schema: JSON Schema of a model's answer.
        state: The state of the work in lines with citations, to complete and not to contradict.
    """

    sources: Sequence[SourceMessage]
    previous: Draft | None
    max_tokens: int
    counter: TextCounter
    fields: tuple[str, ...] = FIELDS
    focus: str = ""
    prompt: str = ""
    schema: Mapping[str, object] = field(default_factory=dict[str, object])
    state: str = ""


class Summarizer(Protocol):
    """Turns archived messages into the fields of a summary."""

    async def summarize(self, request: SummaryRequest) -> Draft:
        """Return a draft; raise `SummaryError`, or any error of the model behind it, if there is none."""
        ...


def require_draft(answer: object) -> Draft:
    """Return *answer* if it and all its parts have the right types: a summarizer may be anybody's code.

    Raises:
        SummaryError: It or a part of it is something else.
    """
    if not isinstance(answer, Draft):
        raise SummaryError("the summariser", f"answered with {type(answer).__name__}, not with a Draft")
    _require_types("the summarizer", [(answer.summarizer, str)])
    work = [] if answer.work is None else [(answer.work, WorkState)]
    whole = [(answer.fields, Mapping), (answer.pointers, Sequence), (answer.items, Sequence), *work]
    _require_types(answer.summarizer, whole)
    texts = [(text, str) for pair in answer.fields.items() for text in pair]
    pointers, items = [(one, Pointer) for one in answer.pointers], [(one, Fact) for one in answer.items]
    _require_types(answer.summarizer, [*texts, *pointers, *items])
    return answer


def _require_types(summarizer: str, parts: Iterable[tuple[object, type]]) -> None:
    for part, kind in parts:
        if not isinstance(part, kind):
            raise SummaryError(summarizer, f"holds {type(part).__name__} where {kind.__name__} is expected")


# A summary as JSON. Source: docs/format.md, "summaries.jsonl" and "facts-<n>.jsonl".


@dataclass(frozen=True, slots=True)
class Summary:
    """The summary that replaces archived messages in the context.

    Attributes:
        number: Position among the session's summaries, from 1; 0 without a log.
        messages: Session index of the first replaced message, and behind the last.
        unverified: Claims that were found nowhere, which the text marks; then the citations that were removed, as
            ``path:start-end``, because their lines do not exist or do not back the sentence.
        source_tokens: Of the messages.
        tokens: Of the text.
        text: What the model sees.
        created_at: ISO 8601, UTC.
        fell_back: Why the extractive summarizer wrote it in place of the given one; else empty.
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

    def without_facts(self) -> "Summary":
        """Return the same summary as people read it, without what only the next summary needs."""
        return replace(self, draft=replace(self.draft, items=(), work=None))

    def with_few_facts(self) -> "Summary":
        """Return the same summary with the facts that it says and the most needed others.

        For a place that is written at each step, such as the state of an agent: it stays small.
        """
        kept = {id(item) for item in [item for item in self.draft.items if not item.is_shown][:FEW_FACTS]}
        items = tuple(item for item in self.draft.items if item.is_shown or id(item) in kept)
        return replace(self, draft=replace(self.draft, items=items))

    def to_json(self) -> dict[str, Any]:
        """Return the whole summary as a JSON object, as `SummaryLog` takes it; `summary_from` reads it."""
        return {
            "n": self.number,
            "messages": list(self.messages),
            "summarizer": self.draft.summarizer,
            "fields": dict(self.draft.fields),
            "pointers": [_pointer_json(pointer) for pointer in self.draft.pointers],
            "unverified": list(self.unverified),
            "source_tokens": self.source_tokens,
            "tokens": self.tokens,
            "text": self.text,
            "created_at": self.created_at,
            "items": [_item_json(item) for item in self.draft.items],
            **({"fell_back": self.fell_back} if self.fell_back else {}),
            **({"batches": [list(batch) for batch in self.draft.batches]} if self.draft.batches else {}),
            **({"work": self.draft.work.to_json()} if self.draft.work is not None else {}),
        }


def summary_from(line: Mapping[str, Any]) -> Summary:
    """Read a line of ``summaries.jsonl``; unknown keys are ignored.

    Raises:
        KeyError: A key that every summary has is missing.
    """
    pointers = tuple(_pointer(found) for found in line["pointers"])
    items = tuple(_item(found) for found in line.get("items", ()))
    batches = tuple(BatchReference(*batch) for batch in line.get("batches", ()))
    work = work_state_from(line["work"]) if "work" in line else None
    return Summary(
        number=line["n"],
        messages=(line["messages"][0], line["messages"][1]),
        draft=Draft(line["summarizer"], dict(line["fields"]), pointers, items, batches, work),
        unverified=tuple(line["unverified"]),
        source_tokens=line["source_tokens"],
        tokens=line["tokens"],
        text=line["text"],
        created_at=line["created_at"],
        fell_back=line.get("fell_back", ""),
    )


def _pointer(found: Mapping[str, Any]) -> Pointer:
    return Pointer(found["path"], found["start"], found["end"])


def _item_json(item: Fact) -> dict[str, Any]:
    """Return a fact as JSON; only one that the summary does not say has the key ``shown``.

    There are thousands: `dataclasses.asdict` takes ten times as long.
    """
    pointer, *also = map(_pointer_json, item.pointers) if item.pointer else (None,)
    return {
        "field": item.field,
        "kind": item.kind,
        "text": item.text,
        "pointer": pointer,
        "last_seen": item.last_seen,
        "count": item.count,
        "weight": item.weight,
        **({"order": item.order} if item.order else {}),
        **({"also": also} if also else {}),
        **({} if item.is_shown else {"shown": False}),
    }


def _pointer_json(pointer: Pointer) -> dict[str, Any]:
    return {"path": pointer.path, "start": pointer.start, "end": pointer.end}


def _item(found: Mapping[str, Any]) -> Fact:
    pointer = found["pointer"]
    return Fact(
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


# The event of a compressor.


@dataclass(frozen=True, slots=True)
class SummaryFellBack:
    """A summarizer failed, and the extractive one takes over: nothing is lost, and the text is drier.

    *messages* has the session index of the first message, and behind the last; *source_tokens* are theirs. *summarizer*
    is the one that failed.
    """

    messages: tuple[int, int]
    summarizer: str
    reason: str
    source_tokens: int


OnSummaryEvent: TypeAlias = Callable[[SummaryFellBack], None]
