import base64
import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buoyline.errors import ConfigError, MessageError
from buoyline.messages import Media, Message, Opaque, Reasoning, Text, ToolCall, ToolResult, convert, spell
from buoyline.messages.jsonl import parse
from buoyline.messages.model import Part
from buoyline.messages.registry import detect, dialect_named, dialect_names, read_result

OPENAI = dialect_named("openai")
ANTHROPIC = dialect_named("anthropic")

PNG_BASE64 = "iVBORw0KGgo="  # 8 bytes
PNG = base64.b64decode(PNG_BASE64)
REFERENCE = f"workspace:///data/{'0' * 64}.png"
IMAGE_URL = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG_BASE64}"}}
IMAGE: dict[str, Any] = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG_BASE64}}
CALL = {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a"}'}}
TOOL_USE = {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "a"}}


def text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def tool_message(content: Any, **others: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": "call_1", "content": content, **others}


def tool_result(content: Any, call_id: str = "toolu_1", **others: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **others}


@pytest.fixture
def openai_types() -> Any:
    return pytest.importorskip("openai.types.chat", reason="the openai package is an extra for tests")


@pytest.fixture
def anthropic_types() -> Any:
    return pytest.importorskip("anthropic.types", reason="the anthropic package is an extra for tests")


@pytest.mark.parametrize(
    ("role", "seen"),
    [
        ("system", "system"),
        ("developer", "system"),
        ("user", "user"),
        ("assistant", "assistant"),
        ("tool", "tool"),
    ],
)
def test_every_role_of_openai_is_known(role: str, seen: str) -> None:
    message = {"role": role, "content": "hi"}
    assert detect(message) is OPENAI
    assert OPENAI.view(message).role == seen


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("hi", (Text("hi"),)),
        ("", (Text(""),)),
        (None, ()),
        ([], ()),
        ([text_block("a"), text_block("b")], (Text("a"), Text("b"))),
        (["bare"], (Text("bare"),)),
        ([IMAGE_URL], (Media("image", "image/png", 8),)),
        ([{"type": "image_url", "image_url": {"url": "https://x/a.png"}}], (Media("image", "", 0, "https://x/a.png"),)),
        ([{"type": "image_url", "image_url": "https://x/a.png"}], (Media("image", "", 0, "https://x/a.png"),)),
        ([{"type": "image_url", "image_url": {"url": REFERENCE}}], (Media("image", "", 0, REFERENCE),)),
        (
            [{"type": "input_audio", "input_audio": {"data": PNG_BASE64, "format": "wav"}}],
            (Media("audio", "audio/wav", 8),),
        ),
        (
            [{"type": "file", "file": {"file_data": f"data:application/pdf;base64,{PNG_BASE64}", "filename": "a.pdf"}}],
            (Media("document", "application/pdf", 8, name="a.pdf"),),
        ),
        ([{"type": "file", "file": {"file_id": "file-1"}}], (Media("document", "", 0, "file-1"),)),
        ([{"type": "refusal", "refusal": "I will not."}], (Text("I will not."),)),
        ([{"type": "video", "video": 1}], (Opaque("video", '{"type":"video","video":1}'),)),
    ],
)
def test_content_of_openai_is_read(content: Any, parts: tuple[Part, ...]) -> None:
    message = {"role": "user", "content": content}
    assert detect(message) is OPENAI
    assert OPENAI.view(message) == Message("user", parts)


@pytest.mark.parametrize(
    ("block", "kind"),
    [
        (5, "int"),
        (None, "NoneType"),
        ([], "list"),
        ({}, "dict"),
        ({"type": None}, "dict"),
        ({"type": "text"}, "text"),
        ({"type": "text", "text": None}, "text"),
        ({"type": "input_audio"}, "input_audio"),
        ({"type": "refusal", "refusal": 1}, "refusal"),
    ],
)
def test_a_malformed_block_is_carried_along_and_counted(block: Any, kind: str) -> None:
    message = {"role": "user", "content": [block]}
    assert detect(message).view(message).parts == (Opaque(kind, spell(block)),)


