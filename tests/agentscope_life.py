"""An agent of AgentScope's in a process of its own; its state is saved after each reply, as services do."""

import asyncio
import json
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from agentscope.message import TextBlock, UserMsg
from agentscope.state import AgentState
from agentscope_model import ScriptedModel, state
from agentscope_pilot import blocks_in, pilot, voyage

from buoyline import ContextConfig, LocalWorkspace
from buoyline.integrations.agentscope import WorkspaceMiddleware
from buoyline.workspace import Workspace

STATE, ACKNOWLEDGED = "state.json", "acknowledged.jsonl"


class StrictModel(ScriptedModel):
    """Refuses a request as providers do, if a call has no result right after it, or a result no call."""

    async def _call_api(self, model_name: str, messages: Any, *args: Any, **asked: Any) -> Any:
        formatter: Any = self.formatter
        awaited: set[str] = set()
        for message in await formatter.format(messages):
            if message["role"] == "tool":
                awaited.remove(message["tool_call_id"])
            else:
                assert not awaited
                awaited = {call["id"] for call in message.get("tool_calls") or ()}
        assert not awaited
        return await super()._call_api(model_name, messages, *args, **asked)


class Life:
    """An agent that goes on from what is on disk: its own saved state, and the workspace."""

    def __init__(self, directory: Path, workspace: Workspace, turns: int, calls: int) -> None:
        """Read the state in *directory*, if there is one."""
        self.directory, self.turns = directory, turns
        saved = directory / STATE
        kept: dict[str, Any] = json.loads(saved.read_text("utf-8")) if saved.exists() else {"turn": 0, "state": None}
        self.turn = int(kept["turn"])
        of = state() if kept["state"] is None else AgentState.model_validate(kept["state"])
        model = StrictModel(voyage(turns, calls, lines=20)[self.turn * (calls + 1) :], context_size=6_000)
        middleware = WorkspaceMiddleware(workspace, config=ContextConfig(preview_tokens=100))
        self.agent = pilot(model, middleware, of=of, tool_result_limit=250)

    async def live(self, connection: Connection | None = None) -> None:
        """Work until the last turn, and tell of each event through *connection*."""
        while self.turn < self.turns:
            name = f"turn-{self.turn}"
            asked = UserMsg("user", [TextBlock(id=name, text=f"Berth 47-{self.turn} is closed. Go on.")], id=name)
            async for _ in self.agent.reply_stream(asked):
                if connection is not None:
                    connection.send_bytes(b"event")
            self.turn += 1
            self.save()

    def save(self) -> None:
        """Save the state; what it holds is acknowledged from then on."""
        kept: dict[str, Any] = {"turn": self.turn, "state": self.agent.state.model_dump(mode="json")}
        beside = self.directory / "state.new"
        beside.write_text(json.dumps(kept), "utf-8")
        Path(beside).replace(self.directory / STATE)
        with (self.directory / ACKNOWLEDGED).open("a", encoding="utf-8") as file:
            file.write(json.dumps(blocks_in(kept["state"]["context"])) + "\n")


def process(directory: Path, connection: Connection, turns: int, calls: int) -> None:
    """Live in this process, until it is killed."""
    asyncio.run(Life(directory, LocalWorkspace(directory / "w", durability="off"), turns, calls).live(connection))
