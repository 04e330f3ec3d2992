"""One module or package for each framework, imported only if you import it.

Each adapts the framework's hooks and messages to `buoyline.window`. How a context is compacted, and how content is
stored, does not belong here.
"""

from buoyline.integrations.pool import WindowPool, run_sync

__all__ = ["WindowPool", "run_sync"]