def test_parallel_calls_are_read_behind_text_and_reasoning() -> None:
    message = {
        "role": "assistant",
        "content": "Two at once.",
        "reasoning_content": "I need both.",
        "tool_calls": [CALL, {**CALL, "id": "call_2"}],
    }
    view = detect(message).view(message)
    assert view.parts == (
        Reasoning("I need both."),
        Text("Two at once."),
        ToolCall("call_1", "read", '{"path": "a"}'),
        ToolCall("call_2", "read", '{"path": "a"}'),
    )
    assert [call.call_id for call in view.calls] == ["call_1", "call_2"]
    assert view.text == "Two at once."


def test_invalid_arguments_of_a_call_are_kept_as_the_provider_sent_them() -> None:
    message = {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "function": {"arguments": '{"a": '}}]}
    assert OPENAI.view(message).calls == (ToolCall("c", "", '{"a": '),)


def test_arguments_that_are_no_text_are_spelled_as_json() -> None:
    message = {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": {"a": 1}}}]}
    assert OPENAI.view(message).calls == (ToolCall("c", "f", '{"a":1}'),)


def test_a_custom_call_is_read_with_its_input() -> None:
    message = {
        "role": "assistant",
        "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "f", "input": "x"}}],
    }
    assert OPENAI.view(message).calls == (ToolCall("c", "f", "x"),)


def test_messages_of_compatible_libraries_are_read_with_all_that_the_model_wrote() -> None:
    langchain = {"name": "read", "args": {"path": "a"}, "id": "c1", "type": "tool_call"}
    assert OPENAI.view({"role": "assistant", "content": "", "tool_calls": [langchain]}).calls == (
        ToolCall("c1", "read", '{"path":"a"}'),
    )
    mistral = [{"type": "thinking", "thinking": [text_block("Hm."), text_block("So.")]}, text_block("Two.")]
    message = {"role": "assistant", "content": mistral}
    assert detect(message).view(message).parts == (Reasoning("Hm.\nSo."), Text("Two."))
    assert OPENAI.with_content(message, [0, "(a stub)"])["content"] == [mistral[0], text_block("(a stub)")]
    cohere = {"role": "assistant", "tool_plan": "I look.", "tool_calls": [langchain]}
    assert OPENAI.view(cohere).parts[0] == Reasoning("I look.")
    found = {"role": "tool", "tool_call_id": "c1", "content": [{"type": "document", "document": {"data": "7"}}]}
    assert OPENAI.view(found).results[0].text == "7"
    ollama = {"role": "assistant", "thinking": "Hm.", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}
    assert OPENAI.view(ollama).parts == (Reasoning("Hm."), ToolCall("", "f", "{}"))
    found = {"role": "tool", "tool_name": "f", "content": "7"}
    assert OPENAI.view(found).results == (ToolResult("", "f", (Text("7"),)),)


@pytest.mark.parametrize("calls", [None, "x", [None], [5], {}, []], ids=repr)
def test_calls_of_another_form_are_no_calls(calls: Any) -> None:
    assert OPENAI.view({"role": "assistant", "content": "hi", "tool_calls": calls}).calls == ()


@pytest.mark.parametrize("call", [{}, {"id": None, "function": None}, {"id": 5, "function": {"name": None}}], ids=repr)
def test_a_call_without_id_and_name_has_empty_ones(call: Any) -> None:
    """And not the word None, by which two of them would belong together."""
    assert OPENAI.view({"role": "assistant", "tool_calls": [call]}).calls == (ToolCall("", "", ""),)


def test_a_refusal_is_what_the_model_said() -> None:
    assert OPENAI.view({"role": "assistant", "content": None, "refusal": "No."}).text == "No."


def test_blocks_of_the_responses_api_are_read_as_those_of_chat() -> None:
    url = f"data:image/png;base64,{PNG_BASE64}"
    blocks = [
        {"type": "input_text", "text": "How deep?"},
        {"type": "input_image", "image_url": url, "detail": "auto"},
        {"type": "input_file", "filename": "a.pdf", "file_url": "https://x/a.pdf"},
    ]
    asked = {"role": "user", "content": blocks}
    view = OPENAI.view(asked)
    image, file = Media("image", "image/png", 8), Media("document", "", 0, "https://x/a.pdf", "a.pdf")
    assert view.parts == (Text("How deep?"), image, file)
    answer = {"role": "assistant", "content": [{"type": "output_text", "text": "7 fathoms", "annotations": []}]}
    assert OPENAI.view(answer).text == "7 fathoms"
    with_stub = OPENAI.with_content(asked, [0, "[image: a.png]", 2])
    assert with_stub["content"] == [blocks[0], {"type": "text", "text": "[image: a.png]"}, blocks[2]]
    assert with_stub["content"][0] is blocks[0]
    converted = convert([asked, answer], to="anthropic")
    assert converted.messages[0]["content"][1] == IMAGE
    assert converted.messages[1]["content"] == "7 fathoms"
    assert converted.losses == ()


def test_reasoning_is_read_once_under_either_name() -> None:
    message = {"role": "assistant", "content": None, "reasoning": "b", "reasoning_content": "a"}
    assert OPENAI.view(message).parts == (Reasoning("a"),)
    assert OPENAI.view({"role": "assistant", "reasoning": "b"}).parts == (Reasoning("b"),)


def test_a_tool_message_is_one_result_under_its_tools_name() -> None:
    message = tool_message("done", name="read")
    assert detect(message).view(message) == Message("tool", (ToolResult("call_1", "read", (Text("done"),)),), "read")


def test_text_blocks_of_a_result_begin_on_lines_of_their_own() -> None:
    message = tool_message([text_block("a"), text_block("b\n"), IMAGE_URL, text_block("c")])
    result = OPENAI.view(message).results[0]
    assert result.text == "a\nb\nc"
    assert result.parts[2] == Media("image", "image/png", 8)


def test_a_result_of_one_block_is_its_text_to_the_byte() -> None:
    assert OPENAI.view(tool_message([text_block(" a\r\n\n")])).results[0].text == " a\r\n\n"


def test_an_empty_result_has_no_text() -> None:
    assert OPENAI.view(tool_message(None)).results == (ToolResult("call_1", "", ()),)
    assert OPENAI.view(tool_message(None)).results[0].text == ""


@pytest.mark.parametrize(
    ("block", "part"),
    [
        (TOOL_USE, ToolCall("toolu_1", "read", '{"path":"a"}')),
        ({"type": "tool_use"}, ToolCall("", "", "{}")),
        ({"type": "tool_use", "id": None, "name": None, "input": None}, ToolCall("", "", "null")),
        ({"type": "thinking", "thinking": "Hm.", "signature": "abc"}, Reasoning("Hm.")),
        ({"type": "redacted_thinking", "data": "x"}, Reasoning("", hidden="x")),
        (IMAGE, Media("image", "image/png", 8)),
        ({"type": "image", "source": {"type": "url", "url": "https://x/a"}}, Media("image", "", 0, "https://x/a")),
        ({"type": "image", "source": {"type": "file", "file_id": "f1"}}, Media("image", "", 0, "f1")),
        ({"type": "image", "source": None}, Opaque("image", '{"type":"image","source":null}')),
        (
            {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PNG_BASE64}},
            Media("document", "application/pdf", 8),
        ),
        ({"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "plain"}}, Text("plain")),
        ({"type": "document", "source": {"type": "content", "content": "plain"}}, Text("plain")),
        (
            {"type": "document", "source": {"type": "content", "content": [text_block("a"), text_block("b")]}},
            Text("a\nb"),
        ),
    ],
)
def test_a_block_of_anthropic_is_read(block: dict[str, Any], part: Part) -> None:
    message = {"role": "assistant", "content": [block]}
    assert detect(message) is ANTHROPIC
    assert ANTHROPIC.view(message) == Message("assistant", (part,))


def test_a_document_of_images_is_counted_whole() -> None:
    block = {"type": "document", "source": {"type": "content", "content": [text_block("a"), IMAGE]}}
    assert ANTHROPIC.view({"role": "user", "content": [block]}).parts == (Opaque("document", spell(block)),)


def test_what_a_server_tool_does_is_no_call_that_waits_for_a_result() -> None:
    use = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
    found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    message = {"role": "assistant", "content": [use, found, text_block("Found.")]}
    view = detect(message).view(message)
    assert detect(message) is ANTHROPIC
    assert view.calls == ()
    assert view.parts == (
        Opaque("server_tool_use", spell(use)),
        Opaque("web_search_tool_result", spell(found)),
        Text("Found."),
    )


@pytest.mark.parametrize(
    "block",
    [
        {"type": "mcp_tool_use", "id": "m1", "name": "echo", "server_name": "a", "input": {}},
        {"type": "mcp_tool_result", "tool_use_id": "m1", "is_error": False, "content": [text_block("a")]},
        {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"type": "web_search_result", "url": "u"}]},
        {"type": "bash_code_execution_tool_result", "tool_use_id": "s1", "content": {"stdout": "a"}},
        {"type": "container_upload", "file_id": "f1"},
        {"type": "search_result", "source": "u", "title": "t", "content": [text_block("a")]},
        {"type": "text", "text": "a", "citations": None},
        {"type": "text", "text": "a", "citations": [{"type": "char_location", "cited_text": "a"}]},
    ],
)
def test_a_message_with_a_block_that_only_anthropic_has_stays_the_same_object(block: dict[str, Any]) -> None:
    message = {"role": "assistant", "content": [text_block("See:"), block]}
    assert detect(message).name == "anthropic"
    converted = convert([{"role": "user", "content": "Look."}, message], to="anthropic")
    assert converted.messages[1] is message
    assert not converted.losses


