"""Whatever a document says, and whatever was said: what is left can be sent, and what is gone can be found."""

import asyncio
import contextlib
import json
from collections.abc import Sequence
from typing import Any

import pytest
from estimates import Estimates
from hypothesis import example, given
from hypothesis import strategies as st
from managed_window import ManagedWindow

from buoyline.compression import ContextConfig
from buoyline.compression.plan import pair_spans
from buoyline.errors import ConfigError, ContextOverflowError
from buoyline.management import (
    ContextManagement,
    from_context_config,
    from_strands_settings,
    to_context_config,
    to_strands_settings,
)
from buoyline.management.context import ContextMessage, ContextView, Evict, Summarize
from buoyline.management.managers import MANAGERS, SlidingWindow, Summarization
from buoyline.management.rules import LegalCuts, TruncatedStub
from buoyline.messages import Message, spell
from buoyline.messages.model import Note
from buoyline.messages.registry import detect, dialect_named
from buoyline.offloader import StoredResult, ToolRule
from buoyline.workspace import MemoryWorkspace

SESSION = "s1"
CALL_IDS = ("", "a", "b", "c")
STORED = StoredResult("/w/sessions/s1/tool_result-c.txt", "tool_result-c.txt", "", 1)

counts = st.integers(1, 12)
thresholds = {
    "message_count_exceed": counts,
    "tokens_exceed": st.integers(1, 400),
    "tokens_exceed_ratio": st.floats(0.01, 1),
    "turn_tokens_exceed": st.integers(1, 200),
    "every_model_calls": st.integers(1, 3),
}
activations = st.fixed_dictionaries({}, optional=thresholds)
configs: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "SlidingWindowManager": {"max_messages": counts, "at_least": st.integers(0, 4), "notice": st.booleans()},
    "SummarizationManager": {
        "summary_ratio": st.floats(0.1, 0.8),
        "preserve_recent_messages": st.integers(0, 8),
        "summarization_model_id": st.sampled_from(["", "small"]),
    },
    "ToolsOutputTruncateManager": {"max_output_length": st.integers(1, 300)},
    "OffloadManager": {"tool_result_limit": st.integers(2, 80)},
    "ToolResultMaskManager": {"keep_recent_results": st.integers(0, 3), "min_tokens": st.integers(1, 40)},
    "PinManager": {"first": st.integers(0, 4), "contains": st.just(["pin"])},
    "ImageLimitManager": {"max_images": st.integers(0, 2)},
    "CompressionManager": {"reserve_ratio": st.floats(0, 0.8), "summary_tokens": st.integers(1, 300)},
}


def entry_of(kind: str) -> st.SearchStrategy[dict[str, Any]]:
    config = st.fixed_dictionaries({}, optional=configs[kind])
    return st.fixed_dictionaries({"type": st.just(kind), "config": config, "activation": activations})


entries = st.lists(st.sampled_from(sorted(configs)).flatmap(entry_of), min_size=1, max_size=3)
hooks = st.dictionaries(
    st.sampled_from(["pre_llm", "post_tool", "post_memory", "pre_compress", "on_overflow"]), entries, max_size=3
)

texts = st.sampled_from(["short", "pin this", "some words " * 8, "line\n" * 60])
IMAGE = {"url": "data:image/png;base64,iVBORw0KGgo="}


def openai_call(call_ids: Sequence[str]) -> dict[str, Any]:
    function = {"name": "read", "arguments": "{}"}
    made = [{"id": call_id, "type": "function", "function": function} for call_id in call_ids]
    return {"role": "assistant", "content": None, "tool_calls": made}


