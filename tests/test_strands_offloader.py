"""`WorkspaceOffloader` in Strands' own agent, with its hooks, and with the storages that others bring."""

import asyncio
import importlib
import inspect
import json
import logging
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("strands", reason="strands-agents is an extra for tests")

from strands import Agent, tool
from strands.hooks import AfterToolCallEvent, BeforeToolCallEvent, HookProvider, HookRegistry
from strands.session.file_session_manager import FileSessionManager
from strands.storage import InMemoryStorage as UnifiedInMemoryStorage
from strands.storage import LocalFileStorage
from strands.vended_plugins.context_offloader import ContextOffloader, FileStorage, InMemoryStorage
from strands_model import ScriptedModel, call

from buoyline import LocalWorkspace, MemoryWorkspace
from buoyline.errors import ConfigError
from buoyline.integrations import strands
from buoyline.integrations.strands import WorkspaceOffloader, WorkspaceStorage
from buoyline.integrations.strands.history import session_of
from buoyline.tokens import default_counter

PNG = b"\x89PNG\r\n\x1a\n" + b"x" * 100
LIMIT = 2_500


def lines(count: int = 1_300) -> str:
    return "".join(f"line {number}\n" for number in range(count))


def tool_giving(content: Sequence[dict[str, Any]] | str, status: str = "success", name: str = "loud") -> Any:
    """Return a tool that gives this content, whatever it is called with."""

    @tool(name=name)
    def loud() -> Any:
        """Say much."""
        blocks = [{"text": content}] if isinstance(content, str) else list(content)
        return {"status": status, "content": blocks}

    return loud


def run(plugin: WorkspaceOffloader, given_tool: Any, *answers: Any, window: int = 200_000, **others: Any) -> Agent:
    """Run an agent that calls the tool once, answers with *answers*, and is done."""
    model = ScriptedModel([[call(given_tool.tool_name)], *answers, "done"], context_window_limit=window)
    agent = Agent(model=model, tools=[given_tool], plugins=[plugin], callback_handler=None, **others)
    agent("go")
    return agent


def result_of(agent: Agent, number: int = 0) -> dict[str, Any]:
    """Return the n-th tool result of the conversation."""
    results: list[Any] = [
        block["toolResult"] for message in agent.messages for block in message["content"] if "toolResult" in block
    ]
    return dict(results[number])


def text_of(agent: Agent, number: int = 0) -> str:
    return "\n".join(block.get("text", "") for block in result_of(agent, number)["content"])


def path_in(text: str) -> Path:
    found = re.search(r"Whole result: (.+)", text)
    assert found is not None
    return Path(found[1])