def test_results_of_parallel_calls_stand_in_one_message_of_the_tools() -> None:
    message = {
        "role": "user",
        "content": [tool_result("one"), tool_result([text_block("two"), IMAGE], "toolu_2", is_error=True)],
    }
    view = detect(message).view(message)
    assert view.role == "tool"
    assert view.results == (
        ToolResult("toolu_1", "", (Text("one"),)),
        ToolResult("toolu_2", "", (Text("two"), Media("image", "image/png", 8)), is_error=True),
    )


@pytest.mark.parametrize("content", [None, "", []])
def test_a_result_of_nothing_has_no_text(content: Any) -> None:
    view = ANTHROPIC.view({"role": "user", "content": [tool_result(content)]})
    assert view.results[0].text == ""


def test_a_result_without_content_is_read() -> None:
    block = {"type": "tool_result", "tool_use_id": "t"}
    assert ANTHROPIC.view({"role": "user", "content": [block]}).results == (ToolResult("t", "", ()),)


def test_plain_text_reads_the_same_in_both_dialects() -> None:
    for message in ({"role": "user", "content": "hi"}, {"role": "assistant", "content": [text_block("hi")]}):
        assert detect(message) is OPENAI
        assert OPENAI.view(message) == ANTHROPIC.view(message)


def test_a_block_that_stands_alone_is_a_result() -> None:
    for found in (tool_result("one"), {"role": "user", "content": [tool_result("one")]}, tool_message("one")):
        assert read_result(found).text == "one"


