"""Citations of lines, and texts as summaries read them: exact strings, sentences, exit status.

Each pattern takes linear time on any input.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Final, Literal, NamedTuple, TypeAlias

POINTER: Final = re.compile(r"\[([^\[\]\s:]{1,200}):(\d{1,9})(?:-(\d{1,9}))?((?:,\d{1,9}(?:-\d{1,9})?){0,99})\]")
"""Pointers to one file in a text: ``[transcript.md:12-15,31]``; give a match to `Pointer.all_of`."""


@dataclass(frozen=True, slots=True, order=True)
class Pointer:
    """Lines that a sentence cites.

    Attributes:
        path: File relative to the session's directory: ``transcript.md`` or the file of an offloaded tool result.
        start: First line, 1-based.
        end: Last line, inclusive.
    """

    path: str
    start: int
    end: int

    @classmethod
    def of(cls, match: "re.Match[str]") -> "Pointer":
        """Return the first pointer of a match of `POINTER`."""
        return cls(match[1], int(match[2]), int(match[3] or match[2]))

    @classmethod
    def all_of(cls, match: "re.Match[str]") -> "tuple[Pointer, ...]":
        """Return all pointers of a match of `POINTER`, in its order."""
        spans = (span.partition("-") for span in match[4].split(",")[1:])
        return (cls.of(match), *(cls(match[1], int(start), int(end or start)) for start, _, end in spans))

    def __str__(self) -> str:
        """Return ``path:start-end``, or ``path:start`` for a single line."""
        return f"{self.path}:{self.lines}"

    @property
    def lines(self) -> str:
        """Its lines without the file: ``start-end``, or ``start`` for a single one."""
        return f"{self.start}" + ("" if self.start == self.end else f"-{self.end}")


def pointers_in(text: str) -> Iterator[Pointer]:
    """Yield all pointers in *text*, in order."""
    for match in POINTER.finditer(text):
        yield from Pointer.all_of(match)


def citation_marks(pointers: Iterable[Pointer]) -> list[str]:
    """Return pointers as they are written in a text; neighbours that name one file share a mark.

    The name of a file takes more tokens than its lines, that of a tool result six times as many.

    >>> citation_marks([Pointer("transcript.md", 12, 15), Pointer("transcript.md", 31, 31), Pointer("a.txt", 1, 2)])
    ['[transcript.md:12-15,31]', '[a.txt:1-2]']
    """
    files = groupby(pointers, key=attrgetter("path"))
    return [f"[{path}:{','.join(pointer.lines for pointer in group)}]" for path, group in files]


Kind: TypeAlias = Literal["path", "url", "identifier", "hash", "version", "number"]

CUT: Final = "…"
"""Marks a cut in a quotation; a string that touches it may be incomplete."""

WORD: Final = r"A-Za-z0-9_\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u0370-\u052f"
r"""Characters of identifiers, for a character class, in the scripts that separate words by blanks.

