"""A provider that compacts by itself: its item stands for all before it, and the window keeps that out of its way."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from verbose_runs import SECRET, output

from buoyline import ContextWindow
from buoyline.window import Event, HistoryForked

SIZE = 60_000
COMPACTED_AT = (20, 40)

Step: TypeAlias = Callable[[int], list[Any]]


def responses(n: int) -> list[Any]:
    """Return the items of a call to OpenAI: its compaction comes before the reasoning."""
    compaction = {"id": f"compaction_{n}", "type": "compaction", "encrypted_content": "y" * 2_000}
    reasoning = {"id": f"rs_{n}", "type": "reasoning", "summary": [], "encrypted_content": "x" * 800}
    call = {"id": f"fc_{n}", "type": "function_call", "call_id": f"call_{n}", "name": "log", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": f"call_{n}", "output": output(n)}
    return [*([compaction] if n in COMPACTED_AT else []), reasoning, call, result]


def anthropic(n: int) -> list[Any]:
    """Return the messages of a call to Anthropic: its compaction is a block of the answer."""
    compaction = {"type": "compaction", "content": f"Summary {n}: the user wants all logs read."}
    content: list[Any] = [{"type": "text", "text": f"Step {n}."}, {"type": "tool_use", "id": f"t{n}", "name": "log"}]
    content[1]["input"] = {"n": n}
    result = {"type": "tool_result", "tool_use_id": f"t{n}", "content": output(n)}
    said = [*([compaction] if n in COMPACTED_AT else []), *content]
    return [{"role": "assistant", "content": said}, {"role": "user", "content": [result]}]


def kinds(request: list[Any]) -> list[str]:
    """Name each item, or the blocks of each message."""
    blocks = [item.get("content") for item in request]
    return [
        item.get("type") or ("+".join(block["type"] for block in held) if isinstance(held, list) else item["role"])
        for item, held in zip(request, blocks, strict=True)
    ]


@pytest.mark.parametrize("cuts_its_list", [False, True], ids=["whole list", "list from the compaction on"])
@pytest.mark.parametrize(
    ("step", "dialect"), [(responses, "openai-responses"), (anthropic, "anthropic"), (anthropic, None)]
)
async def test_what_a_provider_has_compacted_is_archived_and_only_its_newest_item_is_sent(
    step: Step, dialect: str | None, tmp_path: Path, *, cuts_its_list: bool
) -> None:
    events, listed = list[Event](), list[Any]([{"role": "user", "content": "Read all logs."}])
    window = await ContextWindow.open(tmp_path, "s1", size=SIZE, dialect=dialect, on_event=events.append)
    for n in range(50):
        listed = step(n) if cuts_its_list and n in COMPACTED_AT else [*listed, *step(n)]
        request = await window.request(listed)
        shown = kinds(request)
        assert shown.count("compaction") == (n >= COMPACTED_AT[0])
        if n in COMPACTED_AT:
            assert window.tokens < 2_500
            assert shown.index("compaction") <= 1  # Anthropic's list begins with a word of the user's
            assert "Summary of messages 0-" in json.dumps(request[shown.index("compaction") + 1])
            assert window.note_usage({"input_tokens": int(window.tokens * 1.4)})
    again = await ContextWindow.open(tmp_path, "s1", on_event=events.append)
    assert kinds(await again.request([*listed, *step(50)]))[: len(shown)] == shown
    assert not any(isinstance(event, HistoryForked) for event in events)
    grep = next(tool for tool in again.tools() if tool.name == "grep")
    assert SECRET in await grep.call(pattern="SECRET-3-")


async def test_a_compaction_outlasts_the_compactions_of_the_window(tmp_path: Path) -> None:
    window = await ContextWindow.open(tmp_path, "s1", size=SIZE, dialect="openai-responses")
    await window.extend([{"role": "user", "content": "Read."}, *responses(1), *responses(COMPACTED_AT[0])])
    await window.prepare()
    for n in range(30, 34):
        await window.extend(responses(n))
    summary = await window.compress(before=-2)
    assert summary is not None
    assert kinds(await window.prepare()) == ["compaction", "user", "reasoning", "function_call", "function_call_output"]


async def test_what_the_user_said_stays_beside_the_item_of_the_compact_endpoint(tmp_path: Path) -> None:
    window = await ContextWindow.open(tmp_path, "s1", size=SIZE, dialect="openai-responses")
    asked = {"role": "user", "content": "Read all logs."}
    await window.request([asked, *responses(1), *responses(2)])
    listed = [asked, responses(COMPACTED_AT[0])[0]]  # what the endpoint returned, in place of the list
    assert await window.request(listed) == listed
    grep = next(tool for tool in window.tools() if tool.name == "grep")
    assert "SECRET-1-" in await grep.call(pattern="SECRET-1-")


@pytest.mark.parametrize("way", ["request", "extend", "add"])
@pytest.mark.parametrize("dialect", ["anthropic", None])
async def test_an_answer_may_have_several_compactions_and_the_last_one_stands(
    tmp_path: Path, dialect: str | None, way: str
) -> None:
    window = await ContextWindow.open(tmp_path, "s1", size=SIZE, dialect=dialect)
    blocks: list[Any] = [{"type": "compaction", "content": "S1"}, {"type": "text", "text": "between"}]
    answer, result = anthropic(3)
    answer["content"] = [*blocks, {"type": "compaction", "content": "S2"}, *answer["content"]]
    listed = [{"role": "user", "content": "Read."}, answer, result]
    if way == "request":
        await window.request(listed)
    elif way == "extend":
        await window.extend(listed)
    else:
        for message in listed:
            await window.add(message)
    request = await window.prepare()
    assert kinds(request) == ["user", "compaction", "user", "text+tool_use", "tool_result"]
    assert "S2" in json.dumps(request[1])


@pytest.mark.parametrize("way", ["add", "extend"])
async def test_a_compaction_within_a_response_of_openais_stands_for_what_was_before(tmp_path: Path, way: str) -> None:
    window = await ContextWindow.open(tmp_path, "s1", size=SIZE, dialect="openai-responses")
    await window.extend([{"role": "user", "content": "Read."}, *responses(1)])
    items = [responses(COMPACTED_AT[0])[0], {"type": "message", "role": "assistant", "content": "Done."}]
    await (window.add({"output": items}) if way == "add" else window.extend(items))
    assert kinds(await window.prepare()) == ["compaction", "user", "message"]


async def test_a_request_from_before_the_newest_compaction_is_known_again(tmp_path: Path) -> None:
    window = await ContextWindow.open(tmp_path, "s1", size=SIZE, dialect="anthropic")
    older = await window.request([{"role": "user", "content": "Read."}, *anthropic(1), *anthropic(COMPACTED_AT[0])])
    assert kinds(older)[:2] == ["user", "compaction"]
    await window.extend([*anthropic(30), *anthropic(31)])
    await window.compress(before=-2)
    again = await ContextWindow.open(tmp_path, "s1")
    await again.follow(older)
    assert kinds(await again.prepare()).count("compaction") == 1
    assert json.dumps(await again.prepare()).count("no longer in the context.]") == 1


@pytest.mark.parametrize("dialect", ["anthropic", None])
async def test_a_failed_compaction_of_anthropics_stands_for_nothing(tmp_path: Path, dialect: str | None) -> None:
    window = await ContextWindow.open(tmp_path, "s1", size=SIZE, dialect=dialect)
    failed = {"role": "assistant", "content": [{"type": "compaction", "content": None}, {"type": "text", "text": "I"}]}
    await window.extend([{"role": "user", "content": "Read."}, *anthropic(1), failed])
    assert len(await window.prepare()) == 4
