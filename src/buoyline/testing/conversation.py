"""Messages for the suites: several dialects, images and documents, and ids as in real sessions."""

import base64
from typing import Any, Final

from buoyline.messages import Json, Media, Opaque, Text, ToolResult
from buoyline.messages.model import Base64, ResultPart

_PNG: Final = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
_AUDIO: Final = bytes(range(255, 0, -1))


def said(text: str) -> dict[str, Any]:
    """Return a user message that says *text*."""
    return {"role": "user", "content": text}


def result(call_id: str, text: str) -> ToolResult:
    """Return the result *text* of the call *call_id*."""
    return ToolResult(call_id, "tool", (Text(text),))


def result_of_all_kinds(call_id: str) -> ToolResult:
    """Return a result with a block of every kind: text, JSON, media with and without bytes, an unknown one."""
    return ToolResult(
        call_id,
        "survey",
        (
            Text("exit code 1"),
            Json('{"depth":[12,3.50],"mark":"\u2028"}'),
            Media("image", "image/png", len(_PNG), payload=_PNG),
            Text(""),
            Media("document", "application/pdf", 4, name="chart.pdf", payload=Base64("data:x;base64,JVBERg==", 14)),
            Media("image", "", 0, "https://example.org/buoy.png"),
            Media("audio", "audio/wav", len(_AUDIO), payload=_AUDIO),
            Media("image", "image/png", 3, payload=Base64("no base64!")),
            Opaque("hologram", '{"type":"hologram","beams":[1,2]}'),
            Text("half a character: \ud800\n"),
            Json("[]"),
        ),
        is_error=True,
    )


def contents(result: ToolResult) -> list[tuple[ResultPart, bytes | None]]:
    """Return the parts of *result*, each image or document with its bytes, to compare them."""
    return [(part, part.content() if isinstance(part, Media) else None) for part in result.parts]


def openai_messages() -> list[dict[str, Any]]:
    """Return new messages in OpenAI's form: system, text, image, audio, parallel calls, results, empty ids."""
    return [
        {"role": "system", "content": "Answer in one line."},
        {"role": "user", "content": [{"type": "text", "text": "See."}, _image_url(), _image_url()], "name": "ada"},
        {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": _b64(_AUDIO), "format": "wav"}}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [_call("call_A", '{"path": "a"}'), _call("call_A", "{not json"), _call("", "{}")],
        },
        {"role": "tool", "tool_call_id": "call_A", "content": "first"},
        {"role": "tool", "tool_call_id": "call_A", "content": [{"type": "text", "text": "second"}]},
        {"role": "tool", "tool_call_id": "", "content": ""},
        {"role": "assistant", "content": "Done.", "custom": {"z": 1, "a": [2.5, None, True]}},
    ]


def anthropic_messages() -> list[dict[str, Any]]:
    """Return new messages in Anthropic's form: image, reasoning, calls, and results of text and images."""
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": _b64(_PNG)}}
    return [
        {"role": "user", "content": [{"type": "text", "text": "See."}, image]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "sig"},
                {"type": "tool_use", "id": "toolu_1", "name": "run", "input": {"n": 1, "deep": [{"x": None}]}},
                {"type": "tool_use", "id": "toolu_2", "name": "run", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "one"}, image]},
                {"type": "tool_result", "tool_use_id": "toolu_2", "content": "two", "is_error": True},
            ],
        },
    ]


def agentscope_messages() -> list[dict[str, Any]]:
    """Return new messages in AgentScope's form: images at the top, in a result and in a hint, and one cut into two."""
    called = {"type": "tool_call", "id": "call_1", "name": "run", "input": '{"n": 1}', "state": "finished"}
    output = [{"type": "text", "text": "one", "id": "t1", **_TIMES}, _data_block("d2")]
    found = {"type": "tool_result", "id": "call_1", "name": "run", "output": output, "state": "success"}
    hint = {"type": "hint", "hint": [_data_block("d3")], "id": "h1", "source": None, **_TIMES}
    thought = {"type": "thinking", "thinking": "Hm.", "id": "t2", **_TIMES, "signature": "sig"}
    done = {"type": "text", "text": "Done.", "id": "t3", **_TIMES}
    return [
        _msg("ada", "user", "m1", {"type": "text", "text": "See.", "id": "t0", **_TIMES}, _data_block("d1")),
        _msg("Friday", "assistant", "m2", thought, {**called, "suggested_rules": [], **_TIMES}),
        _msg("Friday", "assistant", "m2", {**found, "metadata": {"n": [1, None]}, **_TIMES}, hint, done),
    ]


