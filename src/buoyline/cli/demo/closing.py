"""What a person sees at the end of a run: the files, the summary, the figures, and where to go from here."""

import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from rich.text import Text

from buoyline.cli.demo.page import Page
from buoyline.cli.demo.report import files_in, managed_tokens, unmanaged_tokens
from buoyline.cli.demo.run import SESSION_ID, Outcome
from buoyline.compression import Summary
from buoyline.offloader.lines import visible

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
