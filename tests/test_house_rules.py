"""Rules of the house that no checker in ``make check`` knows. CONTRIBUTING.md says why they are kept."""

import ast
import importlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TypeAlias

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "buoyline"
MODULES = sorted(PACKAGE.rglob("*.py"))

MAX_MODULE_LINES = 800
MAX_FUNCTION_LINES = 80

FILES_MODULES = {"workspace/local_tree.py", "workspace/descriptors.py"}
"""The two halves of what alone opens, renames, syncs and locks."""

CORE_DEPENDENCIES = frozenset({"click", "pydantic", "re2", "rich", "tiktoken", "watchfiles"})
"""As they are imported; what is not among them is a framework, or a tool for tests."""

SLOW_TO_LOAD = CORE_DEPENDENCIES | {"asyncio", "anthropic", "openai"}
"""What ``import buoyline`` leaves to those who use it."""

STANDARD_LIBRARY = sys.stdlib_module_names | {"compression"}
"""``compression`` is new in Python 3.14, and imported there by gzip, tarfile and zipfile."""

LOADED_WHEN_USED = {"compression/summarizers/provider.py": {"pydantic_ai"}} | {
    path.relative_to(PACKAGE).as_posix(): {framework}
    for framework in ("agentscope", "strands")
    for path in (PACKAGE / "integrations" / framework).glob("*.py")
}
"""Modules that stand for a framework, and are loaded by those alone who use it."""

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Definition: TypeAlias = Function | ast.ClassDef


def _place(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"), path)


@cache
def _nodes() -> list[tuple[str, Function | ast.Call | ast.ExceptHandler]]:
    """Return every function, call and handler of the package with the module that holds it."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Call, ast.ExceptHandler)
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


def _is_broad(kinds: list[ast.expr]) -> bool:
    return any(isinstance(kind, ast.Name) and kind.id in {"BaseException", "Exception"} for kind in kinds)


def _swallows_all(node: ast.AST) -> bool:
    """Tell whether *node* is a broad handler that raises nothing again, or a broad ``suppress``.

    What is set on a future is raised where the future is waited for.
    """
    match node:
        case ast.ExceptHandler(type=None):
            is_broad = True
        case ast.ExceptHandler(type=ast.Tuple(elts=kinds)):
            is_broad = _is_broad(kinds)
        case ast.ExceptHandler(type=ast.expr() as kind):
            is_broad = _is_broad([kind])
        case ast.Call(func=function, args=kinds) if ast.unparse(function).endswith("suppress"):
            return _is_broad(kinds)
        case _:
            return False
    return is_broad and not any(map(_raises_again, ast.walk(node)))


def _raises_again(node: ast.AST) -> bool:
    match node:
        case ast.Raise(exc=None) | ast.Call(func=ast.Attribute(attr="set_exception")):
            return True
        case _:
            return False


def test_what_nobody_foresaw_is_never_swallowed() -> None:
    """Cleaning up after any exception is right, going on after it is not."""
    swallowing = [
        f"{place}:{node.lineno}"
        for place, node in _nodes()
        if isinstance(node, ast.ExceptHandler | ast.Call) and _swallows_all(node)
    ]
    assert swallowing == []


def _changes_files(call: ast.Call) -> bool:
    """Tell whether *call* is `open`, or a method that of all our classes only a path has."""
    if isinstance(call.func, ast.Name):
        return call.func.id == "open"
    changing = {"hardlink_to", "rmdir", "symlink_to", "touch", "unlink", "write_bytes", "write_text"}
    return isinstance(call.func, ast.Attribute) and call.func.attr in changing


def test_two_modules_alone_change_files() -> None:
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


def _public(body: list[ast.stmt]) -> Iterator[Definition]:
    """Yield the public functions and classes in *body*, and those within its public classes."""
    for node in body:
        if isinstance(node, ast.If | ast.Try):
            yield from _public([*node.body, *node.orelse])
        elif isinstance(node, Definition) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from _public(node.body)


def _takes_its_docstring_from_elsewhere(node: Definition) -> bool:
    names = {ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list}
    return bool(names & {"overload", "override", "setter"})


def test_everything_public_says_what_it_does() -> None:
    """In private modules, too, which the linter passes over: their readers are us."""
    silent = [
        f"{_place(path)}:{node.lineno} {node.name}"
        for path in MODULES
        for node in _public(_tree(path).body)
        if ast.get_docstring(node) is None and not _takes_its_docstring_from_elsewhere(node)
    ]
    assert silent == []


def _folders_on_the_import_path() -> list[Path]:
    """Return the folders that ``python -c`` and the running of a script put first on ``sys.path``."""
    folders = [ROOT, *(ROOT / name for name in ("tests", "examples", "benchmarks", "scripts"))]
    return [folder for folder in folders if folder.is_dir()]


def test_no_name_hides_a_module_of_the_standard_library() -> None:
    hiding = [
        path.relative_to(ROOT).as_posix()
        for folder in _folders_on_the_import_path()
        for path in folder.iterdir()
        if (path.is_dir() or path.suffix == ".py") and path.stem in STANDARD_LIBRARY
    ]
    assert hiding == []


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


@pytest.mark.parametrize("path", MODULES, ids=_place)
def test_a_module_offers_each_name_once_and_has_it(path: Path) -> None:
    """That the names stand in order is the linter's to check."""
    name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
    if name.endswith("__main__"):
        pytest.skip("loading it starts the command line")
    for framework in LOADED_WHEN_USED.get(_place(path), ()):
        pytest.importorskip(framework)
    module = importlib.import_module(name)
    offered: list[str] = getattr(module, "__all__", [])
    assert len(offered) == len(set(offered))
    assert [missing for missing in offered if not hasattr(module, missing)] == []


NOT_IN_NAMES = {
    *(
        "covering",
        "deed",
        "deeds",
        "lane",
        "lanes",
        "leaving",
        "lookout",
        "mend",
        "mended",
        "mending",
        "relief",
        "shelf",
    ),
    *(
        "shelves",
        "sighting",
        "sightings",
        "situating",
        "standing",
        "standin",
        "tackled",
        "told",
        "untried",
        "weakening",
    ),
}
"""Words of our own making. Nobody outside can guess what a function of such a name does."""

NOT_IN_PROSE = re.compile(
    r"\b(anew|mend(s|ed|ing)?(?!\")|deeds?|shall|Tell whether|none of ours|be it|(is|are|was|were) told)\b"
    r"|(?<!here )\b(is|are) none\b(?! of)|\bstands? (again|there|before|behind)\b"
    r"|^\s*(# |\"\"\")What (is|was|has|stands|leaves|takes)\b"
)
"""Turns of phrase that are no English, or that hide who does what."""


def _names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
                | ast.arg(arg=name)
            ):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name
            case _:
                pass


