"""Rules of the house that no checker in ``make check`` knows. CONTRIBUTING.md says why they are kept."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TypeAlias

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "buoyline"
MODULES = sorted(PACKAGE.rglob("*.py"))

MAX_MODULE_LINES = 800
MAX_FUNCTION_LINES = 80

FILES_MODULES = {"workspace/disk.py"}
"""What alone opens, renames, syncs and locks."""

CORE_DEPENDENCIES = frozenset({"click", "pydantic", "re2", "resiliparse", "rich", "tiktoken", "watchfiles"})
"""As they are imported; what is not among them is a framework, or a tool for tests."""

SLOW_TO_LOAD = CORE_DEPENDENCIES | {"asyncio", "anthropic", "openai"}
"""What ``import buoyline`` leaves to those who use it."""

LOADED_WHEN_USED = {
    "compression/summarizers/provider.py": {"pydantic_ai"},
    "integrations/agent_framework.py": {"agent_framework"},
    "integrations/deepagents.py": {"deepagents", "langchain", "langgraph"},
    "integrations/google_adk.py": {"google"},
    "integrations/langchain.py": {"langchain", "langchain_core", "langgraph"},
    "integrations/openai_agents.py": {"agents"},
    "integrations/pydantic_ai.py": {"pydantic_ai"},
} | {
    path.relative_to(PACKAGE).as_posix(): {framework}
    for framework in ("agentscope", "strands")
    for path in (PACKAGE / "integrations" / framework).glob("*.py")
}
"""Modules that stand for a framework, and are loaded by those alone who use it."""

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


def _place(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"), path)


@cache
def _nodes() -> list[tuple[str, Function | ast.Call]]:
    """Return every function and call of the package with the module that holds it."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Call)
    return [(_place(path), node) for path in MODULES for node in ast.walk(_tree(path)) if isinstance(node, kinds)]


def _length(function: Function) -> int:
    """Count the lines of *function* without those of its docstring."""
    first = function.body[0]
    docstring = _lines(first) if ast.get_docstring(function, clean=False) is not None else 0
    return _lines(function) - docstring


def _lines(node: Function | ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def test_no_module_is_too_long_to_be_read_in_one_go() -> None:
    lengths = {_place(path): len(path.read_text("utf-8").splitlines()) for path in MODULES}
    assert {place: lines for place, lines in lengths.items() if lines > MAX_MODULE_LINES} == {}


def test_no_function_is_too_long_to_be_understood_at_a_glance() -> None:
    lengths = {
        f"{place}:{node.lineno} {node.name}": _length(node)
        for place, node in _nodes()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {place: lines for place, lines in lengths.items() if lines > MAX_FUNCTION_LINES} == {}


def _changes_files(call: ast.Call) -> bool:
    """Tell whether *call* is `open`, or a method that of all our classes only a path has."""
    if isinstance(call.func, ast.Name):
        return call.func.id == "open"
    changing = {"hardlink_to", "rmdir", "symlink_to", "touch", "unlink", "write_bytes", "write_text"}
    return isinstance(call.func, ast.Attribute) and call.func.attr in changing


def test_one_module_alone_changes_files() -> None:
    """The command line may write what a user asks for, and the conformance suites break things on purpose."""
    places = [
        f"{place}:{node.lineno}"
        for place, node in _nodes()
        if isinstance(node, ast.Call)
        and _changes_files(node)
        and place not in FILES_MODULES
        and not place.startswith(("cli/", "testing/"))
    ]
    assert places == []


def _imported_on_loading(body: list[ast.stmt]) -> Iterator[str]:
    """Yield the top-level name of each module that is imported when a module with *body* is loaded."""
    for node in body:
        match node:
            case ast.Import(names=names):
                yield from (alias.name.partition(".")[0] for alias in names)
            case ast.ImportFrom(module=str(module)):
                yield module.partition(".")[0]
            case ast.If(test=test) if ast.unparse(test).endswith("TYPE_CHECKING"):
                yield from _imported_on_loading(node.orelse)
            case ast.If() | ast.ClassDef() | ast.With():
                yield from _imported_on_loading([*node.body, *getattr(node, "orelse", [])])
            case ast.Try():
                handled = [stmt for handler in node.handlers for stmt in handler.body]
                yield from _imported_on_loading([*node.body, *handled, *node.orelse, *node.finalbody])
            case _:
                pass


def _allowed_on_loading(place: str) -> frozenset[str]:
    tools = {"hypothesis", "pytest"} if place.startswith("testing/") else set[str]()
    return sys.stdlib_module_names | CORE_DEPENDENCIES | {"buoyline"} | tools | LOADED_WHEN_USED.get(place, set())


def test_no_framework_is_needed_to_load_a_module() -> None:
    foreign = {
        f"{_place(path)}: {name}"
        for path in MODULES
        for name in _imported_on_loading(_tree(path).body)
        if name not in _allowed_on_loading(_place(path))
    }
    assert foreign == set()


def _loaded_by(statement: str) -> set[str]:
    """Run *statement* in an interpreter of its own; return the names of the modules that it loaded."""
    program = (
        "import json, sys\n"
        "before = set(sys.modules)\n"
        f"{statement}\n"
        "print(json.dumps(sorted(set(sys.modules) - before)))\n"
    )
    ran = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, check=True)
    return set(json.loads(ran.stdout))


def test_importing_buoyline_loads_nothing_that_is_slow_to_load() -> None:
    loaded = _loaded_by("import buoyline")
    assert "buoyline" in loaded
    assert loaded & SLOW_TO_LOAD == set()


def test_every_name_that_buoyline_offers_is_there_without_command_line_or_vocabulary() -> None:
    loaded = _loaded_by("import buoyline; [getattr(buoyline, name) for name in getattr(buoyline, '__all__', ())]")
    assert loaded & {"anthropic", "click", "openai", "rich", "tiktoken", "watchfiles"} == set()
