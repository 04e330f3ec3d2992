import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from thirds import STEP, each_third

from buoyline.compression.citations import CUT, unverified
from buoyline.compression.extractive.fact_text import ANSWERED, FILE_KINDS
from buoyline.compression.extractive.facts import FACTS
from buoyline.compression.extractive.records import rows_of
from buoyline.compression.extractive.summarizer import Extractive, extract
from buoyline.compression.pointers import Pointer, pointers_in
from buoyline.compression.summary import FIELDS, Draft, SourceMessage, SummaryRequest
from buoyline.messages import Message
from buoyline.messages.registry import detect
from buoyline.tokens import as_text_counter, default_counter

COUNTER = default_counter()


def _call(name: str, call_id: str, **arguments: object) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
    }


def _said(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}


def _result(call_id: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def _sources(messages: Sequence[dict[str, Any]], first: int = 0) -> list[SourceMessage]:
    return [
        SourceMessage(index, detect(message).view(message), Pointer("transcript.md", 10 * index + 1, 10 * index + 9))
        for index, message in enumerate(messages, first)
    ]


def _extract(messages: Sequence[dict[str, Any]], max_tokens: int = 1_000, **kwargs: Any) -> Draft:
    return extract(SummaryRequest(_sources(messages), None, max_tokens, COUNTER, **kwargs))


def _tokens(draft: Draft) -> int:
    return sum(COUNTER.count(text) for text in draft.fields.values())


def _spoken(message: Message) -> str:
    calls = (f"{call.name}\n{call.arguments}" for call in message.calls)
    return "\n".join([message.text, *calls, *(result.text for result in message.results)])


_DRAFT = """
import json, pathlib, sys
from buoyline.compression.extractive.facts import FACTS
from buoyline.compression.extractive.summarizer import extract
from buoyline.compression.pointers import Pointer
from buoyline.compression.summary import SourceMessage, SummaryRequest
from buoyline.messages.registry import detect
from buoyline.tokens import default_counter

messages = json.loads(pathlib.Path(sys.argv[1]).read_text())
sources = [SourceMessage(n, detect(m).view(m), Pointer("transcript.md", n + 1, n + 1)) for n, m in enumerate(messages)]
print(ascii(extract(SummaryRequest(sources, None, 900, default_counter()))))
"""

SESSION = [
    _said("user", "Please fix the failing test in app/store.py, and never touch the file config/prod.yaml."),
    _call("Read", "1", file_path="/home/me/app/store.py"),
    _result("1", "def load_row(key):\n    return ROWS[key]\n"),
    _call("Bash", "2", command="pytest -q tests/test_store.py"),
    _result("2", "FAILED tests/test_store.py::test_load - KeyError: 'k_17'\n1 failed, 3 passed in 0.12s\nexit code 1"),
    _call("Edit", "3", file_path="/home/me/app/store.py", old_string="ROWS[key]", new_string="ROWS.get(key)"),
    _result("3", "The file has been updated."),
    _call("Bash", "4", command="pytest -q tests/test_store.py"),
    _result("4", "4 passed in 0.10s"),
    _call("Bash", "5", command="terraform plan"),
    _result("5", "app/store.py:3: error: Missing return type\nFound 1 error in 1 file\nexit code 1"),
    _call(
        "TodoWrite",
        "6",
        todos=[
            {"content": "Fix load_row", "status": "completed"},
            {"content": "Add a return type", "status": "in_progress"},
            {"content": "Write the changelog", "status": "pending"},
        ],
    ),
    _result("6", "ok"),
    _said("user", "Use Row | None there, not Optional."),
    _said(
        "assistant",
        "The test passes now, since load_row returns None for a missing key.\n\n"
        "Shall I also change save_row in ticket APP-231?",
    ),
]


def test_the_users_words_stand_in_the_overview_in_order_with_their_lines() -> None:
    overview = _extract(SESSION).fields["task_overview"].splitlines()
    assert overview == [
        f"- “{SESSION[0]['content']}” [transcript.md:1-9]",
        f"- “{SESSION[13]['content']}” [transcript.md:131-139]",
    ]


def test_the_state_says_what_was_changed_run_and_reported() -> None:
    state = _extract(SESSION).fields["current_state"]
    assert "- Changed: /home/me/app/store.py [transcript.md:51-59]" in state
    assert "store.py: `ROWS[key]` → `ROWS.get(key)` [transcript.md:51-59]" in state
    assert (
        "`pytest -q tests/test_store.py` passes (4 passed in 0.10s); it had failed: FAILED tests/test_store.py" in state
    )
    assert "changed in between: store.py [transcript.md:31-49,71-89]" in state
    assert "load_row returns None for a missing key" in state


@pytest.mark.parametrize(("runs", "said", "weight"), [(2, "was run", "done"), (3, "was run 3 times", "check")])
def test_a_check_that_is_run_again_and_again_counts_as_one_although_its_output_says_nothing(
    runs: int, said: str, weight: str
) -> None:
    messages = [_said("user", "Make the footer dimmer.")]
    for number in range(runs):
        path, old, new = "/pier/footer.ts", f"dim_{number}", f"dim_{number + 1}"
        messages += [
            _call("edit", f"e{number}", path=path, oldText=old, newText=new),
            _result(f"e{number}", "done"),
            _call("bash", f"b{number}", command="cd pier/web && npm run build 2>&1 | tail -3"),
            _result(f"b{number}", "Waiting for the debugger to disconnect..."),
        ]
    draft = _extract(messages)
    assert f"`npm run build` in pier/web {said} [" in draft.fields["current_state"]
    assert [item.weight for item in draft.items if item.kind == "check"] == [FACTS[weight]]


def test_work_that_was_checked_and_not_committed_is_said_to_be_uncommitted() -> None:
    written = [_call("Write", "c1", file_path="/repo/src/a.py", content="x = 1"), _result("c1", "File created")]
    checked = [_call("Bash", "c2", command="pytest -q"), _result("c2", "4 passed in 0.1s")]
    assert "nothing was committed" not in _extract([_said("user", "Write it."), *written]).fields["current_state"]
    assert "nothing was committed" in _extract([_said("user", "Go on."), *written, *checked]).fields["current_state"]


def test_a_failed_call_is_quoted_with_its_error() -> None:
    found = _extract(SESSION).fields["important_discoveries"]
    assert "FAILED" not in found
    assert "Failed: terraform plan → app/store.py:3: error: Missing return type [transcript.md:91-109]" in found


def test_next_steps_hold_the_open_tasks_and_the_closing_question() -> None:
    steps = _extract(SESSION).fields["next_steps"]
    assert "(in_progress) Add a return type" in steps
    assert "(pending) Write the changelog" in steps
    assert "Fix load_row" not in steps
    assert "Shall I also change save_row in ticket APP-231?" in steps


def test_an_unanswered_user_and_a_call_without_result_are_open() -> None:
    steps = _extract([_said("user", "Which port?")]).fields["next_steps"]
    assert steps == "- Not answered yet: “Which port?” [transcript.md:1-9]"
    steps = _extract([_said("user", "go"), _call("Bash", "1", command="make all")]).fields["next_steps"]
    assert "- No result yet: make all [transcript.md:11-19]" in steps


def test_another_process_gives_the_same_draft(tmp_path: Path) -> None:
    messages = [*SESSION, _said("assistant", " ".join(f"name_{number}" for number in range(500)))]
    (tmp_path / "messages.json").write_text(json.dumps(messages), encoding="utf-8")
    drafts = [
        subprocess.run(
            [sys.executable, "-c", _DRAFT, str(tmp_path / "messages.json")],
            check=True,
            capture_output=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    ]
    assert drafts[0] == drafts[1] != b""


def test_a_request_that_the_agent_works_on_is_in_progress() -> None:
    fields = _extract([*SESSION[:14], *SESSION[3:9]]).fields
    assert "- In progress: “Use Row | None there, not Optional.”" in fields["next_steps"]
    assert "In progress" not in _extract(SESSION).fields["next_steps"]


def test_the_request_in_progress_is_quoted_once() -> None:
    fields = _extract([*SESSION[:14], *SESSION[3:9]]).fields
    assert "Use Row" not in fields["task_overview"]
    assert SESSION[0]["content"] in fields["task_overview"]
    assert "In progress" not in _extract(SESSION[:9]).fields["next_steps"]


def test_what_was_announced_is_no_open_step_once_it_was_tried_or_answered() -> None:
    announced = {**_call("Bash", "1", command="make all"), "content": "Good. Now let me build it."}
    done = [_said("user", "go"), announced, _result("1", "built out_7.bin")]
    steps = _extract(done).fields["next_steps"]
    assert steps == "- The agent was at: “Good. Now let me build it.” [transcript.md:11-19]"
    asked = [_said("user", "go"), _said("assistant", "Both work. Shall I delete old.py?"), _said("user", "No.")]
    assert "- Shall I delete" not in _extract(asked).fields["next_steps"]


def test_words_that_a_command_prints_itself_are_no_error() -> None:
    command = "make check || echo 'Error: not found'"
    found = _extract([_said("user", "go"), _call("Bash", "1", command=command), _result("1", "Error: not found")])
    assert "Failed: " not in found.fields["important_discoveries"]
    passed = _result("1", "=== RUN TestExplain_MutualExclusivityError\n--- PASS: TestExplain (0.00s)")
    found = _extract([_said("user", "go"), _call("Bash", "1", command="go test ./..."), passed])
    assert "Failed: " not in found.fields["important_discoveries"]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("The user denied this operation.", "Refused: write_to_file old.py"),
        (
            "The user doesn't want to proceed with this. The user said: keep it",
            "“keep it” (refusing: write_to_file old.py",
        ),
        ("[write_to_file for 'app/old.py'] Result:\nThe user denied this operation.", "Refused: write_to_file old.py"),
        ('{"status":"denied","message":"The user denied this operation."}', "Refused: write_to_file old.py"),
        ("Error: User rejected tool use with feedback: keep it", "“keep it” (refusing: write_to_file old.py"),
    ],
)
def test_a_call_that_the_user_refused_is_no_change_and_no_error(answer: str, said: str) -> None:
    refused = [_call("write_to_file", "1", path="app/old.py", content="x = 1"), _result("1", answer)]
    fields = _extract([_said("user", "Tidy up the app."), *refused]).fields
    assert said in fields["task_overview"]
    assert "Changed" not in fields["current_state"]
    assert "rror" not in fields["important_discoveries"]


