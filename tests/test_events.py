"""What a window tells of what it does: its one hook, the log, and spans."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from buoyline.compression import ContextConfig, Draft, SummaryRequest
from buoyline.errors import ConfigError, SummaryError
from buoyline.inspect.telemetry import traced
from buoyline.testing.conversation import long_conversation, said
from buoyline.window import (
    ContextCompressed,
    ContextWindow,
    Event,
    MessagesArchived,
    OverflowRecovered,
    ResultOffloaded,
    SummaryFellBack,
    WindowResumed,
)
from buoyline.workspace import LocalWorkspace

SECRET = "hunter2-swordfish"
SIZE = 8_000


class Refusing:
    """A model's summariser whose model is away."""

    async def summarize(self, request: SummaryRequest) -> Draft:
        raise SummaryError("a model", "answered nothing")


class Claiming:
    """A summariser that states what stands in no message."""

    async def summarize(self, request: SummaryRequest) -> Draft:
        text = "The port is 48151 and chart 3 is read."
        return Draft("claiming", dict.fromkeys(request.fields, text))


@pytest.fixture
async def workspace(tmp_path: Path) -> LocalWorkspace:
    return LocalWorkspace(tmp_path / "w", durability="off")


async def fed(workspace: LocalWorkspace, turns: int, **settings: Any) -> tuple[ContextWindow, list[Event]]:
    """Return a window that a long conversation went through, and what it told."""
    events: list[Event] = []
    window = ContextWindow(
        session_id="s",
        offloader=workspace,
        size=SIZE,
        config=ContextConfig(tool_result_limit=400, preview_tokens=200),
        **{"on_event": events.append, **settings},
    )
    for message in long_conversation(turns):
        await window.add(message)
        await window.prepare()
    return window, events


def of_kind(events: list[Event], *kinds: type[Event]) -> list[Event]:
    return [event for event in events if isinstance(event, kinds)]


