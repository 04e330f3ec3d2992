"""A tool with which an agent requests a compaction of its own context."""

import copy
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from buoyline.lookups.tools import Tool
from buoyline.window.window import ContextWindow

__all__ = [
    "compress_tool",
]

_NAME = "compress_context"
_MAX_FOCUS_CHARS = 2_000
_DESCRIPTION = """\
Make room in your context: the oldest messages leave it for files, and a summary that points to them takes their \
place. Nothing is lost; you can read, grep or search all of it again. Use it when a part of the task is done and its \
details are no longer needed, and before a part that will bring much to read. It takes effect before your next step, \
when all tools that you have called have answered. focus says in words what the summary should keep above all.
Example: {"focus": "the failing test, its error, and the files changed so far"}"""

_PARAMETERS: Mapping[str, Any] = MappingProxyType(
    {
        "type": "object",
        "properties": {
            "focus": {"type": "string", "description": "What the summary should keep above all (default: all alike)."}
        },
        "required": [],
        "additionalProperties": False,
    }
)


def compress_tool(window: ContextWindow) -> Tool:
    """Make the tool ``compress_context`` for the agent whose messages *window* holds.

    A call changes nothing by itself: it comes in the middle of a turn, while it has no result yet and others may run.
    It asks *window* to compact at the next `prepare`, and says what will be archived.
    """

    async def call(**arguments: Any) -> str:
        unknown = [name for name in arguments if name != "focus"]
        focus = arguments.get("focus")  # null counts as absent
        if unknown:
            return f"Error: {_NAME} takes focus, not {unknown[0][:80]!r}\n"
        if focus is not None and not isinstance(focus, str):
            return f"Error: focus must be string, not {type(focus).__name__}\n"
        if focus is not None and len(focus) > _MAX_FOCUS_CHARS:
            return f"Error: focus has {len(focus):,} characters; say it in {_MAX_FOCUS_CHARS:,} or fewer\n"
        taken = f"Your context takes {window.tokens:,} of {window.size:,} tokens"
        decided = window.request_compression(focus or "")
        if decided is None:
            return f"{taken}. Too little of it is old enough to leave, so a summary would save nothing. Go on.\n"
        kept = f" What you asked for is kept above all: {focus}" if focus else ""
        return (
            f"{taken}. Before your next step, at least the oldest {decided.cut:,} messages since the last summary "
            f"({decided.archived_tokens:,} tokens) leave it, and a summary that points to them takes their place."
            f"{kept}\n"
        )

    return Tool(_NAME, _DESCRIPTION, copy.deepcopy(dict(_PARAMETERS)), call)
