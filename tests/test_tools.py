"""The lookups as tools: what a model is told, and what it is answered whatever it asks."""

import asyncio
import copy
import json
import pickle
import re
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from buoyline.errors import ConfigError, InvalidNameError
from buoyline.lookups import Tool, lookup_tools
from buoyline.tokens import default_counter
from buoyline.window import ContextWindow
from buoyline.workspace import LocalWorkspace

NAMES = ["read", "grep", "search"]


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> LocalWorkspace:
    """Two sessions, and a file of the agent's own."""
    made = LocalWorkspace(tmp_path_factory.mktemp("tools") / "workspace", durability="off")
    rows = [{"id": n, "state": "failed" if n == 7 else "ok", "note": "é" * 40} for n in range(60)]

    async def fill() -> None:
        async with made:
            for session in ("s1", "s2"):
                await made.offload_context(session, [{"role": "user", "content": f"secret of {session}"}])
                result = {"role": "tool", "tool_call_id": "c1", "content": json.dumps({"rows": rows, "of": session})}
                await made.offload_tool_result(session, result)

    asyncio.run(fill())
    (made.workdir / "own.txt").write_text("of the agent\n", "utf-8")
    return made


def _tools(workspace: LocalWorkspace, session: str | None = "s1", **limits: Any) -> dict[str, Tool]:
    return {tool.name: tool for tool in lookup_tools(workspace, session, **limits)}


def _ask(workspace: LocalWorkspace, name: str, session: str | None = "s1", /, **arguments: Any) -> str:
    return asyncio.run(_tools(workspace, session)[name].call(**arguments))


def test_definitions_are_what_the_providers_take(workspace: LocalWorkspace) -> None:
    openai = pytest.importorskip("openai.types.chat", reason="openai is an extra for tests")
    anthropic = pytest.importorskip("anthropic.types", reason="anthropic is an extra for tests")
    mcp = pytest.importorskip("mcp.types", reason="mcp is an extra for tests")
    session = pytest.importorskip("botocore.session", reason="botocore is an extra for tests").Session()
    bedrock = session.get_service_model("bedrock-runtime").shape_for("Tool")
    validate = pytest.importorskip("botocore.validate").ParamValidator().validate
    tools = lookup_tools(workspace)
    assert [tool.name for tool in tools] == NAMES
    for tool in tools:
        TypeAdapter(openai.ChatCompletionFunctionToolParam).validate_python(tool.openai(), strict=True)
        TypeAdapter(anthropic.ToolParam).validate_python(tool.anthropic(), strict=True)
        mcp.Tool.model_validate({"name": tool.name, "inputSchema": tool.parameters}, strict=True)
        spec = {"name": tool.name, "description": tool.description, "inputSchema": {"json": tool.parameters}}
        assert not validate({"toolSpec": spec}, bedrock).has_errors()
        assert json.loads(json.dumps(tool.openai()))["function"]["parameters"]["type"] == "object"
        assert tool.anthropic()["input_schema"] == tool.openai()["function"]["parameters"]


async def test_the_schema_of_a_tool_is_a_plain_dict_of_its_own(tmp_path: Path) -> None:
    window = await ContextWindow.open(tmp_path, "s1", size=8_000)
    offered = [window.tools() for _ in range(2)]
    for tool, again in zip(*offered, strict=True):
        assert type(tool.parameters) is dict  # the OpenAI Agents SDK drops a tool with any other mapping, silently
        assert json.loads(json.dumps(tool.parameters)) == tool.parameters
        assert copy.deepcopy(tool.parameters) == tool.parameters
        assert pickle.loads(pickle.dumps(tool.parameters)) == tool.parameters  # noqa: S301 - our own bytes
        tool.parameters["properties"].clear()  # as a framework does that makes schemas strict in place
        assert again.parameters["properties"]


def test_all_definitions_take_at_most_250_tokens_of_a_request(workspace: LocalWorkspace) -> None:
    tools = lookup_tools(workspace)
    for definitions in ([tool.openai() for tool in tools], [tool.anthropic() for tool in tools]):
        sent = json.dumps(definitions, separators=(",", ":"), ensure_ascii=False)  # as the providers' SDKs send it
        assert default_counter().count(sent) <= 250


