"""Which sentences and records a summary quotes, and which it passes over."""

import json
from typing import Any

import pytest

from buoyline.compression.extractive.calls import action_of
from buoyline.compression.extractive.lines import ResultText
from buoyline.compression.extractive.phrases import announces, concedes, corrects_itself, offers
from buoyline.compression.extractive.records import RecordRow, RowPlace, rows_of, rows_worth_a_line
from buoyline.compression.extractive.speech import written_texts
from buoyline.compression.extractive.summarizer import extract
from buoyline.compression.identifiers import error_lines
from buoyline.compression.pointers import Pointer
from buoyline.compression.summary import SourceMessage, SummaryRequest
from buoyline.messages import Message, Text, ToolCall
from buoyline.messages.registry import detect
from buoyline.tokens import default_counter

COUNTER = default_counter()
HERE = SourceMessage(0, Message("tool", (Text("rows"),)))


def _said(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}


def _call(name: str, call_id: str, text: str = "", **arguments: object) -> dict[str, Any]:
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
    return {"role": "assistant", "content": text or None, "tool_calls": [call]}


def _result(call_id: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def _fields(messages: list[dict[str, Any]], max_tokens: int = 700) -> dict[str, str]:
    sources = [
        SourceMessage(index, detect(message).view(message), Pointer("transcript.md", 10 * index + 1, 10 * index + 9))
        for index, message in enumerate(messages)
    ]
    return dict(extract(SummaryRequest(sources, None, max_tokens, COUNTER)).fields)


def _places(values: list[str]) -> list[RowPlace]:
    reading = ResultText("rows", HERE)
    return [RowPlace(RecordRow(f"berth {value}", (value,), "berth"), reading, at) for at, value in enumerate(values)]


def test_of_many_records_of_one_form_those_that_were_spoken_of_are_shown() -> None:
    places = _places([f"pier_{number}" for number in range(60)])
    shown = rows_worth_a_line(places, frozenset({"pier_7", "pier_31"}))
    assert [place.row.text for place in shown] == ["berth pier_31", "berth pier_7"]


def test_of_many_records_that_nobody_spoke_of_a_few_are_shown() -> None:
    shown = rows_worth_a_line(_places([f"pier_{number}" for number in range(60)]), frozenset())
    assert [place.row.text for place in shown] == ["berth pier_2", "berth pier_1", "berth pier_0"]


def test_a_value_that_all_records_share_was_not_spoken_of_as_one_of_them() -> None:
    places = [
        RowPlace(RecordRow(f"berth pier_{n}, port Kiel", (f"pier_{n}", "Kiel"), "berth port"), ResultText("", HERE), n)
        for n in range(20)
    ]
    assert len(rows_worth_a_line(places, frozenset({"Kiel"}))) == 3


def test_a_record_keeps_its_keys_and_leaves_out_what_only_programs_read() -> None:
    record = {
        "id": 2734,
        "node_id": "PRRC_kwDOQyo98M6iFnPe",
        "url": "https://api.example.org/repos/harbour/pulls/90/comments/2734",
        "prices": {"deck": 87, "cabin": 122},
        "body": "The loop never reaches the last berth.\n\nPlease use `range(n + 1)` there, as the others do.",
    }
    (row,) = rows_of(json.dumps(record))
    assert row.text == "id 2734, prices (deck 87 cabin 122), body The loop never reaches the last berth."


def test_a_few_small_records_by_their_ids_are_one_row() -> None:
    methods = {
        "card_7": {"source": "card", "last_four": "7447", "id": "card_7"},
        "voucher_2": {"source": "v", "amount": 50},
    }
    (row,) = rows_of(json.dumps({"methods": methods}))
    assert row.text == "methods: card_7 (source card last_four 7447); voucher_2 (source v amount 50)"


def test_what_a_later_result_says_of_a_record_replaces_the_earlier_one() -> None:
    before, after = (
        {"booking_id": "AB12", "status": status, "seat": seat} for status, seat in (("held", 4), ("paid", 9))
    )
    asked = [_said("user", "Pay booking AB12."), _call("get_booking", "1", id="AB12"), _result("1", json.dumps(before))]
    found = _fields([*asked, _call("pay", "2", id="AB12"), _result("2", json.dumps(after))])
    assert "pay: booking_id AB12, status paid, seat 9" in found["important_discoveries"]
    assert "status held" not in "\n".join(found.values())


def test_a_record_names_the_tool_that_returned_it() -> None:
    rows = json.dumps([{"flight": "HAT136", "seats": 9}, {"flight": "HAT039", "seats": 4}])
    found = _fields(
        [_said("user", "Which flights are there?"), _call("get_flights", "1", day="20 May"), _result("1", rows)]
    )
    assert "get_flights: flight HAT136, seats 9" in found["important_discoveries"]


def test_what_the_agent_took_back_is_less_than_what_it_found_then() -> None:
    first = "The cause is the cache in store.py, because it is never emptied when the harbour closes."
    second = "The cause is the clock in tide.py, because it counts the hours of the quay twice."
    messages = [_said("user", "Why is the tide wrong?"), _said("assistant", first)]
    messages += [_said("user", "The cache is off in this build."), _said("assistant", f"You're right. {second}")]
    found = _fields(messages, 120)
    assert second in "\n".join(found.values())
    assert first not in "\n".join(found.values())


def test_prose_in_the_arguments_of_a_call_is_quoted() -> None:
    command = (
        'git commit -m "Sound the outer berths twice\n\nThe lot drifts there, since the current of pier_9 is strong."'
    )
    found = _fields([_said("user", "Commit it."), _call("Bash", "1", command=command), _result("1", "ok")])
    assert "since the current of pier_9 is strong" in "\n".join(found.values())


def test_an_order_to_another_agent_and_the_content_of_a_file_are_no_prose_of_this_one() -> None:
    words = "Look at all the berths of the harbour and say which of them is the deepest one at low tide."
    for arguments in ({"prompt": words}, {"file_path": "a.md", "content": words}):
        assert list(written_texts(action_of(ToolCall("1", "Task", json.dumps(arguments))))) == []


def test_commands_that_only_look_share_a_line() -> None:
    looks = [
        message
        for number in range(9)
        for message in (_call("Bash", f"c{number}", command=f"cat part_{number}.py"), _result(f"c{number}", "x = 1"))
    ]
    state = _fields([_said("user", "Read the parts."), *looks])["current_state"]
    assert "Looked at: `cat part_8.py`, `cat part_7.py`" in state
    assert state.count("cat part_") == state.splitlines()[-1].count("cat part_")


def test_the_text_of_a_skill_is_not_the_users() -> None:
    skill = "# Charting\n\n" + "Always sound each berth twice before you write it down in the log. " * 40
    messages = [_said("user", "Chart the harbour."), _call("Skill", "1", skill="charting"), _result("1", "Launching")]
    found = _fields(
        [*messages, _said("user", skill), _said("assistant", "The chart of the harbour is in chart.md now.")]
    )
    assert "User: " not in "\n".join(found.values())
    assert "Charting" not in found["task_overview"]


def test_the_newest_comes_first_in_the_state() -> None:
    state = _fields(
        [
            _said("user", "Build it."),
            *[
                message
                for number in range(3)
                for message in (
                    _call("Bash", f"c{number}", command=f"deploy stage_{number}"),
                    _result(f"c{number}", "up"),
                )
            ],
            _said("assistant", "All three stages run now, and the harbour is open."),
        ]
    )["current_state"].splitlines()
    assert state[0].startswith("- Reported: “All three stages run now")
    assert [line.split()[3] for line in state[1:4]] == ["stage_2", "stage_1", "stage_0"]


@pytest.mark.parametrize(
    ("recognized", "sentence"),
    [
        (announces, "But first, I need to read the log."),
        (announces, "Let's look at the tide tables."),
        (offers, "If you need anything else, feel free to ask!"),
        (concedes, "You are absolutely right, the cache is off."),
        (concedes, "抱歉\uff0c我看错了。"),
        (corrects_itself, "Actually, the clock is wrong."),
    ],
)
def test_sentences_are_recognized_by_their_wording(recognized: Any, sentence: str) -> None:
    assert recognized(sentence)
    assert not recognized("The depth of the berth is four fathoms.")


ERRORS = """
    ValueError: too large
    RuntimeException: too large
    ERROR in line 3
    FAIL x_test.go
    build failed: see above
    failure of the disk
    fatal: not a repository
    FATAL the database is gone
    panic: index out of range
    Traceback (most recent call last):
    Fehler beim Lesen
    erreur de lecture
    3 problems in 2 files
    ls: x: No such file or directory
    bash: x: Permission denied
    sh: go: command not found
    the page was not found
    the request timed out
    dial tcp: connection refused
    cannot open the file
    we could not open it
    unable to open it
    main.go:3: undefined: x
    Fall\u00f3 la prueba
    Test fehlgeschlagen
    \u9519\u8bef\uff1a\u627e\u4e0d\u5230\u6587\u4ef6
    \u6784\u5efa\u5931\u8d25\u4e86
    \u5f02\u5e38\uff1a\u7a7a\u5f15\u7528
    \u7a0b\u5e8f\u62a5\u9519\u4e86
    \u30a8\u30e9\u30fc\u304c\u767a\u751f\u3057\u305f
    \ud30c\uc77c \uc624\ub958 \ubc1c\uc0dd
    \u043e\u0448\u0438\u0431\u043a\u0430: \u043d\u0435\u0442 \u0444\u0430\u0439\u043b\u0430
""".strip().split("\n")


@pytest.mark.parametrize("line", [line.strip() for line in ERRORS])
def test_a_line_that_says_an_error_is_found_among_other_lines(line: str) -> None:
    others = ["Everything went well here.", "Nothing to see there."]
    assert list(error_lines("\n".join([*others, line, *others]))) == [line]
