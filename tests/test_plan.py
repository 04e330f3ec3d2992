import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thirds import STEP, each_third

from buoyline.compression.compressor import legal_cut_before, legal_cuts, pair_spans, plan
from buoyline.messages import Message, Reasoning, Text, ToolCall, ToolResult
from buoyline.messages.model import Note, Part
from buoyline.messages.registry import detect

CALL_IDS = ("", "a", "b", "c")


def said(role: str = "user") -> Message:
    return Message("assistant" if role == "assistant" else "user", (Text("words"),))


def calling(*call_ids: str) -> Message:
    return Message("assistant", tuple(ToolCall(call_id, "read", "{}") for call_id in call_ids))


def answering(*call_ids: str, words: str = "") -> Message:
    """Return the results of *call_ids* in one message; with *words* of the user, as Anthropic has it."""
    results: tuple[Part, ...] = tuple(ToolResult(call_id, "", (Text("done"),)) for call_id in call_ids)
    return Message("user", (*results, Text(words))) if words else Message("tool", results)


id_lists = st.lists(st.sampled_from(CALL_IDS), min_size=1, max_size=3)
messages = st.one_of(
    st.sampled_from([said(), said("assistant"), Message("system", (Text("be good"),))]),
    st.just(Message("assistant", (Reasoning("Hm."),))),
    id_lists.map(lambda call_ids: calling(*call_ids)),
    id_lists.map(lambda call_ids: answering(*call_ids)),
    id_lists.map(lambda call_ids: answering(*call_ids, words="Go on.")),
)
answered_calls = st.builds(
    lambda call_ids, between: [calling(*call_ids), *between, *(answering(call_id) for call_id in call_ids)],
    id_lists,
    st.lists(messages, max_size=1),
)
conversations = st.lists(messages.map(lambda message: [message]) | answered_calls, max_size=8).map(
    lambda groups: [message for group in groups for message in group]
)
counted = conversations.flatmap(
    lambda conversation: st.tuples(
        st.just(conversation), st.lists(st.integers(0, 50), min_size=len(conversation), max_size=len(conversation))
    )
)


def _parts_a_pair(conversation: Sequence[Message], cut: int) -> bool:
    """Tell whether a result after *cut* answers a call before it: the newest call of its id still open."""
    open_calls: dict[str, list[int]] = {}
    for position, message in enumerate(conversation):
        for call in message.calls:
            open_calls.setdefault(call.call_id, []).append(position)
        for result in message.results:
            calls = open_calls.get(result.call_id)
            if calls and calls.pop() < cut <= position:
                return True
    return False


def _lets_a_waiting_call_go(conversation: Sequence[Message], cut: int) -> bool:
    """Tell whether a call before *cut* waits for a result that no user has passed over."""
    waiting: list[tuple[str, int]] = []
    for position, message in enumerate(conversation):
        if message.role == "user" and message.text:
            waiting = []
        waiting += [(call.call_id, position) for call in message.calls]
        for result in message.results:
            newest = next((entry for entry in reversed(waiting) if entry[0] == result.call_id), None)
            if newest is not None:
                # By index: equal entries are parallel calls of one id, of which one is as good as another.
                waiting.remove(newest)
    return any(position < cut for _, position in waiting)


@given(conversations)
def test_legal_cuts_are_those_that_part_no_call_from_its_result(conversation: list[Message]) -> None:
    assert legal_cuts(conversation, hold_pending=False) == [
        cut for cut in range(1, len(conversation)) if not _parts_a_pair(conversation, cut)
    ]


@given(conversations)
def test_a_call_that_waits_is_held_unless_a_user_passed_over_it(conversation: list[Message]) -> None:
    assert legal_cuts(conversation) == [
        cut
        for cut in range(1, len(conversation))
        if not _parts_a_pair(conversation, cut) and not _lets_a_waiting_call_go(conversation, cut)
    ]


@given(conversations, conversations)
def test_no_late_result_comes_for_what_left_while_waiting_calls_were_held(
    conversation: list[Message], later: list[Message]
) -> None:
    conversation = [message for message in conversation if not (message.role == "user" and message.text)]
    assert set(legal_cuts(conversation)) <= set(legal_cuts([*conversation, *later], hold_pending=False))


@given(conversations, st.integers(0, 30))
def test_a_wanted_cut_is_moved_back_no_further_than_needed(conversation: list[Message], position: int) -> None:
    cut = legal_cut_before(conversation, position)
    wanted = min(position, len(conversation))
    assert 0 <= cut <= wanted
    assert not _parts_a_pair(conversation, cut)
    assert all(_parts_a_pair(conversation, later) for later in range(cut + 1, wanted + 1))


@given(conversations)
def test_a_span_leads_from_a_call_to_a_result_of_its_id(conversation: list[Message]) -> None:
    for start, end in pair_spans(conversation):
        assert start < end
        calls = {call.call_id for call in conversation[start].calls}
        assert calls & {result.call_id for result in conversation[end].results}


