"""Look things up in a workspace: `read`, `grep`, `search`, `glob` and `query`, with answers that never flood a context.

Each answer is bounded in tokens, numbers its lines, is labelled as data, and says how to go on where it is cut.
Nothing outside the workspace is reached, and nothing is written.
"""

from buoyline.lookups.answer import Answer, Line, Spelling
from buoyline.lookups.glob import glob
from buoyline.lookups.grep import grep
from buoyline.lookups.query import query
from buoyline.lookups.read import read
from buoyline.lookups.references import Retrieved
from buoyline.lookups.retrieve import retrieve, retrieve_lines
from buoyline.lookups.search import search
from buoyline.lookups.tools import LOOKUP_RULES, Tool, lookup_tools, retrieval_tool

__all__ = [
    "LOOKUP_RULES",
    "Answer",
    "Line",
    "Retrieved",
    "Spelling",
    "Tool",
    "glob",
    "grep",
    "lookup_tools",
    "query",
    "read",
    "retrieval_tool",
    "retrieve",
    "retrieve_lines",
    "search",
]
