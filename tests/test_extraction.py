"""Summaries without a model: what they say of a session, in which words, and within which tokens."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from thirds import STEP, each_third

from buoyline.compression import Draft, Pointer, SourceMessage, SummaryRequest
from buoyline.compression.extractive.choose import Extractive, extract
from buoyline.compression.extractive.user import bans, is_made
from buoyline.compression.summary import FIELDS
from buoyline.compression.text import POINTER, pointers_in
from buoyline.messages.registry import detect
from buoyline.tokens import as_text_counter, default_counter

COUNTER = default_counter()


def _call(name: str, call_id: str, **arguments: object) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
    call = {"id": call_id, "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def _said(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}


def _result(call_id: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def _run(call_id: str, command: str, output: str) -> list[dict[str, Any]]:
    return [_call("bash", call_id, command=command), _result(call_id, output)]


def _sources(messages: Sequence[dict[str, Any]], first: int = 0) -> list[SourceMessage]:
    return [
        SourceMessage(index, detect(message).view(message), Pointer("transcript.md", 10 * index + 1, 10 * index + 9))
        for index, message in enumerate(messages, first)
    ]


def _extract(messages: Sequence[dict[str, Any]], max_tokens: int = 1_000, **kwargs: Any) -> Draft:
    return extract(SummaryRequest(_sources(messages), None, max_tokens, COUNTER, **kwargs))


def _after(*parts: Sequence[dict[str, Any]], max_tokens: int = 900) -> Draft:
    """Return the last of the summaries of these parts of a session, each of which replaces the one before."""
    draft, first = None, 0
    for part in parts:
        draft = extract(SummaryRequest(_sources(part, first), draft, max_tokens, COUNTER))
        first += len(part)
    assert draft is not None
    return draft


def _text(draft: Draft) -> str:
    return "\n".join(draft.fields.values())


def _tokens(draft: Draft) -> int:
    return sum(COUNTER.count(text) for text in draft.fields.values() if text)


SESSION = [
    _said("user", "Please fix the failing test in app/store.py, and never touch the file config/prod.yaml."),
    _call("Read", "1", file_path="/home/me/app/store.py"),
    _result("1", "def load_row(key):\n    return ROWS[key]\n"),
    *_run(
        "2", "pytest -q tests/test_store.py", "FAILED test_store.py::test_load - KeyError: 'k_17'\n1 failed, 3 passed"
    ),
    _call("Edit", "3", file_path="/home/me/app/store.py", old_string="ROWS[key]", new_string="ROWS.get(key)"),
    _result("3", "The file has been updated."),
    *_run("4", "pytest -q tests/test_store.py", "4 passed in 0.10s"),
    *_run("5", "mypy app", "app/store.py:3: error: Missing return type\nFound 1 error in 1 file\nexit code 1"),
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
        "assistant", "The test passes now, since load_row returns None for a missing key.\n\nShall I change save_row?"
    ),
]


def test_each_field_says_what_it_is_for() -> None:
    fields = _extract(SESSION).fields
    assert re.findall("“(Please fix|Use Row)", fields["task_overview"]) == ["Please fix", "Use Row"]
    assert "Changed: /home/me/app/store.py" in fields["current_state"]
    assert "`ROWS[key]` → `ROWS.get(key)`" in fields["current_state"]
    assert "`pytest -q tests/test_store.py` passed (4 passed in 0.10s)" in fields["current_state"]
    assert "`mypy app` failed: app/store.py:3: error: Missing return type" in fields["current_state"]
    assert "The agent asked: “Shall I change save_row?”" in fields["current_state"]
    assert "(completed) Fix load_row" in fields["current_state"]
    assert fields["next_steps"].index("(in_progress) Add a return type") < fields["next_steps"].index("(pending) Write")
    assert "never touch the file config/prod.yaml" in fields["task_overview"]


def test_no_line_is_without_words_or_without_a_citation() -> None:
    for line in filter(None, _text(_extract(SESSION)).splitlines()):
        assert POINTER.search(line), line
        assert re.search(r"[a-z]{3}", POINTER.sub("", line)), line


def test_nothing_is_said_to_be_resolved_or_next_that_nobody_said() -> None:
    calm = [*SESSION[:5], _said("assistant", "I look at the log of the port. Next I would dredge the inlet.")]
    draft = _extract(calm)
    assert "resolved" not in _text(draft).lower()
    assert draft.fields["next_steps"] == ""


def test_an_open_request_is_next_until_it_is_answered() -> None:
    asked = [*SESSION, _said("user", "Now rename the module to rows.py.")]
    assert "Last request: “Now rename the module to rows.py.”" in _extract(asked).fields["next_steps"]
    answered = _after(asked, [_said("assistant", "The module has the name rows.py since a minute ago, all is done.")])
    assert "rows.py.”" in answered.fields["task_overview"]
    assert "Last request" not in _text(answered)


@pytest.mark.parametrize(
    "said",
    [
        "FAILED a.py::b - x\n=============== 6 failed, 90 passed in 1.84s ===============",
        "=============== 3 passed, 1 error in 0.12s ===============",
        "--- FAIL: TestQuay (0.00s)\nFAIL\nFAIL\tquay/a\t0.004s\nok  \tquay/b\t0.003s\nFAIL",
        "ok 1 - a\nnot ok 2 - b\n# tests 2\n# 1 failed",
        "[ERROR] Tests run: 5, Failures: 1, Errors: 0, Skipped: 0\n[INFO] BUILD FAILURE",
        "Tests:       1 failed, 12 passed, 13 total",
        "  11 passing (20ms)\n  2 failing",
        "test result: FAILED. 3 passed; 1 failed; 0 ignored",
    ],
)
def test_a_run_with_a_failed_test_is_never_said_to_have_passed(said: str) -> None:
    text = _text(_after(SESSION[:1], _run("1", "make test", f"collecting\n{said}\n")))
    assert "`make test` failed" in text
    assert "passed (" not in text


@pytest.mark.parametrize("said", ["====== 90 passed in 1.84s ======", "test result: ok. 4 passed; 0 failed; 0 ignored"])
def test_a_run_without_a_failed_test_has_passed(said: str) -> None:
    assert "`make test` passed" in _text(_after(SESSION[:1], _run("1", "make test", said)))


def test_a_later_run_of_a_check_replaces_the_earlier_one_also_of_the_last_summary() -> None:
    failed = [*SESSION[:1], *_run("1", "make test", "FAILED test_quay\n1 failed, 2 passed")]
    assert "`make test` failed" in _text(_after(failed))
    passed = _after(failed, _run("2", "make test", "3 passed"))
    assert "failed" not in _text(passed)
    assert "`make test` passed (3 passed)" in _text(passed)


def test_a_check_is_said_to_be_older_than_a_change() -> None:
    change = [_call("write", "2", path="app/quay.py", content="DEPTH = 9\n"), _result("2", "ok")]
    text = _text(_after([*SESSION[:1], *_run("1", "make test", "3 passed"), *change]))
    assert "`make test` passed (3 passed); before the changes of quay.py" in text
    text = _text(_after([*SESSION[:1], *_run("1", "make test", "3 passed")], change))
    assert "`make test` passed (3 passed); before the changes of quay.py" in text


def test_of_several_commands_that_failed_none_is_blamed_alone() -> None:
    text = _text(_extract([*SESSION[:1], *_run("1", "make build && make test", "make: *** [build] Error 2")]))
    assert "`make build && make test` failed" in text


def test_commits_are_named_with_what_changed_since() -> None:
    commit = _run("1", "git commit -am 'Sound the quay'", "[main 1a2b3c4] Sound the quay\n 1 file changed")
    change = [_call("write", "2", path="app/quay.py", content="DEPTH = 9\n"), _result("2", "ok")]
    text = _text(_extract([*SESSION[:1], *commit, *change]))
    assert "Branch `main`; committed `1a2b3c4` Sound the quay; so far not pushed, and quay.py changed since" in text
    assert "so far" not in _text(_after([*SESSION[:1], *commit], change))


def test_a_failed_call_is_quoted_once() -> None:
    calls = [one for at in range(3) for one in (_call("fetch", f"{at}", url="x"), _result(f"{at}", "Error: no route"))]
    assert _text(_extract([*SESSION[:1], *calls])).count("Error: no route") == 1


@pytest.mark.parametrize("answer", ["The user rejected this tool call. The user said: write a test first", "x"])
def test_a_call_that_the_user_refused_is_no_change(answer: str) -> None:
    messages = [*SESSION[:1], _call("write", "1", path="app/quay.py", content="DEPTH = 9\n"), _result("1", answer)]
    text = _text(_extract(messages))
    assert ("“write a test first” (refusing:" in text) is (answer != "x")
    assert ("Changed: app/quay.py" in text) is (answer == "x")


def test_the_blocks_of_a_harness_are_no_words_of_the_user() -> None:
    files = "\n".join(f"src/part_{number}.py" for number in range(80))
    texts = [
        f"<task>Sound the quay.</task>\n<environment_details>\n{files}\n</environment_details>",
        f"<system-reminder>\nnever read {files}\n</system-reminder>\n<feedback>Note each depth.</feedback>",
        f"<system-reminder>\n{files}\n</system-reminder>\nBuoy the wreck.\n<open-files>{files}</open-files>",
        "<command-name>/compact</command-name>",
        "[Request interrupted by user]",
    ]
    messages = [one for text in texts for one in (_said("user", text), _said("assistant", "I sound it now, quietly."))]
    fields = _extract(messages).fields
    assert re.findall("“(.*?)”", fields["task_overview"]) == ["Sound the quay.", "Note each depth.", "Buoy the wreck."]
    assert "part_" not in _text(_extract(messages))
    assert fields["context_to_preserve"] == ""


def test_a_short_answer_is_read_behind_its_question() -> None:
    messages = [*SESSION[:1], _said("assistant", "It fails. Shall I push?"), _said("user", "No."), *SESSION[1:3]]
    assert "“Shall I push?” \u2013 “No.”" in _extract(messages).fields["task_overview"]


CHECKLISTS: dict[str, Any] = {
    "objects": [{"task": "Sound the quay", "done": True}, {"task": "Dredge the inlet", "done": False}],
    "boxes": "- [x] Sound the quay\n- [ ] Dredge the inlet",
    "JSON in a text": json.dumps(
        [{"title": "Sound the quay", "state": "done"}, {"title": "Dredge the inlet", "state": ""}]
    ),
}


@pytest.mark.parametrize("form", CHECKLISTS)
def test_the_newest_checklist_in_arguments_is_the_plan(form: str) -> None:
    old = _call("plan", "1", todos=[{"task": "Chart the bay", "done": False}, {"task": "Sail", "done": False}])
    new = _call("plan", "2", todos=CHECKLISTS[form])
    before, after = [*SESSION[:1], old, _result("1", "ok")], [new, _result("2", "ok")]
    for draft in (_after(before, after), _extract([*before, *after])):
        assert "(done) Sound the quay" in draft.fields["current_state"]
        assert "Dredge the inlet" in draft.fields["next_steps"]
        assert "Chart the bay" not in _text(draft)


def test_a_task_for_each_call_is_a_plan() -> None:
    calls = [
        _call("TaskCreate", "1", subject="Sound the quay", description="…"),
        _result("1", "Task #1 created successfully"),
        _call("TaskCreate", "2", subject="Dredge the inlet", description="…"),
        _result("2", "Task #2 created successfully"),
        _call("TaskUpdate", "3", taskId="1", status="completed"),
        _result("3", "Updated task #1"),
    ]
    fields = _extract([*SESSION[:1], *calls]).fields
    assert "(completed) Sound the quay" in fields["current_state"]
    assert "(pending) Dredge the inlet" in fields["next_steps"]


def test_records_keep_their_keys_and_the_newest_of_each_counts() -> None:
    def asked(call_id: str, state: str) -> list[dict[str, Any]]:
        record = {"id": "R7", "state": state, "link": "https://e.x/a", "crew": [{"name": "Mo"}, {"name": "Al"}]}
        return [_call("get_berth", call_id, id="R7"), _result(call_id, json.dumps({"berth": record}))]

    text = _text(_after([*SESSION[:1], *asked("1", "free")], asked("2", "taken")))
    assert "get_berth: berth: id R7, state taken, crew Mo; Al" in text
    assert "free" not in text


def test_people_are_quoted_in_their_language() -> None:
    messages = [
        _said("user", "请把港口的深度图更新一下\uff0c不要修改 config/port.yaml。"),
        *_run("1", "make test", "3 passed"),
        _said("assistant", "深度图已经更新\uff0c测试全部通过。七号码头的深度是九米\uff0c所以大船可以停靠。"),
    ]
    fields = _extract(messages).fields
    assert "请把港口的深度图更新一下" in fields["task_overview"]
    assert "七号码头的深度是九米" in _text(_extract(messages))


def test_what_the_caller_wants_kept_comes_first() -> None:
    talk = [_said("assistant", f"The pier of berth {at} is {at + 3} metres deep at low tide.") for at in range(40)]
    wanted = _said("assistant", "The lighthouse keeper answers on channel twelve only.")
    messages = [*SESSION[:1], wanted, *talk]
    assert "channel twelve" not in _text(_extract(messages, 120))
    assert "channel twelve" in _text(_extract(messages, 120, focus="the lighthouse"))


def test_a_models_summary_is_carried_on_line_by_line() -> None:
    said = "The inlet silts up in spring. [transcript.md:4-5]"
    previous = Draft("a model", dict.fromkeys(FIELDS, "") | {"important_discoveries": said})
    draft = extract(SummaryRequest(_sources(SESSION, 20), previous, 900, COUNTER))
    assert f"- {said}" in draft.fields["important_discoveries"]


def test_own_fields_get_what_no_field_of_the_five_takes() -> None:
    draft = _extract(SESSION, fields=("story",))
    assert "Please fix" in draft.fields["story"]
    assert "4 passed" in draft.fields["story"]
    draft = _extract(SESSION, fields=("task_overview", "notes"))
    assert "Please fix" in draft.fields["task_overview"]
    assert "4 passed" in draft.fields["notes"]


# Tokens, determinism, hostile texts.


@pytest.mark.parametrize("max_tokens", [24, 60, 180])
def test_even_a_tiny_budget_keeps_the_beginning_of_the_task(max_tokens: int) -> None:
    long = _said("user", "Please fix the failing test, " + "and look at each of its rows " * 200)
    draft = _extract([long, *SESSION[1:]], max_tokens)
    assert "Please fix" in draft.fields["task_overview"]
    assert _tokens(draft) <= max_tokens


def test_a_counter_that_does_not_add_up_still_bounds_the_summary() -> None:
    counter = as_text_counter(lambda text: len(text) if len(text) < 300 else 3 * len(text))
    draft = extract(SummaryRequest(_sources(SESSION), None, 900, counter))
    assert sum(counter.count(text) for text in draft.fields.values() if text) <= 900
    assert "Please fix" in draft.fields["task_overview"]


WORDS = st.sampled_from(
    [
        *("fix", "不要", "never", "done.", "Error:", "FAILED", "1 failed", "3 passed", "Exit code 1", "[x]", "- [ ]"),
        *("a_b", "app/main.py", "`x", '"quoted', "12,345", "c2b0273", "\n", "\x1b[1m", "…", "→", "“", "”", "\u00b7"),
        *("[transcript.md:1-2]", "x" * 90, "if err != nil {", "<a_b>", "</a_b>", "{", "https://e.x/a?b", "?"),
    ]
)
TEXTS = st.lists(WORDS, max_size=12).map(" ".join) | st.text(max_size=60)
ARGUMENTS = st.dictionaries(
    st.sampled_from(["command", "path", "content", "new_string", "query", "todos"]),
    TEXTS | st.just([{"task": "b", "status": "c"}] * 2),
)


@st.composite
def conversations(draw: st.DrawFn) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for number in range(draw(st.integers(1, 8))):
        match draw(st.sampled_from(["user", "assistant", "call"])):
            case "call":
                name = draw(st.sampled_from(["Bash", "edit", "Read", "book"]))
                messages.append(_call(name, str(number), **draw(ARGUMENTS)))
                if draw(st.booleans()):
                    messages.append(_result(str(number), draw(TEXTS)))
            case role:
                messages.append(_said(role, draw(TEXTS)))
    return messages


FIELD_SETS = st.sampled_from([FIELDS, ("next_steps", "context_to_preserve"), ("story",), ("task_overview", "notes")])


@given(conversations(), conversations(), st.integers(0, 700), FIELD_SETS)
def test_a_summary_keeps_its_budget_and_cites_what_it_or_the_last_one_had(
    messages: list[dict[str, Any]], later: list[dict[str, Any]], max_tokens: int, fields: tuple[str, ...]
) -> None:
    previous, held = None, set[Pointer]()
    for first, part in ((0, messages), (len(messages), later)):
        request = SummaryRequest(_sources(part, first), previous, max_tokens, COUNTER, fields)
        draft = extract(request)
        assert extract(request) == draft
        assert list(draft.fields) == list(fields)
        assert _tokens(draft) <= max_tokens
        held |= {source.pointer for source in request.sources if source.pointer}
        own = {pointer for fact in draft.facts for pointer in fact.pointers}
        assert {pointer.start for pointer in own} <= {pointer.start for pointer in held}
        assert {pointer.end for pointer in own} <= {pointer.end for pointer in held}
        previous = draft


_DRAFT = """
import json, pathlib, sys
from buoyline.messages.registry import detect
from buoyline.compression import Pointer, SourceMessage, SummaryRequest
from buoyline.compression.extractive.choose import extract
from buoyline.tokens import default_counter

