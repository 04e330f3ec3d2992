"""Check a workspace: structure, hashes and references.

It reads and changes nothing; repairs are in `buoyline.maintenance.repair`.
"""

from buoyline.maintenance.verify.findings import IntegrityFinding, IntegrityReport
from buoyline.maintenance.verify.workspace import verify

__all__ = ["IntegrityFinding", "IntegrityReport", "verify"]