def test_a_request_that_was_interrupted_and_said_again_is_quoted_once() -> None:
    messages = [
        _said("user", "Fix the build."),
        _said("user", "check the comments?"),
        _said("user", "[Request interrupted by user]"),
        _said("user", "check the comments, and answer them"),
    ]
    text = "\n".join(_extract(messages).fields.values())
    assert "interrupted" not in text
    assert text.count("check the comments") == 1


def test_strings_in_use_are_kept_exactly_and_once() -> None:
    text = "\n".join(_extract(SESSION).fields.values())
    assert all(name in text for name in ("/home/me/app/store.py", "config/prod.yaml", "k_17", "APP-231", "save_row"))
    assert "APP-231" not in _extract(SESSION).fields["context_to_preserve"]


def test_a_chinese_conversation_is_summarised_in_its_own_words() -> None:
    messages = [
        _said("user", "请分析京东和美团的外卖竞争\uff0c报告写到/data/report_final.md。不要使用英文。"),
        _call("web_search", "1", query="京东 外卖 市场份额"),
        _result("1", '[{"title": "京东外卖日订单破千万", "url": "https://news.example.cn/c/8ipq0GcU"}]'),
        _call("write_file", "2", path="/data/report_final.md", content="# 报告\n日订单量1000万"),
        _result("2", "写入失败\uff1a错误\uff1a磁盘已满"),
        _said(
            "assistant", "京东外卖日订单量突破1000万单\uff0c已覆盖166座城市。报告尚未写入。下一步\uff1a清理磁盘后重试。"
        ),
    ]
    fields = _extract(messages).fields
    assert "请分析京东和美团的外卖竞争" in fields["task_overview"]
    assert "写入失败\uff1a错误\uff1a磁盘已满" in fields["important_discoveries"]
    assert "下一步\uff1a清理磁盘后重试。" in fields["next_steps"]
    assert "https://news.example.cn/c/8ipq0GcU" in "\n".join(fields.values())
    assert unverified("\n".join(fields.values()), [_spoken(source.message) for source in _sources(messages)]) == ()


