"""What a summary is made of, and what a summarizer takes and returns."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Final, Protocol

from buoyline.compression.pointers import Pointer, pointers_in
from buoyline.errors import SummaryError
from buoyline.messages import Message
from buoyline.tokens import TextCounter

FIELDS: Final = ("task_overview", "current_state", "important_discoveries", "next_steps", "context_to_preserve")
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
        pointer: Its lines in the transcript; None without one.
        excerpts: The stub's lines for each of its tool results, None for a whole one; empty if all are whole.
        lines: The transcript's lines that *pointer* names; empty if not known, and then the whole message is cited.
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
        kind: For example ``"task"``, ``"check"``, ``"error"``, ``"finding"``.
        text: As in the summary, without its citation.
        pointers: Lines that back it.
        last_seen: Session index of the newest message that holds it.
        weight: How much it is needed.
        order: Position among the facts of one message.
        subject: What it is the newest word on, such as a command: it replaces older facts with the same subject.
    """

    field: str
    kind: str
    text: str
    pointers: tuple[Pointer, ...]
    last_seen: int
    weight: float = 1.0
    order: int = 0
    subject: str = ""


@dataclass(frozen=True, slots=True)
class Draft:
    """What a summarizer returns.

    Attributes:
        summarizer: Its name, e.g. ``"extractive"``.
        fields: Text of each requested field; sentences cite the archive as ``[path:start-end]``.
        facts: For the next summary; empty from most model summarizers.
    """

    summarizer: str
    fields: Mapping[str, str]
    facts: tuple[Fact, ...] = ()

    @property
    def pointers(self) -> tuple[Pointer, ...]:
        """The citations in the fields, in reading order, each once."""
        return tuple(dict.fromkeys(pointers_in("\n".join(self.fields.values()))))


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
    """

    sources: Sequence[SourceMessage]
    previous: Draft | None
    max_tokens: int
    counter: TextCounter
    fields: tuple[str, ...] = FIELDS
    focus: str = ""
    prompt: str = ""
    schema: Mapping[str, object] = field(default_factory=dict[str, object])

    @property
    def source_tokens(self) -> int:
        """Tokens of all that the summary replaces."""
        texts = [source.message.spoken for source in self.sources]
        return sum(map(self.counter.count, [*texts, *(self.previous.fields.values() if self.previous else ())]))


class Summarizer(Protocol):
    """Turns archived messages into the fields of a summary."""

    async def summarize(self, request: SummaryRequest) -> Draft:
        """Return a draft; raise `SummaryError`, or any error of the model behind it, if there is none."""
        ...


def require_draft(answer: object) -> Draft:
    """Return *answer* if it is a draft of texts: a summarizer may be anybody's code.

    Raises:
        SummaryError: It is something else.
    """
    if not isinstance(answer, Draft):
        raise SummaryError("the summarizer", f"answered with {type(answer).__name__}, not with a Draft")
    fields: object = answer.fields
    if not isinstance(fields, Mapping) or not all(isinstance(one, str) for pair in fields.items() for one in pair):
        raise SummaryError(str(answer.summarizer), "has fields that are no texts")
    return answer


@dataclass(frozen=True, slots=True)
class Summary:
    """The summary that replaces archived messages in the context.

    Attributes:
        number: Position among the session's summaries, from 1; 0 without a log.
        messages: Session index of the first replaced message, and behind the last.
        unverified: Claims that were found nowhere, which the text marks; then the citations that were removed, as
            ``path:start-end``, because their lines do not exist or do not hold what the sentence says.
        source_tokens: Of the messages.
        tokens: Of the text.
        text: What the model sees.
        created_at: ISO 8601, UTC.
        fell_back: Why the extractive summarizer wrote it in place of the given one; else empty.
        references: Where an offloader that knows no lines put this and the earlier summarized messages.
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
    references: tuple[str, ...] = ()

    def numbered(self, number: int) -> "Summary":
        """Return the same summary under *number*."""
        return replace(self, number=number)

    def to_json(self) -> dict[str, Any]:
        """Return the line of ``summaries.jsonl``, which `summary_from` reads."""
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
            "facts": [asdict(fact) for fact in self.draft.facts],
            **({"fell_back": self.fell_back} if self.fell_back else {}),
            **({"references": list(self.references)} if self.references else {}),
        }


def summary_from(line: Mapping[str, Any]) -> Summary:
    """Read a line of ``summaries.jsonl``; unknown keys are ignored.

    Raises:
        KeyError: A key that every summary has is missing.
    """
    facts = list[Fact]()
    for found in line.get("facts", ()):
        known: dict[str, Any] = {one.name: found[one.name] for one in fields(Fact) if one.name in found}
        known["pointers"] = tuple(Pointer(one["path"], one["start"], one["end"]) for one in found["pointers"])
        facts.append(Fact(**known))
    return Summary(
        number=line["n"],
        messages=(line["messages"][0], line["messages"][1]),
        draft=Draft(line["summarizer"], dict(line["fields"]), tuple(facts)),
        unverified=tuple(line["unverified"]),
        source_tokens=line["source_tokens"],
        tokens=line["tokens"],
        text=line["text"],
        created_at=line["created_at"],
        fell_back=line.get("fell_back", ""),
        references=tuple(line.get("references", ())),
    )
