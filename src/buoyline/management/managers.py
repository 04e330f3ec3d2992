"""The managers of documents: OpenSearch's three, one that masks, and those that users register. They only decide."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Annotated, Any, ClassVar, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from buoyline.compression.compressor import legal_cuts
from buoyline.messages import Message
from buoyline.tokens import TextCounter
from buoyline.tokens.counter import count_result


@dataclass(frozen=True, slots=True)
class Situation:
    """A context as rules and managers see it.

    Attributes:
        views: The messages that are not archived, in order.
        natives: The same as their framework has them.
        tokens: Of the whole context: system prompt, tools, summary and messages.
        size: Tokens of the window.
    """

    views: Sequence[Message]
    natives: Sequence[Any]
    tokens: int
    size: int
    counter: TextCounter

    @property
    def message_count(self) -> int:
        """How many messages there are, without system messages and summaries."""
        return sum(view.role != "system" for view in self.views)

    @property
    def cuts(self) -> list[int]:
        """How many of the oldest messages may leave; cuts that keep all open calls come first."""
        held, speaker = legal_cuts(self.views), self.newest_answer
        others = (cut for cut in legal_cuts(self.views, hold_pending=False) if cut <= speaker)
        return [*held, *(cut for cut in others if cut not in held)]

    @property
    def newest_answer(self) -> int:
        """The position of the model's last message; 0 without one."""
        return max((at for at, view in enumerate(self.views) if view.role == "assistant"), default=0)


class Replace(NamedTuple):
    """Store a result of the message at *position* whole, and put a text by *write* in its place, of it and its path."""

    position: int
    number: int
    write: Callable[[str, str], str]


class Decision(NamedTuple):
    """What a manager found, and what is to be done.

    Attributes:
        words: What it found.
        texts: Results that are shortened; else *cut* is carried out.
        cut: So many of the oldest messages are archived.
        writer: Model (empty: the window's own) and prompt of the summary in their place; None: a line says where they
            are.
    """

    words: str
    texts: Sequence[Replace] = ()
    cut: int = 0
    writer: tuple[str, str] | None = None


# A text that spells a number is one, as OpenSearch accepts it.
Count = Annotated[int, Field(ge=1)]
CountOrNone = Annotated[int, Field(ge=0)]


class Manager(BaseModel):
    """A manager is its settings, the ``config`` of its entry. It runs at its usual hook if no document names one."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    type_name: ClassVar[str]
    usual_hook: ClassVar[str] = "pre_llm"

    words: ClassVar[str]
    """What it does, with its settings in braces; follows the hook's words."""

    def decide(self, context: Situation) -> Decision:
        """Return what *context* needs."""
        raise NotImplementedError


class SlidingWindow(Manager):
    """Keeps the newest messages, and archives all before them.

    System messages, pins and summaries are not counted and stay. A call and its result are kept or archived together,
    so a few less than *max_messages* may be kept; more only if the newest group alone is larger.
    """

    type_name: ClassVar[str] = "SlidingWindowManager"
    words: ClassVar[str] = "keeps the {max_messages:,} most recent messages and archives the ones before them"

    max_messages: Count = 20

    def decide(self, context: Situation) -> Decision:
        """Choose the first cut that keeps no more than *max_messages*."""
        count, cuts = context.message_count, context.cuts
        if count <= self.max_messages:
            return Decision(f"{count:,} messages, not more than {self.max_messages:,}")
        kept = [count, *(count - gone for gone in accumulate(view.role != "system" for view in context.views))]
        cut = next((cut for cut in cuts if kept[cut] <= self.max_messages), max(cuts, default=0))
        return Decision(f"{kept[cut]:,} of {count:,} messages stay", cut=cut)


class Summarization(Manager):
    """Summarizes a share of the oldest messages, and preserves the newest.

    Of n messages, n times *summary_ratio* are summarized, at least one, and never a preserved one. The cut moves on
    until it parts no call from its result, and back if it would reach a preserved message.
    """

    type_name: ClassVar[str] = "SummarizationManager"
    words: ClassVar[str] = "summarizes the oldest {summary_ratio:.0%}, never the {preserve_recent_messages:,} newest"

    summary_ratio: float = Field(default=0.3, ge=0.1, le=0.8)
    preserve_recent_messages: CountOrNone = 10
    summarization_model_id: str | None = None
    summarization_system_prompt: str | None = None

    def decide(self, context: Situation) -> Decision:
        """Choose the cut closest to the share of the messages."""
        places = [at for at, view in enumerate(context.views) if view.role != "system"]
        most = len(places) - self.preserve_recent_messages
        wanted = min(max(1, int(len(places) * self.summary_ratio)), most)
        if wanted <= 0:
            return Decision(f"{len(places)} messages, of which {self.preserve_recent_messages} are preserved")
        # Positions include system messages; the numbers of the document do not.
        target, limit = places[wanted - 1] + 1, [*places, len(context.views)][most]
        cuts = sorted(cut for cut in context.cuts if cut <= limit)
        cut = next((cut for cut in cuts if cut >= target), max(cuts, default=0))
        writer = self.summarization_model_id or "", self.summarization_system_prompt or ""
        return Decision(f"{cut:,} of {len(context.views):,} messages are summarized", cut=cut, writer=writer)


