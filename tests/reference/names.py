"""The names under which a version offers what `player` uses. If the checkout renames one, only `NEW` changes."""

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final

OLD: Final[Mapping[str, str]] = MappingProxyType(
    {
        "ContextConfig": "buoyline:ContextConfig",
        "ContextWindow": "buoyline:ContextWindow",
        "Draft": "buoyline:Draft",
        "LocalWorkspace": "buoyline:LocalWorkspace",
        "MemoryWorkspace": "buoyline:MemoryWorkspace",
        "ToolRule": "buoyline:ToolRule",
        "convert": "buoyline.messages:convert",
        "default_counter": "buoyline.tokens:default_counter",
        "glob": "buoyline.lookups:glob",
        "grep": "buoyline.lookups:grep",
        "preview": "buoyline.offloader:preview",
        "query": "buoyline.lookups:query",
        "read": "buoyline.lookups:read",
        "retrieve": "buoyline.lookups:retrieve",
        "search": "buoyline.lookups:search",
        "verify": "buoyline.workspace.verification:verify",
        # Methods of the window.
        "add_tool_output": "add_tool_output",
        "compress": "compress",
        "compress_ahead": "compress_ahead",
        "note_usage": "note_usage",
        "recover_from_overflow": "recover_from_overflow",
        "request_compression": "request_compression",
    }
)
"""Of both reference versions, which no rename of ours changes: ``module:name``, or the name of a method."""

NEW: Final[Mapping[str, str]] = MappingProxyType(
    {**OLD, "preview": "buoyline.previews:preview", "verify": "buoyline.maintenance.verify:verify"}
)
"""Of the checkout."""

SHOWN: Final[Mapping[str, str]] = MappingProxyType({})
"""Classes and fields of events, errors and answers that the checkout calls otherwise: its name, then the old one."""


class Names:
    """What one version offers, by the names of the oldest one."""

    def __init__(self, *, is_new: bool) -> None:
        self._table = NEW if is_new else OLD
        self._shown: Mapping[str, str] = SHOWN if is_new else {}

    def __getitem__(self, name: str) -> Any:
        """Return the class or function *name*."""
        module, _, attribute = self._table[name].partition(":")
        return getattr(import_module(module), attribute)

    def method(self, name: str) -> str:
        """Return how the version spells the method *name*."""
        return self._table.get(name, name)

    def shown(self, name: str) -> str:
        """Return how the old versions spell the class or field *name*."""
        return self._shown.get(name, name)
