"""The dialect of Bedrock's Converse API, with Strands' own session files as the measure of its JSON form."""

import copy
import json
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buoyline import LocalWorkspace, MemoryWorkspace
from buoyline.errors import MessageError
from buoyline.messages import Json, Media, Message, Opaque, Reasoning, Text, ToolCall, ToolResult, spell
from buoyline.messages.jsonl import parse
from buoyline.messages.model import CachePoint, Part
from buoyline.messages.payloads import put_back, take_out
from buoyline.messages.registry import detect, dialect_named, read_result
from buoyline.tokens import default_counter
from buoyline.tokens.counter import count_message

BEDROCK = dialect_named("bedrock")
ANTHROPIC = dialect_named("anthropic")
OPENAI = dialect_named("openai")

PNG = b"\x89PNG\r\n\x1a\n"
PDF = b"%PDF-1.7 \xff\x00"
IMAGE: dict[str, Any] = {"image": {"format": "png", "source": {"bytes": PNG}}}
DOCUMENT: dict[str, Any] = {"document": {"format": "pdf", "name": "plan", "source": {"bytes": PDF}}}
TOOL_USE: dict[str, Any] = {"toolUse": {"toolUseId": "tooluse_1", "name": "read", "input": {"path": "a"}}}


def tool_result(content: Any, call_id: str = "tooluse_1", status: str = "success") -> dict[str, Any]:
    return {"toolResult": {"toolUseId": call_id, "status": status, "content": content}}


def user(*blocks: Any, **others: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks), **others}


@pytest.mark.parametrize(
    ("block", "part"),
    [
        ({"text": "hi"}, Text("hi")),
        ({"text": ""}, Text("")),
        (TOOL_USE, ToolCall("tooluse_1", "read", '{"path":"a"}')),
        ({"toolUse": {}}, ToolCall("", "", "{}")),
        ({"toolUse": {"toolUseId": None, "name": None, "input": None}}, ToolCall("", "", "null")),
        ({"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "abc"}}}, Reasoning("Hm.")),
        ({"reasoningContent": {"redactedContent": b"x"}}, Reasoning("", hidden="eA==")),
        (IMAGE, Media("image", "image/png", 8)),
        (DOCUMENT, Media("document", "application/pdf", 11, name="plan")),
        ({"video": {"format": "mp4", "source": {"bytes": b"1234"}}}, Media("video", "video/mp4", 4)),
        ({"audio": {"format": "wav", "source": {"bytes": b"1234"}}}, Media("audio", "audio/wav", 4)),
        (
            {"document": {"format": "md", "name": "n", "source": {"bytes": b"# A"}}},
            Media("document", "text/markdown", 3, name="n"),
        ),
        (
            {"image": {"format": "png", "source": {"location": {"type": "s3", "uri": "s3://b/a.png"}}}},
            Media("image", "image/png", 0, "s3://b/a.png"),
        ),
        (
            {"image": {"format": "png", "source": {"s3Location": {"uri": "s3://b/a.png"}}}},
            Media("image", "image/png", 0, "s3://b/a.png"),
        ),
        ({"image": {"source": {}}}, Media("image", "", 0)),
        ({"image": {"format": "png", "source": None}}, Opaque("image", '{"image":{"format":"png","source":null}}')),
        ({"document": {"format": "txt", "name": "n", "source": {"text": "plain"}}}, Text("n\nplain")),
        ({"document": {"name": "n", "source": {"content": [{"text": "a"}, {"text": "b"}]}}}, Text("n\na\nb")),
        ({"guardContent": {"text": {"text": "Be kind.", "qualifiers": ["query"]}}}, Text("Be kind.")),
        ({"citationsContent": {"content": [{"text": "So it is."}], "citations": []}}, Text("So it is.")),
        (
            {"searchResult": {"title": "Buoys", "source": "https://x/b", "content": [{"text": "one"}]}},
            Text("Buoys\nhttps://x/b\none"),
        ),
        ({"cachePoint": {"type": "default"}}, CachePoint()),
        ({"toolResult": "x"}, Opaque("toolResult", '{"toolResult":"x"}')),
    ],
)
def test_a_block_of_bedrock_is_read(block: dict[str, Any], part: Part) -> None:
    message = {"role": "assistant", "content": [block]}
    assert detect(message) is BEDROCK
    assert BEDROCK.view(message) == Message("assistant", (part,))


def test_a_block_that_nobody_knows_is_carried_along_and_counted() -> None:
    message = user({"text": "Look:"}, {"hologram": {"n": 1}})
    assert BEDROCK.view(message).parts[1] == Opaque("dict", '{"hologram":{"n":1}}')
    assert count_message(BEDROCK.view(message), default_counter()) > 5


def test_results_of_parallel_calls_stand_in_one_message_of_the_tools() -> None:
    message = user(
        tool_result([{"text": "one"}]),
        tool_result([{"json": {"n": [1]}}, IMAGE], "tooluse_2", "error"),
        {"cachePoint": {"type": "default"}},
    )
    view = detect(message).view(message)
    assert view.role == "tool"
    assert view.results == (
        ToolResult("tooluse_1", "", (Text("one"),)),
        ToolResult("tooluse_2", "", (Json('{"n":[1]}'), Media("image", "image/png", 8)), is_error=True),
    )


def test_a_result_beside_words_of_the_user_is_the_users_message() -> None:
    view = BEDROCK.view(user(tool_result([{"text": "one"}]), {"text": "Go on."}))
    assert (view.role, view.text, len(view.results)) == ("user", "Go on.", 1)


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": "hi"},
        {"role": "user", "content": []},
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {"role": "user", "content": [{}]},
        {"role": "user", "content": [{"hologram": 1}]},
        {"role": "tool", "tool_call_id": "c", "content": "done"},
    ],
)
def test_what_bedrock_alone_would_not_write_is_no_message_of_its(message: dict[str, Any]) -> None:
    assert not BEDROCK.detects(message)
    assert detect(message) is OPENAI


