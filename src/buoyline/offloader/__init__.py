"""Offloading: the contract of an offloader, the policy, and the texts that replace offloaded content.

Nothing here stores anything; workspaces do.
"""

from buoyline.offloader.protocol import Offloader, StoredPart, StoredResult, ToolOutput
from buoyline.offloader.stub import ToolRule

__all__ = ["Offloader", "StoredPart", "StoredResult", "ToolOutput", "ToolRule"]
