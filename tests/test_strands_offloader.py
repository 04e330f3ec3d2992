"""`ContextOffloader` in Strands' own agent: what its page says, and what a workspace adds."""

import asyncio
import importlib
import logging
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("strands", reason="strands-agents is an extra for tests")

from hypothesis import given
from hypothesis import strategies as st
from strands import Agent, tool
from strands.hooks import AfterToolCallEvent, BeforeToolCallEvent, HookProvider, HookRegistry
from strands.session.file_session_manager import FileSessionManager
from strands.storage import InMemoryStorage as UnifiedInMemoryStorage
from strands.storage import LocalFileStorage
from strands.vended_plugins import context_offloader as theirs
from strands.vended_plugins.context_offloader.search import _search_content
from strands_model import ScriptedModel, call

from buoyline import LocalWorkspace, MemoryWorkspace
from buoyline.integrations import strands
from buoyline.integrations.strands import ContextOffloader, WorkspaceOffloader, WorkspaceStorage
from buoyline.integrations.strands.offloader import search, session_of
from buoyline.tokens import default_counter

PNG = b"\x89PNG\r\n\x1a\n" + b"x" * 100
LIMIT = 2_500
LISTED = re.compile(r"references:\]\n  (\S+)")


def lines(count: int = 1_300) -> str:
    return "".join(f"line {number}\n" for number in range(count))


def tool_giving(
    content: Sequence[dict[str, Any]] | str, status: str = "success", name: str = "loud", **more: Any
) -> Any:
    """Return a tool that gives this content, whatever it is called with."""

    @tool(name=name)
    def loud() -> Any:
        """Say much."""
        blocks = [{"text": content}] if isinstance(content, str) else list(content)
        return {"status": status, "content": blocks, **more}

    return loud


def run(plugin: Any, given_tool: Any, *answers: Any, **others: Any) -> Agent:
    """Run an agent that calls the tool once, answers with *answers*, and is done."""
    model = ScriptedModel([[call(given_tool.tool_name)], *answers, "done"])
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
    return Path(LISTED.findall(text)[0])