def retrieving(**options: Any) -> Any:
    """Return an answer that retrieves the first reference of the newest result."""

    def answer(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        text = "\n".join(block.get("text", "") for block in messages[-1]["content"][0]["toolResult"]["content"])
        found = re.search(
            r"(?:Whole result: |references:\]\n  |ref: |bytes, (?:\d+x\d+, )?)(\S+?)(?:\]| \(|\n|$)", text
        )
        assert found is not None, text
        return [call("retrieve_offloaded_content", {"reference": found[1], **options}, "call_2")]

    return answer


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    return tmp_path / "w"


STORAGES: dict[str, Any] = {
    "workspace": LocalWorkspace,
    "memory": lambda _: MemoryWorkspace(),
    "storage": WorkspaceStorage,
    "Strands' memory": lambda _: InMemoryStorage(),
    "Strands' files": lambda path: FileStorage(str(path)),
    "unified memory": lambda _: UnifiedInMemoryStorage(),
    "unified files": lambda path: LocalFileStorage(str(path)),
}


@pytest.fixture(params=STORAGES)
def any_storage(request: pytest.FixtureRequest, workdir: Path) -> Any:
    return STORAGES[request.param](workdir)


@pytest.fixture(params=["workspace", "memory", "Strands' files"])
def storage(request: pytest.FixtureRequest, workdir: Path) -> Any:
    return STORAGES[request.param](workdir)


AS_ON_THEIR_PAGE: dict[str, Any] = {
    "memory": lambda: strands.ContextOffloader(storage=strands.InMemoryStorage()),
    "limits": lambda: strands.ContextOffloader(
        storage=strands.InMemoryStorage(), max_result_tokens=5_000, preview_tokens=2_000
    ),
    "files": lambda: strands.ContextOffloader(storage=strands.FileStorage("./artifacts")),
    "no tool": lambda: strands.ContextOffloader(
        storage=strands.FileStorage("./artifacts"), include_retrieval_tool=False
    ),
}


@pytest.mark.parametrize("made", AS_ON_THEIR_PAGE)
def test_what_strands_page_shows_works_with_the_import_changed(
    made: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    whole = lines(3_000)
    agent = run(AS_ON_THEIR_PAGE[made](), tool_giving(whole))
    found = re.search(r"Whole result: (.+)", text_of(agent))
    assert found is not None
    assert default_counter().count(text_of(agent)) <= (2_000 if made == "limits" else 1_000)
    assert ("retrieve_offloaded_content" in agent.tool_names) is (made != "no tool")
    if made in {"files", "no tool"}:
        shown = subprocess.run(
            ["/usr/bin/env", "grep", "-n", "line 2999", found[1]], capture_output=True, text=True, check=True
        )
        assert shown.stdout == "3000:line 2999\n"
        assert Path(found[1]).is_relative_to(tmp_path / "artifacts")


NAMES_ON_THEIR_PAGES = {
    "strands.vended_plugins.context_offloader": [
        "ContextOffloader",
        "FileStorage",
        "InMemoryStorage",
        "S3Storage",
        "ShouldOffload",
        "Storage",
    ],
    "strands.agent.conversation_manager": [
        "ConversationManager",
        "NullConversationManager",
        "ProactiveCompressionConfig",
        "SlidingWindowConversationManager",
        "SummarizingConversationManager",
    ],
}


@pytest.mark.parametrize("module", NAMES_ON_THEIR_PAGES)
def test_every_name_of_their_pages_is_imported_from_here_as_well(module: str) -> None:
    assert sorted(importlib.import_module(module).__all__) == NAMES_ON_THEIR_PAGES[module]
    assert set(NAMES_ON_THEIR_PAGES[module]) <= set(strands.__all__)
    for name in NAMES_ON_THEIR_PAGES[module]:
        assert getattr(strands, name).__name__ == name
    assert strands.ContextOffloader.name == ContextOffloader.name == "context_offloader"


def test_what_there_is_none_of_ours_of_is_theirs() -> None:
    storage = strands.S3Storage(bucket="my-agent-artifacts", prefix="tool-results/", region_name="eu-west-1")
    assert isinstance(storage, strands.Storage)
    assert isinstance(strands.InMemoryStorage(), strands.Storage)
    strands.ContextOffloader(storage=storage)
    for name in ("NullConversationManager", "SlidingWindowConversationManager", "SummarizingConversationManager"):
        assert issubclass(getattr(strands, name), strands.ConversationManager)


# --- when a result leaves ---


def test_the_documented_parameters_have_their_order_and_defaults() -> None:
    theirs, ours = (inspect.signature(kind).parameters for kind in (ContextOffloader, WorkspaceOffloader))
    documented = ["storage", "max_result_tokens", "preview_tokens", "include_retrieval_tool", "should_offload"]
    assert [(ours[name].default, ours[name].kind) for name in documented] == [
        (theirs[name].default, theirs[name].kind) for name in documented
    ]
    assert list(ours)[:3] == documented[:3]


@pytest.mark.parametrize(("chars", "leaves"), [(LIMIT * 4, False), (LIMIT * 4 + 1, True)])
def test_a_result_leaves_strictly_above_the_limit_as_the_model_counts(chars: int, leaves: bool, storage: Any) -> None:  # noqa: FBT001 - a parameter
    agent = run(WorkspaceOffloader(storage), tool_giving("a" * chars))
    assert (text_of(agent) != "a" * chars) is leaves


def test_a_model_that_counts_by_itself_has_the_last_word(workdir: Path) -> None:
    class Counting(ScriptedModel):
        async def count_tokens(self, messages: Any, *_: Any, **__: Any) -> int:
            return 2_501 if "toolResult" in str(messages) else 10

    model = Counting([[call("loud")], "done"])
    text = "few words " * 60
    agent = Agent(model=model, tools=[tool_giving(text)], plugins=[WorkspaceOffloader(workdir)], callback_handler=None)
    agent("go")
    assert path_in(text_of(agent)).read_text(encoding="utf-8") == text


def test_the_whole_result_is_a_file_of_the_agents_session(workdir: Path) -> None:
    agent = run(WorkspaceOffloader(workdir), tool_giving(lines()))
    path = path_in(text_of(agent))
    assert path.read_text(encoding="utf-8") == lines()
    assert path == workdir / "sessions" / agent.session_id / "tool_result-call_1.txt"
    assert default_counter().count(text_of(agent)) <= 1_000
    assert result_of(agent)["status"] == "success"
    assert result_of(agent)["toolUseId"] == "call_1"


def test_an_error_leaves_like_any_other(workdir: Path) -> None:
    failing = tool_giving(lines(), status="error")
    agent = run(WorkspaceOffloader(workdir), failing)
    assert path_in(text_of(agent)).read_text(encoding="utf-8") == lines()
    assert result_of(agent)["status"] == "error"


@pytest.mark.parametrize("verdict", [True, False])
@pytest.mark.parametrize("is_async", [True, False])
def test_the_users_predicate_has_the_last_word(verdict: bool, is_async: bool, workdir: Path) -> None:  # noqa: FBT001 - parameters
    asked: list[tuple[str, int]] = []

    def decide(tool_name: str, token_count: int, **_: Any) -> Any:
        asked.append((tool_name, token_count))
        return asyncio.sleep(0, verdict) if is_async else verdict

    agent = run(WorkspaceOffloader(workdir, should_offload=decide), tool_giving(lines()))
    assert (text_of(agent) != lines()) is verdict
    assert asked == [("loud", 2_973)]
    run(WorkspaceOffloader(workdir, should_offload=decide), tool_giving("short"))
    assert len(asked) == 1


def test_a_predicate_that_fails_decides_nothing(workdir: Path, caplog: pytest.LogCaptureFixture) -> None:
    def decide(tool_name: str, token_count: int, **_: Any) -> bool:  # noqa: ARG001 - the documented form
        raise RuntimeError("no idea")

    agent = run(WorkspaceOffloader(workdir, should_offload=decide), tool_giving(lines()))
    assert path_in(text_of(agent)).exists()
    assert "no idea" in caplog.text


def test_a_call_that_was_cancelled_leaves_nothing(workdir: Path) -> None:
    class Cancelling(HookProvider):
        def register_hooks(self, registry: HookRegistry, **_: Any) -> None:
            registry.add_callback(BeforeToolCallEvent, self.cancel)

        def cancel(self, event: BeforeToolCallEvent) -> None:
            event.cancel_tool = "no " * 10_000

    agent = run(WorkspaceOffloader(workdir), tool_giving(lines()), hooks=[Cancelling()])
    assert text_of(agent) == "no " * 10_000
    assert not workdir.exists()


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"max_result_tokens": 0}, "max_result_tokens: must be positive"),
        ({"preview_tokens": -1}, "preview_tokens: must be non-negative"),
        ({"max_result_tokens": 100, "preview_tokens": 100}, "less than max_result_tokens"),
        ({"max_media_bytes": 0}, "max_media_bytes: must be positive, or None"),
        ({"storage": object()}, "storage: object is not a storage: give a workspace, a path"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_built(parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        WorkspaceOffloader(**parameters)


# --- what stands there ---


def test_a_small_block_beside_a_large_one_stays(storage: Any) -> None:
    """A note such as the exit code is what the model needs first; Strands' own plugin swallows it."""
    agent = run(WorkspaceOffloader(storage), tool_giving([{"text": lines()}, {"text": "exit code 1"}]))
    assert result_of(agent)["content"][-1] == {"text": "exit code 1"}


def test_the_end_of_a_result_is_seen_as_well(any_storage: Any) -> None:
    agent = run(WorkspaceOffloader(any_storage), tool_giving(lines()))
    assert "line 0" in text_of(agent)
    assert "line 1299" in text_of(agent)


@pytest.mark.parametrize("has_tool", [True, False])
def test_without_the_tool_its_name_is_gone_and_the_way_to_the_file_stays(has_tool: bool, storage: Any) -> None:  # noqa: FBT001 - a parameter
    agent = run(WorkspaceOffloader(storage, include_retrieval_tool=has_tool), tool_giving(lines()))
    assert ("retrieve_offloaded_content" in text_of(agent)) is has_tool
    if not isinstance(storage, MemoryWorkspace):
        assert re.search(r"Grep or read that file|use your available tools on a reference", text_of(agent))
    assert ("retrieve_offloaded_content" in agent.tool_names) is has_tool
    assert re.search(r"Whole result: \S+call_1|\[Stored references:\]\n  \S*call_1_0", text_of(agent))


def test_a_preview_of_no_tokens_is_the_notice_alone(storage: Any) -> None:
    agent = run(WorkspaceOffloader(storage, preview_tokens=0), tool_giving(lines()))
    assert "line 1" not in text_of(agent)
    assert "call_1" in text_of(agent)


def test_a_stub_has_at_most_the_tokens_of_a_preview(any_storage: Any) -> None:
    agent = run(WorkspaceOffloader(any_storage, 2_500, 700), tool_giving(lines()))
    assert 300 < default_counter().count(text_of(agent)) <= 700


def test_json_is_kept_as_such(any_storage: Any) -> None:
    value = {"users": [{"id": number, "name": f"Ünal {number}"} for number in range(1_500)]}
    agent = run(WorkspaceOffloader(any_storage), tool_giving([{"json": value}]), retrieving())
    assert "Ünal 0" in text_of(agent)
    (block,) = result_of(agent, 1)["content"]
    assert block == {"json": value}


@pytest.mark.parametrize(
    ("block", "size"),
    [
        ({"image": {"format": "png", "source": {"bytes": PNG + b"y" * 4_000_000}}}, 4_000_108),
        (
            {"document": {"format": "pdf", "name": "plan", "source": {"bytes": b"%PDF-1.7" + b"y" * 5_000_000}}},
            5_000_008,
        ),
    ],
)
def test_media_alone_leave_by_their_size_and_come_back_as_media(storage: Any, block: dict[str, Any], size: int) -> None:
    """Strands' heuristic counts them as nothing, so its own plugin never offloads them."""
    agent = run(WorkspaceOffloader(storage), tool_giving([block]), retrieving())
    (line,) = result_of(agent)["content"]
    assert re.match(r"\[(image: png|document: pdf, plan), [\d,]+ bytes", line["text"])
    assert f"{size:,}" in line["text"].replace(str(size), f"{size:,}")
    (kind,) = block
    (found,) = result_of(agent, 1)["content"]
    assert found[kind]["source"] == block[kind]["source"]


def test_a_picture_that_a_provider_takes_stays_for_the_model_to_see(workdir: Path) -> None:
    image = {"format": "png", "source": {"bytes": PNG + b"y" * 1_000_000}}
    content: list[dict[str, Any]] = [{"image": image}, {"text": "as of today"}]
    assert result_of(run(WorkspaceOffloader(workdir), tool_giving(content)))["content"] == content
    large = run(WorkspaceOffloader(workdir, max_media_bytes=500_000), tool_giving(content))
    assert result_of(large)["content"][1:] == content[1:]
    assert result_of(large)["content"][0]["text"].startswith("[image: png, 1,000,108 bytes")


def test_media_that_are_elsewhere_stay(storage: Any) -> None:
    block = {"document": {"format": "pdf", "name": "plan", "source": {"location": {"type": "s3", "uri": "s3://b/p"}}}}
    agent = run(WorkspaceOffloader(storage), tool_giving([{"text": lines()}, block, {"hologram": 1}]))
    assert result_of(agent)["content"][1:] == [block, {"hologram": 1}]


class Shelf:
    """A storage as a user writes one after the documentation: what it takes is all that is asked of it."""

    def __init__(self) -> None:
        self.kept: dict[str, tuple[bytes, str]] = {}

    async def store(self, key: str, content: bytes, content_type: str = "text/plain") -> str:
        self.kept[f"shelf/{key}"] = (content, content_type)
        return f"shelf/{key}"

    async def retrieve(self, reference: str) -> tuple[bytes, str]:
        return self.kept[reference]


def test_each_block_goes_to_a_users_own_storage_by_itself_with_its_type() -> None:
    shelf, value = Shelf(), {"rows": list(range(2_000))}
    plan = b"%PDF-1.7" + b"y" * 5_000_000
    document = {"format": "pdf", "name": "plan", "source": {"bytes": plan}}
    content: list[dict[str, Any]] = [{"text": lines()}, {"json": value}, {"document": document}]
    agent = run(WorkspaceOffloader(shelf), tool_giving(content), retrieving())
    assert [kind for _, kind in shelf.kept.values()] == ["text/plain", "application/json", "application/pdf"]
    assert list(shelf.kept) == [f"shelf/call_1_{number}" for number in range(3)]
    stored = [kept for kept, _ in shelf.kept.values()]
    assert (stored[0].decode(), json.loads(stored[1]), stored[2]) == (lines(), value, plan)
    assert all(reference in text_of(agent) for reference in shelf.kept)
    assert text_of(agent, 1) == lines()


def test_code_that_calls_a_tool_gets_the_stub_as_with_strands_own_plugin(workdir: Path) -> None:
    agent = Agent(
        model=ScriptedModel(["done"]),
        tools=[tool_giving(lines())],
        plugins=[WorkspaceOffloader(workdir)],
        callback_handler=None,
    )
    found: Any = agent.tool.loud()
    assert path_in(found["content"][0]["text"]).read_text(encoding="utf-8") == lines()


# --- what goes wrong ---


class Failing:
    """A storage that fails from the n-th call on."""

    def __init__(self, succeeding: int) -> None:
        self.succeeding, self.stored = succeeding, list[str]()

    async def store(self, key: str, content: bytes, content_type: str = "text/plain") -> str:
        if len(self.stored) >= self.succeeding:
            raise OSError(28, "No space left on device")
        self.stored.append(key)
        return key

    async def retrieve(self, reference: str) -> tuple[bytes, str]:
        raise KeyError(reference)


@pytest.mark.parametrize("succeeding", [0, 1])
def test_a_storage_that_fails_leaves_the_result_as_it_is(succeeding: int, caplog: pytest.LogCaptureFixture) -> None:
    storage = Failing(succeeding)
    agent = run(WorkspaceOffloader(storage), tool_giving([{"text": lines()}, {"text": lines()}]))
    assert result_of(agent)["content"] == [{"text": lines()}, {"text": lines()}]
    assert "No space left" in caplog.text


def test_a_workspace_that_cannot_be_written_leaves_the_result_as_it_is(
    workdir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    workdir.write_text("a file stands there", encoding="utf-8")
    agent = run(WorkspaceOffloader(workdir), tool_giving(lines()))
    assert text_of(agent) == lines()
    assert "stays in the context" in caplog.text


def test_a_hook_of_the_users_sees_the_result_first_and_what_it_takes_out_reaches_no_disk(workdir: Path) -> None:
    """Hooks that are given to the agent run behind Strands' own plugin: there the secret is on disk by then."""

    class Redacting(HookProvider):
        def register_hooks(self, registry: HookRegistry, **_: Any) -> None:
            registry.add_callback(AfterToolCallEvent, self.redact)

        def redact(self, event: AfterToolCallEvent) -> None:
            blocks = [{"text": block["text"].replace("hunter2", "***")} for block in event.result["content"]]
            event.result = {**event.result, "content": blocks}  # type: ignore[typeddict-item]

    agent = run(WorkspaceOffloader(workdir), tool_giving(lines() + "key: hunter2"), hooks=[Redacting()])
    assert "key: ***" in text_of(agent)
    assert not [path for path in workdir.rglob("*") if path.is_file() and b"hunter2" in path.read_bytes()]


# --- retrieving ---


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (
            {"pattern": "line 12(98|99)", "context_lines": 0},
            "[2 matches for /line 12(98|99)/]\n\n> 1299| line 1298\n> 1300| line 1299",
        ),
        ({"line_range": {"start": 10, "end": 11}}, "[Lines 10-11 of 1300]\n\n  10| line 9\n  11| line 10"),
        ({"pattern": "line 1", "line_range": {"start": 2, "end": 3}, "context_lines": 0}, "> 2| line 1"),
        ({"context_lines": 2}, "1| line 0\n  2| line 1"),
        ({"pattern": "line 700$"}, "  696| line 695\n  697| line 696"),
        ({"pattern": "LINE 700|line 7[0"}, "No matches found"),
        ({"pattern": "line"}, "[output truncated, narrow your"),
        ({"pattern": "[", "context_lines": 0}, "No matches found"),
        ({"pattern": "(.*a){12}$"}, "No matches found"),
    ],
)
def test_the_documented_ways_of_retrieving_work_on_every_storage(
    options: dict[str, Any], shown: str, storage: Any
) -> None:
    agent = run(WorkspaceOffloader(storage), tool_giving(lines()), retrieving(**options))
    assert result_of(agent, 1)["status"] == "success"
    assert shown in text_of(agent, 1)


def test_without_options_all_of_it_comes_back_and_stays(any_storage: Any) -> None:
    agent = run(WorkspaceOffloader(any_storage), tool_giving(lines()), retrieving())
    assert text_of(agent, 1) == lines()


def test_what_would_flood_the_window_comes_back_by_its_first_lines(storage: Any) -> None:
    agent = run(WorkspaceOffloader(storage), tool_giving(lines()), retrieving(), window=10_000)
    assert "line 0" in text_of(agent, 1)
    assert default_counter().count(text_of(agent, 1)) <= 2_500


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"reference": "nothing"}, "nothing"),
        ({}, "reference: is required"),
        ({"reference": "x", "session": "y"}, "takes reference, pattern"),
    ],
)
def test_a_call_that_cannot_be_answered_is_an_error_result(arguments: dict[str, Any], words: str, storage: Any) -> None:
    agent = run(
        WorkspaceOffloader(storage), tool_giving(lines()), [call("retrieve_offloaded_content", arguments, "c2")]
    )
    assert result_of(agent, 1)["status"] == "error"
    assert words in text_of(agent, 1)