def test_what_holds_no_result_or_two_is_refused_as_a_result() -> None:
    with pytest.raises(MessageError, match="no tool result alone: it holds 2"):
        read_result({"role": "user", "content": [tool_result("one"), tool_result("two")]})
    with pytest.raises(MessageError, match="no tool result alone: it holds 0"):
        read_result({"role": "user", "content": "one"})


def test_dialects_are_known_by_name() -> None:
    built_in = ["agentscope", "anthropic", "bedrock", "openai", "openai-responses"]
    assert list(dialect_names()) == sorted([*built_in, *OF_EXTRAS])
    assert [dialect_named(name).name for name in dialect_names()] == list(dialect_names())


def test_an_unknown_dialect_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="dialect: 'cohere' is not known; choose one of agent-framework, agentscope"):
        dialect_named("cohere")


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (5, "int is no message of a known dialect"),
        ("hi", "str is no message of a known dialect"),
        (None, "NoneType is no message"),
        ([], "list is no message"),
        ({}, r"an object with the keys \[\] is no message"),
        ({"content": "hi"}, r"an object with the keys \['content'\] is no message"),
        ({1: "role"}, "dict is no message"),
        ({"role": "narrator", "content": "hi"}, "role 'narrator' is not one of system, developer, user"),
        ({"role": None, "content": "hi"}, "role None is not one of"),
        ({"role": ["user"], "content": "hi"}, r"role \['user'\] is not one of"),
        ({"role": "user", "content": 5}, "'content' must be text, a list of blocks or null, not int"),
        ({"role": "user", "content": {"a": 1}}, "'content' must be text, a list of blocks or null, not dict"),
    ],
)
def test_what_is_no_message_is_refused_in_words_that_say_why(message: Any, words: str) -> None:
    with pytest.raises(MessageError, match=words):
        detect(message)


