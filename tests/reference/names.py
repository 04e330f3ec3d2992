"""The names under which a version offers what `player` uses. If the checkout renames one, only `NEW` changes."""

from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
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

EXTRACTING: Final[Mapping[bool, Sequence[str]]] = MappingProxyType(
    {
        False: ("buoyline.compression.extraction.extractive", "buoyline.compression.merging"),
        True: ("buoyline.compression.extractive.summarizer", "buoyline.compression.compressor"),
    }
)
"""Modules that call `extract`, for the reference versions and for the checkout."""

PROMPTING: Final[Mapping[bool, Sequence[str]]] = MappingProxyType(
    {
        False: ("buoyline.compression.summarizers.asking", "buoyline.integrations.strands.agent_summaries"),
        True: ("buoyline.compression.summarizers.callables", "buoyline.integrations.strands.summarizers"),
    }
)
"""Modules that call `prompt_for`; those of a framework that is not installed have no part in a script."""

SHOWN: Final[Mapping[str, str]] = MappingProxyType({})
"""Classes and fields of events, errors and answers that the checkout calls otherwise: its name, then the old one."""


class Names:
    """What one version offers, by the names of the oldest one."""

    def __init__(self, *, is_new: bool) -> None:
        self._table = NEW if is_new else OLD
        self.is_new = is_new
        self._shown: Mapping[str, str] = SHOWN if is_new else {}

    def __getitem__(self, name: str) -> Any:
        """Return the class or function *name*."""
        module, _, attribute = self._table[name].partition(":")
        return getattr(import_module(module), attribute)

    def summarize_by_count(self) -> None:
        """Let the extractive summarizer say the same in all versions: what it says has changed on purpose since."""
        for module in EXTRACTING[self.is_new]:
            found: Any = import_module(module)
            found.extract = self._counting
            # Sentences of a model become facts, which the checkout keeps in a file of their own.
            found.carried = lambda *_: []

    def _counting(self, request: Any, *_: Any) -> Any:
        first, last = request.sources[0], request.sources[-1]
        pointer = "" if first.pointer is None else f" [{first.pointer}]"
        fields = dict.fromkeys(request.fields, f"Messages {first.index} to {last.index}.{pointer}")
        if request.counter.count("\n".join(fields.values())) > request.max_tokens:
            return self["Draft"]("extractive", dict.fromkeys(fields, ""))
        return self["Draft"]("extractive", fields, () if first.pointer is None else (first.pointer,))

    def ask_by_count(self) -> None:
        """Let a model be asked the same in all versions: the rules and the work's state were added on purpose since."""
        for module in PROMPTING[self.is_new]:
            if "strands" in module and find_spec("strands") is None:
                continue
            found: Any = import_module(module)
            found.prompt_for = partial(_prompt_by_count, made=found.Prompt)
        if self.is_new:
            # A model had 0.6 of the summary's tokens, and its text was cut there; now it has three quarters.
            compressor: Any = import_module("buoyline.compression.compressor")
            compressor.FACTS_SHARE = 0.4

    def method(self, name: str) -> str:
        """Return how the version spells the method *name*."""
        return self._table.get(name, name)

    def shown(self, name: str) -> str:
        """Return how the old versions spell the class or field *name*."""
        return self._shown.get(name, name)


def _prompt_by_count(request: Any, *, max_tokens: int, answer_tokens: int, spell_schema: bool, made: Any) -> Any:
    """Return a prompt of the pointers of the messages; the answer's tokens do not show in it."""
    del answer_tokens
    pointers = [f"[{source.pointer}]" for source in request.sources if source.pointer is not None]
    previous = [] if request.previous is None else [f"{name}: {text}" for name, text in request.previous.fields.items()]
    wanted = [f"Fields: {', '.join(request.fields)}. Focus: {request.focus}. As JSON: {spell_schema}."]
    return made(request.prompt, request.counter.head("\n".join([*wanted, *pointers, *previous]), max_tokens))
