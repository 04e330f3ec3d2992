"""What the package says about itself, in the places that repeat it."""

import re
import tomllib
from pathlib import Path

from buoyline.errors import INSTALL

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def test_the_skill_in_the_package_is_agents_md() -> None:
    skill = (ROOT / "src/buoyline/.agents/skills/using-buoyline/SKILL.md").read_text("utf-8")
    head, _, body = skill.partition("\n---\n\n")
    assert head.startswith("---\nname: using-buoyline\ndescription: ")
    assert body == (ROOT / "AGENTS.md").read_text("utf-8")


def test_pages_install_the_extras_that_there_are_with_the_line_of_the_errors() -> None:
    lines = [
        line
        for page in (ROOT / "docs").rglob("*.md")
        for line in re.findall(r"^\$ (pip install .*)$", page.read_text("utf-8"), re.MULTILINE)
    ]
    assert len(lines) > 5
    assert set(lines) <= {INSTALL.format(extra) for extra in PROJECT["optional-dependencies"]}


def test_the_site_leads_to_the_repository_of_the_package() -> None:
    assert f"repo_url: {PROJECT['urls']['Repository']} " in (ROOT / "mkdocs.yml").read_text("utf-8")


def test_the_files_that_the_architecture_names_are_there() -> None:
    named = re.findall(r"`([a-z_/]+(?:\.py|/))`", (ROOT / "ARCHITECTURE.md").read_text("utf-8"))
    assert len(named) > 15
    assert [name for name in named if not (ROOT / "src/buoyline" / name).exists()] == []