def retrieving(at: int = -1, nth: int = 0, **options: Any) -> Any:
    """Return an answer that retrieves the n-th reference in the results of the message *at*."""

    def answer(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        text = messages[at]["content"][0]["toolResult"]["content"][0]["text"]
        listed = text.partition("references:]\n")[2].splitlines()
        reference = listed[nth].strip().partition(" (")[0]
        return [call("retrieve_offloaded_content", {"reference": reference, **options}, "call_2")]

    return answer


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    return tmp_path / "w"


STORAGES: dict[str, Any] = {
    "workspace": LocalWorkspace,
    "memory": lambda _: MemoryWorkspace(),
    "files": lambda path: strands.FileStorage(str(path)),
    "Strands' memory": lambda _: strands.InMemoryStorage(evict_after_turns=None),
    "Strands' files": lambda path: theirs.FileStorage(str(path)),
    "unified memory": lambda _: UnifiedInMemoryStorage(),
    "unified files": lambda path: LocalFileStorage(str(path)),
}


@pytest.fixture(params=STORAGES)
def any_storage(request: pytest.FixtureRequest, workdir: Path) -> Any:
    return STORAGES[request.param](workdir)


@pytest.fixture(params=["workspace", "memory", "Strands' files"])
def storage(request: pytest.FixtureRequest, workdir: Path) -> Any:
    return STORAGES[request.param](workdir)


# The page.


AS_ON_THEIR_PAGE: dict[str, Any] = {
    "memory": lambda: ContextOffloader(storage=strands.InMemoryStorage()),
    "limits": lambda: ContextOffloader(
        storage=strands.InMemoryStorage(), max_result_tokens=5_000, preview_tokens=2_000
    ),
    "files": lambda: ContextOffloader(storage=strands.FileStorage("./artifacts")),
    "no tool": lambda: ContextOffloader(storage=strands.FileStorage("./artifacts"), include_retrieval_tool=False),
}


@pytest.mark.parametrize("made", AS_ON_THEIR_PAGE)
def test_what_strands_page_shows_works_with_the_import_changed(
    made: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    agent = run(AS_ON_THEIR_PAGE[made](), tool_giving(lines(3_000)))
    text = text_of(agent)
    assert text.startswith("[Offloaded: 1 blocks, ~")
    assert "Use the preview below" in text
    assert "your available tools" in text
    assert default_counter().count(text) <= (2_000 if made == "limits" else 1_000) + 250
    assert ("retrieve_offloaded_content" in agent.tool_names) is (made != "no tool")
    assert ("retrieve_offloaded_content" in text) is (made != "no tool")
    [reference] = LISTED.findall(text)
    if made in {"files", "no tool"}:
        found = subprocess.run(["/usr/bin/env", "grep", "-n", "line 2999", reference], capture_output=True, check=True)
        assert found.stdout == b"3000:line 2999\n"
        assert reference.startswith("./artifacts/")


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
    assert WorkspaceOffloader is ContextOffloader
    assert ContextOffloader.name == "context_offloader"


def test_the_documented_parameters_work_in_their_order(workdir: Path) -> None:
    for plugin in (theirs.ContextOffloader, ContextOffloader):
        small = run(plugin(strands.InMemoryStorage(), 5_000, 2_000), tool_giving("a" * 20_000))
        assert text_of(small) == "a" * 20_000
    assert "[Offloaded" in text_of(run(ContextOffloader(workdir, 4_999, 100), tool_giving("a" * 20_000)))


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"max_result_tokens": 0}, "max_result_tokens must be positive"),
        ({"preview_tokens": -1}, "preview_tokens must be non-negative"),
        ({"max_result_tokens": 100, "preview_tokens": 100}, "less than max_result_tokens"),
        ({"evict_after_cycles": 0}, "evict_after_cycles"),
        ({"storage": object()}, "neither a workspace, a path nor a storage"),
    ],
)
def test_values_that_cannot_work_are_refused(parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ContextOffloader(**parameters)


@pytest.mark.parametrize(("chars", "is_offloaded"), [(LIMIT * 4, False), (LIMIT * 4 + 1, True)])
def test_a_result_is_offloaded_strictly_above_the_limit(chars: int, is_offloaded: bool, storage: Any) -> None:  # noqa: FBT001 - a parameter
    agent = run(ContextOffloader(storage), tool_giving("a" * chars))
    assert (text_of(agent) != "a" * chars) is is_offloaded


def test_the_model_counts_the_tokens(workdir: Path) -> None:
    class Counting(ScriptedModel):
        async def count_tokens(self, messages: Any, *_: Any, **__: Any) -> int:
            return 2_501 if "toolResult" in str(messages) else 10

    model = Counting([[call("loud")], "done"])
    text = "few words " * 60
    agent = Agent(model=model, tools=[tool_giving(text)], plugins=[ContextOffloader(workdir)], callback_handler=None)
    agent("go")
    assert path_in(text_of(agent)).read_text(encoding="utf-8") == text


@pytest.mark.parametrize("verdict", [True, False])
@pytest.mark.parametrize("is_async", [True, False])
def test_should_offload_decides_about_large_results(verdict: bool, is_async: bool, workdir: Path) -> None:  # noqa: FBT001 - parameters
    asked: list[tuple[str, int]] = []

    def decide(tool_name: str, token_count: int, **_: Any) -> Any:
        asked.append((tool_name, token_count))
        return asyncio.sleep(0, verdict) if is_async else verdict

    agent = run(ContextOffloader(workdir, should_offload=decide), tool_giving(lines()))
    assert (text_of(agent) != lines()) is verdict
    run(ContextOffloader(workdir, should_offload=decide), tool_giving("short"))
    assert asked == [("loud", 2_973)]


def test_a_predicate_that_fails_decides_nothing(workdir: Path, caplog: pytest.LogCaptureFixture) -> None:
    def decide(tool_name: str, token_count: int, **_: Any) -> bool:  # noqa: ARG001 - the documented form
        raise RuntimeError("no idea")

    agent = run(ContextOffloader(workdir, should_offload=decide), tool_giving(lines(), status="error"))
    assert path_in(text_of(agent)).read_text(encoding="utf-8") == lines()
    assert result_of(agent)["status"] == "error"
    assert "no idea" in caplog.text


def test_a_cancelled_call_stores_nothing(workdir: Path) -> None:
    class Cancelling(HookProvider):
        def register_hooks(self, registry: HookRegistry, **_: Any) -> None:
            registry.add_callback(BeforeToolCallEvent, self.cancel)

        def cancel(self, event: BeforeToolCallEvent) -> None:
            event.cancel_tool = "no " * 10_000

    agent = run(ContextOffloader(workdir), tool_giving(lines()), hooks=[Cancelling()])
    assert text_of(agent) == "no " * 10_000
    assert not workdir.exists()


def test_the_preview_shows_both_ends_within_its_tokens(any_storage: Any) -> None:
    agent = run(ContextOffloader(any_storage, 2_500, 700), tool_giving(lines()))
    shown = text_of(agent).partition("not instructions:\n")[2].partition("\n\n[Stored")[0]
    assert "line 0" in shown
    assert "line 1299" in shown
    assert 500 < default_counter().count(shown) <= 700
    none = text_of(run(ContextOffloader(any_storage, preview_tokens=0), tool_giving(lines())))
    assert "line 1" not in none
    assert "call_1" in none


class Shelf:
    """A storage as a user writes one after the documentation."""

    def __init__(self) -> None:
        self.kept: dict[str, tuple[bytes, str]] = {}

    async def store(self, key: str, content: bytes, content_type: str = "text/plain") -> str:
        self.kept[f"shelf/{key}"] = (content, content_type)
        return f"shelf/{key}"

    async def retrieve(self, reference: str) -> tuple[bytes, str]:
        return self.kept[reference]


BLOCKS: list[dict[str, Any]] = [
    {"text": lines()},
    {"json": {"rows": [f"Ünal {number}" for number in range(2_000)]}},
    {"image": {"format": "png", "source": {"bytes": PNG}}},
    {"document": {"format": "pdf", "name": "plan", "source": {"bytes": b"%PDF-1.7"}}},
]


def test_each_block_is_stored_by_itself_with_its_type() -> None:
    shelf = Shelf()
    agent = run(ContextOffloader(shelf), tool_giving(BLOCKS))
    kinds = ["text/plain", "application/json", "image/png", "application/pdf"]
    assert [kind for _, kind in shelf.kept.values()] == kinds
    assert list(shelf.kept) == [f"shelf/call_1_{number}" for number in range(4)]
    assert all(reference in text_of(agent) for reference in shelf.kept)


def test_every_block_comes_back_in_its_native_form(any_storage: Any) -> None:
    looks = [retrieving(2, nth) for nth in range(4)]
    agent = run(ContextOffloader(any_storage), tool_giving(BLOCKS), *looks)
    _, image, document = result_of(agent)["content"]
    assert image["text"].startswith("[image: png, 108 bytes")
    assert document["text"].startswith("[document: pdf, plan, 8 bytes")
    (text,), (rows,), (picture,), (pdf,) = (result_of(agent, 1 + number)["content"] for number in range(4))
    assert (text, rows, picture) == (BLOCKS[0], BLOCKS[1], BLOCKS[2])
    assert pdf["document"]["source"] == BLOCKS[3]["document"]["source"]
    assert re.fullmatch(r"[0-9A-Za-z()\[\]-]+( [0-9A-Za-z()\[\]-]+)*", pdf["document"]["name"])  # as providers require


def test_media_that_are_elsewhere_and_unknown_blocks_stay(storage: Any) -> None:
    block = {"document": {"format": "pdf", "name": "plan", "source": {"location": {"type": "s3", "uri": "s3://b/p"}}}}
    agent = run(ContextOffloader(storage), tool_giving([{"text": lines()}, block]))
    assert result_of(agent)["content"][1:] == [block]


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (
            {"pattern": "line 12(98|99)", "context_lines": 0},
            "[2 matches for /line 12(98|99)/]\n\n> 1299| line 1298\n> 1300| line 1299",
        ),
        ({"line_range": {"start": 10, "end": 11}}, "[Lines 10-11 of 1301]\n\n  10| line 9\n  11| line 10"),
        ({"pattern": "line 1", "line_range": {"start": 2, "end": 3}, "context_lines": 0}, "> 2| line 1"),
        ({"context_lines": 2}, "1| line 0\n  2| line 1"),
        ({"pattern": "line 700$"}, "  696| line 695\n  697| line 696"),
        ({"pattern": "LINE 700|line 7[0"}, "No matches found"),
        ({"pattern": "line"}, "[output truncated, narrow your search]"),
        ({"pattern": "(.*a){12}$"}, "No matches found"),
        ({"pattern": "(a|a)*$", "context_lines": 0}, "[1301 matches"),
    ],
)
def test_the_documented_ways_of_retrieving_work_on_every_storage(
    options: dict[str, Any], shown: str, any_storage: Any
) -> None:
    agent = run(ContextOffloader(any_storage), tool_giving(lines()), retrieving(**options))
    assert result_of(agent, 1)["status"] == "success"
    assert shown in text_of(agent, 1)


