"""Source text: in what language, and what is defined where.

Also where each line bears a number of its own, as `cat -n` and the tools that read files for agents write it.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from buoyline.offloader.previews.facts import ROW_CHARS, counted, fact, is_continued, plain, rows, sampled, share
from buoyline.offloader.previews.finding import Digest, Finding
from buoyline.offloader.previews.gutters import Gutter, without_gutter
from buoyline.offloader.previews.headings import outline_of
from buoyline.offloader.previews.languages import LANGUAGES, MINIFIED, SCRIPT, Language
from buoyline.offloader.previews.matching import hit_count, hits, joined

_LINE_CHARS = 300
_MAX_DEFINITIONS = 20_000
_MOST_ROWS = 4
_MOST_FINDINGS = 12
_MOST_ITEMS = 200
_LABEL_CHARS = 60

# Less than a row has room for, whose label takes some.
_ROW_CHARS = ROW_CHARS - 16
_LEAST_MARKS = 3
_LEAST_LINES = 5

# What a line of a program looks like, in any language: not what a line of a log or of prose does.
_CODE = re.compile(
    r"[{};,(\[:\\]\s{0,4}$|^\s{0,80}[)}\]]|^\s{0,80}(?://|/\*|\*|#|--|<!--|\"\"\"|@)|^\s{2,80}\S|^\t|[=!]=|\w\("
    r"|^\s{0,80}\w{1,40} [:+]?= "
    r"|^(?:import|from|use|using|package|const|let|var|func|def|class|type|end|return|echo|fi|done|export)\b"
)
_LEAST_CODE = 0.6
_MINIFIED_CHARS = 500
_SCRIPT_LINES = 200
_SCRIPT_LINE_CHARS = 20_000
_CHARS_PER_SIGN = 150

_JSON = frozenset({"{", "[", "[{", "{}", "[]"})
_LOCAL = frozenset({"if", "for", "while", "switch", "catch", "return", "function", "else", "do", "with", "match"})
_VALUES = frozenset({"const", "let", "var", "static", "define"})
# What nearly all are needs no word of its own.
_UNSAID = frozenset({"def", "function", "const", "let", "var", "fn", "func", "exports"})
_DECLARATORS = ("describe(", "it(", "test(")


class Definition(NamedTuple):
    """Something that a text defines.

    Attributes:
        number: Of the line where it begins.
        label: What it is and is called.
        rank: 0 for what is visible outside and on top, the more the deeper.
    """

    number: int
    label: str
    rank: int


def outline_digest(lines: Sequence[str]) -> Digest | None:
    """Say of a source text in what language it is, and what is defined where.

    Args:
        lines: Of the text, without line ends; a gutter with numbers may stand before each.

    Returns:
        The language, how many lines there are, and an outline with their numbers; all numbers are those of *lines*.
        None where it is no source text.
    """
    lines = plain(lines)
    gutter = without_gutter(lines)
    texts = lines if gutter is None else gutter.texts
    found = _document(texts) or _program(texts)
    if found is None:
        return None
    name, definitions = found
    return Digest(tuple(_facts(name, len(lines), definitions, gutter)), tuple(_findings(definitions, len(lines))))


def _document(texts: Sequence[str]) -> tuple[str, list[Definition]] | None:
    found = outline_of(texts)
    if found is None:
        return None
    name, headings = found
    return f"{name} (", [Definition(*heading) for heading in headings]


def _program(texts: Sequence[str]) -> tuple[str, list[Definition]] | None:
    language = None if _is_minified(texts) else _language(sampled(texts))
    if language is not None:
        return f"Source code ({language.name}, ", _definitions(language, texts)
    return ("Source code (JavaScript, minified, ", _minified(texts)) if _is_script(texts) else None


def _language(sample: Sequence[str]) -> Language | None:
    # A document in JSON has lines of code, and no definitions.
    if not sample or sample[0].strip() in _JSON:
        return None
    if len(sample) < _LEAST_LINES and not any(len(line) > _LINE_CHARS for line in sample):
        return None
    if share(sum(_CODE.search(line) is not None for line in sample), len(sample)) < _LEAST_CODE:
        return None
    text = joined(sample, _LINE_CHARS)
    marks = [(hit_count(language.marks, text), language) for language in LANGUAGES]
    enough = [
        (count / language.least_share**0.5, language)
        for count, language in marks
        if count >= _LEAST_MARKS and count >= language.least_share * len(sample)
    ]
    return max(enough, key=lambda pair: pair[0])[1] if enough else None


def _is_minified(texts: Sequence[str]) -> bool:
    head = [line for line in texts[:200] if line]
    return bool(head) and 2 * sum(len(line) > _MINIFIED_CHARS or is_continued(line) for line in head) > len(head)


def _is_script(texts: Sequence[str]) -> bool:
    head = joined(texts[:_SCRIPT_LINES], _SCRIPT_LINE_CHARS)
    return len(head) > _SCRIPT_LINE_CHARS // 10 and hit_count(SCRIPT, head) * _CHARS_PER_SIGN > len(head)


def _minified(texts: Sequence[str]) -> list[Definition]:
    found: dict[str, Definition] = {}
    for hit in hits(MINIFIED, joined(texts, 1 << 16), _MAX_DEFINITIONS):
        name = "".join(hit.groups)
        found.setdefault(name, Definition(hit.number, name, 0))
    return list(found.values())


def _definitions(language: Language, texts: Sequence[str]) -> list[Definition]:
    found = (
        _definition(language, hit.number, hit.groups)
        for hit in hits(language.outline, joined(texts, _LINE_CHARS), _MAX_DEFINITIONS)
    )
    return [definition for definition in found if definition is not None]


def _definition(language: Language, number: int, groups: Sequence[str]) -> Definition | None:
    before, words = groups[0], [group for group in groups[1:] if group]
    if not words or words[-1] in _LOCAL:
        return None
    depth = len(before.expandtabs(4)) - len(before.expandtabs(4).lstrip())
    word = words[0] if len(words) > 1 else ""
    is_visible = (
        not language.visible or any(mark in before.split() for mark in language.visible) or words[0] in _DECLARATORS
    )
    is_value = word in _VALUES
    if is_value and depth:
        return None
    rank = 2 * min(depth // 2, 4) + (not is_visible) + 2 * is_value
    return Definition(number, _label(word.strip(" (.!"), words[-1].strip()), rank)


def _label(word: str, name: str) -> str:
    return f"{word} {name}" if word and word not in _UNSAID else name


def _facts(name: str, total: int, definitions: Sequence[Definition], gutter: Gutter | None) -> Iterator[str]:
    own = "" if gutter is None or gutter.note == "" else f"; {gutter.note}"
    yield fact(f"{name}{counted(total, 'line')}{own})")
    ranks = sorted({definition.rank for definition in definitions})
    top = [definition for definition in definitions if ranks and definition.rank <= ranks[0] + 1]
    nested = [definition for definition in definitions if ranks and definition.rank > ranks[0] + 1]
    yield from rows("Outline", _items(top, total, _MOST_ROWS), most=_MOST_ROWS)
    most = 1 if len(top) > _MOST_FINDINGS else 2
    yield from rows("Within", _items(nested, total, most), most=most)


def _chosen(definitions: Sequence[Definition], total: int) -> list[Definition]:
    """Return those on top first; of what is alike, what takes most lines."""
    ends = [*(after.number for after in definitions[1:]), total + 1][: len(definitions)]
    pairs = zip(definitions, ends, strict=True)
    return [found for found, _ in sorted(pairs, key=lambda pair: (pair[0].rank, pair[0].number - pair[1]))]


def _items(definitions: Sequence[Definition], total: int, most: int) -> list[str]:
    """Return the definitions in their order, or where they have no room, the weightiest, a row of them in order."""
    if sum(map(_width, definitions)) <= most * _ROW_CHARS:
        return list(map(_item, definitions))
    items: list[str] = []
    row: list[Definition] = []
    for definition in _chosen(definitions, total):
        if sum(map(_width, row)) + _width(definition) > _ROW_CHARS:
            items += map(_item, sorted(row))
            row = []
        row.append(definition)
        if len(items) > _MOST_ITEMS:
            break
    return [*items, *map(_item, sorted(row)), *[""] * (len(definitions) - len(items) - len(row))]


def _item(definition: Definition) -> str:
    return f"{definition.label[:_LABEL_CHARS]} :{definition.number}"


def _width(definition: Definition) -> int:
    return len(_item(definition)) + 2


def _findings(definitions: Sequence[Definition], total: int) -> Iterator[Finding]:
    for definition in _chosen(definitions, total)[:_MOST_FINDINGS]:
        yield Finding(definition.number, 50.0)
