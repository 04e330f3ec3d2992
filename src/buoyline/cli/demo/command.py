"""``buoyline demo``."""

import asyncio
import errno
import shlex
import shutil
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import click
from rich.console import Console
from rich.text import Text

from buoyline.cli.demo.session import (
    DEFINITIONS,
    SYSTEM,
    Call,
    Detail,
    Machine,
    Output,
    Repair,
    Script,
    Toolbox,
    Turn,
    create_project,
    dropped_detail,
    recall,
    this_machine,
)
from buoyline.cli.options import json_option
from buoyline.cli.output import print_json
from buoyline.compression import Summary
from buoyline.errors import SessionExistsError, StorageError, storage_error
from buoyline.messages import detect
from buoyline.previews.source import visible
from buoyline.tokens import TextCounter, default_counter
from buoyline.tokens.messages import count_message
from buoyline.window import ContextCompressed, ContextWindow, Event, ResultOffloaded
from buoyline.workspace import LocalWorkspace

# Where the demo prints: paragraphs, lines and titles, as wide and as colourful as the terminal allows.


MIN_WIDTH, MAX_WIDTH = 40, 110
"""Shorter lines hold nothing, and longer ones are hard to read, whatever the terminal's width."""

Part: TypeAlias = str | tuple[str, str] | Text
"""A text as it is, a text and its style, or one that has its styles."""


class Page:
    """Prints on a console. Where that is a file or a pipe, no colour is used, and no long line is broken."""

    def __init__(self, console: Console) -> None:
        """Print on *console*."""
        self.console = console
        self.width = max(min(console.width, MAX_WIDTH), MIN_WIDTH)
        self.is_ascii = console.options.ascii_only

    def title(self, text: str) -> None:
        """Begin a part."""
        self.line()
        rule = "-" if self.is_ascii else "─"
        self.line((f"{rule}{rule} ", "dim"), (text, "bold"), (f" {rule * (self.width - len(text) - 4)}", "dim"))

    def paragraph(self, text: str, *, label: str = "", style: str = "") -> None:
        """Print *text* in lines, the first behind *label*, the others below it."""
        room = self.width - len(label)
        lines = textwrap.wrap(visible(text), room, break_long_words=False, break_on_hyphens=False)
        for number, line in enumerate(lines):
            self.line((" " * len(label) if number else label, style), line)

    def line(self, *parts: Part) -> None:
        """Print a line, with control characters as escapes."""
        text = Text.assemble(*map(_shown, parts))
        text.rstrip()
        self.console.print(text, soft_wrap=True)

    def glyph(self, sign: str, substitute: str) -> str:
        """Return *sign*, or *substitute* where the output can show nothing but ASCII."""
        return substitute if self.is_ascii else sign


def _shown(part: Part) -> Part:
    match part:
        case str():
            return visible(part)
        case (text, style):
            return visible(text), style
        case _:
            return part


# Runs the script through a context window, as an agent's loop runs a model.


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


# What a person sees of a run while it happens.


_SPEAKERS: Final = {"user": ("user   ", "bold green"), "assistant": ("agent  ", "bold blue")}
_BAR_CELLS = 32
_WIDE = 92
_HALF_FULL = 0.5


