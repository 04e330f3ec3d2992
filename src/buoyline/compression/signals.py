"""What a text gives away without being understood: sentences, errors, outcomes.

Words decide nothing alone, since they are those of one language: they stand beside the forms that programs
write in every language (``ValueError:``, ``exit code 1``), and there are several languages of them.
"""

import re
from collections.abc import Iterator

MAX_LINE_CHARS = 1_000
"""So much of a line is looked at; what says something about a result stands at the start of its lines."""

MAX_LINES = 400
"""So many lines of a result are looked at from its start, and as many from its end."""

MAX_TEXT_CHARS = 400_000
"""So much of one text is searched for exact strings."""

_UNREADABLE = re.compile(
    "\x1b\\[[0-9;?]{0,20}[A-Za-z]"  # colours of a terminal
    "|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
_BLANKS = re.compile(r"\s+")

# After a full stop a sentence goes on if the next word begins small: "e.g. this".
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?![a-z])|(?<=[\u3002\uff01\uff1f])")
LIST_MARK = re.compile(r"\s{0,40}(?:[-*+\u2022]|\d{1,3}[.)]|#{1,6}|>)\s+")
"""How a line begins that is an entry of a list, a heading or a quotation."""
_TAG = re.compile(r"\s{0,80}</?[A-Za-z][^<>]{0,200}>\s*")
FENCES = ("```", "~~~")
"""How a line begins that opens or closes code in Markdown."""

# Three ways to tell an error from a text that speaks of one: the word begins the line (behind a place, a time or
# a tag), or a colon follows it, or it is a phrase that nobody uses for anything else.
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

    A blank, not nothing: two names that were apart stay apart.
    """
    return _BLANKS.sub(" ", _UNREADABLE.sub(" ", text)).strip()


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text in Markdown, each on one line, without marks of lists and headings.

    A line ends a sentence. Code in fences is left out: it was written to a file, or can be read again there; so are
    lines that are a tag.
    """
    is_code = False
    for line in text.splitlines():
        if line.lstrip().startswith(FENCES):
            is_code = not is_code
        elif not is_code and not _TAG.fullmatch(line):
            yield from _sentences_of_line(line)


def _sentences_of_line(line: str) -> Iterator[str]:
    mark = LIST_MARK.match(line)
    for sentence in _SENTENCE_END.split(line[mark.end() :] if mark else line):
        shown = readable(sentence)
        if any(char.isalnum() for char in shown):
            yield shown


def says_error(text: str) -> bool:
    """Tell whether a line reads like an error message, in one of several languages."""
    return bool(_ERROR.search(text)) and not _NO_ERROR.search(text)


def error_lines(text: str) -> Iterator[str]:
    """Yield the lines of a tool's output that read like error messages and not like source code."""
    for line in outer_lines(text):
        if says_error(line) and not _CODE.search(line) and _TWO_WORDS.search(shown := readable(line)):
            yield shown


def exit_status(text: str) -> int | None:
    """Return the exit status that a command's output names in its first or last lines; None if it names none."""
    lines = text[:MAX_LINE_CHARS].splitlines()[:3] + text[-MAX_LINE_CHARS:].splitlines()[-3:]
    for line in lines:
        if (found := _EXIT.search(line)) is not None and len(line) < 100:  # noqa: PLR2004 - else it is prose
            return int(found[1])
    return None


def last_line(text: str) -> str:
    """Return the last line of *text* that says something; empty if there is none."""
    for line in reversed(text[-20 * MAX_LINE_CHARS :].splitlines()):
        shown = readable(line[:MAX_LINE_CHARS])
        if any(char.isalnum() for char in shown):
            return shown
    return ""


def outer_lines(text: str) -> Iterator[str]:
    """Yield the first and the last lines of *text*, each cut to `MAX_LINE_CHARS`; all of a short text."""
    lines = text.splitlines()
    chosen = lines if len(lines) <= 2 * MAX_LINES else lines[:MAX_LINES] + lines[-MAX_LINES:]
    return (line[:MAX_LINE_CHARS] for line in chosen)


def outer_text(text: str) -> str:
    """Return *text*, or the start and the end of one that is longer than any result that was not offloaded."""
    return text if len(text) <= MAX_TEXT_CHARS else f"{text[: MAX_TEXT_CHARS // 2]}\n{text[-MAX_TEXT_CHARS // 2 :]}"
