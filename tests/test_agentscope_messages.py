"""AgentScope's messages as they are read, written, counted and changed: its own objects, and their JSON."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("agentscope", reason="agentscope is an extra for tests")

from agentscope.message import (
    AssistantMsg,
    Base64Source,
    DataBlock,
    HintBlock,
    Msg,
    SystemMsg,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    URLSource,
    UserMsg,
)
from pydantic import AnyUrl

from buoyline.compression.compressor import legal_cuts, pair_spans
from buoyline.errors import MessageError
from buoyline.messages import Media, Message, Opaque, Reasoning, Text, ToolCall, ToolResult, spell
from buoyline.messages.jsonl import parse
from buoyline.messages.model import Note, Part
from buoyline.messages.registry import detect, dialect_named, read_result
from buoyline.offloader.transcript import render

AGENTSCOPE = dialect_named("agentscope")
PNG_BASE64 = "iVBORw0KGgo="  # 8 bytes


def image() -> DataBlock:
    return DataBlock(name="chart", source=Base64Source(data=PNG_BASE64, media_type="image/png"))


def linked(url: str, media_type: str) -> DataBlock:
    return DataBlock(source=URLSource(url=AnyUrl(url), media_type=media_type))


def call(call_id: str = "call_1", arguments: str = '{"path": "a"}') -> ToolCallBlock:
    return ToolCallBlock(id=call_id, name="read", input=arguments)


def result(output: Any, call_id: str = "call_1", state: Any = "success") -> ToolResultBlock:
    return ToolResultBlock(id=call_id, name="read", output=output, state=state)


def said(*blocks: Any) -> Msg:
    return AssistantMsg("Friday", list(blocks))


def with_both_forms(message: Msg) -> list[Any]:
    return [message, json.loads(message.model_dump_json())]


@pytest.mark.parametrize("message", with_both_forms(UserMsg("ada", "hi")))
def test_a_users_message_is_read(message: Any) -> None:
    assert detect(message) is AGENTSCOPE
    assert AGENTSCOPE.view(message) == Message("user", (Text("hi"),), "ada")


def test_a_system_message_is_read_and_a_name_that_repeats_the_role_is_none() -> None:
    assert AGENTSCOPE.view(SystemMsg("system", "Be brief.")) == Message("system", (Text("Be brief."),))


@pytest.mark.parametrize(
    ("block", "parts"),
    [
        (TextBlock(text="hi"), [Text("hi")]),
        (ThinkingBlock.model_validate({"thinking": "Hm.", "signature": "s"}), [Reasoning("Hm.")]),
        (call(), [ToolCall("call_1", "read", '{"path": "a"}')]),
        (call(arguments='{"a": '), [ToolCall("call_1", "read", '{"a": ')]),
        (image(), [Media("image", "image/png", 8, name="chart")]),
        (linked("https://x/a.mp4", "video/mp4"), [Media("video", "video/mp4", 0, "https://x/a.mp4")]),
        (linked("https://x/a.wav", "audio/wav"), [Media("audio", "audio/wav", 0, "https://x/a.wav")]),
        (linked("file:///a.pdf", "application/pdf"), [Media("document", "application/pdf", 0, "file:///a.pdf")]),
        (HintBlock(hint="Go on."), [Note("Go on.")]),
        (HintBlock(hint=[TextBlock(text="See"), TextBlock(text="this")]), [Note("See\nthis")]),
        (HintBlock(hint=[]), [Note("")]),
        (result("out"), [ToolResult("call_1", "read", (Text("out"),))]),
        (
            result([TextBlock(text="out"), image()]),
            [ToolResult("call_1", "read", (Text("out"), Media("image", "image/png", 8, name="chart")))],
        ),
        (result([]), [ToolResult("call_1", "read", ())]),
    ],
)
def test_each_kind_of_block_is_read(block: Any, parts: Sequence[Part]) -> None:
    """Beside a text, so that it is the assistant's message whatever it is."""
    for message in with_both_forms(said(block, TextBlock(text="."))):
        assert detect(message) is AGENTSCOPE
        assert AGENTSCOPE.view(message) == Message("assistant", (*parts, Text(".")), "Friday")


def test_a_result_is_an_error_by_its_state() -> None:
    states = ("success", "running", "error", "denied", "interrupted")
    failed = [state for state in states if read_result(result("out", state=state)).is_error]
    assert failed == ["error", "denied", "interrupted"]


def test_a_message_of_results_alone_is_the_tools_and_one_of_hints_the_users() -> None:
    assert AGENTSCOPE.view(said(result("a"), result("b", "call_2"))).role == "tool"
    assert AGENTSCOPE.view(said(HintBlock(hint="a"), HintBlock(hint=[image()]))).role == "user"
    assert AGENTSCOPE.view(said(call(), result("a"))).role == "assistant"
    assert AGENTSCOPE.view(said()).role == "assistant"


