"""The managers, by the names that documents use."""

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import ClassVar, Final, NamedTuple

from buoyline.management.context import ContextView, Decision, Evict, Offload, Summarize
from buoyline.management.rules import (
    Count,
    CountOrNone,
    DocumentObject,
    Hook,
    LegalCuts,
    MaskStub,
    SummaryRatio,
    TruncatedStub,
)
from buoyline.messages import ToolResult
from buoyline.messages.model import text_in
from buoyline.tokens.messages import count_result

# A manager is its settings in a document, and decides about a context.


class ManagerSettings(DocumentObject):
    """The ``config`` of an entry of one type. A manager is its settings and has no other state.

    It runs at its usual hook if no document names one.
    """

    type_name: ClassVar[str]
    usual_hook: ClassVar[Hook] = "pre_llm"

    def decide(self, context: ContextView) -> Decision:
        """Return the actions that *context* needs."""
        raise NotImplementedError

    def in_words(self) -> str:
        """Return what it does, in words that follow the hook's."""
        raise NotImplementedError


# The tool results of a context.


class FoundResult(NamedTuple):
    """A tool result, the position of its message in `ContextView.messages`, and its number in the message."""

    position: int
    number: int
    result: ToolResult


def results_of(context: ContextView) -> Iterator[FoundResult]:
    """Yield the results of the messages, in order."""
    for position, held in enumerate(context.messages):
        for number, result in enumerate(held.message.results):
            yield FoundResult(position, number, result)


def text_numbers(result: ToolResult) -> tuple[int, ...]:
    """Return the numbers of the text and JSON parts that are not empty."""
    return tuple(number for number, part in enumerate(result.parts) if text_in(part))


# ``ToolResultMaskManager``: older tool results become one line each.


class Masking(ManagerSettings):
    """Replaces each older tool result by a line that names its file.

    Attributes:
        keep_recent_results: How many of the newest results are kept; those since the model's last message always are.
        min_tokens: Smaller results are kept too: the line itself takes some 50.
        keep_tools: Names of tools, or patterns such as ``mcp__*``, whose results are kept.
    """

    type_name: ClassVar[str] = "ToolResultMaskManager"

    keep_recent_results: CountOrNone = 5
    min_tokens: Count = 200
    keep_tools: tuple[str, ...] = ()

    def decide(self, context: ContextView) -> Decision:
        """Choose the older results that are large enough."""
        found = list(results_of(context))
        newest = len(found) - self.keep_recent_results
        actions: list[Offload] = []
        for position, number, result in found[: max(newest, 0)]:
            texts = text_numbers(result)
            if not texts or context.is_unread(position, number):
                continue
            tool = context.tool_of(position, number)
            is_kept = any(fnmatchcase(tool, pattern) for pattern in self.keep_tools)
            if not is_kept and count_result(result, context.counter) >= self.min_tokens:
                actions.append(Offload(position, number, "an older result", texts=texts, write_stub=MaskStub(tool)))
        reason = f"{len(actions)} of {len(found)} tool results are old enough and large enough"
        return Decision(tuple(actions), reason)

    def in_words(self) -> str:
        """Return what it does."""
        kept = f", those of {', '.join(self.keep_tools)} apart" if self.keep_tools else ""
        return (
            f"leaves one line in place of each tool result of {self.min_tokens:,} tokens or more{kept}, "
            f"except for the {self.keep_recent_results:,} newest"
        )


# ``SlidingWindowManager``: keeps the newest messages.


class SlidingWindow(ManagerSettings):
    """Keeps the newest messages, and archives all before them.

    System messages, pins and summaries are not counted and are kept. The user's newest message is counted and always
    kept. A call and its result are kept or archived together, so a few less than *max_messages* may be kept; more only
    if the newest group alone is larger.

    Attributes:
        max_messages: How many are kept at most. Default as in OpenSearch: 20.
        notice: Add a line that says where the messages are.
    """

    type_name: ClassVar[str] = "SlidingWindowManager"

    max_messages: Count = 20
    notice: bool = True

    def decide(self, context: ContextView) -> Decision:
        """Choose the first cut that keeps no more than *max_messages*."""
        legal = LegalCuts(context)
        count = legal.kept_count(0)
        if count <= self.max_messages:
            return Decision(reason=f"{count:,} messages, not more than {self.max_messages:,}")
        if not legal.cuts:
            return Decision(reason="no message may leave: all belong to the newest ones")
        cut = next((cut for cut in legal.cuts if legal.kept_count(cut) <= self.max_messages), None)
        if cut is None:
            cut = max(legal.cuts)
            reason = f"the newest {len(context.messages) - cut:,} messages belong together"
        else:
            reason = f"{legal.kept_count(cut):,} of {count:,} messages stay"
        action = Evict(cut, legal.reinserted(cut), legal.prefix, reason, self.notice)
        return Decision((action,), reason)

    def in_words(self) -> str:
        """Return what it does."""
        return f"keeps the {self.max_messages:,} most recent messages and sends the ones before them to the archive"


