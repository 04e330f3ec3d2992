"""Requests and corrections of the user are in every later summary as the user said them."""

import json
from typing import Any

import pytest

from buoyline.compression.extractive.summarizer import extract
from buoyline.compression.pointers import Pointer
from buoyline.compression.summary import Draft, SourceMessage, SummaryRequest
from buoyline.messages.registry import detect
from buoyline.tokens import default_counter

COUNTER = default_counter()
TASK = "Chart all berths of the harbour."
FILLER = " ".join(
    f"The harbour master of pier_{number} keeps a log of each tide and reports it." for number in range(60)
)
TURNS = 8
"""Of each part that a later summary replaces."""


def _said(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}


def _looked(number: int) -> list[dict[str, Any]]:
    """Return a call with its result, in Anthropic's dialect."""
    call = {"type": "tool_use", "id": f"c{number}", "name": "Bash", "input": {"command": f"sound --berth {number}"}}
    result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": f"berth_{number}: depth_{number * 7}"}
    return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]


def _turn(number: int) -> list[dict[str, Any]]:
    asked = _said("user", f"Chart the next berth as well, and note its depth. (berth_{number})")
    answer = f"The depth of berth_{number} is fixed in chart_{number}.md since the tide turned at noon."
    return [asked, *_looked(number), _said("assistant", answer)]


def _drafts(messages: list[dict[str, Any]], compactions: int, max_tokens: int) -> list[Draft]:
    """Return so many summaries; each but the first replaces one, and covers new turns."""
    drafts: list[Draft] = []
    first = 0
    for number in range(compactions):
        part = [message for turn in range(TURNS) for message in _turn(number * TURNS + turn)] if number else messages
        request = SummaryRequest(_sources(part, first), drafts[-1] if drafts else None, max_tokens, COUNTER)
        drafts.append(extract(request))
        first += len(part)
    return drafts


def _after(messages: list[dict[str, Any]], compactions: int, max_tokens: int) -> Draft:
    return _drafts(messages, compactions, max_tokens)[-1]


def _sources(messages: list[dict[str, Any]], first: int) -> list[SourceMessage]:
    return [
        SourceMessage(index, detect(message).view(message), Pointer("transcript.md", 10 * index + 1, 10 * index + 9))
        for index, message in enumerate(messages, first)
    ]


LONG_REQUEST = f"Now rewrite reports/tide.md for the new pier.\n\n{FILLER}\n\nNever touch legacy/vault while you do so."


@pytest.mark.parametrize("is_one_message", [True, False])
def test_a_long_request_behind_a_result_is_the_users(is_one_message: bool) -> None:  # noqa: FBT001 - a parameter of pytest
    call, result = _looked(1)
    if is_one_message:
        asked = [{"role": "user", "content": [*result["content"], {"type": "text", "text": LONG_REQUEST}]}]
    else:
        asked = [result, _said("user", LONG_REQUEST)]
    draft = _after([_said("user", TASK), call, *asked, _said("assistant", "The header is done.")], 1, 900)
    assert "Pasted: “Now rewrite reports/tide.md for the new pier." in draft.fields["task_overview"]
    assert "User: “Never touch legacy/vault while you do so.”" in draft.fields["context_to_preserve"]


def test_the_text_of_a_skill_is_not_the_users() -> None:
    skill = f"Base directory for this skill: /home/me/skills/tides\n\n# Tides\n\nNever chart at night.\n\n{FILLER}"
    draft = _after([_said("user", TASK), *_looked(1), _said("user", skill), *_looked(2)], 1, 900)
    assert "Never chart at night" not in json.dumps(dict(draft.fields))


QUESTION = "So which of the two charts do we publish first, chart_a.md or chart_b.md?"


def _request(tokens: int) -> str:
    """Return a request of about so many tokens that ends with its question."""
    opening = "The depth of berth_4 is wrong since the storm."
    return f"{opening} {COUNTER.head(FILLER * 10, tokens - 40).rpartition('. ')[0]}.\n\n{QUESTION}"


@pytest.mark.parametrize("max_tokens", [700, 1_500, 4_000])
@pytest.mark.parametrize("is_begun", [False, True], ids=["not answered", "in progress"])
def test_the_newest_request_is_whole_up_to_300_tokens(max_tokens: int, is_begun: bool) -> None:  # noqa: FBT001 - pytest
    request = _request(290)
    messages = [_said("user", TASK), *_turn(0), _said("user", request), *(_looked(2) if is_begun else [])]
    assert request.replace("\n\n", " ") in _after(messages, 1, max_tokens).fields["next_steps"]


