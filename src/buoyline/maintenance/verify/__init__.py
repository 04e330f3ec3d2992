"""Whether a workspace is what was written: structure, hashes, references. Reads, and changes nothing."""

from buoyline.maintenance.verify.findings import KINDS, SEVERITIES, Finding, Report, Severity
from buoyline.maintenance.verify.whole import verify

__all__ = ["KINDS", "SEVERITIES", "Finding", "Report", "Severity", "verify"]
