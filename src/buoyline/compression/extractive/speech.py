"""Texts of messages, recognized by their form: prose that a call writes, the user's own words, how a message ends."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from buoyline.compression.citations import CUT
from buoyline.compression.extractive.calls import ParsedCall, json_in, json_texts, letters_of
from buoyline.compression.extractive.phrases import asks, chars_of, forbids, is_logged, leads_in
from buoyline.compression.identifiers import FENCES, LIST_MARK, readable, sentences

MAX_TYPED_CHARS: Final = 2_000
"""Longer messages of users are pasted: logs, files, instructions of a tool."""

MAX_QUOTED_CHARS: Final = 20_000
"""Of a command that is searched for quoted texts."""

MIN_SENTENCE_CHARS: Final = 25
"""A shorter sentence of an agent means nothing alone."""

CLOSING_SENTENCES: Final = 3
"""At the end of a message: they say what comes next."""

CLOSING_LINES: Final = 6
"""A longer list at the end of a message is content and not a question."""

LAST_SENTENCES: Final = 3
"""Of a message before its calls: they say what the calls are for."""

_ORDER_KEYS: Final = frozenset(
    {"prompt", "instructions", "instruction", "description", "task", "query", "question", "goal"}
)
_QUOTED_TEXT = re.compile(
    r"<<-?[ \t]{0,4}['\"]?(\w{1,40})['\"]?[^\n]{0,200}\n(.{40,8000}?)\n[ \t]{0,40}\1\b"
    r"|(?<=[\s=])\"((?:[^\"\\]|\\.){40,4000})\"|(?<=[\s=])'([^']{40,4000})'",
    re.DOTALL,
)
_WORDS = re.compile(r"\w \w+ \w|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{4}")
_SENTENCE_ENDS = re.compile(r"[.!?:](?:\s|$)|\n|[\u3002\uff01\uff1f\uff0c]")
_WRAPPED = re.compile(r"(?<=[\w,;])\n[ \t]{0,8}(?=[a-z(])")
_TRAILER = re.compile(r"^[A-Z]\w+(?:-\w+)+: [^\n]*$", re.MULTILINE)
"""Of the message of a commit: who signed it."""

_CODE_MARK = re.compile(r"[{};=<>|$\\_/]")
MIN_WRITTEN_CHARS: Final = 40
MAX_CODE_MARKS: Final = 0.03
"""Of the characters of a text that is prose."""

_DOCUMENT = re.compile(
    r"[ \t]*<(documents?|doc|file|e-?mail|mail|message|quote|blockquote|article|attachment|transcript|log)\b"
    r"[^<>\n]{0,200}>",
    re.IGNORECASE,
)
_FORWARDED = re.compile(
    r"^[ \t]*-{2,}[ \t]?(?:original|forwarded|urspr\u00fcngliche|weitergeleitete|\u539f\u59cb|\u8f6c\u53d1)"
    r"[^\n]{0,60}-{2,}[ \t]*$"
    r"|^[ \t]*(?:from|von|de|\u53d1\u4ef6\u4eba|\u5dee\u51fa\u4eba) ?[:\uff1a] [^\n]{1,200}\n[ \t]*(?:sent|date|to"
    r"|cc|subject|gesendet|datum|an|betreff|envoy\u00e9|objet|fecha|asunto|\u65e5\u671f|\u6536\u4ef6\u4eba|\u4e3b\u9898"
    r"|\u5b9b\u5148|\u4ef6\u540d) ?[:\uff1a]",
    re.IGNORECASE | re.MULTILINE,
)
"""The line over a mail that was forwarded, or the header of one."""

_TAG = re.compile(r"</?[A-Za-z][^<>]{0,200}>")
MIN_TASK_WORDS: Final = 3
_LINE_TAG = re.compile(r"\s*</?[A-Za-z][^<>]{0,200}>\s*")
_LINK = re.compile(r"\W{0,4}!?\[[^\[\]]{0,300}\]\([^()\s]{1,2000}\)\W{0,4}")
_MADE_BY_MACHINE = re.compile(
    r"\s*(?:(?:<[^<>]{1,60}>.*>|\[[^\[\]]{1,100}\]|/[\w:-]{1,60})\s*"
    r"|(?:Base directory for this skill: |This session is being continued from a previous conversation).*)",
    re.DOTALL,
)


_QUOTED = re.compile(
    r'"[^"\n]{1,500}"|`[^`\n]{1,500}`|(?<!\w)\'[^\'\n]{1,500}\'(?!\w)|[\u201c\u201e][^\u201c\u201d\n]{1,500}[\u201c\u201d]'
    r"|\u00ab[^\u00bb\n]{1,500}\u00bb|[\u300c\u300e][^\u300d\u300f\n]{1,500}[\u300d\u300f]"
)
_ENTRY = re.compile(r"(\s{0,40})(?:(?:[-*+\u2022]|\(?(?:\d{1,3}|[a-z])[.)])\s|\d{1,3}[\u3001\uff0e]|[\u2460-\u2473])")
_ENDED = re.compile(r"[.!?;,\u3002\uff01\uff1f\uff1b\uff0c]\W{0,4}$")

MAX_LED_LINES: Final = 40
"""Of a list that belongs to a ban."""


def written_texts(action: ParsedCall) -> Iterator[str]:
    """Yield the prose in the arguments of a call: the message of a commit, a reply, a thought; no contents of files."""
    if action.operation in {"change", "plan"}:
        return
    if action.command:
        for quoted in _QUOTED_TEXT.finditer(action.command[:MAX_QUOTED_CHARS]):
            text = quoted[2] or quoted[3] or quoted[4]
            if _is_written(text):
                yield _TRAILER.sub("", _WRAPPED.sub(" ", text))
        return
    for key, value in action.arguments.items():
        if isinstance(value, str) and letters_of(key) not in _ORDER_KEYS and _is_written(value):
            yield value


def _is_written(text: str) -> bool:
    """Return whether a text consists of words rather than of code."""
    if chars_of(text) < MIN_WRITTEN_CHARS or not (_WORDS.search(text) and _SENTENCE_ENDS.search(text)):
        return False
    return len(_CODE_MARK.findall(text)) <= MAX_CODE_MARKS * len(text)


def says_task(text: str) -> bool:
    """Return whether a first message in tags or brackets says what to do, and is no bare command of the program."""
    return len(_TAG.sub(" ", text).split()) >= MIN_TASK_WORDS


def is_made_by_machine(text: str) -> bool:
    """Return whether a message is in a tag or in brackets, a bare command of the program, or the text of a skill."""
    return _MADE_BY_MACHINE.fullmatch(text) is not None


def own_words(text: str) -> str:
    """Return a message of the user without the words of others that it quotes.

    These are lines that begin with ``>``, elements such as ``<document>``, and a forwarded mail, which is the end.
    """
    forwarded = _FORWARDED.search(text)
    text = text if forwarded is None else text[: forwarded.start()]
    kept, unclosed = list[str](), set[str]()
    at = end = 0
    for line in text.splitlines(keepends=True):
        opened = _DOCUMENT.match(line) if at >= end else None
        if opened is not None and (closing := f"</{opened[1]}>") not in unclosed:
            end = text.find(closing, at)
            if end < 0:
                unclosed.add(closing)
        if at >= end and not line.lstrip().startswith(">"):
            kept.append(line)
        at += len(line)
    return "".join(kept)


def remarks(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the sentences of a message of the user, each with whether it forbids something.

    A ban that leads into a list holds the list. Lines of a log and words in quotation marks forbid nothing, unless the
    whole message is in quotation marks.
    """
    lines = own_words(text).splitlines()
    is_quoted = _QUOTED.fullmatch(text.strip()) is not None
    is_code, end = False, 0
    for at, line in enumerate(lines):
        is_fence = line.lstrip().startswith(FENCES)
        is_code ^= is_fence
        if is_fence or is_code or at < end:
            continue
        said = list(sentences(line))
        unquoted = line if is_quoted else _QUOTED.sub(_without_words, line)
        bare = said if unquoted == line else sentences(unquoted)
        bans = [not is_logged(line) and forbids(sentence) for sentence in bare]
        if bans and bans[-1] and (led := _led_lines(lines, at)):
            end = at + 1 + len(led)
            said[-1] = readable(" ".join([said[-1], *(one for one in led if not one.lstrip().startswith(FENCES))]))
        yield from zip(said, bans, strict=True)


