"""Read an answer of any form into the fields of a summary.

Pure. Models wrap JSON in fences and prose, and leave raw line ends in its strings; neither is worth a second request. A
missing field or another kind of answer is.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final

from buoyline.compression.citations import MARK
from buoyline.compression.summarizers.attempts import Failure, FailureKind
from buoyline.compression.summary import Draft, SummaryRequest
from buoyline.messages.jsonl import is_array, is_object

# Remove text that the context would take for buoyline's own.
#
# A model repeats its input, and a tool can make it read anything: only buoyline may write the frame of a summary, the
# first line of a stub or the heading of a field.


_FENCES = re.compile(r"</?(?:conversation|previous-summary|work-state)(?:-[0-9a-f]{0,12})?>")
_CHAT_MARKS = re.compile(r"<\|[A-Za-z0-9_]{1,40}\|>|</?(?:system-reminder|persisted-output)>")
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
)
_OUR_FRAME = re.compile(r"^\s{0,9}\[(?:Summary of messages|Tool result offloaded|offloaded)\b[^\n]*$\n?", re.MULTILINE)
_TRUNCATED = "<<<TRUNCATED>>>"
_HEADING = re.compile(r"^(\s{0,3})#{1,6}[ \t]+")
_CODE_FENCE = re.compile(r"^\s{0,3}(?:```|~~~)")

DEMOTED: Final = "- "
"""Replaces the signs of a heading: only the template's headings may stand above fields."""


def cleaned(text: str) -> str:
    """Return the text of one field without chat marks, frames, stubs and headings; clean text is returned as it is.

    Lines in a block of code keep their signs: there ``#`` begins a comment.
    """
    plain = _INVISIBLE.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    for pattern in (_FENCES, _CHAT_MARKS, _OUR_FRAME):
        plain = _gone(pattern, plain)
    plain = plain.replace(MARK, "").replace(_TRUNCATED, "")
    lines: list[str] = []
    in_code = False
    for line in plain.split("\n"):
        in_code ^= bool(_CODE_FENCE.match(line))
        lines.append(line if in_code else _HEADING.sub(rf"\1{DEMOTED}", line))
    return "\n".join(lines).strip()


def _gone(pattern: re.Pattern[str], text: str) -> str:
    """Remove every match, and matches that arise when the text between two halves is removed, a few times at most."""
    for _ in range(5):
        text, count = pattern.subn("", text)
        if not count:
            break
    return text


NOTHING_NOTED: Final = "Nothing noted."
"""Fills a field that the model left empty on purpose."""

_FENCED = re.compile(r"\A\s*```[a-zA-Z]{0,10}\s*\n(.*?)\n?\s*```\s*\Z", re.DOTALL)
_BROKEN_JSON = re.compile(r"\s*(?:```[a-zA-Z]{0,10}\s*)?\{\s*(?:\"|\Z)")
"""Begins an object; `_object_in` has not found a whole one."""

_MAX_STARTS = 20
_MAX_DEPTH = 4


def fields_of(answer: object, request: SummaryRequest) -> dict[str, str]:
    """Return a text for each field that *request* names, in their order, cleaned and not empty.

    *answer* is a text (JSON, or text under the names of fields) or a mapping.

    Raises:
        Failure: The answer is empty, has another form, or lacks a field.
    """
    found = _fields_in(answer, request.fields) if isinstance(answer, str) else answer
    if not is_object(found):
        # Its words may be those of a message, and this reason is logged.
        kind = "a text without fields" if isinstance(answer, str) else type(answer).__name__
        raise Failure(FailureKind.MALFORMED, f"the answer is no JSON object, but {kind}")
    missing = [name for name in request.fields if name not in found]
    if missing:
        raise Failure(FailureKind.MALFORMED, f"the answer lacks {', '.join(missing)}")
    fields = {name: cleaned(text_of(found[name])) for name in request.fields}
    if not any(fields.values()):
        raise Failure(FailureKind.EMPTY, "every field of the answer is empty")
    return {name: text or NOTHING_NOTED for name, text in fields.items()}