def openai_result(call_id: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def anthropic_call(call_ids: Sequence[str]) -> dict[str, Any]:
    uses: list[dict[str, Any]] = [
        {"type": "tool_use", "id": call_id, "name": "read", "input": {}} for call_id in call_ids
    ]
    return {"role": "assistant", "content": uses}


def anthropic_results(call_ids: Sequence[str], text: str, words: str) -> dict[str, Any]:
    blocks: list[dict[str, Any]] = [
        {"type": "tool_result", "tool_use_id": call_id, "content": text} for call_id in call_ids
    ]
    return {"role": "user", "content": [*blocks, {"type": "text", "text": words}] if words else blocks}


id_lists = st.lists(st.sampled_from(CALL_IDS), min_size=1, max_size=3)
plain = st.one_of(
    texts.map(lambda text: {"role": "user", "content": text}),
    texts.map(lambda text: {"role": "assistant", "content": text}),
)
openai_messages = st.one_of(
    plain,
    st.just({"role": "system", "content": "be good"}),
    st.just({"role": "user", "content": [{"type": "image_url", "image_url": IMAGE}]}),
    id_lists.map(openai_call),
    st.builds(openai_result, st.sampled_from(CALL_IDS), texts),
)
anthropic_messages = st.one_of(
    plain,
    id_lists.map(anthropic_call),
    st.builds(anthropic_results, id_lists, texts, st.sampled_from(["", "and so on"])),
)


def openai_group(call_ids: Sequence[str], text: str) -> list[dict[str, Any]]:
    return [openai_call(call_ids), *(openai_result(call_id, text) for call_id in call_ids)]


def anthropic_group(call_ids: Sequence[str], text: str) -> list[dict[str, Any]]:
    return [anthropic_call(call_ids), anthropic_results(call_ids, text, "")]


AGENTSCOPE_TIME = {"created_at": "2026-01-01T00:00:00"}


def agentscope_message(role: str, *content: dict[str, Any]) -> dict[str, Any]:
    return {"name": role, "role": role, "content": list(content), "id": "m", **AGENTSCOPE_TIME}


def agentscope_text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text, "id": "t", **AGENTSCOPE_TIME}


def agentscope_hint(text: str) -> dict[str, Any]:
    return {"type": "hint", "hint": text, "id": "h", **AGENTSCOPE_TIME}


def agentscope_call(call_id: str) -> dict[str, Any]:
    return {"type": "tool_call", "id": call_id, "name": "read", "input": "{}", **AGENTSCOPE_TIME}


def agentscope_result(call_id: str, text: str) -> dict[str, Any]:
    return {"type": "tool_result", "id": call_id, "name": "read", "output": text, **AGENTSCOPE_TIME}


def agentscope_group(call_ids: Sequence[str], text: str) -> list[dict[str, Any]]:
    """Return a reply that holds calls and their results."""
    calls = [agentscope_call(call_id) for call_id in call_ids]
    return [agentscope_message("assistant", *calls, *(agentscope_result(call_id, text) for call_id in call_ids))]


agentscope_blocks = st.one_of(
    texts.map(agentscope_text),
    st.sampled_from(CALL_IDS).map(agentscope_call),
    st.builds(agentscope_result, st.sampled_from(CALL_IDS), texts),
    texts.map(agentscope_hint),
)
agentscope_messages = st.one_of(
    texts.map(lambda text: agentscope_message("user", agentscope_text(text))),
    st.just(agentscope_message("system", agentscope_text("be good"))),
    st.lists(agentscope_blocks, min_size=1, max_size=6).map(lambda found: agentscope_message("assistant", *found)),
)

HINT_AND_SYSTEM = [
    agentscope_message("assistant", agentscope_hint("short")),
    agentscope_message("system", agentscope_text("be good")),
]
"""The hint may be archived: it reads as the user's message, but nobody has said it."""

openai_groups = st.builds(openai_group, id_lists, texts)
anthropic_groups = st.builds(anthropic_group, id_lists, texts)
agentscope_groups = st.builds(agentscope_group, id_lists, texts)


