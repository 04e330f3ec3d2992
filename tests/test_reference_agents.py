"""What an agent of AgentScope did with the version before the redesign, it does with the checkout.

Compared are the requests to its model, its context, summary and note, the events, and the files. Without a document,
some differences are intended, since the engine of the window does the work now:

- Images beyond the limit become the lines that a window writes, and what they are in is stored whole.
- Results that the model has not seen are offloaded also if a user has spoken since.
- Tokens before and after a compaction, and the limit of a summary, are rounded up, so that they may differ by two.
- The index of a message in an event is that of its own piece, and results are the message behind their calls.
- An empty note in the state is not written.
"""

from collections.abc import Sequence
from typing import Any

import pytest
from reference.comparison import difference
from reference.player import Plain
from reference.scripts import PRESETS, Operation
from reference.versions import BASELINE, CHECKOUT, answers

pytest.importorskip("agentscope", reason="agentscope is an extra for tests")

PARTS = ("answer", "error", "events")
"""How often a context is written down is no promise; the files are compared at the end, but for the journal."""

SMALL_SAVING_TOKENS = 25
"""A result whose stub saves no more is offloaded last, if a window of 4,000 tokens is full."""

SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {"size": 4_000},
    "wide": {"size": 16_000, "config": {"tool_result_limit": 3_000}},
    "a limit for turns": {"size": 6_000, "turn_results_limit": 400},
    "few pictures": {"size": 12_000, "pictures": 2, "config": {"max_image_num": 2}},
    "a rule that keeps": {"size": 6_000, "tool_rules": {"look": {"offload": "never"}}},
    "a model that fails": {"size": 4_000, "summary_fails_at": [1, 3]},
    "strict": {
        "size": 4_000,
        "summary_fails_at": [1, 2, 3],
        "config": {"compression_fallback_to_truncation": False},
    },
    "much is kept": {"size": 6_000, "config": {"reserve_ratio": 0.5}},
    "a summary of the framework's": {"size": 4_000, "summary": "Berth 12 is mined.", "context": ["Ahoy. " * 300] * 4},
    "in memory": {"size": 4_000, "offloader": "memory"},
    "bare": {"size": 4_000, "offloader": "bare"},
    "a provider that refuses": {"size": 8_000, "limit": 14_000},
}


def life(pictures: int = 0, **settings: Any) -> list[Operation]:
    """Return replies, results from elsewhere, compressions by hand, restarts, and a return to an older state."""
    by_hand = {"config": {"trigger_ratio": 0.1, "reserve_ratio": 0.05}, "focus": "Keep the depths."}
    is_local = settings.get("offloader", "local") == "local"
    return [
        {"do": "open", **settings},
        {"do": "reply", "rounds": 4},
        {"do": "reply", "rounds": 6, "pictures": pictures},
        {"do": "receive", "size": 900},
        {"do": "compress"},
        {"do": "reply", "rounds": 3},
        {"do": "restart"},
        {"do": "compress"},
        {"do": "reply", "rounds": 5},
        {"do": "compress", **by_hand},
        {"do": "reply", "rounds": 2, "metadata": {"context_management_name": "chat"}},
        {"do": "restart", "saved": 2},
        {"do": "reply", "rounds": 5},
        {"do": "reply", "rounds": 4},
        *([{"do": "verify"}, {"do": "files"}, {"do": "resume_window"}] if is_local else []),
        {"do": "close"},
    ]


def unlike_baseline(case: str, script: Sequence[Operation], *, has_document: bool = False) -> str:
    old, new = played(BASELINE, case, script), played(CHECKOUT, case, script)
    for event in (event for answer in (*old, *new) for event in answer["events"] if not has_document):
        # The engine rounds the scaled count up, so that it is above the agent's own by a token or two.
        event.pop("tokens_before", None)
        event.pop("tokens_after", None)
    for event in (event for answer in (*old, *new) for event in answer["events"]):
        if event["event"] == "ResultOffloaded":
            # The baseline names the message before; and of calls that run at once, any may end first.
            del event["message"]
    return difference(old, new, parts=PARTS)


def played(version: str, case: str, script: Sequence[Operation]) -> list[Plain]:
    found = answers(version, case, script, framework="agentscope")
    for answer in found:
        if answer["do"] == "files":
            del answer["answer"]["sessions/s1/journal.jsonl"]
        if isinstance(answer.get("answer"), dict) and answer["answer"].get("note") == {"archived": 0}:
            answer["answer"]["note"] = None
    return found


@pytest.mark.slow
@pytest.mark.parametrize("settings", [name for name in SETTINGS if name != "bare"])
def test_an_agent_is_as_it_was(settings: str) -> None:
    assert unlike_baseline(f"agent-{[*SETTINGS].index(settings)}", life(**SETTINGS[settings])) == ""


def events_without_small_savings(answer: Plain) -> list[str]:
    events: list[dict[str, Any]] = answer["events"]
    small = [event for event in events if event.get("tokens", 0) - event.get("stub_tokens", 0) < SMALL_SAVING_TOKENS]
    return [event["event"] for event in events if event["event"] != "ResultOffloaded" or event not in small]


@pytest.mark.slow
def test_an_agent_with_a_bare_offloader_does_the_same() -> None:
    """The limits of its summaries differ by a token, for the reason in `unlike_baseline`, and their words with them.

    So do those of the results: near the limit of the window, the last one that is offloaded may be one that saves a few
    tokens.
    """
    number, script = [*SETTINGS].index("bare"), life(**SETTINGS["bare"])
    old, new = (played(version, f"agent-{number}", script) for version in (BASELINE, CHECKOUT))
    assert [events_without_small_savings(answer) for answer in new] == [
        events_without_small_savings(answer) for answer in old
    ]
    assert [answer.get("error") for answer in new] == [answer.get("error") for answer in old]


@pytest.mark.slow
@pytest.mark.parametrize("preset", PRESETS)
def test_an_agent_with_a_document_is_as_it_was(preset: str) -> None:
    assert unlike_baseline(f"agent-{preset}", life(size=5_000, management=preset), has_document=True) == ""


@pytest.mark.slow
def test_the_scripts_do_what_an_agent_can_do() -> None:
    """Two versions that fail in the same way would be equal, too."""
    found = list[Plain]()
    for number, settings in enumerate(SETTINGS.values()):
        found += answers(BASELINE, f"agent-{number}", life(**settings), framework="agentscope")
    kinds = {event["event"] for answer in found for event in answer["events"]}
    assert kinds >= {"ResultOffloaded", "MessagesArchived", "ContextCompressed", "SummaryFellBack", "OverflowRecovered"}
    assert {answer.get("error") for answer in found} == {None, "SummaryError"}
