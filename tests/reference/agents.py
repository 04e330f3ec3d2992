"""Plays a script on an agent of AgentScope with one version's middleware; see `reference.player`, which it follows.

The model is scripted. Identifiers and times that AgentScope makes are counted like buoyline's, so that its messages
can be compared, too.
"""

import asyncio
import datetime as dt
import importlib
import json
import sys
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from agentscope.agent import Agent, ContextConfig
from agentscope.message import Base64Source, DataBlock, HintBlock, Msg, TextBlock, ToolResultBlock, UserMsg
from agentscope.state import AgentState
from agentscope.tool import ToolChunk
from agentscope_model import FIVE_FIELDS, Request, ScriptedModel, call, toolkit

from reference import scripts
from reference.names import Names
from reference.player import Clock, Plain, Player, _count_identifiers

MADE = 8
"""Kinds of text in `scripts.KINDS` that the tool gives; the others are for previews."""


def look(kind: int, size: int, pictures: int = 0) -> ToolChunk:
    """Look at something.

    Args:
        kind: What.
        size: How much of it.
        pictures: How many pictures come with it.
    """
    text = scripts.KINDS[kind](scripts.chance_of(("agent", kind, size)), size)
    return ToolChunk(content=[TextBlock(text=text), *(_picture(kind + size + at) for at in range(pictures))])


def _picture(number: int) -> DataBlock:
    return DataBlock(source=Base64Source(data=scripts.picture(number), media_type="image/png"), name="chart.png")


class AwayError(Exception):
    """No second attempt can help."""

    status_code = 401


class Refusing(ScriptedModel):
    """Refuses requests of more than *limit* characters; its summaries fail at the numbers in *fails_at*."""

    def __init__(self, limit: int | None, fails_at: Sequence[int], **settings: Any) -> None:
        super().__init__(**settings)
        self._limit, self._fails_at, self._summed = limit, fails_at, 0

    async def _call_api(self, model_name: str, messages: list[Msg], *args: Any, **asked: Any) -> Any:
        if self._limit is not None and len(Request(messages, []).text) > self._limit:
            raise ValueError("Error code: 400 - This model's maximum context length is 4000 tokens.")
        return await super()._call_api(model_name, messages, *args, **asked)

    def _summary(self, request: Request) -> list[Any]:
        self._summed += 1
        if self._summed in self._fails_at:
            raise AwayError("the model is away")
        return super()._summary(request)