def _without_words(quotation: re.Match[str]) -> str:
    """Return a quotation with other letters, so that it consists of as many sentences and says nothing."""
    return "".join(("x" if "a" <= char <= "z" else "X") if char.isalpha() else char for char in quotation[0])


def _led_lines(lines: Sequence[str], at: int) -> list[str]:
    """Return the lines of the list or of the code that the line *at* leads into, at most `MAX_LED_LINES`.

    A colon leads into plain lines as well; without one, only a list follows. A list in an entry of another is deeper.
    """
    outer = _ENTRY.match(lines[at])
    is_list = not leads_in(lines[at].rstrip())
    is_code = False
    found = list[str]()
    if is_list and (outer or _ENDED.search(lines[at].rstrip())):
        return found
    for line in lines[at + 1 : at + 1 + MAX_LED_LINES]:
        entry = _ENTRY.match(line)
        is_next = bool(line.strip()) and bool(found[-1].strip() if found else True)
        if line.lstrip().startswith(FENCES) and (is_code or not (is_list or any(map(str.strip, found)))):
            is_code, is_list = not is_code, True
        elif entry is not None and (outer is None or len(entry[1]) > len(outer[1])):
            is_list = True
        elif line.strip() and not is_code and (entry or not is_next or (is_list and not line[0].isspace())):
            break
        found.append(line)
    while found and not found[-1].strip():
        found.pop()
    return found


