"""Upkeep of a workspace: verify, repair, restore and gc."""
