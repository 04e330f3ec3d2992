"""Whether a workspace is what was written: structure, hashes, references. Reads, and changes nothing."""

from buoyline.workspace.verification.findings import KINDS, SEVERITIES, Finding, Report, Severity
from buoyline.workspace.verification.whole import verify

__all__ = ["KINDS", "SEVERITIES", "Finding", "Report", "Severity", "verify"]
