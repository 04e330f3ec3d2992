"""Look things up in a workspace: `read`, `grep`, `search`, `glob` and `query`, with answers that never flood a context.

Each answer is bounded in tokens, numbers its lines, is labelled as data, and says how to go on where it is cut.
Nothing outside the workspace is reached, and nothing is written.
"""

from buoyline.lookups.answer import Answer, Line, Spelling
from buoyline.lookups.listing import glob
from buoyline.lookups.querying import query
from buoyline.lookups.ranking import search
from buoyline.lookups.reading import read
from buoyline.lookups.retrieval import retrieve, retrieve_lines
from buoyline.lookups.retrieval_tool import retrieval_tool
from buoyline.lookups.retrieved import Retrieved
from buoyline.lookups.searching import grep
from buoyline.lookups.tools import LOOKUP_RULES, Tool, lookup_tools

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
