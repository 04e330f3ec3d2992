import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from buoyline.messages import Media, Message, Opaque, Reasoning, Text, ToolCall, ToolResult, spell
from buoyline.messages.model import Part
from buoyline.messages.registry import detect
from buoyline.tokens import default_counter
from buoyline.tokens.counter import count_message, count_tools

COUNTER = default_counter()
FRAME = count_message(Message("user", ()), COUNTER)
SEALED = base64.b64encode(bytes(at * at * 7919 % 251 for at in range(3_000))).decode("ascii")

texts = st.text(max_size=20)
contents = st.one_of(
    st.builds(Text, texts),
    st.builds(Media, st.sampled_from(["image", "audio", "document"]), texts, st.integers(0, 10**6)),
    st.builds(Opaque, texts, texts),
)
parts = st.one_of(
    contents,
    st.builds(Reasoning, texts),
    st.builds(ToolCall, texts, texts, texts),
    st.builds(ToolResult, texts, texts, st.lists(contents, max_size=3).map(tuple)),
)
part_lists = st.lists(parts, max_size=4)

TOOL = {
    "type": "function",
    "function": {"name": "read", "description": "Read a file.", "parameters": {"type": "object", "properties": {}}},
}


class Tool(BaseModel):
    """Stands for a tool's definition as a framework has it."""

    name: str
    description: str


def _count(*found: Part) -> int:
    return count_message(Message("user", found), COUNTER)


@given(part_lists, part_lists)
def test_the_parts_of_a_message_add_up(first: list[Part], second: list[Part]) -> None:
    assert _count(*first, *second) - FRAME == (_count(*first) - FRAME) + (_count(*second) - FRAME)


@given(part_lists, parts)
def test_no_part_makes_a_message_cheaper(others: list[Part], part: Part) -> None:
    assert _count(*others, part) >= _count(*others) >= FRAME > 0


@given(texts)
def test_text_and_reasoning_take_what_their_words_take(text: str) -> None:
    assert _count(Text(text)) == _count(Reasoning(text)) == FRAME + COUNTER.count(text)


@given(texts, texts)
def test_a_call_takes_its_name_its_arguments_and_something_around_them(name: str, arguments: str) -> None:
    bare = _count(ToolCall("c", "", ""))
    assert bare > FRAME
    assert _count(ToolCall("c", name, arguments)) == bare + COUNTER.count(name) + COUNTER.count(arguments)


@given(st.lists(contents, max_size=3))
def test_a_result_takes_all_that_is_in_it_and_something_around_it(inner: list[Text | Media | Opaque]) -> None:
    bare = _count(ToolResult("c", "", ()))
    assert bare > FRAME
    assert _count(ToolResult("c", "", tuple(inner))) - bare == _count(*inner) - FRAME


@pytest.mark.parametrize("size_bytes", [0, 8, 10_000_000])
def test_an_image_is_not_free_and_not_as_large_as_its_file(size_bytes: int) -> None:
    """A model sees it at a resolution of its own, so the size of the file says nothing."""
    assert _count(Media("image", "image/png", size_bytes)) - FRAME == 1_600


@pytest.mark.parametrize("kind", ["audio", "document", "video"])
def test_other_media_take_at_least_as_much_as_an_image_and_more_the_larger_they_are(kind: str) -> None:
    assert _count(Media(kind, "", 0)) == _count(Media("image", "", 0))
    assert _count(Media(kind, "", 10_000_000)) > _count(Media(kind, "", 1_000_000)) > _count(Media(kind, "", 0))


@pytest.mark.parametrize(
    "block",
    [
        {"type": "redacted_thinking", "data": SEALED},
        {"reasoningContent": {"redactedContent": {"__bytes_encoded__": True, "data": SEALED}}},
        {"type": "web_search_tool_result", "content": [{"type": "web_search_result", "encrypted_content": SEALED}]},
    ],
)
def test_what_only_the_provider_can_read_takes_a_token_for_three_bytes(block: dict[str, object]) -> None:
    view = detect(message := {"role": "assistant", "content": [block]}).view(message)
    assert 1_000 < count_message(view, COUNTER) < 1_050
    assert COUNTER.count(SEALED) > 2_000


def test_the_name_of_the_speaker_counts() -> None:
    named = Message("user", (Text("hi"),), "Ada Lovelace")
    assert count_message(named, COUNTER) == _count(Text("hi")) + COUNTER.count("Ada Lovelace")


@given(st.lists(st.fixed_dictionaries({"name": texts, "n": st.integers()}), max_size=4))
def test_tools_take_their_json_and_something_around_each(tools: list[dict[str, object]]) -> None:
    around = count_tools([{}], COUNTER) - COUNTER.count("{}")
    assert around > 0
    assert count_tools(tools, COUNTER) == sum(around + COUNTER.count(spell(tool)) for tool in tools)


def test_a_tool_may_be_a_model() -> None:
    tool = Tool(name="read", description="Read a file.")
    assert count_tools([tool], COUNTER) == count_tools([tool.model_dump()], COUNTER)
    assert count_tools([tool, TOOL], COUNTER) == count_tools([tool], COUNTER) + count_tools([TOOL], COUNTER)
