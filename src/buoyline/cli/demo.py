"""``buoyline demo``: runs the script of `buoyline.cli.demo_script` through a context window, and shows what happens."""

import asyncio
import errno
import shlex
import shutil
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
from rich.console import Console
from rich.text import Text

from buoyline.cli import demo_script as script
from buoyline.cli.options import json_option
from buoyline.cli.output import print_json
from buoyline.errors import SessionExistsError, StorageError, storage_error
from buoyline.messages.registry import detect
from buoyline.previews.source import visible
from buoyline.tokens import TextCounter, default_counter
from buoyline.tokens.messages import count_message
from buoyline.window import ContextCompressed, ContextWindow, Event, ResultOffloaded
from buoyline.workspace import LocalWorkspace, layout

SESSION_ID: Final = "demo"
PROJECT_NAME: Final = "chart"

MIN_WIDTH, MAX_WIDTH = 40, 110
"""Shorter lines hold nothing, and longer ones are hard to read, whatever the terminal's width."""

_BAR_CELLS, _NARROW_BAR_CELLS, _WIDE = 32, 16, 92
_HALF_FULL = 0.5
_CITATION: Final = r"\[[\w.~-]+:\d+(-\d+)?(,\d+(-\d+)?)*\]"
_PURPOSES: Final = {
    "chart.py": "the module that was corrected",
    "context.jsonl": "the archived messages, as they were",
    "journal.jsonl": "what was committed, with checksums",
    "session.json": "whose session this is",
    "summaries.jsonl": "one line for each compaction",
    "transcript.md": "the archived messages, to read and to grep",
    "test_chart.py": "its tests, as they were",
    "window.jsonl": "the messages in the context; a new process resumes from it",
    "workspace.json": "the format of all this",
}


class Screen:
    """Prints as wide and as colourful as the console allows: a file or a pipe gets no colour and whole lines."""

    def __init__(self, console: Console) -> None:
        """Print on *console*."""
        self.console = console
        self.width = max(min(console.width, MAX_WIDTH), MIN_WIDTH)
        self.is_ascii = console.options.ascii_only

    def title(self, text: str) -> None:
        """Begin a part."""
        self.line()
        rule = self.glyph("─", "-")
        self.line((f"{rule}{rule} ", "dim"), (text, "bold"), (f" {rule * (self.width - len(text) - 4)}", "dim"))

    def paragraph(self, text: str, *, label: str = "", style: str = "") -> None:
        """Print *text* in lines, the first behind *label* and the others below it."""
        lines = textwrap.wrap(visible(text), self.width - len(label), break_long_words=False, break_on_hyphens=False)
        for number, line in enumerate(lines):
            self.line((" " * len(label) if number else label, style), line)

    def line(self, *parts: str | tuple[str, str] | Text) -> None:
        """Print a line of texts and of pairs of text and style, with control characters as escapes."""
        text = Text()
        for part in parts:
            if isinstance(part, Text):
                text.append_text(part)
            else:
                words, style = (part, "") if isinstance(part, str) else part
                text.append(visible(words), style)
        text.rstrip()
        self.console.print(text, soft_wrap=True)

    def glyph(self, sign: str, substitute: str) -> str:
        """Return *sign*, or *substitute* if the output shows nothing but ASCII."""
        return substitute if self.is_ascii else sign


class _Terminal(Console):
    """A console whose reader may go: rich would end with 1, as if the demo had failed."""

    def on_broken_pipe(self) -> None:
        """Let the command end as all others do."""
        raise  # noqa: PLE0704 - rich calls this while it handles the error


class ToolUse(NamedTuple):
    """A call, its output, and the tokens of the whole output."""

    call_id: str
    call: script.Call
    output: script.Output
    tokens: int