@pytest.mark.parametrize("name", [".env", "link.txt", "../secret.txt", "sessions/other/tool_result-call_1.txt"])
def test_a_model_gets_nothing_of_the_directory_but_what_was_offloaded_for_it(name: str, workdir: Path) -> None:
    """Strands' file storage gives it whatever lies there, and follows links out of it."""
    run(WorkspaceOffloader(workdir, session_id="other"), tool_giving("hunter2\n" + lines()))
    (workdir / ".env").write_text("hunter2", encoding="utf-8")
    (workdir.parent / "secret.txt").write_text("hunter2", encoding="utf-8")
    (workdir / "link.txt").symlink_to(workdir.parent / "secret.txt")
    for reference in (name, str(workdir / name)):
        agent = run(
            WorkspaceOffloader(workdir),
            tool_giving(lines()),
            [call("retrieve_offloaded_content", {"reference": reference}, "c2")],
        )
        assert result_of(agent, 1)["status"] == "error"
        assert "hunter2" not in text_of(agent, 1)


@pytest.mark.parametrize("options", [{"pattern": "x"}, {"line_range": {"start": 1, "end": 2}}])
def test_lines_of_a_picture_cannot_be_asked_for(options: dict[str, Any], storage: Any) -> None:
    block = {"image": {"format": "png", "source": {"bytes": PNG + b"y" * 4_000_000}}}
    agent = run(WorkspaceOffloader(storage), tool_giving([block]), retrieving(**options))
    assert result_of(agent, 1)["status"] == "error"
    assert "cannot search binary content (image/png)" in text_of(agent, 1)


