"""The storages of Strands' pages: a workspace, a directory, a sandbox, memory and S3."""

import asyncio
import importlib
import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("strands", reason="strands-agents is an extra for tests")

from strands import Agent, tool
from strands.sandbox.not_a_sandbox_local_environment import NotASandboxLocalEnvironment
from strands.sandbox.posix_shell import PosixShellSandbox
from strands.sandbox.types import ExecutionResult
from strands.vended_plugins import context_offloader as theirs
from strands_model import ScriptedModel, call

from buoyline import LocalWorkspace, MemoryWorkspace
from buoyline.errors import ConfigError, CorruptError, InvalidNameError
from buoyline.integrations.strands import ContextOffloader, FileStorage, InMemoryStorage, S3Storage, WorkspaceStorage
from buoyline.lookups import lookup_tools

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


@pytest.fixture(params=["relative", "absolute", "workspace", "files", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    made: dict[str, Any] = {
        "relative": lambda: WorkspaceStorage("./artifacts"),
        "absolute": lambda: WorkspaceStorage(str(tmp_path / "artifacts")),
        "workspace": lambda: WorkspaceStorage(LocalWorkspace(tmp_path / "artifacts")),
        "files": lambda: FileStorage("./artifacts"),
        "memory": lambda: WorkspaceStorage(MemoryWorkspace()),
    }
    return made[request.param]()


@pytest.mark.parametrize(("content", "content_type", "extension"), KINDS)
async def test_content_comes_back_with_its_type(
    storage: Any, content: bytes, content_type: str, extension: str
) -> None:
    assert isinstance(storage, theirs.Storage)
    reference = await storage.store("tooluse_Ab1_0", content, content_type)
    assert reference.endswith(extension)
    assert await storage.retrieve(reference) == (content, content_type)


@pytest.mark.parametrize(("content", "content_type", "extension"), KINDS)
async def test_a_file_holds_the_raw_bytes_and_any_process_finds_it_again(
    content: bytes, content_type: str, extension: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    reference = await FileStorage("./artifacts").store("call_0", content, content_type)
    path = Path(reference)
    assert path.read_bytes() == content
    assert path.suffix == extension
    for spelled in (reference, path.name, str(path.absolute()), str(path)):
        assert await FileStorage("artifacts").retrieve(spelled) == (content, content_type)


async def test_a_reference_has_the_form_of_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for given in ("./artifacts", "artifacts/", f"{tmp_path}/a", "../up"):
        for content_type in ("text/plain", "image/png"):
            reference = await FileStorage(given).store("k", b"1", content_type)
            assert reference.startswith(f"{given.removesuffix('/')}/")
            assert Path(reference).read_bytes() == b"1"
            assert await FileStorage(given).retrieve(reference) == (b"1", content_type)


@pytest.mark.parametrize(
    "reference",
    ["", ".", "nothing.txt", "/etc/passwd", "../../etc/passwd", "workspace.json", "./.env", "sessions/strands", "a\0"],
)
async def test_other_references_are_a_key_error(storage: Any, reference: str, tmp_path: Path) -> None:
    await storage.store("k", b"1")
    (tmp_path / "artifacts").mkdir(exist_ok=True)
    (tmp_path / "artifacts" / ".env").write_text("secret")
    with pytest.raises(KeyError, match="Reference not found"):
        await storage.retrieve(reference)


async def test_no_link_leads_out_of_the_workspace(tmp_path: Path) -> None:
    storage = FileStorage(tmp_path / "w")
    path = Path(await storage.store("k", b"1"))
    (tmp_path / "secret.txt").write_text("secret")
    (path.parent / "tool_result-other.txt").symlink_to(tmp_path / "secret.txt")
    with pytest.raises(KeyError):
        await storage.retrieve(str(path.parent / "tool_result-other.txt"))


async def test_the_same_key_with_other_content_is_another_reference(storage: Any) -> None:
    """Providers number the calls of each turn again; Strands' own storage would give both times the second content."""
    first, second = await storage.store("call_0_0", b"one"), await storage.store("call_0_0", b"two")
    assert await storage.retrieve(first) == (b"one", "text/plain")
    assert await storage.retrieve(second) == (b"two", "text/plain")
    assert await storage.store("call_0_0", b"one") == first


@pytest.mark.parametrize("key", ["../../etc/x", "a\\b", "", "a" * 300, "標" * 90, "nul\0", "/", "-rf", "CON"])
async def test_no_key_is_too_odd_for_a_file_name(storage: Any, key: str) -> None:
    for content_type in ("text/plain", "application/json"):
        reference = await storage.store(key, b"1", content_type)
        assert await storage.retrieve(reference) == (b"1", content_type)


async def test_the_storage_of_the_host_finds_the_content_of_all_its_agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    storage, references = FileStorage("./a"), list[str]()
    text, pdf = "".join(f"line {number}\n" for number in range(2_000)), b"%PDF-1.7"

    @tool
    def dump() -> Any:
        """Say much."""
        document = {"document": {"name": "report", "format": "pdf", "source": {"bytes": pdf}}}
        return {"status": "success", "content": [{"text": text}, document]}

    for _ in range(2):
        model, plugin = ScriptedModel([[call("dump")], "done"]), ContextOffloader(storage)
        agent = Agent(model=model, tools=[dump], plugins=[plugin], callback_handler=None)
        agent("go")
        shown: Any = agent.messages[2]["content"][0]["toolResult"]["content"][0]
        references = re.findall(r"^  (\S+) \(", shown["text"].partition("references:]")[2], re.MULTILINE)
        for owner in (storage, FileStorage("a")):
            assert await owner.retrieve(references[0]) == (text.encode(), "text/plain")
            assert await owner.retrieve(references[1]) == (pdf, "application/pdf")
    assert await FileStorage("a").retrieve(Path(references[1]).name) == (pdf, "application/pdf")
    with pytest.raises(KeyError):  # both sessions have a file of that name
        await storage.retrieve("tool_result-call_1_0.txt")


async def test_a_storage_with_a_session_reaches_no_other(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path / "w")
    one, two = WorkspaceStorage(workspace, session_id="one"), WorkspaceStorage(workspace, session_id="two")
    for content_type in ("text/plain", "image/png"):
        reference = await one.store("call_0_0", b"X", content_type)
        assert await WorkspaceStorage(tmp_path / "w", session_id="one").retrieve(reference) == (b"X", content_type)
        for spelled in (reference, Path(reference).name):
            with pytest.raises(KeyError):
                await two.retrieve(spelled)
    with pytest.raises(InvalidNameError):
        WorkspaceStorage(workspace, session_id="")
    with pytest.raises(ConfigError, match="neither a workspace"):
        WorkspaceStorage(5)  # type: ignore[arg-type]


async def test_damage_is_reported_and_a_lost_file_is_a_key_error(tmp_path: Path) -> None:
    storage = FileStorage(tmp_path / "w")
    for content_type in ("text/plain", "image/png"):
        reference = await storage.store("k", b"x" * 25_000, content_type)
        os.truncate(reference, 50)
        with pytest.raises(CorruptError):
            await storage.retrieve(reference)
        Path(reference).unlink()
        with pytest.raises(KeyError):
            await storage.retrieve(reference)


@pytest.mark.parametrize("content_type", ["text/plain", "application/csv", "application/json"])
async def test_redacted_words_reach_no_file(content_type: str, tmp_path: Path) -> None:
    storage = WorkspaceStorage(LocalWorkspace(tmp_path / "w", redact=lambda text: text.replace("hunter2", "***")))
    reference = await storage.store("call_0", b"key: hunter2", content_type)
    assert await storage.retrieve(reference) == (b"key: ***", content_type)
    for path in (tmp_path / "w").rglob("*"):
        assert path.is_dir() or b"hunter2" not in path.read_bytes()


@pytest.mark.parametrize("content_type", ["text/plain", "application/json", "application/csv", "image/png"])
async def test_the_lookups_of_its_session_find_text_of_every_type(content_type: str, tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path / "w")
    reference = await WorkspaceStorage(workspace, session_id="s").store("k", b'{"user":\n "Alice"}\n', content_type)
    await WorkspaceStorage(workspace, session_id="other").store("k", b'{"a": "Alice and Bob"}', content_type)
    tools = {tool.name: tool for tool in lookup_tools(workspace, "s")}
    for name, options in (("grep", {"pattern": "Alice"}), ("search", {"query": "Alice"})):
        answer = await tools[name].call(**options)
        assert (Path(reference).name in answer) is (content_type != "image/png")
        assert "Bob" not in answer


STORES_MANY = """
import asyncio, json, sys
from buoyline.integrations.strands import FileStorage

async def run():
    storage = FileStorage(sys.argv[1])
    for number in range(15):
        content, kind = f"{sys.argv[2]} {number}", ("text/plain", "application/json")[number % 2]
        print(json.dumps([await storage.store("call_0_0", content.encode(), kind), content, kind]))

asyncio.run(run())
"""


def test_two_processes_lose_no_content_and_no_type(tmp_path: Path) -> None:
    """A sidecar that each process writes again forgets the types of the other's."""
    command = [sys.executable, "-c", STORES_MANY, str(tmp_path / "w")]
    writers = [subprocess.Popen([*command, name], stdout=subprocess.PIPE) for name in "ab"]
    stored = [json.loads(line) for writer in writers for line in writer.communicate()[0].splitlines()]
    assert len({reference for reference, _, _ in stored}) == 30
    for reference, content, content_type in stored:
        assert asyncio.run(FileStorage(tmp_path / "w").retrieve(reference)) == (content.encode(), content_type)


def reference_in(messages: Any) -> str:
    """Return the first reference that a stub lists."""
    text = messages[2]["content"][0]["toolResult"]["content"][0]["text"]
    return str(re.findall(r"references:\]\n  (\S+)", text)[0])


@pytest.mark.parametrize("kind", [WorkspaceStorage, FileStorage])
def test_strands_own_plugin_stores_and_retrieves(kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    whole = "".join(f"line {number}\n" for number in range(3_000))

    @tool
    def dump() -> str:
        """Say much."""
        return whole

    def look(messages: Any) -> Any:
        options = {"reference": reference_in(messages), "pattern": "line 2999"}
        return [call("retrieve_offloaded_content", options, "call_2")]

    model, plugin = ScriptedModel([[call("dump")], look, "done"]), theirs.ContextOffloader(storage=kind("./w"))
    agent = Agent(model=model, tools=[dump], plugins=[plugin], callback_handler=None)
    agent("go")
    assert "> 3000| line 2999" in str(agent.messages[-2]["content"][0]["toolResult"])
    reference = reference_in(agent.messages)
    assert reference.startswith("./w/sessions/strands/")
    assert Path(reference).read_text(encoding="utf-8") == whole
    del agent, model, plugin
    assert asyncio.run(kind("w").retrieve(reference)) == (whole.encode(), "text/plain")


def test_strands_storages_have_their_names_parameters_and_defaults() -> None:
    for one, other in ((theirs.FileStorage, FileStorage), (theirs.InMemoryStorage, InMemoryStorage)):
        parameters = inspect.signature(one).parameters.values()
        found = inspect.signature(other).parameters.values()
        assert [(each.name, each.kind, each.default) for each in found] == [
            (each.name, each.kind, each.default) for each in parameters
        ]
    assert S3Storage is theirs.S3Storage


# Within a sandbox.


class Container(PosixShellSandbox):
    """A sandbox of Strands' whose root is a directory of the host: its ``./artifacts`` is not the host's."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()

    async def execute_streaming(self, command: str, **options: Any) -> Any:
        done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, cwd=self.root, check=False)
        yield ExecutionResult(done.returncode, done.stdout.decode("utf-8"), done.stderr.decode("utf-8"))


async def test_a_storage_for_a_sandbox_stays_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    local, box = NotASandboxLocalEnvironment(), Container(tmp_path / "box")
    free = FileStorage("./artifacts")
    reference = await free.store("k", b"1", "image/png")
    for bound in (free.for_sandbox(local), FileStorage("./artifacts", sandbox=local)):
        assert isinstance(bound, FileStorage)
        assert await bound.retrieve(reference) == (b"1", "image/png")
        assert bound.for_sandbox(box) is bound
    inside = free.for_sandbox(box)
    assert isinstance(inside, FileStorage)
    assert inside.for_sandbox(local) is inside
    with pytest.raises(KeyError):
        await inside.retrieve(reference)


@pytest.mark.parametrize(("content", "content_type", "extension"), KINDS)
async def test_a_sandbox_keeps_content_and_exact_types_for_other_processes(
    content: bytes, content_type: str, extension: str, tmp_path: Path
) -> None:
    box = Container(tmp_path / "box")
    one, two = FileStorage("./artifacts/", sandbox=box), FileStorage("./artifacts", sandbox=box)
    references = [await storage.store("../call 0", content, content_type) for storage in (one, two)]
    assert len({*references}) == 2
    for reference in references:
        assert reference.startswith("./artifacts/")
        assert reference.endswith(extension)
        assert (box.root / reference).read_bytes() == content
        for spelled in (reference, Path(reference).name, f"artifacts/{Path(reference).name}"):
            assert await FileStorage("./artifacts", sandbox=box).retrieve(spelled) == (content, content_type)
    (box.root / "secret").write_text("secret")
    for other in ("/etc/passwd", "../secret", "./artifacts/../secret", f"{references[0]}.metadata.json", "", "."):
        with pytest.raises(KeyError):
            await one.retrieve(other)


@pytest.mark.parametrize("is_agents", [True, False])
@pytest.mark.parametrize("plugin", [theirs.ContextOffloader, ContextOffloader])
async def test_files_are_in_the_sandbox_of_the_agent(
    plugin: Any,
    is_agents: bool,  # noqa: FBT001 - a parameter
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "host").mkdir()
    monkeypatch.chdir(tmp_path / "host")
    box = Container(tmp_path / "box")
    text = "".join(f"line {number}\n" for number in range(2_000))

    @tool
    def dump() -> Any:
        """Say much."""
        return {"status": "success", "content": [{"text": text}]}

    def look(messages: Any) -> Any:
        return [call("retrieve_offloaded_content", {"reference": reference_in(messages), "pattern": "line 1999"}, "c2")]

    def agent_in(*answers: Any, **more: Any) -> Agent:
        storage = FileStorage("./artifacts", sandbox=None if is_agents else box)
        own: dict[str, Any] = {"sandbox": box} if is_agents else {}
        model = ScriptedModel([*answers, "done"])
        return Agent(model=model, tools=[dump], plugins=[plugin(storage)], callback_handler=None, **own, **more)

    agent = agent_in([call("dump")], look)
    await agent.invoke_async("go")
    after = agent_in(look, messages=json.loads(json.dumps(agent.messages[:4])))
    await after.invoke_async("again")
    for one in (agent, after):
        assert "> 2000| line 1999" in str(one.messages[-2]["content"][0]["toolResult"])
    assert (await box.execute(f"grep -c line {reference_in(agent.messages)}")).stdout == "2000\n"
    assert list((tmp_path / "host").iterdir()) == []


# In memory.


async def test_memory_evicts_content_that_was_unused_for_more_than_the_given_turns() -> None:
    storage = InMemoryStorage()
    used, unused = await storage.store("a", b"1", "image/png"), await storage.store("b", b"2")
    for turn in range(1, 31):  # as Strands' plugin does before each model call
        storage._evict(turn)
        assert await storage.retrieve(used) == (b"1", "image/png")
    with pytest.raises(KeyError, match="Reference not found"):
        await storage.retrieve(unused)
    for_ever = InMemoryStorage(evict_after_turns=None)
    reference = await for_ever.store("k", b"1")
    for_ever._evict(1_000)
    assert await for_ever.retrieve(reference) == (b"1", "text/plain")
    for one in (storage, for_ever):
        one.clear()
    for one, kept in ((storage, used), (for_ever, reference)):
        with pytest.raises(KeyError, match="Reference not found"):
            await one.retrieve(kept)


@pytest.mark.parametrize("turns", [0, -1, 1.5, "2"])
def test_turns_that_cannot_be_a_number_of_them_are_a_value_error(turns: Any) -> None:
    with pytest.raises(ValueError, match="evict_after_turns"):
        InMemoryStorage(evict_after_turns=turns)


# In S3.


@pytest.fixture
def s3_endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return the address of an S3 server on this machine that has the page's bucket."""
    server = pytest.importorskip("moto.server", reason="moto[server] is the S3 server of this test").ThreadedMotoServer(
        ip_address="127.0.0.1", port=0, verbose=False
    )
    server.start()
    host, port = server.get_host_and_port()
    for name, value in {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL_S3": f"http://{host}:{port}",
    }.items():
        monkeypatch.setenv(name, value)
    importlib.import_module("boto3").client("s3").create_bucket(Bucket="my-agent-artifacts")
    yield f"http://{host}:{port}"
    server.stop()


@pytest.mark.usefixtures("s3_endpoint")
async def test_s3_stores_content_with_its_type_and_retrieves_it_in_another_process() -> None:
    storage = S3Storage(bucket="my-agent-artifacts", prefix="tool-results/")
    for content, content_type, _ in KINDS:
        reference = await storage.store("tooluse_1_0", content, content_type)
        assert reference.startswith("s3://my-agent-artifacts/tool-results/")
        again = S3Storage(bucket="my-agent-artifacts", prefix="tool-results/")
        for spelled in (reference, reference.removeprefix("s3://my-agent-artifacts/")):
            assert await again.retrieve(spelled) == (content, content_type)
    for other in ("s3://my-agent-artifacts/tool-results/nothing", "s3://another/tool-results/x", "x"):
        with pytest.raises(KeyError):
            await storage.retrieve(other)


def test_without_strands_one_line_names_the_extra(tmp_path: Path) -> None:
    (tmp_path / "strands.py").write_text("raise ModuleNotFoundError(\"No module named 'strands'\", name='strands')\n")
    code = "import buoyline.integrations.strands"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    last = found.stderr.strip().splitlines()[-1]
    assert last.endswith("strands is not installed, or too old: pip install '.[strands]'")
    assert found.stderr.count("Traceback") == 1
