"""A filesystem-first workspace for LLM agents: offloading and compression that lose nothing.

```python
from buoyline import ContextWindow, LocalWorkspace

workspace = LocalWorkspace("./workspace")
window = ContextWindow(offloader=workspace, session_id="s1", size=128_000)
await window.add({"role": "user", "content": "..."})
messages = await window.prepare()
```

Importing this package loads only this module; each public name loads its own module at first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from buoyline.compression import Compressor, ContextConfig, Draft, Summarizer, Summary, SummaryRequest
    from buoyline.errors import BuoylineError, ContextOverflowError
    from buoyline.offloader import Offloader, ToolRule
    from buoyline.tokens import TokenCounter
    from buoyline.window import ContextWindow
    from buoyline.workspace import LocalWorkspace, MemoryWorkspace, Quotas

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
    "Quotas",
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
    "Quotas": "workspace",
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
