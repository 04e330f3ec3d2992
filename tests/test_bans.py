"""What the user forbade is in every later summary, word for word."""

import json
from typing import Any

import pytest

from buoyline.compression.extractive.phrases import forbids
from buoyline.compression.extractive.speech import MAX_LED_LINES, remarks
from buoyline.compression.extractive.summarizer import extract
from buoyline.compression.pointers import Pointer
from buoyline.compression.summary import Draft, SourceMessage, SummaryRequest
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


@pytest.mark.parametrize("max_tokens", [700, 1_500, 4_000])
def test_a_long_ban_is_kept_whole_after_1_5_and_20_compactions(max_tokens: int) -> None:
    messages = [_said("user", "Chart all berths."), *_turn(0), _said("user", LONG_BAN), *_turn(1), *_turn(2)]
    for compactions in (1, 5, 20):
        assert LONG_BAN in "\n".join(_after(messages, compactions, max_tokens).fields.values()), compactions


def test_many_bans_are_all_kept_before_any_other_kind_of_fact() -> None:
    messages = [_said("user", "Chart all berths.")]
    bans = [f"Never touch legacy/vault_{number} of pier_{number}, whatever its tests say." for number in range(25)]
    for number, ban in enumerate(bans):
        messages += [_said("user", ban), *_turn(number)]
    for compactions in (1, 5, 20):
        text = "\n".join(_after(messages, compactions, 1_200).fields.values())
        assert [ban for ban in bans if ban not in text] == [], compactions
    assert "Chart all berths." in text


@pytest.mark.parametrize(
    "sentence",
    [
        "I don't know which berth it was.",
        "We do not have a chart of it.",
        "Never mind.",
        "Das Lot war kurz.",
        "Can you look at the tide tables?",
        "请看一下潮汐表。",
    ],
)
def test_what_only_says_no_forbids_nothing(sentence: str) -> None:
    assert not forbids(sentence)


def test_a_ban_that_a_quotation_says_whole_is_not_said_again() -> None:
    ban = BANS["English"]
    text = "\n".join(_after([_said("user", f"Chart all berths. {ban}"), *_turn(1)], 1).fields.values())
    assert text.count(ban) == 1


@pytest.mark.parametrize(
    "text",
    [
        "ERROR: do not use port 80 twice.",
        "2024-05-01 12:00:01 WARN socket closed. Do not close it again.",
        "[12:03] Anna: never push on a Friday",
        "app/gateway.py:33: never reached",
        "npm ERR! do not run as root",
        "TypeError: this must not be None",
        "// do not edit this by hand",
        "Don't you think that the tests never pass?",
        "The tests pass, don't you think?",
        "Why not never use tabs?",
        "Is it forbidden to write there?",
        "Warum darf man das nicht löschen?",
        "为什么不要修改这个文件?",
        "不要修改吗?",
        'The page says "Never push. Do not merge." What does it mean?',
        "He wrote “do not touch legacy” in it.",
        "`do not edit this file` is its first line.",
        "Look:\n```\nnever push to main\n```",
    ],
)
def test_words_of_a_log_a_question_and_a_quotation_forbid_nothing(text: str) -> None:
    assert [sentence for sentence, is_ban in remarks(text) if is_ban] == []


@pytest.mark.parametrize(
    "text",
    [
        "Don't push, ok?",
        "Could you please never push to main again?",
        "Can you please not touch legacy/?",
        "When you deploy, never push to main, ok?",
        "不要修改\uff0c好吗?",
        "WARNING: do not touch legacy/, or it breaks.",
        "CRITICAL: never delete the data.",
        "Error handling: never swallow exceptions.",
        "Don't run 'make deploy', and don't push.",
        'Do not write "hello" anywhere.',
        '"Never push to main."',
        "# DO NOT EDIT main.py",
    ],
)
def test_a_ban_of_any_form_is_a_ban(text: str) -> None:
    assert [is_ban for _, is_ban in remarks(text)] == [True]


LISTS = {
    "a list": ("Never touch these:\n- a.py\n- b.py", "Never touch these: - a.py - b.py"),
    "numbers": ("Do not change:\n\n1. a.py\n2. b.py\n\nThank you.", "Do not change: 1. a.py 2. b.py"),
    "plain lines": ("Never touch:\na.py\nb.py\n\nThank you.", "Never touch: a.py b.py"),
    "a heading": ("## Off limits\n\n- a.py\n- b.py\n\nThank you.", "Off limits - a.py - b.py"),
    "an inner list": ("- Never touch:\n  - a.py\n  - b.py\n- Write a test.", "Never touch: - a.py - b.py"),
    "code": ("Never run this:\n```\nmake deploy\n```\nThank you.", "Never run this: make deploy"),
    "German": ("Ändere auf keinen Fall:\n* hafen.yaml\n* kai.yaml", "Ändere auf keinen Fall: * hafen.yaml * kai.yaml"),
    "Chinese": ("请不要修改\uff1a\n1、a.yaml\n2、b.yaml\n\n谢谢。", "请不要修改\uff1a 1、a.yaml 2、b.yaml"),
    "Japanese": ("触らないでください\uff1a\n・a.md\n・b.md", "触らないでください\uff1a ・a.md ・b.md"),
}


@pytest.mark.parametrize("form", LISTS)
def test_a_ban_that_leads_into_a_list_keeps_the_list_after_1_5_and_20_compactions(form: str) -> None:
    asked, ban = LISTS[form]
    messages = [_said("user", "Chart all berths."), *_turn(0), _said("user", asked), *_turn(1), *_turn(2)]
    for compactions in (1, 5, 20):
        assert ban in "\n".join(_after(messages, compactions).fields.values()), compactions


def test_a_list_of_bans_is_a_ban_for_each_entry() -> None:
    assert list(remarks("- never push\n- never merge\n- write tests")) == [
        ("never push", True),
        ("never merge", True),
        ("write tests", False),
    ]


def test_a_ban_holds_at_most_so_many_lines_of_its_list() -> None:
    entries = [f"- berth_{number}.py" for number in range(MAX_LED_LINES + 2)]
    (ban, _), *others = remarks("\n".join(["Never touch:", *entries]))
    assert ban == f"Never touch: {' '.join(entries[:MAX_LED_LINES])}"
    assert [said for said, _ in others] == [entry.removeprefix("- ") for entry in entries[MAX_LED_LINES:]]


@pytest.mark.parametrize(
    "text",
    ["never:\n- a\n" * 20_000, "never:\n" * 50_000, "\"`'\u201c\u00ab" * 40_000, "don't you " * 20_000 + "?"],
    ids=["lists", "colons", "quotes", "questions"],
)
def test_a_long_hostile_message_takes_no_longer_than_any_other(text: str) -> None:
    """The time-out of the suite ends it if an expression goes back and forth."""
    assert sum(is_ban for _, is_ban in remarks(text)) <= len(text)
