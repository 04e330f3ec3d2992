"""docs/settings.md says of every setting and error what the code says."""

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from buoyline import ContextConfig, ContextWindow, LocalWorkspace, ToolRule, errors
from buoyline.window import WindowSettings

PAGE = (Path(__file__).parent.parent / "docs" / "settings.md").read_text("utf-8")
IN_WORDS = {"the five fields", "a heading a field", "a prompt", "no limit", "a tenth for cached input"}
NEEDED = inspect.Parameter.empty


def rows(heading: str) -> dict[str, str]:
    """Return the second cell of each row by the names in its first, of the table that begins with *heading*."""
    table = PAGE.split(f"| {heading} |", 1)[1].split("\n\n", 1)[0]
    found = dict[str, str]()
    for row in table.splitlines()[2:]:
        names, values = (re.findall(r"`([^`]+)`", cell) or [cell.strip()] for cell in row.split("|")[1:3])
        found |= dict(zip(names, values * len(names) if len(values) < len(names) else values, strict=False))
    return found


def spelled(default: object) -> set[str]:
    """Return the ways in which the page may say *default*."""
    if isinstance(default, str):
        return {f'"{default}"'}
    if isinstance(default, int) and not isinstance(default, bool):
        return {f"{default:,}"}
    return {repr(default)}


@pytest.mark.parametrize("described", [ContextConfig, ToolRule, ContextWindow.open, LocalWorkspace])
def test_every_parameter_stands_there_with_its_default(described: Callable[..., Any]) -> None:
    parameters = dict(inspect.signature(described).parameters)
    if parameters.pop("settings", None):
        options = WindowSettings.__annotations__
        parameters |= {name: inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in options}
    shown = rows(f"`{described.__qualname__}`")
    assert set(shown) == set(parameters)
    for name, parameter in parameters.items():
        if parameter.default is NEEDED:
            assert shown[name] == "required"
        elif shown[name] not in IN_WORDS and name != "tool_rules":
            assert shown[name] in spelled(parameter.default), name


def test_every_error_stands_there_with_its_other_bases() -> None:
    raised = {
        name: {base.__name__ for base in found.__bases__} - {"BuoylineError"}
        for name, found in vars(errors).items()
        if isinstance(found, type) and issubclass(found, errors.BuoylineError) and found is not errors.BuoylineError
    }
    table = PAGE.split("| error |", 1)[1].split("\n\n", 1)[0]
    shown = dict[str, set[str]]()
    for row in table.splitlines()[2:]:
        name, others = (re.findall(r"`(\w+)`", cell) for cell in row.split("|")[1:3])
        shown[name[0]] = set(others)
    assert shown == raised
