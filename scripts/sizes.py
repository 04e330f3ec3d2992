"""Print the sizes of the source: files, lines, names that exist twice, and one `prepare()` in calls.

    python scripts/sizes.py [--json] [--list]

`--list` names the classes that exist twice, the small modules with one importer, and the exported names. Lines of code
leave out docstrings, comments and blank lines. The calls are those of one `prepare()` that offloads one result, in all
threads, without the primitives for files, the token counter and previews.
"""

import argparse
import ast
import asyncio
import json
import sys
import tempfile
import threading
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "buoyline"

SMALL_LINES = 60
# Tables with one module an entry: a small module with one importer is their point.
REGISTRIES = ("messages/", "previews/", "cli/", "documents/")
# What `prepare()` calls and is not its own: primitives for files, tokens, previews.
PRIMITIVES = ("workspace/local_tree.py", "workspace/descriptors.py", "tokens/", "previews/", "errors.py")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Print the sizes of the source.", epilog="Example: make sizes")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--list", action="store_true", help="name what is counted")
    options = parser.parse_args()
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(SOURCE.rglob("*.py"))}
    twice, alone, names = classes_twice(trees), small_with_one_importer(trees), exported_names()
    figures: dict[str, Any] = {
        "files": len(trees),
        **lines_of(trees),
        "functions": sum(isinstance(node, _FUNCTIONS) for tree in trees.values() for node in ast.walk(tree)),
        "public class names defined twice": len(twice),
        f"modules under {SMALL_LINES} lines with one importer": len(alone),
        "exported names for users": len(names["users"]),
        "exported names for storage of your own, tests": len(names["implementers"]),
        "exported names of buoyline": len(import_module("buoyline").__all__),
        "core dependencies": len(project()["dependencies"]),
        **asyncio.run(one_prepare()),
    }
    if options.json:
        print(json.dumps(figures, indent=2))
        return
    for name, figure in figures.items():
        print(f"{name:<48}{figure:>8,}")
    if options.list:
        print("\ntwice:", *sorted(twice), sep="\n  ")
        print("\nsmall, with one importer:", *alone, sep="\n  ")
        for group, found in names.items():
            print(f"\nexported for {group}:", *sorted(found), sep="\n  ")


EXPORTING_MODULES = ("errors", "inspect/costs", "inspect/telemetry", "window/tool", "watching/events")
# The contracts of an offloader and of a workspace, and their tests; of these, what a user passes, gets or annotates.
FOR_IMPLEMENTERS = (
    "buoyline.offloader.protocol",
    "buoyline.testing",
    "buoyline.workspace.files",
    "buoyline.workspace.stored_session",
)
FOR_USERS_TOO = ("Offloader", "ResultWriter", "StoredPart", "StoredResult")

