import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buoyline.messages import Media, Message, Opaque, Reasoning, Text, ToolCall, ToolResult
from buoyline.messages.model import Part, Role
from buoyline.messages.registry import detect
from buoyline.offloader.transcript import render

TIME = "2026-01-02T03:04:05.678Z"

nasty_texts = st.one_of(
    st.text(st.characters(exclude_categories=()), max_size=30),
    st.text(st.sampled_from("\n\r\x0b\x0c\x1c\x85\u2028\x00\x1b\ud800 a#中{}"), max_size=30),
    st.builds(str.__mul__, st.sampled_from(["x", "word ", "\n", "\u2028"]), st.integers(900, 2_200)),
)
names = st.sampled_from(["", "read", "a\nb"]) | nasty_texts
json_objects = st.dictionaries(nasty_texts, nasty_texts | st.integers() | st.lists(nasty_texts, max_size=2), max_size=3)
arguments = nasty_texts | json_objects.map(lambda found: json.dumps(found, ensure_ascii=False))
contents = st.one_of(
    st.builds(Text, nasty_texts),
    st.builds(Media, names, names, st.integers(0, 10**9), nasty_texts),
    st.builds(Opaque, names, nasty_texts),
)
parts = st.one_of(
    contents,
    st.builds(Reasoning, nasty_texts),
    st.builds(ToolCall, names, names, arguments),
    st.builds(ToolResult, names, names, st.lists(contents, max_size=3).map(tuple), st.booleans()),
)
roles: st.SearchStrategy[Role] = st.sampled_from(["system", "user", "assistant", "tool"])
messages = st.builds(Message, roles, st.lists(parts, max_size=4).map(tuple), names)


def _is_no_stub(_text: str) -> None:
    return None


def _rendered(*conversation: Message, first: int = 0) -> list[list[str]]:
    return render(conversation, first, [TIME] * len(conversation), _is_no_stub)


def _body(*found: Part) -> list[str]:
    """Return the lines of a message of *found* without its heading and the empty line after it."""
    ((_, *body, end),) = _rendered(Message("user", found))
    assert end == ""
    return body


@given(st.lists(messages, max_size=4), st.integers(0, 10**6))
def test_every_reader_counts_the_same_lines_none_of_them_long(conversation: list[Message], first: int) -> None:
    rendered = render(conversation, first, [TIME] * len(conversation), _is_no_stub)
    assert len(rendered) == len(conversation)
    for lines in rendered:
        content = "".join(f"{line}\n" for line in lines)
        assert content.splitlines() == lines
        assert content.encode("utf-8").split(b"\n") == [*(line.encode("utf-8") for line in lines), b""]
        assert all(len(line) <= 1_000 for line in lines)


@given(st.lists(messages, min_size=1, max_size=4), st.integers(0, 1_000))
def test_each_message_has_a_heading_with_its_number_and_ends_in_an_empty_line(
    conversation: list[Message], first: int
) -> None:
    for number, (message, lines) in enumerate(
        zip(conversation, render(conversation, first, [TIME] * len(conversation), _is_no_stub), strict=True), first
    ):
        assert lines[0].startswith(f"## {number} {message.role}")
        assert lines[-1] == ""


@pytest.mark.parametrize(
    ("message", "heading"),
    [
        (Message("user", (Text("hi"),)), f"## 7 user · {TIME}"),
        (Message("user", (), "Ada"), f"## 7 user · Ada · {TIME}"),
        (Message("tool", (ToolResult("c", "read", ()),), "read"), f"## 7 tool · read · {TIME}"),
        (Message("tool", (ToolResult("c", "", ()),)), f"## 7 tool · {TIME}"),
        (
            Message("tool", (ToolResult("c", "read", ()), ToolResult("d", "grep", ()), ToolResult("e", "read", ()))),
            f"## 7 tool · read · grep · {TIME}",
        ),
    ],
)
def test_a_heading_names_number_role_speaker_or_tools_and_time(message: Message, heading: str) -> None:
    assert _rendered(message, first=7) == [[heading, *_rendered(message, first=7)[0][1:]]]


def test_a_result_is_named_after_the_tool_of_its_call() -> None:
    call = Message("assistant", (ToolCall("c1", "read", "{}"),))
    result = Message("tool", (ToolResult("c1", "", (Text("done"),)),))
    assert _rendered(call, result)[1] == [f"## 1 tool · read · {TIME}", "### result read c1", "done", ""]


def test_reasoning_is_set_apart() -> None:
    assert _body(Reasoning("Hm.\nYes."), Text("Done.")) == [
        "(reasoning)",
        "Hm.",
        "Yes.",
        "(end of reasoning)",
        "Done.",
    ]


def test_a_call_shows_its_arguments_by_name() -> None:
    call = ToolCall("c1", "write", json.dumps({"path": "a.py", "n": 1.5, "to": ["x", None], "text": "one\ntwo\n"}))
    assert _body(call) == [
        "### call write c1",
        "path: a.py",
        "n: 1.5",
        'to: ["x", null]',
        "text:",
        "one",
        "two",
    ]


@pytest.mark.parametrize("found", ['{"a": ', "[1, 2]", "plain", "[" * 100_000], ids=lambda found: found[:10])
def test_arguments_that_are_no_object_stand_as_they_are(found: str) -> None:
    assert "".join(line.removeprefix("\u2026 ") for line in _body(ToolCall("c", "f", found))[1:]) == found


def test_a_failed_result_says_so() -> None:
    assert _body(ToolResult("c1", "read", (Text("no such file"),), is_error=True)) == [
        "### result read c1 (error)",
        "no such file",
    ]


@pytest.mark.parametrize(
    ("part", "line"),
    [
        (Media("image", "image/png", 12_345), "[image: image/png, 12,345 bytes]"),
        (Media("image", "", 0, "https://x/a.png"), "[image: unknown type] https://x/a.png"),
        (Media("audio", "audio/wav", 0, "s" * 1_000), f"[audio: audio/wav] {'s' * 300}..."),
        (Opaque("video", '{"type":"video"}'), '[video] {"type":"video"}'),
    ],
)
def test_what_is_no_text_is_named(part: Part, line: str) -> None:
    assert _body(part) == [line]


def test_an_offloaded_result_stands_by_its_path_and_not_again() -> None:
    stub = "[Tool result offloaded: 9 lines]\n\n1: first"
    image = Media("image", "image/png", 8)
    conversation = [
        Message("tool", (ToolResult("c1", "read", (Text(stub), image)), ToolResult("c2", "read", (Text("short"),)))),
    ]
    rendered = render(
        conversation,
        3,
        [TIME],
        lambda text: "[offloaded: 9 lines in tool_result-c1.txt]" if text == stub else None,
    )
    assert rendered == [
        [
            f"## 3 tool · read · {TIME}",
            "### result read c1",
            "[offloaded: 9 lines in tool_result-c1.txt]",
            "[image: image/png, 8 bytes]",
            "### result read c2",
            "short",
            "",
        ]
    ]


def test_recorded_sessions_are_rendered_for_every_reader(shared_data: Path) -> None:
    for path in sorted((shared_data / "sessions").glob("*.jsonl")):
        natives = [json.loads(line) for line in path.read_bytes().split(b"\n") if line]
        rendered = _rendered(*(detect(native).view(native) for native in natives))
        lines = [line for message in rendered for line in message]
        assert "".join(f"{line}\n" for line in lines).splitlines() == lines
        assert max(map(len, lines)) <= 1_000
