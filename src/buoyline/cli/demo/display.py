"""What a person sees of a run while it happens."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from buoyline.cli.demo.page import Page
from buoyline.cli.demo.run import DetailChosen, ModelCalled, Said, Step, ToolUsed
from buoyline.cli.demo.tools import Call
from buoyline.window import ContextCompressed, ResultOffloaded

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