@pytest.mark.parametrize("dialect", [OPENAI, ANTHROPIC], ids=lambda dialect: dialect.name)
@pytest.mark.parametrize(
    ("message", "words"),
    [
        (5, "int is no message: expected an object with 'role' and 'content'"),
        ({"content": "hi"}, "role None is not one of"),
        ({"role": "user", "content": 5}, "'content' must be text"),
    ],
)
def test_a_named_dialect_refuses_what_it_cannot_read(dialect: Any, message: Any, words: str) -> None:
    with pytest.raises(MessageError, match=words):
        dialect.view(message)


OF_EXTRAS = {
    "agent-framework": "agent_framework",
    "gemini": "google.genai",
    "langchain": "langchain_core",
    "pydantic-ai": "pydantic_ai",
}


@pytest.mark.parametrize("name", dialect_names())
def test_a_new_user_message_says_its_text_in_every_dialect(name: str) -> None:
    if name in OF_EXTRAS:
        pytest.importorskip(OF_EXTRAS[name], reason=f"messages of the dialect {name} are objects of its framework")
    message = dialect_named(name).user_message("hi")
    assert dialect_named(name).view(message) == Message("user", (Text("hi"),))


texts = st.text(max_size=10)
image_blocks = st.sampled_from([IMAGE, IMAGE_URL, {"type": "unknown", "n": 1}])
contents = st.none() | texts | st.lists(texts.map(text_block) | image_blocks | texts, max_size=4)
documents = texts.map(lambda text: {"type": "document", "source": {"type": "text", "data": text}})
openai_results = contents.map(tool_message)
anthropic_results = st.lists(
    st.builds(tool_result, contents | st.lists(documents, max_size=2), texts) | texts.map(text_block), min_size=1
).map(lambda blocks: {"role": "user", "content": blocks})


@given(st.data(), openai_results | anthropic_results)
def test_new_blocks_of_results_change_nothing_else_and_leave_the_others_the_same_objects(
    data: st.DataObject, message: dict[str, Any]
) -> None:
    dialect = OPENAI if message["role"] == "tool" else ANTHROPIC
    before = copy.deepcopy(message)
    view = dialect.view(message)
    chosen = data.draw(st.sets(st.sampled_from(range(len(view.results))))) if view.results else set()
    blocks: dict[int, list[str | int]] = {
        number: data.draw(
            st.lists(st.text(min_size=1) | st.sampled_from([*range(len(view.results[number].parts)), "stub"]))
        )
        for number in chosen
    }

    changed = dialect.with_results(message, blocks)

    assert message == before
    assert {**changed, "content": None} == {**message, "content": None}
    found = dialect.view(changed)
    assert [part for part in found.parts if not isinstance(part, ToolResult)] == [
        part for part in view.parts if not isinstance(part, ToolResult)
    ]
    for number, (old, new) in enumerate(zip(view.results, found.results, strict=True)):
        expected = [Text(block) if isinstance(block, str) else old.parts[block] for block in blocks.get(number, ())]
        assert new == (replace(old, parts=tuple(expected)) if number in blocks else old)
    for number, (old_content, content) in enumerate(zip(_contents(message), _contents(changed), strict=True)):
        if number in blocks and isinstance(old_content, list):
            kept = [(old_content[block], place) for place, block in enumerate(blocks[number]) if isinstance(block, int)]
            assert all(block is content[place] for block, place in kept)


def _contents(message: dict[str, Any]) -> list[Any]:
    if message["role"] == "tool":
        return [message["content"]]
    blocks = [block for block in message["content"] if block["type"] == "tool_result"]
    return [block["content"] for block in blocks]


def test_a_text_stays_a_text_where_a_stub_is_all_that_is_left() -> None:
    assert OPENAI.with_results(tool_message("long"), {0: ["stub"]})["content"] == "stub"
    assert OPENAI.with_results(tool_message("long"), {0: ["stub", 0]})["content"] == [
        text_block("stub"),
        text_block("long"),
    ]