class Display:
    """Prints the steps of a run."""

    def __init__(self, page: Page, shorter: Mapping[str, str]) -> None:
        """Print on *page*; *shorter* has what stands for long paths in the calls of tools."""
        self._page = page
        self._shorter = shorter
        self._used: list[ToolUsed] = []
        self._offloaded: dict[str, ResultOffloaded] = {}

    def begin(self, size: int) -> None:
        """Say what is about to happen."""
        self._page.title("buoyline demo")
        self._page.paragraph(
            "A scripted agent repairs a small project with real commands on this machine: no model, no key, no "
            f"network. Its window holds {size:,} tokens; all its messages go through buoyline's ContextWindow."
        )

    def show(self, step: Step) -> None:
        """Print a step; a tool is held back until it is known what became of its result."""
        match step:
            case Said():
                label, style = _SPEAKERS[step.role]
                self._page.line()
                self._page.paragraph(step.text, label=label, style=style)
            case ToolUsed():
                self._used.append(step)
            case ResultOffloaded():
                self._offloaded[step.call_id] = step
            case ContextCompressed():
                self._show_tools()
                self._show_compression(step)
            case ModelCalled():
                self._show_tools()
                self._show_context(step)
            case DetailChosen():
                self._page.title("A detail that left the context is found again")
                where = f"none of the {step.messages} messages that the model sees now"
                self._page.paragraph(f'"{step.detail.text}" stands in {where}. The agent is asked for it:')
            case _:
                pass

    def _show_tools(self) -> None:
        for used in self._used:
            self._show_call(used)
            if used.call_id in self._offloaded:
                self._show_offloading(self._offloaded[used.call_id])
            if used.output.answer is not None:
                self._show_answer(used.output.text)
        self._used.clear()

    def _show_call(self, used: ToolUsed) -> None:
        size = f"{used.tokens:,} tokens"
        status = f"exit status {used.output.status}  " if used.output.status else ""
        room = self._page.width - len(f"  $ {status}{size}")
        call = self._spoken(used.call)
        call = call if len(call) < room else call[: room - 4] + "..."
        self._page.line(("  $ ", "dim"), call.ljust(room), (status, "red"), (size, "dim"))

    def _show_offloading(self, event: ResultOffloaded) -> None:
        self._page.line(
            (f"    {self._page.glyph('⤷', '->')} offloaded: ", "cyan"),
            (f"{event.tokens:,} to {event.stub_tokens:,} tokens", "bold cyan"),
            (f", the whole is in {Path(event.path).name}", "cyan"),
        )

    def _show_compression(self, event: ContextCompressed) -> None:
        first, end = event.summary.messages
        self._page.line(
            (f"    {self._page.glyph('▼', 'v')} compressed: ", "magenta"),
            (f"{event.tokens_before:,} to {event.tokens_after:,} tokens", "bold magenta"),
            (f"; messages {first}-{end - 1} archived and summarised", "magenta"),
        )

    def _show_answer(self, text: str) -> None:
        for line in text.splitlines():
            self._page.line("    ", (line, "cyan"))

    def _show_context(self, step: ModelCalled) -> None:
        share = min(step.tokens / step.size, 1.0)
        cells = _BAR_CELLS if self._page.width >= _WIDE else _BAR_CELLS // 2
        filled = round(share * cells)
        self._page.line(
            ("  context ", "dim"),
            (self._page.glyph("█", "#") * filled, "green" if share < _HALF_FULL else "yellow"),
            (self._page.glyph("░", "-") * (cells - filled), "dim"),
            f" {step.tokens:>7,}",
            (f" of {step.size:,} tokens, without buoyline ", "dim"),
            (f"{step.unmanaged_tokens:,}", "red" if step.unmanaged_tokens > step.size else "dim"),
        )

    def _spoken(self, call: Call) -> str:
        arguments = call.arguments
        text = arguments.get("command") or f"{call.tool}({', '.join(map(str, arguments.values()))})"
        for path, short in self._shorter.items():
            text = text.replace(path, short)
        return text


# What a run of the demo comes to, in figures.


@dataclass(frozen=True, slots=True)
class File:
    """A file that the demo left.

    Attributes:
        path: Relative to the workdir, with ``/``.
        size_bytes: Its size.
    """

    path: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Tokens:
    """What one side of the comparison costs.

    Attributes:
        peak: Tokens of the largest model call.
        total: Tokens of all model calls together, which is what is paid for.
    """

    peak: int
    total: int


def managed_tokens(outcome: Outcome) -> Tokens:
    """Return what the model calls took."""
    return _tokens([call.tokens for call in outcome.model_calls])


def unmanaged_tokens(outcome: Outcome) -> Tokens:
    """Return what the same model calls would have taken without buoyline."""
    return _tokens([call.unmanaged_tokens for call in outcome.model_calls])


def files_in(directory: Path) -> Iterator[File]:
    """Yield the files below *directory* by path, hidden ones left out."""
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory)
        if path.is_file() and not any(part.startswith(".") for part in name.parts):
            yield File(name.as_posix(), path.stat().st_size)


