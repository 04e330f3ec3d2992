"""Converting messages between dialects: what both have a place for comes back, and what is lost is named."""

import base64
import json
import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import pytest

pytest.importorskip("agentscope", reason="agentscope is an extra for tests")

from agentscope.message import (
    AssistantMsg,
    HintBlock,
    Msg,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    ToolResultState,
    UserMsg,
)
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from thirds import examples

from buoyline.errors import ConfigError, MessageError
from buoyline.messages import Message, Reasoning, Text, ToolCall, ToolResult, convert, spell
from buoyline.messages.convert import INTERRUPTED
from buoyline.messages.jsonl import with_changed
from buoyline.messages.registry import dialect_named

SOME = examples(15, 2_000)
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(range(64))).decode()
PDF = base64.b64encode(b"%PDF-1.7 " + bytes(range(64))).decode()


def said_of(losses: Sequence[Any]) -> list[str]:
    return [loss.what for loss in losses]


def openai_call(call_id: str, name: str = "bash", arguments: str = '{"cmd":"ls"}') -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def openai_result(call_id: str, content: Any = "a.py") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


TALK = [
    {"role": "user", "content": "List the files."},
    {"role": "assistant", "content": "I look.", "tool_calls": [openai_call("c1"), openai_call("c2", "read")]},
    openai_result("c1"),
    openai_result("c2", "b.py"),
    {"role": "assistant", "content": "There are two."},
]


# What each dialect makes of the same conversation.


def test_bedrock_has_both_results_in_one_message_of_the_users() -> None:
    user, calls, results, answer = convert(TALK, to="bedrock").messages
    assert user == {"role": "user", "content": [{"text": "List the files."}]}
    assert calls["content"][1] == {"toolUse": {"toolUseId": "c1", "name": "bash", "input": {"cmd": "ls"}}}
    assert [block["toolResult"]["content"] for block in results["content"]] == [[{"text": "a.py"}], [{"text": "b.py"}]]
    assert (results["role"], answer["role"]) == ("user", "assistant")


def test_anthropic_has_both_results_in_one_message_of_the_users() -> None:
    converted = convert(TALK, to="anthropic")
    assert converted.losses == ()
    assert [message["role"] for message in converted.messages] == ["user", "assistant", "user", "assistant"]
    assert converted.messages[2]["content"] == [
        {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "a.py"}]},
        {"type": "tool_result", "tool_use_id": "c2", "content": [{"type": "text", "text": "b.py"}]},
    ]


def test_agentscope_has_calls_and_results_in_messages_of_its_own_class() -> None:
    messages = convert(TALK, to="agentscope").messages
    assert all(isinstance(message, Msg) for message in messages)
    assert [message.role for message in messages] == ["user", *["assistant"] * 4]
    blocks = [block for message in messages for block in message.content]
    kinds = [block.type for block in blocks]
    assert kinds == ["text", "text", "tool_call", "tool_call", "tool_result", "tool_result", "text"]
    assert [block.name for block in blocks if isinstance(block, ToolResultBlock)] == ["bash", "read"]
    assert [block.state for block in blocks if isinstance(block, ToolCallBlock)] == ["finished", "finished"]


def test_agentscopes_reply_becomes_rounds_again_and_its_hint_the_users() -> None:
    content: list[Any] = [
        TextBlock(text="I look."),
        ToolCallBlock(id="c1", name="bash", input='{"cmd":"ls"}'),
        HintBlock(hint="Be quick."),
        ToolResultBlock(id="c1", name="bash", output="a.py", state=ToolResultState.SUCCESS),
        TextBlock(text="One."),
    ]
    converted = convert([UserMsg("user", "List."), AssistantMsg("pilot", content)], to="openai")
    assert [message["role"] for message in converted.messages] == ["user", "assistant", "tool", "user", "assistant"]
    assert converted.messages[1]["name"] == "pilot"
    assert converted.messages[2] == {"role": "tool", "tool_call_id": "c1", "content": "a.py"}
    assert converted.messages[3]["content"] == "Be quick."