def test_the_lookups_are_tools_and_their_answers_stay(workdir: Path) -> None:
    look = [call("grep", {"pattern": "line 1299"}, "call_2")]
    agent = run(WorkspaceOffloader(workdir, 100, 50), tool_giving(lines()), look)
    assert {"read", "grep", "search"} <= set(agent.tool_names)
    assert "1300" in text_of(agent, 1)
    assert "Whole result" not in text_of(agent, 1)


def test_a_tool_of_the_agents_own_keeps_its_name(workdir: Path) -> None:
    mine = tool_giving(lines(), name="grep")
    agent = run(WorkspaceOffloader(workdir), mine)
    assert agent.tool_registry.registry["grep"] is mine
    assert path_in(text_of(agent)).exists()
    assert (
        "grep"
        not in Agent(
            model=ScriptedModel(["done"]), plugins=[WorkspaceOffloader(workdir, include_lookup_tools=False)]
        ).tool_names
    )


def test_what_a_shell_reads_back_is_not_stored_again(workdir: Path) -> None:
    @tool
    def shell(command: str) -> str:
        """Run a command."""
        return Path(command.removeprefix("cat ")).read_text(encoding="utf-8")

    def cat(messages: list[dict[str, Any]]) -> Any:
        return [
            call(
                "shell",
                {"command": f"cat {path_in(messages[-1]['content'][0]['toolResult']['content'][0]['text'])}"},
                "c2",
            )
        ]

    for window, is_shown in ((200_000, True), (10_000, False)):
        model = ScriptedModel([[call("loud")], cat, "done"], context_window_limit=window)
        tools = [tool_giving(lines()), shell]
        agent = Agent(model=model, tools=tools, plugins=[WorkspaceOffloader(workdir)], callback_handler=None)
        agent("go")
        assert (text_of(agent, 1) == lines()) is is_shown
        assert is_shown or "read back at once" in text_of(agent, 1)
        assert len(list((workdir / "sessions" / agent.session_id).glob("tool_result-*.txt"))) == 1


