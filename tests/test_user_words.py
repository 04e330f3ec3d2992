"""The user's words in every later summary: requests and bans, word for word, and nobody else's as the user's."""

import json
from pathlib import Path
from typing import Any

import pytest

from buoyline.compression import Summary
from buoyline.compression.extractive.phrases import forbids
from buoyline.compression.extractive.speech import MAX_LED_LINES, remarks
from buoyline.compression.extractive.summarizer import extract
from buoyline.compression.pointers import Pointer
from buoyline.compression.summary import Draft, SourceMessage, SummaryRequest
from buoyline.messages.registry import detect
from buoyline.tokens import default_counter
from buoyline.window import ContextCompressed, ContextWindow, Event
from buoyline.workspace import MemoryWorkspace

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


TASK = "Chart all berths of the harbour."


FILLER = " ".join(
    f"The harbour master of pier_{number} keeps a log of each tide and reports it." for number in range(60)
)


def _looked(number: int) -> list[dict[str, Any]]:
    """Return a call with its result, in Anthropic's dialect."""
    call = {"type": "tool_use", "id": f"c{number}", "name": "Bash", "input": {"command": f"sound --berth {number}"}}
    result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": f"berth_{number}: depth_{number * 7}"}
    return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]


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


SHORT_TOKENS = 60


MADE = ("<", "[", "/", "This session is being continued", "Base directory", "Caveat")
"""How messages begin that a program put into the user's mouth."""


def recorded(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def on_one_line(text: str) -> str:
    return " ".join(text.split())


def typed(conversation: list[Any]) -> list[tuple[int, str]]:
    """Return index and words of each message that a person typed."""
    said = ((number, detect(message).view(message)) for number, message in enumerate(conversation))
    users = ((number, on_one_line(view.text)) for number, view in said if view.role == "user")
    return [(number, text) for number, text in users if text and not text.startswith(MADE)]


async def summaries_of(conversation: list[Any], size: int) -> list[Summary]:
    """Return the summaries of a window of *size* tokens that a conversation goes through."""
    events: list[Event] = []
    window = ContextWindow(session_id="s", offloader=MemoryWorkspace(), size=size, on_event=events.append)
    for message in conversation:
        await window.add(message)
        await window.prepare()
    return [event.summary for event in events if isinstance(event, ContextCompressed)]


def kept_words(conversation: list[Any], summary: Summary) -> tuple[bool, list[bool]]:
    """Tell whether a summary begins to quote the first request, and which of the three newest short ones it quotes."""
    gone = [text for number, text in typed(conversation) if number < summary.messages[1]]
    quoted = on_one_line(summary.text)
    counter = default_counter()
    newest = [text for text in gone if counter.count(text) <= SHORT_TOKENS][-3:]
    return not gone or gone[0][:30] in quoted, [text in quoted for text in newest]


@pytest.mark.slow
@pytest.mark.parametrize("size", [32_000, 128_000])
async def test_the_users_first_and_newest_words_stay_in_windows_of_a_usual_size(shared_data: Path, size: int) -> None:
    newest: list[bool] = []
    for path in sorted((shared_data / "sessions").glob("*.jsonl")):
        conversation = recorded(path)
        for summary in await summaries_of(conversation, size):
            has_first, has_newest = kept_words(conversation, summary)
            assert has_first, f"{path.name}: summary {summary.number} does not say what the user asked for first"
            newest += has_newest
    assert sum(newest) >= 0.95 * len(newest)


async def test_the_users_first_words_stay_through_a_recorded_session(shared_data: Path) -> None:
    conversation = recorded(shared_data / "sessions" / "cc_entire_25-730c662552-0.jsonl")[:150]
    summaries = await summaries_of(conversation, 16_000)
    assert len(summaries) > 2
    assert all(kept_words(conversation, summary)[0] for summary in summaries)
