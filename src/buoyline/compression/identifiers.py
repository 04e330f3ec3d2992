"""Find the exact strings in a text: paths, URLs, identifiers, hashes, versions, numbers.

A compacted agent misses these most, since a paraphrase of them is worthless. Every pattern here takes linear time on
any input: one expression without backtracking cuts a text into runs of characters, and each run is judged on its own.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias

Kind: TypeAlias = Literal["path", "url", "identifier", "hash", "version", "number"]

MAX_CHARS = 300
"""A longer run is base64 or minified code, which nobody writes again."""

WORD = r"A-Za-z0-9_\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u0370-\u052f"
r"""Characters of identifiers, for a character class, in the scripts that separate words by blanks.

Chinese and Japanese do not: ``使用pandas_x库`` holds the identifier ``pandas_x``, which ``\\w`` would not see.
"""

# The first alternative skips escapes of JSON: in ``a\nfoo_bar`` with a literal backslash, the identifier is not
# ``nfoo_bar``.
_RUN = re.compile(
    r"\\[bfnrt]"
    r"|https?://[^\s<>\"'`|\\^{}\[\]()\u2018-\u2026\u3000-\u303f\uff00-\uffef]+"
    rf"|(?<![{WORD}.,])[0-9]{{1,3}}(?:,[0-9]{{3}})+(?:\.[0-9]+)?(?![{WORD}])"
    rf"|[{WORD}./@+~-]+"
)
_UUID = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
_HEX = re.compile(r"[0-9a-f]{7,128}|[0-9A-F]{7,128}")
_MEASURE = re.compile(r"[0-9][0-9.,-]*(?:[A-Za-z]{1,3}|T[0-9]{2})?")
_VERSION = re.compile(r"[vV]?[0-9]+(?:\.[0-9]+){1,4}(?:[-+.]?[A-Za-z][A-Za-z0-9.-]{0,40})?")
_FILE_NAME = re.compile(rf"[{WORD}.@+-]+\.([A-Za-z][A-Za-z0-9]{{0,9}})")
_HUMP = re.compile(r"[a-z0-9][A-Z]|[A-Z]{2}[a-z]")
_PART = re.compile(rf"[{WORD}]+")
_LETTER = re.compile(r"[^\W\d_]")
_NO_PROSE = re.compile(r"[0-9_.@~-]")

_EXTENSION_WORDS = (
    "bash bat bib bin bz2 c cc cfg conf cpp cs css csv db diff dll doc docx env exe fish gif go gradle gz "
    "h hpp htm html ico ini ipynb jar java jpeg jpg js json jsonl jsx key kt lock log lua md mdx mjs mod o "
    "parquet patch pdf pem php pl plist png pptx proto ps1 py pyc pyi r rb rs rst scala scss sh sql sqlite "
    "sum sv svelte svg swift tar tex tf toml ts tsv tsx txt vue wasm wav webp whl xls xlsx xml yaml yml "
    "zip zsh"
)
_EXTENSIONS = frozenset(_EXTENSION_WORDS.split())


class Mention(NamedTuple):
    """An exact string, without punctuation of the sentence around it, and the position of its first character."""

    kind: Kind
    text: str
    start: int


def mentions(text: str) -> Iterator[Mention]:
    """Yield every exact string in *text*, in order, at its full length.

    A dotted name is one mention (``store.ReadCommitted``), and so is a path (``cmd/explain.go``, without a line number
    behind it).
    """
    for match in _RUN.finditer(text):
        found = classify(match[0])
        if found is not None:
            kind, string = found
            yield Mention(kind, string, match.start() + match[0].index(string))


def classify(run: str) -> tuple[Kind, str] | None:
    """Return the kind of a run, as `runs` finds it, and the string without punctuation around it.

    None for a plain word and for noise.
    """
    return None if len(run) > MAX_CHARS or run[0] == "\\" else _classified(run)


@lru_cache(maxsize=2_048)  # each check of a summary judges the same runs: it saves 5 % of a compaction
def _classified(run: str) -> tuple[Kind, str] | None:
    if run.startswith(("http://", "https://")):
        return "url", run.rstrip(".,;:!?*_~")
    text = run.rstrip("./@+~-").lstrip("@+-")
    if text.startswith("..") and not text.startswith("../"):
        text = text.lstrip(".")
    if "/" in text and _is_path(text):
        return "path", text
    if "/" in text or "~" in text:  # joined words: and/or, HEAD~1
        part = next(filter(_is_identifier, _PART.findall(text)), None)
        return None if part is None else ("identifier", part)
    kind = _kind_of_name(text)
    return None if kind is None else (kind, text)


def _is_path(text: str) -> bool:
    if not _LETTER.search(text) or text.startswith("//"):
        return False
    if text.startswith("/"):  # one name alone is a tag or a route: </stat>, {/owner}
        return "/" in text[1:] or "." in text
    return text.startswith(("./", "../", "~/")) or text.count("/") > 1 or bool(_NO_PROSE.search(text))


def _kind_of_name(text: str) -> Kind | None:
    if text.isascii() and (kind := _kind_of_code(text)) is not None:
        return kind
    if (file := _FILE_NAME.fullmatch(text)) is not None and file[1].lower() in _EXTENSIONS:
        return "path"
    if _is_identifier(text):
        return "identifier"
    parts = text.split(".")
    is_dotted = len(parts) > 1 and all(len(part) > 1 and _LETTER.match(part) for part in parts)
    return "identifier" if is_dotted else None


def _kind_of_code(text: str) -> Kind | None:
    """Judge a string that begins with a digit or may be hexadecimal."""
    if _MEASURE.fullmatch(text):
        return "version" if text.count(".") > 1 else "number"
    if _UUID.fullmatch(text) or (_HEX.fullmatch(text) and not text.isalpha()):
        return "hash"
    return "version" if _VERSION.fullmatch(text) else None


def _is_identifier(text: str) -> bool:
    """Return whether *text* is no word of prose: it has a digit, an underscore or an inner capital."""
    if not _LETTER.search(text):
        return False
    return "_" in text.strip("_") or bool(_HUMP.search(text)) or any(char.isdigit() for char in text)


# Sentences, errors and outcomes in a text, recognized by their form.
#
# Words alone decide nothing, since they belong to one language: they supplement the forms that programs write in every
# language (``ValueError:``, ``exit code 1``), and come from several languages.


MAX_LINE_CHARS = 1_000
"""Of one line; the start of a line says what it is about."""

MAX_LINES = 400
"""From the start of a result, and as many from its end."""

MAX_TEXT_CHARS = 400_000
"""Of one text that is searched for exact strings."""

_UNREADABLE = re.compile(
    "(?:\\\\x1b|\x1b)\\[[0-9;?]{0,20}[A-Za-z]"  # colours of a terminal, also as previews and views show them
    "|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
_BLANKS = re.compile(r"\s+")

# After a full stop a sentence goes on if the next word begins small: "e.g. this".
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?![a-z])|(?<=[\u3002\uff01\uff1f])")
LIST_MARK = re.compile(r"\s{0,40}(?:[-*+\u2022]|\d{1,3}[.)]|#{1,6}|>)\s+")
"""Begins an entry of a list, a heading or a quotation."""
_TAG = re.compile(r"\s{0,80}</?[A-Za-z][^<>]{0,200}>\s*")
FENCES = ("```", "~~~")
"""Opens or closes code in Markdown."""

# Three signs tell an error from a text about one: the word begins the line (behind a place, a time or a tag), a colon
# follows it, or the phrase has no other use.
_ERROR = re.compile(
    r"(?:Error|Exception)\b(?=\s{0,3}:|\s{0,3}$)"
    r"|^[^\w]{0,20}(?:\[[^\]]{0,60}\]\s{0,5}|[^\s:]{1,200}:(?:\d{1,6}:){0,2}\s{1,5}|[\d:.,TZ-]{5,30}\s{1,5})?"
    r"(?:[Ee]rror|ERROR|FAIL|FAILED|[Ff]ailed|[Ff]ailure|[Ff]atal|FATAL|panic|Traceback|Fehler|[Ee]rreur)\b"
    r"|\b(?:[Ee]rror|ERROR|[Ff]ailed|[Ff]ailure|[Ff]atal|panic|Fehler|[Ee]rreur|\w{0,60}(?:Error|Exception))\s{0,2}[:\uff1a]"
    r"|\b[1-9]\d{0,8} (?:failed|errors?|failures?|problems?)\b"
    r"|\b(?:[Nn]o such file|[Pp]ermission denied|[Cc]ommand not found|[Nn]ot found$|[Tt]imed out|[Cc]onnection refused"
    r"|[Cc]annot |[Cc]ould not |[Uu]nable to |undefined: |[Ff]all\u00f3|fehlgeschlagen)"
    r"|\u9519\u8bef[:\uff1a]|\u5931\u8d25|\u5f02\u5e38[:\uff1a]|\u62a5\u9519|\u30a8\u30e9\u30fc|\uc624\ub958|\u043e\u0448\u0438\u0431\u043a\u0430:"
)
_ERROR_WORDS = (
    "rror", "ERROR", "xception", "ail", "FAIL", "atal", "FATAL", "panic", "raceback", "Fehler", "rreur", "problem",
    "o such file", "ermission denied", "ot found", "imed out", "onnection refused", "annot ", "ould not ",
    "nable to ", "undefined: ", "all\u00f3", "fehlgeschlagen", "\u9519\u8bef", "\u5931\u8d25",
    "\u5f02\u5e38", "\u62a5\u9519", "\u30a8\u30e9\u30fc", "\uc624\ub958", "\u043e\u0448\u0438\u0431\u043a\u0430",
)  # fmt: skip
"""Whatever `_ERROR` finds has one of these. To look for them takes a fortieth of the time."""

_NO_ERROR = re.compile(
    r"^\W{0,20}(?:RUN|PASS|PASSED|CONT|PAUSE|ok|OK)\b|\b(?:0|no|without|zero)\s{1,3}(?:\w{1,20}\s)?(?:errors?|failed|failures?|issues|conflicts?)\b",
    re.IGNORECASE,
)
_CODE = re.compile(
    r"^\s{0,80}(?:\d+\s{0,4}[\u2192|:\t-]|[+-]\s|//|/\*|\*\s|#\s)|(?:[{;,]|\\n)\s{0,8}$"
    r"|:=|!= nil|=>|^\s{0,80}(?:return|func|def|if|throw|raise)\b"
)
_TWO_WORDS = re.compile(r"\w\W+\w{2}|[\u3040-\u9fff\uac00-\ud7af]{4}")

_EXIT = re.compile(
    r"\b(?:exit|return)[ _-]?(?:code|status|ed with)?\W{0,4}(?:code |status )?(\d{1,3})\b", re.IGNORECASE
)


def readable(text: str) -> str:
    """Return *text* on one line: control characters and colours become blanks, runs of blanks become one.

    They become a blank and not nothing, so that two separate names stay separate.
    """
    return _BLANKS.sub(" ", _UNREADABLE.sub(" ", text)).strip()


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a Markdown text, each on one line, without marks of lists and headings.

    A line end ends a sentence. Code in fences is left out, since it was written to a file or can be read again there;
    so are lines that consist of a tag.
    """
    is_code = False
    for line in text.splitlines():
        if line.lstrip().startswith(FENCES):
            is_code = not is_code
        elif not is_code and not _TAG.fullmatch(line):
            mark = LIST_MARK.match(line)
            shown = map(readable, _SENTENCE_END.split(line[mark.end() :] if mark else line))
            yield from (sentence for sentence in shown if any(map(str.isalnum, sentence)))


