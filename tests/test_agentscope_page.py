"""What AgentScope's page on context documents, with our workspace in place of its own: alone, and with the middleware.

What the framework does by itself is only looked at where the workspace has a part in it.
"""

import asyncio
import base64
import hashlib
import json
import multiprocessing
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("agentscope", reason="agentscope is an extra for tests")

import agentscope_page_life
from agentscope.agent import Agent, ContextConfig
from agentscope.message import (
    AssistantMsg,
    Base64Source,
    DataBlock,
    Msg,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    UserMsg,
)
from agentscope.state import AgentState
from agentscope.tool import Toolkit
from agentscope.workspace import LocalWorkspace as ItsWorkspace
from agentscope_model import FIVE_FIELDS, ScriptedModel, call, state, toolkit
from agentscope_pilot import archived
from faults import files_up_to
from pydantic import BaseModel

from buoyline import ContextConfig as OurConfig
from buoyline import ContextWindow, LocalWorkspace, MemoryWorkspace
from buoyline.errors import ConfigError, CorruptError, StorageError
from buoyline.integrations.agentscope import WorkspaceMiddleware
from buoyline.maintenance.verify import verify

in_all_ways = pytest.mark.parametrize("way", ["plain", "middleware", "both"])


def depths(rows: int) -> str:
    """Give the depths.

    Args:
        rows: How many there are.
    """
    return "\n".join(f"buoy {row}: {row * 7} fathoms" for row in range(rows))


def prose(lines: int) -> str:
    """Tell of the sea, in words of which the framework counts no fewer tokens than we do.

    Args:
        lines: How many there are.
    """
    return "Throughout yesterday afternoon everybody remembered something extraordinary.\n" * lines


def documented(**changed: Any) -> ContextConfig:
    """Return the configuration that the page shows."""
    return ContextConfig(**{"trigger_ratio": 0.8, "reserve_ratio": 0.1, "tool_result_limit": 3000, **changed})


def agent(
    way: str,
    offloader: Any,
    model: ScriptedModel,
    *messages: Msg,
    of: AgentState | None = None,
    tools: Toolkit | None = None,
    **changed: Any,
) -> Agent:
    """Return the page's agent with *offloader*, with our middleware on it, or with both."""
    return Agent(
        name="my_agent",
        system_prompt="You chart buoys.",
        model=model,
        toolkit=tools or toolkit(depths),
        middlewares=[] if way == "plain" else [WorkspaceMiddleware(offloader)],
        state=of or state("s1", *messages),
        offloader=None if way == "middleware" else offloader,
        context_config=documented(**changed),
    )


def rounds(count: int, words: int = 60) -> list[Msg]:
    """Return questions, and replies that hold a call and its result."""
    found: list[Msg] = []
    for number in range(count):
        made = ToolCallBlock(id=f"call_{number}", name="depths", input=json.dumps({"rows": number}))
        given = ToolResultBlock(id=f"call_{number}", name="depths", output=f"{number * 7} fathoms " * words)
        said = TextBlock(text=f"Buoy {number} lies at {number * 7} fathoms.")
        found += [UserMsg("ada", f"How deep is buoy {number}?"), AssistantMsg("my_agent", [made, given, said])]
    return found


async def input_tokens(given: Agent) -> int:
    found: Any = given
    model: Any = given.model
    tokens: int = await model.count_tokens(**await found._prepare_model_input())
    return tokens


async def sized(way: str, workspace: Any, share: float, *messages: Msg, **changed: Any) -> Agent:
    """Return an agent whose context takes just this share of its model's window."""
    made = agent(way, workspace, ScriptedModel(), *messages, **changed)
    made.model.context_size = int(await input_tokens(made) / share)
    return made


def files_in(workdir: Path) -> set[str]:
    return {str(path.relative_to(workdir)) for path in workdir.rglob("*") if path.is_file()}


