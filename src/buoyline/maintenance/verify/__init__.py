"""Checks a workspace: structure, hashes and references. It reads, and changes nothing."""

from buoyline.maintenance.verify.findings import IntegrityFinding, IntegrityReport
from buoyline.maintenance.verify.workspace import verify

__all__ = ["IntegrityFinding", "IntegrityReport", "verify"]
