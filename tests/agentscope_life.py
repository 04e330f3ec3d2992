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

from buoyline import LocalWorkspace
from buoyline.integrations.agentscope import WorkspaceMiddleware
from buoyline.integrations.agentscope.context import behind_head
from buoyline.window.settings import Management

TURNS, CALLS = 4, 4
STATE, ACKNOWLEDGED = "state.json", "acknowledged.jsonl"


class Life:
    """An agent that goes on from what is on disk: its own saved state, and the workspace."""

    def __init__(self, directory: Path, workspace: LocalWorkspace, management: Management | None = None) -> None:
        """Read the state in *directory*, if there is one."""
        self.directory = directory
        saved = directory / STATE
        kept: dict[str, Any] = json.loads(saved.read_text("utf-8")) if saved.exists() else {"turn": 0, "state": None}
        self.turn = int(kept["turn"])
        of = state() if kept["state"] is None else AgentState.model_validate(kept["state"])
        model = ScriptedModel(voyage(TURNS, CALLS, lines=20)[self.turn * (CALLS + 1) :], context_size=3_000)
        middleware = WorkspaceMiddleware(workspace, preview_tokens=100, management=management)
        self.agent = pilot(model, middleware, of=of, tool_result_limit=250)

    async def live(self, connection: Connection | None = None) -> None:
        """Work until the last turn, and tell of each event through *connection*."""
        while self.turn < TURNS:
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
            # What stands again before that was acknowledged when it came.
            behind = [message.model_dump(mode="json") for message in behind_head(self.agent.state)]
            file.write(json.dumps(blocks_in(behind)) + "\n")


def process(directory: Path, connection: Connection) -> None:
    """Live in this process, until it is killed."""
    asyncio.run(Life(directory, LocalWorkspace(directory / "w", durability="off")).live(connection))