@settings(max_examples=200)
@given(counted, st.integers(0, 300))
def test_a_plan_parts_no_pair_and_keeps_what_it_says(
    found: tuple[list[Message], list[int]], max_kept_tokens: int
) -> None:
    conversation, counts = found
    decided = plan(conversation, counts, max_kept_tokens=max_kept_tokens)

    assert not _parts_a_pair(conversation, decided.cut)
    assert decided.cut == 0 or decided.cut < len(conversation)
    assert decided.archived_tokens == sum(counts[: decided.cut])
    assert decided.kept_tokens == sum(counts[decided.cut :])
    assert decided.reason


@settings(max_examples=200)
@given(counted, st.integers(0, 300))
def test_a_plan_keeps_within_the_limit_where_any_cut_does(
    found: tuple[list[Message], list[int]], max_kept_tokens: int
) -> None:
    conversation, counts = found
    decided = plan(conversation, counts, max_kept_tokens=max_kept_tokens)
    newest = max((at for at, message in enumerate(conversation) if message.role == "assistant"), default=0)
    turn = conversation[newest:]
    coming_in = {newest + cut for cut in {*legal_cuts(turn, hold_pending=False)} - {*legal_cuts(turn)}}
    cuts = [cut for cut in legal_cuts(conversation, hold_pending=False) if cut not in coming_in]
    fitting = [cut for cut in cuts if sum(counts[cut:]) <= max_kept_tokens]
    holding = [cut for cut in fitting if cut in legal_cuts(conversation)]

    assert decided.cut == min(holding or fitting or cuts[-1:], default=0)


@given(counted)
def test_a_larger_limit_never_lets_more_leave(found: tuple[list[Message], list[int]]) -> None:
    conversation, counts = found
    cuts = [plan(conversation, counts, max_kept_tokens=limit).cut for limit in range(0, 301, 60)]
    assert all(less <= more for more, less in pairwise(cuts))


@pytest.mark.parametrize(
    ("conversation", "spans", "cuts"),
    [
        pytest.param([], [], [], id="nothing"),
        pytest.param([said()], [], [], id="one message"),
        pytest.param([said(), said("assistant"), said()], [], [1, 2], id="no calls"),
        pytest.param(
            [said(), calling("a", "b"), answering("a"), answering("b"), said()],
            [(1, 2), (1, 3)],
            [1, 4],
            id="parallel calls",
        ),
        pytest.param(
            [said(), calling("a", "b"), answering("b", "a"), said()], [(1, 2), (1, 2)], [1, 3], id="results in one"
        ),
        pytest.param(
            [calling("a"), answering("a"), calling("a"), answering("a"), said()],
            [(0, 1), (2, 3)],
            [2, 4],
            id="duplicate call id",
        ),
        pytest.param(
            [calling(""), answering(""), calling("", ""), answering(""), answering(""), said()],
            [(0, 1), (2, 3), (2, 4)],
            [2, 5],
            id="every id empty",
        ),
        pytest.param([calling("a"), answering("a"), answering("a"), said()], [(0, 1)], [2, 3], id="duplicate result"),
        pytest.param([calling("a"), said(), said("assistant"), said()], [], [1, 2, 3], id="call without result"),
        pytest.param(
            [calling("a"), said("assistant"), answering("a"), said()],
            [(0, 2)],
            [3],
            id="unanswered before the next assistant message",
        ),
        pytest.param(
            [calling("a"), said(), answering("a"), said()], [(0, 2)], [3], id="other message between call and result"
        ),
        pytest.param(
            [calling("a", "b"), answering("a"), said(), calling("c"), answering("c"), answering("b"), said()],
            [(0, 1), (3, 4), (0, 5)],
            [6],
            id="late result",
        ),
        pytest.param([said(), answering("a"), said()], [], [1, 2], id="result without call"),
        pytest.param([calling("a"), Message("assistant", (Reasoning("Hm."),)), said()], [], [1, 2], id="thinking only"),
        pytest.param(
            [calling("a"), answering("a", words="Go on."), said("assistant")], [(0, 1)], [2], id="result beside words"
        ),
    ],
)
def test_pairs_as_recorded_sessions_have_them(
    conversation: list[Message], spans: list[tuple[int, int]], cuts: list[int]
) -> None:
    assert sorted(pair_spans(conversation)) == sorted(spans)
    assert legal_cuts(conversation) == cuts


def test_as_little_as_possible_leaves() -> None:
    decided = plan([said()] * 5, [10, 10, 10, 10, 10], max_kept_tokens=25)
    assert (decided.cut, decided.archived_tokens, decided.kept_tokens) == (3, 30, 20)
    assert decided.reason == "the newest 2 fit 25 tokens"