# --- sessions ---


def test_equal_call_ids_of_two_agents_and_of_one_conversation_lead_to_their_own_results(workdir: Path) -> None:
    plugin = WorkspaceOffloader(workdir)
    agents = [run(plugin, tool_giving(name + lines()), agent_id=name) for name in ("one", "two")]
    for agent, name in zip(agents, ("one", "two"), strict=True):
        assert path_in(text_of(agent)).read_text(encoding="utf-8").startswith(name)
    sizes = iter([1_300, 1_400])

    @tool
    def counted() -> str:
        """Say something else each time."""
        return lines(next(sizes))

    agent = run(plugin, counted, [call("counted")])
    assert [path_in(text_of(agent, at)).read_text(encoding="utf-8") for at in (0, 1)] == [lines(1_300), lines(1_400)]


def test_one_agents_tool_does_not_reach_anothers_results(workdir: Path) -> None:
    plugin = WorkspaceOffloader(workdir)
    path = path_in(text_of(run(plugin, tool_giving(lines()))))
    look = [call("retrieve_offloaded_content", {"reference": str(path)}, "call_2")]
    agent = run(plugin, tool_giving("other " + lines()), look)
    assert result_of(agent, 1)["status"] == "error"


@pytest.mark.parametrize("kept", ["workspace", "memory", "unified files", "unified memory", "Strands' files"])
def test_an_agent_with_its_old_messages_retrieves_its_old_results(kept: str, workdir: Path) -> None:
    """Without a session manager Strands draws a session id for each agent object."""
    storage = STORAGES[kept](workdir)
    before = run(WorkspaceOffloader(storage), tool_giving(lines()))
    saved = json.loads(json.dumps(before.messages))
    looks = [lambda messages, at=at: retrieving(pattern="line 1299")(messages[at : at + 1]) for at in (2, 2)]
    after = Agent(
        model=ScriptedModel([looks[0], [call("loud", {}, "call_3")], looks[1], "done"]),
        tools=[tool_giving("other " + lines())],
        plugins=[WorkspaceOffloader(storage if "memory" in kept else STORAGES[kept](workdir))],
        messages=saved,
        callback_handler=None,
    )
    after("again")
    assert session_of(after) != session_of(before)
    for number in (1, 3):  # before and after it has results of its own
        assert result_of(after, number)["status"] == "success"
        assert "> 1300| line 1299" in text_of(after, number)


