"""buoyline's workspace as the offloader of AgentScope's agent, and a user's own offloader with AgentScope's messages.

The agent, its messages and its tools are the framework's; the model is scripted.
"""

import base64
import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest

pytest.importorskip("agentscope", reason="agentscope is an extra for tests")

from agentscope.agent import Agent, ContextConfig
from agentscope.message import (
    AssistantMsg,
    Base64Source,
    DataBlock,
    HintBlock,
    Msg,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    URLSource,
    UserMsg,
)
from agentscope.tool import ToolChunk
from agentscope_model import ScriptedModel, call, state, toolkit
from faults import files_up_to
from pydantic import AnyUrl

from buoyline import LocalWorkspace, MemoryWorkspace
from buoyline.errors import MessageError, WorkspaceFull
from buoyline.maintenance.verify import verify
from buoyline.workspace import Workspace

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(64))
BASE64 = base64.b64encode(PNG).decode("ascii")
URL = f"workspace:///data/{hashlib.sha256(PNG).hexdigest()}.png"


async def survey(rows: int) -> str:
    """Survey the buoys.

    Args:
        rows: How many there are.
    """
    return "\n".join(f"buoy {row}: {row * 7} fathoms" for row in range(rows))


async def photograph() -> ToolChunk:
    """Take a picture of the buoys."""
    return ToolChunk(content=[TextBlock(text="Look: "), picture("buoy's <best> side")], is_last=True)


def picture(name: str | None = None) -> DataBlock:
    return DataBlock(name=name, source=Base64Source(data=BASE64, media_type="image/png"))


def result(output: Any, call_id: str = "call_1") -> ToolResultBlock:
    return ToolResultBlock(id=call_id, name="survey", output=output)


def agent(model: ScriptedModel, offloader: Any, *messages: Msg, limit: int = 50_000, **config: Any) -> Agent:
    return Agent(
        "Friday",
        "You chart buoys.",
        model,
        toolkit(survey, photograph),
        state=state("s1", *messages),
        offloader=offloader,
        context_config=ContextConfig(tool_result_limit=limit, **config),
    )


def eager(**config: Any) -> ContextConfig:
    """Return a configuration by which nearly everything leaves."""
    return ContextConfig(trigger_ratio=0.01, reserve_ratio=0.001, **config)


def archived(workspace: LocalWorkspace, session_id: str = "s1") -> list[Msg]:
    lines = (workspace.workdir / "sessions" / session_id / "context.jsonl").read_text(encoding="utf-8").splitlines()
    return [Msg.model_validate_json(line) for line in lines]


def whole(workspace: Workspace) -> dict[str, Any]:
    """Return the first message with its payloads, in AgentScope's own form."""
    session = workspace.stored("s1")
    return session.with_payloads(session.read([0])[0])


@pytest.fixture
async def workspace(tmp_path: Path) -> AsyncIterator[LocalWorkspace]:
    """Return a workspace as AgentScope's documentation makes its own; afterwards every byte of it is right."""
    workspace = LocalWorkspace(workdir=str(tmp_path / "agent_workspace"), durability="off")
    await workspace.initialize()
    yield workspace
    # A block that an agent has stored alone is in its context, of which the workspace knows nothing.
    assert [found for found in verify(workspace).findings if found.kind != "unreferenced-blob"] == []
    await workspace.close()


async def test_what_leaves_in_a_compression_is_archived_as_the_framework_writes_it(workspace: LocalWorkspace) -> None:
    messages = [UserMsg("ada", f"{number}: {'deep ' * 50}\u2028") for number in range(20)]
    friday = agent(ScriptedModel(context_size=8_000), workspace, *messages)
    await friday.compress_context(eager())

    path = workspace.workdir / "sessions" / "s1" / "context.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines()
    expected = [message.model_dump_json().replace("\u2028", "\\u2028") for message in messages]
    assert all(line.startswith(f'{whole[:-1]},"buoyline":') for line, whole in zip(lines, expected, strict=False))
    assert len(lines) >= 19
    assert archived(workspace) == messages[: len(lines)]
    assert isinstance(friday.state.summary, str)
    assert friday.state.summary.endswith(
        f"<system-reminder>The compressed context is offloaded to '{path}', you can refer to it when needed."
        "</system-reminder>"
    )


