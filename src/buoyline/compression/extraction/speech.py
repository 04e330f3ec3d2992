"""What people and agents say, told from its form: what is a rule, an announcement, a question, the end of a report."""

import json
import re
from collections.abc import Sequence
from typing import Final

from buoyline.compression.claims import CUT
from buoyline.compression.extraction.calls import leaves
from buoyline.compression.signals import FENCES, LIST_MARK, sentences

MIN_SENTENCE_CHARS: Final = 25
"""A shorter sentence of an agent says nothing alone."""

CLOSING_SENTENCES: Final = 3
"""At the end of a message: they say what comes next."""

CLOSING_LINES: Final = 6
"""A longer list at the end of a message is its contents, and not what it asks for."""

LAST_SENTENCES: Final = 3
"""Of a message that goes over into calls: they say what the calls are for."""

_IDEOGRAPH = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")

# How users word a rule, in the languages that we know such words of; rules in others stand in their messages.
_RULE = re.compile(
    r"\b(?:must|never|always|don't|do not|only|should|shouldn't|instead|prefer|please|make sure|without|avoid"
    r"|muss|nie|immer|nicht|nur|bitte|jamais|toujours|doit|nunca|siempre|debe)\b"
    r"|\u4e0d\u8981|\u5fc5\u987b|\u4e0d\u80fd|\u53ea\u80fd|\u52a1\u5fc5|\u8bf7|\u5e94\u8be5|\u7981\u6b62"
    r"|\u3057\u306a\u3044\u3067|\u5fc5\u305a|\u304f\u3060\u3055\u3044|\ubc18\ub4dc\uc2dc|\u043d\u0435\u043b\u044c\u0437\u044f",
    re.IGNORECASE,
)

_INTENDS = re.compile(
    r"\W{0,4}(?:(?:now|next|first|then|ok|okay|good|great|perfect),? )?(?:let me|let's|i'll|i will|i need to"
    r"|i'm going to|ich werde|je vais|voy a)\b|\u6211\u6765|\u8ba9\u6211|\u73b0\u5728\u6211",
    re.IGNORECASE,
)

_LEADS_IN = re.compile(r"[:\uff1a][*_`]{0,3}$")
_ASKS = re.compile(r"[?\uff1f][*_`\"')\u201d\u300d]{0,3}$")
_LINE_TAG = re.compile(r"\s*</?[A-Za-z][^<>]{0,200}>\s*")
_LINK = re.compile(r"\W{0,4}!?\[[^\[\]]{0,300}\]\([^()\s]{1,2000}\)\W{0,4}")
_MADE_BY_MACHINE = re.compile(r"\s*(?:<[^<>]{1,60}>.*>|\[[^\[\]]{1,100}\]|/[\w:-]{1,60})\s*", re.DOTALL)


def chars_of(text: str) -> int:
    """Count characters; the ideographs of one language say as much as three letters of another."""
    return len(text) + 2 * len(_IDEOGRAPH.findall(text))


def is_rule(sentence: str) -> bool:
    """Tell whether a sentence is worded as a rule, in one of several languages."""
    return _RULE.search(sentence) is not None


def leads_in(sentence: str) -> bool:
    """Tell whether a sentence says nothing without the list or the code behind it."""
    return _LEADS_IN.search(sentence) is not None


def asks(sentence: str) -> bool:
    """Tell whether a sentence is a question."""
    return _ASKS.search(sentence) is not None


def announces(sentence: str) -> bool:
    """Tell whether a sentence says what somebody is about to do, in one of several languages."""
    return _INTENDS.match(sentence) is not None


def is_made_by_machine(text: str) -> bool:
    """Tell whether a message is wholly in a tag or in brackets, or a bare command of the program: nobody's words."""
    return _MADE_BY_MACHINE.fullmatch(text) is not None


def in_words(text: str) -> str:
    """Return a text; of a JSON object or list, as some agents answer, the texts in it, each on a line of its own.

    A mark of omission stands between them, since in the message other things do.
    """
    stripped = text.strip()
    if not (stripped.startswith(("{", "[")) and stripped.endswith(("}", "]"))):
        return text
    try:
        value: object = json.loads(stripped)
    except (ValueError, RecursionError):
        return text
    return f"{CUT}\n".join(leaf for leaf in leaves(value) if any(char.isalpha() for char in leaf)) or text


def without_blocks(text: str) -> str:
    """Return a message without its tables and its code, cut where they stood: on one line nobody can read them."""
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


def without_closing(text: str) -> tuple[str, list[str]]:
    """Part what a message ends with, a question or what comes next, from what stands before it.

    That are the sentences of its last line, or a short list that asks, with the line that leads in to it. Other
    lists, links, code and tags are contents, and ask for nothing.

    Returns:
        What stands before, and the sentences at the end; all of it and none where the end is none, or where it is
        no question and too little stands before it.
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


def last_words(text: str) -> str:
    """Return what a message ends with: its last sentence, and those before it in the last lines that say something."""
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


def repeated_endings(texts: Sequence[str], *, at_least: int) -> frozenset[str]:
    """Return the last lines in which so many of some texts of several lines end: no person ends so often alike."""
    seen: dict[str, int] = {}
    for text in texts:
        body, _, last = text.rstrip().rpartition("\n")
        if body.strip():
            seen[last.strip()] = seen.get(last.strip(), 0) + 1
    return frozenset(ending for ending, count in seen.items() if count >= at_least)


def ending_of(text: str) -> str:
    """Return the last line of a text of several lines; empty of one line."""
    body, _, last = text.rstrip().rpartition("\n")
    return last.strip() if body.strip() else ""


def _is_contents(line: str) -> bool:
    mark = LIST_MARK.match(line)
    shown = line[mark.end() :] if mark else line
    return bool(_LINE_TAG.fullmatch(shown) or _LINK.fullmatch(shown)) or shown.lstrip().startswith((*FENCES, "|"))
