"""Outlines: the language of a source text, and where it defines what.

Lines may carry numbers of their own, as `cat -n` and file readers of agents write them.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from buoyline.previews.digest import (
    ROW_CHARS,
    Digest,
    Finding,
    LinearPattern,
    are_mostly,
    counted,
    encoded_lines,
    fact,
    match_count,
    matches,
    rows,
    sampled,
)
from buoyline.previews.source import CONTINUED

_NUMBER = re.compile(r"\s{0,12}(\d{1,7})(?:\u2192|\t| ?\| ?|[:-] ?)")
_SAMPLE = 200
_LEAST = 0.85


def without_line_numbers(lines: Sequence[str]) -> tuple[list[str], str] | None:
    """Remove the numbers that ``cat -n`` writes before *lines*, and say how they differ from the real ones.

    Returns:
        None if most lines have no number, or the numbers are not consecutive.
    """
    sample = [_NUMBER.match(line) for line in lines[:_SAMPLE] if line.strip()]
    numbers = [int(found[1]) for found in sample if found is not None]
    if len(numbers) < 3 or len(numbers) < _LEAST * len(sample):  # noqa: PLR2004 - two may be chance
        return None
    if sum(after == before + 1 for before, after in pairwise(numbers)) < _LEAST * (len(numbers) - 1):
        return None
    found = [_NUMBER.match(line) for line in lines]
    texts = [line[match.end() :] if match is not None else "" for line, match in zip(lines, found, strict=True)]
    offsets = Counter(number - int(match[1]) for number, match in enumerate(found, 1) if match is not None)
    offset, count = offsets.most_common(1)[0]
    if count < _LEAST * offsets.total():
        return texts, "numbers here are of the lines, not those in them"
    if offset == 0:
        return texts, ""
    direction = "less" if offset > 0 else "more"
    return texts, f"numbers here are of the lines; those in them are {abs(offset):,} {direction}"


class Definition(NamedTuple):
    """A definition or a heading; *rank* is 0 for a public one at the top level, and higher for deeper ones."""

    number: int
    label: str
    rank: int


# Texts with headings or keys: Markdown, YAML.


_MAX_HEADINGS = 20_000
_LEAST_KEYS = 3
_LEAST_HEADINGS = 2
_LEAST_NESTED = 0.3
_LEAST_PROSE = 0.05
_SHOWN_CHARS = 70

_MOST_VERDICTS = 5
_PROSE_CHARS = 240
_PARAGRAPH = re.compile(r"[A-Za-z\u00c0-\uffff].{79}")
_VERDICT = re.compile(
    r"(?i)\b(?:verdict|conclusion|summary|tl;?dr|recommendation|overall|outcome|decision|assessment)\b"
)
_VERDICT_LINE = LinearPattern(
    r"(?i)^[\W_]{0,6}(?:(?:final|overall) )?(?:verdict|conclusion|result|recommendation|status|decision|outcome|rating"
    r"|overall|bottom line)\b[*_ ]{0,4}:\W{0,4}\w"
)
_HEADING = re.compile(r"(#{1,6}) {1,3}(\S.{0,200})")
_FENCE = re.compile(r" {0,3}(?:```|~~~)")
_MARKS = frozenset("# `~")
_PROSE = re.compile(r"#{2,6} \S|\s{0,8}[-*+] \S|\s{0,8}\d{1,3}[.)] \S|```|\||> |.{0,200}(?:\*\*|\]\(|`)")

_KEY = re.compile(r"([A-Za-z_/.\"'$<][^:#{}\[\]\s]{0,100}(?: [\w-]{1,40})?)\s?:(?:\s|$)")
_YAML = re.compile(r"\s{0,200}(?:- ){0,8}(?:[\w.\"'/$<*&@-][^:{}\[\]]{0,200}:(?:\s|$)|- \S|#)|---$|\.\.\.$|\s*$")
_NESTED = re.compile(r" {2,200}\S|- \S")


def _heading_outline(texts: Sequence[str]) -> tuple[str, list[Definition]] | None:
    """Return the form of a text and its headings, ranked by their level; None for any other form.

    Returns:
        ``("Markdown", [(1, "# Title", 0), (12, "## Use", 1)])``; at most 20,000 headings.
    """
    sample = sampled(texts)
    if len(sample) < _LEAST_KEYS:
        return None
    if _is_markdown(sample):
        name, found = "Markdown", _markdown_headings(texts)
    elif _is_yaml(sample):
        top = ((number, line) for number, line in enumerate(texts, 1) if line and not line[0].isspace())
        matched = ((number, _KEY.match(line)) for number, line in top)
        name, found = "YAML", [(number, f"{match[1]}:", 0) for number, match in matched if match is not None]
    else:
        return None
    shown = [Definition(number, text.strip()[:_SHOWN_CHARS], level) for number, text, level in found[:_MAX_HEADINGS]]
    return (name, shown) if shown else None


def _is_markdown(sample: Sequence[str]) -> bool:
    headings = [found[1] for found in map(_HEADING.match, sample) if found is not None]
    deep = sum(len(marks) > 1 for marks in headings)
    if deep < _LEAST_HEADINGS or sample[0].startswith("#!"):
        return False
    signs = sum(_PROSE.match(line) is not None for line in sample)
    return signs - deep > _LEAST_PROSE * len(sample)


def _markdown_headings(texts: Sequence[str]) -> list[tuple[int, str, int]]:
    found: list[tuple[int, str, int]] = []
    is_code = False
    for number, line in enumerate(texts, 1):
        if line[:1] not in _MARKS:
            continue
        if _FENCE.match(line):
            is_code = not is_code
        elif not is_code and (heading := _HEADING.match(line)):
            found.append((number, f"{heading[1]} {heading[2]}", len(heading[1]) - 1))
    return found


def _is_yaml(sample: Sequence[str]) -> bool:
    if not any(map(_KEY.match, sample)):
        return False
    if sum(_NESTED.match(line) is not None for line in sample) < _LEAST_NESTED * len(sample):
        return False
    return sum(_YAML.match(line) is not None for line in sample) >= _LEAST * len(sample)


# Programming languages. All patterns are RE2's and match within a line. A pattern for the outline has three groups: the
# text before the keyword (indentation and visibility), the keyword, and the name.


@dataclass(frozen=True, slots=True)
class Language:
    """A language; at least *least_share* of its lines have *marks*, and *visible* words make a definition public."""

    name: str
    marks: LinearPattern
    outline: LinearPattern
    visible: tuple[str, ...] = ()
    least_share: float = 0.02


def _defined(name: str, marks: str, outline: str, *visible: str, least_share: float = 0.02) -> Language:
    return Language(name, LinearPattern(marks), LinearPattern(outline), visible, least_share)


_I = r"[ \t]*"
_MODIFIERS = (
    r"(?:public|private|protected|internal|static|final|abstract|sealed|synchronized|async|override|virtual|partial"
    r"|readonly|default|native|unsafe|extern|open|data|inline|suspend|export|declare)"
)

# The more specific languages first: at equal counts of marks the first one wins.
LANGUAGES = (
    _defined(
        "Go",
        r"^package \w+$|^func (?:\(\w* ?\*?\w+(?:\[[^\]]*\])?\) )?\w+(?:\[[^\]]*\])?\(|^type \w+ (?:struct"
        r"|interface|func)\b"
        r"|^\t+(?:if err != nil \{|\w+(?:, \w+)* := )|^\t+defer |^import \($",
        r"^()(func|type|var|const) ((?:\(\w* ?\*?\w+(?:\[[^\]]*\])?\) )?\w+)",
    ),
    _defined(
        "Rust",
        r"^\s*(?:pub(?:\(\w+\))? )?(?:fn \w+|impl\b.*\{|use (?:crate|std|super|self)::|mod \w+;|struct \w+"
        r"|enum \w+ \{|trait \w+)"
        r"|^\s*#!?\[\w+|^\s*let mut |\bOk\(\(\)\)|^\s*match .* \{$",
        r"^([ \t]*(?:pub(?:\([^)]*\))? )?(?:(?:async|unsafe|const|extern \"C\") )*)"
        r"(fn|struct|enum|trait|mod|type|union|macro_rules!|static"
        r"|impl)(?:<[^>]*>)? ([\w:]+(?:<[^>]*>)?(?: for [\w:]+)?)",
        "pub",
    ),
    _defined(
        "PHP",
        r"^<\?php|^\s*\$\w+ ?=[^=>]|^\s*(?:public|private|protected) (?:static )?function "
        r"|^use [A-Z]\w*\\|^namespace [A-Z][\w\\]*;|\$this->",
        rf"^({_I}(?:(?:abstract|final|public|private|protected|static) )*)(function|class|interface|trait|enum"
        rf"|namespace) &?([\w\\]+)",
        "public",
        "final",
        "abstract",
    ),
    _defined(
        "C#",
        r"^using (?:static )?[A-Z][\w.]*;|^\s*namespace [A-Z][\w.]*(?:;|\s*\{?)$|\{ get; |^\s*public (?:async"
        r"|override|sealed|partial|readonly) "
        r"|\bvar \w+ = (?:new|await) |^\s*(?:public|internal|private) .*(?: : I?[A-Z]\w+)$|\bout [A-Z]?\w+ \w+"
        r"|^\s*\[(?:Http|Guid|Com|Dll|Serial|Fact|Test|Json)\w*",
        rf"^({_I}(?:{_MODIFIERS} )+)(?:(class|interface|struct|record|enum) (\w+)|[\w<>\[\],.?]+ (\w+(?:<\w+>)?) ?\()",
        "public",
    ),
    _defined(
        "Java",
        r"^package [\w.]+;|^import (?:static )?[\w.]+\*?;|^\s*@(?:Override|Test|Autowired|Deprecated|Nullable"
        r"|SuppressWarnings)\b"
        r"|^\s*(?:public|private|protected) (?:static |final |abstract )*(?:class|interface|enum|record|void"
        r"|[A-Z][\w<>, ]*) \w+"
        r"|^\s*public static void main",
        rf"^({_I}(?:{_MODIFIERS} )*)(?:(class|interface|enum|record|@interface) (\w+)"
        rf"|{_MODIFIERS} (?:{_MODIFIERS} )*(?:<[^>]*> )?[\w<>\[\],.? ]+ (\w+) ?\()",
        "public",
    ),
    _defined(
        "Kotlin",
        r"^\s*(?:(?:private|internal|override|suspend|inline|public) )*fun (?:<[^>]*> )?[\w.`]+\(|^\s*data class "
        r"|^\s*(?:private )?va[lr] \w+(?:: ?\w+|\s=)|^import [\w.]+$",
        rf"^({_I}(?:{_MODIFIERS} )*)(fun|class|interface|object|enum class|typealias) (?:<[^>]*> )?([\w.`]+)",
        least_share=0.06,
    ),
    _defined(
        "Swift",
        r"^\s*(?:(?:public|private|open|internal|static|override|fileprivate) )*func \w+(?:<[^>]*>)?\("
        r"|^import [A-Z]\w+$|\bguard let |\bif let |^\s*@(?:State|objc|Published)\b",
        rf"^({_I}(?:{_MODIFIERS} )*)(func|class|struct|enum|protocol|extension|actor) (\w+)",
        "public",
        "open",
        least_share=0.04,
    ),
    _defined(
        "TypeScript",
        r"^(?:export )?(?:declare )?(?:interface|type|enum|namespace) \w+(?:<[^>]*>)? ?[={]|^import type "
        r"|^import .* from ['\"]"
        r"|^\s*(?:private|public|protected|readonly) (?:readonly |static |async )*\w+[(:?]|\): (?:Promise<|void"
        r"|string|boolean|number)"
        r"|^\s*(?:export )?(?:const|let) \w+: |\bas (?:const|any|unknown|string)\b",
        rf"^({_I}(?:export )?(?:default )?(?:declare )?(?:abstract )?(?:async )?)"
        r"(?:(function\*?|class|interface|type|enum|namespace|const|let|var|describe\(|it\("
        r"|test\() ?['\"]?([\w$][\w$ .-]*)"
        r"|(?:(?:public|private|protected|static|async|get|set"
        r"|override) )*(\w+)(?:<[^>]*>)?\([^;]*\)(?:: [^;=]+)? \{$)",
        "export",
        least_share=0.03,
    ),
    _defined(
        "JavaScript",
        r"^\s*(?:export )?(?:default )?(?:async )?function\*? ?\w*\(|\brequire\(['\"]|^import .* from ['\"]"
        r"|^\s*(?:const|let|var) [\w{\[][^=]* = "
        r"|^module\.exports|^exports\.\w+ ?=|=> [{(]|^\s*\}\)[;,]?$|^['\"]use strict",
        rf"^({_I}(?:export )?(?:default )?(?:async )?)"
        r"(?:(function\*?|class|const|let|var|exports\.|module\.exports|describe\(|it\(|test\() ?['\"]?([\w$][\w$ .-]*)"
        r"|(?:(?:static|async|get|set) )*(\w+)\([^;]*\) \{$)",
        "export",
        least_share=0.04,
    ),
    _defined(
        "C++",
        r"^\s*(?:using )?namespace [\w:]+|^template ?<|\bstd::|^#include <(?:iostream|string|vector|map|memory"
        r"|algorithm|utility|functional)>"
        r"|^\s*(?:public|private|protected):|^\s*class \w+[^;]*\{?$|\bnullptr\b|\bstatic_cast<",
        rf"^(|{_I}(?:class|struct|namespace|enum)[ \t])?(?:(?:typedef )?(class|struct|enum(?: class)?|union"
        rf"|namespace)? ?([A-Z]\w+)(?: final)?(?: ?:[^:;].*)?(?: ?\{{)?$"
        r"|(?:[A-Za-z_][\w:<>,*& \t]*[ \t*&])?([A-Za-z_][\w:~]+) ?\((?:[^;.]*[){,][ \t]*(?:const)?)$)",
        least_share=0.03,
    ),
    _defined(
        "C",
        r"^#(?:include [<\"]|define \w+|ifn?def \w+|endif|if defined)|^(?:static |extern |inline |const "
        r"|unsigned )*(?:void|int|char|bool|size_t|struct \w+|u?int\d+_t) \*?\w+\("
        r"|^typedef |^\s*struct \w+ \{?$|->\w+|^\s*(?:int|char|void|size_t|u?int\d+_t) \*?\w+(?: =.*)?;",
        r"^()(?:(?:typedef )?(struct|enum|union) (\w+) ?\{?$|#(define) (\w+)\("
        r"|(?:[A-Za-z_][\w* \t]*[ \t*])?([A-Za-z_]\w+) ?\([^;.]*[){,][ \t]*$)",
        least_share=0.05,
    ),
    _defined(
        "Python",
        r"^\s*(?:async )?def \w+\(|^\s*class \w+(?:\(.*\))?:|^(?:from [\w.]+ import "
        r"|import [\w.]+(?: as \w+)?(?:, \w+)*$)|^\s*(?:elif .*|except\b.*|else|try|finally):$"
        r"|^\s*(?:if|for|with|while) .*:$|\bself\.\w+|^if __name__ ==|^\s*@\w+[\w.]*(?:\(.*\))?$|^\s*\"\"\"",
        rf"^({_I}(?:async )?)(def|class) (\w+)",
        least_share=0.06,
    ),
    _defined(
        "Ruby",
        r"^\s*def (?:self\.)?\w+[?!=]?|^\s*end$|^require(?:_relative)? ['\"]|^\s*(?:attr_\w+|include|extend) [:A-Z]"
        r"|\bdo (?:\|.*\|)?$|^\s*module [A-Z]\w*$|^\s*class [A-Z]\w*(?: < [A-Z][\w:]*)?$",
        rf"^({_I})(def|class|module|describe|context) ['\"]?([\w.:?!=]+)",
        least_share=0.08,
    ),
    _defined(
        "shell",
        r"^#!.*\b(?:ba|z|k|da)?sh\b|^\s*(?:fi|done|esac|then|do)$|^\s*(?:if|while|elif) (?:\[|!|\w).*; ?(?:then"
        r"|do)$|^\s*(?:local|export|readonly|declare) \w+="
        r"|^\s*echo |\$\{?\w+\}?|^set -[eux]|^\s*[A-Z_]+=\S*$",
        rf"^({_I})(function )?([\w:.-]+) ?\(\) ?\{{?",
        least_share=0.15,
    ),
    _defined(
        "SQL",
        r"(?i)^\s*(?:create (?:or replace )?(?:temp(?:orary)? |unique |materialized )*(?:table|view|index|function"
        r"|procedure|trigger|type|schema|database|extension|sequence)"
        r"|insert into|alter table|drop (?:table|view|index)|select\b|from \w+|where\b|primary key|foreign key"
        r"|update \w+ set|delete from)\b",
        r"(?i)^([ \t]*(?:create|alter|drop) (?:or replace )?(?:temp(?:orary)? |unique |materialized )*)"
        r"(table|view|index|function|procedure|trigger|type|schema|database"
        r"|sequence) (?:concurrently )?(?:if (?:not )?exists )?(?:only )?([\w.\"`\[\]]+)",
        "create",
        "CREATE",
        least_share=0.06,
    ),
    _defined(
        "CSS",
        r"^\s*[-\w]+: ?[^;{}]+;$|^[.#@&:\w*][^;={}()]*\{$",
        r"^()([.#@]?)([\w*:][^{};=]*?) ?\{$",
        least_share=0.6,
    ),
)

_LINE_CHARS = 300
_MAX_DEFINITIONS = 2_000
_MOST_ROWS = 4
_MOST_FINDINGS = 12
_MOST_ITEMS = 200
_LABEL_CHARS = 60

# The label takes a part of the row.
_ROW_CHARS = ROW_CHARS - 16
_LEAST_MARKS = 3
_LEAST_LINES = 5

# A line of a program in any language, not of a log or of prose.
_CODE = re.compile(
    r"\s{0,80}[)}\]]|\s{0,80}(?://|/\*|\*|#|--|<!--|\"\"\"|@)|\s{2,80}\S|\t"
    r"|\s{0,80}\w{1,40} [:+]?= "
    r"|(?:import|from|use|using|package|const|let|var|func|def|class|type|end|return|echo|fi|done|export)\b"
)
# A sign at the end, a comparison or a call. A pattern that begins with a set is searched six times as fast.
_SIGN = re.compile(r"[{};,(\[:\\=!](?:(?<![=!])\s{0,4}$|(?<=[=!])=|(?<=\w\())")
_LEAST_CODE = 0.6
_MINIFIED_CHARS = 500

_JSON = frozenset({"{", "[", "[{", "{}", "[]"})
_LOCAL = frozenset({"if", "for", "while", "switch", "catch", "return", "function", "else", "do", "with", "match"})
_VALUES = frozenset({"const", "let", "var", "static", "define"})
# Most definitions are of these kinds, so the outline omits the word.
_UNSAID = frozenset({"def", "function", "const", "let", "var", "fn", "func", "exports"})
_DECLARATORS = ("describe(", "it(", "test(")


SOURCE_CODE = "Source code"
"""Begins the first fact about a program."""


def outline_digest(lines: Sequence[str]) -> Digest | None:
    """Summarize a source text: its language and its definitions.

    Returns:
        The language, the number of lines, and an outline with the numbers of *lines*, which may begin with numbers of
        their own. None if the text is not source text.
    """
    texts, note = without_line_numbers(lines) or (lines, "")
    outline = _heading_outline(texts) or _program(texts)
    if outline is None:
        return None
    name, definitions = outline
    about = f"{name[:-1]}, " if name.endswith(")") else f"{name} ("  # "Source code (Go, 12 lines)", "YAML (12 lines)"
    facts = [fact(f"{about}{counted(len(lines), 'line')}{f'; {note}' if note else ''})")]
    least = min((definition.rank for definition in definitions), default=0)
    top = [definition for definition in definitions if definition.rank <= least + 1]
    nested = [definition for definition in definitions if definition.rank > least + 1]
    facts += rows("Outline", _items(top, len(lines), _MOST_ROWS), most=_MOST_ROWS)
    most = 1 if len(top) > _MOST_FINDINGS else 2
    facts += rows("Within", _items(nested, len(lines), most), most=most)
    if name == "Markdown":
        prose = _prose(texts, definitions)
        facts = [*facts[:2], *prose[:1], *facts[2:3], *prose[1:], *facts[3:]]
    findings = [Finding(found.number, 50.0) for found in _chosen(definitions, len(lines))[:_MOST_FINDINGS]]
    return Digest(tuple(facts), tuple(findings), is_free=True)


def defined_names(lines: Sequence[str], most: int) -> list[str]:
    """Return the most important headings or definitions of a source text in its order; empty for any other text."""
    _, definitions = _heading_outline(lines) or _program(lines) or ("", [])
    chosen = sorted(_chosen(definitions, len(lines))[:most])
    return list(dict.fromkeys(definition.label[:_LABEL_CHARS] for definition in chosen))


def _prose(texts: Sequence[str], headings: Sequence[Definition]) -> list[str]:
    """Return the first paragraph of a document, and the lines that say how it ends, as facts."""
    first = next((number for number, line in enumerate(texts, 1) if _PARAGRAPH.match(line)), 0)
    verdicts = {found.number for found in matches(_VERDICT_LINE, encoded_lines(texts, _PROSE_CHARS), _MOST_VERDICTS)}
    for heading in headings:
        if _VERDICT.search(heading.label):
            below = range(heading.number + 1, heading.number + 4)
            verdicts.update([number for number in below if texts[number - 1 : number] != [""]][:1])
    numbers = [*([first] if first else []), *sorted(verdicts - {first})[:_MOST_VERDICTS]]
    return [
        fact(f"Text :{number}: {texts[number - 1].strip()[:_PROSE_CHARS]}")
        for number in numbers
        if number <= len(texts)
    ]


def _program(texts: Sequence[str]) -> tuple[str, list[Definition]] | None:
    """Return the language of a program, such as ``"Source code (Go)"``, and its definitions; None for other texts."""
    head = [line for line in texts[:200] if line]
    long_count = sum(len(line) > _MINIFIED_CHARS or line.startswith(CONTINUED) for line in head)
    language = _language(sampled(texts)) if not head or 2 * long_count <= len(head) else None
    if language is None:
        return None
    hits = matches(language.outline, encoded_lines(texts, _LINE_CHARS), _MAX_DEFINITIONS)
    found = (_definition(language, hit.number, hit.groups) for hit in hits)
    return f"{SOURCE_CODE} ({language.name})", [definition for definition in found if definition is not None]


def _language(sample: Sequence[str]) -> Language | None:
    # A JSON document has lines that look like code, but no definitions.
    if not sample or sample[0].strip() in _JSON:
        return None
    if len(sample) < _LEAST_LINES and not any(len(line) > _LINE_CHARS for line in sample):
        return None
    if not are_mostly(lambda line: _CODE.match(line) or _SIGN.search(line), sample, _LEAST_CODE):
        return None
    text = encoded_lines(sample, _LINE_CHARS)
    marks = [(match_count(language.marks, text), language) for language in LANGUAGES]
    enough = [
        (count / language.least_share**0.5, language)
        for count, language in marks
        if count >= _LEAST_MARKS and count >= language.least_share * len(sample)
    ]
    return max(enough, key=lambda pair: pair[0])[1] if enough else None


def _definition(language: Language, number: int, groups: Sequence[str]) -> Definition | None:
    before, words = groups[0], [group for group in groups[1:] if group]
    if not words or words[-1] in _LOCAL:
        return None
    indented = before.expandtabs(4)
    depth = len(indented) - len(indented.lstrip())
    word = words[0] if len(words) > 1 else ""
    is_visible = (
        not language.visible or any(mark in before.split() for mark in language.visible) or words[0] in _DECLARATORS
    )
    is_value = word in _VALUES
    if is_value and depth:
        return None
    rank = 2 * min(depth // 2, 4) + (not is_visible) + 2 * is_value
    kind, name = word.strip(" (.!"), words[-1].strip()
    return Definition(number, f"{kind} {name}" if kind and kind not in _UNSAID else name, rank)


def _chosen(definitions: Sequence[Definition], total: int) -> list[Definition]:
    """Sort top-level definitions first, then by length."""
    ends = [*(after.number for after in definitions[1:]), total + 1][: len(definitions)]
    pairs = zip(definitions, ends, strict=True)
    return [found for found, _ in sorted(pairs, key=lambda pair: (pair[0].rank, pair[0].number - pair[1]))]


def _items(definitions: Sequence[Definition], total: int, most: int) -> list[str]:
    """Return all definitions in order, or if they do not fit, the most important, each row in order."""
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
