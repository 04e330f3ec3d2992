"""Outlines of documents and programs, and diffs: their files and largest hunks.

Lines may carry numbers of their own, as `cat -n` and file readers of agents write them.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from buoyline.previews.source import Kind, Row, common_folder, counted, linear, listed, middle_cut, shortened

SOURCE_CODE = "Source code"
"""Begins the first fact about a program."""

_SAMPLE = 400
_SEEN_CHARS = 300
_LEAST_CODE, _LEAST_NUMBERED, _LEAST_PROSE = 0.6, 0.85, 0.05
_LEAST_LINES = 5
_MOST_HEADINGS, _MOST_DEFINITIONS = 60, 2_000
_NAME_CHARS = 60
_MOST_VERDICTS = 5

_NUMBER: Final = re.compile(r"\s{0,12}\d{1,7}(?:\u2192|\t| ?\| ?)")
_HEADING: Final = re.compile(r"(#{1,6}) {1,3}(\S.{0,200})")
_PARAGRAPH: Final = re.compile(r"[A-Za-z\u00c0-\uffff].{79}")
_PROSE: Final = re.compile(r"\s{0,8}[-*+] \S|\s{0,8}\d{1,3}[.)] \S|\||> |.{0,200}(?:\*\*|\]\(|`)|[A-Z].{120}")
_VERDICT: Final = re.compile(
    r"(?i)[#\W_]{0,8}(?:(?:final|overall) )?(?:verdict|conclusion|result|recommendation|status|decision|outcome|rating"
    r"|assessment|bottom line|summary|tl;?dr)\b[*_ ]{0,4}(?::\W{0,4}\w|$)"
)
_CODE: Final = re.compile(
    r"\s{0,80}[)}\]]|\s{0,80}(?://|/\*|\*|#|--|\"\"\"|@)|\s{2,80}\S|\t|.*[{};(\[:,\\]\s*$"
    r"|(?:import|from|use|using|package|const|let|var|func|def|class|type|return|export|end|fi|done)\b"
)
# The indentation, and a name after a keyword, or the name of a function in C and its kin.
_DEFINITION: Final = (
    r"^(\s*)(?:(?:export|default|public|private|protected|internal|static|final|abstract|async|override|pub(?:\(\w+\))?"
    r"|unsafe|extern|inline|data|sealed|partial|suspend|open|virtual|declare|readonly) )*"
    r"(?:(?:def|class|func|fun|fn|function\*?|interface|struct|enum|trait|impl|type|module|mod|namespace|object|protocol"
    r"|extension|macro_rules!|(?i:create (?:or replace )?(?:table|view|function|index))|describe\(|it\(|test\()"
    r" ?['\"(]?(?:\(\w* ?\*?\w+\) )?([\w$:.]+)|(?:const|let|var) (\w+) = (?:async )?(?:function|\()"
    r"|(?:[A-Za-z_][\w:<>,*&\[\]]*[ *&]+){1,4}(\w+)\([^;]*\)\s*(?:const)?\s*\{?$|(\w+)\([^;()]*\) ?\{$)"
)
_LOCAL: Final = re.compile(
    "if|for|while|switch|catch|return|function|else|with|match|yield|raise|throw|await|assert|new|in|not"
)


class _Definition(NamedTuple):
    number: int
    depth: int
    name: str


def read_outline(lines: Sequence[str]) -> Kind | None:
    """Return the outline of a document or a program; None for another text."""
    texts = _unnumbered(lines)
    if headings := _headings(texts):
        outline = listed("Outline", [f"{shortened(one.name, _NAME_CHARS)} :{one.number}" for one in headings], most=3)
        return Kind(
            [f"Document ({len(lines):,} lines)", *outline], [*_verdicts(texts), *_paragraphs(texts)], is_free=True
        )
    found = _definitions(texts)
    if not found:
        return None
    least = min((one.depth for one in found), default=0)
    top = [one for one in found if one.depth <= least + 1]
    inner = [one for one in found if one.depth > least + 1]
    facts = [
        f"{SOURCE_CODE} ({len(lines):,} lines)",
        *listed("Outline", [f"{one.name} :{one.number}" for one in top], most=4),
        *listed("Within", [f"{one.name} :{one.number}" for one in inner], most=2),
    ]
    return Kind(facts, [Row(one.number, 50.0) for one in top[:12]], is_free=True)


def defined_names(lines: Sequence[str], most: int) -> list[str]:
    """Return the first headings or definitions of a document or a program; empty for any other text."""
    texts = _unnumbered(lines)
    found = _headings(texts) or sorted(_definitions(texts), key=lambda one: one.depth)
    return list(dict.fromkeys(one.name[:_NAME_CHARS] for one in sorted(found[:most])))


def _unnumbered(lines: Sequence[str]) -> Sequence[str]:
    sample = [line for line in lines[:_SAMPLE] if line.strip()]
    if sum(_NUMBER.match(line) is not None for line in sample) < _LEAST_NUMBERED * len(sample):
        return lines
    return [_NUMBER.sub("", line, count=1) for line in lines]


def _headings(texts: Sequence[str]) -> list[_Definition]:
    """Return the headings of a document, of the highest levels if there are many; none of another text."""
    sample = [line for line in texts[:_SAMPLE] if line.strip()]
    found, is_code = list[_Definition](), False
    for number, line in enumerate(texts, 1):
        if line[:3] in {"```", "~~~"}:
            is_code = not is_code
        elif line[:1] == "#" and not is_code and (heading := _HEADING.match(line)):
            found.append(_Definition(number, len(heading[1]), line.strip()))
    prose = sum(_PROSE.match(line) is not None for line in sample)
    is_document = sum(one.depth > 1 for one in found) >= 2 and prose > _LEAST_PROSE * len(sample)  # noqa: PLR2004
    if not is_document or sample[0].startswith("#!"):
        return []
    return sorted(sorted(found, key=lambda one: one.depth)[:_MOST_HEADINGS])


def _verdicts(texts: Sequence[str]) -> list[Row]:
    """Return the lines that say how a document ends: of a heading such as "Conclusion", the line below it."""
    rows = list[Row]()
    for number, line in enumerate(texts, 1):
        if _VERDICT.match(line[:_SEEN_CHARS]):
            below = (at for at in range(number + 1, min(number + 4, len(texts) + 1)) if texts[at - 1].strip())
            rows.append(Row(next(below, number) if line.startswith("#") else number, 72.0))
    return rows[:_MOST_VERDICTS]


def _paragraphs(texts: Sequence[str]) -> list[Row]:
    """Return the paragraphs of a document in their order, the first one before all else."""
    found = [number for number, line in enumerate(texts, 1) if _PARAGRAPH.match(line)][:_MOST_HEADINGS]
    return [Row(number, 65.9 - rank / 50 if rank else 91.0) for rank, number in enumerate(found)]


def _is_program(texts: Sequence[str]) -> bool:
    sample = [line[:_SEEN_CHARS] for line in texts[:_SAMPLE] if line.strip()]
    if len(sample) < _LEAST_LINES or sample[0].strip() in {"{", "["}:
        return False
    return sum(_CODE.match(line) is not None for line in sample) >= _LEAST_CODE * len(sample)


def _definitions(texts: Sequence[str]) -> list[_Definition]:
    """Return the definitions of a program, at least two; none of another text."""
    if not _is_program(texts):
        return []
    content = "\n".join([line[:_SEEN_CHARS] for line in texts]).encode("utf-8", "surrogatepass")
    found, number, place = list[_Definition](), 1, 0
    for match in linear(_DEFINITION).finditer(content):
        number += content.count(b"\n", place, match.start())
        place = match.start()
        name = next(group for group in match.groups()[1:] if group).decode("utf-8", "replace")
        words = (name, *match[0].decode("utf-8", "replace").split(maxsplit=1)[:1])
        if not any(map(_LOCAL.fullmatch, words)):
            found.append(_Definition(number, len(match[1].expandtabs(4)), name.rstrip(":")))
        if len(found) >= _MOST_DEFINITIONS:
            break
    return found if len(found) > 1 else []


_CONFLICT: Final = re.compile(r"[-+ ]{0,2}(?:<{7}|>{7})(?: |$)")
_MOST_CONFLICTS, _MOST_HUNKS = 8, 16


@dataclass
class _Part:
    """A file of a diff or one of its hunks: its first line, and the lines that it adds and removes."""

    number: int
    name: str
    added: int = 0
    removed: int = 0
    hunks: "list[_Part]" = field(default_factory=list)

    @property
    def changed(self) -> int:
        return self.added + self.removed


def read_diff(lines: Sequence[str]) -> Kind | None:
    """Return the files of a diff by changed lines, its largest hunks and conflict markers; None for another text.

    A removed line ``-- x`` before an added line ``++ y`` is taken for the head of a file.
    """
    if not any(line.startswith(("@@ ", "diff --")) for line in lines):
        return None
    files, known = _files(lines)
    if not files or 2 * known < sum(map(bool, lines)):
        return None
    folder = common_folder([file.name for file in files])
    by_size = sorted(files, key=lambda file: -file.changed)
    hunks = sorted((hunk for file in files for hunk in file.hunks), key=lambda hunk: -hunk.changed)
    named = [
        f"{middle_cut(file.name.removeprefix(folder), 48)} +{file.added} -{file.removed} :{file.number}"
        for file in by_size
    ]
    by_file = listed("Files by changed lines", named)
    by_hunk = listed("Largest hunks", [f"{shortened(hunk.name, 24)} {hunk.changed} :{hunk.number}" for hunk in hunks])
    added, removed = sum(file.added for file in files), sum(file.removed for file in files)
    total = f"Diff: {counted(len(files), 'file')}{f' in {folder}' if folder else ''}, +{added:,} -{removed:,}"
    rows = [Row(hunk.number, 60.5 - rank / 40) for rank, hunk in enumerate(hunks[:_MOST_HUNKS])]
    conflicts = [number for number, line in enumerate(lines, 1) if _CONFLICT.match(line)]
    rows += [Row(number, 90.0, note="conflict marker") for number in conflicts[:_MOST_CONFLICTS]]
    quoted = frozenset(number for number, line in enumerate(lines, 1) if line[:1] in {"+", "-", " "})
    facts = [total, *by_file[:2], *by_hunk[:2], *by_file[2:], *by_hunk[2:]]
    return Kind(facts, rows, quoted=quoted, is_free=True)


def _files(lines: Sequence[str]) -> tuple[list[_Part], int]:
    """Return the files of a diff, and the number of lines that belong to it."""
    files, known, is_inside = list[_Part](), 0, False
    for number, line in enumerate(lines, 1):
        is_pair = line.startswith("--- ") and lines[number : number + 1] and lines[number].startswith("+++ ")
        if line.startswith("diff ") or (is_pair and (not files or files[-1].hunks)):
            files.append(_Part(number, line.split()[-1].removeprefix("b/")))
            is_inside = False
        elif line.startswith("@@") and files:
            files[-1].hunks.append(_Part(number, line.rpartition("@@")[2].strip() or "@@"))
            is_inside = True
        elif is_inside and line[:1] in {"+", "-", " "}:
            for part in (files[-1], files[-1].hunks[-1]):
                part.added += line[:1] == "+"
                part.removed += line[:1] == "-"
        elif not is_inside and line.startswith("+++ ") and files:
            if not line.startswith("+++ /dev/null"):
                files[-1].name = line[4:].partition("\t")[0].strip().removeprefix("b/")
        elif is_inside or not (files or line.startswith("commit ")):
            continue
        known += bool(line)
    return files, known
