"""What documents do to conversations: the page's promises, and what goes wrong with them elsewhere."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from buoyline import ContextWindow
from buoyline.compression import SummaryRequest
from buoyline.errors import ConfigError
from buoyline.management import ContextManagement, ManagerRun, register_manager
from buoyline.workspace import LocalWorkspace, MemoryWorkspace

SYSTEM = {"role": "system", "content": "Be brief."}
SESSION = "s1"
WORDS = " of many words" * 200
"""Behind each message: a summary that is larger than what it replaces is refused."""


class Last10Messages:
    """Keeps the last ten messages.

    The page of Strands has this as its example.
    """

    def reduce(self, messages: list[Any], *, error: BaseException | None = None) -> bool:
        if len(messages) <= 10:
            return False
        del messages[:-10]
        return True


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def calls(*call_ids: str) -> dict[str, Any]:
    function = {"name": "read", "arguments": "{}"}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call_id, "type": "function", "function": function} for call_id in call_ids],
    }


def gave(call_id: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def doc(hook: str, kind: str, config: dict[str, Any] | None = None, **activation: Any) -> ContextManagement:
    rules = {"activation": activation} if activation else {}
    return ContextManagement.read({"hooks": {hook: [{"type": kind, "config": {**(config or {}), **rules}}]}})


class Managed:
    """A window under a document; the hooks of each message fire when it is added, and all reports are kept."""

    def __init__(self, management: ContextManagement, workspace: Any = None, **options: Any) -> None:
        options.setdefault("offloader", workspace or MemoryWorkspace(evict_after_turns=None))
        self.window = ContextWindow(management=management, session_id=SESSION, **options)
        self.entries: list[ManagerRun] = []

    @property
    def messages(self) -> list[Any]:
        return list(self.window.messages)

    async def add(self, message: Any) -> None:
        await self.window.add(message)
        await self.window.save()
        self.entries += self.window.report.entries

    async def prepare(self, management: Any = None) -> list[Any]:
        shown = list(await self.window.prepare(management))
        self.entries += self.window.report.entries
        return shown


async def prepared(
    management: ContextManagement, messages: Sequence[Any], workspace: Any = None, **options: Any
) -> tuple[list[Any], Managed]:
    """Add *messages* and prepare once; return what is said, without system messages, summaries and notices."""
    held = Managed(management, workspace, **options)
    for message in messages:
        await held.add(message)
    await held.prepare()
    return said(held), held


def said(held: Managed) -> list[Any]:
    ours = ("[Messages before number ", "[Summary of messages ")
    return [one for one in held.messages if one["role"] != "system" and not str(one["content"]).startswith(ours)]


def talk(count: int, words: str = WORDS) -> list[dict[str, Any]]:
    """Return *count* messages of a user and an assistant in turn, the user's last."""
    roles = ("user", "assistant") if count % 2 else ("assistant", "user")
    return [{"role": roles[number % 2], "content": f"message {number}{words}"} for number in range(count)]


# What the page promises


async def test_a_sliding_window_keeps_6_messages_once_there_are_more_than_12() -> None:
    management = doc("pre_llm", "SlidingWindowManager", {"max_messages": 6}, message_count_exceed=12)
    twelve = talk(12)
    kept, held = await prepared(management, twelve)
    assert kept == twelve
    assert held.entries[-1].reason == "12 messages, not more than 12"

    thirteen = talk(13)
    kept, held = await prepared(management, [SYSTEM, *thirteen])
    assert kept == thirteen[-6:]
    assert held.messages[0] is SYSTEM
    assert all(mine is theirs for mine, theirs in zip(kept, thirteen[-6:], strict=True))


async def test_what_slides_out_is_in_the_archive_and_a_notice_says_where() -> None:
    workspace = MemoryWorkspace()
    management = doc("pre_llm", "SlidingWindowManager", {"max_messages": 4})
    kept, held = await prepared(management, [SYSTEM, *talk(11)], workspace)
    archived = [value for _, value in await workspace.load_messages(SESSION, 0, 8)]

    assert archived == [SYSTEM, *talk(11)[:7]]
    assert held.messages[1]["content"].startswith("[Messages before number 8 are no longer in the context")
    assert "memory:///sessions/s1/transcript.md" in held.messages[1]["content"]
    assert kept == talk(11)[-4:]
    assert (await prepared(doc("pre_llm", "SlidingWindowManager", {"max_messages": 4, "notice": False}), talk(9)))[
        1
    ].messages == talk(9)[-4:]


