"""Upkeep of a workspace: verify, repair, restore and gc.

Code that an agent's run needs does not belong here: `buoyline.workspace` writes, and this package checks, repairs and
removes what was written. It reads `Files`, damaged ones, too, and changes them through `Upkeep`.
"""
