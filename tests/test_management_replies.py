"""Documents over replies that hold calls and their results in one message, as AgentScope's do."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("agentscope", reason="agentscope is an extra for tests")

from agentscope.message import AssistantMsg, HintBlock, Msg, TextBlock, ToolCallBlock, ToolResultBlock, UserMsg
from estimates import Estimates
from managed_window import ManagedWindow

from buoyline.management import ContextManagement
from buoyline.messages.registry import detect
from buoyline.workspace import MemoryWorkspace

if TYPE_CHECKING:
    from buoyline.messages import Message

LOUD = "".join(f"row {number}\n" for number in range(900))


def call(call_id: str) -> ToolCallBlock:
    return ToolCallBlock(id=call_id, name="read", input="{}")


def gave(call_id: str, text: str) -> ToolResultBlock:
    return ToolResultBlock(id=call_id, name="read", output=text)


def reply(*blocks: Any) -> Msg:
    return AssistantMsg("Friday", list(blocks))


def rounds(count: int, text: str) -> list[Any]:
    return [block for number in range(count) for block in (call(f"c{number}"), gave(f"c{number}", text))]


def doc(hook: str, kind: str, config: dict[str, Any], **activation: Any) -> ContextManagement:
    rules = {"activation": activation} if activation else {}
    return ContextManagement.read({"hooks": {hook: [{"type": kind, "config": {**config, **rules}}]}})


def conversation(management: ContextManagement, workspace: MemoryWorkspace | None = None) -> ManagedWindow:
    kept = workspace or MemoryWorkspace(evict_after_turns=None)
    return ManagedWindow(management, session_id="s1", offloader=kept, counter=Estimates())


async def prepared(management: ContextManagement, *messages: Msg) -> list[Any]:
    held = conversation(management)
    for message in messages:
        await held.add(message)
    return await held.prepare()


def results_in(messages: Sequence[Any]) -> list[str]:
    views: list[Message] = [detect(message).view(message) for message in messages]
    return [result.text for view in views for result in view.results]


@pytest.mark.parametrize("hook", ["post_tool", "pre_llm"])
@pytest.mark.parametrize(
    "blocks",
    [
        [call("a"), gave("a", LOUD)],
        [call("a"), gave("a", LOUD), TextBlock(text="There are 900 rows.")],
        [*rounds(3, LOUD), TextBlock(text="There are 900 rows.")],
    ],
    ids=["result last", "text behind it", "three rounds"],
)
async def test_a_large_result_within_a_reply_leaves_with_a_preview(hook: str, blocks: list[Any]) -> None:
    management = doc(hook, "OffloadManager", {"tool_result_limit": 300, "preview_tokens": 200})
    asked, answer, thanks = UserMsg("ada", "How many?"), reply(*blocks), UserMsg("ada", "Thanks.")
    shown = await prepared(management, asked, answer, thanks)

    assert (shown[0], shown[2]) == (asked, thanks)
    assert isinstance(shown[1], Msg)
    assert shown[1].id == answer.id
    assert len(results_in(shown)) == len(results_in([answer]))
    assert all(text.startswith("[Tool result offloaded: 900 lines") for text in results_in(shown))
    others = [block for block in shown[1].content if not isinstance(block, ToolResultBlock)]
    assert all(mine is theirs for mine, theirs in zip(others, blocks[::2], strict=True))


async def test_what_an_earlier_reply_holds_was_decided_about() -> None:
    management = doc("pre_llm", "OffloadManager", {"tool_result_limit": 300, "preview_tokens": 200})
    shown = await prepared(management, reply(*rounds(1, LOUD)), reply(TextBlock(text="So.")), UserMsg("ada", "Well?"))
    assert results_in(shown) == [LOUD]


async def test_activation_by_the_results_of_a_turn_counts_those_within_the_reply() -> None:
    management = doc("pre_llm", "ToolsOutputTruncateManager", {"max_output_length": 200}, turn_tokens_exceed=300)
    one = reply(call("a"), call("b"), gave("a", "x" * 1_000))
    assert results_in(await prepared(management, one)) == ["x" * 1_000]
    both = reply(*one.content, gave("b", "y" * 1_000))
    assert [len(text) for text in results_in(await prepared(management, both))] == [200, 200]
    parted = [one, reply(gave("b", "y" * 1_000))]
    assert [len(text) for text in results_in(await prepared(management, *parted))] == [200, 200]


async def test_older_results_within_one_reply_become_a_line_each_and_unread_ones_stay() -> None:
    config = {"keep_recent_results": 0, "min_tokens": 50}
    management = doc("pre_llm", "ToolResultMaskManager", config)
    blocks = [*rounds(3, "x" * 900), call("d"), call("e"), gave("d", "y" * 900), gave("e", "z" * 900)]
    *older, fourth, fifth = results_in(await prepared(management, reply(*blocks)))
    assert [text.startswith("[Older result of read left out") for text in older] == [True, True, True]
    assert (fourth, fifth) == ("y" * 900, "z" * 900)

    answered = reply(*blocks, TextBlock(text="Done."))
    masked = results_in(await prepared(management, answered))
    assert all(text.startswith("[Older result of read left out") for text in masked)


async def test_what_leaves_is_whole_in_the_archive() -> None:
    workspace = MemoryWorkspace(evict_after_turns=None)
    hooks: dict[str, Any] = {
        "post_tool": [{"type": "OffloadManager", "config": {"tool_result_limit": 300, "preview_tokens": 200}}],
        "pre_llm": [{"type": "SlidingWindowManager", "config": {"max_messages": 2}}],
    }
    held = conversation(ContextManagement.read({"hooks": hooks}), workspace)
    sent = [message for turn in range(4) for message in (UserMsg("ada", f"{turn}?"), reply(*rounds(2, LOUD)))]
    for message in sent:
        await held.add(message)
        await held.prepare()
    assert [message.id for message in held.messages[-2:]] == [message.id for message in sent[-2:]]
    archived = [value for _, value in await workspace.load_messages("s1", 0, 6)]
    assert [value["id"] for value in archived] == [message.id for message in sent[:6]]
    assert await workspace.missing("s1", [LOUD]) == []


async def test_a_hint_of_the_framework_is_not_taken_for_the_users_words() -> None:
    management = doc("pre_llm", "SlidingWindowManager", {"max_messages": 3, "notice": False})
    asked, hint = UserMsg("ada", "How many?"), AssistantMsg("Friday", [HintBlock(hint="It is noon.")])
    shown = await prepared(management, asked, *(reply(*rounds(1, "none")) for _ in range(4)), hint)

    assert shown[0] is asked
    assert shown[-1] is hint
