"""``buoyline diff``: what a model saw before and after a compression, told from the files of real sessions."""

import asyncio
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from buoyline.cli import main
from buoyline.cli.output import local_time
from buoyline.compression import ContextConfig, Draft, Pointer, SummaryRequest
from buoyline.errors import NotFoundError
from buoyline.inspect.diff import Difference, SeenMessage, cited_sentences, difference
from buoyline.testing.conversation import (
    agentscope_messages,
    anthropic_messages,
    long_conversation,
    openai_messages,
    said,
)
from buoyline.window import ContextCompressed, ContextWindow, Event
from buoyline.workspace import LocalWorkspace

CONFIG = ContextConfig(tool_result_limit=400, preview_tokens=200)
SYSTEM = {"role": "system", "content": "Answer in one line."}


class Step:
    """What a window handed out before and after a compression, as its test saw it."""

    def __init__(self, event: ContextCompressed, before: list[Any], after: list[Any]) -> None:
        self.event, self.before, self.after = event, before, after


async def run(workspace: LocalWorkspace, conversation: list[Any], pinned: int = -1, **settings: Any) -> list[Step]:
    """Feed a window one message after another, compress now and then, and note what stood in it each time."""
    events: list[Event] = []
    window = ContextWindow(
        session_id="s", offloader=workspace, config=CONFIG, on_event=events.append, **{"size": 20_000, **settings}
    )
    steps: list[Step] = []
    for number, message in enumerate(conversation):
        await window.add(message, pinned=number == pinned)
        if number % 25 == 24:
            await window.save()
            before = window.messages
            await window.compress(before=number - 5)
            (event,) = [event for event in events if isinstance(event, ContextCompressed)][len(steps) :]
            steps.append(Step(event, before, window.messages))
    await window.save()
    return steps


def indexes(messages: tuple[SeenMessage, ...] | None) -> list[int]:
    return [message.message for message in messages or ()]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> tuple[LocalWorkspace, list[Step]]:
    """A session with a system message and a pin, compressed four times."""
    workspace = LocalWorkspace(tmp_path_factory.mktemp("diff") / "w", durability="off")
    conversation = [SYSTEM, *long_conversation(26)]
    tools = [{"type": "function", "function": {"name": "read"}}]
    steps = asyncio.run(run(workspace, conversation, pinned=25, system="Be brief.", tools=tools))
    assert len(steps) == 4
    return workspace, steps


def diff(workdir: Path, *args: str) -> Result:
    return CliRunner().invoke(main, ["diff", *args, "--workdir", str(workdir)])


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_what_left_and_what_stayed_is_what_the_window_handed_out(
    session: tuple[LocalWorkspace, list[Step]], number: int
) -> None:
    workspace, steps = session
    found, step = difference(workspace, "s", number), steps[number - 1]
    assert found.stayed is not None
    first, end = step.event.summary.messages
    assert indexes(found.left) == list(range(first, end))
    assert indexes(found.stayed) == list(range(end, 25 * number))
    head = [*indexes(found.head), *(message.message for message in found.left if message.stands_again)]
    assert head == [0, 25][: 1 + (end > 25)]
    assert len(step.before) == len(found.head) + (number > 1) + len(found.left) + len(found.stayed)
    assert len(step.after) == len(head) + 1 + len(found.stayed)
    assert found.summary["text"] == step.after[len(head)]["content"]


def test_a_message_is_shown_with_role_tool_lines_and_its_first_words(
    session: tuple[LocalWorkspace, list[Step]],
) -> None:
    workspace, _ = session
    found = difference(workspace, "s", 1)
    system, question, call, result = found.left[:4]
    assert (system.role, system.stands_again) == ("system", True)
    assert (question.role, question.begins) == ("user", "Question 0: which buoy is deepest?")
    assert (call.role, call.tool, call.begins) == ("assistant", "read", '{"chart": 0}')
    assert (result.role, result.tool) == ("tool", "read")
    (file,) = result.offloaded
    assert (workspace.workdir / "sessions/s" / file.path).stat().st_size == file.bytes
    assert file.lines == 60
    transcript = (workspace.workdir / "sessions/s/transcript.md").read_text("utf-8").splitlines()
    assert question.lines is not None
    assert question.begins in transcript[question.lines[0] - 1 : question.lines[1]]


def test_messages_that_are_still_in_the_window_have_no_lines_yet(session: tuple[LocalWorkspace, list[Step]]) -> None:
    last = difference(session[0], "s", 4)
    assert last.stayed
    assert {message.lines for message in last.stayed} == {None}
    assert all(message.lines for message in difference(session[0], "s", 3).stayed or ())


