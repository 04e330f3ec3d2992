"""Look things up in a workspace: `read`, `grep` and `search`.

Each answer is bounded in tokens, numbers its lines, is labelled as data, and says how to go on if it is cut. The
lookups reach nothing outside the workspace and write nothing but the search index.

All lookups block. They share these arguments:

- ``session``: nothing but the files of this session can be reached, and blobs in ``data/`` by their whole name. None:
  every session.
- ``live``: for people; also the messages that are in the context, as the text ``in_context`` of each session.
- ``max_tokens``: for the whole text of the answer, at least 200.
- ``counter``: counts tokens; None for the default counter.
"""

from buoyline.lookups.answer import Answer, Line
from buoyline.lookups.grep import grep
from buoyline.lookups.read import read
from buoyline.lookups.search import search
from buoyline.lookups.tools import Tool, lookup_tools

__all__ = [
    "Answer",
    "Line",
    "Tool",
    "grep",
    "lookup_tools",
    "read",
    "search",
]