# ``SummarizationManager``: a share of the oldest messages becomes a summary.


class Summarization(ManagerSettings):
    """Summarizes a share of the oldest messages, and preserves the newest.

    Of n messages, n times *summary_ratio* are summarized, at least one, and never a preserved one: with the defaults
    none of 10, 1 of 11, 6 of 20, 30 of 100. The cut moves on until it parts no call from its result, and back if it
    would reach a preserved message. System messages and pins are kept.

    Attributes:
        summary_ratio: Share of the messages that is summarized, from 0.1 to 0.8.
        preserve_recent_messages: How many of the newest are never summarized.
        summarization_model_id: The model that writes the summary; default: the agent's.
        summarization_system_prompt: Instructs the model.
    """

    type_name: ClassVar[str] = "SummarizationManager"

    summary_ratio: SummaryRatio = 0.3
    preserve_recent_messages: CountOrNone = 10
    summarization_model_id: str | None = None
    summarization_system_prompt: str | None = None

    def decide(self, context: ContextView) -> Decision:
        """Choose the cut closest to the share of the messages."""
        places = [at for at, held in enumerate(context.messages) if held.is_counted]
        wanted = min(max(1, int(len(places) * self.summary_ratio)), len(places) - self.preserve_recent_messages)
        if wanted <= 0:
            return Decision(reason=f"{len(places)} messages, of which {self.preserve_recent_messages} are preserved")
        # Positions include system messages; the numbers of the document do not.
        target = places[wanted - 1] + 1
        preserved = places[len(places) - self.preserve_recent_messages :]
        limit = preserved[0] if preserved else len(context.messages)
        legal = LegalCuts(context)
        cuts = sorted(cut for cut in legal.cuts if cut <= limit)
        if not cuts:
            return Decision(reason="no message may leave without parting a call from its result")
        cut = next((cut for cut in cuts if cut >= target), cuts[-1])
        reason = f"{cut} of {len(context.messages)} messages are summarised"
        action = Summarize(
            cut,
            legal.reinserted(cut),
            legal.prefix,
            reason,
            model=self.summarization_model_id or "",
            prompt=self.summarization_system_prompt or "",
        )
        return Decision((action,), reason)

    def in_words(self) -> str:
        """Return what it does."""
        model = f" by {self.summarization_model_id}" if self.summarization_model_id else ""
        return (
            f"summarises the oldest {self.summary_ratio:.0%} of the messages{model}, "
            f"never one of the {self.preserve_recent_messages:,} newest"
        )


# ``ToolsOutputTruncateManager``: cuts long tool outputs.


class OutputTruncation(ManagerSettings):
    """Cuts each tool output to a number of characters, the notice included, and offloads the whole.

    It works on all outputs in the context at every hook. At ``post_tool`` earlier ones are short already; at
    ``pre_llm`` it serves the third use case of OpenSearch's page.

    Attributes:
        max_output_length: Characters that are kept at most. Default as in OpenSearch: 40,000.
    """

    type_name: ClassVar[str] = "ToolsOutputTruncateManager"
    usual_hook: ClassVar[Hook] = "post_tool"

    max_output_length: Count = 40_000

    def decide(self, context: ContextView) -> Decision:
        """Choose the outputs that are longer."""
        limit, actions = self.max_output_length, list[Offload]()
        for position, number, result in results_of(context):
            if (chars := len(result.text)) > limit:
                reason, texts = f"{chars:,} characters, more than {limit:,}", text_numbers(result)
                actions.append(Offload(position, number, reason, texts=texts, write_stub=TruncatedStub(limit)))
        return Decision(tuple(actions), f"{len(actions)} tool outputs exceed {limit:,} characters")

    def in_words(self) -> str:
        """Return what it does."""
        return f"cuts each tool output to {self.max_output_length:,} characters and keeps the whole in a file"


MANAGERS: Final[Mapping[str, type[ManagerSettings]]] = MappingProxyType(
    {manager.type_name: manager for manager in (SlidingWindow, Summarization, OutputTruncation, Masking)}
)
"""Managers by the ``type`` of an entry; the first three are OpenSearch's."""