@pytest.mark.parametrize("to", ["anthropic", "bedrock"])
def test_a_system_message_goes_beside_the_messages(to: str) -> None:
    prompt = {"role": "system", "content": "Be brief."}
    converted = convert([prompt, TALK[0]], to=to)
    assert (converted.system, len(converted.messages), converted.losses) == ("Be brief.", 1, ())


@pytest.mark.parametrize("to", ["anthropic", "bedrock"])
def test_a_system_message_amid_a_conversation_is_the_users_and_that_is_said(to: str) -> None:
    reminder = {"role": "system", "content": "Be brief."}
    converted = convert([*TALK, reminder], to=to)
    assert converted.messages[-1]["role"] == "user"
    assert said_of(converted.losses) == ["role 'system'"]


@pytest.mark.parametrize("to", ["anthropic", "bedrock"])
def test_the_user_begins_and_roles_take_turns(to: str) -> None:
    converted = convert([TALK[4], TALK[0], TALK[0], TALK[4], TALK[4]], to=to)
    assert [message["role"] for message in converted.messages] == ["user", "assistant", "user", "assistant"]
    assert "The conversation begins here." in str(converted.messages[0])
    assert spell(converted.messages).count("List the files.") == 2


# Calls, results and their ids.


@pytest.mark.parametrize("to", ["anthropic", "bedrock"])
def test_ids_that_are_empty_or_repeat_are_told_apart_in_pairs(to: str) -> None:
    rounds = [
        {"role": "assistant", "content": None, "tool_calls": [openai_call(""), openai_call("")]},
        openai_result("", "first"),
        openai_result("", "second"),
        {"role": "assistant", "content": None, "tool_calls": [openai_call("c:1"), openai_call("ok")]},
        openai_result("ok", "fourth"),
        openai_result("c:1", "third"),
        {"role": "assistant", "content": None, "tool_calls": [openai_call("ok")]},
        openai_result("ok", "fifth"),
    ]
    converted = convert([TALK[0], *rounds], to=to)
    views = [dialect_named(to).view(message) for message in converted.messages]
    calls = [call.call_id for view in views for call in view.calls]
    results = {result.call_id: result.text for view in views for result in view.results}
    assert len(set(calls)) == 5
    assert [results[call_id] for call_id in calls] == ["first", "second", "third", "fourth", "fifth"]
    assert [loss.message for loss in converted.losses] == [1, 1, 4, 7]


@pytest.mark.parametrize("to", ["agentscope", "anthropic", "bedrock", "openai"])
def test_each_call_has_a_result_and_each_result_a_call(to: str) -> None:
    orphan = openai_result("c9", "Nobody asked for this.")
    last = {"role": "assistant", "content": None, "tool_calls": [openai_call("c3")]}
    converted = convert([TALK[0], TALK[1], TALK[3], TALK[0], orphan, last], to=to)
    views = [dialect_named(to).view(message) for message in converted.messages]
    answers = [result.text for view in views for result in view.results]
    interrupted = "[interrupted: no result was recorded]"
    assert sorted(answers) == sorted(["b.py", interrupted, interrupted])
    assert len(answers) == sum(len(view.calls) for view in views)
    words = "\n".join(view.text for view in views if view.role == "user")
    assert "[Result of the call 'c9', which is not here:]" in words
    assert "Nobody asked for this." in words
    assert said_of(converted.losses) == ["result of the call 'c9'"]


@pytest.mark.parametrize("to", ["anthropic", "bedrock"])
@pytest.mark.parametrize("arguments", ['{"cmd": "ls', "[1]", '"ls"', "NaN", '{"n": ' * 2_000])
def test_arguments_that_are_no_object_are_kept_as_text_and_that_is_said(arguments: str, to: str) -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [openai_call("c1", arguments=arguments)]}
    converted = convert([TALK[0], call], to=to)
    assert said_of(converted.losses) == ["arguments of a call"]
    assert json.dumps(arguments) in json.dumps(converted.messages)


@pytest.mark.parametrize("arguments", ["", "{}", " "])
def test_no_arguments_are_the_empty_object(arguments: str) -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [openai_call("c1", arguments=arguments)]}
    converted = convert([call], to="bedrock")
    assert converted.messages[1]["content"][0]["toolUse"]["input"] == {}
    assert converted.losses == ()


