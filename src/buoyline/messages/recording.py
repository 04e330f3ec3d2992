"""Reading a recorded conversation from a file in one of the usual forms."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from buoyline.errors import MessageError
from buoyline.messages.dialect import blocks_of
from buoyline.messages.jsonl import is_array, is_object, parse, spell
from buoyline.messages.registry import detect, dialect_named

# The session files of Claude Code, ``~/.claude/projects/<project>/<session>.jsonl``, as messages in Anthropic's form.
#
# Such a file holds one record a line. Most records are no message, and the blocks of one answer are spread over
# several records, possibly with tool results between them. Anthropic documents no schema; this code follows recorded
# sessions of the versions 2.1.7 to 2.1.29. The messages keep the order of the file, including abandoned branches.

_SPEAKERS = frozenset({"user", "assistant"})


@dataclass(frozen=True, slots=True)
class Recording:
    """A recorded conversation.

    Attributes:
        messages: In order, each of a known dialect.
        form: Of the file, in words.
        skipped: How many records are no messages, by kind, the most frequent first.
        compactions: How often the recorded agent compacted; its summaries are user messages.
    """

    messages: list[dict[str, Any]]
    form: str
    skipped: Mapping[str, int] = field(default_factory=dict[str, int])
    compactions: int = 0


def read_claude_code(records: Sequence[object]) -> Recording:
    """Return the conversation in *records*; each message has only a role and its content.

    The records of a sub-agent are skipped, unless the file has no others.

    Raises:
        MessageError: The content of a message is neither text, a list, nor null.
    """
    objects = [record for record in records if is_object(record)]
    is_of_sub_agent = all(record.get("isSidechain") is True for record in objects if _is_message(record))
    skipped = Counter({"lines without an object": len(records) - len(objects)})
    messages: list[dict[str, Any]] = []
    answers: dict[str, dict[str, Any]] = {}
    seen = set[str]()
    for record in objects:
        kind = _reason_to_skip(record, seen, is_of_sub_agent=is_of_sub_agent)
        if kind:
            skipped[kind] += 1
            continue
        message = record["message"]
        answer_id, content = message.get("id"), message.get("content")
        found: dict[str, Any] = {"role": message.get("role"), "content": content}
        if not isinstance(answer_id, str) or message.get("role") != "assistant":
            messages.append(found)
        elif answer_id in answers:  # more blocks of an answer, even if results have followed it since
            answers[answer_id]["content"] += blocks_of(content)
        else:
            found["content"] = [*blocks_of(content)]
            answers[answer_id] = found
            messages.append(found)
    return Recording(
        messages,
        "Claude Code session",
        {kind: count for kind, count in skipped.most_common() if count},
        sum(record.get("isCompactSummary") is True for record in objects),
    )


def _is_message(record: Mapping[str, Any]) -> bool:
    """Return whether *record* is Claude Code's for a message: the message wrapped in an object with a ``type``."""
    return "role" not in record and record.get("type") in _SPEAKERS and is_object(record.get("message"))


def _reason_to_skip(record: Mapping[str, Any], seen: set[str], *, is_of_sub_agent: bool) -> str:
    """Return the kind of a record that is no message of the conversation, else ``""``."""
    if not _is_message(record):
        kind = record.get("type")
        return kind if isinstance(kind, str) and kind not in _SPEAKERS else "unknown"
    if record.get("isSidechain") is True and not is_of_sub_agent:
        return "message of a sub-agent"
    if record.get("isApiErrorMessage") is True:  # Claude Code shows it to the user; no model has written or seen it
        return "error of the API"
    record_id = record.get("uuid")
    if isinstance(record_id, str) and record_id in seen:  # a resumed session repeats records
        return "repetition"
    if isinstance(record_id, str):
        seen.add(record_id)
    return ""


_EXPECTED = (
    "expected one message a line, a JSON array of messages, an object with 'messages', or a session file of Claude Code"
)


def read_recording(content: bytes, source: str, dialect: str | None = None) -> Recording:
    """Read a conversation: JSON lines, an array, an object with ``messages``, or a session file of Claude Code.

    The content decides the form. The ``system`` prompt of an object becomes the first message. The dialect of each
    message is detected unless *dialect* is given. *source* is the name of the file, for errors.

    Raises:
        MessageError: The file has none of these forms, or a value in it is no message of the dialect; the error names
            the place, the expected form and the value.
        ConfigError: There is no such dialect.
    """
    values, unit = _values(content, source)
    form = {"line": "JSON lines", "message": "JSON array"}[unit]
    if unit == "line" and any(is_object(value) and _is_message(value) for value in values):
        session = read_claude_code(values)
        _check(session.messages, f"{source}, message", dialect)
        return session
    if len(values) == 1 and is_object(body := values[0]) and "role" not in body and "messages" in body:
        messages, system = body["messages"], body.get("system")
        if not is_array(messages):
            raise MessageError(f"{source}: 'messages' must be a list of messages, not {type(messages).__name__}")
        values = [*([{"role": "system", "content": system}] if system else []), *messages]
        unit, form = "message", "JSON object with 'messages'"
    _check(values, f"{source}, {unit}", dialect, first=1 if unit == "line" else 0)
    return Recording(values, form)


def _values(content: bytes, source: str) -> tuple[list[Any], str]:
    """Return the JSON values of a file, and the unit that each is: a ``line``, or a ``message`` of an array."""
    stripped = content.removeprefix(b"\xef\xbb\xbf").rstrip()
    if not stripped:
        raise MessageError(f"{source}: is empty; {_EXPECTED}")
    lines = stripped.split(b"\n")
    if (len(lines) > 1 and lines[0].strip()[-1:] in (b"[", b"{", b",")) or not lines[0].strip():
        values = [_parsed(stripped, source)]
    else:
        values = [_parsed(line, f"{source}, line {number}") for number, line in enumerate(lines, 1)]
    if len(values) == 1 and is_array(values[0]):  # an array that is the file's only value
        return list(values[0]), "message"
    return values, "line"


def _parsed(content: bytes, place: str) -> Any:
    if not content.strip():
        raise MessageError(f"{place}: is blank; each line holds one message")
    try:
        return parse(content)
    except MessageError as error:
        raise MessageError(f"{place}: {error.reason}; {_EXPECTED}") from error


def _check(messages: Sequence[Any], place: str, dialect: str | None, *, first: int = 0) -> None:
    """Check that each message can be read and written, and that *dialect*, if given, sees all its calls and results.

    Another dialect's calls and results would pass for text, and never be offloaded.
    """
    if not messages:
        raise MessageError(f"{place.rpartition(',')[0]}: holds no messages; {_EXPECTED}")
    for number, message in enumerate(messages, first):
        try:
            if dialect is None:
                detect(message).view(message)
            else:
                _require_seen(message, dialect)
            spell(message)
        except MessageError as error:
            raise MessageError(f"{place} {number}: {error.reason}") from error


def _require_seen(message: Any, dialect: str) -> None:
    seen = dialect_named(dialect).view(message)
    try:
        other = detect(message)
    except MessageError:
        return  # the named dialect alone knows it
    there = other.view(message)
    if len(there.calls) > len(seen.calls):
        missed = "tool call"
    elif len(there.results) > len(seen.results):
        missed = "tool result"
    else:
        return
    raise MessageError(
        f"has a {missed} of the dialect {other.name} that {dialect} does not see; name {other.name}, or none"
    )