def test_a_hint_is_nobodys_words() -> None:
    """A summary would quote the framework's reminders as what the assistant has reported."""
    view = AGENTSCOPE.view(said(HintBlock(hint="It is noon."), TextBlock(text="Buoy 7 is charted.")))
    assert view.text == "Buoy 7 is charted."
    assert "It is noon." in view.spoken
    (lines,) = render([view], 0, [""], lambda _: None)
    assert lines[1:5] == ["(note)", "It is noon.", "(end of note)", "Buoy 7 is charted."]


def test_an_unknown_block_is_carried_along() -> None:
    message = {**UserMsg("ada", "hi").model_dump(mode="json"), "content": [{"type": "hologram", "n": 1}, 5]}
    assert AGENTSCOPE.view(message).parts == (Opaque("hologram", '{"type":"hologram","n":1}'), Opaque("int", "5"))


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": "hi"},
        {"role": "user", "name": "ada", "content": [{"type": "text", "text": "hi"}]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm.", "signature": "s"}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "out"}]},
        {"role": "assistant", "content": [{"type": "tool_call", "id": "c", "name": "f", "args": {}}]},
        {"role": "assistant", "content": [{"type": "data"}], "id": "msg_1", "model": "m", "type": "message"},
        {"role": "assistant", "content": [{"type": ["hint"]}]},
    ],
)
def test_a_message_of_another_dialect_is_none_of_agentscopes(message: dict[str, Any]) -> None:
    assert detect(message) is not AGENTSCOPE
    assert not AGENTSCOPE.detects_result(message)


def test_a_result_block_stands_alone_as_an_object_and_as_json() -> None:
    block = result([TextBlock(text="a"), TextBlock(text="b")])
    expected = ToolResult("call_1", "read", (Text("a"), Text("b")))
    for given_result in (block, block.model_dump(mode="json"), said(block)):
        assert read_result(given_result) == expected
    with pytest.raises(MessageError, match="no tool result alone: it holds 2"):
        read_result(said(block, block))


def test_calls_and_results_pair_within_a_message_and_across_one_that_was_cut() -> None:
    """AgentScope keeps them in one message, and cuts it into two with one id."""
    whole = said(call(), result("a"), call("call_2"), result("b", "call_2"))
    early, late = whole.model_copy(), whole.model_copy()
    early.content, late.content = whole.content[:3], whole.content[3:]
    assert pair_spans([AGENTSCOPE.view(whole)]) == []
    views = [AGENTSCOPE.view(message) for message in (early, late, UserMsg("ada", "Thanks."))]
    assert early.id == late.id
    assert pair_spans(views) == [(0, 1)]
    assert legal_cuts(views) == [2]


def test_a_new_user_message_is_the_same_message_each_time_and_one_of_the_frameworks() -> None:
    message = AGENTSCOPE.user_message("hi")
    assert isinstance(message, Msg)
    assert message == AGENTSCOPE.user_message("hi") != AGENTSCOPE.user_message("ho")
    assert detect(message) is AGENTSCOPE


def test_a_new_result_message_is_one_of_the_frameworks() -> None:
    message = AGENTSCOPE.tool_result_message("call_1", "out", "read")
    assert isinstance(message, Msg)
    assert AGENTSCOPE.view(message) == Message("tool", (ToolResult("call_1", "read", (Text("out"),)),), "")


def test_json_comes_back_as_the_message_it_was() -> None:
    message = said(call(), result([image()]), HintBlock(hint=[image()]))
    found = AGENTSCOPE.from_json(parse(spell(AGENTSCOPE.to_json(message))))
    assert isinstance(found, Msg)
    assert found == message


def test_json_that_the_framework_does_not_take_stays_json() -> None:
    fields = {"name": "Friday", "id": "m1", "created_at": "2026-01-01T00:00:00"}
    message = {"role": "assistant", "content": [{"type": "tool_call", "input": "{}"}], **fields}
    assert detect(message) is AGENTSCOPE
    assert AGENTSCOPE.from_json(message) == message


