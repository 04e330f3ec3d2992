"""What an agent reads in an extractive summary that has to go on from it."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from buoyline.compression.extractive.fact_text import ANSWERED
from buoyline.compression.extractive.speech import last_words, split_closing
from buoyline.compression.extractive.summarizer import extract
from buoyline.compression.pointers import Pointer
from buoyline.compression.summary import Draft, SourceMessage, SummaryRequest
from buoyline.messages.registry import detect
from buoyline.tokens import default_counter

Messages = Sequence[dict[str, Any]]


def _said(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}


def _did(call_id: str, name: str, result: str, words: str | None = None, **arguments: object) -> list[dict[str, Any]]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"id": call_id, "type": "function", "function": function}
    return [
        {"role": "assistant", "content": words, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call_id, "content": result},
    ]


def _run(call_id: str, command: str, result: str) -> list[dict[str, Any]]:
    return _did(call_id, "Bash", result, command=command)


def _summaries(*parts: Messages, max_tokens: int = 900) -> Draft:
    """Return the last of several summaries, each of which replaces the one before."""
    draft: Draft | None = None
    first = 0
    for part in parts:
        sources = [
            SourceMessage(
                index, detect(message).view(message), Pointer("transcript.md", 10 * index + 1, 10 * index + 9)
            )
            for index, message in enumerate(part, first)
        ]
        draft = extract(SummaryRequest(sources, draft, max_tokens, default_counter()))
        first += len(part)
    assert draft is not None
    return draft


def _text(draft: Draft) -> str:
    return "\n".join(draft.fields.values())


TASK = _said("user", "Make the release build of app/store.py pass.")


def test_a_next_step_that_was_done_since_is_no_longer_named() -> None:
    asked = [TASK, _said("assistant", "Fixed load_row as you said.\n\nShall I also rename save_row in app/store.py?")]
    assert "Shall I also rename" in _summaries(asked).fields["next_steps"]
    later = [_said("user", "No, leave it as it is."), *_run("1", "make", "built")]
    assert "Shall I also rename" not in _text(_summaries(asked, later))


def test_a_plan_whose_last_task_is_done_leaves_nothing_open() -> None:
    def plan(call_id: str, status: str) -> list[dict[str, Any]]:
        return _did(call_id, "TodoWrite", "ok", todos=[{"content": "Write the changelog", "status": status}])

    assert "Write the changelog" in _summaries([TASK, *plan("1", "pending")]).fields["next_steps"]
    done = _summaries([TASK, *plan("1", "pending")], plan("2", "completed"))
    assert "Write the changelog" not in done.fields["next_steps"]


def test_the_request_in_progress_is_one_of_several_in_the_next_summary() -> None:
    first = [TASK, *_run("1", "make", "built"), _said("user", "Now the same for app/load.py."), *_run("2", "ls", "a")]
    assert "- In progress: “Now the same for app/load.py.”" in _summaries(first).fields["next_steps"]
    second = [_said("user", "And then push it to the fork."), *_run("3", "git push", "pushed")]
    fields = _summaries(first, second).fields
    assert "- “Now the same for app/load.py.”" in fields["task_overview"]
    assert "- In progress: “And then push it to the fork.”" in fields["next_steps"]


def test_a_short_answer_stands_behind_the_question_that_it_answers() -> None:
    talk = [
        TASK,
        _said("assistant", "Both work.\n\nShall I delete old.py?"),
        _said("user", "yes"),
        _said("user", "So?"),
    ]
    assert (
        f"“Shall I delete old.py?{ANSWERED}yes”"
        in _summaries([*talk, _said("assistant", "Done, it is gone.")]).fields["task_overview"]
    )


def test_an_answer_to_nothing_is_not_quoted() -> None:
    messages = [TASK, _said("user", "ok"), _said("user", "好的"), _said("assistant", "It is as it was before.")]
    assert "ok”" not in _text(_summaries(messages))
    assert "好的" not in _text(_summaries(messages))


def test_what_the_user_ends_every_message_with_was_made_by_a_program() -> None:
    shown = [
        _said("user", f"listing {number} of the directory\n(Current directory: /repo)\nbash-$") for number in range(4)
    ]
    text = _text(_summaries([TASK, *shown, _said("assistant", "It has four files.")]))
    assert "bash-$”" not in text
    assert "listing 3" not in text


def test_an_error_is_resolved_by_a_wider_command_that_tries_the_same() -> None:
    failed = _run(
        "1", "pytest tests/test_store.py", "FAILED tests/test_store.py::test_load - KeyError: 'k'\nexit code 1"
    )
    for command in ("pytest -q", "ruff check . && pytest tests/test_store.py"):
        passed = _run("2", command, "4 passed in 0.10s")
        for summary in (_summaries([TASK, *failed, *passed]), _summaries([TASK, *failed], passed)):
            state = summary.fields["current_state"]
            assert " passes (4 passed in 0.10s); it had failed: FAILED tests/test_store.py::test_load" in state
            assert "fails" not in state


def test_an_error_in_a_file_that_was_changed_since_was_worked_on() -> None:
    failed = _run("1", "terraform plan", "app/store.py:3: error: Missing return type\nexit code 1")
    edit = _did("2", "Edit", "Updated.", file_path="/home/me/app/store.py", old_string="a", new_string="b")
    for draft in (_summaries([TASK, *failed, *edit]), _summaries([TASK, *failed], edit)):
        found = draft.fields["important_discoveries"]
        assert "Error, worked on since: terraform plan → app/store.py:3: error: Missing return type" in found
        assert "Open error" not in found


def test_an_error_that_comes_again_is_told_once_and_open() -> None:
    failed = [
        _run(str(number), "terraform plan", "app/store.py:3: error: No return type\nexit code 1") for number in range(3)
    ]
    found = _summaries([TASK, *(message for messages in failed for message in messages)]).fields[
        "important_discoveries"
    ]
    assert found.count("No return type") == 1
    assert "Open error: terraform plan" in found
    assert "Resolved" not in found


def test_words_in_the_data_that_a_command_answers_with_are_no_error() -> None:
    data = '{"url": "https://api.example.com/replies/17", "body": "Fixed the TypeError: it was not caught"}'
    found = _summaries([TASK, *_run("1", "gh api repos/x/y/replies", data)]).fields["important_discoveries"]
    assert "error" not in found


def test_calls_that_differ_in_one_argument_are_told_in_one_line() -> None:
    made = [_did(name, "cancel_flight", "{}", flight=name, refund="card") for name in ("HAT001", "HAT002", "HAT003")]
    state = _summaries([TASK, *(message for messages in made for message in messages)]).fields["current_state"]
    assert "- cancel_flight: flight HAT001, HAT002, HAT003 [transcript.md:11-" in state


def test_what_was_done_comes_before_what_was_looked_up_for_it() -> None:
    looked = [_did(f"look_{name}", "search_flights", "{}", origin=name, date="2024-05-21") for name in ("SFO", "LAX")]
    booked = [_did(f"book_{name}", "book_flight", "{}", flight=name) for name in ("HAT001", "HAT002", "HAT003")]
    part = [TASK, *(message for messages in [*looked, *booked] for message in messages)]
    assert "book_flight: flight HAT001, HAT002, HAT003" in _summaries(part, max_tokens=200).fields["current_state"]


def test_what_the_agent_was_at_is_the_first_next_step_in_its_last_words() -> None:
    words = f"{'The loader is fine as it is. ' * 40}\n\nOnly the writer in app/store.py is left. Let me change that."
    part = [TASK, *_did("1", "Bash", "ok", words, command="make all")]
    steps = _summaries(part, max_tokens=600).fields["next_steps"]
    assert steps.startswith("- The agent was at: “Only the writer in app/store.py is left. Let me change that.”")


def test_an_answer_in_json_is_quoted_in_its_words() -> None:
    answer = json.dumps(
        {"locale": "zh-CN", "enough": False, "thought": "需要先收集行业分析师对外卖市场的预测。"}, ensure_ascii=False
    )
    state = _summaries([_said("user", "如何看待外卖大战"), _said("assistant", answer)]).fields["current_state"]
    assert "需要先收集行业分析师对外卖市场的预测" in state
    assert '"thought"' not in state


@pytest.mark.parametrize(
    ("text", "closing"),
    [
        ("All of it is done and pushed.\n\nShall I merge?", ["Shall I merge?"]),
        ("All of it is done and pushed.\n\nShall I:\n- merge it\n- or wait?", ["Shall I:", "merge it", "or wait?"]),
        (
            "All of the others are done and pushed.\nThese are left:\n\n- #5 performance\n- #8 exported unused",
            [],
        ),
        ("## Sources of the report\n- [one](https://e.x/1)\n- [two](https://e.x/2)", []),
        ("I run the tests of the store now.\n<command>\npytest\n</command>", []),
        ("Perfect! That is all.", []),
        ("报告尚未写入磁盘\uff0c因为磁盘已满了。下一步\uff1a清理磁盘后重试。", ["下一步\uff1a清理磁盘后重试。"]),
    ],
)
def test_a_message_ends_with_what_comes_next_or_with_nothing_of_it(text: str, closing: list[str]) -> None:
    body, found = split_closing(text)
    assert found == closing
    assert text.startswith(body.rstrip())


def test_last_words_are_those_before_code_and_tags() -> None:
    assert last_words("The writer is left in the store.\n```\nmake all\n```") == "The writer is left in the store."
    assert last_words("</done>") == "</done>"