async def test_a_long_session_is_archived_whole_each_block_once_and_in_order(workspace: LocalWorkspace) -> None:
    """Also where the agent cuts one message into two with one id, again and again."""
    turns = [[call("survey", f"call_{turn}", rows=40 + turn)] for turn in range(30)]
    model = ScriptedModel([*turns, "Charted."], context_size=4_000)
    friday = agent(model, workspace)
    await friday.reply(UserMsg("ada", "Survey them all."))

    left = archived(workspace)
    blocks = [block for message in [*left, *friday.state.context] for block in message.content]
    calls = [block.id for block in blocks if isinstance(block, ToolCallBlock)]
    results = [block.id for block in blocks if isinstance(block, ToolResultBlock)]
    assert calls == results == [f"call_{turn}" for turn in range(30)]
    assert len({message.id for message in left if message.role == "assistant"}) == 1
    assert sum(request.wants_summary for request in model.requests) > 1
    for message in left:
        assert {block.id for block in message.get_content_blocks("tool_call")} == {
            block.id for block in message.get_content_blocks("tool_result")
        }


async def test_pictures_leave_for_files_wherever_they_stand_and_come_back_as_they_were(
    workspace: LocalWorkspace,
) -> None:
    """Its own workspace leaves those in results and hints inline."""
    message = AssistantMsg(
        "Friday",
        [
            picture("top"),
            result([TextBlock(text="a"), picture()]),
            HintBlock(hint=[picture("hint")]),
            result("b", "c2"),
        ],
    )
    before = message.model_dump_json()
    await workspace.offload_context("s1", [message])

    assert message.model_dump_json() == before
    (left,) = archived(workspace)
    assert BASE64 not in left.model_dump_json()
    top, with_picture, hint, _ = left.content
    assert isinstance(top, DataBlock)
    assert isinstance(with_picture, ToolResultBlock)
    assert isinstance(hint, HintBlock)
    for block in (top, with_picture.output[1], hint.hint[0]):
        assert isinstance(block, DataBlock)
        assert block.source == URLSource(url=AnyUrl(URL), media_type="image/png")
    assert (workspace.workdir / urlparse(URL).path.lstrip("/")).read_bytes() == PNG
    assert [path.name for path in (workspace.workdir / "data").iterdir()] == [URL.rpartition("/")[2]]
    assert whole(workspace) == json.loads(before)


async def test_a_url_of_ones_own_stays_the_url_it_was(workspace: LocalWorkspace) -> None:
    linked = DataBlock(source=URLSource(url=AnyUrl("https://example.org/a.png"), media_type="image/png"))
    message = UserMsg("ada", [linked])
    await workspace.offload_context("s1", [message])
    assert archived(workspace) == [message]
    assert whole(workspace) == message.model_dump(mode="json")
    assert await workspace.offload_data_block(linked) is linked


async def test_pictures_beyond_the_limit_become_reminders_that_lead_to_their_files(workspace: LocalWorkspace) -> None:
    messages = [UserMsg("ada", [picture("first")]), AssistantMsg("Friday", [result([picture()])]), UserMsg("ada", "?")]
    friday = agent(ScriptedModel(), workspace, *messages, max_image_num=0)
    await friday.compress_context()

    shown = "".join(message.model_dump_json() for message in friday.state.context)
    assert shown.count(f"is offloaded into {URL}, you can refer to it when needed.") == 2
    assert BASE64 not in shown
    assert (workspace.workdir / urlparse(URL).path.lstrip("/")).read_bytes() == PNG