def test_even_a_tiny_budget_keeps_the_beginning_of_the_first_request() -> None:
    long = [_said("user", "Rename the class Foo to Bar everywhere. " * 40), *SESSION]
    for max_tokens in (10, 20, 60):
        draft = _extract(long, max_tokens)
        assert "Rename the" in draft.fields["task_overview"]
        assert _tokens(draft) <= max_tokens


@pytest.mark.parametrize("max_tokens", [160, 180])
def test_a_small_budget_has_room_for_the_state_beside_a_long_task_and_a_ban(max_tokens: int) -> None:
    task = "Chart the harbour. " + "The pilots need the depth of each berth at low tide, by name. " * 30
    ban = "Whatever happens and whoever asks for it, do not write into the folder that holds the charts of last year."
    messages = [
        _said("user", f"{task}\n\n{ban}"),
        *(_said("assistant", f"We should look at berth_{n} first, since pier_{n} is next to it.") for n in range(5)),
        _call("write_file", "c1", path="/harbour/depths.py", content="print(344)"),
        _result("c1", "done"),
        _said("assistant", "Now I look for the tide table."),
    ]
    draft = _extract(messages, max_tokens)
    assert "Created: /harbour/depths.py" in draft.fields["current_state"]
    assert ban in " ".join(draft.fields.values())
    assert _tokens(draft) <= max_tokens


