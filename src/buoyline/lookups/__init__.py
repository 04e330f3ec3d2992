"""Look things up in a workspace: `read`, `grep` and `glob`, with answers that never flood a context.

Each answer is bounded in tokens, numbers its lines, is labelled as data, and says how to go on where it is cut.
Nothing outside the workspace is reached, and nothing is written.
"""

from buoyline.lookups.answer import Answer, Line, Spelling
from buoyline.lookups.listing import glob
from buoyline.lookups.reading import read
from buoyline.lookups.searching import grep

__all__ = ["Answer", "Line", "Spelling", "glob", "grep", "read"]
