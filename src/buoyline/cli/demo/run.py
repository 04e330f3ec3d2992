"""Runs the script through a context window, as an agent's loop runs a model."""

import errno
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from buoyline.cli.demo.detail import Detail, dropped_detail
from buoyline.cli.demo.machine import Machine
from buoyline.cli.demo.project import create_project
from buoyline.cli.demo.script import SYSTEM, Repair, Script, Turn, recall
from buoyline.cli.demo.tools import DEFINITIONS, Call, Output, Toolbox
from buoyline.errors import SessionExistsError, StorageError, storage_error
from buoyline.messages import detect
from buoyline.tokens import TextCounter, default_counter
from buoyline.tokens.messages import count_message
from buoyline.window import ContextCompressed, ContextWindow, Event, ResultOffloaded
from buoyline.workspace import LocalWorkspace

SESSION_ID = "demo"
PROJECT_NAME = "chart"


@dataclass(frozen=True, slots=True)
class Said:
    """A message of the user or the agent, without its calls."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class ToolUsed:
    """A call and what came back.

    Attributes:
        call_id: Of the call, as it stands in the messages.
        call: The call.
        output: What the tool gave back.
        tokens: What that takes as it is.
    """

    call_id: str
    call: Call
    output: Output
    tokens: int


@dataclass(frozen=True, slots=True)
class ModelCalled:
    """The context was prepared for a model call.

    Attributes:
        tokens: What it takes.
        unmanaged_tokens: What it would take without buoyline.
        size: What there is room for.
    """

    tokens: int
    unmanaged_tokens: int
    size: int


@dataclass(frozen=True, slots=True)
class DetailChosen:
    """The task is done; something that has left the context is about to be looked up.

    Attributes:
        detail: What it is.
        messages: How many messages the context has, none of which holds it.
    """

    detail: Detail
    messages: int


Step: TypeAlias = Said | ToolUsed | ModelCalled | DetailChosen | Event


@dataclass(slots=True)
class Outcome:
    """What happened in a run.

    Attributes:
        workdir: Directory of the workspace.
        project: Directory of the project that was repaired.
        size: Tokens of the window.
        messages: How many messages the session has.
        model_calls: Every model call, in order.
        tools: Every call of a tool, in order.
        offloaded: Every result that was offloaded, in order.
        compressions: Every compression, in order.
        tests: Exit status of each run of the project's tests, in order.
        detail: What was looked up again; None when all of it was in the context still.
    """

    workdir: Path
    project: Path
    size: int
    messages: int = 0
    model_calls: list[ModelCalled] = field(default_factory=list)
    tools: list[ToolUsed] = field(default_factory=list)
    offloaded: list[ResultOffloaded] = field(default_factory=list)
    compressions: list[ContextCompressed] = field(default_factory=list)
    tests: list[int] = field(default_factory=list)
    detail: Detail | None = None

    def record(self, step: Step) -> None:
        """Take note of a step."""
        match step:
            case ModelCalled():
                self.model_calls.append(step)
            case ToolUsed():
                self.tools.append(step)
            case ResultOffloaded():
                self.offloaded.append(step)
            case ContextCompressed():
                self.compressions.append(step)
            case DetailChosen():
                self.detail = step.detail
            case _:
                pass


async def run_demo(machine: Machine, workdir: Path, *, size: int, tell: Callable[[Step], None]) -> Outcome:
    """Repair a project that fails its tests, and look up what has left the context meanwhile.

    Args:
        machine: Where we are.
        workdir: Directory of the workspace; the project is created in it.
        size: Tokens of the window.
        tell: Told of each step as it happens.

    Raises:
        ConfigError: *size* cannot be.
        ContextOverflowError: *size* is less than system prompt, tools and task take.
        SessionExistsError: The workspace has a demo already; nothing was changed.
        StorageError: The file system refused.
    """
    workspace = LocalWorkspace(workdir)
    project = workspace.workdir / PROJECT_NAME
    if SESSION_ID in workspace.session_ids():
        raise SessionExistsError(SESSION_ID, str(workdir))
    if project.exists():
        raise StorageError(errno.EEXIST, "exists already; choose another workdir", str(project))
    agent = _Agent(workspace, Outcome(workspace.workdir, project, size), tell)
    try:
        await agent.repair(machine)
    finally:
        await workspace.close()
    return agent.outcome


class _Agent:
    """The loop of an agent whose model is a script."""

    def __init__(self, workspace: LocalWorkspace, outcome: Outcome, tell: Callable[[Step], None]) -> None:
        self.outcome = outcome
        self._observe = tell
        self._counter: TextCounter = default_counter()
        self._window = ContextWindow(
            offloader=workspace, session_id=SESSION_ID, size=outcome.size, tools=DEFINITIONS, on_event=self._tell
        )
        self._tools = Toolbox(outcome.project, workspace, SESSION_ID)
        self._unmanaged_tokens = self._window.tokens

    async def repair(self, machine: Machine) -> None:
        """Do the task, then look a detail up; the project is created once the window is known to work."""
        task = Repair(machine, self.outcome.project)
        await self._add({"role": "system", "content": SYSTEM})
        await self._ask(task.task)
        await self._window.prepare()
        _create(self.outcome.project)
        await self._follow(task.work())
        tests = [used for used in self.outcome.tools if used.call.arguments.get("command") == task.test_command]
        self.outcome.tests = [used.output.status for used in tests]
        context = self._window.messages
        detail = dropped_detail(tests[0].output.text, context)
        if detail is not None:
            self._tell(DetailChosen(detail, len(context)))
            await self._ask(detail.question)
            await self._follow(recall(detail))

    async def _follow(self, script: Script) -> None:
        await self._prepare()
        turn = next(script)
        while turn.calls:
            outputs = await self._act(turn)
            await self._prepare()
            turn = script.send(outputs)
        await self._add({"role": "assistant", "content": turn.text})
        self._tell(Said("assistant", turn.text))
        await self._window.prepare()  # no call follows; what was said last is written down, too

    async def _prepare(self) -> None:
        """Prepare the context; here a real agent sends it to its model."""
        await self._window.prepare()
        self._tell(ModelCalled(self._window.tokens, self._unmanaged_tokens, self._window.size))

    async def _act(self, turn: Turn) -> tuple[Output, ...]:
        first = len(self.outcome.tools) + 1
        calls = {f"call_{number:02}": call for number, call in enumerate(turn.calls, start=first)}
        tool_calls = [call.to_json(call_id) for call_id, call in calls.items()]
        await self._add({"role": "assistant", "content": turn.text, "tool_calls": tool_calls})
        self._tell(Said("assistant", turn.text))
        return tuple([await self._use(call_id, call) for call_id, call in calls.items()])

    async def _use(self, call_id: str, call: Call) -> Output:
        output = await self._tools.use(call)
        await self._add({"role": "tool", "tool_call_id": call_id, "content": output.text})
        self._tell(ToolUsed(call_id, call, output, self._counter.count(output.text)))
        return output

    async def _ask(self, text: str) -> None:
        await self._add({"role": "user", "content": text})
        self._tell(Said("user", text))

    async def _add(self, message: dict[str, Any]) -> None:
        await self._window.add(message)
        self._unmanaged_tokens += count_message(detect(message).view(message), self._counter)
        self.outcome.messages += 1

    def _tell(self, step: Step) -> None:
        self.outcome.record(step)
        self._observe(step)


def _create(project: Path) -> None:
    try:
        create_project(project)
    except OSError as error:
        raise storage_error(error, str(project)) from error
