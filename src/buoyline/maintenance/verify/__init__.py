"""Whether a workspace is what was written: structure, hashes, references. Reads, and changes nothing."""

from buoyline.maintenance.verify.findings import KINDS, SEVERITIES, IntegrityFinding, IntegrityReport, Severity
from buoyline.maintenance.verify.workspace import verify

__all__ = ["KINDS", "SEVERITIES", "IntegrityFinding", "IntegrityReport", "Severity", "verify"]