async def test_a_summary_takes_the_place_of_30_percent_above_the_tokens_and_the_10_newest_are_preserved() -> None:
    management = doc(
        "pre_llm", "SummarizationManager", {"summary_ratio": 0.3, "preserve_recent_messages": 10}, tokens_exceed=2_000
    )
    messages = [user(f"message {number}: " + "word " * 120) for number in range(20)]
    kept, held = await prepared(management, [SYSTEM, *messages])

    assert kept == messages[6:]
    assert held.messages[0] is SYSTEM
    assert held.messages[1]["role"] == "user"
    assert held.messages[1]["content"].startswith("[Summary of messages 0-6, which are no longer in the context.")
    assert held.entries[-1].is_reduced


@pytest.mark.parametrize(
    ("count", "summarised"), [(9, 0), (10, 0), (11, 1), (12, 2), (13, 3), (14, 4), (15, 4), (20, 6), (30, 9), (100, 30)]
)
async def test_so_many_messages_are_summarised_as_the_documented_defaults_give(count: int, summarised: int) -> None:
    kept, _ = await prepared(doc("pre_llm", "SummarizationManager"), talk(count))
    assert kept == talk(count)[summarised:]


async def test_sliding_works_after_a_tool_too() -> None:
    management = doc("post_tool", "SlidingWindowManager", {"max_messages": 3})
    held = Managed(management)
    for message in [*talk(8), user("?"), calls("c"), gave("c", "done")]:
        await held.add(message)
    assert said(held) == [user("?"), calls("c"), gave("c", "done")]


async def test_managers_of_a_hook_run_in_the_order_of_the_document_each_on_what_is_left() -> None:
    hooks = {
        "pre_llm": [
            {"type": "SlidingWindowManager", "config": {"max_messages": 20}},
            {"type": "SlidingWindowManager", "config": {"max_messages": 4, "activation": {"tokens_exceed": 10}}},
        ]
    }
    kept, held = await prepared(ContextManagement.read({"hooks": hooks}), talk(30))
    assert kept == talk(30)[-4:]
    assert [one.messages for one in held.entries] == [(30, 20), (20, 4)]


# What goes wrong elsewhere


async def test_tokens_exceed_counts_the_output_that_has_just_come() -> None:
    management = doc("post_tool", "ToolsOutputTruncateManager", {"max_output_length": 40_000}, tokens_exceed=150_000)
    held = Managed(management)
    for message in (user("?"), calls("c"), gave("c", "y" * 1_000_000)):
        await held.add(message)
    assert len(said(held)[-1]["content"]) == 40_000


async def test_tokens_exceed_counts_system_prompt_tools_and_history() -> None:
    management = doc("pre_llm", "SlidingWindowManager", {"max_messages": 1}, tokens_exceed=500)
    for options in ({"system": "word " * 500}, {"tools": [{"name": "t", "description": "word " * 500}]}):
        kept, _ = await prepared(management, talk(5, ""), **options)
        assert len(kept) == 1
    assert len((await prepared(management, talk(5, "")))[0]) == 5


async def test_words_that_look_like_tool_calls_part_nothing() -> None:
    messages = [user(f"{number}: the toolResult of a toolUse has a tool_call_id") for number in range(10)]
    kept, _ = await prepared(doc("pre_llm", "SlidingWindowManager", {"max_messages": 4}), messages)
    assert kept == messages[-4:]


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6])
async def test_a_tool_loop_is_never_emptied_nor_parted(limit: int) -> None:
    pairs = [message for n in range(5) for message in (calls(f"c{n}"), gave(f"c{n}", f"result {n}"))]
    messages = [user("Go on until it works."), *pairs]
    kept, _ = await prepared(doc("pre_llm", "SlidingWindowManager", {"max_messages": limit}), messages)

    assert kept[0] == messages[0], "the user's words stand again"
    assert kept[-2:] == messages[-2:]
    assert len(kept) == max(3, limit - (limit - 1) % 2)


@pytest.mark.parametrize("limit", range(1, 9))
async def test_parallel_calls_stay_or_leave_together(limit: int) -> None:
    group = [calls("a", "b", "c"), gave("a", "1"), gave("b", "2"), gave("c", "3")]
    messages = [user("first"), *group, {"role": "assistant", "content": "so"}, user("second")]
    kept, _ = await prepared(doc("pre_llm", "SlidingWindowManager", {"max_messages": limit}), messages)
    assert kept[-1] == user("second")
    assert len([message for message in kept if message in group]) in (0, 4)
    assert len(kept) <= limit


async def test_a_call_that_waits_for_parallel_results_is_held() -> None:
    held = Managed(doc("post_tool", "SlidingWindowManager", {"max_messages": 1}))
    for message in (user("?"), calls("a", "b"), gave("a", "1")):
        await held.add(message)
    assert said(held) == [user("?"), calls("a", "b"), gave("a", "1")]
    await held.add(gave("b", "2"))
    assert said(held)[1:] == [calls("a", "b"), gave("a", "1"), gave("b", "2")]


