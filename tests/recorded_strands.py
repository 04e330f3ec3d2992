"""Agents of Strands' that talk a recording over: the model says what was recorded, the tools give it."""

import copy
import json
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from recorded_talk import Results, Step, Talk, Turn
from recorded_witness import COUNTER, SESSION, Item, Witness
from strands import Agent
from strands.hooks import MessageAddedEvent
from strands.session import FileSessionManager, SnapshotSessionManager
from strands.storage import LocalFileStorage
from strands.types.exceptions import ContextWindowOverflowException
from strands.types.tools import AgentTool
from strands_model import ScriptedModel, call

from buoyline import LocalWorkspace
from buoyline.integrations.strands import conversation_manager_of
from buoyline.tokens.messages import count_tools


class Played(ScriptedModel):
    """Answers what was recorded, and has each request looked at first."""

    def __init__(self, run: "StrandsRun") -> None:
        super().__init__([self.played], context_window_limit=run.witness.size)
        self.run = run
        self._answer_tokens = 0

    async def stream(
        self, messages: Any, tool_specs: Any = None, system_prompt: str | None = None, **_: Any
    ) -> AsyncGenerator[Any, None]:
        beside = COUNTER.count(system_prompt or "") + count_tools(tool_specs or [], COUNTER)
        self.usage_tokens = beside + self.run.count(messages)
        words = [{"role": "user", "content": [{"text": said}]} for said in self.run.witness.lasting]
        newest = self.run.witness.newest
        answer = [] if newest is None else [{"role": "assistant", "content": self._blocks(newest)}]
        least = beside + self.run.count([*words, *answer])
        self.run.look(messages, self.usage_tokens, least)
        if self.run.witness.is_refused(self.usage_tokens, least):
            raise ContextWindowOverflowException("Input is too long for requested model")
        async for event in super().stream(messages, tool_specs, system_prompt):
            if "metadata" in event:
                usage = {"inputTokens": self.usage_tokens, "outputTokens": self._answer_tokens}
                event["metadata"]["usage"] |= usage if self.run.has_usage else dict.fromkeys(usage, 0)
            yield event

    def played(self, _: Any) -> list[Any]:
        step = self.run.steps.pop(0)
        self.run.results.expect(step)
        self.run.witness.newest = step
        blocks = self._blocks(step)
        self._answer_tokens = self.run.count([{"role": "assistant", "content": blocks}])
        return blocks

    def _blocks(self, step: Step) -> list[Any]:
        blocks: list[Any] = []
        if step.thought:
            blocks.append({"reasoningContent": {"reasoningText": {"text": step.thought}}})
        if step.text:
            blocks.append({"text": step.text})
        return [*blocks, *(call(found.name, found.arguments, found.call_id) for found in step.calls)]


class RecordedTool(AgentTool):
    """A tool that gives what was recorded."""

    def __init__(self, name: str, run: "StrandsRun") -> None:
        super().__init__()
        self._name, self._run = name, run

    @property
    def tool_name(self) -> str:
        return self._name

    @property
    def tool_spec(self) -> Any:
        return {"name": self._name, "description": f"Does {self._name}.", "inputSchema": {"json": {"type": "object"}}}

    @property
    def tool_type(self) -> str:
        return "python"

    async def stream(self, tool_use: Any, invocation_state: dict[str, Any], **_: Any) -> AsyncGenerator[Any, None]:
        text = self._run.results.take(self._name, tool_use["input"])
        yield {"toolUseId": tool_use["toolUseId"], "status": "success", "content": [{"text": text}]}