class Demo:
    """An agent whose model is a script. It prints each step when it happens, and keeps the figures of the run."""

    def __init__(self, machine: script.Machine, workdir: Path, *, size: int, screen: Screen) -> None:
        """Prepare a run on *machine* in the directory *workdir*, with a window of *size* tokens; nothing is written.

        Raises:
            ConfigError: *size* is too small.
            SessionExistsError: The workspace has a demo already.
            StorageError: The project's directory exists already.
        """
        self.machine = machine
        self.screen = screen
        self.workspace = LocalWorkspace(workdir)
        self.project = self.workspace.workdir / PROJECT_NAME
        if SESSION_ID in self.workspace.session_ids():
            raise SessionExistsError(SESSION_ID, str(workdir))
        if self.project.exists():
            raise StorageError(errno.EEXIST, "exists already; choose another workdir", str(self.project))
        self.window = ContextWindow(
            offloader=self.workspace,
            session_id=SESSION_ID,
            size=size,
            tools=script.DEFINITIONS,
            on_event=self._take_event,
        )
        self.messages = 0
        self.model_calls: list[tuple[int, int]] = []
        self.tools: list[ToolUse] = []
        self.offloaded: list[ResultOffloaded] = []
        self.compressions: list[ContextCompressed] = []
        self.tests: list[int] = []
        self.detail: script.Detail | None = None
        self._counter: TextCounter = default_counter()
        self._unmanaged_tokens = self.window.tokens
        self._unshown: list[ToolUse] = []
        self._shorter = {machine.python: "python", str(machine.library): "...", f"{self.workspace.workdir}/": ""}

    async def run(self) -> None:
        """Correct the project, then look up a detail that is in the context no longer.

        Raises:
            ContextOverflowError: The window is smaller than the system prompt, the tools and the task; the project is
                not created.
            StorageError: The file system refused.
        """
        try:
            await self._add({"role": "system", "content": script.SYSTEM})
            await self._ask(script.task(self.project))
            await self.window.prepare()
            script.create_project(self.project)
            await script.repair(self._act, self.machine, self.project)
            command = script.test_command(self.machine)
            tests = [used.output for used in self.tools if used.call.arguments.get("command") == command]
            self.tests = [output.status for output in tests]
            context = self.window.messages
            self.detail = script.archived_detail(tests[0].text, context)
            if self.detail is not None:
                self.screen.title("A detail that is no longer in the context is found again")
                self.screen.paragraph(
                    f'"{self.detail.text}" is in none of the {len(context)} messages that the model sees now. The '
                    "agent is asked for it:"
                )
                await self._ask(self.detail.question)
                await script.recall(self._act, self.detail)
        finally:
            await self.workspace.close()

    async def _act(self, text: str, *calls: script.Call) -> tuple[script.Output, ...]:
        """Take a turn. A real agent would send the prepared context to its model, and get *text* and *calls*."""
        await self.window.prepare()
        self.model_calls.append((self.window.tokens, self._unmanaged_tokens))
        self._show_tools()
        self._show_context()
        by_id = {f"call_{number:02}": call for number, call in enumerate(calls, start=len(self.tools) + 1)}
        tool_calls = [call.to_json(call_id) for call_id, call in by_id.items()]
        await self._add({"role": "assistant", "content": text, **({"tool_calls": tool_calls} if tool_calls else {})})
        self._show_words("agent  ", "bold blue", text)
        if not calls:
            await self.window.prepare()  # no model call follows, but the answer is persisted, too
        outputs: list[script.Output] = []
        for call_id, call in by_id.items():
            output = await script.use_tool(call, self.project, self.workspace, SESSION_ID)
            await self._add({"role": "tool", "tool_call_id": call_id, "content": output.text})
            self.tools.append(ToolUse(call_id, call, output, self._counter.count(output.text)))
            self._unshown.append(self.tools[-1])
            outputs.append(output)
        return tuple(outputs)

    async def _ask(self, text: str) -> None:
        await self._add({"role": "user", "content": text})
        self._show_words("user   ", "bold green", text)

    async def _add(self, message: dict[str, Any]) -> None:
        await self.window.add(message)
        self._unmanaged_tokens += count_message(detect(message).view(message), self._counter)
        self.messages += 1

    def _take_event(self, event: Event) -> None:
        if isinstance(event, ResultOffloaded):
            self.offloaded.append(event)
        elif isinstance(event, ContextCompressed):
            self.compressions.append(event)
            self._show_tools()
            first, end = event.summary.messages
            self.screen.line(
                (f"    {self.screen.glyph('▼', 'v')} compacted: ", "magenta"),
                (f"{event.tokens_before:,} to {event.tokens_after:,} tokens", "bold magenta"),
                (f"; messages {first}-{end - 1} archived and summarised", "magenta"),
            )

    def _show_words(self, label: str, style: str, text: str) -> None:
        self.screen.line()
        self.screen.paragraph(text, label=label, style=style)

    def _show_tools(self) -> None:
        """Print the calls since the last model call; only now it is known which of their results were offloaded."""
        stubs = {event.call_id: event for event in self.offloaded}
        for used in self._unshown:
            arguments = used.call.arguments
            call = arguments.get("command") or f"{used.call.tool}({', '.join(map(str, arguments.values()))})"
            for path, short in self._shorter.items():
                call = call.replace(path, short)
            size = f"{used.tokens:,} tokens"
            status = f"exit status {used.output.status}  " if used.output.status else ""
            width = self.screen.width - len(f"  $ {status}{size}")
            call = call if len(call) < width else f"{call[: width - 4]}..."
            self.screen.line(("  $ ", "dim"), call.ljust(width), (status, "red"), (size, "dim"))
            if (event := stubs.get(used.call_id)) is not None:
                self.screen.line(
                    (f"    {self.screen.glyph('⤷', '->')} offloaded: ", "cyan"),
                    (f"{event.tokens:,} to {event.stub_tokens:,} tokens", "bold cyan"),
                    (f", the whole is in {Path(event.path).name}", "cyan"),
                )
            for line in used.output.text.splitlines() if used.output.answer is not None else ():
                self.screen.line("    ", (line, "cyan"))
        self._unshown.clear()

    def _show_context(self) -> None:
        tokens, unmanaged_tokens = self.model_calls[-1]
        share = min(tokens / self.window.size, 1.0)
        cells = _BAR_CELLS if self.screen.width >= _WIDE else _NARROW_BAR_CELLS
        filled = round(share * cells)
        self.screen.line(
            ("  context ", "dim"),
            (self.screen.glyph("█", "#") * filled, "green" if share < _HALF_FULL else "yellow"),
            (self.screen.glyph("░", "-") * (cells - filled), "dim"),
            f" {tokens:>7,}",
            (f" of {self.window.size:,} tokens, without buoyline ", "dim"),
            (f"{unmanaged_tokens:,}", "red" if unmanaged_tokens > self.window.size else "dim"),
        )


