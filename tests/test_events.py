"""What a window tells of what it does: its one hook, the log, and spans."""

import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from buoyline import ContextConfig, ContextWindow, MemoryWorkspace
from buoyline.compression import Draft, SummaryRequest
from buoyline.errors import MissingExtraError, SummaryError
from buoyline.inspect.telemetry import traced
from buoyline.testing.suites import long_conversation
from buoyline.window import ContextCompressed, Event, HistoryForked, ResultOffloaded

SECRET = "hunter2-swordfish"
SIZE = 8_000


class Refusing:
    """A model's summarizer whose model is away."""

    async def summarize(self, request: SummaryRequest) -> Draft:
        raise SummaryError("a model", "answered nothing")


async def fed(turns: int, **settings: Any) -> tuple[ContextWindow, list[Event]]:
    """Return a window that a long conversation went through, and what it told."""
    events: list[Event] = []
    config = ContextConfig(tool_result_limit=400, preview_tokens=200)
    options = {"size": SIZE, "config": config, "on_event": events.append, **settings}
    window = await ContextWindow.open(MemoryWorkspace(), "s", **options)
    for message in long_conversation(turns):
        await window.add(message)
        if message["role"] != "assistant":
            await window.prepare()
    return window, events


async def test_a_compaction_is_told_with_tokens_before_and_after() -> None:
    _, events = await fed(30, summarizer=Refusing())
    told = [event for event in events if isinstance(event, ContextCompressed)]
    assert told
    for event in told:
        assert event.tokens_after < 0.8 * SIZE < event.tokens_before
        assert event.duration_s > 0
        assert "answered nothing" in event.fell_back
        assert event.messages == event.summary.messages


async def test_the_log_says_what_happened_and_never_what_was_said(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "buoyline.window.events")
    window, _ = await fed(30)
    said = [{"role": "user", "content": f"{SECRET} {number} " + "calm sea " * 200} for number in range(30)]
    await window.extend(said)
    await window.prepare()
    await window.follow(said[:1])
    lines = [(record.levelname, record.getMessage().split(maxsplit=3)[2]) for record in caplog.records]
    assert {*lines} == {("INFO", "ResultOffloaded"), ("INFO", "ContextCompressed"), ("WARNING", "HistoryForked")}
    assert SECRET not in caplog.text
    assert "fathoms" not in caplog.text


@pytest.fixture
def spans() -> Iterator[Any]:
    """Yield what keeps the finished spans of a provider of its own, and a tracer of it."""
    pytest.importorskip("opentelemetry.sdk.trace", reason="opentelemetry-sdk is not installed")
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - skipped without it
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: PLC0415
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter  # noqa: PLC0415

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield exporter, provider.get_tracer("test")
    provider.shutdown()


async def test_every_event_becomes_a_span_within_the_agents_own(spans: Any) -> None:
    exporter, tracer = spans
    events: list[Event] = []
    with tracer.start_as_current_span("agent") as agent:
        await fed(30, on_event=traced(events.append, tracer, session_id="s"), summarizer=Refusing())
    *finished, _ = exporter.get_finished_spans()
    assert len(finished) == len(events)
    assert {span.parent.span_id for span in finished} == {agent.get_span_context().span_id}
    assert {span.attributes["gen_ai.conversation.id"] for span in finished} == {"s"}
    by_name = {span.name: span for span in finished}
    offloading, compression = by_name["buoyline.result_offloaded"], by_name["buoyline.context_compressed"]
    assert offloading.attributes["buoyline.tool"] == "read"
    assert offloading.attributes["buoyline.stub_tokens"] < offloading.attributes["buoyline.tokens"]
    assert compression.end_time > compression.start_time
    compacted = {span.name for span in finished if span.attributes.get("gen_ai.conversation.compacted") is True}
    assert compacted == {"buoyline.context_compressed"}
    assert "fathoms" not in repr([dict(span.attributes) for span in finished])


def test_no_span_holds_the_text_of_a_message(spans: Any) -> None:
    exporter, tracer = spans
    traced(tracer=tracer)(ResultOffloaded(3, "", "", "/w/x", 5_000, 200, stub=SECRET))
    assert SECRET not in repr([dict(span.attributes) for span in exporter.get_finished_spans()])


def test_without_a_tracer_the_process_own_is_taken() -> None:
    pytest.importorskip("opentelemetry.trace", reason="opentelemetry-api is not installed")
    traced()(HistoryForked(10, 9))


def test_without_opentelemetry_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    with pytest.raises(MissingExtraError, match="otel"):
        traced()
