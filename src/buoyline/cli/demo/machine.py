"""The machine that the demo runs on, as far as its script needs to know it."""

import importlib.util
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from buoyline.errors import NotFoundError

SOURCES = (
    "argparse.py",
    "getopt.py",
    "json/decoder.py",
    "json/scanner.py",
    "json/tool.py",
    "netrc.py",
    "optparse.py",
    "shlex.py",
    "tomllib/_parser.py",
)
"""What the script reads of the standard library, relative to it."""


@dataclass(frozen=True, slots=True)
class Machine:
    """An interpreter and what comes with it.

    Attributes:
        python: The interpreter that we run in.
        version: Its version.
        library: Directory of the standard library's sources.
        has_pip: Whether it can import pip; environments made by other tools have none.
        has_pytest: Whether it can import pytest; only those who develop with it have it.
    """

    python: str
    version: str
    library: Path
    has_pip: bool
    has_pytest: bool


def this_machine() -> Machine:
    """Return what there is here.

    Raises:
        NotFoundError: There is no interpreter to start, or no source of the standard library to read.
    """
    if not sys.executable:
        raise NotFoundError("interpreter", "sys.executable", "run the demo with an installed Python")
    library = Path(sysconfig.get_path("stdlib"))
    for name in SOURCES:
        if not (library / name).is_file():
            hint = "the demo reads Python's own sources; run it with a Python that has them"
            raise NotFoundError("file", str(library / name), hint)
    return Machine(
        python=sys.executable,
        version=sysconfig.get_python_version(),
        library=library,
        has_pip=importlib.util.find_spec("pip") is not None,
        has_pytest=importlib.util.find_spec("pytest") is not None,
    )
