"""The managers, by the names that documents use."""

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from itertools import islice
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Final, NamedTuple, Self

from pydantic import Field, model_validator

from buoyline.compression import ContextConfig
from buoyline.compression.plan import plan
from buoyline.management.context import ContextView, Decision, Evict, Offload, Pin, Summarize
from buoyline.management.rules import (
    Count,
    CountOrNone,
    DocumentObject,
    Hook,
    LegalCuts,
    MaskStub,
    PreviewStub,
    SummaryRatio,
    TruncatedStub,
)
from buoyline.messages import Media, Message, ToolResult
from buoyline.messages.model import Part, text_in
from buoyline.offloader.policy import (
    LEAST_STUB_TOKENS,
    WORTH_OFFLOADING_TOKENS,
    TurnResult,
    is_too_large,
    stub_budgets,
)
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


# ``CompressionManager``: summarizes all but a share of the window.


_DEFAULTS = ContextConfig()


class RatioCompression(ManagerSettings):
    """Summarizes as many of the oldest messages as brings the others down to a share of the window.

    The keys are those of `ContextConfig`; its `trigger_ratio` is the activation rule ``tokens_exceed_ratio``.
    """

    type_name: ClassVar[str] = "CompressionManager"

    reserve_ratio: Annotated[float, Field(ge=0, lt=0.9, allow_inf_nan=False)] = 0.1
    summary_tokens: Count | None = None
    compression_prompt: str | None = None
    summary_template: str | None = None
    summary_schema: Mapping[str, Any] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.config()
        return self

    def config(self, **others: Any) -> ContextConfig:
        """Return the settings as a `ContextConfig`, which refuses values that cannot work."""
        named = ("compression_prompt", "summary_template", "summary_schema")
        given = {name: value for name in named if (value := getattr(self, name)) is not None}
        trigger = others.pop("trigger_ratio", max(_DEFAULTS.trigger_ratio, min(self.reserve_ratio + 0.01, 0.9)))
        return ContextConfig(
            reserve_ratio=self.reserve_ratio,
            trigger_ratio=trigger,
            summary_tokens=self.summary_tokens,
            **given,
            **others,
        )

    def decide(self, context: ContextView) -> Decision:
        """Plan as a window does without a document."""
        tokens = [held.tokens for held in context.messages]
        max_kept_tokens = int(self.reserve_ratio * context.size)
        decided = plan(context.views, tokens, max_kept_tokens=max_kept_tokens)
        legal = LegalCuts(context)
        # If all else is too large, the plan archives open calls of the newest turn; a manager does not.
        cut = max((cut for cut in legal.cuts if cut <= decided.cut), default=0)
        if cut == 0:
            return Decision(reason=decided.reason)
        action = Summarize(cut, legal.reinserted(cut), legal.prefix, decided.reason, self.config())
        return Decision((action,), decided.reason)

    def in_words(self) -> str:
        """Return what it does."""
        return f"summarises the oldest messages until the others take {self.reserve_ratio:.0%} of the window"


# The tool results of a context.


class FoundResult(NamedTuple):
    """A tool result, the position of its message in `ContextView.messages`, and its number in the message."""

    position: int
    number: int
    result: ToolResult


def results_of(context: ContextView, start: int = 0, end: int | None = None) -> Iterator[FoundResult]:
    """Yield the results of the messages from position *start* up to *end*, in order."""
    for position, held in enumerate(context.messages[start:end], start):
        for number, result in enumerate(held.message.results):
            yield FoundResult(position, number, result)


def text_numbers(result: ToolResult) -> tuple[int, ...]:
    """Return the numbers of the text and JSON parts that are not empty."""
    return tuple(number for number, part in enumerate(result.parts) if text_in(part))


def images_in(parts: "tuple[Part, ...]") -> list[int]:
    """Return the numbers of the images that contain their bytes."""
    media = ((number, part) for number, part in enumerate(parts) if isinstance(part, Media))
    return [number for number, part in media if part.kind == "image" and part.payload is not None]


# ``ImageLimitManager``: keeps only the newest images.


_OWN = -1


