"""What the user forbade is in every later summary, word for word."""

import json
from typing import Any

import pytest

from buoyline.compression import Draft, Pointer, SourceMessage, SummaryRequest
from buoyline.compression.extractive.choose import extract
from buoyline.compression.extractive.user import bans, own_words
from buoyline.messages.registry import detect
from buoyline.tokens import default_counter

COUNTER = default_counter()
MAX_TOKENS = 700
TURNS = 8
"""Of each part that a summary replaces."""

BANS = {
    "English": "Never touch the files under legacy/vault, whatever the tests say.",
    "a command": "Please do not push to the branch release_9 before Friday.",
    "German": "Ändere auf keinen Fall die Datei config/hafen.yaml.",
    "German infinitive": "Die Tabelle buchungen_alt bitte nicht löschen.",
    "French": "Ne touche jamais au dossier archives/quai_4.",
    "Spanish": "No borres nunca la tabla reservas_2019.",
    "Russian": "\u041d\u0435 \u0443\u0434\u0430\u043b\u044f\u0439 \u0444\u0430\u0439\u043b port/depth_7.csv.",
    "Chinese": "不要修改 config/port_b.yaml 这个文件。",
    "Japanese": "docs/kaizu_3.md は絶対に書き換えないでください。",
    "Korean": "legacy/dock_5.py 파일은 절대 수정하지 마세요.",
}
TALK = (
    "Chart the next berth as well, and note its depth.",
    "那么下一个泊位也请量一下深度。",
    "Miss bitte auch den nächsten Liegeplatz aus.",
)


def _said(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}


def _turn(number: int) -> list[dict[str, Any]]:
    """Return a request, a call with its result, and an answer; each turn has names of its own."""
    function = {"name": "Bash", "arguments": json.dumps({"command": f"sound --berth {number} > log_{number}.txt"})}
    call = {"id": f"c{number}", "type": "function", "function": function}
    return [
        _said("user", f"{TALK[number % len(TALK)]} (berth_{number})"),
        {"role": "assistant", "content": f"I sound berth_{number}.", "tool_calls": [call]},
        {
            "role": "tool",
            "tool_call_id": f"c{number}",
            "content": f"berth_{number}: depth_{number * 7} at pier_{number}",
        },
        _said("assistant", f"The depth of berth_{number} is fixed in chart_{number}.md since the tide turned at noon."),
    ]