def flat(groups: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    # Fresh objects: the very same one twice in a conversation could not be told apart below.
    return [json.loads(spell(message)) for group in groups for message in group]


conversations = st.one_of(
    st.lists(openai_messages.map(lambda message: [message]) | openai_groups, min_size=1, max_size=10).map(flat),
    st.lists(anthropic_messages.map(lambda message: [message]) | anthropic_groups, min_size=1, max_size=10).map(flat),
    st.lists(agentscope_messages.map(lambda message: [message]) | agentscope_groups, min_size=1, max_size=10).map(flat),
)


def orphans(messages: Sequence[Message]) -> int:
    """Count the results that answer no call before them."""
    waiting: list[str] = []
    found = 0
    for message in messages:
        waiting.extend(call.call_id for call in message.calls)
        for result in message.results:
            if result.call_id in waiting:
                waiting.remove(result.call_id)
            else:
                found += 1
    return found


def unanswered(messages: Sequence[Message]) -> int:
    """Count the calls without a result behind them."""
    calls = sum(len(message.calls) for message in messages)
    return calls - (sum(len(message.results) for message in messages) - orphans(messages))


def view(message: dict[str, Any]) -> Message:
    return detect(message).view(message)


async def run_through(
    management: ContextManagement, conversation: list[dict[str, Any]], size: int
) -> tuple[ManagedWindow, MemoryWorkspace]:
    workspace = MemoryWorkspace(evict_after_turns=None)
    held = ManagedWindow(management, session_id=SESSION, offloader=workspace, size=size, counter=Estimates())
    for message in conversation:
        await held.add(message)
        if view(message).role != "assistant":
            await held.prepare()
    with contextlib.suppress(OverflowError, ContextOverflowError):
        await held.recover_from_overflow(OverflowError("too long"))
    return held, workspace


@given(hooks, conversations, st.integers(20, 2_000))
@example({"pre_llm": [{"type": "CompressionManager"}]}, HINT_AND_SYSTEM, 50)
@example({}, [{"role": "system", "content": "be good"} for _ in range(4)], 20)
def test_whatever_runs_leaves_a_conversation_that_can_be_sent_and_an_archive_that_has_the_rest(
    document: dict[str, Any], conversation: list[dict[str, Any]], size: int
) -> None:
    management = ContextManagement.read({"hooks": document})
    assert ContextManagement.read(management.to_json()) == management
    refusal = ""
    try:
        held, workspace = asyncio.run(run_through(management, conversation, size))
    except ContextOverflowError as error:
        refusal = error.reason
    if refusal:  # what may never be archived exceeds the window
        assert "pinned messages leave no room" in refusal
        assert any(view(message).role == "system" for message in conversation)
        return
    context = held.view()
    standing = list(context.all_messages())
    views = [one.message for one in standing]
    originals = [view(message) for message in conversation]

    # Never empty, never parted: what had a call, or a result, still has.
    assert context.messages
    ours = [one for one in standing if not one.is_ours]
    late = late_pairs(originals)
    parted = sum(pair in late for pair in pair_spans(originals))  # calls of one message may have the same id
    assert orphans(views) <= orphans(originals) + parted
    assert unanswered(views) <= unanswered(originals) + parted
    assert_pairs_are_whole(ours, originals, late)

    # Never without its system messages, its pins, and the user's newest words.
    indexes = {one.index for one in ours}
    systems = {at for at, message in enumerate(originals) if message.role == "system"}
    assert systems <= indexes
    assert set(spoken_by_user(originals)[-1:]) <= indexes
    assert [one.index for one in context.messages] == list(range(context.messages[0].index, len(conversation)))

    # Everything that left is in the archive, each message once, in order; what was cut off is stored whole.
    left = context.messages[0].index
    archived = asyncio.run(workspace.load_messages(SESSION, 0, left)) if left else []
    assert len(archived) == left
    for (name, value), original in zip(archived, conversation, strict=False):
        assert_whole(dialect_named(name).view(value), view(original), workspace)
    for one in ours:
        assert_whole(one.message, originals[one.index], workspace)


def spoken_by_user(messages: Sequence[Message]) -> list[int]:
    """Return the positions of what a user has said, ascending: a hint reads as the user's, and nobody has said it."""
    return [
        at
        for at, message in enumerate(messages)
        if message.role == "user" and not all(isinstance(part, Note) for part in message.parts)
    ]


def late_pairs(originals: Sequence[Message]) -> set[tuple[int, int]]:
    """Return the pairs whose result comes after the user or the model has spoken again: nobody waits for that."""
    spoken = {at for at, message in enumerate(originals) if message.role == "assistant"} | set(
        spoken_by_user(originals)
    )
    return {(start, end) for start, end in pair_spans(originals) if any(start < at < end for at in spoken)}


def assert_pairs_are_whole(
    standing: Sequence[ContextMessage], originals: Sequence[Message], late: set[tuple[int, int]]
) -> None:
    """A call stands with its result, or neither does."""
    indexes = {one.index for one in standing}
    for start, end in set(pair_spans(originals)) - late:
        assert (start in indexes) == (end in indexes), (start, end)


def assert_whole(shown: Message, original: Message, workspace: MemoryWorkspace) -> None:
    """Either the very text of each result stands there, or a stored file holds it."""
    for mine, theirs in zip(shown.results, original.results, strict=True):
        if mine.text != theirs.text:
            stored = asyncio.run(workspace.missing(SESSION, [theirs.text]))
            assert stored == []


def situation_of(conversation: Sequence[dict[str, Any]], pins: set[int]) -> ContextView:
    messages = [
        ContextMessage(message, view(message), 10, at, pinned=at in pins) for at, message in enumerate(conversation)
    ]
    return ContextView(messages=messages, size=1_000, counter=Estimates())


@given(conversations, st.integers(1, 9), st.sets(st.integers(0, 9), max_size=2))
def test_a_sliding_window_keeps_its_limit_wherever_any_cut_does(
    conversation: list[dict[str, Any]], limit: int, pins: set[int]
) -> None:
    context = situation_of(conversation, pins)
    decided = SlidingWindow(max_messages=limit).decide(context)
    legal = LegalCuts(context)
    action = next((action for action in decided.actions if isinstance(action, Evict)), Evict(0, (), (), ""))

    fitting = [cut for cut in (0, *legal.cuts) if legal.kept_count(cut) <= limit]
    assert (legal.kept_count(action.cut) <= limit) == bool(fitting)
    assert action.cut in (0, *legal.cuts)
    assert {at for at in pins if at < action.cut} <= set(action.reinserted)


@given(conversations, st.floats(0.1, 0.8), st.integers(0, 9))
def test_a_summary_never_takes_what_shall_be_preserved(
    conversation: list[dict[str, Any]], ratio: float, preserved: int
) -> None:
    context = situation_of(conversation, set())
    decided = Summarization(summary_ratio=ratio, preserve_recent_messages=preserved).decide(context)
    counted = [at for at, held in enumerate(context.messages) if held.is_counted]
    for action in decided.actions:
        assert isinstance(action, Summarize)
        assert sum(at >= action.cut for at in counted) >= preserved
        assert action.cut > len(action.reinserted)


@given(st.integers(1, 400), st.text(min_size=1, max_size=800), st.sampled_from([None, STORED]))
def test_a_beginning_is_never_longer_than_it_may_be(limit: int, text: str, stored: StoredResult | None) -> None:
    assert len(TruncatedStub(limit)(text, stored, Estimates())) <= limit


limits = st.fixed_dictionaries(
    {},
    optional={
        "trigger_ratio": st.sampled_from([0.5, 0.85, 0.9]),
        "reserve_ratio": st.sampled_from([0.0, 0.05, 0.3]),
        "tool_result_limit": st.sampled_from([2, 500, 4_000]),
        "turn_results_limit": st.sampled_from([20_000, 50_000]),
        "summary_tokens": st.sampled_from([1, 900]),
        "compression_prompt": st.just("Be brief."),
        "tool_rules": st.sampled_from(
            [{"read_skill": ToolRule(offload="never")}, {"mcp__*": ToolRule(limit=500, keep_errors=True)}]
        ),
        "summary_schema": st.just({"type": "object", "properties": {"b": {"type": "string"}, "a": {"type": "string"}}}),
    },
)


@given(limits)
def test_a_configuration_comes_back_from_its_document(values: dict[str, Any]) -> None:
    if "summary_schema" in values:
        values = {**values, "summary_template": "{b} {a}"}
    config = ContextConfig(**values)
    document = from_context_config(config, name="x")
    assert to_context_config(document) == config
    assert to_context_config(ContextManagement.read(json.loads(json.dumps(document.to_json())))) == config
    assert list(to_context_config(document).fields) == list(config.fields)


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        ({"hooks": {}}, "hooks.post_tool"),
        ({"type": "SlidingWindowManager"}, "hooks.post_tool"),
        ([{"type": "OffloadManager"}, {"type": "CompressionManager"}], r"hooks.pre_llm\[0\].activation"),
        (
            [{"type": "OffloadManager", "activation": {"tokens_exceed": 9}}, {"type": "CompressionManager"}],
            r"hooks.post_tool\[0\].activation",
        ),
    ],
)
def test_a_document_that_says_more_than_a_configuration_can_is_refused_with_the_place(raw: Any, path: str) -> None:
    with pytest.raises(ConfigError, match=path):
        to_context_config(ContextManagement.read(raw))


