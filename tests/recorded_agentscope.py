"""Agents of AgentScope's that talk a recording over: the model says what was recorded, the tools give it."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentscope.agent import Agent, ContextConfig, ReActConfig
from agentscope.message import AssistantMsg, Msg, TextBlock, ThinkingBlock, ToolCallBlock, UserMsg
from agentscope.state import AgentState
from agentscope.tool import FunctionTool, ToolChunk, Toolkit
from agentscope_model import ALLOWED, Request, ScriptedModel
from recorded_talk import Results, Step, Talk, Turn
from recorded_witness import COUNTER, SESSION, Item, Witness, paired

from buoyline import LocalWorkspace
from buoyline.integrations.agentscope import WorkspaceMiddleware
from buoyline.tokens.messages import count_tools


class Played(ScriptedModel):
    """Answers what was recorded, and has each request looked at first."""

    def __init__(self, run: "ScopeRun") -> None:
        super().__init__([self.played], context_size=run.witness.size)
        self.run = run

    async def count_tokens(self, messages: Any, tools: Any = None, **_: Any) -> int:
        each = (self.run.witness.count("agentscope", found, found.model_dump_json()) for found in messages)
        return sum(each) + count_tools(tools or [], COUNTER)

    async def _call_api(self, model_name: str, messages: Any, tools: Any = None, *given: Any, **more: Any) -> Any:
        tokens = await self.count_tokens(messages, tools)
        if Request(messages, tools or []).wants_summary:
            self.run.witness.counts.summaries += 1
            assert tokens <= self.context_size, "a summary is asked for with more than the window holds"
        else:
            least = await self._least(messages, tools)
            self.run.look(messages, tokens, await self.formatter.format(messages), least)
            if self.run.witness.is_refused(tokens, least):
                raise ValueError("Error code: 400 - This model's maximum context length is exceeded.")
        return await super()._call_api(model_name, messages, tools, *given, **more)

    async def _least(self, messages: Sequence[Msg], tools: Any) -> int:
        newest, words = self.run.witness.newest, [UserMsg("user", said) for said in self.run.witness.lasting]
        answer = [] if newest is None else [AssistantMsg("pilot", self._blocks(newest))]
        return await self.count_tokens([messages[0], *words, *answer], tools)

    def played(self, _: Request) -> list[Any]:
        step = self.run.steps.pop(0)
        self.run.results.expect(step)
        self.run.said(step)
        self.run.witness.newest = step
        return self._blocks(step)

    def _blocks(self, step: Step) -> list[Any]:
        blocks: list[Any] = []
        if step.thought:
            blocks.append(ThinkingBlock(thinking=step.thought))
        if step.text:
            blocks.append(TextBlock(text=step.text))
        blocks += [
            ToolCallBlock(id=found.call_id, name=found.name, input=json.dumps(found.arguments)) for found in step.calls
        ]
        return blocks


@dataclass
class ScopeRun:
    """An agent of AgentScope's that talks a recording over."""

    witness: Witness
    talk: Talk
    document: str
    steps: list[Step] = field(default_factory=list)
    results: Results = field(default_factory=Results)
    state: str | None = None
    agent: Agent | None = None
    workspace: LocalWorkspace | None = None

    async def begin(self) -> None:
        """Begin in a new process."""
        self.workspace = LocalWorkspace(self.witness.root / "w", durability="off")
        middleware = WorkspaceMiddleware(self.workspace, management=self.document)
        tools: list[Any] = [self._tool(name) for name in self.talk.names]
        state = AgentState(session_id=SESSION) if self.state is None else AgentState.model_validate_json(self.state)
        self.agent = Agent(
            "pilot",
            self.talk.system,
            Played(self),
            Toolkit(tools=tools),
            [middleware],
            state,
            context_config=ContextConfig(tool_result_limit=1_000),
            react_config=ReActConfig(max_iters=1_000),
        )

    async def end(self) -> None:
        """Leave on disk what a process leaves."""
        assert self.agent is not None
        assert self.workspace is not None
        self.state = self.agent.state.model_dump_json()
        await self.workspace.close()

    async def turn(self, turn: Turn) -> None:
        assert self.agent is not None
        self.steps, self.witness.words = list(turn.steps), turn.words
        self.witness.said.append(("user", turn.words))
        await self.agent.reply(UserMsg("user", turn.words))
        assert not self.steps
        self.state = self.agent.state.model_dump_json()

    def look(self, messages: Sequence[Msg], tokens: int, formatted: Any, least: int) -> None:
        """Look at a request, and at what is on disk when it goes out."""
        witness = self.witness
        witness.asked.append(witness.spelled(formatted))
        assert formatted[0]["role"] == "system"
        assert [found["role"] for found in formatted].count("system") == 1
        paired(
            [
                (
                    [found["id"] for found in message.get("tool_calls") or ()],
                    [message["tool_call_id"]] if message["role"] == "tool" else [],
                )
                for message in formatted[1:]
            ]
        )
        users = "\n".join(message.get_text_content() or "" for message in messages if message.role == "user")
        assert witness.words in users, "the user's newest words are not in the request"
        witness.fits(tokens, least)
        assert self.agent is not None
        state = self.agent.state
        witness.archive(_items)
        note: Any = state.middle_context.get("buoyline", {})
        behind = state.context[len(note.get("head", [])) :]
        standing = [item for found in behind for item in _items(found.model_dump(mode="json"))]
        witness.whole(standing)

    def said(self, step: Step) -> None:
        """Take note of an answer and of all that its calls give: agents answer them before they ask again."""
        said = self.witness.said
        if step.thought:
            said.append(("thinking", step.thought))
        if step.text:
            said.append(("text", step.text))
        said += [("call", found.call_id, found.name, json.dumps(found.arguments)) for found in step.calls]
        said += [("result", found.call_id, found.result) for found in step.calls]

    def _tool(self, name: str) -> FunctionTool:
        def give(**arguments: Any) -> ToolChunk:
            return ToolChunk(content=[TextBlock(text=self.results.take(name, arguments))])

        schema = {"type": "object", "properties": {}}
        return FunctionTool(give, name, f"Does {name}.", schema, is_concurrency_safe=False, permission=ALLOWED)


def _items(message: dict[str, Any]) -> Iterator[Item]:
    for block in message["content"]:
        match block["type"]:
            case "text":
                yield ("user" if message["role"] == "user" else "text", block["text"])
            case "thinking":
                yield ("thinking", block["thinking"])
            case "tool_call":
                yield ("call", block["id"], block["name"], block["input"])
            case "tool_result":
                output = block["output"]
                text = output if isinstance(output, str) else "\n".join(part["text"] for part in output)
                yield ("result", block["id"], text)
            case _:
                pass
