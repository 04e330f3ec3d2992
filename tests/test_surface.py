"""The names that packages export: each is in an example of a page, and pages and signatures have no others."""

import ast
import asyncio
import importlib
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from page_blocks import ROOT, blocks_of

import buoyline
from buoyline.watching.events import WorkspaceEvent
from buoyline.window import Event

pytest.importorskip("agentscope", reason="agentscope is an extra for tests")
pytest.importorskip("strands", reason="strands is an extra for tests")

PACKAGE = ROOT / "src" / "buoyline"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

MODULES = ("errors", "inspect.costs", "inspect.telemetry", "window.tool", "watching.events")
"""The modules that pages import from, besides the packages."""

MAX_NAMES = 40
"""Of `buoyline` itself."""

OWN_ROOMS: Mapping[str, frozenset[str]] = {
    "Compressor": frozenset({"archive", "record", "summarize"}),
    "Draft": frozenset({"batches"}),
    "ContextManagement": frozenset({"entries", "hooks"}),
    "Registry": frozenset({"listed"}),
    "KeyedStorage": frozenset({"__init__", "for_sandbox", "namespace"}),
    "LocalWorkspace": frozenset({"upkeep"}),
    "StoredSession": frozenset({"content", "index", "messages", "with_payloads"}),
    "TreeWorkspace": frozenset({"__init__", "blobs", "entries", "session", "sessions", "tree"}),
}
"""Members that other packages of buoyline call, and no page shows."""


@cache
def facades() -> Mapping[str, ModuleType]:
    """Return what exports names to users: each package, and the modules above."""
    packages = [path.parent.relative_to(PACKAGE.parent) for path in sorted(PACKAGE.rglob("__init__.py"))]
    names = [".".join(path.parts) for path in packages] + [f"buoyline.{module}" for module in MODULES]
    modules = {name: importlib.import_module(name) for name in names}
    return {name: module for name, module in modules.items() if hasattr(module, "__all__")}


@cache
def exported() -> Mapping[str, Any]:
    return {name: getattr(module, name) for module in facades().values() for name in module.__all__}


def imported_in(page: Path) -> Iterator[tuple[str, str]]:
    """Yield the package and the name of each import of a Python block, which the tests of pages run."""
    for block in blocks_of(page):
        if block.language == "python":
            for node in ast.walk(block.syntax()):
                if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "buoyline":
                    yield from ((node.module or "", alias.name) for alias in node.names)


@pytest.mark.parametrize(("page", "union"), [("events.md", Event), ("watching.md", WorkspaceEvent)])
def test_every_event_is_in_a_table_of_events(page: str, union: Any) -> None:
    text = (ROOT / "docs" / page).read_text("utf-8")
    assert [cls.__name__ for cls in get_args(union) if f"| `{cls.__name__}` | " not in text] == []


def test_every_exported_name_is_imported_by_an_example_of_a_page() -> None:
    shown = {name for page in PAGES for _, name in imported_in(page)}
    assert sorted(exported().keys() - shown - in_tables()) == []


def in_tables() -> set[str]:
    """Return errors and events, which pages list, and the function behind the script ``buoyline``."""
    errors = {name for name, thing in exported().items() if inspect.isclass(thing) and issubclass(thing, Exception)}
    events = {cls.__name__ for cls in (*get_args(Event), *get_args(WorkspaceEvent))}
    return {*errors, *events, "main"}


def test_pages_import_only_exported_names() -> None:
    imported = {(module, name) for page in PAGES for module, name in imported_in(page)}
    hidden = [(module, name) for module, name in imported if name not in getattr(facades().get(module), "__all__", ())]
    assert sorted(hidden) == []


def test_the_example_that_help_shows_first_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    example = (buoyline.__doc__ or "").split("Example:\n", 1)[1].split("\n\nHere are", 1)[0]
    scope: dict[str, Any] = {}
    exec(f"async def main():\n{example}\n    return messages", scope)  # noqa: S102 - our own docstring
    assert asyncio.run(scope["main"]()) == [{"role": "user", "content": "Which tests fail?"}]


def test_a_name_that_several_packages_export_is_one_thing() -> None:
    found = [(name, getattr(module, name)) for module in facades().values() for name in module.__all__]
    assert [name for name, thing in found if thing is not exported()[name]] == []


def test_the_first_package_exports_few_names() -> None:
    assert len(facades()["buoyline"].__all__) <= MAX_NAMES


@cache
def _names() -> dict[str, Any]:
    """Return all classes of buoyline by name: some annotations are imported for type checkers alone."""
    names: dict[str, Any] = {}
    for path in PACKAGE.rglob("*.py"):
        if path.name != "__main__.py":
            module = importlib.import_module(".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts))
            names.update({name: thing for name, thing in vars(module).items() if _is_ours(thing)})
    return names


def _hints(thing: Any) -> dict[str, Any]:
    """Return the annotations of *thing*; a name of another project that only type checkers import is `Any`."""
    while True:
        try:
            return get_type_hints(thing, localns=_names())
        except NameError as error:
            _names()[str(error.name)] = Any


def _is_ours(thing: object) -> bool:
    return inspect.isclass(thing) and thing.__module__.partition(".")[0] == "buoyline"


def _functions(thing: Any) -> Iterator[tuple[str, FunctionType]]:
    """Yield the public functions of an exported class or function, with what defines them."""
    if isinstance(thing, FunctionType):
        yield thing.__name__, thing
    elif inspect.isclass(thing):
        for cls in filter(_is_ours, thing.__mro__):
            for name, member in vars(cls).items():
                function = getattr(member, "__func__", getattr(member, "fget", member))
                is_public = not name.startswith("_") or name == "__call__" or _is_written_init(cls, name)
                is_own = name in OWN_ROOMS.get(cls.__name__, ())
                if is_public and not is_own and isinstance(function, FunctionType):
                    yield f"{cls.__name__}.{name}", function


def _is_written_init(cls: type, name: str) -> bool:
    """Return whether *name* is a constructor that is not generated from the fields of a dataclass."""
    return name == "__init__" and not is_dataclass(cls)


def _annotations(thing: Any) -> Iterator[tuple[str, Any]]:
    for place, function in _functions(thing):
        for name, annotation in _hints(function).items():
            yield f"{place}({name})", annotation
    if inspect.isclass(thing):
        for cls in filter(_is_ours, thing.__mro__):
            for name, annotation in _hints(cls).items():
                if not name.startswith("_") and name not in OWN_ROOMS.get(cls.__name__, ()):
                    yield f"{cls.__name__}.{name}", annotation


def _classes(annotation: Any) -> Iterator[type]:
    """Yield our classes in *annotation*; an alias is what it stands for, unless a package exports it."""
    if not inspect.isclass(annotation) and any(annotation == thing for thing in exported().values()):
        return
    if isinstance(annotation, list):
        for part in annotation:
            yield from _classes(part)
    elif get_origin(annotation) is not None:
        for part in (get_origin(annotation), *get_args(annotation)):
            yield from _classes(part)
    elif _is_ours(annotation):
        yield annotation


def test_each_class_in_a_public_signature_can_be_imported_from_a_package() -> None:
    things = list(exported().values())
    hidden = {
        f"{place}: {cls.__name__}"
        for thing in things
        for place, annotation in _annotations(thing)
        for cls in _classes(annotation)
        if not any(cls is other for other in things)
    }
    assert sorted(hidden) == []
