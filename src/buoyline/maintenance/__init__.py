"""Upkeep of a workspace: verify, repair, restore and gc.

Code that an agent's run needs does not belong here: `buoyline.workspace` writes, and this package checks, repairs and
removes what was written. It reads a workspace's files itself, since it must also read damaged ones.
"""
