"""The state of the work, from messages alone: files, checks, version control, plans, questions and what is awaited."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buoyline.compression.extractive.checks import checks_in, is_wider, outcome_of
from buoyline.compression.extractive.files import files_in
from buoyline.compression.extractive.records import rows_of
from buoyline.compression.extractive.summarizer import extract
from buoyline.compression.extractive.work import work_of
from buoyline.compression.pointers import Pointer
from buoyline.compression.summary import SourceMessage, SummaryRequest
from buoyline.compression.work_state import (
    MAX_FILES,
    MAX_QUESTIONS,
    MAX_TEXT_CHARS,
    AwaitedCall,
    CheckState,
    FileState,
    PlanItem,
    QuestionState,
    RepositoryState,
    WorkState,
    work_state_from,
)
from buoyline.messages.registry import detect
from buoyline.tokens import default_counter


def called(call_id: str, name: str, **arguments: object) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
    }


def answered(call_id: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def said(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}


def ran(number: int, command: str, output: str) -> list[dict[str, Any]]:
    return [called(f"c{number}", "bash", command=command), answered(f"c{number}", output)]


def edited(number: int, path: str, old: str = "a", new: str = "b") -> list[dict[str, Any]]:
    arguments = {"file_path": path, "old_string": old, "new_string": new}
    return [called(f"c{number}", "Edit", **arguments), answered(f"c{number}", "The file was updated.")]


def sources_of(messages: Sequence[dict[str, Any]], first: int = 0) -> list[SourceMessage]:
    return [
        SourceMessage(index, detect(message).view(message), Pointer("transcript.md", 10 * index + 1, 10 * index + 9))
        for index, message in enumerate(messages, first)
    ]


def state_of(*messages: dict[str, Any]) -> WorkState:
    return work_of(sources_of(messages))


def summary_of(*messages: dict[str, Any], max_tokens: int = 800) -> str:
    return "\n".join(extract(SummaryRequest(sources_of(messages), None, max_tokens, default_counter())).fields.values())


# Files.


def test_a_file_is_created_changed_and_deleted_in_turn() -> None:
    wrote = [called("1", "Write", file_path="/r/a.py", content="x = 1\n"), answered("1", "File created")]
    state = state_of(*wrote, *edited(2, "/r/a.py", "x = 1", "x = 2"))
    assert (state.files["/r/a.py"].operation, state.files["/r/a.py"].changes) == ("created", 2)
    assert state.files["/r/a.py"].edit == "`x = 1` → `x = 2`"
    state = state_of(*wrote, *ran(3, "rm /r/a.py", ""))
    assert state.files["/r/a.py"].operation == "deleted"
    assert [pointer.start for pointer in state.files["/r/a.py"].pointers] == [21]


def test_a_file_that_was_read_and_then_changed_is_changed() -> None:
    read = [called("1", "Read", file_path="/r/a.py"), answered("1", "x = 1")]
    assert state_of(*read).changed_files == []
    assert [one.path for one in state_of(*read, *edited(2, "/r/a.py")).changed_files] == ["/r/a.py"]


def test_a_moved_file_is_known_under_both_names() -> None:
    state = state_of(*ran(1, "git mv old.py new.py", ""))
    assert {name: one.operation for name, one in state.files.items()} == {"old.py": "moved", "new.py": "created"}


def test_a_failed_change_changes_nothing() -> None:
    failed = [
        called("1", "Edit", file_path="/r/a.py", old_string="a", new_string="b"),
        answered("1", "Error: no match"),
    ]
    assert state_of(*failed).files == {}


@pytest.mark.parametrize(
    "answer",
    [
        "No replacement was performed, old_str `a` did not appear verbatim in /r/a.py.",
        "<tool_use_error>String to replace not found in file.</tool_use_error>",
        "Found 3 matches of the string to replace, but replace_all is false.",
        "No changes to make: old_string and new_string are exactly the same.",
        "File has not been read yet. Read it first before writing to it.",
        "Dry run: would write 3 lines",
    ],
)
def test_a_change_whose_answer_says_that_nothing_changed_changes_nothing(answer: str) -> None:
    call = called("1", "Edit", file_path="/r/a.py", old_string="a", new_string="b")
    state = state_of(call, answered("1", answer))
    assert state.changed_files == []
    assert "Changed" not in summary_of(said("user", "Fix a.py."), call, answered("1", answer))


@pytest.mark.parametrize("answer", ["The file was updated, no other file changed.", "a.py: 1 occurrence replaced"])
def test_a_change_whose_answer_names_others_that_did_not_change_is_a_change(answer: str) -> None:
    call = called("1", "Edit", file_path="/r/a.py", old_string="a", new_string="b")
    assert [one.path for one in state_of(call, answered("1", answer)).changed_files] == ["/r/a.py"]


@pytest.mark.parametrize(
    ("tool", "arguments", "operation"),
    [
        ("str_replace_editor", {"command": "view"}, "read"),
        ("str_replace_based_edit_tool", {"command": "view", "view_range": [1, 20]}, "read"),
        ("edit_file", {"mode": "read"}, "read"),
        ("str_replace_editor", {"command": "create", "file_text": "x = 1"}, "created"),
        ("str_replace_editor", {"command": "undo_edit"}, "changed"),
        ("memory", {"command": "delete"}, "deleted"),
        ("write_file", {"mode": "append", "content": "x"}, "created"),
        ("write_file", {"mode": "w", "content": "x"}, "created"),
    ],
)
def test_an_argument_says_which_of_a_tools_operations_is_meant(
    tool: str, arguments: dict[str, Any], operation: str
) -> None:
    state = state_of(called("1", tool, path="/r/a.py", **arguments), answered("1", "1\tx = 1"))
    assert state.files["/r/a.py"].operation == operation


def test_a_patch_creates_changes_and_deletes_files() -> None:
    patch = "*** Begin Patch\n*** Add File: c.py\n+x\n*** Update File: a.py\n-y\n*** Delete File: b.py\n*** End Patch"
    state = state_of(called("1", "apply_patch", input=patch), answered("1", "Success."))
    operations = {name: one.operation for name, one in state.files.items()}
    assert operations == {"c.py": "created", "a.py": "changed", "b.py": "deleted"}


@pytest.mark.parametrize(
    ("command", "operation"), [("rm -rf /r/legacy", "deleted"), ("cd /r && rm -r legacy/", "deleted")]
)
def test_the_files_of_a_deleted_directory_are_deleted(command: str, operation: str) -> None:
    state = state_of(*edited(1, "/r/legacy/a.py"), *edited(2, "/r/legacy2/b.py"), *ran(3, command, ""))
    assert state.files["/r/legacy/a.py"].operation == operation
    assert state.files["/r/legacy2/b.py"].operation == "changed"


def test_a_file_that_is_moved_into_a_directory_keeps_its_name() -> None:
    assert list(state_of(*ran(1, "mv keep.py lib/", "")).files) == ["lib/keep.py"]


@pytest.mark.parametrize(
    ("command", "changes"),
    [
        ("echo x > out.txt && touch b.txt", [("created", "out.txt"), ("created", "b.txt")]),
        ("cat a | tee b.log", [("created", "b.log")]),
        ("sed -i 's/a/b/' src/x.py", [("changed", "src/x.py")]),
        ("rm -rf build 2>/dev/null", [("deleted", "build")]),
        ("rm *.pyc", []),
        ("grep '>' a.txt", []),
        ("git commit -m 'rm old.py; touch new.py'", []),
        ("cat > a.py <<'EOF'\nrm b.py\nEOF", [("created", "a.py")]),
        ("make 2>&1 > /dev/null", []),
    ],
)
def test_a_command_changes_the_files_that_it_names(command: str, changes: list[tuple[str, str]]) -> None:
    assert [(change.operation, change.path) for change in files_in(command)] == changes


def test_an_absolute_and_a_relative_path_are_one_file_under_the_absolute_one() -> None:
    both = [*edited(1, "/home/me/repo/src/a.py"), *ran(2, "rm src/a.py", "")]
    assert {name: one.operation for name, one in state_of(*both).files.items()} == {"/home/me/repo/src/a.py": "deleted"}
    other_order = [*ran(1, "touch src/a.py", ""), *edited(2, "/home/me/repo/src/a.py")]
    assert list(state_of(*other_order).files) == ["/home/me/repo/src/a.py"]


def test_a_directory_that_a_command_enters_tells_files_of_one_name_apart() -> None:
    state = state_of(
        *edited(1, "/repo/a/go.mod"),
        *edited(2, "/repo/b/go.mod"),
        *ran(3, "cd /repo/b && rm go.mod", ""),
    )
    assert {name: one.operation for name, one in state.files.items()} == {
        "/repo/a/go.mod": "changed",
        "/repo/b/go.mod": "deleted",
    }


def test_no_path_is_stated_that_nobody_wrote() -> None:
    messages = [*ran(1, "cd /repo/pkg && touch new.py && cd .. && rm old.py", ""), *edited(3, "lib/c.py")]
    written = "\n".join(json.dumps(message) for message in messages)
    assert all(one.path in written for one in state_of(*messages).files.values())


def test_a_change_without_a_path_is_of_the_file_that_the_editor_shows() -> None:
    shown = "[File: /repo/a.py (9 lines total)]\n1:x\n(Open file: /repo/a.py)\n(Current directory: /repo)\nbash-$"
    state = state_of(called("1", "insert", text="x"), answered("1", shown))
    assert state.files["/repo/a.py"].operation == "changed"


def test_the_newest_content_of_a_read_file_is_where_its_result_is() -> None:
    state = state_of(called("1", "Read", file_path="/r/a.py"), answered("1", "x = 1"))
    assert state.files["/r/a.py"].content == Pointer("transcript.md", 11, 19)


# Checks.


def test_a_check_fails_and_passes_with_what_was_changed_in_between() -> None:
    failed = ran(1, "pytest -q", "FAILED tests/test_a.py::test_x - KeyError\n1 failed in 0.1s\nexit code 1")
    assert state_of(*failed).checks["pytest -q"].outcome == "fails"
    check = state_of(*failed, *edited(2, "/r/a.py"), *ran(3, "pytest -q", "4 passed in 0.1s")).checks["pytest -q"]
    assert (check.outcome, check.line, check.runs) == ("passes", "4 passed in 0.1s", 2)
    assert "KeyError" in check.failed_before
    assert check.changed_between == ("/r/a.py",)


def test_a_failing_check_names_several_failing_tests_and_none_within_another_one() -> None:
    output = """\
