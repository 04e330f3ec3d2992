"""`WorkspaceStorage` with Strands' own offloader and agent around it."""

import asyncio
import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("strands", reason="strands-agents is an extra for tests")

from hypothesis import strategies as st
from strands import Agent, tool
from strands.sandbox.not_a_sandbox_local_environment import NotASandboxLocalEnvironment
from strands.sandbox.posix_shell import PosixShellSandbox
from strands.sandbox.types import ExecutionResult
from strands.session.file_session_manager import FileSessionManager
from strands.vended_plugins.context_offloader import ContextOffloader
from strands.vended_plugins.context_offloader import FileStorage as TheirFileStorage
from strands.vended_plugins.context_offloader import InMemoryStorage as TheirInMemoryStorage
from strands.vended_plugins.context_offloader import Storage as OffloaderStorage
from strands_model import ScriptedModel, call

from buoyline import LocalWorkspace, MemoryWorkspace
from buoyline.errors import ConfigError, CorruptError
from buoyline.integrations.strands import FileStorage, InMemoryStorage, WorkspaceOffloader, WorkspaceStorage
from buoyline.integrations.strands.history import session_of
from buoyline.lookups import grep, lookup_tools
from buoyline.workspace import layout

KINDS = [
    (b"hello\n", "text/plain", ".txt"),
    (b'{"a": 1}', "application/json", ".json"),
    (b"\x89PNG\r\n", "image/png", ".png"),
    (b"%PDF-1.7", "application/pdf", ".pdf"),
    (b"PK\x03\x04", "application/docx", ".docx"),
    (b"a,b", "application/csv", ".csv"),
    (b"# Plan", "application/md", ".md"),
    (b"<b>", "application/html", ".bin"),
    (b"\xff\xfe", "text/plain", ".txt"),
    (b"?", "application/x-odd", ".bin"),
    (b"", "text/plain", ".txt"),
]