def files_in(directory: Path) -> dict[str, int]:
    """Return the sizes of the files below *directory* by their relative path, without hidden ones."""
    paths = [(path.relative_to(directory), path) for path in sorted(directory.rglob("*")) if path.is_file()]
    return {
        name.as_posix(): path.stat().st_size
        for name, path in paths
        if not any(part.startswith(".") for part in name.parts)
    }


def report_of(demo: Demo) -> Mapping[str, Any]:
    """Return the figures of a run as JSON values; keys that `buoyline replay` also has mean the same."""
    managed, unmanaged = zip(*demo.model_calls, strict=True)
    lookup = None
    if demo.detail is not None:
        answer = demo.tools[-1].output.answer
        lines = [line for line in (answer.lines if answer is not None else ()) if demo.detail.text in line.text]
        path, number, text = (lines[0].path, lines[0].number, lines[0].text) if lines else ("", 0, "")
        found = {"path": path, "line": number, "text": text}
        lookup = {"pattern": demo.detail.pattern, "detail": demo.detail.text, **found}
    return {
        "session": SESSION_ID,
        "workdir": str(demo.workspace.workdir),
        "context_size": demo.window.size,
        "messages": demo.messages,
        "tool_calls": len(demo.tools),
        "steps": len(demo.model_calls),
        "peak_tokens": max(managed),
        "peak_tokens_unmanaged": max(unmanaged),
        "total_tokens": sum(managed),
        "total_tokens_unmanaged": sum(unmanaged),
        "offloaded": [{key: value for key, value in asdict(e).items() if key != "stub"} for e in demo.offloaded],
        "compressions": [event.summary.without_facts().to_json() for event in demo.compressions],
        "tests": demo.tests,
        "lookup": lookup,
        "files": [{"path": path, "size_bytes": size} for path, size in files_in(demo.workspace.workdir).items()],
    }