messages = json.loads(pathlib.Path(sys.argv[1]).read_text())
sources = [SourceMessage(n, detect(m).view(m), Pointer("transcript.md", n + 1, n + 1)) for n, m in enumerate(messages)]
print(ascii(extract(SummaryRequest(sources, None, 900, default_counter()))))
"""


def test_another_process_gives_the_same_draft(tmp_path: Path) -> None:
    (tmp_path / "messages.json").write_text(json.dumps(SESSION))
    command = [sys.executable, "-c", _DRAFT, str(tmp_path / "messages.json")]
    drafts = [
        subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": seed}, check=True, capture_output=True).stdout
        for seed in ("1", "2")
    ]
    assert drafts[0] == drafts[1]
    assert b"Please fix" in drafts[0]


async def test_the_async_method_gives_the_same_draft() -> None:
    request = SummaryRequest(_sources(SESSION), None, 500, COUNTER)
    assert await Extractive().summarize(request) == extract(request)


@each_third
def test_recorded_sessions_are_summarized_within_the_budget(shared_data: Path, first: int) -> None:
    paths = sorted((shared_data / "sessions").glob("*.jsonl"))[first - 1 :: STEP]
    assert paths
    for path in paths:
        messages = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        for max_tokens in (300, 1_500):
            draft = _extract(messages, max_tokens)
            assert _tokens(draft) <= max_tokens, path.name
            assert set(draft.pointers) == {*pointers_in(_text(draft))}


HOSTILE = {
    "quotes": "\"'`" * 60_000,
    "brackets": "[{(<" * 50_000,
    "blanks": " \t" * 80_000 + "x",
    "signs": "&& ; | > " * 20_000,
    "dots": "a." * 90_000,
    "digits": "1,234." * 30_000,
    "lines": "[x] \n" * 30_000,
    "errors": "Error: no such file\n" * 8_000,
    "words": "was " * 40_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_text_anywhere_takes_no_longer_than_any_other(name: str) -> None:
    """The time-out of the suite ends it if an expression goes back and forth."""
    text = HOSTILE[name]
    draft = _extract(
        [
            _said("user", text),
            _said("assistant", text),
            *_run("1", text, text),
            _call("edit", "2", path=text[:5_000], old_string=text, new_string=f"{text}!", todos=text),
            _result("2", text),
        ]
    )
    assert _tokens(draft) <= 1_000


@pytest.mark.parametrize(
    "said",
    ["I don't know why it fails.", "There are no issues with it.", "我特别喜欢这个区别。", "Nevertheless it works."],
)
def test_what_the_user_only_states_is_no_prohibition(said: str) -> None:
    assert [*bans(said)] == []


@pytest.mark.parametrize(
    "said", ["Don't touch quay.py.", "Never push.", "No toques quay.py.", "别动 quay.py。", "Do not push."]
)
def test_what_the_user_forbids_is_a_prohibition(said: str) -> None:
    assert [*bans(said)] == [said]


@pytest.mark.parametrize(
    "said", ["<title> must never be empty, and so is <h1>", "<div>Why does this not render?</div>"]
)
def test_words_of_a_user_about_html_are_the_users(said: str) -> None:
    assert not is_made(said)
    assert is_made(f"<system-reminder>{said}</system-reminder>")


def test_a_push_that_was_refused_is_in_the_summary() -> None:
    push = _run("1", "git push origin main", "! [rejected] main -> main (fetch first)\nerror: failed to push some refs")
    assert "`git push origin main` failed" in _text(_after(SESSION[:1], push))


def test_a_line_that_returns_a_number_is_no_exit_status() -> None:
    assert "failed" not in _text(_after(SESSION[:1], _run("1", "nl -ba quay.py", "def f():\n    return 42\n")))
