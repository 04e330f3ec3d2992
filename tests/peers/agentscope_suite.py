"""AgentScope's own tests of its workspace, run on ours.

    python tests/peers/agentscope_suite.py CHECKOUT

CHECKOUT is a clone of AgentScope's repository. The tests come from there and run with the installed AgentScope. No line
of a test is changed, but two things are replaced: `LocalWorkspace` is ours, and the name of a file in ``data/`` is the
hash of its bytes, so that ``sha256sum`` verifies it. AgentScope hashes the base64 text.

Exits with 1 if a test fails.
"""

import argparse
import base64
import hashlib
import importlib
import sys
import unittest
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from buoyline import LocalWorkspace

SUITE = {
    "workspace_local_test": ("TestLocalWorkspaceOffload", "TestLocalWorkspaceWithAgent"),
    "compress_context_test": ("ContextCompressionTest",),
}
OFFLOADER_TEST = "test_max_image_num_with_offloader"
"""The one test of `ContextCompressionTest` that makes a workspace; the others need none, or have their own."""


def main() -> int:
    """Run the tests, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path, help="a clone of AgentScope's repository")
    parser.add_argument("--all", action="store_true", help="also run the tests of compression that need no workspace")
    options = parser.parse_args()
    sys.path.insert(0, str(options.checkout / "tests"))
    suite = unittest.TestSuite()
    for name, classes in SUITE.items():
        module = importlib.import_module(name)
        exchange(module)
        for one in classes:
            case = getattr(module, one)
            names = unittest.defaultTestLoader.getTestCaseNames(case)
            if one == "ContextCompressionTest" and not options.all:
                names = [OFFLOADER_TEST]
            suite.addTests(map(case, names))
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    passed = result.testsRun - len(result.failures) - len(result.errors)
    sys.stdout.write(f"{passed} of {result.testsRun} pass\n")
    return 0 if result.wasSuccessful() else 1


def exchange(module: ModuleType) -> None:
    """Make the tests in *module* create our workspace, and expect the hash of the bytes."""
    theirs: Any = module
    theirs.LocalWorkspace = LocalWorkspace
    theirs.hashlib = SimpleNamespace(sha256=lambda base64_text: hashlib.sha256(base64.b64decode(base64_text)))


if __name__ == "__main__":
    sys.exit(main())