def _fields_in(text: str, names: Sequence[str]) -> Mapping[str, object] | None:
    """Return the fields that *text* spells in JSON or under their names; None for free text.

    Raises:
        Failure: It is empty, or a broken JSON object.
    """
    if not text.strip():
        raise Failure(FailureKind.EMPTY, "the answer is empty")
    found = _object_in(text, names)
    if found is None and _BROKEN_JSON.match(text):
        # Its keys look like headings, and the last field is likely cut.
        raise Failure(FailureKind.MALFORMED, "the answer is a JSON object that is not whole or not valid")
    return sections(text, names) if found is None else found


def sections(text: str, names: Sequence[str]) -> dict[str, str] | None:
    """Return the text under each field name that is a heading or ends in a colon; None if there is no such name."""
    spelled = {name.replace("_", " ").casefold(): name for name in names}
    pattern = "|".join(re.escape(name).replace(r"\ ", "[ _]") for name in spelled)
    heading = re.compile(
        rf"^[ \t]{{0,3}}(?:#{{1,6}}[ \t]*)?[*_`\"]{{0,3}}({pattern})[*_`\"]{{0,3}}[ \t]*(:|$)",
        re.IGNORECASE | re.MULTILINE,
    )
    matches = list(heading.finditer(text))
    if not matches:
        return None
    found: dict[str, str] = {}
    for match, end in zip(matches, [*(later.start() for later in matches[1:]), len(text)], strict=True):
        name = spelled[match[1].replace("_", " ").casefold()]
        said = text[match.end() : end].lstrip("*_` \t").strip()
        found[name] = f"{found[name]}\n{said}" if name in found else said
    return found


def _object_in(text: str, names: Sequence[str]) -> Mapping[str, object] | None:
    """Return the JSON object in *text* that has the most of *names*; one that has none must be all of the text."""
    wrapped = _FENCED.match(text)
    body = (wrapped[1] if wrapped else text).strip()
    decoder = json.JSONDecoder(strict=False)
    best: Mapping[str, object] | None = None
    most = 0
    start = body.find("{")
    for _ in range(_MAX_STARTS):
        if start < 0 or most == len(names):
            break
        try:
            found, end = decoder.raw_decode(body, start)
        except (ValueError, RecursionError):
            found, end = None, start
        held = sum(name in found for name in names) if is_object(found) else 0
        if is_object(found) and (held > most or (found and end - start == len(body))):
            best, most = found, held
        start = body.find("{", start + 1)
    return best


def text_of(value: object, depth: int = 0) -> str:
    """Return a JSON value as text; each entry of a list becomes a line, since models give lists for texts."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if depth < _MAX_DEPTH and is_array(value):
        return "\n".join(f"- {text_of(item, depth + 1)}" for item in value)
    if depth < _MAX_DEPTH and is_object(value):
        return "\n".join(f"- {name}: {text_of(item, depth + 1)}" for name, item in value.items())
    return json.dumps(value, ensure_ascii=False, default=str)


def draft_of(answer: object, request: SummaryRequest, name: str) -> Draft:
    """Return the answer of a user's function as a draft.

    A text without fields becomes ``current_state``, and the other fields refer to it: to refuse it would be to refuse
    the simplest summarizer there is.

    Raises:
        Failure: The answer is empty or lacks fields.
    """
    if isinstance(answer, Draft):
        return answer
    names = request.fields
    if not isinstance(answer, str) or _fields_in(answer, names) is not None:
        return Draft(name, fields_of(answer, request))
    text = cleaned(answer)
    if not text:
        raise Failure(FailureKind.EMPTY, "the answer is empty")
    field = "current_state" if "current_state" in names else names[0]
    return Draft(name, {other: text if other == field else f"See {field.replace('_', ' ')}." for other in names})