--- FAIL: TestFlow (0.00s)
    --- FAIL: TestFlow/manual (0.63s)
        flow_test.go:128: error: reference not found
--- FAIL: TestRewind (0.00s)
    --- FAIL: TestRewind/auto (0.44s)
--- FAIL: TestRewindTwice (0.00s)
exit code 1"""
    line = state_of(*ran(1, "go test ./...", output)).checks["go test ./..."].line
    assert line.split(" / ") == [
        "--- FAIL: TestFlow (0.00s)",
        "--- FAIL: TestRewind (0.00s)",
        "--- FAIL: TestRewindTwice (0.00s)",
        "flow_test.go:128: error: reference not found",
    ]
    files = "FAILED tests/test_a.py::test_x - KeyError\nFAILED tests/test_b.py::test_y - ValueError\n2 failed"
    assert "test_x" in state_of(*ran(1, "pytest -q", files)).checks["pytest -q"].line
    assert "test_y" in state_of(*ran(1, "pytest -q", files)).checks["pytest -q"].line


@pytest.mark.parametrize(
    ("output", "outcome"),
    [
        ("ok  \texample.com/a\t0.2s\nFAIL\nFAIL", "fails"),
        ("--- FAIL: TestA (0.00s)", "fails"),
        ("npm error command failed", "fails"),
        ("12 passed, 1 failed", "fails"),
        ("12 passed", "passes"),
        ("", "passes"),
        ("(no output)", "passes"),
        ("Waiting for the debugger to disconnect...", "ran"),
        ("Error in the bootloader\n\nCommand aborted", "ran"),
    ],
)
def test_a_check_passes_only_if_its_output_proves_it(output: str, outcome: str) -> None:
    assert state_of(*ran(1, "npm test", output)).checks["npm test"].outcome == outcome


def test_silence_behind_a_filter_proves_nothing_and_behind_head_it_does() -> None:
    assert state_of(*ran(1, "go build ./... | grep error", "")).checks["go build ./..."].outcome == "ran"
    assert state_of(*ran(1, "go build ./... 2>&1 | head -20", "")).checks["go build ./..."].outcome == "passes"


def test_a_separator_in_quotes_is_part_of_the_command() -> None:
    assert checks_in("go test ./... -run 'TestA|TestB' -v | tail -5") == ["go test ./... -run 'TestA|TestB' -v"]
    assert checks_in('cd /r && npm test -- -t "a; b && c"') == ['npm test -- -t "a; b && c"']
    assert checks_in("stat tests/out.json; ls test; cat build.log") == []


def test_a_failed_check_is_resolved_by_a_wider_one_and_not_by_a_narrower_one() -> None:
    failed = ran(1, "pytest tests/test_a.py", "FAILED tests/test_a.py::test_x\nexit code 1")
    wider = state_of(*failed, *ran(2, "pytest -q", "9 passed"))
    assert {name: one.outcome for name, one in wider.checks.items()} == {"pytest -q": "passes"}
    assert "test_x" in wider.checks["pytest -q"].failed_before
    all_failed = ran(1, "pytest -q", "FAILED tests/test_a.py::test_x\nexit code 1")
    narrower = state_of(*all_failed, *ran(2, "pytest tests/test_b.py", "2 passed"))
    assert narrower.checks["pytest -q"].outcome == "fails"


def test_a_check_that_the_output_says_was_run_resolves_it_too() -> None:
    failed = ran(1, "tsgo -p tsconfig.build.json", "src/a.ts(4,3): error TS2353: no such property\nexit code 2")
    output = "> app@1.0.0 build\n> tsgo -p tsconfig.build.json\n\nbuild succeeded"
    assert list(state_of(*failed, *ran(2, "npm run build", output)).checks) == ["npm run build"]


@pytest.mark.parametrize(
    ("command", "other", "answer"),
    [
        ("go test ./...", "go test ./cmd/cli", True),
        ("go test ./cmd/...", "go test ./cmd/cli", True),
        ("go test ./cmd/cli", "go test ./...", False),
        ("go test ./... -run TestA", "go test ./...", False),
        ("pytest -k fast", "pytest", False),
        ("npm run lint", "npm run test", False),
        ("npm test", "npm test", True),
        ("mypy", "pytest", False),
    ],
)
def test_a_command_is_wider_if_it_checks_at_least_as_much(command: str, other: str, answer: bool) -> None:  # noqa: FBT001 - a case
    assert is_wider(command, other) is answer


def test_one_command_in_two_directories_is_two_checks() -> None:
    state = state_of(
        *ran(1, "cd packages/a && npm test", "1 failed\nexit code 1"), *ran(2, "cd packages/b && npm test", "2 passed")
    )
    assert [(one.directory, one.outcome) for one in state.checks.values()] == [
        ("packages/a", "fails"),
        ("packages/b", "passes"),
    ]


def test_of_a_failed_chain_nobody_knows_which_step_failed() -> None:
    state = state_of(*ran(1, "mypy && pytest", "Traceback (most recent call last)\nKeyError: 1\nexit code 1"))
    assert {name: one.outcome for name, one in state.checks.items()} == {"mypy && pytest": "fails"}


# Version control.


def test_commits_pushes_and_uncommitted_files_are_known() -> None:
    state = state_of(
        *edited(1, "/r/a.py"),
        *ran(2, "git commit -am 'Fix a'", "[fix-a 1a2b3c4] Fix a\n 1 file changed"),
        *edited(3, "/r/b.py"),
    )
    assert (state.repository.branch, state.repository.commits) == ("fix-a", (("1a2b3c4", "Fix a"),))
    assert state.uncommitted == ["/r/b.py"]
    pushed = state_of(*ran(1, "git push", "To github.com:me/r.git\n   1a2b3c4..5d6e7f8  fix-a -> fix-a"))
    assert pushed.repository.pushed == "5d6e7f8"


def test_a_push_without_a_commit_of_the_session_is_said() -> None:
    push = "To github.com:me/r.git\n   1a2b3c4..5d6e7f8  main -> main"
    sources = sources_of([said("user", "go"), *ran(1, "git status", "On branch main"), *ran(2, "git push", push)])
    state = extract(SummaryRequest(sources, None, 800, default_counter())).fields["current_state"]
    assert "Version control: branch `main`; `5d6e7f8` was pushed" in state


# Plans.

TODOS = [
    {"content": "Fix load_row", "status": "completed", "activeForm": "Fixing the function load_row"},
    {"content": "Add a type", "status": "pending", "activeForm": "Adding the return type"},
]


def test_one_call_sets_the_whole_plan() -> None:
    state = state_of(called("1", "TodoWrite", todos=TODOS), answered("1", "ok"))
    assert [(item.text, item.status, item.is_done) for item in state.plan] == [
        ("Fix load_row", "completed", True),
        ("Add a type", "pending", False),
    ]


def test_calls_for_single_items_make_one_plan() -> None:
    state = state_of(
        called("1", "TaskCreate", subject="Fix load_row"),
        answered("1", "Task #1 created successfully: Fix load_row"),
        called("2", "TaskCreate", subject="Add a type"),
        answered("2", "Task #2 created successfully: Add a type"),
        called("3", "TaskUpdate", taskId="1", status="completed"),
        answered("3", "Updated task #1 status"),
    )
    assert [(item.key, item.status) for item in state.plan] == [("1", "completed"), ("2", "pending")]


def test_a_task_for_another_agent_is_no_item_of_the_plan() -> None:
    state = state_of(
        called("1", "Task", description="Look at the hooks", prompt="Read hooks.py"),
        answered("1", "The id session holds"),
    )
    assert state.plan == ()


def test_a_plan_as_json_is_ticked_by_reports_on_its_items() -> None:
    steps = [
        {"title": "History", "description": "Collect the history of both companies in this market"},
        {"title": "Numbers", "description": "Collect market shares and numbers of orders of both"},
    ]
    plan = said("assistant", json.dumps({"title": "Analysis", "steps": steps}))
    report = said(
        "assistant", "## Problem\nCollect the history of both companies in this market\n\n## Findings\nOne began."
    )
    assert [item.is_done for item in state_of(said("user", "go"), plan, report).plan] == [True, False]


@pytest.mark.parametrize("title", ["## Plan", "Here is my plan:", "**Nächste Schritte:**", "## 计划", "次の計画\uff1a"])
def test_a_numbered_list_under_the_title_of_a_plan_is_a_plan(title: str) -> None:
    plan = said("assistant", f"{title}\n1. Read the store\n2. Fix the store")
    assert [item.text for item in state_of(said("user", "go"), plan).plan] == ["Read the store", "Fix the store"]
    assert state_of(said("user", "go"), said("assistant", "It has two parts:\n1. Store\n2. Index")).plan == ()


def test_boxes_are_a_plan_with_what_is_done() -> None:
    state = state_of(said("assistant", "- [x] Read the store\n- [ ] Fix the store"))
    assert [(item.text, item.is_done) for item in state.plan] == [("Read the store", True), ("Fix the store", False)]


def test_calls_that_set_a_plan_replace_a_list_in_a_message() -> None:
    state = state_of(
        said("assistant", "- [x] Read the store\n- [ ] Fix the store"),
        called("1", "TodoWrite", todos=TODOS),
        answered("1", "ok"),
        said("assistant", "- [ ] Something else\n- [ ] And more"),
    )
    assert [item.text for item in state.plan] == ["Fix load_row", "Add a type"]


LIST = "Please do these:\n1. lint fails\n2. update from main\n3. answer the comments"


@pytest.mark.parametrize(
    ("words", "done"),
    [
        ("Item 2 is fixed now.", ["2"]),
        ("Fixed item 3.", ["3"]),
        ("1. lint fails: ✅\n2. update from main: still open", ["1"]),
        ("#1 done, #3 not done", ["1"]),
        ("Item 1 is not fixed. Item 2 will be fixed next.", []),
        ("Is item 1 fixed?", []),
        ("Punkt 2 ist erledigt.", ["2"]),
        ("第3項は対応しました。", ["3"]),
        ("第1项已修复。", ["1"]),
    ],
)
def test_the_users_list_is_ticked_by_the_agents_later_words(words: str, done: list[str]) -> None:
    state = state_of(said("user", LIST), said("assistant", words))
    assert [item.key for item in state.requested if item.is_done] == done
    assert len(state.requested) == 3


def test_numbers_that_answer_numbered_questions_are_no_list_of_requests() -> None:
    asked = said("assistant", "Some questions:\n1. Keep the cache?\n2. Which port?")
    assert state_of(said("user", "go"), asked, said("user", "1. yes\n2. 8080")).requested == ()


def test_a_document_that_a_program_put_in_is_no_list_of_requests() -> None:
    skill = "# Executing plans\n\n## Process\n1. Read the plan\n2. Review it\n\n## End\nReport."
    assert state_of(said("user", skill)).requested == ()


# Questions.


@pytest.mark.parametrize(
    ("question", "answer", "chosen"),
    [
        ("Which one?\n\nA) Only on exit\nB) On every checkpoint", "B", "B) On every checkpoint"),
        ("Which one?\n\nA) Only on exit\nB) On every checkpoint", "A. and quickly please", "A) Only on exit"),
        ("1. Subagents\n2. Parallel sessions\n\nWhich approach?", "2", "2. Parallel sessions"),
        ("要哪一个\uff1f\n\nA. 红色\nB. 蓝色", "B", "B. 蓝色"),
        ("どちらにしますか\uff1f\n\nA. 赤\nB. 青", "A", "A. 赤"),
        ("Welche Variante?\n\na) schnell\nb) gründlich", "b) bitte", "b) gründlich"),
    ],
)
def test_a_short_answer_is_resolved_with_the_line_of_the_option(question: str, answer: str, chosen: str) -> None:
    state = state_of(said("user", "go"), said("assistant", question))
    assert len(state.open_questions) == 1
    (asked,) = state_of(said("user", "go"), said("assistant", question), said("user", answer)).questions
    assert (asked.answer, asked.chosen) == (answer, (chosen,))
    assert [pointer.start for pointer in asked.pointers] == [11]
    assert asked.pointers[-1].end == 29


def test_an_answer_that_names_no_option_chooses_none() -> None:
    question = "Which one?\n\nA) Only on exit\nB) On every checkpoint"
    (asked,) = state_of(said("assistant", question), said("user", "A simple timestamp is enough")).questions
    assert asked.chosen == ()


def test_a_list_of_what_was_done_offers_no_options() -> None:
    (asked,) = state_of(said("assistant", "Done:\n1. Fixed the cache\n2. Fixed the index\n\nReady to merge?")).questions
    assert asked.options == ()


def test_a_question_that_the_agent_went_on_without_is_not_open() -> None:
    assert (
        state_of(
            said("assistant", "Shall I look at the store first?"), *edited(1, "/r/a.py"), said("assistant", "Done.")
        ).open_questions
        == []
    )


def test_a_call_that_asks_holds_question_options_and_answer() -> None:
    questions = [{"question": "Which color?", "options": [{"label": "Red", "description": "warm"}, {"label": "Blue"}]}]
    asking = called("1", "AskUserQuestion", questions=questions)
    assert state_of(asking).open_questions[0].options == ("Red — warm", "Blue")
    state = state_of(asking, answered("1", 'User has answered your questions: "Which color?"="Red".'))
    assert (state.questions[0].answer, state.questions[0].chosen) == ("Red", ("Red — warm",))


def test_the_users_next_message_answers_a_call_whose_result_repeats_the_question() -> None:
    asking = called("1", "ask_clarification", question="您要什么风格\uff1f", clarification_type="missing_info")
    state = state_of(asking, answered("1", "🤔 您要什么风格\uff1f"), said("user", "其他你决定"))
    assert [(one.text, one.answer) for one in state.questions] == [("您要什么风格\uff1f", "其他你决定")]


# Waiting.


def test_a_command_in_the_background_is_awaited_until_its_end_is_reported() -> None:
    started = [
        called("1", "Bash", command="npm run dev", run_in_background=True),
        answered("1", "Command running in background with ID: bash_1"),
    ]
    assert [(one.text, one.kind, one.key) for one in state_of(*started).waiting] == [
        ("npm run dev", "background", "bash_1")
    ]
    looked = [called("2", "BashOutput", bash_id="bash_1"), answered("2", "status: running\nlistening on 3000")]
    assert len(state_of(*started, *looked).waiting) == 1
    ended = [called("2", "BashOutput", bash_id="bash_1"), answered("2", "status: completed\nexit code 0")]
    assert state_of(*started, *ended).waiting == ()
    killed = [called("2", "KillShell", shell_id="bash_1"), answered("2", "Successfully killed shell: bash_1")]
    assert state_of(*started, *killed).waiting == ()
    notified = said("user", "<system-reminder>Background bash_1 exited with code 0</system-reminder>")
    assert state_of(*started, notified).waiting == ()


def test_another_agent_without_a_result_is_awaited_until_the_user_speaks() -> None:
    delegated = called("1", "Task", description="Review", prompt="Review the change")
    (awaited,) = state_of(said("user", "go"), delegated).waiting
    assert (awaited.kind, awaited.last) == ("agent", 1)
    assert state_of(said("user", "go"), delegated, said("user", "stop, that is enough")).waiting == ()
    assert state_of(said("user", "go"), delegated, answered("1", "It is fine.")).waiting == ()


# Agents that write their calls as text.


SHOWN = "Here is a demonstration of how to solve such a task.\n--- DEMONSTRATION ---\n"
DEMONSTRATION = f"{SHOWN}```\nopen demo.py\n```\nbash-$\n```\nsubmit\n```\n--- END OF DEMONSTRATION ---\n"


# Records.


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ('{"id": "AB12CD", "cabin": "economy"}', ["id AB12CD, cabin economy"]),
        ('[{"n": 1, "m": 2}, {"n": 3, "m": 4}]', ["n 1, m 2", "n 3, m 4"]),
        ('{"user": {"name": "Mia", "zip": "10115"}}', ["user: name Mia, zip 10115"]),
        ('{"flights": [{"number": 228, "date": "21 May"}, {"number": 43, "date": "22 May"}], "cabin": "economy"}',
         ["flights 228 21 May; 43 22 May, cabin economy"]),
        ("not JSON", []),
        ('{"broken": ', []),
        ("[" * 100_000, []),
    ],
)  # fmt: skip
def test_records_of_every_form_are_rows(text: str, rows: list[str]) -> None:
    assert [row.text for row in rows_of(text)] == rows


# Languages.

SPOKEN = {
    "english": ("Fix the store", "I look at the store.", "The store is fixed. Shall I also fix the index?"),
    "chinese": ("修复存储", "我来看看存储。", "存储已修复。要不要也修复索引\uff1f"),
    "japanese": ("ストアを直して", "ストアを見ます。", "ストアを直しました。索引も直しますか\uff1f"),
    "german": ("Repariere den Speicher", "Ich sehe mir den Speicher an.", "Er ist repariert. Soll ich auch den Index?"),
}


def spoken(language: str) -> list[dict[str, Any]]:
    request, words, report = SPOKEN[language]
    return [
        said("user", request),
        said("assistant", words),
        *edited(1, "/r/store.py", "old", "new"),
        *ran(2, "pytest -q", "FAILED tests/test_store.py::test_x - KeyError\nexit code 1"),
        *edited(3, "/r/store.py", "new", "newer"),
        *ran(4, "pytest -q", "4 passed in 0.1s"),
        *ran(5, "git commit -am x", "[main 1a2b3c4] x\n 1 file changed"),
        said("assistant", report),
    ]


@pytest.mark.parametrize("language", ["chinese", "japanese", "german"])
def test_a_session_in_any_language_has_the_same_state(language: str) -> None:
    state, english = state_of(*spoken(language)), state_of(*spoken("english"))
    assert (state.files, state.checks, state.repository) == (english.files, english.checks, english.repository)
    assert len(state.open_questions) == len(english.open_questions) == 1
    assert state.open_questions[0].text in SPOKEN[language][2]


# Bounds, folds and JSON.


def test_the_newest_is_kept_and_read_files_go_before_changed_ones() -> None:
    messages = [message for number in range(3) for message in edited(number, f"/r/changed-{number}.py")]
    for number in range(MAX_FILES + 5):
        messages += [called(f"r{number}", "Read", file_path=f"/r/read-{number}.py"), answered(f"r{number}", "x")]
    for number in range(MAX_QUESTIONS + 3):
        messages += [said("assistant", f"Shall I do part {number} of it?"), said("user", "yes")]
    state = state_of(*messages, *ran(1, f"pytest {'x' * 2_000}", "1 passed"))
    assert len(state.files) == MAX_FILES
    assert len(state.changed_files) == 3
    assert "/r/read-0.py" not in state.files
    assert f"/r/read-{MAX_FILES + 4}.py" in state.files
    assert len(state.questions) == MAX_QUESTIONS
    assert f"part {MAX_QUESTIONS + 2}" in state.questions[-1].text
    assert all(len(one.command) <= MAX_TEXT_CHARS for one in state.checks.values())


PARTS: list[list[dict[str, Any]]] = [
    edited(1, "/r/src/a.py"),
    ran(2, "cd /r && rm src/a.py", ""),
    ran(3, "pytest tests/test_a.py", "FAILED tests/test_a.py::test_x\nexit code 1"),
    ran(4, "pytest -q", "3 passed"),
    ran(5, "git commit -am x", "[main 1a2b3c4] x\n 1 file changed"),
    [called("6", "TodoWrite", todos=TODOS), answered("6", "ok")],
    [said("user", LIST)],
    [said("assistant", "Item 2 is fixed.\n\nWhich one?\n\nA) Red\nB) Blue")],
    [said("user", "B")],
    [said("assistant", "## Plan\n1. Read the store\n2. Fix the store")],
    [
        called("7", "Bash", command="npm run dev", run_in_background=True),
        answered("7", "Command running in background with ID: bash_1"),
    ],
    [said("user", "<note>bash_1 exited with code 0</note>")],
]


@given(st.lists(st.sampled_from(PARTS), min_size=1, max_size=12), st.data())
def test_a_state_continued_is_the_state_of_all_messages(parts: list[list[dict[str, Any]]], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(parts)))
    before = [message for part in parts[:cut] for message in part]
    after = [message for part in parts[cut:] for message in part]
    continued = work_of(sources_of(after, len(before)), work_of(sources_of(before)))
    assert continued == work_of(sources_of([*before, *after]))


@pytest.mark.parametrize("language", list(SPOKEN))
def test_a_state_is_continued_at_any_message_between_calls(language: str) -> None:
    messages = spoken(language)
    whole = work_of(sources_of(messages))
    for cut in (1, 2, 4, 6, 8, 10, 12):
        assert work_of(sources_of(messages[cut:], cut), work_of(sources_of(messages[:cut]))) == whole


POINTERS = st.lists(
    st.builds(Pointer, st.just("transcript.md"), st.integers(1, 9), st.integers(9, 99)), max_size=2
).map(tuple)
WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
INDEXES = st.integers(0, 500)
OPERATIONS = st.sampled_from(["created", "changed", "deleted", "moved", "read"])
ITEMS = st.lists(st.builds(PlanItem, WORDS, WORDS, st.booleans(), INDEXES, POINTERS, WORDS), max_size=3).map(tuple)
TEXTS = st.lists(WORDS, max_size=3).map(tuple)
STATES = st.builds(
    WorkState,
    files=st.dictionaries(
        WORDS,
        st.builds(
            FileState,
            WORDS,
            OPERATIONS,
            INDEXES,
            INDEXES,
            POINTERS,
            WORDS,
            st.none() | st.just(Pointer("tool_result-1.txt", 1, 5)),
            WORDS,
        ),
        max_size=3,
    ),
    checks=st.dictionaries(
        WORDS,
        st.builds(
            CheckState,
            WORDS,
            st.sampled_from(["passes", "fails", "ran"]),
            WORDS,
            INDEXES,
            INDEXES,
            POINTERS,
            WORDS,
            TEXTS,
            WORDS,
        ),
        max_size=3,
    ),
    repository=st.builds(
        RepositoryState,
        WORDS,
        st.lists(st.tuples(WORDS, WORDS), max_size=3).map(tuple),
        WORDS,
        INDEXES,
        INDEXES,
        POINTERS,
    ),
    plan=ITEMS,
    requested=ITEMS,
    waiting=st.lists(
        st.builds(AwaitedCall, WORDS, st.sampled_from(["call", "agent", "background"]), INDEXES, POINTERS, WORDS),
        max_size=2,
    ).map(tuple),
    questions=st.lists(st.builds(QuestionState, WORDS, INDEXES, TEXTS, WORDS, TEXTS, POINTERS, WORDS), max_size=2).map(
        tuple
    ),
    has_used_git=st.booleans(),
    has_tool_plan=st.booleans(),
    writes_calls=st.booleans(),
    directory=WORDS,
    end=INDEXES,
)


@given(STATES)
def test_a_state_survives_json(state: WorkState) -> None:
    assert work_state_from(json.loads(json.dumps(state.to_json()))) == state


def test_unknown_keys_of_a_newer_version_are_ignored() -> None:
    assert work_state_from({"end": 3, "weather": "fine", "plan": []}) == WorkState(end=3)
    with pytest.raises(ValueError, match="outcome"):
        work_state_from({"checks": {"x": {"command": "x", "outcome": "maybe", "line": "", "last": 1, "runs": 1}}})


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | WORDS | st.sampled_from(["completed", "rm a.py; cd b", "#1", "pytest"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from(
    [
        "path",
        "file_path",
        "command",
        "commands",
        "old_string",
        "new_string",
        "content",
        "todos",
        "status",
        "taskId",
        "subject",
        "questions",
        "question",
        "options",
        "run_in_background",
        "prompt",
        "bash_id",
    ]
)
NAMES = st.sampled_from(
    ["Edit", "insert", "bash", "TodoWrite", "TaskCreate", "TaskUpdate", "AskUserQuestion", "Task", "x"]
)
SAID = st.sampled_from(
    [
        LIST,
        DEMONSTRATION,
        "A",
        "```\nls\n```",
        "Action: x\nAction Input: {",
        "- [ ] a\n- [x] b",
        '{"steps": [1, {}]}',
        "1) ?\n2) ?",
    ]
)
ANY_MESSAGE = st.one_of(
    st.builds(
        lambda name, arguments: called("1", name, **arguments), NAMES, st.dictionaries(KEYS, JSON_VALUES, max_size=4)
    ),
    st.builds(answered, st.sampled_from(["1", "2"]), WORDS | SAID | st.just("#7 with ID: 7 FAIL")),
    st.builds(said, st.sampled_from(["user", "assistant", "system"]), WORDS | SAID),
)


@given(st.lists(ANY_MESSAGE, min_size=1, max_size=12), st.lists(ANY_MESSAGE, max_size=6))
def test_any_messages_have_a_state_that_survives_json(
    before: list[dict[str, Any]], after: list[dict[str, Any]]
) -> None:
    state = work_of(sources_of(before))
    assert work_state_from(json.loads(json.dumps(state.to_json()))) == state
    later = work_of(sources_of(after, len(before)), state)
    assert later.end == len(before) + len(after)


REFUSED = "The user doesn't want to proceed with this tool use. The tool use was rejected."


@pytest.mark.parametrize(
    "words",
    [
        REFUSED,
        f"{REFUSED} To tell you how to proceed, the user said:\nplease reuse the loop",
        "User denied this operation.",
        "The human operator declined the command.",
    ],
)
def test_a_file_is_not_changed_by_a_call_that_the_user_refused(words: str) -> None:
    call, _ = edited(1, "src/store.py")
    assert not state_of(said("user", "Repair the store."), call, answered("c1", words)).changed_files


def test_the_summary_has_the_users_words_with_the_call_that_they_refuse() -> None:
    refused = ran(1, "git reset --hard origin/main", f"{REFUSED} the user said:\nwhat are you doing?")
    silent = ran(2, "git push --force origin main", f"{REFUSED} STOP what you are doing.")
    text = summary_of(said("user", "Rebase the branch."), *refused, *silent)
    assert "“what are you doing?” (refusing: git reset --hard origin/main)" in text
    assert "Refused: git push --force origin main" in text
    assert "Open error" not in text


def test_a_later_mention_of_a_file_does_not_hide_that_the_file_was_changed() -> None:
    report = said("assistant", "I changed src/store.py so that a lost row is written again.")
    assert "Changed: src/store.py" in summary_of(said("user", "Repair it."), *edited(1, "src/store.py"), report)


LINE = "func (s *Store) describe(session string, commit string"


@pytest.mark.parametrize(
    ("old", "new", "clause"),
    [
        # The line that brings the most new names, and no import, comment or bare string.
        (
            "name := legacy(commit)\n",
            'import "fmt"\n// Suffixes.\nvar name string\nname = checkpoint.WithSuffix(commit, state.Suffix)\n',
            "`name := legacy(commit)` → `name = checkpoint.WithSuffix(commit, state.Suffix)`",
        ),
        # Words of a message that is printed are no names.
        (
            "return end(session)",
            'if err := end(session, now); err != nil {\n    print("this one has more words than the line above it")\n}',
            "`return end(session)` → `if err := end(session, now); err != nil {`",
        ),
        # Two long lines that begin alike are shown where they differ.
        (
            f"{LINE}, branch string, a string, b string) string {{",
            f"{LINE}, branch string, a string, suffix int) string {{",
            "`…branch string, a string, b string) string {` → `…branch string, a string, suffix int) string {`",
        ),
    ],
)
def test_an_edit_is_quoted_by_the_lines_that_say_most(old: str, new: str, clause: str) -> None:
    assert state_of(*edited(1, "store.go", old, new)).files["store.go"].edit == clause


WRITTEN = {
    "app.js": (
        "// Draws the table\n" + "".join(f"function draw{part}() {{\n  return 1;\n}}\n" for part in "ABC"),
        "drawA, drawB, drawC",
    ),
    "page.html": (
        "<!DOCTYPE html>\n<html>\n<head>\n<title>Cup 2025</title>\n</head>\n<body>\n<h1>Results</h1>\n</body>\n</html>",
        "Cup 2025, Results",
    ),
    "data.js": ("// The league\n\nconst league = {\n  teams: 12,\n};\n", "`const league = {`"),
    "empty.txt": ("\n\n", ""),
}


@pytest.mark.parametrize("path", WRITTEN)
def test_a_written_file_is_described_by_what_it_defines(path: str) -> None:
    content, clause = WRITTEN[path]
    call = called("c1", "write_file", path=path, content=content)
    assert state_of(call, answered("c1", "OK")).files[path].edit == clause


def test_a_summary_with_room_has_the_beginning_of_a_written_file() -> None:
    content = "/* Blue and orange */\n:root {\n  --primary: #1a56db;\n}\n"
    call = called("c1", "write_file", path="css/style.css", content=content)
    text = summary_of(said("user", "Make the page blue."), call, answered("c1", "OK"))
    assert "style.css begins: /* Blue and orange */ :root { --primary: #1a56db;" in text


def test_a_file_that_was_written_twice_is_described_by_its_last_form() -> None:
    calls = [
        message
        for number, content in enumerate(("first = 1\n", "second = 2\n"))
        for message in (called(f"c{number}", "write_file", path="a.py", content=content), answered(f"c{number}", "OK"))
    ]
    text = summary_of(said("user", "Write it."), *calls)
    assert "`second = 2`" in text
    assert "first" not in text


def test_edits_take_the_room_that_announcements_would_fill() -> None:
    edits = [
        message
        for number in range(8)
        for message in edited(number, f"src/part{number}.py", f"value = {number}", f"value = renamed_{number}")
    ]
    talk = [said("assistant", f"Let me look at the tests of the other part {word} now.") for word in "abcdefgh"]
    text = summary_of(said("user", "Rename it."), *talk, *edits, max_tokens=420)
    assert all(f"renamed_{number}" in text for number in range(8))
    assert text.count("Let me") == 1  # the newest report


def test_the_result_of_an_edit_is_no_discovery() -> None:
    sentence = "The file src/store.py has been updated, and here is why that matters: it fixes the lost row.\n" * 3
    call = called("c1", "Edit", file_path="src/store.py", old_string="a", new_string="b")
    text = summary_of(said("user", "Repair the store."), call, answered("c1", sentence))
    assert "has been updated" not in text


def test_rows_of_what_a_command_posted_come_behind_rows_that_were_read() -> None:
    def row(number: int) -> str:
        return json.dumps({"id": f"R{number}", "path": f"src/part{number}.py", "state": "open"})

    posted = [
        message
        for number in range(8)
        for message in ran(number, f"gh api repos/a/b/comments/{number}/replies -f body=Fixed", row(number))
    ]
    read = [called("r", "get_review", review="R99"), answered("r", row(99))]
    text = summary_of(said("user", "Answer the reviews."), *read, *posted, max_tokens=500)
    assert "get_review: id R99" in text
    assert "bash: id" not in text


# Plans whose items are easily mistaken for done.

PLAN = said(
    "assistant",
    "Plan:\n1. Fix the login bug in session.py\n2. Add a logout button to the header\n3. Write docs for the REST API",
)


def ticks_after(*texts: str) -> list[bool]:
    talk = [said("user", "go"), PLAN, *(said("assistant", text) for text in texts)]
    return [item.is_done for item in state_of(*talk).plan]


@pytest.mark.parametrize(
    "text",
    [
        "Still open:\n- Add a logout button to the header\n- Write docs for the REST API",
        "## Remaining\nAdd a logout button to the header",
        "I start with: Fix the login bug in session.py",
        "Add a logout button to the header: not done, blocked by the design",
        "PR #2 by Karl was completed yesterday.",
        "Issue #2 of the tracker was fixed upstream.",
        "Item 1 should be fixed first.",
        "Item 2 can be done after 1.",
        "I found this:\n1. Fixed the import in the test helper\n2. Resolved a race in the worker",
    ],
)
def test_an_item_that_is_only_mentioned_is_not_done(text: str) -> None:
    assert ticks_after(text) == [False, False, False]


@pytest.mark.parametrize(
    "text",
    [
        "Done:\n- Fix the login bug in session.py",
        "Fix the login bug in session.py: done",
        "I fixed item 1.",
        "Item 1 is done.",
        "1. Fixed the login bug",
        "#1 is finished.",
        "✅ Fix the login bug in session.py",
        "## Fix the login bug in session.py\nFixed the expiry check.",
    ],
)
def test_an_item_that_is_reported_as_done_is_done(text: str) -> None:
    assert ticks_after(text) == [True, False, False]


def test_a_call_that_failed_sets_no_plan() -> None:
    def todo(call_id: str, status: str, answer: str) -> list[dict[str, Any]]:
        items = [{"content": "Migrate the database", "status": status}, {"content": "Deploy", "status": status}]
        return [called(call_id, "TodoWrite", todos=items), answered(call_id, answer)]

    state = state_of(*todo("1", "pending", "Saved."), *todo("2", "completed", "Error: InputValidationError: no id"))
    assert [item.status for item in state.plan] == ["pending", "pending"]


def test_a_plan_may_be_json_in_a_text() -> None:
    items = json.dumps([{"step": "Port the lexer", "status": "in_progress"}])
    (item,) = state_of(called("1", "update_plan", plan=items), answered("1", "ok")).plan
    assert (item.text, item.status) == ("Port the lexer", "in_progress")


@pytest.mark.parametrize("mark", ["~", "-", ">", "/", " "])
def test_a_box_with_another_mark_is_open(mark: str) -> None:
    state = state_of(said("assistant", f"- [x] Port the parser\n- [{mark}] Port the lexer"))
    assert [(item.text, item.is_done) for item in state.plan] == [("Port the parser", True), ("Port the lexer", False)]


def test_a_question_behind_one_in_return_gets_the_answer() -> None:
    talk = [said("user", "go"), OFFER, said("user", "Which is faster?")]
    talk += [said("assistant", "The table. Which port shall it use?"), said("user", "8080")]
    (question,) = state_of(*talk).questions
    assert (question.text, question.answer) == ("Which port shall it use?", "8080")


@pytest.mark.parametrize(
    ("words", "done"),
    [
        ("No, item 1 is still broken.", [False] * 3),
        ("2 is already done.", [True, True, False]),
        ("Thanks!", [True, False, False]),
    ],
)
def test_the_user_ticks_and_opens_items_again(words: str, done: list[bool]) -> None:
    talk = [said("user", "go"), PLAN, said("assistant", "Item 1 is done."), said("user", words)]
    assert [item.is_done for item in state_of(*talk).plan] == done


# Version control that takes something back.


def commits_after(*runs: tuple[str, str]) -> list[str]:
    made = [("git commit -m one", "[main 1111111] one\n 1 file changed"), ("git commit -m two", "[main 2222222] two")]
    messages = [
        message for number, (command, text) in enumerate((*made, *runs)) for message in ran(number, command, text)
    ]
    return [short for short, _ in state_of(*messages).repository.commits]


def test_a_commit_that_was_taken_back_is_none() -> None:
    assert commits_after() == ["1111111", "2222222"]
    assert commits_after(("git reset --hard HEAD~1", "HEAD is now at 1111111 one")) == ["1111111"]
    assert commits_after(("git reset --hard origin/main", "HEAD is now at 0000000 other")) == ["1111111", "2222222"]
    assert commits_after(("git commit --amend --no-edit", "[main 3333333] two")) == ["1111111", "3333333"]
    assert commits_after(("git checkout 1111111", "HEAD is now at 1111111 one")) == ["1111111", "2222222"]


def test_a_dry_run_pushes_nothing() -> None:
    output = "To origin\n   1111111..2222222  main -> main"
    assert state_of(*ran(1, "git push --dry-run", output)).repository.pushed == ""
    assert state_of(*ran(1, "git push", output)).repository.pushed == "2222222"


# Answers.

OFFER = said("assistant", "Which store do you want?\n\nA) The table\nB) The file")


@pytest.mark.parametrize(
    ("answer", "chosen"),
    [
        ("Use B, but keep the old one for a week.", ("B) The file",)),
        ("A. And the timezone is Europe/Berlin.", ("A) The table",)),
        ("B but keep a backup", ("B) The file",)),
        ("the second", ("B) The file",)),
        ("I take the first one, please", ("A) The table",)),
        ("Sorry, I meant B", ("B) The file",)),
        ("The second file is broken, and nobody knows why it was written there in the first place.", ()),
    ],
)
def test_an_answer_names_its_option_in_many_ways(answer: str, chosen: tuple[str, ...]) -> None:
    (question,) = state_of(said("user", "go"), OFFER, said("user", answer)).questions
    assert (question.answer, question.chosen) == (answer, chosen)


def test_a_question_in_return_answers_nothing() -> None:
    talk = [said("user", "go"), OFFER, said("user", "Which file would that be?")]
    assert [one.answer for one in state_of(*talk).questions] == [""]
    talk += [said("assistant", "It is store.json."), said("user", "B then")]
    (question,) = state_of(*talk).questions
    assert question.text == "Which store do you want?"
    assert question.answer == "B then"


# Outcomes that are easily mistaken.


@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("bun test", "3 pass\n1 fail"),
        ("jest", "Tests: 4 passed\nJest: coverage threshold for lines (80%) not met: 71%"),
        ("pnpm test", "Tests  5 passed (5)\n ELIFECYCLE  Test failed. See above for more details."),
        ("ansible-playbook verify.yml", "web : ok=3    changed=0    unreachable=0    failed=1"),
        ("dbt test", "Done. PASS=4 WARN=0 ERROR=1 SKIP=0 TOTAL=5"),
        ("./check.sh", "0 of 5 checks OK"),
        ("./check.sh", "OK: 3, FAIL: 2"),
        ("npm test", "3/5 tests passed"),
        ("node --test", "# pass 4\n# fail 1"),
        ("pytest", "!!! Interrupted: 1 error during collection !!!\n1 error in 0.31s"),
        ("make test", "make: *** [test] Error 1"),
        ("./run_tests", "Segmentation fault (core dumped)"),
        ("python -m pytest", "/usr/bin/python: No module named pytest"),
    ],
)
def test_a_check_whose_output_counts_a_failure_fails(command: str, output: str) -> None:
    (check,) = state_of(*ran(1, command, output)).checks.values()
    assert check.outcome == "fails"


@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("./check.sh", '{"success": false, "failed_rows": 3}'),
        ("./check.sh", "duplicates: 17 found - NOT OK"),
        ("./verify.sh", "The upload was not successful."),
        ("pytest", "INTERNALERROR> KeyError\n3 passed"),
        ("playwright test", "4 passed\n1 interrupted\n3 did not run"),
        ("pytest", "!!! KeyboardInterrupt !!!\n3 passed in 0.5s"),
        ("rspec spec", "0 examples, 0 failures"),
        ("pytest", "Command is still running. 5 passed so far"),
        ("pytest -q > /tmp/log.txt 2>&1", ""),
        ("pytest -q >/dev/null", ""),
        ("make test 2>/dev/null", ""),
        ("npm run build > build.log 2>&1 &", ""),
        ("nohup make test", ""),
    ],
)
def test_a_check_that_was_not_seen_to_pass_was_only_run(command: str, output: str) -> None:
    (check,) = state_of(*ran(1, command, output)).checks.values()
    assert check.outcome == "ran"


@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("./check.sh", "FAILED: 0\nPASSED: 5"),
        ("pytest -v", "tests/test_a.py::test_b[failed=1] PASSED\n1 passed"),
        ("npm test", "error: 0\n5 passed"),
        ("npm test", "5/5 tests passed"),
        ("cat > a.ts <<'EOF'\nx\nEOF\ntsc --noEmit", ""),
        ("python -m unittest", "Ran 3 tests in 0.1s\n\nOK"),
        ("pre-commit run", "ruff.....Passed\n2 passed"),
    ],
)
def test_a_check_whose_output_counts_no_failure_passes(command: str, output: str) -> None:
    (check,) = state_of(*ran(1, command, output)).checks.values()
    assert check.outcome == "passes"


@pytest.mark.parametrize("again", ["pytest -q > /tmp/log.txt 2>&1", "nohup pytest -q &", "pytest -q 2>/dev/null"])
def test_a_check_whose_output_goes_elsewhere_is_the_same_check(again: str) -> None:
    state = state_of(*ran(1, "pytest -q", "1 failed"), *ran(2, again, ""))
    assert list(state.checks) == ["pytest -q"]


@pytest.mark.parametrize(
    ("failed", "passed"),
    [
        ("pytest -q", "pytest -q --ignore=tests/test_pay.py"),
        ("ENV=prod ./check.sh", "ENV=dev ./check.sh"),
        ("cargo test", "cargo test --lib"),
        ("go test ./...", "go test -short ./..."),
        ("npm test", "npm test --workspace=a"),
        ("mvn test", "mvn test -Dtest=Foo"),
    ],
)
def test_a_check_of_less_does_not_replace_a_failure(failed: str, passed: str) -> None:
    state = state_of(*ran(1, failed, "1 failed"), *ran(2, passed, "3 passed"))
    assert {name: one.outcome for name, one in state.checks.items()} == {failed: "fails", passed: "passes"}


@pytest.mark.parametrize(
    ("command", "changes"),
    [
        ("cat <<'EOF' > a.py\nx = 2\nEOF", [("created", "a.py")]),
        ("cat <<EOF | tee x.conf\nrm b\nEOF\ntouch c", [("created", "x.conf"), ("created", "c")]),
        ("cat <<EOF > a && rm b\nq\nEOF", [("created", "a"), ("deleted", "b")]),
        ("cat > a.py <<'EOF'\nrm b.py\n" + "y\n" * 3_000 + "EOF", [("created", "a.py")]),
    ],
)
def test_what_follows_the_mark_of_a_here_document_is_part_of_the_command(
    command: str, changes: list[tuple[str, str]]
) -> None:
    assert [(change.operation, change.path) for change in files_in(command)] == changes


@pytest.mark.parametrize(
    "task",
    [
        "<task>Fix the parser. Never touch legacy/vault.</task>\n<context>It is old.</context>",
        "[IMPORTANT: fix the parser, and never touch legacy/vault]",
    ],
)
def test_a_task_in_tags_or_brackets_is_the_users(task: str) -> None:
    summary = summary_of(said("user", task), *ran(1, "ls", "a.txt"), said("user", "Also update the docs."))
    assert "ix the parser" in summary
    assert "ever touch legacy/vault" in summary


@pytest.mark.parametrize(
    "command", ["/mode", "<command-message>brainstorm</command-message>\n<command-name>/brainstorm</command-name>"]
)
def test_a_command_of_the_program_is_no_task(command: str) -> None:
    summary = summary_of(said("user", command), said("user", "Chart the light at berth 4."), *ran(1, "ls", "a.txt"))
    assert summary.startswith("- “Chart the light at berth 4.”")


def test_a_notice_in_the_middle_of_a_recording_is_no_task() -> None:
    task = "Implement the plan: " + "chart each buoy and each light. " * 80
    summary = summary_of(
        answered("c0", "The tool use was rejected."),
        said("user", "[Request interrupted by user for tool use]"),
        said("user", task),
        *ran(1, "ls", "a.txt"),
    )
    assert summary.startswith("- “Implement the plan: chart each buoy")
    assert "Request interrupted" not in summary


def test_what_a_signed_message_forbids_is_kept() -> None:
    talk = [said("user", "Answer the tickets.")]
    for number in range(4):
        words = "Never promise a refund." if number == 1 else f"Close ticket r{number}."
        talk += [said("user", f"{words}\n\nBest regards,\nTom"), *ran(number, f"cat r{number}", "text")]
    assert "User: “Never promise a refund.”" in summary_of(*talk)


# Checks behind which something changed.


def test_a_check_is_older_than_a_change_behind_it_in_the_same_message() -> None:
    both = called("1", "bash", command="pytest -q")
    both["tool_calls"] += called("2", "Edit", file_path="/r/a.py", old_string="a", new_string="b")["tool_calls"]
    messages = [said("user", "Fix it."), both, answered("1", "3 passed"), answered("2", "The file was updated.")]
    assert "`pytest -q` passes (3 passed); not run since a.py changed" in summary_of(*messages)
    both["tool_calls"].reverse()
    assert "not run since" not in summary_of(*messages)


@pytest.mark.parametrize("command", ["git pull", "git checkout main", "git -C /r stash", "git reset -q --hard HEAD~1"])
def test_a_check_is_older_than_a_command_that_changes_many_files(command: str) -> None:
    messages = [*ran(1, "pytest -q", "3 passed"), *ran(2, command, "Updating 1..2")]
    assert "passes (3 passed); not run since the files of `git" in summary_of(said("user", "Fix it."), *messages)
    again = [*messages, *ran(3, "pytest -q", "4 passed")]
    assert "not run since" not in summary_of(said("user", "Fix it."), *again)


@pytest.mark.parametrize("command", ["git status", "git checkout -b fix", "git stash list", "git reset a.py"])
def test_a_check_is_not_older_than_a_command_that_changes_no_files(command: str) -> None:
    messages = [*ran(1, "pytest -q", "3 passed"), *ran(2, command, "")]
    assert "not run since" not in summary_of(said("user", "Fix it."), *messages)


# Words of others.


@pytest.mark.parametrize(
    "quoted",
    [
        "> never ship to Austria again\n> Do not contact the warehouse.",
        "-----Original Message-----\nNever ship to Austria again.\nDo not contact the warehouse.",
        "---------- Forwarded message ---------\nNever ship to Austria again. Do not contact the warehouse.",
        "Von: Karl\nGesendet: Montag\nNever ship to Austria again.\nDo not contact the warehouse.",
        "<document index=1>\nNever ship to Austria again.\nDo not contact the warehouse.\n</document>",
        "<email>Never ship to Austria again. Do not contact the warehouse.</email>",
    ],
)
def test_what_a_user_quotes_is_no_rule_of_the_user(quoted: str) -> None:
    asked = f"Please answer this mail. Never promise a date.\n\n{quoted}"
    summary = summary_of(said("user", "Help me with my mail."), said("user", asked), *ran(1, "ls", "a.txt"))
    assert "User: “Never promise a date.”" in summary
    assert "User: “Do not contact the warehouse.”" not in summary
    assert "User: “Never ship to Austria again.”" not in summary


@pytest.mark.parametrize(
    "text",
    [
        "<file>\nNever touch prod.yaml.",
        "From: now on\nNever touch prod.yaml.",
        "--- Rules ---\nNever touch prod.yaml.",
        "The rules:\n<rules>\nNever touch prod.yaml.\n</rules>",
        "<document>a</document>\nNever touch prod.yaml.",
    ],
)
def test_what_only_looks_like_a_quotation_is_the_users_own(text: str) -> None:
    summary = summary_of(said("user", "Deploy the service."), said("user", text), *ran(1, "ls", "a.txt"))
    assert "User: “Never touch prod.yaml.”" in summary


@pytest.mark.parametrize(
    "rule",
    [
        "From now on sign with 'Team Nord'.",
        "Only refund up to 50 EUR; above that ask Petra.",
        "You may touch config/prod.yaml now.",
        "Ab jetzt bitte mit 'Team Nord' unterschreiben.",
        "以后用团队的名字签名。",
    ],
)
def test_a_rule_that_lasts_precedes_newer_requests(rule: str) -> None:
    talk = [said("user", "Answer the tickets."), said("user", rule)]
    for number in range(40):
        asked = f"Please look at ticket {number} as well, it should be about the mutex in r{number}_2.py."
        talk += [said("user", asked), *ran(number, f"cat t{number}", "text"), said("assistant", f"I did {number}.")]
    assert rule.rstrip(".。") in summary_of(*talk, max_tokens=400)


# What proves that a check passed.


@pytest.mark.parametrize(
    "command",
    [
        "pytest -q > /tmp/log.txt 2>&1",
        "pytest -q &> 'my log.txt'",
        "pytest -q 2>&1 >| log.txt &",
        "nohup pytest -q &",
        "{ cd /r; pytest -q; } > log.txt",
    ],
)
def test_silence_of_output_that_goes_elsewhere_proves_nothing(command: str) -> None:
    failed = ran(1, "pytest -q", "FAILED tests/test_a.py::test_x\n1 failed")
    checks = state_of(*failed, *ran(2, command, "")).checks
    assert {name: one.outcome for name, one in checks.items()} == {"pytest -q": "ran"}


@pytest.mark.parametrize(
    "command", ["echo a > a.txt && npx tsc", "npx tsc 2>&1", "npx tsc -p 'a > b'", "make docs & npx tsc"]
)
def test_silence_proves_a_pass_if_only_another_steps_output_goes_elsewhere(command: str) -> None:
    assert [one.outcome for one in state_of(*ran(1, command, "")).checks.values()] == ["passes"]


def test_a_program_is_no_check_because_of_the_file_that_its_output_goes_to() -> None:
    assert checks_in("node app.js > build.log; npm test > out.log") == ["npm test"]


@pytest.mark.parametrize(
    ("command", "changes", "checks"),
    [
        ("cat <<'EOF' > a.py\nx = 2\nrm b.py\nEOF\nnpm test", [("created", "a.py")], ["npm test"]),
        ("cat <<EOF | tee a.py\nx\nEOF", [("created", "a.py")], []),
        ("cat <<EOF > a.py && rm b.py\nEOF\nEOF\nrm c.py", [("created", "a.py"), ("deleted", "b.py")], []),
        ("grep x <<< word\nrm b.py\nnpm test", [("deleted", "b.py")], ["npm test"]),
        ("cat > a.md <<EOF\nnpm test\n" + "text\n" * 1_000 + "EOF", [("created", "a.md")], []),
    ],
)
def test_the_line_that_begins_a_here_document_runs_and_its_text_does_not(
    command: str, changes: list[tuple[str, str]], checks: list[str]
) -> None:
    assert [(change.operation, change.path) for change in files_in(command)][:2] == changes
    assert checks_in(command) == checks


@pytest.mark.parametrize(
    "output",
    [
        " 3 pass\n 1 fail\nRan 4 tests across 1 files.",
        "Tests 5 passed\n ELIFECYCLE  Test failed. See above for more details.",
        "web1 : ok=3 changed=1 unreachable=0 failed=1 skipped=0",
        "web1 : ok=3 changed=1 unreachable=1 failed=0 skipped=0",
        "Done. PASS=4 WARN=0 ERROR=1 SKIP=0 TOTAL=5",
        "OK: 3, FAIL: 2",
        "passed: 3 failed: 2",
        '{"ok": 3, "failed": 2}',
        "0 of 5 checks OK",
        "3/5 tests passed",
        'Jest: "global" coverage threshold for lines (80%) not met: 70%\nTests: 5 passed, 5 total',
        "make: *** [Makefile:3: test] Error 1",
        "./a\nSegmentation fault (core dumped)",
        "/usr/bin/python: No module named pytest",
        "# tests 3\n# pass 2\n# fail 1",
        "=== 3 passed, 1 error in 0.12s ===",
        "collected 0 items / 1 error\n!!! Interrupted: 1 error during collection !!!",
        "ruff.....................Failed\n- hook id: ruff\nmypy.....................Passed",
        "[10:01] Found 0 errors. Watching for file changes.\n[10:05] File change detected.\nFound 2 errors.",
    ],
)
def test_a_count_or_a_message_of_failure_is_a_failure_whatever_has_passed(output: str) -> None:
    assert outcome_of(output, has_failed=False) == "fails"


@pytest.mark.parametrize(
    "output",
    [
        '{"success": false, "rows": 3}',
        "schema: ok\nduplicates: 17 found - NOT OK",
        "not successful",
        "1 passed, 4 not passed",
        "  1 interrupted\n  3 did not run\n  2 passed (5s)",
        "!!!!! KeyboardInterrupt !!!!!\n3 passed in 4s",
        "3 passed, 1 skipped in 4s\n\nINTERNALERROR> Traceback",
        "0 examples, 0 failures",
        "Command is still running. 5 passed so far.",
        "Found 0 errors.\nFile change detected. Starting incremental compilation...\n",
    ],
)
def test_a_pass_that_is_denied_or_not_complete_is_no_pass(output: str) -> None:
    assert outcome_of(output, has_failed=False) == "ran"


@pytest.mark.parametrize(
    "output",
    [
        "FAILED: 0\nPASSED: 5",
        "FAIL: 0 PASS: 5",
        " FAIL  0 | PASS 5",
        "error: 0\nwarnings: 0\n5 passed",
        "web1 : ok=3 changed=1 unreachable=0 failed=0",
        "PASS 5 FAIL 0",
        "Success: no issues found in 12 source files",
        "test result: ok. 0 passed; 0 failed\ntest result: ok. 5 passed; 0 failed",
        "[10:01] Found 2 errors.\n[10:05] File change detected.\n[10:06] Found 0 errors.",
    ],
)
def test_a_count_of_no_failures_is_no_failure(output: str) -> None:
    assert outcome_of(output, has_failed=False) == "passes"


@pytest.mark.parametrize(
    ("output", "outcome"),
    [
        ("FAIL: 0 PASS: 5", "ran"),
        ("Found 3 errors (3 fixed, 0 remaining).", "ran"),
        ("Found 2 errors.\nFile change detected.\nFound 0 errors.", "ran"),
        ("Found 3 errors (3 fixed, 0 remaining).\nexit code 1", "fails"),
        ("5 passed\nexit code 1", "fails"),
    ],
)
def test_a_failure_is_in_doubt_if_only_words_say_so_and_others_take_them_back(output: str, outcome: str) -> None:
    assert outcome_of(output, has_failed=True) == outcome


@pytest.mark.parametrize("output", ["1/2 checks passed\n2/2 checks passed", "✓ reports 2 errors\n3 passing"])
def test_a_count_that_was_reached_or_that_a_test_is_named_after_is_no_failure(output: str) -> None:
    assert outcome_of(output, has_failed=False) != "fails"


@pytest.mark.parametrize("command", ["python -m unittest", "pre-commit run --all-files"])
def test_runners_of_tests_and_of_hooks_are_checks(command: str) -> None:
    assert checks_in(command) == [command]


@pytest.mark.parametrize(
    ("command", "other"),
    [
        ("pytest -q --ignore=tests/test_pay.py", "pytest -q"),
        ("pytest --ignore tests/a.py", "pytest tests/a.py"),
        ("pytest --deselect tests/a.py::t", "pytest"),
        ("pytest --lf", "pytest"),
        ("pytest --collect-only", "pytest"),
        ("ENV=prod ./check.sh", "ENV=dev ./check.sh"),
        ("rake test TEST=a", "rake test"),
        ("cargo test --lib", "cargo test"),
        ("cargo build", "cargo build --release"),
        ("go test -short ./...", "go test ./..."),
        ("go test ./...", "go test -race ./..."),
        ("npm test --workspace=a", "npm test"),
        ("mvn test -Dtest=Foo", "mvn test"),
        ("./check.sh", "./check.sh --strict"),
        ("python verify.py --table=a", "python verify.py --table=b"),
        ("python -m pytest", "python -m unittest"),
        ("bash -c 'pytest a.py'", "bash -c 'pytest b.py'"),
        ("mocha --color test/a.js", "mocha test/b.js"),
        ("docker build -f a.Dockerfile .", "docker build -f b.Dockerfile ."),
    ],
)
def test_a_run_with_other_options_or_variables_is_not_wider(command: str, other: str) -> None:
    assert not is_wider(command, other)


@pytest.mark.parametrize(
    ("command", "other"),
    [
        ("pytest -q --tb=short -n 4", "pytest -x --color never -n 8"),
        ("pytest", "pytest -q --ignore=tests/a.py"),
        ("pytest", "pytest --lf"),
        ("cargo test", "cargo test --lib"),
        ("go test -race -count=1 -v ./...", "go test ./..."),
        ("pytest --cov=src", "pytest"),
        ("NO_COLOR=1 npm test", "npm test"),
        ("pytest -m 'not slow'", "pytest -m 'not slow' tests/a.py"),
        ("rspec spec/a.rb", "rspec spec/a.rb:12"),
        ("ENV=prod ./check.sh", "ENV=prod ./check.sh -v"),
    ],
)
def test_a_run_is_wider_whatever_it_shows_and_if_it_chooses_less(command: str, other: str) -> None:
    assert is_wider(command, other)


def test_a_narrower_run_does_not_resolve_a_failure() -> None:
    failed = ran(1, "pytest -q", "FAILED tests/test_pay.py::test_x\n1 failed, 9 passed")
    checks = state_of(*failed, *ran(2, "pytest -q --ignore=tests/test_pay.py", "9 passed")).checks
    assert checks["pytest -q"].outcome == "fails"


# Lists, directories and runs that read like others.


def test_a_plan_that_is_sent_in_parts_keeps_its_other_entries() -> None:
    first = [{"id": "1", "content": "Chart the bay", "status": "in_progress"}, {"id": "2", "content": "Sound the bar"}]
    plan = [{**entry, "status": entry.get("status", "pending")} for entry in first]
    state = state_of(
        called("1", "todo_write", merge=False, todos=plan),
        answered("1", "ok"),
        called("2", "todo_write", merge=True, todos=[{"id": "1", "status": "completed"}]),
        answered("2", "ok"),
        called("3", "todo_write", merge=True, todos=[{"id": "3", "content": "Paint it", "status": "pending"}]),
        answered("3", "ok"),
    )
    assert [(item.text, item.is_done) for item in state.plan] == [
        ("Chart the bay", True),
        ("Sound the bar", False),
        ("Paint it", False),
    ]


def test_records_with_a_status_are_no_plan() -> None:
    orders = [{"title": "Two lamps", "status": "shipped"}, {"title": "A buoy", "status": "pending"}]
    state = state_of(
        called("1", "TodoWrite", todos=TODOS),
        answered("1", "ok"),
        called("2", "update_orders", orders=orders),
        answered("2", "2 orders updated"),
    )
    assert [item.text for item in state.plan] == [entry["content"] for entry in TODOS]


def test_one_command_in_two_directories_is_two_checks_also_if_an_argument_names_them() -> None:
    def tested(number: int, directory: str, output: str) -> list[dict[str, Any]]:
        call = called(f"c{number}", "shell", command="npm test", workdir=directory)
        return [call, answered(f"c{number}", output)]

    state = state_of(*tested(1, "/r/web", "Tests: 1 failed, 4 passed"), *tested(2, "/r/api", "Tests: 5 passed"))
    assert [(check.directory, check.outcome) for check in state.checks.values()] == [
        ("/r/web", "fails"),
        ("/r/api", "passes"),
    ]


@pytest.mark.parametrize("answer", ["", "OK, started in the background with ID: b1"])
def test_a_check_that_was_only_started_passes_nothing(answer: str) -> None:
    call = called("1", "Bash", command="pytest -q", run_in_background=True)
    assert state_of(call, answered("1", answer)).checks["pytest -q"].outcome == "ran"


def test_steps_before_a_check_that_fails_changed_their_files() -> None:
    state = state_of(*ran(1, "sed -i s/a/b/ lamp.py && pytest -q && rm out.log", "FAILED test_lamp.py\n1 failed in 1s"))
    assert [(one.path, one.operation) for one in state.changed_files] == [("lamp.py", "changed")]
    assert state_of(*ran(1, "sed -i s/a/b/ lamp.py && pytest -q", "sed: no lamp.py\nexit code 2")).changed_files == []


def test_a_commit_whose_output_was_kept_back_was_made() -> None:
    made = [*edited(1, "/r/a.py"), *ran(2, "git add -A && git commit -qm 'Light the lamp'", "")]
    assert "nothing was committed" in summary_of(said("user", "Light it."), *made[:2], *ran(2, "git status", "M a.py"))
    assert "nothing was committed" not in summary_of(said("user", "Light it."), *made)
