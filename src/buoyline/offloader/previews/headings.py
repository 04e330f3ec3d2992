"""Texts of headings, sections or keys: Markdown, INI and TOML, YAML."""

import re
from collections.abc import Sequence
from typing import TypeAlias

from buoyline.offloader.previews.facts import sampled, share

Heading: TypeAlias = tuple[int, str, int]
"""Number of the line, what it says, and its level from 0."""

_MAX_HEADINGS = 20_000
_LEAST = 0.85
_LEAST_KEYS = 3
_LEAST_HEADINGS = 2
_LEAST_NESTED = 0.3
_LEAST_PROSE = 0.05
_SHOWN_CHARS = 70

_HEADING = re.compile(r"(#{1,6}) {1,3}(\S.{0,200})")
_FENCE = re.compile(r" {0,3}(?:```|~~~)")
_PROSE = re.compile(r"#{2,6} \S|\s{0,8}[-*+] \S|\s{0,8}\d{1,3}[.)] \S|```|\||> |.{0,200}(?:\*\*|\]\(|`)")
_UNDERLINE = re.compile(r"(?:={3,}|-{3,})\s{0,4}$")

_SECTION = re.compile(r"\s{0,8}\[{1,2}([^\[\]=]{1,200})\]{1,2}\s{0,8}(?:[#;].{0,200})?$")
_SETTING = re.compile(r"\s{0,8}[\w.\"'/-]{1,200}\s{0,8}[=:]|\s{0,40}[#;]|\s{1,40}\S|[\]})]")

_KEY = re.compile(r"([A-Za-z_/.\"'$<][^:#{}\[\]\s]{0,100}(?: [\w-]{1,40})?)\s?:(?:\s|$)")
_YAML = re.compile(r"\s{0,200}(?:- ){0,8}(?:[\w.\"'/$<*&@-][^:{}\[\]]{0,200}:(?:\s|$)|- \S|#)|---$|\.\.\.$|\s*$")
_NESTED = re.compile(r" {2,200}\S|- \S")


def outline_of(texts: Sequence[str]) -> tuple[str, list[Heading]] | None:
    """Return what form a text has and its headings, or None where it has none of these forms.

    Args:
        texts: The lines of the text, without a gutter.

    Returns:
        ``("Markdown", [(1, "# Title", 0), (12, "## Use", 1)])``; not more than 20,000 headings.
    """
    sample = sampled(texts)
    if len(sample) < _LEAST_KEYS:
        return None
    for name, is_so, headings in (
        ("Markdown", _is_markdown, _markdown_headings),
        ("Sections", _has_sections, _sections),
        ("YAML", _is_yaml, _keys),
    ):
        if is_so(sample):
            found = headings(texts)
            return (name, found) if found else None
    return None


def _is_markdown(sample: Sequence[str]) -> bool:
    headings = [found[1] for found in map(_HEADING.match, sample) if found is not None]
    deep = sum(len(marks) > 1 for marks in headings)
    signs = sum(_PROSE.match(line) is not None for line in sample)
    is_script = sample[0].startswith("#!")
    return deep >= _LEAST_HEADINGS and not is_script and signs - deep > _LEAST_PROSE * len(sample)


def _markdown_headings(texts: Sequence[str]) -> list[Heading]:
    found: list[Heading] = []
    is_code = False
    for number, line in enumerate(texts, 1):
        if _FENCE.match(line):
            is_code = not is_code
        elif not is_code and line.startswith("#") and (heading := _HEADING.match(line)) and len(found) < _MAX_HEADINGS:
            found.append((number, _shown(f"{heading[1]} {heading[2]}"), len(heading[1]) - 1))
    return found


def _has_sections(sample: Sequence[str]) -> bool:
    sections = sum(_SECTION.match(line) is not None and not line.startswith(" ") for line in sample)
    settings = sum("=" in line and _SETTING.match(line) is not None for line in sample)
    others = sum(_SETTING.match(line) is not None for line in sample)
    return sections >= 1 and settings >= 2 and share(sections + others, len(sample)) >= _LEAST  # noqa: PLR2004


def _sections(texts: Sequence[str]) -> list[Heading]:
    found = ((number, _SECTION.match(line)) for number, line in enumerate(texts, 1) if line.startswith("["))
    return [(number, _shown(f"[{match[1]}]"), 0) for number, match in found if match is not None][:_MAX_HEADINGS]


def _is_yaml(sample: Sequence[str]) -> bool:
    keys = sum(_KEY.match(line) is not None for line in sample)
    nested = sum(_NESTED.match(line) is not None for line in sample)
    is_yaml = sum(_YAML.match(line) is not None for line in sample)
    return keys >= 1 and nested >= _LEAST_NESTED * len(sample) and is_yaml >= _LEAST * len(sample)


def _keys(texts: Sequence[str]) -> list[Heading]:
    top = ((number, _KEY.match(line)) for number, line in enumerate(texts, 1) if line and not line[0].isspace())
    found = [(number, _shown(f"{match[1]}:"), 0) for number, match in top if match is not None]
    return found[:_MAX_HEADINGS]


def _shown(text: str) -> str:
    return text.strip()[:_SHOWN_CHARS]
