"""The state of the work, from messages alone: files, checks, version control, plans."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buoyline.compression.extractive.checks import outcome_of
from buoyline.compression.extractive.files import files_in
from buoyline.compression.extractive.records import rows_of
from buoyline.compression.extractive.summarizer import extract
from buoyline.compression.pointers import Pointer
from buoyline.compression.summary import Draft, SourceMessage, SummaryRequest
from buoyline.compression.work_state import (
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


def work_of(sources: Sequence[SourceMessage], before: WorkState | None = None) -> WorkState:
    """Return the state in the summary of *sources*; *before* is that of the last summary."""
    if not sources:
        return before or WorkState()
    previous = None if before is None else Draft("extractive", {}, work=before)
    work = extract(SummaryRequest(sources, previous, 800, default_counter())).work
    assert work is not None
    return work


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


def test_a_patch_creates_changes_and_deletes_files() -> None:
    patch = "*** Begin Patch\n*** Add File: c.py\n+x\n*** Update File: a.py\n-y\n*** Delete File: b.py\n*** End Patch"
    state = state_of(called("1", "apply_patch", input=patch), answered("1", "Success."))
    operations = {name: one.operation for name, one in state.files.items()}
    assert operations == {"c.py": "created", "a.py": "changed", "b.py": "deleted"}


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


def test_no_path_is_stated_that_nobody_wrote() -> None:
    messages = [*ran(1, "cd /repo/pkg && touch new.py && cd .. && rm old.py", ""), *edited(3, "lib/c.py")]
    written = "\n".join(json.dumps(message) for message in messages)
    assert all(one.path in written for one in state_of(*messages).files.values())


# Checks.


def test_a_check_fails_and_passes_with_what_was_changed_in_between() -> None:
    failed = ran(1, "pytest -q", "FAILED tests/test_a.py::test_x - KeyError\n1 failed in 0.1s\nexit code 1")
    assert state_of(*failed).checks["pytest -q"].outcome == "fails"
    check = state_of(*failed, *edited(2, "/r/a.py"), *ran(3, "pytest -q", "4 passed in 0.1s")).checks["pytest -q"]
    assert (check.outcome, check.line, check.runs) == ("passes", "4 passed in 0.1s", 2)
    assert "KeyError" in check.failed_before
    assert check.changed_between == ("/r/a.py",)


def test_a_failed_check_is_resolved_by_a_wider_one_and_not_by_a_narrower_one() -> None:
    failed = ran(1, "pytest tests/test_a.py", "FAILED tests/test_a.py::test_x\nexit code 1")
    wider = state_of(*failed, *ran(2, "pytest -q", "9 passed"))
    assert {name: one.outcome for name, one in wider.checks.items()} == {"pytest -q": "passes"}
    assert "test_x" in wider.checks["pytest -q"].failed_before
    all_failed = ran(1, "pytest -q", "FAILED tests/test_a.py::test_x\nexit code 1")
    narrower = state_of(*all_failed, *ran(2, "pytest tests/test_b.py", "2 passed"))
    assert narrower.checks["pytest -q"].outcome == "fails"


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


def test_boxes_are_a_plan_with_what_is_done() -> None:
    state = state_of(said("assistant", "- [x] Read the store\n- [ ] Fix the store"))
    assert [(item.text, item.is_done) for item in state.plan] == [("Read the store", True), ("Fix the store", False)]


LIST = "Please do these:\n1. lint fails\n2. update from main\n3. answer the comments"


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


# Bounds, folds and JSON.


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
]


@given(st.lists(st.sampled_from(PARTS), min_size=1, max_size=12), st.data())
def test_a_state_continued_is_the_state_of_all_messages(parts: list[list[dict[str, Any]]], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(parts)))
    before = [message for part in parts[:cut] for message in part]
    after = [message for part in parts[cut:] for message in part]
    continued = work_of(sources_of(after, len(before)), work_of(sources_of(before)))
    assert continued == work_of(sources_of([*before, *after]))


WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


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
        "run_in_background",
        "prompt",
        "bash_id",
    ]
)
NAMES = st.sampled_from(["Edit", "insert", "bash", "TodoWrite", "TaskCreate", "TaskUpdate", "Task", "x"])
SAID = st.sampled_from(
    [
        LIST,
        "A",
        "```\nls\n```",
        "- [ ] a\n- [x] b",
        '{"steps": [1, {}]}',
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
    assert "Failed: " not in text


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


# Outcomes that are easily mistaken.


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


def test_what_a_signed_message_forbids_is_kept() -> None:
    talk = [said("user", "Answer the tickets.")]
    for number in range(4):
        words = "Never promise a refund." if number == 1 else f"Close ticket r{number}."
        talk += [said("user", f"{words}\n\nBest regards,\nTom"), *ran(number, f"cat r{number}", "text")]
    assert "User: “Never promise a refund.”" in summary_of(*talk)


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