def test_a_path_or_a_forged_stub_opens_no_session_of_somebody_else(workdir: Path) -> None:
    other = run(WorkspaceOffloader(workdir, session_id="of-somebody-else"), tool_giving(lines()))
    forged = text_of(other).partition("\n\n")[0] + "\n\n1: guessed\n"
    looks: list[Any] = [
        [call("retrieve_offloaded_content", {"reference": str(path_in(text_of(other)))}, "call_2")],
        [call("grep", {"pattern": "line 12"}, "call_3")],
        [call("read", {"path": str(path_in(text_of(other)))}, "call_4")],
    ]
    model = ScriptedModel([[call("quiet")], *looks, "done"])
    tools = [tool_giving(forged, name="quiet")]
    agent = Agent(model=model, tools=tools, plugins=[WorkspaceOffloader(workdir)], callback_handler=None)
    agent(f"Read {path_in(text_of(other))}: {text_of(other)}")
    assert result_of(agent, 1)["status"] == "error"
    assert all("line 12" not in text_of(agent, number) for number in (1, 2, 3))
    assert "cannot be read from here" in text_of(agent, 2)


def test_every_reference_in_a_restored_session_leads_to_its_result(tmp_path: Path, workdir: Path) -> None:
    """Where the storage is in memory, what a persisted conversation refers to is gone with the process."""
    session = {"session_id": "s1", "storage_dir": str(tmp_path / "sessions")}
    calls = [[call("loud", {}, f"call_{number}")] for number in (2, 3)]
    run(WorkspaceOffloader(workdir), tool_giving(lines()), *calls, session_manager=FileSessionManager(**session))
    looks = [lambda messages, at=at: retrieving(pattern="line 1299")(messages[at : at + 1]) for at in (2, 4, 6)]
    agent = Agent(
        model=ScriptedModel([*looks, "done"]),
        plugins=[WorkspaceOffloader(workdir)],
        session_manager=FileSessionManager(**session),
        callback_handler=None,
    )
    agent("again")
    assert session_of(agent) == "s1"
    for number in (3, 4, 5):
        assert "> 1300| line 1299" in text_of(agent, number)


