"""What an agent of Strands saw in the version before the redesign, it sees now: each request, and its history.

Of the files only the transcript is compared: Strands adds times to messages.
"""

import itertools
from collections.abc import Collection, Sequence
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

TROUBLE = ("overflows", "restarts")

LOGGED = ("continued", "transcript")
"""Where Strands' managers differ from the baseline on purpose: what another framework goes on with has the notice of a
sliding window, and the transcript has the times of messages."""

NEEDED = {"reset": "overflows", "continued": "restarts"}
"""Pins that somebody took out of a history came back in a restarted agent; now they do not."""

EVENTS: Sequence[Operation] = (
    {"do": "redact", "place": -2},
    {"do": "reset", "count": 5},
    {"do": "reduce"},
    {"do": "continued"},
)


def session_of(seed: object, manager: dict[str, Any], *, has_plugin: bool, trouble: Collection[str]) -> list[Operation]:
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
            if chance.random() < 0.15 and "overflows" in trouble:
                model.append(None)
            model.append([(chance.choice((2, 15, 60, 400)), next(numbers)) for _ in range(chance.randrange(1, 4))])
        if chance.random() < 0.2 and "overflows" in trouble:
            model += [None] * chance.randrange(1, 3)
        words = " ".join(chance.choice(("port", "8443", "src/app.py", "gateway", "never")) for _ in range(60))
        script.append({"do": "ask", "text": f"Turn {turn}: {words}", "answers": [*model, f"Done {turn}. {words}"]})
        if chance.random() < 0.25:
            script.append(chance.choice([event for event in EVENTS if NEEDED.get(event["do"], "") in ("", *trouble)]))
        if "restarts" in trouble and (script[-1]["do"] == "continued" or chance.random() < 0.2):
            script.append(made)
    return [*script, {"do": "transcript"}]


def unlike(case: str, script: list[Operation], apart: Collection[str] = ()) -> str:
    """Return how the versions differ in anything but the operations *apart*."""
    found = [answers(version, case, script, framework=FRAMEWORK) for version in (BASELINE, CHECKOUT)]
    compared = [[answer for answer in played if answer["do"] not in apart] for played in found]
    return difference(*compared, parts=("answer", "error"))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", PRESETS)
def test_an_agent_with_a_document_is_as_it_was(name: str, seed: int) -> None:
    # The plugin's tools have new descriptions, whose tokens count. In one life a restart finds no message behind the
    # archived ones, and Strands' session was overwritten from its beginning; now its last message is there again.
    trouble = TROUBLE[:1] if (name, seed) == ("coding-agent", 2) else TROUBLE
    script = session_of((name, seed), {"document": name}, has_plugin=False, trouble=trouble)
    assert unlike(f"strands-{name}-{seed}", script) == ""


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", MANAGERS)
def test_an_agent_with_one_of_strands_managers_is_as_it_was(name: str, seed: int) -> None:
    # Results that became stubs after an overflow were whole again in a restarted agent; now they are stubs again.
    # The plugin's tools have new descriptions: one more word of a model's summary has room beside them. A pin and the
    # summary are one message, so one more was removed then.
    has_pins = name == "summaries with pins"
    has_plugin, apart = seed == 0 and not has_pins, (*LOGGED, "reduce") if has_pins else LOGGED
    script = session_of((name, seed), MANAGERS[name], has_plugin=has_plugin, trouble=TROUBLE[seed % 2 :][:1])
    assert unlike(f"strands-{[*MANAGERS].index(name)}-{seed}", script, apart) == ""


@pytest.mark.slow
def test_the_agents_do_all_that_can_be_done() -> None:
    """Otherwise two versions that refuse everything would be equal."""
    script = session_of(("summaries", 1), MANAGERS["summaries"], has_plugin=False, trouble=TROUBLE[1:])
    found = answers(BASELINE, "strands-4-1", script, framework=FRAMEWORK)
    assert sum("error" in answer for answer in found) < len(found) / 5
    assert found[-2]["answer"]["removed"] > 10