def test_a_failed_result_stays_one_where_there_is_a_mark_for_it() -> None:
    failed = {"toolUseId": "c1", "status": "error", "content": [{"text": "no such file"}, {"json": {"code": 2}}]}
    messages = [
        {"role": "assistant", "content": [{"toolUse": {"toolUseId": "c1", "name": "bash", "input": {}}}]},
        {"role": "user", "content": [{"toolResult": failed}]},
    ]
    messages.insert(0, {"role": "user", "content": [{"text": "Look."}]})
    anthropic = convert(messages, to="anthropic")
    assert anthropic.messages[2]["content"][0]["is_error"] is True
    assert anthropic.losses == ()
    assert convert(messages, to="agentscope").messages[2].content[0].state == "error"
    openai = convert(messages, to="openai")
    assert openai.messages[2]["content"] == [
        {"type": "text", "text": "no such file"},
        {"type": "text", "text": '{"code":2}'},
    ]
    assert said_of(openai.losses) == ["mark of a failed result"]


def test_the_items_of_a_response_are_one_message_that_is_handed_out_flat() -> None:
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2VhbGVk"}
    call = {"type": "function_call", "call_id": "c1", "name": "bash", "arguments": '{"cmd":"ls"}'}
    done = {"type": "function_call_output", "call_id": "c1", "output": "a.py"}
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "One."}]}
    items = [{"role": "user", "content": "List."}, thought, call, done, said]
    dialect = dialect_named("openai-responses")
    messages = dialect.grouped(items)
    assert messages == [items[0], {"output": [thought, call]}, done, {"output": [said]}]
    assert [item for message in messages for item in dialect.handed_out(message)] == items
    assert dialect.view(messages[1]).parts[0] == Reasoning("", hidden="c2VhbGVk")
    chat = convert(items, to="openai", from_="openai-responses")
    assert [message["role"] for message in chat.messages] == ["user", "assistant", "tool", "assistant"]
    assert said_of(chat.losses) == ["hidden reasoning"]
    back = convert(chat.messages, to="openai-responses").messages
    assert back == [items[0], call, done, {"role": "assistant", "content": "One."}]
    with pytest.raises(MessageError, match="belongs to the items of its response: add the response"):
        dialect.view(call)


@SOME
@given(st.lists(st.sampled_from(["user", "output", "answer", "call"]), max_size=12), st.data())
def test_a_response_that_is_known_keeps_its_items_however_the_list_grows(kinds: list[str], data: st.DataObject) -> None:
    forms: dict[str, dict[str, Any]] = {
        "user": {"role": "user", "content": "Go on."},
        "output": {"type": "function_call_output", "output": "a.py"},
        "answer": {"type": "message", "role": "assistant", "content": "Two."},
        "call": {"type": "function_call", "name": "bash", "arguments": "{}"},
    }
    items = [{**forms[kind], "call_id": f"c{place}"} for place, kind in enumerate(kinds)]
    dialect, known = dialect_named("openai-responses"), list[Any]()
    for end in sorted(data.draw(st.sets(st.integers(0, len(items)), max_size=4)) | {len(items)}):
        before, known = known, list(dialect.grouped(items[:end], known.__contains__))
        assert known[: len(before)] == before
        assert [item for message in known for item in dialect.handed_out(message)] == items[:end]
        for message in known:
            dialect.view(message)


def test_a_result_of_a_repeated_id_answers_the_newest_call_although_an_older_one_has_none() -> None:
    calls = [{"role": "assistant", "tool_calls": [openai_call("c1", name)]} for name in ("old", "new")]
    user = {"role": "user", "content": "Again."}
    found = convert([user, calls[0], user, calls[1], openai_result("c1", "found")], to="anthropic").messages
    blocks = [block for one in found if isinstance(one["content"], list) for block in one["content"]]
    names = {block["id"]: block["name"] for block in blocks if block["type"] == "tool_use"}
    said = {names[one["tool_use_id"]]: str(one["content"]) for one in blocks if one["type"] == "tool_result"}
    assert INTERRUPTED in said["old"]
    assert "found" in said["new"]


# Reasoning and media.

THOUGHT = {"type": "thinking", "thinking": "Let me see.", "signature": "c2ln"}
HIDDEN = {"type": "redacted_thinking", "data": "aGlkZGVu"}


