"""The script in Strands: its own agent, with `ContextOffloader` and the summarizing manager."""

import json
import os
import re
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from strands import Agent, tool
from strands.agent.conversation_manager import SummarizingConversationManager
from strands.models import Model
from strands.session.file_session_manager import FileSessionManager
from strands.storage import LocalFileStorage
from strands.types.exceptions import ContextWindowOverflowException
from strands.vended_plugins.context_offloader import ContextOffloader

from side_by_side.measuring import Meter
from side_by_side.script import TURNS_OF_A_REQUEST, Script, asks_for_summary, summary_fields, summary_of

SYSTEM = "You look after the modules of a service."
REFERENCES = re.compile(r"^\[Stored references:\]\n((?:.+\n?)+)", re.MULTILINE)


class ScriptedModel(Model):
    """Calls the script's tool turn by turn, and ends an answer when its turns are done."""

    def __init__(self, script: Script, meter: Meter) -> None:
        """Follow *script*, and record each request in *meter*."""
        self._script, self._meter = script, meter
        self._turn, self._ends_answer = 0, False

    def get_config(self) -> Any:
        """Return the size of the window."""
        return {"context_window_limit": self._meter.size}

    def update_config(self, **_: Any) -> None:
        """Take no settings."""

    async def structured_output(
        self, output_model: type[BaseModel], prompt: Any, system_prompt: str | None = None, **_: Any
    ) -> AsyncIterator[Any]:
        """Answer with a summary; no other request comes in this way."""
        with self._meter.in_model():
            texts = [text for message in prompt for block in message["content"] for text in texts_in(block)]
            self._take([*texts, system_prompt or "", json.dumps(output_model.model_json_schema())], wants_summary=True)
            names = list(output_model.model_fields)
            fields = {**dict.fromkeys(names, "See below."), names[-1]: summary_of(texts)}
        yield {"output": output_model(**fields)}

    async def stream(
        self, messages: Any, tool_specs: Any = None, system_prompt: str | None = None, **_: Any
    ) -> AsyncIterator[Any]:
        """Answer as in the script, or with a summary; a request without tools asks for one, too."""
        with self._meter.in_model():
            texts = [text for message in messages for block in message["content"] for text in texts_in(block)]
            others = [system_prompt or "", *map(json.dumps, tool_specs or ())]
            has_fields = asks_for_summary(texts)
            tokens = self._take([*texts, *others], wants_summary=has_fields or not tool_specs)
            if has_fields:
                blocks = [{"text": summary_fields(texts)}]
            else:
                blocks = self._answer() if tool_specs else [{"text": summary_of(texts)}]
        for event in events(blocks, tokens):
            yield event

    def _take(self, texts: list[str], *, wants_summary: bool) -> int:
        tokens, fits = self._meter.takes(texts, wants_summary=wants_summary)
        if not fits:
            raise ContextWindowOverflowException(f"{tokens} tokens do not fit {self._meter.size}")
        return tokens

    def _answer(self) -> list[Any]:
        turn = self._turn
        if self._ends_answer or turn == self._script.turns:
            self._ends_answer = False
            return [{"text": f"The checks up to {turn - 1} are done."}]
        self._turn += 1
        self._ends_answer = self._turn % TURNS_OF_A_REQUEST == 0
        call = {"toolUseId": f"call_{turn}", "name": "run", "input": {"command": self._script.command(turn)}}
        return [{"text": self._script.said(turn)}, {"toolUse": call}]


def events(blocks: list[Any], tokens: int) -> Iterator[Any]:
    """Yield the events that a provider streams for *blocks*."""
    yield {"messageStart": {"role": "assistant"}}
    for block in blocks:
        call = block.get("toolUse")
        start = {"toolUse": {"name": call["name"], "toolUseId": call["toolUseId"]}} if call else {}
        delta = {"toolUse": {"input": json.dumps(call["input"])}} if call else {"text": block["text"]}
        yield {"contentBlockStart": {"start": start}}
        yield {"contentBlockDelta": {"delta": delta}}
        yield {"contentBlockStop": {}}
    yield {"messageStop": {"stopReason": "tool_use" if "toolUse" in blocks[-1] else "end_turn"}}
    usage = {"inputTokens": tokens, "outputTokens": 50, "totalTokens": tokens + 50}
    yield {"metadata": {"usage": usage, "metrics": {"latencyMs": 0}}}


def texts_in(block: Any) -> Iterator[str]:
    """Yield the texts of *block* that a model reads."""
    if "text" in block:
        yield block["text"]
    if "toolUse" in block:
        yield json.dumps(block["toolUse"]["input"])
    if "toolResult" in block:
        yield from (text for nested in block["toolResult"]["content"] for text in texts_in(nested))
    if "json" in block:
        yield json.dumps(block["json"])


class StrandsSide:
    """Strands alone. Subclasses change its parts."""

    def __init__(self, script: Script, meter: Meter, workdir: Path, die_at: int | None) -> None:
        """Begin with an empty *workdir*; the process is killed at the turn *die_at*, if it is given."""
        self.script, self.meter, self.workdir, self.die_at = script, meter, workdir, die_at
        self.agent: Agent

    async def run(self) -> None:
        """See `Side`."""
        self.agent = self.make_agent()
        for turn in self.script.requests:
            await self.agent.invoke_async(self.script.request(turn))

    def make_agent(self) -> Agent:
        """Return the agent: it offloads large results, and summarizes old messages before the window is full."""
        offloader = ContextOffloader(storage=LocalFileStorage(str(self.workdir / "artifacts")))
        manager = SummarizingConversationManager(proactive_compression=True)
        return self.agent_with(plugins=[offloader], conversation_manager=manager)

    def agent_with(self, **options: Any) -> Agent:
        """Return an agent that has the script's tool."""
        model = ScriptedModel(self.script, self.meter)
        return Agent(model=model, tools=[self.tool()], system_prompt=SYSTEM, callback_handler=None, **options)

    def tool(self) -> Any:
        """Return the tool that the script calls."""

        @tool
        def run(command: str) -> str:
            """Run a command.

            Args:
                command: The command.
            """
            if self.die_at is not None and command == self.script.command(self.die_at):
                os.kill(os.getpid(), signal.SIGKILL)
            return self.script.output(command)

        return run

    def context(self) -> str:
        """See `Side`."""
        messages: Any = self.agent.messages
        return "\n".join(text for message in messages for block in message["content"] for text in texts_in(block))

    async def look_up(self, name: str) -> str:
        """See `Side`: try every reference that the context still shows, as if the agent guessed the right one."""
        found: list[str] = []
        for reference in self._references():
            result = self.agent.tool.retrieve_offloaded_content(
                reference=reference, pattern=name, record_direct_tool_call=False
            )
            found += [text for block in result["content"] for text in texts_in(block)]
        return "\n".join(found)

    def _references(self) -> list[str]:
        listed = REFERENCES.findall(self.context())
        return [line.strip().split(" ")[0] for lines in listed for line in lines.splitlines() if line.strip()]


class StrandsSessionSide(StrandsSide):
    """The same with a session manager, which writes every message when it arrives."""

    def agent_with(self, **options: Any) -> Agent:
        """Return an agent that keeps its messages in files."""
        manager = FileSessionManager("s1", storage_dir=str(self.workdir / "session"))
        return super().agent_with(session_manager=manager, **options)
