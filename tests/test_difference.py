"""``buoyline diff``: what a model saw before and after a compaction, told from the files of real sessions."""

import asyncio
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from command_line import buoyline
from hypothesis import given
from hypothesis import strategies as st

from buoyline import ContextConfig, ContextWindow, LocalWorkspace
from buoyline.compression import Draft, Pointer, SummaryRequest
from buoyline.errors import NotFoundError
from buoyline.inspect.session import SeenMessage, cited_sentences, difference
from buoyline.testing.suites import (
    agentscope_messages,
    anthropic_messages,
    long_conversation,
    openai_messages,
    said,
)
from buoyline.window import ContextCompressed, Event

CONFIG = ContextConfig(tool_result_limit=400, preview_tokens=200)
SYSTEM = {"role": "system", "content": "Answer in one line."}


class Step:
    """What a window handed out after a compaction, as its test saw it."""

    def __init__(self, event: ContextCompressed, after: list[Any]) -> None:
        self.event, self.after = event, after


async def run(workspace: LocalWorkspace, conversation: list[Any], pinned: int = -1, **settings: Any) -> list[Step]:
    """Feed a window one message after another, compact now and then, and note what stood in it each time."""
    events: list[Event] = []
    steps: list[Step] = []
    given = {"size": 20_000, "config": CONFIG, "on_event": events.append, **settings}
    async with await ContextWindow.open(workspace, "s", **given) as window:
        for number, message in enumerate(conversation):
            await window.add(message, pinned=number == pinned)
            if number % 25 == 24:
                await window.compress(before=number - 5)
                (event,) = [event for event in events if isinstance(event, ContextCompressed)][len(steps) :]
                steps.append(Step(event, window.messages))
    return steps


def indexes(messages: tuple[SeenMessage, ...]) -> list[int]:
    return [message.message for message in messages]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> tuple[LocalWorkspace, list[Step]]:
    """A session with a system message and a pin, compacted four times."""
    workspace = LocalWorkspace(tmp_path_factory.mktemp("diff") / "w", durability="off")
    steps = asyncio.run(run(workspace, [SYSTEM, *long_conversation(26)], pinned=25))
    assert len(steps) == 4
    return workspace, steps


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_what_left_and_what_stayed_is_what_the_window_handed_out(
    session: tuple[LocalWorkspace, list[Step]], number: int
) -> None:
    workspace, steps = session
    found, step = difference(workspace, "s", number), steps[number - 1]
    first, end = step.event.messages
    assert indexes(found.left) == list(range(first, end))
    assert indexes(found.stayed) == list(range(end, 25 * number))
    assert indexes(found.head) == [0, 25][: 1 + (end > 25)]
    assert len(step.after) == 2 + len(found.stayed)
    assert found.summary["text"] in step.after[1]["content"]


def test_a_message_is_shown_with_role_tool_lines_and_its_first_words(
    session: tuple[LocalWorkspace, list[Step]],
) -> None:
    workspace, _ = session
    system, question, call, result = difference(workspace, "s", 1).left[:4]
    assert (system.role, question.role, question.begins) == ("system", "user", "Question 0: which buoy is deepest?")
    assert (call.role, call.tool, call.begins) == ("assistant", "read", '{"chart": 0}')
    assert (result.role, result.tool) == ("tool", "read")
    assert (workspace.workdir / "sessions/s" / result.offloaded[0]).exists()
    transcript = (workspace.workdir / "sessions/s/transcript.md").read_text("utf-8").splitlines()
    assert question.lines is not None
    assert question.begins in transcript[question.lines[0] - 1 : question.lines[1]]
    assert {message.lines for message in difference(workspace, "s", 4).stayed} == {None}


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


def test_the_command_prints_it_for_people_and_as_json(session: tuple[LocalWorkspace, list[Step]]) -> None:
    workspace, _ = session
    done = buoyline("diff", "s", "2", "--workdir", workspace.workdir)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("compaction 2 of s, extractive, ")
    assert "\narchived: 2" in done.stdout
    assert "offloaded to tool_result-call_5.txt" in done.stdout
    assert "transcript.md:" in done.stdout
    assert "unverified claims: none" in done.stdout
    found = buoyline("diff", "s", "3", "--json", "--workdir", workspace.workdir).stdout
    assert json.loads(found) == json.loads(json.dumps(asdict(difference(workspace, "s", 3))))


@pytest.mark.parametrize(
    ("args", "status", "problem"),
    [
        (("s", "5"), 1, "no compaction '5'; session 's' has 4"),
        (("s", "0"), 2, "0 is not in the range"),
        (("t", "1"), 1, "no session 't'"),
        (("s",), 2, "Missing argument 'N'"),
    ],
)
def test_what_is_not_there_is_one_clear_line(
    session: tuple[LocalWorkspace, list[Step]], args: tuple[str, ...], status: int, problem: str
) -> None:
    done = buoyline("diff", *args, "--workdir", session[0].workdir)
    assert (done.returncode, done.stderr.count("\n")) == (status, 1)
    assert problem in done.stderr
    if status == 1:
        with pytest.raises(NotFoundError):
            difference(session[0], args[0], int(args[1]))


@pytest.mark.parametrize(
    "messages",
    [openai_messages(), anthropic_messages(), agentscope_messages()],
    ids=["openai", "anthropic", "agentscope"],
)
async def test_media_and_every_dialect_are_told_exactly(tmp_path: Path, messages: list[Any]) -> None:
    workspace = LocalWorkspace(tmp_path / "w", durability="off")
    conversation = [message for number in range(10) for message in (*messages, said(f"go on {number}"))]
    for number, step in enumerate(await run(workspace, conversation), 1):
        found = difference(workspace, "s", number)
        assert indexes(found.stayed) == list(range(step.event.messages[1], 25 * number))


class Claiming:
    """Writes what nothing backs, and cites what it may not."""

    async def summarize(self, request: SummaryRequest) -> Draft:
        text = "The port is 48151. [../../../secret.txt:1] Two. [transcript.md:900] Three. [state.jsonl:1]\x1b[31m"
        return Draft("claiming", dict.fromkeys(request.fields, text))


async def test_a_summary_that_names_files_it_may_not_name_opens_none_of_them(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("a secret\n", encoding="utf-8")
    workspace = LocalWorkspace(tmp_path / "w", durability="off")
    await run(workspace, long_conversation(10), summarizer=Claiming())
    shown = buoyline("diff", "s", "1", "--workdir", workspace.workdir).stdout
    assert "a secret" not in shown
    assert "\x1b" not in shown
    assert "48151" in shown.partition("unverified claims: ")[2]


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
    assert [str(pointer) for pointer in found][-3:] == ["t:1", "t:1", "u:2-3"]