@pytest.mark.parametrize("spelled", [BASE64, BASE64.rstrip("="), f" {BASE64}\n", BASE64[:8] + "\n" + BASE64[8:]])
async def test_a_block_comes_back_as_one_with_a_url_however_its_payload_is_spelled(
    workspace: LocalWorkspace, spelled: str
) -> None:
    """An agent replaces a block that comes back unchanged by the remark that it was removed."""
    block = DataBlock(name="chart", source=Base64Source(data=spelled, media_type="image/png"))
    before = block.model_dump_json()
    for given in (block, block.model_dump(mode="json")):
        saved = await workspace.offload_data_block(given)
        assert type(saved) is type(given)
        assert DataBlock.model_validate(saved) == block.model_copy(
            update={"source": URLSource(url=AnyUrl(URL), media_type="image/png")}
        )
    assert block.model_dump_json() == before


async def test_what_is_no_base64_is_refused_and_nothing_is_stored(workspace: LocalWorkspace) -> None:
    block = DataBlock(source=Base64Source(data="no base64!", media_type="image/png"))
    with pytest.raises(MessageError, match="no base64"):
        await workspace.offload_data_block(block)
    assert list((workspace.workdir / "data").iterdir()) == []


async def test_a_result_says_where_each_of_its_media_is_or_was(workspace: LocalWorkspace) -> None:
    linked = DataBlock(source=URLSource(url=AnyUrl("https://example.org/?a=1&b='"), media_type="image/png"))
    broken = DataBlock(source=Base64Source(data="no base64!", media_type="image/png"))
    for block in (found := result([linked, TextBlock(text="between"), broken, picture("two\nlines")]), found):
        path = await workspace.offload_tool_result("s1", block)
    assert Path(path).read_text(encoding="utf-8").splitlines() == [
        "<data url='https://example.org/?a=1&amp;b=%27' media_type='image/png'/>",
        "between<data media_type='image/png'/>",
        f"<data url='{URL}' name='two lines' media_type='image/png'/>",
    ]
    assert len(list(Path(path).parent.glob("tool_result-*.txt"))) == 1


async def test_a_workspace_that_refuses_leaves_the_agents_context_as_it_was(tmp_path: Path) -> None:
    messages = [UserMsg("ada", f"{number}: {'deep ' * 50}") for number in range(20)]
    friday = agent(ScriptedModel(context_size=8_000), LocalWorkspace(tmp_path), *messages)
    with files_up_to(100), pytest.raises(WorkspaceFull):
        await friday.compress_context(eager())
    assert friday.state.context == messages
    assert friday.state.summary == ""


async def test_a_secret_is_redacted_in_all_three(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path, redact=lambda text: text.replace("hunter2", "[password]"))
    note = DataBlock(
        name="hunter2.txt",
        source=Base64Source(data=base64.b64encode(b"hunter2").decode("ascii"), media_type="text/plain"),
    )
    saved = await workspace.offload_data_block(note)
    path = await workspace.offload_tool_result("s1", result([TextBlock(text="hunter2"), note]))
    await workspace.offload_context("s1", [UserMsg("ada", [TextBlock(text="hunter2"), note])])

    stored = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    assert not [content for content in stored if b"hunter2" in content or b"aHVudGVyMg" in content]
    assert str(saved.source.url) in Path(path).read_text(encoding="utf-8")
    assert (tmp_path / urlparse(str(saved.source.url)).path.lstrip("/")).read_bytes() == b"[password]"


async def test_a_workspace_in_memory_serves_an_agent_too() -> None:
    memory = MemoryWorkspace()
    model = ScriptedModel([[call("survey", rows=2000)], [call("photograph", "call_2")], "Done."], context_size=8_000)
    friday = agent(model, memory, limit=500)
    await friday.reply(UserMsg("ada", "Survey them."))
    await friday.compress_context(eager())
    assert whole(memory)["content"][0]["text"] == "Survey them."
    saved = await memory.offload_data_block(picture())
    assert str(saved.source.url) == URL