proactive = st.sampled_from([None, True, {"compression_threshold": 0.5}, {"compression_threshold": 0.7}])
no_settings: dict[str, Any] = {}
strands: st.SearchStrategy[tuple[str, dict[str, Any]]] = st.one_of(
    st.tuples(st.just("NullConversationManager"), st.just(no_settings)),
    st.tuples(
        st.just("SlidingWindowConversationManager"),
        st.fixed_dictionaries(
            {},
            optional={
                "window_size": st.integers(1, 90),
                "should_truncate_results": st.booleans(),
                "per_turn": st.sampled_from([False, True, 3]),
                "pin_first": st.sampled_from([None, 2]),
                "proactive_compression": proactive,
            },
        ),
    ),
    st.tuples(
        st.just("SummarizingConversationManager"),
        st.fixed_dictionaries(
            {},
            optional={
                "summary_ratio": st.sampled_from([0.1, 0.5, 0.8]),
                "preserve_recent_messages": st.integers(0, 20),
                "summarization_system_prompt": st.sampled_from([None, "Be brief."]),
                "pin_first": st.sampled_from([None, 2]),
                "proactive_compression": proactive,
            },
        ),
    ),
)


@given(strands)
def test_the_settings_of_strands_come_back_from_their_document(found: tuple[str, dict[str, Any]]) -> None:
    manager, values = found
    document = from_strands_settings(manager, values)
    again, kept = to_strands_settings(document)
    assert again == manager
    assert from_strands_settings(manager, kept) == document
    assert {key: value for key, value in kept.items() if key in values and key != "proactive_compression"}.items() <= {
        **values
    }.items()