ASKED = {"role": "user", "content": "How many?"}


@pytest.mark.parametrize("to", ["agentscope", "bedrock"])
def test_reasoning_keeps_its_signature_there_and_back(to: str) -> None:
    message = {"role": "assistant", "content": [THOUGHT, HIDDEN, {"type": "text", "text": "Two."}]}
    there = convert([ASKED, message], to=to)
    assert there.losses == ()
    assert convert(there.messages, to="anthropic").messages == [ASKED, message]


def test_reasoning_that_bedrock_hides_is_bytes_there() -> None:
    _, message = convert([ASKED, {"role": "assistant", "content": [HIDDEN]}], to="bedrock").messages
    assert message["content"] == [{"reasoningContent": {"redactedContent": b"hidden"}}]


def test_reasoning_that_is_said_and_hidden_in_one_block_goes_to_bedrock_whole() -> None:
    sealed: dict[str, Any] = {"signature": "c2ln", "redacted_thinking_data": "aGlkZGVu"}
    said = AssistantMsg(name="a", content=[ThinkingBlock(thinking="Let me see.", **sealed)])
    _, message = convert([ASKED, said], to="bedrock").messages
    assert message["content"] == [
        {"reasoningContent": {"reasoningText": {"text": "Let me see.", "signature": "c2ln"}}},
        {"reasoningContent": {"redactedContent": b"hidden"}},
    ]


def test_openai_has_no_place_for_hidden_reasoning_and_anthropic_none_without_a_signature() -> None:
    message = {"role": "assistant", "content": [THOUGHT, HIDDEN, {"type": "text", "text": "Two."}]}
    openai = convert([ASKED, message], to="openai")
    assert openai.messages[1] == {"role": "assistant", "content": "Two.", "reasoning_content": "Let me see."}
    assert said_of(openai.losses) == ["hidden reasoning"]
    back = convert(openai.messages, to="anthropic")
    assert back.messages[1] == {"role": "assistant", "content": "Two."}
    assert [str(loss) for loss in back.losses] == ["message 1: reasoning: anthropic has no place for it"]


def picture(url: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}


@pytest.mark.parametrize("to", ["agentscope", "anthropic", "bedrock"])
def test_a_picture_comes_back_as_it_was(to: str) -> None:
    message = picture(f"data:image/png;base64,{PNG}")
    there = convert([message], to=to)
    back = convert(there.messages, to="openai")
    assert there.losses == ()
    assert back.messages == [message]


def test_bedrock_has_the_bytes_of_a_picture() -> None:
    (message,) = convert([picture(f"data:image/png;base64,{PNG}")], to="bedrock").messages
    assert message["content"] == [{"image": {"format": "png", "source": {"bytes": base64.b64decode(PNG)}}}]


def test_a_picture_by_url_has_no_place_at_bedrock_and_text_stands_there() -> None:
    converted = convert([picture("https://example.com/chart.png")], to="bedrock")
    assert converted.messages[0]["content"] == [{"text": "[image, https://example.com/chart.png: not shown here]"}]
    assert [loss.why for loss in converted.losses] == ["bedrock has no place for it"]
    assert convert([picture("https://example.com/chart.png")], to="anthropic").losses == ()


@pytest.mark.parametrize("to", ["anthropic", "bedrock", "openai"])
def test_a_film_has_a_place_at_bedrock_and_agentscope_alone(to: str) -> None:
    film = {"type": "data", "source": {"type": "base64", "data": PNG, "media_type": "video/mp4"}}
    converted = convert([{"role": "user", "name": "user", "content": [film]}], to=to, from_="agentscope")
    assert len(converted.losses) == (to != "bedrock")
    assert ("not shown here" in str(converted.messages)) == (to != "bedrock")