def test_a_stub_takes_the_place_of_a_text_document_too() -> None:
    """Else the stub would stand beside the very text that it was to replace."""
    document = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "long"}}
    message = {"role": "user", "content": [tool_result([document, IMAGE])]}
    changed = ANTHROPIC.with_results(message, {0: ["stub", 1]})
    assert changed["content"][0]["content"] == [text_block("stub"), IMAGE]
    assert changed["content"][0]["content"][1] is IMAGE


@pytest.mark.parametrize("dialect", [OPENAI, ANTHROPIC], ids=lambda dialect: dialect.name)
def test_blocks_of_a_users_message_are_replaced_like_those_of_a_result(dialect: Any) -> None:
    message = {"role": "user", "content": [text_block("Look:"), text_block("long"), IMAGE], "name": "ada"}
    changed = dialect.with_content(message, [0, "stub", 2])
    assert changed == {**message, "content": [text_block("Look:"), text_block("stub"), IMAGE]}
    assert [changed["content"][place] is message["content"][place] for place in (0, 2)] == [True, True]
    assert dialect.with_content({"role": "user", "content": "long"}, ["stub"]) == {"role": "user", "content": "stub"}


def test_a_search_result_is_read_with_its_title_and_its_source() -> None:
    found = {"type": "search_result", "title": "Buoys", "source": "https://x/b", "content": [text_block("one")]}
    odd = {"type": "search_result", "title": "Buoys", "source": "https://x/b", "content": [IMAGE]}
    result = read_result(tool_result([found, odd]))
    assert result.text == "Buoys\nhttps://x/b\none"
    assert [type(part) for part in result.parts] == [Text, Opaque]


def test_each_block_of_a_result_is_one_part_whatever_it_is() -> None:
    """So that blocks can be chosen by the numbers of the parts."""
    result = read_result(tool_result([TOOL_USE, text_block("a"), tool_result("b"), None, IMAGE]))
    assert [type(part) for part in result.parts] == [Opaque, Text, Opaque, Opaque, Media]


@pytest.mark.parametrize(
    ("dialect", "block", "expected"),
    [
        (OPENAI, IMAGE_URL, PNG),
        (OPENAI, {"type": "input_audio", "input_audio": {"data": PNG_BASE64, "format": "wav"}}, PNG),
        (OPENAI, {"type": "file", "file": {"file_data": f"data:application/pdf;base64,{PNG_BASE64}"}}, PNG),
        (ANTHROPIC, IMAGE, PNG),
        (ANTHROPIC, {**IMAGE, "source": {**IMAGE["source"], "data": "?"}}, None),
        (ANTHROPIC, {**IMAGE, "source": {**IMAGE["source"], "data": ""}}, None),
        (OPENAI, {"type": "image_url", "image_url": {"url": "https://x/a.png"}}, None),
        (OPENAI, {"type": "image_url", "image_url": {"url": "data:image/png;base64,ü"}}, None),
    ],
)
def test_a_view_leads_to_the_decoded_payload(dialect: Any, block: dict[str, Any], expected: bytes | None) -> None:
    (part,) = dialect.view({"role": "user", "content": [block]}).parts
    assert part.content() == expected


@pytest.mark.parametrize("message", [tool_message("a"), {"role": "user", "content": [tool_result("a"), TOOL_USE]}])
def test_a_message_is_written_as_it_is(message: dict[str, Any]) -> None:
    assert detect(message).to_json(message) == message
    assert list(detect(message).to_json(message)) == list(message)


def test_every_recorded_message_is_read_and_written_as_it_is(shared_data: Path) -> None:
    for path in sorted((shared_data / "sessions").glob("*.jsonl")):
        for line in path.read_bytes().split(b"\n"):
            if line:
                message = json.loads(line)
                view = detect(message).view(message)
                assert len(view.calls) == len(message.get("tool_calls") or ())
                assert detect(message).to_json(message) == message


@pytest.fixture
def completion(openai_types: Any) -> Any:
    """Return a message as ``response.choices[0].message`` gives it."""
    return openai_types.ChatCompletionMessage.model_validate(
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [CALL, {**CALL, "id": "call_2"}],
            "reasoning_content": "Hm.",
        }
    )


