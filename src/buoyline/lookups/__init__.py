"""Look things up in a workspace: `read`, `grep`, `search`, `glob`, `query` and `retrieve`.

Each answer is bounded in tokens, numbers its lines, is labelled as data, and says how to go on if it is cut. The
lookups reach nothing outside the workspace and write nothing.

All lookups block. They share these arguments, of which `retrieve` has no ``confined``:

- ``session``: the session whose directory is tried first for a relative path. `grep` and `search` without a path look
  in it alone, `glob` lists it alone, and `retrieve` returns nothing of another. None: every session.
- ``confined``: whether only that directory can be reached, and blobs in ``data/`` by their whole name.
- ``max_tokens``: for the whole text of the answer.
- ``counter``: counts tokens; None for the default counter.
- ``spelling``: says in the answer how to go on; it is given the arguments of the next call that differ.

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