def test_a_document_keeps_its_name_as_far_as_bedrock_takes_it() -> None:
    source = {"type": "base64", "media_type": "application/pdf", "data": PDF}
    document = {"type": "document", "source": source, "title": "report 7.pdf"}
    converted = convert([{"role": "user", "content": [document]}], to="bedrock")
    assert converted.messages[0]["content"][0]["document"]["name"] == "report 7-pdf"
    assert converted.losses == ()
    (file,) = convert([{"role": "user", "content": [document]}], to="openai").messages[0]["content"]
    assert file["file"] == {"filename": "report 7.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}


@pytest.mark.parametrize("to", ["agentscope", "bedrock", "openai"])
def test_a_text_document_is_text_below_its_title(to: str) -> None:
    source = {"type": "text", "media_type": "text/plain", "data": "Soundings: 12, 14."}
    message = {"role": "user", "content": [{"type": "document", "source": source, "title": "log"}]}
    converted = convert([message], to=to)
    assert dialect_named(to).view(converted.messages[0]).text == "log\nSoundings: 12, 14."
    assert converted.losses == ()


def test_media_of_a_result_follow_in_a_message_of_the_users_for_openai() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
    messages = [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "look", "input": {}}]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "one"}, image]}
            ],
        },
    ]
    converted = convert(messages, to="openai")
    assert [message["role"] for message in converted.messages] == ["assistant", "tool", "user"]
    assert converted.messages[2]["content"][1]["image_url"]["url"] == f"data:image/png;base64,{PNG}"
    assert converted.losses == ()


def test_the_name_of_a_speaker_comes_through_where_there_is_a_place() -> None:
    (scoped,) = convert([{"role": "user", "name": "ann", "content": "Ahoy"}], to="agentscope").messages
    assert scoped.name == "ann"


def test_what_no_other_dialect_has_is_named_and_text_stands_there() -> None:
    search = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "tides"}}
    converted = convert([{"role": "assistant", "content": [search]}], to="openai")
    assert converted.messages[0]["content"] == "[a block of type 'server_tool_use': not shown here]"
    assert [str(loss) for loss in converted.losses] == [
        "message 0: block of type 'server_tool_use': openai has no place for it"
    ]


# What stays, and what is refused.


def test_messages_of_the_dialect_stay_the_very_same_objects() -> None:
    bedrock = [{"role": "user", "content": [{"text": "Ahoy"}]}, {"role": "assistant", "content": [{"text": "Aye"}]}]
    mixed = [*bedrock, {"role": "user", "content": "And now?"}]
    converted = convert(mixed, to="bedrock")
    assert all(one is other for one, other in zip(converted.messages, bedrock, strict=False))
    assert len(converted.messages) == 3
    assert convert(TALK, to="openai").messages == TALK
    assert all(one is other for one, other in zip(convert(TALK, to="openai").messages, TALK, strict=True))


def test_the_end_of_a_conversation_changes_nothing_of_what_was_converted_before() -> None:
    rounds = [message for n in range(4) for message in (TALK[1], TALK[2], TALK[3], {"role": "user", "content": f"{n}"})]
    whole = convert([TALK[0], *rounds, TALK[4]], to="bedrock").messages
    part = convert([TALK[0], *rounds[:8]], to="bedrock").messages
    assert whole[: len(part)] == part


def test_what_cannot_be_converted_says_which_message_and_what_to_do() -> None:
    with pytest.raises(ConfigError, match="'cobol' is not known; choose one of agent-framework, agentscope, anthropic"):
        convert(TALK, to="cobol")
    with pytest.raises(ConfigError, match="2 dialects for 5 messages"):
        convert(TALK, to="openai", from_=["openai", "openai"])
    with pytest.raises(MessageError, match="message 1: "):
        convert([TALK[0], {"role": "captain", "content": "Ahoy"}], to="openai")


# Whatever a dialect accepts.

TEXTS = st.sampled_from(["", " ", "\n\t", "\u00a0", "alpha", "b\u00e4r\u2028", "two\nlines", "[1]"])
WORDS = st.sampled_from(["alpha", "bravo", "charlie"])
IDS = st.sampled_from(["", "c1", "c2", "call:3", "x" * 70])
ARGUMENTS = st.sampled_from(['{"a": 1}', "{}", "", '{"a', "[1]"])
INPUTS = st.sampled_from([{}, {"a": 1}, [1], "x"])
MEDIA_TYPES = st.sampled_from(
    ["image/png", "image/svg+xml", "audio/wav", "application/pdf", "text/csv", "video/mp4", ""]
)
PAYLOADS = st.sampled_from([PNG, "aGk=", "???", ""])
URLS = st.sampled_from(["https://example.com/a.png", "s3://bucket/key", "file-123", ""])
ODD = st.just({"type": "novelty", "depth": 7})


