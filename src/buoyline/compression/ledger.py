"""Find the exact strings in a text: paths, URLs, identifiers, hashes, versions, numbers.

These are what a compacted agent misses most, since a paraphrase of them is worthless. Every pattern here takes
linear time on any input: a text is cut into runs of characters by one expression without alternatives to go
back to, and each run is then judged on its own.
"""

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple, TypeAlias

Kind: TypeAlias = Literal["path", "url", "identifier", "hash", "version", "number"]

MAX_CHARS = 300
"""A longer run is base64 or minified code, and nothing that anybody writes again."""

WORD = r"A-Za-z0-9_\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u0370-\u052f"
"""Inside of a character class: what identifiers consist of, in the scripts that set blanks between words.

Chinese and Japanese do not: ``使用pandas_x库`` holds the identifier ``pandas_x``, which ``\\w`` would not see.
"""

# The first alternative takes the escapes of JSON inside of text out of the way: in ``a\nfoo_bar`` with a
# literal backslash, the identifier is not ``nfoo_bar``.
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
    """An exact string where it stands in a text.

    Attributes:
        kind: What it looks like.
        text: The string, without punctuation of the sentence around it.
        start: Position of its first character.
    """

    kind: Kind
    text: str
    start: int


def mentions(text: str) -> Iterator[Mention]:
    """Yield every exact string in *text*, in order, as long as it is written.

    A dotted name is one mention (``store.ReadCommitted``), a path is one (``cmd/explain.go``, without the line
    number behind it).
    """
    for match in _RUN.finditer(text):
        found = classify(match[0])
        if found is not None:
            kind, string = found
            yield Mention(kind, string, match.start() + match[0].index(string))


def runs(text: str) -> set[str]:
    """Return the distinct runs of characters in *text* that `classify` may tell something about."""
    return {run for run in _RUN.findall(text) if 2 < len(run) <= MAX_CHARS}  # noqa: PLR2004 - too short to miss


def classify(run: str) -> tuple[Kind, str] | None:
    """Tell what a run of characters is.

    Args:
        run: Characters without blanks, as `runs` finds them.

    Returns:
        The kind and the string without punctuation around it; None for a plain word and for noise.
    """
    if len(run) > MAX_CHARS or run[0] == "\\":
        return None
    if run.startswith(("http://", "https://")):
        return "url", run.rstrip(".,;:!?*_~")
    text = _trimmed(run)
    if "/" in text and _is_path(text):
        return "path", text
    if "/" in text or "~" in text:
        return _first_part(text)
    kind = _kind_of_name(text)
    return None if kind is None else (kind, text)


def atoms(kind: Kind, text: str) -> tuple[tuple[Kind, str], ...]:
    """Break a dotted name into those of its parts that mean something alone.

    Counting ``store.ReadCommitted`` and ``ReadCommitted`` as one tells better how much a name is in use.

    Returns:
        The parts that are identifiers themselves, else the string as it is; never empty.
    """
    if kind != "identifier" or "." not in text:
        return ((kind, text),)
    parts = tuple(part for part in _PART.findall(text) if _is_identifier(part))
    return tuple((kind, part) for part in parts) or ((kind, text),)


def _trimmed(run: str) -> str:
    text = run.rstrip("./@+~-").lstrip("@+-")
    if text.startswith("..") and not text.startswith("../"):
        return text.lstrip(".")
    return text


def _is_path(text: str) -> bool:
    if not _LETTER.search(text) or text.startswith("//"):
        return False
    if text.startswith("/"):  # one name alone is a tag or a route: </stat>, {/owner}
        return "/" in text[1:] or "." in text
    return text.startswith(("./", "../", "~/")) or text.count("/") > 1 or bool(_NO_PROSE.search(text))


def _first_part(text: str) -> tuple[Kind, str] | None:
    """Of words side by side (``and/or``, ``HEAD~1``), return the first that is an identifier."""
    for part in _PART.findall(text):
        if _is_identifier(part):
            return "identifier", part
    return None


def _kind_of_name(text: str) -> Kind | None:
    if text.isascii() and (kind := _kind_of_code(text)) is not None:
        return kind
    if (file := _FILE_NAME.fullmatch(text)) is not None and file[1].lower() in _EXTENSIONS:
        return "path"
    return "identifier" if _is_identifier(text) or _is_dotted(text) else None


def _kind_of_code(text: str) -> Kind | None:
    """Judge what begins with a digit or may be written in hexadecimal."""
    if _MEASURE.fullmatch(text):
        return "version" if text.count(".") > 1 else "number"
    if _UUID.fullmatch(text) or (_HEX.fullmatch(text) and not text.isalpha()):
        return "hash"
    return "version" if _VERSION.fullmatch(text) else None


def _is_identifier(text: str) -> bool:
    """Tell whether *text* is no word of prose: it has a digit, an underscore or a capital inside."""
    if not _LETTER.search(text):
        return False
    return "_" in text.strip("_") or bool(_HUMP.search(text)) or any(char.isdigit() for char in text)


def _is_dotted(text: str) -> bool:
    parts = text.split(".")
    return len(parts) > 1 and all(len(part) > 1 and _LETTER.match(part) for part in parts)
