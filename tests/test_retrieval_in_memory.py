"""What was offloaded to memory is retrieved as what was offloaded to disk: same lines, same answers, same refusals."""

import asyncio
import base64
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buoyline.errors import BuoylineError, ConfigError
from buoyline.lookups import lookup_tools, retrieval_tool, retrieve
from buoyline.tokens import as_text_counter
from buoyline.workspace import LocalWorkspace, MemoryWorkspace

Workspace: TypeAlias = LocalWorkspace | MemoryWorkspace

USERS = [{"id": n, "name": f"user {n}", "role": "admin" if n % 40 == 7 else "member"} for n in range(200)]
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
PLAIN = "".join(f"line {n}{' ERROR' if n % 9 == 4 else ''}\n" for n in range(1, 400))
ONE_LINE = json.dumps({"users": USERS}, separators=(",", ":"))
SESSION = "sessions/s1"
_TIME = re.compile(r"\d{4}-\d\d-\d\dT[0-9:.]+Z")
REFERENCES = [
    f"{SESSION}/tool_result-wide.txt",
    f"{SESSION}/tool_result-wide.view.txt",
    f"{SESSION}/tool_result-wide.view.txt:4-6",
    f"{SESSION}/tool_result-wide.txt:1:2001",
    f"{SESSION}/tool_result-plain.txt",
    f"{SESSION}/tool_result-plain.txt:120-135",
    f"{SESSION}/tool_result-mixed.txt",
    f"{SESSION}/transcript.md",
    f"{SESSION}/journal.jsonl",
    "tool_result-wide.view.txt",
    "wide",
    "twice",
    "nothing of the kind",
    "sessions/s2/tool_result-other.txt",
    "../s2/tool_result-other.txt",
]


def filled(workspace: Workspace) -> Workspace:
    """Offload the same to each: one long line, lines, a picture beside text, messages, and another session's."""

    async def fill() -> None:
        for session, call_id, content in (
            ("s1", "wide", ONE_LINE),
            ("s1", "plain", PLAIN),
            ("s1", "twice", "one\n"),
            ("s1", "twice", "two\n"),
            ("s2", "other", "of the other session\n"),
        ):
            message = {"role": "tool", "tool_call_id": call_id, "content": content}
            await workspace.offload_tool_result(session, message)
        source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(PNG).decode()}
        blocks = [{"type": "text", "text": PLAIN}, {"type": "image", "source": source}]
        await workspace.offload_tool_result("s1", {"type": "tool_result", "tool_use_id": "mixed", "content": blocks})
        await workspace.archive("s1", [{"role": "user", "content": f"question {n}"} for n in range(9)])

    asyncio.run(fill())
    return workspace


@pytest.fixture(scope="module")
def on_disk(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return filled(LocalWorkspace(tmp_path_factory.mktemp("held") / "w", durability="off"))


@pytest.fixture(scope="module")
def in_memory() -> Workspace:
    return filled(MemoryWorkspace())


def answered(workspace: Workspace, reference: str, **options: Any) -> str:
    """Return all of an answer, without what tells the place of a workspace and the time of its messages."""
    root = f"{workspace.workdir}/" if isinstance(workspace, LocalWorkspace) else "memory:///"
    try:
        # The path of the folder takes tokens, too.
        counter = as_text_counter(lambda text: len(text.replace(root, "")) // 4)
        found: object = retrieve(workspace, reference, **options, session="s1", counter=counter)
    except BuoylineError as error:
        found = f"{type(error).__name__}: {error}"
    contents = [getattr(part, "content", None) for part in getattr(found, "parts", ())]
    return _TIME.sub("", f"{found} {contents}".replace(root, ""))


OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "pattern": st.sampled_from(["admin", "ERROR|question", "user 1", '"id":7,', "", "(", "none such"]),
        "line_range": st.fixed_dictionaries({"start": st.integers(0, 900), "end": st.integers(0, 900)}),
        "context_lines": st.integers(-1, 9),
        "max_tokens": st.sampled_from([200, 2_500, None]),
    },
)


@given(st.sampled_from(REFERENCES), OPTIONS)
def test_any_call_is_answered_from_memory_as_from_disk(
    on_disk: Workspace, in_memory: Workspace, reference: str, options: dict[str, Any]
) -> None:
    assert answered(in_memory, reference, **options) == answered(on_disk, reference, **options)


@pytest.mark.parametrize("kind", ["disk", "memory"])
def test_a_long_line_is_searched_and_shown_by_the_lines_of_its_view(
    kind: str, on_disk: Workspace, in_memory: Workspace
) -> None:
    workspace = {"disk": on_disk, "memory": in_memory}[kind]
    root = f"{workspace.workdir}/" if isinstance(workspace, LocalWorkspace) else "memory:///"
    for name in ("tool_result-wide.txt", "tool_result-wide.view.txt"):
        reference = f"{root}{SESSION}/{name}"
        assert retrieve(workspace, reference, "admin", context_lines=0).total == ONE_LINE.count("admin")
        shown = retrieve(workspace, reference, line_range={"start": 4, "end": 6}).lines
        assert [(line.number, line.text.strip()) for line in shown] == [
            (4, '"id": 0,'),
            (5, '"name": "user 0",'),
            (6, '"role": "member"'),
        ]


def test_the_tool_answers_from_memory_by_the_reference_that_was_given() -> None:
    workspace = MemoryWorkspace()
    message = {"role": "tool", "tool_call_id": "wide", "content": ONE_LINE}
    reference = asyncio.run(workspace.offload_tool_result("s1", message))
    tool = retrieval_tool(workspace, "s1")
    text = asyncio.run(tool.call(reference=reference, pattern="admin", context_lines=0))
    assert text.count('"role": "admin"') == ONE_LINE.count("admin")


def test_what_was_evicted_is_not_there_and_the_answer_says_why() -> None:
    workspace = MemoryWorkspace(evict_after_turns=1)
    results = [{"role": "tool", "tool_call_id": name, "content": PLAIN + name} for name in ("kept", "gone")]
    kept, gone = [asyncio.run(workspace.offload_tool_result("s1", result)) for result in results]
    for _ in range(3):
        assert retrieve(workspace, kept, "ERROR").total  # which is a use of it
        workspace.next_turn()
    told = asyncio.run(retrieval_tool(workspace, "s1").call(reference=gone))
    assert told.startswith("Error: ")
    assert "evicted" in told
    assert "run the tool again" in told


@pytest.mark.parametrize("make", [retrieval_tool, lookup_tools])
def test_a_path_in_place_of_a_workspace_is_refused_with_what_to_write(
    make: Callable[[Any], object], tmp_path: Path
) -> None:
    for given_path in (str(tmp_path), tmp_path):
        with pytest.raises(ConfigError, match=r'give LocalWorkspace\(".*"\)'):
            make(given_path)