async def test_a_compression_is_told_step_by_step_with_tokens_before_and_after(workspace: LocalWorkspace) -> None:
    _, events = await fed(workspace, 30)
    steps = [event for event in events if not isinstance(event, ResultOffloaded)]
    assert len(steps) >= 2
    assert [type(event) for event in steps] == [MessagesArchived, ContextCompressed] * (len(steps) // 2)
    archived, compressed = steps[:2]
    assert isinstance(archived, MessagesArchived)
    assert isinstance(compressed, ContextCompressed)
    assert archived.messages == compressed.summary.messages
    assert Path(archived.reference).is_file()
    assert archived.tokens == compressed.summary.source_tokens
    assert compressed.tokens_after < 0.8 * SIZE < compressed.tokens_before
    assert compressed.duration_s > 0


async def test_a_summariser_that_fails_is_told_with_its_reason(workspace: LocalWorkspace) -> None:
    _, events = await fed(workspace, 30, summarizer=Refusing())
    first = next(place for place, event in enumerate(events) if isinstance(event, MessagesArchived))
    archived, failed, compressed = events[first : first + 3]
    assert isinstance(failed, SummaryFellBack)
    assert (failed.summarizer, failed.reason) == ("a model", "answered nothing")
    assert isinstance(archived, MessagesArchived)
    assert (failed.messages, failed.source_tokens) == (archived.messages, archived.tokens)
    assert isinstance(compressed, ContextCompressed)
    assert compressed.summary.draft.summarizer == "extractive"


async def test_what_a_summary_claims_without_backing_is_told(workspace: LocalWorkspace) -> None:
    _, events = await fed(workspace, 30, summarizer=Claiming())
    compressed = of_kind(events, ContextCompressed)[0]
    assert isinstance(compressed, ContextCompressed)
    assert compressed.summary.unverified == ("48151",)


async def test_a_recovery_from_an_overflow_and_a_resumption_are_told(workspace: LocalWorkspace) -> None:
    window, events = await fed(workspace, 10)
    before = window.tokens
    await window.recover_from_overflow()
    last = events[-1]
    assert isinstance(last, OverflowRecovered)
    assert (last.tokens_before, last.tokens_after) == (before, window.tokens)
    assert last.tokens_after <= 0.9 * last.tokens_before

    again: list[Event] = []
    resumed = await ContextWindow.resume(workspace, "s", on_event=again.append)
    (event,) = again
    assert event == WindowResumed("s", 40, resumed.added - len(resumed.messages) + 1, resumed.tokens)


async def test_what_a_hook_raises_comes_out_of_the_call_and_the_next_one_goes_on(workspace: LocalWorkspace) -> None:
    is_broken = True

    def hook(event: Event) -> None:
        if is_broken and isinstance(event, MessagesArchived):
            raise RuntimeError("full")

    window = ContextWindow(session_id="s", offloader=workspace, size=SIZE, on_event=hook)
    for message in long_conversation(16):
        await window.add(message)
    with pytest.raises(RuntimeError, match="full"):
        await window.prepare()
    assert len(window.messages) == 64
    is_broken = False
    assert len(await window.prepare()) < 64
    assert len(await workspace.load_messages("s", 0, 64)) + len(window.messages) - 1 == 64


async def test_the_log_says_what_happened_and_never_what_was_said(
    workspace: LocalWorkspace, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "buoyline")
    window, _ = await fed(workspace, 0, summarizer=Refusing())
    for turn in range(34):
        await window.add(said(f"{SECRET} {turn} " + "calm sea " * 200))
        await window.prepare()
    await window.recover_from_overflow()
    await ContextWindow.resume(workspace, "s")
    levels = {record.levelname for record in caplog.records}
    assert levels == {"DEBUG", "INFO", "WARNING"}
    assert {record.name for record in caplog.records if record.levelname != "DEBUG"} == {
        "buoyline.window.events",
        "buoyline.compression.compressor",
    }
    assert SECRET not in caplog.text
    assert "summary 1 took the place of messages 0-" in caplog.text
    assert "tokens overflowed" in caplog.text
    assert "session s: resumed with 34 messages" in caplog.text


async def test_an_offloaded_result_is_logged_for_those_who_debug(
    workspace: LocalWorkspace, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "buoyline.window.offloading")
    await fed(workspace, 1)
    (record,) = caplog.records
    assert "tool_result-call_0.txt" in record.getMessage()
    assert "fathoms" not in record.getMessage()


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


async def test_every_event_becomes_a_span_within_the_agents_own(workspace: LocalWorkspace, spans: Any) -> None:
    exporter, tracer = spans
    events: list[Event] = []
    with tracer.start_as_current_span("agent") as agent:
        hook = traced(events.append, tracer, session_id="s")
        window, _ = await fed(workspace, 30, on_event=hook, summarizer=Refusing())
        await window.recover_from_overflow()
        await ContextWindow.resume(workspace, "s", on_event=hook)
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
    assert compacted == {"buoyline.context_compressed", "buoyline.overflow_recovered"}
    assert "fathoms" not in repr([dict(span.attributes) for span in finished])


def test_no_span_holds_the_text_of_a_message(spans: Any) -> None:
    exporter, tracer = spans
    hook = traced(tracer=tracer)
    hook(ResultOffloaded(3, "", "", "/w/x", 5_000, 200, stub=SECRET))
    hook(SummaryFellBack((0, 9), "model", reason=SECRET, source_tokens=90))
    assert SECRET not in repr([dict(span.attributes) for span in exporter.get_finished_spans()])


def test_without_a_tracer_the_process_own_is_taken() -> None:
    pytest.importorskip("opentelemetry.trace", reason="opentelemetry-api is not installed")
    traced()(OverflowRecovered(10, 9))


def test_without_opentelemetry_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry", None)
    with pytest.raises(ConfigError, match=r"needs the extra 'otel'"):
        traced()