async def test_a_window_never_begins_with_a_result_of_no_call() -> None:
    messages = [user("a"), gave("lost", "orphan"), {"role": "assistant", "content": "b"}, user("c"), user("d")]
    kept, _ = await prepared(doc("pre_llm", "SlidingWindowManager", {"max_messages": 4}), messages)
    assert kept == messages[2:]


async def test_summarising_takes_no_preserved_message_to_keep_a_pair_together() -> None:
    group = [calls("a", "b"), gave("a", "1"), gave("b", "2")]
    messages = [user("x" + WORDS), user("y" + WORDS), *group, *talk(3)]
    management = doc("pre_llm", "SummarizationManager", {"summary_ratio": 0.5, "preserve_recent_messages": 4})
    kept, _ = await prepared(management, messages)
    assert kept == messages[2:]


async def test_a_summariser_is_shown_who_said_what_and_which_tools_were_called() -> None:
    seen: list[SummaryRequest] = []

    async def summarize(request: SummaryRequest) -> str:
        seen.append(request)
        return "They looked at the chart."

    messages = [user("look" + WORDS), calls("c"), gave("c", "depth 9"), *talk(9)]
    config = {
        "preserve_recent_messages": 8,
        "summarization_model_id": "small",
        "summarization_system_prompt": "In one sentence.",
    }
    management = doc("pre_llm", "SummarizationManager", config)
    _, held = await prepared(management, messages, summarizers={"small": summarize})

    assert [source.message.role for source in seen[0].sources] == ["user", "assistant", "tool"]
    assert seen[0].prompt == "In one sentence."
    assert "They looked at the chart." in held.messages[0]["content"]

    _, held = await prepared(management, messages)
    assert "no summariser is named 'small'" in held.entries[-1].problems


async def test_a_summariser_that_fails_loses_nothing_and_the_report_says_so() -> None:
    async def summarize(_: SummaryRequest) -> str:
        raise OSError("no route to host")

    _, held = await prepared(
        doc("pre_llm", "SummarizationManager"), talk(30), summarizer=summarize, workspace=MemoryWorkspace()
    )
    assert held.messages[0]["content"].startswith("[Summary of messages 0-8")
    assert any("no route to host" in problem for problem in held.entries[-1].problems)


@pytest.mark.parametrize("limit", [1, 2, 5, 12, 13, 40, 90, 150, 300])
@pytest.mark.filterwarnings("ignore:no offloader")
@pytest.mark.parametrize("is_kept", [True, False], ids=["kept", "lost"])
async def test_a_truncated_output_is_no_longer_than_it_may_be_notice_included(limit: int, *, is_kept: bool) -> None:
    management = doc("post_tool", "ToolsOutputTruncateManager", {"max_output_length": limit})
    offloader = MemoryWorkspace() if is_kept else None
    held = Managed(management, offloader=offloader)
    await held.add(calls("c"))
    for text in ("x" * 400, "\ud83d\ude00" * 200):
        await held.add(gave("c", text))
        shown = said(held)[-1]["content"]
        assert 0 < len(shown) <= limit
        notice = min((shown.find(sign) for sign in ("\n[", "\n<", "…") if sign in shown), default=len(shown))
        assert (notice % 2 == 0) if text[0] != "x" else text.startswith(shown[:notice])


async def test_without_an_offloader_one_warning_says_what_is_lost() -> None:
    held = Managed(doc("pre_llm", "SlidingWindowManager", {"max_messages": 2}), offloader=None)
    for message in talk(5):
        await held.add(message)
    with pytest.warns(UserWarning, match="removed from the context is lost"):
        await held.prepare()
    assert held.messages[0]["content"].endswith("They were not kept anywhere.]")


async def test_an_output_that_is_just_as_long_as_it_may_be_is_not_touched() -> None:
    message = gave("c", "x" * 500)
    kept, held = await prepared(
        doc("post_tool", "ToolsOutputTruncateManager", {"max_output_length": 500}), [calls("c"), message]
    )
    assert kept[-1] is message
    assert not held.entries[-1].is_reduced


async def test_what_was_truncated_is_the_same_at_every_later_call() -> None:
    held = Managed(doc("pre_llm", "ToolsOutputTruncateManager", {"max_output_length": 500}))
    await held.add(calls("c"))
    await held.add(gave("c", "x" * 5_000))
    first = await held.prepare()
    await held.add(user("?"))
    assert all(mine is theirs for mine, theirs in zip(first, await held.prepare(), strict=False))


# What there is beyond the page


async def test_activation_by_share_of_the_window() -> None:
    management = doc("pre_llm", "SlidingWindowManager", {"max_messages": 2}, tokens_exceed_ratio=0.5)
    assert len((await prepared(management, talk(20, ""), size=1_000))[0]) == 20
    assert len((await prepared(management, talk(20, ""), size=200))[0]) == 2