def test_the_newest_message_stays_even_where_it_alone_is_too_large() -> None:
    decided = plan([said()] * 3, [1, 1, 1_000], max_kept_tokens=10)
    assert (decided.cut, decided.kept_tokens) == (2, 1_000)
    assert decided.reason == "the newest 1 belong together"


def test_the_newest_result_stays_with_its_call() -> None:
    decided = plan([said(), calling("a", "b"), answering("a"), answering("b")], [5, 5, 900, 900], max_kept_tokens=10)
    assert decided.cut == 1


def test_nothing_leaves_where_all_belongs_to_the_newest_call() -> None:
    decided = plan([calling("a"), answering("a")], [5, 900], max_kept_tokens=10)
    assert (decided.cut, decided.archived_tokens, decided.kept_tokens) == (0, 0, 905)
    assert decided.reason == "no message may leave: all belong to the newest call"


def test_a_waiting_call_stays_where_the_rest_fits_with_it() -> None:
    conversation = [said(), said("assistant"), calling("a", "b"), answering("a"), said("assistant")]
    assert plan(conversation, [10] * 5, max_kept_tokens=30).cut == 2


def test_a_call_that_is_never_answered_does_not_hold_all_that_follows_it() -> None:
    conversation = [said(), calling("never"), *[said("assistant")] * 50]
    decided = plan(conversation, [10] * 52, max_kept_tokens=100)
    assert (decided.cut, decided.kept_tokens) == (42, 100)


def test_a_call_of_the_newest_answer_stays_while_its_results_come_in() -> None:
    conversation = [said(), said("assistant"), calling("a"), answering("b")]  # "b" answers nobody
    assert plan(conversation, [10] * 4, max_kept_tokens=5).cut == 2


@each_third
@pytest.mark.parametrize("share", [1, 4])
def test_no_plan_parts_a_recorded_pair(shared_data: Path, share: int, first: int) -> None:
    for path in sorted((shared_data / "sessions").glob("*.jsonl"))[first - 1 :: STEP]:
        natives = [json.loads(line) for line in path.read_bytes().split(b"\n") if line]
        views = [detect(native).view(native) for native in natives]
        assert [cut for cut in legal_cuts(views) if _parts_a_pair(views, cut)] == []
        for end in range(1, len(views), max(1, len(views) // 10)):
            decided = plan(views[:end], [1] * end, max_kept_tokens=end // share)
            assert not _parts_a_pair(views, decided.cut)


def test_a_call_waits_for_its_result_behind_user_messages_in_which_nobody_speaks() -> None:
    """Anthropic's results of other calls, and notes of a framework, come as messages of the user's."""
    asked = Message("assistant", (ToolCall("a", "look", "{}"), ToolCall("b", "look", "{}")))
    said = Message("user", (Text("Go on without it."),))
    behind = [Message("user", (ToolResult("a", "look", (Text("one"),)),)), Message("user", (Note("It is noon."),))]
    messages = [Message("user", (Text("Look."),)), asked, *behind, Message("assistant", (Text("I wait."),))]
    assert legal_cuts(messages) == [1]
    assert legal_cuts([*messages, said]) == [1, 3, 4, 5]


def test_a_call_that_the_provider_answers_itself_is_not_parted_from_a_result_that_comes_messages_later() -> None:
    def result(call_id: str) -> dict[str, Any]:
        return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call_id, "content": "7"}]}

    def call(call_id: str) -> dict[str, Any]:
        return {"type": "tool_use", "id": call_id, "name": "depth", "input": {}, "caller": {"tool_id": "server"}}

    running = {"type": "server_tool_use", "id": "server", "name": "code_execution", "input": {"code": "depth()"}}
    ran = {"type": "code_execution_tool_result", "tool_use_id": "server", "content": {"stdout": "7"}}
    native: list[dict[str, Any]] = [
        {"role": "user", "content": "How deep?"},
        {"role": "assistant", "content": [running, call("a")]},
        result("a"),
        {"role": "assistant", "content": [call("b")]},
        result("b"),
        {"role": "assistant", "content": [ran, {"type": "text", "text": "7 fathoms"}]},
        {"role": "user", "content": "Thanks."},
    ]
    messages = [detect(message).view(message) for message in native]
    assert legal_cuts(messages) == [1, 6]
    assert legal_cuts(messages[:5]) == [1]


def test_a_cut_is_before_a_message_of_the_model_if_roles_alternate() -> None:
    talk = [Message(role, (Text(role),)) for role in ("user", "assistant")] * 4
    counts = [10] * len(talk)
    assert plan(talk, counts, max_kept_tokens=40).cut == 4
    assert plan(talk, counts, max_kept_tokens=40, before_model=True).cut == 3
    users = [Message("user", (Text("go on"),))] * 8
    assert plan(users, counts, max_kept_tokens=40, before_model=True).cut == 4
