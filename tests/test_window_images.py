"""A limit on pictures: the oldest leave for files, a line stands in the place of each, and no byte is lost."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from window_forms import FORMS, NAMES, Form, picture, spelled, view

from buoyline import ContextConfig, ContextWindow, LocalWorkspace
from buoyline.compression import Draft, SummaryRequest
from buoyline.errors import ConfigError, StorageError
from buoyline.messages import Media, Text
from buoyline.window import Event, ResultOffloaded

in_every_dialect = pytest.mark.parametrize("form", FORMS, ids=NAMES)


def opened(workdir: Path | None, form: Form, max_images: int | None, **options: Any) -> ContextWindow:
    offloader = None if workdir is None else LocalWorkspace(workdir, durability="off")
    config = ContextConfig(max_images=max_images, tool_result_limit=20_000)
    return ContextWindow(session_id="s1", offloader=offloader, config=config, dialect=form.name, **options)


def parts_of(form: Form, messages: list[Any]) -> list[Any]:
    """Return all texts and media of *messages*, those in results included, in order."""
    found: list[Any] = []
    for message in messages:
        for part in view(form, message).parts:
            found += part.parts if hasattr(part, "parts") else [part]
    return found


def pictures_in(form: Form, messages: list[Any]) -> list[bytes | None]:
    return [part.content() for part in parts_of(form, messages) if isinstance(part, Media)]


def paths_in(form: Form, messages: list[Any]) -> list[str]:
    texts = [part.text for part in parts_of(form, messages) if isinstance(part, Text)]
    return [found[1] for text in texts if (found := re.fullmatch(r"\[image: png, .*, (/\S+)\]", text))]


@in_every_dialect
async def test_the_oldest_pictures_leave_and_their_lines_lead_to_every_byte(tmp_path: Path, form: Form) -> None:
    events: list[Event] = []
    window = opened(tmp_path, form, 3, on_event=events.append)
    sent = [
        form.user("see", picture(0)),
        form.calling("c1"),
        *form.answering({"c1": ["a note", picture(1), picture(2)]}),
        form.user(picture(3), "and", picture(4)),
    ]
    for message in sent:
        await window.add(message)
    prepared = await window.prepare()

    assert pictures_in(form, prepared) == [picture(2), picture(3), picture(4)]
    assert [Path(path).read_bytes() for path in paths_in(form, prepared)] == [picture(0), picture(1)]
    assert prepared[1] is sent[1]
    assert prepared[3] is sent[3]
    assert [event.message for event in events if isinstance(event, ResultOffloaded)] == [0, 2]
    assert "see" in str(prepared[0])
    assert "a note" in str(prepared[2])
    assert pictures_in(form, sent) == [picture(number) for number in range(5)], "the caller's messages are not changed"


@in_every_dialect
async def test_what_is_shown_stays_until_the_next_picture_too_many_and_then_a_quarter_leaves(
    tmp_path: Path, form: Form
) -> None:
    window = opened(tmp_path, form, 8)
    shown: list[list[str]] = []
    for number in range(16):
        await window.add(form.user(picture(number)))
        prepared = await window.prepare()
        assert len(pictures_in(form, prepared)) <= 8
        assert await window.prepare() == prepared
        shown.append(spelled(prepared))

    changes = [at for at in range(1, 16) if shown[at][: len(shown[at - 1])] != shown[at - 1]]
    assert changes == [8, 10, 12, 14], "two leave at once, so each second picture changes nothing"


@in_every_dialect
async def test_another_process_sees_the_same_pictures_and_the_same_lines(tmp_path: Path, form: Form) -> None:
    window = opened(tmp_path, form, 2)
    for number in range(5):
        await window.add(form.user(f"n{number}", picture(number)))
        await window.prepare()
    resumed = await ContextWindow.resume(LocalWorkspace(tmp_path, durability="off"), "s1")

    assert resumed.config.max_images == 2
    assert spelled(await resumed.prepare()) == spelled(window.messages)


@in_every_dialect
async def test_pinned_pictures_stay_and_count(tmp_path: Path, form: Form) -> None:
    window = opened(tmp_path, form, 2)
    await window.add(form.user(picture(0)), pinned=True)
    for number in (1, 2, 3):
        await window.add(form.user(picture(number)))
    assert pictures_in(form, await window.prepare()) == [picture(0), picture(3)]
    await window.compress(before=3)
    await window.add(form.user(picture(4)))
    assert pictures_in(form, await window.prepare()) == [picture(0), picture(4)]


@in_every_dialect
async def test_more_pinned_pictures_than_there_may_be_are_handed_out_and_nothing_loops(
    tmp_path: Path, form: Form
) -> None:
    window = opened(tmp_path, form, 1)
    for number in range(3):
        await window.add(form.user(picture(number)), pinned=True)
    assert len(pictures_in(form, await window.prepare())) == 3
    assert len(await window.prepare()) == 3


@in_every_dialect
async def test_pictures_that_are_archived_already_leave_with_their_messages(tmp_path: Path, form: Form) -> None:
    class Down:
        async def summarize(self, _: SummaryRequest) -> Draft:
            raise ConnectionError

    window = opened(tmp_path, form, 4, size=20_000, summarizer=Down())
    for number in range(4):
        await window.add(form.user(f"number {number} " * 200, picture(number)))
    await window.prepare()
    with pytest.raises(ConnectionError):
        await window.compress(force=True)
    assert window._context.state.attempted_until > 0
    window._engine.compaction.compressor._summarizer = window._engine.compaction.compressor._fallback
    await window.add(form.user(picture(5)))
    prepared = await window.prepare()

    assert len(pictures_in(form, prepared)) <= 4
    assert picture(5) in pictures_in(form, prepared)


@in_every_dialect
async def test_a_failed_write_leaves_every_picture_where_it_was(
    tmp_path: Path, form: Form, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[Event] = []
    window = opened(tmp_path, form, 1, on_event=events.append)
    sent = [form.user(picture(number)) for number in range(3)]
    for message in sent:
        await window.add(message)

    async def refuse(*_: Any, **__: Any) -> None:
        raise StorageError(5, "broken", "window.jsonl")

    with monkeypatch.context() as broken:
        broken.setattr(LocalWorkspace, "replace_window", refuse)
        with pytest.raises(StorageError):
            await window.prepare()
    assert all(found is message for found, message in zip(window.messages, sent, strict=True))
    assert events == [], "nobody is told of what did not happen"
    assert len(pictures_in(form, await window.prepare())) == 1
    assert len(events) == 2


@in_every_dialect
async def test_without_an_offloader_a_line_says_what_was_there_and_one_warning_that_it_is_lost(form: Form) -> None:
    window = opened(None, form, 1)
    for number in range(3):
        await window.add(form.user(picture(number)))
    with pytest.warns(UserWarning, match="lost") as caught:
        prepared = await window.prepare()
    assert len(caught) == 1
    assert pictures_in(form, prepared) == [picture(2)]
    assert f"[image: png, {len(picture(0))} bytes]" in str(prepared[0])


async def test_a_plain_offloader_gets_the_pictures_and_its_reference_is_named() -> None:
    kept: dict[str, Any] = {}

    class Plain:
        async def offload_context(self, session_id: str, msgs: list[Any], **_: Any) -> str:
            return "s3://archive"

        async def offload_tool_result(self, session_id: str, tool_result: Any, **_: Any) -> str:
            kept[tool_result.id] = tool_result
            return f"s3://{tool_result.id}"

    window = ContextWindow(session_id="s1", offloader=Plain(), config=ContextConfig(max_images=0))
    await window.add(FORMS[0].user("see", picture(0)))
    (message,) = await window.prepare()
    assert "s3://message-0" in str(message)
    assert [part.content() for part in kept["message-0"].parts if isinstance(part, Media)] == [picture(0)]


async def test_a_picture_that_is_elsewhere_counts_and_its_address_stays(tmp_path: Path) -> None:
    window = opened(tmp_path, FORMS[0], 0)
    block = {"type": "image_url", "image_url": {"url": "https://example.org/buoy.png"}}
    await window.add({"role": "user", "content": [block]})
    (message,) = await window.prepare()
    assert "https://example.org/buoy.png" in str(message)
    assert "image_url" not in str(message)


async def test_any_number_of_pictures_stays_where_no_limit_is_set(tmp_path: Path) -> None:
    window = opened(tmp_path, FORMS[0], None, size=1_000_000)
    for number in range(120):
        await window.add(FORMS[0].user(picture(number)))
    assert len(pictures_in(FORMS[0], await window.prepare())) == 120


def test_a_limit_that_is_no_number_is_refused() -> None:
    for limit in (-1, 1.5, True):
        with pytest.raises(ConfigError, match="max_images"):
            ContextConfig(max_images=limit)  # type: ignore[arg-type]


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    turns=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), max_size=12),
    limit=st.integers(0, 9),
    form=st.sampled_from(FORMS),
)
def test_the_limit_holds_whatever_comes_and_the_newest_stay(
    tmp_path_factory: pytest.TempPathFactory, turns: list[list[int]], limit: int, form: Form
) -> None:
    asyncio.run(_live(tmp_path_factory.mktemp("w"), turns, limit, form))


async def _live(workdir: Path, turns: list[list[int]], limit: int, form: Form) -> None:
    window, count = opened(workdir, form, limit, size=1_000_000), 0
    for turn in turns:
        for pictures in turn:
            await window.add(form.user("text", *(picture(count + number) for number in range(pictures))))
            count += pictures
        prepared = await window.prepare()
        shown = pictures_in(form, prepared)
        assert len(shown) <= limit
        assert shown == [picture(number) for number in range(count - len(shown), count)]
        assert len(shown) >= min(limit - limit // 4, count)
        left = [Path(path).read_bytes() for path in paths_in(form, prepared)]
        assert left + shown == [picture(number) for number in range(count)]
    if turns:
        resumed = await ContextWindow.resume(LocalWorkspace(workdir, durability="off"), "s1")
        assert spelled(resumed.messages) == spelled(window.messages)