def test_without_any_budget_every_field_is_empty() -> None:
    assert set(_extract(SESSION, 0).fields.values()) == {""}


def test_an_empty_field_says_so_where_there_is_room() -> None:
    fields = _extract([_said("assistant", "hello there")]).fields
    assert fields["task_overview"] == "None seen."


def test_a_cut_quotation_ends_at_a_sentence_and_is_marked() -> None:
    overview = _extract([_said("user", "Do one thing well. " * 400)], 400).fields["task_overview"]
    assert "well. …” [transcript.md:1-9]" in overview


def test_fields_that_are_not_asked_for_are_left_out_and_others_get_a_digest() -> None:
    draft = _extract(SESSION, fields=("next_steps", "errors"))
    assert list(draft.fields) == ["next_steps", "errors"]
    assert "Missing return type" in draft.fields["errors"]
    only_custom = _extract(SESSION, fields=("story",))
    assert "Please fix the failing test" in only_custom.fields["story"]


def test_what_the_caller_wants_kept_comes_first() -> None:
    chatter = [
        _said("assistant", f"Looked at part_{number} of the thing without any result so far.") for number in range(200)
    ]
    messages = [_said("user", "go"), _said("assistant", "The magic_constant is set by the loader at start."), *chatter]
    assert "magic_constant is set" not in "\n".join(_extract(messages, 200).fields.values())
    assert "magic_constant" in "\n".join(_extract(messages, 200, focus="magic_constant").fields.values())


def test_compressing_twice_keeps_what_the_first_summary_held() -> None:
    first = _extract(SESSION, 800)
    later = [
        message
        for number in range(40)
        for message in (
            _call("Bash", f"c{number}", command=f"make target_{number}"),
            _result(f"c{number}", f"built obj_{number}.o"),
        )
    ]
    sources = _sources(later, first=len(SESSION))
    second = extract(SummaryRequest(sources, first, 800, COUNTER))
    text = "\n".join(second.fields.values())
    assert SESSION[0]["content"] in second.fields["task_overview"]
    assert all(name in text for name in ("/home/me/app/store.py", "config/prod.yaml", "APP-231", "target_39"))
    assert "[transcript.md:1-9]" in text