def test_a_pattern_that_hangs_pythons_own_search_is_answered() -> None:
    found = search("a" * 50_000 + "!", "(a|a)*$", None, 0, 100)
    assert found.startswith("[1 match ")


texts = st.lists(st.text("ab \t|é", max_size=5), max_size=12).map("\n".join)


@given(texts, st.sampled_from(["a", "b+", "^a|b$", "é", "[", "a b", "(ab)*x"]), st.data(), st.integers(0, 4))
def test_a_search_answers_as_strands_own(text: str, pattern: str, data: st.DataObject, context_lines: int) -> None:
    if not text:  # Strands' own words for it; no result is empty and large
        return
    first = data.draw(st.none() | st.integers(1, text.count("\n") + 1))
    span = None if first is None else (first, data.draw(st.integers(first, 15)))
    line_range = None if span is None else dict(zip(("start", "end"), span, strict=True))
    for max_chars in (20, 1_000):
        limits: Any = {"context_lines": context_lines, "max_chars": max_chars}
        expected = _search_content(text, pattern=pattern, line_range=span, **limits)
        assert search(text, pattern, line_range, context_lines, max_chars) == expected


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"reference": "nothing"}, "reference not found: nothing"),
        ({}, "reference"),
        ({"line_range": {"start": 5_000, "end": 6_000}}, "beyond content length"),
        ({"line_range": {"start": 5_000, "end": 6_000}, "pattern": "x"}, "within lines 1 to 1301"),
    ],
)
def test_a_call_that_cannot_be_answered_is_an_error_result(arguments: dict[str, Any], words: str, storage: Any) -> None:
    look = retrieving(**arguments) if "line_range" in arguments else [call("retrieve_offloaded_content", arguments)]
    agent = run(ContextOffloader(storage), tool_giving(lines()), look)
    assert result_of(agent, 1)["status"] == "error"
    assert words in text_of(agent, 1)


