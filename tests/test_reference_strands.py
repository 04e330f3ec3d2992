"""What an agent of Strands saw in the version before the redesign, it sees now: each request, and its history.

Of the files only the transcript is compared: Strands adds times to messages.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from reference.comparison import difference
from reference.scripts import PRESETS, Operation, chance_of
from reference.versions import BASELINE, CHECKOUT, answers

pytest.importorskip("strands", reason="strands-agents is an extra for tests")

FRAMEWORK = "strands-agents"
SIZE = 6_000
TURNS = 14

MANAGERS: dict[str, dict[str, Any]] = {
    "null": {"class": "NullConversationManager"},
    "window": {"class": "SlidingWindowConversationManager", "settings": {"window_size": 12}},
    "window without a notice": {
        "class": "SlidingWindowConversationManager",
        "settings": {"window_size": 9, "notice": False, "per_turn": True},
    },
    "window with pins": {
        "class": "SlidingWindowConversationManager",
        "settings": {"window_size": 10, "pin_first": 2, "per_turn": 2, "should_truncate_results": False},
    },
    "summaries": {
        "class": "SummarizingConversationManager",
        "settings": {"summarizer": "extractive", "proactive_compression": True, "preserve_recent_messages": 4},
    },
    "summaries with pins": {
        "class": "SummarizingConversationManager",
        "settings": {
            "summary_ratio": 0.6,
            "preserve_recent_messages": 2,
            "pin_first": 1,
            "proactive_compression": {"compression_threshold": 0.5},
        },
    },
}

EVENTS: Sequence[Operation] = (
    {"do": "redact", "place": -2},
    {"do": "reset", "count": 5},
    {"do": "reduce"},
    {"do": "continued"},
)


def session_of(seed: object, manager: dict[str, Any], *, has_plugin: bool) -> list[Operation]:
    """Return a life of an agent: turns with tool calls and overflows, restarts, and hands of others in its history."""
    chance, made = (
        chance_of(("agent", seed)),
        {"do": "agent", "manager": manager, "size": SIZE, "has_plugin": has_plugin},
    )
    script: list[Operation] = [made]
    numbers = itertools.count(1)
    for turn in range(TURNS):
        model: list[Any] = []
        for _ in range(chance.randrange(4)):
            if chance.random() < 0.15:
                model.append(None)
            model.append([(chance.choice((2, 15, 60, 400)), next(numbers)) for _ in range(chance.randrange(1, 4))])
        if chance.random() < 0.2:
            model += [None] * chance.randrange(1, 3)
        words = " ".join(chance.choice(("port", "8443", "src/app.py", "gateway", "never")) for _ in range(60))
        script.append({"do": "ask", "text": f"Turn {turn}: {words}", "answers": [*model, f"Done {turn}. {words}"]})
        if chance.random() < 0.25:
            script.append(chance.choice(EVENTS))
        if chance.random() < 0.2:
            script.append(made)
    return [*script, {"do": "transcript"}]


def unlike(case: str, script: list[Operation]) -> str:
    found = [answers(version, case, script, framework=FRAMEWORK) for version in (BASELINE, CHECKOUT)]
    return difference(*found, parts=("answer", "error"))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", PRESETS)
def test_an_agent_with_a_document_is_as_it_was(name: str, seed: int) -> None:
    # The plugin's tools have new descriptions, whose tokens count.
    assert unlike(f"strands-{name}-{seed}", session_of((name, seed), {"document": name}, has_plugin=False)) == ""


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", MANAGERS)
def test_an_agent_with_one_of_strands_managers_is_as_it_was(name: str, seed: int) -> None:
    script = session_of((name, seed), MANAGERS[name], has_plugin=seed == 0)
    assert unlike(f"strands-{[*MANAGERS].index(name)}-{seed}", script) == ""


@pytest.mark.slow
def test_the_agents_do_all_that_can_be_done() -> None:
    """Otherwise two versions that refuse everything would be equal."""
    script = session_of(("summaries", 1), MANAGERS["summaries"], has_plugin=False)
    found = answers(BASELINE, "strands-4-1", script, framework=FRAMEWORK)
    assert sum("error" in answer for answer in found) < len(found) / 5
    assert found[-2]["answer"]["removed"] > 10