def test_without_agentscope_a_new_message_is_the_json_of_the_same_message() -> None:
    code = (
        "from buoyline.messages import spell\n"
        "from buoyline.messages.registry import dialect_named\n"
        "import sys\n"
        "print(spell(dialect_named('agentscope').user_message('hi')))\n"
        "assert not [name for name in sys.modules if name.startswith(('agentscope', 'pydantic'))]\n"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert AGENTSCOPE.from_json(parse(shown.stdout)) == AGENTSCOPE.user_message("hi")


texts = st.text(st.characters(codec="utf-8"), max_size=10)
media_blocks = st.builds(image) | st.builds(lambda: linked("https://x/a.png", "image/png"))
inner_blocks = st.lists(st.builds(TextBlock, text=texts) | media_blocks, max_size=4)
outputs = texts | inner_blocks
blocks = st.one_of(
    st.builds(TextBlock, text=texts),
    st.builds(lambda text: ThinkingBlock.model_validate({"thinking": text, "signature": text}), texts),
    st.builds(call, texts, texts),
    st.builds(result, outputs, texts, st.sampled_from(["success", "error", "running"])),
    st.builds(HintBlock, hint=outputs),
    media_blocks,
)
messages = st.one_of(
    st.builds(said).flatmap(lambda _: st.lists(blocks, max_size=5).map(lambda found: said(*found))),
    st.builds(UserMsg, texts, inner_blocks, metadata=st.dictionaries(texts, st.floats() | texts, max_size=2)),
)


@given(messages)
def test_a_message_is_written_as_the_framework_writes_it(message: Msg) -> None:
    written = AGENTSCOPE.to_json(message)
    assert written == json.loads(message.model_dump_json())
    assert list(written) == list(json.loads(message.model_dump_json()))
    assert AGENTSCOPE.view(written) == AGENTSCOPE.view(message)
    assert Msg.model_validate_json(spell(written)) == Msg.model_validate_json(message.model_dump_json())


@given(st.data(), messages, st.sampled_from(["object", "json"]))
def test_new_output_of_results_changes_nothing_else_and_leaves_the_others_the_same_objects(
    data: st.DataObject, message: Msg, form: str
) -> None:
    given_message: Any = message.model_dump(mode="json") if form == "json" else message
    before, view = message.model_dump_json(), AGENTSCOPE.view(message)
    chosen = data.draw(st.sets(st.sampled_from(range(len(view.results))))) if view.results else set()
    wanted: dict[int, list[str | int]] = {
        number: data.draw(st.lists(texts | st.sampled_from([*range(len(view.results[number].parts)), "stub"])))
        for number in chosen
    }

    changed = AGENTSCOPE.with_results(given_message, wanted)

    assert message.model_dump_json() == before
    assert isinstance(changed, dict if form == "json" else Msg)
    assert {**AGENTSCOPE.to_json(changed), "content": 0} == {**AGENTSCOPE.to_json(message), "content": 0}
    found = AGENTSCOPE.view(changed)
    for number, (old, new) in enumerate(zip(view.results, found.results, strict=True)):
        expected = [Text(block) if isinstance(block, str) else old.parts[block] for block in wanted.get(number, ())]
        assert new == (replace(old, parts=tuple(expected)) if number in wanted else old)
    _check_kept(_content(given_message), _content(changed), wanted)


def _check_kept(before: Sequence[Any], after: Sequence[Any], wanted: dict[int, list[str | int]]) -> None:
    number = -1
    for old, new in zip(before, after, strict=True):
        number += _get(old, "type") == "tool_result"
        if _get(old, "type") != "tool_result" or number not in wanted:
            assert new is old
            continue
        output = _get(old, "output")
        kept = [
            (output[block], place)
            for place, block in enumerate(wanted[number])
            if isinstance(block, int) and isinstance(output, list)
        ]
        assert all(_get(new, "output")[place] is block for block, place in kept)


def _content(message: Any) -> Any:
    return _get(message, "content")


def _get(value: Any, name: str) -> Any:
    return value[name] if isinstance(value, dict) else getattr(value, name)


@given(st.data(), messages, st.sampled_from(["object", "json"]))
def test_new_content_leaves_what_stays_the_same_objects(data: st.DataObject, message: Msg, form: str) -> None:
    given_message: Any = message.model_dump(mode="json") if form == "json" else message
    parts = AGENTSCOPE.view(message).parts
    leaving = data.draw(
        st.sets(st.sampled_from([n for n, part in enumerate(parts) if isinstance(part, (Text, Media))] or [-1]))
    )
    wanted = [f"stub {number}" if number in leaving else number for number in range(len(parts))]

    changed = AGENTSCOPE.with_content(given_message, wanted)

    found = AGENTSCOPE.view(changed).parts
    assert [part for number, part in enumerate(found) if number not in leaving] == [
        part for number, part in enumerate(parts) if number not in leaving
    ]
    assert {number: part.text for number, part in enumerate(found) if isinstance(part, Text) and number in leaving} == {
        number: f"stub {number}" for number in leaving if number >= 0
    }
    assert isinstance(changed, dict if form == "json" else Msg)
    for old, new in zip(_content(given_message), _content(changed), strict=True):
        assert new is old or _get(new, "id") == _get(old, "id")
        assert new is old or leaving


def test_one_stub_for_several_texts_takes_the_place_of_the_first() -> None:
    message = said(TextBlock(text="a"), HintBlock(hint=[TextBlock(text="b"), image()]), call(), HintBlock(hint="c"))
    changed = AGENTSCOPE.with_content(message, ["stub", 2, 3])
    assert [block.type for block in changed.content] == ["text", "tool_call", "hint"]
    assert changed.content[1] is message.content[2]


def test_a_message_that_says_nothing_gets_what_it_shall_say() -> None:
    changed = AGENTSCOPE.with_content(said(), ["stub"])
    assert [block.type for block in changed.content] == ["text"]