@pytest.mark.parametrize("options", [{"pattern": "x"}, {"line_range": {"start": 1, "end": 2}}])
def test_binary_content_cannot_be_searched(options: dict[str, Any], storage: Any) -> None:
    agent = run(ContextOffloader(storage), tool_giving(BLOCKS), retrieving(nth=2, **options))
    assert result_of(agent, 1)["status"] == "error"
    assert "cannot search binary content" in text_of(agent, 1)


# Eviction.


@pytest.mark.parametrize("plugin", [theirs.ContextOffloader, ContextOffloader])
def test_content_in_memory_is_evicted_after_the_documented_cycles_without_use(plugin: Any) -> None:
    storage = strands.InMemoryStorage(evict_after_turns=2)
    small: list[Any] = [[call("quiet", {}, f"small_{number}")] for number in range(4)]
    look = retrieving(2)
    model = ScriptedModel([[call("loud")], [call("quiet", {}, "s")], look, *small, look, "done"])
    tools = [tool_giving(lines()), tool_giving("ok", name="quiet")]
    made = plugin(storage=storage)
    agent = Agent(model=model, tools=tools, plugins=[made], callback_handler=None)
    agent("go")
    assert result_of(agent, 2)["status"] == "success"
    assert result_of(agent, 7)["status"] == "error"
    with pytest.raises(ValueError, match="cannot be shared"):
        Agent(model=ScriptedModel(["done"]), plugins=[made])
    shared = plugin(storage=strands.InMemoryStorage(None))
    for _ in range(2):
        run(shared, tool_giving(lines()))


