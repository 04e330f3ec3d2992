"""The names that packages export: pages import no others, and the first package has few."""

import ast
import asyncio
import importlib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import pytest
from page_blocks import ROOT, blocks_of

import buoyline
from buoyline.watching import WorkspaceEvent
from buoyline.window import Event

pytest.importorskip("agentscope", reason="agentscope is an extra for tests")
pytest.importorskip("strands", reason="strands is an extra for tests")
for framework in ("agent_framework", "agents", "deepagents", "google.adk", "langchain", "pydantic_ai"):
    pytest.importorskip(framework, reason=f"{framework} is an extra for tests")

PACKAGE = ROOT / "src" / "buoyline"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

MODULES = (
    *("errors", "inspect.replay", "inspect.telemetry", "management.model", "watching"),
    *("integrations.agent_framework", "integrations.deepagents", "integrations.google_adk", "integrations.langchain"),
    *("integrations.openai_agents", "integrations.pydantic_ai"),
)
"""The modules that pages import from, besides the packages."""

MAX_NAMES = 40
"""Of `buoyline` itself."""


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


@pytest.mark.parametrize(("page", "union"), [("internals/window.md", Event), ("command-line.md", WorkspaceEvent)])
def test_every_event_is_in_a_table_of_events(page: str, union: Any) -> None:
    text = (ROOT / "docs" / page).read_text("utf-8")
    assert [cls.__name__ for cls in get_args(union) if f"| `{cls.__name__}` | " not in text] == []


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
