"""OpenTelemetry spans for the events of a window. Needs the extra ``otel``; no other module imports it."""

import dataclasses
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from buoyline.errors import imported
from buoyline.window.events import ContextCompressed, Event, OnEvent

__all__ = [
    "traced",
]

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

_TEXTS = frozenset({"reason", "stub", "text"})
"""Fields that hold words of messages or of a summarizer, which no span has."""

_NS_PER_S = 1_000_000_000


def traced(on_event: OnEvent | None = None, tracer: "Tracer | None" = None, *, session_id: str = "") -> OnEvent:
    """Return an ``on_event`` hook that makes a span of each event.

    A span is a child of the span that is current when the window is called, so it appears within the agent's own. If
    the event has a duration, the span begins so much earlier; otherwise it has no length. Its name is ``buoyline.`` and
    the event's class, its attributes are the event's numbers, names and paths. No attribute has the text of a message.

    Args:
        on_event: Called with each event before it is traced.
        tracer: Default: the tracer ``buoyline`` of the process's provider.
        session_id: For ``gen_ai.conversation.id``; an empty id is not set.

    Raises:
        MissingExtraError: OpenTelemetry's API is not installed.
    """
    spans: Any = tracer or imported("opentelemetry.trace", extra="otel").get_tracer("buoyline")
    conversation = {"gen_ai.conversation.id": session_id} if session_id else {}

    def trace(event: Event) -> None:
        if on_event is not None:
            on_event(event)
        words = re.findall(r"[A-Z][a-z]*", type(event).__name__)
        end_ns = time.time_ns()
        start_ns = end_ns - int(getattr(event, "duration_s", 0.0) * _NS_PER_S)
        attributes = {**conversation, **_attributes(event)}
        span = spans.start_span(f"buoyline.{'_'.join(words).lower()}", attributes=attributes, start_time=start_ns)
        span.end(end_ns)

    return trace


def _attributes(event: Event) -> Mapping[str, str | int | bool]:
    values = {field.name: getattr(event, field.name) for field in dataclasses.fields(event)}
    found = {
        f"buoyline.{name}": value
        for name, value in values.items()
        if isinstance(value, str | int) and name not in _TEXTS
    }
    # The convention sets it only to true. Source: semantic conventions for generative AI, ``gen_ai.conversation``.
    is_compacted = isinstance(event, ContextCompressed)
    return {**found, **({"gen_ai.conversation.compacted": True} if is_compacted else {})}