@pytest.fixture
def response(anthropic_types: Any) -> Any:
    """Return a message as ``client.messages.create`` gives it."""
    return anthropic_types.Message.model_validate(
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "stop_reason": "tool_use",
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "s"},
                text_block("I shall read."),
                TOOL_USE,
            ],
        }
    )


OPENAI_PARTS = (
    Reasoning("Hm."),
    ToolCall("call_1", "read", '{"path": "a"}'),
    ToolCall("call_2", "read", '{"path": "a"}'),
)
ANTHROPIC_PARTS = (Reasoning("Hm."), Text("I shall read."), ToolCall("toolu_1", "read", '{"path":"a"}'))


def test_openais_own_message_is_read(completion: Any) -> None:
    assert detect(completion) is OPENAI
    assert OPENAI.view(completion) == Message("assistant", OPENAI_PARTS)


def test_openais_own_message_is_written_as_the_package_would_send_it(completion: Any) -> None:
    written = OPENAI.to_json(completion)
    assert written == completion.to_dict()
    assert parse(spell(written)) == written


def test_openais_own_calls_are_read_within_a_message_of_ones_own(completion: Any) -> None:
    message = {"role": "assistant", "content": "", "reasoning_content": "Hm.", "tool_calls": completion.tool_calls}
    assert OPENAI.view(message).calls == OPENAI_PARTS[1:]
    assert OPENAI.to_json(message)["tool_calls"] == [call.to_dict() for call in completion.tool_calls]
    assert message["tool_calls"] is completion.tool_calls


def test_openais_own_function_is_read_within_a_call_of_ones_own(completion: Any) -> None:
    calls = [{"id": "call_1", "type": "function", "function": completion.tool_calls[0].function}]
    assert OPENAI.view({"role": "assistant", "tool_calls": calls}).calls == OPENAI_PARTS[1:2]


def test_a_message_built_from_what_a_compatible_provider_sent_is_read(openai_types: Any) -> None:
    """The package does not check what it builds, so content may be blocks where it expects a text."""
    message = openai_types.ChatCompletionMessage.construct(role="assistant", content=[text_block("hi")])
    assert detect(message).view(message).text == "hi"


def test_anthropics_own_message_is_read(response: Any) -> None:
    assert detect(response) is ANTHROPIC
    assert ANTHROPIC.view(response) == Message("assistant", ANTHROPIC_PARTS)
    assert ANTHROPIC.to_json(response) == response.to_dict()


def test_anthropics_own_blocks_are_read_within_a_message_of_ones_own(response: Any) -> None:
    message = {"role": "assistant", "content": response.content}
    assert detect(message) is ANTHROPIC
    assert ANTHROPIC.view(message) == Message("assistant", ANTHROPIC_PARTS)
    written = ANTHROPIC.to_json(message)
    assert written == {"role": "assistant", "content": [block.to_dict() for block in response.content]}
    assert message["content"] is response.content


def test_anthropics_own_blocks_are_read_within_a_result(anthropic_types: Any) -> None:
    block = anthropic_types.TextBlock(type="text", text="out")
    message: dict[str, Any] = {"role": "user", "content": [tool_result([block, IMAGE])]}
    assert ANTHROPIC.view(message).results[0].text == "out"
    assert read_result(tool_result([block])).text == "out"
    changed = ANTHROPIC.with_results(message, {0: ["stub", 1]})
    assert changed["content"][0]["content"] == [text_block("stub"), IMAGE]
    assert ANTHROPIC.with_results(message, {0: [0, "stub"]})["content"][0]["content"][0] is block
    assert message["content"][0]["content"][0] is block


def test_an_object_that_is_no_message_is_refused_by_its_type(completion: Any) -> None:
    with pytest.raises(MessageError, match="ChatCompletionMessageFunctionToolCall is no message"):
        detect(completion.tool_calls[0])


def test_reasoning_of_a_response_is_read_whether_it_is_a_summary_or_the_text_itself() -> None:
    item = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}
    assert dialect_named("openai-responses").view({"output": [item]}).parts == (Reasoning("Hm."),)