def report_of(outcome: Outcome) -> Mapping[str, Any]:
    """Return the figures as JSON values; the names that `buoyline replay` has, too, mean the same there."""
    managed, unmanaged = managed_tokens(outcome), unmanaged_tokens(outcome)
    return {
        "session": SESSION_ID,
        "workdir": str(outcome.workdir),
        "context_size": outcome.size,
        "messages": outcome.messages,
        "tool_calls": len(outcome.tools),
        "steps": len(outcome.model_calls),
        "peak_tokens": managed.peak,
        "peak_tokens_unmanaged": unmanaged.peak,
        "total_tokens": managed.total,
        "total_tokens_unmanaged": unmanaged.total,
        "offloaded": [_offloading(event) for event in outcome.offloaded],
        "compressions": [event.summary.to_json() for event in outcome.compressions],
        "tests": outcome.tests,
        "lookup": _lookup(outcome),
        "files": [asdict(file) for file in files_in(outcome.workdir)],
    }


def _offloading(event: ResultOffloaded) -> dict[str, Any]:
    """Return all of *event* but the stub, which the journal holds."""
    fields = asdict(event)
    del fields["stub"]
    return fields


def _tokens(calls: list[int]) -> Tokens:
    return Tokens(max(calls), sum(calls))


def _lookup(outcome: Outcome) -> dict[str, Any] | None:
    """Return what was looked up and where it was found; the last tools used are grep and read."""
    if outcome.detail is None:
        return None
    found = outcome.tools[-1].output.answer
    lines = found.lines if found is not None else ()
    where = [line for line in lines if outcome.detail.text in line.text]
    return {
        "pattern": outcome.detail.pattern,
        "detail": outcome.detail.text,
        "path": where[0].path if where else "",
        "line": where[0].number if where else 0,
        "text": where[0].text if where else "",
    }


# What a person sees at the end of a run: the files, the summary, the figures, and where to go from here.


_PURPOSES: Final = {
    "chart.py": "the module that was repaired",
    "context.jsonl": "the messages that left the context, as they were",
    "journal.jsonl": "what was committed, with checksums",
    "session.json": "whose session this is",
    "summaries.jsonl": "one line for each compression",
    "transcript.md": "the messages that left, to read and to grep",
    "test_chart.py": "its tests, as they were",
    "window.jsonl": "the messages in the context now, to go on from",
    "workspace.json": "the format of all this",
}
_POINTER: Final = r"\[[\w.~-]+:\d+(-\d+)?(,\d+(-\d+)?)*\]"
_BRANCHES: Final = {False: ("├── ", "│   "), True: ("└── ", "    ")}
_ASCII_BRANCHES: Final = {False: ("|-- ", "|   "), True: ("`-- ", "    ")}


def show_outcome(page: Page, outcome: Outcome) -> None:
    """Print what a run has left and what it comes to."""
    page.title("What the model sees in place of what left")
    _show_summary(page, outcome)
    page.title("On disk")
    _show_files(page, outcome.workdir)
    page.title("Tokens")
    _show_tokens(page, outcome)
    page.title("Look around")
    for command in _commands(outcome):
        page.line("  ", command)


def _show_summary(page: Page, outcome: Outcome) -> None:
    if not outcome.compressions:
        page.paragraph("The context never came near its limit: nothing was compressed.")
        return
    summary = outcome.compressions[-1].summary
    for line in summary.text.rstrip().split("\n"):
        for shown in Text(visible(line)).wrap(page.console, page.width):
            shown.highlight_regex(_POINTER, "cyan")
            shown.highlight_regex(r"^# .*", "bold")
            page.line(shown)


def _show_files(page: Page, workdir: Path) -> None:
    sizes = {file.path: file.size_bytes for file in files_in(workdir)}
    rows = list(_rows("", [path.split("/") for path in sizes], page))
    width = max(len(label) for label, _ in rows)
    page.line(f"{workdir}/")
    for label, path in rows:
        size = f"{sizes[path]:,}" if path in sizes else ""
        purpose = _purpose_of(path.rpartition("/")[2]) if path in sizes else ""
        page.line(label.ljust(width), f"{size:>10}  ", (purpose, "dim"))


def _rows(parent: str, paths: Sequence[Sequence[str]], page: Page, indent: str = "") -> Iterator[tuple[str, str]]:
    """Yield the rows of a tree: how an entry is shown, and its path."""
    branches = _ASCII_BRANCHES if page.is_ascii else _BRANCHES
    names = list(dict.fromkeys(path[0] for path in paths))
    for name in names:
        below = [path[1:] for path in paths if path[0] == name and len(path) > 1]
        branch, continued = branches[name == names[-1]]
        yield f"{indent}{branch}{name}{'/' if below else ''}", f"{parent}{name}"
        yield from _rows(f"{parent}{name}/", below, page, indent + continued)


