"""Conformance suites for token counters and offloaders, and the messages for them."""

import asyncio
import base64
from abc import ABC, abstractmethod
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from buoyline.messages import Media, Text, ToolResult
from buoyline.messages.model import ResultPart
from buoyline.offloader import Offloader
from buoyline.tokens import TextCounter

_PNG: Final = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
_AUDIO: Final = bytes(range(255, 0, -1))


def said(text: str) -> dict[str, Any]:
    """Return a user message that says *text*."""
    return {"role": "user", "content": text}


def result(call_id: str, text: str) -> ToolResult:
    """Return the result *text* of the call *call_id*."""
    return ToolResult(call_id, "tool", (Text(text),))


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


_PROSE: Final = "The keeper writes down wind, sea and every ship that passes; nobody has read it for years.\n"
_JSON: Final = '{"rows": [' + ", ".join(f'{{"id": {number}, "depth": 9.5}}' for number in range(300)) + "]}"

COUNTED_TEXTS: Final = (
    *HOSTILE_TEXTS,
    LONE_SURROGATES,
    "\ud83d\ude00\ude00\ud83d" * 50,
    "".join(map(chr, range(1, 0x300))),
    "\x00" * 300,
    "don't\u2019s '\u0301\u0301 <|endoftext|>",
    " " * 5_000 + "x",
    "\n\t \u00a0\r\n" * 500,
    "=" * 5_000,
    "aAbB" * 1_000,
    "0123456789" * 300,
    "\u6f22\u5b57\u304b\u306a " * 300,
    "\U0001f468\u200d\U0001f469\u200d\U0001f467" * 100,
    "[[{{[[" * 300 + "text",
    "text" * 300 + "[[{{[[" * 300,
    _PROSE * 60,
    _JSON,
)
"""Texts that are hard to count: scripts, blanks, repeated characters, marks, halves of characters, brackets."""


class CounterConformance(ABC):  # noqa: B024 - abstract since it needs a fixture of the class that inherits it
    """Inherit it in a test class with a fixture ``counter``.

    It checks that `exceeds` and `head` agree with `count`, which alone decides how many tokens a text has.
    """

    def test_a_count_is_a_whole_number_and_always_the_same(self, counter: TextCounter) -> None:
        """A text that is counted again during a compaction has the same count."""
        for text in COUNTED_TEXTS:
            tokens = counter.count(text)
            assert type(tokens) is int
            assert tokens >= 0
            assert counter.count(text) == tokens

    def test_exceeds_agrees_with_count(self, counter: TextCounter) -> None:
        """One token less, the same number and one more decide exactly."""
        for text in COUNTED_TEXTS:
            tokens = counter.count(text)
            assert counter.exceeds(text, tokens - 1)
            assert not counter.exceeds(text, tokens)
            assert not counter.exceeds(text, tokens + 1)

    def test_head_is_a_prefix_within_the_limit(self, counter: TextCounter) -> None:
        """By a recount; an empty head is allowed if even the empty text exceeds the limit."""
        for text, _, max_tokens in _limits(counter):
            head = counter.head(text, max_tokens)
            assert text.startswith(head)
            assert not head or counter.count(head) <= max_tokens

    def test_a_text_within_the_limit_is_its_own_head(self, counter: TextCounter) -> None:
        """A limit does not change a shorter text."""
        for text, tokens, max_tokens in _limits(counter):
            if tokens <= max_tokens:
                assert counter.head(text, max_tokens) == text

    def test_head_keeps_most_of_what_it_may(self, counter: TextCounter) -> None:
        """At least half of the limit in ordinary texts, or previews would show less than they promise."""
        for text in (_PROSE * 60, _JSON):
            for max_tokens in (50, counter.count(text) // 2):
                assert counter.count(counter.head(text, max_tokens)) >= max_tokens // 2

    def test_threads_may_share_it(self, counter: TextCounter) -> None:
        """Windows of several threads share one counter."""
        expected = [counter.count(text) for text in COUNTED_TEXTS]
        with ThreadPoolExecutor(4) as pool:
            counts = list(pool.map(counter.count, COUNTED_TEXTS * 4))
        assert counts == expected * 4


def _limits(counter: TextCounter) -> Iterator[tuple[str, int, int]]:
    """Yield texts with their tokens, and limits below, at and above them."""
    for text in COUNTED_TEXTS:
        tokens = counter.count(text)
        for max_tokens in sorted(
            {-1, 0, 1, 2, 3, 10, tokens // 3, tokens // 2, max(tokens - 1, 0), tokens, tokens + 1}
        ):
            yield text, tokens, max_tokens


class OffloaderConformance(ABC):
    """Inherit it in a test class with a fixture ``offloader`` that returns a new one for each test.

    The tests are asynchronous; pytest-asyncio runs them in its mode ``auto``.
    """

    @abstractmethod
    def peek(self, offloader: Any, reference: str) -> str:
        """Return the text stored under *reference* without the offloader itself.

        So a mistake in writing cannot hide behind the same mistake in reading.
        """

    async def test_a_tool_result_is_stored_whole_under_its_reference(self, offloader: Offloader) -> None:
        """Each text comes back equal, also empty, hostile and large ones."""
        for number, text in enumerate(HOSTILE_TEXTS):
            reference = await offloader.offload_tool_result("s", result(f"call_{number}", text))
            assert self.peek(offloader, reference) == text

    async def test_one_call_id_with_two_results_keeps_both(self, offloader: Offloader) -> None:
        """Ids repeat in real sessions; in some, all are empty."""
        for call_id in ("same", ""):
            first = await offloader.offload_tool_result("s", result(call_id, "one"))
            second = await offloader.offload_tool_result("s", result(call_id, "two"))
            assert (self.peek(offloader, first), self.peek(offloader, second)) == ("one", "two")

    async def test_hostile_ids_are_results_of_their_own(self, offloader: Offloader) -> None:
        """Models and providers choose ids of calls, and users those of sessions: paths, near duplicates, long ones."""
        calls = [("s", call_id) for call_id in HOSTILE_IDS] + [(session_id, "c") for session_id in HOSTILE_IDS]
        references = [await offloader.offload_tool_result(ids[0], result(ids[1], f"of {ids!r}")) for ids in calls]
        for ids, reference in zip(calls, references, strict=True):
            assert self.peek(offloader, reference) == f"of {ids!r}"

    async def test_sessions_do_not_mix(self, offloader: Offloader) -> None:
        """The same id in another session is another result."""
        first = await offloader.offload_tool_result("s1", result("c", "one"))
        second = await offloader.offload_tool_result("s2", result("c", "two"))
        assert (self.peek(offloader, first), self.peek(offloader, second)) == ("one", "two")

    async def test_every_message_can_be_found_under_the_reference_of_its_batch(self, offloader: Offloader) -> None:
        """A later batch does not change an earlier one."""
        references = [await offloader.offload_context("s", [said(f"needle-{number}")]) for number in range(5)]
        for number, reference in enumerate(references):
            assert f"needle-{number}" in self.peek(offloader, reference)

    async def test_concurrent_batches_are_all_kept(self, offloader: Offloader) -> None:
        """Tasks of one event loop do not overwrite each other."""
        calls = (offloader.offload_context("s", [said(f"needle-{number}-")]) for number in range(20))
        references = await asyncio.gather(*calls)
        for number, reference in enumerate(references):
            assert f"needle-{number}-" in self.peek(offloader, reference)

    async def test_messages_are_not_changed(self, offloader: Offloader) -> None:
        """The messages belong to the caller."""
        message = said("as it was")
        await offloader.offload_context("s", [message])
        assert message == said("as it was")