class OutputTruncation(Manager):
    """Cuts each tool output to a number of characters, the notice included; the whole is in a file."""

    type_name: ClassVar[str] = "ToolsOutputTruncateManager"
    usual_hook: ClassVar[str] = "post_tool"
    words: ClassVar[str] = "cuts each tool output to {max_output_length:,} characters and keeps the whole in a file"

    max_output_length: Count = 40_000

    def decide(self, context: Situation) -> Decision:
        """Choose the outputs that are longer."""
        actions = [
            Replace(position, number, self._cut)
            for position, view in enumerate(context.views)
            for number, result in enumerate(view.results)
            if len(result.text) > self.max_output_length
        ]
        return Decision(f"{len(actions)} tool outputs exceed {self.max_output_length:,} characters", actions)

    def _cut(self, text: str, path: str) -> str:
        """Return the beginning of *text* and the longest notice that leaves half of the limit to it, if one does."""
        most = self.max_output_length
        long = f"\n[truncated: the whole output is in {path}]"
        notices = (long, f"\n[truncated: {path.rpartition('/')[2]}]", "\n[truncated]")
        notice = next((one for one in notices if 2 * len(one) <= most), "…")
        return text[: most - len(notice)] + notice


class Masking(Manager):
    """Replaces each older tool result by a line that names its file.

    The newest results are kept, and those since the model's last message; so are smaller ones than *min_tokens*.
    """

    type_name: ClassVar[str] = "ToolResultMaskManager"
    words: ClassVar[str] = "leaves one line in place of each older tool result of {min_tokens:,} tokens or more"

    keep_recent_results: CountOrNone = 5
    min_tokens: Count = 200

    def decide(self, context: Situation) -> Decision:
        """Choose the older results that are large enough."""
        found = [(at, number, one) for at, view in enumerate(context.views) for number, one in enumerate(view.results)]
        actions = [
            Replace(at, number, _masked)
            for at, number, result in found[: max(len(found) - self.keep_recent_results, 0)]
            if at < context.newest_answer and count_result(result, context.counter) >= self.min_tokens
        ]
        return Decision(f"{len(actions)} of {len(found)} tool results are old and large enough", actions)


def _masked(text: str, path: str) -> str:
    return f"[Older tool result: {len(text):,} characters, in {path}]"


class Custom(Manager):
    """Runs a user's own manager, and archives what it removed from the beginning of the list.

    System messages, pins, and one half of a call with its result stay anyway.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    factory: ClassVar[Callable[..., Any]]

    def decide(self, context: Situation) -> Decision:
        """Let it reduce a copy of the list."""
        kept = [*context.natives]
        is_reduced = type(self).factory(**(self.model_extra or {})).reduce(kept)
        staying = set(map(id, kept))
        wanted = next((at for at, one in enumerate(context.natives) if id(one) in staying), len(context.natives))
        cut = max((cut for cut in context.cuts if cut <= wanted), default=0)
        if not is_reduced or not cut:
            return Decision("it left the messages as they are")
        return Decision(f"{cut:,} messages leave", cut=cut)


MANAGERS: dict[str, type[Manager]] = {
    one.type_name: one for one in (SlidingWindow, Summarization, OutputTruncation, Masking)
}
"""By the ``type`` of an entry; the first three are OpenSearch's."""


def register_manager(name: str, factory: Callable[..., Any]) -> None:
    """Let documents name a manager of your own, in this process.

    *factory* is called with the other keys of the entry's ``config`` and returns an object with
    ``reduce(messages) -> bool``, which removes the oldest messages from the list, and says whether it removed any.
    """
    MANAGERS[name] = type(
        name, (Custom,), {"type_name": name, "words": f"runs {name}", "factory": staticmethod(factory)}
    )