def show_outcome(demo: Demo) -> None:
    """Print the last summary, the files, the figures, and commands to look around with."""
    screen, workdir = demo.screen, demo.workspace.workdir
    screen.title("The summary that the model sees in place of archived messages")
    if not demo.compressions:
        screen.paragraph("The context never came near its limit: nothing was compacted.")
    for line in demo.compressions[-1].summary.text.rstrip().split("\n") if demo.compressions else ():
        for shown in Text(visible(line)).wrap(screen.console, screen.width):
            shown.highlight_regex(_CITATION, "cyan")
            shown.highlight_regex(r"^# .*", "bold")
            screen.line(shown)

    screen.title("On disk")
    screen.line(f"{workdir}/")
    files = files_in(workdir)
    width = max(map(len, files))
    for path, size in files.items():
        name = path.rpartition("/")[2]
        purpose = _PURPOSES.get(name, "")
        if name.startswith("tool_result-"):
            purpose = (
                "the same with short lines" if name.endswith(".view.txt") else "a whole tool result, byte for byte"
            )
        elif layout.summary_number(name) is not None:
            purpose = "the facts of a summary, for the next one"
        screen.line(f"  {path.ljust(width)}{size:>10,}  ", (purpose, "dim"))

    screen.title("Tokens")
    screen.line(("  ".ljust(24) + "with buoyline".rjust(16) + "without".rjust(16), "dim"))
    managed, unmanaged = zip(*demo.model_calls, strict=True)
    rows = (
        ("largest model call", max(managed), max(unmanaged)),
        (f"all {len(managed)} model calls", sum(managed), sum(unmanaged)),
    )
    for label, tokens, without in rows:
        screen.line(f"  {label:22}", (f"{tokens:>16,}", "bold green"), f"{without:>16,}", f"{without / tokens:>8.1f} x")
    over = [number for number, tokens in enumerate(unmanaged, 1) if tokens > demo.window.size]
    if over:
        screen.line(f"  Without buoyline, model call {over[0]} would not have fit {demo.window.size:,} tokens.")

    screen.title("Look around")
    for command in _commands(demo):
        screen.line("  ", command)


def _commands(demo: Demo) -> Iterator[str]:
    program = f"{shlex.quote(sys.executable)} -m buoyline"
    if shutil.which("buoyline"):
        program = "buoyline"
    elif Path(sys.argv[0]).name == "buoyline":  # in an environment that is not on the path
        program = shlex.quote(sys.argv[0])
    yield f"export BUOYLINE_WORKDIR={shlex.quote(str(demo.workspace.workdir))}"
    yield f"{program} show {SESSION_ID}"
    if demo.detail is not None:
        yield f"{program} grep -C 2 {shlex.quote(demo.detail.pattern)}"
    if demo.compressions:
        draft = demo.compressions[-1].summary.draft
        decisions = [item.pointer for item in draft.items if "D-1" in item.text and item.pointer is not None]
        if citations := [*decisions, *draft.pointers]:
            yield f"{program} read --session {SESSION_ID} {citations[0]}"


@click.command("demo")
@click.option(
    "--workdir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory of the workspace.  [default: a new temporary one, which is kept]",
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
    no model, no key and no network. Everything that it writes is in the workdir.

    Example: buoyline demo --workdir ./demo
    """
    machine = script.this_machine()
    try:
        directory = Path(tempfile.mkdtemp(prefix="buoyline-demo-")) if workdir is None else workdir
    except OSError as error:
        raise storage_error(error) from error
    screen = Screen(_Terminal(highlight=False, emoji=False, quiet=as_json))
    demo = Demo(machine, directory, size=context_size, screen=screen)
    screen.title("buoyline demo")
    screen.paragraph(
        "A scripted agent repairs a small project with real commands on this machine: no model, no key, no "
        f"network. Its window holds {context_size:,} tokens; all its messages go through buoyline's ContextWindow."
    )
    asyncio.run(demo.run())
    if as_json:
        print_json(report_of(demo))
    else:
        show_outcome(demo)
    return 0 if demo.tests[0] != 0 and demo.tests[-1] == 0 else 1