def test_each_sentence_has_the_lines_that_back_it_and_their_first_words(
    session: tuple[LocalWorkspace, list[Step]],
) -> None:
    workspace, _ = session
    found = difference(workspace, "s", 2)
    cited = [citation for sentence in found.sentences for citation in sentence.citations]
    assert cited
    assert all(citation.is_there for citation in cited)
    for citation in cited:
        lines = (workspace.workdir / "sessions/s" / citation.path).read_text("utf-8").splitlines()
        assert any(citation.begins in line for line in lines[citation.start - 1 : citation.end])
    assert {(c.path, c.start, c.end) for c in cited} == {tuple(p.values()) for p in found.summary["pointers"]}


def test_the_command_prints_all_of_it_for_people(session: tuple[LocalWorkspace, list[Step]]) -> None:
    workspace, steps = session
    result = diff(workspace.workdir, "s", "2")
    assert (result.exit_code, result.stderr) == (0, "")
    shown = result.stdout
    event = steps[1].event
    assert shown.startswith(f"summary 2 of s, extractive, {local_time(event.summary.created_at)}: messages ")
    assert "\narchived: 2" in shown
    assert "(also in the prefix) Question 6" in shown
    assert "offloaded to tool_result-call_5.txt, 60 lines, " in shown
    assert "transcript.md:" in shown
    assert "unverified claims: none" in shown


def test_the_command_gives_the_same_as_json(session: tuple[LocalWorkspace, list[Step]]) -> None:
    workspace, _ = session
    result = diff(workspace.workdir, "s", "3", "--json")
    assert result.stdout.count("\n") == 1
    assert json.loads(result.stdout) == json.loads(json.dumps(asdict(difference(workspace, "s", 3))))


@pytest.mark.parametrize(
    ("args", "status", "problem"),
    [
        (("s", "5"), 1, "no summary '5'; session 's' has 4"),
        (("s", "0"), 2, "0 is not in the range"),
        (("t", "1"), 1, "no session 't'"),
        (("s",), 2, "Missing argument 'N'"),
    ],
)
def test_what_is_not_there_is_one_clear_line(
    session: tuple[LocalWorkspace, list[Step]], args: tuple[str, ...], status: int, problem: str
) -> None:
    result = diff(session[0].workdir, *args)
    assert result.exit_code == status
    assert problem in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "messages",
    [openai_messages(), anthropic_messages(), agentscope_messages()],
    ids=["openai", "anthropic", "agentscope"],
)
async def test_media_and_every_dialect_are_told_exactly(tmp_path: Path, messages: list[Any]) -> None:
    workspace = LocalWorkspace(tmp_path / "w", durability="off")
    conversation = [message for number in range(10) for message in (*messages, said(f"go on {number}"))]
    steps = await run(workspace, conversation)
    for number, step in enumerate(steps, 1):
        found = difference(workspace, "s", number)
        assert indexes(found.stayed) == list(range(step.event.summary.messages[1], 25 * number))


async def test_without_a_window_it_says_that_nobody_knows_what_stayed(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path / "w", durability="off")
    steps = await run(workspace, long_conversation(10))
    other = LocalWorkspace(tmp_path / "other", durability="off")
    await other.archive("s", long_conversation(10)[:20])
    await other.append_summary("s", steps[0].event.summary.to_json())
    found = difference(other, "s", 1)
    assert found.stayed is None
    assert indexes(found.left) == list(range(steps[0].event.summary.messages[1]))
    shown = diff(other.workdir, "s", "1").stdout
    assert "which messages were kept is not on disk" in shown
    assert "kept in the context" not in shown


async def test_a_message_that_was_shrunk_since_is_never_passed_off_as_what_stood_there(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path / "w", durability="off")
    events: list[Event] = []
    window = ContextWindow(
        session_id="s", offloader=workspace, size=20_000, on_event=events.append, config=ContextConfig(reserve_ratio=0)
    )
    for message in long_conversation(3)[:-1]:
        await window.add(message)
    await window.compress(before=9)
    await window.recover_from_overflow()
    found = difference(workspace, "s", 1)
    now = (workspace.workdir / "sessions/s/window.jsonl").read_text("utf-8")
    assert "offloaded" in now  # what stayed then is a stub now
    assert found.stayed is None