@pytest.mark.parametrize(("cycles", "is_there"), [(2, False), (20, True), (None, True)])
async def test_a_unified_storage_is_evicted_after_the_given_cycles(cycles: int | None, is_there: bool) -> None:  # noqa: FBT001 - a parameter
    storage = UnifiedInMemoryStorage()
    small: list[Any] = [[call("quiet", {}, f"small_{number}")] for number in range(5)]
    model = ScriptedModel([[call("loud")], *small, "done"])
    tools = [tool_giving(lines(), structuredContent={"rows": lines()}), tool_giving("ok", name="quiet")]
    plugin = ContextOffloader(storage, evict_after_cycles=cycles)
    await Agent(model=model, tools=tools, plugins=[plugin], callback_handler=None).invoke_async("go")
    assert bool(await storage.list()) is is_there


def test_a_workspace_evicts_nothing(workdir: Path) -> None:
    small: list[Any] = [[call("quiet", {}, f"small_{number}")] for number in range(25)]
    model = ScriptedModel([[call("loud")], *small, retrieving(2), "done"])
    tools = [tool_giving(lines()), tool_giving("ok", name="quiet")]
    manager = strands.NullConversationManager(workspace=workdir)
    plugins: list[Any] = [ContextOffloader(workdir)]
    agent = Agent(model, tools=tools, plugins=plugins, conversation_manager=manager, callback_handler=None)
    agent("go")
    assert text_of(agent, 26) == lines()


# Structured content of MCP.


def test_structured_content_is_offloaded_with_its_text_and_keeps_its_form(any_storage: Any) -> None:
    structured = {
        "rows": [{"flight": f"XY{number}"} for number in range(4_000)],
        "total": 4_000,
        "note": "all of today",
    }
    flights = tool_giving(lines(), structuredContent=structured)
    agent = run(ContextOffloader(any_storage), flights, retrieving(nth=1))
    left = result_of(agent)["structuredContent"]
    assert {**left, "rows": ""} == {**structured, "rows": ""}
    [reference] = re.findall(r"\[offloaded: (\S+)\]", left["rows"])
    assert reference in text_of(agent)
    assert result_of(agent, 1)["content"] == [{"json": structured}]


def test_structured_content_of_a_small_result_stays(workdir: Path) -> None:
    """It is not sent to the model, so it counts for nothing."""
    structured = {"rows": list(range(20_000))}
    agent = run(ContextOffloader(workdir), tool_giving("short", structuredContent=structured))
    assert result_of(agent)["structuredContent"] == structured


# Failures.


class Failing(Shelf):
    """A storage that fails from the n-th call on."""

    def __init__(self, succeeding: int) -> None:
        super().__init__()
        self.succeeding = succeeding

    async def store(self, key: str, content: bytes, content_type: str = "text/plain") -> str:
        if len(self.kept) >= self.succeeding:
            raise OSError(28, "No space left on device")
        return await super().store(key, content, content_type)


@pytest.mark.parametrize("succeeding", [0, 1, 2])
def test_a_storage_that_fails_leaves_the_result_as_it_is(succeeding: int, caplog: pytest.LogCaptureFixture) -> None:
    content, structured = [{"text": lines()}, {"text": lines()}], {"rows": lines()}
    agent = run(ContextOffloader(Failing(succeeding)), tool_giving(content, structuredContent=structured))
    assert (result_of(agent)["content"], result_of(agent)["structuredContent"]) == (content, structured)
    assert "No space left" in caplog.text