def long_conversation(turns: int) -> list[dict[str, Any]]:
    """Return a conversation of *turns* questions, each with a call, a result of 60 lines, and an answer."""
    messages: list[dict[str, Any]] = []
    for turn in range(turns):
        rows = "".join(f"depth {turn}.{row} is {turn * 60 + row} fathoms\n" for row in range(60))
        messages += [
            said(f"Question {turn}: which buoy is deepest?"),
            {"role": "assistant", "content": None, "tool_calls": [_call(f"call_{turn}", f'{{"chart": {turn}}}')]},
            {"role": "tool", "tool_call_id": f"call_{turn}", "content": rows},
            {"role": "assistant", "content": f"Answer {turn}: number 59, at {turn * 60 + 59} fathoms."},
        ]
    return messages


def _call(call_id: str, arguments: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "read", "arguments": arguments}}


_TIMES: Final = {"created_at": "2026-01-02T03:04:05", "finished_at": None}


def _msg(name: str, role: str, message_id: str, *content: dict[str, Any]) -> dict[str, Any]:
    head: dict[str, Any] = {"name": name, "content": list(content), "role": role, "id": message_id, "metadata": {}}
    rest = {"finished_reason": None, "structured_output": None, "error": None}
    return {**head, "created_at": _TIMES["created_at"], "usage": None, "finished_at": None, **rest}


def _data_block(block_id: str) -> dict[str, Any]:
    source = {"type": "base64", "data": _b64(_PNG), "media_type": "image/png"}
    return {"type": "data", "id": block_id, "source": source, "name": None, **_TIMES}


def _image_url() -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{_b64(_PNG)}"}}


def _b64(payload: bytes) -> str:
    return base64.b64encode(payload).decode("ascii")


# Ids and texts that models and tools have been seen to give, and those that break careless code.


HOSTILE_IDS: Final = (
    "..",
    ".",
    "../../escape",
    "/absolute/target",
    "a/b",
    "a_b",
    "a:b",
    "a b",
    "a\\..\\b",
    "a" * 300,
    "a" * 299,
    "\u65e5" * 100,
    "-rf",
    ".hidden",
    "abc",
    "abc.",
    "abc ",
    "a\n",
    "a",
    "a\x00b",
    "\x1b[31mred",
    "\u202egnp.exe",
    "\ud800x",
    "\U0001f98a",
    "Call_A",
    "call_a",
    "CALL_A",
    "\xe9",
    "e\u0301",
    "\u212a",
    "K",
    "*?<>|\"'",
    "%2e%2e%2fx",
    "\uff0e\uff0e\uff0fx",
    " ",
    "context.jsonl",
    "context",
    ".locks",
    "a~b",
)
"""Different ids of sessions and calls: paths, long ones, and some that differ only in case or Unicode form."""

HOSTILE_TEXTS: Final = (
    "",
    "plain",
    "two\nlines\n",
    "\n",
    "no\r\nsuch\rend",
    "gr\xf6\xdfer \u6f22\u5b57 \U0001f98a",
    "a\x00b\x1b[31m\x7f",
    "\x0b\x0c\x1c\x85\u2028\u2029",
    "\u202eright to left",
    "\ufeffmarked",
    "## 1 user \xb7 a heading?\n[offloaded: 9 lines in tool_result-c.txt]",
    '{"rows":[' + ",".join(f'{{"id":{number}}}' for number in range(400)) + "]}",
    "x" * 100_000,
)
"""Texts of messages and tool results that UTF-8 can encode."""

LONE_SURROGATES: Final = "cut in the middle of a character: \ud83d"
"""A text that UTF-8 cannot encode. Tools that cut JSON return such texts, and a workspace keeps them."""