@pytest.mark.parametrize("max_tokens", [400, 700, 1_500, 4_000])
@pytest.mark.parametrize("tokens", [500, 600, 2_000, 10_000])
def test_a_longer_newest_request_is_quoted_from_its_beginning_and_its_end(max_tokens: int, tokens: int) -> None:
    messages = [_said("user", TASK), *_turn(0), _said("user", _request(tokens)), *_looked(2)]
    steps = _after(messages, 1, max_tokens).fields["next_steps"]
    assert steps.startswith("- In progress: “The depth of berth_4 is wrong since the storm. The harbour master")
    assert " … " in steps
    assert f"{QUESTION}”" in steps
    assert COUNTER.count(steps) >= min(max_tokens // 3, 250)


def test_a_first_request_that_is_the_newest_keeps_its_end() -> None:
    overview = _after([_said("user", _request(900)), *_looked(2)], 1, 1_500).fields["task_overview"]
    assert overview.startswith("- “The depth of berth_4 is wrong")
    assert f"{QUESTION}” [" in overview


CORRECTIONS = [
    ("Run the gateway on port 8080 and report it.", "Use port 9090, not 8080."),
    ("Run the gateway on port 8080 and report it.", "No, port 9090 instead of 8080."),
    ("Store the readings in MySQL.", "Use Postgres, not MySQL."),
    ("Write it in a blue tone.", "Please make it green rather than blue."),
    ("Starte das Gateway auf Port 8080.", "Nimm Port 9090 statt 8080."),
    ("Lance le service sur le port 8080.", "Utilise le port 9090 au lieu de 8080."),
    ("把网关端口设为8080。", "用9090端口\uff0c不是8080。"),
    ("ゲートウェイはポート8080で。", "8080ではなく9090を使って。"),
]


@pytest.mark.parametrize("max_tokens", [400, 1_500])
@pytest.mark.parametrize(("asked", "correction"), CORRECTIONS)
def test_a_correction_is_behind_what_it_corrects_after_1_5_and_20_compactions(
    asked: str, correction: str, max_tokens: int
) -> None:
    messages = [_said("user", asked), *_turn(0), *_turn(1), _said("user", correction), *_turn(2), *_turn(3)]
    drafts = _drafts(messages, 20, max_tokens)
    for compactions in (1, 5, 20):
        overview = drafts[compactions - 1].fields["task_overview"].splitlines()
        assert overview[0].startswith(f"- “{asked}”"), compactions
        assert overview[1].startswith(f"- “{correction}” (correcting: “{asked}”)"), compactions


def test_a_later_compaction_corrects_what_the_last_summary_says() -> None:
    first = _after([_said("user", "Run it on port 8080."), *_turn(0)], 1, 700)
    later = [_said("user", "Use port 9090, not 8080."), *_turn(1)]
    overview = extract(SummaryRequest(_sources(later, 5), first, 700, COUNTER)).fields["task_overview"]
    assert "“Use port 9090, not 8080.” (correcting: “Run it on port 8080.”) [transcript.md:1-9,51-59]" in overview


def test_a_correction_of_a_correction_names_the_newer_one() -> None:
    talk = ["Run it on port 8080.", "Use port 9090, not 8080.", "Sorry, 7070 instead of 9090."]
    messages = [message for number, words in enumerate(talk) for message in (_said("user", words), *_turn(number))]
    overview = _after(messages, 20, 700).fields["task_overview"]
    assert "“Sorry, 7070 instead of 9090.” (correcting: “Use port 9090, not 8080.”)" in overview


@pytest.mark.parametrize(
    "words",
    [
        "It does not run on the port yet.",
        "Chart the next berth, and note its port 8080.",
        "Do we not have port 8080?",
        "That is the gateway, not sure if we need it.",
    ],
)
def test_other_sentences_with_not_correct_nothing(words: str) -> None:
    messages = [_said("user", "Run the gateway on port 8080."), *_turn(0), _said("user", words), *_turn(1)]
    assert "correcting" not in _after(messages, 1, 900).fields["task_overview"]