class AgentPlayer(Player):
    """Plays operations on one agent at a time."""

    def __init__(self, names: Names, workdir: str) -> None:
        super().__init__(names, workdir)
        names.ask_by_count()
        self.saved: list[str] = []
        self._replies, self._rounds, self._asked = 0, 0, 0

    async def do_open(self, **settings: Any) -> None:
        """Begin with a new agent, or with messages of its own."""
        self.settings = settings
        self._make_offloader()
        state = AgentState(session_id="s1", context=[UserMsg("user", text) for text in settings.get("context", ())])
        state.summary = settings.get("summary", "")
        self._begin(state)

    async def do_restart(self, saved: int | None = None, **settings: Any) -> None:
        """Go on as another process would, from the state as it is, or from one that was saved."""
        text = self.agent.state.model_dump_json() if saved is None else self.saved[saved]
        self.settings |= settings
        if self.settings.get("offloader", "local") == "local":
            await self._close_offloader()
            self._make_offloader()
        self._begin(AgentState.model_validate_json(text))

    def _begin(self, state: AgentState) -> None:
        settings = self.settings
        rules = {tool: self.names["ToolRule"](**rule) for tool, rule in settings.get("tool_rules", {}).items()}
        ours = importlib.import_module("buoyline.integrations.agentscope")
        middleware = ours.WorkspaceMiddleware(
            self.offloader,
            preview_tokens=150,
            turn_results_limit=settings.get("turn_results_limit"),
            tool_rules=rules,
            on_event=self._on_event,
            management=settings.get("management"),
        )
        self.model = Refusing(
            settings.get("limit"),
            settings.get("summary_fails_at", ()),
            answers=[self._answer],
            summaries=[_summary],
            context_size=settings["size"],
        )
        config = ContextConfig(**{"tool_result_limit": 300, **settings.get("config", {})})
        tools = toolkit(look)
        self.agent = Agent("pilot", "You are a pilot.", self.model, tools, [middleware], state, context_config=config)

    def _answer(self, request: Request) -> Any:
        """Look at things, as often as this reply does, and then answer."""
        seed = self._replies
        if self._asked >= self._rounds:
            return f"Done with {seed} after {len(request.messages)} messages."
        self._asked += 1
        chance: Random = scripts.chance_of(("answer", seed, self._asked))
        said = TextBlock(text=f"{scripts.sentence(chance, 30)} I look at src/{seed}_{self._asked}.py.")
        return [said, *(_call(chance, f"c{seed}_{self._asked}_{n}") for n in range(chance.choice((1, 1, 2, 3))))]

    async def do_reply(self, rounds: int, pictures: int = 0, metadata: Mapping[str, Any] | None = None) -> Plain:
        """Let the agent reply to a user, and look at something so many times before it answers."""
        self._replies, self._rounds, self._asked = self._replies + 1, rounds, 0
        words = f"{scripts.sentence(scripts.chance_of(self._replies), 20)} Never touch legacy/."
        blocks: list[Any] = [TextBlock(text=words), *map(_picture, range(pictures))]
        try:
            answer = await self.agent.reply(UserMsg("user", blocks, metadata=dict(metadata or {})))
        finally:
            self.saved.append(self.agent.state.model_dump_json())
        return {"said": answer.get_text_content(), **self._measures()}

    async def do_receive(self, size: int) -> Plain:
        """Put a result into the context that no tool of the agent's gave."""
        made = ToolResultBlock(id=f"out_{size}", name="elsewhere", output=scripts.sentence(scripts.chance_of(1), size))
        self.agent.state.append_context("pilot", [call("elsewhere", f"out_{size}"), made])
        return self._measures()

    async def do_compress(self, config: Mapping[str, Any] | None = None, **options: Any) -> Plain:
        settings = None if config is None else ContextConfig(**{"tool_result_limit": 300, **config})
        focus = options.get("focus")
        await self.agent.compress_context(settings, HintBlock(hint=focus) if focus else None)
        return self._measures()

    async def do_resume_window(self) -> Plain:
        """Show what a window would go on with; it takes the session over."""
        window = await self.names["ContextWindow"].resume(self.offloader, "s1")
        return {"messages": self._shown_messages(window.messages), "tokens": window.tokens}

    async def do_close(self) -> None:
        await self._close_offloader()

    def _measures(self) -> Plain:
        requests = [[self._shown_messages(asked.messages), len(asked.tools)] for asked in self.model.requests]
        self.model.requests.clear()
        state = self.agent.state
        return {
            "requests": requests,
            "summary": state.summary,
            "context": self._shown_messages(state.context),
            "note": state.middle_context.get("buoyline"),
        }

    def _shown_messages(self, messages: Sequence[Msg]) -> Plain:
        return self._messages([json.loads(message.model_dump_json()) for message in messages])


def _call(chance: Random, call_id: str) -> Any:
    pictures = chance.choice((0, 0, 0, 0, 1))
    return call("look", call_id, kind=chance.randrange(MADE), size=chance.choice((2, 5, 9, 60)), pictures=pictures)


def _summary(request: Request) -> Mapping[str, str]:
    """Return what looks like a model's summary: it depends on the request, and cites lines of it."""
    lines = [line for line in request.text.split("\\n") if "transcript.md:" in line]
    found = scripts.sentence(scripts.chance_of(len(lines)), 25)
    return {**FIVE_FIELDS, "current_state": f"{found} It is in src/1_1.py."}


async def _play(player: AgentPlayer) -> None:
    for line in sys.stdin:
        print(json.dumps(await player.answer(json.loads(line))), flush=True)  # noqa: T201 - the protocol


def main() -> None:
    """Answer each line of standard input."""
    version, salt, workdir = sys.argv[1:]
    _count_identifiers(salt)
    importlib.import_module("buoyline.integrations.agentscope")
    for name, module in [*sys.modules.items()]:
        # Not the library's own: pydantic would take the clock for a type that it does not know.
        if name.partition(".")[0] in {"agentscope", "buoyline"} and getattr(module, "datetime", None) is dt.datetime:
            module.datetime = Clock  # type: ignore[attr-defined]
    asyncio.run(_play(AgentPlayer(Names(is_new=version == "new"), workdir)))


if __name__ == "__main__":
    main()