def test_an_error_of_the_last_summary_is_left_out_after_a_later_success() -> None:
    first = _extract(SESSION, 800)
    later = _sources(
        [_call("Bash", "9", command="terraform plan"), _result("9", "Success: no issues found")], first=len(SESSION)
    )
    found = extract(SummaryRequest(later, first, 800, COUNTER)).fields["important_discoveries"]
    assert "terraform plan" not in found


def test_a_newer_plan_replaces_the_older_one() -> None:
    first = _extract(SESSION, 800)
    plan = _call("TodoWrite", "9", todos=[{"content": "Ship it", "status": "pending"}])
    later = _sources([plan, _result("9", "ok")], first=len(SESSION))
    steps = extract(SummaryRequest(later, first, 800, COUNTER)).fields["next_steps"]
    assert "Ship it" in steps
    assert "Write the changelog" not in steps


def test_a_models_summary_is_carried_on_sentence_by_sentence_with_its_pointers() -> None:
    previous = Draft(
        "model",
        {
            "task_overview": "The user wants the parser ported. [transcript.md:1-4]",
            "next_steps": "- Port lexer.c first. [transcript.md:7] [transcript.md:9-11]\n- Then the tests.",
        },
    )
    draft = extract(SummaryRequest(_sources([_said("user", "go on")], first=9), previous, 600, COUNTER))
    assert "The user wants the parser ported. [transcript.md:1-4]" in draft.fields["task_overview"]
    assert "Port lexer.c first. [transcript.md:7,9-11]" in draft.fields["next_steps"]
    assert "Then the tests." in draft.fields["next_steps"]


async def test_the_async_method_gives_the_same_draft() -> None:
    request = SummaryRequest(_sources(SESSION), None, 500, COUNTER)
    assert await Extractive().summarize(request) == extract(request)


WORDS = st.sampled_from(
    [
        *(
            "fix",
            "the",
            "Test_A1",
            "app/main.py",
            "错误\uff1a无",
            "文件。",
            "ValueError: no",
            '"quoted',
            "`x",
            "12,345",
        ),
        *("error: bad thing", "v1.2.3", "c2b0273", "\n", "done.", "\x1b[1m", "a/b", "…", "→", "“", "https://e.x/a?b"),
        *("[transcript.md:1-2]", "x" * 90, "\u00b7", "if err != nil {", "Exit code 1"),
    ]
)
TEXTS = st.lists(WORDS, max_size=12).map(" ".join) | st.text(max_size=60)
ARGUMENTS = st.dictionaries(
    st.sampled_from(["command", "path", "content", "query", "todos"]), TEXTS | st.just([{"a": "b", "status": "c"}])
)


@st.composite
def conversations(draw: st.DrawFn) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for number in range(draw(st.integers(1, 8))):
        match draw(st.sampled_from(["user", "assistant", "call"])):
            case "call":
                messages.append(
                    _call(draw(st.sampled_from(["Bash", "edit", "Read", "book"])), str(number), **draw(ARGUMENTS))
                )
                if draw(st.booleans()):
                    messages.append(_result(str(number), draw(TEXTS)))
            case role:
                messages.append(_said(role, draw(TEXTS)))
    return messages


FIELD_SETS = st.sampled_from([FIELDS, ("next_steps", "context_to_preserve"), ("story",), ("task_overview", "notes")])


def _known(sources: Sequence[SourceMessage], previous: Draft | None = None) -> set[Pointer]:
    carried = () if previous is None else previous.items
    work = None if previous is None or previous.work is None else previous.work.to_json()
    return {
        *(source.pointer for source in sources if source.pointer),
        *(pointer for item in carried for pointer in item.pointers),
        *_pointers_in(work),
    }


def _pointers_in(value: object) -> Iterator[Pointer]:
    """Yield the pointers in the JSON of a state."""
    match value:
        case {"path": str(path), "start": int(start), "end": int(end)}:
            yield Pointer(path, start, end)
        case dict():
            yield from (pointer for part in value.values() for pointer in _pointers_in(part))
        case list():
            yield from (pointer for part in value for pointer in _pointers_in(part))
        case _:
            pass


