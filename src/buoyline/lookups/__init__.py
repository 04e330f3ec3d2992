"""Look things up in a workspace: `read`, `grep`, `search`, `glob`, `query` and `retrieve`.

Each answer is bounded in tokens, numbers its lines, is labelled as data, and says how to go on if it is cut. The
lookups reach nothing outside the workspace and write nothing.

They read a workspace through `buoyline.workspace.ReadableWorkspace` alone: names, sizes and ranges of bytes. Code that
opens, renames or locks files belongs in `buoyline.workspace`; code that talks to a framework belongs in
`buoyline.integrations`.
"""

from buoyline.lookups.answer import Answer, Line
from buoyline.lookups.glob import glob
from buoyline.lookups.grep import grep
from buoyline.lookups.query import query
from buoyline.lookups.read import read
from buoyline.lookups.references import JsonContent, MediaContent, Retrieved, TextContent
from buoyline.lookups.retrieve import retrieve
from buoyline.lookups.search import search
from buoyline.lookups.tools import LOOKUP_RULES, Tool, lookup_tools, retrieval_tool

__all__ = [
    "LOOKUP_RULES",
    "Answer",
    "JsonContent",
    "Line",
    "MediaContent",
    "Retrieved",
    "TextContent",
    "Tool",
    "glob",
    "grep",
    "lookup_tools",
    "query",
    "read",
    "retrieval_tool",
    "retrieve",
    "search",
]