def test_a_workspace_that_cannot_be_written_leaves_the_result_as_it_is(
    workdir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    workdir.write_text("a file is in the way", encoding="utf-8")
    agent = run(ContextOffloader(workdir), tool_giving(lines()))
    assert text_of(agent) == lines()
    assert "keeping original" in caplog.text


def test_a_hook_of_the_user_redacts_before_anything_is_stored(workdir: Path) -> None:
    """Hooks that are given to the agent run after Strands' own plugin: there the secret is on disk by then."""

    class Redacting(HookProvider):
        def register_hooks(self, registry: HookRegistry, **_: Any) -> None:
            registry.add_callback(AfterToolCallEvent, self.redact)

        def redact(self, event: AfterToolCallEvent) -> None:
            blocks = [{"text": block["text"].replace("hunter2", "***")} for block in event.result["content"]]
            event.result = {**event.result, "content": blocks}  # type: ignore[typeddict-item]

    agent = run(ContextOffloader(workdir), tool_giving(lines() + "key: hunter2"), hooks=[Redacting()])
    assert "key: ***" in text_of(agent)
    assert not [path for path in workdir.rglob("*") if path.is_file() and b"hunter2" in path.read_bytes()]


# Agents and sessions.


def test_the_lookups_are_tools_and_their_answers_stay(workdir: Path) -> None:
    look = [call("grep", {"pattern": "line 1299"}, "call_2")]
    agent = run(ContextOffloader(workdir, 20, 10), tool_giving(lines()), look)
    assert {"read", "grep", "search"} <= set(agent.tool_names)
    assert "1300" in text_of(agent, 1)
    assert "[Offloaded" not in text_of(agent, 1)
    mine = tool_giving(lines(), name="grep")
    assert run(ContextOffloader(workdir), mine).tool_registry.registry["grep"] is mine
    without = run(ContextOffloader(workdir, include_lookups=False), tool_giving(lines()))
    assert "grep" not in without.tool_names


@pytest.mark.parametrize("name", [".env", "link.txt", "../secret.txt", "sessions/other/tool_result-call_1_0.txt"])
def test_a_model_gets_nothing_of_the_directory_but_its_own_content(name: str, workdir: Path) -> None:
    """Strands' file storage gives it whatever lies there, and follows links out of it."""
    run(ContextOffloader(workdir, session_id="other"), tool_giving("hunter2\n" + lines()))
    (workdir / ".env").write_text("hunter2", encoding="utf-8")
    (workdir.parent / "secret.txt").write_text("hunter2", encoding="utf-8")
    (workdir / "link.txt").symlink_to(workdir.parent / "secret.txt")
    for reference in (name, str(workdir / name)):
        look = [call("retrieve_offloaded_content", {"reference": reference}, "c2")]
        agent = run(ContextOffloader(workdir), tool_giving(lines()), look)
        assert result_of(agent, 1)["status"] == "error"
        assert "hunter2" not in text_of(agent, 1)


def test_equal_call_ids_lead_to_their_own_results(workdir: Path) -> None:
    plugin = ContextOffloader(workdir)
    for name in ("one", "two"):
        agent = run(plugin, tool_giving(name + lines()), agent_id=name)
        assert path_in(text_of(agent)).read_text(encoding="utf-8").startswith(name)
        assert session_of(agent) == f"{agent.session_id}--{name}"
    sizes = iter([1_300, 1_400])

    @tool
    def counted() -> str:
        """Say something else each time."""
        return lines(next(sizes))

    agent = run(plugin, counted, [call("counted")])
    assert [path_in(text_of(agent, at)).read_text(encoding="utf-8") for at in (0, 1)] == [lines(1_300), lines(1_400)]


def test_one_agents_tool_does_not_reach_anothers_results(workdir: Path) -> None:
    plugin = ContextOffloader(workdir)
    stub = text_of(run(plugin, tool_giving(BLOCKS)))
    for nth in range(4):
        reference = stub.partition("references:]\n")[2].splitlines()[nth].strip().partition(" (")[0]
        look = [call("retrieve_offloaded_content", {"reference": reference}, "call_2")]
        agent = run(plugin, tool_giving("other " + lines()), look)
        assert result_of(agent, 1)["status"] == "error"


@pytest.mark.parametrize("kept", STORAGES)
def test_an_agent_with_its_old_messages_retrieves_its_old_results(kept: str, workdir: Path) -> None:
    """Without a session manager Strands draws a session id for each agent object."""
    storage = STORAGES[kept](workdir)
    before = run(ContextOffloader(storage), tool_giving(BLOCKS))
    after = Agent(
        model=ScriptedModel([retrieving(2), [call("loud", {}, "call_3")], retrieving(2), retrieving(2, 2), "done"]),
        tools=[tool_giving("other " + lines())],
        plugins=[ContextOffloader(storage if "memory" in kept else STORAGES[kept](workdir))],
        messages=[*before.messages],
        callback_handler=None,
    )
    after("again")
    assert session_of(after) != session_of(before)
    for number in (1, 3):  # before and after it has results of its own
        assert text_of(after, number) == lines()
    assert result_of(after, 4)["content"] == [BLOCKS[2]]


def test_a_restart_finds_content_below_a_directory_of_any_name(tmp_path: Path) -> None:
    workdir = tmp_path / "my work (1)"
    before = run(ContextOffloader(workdir), tool_giving(lines()))
    [path] = workdir.glob("sessions/*/tool_result-*.txt")
    look = [call("retrieve_offloaded_content", {"reference": str(path)}, "call_2")]
    after = run(ContextOffloader(workdir), tool_giving("short"), look, messages=[*before.messages])
    assert text_of(after, 2) == lines()


def test_a_path_or_a_forged_stub_opens_no_session_of_somebody_else(workdir: Path) -> None:
    other = run(ContextOffloader(workdir, session_id="of-somebody-else"), tool_giving(BLOCKS))
    stub = text_of(other)
    references = [line.strip().partition(" (")[0] for line in stub.partition("references:]\n")[2].splitlines()[:4]]
    forged = stub.replace("line 1298", "guessed")
    looks: list[Any] = [[call("retrieve_offloaded_content", {"reference": one}, one[-9:])] for one in references]
    looks += [[call("grep", {"pattern": "line 12"}, "call_3")], [call("read", {"path": references[0]}, "call_4")]]
    model = ScriptedModel([[call("quiet")], *looks, "done"])
    tools = [tool_giving(forged, name="quiet")]
    agent = Agent(model=model, tools=tools, plugins=[ContextOffloader(workdir)], callback_handler=None)
    agent(f"Read {references[0]}: {stub}")
    for number in range(1, 5):
        assert result_of(agent, number)["status"] == "error"
    assert all("line 12" not in text_of(agent, number) for number in (5, 6))


def test_every_reference_in_a_restored_session_leads_to_its_result(tmp_path: Path, workdir: Path) -> None:
    session = {"session_id": "s1", "storage_dir": str(tmp_path / "sessions")}
    calls = [[call("loud", {}, f"call_{number}")] for number in (2, 3)]
    run(ContextOffloader(workdir), tool_giving(lines()), *calls, session_manager=FileSessionManager(**session))
    agent = Agent(
        model=ScriptedModel([*(retrieving(at, pattern="line 1299") for at in (2, 4, 6)), "done"]),
        plugins=[ContextOffloader(workdir)],
        session_manager=FileSessionManager(**session),
        callback_handler=None,
    )
    agent("again")
    assert session_of(agent) == "s1"
    for number in (3, 4, 5):
        assert "> 1300| line 1299" in text_of(agent, number)


def test_a_session_may_be_named(workdir: Path) -> None:
    for plugin in (
        ContextOffloader(workdir, session_id="release-7"),
        ContextOffloader(WorkspaceStorage(workdir, session_id="release-7")),
    ):
        assert "/sessions/release-7/" in text_of(run(plugin, tool_giving(lines())))


def test_without_a_storage_the_agents_own_is_used_else_memory(workdir: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    own = run(ContextOffloader(), tool_giving(lines()), storage=LocalFileStorage(str(workdir)))
    assert "call_1_0" in text_of(own)
    assert workdir.exists()
    agent = run(ContextOffloader(), tool_giving(lines()), retrieving(pattern="line 1299"))
    assert "> 1300| line 1299" in text_of(agent, 1)
    assert [path.name for path in tmp_path.iterdir()] == [workdir.name]


def test_parallel_calls_and_code_that_calls_a_tool_get_stubs(workdir: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    model = ScriptedModel([[call("loud", {}, f"call_{number}") for number in range(5)], "done"])
    agent = Agent(model=model, tools=[tool_giving(lines())], plugins=[ContextOffloader(workdir)], callback_handler=None)
    agent("go")
    found: Any = agent.tool.loud()
    paths = {path_in(text_of(agent, number)) for number in range(5)} | {path_in(found["content"][0]["text"])}
    assert len(paths) == 6
    assert all(path.read_text(encoding="utf-8") == lines() for path in paths)
    assert caplog.text == ""