PATHS = frozenset({*FILE_KINDS, "path"})
"""Their directories may be named once, as the root of a tree."""


def _is_sound(draft: Draft, max_tokens: int, known: set[Pointer]) -> None:
    text = "\n".join(draft.fields.values())
    assert _tokens(draft) <= max_tokens
    assert len(set(draft.pointers)) == len(draft.pointers)
    starts = {(pointer.path, pointer.start) for pointer in known}
    ends = {(pointer.path, pointer.end) for pointer in known}
    assert {(pointer.path, pointer.start) for pointer in draft.pointers} <= starts
    assert {(pointer.path, pointer.end) for pointer in draft.pointers} <= ends
    assert set(draft.pointers) <= set(pointers_in(text))
    # The task may be cut, and what another sentence says may go on there.
    shown = [item for item in draft.items if item.is_shown and item.kind != "task"]
    said = [item.text.removesuffix(CUT).rstrip() for item in shown if item.kind not in PATHS]
    said += [item.text.rpartition("/")[2] for item in shown if item.kind in PATHS]
    # Several records on a line name their tool once.
    records = {
        item.text.removesuffix(CUT).rstrip(): item.text.partition(": ")[2] for item in shown if item.kind == "record"
    }
    said = [records.get(words, words).removesuffix(CUT).rstrip() for words in said]
    assert [words for words in said if words not in text] == []


def test_all_that_is_open_in_the_plan_is_said_in_its_order_even_in_a_small_summary() -> None:
    steps = ["Chart the shoals", "Dredge the inlet", "Move the buoys", "Tell the pilots"]
    todos = [{"content": step, "status": "pending" if at else "in_progress"} for at, step in enumerate(steps)]
    messages = [
        _said("user", "Make the harbour safe for ships of nine metres. " * 8),
        _call("todo_write", "1", todos=todos),
        _result("1", "ok"),
        *(_said("assistant", f"I found that the pier at berth {n} is {n + 3} metres deep. " * 4) for n in range(20)),
        *(_call("write_file", f"w{n}", path=f"charts/berth_{n}.txt", content="deep") for n in range(20)),
    ]
    said = _extract(messages, 250).fields["next_steps"]
    places = [said.find(step) for step in steps]
    assert -1 not in places
    assert places == sorted(places)


@given(conversations(), st.integers(0, 700), FIELD_SETS)
def test_a_summary_keeps_its_budget_and_its_pointers(
    messages: list[dict[str, Any]], max_tokens: int, fields: tuple[str, ...]
) -> None:
    request = SummaryRequest(_sources(messages), None, max_tokens, COUNTER, fields)
    draft = extract(request)
    assert list(draft.fields) == list(fields)
    _is_sound(draft, max_tokens, _known(request.sources))
    assert extract(request) == draft


@given(conversations(), conversations(), st.integers(0, 400))
def test_a_second_summary_keeps_its_budget_and_points_to_what_either_had(
    messages: list[dict[str, Any]], later: list[dict[str, Any]], max_tokens: int
) -> None:
    first = extract(SummaryRequest(_sources(messages), None, max_tokens, COUNTER))
    sources = _sources(later, first=len(messages))
    second = extract(SummaryRequest(sources, first, max_tokens, COUNTER))
    _is_sound(second, max_tokens, _known(sources, first))


LONG_WORDS: list[dict[str, Any]] = [
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "Bash", "arguments": json.dumps({"command": words})}}
        ],
    }
    for words in ["错误\uff1a无 fix fix fix fix fix fix c2b0273 c2b0273", "错误\uff1a" + "c2b0273" * 9]
]
"""Commands without a program, whose first 40 characters end within a word."""


ODD_MARKS: dict[str, Any] = _call("note", "c1", title='say "Error: no such file', content='"quoted and more')
"""A call without a result: the quotation marks of two arguments look like one pair."""