@dataclass
class StrandsRun:
    """An agent of Strands' that talks a recording over.

    Attributes:
        has_usage: The model says what each request has taken. That is forgotten with the process; a restarted agent
            counts by itself then, and what it does first may be something else.
        has_snapshots: Whether Strands' session is kept in snapshots, or message by message.
        added: Each message of the agent's, as it was when it was added.
    """

    witness: Witness
    talk: Talk
    document: str
    has_usage: bool = False
    has_snapshots: bool = False
    steps: list[Step] = field(default_factory=list)
    results: Results = field(default_factory=Results)
    added: list[dict[str, Any]] = field(default_factory=list)
    agent: Agent | None = None
    workspace: LocalWorkspace | None = None

    async def begin(self) -> None:
        """Begin in a new process."""
        self.workspace = LocalWorkspace(self.witness.root / "w", durability="off")
        sessions: Any = (
            SnapshotSessionManager(SESSION, storage=LocalFileStorage(str(self.witness.root / "strands")))
            if self.has_snapshots
            else FileSessionManager(SESSION, storage_dir=str(self.witness.root / "strands"))
        )
        self.agent = Agent(
            model=Played(self),
            system_prompt=self.talk.system,
            tools=[RecordedTool(name, self) for name in self.talk.names],
            conversation_manager=conversation_manager_of(self.document, workspace=self.workspace, session_id=SESSION),
            session_manager=sessions,
            callback_handler=None,
        )
        self.agent.hooks.add_callback(MessageAddedEvent, self._take)

    def _take(self, event: MessageAddedEvent) -> None:
        self.added.append(copy.deepcopy(event.message))  # type: ignore[arg-type]
        self.witness.said += _items(self.added[-1])

    async def end(self) -> None:
        """Leave on disk what a process leaves."""
        assert self.workspace is not None
        await self.workspace.close()

    async def turn(self, turn: Turn) -> None:
        assert self.agent is not None
        self.steps, self.witness.words = list(turn.steps), turn.words
        expected: list[Item] = [("user", turn.words)]
        for step in turn.steps:
            expected += _said(step)
        before = len(self.witness.said)
        await self.agent.invoke_async(turn.words)
        assert not self.steps
        assert self.witness.said[before:] == expected

    def count(self, messages: Sequence[Any]) -> int:
        return sum(
            self.witness.count("bedrock", found, json.dumps([found["role"], found["content"]])) for found in messages
        )

    def look(self, messages: Sequence[Any], tokens: int, least: int) -> None:
        """Look at a request, and at what is on disk when it goes out."""
        witness = self.witness
        witness.asked.append(witness.spelled([[found["role"], found["content"]] for found in messages]))
        assert messages[0]["role"] == "user"
        assert all(one["role"] != other["role"] for one, other in pairwise(messages)), "roles do not take turns"
        each = [(_ids(found, "toolUse"), _ids(found, "toolResult")) for found in messages]
        assert each[0][1] == []
        for (calls, _), (_, results) in pairwise([*each, ([], [])]):
            assert Counter(calls) == Counter(results), "calls and results do not fit"
        texts = [
            block["text"]
            for found in messages
            if found["role"] == "user"
            for block in found["content"]
            if "text" in block
        ]
        assert witness.words in texts, "the user's newest words are not in the request"
        witness.fits(tokens, least)
        assert self.agent is not None
        witness.archive(_items)
        removed = self.agent.conversation_manager.removed_message_count
        history: list[Any] = list(self.agent.messages)
        tail = [item for found in history[len(history) - (len(self.added) - removed) :] for item in _items(found)]
        before = [item for found in self.added[:removed] for item in _items(found)]
        shared = len(before) - len(witness.archived)
        if shared:
            (last,) = (_items(found) for found in history[len(history) - (len(self.added) - removed) - 1 :][:1])
            assert list(_items(self.added[removed - 1])) == before[-shared:], "more than one message is shared"
            tail = [*list(last)[-shared:], *tail]
        witness.whole(tail)


def _said(step: Step) -> list[Item]:
    said: list[Item] = [("thinking", step.thought)] if step.thought else []
    if step.text:
        said.append(("text", step.text))
    said += [("call", found.call_id, found.name, json.dumps(found.arguments)) for found in step.calls]
    return [*said, *(("result", found.call_id, found.result) for found in step.calls)]


def _ids(message: Any, kind: str) -> list[str]:
    return [block[kind]["toolUseId"] for block in message["content"] if kind in block]


def _items(message: Any) -> Iterator[Item]:
    for block in message["content"]:
        match block:
            case {"text": text}:
                yield ("user" if message["role"] == "user" else "text", text)
            case {"reasoningContent": reasoning}:
                yield ("thinking", reasoning["reasoningText"]["text"])
            case {"toolUse": use}:
                yield ("call", use["toolUseId"], use["name"], json.dumps(use["input"]))
            case {"toolResult": result}:
                text = "\n".join(part["text"] for part in result["content"])
                yield ("result", result["toolUseId"], text)
            case _:
                pass