def test_definitions_are_schemas_that_allow_each_accepted_argument(workspace: LocalWorkspace) -> None:
    validator = pytest.importorskip("jsonschema", reason="an extra for tests").Draft202012Validator
    calls: dict[str, dict[str, Any]] = {
        "read": {"path": "transcript.md:-60", "start": 1, "end": 2},
        "grep": {
            "pattern": "(?i)SECRET",
            "path": "*.md",
            "context": 1,
            "last": True,
            "start": 1,
        },
        "search": {"query": "secret", "path": "transcript.md", "start": 1},
    }
    for tool in lookup_tools(workspace, "s1"):
        validator.check_schema(tool.parameters)
        validator(tool.parameters).validate(calls[tool.name])
        assert not asyncio.run(tool.call(**calls[tool.name])).startswith("Error"), tool.name


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("read", {}, "path: is missing"),
        ("read", {"path": None}, "path: is missing"),
        ("read", {"path": 5}, "path: must be string, not int"),
        ("read", {"path": "transcript.md", "start": "x"}, "start: must be integer, not str"),
        ("read", {"path": "transcript.md", "start": True}, "start: must be integer, not bool"),
        ("read", {"path": "transcript.md", "start": 0}, "start: 0 to 3 are no lines of sessions/s1/transcript.md"),
        ("read", {"path": "transcript.md", "offset": 3}, "has no argument 'offset'; it takes path, start, end"),
        ("read", {"path": "../../etc/passwd"}, "no file '../../etc/passwd'; near are"),
        ("read", {"path": "\ud800\n\x1b[31m"}, "no file '\\ud800"),
        ("read", {"path": "x" * 1_000_000}, "near are"),
        ("grep", {"pattern": "("}, "not RE2 syntax"),
        ("grep", {"pattern": "x" * 1_000_000}, "1 to 1,000 characters"),
        ("grep", {"pattern": "(x{1000}){1000}"}, "not RE2 syntax"),
        ("grep", {"pattern": "x", "path": ["a"]}, "path: must be string, not list"),
        ("grep", {"pattern": "x", "path": "nothing-*"}, "no file 'nothing-*'"),
        ("grep", {"pattern": "x", "context": 5_000}, "context: must be 0 to 100"),
        ("grep", {"pattern": "x", "path": "*a" * 500_000}, "near are"),
        ("search", {"query": "?!"}, "has no word to look for"),
    ],
)
def test_what_is_wrong_with_a_call_is_an_answer_that_says_what_to_do(
    workspace: LocalWorkspace, tool: str, arguments: dict[str, Any], words: str
) -> None:
    answer = _ask(workspace, tool, **arguments)
    assert answer.startswith("Error: ")
    assert words in answer
    assert answer.count("\n") == 1
    assert len(answer) < 700


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(
    name=st.sampled_from(["read", "grep", "search"]),
    arguments=st.dictionaries(
        st.sampled_from(["path", "pattern", "query", "start", "end", "context", "last", "else"]),
        json_values,
    ),
)
def test_no_call_raises_or_exceeds_its_tokens(workspace: LocalWorkspace, name: str, arguments: dict[str, Any]) -> None:
    tool = _tools(workspace, "s1", max_tokens=300)[name]
    answer = asyncio.run(tool.call(**arguments))
    assert answer.endswith("\n")
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]", answer)
    assert answer.startswith("Error: ") or default_counter().count(answer) <= 300


def test_an_integer_in_quotes_is_an_integer(workspace: LocalWorkspace) -> None:
    assert _ask(workspace, "read", path="transcript.md", start="2").startswith("[sessions/s1/transcript.md, lines 2-")


def test_an_agent_of_one_session_sees_no_other(workspace: LocalWorkspace) -> None:
    for path in ("sessions/s2/transcript.md", str(workspace.workdir / "sessions/s2/transcript.md"), "own.txt", "data"):
        assert "no file" in _ask(workspace, "read", path=path), path
        assert "no file" in _ask(workspace, "grep", pattern=".", path=path), path
    for pattern in ("sessions/s2/*", "sessions/*/*.txt", "*.png", "**"):
        assert "s2" not in _ask(workspace, "grep", pattern="secret", path=pattern).replace(pattern, "")
    assert "secret of s2" not in _ask(workspace, "grep", pattern="secret")
    assert "secret of s2" in _ask(workspace, "grep", None, pattern="secret")


def test_a_session_that_has_offloaded_nothing_is_no_error(workspace: LocalWorkspace) -> None:
    for name, arguments in [("read", {"path": "x"}), ("grep", {"pattern": "x"})]:
        assert _ask(workspace, name, "s3", **arguments) == "[Nothing was archived or offloaded in this session yet.]\n"


def test_what_cannot_be_is_refused_when_tools_are_made(workspace: LocalWorkspace) -> None:
    with pytest.raises(ConfigError, match="max_tokens"):
        lookup_tools(workspace, max_tokens=10)
    with pytest.raises(ConfigError, match=r"prefix: 'a b\.read' is no name"):
        lookup_tools(workspace, prefix="a b.")
    with pytest.raises(ConfigError, match="str is not a workspace"):
        lookup_tools(cast("Any", "./workspace"))
    with pytest.raises(ConfigError, match="counter: 'gpt-4o' cannot count tokens"):
        lookup_tools(workspace, counter="gpt-4o")
    with pytest.raises(InvalidNameError):
        lookup_tools(workspace, "")


def test_the_names_of_tools_may_have_a_prefix(workspace: LocalWorkspace) -> None:
    tools = lookup_tools(workspace, "s1", prefix="archive_")
    assert [tool.name for tool in tools] == [f"archive_{name}" for name in NAMES]
    assert "archive_grep has no" not in asyncio.run(tools[1].call(pattern="secret"))
    assert "archive_grep: has no argument" in asyncio.run(tools[1].call(pattern="x", else_=1))