@pytest.fixture(params=["relative", "absolute", "workspace", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WorkspaceStorage:
    monkeypatch.chdir(tmp_path)
    made: dict[str, Any] = {
        "relative": lambda: WorkspaceStorage("./artifacts"),
        "absolute": lambda: WorkspaceStorage(str(tmp_path / "artifacts")),
        "workspace": lambda: WorkspaceStorage(LocalWorkspace(tmp_path / "artifacts")),
        "memory": lambda: WorkspaceStorage(MemoryWorkspace()),
    }
    found: WorkspaceStorage = made[request.param]()
    return found


def on_disk(tmp_path: Path, **settings: Any) -> WorkspaceStorage:
    return WorkspaceStorage(tmp_path / "w", **settings)


def test_it_is_a_storage_of_strands_offloader(storage: WorkspaceStorage) -> None:
    assert isinstance(storage, OffloaderStorage)


@pytest.mark.parametrize(("content", "content_type", "extension"), KINDS)
async def test_what_is_stored_comes_back_with_its_type(
    storage: WorkspaceStorage, content: bytes, content_type: str, extension: str
) -> None:
    reference = await storage.store("tooluse_Ab1_0", content, content_type)
    assert reference.endswith(extension)
    assert await storage.retrieve(reference) == (content, content_type)


@pytest.mark.parametrize(("content", "content_type", "extension"), KINDS)
async def test_a_file_holds_the_raw_bytes_and_any_process_finds_it_again(
    content: bytes, content_type: str, extension: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    reference = await WorkspaceStorage("./artifacts").store("call_0", content, content_type)
    path = Path(reference)
    assert path.read_bytes() == content
    assert path.suffix == extension
    for spelled in (reference, path.name, path.stem, str(path.absolute()), str(path)):
        assert await WorkspaceStorage("artifacts").retrieve(spelled) == (content, content_type)


async def test_a_relative_directory_makes_relative_references_and_an_absolute_one_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert (await WorkspaceStorage("./artifacts").store("k", b"1")).startswith("./artifacts/")
    assert (await WorkspaceStorage("artifacts/").store("k", b"1")).startswith("artifacts/")
    assert (await WorkspaceStorage(tmp_path / "a").store("k", b"1")).startswith(f"{tmp_path}/a/")
    assert (await WorkspaceStorage("../up").store("k", b"1")).startswith("../up/")
    assert await WorkspaceStorage("../up").retrieve(await WorkspaceStorage("../up").store("k", b"1"))


@pytest.mark.parametrize(
    "reference",
    [
        "",
        ".",
        "nothing.txt",
        "/etc/passwd",
        "../../etc/passwd",
        "workspace.json",
        "./.env",
        "sessions/strands/journal.jsonl",
    ],
)
async def test_what_was_not_stored_is_a_key_error(storage: WorkspaceStorage, reference: str, tmp_path: Path) -> None:
    await storage.store("k", b"1")
    (tmp_path / "artifacts").mkdir(exist_ok=True)
    (tmp_path / "artifacts" / ".env").write_text("secret")
    with pytest.raises(KeyError, match="Reference not found"):
        await storage.retrieve(reference)


async def test_no_link_leads_out_of_the_workspace(tmp_path: Path) -> None:
    storage = on_disk(tmp_path)
    path = Path(await storage.store("k", b"1"))
    (tmp_path / "secret.txt").write_text("secret")
    (path.parent / "tool_result-other.txt").symlink_to(tmp_path / "secret.txt")
    with pytest.raises(KeyError):
        await storage.retrieve(str(path.parent / "tool_result-other.txt"))


async def test_the_same_key_with_other_content_is_another_reference(storage: WorkspaceStorage) -> None:
    """Providers number the calls of each turn anew; Strands' own storage would give both times the second content."""
    first, second = await storage.store("call_0_0", b"one"), await storage.store("call_0_0", b"two")
    assert await storage.retrieve(first) == (b"one", "text/plain")
    assert await storage.retrieve(second) == (b"two", "text/plain")
    assert await storage.store("call_0_0", b"one") == first


OTHERS: list[dict[str, Any]] = [
    {"session_id": "s2", "agent_id": "writer"},
    {"session_id": "s1"},
    {"session_id": "s1", "agent_id": "b"},
]


@pytest.mark.parametrize("kind", [FileStorage, InMemoryStorage])
async def test_the_hosts_own_storage_retrieves_what_its_agent_stored(
    kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    storage = kind("./a") if kind is FileStorage else kind()
    agents = [WorkspaceOffloader(storage), WorkspaceOffloader(storage)]
    text = "".join(f"line {number}\n" for number in range(2_000))
    pdf = b"%PDF-1.7" + b"x" * 4_000_000

    @tool
    def dump() -> Any:
        """Say much."""
        document = {"document": {"name": "report", "format": "pdf", "source": {"bytes": pdf}}}
        return {"status": "success", "content": [{"text": text}, document]}

    for plugin in agents:
        model = ScriptedModel([[call("dump")], "done"])
        agent = Agent(model=model, tools=[dump], plugins=[plugin], callback_handler=None)
        agent("go")
        shown = "\n".join(block["text"] for block in agent.messages[2]["content"][0]["toolResult"]["content"])
        [whole] = re.findall(r"Whole result: (\S+)", shown)
        [blob] = re.findall(r"\[document: .*?, ([^ ,\]]+)\]", shown)
        for owner in (storage, *([FileStorage("./a"), FileStorage("a")] if kind is FileStorage else [])):
            assert text in (await owner.retrieve(whole))[0].decode()
            assert (await owner.retrieve(blob))[0] == pdf
    if kind is FileStorage:
        assert await FileStorage("a").retrieve(Path(blob).name) == (pdf, "application/pdf")
        with pytest.raises(KeyError):  # both sessions have a file of that name
            await storage.retrieve("tool_result-call_1.txt")
        named = WorkspaceStorage("a", session_id="another")
        with pytest.raises(KeyError):
            await named.retrieve(whole)


async def test_another_session_and_another_agent_reach_nothing(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path / "w")
    mine = WorkspaceStorage(workspace, session_id="s1", agent_id="writer")
    reference = await mine.store("call_0_0", b"mine")
    assert await WorkspaceStorage(workspace, session_id="s1", agent_id="writer").retrieve(reference)
    for other in OTHERS:
        with pytest.raises(KeyError):
            await WorkspaceStorage(workspace, **other).retrieve(reference)
        with pytest.raises(KeyError):
            await WorkspaceStorage(workspace, **other).retrieve(Path(reference).name)


ids = st.text("ab-~", max_size=6) | st.sampled_from(["default", "s1", "s1--default"]) | st.text(max_size=4)


@pytest.mark.parametrize(
    ("session_id", "agent_id", "named"),
    [
        ("s1", "default", "s1"),
        ("s1", "writer", "s1--writer"),
        ("release-7", "code-review", "release-7--code-review"),
        ("a--b", "default", "a--b--default"),
    ],
)
def test_a_storage_and_an_agent_with_the_same_ids_have_the_same_session(
    session_id: str, agent_id: str, named: str, tmp_path: Path
) -> None:
    manager = FileSessionManager(session_id, storage_dir=str(tmp_path / "sessions"))
    agent = Agent(model=ScriptedModel(["done"]), agent_id=agent_id, session_manager=manager, callback_handler=None)
    assert session_of(agent) == on_disk(tmp_path, session_id=session_id, agent_id=agent_id).session_id == named
    assert layout.encode_id(named) == named


async def test_two_agents_with_equal_ids_do_not_write_over_each_other(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path / "w")
    one, two = WorkspaceStorage(workspace, session_id="one"), WorkspaceStorage(workspace, session_id="two")
    references = [await one.store("call_0_0", b"X"), await two.store("call_0_0", b"Y")]
    assert await one.retrieve(references[0]) == (b"X", "text/plain")
    assert await two.retrieve(references[1]) == (b"Y", "text/plain")


@pytest.mark.parametrize("key", ["../../etc/x", "a\\b", "", "a" * 300, "標" * 90, "nul\0", "/", "-rf", "CON"])
async def test_no_key_is_too_odd_for_a_file_name(storage: WorkspaceStorage, key: str) -> None:
    reference = await storage.store(key, b"1", "application/json")
    assert await storage.retrieve(reference) == (b"1", "application/json")


async def test_a_file_that_was_cut_is_told_from_what_was_stored(tmp_path: Path) -> None:
    """Where a truncated file passes for the value, nobody learns of the loss."""
    storage = on_disk(tmp_path)
    text, picture = await storage.store("t", b"x" * 25_000), await storage.store("p", b"y" * 100, "image/png")
    for path in (text, picture):
        os.truncate(path, 50)
    for reference in (text, picture):
        with pytest.raises(CorruptError):
            await storage.retrieve(reference)


async def test_a_file_that_is_gone_is_a_key_error(tmp_path: Path) -> None:
    storage = on_disk(tmp_path)
    for content_type in ("text/plain", "image/png"):
        reference = await storage.store("k", b"1", content_type)
        Path(reference).unlink()
        with pytest.raises(KeyError):
            await storage.retrieve(reference)


def test_a_storage_bound_to_a_sandbox_stays_what_it_is(tmp_path: Path) -> None:
    sandbox, other = NotASandboxLocalEnvironment(), NotASandboxLocalEnvironment()
    bound = on_disk(tmp_path, sandbox=sandbox)
    assert bound.for_sandbox(other) is bound
    free = on_disk(tmp_path)
    assert free.for_sandbox(sandbox) is not free
    assert free.for_sandbox(sandbox).for_sandbox(other).workspace is free.workspace


async def test_a_bound_copy_has_the_references_and_their_form(storage: WorkspaceStorage) -> None:
    reference = await storage.store("k", b"1", "image/png")
    copy = storage.for_sandbox(NotASandboxLocalEnvironment())
    assert await copy.retrieve(reference) == (b"1", "image/png")
    assert await copy.store("k", b"1", "image/png") == reference


async def test_what_memory_keeps_ages_by_turns_and_a_look_makes_it_young() -> None:
    workspace = MemoryWorkspace(evict_after_turns=2)
    storage = WorkspaceStorage(workspace)
    reference = await storage.store("k", b"1")
    for _ in range(2):
        workspace.next_turn()
    assert await storage.retrieve(reference)
    for _ in range(3):
        workspace.next_turn()
    with pytest.raises(KeyError):
        await storage.retrieve(reference)


async def test_memory_is_cleared_on_demand_and_a_directory_is_not(tmp_path: Path) -> None:
    storage = InMemoryStorage()
    references = [await storage.store("k", b"1", kind) for kind in ("text/plain", "image/png")]
    storage.clear()
    for reference in references:
        with pytest.raises(KeyError, match="Reference not found"):
            await storage.retrieve(reference)
    with pytest.raises(ConfigError, match="MemoryWorkspace"):
        on_disk(tmp_path).clear()


async def test_strands_storages_have_their_names_parameters_and_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    reference = await FileStorage().store("tool_123_0", b"large output content...", "text/plain")
    assert Path(reference).read_bytes() == b"large output content..."
    assert reference.startswith("./artifacts/")
    storage = FileStorage(artifact_dir="./artifacts", sandbox=NotASandboxLocalEnvironment())
    assert await storage.retrieve(reference) == (b"large output content...", "text/plain")
    assert storage.for_sandbox(NotASandboxLocalEnvironment()) is storage
    for theirs, ours in ((TheirFileStorage, FileStorage), (TheirInMemoryStorage, InMemoryStorage)):
        parameters = inspect.signature(theirs).parameters.values()
        found = inspect.signature(ours).parameters.values()
        assert [(one.name, one.kind, one.default) for one in found] == [
            (one.name, one.kind, one.default) for one in parameters
        ]


@pytest.mark.parametrize(("turns", "is_there"), [(1, False), (None, True)])
async def test_what_is_in_memory_goes_after_the_turns_that_were_named(turns: int | None, is_there: bool) -> None:  # noqa: FBT001 - a parameter
    storage = InMemoryStorage(evict_after_turns=turns)
    reference = await storage.store("k", b"1")
    assert isinstance(storage.workspace, MemoryWorkspace)
    for _ in range(30):
        storage.workspace.next_turn()
    if is_there:
        assert await storage.retrieve(reference)
        return
    with pytest.raises(KeyError):
        await storage.retrieve(reference)
    with pytest.raises(ValueError, match="evict_after_turns"):
        InMemoryStorage(evict_after_turns=0)


@pytest.mark.parametrize("content_type", ["text/plain", "application/csv", "application/json"])
async def test_what_is_redacted_reaches_no_file(content_type: str, tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path / "w", redact=lambda text: text.replace("hunter2", "***"))
    storage = WorkspaceStorage(workspace)
    reference = await storage.store("hunter2", b"key: hunter2", content_type)
    assert await storage.retrieve(reference) == (b"key: ***", content_type)
    for path in (tmp_path / "w").rglob("*"):
        assert "hunter2" not in path.name
        assert path.is_dir() or b"hunter2" not in path.read_bytes()


def test_something_else_than_a_workspace_is_refused() -> None:
    with pytest.raises(ConfigError, match="neither a workspace nor the path of one"):
        WorkspaceStorage(5)  # type: ignore[arg-type]


STORES_MANY = """
import asyncio, json, sys
from buoyline.integrations.strands import WorkspaceStorage

async def run():
    storage = WorkspaceStorage(sys.argv[1])
    for number in range(15):
        content, kind = f"{sys.argv[2]} {number}", ("text/plain", "application/json")[number % 2]
        print(json.dumps([await storage.store("call_0_0", content.encode(), kind), content, kind]))

asyncio.run(run())
"""


def test_two_processes_lose_no_content_and_no_type(tmp_path: Path) -> None:
    """A sidecar that each process writes anew forgets the types of the other's."""
    command = [sys.executable, "-c", STORES_MANY, str(tmp_path / "w")]
    writers = [subprocess.Popen([*command, name], stdout=subprocess.PIPE) for name in "ab"]
    stored = [json.loads(line) for writer in writers for line in writer.communicate()[0].splitlines()]
    assert len({reference for reference, _, _ in stored}) == 30
    for reference, content, content_type in stored:
        assert asyncio.run(on_disk(tmp_path).retrieve(reference)) == (content.encode(), content_type)


@pytest.mark.parametrize(
    ("content_type", "is_text"),
    [
        ("text/plain", True),
        ("application/json", True),
        ("application/csv", True),
        ("text/markdown", True),
        ("application/yaml", True),
        ("image/png", False),
    ],
)
async def test_a_search_through_a_session_finds_text_of_whatever_type(
    content_type: str,
    is_text: bool,  # noqa: FBT001 - a parameter
    tmp_path: Path,
) -> None:
    storage = on_disk(tmp_path)
    reference = await storage.store("tooluse_1_0", b'{"user":\n "Alice"}\n', content_type)
    await WorkspaceStorage(storage.workspace, session_id="other").store("k", b'{"a": "Alice and Bob"}', content_type)
    assert isinstance(storage.workspace, LocalWorkspace)
    tools = {tool.name: tool for tool in lookup_tools(storage.workspace, "strands")}
    for name, options in (("grep", {"pattern": "Alice"}), ("search", {"query": "Alice"})):
        answer = await tools[name].call(**options)
        assert (Path(reference).name in answer) is is_text
        assert "Bob" not in answer
    every = grep(storage.workspace, "Alice")
    assert ("Bob" in every.text) is is_text


# --- in Strands' agents ---


@tool
def loud(lines: int = 3_000) -> str:
    """Say much."""
    return "".join(f"line {number}\n" for number in range(lines))


def reference_in(messages: list[dict[str, Any]]) -> str:
    """Return the reference that Strands' own placeholder names."""
    text = str(messages[-1]["content"][0]["toolResult"]["content"][0]["text"])
    found = re.search(r"\[Stored references:\]\n  (\S+)", text)
    assert found is not None
    return found[1]


def test_strands_own_offloader_stores_in_a_workspace_and_retrieves_again(tmp_path: Path) -> None:
    storage = on_disk(tmp_path)
    seen: list[str] = []

    def look(messages: list[dict[str, Any]]) -> Any:
        seen.append(reference_in(messages))
        return [call("retrieve_offloaded_content", {"reference": seen[-1], "pattern": "line 2999"}, "call_2")]

    model = ScriptedModel([[call("loud")], look, "done"])
    agent = Agent(model=model, tools=[loud], plugins=[ContextOffloader(storage=storage)], callback_handler=None)
    agent("go")
    answer = agent.messages[-2]["content"][0]["toolResult"]
    assert answer["status"] == "success"
    assert "> 3000| line 2999" in answer["content"][0]["text"]
    assert Path(seen[0]).read_text(encoding="utf-8") == loud(lines=3_000)


def test_references_in_a_session_that_goes_on_later_lead_to_their_files(tmp_path: Path) -> None:
    model = ScriptedModel([[call("loud")], "done"])
    agent = Agent(model=model, tools=[loud], plugins=[ContextOffloader(on_disk(tmp_path))], callback_handler=None)
    agent("go")
    reference = reference_in(cast_messages(agent)[:3])
    del agent, model
    found = asyncio.run(on_disk(tmp_path).retrieve(reference))
    assert found == (loud(lines=3_000).encode(), "text/plain")


def cast_messages(agent: Agent) -> list[dict[str, Any]]:
    return [dict(message) for message in agent.messages]


def test_what_is_on_disk_is_never_evicted(tmp_path: Path) -> None:
    """Strands deletes what a unified storage holds after 20 cycles, though the reference stays in the conversation."""
    seen: list[str] = []

    def note(messages: list[dict[str, Any]]) -> Any:
        seen.append(reference_in(messages))
        return [call("loud", {"lines": 1}, "small_0")]

    def look(_: list[dict[str, Any]]) -> Any:
        return [call("retrieve_offloaded_content", {"reference": seen[0], "context_lines": 1}, "last")]

    small: list[Any] = [[call("loud", {"lines": 1}, f"small_{number}")] for number in range(1, 25)]
    model = ScriptedModel([[call("loud")], note, *small, look, "done"])
    agent = Agent(model=model, tools=[loud], plugins=[ContextOffloader(on_disk(tmp_path))], callback_handler=None)
    agent("go")
    assert "line 0" in agent.messages[-2]["content"][0]["toolResult"]["content"][0]["text"]


# --- without Strands ---


def test_without_strands_one_line_names_the_extra(tmp_path: Path) -> None:
    (tmp_path / "strands.py").write_text("raise ModuleNotFoundError(\"No module named 'strands'\", name='strands')\n")
    code = "import buoyline.integrations.strands"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    last = found.stderr.strip().splitlines()[-1]
    assert last.endswith("buoyline.integrations.strands needs the extra 'strands'")
    assert found.stderr.count("Traceback") == 1


# Within a sandbox.


class Container(PosixShellSandbox):
    """A sandbox of Strands' whose root is a directory of the host: its ``./artifacts`` is not the host's."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()

    async def execute_streaming(self, command: str, **options: Any) -> Any:
        done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, cwd=self.root, check=False)
        yield ExecutionResult(done.returncode, done.stdout.decode("utf-8"), done.stderr.decode("utf-8"))


@pytest.mark.parametrize("given", ["agent's", "storage's"])
@pytest.mark.parametrize("plugin", [WorkspaceOffloader, ContextOffloader])
async def test_files_are_in_the_sandbox_of_the_agent(
    plugin: Any, given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "host").mkdir()
    monkeypatch.chdir(tmp_path / "host")
    box = Container(tmp_path / "box")
    text = "".join(f"line {number}\n" for number in range(2_000))

    @tool
    def dump() -> Any:
        """Say much."""
        return {"status": "success", "content": [{"text": text}, {"json": {"rows": list(range(4_000))}}]}

    def look(messages: Any) -> Any:
        return [call("retrieve_offloaded_content", {"reference": reference_in(messages), "pattern": "line 1999"}, "c2")]

    def reference_in(messages: Any) -> str:
        shown = messages[2]["content"][0]["toolResult"]["content"][0]["text"]
        return str(re.findall(r"^  (\S+\.txt) \(text", shown, re.MULTILINE)[0])

    def agent_in(*answers: Any, **more: Any) -> Agent:
        storage = FileStorage("./artifacts", sandbox=box if given == "storage's" else None)
        own: dict[str, Any] = {"sandbox": box} if given == "agent's" else {}
        model = ScriptedModel([*answers, "done"])
        return Agent(model=model, tools=[dump], plugins=[plugin(storage)], callback_handler=None, **own, **more)

    agent = agent_in([call("dump")], look)
    await agent.invoke_async("go")
    after = agent_in(look, messages=json.loads(json.dumps(agent.messages[:4])))
    await after.invoke_async("again")
    for one in (agent, after):
        answer = one.messages[-2]["content"][0]["toolResult"]
        assert answer["status"] == "success"
        assert "line 1999" in answer["content"][0]["text"]
    reference = reference_in(agent.messages)
    assert (await box.execute(f"grep -c line {reference}")).stdout == "2000\n"
    assert list((tmp_path / "host").iterdir()) == []
    owner = FileStorage("./artifacts", sandbox=box)
    [rows] = [path.name for path in (box.root / "artifacts").glob("*.json") if "metadata" not in path.name]
    assert (await owner.retrieve(rows))[1] == "application/json"
    assert await owner.retrieve(Path(reference).stem) == (text.encode(), "text/plain")
    for elsewhere in ("/etc/passwd", "../box/secret", "./artifacts/../secret", f"{reference}.metadata.json", "", "."):
        with pytest.raises(KeyError):
            await owner.retrieve(elsewhere)