@pytest.mark.parametrize(
    ("manager", "values"),
    [
        ("NullConversationManager", {}),
        ("SlidingWindowConversationManager", {"window_size": 20, "per_turn": True, "proactive_compression": True}),
        ("SummarizingConversationManager", {"summary_ratio": 0.4, "pin_first": 1}),
    ],
)
def test_the_settings_that_come_back_are_taken_by_strands_itself(manager: str, values: dict[str, Any]) -> None:
    found = pytest.importorskip("strands.agent.conversation_manager")
    _, kept = to_strands_settings(from_strands_settings(manager, values))
    made = getattr(found, manager)(**kept)
    for key in values.keys() - {"proactive_compression", "pin_first"}:
        assert getattr(made, key) == values[key]


@pytest.mark.parametrize(
    ("manager", "values", "words"),
    [
        ("SlidingConversationManager", {}, "did you mean 'SlidingWindowConversationManager'"),
        ("SlidingWindowConversationManager", {"windw_size": 3}, "did you mean 'window_size'"),
        ("SummarizingConversationManager", {"summarization_agent": object()}, "a document cannot hold an agent"),
        ("SlidingWindowConversationManager", {"proactive_compression": 3}, "compression_threshold"),
        ("SlidingWindowConversationManager", {"window_size": 0}, "max_messages"),
    ],
)
def test_settings_that_strands_does_not_have_are_refused(manager: str, values: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        from_strands_settings(manager, values)


@pytest.mark.parametrize("kind", sorted(MANAGERS))
def test_a_document_that_says_more_than_strands_can_is_refused(kind: str) -> None:
    with pytest.raises(ConfigError, match="keep it as a document"):
        to_strands_settings(ContextManagement.read({"hooks": {"pre_compress": [{"type": kind}]}}))