async def test_a_summary_that_names_files_it_may_not_name_opens_none_of_them(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("a secret\n", encoding="utf-8")
    workspace = LocalWorkspace(tmp_path / "w", durability="off")
    await workspace.archive("s", long_conversation(1))
    text = "One. [../../../secret.txt:1] Two. [transcript.md:900] Three. [journal.jsonl:1] [transcript.md:3-2]\x1b[31m"
    summary = {"messages": [0, 4], "fields": {"a": text}, "text": text, "source_tokens": 9, "tokens": 3}
    await workspace.append_summary("s", summary)
    found = difference(workspace, "s", 1)
    assert [citation.is_there for sentence in found.sentences for citation in sentence.citations] == [False] * 4
    shown = diff(workspace.workdir, "s", "1").stdout
    assert "transcript.md:900  (these lines are not there)" in shown
    assert "secret" not in shown.replace("../../../secret.txt", "")
    assert "\x1b" not in shown


@pytest.mark.parametrize(
    ("summary", "problem"),
    [
        ({}, "summary 1 is about messages null; 4 are archived"),
        ({"messages": [4, 0]}, "summary 1 is about messages [4,0]"),
        ({"messages": [0, "4"]}, "summary 1 is about messages"),
        ({"messages": [0, 99]}, "summary 1 is about messages [0,99]; 4 are archived"),
    ],
)
async def test_a_summary_of_no_messages_is_one_clear_line(
    tmp_path: Path, summary: dict[str, Any], problem: str
) -> None:
    workspace = LocalWorkspace(tmp_path / "w", durability="off")
    await workspace.archive("s", long_conversation(1))
    await workspace.append_summary("s", summary)
    result = diff(workspace.workdir, "s", "1")
    assert result.exit_code == 1
    assert problem in result.stderr
    assert result.stderr.count("\n") == 1


async def test_a_summary_that_says_nothing_else_is_shown_as_far_as_it_goes(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path / "w", durability="off")
    await workspace.archive("s", long_conversation(1))
    await workspace.append_summary("s", {"messages": [0, 4]})
    result = diff(workspace.workdir, "s", "1")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "\narchived: 4 messages" in result.stdout


async def test_a_damaged_archive_is_one_clear_line(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path / "w", durability="off")
    await run(workspace, long_conversation(20))
    path = workspace.workdir / "sessions/s/context.jsonl"
    content = bytearray(path.read_bytes())
    content[30] ^= 1
    path.write_bytes(content)
    result = diff(workspace.workdir, "s", "1")
    assert result.exit_code == 1
    assert result.stderr.startswith("buoyline: error: ")
    assert result.stderr.count("\n") == 1


def test_claims_that_nothing_backs_are_listed(tmp_path: Path) -> None:
    class Claiming:
        async def summarize(self, request: SummaryRequest) -> Draft:
            return Draft("claiming", dict.fromkeys(request.fields, "The port is 48151."))

    workspace = LocalWorkspace(tmp_path / "w", durability="off")
    asyncio.run(run(workspace, long_conversation(10), summarizer=Claiming()))
    shown = diff(workspace.workdir, "s", "1").stdout
    assert "unverified claims: 48151" in shown
    assert "The port is 48151 (unverified)" in shown
    assert "(no citation)" in shown
    listed = CliRunner().invoke(main, ["show", "s", "--workdir", str(workspace.workdir)]).stdout
    assert "  by the claiming summarizer, 20" in listed
    assert " citations, 1 unverified: 48151" in listed


def test_a_sentence_ends_with_its_pointers_or_its_line() -> None:
    fields = {"a": "- One. [t.md:1-3], [t.md:9] · Two [t.md:4].\nThree", "b": "[t.md:5,7-8]", "c": ""}
    assert cited_sentences(fields) == [
        ("a", "One", (Pointer("t.md", 1, 3), Pointer("t.md", 9, 9))),
        ("a", "Two", (Pointer("t.md", 4, 4),)),
        ("a", "Three", ()),
        ("b", "", (Pointer("t.md", 5, 5), Pointer("t.md", 7, 8))),
    ]


@given(st.dictionaries(st.text(max_size=3), st.text("ab [:]-.\n123\u00b7", max_size=60), max_size=3))
def test_no_pointer_of_a_text_is_lost_or_doubled(fields: dict[str, str]) -> None:
    fields["x"] = "a [t:1] [t:1] b [u:2-3]"
    found = [pointer for _, _, cited in cited_sentences(fields) for pointer in cited]
    written = [part for text in fields.values() for part in text.split("[") if "]" in part]
    assert [str(pointer) for pointer in found][-3:] == ["t:1", "t:1", "u:2-3"]
    assert len(found) <= len(written)


def test_the_types_are_those_that_the_command_prints(session: tuple[LocalWorkspace, list[Step]]) -> None:
    found = difference(session[0], "s", 1)
    assert isinstance(found, Difference)
    with pytest.raises(NotFoundError):
        difference(session[0], "s", 9)
