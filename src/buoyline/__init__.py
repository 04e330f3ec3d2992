"""Keeps long-running LLM agents inside their context window without losing anything.

Example:
    from buoyline import ContextWindow

    async with await ContextWindow.open("./workspace", "s1", size=128_000) as window:
        await window.add({"role": "user", "content": "Which tests fail?"})
        messages = await window.prepare()  # send these to your model

Here are the names that most programs need. The packages have the others: `window` events and hooks, `workspace` where
content is stored, `offloader` contracts and stubs, `compression` summaries, `lookups` read, grep and search,
`management` documents, `messages` dialects, `tokens` counters, `integrations` AgentScope and Strands, `inspect` costs
and telemetry, `testing` suites for your own offloader or counter, `errors` all errors.

Importing this package loads only this module; each name loads its own module at first use. No code lives here.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from buoyline.compression import Compressor, ContextConfig, Draft, Summarizer, Summary, SummaryRequest
    from buoyline.errors import BuoylineError, ContextOverflowError
    from buoyline.offloader import Offloader, ToolRule
    from buoyline.tokens import TokenCounter
    from buoyline.window import ContextWindow
    from buoyline.workspace import LocalWorkspace, MemoryWorkspace

__all__ = [
    "BuoylineError",
    "Compressor",
    "ContextConfig",
    "ContextOverflowError",
    "ContextWindow",
    "Draft",
    "LocalWorkspace",
    "MemoryWorkspace",
    "Offloader",
    "Summarizer",
    "Summary",
    "SummaryRequest",
    "TokenCounter",
    "ToolRule",
]

_HOMES = {
    "BuoylineError": "errors",
    "Compressor": "compression",
    "ContextConfig": "compression",
    "ContextOverflowError": "errors",
    "ContextWindow": "window",
    "Draft": "compression",
    "LocalWorkspace": "workspace",
    "MemoryWorkspace": "workspace",
    "Offloader": "offloader",
    "Summarizer": "compression",
    "Summary": "compression",
    "SummaryRequest": "compression",
    "TokenCounter": "tokens",
    "ToolRule": "offloader",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("buoyline")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