def block(kind: str, **fields: Any) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"type": st.just(kind), **fields})


def messages_of(role: str, *blocks: st.SearchStrategy[Any], **fields: Any) -> st.SearchStrategy[dict[str, Any]]:
    content = st.lists(st.one_of(blocks), max_size=4)
    return st.fixed_dictionaries({"role": st.just(role), "content": content, **fields})


def anthropic_messages() -> st.SearchStrategy[dict[str, Any]]:
    text = block("text", text=TEXTS)
    source = block("base64", media_type=MEDIA_TYPES, data=PAYLOADS) | block("url", url=URLS)
    plain = block("text", media_type=st.just("text/plain"), data=TEXTS) | block("content", content=st.lists(text))
    media = block("image", source=source) | block("document", source=source | plain, title=TEXTS)
    error = st.sampled_from([True, False])
    results = st.lists(text | media | ODD, max_size=3)
    result = block("tool_result", tool_use_id=IDS, content=TEXTS | results, is_error=error)
    call = block("tool_use", id=IDS, name=WORDS, input=INPUTS)
    thought = block("thinking", thinking=TEXTS, signature=st.sampled_from(["", "s"]))
    hidden = block("redacted_thinking", data=st.just("aGk="))
    return messages_of("user", text, media, result, ODD) | messages_of("assistant", text, call, thought, hidden, ODD)


def bedrock_messages() -> st.SearchStrategy[dict[str, Any]]:
    def one(**fields: Any) -> st.SearchStrategy[dict[str, Any]]:
        return st.fixed_dictionaries(fields)

    text = one(text=TEXTS)
    location = st.just({"location": {"type": "s3", "uri": "s3://b/k"}})
    source = one(bytes=st.just(b"abc")) | location | text | one(content=st.lists(text, max_size=2))
    formats = st.sampled_from(["png", "jpeg", "pdf", "txt", "mp4", "odd"])
    held = one(format=formats, source=source, name=st.sampled_from(["log", "a.b/c"]))
    media = one(image=held) | one(audio=held) | one(document=held) | one(video=held)
    value = one(json=st.sampled_from([{"a": 1}, [1, None], b"raw", 2.5]))
    status = st.sampled_from(["success", "error"])
    result = one(toolUseId=IDS, status=status, content=st.lists(text | value | media, max_size=3))
    call = one(toolUseId=IDS, name=WORDS, input=INPUTS | st.just({"raw": b"x"}))
    thought = one(reasoningText=one(text=TEXTS, signature=TEXTS)) | one(redactedContent=st.just(b"\x00\x01"))
    odd = one(cachePoint=st.just({"type": "default"})) | one(guardContent=one(text=text)) | one(new=st.just(1))
    user = messages_of("user", text, media, one(toolResult=result), odd)
    return user | messages_of("assistant", text, one(toolUse=call), one(reasoningContent=thought), odd)