_CALLS = 2
_EVENTS = ("Event", "OnEvent", "SummaryFellBack", "SummarySqueezed", "SummaryVerified", "WorkspaceEvent")
_EVENT_MODULES = ("buoyline.window.events", "buoyline.watching.events")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def project() -> dict[str, Any]:
    """Return the table `project` of pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def lines_of(trees: dict[Path, ast.Module]) -> dict[str, int]:
    """Return the lines of code and of docstrings, and the share of the three largest parts."""
    code: Counter[str] = Counter()
    docstrings = 0
    for path, tree in trees.items():
        of_docstrings = set(_docstring_lines(tree))
        docstrings += len(of_docstrings)
        part = path.relative_to(SOURCE).parts[0]
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            text = line.strip()
            code[part] += bool(text) and not text.startswith("#") and number not in of_docstrings
    large = sum(code[part] for part in ("window", "integrations", "management"))
    return {
        "lines of code": code.total(),
        "lines of code of window, integrations, management": large,
        "lines of docstrings": docstrings,
    }


def _docstring_lines(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        if (
            isinstance(node, (ast.Module, ast.ClassDef, *_FUNCTIONS))
            and ast.get_docstring(node, clean=False) is not None
        ):
            yield from range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)


def classes_twice(trees: dict[Path, ast.Module]) -> dict[str, list[str]]:
    """Return the names of public classes that more than one module defines, with those modules."""
    where: dict[str, set[str]] = defaultdict(set)
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                where[node.name].add(str(path.relative_to(SOURCE)))
    return {name: sorted(paths) for name, paths in where.items() if len(paths) > 1}


def small_with_one_importer(trees: dict[Path, ast.Module]) -> list[str]:
    """Return the modules of few lines of code that one other module imports, registries apart."""
    importers: dict[str, set[Path]] = defaultdict(set)
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                importers[node.module].add(path)
                for alias in node.names:
                    importers[f"{node.module}.{alias.name}"].add(path)
    found: list[str] = []
    for path, tree in trees.items():
        relative = path.relative_to(SOURCE)
        if path.name == "__init__.py" or any(registry in relative.as_posix() for registry in REGISTRIES):
            continue
        module = ".".join(("buoyline", *relative.with_suffix("").parts))
        if lines_of({path: tree})["lines of code"] < SMALL_LINES and len(importers[module] - {path}) == 1:
            found.append(relative.as_posix())
    return found


def exported_names() -> dict[str, set[str]]:
    """Return the names that packages, and modules that pages import from, export to users and to implementers.

    Errors and events count as one name each. Names of other projects, which `buoyline.integrations` passes on, do not
    count.
    """
    groups: dict[str, set[str]] = {"users": set(), "implementers": set()}
    for facade in (*(path.parent for path in SOURCE.rglob("__init__.py")), *map(SOURCE.joinpath, EXPORTING_MODULES)):
        try:
            module = import_module(".".join(("buoyline", *facade.relative_to(SOURCE).parts)))
        except ImportError:  # a framework that is not installed
            continue
        for name in getattr(module, "__all__", ()):
            found = getattr(module, name)
            home = getattr(found, "__module__", module.__name__)
            if isinstance(found, type) and issubclass(found, Exception):
                groups["users"].add("errors")
            elif name in _EVENTS or home in _EVENT_MODULES:
                groups["users"].add("events")
            elif home.startswith(FOR_IMPLEMENTERS) and name not in FOR_USERS_TOO:
                groups["implementers"].add(name)
            elif not home.startswith(("agentscope.", "strands.")):
                groups["users"].add(name)
    return groups


async def one_prepare() -> dict[str, int]:
    """Return how many calls, functions and modules one `prepare()` takes that offloads one result."""
    from buoyline import ContextWindow, LocalWorkspace  # noqa: PLC0415 - the other figures need no import of the package

    calls: Counter[tuple[str, str]] = Counter()
    is_counting = False

    def count(frame: FrameType, event: str, _: object) -> None:
        name = frame.f_code.co_filename
        if is_counting and event == "call" and name.startswith(str(SOURCE)):
            module = name.removeprefix(f"{SOURCE}/")
            if not any(part in module for part in PRIMITIVES):
                calls[module, frame.f_code.co_qualname] += 1

    threading.setprofile(count)  # before the workspace starts its threads
    with tempfile.TemporaryDirectory() as directory:
        async with LocalWorkspace(directory) as workspace:
            window = ContextWindow(offloader=workspace, session_id="sizes", size=128_000)
            await window.add({"role": "user", "content": "Run the tests."})
            for number in range(1, _CALLS + 1):  # the last is counted: the first one starts the session
                call = {"id": f"call_{number}", "type": "function", "function": {"name": "test", "arguments": "{}"}}
                await window.add({"role": "assistant", "content": None, "tool_calls": [call]})
                text = "".join(f"line {line}: ok {number}\n" for line in range(5_000))
                await window.add({"role": "tool", "tool_call_id": call["id"], "content": text})
                is_counting = number == _CALLS
                sys.setprofile(count)
                await window.prepare()
                sys.setprofile(None)
            is_counting = False
    threading.setprofile(None)
    return {
        "calls of one prepare()": calls.total(),
        "functions of one prepare()": len(calls),
        "modules of one prepare()": len({module for module, _ in calls}),
    }


if __name__ == "__main__":
    main()