def test_names_are_words_that_others_use() -> None:
    found = {
        f"{_place(path)}: {name}"
        for path in MODULES
        for name in (path.stem, *_names(_tree(path)))
        if NOT_IN_NAMES & {word.lower() for word in re.findall(r"[a-z]+|[A-Z][a-z]*", name)}
    }
    assert found == set()


def test_prose_is_plain() -> None:
    found = [
        f"{_place(path)}:{number} {line.strip()}"
        for path in MODULES
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if NOT_IN_PROSE.search(line)
    ]
    assert found == []


def test_a_public_class_name_exists_once() -> None:
    """Two classes of one name are one search result too many."""
    places: dict[str, list[str]] = {}
    for path in MODULES:
        for node in _tree(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(_place(path))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_modules_are_named_by_nouns() -> None:
    participles = [_place(path) for path in MODULES if path.stem.endswith("ing") and path.stem not in NOUNS]
    assert participles == []


NOUNS = frozenset({"offloading", "recording"})
"""Words in -ing that name a thing."""


def _known_names() -> set[str]:
    """Return the names of functions, classes, methods and attributes of the package, alone and with their class."""
    names: set[str] = set()
    for path in MODULES:
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.ClassDef):
                names |= {f"{node.name}.{name}" for name in _names(ast.Module(node.body, []))}
        names |= set(_names(_tree(path)))
    return names


def test_the_architecture_is_one_page() -> None:
    assert len((ROOT / "ARCHITECTURE.md").read_text("utf-8").splitlines()) <= 120


def test_the_architecture_names_what_is_there() -> None:
    said = re.findall(r"`([^`\n]+)`", (ROOT / "ARCHITECTURE.md").read_text("utf-8"))
    packages = {path.relative_to(PACKAGE).parts[0] for path in MODULES}
    known = _known_names() | packages
    missing = [
        name
        for name in said
        if not any((place / name).exists() for place in (PACKAGE, ROOT))
        and not (name in known or name.endswith((".jsonl", ".md")))
        and name
        not in {"make check", "link(2)", "data/", "should_offload"}  # a command, a system call, a folder, a hook
    ]
    assert missing == []
