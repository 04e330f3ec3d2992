"""Upkeep of a workspace: verify, repair and gc."""