def _purpose_of(name: str) -> str:
    if name.endswith(".view.txt"):
        return "the same with short lines"
    return "a whole tool result, byte for byte" if name.startswith("tool_result-") else _PURPOSES.get(name, "")


def _show_tokens(page: Page, outcome: Outcome) -> None:
    managed, unmanaged = managed_tokens(outcome), unmanaged_tokens(outcome)
    calls = f"all {len(outcome.model_calls)} model calls"
    rows = (("largest model call", managed.peak, unmanaged.peak), (calls, managed.total, unmanaged.total))
    page.line(("  ".ljust(24) + "with buoyline".rjust(16) + "without".rjust(16), "dim"))
    for label, with_it, without in rows:
        page.line(f"  {label:22}", (f"{with_it:>16,}", "bold green"), f"{without:>16,}", f"{without / with_it:>8.1f} x")
    over = [number for number, call in enumerate(outcome.model_calls, 1) if call.unmanaged_tokens > outcome.size]
    if over:
        page.line(f"  Without buoyline, model call {over[0]} would not have fit a window of {outcome.size:,} tokens.")


def _commands(outcome: Outcome) -> Iterator[str]:
    program = _program()
    yield f"export BUOYLINE_WORKDIR={shlex.quote(str(outcome.workdir))}"
    yield f"{program} show {SESSION_ID}"
    if outcome.detail is not None:
        yield f"{program} grep -C 2 {shlex.quote(outcome.detail.pattern)}"
    if outcome.compressions and (pointer := _pointer_of(outcome.compressions[-1].summary)):
        yield f"{program} read --session {SESSION_ID} {pointer}"


def _pointer_of(summary: Summary) -> str:
    """Return the pointer behind the first decision of the agent, or that of the first sentence."""
    decided = [item.pointer for item in summary.draft.items if "D-1" in item.text and item.pointer is not None]
    found = [*decided, *summary.draft.pointers]
    return str(found[0]) if found else ""


def _program() -> str:
    """Return how to call buoyline here: it need not be on the path when make or an environment has started it."""
    if shutil.which("buoyline"):
        return "buoyline"
    started_as = Path(sys.argv[0])
    return (
        shlex.quote(str(started_as)) if started_as.name == "buoyline" else f"{shlex.quote(sys.executable)} -m buoyline"
    )


_FAILED = 1


@click.command("demo")
@click.option(
    "--workdir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory of the workspace; left out: a new one among the system's temporary files.",
)
@click.option(
    "--context-size",
    type=click.IntRange(min=4_000),
    default=16_000,
    show_default=True,
    help="Tokens that the agent's window holds.",
)
@json_option
def demo_command(workdir: Path | None, context_size: int, *, as_json: bool) -> int:
    """Run a whole session on this machine's own tool outputs.

    A scripted agent lists packages, reads Python's own sources, and repairs a small project whose tests fail. It needs
    no model, no key and no network. What it leaves can be looked at afterwards; it is all in the workdir.

    Example: buoyline demo --workdir ./demo
    """
    machine = this_machine()
    directory = _temporary_directory() if workdir is None else workdir
    if as_json:
        outcome = asyncio.run(run_demo(machine, directory, size=context_size, tell=lambda _: None))
        print_json(report_of(outcome))
        return _status_of(outcome)
    page = Page(Console(highlight=False, emoji=False))
    shorter = {machine.python: "python", str(machine.library): "...", f"{directory.absolute()}/": ""}
    display = Display(page, shorter)
    display.begin(context_size)
    outcome = asyncio.run(run_demo(machine, directory, size=context_size, tell=display.show))
    show_outcome(page, outcome)
    return _status_of(outcome)


def _temporary_directory() -> Path:
    try:
        return Path(tempfile.mkdtemp(prefix="buoyline-demo-"))
    except OSError as error:
        raise storage_error(error) from error


def _status_of(outcome: Outcome) -> int:
    """Return 0 when the repair has worked: its tests failed first and pass now."""
    return 0 if outcome.tests[0] != 0 and outcome.tests[-1] == 0 else _FAILED