def openai_messages() -> st.SearchStrategy[dict[str, Any]]:
    urls = URLS | st.builds("data:{};base64,{}".format, MEDIA_TYPES, PAYLOADS)
    image = block("image_url", image_url=st.fixed_dictionaries({"url": urls}))
    audio = st.just({"type": "input_audio", "input_audio": {"data": PNG, "format": "wav"}})
    files = [{"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}, {"file_id": "file-1"}]
    blocks = st.one_of(block("text", text=TEXTS), image, audio, block("file", file=st.sampled_from(files)), ODD)
    content = st.none() | TEXTS | st.lists(blocks, max_size=3)

    def message(role: str, **fields: Any) -> st.SearchStrategy[dict[str, Any]]:
        return st.fixed_dictionaries({"role": st.just(role), "content": content, **fields})

    call = st.builds(openai_call, IDS, WORDS, ARGUMENTS)
    asked = message("assistant", tool_calls=st.lists(call, min_size=1, max_size=3), reasoning_content=TEXTS)
    others = [message(role) for role in ("user", "system", "developer", "assistant")]
    return st.one_of(asked, message("tool", tool_call_id=IDS), *others)


def agentscope_messages() -> st.SearchStrategy[dict[str, Any]]:
    fields = {"name": WORDS, "id": st.just("m1"), "created_at": st.just("2026-01-01T00:00:00")}
    text = block("text", text=TEXTS, id=st.just("b"))
    source = block("base64", data=PAYLOADS, media_type=MEDIA_TYPES) | block("url", url=URLS, media_type=MEDIA_TYPES)
    data = block("data", source=source, name=TEXTS)
    hint = block("hint", hint=TEXTS | st.lists(text | data, max_size=2))
    call = block("tool_call", id=IDS, name=WORDS, input=ARGUMENTS)
    states = st.sampled_from(["success", "error", "interrupted", "running"])
    result = block("tool_result", id=IDS, name=WORDS, output=TEXTS | st.lists(text | data, max_size=2), state=states)
    thought = block("thinking", thinking=TEXTS, signature=TEXTS, redacted_thinking_data=st.sampled_from(["", "aGk="]))
    user = messages_of("user", text, data, **fields)
    return user | messages_of("assistant", text, data, hint, call, result, thought, **fields)


def response_items() -> st.SearchStrategy[dict[str, Any]]:
    """Return user items, outputs, and responses whole: items of a response alone are refused."""
    blocks = block("input_text", text=TEXTS) | block("input_image", image_url=URLS) | ODD
    content = TEXTS | st.lists(blocks, max_size=3)
    said = st.fixed_dictionaries({"role": st.sampled_from(["user", "system"]), "content": content})
    output = block("function_call_output", call_id=IDS, output=content)
    text = block("output_text", text=TEXTS)
    answer = block("message", role=st.just("assistant"), content=st.lists(text, max_size=2))
    call = block("function_call", call_id=IDS, name=WORDS, arguments=ARGUMENTS)
    summary = st.lists(block("summary_text", text=TEXTS), max_size=2)
    thought = block("reasoning", id=st.just("rs_1"), summary=summary, encrypted_content=TEXTS)
    hosted = block("web_search_call", id=st.just("ws_1"), status=st.just("completed"))
    response = st.fixed_dictionaries({"output": st.lists(answer | call | thought | hosted, max_size=4)})
    return said | output | response


MESSAGES = {
    "agentscope": agentscope_messages(),
    "anthropic": anthropic_messages(),
    "bedrock": bedrock_messages(),
    "openai": openai_messages(),
    "openai-responses": response_items(),
}
ALTERNATING = ("anthropic", "bedrock")
PAIRS = [(one, other) for one in MESSAGES for other in MESSAGES if one != other]


def viewed(messages: Sequence[Any], dialect: str) -> list[Message]:
    return [dialect_named(dialect).view(message) for message in dialect_named(dialect).grouped(messages)]


def texts_of(views: Sequence[Message]) -> list[str]:
    parts = [part for view in views for part in (*view.parts, *(one for r in view.results for one in r.parts))]
    return [part.text for part in parts if isinstance(part, Text)]


def spoken(messages: Sequence[Any], dialect: str) -> list[str]:
    """Return the lines of all texts that *messages* say or show."""
    return [line for text in texts_of(viewed(messages, dialect)) for line in text.split("\n") if line.strip()]


@pytest.mark.parametrize(("one", "other"), PAIRS)
@SOME
@given(data=st.data())
def test_no_text_is_lost_and_what_comes_out_is_valid_for_its_api(one: str, other: str, data: st.DataObject) -> None:
    messages = data.draw(st.lists(MESSAGES[one], max_size=5))
    before = repr(messages)
    converted = convert(messages, to=other, from_=one)
    assert repr(messages) == before
    there = "\n".join([*spoken(converted.messages, other), converted.system])
    assert all(line in there for line in spoken(messages, one))
    assert all(0 <= loss.message < len(messages) for loss in converted.losses)
    assert_follows_the_rules(converted.messages, other)
    assert_has_the_form_of_its_api(converted.messages, other)


@pytest.mark.parametrize("dialect", MESSAGES)
@SOME
@given(data=st.data())
def test_what_has_the_form_already_follows_its_rules_afterwards(dialect: str, data: st.DataObject) -> None:
    messages = data.draw(st.lists(MESSAGES[dialect], max_size=5))
    assert_follows_the_rules(convert(messages, to=dialect, from_=dialect).messages, dialect)


def assert_follows_the_rules(messages: Sequence[Any], dialect: str) -> None:
    """Assert that calls and their results pair as the API wants it, and what it demands of roles, texts and ids."""
    views, waiting = viewed(messages, dialect), list[str]()
    for view in views:
        if waiting and dialect != "agentscope":  # each result comes before anything else is said
            assert isinstance(view.parts[0], ToolResult)
        for part in view.parts:
            if isinstance(part, ToolResult):
                waiting.remove(part.call_id)
            elif isinstance(part, ToolCall):
                waiting.append(part.call_id)
        assert not waiting or view.calls or (dialect not in ALTERNATING and view.role == "tool")
    assert waiting == []
    if dialect in ALTERNATING:
        assert all(text.strip() for text in texts_of(views))
        roles = [message["role"] for message in messages]
        assert roles[:1] in ([], ["user"])
        assert all(first != second for first, second in pairwise(roles))
        for view in views:
            results = [isinstance(part, ToolResult) for part in view.parts]
            assert results == sorted(results, reverse=True)
        ids = [call.call_id for view in views for call in view.calls]
        assert len(set(ids)) == len(ids)
        assert all(re.fullmatch("[a-zA-Z0-9_-]{1,64}", call_id) for call_id in ids)


def assert_has_the_form_of_its_api(messages: Sequence[Any], dialect: str) -> None:
    """Assert what the API's own package checks, or describes in its types."""
    if dialect == "bedrock":
        session = pytest.importorskip("botocore.session", reason="botocore comes with strands-agents")
        validate = pytest.importorskip("botocore.validate")
        converse = session.get_session().get_service_model("bedrock-runtime").operation_model("Converse")
        request = {"modelId": "m", "messages": with_changed(messages, as_strands_sends_it)}
        assert validate.ParamValidator().validate(request, converse.input_shape).generate_report() == ""
    elif dialect == "agentscope":
        assert all(isinstance(message, Msg) for message in messages)
    else:
        module, name = {
            "anthropic": ("anthropic.types", "MessageParam"),
            "openai": ("openai.types.chat", "ChatCompletionMessageParam"),
            "openai-responses": ("openai.types.responses", "ResponseInputItemParam"),
        }[dialect]
        adapter = TypeAdapter[Any](getattr(pytest.importorskip(module, reason="an extra for tests"), name))
        for message in messages:
            drained(adapter.validate_python(message))
            assert message.get("content", "") is not None or message.get("tool_calls")


def as_strands_sends_it(value: object) -> object:
    match value:
        case {"location": {"uri": uri}}:
            return {"s3Location": {"uri": uri}}
        case _:
            return value


def drained(value: Any) -> None:
    """Go through *value*: pydantic checks what is declared as an iterable when somebody goes through it."""
    if isinstance(value, Iterable) and not isinstance(value, str):
        for inner in value.values() if isinstance(value, dict) else value:
            drained(inner)


@pytest.mark.parametrize(("one", "other"), PAIRS)
@SOME
@given(data=st.data())
def test_what_every_dialect_has_is_lost_in_none(one: str, other: str, data: st.DataObject) -> None:
    words = data.draw(st.lists(WORDS, min_size=1, max_size=3))
    talk: list[dict[str, Any]] = [{"role": "user", "content": "Ahoy"}]
    for place, word in enumerate(words):
        ids = [f"c{place}-{n}" for n in range(data.draw(st.integers(1, 3)))]
        talk.append({"role": "assistant", "content": word, "tool_calls": [openai_call(call_id) for call_id in ids]})
        talk += [openai_result(call_id, f"{word} {call_id}") for call_id in ids]
    talk.append({"role": "assistant", "content": "Aye"})
    here = convert(talk, to=one, from_="openai").messages
    there = convert(here, to=other, from_=one)
    back = convert(there.messages, to=one, from_=other)
    assert there.losses == back.losses == ()
    assert convert(back.messages, to="openai", from_=one).messages == talk
    assert convert(there.messages, to="openai", from_=other).messages == talk