async def test_older_results_become_a_line_each_that_leads_to_the_whole() -> None:
    workspace = MemoryWorkspace(evict_after_turns=None)
    config = {"keep_recent_results": 1, "min_tokens": 50, "keep_tools": ["skill_*"]}
    messages = [message for n in range(4) for message in (calls(f"c{n}"), gave(f"c{n}", f"{n}" * 900))]
    kept, _ = await prepared(doc("pre_llm", "ToolResultMaskManager", config), messages, workspace)
    assert [len(message["content"]) for message in kept[1::2]][-1] == 900
    for number, message in enumerate(kept[1:-1:2]):
        line = message["content"]
        assert line.startswith("[Older result of read left out: 900 characters. It stands in memory:///")
        reference = line.split("It stands in ")[1].removesuffix("]")
        assert f"{number}" * 900 in workspace.read(reference).replace("\n… ", "").replace("\n", "")


async def test_a_document_for_one_call_takes_the_place_of_the_conversations_own() -> None:
    held = Managed(doc("pre_llm", "SlidingWindowManager", {"max_messages": 2}))
    for message in talk(9):
        await held.add(message)
    assert len(await held.prepare(ContextManagement())) == 9
    await held.prepare()
    assert len(said(held)) == 2


@pytest.mark.parametrize("limit", [200, 120, 60])
async def test_a_cut_output_names_its_file_however_short_it_is(limit: int, tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path / "a directory with a name that is long enough to matter", durability="off")
    kept, _ = await prepared(
        doc("post_tool", "ToolsOutputTruncateManager", {"max_output_length": limit}),
        [calls("c1"), gave("c1", "x" * 5_000)],
        workspace,
    )
    await workspace.close()
    assert "tool_result-c1.txt]" in kept[-1]["content"]
    assert len(kept[-1]["content"]) <= limit


@pytest.fixture
def last_ten() -> ContextManagement:
    register_manager("Last10Messages", Last10Messages)
    return ContextManagement.read({"type": "Last10Messages"})


async def test_the_example_of_a_manager_of_ones_own_keeps_the_last_ten(last_ten: ContextManagement) -> None:
    kept, held = await prepared(last_ten, talk(13))
    assert kept == talk(13)[-10:]
    assert last_ten.to_json() == {"hooks": {"pre_llm": [{"type": "Last10Messages"}]}}
    assert "runs Last10Messages (Keeps the last ten messages)" in "".join(held.window.explain())


async def test_a_manager_of_ones_own_cannot_break_what_holds() -> None:
    class Greedy:
        def __init__(self, keep: int) -> None:
            self.keep = keep

        async def reduce(self, messages: list[Any]) -> bool:
            del messages[: len(messages) - self.keep]
            return True

    register_manager("Greedy", Greedy)
    management = ContextManagement.read({"type": "Greedy", "config": {"keep": 1}})
    messages = [SYSTEM, user("first"), user("now"), calls("a", "b"), gave("a", "1"), gave("b", "2")]
    kept, held = await prepared(management, messages)
    assert held.messages[0] is SYSTEM
    assert kept == messages[2:]
    with pytest.raises(ConfigError, match="does not take these settings"):
        ContextManagement.read({"type": "Greedy", "config": {"x": 1}})


async def test_beside_a_document_neither_limits_nor_trigger_hold_but_the_size_of_the_window_does() -> None:
    management = doc("pre_llm", "SlidingWindowManager", {"max_messages": 100})
    held = Managed(management, size=20_000)
    output = " word" * 8_000
    for number in range(2):
        for message in (user("?"), calls(f"c{number}"), gave(f"c{number}", output)):
            await held.add(message)
    shown = await held.prepare()
    assert [message["content"] for message in shown if message["role"] == "tool"] == [output, output]
    assert held.window.tokens > 0.8 * 20_000
    for message in (user("?"), calls("c2"), gave("c2", output)):
        await held.add(message)
    await held.prepare()
    assert held.window.tokens <= 20_000


async def test_the_pages_first_document_cuts_each_output_to_100_000_characters_and_keeps_the_whole() -> None:
    management = doc("post_tool", "ToolsOutputTruncateManager", {"max_output_length": 100_000})
    workspace = MemoryWorkspace(evict_after_turns=None)
    output = "".join(f"line {number}\n" for number in range(20_000))
    kept, _ = await prepared(management, [user("?"), calls("c"), gave("c", output)], workspace, size=1_000_000)
    shown = kept[-1]["content"]
    assert len(shown) <= 100_000
    assert shown.startswith(output[:99_000])
    assert workspace.read("memory:///sessions/s1/" + shown.split("/sessions/s1/")[1].rstrip("]")) == output