def _placed(ban: str, place: str) -> list[dict[str, Any]]:
    """Return the first part of a session, with *ban* at a place."""
    filler = " ".join(f"The harbour master of pier_{number} keeps a log of each tide." for number in range(20))
    opening = "Chart all berths of the harbour and write a report."
    messages = [message for number in range(TURNS) for message in _turn(number)]
    match place:
        case "in the first message":
            return [_said("user", f"{opening} {ban}"), *messages]
        case "in the middle":
            middle = 4 * (TURNS // 2)
            return [_said("user", opening), *messages[:middle], _said("user", ban), *messages[middle:]]
        case "in a long message":
            return [
                _said("user", opening),
                *messages[:8],
                _said("user", f"{filler}\n\n{ban}\n\n{filler}"),
                *messages[8:],
            ]
        case _:
            return [_said("user", opening), *messages, _said("user", ban)]


def _sources(messages: list[dict[str, Any]], first: int) -> list[SourceMessage]:
    return [
        SourceMessage(index, detect(message).view(message), Pointer("transcript.md", 10 * index + 1, 10 * index + 9))
        for index, message in enumerate(messages, first)
    ]


def _after(messages: list[dict[str, Any]], compactions: int, max_tokens: int = MAX_TOKENS) -> Draft:
    """Return the last of so many summaries; each but the first replaces one, and covers new turns."""
    end = len(messages)
    draft = extract(SummaryRequest(_sources(messages, 0), None, max_tokens, COUNTER))
    for number in range(1, compactions):
        more = [message for turn in range(TURNS) for message in _turn(number * TURNS + turn)]
        draft = extract(SummaryRequest(_sources(more, end), draft, max_tokens, COUNTER))
        end += len(more)
    return draft


@pytest.mark.parametrize("place", ["in the first message", "in the middle", "in a long message", "at the end"])
@pytest.mark.parametrize("language", BANS)
def test_what_the_user_forbade_is_said_word_for_word_after_1_5_and_20_compactions(language: str, place: str) -> None:
    ban = BANS[language]
    for compactions in (1, 5, 20):
        text = "\n".join(_after(_placed(ban, place), compactions).fields.values())
        assert ban in text, compactions


def test_several_bans_are_all_kept() -> None:
    messages = [_said("user", "Chart all berths."), *_turn(0)]
    for number, ban in enumerate(BANS.values(), 1):
        messages += [_said("user", ban), *_turn(number)]
    text = "\n".join(_after(messages, 5, 1_500).fields.values())
    assert [ban for ban in BANS.values() if ban not in text] == []


LONG_BAN = (
    "Never rename, move, delete, reformat or otherwise touch any of the files under legacy/vault, archives/quai_4 and "
    f"docs/kaizu_3, {', '.join(f'nor those of pier_{number} that are kept for its tide' for number in range(20))}, "
    "whatever the tests say."
)


@pytest.mark.parametrize("max_tokens", [1_500, 4_000])
def test_a_long_ban_is_kept_whole_after_1_5_and_20_compactions(max_tokens: int) -> None:
    messages = [_said("user", "Chart all berths."), *_turn(0), _said("user", LONG_BAN), *_turn(1), *_turn(2)]
    for compactions in (1, 5, 20):
        assert LONG_BAN in "\n".join(_after(messages, compactions, max_tokens).fields.values()), compactions


def test_a_ban_that_a_quotation_says_whole_is_not_said_again() -> None:
    ban = BANS["English"]
    text = "\n".join(_after([_said("user", f"Chart all berths. {ban}"), *_turn(1)], 1).fields.values())
    assert text.count(ban) == 1


@pytest.mark.parametrize(
    "text",
    [
        "Das Lot war kurz.",
        "Can you look at the tide tables?",
        "Don't you think that the tests never pass?",
        "Warum darf man das nicht löschen?",
        "不要修改吗?",
        "请看一下潮汐表。",
        "> never push to main",
        "Look:\n```\nnever push to main\n```",
    ],
)
def test_a_question_a_quotation_and_code_forbid_nothing(text: str) -> None:
    assert list(bans(text)) == []


LISTS = {
    "a list": ("Never touch these:\n- a.py\n- b.py", "Never touch these: a.py b.py"),
    "numbers": ("Do not change:\n1. a.py\n2. b.py\n\nThank you.", "Do not change: a.py b.py"),
    "an inner list": ("- Never touch:\n  - a.py\n  - b.py\n\nWrite a test.", "Never touch: a.py b.py"),
    "German": ("Ändere auf keinen Fall:\n* hafen.yaml\n* kai.yaml", "Ändere auf keinen Fall: hafen.yaml kai.yaml"),
}


@pytest.mark.parametrize("form", LISTS)
def test_a_ban_that_leads_into_a_list_keeps_the_list(form: str) -> None:
    asked, ban = LISTS[form]
    messages = [_said("user", "Chart all berths."), *_turn(0), _said("user", asked), *_turn(1), *_turn(2)]
    for compactions in (1, 5):
        assert ban in "\n".join(_after(messages, compactions).fields.values()), compactions


@pytest.mark.parametrize(
    "text",
    [
        "never:\n- a\n" * 20_000,
        "never:\n" * 50_000,
        "<a_b>" * 40_000,
        "".join(f"<a_{number}>" for number in range(20_000)),
        "</a_b>" * 40_000,
        "don't you " * 20_000 + "?",
        "[" * 100_000,
    ],
    ids=["lists", "colons", "tags", "many tags", "closings", "questions", "brackets"],
)
def test_a_long_hostile_message_takes_no_longer_than_any_other(text: str) -> None:
    """The time-out of the suite ends it if an expression goes back and forth."""
    assert len(own_words(text)) <= len(text)
    assert len(list(bans(text))) <= len(text)
    _after([_said("user", text), *_turn(0)], 1)