class ImageTrimming(ManagerSettings):
    """Keeps the newest images, and replaces each older one by a line that names its file.

    Providers refuse requests with too many images, and each image takes more than a thousand tokens at every call.
    """

    type_name: ClassVar[str] = "ImageLimitManager"

    max_images: CountOrNone = 5

    def decide(self, context: ContextView) -> Decision:
        """Choose the oldest images beyond the limit."""
        found = list(_images(context))
        excess: dict[tuple[int, int], list[int]] = {}
        for position, result, number in found[: max(len(found) - self.max_images, 0)]:
            excess.setdefault((position, result), []).append(number)
        actions = tuple(Offload(*place, "an older picture", media=tuple(media)) for place, media in excess.items())
        return Decision(actions, f"{len(found)} pictures, of which {self.max_images} may stay")

    def in_words(self) -> str:
        """Return what it does."""
        return f"keeps the {self.max_images:,} newest pictures and names the files of the others"


def _images(context: ContextView) -> Iterator[tuple[int, int, int]]:
    """Yield position, result number (or -1) and part number of each image, in order."""
    for position, held in enumerate(context.messages):
        if not _holds_media(held.message):
            continue
        for number in images_in(held.message.parts):
            yield position, _OWN, number
        for result, whole in enumerate(held.message.results):
            for number in images_in(whole.parts):
                yield position, result, number


def _holds_media(message: Message) -> bool:
    """Return whether there may be an image; in plain loops, since it reads all messages before each model call."""
    for part in message.parts:
        if isinstance(part, Media):
            return True
        if isinstance(part, ToolResult):
            for inner in part.parts:
                if isinstance(inner, Media):
                    return True
    return False


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


# ``OffloadManager``: moves large tool results to files and leaves stubs with previews.


class Offloading(ManagerSettings):
    """Offloads tool results over a limit, and the largest of a turn whose results together are too large.

    The keys are those of `ContextConfig`.
    """

    type_name: ClassVar[str] = "OffloadManager"
    usual_hook: ClassVar[Hook] = "post_tool"

    tool_result_limit: Count = 3_000
    preview_tokens: Count = 1_000
    turn_results_limit: Count | None = None
    tool_rules: Mapping[str, Mapping[str, Any]] = Field(default_factory=dict[str, Mapping[str, Any]])

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.config()
        return self

    def config(self) -> ContextConfig:
        """Return the settings as a `ContextConfig`, which refuses values that cannot work."""
        rules: dict[str, Any] = dict(self.tool_rules)
        return ContextConfig(
            tool_result_limit=self.tool_result_limit,
            preview_tokens=self.preview_tokens,
            turn_results_limit=self.turn_results_limit,
            tool_rules=rules,
        )

    def decide(self, context: ContextView) -> Decision:
        """Choose among the results of each turn with new messages; earlier ones were decided already."""
        config, actions, count = self.config(), list[Offload](), 0
        for turn in context.new_turns():
            found = list(results_of(context, turn.start, turn.stop))
            weighed = [_weighed(context, one, config) for one in found]
            budgets = stub_budgets(weighed, config.turn_limit(context.size), least=LEAST_STUB_TOKENS)
            count += len(found)
            for at, tokens in sorted(budgets.items()):
                position, number, result = found[at]
                if texts := text_numbers(result):
                    reason = f"{count_result(result, context.counter):,} tokens"
                    actions.append(Offload(position, number, reason, texts=texts, write_stub=PreviewStub(tokens)))
        return Decision(tuple(actions), f"{len(actions)} of {count} tool results of this turn are too much")

    def in_words(self) -> str:
        """Return what it does."""
        rules = f"; {len(self.tool_rules)} tools have rules of their own" if self.tool_rules else ""
        return (
            f"moves tool results over {self.tool_result_limit:,} tokens to files and leaves a stub "
            f"with a preview of {self.preview_tokens:,} tokens{rules}"
        )