@example([{"role": "user", "content": "fix it"}, ODD_MARKS], 700)
@example([LONG_WORDS[0], {"role": "tool", "tool_call_id": "c1", "content": "fix 错误\uff1a无"}], 47)
@example([LONG_WORDS[1], {"role": "tool", "tool_call_id": "c1", "content": "fix 错误\uff1a无"}], 90)
@example([{"role": "user", "content": "0"}, {"role": "user", "content": "fix fix fix fix c2b0273"}], 30)
@given(conversations(), st.integers(30, 700))
def test_a_summary_claims_nothing_that_was_not_said(messages: list[dict[str, Any]], max_tokens: int) -> None:
    draft = _extract(messages, max_tokens)
    known = [_spoken(source.message) for source in _sources(messages)]
    json_texts = [json.dumps(message, ensure_ascii=False) for message in messages]
    assert unverified("\n".join(draft.fields.values()), [*known, *json_texts]) == ()


def test_a_counter_that_does_not_add_up_still_bounds_the_summary() -> None:
    counter = as_text_counter(lambda text: len(text) if len(text) < 300 else 3 * len(text))
    draft = extract(SummaryRequest(_sources(SESSION), None, 900, counter))
    assert sum(counter.count(text) for text in draft.fields.values() if text) <= 900
    assert "Please fix" in draft.fields["task_overview"]


