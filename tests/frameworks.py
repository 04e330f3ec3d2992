"""Frameworks are extras: a test that needs one is skipped without it."""

import re
from pathlib import Path

import pytest

FRAMEWORKS = ("agentscope", "strands", "pydantic_ai")


def skip_without_frameworks_of(script: Path) -> None:
    """Skip the test if *script* imports a framework that is not installed."""
    text = script.read_text("utf-8")
    for framework in FRAMEWORKS:
        if re.search(rf"^(?:from|import) {framework}\b", text, re.MULTILINE):
            pytest.importorskip(framework, reason=f"{script.name} needs {framework}")
