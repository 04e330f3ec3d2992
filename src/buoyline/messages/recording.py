"""Reading a recorded conversation from a file in one of the usual forms."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from buoyline.errors import MessageError
from buoyline.messages.jsonl import is_array, is_object, parse, spell, time_from
from buoyline.messages.parts import string
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
        times: When each was recorded, ISO 8601; empty if the file does not say so beside the message.
        form: Of the file, in words.
        skipped: How many records are no messages, by kind, the most frequent first.
        compactions: How often the recorded agent compacted; its summaries are user messages.
    """

    messages: list[dict[str, Any]]
    times: list[str]
    form: str
    skipped: Mapping[str, int] = field(default_factory=dict[str, int])
    compactions: int = 0


def read_recording(content: bytes, source: str) -> Recording:
    """Read a conversation: JSON lines, an array, an object with ``messages``, or a session file of Claude Code.

    The content decides the form. The ``system`` prompt of an object becomes the first message. The dialect of each
    message is detected. A line that is no JSON, and a value that is no message, is skipped and counted. *source* is the
    name of the file, for errors.

    Raises:
        MessageError: The file holds no message; the error says what was expected, and what the first problem is.
    """
    values, form, damaged = _values(content)
    skipped, compactions = Counter({"lines that are not JSON": damaged} if damaged else {}), 0
    if any(is_object(value) and _is_message(value) for value in values):
        form = "Claude Code session"
        compactions = sum(is_object(value) and value.get("isCompactSummary") is True for value in values)
        timed = _claude_code(values, skipped)
    else:
        timed = [(value, "") for value in values]
    messages, times = list[Any](), list[str]()
    for value, time in timed:
        try:
            detect(value).view(value)
            spell(value)
            messages.append(value)
            times.append(time)
        except MessageError as error:
            skipped[error.reason] += 1
    if not messages:
        found = f", not {next(iter(skipped))}" if skipped else ""
        raise MessageError(
            f"{source}: holds no messages: expected one message a line, a JSON array of messages, an object with "
            f"'messages', or a session file of Claude Code{found}"
        )
    return Recording(messages, times, form, dict(skipped.most_common()), compactions)


def _values(content: bytes) -> tuple[list[Any], str, int]:
    """Return the JSON values of a file, its form in words, and how many lines are no JSON."""
    content = content.removeprefix(b"\xef\xbb\xbf")
    try:
        whole = parse(content)
    except MessageError:
        values, damaged = list[Any](), 0
        for line in filter(bytes.strip, content.split(b"\n")):
            try:
                values.append(parse(line))
            except MessageError:
                damaged += 1
        return values, "JSON lines", damaged
    match whole:
        case [*messages]:
            return messages, "JSON array", 0
        case {"messages": [*messages], **others} if "role" not in others:
            prompt = others.get("system")
            system = [{"role": "system", "content": prompt}] if prompt else []
            return [*system, *messages], "JSON object with 'messages'", 0
        case _:
            return [whole], "JSON lines", 0


def _claude_code(records: Sequence[object], skipped: Counter[str]) -> list[tuple[dict[str, Any], str]]:
    """Return the conversation in *records* with its times, and count the others.

    Each message has only a role and its content.

    The records of a sub-agent are skipped, unless the file has no others. So is an abandoned branch: of two prompts
    after the same record, the older one and all that follows it.
    """
    objects = [record for record in records if is_object(record)]
    is_of_sub_agent = all(record.get("isSidechain") is True for record in objects if _is_message(record))
    abandoned = _abandoned(objects)
    messages: list[tuple[dict[str, Any], str]] = []
    answers: dict[str, dict[str, Any]] = {}
    seen = set[str]()
    for record in objects:
        message = _message_in(record)
        record_id = string(record.get("uuid"))
        kind = ""
        if message is None:
            kind = string(record.get("type")) or "unknown"
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
        role, content = message.get("role"), message.get("content")
        answer_id = string(message.get("id")) if role == "assistant" else ""
        made: dict[str, Any] = {"role": role, "content": [*content] if is_array(content) else content}
        known = answers.setdefault(answer_id, made) if answer_id and is_array(content) else made
        if known is made:
            messages.append((made, time_from(record.get("timestamp"))))
        else:  # more of an answer, even if results have followed it since
            known["content"] += content
    return messages


def _is_message(record: Mapping[str, Any]) -> bool:
    """Return whether *record* is Claude Code's for a message: the message wrapped in an object with a ``type``."""
    return "role" not in record and record.get("type") in _SPEAKERS and is_object(record.get("message"))


def _message_in(record: Mapping[str, Any]) -> Mapping[str, Any] | None:
    if _is_message(record):
        return dict(record["message"])
    match record.get("attachment"):
        case {"type": "queued_command", "prompt": prompt, **others} if others.get("commandMode", "prompt") == "prompt":
            return {"role": "user", "content": prompt}
        case _:
            return None


def _abandoned(records: Sequence[Mapping[str, Any]]) -> set[object]:
    """Return the ids of the records in abandoned branches."""
    newest: dict[str, object] = {}
    gone = set[object]()
    for record in records:
        message, parent = _message_in(record) or {}, record.get("parentUuid")
        content, own = message.get("content"), record.get("uuid")
        if not isinstance(parent, str) or message.get("role") != "user":
            continue
        if not (
            is_array(content) and any(is_object(block) and block.get("type") == "tool_result" for block in content)
        ):
            gone |= {newest.get(parent, own)} - {own}
            newest[parent] = own
    for record in records:
        if record.get("parentUuid") in gone:
            gone.add(record.get("uuid"))
    return gone
