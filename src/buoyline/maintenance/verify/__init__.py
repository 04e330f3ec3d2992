"""Checks a workspace: structure, hashes and references. It reads, and changes nothing."""

from buoyline.maintenance.verify.findings import KINDS, SEVERITIES, IntegrityFinding, IntegrityReport, Severity
from buoyline.maintenance.verify.workspace import verify

__all__ = ["KINDS", "SEVERITIES", "IntegrityFinding", "IntegrityReport", "Severity", "verify"]
