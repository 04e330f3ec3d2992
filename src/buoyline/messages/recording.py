"""Reading a recorded conversation from a file in one of the usual forms."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from buoyline.errors import MessageError
from buoyline.messages.dialect import blocks_of, kind_of, text_or_empty
from buoyline.messages.jsonl import is_array, is_object, parse, spell
from buoyline.messages.registry import detect

# The session files of Claude Code, ``~/.claude/projects/<project>/<session>.jsonl``, as messages in Anthropic's form.
#
# Such a file holds one record a line. Most records are no message, and the blocks of one answer are spread over
# several records, possibly with tool results between them. What the user wrote while the agent worked is in attachments
# of the type ``queued_command``. Anthropic documents no schema; this code follows recorded sessions.

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

    The records of a sub-agent are skipped, unless the file has no others. So is an abandoned branch: of two prompts
    behind the same record, the older one and all that follows it.

    Raises:
        MessageError: The content of a message is neither text, a list, nor null.
    """
    objects = [record for record in records if is_object(record)]
    is_of_sub_agent = all(record.get("isSidechain") is True for record in objects if _is_message(record))
    abandoned = _abandoned(objects)
    skipped = Counter({"lines without an object": len(records) - len(objects)})
    messages: list[dict[str, Any]] = []
    answers: dict[str, dict[str, Any]] = {}
    seen = set[str]()
    for record in objects:
        message = _message_in(record)
        record_id = text_or_empty(record.get("uuid"))
        kind = ""
        if message is None:
            kind = text_or_empty(record.get("type")) or "unknown"
        elif record.get("isSidechain") is True and not is_of_sub_agent:
            kind = "message of a sub-agent"
        elif record.get("isApiErrorMessage") is True:  # Claude Code shows it to the user; no model has seen it
            kind = "error of the API"
        elif record_id in seen:  # a resumed session repeats records
            kind = "repetition"
        elif record_id in abandoned:
            kind = "message of an abandoned branch"
        if message is None or kind:
            skipped[kind] += 1
            continue
        seen |= {record_id} - {""}
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


def _message_in(record: Mapping[str, Any]) -> Mapping[str, Any] | None:
    if _is_message(record):
        return dict(record["message"])
    queued = record.get("attachment")
    if is_object(queued) and queued.get("type") == "queued_command" and queued.get("commandMode", "prompt") == "prompt":
        return {"role": "user", "content": queued.get("prompt")}
    return None


def _abandoned(records: Sequence[Mapping[str, Any]]) -> set[object]:
    """Return the ids of the records in abandoned branches."""
    newest: dict[str, object] = {}
    gone = set[object]()
    for record in records:
        message, parent = _message_in(record), record.get("parentUuid")
        if not isinstance(parent, str) or message is None or message.get("role") != "user":
            continue
        blocks = blocks_of(message.get("content"))
        if not any(kind_of(block) == "tool_result" for block in blocks):
            before = newest.get(parent, record.get("uuid"))
            gone |= {before} - {record.get("uuid")}
            newest[parent] = record.get("uuid")
    for record in records:
        if record.get("parentUuid") in gone:
            gone.add(record.get("uuid"))
    return gone


_EXPECTED = (
    "expected one message a line, a JSON array of messages, an object with 'messages', or a session file of Claude Code"
)


def read_recording(content: bytes, source: str) -> Recording:
    """Read a conversation: JSON lines, an array, an object with ``messages``, or a session file of Claude Code.

    The content decides the form. The ``system`` prompt of an object becomes the first message. The dialect of each
    message is detected. *source* is the name of the file, for errors.

    Raises:
        MessageError: The file has none of these forms, or a value in it is no message of a known dialect; the error
            names the place, the expected form and the value.
    """
    values, unit = _values(content, source)
    form = {"line": "JSON lines", "message": "JSON array"}[unit]
    if unit == "line" and any(is_object(value) and _is_message(value) for value in values):
        session = read_claude_code(values)
        _check(session.messages, f"{source}, message")
        return session
    if len(values) == 1 and is_object(body := values[0]) and "role" not in body and "messages" in body:
        messages, system = body["messages"], body.get("system")
        if not is_array(messages):
            raise MessageError(f"{source}: 'messages' must be a list of messages, not {type(messages).__name__}")
        values = [*([{"role": "system", "content": system}] if system else []), *messages]
        unit, form = "message", "JSON object with 'messages'"
    _check(values, f"{source}, {unit}", first=1 if unit == "line" else 0)
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


def _check(messages: Sequence[Any], place: str, *, first: int = 0) -> None:
    """Check that each message can be read and written."""
    if not messages:
        raise MessageError(f"{place.rpartition(',')[0]}: holds no messages; {_EXPECTED}")
    for number, message in enumerate(messages, first):
        try:
            detect(message).view(message)
            spell(message)
        except MessageError as error:
            raise MessageError(f"{place} {number}: {error.reason}") from error