def says_error(text: str) -> bool:
    """Return whether a line reads like an error message, in one of several languages."""
    return bool(_ERROR.search(text)) and not _NO_ERROR.search(text)


def error_lines(text: str) -> Iterator[str]:
    """Yield the lines of a tool's output that read like error messages and not like source code."""
    words = [word for word in _ERROR_WORDS if word in text]
    lines = text.splitlines() if words else []
    if len(lines) > 2 * MAX_LINES:
        lines = lines[:MAX_LINES] + lines[-MAX_LINES:]
    for whole in lines:
        line = whole[:MAX_LINE_CHARS]
        is_suspect = any(word in line for word in words)
        if is_suspect and says_error(line) and not _CODE.search(line) and _TWO_WORDS.search(shown := readable(line)):
            yield shown


def exit_status(text: str) -> int | None:
    """Return the exit status in the first or last lines of a command's output; None if there is none."""
    lines = text[:MAX_LINE_CHARS].splitlines()[:3] + text[-MAX_LINE_CHARS:].splitlines()[-3:]
    for line in lines:
        if (found := _EXIT.search(line)) is not None and len(line) < 100:  # noqa: PLR2004 - else it is prose
            return int(found[1])
    return None


def last_line(text: str) -> str:
    """Return the last line of *text* with a letter or digit; empty if there is none."""
    for line in reversed(text[-20 * MAX_LINE_CHARS :].splitlines()):
        shown = readable(line[:MAX_LINE_CHARS])
        if any(char.isalnum() for char in shown):
            return shown
    return ""


def outer_text(text: str) -> str:
    """Return *text*, or the start and the end of one that exceeds `MAX_TEXT_CHARS`."""
    return text if len(text) <= MAX_TEXT_CHARS else f"{text[: MAX_TEXT_CHARS // 2]}\n{text[-MAX_TEXT_CHARS // 2 :]}"
