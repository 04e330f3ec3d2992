"""OpenTelemetry spans for the events of a window. Needs the extra ``otel``; no other module imports it."""

import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from buoyline.compression.summary import SummaryFellBack, SummarySqueezed, SummaryVerified
from buoyline.errors import ConfigError
from buoyline.window.events import (
    ContextCompressed,
    ContextManaged,
    Event,
    HistoryForked,
    MessagesArchived,
    OnEvent,
    OverflowRecovered,
    ResultOffloaded,
    WindowResumed,
)

__all__ = [
    "traced",
]

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

Attributes: TypeAlias = Mapping[str, str | int | bool]

_NAMES: Mapping[type[Event], str] = MappingProxyType(
    {
        ResultOffloaded: "buoyline.offload_result",
        MessagesArchived: "buoyline.archive_messages",
        SummaryVerified: "buoyline.verify_summary",
        SummaryFellBack: "buoyline.fall_back",
        SummarySqueezed: "buoyline.squeeze_summary",
        ContextCompressed: "buoyline.compress_context",
        ContextManaged: "buoyline.manage_context",
        OverflowRecovered: "buoyline.recover_from_overflow",
        HistoryForked: "buoyline.fork_history",
        WindowResumed: "buoyline.resume_window",
    }
)
# The convention sets it only to true. Source: semantic conventions for generative AI, ``gen_ai.conversation``.
_COMPACTED: Attributes = MappingProxyType({"gen_ai.conversation.compacted": True})
_NS_PER_S = 1_000_000_000


def traced(on_event: OnEvent | None = None, tracer: "Tracer | None" = None, *, session_id: str = "") -> OnEvent:
    """Return an ``on_event`` hook that makes a span of each event.

    A span is a child of the span that is current when the window is called, so it appears within the agent's own. If
    the event has a duration, the span begins so much earlier; otherwise it has no length. No state is kept between
    events: one hook may serve several windows and threads, and a compaction that fails leaves no open span. Attribute
    names follow the semantic conventions for generative AI (``gen_ai.*``) if these have one, and otherwise begin with
    ``buoyline.``. Spans of model calls set ``gen_ai.usage.*``; these do not, since the size of a context is not billed.
    No attribute has the text of a message.

    Args:
        on_event: Called with each event before it is traced.
        tracer: Default: the tracer ``buoyline`` of the process's provider.
        session_id: For ``gen_ai.conversation.id``; an empty id is not set.

    Raises:
        ConfigError: OpenTelemetry's API is not installed.
    """
    if tracer is None:
        try:
            from opentelemetry import trace as otel  # noqa: PLC0415 - an extra; who traces nothing does not need it
        except ImportError as error:
            raise ConfigError("tracer", "needs the extra 'otel'") from error
        tracer = otel.get_tracer("buoyline")
    spans = tracer
    conversation = {"gen_ai.conversation.id": session_id} if session_id else {}

    def trace(event: Event) -> None:
        if on_event is not None:
            on_event(event)
        name, attributes, duration_s = span_of(event)
        end_ns = time.time_ns()
        start_ns = end_ns - int(duration_s * _NS_PER_S)
        span = spans.start_span(name, attributes={**conversation, **attributes}, start_time=start_ns)
        span.end(end_ns)

    return trace


def span_of(event: Event) -> tuple[str, Attributes, float]:
    """Return the name of the span for *event*, its attributes, and its duration in seconds. Pure."""
    duration_s = 0.0
    attributes: Attributes
    match event:
        case ResultOffloaded():
            attributes = {
                **({"gen_ai.tool.name": event.tool} if event.tool else {}),
                **({"gen_ai.tool.call.id": event.call_id} if event.call_id else {}),
                "buoyline.message": event.message,
                "buoyline.path": event.path,
                **_tokens(event.tokens, event.stub_tokens),
            }
        case MessagesArchived():
            attributes = {
                **_messages(event.messages),
                "buoyline.path": event.reference,
                "buoyline.tokens.source": event.tokens,
            }
        case SummaryVerified() | SummaryFellBack() | SummarySqueezed():
            attributes = _of_summary(event)
        case ContextCompressed():
            duration_s = event.duration_s
            attributes = {
                **_COMPACTED,
                **_messages(event.summary.messages),
                "buoyline.summary": event.summary.number,
                "buoyline.summarizer": event.summary.draft.summarizer,
                **_tokens(event.tokens_before, event.tokens_after),
            }
        case ContextManaged():
            ran = [one for one in event.report.entries if one.is_active]
            attributes = {
                "buoyline.hook": event.hook,
                "buoyline.managers": ",".join(one.type_name for one in ran),
                **(_tokens(ran[0].tokens[0], ran[-1].tokens[1]) if ran else {}),
            }
        case OverflowRecovered():
            duration_s = event.duration_s
            attributes = {**_COMPACTED, **_tokens(event.tokens_before, event.tokens_after)}
        case HistoryForked():
            attributes = {
                **_messages((event.message, event.message + event.removed)),
                "buoyline.path": event.path,
            }
        case WindowResumed():
            attributes = {
                "gen_ai.conversation.id": event.session_id,
                **(_COMPACTED if event.archived else {}),
                "buoyline.messages": event.added,
                "buoyline.messages.archived": event.archived,
                "buoyline.tokens": event.tokens,
            }
    return _NAMES[type(event)], attributes, duration_s


def _of_summary(event: SummaryVerified | SummaryFellBack | SummarySqueezed) -> Attributes:
    match event:
        case SummaryVerified():
            return {
                **_messages(event.messages),
                "buoyline.summarizer": event.summarizer,
                "buoyline.claims": event.claims,
                "buoyline.claims.unverified": len(event.unverified),
                "buoyline.pointers": event.pointers,
                "buoyline.tokens.source": event.source_tokens,
                "buoyline.tokens.summary": event.tokens,
                "buoyline.facts": event.facts,
                "buoyline.facts.unsaid": event.unsaid,
            }
        case SummaryFellBack():
            return {
                **_messages(event.messages),
                "error.type": "SummaryError",
                "buoyline.summarizer": event.summarizer,
                "buoyline.reason": event.reason,
                "buoyline.tokens.source": event.source_tokens,
            }
        case SummarySqueezed():
            return {
                **_messages(event.messages),
                "buoyline.facts": event.facts,
                "buoyline.facts.unsaid": event.unsaid,
                "buoyline.tokens.summary": event.max_tokens,
            }


def _messages(span: tuple[int, int]) -> Attributes:
    return {"buoyline.messages.first": span[0], "buoyline.messages.end": span[1]}


def _tokens(before: int, after: int) -> Attributes:
    return {"buoyline.tokens.before": before, "buoyline.tokens.after": after}