def _recorded(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


@each_third
def test_recorded_sessions_are_summarised_within_the_budget_and_without_false_claims(
    shared_data: Path, first: int
) -> None:
    for path in sorted((shared_data / "sessions").glob("*.jsonl"))[::4][first - 1 :: STEP]:
        messages = _recorded(path)
        borders = [0, len(messages) // 2, len(messages)]
        previous: Draft | None = None
        known: list[str] = []
        for start, end in pairwise(borders):
            sources = _sources(messages[start:end], first=start)
            request = SummaryRequest(sources, previous, 1_500, COUNTER)
            draft = extract(request)
            _is_sound(draft, 1_500, _known(sources, previous))
            known += [_spoken(source.message) for source in sources]
            assert unverified("\n".join(draft.fields.values()), known) == ()
            previous = draft


@given(st.integers(0, 60))
def test_a_task_that_had_no_room_is_quoted_whole_once_there_is_some(max_tokens: int) -> None:
    cramped = _extract(SESSION, max_tokens)
    sources = _sources([_said("assistant", "I go on."), _said("user", "Go on.")], first=len(SESSION))
    draft = extract(SummaryRequest(sources, cramped, 1_000, COUNTER))
    assert "Please fix the failing test in app/store.py, and never touch the file config/prod.yaml." in (
        draft.fields["task_overview"].replace("\u201c", "").replace("\u201d", "")
    )


def test_tables_and_code_are_left_out_of_what_was_reported() -> None:
    answer = (
        "Both are done:\n\n| id | state |\n|---|---|\n| 7 | done |\n\n```py\nrun_all()\n```\nTell me when to release."
    )
    messages = [_said("user", "go"), _said("assistant", answer), _said("user", "Wait.")]
    reported = next(line for line in _extract(messages).fields["current_state"].splitlines() if "Reported" in line)
    assert "Both are done:" in reported
    assert "Tell me when to release." in reported
    assert "|" not in reported
    assert "run_all" not in reported


def test_the_newest_short_requests_stand_whole_behind_a_long_first_one() -> None:
    """Also those of two sentences, which stood apart among the rules where the overview had no room for both."""
    plan = "Chart the harbour by this plan. " + " ".join(f"Step {n}: sound berth {n} at low tide." for n in range(60))
    newest = [
        "It does not clear the buoys outside the harbour, it only checks the inner ones. Mind those at the mole.",
        "You are not just agreeing with me, or fond of the chart that we have drawn? Say it plainly.",
        "And the tide tables, in order as well?",
    ]
    messages = [_said("user", plan)]
    for number in range(12):
        messages += [
            _said("user", f"Sound the depth near pier_{number}/north.log, and compare it with /srv/d{number}.")
        ]
        messages += [_said("assistant", f"Done: the log names buoy_{number}_a at 4{number}7 cm, as the chart does.")]
    for number, text in enumerate(newest):
        messages += [_said("user", text), _call("Bash", str(number), command=f"chart --list {number}")]
        messages += [_result(str(number), "ok"), _said("assistant", f"That is checked now, see note_{number}.")]
    overview = _extract(messages, 700).fields["task_overview"]
    assert [text for text in newest if f"“{text}”" not in overview] == []


# Plans and questions.


def test_numbers_in_brackets_are_references_and_no_boxes_to_tick() -> None:
    draft = _extract([_said("user", "go"), _said("assistant", "Sources:\n- [1] Smith on stores\n- [2] Jones on both")])
    assert draft.work is not None
    assert draft.work.plan == ()


# Several summaries, one after the other.


def _did(call_id: str, name: str, result: str, words: str | None = None, **arguments: object) -> list[dict[str, Any]]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"id": call_id, "type": "function", "function": function}
    return [
        {"role": "assistant", "content": words, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call_id, "content": result},
    ]


def _run(call_id: str, command: str, result: str) -> list[dict[str, Any]]:
    return _did(call_id, "Bash", result, command=command)


def _summaries(*parts: Sequence[dict[str, Any]], max_tokens: int = 900) -> Draft:
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


TASK = _said("user", "Make the release build of app/store.py pass.")


def test_a_next_step_that_was_done_since_is_no_longer_named() -> None:
    asked = [TASK, _said("assistant", "Fixed load_row as you said.\n\nShall I also rename save_row in app/store.py?")]
    assert "Shall I also rename" in _summaries(asked).fields["next_steps"]
    later = [_said("user", "No, leave it as it is."), *_run("1", "make", "built")]
    assert "Shall I also rename" not in "\n".join(_summaries(asked, later).fields.values())


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


def test_what_the_user_ends_every_message_with_was_made_by_a_program() -> None:
    shown = [
        _said("user", f"listing {number} of the directory\n(Current directory: /repo)\nbash-$") for number in range(4)
    ]
    text = "\n".join(_summaries([TASK, *shown, _said("assistant", "It has four files.")]).fields.values())
    assert "bash-$”" not in text
    assert "listing 3" not in text


def _fields(messages: list[dict[str, Any]], max_tokens: int = 700) -> dict[str, str]:
    sources = [
        SourceMessage(index, detect(message).view(message), Pointer("transcript.md", 10 * index + 1, 10 * index + 9))
        for index, message in enumerate(messages)
    ]
    return dict(extract(SummaryRequest(sources, None, max_tokens, COUNTER)).fields)


def test_a_record_names_the_tool_that_returned_it() -> None:
    rows = json.dumps([{"flight": "HAT136", "seats": 9}, {"flight": "HAT039", "seats": 4}])
    found = _fields(
        [_said("user", "Which flights are there?"), _call("get_flights", "1", day="20 May"), _result("1", rows)]
    )
    assert "get_flights: flight HAT136, seats 9" in found["important_discoveries"]


def test_what_a_later_result_says_of_a_record_replaces_the_earlier_one() -> None:
    before, after = (
        {"booking_id": "AB12", "status": status, "seat": seat} for status, seat in (("held", 4), ("paid", 9))
    )
    asked = [_said("user", "Pay booking AB12."), _call("get_booking", "1", id="AB12"), _result("1", json.dumps(before))]
    found = _fields([*asked, _call("pay", "2", id="AB12"), _result("2", json.dumps(after))])
    assert "pay: booking_id AB12, status paid, seat 9" in found["important_discoveries"]
    assert "status held" not in "\n".join(found.values())


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


def test_commands_that_only_look_share_a_line() -> None:
    looks = [
        message
        for number in range(9)
        for message in (_call("Bash", f"c{number}", command=f"cat part_{number}.py"), _result(f"c{number}", "x = 1"))
    ]
    state = _fields([_said("user", "Read the parts."), *looks])["current_state"]
    assert "Looked at: `cat part_8.py`, `cat part_7.py`" in state
    assert state.count("cat part_") == state.splitlines()[-1].count("cat part_")