blocks = st.sampled_from([{"text": "a"}, TOOL_USE, tool_result([{"text": "b"}]), IMAGE, {"cachePoint": {"type": "x"}}])
typed = st.sampled_from(
    [
        {"type": "text", "text": "a"},
        {"type": "tool_use", "id": "t", "name": "f", "input": {}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
    ]
)


@given(st.lists(blocks, min_size=1) | st.lists(typed, min_size=1), st.sampled_from(["user", "assistant"]))
def test_no_message_belongs_to_two_dialects_with_blocks_of_their_own(content: list[Any], role: str) -> None:
    message = {"role": role, "content": content}
    assert not (BEDROCK.detects(message) and ANTHROPIC.detects(message))
    assert (detect(message) is BEDROCK) == ("type" not in content[0])


def test_a_result_is_read_as_a_tool_gives_it_as_a_block_and_in_a_message() -> None:
    block = tool_result([{"text": "one"}])
    for given_result in (block["toolResult"], block, user(block)):
        assert read_result(given_result) == ToolResult("tooluse_1", "", (Text("one"),))


def test_new_blocks_of_results_leave_all_else_the_very_same_objects() -> None:
    result, words = tool_result([{"text": "long"}, IMAGE, {"json": {"a": 1}}]), {"text": "Go on."}
    message = user(tool_result([{"text": "other"}], "tooluse_0"), result, words, tracking_id="t", metadata={"a": 1})
    before = copy.deepcopy(message)

    changed = BEDROCK.with_results(message, {1: ["stub", 1]})

    assert message == before
    assert {**changed, "content": None} == {**message, "content": None}
    assert changed["content"][1] == tool_result([{"text": "stub"}, IMAGE])
    assert changed["content"][1]["toolResult"]["content"][1] is IMAGE
    assert [changed["content"][place] is message["content"][place] for place in (0, 2)] == [True, True]


def test_new_content_of_a_users_message_leaves_the_other_blocks_the_same_objects() -> None:
    message = user({"text": "Look:"}, {"text": "long"}, IMAGE, tracking_id="t")
    changed = BEDROCK.with_content(message, [0, "stub", 2])
    assert changed == {**message, "content": [{"text": "Look:"}, {"text": "stub"}, IMAGE]}
    assert [changed["content"][place] is message["content"][place] for place in (0, 2)] == [True, True]


def test_new_messages_have_bedrocks_form() -> None:
    said, result = BEDROCK.user_message("hi"), BEDROCK.tool_result_message("tooluse_1", "done", "read")
    assert detect(said) is detect(result) is BEDROCK
    assert BEDROCK.view(said) == Message("user", (Text("hi"),))
    assert BEDROCK.view(result).results == (ToolResult("tooluse_1", "", (Text("done"),)),)


MESSAGES: list[dict[str, Any]] = [
    user({"text": "ü\u2028"}, IMAGE, DOCUMENT, tracking_id="t"),
    user(tool_result([{"json": {"a": [None, 1.5]}}, IMAGE, {"text": "x"}])),
    {"role": "assistant", "content": [{"reasoningContent": {"redactedContent": b"\x00\xff"}}, TOOL_USE]},
]


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_is_written_as_strands_own_session_managers_write_it(message: dict[str, Any]) -> None:
    session = pytest.importorskip("strands.types.session", reason="strands-agents is an extra for tests")
    theirs = json.loads(json.dumps(session.SessionMessage.from_message(cast("Any", message), 0).to_dict()))["message"]
    written = parse(spell(BEDROCK.to_json(message)))
    assert written == theirs
    assert BEDROCK.from_json(written) == message == session.decode_bytes_values(written)
    assert BEDROCK.view(written) == BEDROCK.view(message)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(json_values)
def test_bytes_anywhere_in_a_message_are_spelled_as_strands_spells_them(value: Any) -> None:
    session = pytest.importorskip("strands.types.session", reason="strands-agents is an extra for tests")
    message = user({"toolUse": {"toolUseId": "t", "name": "f", "input": value}})
    assert BEDROCK.to_json(message) == session.encode_bytes_values(message)
    assert BEDROCK.from_json(BEDROCK.to_json(message)) == message


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_number_that_json_lacks_is_spelled_as_text(number: float) -> None:
    message = user({"toolUse": {"toolUseId": "t", "name": "f", "input": {"x": [number, 1.5]}}})
    assert f'"x":["{number}",1.5]' in spell(BEDROCK.to_json(message))
    assert BEDROCK.view(message).calls[0].arguments == f'{{"x":["{number}",1.5]}}'


def test_a_message_without_bytes_is_not_copied_for_its_json_form() -> None:
    message = user(tool_result([{"text": "x"}]))
    assert BEDROCK.to_json(message)["content"] is message["content"]


def test_arguments_nested_more_deeply_than_the_stack_are_refused_and_end_no_process() -> None:
    nested: Any = b"x"
    for _ in range(100_000):
        nested = [nested]
    message = user({"toolUse": {"toolUseId": "t", "name": "f", "input": nested}})
    with pytest.raises(MessageError, match="cannot be written as JSON"):
        spell(BEDROCK.to_json(message))


def test_a_value_that_holds_itself_is_refused_and_hangs_nobody() -> None:
    loop: dict[str, Any] = {"bytes": b"x"}
    loop["self"] = loop
    with pytest.raises(MessageError, match="cannot be written as JSON"):
        BEDROCK.view(user({"toolUse": {"toolUseId": "t", "name": "f", "input": loop}}))


def test_payloads_are_taken_out_with_their_type_and_put_back() -> None:
    written = BEDROCK.to_json(user(IMAGE, tool_result([DOCUMENT]), {"reasoningContent": {"redactedContent": b"x"}}))
    stored: dict[str, bytes] = {}

    def put(payload: bytes, media_type: str) -> str:
        stored[f"workspace:///{media_type}"] = payload
        return f"workspace:///{media_type}"

    referring, references = take_out(written, put)
    assert stored == {"workspace:///image/png": PNG, "workspace:///application/pdf": PDF, "workspace:///": b"x"}
    assert put_back(referring, references, stored.__getitem__) == written


async def test_messages_come_back_from_disk_as_they_were(tmp_path: Path) -> None:
    async with LocalWorkspace(tmp_path / "w") as workspace:
        await workspace.offload_context("s1", MESSAGES)
        session = workspace.stored("s1")
        found = [session.with_payloads(line) for line in session.read(range(len(MESSAGES)))]
        assert [BEDROCK.from_json(value) for value in found] == MESSAGES
    pictures = sorted(path.suffix for path in (tmp_path / "w" / "data").iterdir())
    assert pictures == [".bin", ".pdf", ".png"]
    assert "__bytes_encoded__" in (tmp_path / "w/sessions/s1/context.jsonl").read_text()


@pytest.mark.parametrize("kind", [LocalWorkspace, MemoryWorkspace])
async def test_a_document_of_text_is_redacted_like_text(kind: Any, tmp_path: Path) -> None:
    where = (tmp_path / "w",) if kind is LocalWorkspace else ()
    document = {"document": {"format": "csv", "name": "n", "source": {"bytes": b"key,SECRET"}}}
    async with kind(*where, redact=lambda text: text.replace("SECRET", "***")) as workspace:
        await workspace.offload_context("s1", [user(document, tool_result([document]))])
        session = workspace.stored("s1")
        value = session.with_payloads(*session.read([0]))
    assert b"SECRET" not in spell(value).encode()
    assert BEDROCK.from_json(value)["content"][0]["document"]["source"]["bytes"] == b"key,***"