class TestCompressContext:
    @in_all_ways
    async def test_below_the_trigger_it_does_nothing_and_above_it_summarises(self, way: str, tmp_path: Path) -> None:
        workspace = LocalWorkspace(workdir=str(tmp_path / "agent_workspace"))
        await workspace.initialize()
        below = await sized(way, workspace, 0.79, *rounds(12))
        before = below.state.model_dump_json()
        await below.compress_context()
        assert below.state.model_dump_json() == before

        above = await sized(way, workspace, 0.81, *rounds(12))
        await above.compress_context()
        assert all(text in str(above.state.summary) for text in FIVE_FIELDS.values())
        assert await input_tokens(above) < 0.8 * above.model.context_size

    async def test_what_takes_just_the_trigger_does_not_exceed_it(self, tmp_path: Path) -> None:
        made = await sized("middleware", LocalWorkspace(tmp_path), 1.0, *rounds(12), trigger_ratio=0.5)
        made.model.context_size = 2 * await input_tokens(made)
        await made.compress_context()
        assert made.state.summary == ""
        made.model.context_size -= 2
        await made.compress_context()
        assert made.state.summary

    @in_all_ways
    async def test_a_one_off_configuration_compresses_more_and_is_forgotten(self, way: str, tmp_path: Path) -> None:
        made = await sized(way, LocalWorkspace(tmp_path), 0.6, *rounds(12))
        await made.compress_context()
        assert made.state.summary == ""
        await made.compress_context(context_config=ContextConfig(trigger_ratio=0.5, reserve_ratio=0.1))
        assert made.state.summary
        assert made.context_config == documented()

    @in_all_ways
    @pytest.mark.parametrize("part", ["system prompt", "summary", "tools"])
    async def test_system_prompt_summary_and_tools_count_as_the_context_does(
        self, way: str, part: str, tmp_path: Path
    ) -> None:
        def wordy() -> str:
            return ""

        wordy.__doc__ = "Say nothing. " * 400
        of = state("s1", *rounds(6))
        of.summary = "The buoys are red. " * 300 if part == "summary" else ""
        tools = toolkit(depths, wordy) if part == "tools" else None
        made = agent(way, LocalWorkspace(tmp_path), ScriptedModel(), of=of, tools=tools)
        made._system_prompt = "You chart buoys. " * 300 if part == "system prompt" else "You chart buoys."
        alone = agent(way, LocalWorkspace(tmp_path), ScriptedModel(), *of.context)
        made.model.context_size = int(await input_tokens(alone) / 0.7)
        assert await input_tokens(made) > 0.8 * made.model.context_size
        before = made.state.summary
        await made.compress_context()
        assert made.state.summary != before
        assert len(made.state.context) < 12

    @in_all_ways
    @pytest.mark.parametrize("ratio", [0.02, 0.1, 0.3, 0.6])
    async def test_the_recent_messages_within_the_reserve_stay_with_whole_pairs(
        self, way: str, ratio: float, tmp_path: Path
    ) -> None:
        sent = rounds(12)
        made = await sized(way, LocalWorkspace(tmp_path), 0.85, *sent, reserve_ratio=ratio)
        await made.compress_context()
        kept, model = made.state.context, made.model
        room = ratio * model.context_size
        blocks = [block for message in kept for block in message.content]
        everything = [block.id for message in sent for block in message.content]
        assert [block.id for block in blocks] == everything[len(everything) - len(blocks) :]
        assert {b.id for b in blocks if b.type == "tool_call"} == {b.id for b in blocks if b.type == "tool_result"}
        newest = await model.count_tokens([sent[-1]], None)
        assert await model.count_tokens(list(kept), None) <= max(room, newest) * 1.1
        assert await model.count_tokens(list(kept), None) >= room - 2 * newest

    @in_all_ways
    async def test_the_model_is_asked_for_the_five_fields_by_the_agents_schema_and_the_template_is_filled(
        self, way: str, tmp_path: Path
    ) -> None:
        made = await sized(way, LocalWorkspace(tmp_path), 0.9, *rounds(12))
        await made.compress_context()
        model: Any = made.model
        (request,) = (request for request in model.requests if request.wants_summary)
        assert request.tools[0]["function"]["parameters"] == made.context_config.summary_schema
        assert list(request.tools[0]["function"]["parameters"]["properties"]) == list(FIVE_FIELDS)
        heading = (
            r"# Task Overview\n.+# Current State\n.+# Important Discoveries\n.+# Next Steps\n.+# Context to Preserve"
        )
        assert re.search(heading, str(made.state.summary), re.DOTALL)
        assert "You have been working on the task described above" in request.text

    @in_all_ways
    async def test_a_schema_of_a_model_with_lists_and_what_may_be_missing_works(self, way: str, tmp_path: Path) -> None:
        class Log(BaseModel):
            depths: list[str]
            anchored: bool
            harbour: str | None = None

        filled = {"depths": ["buoy 1: 7 fathoms", "buoy 2: 14 fathoms"], "anchored": True, "harbour": None}
        made = await sized(
            way,
            LocalWorkspace(tmp_path),
            0.9,
            *rounds(12),
            summary_schema=Log.model_json_schema(),
            summary_template="<log>{depths} / {anchored} / {harbour}</log>",
        )
        model: Any = made.model
        model._summaries = [filled]
        await made.compress_context()
        summary = str(made.state.summary)
        assert "buoy 1: 7 fathoms" in summary
        assert "buoy 2: 14 fathoms" in summary
        assert summary.index("<log>") < summary.index("14 fathoms") < summary.index("</log>")
        assert sum(request.wants_summary for request in model.requests) == 1

    @in_all_ways
    async def test_it_runs_before_a_reasoning_step_and_the_agent_goes_on(self, way: str, tmp_path: Path) -> None:
        turns = [[call("depths", f"call_{turn}", rows=150)] for turn in range(12)]
        model = ScriptedModel([*turns, "Charted."], context_size=4_000)
        made = agent(way, LocalWorkspace(tmp_path), model)
        answer = await made.reply(UserMsg("ada", "Chart them all."))
        assert answer.get_text_content() == "Charted."
        assert sum(request.wants_summary for request in model.requests) >= 2
        for request in model.turns:
            assert await model.count_tokens(request.messages, request.tools) <= 4_000
        last = model.turns[-1].messages
        assert [message.role for message in last[:2]] == ["system", "user"]
        assert FIVE_FIELDS["current_state"] in str(last[1].get_text_content())