Chinese and Japanese do not: ``使用pandas_x库`` holds the identifier ``pandas_x``, which ``\\w`` would not see.
"""

_MOST_CHARS = 300  # a longer run is base64 or minified code, which nobody writes again

# The first alternative skips escapes of JSON: in ``a\nfoo_bar`` with a literal backslash, the identifier is not
# ``nfoo_bar``.
_RUN = re.compile(
    r"\\[bfnrt]"
    r"|https?://[^\s<>\"'`|\\^{}\[\]()\u2018-\u2026\u3000-\u303f\uff00-\uffef]+"
    rf"|(?<![{WORD}.,])[0-9]{{1,3}}(?:,[0-9]{{3}})+(?:\.[0-9]+)?(?![{WORD}])"
    rf"|[{WORD}./@+~-]+"
)
_HASH = re.compile(
    r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}|(?=[a-z]*[0-9])[0-9a-f]{7,128}|(?=[A-Z]*[0-9])[0-9A-F]{7,128}"
)
_TWO_DOTS = re.compile(r"[0-9]+\.[0-9]+\.[0-9.]*[0-9]")
_MEASURE = re.compile(r"[0-9][0-9.,-]*(?:[A-Za-z]{1,3}|T[0-9]{2})?")
_VERSION = re.compile(r"[vV]?[0-9]+(?:\.[0-9]+){1,4}(?:[-+.]?[A-Za-z][A-Za-z0-9.-]{0,40})?")
_FILE_NAME = re.compile(rf"(?=[^\W\d_])[{WORD}.@+-]+\.[A-Za-z][A-Za-z0-9]{{0,4}}")
# A letter, and a digit, an underscore or a dot between others, or an inner capital.
_NAME = re.compile(r"(?=.*[^\W\d_])(?=.*(?:[0-9]|[^_]_[^_]|\w\.\w|[a-z][A-Z]|[A-Z]{2}[a-z])).*")
_LETTER = re.compile(r"[^\W\d_]")
_NO_PROSE = re.compile(r"[0-9_.@~-]")


class Mention(NamedTuple):
    """An exact string, without punctuation of the sentence around it, and the position of its first character."""

    kind: Kind
    text: str
    start: int


def mentions(text: str) -> Iterator[Mention]:
    """Yield every exact string in *text*, in order, at its full length.

    A dotted name is one mention (``store.ReadCommitted``), and so is a path (``cmd/explain.go``, without a line number
    after it).
    """
    for match in _RUN.finditer(text):
        run = match[0]
        if len(run) > _MOST_CHARS or run[0] == "\\":
            continue
        if run.isalpha() and (run.islower() or run[1:].islower()):  # nearly all are words of prose
            continue
        if run.startswith("http"):
            kind, found = ("url" if "://" in run else _kind_of(run)), run.rstrip(".,;:!?*_~/@+-")
        else:
            found = run.rstrip("./@+~-").lstrip("@+-")
            found = found.lstrip(".") if found.startswith("..") and not found.startswith("../") else found
            kind = _kind_of(found)
        if kind is not None:
            yield Mention(kind, found, match.start() + run.index(found))


def _kind_of(text: str) -> Kind | None:
    """Return the kind of a string; None for a word of prose."""
    if "/" in text:
        return "path" if _is_path(text) else None
    kinds: tuple[tuple[Kind, re.Pattern[str]], ...] = (
        ("version", _TWO_DOTS),
        ("number", _MEASURE),
        ("hash", _HASH),
        ("version", _VERSION),
        ("path", _FILE_NAME),
        ("identifier", _NAME),
    )
    return next((kind for kind, form in kinds if form.fullmatch(text)), None)


def _is_path(text: str) -> bool:
    if not _LETTER.search(text) or text.startswith("//"):
        return False
    if text.startswith("/"):  # one name alone is a tag or a route: </stat>, {/owner}
        return "/" in text[1:] or "." in text
    return text.startswith(("./", "../", "~/")) or text.count("/") > 1 or bool(_NO_PROSE.search(text))


_UNREADABLE = re.compile(
    "(?:\\\\x1b|\x1b)\\[[0-9;?]{0,20}[A-Za-z]"  # colours of a terminal, also as previews and views show them
    "|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
_BLANKS = re.compile(r"\s+")
# After a full stop a sentence goes on if the next word begins small: "e.g. this".
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?![a-z])|(?<=[\u3002\uff01\uff1f])")
_LIST_MARK = re.compile(r"\s{0,40}(?:[-*+\u2022]|\d{1,3}[.)]|#{1,6}|>)\s+")
_TAG = re.compile(r"\s{0,80}</?[A-Za-z][^<>]{0,200}>\s*")
_EXIT = re.compile(
    r"\b(?:exit(?:ed with)?|(?:exit|return)(?:ed)?[ _-]?(?:code|status))\W{0,4}(?:code |status )?(\d{1,3})\b",
    re.IGNORECASE,
)
_MOST_EXIT_CHARS = 100  # a longer line is prose


_WIDE = re.compile(r"[\u3040-\u9fff\uac00-\ud7af]")


def width(text: str) -> int:
    """Return how much a text says: its characters, of which one in Chinese, Japanese or Korean counts as three."""
    return len(text) + 2 * len(_WIDE.findall(text))


def readable(text: str) -> str:
    """Return *text* on one line: control characters and colours become blanks, runs of blanks become one.

    They become a blank and not nothing, so that two separate names stay separate.
    """
    return _BLANKS.sub(" ", _UNREADABLE.sub(" ", text)).strip()


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a Markdown text, each on one line, without marks of lists and headings.

    A line end ends a sentence. Code in fences is left out, since it was written to a file or can be read again there;
    so are lines that consist of a tag, and rows of tables that only draw lines.
    """
    is_code = False
    for line in text.splitlines():
        if line.lstrip().startswith(("```", "~~~")):
            is_code = not is_code
        elif not is_code and not _TAG.fullmatch(line):
            mark = _LIST_MARK.match(line)
            shown = map(readable, _SENTENCE_END.split(line[mark.end() :] if mark else line))
            yield from (sentence for sentence in shown if any(map(str.isalnum, sentence)))


def exit_status(text: str) -> int | None:
    """Return the exit status in the first or last lines of a command's output; None if there is none."""
    for line in (*text[:1_000].splitlines()[:3], *text[-1_000:].splitlines()[-3:]):
        found = _EXIT.search(line)
        if found is not None and len(line) < _MOST_EXIT_CHARS:
            return int(found[1])
    return None
