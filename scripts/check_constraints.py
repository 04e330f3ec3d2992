"""Check that constraints/ fits pyproject.toml, without asking a package index.

Every direct requirement of the core and of an extra must have a version in each file that its environment installs
with, and the requirement must allow that version. The files hold names, versions and markers, nothing else: an option
or an address in them would decide where other people install from.
"""

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

# Each file, and the extra that is installed with it.
FILES = {
    "core.txt": "test",
    "dev.txt": "dev",
    "lowest.txt": "test-integrations",
}

_PIN = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[A-Za-z0-9.!+]+)( ; .+)?")


def main() -> int:
    """Print each problem of the checkout that this script belongs to; return 1 if there is one."""
    problems = list(problems_of(Path(__file__).parents[1]))
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        print("constraints/ does not fit pyproject.toml: run `make lock` and commit the result", file=sys.stderr)
    return int(bool(problems))


def problems_of(root: Path) -> Iterator[str]:
    """Yield one line for each problem, in the order of the files."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pins_of_dev = dict(_pins(root / "constraints/dev.txt"))
    for name, extra in FILES.items():
        path = root / "constraints" / name
        for line in _lines(path):
            if not _PIN.fullmatch(line):
                yield f"constraints/{name}: {line!r} is no version of a package"
        pins = dict(_pins(path))
        for requirement in _requirements(project, [*project["dependencies"], f"{project['name']}[{extra}]"]):
            versions = pins.get(canonicalize_name(requirement.name))
            if versions is None:
                yield f"constraints/{name}: {requirement.name} is missing"
            elif not all(requirement.specifier.contains(version, prereleases=True) for version in versions):
                yield f"constraints/{name}: {requirement.name} {', '.join(versions)} is not {requirement.specifier}"
        if name == "core.txt":
            for package, versions in pins.items():
                if versions != pins_of_dev.get(package):
                    yield f"constraints/core.txt: {package} {', '.join(versions)} differs from constraints/dev.txt"


def _requirements(project: dict[str, Any], texts: list[str]) -> Iterator[Requirement]:
    """Yield the requirements of a list, with those of the project's own extras that it names."""
    for text in texts:
        requirement = Requirement(text)
        if requirement.name != project["name"]:
            yield requirement
        else:
            for extra in requirement.extras:
                yield from _requirements(project, project["optional-dependencies"][extra])


def _lines(path: Path) -> Iterator[str]:
    """Yield the lines that are not blank or a comment."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            yield line


def _pins(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield each package with its versions: several if its markers name several environments."""
    found: dict[str, list[str]] = {}
    for line in _lines(path):
        if pin := _PIN.fullmatch(line):
            found.setdefault(canonicalize_name(pin["name"]), []).append(pin["version"])
    yield from found.items()


if __name__ == "__main__":
    sys.exit(main())
