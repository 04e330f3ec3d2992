"""Read the answer of a model or a function into the fields of a summary.

Models wrap JSON in fences and prose, and leave raw line ends in its strings; neither is worth a second request.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final

from buoyline.compression.checks import MARK
from buoyline.compression.render import NOTHING
from buoyline.messages.jsonl import is_array, is_object
from buoyline.tokens import TextCounter

# Only buoyline may write the frame of a summary, the first line of a stub or the heading of a field: a model repeats
# its input, and a tool can make it read anything.
_FORGED = re.compile(
    r"</?(?:conversation|previous-summary)(?:-[0-9a-f]{0,12})?>|<\|[A-Za-z0-9_]{1,40}\|>"
    r"|</?(?:system-reminder|persisted-output)>|<<<TRUNCATED>>>"
    r"|^[^\S\n]{0,9}\[(?:Summary of messages|Tool result offloaded|offloaded)\b[^\n]*$\n?",
    re.MULTILINE,
)
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
)
_HEADING = re.compile(r"^(\s{0,3})#{1,6}[ \t]+")
_CODE_FENCE = re.compile(r"^\s{0,3}(?:```|~~~)")
_MOST_STARTS: Final = 20
_MOST_DEPTH: Final = 4


def cleaned(text: str) -> str:
    """Return the text of one field without chat marks, frames, stubs and headings; clean text is returned as it is.

    Lines in a block of code keep their signs: there ``#`` begins a comment.
    """
    plain = _INVISIBLE.sub("", text.replace("\r\n", "\n").replace("\r", "\n")).replace(MARK, "")
    for _ in range(5):  # what is removed may leave another behind
        plain, count = _FORGED.subn("", plain)
        if not count:
            break
    lines, in_code = list[str](), False
    for line in plain.split("\n"):
        in_code ^= bool(_CODE_FENCE.match(line))
        lines.append(line if in_code else _HEADING.sub(r"\1- ", line))
    return "\n".join(lines).strip()


def fields_in(answer: object, names: Sequence[str]) -> dict[str, str]:
    """Return the text of each field in an answer: a mapping, JSON in a text, or texts under the names of fields.

    A field that is there and says nothing says so; one that is not there is left out.
    """
    if isinstance(answer, str):
        answer = _object_in(answer, names) or _sections(answer, names)
    if not is_object(answer):
        return {}
    return {name: cleaned(_text_of(answer[name])) or NOTHING for name in names if name in answer}


def _object_in(text: str, names: Sequence[str]) -> Mapping[str, object]:
    """Return the JSON object in *text* that has the most of *names*."""
    decoder, most = json.JSONDecoder(strict=False), 0
    best: Mapping[str, object] = {}
    start = text.find("{")
    for _ in range(_MOST_STARTS):
        if start < 0 or most == len(names):
            break
        try:
            found, _ = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            found = None
        if is_object(found) and (held := sum(name in found for name in names)) > most:
            best, most = found, held
        start = text.find("{", start + 1)
    return best


def _sections(text: str, names: Sequence[str]) -> Mapping[str, object]:
    """Return the text under each field name that is a heading or ends in a colon."""
    spelled = {name.replace("_", " ").casefold(): name for name in names}
    pattern = "|".join(re.escape(name).replace(r"\ ", "[ _]") for name in spelled)
    heading = re.compile(
        rf"^[ \t]{{0,3}}(?:#{{1,6}}[ \t]*)?[*_`\"]{{0,3}}({pattern})[*_`\"]{{0,3}}[ \t]*(?::|$)",
        re.IGNORECASE | re.MULTILINE,
    )
    found: dict[str, object] = {}
    matches = list(heading.finditer(text))
    ends = [*(match.start() for match in matches[1:]), len(text)]
    for match, end in zip(matches, ends, strict=False):  # without any there is one end
        name = spelled[match[1].replace("_", " ").casefold()]
        said = text[match.end() : end].lstrip("*_` \t").strip()
        found[name] = f"{found[name]}\n{said}" if name in found else said
    return found


def _text_of(value: object, depth: int = 0) -> str:
    """Return a JSON value as text; each entry of a list becomes a line, since models give lists for texts."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if depth < _MOST_DEPTH and is_array(value):
        return "\n".join(f"- {_text_of(item, depth + 1)}" for item in value)
    if depth < _MOST_DEPTH and is_object(value):
        return "\n".join(f"- {name}: {_text_of(item, depth + 1)}" for name, item in value.items())
    return json.dumps(value, ensure_ascii=False, default=str)


_SENTENCE_END = re.compile(r"(?<=[.!?\])])\s+|(?<=[\u3002\uff01\uff1f])|\n")


def shortened(fields: Mapping[str, str], max_tokens: int, counter: TextCounter) -> dict[str, str]:
    """Return *fields* within *max_tokens*; each keeps its beginning, up to the end of a sentence if one is near.

    Models write first what they hold most needed.
    """
    found, share = dict(fields), 1.0
    while share > 0.01 and sum(map(counter.count, found.values())) > max_tokens:  # noqa: PLR2004 - nothing fits
        share *= 0.85
        found = {name: _cut(text, int(counter.count(text) * share), counter) for name, text in fields.items()}
    return found if sum(map(counter.count, found.values())) <= max_tokens else dict.fromkeys(fields, "")


def _cut(text: str, max_tokens: int, counter: TextCounter) -> str:
    if not counter.exceeds(text, max_tokens):
        return text
    head = counter.head(text, max_tokens)
    end = max((match.start() for match in _SENTENCE_END.finditer(head)), default=0)
    return (head[:end] if end * 2 > len(head) else head[: max(head.rfind(" "), 0)] or head).rstrip()
