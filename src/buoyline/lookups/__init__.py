"""Look things up in a workspace: `read`, `grep` and `search`.

Each answer is bounded in tokens, numbers its lines, is labelled as data, and says how to go on if it is cut. The
lookups reach nothing outside the workspace and write nothing.

All lookups block. They share these arguments:

- ``session``: nothing but the files of this session can be reached, and blobs in ``data/`` by their whole name. None:
  every session.
- ``max_tokens``: for the whole text of the answer.
- ``counter``: counts tokens; None for the default counter.

They read a workspace through `buoyline.workspace.ReadableWorkspace` alone: names, sizes and ranges of bytes. Code that
opens, renames or locks files belongs in `buoyline.workspace`; code that talks to a framework belongs in
`buoyline.integrations`.
"""

from buoyline.lookups.answer import Answer, Line
from buoyline.lookups.grep import grep
from buoyline.lookups.read import read
from buoyline.lookups.search import search
from buoyline.lookups.tools import LOOKUP_RULES, Tool, lookup_tools

__all__ = [
    "LOOKUP_RULES",
    "Answer",
    "Line",
    "Tool",
    "grep",
    "lookup_tools",
    "read",
    "search",
]