def _weighed(context: ContextView, found: FoundResult, config: ContextConfig) -> TurnResult:
    """Weigh a result as a window does before it is shown for the first time."""
    position, number, result = found
    rule = config.rule_for(context.tool_of(position, number))
    limit, preview_tokens = rule.limit or config.tool_result_limit, rule.preview_tokens or config.preview_tokens
    is_replaced = number in context.messages[position].replaced_parts
    if is_replaced or rule.offload == "never" or (rule.keep_errors and result.is_error):
        return TurnResult(count_result(result, context.counter), 0, is_fixed=True)
    if is_too_large(result, limit, context.counter):
        return TurnResult(0, preview_tokens, is_due=True)
    tokens = count_result(result, context.counter)
    is_due = rule.offload == "always" and tokens > WORTH_OFFLOADING_TOKENS
    return TurnResult(tokens, min(preview_tokens, tokens // 2), is_due=is_due)


# ``PinManager``: keeps chosen messages.


class Pinning(ManagerSettings):
    """Pins messages: they are reinserted when they are archived, with their calls and results.

    Attributes:
        first: How many of the session's first messages, without system messages. Source: Strands' ``pin_first``.
        contains: Words; user messages that hold one are pinned. Case matters.
    """

    type_name: ClassVar[str] = "PinManager"

    first: CountOrNone = 0
    contains: tuple[str, ...] = ()

    def decide(self, context: ContextView) -> Decision:
        """Choose the messages that are not pinned yet."""
        counted = (at for at, held in enumerate(context.messages) if held.is_counted)
        before = context.messages[0].index if context.messages else 0
        # Every archived message was counted, apart from system messages, which are all in the prefix.
        archived = before - sum(held.message.role == "system" and not held.is_ours for held in context.prefix)
        chosen = set(islice(counted, max(self.first - archived, 0)))
        if self.contains:
            spoken = ((at, held.message.text) for at, held in enumerate(context.messages) if held.is_spoken_by_user)
            chosen |= {at for at, text in spoken if any(word in text for word in self.contains)}
        positions = tuple(at for at in sorted(chosen) if not context.messages[at].pinned)
        actions = (Pin(positions, "the document pins them"),) if positions else ()
        return Decision(actions, f"{len(positions)} messages more are pinned")

    def in_words(self) -> str:
        """Return what it does."""
        words = [f"the first {self.first:,} messages"] if self.first else []
        words += [f"what the user says with {word!r} in it" for word in self.contains]
        return f"pins {' and '.join(words) or 'nothing'}"


# ``SlidingWindowManager``: keeps the newest messages.


class SlidingWindow(ManagerSettings):
    """Keeps the newest messages, and archives all before them.

    System messages, pins and summaries are not counted and are kept. The user's newest message is counted and always
    kept. A call and its result are kept or archived together, so a few less than *max_messages* may be kept; more only
    if the newest group alone is larger.

    Attributes:
        max_messages: How many are kept at most. Default as in OpenSearch: 20.
        at_least: How many are archived at least, even if there are fewer than *max_messages*. Source: Strands, whose
            sliding window drops messages on an overflow, however few there are. On an overflow it is at least one
            anyway.
        notice: Add a line that says where the messages are.
    """

    type_name: ClassVar[str] = "SlidingWindowManager"

    max_messages: Count = 20
    at_least: CountOrNone = 0
    notice: bool = True

    def decide(self, context: ContextView) -> Decision:
        """Choose the first cut that keeps no more than *max_messages*."""
        at_least = max(self.at_least, int(context.is_overflow))
        legal = LegalCuts(context)
        count = legal.kept_count(0)
        if at_least == 0 and count <= self.max_messages:
            return Decision(reason=f"{count:,} messages, not more than {self.max_messages:,}")
        if not legal.cuts:
            return Decision(reason="no message may leave: all belong to the newest ones")
        good = (cut for cut in legal.cuts if legal.removed_count(cut) >= at_least)
        cut = next((cut for cut in good if legal.kept_count(cut) <= self.max_messages), None)
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
    {
        manager.type_name: manager
        for manager in (
            SlidingWindow,
            Summarization,
            OutputTruncation,
            Offloading,
            Masking,
            Pinning,
            ImageTrimming,
            RatioCompression,
        )
    }
)
"""Managers by the ``type`` of an entry; the first three are OpenSearch's."""