def plain_text(text: str) -> str:
    """Return a text; of a JSON object or list, as some agents answer, the texts in it, a line each.

    A mark of omission separates them, since the message has other characters between them.
    """
    stripped = text.strip()
    if not (stripped.startswith(("{", "[")) and stripped.endswith(("}", "]"))):
        return text
    leaves = (leaf for leaf in json_texts(json_in(stripped)) if any(char.isalpha() for char in leaf))
    return f"{CUT}\n".join(leaves) or text


def without_blocks(text: str) -> str:
    """Return a message with marks of omission for its tables and code, which nobody can read on one line."""
    kept: list[str] = []
    is_code = False
    for line in text.splitlines():
        is_fence = line.lstrip().startswith(FENCES)
        if is_fence or is_code or line.lstrip().startswith("|"):
            kept += [] if kept[-1:] == [CUT] else [CUT]
        elif line.strip():
            kept.append(line)
        is_code ^= is_fence
    shown = "\n".join(kept)
    return shown if any(char.isalnum() for char in shown) else text


def split_closing(text: str) -> tuple[str, list[str]]:
    """Part the end of a message, a question or the next step, from the text before it.

    The end consists of the sentences of the last line, or of a short list that asks, with the line that introduces it.
    Other lists, links, code and tags are content and ask for nothing. Without such an end, or if it is no question and
    too little text precedes it, return all of the text and an empty list.
    """
    lines = text.rstrip().split("\n")
    start = len(lines) - 1
    while start > 0 and (not lines[start].strip() or LIST_MARK.match(lines[start])):
        start -= 1
    is_list = LIST_MARK.match(lines[-1]) is not None
    is_led = asks(lines[start].rstrip()) or (leads_in(lines[start].rstrip()) and asks(lines[-1]))
    if _is_contents(lines[-1]) or (is_list and not (is_led and len(lines) - start <= 2 + CLOSING_LINES)):
        return text, []
    closing = list(sentences("\n".join(lines[start:] if is_list else lines[-1:])))
    body = "\n".join(lines[:start] if is_list else lines[:-1])
    if not is_list:
        kept = closing[-CLOSING_SENTENCES:] if body.strip() else closing[-1:]
        if len(kept) < len(closing):
            at = text.rfind(kept[0])
            body = text[:at] if at >= 0 else body
        closing = kept
    if chars_of(body.strip()) < MIN_SENTENCE_CHARS and not any(map(asks, closing)):
        return text, []
    return body, closing


def closing_question(text: str) -> str:
    """Return the last question at the end of a message; empty if it asks nothing there."""
    return next((sentence for sentence in reversed(split_closing(text)[1]) if asks(sentence)), "")


def last_words(text: str) -> str:
    """Return the last sentences of a message, those of its last lines that mean something."""
    kept = ""
    for line in reversed(without_blocks(text).rstrip().split("\n")):
        is_cut = line.strip() == CUT
        if _LINE_TAG.fullmatch(line) or not line.strip() or (is_cut and not kept):
            continue
        if is_cut or LIST_MARK.match(line):
            break
        said = list(sentences(line))[-LAST_SENTENCES:]
        at = line.rfind(said[0]) if said else -1
        if chars_of(kept) >= MIN_SENTENCE_CHARS:
            break
        kept = f"{line[max(at, 0) :]}\n{kept}".rstrip()
    return kept or text


def ending_of(text: str) -> str:
    """Return the last line of a text of several lines; empty if it has one line."""
    body, _, last = text.rstrip().rpartition("\n")
    return last.strip() if body.strip() else ""


def _is_contents(line: str) -> bool:
    mark = LIST_MARK.match(line)
    shown = line[mark.end() :] if mark else line
    return bool(_LINE_TAG.fullmatch(shown) or _LINK.fullmatch(shown)) or shown.lstrip().startswith((*FENCES, "|"))