class TestTruncateToolResults:
    async def test_the_marker_names_the_file_as_documented(self, tmp_path: Path) -> None:
        workspace = LocalWorkspace(workdir=tmp_path)
        made = agent("plain", workspace, ScriptedModel([[call("depths", rows=3_000)], "Seen."]))
        await made.reply(UserMsg("ada", "How deep are they?"))
        (result,) = (block for message in made.state.context for block in message.get_content_blocks("tool_result"))
        (path,) = (tmp_path / "sessions/s1").glob("tool_result-*.txt")
        marker = (
            "\n<<<TRUNCATED>>>\n<system-reminder>The remaining content has been omitted for limited context. "
            f"You can refer to the file in '{path}' for the truncated content if needed.</system-reminder>"
        )
        (block,) = list(result.output)
        assert isinstance(block, TextBlock)
        assert block.text.endswith(marker)
        assert block.text.removesuffix(marker) + path.read_text("utf-8") == depths(3_000)

    @in_all_ways
    async def test_a_result_that_takes_just_the_limit_stays(self, way: str, tmp_path: Path) -> None:
        model = ScriptedModel()
        size = await model.count_tokens([AssistantMsg("my_agent", [TextBlock(text=prose(50))])], None)
        for limit, is_cut in ((size, False), (size // 2, True)):
            model = ScriptedModel([[call("prose", lines=50)], "Seen."])
            where = LocalWorkspace(tmp_path / str(limit))
            made = agent(way, where, model, tools=toolkit(prose), tool_result_limit=limit)
            await made.reply(UserMsg("ada", "How deep are they?"))
            assert bool(list((tmp_path / str(limit)).glob("sessions/s1/tool_result-*"))) is is_cut

    @in_all_ways
    async def test_a_result_that_cannot_be_stored_ends_the_plain_agent_and_not_the_one_with_the_middleware(
        self, way: str, tmp_path: Path
    ) -> None:
        made = agent(way, LocalWorkspace(tmp_path), ScriptedModel([[call("depths", rows=3_000)], "Seen."]))
        if way == "plain":
            with files_up_to(10), pytest.raises(ExceptionGroup) as caught:
                await made.reply(UserMsg("ada", "How deep are they?"))
            assert caught.group_contains(StorageError)
        else:
            with files_up_to(10):
                answer = await made.reply(UserMsg("ada", "How deep are they?"))
            assert answer.get_text_content() == "Seen."
            (result,) = (block for message in made.state.context for block in message.get_content_blocks("tool_result"))
            marker = (
                "\n<<<TRUNCATED>>>\n<system-reminder>The remaining content has been omitted for limited context."
                "</system-reminder>"
            )
            (block,) = list(result.output)
            assert isinstance(block, TextBlock)
            assert block.text.endswith(marker)
            assert depths(3_000).startswith(block.text.removesuffix(marker))
            assert 1_500 < await made.model.count_tokens([AssistantMsg("my_agent", [block])], None) <= 3_000


class TestAttachedFiles:
    @pytest.mark.parametrize("way", ["plain", "both"])
    async def test_a_file_that_the_model_cannot_read_is_saved_by_the_agents_offloader(
        self, way: str, tmp_path: Path
    ) -> None:
        """An agent with the middleware alone has nowhere to put it, and no hook is asked."""
        chart = DataBlock(name="chart.pdf", source=Base64Source(data="Y2hhcnQ=", media_type="application/pdf"))
        made = agent(way, LocalWorkspace(tmp_path), model := ScriptedModel())
        await made.reply(UserMsg("ada", [TextBlock(text="See."), chart]))
        (path,) = (tmp_path / "data").iterdir()
        assert path.read_bytes() == b"chart"
        assert f"An attached file named 'chart.pdf' is saved into workspace:///data/{path.name}." in (
            model.requests[0].text
        )


class TestLayout:
    @in_all_ways
    async def test_files_lie_where_the_page_says(self, way: str, tmp_path: Path) -> None:
        png = b"\x89PNG\r\n\x1a\n" + bytes(64)
        shown = DataBlock(source=Base64Source(data=base64.b64encode(png).decode("ascii"), media_type="image/png"))
        workspace = LocalWorkspace(workdir=str(tmp_path))
        await workspace.initialize()
        for session in ("first", "second"):
            of = state(session, UserMsg("ada", [TextBlock(text="See?"), shown]), *rounds(12))
            model = ScriptedModel([[call("depths", "call_loud", rows=3_000)], "Seen."], context_size=16_000)
            made = agent(way, workspace, model, of=of)
            await made.reply(UserMsg("ada", "How deep are they?"))
            await made.compress_context(ContextConfig(trigger_ratio=0.01, reserve_ratio=0.001))
        found = files_in(tmp_path)
        expected = {f"sessions/{session}/{name}" for session in ("first", "second") for name in (
            "context.jsonl", "tool_result-call_loud.txt")}  # fmt: skip
        assert expected <= found
        assert {name for name in found if name.startswith("data/")} == {f"data/{hashlib.sha256(png).hexdigest()}.png"}
        for session in ("first", "second"):
            lines = (tmp_path / "sessions" / session / "context.jsonl").read_text("utf-8").splitlines()
            assert [Msg.model_validate_json(line).role for line in lines][:2] == ["user", "user"]

    @in_all_ways
    async def test_two_agents_at_once_in_one_workdir_do_not_collide(self, way: str, tmp_path: Path) -> None:
        async def worked(session: str) -> Agent:
            workspace = LocalWorkspace(workdir=tmp_path)
            turns = [[call("depths", f"call_{turn}", rows=700 if turn == 3 else 150)] for turn in range(8)]
            model = ScriptedModel([*turns, f"Charted by {session}."], context_size=4_000)
            made = agent(way, workspace, model, of=state(session), tool_result_limit=1_500)
            await made.reply(UserMsg("ada", f"Chart them all for {session}."))
            await made.compress_context(ContextConfig(trigger_ratio=0.01, reserve_ratio=0.001))
            return made

        both = await asyncio.gather(worked("first"), worked("second"))
        for session, made in zip(("first", "second"), both, strict=True):
            lines = (tmp_path / "sessions" / session / "context.jsonl").read_text("utf-8").splitlines()
            messages = [Msg.model_validate_json(line) for line in lines]
            assert messages[0].get_text_content() == f"Chart them all for {session}."
            left = (
                messages if way == "plain" else [*map(Msg.model_validate, archived(LocalWorkspace(tmp_path), session))]
            )
            kept = [block.id for message in [*left, *made.state.context] for block in message.content]
            assert len(kept) == len(set(kept)) + 8  # a call and its result have one id
            written = [block.id for message in messages for block in message.content]
            assert written == (kept[: len(written)] if way == "plain" else kept)
            assert (tmp_path / "sessions" / session / "tool_result-call_3.txt").is_file()
        assert verify(LocalWorkspace(tmp_path)).findings == ()

    @in_all_ways
    async def test_audio_of_messages_that_left_is_in_data(self, way: str, tmp_path: Path) -> None:
        said = DataBlock(source=Base64Source(data=base64.b64encode(b"ahoy").decode(), media_type="audio/wav"))
        of = state("s1", UserMsg("ada", [TextBlock(text="Hear?"), said]), *rounds(12))
        model = ScriptedModel(context_size=16_000, input_types=("text/plain", "audio/*"))
        made = agent(way, LocalWorkspace(tmp_path), model, of=of)
        await made.compress_context(ContextConfig(trigger_ratio=0.01, reserve_ratio=0.001))
        line = (tmp_path / "sessions/s1/context.jsonl").read_text("utf-8").splitlines()[0]
        source: Any = Msg.model_validate_json(line).get_content_blocks("data")[0].source
        (path,) = (tmp_path / "data").iterdir()
        assert path.read_bytes() == b"ahoy"
        assert (str(source.url), source.media_type) == (f"workspace:///data/{path.name}", "audio/wav")

    async def test_a_folder_of_skills_beside_is_left_alone(self, tmp_path: Path) -> None:
        skill = tmp_path / "skills" / "sounding" / "SKILL.md"
        skill.parent.mkdir(parents=True)
        skill.write_text("---\nname: sounding\ndescription: Sound it.\n---\n", "utf-8")
        workspace = LocalWorkspace(workdir=tmp_path)
        await workspace.initialize()
        await workspace.offload_context("s1", rounds(2))
        assert verify(workspace).findings == ()
        assert skill.read_text("utf-8").startswith("---\nname: sounding")

    async def test_a_session_that_its_own_workspace_began_is_refused_and_stays_as_it_was(self, tmp_path: Path) -> None:
        its = ItsWorkspace(workdir=str(tmp_path))
        await its.offload_context("s1", rounds(2))
        before = (tmp_path / "sessions/s1/context.jsonl").read_bytes()
        ours = LocalWorkspace(workdir=tmp_path)
        with pytest.raises(CorruptError):
            await ours.offload_context("s1", rounds(2))
        assert (tmp_path / "sessions/s1/context.jsonl").read_bytes() == before
        assert sorted(path.name for path in (tmp_path / "sessions/s1").iterdir()) == ["context.jsonl"]
        await ours.offload_context("s2", rounds(2))
        assert len((tmp_path / "sessions/s2/context.jsonl").read_text("utf-8").splitlines()) == 4


class S3Offloader:
    """The page's example, whose bucket is a dict."""

    def __init__(self, bucket: str, prefix: str) -> None:
        self.bucket = bucket
        self.prefix = prefix
        self.uploads: list[tuple[str, str]] = []

    async def offload_context(self, session_id: str, msgs: list[Msg], **kwargs: Any) -> str:
        key = f"{self.prefix}/sessions/{session_id}/context.jsonl"
        content = "\n".join(m.model_dump_json() for m in msgs)
        await self._upload(self.bucket, key, content)
        return f"s3://{self.bucket}/{key}"

    async def offload_tool_result(self, session_id: str, tool_result: ToolResultBlock, **kwargs: Any) -> str:
        key = f"{self.prefix}/sessions/{session_id}/tool_result-{tool_result.id}.txt"
        blocks = [TextBlock(text=tool_result.output)] if isinstance(tool_result.output, str) else tool_result.output
        content = "".join(block.text for block in blocks if isinstance(block, TextBlock))
        await self._upload(self.bucket, key, content)
        return f"s3://{self.bucket}/{key}"

    async def _upload(self, bucket: str, key: str, content: str) -> None:
        assert bucket == self.bucket
        self.uploads.append((key, content))

    def uploaded(self, name: str) -> list[str]:
        """Return what was uploaded under that file name, in order."""
        return [content for key, content in self.uploads if key == f"{self.prefix}/sessions/s1/{name}"]


class TestCustomOffloader:
    async def test_the_pages_example_gets_all_that_leaves_an_agent(self) -> None:
        offloader = S3Offloader("bucket", "agents")
        model = ScriptedModel([[call("depths", rows=3_000)], "Seen."], context_size=24_000)
        made = agent("plain", offloader, model, *(sent := rounds(12)))
        await made.reply(UserMsg("ada", "How deep are they?"))
        await made.compress_context(ContextConfig(trigger_ratio=0.01, reserve_ratio=0.001))
        (text,) = offloader.uploaded("tool_result-call_1.txt")
        assert depths(3_000).endswith(text)
        left = [line for upload in offloader.uploaded("context.jsonl") for line in upload.split("\n")]
        blocks = [block.id for line in left for block in Msg.model_validate_json(line).content]
        assert blocks[: sum(len(message.content) for message in sent)] == [
            block.id for message in sent for block in message.content
        ]
        assert "s3://bucket/agents/sessions/s1/context.jsonl" in str(made.state.summary)


class TestRestart:
    @pytest.mark.parametrize("way", [pytest.param("plain", marks=pytest.mark.slow), "both"])
    async def test_after_a_kill_the_old_references_lead_to_the_details(self, way: str, tmp_path: Path) -> None:
        lived = tmp_path / "lived"
        lived.mkdir()
        first = multiprocessing.get_context("spawn").Process(target=agentscope_page_life.process, args=(lived, way))
        first.start()
        await asyncio.to_thread(first.join)
        assert first.exitcode == -signal.SIGKILL
        for saved, detail in (("state.json", "buoy 2999: 20993 fathoms"), ("compressed.json", "code is 4711.")):
            shown = (lived / saved).read_text("utf-8")
            named = set(re.findall(r"/[^\s'\"\\\]]+?(?:context\.jsonl|transcript\.md|tool_result-call_1\.txt)", shown))
            assert any(detail in Path(path).read_text("utf-8") for path in named)
            await goes_on(lived, tmp_path / saved.removesuffix(".json"), saved, way)


async def goes_on(lived: Path, directory: Path, saved: str, way: str) -> None:
    """Go on from a state that was saved before the compression, or after it."""
    shutil.copytree(lived, directory)
    (directory / "state.json").write_bytes((lived / saved).read_bytes())
    made, workspace = await agentscope_page_life.opened(directory, way)
    await made.reply(UserMsg("ada", "And the others?"))
    await made.compress_context(context_config=ContextConfig(trigger_ratio=0.01, reserve_ratio=0.001))
    lines = (directory / "agent_workspace/sessions/s1/context.jsonl").read_text("utf-8").splitlines()
    said = [Msg.model_validate_json(line).get_text_content() or "" for line in lines]
    assert any("4711" in text for text in said)
    assert "And the others?" in said
    assert verify(workspace).findings == ()


async def test_an_agentscope_without_the_private_name_is_a_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = agent("middleware", LocalWorkspace(tmp_path), ScriptedModel(), *rounds(2))
    monkeypatch.delattr(Agent, "_prepare_model_input")
    with pytest.raises(ConfigError, match=r"has no Agent\._prepare_model_input.*; install agentscope 2\.0\.11"):
        await made.compress_context()


class TestOurOwnSettings:
    def test_the_documented_fields_have_the_documented_names_and_defaults(self) -> None:
        assert OurConfig() == OurConfig(trigger_ratio=0.8, reserve_ratio=0.1, tool_result_limit=3000)
        documented_fields = {
            "trigger_ratio", "reserve_ratio", "tool_result_limit", "compression_prompt", "summary_template",
            "summary_schema",
        }  # fmt: skip
        assert documented_fields <= set(OurConfig.__dataclass_fields__)
        assert OurConfig(trigger_ratio=0.9).trigger_ratio == 0.9
        with pytest.raises(ConfigError, match=r"at most 0\.9"):
            OurConfig(trigger_ratio=0.91)

    async def test_agentscopes_own_configuration_is_refused_by_its_full_name(self) -> None:
        """Both are called ContextConfig."""
        with pytest.raises(ConfigError, match=r"agentscope\.agent.*is not a buoyline\.ContextConfig"):
            await ContextWindow.open(MemoryWorkspace(), "s1", config=documented())  # type: ignore[arg-type]

    def test_prompt_template_and_schema_of_agentscopes_configuration_can_be_taken_over(self) -> None:
        theirs: Any = ContextConfig()
        config = OurConfig(
            compression_prompt=theirs.compression_prompt,
            summary_template=theirs.summary_template,
            summary_schema=theirs.summary_schema,
        )
        assert config.fields == tuple(FIVE_FIELDS)
