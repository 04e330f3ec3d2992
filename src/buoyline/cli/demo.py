"""``buoyline demo``: plays a recorded session through a context window, and finds an archived line again."""

import asyncio
import json
import shlex
import shutil
import sys
import tempfile
import textwrap
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.text import Text

from buoyline.errors import SessionExistsError
from buoyline.lookups import Answer, grep, read
from buoyline.messages.registry import detect
from buoyline.tokens import default_counter
from buoyline.tokens.counter import count_message
from buoyline.window import ContextCompressed, ContextWindow, Event, ResultOffloaded
from buoyline.workspace import LocalWorkspace, layout

SESSION_ID: Final = "demo"
RECORDING: Final = files("buoyline.cli") / "recorded.jsonl"
WINDOW_TOKENS: Final = 6_000
SHOWN_AS: Final = "/workspace"
"""The path in stubs: a directory with a longer name would take more tokens, and the figures would differ."""

_COLUMNS: Final = 78
_BAR_CELLS: Final = 16
_PURPOSES: Final = {
    layout.CONTEXT: "every message, as it was",
    layout.STATE: "what is in the context; a new process goes on from it",
    layout.SUMMARIES: "one line for each compaction",
    layout.TRANSCRIPT: "the archived messages, to read and to grep",
}


@click.command("demo")
@click.option(
    "--workdir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory of the workspace.  [default: a new temporary one, which is kept]",
)
def demo_command(workdir: Path | None) -> None:
    """Play a recorded session, and look up a line that it archived.

    The session comes with the package. Its messages go through a ContextWindow, as those of a live agent would; the
    lookups at the end are real. No model, no key and no network is needed. Everything that it writes is in the workdir.

    Example: buoyline demo --workdir ./demo
    """
    directory = Path(tempfile.mkdtemp(prefix="buoyline-demo-")) if workdir is None else workdir
    asyncio.run(Demo(directory).run())


class Demo:
    """An agent whose model and tools are a recording. Each step is printed when it happens."""

    def __init__(self, workdir: Path) -> None:
        """Prepare a run in the directory *workdir*; nothing is written."""
        self.console = Console(highlight=False, emoji=False)
        self.workspace = LocalWorkspace(workdir, shown_as=SHOWN_AS)
        self.window: ContextWindow
        self.sent: list[int] = []
        self.sent_without: list[int] = []
        self._tokens_without = 0

    async def run(self) -> None:
        """Play the recording; then find the line that its last message asks for.

        Raises:
            SessionExistsError: The workspace has a demo already.
            StorageError: The file system refused.
        """
        if self.workspace.session(SESSION_ID).load().exists:
            raise SessionExistsError(SESSION_ID, self.workspace.disk.path(layout.session_directory(SESSION_ID)))
        self.window = await ContextWindow.open(
            self.workspace, SESSION_ID, size=WINDOW_TOKENS, on_event=self._show_event
        )
        async with self.window:
            self._line(
                f"A recorded session in a window of {WINDOW_TOKENS:,} tokens: no model, no key, no network.", "bold"
            )
            for line in RECORDING.read_text(encoding="utf-8").splitlines():
                await self._add(json.loads(line))
            self._line("\nThe answer is no longer in the context. The agent looks it up:", "bold")
            hits = await self._look_up("grep", {"pattern": "WARN"}, "I search the workspace.")
            hit = hits.lines[0]
            lines = {"path": hit.path, "start": hit.number - 1, "end": hit.number}
            found = await self._look_up("read", lines, "There is the warning. I read the line before it, too.")
            await self._add({"role": "assistant", "content": f"It was: {found.lines[0].text}"})
        self._show_outcome()

    async def _add(self, message: dict[str, Any]) -> None:
        """Add a message as an agent's loop does: before each answer, the prepared context goes to the model."""
        view = detect(message).view(message)
        tokens = count_message(view, default_counter())
        if view.role == "assistant":
            await self.window.prepare()
            self._show_context()
        if view.role == "tool":
            self._line(f"    result: {default_counter().count(message['content']):,} tokens", "dim")
        else:
            self._show_words(view.role, message)
        await self.window.add(message)
        self._tokens_without += tokens

    async def _look_up(self, tool: str, arguments: dict[str, Any], text: str) -> Answer:
        """Let the agent call one of the lookups, and show what it finds."""
        function = {"name": tool, "arguments": json.dumps(arguments)}
        call = {"id": f"call_{tool}", "type": "function", "function": function}
        await self._add({"role": "assistant", "content": text, "tool_calls": [call]})
        if tool == "grep":
            answer = grep(self.workspace, session=SESSION_ID, **arguments)
        else:
            answer = read(self.workspace, session=SESSION_ID, **arguments)
        await self._add({"role": "tool", "tool_call_id": call["id"], "content": answer.text})
        for line in answer.text.splitlines():
            self._line(f"    {line}", "cyan")
        return answer

    def _show_event(self, event: Event) -> None:
        if isinstance(event, ResultOffloaded):
            name = event.path.rpartition("/")[2]
            self._line(
                f"    offloaded: {event.tokens:,} to {event.stub_tokens:,} tokens, the whole is in {name}", "cyan"
            )
        elif isinstance(event, ContextCompressed):
            first, end = event.summary.messages
            tokens = f"{event.tokens_before:,} to {event.tokens_after:,} tokens"
            self._line(f"  compacted: {tokens}; messages {first}-{end - 1} are archived and summarized", "magenta")

    def _show_words(self, role: str, message: dict[str, Any]) -> None:
        label = {"user": "user   ", "assistant": "agent  "}.get(role, "system ")
        for line in textwrap.wrap(f"{label}{message['content']}", _COLUMNS, subsequent_indent=" " * len(label)):
            self._line(line, "green" if role == "user" else "")
        for call in message.get("tool_calls", ()):
            arguments = ", ".join(map(str, json.loads(call["function"]["arguments"]).values()))
            self._line(f"  {call['function']['name']}({arguments})", "blue")

    def _show_context(self) -> None:
        self.sent.append(self.window.tokens)
        self.sent_without.append(self._tokens_without)
        filled = min(round(self.window.tokens / WINDOW_TOKENS * _BAR_CELLS), _BAR_CELLS)
        bar = "█" * filled + "░" * (_BAR_CELLS - filled)
        of_all = f"{self.window.tokens:,} of {WINDOW_TOKENS:,} tokens"
        style = "yellow" if self._tokens_without <= WINDOW_TOKENS else "red"
        self._line(f"  context {bar} {of_all}, without buoyline {self._tokens_without:,} tokens", style)

    def _show_outcome(self) -> None:
        directory = self.workspace.workdir / layout.SESSIONS / SESSION_ID
        self._line(f"\nOn disk, in {directory}:", "bold")
        for path in sorted(directory.iterdir()):
            purpose = _PURPOSES.get(path.name, "a whole tool result" if path.name.startswith("tool_result-") else "")
            self._line(f"  {path.name:24}{path.stat().st_size:>8,}  {purpose}".rstrip())
        sent, without = sum(self.sent), sum(self.sent_without)
        self._line(f"\nAll {len(self.sent)} requests: {sent:,} tokens, without buoyline {without:,} tokens", "bold")
        program = "buoyline" if shutil.which("buoyline") else f"{shlex.quote(sys.executable)} -m buoyline"
        workdir = shlex.quote(str(self.workspace.workdir))
        self._line(f"  {program} show {SESSION_ID} --workdir {workdir}")
        self._line(f"  {program} grep WARN --workdir {workdir}")

    def _line(self, text: str, style: str = "") -> None:
        self.console.print(Text(text, style), soft_wrap=True)