def test_a_session_may_be_named(workdir: Path) -> None:
    agent = run(WorkspaceOffloader(workdir, session_id="release-7"), tool_giving(lines()))
    assert "/sessions/release-7/" in text_of(agent)
    agent = run(WorkspaceOffloader(WorkspaceStorage(workdir, session_id="mine")), tool_giving(lines()))
    assert "/sessions/mine/" in text_of(agent)


def test_the_agents_own_storage_is_used_where_none_is_given(
    workdir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    agent = run(WorkspaceOffloader(), tool_giving(lines()), storage=WorkspaceStorage(workdir))
    assert path_in(text_of(agent)).is_relative_to(workdir)
    assert caplog.text == ""
    agent = run(WorkspaceOffloader(), tool_giving(lines()), retrieving(pattern="line 1299"))
    assert "> 1300| line 1299" in text_of(agent, 1)
    assert [path.name for path in tmp_path.iterdir()] == [workdir.name]
    assert caplog.text.count("end with the process") == 1


def test_the_turns_of_what_is_kept_in_memory_are_the_agents() -> None:
    workspace = MemoryWorkspace(evict_after_turns=2)
    small: list[Any] = [[call("quiet", {}, f"small_{number}")] for number in range(4)]
    model = ScriptedModel([[call("loud")], *small, lambda messages: retrieving()(messages[2:3]), "done"])
    tools = [tool_giving(lines()), tool_giving("ok", name="quiet")]
    agent = Agent(model=model, tools=tools, plugins=[WorkspaceOffloader(workspace)], callback_handler=None)
    agent("go")
    assert result_of(agent, 5)["status"] == "error"


def test_our_memory_ages_under_strands_own_plugin() -> None:
    storage = strands.InMemoryStorage(evict_after_turns=2)
    small: list[Any] = [[call("quiet", {}, f"small_{number}")] for number in range(4)]
    look = lambda messages: retrieving()(messages[2:3])  # noqa: E731 - an answer, used twice
    model = ScriptedModel([[call("loud")], [call("quiet", {}, "s")], look, *small, look, "done"])
    tools = [tool_giving(lines()), tool_giving("ok", name="quiet")]
    plugin = ContextOffloader(storage=storage)
    agent = Agent(model=model, tools=tools, plugins=[plugin], callback_handler=None)
    agent("go")
    assert result_of(agent, 2)["status"] == "success"
    assert result_of(agent, 7)["status"] == "error"
    with pytest.raises(ValueError, match="cannot be shared"):
        Agent(model=ScriptedModel(["done"]), plugins=[plugin])


@pytest.mark.parametrize(("cycles", "is_there"), [(2, False), (20, True), (None, True)])
async def test_a_unified_storage_is_evicted_after_the_cycles_that_were_named(
    cycles: int | None,
    is_there: bool,  # noqa: FBT001 - a parameter
) -> None:
    storage = UnifiedInMemoryStorage()
    small: list[Any] = [[call("quiet", {}, f"small_{number}")] for number in range(5)]
    model = ScriptedModel([[call("loud")], *small, "done"])
    tools = [tool_giving(lines()), tool_giving("ok", name="quiet")]
    plugin = WorkspaceOffloader(storage, evict_after_cycles=cycles)
    await Agent(model=model, tools=tools, plugins=[plugin], callback_handler=None).invoke_async("go")
    assert bool(await storage.list()) is is_there
    with pytest.raises(ValueError, match="evict_after_cycles"):
        WorkspaceOffloader(storage, evict_after_cycles=0)


def test_parallel_calls_are_each_stored(workdir: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    model = ScriptedModel([[call("loud", {}, f"call_{number}") for number in range(5)], "done"])
    agent = Agent(
        model=model, tools=[tool_giving(lines())], plugins=[WorkspaceOffloader(workdir)], callback_handler=None
    )
    agent("go")
    paths = {path_in(text_of(agent, number)) for number in range(5)}
    assert len(paths) == 5
    assert all(path.read_text(encoding="utf-8") == lines() for path in paths)
